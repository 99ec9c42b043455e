//! Answers become rows: JSON text in, Arrow record batches out, value by value.
//!
//! A *value* that does not fit its column leaves it NULL, stays in `_extra` and is noted; the row is
//! loaded. A *record* without a usable key is rejected whole (contract section 3). Unknown fields go
//! to `_extra` and are reported as drift. Privacy is applied here, before anything is stored.

mod builder;
mod canonical;
mod privacy;
mod value;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, StringBuilder};
use jiff::tz::TimeZone;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

pub use privacy::Privacy;
use value::Value;

use builder::ColumnBuilder;

use crate::catalog::{Catalog, Class, ColumnType, Group, Origin, Resource};
use crate::error::{Error, Kind, Result};

/// What every decoder of a run needs to know.
#[derive(Debug, Clone)]
pub struct Context {
    /// Zone of date-times without offset (`source.time_zone`).
    pub zone: TimeZone,
    pub privacy: Privacy,
}

/// A value, or a whole record, that did not fit (`sync.rejects`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    pub table: String,
    /// Key values joined by `/`; `#n` for the n-th record of an answer when it has no key.
    pub record_key: String,
    /// `None`: the record was rejected whole.
    pub column: Option<String>,
    pub value: Option<String>,
    pub error: String,
}

/// A field that no column takes (`sync.drift`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub table: String,
    pub field: String,
    pub example: Option<String>,
}

/// The rows of some answers.
#[derive(Debug)]
pub struct Decoded {
    pub resource: Arc<Resource>,
    pub rows: RecordBatch,
    pub rejects: Vec<Reject>,
    pub drift: Vec<Drift>,
    /// A record came without a usable key: its scope must delete nothing.
    pub keyless: bool,
    pub children: Vec<Decoded>,
}

impl Decoded {
    /// Memory that the rows take, children included.
    pub fn bytes(&self) -> usize {
        self.rows.get_array_memory_size() + self.children.iter().map(Decoded::bytes).sum::<usize>()
    }

    /// Whether any record, here or in a child table, came without a usable key.
    pub fn any_keyless(&self) -> bool {
        self.keyless || self.children.iter().any(Decoded::any_keyless)
    }

    /// All rejects, children's included.
    pub fn all_rejects(&self) -> Vec<Reject> {
        let mut all = self.rejects.clone();
        for child in &self.children {
            all.extend(child.all_rejects());
        }
        all
    }

    /// All drift, children's included.
    pub fn all_drift(&self) -> Vec<Drift> {
        let mut all = self.drift.clone();
        for child in &self.children {
            all.extend(child.all_drift());
        }
        all
    }
}

/// A path parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    Int(i64),
    Text(String),
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Int(i) => i.fmt(f),
            Param::Text(t) => t.fmt(f),
        }
    }
}

/// Path parameters by the name of their column.
pub type Params = BTreeMap<String, Param>;

/// Where a field of a record goes.
enum Slot {
    Column(usize),
    Nested(HashMap<String, Slot>),
    Child(usize),
    LeftOut,
}

/// Decodes the records of one table, answer by answer.
pub struct Decoder {
    resource: Arc<Resource>,
    context: Context,
    slots: HashMap<String, Slot>,
    scalar_column: Option<usize>,
    key_columns: Vec<usize>,
    builders: Vec<ColumnBuilder>,
    extra: StringBuilder,
    rows: usize,
    /// Key to row and the record's text: of two records with one key the last wins.
    by_key: HashMap<String, (usize, Box<str>)>,
    dead_rows: Vec<usize>,
    rejects: Vec<Reject>,
    drift: BTreeMap<String, Option<String>>,
    keyless: bool,
    /// Records seen, whether they became rows or not.
    records: usize,
    children: Vec<(String, Decoder)>,
}

/// One record on its way into the builders.
struct Row<'a> {
    cells: Vec<Cell<'a>>,
    extra: BTreeMap<String, String>,
    faults: Vec<(usize, Option<String>, String)>,
    lists: Vec<(usize, &'a str)>,
}

