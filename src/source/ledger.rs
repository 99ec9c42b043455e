//! The feed's throttle at work: asks the rule of [`super::feed_calls`], writes every start down
//! before the call is sent and every end when it is known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::boot::{BootClock, BootTime};
use super::feed_calls::{Caller, Change, Decision, Ended, FeedCall, LedgerStore, Rule, adopt};
use super::limits::Pace;
use super::process;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;

/// The source measures its window with a clock of its own, and a clock that is being corrected runs
/// up to 500 ppm off: two of them 1,000 ppm, a thousandth of the window.
const CLOCKS_DIFFER_BY: u32 = 1_000;

/// What was sent on a connection that was given up may lie in a proxy or a queue and arrive later: it
/// counts as under way for another window, but not longer than this.
const LONGEST_GRACE: Duration = Duration::from_secs(60);

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
    grace: Duration,
    /// How long a call is waited for at most.
    patience: Duration,
    pace: Pace,
    writer: Writer,
}

/// The calls as they were last seen in the ledger, and the rule over them.
struct Known {
    calls: Mutex<Vec<FeedCall>>,
    /// Ends of own calls, by their numbers, that are not written yet.
    unwritten: Mutex<BTreeMap<u64, Ended>>,
    rule: Rule,
    clock: Arc<dyn BootClock>,
    /// What tells this open ledger from all others.
    process: String,
    ledger: u64,
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
        let known = Arc::new(Known {
            calls: Mutex::default(),
            unwritten: Mutex::default(),
            rule: Rule { window: per + per / CLOCKS_DIFFER_BY, ..rule },
            clock,
            process: process::this(),
            ledger: rand::random(),
        });
        let keeper = Keeper { known: Arc::clone(&known), store, grace: LONGEST_GRACE.min(per) };
        keeper.update(keeper.known.clock.now(), |_| Vec::new())?;
        let shared = Shared {
            known,
            next_number: AtomicU64::new(1),
            grace: keeper.grace,
            patience,
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
                    self.shared.writer.look().await?;
                }
            }
        }
    }

    /// Begins a call if it may go this moment: its start is durable when this returns. `None`: not
    /// now, another call was faster, of this process or of another one.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`]; the call must not be sent then.
    pub(crate) async fn begin(&self, feed: FeedName) -> Result<Option<FeedPermit>> {
        let shared = &self.shared;
        let number = shared.next_number.fetch_add(1, Ordering::Relaxed);
        // From here on the permit ends the call, even when this future is dropped at the await.
        let mut permit = FeedPermit { shared: Arc::clone(shared), number, open: true };
        permit.open = shared.writer.begin(feed, number, shared.patience).await?;
        Ok(permit.open.then_some(permit))
    }

    /// Forgets for how long the source wanted no call. The window stays as it is.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`].
    pub(crate) async fn lift_holds(&self) -> Result<()> {
        self.shared.writer.ask(What::LiftHolds).await
    }

    /// Waits until everything is written that has been ordered so far.
    pub(crate) async fn flush(&self) {
        self.shared.writer.flush().await;
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

    fn is_own(&self, call: &FeedCall) -> bool {
        call.by.ledger == self.ledger && call.by.process == self.process
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<u64, Ended>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the end in memory.
    fn end(&self, number: u64, status: Option<u16>, hold: Duration, grace: Duration) {
        let ended = Ended {
            boot_id: self.clock.boot_id().to_owned(),
            at: wall_later_by(grace),
            time: self.clock.now().later_by(grace),
            status,
            retry_after: hold.min(self.rule.longest_hold),
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
        self.end(Some(status), retry_after, Duration::ZERO).await
    }

    /// No complete answer came, and the connection has been given up.
    ///
    /// # Errors
    /// Those of [`LedgerStore::update`]. The end counts all the same.
    pub(crate) async fn aborted(self) -> Result<()> {
        let grace = self.shared.grace;
        self.end(None, Duration::ZERO, grace).await
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
        self.shared.writer.end(self.number).await
    }
}

impl Drop for FeedPermit {
    fn drop(&mut self) {
        if self.open {
            let shared = &self.shared;
            shared.known.end(self.number, None, Duration::ZERO, shared.grace);
            shared.writer.end_unattended(self.number);
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

type Reply<T> = oneshot::Sender<Result<T>>;

/// What is to be done, by the time at which it was ordered: a little too early is safe.
struct Order {
    now: BootTime,
    what: What,
}

enum What {
    /// The caller's number of the call, and how long it waits for it.
    Begin(FeedName, u64, Duration, Reply<bool>),
    /// Writes the end of a call that is known by now.
    End(u64, Option<Reply<()>>),
    /// Reads what others have written.
    Look(Reply<()>),
    LiftHolds(Reply<()>),
    Flush(Reply<()>),
}

/// The ledger's side of [`Writer`].
struct Keeper {
    known: Arc<Known>,
    store: Arc<dyn LedgerStore>,
    grace: Duration,
}

impl Keeper {
    /// Reads the ledger, gives ends to the calls that nobody else ends, and writes what `more` adds.
    fn update(&self, now: BootTime, more: impl Fn(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        let boot_id = self.known.clock.boot_id();
        let is_gone = |call: &FeedCall| {
            let given_up = call.sent.later_by(call.patience).later_by(self.grace);
            !self.known.is_own(call) && self.store.is_gone(call).unwrap_or_else(|| given_up < now)
        };
        let mut now_known = Vec::new();
        self.store.update(&mut |calls| {
            let mut calls = calls.to_vec();
            let mut changes = self.lost(&calls, now);
            changes.iter().for_each(|change| change.apply(&mut calls));
            let own_ends = self.own_ends(&calls);
            own_ends.iter().for_each(|change| change.apply(&mut calls));
            changes.extend(own_ends);
            changes.extend(adopt(&mut calls, now, self.grace, boot_id, is_gone));
            let more = more(&calls);
            more.iter().for_each(|change| change.apply(&mut calls));
            changes.extend(more);
            now_known = calls;
            changes
        })?;
        *self.known.calls() = now_known;
        Ok(())
    }

    /// Whether the call may go; its start is durable then.
    fn begin(
        &self,
        now: BootTime,
        feed: FeedName,
        number: u64,
        patience: Duration,
    ) -> Result<bool> {
        let Known { rule, clock, process, ledger, .. } = &*self.known;
        let begun = std::cell::Cell::new(false);
        self.update(now, |calls| {
            begun.set(rule.decide(calls, now, clock.boot_id()) == Decision::Go);
            let sent = begun.get().then(|| {
                Change::Sent(FeedCall {
                    id: calls.iter().map(|call| call.id).max().unwrap_or(0) + 1,
                    feed,
                    by: Caller { process: process.clone(), ledger: *ledger, number },
                    boot_id: clock.boot_id().to_owned(),
                    sent_at: Timestamp::now(),
                    sent: now,
                    patience,
                    end: None,
                })
            });
            sent.into_iter().collect()
        })?;
        Ok(begun.get())
    }

    /// Calls that count and that the ledger does not know any more: somebody has removed it.
    fn lost(&self, calls: &[FeedCall], now: BootTime) -> Vec<Change> {
        let Known { rule, clock, .. } = &*self.known;
        let counts = |call: &FeedCall| {
            call.end.as_ref().is_none_or(|end| {
                let longest = rule.window.max(end.retry_after.min(rule.longest_hold));
                end.boot_id != clock.boot_id() || end.time.later_by(longest) > now
            })
        };
        let is_there = |lost: &FeedCall| {
            calls.iter().any(|call| call.sent == lost.sent && call.sent_at == lost.sent_at)
        };
        let mut next = calls.iter().map(|call| call.id).max().unwrap_or(0);
        let known = self.known.calls();
        let lost = known.iter().filter(|call| counts(call) && !is_there(call));
        lost.flat_map(|call| {
            next = call.id.max(next + 1);
            let ended = call.end.clone().map(|end| Change::Ended(next, end));
            [Some(Change::Sent(FeedCall { id: next, end: None, ..call.clone() })), ended]
        })
        .flatten()
        .collect()
    }

    fn lift_holds(&self, now: BootTime) -> Result<()> {
        self.update(now, |calls| {
            let held = calls.iter().filter_map(|call| Some((call.id, call.end.as_ref()?)));
            held.filter(|(_, end)| !end.retry_after.is_zero())
                .map(|(id, end)| {
                    Change::Ended(id, Ended { retry_after: Duration::ZERO, ..end.clone() })
                })
                .collect()
        })
    }

    /// Ends of own calls that the ledger does not know yet.
    fn own_ends(&self, calls: &[FeedCall]) -> Vec<Change> {
        let unwritten = self.known.unwritten();
        let own = calls.iter().filter(|call| call.end.is_none() && self.known.is_own(call));
        own.filter_map(|call| Some(Change::Ended(call.id, unwritten.get(&call.by.number)?.clone())))
            .collect()
    }

    /// Writes the end of a call, and others that could not be written before.
    fn end(&self, now: BootTime, number: u64) -> Result<()> {
        self.update(now, |_| Vec::new())?;
        // Its start was ordered before: if it is not written now, the call was never begun.
        self.known.unwritten().remove(&number);
        Ok(())
    }
}

/// One thread writes starts and ends in the order in which they were ordered: so an end never
/// overtakes its start, and a call that is dropped outside any runtime can still be ended.
struct Writer {
    clock: Arc<dyn BootClock>,
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(keeper: Keeper) -> Result<Self> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let clock = Arc::clone(&keeper.known.clock);
        let thread = std::thread::Builder::new()
            .name("feed-ledger".to_owned())
            .spawn(move || {
                for Order { now, what } in inbox {
                    match what {
                        What::Begin(feed, number, patience, reply) => {
                            answer(reply, keeper.begin(now, feed, number, patience));
                        }
                        What::End(number, Some(reply)) => answer(reply, keeper.end(now, number)),
                        What::End(number, None) => {
                            if let Err(error) = keeper.end(now, number) {
                                tracing::warn!(error = error.chain(), "feed call without end");
                            }
                        }
                        What::Look(reply) => answer(reply, keeper.update(now, |_| Vec::new())),
                        What::LiftHolds(reply) => answer(reply, keeper.lift_holds(now)),
                        What::Flush(reply) => answer(reply, Ok(())),
                    }
                }
            })
            .map_err(|error| Error::caused(Kind::Io, "cannot start the ledger's thread", error))?;
        Ok(Writer { clock, orders: Some(orders), thread: Some(thread) })
    }

    async fn begin(&self, feed: FeedName, number: u64, patience: Duration) -> Result<bool> {
        self.ask(|reply| What::Begin(feed, number, patience, reply)).await
    }

    async fn end(&self, number: u64) -> Result<()> {
        self.ask(|reply| What::End(number, Some(reply))).await
    }

    fn end_unattended(&self, number: u64) {
        if let Some(orders) = &self.orders {
            // Without the thread the call stays without end, and the next start gives it one.
            let _ = orders.send(Order { now: self.clock.now(), what: What::End(number, None) });
        }
    }

    async fn look(&self) -> Result<()> {
        self.ask(What::Look).await
    }

    async fn flush(&self) {
        // Nothing is left to write when the thread is gone.
        let _ = self.ask(What::Flush).await;
    }

    async fn ask<T>(&self, what: impl FnOnce(Reply<T>) -> What) -> Result<T> {
        let gone = || Error::new(Kind::Internal, "the feed ledger's thread is gone");
        let (reply, answer) = oneshot::channel();
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        let order = Order { now: self.clock.now(), what: what(reply) };
        orders.send(order).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn answer<T>(reply: Reply<T>, result: Result<T>) {
    // Nobody listens any more when the asking future was dropped; an error is then only logged.
    if let Err(Err(error)) = reply.send(result) {
        tracing::warn!(error = error.chain(), "feed ledger not written");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // It ends when the queue is empty; a panic of the store's has been printed.
            let _ = thread.join();
        }
    }
}
