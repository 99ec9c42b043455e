//! The mirror equals the source, by exactly the calls that the changes call for.

use std::collections::BTreeSet;
use std::time::Duration;

use casemirror::sandbox::{Act, Control, Facet, MaxTop, Options};
use serde_json::json;

use crate::support::follow::{
    Integrator, UNTHROTTLED, assert_status, brisk, calls, change, differences_beside, idle_calls,
    lines, shown_cases, unthrottled, written,
};
use crate::support::{World, one, shown};

#[test]
fn a_run_without_changes_asks_each_feed_once_and_writes_no_row() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    world.assert_equal();
    change(&world, shown_cases(&world)[20], Facet::Sold);
    world.sandbox.act(&Act::EditContact { contact_id: None, at: None }).unwrap();
    world.sync();
    world.assert_equal();
    let before = written(&world.store());
    for _ in 0..2 {
        world.sandbox.reset_stats();
        world.sync();
        assert_eq!(calls(&world), idle_calls());
        assert_eq!(written(&world.store()), before);
    }
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

#[test]
fn a_deleted_case_leaves_with_all_that_hangs_on_it_and_stays_in_history() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    let gone = shown_cases(&world)[12];
    let sql = |table: &str, schema: &str, key: &str| {
        format!("SELECT count(*) FROM {schema}.{table} WHERE {key} = {gone}")
    };
    let tables = [
        ("cases", "id"),
        ("case_roles", "case_id"),
        ("costs", "case_id"),
        ("property_conditions", "case_id"),
        ("activities", "case_id"),
        ("entries", "case_id"),
    ];
    let before: Vec<i64> =
        tables.iter().map(|(table, key)| one(&world.store(), &sql(table, "main", key))).collect();
    assert_eq!(before[0], 1);
    assert!(before[1] > 0);
    world.sandbox.act(&Act::DeleteCase { case_id: gone }).unwrap();
    // Without a listing nothing says that a case is gone; with one it is asked after.
    let output = world.run(&["sync", "--full"]);
    assert_status(&output, 0);
    world.assert_equal();
    let store = world.store();
    for ((table, key), rows) in tables.iter().zip(before) {
        assert_eq!(one::<i64>(&store, &sql(table, "main", key)), 0, "{table}");
        let deleted = format!("{} AND _change = 'deleted'", sql(table, "history", key));
        assert_eq!(one::<i64>(&store, &deleted), rows, "{table}");
    }
}

#[test]
fn a_hidden_case_leaves_the_search_row_only_and_comes_back_when_it_is_shown() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    let case_id = shown_cases(&world)[15];
    let hidden = |change: &str| {
        let sql = format!("SELECT _change FROM history.cases WHERE id = {case_id} {change}");
        lines(&world.store(), &sql)
    };
    world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
    world.sync();
    world.assert_equal();
    assert!(!shown_cases(&world).contains(&case_id));
    assert_eq!(hidden("AND _change = 'hidden'").len(), 1);

    // The rest is followed on.
    change(&world, case_id, Facet::Activity);
    world.sync();
    world.assert_equal();

    world.sandbox.act(&Act::ShowCase { case_id, silent: false }).unwrap();
    world.sync();
    world.assert_equal();
    assert!(shown_cases(&world).contains(&case_id));
}

#[test]
fn an_index_that_suddenly_lists_nothing_removes_nothing() {
    let world = brisk(unthrottled(80));
    world.bootstrap();
    let before = written(&world.store());
    world.sandbox.control(Control::SearchListsNothing { on: true });
    let output = world.run(&["sync", "--full"]);
    assert_status(&output, 3);
    let text = shown(&output);
    assert!(text.contains("reconcile.max_removed"), "{text}");
    // Contacts are read by their ids then, which brings fewer fields: they get new versions.
    let rows = |all: &[(String, i64, Option<String>)]| -> Vec<(String, i64)> {
        let others = all.iter().filter(|(table, _, _)| table != "history.contacts");
        others.map(|(table, rows, _)| (table.clone(), *rows)).collect()
    };
    assert_eq!(rows(&written(&world.store())), rows(&before));
    assert_eq!(differences_beside(&world, "contacts"), [""; 0]);

    world.sandbox.control(Control::SearchListsNothing { on: false });
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
    assert_eq!(rows(&written(&world.store())), rows(&before));
}

