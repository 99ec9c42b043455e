//! Nothing is decided on half an answer: what is known stays, the rest goes on, and what was not
//! answered is asked again.

use casemirror::sandbox::{Act, Control, Facet, Rule};
use serde_json::{Value, json};

use crate::support::follow::{
    IN_TWENTY_HOURS, Integrator, assert_status, calls, change, differences_beside, shown_cases,
};
use crate::support::scripted::{
    assert_incomplete, assert_mended, end_the_run_at, fault, garbage, page, property_rows, refuse,
    search_path, undated, without_id,
};
use crate::support::{World, one, shown};

const CASES_FEED: &str = "/api/Integrations/RecentlyModified/Cases";
const CONTACTS_FEED: &str = "/api/Integrations/RecentlyModified/Contacts";
const DOUBTED: &str = "SELECT count(*) FROM sync.seen WHERE state IS DISTINCT FROM 'found'";

fn mirrored(cases: usize) -> World {
    let world = World::unthrottled(cases);
    world.bootstrap();
    world
}

/// Garbage in the first call to the property search: the listing's.
fn script_listing(world: &World, records: &[Value]) {
    world.sandbox.fault(fault(&search_path("Property"), Some(1), garbage(&page(records))));
}

#[test]
fn a_search_that_cannot_be_read_makes_no_case_a_suspect() {
    let world = mirrored(8);
    let rows = "SELECT count(*) FROM cases";
    let before: i64 = one(&world.store(), rows);
    world.sandbox.fault(fault(&search_path("Property"), None, refuse(403)));
    // The first run learns that it is forbidden; both list the projects alone. Tried again in vain, it needs no second
    // answer.
    for doubt in ["0s", "10m"] {
        world.doubt(doubt);
        assert_status(&world.run(&["sync", "--full"]), 0);
        assert_eq!(one::<i64>(&world.store(), DOUBTED), 0);
        assert_eq!(one::<i64>(&world.store(), rows), before);
    }
}

#[test]
fn a_case_that_one_search_lacks_waits_while_the_other_cannot_be_read() {
    let world = mirrored(8);
    let case_id = shown_cases(&world)[3];
    world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
    world.sandbox.fault(fault(&search_path("Project"), None, refuse(403)));
    world.sandbox.fault(end_the_run_at(&search_path("Property"), 60));
    assert_incomplete(&world.run(&["sync"]), "cases");
    let store = world.store();
    assert_eq!(one::<i64>(&store, &format!("SELECT count(*) FROM cases WHERE id = {case_id}")), 1);
    assert_eq!(one::<i64>(&store, DOUBTED), 0);
}

#[test]
fn a_search_row_without_key_does_not_hold_back_those_beside_it() {
    let world = mirrored(8);
    let cases = shown_cases(&world);
    for case_id in &cases[3..5] {
        change(&world, *case_id, Facet::Nothing);
    }
    let whole = property_rows(&world, Some(cases[3])).remove(0);
    let without_key = without_id(&whole);
    let path = search_path("Property");
    let rule = fault(&path, None, garbage(&page(&[whole, without_key])));
    world.sandbox.fault(Rule { query: Some("Id eq".to_owned()), ..rule });
    world.sandbox.fault(end_the_run_at(&path, 60));
    assert_incomplete(&world.run(&["sync"]), "cases");
    let failed = "SELECT string_agg(id, ',') FROM sync.failures WHERE table_name = 'cases'";
    assert_eq!(one::<String>(&world.store(), failed), cases[4].to_string());
    assert_mended(&world);
}

#[test]
fn a_listing_row_without_key_makes_no_case_a_suspect() {
    let world = mirrored(8);
    let mut rows = property_rows(&world, None);
    rows[3] = without_id(&rows[3]);
    script_listing(&world, &rows);
    world.sandbox.reset_stats();
    assert_incomplete(&world.run(&["sync", "--full"]), "cases");
    let store = world.store();
    assert_eq!(one::<i64>(&store, DOUBTED), 0);
    let open = "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NULL";
    assert_eq!(one::<i64>(&store, &format!("{open} AND scope = ''")), 1);
    drop(store);
    // A whole listing without such a row is what mends it.
    assert_mended(&world);
    assert_eq!(one::<i64>(&world.store(), open), 0);
}

