//! The feed's throttle at work: asks the rule of [`super::feed_calls`], writes every start down
//! before the call is sent and every end when it is known.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::boot::BootClock;
use super::feed_calls::{Decision, Ended, FeedCall, LedgerStore, adopt, decide};
use super::limits::Pace;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;

/// The source measures its window with a clock of its own, and a clock that is being corrected runs
/// up to 500 ppm off: two of them 1,000 ppm, a thousandth of the window.
const CLOCKS_DIFFER_BY: u32 = 1_000;

/// An aborted call's connection is closed by its own task, and what the kernel has taken may still
/// be under way: a second later nothing of it arrives any more. Of short windows a tenth is taken.
const LONGEST_GRACE: Duration = Duration::from_secs(1);

/// No sleep is longer, because a machine that was suspended wakes late otherwise.
const LONGEST_NAP: Duration = Duration::from_secs(30);

/// How many calls are read from the store at the start, at least. Calls end at most one time limit
/// after they began, so those that still count are far fewer.
const NEWEST: usize = 1_000;

/// The ledger of all calls to the change feeds. Clones share it.
#[derive(Clone)]
pub(crate) struct Ledger {
    shared: Arc<Shared>,
}

struct Shared {
    calls: Mutex<Vec<FeedCall>>,
    next_id: AtomicI64,
    limit: u32,
    /// `feed.per` and what two clocks may differ by.
    window: Duration,
    grace: Duration,
    clock: Arc<dyn BootClock>,
    pace: Pace,
    writer: Writer,
}

impl Ledger {
    /// Reads the calls that may still count, and gives those an end that have none.
    ///
    /// Blocks while the store is read.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn open(
        store: Arc<dyn LedgerStore>,
        limit: u32,
        per: Duration,
        clock: Arc<dyn BootClock>,
    ) -> Result<Self> {
        let newest = NEWEST.max(usize::try_from(limit).unwrap_or(usize::MAX).saturating_mul(2));
        let mut calls = store.recent(newest)?;
        let grace = LONGEST_GRACE.min(per / 10);
        // The process that made them may have been killed a moment ago.
        let (now, at) = (clock.now().later_by(grace), wall_later_by(grace));
        for (id, ended) in adopt(&mut calls, now, at, clock.boot_id()) {
            store.end(id, &ended)?;
        }
        let next_id = calls.iter().map(|call| call.id).max().unwrap_or(0) + 1;
        let shared = Shared {
            calls: Mutex::new(calls),
            next_id: AtomicI64::new(next_id),
            limit,
            window: per + per / CLOCKS_DIFFER_BY,
            grace,
            clock,
            // Half of the window's calls may go at once, the rest is spread over the window.
            pace: Pace::new(limit, per, limit / 2),
            writer: Writer::start(store)?,
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
            match self.shared.decide() {
                Decision::Go => return Ok(()),
                Decision::Wait(wait) if Instant::now() + wait > deadline => {
                    let text = format!(
                        "the change feed is held back for another {:.0} s",
                        wait.as_secs_f64().ceil()
                    );
                    return Err(Error::new(Kind::Throttled, text));
                }
                Decision::Wait(wait) => tokio::time::sleep(wait.min(LONGEST_NAP)).await,
            }
        }
    }

    /// Begins a call if it may go this moment: its start is durable when this returns. `None`: not
    /// now, another call was faster.
    ///
    /// # Errors
    /// Those of the store; the call must not be sent then.
    pub(crate) async fn begin(&self, feed: FeedName) -> Result<Option<FeedPermit>> {
        let shared = &self.shared;
        let call = {
            let mut calls = shared.calls();
            let now = shared.clock.now();
            if decide(&calls, now, shared.clock.boot_id(), shared.limit, shared.window)
                != Decision::Go
            {
                return Ok(None);
            }
            let call = FeedCall {
                id: shared.next_id.fetch_add(1, Ordering::Relaxed),
                feed,
                boot_id: shared.clock.boot_id().to_owned(),
                sent_at: Timestamp::now(),
                sent: now,
                end: None,
            };
            calls.push(call.clone());
            call
        };
        // From here on the permit ends the call, even when this future is dropped at the await.
        let permit = FeedPermit { shared: Arc::clone(shared), id: call.id, open: true };
        shared.writer.begin(call).await?;
        Ok(Some(permit))
    }

    /// Waits until everything is written that has been ordered so far.
    pub(crate) async fn flush(&self) {
        self.shared.writer.flush().await;
    }
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Vec<FeedCall>> {
        // The list is changed by single pushes and assignments: a panic leaves it whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self) -> Decision {
        let calls = self.calls();
        decide(&calls, self.clock.now(), self.clock.boot_id(), self.limit, self.window)
    }

    /// Notes the end in memory, and forgets what does not count any more.
    fn end(&self, id: i64, status: Option<u16>, retry_after: Duration, grace: Duration) -> Ended {
        let now = self.clock.now();
        let ended = Ended {
            boot_id: self.clock.boot_id().to_owned(),
            at: wall_later_by(grace),
            time: now.later_by(grace),
            status,
            retry_after,
        };
        let mut calls = self.calls();
        if let Some(call) = calls.iter_mut().find(|call| call.id == id) {
            call.end = Some(ended.clone());
        }
        calls.retain(|call| {
            call.end
                .as_ref()
                .is_none_or(|end| end.time.later_by(self.window.max(end.retry_after)) > now)
        });
        ended
    }
}

