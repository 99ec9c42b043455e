//! What an error means for what was asked: one decision, for every resource alike (docs/architecture.md,
//! "What an error says").

use crate::error::Kind;

/// So many different scopes that answer alike speak for their table.
pub(super) const MANY_SCOPES: u64 = 20;
/// Fewer than these never do, even when they are all there are.
const FEWEST_SCOPES: u64 = 3;

/// What is known beside the error.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// The table is read by this one call.
    pub(crate) is_whole_table: bool,
    /// It is a call of a search, which is many calls for many ids: one of them may be refused on the way.
    pub(crate) is_search: bool,
    /// A permission that the table needs, or that the answer names, is not granted.
    pub(crate) lacks_permission: bool,
    /// Different scopes that answered 403, this one too, and none of the table otherwise since.
    pub(crate) forbidden: u64,
    /// Scopes that the table has.
    pub(crate) scopes: u64,
    /// The table has answered before, since it was last forbidden.
    pub(crate) has_answered: bool,
    /// Rows of the scope are mirrored.
    pub(crate) has_rows: bool,
    /// Another such answer of the scope, or of the search, came `source.doubt` ago or earlier, and nothing else since.
    pub(crate) is_confirmed: bool,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The scope failed: it is asked again with backoff, and nothing else stops.
    ScopeFailed,
    /// The scope may have nothing any more: believed when a second answer says so later.
    Doubted,
    /// The scope has nothing.
    Nothing,
    TableForbidden,
    TableAbsent,
    /// Nothing else can be done either.
    EndRun,
}

/// Decides.
pub(super) fn decide(kind: Kind, evidence: &Evidence) -> Verdict {
    match kind {
        Kind::Forbidden => {
            let all = evidence.scopes.clamp(FEWEST_SCOPES, MANY_SCOPES);
            let speaks_for_table = if evidence.is_search {
                !evidence.has_answered || evidence.is_confirmed
            } else {
                evidence.is_whole_table || evidence.forbidden >= all
            };
            if speaks_for_table || evidence.lacks_permission {
                Verdict::TableForbidden
            } else {
                Verdict::ScopeFailed
            }
        }
        Kind::NotAllowed => Verdict::TableAbsent,
        // A list that never was there is an endpoint that is not there. One that was may be behind a
        // proxy that is being changed: that it is gone for good nobody can tell from one answer.
        Kind::NotFound if evidence.is_whole_table && !evidence.has_answered => Verdict::TableAbsent,
        Kind::NotFound if evidence.is_whole_table => Verdict::ScopeFailed,
        Kind::NotFound if !evidence.has_rows || evidence.is_confirmed => Verdict::Nothing,
        Kind::NotFound => Verdict::Doubted,
        // That the source cannot be reached ends a run only when several endpoints say so.
        Kind::Unauthorized
        | Kind::Refused
        | Kind::Throttled
        | Kind::Unreachable
        | Kind::Tls
        | Kind::Timeout
        | Kind::Server
        | Kind::BadAnswer
        | Kind::TooLarge
        | Kind::WrongId
        | Kind::Internal => Verdict::ScopeFailed,
        // No call is made until the pause is over, or there is a token: one that was not made has not failed.
        Kind::RetryAfter
        | Kind::NoToken
        | Kind::Credentials
        | Kind::Usage
        | Kind::Config
        | Kind::Tenant
        | Kind::StoreLocked
        | Kind::StoreNewer
        | Kind::StoreOlder
        | Kind::Store
        | Kind::StoreDown
        | Kind::StoreGone
        | Kind::DiskFull
        | Kind::Io
        | Kind::ObjectStore
        | Kind::Query
        | Kind::Cancelled
        | Kind::Lake
        | Kind::Lease
        | Kind::Dead => Verdict::EndRun,
    }
}

/// Whether nothing else can be done after this error either.
pub(crate) fn ends_run(kind: Kind) -> bool {
    decide(kind, &Evidence::default()) == Verdict::EndRun
}

/// Whether a journal's month takes too long. That says nothing about whether the source can be reached,
/// and counts as several failures: each has waited for `limits.journal_timeout`.
pub(crate) fn month_takes_too_long(kind: Kind) -> bool {
    kind == Kind::Timeout
}

/// As how many failures of its table that of a journal's month counts.
pub(crate) fn weight_of_month(kind: Kind) -> u32 {
    if month_takes_too_long(kind) { 5 } else { 1 }
}

/// Whether an endpoint of which nothing else is known than whether it has answered is not there for us.
pub(super) fn is_closed(kind: Kind, has_answered: bool) -> bool {
    let endpoint = Evidence { is_whole_table: true, has_answered, ..Evidence::default() };
    matches!(decide(kind, &endpoint), Verdict::TableForbidden | Verdict::TableAbsent)
}

