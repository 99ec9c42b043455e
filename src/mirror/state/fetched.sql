-- What was read. A case of which everything is as it was read is one row of `fetched_cases`: which
-- tables were read says its coverage, of which there are few, and what the tables with one refresh rule
-- were fetched at is one version. What differs from that (not current, to be searched once more, read
-- since the case was last clean) and what is no case's is a row of `fetched_scopes`, which overrules.
CREATE TABLE sync.fetched_cases (
  case_id BIGINT,
  coverage BIGINT,
  versions VARCHAR[],
  sent_at TIMESTAMPTZ[],
  fetched_at TIMESTAMPTZ[],
  status VARCHAR,
  mark BIGINT,
  digests UBIGINT[]
);

-- Per table of a coverage: where its version and its times stand in the lists of the cases' rows.
CREATE TABLE sync.fetched_coverage (
  coverage BIGINT,
  table_name VARCHAR,
  definition BIGINT,
  version_at BIGINT,
  times_at BIGINT
);

CREATE TABLE sync.fetched_scopes (
  table_name VARCHAR,
  id BIGINT,
  part VARCHAR,
  version VARCHAR,
  status VARCHAR DEFAULT 'current',
  sent_at TIMESTAMPTZ,
  fetched_at TIMESTAMPTZ,
  definition BIGINT,
  complete BOOLEAN,
  again_at BIGINT,
  mark BIGINT DEFAULT 0,
  -- By what its complete answer is known again; NULL where the next is to be decoded whatever it says.
  digest UBIGINT
);

-- What is read again of whole tables: a mark holds for all that was fetched under a smaller number;
-- below `forgotten` it counts as never read. So no row of a scope has to be written for it.
CREATE TABLE sync.fetched_marks (
  table_name VARCHAR,
  status VARCHAR,
  mark BIGINT DEFAULT 0,
  forgotten BIGINT DEFAULT 0
);

-- By which dates each table that is read per case is refreshed: those with one rule have one version.
CREATE TABLE sync.refresh_rules (table_name VARCHAR, rule VARCHAR);
