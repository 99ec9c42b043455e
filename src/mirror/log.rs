//! DuckDB's log: what is committed and not in the store's file yet. A checkpoint works it in, and removes it.

use std::fs::File;
use std::time::Duration;

use duckdb::Connection;

use crate::config;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db, scalar_i64};

/// How large the log grows at most before it is worked into the file. A checkpoint writes the last rows
/// of a table once more with all their columns, which at DuckDB's 16 MB is most of the work of a first
/// load, and at 64 MB still two fifths of it.
const CHECKPOINT_AT: f64 = 256e6; // bytes
/// What was logged stays in memory until then: it may take this part of `store.memory_limit`.
const LOGGED_PART: f64 = 0.25;
/// What a checkpoint may take beyond `store.memory_limit`. It writes row groups that lost rows anew, all columns of a
/// table at once, and holds what was logged meanwhile, a block for each column. A checkpoint that lacks memory ends
/// DuckDB's use of the store, and so does the next one.
const CHECKPOINT_MEMORY: f64 = 512e6; // bytes

/// More than any log: no checkpoint comes by itself.
const NEVER: &str = "1000TB";
/// A checkpoint needs a moment without another connection's write, and those are short.
const CHECKPOINT_ATTEMPTS: u32 = 200;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
/// Space that a checkpoint takes beside what was logged.
const SPARE_BYTES: u64 = 16 << 20; // 16 MiB

/// How far a store's log grows, and how much memory DuckDB takes for it.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// `store.memory_limit`.
    memory_limit: String,
}

impl Bounds {
    /// For a store of which this is `store.memory_limit`.
    pub(crate) fn of(memory_limit: &str) -> Bounds {
        Bounds { memory_limit: memory_limit.to_owned() }
    }

    /// How large the log grows, in DuckDB's notation.
    pub(crate) fn log(&self) -> String {
        let limit = self.memory_bytes().unwrap_or(f64::MAX);
        format!("{:.0}B", (limit * LOGGED_PART).min(CHECKPOINT_AT))
    }

    fn memory_bytes(&self) -> Option<f64> {
        config::memory_bytes(&self.memory_limit)
    }

    /// Gives DuckDB its memory, and a checkpoint's beyond it, until what is returned is dropped.
    pub(super) fn with_more_memory<'c>(
        &'c self,
        conn: &'c Connection,
    ) -> Result<Option<MoreMemory<'c>>> {
        let Some(usual) = self.memory_bytes() else { return Ok(None) };
        limit_memory(conn, &format!("{:.0}B", usual + CHECKPOINT_MEMORY))?;
        Ok(Some(MoreMemory { conn, usual: &self.memory_limit }))
    }
}

/// What DuckDB has of it beyond the usual is given back when this is dropped.
pub(super) struct MoreMemory<'c> {
    conn: &'c Connection,
    usual: &'c str,
}

impl Drop for MoreMemory<'_> {
    fn drop(&mut self) {
        // Refused where readers hold that much just now: the next checkpoint gives it back.
        if let Err(error) = limit_memory(self.conn, self.usual) {
            tracing::debug!(reason = error.chain(), "DuckDB keeps more memory than usual");
        }
    }
}

/// Lets DuckDB take so much memory, in its notation.
///
/// # Errors
/// `Store`.
pub(super) fn limit_memory(conn: &Connection, to: &str) -> Result<()> {
    conn.execute_batch(&format!("SET memory_limit = {}", sql::text(to)))
        .map_err(|e| db("cannot set the store's memory limit", e))
}

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
pub(crate) fn checkpoint(conn: &Connection, bounds: &Bounds) -> Result<bool> {
    let _memory = bounds.with_more_memory(conn)?;
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

/// From now on no checkpoint comes by itself, and [`work_in`] makes none, until [`let_go`].
///
/// # Errors
/// `Store`.
pub(crate) fn hold_back(conn: &Connection) -> Result<()> {
    set_limit(conn, NEVER)
}

/// Lets the log grow as large as usual before it is worked in.
///
/// # Errors
/// `Store`.
pub(crate) fn let_go(conn: &Connection, bounds: &Bounds) -> Result<()> {
    set_limit(conn, &bounds.log())
}

fn set_limit(conn: &Connection, bytes: &str) -> Result<()> {
    conn.execute_batch(&format!("SET GLOBAL checkpoint_threshold = {}", sql::text(bytes)))
        .map_err(|e| db("cannot set when the store's log is worked into its file", e))
}

/// Works the log in at the end of a process, when nobody writes any more. The last connection that closes
/// does so too; but which one that is, and whether the process has ended before it, is nobody's choice. A file
/// that is just being copied stays as it is.
///
/// # Errors
/// `Store`; those of [`check_space`].
pub(super) fn work_in(conn: &Connection, store: &File, bounds: &Bounds) -> Result<()> {
    // DuckDB rounds what it was told.
    let held_back = "SELECT (current_setting('checkpoint_threshold') LIKE '%TiB')::BIGINT";
    if scalar_i64(conn, held_back)? == 1 {
        return Ok(());
    }
    check_space(conn, store)?;
    checkpoint(conn, bounds).map(drop)
}

/// Keeps the last connection that closes from working the log in.
///
/// # Errors
/// `Store`.
pub(super) fn leave(conn: &Connection) -> Result<()> {
    conn.execute_batch("PRAGMA disable_checkpoint_on_shutdown")
        .map_err(|e| db("cannot leave the log alone", e))
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
    fn a_checkpoint_has_memory_beyond_the_limit_and_gives_it_back() {
        let conn = Connection::open_in_memory().unwrap();
        let limit = || -> String {
            conn.query_row("SELECT current_setting('memory_limit')", [], |row| row.get(0)).unwrap()
        };
        let bounds = Bounds::of("400MB");
        // Whatever it was, it is the usual one afterwards: what DuckDB says of it is rounded.
        for before in ["400MB", "1GB"] {
            limit_memory(&conn, before).unwrap();
            let more = bounds.with_more_memory(&conn).unwrap();
            assert_eq!(limit(), "869.7 MiB");
            drop(more);
            assert_eq!(limit(), "381.4 MiB");
        }
        assert!(checkpoint(&conn, &bounds).unwrap());
        assert_eq!(limit(), "381.4 MiB");
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
        let bounds = Bounds::of("1GB");
        hold_back(&reading).unwrap();
        work_in(&conn, &store, &bounds).unwrap();
        assert!(log.exists());
        let_go(&reading, &bounds).unwrap();
        work_in(&conn, &store, &bounds).unwrap();
        assert!(!log.exists());
    }
}
