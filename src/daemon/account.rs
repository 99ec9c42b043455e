//! What the daemon says of its work in the log: a line for what took long, and for all the rest together one
//! now and then, so that a day fits on a few screens.

use std::time::{Duration, Instant};

use crate::cycle::Report;
use crate::mirror::{Merged, RunLog};

/// Between two lines for cycles that took little.
const EVERY: Duration = Duration::from_secs(15 * 60);
/// A cycle of this length has a line of its own.
const LONG: Duration = Duration::from_secs(60);

/// What cycles have come to since the last line.
#[derive(Debug, Default)]
pub(super) struct Account {
    said: Option<Instant>,
    sum: Line,
}

/// What a line says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Line {
    cycles: u64,
    cases: u64,
    contacts: u64,
    rows: Merged,
    calls: u64,
    took: Duration,
}

impl Line {
    /// What a cycle did.
    pub(super) fn of(report: &Report, took: Duration) -> Line {
        Line {
            cycles: 1,
            cases: report.cases_moved,
            contacts: report.contacts_moved,
            rows: RunLog::total(&report.outcome),
            calls: report.calls,
            took,
        }
    }

    fn did_something(&self) -> bool {
        let Merged { inserted, updated, deleted, .. } = self.rows;
        self.cases + self.contacts + inserted + updated + deleted > 0
    }

    fn add(&mut self, other: Line) {
        self.cycles += other.cycles;
        self.cases += other.cases;
        self.contacts += other.contacts;
        self.rows.add(other.rows);
        self.calls += other.calls;
        self.took += other.took;
    }

    /// Writes it.
    pub(super) fn log(&self) {
        let Line { cycles, cases, contacts, rows, calls, took } = *self;
        let Merged { inserted, updated, deleted, .. } = rows;
        let seconds = took.as_millis() as f64 / 1000.0;
        tracing::info!(
            cycles,
            cases,
            contacts,
            inserted,
            updated,
            deleted,
            calls,
            seconds,
            "the mirror follows the source"
        );
    }
}

impl Account {
    /// A cycle ended; the line that is due, if any. What did nothing is not counted.
    pub(super) fn add(&mut self, cycle: Line, now: Instant) -> Option<Line> {
        if !cycle.did_something() && cycle.took < LONG {
            return None;
        }
        self.sum.add(cycle);
        let is_due = self.said.is_none_or(|said| now.saturating_duration_since(said) >= EVERY);
        (is_due || cycle.took >= LONG).then(|| self.take(now)).flatten()
    }

    /// What was not said yet.
    pub(super) fn take(&mut self, now: Instant) -> Option<Line> {
        let line = std::mem::take(&mut self.sum);
        (line.cycles > 0).then(|| {
            self.said = Some(now);
            line
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cycle(cases: u64, seconds: u32) -> Line {
        Line { cycles: 1, cases, calls: 3, took: seconds * SECOND, ..Line::default() }
    }

    #[test]
    fn the_first_cycle_is_told_and_then_all_of_a_quarter_of_an_hour_in_one_line() {
        let begun = Instant::now();
        let mut account = Account::default();
        assert_eq!(account.add(cycle(1, 2), begun), Some(cycle(1, 2)));
        for n in 1..90 {
            assert_eq!(account.add(cycle(2, 1), begun + n * 10 * SECOND), None);
            assert_eq!(account.add(cycle(0, 0), begun + n * 10 * SECOND), None, "it did nothing");
        }
        let line = account.add(cycle(2, 1), begun + EVERY).unwrap();
        assert_eq!((line.cycles, line.cases, line.calls), (90, 180, 270));
        assert_eq!(account.take(begun), None);
    }

    #[test]
    fn what_took_long_is_told_at_once_with_what_came_before() {
        let begun = Instant::now();
        let mut account = Account::default();
        account.add(cycle(1, 1), begun);
        account.add(cycle(5, 1), begun + SECOND);
        let line = account.add(cycle(0, 60), begun + 100 * SECOND).unwrap();
        assert_eq!((line.cycles, line.cases), (2, 5));
        account.add(cycle(7, 1), begun + 200 * SECOND);
        assert_eq!(
            account.take(begun + 201 * SECOND).map(|line| line.cases),
            Some(7),
            "at the end"
        );
    }
}
