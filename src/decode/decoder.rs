//! Records of one table, answer by answer, into one batch of rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, StringBuilder};
use serde_json::value::RawValue;

use super::builder::ColumnBuilder;
use super::learned::Learned;
use super::record::{Cell, Reader, Row};
use super::rejects::Rejects;
use super::slots;
use super::value::Value;
use super::{Context, Decoded, Drift, Param, Params, Reject, canonical};
use crate::catalog::{Catalog, ColumnType, Group, LINE_ID, LINE_NUMBER, Origin, Resource, Scalar};
use crate::error::{Error, Kind, Result};
use crate::text::wrong_type;

/// New fields of a table that are told of one answer; their values are in `_extra` all the same.
const MOST_DRIFT: usize = 200;

/// Decodes the records of one table, answer by answer. The records' texts are borrowed until its end.
pub struct Decoder<'a> {
    reader: Reader,
    key_columns: Vec<usize>,
    position_column: Option<usize>,
    /// The columns that the call decides, each with the parameter that it takes.
    given: Vec<(usize, String)>,
    /// The columns of a journal's line that take its place in the answer.
    numbered: Vec<usize>,
    /// The key has a row's place in it, so that no two are alike.
    is_placed: bool,
    /// The column with the id of a row's scope.
    scope_column: Option<usize>,
    /// The column with the contact's id, where rows are about persons.
    person_column: Option<usize>,
    builders: Vec<ColumnBuilder>,
    extra: StringBuilder,
    /// For each row pushed, whether it is to stay: of two records with one key the last wins.
    live: Vec<bool>,
    /// Key to row and the record's text; of rows with a place in their key none.
    by_key: HashMap<Box<str>, (usize, &'a str), foldhash::fast::RandomState>,
    /// The key of the row at hand.
    exact: String,
    /// How many records there were of each rest of a key that a position completes.
    positions: HashMap<String, i64>,
    rejects: Rejects,
    drift: BTreeMap<String, Option<String>>,
    learned: Vec<Learned>,
    without_key: bool,
    /// Records seen, whether they became rows or not.
    records: usize,
    children: Vec<(String, Decoder<'a>)>,
    /// Columns of this table that the child tables' rows repeat.
    inherited: Vec<usize>,
    /// Lists of child tables. They wait until it is known which of the records stay.
    lists: Vec<ChildList<'a>>,
}

/// A list inside a record.
struct ChildList<'a> {
    row: usize,
    child: usize,
    params: Params,
    text: &'a str,
}

/// The columns that the call decides and the record does not, each with the parameter that it takes.
fn given(resource: &Resource) -> Vec<(usize, String)> {
    let columns = resource.columns.iter().enumerate();
    columns
        .filter_map(|(i, column)| match column.origin {
            Origin::Path => Some((i, column.name.clone())),
            Origin::Parent => column.path.first().map(|name| (i, name.clone())),
            Origin::Field | Origin::Scalar | Origin::Position => None,
        })
        .collect()
}

/// The columns of a journal's line that take its place in the answer, from 1: it stands for the name that
/// the mirror gives the line (`mirror/lines.rs`).
fn numbered(resource: &Resource) -> Vec<usize> {
    if !resource.has_line_ids() || matches!(resource.group, Group::Child(_)) {
        return Vec::new();
    }
    let columns = resource.columns.iter().enumerate();
    columns
        .filter(|(_, column)| column.name == LINE_ID || column.name == LINE_NUMBER)
        .map(|(i, _)| i)
        .collect()
}

/// How a record is called where something is wrong with it.
struct Name {
    /// The id of the record's scope.
    scope: Option<i64>,
    /// As much of its key as is there, joined by `/`.
    key: String,
}

