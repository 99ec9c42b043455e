COMMENT ON COLUMN report.calendar.day IS 'The day, in source.time_zone.';
COMMENT ON COLUMN report.calendar.month IS 'First day of its month.';
COMMENT ON COLUMN report.calendar.starts_at IS 'When the day begins; this instant belongs to it.';
COMMENT ON COLUMN report.calendar.ends_at IS 'When the next day begins; this instant does not belong to it.';
