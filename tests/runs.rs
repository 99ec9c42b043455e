//! What a run asks for and what it leaves to the next one.

use std::process::{Child, Command};

use casemirror::sandbox::{Control, Facet, Fault, Rule};
use duckdb::Connection;

use crate::support::follow::{calls, change, hold, idle_calls, shown_cases, start};
use crate::support::{World, one, shown};

const QUICK_FEED: &str = "[feed]\ncalls = 1000\nper = \"1s\"\n";

fn calls_to(world: &World, template: &str) -> u64 {
    let stats = world.sandbox.stats();
    stats.endpoints.iter().filter(|e| e.template == template).map(|e| e.calls).sum()
}

fn garbage(path: &str, body: &str) -> Rule {
    let fault = Fault::Garbage { body: body.to_owned(), status: None, content_type: None };
    Rule { method: None, path: path.to_owned(), query: None, nth: 1, count: None, fault }
}

#[test]
fn a_full_run_killed_in_its_listing_is_taken_up_without_the_flag() {
    let world = World::unthrottled(20);
    world.bootstrap();
    let killed =
        world.command(&["sync", "--full"]).env("CASEMIRROR_ABORT_AT", "listing-page").output();
    assert_eq!(killed.unwrap().status.code(), None, "it was to be killed");

    world.sandbox.reset_stats();
    world.sync();
    let listings = |world: &World| {
        let stats = world.sandbox.stats();
        let search = "/api/Search/AdvancedPropertySearch";
        stats.log.iter().filter(|c| c.template == search && !c.query.contains("Id eq")).count()
    };
    assert_eq!(listings(&world), 1);
    world.assert_equal();

    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(listings(&world), 0, "a listing that is done is not due any more");
}

/// Cases that the feed does not report were not modified within its reach.
#[test]
fn cases_not_modified_since_the_first_day_are_only_searched_reported_or_not() {
    let world = World::unthrottled(120);
    let since = jiff::Zoned::now().date() - jiff::Span::new().days(100);
    world.configure(&format!("{QUICK_FEED}[bootstrap]\nsince = \"{since}\"\n"));
    world.sync();
    let store = world.store();
    let count = |sql: &str| one::<i64>(&store, sql);
    let day = since.to_zoned(jiff::tz::TimeZone::get("Europe/Oslo").unwrap()).unwrap();
    let ticks = day.timestamp().as_microsecond() * 10;
    let unreported = count("SELECT count(*) FROM sync.seen WHERE NOT reported");
    let before = count(&format!("SELECT count(*) FROM sync.seen WHERE modified_date < {ticks}"));
    let after = count(&format!("SELECT count(*) FROM sync.seen WHERE modified_date >= {ticks}"));
    assert!(unreported > 0 && before > 0 && after > 0, "{unreported} {before} {after}");
    let fetched = count("SELECT count(*) FROM sync.fetched WHERE table_name = 'activities'");
    assert_eq!(fetched, after);
    assert_eq!(count("SELECT count(*) FROM sync.pending"), 0);
    drop(store);
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

#[test]
fn cases_before_an_earlier_first_day_are_read_and_lack_until_they_are() {
    let world = World::unthrottled(60);
    let since = |days: i64| {
        let day = jiff::Zoned::now().date() - jiff::Span::new().days(days);
        world.configure(&format!("{QUICK_FEED}[bootstrap]\nsince = \"{day}\"\n"));
    };
    let read = || {
        let sql = "SELECT count(*) FROM sync.fetched WHERE table_name = 'activities'";
        one::<i64>(&world.store(), sql)
    };
    let complete = || one::<bool>(&world.published(), "SELECT complete FROM report.snapshot");
    since(60);
    world.sync();
    let few = read();
    since(50);
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world), idle_calls(), "nothing else is asked for");
    since(150);
    world.sync();
    assert!(read() > few, "{} {few}", read());
    assert!(complete());

    // Without a first day all are wanted.
    world.configure(QUICK_FEED);
    assert_eq!(world.run(&["sync", "--only", "offices"]).status.code(), Some(0));
    assert!(!complete(), "cases lack all that is read of them");
    world.sync();
    assert!(complete());
    world.assert_equal();
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world), idle_calls());
}

