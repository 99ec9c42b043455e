//! One record on its way from its text to the cells of a row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::slots::{REST, Slot, Slots};
use super::value::{self, Value};
use super::{Cleared, Context, Forgotten, Privacy, canonical, cut};
use crate::catalog::{Class, ColumnType, Resource};
use crate::config::PrivacyMode;
use crate::text::{JsonText, wrong_type};

/// Reads the records of one table.
pub(super) struct Reader {
    pub(super) resource: Arc<Resource>,
    pub(super) context: Context,
    /// Who was forgotten when it was made.
    pub(super) forgotten: Arc<Forgotten>,
    pub(super) slots: Slots,
    /// The column that takes an element which is no object.
    pub(super) scalar_column: Option<usize>,
    /// Its records stand in lists of another table's, which what an answer is (`source/shape.rs`) does not look into.
    pub(super) is_child: bool,
    /// Columns that say what they say whoever is forgotten: keys, and names and details of others than who is.
    pub(super) stays: Vec<bool>,
}

/// What a record says.
pub(super) struct Row<'a> {
    /// One for each column.
    pub(super) cells: Vec<Cell<'a>>,
    /// Fields that no column takes and values that do not fit, for `_extra`.
    pub(super) extra: BTreeMap<String, String>,
    /// The column, the value under its privacy class, and why it does not fit.
    pub(super) faults: Vec<(usize, Option<String>, String)>,
    /// The lists of child tables: which of them, and its text.
    pub(super) lists: Vec<(usize, &'a str)>,
    /// Fields that no column takes, with an example under privacy.
    pub(super) drift: Vec<(String, Option<String>)>,
}

pub(super) enum Cell<'a> {
    Null,
    One(Value<'a>),
    List(Vec<Option<Value<'a>>>),
}

impl Row<'_> {
    /// Leaves nothing that is written of a person who is forgotten.
    pub(super) fn forget(&mut self, resource: &Resource) {
        for (cell, column) in self.cells.iter_mut().zip(&resource.columns) {
            if resource.goes_with_person(column) {
                *cell = Cell::Null;
            }
        }
        self.extra.clear();
        self.faults.iter_mut().for_each(|(_, value, _)| *value = None);
        self.drift.iter_mut().for_each(|(_, example)| *example = None);
    }

    /// A row of `resource` in which nothing is known.
    pub(super) fn empty(resource: &Resource) -> Self {
        Row {
            cells: resource.columns.iter().map(|_| Cell::Null).collect(),
            extra: BTreeMap::new(),
            faults: Vec::new(),
            lists: Vec::new(),
            drift: Vec::new(),
        }
    }
}

