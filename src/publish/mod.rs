//! Publishing: what others read, made from one committed state of the store.
//!
//! Two forms, together or each for itself: the DuckDB file for analysts and the
//! Parquet snapshots (docs/architecture.md, "Published means finished"). Both are written beside
//! their place and put there when they are complete and synced ([`crate::durable`]); whoever reads
//! meanwhile keeps what was there.
//!
//! Readers that keep one connection open have a file of views over the newest snapshot ([`views`]).
//!
//! The snapshots go into a folder, or into a bucket of an object store ([`Root`]). What is for a bucket is made
//! here and uploaded when nothing waits for it any more: a store that holds still for its copy does so for as long
//! as the disk takes, not the network.
//!
//! Both are made from one [`Frozen`] state, so that a database and a snapshot of the same id show the
//! same rows. The writer goes on meanwhile: nothing here writes rows to the store.

mod bucket;
mod bytes;
mod columns;
mod database;
mod earlier;
mod footer;
mod frozen;
mod inputs;
mod manifest;
mod older_clients;
mod owner;
mod pack;
mod parquet;
mod parts;
mod snapshots;
mod turn;
mod views;
mod workbook;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::config::ParquetRoot;
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::ROW_GROUP_ROWS;
use crate::progress::Progress;

pub use bucket::Bucket;
use bucket::Found;
pub(crate) use bucket::Upload;
use frozen::Image;
pub(crate) use frozen::Pinned;
pub use frozen::{Frozen, begin};
pub use manifest::Manifest;
pub(crate) use owner::{check_database, check_snapshots, check_views, identity};
pub(crate) use pack::{PackTarget, packed_months, write_pack};
use parquet::Finished;
pub(crate) use snapshots::{current as current_snapshot, later_of};
pub use turn::Turn;
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
    /// A digest of what readers can see of it.
    pub state: String,
    /// Which erasure of values from the store was the last before it; `None` where there was none.
    pub erasure: Option<String>,
    /// What the last snapshot was called that was published, or was to be; `None` where there was none.
    pub last_id: Option<String>,
    /// Where the snapshot is that this store uploaded last ([`PublishedParquet::address`]).
    pub uploaded: Option<String>,
}

/// Where to publish.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// The file for analysts (`publish.database`).
    pub database: Option<&'a Path>,
    /// The place of the snapshots (`publish.parquet`).
    pub parquet: Option<ParquetTarget<'a>>,
    /// The file with views over the snapshots, which are written together with one.
    pub views: Option<ViewsTarget<'a>>,
}

/// Where the Parquet snapshots and the packs are.
#[derive(Debug, Clone)]
pub enum Root {
    Folder(PathBuf),
    Bucket(Bucket),
}

impl Root {
    /// What `publish.parquet` names. Nothing is called. What is for a bucket is written beside `store` first.
    ///
    /// # Errors
    /// Those of [`Bucket::open`].
    pub fn open(root: &ParquetRoot, store: &Path) -> Result<Root> {
        match root {
            ParquetRoot::Folder(folder) => Ok(Root::Folder(folder.clone())),
            ParquetRoot::Bucket(url) => Bucket::open(url, spool(store)).map(Root::Bucket),
        }
    }

    /// What it is called, the same by whatever path.
    pub(crate) fn address(&self) -> String {
        match self {
            Root::Folder(folder) => ParquetRoot::Folder(folder.clone()).address(),
            Root::Bucket(bucket) => bucket.address(),
        }
    }

    /// Removes what a killed process had written for a bucket, wherever snapshots go now. Nothing may be on its
    /// way to one.
    ///
    /// # Errors
    /// `Kind::Io`.
    pub(crate) fn remove_unfinished(store: &Path) -> Result<()> {
        durable::remove_stale_of(&spool(store))
    }
}

/// A free name for the folder of what is to be uploaded.
fn spool(store: &Path) -> PathBuf {
    durable::with_suffix(store, ".upload")
}

/// The place of the Parquet snapshots and what is kept there.
#[derive(Debug, Clone, Copy)]
pub struct ParquetTarget<'a> {
    pub root: &'a Root,
    /// Tables of schema `main`.
    pub tables: &'a [&'a str],
    /// A snapshot goes when it is none of the newest `keep_snapshots` and older than `keep_for`.
    pub keep_snapshots: usize,
    pub keep_for: Duration,
    /// Earlier snapshots hold what is to be seen no more: none of their files is taken over, and they are
    /// removed when there is a new one.
    pub erased: bool,
}

/// What was published.
#[derive(Debug, Clone)]
pub struct Published {
    /// `2026-11-20T020000Z`.
    pub(crate) snapshot_id: String,
    pub(crate) taken_at: Timestamp,
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

/// The newest snapshot now.
#[derive(Debug, Clone)]
pub struct PublishedParquet {
    /// Its folder, or `s3://bucket/prefix/snapshots/<id>`.
    pub(crate) address: String,
    pub files: usize,
    /// Of these, those of the snapshot before.
    pub linked: usize,
    /// In all files together.
    pub rows: u64,
    /// Of all files, linked ones included.
    pub bytes: u64,
}

/// A snapshot with its name.
#[derive(Debug)]
pub struct Snapshot {
    id: String,
    info: SnapshotInfo,
    /// What there is in the bucket that it goes to, or why that is not known.
    found: Option<Result<Found>>,
    /// Until readers see the snapshot; `None` where there is none of Parquet.
    turn: Option<Turn>,
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
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// What was published before stays.
    pub(crate) fn now(&self) {
        self.0.send_replace(true);
    }

