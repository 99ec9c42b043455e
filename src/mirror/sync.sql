-- The daemon's own state. `runs`, `resources`, `pending`, `rejects`, `drift`, `verifications`, `calls`
-- and `feed_calls` are for people to read; the rest is state and may change.
CREATE SCHEMA IF NOT EXISTS history;
CREATE SCHEMA IF NOT EXISTS report;
CREATE SCHEMA IF NOT EXISTS sync;

CREATE TABLE sync.meta (key VARCHAR, value VARCHAR);

-- One row per case that anybody has told us of. Change dates are ticks of 100 ns since 1970 (UTC).
CREATE TABLE sync.seen (
  case_id BIGINT,
  reported BOOLEAN,
  modified_date BIGINT,
  case_activated_date BIGINT,
  case_sold_date BIGINT,
  bid_changed_date BIGINT,
  description_changed_date BIGINT,
  case_entity_changed_date BIGINT,
  image_changed_date BIGINT,
  attachment_changed_date BIGINT,
  transaction_changed_date BIGINT,
  publication_changed_date BIGINT,
  activity_changed_date BIGINT,
  any_stamp VARCHAR,
  moved BIGINT,
  moved_at TIMESTAMPTZ,
  -- When somebody first told us of it.
  known_at TIMESTAMPTZ,
  dirty BOOLEAN,
  place VARCHAR,
  state VARCHAR,
  suspect_at TIMESTAMPTZ,
  whole_stamp VARCHAR,
  rereading VARCHAR,
  removed BOOLEAN
);
COMMENT ON TABLE sync.seen IS 'What the feed last said of each case: its eleven change dates in ticks of 100 ns since 1970, NULL for null, below -2^62 for one that cannot be read; reported is false for a case that only a search has shown';

CREATE TABLE sync.seen_contacts (
  contact_id BIGINT,
  modified_date BIGINT,
  moved BIGINT,
  dirty BOOLEAN,
  moved_at TIMESTAMPTZ
);

-- What webhooks have named and no answer has answered yet: per scope the number of the last hint, in the count of
-- the feeds' pages.
CREATE TABLE sync.hints (table_name VARCHAR, id BIGINT, sequence BIGINT, hinted_at TIMESTAMPTZ);

CREATE TABLE sync.feeds (
  feed VARCHAR,
  bound BIGINT,
  skew BIGINT,
  next_bound BIGINT,
  cursor BIGINT,
  polled_at TIMESTAMPTZ,
  page_size BIGINT
);

CREATE TABLE sync.failures (
  table_name VARCHAR,
  id BIGINT,
  part VARCHAR,
  run_id BIGINT,
  attempts BIGINT,
  first_at TIMESTAMPTZ,
  next_at TIMESTAMPTZ,
  kind VARCHAR,
  error VARCHAR,
  -- What an answer that is not believed yet says is there: only an equal one confirms it.
  digest VARCHAR,
  -- When it failed the last time.
  last_at TIMESTAMPTZ
);

CREATE TABLE sync.resources (
  table_name VARCHAR,
  status VARCHAR,
  reason VARCHAR,
  since TIMESTAMPTZ,
  answered BOOLEAN,
  definition BIGINT,
  read_with VARCHAR,
  because_of VARCHAR,
  keeps_history BOOLEAN,
  -- From when on history has every version; NULL: since the table is here (of an earlier version of casemirror).
  history_since TIMESTAMPTZ
);
COMMENT ON TABLE sync.resources IS 'Why a table is filled or empty: status ok, disabled, forbidden, absent or failing; and whether history has its earlier versions (keeps_history), all of them from when on (history_since; NULL: since the table is here)';

CREATE TABLE sync.columns (
  table_name VARCHAR,
  column_name VARCHAR,
  definition VARCHAR,
  since BIGINT,
  class VARCHAR
);

CREATE TABLE sync.schedules (name VARCHAR, last_run TIMESTAMPTZ);

CREATE TABLE sync.runs (
  run_id BIGINT,
  command VARCHAR,
  started_at TIMESTAMPTZ,
  ended_at TIMESTAMPTZ,
  outcome VARCHAR,
  exit_status BIGINT,
  calls BIGINT,
  rows_inserted BIGINT,
  rows_updated BIGINT,
  rows_deleted BIGINT,
  error VARCHAR
);
COMMENT ON TABLE sync.runs IS 'One row per run; outcome and ended_at are NULL while it lasts and after a kill';

-- Cases of which nothing was read but their row in the search, as of the last publish, and whether
-- bootstrap.since lets them through.
CREATE TABLE sync.unread_cases (case_id BIGINT, since TIMESTAMPTZ, wanted BOOLEAN);