impl<'a> Decoder<'a> {
    /// A decoder for `resource` and its child tables, with room for so many records.
    pub fn new(
        catalog: &Catalog,
        resource: &Arc<Resource>,
        context: &Context,
        room: usize,
    ) -> Decoder<'a> {
        let mut children: Vec<(String, Decoder<'a>)> = Vec::new();
        let mut left_out: Vec<&str> = Vec::new();
        for child in catalog.children(&resource.table) {
            let Group::Child(of) = &child.group else { continue };
            if context.disabled.contains(&child.table) {
                left_out.push(&of.field);
            } else {
                children.push((of.field.clone(), Decoder::new(catalog, child, context, 0)));
            }
        }
        let named = |name: &String| resource.columns.iter().position(|c| c.name == *name);
        let column_of = |origin| resource.columns.iter().position(|c| c.origin == origin);
        let inherited: BTreeSet<usize> = children
            .iter()
            .flat_map(|(_, child)| child.reader.resource.columns.iter())
            .filter(|column| column.origin == Origin::Parent)
            .filter_map(|column| column.path.first().and_then(named))
            .collect();
        let key_columns: Vec<usize> = resource.key.iter().filter_map(named).collect();
        let (position_column, numbered) = (column_of(Origin::Position), numbered(resource));
        let is_placed =
            key_columns.iter().any(|i| position_column == Some(*i) || numbered.contains(i));
        Decoder {
            key_columns,
            position_column,
            given: given(resource),
            numbered,
            is_placed,
            scope_column: resource
                .scope_column()
                .and_then(|name| resource.columns.iter().position(|column| column.name == name)),
            person_column: resource.person.as_ref().and_then(|person| named(&person.id)),
            builders: resource.columns.iter().map(|c| ColumnBuilder::new(c.kind, room)).collect(),
            extra: StringBuilder::with_capacity(room, 0),
            live: Vec::new(),
            by_key: HashMap::with_capacity_and_hasher(
                if is_placed { 0 } else { room },
                Default::default(),
            ),
            exact: String::new(),
            positions: HashMap::new(),
            rejects: Rejects::default(),
            drift: BTreeMap::new(),
            learned: Vec::new(),
            without_key: false,
            records: 0,
            inherited: inherited.into_iter().collect(),
            lists: Vec::new(),
            reader: Reader {
                stays: resource.columns.iter().map(|c| resource.stays_known(c)).collect(),
                is_child: matches!(resource.group, Group::Child(_)),
                resource: Arc::clone(resource),
                context: context.clone(),
                forgotten: context.privacy.forgotten(),
                slots: slots::of(
                    resource,
                    children.iter().map(|(field, _)| field.as_str()),
                    &left_out,
                ),
                scalar_column: column_of(Origin::Scalar).or_else(|| match &resource.group {
                    Group::Child(child) => child.scalar.as_ref().and_then(named),
                    _ => None,
                }),
            },
            children,
        }
    }

    /// Adds a record, the text of one JSON value as [`crate::source::split`] gives it: an object, or a
    /// bare value where the table has a column for it. What is neither is rejected like a record
    /// without key.
    pub fn push(&mut self, json: &'a str, params: &Params) {
        self.push_text(json, params, None);
    }

    /// `place` is the record's in the list that it stands in, from 1, where that is its position.
    fn push_text(&mut self, raw: &'a str, params: &Params, place: Option<i64>) {
        self.records += 1;
        let (mut row, fault) = match self.reader.read(raw) {
            Ok(row) => (row, None),
            Err(why) => (Row::empty(&self.reader.resource), Some(why)),
        };
        self.give(params, &mut row);
        self.forget(&mut row);
        for (field, example) in std::mem::take(&mut row.drift) {
            let field = self.reader.forgotten.name_without(field);
            if self.drift.len() < MOST_DRIFT || self.drift.contains_key(&field) {
                self.drift.entry(field).or_insert(example);
            }
        }
        if let Some(why) = fault {
            let known = self.name(&row, self.position_column);
            self.reject_whole(&known, why);
            return;
        }
        if let Some(i) = self.position_column
            && self.has_key(&row, Some(i))
        {
            let place = place.unwrap_or_else(|| {
                self.read_key(&row, Some(i));
                let count = self.positions.entry(self.exact.clone()).or_default();
                *count += 1;
                *count
            });
            row.cells[i] = Cell::One(Value::Int(place));
        }
        self.finish_row(raw, row);
    }

    /// Empties a row about a person who is forgotten, and keeps in mind what it said that is to be kept out of other
    /// rows and is not yet.
    fn forget(&mut self, row: &mut Row<'_>) {
        let (resource, list) = (&self.reader.resource, &self.reader.forgotten);
        let contact = match self.person_column.map(|i| &row.cells[i]) {
            Some(Cell::One(Value::Int(id))) if list.has_contact(*id) => *id,
            _ => return,
        };
        self.learned.extend(Learned::of(row, resource, contact, list));
        row.forget(resource);
    }

