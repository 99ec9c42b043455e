//! Since when `history` answers what the mirror held.
//!
//! It keeps versions of the tables of `history.tables` and of journals, of others from when they are put there.
//! Versions of before another `source.time_zone` was set hold the instants of the zone before, and which of
//! them came without an offset is not known. Reports that read history must not take either for what was.

use duckdb::Connection;
use jiff::Timestamp;

use super::schema::{meta, set_meta};
use crate::catalog::Catalog;
use crate::config::HistoryTables;
use crate::error::Result;
use crate::sql::{self, db, instant, instant_param};

/// Keys of `sync.meta`: when another `source.time_zone` was set, and from when on all cases were read under it. Absent
/// where it has always been this one.
const ZONE_SINCE: &str = "zone_since";
const ZONE_READ_AT: &str = "zone_read_at";

/// Notes of the tables of `sync.resources` whether they keep versions; for those that did not, that they do from now on.
///
/// # Errors
/// `Store`.
pub(super) fn note_tables(
    conn: &Connection,
    catalog: &Catalog,
    kept: &HistoryTables,
    now: Timestamp,
) -> Result<()> {
    let keeping = catalog.resources().iter().filter(|r| kept.keeps(&r.table) || r.is_of_journal());
    let keeping = sql::texts(keeping.map(|resource| resource.table.as_str()));
    let is_kept = format!("table_name IN ({keeping})");
    conn.execute_batch(&format!(
        "UPDATE sync.resources SET keeps_history = {is_kept}, \
           history_since = CASE WHEN {is_kept} AND NOT keeps_history THEN {} ELSE history_since END \
         WHERE keeps_history IS DISTINCT FROM ({is_kept})",
        instant(now)
    ))
    .map_err(|e| db("cannot note of which tables history is kept", e))
}

/// Another `source.time_zone` holds from now on.
///
/// # Errors
/// `Store`.
pub(super) fn note_zone(conn: &Connection, now: Timestamp) -> Result<()> {
    conn.execute_batch(&format!("UPDATE sync.resources SET history_since = {}", instant(now)))
        .map_err(|e| db("cannot note since when history answers", e))?;
    set_meta(conn, ZONE_SINCE, &instant_param(now))?;
    set_meta(conn, ZONE_READ_AT, "")
}

/// No case is left that was read under the zone before: what leaves from now on has the instants of this one.
///
/// # Errors
/// `Store`.
pub(crate) fn zone_is_read(conn: &Connection, now: Timestamp) -> Result<()> {
    match meta(conn, ZONE_READ_AT)?.as_deref() {
        Some("") => set_meta(conn, ZONE_READ_AT, &instant_param(now)),
        _ => Ok(()),
    }
}
