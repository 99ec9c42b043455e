-- What changed in months that were closed. Written when a month is read: what
-- differs from its earlier reading, from the first complete one since the month was closed on.
CREATE OR REPLACE VIEW report.journal_restatements AS
SELECT
    journal,
    journal_level,
    journal_id,
    journal_month,
    line_key,
    change,
    column_name,
    before,
    after,
    changed_at,
    line_id
FROM sync.restatements;

COMMENT ON VIEW report.journal_restatements IS
    'What changed in a month of a journal after its first complete reading since it was closed (journals.close_day): one row per line that came or went, and per cell that changed.';
COMMENT ON COLUMN report.journal_restatements.journal IS 'The table: case_journals, depot_journals, revenue_journals or settlement_journals.';
COMMENT ON COLUMN report.journal_restatements.journal_level IS 'offices, broker_companies or chain.';
COMMENT ON COLUMN report.journal_restatements.journal_id IS 'The office, broker company or chain.';
COMMENT ON COLUMN report.journal_restatements.journal_month IS 'First day of the month.';
COMMENT ON COLUMN report.journal_restatements.line_key IS
    'The line''s own key, such as revenue_referral_key; #n for the n-th line where it has none.';
COMMENT ON COLUMN report.journal_restatements.change IS 'added, removed, or changed.';
COMMENT ON COLUMN report.journal_restatements.column_name IS
    'What changed in the line; NULL where the whole line came or went; annotations[n].payment_change for the n-th annotation.';
COMMENT ON COLUMN report.journal_restatements.before IS 'The value before, as text; an instant in UTC, with +00 behind it.';
COMMENT ON COLUMN report.journal_restatements.after IS 'The value after, as text; an instant in UTC, with +00 behind it.';
COMMENT ON COLUMN report.journal_restatements.changed_at IS 'When the mirror learned of it.';
COMMENT ON COLUMN report.journal_restatements.line_id IS
    'The line, by its name for good: line_id of the journal and of its history.';
