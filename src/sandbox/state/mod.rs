//! The sandbox's own truth, as a mirror has to hold it: every table as canonical cells.
//!
//! Permissions do not matter here: what a mirror may not read, it cannot be compared with. Cases
//! that the search hides are left out of `cases` and `projects`; everything else of theirs is there.

mod journals;
mod of_case;
mod of_offices;

use serde_json::{Map, Value as Json, json};

use super::Shared;
use super::record::{Record, Value};
use super::records::{case_row, contact};
use super::world::Handle;
use super::world::journals::{Level, Month};

/// All tables, in the order in which they are listed here.
const TABLES: &[&str] = &[
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
    "estimated_costs",
    "commission_sharing",
    "offices",
    "employees",
    "employee_offices",
    "accounts",
    "entry_definitions",
    "extended_entry_definitions",
    "case_journals",
    "case_journal_annotations",
    "depot_journals",
    "revenue_journals",
    "revenue_journal_annotations",
    "revenue_journal_sums",
    "settlement_journals",
];

/// Which part of the state is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// None: all tables.
    pub tables: Option<&'a [&'a str]>,
    /// Whose journals.
    pub level: Level,
    /// The first month of the journals; None: the first there is.
    pub since: Option<Month>,
}

impl Wanted<'_> {
    /// All tables, journals of the offices.
    pub fn all() -> Wanted<'static> {
        Wanted { tables: None, level: Level::Offices, since: None }
    }

    fn has(&self, table: &str) -> bool {
        self.tables.is_none_or(|list| list.contains(&table))
    }
}

/// `{"tables": {"<table>": [{"<column>": <cell>}]}}`.
pub fn state(shared: &Shared, wanted: Wanted<'_>) -> Json {
    let mut tables: Map<String, Json> = Map::new();
    for table in TABLES.iter().filter(|table| wanted.has(table)) {
        tables.insert((*table).to_owned(), Json::Array(Vec::new()));
    }
    let mut put = |table: &str, rows: Vec<Json>| {
        if let Some(Json::Array(list)) = tables.get_mut(table) {
            list.extend(rows);
        }
    };
    let (basis, cases, contacts, offices, journals) = {
        let world = shared.world();
        let contacts: Vec<_> =
            world.contact_ids().into_iter().filter_map(|id| world.contact(id)).collect();
        let cases: Vec<(Handle, bool)> = world.cases().collect();
        let offices = of_offices::of_offices(&world, shared.options.lists_offices);
        let journals = journals::Snapshot::take(&world, wanted.level);
        (world.basis.clone(), cases, contacts, offices, journals)
    };
    for (handle, hidden) in cases {
        let case = handle.case(&basis);
        if !hidden {
            let table = if case.facts.project { "projects" } else { "cases" };
            if wanted.has(table) {
                put(table, vec![case_row::search_row(&basis, &case).canonical(&[])]);
            }
        }
        for (table, rows) in of_case::of_case(&basis, &case) {
            put(table, rows);
        }
    }
    if wanted.has("contacts") {
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
    for (table, rows) in offices {
        put(table, rows);
    }
    journals.rows(wanted, &mut put);
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
