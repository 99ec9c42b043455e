//! The store: the daemon's own DuckDB file with the mirrored tables, their history, the reports, the
//! state of what was seen and fetched, and the run log.
//!
//! One thread owns the connection that writes ([`Writer`]); everything else reads through clones.
//! The feed's ledger is the one exception: it must be written before a call is sent, whatever the
//! writer is doing.

mod ahead;
mod align;
mod changes;
mod closings;
mod clustering;
mod comments;
mod commit;
mod compare;
mod contacts;
mod contacts_feed;
mod content;
mod controls;
mod copies;
mod definition;
mod differences;
mod doubt;
mod erasure;
mod events;
mod first_load;
mod first_reads;
mod forecast;
mod forgetting;
mod founding;
mod freshness;
mod guard;
mod held_file;
mod hints;
mod history;
mod journals;
mod learned;
mod levels;
mod lines;
mod load;
pub(crate) mod log;
mod merge;
mod month_lines;
mod months;
mod noting;
mod open;
mod overlay;
mod privacy;
mod publish_lag;
mod published;
mod rejects;
mod removal;
pub(crate) mod reports;
mod retention;
mod rewriting;
mod run_log;
mod schema;
mod scopes;
mod search;
mod secrets;
mod seen;
mod stale_marks;
mod state;
mod statuses;
mod storage;
mod suspects;
mod threads;
mod transactions;
mod unbelieved;
mod undescribed;
mod unnamed;
mod unplaced_roles;
mod unread;
mod unreadable;
mod upgrade;
mod verifications;
mod verified;
mod waiting;
mod wanted;
mod writer;

use crate::sql::db;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use duckdb::Connection;

pub(crate) use ahead::{lie_ahead, take_back};
pub(crate) use closings::{BY_CLOSE_DAY, ClosingMonth, Closings, MonthOf};
pub(crate) use compare::{CellDifference, compare};
pub(crate) use contacts_feed::ContactsFeed;
pub(crate) use copies::{Described, Standing, check_not_newer, secrets_file, secrets_of, settle};
pub(crate) use differences::{ConfigDifference, all_differences};
pub(crate) use erasure::{
    ROW_GROUP_ROWS, Residue, SHOWN_BY_PARQUET, STAY_IN_SNAPSHOTS, holds_erased, last_erasure,
    note_published, note_replaced, note_unclear, stay_in_snapshots,
};
pub(crate) use forgetting::Taken;
pub(crate) use founding::Founding;
pub(crate) use freshness::Freshness;
pub(crate) use guard::guarded;
pub(crate) use held_file::HeldFile;
pub(crate) use history::zone_is_read;
pub use load::{Outcome, Settings};
pub use log::Bounds;
pub use merge::Merged;
#[cfg(test)]
pub(crate) use month_lines::Note;
pub(crate) use month_lines::{Cells, Line, MonthLines, journal_lines};
pub(crate) use open::{Looked, Writing, forget, is_there};
pub(crate) use overlay::Overlay;
pub(crate) use publish_lag::{PublishLag, PublishPlace};
pub(crate) use published::PublishedSnapshot;
pub use run_log::RunLog;
pub(crate) use run_log::{FailureRow, INTERRUPTED, RunRow, RunSummary, STOPPED};
pub(crate) use scopes::Lack;
pub(crate) use secrets::{known_webhook_token, webhook_token};
pub(crate) use state::failures::{Failure, Failures, of_tables};
pub(crate) use state::{ALERTS, FIRST_MONTH, SUBSCRIPTIONS, State};
pub(crate) use statuses::{ResourceRow, asked_tables, is_asked};
pub(crate) use suspects::{Asked, SuspectStep};
pub(crate) use threads::{AllThreads, Threads};
pub(crate) use unbelieved::UnbelievedScopes;
pub(crate) use unnamed::forget_unnamed;
pub(crate) use unplaced_roles::Placed;
pub(crate) use unreadable::FEED_TABLES;
pub(crate) use verifications::{
    CaseMoved, ChosenCases, RevenueMonth, ScopeTimes, TurnMonth, case_subject, rows_of_month,
};
pub(crate) use verified::{Difference, SIGNED_CASES, SIGNED_MONTHS, VerifiedRow};
pub(crate) use wanted::{ListedOffices, NotFound, id_column};
pub use writer::{Loader, Writer};

use crate::decode::Privacy;
use crate::error::{self, Result};

/// From so many bytes on, publishing a store's tables as Parquet is large work for [`Threads`].
const LARGE_STORE_BYTES: u64 = 256 << 20; // 256 MiB

/// The open store. Holding it holds the file: no other process can open it.
pub struct Store {
    /// Only cloned from, but DuckDB's connections may not be shared between threads.
    root: Mutex<Connection>,
    path: PathBuf,
    privacy: Privacy,
    generation: i64,
    file: OnceLock<&'static File>,
    threads: Arc<Threads>,
    bounds: Bounds,
    /// Where this is a database in memory over the store's file.
    overlay: Option<Overlay>,
}

impl Store {
    /// How far its log grows, and how much memory DuckDB may take for it.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// How often columns were defined anew.
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }

    /// Another connection to the same database, for reading.
    pub fn connection(&self) -> Result<Connection> {
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        root.try_clone().map_err(|e| db("cannot open another connection to the store", e))
    }

    /// Gives DuckDB another limit than `store.memory_limit`, in its notation.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn limit_memory(&self, to: &str) -> Result<()> {
        log::limit_memory(&self.connection()?, to)
    }

    /// What large work takes its threads from.
    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// All threads, where writing the store's tables as Parquet is large work.
    ///
    /// # Errors
    /// Those of [`Threads::all`].
    pub(crate) fn threads_for_parquet<'c>(
        &'c self,
        conn: &'c Connection,
    ) -> Result<Option<AllThreads<'c>>> {
        let is_large = self.path.metadata().is_ok_and(|found| found.len() >= LARGE_STORE_BYTES);
        is_large.then(|| self.threads.all(conn)).transpose()
    }

    /// What becomes of values with a privacy class in this store.
    pub(crate) fn privacy(&self) -> &Privacy {
        &self.privacy
    }

    /// The store's file, for reading. It is never closed: closing any descriptor of a file drops all
    /// locks that the process holds on it, DuckDB's too.
    ///
    /// # Errors
    /// `Io`.
    pub fn file(&self) -> Result<&'static File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::open(&self.path).map_err(|e| error::io("open", &self.path, e))?;
        Ok(self.file.get_or_init(|| Box::leak(Box::new(file))))
    }

    /// Works DuckDB's log into the file, when nobody writes any more. Where that fails, the next one who opens
    /// the store does it.
    pub(crate) fn work_in_log(&self) {
        if self.overlay.is_some() {
            return;
        }
        let worked_in = self.connection().and_then(|conn| {
            HeldFile::of(self)?.check(&conn)?;
            log::work_in(&conn, self.file()?, &self.bounds)
        });
        if let Err(error) = worked_in {
            tracing::debug!(reason = error.chain(), "DuckDB's log stays beside the store");
        }
    }

    /// Leaves DuckDB's log beside the store when the process ends: the next one who opens the store works it in.
    pub(crate) fn leave_log(&self) {
        let left = self.connection().and_then(|conn| log::leave(&conn));
        if let Err(error) = left {
            tracing::debug!(reason = error.chain(), "DuckDB's log may be worked in at the end");
        }
    }

    /// What there is to do about a database in memory over the store's file; `None` for the store itself.
    pub(crate) fn overlay(&self) -> Option<Overlay> {
        self.overlay
    }

    /// Where the store is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
