//! What of the changes a run has planned, and what of that it has tried in vain (pure).

use std::collections::HashMap;

use crate::scope::{CaseState, FailureKind, Stale};

/// How far a run has planned what polls moved.
#[derive(Debug)]
pub(super) struct Planned {
    /// A poll, and of its cases the last one.
    up_to: (i64, i64),
    /// Scopes that failed in this run, with what had been planned by then.
    tried: HashMap<(String, i64), i64>,
}

impl Planned {
    /// What polls up to this number moved was planned before.
    pub(crate) fn new(handled: i64) -> Planned {
        Planned { up_to: (handled, i64::MAX), tried: HashMap::new() }
    }

    /// What polls up to this number moved has been planned whole.
    pub(crate) fn handled(&self) -> i64 {
        match self.up_to {
            (poll, i64::MAX) => poll,
            (poll, _) => poll - 1,
        }
    }

    /// The last poll and case that were planned.
    pub(crate) fn last(&self) -> (i64, i64) {
        self.up_to
    }

    /// Planned up to this case of a poll; of `None`: all of it.
    pub(crate) fn set(&mut self, poll: i64, case: Option<i64>) {
        self.up_to = (poll, case.unwrap_or(i64::MAX));
    }

    /// All that was seen up to this poll is planned.
    pub(crate) fn covers(&mut self, poll: i64) {
        self.up_to = self.up_to.max((poll, i64::MAX));
    }

    /// A scope failed; one that waits for the search may be tried again in this run.
    pub(crate) fn failed(&mut self, table: &str, id: i64, kind: FailureKind) {
        if !kind.passes_within_a_run() {
            self.tried.insert((table.to_owned(), id), self.handled());
        }
    }

    /// The guard held what these scopes would have removed.
    pub(crate) fn held(&mut self, scopes: &[(String, i64)]) {
        let handled = self.handled();
        self.tried.extend(scopes.iter().map(|scope| (scope.clone(), handled)));
    }

    /// Whether a scope failed in this run.
    pub(crate) fn has_failed(&self, table: &str, id: i64) -> bool {
        self.tried.contains_key(&(table.to_owned(), id))
    }

    /// Whether a scope failed in this run, and its case has not moved since: a run tries it once, and
    /// leaves it to the next.
    pub(crate) fn was_tried(&self, case: &CaseState, stale: &Stale) -> bool {
        let tried = || self.tried.get(&(stale.table.clone(), stale.id));
        !self.tried.is_empty() && tried().is_some_and(|handled| case.moved <= *handled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_handled_when_the_last_of_its_cases_is_planned() {
        let mut planned = Planned::new(3);
        assert_eq!(planned.handled(), 3);
        planned.set(5, Some(17));
        assert_eq!((planned.handled(), planned.last()), (4, (5, 17)));
        planned.covers(4);
        assert_eq!(planned.last(), (5, 17), "nothing is planned twice");
        planned.covers(5);
        assert_eq!(planned.handled(), 5);
    }

    #[test]
    fn what_waits_for_the_search_may_be_tried_again() {
        let mut planned = Planned::new(3);
        planned.failed("cases", 17, FailureKind::Lag);
        planned.failed("cases", 18, FailureKind::Incomplete);
        assert!(!planned.has_failed("cases", 17) && planned.has_failed("cases", 18));
    }
}
