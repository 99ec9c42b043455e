-- How fresh each table is. `reports::freshness_sql` puts in what depends on the resources: a SELECT per table, and
-- which scopes there should be, which depends on how a resource is read. Everything is asked once for all tables:
-- planning a subquery per table would cost more than the answer.
CREATE OR REPLACE VIEW report.freshness AS
WITH
seen AS (
    SELECT case_id AS id FROM sync.seen WHERE removed IS NOT TRUE
),
case_ids AS (
    SELECT id FROM seen
    UNION ALL
    SELECT id
    FROM (SELECT id FROM main.cases UNION ALL SELECT id FROM main.projects)
    ANTI JOIN seen USING (id)
    GROUP BY id
),
tables AS (
{tables}
),
named AS (
    -- The scopes that there should be, where rows of the mirror say so: those can change after a scope was read.
{named}
),
named_by_reading AS (
    -- Those of tables in which what was read is what there should be, too.
{named_by_reading}
),
known AS (
    SELECT table_name, CAST(sum(scopes) AS BIGINT) AS scopes_known
    FROM (
        SELECT table_name, count(*) AS scopes FROM named GROUP BY table_name
        UNION ALL
        SELECT table_name, count(*) FROM named_by_reading GROUP BY table_name
        UNION ALL
        SELECT table_name, count(*) FILTER (WHERE wanted)
        FROM sync.journal_months
        GROUP BY table_name
        UNION ALL
        SELECT col0, col1 FROM (VALUES {once})
        UNION ALL
        SELECT col0, scopes
        FROM (VALUES {per_case})
        CROSS JOIN (SELECT count(*) AS scopes FROM case_ids)
    )
    GROUP BY table_name
),
-- Which scopes were read is what sync.read_scopes says. Here they are only counted, so what the rows of a million cases
-- say of each of their tables need not be taken apart: how many cases there are of each coverage and mark is enough.
-- Of a table in `named`, more may have been read than there should be now: only what there should be counts.
covered AS (
    SELECT c.table_name, f.mark, f.cases AS scopes
    FROM (SELECT coverage, mark, count(*) AS cases FROM sync.fetched_cases GROUP BY ALL) AS f
    JOIN sync.fetched_coverage AS c ON c.coverage = f.coverage
    WHERE c.table_name NOT IN ({names})
    UNION ALL
    SELECT f.table_name, f.mark, f.cases
    FROM (
        SELECT n.table_name, x.coverage, x.mark, count(*) AS cases
        FROM named AS n
        JOIN sync.fetched_cases AS x ON x.case_id = n.id
        GROUP BY ALL
    ) AS f
    JOIN sync.fetched_coverage AS c ON c.coverage = f.coverage AND c.table_name = f.table_name
),
exceptions AS (
    SELECT table_name, id, part, complete, mark FROM sync.fetched_scopes WHERE table_name NOT IN ({names})
    UNION ALL
    SELECT x.table_name, x.id, x.part, x.complete, x.mark
    FROM sync.fetched_scopes AS x
    JOIN named AS n ON n.table_name = x.table_name AND n.id = x.id
),
counted AS (
    SELECT table_name, mark, scopes FROM covered
    UNION ALL
    SELECT table_name, mark, count(*) FROM exceptions WHERE complete GROUP BY ALL
    UNION ALL
    -- An exception overrules the case's row.
    SELECT x.table_name, f.mark, -count(*)
    FROM exceptions AS x
    JOIN sync.fetched_coverage AS c ON c.table_name = x.table_name
    JOIN sync.fetched_cases AS f ON f.case_id = x.id AND f.coverage = c.coverage
    WHERE x.part = ''
    GROUP BY ALL
),
fetched AS (
    SELECT table_name, CAST(sum(scopes) AS BIGINT) AS scopes_fetched
    FROM (
        SELECT c.table_name, c.scopes
        FROM counted AS c
        LEFT JOIN sync.fetched_marks AS m ON m.table_name = c.table_name
        WHERE m.forgotten IS NULL OR m.forgotten <= c.mark
        UNION ALL
        SELECT table_name, count(*) FILTER (WHERE complete AND wanted)
        FROM sync.journal_months
        GROUP BY table_name
    )
    GROUP BY table_name
),
rejects AS (
    SELECT table_name, count(*) AS rejected
    FROM sync.rejects
    WHERE resolved_at IS NULL
    GROUP BY table_name
)
SELECT
    t.table_name,
    t.rows,
    own.last_change,
    parent.last_checked,
    coalesce(k.scopes_known, 0) AS scopes_known,
    coalesce(f.scopes_fetched, 0) AS scopes_fetched,
    coalesce(r.rejected, 0) AS rejected
FROM tables AS t
LEFT JOIN sync.freshness AS own ON own.table_name = t.table_name
LEFT JOIN sync.freshness AS parent ON parent.table_name = t.read_with
LEFT JOIN fetched AS f ON f.table_name = t.read_with
LEFT JOIN known AS k ON k.table_name = t.read_with
LEFT JOIN rejects AS r ON r.table_name = t.table_name
ORDER BY t.place;

COMMENT ON VIEW report.freshness IS 'One row per table: how much is there, and how fresh.';
COMMENT ON COLUMN report.freshness.table_name IS 'Table of schema main.';
COMMENT ON COLUMN report.freshness.rows IS 'Rows now.';
COMMENT ON COLUMN report.freshness.last_change IS
    'When a row was last written; that a row leaves does not move it.';
COMMENT ON COLUMN report.freshness.last_checked IS
    'When any part of the table was last read from the source, changed or not.';
COMMENT ON COLUMN report.freshness.scopes_known IS
    'Scopes (parts that are read for themselves) that should be here: one per case, or one for a list; a list that names scopes is one too.';
COMMENT ON COLUMN report.freshness.scopes_fetched IS
    'Those of them that were read completely at least once; never more than scopes_known.';
COMMENT ON COLUMN report.freshness.rejected IS
    'Values and records that did not fit and are not resolved (sync.rejects).';
