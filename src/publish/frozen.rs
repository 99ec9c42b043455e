//! One committed state of the store that stays as it is while others go on writing
//! (docs/architecture.md, "Published means finished").
//!
//! DuckDB changes its main file only at a checkpoint; what is committed after it goes to the log. So
//! a checkpoint, with the next one held back, makes the file an image of one committed state, and
//! publishing costs what copying costs.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

use duckdb::Connection;

use super::bucket::{Bucket, Found};
use super::database::snapshot_row;
use super::turn::Turn;
use super::{ParquetTarget, Root, Snapshot, SnapshotInfo, Stop, Targets, owner, snapshots};
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::mirror::{Bounds, Residue, log};
use crate::sql::{db, scalar_i64, transaction};

/// Holes up to here are not worth writing the file anew.
const HOLES_BYTES: i64 = 8 << 20; // 8 MiB

/// What the DuckDB file is made from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Image {
    /// The first bytes of the store's file, which show this state.
    File { file: &'static File, bytes: u64 },
    /// The rows, written anew: the file has more holes than rows, or may still hold what was erased.
    Rows,
}

/// What is to be published, and the transaction that sees it.
pub struct Frozen {
    pub(super) pinned: Pinned,
    pub(super) snapshot: Snapshot,
}

/// A committed state, and the transaction that sees it.
pub(crate) struct Pinned {
    reading: Connection,
    in_transaction: Cell<bool>,
    /// `None`: no DuckDB file is made.
    pub(super) image: Option<Image>,
    /// Where the log grows without end meanwhile.
    bounds: Option<Bounds>,
}

/// What a publishing is called, before the state that it shows is frozen. `turn`: the store's own, where snapshots are
/// published and another process may do that too; it is kept until readers see this one. What a killed process left behind at
/// the targets is removed. A bucket is looked at: that it, or a folder, cannot be reached is no error here, as the rest can be
/// published without it.
///
/// # Errors
/// `Kind::Io`; `Kind::Config` for a place of another store; `Kind::Cancelled`.
pub fn begin(
    targets: &Targets<'_>,
    info: SnapshotInfo,
    turn: Option<Turn>,
    stop: &Stop,
) -> Result<Snapshot> {
    if let Some(target) = targets.database {
        durable::remove_stale_of(target)?;
    }
    let mut found = None;
    match targets.parquet.map(|target| (target.root, target)) {
        Some((Root::Folder(root), target)) => match prepare(root, &target, &info) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), Kind::Config | Kind::Cancelled) => return Err(e),
            Err(e) => found = Some(Err(e)),
        },
        Some((Root::Bucket(bucket), target)) => {
            durable::remove_stale_of(bucket.spool())?;
            let looked = Bucket::run(stop, Found::look(bucket.clone(), info.store_id.clone()));
            let looked = looked.and_then(|found| {
                if !target.erased {
                    found.check_not_later(bucket, &info)?;
                }
                Ok(found)
            });
            found = match looked {
                Err(e) if matches!(e.kind(), Kind::Config | Kind::Cancelled) => return Err(e),
                looked => Some(looked),
            };
        }
        None => {}
    }
    if let Some(target) = targets.views {
        // What is in its way is told when the file is written.
        if let Err(error) = durable::remove_stale_of(target.file) {
            tracing::debug!(reason = error.chain(), "what was left beside the views stays");
        }
    }
    let is_taken = |id: &str| {
        // What was published without Parquet is nowhere to be found by its name.
        let is_used = info.last_id.as_ref().is_some_and(|last| snapshots::is_used(id, last));
        is_used
            || match targets.parquet.map(|target| target.root) {
                Some(Root::Folder(root)) => snapshots::is_there(root, id),
                Some(Root::Bucket(_)) => matches!(&found, Some(Ok(found)) if found.has(id)),
                None => false,
            }
    };
    let id = snapshots::free_id(info.taken_at, is_taken);
    Ok(Snapshot { id, info, found, turn })
}

/// Makes a folder ready, where it is this store's: what is not kept any more goes before there is need for its room.
fn prepare(root: &Path, target: &ParquetTarget<'_>, info: &SnapshotInfo) -> Result<()> {
    owner::check_folder(root, &info.store_id)?;
    snapshots::prepare(root)?;
    if let Some(current) = snapshots::current(root) {
        let (keep, keep_for) = (target.keep_snapshots, target.keep_for);
        snapshots::remove_old(root, &current, info.taken_at, keep, keep_for)?;
    }
    Ok(())
}

