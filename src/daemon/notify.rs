//! What the service manager is told (systemd's `Type=notify`): ready, stopping, and that the daemon gets on.
//!
//! Nothing is told by a timer of its own. The poller and the worker give signs of life when they go on, and each
//! sign is passed on only while the other one has given one lately: where either hangs, systemd hears nothing more
//! and starts the daemon anew. Each of them goes on now and then, however slow the source is: no call waits longer
//! than its time-outs and five minutes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use sd_notify::NotifyState;

use crate::config::Limits;

/// A call is tried for so long, and its last attempt may take its time-out more.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// What waits to be told where the manager does not listen; what comes beyond it is not told.
const MOST_WAITING: usize = 8;

/// Who gives signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Poller,
    Worker,
}

/// Tells the service manager, where there is one.
#[derive(Debug)]
pub(super) struct Manager {
    /// The longest silence that it bears: `WatchdogSec`.
    watchdog: Option<Duration>,
    started: Instant,
    /// In milliseconds since the start.
    poller: AtomicU64,
    worker: AtomicU64,
    told: AtomicU64,
    /// To a thread of its own: a manager that does not listen holds up nobody else.
    teller: SyncSender<NotifyState<'static>>,
}

impl Manager {
    /// What the environment says of it. A silence that a slow source can bring is warned about.
    pub(super) fn of_environment(limits: &Limits) -> Manager {
        let watchdog = sd_notify::watchdog_enabled();
        let longest = PATIENCE + limits.timeout.max(limits.journal_timeout);
        if let Some(watchdog) = watchdog.filter(|watchdog| *watchdog < longest) {
            tracing::warn!(
                ?watchdog,
                "WatchdogSec is shorter than one call may take ({longest:?})"
            );
        }
        Manager::new(watchdog)
    }

    pub(super) fn new(watchdog: Option<Duration>) -> Manager {
        let (teller, waiting) = sync_channel(MOST_WAITING);
        // Where there is no thread, nobody is told.
        let _ =
            std::thread::Builder::new().name("notify".to_owned()).spawn(move || tell_all(&waiting));
        Manager {
            watchdog,
            started: Instant::now(),
            poller: AtomicU64::new(0),
            worker: AtomicU64::new(0),
            told: AtomicU64::new(0),
            teller,
        }
    }

    /// The store is held, and commands are taken.
    pub(super) fn ready(&self) {
        self.tell(NotifyState::Ready);
    }

    /// What is under way is being finished.
    pub(super) fn stopping(&self) {
        self.tell(NotifyState::Stopping);
    }

    /// `part` has got on.
    pub(super) fn lives(&self, part: Part) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.takes(part, now) {
            self.tell(NotifyState::Watchdog);
        }
    }

    /// Notes a sign of `part`; whether it is to be passed on.
    fn takes(&self, part: Part, now: u64) -> bool {
        let Some(watchdog) = self.watchdog else { return false };
        let watchdog = u64::try_from(watchdog.as_millis()).unwrap_or(u64::MAX);
        let (own, other) = match part {
            Part::Poller => (&self.poller, &self.worker),
            Part::Worker => (&self.worker, &self.poller),
        };
        own.store(now, Ordering::Relaxed);
        let other_lives = now.saturating_sub(other.load(Ordering::Relaxed)) < watchdog;
        let told = self.told.load(Ordering::Relaxed);
        // Not with each of a thousand answers a second.
        let tells = other_lives && now.saturating_sub(told) >= watchdog / 8;
        if tells {
            self.told.store(now, Ordering::Relaxed);
        }
        tells
    }

    /// Awaits `work` of `part`, and takes it for a sign of life each time that it goes on.
    pub(super) async fn watch<T>(&self, part: Part, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let going_on = poll_fn(|cx| {
            self.lives(part);
            work.as_mut().poll(cx)
        });
        // Polls only when the work itself was woken: not when what stands beside it in a `select!` was.
        let mut alone = FuturesUnordered::from_iter([going_on]);
        match alone.next().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    fn tell(&self, state: NotifyState<'static>) {
        // A sign that is not passed on is followed by another.
        let _ = self.teller.try_send(state);
    }
}

/// Tells what comes. Nobody is told where there is no manager.
fn tell_all(waiting: &Receiver<NotifyState<'static>>) {
    let mut failed = false;
    for state in waiting {
        if let Err(error) = sd_notify::notify(&[state])
            && !std::mem::replace(&mut failed, true)
        {
            tracing::warn!("the service manager cannot be told how the daemon is: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_sign_is_passed_on_while_the_other_part_lives_too() {
        let manager = Manager::new(Some(8 * SECOND));
        let takes = |part, seconds: u64| manager.takes(part, 1000 * seconds);
        assert!(takes(Part::Poller, 1));
        assert!(takes(Part::Worker, 2));
        assert!(takes(Part::Poller, 9));
        // The worker gave its last sign at 2.
        assert!(!takes(Part::Poller, 10));
        assert!(!takes(Part::Poller, 30));
        assert!(takes(Part::Worker, 31));
        assert!(takes(Part::Poller, 32));
        assert!(takes(Part::Worker, 39));
        assert!(!takes(Part::Worker, 40));
    }

    #[test]
    fn signs_that_follow_each_other_closely_are_passed_on_now_and_then() {
        let manager = Manager::new(Some(8 * SECOND));
        let told = (0..8000).filter(|ms| manager.takes(Part::Worker, *ms)).count();
        assert_eq!(told, 7);
        assert!(!Manager::new(None).takes(Part::Worker, 5000));
    }

    #[tokio::test]
    async fn what_is_woken_beside_the_work_is_no_sign_of_it() {
        let manager = Manager::new(Some(8 * SECOND));
        let signs = || manager.worker.load(Ordering::Relaxed);
        let hangs = manager.watch(Part::Worker, std::future::pending::<()>());
        let mut hangs = pin!(hangs);
        let mut last = u64::MAX;
        for _ in 0..5 {
            tokio::select! {
                () = &mut hangs => unreachable!(),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
            last = last.min(signs());
            assert_eq!(signs(), last);
        }
        assert_eq!(manager.watch(Part::Worker, async { 7 }).await, 7);
        assert!(signs() > last);
    }
}
