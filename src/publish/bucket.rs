//! A bucket of an object store as publishing needs it: a few calls, each bounded in time, whose errors hold no
//! credentials (docs/architecture.md, "Published means finished").
//!
//! What an object store shows it shows whole: an object is there with all its bytes, or not at all. So nothing
//! is renamed here; what makes a snapshot visible is one small object that is written last.

mod claim;
mod client;
mod error;
mod found;
mod owner;
mod parts;
mod register;
mod retention;
mod upload;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use tokio::runtime::{Builder, Runtime};

pub(super) use found::{Found, PACKS};
pub(super) use owner::look;
pub(crate) use upload::Upload;
pub(super) use upload::{Snapshotted, Written};

use parts::Parts;

use super::Stop;
use crate::config::BucketUrl;
use crate::error::{self as errors, Error, Kind, Result};

/// Larger files go in parts, of which one at a time is in memory.
const PART_BYTES: u64 = 8 << 20; // 8 MiB
/// S3 takes 10,000 parts: those of a larger file are larger.
const MOST_PARTS: u64 = 9_000;
/// Calls in flight.
const CONCURRENCY: usize = 4;
/// Objects that are removed by one call where there is such a call, and in flight where there is none.
const REMOVED_TOGETHER: usize = 500;

/// The place of the snapshots and packs in a bucket. Clones share it.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    url: BucketUrl,
    /// What is written here before it is uploaded is beside the store: `<store.path>.upload`.
    spool: PathBuf,
}

/// Its settings hold keys.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.url.to_string()).finish()
    }
}

/// An object as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) bytes: u64,
    pub(super) modified_at: Timestamp,
}

/// Whether an object may take the place of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Replacing,
    /// Only where there is none.
    New,
}

impl Bucket {
    /// The place that the address names, with what the environment says of credentials, endpoint and the like:
    /// `AWS_*`, `GOOGLE_*` or `AZURE_*`, as `object_store` reads them. Nothing is called. `spool`: a free name
    /// for a folder, with room for what a snapshot writes.
    ///
    /// # Errors
    /// `Config` for settings that cannot be used.
    pub fn open(url: &BucketUrl, spool: PathBuf) -> Result<Bucket> {
        let store = client::build(url).map_err(|e| error::unusable(url, &e))?;
        Ok(Bucket { store, url: url.clone(), spool })
    }

    /// The same over a store that is there already.
    #[cfg(test)]
    pub(crate) fn over(store: Arc<dyn ObjectStore>, url: BucketUrl, spool: PathBuf) -> Bucket {
        Bucket { store, url, spool }
    }

    /// `s3://bucket/prefix`.
    pub(crate) fn address(&self) -> String {
        self.url.to_string()
    }

    /// `s3://bucket/prefix/name`.
    pub(super) fn address_of(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// A free name for a folder.
    pub(super) fn spool(&self) -> &Path {
        &self.spool
    }

    /// Does what has to be waited for, on threads of its own: this may be called anywhere, and blocks.
    ///
    /// # Errors
    /// Those of the work; `Cancelled` as soon as `stop` says so.
    pub(super) fn run<T: Send + 'static>(
        stop: &Stop,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (done, waited_for) = std::sync::mpsc::sync_channel(1);
        let stop = stop.clone();
        runtime()?.spawn(async move {
            let result = tokio::select! {
                result = work => result,
                stopped = stop.comes() => Err(stopped),
            };
            // Nobody waits for it where the process ends.
            let _ = done.send(result);
        });
        let ended = || Error::new(Kind::Internal, "work on the object store ended early");
        waited_for.recv().map_err(|_| ended())?
    }

