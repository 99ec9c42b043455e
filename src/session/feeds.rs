//! The change feeds, asked for a plan.

use super::Session;
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::scope::FeedName;

impl Session {
    /// Asks the change feeds, as the next `sync` will. What they say is kept where this is a session on the
    /// store, and forgotten with one over it. Returns what is said of each that could not be asked where only the time for it
    /// has not come: what is known can be planned all the same.
    ///
    /// # Errors
    /// Those of the polls and the store.
    pub(crate) async fn ask_feeds(&self) -> Result<Vec<Error>> {
        // Only with other credentials than the store was filled with is it asked whose they are: what
        // another tenant's feed says must not be kept.
        if State::new(&self.store.connection()?).meta("tenant")?.is_some() {
            self.check_tenant().await?;
        }
        let mut held = Vec::new();
        held.extend(held_back(self.polls.poll(FeedName::Cases).await)?);
        held.extend(held_back(self.polls.poll_contacts().await)?);
        if let Some(overlay) = self.store.overlay() {
            self.writer.run(move |conn| overlay.settle(conn)).await?;
        }
        Ok(held)
    }
}

/// Why a feed could not be asked yet, where it is that.
fn held_back<T>(asked: Result<T>) -> Result<Option<Error>> {
    match asked {
        Err(error) if matches!(error.kind(), Kind::Throttled | Kind::RetryAfter) => Ok(Some(error)),
        asked => asked.map(|_| None),
    }
}
