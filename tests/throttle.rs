//! The source never sees more calls to its change feeds than it allows
//! (docs/architecture.md, "The throttle ledger").

use std::process::Stdio;
use std::time::{Duration, Instant};

use casemirror::sandbox::{Act, Fault, Options, Rule, When};
use duckdb::Connection;
use jiff::{SignedDuration, Timestamp};

use crate::support::follow::{UNTHROTTLED, unthrottled};
use crate::support::{World, one, shown};

const FEEDS: &str = "/api/Integrations/RecentlyModified/";

/// A brokerage that takes six calls in `per`, and a mirror that is told so.
fn six_calls_in(per: Duration) -> World {
    let options =
        Options { cases: 12, gzip: false, feed_calls: 6, feed_per: per, ..Options::default() };
    let world = World::with(options);
    world.configure(&format!("[feed]\ncalls = 6\nper = \"{}s\"", per.as_secs()));
    world
}

fn feed_fault(feed: &str, nth: u64, fault: Fault) -> Rule {
    Rule {
        method: Some("GET".to_owned()),
        path: format!("{FEEDS}{feed}"),
        query: None,
        nth,
        count: Some(1),
        fault,
    }
}

/// Starts a run and kills it while it waits for an answer of the feed.
fn sync_killed_in_a_feed_call(world: &World, feed: &str, when: When) {
    let hold = Fault::Hold { name: "feed".to_owned(), when };
    world.sandbox.fault(feed_fault(feed, 1, hold));
    let mut run =
        world.command(&["sync"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(world.wait(world.sandbox.wait_until_held("feed")), "the feed was not asked");
    run.kill().unwrap();
    run.wait().unwrap();
    world.sandbox.clear_faults();
}

/// Every call that arrived is in the store, and each has an end.
fn assert_ledger_tells_of_all(store: &Connection, arrived: u64) {
    let noted: i64 = one(store, "SELECT count(*) FROM sync.feed_calls");
    assert!(noted >= arrived as i64, "{arrived} calls arrived, {noted} are in sync.feed_calls");
    let open: i64 = one(store, "SELECT count(*) FROM sync.feed_calls WHERE ended_at IS NULL");
    assert_eq!(open, 0, "calls without an end");
    let backwards: i64 =
        one(store, "SELECT count(*) FROM sync.feed_calls WHERE ended_at < sent_at");
    assert_eq!(backwards, 0, "calls that ended before they were sent");
}

/// Run upon run, every third killed in mid-call, until `enough`.
fn run_again_and_again(world: &World, enough: impl Fn(u64) -> bool) {
    let mut runs = 0;
    while !enough(runs) {
        world.sandbox.act(&Act::Tick { events: 1 }).unwrap();
        match runs % 6 {
            2 => sync_killed_in_a_feed_call(world, "Cases", When::Before),
            5 => sync_killed_in_a_feed_call(world, "Contacts", When::After),
            _ => drop(world.sync()),
        }
        runs += 1;
    }
    world.sync();
    let feed = world.sandbox.stats().feed;
    assert_eq!(feed.violations, 0, "{feed:?}");
    assert!(feed.calls > 6, "{feed:?}");
    assert!(feed.most_in_window <= 6, "{feed:?}");
    assert_ledger_tells_of_all(&world.store(), feed.calls);
    // Journals, and what moves no date of its own, are read by schedules; this reads everything.
    assert_eq!(world.run(&["sync", "--full"]).status.code(), Some(0));
    world.assert_equal();
}

#[test]
fn over_a_minute_of_repeated_and_killed_runs_no_window_holds_too_many_calls() {
    let world = six_calls_in(Duration::from_secs(30));
    let started = Instant::now();
    // So many that they were held back, or nothing is shown by this: a slow machine needs more time.
    let held_back = || world.sandbox.stats().feed.most_in_window == 6;
    run_again_and_again(&world, |_| started.elapsed() > Duration::from_secs(61) && held_back());
}

#[test]
fn many_short_windows_with_killed_runs_hold_no_call_too_many() {
    let world = six_calls_in(Duration::from_secs(3));
    run_again_and_again(&world, |runs| runs == 12);
}

#[test]
fn calls_killed_before_they_are_sent_count_as_sent() {
    let world = six_calls_in(Duration::from_secs(3));
    world.sync();
    for _ in 0..7 {
        let killed = world
            .command(&["sync"])
            .env("CASEMIRROR_ABORT_AT", "feed-call-noted")
            .output()
            .unwrap();
        assert_eq!(killed.status.code(), None, "not killed");
    }
    world.sync();
    let store = world.store();
    // Two of each complete run, and one of each killed one.
    assert_eq!(one::<i64>(&store, "SELECT count(*) FROM sync.feed_calls"), 11);
    assert_ledger_tells_of_all(&store, world.sandbox.stats().feed.calls);
    // No window of the ledger, in which a call lasts from its start to its end, holds a seventh.
    let crowded: i64 = one(
        &store,
        "SELECT count(*) FROM sync.feed_calls a WHERE (SELECT count(*) FROM sync.feed_calls b \
         WHERE b.id <= a.id AND epoch_us(b.ended_at) > epoch_us(a.sent_at) - 3000000) > 6",
    );
    assert_eq!(crowded, 0);
}

#[test]
fn a_refused_feed_call_is_repeated_only_after_what_retry_after_says() {
    let world = six_calls_in(Duration::from_secs(3));
    world.sync();
    world.sandbox.reset_stats();
    let refusal = Fault::Refuse {
        status: 429,
        headers: [("Retry-After".to_owned(), "4".to_owned())].into(),
        body: "{\"Message\": \"Too many calls\"}".to_owned(),
    };
    world.sandbox.fault(feed_fault("Cases", 1, refusal));
    world.sync();
    let calls: Vec<(u16, Timestamp)> = world
        .sandbox
        .stats()
        .log
        .iter()
        .filter(|call| call.path.starts_with(FEEDS))
        .map(|call| (call.status, call.at.parse().unwrap()))
        .collect();
    let statuses: Vec<u16> = calls.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [429, 200, 200]);
    let pause = calls[1].1.duration_since(calls[0].1);
    assert!(pause >= SignedDuration::from_secs(4), "repeated after {pause}");
}

#[test]
fn a_refusal_is_remembered_by_the_next_process() {
    let world = six_calls_in(Duration::from_secs(3));
    world.sync();
    world.sandbox.reset_stats();
    let refusal = Fault::Refuse {
        status: 429,
        headers: [("Retry-After".to_owned(), "3600".to_owned())].into(),
        body: String::new(),
    };
    world.sandbox.fault(feed_fault("Cases", 1, refusal));
    for run in ["the refused run", "the next one"] {
        let output = world.run(&["sync"]);
        // A feed that holds back stops nothing else.
        assert_eq!(output.status.code(), Some(3), "{run}: {}", shown(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("RecentlyModified/Cases"), "{run}: {said}");
        assert_eq!(world.sandbox.stats().feed.calls, 1, "{run} asked again within the hour");
    }
    let planned = world.run(&["plan"]);
    assert_eq!(planned.status.code(), Some(0), "{}", shown(&planned));
    let said = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(said.contains("in all"), "{said}");
    for feed in ["cases", "contacts"] {
        let why =
            format!("changed since the last poll, as the change feed ({feed}) cannot be read: ");
        assert!(said.contains(&why), "{said}");
    }
    assert_eq!(world.sandbox.stats().feed.calls, 1, "plan asked within the hour");
}

#[test]
fn a_wait_of_a_thousand_years_is_cut_shown_and_lifted_by_hand() {
    let world = six_calls_in(Duration::from_secs(3));
    world.sync();
    let status = |world: &World| -> serde_json::Value {
        let output = world.run(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)))
    };
    assert_eq!(status(&world)["feeds_held_until"], serde_json::Value::Null);
    let refusal = Fault::Refuse {
        status: 429,
        headers: [("Retry-After".to_owned(), "31536000000".to_owned())].into(),
        body: String::new(),
    };
    world.sandbox.fault(feed_fault("Cases", 1, refusal));
    assert_eq!(world.run(&["sync"]).status.code(), Some(3));
    let until = status(&world)["feeds_held_until"].as_str().expect("it is shown").to_owned();
    let left = until.parse::<Timestamp>().unwrap().duration_since(Timestamp::now());
    assert!(
        left > SignedDuration::from_mins(55) && left <= SignedDuration::from_hours(1),
        "{until}"
    );
    let text = shown(&world.run(&["status"]));
    assert!(text.contains(&until) && text.contains("sync --now"), "{text}");
    world.sandbox.reset_stats();
    assert_eq!(world.run(&["sync"]).status.code(), Some(3));
    assert_eq!(world.sandbox.stats().feed.calls, 0);
    let asked = world.run(&["sync", "--now"]);
    assert_eq!(asked.status.code(), Some(0), "{}", shown(&asked));
    assert_eq!(world.sandbox.stats().feed.calls, 2);
    assert_eq!(status(&world)["feeds_held_until"], serde_json::Value::Null);
}