impl Reader {
    /// Reads `raw`, the text of one JSON value: an object, or a bare value where the table has a
    /// column for it.
    ///
    /// # Errors
    /// Why it is no record, in words for `sync.rejects` that repeat nothing of it.
    pub(super) fn read<'a>(&self, raw: &'a str) -> Result<Row<'a>, String> {
        let mut row = Row::empty(&self.resource);
        match (raw.as_bytes().first(), self.scalar_column) {
            (Some(b'{'), _) => {
                let mut names = Vec::new();
                let visitor = RecordVisitor { reader: self, row: &mut row, names: &mut names };
                serde_json::Deserializer::from_str(raw)
                    .deserialize_map(visitor)
                    .map_err(|_| "the record cannot be read (a broken escape)".to_owned())?;
                if let Some(name) = twice(&mut names) {
                    return Err(names_twice("a record", name));
                }
                if self.is_child && !names.iter().any(|name| self.slots.contains_key(&**name)) {
                    return Err("a record without any field of its table".to_owned());
                }
            }
            (Some(b'n'), _) | (_, None) => return Err(wrong_type("a record", raw)),
            (_, Some(i)) => {
                if let Some(text) = self.take_column(i, raw, &mut row) {
                    // A bare value has no field name: it is kept under its column's.
                    row.extra.insert(self.resource.columns[i].name.clone(), text);
                }
            }
        }
        Ok(row)
    }

    /// Takes a field of the record, or of an object within it; `outer` is the path to that object,
    /// with a dot behind it, and `extra` what of it no column takes.
    fn take<'a>(
        &self,
        (slots, outer): (&Slots, &str),
        name: &str,
        raw: &'a str,
        row: &mut Row<'a>,
        extra: &mut BTreeMap<String, String>,
    ) {
        // Of a name that stands twice the last value counts.
        extra.remove(name);
        match slots.get(name) {
            Some(Slot::Column(i)) => {
                if let Some(text) = self.take_column(*i, raw, row) {
                    extra.insert(name.to_owned(), text);
                }
            }
            Some(Slot::LeftOut) => {}
            Some(Slot::Child(i)) => {
                row.lists.retain(|(child, _)| child != i);
                row.lists.push((*i, raw));
            }
            Some(Slot::Nested(inner)) => {
                if let Some(text) = self.take_object((inner, outer), name, raw, row) {
                    extra.insert(name.to_owned(), text);
                }
            }
            // Of a record's field that is left out for its secrets it is noted that there is one, and no value.
            None if slots.contains_key(REST) => {
                if outer.is_empty() {
                    row.drift.push((name.to_owned(), None));
                }
            }
            None => {
                let shown = self.shown(Privacy::class_of_name(name), raw);
                if let Some(text) = &shown {
                    extra.insert(name.to_owned(), text.clone());
                }
                row.drift.push((format!("{outer}{name}"), shown));
            }
        }
    }

    /// Takes an object of which columns take parts; returns the rest of it for `_extra`.
    fn take_object<'a>(
        &self,
        (inner, outer): (&Slots, &str),
        name: &str,
        raw: &'a str,
        row: &mut Row<'a>,
    ) -> Option<String> {
        let columns = columns_of(inner);
        for i in &columns {
            row.cells[*i] = Cell::Null;
        }
        row.faults.retain(|(i, _, _)| !columns.contains(i));
        let fields = match raw.as_bytes().first() {
            Some(b'n') => return None,
            Some(b'{') => serde_json::Deserializer::from_str(raw)
                .deserialize_map(Fields)
                .map_err(|_| "not a readable object (a broken escape)".to_owned()),
            _ => Err(wrong_type("an object", raw)),
        };
        let fields = fields.and_then(|fields| {
            let mut names: Vec<_> = fields.iter().map(|(name, _)| name.clone()).collect();
            let fault = twice(&mut names).map(|name| names_twice("an object", name));
            fault.map_or(Ok(fields), Err)
        });
        match fields {
            Ok(fields) => {
                let mut rest = BTreeMap::new();
                let path = format!("{outer}{name}.");
                for (field, value) in fields {
                    self.take((inner, &path), &field, value.get(), row, &mut rest);
                }
                (!rest.is_empty()).then(|| {
                    let mut text = String::new();
                    let rest = self.forgotten.names_without(rest);
                    canonical::object(rest.into_iter(), &mut text);
                    text
                })
            }
            Err(error) => {
                // It may hold what any of its columns would.
                let classes = columns.iter().map(|i| self.resource.columns[*i].class);
                let classes = classes.chain([Privacy::class_of_name(name)]);
                let shown = self.shown(self.context.privacy.strictest(classes), raw);
                row.faults.extend(columns.iter().map(|i| (*i, shown.clone(), error.clone())));
                shown
            }
        }
    }

    /// Converts one field's value into its cell; what does not fit becomes a fault, and is returned
    /// for `_extra`.
    fn take_column<'a>(&self, i: usize, raw: &'a str, row: &mut Row<'a>) -> Option<String> {
        let column = &self.resource.columns[i];
        row.faults.retain(|(faulty, _, _)| *faulty != i);
        match self.cell(column.kind, column.class, raw) {
            Ok(cell) => {
                let cell = if self.stays[i] {
                    cell
                } else {
                    self.without_forgotten(cell, column.class.is_some())
                };
                row.cells[i] = match (column.cut, cell) {
                    (Some(cut), Cell::One(Value::Text(text))) => cut::cut(cut, &text)
                        .map_or(Cell::Null, |kept| Cell::One(Value::Text(kept.into()))),
                    (_, cell) => cell,
                };
                None
            }
            Err(error) => {
                row.cells[i] = Cell::Null;
                // Of a value that is no text it cannot be told what to leave out.
                let shown = self.shown(column.class, raw).filter(|_| column.cut.is_none());
                row.faults.push((i, shown.clone(), error));
                shown
            }
        }
    }

    fn cell<'a>(
        &self,
        kind: ColumnType,
        class: Option<Class>,
        raw: &'a str,
    ) -> Result<Cell<'a>, String> {
        let privacy = &self.context.privacy;
        let private = |value| match value {
            Some(Value::Text(text)) => privacy.text(class, text).map(Value::Text),
            other => other,
        };
        if !kind.list {
            let value = value::scalar(kind.scalar, raw, &self.context.zone)?;
            return Ok(private(value).map_or(Cell::Null, Cell::One));
        }
        if raw == "null" {
            return Ok(Cell::Null);
        }
        let items: Vec<&RawValue> =
            serde_json::from_str(raw).map_err(|_| wrong_type("a list", raw))?;
        let mut values = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            let value = value::scalar(kind.scalar, item.get(), &self.context.zone)
                .map_err(|e| format!("element {}: {e}", n + 1))?;
            values.push(private(value));
        }
        let dropped = self.context.privacy.mode(class) == PrivacyMode::Drop;
        Ok(if dropped { Cell::Null } else { Cell::List(values) })
    }

    /// A cell without texts of persons who are forgotten. The list is asked about what privacy has made of a text, which is
    /// all that `forget` finds in the store: asked before, it would take out what stays there.
    fn without_forgotten<'a>(&self, cell: Cell<'a>, is_classed: bool) -> Cell<'a> {
        let forgotten = &self.forgotten;
        if forgotten.is_empty() {
            return cell;
        }
        let without = |value: Value<'a>| match value {
            Value::Text(text) => match forgotten.clear_cell(&text, is_classed) {
                Cleared::Same => Some(Value::Text(text)),
                Cleared::Gone => None,
                Cleared::Without(rest) => Some(Value::Text(rest.into())),
            },
            other => Some(other),
        };
        match cell {
            Cell::Null => Cell::Null,
            Cell::One(value) => without(value).map_or(Cell::Null, Cell::One),
            Cell::List(items) => {
                Cell::List(items.into_iter().map(|item| item.and_then(without)).collect())
            }
        }
    }

    /// A value as `_extra`, rejects and drift show it; `None` where privacy drops it.
    fn shown(&self, class: Option<Class>, raw: &str) -> Option<String> {
        let privacy = &self.context.privacy;
        let shown = privacy.json(class, &canonical::canonical(raw, privacy))?;
        Some(self.forgotten.clear_json(&shown).unwrap_or(shown))
    }
}

