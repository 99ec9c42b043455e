//! The change feeds within a cycle: polled at its beginning, and read again behind the polls with the
//! nightly reconciliation (docs/architecture.md, "The watermark").

use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use super::answers::Answers;
use super::policy::{ends_run, is_unreached};
use super::run::Run;
use super::signals::Interrupt;
use crate::error::{Error, Kind, Result};
use crate::feed::Polled;
use crate::mirror::State;
use crate::scope::FeedName;

/// So late a row may appear in a feed behind its polls.
const LATEST: Duration = Duration::from_secs(48 * 3600);

/// No more of a feed is read again at once: a page of it that cannot be read must not keep all newer ones from being read
/// for ever.
const LONGEST: Duration = Duration::from_secs(14 * 24 * 3600);

/// How much of a feed is read again when the cases are listed: what may have appeared since that was last done.
///
/// # Errors
/// Those of the store.
pub(crate) fn reread_reach(conn: &Connection, feed: FeedName, now: Timestamp) -> Result<Duration> {
    let last = State::new(conn).meta(&looked_for_late_rows(feed))?;
    let last = last.and_then(|at| at.parse::<Timestamp>().ok());
    let since = last.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
    Ok(LATEST.saturating_add(since.unwrap_or_default()).min(LONGEST))
}

/// Key of `sync.meta`: when a feed was last read again to its end.
fn looked_for_late_rows(feed: FeedName) -> String {
    format!("late_rows_looked_for_{}", feed.as_str())
}

/// The change feeds, asked by a cycle.
pub(super) struct Feeds<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
}

impl Feeds<'_, '_> {
    /// Reads the last days of the feeds again: the source's commit order is not its clock's, and
    /// what appeared behind the polls is seen now. How late it came is kept, because `feed.overlap`
    /// should be longer than that. Returns whether it was not interrupted.
    pub(crate) async fn look_for_late_rows(&mut self) -> Result<bool> {
        let run = self.answers.run;
        let _step = run.progress.step("reading the change feeds once more");
        for name in [FeedName::Cases, FeedName::Contacts] {
            if name == FeedName::Contacts && !run.polls.follows_contacts()? {
                continue;
            }
            let began = Timestamp::now();
            let reach = reread_reach(&run.store.connection()?, name, began)?;
            let Some(reread) = unless_interrupted(run, run.polls.reread(name, reach)).await else {
                return Ok(false);
            };
            let reread = match reread {
                Ok(reread) => reread,
                // Another host asks the feeds, and looks for them.
                Err(error) if error.kind() == Kind::Lease => {
                    tracing::info!(feed = name.as_str(), reason = error.chain(), "not read again");
                    continue;
                }
                Err(error) => {
                    self.failed(error).await?;
                    continue;
                }
            };
            self.answers.reached();
            if reread.late > 0 {
                tracing::warn!(
                    feed = name.as_str(),
                    rows = reread.late,
                    latest = ?reread.latest,
                    "rows appeared in the feed behind its polls; feed.overlap should be longer"
                );
            }
            let told = format!("{} rows, at most {} s late", reread.late, reread.latest.as_secs());
            let key = format!("late_rows_{}", name.as_str());
            run.write(move |conn| {
                let state = State::new(conn);
                state.set_meta(&looked_for_late_rows(name), &began.to_string())?;
                state.set_meta(&key, &told)
            })
            .await?;
        }
        Ok(true)
    }

    /// Asks the feed of cases. One that cannot be read stops nothing: what was seen before is followed on, and
    /// the next poll asks from where the last complete one began. Returns whether it was not interrupted.
    pub(crate) async fn poll(&mut self) -> Result<bool> {
        let run = self.answers.run;
        let _step = run.progress.step("asking the change feed of cases");
        let polled = unless_interrupted(run, run.polls.poll(FeedName::Cases)).await;
        match polled {
            Some(Ok(polled)) => {
                self.answers.reached();
                self.answers.report.cases_moved += polled.moved;
            }
            Some(Err(error)) => self.failed(error).await?,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// What came of asking the feed of contacts, which stops nothing either.
    pub(crate) async fn contacts_polled(&mut self, polled: Result<Option<Polled>>) -> Result<()> {
        match polled {
            Ok(polled) => {
                self.answers.report.contacts_moved += polled.map_or(0, |polled| polled.moved);
                Ok(())
            }
            Err(error) => self.failed(error).await,
        }
    }

    async fn failed(&mut self, error: Error) -> Result<()> {
        let run = self.answers.run;
        // It may be all that this run asks for, so that there are no others to tell.
        let error = if is_unreached(error.kind()) {
            self.answers.unreached.ask_another(run.client(), error).await?
        } else {
            error
        };
        if ends_run(error.kind()) {
            return Err(error);
        }
        self.answers.report.problem(error.chain());
        Ok(())
    }
}

/// Asks a feed to the end; `None` where the run is cancelled before, as it may have to wait for the throttle until then.
/// A poll that is dropped in the middle ends its call in the ledger, and the next one goes on from the last page.
pub(super) async fn unless_interrupted<T>(run: &Run, asking: impl Future<Output = T>) -> Option<T> {
    let mut signals = run.signals.clone();
    tokio::select! {
        // Nothing is begun that is dropped at once.
        biased;
        () = signals.beyond(i64::MAX, Interrupt::Preempt) => None,
        asked = asking => Some(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn a_feed_is_read_again_from_two_days_before_that_was_last_done() {
        let conn = fixture::store(None, 2026..=2026);
        let now: Timestamp = "2026-11-26T03:00:00Z".parse().unwrap();
        let reach = |feed| reread_reach(&conn, feed, now).unwrap().as_secs() / 3600;
        assert_eq!(reach(FeedName::Cases), 48, "it never was");
        let key = looked_for_late_rows(FeedName::Cases);
        let long_ago = ("2026-06-01T03:00:00Z", 14 * 24);
        for (last, hours) in
            [("2026-11-21T03:00:00Z", 48 + 120), ("2026-11-27T03:00:00Z", 48), long_ago]
        {
            State::new(&conn).set_meta(&key, last).unwrap();
            assert_eq!(reach(FeedName::Cases), hours, "{last}");
        }
        assert_eq!(reach(FeedName::Contacts), 48);
    }
}