enum Cell<'a> {
    Null,
    One(Value<'a>),
    List(Vec<Option<Value<'a>>>),
}

impl Decoder {
    /// A decoder for `resource` and its child tables.
    pub fn new(catalog: &Catalog, resource: &Arc<Resource>, context: &Context) -> Decoder {
        let children: Vec<(String, Decoder)> = catalog
            .children(&resource.table)
            .filter_map(|child| match &child.group {
                Group::Child(c) => Some((c.field.clone(), Decoder::new(catalog, child, context))),
                _ => None,
            })
            .collect();
        let mut slots = HashMap::new();
        for (i, (field, _)) in children.iter().enumerate() {
            slots.insert(field.clone(), Slot::Child(i));
        }
        for (i, column) in resource.columns.iter().enumerate() {
            // A path parameter wins over the record's field of that name, which is then known.
            let slot = match column.origin {
                Origin::Field => Slot::Column(i),
                Origin::Path => Slot::LeftOut,
                Origin::Scalar | Origin::Position | Origin::Parent => continue,
            };
            insert_slot(&mut slots, &column.path, slot);
        }
        for field in &resource.leave_out {
            match slots.get_mut(field) {
                Some(Slot::Nested(inner)) => {
                    inner.insert(REST.to_owned(), Slot::LeftOut);
                }
                _ => {
                    slots.insert(field.clone(), Slot::LeftOut);
                }
            }
        }
        let column_of = |origin| resource.columns.iter().position(|c| c.origin == origin);
        Decoder {
            context: context.clone(),
            slots,
            scalar_column: column_of(Origin::Scalar).or_else(|| match &resource.group {
                Group::Child(child) => child
                    .scalar
                    .as_ref()
                    .and_then(|name| resource.columns.iter().position(|c| c.name == *name)),
                _ => None,
            }),
            key_columns: resource
                .key
                .iter()
                .filter_map(|k| resource.columns.iter().position(|c| c.name == *k))
                .collect(),
            builders: resource.columns.iter().map(|c| ColumnBuilder::new(c.kind)).collect(),
            extra: StringBuilder::new(),
            rows: 0,
            by_key: HashMap::new(),
            dead_rows: Vec::new(),
            rejects: Vec::new(),
            drift: BTreeMap::new(),
            keyless: false,
            records: 0,
            children,
            resource: Arc::clone(resource),
        }
    }

    /// Adds a record, the text of one JSON value: an object, or a bare value where the table has a
    /// column for it.
    ///
    /// # Errors
    /// `Kind::BadAnswer` where it is neither.
    pub fn push(&mut self, raw: &RawValue, params: &Params) -> Result<()> {
        self.push_text(raw.get(), params, None)
    }

    fn push_text(&mut self, raw: &str, params: &Params, position: Option<i64>) -> Result<()> {
        self.records += 1;
        let mut row = Row {
            cells: self.resource.columns.iter().map(|_| Cell::Null).collect(),
            extra: BTreeMap::new(),
            faults: Vec::new(),
            lists: Vec::new(),
        };
        for (i, column) in self.resource.columns.iter().enumerate() {
            let param = match column.origin {
                Origin::Path => params.get(&column.name),
                Origin::Parent => column.path.first().and_then(|name| params.get(name)),
                Origin::Position => {
                    if let Some(position) = position {
                        row.cells[i] = Cell::One(Value::Int(position));
                    }
                    continue;
                }
                Origin::Field | Origin::Scalar => continue,
            };
            match param {
                Some(Param::Int(v)) => row.cells[i] = Cell::One(Value::Int(*v)),
                Some(Param::Text(t)) => row.cells[i] = Cell::One(text_param(column.kind, t)),
                None => {}
            }
        }
        if raw.starts_with('{') {
            let mut reader = serde_json::Deserializer::from_str(raw);
            reader.deserialize_map(RecordVisitor { decoder: self, row: &mut row }).map_err(
                |e| Error::caused(Kind::BadAnswer, self.bad("a record cannot be read"), e),
            )?;
        } else if let Some(i) = self.scalar_column {
            self.take_column(i, raw, &mut row, &mut |_| ());
        } else {
            let met: String = raw.chars().take(40).collect();
            return Err(Error::new(
                Kind::BadAnswer,
                self.bad(&format!("a record is no JSON object but begins with {met:?}")),
            ));
        }
        self.finish_row(raw, row)
    }

    fn bad(&self, what: &str) -> String {
        format!("{}: {what}", self.resource.table)
    }

    /// Converts one field's value into its cell, or into a fault.
    fn take_column<'a>(
        &self,
        i: usize,
        raw: &'a str,
        row: &mut Row<'a>,
        overflow: &mut dyn FnMut(String),
    ) {
        let column = &self.resource.columns[i];
        match self.cell(column.kind, column.class, raw) {
            Ok(cell) => row.cells[i] = cell,
            Err(error) => {
                row.cells[i] = Cell::Null;
                let shown = self
                    .context
                    .privacy
                    .json(column.class, &canonical::canonical(raw, &self.context.privacy));
                if let Some(text) = &shown {
                    overflow(text.clone());
                }
                row.faults.push((i, shown, error));
            }
        }
    }

    fn cell<'a>(
        &self,
        kind: ColumnType,
        class: Option<Class>,
        raw: &'a str,
    ) -> std::result::Result<Cell<'a>, String> {
        let private = |value| match value {
            Some(Value::Text(text)) => self.context.privacy.text(class, text).map(Value::Text),
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
            serde_json::from_str(raw).map_err(|_| "not a list".to_owned())?;
        let dropped = self.context.privacy.mode(class) == crate::config::PrivacyMode::Drop;
        let mut values = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            let value = value::scalar(kind.scalar, item.get(), &self.context.zone)
                .map_err(|e| format!("element {}: {e}", n + 1))?;
            values.push(private(value));
        }
        Ok(if dropped { Cell::Null } else { Cell::List(values) })
    }

    fn finish_row(&mut self, raw: &str, row: Row<'_>) -> Result<()> {
        let mut key = String::new();
        let mut whole = true;
        for (n, i) in self.key_columns.iter().enumerate() {
            if n > 0 {
                key.push('/');
            }
            match &row.cells[*i] {
                Cell::One(value) => {
                    let scale = self.resource.columns[*i].kind.scalar.scale().unwrap_or(0);
                    key.push_str(&value.key_text(scale));
                }
                Cell::Null | Cell::List(_) => whole = false,
            }
        }
        if !whole {
            self.keyless = true;
            let error =
                row.faults.iter().find(|(i, _, _)| self.key_columns.contains(i)).map_or_else(
                    || format!("no usable key: {} is missing", self.resource.key.join(", ")),
                    |(i, _, e)| format!("no usable key: {}: {e}", self.resource.columns[*i].name),
                );
            self.rejects.push(Reject {
                table: self.resource.table.clone(),
                record_key: format!("#{}", self.records),
                column: None,
                value: None,
                error,
            });
            return Ok(());
        }
        if let Some((earlier, text)) = self.by_key.get(&key) {
            let plain = &self.context.privacy;
            if **text == *raw
                || canonical::canonical(text, plain) == canonical::canonical(raw, plain)
            {
                return Ok(());
            }
            self.dead_rows.push(*earlier);
            let table = &self.resource.table;
            // The earlier record is gone, and what was wrong with it too.
            self.rejects.retain(|r| !(r.table == *table && r.record_key == key));
            self.rejects.push(Reject {
                table: table.clone(),
                record_key: key.clone(),
                column: None,
                value: None,
                error: "another record with this key came later in the same answer, and was taken"
                    .to_owned(),
            });
        }
        for (i, value, error) in row.faults {
            self.rejects.push(Reject {
                table: self.resource.table.clone(),
                record_key: key.clone(),
                column: Some(self.resource.columns[i].name.clone()),
                value,
                error,
            });
        }
        self.push_children(&row.cells, &row.lists)?;
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
            canonical::object(row.extra.into_iter(), &mut text);
            self.extra.append_value(text);
        }
        self.by_key.insert(key, (self.rows, raw.into()));
        self.rows += 1;
        Ok(())
    }

    /// Hands the lists of a record to the child tables, with the parent's columns as parameters.
    fn push_children(&mut self, cells: &[Cell<'_>], lists: &[(usize, &str)]) -> Result<()> {
        if lists.is_empty() {
            return Ok(());
        }
        let mut params = Params::new();
        for (column, cell) in self.resource.columns.iter().zip(cells) {
            let param = match cell {
                Cell::One(Value::Int(i)) => Param::Int(*i),
                Cell::One(value @ (Value::Text(_) | Value::Guid(_))) => {
                    Param::Text(value.key_text(0))
                }
                _ => continue,
            };
            params.insert(column.name.clone(), param);
        }
        for (i, raw) in lists {
            let items: Vec<&RawValue> = serde_json::from_str(raw).map_err(|e| {
                Error::caused(Kind::BadAnswer, self.bad("a list of records cannot be read"), e)
            })?;
            for (n, item) in items.iter().enumerate() {
                self.children[*i].1.push_text(item.get(), &params, Some(n as i64 + 1))?;
            }
        }
        Ok(())
    }

    /// Records pushed so far.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The rows of everything pushed.
    ///
    /// # Errors
    /// `Kind::Internal`: the columns do not make a batch.
    pub fn finish(mut self) -> Result<Decoded> {
        let wrong = |e| Error::caused(Kind::Internal, "decoded columns do not fit together", e);
        let schema = Arc::clone(&self.resource.schema);
        let mut arrays = Vec::with_capacity(schema.fields().len());
        for (builder, field) in self.builders.iter_mut().zip(schema.fields()) {
            arrays.push(builder.finish(field).map_err(wrong)?);
        }
        arrays.push(Arc::new(self.extra.finish()));
        let mut rows = RecordBatch::try_new(schema, arrays).map_err(wrong)?;
        if !self.dead_rows.is_empty() {
            let mut live = vec![true; self.rows];
            for row in &self.dead_rows {
                live[*row] = false;
            }
            rows = arrow::compute::filter_record_batch(&rows, &BooleanArray::from(live))
                .map_err(wrong)?;
        }
        let table = self.resource.table.clone();
        Ok(Decoded {
            resource: self.resource,
            rows,
            rejects: self.rejects,
            drift: self
                .drift
                .into_iter()
                .map(|(field, example)| Drift { table: table.clone(), field, example })
                .collect(),
            keyless: self.keyless,
            children: self
                .children
                .into_iter()
                .map(|(_, child)| child.finish())
                .collect::<Result<_>>()?,
        })
    }
}