#[test]
fn new_cases_and_projects_are_mirrored() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    for project in [false, true] {
        world.sandbox.act(&Act::NewCase { project, assignment: None }).unwrap();
    }
    world.sandbox.act(&Act::NewContact {}).unwrap();
    world.sync();
    world.assert_equal();
}

#[test]
fn what_is_written_through_the_api_shows_up() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    let case_id = shown_cases(&world)[11];
    let cost = one::<i64>(
        &world.store(),
        &format!(
            "SELECT min(id) FROM main.costs WHERE case_id = {case_id} AND cost_type = 'Buyer'"
        ),
    );
    let integrator = Integrator::log_in(&world);
    let books = format!("/api/Integrations/Bookkeeping/Cases/{case_id}");
    integrator.call(
        "POST",
        &format!("{books}/EntryDrafts"),
        &json!({"EntryDefinitionId": 202, "Amount": 1234.5, "Description": "a draft"}),
    );
    integrator.call(
        "POST",
        &format!("{books}/Entries"),
        &json!({"EntryDefinitionId": 201, "Amount": -99.95, "Description": "an entry",
                "EntryDate": "2026-01-31T00:00:00Z"}),
    );
    integrator.call(
        "PATCH",
        &format!("/api/Conditions/Properties/{case_id}/Costs/{cost}/Buyer"),
        &json!({"Amount": 4321.09, "Selected": true}),
    );
    world.sync();
    world.assert_equal();
    let store = world.store();
    let amount = |table: &str, which: &str| {
        let sql = format!("SELECT amount FROM main.{table} WHERE case_id = {case_id} AND {which}");
        lines(&store, &sql)
    };
    assert_eq!(amount("entry_drafts", "description = 'a draft'"), ["{'amount': 1234.50}"]);
    assert_eq!(amount("entries", "description = 'an entry'"), ["{'amount': -99.95}"]);
    assert_eq!(amount("costs", &format!("id = {cost}")), ["{'amount': 4321.09}"]);
}

#[test]
fn the_feed_is_followed_in_the_from_date_style_and_below_a_path() {
    let world = brisk(Options { base_path: "/flow".to_owned(), ..unthrottled(40) });
    world.configure(&format!("{UNTHROTTLED}style = \"from_date\"\n"));
    world.sync();
    world.assert_equal();
    let case_id = shown_cases(&world)[9];
    world.sandbox.reset_stats();
    change(&world, case_id, Facet::Transaction);
    world.sync();
    world.assert_equal();
    let log = world.sandbox.stats().log;
    let polls: Vec<&str> = log
        .iter()
        .filter(|call| call.path.contains("RecentlyModified"))
        .map(|call| call.query.split('=').next().unwrap())
        .collect();
    assert_eq!(polls, ["fromDate", "fromDate"]);
}

#[test]
fn a_feed_of_small_pages_is_read_to_its_end() {
    let max_top = MaxTop { search: 100, feed: 40, lists: 100 };
    let world = brisk(Options { max_top, ..unthrottled(250) });
    world.sync();
    world.assert_equal();
    let seen = one::<i64>(&world.store(), "SELECT count(*) FROM sync.seen WHERE reported");
    let polls = world.sandbox.stats().of("GET", "/api/Integrations/RecentlyModified/Cases");
    assert!(polls >= 7 && seen > 200, "{polls} polls saw {seen} cases");
    let kept = "SELECT max(page_size) * 1000 + min(page_size) FROM sync.feeds";
    assert_eq!(one::<i64>(&world.store(), kept), 100_100, "so small a page is not kept");
    assert_eq!(world.sandbox.stats().feed.violations, 0);
}

