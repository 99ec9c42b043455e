//! The feed's throttle at work: asks the rule of [`super::feed_calls`], writes every start down
//! before the call is sent and every end when it is known.

mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::boot::{BootClock, BootTime};
use super::feed_calls::{Decision, Ended, FeedCall, LedgerStore, Mark, Rule};
use super::limits::Pace;
use super::process;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use writer::{Keeper, Order, Writer};

/// The source measures its window with a clock of its own, and a clock that is being corrected runs
/// up to 500 ppm off: two of them 1,000 ppm, a thousandth of the window.
const CLOCKS_DIFFER_BY: u32 = 1_000;

/// What was sent on a connection that was given up may lie in a proxy or a queue and arrive later: it
/// counts as under way for another window, but not longer than this.
pub(super) const LONGEST_GRACE: Duration = Duration::from_secs(60);

/// The pause after calls that did not come back doubles this often at most.
const MOST_DOUBLINGS: u32 = 3;

/// No sleep is longer, because a machine that was suspended wakes late otherwise, and because another
/// process may have ended its calls.
const LONGEST_NAP: Duration = Duration::from_secs(30);

/// The ledger of all calls to the change feeds. Clones share it.
#[derive(Clone)]
pub(crate) struct Ledger {
    shared: Arc<Shared>,
}

struct Shared {
    known: Arc<Known>,
    next_number: AtomicU64,
    pace: Pace,
    writer: Writer,
}

/// The calls as they were last seen in the ledger, and the rule over them.
struct Known {
    calls: Mutex<Vec<FeedCall>>,
    /// When calls that are told by another boot's clock were met first as they are.
    met: Mutex<BTreeMap<Mark, Met>>,
    /// Ends of own calls, by their numbers, that are not written yet.
    unwritten: Mutex<BTreeMap<u64, Ended>>,
    rule: Rule,
    /// How long a call is waited for at most.
    patience: Duration,
    /// How long what was given up counts as under way.
    grace: Duration,
    /// Own calls in a row that may have been sent and did not come back.
    unanswered: AtomicU32,
    clock: Arc<dyn BootClock>,
    process: String,
    /// Tells this open ledger from all others.
    ledger: u64,
}

/// A call as it stands in the ledger, and since when that is known here.
struct Met {
    end: Option<Ended>,
    at: BootTime,
}

impl Ledger {
    /// Reads the calls that may still count, and gives those an end that nobody else gives one. A call
    /// is waited for no longer than `patience`.
    ///
    /// Blocks while the ledger is read.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`].
    pub(crate) fn open(
        store: Arc<dyn LedgerStore>,
        rule: Rule,
        patience: Duration,
        clock: Arc<dyn BootClock>,
    ) -> Result<Self> {
        let per = rule.window;
        let newest = usize::try_from(rule.limit).unwrap_or(usize::MAX).saturating_mul(2);
        let known = Arc::new(Known {
            calls: Mutex::new(store.remembered(newest)?),
            met: Mutex::default(),
            unwritten: Mutex::default(),
            rule: Rule { window: per + per / CLOCKS_DIFFER_BY, ..rule },
            patience,
            grace: LONGEST_GRACE.min(per),
            unanswered: AtomicU32::new(0),
            clock,
            process: process::this(),
            ledger: rand::random(),
        });
        let keeper = Keeper { known: Arc::clone(&known), store };
        keeper.look()?;
        let shared = Shared {
            known,
            next_number: AtomicU64::new(1),
            // Half of the window's calls may go at once, the rest is spread over the window.
            pace: Pace::new(rule.limit, per, rule.limit / 2),
            writer: Writer::start(keeper)?,
        };
        Ok(Ledger { shared: Arc::new(shared) })
    }

    /// Waits until a call may probably go. Paced, so that calls spread over the window.
    ///
    /// # Errors
    /// [`Kind::Throttled`] when it would have to wait beyond `deadline`.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<()> {
        self.shared.pace.ready().await;
        loop {
            match self.shared.known.decide() {
                Decision::Go => return Ok(()),
                Decision::Wait(wait) if Instant::now() + wait > deadline => {
                    let text = format!(
                        "the change feed is held back for another {:.0} s",
                        wait.as_secs_f64().ceil()
                    );
                    return Err(Error::new(Kind::Throttled, text));
                }
                Decision::Wait(wait) => {
                    tokio::time::sleep(wait.min(LONGEST_NAP)).await;
                    self.shared.writer.ask(Order::Look).await?;
                }
            }
        }
    }

    /// Begins a call if it may go this moment: its start is durable when this returns. `None`: not
    /// now, another call was faster, of this process or of another one; or the process stood still for so long
    /// meanwhile, as when the machine sleeps, that others may take the call for given up.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`]; the call must not be sent then.
    pub(crate) async fn begin(&self, feed: FeedName) -> Result<Option<FeedPermit>> {
        let shared = &self.shared;
        let number = shared.next_number.fetch_add(1, Ordering::Relaxed);
        // From here on the permit ends the call, even when this future is dropped at the await.
        let mut permit = FeedPermit { shared: Arc::clone(shared), number, open: true };
        let asked = shared.known.clock.now();
        permit.open = shared.writer.ask(|reply| Order::Begin(feed, number, reply)).await?;
        if permit.open && shared.known.clock.has_slept(asked, shared.known.patience) {
            permit.not_sent().await?;
            return Ok(None);
        }
        Ok(permit.open.then_some(permit))
    }

    /// Forgets for how long the source wanted no call. The window stays as it is.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`].
    pub(crate) async fn lift_holds(&self) -> Result<()> {
        self.shared.writer.ask(Order::LiftHolds).await
    }

    /// Waits until everything is written that has been ordered so far.
    pub(crate) async fn flush(&self) {
        // Nothing is left to write when the thread is gone.
        let _ = self.shared.writer.ask(Order::Flush).await;
    }
}