/// The name under which a nested object says that its other fields are left out.
const REST: &str = "";

fn insert_slot(slots: &mut HashMap<String, Slot>, path: &[String], slot: Slot) {
    match path {
        [] => {}
        [last] => {
            slots.insert(last.clone(), slot);
        }
        [first, rest @ ..] => {
            let entry = slots.entry(first.clone()).or_insert_with(|| Slot::Nested(HashMap::new()));
            if let Slot::Nested(inner) = entry {
                insert_slot(inner, rest, slot);
            }
        }
    }
}

fn text_param(kind: ColumnType, text: &str) -> Value<'static> {
    use crate::catalog::Scalar;
    match kind.scalar {
        Scalar::Guid => match uuid::Uuid::try_parse(text) {
            Ok(guid) => Value::Guid(guid.into_bytes()),
            Err(_) => Value::Text(Cow::Owned(text.to_owned())),
        },
        _ => Value::Text(Cow::Owned(text.to_owned())),
    }
}

/// Walks the fields of a record without building a map of it.
struct RecordVisitor<'d, 'r, 'a> {
    decoder: &'d mut Decoder,
    row: &'r mut Row<'a>,
}

impl<'de> Visitor<'de> for RecordVisitor<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(name) = map.next_key::<FieldName<'de>>()? {
            let raw: &'de RawValue = map.next_value()?;
            self.decoder.take_field(&name.0, raw.get(), self.row);
        }
        Ok(())
    }
}

