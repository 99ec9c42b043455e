//! A Parquet snapshot for itself, of what the store holds now.

use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;

use super::Session;
use super::publishing::{LONGEST_TURN, blocking, targets};
use super::unpublished::{NOTHING_LISTED, snapshot_info};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::mirror::{State, Store, holds_erased, last_erasure};
use crate::progress::Progress;
use crate::publish::{self, Frozen, Made, PublishedParquet, Root, Stop, Targets, Turn};

impl Session {
    /// Writes a Parquet snapshot of what is committed, changed or not.
    ///
    /// # Errors
    /// Those of [`export`], `Cancelled` after [`Session::interrupt_publishing`].
    pub(crate) async fn export(&self) -> Result<PublishedParquet> {
        let alone = self.upload_alone().await;
        let one = self.publishing.lock.lock().await;
        self.note_pending().await?;
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let (conn, progress) = (self.store.connection()?, self.progress.clone());
        let stop = self.begin_interruptible(&conn);
        let made = {
            let (stop, store) = (stop.clone(), Arc::clone(&self.store));
            let longest = LONGEST_TURN;
            blocking(move || make((&config, &catalog), &store, conn, longest, &stop, &progress))
                .await
        };
        let made = self.end_interruptible(&stop, made)?;
        // The file for analysts does not wait for an object store.
        drop(one);
        let (stop, progress) = (self.publishing.uploads.begin(), self.progress.clone());
        let exported = blocking(move || finish(made, &stop, &progress)).await;
        drop(alone);
        exported
    }
}

/// Writes a snapshot of what is committed in an open store, by a connection to it that does nothing else.
/// One call at a time, and none while something else is published by this process; another one is waited for.
///
/// # Errors
/// `Kind::Config` where `publish.parquet` is off; `Kind::Io` before the first complete listing
/// of the cases; those of [`publish::publish`].
pub(crate) fn export(
    config: &Config,
    catalog: &Catalog,
    store: &Store,
    conn: Connection,
    stop: &Stop,
    progress: &Progress,
) -> Result<PublishedParquet> {
    // Who typed it is told, and can give up.
    let longest = Duration::MAX;
    finish(make((config, catalog), store, conn, longest, stop, progress)?, stop, progress)
}

/// All of it but what has to be uploaded; another process is waited for no longer than `longest`.
fn make(
    (config, catalog): (&Config, &Catalog),
    store: &Store,
    conn: Connection,
    longest: Duration,
    stop: &Stop,
    progress: &Progress,
) -> Result<Made> {
    let Some(root) = &config.publish.parquet else {
        return Err(Error::new(Kind::Config, "publish.parquet is off"));
    };
    let root = Root::open(root, &config.store.path)?;
    let erasure = last_erasure(&conn)?;
    let readable = State::new(&conn).readable_state()?;
    let info = snapshot_info(&conn, catalog, &readable, &erasure)?.ok_or_else(|| {
        Error::new(Kind::Io, format!("{NOTHING_LISTED}: `casemirror sync` makes it"))
    })?;
    publish::check_snapshots(&root, &info.store_id, stop)?;
    let tables = catalog.names();
    let erased = holds_erased(&conn, &root.address())?;
    // The file with the views is made by what publishes all of it: this snapshot may be another folder's.
    let all = targets(config, Some(&root), &tables, erased);
    let targets = Targets { database: None, views: None, ..all };
    let turn = Turn::wait(store.path(), longest, stop)?;
    let frozen = Frozen::without_file(conn, publish::begin(&targets, info, Some(turn), stop)?)?;
    let _step = progress.step_beside("publishing");
    let conn = store.connection()?;
    let _threads = store.threads_for_parquet(&conn)?;
    let made = publish::make(frozen, &targets, stop, progress)?;
    // Publishing replaces the packs too, and notes when all of it is done.
    if made.replaces_erased() && !erased {
        let text = format!(
            "{} was last written by a store that was not erased from as this one was: the next publishing replaces all of \
             it, by `casemirror sync` or the daemon, and then an export is added",
            root.address()
        );
        return Err(Error::new(Kind::ObjectStore, text));
    }
    Ok(made)
}

fn finish(made: Made, stop: &Stop, progress: &Progress) -> Result<PublishedParquet> {
    made.finish(stop, progress)?
        .parquet
        .ok_or_else(|| Error::new(Kind::Internal, "a snapshot was asked for and none was written"))
}
