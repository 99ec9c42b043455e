//! `casemirror run` and the commands that are forwarded to it (docs/architecture.md, "Commands").

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;

use std::time::Duration;

use casemirror::sandbox::{Act, Control, Facet, Fault, Options, Rule, When};
use serde_json::Value;

use crate::support::daemon::{EAGER, without_figures};
use crate::support::follow::{
    UNTHROTTLED, assert_status, calls, change, hold, lines, shown_cases, unthrottled,
};
use crate::support::scripted::{fault, refuse};
use crate::support::{World, one, open_read_only, shown};

const SOCKET: &str = "data/store.duckdb.sock";

fn eager(cases: usize) -> World {
    let world = World::with(unthrottled(cases));
    world.configure_eager("");
    world
}

/// Whether readers of the published file see what the sandbox holds. Each publishing, which replaces the
/// file, is opened once: that is more work than the daemon's own.
fn is_published(world: &World) -> impl FnMut() -> bool {
    let mut compared = None;
    move || {
        let Ok(file) = std::fs::metadata(world.path("data/casemirror.duckdb")) else {
            return false;
        };
        let this = Some((file.ino(), file.modified().unwrap()));
        if compared == this {
            return false;
        }
        compared = this;
        world.differences_in(&world.published()).is_empty()
    }
}

#[test]
fn a_change_reaches_the_published_copy_and_the_daemon_stops_cleanly() {
    let world = eager(25);
    world.publish_snapshots();
    let mut daemon = world.start_daemon();
    daemon.wait_until("everything is published", is_published(&world));
    let case_id = shown_cases(&world)[3];
    change(&world, case_id, Facet::Activity);
    world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    world.sandbox.act(&Act::NewContact {}).unwrap();
    daemon.wait_until("the changes are published", is_published(&world));
    daemon.stop();
    world.assert_published();
    world.assert_equal();
}

#[test]
fn a_daemon_whose_feed_never_answered_reads_all_the_rest() {
    let world = eager(12);
    let path = "/api/Integrations/RecentlyModified/Cases";
    world.sandbox.fault(fault(path, None, refuse(500)));
    let mut daemon = world.start_daemon();
    daemon.wait_until("everything is published", is_published(&world));
    world.sandbox.clear_faults();
    change(&world, shown_cases(&world)[3], Facet::Activity);
    daemon.wait_until("the change is published", is_published(&world));
    daemon.stop();
    world.assert_equal();
}

#[test]
fn a_search_that_lagged_is_asked_again_while_other_work_is_under_way() {
    let world = World::with(Options { search_lag: Duration::from_millis(300), ..unthrottled(12) });
    world.configure_eager("");
    world.bootstrap();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let [hanging, changed] = [shown_cases(&world)[2], shown_cases(&world)[5]];
    hold(&world, "call", &format!("/api/Cases/{hanging}/Activities"), 1);
    change(&world, hanging, Facet::Activity);
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    world.sandbox.reset_stats();
    change(&world, changed, Facet::Description);
    let searches = || {
        let all = world.sandbox.stats().log;
        let of_it = |query: &str| query.contains(&changed.to_string());
        all.iter().filter(|c| c.path.contains("Search/Advanced") && of_it(&c.query)).count()
    };
    daemon.wait_until("it is searched once more", || searches() >= 2);
    let held = format!("GET /api/Cases/{hanging}/Activities");
    assert!(!calls(&world).contains_key(&held), "the call did not last until then");
    world.sandbox.release("call");
    daemon.wait_until_idle();
    daemon.stop();
    world.assert_equal();
}

#[test]
fn where_the_daemon_does_not_answer_a_command_names_it() {
    let world = eager(8);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    daemon.signal("STOP");
    let output = world.run(&["status"]);
    daemon.signal("CONT");
    assert_status(&output, 1);
    let said = shown(&output);
    assert!(said.contains(&format!("PID {}", daemon.id())), "{said}");
    assert_status(&world.run(&["status"]), 0);
    daemon.stop();
}

