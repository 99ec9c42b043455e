//! Since when `history` answers what the mirror held.
//!
//! It keeps versions of the tables of `history.tables` alone, and so from when a table was put there. The
//! versions of before another `source.time_zone` was set hold the instants of the zone before, and which of
//! them came without an offset is not known. Reports that read history must not take either for what was.

use duckdb::Connection;
use jiff::Timestamp;

use super::schema::set_meta;
use crate::config::HistoryTables;
use crate::error::Result;
use crate::sql::{self, db, instant, instant_param};

/// Key of `sync.meta`: since when all versions are written in this `source.time_zone`; absent where it has
/// always been this one.
const ZONE_SINCE: &str = "zone_since";

/// The tables of `sync.resources` whose history begins now, or ends, because `history.tables` says otherwise than
/// before.
///
/// # Errors
/// `Store`.
pub(super) fn note_tables(conn: &Connection, kept: &HistoryTables, now: Timestamp) -> Result<()> {
    let is_kept = match kept {
        HistoryTables::All => "true".to_owned(),
        HistoryTables::These(tables) if tables.is_empty() => "false".to_owned(),
        HistoryTables::These(tables) => {
            format!("table_name IN ({})", sql::texts(tables.iter().map(String::as_str)))
        }
    };
    let was_kept = "coalesce(history_since <> 'infinity', true)";
    conn.execute_batch(&format!(
        "UPDATE sync.resources \
         SET history_since = CASE WHEN {is_kept} THEN {} ELSE 'infinity'::TIMESTAMPTZ END \
         WHERE ({was_kept}) <> ({is_kept})",
        instant(now)
    ))
    .map_err(|e| db("cannot note of which tables history is kept", e))
}

/// Another `source.time_zone` holds from now on.
///
/// # Errors
/// `Store`.
pub(super) fn note_zone(conn: &Connection, now: Timestamp) -> Result<()> {
    conn.execute_batch(&format!(
        "UPDATE sync.resources SET history_since = {} \
         WHERE history_since IS DISTINCT FROM 'infinity'::TIMESTAMPTZ",
        instant(now)
    ))
    .map_err(|e| db("cannot note since when history answers", e))?;
    set_meta(conn, ZONE_SINCE, &instant_param(now))
}
