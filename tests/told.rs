//! What the commands say of what is not as it should be, or not done.

use casemirror::catalog::Catalog;
use casemirror::sandbox::{Act, Facet, Fault, Rule};
use duckdb::Connection;

use crate::support::follow::{UNTHROTTLED, assert_status, calls, change, shown_cases, unthrottled};
use crate::support::{World, one, shown};

#[test]
fn a_run_that_could_not_publish_is_told_by_status() {
    let world = World::unthrottled(6);
    world.bootstrap();
    // What stands in the way is met only when something is written there.
    std::fs::create_dir(world.path("pq")).unwrap();
    std::fs::write(world.path("pq/snapshots"), "").unwrap();
    let output = world.run(&["sync", "--set", "publish.parquet=pq"]);
    assert_status(&output, 1);
    let output = world.run(&["status"]);
    assert_status(&output, 3);
    let said = shown(&output);
    assert!(said.contains("incomplete: the last run (sync) failed: "), "{said}");
    assert!(said.contains("/pq/snapshots"), "{said}");
    world.sync();
    assert_status(&world.run(&["status"]), 0);
}

#[test]
fn a_run_before_the_first_listing_says_that_nothing_is_published() {
    let told = "nothing is published before the first complete listing of the cases";
    let world = World::unthrottled(6);
    let output = world.run(&["sync", "--only", "offices"]);
    assert_status(&output, 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains(told), "{}", shown(&output));
    assert!(!world.path("data/casemirror.duckdb").exists());
    assert!(!world.sync().contains(told));
    let output = world.run(&["sync", "--only", "offices"]);
    assert_status(&output, 0);
    assert!(!shown(&output).contains(told), "{}", shown(&output));
}

#[test]
fn a_case_that_is_asked_for_and_not_known_is_told() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let known = shown_cases(&world)[0].to_string();
    let output = world.run(&["sync", "--case", &known, "--case", "999999"]);
    assert_status(&output, 3);
    let said = shown(&output);
    assert!(said.contains("incomplete: case 999999: no such case is known"), "{said}");
    assert!(!said.contains(&format!("case {known}:")), "{said}");
    let status = shown(&world.run(&["status"]));
    let (_, of_run) = status.split_once("\nlast run: sync incomplete").unwrap();
    assert!(of_run.contains("\n  case 999999: no such case is known"), "{status}");
    assert_status(&world.run(&["sync", "--case", &known]), 0);
}

#[test]
fn what_the_listing_lacks_is_counted_and_let_go_without_reading_all_again() {
    let world = World::with(unthrottled(90));
    // The roles alone: what else is read of a case is not asked about here.
    let kept = ["cases", "projects", "case_roles"];
    let catalog = Catalog::load(None).unwrap();
    let off: Vec<String> = catalog
        .resources()
        .iter()
        .map(|r| r.table.clone())
        .filter(|t| !kept.contains(&t.as_str()))
        .collect();
    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = {off:?}"));
    world.sync();
    let cases = shown_cases(&world);
    let (left, rest) = cases.split_at(2);
    let (gone, stay) = rest.split_at(60);
    let hide = |ids: &[i64]| {
        for case_id in ids {
            world.sandbox.act(&Act::HideCase { case_id: *case_id, silent: true }).unwrap();
        }
    };
    hide(left);
    world.run(&["sync", "--full"]);
    let mirrored = "SELECT count(*) FROM (SELECT id FROM cases UNION ALL SELECT id FROM projects)";
    let before: i64 = one(&world.store(), mirrored);
    assert!(before > 60);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM cases"), cases.len() as i64 - 2);
    hide(gone);
    let output = world.run(&["sync", "--full"]);
    assert_status(&output, 3);
    let said = shown(&output);
    let lacks = format!("the listing lacks 60 of {before} cases (2 more left in the last hour)");
    assert!(said.contains(&lacks), "{said}");
    assert!(said.contains("run `casemirror sync --allow-removals`"), "{said}");
    world.sandbox.reset_stats();
    assert_status(&world.run(&["sync", "--allow-removals"]), 0);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM cases"), stay.len() as i64);
    let made = calls(&world);
    let read_again = |case_id: &&i64| made.contains_key(&format!("GET /api/Cases/{case_id}/Roles"));
    assert_eq!(stay.iter().find(read_again), None);
}

