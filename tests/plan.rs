//! `casemirror plan`: what it says is what the next `sync` calls, where the world stands still.

use std::collections::BTreeMap;
use std::process::Output;

use casemirror::sandbox::{Act, Facet, HeavyAnswer, HeavyJournal, Options};
use duckdb::Connection;

use crate::support::follow::{UNTHROTTLED, calls, change, shown_cases, unthrottled};
use crate::support::{World, shown};

/// Makes schedules fall due.
fn due(world: &World, schedules: &[&str]) {
    let conn = Connection::open(world.path("data/store.duckdb")).unwrap();
    for name in schedules {
        let sql = "UPDATE sync.schedules SET last_run = TIMESTAMPTZ '2026-01-01 00:00:00+00' \
                   WHERE name = ?";
        assert_eq!(conn.execute(sql, [name]).unwrap(), 1);
    }
}

/// What `plan` says: per line its calls, the last one `in all`.
fn planned(world: &World) -> Vec<(String, u64)> {
    told(&world.run(&["plan"]))
}

fn told(output: &Output) -> Vec<(String, u64)> {
    assert_eq!(output.status.code(), Some(0), "{}", shown(output));
    let text = String::from_utf8_lossy(&output.stdout);
    let cells = |line: &str| -> Vec<String> {
        line.split("  ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let rows: Vec<(String, u64)> = text
        .lines()
        .map(cells)
        .filter_map(|row| Some((row.first()?.clone(), row.iter().rev().nth(1)?.parse().ok()?)))
        .collect();
    assert_eq!(rows.last().map(|(what, _)| what.as_str()), Some("in all"), "{text}");
    rows
}

/// Asserts that the next `sync` makes the calls that `plan` tells, beside the token.
fn assert_planned(world: &World, at_least: u64) {
    let planned = planned(world);
    world.sandbox.reset_stats();
    let text = world.sync();
    let mut made = calls(world);
    made.remove("POST /authtoken");
    let (told, sum) = (planned.last().unwrap().1, made.values().sum::<u64>());
    assert_eq!(told, sum, "{planned:#?}\n{made:#?}\n{text}");
    assert!(told >= at_least, "{planned:#?}");
}

#[test]
fn a_reconciliation_that_is_due_is_told_to_the_call() {
    let world = World::with(unthrottled(40));
    world.configure(UNTHROTTLED);
    world.bootstrap();
    assert_planned(&world, 2);
    for case_id in &shown_cases(&world)[10..18] {
        change(&world, *case_id, Facet::Activity);
    }
    world.sandbox.act(&Act::HideCase { case_id: shown_cases(&world)[20], silent: false }).unwrap();
    world.sync();
    due(&world, &["reconcile"]);
    assert_planned(&world, 8 * 20);
    world.assert_equal();
    // Nothing has changed since.
    due(&world, &["reconcile"]);
    assert_planned(&world, 4);
    // Values that did not fit: the scopes of two cases, of which one has moved, too, and a contact.
    let cases = &shown_cases(&world)[10..12];
    change(&world, cases[0], Facet::Activity);
    world.sync();
    let rejects = format!(
        "INSERT INTO sync.rejects BY NAME SELECT 1 AS run_id, now() AS first_at, now() AS last_at, \
           table_name, scope, scope AS record_key, column_name FROM (VALUES \
           ('document_costs', '{0}', 'amount'), ('document_costs', '{1}', 'amount'), \
           ('contacts', (SELECT min(id)::VARCHAR FROM main.contacts WHERE search_type IS NOT NULL), 'name')) t(table_name, scope, column_name)",
        cases[0], cases[1]
    );
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(&rejects)
        .unwrap();
    due(&world, &["reconcile"]);
    assert_planned(&world, 4 + 20 + 2);
    world.configure(&format!("{UNTHROTTLED}[reconcile]\nreread = \"off\"\n"));
    change(&world, shown_cases(&world)[12], Facet::Activity);
    world.sync();
    due(&world, &["reconcile"]);
    assert_planned(&world, 4);
}

#[test]
fn a_hidden_case_is_told_to_be_searched_in_both_searches_and_asked_for() {
    let world = World::with(unthrottled(20));
    world.configure(UNTHROTTLED);
    world.bootstrap();
    let case_id = shown_cases(&world)[3];
    world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
    world.sync();
    change(&world, case_id, Facet::Activity);
    // What is searched within the delay is searched once more.
    for (delay, rounds) in [("0s", 1), ("10m", 2)] {
        let plan = world.command(&["plan"]).env("CASEMIRROR_SOURCE__SEARCH_DELAY", delay).output();
        let lines: BTreeMap<String, u64> = told(&plan.unwrap()).into_iter().collect();
        assert_eq!(lines["cases"], 3 * rounds, "{lines:?}");
    }
}

#[test]
fn a_verify_that_is_due_is_told_to_the_call() {
    // As many cases as are sampled, or fewer: which ones are read whole is left to chance.
    let world = World::with(unthrottled(5));
    world.configure(UNTHROTTLED);
    world.bootstrap();
    due(&world, &["verify"]);
    assert_planned(&world, 14 + 12 + 5 * 20);
    due(&world, &["verify", "reconcile", "journals"]);
    assert_planned(&world, 14 + 12 + 5 * 20 + 5 * 12);
}

#[test]
fn months_that_are_too_much_for_one_call_are_told_in_parts() {
    let heavy = HeavyJournal { office_id: 12, days: 7, answer: HeavyAnswer::GatewayTimeout };
    let world = World::with(Options { heavy_journal: Some(heavy), ..unthrottled(20) });
    world.configure(UNTHROTTLED);
    world.bootstrap();
    due(&world, &["journals"]);
    // Parts of four days of two months in four journals: the same lines come again, so that once is enough.
    assert_planned(&world, 8 * 2 * 4);
}

#[test]
fn a_list_that_is_asked_for_each_category_is_told_with_as_many_calls() {
    let world = World::unthrottled(4);
    world.bootstrap();
    due(&world, &["reference"]);
    let planned: BTreeMap<String, u64> = planned(&world).into_iter().collect();
    assert_eq!(planned["entry_definitions"], 10, "{planned:?}");
    world.sandbox.reset_stats();
    world.sync();
    let made = calls(&world);
    let asked = made.keys().filter(|call| call.ends_with("/EntryDefinitions")).count();
    assert_eq!(asked, 10, "{made:?}");
}
