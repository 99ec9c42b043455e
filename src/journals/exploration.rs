//! Which months of a journal may be read side by side.

use std::collections::{BTreeMap, BTreeSet};

use crate::scope::DueMonth;

/// A table, and whose journal it is.
type Journal = (String, i64);

/// What is known of how much the service answers at once.
///
/// How many days of a journal that is, is found out by failing, and a call that is too much is dear:
/// it may last as long as `limits.journal_timeout`. So of a journal of which nothing is known one
/// month is read at a time; the others begin with what that one found. So it is when more is tried
/// than was answered before, until that is too much.
#[derive(Debug, Default)]
pub(crate) struct Exploration {
    /// Journals of which nothing is known, or more is tried, with a month under way.
    explored: BTreeSet<Journal>,
    /// What was found out; `None` where a month came in one call.
    found: BTreeMap<Journal, Option<u32>>,
    /// Journals of which more was tried than the service answers.
    too_much: BTreeSet<Journal>,
}

fn journal_of(month: &DueMonth) -> Journal {
    (month.table.clone(), month.scope.id)
}

/// Twice as many days; all of them from where that is a month.
fn larger(days: u32) -> Option<u32> {
    const SHORTEST_MONTH: u32 = 28;
    Some(days.saturating_mul(2)).filter(|days| *days < SHORTEST_MONTH)
}

/// Whether so many days at once are more than so many; `None`: all of them.
pub(crate) fn is_more(days: Option<u32>, than: Option<u32>) -> bool {
    days.unwrap_or(u32::MAX) > than.unwrap_or(u32::MAX)
}

impl Exploration {
    /// Whether a month can begin now.
    pub(crate) fn may_begin(&self, month: &DueMonth) -> bool {
        self.explored.is_empty() || !self.explored.contains(&journal_of(month))
    }

    /// A month begins, with what the ones before it found out, or with more than is known.
    pub(crate) fn begin(&mut self, month: &mut DueMonth) {
        let journal = journal_of(month);
        let found = self.found.get(&journal).copied();
        match (month.known_days, found) {
            (Some(known), found) if month.may_be_larger && !self.too_much.contains(&journal) => {
                let best = found.map_or(Some(known), |found| found.map(|days| days.max(known)));
                month.window_days = best.and_then(larger);
                self.explored.insert(journal);
            }
            (Some(known), _) => month.window_days = Some(known),
            (None, Some(found)) => month.window_days = found,
            (None, None) if month.complete => {}
            (None, None) => drop(self.explored.insert(journal)),
        }
    }

    /// A month was read, in windows of so many days where one call was too much for it. `too_much`: it
    /// was asked in larger ones at first.
    pub(crate) fn was_read(&mut self, month: &DueMonth, window_days: Option<u32>, too_much: bool) {
        let journal = journal_of(month);
        self.explored.remove(&journal);
        if too_much {
            self.too_much.insert(journal.clone());
        }
        self.found.insert(journal, window_days);
    }

    /// A month could not be read, or not to its end.
    pub(crate) fn failed(&mut self, month: &DueMonth) {
        self.explored.remove(&journal_of(month));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JournalLevel;
    use crate::scope::{DueReason, JournalScope};

    fn due(table: &str, id: i64, month: &str) -> DueMonth {
        let month = month.parse().unwrap();
        DueMonth {
            table: table.to_owned(),
            scope: JournalScope { level: JournalLevel::Offices, id, month },
            reason: DueReason::NeverFetched,
            complete: false,
            known_days: None,
            may_be_larger: false,
            window_days: None,
            digest: None,
            mirrored: None,
            is_proven: false,
        }
    }

    /// Begins a month where it may; with how many days at once.
    fn begin(exploration: &mut Exploration, mut month: DueMonth) -> Option<Option<u32>> {
        exploration.may_begin(&month).then(|| {
            exploration.begin(&mut month);
            month.window_days
        })
    }

    #[test]
    fn of_an_unknown_journal_one_month_explores_what_the_others_begin_with() {
        let mut exploration = Exploration::default();
        let first = due("a", 1, "2026-10");
        assert_eq!(begin(&mut exploration, first.clone()), Some(None));
        assert_eq!(begin(&mut exploration, due("a", 2, "2026-10")), Some(None), "another journal");
        assert_eq!(begin(&mut exploration, due("a", 1, "2026-09")), None);
        exploration.was_read(&first, Some(8), true);
        assert_eq!(begin(&mut exploration, due("a", 1, "2026-09")), Some(Some(8)));
        assert_eq!(begin(&mut exploration, due("a", 1, "2026-08")), Some(Some(8)));
    }

    #[test]
    fn a_month_that_fails_leaves_the_exploring_to_the_next() {
        let mut exploration = Exploration::default();
        let first = due("a", 1, "2026-10");
        begin(&mut exploration, first.clone());
        exploration.failed(&first);
        assert_eq!(begin(&mut exploration, due("a", 1, "2026-09")), Some(None));
        assert_eq!(begin(&mut exploration, due("a", 1, "2026-08")), None);
    }

    #[test]
    fn known_journals_are_read_side_by_side() {
        let mut exploration = Exploration::default();
        let read = |month| DueMonth { complete: true, ..due("a", 1, month) };
        let heavy = |month| DueMonth { known_days: Some(4), ..due("b", 1, month) };
        for month in [read("2026-10"), read("2026-09"), heavy("2026-10"), heavy("2026-09")] {
            assert!(begin(&mut exploration, month).is_some());
        }
    }
    #[test]
    fn more_is_tried_by_one_month_after_the_other_until_it_is_too_much() {
        let mut exploration = Exploration::default();
        let known = |month| DueMonth {
            known_days: Some(2),
            may_be_larger: true,
            complete: true,
            ..due("a", 1, month)
        };
        let first = known("2026-10");
        assert_eq!(begin(&mut exploration, first.clone()), Some(Some(4)));
        assert_eq!(begin(&mut exploration, known("2026-09")), None);
        exploration.was_read(&first, Some(4), false);
        assert_eq!(begin(&mut exploration, first.clone()), Some(Some(8)));
        exploration.was_read(&first, Some(4), true);
        assert_eq!(begin(&mut exploration, known("2026-09")), Some(Some(2)));
        assert_eq!(begin(&mut exploration, known("2026-08")), Some(Some(2)));
    }

    #[test]
    fn windows_grow_up_to_whole_months() {
        let grown = std::iter::successors(Some(1), |days| larger(*days));
        assert_eq!(grown.collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert!(is_more(None, Some(16)) && is_more(Some(2), Some(1)));
        assert!(!is_more(None, None) && !is_more(Some(16), None));
    }
}
