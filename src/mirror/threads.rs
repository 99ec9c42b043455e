//! How many threads DuckDB works with.
//!
//! One, but for large work. Most steps of a small commit, a poll or a plan are one thread's work: a second
//! one that waits for its share costs CPU and brings nothing (measured: two thirds more for one changed
//! case among a million), and while rows are loaded the decoder needs the other core.

use std::sync::{Mutex, PoisonError};

use duckdb::Connection;

use crate::error::Result;
use crate::sql::db;

/// What a store begins with, and goes back to.
pub(super) const FEW: usize = 1;

/// The threads of one open store.
#[derive(Debug)]
pub(crate) struct Threads {
    /// `store.threads`; `None`: as many as there are cores.
    most: Option<usize>,
    /// Who works with all of them.
    users: Mutex<usize>,
}

impl Threads {
    pub(super) fn new(most: Option<usize>) -> Threads {
        Threads { most, users: Mutex::default() }
    }

    /// Lets DuckDB work with all its threads until the answer is dropped. Not within a transaction: one
    /// that has failed would keep them.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn all<'c>(&'c self, conn: &'c Connection) -> Result<AllThreads<'c>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if *users == 0 {
            set(conn, self.most)?;
        }
        *users += 1;
        Ok(AllThreads { threads: self, conn })
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
            && let Err(error) = set(self.conn, Some(FEW))
        {
            // It costs some CPU, and nothing else.
            tracing::warn!(error = error.chain(), "DuckDB keeps all its threads");
        }
    }
}

fn set(conn: &Connection, threads: Option<usize>) -> Result<()> {
    let statement = match threads {
        Some(threads) => format!("SET GLOBAL threads = {threads}"),
        None => "RESET GLOBAL threads".to_owned(),
    };
    conn.execute_batch(&statement).map_err(|e| db("cannot set DuckDB's threads", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::scalar_i64;

    #[test]
    fn large_work_has_all_threads_and_the_last_one_gives_them_back() {
        let conn = Connection::open_in_memory().unwrap();
        let other = conn.try_clone().unwrap();
        set(&conn, Some(FEW)).unwrap();
        let now = || scalar_i64(&conn, "SELECT current_setting('threads')::BIGINT").unwrap();
        let threads = Threads::new(Some(3));
        let one = threads.all(&conn).unwrap();
        let two = threads.all(&other).unwrap();
        assert_eq!(now(), 3);
        drop(one);
        assert_eq!(now(), 3);
        drop(two);
        assert_eq!(now(), 1);
        drop(threads.all(&other).unwrap());
        assert_eq!(now(), 1);
    }
}
