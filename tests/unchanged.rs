//! An answer that is the one that is mirrored is fetched and not decoded. Rows that somebody altered in the
//! store show it: they stay until an answer is decoded.

use casemirror::sandbox::Facet;
use duckdb::Connection;

use crate::support::follow::{UNTHROTTLED, assert_status, brisk, change, shown_cases, unthrottled};
use crate::support::{World, one};

const DUE: &str = "[schedule]\nreference = \"* * * * * *\"\njournals = \"* * * * * *\"\n";

/// Writes into the store what no answer said: into the rows of a list, of a journal, and of a case that
/// has costs, which is returned.
fn alter(world: &World) -> i64 {
    let store = Connection::open(world.path("data/store.duckdb")).unwrap();
    let shown = shown_cases(world).iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT min(case_id) FROM main.costs WHERE case_id IN ({shown})");
    let case_id = one::<i64>(&store, &sql);
    store
        .execute_batch(&format!(
            "UPDATE main.offices SET name = 'altered'; \
             UPDATE main.depot_journals SET city = 'altered'; \
             UPDATE main.costs SET comment = 'altered' WHERE case_id = {case_id}"
        ))
        .unwrap();
    case_id
}

fn altered(world: &World, case_id: i64) -> [bool; 3] {
    let store = world.store();
    let all = |table: &str, which: &str| {
        let sql = format!("SELECT count(*) > 0 AND bool_and({which}) FROM main.{table}");
        one::<bool>(&store, &sql)
    };
    [
        all("offices", "name = 'altered'"),
        all("depot_journals", "city = 'altered'"),
        all("costs", &format!("comment = 'altered' OR case_id <> {case_id}")),
    ]
}

/// When the newest of each was fetched.
fn fetched(world: &World, case_id: i64) -> [i64; 3] {
    let store = world.store();
    let scope = |which: &str| {
        one::<i64>(
            &store,
            &format!("SELECT epoch_us(max(fetched_at)) FROM sync.fetched WHERE {which}"),
        )
    };
    [
        scope("table_name = 'offices'"),
        one(
            &store,
            "SELECT epoch_us(max(read_at)) FROM sync.journal_months WHERE table_name = 'depot_journals'",
        ),
        scope(&format!("table_name = 'costs' AND id = {case_id}")),
    ]
}

#[test]
fn an_equal_answer_is_fetched_and_not_decoded_until_it_would_be_decoded_to_other_rows() {
    let world = brisk(unthrottled(12));
    world.configure(&format!("{UNTHROTTLED}{DUE}"));
    world.bootstrap();
    let case_id = alter(&world);
    let before = fetched(&world, case_id);

    // All dates move with this one, and the notes stay as they are.
    change(&world, case_id, Facet::Activity);
    world.sync();
    assert_eq!(altered(&world, case_id), [true; 3]);
    let after = fetched(&world, case_id);
    for (before, after) in before.iter().zip(&after) {
        assert!(before < after, "not fetched: {before:?} {after:?}");
    }

    // So are months that somebody asks for.
    let bounds = "SELECT min(journal_month) || ' ' || max(journal_month) FROM main.depot_journals";
    let bounds = one::<String>(&world.store(), bounds);
    let (first, last) = bounds.split_once(' ').unwrap();
    assert_status(&world.run(&["journals", "--kind", "depot", "--from", first, "--to", last]), 0);
    assert_eq!(altered(&world, case_id), [true; 3]);
    assert!(after[1] < fetched(&world, case_id)[1], "not fetched");

    // Decoded by another definition, the same answers are other rows.
    change(&world, case_id, Facet::Activity);
    let mut sync = world.command(&["sync"]);
    assert_status(&sync.env("CASEMIRROR_SOURCE__TIME_ZONE", "Europe/London").output().unwrap(), 0);
    assert_eq!(altered(&world, case_id), [false; 3]);
}

#[test]
fn a_full_sync_decodes_every_answer() {
    let world = brisk(unthrottled(12));
    world.bootstrap();
    let case_id = alter(&world);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(altered(&world, case_id), [false; 3]);
    world.assert_equal();
}

#[test]
fn what_was_hidden_meanwhile_is_decoded_again_though_the_answer_is_the_same() {
    let world = brisk(unthrottled(12));
    let reading = format!("{UNTHROTTLED}{DUE}");
    world.configure(&reading);
    world.bootstrap();
    // What is stored is hidden, and nothing is read.
    world.configure(UNTHROTTLED);
    let mut hiding = world.command(&["sync"]);
    let hidden = hiding.env("CASEMIRROR_PRIVACY__CONTACT_DETAILS", "drop").output().unwrap();
    assert_status(&hidden, 0);
    assert!(!world.differences().is_empty(), "contact details are gone");
    // Two schedules make the same due as the change does.
    world.configure(&reading);
    world.sync();
    world.assert_equal();
}
