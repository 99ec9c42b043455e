//! Publishing to the lake in a session: whether there is anything new for it, and how it stands.

use jiff::Timestamp;

use super::Session;
use super::publishing::blocking;
use crate::error::Result;
use crate::lake::{self, Carried, Errand, Standing};
use crate::mirror::State;
use crate::publish;

impl Session {
    /// Carries what is published to the lake, where there is one, unless it shows that already. Nothing else waits for
    /// it but another call of this. `erases`: what was just published lacks what was erased. `None`: there was nothing to
    /// do.
    ///
    /// # Errors
    /// Those of [`lake::run_child`], which the store remembers too; those of the store.
    pub(crate) async fn publish_to_lake(&self, erases: bool) -> Result<Option<Carried>> {
        let Some(errand) = Errand::of(&self.config) else { return Ok(None) };
        let mut shown = self.publishing.lake.lock().await;
        let published = publish::identity(errand.published())?;
        if published.is_none() || *shown == published {
            return Ok(None);
        }
        let before = self.lake_standing(errand.place()).await?;
        let errand = errand.by_store(before.clone(), erases);
        let done = lake::run_child(&errand).await;
        let (result, now) = (if done.is_ok() { "ok" } else { "failed" }, Timestamp::now());
        metrics::counter!("casemirror_lake_publishes_total", "result" => result).increment(1);
        let standing = match &done {
            Ok(carried) => before.succeed(carried, now),
            Err(error) => before.fail(error, now),
        };
        self.writer
            .run(move |conn| State::new(conn).set_meta(Standing::KEY, &standing.text()))
            .await?;
        let carried = done?;
        // Where another file took its place meanwhile, that is carried next.
        *shown = published;
        tell(&carried);
        Ok(Some(carried))
    }

    async fn lake_standing(&self, place: String) -> Result<Standing> {
        let conn = self.store.connection()?;
        blocking(move || {
            Ok(Standing::parse(State::new(&conn).meta(Standing::KEY)?.as_deref(), &place))
        })
        .await
    }

    /// Waits until something is published that was not when `seen` was last looked at.
    pub(crate) async fn is_published(&self, seen: &mut tokio::sync::watch::Receiver<u64>) {
        // It lives as long as this session.
        let _ = seen.changed().await;
    }

    /// Counts what is published.
    pub(crate) fn publishings(&self) -> tokio::sync::watch::Receiver<u64> {
        self.publishing.count.subscribe()
    }
}

/// One line for each publishing that changed something, with what was tidied up.
fn tell(carried: &Carried) {
    if let Some(why) = &carried.untidy {
        tracing::warn!(
            reason = why,
            "house could not be kept in the lake: its snapshots and files pile up; it is tried again in an hour"
        );
    }
    if carried.unchanged && carried.kept.is_none() {
        tracing::debug!(snapshot = carried.snapshot_id, "the lake shows what is published");
        return;
    }
    let kept = carried.kept.unwrap_or_default();
    tracing::info!(
        snapshot = carried.snapshot_id,
        written = carried.rows.written,
        removed = carried.rows.removed,
        files = carried.files,
        bytes = carried.bytes,
        snapshots_expired = kept.expired,
        files_merged = kept.merged,
        files_removed = kept.removed,
        "the lake shows what is published"
    );
}
