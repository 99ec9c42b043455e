//! Records of one table, answer by answer, into one batch of rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, StringBuilder};
use serde::Deserializer as _;
use serde_json::value::RawValue;

use super::builder::ColumnBuilder;
use super::record::{Cell, RecordVisitor, Row};
use super::slots::{self, Slots};
use super::value::Value;
use super::{Context, Decoded, Drift, Param, Params, Reject, canonical};
use crate::catalog::{Catalog, ColumnType, Group, Origin, Resource, Scalar};
use crate::error::{Error, Kind, Result};

/// Decodes the records of one table, answer by answer.
pub struct Decoder {
    pub(super) resource: Arc<Resource>,
    pub(super) context: Context,
    pub(super) slots: Slots,
    scalar_column: Option<usize>,
    key_columns: Vec<usize>,
    builders: Vec<ColumnBuilder>,
    extra: StringBuilder,
    rows: usize,
    /// Key to row and the record's text: of two records with one key the last wins.
    by_key: HashMap<String, (usize, Box<str>)>,
    dead_rows: Vec<usize>,
    rejects: Vec<Reject>,
    pub(super) drift: BTreeMap<String, Option<String>>,
    keyless: bool,
    /// Records seen, whether they became rows or not.
    records: usize,
    children: Vec<(String, Decoder)>,
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
        let column_of = |origin| resource.columns.iter().position(|c| c.origin == origin);
        Decoder {
            context: context.clone(),
            slots: slots::of(resource, children.iter().map(|(field, _)| field.as_str())),
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
                Cell::One(value @ (Value::Text(_) | Value::Guid(_) | Value::Date(_))) => {
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
