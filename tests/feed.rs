//! Whatever the change feeds answer, no change is lost (docs/architecture.md, "Scopes" and "The
//! watermark").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use casemirror::catalog::Catalog;
use casemirror::config::Config;
use casemirror::cycle::{Notifier, Polls};
use casemirror::feed::Reread;
use casemirror::mirror::{Store, Writer};
use casemirror::sandbox::{Act, Control, Facet, Fault, MaxTop, Options, Rule};
use casemirror::scope::FeedName;
use casemirror::source::{Client, StoredLedger};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::follow::{
    Integrator, UNTHROTTLED, assert_status, brisk, calls, change, hold, idle_calls, lines,
    shown_cases, unthrottled,
};
use crate::support::scripted::{fault, garbage};
use crate::support::{World, one, try_open_read_only};

const CASES: &str = "/api/Integrations/RecentlyModified/Cases";
const CONTACTS: &str = "/api/Integrations/RecentlyModified/Contacts";
/// Nothing is read twice, so that what is lost stays lost.
const NO_OVERLAP: &str = "overlap = \"0s\"\n";

/// A mirrored world in which the next poll starts where the last one began, and no earlier.
fn mirrored() -> World {
    let world = brisk(unthrottled(30));
    world.configure(&format!("{UNTHROTTLED}{NO_OVERLAP}"));
    world.bootstrap();
    // The skew is that of a row as new as can be: the bound follows the clock closely.
    change(&world, shown_cases(&world)[0], Facet::Draft);
    world.sync();
    world.assert_equal();
    world.sandbox.reset_stats();
    world
}

/// The feed's own row of a case.
fn feed_row(world: &World, case_id: i64) -> Value {
    let path = format!("{CASES}?$filter=CaseId%20eq%20{case_id}&$top=1");
    Integrator::log_in(world).call("GET", &path, &Value::Null)[0].clone()
}

fn contact_row(world: &World, contact_id: i64) -> Value {
    let path = format!("{CONTACTS}?$filter=ContactId%20eq%20{contact_id}&$top=1");
    Integrator::log_in(world).call("GET", &path, &Value::Null)[0].clone()
}

/// The feed answers with these rows, so many times.
fn answers(world: &World, feed: &str, rows: &[Value], count: Option<u64>) {
    world.sandbox.fault(Rule {
        method: None,
        path: feed.to_owned(),
        query: None,
        nth: 1,
        count,
        fault: Fault::Garbage {
            body: Value::from(rows).to_string(),
            status: None,
            content_type: None,
        },
    });
    world.sandbox.reset_stats();
}

/// From now on the server's clock is ahead of the dates, so that a bound that moves leaves behind what
/// changed until now.
fn run_ahead(world: &World) {
    world.sandbox.control(Control::DateSkew { ms: 60_000 });
}

/// An instant so many seconds ago.
fn ago(seconds: i64) -> String {
    let at = chrono::Utc::now() - chrono::TimeDelta::seconds(seconds);
    at.format("%Y-%m-%dT%H:%M:%S.1234567Z").to_string()
}

/// Sets `ModifiedDate` and one other date.
fn touch(world: &World, case_id: i64, date: &str, at: &str) {
    let act = Act::Touch {
        case_ids: vec![case_id],
        modified: Some(at.to_owned()),
        dates: BTreeMap::from([(date.to_owned(), Some(at.to_owned()))]),
    };
    world.sandbox.act(&act).unwrap();
}

/// A run that ends incomplete and names the table; `status` says the same.
#[track_caller]
fn assert_incomplete(world: &World, table: &str) {
    for command in ["sync", "status"] {
        let output = world.run(&[command]);
        assert_status(&output, 3);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("incomplete: {table}: 1 open reject")), "{said}");
    }
}

/// The calls that read something of a case.
fn calls_of(world: &World, case_id: i64) -> Vec<String> {
    let id = case_id.to_string();
    calls(world).into_keys().filter(|call| call.split('/').any(|part| part == id)).collect()
}

