//! Publishes at its own pace, from a pinned state, while everything else goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use super::activity::{Activity, Listener};
use super::pace::Pace;
use super::patience::Patience;
use super::poller::stop;
use super::{ends_the_daemon, say_recovery, say_trouble};
use crate::cycle::Controls;
use crate::error::{Kind, Result};
use crate::publish::PublishedParquet;
use crate::session::{Forms, Session, Uploading, When};

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

/// The snapshot on its way into a bucket, if one is, and how those before it went, in a folder too.
struct Uploads<'a> {
    session: &'a Session,
    under_way: Option<(Instant, Upload<'a>)>,
    patience: Patience,
    /// After a failure the next one waits.
    not_before: Option<Instant>,
    /// How long the last one took that went well.
    took: Option<Duration>,
}

type Upload<'a> = BoxFuture<'a, Result<PublishedParquet>>;

impl<'a> Uploads<'a> {
    fn of(session: &'a Session) -> Uploads<'a> {
        let patience = Patience::new(LEAST_RETRY, LONGEST_RETRY);
        Uploads { session, under_way: None, patience, not_before: None, took: None }
    }

    fn begin(&mut self, uploading: Uploading) {
        self.under_way = Some((Instant::now(), Box::pin(self.session.upload(uploading))));
    }

    /// Comes when the one under way has ended, and never where there is none.
    async fn ends(&mut self) -> Result<PublishedParquet> {
        match &mut self.under_way {
            Some((_, upload)) => upload.await,
            None => std::future::pending().await,
        }
    }

    /// What came of the one that was under way. An error is one that ends the daemon.
    fn ended(&mut self, ended: Result<PublishedParquet>) -> Result<()> {
        let now = Instant::now();
        let began = self.under_way.take().map_or(now, |(began, _)| began);
        match ended {
            Ok(_) => {
                say_recovery("publishing the Parquet snapshot", self.patience.succeed(now));
                (self.not_before, self.took) = (None, Some(now.saturating_duration_since(began)));
                Ok(())
            }
            Err(error) if ends_the_daemon(&error, true) => Err(error),
            Err(error) => {
                let trouble = self.patience.fail(now);
                if error.kind() != Kind::Cancelled {
                    say_trouble("publishing the Parquet snapshot", &error, trouble);
                }
                (self.not_before, self.took) = (Some(now + trouble.wait), None);
                Ok(())
            }
        }
    }

    /// What is published at `now`, where `due` is.
    fn forms(&self, due: Forms, now: Instant) -> Forms {
        forms(self.under_way.is_some(), self.not_before, due, now)
    }
}

/// A snapshot never goes beside another one; after a failure the next one comes when its pause is over, whatever
/// is due (pure).
fn forms(is_under_way: bool, not_before: Option<Instant>, due: Forms, now: Instant) -> Forms {
    match (is_under_way, not_before) {
        (true, _) => Forms::Database,
        (false, Some(at)) if now < at => Forms::Database,
        (false, Some(_)) => Forms::Both,
        (false, None) => due,
    }
}

impl Publisher {
    /// Publishes until the process stops; when all work has ended, once more where that is quickly
    /// done. What fails is tried again.
    pub(super) async fn run(self, work_ends: impl Future<Output = ()>) -> Result<()> {
        let publish = &self.session.config().publish;
        let parquet = publish.parquet.is_some().then_some(publish.parquet_interval);
        let mut pace = Pace::new(publish.min_interval, parquet);
        let mut patience = Patience::new(LEAST_RETRY, LONGEST_RETRY);
        let mut uploads = Uploads::of(&self.session);
        let mut activity = self.activity.listen();
        let mut not_before = None;
        let mut behind = false;
        loop {
            let snapshot = match (&uploads.under_way, uploads.not_before) {
                (Some(_), _) => None,
                (None, Some(retry)) => Some(retry),
                (None, None) => pace.parquet_earliest().filter(|_| behind),
            };
            tokio::select! {
                ended = uploads.ends() => {
                    uploads.ended(ended)?;
                    behind = self.parquet_is_behind();
                    continue;
                }
                goes_on = self.wait(&pace, not_before, snapshot, &mut activity) => {
                    if !goes_on {
                        break;
                    }
                }
            }
            let started = Instant::now();
            let forms = uploads.forms(pace.forms(started), started);
            let overdue = pace.latest().is_some_and(|latest| latest <= started);
            let when = if overdue { When::Always } else { When::Changed };
            // A publishing is never dropped half-way: the next one works on the same files.
            not_before = match self.session.publish_here(forms, when).await {
                Ok(published) => {
                    let ended = Instant::now();
                    say_recovery("publishing", patience.succeed(ended));
                    let is_none = published.is_none();
                    if let Some(here) = &published {
                        // The rest is that of the work, not of what it waited for.
                        pace.published(forms, ended, ended.saturating_duration_since(here.began));
                    }
                    if let Some(uploading) = published.and_then(|here| here.uploading) {
                        uploads.begin(uploading);
                    } else if forms == Forms::Both {
                        uploads.not_before = None;
                    }
                    behind = forms == Forms::Database && self.parquet_is_behind();
                    is_none.then(|| ended + LEAST_RETRY)
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
        if uploads.under_way.is_some() {
            // Who stops the process gives it some seconds.
            let ended = uploads.ends().await;
            uploads.ended(ended)?;
        }
        let upload_took = uploads.took;
        drop(uploads);
        self.publish_the_last(&pace, upload_took).await;
        Ok(())
    }

    /// What changed since, where that is quickly done.
    async fn publish_the_last(&self, pace: &Pace, upload_took: Option<Duration>) {
        if pace.earliest().is_none() || pace.took() > SHORT {
            return;
        }
        let uploads_quickly = upload_took.is_some_and(|took| took <= SHORT);
        let forms = if self.session.has_bucket() && !uploads_quickly {
            Forms::Database
        } else {
            Forms::Both
        };
        if let Err(error) = self.session.publish(forms, When::Changed).await {
            // The next start does it; what was published before stays.
            tracing::warn!(reason = error.chain(), "the last changes are not published");
        }
    }

    fn parquet_is_behind(&self) -> bool {
        // What is not known is looked at once more.
        self.session.parquet_is_behind().unwrap_or(true)
    }

    /// Waits until there may be something to publish, `snapshot` at the latest; `false` when the process stops.
    async fn wait(
        &self,
        pace: &Pace,
        not_before: Option<Instant>,
        snapshot: Option<Instant>,
        activity: &mut Listener,
    ) -> bool {
        let mut signals = self.controls.listen();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_the_next_snapshot_waits_for_its_pause_and_for_no_pace() {
        let now = Instant::now();
        let (past, future) = (now, now + Duration::from_secs(1));
        for due in [Forms::Database, Forms::Both] {
            assert_eq!(forms(false, None, due, now), due);
            assert_eq!(forms(false, Some(past), due, now), Forms::Both);
            assert_eq!(forms(false, Some(future), due, now), Forms::Database);
            for not_before in [None, Some(past), Some(future)] {
                assert_eq!(forms(true, not_before, due, now), Forms::Database);
            }
        }
    }
}