#[test]
fn a_forbidden_table_keeps_its_rows_and_is_filled_again_when_it_is_granted() {
    let world = brisk(unthrottled(30));
    let permission = || "Activities - Read".to_owned();
    let status = || {
        let sql = "SELECT status FROM sync.resources WHERE table_name = 'activities'";
        one::<String>(&world.store(), sql)
    };
    world.sync();
    let rows = one::<i64>(&world.store(), "SELECT count(*) FROM main.activities");
    world.sandbox.control(Control::Withdraw { permission: permission() });
    let case_id = shown_cases(&world)[10];
    change(&world, case_id, Facet::Activity);
    world.sync();
    assert_eq!(status(), "forbidden");
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM main.activities"), rows);
    let mut beside = differences_beside(&world, "activities");
    // What is granted now is read with the schedule.
    beside.retain(|difference| !difference.starts_with("api_permissions "));
    assert_eq!(beside, [""; 0]);

    // Nothing tries it again before the permissions are read.
    change(&world, case_id, Facet::Activity);
    world.sandbox.control(Control::Grant { permission: permission() });
    world.sync();
    assert_eq!(status(), "forbidden");

    world.configure(&format!("{UNTHROTTLED}[schedule]\nreference = \"* * * * * *\"\n"));
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(status(), "ok");
    world.assert_equal();
}

#[test]
fn only_and_case_leave_the_rest_pending() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    let cases = shown_cases(&world);
    let (one_case, other) = (cases[10], cases[11]);
    change(&world, one_case, Facet::Activity);
    change(&world, other, Facet::Activity);

    world.sandbox.reset_stats();
    let output = world.run(&["sync", "--only", "activities", "--case", &one_case.to_string()]);
    assert_status(&output, 0);
    let made: BTreeSet<String> = calls(&world).into_keys().collect();
    let activities = format!("GET /api/Cases/{one_case}/Activities");
    let mut expected: BTreeSet<String> = idle_calls().into_keys().collect();
    expected.insert(activities);
    assert_eq!(made.difference(&expected).collect::<Vec<_>>(), [""; 0]);
    let pending = lines(
        &world.store(),
        "SELECT DISTINCT table_name FROM sync.pending WHERE table_name = 'activities'",
    );
    assert_eq!(pending.len(), 1, "the other case's activities are pending");

    world.sandbox.reset_stats();
    world.sync();
    world.assert_equal();
    let made = calls(&world);
    assert!(!made.contains_key(&format!("GET /api/Cases/{one_case}/Activities")), "{made:?}");
    assert_eq!(made[&format!("GET /api/Cases/{other}/Activities")], 1);
}

#[test]
fn only_with_a_part_of_another_tables_records_reads_that_table_and_says_so() {
    let world = brisk(unthrottled(6));
    world.bootstrap();
    for (part, table, call) in [
        ("case_file_access", "case_files", "/Directory/Search"),
        ("revenue_journal_annotations", "revenue_journals", "/RevenueJournals"),
    ] {
        world.sandbox.reset_stats();
        let output = world.run(&["sync", "--full", "--only", part]);
        assert_status(&output, 0);
        let told = format!("--only {part}: its rows come with {table}, which is read");
        assert!(String::from_utf8_lossy(&output.stderr).contains(&told), "{}", shown(&output));
        let made = calls(&world);
        assert!(made.keys().any(|made| made.ends_with(call)), "{part}: {made:?}");
    }
    let one_case = shown_cases(&world)[0].to_string();
    world.sandbox.reset_stats();
    let output = world.run(&["sync", "--full", "--only", "case_file_access", "--case", &one_case]);
    assert_status(&output, 0);
    let made = calls(&world);
    let read: u64 =
        made.iter().filter(|(call, _)| call.ends_with("/Directory/Search")).map(|(_, n)| n).sum();
    assert_eq!(read, 1, "{made:?}");
}