#[rstest]
#[case::garbage(json!("the day before yesterday"))]
#[case::number(json!(20_260_428))]
fn a_date_that_cannot_be_read_makes_the_case_stale_once(#[case] value: Value) {
    let world = mirrored();
    let case_id = shown_cases(&world)[9];
    change(&world, case_id, Facet::Activity);
    let mut row = feed_row(&world, case_id);
    row["ActivityChangedDate"] = value;
    answers(&world, CASES, &[row], None);
    assert_incomplete(&world, "sync.seen");
    // All that can be read of it is read: the row is damaged, and the other dates are part of it.
    let read = calls_of(&world, case_id);
    let activities = format!("GET /api/Cases/{case_id}/Activities");
    assert!(read.contains(&activities), "{read:?}");
    assert!(read.contains(&format!("GET /api/Integrations/Bookkeeping/Cases/{case_id}/Entries")));
    world.assert_equal();
    let reject =
        "SELECT record_key || ' ' || column_name FROM sync.rejects WHERE resolved_at IS NULL";
    assert_eq!(one::<String>(&world.store(), reject), format!("{case_id} activity_changed_date"));

    // The same row again: it is still there to be seen, but nothing is read again.
    world.sandbox.reset_stats();
    assert_incomplete(&world, "sync.seen");
    assert_eq!(calls(&world), idle_calls());

    world.sandbox.clear_faults();
    change(&world, case_id, Facet::Activity);
    world.sync();
    world.assert_equal();
    let open = "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NULL";
    assert_eq!(one::<i64>(&world.store(), open), 0);
}

#[test]
fn a_date_that_was_garbled_once_is_asked_for_again_and_read() {
    let world = mirrored();
    let case_id = shown_cases(&world)[9];
    touch(&world, case_id, "ActivityChangedDate", &ago(0));
    let mut row = feed_row(&world, case_id);
    row["ActivityChangedDate"] = json!("soon");
    let other = feed_row(&world, shown_cases(&world)[0]);
    run_ahead(&world);
    answers(&world, CASES, &[other, row], Some(1));
    assert_incomplete(&world, "sync.seen");
    // Nothing changes at the source; the bound has not passed the row.
    world.sync();
    world.assert_equal();
}

#[test]
fn a_modified_date_that_cannot_be_read_neither_hides_the_case_nor_stops_the_page() {
    let world = mirrored();
    let ids = shown_cases(&world);
    let (bad, good) = (ids[9], ids[11]);
    change(&world, bad, Facet::Description);
    change(&world, good, Facet::Transaction);
    let mut row = feed_row(&world, bad);
    row.as_object_mut().unwrap().remove("ModifiedDate");
    answers(&world, CASES, &[row, feed_row(&world, good)], Some(1));
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    world.assert_equal();
    world.sync();
    world.assert_equal();
}

#[test]
fn a_row_that_names_no_case_holds_the_bound_and_nothing_else() {
    let world = mirrored();
    let ids = shown_cases(&world);
    let (lost, found) = (ids[9], ids[11]);
    touch(&world, lost, "ActivityChangedDate", &ago(0));
    let mut row = feed_row(&world, lost);
    row["CaseId"] = json!({"secret": "x".repeat(10_000)});
    run_ahead(&world);
    change(&world, found, Facet::Transaction);
    answers(&world, CASES, &[row, feed_row(&world, found)], None);
    assert_incomplete(&world, "sync.seen");
    assert!(!calls_of(&world, found).is_empty(), "the rest of the answer is followed");
    let activities = format!("GET /api/Cases/{lost}/Activities");
    assert!(!calls(&world).contains_key(&activities));
    // As long as it comes it is a problem.
    assert_incomplete(&world, "sync.seen");
    let reject = "SELECT string_agg(error, ';') FROM sync.rejects WHERE resolved_at IS NULL \
                  AND column_name IS NULL";
    let error = one::<String>(&world.store(), reject);
    assert!(error.contains("CaseId") && error.len() < 200, "{error}");

    world.sandbox.clear_faults();
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world).get(&activities), Some(&1), "the change was lost");
    world.assert_equal();
}

