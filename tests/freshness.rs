//! Changes come before what takes long: journals, whoever asked for them.

use casemirror::sandbox::Facet;
use duckdb::Connection;

use crate::support::World;
use crate::support::follow::{
    UNTHROTTLED, assert_status, calls, change, hold, shown_cases, start, unthrottled, while_held,
};

const JOURNAL: &str = "/api/Offices/*/RevenueJournals";

fn month(ago: i32) -> String {
    let first = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(ago);
    first.to_string()
}

fn activities_read(world: &World) -> usize {
    calls(world).keys().filter(|call| call.ends_with("/Activities")).count()
}

#[test]
fn what_changed_while_nothing_ran_is_read_before_the_journals() {
    let world = World::with(unthrottled(20));
    world.journals_since(&month(1));
    world.configure(UNTHROTTLED);
    world.bootstrap();
    Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch("UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'journals'")
        .unwrap();
    change(&world, shown_cases(&world)[7], Facet::Activity);
    world.sandbox.reset_stats();
    hold(&world, "journal", JOURNAL, 1);
    let output = while_held(&world, start(&world, &["sync"]), "journal", || {
        assert_eq!(activities_read(&world), 1, "{:?}", calls(&world));
    });
    assert_status(&output, 0);
    assert_eq!(activities_read(&world), 1, "and not once more");
    world.assert_equal();
}

/// More of them than are taken in between at once.
#[test]
fn all_that_changes_while_a_command_reads_journals_is_followed_meanwhile() {
    let world = World::with(unthrottled(215));
    world.journals_since(&month(1));
    world.configure_eager("[schedule]\nreconcile = \"0 0 1 1 *\"\n");
    world.sync();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    world.sandbox.reset_stats();
    hold(&world, "journal", JOURNAL, 1);
    let command = ["journals", "--from", &month(1), "--to", &month(1), "--kind", "revenue"];
    let journals = start(&world, &command);
    assert!(world.wait(world.sandbox.wait_until_held("journal")));
    let changed = &shown_cases(&world)[..205];
    for case_id in changed {
        change(&world, *case_id, Facet::Activity);
    }
    daemon.wait_until("all changes are read", || activities_read(&world) == changed.len());
    world.sandbox.release("journal");
    assert_status(&journals.wait_with_output().unwrap(), 0);
    daemon.wait_until_idle();
    daemon.stop();
    world.assert_equal();
}
