//! Whose the place in a bucket is: one object that is written once, by who comes first.

use serde::{Deserialize, Serialize};

use super::found::{self, Latest, json};
use super::{Bucket, Put};
use crate::error::{Error, Kind, Result};

/// Name of the object.
const OWNER: &str = "owner.json";

/// Its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    program: String,
    /// As `SnapshotInfo::store_id`.
    store_id: String,
}

/// As [`check`], in a bounded time.
///
/// # Errors
/// Those of [`check`].
pub(crate) async fn look(
    bucket: &Bucket,
    store_id: &str,
) -> Result<(Option<Latest>, Option<String>)> {
    found::in_time(bucket, check(bucket, store_id)).await
}

/// Refuses a place that another store has taken. Gives what [`found::latest`] gives.
///
/// # Errors
/// `Config` naming it; `ObjectStore`.
pub(super) async fn check(
    bucket: &Bucket,
    store_id: &str,
) -> Result<(Option<Latest>, Option<String>)> {
    if let Some(owner) = owner(bucket).await?
        && owner.store_id != store_id
    {
        return Err(taken(bucket));
    }
    match found::latest(bucket).await? {
        (Some(latest), _) if latest.store_id != store_id => Err(taken(bucket)),
        found => Ok(found),
    }
}

/// Takes a place, where another store may be about to do the same.
///
/// # Errors
/// Those of [`check`].
pub(super) async fn take(bucket: &Bucket, store_id: &str) -> Result<()> {
    let owner = Owner { program: env!("CARGO_PKG_NAME").to_owned(), store_id: store_id.to_owned() };
    if self::owner(bucket).await?.is_none() {
        bucket.put(OWNER, json(&owner)?, Put::New).await?;
    }
    match self::owner(bucket).await? {
        Some(owner) if owner.store_id == store_id => check(bucket, store_id).await.map(drop),
        Some(_) => Err(taken(bucket)),
        // Two came at once, and the answer was that to neither yet.
        None => {
            let text = format!("{} was written, and is not there", bucket.address_of(OWNER));
            Err(Error::new(Kind::ObjectStore, text))
        }
    }
}

async fn owner(bucket: &Bucket) -> Result<Option<Owner>> {
    let Some(content) = bucket.get(OWNER).await? else { return Ok(None) };
    serde_json::from_slice(&content)
        .map(Some)
        .map_err(|_| refused(bucket, &format!("has an {OWNER} that casemirror has not written")))
}

fn taken(bucket: &Bucket) -> Error {
    refused(bucket, "holds snapshots of another store")
}

fn refused(bucket: &Bucket, what: &str) -> Error {
    Error::new(
        Kind::Config,
        format!("publish.parquet: {} {what}: name another prefix", bucket.address()),
    )
}
