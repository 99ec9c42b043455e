//! A snapshot on its way into a bucket: files first, then the manifest, then the one object that readers begin
//! with, each whole or not there at all.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;

use super::found::{self, Found, LATEST, Latest, json, manifest_of};
use super::retention::{self, Keep, Plan};
use super::{Bucket, CONCURRENCY, Object, Put, claim, owner};
use crate::durable::{self, Replacement};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::lease::Written as Placed;
use crate::progress::{Progress, Share};
use crate::publish::manifest::Manifest;
use crate::publish::turn::Turn;
use crate::publish::{PublishedParquet, Stop};

/// What a failed upload has left is removed for no longer.
const LONGEST_REMOVAL: Duration = Duration::from_secs(30);

/// A file that was written, and is to become an object.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    /// From `publish.parquet` on.
    pub(crate) name: String,
}

/// What there is to say of a snapshot beside its manifest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshotted {
    /// Files that are the earlier snapshots'.
    pub(crate) unchanged: usize,
    pub(crate) keep_snapshots: usize,
    pub(crate) keep_for: Duration,
    pub(crate) erased: bool,
}

/// A snapshot whose files are written and not yet uploaded. Dropped, they are removed, and nobody sees any of it.
#[derive(Debug)]
pub(crate) struct Upload {
    bucket: Bucket,
    found: Found,
    manifest: Manifest,
    written: Vec<Written>,
    about: Snapshotted,
    /// The folder with the files, removed with this.
    _spool: Replacement,
    /// Let go after that.
    _turn: Option<Turn>,
}

impl Upload {
    pub(crate) fn of(
        (bucket, found): (Bucket, Found),
        manifest: Manifest,
        written: Vec<Written>,
        about: Snapshotted,
        spool: Replacement,
    ) -> Upload {
        Upload { bucket, found, manifest, written, about, _spool: spool, _turn: None }
    }

    /// The same; nobody else publishes there before it is done.
    pub(in crate::publish) fn in_turn(self, turn: Option<Turn>) -> Upload {
        Upload { _turn: turn, ..self }
    }

    /// Whether what is there may hold what is to be seen no more, the packs too.
    pub(crate) fn replaces_erased(&self) -> bool {
        self.about.erased
    }

    /// Does it, as long as it takes: each call is bounded in time. What is uploaded when it fails is no snapshot,
    /// and goes with a later retention.
    ///
    /// # Errors
    /// `Config` where another store has taken the place meanwhile; `ObjectStore`, `Io`; `Cancelled`. The
    /// earlier snapshot stays what it was.
    pub(crate) fn run(self, stop: &Stop, progress: &Progress) -> Result<PublishedParquet> {
        let _step = progress.step_beside("uploading");
        let share = progress.share(self.written.len() as u64);
        Bucket::run(stop, self.upload(share))
    }

    async fn upload(mut self, mut share: Share) -> Result<PublishedParquet> {
        let files: Vec<Written> = std::mem::take(&mut self.written);
        let Upload { bucket, manifest, about, .. } = &self;
        let id = &manifest.snapshot_id;
        let claim = claim::claim_of(id);
        let names = files.iter().map(|file| file.name.clone()).collect();
        owner::take(bucket, &manifest.store_id).await?;
        if !claim::take(bucket, id).await? {
            return Err(self.overtaken());
        }
        if let Err(error) = self.put_files(files, &mut share).await {
            // Where it is room that lacks, each further try would take more of it.
            self.remove_own(names).await;
            self.remove_own(vec![claim]).await;
            return Err(error);
        }
        failpoint::hit("snapshot-uploaded");
        let name = manifest_of(id);
        bucket.put(&name, manifest.to_bytes()?.into(), Put::Replacing).await?;
        failpoint::hit("snapshot-written");
        if !self.place().await? {
            // Its files and its name stay until retention takes them: where the first answer was lost, another host may
            // have seen this snapshot, and name them.
            self.remove_own(vec![name]).await;
            return Err(self.overtaken());
        }
        failpoint::hit("snapshot-placed");
        self.remove_own(vec![claim]).await;
        let removed = self.remove_old().await;
        match removed {
            Ok(()) => {}
            // What was erased is to be out of reach.
            Err(error) if about.erased => return Err(error),
            Err(error) => tracing::warn!(
                reason = error.chain(),
                "publish.parquet: earlier snapshots that are not to be kept could not be removed; it is tried again \
                 with the next one"
            ),
        }
        let manifest = &self.manifest;
        Ok(PublishedParquet {
            address: found::address_of_snapshot(&self.bucket, &manifest.snapshot_id),
            files: manifest.files.len(),
            linked: about.unchanged,
            rows: manifest.files.iter().map(|f| f.rows).sum(),
            bytes: manifest.files.iter().map(|f| f.bytes).sum(),
        })
    }