    /// # Errors
    /// `Kind::Cancelled` when it is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if *self.0.borrow() { Err(interrupted()) } else { Ok(()) }
    }

    /// Comes when it is to end: the error that says so.
    async fn comes(&self) -> Error {
        // The sender is here, so that it is waited for until it says so.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
        interrupted()
    }
}

fn interrupted() -> Error {
    Error::new(Kind::Cancelled, "publishing was interrupted")
}

/// What [`make`] has put in its place, and what has yet to be.
pub(crate) struct Made {
    pub(crate) published: Published,
    /// The snapshot, where it goes to a bucket; or why there is none, wherever it was to go.
    pub(crate) upload: Option<Result<Upload>>,
}

impl Made {
    /// Whether what is in the bucket may hold what is to be seen no more.
    pub(crate) fn replaces_erased(&self) -> bool {
        matches!(&self.upload, Some(Ok(upload)) if upload.replaces_erased())
    }

    /// Uploads what is for a bucket.
    ///
    /// # Errors
    /// Those of [`Upload::run`], and why there is nothing to upload.
    pub(crate) fn finish(self, stop: &Stop, progress: &Progress) -> Result<Published> {
        let Made { mut published, upload } = self;
        if let Some(upload) = upload {
            published.parquet = Some(upload?.run(stop, progress)?);
        }
        Ok(published)
    }
}

/// Publishes a frozen state as [`make`] does, and uploads what is for a bucket.
///
/// # Errors
/// Those of [`make`] and [`Made::finish`].
pub fn publish(
    frozen: Frozen,
    targets: &Targets<'_>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Published> {
    make(frozen, targets, stop, progress)?.finish(stop, progress)
}

/// Publishes a frozen state. Other connections may write and commit meanwhile. The whole store is
/// copied but for the database `temp`, so staging tables belong there. One call at a time.
///
/// # Errors
/// `Kind::DiskFull`, `Kind::Io`, `Kind::Store`, `Kind::Cancelled`: what was published before stays,
/// and nothing half-written remains. That the place of the snapshots cannot be reached is none, nor that it cannot be written
/// to, unless the database is made from rows: the rest is published.
pub(crate) fn make(
    mut frozen: Frozen,
    targets: &Targets<'_>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Made> {
    let (found, turn) = (frozen.snapshot.found.take(), frozen.snapshot.turn.take());
    let conn = frozen.pinned.conn();
    let database = match (targets.database, frozen.pinned.image) {
        (Some(target), Some(image)) => {
            Some(database::Copy::write(&frozen, image, target, stop, progress)?)
        }
        _ => None,
    };
    let export = match (found.transpose(), targets.parquet) {
        (Err(unreachable), _) => {
            frozen.pinned.release()?;
            Err(unreachable)
        }
        (Ok(_), None) => {
            frozen.pinned.release()?;
            Ok(None)
        }
        (Ok(found), Some(target)) => {
            let snapshot = (&frozen.snapshot, found);
            let written = parquet::Export::write(conn, target, snapshot, stop, progress);
            stop.check()?;
            match (written, frozen.pinned.image) {
                (Ok(export), _) => {
                    frozen.pinned.release()?;
                    Ok(Some(export))
                }
                // The statement that failed has ended the transaction: a copy of the file is whole without it.
                (Err(error), Some(Image::File { .. })) if is_of_the_place(&error) => {
                    frozen.pinned.let_go()?;
                    Err(error)
                }
                (Err(error), _) => return Err(error),
            }
        }
    };

    let database = database.map(database::Copy::finish).transpose()?;
    failpoint::hit("database-published");
    let finished = export.and_then(|export| export.map(parquet::Export::finish).transpose());
    let (parquet, upload) = match finished {
        Ok(Some(Finished::Placed(parquet))) => (Some(parquet), None),
        Ok(Some(Finished::ToUpload(upload))) => (None, Some(Ok(upload.in_turn(turn)))),
        Ok(None) => (None, None),
        Err(error) => (None, Some(Err(error))),
    };
    let views = targets.views.filter(|_| parquet.is_some());
    let views = views.map(|target| views::write(conn, &target, &frozen.snapshot.info.store_id));
    let Snapshot { id: snapshot_id, info: SnapshotInfo { taken_at, .. }, .. } = frozen.snapshot;
    Ok(Made { published: Published { snapshot_id, taken_at, database, parquet, views }, upload })
}

/// Whether it can be the place of the snapshots that fails.
pub(crate) fn is_of_the_place(error: &Error) -> bool {
    matches!(error.kind(), Kind::Io | Kind::DiskFull | Kind::ObjectStore)
}

#[cfg(test)]
mod tests;
