//! The lease of a session: in which register it is, and how it stands is kept in the store.

use std::sync::Arc;

use crate::config::Config;
use crate::error::Result;
use crate::lake::Errand;
use crate::lease::{Register, Standing};
use crate::mirror::{State, Store, Writer};
use crate::publish::Root;
use crate::source::{Keep, Lease, Note, SystemBootClock, api_user, ledger_place};

/// Where the lease of the configured API user is: in the PostgreSQL of `lake.catalog`, or else in the bucket of
/// `publish.parquet`; `None` where hosts share neither.
pub(crate) fn register(config: &Config, root: Option<&Root>) -> Option<Arc<dyn Register>> {
    let user = api_user(&config.source.base_url, &config.source.client_id);
    if let Some(register) = Errand::of(config).and_then(|errand| errand.register(&user)) {
        return Some(Arc::new(register));
    }
    match root {
        Some(Root::Bucket(bucket)) => Some(Arc::new(bucket.register(&user))),
        Some(Root::Folder(_)) | None => None,
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