#[test]
fn a_disabled_table_is_not_read_and_is_filled_when_it_is_enabled() {
    let world = brisk(unthrottled(30));
    let off = format!("{UNTHROTTLED}[resources]\ndisable = [\"costs\", \"entries\"]\n");
    world.configure(&off);
    world.sync();
    let stats = world.sandbox.stats();
    let unread: Vec<_> = stats
        .log
        .iter()
        .filter(|call| call.path.contains("/Costs/") || call.path.ends_with("/Entries"))
        .collect();
    assert!(unread.is_empty(), "{unread:?}");
    let sql = "SELECT count(*) FROM sync.resources WHERE status = 'disabled'";
    assert_eq!(one::<i64>(&world.store(), sql), 2);
    let complete = "SELECT complete FROM report.snapshot";
    assert!(one::<bool>(&world.published(), complete));

    world.configure(UNTHROTTLED);
    world.sync();
    world.assert_equal();
    assert!(one::<bool>(&world.published(), complete));
}

#[test]
fn history_chains_every_version_and_unchanged_rows_keep_their_time() {
    let world = brisk(unthrottled(30));
    world.bootstrap();
    let case_id = shown_cases(&world)[10];
    let mut versions = Vec::new();
    let synced = |world: &World| {
        let sql = format!("SELECT _synced_at::VARCHAR FROM main.cases WHERE id = {case_id}");
        one::<String>(&world.store(), &sql)
    };
    let others = |world: &World| {
        let sql = format!(
            "SELECT id, _synced_at FROM main.cases WHERE id <> {case_id} UNION ALL \
             SELECT id, _synced_at FROM main.activities WHERE case_id <> {case_id} ORDER BY ALL"
        );
        lines(&world.store(), &sql)
    };
    let before = others(&world);
    for facet in [Facet::Description, Facet::Activity] {
        versions.push(synced(&world));
        change(&world, case_id, facet);
        world.sync();
    }
    versions.push(synced(&world));
    assert_eq!(others(&world), before);
    let chain = lines(
        &world.store(),
        &format!(
            "SELECT _valid_from::VARCHAR, _valid_to::VARCHAR, _change FROM history.cases \
             WHERE id = {case_id} ORDER BY _valid_from"
        ),
    );
    let expected: Vec<String> = versions
        .windows(2)
        .map(|v| {
            format!(
                "{{'CAST(_valid_from AS VARCHAR)': '{}', 'CAST(_valid_to AS VARCHAR)': '{}', \
                 '_change': updated}}",
                v[0], v[1]
            )
        })
        .collect();
    assert_eq!(chain, expected);
}

#[test]
fn a_mirror_that_lacks_scopes_says_so() {
    let world = brisk(unthrottled(30));
    world.sandbox.fault(refused("/api/Properties/*/CommonConditions"));
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    let complete = "SELECT complete FROM report.snapshot";
    assert!(!one::<bool>(&world.published(), complete));
    world.sandbox.clear_faults();
    // What failed is tried again when its backoff is over.
    let retried = world.run(&["sync", "--full"]);
    assert!(retried.status.code().is_some(), "{}", shown(&retried));
}

/// A call that always fails.
fn refused(path: &str) -> casemirror::sandbox::Rule {
    casemirror::sandbox::Rule {
        method: None,
        path: path.to_owned(),
        query: None,
        nth: 1,
        count: None,
        fault: casemirror::sandbox::Fault::Refuse {
            status: 400,
            headers: Default::default(),
            body: String::new(),
        },
    }
}

#[test]
fn a_contact_that_the_search_learns_of_late_is_filled_up() {
    let world = brisk(Options { search_lag: Duration::from_millis(500), ..unthrottled(30) });
    world.bootstrap();
    change(&world, shown_cases(&world)[10], Facet::ContactAdded);
    world.sync();
    world.assert_equal();
}