    fn overtaken(&self) -> Error {
        let text = format!(
            "another host publishes to {}, or has done so meanwhile: the next snapshot takes into account what is there \
             then",
            self.bucket.address()
        );
        Error::new(Kind::ObjectStore, text)
    }

    async fn put_files(&self, files: Vec<Written>, share: &mut Share) -> Result<()> {
        let bucket = &self.bucket;
        let mut uploads = stream::iter(files)
            .map(|file| async move {
                bucket.put_file(&file.name, &file.path).await?;
                // Room for others; what is left goes with the folder.
                durable::remove(&file.path)
            })
            .buffer_unordered(CONCURRENCY);
        while uploads.next().await.transpose()?.is_some() {
            share.done(1);
        }
        Ok(())
    }

    /// Removes objects of this snapshot that nobody needs, as far as that is possible.
    async fn remove_own(&self, names: Vec<String>) {
        let removed = tokio::time::timeout(LONGEST_REMOVAL, self.bucket.remove(names)).await;
        tracing::debug!(?removed, "what nobody needs of a snapshot is removed");
    }

    /// Makes it the newest snapshot, unless another host has published since the place was looked at: what that one
    /// shows may be later, and may have removed files that this snapshot names. Whether it is.
    async fn place(&self) -> Result<bool> {
        let Upload { bucket, manifest, found, .. } = self;
        let latest = json(&Latest {
            snapshot_id: manifest.snapshot_id.clone(),
            manifest: manifest_of(&manifest.snapshot_id),
            store_id: manifest.store_id.clone(),
        })?;
        let object = bucket.versioned(LATEST);
        let is_now = async || Ok(object.found().await?.map(|entry| (entry.content, entry.version)));
        match object.put(latest.clone(), found.version.as_deref()).await? {
            Placed::Done => Ok(true),
            // The answer to a call that was repeated may be about the first one.
            Placed::Late => Ok(is_now().await?.is_some_and(|(content, _)| content == latest)),
            // Without conditional writes the best that can be done is to look once more.
            Placed::Unsupported => {
                let is_same = is_now().await?.map(|(_, version)| version) == found.version;
                if is_same {
                    bucket.put(LATEST, latest, Put::Replacing).await?;
                }
                Ok(is_same)
            }
        }
    }

    /// Removes what retention lets go of.
    async fn remove_old(&self) -> Result<()> {
        let Upload { bucket, found, manifest, about, .. } = self;
        let id = &manifest.snapshot_id;
        let now = Timestamp::now();
        let mut objects = found.objects.clone();
        objects.insert(manifest_of(id), Object { bytes: 0, modified_at: now });
        let keep = Keep {
            snapshots: about.keep_snapshots,
            younger_than: about.keep_for,
            newest_alone: about.erased,
        };
        let Plan { kept, manifests, files } = retention::plan(&objects, id, now, keep);
        if manifests.is_empty() && files.is_empty() {
            return Ok(());
        }
        // What cannot be read may name anything: then nothing is removed.
        let others: Vec<String> = kept.into_iter().filter(|kept| kept != id).collect();
        let named: Vec<Manifest> = stream::iter(others)
            .map(|kept| async move {
                let name = manifest_of(&kept);
                let read = found::read_manifest(bucket, &name).await?;
                read.ok_or_else(|| {
                    let text = format!("{} cannot be read", bucket.address_of(&name));
                    Error::new(Kind::ObjectStore, text)
                })
            })
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;
        let all = named.iter().chain([manifest]).flat_map(|manifest| &manifest.files);
        let named: BTreeSet<&str> = all.map(|file| file.path.as_str()).collect();
        bucket.remove(manifests).await?;
        let files = files.into_iter().filter(|name| !named.contains(name.as_str())).collect();
        bucket.remove(files).await
    }
}