#[test]
fn an_idle_daemon_asks_the_feeds_and_nothing_else() {
    let world = eager(20);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    world.sandbox.reset_stats();
    let polls = |name: &str| {
        let path = format!("GET /api/Integrations/RecentlyModified/{name}");
        calls(&world).get(&path).copied().unwrap_or(0)
    };
    daemon.wait_until("it has polled", || polls("Cases") >= 5 && polls("Contacts") >= 5);
    let made = calls(&world);
    assert_eq!(made.len(), 2, "{made:?}");
    daemon.stop();
}

#[test]
fn a_change_causes_exactly_its_calls_while_the_daemon_runs() {
    let world = eager(20);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let case_id = shown_cases(&world)[3];
    world.sandbox.reset_stats();
    change(&world, case_id, Facet::Activity);
    let activities = format!("GET /api/Cases/{case_id}/Activities");
    daemon.wait_until("it is fetched", || calls(&world).contains_key(&activities));
    daemon.wait_until_idle();
    let made = calls(&world);
    for (call, times) in &made {
        let feed = call.contains("RecentlyModified");
        let search = call.contains("/api/Search/");
        let most = if feed {
            u64::MAX
        } else if search {
            2
        } else {
            1
        };
        assert!(*times <= most, "{call}: {times} times\n{made:?}");
    }
    daemon.stop();
    world.assert_equal();
}

#[test]
fn commands_typed_while_it_runs_give_the_same_output_and_exit_status() {
    let world = eager(20);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    daemon.wait_until("everything is published", is_published(&world));
    // What is still to be told of the run itself, the first command to be handed over would publish.
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(std::fs::metadata(world.path(SOCKET)).unwrap().permissions().mode() & 0o777, 0o600);
    let all: [&[&str]; 5] = [
        &["sync"],
        &["sync", "--only", "costs"],
        &["plan"],
        &["status"],
        &["sync", "--only", "nothing_like_it"],
    ];
    let handed: Vec<_> = all.iter().map(|args| world.run(args)).collect();
    daemon.stop();
    for (args, handed) in all.iter().zip(handed) {
        let own = world.run(args);
        assert_eq!(handed.status.code(), own.status.code(), "{args:?}: {}", shown(&handed));
        assert_eq!(without_figures(&handed), without_figures(&own), "{args:?}");
        if own.status.code() == Some(2) {
            assert_eq!(handed.stderr, own.stderr);
        }
    }
}

#[test]
fn what_a_forwarded_sync_leaves_incomplete_gives_its_exit_status() {
    let world = eager(20);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    world.sandbox.control(Control::FreezeSearch {});
    change(&world, shown_cases(&world)[2], Facet::Description);
    let handed = world.run(&["sync"]);
    assert_status(&handed, 3);
    assert!(shown(&handed).contains("incomplete: cases"), "{}", shown(&handed));
    world.sandbox.control(Control::SearchLag { ms: 0 });
    daemon.wait_until_idle();
    daemon.stop();
    world.assert_equal();
}

