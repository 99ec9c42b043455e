//! The rule of the feed's throttle, as functions of values
//! (docs/architecture.md, "The throttle ledger"): which calls still count, and when the next one
//! may go.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::boot::{BootClock, BootTime, Fate};
use crate::error::Result;
use crate::scope::FeedName;

/// A call to one of the change feeds: a row of `sync.feed_calls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedCall {
    /// Counts up from 1, whoever makes the calls.
    pub(crate) id: i64,
    pub(crate) feed: FeedName,
    pub(crate) by: Caller,
    /// The boot that `sent` belongs to; once the call has ended, the boot of its end.
    pub(crate) boot_id: String,
    pub(crate) sent_at: Timestamp,
    pub(crate) sent: BootTime,
    /// How long its caller waits for the answer at most.
    pub(crate) patience: Duration,
    /// `None`: it has not ended, as far as is known.
    pub(crate) end: Option<Ended>,
}

/// By what a call is known again. Numbers are given by each ledger anew; but no two calls are begun within
/// one microsecond, because each waits until the one before is on the disk.
pub(super) type Mark = (i64, &'static str);

impl FeedCall {
    pub(super) fn mark(&self) -> Mark {
        (self.sent_at.as_microsecond(), self.feed.as_str())
    }

    /// Calls the boot of its times by the name that it has here, where it is this one.
    pub(super) fn tell_by(&mut self, clock: &dyn BootClock) {
        let boots = self.end.as_mut().map(|end| &mut end.boot_id).into_iter();
        for boot in boots.chain([&mut self.boot_id]) {
            if clock.is_this_boot(boot) {
                clock.boot_id().clone_into(boot);
            }
        }
    }

    /// What makes a ledger know it, as number `id`.
    pub(super) fn as_changes(&self, id: i64) -> impl Iterator<Item = Change> {
        let sent = Change::Sent(FeedCall { id, end: None, ..self.clone() });
        let ended = self.end.clone().map(|end| Change::Ended(id, end));
        [Some(sent), ended].into_iter().flatten()
    }
}

/// Who makes a call, and which of the caller's own it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Caller {
    /// Of the process: [`super::process::this`].
    pub(crate) process: String,
    /// Drawn at random by each open ledger.
    pub(crate) ledger: u64,
    /// Counts up within the open ledger.
    pub(crate) number: u64,
}

/// The end of a call to the feed: after it the call cannot arrive at the source any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The boot that `time` belongs to.
    pub(crate) boot_id: String,
    pub(crate) at: Timestamp,
    pub(crate) time: BootTime,
    /// The answer's status; `None` when no answer came.
    pub(crate) status: Option<u16>,
    /// How long after the end no call to the feeds goes: because the source said so, or because too many in a
    /// row did not come back. Zero for neither.
    pub(crate) retry_after: Duration,
}

/// Something that becomes known of the calls.
#[derive(Debug, Clone)]
pub enum Change {
    /// A call is sent as soon as this is durable.
    Sent(FeedCall),
    /// The call of this number has ended, or its end is told by another boot's clock now.
    Ended(i64, Ended),
}

impl Change {
    /// Makes it known.
    pub(crate) fn apply(&self, calls: &mut Vec<FeedCall>) {
        match self {
            Change::Sent(call) => calls.push(call.clone()),
            Change::Ended(id, end) => {
                if let Some(call) = calls.iter_mut().find(|call| call.id == *id) {
                    call.boot_id.clone_from(&end.boot_id);
                    call.end = Some(end.clone());
                }
            }
        }
    }
}

/// Where the calls to the feed are kept.
pub trait LedgerStore: Send + Sync {
    /// Shows `step` the calls that are known and keeps what it finds, alone among all who share the
    /// ledger. It blocks until that is durable.
    ///
    /// # Errors
    /// `Io`, `DiskFull`, `Store`: what was found may not be kept, and no call is to be sent.
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()>;

    /// The newest calls that are remembered elsewhere, and those of them without an end: the ledger may
    /// have been lost.
    ///
    /// # Errors
    /// `Store`.
    fn remembered(&self, _newest: usize) -> Result<Vec<FeedCall>> {
        Ok(Vec::new())
    }

    /// Whether nobody is left to end a call of another open ledger; `None`: that cannot be told.
    fn is_gone(&self, call: &FeedCall) -> Option<bool>;
}

/// A ledger that dies with the process and that nobody shares: for what needs no store, and for tests.
#[derive(Debug, Default)]
pub(crate) struct MemoryLedger {
    calls: Mutex<Vec<FeedCall>>,
}

impl MemoryLedger {
    /// Without any call.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// All calls so far, in order of their ids.
    #[cfg(test)]
    pub(crate) fn calls(&self) -> Vec<FeedCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LedgerStore for MemoryLedger {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        step(&calls).iter().for_each(|change| change.apply(&mut calls));
        Ok(())
    }

    fn is_gone(&self, _call: &FeedCall) -> Option<bool> {
        Some(true)
    }
}

/// What the source allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// Calls in any window.
    pub(crate) limit: u32,
    pub(crate) window: Duration,
    /// No `Retry-After` holds the feed longer, but for a window, which every refusal holds.
    pub(crate) longest_hold: Duration,
}

