//! The rule of the lease, as functions of values. Times are spans since the machine was started, sleep included.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::record::{Host, Party, Record, Waiting};

/// A waiter that was not heard of for so many spans of validity is let go.
const FORGOTTEN_AFTER: u32 = 10;
/// Who cannot reach the register goes on alone only while it tries: its last attempt is no older than this. A machine
/// that was asleep looks before it calls.
const TRIED_WITHIN: Duration = Duration::from_secs(60);

/// What a host knows of the lease, and does about it.
#[derive(Debug)]
pub(crate) struct Tenure {
    me: Party,
    valid_for: Duration,
    /// How long who takes the lease makes no call: until nothing that the holder before sent can arrive, and a window
    /// more.
    settling: Duration,
    held: Option<Held>,
    /// Somebody else has held it since this began.
    saw_others: bool,
    /// The record as it was last read, and since when its holder has not changed it.
    seen: Option<(Record, Duration)>,
    /// Those who wait, with the last beat of each and when it came.
    waiters: BTreeMap<Host, (u64, Duration)>,
    /// My own last beat, and when that was.
    beat: Option<(u64, Duration)>,
    /// When the last attempt began that did not reach the register, since one did.
    failed_at: Option<Duration>,
    /// The register lets nobody hold a lease, as it last said when this attempt began: the feeds are asked without one.
    without_from: Option<Duration>,
}

/// Since I hold it.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// When the last writing that succeeded was begun.
    fresh_from: Option<Duration>,
    /// Somebody may take it when it is not renewed.
    contended: bool,
    /// `None`: it is settled.
    settles_at: Option<Duration>,
}

/// Whether the feeds may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stand {
    /// They are ours.
    Ours,
    /// Nobody can hold the lease, so that nobody guards them.
    Unguarded,
    /// They will be, when what others had under way is over.
    Settling,
    /// Another host asks them.
    Others { holder: String, renewed_at: Timestamp, silent_for: Duration, takes_over: bool },
    /// The register cannot be reached, and somebody else may ask them.
    Unknown,
}

impl Stand {
    /// Whether the feeds may be asked.
    pub(crate) fn may_ask(&self) -> bool {
        matches!(self, Stand::Ours | Stand::Unguarded)
    }
}

impl Tenure {
    /// `alone`: this host held the lease when it last reached the register, in this boot, and nobody else waited; or
    /// it never reached it.
    pub(crate) fn new(me: Party, valid_for: Duration, settling: Duration, alone: bool) -> Tenure {
        let held = Held { fresh_from: None, contended: false, settles_at: None };
        Tenure {
            me,
            valid_for,
            settling,
            held: alone.then_some(held),
            saw_others: false,
            seen: None,
            waiters: BTreeMap::new(),
            beat: None,
            failed_at: None,
            without_from: None,
        }
    }

    /// What is to be written after `found` was read; `None`: nothing. `announces`: this host waits for its turn, and
    /// does not just look.
    pub(crate) fn turn(
        &mut self,
        now: Duration,
        found: Option<&Record>,
        announces: bool,
    ) -> Option<Record> {
        self.failed_at = None;
        self.see(now, found);
        let Some(found) = found else {
            self.held = None;
            return Some(self.take(Vec::new()));
        };
        if found.holder.host == self.me.host {
            if self.saw_others && self.held.is_none() {
                // I had lost it: whoever brought this back, others may have called meanwhile.
                return Some(self.take(found.waiting.clone()));
            }
            return Some(self.renew(now, found));
        }
        self.held = None;
        if self.is_elsewhere(found) {
            self.without_from = None;
        }
        self.saw_others = true;
        if self.may_take(now, found) {
            return Some(self.take(found.waiting.clone()));
        }
        announces.then(|| self.announce(now, found)).flatten()
    }

    /// What was to be written is written; `began`: when that was begun.
    pub(crate) fn wrote(&mut self, began: Duration, now: Duration, record: &Record) {
        self.without_from = None;
        if record.holder.host != self.me.host {
            return;
        }
        let settles_at = match self.held {
            _ if record.settled => None,
            Some(Held { settles_at: Some(at), .. }) if record.renewal > 0 => Some(at),
            _ => Some(now + self.settling),
        };
        let contended = !record.acknowledged.is_empty();
        self.held = Some(Held { fresh_from: Some(began), contended, settles_at });
    }

    /// What was to be written could not be, because nobody can write there as a lease is written, in an attempt that began
    /// then. Where another machine holds the lease all the same, or was told that this one gives way to it, that goes before.
    pub(crate) fn unsupported(&mut self, began: Duration) {
        let is_anothers = self.seen.as_ref().is_some_and(|(record, _)| {
            self.is_elsewhere(record) || !record.acknowledged.is_empty()
        });
        self.without_from = (!is_anothers).then_some(began);
    }

    /// The register could not be read or written in an attempt that began then. `alone`: as far as this machine knows,
    /// no other process of it has told others since that it would give way.
    pub(crate) fn failed(&mut self, began: Duration, alone: bool) {
        self.failed_at = Some(began);
        self.without_from = self.without_from.map(|_| began);
        if let Some(held) = &mut self.held {
            held.contended |= !alone;
        }
    }

