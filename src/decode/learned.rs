//! What is learned of a person who is forgotten when a row about the person comes: the texts that tell of it, which are
//! to be kept out of all other rows too (docs/architecture.md, "Forgetting"). They live in memory, on their way to the
//! commit that puts their hashes on the list, and are shown nowhere.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value as Json;

use super::Forgotten;
use super::record::{Cell, Row};
use super::value::Value;
use crate::catalog::{Resource, class_of_name};

/// A text of a person that may tell of it wherever it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Telling {
    pub(crate) text: String,
    pub(crate) is_name: bool,
}

impl fmt::Debug for Telling {
    /// Nothing of what it says: whoever is told of it is not to read it in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").field("is_name", &self.is_name).finish_non_exhaustive()
    }
}

impl Telling {
    /// Those in JSON of `_extra`: of fields whose name has a class, and of what is within them.
    pub(crate) fn in_extra(value: &Json, is_classed: bool, to: &mut BTreeSet<Telling>) {
        let mut add = |text: String| {
            to.insert(Telling { text, is_name: false });
        };
        match value {
            Json::Object(fields) => {
                for (name, value) in fields {
                    let is_classed = is_classed || class_of_name(name).is_some();
                    Telling::in_extra(value, is_classed, to);
                }
            }
            Json::Array(items) => {
                items.iter().for_each(|item| Telling::in_extra(item, is_classed, to));
            }
            Json::String(text) if is_classed => add(text.clone()),
            Json::Number(number) if is_classed => add(number.to_string()),
            _ => {}
        }
    }

    /// Those of a row about a person.
    fn of_row(row: &Row<'_>, resource: &Resource) -> BTreeSet<Telling> {
        let mut all = BTreeSet::new();
        let told = row.cells.iter().zip(&resource.columns);
        for (cell, column) in told.filter(|(_, column)| resource.tells_of_person(column)) {
            let is_name = resource.is_name_of_person(column);
            let mut add = |value: &Value<'_>| {
                if let Value::Text(text) = value {
                    all.insert(Telling { text: text.as_ref().to_owned(), is_name });
                }
            };
            match cell {
                Cell::Null => {}
                Cell::One(value) => add(value),
                Cell::List(items) => items.iter().flatten().for_each(add),
            }
        }
        for (name, text) in &row.extra {
            if let Ok(value) = serde_json::from_str(text) {
                Telling::in_extra(&value, class_of_name(name).is_some(), &mut all);
            }
        }
        all
    }
}

/// Texts of a forgotten person that the list of what is kept out did not have yet.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    /// The table of the row that said them.
    pub(crate) table: String,
    pub(crate) contact: i64,
    pub(crate) texts: BTreeSet<Telling>,
}

impl Learned {
    /// What a row about this person says that is not on the list; `None` where all of it is, or tells too little.
    pub(super) fn of(
        row: &Row<'_>,
        resource: &Resource,
        contact: i64,
        list: &Forgotten,
    ) -> Option<Learned> {
        let mut texts = Telling::of_row(row, resource);
        texts.retain(|Telling { text, is_name }| {
            list.entries_of(text, *is_name).iter().any(|entry| !list.has(*entry))
        });
        (!texts.is_empty()).then(|| Learned { table: resource.table.clone(), contact, texts })
    }
}