    /// Fills the columns that the record itself does not decide.
    fn give(&self, params: &Params, row: &mut Row<'_>) {
        for i in &self.numbered {
            row.cells[*i] = Cell::One(Value::Int(self.records as i64));
        }
        for (i, name) in &self.given {
            match params.get(name) {
                Some(Param::Int(v)) => row.cells[*i] = Cell::One(Value::Int(*v)),
                Some(Param::Text(t)) => {
                    let kind = self.reader.resource.columns[*i].kind;
                    row.cells[*i] = Cell::One(text_param(kind, t));
                }
                None => {}
            }
        }
    }

    /// Whether the key of a row is there, one of its columns aside.
    fn has_key(&self, row: &Row<'_>, without: Option<usize>) -> bool {
        let mut columns = self.key_columns.iter().filter(|i| Some(**i) != without);
        columns.all(|i| matches!(row.cells[*i], Cell::One(_)))
    }

    /// Makes `exact` the key of a row, without one of its columns: equal for equal keys only.
    fn read_key(&mut self, row: &Row<'_>, without: Option<usize>) {
        self.exact.clear();
        for i in self.key_columns.iter().filter(|i| Some(**i) != without) {
            let Cell::One(value) = &row.cells[*i] else { continue };
            let begin = self.exact.len();
            let scale = self.reader.resource.columns[*i].kind.scalar.scale().unwrap_or(0);
            value.write_key(scale, &mut self.exact);
            let length = self.exact.len() - begin;
            // The length keeps "a/b", "c" apart from "a", "b/c".
            let _ = write!(self.exact, ":{length};");
        }
    }

    /// The name of a row, without one column of its key.
    fn name(&self, row: &Row<'_>, without: Option<usize>) -> Name {
        let scope = match self.scope_column.map(|i| &row.cells[i]) {
            Some(Cell::One(Value::Int(id))) => Some(*id),
            _ => None,
        };
        let mut key = String::new();
        for i in self.key_columns.iter().filter(|i| Some(**i) != without) {
            if let Cell::One(value) = &row.cells[*i] {
                if !key.is_empty() {
                    key.push('/');
                }
                let scale = self.reader.resource.columns[*i].kind.scalar.scale().unwrap_or(0);
                value.write_key(scale, &mut key);
            }
        }
        Name { scope, key }
    }

    /// A record that is not loaded at all, and whose scope must delete nothing.
    fn reject_whole(&mut self, known: &Name, error: String) {
        self.without_key = true;
        let joint = if known.key.is_empty() { "" } else { "/" };
        self.rejects.push(Reject {
            table: self.reader.resource.table.clone(),
            scope: known.scope,
            record_key: format!("{}{joint}#{}", known.key, self.records),
            column: None,
            value: None,
            error,
        });
    }

    fn finish_row(&mut self, raw: &'a str, row: Row<'a>) {
        let resource = Arc::clone(&self.reader.resource);
        if !self.has_key(&row, None) {
            let error =
                row.faults.iter().find(|(i, _, _)| self.key_columns.contains(i)).map_or_else(
                    || format!("no usable key: {} is missing", resource.key.join(", ")),
                    |(i, _, e)| format!("no usable key: {}: {e}", resource.columns[*i].name),
                );
            let name = self.name(&row, None);
            self.reject_whole(&name, error);
            return;
        }
        let twin = if self.is_placed {
            None
        } else {
            self.read_key(&row, None);
            self.by_key.get(self.exact.as_str())
        };
        if let Some((earlier, text)) = twin {
            let privacy = &self.reader.context.privacy;
            if *text == raw
                || canonical::canonical(text, privacy) == canonical::canonical(raw, privacy)
            {
                return;
            }
            self.live[*earlier] = false;
            let name = self.name(&row, None);
            // The earlier record is gone, and what was wrong with it too.
            self.rejects.forget(&name.key);
            self.rejects.push(Reject {
                table: resource.table.clone(),
                scope: name.scope,
                record_key: name.key,
                column: None,
                value: None,
                error: "another record with this key came later in the same answer, and was taken"
                    .to_owned(),
            });
        }
        self.hold_lists(&row);
        if !row.faults.is_empty() {
            let name = self.name(&row, None);
            for (i, value, error) in row.faults {
                self.rejects.push(Reject {
                    table: resource.table.clone(),
                    scope: name.scope,
                    record_key: name.key.clone(),
                    column: Some(resource.columns[i].name.clone()),
                    value,
                    error,
                });
            }
        }
        for (builder, cell) in self.builders.iter_mut().zip(&row.cells) {
            match cell {
                Cell::Null => builder.push(None),
                Cell::One(value) => builder.push(Some(value)),
                Cell::List(items) => builder.push_list(items),
            }
        }
        if row.extra.is_empty() {
            self.extra.append_null();
        } else {
            let mut text = String::new();
            let extra = self.reader.forgotten.names_without(row.extra);
            canonical::object(extra.into_iter(), &mut text);
            self.extra.append_value(text);
        }
        if !self.is_placed {
            self.by_key.insert(self.exact.as_str().into(), (self.live.len(), raw));
        }
        self.live.push(true);
    }

