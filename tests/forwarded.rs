//! Commands that are typed while `run` holds the store: what they print and how they end is what they
//! would print and end with on their own (docs/architecture.md, "Commands").

use std::io::{BufRead, BufReader, Read};
use std::process::Output;

use casemirror::sandbox::{Act, Fault, Journal, JournalEdit};
use serde_json::Value;

use crate::support::daemon::{Daemon, signal, without_figures};
use crate::support::follow::{
    UNTHROTTLED, assert_status, calls, hold, shown_cases, start, unthrottled,
};
use crate::support::scripted::{fault, refuse};
use crate::support::{World, one, shown};

const OFFICE: i64 = 11;

/// The first day of the month so many months ago.
fn first_day(ago: i32) -> String {
    (jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(ago)).to_string()
}

fn eager() -> World {
    let world = World::with(unthrottled(8));
    world.journals_since(&first_day(2));
    world.configure_eager("");
    world
}

/// What a command gives while the daemon runs, and what it gives after the daemon's end.
fn handed_and_own(world: &World, daemon: Daemon<'_>, all: &[&[&str]]) -> Vec<(Output, Output)> {
    let handed: Vec<_> = all.iter().map(|args| world.run(args)).collect();
    daemon.stop();
    handed.into_iter().zip(all).map(|(handed, args)| (handed, world.run(args))).collect()
}

#[track_caller]
fn assert_alike(args: &[&str], handed: &Output, own: &Output) {
    let both = format!("{args:?} forwarded:\n{}\non its own:\n{}", shown(handed), shown(own));
    assert_eq!(handed.status.code(), own.status.code(), "{both}");
    // The daemon has runs of its own, with errors of their own in the lines below.
    let text = |output: &Output| {
        let (mut lines, mut of_run) = (Vec::new(), false);
        for line in without_figures(output).lines() {
            of_run = line.starts_with("last run: ") || of_run && line.starts_with("  ");
            if !of_run {
                lines.push(line.to_owned());
            }
        }
        lines
    };
    assert_eq!(text(handed), text(own), "{both}");
    assert!(own.status.code() == Some(2) || !own.stdout.is_empty(), "{both}");
}

#[test]
fn journals_verify_plan_and_export_are_as_if_typed_without_it() {
    let world = eager();
    world.publish_snapshots();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let (from, to) = (first_day(2), first_day(1));
    let all: [&[&str]; 8] = [
        &["journals", "--from", &from, "--to", &to],
        &["journals", "--from", &from, "--to", &from, "--kind", "depot,case", "--ids", "11,13"],
        &["journals", "--from", &to, "--to", &from],
        &["journals", "--from", &from, "--to", &to, "--kind", "rent"],
        &["verify", "--sample", "0"],
        &["verify", "--sample", "many"],
        &["plan"],
        &["export"],
    ];
    let done = handed_and_own(&world, daemon, &all);
    let status = |n: usize| done[n].1.status.code();
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(status), [0, 0, 2, 2, 0, 2, 0, 0].map(Some));
    for (args, (handed, own)) in all.iter().zip(&done) {
        assert_alike(args, handed, own);
        if own.status.code() == Some(2) {
            assert_eq!(handed.stderr, own.stderr, "{args:?}");
        }
    }
    // Figures too, of what does not depend on when it is typed.
    let lines = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (handed, own) = &done[6];
    assert_eq!(lines(handed), lines(own));
    let (handed, own) = &done[7];
    assert_eq!(lines(handed)[2], lines(own)[2], "rows of the snapshots");
    world.assert_equal();
}