-- The view sync.pending shows them, and the scopes of those cases.
CREATE TABLE sync.pending_scopes (
  table_name VARCHAR,
  scope VARCHAR,
  reason VARCHAR,
  since TIMESTAMPTZ
);

CREATE TABLE sync.rejects (
  run_id BIGINT,
  table_name VARCHAR,
  scope VARCHAR,
  record_key VARCHAR,
  column_name VARCHAR,
  value VARCHAR,
  error VARCHAR,
  first_at TIMESTAMPTZ,
  last_at TIMESTAMPTZ,
  resolved_at TIMESTAMPTZ
);
COMMENT ON TABLE sync.rejects IS 'Values that did not fit their column, and records without a usable key (column_name NULL); open while resolved_at is NULL';

CREATE TABLE sync.drift (
  table_name VARCHAR,
  field VARCHAR,
  example VARCHAR,
  first_seen TIMESTAMPTZ
);
COMMENT ON TABLE sync.drift IS 'Fields of the source that no column takes; their values are in _extra';

CREATE TABLE sync.verifications (
  run_id BIGINT,
  verified_at TIMESTAMPTZ,
  what VARCHAR,
  source VARCHAR,
  mirror VARCHAR,
  difference VARCHAR,
  subject VARCHAR,
  standing BOOLEAN
);
COMMENT ON TABLE sync.verifications IS 'Comparisons of verify with the source, all of the last one and what differed in those before it: difference is NULL where both are the same, begins with unsettled where the source changed each time it was asked, and with not compared where a control was not read; standing: a difference that no later verification of the same subject has found gone';

CREATE TABLE sync.calls (
  run_id BIGINT,
  endpoint VARCHAR,
  calls BIGINT,
  retries BIGINT,
  refusals BIGINT,
  bytes BIGINT,
  seconds DOUBLE
);
COMMENT ON TABLE sync.calls IS 'Per run and endpoint: calls made, repetitions, refusals, bytes received and seconds waited';

CREATE TABLE sync.feed_calls (
  id BIGINT,
  feed VARCHAR,
  boot_id VARCHAR,
  sent_at TIMESTAMPTZ,
  sent_boot_ns BIGINT,
  ended_at TIMESTAMPTZ,
  ended_boot_ns BIGINT,
  status BIGINT,
  hold_ns BIGINT
);
COMMENT ON TABLE sync.feed_calls IS 'Every call to the change feeds: the proof that the throttle was kept';

-- One row per journal's month that is to be mirrored; `due` says why it is to be read, NULL that it
-- is not. A month of an id that is not wanted any more stays as it is: it is not read, and what is due
-- of it waits until it is wanted again. One of another level has no rows, and is read anew then.
CREATE TABLE sync.journal_months (
  table_name VARCHAR,
  journal_level VARCHAR,
  journal_id BIGINT,
  journal_month DATE,
  due VARCHAR,
  sent_at TIMESTAMPTZ,
  read_at TIMESTAMPTZ,
  complete BOOLEAN,
  closed_read_at TIMESTAMPTZ,
  window_days BIGINT,
  definition BIGINT,
  wanted BOOLEAN DEFAULT true,
  doubted_at TIMESTAMPTZ,
  doubted_digest VARCHAR,
  doubted_payment DECIMAL(38,2),
  doubted_change DECIMAL(38,2),
  doubted_price DECIMAL(38,2),
  not_found_at TIMESTAMPTZ,
  verified_at TIMESTAMPTZ,
  last_line_id BIGINT,
  -- Which lines the last complete reading brought, in whatever order.
  lines_digest VARCHAR,
  -- By what the answer is known again that the mirrored lines are, in its order.
  answer_digest UBIGINT,
  -- When more days at once are tried again, and how often in a row they were too much.
  larger_at TIMESTAMPTZ,
  larger_failures BIGINT,
  -- Of a sum: in how many rounds the same differed, and since when it is therefore no control.
  off_rounds BIGINT,
  off_compared VARCHAR,
  no_control_at TIMESTAMPTZ,
  -- When its lines left because journals.level became another, until it is read again.
  left_at TIMESTAMPTZ,
  -- Since when what was read of it is not all, and may stand beside what was read before.
  incomplete_at TIMESTAMPTZ,
  -- Whether its last complete reading took the annotations of its lines, too.
  annotated BOOLEAN
);
COMMENT ON TABLE sync.journal_months IS 'Per journal, scope and month: whether and when it was read completely (read_at), the first time since the month was closed (closed_read_at), why it is to be read (due), and whether it still is to be (wanted: journals.level and journals.ids); doubted_at, doubted_digest and doubted sums: since when, and with which lines, its answer lacks so much that it is not believed yet; not_found_at: its first 404; verified_at: when verify last held it, or tried to, against the source line by line; window_days and larger_at: how many days at once it is asked in, and when more are tried; off_rounds, off_compared and no_control_at (of revenue_journal_sums): how often the same difference was found, which, and since when the sum is no control of its lines; last_line_id: the highest line_id that was ever given in it; left_at: when its lines left because journals.level became another; incomplete_at: since when it has lines of a reading that was not complete; annotated: whether its last complete reading took annotations, where there are any';

