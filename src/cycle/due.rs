//! What a run has to do beside following the changes.

use std::collections::BTreeSet;

use duckdb::Connection;
use jiff::{SignedDuration, Timestamp};

use super::{LISTING_DUE, Options};
use crate::config::{Config, Reread};
use crate::error::Result;
use crate::mirror::{RunLog, State};
use crate::schedule::{self, LastRuns, Name};

/// Key of `sync.meta`: when what `schedule.reconcile` reads again was read without it being done, in microseconds.
const REREAD_AT: &str = "reread_at";

/// What is due in a run, decided at its start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Due {
    /// The schedules that fell due.
    pub(crate) schedules: BTreeSet<Name>,
    /// All cases are listed: by `schedule.reconcile`, at first, or for `--full`.
    pub(crate) listing: bool,
    /// `schedule.reconcile` reads the feeds of the last days and what changed again: also where the cases cannot be listed,
    /// but no more than once for each time that it falls due.
    reread: bool,
    /// When this was decided. A schedule that falls due again during a long run runs again after it.
    pub(crate) at: Option<Timestamp>,
}

impl Due {
    /// Decides what is due by the store on `conn`.
    ///
    /// # Errors
    /// Those of the store, and of [`schedule::due`].
    pub(crate) fn of(
        config: &Config,
        conn: &Connection,
        options: &Options,
        now: Timestamp,
    ) -> Result<Due> {
        let first = is_first(conn, options)?;
        if options.is_partial() {
            return Ok(Due { listing: first, ..Due::default() });
        }
        let mut schedules = schedule::due(&config.schedule, &last_runs(conn, now)?, now)?;
        if options.postpone_listing {
            schedules.remove(&Name::Reconcile);
            return Ok(Due { schedules, at: Some(now), ..Due::default() });
        }
        // An interrupted --full lists again without the flag.
        let interrupted = State::new(conn).meta(LISTING_DUE)?.is_some_and(|why| !why.is_empty());
        let listing = first || options.full || interrupted || schedules.contains(&Name::Reconcile);
        let reread = schedules.contains(&Name::Reconcile) && !was_reread(config, conn, now)?;
        Ok(Due { schedules, listing, reread, at: Some(now) })
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.schedules.contains(&name)
    }

    /// Whether there is more to do than following the changes.
    pub(super) fn takes_long(&self) -> bool {
        self.listing || !self.schedules.is_empty()
    }

    /// Whether the feeds of the last days are read again.
    pub(super) fn rereads_feeds(&self) -> bool {
        self.reread
    }

    /// Whether `schedule.reconcile` re-reads what changed.
    pub(crate) fn rereads(&self, config: &Config) -> bool {
        self.reread && config.reconcile.reread != Reread::Off
    }

    /// Notes that both was done, in a run in which the cases could not be listed.
    pub(super) fn note_reread(&self, conn: &Connection) -> Result<()> {
        let at = self.at.map_or(String::new(), |at| at.as_microsecond().to_string());
        State::new(conn).set_meta(REREAD_AT, &at)
    }

    /// Notes what was done.
    pub(super) fn note(&self, conn: &Connection) -> Result<()> {
        let Some(at) = self.at else { return Ok(()) };
        let log = RunLog::new(conn);
        for name in Name::ALL {
            if name == Name::Reconcile && self.has(name) {
                State::new(conn).set_meta(REREAD_AT, "")?;
            }
            // The others count as just run the first time (docs/architecture.md, "What is due").
            if self.has(name) || log.schedule(name.as_str())?.is_none() {
                log.set_schedule(name.as_str(), at)?;
            }
        }
        Ok(())
    }
}

/// Whether what `schedule.reconcile` reads again was read since it fell due, though the cases could not be listed.
fn was_reread(config: &Config, conn: &Connection, now: Timestamp) -> Result<bool> {
    let at = State::new(conn).meta(REREAD_AT)?.and_then(|at| at.parse().ok());
    let Some(at) = at.and_then(|us| Timestamp::from_microsecond(us).ok()) else { return Ok(false) };
    let since = LastRuns::from([(Name::Reconcile, believed(at, now))]);
    Ok(!schedule::due(&config.schedule, &since, now)?.contains(&Name::Reconcile))
}

/// Whether the cases are listed because they never were.
///
/// # Errors
/// Those of the store.
pub(super) fn is_first(conn: &Connection, options: &Options) -> Result<bool> {
    // A partial run runs no schedule, but without any listing it knows no case.
    let lists = !options.is_partial() || options.cases.is_empty() && options.wants("cases");
    Ok(lists && !options.postpone_listing && !State::new(conn).standings().are_listed()?)
}

/// A run noted further ahead than this was noted by a clock that was wrong.
const LARGEST_STEP: SignedDuration = SignedDuration::from_mins(5);

/// When each schedule last ran. Of one that ran at a time that has not come yet it is not known when: it is due.
///
/// # Errors
/// Those of the store.
pub(crate) fn last_runs(conn: &Connection, now: Timestamp) -> Result<LastRuns> {
    let log = RunLog::new(conn);
    let mut last = LastRuns::new();
    for name in Name::ALL {
        if let Some(at) = log.schedule(name.as_str())? {
            last.insert(name, believed(at, now));
        }
    }
    Ok(last)
}

/// A time that our clock has told, as far as it can be: long ago where it lies ahead.
fn believed(at: Timestamp, now: Timestamp) -> Timestamp {
    if at.duration_since(now) > LARGEST_STEP { Timestamp::UNIX_EPOCH } else { at.min(now) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn a_schedule_that_ran_at_a_time_that_has_not_come_yet_is_due() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let conn = fixture::store(None, 2026..=2026);
        let log = RunLog::new(&conn);
        for (name, minutes) in
            [(Name::Journals, -60), (Name::Verify, 4), (Name::Reference, 60 * 24 * 40)]
        {
            log.set_schedule(name.as_str(), now + SignedDuration::from_mins(minutes)).unwrap();
        }
        let last = last_runs(&conn, now).unwrap();
        assert_eq!(last[&Name::Journals], now - SignedDuration::from_mins(60));
        assert_eq!(last[&Name::Verify], now, "two clocks of one machine differ");
        assert!(last[&Name::Reference] < now - SignedDuration::from_hours(24 * 366 * 8));
    }
}