/// It is there for as long as the service has it, and the feed is followed meanwhile.
#[rstest]
#[case::an_error(r#"{"Message": "An error has occurred."}"#)]
#[case::a_name_twice(r#"{"CaseId": 1, "CaseId": 1, "ModifiedDate": "2026-04-28T12:00:00Z"}"#)]
fn a_record_of_the_feed_that_is_none_holds_the_bound_and_nothing_else(#[case] none: &str) {
    let world = mirrored();
    let ids = shown_cases(&world);
    let (lost, found) = (ids[9], ids[11]);
    touch(&world, lost, "ActivityChangedDate", &ago(0));
    run_ahead(&world);
    change(&world, found, Facet::Transaction);
    let rows = format!("[{none}, {none}, {}]", feed_row(&world, found));
    world.sandbox.fault(fault(CASES, None, garbage(&rows)));
    world.sandbox.reset_stats();
    assert_incomplete(&world, "sync.seen");
    assert!(!calls_of(&world, found).is_empty(), "the rest of the answer is followed");
    assert_eq!(calls(&world).get(&format!("GET {CASES}")), Some(&1));

    world.sandbox.clear_faults();
    world.sandbox.reset_stats();
    world.sync();
    let activities = format!("GET /api/Cases/{lost}/Activities");
    assert_eq!(calls(&world).get(&activities), Some(&1), "the change was lost");
    world.assert_equal();
}

/// A window has few calls, for both feeds.
#[test]
fn a_feed_of_records_that_are_none_is_no_answer_and_is_asked_twice() {
    let world = mirrored();
    let changed = shown_cases(&world)[3];
    change(&world, changed, Facet::Transaction);
    run_ahead(&world);
    let rows = r#"[{"Message": "An error has occurred."}, {"Message": "An error has occurred."}]"#;
    world.sandbox.fault(fault(CASES, None, garbage(rows)));
    world.sandbox.reset_stats();
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(calls(&world).get(&format!("GET {CASES}")), Some(&2));
    assert!(calls_of(&world, changed).is_empty());
    world.sandbox.clear_faults();
    world.sync();
    world.assert_equal();
}

/// By our clock alone, the last poll is longer ago than the feed goes back; the service's says which of both is wrong,
/// unless the feed has rows that are newer than that.
#[test]
fn a_clock_of_ours_that_is_far_ahead_does_not_make_everything_stale() {
    let world = mirrored();
    // 364.1 days: the feed goes back 365.
    let back = "UPDATE sync.feeds SET bound = epoch_us(now()) * 10 - 314582400000000";
    let read = || {
        world.alter(back);
        world.sync();
        let others = calls(&world).into_keys().filter(|call| !call.contains("RecentlyModified"));
        others.filter(|call| !call.contains("token")).count()
    };
    let year = 400 * 86_400_000;
    world.sandbox.control(Control::DateSkew { ms: -year });
    answers(&world, CASES, &[], Some(1));
    answers(&world, CONTACTS, &[], Some(1));
    assert_eq!(read(), 0, "{:#?}", calls(&world));
    world.assert_equal();
    for (skew, refused) in [(-year, false), (0, false), (0, true)] {
        world.sandbox.control(Control::DateSkew { ms: skew });
        if refused {
            let fault = Fault::Refuse { status: 400, headers: [].into(), body: String::new() };
            let query = Some("desc".to_owned());
            let path = "/api/Integrations/RecentlyModified/*".to_owned();
            world.sandbox.fault(Rule { method: None, path, query, nth: 1, count: None, fault });
        }
        world.sandbox.reset_stats();
        assert!(read() > 30, "everything is read again: {:#?}", calls(&world));
        world.assert_equal();
    }
}

#[test]
fn a_contact_whose_date_cannot_be_read_is_searched() {
    let world = mirrored();
    let act = Act::EditContact { contact_id: None, at: None };
    let contact_id = world.sandbox.act(&act).unwrap().contact_ids[0];
    let mut row = contact_row(&world, contact_id);
    row["ModifiedDate"] = json!("now");
    answers(&world, CONTACTS, &[row], Some(1));
    assert_incomplete(&world, "sync.seen_contacts");
    world.assert_equal();
    world.sync();
    world.assert_equal();
}

#[rstest]
#[case(400)]
#[case(501)]
fn a_service_that_does_not_know_the_filter_for_ties_is_read_by_skip(#[case] status: u16) {
    let max_top = MaxTop { feed: 100, ..MaxTop::default() };
    let world = brisk(Options { max_top, ..unthrottled(260) });
    world.bootstrap();
    let case_ids = shown_cases(&world)[..230].to_vec();
    let modified = Some(ago(0));
    world.sandbox.act(&Act::Touch { case_ids, modified, dates: BTreeMap::new() }).unwrap();
    world.sandbox.fault(Rule {
        method: None,
        path: CASES.to_owned(),
        query: Some("ModifiedDate eq".to_owned()),
        nth: 1,
        count: None,
        fault: Fault::Refuse { status, headers: [].into(), body: String::new() },
    });
    world.sandbox.reset_stats();
    world.sync();
    world.assert_equal();
    let newest = "SELECT count(*) FROM sync.seen GROUP BY modified_date ORDER BY 1 DESC LIMIT 1";
    assert_eq!(one::<i64>(&world.store(), newest), 230);
    let log = world.sandbox.stats().log;
    let ties = log.iter().filter(|call| call.path == CASES && call.query.contains("eq"));
    assert_eq!(ties.count(), 1, "it is not asked in smaller pages");
}

