-- What each month of a journal was when it was closed. A month that was opened again has
-- reopened_at, and another row once it is closed again: no row is ever removed.
CREATE OR REPLACE VIEW report.closings AS
SELECT
    journal,
    journal_level,
    journal_id,
    journal_month,
    closed_at,
    closed_by,
    lines,
    payment,
    sha256,
    reopened_at
FROM sync.closings;

COMMENT ON VIEW report.closings IS
    'What each month of a journal was when it was closed: one row per closing. A month is closed by its first complete reading after journals.close_day, or by casemirror close.';
COMMENT ON COLUMN report.closings.journal IS 'The table: case_journals, depot_journals, revenue_journals or settlement_journals.';
COMMENT ON COLUMN report.closings.journal_level IS 'offices, broker_companies or chain.';
COMMENT ON COLUMN report.closings.journal_id IS 'The office, broker company or chain.';
COMMENT ON COLUMN report.closings.journal_month IS 'First day of the month, in source.time_zone.';
COMMENT ON COLUMN report.closings.closed_at IS 'When it was closed. report.journals_as_of gives its lines back as of then.';
COMMENT ON COLUMN report.closings.closed_by IS 'close_day, or the system user who typed casemirror close.';
COMMENT ON COLUMN report.closings.lines IS 'Lines that it had.';
COMMENT ON COLUMN report.closings.payment IS
    'Revenue journals: sum of the payments, without the changes that annotations make; NULL where a value did not fit. NULL for the other journals.';
COMMENT ON COLUMN report.closings.sha256 IS
    'Digest of all fields of all lines and annotations, whatever their order.';
COMMENT ON COLUMN report.closings.reopened_at IS 'When it was opened again (casemirror close --reopen); NULL: it is closed.';
