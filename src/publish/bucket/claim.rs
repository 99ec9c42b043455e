//! The name of a snapshot, which is a second: of two hosts that have a copy of one store and publish in the same
//! one, each would write its files over the other's. Who comes first has the name, until its snapshot is there.

use bytes::Bytes;

use super::found::{SNAPSHOTS, manifest_of};
use super::{Bucket, Put};
use crate::error::Result;

/// The object that says that a host is about to write a snapshot.
pub(super) fn claim_of(id: &str) -> String {
    format!("{SNAPSHOTS}/{id}/claim")
}

/// Claims the name of a snapshot. `false`: another host has it, or had it.
///
/// # Errors
/// `ObjectStore`.
pub(super) async fn take(bucket: &Bucket, id: &str) -> Result<bool> {
    let name = claim_of(id);
    let token = Bytes::from(format!("{:032x}\n", rand::random::<u128>()));
    let is_new = bucket.put(&name, token.clone(), Put::New).await?;
    // The answer to a call that was repeated may be about the first one. Without conditional writes this shows
    // whether another host has written over it by now, and no more can be known.
    let is_ours = match bucket.get(&name).await {
        Ok(content) => Ok(content == Some(token)),
        Err(error) if is_new => Err(error),
        Err(error) => return Err(error),
    };
    // Where the snapshot is there, who wrote it has let go of the name.
    let held = match is_ours {
        Ok(true) => bucket.get(&manifest_of(id)).await.map(|manifest| manifest.is_none()),
        // Another host's claim stays.
        Ok(false) => return Ok(false),
        Err(error) => Err(error),
    };
    if !matches!(held, Ok(true)) {
        // What is left of it goes with a later retention.
        let removed = bucket.remove(vec![name]).await;
        tracing::debug!(?removed, "a claim that is not used is removed");
    }
    held
}