impl Known {
    fn calls(&self) -> MutexGuard<'_, Vec<FeedCall>> {
        // The list is changed by single assignments: a panic leaves it whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self) -> Decision {
        self.rule.decide(&self.calls(), self.clock.now(), self.clock.boot_id())
    }

    /// Notes which calls of another boot's clock stand in the ledger, and how.
    fn meet(&self, calls: &[FeedCall], now: BootTime) {
        let boot_of = |call: &FeedCall| match &call.end {
            Some(end) => end.boot_id.clone(),
            None => call.boot_id.clone(),
        };
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *met);
        for call in calls.iter().filter(|call| boot_of(call) != self.clock.boot_id()) {
            let known = before.remove(&call.mark()).filter(|known| known.end == call.end);
            met.insert(call.mark(), known.unwrap_or(Met { end: call.end.clone(), at: now }));
        }
    }

    /// When a call was met first as it is; `now` where it was not.
    fn met(&self, call: &FeedCall, now: BootTime) -> BootTime {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.get(&call.mark()).map_or(now, |met| met.at)
    }

    fn is_own(&self, call: &FeedCall) -> bool {
        call.by.ledger == self.ledger
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<u64, Ended>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long no call goes after another one that may have been sent and did not come back.
    ///
    /// Whatever holds such calls may let them all go at once, and later than any grace. So after half of what a
    /// window may have they are spread so far that the next ones come alone.
    fn pause_after_unanswered(&self) -> Duration {
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        match unanswered.checked_sub(self.rule.limit / 2) {
            None | Some(0) => Duration::ZERO,
            Some(more) => self.rule.window * 2_u32.pow((more - 1).min(MOST_DOUBLINGS)),
        }
    }

    /// Notes the end in memory.
    fn end(&self, number: u64, status: Option<u16>, hold: Duration, grace: Duration) {
        let ended = Ended {
            boot_id: self.clock.boot_id().to_owned(),
            at: wall_later_by(grace),
            time: self.clock.now().later_by(grace),
            status,
            retry_after: hold,
        };
        let mut calls = self.calls();
        let mut own = calls.iter_mut().filter(|call| self.is_own(call));
        if let Some(call) = own.find(|call| call.by.number == number) {
            call.end = Some(ended.clone());
        }
        self.unwritten().insert(number, ended);
    }
}

/// The right to send one call to a feed. Dropped in mid-call, it writes the end itself: the call's
/// connection is being closed then.
pub(crate) struct FeedPermit {
    shared: Arc<Shared>,
    number: u64,
    open: bool,
}

impl FeedPermit {
    /// The answer is complete. `retry_after`: how long the source wants no further call; zero for none.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`]. The end counts all the same.
    pub(crate) async fn answered(self, status: u16, retry_after: Duration) -> Result<()> {
        self.shared.known.unanswered.store(0, Ordering::Relaxed);
        self.end(Some(status), retry_after, Duration::ZERO).await
    }

    /// No complete answer came, and the connection has been given up.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`]. The end counts all the same.
    pub(crate) async fn aborted(self) -> Result<()> {
        let grace = self.shared.known.grace;
        let pause = self.shared.known.pause_after_unanswered();
        self.end(None, pause, grace).await
    }

    /// There was no connection on which it could have been sent.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`]. The end counts all the same.
    pub(crate) async fn not_sent(self) -> Result<()> {
        self.end(None, Duration::ZERO, Duration::ZERO).await
    }

    async fn end(mut self, status: Option<u16>, hold: Duration, grace: Duration) -> Result<()> {
        self.open = false;
        self.shared.known.end(self.number, status, hold, grace);
        let number = self.number;
        self.shared.writer.ask(|reply| Order::End(number, Some(reply))).await
    }
}

impl Drop for FeedPermit {
    fn drop(&mut self) {
        if self.open {
            let Shared { known, writer, .. } = &*self.shared;
            known.end(self.number, None, known.pause_after_unanswered(), known.grace);
            writer.end_unattended(self.number);
        }
    }
}

fn wall_later_by(duration: Duration) -> Timestamp {
    let now = Timestamp::now();
    jiff::SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| now.checked_add(duration).ok())
        .unwrap_or(now)
}
