-- Why an earlier month has fewer signed cases than it had: cases that were counted in a month of
-- report.signed_cases, as history.cases tells, and are no longer.
CREATE OR REPLACE VIEW report.signed_cases_lost AS
WITH
months AS (
    SELECT month, min(starts_at) AS starts_at, max(ends_at) AS ends_at
    FROM report.calendar
    GROUP BY month
),
rows_of_cases AS (
    SELECT id, assignment_type, case_activated_date, _extra, _valid_from, _valid_to, _change
    FROM history.cases
    -- Versions of before another source.time_zone was set hold the instants of that zone. A row that is read again
    -- under this one and has not changed begins when it did before.
    WHERE NOT EXISTS (SELECT 1 FROM sync.meta WHERE key = 'zone_since')
       OR _valid_from >= (SELECT max(value) FROM sync.meta WHERE key = 'zone_since')::TIMESTAMPTZ
       OR _valid_to > (SELECT max(value) FROM sync.meta WHERE key = 'zone_read_at' AND value <> '')::TIMESTAMPTZ
    UNION ALL
    SELECT id, assignment_type, case_activated_date, _extra, _synced_at, NULL, NULL
    FROM main.cases
),
versions AS (
    SELECT
        v.id,
        v._valid_from,
        v._valid_to,
        v._change,
        v.assignment_type IS NOT DISTINCT FROM 'Valuation' AS is_valuation,
        CASE WHEN v.case_activated_date < m.ends_at THEN m.month END AS month,
        -- A value that did not fit stands in _extra: what it says is not known.
        v.assignment_type IS NULL AND contains(coalesce(v._extra, ''), '"AssignmentType":') AS is_type_open,
        v.case_activated_date IS NULL AND contains(coalesce(v._extra, ''), '"CaseActivatedDate":') AS is_date_open
    FROM rows_of_cases AS v
    -- The last month that began by then; a plain range join is many times slower.
    ASOF LEFT JOIN months AS m ON v.case_activated_date >= m.starts_at
),
counted AS (
    SELECT month, id, max(_valid_from) AS last_from
    FROM versions
    WHERE month IS NOT NULL AND NOT is_valuation AND NOT is_type_open
    GROUP BY month, id
    -- What counts now is not lost, and that is nearly all.
    HAVING count(*) = count(_valid_to)
),
judged AS (
    SELECT
        c.month,
        c.id,
        c.last_from,
        v._valid_from,
        v._valid_to,
        v._change,
        v.is_valuation,
        NOT v.is_valuation AND (coalesce(v.month = c.month, false) OR v.is_date_open) AS may_count
    FROM counted AS c
    JOIN versions AS v ON v.id = c.id
),
no_more AS (
    -- Once it surely did not count any more, a value that does not fit later takes nothing back.
    SELECT month, id, min(_valid_from) AS since
    FROM judged
    WHERE _valid_from > last_from AND NOT may_count
    GROUP BY month, id
),
lost AS (
    -- While nobody knows that it does not count any more, it is not lost.
    SELECT j.month, j.id, max(j._valid_to) AS at, arg_max(j._change, j._valid_to) AS change
    FROM judged AS j
    LEFT JOIN no_more AS n USING (month, id)
    WHERE j.may_count AND (n.since IS NULL OR j._valid_from < n.since)
    GROUP BY j.month, j.id
    -- What is valid now is in main.
    HAVING count(*) = count(j._valid_to)
),
became AS (
    -- A row that is written again without a new version begins later than the one before it ended.
    SELECT l.month, l.id, arg_min(j.is_valuation, j._valid_from) AS is_valuation
    FROM lost AS l
    JOIN judged AS j ON j.month = l.month AND j.id = l.id AND j._valid_from >= l.at
    GROUP BY l.month, l.id
)
SELECT
    l.month,
    l.id AS case_id,
    CASE
        -- A case that came back is there, and counts in another month or in none.
        WHEN l.change IN ('hidden', 'deleted') AND m.id IS NULL THEN l.change
        WHEN b.is_valuation THEN 'type changed'
        ELSE 'date changed'
    END AS reason,
    l.at
FROM lost AS l
LEFT JOIN became AS b USING (month, id)
LEFT JOIN main.cases AS m ON m.id = l.id;

COMMENT ON VIEW report.signed_cases_lost IS
    'Cases that report.signed_cases counted in a month and no longer does, and why: one row per month and case.';
COMMENT ON COLUMN report.signed_cases_lost.month IS 'First day of the month, in source.time_zone, in which the case was counted.';
COMMENT ON COLUMN report.signed_cases_lost.case_id IS 'The case.';
COMMENT ON COLUMN report.signed_cases_lost.reason IS
    'hidden: no search shows it any more; deleted: it left the table cases, for projects too; date changed: case_activated_date lies in another month, or in none; type changed: it is a valuation.';
COMMENT ON COLUMN report.signed_cases_lost.at IS 'When the mirror learned of it.';
