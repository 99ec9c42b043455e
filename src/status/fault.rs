//! Which texts tell of the same fault: problems of now and of earlier runs are kept as texts for people.

use crate::cycle::table_and_cause;

const RUN: &str = "the last run (";
const RUN_FAILED: &str = ") failed: ";

/// What is said of a run that failed.
pub(super) fn failed_run_text(command: &str, error: &str) -> String {
    format!("{RUN}{command}{RUN_FAILED}{error}")
}

/// What went wrong, as far as it is told apart from other things.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    /// What cannot be read.
    pub(crate) table: Option<String>,
    /// Why, without what differs each time: see [`shape`].
    cause: String,
}

impl Fault {
    /// What a problem of the status, or of a run, tells of.
    pub(crate) fn of(problem: &str) -> Fault {
        let of_run = problem.strip_prefix(RUN).and_then(|rest| rest.split_once(RUN_FAILED));
        let problem = of_run.map_or(problem, |(_, error)| error);
        match table_and_cause(problem) {
            Some((table, cause)) => Fault::of_table(table, cause),
            None => Fault { table: None, cause: shape(problem) },
        }
    }

    /// What keeps a table from being read.
    pub(crate) fn of_table(table: &str, cause: &str) -> Fault {
        Fault { table: Some(table.to_owned()), cause: shape(cause) }
    }

    /// What a call met with: the end of `GET ... failed (attempt 5 of 5): it answered 500`. A source that is
    /// down meets the calls of all tables alike.
    pub(crate) fn met(&self) -> Option<&str> {
        Fault::met_in(&self.cause)
    }

    /// The same of a text.
    pub(crate) fn met_in(text: &str) -> Option<&str> {
        let (_, attempts) = text.split_once(" failed (attempt ")?;
        attempts.split_once("): ").map(|(_, met)| met)
    }

    /// Whether a line of what waits (`costs (3 scopes): why`) tells of it.
    pub(crate) fn is_why(&self, waits: &str) -> bool {
        let table = waits.split(" (").next();
        self.table.as_deref() == table && shape(waits).contains(&self.cause)
    }
}

/// A text with `#` in the place of each word that has a digit: counts, ids, times and attempts are others each time.
fn shape(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let end = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        let own = if end.contains(|c: char| c.is_ascii_digit()) { "#" } else { end };
        shape.push_str(own);
        shape.push_str(&word[end.len()..]);
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_numbers_and_ids_alone_tell_of_one_fault() {
        let first = "costs: 12 scopes failed and will be tried again: GET /api/Cases/17/Costs failed \
                     (attempt 5 of 5, after 0.3 s): it answered 500";
        let later = "costs: 1 scope failed and will be tried again: GET /api/Cases/1018/Costs failed \
                     (attempt 2 of 5, after 12.8 s): it answered 500";
        assert_eq!(Fault::of(first), Fault::of(later));
        let failing = "costs is failing: GET /api/Cases/3/Costs failed (attempt 1 of 5, after 1.0 s): it \
                       answered 500";
        assert_eq!(Fault::of(failing), Fault::of(later));
        for other in [
            later.replace("costs", "notes"),
            later.replace("Costs", "Notes"),
            "the disk of the store fills: 2 GiB are free".to_owned(),
        ] {
            assert_ne!(Fault::of(&other), Fault::of(first), "{other}");
        }
        assert_eq!(Fault::of(&failed_run_text("sync", later)), Fault::of(first));
        let waits = later.replace("1 scope failed and will be tried again", "x");
        let waits = waits.replace("costs: x", "costs (3 scopes)") + "; and for other reasons";
        assert!(Fault::of(first).is_why(&waits), "{waits}");
        assert!(!Fault::of(first).is_why(&waits.replace("costs", "notes")));
        assert!(!Fault::of(first).is_why("costs (3 scopes): changed"));
        assert_eq!(Fault::of(first).met(), Some("it answered #"));
        assert_eq!(Fault::of("the disk is full").met(), None);
        let lost = Fault::of("no answer to 3f1c9a2e-aaaa-4bbb: lost");
        assert_eq!(lost, Fault::of("no answer to 77e01b22-aaaa-1bbb: lost"));
    }
}