/// A field name, borrowed where the JSON allows it.
struct FieldName<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = FieldName<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> std::result::Result<Self::Value, E> {
                Ok(FieldName(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> std::result::Result<Self::Value, E> {
                Ok(FieldName(Cow::Owned(v.to_owned())))
            }
        }
        d.deserialize_str(Name)
    }
}

impl Decoder {
    fn take_field<'a>(&mut self, name: &str, raw: &'a str, row: &mut Row<'a>) {
        match self.slots.get(name) {
            Some(Slot::Column(i)) => {
                let mut overflow = None;
                self.take_column(*i, raw, row, &mut |text| overflow = Some(text));
                if let Some(text) = overflow {
                    row.extra.insert(name.to_owned(), text);
                }
            }
            Some(Slot::LeftOut) => {}
            Some(Slot::Child(i)) => match raw.as_bytes().first() {
                Some(b'[') => row.lists.push((*i, raw)),
                Some(b'n') => {}
                _ => self.unknown(name, raw, row),
            },
            Some(Slot::Nested(inner)) => match raw.as_bytes().first() {
                Some(b'n') => {}
                Some(b'{') => {
                    let mut rest = BTreeMap::new();
                    let mut drift = Vec::new();
                    self.take_nested(inner, raw, row, &mut rest, &mut drift);
                    for (field, example) in drift {
                        self.drift.entry(format!("{name}.{field}")).or_insert(example);
                    }
                    if !rest.is_empty() {
                        let mut text = String::new();
                        canonical::object(rest.into_iter(), &mut text);
                        row.extra.insert(name.to_owned(), text);
                    }
                }
                _ => self.unknown(name, raw, row),
            },
            None => self.unknown(name, raw, row),
        }
    }

    fn take_nested<'a>(
        &self,
        slots: &HashMap<String, Slot>,
        raw: &'a str,
        row: &mut Row<'a>,
        rest: &mut BTreeMap<String, String>,
        drift: &mut Vec<(String, Option<String>)>,
    ) {
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, &'a RawValue>>(raw) else {
            return;
        };
        for (name, value) in fields {
            match slots.get(&name) {
                Some(Slot::Column(i)) => {
                    self.take_column(*i, value.get(), row, &mut |text| {
                        rest.insert(name.clone(), text);
                    });
                }
                Some(Slot::Nested(inner)) if value.get().starts_with('{') => {
                    let mut deeper = BTreeMap::new();
                    let mut found = Vec::new();
                    self.take_nested(inner, value.get(), row, &mut deeper, &mut found);
                    drift.extend(found.into_iter().map(|(f, e)| (format!("{name}.{f}"), e)));
                    if !deeper.is_empty() {
                        let mut text = String::new();
                        canonical::object(deeper.into_iter(), &mut text);
                        rest.insert(name, text);
                    }
                }
                Some(Slot::LeftOut | Slot::Nested(_) | Slot::Child(_)) => {}
                None if slots.contains_key(REST) => {}
                None => {
                    let shown = self.shown_unknown(&name, value.get());
                    if let Some(text) = &shown {
                        rest.insert(name.clone(), text.clone());
                    }
                    drift.push((name, shown));
                }
            }
        }
    }

    /// A field without a column: kept in `_extra` under the privacy class of its name, and reported.
    fn unknown(&mut self, name: &str, raw: &str, row: &mut Row<'_>) {
        let shown = self.shown_unknown(name, raw);
        if let Some(text) = &shown {
            row.extra.insert(name.to_owned(), text.clone());
        }
        if !self.drift.contains_key(name) {
            self.drift.insert(name.to_owned(), shown);
        }
    }

    fn shown_unknown(&self, name: &str, raw: &str) -> Option<String> {
        let privacy = &self.context.privacy;
        let class = Privacy::class_of_name(name);
        privacy.json(class, &canonical::canonical(raw, privacy))
    }
}

#[cfg(test)]
mod tests;