/// The right to send one call to a feed. Dropped in mid-call, it writes the end itself: the call's
/// connection is being closed then.
pub(crate) struct FeedPermit {
    shared: Arc<Shared>,
    id: i64,
    open: bool,
}

impl FeedPermit {
    /// The answer is complete. `retry_after`: how long the source wants no further call; zero for none.
    ///
    /// # Errors
    /// Those of the store. The end counts all the same.
    pub(crate) async fn answered(mut self, status: u16, retry_after: Duration) -> Result<()> {
        self.open = false;
        let ended = self.shared.end(self.id, Some(status), retry_after, Duration::ZERO);
        self.shared.writer.end(self.id, ended).await
    }

    /// No complete answer came, and the connection has been given up.
    ///
    /// # Errors
    /// Those of the store. The end counts all the same.
    pub(crate) async fn aborted(mut self) -> Result<()> {
        self.open = false;
        let ended = self.shared.end(self.id, None, Duration::ZERO, self.shared.grace);
        self.shared.writer.end(self.id, ended).await
    }
}

impl Drop for FeedPermit {
    fn drop(&mut self) {
        if self.open {
            let ended = self.shared.end(self.id, None, Duration::ZERO, self.shared.grace);
            self.shared.writer.end_unattended(self.id, ended);
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

type Reply = oneshot::Sender<Result<()>>;

enum Order {
    Begin(FeedCall, Reply),
    End(i64, Ended, Option<Reply>),
    Flush(Reply),
}

/// One thread writes starts and ends in the order in which they were ordered: so an end never
/// overtakes its start, and a call that is dropped outside any runtime can still be ended.
struct Writer {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(store: Arc<dyn LedgerStore>) -> Result<Self> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let thread = std::thread::Builder::new()
            .name("feed-ledger".to_owned())
            .spawn(move || {
                for order in inbox {
                    match order {
                        Order::Begin(call, reply) => answer(reply, store.begin(&call)),
                        Order::End(id, ended, Some(reply)) => answer(reply, store.end(id, &ended)),
                        Order::End(id, ended, None) => {
                            if let Err(error) = store.end(id, &ended) {
                                tracing::warn!(error = error.chain(), "feed call without end");
                            }
                        }
                        Order::Flush(reply) => answer(reply, Ok(())),
                    }
                }
            })
            .map_err(|error| Error::caused(Kind::Io, "cannot start the ledger's thread", error))?;
        Ok(Writer { orders: Some(orders), thread: Some(thread) })
    }

    async fn begin(&self, call: FeedCall) -> Result<()> {
        self.ask(|reply| Order::Begin(call, reply)).await
    }

    async fn end(&self, id: i64, ended: Ended) -> Result<()> {
        self.ask(|reply| Order::End(id, ended, Some(reply))).await
    }

    fn end_unattended(&self, id: i64, ended: Ended) {
        if let Some(orders) = &self.orders {
            // Without the thread the row stays without end, and the next start gives it one.
            let _ = orders.send(Order::End(id, ended, None));
        }
    }

    async fn flush(&self) {
        // Nothing is left to write when the thread is gone.
        let _ = self.ask(Order::Flush).await;
    }

    async fn ask(&self, order: impl FnOnce(Reply) -> Order) -> Result<()> {
        let gone = || Error::new(Kind::Internal, "the feed ledger's thread is gone");
        let (reply, answer) = oneshot::channel();
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(order(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn answer(reply: Reply, result: Result<()>) {
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
