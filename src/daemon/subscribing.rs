//! Keeps the daemon's webhook subscriptions at the platform.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::patience::Patience;
use super::{say_recovery, say_trouble};
use crate::error::{Error, Kind, Result};
use crate::hints::{Address, Aligned, HintQueue, Made};
use crate::scope::{Hint, Told};
use crate::session::{Session, made_subscriptions};

/// How often it is looked whether they are there.
const INTERVAL: Duration = Duration::from_secs(3600);
const LEAST_WAIT: Duration = Duration::from_secs(60);

/// The subscriptions that lead to `serve.public_url`.
pub(super) struct Subscribing {
    pub(super) session: Arc<Session>,
    pub(super) address: Address,
    pub(super) queue: HintQueue,
}

impl Subscribing {
    /// Looks after them until it is dropped. Without them the change feeds tell what they tell still, only later.
    ///
    /// # Errors
    /// None: what fails is tried again.
    pub(super) async fn run(self) -> Result<()> {
        let mut patience = Patience::new(LEAST_WAIT, INTERVAL);
        let mut made = None;
        let mut failed_before = false;
        loop {
            let failed = match self.align(&mut made).await {
                Ok(aligned) => {
                    say(&aligned);
                    let noted = self.note(&aligned).await;
                    aligned.failed.into_iter().next().or(noted.err())
                }
                Err(error) => Some(error),
            };
            if failed.as_ref().is_some_and(|error| error.kind() == Kind::RetryAfter) {
                // Nothing was asked; where the pause was lifted meanwhile, it is now.
                let held = self.session.polls().client.held_for();
                tokio::time::sleep(held.unwrap_or_default()).await;
                continue;
            }
            // What passes by itself has the time for it.
            let passes = failed.as_ref().is_some_and(|error| error.kind().is_retryable());
            if !passes || failed_before {
                let told = failed.as_ref().map(Error::chain);
                if let Err(error) = self.session.note_subscribing(told).await {
                    tracing::debug!(reason = error.chain(), "how they stand is not kept");
                }
            }
            failed_before = failed.is_some();
            let what = "managing the webhook subscriptions";
            let wait = match failed {
                None => {
                    say_recovery(what, patience.succeed(Instant::now().into_std()));
                    INTERVAL
                }
                Some(error) => {
                    let trouble = patience.fail(Instant::now().into_std());
                    say_trouble(what, &error, trouble);
                    trouble.wait
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Nothing is changed before it is clear that the platform is the one that the store was filled from: by their ids
    /// alone, subscriptions of another one's customers may look like ours.
    async fn align(&self, made: &mut Option<Made>) -> Result<Aligned> {
        self.session.check_tenant().await?;
        let made = match made {
            Some(made) => made,
            None => made.insert(made_subscriptions(self.session.store())?),
        };
        let before = made.clone();
        let aligned = self.address.align(&self.session.polls().client, made).await;
        if *made != before {
            self.session.note_subscriptions(made).await?;
        }
        aligned
    }

    /// What was changed here is read again: no feed tells of it.
    async fn note(&self, aligned: &Aligned) -> Result<()> {
        match aligned.changed() {
            true => self.queue.keep(vec![Told::Hint(Hint::Subscriptions)]).await,
            false => Ok(()),
        }
    }
}

fn say(aligned: &Aligned) {
    if aligned.changed() {
        let Aligned { made, repaired, removed, failed } = aligned;
        let failed = failed.len();
        tracing::info!(made, repaired, removed, failed, "webhook subscriptions were changed");
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::daemon::hooks_of;
    use crate::mirror::{PublishLag, PublishPlace};
    use crate::session::fixture::opened;

    #[tokio::test]
    async fn what_failed_is_forgotten_by_a_start_without_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        let address = "https://mirror.example.com/";
        let wanted = format!("[serve]\nwebhooks = \"127.0.0.1:0\"\npublic_url = \"{address}\"\n");
        for (settings, stays) in [(wanted.as_str(), true), ("", false)] {
            let session = Arc::new(opened(folder.path(), settings));
            let conn = session.store().connection().unwrap();
            let place = PublishPlace::Subscriptions;
            PublishLag::note(&conn, place, address, "no".to_owned(), Timestamp::now()).unwrap();
            hooks_of(&session).await.unwrap();
            assert_eq!(PublishLag::of(&conn, place, address).unwrap().is_some(), stays);
        }
    }
}
