use super::super::State;
use super::*;
use crate::mirror::RunLog;
use crate::mirror::reports::fixture;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

/// A scope fails at that second; when it may be tried again.
fn fails(conn: &Connection, (table, id): (&str, i64), kind: FailureKind, second: i64) -> Timestamp {
    let scope = ScopeId { table: table.to_owned(), id, part: String::new() };
    let failure = Failure::new(kind, "why");
    State::new(conn).failures().fail(1, at(second), &scope, &failure).unwrap()
}

#[test]
fn what_waits_for_the_search_is_no_failure_while_the_search_may_lag() {
    let conn = fixture::store(None, 2026..=2026);
    let fail = |id, kind, second| fails(&conn, ("cases", id), kind, second);
    let failed = || {
        let failed =
            RunLog::new(&conn).failed_scopes(&["cases"], (&[], true), Duration::from_secs(30));
        failed.unwrap().get("cases").map_or(0, |(count, _)| *count)
    };
    for (id, kind) in (1..).zip(FailureKind::OF_THE_SEARCH) {
        fail(id, kind, 0);
    }
    assert_eq!(failed(), 0);
    // As the backoff lets it be asked again; the last time after the 30 seconds.
    for second in [1, 3, 7, 15] {
        fail(1, FailureKind::Lag, second);
        assert_eq!(failed(), 0, "after {second} s");
    }
    fail(1, FailureKind::Lag, 31);
    assert_eq!(failed(), 1);
    fail(2, FailureKind::Unknown, 1);
    assert_eq!(failed(), 2, "a call that failed waits for no search");
}

#[test]
fn a_404_of_some_values_leaves_since_when_the_rest_is_held() {
    let conn = fixture::store(None, 2026..=2026);
    let scope = ScopeId { table: "costs".to_owned(), id: 1, part: String::new() };
    let seller = ["Seller".to_owned()];
    let held = digest_of_held(&seller, "costs=none;");
    let failure =
        Failure { digest: Some(&held), ..Failure::new(FailureKind::Held, "rows are held") };
    let state = State::new(&conn);
    state.failures().fail(1, at(0), &scope, &failure).unwrap();
    let gone = |values: &[String], second| {
        let doubt = Duration::from_secs(900);
        state.failures().fail_gone(1, at(second), &scope, (values, "404"), doubt).unwrap();
        scalar_i64(&conn, "SELECT epoch_us(first_at) // 1000000 FROM sync.failures").unwrap()
            - at(0).as_second()
    };
    assert_eq!(gone(&seller, 10), 0);
    let is_gone = |value| state.failures().is_gone_since("costs", 1, Some(value), at(0)).unwrap();
    assert!(is_gone("Seller") && !is_gone("Buyer"));
    assert_eq!(gone(&["Buyer".to_owned()], 20), 20, "another answer");
    assert_eq!(gone(&[], 30), 30, "another one still");
}

#[test]
fn what_was_not_asked_leaves_what_the_last_call_failed_with() {
    let conn = fixture::store(None, 2026..=2026);
    let fail = |id, kind, second| fails(&conn, ("costs", id), kind, second);
    fail(1, FailureKind::of(Kind::Server), 0);
    assert_eq!(fail(1, FailureKind::NotAsked, 10), at(12), "with the backoff of two attempts");
    fail(2, FailureKind::NotAsked, 10);
    let kinds = "SELECT string_agg(kind || ' ' || attempts, ', ' ORDER BY id) FROM sync.failures";
    let kinds: String = conn.query_row(kinds, [], |row| row.get(0)).unwrap();
    assert_eq!(kinds, "Server 2, NotAsked 1");
}

