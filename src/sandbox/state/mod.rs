//! The sandbox's own truth, as a mirror has to hold it: every table as canonical cells.
//!
//! Permissions do not matter here: what a mirror may not read, it cannot be compared with. Cases
//! that the search hides are left out of `cases` and `projects`; everything else of theirs is there.

mod journals;
mod of_case;
mod of_offices;
mod of_registers;

use serde_json::{Map, Value as Json, json};

use super::Shared;
use super::api::user;
use super::record::{Record, Value};
use super::records::{case_row, contact};
use super::world::Handle;
use super::world::journals::{Level, Month};

/// The tables that searches fill.
const SEARCHED: &[&str] = &["cases", "projects", "contacts"];

/// Which part of the state is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// None: all tables.
    pub(crate) tables: Option<&'a [&'a str]>,
    /// Whose journals.
    pub(crate) level: Level,
    /// The first month of the journals; None: the first there is.
    pub(crate) since: Option<Month>,
}

impl Wanted<'_> {
    /// All tables, journals of the offices.
    pub(crate) fn all() -> Wanted<'static> {
        Wanted { tables: None, level: Level::Offices, since: None }
    }

    fn any(&self, tables: &[&str]) -> bool {
        tables.iter().any(|table| self.has(table))
    }

    fn has(&self, table: &str) -> bool {
        self.tables.is_none_or(|list| list.contains(&table))
    }
}

/// `{"tables": {"<table>": [{"<column>": <cell>}]}}`.
pub(crate) fn state(shared: &Shared, wanted: Wanted<'_>) -> Json {
    let mut tables: Map<String, Json> = Map::new();
    let groups =
        [SEARCHED, of_case::TABLES, of_offices::TABLES, of_registers::TABLES, journals::TABLES];
    for table in groups.concat().into_iter().filter(|table| wanted.has(table)) {
        tables.insert(table.to_owned(), Json::Array(Vec::new()));
    }
    let mut put = |table: &str, rows: Vec<Json>| {
        if let Some(Json::Array(list)) = tables.get_mut(table) {
            list.extend(rows);
        }
    };
    let permissions = user::by_area(shared);
    let (basis, cases, contacts, lists, journals, now) = {
        let world = shared.world();
        let contacts: Vec<_> =
            world.contact_ids().into_iter().filter_map(|id| world.contact(id)).collect();
        let cases: Vec<(Handle, bool)> = world.cases().collect();
        let mut lists = Vec::new();
        if wanted.any(of_offices::TABLES) {
            lists = of_offices::of_offices(&world, shared.options.lists_offices);
        }
        if wanted.any(of_registers::TABLES) {
            lists.extend(of_registers::of_registers(&world, &permissions));
        }
        let journals = journals::Snapshot::take(&world, wanted.level);
        (world.basis.clone(), cases, contacts, lists, journals, world.now())
    };
    let of_cases = wanted.any(&["cases", "projects"]) || wanted.any(of_case::TABLES);
    for (handle, hidden) in cases.into_iter().filter(|_| of_cases) {
        let case = handle.case(&basis);
        if !hidden {
            let table = if case.facts.project { "projects" } else { "cases" };
            if wanted.has(table) {
                put(table, vec![case_row::search_row(&basis, &case).canonical(&[])]);
            }
        }
        of_case::rows(&basis, &case, now, wanted, &mut put);
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
    for (table, rows) in lists {
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
