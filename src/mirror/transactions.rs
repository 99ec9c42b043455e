//! What all transactions of the writer go through: the store's file has to be where it was, and what it was that failed
//! is kept for those who ask.

use std::sync::{Arc, Mutex, PoisonError};

use duckdb::Connection;

use super::Store;
use super::held_file::HeldFile;
use crate::error::{Kind, Result};
use crate::sql::transaction;

/// The transactions of one open store. Clones share what failed.
#[derive(Debug, Clone)]
pub(super) struct Transactions {
    file: Arc<HeldFile>,
    /// What the last one failed with, where it was the store that failed.
    fault: Arc<Mutex<Option<String>>>,
}

impl Transactions {
    /// # Errors
    /// `Io`, `Store`.
    pub(super) fn of(store: &Store) -> Result<Transactions> {
        Ok(Transactions { file: Arc::new(HeldFile::of(store)?), fault: Arc::default() })
    }

    /// What the last one failed with, where it was the store that failed.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses all work where the store's file is not where it was: before [`Transactions::write`], and before what is
    /// done between transactions.
    ///
    /// # Errors
    /// `StoreGone`; `Store`.
    pub(super) fn in_place(&self, conn: &Connection) -> Result<()> {
        let checked = self.file.check(conn);
        if checked.is_err() {
            self.note(&checked);
        }
        checked
    }

    /// One of them.
    ///
    /// # Errors
    /// Those of `write` and of the transaction: nothing is written then.
    pub(super) fn write<T>(
        &self,
        conn: &Connection,
        write: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        let written = transaction(conn, || write(conn));
        self.note(&written);
        written
    }

    fn note<T>(&self, written: &Result<T>) {
        let found = match written {
            Ok(_) => None,
            Err(e) if is_the_stores(e.kind()) => Some(e.chain()),
            // What was to be written was wrong, which says nothing of the store.
            Err(_) => return,
        };
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Whether it is the store that failed.
fn is_the_stores(kind: Kind) -> bool {
    matches!(kind, Kind::Store | Kind::StoreDown | Kind::StoreGone | Kind::DiskFull)
}