#[test]
fn the_journals_that_are_forbidden_are_those_since_the_last_month_that_was_read() {
    let conn = fixture::store(None, 2026..=2026);
    let state = State::new(&conn);
    let forbid = |id, month: &str, second| {
        let part = format!("offices/2026-{month}");
        let scope = ScopeId { table: "depot_journals".to_owned(), id, part };
        let failure = Failure::new(FailureKind::of(Kind::Forbidden), "403");
        state.failures().fail(1, at(second), &scope, &failure).unwrap();
    };
    let count = |wanted: &[i64]| {
        state
            .failures()
            .forbidden_journals("depot_journals", JournalLevel::Offices, wanted)
            .unwrap()
    };
    forbid(1, "01", 1);
    forbid(1, "02", 2);
    assert_eq!(count(&[1, 2]), 1, "one of two");
    assert_eq!(count(&[1]), 2, "all that are wanted: each month counts");
    forbid(2, "01", 3);
    assert_eq!(count(&[1, 2]), 3);
    assert_eq!(count(&[1, 2, 3]), 2);
    let other =
        state.failures().forbidden_journals("depot_journals", JournalLevel::Chain, &[1]).unwrap();
    assert_eq!(other, 0, "of another level");
    let read = format!(
        "INSERT INTO sync.journal_months BY NAME SELECT 'depot_journals' AS table_name, \
           {} AS read_at",
        instant(at(2))
    );
    conn.execute_batch(&read).unwrap();
    assert_eq!(count(&[1, 2, 3]), 1, "another month was read since");
    forbid(1, "02", 4);
    assert_eq!(count(&[1, 2, 3]), 2, "it answered 403 again");
    // A month that fails late rests for long: when it is tried again says nothing of when it was asked.
    conn.execute_batch(&format!(
        "UPDATE sync.failures SET next_at = {}; UPDATE sync.journal_months SET read_at = {}",
        instant(at(90_000)),
        instant(at(5))
    ))
    .unwrap();
    assert_eq!(count(&[1, 2, 3]), 0, "another month was read since");
}

#[test]
fn a_scope_that_answers_403_before_and_after_another_one_answered_is_forbidden_since() {
    let conn = fixture::store(None, 2026..=2026);
    let state = State::new(&conn);
    let forbid = |id, second| {
        let scope = ScopeId { table: "notes".to_owned(), id, part: String::new() };
        let failure = Failure::new(FailureKind::of(Kind::Forbidden), "403");
        state.failures().fail(1, at(second), &scope, &failure).unwrap();
    };
    let count = || state.failures().forbidden_scopes("notes").unwrap();
    forbid(1, 1);
    assert_eq!(count(), 1);
    let read = format!(
        "INSERT INTO sync.fetched_scopes BY NAME SELECT 'notes' AS table_name, 2 AS id, \
           '' AS part, 'current' AS status, true AS complete, 0 AS mark, {} AS fetched_at",
        instant(at(2))
    );
    conn.execute_batch(&read).unwrap();
    assert_eq!(count(), 0);
    for (id, second) in [(1, 3), (2, 4), (3, 5)] {
        forbid(id, second);
    }
    assert_eq!(count(), 3);
    let first = "SELECT epoch_us(first_at) FROM sync.failures WHERE id = 1";
    assert_eq!(scalar_i64(&conn, first).unwrap(), at(1).as_microsecond(), "it stands since then");
}

#[test]
fn a_search_that_was_answered_between_two_403_is_refused_since_the_second() {
    let conn = fixture::store(None, 2026..=2026);
    let state = State::new(&conn);
    let refused = |second| {
        state.failures().listing_refused(1, at(second), "projects", "403").unwrap();
        state.failures().search_is_refused_since("projects", at(10)).unwrap()
    };
    let answer = |second| {
        let row = format!(
            "INSERT INTO sync.fetched_scopes BY NAME SELECT 'projects' AS table_name, {second} AS id, \
               '' AS part, 'current' AS status, true AS complete, 0 AS mark, {} AS fetched_at",
            instant(at(second))
        );
        conn.execute_batch(&row).unwrap();
    };
    answer(1);
    assert!(refused(5), "by 10 it is refused since 5");
    assert!(refused(20), "and stands since then");
    answer(21);
    assert!(!refused(30));
    // Asked by an id, it says the same.
    let scope = ScopeId { table: "projects".to_owned(), id: 17, part: String::new() };
    let failure = Failure::new(FailureKind::of(Kind::Forbidden), "403");
    state.failures().fail(1, at(30), &scope, &failure).unwrap();
    assert!(state.failures().search_is_refused_since("projects", at(30)).unwrap());
    assert!(!state.failures().search_is_refused_since("projects", at(29)).unwrap());
    state.failures().listing_is_not_refused("projects").unwrap();
    assert!(!state.failures().has_failed(&Failures::listing_of("projects")).unwrap());
}