#[test]
fn a_table_that_was_forbidden_is_not_complete_before_it_is_read() {
    let world = World::unthrottled(8);
    let permission = || "Activities - Read".to_owned();
    let complete = || one::<bool>(&world.published(), "SELECT complete FROM report.snapshot");
    world.sandbox.control(Control::Withdraw { permission: permission() });
    world.sync();
    assert!(complete(), "what is forbidden is not asked for");

    world.sandbox.control(Control::Grant { permission: permission() });
    world.configure(&format!("{QUICK_FEED}[schedule]\nreference = \"* * * * * *\"\n"));
    world.sandbox.fault(garbage("/api/Cases/*/Activities", "{\"Message\": 1}"));
    assert_eq!(world.run(&["sync"]).status.code(), Some(3));
    assert!(!complete(), "it is permitted and has never been read");

    world.sandbox.clear_faults();
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(complete());
}

#[test]
fn the_tenant_is_asked_for_again_with_the_reference_schedule() {
    let world = World::unthrottled(4);
    world.sync();
    world.sync();
    assert_eq!(calls_to(&world, "/api/User"), 1);
    world.configure(&format!("{QUICK_FEED}[schedule]\nreference = \"* * * * * *\"\n"));
    world.sandbox.control(Control::Tenant { id: "another".to_owned() });
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another"), "{}", shown(&output));
}

#[test]
fn a_search_row_with_another_case_id_makes_its_table_failing_and_nothing_is_fetched_by_it() {
    let world = World::unthrottled(8);
    let body = "[{\"Id\": 999888777, \"CaseId\": 1000}]";
    world.sandbox.fault(Rule {
        query: Some("Id eq".to_owned()),
        ..garbage("/api/Search/AdvancedPropertySearch", body)
    });
    world.sync();
    let change = casemirror::sandbox::Act::Change {
        case_id: Some(world.sandbox.case_ids()[3]),
        facet: casemirror::sandbox::Facet::Activity,
        at: None,
    };
    world.sandbox.act(&change).unwrap();
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let status = "SELECT status FROM sync.resources WHERE table_name = 'cases'";
    assert_eq!(one::<String>(&world.store(), status), "failing");
    let asked = world.sandbox.stats().log;
    assert!(asked.iter().all(|call| !call.path.contains("999888777")));

    world.sandbox.clear_faults();
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert_eq!(one::<String>(&world.store(), status), "ok");
    world.assert_equal();
}

#[test]
fn a_table_that_only_fails_is_left_for_the_next_run_after_some_scopes() {
    let world = World::unthrottled(150);
    world.sandbox.fault(garbage("/api/Cases/*/Activities", "{\"Message\": 1}"));
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let made = calls_to(&world, "/api/Cases/{case_id}/Activities");
    // A few more than 20 scopes, each asked five times.
    assert!((100..200).contains(&made), "{made} calls to a table that answers nothing");
    let roles = "SELECT count(*) FROM sync.fetched WHERE table_name = 'case_roles'";
    assert_eq!(one::<i64>(&world.store(), roles), 150);
    let pending = "SELECT count(*) FROM sync.pending WHERE table_name = 'activities'";
    assert_eq!(one::<i64>(&world.store(), pending), 150, "all of them are still to be read");

    world.sandbox.clear_faults();
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    world.assert_equal();
}

