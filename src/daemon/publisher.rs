//! Publishes at its own pace, from a pinned state, while everything else goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::activity::{Activity, Listener};
use super::pace::Pace;
use super::patience::Patience;
use super::poller::stop;
use super::{ends_the_daemon, say_recovery, say_trouble};
use crate::cycle::Controls;
use crate::error::Result;
use crate::session::{Forms, Session, When};

/// A cycle that is under way is waited for this long: most take less, and then readers get all of it.
const LONGEST_WAIT_FOR_CYCLE: Duration = Duration::from_secs(5);
const LEAST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(600);
/// When the process ends, something is published only if the last publish took no longer than this.
const SHORT: Duration = Duration::from_secs(2);

pub(super) struct Publisher {
    pub(crate) session: Arc<Session>,
    pub(crate) controls: Arc<Controls>,
    pub(crate) activity: Arc<Activity>,
}

impl Publisher {
    /// Publishes until the process stops; when all work has ended, once more where that is quickly
    /// done. What fails is tried again.
    pub(super) async fn run(self, work_ends: impl Future<Output = ()>) -> Result<()> {
        let publish = &self.session.config().publish;
        let parquet = publish.parquet.is_some().then_some(publish.parquet_interval);
        let mut pace = Pace::new(publish.min_interval, parquet);
        let mut patience = Patience::new(LEAST_RETRY, LONGEST_RETRY);
        let mut activity = self.activity.listen();
        let mut not_before = None;
        let mut behind = false;
        while self.wait(&pace, not_before, behind, &mut activity).await {
            let started = Instant::now();
            let forms = pace.forms(started);
            let overdue = pace.latest().is_some_and(|latest| latest <= started);
            let when = if overdue { When::Always } else { When::Changed };
            // A publishing is never dropped half-way: the next one works on the same files.
            not_before = match self.session.publish(forms, when).await {
                Ok(published) => {
                    let ended = Instant::now();
                    say_recovery("publishing", patience.succeed(ended));
                    if published.is_some() {
                        pace.published(forms, ended, ended.saturating_duration_since(started));
                    }
                    behind = forms == Forms::Database && self.parquet_is_behind();
                    published.is_none().then(|| ended + LEAST_RETRY)
                }
                Err(error) if ends_the_daemon(&error, true) => return Err(error),
                Err(error) => {
                    let trouble = patience.fail(Instant::now());
                    say_trouble("publishing", &error, trouble);
                    self.activity.remind();
                    Some(Instant::now() + trouble.wait)
                }
            };
        }
        work_ends.await;
        if pace.earliest().is_none() || pace.took() > SHORT {
            return Ok(());
        }
        if let Err(error) = self.session.publish(Forms::Both, When::Changed).await {
            // The next start does it; what was published before stays.
            tracing::warn!(reason = error.chain(), "the last changes are not published");
        }
        Ok(())
    }

    fn parquet_is_behind(&self) -> bool {
        // What is not known is looked at once more.
        self.session.parquet_is_behind().unwrap_or(true)
    }

    /// Waits until there may be something to publish; `false` when the process stops.
    async fn wait(
        &self,
        pace: &Pace,
        not_before: Option<Instant>,
        behind: bool,
        activity: &mut Listener,
    ) -> bool {
        let mut signals = self.controls.listen();
        let snapshot = pace.parquet_earliest().filter(|_| behind);
        let unasked = [snapshot, pace.latest()].into_iter().flatten().min();
        let comes = async {
            tokio::select! {
                () = activity.happens() => {}
                () = sleep_until(unasked) => {}
            }
            for at in [pace.earliest(), not_before].into_iter().flatten() {
                tokio::time::sleep_until(at.into()).await;
            }
            // It may end in the meantime; then all of it is published.
            let _ = tokio::time::timeout(LONGEST_WAIT_FOR_CYCLE, activity.pauses()).await;
            activity.take();
        };
        tokio::select! {
            () = stop(&mut signals) => false,
            () = comes => true,
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
