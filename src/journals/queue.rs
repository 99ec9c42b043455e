//! The order in which months are read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::scope::DueMonth;

/// A table, and whose journal it is.
type Journal = (String, i64);

/// Months that wait to be read.
///
/// How many days of a journal the service answers at once is found out by failing, and a call that is
/// too much is dear: it may last as long as `limits.journal_timeout`. So of a journal of which nothing
/// is known one month is read at a time; the others begin with what that one found.
#[derive(Debug)]
pub struct Queue {
    waiting: VecDeque<DueMonth>,
    /// Journals of which nothing is known, with a month under way.
    explored: BTreeSet<Journal>,
    /// What was found out; `None` where a month came in one call.
    found: BTreeMap<Journal, Option<u32>>,
}

fn journal_of(month: &DueMonth) -> Journal {
    (month.table.clone(), month.scope.id)
}

impl Queue {
    /// The months in this order.
    pub fn new(months: Vec<DueMonth>) -> Queue {
        Queue { waiting: months.into(), explored: BTreeSet::new(), found: BTreeMap::new() }
    }

    /// The next month that can begin, of a table that is read; months of others are dropped.
    pub fn take(&mut self, is_read: impl Fn(&str) -> bool) -> Option<DueMonth> {
        self.waiting.retain(|month| is_read(&month.table));
        let at = self.waiting.iter().position(|m| !self.explored.contains(&journal_of(m)))?;
        let mut month = self.waiting.remove(at)?;
        let journal = journal_of(&month);
        match self.found.get(&journal) {
            Some(found) => month.window_days = month.window_days.or(*found),
            None if month.complete || month.window_days.is_some() => {}
            None => drop(self.explored.insert(journal)),
        }
        Some(month)
    }

    /// A month was read, in windows of so many days where one call was too much for it.
    pub fn was_read(&mut self, month: &DueMonth, window_days: Option<u32>) {
        let journal = journal_of(month);
        self.explored.remove(&journal);
        self.found.insert(journal, window_days);
    }

    /// A month could not be read.
    pub fn failed(&mut self, month: &DueMonth) {
        self.explored.remove(&journal_of(month));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JournalLevel;
    use crate::scope::JournalScope;

    fn due(table: &str, id: i64, month: &str) -> DueMonth {
        let month = month.parse().unwrap();
        DueMonth {
            table: table.to_owned(),
            scope: JournalScope { level: JournalLevel::Offices, id, month },
            reason: "never fetched".to_owned(),
            complete: false,
            window_days: None,
        }
    }

    fn shown(month: Option<DueMonth>) -> String {
        month.map_or("-".to_owned(), |m| format!("{} {:?}", m.scope, m.window_days))
    }

    #[test]
    fn of_an_unknown_journal_one_month_explores_what_the_others_begin_with() {
        let months = vec![due("a", 1, "2026-10"), due("a", 2, "2026-10"), due("a", 1, "2026-09")];
        let mut queue = Queue::new(months);
        let first = queue.take(|_| true).unwrap();
        assert_eq!(shown(queue.take(|_| true)), "offices/2/2026-10 None");
        assert_eq!(shown(queue.take(|_| true)), "-");
        queue.was_read(&first, Some(8));
        assert_eq!(shown(queue.take(|_| true)), "offices/1/2026-09 Some(8)");
        assert_eq!(shown(queue.take(|_| true)), "-");
    }

    #[test]
    fn a_month_that_fails_leaves_the_exploring_to_the_next() {
        let mut queue = Queue::new(vec![due("a", 1, "2026-10"), due("a", 1, "2026-09")]);
        let first = queue.take(|_| true).unwrap();
        queue.failed(&first);
        assert_eq!(shown(queue.take(|_| true)), "offices/1/2026-09 None");
    }

    #[test]
    fn known_journals_are_read_side_by_side() {
        let read = |month| DueMonth { complete: true, ..due("a", 1, month) };
        let heavy = |month| DueMonth { window_days: Some(4), ..due("b", 1, month) };
        let mut queue = Queue::new(vec![
            read("2026-10"),
            read("2026-09"),
            heavy("2026-10"),
            heavy("2026-09"),
            due("c", 1, "2026-10"),
        ]);
        for _ in 0..4 {
            assert!(queue.take(|table| table != "c").is_some());
        }
        assert_eq!(shown(queue.take(|table| table != "c")), "-");
    }
}