#[test]
fn all_that_is_pending_is_listed_however_much_it_is() {
    let world = World::unthrottled(500);
    assert_eq!(world.run(&["sync", "--only", "cases,projects"]).status.code(), Some(0));
    let store = world.store();
    let cases: i64 = one(&store, "SELECT count(*) FROM sync.seen");
    assert!(cases >= 490, "{cases}");
    // One scope for each case, but where its row says that it has none; and the contacts that the feed
    // tells of.
    let tables = "SELECT string_agg(table_name, ' ' ORDER BY table_name) FROM (\
                  SELECT table_name FROM sync.pending GROUP BY ALL HAVING count(*) >= 490)";
    assert_eq!(
        one::<String>(&store, tables),
        "activities bank_transfers case_conditions case_files case_roles commission_sharing \
         common_conditions contacts costs document_costs dynamic_sale_text_use entries entry_drafts \
         estimated_costs external_entries housing_associations notes property_conditions \
         property_information public_showings publications settlement_statuses"
    );
    let doubled = "SELECT count(*) - count(DISTINCT (table_name, scope)) FROM sync.pending";
    assert_eq!(one::<i64>(&store, doubled), 0);
    let all: i64 = one(&store, "SELECT count(*) FROM sync.pending");
    assert!(all > 10_000, "{all}");
    drop(store);
    // What was pending before keeps its time.
    let since = "SELECT max(since)::VARCHAR FROM sync.pending WHERE table_name = 'notes'";
    let before: String = one(&world.store(), since);
    assert_eq!(world.run(&["sync", "--only", "cases,projects"]).status.code(), Some(0));
    assert_eq!(one::<String>(&world.store(), since), before);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.pending"), all);
}

/// Sends a signal to a process.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Two signals, of which the second ends at once what the first would let end.
#[test]
fn a_sync_that_is_told_to_stop_ends_cleanly_in_time() {
    for (name, returns) in [("TERM", true), ("INT", false)] {
        let world = World::unthrottled(20);
        world.sync();
        let case_id = shown_cases(&world)[5];
        change(&world, case_id, Facet::Activity);
        hold(&world, "call", &format!("/api/Cases/{case_id}/Activities"), 1);
        let running = start(&world, &["sync"]);
        assert!(world.wait(world.sandbox.wait_until_held("call")));
        signal(&running, name);
        if returns {
            world.sandbox.release("call");
        }
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {}", shown(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the next sync goes on from there"), "{name}: {}", shown(&output));
        world.sandbox.release("call");
        // The log is worked into the file, and every call to the feed has its end.
        assert!(!world.path("data/store.duckdb.wal").exists(), "{name}");
        let open = "SELECT count(*) FROM sync.feed_calls WHERE ended_at IS NULL";
        assert_eq!(one::<i64>(&world.store(), open), 0, "{name}");
        // Also where it was given up, because its call did not end in time.
        let open = "SELECT count(*) FROM sync.runs WHERE ended_at IS NULL";
        assert_eq!(one::<i64>(&world.store(), open), 0, "{name}");
        assert_eq!(one::<String>(&world.store(), LAST_RUN), "interrupted 1", "{name}");
        world.sync();
        world.assert_equal();
    }
}

const CASES_FEED: &str = "/api/Integrations/RecentlyModified/Cases";
const CONTACTS_FEED: &str = "/api/Integrations/RecentlyModified/Contacts";
const LAST_RUN: &str =
    "SELECT outcome || ' ' || exit_status FROM sync.runs ORDER BY run_id DESC LIMIT 1";

#[test]
fn the_cases_of_a_new_mirror_are_read_while_the_feed_of_contacts_is_asked() {
    let world = World::unthrottled(12);
    hold(&world, "contacts", CONTACTS_FEED, 1);
    hold(&world, "case", "/api/Cases/*/Activities", 1);
    // The held calls are not given up.
    let running = start(&world, &["sync", "--set", "limits.timeout=10m"]);
    assert!(world.wait(world.sandbox.wait_until_held("contacts")));
    assert!(world.wait(world.sandbox.wait_until_held("case")));
    world.sandbox.release("case");
    world.sandbox.release("contacts");
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    world.assert_equal();
}

