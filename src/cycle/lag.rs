//! Waiting for the search (docs/architecture.md, "The search lags"). The daemon's own cycles do not:
//! it goes on meanwhile, and starts another when the time has come.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Run;
use super::signals::Interrupt;
use crate::error::Result;
use crate::mirror::State;

/// A server's `Date` has whole seconds, so a second search may come due a second after its time; the
/// last backoff inside the delay may end as long after it.
const MARGIN: Duration = Duration::from_secs(3);

/// What the search's lag holds back.
pub(super) struct Lag<'r> {
    run: &'r Run,
    /// This run waits no longer, whatever becomes of the clock.
    deadline: Instant,
    /// What came due by then was waited for already: what it still holds back, such as a table that has
    /// become forbidden, cannot be asked in this run. In microseconds of our clock.
    waited: i64,
}

impl<'r> Lag<'r> {
    /// Nothing was waited for yet.
    pub(crate) fn new(run: &'r Run) -> Lag<'r> {
        let deadline = Instant::now() + run.config.source.search_delay + MARGIN;
        Lag { run, deadline, waited: i64::MIN }
    }

    /// Sleeps until something that is held back can be asked again, or until a poll moves something
    /// beyond `handled`. False when nothing of the kind comes due before the deadline.
    pub(crate) async fn wait(&mut self, handled: i64) -> Result<bool> {
        let run = self.run;
        let next = {
            let conn = run.store.connection()?;
            State::new(&conn).waiting().next_search(&run.options.cases, self.waited)?
        };
        let Some(next) = next.and_then(|us| Timestamp::from_microsecond(us).ok()) else {
            return Ok(false);
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        if next > Timestamp::now() + left || run.options.is_partial() && !run.options.wants("cases")
        {
            return Ok(false);
        }
        let pause = next.duration_since(Timestamp::now());
        // Where a clock that was set back says longer, the next run does it.
        let pause = Duration::try_from(pause).unwrap_or_default() + Duration::from_millis(1);
        let pause = pause.min(run.config.source.search_delay + MARGIN);
        let _step = run.progress.step("waiting for the search to catch up (source.search_delay)");
        let mut signals = run.signals.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => self.waited = next.as_microsecond(),
            // What else has changed is read meanwhile.
            () = signals.beyond(handled, Interrupt::None) => {}
        }
        Ok(true)
    }
}
