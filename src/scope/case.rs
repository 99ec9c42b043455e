//! Cases and contacts as the feeds and searches tell of them.

use sha2::{Digest, Sha256};

use super::Standing;
use crate::text::hex;

/// The change dates of a case, in the order of [`crate::catalog::ChangeDate::ALL`], in ticks; `None` is null.
pub(crate) type CaseDates = [Option<i64>; 11];

/// A digest of all eleven dates: equal when and only when each of them is.
pub(crate) fn any_version(dates: &CaseDates) -> String {
    let mut hasher = Sha256::new();
    for date in dates {
        match date {
            Some(ticks) => {
                hasher.update([1]);
                hasher.update(ticks.to_le_bytes());
            }
            None => hasher.update([0]),
        }
    }
    hex(&hasher.finalize()[..16])
}

/// Which search shows a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Cases,
    Projects,
    Contacts,
}

impl Place {
    /// The table of that search's rows.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Place::Cases => "cases",
            Place::Projects => "projects",
            Place::Contacts => "contacts",
        }
    }

    /// The search in which a case is looked for first that none has shown: that of the cases, but where only the
    /// other one `is_read`.
    pub(crate) fn first(is_read: impl Fn(Place) -> bool) -> Place {
        let of_projects_alone = !is_read(Place::Cases) && is_read(Place::Projects);
        if of_projects_alone { Place::Projects } else { Place::Cases }
    }

    /// The search of cases or projects that fills this table.
    pub(crate) fn parse(text: &str) -> Option<Place> {
        match text {
            "cases" => Some(Place::Cases),
            "projects" => Some(Place::Projects),
            _ => None,
        }
    }
}

/// A row of `sync.seen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CaseState {
    pub(crate) case_id: i64,
    /// The feed has reported it; otherwise its dates are unknown.
    pub(crate) reported: bool,
    pub(crate) dates: CaseDates,
    pub(crate) any_version: String,
    /// The page of a poll that last moved a date (see `State::sequence` of the store).
    pub(crate) moved: i64,
    pub(crate) place: Option<Place>,
    /// `None` before a search was asked for it.
    pub(crate) state: Option<Standing>,
    pub(crate) rereading: bool,
}

/// A row of the contacts feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContactSeen {
    pub(crate) contact_id: i64,
    pub(crate) modified: Option<i64>,
}

/// Every date of the wire has a larger number of ticks than this; what lies below it is a change date
/// that could not be read ([`unreadable_date`]).
pub(crate) const UNREADABLE_BELOW: i64 = i64::MIN / 2;

/// A change date of a feed row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The case or the contact.
    pub(crate) id: i64,
    /// The column that lacks it, such as `activity_changed_date`.
    pub(crate) column: &'static str,
    /// The beginning of what came in its place, as JSON; `None` where nothing came.
    pub(crate) value: Option<String>,
    pub(crate) error: String,
}

/// What stands for a change date that cannot be read: a number that no readable date has, the same
/// for the same row of dates. `row` is the JSON of all dates of that row: when any of them moves, one
/// that cannot be read counts as moved too.
pub(crate) fn unreadable_date<'t>(row: impl IntoIterator<Item = &'t str>) -> i64 {
    let mut hasher = Sha256::new();
    for text in row {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hasher.finalize().into();
    let digest = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 2; // below 2^62
    // From i64::MIN + 1 on: i64::MIN stands for "before all" where cases are put in order.
    (i64::MIN + 1).saturating_add_unsigned(digest).min(UNREADABLE_BELOW - 1)
}

/// The version of a case that the feed has not reported.
pub(crate) const UNKNOWN: &str = "unknown";

/// Whether a change date in ticks stands for one that could not be read.
pub(crate) fn is_unreadable(ticks: i64) -> bool {
    ticks < UNREADABLE_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticks::Ticks;
    use jiff::tz::TimeZone;

    #[test]
    fn an_unreadable_date_differs_from_every_readable_one_and_is_the_same_again() {
        let first = unreadable_date([r#""soon""#, "null"]);
        assert!(is_unreadable(first) && first > i64::MIN);
        assert_eq!(unreadable_date([r#""soon""#, "null"]), first);
        assert_ne!(unreadable_date([r#""soon""#, r#""2026-01-01""#]), first);
        for text in ["0000-01-01T00:00:00+14:00", "0001-01-02", "9999-12-31T23:59:59-14:00"] {
            let readable = Ticks::parse(text, &TimeZone::UTC).unwrap().unwrap();
            assert!(!is_unreadable(readable.get()), "{text}");
        }
    }
}
