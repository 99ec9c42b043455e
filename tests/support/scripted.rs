//! Answers that the sandbox gives because a test has written them.

use std::collections::HashMap;
use std::process::Output;

use casemirror::sandbox::{Fault, Rule};
use serde_json::{Value, json};

use super::follow::{Integrator, assert_status};
use super::{World, shown};

/// This happens to so many calls to a path; to all where `count` is `None`.
pub(crate) fn fault(path: &str, count: Option<u64>, fault: Fault) -> Rule {
    Rule { method: None, path: path.to_owned(), query: None, nth: 1, count, fault }
}

/// A body in place of the right one.
pub(crate) fn garbage(body: &str) -> Fault {
    Fault::Garbage { body: body.to_owned(), status: None, content_type: None }
}

/// A status without a body.
pub(crate) fn refuse(status: u16) -> Fault {
    Fault::Refuse { status, headers: [].into(), body: String::new() }
}

/// A refusal of the token from the `nth` call to a path on, which ends a run that would never end.
pub(crate) fn end_the_run_at(path: &str, nth: u64) -> Rule {
    Rule { nth, ..fault(path, None, refuse(401)) }
}

/// A feed's rows, in an answer whose `Date` nobody can read.
pub(crate) fn undated(rows: &Value) -> Fault {
    let headers = [("Date", "now"), ("Content-Type", "application/json")];
    let headers: HashMap<String, String> =
        headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Fault::Refuse { status: 200, headers, body: rows.to_string() }
}

/// `AdvancedPropertySearch` and its two sisters.
pub(crate) fn search_path(of: &str) -> String {
    format!("/api/Search/Advanced{of}Search")
}

/// The records that the property search shows now: all, or those of one case.
pub(crate) fn property_rows(world: &World, case_id: Option<i64>) -> Vec<Value> {
    // Not in the words of the client, whose searches are scripted.
    let filter = case_id
        .map_or(String::new(), |id| format!("$filter=Id%20ge%20{id}%20and%20Id%20le%20{id}&"));
    let path = format!("{}?{filter}$top=1000", search_path("Property"));
    let answer = Integrator::log_in(world).call("POST", &path, &Value::Null);
    answer.as_array().unwrap().clone()
}

/// Makes a search by this case's id answer with these records.
pub(crate) fn script_search(world: &World, of: &str, case_id: i64, records: &[Value]) {
    let rule = fault(&search_path(of), None, garbage(&page(records)));
    world.sandbox.fault(Rule { query: Some(format!("Id eq {case_id}")), ..rule });
}

/// A search row that does not say whose it is.
pub(crate) fn without_id(row: &Value) -> Value {
    let mut row = row.clone();
    for field in ["Id", "CaseId"] {
        row.as_object_mut().unwrap().remove(field);
    }
    row
}

/// A page as the searches answer where the count was asked for.
pub(crate) fn page(records: &[Value]) -> String {
    json!({ "Count": records.len(), "Results": records }).to_string()
}

/// Asserts that a run ended incomplete and names the table on stdout.
#[track_caller]
pub(crate) fn assert_incomplete(output: &Output, table: &str) {
    assert_status(output, 3);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("incomplete: {table}")), "{}", shown(output));
}

/// A failed scope is tried again after a while; `--full` does not wait for it.
#[track_caller]
pub(crate) fn assert_mended(world: &World) {
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}
