//! What the daemon says of its cycles in the log: one line for each that did something, as long as a day of
//! them fits on a few screens; where they come faster, several share a line.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cycle::Report;
use crate::mirror::Merged;

/// So many lines may follow each other at once,
const AT_ONCE: u32 = 20;
/// and for the time after that there is one in so long: some hundred lines a day at most.
const EVERY: Duration = Duration::from_secs(15 * 60);
/// A cycle of this length has a line of its own, however many there were.
const LONG: Duration = Duration::from_secs(5 * 60);
/// Tables that are named of many.
const MOST_TABLES: usize = 4;

/// What cycles have come to since the last line, and how many lines there may be now.
#[derive(Debug)]
pub(super) struct Account {
    lines: u32,
    /// When the next one is added to them.
    next: Option<Instant>,
    sum: Line,
}

/// What a line says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    cycles: u64,
    cases: u64,
    contacts: u64,
    tables: BTreeMap<String, Merged>,
    calls: u64,
    took: Duration,
}

impl Line {
    /// What a cycle did; `moved`: the cases and contacts that polls found changed beside it.
    pub(super) fn of(report: &Report, moved: (u64, u64), took: Duration) -> Line {
        let changed = report.outcome.tables.iter().filter(|(_, rows)| rows.changed());
        Line {
            cycles: 1,
            cases: report.cases_moved + moved.0,
            contacts: report.contacts_moved + moved.1,
            tables: changed.map(|(table, rows)| (table.clone(), *rows)).collect(),
            calls: report.calls,
            took,
        }
    }

    fn did_something(&self) -> bool {
        self.cases + self.contacts > 0 || !self.tables.is_empty()
    }

    fn add(&mut self, other: Line) {
        self.cycles += other.cycles;
        self.cases += other.cases;
        self.contacts += other.contacts;
        for (table, rows) in other.tables {
            self.tables.entry(table).or_default().add(rows);
        }
        self.calls += other.calls;
        self.took += other.took;
    }

    /// Writes it.
    pub(super) fn log(&self) {
        let Line { cycles, cases, contacts, calls, .. } = *self;
        let mut rows = Merged::default();
        self.tables.values().for_each(|of_table| rows.add(*of_table));
        let Merged { inserted, updated, deleted, .. } = rows;
        let seconds = self.took.as_millis() as f64 / 1000.0;
        let tables = self.named();
        tracing::info!(
            cycles,
            cases,
            contacts,
            inserted,
            updated,
            deleted,
            tables,
            calls,
            seconds,
            "the mirror follows the source"
        );
    }

    /// `activities 12, cases 3`: where most rows changed; the others are counted.
    fn named(&self) -> String {
        let count = |rows: &Merged| rows.inserted + rows.updated + rows.deleted;
        let mut all: Vec<(&str, u64)> =
            self.tables.iter().map(|(table, rows)| (table.as_str(), count(rows))).collect();
        all.sort_by_key(|(table, rows)| (std::cmp::Reverse(*rows), *table));
        let named = all.iter().take(MOST_TABLES).map(|(table, rows)| format!("{table} {rows}"));
        let mut words: Vec<String> = named.collect();
        if all.len() > MOST_TABLES {
            words.push(format!("{} more", all.len() - MOST_TABLES));
        }
        words.join(", ")
    }
}

impl Default for Account {
    fn default() -> Account {
        Account { lines: AT_ONCE, next: None, sum: Line::default() }
    }
}

impl Account {
    /// A cycle ended; the line that is due, if any. What did nothing is not counted.
    pub(super) fn add(&mut self, cycle: Line, now: Instant) -> Option<Line> {
        let is_long = cycle.took >= LONG;
        if cycle.did_something() || is_long {
            self.sum.add(cycle);
        }
        if is_long { self.take() } else { self.due(now) }
    }

    /// The line that could not be written at once and is due now.
    pub(super) fn due(&mut self, now: Instant) -> Option<Line> {
        while let Some(next) = self.next.filter(|next| *next <= now) {
            self.lines += 1;
            self.next = (self.lines < AT_ONCE).then(|| next + EVERY);
        }
        if self.sum.cycles == 0 || self.lines == 0 {
            return None;
        }
        self.lines -= 1;
        self.next.get_or_insert(now + EVERY);
        self.take()
    }

    /// What was not said yet.
    pub(super) fn take(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.sum);
        (line.cycles > 0).then_some(line)
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
    fn each_cycle_that_does_something_has_a_line_and_one_that_does_nothing_has_none() {
        let begun = Instant::now();
        let mut account = Account::default();
        // A day of a small brokerage: every twenty minutes something.
        for n in 0..72 {
            let at = begun + n * 1200 * SECOND;
            assert_eq!(account.add(cycle(1, 2), at), Some(cycle(1, 2)), "{n}");
            assert_eq!(account.add(cycle(0, 0), at + SECOND), None);
            assert_eq!(account.due(at + 2 * SECOND), None);
        }
    }

    #[test]
    fn a_day_of_changes_every_few_seconds_fits_on_a_few_screens_and_nothing_of_it_is_lost() {
        let begun = Instant::now();
        let mut account = Account::default();
        let (mut lines, mut cases) = (0, 0);
        for n in 0..8_640 {
            let at = begun + n * 10 * SECOND;
            let said = account.due(at).into_iter().chain(account.add(cycle(2, 1), at));
            said.for_each(|line| (lines, cases) = (lines + 1, cases + line.cases));
        }
        assert_eq!(cases + account.take().map_or(0, |line| line.cases), 2 * 8_640);
        assert!((100..=120).contains(&lines), "{lines}");
    }

    #[test]
    fn what_could_not_be_said_at_once_is_said_without_another_cycle() {
        let begun = Instant::now();
        let mut account = Account::default();
        let said = (0..21).filter(|_| account.add(cycle(1, 1), begun).is_some()).count();
        assert_eq!(said, 20);
        assert_eq!(account.due(begun + EVERY - SECOND), None);
        assert_eq!(account.due(begun + EVERY), Some(cycle(1, 1)));
        assert_eq!(account.due(begun + 9 * EVERY), None);
    }

    #[test]
    fn what_took_long_is_told_at_once_with_what_came_before() {
        let begun = Instant::now();
        let mut account = Account { lines: 0, next: Some(begun + EVERY), sum: Line::default() };
        account.add(cycle(5, 1), begun + SECOND);
        let line = account.add(cycle(0, 300), begun + 400 * SECOND).unwrap();
        assert_eq!((line.cycles, line.cases), (2, 5));
        account.add(cycle(7, 1), begun + 500 * SECOND);
        assert_eq!(account.take().map(|line| line.cases), Some(7), "at the end");
    }

    #[test]
    fn tables_are_named_where_most_changed() {
        let rows = |updated| Merged { updated, ..Merged::default() };
        let of = |tables: &[(&str, u64)]| Line {
            tables: tables.iter().map(|(table, n)| ((*table).to_owned(), rows(*n))).collect(),
            ..Line::default()
        };
        assert_eq!(of(&[]).named(), "");
        assert_eq!(of(&[("cases", 1), ("activities", 12)]).named(), "activities 12, cases 1");
        let many = of(&[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 1)]);
        assert_eq!(many.named(), "e 5, d 4, c 3, b 2, 2 more");
    }
}