    /// Keeps the lists of a record for the child tables, with the columns that their rows repeat.
    fn hold_lists(&mut self, row: &Row<'a>) {
        for (child, text) in row.lists.iter().filter(|(_, text)| *text != "null") {
            let mut params = Params::new();
            for i in &self.inherited {
                let param = match &row.cells[*i] {
                    Cell::One(Value::Int(v)) => Param::Int(*v),
                    Cell::One(value @ (Value::Text(_) | Value::Guid(_) | Value::Date(_))) => {
                        let mut text = String::new();
                        value.write_key(0, &mut text);
                        Param::Text(text)
                    }
                    Cell::One(_) | Cell::Null | Cell::List(_) => continue,
                };
                params.insert(self.reader.resource.columns[*i].name.clone(), param);
            }
            self.lists.push(ChildList { row: self.live.len(), child: *child, params, text });
        }
    }

    /// Takes the list of a record whose rows are these.
    fn push_list(&mut self, text: &'a str, params: &Params) {
        match serde_json::from_str::<Vec<&'a RawValue>>(text) {
            Ok(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.push_text(item.get(), params, Some(n as i64 + 1));
                }
            }
            Err(_) => {
                let mut row = Row::empty(&self.reader.resource);
                self.give(params, &mut row);
                let known = self.name(&row, self.position_column);
                self.reject_whole(&known, wrong_type("a list of records", text));
            }
        }
    }

    /// The rows of everything pushed.
    ///
    /// # Errors
    /// `Kind::Internal`: the columns do not make a batch.
    pub fn finish(mut self) -> Result<Decoded> {
        for list in std::mem::take(&mut self.lists) {
            if self.live[list.row] {
                self.children[list.child].1.push_list(list.text, &list.params);
            }
        }
        let wrong = |e| Error::caused(Kind::Internal, "decoded columns do not fit together", e);
        let Reader { resource, forgotten, .. } = self.reader;
        let schema = Arc::clone(&resource.schema);
        let mut arrays = Vec::with_capacity(schema.fields().len());
        for (builder, field) in self.builders.iter_mut().zip(schema.fields()) {
            arrays.push(builder.finish(field).map_err(wrong)?);
        }
        arrays.push(Arc::new(self.extra.finish()));
        let mut rows = RecordBatch::try_new(schema, arrays).map_err(wrong)?;
        if self.live.contains(&false) {
            rows = arrow::compute::filter_record_batch(&rows, &BooleanArray::from(self.live))
                .map_err(wrong)?;
        }
        let table = resource.table.clone();
        Ok(Decoded {
            rejects: self.rejects.all(&table),
            resource,
            rows,
            drift: self
                .drift
                .into_iter()
                .map(|(field, example)| Drift { table: table.clone(), field, example })
                .collect(),
            without_key: self.without_key,
            learned: self.learned,
            list: forgotten.generation(),
            children: self
                .children
                .into_iter()
                .map(|(_, child)| child.finish())
                .collect::<Result<_>>()?,
        })
    }
}

fn text_param(kind: ColumnType, text: &str) -> Value<'static> {
    match kind.scalar {
        Scalar::Guid => match uuid::Uuid::try_parse(text) {
            Ok(guid) => Value::Guid(guid.into_bytes()),
            Err(_) => Value::Text(Cow::Owned(text.to_owned())),
        },
        Scalar::Date => {
            super::value::date(text).unwrap_or_else(|_| Value::Text(Cow::Owned(text.to_owned())))
        }
        _ => Value::Text(Cow::Owned(text.to_owned())),
    }
}
