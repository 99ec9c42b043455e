//! Which months of a journal may be read side by side.

use std::collections::{BTreeMap, BTreeSet};

use crate::scope::DueMonth;

/// A table, and whose journal it is.
type Journal = (String, i64);

/// What is known of how much the service answers at once.
///
/// How many days of a journal that is, is found out by failing, and a call that is too much is dear:
/// it may last as long as `limits.journal_timeout`. So of a journal of which nothing is known one
/// month is read at a time; the others begin with what that one found.
#[derive(Debug, Default)]
pub(crate) struct Exploration {
    /// Journals of which nothing is known, with a month under way.
    explored: BTreeSet<Journal>,
    /// What was found out; `None` where a month came in one call.
    found: BTreeMap<Journal, Option<u32>>,
}

fn journal_of(month: &DueMonth) -> Journal {
    (month.table.clone(), month.scope.id)
}

impl Exploration {
    /// Whether a month can begin now.
    pub(crate) fn may_begin(&self, month: &DueMonth) -> bool {
        self.explored.is_empty() || !self.explored.contains(&journal_of(month))
    }

    /// A month begins, with what the ones before it found out.
    pub(crate) fn begin(&mut self, month: &mut DueMonth) {
        let journal = journal_of(month);
        match self.found.get(&journal) {
            Some(found) => month.window_days = month.window_days.or(*found),
            None if month.complete || month.window_days.is_some() => {}
            None => drop(self.explored.insert(journal)),
        }
    }

    /// A month was read, in windows of so many days where one call was too much for it.
    pub(crate) fn was_read(&mut self, month: &DueMonth, window_days: Option<u32>) {
        let journal = journal_of(month);
        self.explored.remove(&journal);
        self.found.insert(journal, window_days);
    }

    /// A month could not be read.
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
            window_days: None,
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
        exploration.was_read(&first, Some(8));
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
        let heavy = |month| DueMonth { window_days: Some(4), ..due("b", 1, month) };
        for month in [read("2026-10"), read("2026-09"), heavy("2026-10"), heavy("2026-09")] {
            assert!(begin(&mut exploration, month).is_some());
        }
    }
}
