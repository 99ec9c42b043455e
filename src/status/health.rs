//! How the mirror is, in one word.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::disk::Disk;
use crate::pulse::Feeds;

/// How the mirror is, in one word; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    /// The mirror and the source differ.
    Differs,
    /// Something needs a person, or the source does not answer.
    Attention,
    /// The daemon has just begun and has not asked the source yet.
    Starting,
    /// The first load is not through.
    Filling,
    /// Everything that is asked for is there, fresh and believed.
    Good,
}

impl Health {
    /// By what the status, the polls and the disk say.
    pub(crate) fn of(status: &Status, feeds: &Feeds, disk: Option<&Disk>) -> Health {
        let is_short = disk.is_some_and(Disk::is_short);
        match feeds {
            _ if status.exit_status() == 4 => Health::Differs,
            _ if is_short || status.exit_status() != 0 => Health::Attention,
            Feeds::Stalled(_) => Health::Attention,
            Feeds::Starting(lag) if lag.error.is_some() => Health::Attention,
            Feeds::Starting(_) => Health::Starting,
            Feeds::Polled if !status.complete => Health::Filling,
            Feeds::Polled => Health::Good,
        }
    }
}

/// What is said of a store that does not take what is written.
pub(crate) fn store_fails(why: &str) -> String {
    format!("the store does not work: {why}")
}

/// Why the process that holds the store does not follow the source at all, in words; see [`Status::of_holder`].
pub(super) fn halts(fault: Option<&str>, feeds: Option<&Feeds>) -> Vec<String> {
    let stalled = match feeds {
        Some(Feeds::Stalled(lag)) => Some(lag.to_string()),
        Some(Feeds::Starting(_) | Feeds::Polled) | None => None,
    };
    fault.map(store_fails).into_iter().chain(stalled).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Standing, Verified};
    use super::*;
    use crate::pulse::Lag;

    #[test]
    fn what_stands_still_is_a_problem_of_the_status() {
        let lag = || Lag { what: "not polled for long".to_owned(), error: None };
        assert_eq!(halts(None, Some(&Feeds::Starting(lag()))), [""; 0]);
        let both = halts(Some("no room"), Some(&Feeds::Stalled(lag())));
        assert_eq!(both, ["the store does not work: no room", "not polled for long"]);
        let status = Status { problems: vec!["costs is failing".to_owned()], ..Status::default() };
        let status = status.of_holder(1, Some("no room"), Some(&Feeds::Stalled(lag())));
        assert_eq!((status.problems.len(), status.exit_status()), (3, 3));
        assert!(status.problems[0].contains("no room"));
    }

    #[test]
    fn the_worst_of_what_is_so_counts() {
        let lag = |error: Option<&str>| Lag {
            what: "not polled".to_owned(),
            error: error.map(str::to_owned),
        };
        let mut status = Status { complete: true, ..Status::default() };
        let room = Disk { free: 500, size: 1_000 };
        let of = |status: &Status, feeds| Health::of(status, &feeds, Some(&room));
        assert_eq!(of(&status, Feeds::Polled), Health::Good);
        let full = Disk { free: 1, size: 1_000 };
        assert_eq!(Health::of(&status, &Feeds::Polled, Some(&full)), Health::Attention);
        assert_eq!(Health::of(&status, &Feeds::Polled, None), Health::Good);
        assert_eq!(of(&status, Feeds::Starting(lag(None))), Health::Starting);
        assert_eq!(of(&status, Feeds::Starting(lag(Some("no way")))), Health::Attention);
        assert_eq!(of(&status, Feeds::Stalled(lag(None))), Health::Attention);
        status.complete = false;
        assert_eq!(of(&status, Feeds::Polled), Health::Filling);
        status.problems.push("costs is failing".to_owned());
        assert_eq!(of(&status, Feeds::Polled), Health::Attention);
        let standing = vec![Standing { what: "cases".to_owned(), since: String::new() }];
        status.verified = Some(Verified { standing, ..Verified::default() });
        assert_eq!(of(&status, Feeds::Stalled(lag(None))), Health::Differs);
    }
}
