-- What the reports ask of the state: nothing that moves whenever something is read again, so that a lake need not have
-- that.

-- Which scopes were read. One that was forgotten (sync.fetched_marks) was not.
CREATE OR REPLACE VIEW sync.read_scopes AS
SELECT x.table_name, x.id, x.part, x.complete
FROM sync.fetched_scopes AS x
LEFT JOIN sync.fetched_marks AS m ON m.table_name = x.table_name
WHERE m.forgotten IS NULL OR m.forgotten <= x.mark
UNION ALL
SELECT c.table_name, f.case_id AS id, '' AS part, true AS complete
FROM sync.fetched_cases AS f
JOIN sync.fetched_coverage AS c ON c.coverage = f.coverage
ANTI JOIN (SELECT id, table_name FROM sync.fetched_scopes WHERE part = '') AS x
    ON x.id = f.case_id AND x.table_name = c.table_name
LEFT JOIN sync.fetched_marks AS m ON m.table_name = c.table_name
WHERE m.forgotten IS NULL OR m.forgotten <= f.mark;

COMMENT ON VIEW sync.read_scopes IS
    'Per table and scope that was read: whether it was read completely once (complete). sync.fetched says more, where it is.';

-- A month that was never read completely, or has been read incompletely since, may lack lines or have some twice; and
-- what is not read any more counts as not known (docs/architecture.md, "Reports").
CREATE OR REPLACE VIEW sync.known_months AS
SELECT m.table_name, m.journal_level, m.journal_id, m.journal_month
FROM sync.journal_months AS m
WHERE m.complete
  AND m.incomplete_at IS NULL
  AND m.wanted
  AND m.table_name NOT IN (
      SELECT table_name FROM sync.resources WHERE status IN ('disabled', 'forbidden', 'absent')
  );

COMMENT ON VIEW sync.known_months IS
    'Months of the journals, and of the platform''s sums of them, of which it is known what they come to: they are as their last complete reading brought them, and are still read.';
