-- What of the journals is here, and what is missing: one row per journal (the platform's sums are one),
-- scope and month of the configured level that should be there.
CREATE OR REPLACE VIEW report.journal_coverage AS
WITH
lines AS (
    SELECT 'case_journals' AS journal, journal_level, journal_id, journal_month, count(*) AS lines
    FROM main.case_journals
    GROUP BY ALL
    UNION ALL
    SELECT 'depot_journals', journal_level, journal_id, journal_month, count(*)
    FROM main.depot_journals
    GROUP BY ALL
    UNION ALL
    SELECT 'revenue_journals', journal_level, journal_id, journal_month, count(*)
    FROM main.revenue_journals
    GROUP BY ALL
    UNION ALL
    SELECT 'settlement_journals', journal_level, journal_id, journal_month, count(*)
    FROM main.settlement_journals
    GROUP BY ALL
    UNION ALL
    SELECT 'revenue_journal_sums', journal_level, journal_id, journal_month, count(*)
    FROM main.revenue_journal_sums
    GROUP BY ALL
),
months AS (
    SELECT month, max(ends_at) AS ends_at
    FROM report.calendar
    GROUP BY month
),
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
rejected AS (
    -- A sum without a value that did not fit is no sum. The scope is offices/11/2026-10.
    SELECT DISTINCT scope
    FROM sync.rejects
    WHERE resolved_at IS NULL
      AND (
          table_name = 'revenue_journals'
          AND (column_name IN ('payment', 'purchase_price') OR column_name IS NULL)
          OR table_name = 'revenue_journal_annotations'
          AND (column_name = 'payment_change' OR column_name IS NULL)
          OR table_name = 'revenue_journal_sums'
      )
),
annotations AS (
    SELECT count(*) = 0 AS are_read FROM sync.resources
    WHERE table_name = 'revenue_journal_annotations'
      AND status IN ('disabled', 'forbidden', 'absent')
),
sums AS (
    SELECT
        s.journal_level,
        s.journal_id,
        s.journal_month,
        -- The platform counts the payment changes of annotations, or it does not. Where they are not
        -- mirrored, it is not known what they come to.
        s.total_purchase_price = coalesce(r.purchase_price, 0)
        AND (
            s.total_payment = coalesce(r.payment, 0)
            OR s.total_payment
            = coalesce(r.payment, 0) + CASE WHEN a.are_read THEN coalesce(c.payment_change, 0) END
        ) AS sum_matches
    FROM main.revenue_journal_sums AS s
    -- No CROSS JOIN: DuckDB prints it as a comma, which binds another way, where a view is kept as text.
    JOIN annotations AS a ON true
    LEFT JOIN revenue AS r USING (journal_level, journal_id, journal_month)
    LEFT JOIN changes AS c USING (journal_level, journal_id, journal_month)
    -- A sum that was asked before the lines were last read says nothing about them, nor one of a table
    -- that may no longer be read.
    JOIN sync.journal_months AS of_sum
        ON of_sum.table_name = 'revenue_journal_sums'
        AND of_sum.journal_level = s.journal_level
        AND of_sum.journal_id = s.journal_id
        AND of_sum.journal_month = s.journal_month
    JOIN sync.journal_months AS of_lines
        ON of_lines.table_name = 'revenue_journals'
        AND of_lines.journal_level = s.journal_level
        AND of_lines.journal_id = s.journal_id
        AND of_lines.journal_month = s.journal_month
        AND of_lines.sent_at <= of_sum.sent_at
    WHERE NOT EXISTS (
        SELECT 1 FROM sync.resources
        WHERE table_name = 'revenue_journal_sums' AND status IN ('disabled', 'forbidden', 'absent')
    )
    AND s.journal_level || '/' || s.journal_id || '/' || strftime(s.journal_month, '%Y-%m')
        NOT IN (SELECT scope FROM rejected)
)
SELECT
    m.table_name AS journal,
    m.journal_level,
    m.journal_id,
    coalesce(o.name, g.name, c.name) AS name,
    m.journal_month,
    coalesce(l.lines, 0) AS lines,
    -- What was read before its level was left is not here any more.
    CASE WHEN m.complete THEN m.read_at END AS read_at,
    CASE
        WHEN t.status IN ('disabled', 'forbidden', 'absent') THEN t.status
        WHEN g.gone_at IS NOT NULL THEN 'gone'
        WHEN m.doubted_at IS NOT NULL THEN 'doubted'
        WHEN f.kind = 'Incomplete' THEN 'incomplete'
        WHEN f.kind IS NOT NULL THEN 'failing'
        WHEN m.incomplete_at IS NOT NULL THEN 'incomplete'
        -- What was read before the month's end is not all of it, however late it is now.
        WHEN m.complete AND m.sent_at < e.ends_at THEN 'open'
        WHEN m.complete THEN 'complete'
        ELSE 'missing'
    END AS status,
    -- Of lines that may not be read any more nobody knows what they come to, nor of some of a month's.
    CASE
        WHEN m.table_name = 'revenue_journals' AND k.table_name IS NOT NULL THEN s.sum_matches
    END AS sum_matches
FROM sync.journal_months AS m
LEFT JOIN lines AS l
    ON l.journal = m.table_name
    AND l.journal_level = m.journal_level
    AND l.journal_id = m.journal_id
    AND l.journal_month = m.journal_month
LEFT JOIN sums AS s
    ON s.journal_level = m.journal_level
    AND s.journal_id = m.journal_id
    AND s.journal_month = m.journal_month
LEFT JOIN sync.resources AS t ON t.table_name = m.table_name
LEFT JOIN sync.known_months AS k
    ON k.table_name = m.table_name
    AND k.journal_level = m.journal_level
    AND k.journal_id = m.journal_id
    AND k.journal_month = m.journal_month
LEFT JOIN sync.failures AS f
    ON f.table_name = m.table_name
    AND f.id = m.journal_id
    AND f.part = m.journal_level || '/' || strftime(m.journal_month, '%Y-%m')
LEFT JOIN months AS e ON e.month = m.journal_month
LEFT JOIN sync.journal_scopes AS g
    ON g.journal_level = m.journal_level
    AND g.journal_id = m.journal_id
LEFT JOIN main.offices AS o ON m.journal_level = 'offices' AND o.id = m.journal_id
LEFT JOIN main.contacts AS c ON c.id = m.journal_id
WHERE m.wanted
  -- What is neither here nor due was once asked for, or can no longer be.
  AND (m.complete OR m.due IS NOT NULL OR g.gone_at IS NOT NULL);

COMMENT ON VIEW report.journal_coverage IS
    'One row per journal, scope and month that should be mirrored: whether it is, and whether its lines add up to the platform''s own sum.';
COMMENT ON COLUMN report.journal_coverage.journal IS 'The table: case_journals, depot_journals, revenue_journals, settlement_journals, or the platform''s own revenue_journal_sums.';
COMMENT ON COLUMN report.journal_coverage.journal_level IS 'offices, broker_companies or chain.';
COMMENT ON COLUMN report.journal_coverage.journal_id IS 'The office, broker company or chain.';
COMMENT ON COLUMN report.journal_coverage.name IS 'Its name, where it is known.';
COMMENT ON COLUMN report.journal_coverage.journal_month IS 'First day of the month, in source.time_zone.';
COMMENT ON COLUMN report.journal_coverage.lines IS 'Lines that are mirrored; of a sum 1 where there is one.';
COMMENT ON COLUMN report.journal_coverage.read_at IS 'When the month was last read completely; NULL: never, or not since its journals.level is configured again.';
COMMENT ON COLUMN report.journal_coverage.status IS
    'complete; open: read, but before the month''s end; missing: never read completely; incomplete or failing: the last reading was, and it is tried again; doubted: the last reading lacked all lines, or most, or most of many annotations, and the month stays as it was until that is confirmed; gone: the source no longer knows the office, broker company or chain, and the month stays as it was; else the status of the table (sync.resources).';
COMMENT ON COLUMN report.journal_coverage.sum_matches IS
    'Revenue journals: whether the lines, with or without the payment changes of their annotations, add up to the platform''s sum; NULL where that is not known.';
