//! What the lake has of the daemon's own state: the tables that reports read, and of these the columns.

/// A table of the daemon's own state that reports read.
pub(super) struct State {
    name: &'static str,
    /// The columns that tell its rows apart; without any, two rows are one only where all of them are equal.
    pub(super) key: &'static [&'static str],
    /// What else of it reports want to know; `None`: everything. What moves whenever a case is read again would make
    /// each publishing as long as the mirror is large.
    others: Option<&'static [&'static str]>,
    /// Rows are only added to it, each with a key of its own: their other columns are not compared.
    pub(super) only_added: bool,
}

impl State {
    const fn whole(name: &'static str) -> State {
        State { name, key: &[], others: None, only_added: false }
    }

    const fn some(
        name: &'static str,
        key: &'static [&'static str],
        others: &'static [&'static str],
    ) -> State {
        State { name, key, others: Some(others), only_added: false }
    }

    const fn only_added(name: &'static str, key: &'static [&'static str]) -> State {
        State { name, key, others: None, only_added: true }
    }

    /// That of this name.
    pub(super) fn of(name: &str) -> Option<&'static State> {
        STATE.iter().find(|state| state.name == name)
    }

    /// Whether the lake has this column of it.
    pub(super) fn has(&self, column: &str) -> bool {
        self.others.is_none_or(|others| self.key.contains(&column) || others.contains(&column))
    }
}

const STATE: [State; 18] = [
    State::whole("closings"),
    State::whole("earlier_statuses"),
    State::whole("failures"),
    State::some("fetched_cases", &["case_id"], &["coverage", "mark"]),
    State::some("fetched_coverage", &["coverage", "table_name"], &[]),
    State::some("fetched_marks", &["table_name"], &["forgotten"]),
    State::some("fetched_scopes", &["table_name", "id", "part"], &["complete", "mark"]),
    State::only_added("first_reads", &["table_name", "read_at"]),
    State::whole("freshness"),
    State::whole("journal_months"),
    State::whole("journal_scopes"),
    State::whole("left_scopes"),
    State::whole("meta"),
    State::whole("rejects"),
    State::whole("resources"),
    State::whole("restatements"),
    State::some("seen", &["case_id"], &["removed"]),
    State::whole("snapshot"),
];

/// The names of all of them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    STATE.iter().map(|state| state.name)
}
