//! A lease as an object of a bucket, written by conditional PUTs.

use std::fmt;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::{Bucket, attributes, error};
use crate::error::{Error, Kind, Result};
use crate::lease::{Entry, Register, Written};

/// The lease of one API user.
#[derive(Clone)]
pub(crate) struct BucketRegister {
    bucket: Bucket,
    name: String,
}

/// Which writing of an object it is. Each kind of store has a condition of its own: S3 and Azure on the tag, Google on
/// the version.
#[derive(Serialize, Deserialize)]
struct Version {
    e_tag: Option<String>,
    version: Option<String>,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Version {
        Version { e_tag: meta.e_tag.clone(), version: meta.version.clone() }
    }

    fn text(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::caused(Kind::Internal, "a version is no JSON", e))
    }

    fn parse(text: &str) -> Result<UpdateVersion> {
        let Version { e_tag, version } = serde_json::from_str(text)
            .map_err(|e| Error::caused(Kind::Internal, "what was read is no version", e))?;
        Ok(UpdateVersion { e_tag, version })
    }
}

impl Bucket {
    /// The lease of the API user of that name in this place.
    pub(crate) fn register(&self, api_user: &str) -> BucketRegister {
        self.versioned(&format!("leases/{api_user}.json"))
    }

    /// An object that is replaced only by who has read it as it is.
    pub(super) fn versioned(&self, name: &str) -> BucketRegister {
        BucketRegister { bucket: self.clone(), name: name.to_owned() }
    }
}

impl fmt::Debug for BucketRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BucketRegister").field(&self.place()).finish()
    }
}

impl BucketRegister {
    pub(super) async fn found(&self) -> Result<Option<Entry>> {
        let key = self.bucket.key(&self.name)?;
        let read = async {
            let found = self.bucket.store.get(&key).await?;
            let version = Version::of(&found.meta);
            Ok((found.bytes().await?.to_vec(), version))
        };
        match read.await {
            Ok((content, version)) => Ok(Some(Entry { content, version: version.text()? })),
            Err(e) if error::is_no_object(&e) => Ok(None),
            Err(e) => Err(self.bucket.failed("read", &self.name, &e)),
        }
    }

    pub(super) async fn put(&self, content: Bytes, known: Option<&str>) -> Result<Written> {
        let key = self.bucket.key(&self.name)?;
        let mode = match known {
            None => PutMode::Create,
            Some(version) => PutMode::Update(Version::parse(version)?),
        };
        let options = PutOptions { mode, attributes: attributes(&self.name), ..Default::default() };
        match self.bucket.store.put_opts(&key, PutPayload::from(content), options).await {
            Ok(_) => Ok(Written::Done),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(Written::Late),
            Err(e) if error::is_unknown_call(&e) => Ok(Written::Unsupported),
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
    ) -> BoxFuture<'a, Result<Written>> {
        self.put(content.into(), known).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::extract::State;
    use axum::http::{HeaderMap, Method, StatusCode};
    use axum::response::{IntoResponse, Response};
    use object_store::aws::AmazonS3Builder;
    use object_store::gcp::GoogleCloudStorageBuilder;
    use object_store::memory::InMemory;
    use object_store::{ObjectStore, RetryConfig};

    use super::*;

    fn bucket(store: impl ObjectStore) -> Bucket {
        let url = crate::config::bucket_url("s3://bucket/prefix");
        Bucket::over(Arc::new(store), url, "spool".into())
    }

    async fn only_who_has_read_it_as_it_is_writes_it(bucket: Bucket) {
        let register = bucket.register("user");
        assert_eq!(register.place(), "s3://bucket/prefix/leases/user.json");
        assert_eq!(register.read().await.unwrap(), None);
        let write = async |text: &str, known: Option<&Entry>| {
            let known = known.map(|entry| entry.version.as_str());
            register.write(text.as_bytes().to_vec(), known).await.unwrap()
        };
        let read = async || register.read().await.unwrap().unwrap();
        assert_eq!(write("one", None).await, Written::Done);
        assert_eq!(write("other", None).await, Written::Late);
        let one = read().await;
        assert_eq!(one.content, b"one");
        assert_eq!(write("two", Some(&one)).await, Written::Done);
        assert_eq!(write("late", Some(&one)).await, Written::Late);
        let two = read().await;
        assert_eq!(two.content, b"two");
        assert_eq!(write("three", Some(&two)).await, Written::Done);
        assert_eq!(bucket.register("other").read().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_lease_is_written_on_the_tag_of_what_was_read() {
        only_who_has_read_it_as_it_is_writes_it(bucket(InMemory::new())).await;
    }

    /// One object as Google keeps it: each writing has a number, and is conditional on that alone.
    #[derive(Default)]
    struct Generations {
        content: Bytes,
        generation: u64,
    }

    async fn google(
        State(object): State<Arc<Mutex<Generations>>>,
        method: Method,
        headers: HeaderMap,
        content: Bytes,
    ) -> Response {
        let mut object = object.lock().unwrap();
        if method == Method::PUT {
            let known = headers.get("x-goog-if-generation-match").unwrap().to_str().unwrap();
            if known != object.generation.to_string() {
                return StatusCode::PRECONDITION_FAILED.into_response();
            }
            *object = Generations { content, generation: object.generation + 1 };
        } else if object.generation == 0 {
            return StatusCode::NOT_FOUND.into_response();
        }
        let headers = [
            ("etag", "\"the same for ever\"".to_owned()),
            ("x-goog-generation", object.generation.to_string()),
            ("last-modified", "Fri, 20 Nov 2026 02:00:00 GMT".to_owned()),
        ];
        (headers, object.content.clone()).into_response()
    }

    /// Its address.
    async fn serve(app: axum::Router) -> String {
        crate::tls::provide();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        address
    }

    #[tokio::test]
    async fn at_google_a_lease_is_written_on_the_version_of_what_was_read() {
        let object = Arc::<Mutex<Generations>>::default();
        let of_user = "/bucket/prefix%2Fleases%2Fuser%2Ejson";
        let app = axum::Router::new().route(of_user, axum::routing::any(google)).with_state(object);
        let address = serve(app).await;
        let key = format!(
            r#"{{"gcs_base_url": "{address}", "disable_oauth": true, "client_email": "", "private_key": "",
                "private_key_id": ""}}"#
        );
        let store = GoogleCloudStorageBuilder::new()
            .with_bucket_name("bucket")
            .with_service_account_key(key)
            .with_client_options(object_store::ClientOptions::new().with_allow_http(true))
            .build()
            .unwrap();
        only_who_has_read_it_as_it_is_writes_it(bucket(store)).await;
    }

    #[tokio::test]
    async fn a_store_without_conditional_writes_holds_no_lease() {
        let app = axum::Router::new().fallback(async |method: Method| match method {
            Method::PUT => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::NOT_FOUND,
        });
        let store = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_endpoint(serve(app).await)
            .with_allow_http(true)
            .with_access_key_id("id")
            .with_secret_access_key("key")
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .build()
            .unwrap();
        let register = bucket(store).register("user");
        assert_eq!(register.read().await.unwrap(), None);
        assert_eq!(register.write(b"one".to_vec(), None).await.unwrap(), Written::Unsupported);
    }
}
