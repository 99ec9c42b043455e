//! By what the rows of a table are told apart, and which of their values move on their own: noted in the store, so that
//! whoever has what is published knows it without the resource files, which may be others by then.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Catalog, Group, Resource};

/// Key of `sync.meta`.
pub(crate) const TABLE_ROWS: &str = "table_rows";

/// What is noted of all tables, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NotedRows(BTreeMap<String, TableRows>);

/// What is noted of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableRows {
    pub(crate) key: Vec<String>,
    /// A value of the key may be missing: webhooks need not say which case, or when.
    pub(crate) has_gaps: bool,
    /// The column of the key that says whose a row is.
    pub(crate) scope: Option<String>,
    /// A row keeps its `_synced_at` when only these change.
    pub(crate) volatile: Vec<String>,
    /// Another text each time that the rest has changed: what was so before may have been otherwise in between, as what was
    /// published before this was noted.
    pub(crate) since: String,
}

impl TableRows {
    fn of(resource: &Resource, since: String) -> TableRows {
        let volatile = resource.columns.iter().filter(|column| column.volatile);
        TableRows {
            key: resource.key.clone(),
            has_gaps: resource.group == Group::Events,
            scope: resource.scope_in_key().map(str::to_owned),
            volatile: volatile.map(|column| column.name.clone()).collect(),
            since,
        }
    }

    /// Whether a resource file says the same.
    pub(crate) fn is_of(&self, resource: &Resource) -> bool {
        *self == TableRows::of(resource, self.since.clone())
    }
}

impl NotedRows {
    /// As the store has it; nothing where nothing is noted that can be read.
    pub(crate) fn parse(text: Option<&str>) -> Option<NotedRows> {
        text.and_then(|text| serde_json::from_str(text).ok())
    }

    /// What is to be noted after `before`. `new_since` gives a text that was never there.
    pub(crate) fn of(
        catalog: &Catalog,
        before: Option<&NotedRows>,
        new_since: impl Fn() -> String,
    ) -> NotedRows {
        let of = |resource: &Resource| {
            let noted = before.and_then(|NotedRows(before)| before.get(&resource.table));
            let same = noted.filter(|noted| noted.is_of(resource));
            same.cloned().unwrap_or_else(|| TableRows::of(resource, new_since()))
        };
        let all = catalog.resources().iter();
        NotedRows(all.map(|resource| (resource.table.clone(), of(resource))).collect())
    }

    /// As the store keeps it.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Of this table; `None` where no resource file described it.
    pub(crate) fn get(&self, table: &str) -> Option<&TableRows> {
        self.0.get(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_and_was_changed_back_is_not_what_it_was() {
        let catalog = Catalog::load(None).unwrap();
        let first = NotedRows::of(&catalog, None, || "one".to_owned());
        assert!(first.0.values().all(|rows| rows.since == "one"));
        assert_eq!(NotedRows::parse(Some(&first.text())), Some(first.clone()));
        let again = NotedRows::of(&catalog, Some(&first), || "two".to_owned());
        assert_eq!(again, first, "nothing has changed");
        let mut other = first.clone();
        let cases = other.0.get_mut("cases").unwrap();
        assert!(!cases.volatile.is_empty());
        cases.volatile.clear();
        other.0.remove("notes");
        let back = NotedRows::of(&catalog, Some(&other), || "three".to_owned());
        let since: Vec<(&str, &str)> = back
            .0
            .iter()
            .map(|(table, rows)| (table.as_str(), rows.since.as_str()))
            .filter(|(_, since)| *since != "one")
            .collect();
        assert_eq!(since, [("cases", "three"), ("notes", "three")]);
    }
}