#[test]
fn a_plan_on_a_new_store_names_what_it_cannot_count() {
    let world = World::unthrottled(6);
    let output = world.run(&["plan"]);
    assert_status(&output, 0);
    let said = shown(&output);
    let line = |source: &str| {
        let begin = format!("Not counted yet, because {source} has not been read: ");
        let found = said.lines().find_map(|line| line.strip_prefix(&begin));
        found.unwrap_or_else(|| panic!("{source}:\n{said}")).to_owned()
    };
    assert!(line("offices").contains("accounts"), "{said}");
    assert!(line("offices").contains("revenue_journals"), "{said}");
    assert!(line("employees").contains("employee_offices"), "{said}");
    // Their condition is of a row that is not there yet.
    assert_eq!(line("cases"), "public_showings, resale_information");
    assert_eq!(line("dynamic_sale_text_use"), "dynamic_sale_texts");
    // Listed, and the rest of the cases never read.
    assert_status(&world.run(&["sync", "--only", "cases,projects"]), 0);
    let said = shown(&world.run(&["plan"]));
    let sources = said.lines().filter_map(|line| line.strip_prefix("Not counted yet, because "));
    let of_cases: Vec<&str> = sources.filter(|line| line.contains("dynamic")).collect();
    let of_six = "dynamic_sale_text_use has not been read of 6 cases: dynamic_sale_texts";
    assert_eq!(of_cases, [of_six], "{said}");
    world.sync();
    let output = world.run(&["plan"]);
    assert!(!shown(&output).contains("Not counted yet"), "{}", shown(&output));
}

#[test]
fn a_feed_that_is_held_keeps_no_other_from_being_asked_for_a_plan() {
    let world = World::unthrottled(6);
    world.sync();
    world.sandbox.reset_stats();
    let feed = "/api/Integrations/RecentlyModified/";
    let refused = Fault::Refuse { status: 408, headers: [].into(), body: String::new() };
    world.sandbox.fault(Rule {
        method: Some("GET".to_owned()),
        path: format!("{feed}Cases"),
        query: None,
        nth: 1,
        count: None,
        fault: refused,
    });
    let output = world.run(&["plan"]);
    assert_status(&output, 0);
    let said = shown(&output);
    let held: Vec<&str> = said.lines().filter(|line| line.contains("has changed since")).collect();
    assert_eq!(held.len(), 1, "{said}");
    assert!(held[0].contains("the change feed (cases) cannot be read"), "{said}");
    let asked = calls(&world);
    assert!(asked.keys().any(|call| call.contains(&format!("{feed}Contacts"))), "{asked:?}");
}

/// What another tenant's feeds say must not be kept.
#[test]
fn a_plan_ends_where_it_cannot_be_asked_whose_the_feeds_are() {
    let world = World::unthrottled(6);
    world.sync();
    world.sandbox.reset_stats();
    let other = "UPDATE sync.meta SET value = 'other credentials' WHERE key = 'origin'";
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(other).unwrap();
    world.sandbox.fault(Rule {
        method: Some("GET".to_owned()),
        path: "/api/User".to_owned(),
        query: None,
        nth: 1,
        count: None,
        fault: Fault::Refuse {
            status: 429,
            headers: [("Retry-After".to_owned(), "3600".to_owned())].into(),
            body: String::new(),
        },
    });
    assert_status(&world.run(&["plan"]), 1);
    assert_eq!(world.sandbox.stats().feed.calls, 0);
}

