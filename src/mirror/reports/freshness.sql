-- How fresh each table is. The CTEs `tables` and `counted` hold one SELECT per table, put in by
-- `reports::freshness_sql` from the resources: which scopes there should be depends on how the
-- resource is read.
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
fetched AS (
    SELECT
        table_name,
        count(*) FILTER (WHERE complete) AS scopes_fetched
    FROM (
        SELECT table_name, complete FROM sync.read_scopes
        UNION ALL
        SELECT table_name, complete AND wanted FROM sync.journal_months
    )
    GROUP BY table_name
),
counted AS (
    -- Where more was read than there should be now, only what there should be counts.
{counted}
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
    t.scopes_known,
    coalesce(c.scopes_fetched, f.scopes_fetched, 0) AS scopes_fetched,
    coalesce(r.rejected, 0) AS rejected
FROM tables AS t
LEFT JOIN sync.freshness AS own ON own.table_name = t.table_name
LEFT JOIN sync.freshness AS parent ON parent.table_name = t.read_with
LEFT JOIN fetched AS f ON f.table_name = t.read_with
LEFT JOIN counted AS c ON c.table_name = t.read_with
LEFT JOIN rejects AS r ON r.table_name = t.table_name;

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
