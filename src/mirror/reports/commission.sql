-- What each employee is due of a case's commission (reference 2.12 and 4.7, rule 1).
--
-- Known is, of either table: it is readable, the case was read completely once, its own last call did
-- not fail, and no value that is needed is rejected. What fails for another case says nothing of this
-- one. What is not known is NULL, and what is computed from it too.
CREATE OR REPLACE VIEW report.commission AS
WITH
readable AS (
    -- Rows of a resource that is not read any more stay as they are and count as not known. One that
    -- is failing is still read; which of its cases failed says sync.failures.
    SELECT table_name FROM sync.resources WHERE status IN ('ok', 'failing')
),
fetched AS (
    SELECT
        f.id AS case_id,
        bool_or(f.table_name = 'commission_sharing') AS sharing,
        bool_or(f.table_name = 'estimated_costs') AS estimated
    FROM sync.read_scopes AS f
    JOIN readable USING (table_name)
    WHERE f.table_name IN ('commission_sharing', 'estimated_costs')
      AND f.part = ''
      AND f.complete
      AND NOT EXISTS (
          SELECT 1
          FROM sync.failures AS x
          WHERE x.table_name = f.table_name AND x.id = f.id AND x.part = f.part
            -- One that was not made is no call that failed.
            AND coalesce(x.kind, '') NOT IN ('Lag', 'NotAsked', 'NotShown', 'Suspect')
      )
    GROUP BY f.id
),
open_rejects AS (
    -- Without column_name the whole record was rejected: of one with a key another was taken, so that its values
    -- are known. '#' names one without, which may be any of the case.
    SELECT table_name, scope, record_key, column_name
    FROM sync.rejects
    WHERE resolved_at IS NULL
      AND (column_name IS NOT NULL OR contains(record_key, '#'))
      AND table_name IN ('commission_sharing', 'estimated_costs')
),
rejected AS (
    -- A part whose employee is not known may be anybody's, and so may a record without a key.
    SELECT
        scope,
        bool_or(
            table_name = 'estimated_costs'
            AND coalesce(column_name, 'commission_amount') = 'commission_amount'
        ) AS amount,
        bool_or(
            table_name = 'commission_sharing'
            AND (
                coalesce(column_name, 'employee_id') = 'employee_id'
                OR record_key = '#' AND column_name IN ('percentage', 'extra_payment')
            )
        ) AS sharing
    FROM open_rejects
    GROUP BY scope
),
rejected_parts AS (
    SELECT
        record_key,
        bool_or(column_name = 'percentage') AS percentage,
        bool_or(column_name = 'extra_payment') AS extra_payment
    FROM open_rejects
    WHERE table_name = 'commission_sharing' AND column_name IN ('percentage', 'extra_payment')
    GROUP BY record_key
),
parts AS (
    -- The percentage of a part of type Amount counts for nothing.
    SELECT
        s.case_id,
        s.employee_id,
        s.type = 'Percent' AS is_percent,
        CASE WHEN s.type = 'Percent' THEN s.percentage END AS percentage,
        s.type = 'Percent' AND coalesce(r.percentage, false) AS percentage_rejected,
        s.extra_payment,
        coalesce(r.extra_payment, false) AS extra_rejected
    FROM main.commission_sharing AS s
    LEFT JOIN rejected_parts AS r
        ON r.record_key = concat_ws('/', s.case_id, s.type, s.id)
),
cases AS (
    SELECT
        case_id,
        sum(percentage) AS percentages,
        bool_or(percentage_rejected) AS percentage_rejected
    FROM parts
    GROUP BY case_id
),
employees AS (
    SELECT
        case_id,
        employee_id,
        bool_or(is_percent) AS has_percent,
        coalesce(sum(percentage), 0) AS percentage,
        bool_or(percentage_rejected) AS percentage_rejected,
        coalesce(sum(extra_payment), 0) AS extra_payment,
        bool_or(extra_rejected) AS extra_rejected
    FROM parts
    GROUP BY case_id, employee_id
),
joined AS (
    SELECT
        e.*,
        coalesce(f.sharing, false) AND NOT coalesce(r.sharing, false) AS sharing_known,
        CASE
            WHEN coalesce(f.estimated, false) AND NOT coalesce(r.amount, false)
                THEN ec.commission_amount
        END AS commission_amount,
        -- Percentages that add up to so little are fractions; with one rejected it is open what they
        -- add up to, unless the others are enough.
        coalesce(c.percentages <= 1.5, c.percentage_rejected) AS are_fractions
    FROM employees AS e
    JOIN cases AS c USING (case_id)
    LEFT JOIN main.estimated_costs AS ec USING (case_id)
    LEFT JOIN fetched AS f USING (case_id)
    LEFT JOIN rejected AS r ON r.scope = CAST(e.case_id AS VARCHAR)
),
known AS (
    SELECT
        case_id,
        employee_id,
        commission_amount,
        CASE WHEN sharing_known AND NOT percentage_rejected THEN percentage END AS percentage,
        CASE WHEN sharing_known AND NOT extra_rejected THEN extra_payment END AS extra_payment,
        sharing_known AND NOT has_percent AS has_no_percent,
        are_fractions
    FROM joined
),
shared AS (
    -- Not rounded: DECIMAL(38, 10). A division would leave the decimals.
    SELECT
        *,
        CASE
            WHEN has_no_percent THEN 0
            WHEN NOT are_fractions THEN commission_amount * percentage * 0.01
        END AS share
    FROM known
)
SELECT
    case_id,
    employee_id,
    commission_amount,
    percentage,
    CAST(share AS DECIMAL(38, 2)) AS percent_share,
    CAST(extra_payment AS DECIMAL(38, 2)) AS extra_payment,
    -- Rounded once: the rounded share would make an øre of difference.
    CAST(CASE WHEN NOT are_fractions THEN share + extra_payment END AS DECIMAL(38, 2)) AS commission
FROM shared;

COMMENT ON VIEW report.commission IS
    'What each employee is due of a case''s commission. Reference 4.7, rule 1.';
COMMENT ON COLUMN report.commission.case_id IS 'cases.id.';
COMMENT ON COLUMN report.commission.employee_id IS 'employees.id.';
COMMENT ON COLUMN report.commission.commission_amount IS
    'estimated_costs.commission_amount; set when the case is sold.';
COMMENT ON COLUMN report.commission.percentage IS
    'Sum of commission_sharing.percentage of the parts of type Percent, in percent; 0 without any.';
COMMENT ON COLUMN report.commission.percent_share IS
    'commission_amount × percentage ÷ 100; 0 without parts of type Percent, NULL where the percentages of the case add up to 1.5 or less: they are fractions then.';
COMMENT ON COLUMN report.commission.extra_payment IS
    'Sum of commission_sharing.extra_payment of both types.';
COMMENT ON COLUMN report.commission.commission IS
    'percent_share plus extra_payment, rounded once. NULL where a value it needs is not known, the commission is not set, or the percentages of the case are fractions.';
