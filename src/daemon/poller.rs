//! Asks the change feeds at their intervals, whatever else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::hinting::Asks;
use super::patience::Patience;
use super::{ends_the_daemon, say_recovery, say_trouble};
use crate::cycle::{Controls, Interrupt, Signals};
use crate::error::{Kind, Result};
use crate::pulse::Pulse;
use crate::scope::FeedName;
use crate::session::Session;

/// After failures in a row the feed is asked no more seldom than this.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Without a poll under way it wakes so often, and so gives a sign of life: the next poll may be a day away.
const LONGEST_NAP: Duration = Duration::from_secs(30);
/// Between attempts to reach the source at the start.
const LONGEST_START_WAIT: Duration = Duration::from_secs(60);

pub(super) struct Poller {
    pub(crate) session: Arc<Session>,
    pub(crate) controls: Arc<Controls>,
    /// Told when what the feed says is known.
    pub(crate) polled: watch::Sender<bool>,
    pub(crate) pulse: Arc<Pulse>,
    /// Webhooks ask for polls out of their turn.
    pub(crate) asks: Arc<Asks>,
    /// How many polls are under way.
    pub(super) polling: AtomicUsize,
}

/// When a feed is asked next, and how it went so far.
struct Timer {
    interval: Duration,
    next: Instant,
    patience: Patience,
    /// The last poll failed: the next one waits for its time, whoever asks.
    fails: bool,
    /// It did, because another host asks the feeds.
    waits_for_lease: bool,
}

impl Timer {
    fn new(interval: Duration) -> Timer {
        Timer {
            interval,
            next: Instant::now(),
            patience: Patience::new(interval, LONGEST_WAIT),
            fails: false,
            waits_for_lease: false,
        }
    }
}

/// Sleeps, and wakes now and then, but for while another poll is under way: one that hangs must not look like one that
/// gets on.
async fn rest(until: Instant, polling: &AtomicUsize) {
    while Instant::now() < until {
        let is_alone = polling.load(Ordering::Relaxed) == 0;
        let nap = if is_alone { until.min(Instant::now() + LONGEST_NAP) } else { until };
        tokio::time::sleep_until(nap).await;
    }
}

impl Poller {
    /// Polls until the process stops.
    ///
    /// # Errors
    /// What makes all further polls senseless: see [`ends_the_daemon`].
    pub(super) async fn run(self) -> Result<()> {
        let mut signals = self.controls.listen();
        tokio::select! {
            // A poll that is dropped in the middle goes on from its cursor after the restart.
            () = stop(&mut signals) => Ok(()),
            failed = self.poll_for_ever() => failed,
        }
    }

    async fn poll_for_ever(&self) -> Result<()> {
        self.know_the_tenant().await?;
        // Each for itself: one that does not answer keeps the other from nothing.
        tokio::try_join!(self.poll_cases(), self.poll_contacts()).map(drop)
    }

    async fn poll_cases(&self) -> Result<()> {
        let mut timer = Timer::new(self.session.config().feed.poll_interval());
        loop {
            tokio::select! {
                () = rest(timer.next, &self.polling) => {}
                () = self.asks.asked(), if !timer.fails => {}
                // Another host asked them until now.
                () = self.session.feeds_come(), if timer.waits_for_lease => {}
            }
            let (started, asked) = (Instant::now(), self.asks.now());
            self.polling.fetch_add(1, Ordering::Relaxed);
            let polls = self.session.polls();
            let polled = self.telling(FeedName::Cases, polls.poll(FeedName::Cases)).await;
            self.polling.fetch_sub(1, Ordering::Relaxed);
            self.after(FeedName::Cases, &mut timer, started, polled.map(|polled| polled.moved))?;
            if !timer.fails {
                self.asks.answer(asked);
            }
        }
    }

