-- What the tables of state are, where sync.sql and fetched.sql do not say it already: stores of earlier
-- versions get these too.
COMMENT ON TABLE sync.meta IS 'Values of the store as a whole, by key: its format, its tenant, when the cases were last listed';
COMMENT ON TABLE sync.seen_contacts IS 'What the feed last said of each contact: its change date in ticks of 100 ns since 1970';
COMMENT ON TABLE sync.hints IS 'What webhooks have named and no call that was sent later has answered yet: per scope the number of the last hint, in the count of the pages of the feeds';
COMMENT ON TABLE sync.feeds IS 'How far each change feed was read: bound is the date up to which every change has been seen, skew how far the server''s clock runs ahead, next_bound and cursor those of a poll under way; in ticks of 100 ns';
COMMENT ON TABLE sync.failures IS 'Scopes that could not be read: since when, how often, why, and when they are asked again (next_at)';
COMMENT ON TABLE sync.columns IS 'The columns of the tables as they are stored: their definition, their privacy class, and since which definition of the catalog';
COMMENT ON TABLE sync.schedules IS 'When each schedule last ran';
COMMENT ON TABLE sync.restatements IS 'What changed in closed months; report.journal_restatements shows it';
COMMENT ON TABLE sync.closings IS 'What months of the journals were when they were closed; report.closings shows it. forced_over says what was wrong where a month was closed all the same';
COMMENT ON TABLE sync.removals IS 'How many rows of a table answers removed, and when, for the guard over the answers of the last hour';
COMMENT ON TABLE sync.left_scopes IS 'Scopes that had been read completely when they left, with their case or because their table is no longer about it, and when: the reports as of an instant count them as fetched until then';
COMMENT ON TABLE sync.first_reads IS 'Scopes that were read completely for the first time, and when: the reports as of an instant do not count them as fetched before that. Only of the tables that these reports look at';
COMMENT ON TABLE sync.earlier_statuses IS 'Statuses of sync.resources by which a table was not read, from since (included) until (excluded): the reports as of an instant in between do not count it as known';
COMMENT ON TABLE sync.forgotten IS 'Who is forgotten (casemirror forget): a row per contact, and one per text or number of a person that is kept out, each by a keyed hash that says nothing without the key of the mirror';
COMMENT ON TABLE sync.freshness IS 'Per table: when a row of it was last written (last_change), and when any part of it was last read from the source (last_checked); report.freshness shows both';
COMMENT ON TABLE sync.changes IS 'Per table, or part of it: a counter that every insert, update and delete of a row moves; snapshots link unchanged files by it';
COMMENT ON TABLE sync.changed_scopes IS 'Where there is a lake: whose rows the change wrote that moved a table''s counter to this number, so that the lake compares these alone; where scopes is NULL, or the number is not here, any. change tells it from another change of the same number';
COMMENT ON TABLE sync.snapshot IS 'Of a published file: the id of its snapshot, when it was taken, up to when every change is in (watermark), and whether every scope asked for was fetched once (complete)';
COMMENT ON TABLE sync.fetched_cases IS 'Per case of which everything is as it was read: its coverage and, per refresh rule, the version it was fetched at; sync.fetched shows it per table';
COMMENT ON TABLE sync.fetched_coverage IS 'Which tables a row of sync.fetched_cases with this coverage speaks for, and where their versions and times stand in its lists';
COMMENT ON TABLE sync.fetched_scopes IS 'Scopes that differ from their case''s row in sync.fetched_cases, which they overrule, and those that belong to no case; sync.fetched and sync.read_scopes show both';
COMMENT ON TABLE sync.fetched_marks IS 'Tables that are read again as a whole: what was fetched under a smaller mark is stale, under a smaller forgotten it counts as never read';
COMMENT ON TABLE sync.refresh_rules IS 'By which change dates each table that is read per case is refreshed';
COMMENT ON TABLE sync.pending_scopes IS 'What of cases that were read before, of lists and of journals is stale, as of the last publish; sync.pending shows it beside the cases that were not read yet';
COMMENT ON TABLE sync.unread_cases IS 'Cases of which nothing was read but their row in the search, as of the last publish; sync.pending shows a row for each of their tables';
