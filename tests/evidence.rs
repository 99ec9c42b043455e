//! What is believed of a source that fails dishonestly: one answer proves no loss, and one refusal
//! stops nothing else (docs/architecture.md, "Evidence before belief").

use casemirror::sandbox::{Act, Control, Facet, Fault, Rule};
use duckdb::Connection;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::follow::{
    UNTHROTTLED, assert_status, calls, change, lines, shown_cases, unthrottled,
};
use crate::support::scripted::{self, garbage, refuse, search_path};
use crate::support::{World, one, shown};

pub(crate) fn mirrored(cases: usize) -> World {
    let world = World::unthrottled(cases);
    world.retry_at_once();
    world.bootstrap();
    world
}

pub(crate) fn always(world: &World, path: &str, fault: Fault) {
    world.sandbox.fault(scripted::fault(path, None, fault));
}

/// Writes to the store between two runs.
pub(crate) fn alter(world: &World, sql: &str) {
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(sql).unwrap();
}

/// As if everything that failed had failed so long ago, and may be asked again.
pub(crate) fn age_failures(world: &World, minutes: u32) {
    alter(
        world,
        &format!(
            "UPDATE sync.failures SET first_at = (make_timestamp(epoch_us(first_at) \
               - {minutes}::BIGINT * 60000000)::VARCHAR || '+00')::TIMESTAMPTZ"
        ),
    );
    alter(world, "UPDATE sync.failures SET next_at = first_at");
}

pub(crate) fn rows(world: &World, table: &str, case_id: i64) -> i64 {
    one(&world.store(), &format!("SELECT count(*) FROM main.{table} WHERE case_id = {case_id}"))
}

pub(crate) fn status_of(world: &World, table: &str) -> String {
    one(&world.store(), &format!("SELECT status FROM sync.resources WHERE table_name = '{table}'"))
}

/// The case with the most rows of a table.
pub(crate) fn richest(world: &World, table: &str) -> (i64, i64) {
    let store = world.store();
    let sql =
        format!("SELECT case_id, count(*) FROM main.{table} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1");
    store.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

/// Gives a case ten files and more; with how many.
pub(crate) fn many_files(world: &World) -> (i64, i64) {
    let (case, _) = richest(world, "case_files");
    for _ in 0..6 {
        change(world, case, Facet::Attachment);
    }
    world.sync();
    let had = rows(world, "case_files", case);
    assert!(had >= 10, "{had}");
    (case, had)
}

#[test]
fn two_quick_404s_remove_nothing_and_one_that_comes_later_does() {
    let world = mirrored(8);
    let (case, had) = richest(&world, "notes");
    assert!(had > 0);
    always(&world, &format!("/api/Notes/Case/{case}"), refuse(404));
    change(&world, case, Facet::Activity);
    assert_status(&world.run(&["sync"]), 3);
    for _ in 0..2 {
        alter(&world, "UPDATE sync.failures SET next_at = first_at");
        assert_status(&world.run(&["sync"]), 3);
        assert_eq!(rows(&world, "notes", case), had, "404s a moment apart confirm nothing");
    }
    age_failures(&world, 11);
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(rows(&world, "notes", case), 0);
}

/// The feed does not tell of it. The same 404 removes a case that a search lacks.
#[test]
fn a_case_whose_roles_are_gone_is_searched_again_and_leaves_with_all_that_hangs_on_it() {
    let world = mirrored(8);
    let (case_id, had) = richest(&world, "case_roles");
    let path = format!("/api/Cases/{case_id}/Roles");
    always(&world, &path, refuse(500));
    change(&world, case_id, Facet::RoleAdded);
    assert_status(&world.run(&["sync"]), 3);
    world.sandbox.clear_faults();
    // As if it had been searched once more for its change already, and had still been there.
    alter(&world, "UPDATE sync.fetched_scopes SET again_at = NULL");
    world.sandbox.act(&Act::DeleteCase { case_id }).unwrap();
    for minutes in [0, 11] {
        assert_eq!(rows(&world, "case_roles", case_id), had);
        age_failures(&world, minutes);
        world.run(&["sync"]);
    }
    assert_eq!(rows(&world, "case_roles", case_id), 0);
    let row = format!(
        "SELECT count(*) FROM (SELECT id FROM main.cases UNION ALL SELECT id FROM main.projects) \
         WHERE id = {case_id}"
    );
    assert_eq!(one::<i64>(&world.store(), &row), 0);
    world.assert_equal();
}

#[test]
fn one_403_of_one_case_stops_neither_the_table_nor_the_run() {
    let world = mirrored(8);
    let (case, had) = richest(&world, "notes");
    let other = shown_cases(&world).into_iter().find(|id| *id != case).unwrap();
    always(&world, &format!("/api/Notes/Case/{case}"), refuse(403));
    change(&world, case, Facet::Activity);
    change(&world, other, Facet::Activity);
    world.sandbox.reset_stats();
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("notes: 1 scope failed"), "{}", shown(&output));
    assert_eq!(status_of(&world, "notes"), "ok");
    assert!(calls(&world).contains_key(&format!("GET /api/Notes/Case/{other}")));
    assert_eq!(rows(&world, "notes", case), had);
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    world.sync();
    world.assert_equal();
}