    /// Whether the feeds may be asked now.
    pub(crate) fn stand(&self, now: Duration) -> Stand {
        let tries = |since: Option<Duration>| since.is_some_and(|at| now < at + TRIED_WITHIN);
        if tries(self.without_from) {
            return Stand::Unguarded;
        }
        if let Some(held) = self.held {
            let is_fresh = held.fresh_from.is_some_and(|from| now < from + self.valid_for);
            let tries = tries(self.failed_at);
            // Nobody takes it from a host that knew of nobody.
            let is_alone = !held.contended && tries;
            return match (is_fresh || is_alone, held.settles_at) {
                (false, _) => Stand::Unknown,
                (true, None) => Stand::Ours,
                (true, Some(_)) => Stand::Settling,
            };
        }
        match &self.seen {
            Some((record, since)) if record.holder.host != self.me.host && !record.released => {
                Stand::Others {
                    holder: record.holder.name.clone(),
                    renewed_at: record.renewed_at,
                    silent_for: now.saturating_sub(*since),
                    takes_over: self.is_known_to(record),
                }
            }
            _ => Stand::Unknown,
        }
    }

    /// When `Ours` ends if nothing is written until then; `None`: not by itself.
    pub(crate) fn ends_at(&self) -> Option<Duration> {
        Some(self.held?.fresh_from? + self.valid_for)
    }

    /// Whether I hold it, and nobody else waits for it; or nobody can hold it.
    pub(crate) fn is_alone(&self) -> bool {
        self.without_from.is_some()
            || self.held.is_some_and(|held| !held.contended && held.settles_at.is_none())
    }

    /// How long until the register is to be looked at again.
    pub(crate) fn pause(&self, now: Duration) -> Duration {
        let often = self.valid_for / 6;
        match self.held {
            _ if self.without_from.is_some() => self.valid_for,
            Some(Held { settles_at: Some(at), .. }) => {
                at.saturating_sub(now).clamp(often / 4, self.valid_for / 3)
            }
            Some(_) if self.failed_at.is_none() => self.valid_for / 3,
            _ => often,
        }
    }

    fn see(&mut self, now: Duration, found: Option<&Record>) {
        let unchanged = match (&self.seen, found) {
            (Some((before, since)), Some(found)) if before.is_held_as(found) => Some(*since),
            _ => None,
        };
        self.seen = found.map(|found| (found.clone(), unchanged.unwrap_or(now)));
        let waiting = found.map_or(&[][..], |found| &found.waiting);
        self.waiters.retain(|host, _| waiting.iter().any(|w| w.party.host == *host));
        for Waiting { party, beat } in waiting {
            let known = self.waiters.entry(party.host.clone()).or_insert((*beat, now));
            if known.0 != *beat {
                *known = (*beat, now);
            }
        }
    }

    fn may_take(&self, now: Duration, found: &Record) -> bool {
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let valid = found.valid_for();
        // A tenth more: no two clocks run alike.
        let is_silent = now.saturating_sub(since) >= valid + valid / 10;
        found.released || is_silent && (!self.is_elsewhere(found) || self.is_known_to(found))
    }

    /// Whether another machine holds it.
    fn is_elsewhere(&self, found: &Record) -> bool {
        !found.released && found.holder.host.machine != self.me.host.machine
    }

    fn is_known_to(&self, record: &Record) -> bool {
        record.acknowledged.contains(&self.me.host)
    }

    fn take(&mut self, mut waiting: Vec<Waiting>) -> Record {
        waiting.retain(|waiting| waiting.party.host != self.me.host);
        Record::taken(self.me.clone(), self.valid_for, waiting)
    }

    fn renew(&mut self, now: Duration, found: &Record) -> Record {
        let longest = self.valid_for * FORGOTTEN_AFTER;
        let mut waiting = found.waiting.clone();
        waiting.retain(|waiting| {
            let since = self.waiters.get(&waiting.party.host).map_or(now, |(_, since)| *since);
            waiting.party.host != self.me.host && now.saturating_sub(since) < longest
        });
        let acknowledged: Vec<Host> =
            waiting.iter().map(|waiting| waiting.party.host.clone()).collect();
        // Another process of this host may have left it unsettled, or taken it anew.
        let settles_at = match self.held.and_then(|held| held.settles_at) {
            Some(at) => Some(at),
            None if found.settled => None,
            None => Some(now + self.settling),
        };
        let before = self.held.unwrap_or(Held { fresh_from: None, contended: false, settles_at });
        // Before it is written: whether it was is not always known.
        let contended = before.contended || !acknowledged.is_empty();
        self.held = Some(Held { contended, settles_at, ..before });
        let settled = settles_at.is_none_or(|at| now >= at);
        let taken = Record::taken(self.me.clone(), self.valid_for, waiting);
        taken.renewing(found, settled, acknowledged)
    }

    /// A beat of mine, where the last one is a while ago or was lost.
    fn announce(&mut self, now: Duration, found: &Record) -> Option<Record> {
        let is_there = found.waiting.iter().any(|waiting| waiting.party.host == self.me.host);
        let (last, at) = self.beat.unwrap_or((0, now));
        if is_there && self.beat.is_some() && now < at + self.valid_for {
            return None;
        }
        self.beat = Some((last + 1, now));
        let mut record = found.clone();
        record.waiting.retain(|waiting| waiting.party.host != self.me.host);
        record.waiting.push(Waiting { party: self.me.clone(), beat: last + 1 });
        Some(record)
    }
}

#[cfg(test)]
mod tests;
