//! Connections to the store: a DuckDB of its own that keeps nothing, with the store's file attached as [`STORE`].
//!
//! Only what is attached can be told how many rows a row group has.

use std::path::Path;

use duckdb::{AccessMode, Config as DuckConfig, Connection};

use super::log::Bounds;
use super::threads;
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db};

/// The name that the store's file has beside the database in memory.
pub(super) const STORE: &str = "store";

/// Size of a block of a new store, in bytes. DuckDB's own 262,144 make small tables cost much: every
/// column of every table takes a block and a buffer. From 32,768 down, large tables are compressed
/// worse.
pub(super) const BLOCK_BYTES: &str = "65536";

/// Rows in a row group that is written. A group is compressed as a whole by each thread, and at DuckDB's
/// 122,880 a group of the widest tables does not fit a store.memory_limit of 400 MB. What a transaction
/// has beyond whole groups waits in the log, to be compressed with the rest of its group at each
/// checkpoint anew (measured with 100,000 wide cases: a tenth of the CPU, a sixth of the file; half as
/// many or twice as many rows bring less).
pub(crate) const ROW_GROUP_ROWS: usize = 16_384;

/// The store at `path`, which this connection uses.
///
/// # Errors
/// `StoreLocked` naming the process that holds it, `StoreNewer`, `Store`.
pub(super) fn connect(
    settings: &config::Store,
    path: &Path,
    mode: AccessMode,
) -> Result<Connection> {
    let connection = instance(settings)?;
    attach(&connection, path, mode)?;
    connection
        .execute_batch(&format!("USE {STORE}"))
        .map_err(|e| db("cannot use the store's database", e))?;
    Ok(connection)
}

/// Another connection to what `root` uses: a new one uses the database in memory.
///
/// # Errors
/// `Store`.
pub(super) fn another(root: &Connection) -> Result<Connection> {
    let failed = |e| db("cannot open another connection to the store", e);
    let connection = root.try_clone().map_err(failed)?;
    let used: String =
        root.query_row("SELECT current_database()", [], |row| row.get(0)).map_err(failed)?;
    connection.execute_batch(&format!("USE {}", sql::ident(&used))).map_err(failed)?;
    Ok(connection)
}

/// A database in memory, with what the configuration allows a store.
///
/// # Errors
/// `Store`.
pub(super) fn instance(settings: &config::Store) -> Result<Connection> {
    let connection = DuckConfig::default()
        .max_memory(&settings.memory_limit)
        .and_then(|o| o.enable_autoload_extension(false))
        .and_then(|o| o.with("autoinstall_known_extensions", "false"))
        .and_then(|o| o.with("preserve_insertion_order", "false"))
        .and_then(|o| o.with("checkpoint_threshold", Bounds::of(&settings.memory_limit).log()))
        .and_then(|o| o.with("default_block_size", BLOCK_BYTES))
        .and_then(|o| o.threads(threads::FEW as i64))
        .and_then(Connection::open_in_memory_with_flags)
        .map_err(|e| db("cannot set DuckDB's options", e))?;
    // A store must not grow on whatever disk the process was started from.
    let spill = format!("{}.tmp", settings.path.display());
    connection
        .execute_batch(&format!("SET temp_directory = {}; SET TimeZone = 'UTC'", sql::text(&spill)))
        .or_else(|e| {
            // Without ICU there is no time zone to set, and none is needed.
            if e.to_string().contains("TimeZone") {
                connection.execute_batch(&format!("SET temp_directory = {}", sql::text(&spill)))
            } else {
                Err(e)
            }
        })
        .map_err(|e| db("cannot set the store's temporary folder", e))?;
    Ok(connection)
}

/// Attaches the file as [`STORE`].
///
/// # Errors
/// As [`connect`]; `Io` for a path that is not UTF-8.
pub(super) fn attach(instance: &Connection, path: &Path, mode: AccessMode) -> Result<()> {
    let read_only = if matches!(mode, AccessMode::ReadOnly) { ", READ_ONLY" } else { "" };
    let attach = format!(
        "ATTACH {} AS {STORE} (ROW_GROUP_SIZE {ROW_GROUP_ROWS}{read_only})",
        sql::text(sql::utf8(path)?)
    );
    instance.execute_batch(&attach).map_err(|e| open_error(path, e))
}

/// DuckDB tells these cases apart only in words.
fn open_error(path: &Path, source: duckdb::Error) -> Error {
    let text = source.to_string();
    let shown = path.display();
    if text.contains("Could not set lock") || text.contains("Conflicting lock") {
        let holder = text
            .split("Conflicting lock is held in ")
            .nth(1)
            .and_then(|rest| rest.split(". See").next())
            .map_or(String::new(), |holder| format!(" by {}", holder.trim()));
        return Error::new(Kind::StoreLocked, format!("the store {shown} is held{holder}"));
    }
    if text.contains("version number") {
        return Error::caused(
            Kind::StoreNewer,
            format!("the store {shown} was written by another version of DuckDB"),
            source,
        );
    }
    db(&format!("cannot open the store {shown}"), source)
}