/// Whether an error says that the source was not reached.
pub(super) fn is_unreached(kind: Kind) -> bool {
    matches!(kind, Kind::Unreachable | Kind::Tls | Kind::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_403_is_its_scopes_failure() {
        let one = Evidence { forbidden: 1, scopes: 500, ..Evidence::default() };
        assert_eq!(decide(Kind::Forbidden, &one), Verdict::ScopeFailed);
        let two_of_two = Evidence { forbidden: 2, scopes: 2, ..Evidence::default() };
        assert_eq!(decide(Kind::Forbidden, &two_of_two), Verdict::ScopeFailed);
    }

    #[test]
    fn a_table_is_forbidden_by_its_one_call_a_missing_permission_or_many_scopes() {
        let forbidden = |evidence| decide(Kind::Forbidden, &evidence) == Verdict::TableForbidden;
        assert!(forbidden(Evidence { is_whole_table: true, ..Evidence::default() }));
        assert!(forbidden(Evidence { lacks_permission: true, ..Evidence::default() }));
        assert!(forbidden(Evidence { forbidden: 20, scopes: 500, ..Evidence::default() }));
        assert!(!forbidden(Evidence { forbidden: 19, scopes: 500, ..Evidence::default() }));
        assert!(forbidden(Evidence { forbidden: 3, scopes: 3, ..Evidence::default() }));
        assert!(!forbidden(Evidence { forbidden: 3, scopes: 4, ..Evidence::default() }));
    }

    #[test]
    fn a_403_of_a_search_that_has_answered_needs_a_second_one() {
        let forbidden = |evidence| decide(Kind::Forbidden, &evidence) == Verdict::TableForbidden;
        // A hundred ids are one call.
        let search = Evidence { is_search: true, forbidden: 100, ..Evidence::default() };
        let answered = Evidence { has_answered: true, ..search };
        assert!(forbidden(search), "nothing speaks for it");
        assert!(!forbidden(answered));
        assert!(forbidden(Evidence { is_confirmed: true, ..answered }));
        assert!(forbidden(Evidence { lacks_permission: true, ..answered }));
        assert!(
            !forbidden(Evidence { is_whole_table: true, ..answered }),
            "the listing is many calls"
        );
        let list = Evidence { is_search: false, is_whole_table: true, ..answered };
        assert!(forbidden(list), "it is one call");
    }

    #[test]
    fn a_404_where_rows_are_needs_a_second_one() {
        let rows = Evidence { has_rows: true, ..Evidence::default() };
        assert_eq!(decide(Kind::NotFound, &Evidence::default()), Verdict::Nothing);
        assert_eq!(decide(Kind::NotFound, &rows), Verdict::Doubted);
        let again = Evidence { is_confirmed: true, ..rows };
        assert_eq!(decide(Kind::NotFound, &again), Verdict::Nothing);
        let whole = Evidence { is_whole_table: true, ..rows };
        assert_eq!(decide(Kind::NotFound, &whole), Verdict::TableAbsent);
    }

    #[test]
    fn only_our_own_troubles_and_what_keeps_every_call_from_being_made_end_a_run() {
        let ends = |kind| decide(kind, &Evidence::default()) == Verdict::EndRun;
        assert!(ends(Kind::Credentials) && ends(Kind::Store) && ends(Kind::DiskFull));
        assert!(ends(Kind::RetryAfter) && ends(Kind::NoToken));
        assert!(!ends(Kind::Unauthorized) && !ends(Kind::Unreachable) && !ends(Kind::Server));
    }

    #[test]
    fn an_endpoint_is_closed_by_a_403_404_and_405_and_by_nothing_else() {
        for kind in [Kind::Forbidden, Kind::NotFound, Kind::NotAllowed] {
            assert!(is_closed(kind, false));
            assert_eq!(is_closed(kind, true), kind != Kind::NotFound, "one that has answered");
        }
        for kind in [Kind::Unauthorized, Kind::Server, Kind::Timeout, Kind::BadAnswer, Kind::Store]
        {
            assert!(!is_closed(kind, false));
        }
    }

    #[test]
    fn a_404_takes_away_a_list_that_never_answered_and_no_other() {
        let list = Evidence { is_whole_table: true, ..Evidence::default() };
        assert_eq!(decide(Kind::NotFound, &list), Verdict::TableAbsent);
        let answered = Evidence { has_answered: true, ..list };
        assert_eq!(decide(Kind::NotFound, &answered), Verdict::ScopeFailed);
    }
}
