//! DuckDB's log: what is committed and not in the store's file yet. A checkpoint works it in, and removes it.

use std::fs::File;
use std::time::Duration;

use duckdb::Connection;

use crate::error::{Error, Kind, Result};
use crate::sql::{self, db, scalar_i64};

/// More than any log: no checkpoint comes by itself.
const NEVER: &str = "1000TB";
/// A checkpoint needs a moment without another connection's write, and those are short.
const CHECKPOINT_ATTEMPTS: u32 = 200;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
/// Space that a checkpoint takes beside what was logged.
const SPARE_BYTES: u64 = 16 << 20; // 16 MiB

/// A checkpoint that finds no space ends DuckDB's use of the store until it is opened again. What is
/// left has to take the log as rows and as what they replace, and some more.
///
/// # Errors
/// `DiskFull` when it does not.
pub(crate) fn check_space(conn: &Connection, store: &File) -> Result<()> {
    let path: String = conn
        .query_row(
            "SELECT path FROM duckdb_databases() WHERE database_name = current_database()",
            [],
            |row| row.get(0),
        )
        .map_err(|e| db("cannot read where the store is", e))?;
    let log = std::fs::metadata(format!("{path}.wal")).map_or(0, |found| found.len());
    // What cannot be asked is found out by the checkpoint.
    let Ok(disk) = rustix::fs::fstatvfs(store) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match space_lacking(free, log) {
        0 => Ok(()),
        lacking => Err(Error::new(
            Kind::DiskFull,
            format!(
                "cannot work the log of {path} into it: {lacking} bytes of free space are lacking beside it"
            ),
        )),
    }
}

/// How many bytes more than `free` a checkpoint of a log may take.
fn space_lacking(free: u64, log: u64) -> u64 {
    log.saturating_mul(2).saturating_add(SPARE_BYTES).saturating_sub(free)
}

/// Works the log into the file. `false`: others were writing all the time. Who only reads holds nothing up.
///
/// # Errors
/// `Store`.
pub(crate) fn checkpoint(conn: &Connection) -> Result<bool> {
    for _ in 0..CHECKPOINT_ATTEMPTS {
        match conn.execute_batch("CHECKPOINT") {
            Ok(()) => return Ok(true),
            // DuckDB tells it only in words.
            Err(e) if e.to_string().contains("other write transactions active") => {
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            Err(e) => return Err(db("cannot work the store's log into its file", e)),
        }
    }
    Ok(false)
}

/// From now on no checkpoint comes by itself, and [`work_in`] makes none, until [`set_limit`].
///
/// # Errors
/// `Store`.
pub(crate) fn hold_back(conn: &Connection) -> Result<()> {
    set_limit(conn, NEVER)
}

/// Lets the log grow so large, in DuckDB's notation, before it is worked in.
///
/// # Errors
/// `Store`.
pub(crate) fn set_limit(conn: &Connection, bytes: &str) -> Result<()> {
    conn.execute_batch(&format!("SET GLOBAL checkpoint_threshold = {}", sql::text(bytes)))
        .map_err(|e| db("cannot set when the store's log is worked into its file", e))
}

/// Works the log in at the end of a process, when nobody writes any more. The last connection that closes
/// does so too; but which one that is, and whether the process has ended before it, is nobody's choice. A file
/// that is just being copied stays as it is.
///
/// # Errors
/// `Store`; those of [`check_space`].
pub(super) fn work_in(conn: &Connection, store: &File) -> Result<()> {
    // DuckDB rounds what it was told.
    let held_back = "SELECT (current_setting('checkpoint_threshold') LIKE '%TiB')::BIGINT";
    if scalar_i64(conn, held_back)? == 1 {
        return Ok(());
    }
    check_space(conn, store)?;
    checkpoint(conn).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_needs_space_for_its_log_twice_and_some_more() {
        assert_eq!(space_lacking(SPARE_BYTES, 0), 0);
        assert_eq!(space_lacking(SPARE_BYTES - 1, 0), 1);
        assert_eq!(space_lacking(SPARE_BYTES + 1000, 501), 2);
        assert_eq!(space_lacking(u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn at_the_end_a_reader_does_not_keep_the_log_and_one_who_copies_the_file_does() {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) =
            (folder.path().join("store.duckdb"), folder.path().join("store.duckdb.wal"));
        let conn = Connection::open(&path).unwrap();
        let store = File::open(&path).unwrap();
        conn.execute_batch("CREATE TABLE t AS SELECT 1 AS n; CHECKPOINT").unwrap();
        let reading = conn.try_clone().unwrap();
        reading.execute_batch("BEGIN; FROM t").unwrap();
        conn.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        assert!(log.exists());
        hold_back(&reading).unwrap();
        work_in(&conn, &store).unwrap();
        assert!(log.exists());
        set_limit(&reading, "256000000B").unwrap();
        work_in(&conn, &store).unwrap();
        assert!(!log.exists());
    }
}
