//! A lease as an object of a bucket, written by conditional PUTs.

use std::fmt;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::{Bucket, attributes, error};
use crate::error::{Error, Kind, Result};
use crate::lease::{Entry, Register};

/// The lease of one API user.
#[derive(Clone)]
pub(crate) struct BucketRegister {
    bucket: Bucket,
    name: String,
}

impl Bucket {
    /// The lease of the API user of that name in this place.
    pub(crate) fn register(&self, api_user: &str) -> BucketRegister {
        BucketRegister { bucket: self.clone(), name: format!("leases/{api_user}.json") }
    }
}

impl fmt::Debug for BucketRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BucketRegister").field(&self.place()).finish()
    }
}

impl BucketRegister {
    async fn found(&self) -> Result<Option<Entry>> {
        let key = self.bucket.key(&self.name)?;
        let read = async {
            let found = self.bucket.store.get(&key).await?;
            // What has no tag is told from others by nothing.
            let version = found.meta.e_tag.clone().unwrap_or_default();
            Ok(Entry { content: found.bytes().await?.to_vec(), version })
        };
        match read.await {
            Ok(entry) => Ok(Some(entry)),
            Err(e) if error::is_no_object(&e) => Ok(None),
            Err(e) => Err(self.bucket.failed("read", &self.name, &e)),
        }
    }

    async fn put(&self, content: Bytes, known: Option<&str>) -> Result<bool> {
        let key = self.bucket.key(&self.name)?;
        let mode = match known {
            None => PutMode::Create,
            Some(tag) => {
                PutMode::Update(UpdateVersion { e_tag: Some(tag.to_owned()), version: None })
            }
        };
        let options = PutOptions { mode, attributes: attributes(&self.name), ..Default::default() };
        match self.bucket.store.put_opts(&key, PutPayload::from(content), options).await {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(false),
            Err(e) if error::is_unknown_call(&e) => {
                let text = format!(
                    "{} has no conditional PUTs, so that no lease can be held there",
                    self.bucket.address()
                );
                Err(Error::new(Kind::Config, text))
            }
            Err(e) => Err(self.bucket.failed("write", &self.name, &e)),
        }
    }
}

impl Register for BucketRegister {
    fn place(&self) -> String {
        self.bucket.address_of(&self.name)
    }

    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>>> {
        self.found().boxed()
    }

    fn write<'a>(
        &'a self,
        content: Vec<u8>,
        known: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.put(content.into(), known).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn only_who_has_read_it_as_it_is_writes_it() {
        let url = crate::config::bucket_url("s3://bucket/prefix");
        let bucket = Bucket::over(Arc::new(InMemory::new()), url, "spool".into());
        let register = bucket.register("user");
        assert_eq!(register.place(), "s3://bucket/prefix/leases/user.json");
        assert_eq!(register.read().await.unwrap(), None);
        assert!(register.write(b"one".to_vec(), None).await.unwrap());
        assert!(!register.write(b"other".to_vec(), None).await.unwrap());
        let one = register.read().await.unwrap().unwrap();
        assert_eq!(one.content, b"one");
        assert!(register.write(b"two".to_vec(), Some(&one.version)).await.unwrap());
        assert!(!register.write(b"late".to_vec(), Some(&one.version)).await.unwrap());
        assert_eq!(register.read().await.unwrap().unwrap().content, b"two");
        let of_another = bucket.register("other");
        assert_eq!(of_another.read().await.unwrap(), None);
    }
}