#[test]
fn a_caller_with_another_configuration_is_told_which_keys_differ() {
    let world = eager(10);
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let other = ["--set", "feed.overlap=7m", "--set", "limits.concurrency=2"];
    for command in ["sync", "plan", "status"] {
        let output = world.run(&[&[command], &other[..]].concat());
        assert_status(&output, 2);
        let text = shown(&output);
        assert!(text.contains("feed.overlap, limits.concurrency differ;"), "{text}");
    }
    // How to log in is not asked of a command that does not.
    let output = world.run(&["status", "--set", "source.client_secret=another"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
    daemon.stop();
}

#[test]
fn of_two_daemons_the_second_names_the_first() {
    let world = eager(10);
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let second = world.run(&["run"]);
    assert_status(&second, 1);
    assert!(shown(&second).contains(&format!("PID {}", daemon.id())), "{}", shown(&second));
    // The first is untouched by it.
    assert!(world.path(SOCKET).exists());
    daemon.wait_until_idle();
    daemon.stop();
}

#[test]
fn a_socket_that_a_killed_daemon_left_is_replaced() {
    let world = eager(10);
    world.publish_snapshots();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    daemon.signal("KILL");
    daemon.ends();
    assert!(world.path(SOCKET).exists());
    // Nobody holds the store, so commands do their own work.
    assert_status(&world.run(&["status"]), 0);
    let mut daemon = world.start_daemon();
    daemon.wait_until("everything is published", is_published(&world));
    daemon.stop();
    world.assert_published();
}

#[test]
fn where_nothing_answers_the_holder_of_the_store_is_named() {
    let world = eager(10);
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    std::fs::remove_file(world.path(SOCKET)).unwrap();
    for command in ["sync", "plan", "status"] {
        let output = world.run(&[command]);
        assert_status(&output, 1);
        assert!(shown(&output).contains(&format!("PID {}", daemon.id())), "{}", shown(&output));
    }
    daemon.stop();
}

#[test]
fn a_command_forwarded_while_the_source_was_never_reached_fails_as_it_would_alone() {
    let world = eager(10);
    world.sandbox.fault(fault("*", None, Fault::Drop));
    let alone = world.run(&["sync"]);
    assert_status(&alone, 1);
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let handed = world.run(&["sync"]);
    assert_status(&handed, 1);
    assert_eq!(handed.stdout, alone.stdout);
    let error = |output: &Output| {
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        // Behind it stands how long it was tried.
        let error = text.lines().find(|line| line.starts_with("error"));
        error.and_then(|line| line.split_once(", after ")).map(|(what, _)| what.to_owned())
    };
    assert!(error(&alone).is_some(), "{}", shown(&alone));
    assert_eq!(error(&handed), error(&alone));
    world.sandbox.clear_faults();
    daemon.wait_until("everything is published", is_published(&world));
    daemon.stop();
}

#[test]
fn a_path_too_long_for_a_socket_is_served_from_the_temporary_folder() {
    let world = World::with(unthrottled(10));
    let deep = "deep/".repeat(25);
    world.configure(&format!("{UNTHROTTLED}{EAGER}[store]\npath = \"{deep}store.duckdb\"\n"));
    let mut daemon = world.start_daemon();
    daemon.wait_until("it answers", || world.run(&["status"]).status.code() == Some(0));
    assert!(!world.path(&format!("{deep}store.duckdb.sock")).exists());
    daemon.signal("TERM");
    assert_eq!(daemon.ends().code(), Some(0), "{}", daemon.log());
}

#[test]
fn credentials_that_are_refused_at_the_start_end_it() {
    let world = eager(5);
    world.sandbox.control(Control::RefuseCredentials { on: true });
    let output = world.run(&["run"]);
    assert_status(&output, 1);
    assert!(shown(&output).contains("client_secret"), "{}", shown(&output));
    assert!(!world.path(SOCKET).exists());
}

#[test]
fn credentials_that_are_refused_later_are_tried_again() {
    let world = eager(10);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    world.sandbox.control(Control::RefuseCredentials { on: true });
    world.sandbox.control(Control::RefuseRefresh { on: true });
    world.sandbox.control(Control::ExpireTokens {});
    let log = world.path("daemon.log");
    let said = |words: &str| std::fs::read_to_string(&log).unwrap().contains(words);
    daemon.wait_until("it says so", || said("asking the change feed (cases) failed"));
    world.sandbox.control(Control::RefuseCredentials { on: false });
    change(&world, shown_cases(&world)[1], Facet::Bid);
    daemon.wait_until("it recovers", || said("asking the change feed (cases) works again"));
    daemon.wait_until("the change is published", is_published(&world));
    daemon.stop();
}

/// A first load takes longer than many a token lives.
#[test]
fn credentials_that_are_refused_during_the_first_load_are_tried_again() {
    let world = eager(10);
    world.sandbox.fault(Rule {
        method: None,
        path: "/api/Employees".to_owned(),
        query: None,
        nth: 1,
        count: Some(1),
        fault: Fault::Hold { name: "list".to_owned(), when: When::Before },
    });
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("list")), "{}", daemon.log());
    world.sandbox.control(Control::RefuseCredentials { on: true });
    world.sandbox.control(Control::RefuseRefresh { on: true });
    world.sandbox.control(Control::ExpireTokens {});
    world.sandbox.release("list");
    let log = world.path("daemon.log");
    let said = |words: &str| std::fs::read_to_string(&log).unwrap().contains(words);
    daemon.wait_until("it says so", || said("following the changes failed"));
    world.sandbox.control(Control::RefuseCredentials { on: false });
    daemon.wait_until("it recovers", || said("following the changes works again"));
    daemon.wait_until("everything is published", is_published(&world));
    daemon.stop();
}

