//! The thread that writes the ledger: starts and ends, in the order in which they were ordered.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::Known;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use crate::source::boot::{BootTime, Fate};
use crate::source::feed_calls::{
    Caller, Change, Decision, Ended, FeedCall, LedgerStore, Mark, adopt,
};

pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

pub(super) enum Order {
    /// The caller's number of the call.
    Begin(FeedName, u64, Reply<bool>),
    /// Writes the end of a call that is known by now.
    End(u64, Option<Reply<()>>),
    /// Reads what others have written.
    Look(Reply<()>),
    LiftHolds(Reply<()>),
    Flush(Reply<()>),
}

/// The ledger's side of [`Writer`].
pub(super) struct Keeper {
    pub(super) known: Arc<Known>,
    pub(super) store: Arc<dyn LedgerStore>,
}

impl Keeper {
    /// Reads the ledger, gives ends to the calls that nobody else ends, and writes what `more` adds by
    /// what is known then.
    fn update(&self, more: impl Fn(&[FeedCall], BootTime) -> Vec<Change>) -> Result<()> {
        let Known { rule, grace, clock, .. } = &*self.known;
        let mut now_known = Vec::new();
        self.store.update(&mut |calls| {
            // Others may have had the ledger for long.
            let (now, boot_id) = (clock.now(), clock.boot_id());
            let is_gone = |call: &FeedCall| {
                if clock.fate(&call.boot_id) != Fate::MayLive {
                    return true;
                }
                // Times of another boot tell nothing: it was sent before it was met.
                let sent = match call.boot_id == boot_id {
                    true => call.sent,
                    false => self.known.met(call, now),
                };
                let is_too_old = || sent.later_by(call.patience).later_by(*grace) < now;
                // A process that began itself anew is the same to the system, and ends none of the calls of before.
                let is_of_this = call.by.process == self.known.process;
                let seen = self.store.is_gone(call).filter(|gone| *gone || !is_of_this);
                !self.known.is_own(call) && seen.unwrap_or_else(is_too_old)
            };
            let mut calls = calls.to_vec();
            calls.iter_mut().for_each(|call| call.tell_by(&**clock));
            let mut changes = Vec::new();
            let mut learn = |calls: &mut Vec<FeedCall>, found: Vec<Change>| {
                found.iter().for_each(|change| change.apply(calls));
                changes.extend(found);
            };
            let lost = self.lost(&calls, |call| rule.counts(call, now, boot_id));
            learn(&mut calls, lost);
            let own_ends = self.own_ends(&calls);
            learn(&mut calls, own_ends);
            self.known.meet(&calls, now);
            let (fate, met) =
                (|id: &str| clock.fate(id), |call: &FeedCall| self.known.met(call, now));
            let adopted = adopt(&mut calls, now, *grace, boot_id, is_gone, fate, met);
            learn(&mut calls, adopted);
            let more = more(&calls, now);
            learn(&mut calls, more);
            now_known = calls;
            changes
        })?;
        *self.known.calls() = now_known;
        Ok(())
    }

    pub(super) fn look(&self) -> Result<()> {
        self.update(|_, _| Vec::new())
    }

    /// Whether the call may go; its start is durable then.
    fn begin(&self, feed: FeedName, number: u64) -> Result<bool> {
        let Known { rule, patience, clock, process, ledger, .. } = &*self.known;
        let begun = std::cell::Cell::new(false);
        self.update(|calls, now| {
            if rule.decide(calls, now, clock.boot_id()) != Decision::Go {
                return Vec::new();
            }
            begun.set(true);
            vec![Change::Sent(FeedCall {
                id: next_id(calls),
                feed,
                by: Caller { process: process.clone(), ledger: *ledger, number },
                boot_id: clock.boot_id().to_owned(),
                sent_at: Timestamp::now(),
                sent: now,
                patience: *patience,
                end: None,
            })]
        })?;
        Ok(begun.get())
    }