#[test]
fn what_waits_for_one_reason_is_told_in_one_line() {
    let world = World::unthrottled(6);
    assert_status(&world.run(&["sync", "--only", "cases,projects"]), 0);
    let output = world.run(&["status"]);
    assert_status(&output, 0);
    let said = shown(&output);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("waiting: ")).collect();
    assert!(!lines.is_empty() && lines.len() < 5, "{said}");
    let reasons: Vec<&str> = lines.iter().filter_map(|l| l.rsplit("): ").next()).collect();
    let mut different = reasons.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), reasons.len(), "{said}");
    assert!(said.contains("activities (") && said.contains("notes ("), "{said}");
}

/// A text of the platform's that would clear the screen, colour it, ring, and turn the writing round.
const STEERING: &str = "\u{1b}[2J\u{9b}31mred\u{7}\u{202e}\r";

#[test]
fn no_text_of_the_platform_steers_the_terminal() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let case_id = shown_cases(&world)[2];
    world.sandbox.act(&Act::EditContact { contact_id: None, at: None }).unwrap();
    world.sandbox.fault(Rule {
        method: None,
        path: "/api/Cases/*/Activities".to_owned(),
        query: None,
        nth: 1,
        count: None,
        fault: Fault::Garbage {
            body: serde_json::json!({ "Message": STEERING }).to_string(),
            status: Some(400),
            content_type: None,
        },
    });
    crate::support::follow::change(&world, case_id, casemirror::sandbox::Facet::Activity);
    let reason = "SELECT error AS \"why \u{1b}[1m\" FROM sync.failures \
                  UNION ALL SELECT chr(27) || '[31m'";
    let mut all = String::new();
    for args in [
        &["sync", "-v"][..],
        &["status"],
        &["plan"],
        &["sync"],
        &["query", reason],
        &["query", "SELECT * FROM \u{1b}[2J"],
        &["status", "--config", "\u{1b}[2J"],
    ] {
        let output = world.run(args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.contains(steers), "{args:?}: {said:?}");
        all += &said;
    }
    // It is told all the same.
    for shown in ["31mred", "\\u{202e}", "\\u{1b}[31m"] {
        assert!(all.contains(shown), "no {shown} in {all}");
    }
    // Programs get it as it is.
    let csv = world.run(&["query", "--format", "csv", "SELECT chr(27) AS c"]);
    assert_eq!(csv.stdout, b"c\n\x1b\n");
}

#[test]
fn the_daemons_log_has_a_line_for_a_cycle_that_did_something_and_none_for_a_poll() {
    let world = World::with(unthrottled(12));
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let lines = || -> Vec<String> {
        let log = std::fs::read_to_string(world.path("daemon.log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("the mirror follows the source"));
        lines.map(str::to_owned).collect()
    };
    let polls = || {
        let path = "GET /api/Integrations/RecentlyModified/Cases";
        calls(&world).get(path).copied().unwrap_or(0)
    };
    // What is asked between two cycles is no call of the next one.
    let (before, begun) = (lines().len(), polls());
    daemon.wait_until("it was polled some times", || polls() >= begun + 40);
    assert_eq!(lines().len(), before, "{:?}", lines());
    change(&world, shown_cases(&world)[3], Facet::Activity);
    daemon.wait_until("it is told", || lines().len() > before);
    let line = &lines()[before];
    assert!(line.contains("cycles=1 cases=1 contacts=0 inserted="), "{line}");
    assert!(line.contains("activities 1"), "{line}");
    let (_, rest) = line.split_once(" calls=").unwrap();
    let calls: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((1..40).contains(&calls), "{line}");
    daemon.stop();
}

/// Nobody who names one table expects that all of them are read by the next run.
#[test]
fn a_full_sync_of_some_tables_says_that_the_rest_is_stale_too() {
    let world = World::unthrottled(4);
    world.bootstrap();
    let said = |args: &[&str]| shown(&world.run(args)).contains("the rest is stale now too");
    assert!(!said(&["sync", "--only", "offices"]));
    assert!(said(&["sync", "--only", "offices", "--full"]));
    assert!(!said(&["sync", "--full"]));
}
