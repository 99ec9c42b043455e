//! Why a scope could not be read, as `sync.failures` keeps it.

use std::time::Duration;

use super::names::name_in;
use crate::error::Kind;

/// Why a scope waits for its next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    /// The search shows an older state than the feed.
    Lag,
    /// A case that was shown is in no search now, and exists: hidden, or the search lags.
    Suspect,
    /// A case that no search has shown yet.
    NotShown,
    /// No search shows the case, and whether it exists could not be asked.
    Unknown,
    /// The guard holds rows that the answer lacks.
    Held,
    /// The answer would remove all of many rows: a second equal one has to come.
    Doubted,
    /// The answer was not proven complete, or had a record without a usable key.
    Incomplete,
    /// 404 where rows are mirrored: a second one has to come.
    NotFound,
    /// The call failed.
    Call(Kind),
}

/// The kinds of errors that a call can fail with, by the names that the store keeps.
const CALL_KINDS: [(Kind, &str); 12] = [
    (Kind::Unauthorized, "Unauthorized"),
    (Kind::Forbidden, "Forbidden"),
    (Kind::NotAllowed, "NotAllowed"),
    (Kind::Refused, "Refused"),
    (Kind::Throttled, "Throttled"),
    (Kind::Unreachable, "Unreachable"),
    (Kind::Tls, "Tls"),
    (Kind::Timeout, "Timeout"),
    (Kind::Server, "Server"),
    (Kind::BadAnswer, "BadAnswer"),
    (Kind::WrongId, "WrongId"),
    (Kind::Internal, "Internal"),
];

/// The other kinds, by the names that the store keeps.
const OWN_KINDS: [(FailureKind, &str); 8] = [
    (FailureKind::Lag, "Lag"),
    (FailureKind::Suspect, "Suspect"),
    (FailureKind::NotShown, "NotShown"),
    (FailureKind::Unknown, "Unknown"),
    (FailureKind::Held, "Held"),
    (FailureKind::Doubted, "Doubted"),
    (FailureKind::Incomplete, "Incomplete"),
    (FailureKind::NotFound, "NotFound"),
];

impl FailureKind {
    /// Of a call that failed so.
    pub(crate) fn of(kind: Kind) -> FailureKind {
        match kind {
            Kind::NotFound => FailureKind::NotFound,
            kind => FailureKind::Call(kind),
        }
    }

    /// As it stands in `sync.failures.kind`.
    pub(crate) fn name(self) -> &'static str {
        let name = match self {
            FailureKind::Call(kind) => name_in(&CALL_KINDS, kind),
            own => name_in(&OWN_KINDS, own),
        };
        // Only kinds of the lists are noted: the others end the run.
        name.unwrap_or("Call")
    }

    /// Whether an answer said that rows which are mirrored are gone: such answers confirm each other.
    pub(crate) fn says_gone(self) -> bool {
        matches!(self, FailureKind::NotFound | FailureKind::Doubted | FailureKind::Held)
    }

    /// SQL for the names of these kinds.
    pub(crate) const GONE: &str = "'NotFound', 'Doubted', 'Held'";

    /// Whether the run itself waits for what this holds back (the search catches up), so that another
    /// attempt in the same run makes sense.
    pub(crate) fn passes_within_a_run(self) -> bool {
        matches!(self, FailureKind::Lag | FailureKind::Suspect | FailureKind::NotShown)
    }
}

/// How long a scope waits after its n-th failure in a row: 1 s, 2 s, 4 s ... at most a quarter of
/// an hour.
pub(crate) fn backoff(attempts: u32) -> Duration {
    const LONGEST_SECONDS: u64 = 900;
    let seconds = 1_u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds.min(LONGEST_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_that_say_gone_are_those_of_the_statements() {
        let gone = OWN_KINDS.iter().filter(|(kind, _)| kind.says_gone());
        let mut names: Vec<String> = gone.map(|(_, name)| format!("'{name}'")).collect();
        names.sort_unstable();
        let mut stated: Vec<&str> = FailureKind::GONE.split(", ").collect();
        stated.sort_unstable();
        assert_eq!(names, stated);
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let calls = CALL_KINDS.map(|(kind, name)| (FailureKind::of(kind), name));
        let mut names = std::collections::BTreeSet::new();
        for (kind, name) in calls.into_iter().chain(OWN_KINDS) {
            assert_eq!(kind.name(), name);
            assert!(names.insert(name), "{name} stands for two kinds");
        }
    }

    #[test]
    fn backoff_doubles_up_to_a_quarter_of_an_hour() {
        let seconds: Vec<u64> = [1, 2, 3, 10, 11, 64, 1000].map(|n| backoff(n).as_secs()).into();
        assert_eq!(seconds, [1, 2, 4, 512, 900, 900, 900]);
    }
}
