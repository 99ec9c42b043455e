//! The client of an object store, with what the environment says of it.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use crate::config::{BucketUrl, Provider};
use crate::tls;

/// Of one call, where `AWS_TIMEOUT`, `GOOGLE_TIMEOUT` or `AZURE_TIMEOUT` does not say otherwise.
const TIMEOUT: &str = "60s";
/// Of its connection, likewise.
const CONNECT_TIMEOUT: &str = "5s";
/// What fails is repeated within this time; the next publishing is the next try.
const REPEATED_FOR: Duration = Duration::from_secs(30);
const REPETITIONS: usize = 4;

/// Credentials, endpoint and the like are read from the environment. Nothing is called.
pub(super) fn build(url: &BucketUrl) -> object_store::Result<Arc<dyn ObjectStore>> {
    tls::provide();
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            ..BackoffConfig::default()
        },
        max_retries: REPETITIONS,
        retry_timeout: REPEATED_FOR,
    };
    // What the environment sets goes before ours.
    let times = |prefix: &'static str| {
        let both = [
            (ClientConfigKey::Timeout, "TIMEOUT", TIMEOUT),
            (ClientConfigKey::ConnectTimeout, "CONNECT_TIMEOUT", CONNECT_TIMEOUT),
        ];
        let is_unset = move |name: &str| std::env::var_os(format!("{prefix}_{name}")).is_none();
        both.into_iter().filter(move |(_, name, _)| is_unset(name))
    };
    let address = url.bucket();
    match url.provider() {
        Provider::S3 => {
            let builder = AmazonS3Builder::from_env().with_url(address).with_retry(retry);
            let builder = times("AWS").fold(builder, |b, (key, _, value)| {
                b.with_config(AmazonS3ConfigKey::Client(key), value)
            });
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Provider::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(address).with_retry(retry);
            let builder = times("GOOGLE").fold(builder, |b, (key, _, value)| {
                b.with_config(GoogleConfigKey::Client(key), value)
            });
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Provider::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(address).with_retry(retry);
            let builder = times("AZURE").fold(builder, |b, (key, _, value)| {
                b.with_config(AzureConfigKey::Client(key), value)
            });
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
    }
}
