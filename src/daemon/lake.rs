//! Carries what is published to the lake, at its own pace: the store and the local files wait for nothing of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::patience::Patience;
use super::poller::stop;
use super::{say_recovery, say_trouble};
use crate::cycle::Controls;
use crate::error::Result;
use crate::session::Session;

const LEAST_RETRY: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

pub(super) struct LakePublisher {
    pub(super) session: Arc<Session>,
    pub(super) controls: Arc<Controls>,
}

impl LakePublisher {
    /// Does so until the process stops. What fails is tried again, whatever it is: a catalog comes back, and what only
    /// a person can mend is mended some day.
    pub(super) async fn run(self) -> Result<()> {
        let interval = self.session.config().lake.interval;
        let mut patience = Patience::new(LEAST_RETRY.min(interval), LONGEST_RETRY.max(interval));
        let mut publishings = self.session.publishings();
        let mut signals = self.controls.listen();
        // What was published before this process began may not be there yet.
        let mut not_before = Instant::now();
        let mut waits = false;
        loop {
            let comes = async {
                if waits {
                    self.session.is_published(&mut publishings).await;
                }
                tokio::time::sleep_until(not_before.into()).await;
            };
            tokio::select! {
                () = stop(&mut signals) => return Ok(()),
                () = comes => {}
            }
            publishings.mark_unchanged();
            // Ended with this process: a publishing that is dropped leaves the lake as it was.
            let published = tokio::select! {
                () = stop(&mut signals) => return Ok(()),
                published = self.session.publish_to_lake(false) => published,
            };
            let now = Instant::now();
            match published {
                Ok(_) => {
                    say_recovery("publishing to the lake", patience.succeed(now));
                    (not_before, waits) = (now + interval, true);
                }
                Err(error) => {
                    let trouble = patience.fail(now);
                    say_trouble("publishing to the lake", &error, trouble);
                    (not_before, waits) = (now + trouble.wait, false);
                }
            }
        }
    }
}