/// What is committed stays, and the next run goes on.
#[test]
fn a_store_without_memory_is_opened_once_more_and_then_the_daemon_ends() {
    let world = World::unthrottled(8);
    world.sync();
    let output = world.command(&["run"]).env("CASEMIRROR_MEMORY_LEFT", "1MB").output().unwrap();
    let said = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("opened once more").count(), 1, "{said}");
    assert_eq!(said.matches(" running ").count(), 2, "{said}");
    assert!(said.contains("raise store.memory_limit"), "{said}");
    change(&world, world.sandbox.case_ids()[0], Facet::CostAdded);
    world.sync();
    world.assert_equal();
}

#[test]
fn a_store_that_is_taken_from_under_the_daemon_ends_it_and_is_taken_up_again() {
    let world = eager(4);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let (store, elsewhere) = (world.path("data/store.duckdb"), world.path("elsewhere.duckdb"));
    fs::rename(&store, &elsewhere).unwrap();
    change(&world, world.sandbox.case_ids()[0], Facet::Note);
    assert_eq!(daemon.ends().code(), Some(1), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("somebody has removed or renamed the store"), "{log}");
    assert!(log.contains("start it again"), "{log}");
    drop(daemon);
    fs::rename(&elsewhere, &store).unwrap();
    world.sync();
    world.assert_equal();
}

#[test]
fn changes_are_followed_and_published_while_a_backfill_is_held() {
    let world = eager(30);
    let cases = shown_cases(&world);
    let (held, changed) = (cases[10], cases[20]);
    hold(&world, "backfill", &format!("/api/Cases/{held}/Activities"), 1);
    // The held call is not given up, however slow the machine is.
    let patient = ["--set", "limits.timeout=10m"];
    let mut daemon = world.start_daemon_with(&patient);
    assert!(world.wait(world.sandbox.wait_until_held("backfill")));
    let path = format!("GET /api/Cases/{changed}/Activities");
    // The backfill has read the case; it ends only when the held call does.
    daemon.wait_until("the case is read", || calls(&world).contains_key(&path));
    change(&world, changed, Facet::Activity);
    daemon.wait_until("the change is fetched", || calls(&world)[&path] == 2);
    let rows = world.sandbox.tables(&["activities"])["tables"]["activities"].clone();
    let of_case = |rows: &Value| {
        rows.as_array().unwrap().iter().filter(|row| row["case_id"] == changed).count() as i64
    };
    let database = world.path("data/casemirror.duckdb");
    daemon.wait_until("it is published", || {
        database.exists()
            && one::<i64>(
                &world.published(),
                &format!("SELECT count(*) FROM main.activities WHERE case_id = {changed}"),
            ) == of_case(&rows)
    });
    let published = world.published();
    assert!(!one::<bool>(&published, "SELECT complete FROM report.snapshot"));
    // Another command's work goes on beside it as well; what waits for its turn is no failure.
    assert_status(&world.run(&[&["status"][..], &patient].concat()), 0);
    world.sandbox.release("backfill");
    daemon.wait_until("everything is published", is_published(&world));
    daemon.stop();
}

#[test]
fn a_command_and_a_change_do_not_wait_for_the_backfill() {
    let world = eager(60);
    let cases = shown_cases(&world);
    let (first, asked) = (cases[cases.len() - 1], cases[0]);
    // Everything takes at least half a minute.
    let slow = ["--set", "limits.requests_per_second=25"];
    let mut daemon = world.start_daemon_with(&slow);
    let read = |case_id: i64| format!("GET /api/Cases/{case_id}/Activities");
    daemon.wait_until("the backfill is under way", || {
        calls(&world).keys().any(|call| call.ends_with("/Activities"))
    });
    change(&world, first, Facet::Activity);
    daemon.wait_until("the change is fetched", || calls(&world).contains_key(&read(first)));
    let output = world.run(&[&["sync", "--case", &asked.to_string()], &slow[..]].concat());
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
    let made = calls(&world);
    assert!(made.contains_key(&read(asked)), "{made:?}");
    let read_so_far = made.keys().filter(|call| call.ends_with("/Activities")).count();
    assert!(read_so_far < cases.len(), "the backfill was over before: {read_so_far} cases");
    daemon.wait_until("everything is published", is_published(&world));
    daemon.stop();
}