/// Calls that are not made have failed for nobody: one answer of one case must not make the totals of all others
/// unknown.
#[test]
fn a_long_pause_for_all_calls_ends_the_run_and_is_kept_by_the_next_one() {
    let world = World::with(unthrottled(12));
    world.configure(UNTHROTTLED);
    world.sync();
    let known = "SELECT count(total_cost) FROM report.total_cost";
    let before = one::<i64>(&world.published(), known);
    assert!(before > 6, "{before}");
    world.sandbox.fault(Rule {
        method: None,
        path: "/api/Properties/*/CommonConditions".to_owned(),
        query: None,
        nth: 3,
        count: Some(1),
        fault: Fault::Refuse {
            status: 429,
            headers: [("Retry-After".to_owned(), "900".to_owned())].into(),
            body: String::new(),
        },
    });
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("(Retry-After)"), "{}", shown(&output));
    let failed = one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures");
    assert!(failed <= 1, "{failed} scopes have failed, and one call was refused");
    assert!(one::<i64>(&world.published(), known) >= before - 1);
    world.sandbox.reset_stats();
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert_eq!(world.sandbox.stats().calls, 0);
    let output = world.run(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let until = status["calls_held_until"].as_str().expect("it is shown").to_owned();
    let left = until.parse::<Timestamp>().unwrap().duration_since(Timestamp::now());
    assert!(
        left > SignedDuration::from_mins(10) && left <= SignedDuration::from_mins(15),
        "{until}"
    );
    let text = shown(&world.run(&["status"]));
    assert!(text.contains(&format!("all calls, until {until}")), "{text}");
    let output = world.run(&["sync", "--now"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    world.assert_equal();
    assert_eq!(one::<i64>(&world.published(), known), before);
}

/// The source was never asked too often, and so often that it would have been by stores that do not know
/// of each other.
fn assert_kept(world: &World) {
    let feed = world.sandbox.stats().feed;
    assert_eq!(feed.violations, 0, "{feed:?}");
    assert!(feed.calls > 6, "{feed:?}");
}

#[test]
fn a_store_that_is_removed_gives_no_call_back() {
    let world = six_calls_in(Duration::from_secs(10));
    for _ in 0..5 {
        let synced = world.run(&["sync", "--only", "offices"]);
        assert_eq!(synced.status.code(), Some(0), "{}", shown(&synced));
        std::fs::remove_dir_all(world.path("data")).unwrap();
    }
    assert_kept(&world);
}

#[test]
fn stores_of_one_user_share_the_calls_copies_too() {
    let world = six_calls_in(Duration::from_secs(3));
    world.sync();
    for store in ["b", "c"] {
        let folder = world.path(store);
        std::fs::create_dir(&folder).unwrap();
        for file in ["store.duckdb", "store.duckdb.secrets"] {
            std::fs::copy(world.path("data").join(file), folder.join(file)).unwrap();
        }
    }
    for _ in 0..3 {
        let planning = ["data", "b", "c"].map(|folder| {
            let set = format!("store.path={folder}/store.duckdb");
            let mut plan = world.command(&["--set", &set, "plan"]);
            plan.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
        });
        for mut plan in planning {
            assert!(plan.wait().unwrap().success());
        }
    }
    assert_kept(&world);
    // Each store shows the calls that it made, and at its next start those of the others.
    world.sync();
    let shown: i64 = one(&world.store(), "SELECT count(*) FROM sync.feed_calls");
    assert_eq!(shown, i64::try_from(world.sandbox.stats().feed.calls).unwrap());
}
