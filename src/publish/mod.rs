//! Publishing: what others read, made from one committed state of the store.
//!
//! Two forms, together or each for itself: the DuckDB file for analysts and the
//! Parquet snapshots (docs/architecture.md, "Published means finished"). Both are written beside
//! their place and put there when they are complete and synced ([`crate::durable`]); whoever reads
//! meanwhile keeps what was there.
//!
//! One read transaction on the store covers both, so that a database and a snapshot of the same id
//! show the same rows. The writer goes on meanwhile: nothing here writes to the store.

mod database;
mod earlier;
mod manifest;
mod pack;
mod parquet;
mod parts;
mod snapshots;
mod workbook;

use std::path::{Path, PathBuf};
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::sql::db;

pub use manifest::Manifest;
pub(crate) use pack::{PackTarget, write_pack};

/// Rows in a row group of what is published. A group is compressed as a whole by each thread, and at
/// DuckDB's 122,880 a group of the widest tables does not fit a store.memory_limit of 400 MB.
const ROW_GROUP_ROWS: usize = 16_384;

/// What is published, as the caller knows it. Read it before [`publish`] is called: the rows are
/// then at least as new as it says.
#[derive(Debug, Clone)]
pub struct SnapshotInfo {
    /// Now; gives the snapshot its name.
    pub taken_at: Timestamp,
    /// Every change with a `ModifiedDate` up to here is in; `None` before the first complete poll.
    pub watermark: Option<Timestamp>,
    /// Whether every scope that the configuration asks for has been fetched once.
    pub complete: bool,
    /// What tells this store from every other, made when it was created. Change counters of
    /// different stores must not be compared.
    pub store_id: String,
}

/// Where to publish.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// The file for analysts (`publish.database`).
    pub database: Option<&'a Path>,
    /// The folder of the snapshots (`publish.parquet`).
    pub parquet: Option<ParquetTarget<'a>>,
}

/// The folder of the Parquet snapshots and what is kept there.
#[derive(Debug, Clone, Copy)]
pub struct ParquetTarget<'a> {
    pub root: &'a Path,
    /// Tables of schema `main`.
    pub tables: &'a [&'a str],
    /// A snapshot goes when it is none of the newest `keep_snapshots` and older than `keep_for`.
    pub keep_snapshots: usize,
    pub keep_for: Duration,
}

/// What was published.
#[derive(Debug, Clone)]
pub struct Published {
    /// `2026-11-20T020000Z`.
    pub(crate) snapshot_id: String,
    pub(crate) database: Option<PublishedDatabase>,
    pub parquet: Option<PublishedParquet>,
}

/// The DuckDB file that took the place of the last one.
#[derive(Debug, Clone)]
pub(crate) struct PublishedDatabase {
    pub(crate) path: PathBuf,
}

/// The snapshot that `latest` shows now.
#[derive(Debug, Clone)]
pub struct PublishedParquet {
    pub(crate) path: PathBuf,
    pub files: usize,
    /// Of these, hard links to the files of the snapshot before.
    pub linked: usize,
    /// In all files together.
    pub rows: u64,
    /// Of all files, linked ones included.
    pub bytes: u64,
}

/// A snapshot with its name.
struct Snapshot<'a> {
    id: String,
    info: &'a SnapshotInfo,
}

/// Publishes the state that is committed now.
///
/// `conn` is a connection to the store of its own (a clone), without an open transaction; other
/// connections may write and commit meanwhile. The whole store is copied but for the database
/// `temp`, so staging tables belong there. One call at a time; what a killed process left behind at
/// these targets is removed first.
///
/// # Errors
/// `Kind::DiskFull`, `Kind::Io`, `Kind::Store`: what was published before stays, nothing
/// half-written remains, the store is untouched and `conn` can be used again.
pub fn publish(conn: &Connection, targets: &Targets<'_>, info: &SnapshotInfo) -> Result<Published> {
    if let Some(target) = targets.database {
        durable::remove_stale_of(target)?;
    }
    if let Some(target) = targets.parquet {
        snapshots::prepare(target.root)?;
    }
    let id = snapshots::free_id(targets.parquet.map(|t| t.root), info.taken_at);
    let snapshot = Snapshot { id, info };

    let state = PinnedState::begin(conn)?;
    let database = targets
        .database
        .map(|target| database::Copy::write(conn, target, &snapshot))
        .transpose()?;
    let parquet = targets
        .parquet
        .map(|target| parquet::Export::write(conn, target, &snapshot))
        .transpose()?;
    state.release()?;

    let database = database.map(database::Copy::finish).transpose()?;
    failpoint::hit("database-published");
    let parquet = parquet.map(parquet::Export::finish).transpose()?;
    Ok(Published { snapshot_id: snapshot.id, database, parquet })
}

/// A transaction: all that is read within it is one committed state.
struct PinnedState<'a> {
    conn: &'a Connection,
    open: bool,
}

impl<'a> PinnedState<'a> {
    fn begin(conn: &'a Connection) -> Result<PinnedState<'a>> {
        conn.execute_batch("BEGIN TRANSACTION").map_err(|e| db("cannot read the store", e))?;
        Ok(PinnedState { conn, open: true })
    }

    /// Ends it, and with it commits what was written to the attached copy.
    fn release(mut self) -> Result<()> {
        // DuckDB has ended the transaction when a commit fails.
        self.open = false;
        self.conn
            .execute_batch("COMMIT")
            .map_err(|e| db("cannot complete the copy of the store", e))
    }
}

impl Drop for PinnedState<'_> {
    fn drop(&mut self) {
        if self.open {
            // The error that brought us here is the one to report.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }
}

/// A path as text for SQL, which knows no other.
fn utf8(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Error::new(Kind::Io, format!("the path {} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests;