#[test]
fn a_schedule_that_falls_due_while_it_runs_is_run() {
    let world = World::with(unthrottled(10));
    world.configure_eager("[schedule]\nreference = \"*/2 * * * * *\"\n");
    let mut daemon = world.start_daemon();
    daemon.wait_until("everything is published", is_published(&world));
    // No date of any case says so.
    let employee = one::<i64>(&world.published(), "SELECT min(id) FROM main.employees");
    world.sandbox.act(&Act::EditEmployee { employee_id: employee }).unwrap();
    assert!(!is_published(&world)());
    daemon.wait_until("the employee is published", is_published(&world));
    daemon.stop();
}

#[test]
fn a_second_signal_ends_it_at_once_and_the_next_start_goes_on() {
    let world = eager(20);
    let case_id = shown_cases(&world)[5];
    hold(&world, "call", &format!("/api/Cases/{case_id}/Activities"), 1);
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    daemon.signal("TERM");
    let log = world.path("daemon.log");
    daemon.wait_until("it stops", || std::fs::read_to_string(&log).unwrap().contains("stopping"));
    daemon.signal("INT");
    assert_eq!(daemon.ends().code(), Some(1), "{}", daemon.log());
    world.sandbox.release("call");
    assert!(!world.path(SOCKET).exists());
    let mut daemon = world.start_daemon();
    daemon.wait_until("everything is published", is_published(&world));
    daemon.stop();
    world.assert_equal();
}

#[test]
fn a_first_signal_ends_it_in_time_although_a_call_does_not_return() {
    let world = eager(20);
    let case_id = shown_cases(&world)[5];
    hold(&world, "call", &format!("/api/Cases/{case_id}/Activities"), 1);
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    let waiting = crate::support::follow::start(&world, &["sync"]);
    daemon.signal("TERM");
    assert_eq!(daemon.ends().code(), Some(0), "{}", daemon.log());
    world.sandbox.release("call");
    // Whoever waited for it is told.
    let output = waiting.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", shown(&output));
    world.sync();
    world.assert_equal();
}

#[test]
fn readers_never_fail_and_never_see_anything_half_done() {
    let world = eager(40);
    world.publish_snapshots();
    let mut daemon = world.start_daemon();
    daemon.wait_until("something is published", || {
        world.path("data/parquet/latest/manifest.json").exists()
    });
    let mut ids = std::collections::BTreeSet::new();
    let (mut opened, mut with_snapshot) = (0, 0);
    daemon.wait_until("60 opens and some snapshots", || {
        world.sandbox.act(&Act::Tick { events: 3 }).unwrap();
        for _ in 0..5 {
            let (id, compared) = read_whole(&world);
            ids.insert(id);
            opened += 1;
            with_snapshot += i32::from(compared);
        }
        opened >= 60 && ids.len() >= 3 && with_snapshot > 0
    });
    daemon.stop();
    // Some of what happened moves no date, and is right after everything was read again.
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_published();
}

