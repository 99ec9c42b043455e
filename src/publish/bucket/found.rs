//! What there is in the bucket when a publishing begins.
//!
//! ```text
//! <prefix>/owner.json                           whose the prefix is
//! <prefix>/latest.json                          the newest snapshot's id, and where its manifest is
//! <prefix>/snapshots/<id>/claim                 while one host uploads it, so that no other does
//! <prefix>/snapshots/<id>/manifest.json
//! <prefix>/snapshots/<id>/cases/data.parquet    what an earlier snapshot has already is not here again
//! <prefix>/closings/<month>/...                 packs
//! ```

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use super::{Bucket, Object, owner};
use crate::error::{Error, Kind, Result};
use crate::publish::SnapshotInfo;
use crate::publish::manifest::{FILE_NAME, Manifest, rfc3339};

/// What readers resolve, once.
pub(super) const LATEST: &str = "latest.json";

/// The folder of the snapshots.
pub(super) const SNAPSHOTS: &str = "snapshots";

/// The folder of the packs, in a folder too.
pub(crate) const PACKS: &str = "closings";

/// The content of [`LATEST`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latest {
    pub(super) snapshot_id: String,
    /// From `publish.parquet` on.
    pub(super) manifest: String,
    /// Whose snapshot it is.
    pub(super) store_id: String,
}

/// The state of the place before anything is written.
#[derive(Debug)]
pub(crate) struct Found {
    /// The manifest of the newest snapshot, where it can be read.
    pub(crate) latest: Option<Manifest>,
    /// The objects of all snapshots, by their names.
    pub(super) objects: BTreeMap<String, Object>,
    /// Which version of [`LATEST`] that is, for who replaces it; `None` where there is none.
    pub(super) version: Option<String>,
}

impl Found {
    /// Looks, and refuses a place of another store.
    ///
    /// # Errors
    /// `Config` where it is another store's; `ObjectStore`.
    pub(crate) async fn look(bucket: Bucket, store_id: String) -> Result<Found> {
        let (latest, version) = owner::look(&bucket, &store_id).await?;
        let latest = match latest {
            Some(latest) => in_time(&bucket, read_manifest(&bucket, &latest.manifest)).await?,
            None => None,
        };
        let mut objects = BTreeMap::new();
        // A long list comes in pages: each of them has its time.
        let mut listed = pin!(bucket.listed(SNAPSHOTS)?);
        while let Some((name, object)) = in_time(&bucket, listed.try_next()).await? {
            objects.insert(name, object);
        }
        Ok(Found { latest, objects, version })
    }

    /// Refuses to go back behind what readers have seen: a copy of the store, which waits on another host, has nothing
    /// new, and would have the newest name. Behind what this store has uploaded itself it may go: a longer
    /// `feed.overlap`, or a clock that is set back, moves the watermark back. Not for who has just erased values.
    ///
    /// # Errors
    /// `ObjectStore`.
    pub(crate) fn check_not_later(&self, bucket: &Bucket, info: &SnapshotInfo) -> Result<()> {
        let Some(latest) = &self.latest else { return Ok(()) };
        let ours = info.watermark.map(rfc3339);
        let place = address_of_snapshot(bucket, &latest.snapshot_id);
        // Of two that stand at one watermark, and were not erased from alike, the copy may be the one that lacks it.
        let is_as_far = if self.is_of_another_erasure(info) {
            latest.watermark < ours
        } else {
            latest.watermark <= ours
        };
        if info.uploaded.as_ref() == Some(&place) || is_as_far {
            return Ok(());
        }
        let text = format!(
            "{} shows a later state of this mirror (watermark {}) than the store has ({}), or lacks what was erased: \
             another host with a copy of it publishes there, or an earlier backup was restored; this store's snapshots \
             go there when it is later",
            bucket.address(),
            latest.watermark.as_deref().unwrap_or("none"),
            ours.as_deref().unwrap_or("none"),
        );
        Err(Error::new(Kind::ObjectStore, text))
    }

    /// Whether the newest snapshot was made before the store's last erasure, or after one that this store does not know of:
    /// what is there may hold what is to be seen no more.
    pub(crate) fn is_of_another_erasure(&self, info: &SnapshotInfo) -> bool {
        self.latest.as_ref().is_some_and(|latest| latest.erasure != info.erasure)
    }

    /// Whether there is anything of a snapshot of this name.
    pub(crate) fn has(&self, id: &str) -> bool {
        let folder = format!("{SNAPSHOTS}/{id}/");
        self.objects
            .range(folder.clone()..)
            .next()
            .is_some_and(|(name, _)| name.starts_with(&folder))
    }

    /// Whether an object is what a manifest says of it.
    pub(crate) fn is_whole(&self, name: &str, bytes: u64) -> bool {
        self.objects.get(name).is_some_and(|object| object.bytes == bytes)
    }
}

/// A call of a look takes no longer: what comes after it must not wait for an object store that does not answer.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Part of a look, in a bounded time.
pub(super) async fn in_time<T>(
    bucket: &Bucket,
    look: impl Future<Output = Result<T>>,
) -> Result<T> {
    let late = || {
        let text = format!("cannot look at {}: no answer in time", bucket.address());
        Error::new(Kind::ObjectStore, text)
    };
    tokio::time::timeout(LONGEST_LOOK, look).await.unwrap_or_else(|_| Err(late()))
}

/// What [`LATEST`] says, and which version of it does. It says nothing where there is none, or nothing that can be read:
/// what is broken has to become whole again.
pub(super) async fn latest(bucket: &Bucket) -> Result<(Option<Latest>, Option<String>)> {
    let Some(entry) = bucket.versioned(LATEST).found().await? else { return Ok((None, None)) };
    let latest = serde_json::from_slice(&entry.content);
    let broken = |e: &serde_json::Error| {
        tracing::warn!("{} says nothing that can be read: {e}", bucket.address_of(LATEST));
    };
    Ok((latest.inspect_err(broken).ok(), Some(entry.version)))
}

/// A manifest; `None` where it cannot be read, which is said.
pub(super) async fn read_manifest(bucket: &Bucket, name: &str) -> Result<Option<Manifest>> {
    let address = bucket.address_of(name);
    let Some(content) = bucket.get(name).await? else {
        tracing::warn!("{address} is missing");
        return Ok(None);
    };
    let manifest = serde_json::from_slice(&content);
    Ok(manifest.inspect_err(|e| tracing::warn!("{address} is no manifest: {e}")).ok())
}

/// `s3://bucket/prefix/snapshots/<id>`.
pub(super) fn address_of_snapshot(bucket: &Bucket, id: &str) -> String {
    bucket.address_of(&format!("{SNAPSHOTS}/{id}"))
}

/// Where the manifest of a snapshot is.
pub(super) fn manifest_of(id: &str) -> String {
    format!("{SNAPSHOTS}/{id}/{FILE_NAME}")
}

/// What casemirror writes as JSON.
pub(super) fn json<T: Serialize>(of: &T) -> Result<bytes::Bytes> {
    let mut text = serde_json::to_vec(of)
        .map_err(|e| Error::caused(Kind::Internal, "an object cannot be written as JSON", e))?;
    text.push(b'\n');
    Ok(text.into())
}
