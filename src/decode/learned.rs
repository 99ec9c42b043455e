//! What is learned of a person who is forgotten when a row about the person comes: the texts that tell of it, which are
//! to be kept out of all other rows too (docs/architecture.md, "Forgetting"). They live in memory, on their way to the
//! commit that puts their hashes on the list, and are shown nowhere.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value as Json;

use super::Forgotten;
use super::record::{Cell, Row};
use super::value::Value;
use crate::catalog::{Class, Column, Resource, class_of_name};

/// A text of a person that may tell of it wherever it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Telling {
    pub(crate) text: String,
    /// Of its column or field; a name has none.
    pub(crate) class: Option<Class>,
}

impl fmt::Debug for Telling {
    /// Nothing of what it says: whoever is told of it is not to read it in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").field("class", &self.class).finish_non_exhaustive()
    }
}

impl Telling {
    /// One in a column that tells of the person.
    pub(crate) fn of(text: String, resource: &Resource, column: &Column) -> Telling {
        // A name may have a class in a table of one's own.
        let class = column.class.filter(|_| !resource.is_name_of_person(column));
        Telling { text, class }
    }

    /// Those in JSON of `_extra`: of fields whose name has a class, and of what is within them.
    pub(crate) fn in_extra(value: &Json, class: Option<Class>, to: &mut BTreeSet<Telling>) {
        let mut add = |text: String| {
            to.insert(Telling { text, class });
        };
        match value {
            Json::Object(fields) => {
                for (name, value) in fields {
                    Telling::in_extra(value, class.or_else(|| class_of_name(name)), to);
                }
            }
            Json::Array(items) => items.iter().for_each(|item| Telling::in_extra(item, class, to)),
            Json::String(text) if class.is_some() => add(text.clone()),
            Json::Number(number) if class.is_some() => add(number.to_string()),
            _ => {}
        }
    }

    /// Those of a row about a person.
    fn of_row(row: &Row<'_>, resource: &Resource) -> BTreeSet<Telling> {
        let mut all = BTreeSet::new();
        let told = row.cells.iter().zip(&resource.columns);
        for (cell, column) in told.filter(|(_, column)| resource.tells_of_person(column)) {
            let mut add = |value: &Value<'_>| {
                if let Value::Text(text) = value {
                    all.insert(Telling::of(text.as_ref().to_owned(), resource, column));
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
                Telling::in_extra(&value, class_of_name(name), &mut all);
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
        texts.retain(|Telling { text, class }| {
            list.entries_of(text, *class).iter().any(|entry| !list.has(*entry))
        });
        (!texts.is_empty()).then(|| Learned { table: resource.table.clone(), contact, texts })
    }
}