    /// Calls that count and that the ledger does not know any more: somebody has removed it.
    fn lost(&self, calls: &[FeedCall], counts: impl Fn(&FeedCall) -> bool) -> Vec<Change> {
        let there: BTreeSet<Mark> = calls.iter().map(FeedCall::mark).collect();
        let known = self.known.calls();
        let lost = known.iter().filter(|call| counts(call) && !there.contains(&call.mark()));
        let numbered = (next_id(calls)..).zip(lost);
        numbered.flat_map(|(id, call)| call.as_changes(id)).collect()
    }

    fn lift_holds(&self) -> Result<()> {
        self.update(|calls, _| {
            let ends = calls.iter().filter_map(|call| Some((call.id, call.end.clone()?)));
            ends.filter(|(_, end)| !end.retry_after.is_zero())
                .map(|(id, end)| Change::Ended(id, Ended { retry_after: Duration::ZERO, ..end }))
                .collect()
        })
    }

    /// Ends of own calls that the ledger does not know yet, or knows otherwise: another process has made one up for a
    /// caller that it took for gone. What the source said holds, and the later of both times.
    fn own_ends(&self, calls: &[FeedCall]) -> Vec<Change> {
        let unwritten = self.known.unwritten();
        let own = calls.iter().filter(|call| self.known.is_own(call));
        own.filter_map(|call| {
            let mut end = unwritten.get(&call.by.number)?.clone();
            if let Some(known) = call.end.as_ref().filter(|known| known.boot_id == end.boot_id) {
                end.time = end.time.max(known.time);
                let is_known = known.time == end.time
                    && known.status == end.status
                    && known.retry_after == end.retry_after;
                if is_known {
                    return None;
                }
            }
            Some(Change::Ended(call.id, end))
        })
        .collect()
    }

    /// Writes the end of a call, and others that could not be written before.
    fn end(&self, number: u64) -> Result<()> {
        self.look()?;
        // Its start was ordered before: if it is not written now, the call was never begun.
        self.known.unwritten().remove(&number);
        Ok(())
    }
}

fn next_id(calls: &[FeedCall]) -> i64 {
    calls.iter().map(|call| call.id).max().unwrap_or(0) + 1
}

/// One thread writes starts and ends in the order in which they were ordered: so an end never
/// overtakes its start, and a call that is dropped outside any runtime can still be ended.
pub(super) struct Writer {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(keeper: Keeper) -> Result<Self> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let thread = std::thread::Builder::new()
            .name("feed-ledger".to_owned())
            .spawn(move || {
                for order in inbox {
                    match order {
                        Order::Begin(feed, number, reply) => {
                            answer(reply, keeper.begin(feed, number));
                        }
                        Order::End(number, Some(reply)) => answer(reply, keeper.end(number)),
                        Order::End(number, None) => {
                            if let Err(error) = keeper.end(number) {
                                tracing::warn!(error = error.chain(), "feed call without end");
                            }
                        }
                        Order::Look(reply) => answer(reply, keeper.look()),
                        Order::LiftHolds(reply) => answer(reply, keeper.lift_holds()),
                        Order::Flush(reply) => answer(reply, Ok(())),
                    }
                }
            })
            .map_err(|error| Error::caused(Kind::Io, "cannot start the ledger's thread", error))?;
        Ok(Writer { orders: Some(orders), thread: Some(thread) })
    }

    pub(super) fn end_unattended(&self, number: u64) {
        if let Some(orders) = &self.orders {
            // Without the thread the call stays without end, and the next start gives it one.
            let _ = orders.send(Order::End(number, None));
        }
    }

    pub(super) async fn ask<T>(&self, order: impl FnOnce(Reply<T>) -> Order) -> Result<T> {
        let gone = || Error::new(Kind::Dead, "the feed ledger's thread is gone");
        let (reply, answer) = oneshot::channel();
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(order(reply)).map_err(|_| gone())?;
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
