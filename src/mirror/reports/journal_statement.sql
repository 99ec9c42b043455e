-- Closed months: what was closed, what it is now, and the difference.
CREATE OR REPLACE VIEW report.journal_statement AS
WITH
closed AS (
    SELECT * FROM sync.closings WHERE reopened_at IS NULL
),
lines AS (
    SELECT
        'case_journals' AS journal,
        journal_level,
        journal_id,
        journal_month,
        count(*) AS lines,
        CAST(NULL AS DECIMAL(38, 2)) AS payment
    FROM main.case_journals
    GROUP BY ALL
    UNION ALL
    SELECT 'depot_journals', journal_level, journal_id, journal_month, count(*), NULL
    FROM main.depot_journals
    GROUP BY ALL
    UNION ALL
    SELECT
        'revenue_journals',
        journal_level,
        journal_id,
        journal_month,
        count(*),
        coalesce(sum(payment), 0)
    FROM main.revenue_journals
    GROUP BY ALL
    UNION ALL
    SELECT 'settlement_journals', journal_level, journal_id, journal_month, count(*), NULL
    FROM main.settlement_journals
    GROUP BY ALL
),
rejected AS (
    -- A sum without a value that did not fit is no sum. The scope is offices/11/2026-10.
    SELECT DISTINCT scope
    FROM sync.rejects
    WHERE resolved_at IS NULL
      AND table_name = 'revenue_journals'
      AND (column_name = 'payment' OR column_name IS NULL)
),
current AS (
    SELECT
        c.journal,
        c.journal_level,
        c.journal_id,
        c.journal_month,
        c.closed_at,
        c.lines AS closed_lines,
        c.payment AS closed_payment,
        CASE WHEN k.table_name IS NOT NULL THEN coalesce(l.lines, 0) END AS current_lines,
        CASE
            WHEN k.table_name = 'revenue_journals' AND r.scope IS NULL THEN coalesce(l.payment, 0)
        END AS current_payment
    FROM closed AS c
    LEFT JOIN sync.known_months AS k
        ON k.table_name = c.journal
        AND k.journal_level = c.journal_level
        AND k.journal_id = c.journal_id
        AND k.journal_month = c.journal_month
    LEFT JOIN lines AS l
        ON l.journal = c.journal
        AND l.journal_level = c.journal_level
        AND l.journal_id = c.journal_id
        AND l.journal_month = c.journal_month
    LEFT JOIN rejected AS r
        ON r.scope
        = c.journal_level || '/' || c.journal_id || '/' || strftime(c.journal_month, '%Y-%m')
),
restated AS (
    SELECT
        c.journal,
        c.journal_level,
        c.journal_id,
        c.journal_month,
        count(*) AS restatements,
        max(r.changed_at) AS last_changed_at
    FROM closed AS c
    JOIN sync.restatements AS r
        ON r.journal = c.journal
        AND r.journal_level = c.journal_level
        AND r.journal_id = c.journal_id
        AND r.journal_month = c.journal_month
        AND r.changed_at > c.closed_at
    GROUP BY ALL
)
SELECT
    c.journal,
    c.journal_level,
    c.journal_id,
    c.journal_month,
    c.closed_lines,
    c.closed_payment,
    c.current_lines,
    c.current_payment,
    c.current_payment - c.closed_payment AS net_payment,
    coalesce(r.restatements, 0) AS restatements,
    r.last_changed_at
FROM current AS c
LEFT JOIN restated AS r USING (journal, journal_level, journal_id, journal_month);

COMMENT ON VIEW report.journal_statement IS
    'One row per closed month of a journal: what was closed, what it is now, and the difference. report.journal_restatements says what changed.';
COMMENT ON COLUMN report.journal_statement.journal IS 'The table: case_journals, depot_journals, revenue_journals or settlement_journals.';
COMMENT ON COLUMN report.journal_statement.journal_level IS 'offices, broker_companies or chain.';
COMMENT ON COLUMN report.journal_statement.journal_id IS 'The office, broker company or chain.';
COMMENT ON COLUMN report.journal_statement.journal_month IS 'First day of the month, in source.time_zone.';
COMMENT ON COLUMN report.journal_statement.closed_lines IS 'Lines when it was closed.';
COMMENT ON COLUMN report.journal_statement.closed_payment IS 'Revenue journals: sum of the payments when it was closed.';
COMMENT ON COLUMN report.journal_statement.current_lines IS
    'Lines now; NULL where the last reading of the month was not complete, or it is not read any more: the table is not, or journals.level or journals.ids do not ask for it.';
COMMENT ON COLUMN report.journal_statement.current_payment IS
    'Revenue journals: sum of the payments now; NULL where a value did not fit, or the lines are not known.';
COMMENT ON COLUMN report.journal_statement.net_payment IS 'current_payment minus closed_payment.';
COMMENT ON COLUMN report.journal_statement.restatements IS
    'Rows of report.journal_restatements since it was closed; annotations change no payment of a line and are counted too.';
COMMENT ON COLUMN report.journal_statement.last_changed_at IS 'When the mirror learned of the last of them.';
