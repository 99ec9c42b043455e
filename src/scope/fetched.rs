//! What was read of a scope.

use std::fmt;

use super::names::{name_in, named_in};

/// A row of `sync.fetched`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The change dates that it was fetched at; nothing where no answer says what holds.
    pub(crate) version: Option<String>,
    pub(crate) status: FetchStatus,
    pub(crate) complete: bool,
    /// When it is to be searched again whatever its dates, in microseconds of our clock.
    pub(crate) again_at: Option<i64>,
    pub(crate) fetched_at: i64,
    pub(crate) digest: Option<AnswerDigest>,
}

/// By what a complete answer is known again: of its bytes, and of what decides how they are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AnswerDigest(u64);

impl AnswerDigest {
    pub(crate) fn new(digest: u64) -> AnswerDigest {
        AnswerDigest(digest)
    }

    /// As the store keeps it.
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// The change dates that a scope is fetched at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    /// Those that the plan saw before the first call of the scope was sent.
    Known(String),
    /// Those that are seen when the answer is committed, unless they moved after the call was sent:
    /// `sequence` counts the polls, and a row that a later poll moved stays stale.
    AsSeen { sequence: i64 },
}

/// Whether what was read of a scope holds at its version, and if not, why it is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FetchStatus {
    /// It was read as it was at its version.
    Current,
    /// The last answer was not proven complete.
    Incomplete,
    /// Rows that the last answer lacked are held.
    Held,
    /// The search showed an older state than the feed.
    Lagging,
    /// A poll moved it while it was being read.
    Moved,
    /// No search shows the case, and it exists.
    Suspect,
    /// A change date of its case cannot be read.
    Unreadable,
    /// It was asked for to be read again.
    Asked(Mark),
}

/// Why scopes are read again that no date moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mark {
    /// `schedule.reconcile`, a comparison, or a permission that shows more of it.
    Reread,
    /// `sync --full`.
    Full,
    /// A column was added or changed.
    Redefined,
    /// The feed was not read for longer than it looks back.
    Gap,
}

impl FetchStatus {
    /// All of them, by the names that the store keeps.
    const NAMES: [(FetchStatus, &str); 11] = [
        (FetchStatus::Current, "current"),
        (FetchStatus::Incomplete, "incomplete"),
        (FetchStatus::Held, "held"),
        (FetchStatus::Lagging, "lagging"),
        (FetchStatus::Moved, "moved"),
        (FetchStatus::Suspect, "suspect"),
        (FetchStatus::Unreadable, "unreadable"),
        (FetchStatus::Asked(Mark::Reread), "reread"),
        (FetchStatus::Asked(Mark::Full), "full"),
        (FetchStatus::Asked(Mark::Redefined), "redefined"),
        (FetchStatus::Asked(Mark::Gap), "gap"),
    ];

    /// The names that the store keeps, but for the one that says that nothing is to be read.
    pub(crate) fn stale_names() -> impl Iterator<Item = &'static str> {
        FetchStatus::NAMES.into_iter().map(|(_, name)| name).filter(|name| *name != "current")
    }

    /// As it stands in `sync.fetched.status`.
    pub(crate) fn name(self) -> &'static str {
        name_in(&FetchStatus::NAMES, self).unwrap_or_default()
    }

    /// The status of that name.
    pub(crate) fn from_name(name: &str) -> Option<FetchStatus> {
        named_in(&FetchStatus::NAMES, name)
    }
}

/// As it stands in `sync.fetched.status`.
impl fmt::Display for FetchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FetchStatus::Asked(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_name_of_its_own_and_is_read_back_from_it() {
        let mut names = std::collections::BTreeSet::new();
        for (status, name) in FetchStatus::NAMES {
            // Without a catch-all arm: a new status is a new line here.
            match status {
                FetchStatus::Current
                | FetchStatus::Incomplete
                | FetchStatus::Held
                | FetchStatus::Lagging
                | FetchStatus::Moved
                | FetchStatus::Suspect
                | FetchStatus::Unreadable
                | FetchStatus::Asked(Mark::Reread | Mark::Full | Mark::Redefined | Mark::Gap) => {}
            }
            assert_eq!(status.name(), name);
            assert_eq!(FetchStatus::from_name(name), Some(status));
            assert!(names.insert(name), "{name} stands for two statuses");
        }
        assert_eq!(FetchStatus::from_name("done"), None);
    }
}
