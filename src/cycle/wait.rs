//! Waiting for the search (docs/architecture.md, "The search lags"). The daemon's own cycles do not:
//! it goes on meanwhile, and starts another when the time has come.

use std::time::Duration;

use jiff::Timestamp;

use super::Cycle;
use super::signals::Interrupt;
use crate::error::Result;
use crate::mirror::State;

/// A server's `Date` has whole seconds, so a second search may come due a second after its time; the
/// last backoff inside the delay may end as long after it.
const MARGIN: Duration = Duration::from_secs(3);

impl Cycle<'_> {
    /// How long this run waits for the search at most.
    pub(super) fn wait_deadline(&self) -> Timestamp {
        Timestamp::now() + self.run.config.source.search_delay + MARGIN
    }

    /// Sleeps until something that the search's lag holds back can be asked again, and returns when
    /// that was, in microseconds of our clock; `None` when nothing of the kind comes due before the
    /// deadline. What came due by `waited` was waited for already: what it still holds back, such as
    /// a table that has become forbidden, cannot be asked in this run.
    pub(super) async fn wait(&mut self, deadline: Timestamp, waited: i64) -> Result<Option<i64>> {
        let next = {
            let conn = self.run.store.connection()?;
            State::new(&conn).scopes().next_search(&self.run.options.cases, waited)?
        };
        let Some(next) = next.and_then(|us| Timestamp::from_microsecond(us).ok()) else {
            return Ok(None);
        };
        if next > deadline || self.run.options.is_partial() && !self.run.options.wants("cases") {
            return Ok(None);
        }
        let pause = next.duration_since(Timestamp::now());
        let pause = Duration::try_from(pause).unwrap_or_default() + Duration::from_millis(1);
        self.run.progress.step("waiting for the search to catch up (source.search_delay)");
        let mut signals = self.run.signals.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(Some(next.as_microsecond())),
            // What else has changed is read meanwhile.
            () = signals.beyond(self.answers.planned.handled(), Interrupt::None) => Ok(Some(waited)),
        }
    }
}
