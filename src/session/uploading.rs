//! Snapshots on their way into a bucket, beside all other work: it may be slow, refuse, or be out of reach for
//! days (docs/architecture.md, "Published means finished").

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use duckdb::Connection;
use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;

use super::Session;
use super::publishing::blocking;
use super::unpublished::{UPLOADED, note_shown, shown_at};
use crate::error::{Kind, Result};
use crate::failpoint;
use crate::mirror::{PublishLag, PublishPlace, State, note_unclear};
use crate::publish::{self, PublishedParquet, Root, Stop, Upload};

/// A snapshot that is to be uploaded. No other is made meanwhile.
pub(crate) struct Uploading {
    /// Its files, or why there are none: the bucket could not be looked at, or the folder not written to.
    pub(super) upload: Result<Upload>,
    /// See [`State::readable_state`]: what it shows.
    pub(super) readable: String,
    /// See [`last_erasure`](crate::mirror::last_erasure): the last before it was made.
    pub(super) erasure: String,
    /// Kept until it is done.
    pub(super) alone: Option<OwnedMutexGuard<()>>,
}

/// What a session knows of them.
#[derive(Default)]
pub(super) struct Uploads {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Ends the one that is under way.
    stop: Mutex<Option<Stop>>,
    /// The bucket was looked at, and holds no snapshot.
    is_empty: AtomicBool,
}

impl Uploads {
    /// Waits until none is under way.
    pub(super) async fn alone(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.lock).lock_owned().await
    }

    /// Whether there is a snapshot in the bucket, as far as is known.
    pub(super) fn there_is_one(&self) -> bool {
        !self.is_empty.load(Ordering::Relaxed)
    }

    /// Whether the bucket was looked at and holds no snapshot.
    pub(super) fn set_empty(&self, is_empty: bool) {
        self.is_empty.store(is_empty, Ordering::Relaxed);
    }

    pub(super) fn interrupt(&self) {
        if let Some(stop) = self.stop().take() {
            stop.now();
        }
    }

    /// What [`Uploads::interrupt`] ends.
    pub(super) fn begin(&self) -> Stop {
        let stop = Stop::default();
        *self.stop() = Some(stop.clone());
        stop
    }

    fn stop(&self) -> std::sync::MutexGuard<'_, Option<Stop>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a bucket is known to hold no snapshot; refuses one that is another's than the store's behind `conn`. That it
/// cannot be reached is only said: the store and the published file go on without it.
///
/// # Errors
/// `Config` naming it.
pub(super) fn bucket_is_empty(root: Option<&Root>, conn: Option<&Connection>) -> Result<bool> {
    let Some(root @ Root::Bucket(_)) = root else { return Ok(false) };
    let store_id = conn.map_or(Ok(None), |conn| State::new(conn).meta("store_id"))?;
    match publish::check_snapshots(root, &store_id.unwrap_or_default(), &Stop::default()) {
        Ok(is_there) => Ok(!is_there),
        Err(error) if error.kind() == Kind::ObjectStore => {
            tracing::warn!(
                reason = error.chain(),
                "publish.parquet: the object store cannot be looked at; the rest goes on, and snapshots follow when \
                 it can be reached"
            );
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Session {
    /// Whether the snapshots go to a bucket.
    pub(crate) fn has_bucket(&self) -> bool {
        matches!(self.root, Some(Root::Bucket(_)))
    }

    /// Waits until no upload is under way; `None` where the snapshots go to a folder. Always before the lock of
    /// publishing.
    pub(super) async fn upload_alone(&self) -> Option<OwnedMutexGuard<()>> {
        if self.has_bucket() { Some(self.publishing.uploads.alone().await) } else { None }
    }

    /// Uploads a snapshot, with the packs where they hold what was erased, and notes how it went: `status` says
    /// since when the bucket is behind.
    ///
    /// # Errors
    /// Those of [`Upload::run`]; `Cancelled` after [`Session::interrupt_publishing`].
    pub(crate) async fn upload(&self, uploading: Uploading) -> Result<PublishedParquet> {
        let Uploading { upload, readable, erasure, alone } = uploading;
        let stop = self.publishing.uploads.begin();
        let began = Instant::now();
        let done = self.upload_as_asked(upload, &stop).await;
        let result = if done.is_ok() { "ok" } else { "failed" };
        metrics::counter!("casemirror_uploads_total", "result" => result).increment(1);
        let noted = match &done {
            Ok(parquet) => self.note_uploaded(readable, parquet.address.clone(), erasure).await,
            Err(error) if error.kind() == Kind::Cancelled => Ok(()),
            Err(error) => self.note_lag(error.chain()).await,
        };
        self.publishing.uploads.stop().take();
        drop(alone);
        let parquet = done?;
        noted?;
        failpoint::hit("after-upload");
        let took = began.elapsed();
        tracing::debug!(snapshot = parquet.address, ?took, "uploaded");
        if let Some((at, last)) =
            &mut *self.publishing.last.lock().unwrap_or_else(PoisonError::into_inner)
        {
            *at = Instant::now();
            last.parquet = Some(parquet.clone());
        }
        Ok(parquet)
    }

    async fn upload_as_asked(
        &self,
        upload: Result<Upload>,
        stop: &Stop,
    ) -> Result<PublishedParquet> {
        let (upload, progress, its_stop) = (upload?, self.progress.clone(), stop.clone());
        let erased = upload.replaces_erased();
        if erased {
            self.note_unclear().await?;
        }
        let parquet = blocking(move || upload.run(&its_stop, &progress)).await?;
        if erased {
            self.write_packs_anew(stop).await?;
        }
        Ok(parquet)
    }

    /// What the bucket holds is to be replaced: that is done, or done again, whatever stops it now.
    async fn note_unclear(&self) -> Result<()> {
        let Some(root @ Root::Bucket(_)) = &self.root else { return Ok(()) };
        let address = root.address();
        self.writer.run(move |conn| note_unclear(conn, &address)).await
    }

    async fn note_uploaded(
        &self,
        readable: String,
        snapshot: String,
        erasure: String,
    ) -> Result<()> {
        let Some(root @ Root::Bucket(_)) = &self.root else { return Ok(()) };
        self.publishing.uploads.set_empty(false);
        let (address, shown) = (root.address(), shown_at(root, &readable, ""));
        self.writer
            .run(move |conn| {
                State::new(conn).set_meta(UPLOADED, &snapshot)?;
                note_shown(conn, &address, &shown, &erasure)
            })
            .await
    }

    async fn note_lag(&self, error: String) -> Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        let (address, now) = (root.address(), Timestamp::now());
        self.writer
            .run(move |conn| PublishLag::note(conn, PublishPlace::Parquet, &address, error, now))
            .await
    }
}