/// Opens the published database as an analyst does, asserts that it is whole, and returns its id, and
/// whether it was held against the snapshot of the same id.
fn read_whole(world: &World) -> (String, bool) {
    let before = manifest_id(&world.path("data/parquet"));
    let published = open_read_only(&world.path("data/casemirror.duckdb"));
    let id: String = one(&published, "SELECT snapshot_id FROM report.snapshot");
    // The snapshot of an id is there as soon as its database is replaced, and never before it.
    let after = manifest_id(&world.path("data/parquet"));
    assert!(before <= id, "the snapshot {before} is newer than the database {id}");
    assert!(after >= before, "latest went back from {before} to {after}");
    for sql in [
        // Every row was committed before the state that was copied.
        "SELECT max(last_change) <= (SELECT taken_at FROM report.snapshot) FROM report.freshness",
        // Rows and the state that says they are fetched are one transaction.
        "SELECT count(*) = 0 FROM main.activities a WHERE NOT EXISTS (FROM sync.fetched f \
           WHERE f.table_name = 'activities' AND f.id = a.case_id)",
        "SELECT count(*) = 0 FROM main.case_roles r WHERE NOT EXISTS (FROM sync.fetched f \
           WHERE f.table_name = 'case_roles' AND f.id = r.case_id)",
        "SELECT count(*) >= 40 FROM report.total_cost",
    ] {
        assert!(one::<bool>(&published, sql), "{sql}");
    }
    assert!(!lines(&published, "FROM report.signed_cases").is_empty());
    // Who resolved the link before has one snapshot, whatever is published meanwhile.
    let compared = before == id;
    if compared {
        let snapshot = world.path("data/parquet/snapshots").join(&before);
        let text = std::fs::read(snapshot.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&text).unwrap();
        for table in ["activities", "cases", "entries"] {
            let files = manifest["files"].as_array().unwrap().iter();
            let of_table = files.filter(|file| file["table"] == table);
            let rows: i64 = of_table.map(|file| file["rows"].as_i64().unwrap()).sum();
            let sql = format!("SELECT count(*) FROM main.{table}");
            assert_eq!(one::<i64>(&published, &sql), rows, "{table} of {before}");
        }
    }
    (id, compared)
}

fn manifest_id(root: &Path) -> String {
    let text = std::fs::read(root.join("latest/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    manifest["snapshot_id"].as_str().unwrap().to_owned()
}

const SEARCH_DELAY: &str = "CASEMIRROR_SOURCE__SEARCH_DELAY";

/// The calls that a line of `plan` tells.
fn planned_calls(plan: &Output, what: &str) -> u64 {
    let text = String::from_utf8_lossy(&plan.stdout);
    let line = text.lines().find(|line| line.trim_start().starts_with(what));
    let line = line.unwrap_or_else(|| panic!("no line for {what}\n{text}"));
    // Scopes are not told in the sum.
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    *numbers.iter().take(2).next_back().unwrap_or_else(|| panic!("no calls in {line}"))
}

#[test]
fn plan_tells_the_calls_of_the_next_sync_and_asks_only_the_feeds() {
    let world = World::with(unthrottled(20));
    world.configure(UNTHROTTLED);
    world.bootstrap();
    // Some seconds ago: the platform's `Date` has no parts of one, and within the second of a change the
    // sync searches twice.
    let ago = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - 10).unwrap();
    let case_id = Some(shown_cases(&world)[3]);
    world
        .sandbox
        .act(&Act::Change { case_id, facet: Facet::Activity, at: Some(ago.to_string()) })
        .unwrap();
    // What is searched within the delay is searched once more.
    let again = world.command(&["plan"]).env(SEARCH_DELAY, "10m").output().unwrap();
    assert_status(&again, 0);
    assert_eq!(planned_calls(&again, "cases"), 2);
    world.sandbox.reset_stats();
    // Whether a second search is due may not hang on the time between these two commands.
    let output = world.command(&["plan"]).env(SEARCH_DELAY, "0s").output().unwrap();
    assert_status(&output, 0);
    assert_eq!(planned_calls(&output, "cases"), 1);
    let asked = calls(&world);
    assert!(
        asked.keys().all(|c| c.contains("RecentlyModified") || c.contains("authtoken")),
        "{asked:?}"
    );

    world.sandbox.reset_stats();
    assert_status(&world.command(&["sync"]).env(SEARCH_DELAY, "0s").output().unwrap(), 0);
    let made: u64 = calls(&world)
        .iter()
        .filter(|(call, _)| !call.contains("authtoken"))
        .map(|(_, times)| times)
        .sum();
    assert_eq!(planned_calls(&output, "in all"), made, "{output:?}");
    world.assert_equal();
}
