//! Why a scope could not be read, as `sync.failures` keeps it.

use std::fmt;
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
    /// It was its turn, and it was not asked, because its case hangs: what was mirrored of it before is not in doubt.
    NotAsked,
    /// The call failed.
    Call(Kind),
}

/// The kinds of errors that a call can fail with, by the names that the store keeps.
const CALL_KINDS: [(Kind, &str); 13] = [
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
    (Kind::TooLarge, "TooLarge"),
    (Kind::WrongId, "WrongId"),
    (Kind::Internal, "Internal"),
];

/// The other kinds, by the names that the store keeps.
const OWN_KINDS: [(FailureKind, &str); 9] = [
    (FailureKind::Lag, "Lag"),
    (FailureKind::Suspect, "Suspect"),
    (FailureKind::NotShown, "NotShown"),
    (FailureKind::Unknown, "Unknown"),
    (FailureKind::Held, "Held"),
    (FailureKind::Doubted, "Doubted"),
    (FailureKind::Incomplete, "Incomplete"),
    (FailureKind::NotFound, "NotFound"),
    (FailureKind::NotAsked, "NotAsked"),
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

    /// SQL for the names of these kinds.
    pub(crate) fn names(kinds: &[FailureKind]) -> String {
        let names: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
        names.join(", ")
    }

    /// Whether an answer said that rows which are mirrored are gone: such answers confirm each other.
    pub(crate) fn says_gone(self) -> bool {
        FailureKind::GONE.contains(&self)
    }

    /// Those kinds.
    pub(crate) const GONE: [FailureKind; 3] =
        [FailureKind::NotFound, FailureKind::Doubted, FailureKind::Held];

    /// Those that wait for the search.
    pub(crate) const OF_THE_SEARCH: [FailureKind; 3] =
        [FailureKind::Lag, FailureKind::Suspect, FailureKind::NotShown];

    /// Whether the run itself waits for what this holds back (the search catches up), so that another
    /// attempt in the same run makes sense.
    pub(crate) fn passes_within_a_run(self) -> bool {
        FailureKind::OF_THE_SEARCH.contains(&self)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

    /// What the column `kind` of `report.total_cost` says.
    const KINDS_OF_SALE: [&str; 2] = ["regular", "resale"];

    /// Every `kind = '...'`, `kind <> '...'` and `kind IN ('...', ...)` of a statement, and those that
    /// stand in place of NULL.
    fn kinds_in(statement: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for (at, _) in statement.match_indices("kind") {
            let rest = statement[at + "kind".len()..].trim_start_matches(", '')").trim_start();
            let rest = rest.strip_prefix("NOT").map_or(rest, str::trim_start);
            let operator = ["=", "<>", "IN"].into_iter().find_map(|op| rest.strip_prefix(op));
            let Some(value) = operator.map(str::trim_start) else { continue };
            let end = match value.strip_prefix('(') {
                Some(list) => list.find(')').map_or(value.len(), |end| end + 1),
                None => value.match_indices('\'').nth(1).map_or(0, |(end, _)| end),
            };
            found.extend(value[..end].split('\'').skip(1).step_by(2));
        }
        found
    }

    #[test]
    fn every_kind_that_a_statement_compares_with_is_one_of_the_names() {
        let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut compared = std::collections::BTreeSet::new();
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|end| end == "sql") {
                let text = std::fs::read_to_string(&path).unwrap();
                // `report.total_cost` has a column of that name too.
                let names =
                    kinds_in(&text).into_iter().filter(|name| !KINDS_OF_SALE.contains(name));
                compared.extend(names.map(str::to_owned));
            }
        }
        let own = OWN_KINDS.iter().map(|(_, name)| *name);
        let known: Vec<&str> = own.chain(CALL_KINDS.iter().map(|(_, name)| *name)).collect();
        assert!(compared.len() >= 5, "{compared:?}");
        for name in compared {
            assert!(known.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn the_kinds_of_a_statement_are_found() {
        let statement = "kind = 'A' AND coalesce(f.kind, '') NOT IN ('B', 'C') OR kind <> 'D' \
                         OR kind IS NULL";
        assert_eq!(kinds_in(statement), ["A", "B", "C", "D"]);
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
