//! Cron expressions in their zone: when a schedule is due (pure).
//!
//! Occurrences are looked for on the wall clock, as if it were never changed, and then placed in time.
//! So each local time that an expression names runs once: one that a clock change skips runs as long
//! after the change as it stood behind it (02:30 at 03:30), one that it repeats runs in its first pass
//! (docs/architecture.md, "What is due").

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::config::{self, Cron};
use crate::error::{Error, Kind, Result};

/// No clock change moves the wall clock further, and none follows another sooner.
const LARGEST_CHANGE: Duration = Duration::from_secs(3 * 3600);
/// Occurrences that may be passed over because they lie in the past: those of a repeated hour, one a
/// second.
const MOST_PASSED: usize = 4 * 3600;
/// Occurrences that are looked at for the longest time between two.
const MOST_COMPARED: usize = 5_000;

/// The schedules (docs/architecture.md, "What is due").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Reference,
    Journals,
    JournalsRecheck,
    Reconcile,
    Verify,
}

impl Name {
    /// All of them.
    pub(crate) const ALL: [Name; 5] =
        [Name::Reference, Name::Journals, Name::JournalsRecheck, Name::Reconcile, Name::Verify];

    /// As in the configuration and in `sync.schedules`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Name::Reference => "reference",
            Name::Journals => "journals",
            Name::JournalsRecheck => "journals_recheck",
            Name::Reconcile => "reconcile",
            Name::Verify => "verify",
        }
    }

    /// Due in the very first run; the others count as just run then
    /// (docs/architecture.md, "What is due").
    fn runs_at_first(self) -> bool {
        matches!(self, Name::Reference | Name::Journals)
    }

    fn cron(self, schedules: &config::Schedule) -> &Cron {
        match self {
            Name::Reference => &schedules.reference,
            Name::Journals => &schedules.journals,
            Name::JournalsRecheck => &schedules.journals_recheck,
            Name::Reconcile => &schedules.reconcile,
            Name::Verify => &schedules.verify,
        }
    }
}

/// When each schedule last ran; one that never did is missing.
pub(crate) type LastRuns = std::collections::BTreeMap<Name, Timestamp>;

/// The schedules that fell due by `now`. One that was missed several times is due once.
///
/// # Errors
/// Those of [`next`].
pub(crate) fn due(
    schedules: &config::Schedule,
    last: &LastRuns,
    now: Timestamp,
) -> Result<BTreeSet<Name>> {
    let mut due = BTreeSet::new();
    for name in Name::ALL {
        let fell = match last.get(&name) {
            None => name.runs_at_first(),
            Some(last) => next(name.cron(schedules), &schedules.time_zone, *last)? <= now,
        };
        if fell {
            due.insert(name);
        }
    }
    Ok(due)
}

/// When the next schedule falls due; may lie in the past. `None` while none ever ran.
///
/// # Errors
/// Those of [`next`].
pub(crate) fn next_of_all(
    schedules: &config::Schedule,
    last: &LastRuns,
) -> Result<Option<Timestamp>> {
    let mut soonest: Option<Timestamp> = None;
    for (name, last) in last {
        let at = next(name.cron(schedules), &schedules.time_zone, *last)?;
        soonest = Some(soonest.map_or(at, |soonest| soonest.min(at)));
    }
    Ok(soonest)
}

/// Whether a schedule falls due after `from` and by `to`.
///
/// # Errors
/// Those of [`next`].
pub(crate) fn falls_due_within(
    schedules: &config::Schedule,
    last: &LastRuns,
    from: Timestamp,
    to: Timestamp,
) -> Result<bool> {
    for (name, last) in last {
        let at = next(name.cron(schedules), &schedules.time_zone, *last)?;
        if at > from && at <= to {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first time after `last` at which the expression fires.
///
/// # Errors
/// `Kind::Config` when it never does.
pub(crate) fn next(cron: &Cron, zone: &TimeZone, last: Timestamp) -> Result<Timestamp> {
    // A clock change shortly before `last` may have moved earlier local times behind it.
    let earlier = last.checked_sub(LARGEST_CHANGE).unwrap_or(last);
    let here = zone.to_datetime(last);
    let unchanged = zone.to_offset(earlier).to_datetime(last);
    let mut wall = here.min(unchanged);
    let mut soonest: Option<(DateTime, Timestamp)> = None;
    for _ in 0..MOST_PASSED {
        let local = next_on_the_wall(cron, wall)?;
        // What stands behind the soonest on the wall clock can still come before it, but only where a
        // change moved that one.
        if let Some((found, at)) = soonest
            && (zone.to_datetime(at) == found || local >= zone.to_datetime(at))
        {
            return Ok(at);
        }
        let at = place(zone, local)?;
        if at > last && soonest.is_none_or(|(_, soonest)| at < soonest) {
            soonest = Some((local, at));
        }
        wall = local;
    }
    soonest.map(|(_, at)| at).ok_or_else(|| never(cron, "no time lies after the last one"))
}

fn next_on_the_wall(cron: &Cron, wall: DateTime) -> Result<DateTime> {
    cron.next_after(wall).ok_or_else(|| never(cron, &format!("there is no such day after {wall}")))
}

/// A local time that does not exist moves forward by the change, one that comes twice is the first.
fn place(zone: &TimeZone, local: DateTime) -> Result<Timestamp> {
    zone.to_ambiguous_timestamp(local).compatible().map_err(|e| {
        Error::caused(Kind::Config, format!("the local time {local} is out of range"), e)
    })
}

fn never(cron: &Cron, why: &str) -> Error {
    Error::new(Kind::Config, format!("the schedule {cron} never fires: {why}"))
}

/// The longest that a schedule ever rests, as far as a year and so many occurrences show it.
///
/// # Errors
/// Those of [`next`].
pub(crate) fn longest_rest(schedules: &config::Schedule, name: Name) -> Result<SignedDuration> {
    longest_between(name.cron(schedules), &schedules.time_zone)
}

fn longest_between(cron: &Cron, zone: &TimeZone) -> Result<SignedDuration> {
    // Always the same year: the answer does not depend on the day on which it is asked.
    let begin = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(56 * 365 * 24);
    let end = begin + SignedDuration::from_hours(366 * 24);
    let mut last = next(cron, zone, begin)?;
    let mut longest = SignedDuration::ZERO;
    for _ in 0..MOST_COMPARED {
        let at = next(cron, zone, last)?;
        longest = longest.max(at.duration_since(last));
        last = at;
        if last >= end {
            break;
        }
    }
    Ok(longest)
}

/// How long to sleep until `at`; no longer than `longest`, because a clock that is set or a machine
/// that was suspended makes any longer sleep wrong.
pub(crate) fn nap(now: Timestamp, at: Timestamp, longest: Duration) -> Duration {
    let left: SignedDuration = at.duration_since(now);
    Duration::try_from(left).unwrap_or_default().min(longest)
}

#[cfg(test)]
mod tests;
