//! The lease of a session: in which register it is, and how it stands is kept in the store.

use std::sync::Arc;

use crate::config::{Config, LeasePlace};
use crate::error::Result;
use crate::lake::Errand;
use crate::lease::{Register, Standing};
use crate::mirror::{State, Store, Writer};
use crate::publish::Root;
use crate::source::{Keep, Lease, Note, SystemBootClock, api_user, ledger_place};

/// Where the lease of the configured API user is; `root` is that of `publish.parquet`.
pub(crate) fn register(config: &Config, root: Option<&Root>) -> Option<Arc<dyn Register>> {
    let user = api_user(&config.source.base_url, &config.source.client_id);
    match (config.lease_place()?, root) {
        (LeasePlace::Catalog, _) => Some(Arc::new(Errand::of(config)?.register(&user))),
        (LeasePlace::Bucket, Some(Root::Bucket(bucket))) => Some(Arc::new(bucket.register(&user))),
        (LeasePlace::Bucket, _) => None,
    }
}

/// The lease of a session on `store`.
///
/// # Errors
/// `Config`, `Io`: there is no place beside the ledger.
pub(super) fn lease(
    config: &Config,
    root: Option<&Root>,
    store: &Store,
    writer: &Writer,
) -> Result<Option<Lease>> {
    let Some(register) = register(config, root) else { return Ok(None) };
    let note = Note::beside(&ledger_place(config)?)?;
    let clock = Arc::new(SystemBootClock::new());
    let writer = store.overlay().is_none().then(|| writer.clone());
    let keep: Keep = Box::new(move |standing: Standing| {
        let writer = writer.clone();
        Box::pin(async move {
            // A session over the store leaves it as it is.
            let Some(writer) = writer else { return };
            let text = standing.text();
            let kept =
                writer.run(move |conn| State::new(conn).set_meta(Standing::KEY, &text)).await;
            if let Err(error) = kept {
                tracing::debug!(error = error.chain(), "how the lease stands is not kept");
            }
        })
    });
    Ok(Some(Lease::new(register, note, config.feed.per, clock, keep)))
}