    async fn poll_contacts(&self) -> Result<()> {
        let Some(interval) = self.session.config().feed.contacts_interval() else { return Ok(()) };
        let mut timer = Timer::new(interval);
        loop {
            tokio::select! {
                () = rest(timer.next, &self.polling) => {}
                () = self.session.feeds_come(), if timer.waits_for_lease => {}
            }
            let started = Instant::now();
            self.polling.fetch_add(1, Ordering::Relaxed);
            let polls = self.session.polls();
            let polled = self.telling(FeedName::Contacts, polls.poll_contacts()).await;
            self.polling.fetch_sub(1, Ordering::Relaxed);
            let moved = polled.map(|polled| polled.map_or(0, |polled| polled.moved));
            self.after(FeedName::Contacts, &mut timer, started, moved)?;
        }
    }

    /// Awaits a poll, and tells that its pages come: the first one may have hundreds, and six of them go in half a minute.
    async fn telling<T>(&self, name: FeedName, poll: impl Future<Output = T>) -> T {
        let mut pages = self.session.polls().turns.pages(name);
        let mut poll = std::pin::pin!(poll);
        loop {
            tokio::select! {
                polled = &mut poll => return polled,
                Ok(()) = pages.changed() => self.pulse.gets_on(name),
            }
        }
    }

    /// Before anything is followed, it is clear whose the store is. A source that does not answer is
    /// waited for; what is forwarded meanwhile finds out for itself.
    async fn know_the_tenant(&self) -> Result<()> {
        let mut patience = Patience::new(Duration::from_secs(1), LONGEST_START_WAIT);
        loop {
            match self.session.check_tenant().await {
                Ok(()) => {
                    let recovery = patience.succeed(Instant::now().into_std());
                    say_recovery("reaching the source", recovery);
                    return Ok(());
                }
                // With a token that no call takes, nothing was ever followed.
                Err(error) if ends_the_daemon(&error, false) => return Err(error),
                Err(error) => {
                    self.pulse.failed(FeedName::Cases, error.chain());
                    let trouble = patience.fail(Instant::now().into_std());
                    say_trouble("reaching the source", &error, trouble);
                    tokio::time::sleep(trouble.wait).await;
                }
            }
        }
    }

    fn after(
        &self,
        name: FeedName,
        timer: &mut Timer,
        started: Instant,
        polled: Result<u64>,
    ) -> Result<()> {
        let what = format!("asking the change feed ({})", name.as_str());
        timer.fails = polled.is_err();
        timer.waits_for_lease = polled.as_ref().is_err_and(|e| e.kind() == Kind::Lease);
        match polled {
            Ok(moved) => {
                self.pulse.polled(name, moved);
                timer.next = started + timer.interval;
                say_recovery(&what, timer.patience.succeed(Instant::now().into_std()));
                if name == FeedName::Cases {
                    self.polled.send_if_modified(|polled| !std::mem::replace(polled, true));
                }
            }
            Err(error) => {
                if ends_the_daemon(&error, self.session.credentials_were_taken()) {
                    return Err(error);
                }
                self.pulse.failed(name, error.chain());
                let trouble = timer.patience.fail(Instant::now().into_std());
                say_trouble(&what, &error, trouble);
                timer.next = Instant::now() + trouble.wait;
                // A feed that cannot be read stops nothing else: a new mirror lists the cases, and an older one goes on
                // with what it saw before.
                if name == FeedName::Cases {
                    self.polled.send_if_modified(|polled| !std::mem::replace(polled, true));
                }
            }
        }
        Ok(())
    }
}

/// Waits until the process stops.
pub(super) async fn stop(signals: &mut Signals) {
    while signals.interrupt() != Interrupt::Cancel {
        signals.beyond(i64::MAX, signals.interrupt()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_rests_wakes_now_and_then_but_not_beside_a_poll_that_may_hang() {
        for (polling, least, most) in [(0, 240, 260), (1, 1, 3)] {
            let polling = AtomicUsize::new(polling);
            let until = Instant::now() + Duration::from_secs(2 * 3600);
            let mut rest = pin!(rest(until, &polling));
            let mut woken = 0;
            poll_fn(|cx| {
                woken += 1;
                rest.as_mut().poll(cx)
            })
            .await;
            assert!(Instant::now() >= until);
            assert!((least..=most).contains(&woken), "{woken}");
        }
    }
}
