//! Waiting for the search (contract section 4: "`sync` waits for this").

use std::time::Duration;

use jiff::Timestamp;

use super::Cycle;
use crate::error::Result;
use crate::mirror::State;

/// A server's `Date` has whole seconds, so a second search may come due a second after its time; the
/// last backoff inside the delay may end as long after it.
const MARGIN: Duration = Duration::from_secs(3);

impl Cycle {
    /// How long this run waits for the search at most.
    pub(super) fn wait_deadline(&self) -> Timestamp {
        Timestamp::now() + self.config.source.search_delay + MARGIN
    }

    /// Sleeps until something that the search's lag holds back can be asked again; `false` when
    /// nothing of the kind comes due before the deadline.
    pub(super) async fn wait(&self, deadline: Timestamp) -> Result<bool> {
        let next = {
            let conn = self.store.connection()?;
            State::new(&conn).next_search(&self.options.cases)?
        };
        let Some(next) = next.and_then(|us| Timestamp::from_microsecond(us).ok()) else {
            return Ok(false);
        };
        if next > deadline || self.options.is_partial() && !self.options.wants("cases") {
            return Ok(false);
        }
        let pause = next.duration_since(Timestamp::now());
        let pause = Duration::try_from(pause).unwrap_or_default() + Duration::from_millis(1);
        self.progress.step("waiting for the search to catch up (source.search_delay)");
        tokio::time::sleep(pause).await;
        Ok(true)
    }
}