#[test]
fn a_sync_that_is_told_to_stop_does_not_wait_for_the_feed_of_contacts() {
    let world = World::unthrottled(12);
    hold(&world, "contacts", CONTACTS_FEED, 1);
    // The held call is not given up, and a run that waited for it would not end.
    let running = start(&world, &["sync", "--set", "limits.timeout=10m"]);
    assert!(world.wait(world.sandbox.wait_until_held("contacts")));
    signal(&running, "TERM");
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let open = "SELECT count(*) FROM sync.feed_calls WHERE ended_at IS NULL";
    assert_eq!(one::<i64>(&world.store(), open), 0);
    assert_eq!(one::<String>(&world.store(), LAST_RUN), "interrupted 1");
    world.sandbox.release("contacts");
    world.sync();
    world.assert_equal();
}

/// As where it waits for the throttle: for a whole minute, perhaps.
#[test]
fn a_sync_that_is_told_to_stop_waits_for_no_feed() {
    // A poll's call, and the one that reads a feed once more at night.
    let polls = [(CASES_FEED, 1), (CONTACTS_FEED, 1), (CASES_FEED, 2), (CONTACTS_FEED, 2)];
    for (feed, number) in polls {
        let world = World::unthrottled(12);
        world.sync();
        let case_id = shown_cases(&world)[5];
        change(&world, case_id, Facet::Activity);
        let due = "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'";
        Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(due).unwrap();
        hold(&world, "feed", feed, number);
        let running = start(&world, &["sync", "--set", "limits.timeout=10m"]);
        assert!(world.wait(world.sandbox.wait_until_held("feed")));
        signal(&running, "TERM");
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{feed}: {}", shown(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("not everything under way ended in time"), "{feed}: {said}");
        let open = "SELECT count(*) FROM sync.feed_calls WHERE ended_at IS NULL";
        assert_eq!(one::<i64>(&world.store(), open), 0, "{feed}");
        assert_eq!(one::<String>(&world.store(), LAST_RUN), "interrupted 1", "{feed}");
        let listed = "SELECT last_run <= '2026-01-01' FROM sync.schedules WHERE name = 'reconcile'";
        assert!(one::<bool>(&world.store(), listed), "{feed}: it is due still");
        world.sandbox.release("feed");
        world.sync();
        world.assert_equal();
    }
}

#[test]
fn a_full_sync_that_is_stopped_while_it_asks_the_feed_goes_on_as_one() {
    let world = World::unthrottled(12);
    world.sync();
    hold(&world, "feed", CASES_FEED, 1);
    let running = start(&world, &["sync", "--full"]);
    assert!(world.wait(world.sandbox.wait_until_held("feed")));
    signal(&running, "TERM");
    assert_eq!(running.wait_with_output().unwrap().status.code(), Some(1));
    world.sandbox.release("feed");
    world.sandbox.reset_stats();
    world.sync();
    let searched = calls(&world).into_iter().filter(|(call, _)| call.contains("Roles"));
    assert_eq!(searched.count(), 12, "every case is read: {:?}", calls(&world));
}

/// A listing is the first thing of a night; what comes behind it must not be taken for done.
#[test]
fn what_a_stop_during_the_listing_leaves_is_due_still() {
    let world = World::unthrottled(12);
    world.sync();
    let due = "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name <> 'verify'";
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(due).unwrap();
    hold(&world, "call", "/api/Search/AdvancedPropertySearch", 1);
    world.sandbox.reset_stats();
    let running = start(&world, &["sync"]);
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    signal(&running, "TERM");
    world.sandbox.release("call");
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let asked = calls(&world);
    let feed = "GET /api/Integrations/RecentlyModified/Cases";
    assert_eq!(asked.get(feed), Some(&1), "it was read once more: {asked:?}");

    world.sandbox.reset_stats();
    world.sync();
    let asked = calls(&world);
    assert_eq!(asked.get(feed), Some(&2), "nor was it read by the next: {asked:?}");
    for call in ["/api/Employees", "/RevenueJournals", "/Search/AdvancedProjectSearch"] {
        assert!(asked.keys().any(|asked| asked.contains(call)), "{call} was left out: {asked:?}");
    }
    world.assert_equal();
}