    /// The content of an object; `None` where there is none.
    ///
    /// # Errors
    /// `ObjectStore`, also where there is no such bucket.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let key = self.key(name)?;
        let read = async { self.store.get(&key).await?.bytes().await };
        match read.await {
            Ok(content) => Ok(Some(content)),
            Err(e) if error::is_no_object(&e) => Ok(None),
            Err(e) => Err(self.failed("read", name, &e)),
        }
    }

    /// Writes an object at once. `false`: there is one, and it was to be a new one.
    ///
    /// # Errors
    /// `ObjectStore`.
    pub(super) async fn put(&self, name: &str, content: Bytes, put: Put) -> Result<bool> {
        let key = self.key(name)?;
        let options =
            |mode| PutOptions { mode, attributes: attributes(name), ..Default::default() };
        let payload = || PutPayload::from(content.clone());
        let written = match put {
            Put::Replacing => {
                self.store.put_opts(&key, payload(), options(PutMode::Overwrite)).await
            }
            Put::New => {
                match self.store.put_opts(&key, payload(), options(PutMode::Create)).await {
                    Err(object_store::Error::AlreadyExists { .. }) => return Ok(false),
                    // Not every store can do that: then by looking first.
                    Err(e) if error::is_unknown_call(&e) => {
                        if self.get(name).await?.is_some() {
                            return Ok(false);
                        }
                        self.store.put_opts(&key, payload(), options(PutMode::Overwrite)).await
                    }
                    written => written,
                }
            }
        };
        written.map(|_| true).map_err(|e| self.failed("write", name, &e))
    }

    /// Writes a file as an object, which is seen when all of it is there.
    ///
    /// # Errors
    /// `ObjectStore`; `Io`.
    pub(super) async fn put_file(&self, name: &str, path: &Path) -> Result<()> {
        let unreadable = |e| errors::io("read", path, e);
        let mut file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let part_bytes = PART_BYTES.max(bytes / MOST_PARTS);
        if bytes <= part_bytes {
            let content = next_part(&mut file, part_bytes).map_err(unreadable)?;
            return self.put(name, content, Put::Replacing).await.map(drop);
        }
        let key = self.key(name)?;
        let failed = |e| self.failed("write", name, &e);
        let upload = self.store.put_multipart(&key).await.map_err(failed)?;
        let mut parts = Parts::of(upload);
        let mut left = bytes;
        while left > 0 {
            let content = next_part(&mut file, part_bytes.min(left)).map_err(unreadable)?;
            if content.is_empty() {
                return Err(Error::new(Kind::Io, format!("{} became shorter", path.display())));
            }
            left -= content.len() as u64;
            parts.put(content).await.map_err(failed)?;
        }
        parts.complete().await.map_err(failed)
    }

    /// Takes the place for this store, and writes the files of a folder that are not there with these bytes.
    ///
    /// # Errors
    /// `Config` where it is another store's; `ObjectStore`, `Io`.
    pub(super) async fn put_where_different(
        &self,
        store_id: &str,
        folder: &str,
        files: Vec<Written>,
    ) -> Result<()> {
        owner::take(self, store_id).await?;
        let there = self.list(folder).await?;
        for Written { path, name } in files {
            let content = || std::fs::read(&path).map_err(|e| errors::io("read", &path, e));
            let bytes = path.metadata().map_err(|e| errors::io("read", &path, e))?.len();
            let may_be_same = there.get(&name).is_some_and(|object| object.bytes == bytes);
            let is_same = may_be_same
                && self
                    .get(&name)
                    .await?
                    .is_some_and(|other| content().is_ok_and(|own| own == other));
            if !is_same {
                self.put_file(&name, &path).await?;
            }
        }
        Ok(())
    }

    /// All objects whose names begin with `folder/`, by their names.
    ///
    /// # Errors
    /// `ObjectStore`.
    pub(super) async fn list(&self, folder: &str) -> Result<BTreeMap<String, Object>> {
        self.listed(folder)?.try_collect().await
    }

    /// As [`Bucket::list`], as they come.
    pub(super) fn listed<'a>(
        &'a self,
        folder: &'a str,
    ) -> Result<impl Stream<Item = Result<(String, Object)>> + 'a> {
        let key = self.key(folder)?;
        let failed = move |e| self.failed("list", folder, &e);
        let before = if self.url.prefix().is_empty() {
            String::new()
        } else {
            format!("{}/", self.url.prefix())
        };
        let objects = self.store.list(Some(&key)).map(move |found| {
            let found = found.map_err(failed)?;
            let name = found.location.as_ref().strip_prefix(&before).map(str::to_owned);
            let modified_at = Timestamp::from_microsecond(found.last_modified.timestamp_micros());
            let modified_at = modified_at.unwrap_or(Timestamp::MAX);
            Ok(name.map(|name| (name, Object { bytes: found.size, modified_at })))
        });
        Ok(objects.try_filter_map(|named| async move { Ok(named) }))
    }

    /// Removes objects; what is not there is fine.
    ///
    /// # Errors
    /// `ObjectStore`; any of them may be gone then.
    pub(super) async fn remove(&self, names: Vec<String>) -> Result<()> {
        let Some(first) = names.first().cloned() else { return Ok(()) };
        let keys: Vec<Key> = names.iter().map(|name| self.key(name)).collect::<Result<_>>()?;
        for keys in keys.chunks(REMOVED_TOGETHER) {
            let keys: Vec<object_store::Result<Key>> = keys.iter().cloned().map(Ok).collect();
            let mut removed = self.store.delete_stream(stream::iter(keys).boxed());
            while let Some(removed) = removed.next().await {
                match removed {
                    Ok(_) => {}
                    Err(e) if error::is_no_object(&e) => {}
                    Err(e) => return Err(self.failed("remove", &first, &e)),
                }
            }
        }
        Ok(())
    }

    fn key(&self, name: &str) -> Result<Key> {
        let prefix = self.url.prefix();
        let whole = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        Key::parse(&whole).map_err(|e| {
            let text = format!("{} is no name of an object", self.address_of(name));
            Error::caused(Kind::Internal, text, e)
        })
    }

    fn failed(&self, what: &str, name: &str, error: &object_store::Error) -> Error {
        error::failed(what, &self.address_of(name), error)
    }
}

fn next_part(file: &mut File, bytes: u64) -> std::io::Result<Bytes> {
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(bytes).read_to_end(&mut content)?;
    Ok(content.into())
}

/// What an object says of itself to those who fetch it. What is replaced is not to be answered from a cache.
fn attributes(name: &str) -> Attributes {
    let mut attributes = Attributes::new();
    if name.ends_with(".json") {
        attributes.insert(Attribute::ContentType, "application/json".into());
        attributes.insert(Attribute::CacheControl, "no-cache".into());
    }
    attributes
}

/// The threads on which object stores are called: publishing blocks, and may not block those of the daemon.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object-store")
            .enable_all()
            .build()
    });
    runtime.as_ref().map_err(|e| {
        Error::new(Kind::Internal, format!("cannot start threads for the object store: {e}"))
    })
}
