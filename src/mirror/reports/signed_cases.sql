-- Cases signed per month and office (reference 4.7, rule 4).
--
-- The calendar maps months to instants, because plain DuckDB has no time zones. A date outside its
-- two centuries lies in no month. The case's own text names an office that `offices` lacks; of
-- several texts the one on the newest case counts, so that an office stays one row per month.
CREATE OR REPLACE VIEW report.signed_cases AS
WITH
months AS (
    SELECT month, min(starts_at) AS starts_at, max(ends_at) AS ends_at
    FROM report.calendar
    GROUP BY month
),
rejected AS (
    SELECT
        scope,
        bool_or(column_name = 'case_activated_date') AS activated_date,
        bool_or(column_name = 'assignment_type') AS assignment_type,
        bool_or(column_name = 'office_id') AS office_id
    FROM sync.rejects
    WHERE table_name = 'cases'
      AND column_name IN ('case_activated_date', 'assignment_type', 'office_id')
      AND resolved_at IS NULL
    GROUP BY scope
),
candidates AS (
    SELECT
        c.office_id,
        c.office,
        c.case_activated_date,
        coalesce(r.activated_date, false) AS date_rejected,
        coalesce(r.assignment_type, false) AS type_rejected,
        coalesce(r.office_id, false) AS office_rejected
    FROM main.cases AS c
    LEFT JOIN rejected AS r ON r.scope = CAST(c.id AS VARCHAR)
    WHERE c.assignment_type IS DISTINCT FROM 'Valuation'
),
signed AS (
    SELECT m.month, c.office_id, c.office, c.type_rejected, c.office_rejected
    FROM candidates AS c
    -- The last month that began by then; a plain range join is many times slower.
    ASOF JOIN months AS m ON c.case_activated_date >= m.starts_at
    WHERE NOT c.date_rejected AND c.case_activated_date < m.ends_at
    UNION ALL
    SELECT CAST(NULL AS DATE), c.office_id, c.office, c.type_rejected, c.office_rejected
    FROM candidates AS c
    WHERE c.date_rejected
),
named AS (
    SELECT office_id, arg_max(office, id) AS office
    FROM main.cases
    WHERE office_id IS NOT NULL
    GROUP BY office_id
),
known AS (
    -- Rows of a table that may no longer be read count as not known (docs/architecture.md, "Reports").
    SELECT count(*) = 0 AS cases
    FROM sync.resources
    WHERE table_name = 'cases' AND status IN ('forbidden', 'absent', 'disabled')
),
counted AS (
    SELECT
        s.month,
        s.office_id,
        CASE
            WHEN s.office_id IS NULL THEN s.office
            ELSE coalesce(o.name, n.office)
        END AS office,
        count(*) AS cases,
        bool_or(s.type_rejected) AS type_rejected,
        bool_or(s.office_rejected) AS office_rejected
    FROM signed AS s
    LEFT JOIN main.offices AS o ON o.id = s.office_id
    LEFT JOIN named AS n ON n.office_id = s.office_id
    GROUP BY ALL
)
SELECT
    c.month,
    c.office_id,
    c.office,
    -- Whether a case counts whose assignment type was rejected is not known. One whose office was may be any
    -- office's of the month.
    CASE
        WHEN k.cases
            AND NOT c.type_rejected
            AND NOT bool_or(c.office_rejected) OVER (PARTITION BY c.month)
            THEN c.cases
    END AS signed_cases
FROM counted AS c
CROSS JOIN known AS k;

COMMENT ON VIEW report.signed_cases IS
    'Cases signed per month and office: case_activated_date lies in the month (of source.time_zone) and the assignment type is not Valuation. Reference 4.7, rule 4.';
COMMENT ON COLUMN report.signed_cases.month IS
    'First day of the month; NULL for cases whose date was rejected (sync.rejects).';
COMMENT ON COLUMN report.signed_cases.office_id IS 'offices.id; NULL for cases without an office.';
COMMENT ON COLUMN report.signed_cases.office IS
    'Name of the office: offices.name, else what the newest case of the office says.';
COMMENT ON COLUMN report.signed_cases.signed_cases IS
    'Number of cases; NULL where an assignment type, or in the month an office, was rejected, or cases are no longer readable.';
