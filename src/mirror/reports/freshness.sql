-- How fresh each table is. `reports::freshness_sql` puts in what depends on the resources: a SELECT per table, and
-- which scopes there should be, which depends on how a resource is read. Everything is asked once for all tables:
-- planning a subquery per table would cost more than the answer.
CREATE OR REPLACE VIEW report.freshness AS
WITH
case_ids AS (
    SELECT case_id AS id FROM sync.seen WHERE removed IS NOT TRUE
    UNION
    SELECT id FROM main.cases
    UNION
    SELECT id FROM main.projects
),
tables AS (
{tables}
),
named AS (
    -- The scopes that there should be, where rows of the mirror say so: those can change after a scope was read.
{named}
),
known AS (
    SELECT table_name, CAST(sum(scopes) AS BIGINT) AS scopes_known
    FROM (
        SELECT table_name, count(*) AS scopes FROM named GROUP BY table_name
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
fetched AS (
    SELECT table_name, CAST(sum(scopes) AS BIGINT) AS scopes_fetched
    FROM (
        SELECT table_name, count(*) FILTER (WHERE complete) AS scopes
        FROM sync.read_scopes
        WHERE table_name NOT IN ({names})
        GROUP BY table_name
        UNION ALL
        -- Where more was read than there should be now, only what there should be counts.
        SELECT table_name, count(*)
        FROM sync.read_scopes
        SEMI JOIN named USING (table_name, id)
        WHERE complete
        GROUP BY table_name
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
