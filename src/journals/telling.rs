//! What of a line says which line it is (pure).
//!
//! The fields of its table, and of its annotations in whatever order: not the fields that no column takes,
//! nor those that move by themselves. That is what the mirror compares lines by (`mirror/lines.rs`), told of
//! their texts: two texts of one value, such as `1.0` and `1.00`, are two.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::part::{LineMark, Part};
use crate::catalog::{Group, Origin, Resource};
use crate::source::split::fingerprint_of_value;

type Fields<'r> = BTreeMap<String, &'r RawValue>;

/// The telling fields of a journal.
pub(super) struct Telling {
    fields: Paths,
    /// Of each list that is read with the lines.
    lists: Vec<(String, Paths)>,
}

/// Fields, each by its path from the record on.
struct Paths(Vec<Vec<String>>);

impl Telling {
    /// Of a table and of those that are read of lists in its records.
    pub(super) fn of<'r>(
        lines: &Resource,
        children: impl IntoIterator<Item = &'r Resource>,
    ) -> Telling {
        let lists = children.into_iter().filter_map(|child| match &child.group {
            Group::Child(of) => Some((of.field.clone(), Paths::of(child))),
            _ => None,
        });
        Telling { fields: Paths::of(lines), lists: lists.collect() }
    }

    /// One mark of each line of these parts, in order of the marks: of one and the same within this process.
    pub(super) fn marks(&self, parts: &[Part]) -> Vec<LineMark> {
        let lines = parts.iter().flat_map(|part| &part.records);
        let mut marks: Vec<LineMark> = lines.map(|line| self.mark(line)).collect();
        marks.sort_unstable();
        marks
    }

    fn mark(&self, line: &[u8]) -> LineMark {
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(line) else {
            return Sha256::digest(line).into();
        };
        let mut hash = Sha256::new();
        self.fields.hash(&fields, &mut hash);
        for (field, paths) in &self.lists {
            let mut elements = fields.get(field).map_or(Vec::new(), |list| paths.marks(list.get()));
            elements.sort_unstable();
            hash.update(elements.len().to_le_bytes());
            elements.iter().for_each(|element| hash.update(element));
        }
        hash.finalize().into()
    }
}

impl Paths {
    fn of(resource: &Resource) -> Paths {
        let fields = resource.columns.iter().filter(|c| c.origin == Origin::Field && !c.volatile);
        Paths(fields.map(|column| column.path.clone()).collect())
    }

    /// Of each element of a list; what is none, or no record, is what is written.
    fn marks(&self, list: &str) -> Vec<LineMark> {
        let written = |text: &str| {
            let mut hash = Sha256::new();
            hash.update(fingerprint_of_value(text).to_le_bytes());
            LineMark::from(hash.finalize())
        };
        match serde_json::from_str::<Option<Vec<&RawValue>>>(list) {
            Ok(elements) => elements
                .into_iter()
                .flatten()
                .map(|element| {
                    let Ok(fields) = serde_json::from_str::<Fields<'_>>(element.get()) else {
                        return written(element.get());
                    };
                    let mut hash = Sha256::new();
                    self.hash(&fields, &mut hash);
                    hash.finalize().into()
                })
                .collect(),
            Err(_) => vec![written(list)],
        }
    }

    /// A field that is not there is one without a value.
    fn hash(&self, fields: &Fields<'_>, hash: &mut Sha256) {
        for path in &self.0 {
            match value_at(fields, path).filter(|value| *value != "null") {
                None => hash.update([0]),
                Some(value) => {
                    hash.update([1]);
                    hash.update(fingerprint_of_value(value).to_le_bytes());
                }
            }
        }
    }
}

fn value_at<'r>(fields: &Fields<'r>, path: &[String]) -> Option<&'r str> {
    let (first, rest) = path.split_first()?;
    let value = fields.get(first)?.get();
    if rest.is_empty() {
        return Some(value);
    }
    match serde_json::from_str::<Fields<'r>>(value) {
        Ok(inner) => value_at(&inner, rest),
        // What is no object says something else than one that lacks the field.
        Err(_) => Some(value),
    }
}
