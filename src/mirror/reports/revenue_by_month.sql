-- What the revenue journals come to per month. Months that were never read stand here too, and come to NULL: a sum over
-- all offices would else be smaller for them, and nobody would see it.
CREATE OR REPLACE VIEW report.revenue_by_month AS
WITH
rejected AS (
    SELECT
        scope,
        bool_or(column_name IS DISTINCT FROM 'purchase_price') AS payment,
        bool_or(column_name IS DISTINCT FROM 'payment') AS purchase_price
    FROM sync.rejects
    WHERE table_name = 'revenue_journals'
      AND (column_name IN ('payment', 'purchase_price') OR column_name IS NULL)
      AND resolved_at IS NULL
    GROUP BY scope
),
mirrored AS (
    SELECT
        journal_level,
        journal_month,
        journal_id,
        count(*) AS lines,
        coalesce(sum(payment), 0) AS payment,
        coalesce(sum(purchase_price), 0) AS purchase_price
    FROM main.revenue_journals
    WHERE journal_level = (SELECT max(value) FROM sync.meta WHERE key = 'journal_level')
    GROUP BY ALL
),
months AS (
    SELECT
        journal_level,
        journal_month,
        journal_id,
        lines,
        payment,
        purchase_price
    FROM mirrored
    UNION ALL
    SELECT m.journal_level, m.journal_month, m.journal_id, 0, NULL, NULL
    FROM sync.journal_months AS m
    LEFT JOIN mirrored AS l
        ON l.journal_level = m.journal_level
        AND l.journal_id = m.journal_id
        AND l.journal_month = m.journal_month
    LEFT JOIN sync.known_months AS k
        ON k.table_name = m.table_name
        AND k.journal_level = m.journal_level
        AND k.journal_id = m.journal_id
        AND k.journal_month = m.journal_month
    LEFT JOIN sync.journal_scopes AS g
        ON g.journal_level = m.journal_level
        AND g.journal_id = m.journal_id
    WHERE m.table_name = 'revenue_journals'
      AND m.journal_level = (SELECT max(value) FROM sync.meta WHERE key = 'journal_level')
      AND m.wanted
      AND l.lines IS NULL
      AND k.table_name IS NULL
      AND g.gone_at IS NULL
)
SELECT
    m.journal_month AS month,
    m.journal_id,
    coalesce(o.name, g.name, c.name) AS name,
    m.lines,
    CASE
        WHEN k.table_name IS NOT NULL AND NOT coalesce(r.payment, false) THEN m.payment
    END AS payment,
    CASE
        WHEN k.table_name IS NOT NULL AND NOT coalesce(r.purchase_price, false) THEN m.purchase_price
    END AS purchase_price
FROM months AS m
LEFT JOIN sync.known_months AS k
    ON k.table_name = 'revenue_journals'
    AND k.journal_level = m.journal_level
    AND k.journal_id = m.journal_id
    AND k.journal_month = m.journal_month
LEFT JOIN sync.journal_scopes AS g
    ON g.journal_level = m.journal_level
    AND g.journal_id = m.journal_id
LEFT JOIN main.offices AS o ON m.journal_level = 'offices' AND o.id = m.journal_id
LEFT JOIN main.contacts AS c ON c.id = m.journal_id
LEFT JOIN rejected AS r
    ON r.scope
    = m.journal_level || '/' || m.journal_id || '/' || strftime(m.journal_month, '%Y-%m');

COMMENT ON VIEW report.revenue_by_month IS
    'Lines, payments and purchase prices of the revenue journals, per month and office (or broker company, or chain: journals.level): one row where there are lines, or where it is not known whether there are.';
COMMENT ON COLUMN report.revenue_by_month.month IS 'First day of the month that the lines were asked for.';
COMMENT ON COLUMN report.revenue_by_month.journal_id IS 'The office, broker company or chain.';
COMMENT ON COLUMN report.revenue_by_month.name IS 'Its name, where it is known.';
COMMENT ON COLUMN report.revenue_by_month.lines IS 'Lines of the month that are mirrored.';
COMMENT ON COLUMN report.revenue_by_month.payment IS
    'Sum of the payments, without the changes that annotations make; NULL where a value did not fit, the month was never read completely or last was not, or it is not read any more (report.journal_coverage says which).';
COMMENT ON COLUMN report.revenue_by_month.purchase_price IS
    'Sum of the purchase prices; NULL where that of the payments would be.';
