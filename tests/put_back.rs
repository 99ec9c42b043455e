//! A store that is put back to an earlier state, as a machine's snapshot or a copy of its file does, and targets that are
//! others for a while: what readers have is what the store holds now, and not what it held in the time that is gone.

use std::fs;

use casemirror::sandbox::Facet;

use crate::support::follow::{assert_status, change, shown_cases};
use crate::support::{World, one};

/// Puts a copy of the store's file in its place.
fn put_back(world: &World, copy: &std::path::Path) {
    let store = world.path("data/store.duckdb");
    fs::copy(copy, &store).unwrap();
    let _ = fs::remove_file(world.path("data/store.duckdb.wal"));
}

fn copy_of_store(world: &World) -> std::path::PathBuf {
    let copy = world.path("copy.duckdb");
    fs::copy(world.path("data/store.duckdb"), &copy).unwrap();
    copy
}

/// In both times the same tables change as often, and not in the same way.
#[test]
fn no_file_of_the_time_that_is_gone_is_linked_into_a_snapshot() {
    let world = World::with_snapshots(12);
    world.bootstrap();
    let copy = copy_of_store(&world);
    let cases = shown_cases(&world);
    for case in [cases[0], cases[1]] {
        change(&world, case, Facet::Activity);
        change(&world, case, Facet::Note);
        world.sync();
        world.assert_published();
        // The second time begins where the first did.
        if case == cases[0] {
            put_back(&world, &copy);
        }
    }
    world.assert_equal();
}

#[test]
fn targets_that_were_others_for_a_while_are_brought_up_to_date_again() {
    let world = World::with_snapshots(6);
    world.bootstrap();
    let elsewhere = [
        "--set",
        "publish.database=elsewhere/casemirror.duckdb",
        "--set",
        "publish.parquet=elsewhere/parquet",
        "sync",
    ];
    change(&world, shown_cases(&world)[0], Facet::Note);
    assert_status(&world.run(&elsewhere), 0);
    // Nothing has changed since, but nobody has told the readers here.
    world.sync();
    world.assert_published();
    let id: String = one(&world.published(), "SELECT snapshot_id FROM report.snapshot");
    world.sync();
    let again: String = one(&world.published(), "SELECT snapshot_id FROM report.snapshot");
    assert_eq!(again, id, "what they have is not published once more");
}
