//! The DuckDB file for analysts: a complete, checkpointed copy of the store
//! (docs/architecture.md, "Published means finished").

use std::fs::File;
use std::path::Path;

use duckdb::{AccessMode, Config, Connection};

use super::bytes;
use super::frozen::{Frozen, Image, Pinned};
use super::older_clients;
use super::{PublishedDatabase, ROW_GROUP_ROWS, Snapshot, Stop};
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::progress::Progress;
use crate::sql::{self, db, instant};

/// Name under which the copy is attached while it is written.
const ALIAS: &str = "casemirror_publish";

/// A copy being written.
pub(super) struct Copy<'a> {
    // In this order: detached first, then removed.
    attachment: Option<Attachment<'a>>,
    file: Replacement,
}

impl<'a> Copy<'a> {
    /// Writes the copy: the bytes of the store's file where they show the frozen state, else its
    /// rows, and then [`Pinned::release`] commits what was written.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn write(
        frozen: &'a Frozen,
        image: Image,
        target: &Path,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Copy<'a>> {
        let file = Replacement::of(target)?;
        let attachment = match image {
            Image::File { file: store, bytes } => {
                bytes::copy(store, file.path(), bytes, stop, progress)?;
                open_to_older_clients(store, file.path());
                None
            }
            Image::Rows => Some(copy_rows(frozen.pinned.conn(), file.path())?),
        };
        Ok(Copy { attachment, file })
    }

    /// After the commit: makes one file of it and puts it in its place.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn finish(self) -> Result<PublishedDatabase> {
        let Copy { attachment, file } = self;
        let target = file.target().to_owned();
        if let Some(attachment) = attachment {
            attachment.close().map_err(|e| db(&format!("cannot write {}", target.display()), e))?;
        }
        let log = durable::with_suffix(file.path(), ".wal");
        if log.exists() {
            return Err(Error::new(
                Kind::Internal,
                format!("DuckDB left {} after a checkpoint", log.display()),
            ));
        }
        // A log that a writing client left beside the old file would be replayed into the new one.
        durable::remove(&durable::with_suffix(&target, ".wal"))?;
        file.finish(Access::ReadOnly)?;
        Ok(PublishedDatabase { path: target })
    }
}

/// Where this cannot be done, DuckDB from 1.4.2 on reads the file all the same.
fn open_to_older_clients(store: &File, copy: &Path) {
    let ended = File::options()
        .write(true)
        .open(copy)
        .and_then(|copy| older_clients::end_chains(store, &copy));
    match ended {
        Ok(0) => {}
        Ok(chains) => tracing::debug!(chains, "ended chains of DuckDB's for clients before 1.4.2"),
        Err(error) => tracing::warn!(
            file = %copy.display(),
            reason = %error,
            "clients of DuckDB before 1.4.2 may not be able to open what is published"
        ),
    }
}

impl Pinned {
    /// Hands `read` a file whose first bytes are the store as it was frozen, with nothing of what was erased
    /// from it: the store's own, or one that is written anew as `scratch`. The store's file stays as it is
    /// until then.
    ///
    /// # Errors
    /// `Kind::Store`, `Kind::DiskFull`, `Kind::Io`, and what `read` fails with.
    pub(crate) fn with_store<T>(
        self,
        scratch: Replacement,
        read: impl FnOnce(&File, u64) -> Result<T>,
    ) -> Result<T> {
        if let Some(Image::File { file, bytes }) = self.image {
            let done = read(file, bytes)?;
            self.release()?;
            return Ok(done);
        }
        let failed = |e| error::io("read", scratch.path(), e);
        let attachment = copy_rows(self.conn(), scratch.path())?;
        self.release()?;
        attachment.close().map_err(|e| db("cannot write the copy of the store", e))?;
        let file = File::open(scratch.path()).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        read(&file, bytes)
    }
}

/// A file that is made anew from the rows has no holes: this is also the compaction.
fn copy_rows<'a>(conn: &'a Connection, to: &Path) -> Result<Attachment<'a>> {
    let failed = |e| db(&format!("cannot write {}", to.display()), e);
    let store: String = conn
        .query_row("SELECT current_database()", [], |row| row.get(0))
        .map_err(|e| db("cannot read the store", e))?;
    let attachment = Attachment::of(conn, to)?;
    // Schemas, tables, views, macros, and the comments of all of them.
    conn.execute_batch(&format!("COPY FROM DATABASE {} TO {ALIAS}", sql::ident(&store)))
        .map_err(failed)?;
    Ok(attachment)
}

/// The copy attached to the store's DuckDB, so that one transaction reads the store and writes the
/// file.
struct Attachment<'a> {
    conn: &'a Connection,
    attached: bool,
}

impl<'a> Attachment<'a> {
    fn of(conn: &'a Connection, path: &Path) -> Result<Attachment<'a>> {
        let path = sql::path(path)?;
        // It has the storage version of new stores, which DuckDB 1.2 reads.
        let attach = format!("ATTACH {path} AS {ALIAS} (ROW_GROUP_SIZE {ROW_GROUP_ROWS})");
        conn.execute_batch(&attach).map_err(|e| db("cannot create the copy of the store", e))?;
        Ok(Attachment { conn, attached: true })
    }

    /// Writes what is still in the copy's log into its file, and lets go of it.
    fn close(mut self) -> duckdb::Result<()> {
        self.conn.execute_batch(&format!("CHECKPOINT {ALIAS}"))?;
        self.conn.execute_batch(&format!("DETACH {ALIAS}"))?;
        self.attached = false;
        Ok(())
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        if self.attached {
            // Nothing is detached within a transaction, and a rollback undoes the attaching too.
            // Either may have happened already, and the error that brought us here is the one to
            // report.
            let _ = self.conn.execute_batch("ROLLBACK");
            let _ = self.conn.execute_batch(&format!("DETACH DATABASE IF EXISTS {ALIAS}"));
        }
    }
}

/// The published file, by an instance of its own: one thread that keeps the order, so that equal rows
/// give equal bytes, and no lock that the store's would meet.
pub(super) fn open_published(database: &Path) -> Result<Connection> {
    let failed = |e| db(&format!("cannot open {}", database.display()), e);
    let config = Config::default()
        .access_mode(AccessMode::ReadOnly)
        .and_then(|c| c.threads(1))
        .and_then(|c| c.enable_autoload_extension(false))
        .map_err(failed)?;
    Connection::open_with_flags(database, config).map_err(failed)
}

/// Makes the one row of `sync.snapshot`.
pub(super) fn snapshot_row(snapshot: &Snapshot) -> String {
    format!(
        "DELETE FROM sync.snapshot; \
         INSERT INTO sync.snapshot (snapshot_id, taken_at, watermark, complete) {}",
        snapshot_select(snapshot)
    )
}

/// What `report.snapshot` says of this snapshot.
pub(super) fn snapshot_select(snapshot: &Snapshot) -> String {
    let info = &snapshot.info;
    format!(
        "SELECT {} AS snapshot_id, {} AS taken_at, {} AS watermark, {} AS complete",
        sql::text(&snapshot.id),
        instant(info.taken_at),
        info.watermark.map_or("CAST(NULL AS TIMESTAMPTZ)".to_owned(), instant),
        info.complete
    )
}
