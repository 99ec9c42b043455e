-- The revenue journals against the platform's own sums: one row per scope and month that should be
-- there, also where there are no lines. Agreement is said only where there is a control behind it.
CREATE OR REPLACE VIEW report.journal_reconciliation AS
WITH
revenue AS (
    SELECT
        journal_level,
        journal_id,
        journal_month,
        sum(payment) AS payment,
        sum(purchase_price) AS purchase_price
    FROM main.revenue_journals
    GROUP BY ALL
),
changes AS (
    SELECT journal_level, journal_id, journal_month, sum(payment_change) AS payment_change
    FROM main.revenue_journal_annotations
    GROUP BY ALL
),
annotations AS (
    SELECT count(*) = 0 AS are_read FROM sync.resources
    WHERE table_name = 'revenue_journal_annotations'
      AND status IN ('disabled', 'forbidden', 'absent')
),
rejected AS (
    -- What did not fit leaves an amount open. The scope is offices/11/2026-10.
    SELECT
        scope,
        bool_or(table_name = 'revenue_journals' AND column_name IS DISTINCT FROM 'purchase_price')
            AS payment,
        bool_or(table_name = 'revenue_journal_annotations') AS payment_change
    FROM sync.rejects
    WHERE resolved_at IS NULL
      AND (
          table_name = 'revenue_journals'
          AND (column_name IN ('payment', 'purchase_price') OR column_name IS NULL)
          OR table_name = 'revenue_journal_annotations'
          AND (column_name = 'payment_change' OR column_name IS NULL)
      )
    GROUP BY scope
),
off_meaning AS (
    -- Three rounds found the same difference, and nothing changed: it is the sum of something else.
    SELECT journal_level, journal_id, journal_month
    FROM sync.journal_months
    WHERE table_name = 'revenue_journal_sums' AND no_control_at IS NOT NULL
),
months AS (
    SELECT
        v.journal_month,
        v.journal_level,
        v.journal_id,
        v.name,
        v.lines,
        v.status AS coverage,
        v.sum_matches,
        v.read_at,
        k.table_name IS NOT NULL AS is_known,
        CASE WHEN is_known AND NOT coalesce(j.payment, false) THEN coalesce(r.payment, 0) END
            AS payment,
        CASE WHEN is_known AND a.are_read AND NOT coalesce(j.payment_change, false)
            THEN coalesce(c.payment_change, 0) END AS payment_change,
        coalesce(r.purchase_price, 0) AS purchase_price,
        -- Only a sum that can be held against the lines.
        CASE WHEN v.sum_matches IS NOT NULL THEN s.total_payment END AS platform_sum,
        CASE WHEN v.sum_matches IS NOT NULL THEN s.total_purchase_price END AS platform_price,
        x.journal_id IS NOT NULL AS is_off_meaning
    FROM report.journal_coverage AS v
    -- No CROSS JOIN: DuckDB prints it as a comma, which binds another way, where a view is kept as text.
    JOIN annotations AS a ON true
    LEFT JOIN revenue AS r USING (journal_level, journal_id, journal_month)
    LEFT JOIN changes AS c USING (journal_level, journal_id, journal_month)
    LEFT JOIN main.revenue_journal_sums AS s USING (journal_level, journal_id, journal_month)
    LEFT JOIN off_meaning AS x USING (journal_level, journal_id, journal_month)
    LEFT JOIN sync.known_months AS k
        ON k.table_name = v.journal
        AND k.journal_level = v.journal_level
        AND k.journal_id = v.journal_id
        AND k.journal_month = v.journal_month
    LEFT JOIN rejected AS j
        ON j.scope
        = v.journal_level || '/' || v.journal_id || '/' || strftime(v.journal_month, '%Y-%m')
    WHERE v.journal = 'revenue_journals'
)
SELECT
    journal_month,
    journal_level,
    journal_id,
    name,
    lines,
    payment,
    payment_change,
    platform_sum,
    CASE
        WHEN platform_sum NOT IN (payment, payment + payment_change)
            THEN platform_sum - payment - payment_change
        ELSE platform_price - purchase_price
    END AS difference,
    CASE
        WHEN coverage <> 'complete' THEN coverage
        WHEN sum_matches THEN 'matches'
        WHEN NOT sum_matches AND NOT is_off_meaning THEN 'differs'
        ELSE 'no_control'
    END AS status,
    read_at
FROM months;

COMMENT ON VIEW report.journal_reconciliation IS
    'The revenue journals against the platform''s own sums: one row per month and office (or broker company, or chain) that should be there, also without lines.';
COMMENT ON COLUMN report.journal_reconciliation.journal_month IS 'First day of the month, in source.time_zone.';
COMMENT ON COLUMN report.journal_reconciliation.journal_level IS 'offices, broker_companies or chain.';
COMMENT ON COLUMN report.journal_reconciliation.journal_id IS 'The office, broker company or chain.';
COMMENT ON COLUMN report.journal_reconciliation.name IS 'Its name, where it is or was known.';
COMMENT ON COLUMN report.journal_reconciliation.lines IS 'Lines that are mirrored.';
COMMENT ON COLUMN report.journal_reconciliation.payment IS
    'Sum of the payments of the lines; NULL where it is not known.';
COMMENT ON COLUMN report.journal_reconciliation.payment_change IS
    'Sum of what their annotations change of the payments; NULL where it is not known.';
COMMENT ON COLUMN report.journal_reconciliation.platform_sum IS
    'The platform''s own sum of the payments, asked after the lines were read; NULL where there is none that can be held against them.';
COMMENT ON COLUMN report.journal_reconciliation.difference IS
    'Platform''s sum less payment and payment_change; 0 where it is that of the payments with or without the changes. Where only the sums of the purchase prices differ, in those.';
COMMENT ON COLUMN report.journal_reconciliation.status IS
    'matches; differs; no_control: there is no sum that the lines could be held against, or it means something else than they do (three times asked, and nothing changed); else the status of the month in report.journal_coverage.';
COMMENT ON COLUMN report.journal_reconciliation.read_at IS 'When the lines were last read completely; NULL: never.';
