//! How many threads DuckDB works with, and how hard it presses what it writes.
//!
//! One, but for large work. Most steps of a small commit, a poll or a plan are one thread's work: a second
//! one that waits for its share costs CPU and brings nothing (measured: two thirds more for one changed
//! case among a million), and while rows are loaded the decoder needs the other core. In a small store small
//! work does without FSST, of which a checkpoint makes a table of symbols for every column that it writes
//! (measured in 200 cases: 8 % of the CPU of ten changes, for 0.3 % of the file).

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use duckdb::Connection;

use super::storage::NOT_PACKED_BY;
use crate::error::Result;
use crate::sql::{self, db};

/// What a store begins with, and goes back to.
pub(super) const FEW: usize = 1;

/// A store of fewer bytes is small.
const SMALL_STORE_BYTES: u64 = 64 << 20; // 64 MiB

/// The threads of one open store.
#[derive(Debug)]
pub(crate) struct Threads {
    /// `store.threads`; `None`: as many as there are cores.
    most: Option<usize>,
    /// Who works with all of them.
    users: Mutex<usize>,
    /// The store's file.
    store: PathBuf,
}

impl Threads {
    /// Those of the store at `store`, which begins with small work.
    ///
    /// # Errors
    /// `Store`.
    pub(super) fn of(conn: &Connection, most: Option<usize>, store: &Path) -> Result<Threads> {
        let threads = Threads { most, users: Mutex::default(), store: store.to_owned() };
        threads.for_small_work(conn)?;
        Ok(threads)
    }

    /// Lets DuckDB work with all its threads until the answer is dropped. Not within a transaction: one
    /// that has failed would keep them.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn all<'c>(&'c self, conn: &'c Connection) -> Result<AllThreads<'c>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if *users == 0 {
            set(conn, self.most, NOT_PACKED_BY)?;
        }
        *users += 1;
        Ok(AllThreads { threads: self, conn })
    }

    fn for_small_work(&self, conn: &Connection) -> Result<()> {
        let is_small = self.store.metadata().is_ok_and(|found| found.len() < SMALL_STORE_BYTES);
        let small = format!("{NOT_PACKED_BY},fsst");
        set(conn, Some(FEW), if is_small { &small } else { NOT_PACKED_BY })
    }
}

/// See [`Threads::all`].
pub(crate) struct AllThreads<'c> {
    threads: &'c Threads,
    conn: &'c Connection,
}

impl Drop for AllThreads<'_> {
    fn drop(&mut self) {
        let mut users = self.threads.users.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        if *users == 0
            && let Err(error) = self.threads.for_small_work(self.conn)
        {
            // It costs some CPU, and nothing else.
            tracing::warn!(error = error.chain(), "DuckDB keeps all its threads");
        }
    }
}

fn set(conn: &Connection, threads: Option<usize>, without: &str) -> Result<()> {
    let threads = match threads {
        Some(threads) => format!("SET GLOBAL threads = {threads}"),
        None => "RESET GLOBAL threads".to_owned(),
    };
    conn.execute_batch(&format!(
        "{threads}; SET GLOBAL disabled_compression_methods = {}",
        sql::text(without)
    ))
    .map_err(|e| db("cannot set DuckDB's threads", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::scalar_i64;

    #[test]
    fn large_work_has_all_threads_and_the_last_one_gives_them_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let file = std::fs::File::create(&store).unwrap();
        let conn = Connection::open_in_memory().unwrap();
        let other = conn.try_clone().unwrap();
        let now = || scalar_i64(&conn, "SELECT current_setting('threads')::BIGINT").unwrap();
        let presses = || {
            let without = "SELECT lower(current_setting('disabled_compression_methods'))";
            let without: String = conn.query_row(without, [], |row| row.get(0)).unwrap();
            for never in NOT_PACKED_BY.split(',') {
                assert!(without.contains(never), "{without}");
            }
            !without.contains("fsst")
        };
        let threads = Threads::of(&conn, Some(3), &store).unwrap();
        assert!(!presses());
        let one = threads.all(&conn).unwrap();
        let two = threads.all(&other).unwrap();
        assert_eq!(now(), 3);
        assert!(presses());
        drop(one);
        assert_eq!(now(), 3);
        drop(two);
        assert_eq!(now(), 1);
        assert!(!presses());
        file.set_len(SMALL_STORE_BYTES).unwrap();
        drop(threads.all(&other).unwrap());
        assert_eq!(now(), 1);
        assert!(presses(), "in a store that has grown large");
    }
}