impl Frozen {
    /// Freezes what is committed now, for a Parquet snapshot and a DuckDB file that show the same.
    ///
    /// `writing` is the connection that commits rows, and commits none before this returns.
    /// `reading` is another one, without an open transaction. `store` is the store's file, and its
    /// bounds: what DuckDB says of that is rounded, and may be what an earlier publishing
    /// failed to take back.
    ///
    /// # Errors
    /// `Kind::Store`, `Kind::DiskFull` when the log cannot be worked into the file.
    pub fn with_file(
        writing: &Connection,
        reading: Connection,
        (store, bounds): (&'static File, &Bounds),
        snapshot: Snapshot,
    ) -> Result<Frozen> {
        log::check_space(writing, store)?;
        transaction(writing, || {
            writing
                .execute_batch(&snapshot_row(&snapshot))
                .map_err(|e| db("cannot note the snapshot", e))
        })?;
        Ok(Frozen { pinned: Pinned::of(writing, reading, (store, bounds))?, snapshot })
    }

    /// Freezes what is committed now, for a Parquet snapshot alone.
    ///
    /// # Errors
    /// `Kind::Store`.
    pub fn without_file(reading: Connection, snapshot: Snapshot) -> Result<Frozen> {
        let in_transaction = Cell::new(false);
        let pinned = Pinned { reading, in_transaction, image: None, bounds: None };
        pinned.pin()?;
        Ok(Frozen { pinned, snapshot })
    }
}

impl Pinned {
    /// Freezes what is committed now, for a copy of the store. The parameters are those of
    /// [`Frozen::with_file`].
    ///
    /// # Errors
    /// Those of [`Frozen::with_file`].
    pub(crate) fn with_file(
        writing: &Connection,
        reading: Connection,
        (store, bounds): (&'static File, &Bounds),
    ) -> Result<Pinned> {
        log::check_space(writing, store)?;
        Pinned::of(writing, reading, (store, bounds))
    }

    fn of(
        writing: &Connection,
        reading: Connection,
        (store, bounds): (&'static File, &Bounds),
    ) -> Result<Pinned> {
        let began = Instant::now();
        let mut pinned = Pinned {
            reading,
            in_transaction: Cell::new(false),
            image: Some(Image::Rows),
            bounds: Some(bounds.clone()),
        };
        log::hold_back(&pinned.reading)?;
        if is_worked_in(writing, bounds)? && !is_better_written_anew(writing)? {
            let found = store.metadata().map_err(|e| {
                Error::caused(Kind::Io, "cannot read the size of the store's file", e)
            })?;
            pinned.image = Some(Image::File { file: store, bytes: found.len() });
        }
        pinned.pin()?;
        tracing::debug!(held = ?began.elapsed(), "nothing was committed while the state was frozen");
        Ok(pinned)
    }

    /// Reads the frozen state.
    pub(crate) fn conn(&self) -> &Connection {
        &self.reading
    }

    /// A transaction begins with its first look at the store, not with `BEGIN`.
    fn pin(&self) -> Result<()> {
        let failed = |e| db("cannot read the store", e);
        self.reading.execute_batch("BEGIN TRANSACTION").map_err(failed)?;
        self.in_transaction.set(true);
        self.reading.execute_batch("SELECT count(*) FROM sync.meta").map_err(failed)
    }

    /// Ends the transaction, in which nothing was written that is to stay. The store's file may change from now on.
    ///
    /// # Errors
    /// `Kind::Store`, `Kind::DiskFull`.
    pub(super) fn let_go(&self) -> Result<()> {
        if self.in_transaction.replace(false) {
            // What failed before has ended it already, or this does.
            let _ = self.reading.execute_batch("ROLLBACK");
        }
        self.bounds.as_ref().map_or(Ok(()), |bounds| log::let_go(&self.reading, bounds))
    }

    /// Ends the transaction, and with it commits what was written to an attached copy. The store's
    /// file may change from now on.
    ///
    /// # Errors
    /// `Kind::Store`, `Kind::DiskFull`.
    pub(super) fn release(&self) -> Result<()> {
        if self.in_transaction.replace(false) {
            // DuckDB has ended the transaction when a commit fails.
            self.reading
                .execute_batch("COMMIT")
                .map_err(|e| db("cannot complete the copy of the store", e))?;
        }
        self.bounds.as_ref().map_or(Ok(()), |bounds| log::let_go(&self.reading, bounds))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The error that brought us here is the one to report.
        let _ = self.let_go();
    }
}

/// Works the log into the file; `false`: the file cannot be copied, because others write.
fn is_worked_in(conn: &Connection, bounds: &Bounds) -> Result<bool> {
    let done = log::checkpoint(conn, bounds)?;
    if !done {
        tracing::debug!(
            "others were writing: the published file is written anew instead of copied"
        );
    }
    Ok(done)
}

/// Whether a copy of the file would have more holes than rows, or carry away what was erased.
fn is_better_written_anew(conn: &Connection) -> Result<bool> {
    let holes = scalar_i64(
        conn,
        &format!(
            "SELECT count(*) FROM pragma_database_size() \
             WHERE database_name = current_database() AND free_blocks > used_blocks \
               AND free_blocks * block_size > {HOLES_BYTES}"
        ),
    )?;
    Ok(holes > 0 || Residue::Store.is_in(conn)?)
}
