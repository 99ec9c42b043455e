//! Offices, employees, and what hangs on no case.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::super::record::Value;
use super::super::records::{economy, staff};
use super::super::world::World;
use super::super::world::definitions::CATEGORIES;

/// Their tables.
pub(crate) const TABLES: &[&str] = &[
    "offices",
    "employees",
    "employee_offices",
    "accounts",
    "entry_definitions",
    "extended_entry_definitions",
];

/// All their rows, by table. Where the platform lists no offices, a mirror knows those that
/// somebody belongs to, and of them what the affiliations say.
pub(crate) fn of_offices(world: &World, lists_offices: bool) -> Vec<(&'static str, Vec<Json>)> {
    let mut affiliations = Vec::new();
    for employee in world.employees() {
        let mut times = BTreeMap::new();
        for place in &employee.affiliations {
            let Some(office) = world.office(place.office) else { continue };
            // A second time at the same office has the next number.
            let n: &mut i64 = times.entry(place.office).or_default();
            *n += 1;
            let keys = [("employee_id", Value::Int(employee.id)), ("affiliation", Value::Int(*n))];
            affiliations.push(staff::affiliation(employee, place, office).canonical(&keys));
        }
    }
    let somebody_is_at = |id: i64| {
        world.employees().any(|one| one.affiliations.iter().any(|place| place.office == id))
    };
    let offices = if lists_offices {
        world.offices().map(|office| staff::office(office).canonical(&[])).collect()
    } else {
        let known = world.offices().filter(|office| somebody_is_at(office.id));
        known.map(|office| staff::office_of_affiliations(office).canonical(&[])).collect()
    };
    let accounts = world.offices().flat_map(|office| {
        let keys = [("office_id", Value::Int(office.id))];
        let accounts = office.accounts.iter();
        accounts.map(move |account| staff::account(office, account).canonical(&keys))
    });
    let definitions = CATEGORIES.iter().flat_map(|category| {
        let keys = [("case_category", Value::from(*category))];
        let listed = world.definitions.iter().filter(|one| !one.deleted && one.is_for(category));
        listed.map(move |one| economy::definition(one).canonical(&keys))
    });
    let extended =
        world.definitions.iter().map(|one| economy::extended_definition(one).canonical(&[]));
    vec![
        ("offices", offices),
        ("employees", world.employees().map(|e| staff::employee(e).canonical(&[])).collect()),
        ("employee_offices", affiliations),
        ("accounts", accounts.collect()),
        ("entry_definitions", definitions.collect()),
        ("extended_entry_definitions", extended.collect()),
    ]
}
