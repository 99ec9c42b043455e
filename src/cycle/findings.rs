//! What a run has found out about its tables (pure).

use std::collections::{BTreeMap, BTreeSet};

/// Scopes of a table that may fail in a run before any is read.
pub(crate) const MOST_FAILURES: u32 = 20;

/// Which tables answered in a run, and which did not.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Some scope of these was read.
    answered: BTreeSet<String>,
    /// Some scope of these failed, and why the first did.
    failed: BTreeMap<String, String>,
    /// These are wrong as a whole, whatever else of them was read, and why.
    wrong: BTreeMap<String, String>,
    failures: BTreeMap<String, u32>,
}

impl Findings {
    /// Something of a table was read.
    pub(crate) fn answered(&mut self, table: &str) {
        if !self.answered.contains(table) {
            self.answered.insert(table.to_owned());
        }
    }

    pub(crate) fn has_answered(&self, table: &str) -> bool {
        self.answered.contains(table)
    }

    /// Counts a failure of a table as so many; the table is failing when nothing else of it is read in
    /// this run.
    pub(crate) fn failed(&mut self, table: &str, weight: u32, why: &str) {
        self.failed.entry(table.to_owned()).or_insert_with(|| why.to_owned());
        *self.failures.entry(table.to_owned()).or_default() += weight;
    }

    /// What all of a table may not be read is no failure of each.
    pub(crate) fn forget_failure(&mut self, table: &str) {
        self.failed.remove(table);
    }

    /// A table is wrong as a whole.
    pub(crate) fn wrong(&mut self, table: &str, why: &str) {
        self.wrong.insert(table.to_owned(), why.to_owned());
    }

    /// Whether a table fails so often in this run that the rest of it is left for the next one: each
    /// scope of a service that answers nothing but errors costs all of its repetitions.
    pub(crate) fn gives_up(&self, table: &str) -> bool {
        !self.answered.contains(table)
            && self.failures.get(table).is_some_and(|n| *n >= MOST_FAILURES)
    }

    /// At the end of a run: the tables that failed and why, and those that answered and are not wrong.
    pub(crate) fn take(&mut self) -> (BTreeMap<String, String>, BTreeSet<String>) {
        let Findings { mut answered, mut failed, wrong, .. } = std::mem::take(self);
        answered.retain(|table| !wrong.contains_key(table));
        failed.extend(wrong);
        (failed, answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_given_up_when_many_of_it_failed_and_none_answered() {
        let mut findings = Findings::default();
        findings.failed("costs", MOST_FAILURES - 1, "500");
        assert!(!findings.gives_up("costs"));
        findings.failed("costs", 1, "502");
        assert!(findings.gives_up("costs") && !findings.gives_up("notes"));
        findings.answered("costs");
        assert!(!findings.gives_up("costs"));
    }

    #[test]
    fn a_table_that_is_wrong_has_failed_whatever_of_it_answered() {
        let mut findings = Findings::default();
        findings.answered("cases");
        findings.answered("costs");
        findings.failed("costs", 1, "500");
        findings.wrong("cases", "another id");
        let (failed, answered) = findings.take();
        assert_eq!(failed.keys().collect::<Vec<_>>(), ["cases", "costs"]);
        assert_eq!(answered.iter().collect::<Vec<_>>(), ["costs"]);
    }
}
