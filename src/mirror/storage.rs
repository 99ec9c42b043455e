//! The store's file as DuckDB opens it: its format, its blocks, its bounds.

use std::path::Path;

use duckdb::{AccessMode, Config as DuckConfig, Connection};

use super::log::Bounds;
use super::open::spill_of;
use super::threads;
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db};

/// Size of a block of a new store, in bytes. DuckDB's own 262,144 make small tables cost much: every
/// column of every table takes a block and a buffer. From 32,768 down, large tables are compressed
/// worse.
pub(super) const BLOCK_BYTES: &str = "65536";

/// The DuckDB of which a new store has the format: the oldest that what is published is promised to. Of the format
/// before it, which DuckDB takes by itself, each column of each table has 3 KB more of statistics, which are read with
/// every opening and written with every checkpoint.
const STORAGE_VERSION: &str = "v1.2.0";

/// What that format brought beside: ways of packing that the first clients of it read by their first code.
pub(super) const NOT_PACKED_BY: &str = "roaring,zstd";

/// Opens the file at `path`, or a database in memory, with the settings of the store.
///
/// # Errors
/// `StoreLocked` naming the process that holds it, `StoreNewer` for a file of a later DuckDB, `Store`.
pub(super) fn connect(
    settings: &config::Store,
    path: &Path,
    mode: AccessMode,
) -> Result<Connection> {
    let options = DuckConfig::default()
        .access_mode(mode)
        .and_then(|o| o.max_memory(&settings.memory_limit))
        .and_then(|o| o.enable_autoload_extension(false))
        .and_then(|o| o.with("autoinstall_known_extensions", "false"))
        .and_then(|o| o.with("preserve_insertion_order", "false"))
        .and_then(|o| o.with("checkpoint_threshold", Bounds::of(&settings.memory_limit).log()))
        .and_then(|o| o.with("default_block_size", BLOCK_BYTES))
        .and_then(|o| o.with("storage_compatibility_version", STORAGE_VERSION))
        .and_then(|o| o.threads(threads::FEW as i64))
        .map_err(|e| db("cannot set DuckDB's options", e))?;
    let connection = Connection::open_with_flags(path, options).map_err(|e| open_error(path, e))?;
    // DuckDB opens with all of them, whatever it is told before.
    connection
        .execute_batch(&format!(
            "SET GLOBAL disabled_compression_methods = {}",
            sql::text(NOT_PACKED_BY)
        ))
        .map_err(|e| db("cannot set how DuckDB packs what it writes", e))?;
    // A store must not grow on whatever disk the process was started from.
    let spill = spill_of(&settings.path).display().to_string();
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

/// DuckDB tells these cases apart only in words.
pub(super) fn open_error(path: &Path, source: duckdb::Error) -> Error {
    let text = source.to_string();
    let shown = path.display();
    if text.contains("Could not set lock") || text.contains("Conflicting lock") {
        let holder = text
            .split("Conflicting lock is held in ")
            .nth(1)
            .and_then(|rest| rest.split(". See").next())
            .and_then(|rest| rest.split(". However").next())
            // Of a process that is dying there is no name.
            .map_or(String::new(), |holder| {
                let holder = holder.trim();
                format!(" by {}", holder.strip_prefix(". ").unwrap_or(holder))
            });
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

/// Whether the store's file has a format from before [`STORAGE_VERSION`].
pub(super) fn is_of_earlier_storage(root: &Connection) -> Result<bool> {
    let earlier = "SELECT count(*) FROM duckdb_databases() \
                   WHERE database_name = current_database() AND tags['storage_version'] = 'v1.0.0+'";
    Ok(sql::scalar_i64(root, earlier)? > 0)
}

/// Gives the store's file the format of [`STORAGE_VERSION`]; each table gets it with its next checkpoint. A file that
/// cannot be given it now is as good as before, and the next start tries again.
pub(super) fn raised(root: Connection, settings: &config::Store) -> Result<Connection> {
    // A database that is open keeps its format, and one file is open once.
    drop(root);
    if let Err(error) = raise(settings) {
        tracing::warn!(
            error = error.chain(),
            "the store keeps the format of an earlier DuckDB, which takes more space and time; the next start tries \
             again to give it that of {STORAGE_VERSION}"
        );
    }
    connect(settings, &settings.path, AccessMode::Automatic)
}

fn raise(settings: &config::Store) -> Result<()> {
    let path = &settings.path;
    let other = connect(settings, Path::new(":memory:"), AccessMode::Automatic)?;
    // What is still in the log is worked in: a checkpoint like any other.
    let bounds = Bounds::of(&settings.memory_limit);
    let _more = bounds.with_more_memory(&other)?;
    // Only a checkpoint that has something to write writes the format. What is written leaves nothing, and where a kill
    // leaves it after all, the next raising takes it away.
    let raise = format!(
        "ATTACH {} AS store (STORAGE_VERSION '{STORAGE_VERSION}'); \
         CREATE SCHEMA IF NOT EXISTS store._raising; DROP SCHEMA store._raising; \
         FORCE CHECKPOINT store; DETACH store",
        sql::path(path)?
    );
    other.execute_batch(&raise).map_err(|e| open_error(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(folder: &Path) -> config::Store {
        let url = url::Url::parse("http://127.0.0.1/").unwrap();
        config::Config::for_demo(url, "id", String::from("secret").into(), folder).store
    }

    #[test]
    fn a_file_of_an_earlier_format_is_raised_once_and_keeps_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let settings = &settings;
        let options = DuckConfig::default().with("default_block_size", BLOCK_BYTES).unwrap();
        let earlier = Connection::open_with_flags(&settings.path, options).unwrap();
        let rows = "CREATE TABLE t AS SELECT range AS id, range::TEXT AS name FROM range(5000)";
        earlier.execute_batch(rows).unwrap();
        drop(earlier);

        let opened = connect(settings, &settings.path, AccessMode::Automatic).unwrap();
        assert!(is_of_earlier_storage(&opened).unwrap());
        opened.execute_batch("INSERT INTO t VALUES (-1, 'in the log')").unwrap();
        let raised = raised(opened, settings).unwrap();
        assert!(!is_of_earlier_storage(&raised).unwrap());
        drop(raised);
        let again = connect(settings, &settings.path, AccessMode::Automatic).unwrap();
        assert!(!is_of_earlier_storage(&again).unwrap());
        let all = "SELECT count(*) FROM t WHERE id = -1 OR name = id::TEXT";
        assert_eq!(sql::scalar_i64(&again, all).unwrap(), 5001);
    }

    #[test]
    fn a_new_file_has_the_oldest_format_that_readers_are_promised() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let path = folder.path().join("new.duckdb");
        let new = connect(&settings, &path, AccessMode::Automatic).unwrap();
        let version = "SELECT tags['storage_version'] FROM duckdb_databases() \
                       WHERE database_name = current_database()";
        let version: String = new.query_row(version, [], |row| row.get(0)).unwrap();
        assert_eq!(version, format!("{STORAGE_VERSION}+"));

        let packed = |table: &str| {
            let rows = format!(
                "CREATE TABLE {table} AS SELECT CASE WHEN hash(range) % 1000 = 0 THEN range END AS id \
                 FROM range(200000); CHECKPOINT"
            );
            new.execute_batch(&rows).unwrap();
            let roaring = format!(
                "SELECT count(*) FROM pragma_storage_info('{table}') WHERE compression = 'Roaring'"
            );
            sql::scalar_i64(&new, &roaring).unwrap()
        };
        assert_eq!(packed("of_ours"), 0);
        new.execute_batch("SET disabled_compression_methods = ''").unwrap();
        assert!(packed("by_itself") > 0, "DuckDB chooses otherwise by now");
    }
}
