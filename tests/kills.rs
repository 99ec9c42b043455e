//! Killed at any moment, the next run goes on and ends as if nothing had happened
//! (docs/architecture.md, "Scopes").

use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use casemirror::failpoint;
use casemirror::sandbox::{Act, Facet, Fault, Rule, When};
use rstest::rstest;

use crate::support::{World, one, shown};

const SIGABRT: i32 = 6;

fn sync_aborting_at(world: &World, place: &str) -> Output {
    world.command(&["sync"]).env("CASEMIRROR_ABORT_AT", place).output().unwrap()
}

/// Runs `sync` again and again, each to the next time that the point is reached, until one ends
/// because the point is not reached so often. Returns how many were killed.
fn kill_at(world: &World, point: &str, times: &[u32]) -> usize {
    let mut killed = 0;
    for time in times {
        let output = sync_aborting_at(world, &format!("{point}:{time}"));
        if output.status.signal() == Some(SIGABRT) {
            killed += 1;
        } else {
            assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        }
    }
    killed
}

fn assert_as_if_nothing_had_happened(world: &World) {
    world.sync();
    world.assert_equal();
    world.assert_published();
}

/// Rows in all tables of `history`.
fn versions(world: &World) -> i64 {
    let store = world.store();
    let tables: Vec<String> = store
        .prepare("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'history'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(tables.contains(&"cases".to_owned()));
    tables.iter().map(|t| one::<i64>(&store, &format!("SELECT count(*) FROM history.{t}"))).sum()
}

/// One thing after the other that the feed tells of, in a case of its own.
fn change(world: &World, from: usize, count: usize) {
    let ids = world.sandbox.case_ids();
    let facets = [
        Facet::Activity,
        Facet::CostAdded,
        Facet::Transaction,
        Facet::ContactAdded,
        Facet::ActivityRemoved,
        Facet::Settled,
        Facet::RoleAdded,
        Facet::Bid,
    ];
    for n in from..from + count {
        let case_id = Some(ids[n % ids.len()]);
        let facet = facets[n % facets.len()];
        world.sandbox.act(&Act::Change { case_id, facet, at: None }).unwrap();
    }
    world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    world.sandbox.act(&Act::EditContact { contact_id: None, at: None }).unwrap();
}

/// Every fourth point, so that four tests go through them side by side.
fn points(quarter: usize) -> impl Iterator<Item = &'static str> {
    failpoint::POINTS.into_iter().skip(quarter).step_by(4)
}

#[rstest]
fn killed_at_any_point_of_the_first_run_the_next_goes_on(#[values(0, 1, 2, 3)] quarter: usize) {
    for point in points(quarter) {
        let world = World::with_snapshots(14);
        assert!(kill_at(&world, point, &[1, 40]) > 0, "{point} was not reached");
        assert_as_if_nothing_had_happened(&world);
        let versions = versions(&world);
        assert_eq!(versions, 0, "{point}: nothing changed, so that there is no earlier version");
    }
}

#[rstest]
fn killed_at_any_point_while_following_changes_the_next_goes_on(
    #[values(0, 1, 2, 3)] quarter: usize,
) {
    // Following lists nothing.
    for point in points(quarter).filter(|point| *point != "listing-page") {
        let world = World::with_snapshots(14);
        world.bootstrap();
        change(&world, 0, 6);
        assert!(kill_at(&world, point, &[1]) > 0, "{point} was not reached");
        // What comes meanwhile is followed together with what was left.
        change(&world, 4, 4);
        kill_at(&world, point, &[3]);
        assert_as_if_nothing_had_happened(&world);
    }
}

/// The moments are calls: the run is killed while one is under way, so that twenty of them are
/// spread over its length whatever the machine's speed.
#[rstest]
fn killed_at_any_call_of_a_bootstrap_with_changes_going_on_the_next_goes_on(
    #[values(0, 1, 2, 3)] quarter: u64,
) {
    const MOMENTS: u64 = 20;
    let calls = {
        let world = World::unthrottled(14);
        world.sync();
        world.sandbox.stats().calls
    };
    assert!(calls > 5 * MOMENTS, "{calls} calls are too few to be killed in");
    for moment in (quarter..MOMENTS).step_by(4) {
        let world = World::unthrottled(14);
        kill_in_call(&world, 1 + moment * (calls - 1) / MOMENTS);
        world.sync();
        world.assert_equal();
    }
}

/// Starts a run, lets things happen half-way and at its end, and kills it in its `nth` call.
fn kill_in_call(world: &World, nth: u64) {
    for (name, nth) in [("half-way", nth.div_ceil(2)), ("end", nth)] {
        let hold = Fault::Hold { name: name.to_owned(), when: When::After };
        let rule = Rule {
            method: None,
            path: "*".to_owned(),
            query: None,
            nth,
            count: Some(1),
            fault: hold,
        };
        world.sandbox.fault(rule);
    }
    let mut run =
        world.command(&["sync"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for name in ["half-way", "end"] {
        let held = world.wait(world.sandbox.wait_until_held(name));
        assert!(held, "call {nth} was never made");
        change(world, nth as usize, 2);
        if name == "half-way" {
            world.sandbox.release(name);
        }
    }
    run.kill().unwrap();
    run.wait().unwrap();
    world.sandbox.clear_faults();
}
