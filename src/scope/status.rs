//! States that the store keeps of tables and cases, and why months are due: enums with one table of
//! stored names each.

use std::fmt;

use super::names::{name_in, named_in};

/// Why a table is filled or empty (`sync.resources.status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TableStatus {
    /// It is read.
    Ok,
    /// It is read, and none of it answered in the last run.
    Failing,
    /// It answered 403.
    Forbidden,
    /// There is no such endpoint for us.
    Absent,
    /// `resources.disable` names it.
    Disabled,
}

impl TableStatus {
    const NAMES: [(TableStatus, &str); 5] = [
        (TableStatus::Ok, "ok"),
        (TableStatus::Failing, "failing"),
        (TableStatus::Forbidden, "forbidden"),
        (TableStatus::Absent, "absent"),
        (TableStatus::Disabled, "disabled"),
    ];

    /// As it stands in `sync.resources.status`.
    pub(crate) fn name(self) -> &'static str {
        name_in(&TableStatus::NAMES, self).unwrap_or_default()
    }

    /// The status of that name.
    pub(crate) fn from_name(name: &str) -> Option<TableStatus> {
        named_in(&TableStatus::NAMES, name)
    }
}

impl fmt::Display for TableStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the searches last said of a case (`sync.seen.state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// One of them shows it.
    Found,
    /// None shows it, and it exists: it is hidden, or the search lags.
    Suspect,
    /// None shows it though it was waited for.
    Hidden,
}

impl Standing {
    const NAMES: [(Standing, &str); 3] =
        [(Standing::Found, "found"), (Standing::Suspect, "suspect"), (Standing::Hidden, "hidden")];

    /// As it stands in `sync.seen.state`.
    pub(crate) fn name(self) -> &'static str {
        name_in(&Standing::NAMES, self).unwrap_or_default()
    }

    /// The standing of that name.
    pub(crate) fn from_name(name: &str) -> Option<Standing> {
        named_in(&Standing::NAMES, name)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a journal's month is to be read (`sync.journal_months.due`). The names are the words that
/// `pending` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DueReason {
    NeverFetched,
    /// It was last read before it ended: lines may have come since.
    BeforeItsEnd,
    /// It was last read before the day on which it closes (`journals.close_day`).
    BeforeItsClosing,
    /// Not every window of the last reading answered.
    Incomplete,
    /// The last answer lacked so much that it is not believed yet.
    Doubted,
    /// Its lines do not come to the platform's sum.
    OffItsSum,
    /// A sum is older than the lines that it is held against.
    Control,
    /// `casemirror journals`.
    AskedFor,
    /// `schedule.journals`
    Schedule,
    /// `schedule.journals_recheck`
    Recheck,
    /// `sync --full`
    Full,
    /// A column was added or changed.
    Redefined,
    /// Its table was not read for a while.
    Enabled,
    /// Something of it did not fit: it may have been mended.
    Rejects,
    /// A comparison found that it differs.
    Verify,
}

impl DueReason {
    const NAMES: [(DueReason, &str); 15] = [
        (DueReason::NeverFetched, "never fetched"),
        (DueReason::BeforeItsEnd, "last read before its end"),
        (DueReason::BeforeItsClosing, "last read before its close_day"),
        (DueReason::Incomplete, "incomplete"),
        (DueReason::Doubted, "doubted"),
        (DueReason::OffItsSum, "the lines do not add up to the platform's sum"),
        (DueReason::Control, "its lines were read after it"),
        (DueReason::AskedFor, "asked for"),
        (DueReason::Schedule, "schedule.journals"),
        (DueReason::Recheck, "schedule.journals_recheck"),
        (DueReason::Full, "full"),
        (DueReason::Redefined, "redefined"),
        (DueReason::Enabled, "newly permitted or enabled"),
        (DueReason::Rejects, "has open rejects"),
        (DueReason::Verify, "verify"),
    ];

    /// Whether the lines that are mirrored are believed to be what the last answer said: then an equal
    /// answer need not be decoded.
    pub(crate) fn believes_the_mirror(self) -> bool {
        match self {
            DueReason::BeforeItsEnd
            | DueReason::BeforeItsClosing
            | DueReason::Doubted
            | DueReason::Control
            | DueReason::AskedFor
            | DueReason::Schedule
            | DueReason::Recheck
            | DueReason::Enabled => true,
            DueReason::NeverFetched
            | DueReason::Incomplete
            | DueReason::OffItsSum
            | DueReason::Full
            | DueReason::Redefined
            | DueReason::Rejects
            | DueReason::Verify => false,
        }
    }

    /// Whether a round number of lines is proven to be all of them once more, though they were before. A service
    /// that gives no more at once hides what came since behind the lines that were there.
    pub(crate) fn proves_anew(self) -> bool {
        self == DueReason::Recheck || !self.believes_the_mirror()
    }

    /// As it stands in `sync.journal_months.due`.
    pub(crate) fn name(self) -> &'static str {
        name_in(&DueReason::NAMES, self).unwrap_or_default()
    }

    /// The reason of that name.
    pub(crate) fn from_name(name: &str) -> Option<DueReason> {
        named_in(&DueReason::NAMES, name)
    }
}

impl fmt::Display for DueReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use super::*;

    fn are_of_their_own<T: Copy + PartialEq + Debug>(names: &[(T, &'static str)]) {
        let mut met = BTreeSet::new();
        for (value, name) in names {
            assert_eq!(name_in(names, *value), Some(*name));
            assert_eq!(named_in(names, name), Some(*value));
            assert!(!name.is_empty() && met.insert(*name), "{name} stands for two");
        }
        assert_eq!(named_in(names, "?"), None);
    }

    #[test]
    fn every_state_has_a_name_of_its_own_and_is_read_back_from_it() {
        are_of_their_own(&TableStatus::NAMES);
        are_of_their_own(&Standing::NAMES);
        are_of_their_own(&DueReason::NAMES);
        // Without catch-all arms: what is added to an enum is added to its names.
        for (status, _) in TableStatus::NAMES {
            match status {
                TableStatus::Ok
                | TableStatus::Failing
                | TableStatus::Forbidden
                | TableStatus::Absent
                | TableStatus::Disabled => {}
            }
        }
        for (standing, _) in Standing::NAMES {
            match standing {
                Standing::Found | Standing::Suspect | Standing::Hidden => {}
            }
        }
    }
}