#[test]
fn what_fails_is_told_alike_and_gives_status_3_whoever_does_the_work() {
    let world = eager();
    world.publish_snapshots();
    world.sandbox.fault(fault("/api/Offices/*/DepotJournals", None, refuse(400)));
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    daemon.wait_until("all else is mirrored", || {
        let output = world.run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let pending = status["tables"].as_array().into_iter().flatten();
        let pending: i64 = pending.filter_map(|table| table["pending"].as_i64()).sum();
        pending == 18 && status["runs"][0]["ended_at"].is_string()
    });
    let (from, to) = (first_day(2), first_day(0));
    let all: [&[&str]; 6] = [
        &["verify", "--sample", "0"],
        &["status"],
        &["sync"],
        &["journals", "--from", &from, "--to", &to, "--kind", "depot"],
        &["journals", "--from", &from, "--to", &to, "--kind", "revenue"],
        &["export"],
    ];
    let done = handed_and_own(&world, daemon, &all);
    let status = |n: usize| done[n].1.status.code();
    assert_eq!([0, 1, 2, 3, 4, 5].map(status), [3, 3, 3, 3, 0, 0].map(Some));
    for (args, (handed, own)) in all.iter().zip(&done) {
        assert_alike(args, handed, own);
    }
    let says = |n: usize, words: &str| {
        let text = String::from_utf8_lossy(&done[n].0.stdout).into_owned();
        assert!(text.contains(words), "{:?} does not say {words}:\n{text}", all[n]);
    };
    for verify_status_sync_journals in 0..4 {
        says(verify_status_sync_journals, "incomplete: depot_journals: 18 scopes failed");
    }
}

#[test]
fn a_caller_with_another_configuration_is_told_the_keys_whatever_it_typed() {
    let world = eager();
    world.publish_snapshots();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    world.sandbox.reset_stats();
    let day = first_day(1);
    let all: [&[&str]; 3] =
        [&["journals", "--from", &day, "--to", &day], &["verify", "--sample", "1"], &["export"]];
    for args in all {
        let other = ["--set", "journals.level=chain", "--set", "publish.keep_snapshots=3"];
        let output = world.run(&[args, &other[..]].concat());
        assert_status(&output, 2);
        assert!(output.stdout.is_empty(), "{}", shown(&output));
        let text = shown(&output);
        assert!(text.contains("journals.level, publish.keep_snapshots differ;"), "{text}");
        let output = world.run(&[args, &other[..], &["--log-format", "json"]].concat());
        assert_status(&output, 2);
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "ERROR", "{last}");
        let told = last["fields"]["message"].as_str().unwrap();
        assert!(told.contains("journals.level, publish.keep_snapshots differ;"), "{last}");
    }
    // Commands that call nobody need not know how to log in, but no other mirror is theirs.
    for (set, status) in [
        ("source.base_url=http://127.0.0.1:9/", 2),
        ("source.client_id=another", 2),
        ("source.time_zone=Europe/Helsinki", 2),
        ("source.client_id=", 0),
        ("source.client_secret=another", 0),
    ] {
        let output = world.run(&["status", "--set", set]);
        assert_eq!(output.status.code(), Some(status), "{set}: {}", shown(&output));
        let key = set.split('=').next().unwrap();
        let is_named = shown(&output).contains(&format!("{key} differ"));
        assert_eq!(is_named, status == 2, "{set}: {}", shown(&output));
    }
    // Nothing was done for any of them.
    let made = calls(&world);
    assert!(made.keys().all(|call| call.contains("RecentlyModified")), "{made:?}");
    daemon.stop();
}

#[test]
fn one_configuration_is_one_by_whatever_path_and_another_secret_is_another() {
    let world = eager();
    let folder = world.path("");
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&folder, linked.path().join("link")).unwrap();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let typed = |path: &str, more: &[&str]| {
        let mut command =
            world.command(&[&["verify", "--sample", "0", "--config", path], more].concat());
        command.current_dir(linked.path()).output().unwrap()
    };
    let name = folder.file_name().unwrap().to_str().unwrap();
    let up = folder.join("..").join(name).join("casemirror.toml");
    for path in ["link/casemirror.toml", up.to_str().unwrap()] {
        assert_status(&typed(path, &[]), 0);
    }
    let output = typed("link/casemirror.toml", &["--set", "source.client_secret=another"]);
    assert_status(&output, 2);
    assert!(shown(&output).contains("source.client_secret differs;"), "{}", shown(&output));
    daemon.stop();
}

#[test]
fn journals_that_are_forwarded_are_read_into_the_daemons_mirror() {
    let world = eager();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let month = first_day(2);
    let act = Act::Journal {
        journal: Journal::RevenueJournals,
        office_id: OFFICE,
        month: month[..7].to_owned(),
        edit: JournalEdit::Amount,
        line: Some(1),
    };
    world.sandbox.act(&act).unwrap();
    let output = world.run(&["journals", "--from", &month, "--to", &month]);
    assert_status(&output, 0);
    assert!(
        shown(&output).contains("rows: 0 inserted, 2 updated, 0 deleted"),
        "{}",
        shown(&output)
    );
    // Who typed it finds it published when the command returns.
    let restated = "SELECT column_name FROM report.journal_restatements";
    assert_eq!(one::<String>(&world.published(), restated), "payment");
    daemon.stop();
    world.assert_equal();
}

