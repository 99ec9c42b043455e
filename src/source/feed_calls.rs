//! The rule of the feed's throttle, as functions of values
//! (docs/architecture.md, "The throttle ledger"): which calls still count, and when the next one
//! may go.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::boot::BootTime;
use crate::error::Result;
use crate::scope::FeedName;

/// How far in the future an end may lie: the grace of an aborted call (see `Ledger`). What lies
/// further was written by a clock that is not ours.
const FARTHEST_END: Duration = Duration::from_secs(1);

/// A call to one of the change feeds: a row of `sync.feed_calls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedCall {
    /// Counts up from 1, across restarts.
    pub(crate) id: i64,
    pub(crate) feed: FeedName,
    /// The boot that `sent` belongs to; once the call has ended, the boot of its end.
    pub(crate) boot_id: String,
    pub(crate) sent_at: Timestamp,
    pub(crate) sent: BootTime,
    /// `None`: it has not ended, as far as is known.
    pub(crate) end: Option<Ended>,
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
    /// How long after the end the source wants no call to the feeds; zero when it said nothing.
    pub(crate) retry_after: Duration,
}

/// Where the calls to the feed are kept. All methods block until what they did is durable; they are
/// called one at a time, from a thread of the ledger's own.
pub trait LedgerStore: Send + Sync {
    /// Every call that has no end, and the newest of the others by id: the `newest` last ones at least.
    fn recent(&self, newest: usize) -> Result<Vec<FeedCall>>;

    /// Adds a call without end. It is durable before the call is sent.
    fn begin(&self, call: &FeedCall) -> Result<()>;

    /// Writes a call's end, its `boot_id` included (it replaces the one of the start).
    fn end(&self, id: i64, ended: &Ended) -> Result<()>;
}

/// A ledger that dies with the process: for what needs no store, and for tests.
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
    pub(crate) fn calls(&self) -> Vec<FeedCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LedgerStore for MemoryLedger {
    fn recent(&self, _newest: usize) -> Result<Vec<FeedCall>> {
        Ok(self.calls())
    }

    fn begin(&self, call: &FeedCall) -> Result<()> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        Ok(())
    }

    fn end(&self, id: i64, ended: &Ended) -> Result<()> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = calls.iter_mut().find(|call| call.id == id) {
            call.boot_id.clone_from(&ended.boot_id);
            call.end = Some(ended.clone());
        }
        Ok(())
    }
}

/// Whether a call to the feed may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Go,
    /// Not before this has passed; then decide again.
    Wait(Duration),
}

/// Decides whether another call may go `now`: when fewer than `limit` calls have not ended or ended
/// less than `per` ago, and no refusal holds the feed back.
///
/// An arrival at the source lies between start and end, so no window of `per` ever sees more than
/// `limit` arrivals, whatever the latency. Calls of another boot than `boot_id` have no age here and
/// count as ended this moment: see [`adopt`].
pub(crate) fn decide(
    calls: &[FeedCall],
    now: BootTime,
    boot_id: &str,
    limit: u32,
    per: Duration,
) -> Decision {
    let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
    let ended = |call: &FeedCall| match &call.end {
        Some(end) if end.boot_id == boot_id => end.time.min(now.later_by(FARTHEST_END)),
        Some(_) | None => now,
    };
    let mut free: Vec<BootTime> =
        calls.iter().map(|call| ended(call).later_by(per)).filter(|free| *free > now).collect();
    free.sort_unstable();
    let by_count = if free.len() < limit { now } else { free[free.len() - limit] };
    let by_retry_after = calls
        .iter()
        .filter_map(|call| call.end.as_ref().map(|end| ended(call).later_by(end.retry_after)))
        .max()
        .unwrap_or(now);
    let go_at = by_count.max(by_retry_after);
    if go_at <= now { Decision::Go } else { Decision::Wait(go_at.since(now)) }
}

/// What a start of the program makes of the calls it finds.
///
/// Nobody is left to end a call that has no end: it ends now. A call of another boot has no age: it
/// counts as ended now too, or, where a later call of this boot is known, when that one was sent,
/// because the process that made the earlier one was gone by then. The calls whose end is new in
/// the first sense have to be written down; their ids are returned.
pub(crate) fn adopt(
    calls: &mut [FeedCall],
    now: BootTime,
    at: Timestamp,
    boot_id: &str,
) -> Vec<(i64, Ended)> {
    calls.sort_unstable_by_key(|call| call.id);
    let mut written = Vec::new();
    // From the newest on, the earliest time of this boot at which a later call is known.
    let mut gone_by = now;
    for call in calls.iter_mut().rev() {
        match &mut call.end {
            Some(end) if end.boot_id == boot_id => {
                end.time = end.time.min(now.later_by(FARTHEST_END));
                gone_by = gone_by.min(end.time);
            }
            Some(end) => {
                end.time = gone_by;
                boot_id.clone_into(&mut end.boot_id);
                boot_id.clone_into(&mut call.boot_id);
            }
            None => {
                if call.boot_id == boot_id {
                    gone_by = gone_by.min(call.sent);
                }
                let boot_id = boot_id.to_owned();
                let ended =
                    Ended { boot_id, at, time: now, status: None, retry_after: Duration::ZERO };
                call.boot_id.clone_from(&ended.boot_id);
                call.end = Some(ended.clone());
                written.push((call.id, ended));
            }
        }
    }
    written
}
