//! Which months of the journals the schedules want, and which the next run reads
//! (docs/architecture.md, "Journals").

use std::collections::BTreeSet;

use duckdb::Connection;
use jiff::Timestamp;

use super::due::Due;
use crate::config::{Config, JournalLevel};
use crate::error::Result;
use crate::mirror::{FIRST_MONTH, RunLog, State};
use crate::schedule::Name;
use crate::scope::{DueReason, Month, REVENUE_SUMS, first_month, months_back};

/// Of so many months back, this one included, at least one has reached its `close_day`.
const MOST_MONTHS_TO_CLOSE_DAY: u32 = 3;

/// What the schedules want of the journals.
pub(super) struct Wanted {
    pub(crate) ids: Vec<i64>,
    pub(crate) first: Month,
    /// From the first month on.
    pub(crate) all: Vec<Month>,
    pub(crate) trailing: Vec<Month>,
    pub(crate) recheck: Vec<Month>,
    /// The newest month that closes by itself and whose `close_day` has come.
    pub(crate) closes: Option<Month>,
    /// `schedule.journals` is due.
    pub(crate) scheduled: bool,
    /// `schedule.journals_recheck` is due.
    pub(crate) rechecked: bool,
}

impl Wanted {
    pub(crate) fn of(conn: &Connection, config: &Config, due: &Due) -> Result<Wanted> {
        let settings = &config.journals;
        let zone = &config.source.time_zone;
        let now = due.at.unwrap_or_else(Timestamp::now);
        let current = Month::at(now, zone);
        let fixed = State::new(conn).meta(FIRST_MONTH)?.and_then(|text| text.parse().ok());
        let first = match (settings.since, fixed) {
            (Some(day), _) => Month::of(day),
            (None, Some(fixed)) => fixed,
            (None, None) => first_month(now, zone),
        };
        let last = |count| months_back(current, count).filter(|month| *month >= first).collect();
        Ok(Wanted {
            ids: journal_ids(conn, config, &[])?,
            first,
            all: months_from(first, current),
            trailing: last(settings.trailing_months),
            recheck: last(settings.recheck_months),
            closes: months_back(current, MOST_MONTHS_TO_CLOSE_DAY)
                .find(|month| month.closes_at(settings.close_day, zone) <= now),
            scheduled: due.has(Name::Journals),
            rechecked: due.has(Name::JournalsRecheck),
        })
    }

    /// Makes due what the schedules ask for, of these tables; the months of `all`, of which some cannot be
    /// read, are in the store too: they should be there.
    pub(crate) fn note(
        &self,
        conn: &Connection,
        (level, at): (JournalLevel, Timestamp),
        tables: &[String],
        all: &[String],
    ) -> Result<()> {
        let state = State::new(conn);
        // The months before are due by `schedule.journals` alone.
        if self.scheduled || state.meta(FIRST_MONTH)?.is_none() {
            state.set_meta(FIRST_MONTH, &self.first.to_string())?;
        }
        state.wanted_months().leave_other_journals(level, &self.ids)?;
        // What is due is in the store from here on: the schedules have done their part.
        let ran = [(self.scheduled, Name::Journals), (self.rechecked, Name::JournalsRecheck)];
        for (_, name) in ran.iter().filter(|(ran, _)| *ran && !self.ids.is_empty()) {
            RunLog::new(conn).set_schedule(name.as_str(), at)?;
        }
        if self.rechecked {
            let why = Some(DueReason::Recheck);
            let (sums, journals): (Vec<_>, Vec<_>) =
                tables.iter().cloned().partition(|table| table == REVENUE_SUMS);
            state.months().months_are_due(&journals, level, &self.ids, &self.recheck, why)?;
            for table in &sums {
                state.months().synced_months_are_due(table, DueReason::Recheck)?;
            }
            state.months().rejected_months_are_due()?;
        }
        if self.scheduled {
            state.months().months_are_due(all, level, &self.ids, &self.all, None)?;
            let why = Some(DueReason::Schedule);
            state.months().months_are_due(tables, level, &self.ids, &self.trailing, why)?;
            if let Some(last) = self.closes {
                state.months().months_to_close_are_due(tables, level, last)?;
            }
        }
        Ok(())
    }
}

/// The months of a journal's table that the next run reads: those that are due by the store, and those
/// that the schedules make due. Beside them how many failed and wait for their next attempt.
///
/// # Errors
/// Those of the store.
pub(crate) fn planned_months(
    conn: &Connection,
    config: &Config,
    due: &Due,
    table: &str,
) -> Result<(BTreeSet<(i64, Month)>, u64)> {
    let state = State::new(conn);
    let level = config.journals.level;
    let now = due.at.unwrap_or_else(Timestamp::now);
    let noted = state.months().due_months(&[table.to_owned()], level, now)?;
    let mut planned: BTreeSet<(i64, Month)> =
        noted.into_iter().map(|due| (due.scope.id, due.scope.month)).collect();
    let wanted = Wanted::of(conn, config, due)?;
    let known = state.months().known_months(table, level)?;
    let of_all = |months: &[Month]| -> Vec<(i64, Month)> {
        wanted.ids.iter().flat_map(|id| months.iter().map(|month| (*id, *month))).collect()
    };
    if wanted.scheduled || wanted.rechecked {
        planned.retain(|(id, _)| wanted.ids.contains(id));
    }
    if wanted.rechecked && table == REVENUE_SUMS {
        let complete =
            known.iter().filter(|((id, _), complete)| **complete && wanted.ids.contains(id));
        planned.extend(complete.map(|(month, _)| *month));
    } else if wanted.rechecked {
        planned.extend(of_all(&wanted.recheck));
    }
    if wanted.scheduled {
        planned.extend(of_all(&wanted.trailing));
        let early = state.months().months_read_too_early(table, level, now)?;
        let is_due = |month: &(i64, Month)| !known.contains_key(month) || early.contains(month);
        planned.extend(of_all(&wanted.all).into_iter().filter(is_due));
        if let Some(last) = wanted.closes {
            let open = state.months().months_to_close(table, level, last)?;
            planned.extend(open.into_iter().filter(|(id, _)| wanted.ids.contains(id)));
        }
    }
    // A schedule does not shorten their wait.
    let mut waiting = state.months().waiting_months(table, level, now)?;
    waiting.retain(|(id, _)| wanted.ids.contains(id));
    planned.retain(|month| !waiting.contains(month));
    Ok((planned, waiting.len() as u64))
}

/// Whose journals are read: those that are named, else those of the configuration, else all that are
/// known.
pub(super) fn journal_ids(conn: &Connection, config: &Config, named: &[i64]) -> Result<Vec<i64>> {
    if named.is_empty() {
        State::new(conn).wanted_months().wanted_ids(&config.journals)
    } else {
        Ok(named.to_vec())
    }
}

/// From the first month to the last, both included.
pub(super) fn months_from(first: Month, last: Month) -> Vec<Month> {
    std::iter::successors(Some(first), |month| Some(month.plus(1)))
        .take_while(|month| *month <= last)
        .collect()
}
