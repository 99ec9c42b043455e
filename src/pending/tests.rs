use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as Cases, TestRunner};

use super::*;
use crate::mirror::reports::fixture;
use crate::scope::CaseState;

fn scope(table: &str, n: usize, never: bool) -> PendingScope {
    let (scope, reason) = (n.to_string(), format!("reason {n}"));
    PendingScope { table: table.to_owned(), scope, reason, never }
}

#[test]
fn no_more_than_a_chunk_is_kept_and_every_scope_is_handed_on_and_counted() {
    let mut sizes = Vec::new();
    let hand_on = |chunk: Vec<PendingScope>| {
        sizes.push(chunk.len());
        Ok(())
    };
    let mut collector = Collector { pending: Pending::new(), chunk: Vec::new(), hand_on };
    for n in 0..2 * CHUNK {
        collector.push(scope("costs", n, false)).unwrap();
    }
    collector.push(scope("notes", 7, false)).unwrap();
    collector.push(scope("notes", 8, true)).unwrap();
    let pending = collector.finish().unwrap();
    assert_eq!(sizes, [CHUNK, CHUNK, 2]);
    let (costs, notes) = (&pending["costs"], &pending["notes"]);
    assert_eq!((costs.scopes, costs.never), (2 * CHUNK, false));
    assert_eq!((notes.scopes, notes.never), (2, true));
    assert_eq!(notes.reason(), "reason 7 (1), reason 8 (1)");
    // Twenty thousand errors of their own are not kept, and are counted.
    assert_eq!(costs.reasons.len(), MOST_REASONS + 1);
    assert_eq!(costs.reasons.values().sum::<usize>(), 2 * CHUNK);
    assert_eq!(costs.reasons[OTHER_REASONS], 2 * CHUNK - MOST_REASONS);
}

#[test]
fn each_reason_is_counted_and_the_most_frequent_comes_first() {
    let mut table = PendingTable::default();
    table.add(6, "never fetched", true);
    assert_eq!(table.reason(), "never fetched");
    (0..42).for_each(|_| table.add(1, "changed", false));
    assert_eq!(table.reason(), "changed (42), never fetched (6)");
    assert_eq!((table.scopes, table.never), (48, true));
    (0..2).for_each(|n| table.add(1, &format!("500 from scope {n}"), false));
    let told = "changed; and for other reasons, see sync.pending";
    assert_eq!(table.told(), [(told.to_owned(), 50)]);
}

#[test]
fn what_cannot_be_handed_on_ends_the_collecting() {
    let hand_on = |_| Err(crate::error::Error::new(crate::error::Kind::Cancelled, "enough"));
    let mut collector = Collector { pending: Pending::new(), chunk: Vec::new(), hand_on };
    for n in 0..CHUNK - 1 {
        collector.push(scope("costs", n, true)).unwrap();
    }
    assert!(collector.push(scope("costs", CHUNK, true)).is_err());
}