#[test]
fn one_403_of_a_listing_does_not_close_the_search_and_a_second_one_does() {
    let world = mirrored(8);
    let reconcile = || {
        alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'");
        world.run(&["sync"])
    };
    let listing = |status: u16, times| {
        let rule = scripted::fault(&search_path("Property"), times, refuse(status));
        world.sandbox.fault(rule)
    };
    for _ in 0..2 {
        listing(403, Some(1));
        let output = reconcile();
        assert_status(&output, 3);
        assert!(shown(&output).contains("cases: 1 scope failed"), "{}", shown(&output));
        assert_eq!(status_of(&world, "cases"), "failing");
        // It is asked again, and that it is answered now speaks against the next one.
        age_failures(&world, 20);
        assert_status(&world.run(&["sync"]), 0);
        world.assert_equal();
    }
    listing(403, None);
    for (doubt, status, ends) in [("10m", "failing", 3), ("0s", "forbidden", 0)] {
        world.doubt(doubt);
        assert_status(&reconcile(), ends);
        assert_eq!(status_of(&world, "cases"), status, "{doubt}");
    }
}

#[test]
fn a_permission_that_is_not_granted_forbids_the_table_at_its_first_403() {
    let world = mirrored(8);
    let case = shown_cases(&world)[0];
    world.sandbox.control(Control::Withdraw { permission: "Activities - Read".to_owned() });
    change(&world, case, Facet::Activity);
    world.run(&["sync"]);
    assert_eq!(status_of(&world, "activities"), "forbidden");
}

#[test]
fn one_endpoints_401_is_its_own_failure() {
    let world = mirrored(8);
    let case = shown_cases(&world)[0];
    always(&world, "/api/Cases/*/Activities", refuse(401));
    change(&world, case, Facet::Activity);
    change(&world, case, Facet::Transaction);
    world.sandbox.reset_stats();
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("activities"), "{}", shown(&output));
    let entries = format!("GET /api/Integrations/Bookkeeping/Cases/{case}/Entries");
    assert!(calls(&world).contains_key(&entries), "everything else is read");
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    world.sync();
    world.assert_equal();
}

#[test]
fn resets_of_one_search_do_not_stop_the_other_resources() {
    let world = mirrored(8);
    let case = shown_cases(&world)[0];
    always(&world, "/api/Search/AdvancedPropertySearch", Fault::Drop);
    change(&world, case, Facet::Activity);
    world.sandbox.reset_stats();
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(calls(&world).contains_key(&format!("GET /api/Cases/{case}/Activities")));
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    world.sync();
    world.assert_equal();
}

