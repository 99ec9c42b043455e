-- Cases signed between two instants, both included (reference 4.7, rule 4).
--
-- A case whose date was rejected may or may not lie between them, and there is no row here for
-- "when is not known": the number of its office is NULL. One whose office was rejected may be any office's.
CREATE OR REPLACE MACRO report.signed_cases_between(from_instant, to_instant) AS TABLE
WITH
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
signed AS (
    SELECT
        c.office_id,
        c.office,
        coalesce(r.activated_date, false) OR coalesce(r.assignment_type, false) AS uncertain,
        coalesce(r.office_id, false) AS office_rejected
    FROM main.cases AS c
    LEFT JOIN rejected AS r ON r.scope = CAST(c.id AS VARCHAR)
    WHERE c.assignment_type IS DISTINCT FROM 'Valuation'
      AND (
          coalesce(r.activated_date, false)
          OR (
              -- Between no instants there is nothing to count, which is no answer.
              c.case_activated_date >= CASE
                  WHEN from_instant IS NULL OR to_instant IS NULL THEN
                      CAST(error('an instant is NULL: say between which two') AS TIMESTAMPTZ)
                  ELSE CAST(from_instant AS TIMESTAMPTZ)
              END
              AND c.case_activated_date <= CASE
                  WHEN from_instant IS NULL OR to_instant IS NULL THEN
                      CAST(error('an instant is NULL: say between which two') AS TIMESTAMPTZ)
                  ELSE CAST(to_instant AS TIMESTAMPTZ)
              END
          )
      )
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
        s.office_id,
        CASE
            WHEN s.office_id IS NULL THEN s.office
            ELSE coalesce(o.name, n.office)
        END AS office,
        count(*) AS cases,
        bool_or(s.uncertain) AS uncertain,
        bool_or(s.office_rejected) AS office_rejected
    FROM signed AS s
    LEFT JOIN main.offices AS o ON o.id = s.office_id
    LEFT JOIN named AS n ON n.office_id = s.office_id
    GROUP BY ALL
)
SELECT
    c.office_id,
    c.office,
    CASE
        WHEN k.cases AND NOT c.uncertain AND NOT bool_or(c.office_rejected) OVER () THEN c.cases
    END AS signed_cases
FROM counted AS c
CROSS JOIN known AS k;

COMMENT ON MACRO TABLE report.signed_cases_between IS
    'Cases signed per office between two instants, both included: report.signed_cases for any period. The number is NULL where a rejected value leaves it open. Give the instants with an offset: text without one is read in the session''s time zone.';
