//! Bringing the store of a store that an earlier version made up to this one's.

use duckdb::Connection;

use super::state::fetched;
use crate::error::Result;
use crate::scope::FetchStatus;
use crate::sql::{self, db};

/// From the first format: what was fetched was one row per table and scope, whose `stamp` was at once
/// the version and, in words, the status. Columns that were added within that format are made first.
pub(super) fn from_first(conn: &Connection) -> Result<()> {
    let failed = |e| db("cannot bring the store's state up to this version", e);
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS sync.removals \
           (table_name VARCHAR, removed_at TIMESTAMPTZ, removed BIGINT); \
         ALTER TABLE sync.seen_contacts ADD COLUMN IF NOT EXISTS moved_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS wanted BOOLEAN DEFAULT true; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_digest VARCHAR; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_payment DECIMAL(38,2); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_change DECIMAL(38,2); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_price DECIMAL(38,2); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS not_found_at TIMESTAMPTZ; \
         ALTER TABLE sync.failures ADD COLUMN IF NOT EXISTS digest VARCHAR; \
         ALTER TABLE sync.resources ADD COLUMN IF NOT EXISTS read_with VARCHAR; \
         ALTER TABLE sync.resources ADD COLUMN IF NOT EXISTS because_of VARCHAR; \
         ALTER TABLE sync.columns ADD COLUMN IF NOT EXISTS class VARCHAR",
    )
    .map_err(failed)?;
    fetched::create(conn)?;
    let words = sql::texts(FetchStatus::stale_names());
    conn.execute_batch(&format!(
        "INSERT INTO sync.fetched_scopes BY NAME \
           SELECT table_name, id, part, CASE WHEN stamp NOT IN ({words}) THEN stamp END AS version, \
             CASE WHEN stamp NOT IN ({words}) THEN 'current' ELSE coalesce(stamp, 'moved') END \
               AS status, \
             sent_at, fetched_at, definition, complete, again_at, 0 AS mark FROM sync.fetched; \
         DROP TABLE sync.fetched"
    ))
    .map_err(failed)?;
    fetched::create_view(conn)
}

/// From the second format: what journals are known by, and what became of what they were verified to be.
pub(super) fn from_second(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "ALTER TABLE sync.verifications ADD COLUMN IF NOT EXISTS subject VARCHAR; \
         ALTER TABLE sync.verifications ADD COLUMN IF NOT EXISTS standing BOOLEAN; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS verified_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS off_rounds BIGINT; \
         CREATE TABLE IF NOT EXISTS sync.journal_scopes \
           (journal_level VARCHAR, journal_id BIGINT, name VARCHAR, not_found_at TIMESTAMPTZ, \
            gone_at TIMESTAMPTZ)",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}