#[test]
fn a_feed_that_cannot_be_read_stops_no_schedule() {
    let world = mirrored(8);
    alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reference'");
    always(&world, "/api/Integrations/RecentlyModified/Cases", refuse(500));
    world.sandbox.reset_stats();
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("the change feed (cases) cannot be read"));
    assert!(calls(&world).contains_key("GET /api/Employees"), "{:?}", calls(&world));
}

#[test]
fn a_source_that_cannot_be_reached_at_all_ends_the_run() {
    let world = mirrored(8);
    always(&world, "*", Fault::Drop);
    let output = world.run(&["sync"]);
    assert_status(&output, 1);
}

#[test]
fn a_case_that_loses_all_of_many_rows_is_asked_again_before_it_is_believed() {
    let world = mirrored(8);
    let (case, had) = many_files(&world);
    always(&world, &format!("/api/Cases/{case}/Directory/Search"), garbage("[]"));
    change(&world, case, Facet::Attachment);
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("source.doubt"), "{}", shown(&output));
    assert_eq!(rows(&world, "case_files", case), had);
    alter(&world, "UPDATE sync.failures SET next_at = first_at");
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(rows(&world, "case_files", case), had, "too soon to confirm it");
    age_failures(&world, 11);
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(rows(&world, "case_files", case), 0);
}

#[test]
fn rows_come_back_without_a_trace_where_the_empty_answer_was_wrong() {
    let world = mirrored(8);
    let (case, _) = many_files(&world);
    always(&world, &format!("/api/Cases/{case}/Directory/Search"), garbage("[]"));
    change(&world, case, Facet::Attachment);
    assert_status(&world.run(&["sync"]), 3);
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    world.sync();
    world.assert_equal();
    let versions = format!(
        "SELECT count(*) FROM history.case_files WHERE case_id = {case} AND _change = 'deleted'"
    );
    assert_eq!(one::<i64>(&world.store(), &versions), 0);
}

#[test]
fn the_guard_counts_the_answers_of_the_last_hour_together() {
    let world = mirrored(40);
    let total: i64 = one(&world.store(), "SELECT count(*) FROM main.notes");
    assert!(total > 51, "{total}");
    // Case by case, each too few to be doubted or held alone.
    always(&world, "/api/Notes/Case/*", garbage("[]"));
    for cases in shown_cases(&world).chunks(7) {
        for case in cases {
            change(&world, *case, Facet::Activity);
        }
        let ids: Vec<String> = cases.iter().map(i64::to_string).collect();
        world.run(&["sync", "--case", &ids.join(",")]);
    }
    let left: i64 = one(&world.store(), "SELECT count(*) FROM main.notes");
    assert!(left > 0 && total - left <= 51, "{left} of {total} are left");
    assert_status(&world.run(&["status"]), 3);
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    // What few answers removed comes back when it is read again.
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

#[test]
fn without_the_project_search_deleted_cases_leave_and_the_first_run_publishes() {
    let world = World::with(unthrottled(8));
    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = [\"projects\"]\n"));
    world.sync();
    assert!(world.path("data/casemirror.duckdb").exists());
    let case = shown_cases(&world)[0];
    delete_case(&world, case);
    alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'");
    world.run(&["sync"]);
    let left = format!("SELECT count(*) FROM main.cases WHERE id = {case}");
    assert_eq!(one::<i64>(&world.store(), &left), 0);
}

#[test]
fn a_forbidden_project_search_does_not_keep_the_first_run_from_publishing() {
    let world = World::with(unthrottled(8));
    world.configure(UNTHROTTLED);
    always(&world, "/api/Search/AdvancedProjectSearch", refuse(403));
    world.run(&["sync"]);
    assert_eq!(status_of(&world, "projects"), "forbidden");
    assert!(world.path("data/casemirror.duckdb").exists());
}

fn delete_case(world: &World, case_id: i64) {
    world.sandbox.act(&Act::DeleteCase { case_id }).unwrap();
}

