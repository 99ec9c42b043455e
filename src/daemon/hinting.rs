//! Follows what webhooks tell.
//!
//! ```text
//!   webhook ──► queue (synced file) ──► store ──► the change feed is asked ──► cycles plan
//! ```
//!
//! A hint makes the change feed be asked at once: what that says and the hint are answered by the same calls. Where
//! the throttle lets no poll go for a while, or the feed fails, hints are followed by themselves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::patience::Patience;
use super::{ends_the_daemon, poller, say_recovery, say_trouble};
use crate::cycle::Signals;
use crate::error::{Error, Result};
use crate::hints::HintQueue;
use crate::mirror::Placed;
use crate::session::Session;

/// How long a hint waits for the poll that it asked for.
const WAITS_FOR_POLL: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How often deleted roles that no row has shown are looked for, while there are any.
const ROLES_ARE_PLACED: Duration = Duration::from_secs(5);

/// Polls that somebody asks for, out of their turn.
pub(super) struct Asks {
    asked: watch::Sender<u64>,
    answered: watch::Sender<u64>,
}

impl Default for Asks {
    fn default() -> Asks {
        Asks { asked: watch::Sender::new(0), answered: watch::Sender::new(0) }
    }
}

impl Asks {
    /// Asks for a poll; the number of the ask.
    fn ask(&self) -> u64 {
        self.asked.send_modify(|asked| *asked += 1);
        *self.asked.borrow()
    }

    /// Waits until a poll is asked for that is not answered.
    pub(super) async fn asked(&self) {
        let mut asked = self.asked.subscribe();
        let answered = self.answered.subscribe();
        // The sender lives as long as this.
        let _ = asked.wait_for(|asked| *asked > *answered.borrow()).await;
    }

    /// What a poll that begins now answers when it is complete.
    pub(super) fn now(&self) -> u64 {
        *self.asked.borrow()
    }

    /// A poll that began at that number is complete.
    pub(super) fn answer(&self, up_to: u64) {
        self.answered.send_if_modified(|answered| {
            let newer = up_to > *answered;
            *answered = up_to.max(*answered);
            newer
        });
    }
}

/// Hints that wait for their poll.
struct Waiting {
    ask: u64,
    sequence: i64,
    until: Instant,
}

/// Takes hints into the store and releases them.
pub(super) struct Hinting {
    pub(super) session: Arc<Session>,
    pub(super) queue: HintQueue,
    pub(super) asks: Arc<Asks>,
}

impl Hinting {
    /// Works until the process stops: what is not taken then waits in the queue's file.
    ///
    /// # Errors
    /// What makes all further work senseless: see [`ends_the_daemon`].
    pub(super) async fn run(self, mut signals: Signals) -> Result<()> {
        tokio::select! {
            () = poller::stop(&mut signals) => Ok(()),
            failed = self.follow() => failed,
        }
    }

    async fn follow(&self) -> Result<()> {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let mut answered = self.asks.answered.subscribe();
        let mut patience = Patience::new(Duration::from_secs(1), LONGEST_RETRY);
        // Of an earlier process some may wait.
        let mut roles = Some(Instant::now());
        loop {
            let first = waiting.front().map(|first| first.until);
            tokio::select! {
                () = self.queue.arrives() => {
                    if let Some(taken) = self.take(&mut patience).await? {
                        waiting.push_back(taken);
                        roles.get_or_insert(Instant::now() + ROLES_ARE_PLACED);
                    }
                }
                () = at(roles) => {
                    let placed = self.place_roles(&mut patience).await?;
                    waiting.extend(placed.hinted.map(|sequence| self.waiting(sequence)));
                    roles = placed.are_waiting.then(|| Instant::now() + ROLES_ARE_PLACED);
                }
                _ = answered.changed() => {}
                () = at(first) => {}
            }
            let polled = *answered.borrow_and_update();
            let now = Instant::now();
            let ready = |one: &Waiting| one.ask <= polled || one.until <= now;
            let mut up_to = None;
            while waiting.front().is_some_and(ready) {
                up_to = waiting.pop_front().map(|one| one.sequence);
            }
            if let Some(up_to) = up_to {
                self.release(up_to, &mut patience).await?;
            }
        }
    }

    /// Takes what waits into the store. What the store does not take waits again.
    async fn take(&self, patience: &mut Patience) -> Result<Option<Waiting>> {
        let Some(batch) = self.queue.take() else { return Ok(None) };
        match self.session.take_hints(&batch).await {
            Ok(sequence) => {
                self.queue.taken(batch.up_to);
                let recovery = patience.succeed(Instant::now().into_std());
                say_recovery("following the webhooks", recovery);
                Ok(Some(self.waiting(sequence)))
            }
            Err(error) => {
                self.queue.give_back(batch);
                self.bear(error, patience).await?;
                Ok(None)
            }
        }
    }

    /// Hints that wait from now on for a poll that is asked for.
    fn waiting(&self, sequence: i64) -> Waiting {
        Waiting { ask: self.asks.ask(), sequence, until: Instant::now() + WAITS_FOR_POLL }
    }

    async fn place_roles(&self, patience: &mut Patience) -> Result<Placed> {
        loop {
            match self.session.place_roles().await {
                Ok(placed) => {
                    let recovery = patience.succeed(Instant::now().into_std());
                    say_recovery("following the webhooks", recovery);
                    return Ok(placed);
                }
                Err(error) => self.bear(error, patience).await?,
            }
        }
    }

    async fn release(&self, up_to: i64, patience: &mut Patience) -> Result<()> {
        while let Err(error) = self.session.release_hints(up_to).await {
            self.bear(error, patience).await?;
        }
        Ok(())
    }

    /// Waits after what the store did not do, unless that ends the daemon.
    async fn bear(&self, error: Error, patience: &mut Patience) -> Result<()> {
        if ends_the_daemon(&error, true) {
            return Err(error);
        }
        let trouble = patience.fail(Instant::now().into_std());
        say_trouble("following the webhooks", &error, trouble);
        tokio::time::sleep(trouble.wait).await;
        Ok(())
    }
}

/// Waits until then, or for ever.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_poll_answers_what_was_asked_before_it_began() {
        let asks = Asks::default();
        let none = tokio::time::timeout(Duration::from_secs(1), asks.asked()).await;
        assert!(none.is_err(), "nobody has asked");
        assert_eq!(asks.ask(), 1);
        asks.asked().await;
        let begun = asks.now();
        // While the poll is under way.
        assert_eq!(asks.ask(), 2);
        asks.answer(begun);
        assert_eq!(*asks.answered.borrow(), 1);
        asks.asked().await;
        asks.answer(asks.now());
        let none = tokio::time::timeout(Duration::from_secs(1), asks.asked()).await;
        assert!(none.is_err(), "both are answered");
    }
}