/// The columns that take parts of an object.
fn columns_of(slots: &Slots) -> Vec<usize> {
    let mut all = Vec::new();
    for slot in slots.values() {
        match slot {
            Slot::Column(i) => all.push(*i),
            Slot::Nested(inner) => all.extend(columns_of(inner)),
            Slot::Child(_) | Slot::LeftOut => {}
        }
    }
    all.sort_unstable();
    all
}

/// A name that stands among these twice; they are sorted for it.
fn twice<'n>(names: &'n mut [Cow<'_, str>]) -> Option<&'n str> {
    names.sort_unstable();
    names.windows(2).find(|two| two[0] == two[1]).map(|two| &*two[0])
}

fn names_twice(what: &str, name: &str) -> String {
    format!("{what} that names the field {name} twice")
}

/// The fields of an object, as they stand in it.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((JsonText(name), raw)) = map.next_entry()? {
            fields.push((name, raw));
        }
        Ok(fields)
    }
}

/// Walks the fields of a record without building a map of it.
struct RecordVisitor<'r, 'a> {
    reader: &'r Reader,
    row: &'r mut Row<'a>,
    /// Takes the names of a child table's record.
    names: &'r mut Vec<Cow<'a, str>>,
}

impl<'de> Visitor<'de> for RecordVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let RecordVisitor { reader, row, names } = self;
        let mut extra = BTreeMap::new();
        while let Some(JsonText(name)) = map.next_key::<JsonText<'de>>()? {
            let raw: &'de RawValue = map.next_value()?;
            reader.take((&reader.slots, ""), &name, raw.get(), row, &mut extra);
            if reader.is_child {
                names.push(name);
            }
        }
        row.extra = extra;
        Ok(())
    }
}