/// Whether a call to the feed may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Go,
    /// Not before this has passed; then decide again.
    Wait(Duration),
}

impl Rule {
    /// Decides whether another call may go `now`: when fewer than `limit` calls have not ended or ended
    /// less than a window ago, and no refusal holds the feed back.
    ///
    /// An arrival at the source lies between start and end, so no window ever sees more than `limit`
    /// arrivals, whatever the latency. Calls of another boot than `boot_id` have no age here and count
    /// as ended this moment: see [`adopt`].
    pub(crate) fn decide(&self, calls: &[FeedCall], now: BootTime, boot_id: &str) -> Decision {
        let limit = usize::try_from(self.limit.max(1)).unwrap_or(usize::MAX);
        let ended = |call: &FeedCall| match &call.end {
            Some(end) if end.boot_id == boot_id => self.believed(end.time, now),
            Some(_) | None => now,
        };
        let mut free: Vec<BootTime> = calls
            .iter()
            .map(|call| ended(call).later_by(self.window))
            .filter(|free| *free > now)
            .collect();
        free.sort_unstable();
        let by_count = if free.len() < limit { now } else { free[free.len() - limit] };
        let by_retry_after = calls
            .iter()
            .filter_map(|call| {
                let hold = self.hold(call.end.as_ref()?);
                (!hold.is_zero()).then(|| ended(call).later_by(hold))
            })
            .max()
            .unwrap_or(now);
        let go_at = by_count.max(by_retry_after);
        if go_at <= now { Decision::Go } else { Decision::Wait(go_at.since(now)) }
    }

    /// How long after its end the source wants no call, as far as that is obeyed.
    fn hold(&self, end: &Ended) -> Duration {
        end.retry_after.min(self.longest_hold.max(self.window))
    }

    /// Whether a call may still make another one wait.
    pub(super) fn counts(&self, call: &FeedCall, now: BootTime, boot_id: &str) -> bool {
        call.end.as_ref().is_none_or(|end| {
            end.boot_id != boot_id || end.time.later_by(self.window.max(self.hold(end))) > now
        })
    }

    /// An end lies a window in the future at most (a call that was given up: see `Ledger`). What lies
    /// further was written by a clock that is not ours.
    fn believed(&self, end: BootTime, now: BootTime) -> BootTime {
        end.min(now.later_by(self.window))
    }
}

/// Gives ends to the calls that nobody else ends; returns what became known by that.
///
/// A call without an end whose caller is gone ends `now`, and `grace` later nothing of it arrives; a caller that lives
/// ends it itself. A call that ended by another boot's clock has no age by ours:
/// - Where that boot is over, it counts as ended now, or, where a later call of this one is known, when that one was
///   sent, because the process that made the earlier one was gone by then.
/// - Where nothing of that boot runs any more, it counts as ended now.
/// - Where something of it may run, it counts as ended when it was `met` first as it is: whatever end stands in the
///   ledger was there before. That is known to this process alone, and no change: written, it would be another boot's
///   end to the process whose clock it was told by, which would write it anew, and so on, and no call would ever age.
///
/// A call that was given up may have an end that is still to come, `grace` after it was written at most.
pub(crate) fn adopt(
    calls: &mut [FeedCall],
    now: BootTime,
    grace: Duration,
    boot_id: &str,
    is_gone: impl Fn(&FeedCall) -> bool,
    fate: impl Fn(&str) -> Fate,
    met: impl Fn(&FeedCall) -> BootTime,
) -> Vec<Change> {
    calls.sort_unstable_by_key(|call| call.id);
    let late = now.later_by(grace);
    let mut changes = Vec::new();
    // From the newest on, the earliest time of this boot at which a later call is known.
    let mut gone_by = late;
    for call in calls.iter_mut().rev() {
        let end = match &call.end {
            Some(end) if end.boot_id == boot_id => {
                gone_by = gone_by.min(end.time);
                continue;
            }
            Some(end) => {
                let fate = fate(&end.boot_id);
                let to_come = if end.status.is_none() { grace } else { Duration::ZERO };
                let time = match fate {
                    Fate::Over => gone_by,
                    Fate::Ended => now.later_by(to_come),
                    Fate::MayLive => met(call).later_by(to_come),
                };
                let end = Ended { boot_id: boot_id.to_owned(), time, ..end.clone() };
                if fate == Fate::MayLive {
                    call.boot_id.clone_from(&end.boot_id);
                    call.end = Some(end);
                    continue;
                }
                end
            }
            None => {
                if call.boot_id == boot_id {
                    gone_by = gone_by.min(call.sent);
                }
                if !is_gone(call) {
                    continue;
                }
                // However old it is: its process may have stood still before it sent it, as when the machine sleeps.
                ended(boot_id, late)
            }
        };
        call.boot_id.clone_from(&end.boot_id);
        call.end = Some(end.clone());
        changes.push(Change::Ended(call.id, end));
    }
    changes
}

/// A call ended without an answer.
fn ended(boot_id: &str, time: BootTime) -> Ended {
    let retry_after = Duration::ZERO;
    Ended { boot_id: boot_id.to_owned(), at: Timestamp::now(), time, status: None, retry_after }
}