#[test]
fn an_id_that_both_searches_list_is_a_case_and_stays_one() {
    let world = World::with(unthrottled(8));
    world.configure(UNTHROTTLED);
    // The project search answers what the property search does.
    let both: Vec<Value> = world.sandbox.tables(&["cases"])["tables"]["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!({"Id": row["id"]}))
        .collect();
    let body = json!({"Count": both.len(), "Results": both}).to_string();
    always(&world, "/api/Search/AdvancedProjectSearch", garbage(&body));
    world.run(&["sync"]);
    let cases = || one::<i64>(&world.store(), "SELECT count(*) FROM main.cases");
    let expected = both.len() as i64;
    assert_eq!(cases(), expected);
    for _ in 0..2 {
        alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'");
        world.run(&["sync"]);
        assert_eq!(cases(), expected);
        assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM main.projects"), 0);
    }
    assert_eq!(lines(&world.store(), "SELECT id FROM history.cases").len(), 0);
}

#[test]
fn a_case_that_no_search_shows_is_followed_and_is_no_failure() {
    let world = World::with(unthrottled(8));
    world.configure(UNTHROTTLED);
    let case = shown_cases(&world)[0];
    let empty = |path: &str| {
        world.sandbox.fault(Rule {
            method: None,
            path: path.to_owned(),
            query: Some(format!("Id eq {case}")),
            nth: 1,
            count: None,
            fault: garbage(r#"{"Count":0,"Results":[]}"#),
        });
    };
    hide_case(&world, case);
    empty("/api/Search/AdvancedPropertySearch");
    world.sync();
    world.sandbox.reset_stats();
    world.sync();
    let asked = calls(&world);
    assert!(!asked.contains_key(&format!("GET /api/Cases/{case}/Roles")), "{asked:?}");
    assert!(rows(&world, "activities", case) >= 0);
    change(&world, case, Facet::Activity);
    world.sandbox.reset_stats();
    world.sync();
    assert!(calls(&world).contains_key(&format!("GET /api/Cases/{case}/Activities")));
}

pub(crate) fn hide_case(world: &World, case_id: i64) {
    world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
}

#[test]
fn what_merely_waits_is_no_failure_in_status() {
    let world = mirrored(8);
    let case = shown_cases(&world)[0];
    change(&world, case, Facet::Activity);
    assert_status(&world.run(&["sync", "--only", "notes"]), 0);
    let output = world.run(&["status"]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("waiting: activities"), "{}", shown(&output));
}

/// The projects' search shows cases too, and the property search shows none for once: they stay cases.
#[test]
fn a_property_search_that_is_suddenly_empty_makes_no_case_a_project() {
    let world = mirrored(12);
    let cases = shown_cases(&world);
    let records: Vec<String> = cases.iter().map(|id| format!("{{\"Id\":{id}}}")).collect();
    let all = format!("{{\"Count\":{},\"Results\":[{}]}}", cases.len(), records.join(","));
    let kept =
        "SELECT (SELECT count(*) FROM main.cases) || ' ' || (SELECT count(*) FROM main.projects)";
    let before: String = one(&world.store(), kept);
    always(&world, "/api/Search/AdvancedPropertySearch", garbage(r#"{"Count":0,"Results":[]}"#));
    always(&world, "/api/Search/AdvancedProjectSearch", garbage(&all));
    let listed = world.run(&["sync", "--full"]);
    assert_status(&listed, 3);
    assert!(shown(&listed).contains("reconcile.max_removed"), "{}", shown(&listed));
    assert_eq!(one::<String>(&world.store(), kept), before);
    // Nor where they are asked for by their ids.
    cases.iter().for_each(|case| drop(change(&world, *case, Facet::Description)));
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(one::<String>(&world.store(), kept), before);
}

/// Only what the mirror shows can leave it: the guard holds neither a case that is new nor one that is hidden.
#[test]
fn what_takes_no_row_along_is_not_held_with_those_that_do() {
    let world = mirrored(80);
    let cases = shown_cases(&world);
    let (hidden, others) = cases[..60].split_at(56);
    hidden.iter().for_each(|case| hide_case(&world, *case));
    hidden.iter().for_each(|case| drop(change(&world, *case, Facet::Description)));
    let held = world.run(&["sync"]);
    assert_status(&held, 3);
    assert!(shown(&held).contains("reconcile.max_removed"), "{}", shown(&held));

    world.sandbox.act(&Act::NewCase { project: true, assignment: None }).unwrap();
    let count = "SELECT count(*) FROM main.projects";
    let before: i64 = one(&world.store(), count);
    change(&world, others[0], Facet::Activity);
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(one::<i64>(&world.store(), count), before + 1);

    world.run(&["sync", "--allow-removals"]);
    world.run(&["sync", "--allow-removals"]);
    let left = "SELECT count(*) FROM sync.seen WHERE state = 'hidden'";
    assert_eq!(one::<i64>(&world.store(), left), 56);
    change(&world, hidden[3], Facet::Activity);
    assert_status(&world.run(&["sync"]), 0);
}

/// What answers 404 for every case does not say of one that it is gone, nor when it is tried again.
#[rstest]
#[case::known_to_be_absent("")]
#[case::tried_again_by_the_schedule("[schedule]\nreference = \"* * * * * *\"\n")]
#[case::disabled("[resources]\ndisable = [\"case_roles\"]\n")]
fn roles_that_are_absent_decide_about_no_case(#[case] more: &str) {
    let world = World::with(unthrottled(24));
    world.configure(UNTHROTTLED);
    always(&world, "/api/Cases/*/Roles", refuse(404));
    world.sync();
    let absent = "SELECT status FROM sync.resources WHERE table_name = 'case_roles'";
    assert_eq!(one::<String>(&world.store(), absent), "absent");
    world.configure(&format!("{UNTHROTTLED}{more}"));
    let case = shown_cases(&world)[3];
    let activities = rows(&world, "activities", case);
    hide_case(&world, case);
    change(&world, case, Facet::Activity);
    let output = world.run(&["sync", "--full"]);
    assert_status(&output, 3);
    let why = "/api/Cases/{caseId}/Roles has answered 404 for every case so far";
    assert!(shown(&output).contains(why), "{}", shown(&output));
    assert!(rows(&world, "activities", case) >= activities && activities > 0);

    // It is there after all, though nothing of it was ever read: it answers for others.
    world.sandbox.clear_faults();
    delete_case(&world, case);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(rows(&world, "activities", case), 0);
}

/// Of two cases that the property search lacks one spoils the projects' search: of the other it is known that it is in
/// neither, of that one nothing.
#[test]
fn a_case_of_which_the_second_search_says_nothing_is_left_alone() {
    let world = mirrored(24);
    let cases = shown_cases(&world);
    let (spoils, lacks) = (cases[3], cases[4]);
    for (path, fault) in [
        ("/api/Search/AdvancedPropertySearch", garbage(r#"{"Count":0,"Results":[]}"#)),
        ("/api/Search/AdvancedProjectSearch", refuse(500)),
    ] {
        let query = Some(format!("Id eq {spoils}"));
        world.sandbox.fault(Rule { query, ..scripted::fault(path, None, fault) });
    }
    hide_case(&world, lacks);
    for case in [spoils, lacks] {
        change(&world, case, Facet::Activity);
    }
    assert_status(&world.run(&["sync"]), 3);
    let said = "SELECT id, kind FROM sync.failures WHERE table_name = 'cases'";
    assert_eq!(lines(&world.store(), said), [format!("{{'id': {spoils}, 'kind': Unknown}}")]);
    let decided = format!(
        "SELECT case_id FROM sync.seen WHERE case_id IN ({spoils}, {lacks}) \
           AND (suspect_at IS NOT NULL OR state = 'hidden')"
    );
    assert_eq!(lines(&world.store(), &decided), [format!("{{'case_id': {lacks}}}")]);
}