-- Whose journals were ever known: they stay known when they leave the list of the offices.
CREATE TABLE sync.journal_scopes (
  journal_level VARCHAR,
  journal_id BIGINT,
  name VARCHAR,
  not_found_at TIMESTAMPTZ,
  gone_at TIMESTAMPTZ
);
COMMENT ON TABLE sync.journal_scopes IS 'Offices, broker companies and chains that were ever listed, with their last known name; one that left the list is asked until the source answers 404 to its id (not_found_at), and again source.doubt later (gone_at)';

-- What changed in closed months; report.journal_restatements shows it.
CREATE TABLE sync.restatements (
  journal VARCHAR,
  journal_level VARCHAR,
  journal_id BIGINT,
  journal_month DATE,
  line_id BIGINT,
  line_key VARCHAR,
  change VARCHAR,
  column_name VARCHAR,
  before VARCHAR,
  after VARCHAR,
  changed_at TIMESTAMPTZ
);

-- What months of the journals were when they were closed; report.closings shows it. No row is ever
-- removed: a month that is opened again has reopened_at, and another row when it is closed again.
-- forced_over says what was wrong when it was closed all the same.
CREATE TABLE sync.closings (
  journal VARCHAR,
  journal_level VARCHAR,
  journal_id BIGINT,
  journal_month DATE,
  closed_at TIMESTAMPTZ,
  closed_by VARCHAR,
  lines BIGINT,
  payment DECIMAL(38,2),
  sha256 VARCHAR,
  reopened_at TIMESTAMPTZ,
  forced_over VARCHAR
);

-- Who is forgotten, by keyed hashes: contacts (by their id), texts (of all their words, and of the first),
-- and numbers (words: how many digits).
CREATE TABLE sync.forgotten (
  kind VARCHAR,
  words BIGINT,
  first_word UBIGINT,
  hash UBIGINT,
  forgotten_at TIMESTAMPTZ
);

-- How many rows of a table answers removed, for the guard over the answers of the last hour.
CREATE TABLE sync.removals (table_name VARCHAR, removed_at TIMESTAMPTZ, removed BIGINT);

-- Scopes that had been read completely when they left with their case, or because their table is no longer
-- about it: what the reports as of an earlier instant count as fetched.
CREATE TABLE sync.left_scopes (table_name VARCHAR, id BIGINT, left_at TIMESTAMPTZ);

-- When scopes were read completely for the first time, since they last left: what those reports do not count as
-- fetched before it. Only of the tables that they look at; a row per table and commit.
CREATE TABLE sync.first_reads (table_name VARCHAR, read_at TIMESTAMPTZ, ids BIGINT[]);

-- Statuses by which a table was not read, once it is read again: what those reports take it for in between.
CREATE TABLE sync.earlier_statuses (
  table_name VARCHAR,
  status VARCHAR,
  since TIMESTAMPTZ,
  until TIMESTAMPTZ
);

-- When a row of a table was last written, and any part of it last read: kept with every commit, because
-- to find it out all rows would have to be read. report.freshness shows it.
CREATE TABLE sync.freshness (
  table_name VARCHAR,
  last_change TIMESTAMPTZ,
  last_checked TIMESTAMPTZ
);

-- Moved by every insert, update and delete of a row; snapshots link unchanged files by it.
CREATE TABLE sync.changes (table_name VARCHAR, part VARCHAR, counter BIGINT);

-- Where there is a lake: whose rows the change wrote that moved a table's counter to this number; NULL, or no row of
-- this number: any.
CREATE TABLE sync.changed_scopes (table_name VARCHAR, counter BIGINT, change UUID, scopes BIGINT[]);

CREATE TABLE sync.snapshot (
  snapshot_id VARCHAR,
  taken_at TIMESTAMPTZ,
  watermark TIMESTAMPTZ,
  complete BOOLEAN
);

CREATE TABLE report.calendar (day DATE, month DATE, starts_at TIMESTAMPTZ, ends_at TIMESTAMPTZ);
COMMENT ON TABLE report.calendar IS 'Every local day of source.time_zone from 1900 to 2100: starts_at is included, ends_at, the start of the next day, is not';