/// What the store says of a case, each value as SQL.
#[derive(Debug, Clone)]
struct Told {
    reported: bool,
    modified: &'static str,
    dirty: bool,
    removed: bool,
    place: &'static str,
    state: &'static str,
    rereading: &'static str,
    /// Columns of its row in the search: guid, assignment type, a change date.
    row: Option<(&'static str, &'static str, &'static str)>,
    /// Version, status, complete, again at, mark.
    searched: Option<(&'static str, &'static str, bool, &'static str, i64)>,
    other: Other,
    failed: bool,
}

/// What else was read of it.
#[derive(Debug, Clone, Copy)]
enum Other {
    Nothing,
    Notes,
    AllInOneRow,
    /// Scopes of a contact with the same id say nothing of it.
    ContactOfThatId,
}

/// Mostly the first, now and then one of the others.
fn mostly(values: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    let usual = vec![values[0]; 6];
    select([usual, values[1..].to_vec()].concat())
}

fn told() -> impl Strategy<Value = Told> {
    let often = prop::bool::weighted(0.9);
    let seen = (
        any::<bool>(),
        select(vec!["100", "300", "NULL", "-9000000000000000000"]),
        often,
        prop::bool::weighted(0.1),
        mostly(&["'cases'", "'projects'", "'projects'", "NULL"]),
        mostly(&["'found'", "'hidden'", "NULL"]),
        mostly(&["any_stamp", "NULL"]),
    );
    let row = prop::option::of((
        select(vec!["'0a0b0c0d-0000-4000-8000-000000000001'", "NULL"]),
        select(vec!["'Sale'", "'ResaleOfContractPositionConsumer'", "NULL"]),
        select(vec!["make_timestamp(10)", "make_timestamp(30)", "NULL"]),
    ));
    let searched = prop::option::weighted(
        0.9,
        (
            mostly(&["any_stamp", "'other'"]),
            mostly(&["current", "moved", "incomplete"]),
            Just(true),
            mostly(&["NULL", "5"]),
            select(vec![0_i64, 9]),
        ),
    );
    let other = select(vec![
        Other::Nothing,
        Other::Nothing,
        Other::Nothing,
        Other::Nothing,
        Other::Notes,
        Other::AllInOneRow,
        Other::ContactOfThatId,
    ]);
    (seen, row, searched, other, prop::bool::weighted(0.1)).prop_map(
        |(
            (reported, modified, dirty, removed, place, state, rereading),
            row,
            searched,
            other,
            failed,
        )| {
            Told {
                reported,
                modified,
                dirty,
                removed,
                place,
                state,
                rereading,
                row,
                searched,
                other,
                failed,
            }
        },
    )
}

/// A case that the search found and of which nothing else was read: without these among the
/// others, chance alone would decide how many cases the queries take.
fn unread() -> impl Strategy<Value = Told> {
    told().prop_map(|told| Told {
        dirty: true,
        removed: false,
        rereading: "any_stamp",
        row: told.row.or(Some(("NULL", "'Sale'", "NULL"))),
        searched: Some(("any_stamp", "current", true, "NULL", 0)),
        other: Other::Nothing,
        failed: false,
        ..told
    })
}

fn tell(conn: &Connection, id: i64, told: &Told) {
    let Told { reported, modified, dirty, removed, place, state, rereading, .. } = told;
    let mut sql = format!(
        "INSERT INTO sync.seen BY NAME SELECT {id} AS case_id, {reported} AS reported, \
           {modified} AS modified_date, if({reported}, 'v', 'unknown') AS any_stamp, 0 AS moved, \
           {dirty} AS dirty, {removed} AS removed, {place} AS place, {state} AS state; \
         UPDATE sync.seen SET rereading = {rereading} WHERE case_id = {id};"
    );
    if let Some((guid, assignment, changed)) = told.row {
        sql += &if *place == "'projects'" {
            format!("INSERT INTO main.projects BY NAME SELECT {id} AS id, {guid} AS guid;")
        } else {
            format!(
                "INSERT INTO main.cases BY NAME SELECT {id} AS id, {guid} AS guid, \
                   {changed} AS description_changed_date, {assignment} AS assignment_type;"
            )
        };
    }
    if let Some((version, status, complete, again_at, mark)) = told.searched {
        let table = if *place == "'projects'" { "projects" } else { "cases" };
        sql += &format!(
            "INSERT INTO sync.fetched_scopes BY NAME SELECT '{table}' AS table_name, {id} AS id, \
               '' AS part, {version} AS version, '{status}' AS status, {complete} AS complete, \
               TIMESTAMPTZ '2026-01-01 00:00:00+00' AS fetched_at, {again_at} AS again_at, \
               {mark} AS mark FROM sync.seen WHERE case_id = {id};"
        );
    }
    let scope = |table: &str| {
        format!(
            "INSERT INTO sync.fetched_scopes BY NAME SELECT '{table}' AS table_name, {id} AS id, \
               '' AS part, 'v' AS version, 'current' AS status, true AS complete, \
               TIMESTAMPTZ '2026-01-01 00:00:00+00' AS fetched_at, 0 AS mark;"
        )
    };
    sql += &match told.other {
        Other::Nothing => String::new(),
        Other::Notes => scope("notes"),
        Other::ContactOfThatId => scope("contacts"),
        Other::AllInOneRow => format!(
            "INSERT INTO sync.fetched_cases BY NAME SELECT {id} AS case_id, 1 AS coverage, \
               ['v'] AS versions, [TIMESTAMPTZ '2026-01-01 00:00:00+00'] AS fetched_at, \
               'current' AS status, 0 AS mark;"
        ),
    };
    if told.failed {
        sql += &format!(
            "INSERT INTO sync.failures BY NAME SELECT 'costs' AS table_name, {id} AS id, \
               '' AS part, 'timeout' AS kind, 'too late' AS error, \
               TIMESTAMPTZ '2100-01-01 00:00:00+00' AS next_at;"
        );
    }
    conn.execute_batch(&sql).unwrap();
}

/// Table and case of everything that planning case by case finds stale.
fn planned(
    conn: &Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    since: Option<i64>,
) -> BTreeSet<(String, i64)> {
    let plans = plan_cases(conn, batch, active, &[], since).unwrap();
    let scopes = plans.into_iter().flat_map(|(_, plan)| plan.stale.into_iter().chain(plan.waiting));
    scopes.map(|stale| (stale.table, stale.id)).collect()
}

#[test]
fn what_queries_say_of_unread_cases_is_what_planning_each_of_them_says() {
    let conn = fixture::store(None, 2026..=2026);
    let catalog = Catalog::load(None).unwrap();
    conn.execute_batch(
        "INSERT INTO sync.columns (table_name, column_name) \
           VALUES ('cases', 'description_changed_date'); \
         INSERT INTO sync.fetched_coverage VALUES (1, 'notes', 1, 1, 1)",
    )
    .unwrap();
    conn.execute_batch("UPDATE sync.resources SET answered = true").unwrap();
    let (state, everything) = (State::new(&conn), active(&conn, &catalog).unwrap());
    let worlds = (
        prop::collection::vec(prop_oneof![2 => told(), 1 => unread()], 1..40),
        select(vec![None, Some(200)]),
        select(vec!["", "100", "250"]),
        any::<bool>(),
        select(vec!["", "notes", "cases", "public_showings"]),
    );
    let unread_seen = std::cell::Cell::new(0);
    TestRunner::new(Cases { cases: 48, failure_persistence: None, ..Cases::default() })
        .run(&worlds, |(cases, since, reach, is_marked, off)| {
            conn.execute_batch(
                "DELETE FROM sync.seen; DELETE FROM sync.fetched_scopes; \
                 DELETE FROM sync.fetched_cases; DELETE FROM sync.failures; \
                 DELETE FROM sync.fetched_marks; DELETE FROM main.cases; \
                 DELETE FROM main.projects; DELETE FROM sync.meta; DELETE FROM sync.unread_cases",
            )
            .unwrap();
            for (case, id) in cases.iter().zip(1..) {
                tell(&conn, id, case);
            }
            state.set_meta("feed_reach", reach).unwrap();
            if is_marked {
                let mark = "INSERT INTO sync.fetched_marks VALUES ('cases', 'full', 5, 0)";
                conn.execute_batch(mark).unwrap();
            }
            let active: Vec<_> = everything.iter().filter(|r| r.table != off).cloned().collect();

            let all = state.cases().dirty_cases(None, &[], 1_000).unwrap();
            let wanted = planned(&conn, &all, &active, since);

            state.unread().note(&active, since).unwrap();
            state.unread().stage_noted().unwrap();
            let counts = state.unread().count(&active).unwrap();
            state.unread().show(&active).unwrap();
            let shown: Vec<(String, i64)> = crate::sql::query(
                &conn,
                "SELECT table_name, scope::BIGINT FROM sync.pending",
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
            for (table, count) in &counts {
                let of_table = shown.iter().filter(|(shown, _)| shown == table).count();
                prop_assert_eq!(*count, of_table as u64, "{}", table);
            }
            prop_assert_eq!(counts.values().sum::<u64>(), shown.len() as u64);
            let others = state.cases().dirty_cases_that_were_read(None, 1_000).unwrap();
            let mut together = planned(&conn, &others, &active, since);
            for scope in shown {
                prop_assert!(together.insert(scope.clone()), "{:?} twice", scope);
            }
            prop_assert_eq!(together, wanted);
            unread_seen.set(unread_seen.get() + all.len() - others.len());
            Ok(())
        })
        .unwrap();
    assert!(unread_seen.get() > 50, "{} cases were taken by queries", unread_seen.get());
}

/// What `sync.pending` says of a case, in one text: tables, and since when.
fn pending_of(conn: &Connection, id: i64) -> BTreeSet<(String, String)> {
    let sql = format!("SELECT table_name, since::VARCHAR FROM sync.pending WHERE scope = '{id}'");
    let rows = crate::sql::query(conn, &sql, |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.into_iter().collect()
}

#[test]
fn what_is_read_or_moves_while_others_are_planned_leaves_nothing_out_and_doubles_nothing() {
    let conn = fixture::store(None, 2026..=2026);
    let catalog = Catalog::load(None).unwrap();
    conn.execute_batch("UPDATE sync.resources SET answered = true").unwrap();
    let (state, active) = (State::new(&conn), active(&conn, &catalog).unwrap());
    let log = RunLog::new(&conn);
    let unread = Told {
        reported: true,
        modified: "100",
        dirty: true,
        removed: false,
        place: "'cases'",
        state: "'found'",
        rereading: "any_stamp",
        row: Some(("NULL", "'Sale'", "NULL")),
        searched: Some(("any_stamp", "current", true, "NULL", 0)),
        other: Other::Nothing,
        failed: false,
    };
    for id in 1..=3 {
        tell(&conn, id, &unread);
    }
    conn.execute_batch("UPDATE sync.seen SET known_at = TIMESTAMPTZ '2026-01-01 00:00:00+00'")
        .unwrap();
    let notes = "INSERT INTO sync.fetched_scopes BY NAME SELECT 'notes' AS table_name, 1 AS id, \
                 '' AS part, any_stamp AS version, 'current' AS status, true AS complete, \
                 TIMESTAMPTZ '2026-02-01 00:00:00+00' AS fetched_at, 0 AS mark \
                 FROM sync.seen WHERE case_id = 1";
    let moves = "UPDATE sync.seen SET any_stamp = 'w' WHERE case_id = 2";
    // A publishing: `meanwhile` is committed between the noting and the planning of the others.
    let publish = |meanwhile: &str| {
        state.unread().note(&active, None).unwrap();
        conn.execute_batch(meanwhile).unwrap();
        log.begin_pending().unwrap();
        state.unread().stage_noted().unwrap();
        let batch = state.cases().dirty_cases_that_were_read(None, 100).unwrap();
        let planned = planned(&conn, &batch, &active, None);
        let rows: Vec<(String, String)> =
            planned.into_iter().map(|(table, id)| (table, id.to_string())).collect();
        log.add_pending(rows.iter().map(|(table, id)| (table.as_str(), id.as_str(), "new")))
            .unwrap();
        log.replace_pending().unwrap();
        state.unread().show(&active).unwrap();
        let doubled = "SELECT count(*) - count(DISTINCT (table_name, scope)) FROM sync.pending";
        assert_eq!(crate::sql::scalar_i64(&conn, doubled).unwrap(), 0);
        [1, 2, 3].map(|id| pending_of(&conn, id))
    };
    let [one, two, three] = publish(&format!("{notes}; {moves}"));
    assert!(three.len() > 10, "{three:?}");
    assert_eq!((&one, &two), (&three, &three), "they are pending, or were when it began");

    // Now both are planned one by one, and are pending since they were known.
    let [one, two, still] = publish("");
    assert_eq!(still, three);
    let without_notes: BTreeSet<_> =
        three.iter().filter(|(table, _)| table != "notes").cloned().collect();
    assert_eq!(one, without_notes);
    let beside_the_search: BTreeSet<_> =
        two.iter().filter(|(table, _)| table != "cases").cloned().collect();
    assert_eq!(beside_the_search, three);
    assert_eq!(two.len(), three.len() + 1, "its row in the search is to be read too");
}