#[test]
fn an_id_twice_on_a_page_is_one_case() {
    let world = mirrored(8);
    let mut rows = property_rows(&world, None);
    let count = rows.len();
    rows.insert(3, rows[3].clone());
    // Only different records are counted.
    let page = json!({ "Count": count, "Results": rows }).to_string();
    world.sandbox.fault(fault(&search_path("Property"), Some(1), garbage(&page)));
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
    let doubled = "SELECT count(*) FROM (SELECT table_name, id, part FROM sync.fetched GROUP BY ALL \
                   HAVING count(*) > 1)";
    assert_eq!(one::<i64>(&world.store(), doubled), 0);
}

#[test]
fn a_404_of_one_cost_type_removes_its_rows_the_second_time_and_none_of_the_other() {
    let world = mirrored(12);
    world.doubt("0s");
    let both = "SELECT case_id FROM costs GROUP BY case_id HAVING count(DISTINCT cost_type) = 2 \
                ORDER BY case_id LIMIT 1";
    let case_id: i64 = one(&world.store(), both);
    let of_type = |cost_type: &str| {
        let rows = "SELECT count(*) FROM main.costs WHERE case_id";
        one::<i64>(&world.store(), &format!("{rows} = {case_id} AND cost_type = '{cost_type}'"))
    };
    let sellers = of_type("Seller");
    let path = format!("/api/Conditions/Cases/{case_id}/Costs/Seller");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    change(&world, case_id, Facet::Cost); // a buyer's
    assert_incomplete(&world.run(&["sync"]), "costs");
    let mut wrong = world.differences();
    wrong.retain(|difference| difference.starts_with("costs "));
    assert_eq!((wrong, of_type("Seller")), (vec![], sellers));

    let buyers = of_type("Buyer");
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!((of_type("Seller"), of_type("Buyer")), (0, buyers));
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

#[test]
fn a_404_of_one_cost_type_removes_its_rows_though_they_are_most_of_many() {
    let world = mirrored(3);
    world.doubt("0s");
    let case_id = shown_cases(&world)[0];
    let count = |cost_type: &str| -> i64 {
        let rows = "SELECT count(*) FROM main.costs WHERE case_id";
        one(&world.store(), &format!("{rows} = {case_id} AND cost_type = '{cost_type}'"))
    };
    let path = |cost_type: &str| format!("/api/Conditions/Cases/{case_id}/Costs/{cost_type}");
    let costs = |cost_type: &str, ids: std::ops::Range<i64>| {
        let costs: Vec<Value> = ids.map(|id| json!({ "Id": id, "Name": "Cost" })).collect();
        world.sandbox.fault(fault(&path(cost_type), None, garbage(&json!(costs).to_string())));
    };
    costs("Buyer", 900_000..900_005);
    costs("Seller", 910_000..910_025);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!((count("Buyer"), count("Seller")), (5, 25));

    world.sandbox.clear_faults();
    costs("Buyer", 900_000..900_005);
    world.sandbox.fault(fault(&path("Seller"), None, refuse(404)));
    // Half of the answer is doubted first, and then that most of the case's costs would leave.
    for _ in 0..2 {
        assert_incomplete(&world.run(&["sync", "--full"]), "costs");
        assert_eq!((count("Buyer"), count("Seller")), (5, 25));
    }
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!((count("Buyer"), count("Seller")), (5, 0));
}

#[test]
fn notes_stay_when_their_permission_goes_between_two_readings_of_the_permissions() {
    let world = mirrored(30);
    let economics = "FROM main.notes WHERE note_type = 'Economics'";
    let case_id: i64 = one(&world.store(), &format!("SELECT min(case_id) {economics}"));
    let rows = || one::<i64>(&world.store(), &format!("SELECT count(*) {economics}"));
    let before = rows();
    let permission = "SettlementView - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission: permission.clone() });
    change(&world, case_id, Facet::Activity);
    world.sync();
    assert_eq!(rows(), before, "what we may not see is not gone");
    let reason = "SELECT reason FROM sync.resources WHERE table_name = 'notes'";
    assert!(one::<String>(&world.store(), reason).contains(&permission));
    // Nor is it where nobody tells.
    world.sandbox.fault(fault("/api/User/ApiPermissions", None, refuse(500)));
    change(&world, case_id, Facet::Activity);
    world.sync();
    assert_eq!(rows(), before);
}

#[test]
fn a_permission_that_was_granted_before_a_call_was_sent_says_nothing_of_its_answer() {
    let world = mirrored(30);
    let economics = "FROM main.notes WHERE note_type = 'Economics'";
    let rows =
        || one::<i64>(&world.store(), &format!("SELECT count(DISTINCT case_id) {economics}"));
    let before = rows();
    let of =
        |order: &str| one::<i64>(&world.store(), &format!("SELECT {order}(case_id) {economics}"));
    let cases = [of("min"), of("max")];
    assert_ne!(cases[0], cases[1]);
    for case_id in cases {
        change(&world, case_id, Facet::Activity);
        let notes = format!("/api/Notes/Case/{case_id}");
        world.sandbox.fault(fault(&notes, None, garbage("[]")));
    }
    // Granted when the first case lacks them, and not any more when the second does.
    let withdrawn = fault("/api/User/ApiPermissions", None, garbage("[]"));
    world.sandbox.fault(Rule { nth: 2, ..withdrawn });
    assert_status(&world.run(&["sync", "--set", "limits.concurrency=1"]), 0);
    assert_eq!(rows(), before - 1);
}

/// Fields that are not set may be left out: of a record of which one column is known, all else shows what it is.
#[test]
fn a_part_of_a_record_of_which_the_part_is_not_set_is_no_failure() {
    let world = World::unthrottled(4);
    let case_id = world.sandbox.case_ids()[0];
    let path = format!("/api/Properties/{case_id}/Conditions");
    world.sandbox.fault(fault(&path, None, garbage("{\"Debt\": 125000.5}")));
    world.sync();
    let row = format!(
        "SELECT count(*) FROM case_conditions WHERE case_id = {case_id} AND asking_price IS NULL"
    );
    assert_eq!(one::<i64>(&world.published(), &row), 1);
    let unknown = format!(
        "SELECT list_contains(unknown, 'asking_price') FROM report.total_cost WHERE case_id = {case_id}"
    );
    assert!(!one::<bool>(&world.published(), &unknown));
    world.sandbox.clear_faults();
    world.sandbox.fault(fault(&path, None, garbage("{\"Message\": \"x\"}")));
    assert_incomplete(
        &world.run(&["sync", "--full", "--only", "case_conditions"]),
        "case_conditions",
    );
    assert_eq!(one::<i64>(&world.published(), &row), 1);
}

#[test]
fn a_cost_type_that_no_case_has_leaves_nothing_open() {
    let world = World::unthrottled(8);
    world.sandbox.fault(fault("/api/Conditions/Cases/*/Costs/Seller", None, refuse(404)));
    assert_status(&world.run(&["sync"]), 0);
    let unknown =
        "SELECT count(*) FROM report.total_cost WHERE list_contains(unknown, 'buyer_costs')";
    assert_eq!(one::<i64>(&world.store(), unknown), 0);
}

#[test]
fn a_contacts_feed_that_fails_does_not_keep_cases_from_being_followed() {
    let world = mirrored(8);
    change(&world, shown_cases(&world)[3], Facet::Activity);
    world.sandbox.act(&Act::EditContact { contact_id: None, at: None }).unwrap();
    world.sandbox.fault(fault(CONTACTS_FEED, None, refuse(400)));
    let output = world.run(&["sync"]);
    assert_incomplete(&output, "the change feed (contacts)");
    assert_eq!(differences_beside(&world, "contacts"), [""; 0]);
    world.sandbox.clear_faults();
    world.sync();
    world.assert_equal();
}

#[test]
fn a_contacts_feed_that_fails_at_night_stops_neither_lists_nor_journals_nor_cases() {
    let world = mirrored(8);
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch("UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name <> 'verify'")
        .unwrap();
    change(&world, shown_cases(&world)[3], Facet::Activity);
    world.sandbox.fault(fault(CONTACTS_FEED, None, refuse(400)));
    let output = world.run(&["sync"]);
    assert_incomplete(&output, "the change feed (contacts)");
    assert_eq!(differences_beside(&world, "contacts"), [""; 0]);
    let due = "SELECT string_agg(name, ',') FROM sync.schedules WHERE last_run < '2026-02-01' \
               AND name <> 'verify'";
    assert_eq!(one::<Option<String>>(&world.store(), due), None);
}

#[test]
fn a_scope_that_fails_is_tried_once_in_a_run() {
    // It waits for the search in the end, and goes through what is stale again.
    let world = World::unthrottled(20);
    world.sandbox.fault(fault("/api/Notes/Case/*0", None, refuse(400)));
    assert_status(&world.run(&["sync"]), 3);
    let asked = calls(&world);
    let notes: Vec<_> = asked.iter().filter(|(call, _)| call.contains("/Notes/Case/")).collect();
    assert!(notes.iter().any(|(call, _)| call.ends_with('0')), "{asked:?}");
    assert!(notes.iter().all(|(_, times)| **times == 1), "{notes:?}");
}

#[test]
fn what_the_brake_held_is_looked_at_again_in_the_next_run() {
    let world = mirrored(40);
    // So long ago that it is due, and, once it has run, not again today.
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch("UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'")
        .unwrap();
    world.sandbox.control(Control::SearchListsNothing { on: true });
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("reconcile.max_removed"), "{}", shown(&output));
    world.sandbox.control(Control::SearchListsNothing { on: false });
    let listing = format!("POST {}", search_path("Property"));
    for listings in [1, 0] {
        world.sandbox.reset_stats();
        world.sync();
        assert_eq!(calls(&world).get(&listing).copied().unwrap_or(0), listings);
    }
    world.assert_equal();
}