/// What asks the feeds, as a process has it.
fn polls(world: &World) -> Polls {
    let ledger = ("feed.ledger".to_owned(), "feed-calls".to_owned());
    let config = Config::load(&world.path("casemirror.toml"), &[ledger], |_| None).unwrap();
    let catalog = Arc::new(Catalog::load(None).unwrap());
    let store = Store::open(&config, &catalog).unwrap();
    let writer = Writer::start(&store).unwrap();
    let ledger = Arc::new(StoredLedger::open(&config, store.connection().unwrap()).unwrap());
    let client = Client::new(&config.source, &config.feed, &config.limits, ledger).unwrap();
    Polls {
        config: Arc::new(config),
        store: Arc::new(store),
        writer,
        client,
        turns: Arc::default(),
        notifier: Notifier::default(),
    }
}

/// Lets go of the store.
fn close(world: &World, polls: Polls) {
    world.wait(polls.client.flush());
    drop(polls);
    // The threads that hold connections end by themselves; then the file is free.
    while try_open_read_only(&world.path("data/store.duckdb")).is_err() {
        std::thread::yield_now();
    }
}

/// Reads the last two days of a feed again, as the nightly reconciliation does.
fn reread(world: &World, name: FeedName) -> Reread {
    let polls = polls(world);
    let reread = world.wait(polls.reread(name, Duration::from_secs(2 * 86_400))).unwrap();
    close(world, polls);
    reread
}

/// The cases are followed while the feed of contacts does not answer.
#[test]
fn a_feed_that_does_not_answer_keeps_the_other_from_nothing() {
    let world = mirrored();
    hold(&world, "contacts", CONTACTS, 1);
    let polls = polls(&world);
    let reach = Duration::from_secs(2 * 86_400);
    let contacts = polls.clone();
    let contacts = async move { contacts.reread(FeedName::Contacts, reach).await };
    world.wait(async {
        let asked = tokio::spawn(contacts);
        assert!(world.sandbox.wait_until_held("contacts").await);
        let cases = polls.reread(FeedName::Cases, reach);
        let cases = tokio::time::timeout(Duration::from_secs(60), cases).await;
        world.sandbox.release("contacts");
        asked.await.unwrap().unwrap();
        assert!(cases.expect("it waits for the other").unwrap().calls > 0);
    });
    close(&world, polls);
}

#[test]
fn a_row_that_appears_late_is_found_by_reading_again_which_says_how_late() {
    let world = mirrored();
    let case_id = shown_cases(&world)[9];
    let before = reread(&world, FeedName::Cases);
    assert_eq!((before.late, before.moved), (0, 0));
    assert!(before.calls >= 1);

    world.sandbox.control(Control::HideFromFeed { case_id, polls: 1 });
    change(&world, case_id, Facet::Activity);
    touch(&world, case_id, "ActivityChangedDate", &ago(300));
    world.sync();
    let place = "SELECT feed, bound, cursor, next_bound, polled_at FROM sync.feeds ORDER BY feed";
    let bounds = lines(&world.store(), place);
    world.sync();
    let activities = format!("SELECT count(*) FROM main.activities WHERE case_id = {case_id}");
    let mirrored: i64 = one(&world.store(), &activities);
    let bounds_after = lines(&world.store(), place);
    assert_ne!(bounds, bounds_after, "polls went on and did not see it");

    let found = reread(&world, FeedName::Cases);
    assert_eq!((found.late, found.moved), (1, 1));
    let seconds = found.latest.as_secs();
    assert!((280..600).contains(&seconds), "{seconds} s late");
    assert_eq!(lines(&world.store(), place), bounds_after, "the polls' place is theirs");
    assert_eq!(reread(&world, FeedName::Cases).late, 0, "told once");
    assert_eq!(reread(&world, FeedName::Contacts).late, 0);

    world.sync();
    assert_eq!(one::<i64>(&world.store(), &activities), mirrored + 1);
    world.assert_equal();
}
