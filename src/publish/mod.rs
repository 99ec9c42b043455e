//! Publishing: what others read, made from one committed state of the store.
//!
//! Two forms, together or each for itself: the DuckDB file for analysts and the
//! Parquet snapshots (docs/architecture.md, "Published means finished"). Both are written beside
//! their place and put there when they are complete and synced ([`crate::durable`]); whoever reads
//! meanwhile keeps what was there.
//!
//! Readers that keep one connection open have a file of views over the newest snapshot ([`views`]).
//!
//! Both are made from one [`Frozen`] state, so that a database and a snapshot of the same id show the
//! same rows. The writer goes on meanwhile: nothing here writes rows to the store.

mod bytes;
mod columns;
mod database;
mod earlier;
mod footer;
mod frozen;
mod inputs;
mod manifest;
mod owner;
mod pack;
mod parquet;
mod parts;
mod snapshots;
mod views;
mod workbook;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::ROW_GROUP_ROWS;
use crate::progress::Progress;

pub(crate) use frozen::Pinned;
pub use frozen::{Frozen, begin};
pub use manifest::Manifest;
pub(crate) use owner::{check_database, check_snapshots, check_views, identity};
pub(crate) use pack::{PackTarget, packed_months, write_pack};
pub(crate) use views::write as write_views;
pub use views::{ViewsTarget, ViewsWritten};

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
    /// The file with views over the snapshots, which are written together with one.
    pub views: Option<ViewsTarget<'a>>,
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
    /// Earlier snapshots hold what is to be seen no more: none of their files is linked, and they are
    /// removed when there is a new one.
    pub erased: bool,
}

/// What was published.
#[derive(Debug, Clone)]
pub struct Published {
    /// `2026-11-20T020000Z`.
    pub(crate) snapshot_id: String,
    pub(crate) database: Option<PublishedDatabase>,
    pub parquet: Option<PublishedParquet>,
    /// `None` where no snapshot was published.
    pub views: Option<ViewsWritten>,
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
#[derive(Debug, Clone)]
pub struct Snapshot {
    id: String,
    info: SnapshotInfo,
}

impl Snapshot {
    /// The same, of a state as it is at this time. It keeps its name.
    pub(crate) fn taken_at(self, taken_at: Timestamp) -> Snapshot {
        Snapshot { info: SnapshotInfo { taken_at, ..self.info }, ..self }
    }
}

/// Ends a publishing from another thread, with DuckDB's own interrupt for what DuckDB does. Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// What was published before stays.
    pub(crate) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// `Kind::Cancelled` when it is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Cancelled, "publishing was interrupted"));
        }
        Ok(())
    }
}

/// Publishes a frozen state. Other connections may write and commit meanwhile. The whole store is
/// copied but for the database `temp`, so staging tables belong there. One call at a time.
///
/// # Errors
/// `Kind::DiskFull`, `Kind::Io`, `Kind::Store`, `Kind::Cancelled`: what was published before stays,
/// and nothing half-written remains.
pub fn publish(
    frozen: Frozen,
    targets: &Targets<'_>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Published> {
    let conn = frozen.pinned.conn();
    let database = match (targets.database, frozen.pinned.image) {
        (Some(target), Some(image)) => {
            Some(database::Copy::write(&frozen, image, target, stop, progress)?)
        }
        _ => None,
    };
    let parquet = targets
        .parquet
        .map(|target| parquet::Export::write(conn, target, &frozen.snapshot, stop, progress))
        .transpose()?;
    frozen.pinned.release()?;

    let database = database.map(database::Copy::finish).transpose()?;
    failpoint::hit("database-published");
    let parquet = parquet.map(parquet::Export::finish).transpose()?;
    let views = targets.views.filter(|_| parquet.is_some());
    let views = views
        .map(|target| views::write(conn, &target, &frozen.snapshot.info.store_id))
        .transpose()?;
    Ok(Published { snapshot_id: frozen.snapshot.id.clone(), database, parquet, views })
}

/// A path as text for SQL, which knows no other.
fn utf8(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Error::new(Kind::Io, format!("the path {} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests;
