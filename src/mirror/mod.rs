//! The store: the daemon's own DuckDB file with the mirrored tables, their history, the reports, the
//! state of what was seen and fetched, and the run log.
//!
//! One thread owns the connection that writes ([`Writer`]); everything else reads through clones.
//! The feed's ledger is the one exception: it must be written before a call is sent, whatever the
//! writer is doing.

mod align;
mod closings;
mod clustering;
mod comments;
mod commit;
mod compare;
mod contacts;
mod content;
mod controls;
mod definition;
mod doubt;
mod first_load;
mod forecast;
mod freshness;
mod guard;
mod journals;
mod learned;
mod levels;
mod lines;
mod load;
mod merge;
mod months;
mod noting;
mod privacy;
mod rejects;
mod removal;
pub(crate) mod reports;
mod retention;
mod run_log;
mod schema;
mod scopes;
mod search;
mod secrets;
mod seen;
mod stale_marks;
mod state;
mod suspects;
mod threads;
mod undescribed;
mod unread;
mod unreadable;
mod upgrade;
mod verifications;
mod verified;
mod wanted;
mod writer;

use crate::sql::db;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use duckdb::{Config as DuckConfig, Connection};

pub(crate) use closings::{ClosingMonth, Closings, MonthOf};
pub(crate) use compare::{CellDifference, Line, compare, journal_lines};
pub(crate) use freshness::Freshness;
pub(crate) use guard::guarded;
pub use load::{Outcome, Settings};
pub use merge::Merged;
pub(crate) use privacy::may_hold_erased_values;
pub use run_log::RunLog;
pub(crate) use run_log::{FailureRow, ResourceRow, RunRow, RunSummary};
pub(crate) use state::State;
pub(crate) use state::failures::{Failure, Failures, digest_of_404};
pub(crate) use suspects::SuspectStep;
pub(crate) use threads::{AllThreads, Threads};
pub(crate) use unreadable::FEED_TABLES;
pub(crate) use verifications::{CaseMoved, RevenueMonth, ScopeTimes, TurnMonth, rows_of_month};
pub(crate) use verified::{Difference, VerifiedRow};
pub(crate) use wanted::{NotFound, id_column};
pub use writer::{Loader, Writer};

use crate::catalog::Catalog;
use crate::config;
use crate::decode::Privacy;
use crate::error::{self, Error, Kind, Result};

/// How large the log grows at most before it is worked into the file. A checkpoint writes the last rows
/// of a table once more with all their columns, which at DuckDB's 16 MB is most of the work of a first
/// load, and at 64 MB still two fifths of it.
const CHECKPOINT_AT: f64 = 256e6; // bytes
/// What was logged stays in memory until then: it may take this part of `store.memory_limit`.
const LOGGED_PART: f64 = 0.25;

/// From so many bytes on, publishing a store's tables as Parquet is large work for [`Threads`].
const LARGE_STORE_BYTES: u64 = 256 << 20; // 256 MiB

/// Size of a block of a new store, in bytes. DuckDB's own 262,144 make small tables cost much: every
/// column of every table takes a block and a buffer. From 32,768 down, large tables are compressed
/// worse.
const BLOCK_BYTES: &str = "65536";

/// The open store. Holding it holds the file: no other process can open it.
pub struct Store {
    /// Only cloned from, but DuckDB's connections may not be shared between threads.
    root: Mutex<Connection>,
    path: PathBuf,
    privacy: Privacy,
    generation: i64,
    file: OnceLock<&'static File>,
    threads: Arc<Threads>,
    /// `store.memory_limit`.
    memory_limit: String,
}

impl Store {
    /// Opens the store, makes it where there is none, and brings its tables up to the catalog.
    ///
    /// # Errors
    /// `StoreLocked` naming the process that holds it, `StoreNewer`, `Store`, `DiskFull`, `Io`, and
    /// `Config` where `<store.path>.secrets` is not the one that the store needs.
    pub fn open(config: &config::Config, catalog: &Catalog) -> Result<Store> {
        let path = &config.store.path;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| error::io("create", folder, e))?;
        }
        let root = connect(&config.store)?;
        let key = schema::prepare(&root, config, catalog)?;
        let privacy = Privacy::new(&config.privacy, key);
        let generation = align::generation(&root)?;
        Ok(Store {
            root: Mutex::new(root),
            path: path.clone(),
            privacy,
            generation,
            file: OnceLock::new(),
            threads: Arc::new(Threads::new(config.store.threads)),
            memory_limit: config.store.memory_limit.clone(),
        })
    }

    /// How large the log grows before it is worked into the file, in DuckDB's notation.
    pub fn log_limit(&self) -> String {
        log_limit(&self.memory_limit)
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

    /// Where the store is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn connect(settings: &config::Store) -> Result<Connection> {
    let options = DuckConfig::default()
        .max_memory(&settings.memory_limit)
        .and_then(|o| o.enable_autoload_extension(false))
        .and_then(|o| o.with("autoinstall_known_extensions", "false"))
        .and_then(|o| o.with("preserve_insertion_order", "false"))
        .and_then(|o| o.with("checkpoint_threshold", log_limit(&settings.memory_limit)))
        .and_then(|o| o.with("default_block_size", BLOCK_BYTES))
        .and_then(|o| o.threads(threads::FEW as i64))
        .map_err(|e| db("cannot set DuckDB's options", e))?;
    let connection = Connection::open_with_flags(&settings.path, options)
        .map_err(|e| open_error(&settings.path, e))?;
    // A store must not grow on whatever disk the process was started from.
    let spill = format!("{}.tmp", settings.path.display());
    connection
        .execute_batch(&format!(
            "SET temp_directory = {}; SET TimeZone = 'UTC'",
            crate::sql::text(&spill)
        ))
        .or_else(|e| {
            // Without ICU there is no time zone to set, and none is needed.
            if e.to_string().contains("TimeZone") {
                connection
                    .execute_batch(&format!("SET temp_directory = {}", crate::sql::text(&spill)))
            } else {
                Err(e)
            }
        })
        .map_err(|e| db("cannot set the store's temporary folder", e))?;
    Ok(connection)
}

/// How large the log of a store with this memory grows, in DuckDB's notation.
fn log_limit(memory_limit: &str) -> String {
    let limit = config::memory_bytes(memory_limit).unwrap_or(f64::MAX);
    format!("{:.0}B", (limit * LOGGED_PART).min(CHECKPOINT_AT))
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