#[test]
fn a_list_that_the_brake_held_waits_for_its_backoff_unless_the_brake_is_lifted() {
    let world = mirrored(8);
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch("UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reference'")
        .unwrap();
    world.sandbox.fault(fault("/api/Employees", None, garbage("[]")));
    assert_incomplete(&world.run(&["sync"]), "employees");
    let waits = "SELECT count(*) FROM sync.failures WHERE table_name = 'employees' AND kind = 'Held' \
                 AND next_at > first_at";
    assert_eq!(one::<i64>(&world.store(), waits), 1);
    let employees = || one::<i64>(&world.store(), "SELECT count(*) FROM main.employees");
    assert!(employees() > 0);
    // So long that it would not be asked for now.
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(IN_TWENTY_HOURS)
        .unwrap();
    world.sandbox.reset_stats();
    assert_status(&world.run(&["sync"]), 3);
    assert!(!calls(&world).contains_key("GET /api/Employees"), "{:?}", calls(&world));
    world.run(&["sync", "--allow-removals"]);
    assert_eq!(employees(), 0);
}

#[test]
fn a_date_in_the_future_does_not_hide_later_changes_from_a_service_without_a_clock() {
    let world = mirrored(8);
    let case_id = shown_cases(&world)[3];
    let path = format!("{CASES_FEED}?$top=1000");
    let feed = Integrator::log_in(&world).call("GET", &path, &Value::Null);
    let mut row = feed.as_array().unwrap().iter().find(|r| r["CaseId"] == case_id).unwrap().clone();
    row["ModifiedDate"] = json!("2099-01-01T00:00:00Z");
    world.sandbox.fault(fault(CASES_FEED, None, undated(&json!([row]))));
    world.run(&["sync"]);
    world.sandbox.clear_faults();
    change(&world, case_id, Facet::Activity);
    world.sync();
    world.assert_equal();
}
