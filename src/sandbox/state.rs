//! The sandbox's own truth, as a mirror has to hold it: every table as canonical cells.
//!
//! Permissions do not matter here: what a mirror may not read, it cannot be compared with. Cases
//! that the search hides are left out of `cases` and `projects`; everything else of theirs is there.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::Shared;
use super::record::{Record, Value};
use super::records::{bookkeeping, case_row, conditions, contact, on_case, staff};
use super::wire;
use super::world::Handle;
use super::world::case::Case;
use super::world::people::Basis;

/// All tables, in the order in which they are listed here.
const TABLES: [&str; 15] = [
    "cases",
    "projects",
    "contacts",
    "case_roles",
    "activities",
    "costs",
    "document_costs",
    "common_conditions",
    "case_conditions",
    "property_conditions",
    "resale_information",
    "entries",
    "entry_drafts",
    "offices",
    "employees",
];

/// `{"tables": {"<table>": [{"<column>": <cell>}]}}`; `wanted` chooses tables.
pub fn state(shared: &Shared, wanted: Option<&[&str]>) -> Json {
    let (basis, cases, contacts, offices, employees): (Arc<Basis>, Vec<(Handle, bool)>, _, _, _) = {
        let world = shared.world();
        let contacts: Vec<_> =
            world.contact_ids().into_iter().filter_map(|id| world.contact(id)).collect();
        let offices: Vec<_> = world.offices().map(staff::office).collect();
        let employees: Vec<_> = world.employees().map(staff::employee).collect();
        (world.basis.clone(), world.cases().collect(), contacts, offices, employees)
    };
    let is_wanted = |table: &str| wanted.is_none_or(|list| list.contains(&table));
    let mut tables: Map<String, Json> = Map::new();
    for table in TABLES.into_iter().filter(|table| is_wanted(table)) {
        tables.insert(table.to_owned(), Json::Array(Vec::new()));
    }
    let mut put = |table: &str, rows: Vec<Json>| {
        if let Some(Json::Array(list)) = tables.get_mut(table) {
            list.extend(rows);
        }
    };
    for (handle, hidden) in cases {
        let case = handle.case(&basis);
        if !hidden {
            let table = if case.facts.project { "projects" } else { "cases" };
            if is_wanted(table) {
                put(table, vec![case_row::search_row(&basis, &case).canonical(&[])]);
            }
        }
        for (table, rows) in of_case(&case) {
            put(table, rows);
        }
    }
    if is_wanted("contacts") {
        let all_columns = contacts.first().map(|c| contact::search_row(&basis, c));
        for one in contacts {
            let row = if basis.is_unsearchable(one.id) {
                filled_up(&contact::looked_up(&basis, &one), all_columns.as_ref())
            } else {
                contact::search_row(&basis, &one).canonical(&[])
            };
            put("contacts", vec![row]);
        }
    }
    put("offices", offices.iter().map(|r| r.canonical(&[])).collect());
    put("employees", employees.iter().map(|r| r.canonical(&[])).collect());
    json!({ "tables": tables })
}

/// The row of a record that lacks some of the table's columns.
fn filled_up(record: &Record, all: Option<&Record>) -> Json {
    let mut whole = record.clone();
    for name in all.into_iter().flat_map(Record::names) {
        if record.get(name).is_none() {
            whole.put(name, Value::Null);
        }
    }
    whole.canonical(&[])
}

/// The rows of everything that hangs on a case.
fn of_case(case: &Case) -> Vec<(&'static str, Vec<Json>)> {
    let id = || ("case_id", Value::Int(case.id()));
    let plain = |record: Record| record.canonical(&[id()]);
    let mut costs = Vec::new();
    for (side, list) in [("Buyer", &case.buyer_costs), ("Seller", &case.seller_costs)] {
        for cost in list {
            let keys = [id(), ("cost_type", Value::from(side))];
            costs.push(bookkeeping::cost(case, cost).canonical(&keys));
        }
    }
    let document_cost = case.document_cost.map(
        |ore| json!({"case_id": case.id(), "amount": wire::canonical_money(ore), "_extra": null}),
    );
    let resale = case.resale.as_ref().filter(|_| case.is_resale());
    vec![
        ("case_roles", case.roles.iter().map(|r| plain(on_case::role(case, r))).collect()),
        ("activities", case.activities.iter().map(|a| plain(on_case::activity(case, a))).collect()),
        ("costs", costs),
        ("document_costs", document_cost.into_iter().collect()),
        (
            "common_conditions",
            case.common.iter().map(|common| plain(conditions::common(case, common))).collect(),
        ),
        ("case_conditions", vec![plain(conditions::of_case(case))]),
        ("property_conditions", vec![plain(conditions::of_property(case))]),
        ("resale_information", resale.into_iter().map(|r| plain(conditions::resale(r))).collect()),
        ("entries", case.entries.iter().map(|e| plain(bookkeeping::entry(case, e))).collect()),
        ("entry_drafts", case.drafts.iter().map(|d| plain(bookkeeping::draft(case, d))).collect()),
    ]
}