/// One has its turn, the other waits for it.
#[test]
fn a_caller_who_is_interrupted_takes_along_what_it_asked_for() {
    let world = World::with(unthrottled(8));
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    hold(&world, "call", &format!("/api/Cases/{}/Activities", shown_cases(&world)[0]), 1);
    let begun = start(&world, &["sync", "--full"]);
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    let mut waiting = start(&world, &["verify", "--sample", "0"]);
    let mut said = String::new();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap());
    lines.read_line(&mut said).unwrap();
    assert!(said.contains("waiting for its current calls"), "{said}");
    for caller in [waiting, begun] {
        signal(caller.id(), "INT");
        let output = caller.wait_with_output().unwrap();
        assert_status(&output, 1);
        assert!(output.stdout.is_empty(), "{}", shown(&output));
        said.push_str(&shown(&output));
    }
    lines.read_to_string(&mut said).unwrap();
    assert!(said.contains("stopped; nothing is said of what was compared"), "{said}");
    assert!(said.contains("stopped; what is committed stays, and the daemon"), "{said}");
    world.sandbox.release("call");
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    daemon.wait_until("the run has ended", || log().contains("who asked for this has left"));
    daemon.wait_until_idle();
    daemon.stop();
    let ended = "SELECT string_agg(command || ' ' || outcome, ', ') FROM sync.runs \
                 WHERE command IN ('sync', 'verify')";
    assert_eq!(one::<String>(&world.store(), ended), "sync interrupted");
    world.assert_equal();
}

/// The published copy was made while something was missing, and the next one is not due for long.
#[test]
fn status_says_that_all_is_there_before_it_is_published() {
    let world = World::with(unthrottled(8));
    let polls = "poll = \"200ms\"\ncontacts_poll = \"200ms\"\n";
    world.configure(&format!("{UNTHROTTLED}{polls}[publish]\nmin_interval = \"1h\"\n"));
    let last = shown_cases(&world)[7];
    hold(&world, "call", &format!("/api/Cases/{last}/Activities"), 1);
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    let database = world.path("data/casemirror.duckdb");
    daemon.wait_until("something is published", || database.exists());
    world.sandbox.release("call");
    daemon.wait_until_idle();
    let complete = "SELECT complete FROM report.snapshot";
    assert!(!one::<bool>(&world.published(), complete));
    daemon.stop();
}

/// Whether this is the line of a log that says how far a run is in fetching.
fn tells_how_far(line: &str) -> bool {
    ["fetching what is stale: ", " rows, ", " committed, ", " calls"]
        .iter()
        .all(|part| line.contains(part))
}

/// A command says where it is after ten seconds, and again after twice as long each time. The source is
/// slow until it has said so of its fetching, whatever it was at when the first line was due.
#[test]
fn a_sync_that_is_forwarded_tells_its_progress_as_one_on_its_own_does() {
    let world = World::with(unthrottled(60));
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let slow = |ms| {
        world.sandbox.fault(fault("/api/Cases/*/Activities", None, Fault::Delay { ms }));
    };
    let assert_told = |whose: &str| {
        slow(3000);
        let mut sync = start(&world, &["sync", "--full"]);
        let (mut said, mut told) = (String::new(), false);
        for line in BufReader::new(sync.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if !told && tells_how_far(&line) {
                told = true;
                world.sandbox.clear_faults();
            }
            said.push_str(&line);
            said.push('\n');
        }
        assert_status(&sync.wait_with_output().unwrap(), 0);
        assert!(told, "{whose}: {said}");
    };
    assert_told("forwarded");
    slow(1000);
    let quiet = world.run(&["sync", "--full", "-q"]);
    assert_status(&quiet, 0);
    let said = String::from_utf8(quiet.stderr).unwrap();
    assert!(!said.contains("fetching what is stale"), "{said}");
    world.sandbox.clear_faults();
    daemon.stop();
    assert_told("on its own");
}
