//! The catalog: every table that is mirrored, as data.
//!
//! `schemas/*.toml` is the single source of a table's endpoint, paging, key, refresh rule, permission,
//! columns, types, comments, privacy class and volatility
//! (docs/architecture.md, "Resources are data"). The files are built into the binary;
//! `resources.dir` adds files or replaces built-in ones. From here come the Arrow schema that
//! answers are decoded into, the DDL, the data dictionary and the permission table.

mod check;
mod column;
mod ddl;
mod dictionary;
mod file;
mod known;
mod load;
mod names;
mod resource;
#[cfg(test)]
mod resources_page;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use column::{Class, Scalar};
pub(crate) use column::{Column, ColumnType, Cut, Origin};
pub(crate) use ddl::{EXTRA_COLUMN, SYNCED_AT_COLUMN, comment_on_column, comment_on_table};
pub(crate) use dictionary::{Age, Ages, Described, DictionaryFormat, Report};
pub(crate) use known::{is_known_field, is_known_name};
pub(crate) use names::class_of_name;
pub(crate) use resource::Person;
pub(crate) use resource::{
    Address, ChangeDate, Child, Condition, EVENTS, Fallback, ForEach, JOURNAL_COLUMNS, Journal,
    LINE_ID, LINE_NUMBER, Lookup, Method, Partial, Read, Refresh, Windows,
};
pub use resource::{Answer, Group, Paging, Resource};
pub(crate) use rows::{NotedRows, TABLE_ROWS, TableRows};

use crate::error::Result;

/// All tables, in the order in which they are listed to people: cases first, then by name.
#[derive(Debug, Clone)]
pub struct Catalog {
    resources: Vec<Arc<Resource>>,
    by_name: BTreeMap<String, usize>,
}

impl Catalog {
    /// The built-in tables, with those of `resources.dir` added or put in their place.
    ///
    /// # Errors
    /// `Kind::Config`, naming file and field, for whatever is wrong in a file: all of it at once.
    pub fn load(resources_dir: Option<&std::path::Path>) -> Result<Catalog> {
        load::load(resources_dir)
    }

    fn new(mut resources: Vec<Resource>) -> Catalog {
        resolve_scopes(&mut resources);
        resources.sort_by_key(|r| (r.table != "cases", r.table != "projects", r.table.clone()));
        Catalog::of(resources.into_iter().map(Arc::new).collect())
    }

    fn of(resources: Vec<Arc<Resource>>) -> Catalog {
        let by_name = resources.iter().enumerate().map(|(i, r)| (r.table.clone(), i)).collect();
        Catalog { resources, by_name }
    }

    /// The same with those tables alone for which `which` holds.
    pub(crate) fn only(&self, which: impl Fn(&Resource) -> bool) -> Catalog {
        let kept = self.resources.iter().filter(|resource| which(resource)).cloned();
        Catalog::of(kept.collect())
    }

    /// Every table.
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The table of this name.
    pub fn get(&self, table: &str) -> Option<&Arc<Resource>> {
        self.by_name.get(table).map(|i| &self.resources[*i])
    }

    /// The names of all tables.
    pub fn names(&self) -> Vec<&str> {
        self.resources.iter().map(|r| r.table.as_str()).collect()
    }

    /// The names of the journals' tables that are read for themselves: lines, and sums.
    pub(crate) fn journals(&self) -> Vec<String> {
        let journals = self.resources.iter().filter(|r| matches!(r.group, Group::Journal(_)));
        journals.map(|r| r.table.clone()).collect()
    }

    /// How many tables have to be read before this one: what it is read per row of, or may be taken
    /// from, and what those need.
    pub(crate) fn depth(&self, resource: &Resource) -> usize {
        let needs = match &resource.group {
            Group::ForEach(each) if each.list.is_none() => Some(each.table.as_str()),
            Group::ForEach(_) => None,
            Group::List => resource.fallback.as_ref().map(|instead| instead.table.as_str()),
            Group::Case | Group::Ids | Group::Child(_) | Group::Events | Group::Journal(_) => None,
        };
        needs.and_then(|table| self.get(table)).map_or(0, |other| 1 + self.depth(other))
    }

    /// The child tables that the answers of `table` carry.
    pub(crate) fn children<'a>(
        &'a self,
        table: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources
            .iter()
            .filter(move |r| matches!(&r.group, Group::Child(child) if child.table == table))
    }
}

/// Fills in by which column child tables, and the tables that `[condition]` and `[lookup]` look into, know a
/// scope.
fn resolve_scopes(resources: &mut [Resource]) {
    let of_parents: BTreeMap<String, String> = resources
        .iter()
        .filter_map(|r| Some((r.table.clone(), r.scope_column()?.to_owned())))
        .collect();
    for resource in resources.iter_mut() {
        let Group::Child(child) = &mut resource.group else { continue };
        let of_parent = of_parents.get(&child.table);
        let repeats = |c: &&Column| {
            c.origin == Origin::Parent && c.path.first().is_some_and(|name| Some(name) == of_parent)
        };
        child.scope = resource.columns.iter().find(repeats).map(|c| c.name.clone());
    }
    let scopes: BTreeMap<String, String> = resources
        .iter()
        .filter_map(|r| Some((r.table.clone(), r.scope_column()?.to_owned())))
        .collect();
    let scope_of = |table: &str| scopes.get(table).cloned().unwrap_or_default();
    for resource in resources {
        if let Some(only) = &mut resource.condition {
            only.scope = scope_of(&only.table);
        }
        for (table, scope) in resource.lookup.iter_mut().flat_map(|given| &mut given.tables) {
            *scope = scope_of(table);
        }
    }
}
