//! Values and records: one form that goes out as JSON on the wire, as canonical cells in the state,
//! and that filters read.

use std::borrow::Cow;
use std::cmp::Ordering;

use heck::ToSnakeCase;
use serde_json::{Map, Value as Json};

use super::wire::{self, LocalMs, Ticks};

/// A value of a field, knowing how it stands on the wire.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// The field is left out of the answer; canonically NULL.
    Absent,
    Null,
    Bool(bool),
    Int(i64),
    /// Øre.
    Money(i64),
    /// Millionths.
    Decimal(i64),
    Text(Cow<'static, str>),
    /// With seven digits and an offset.
    Zoned(Ticks),
    /// Without offset, with milliseconds.
    Local(LocalMs),
    /// `0001-01-01T00:00:00`, with an offset or without: canonically NULL.
    Unset {
        zoned: bool,
    },
    Guid(u128),
    List(Vec<Value>),
}

/// The instant that an unset date stands for when a filter compares it.
const UNSET: Ticks = Ticks(-62_135_596_800 * wire::TICKS_PER_SECOND);

impl Value {
    /// Whether a filter sees NULL here.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Value::Absent | Value::Null)
    }

    /// The instant of a date of whatever form.
    pub(crate) fn instant(&self) -> Option<Ticks> {
        match self {
            Value::Zoned(at) => Some(*at),
            Value::Local(at) => Some(at.instant()),
            Value::Unset { .. } => Some(UNSET),
            _ => None,
        }
    }

    /// Millionths of a number of whatever form.
    pub(crate) fn number(&self) -> Option<i128> {
        match self {
            Value::Int(n) => Some(i128::from(*n) * 1_000_000),
            Value::Money(ore) => Some(i128::from(*ore) * 10_000),
            Value::Decimal(millionths) => Some(i128::from(*millionths)),
            _ => None,
        }
    }

    /// Writes the value as JSON. [`Value::Absent`] is the record's matter.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Absent | Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Value::Money(ore) => wire::write_money(out, *ore),
            Value::Decimal(millionths) => wire::write_decimal(out, *millionths),
            Value::Text(text) => write_text(out, text),
            Value::Zoned(at) => quoted(out, |out| at.write_zoned(out)),
            Value::Local(at) => quoted(out, |out| at.write(out)),
            Value::Unset { zoned: false } => out.extend_from_slice(b"\"0001-01-01T00:00:00\""),
            Value::Unset { zoned: true } => out.extend_from_slice(b"\"0001-01-01T00:00:00+00:00\""),
            Value::Guid(guid) => quoted(out, |out| {
                out.extend_from_slice(guid_text(*guid).as_bytes());
            }),
            Value::List(items) => {
                out.push(b'[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
        }
    }

    /// The cell that a mirror has to hold for this value.
    pub(crate) fn canonical(&self) -> Json {
        match self {
            Value::Absent | Value::Null | Value::Unset { .. } => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(n) => Json::from(*n),
            Value::Money(ore) => Json::String(wire::canonical_money(*ore)),
            Value::Decimal(millionths) => Json::String(wire::canonical_decimal(*millionths)),
            Value::Text(text) => Json::String(text.to_string()),
            Value::Zoned(at) => Json::String(at.canonical()),
            Value::Local(at) => Json::String(at.instant().canonical()),
            Value::Guid(guid) => Json::String(guid_text(*guid)),
            Value::List(items) => Json::Array(items.iter().map(Value::canonical).collect()),
        }
    }

    /// The order of `$orderby`: NULL first, then by instant, number, text or truth.
    pub(crate) fn order(&self, other: &Value) -> Ordering {
        match (self.is_null(), other.is_null()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        if let (Some(a), Some(b)) = (self.instant(), other.instant()) {
            return a.cmp(&b);
        }
        if let (Some(a), Some(b)) = (self.number(), other.number()) {
            return a.cmp(&b);
        }
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Guid(a), Value::Guid(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<Ticks> for Value {
    fn from(value: Ticks) -> Value {
        Value::Zoned(value)
    }
}

impl From<LocalMs> for Value {
    fn from(value: LocalMs) -> Value {
        Value::Local(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(Cow::Owned(value))
    }
}

impl From<&'static str> for Value {
    fn from(value: &'static str) -> Value {
        Value::Text(Cow::Borrowed(value))
    }
}

impl From<Cow<'static, str>> for Value {
    fn from(value: Cow<'static, str>) -> Value {
        Value::Text(value)
    }
}

/// One record of an answer: fields in order, and fields that no reference names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    fields: Vec<(&'static str, Value)>,
    /// Unknown fields as JSON text; they belong into a mirror's `_extra`. Keys in sorted order.
    extra: Vec<(&'static str, Cow<'static, str>)>,
    /// Fields that are no columns of a mirror's row, as JSON text: copies of another table's records,
    /// which it leaves out, and lists of records, which are a table of their own.
    nested: Vec<(&'static str, String)>,
}

impl Record {
    pub(crate) fn with_capacity(fields: usize) -> Record {
        Record { fields: Vec::with_capacity(fields), ..Record::default() }
    }

    /// Adds a field.
    pub(crate) fn put(&mut self, name: &'static str, value: impl Into<Value>) -> &mut Record {
        self.fields.push((name, value.into()));
        self
    }

    /// Adds an amount of øre.
    pub(crate) fn money(&mut self, name: &'static str, ore: impl Into<Option<i64>>) -> &mut Record {
        self.put(name, ore.into().map_or(Value::Null, Value::Money))
    }

    /// Adds a number given in millionths.
    pub(crate) fn decimal(
        &mut self,
        name: &'static str,
        millionths: impl Into<Option<i64>>,
    ) -> &mut Record {
        self.put(name, millionths.into().map_or(Value::Null, Value::Decimal))
    }

    /// Adds a field that no reference names, as JSON text.
    pub(crate) fn unknown(
        &mut self,
        name: &'static str,
        json: impl Into<Cow<'static, str>>,
    ) -> &mut Record {
        self.extra.push((name, json.into()));
        self.extra.sort_by_key(|(name, _)| *name);
        self
    }

    /// Adds a field that is no column of a mirror's row, as JSON text: copies of other records.
    pub(crate) fn nested(&mut self, name: &'static str, json: String) -> &mut Record {
        self.nested.push((name, json));
        self
    }

    /// Adds a list of records, which is a child table of a mirror's; `None` is null.
    pub(crate) fn records(&mut self, name: &'static str, list: Option<Vec<Record>>) -> &mut Record {
        let mut json = Vec::new();
        match list {
            None => json.extend_from_slice(b"null"),
            Some(list) => {
                json.push(b'[');
                for (n, record) in list.iter().enumerate() {
                    if n > 0 {
                        json.push(b',');
                    }
                    record.write(&mut json, None);
                }
                json.push(b']');
            }
        }
        // Only whole strings and ASCII are ever written.
        self.nested.push((name, String::from_utf8(json).unwrap_or_default()));
        self
    }

    /// Makes all fields absent but these.
    pub(crate) fn blank_except(&mut self, kept: &[&str]) {
        for (_, value) in self.fields.iter_mut().filter(|(name, _)| !kept.contains(name)) {
            *value = Value::Absent;
        }
        self.extra.clear();
        self.nested.clear();
    }

    /// The named field; `None` where the record has no such field.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The names of the fields, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|(name, _)| *name)
    }

    /// Writes the record as a JSON object; with `select`, only those fields.
    pub(crate) fn write(&self, out: &mut Vec<u8>, select: Option<&[String]>) {
        out.push(b'{');
        let mut first = true;
        let chosen = |name: &str| select.is_none_or(|list| list.iter().any(|s| s == name));
        for (name, value) in &self.fields {
            if *value == Value::Absent || !chosen(name) {
                continue;
            }
            write_key(out, name, &mut first);
            value.write(out);
        }
        let extra = self.extra.iter().map(|(name, json)| (*name, json.as_ref()));
        let nested = self.nested.iter().map(|(name, json)| (*name, json.as_str()));
        for (name, json) in extra.chain(nested).filter(|(name, _)| chosen(name)) {
            write_key(out, name, &mut first);
            out.extend_from_slice(json.as_bytes());
        }
        out.push(b'}');
    }

    /// The row that a mirror has to hold: `keys` are the path parameters that are columns too.
    pub(crate) fn canonical(&self, keys: &[(&'static str, Value)]) -> Json {
        let mut row = Map::new();
        for (name, value) in &self.fields {
            row.insert(name.to_snake_case(), value.canonical());
        }
        for (name, value) in keys {
            row.insert((*name).to_owned(), value.canonical());
        }
        let extra = if self.extra.is_empty() {
            Json::Null
        } else {
            let parts: Vec<String> =
                self.extra.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
            Json::String(format!("{{{}}}", parts.join(",")))
        };
        row.insert("_extra".to_owned(), extra);
        Json::Object(row)
    }
}

/// A GUID in its usual lower-case form.
pub(crate) fn guid_text(guid: u128) -> String {
    uuid::Uuid::from_u128(guid).to_string()
}

fn write_key(out: &mut Vec<u8>, name: &str, first: &mut bool) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    // Field names are plain ASCII identifiers.
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing a string to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_left_out_on_the_wire_and_null_in_the_state() {
        let mut record = Record::default();
        record.put("Id", 3).put("Gone", Value::Absent).money("Amount", 1250);
        record.put("Unset", Value::Unset { zoned: false }).unknown("Odd", "{\"A\":1}");
        let mut out = Vec::new();
        record.write(&mut out, None);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"Id":3,"Amount":12.5,"Unset":"0001-01-01T00:00:00","Odd":{"A":1}}"#
        );
        let row = record.canonical(&[("case_id", Value::Int(17))]);
        assert_eq!(
            row,
            serde_json::json!({"id": 3, "gone": null, "amount": "12.50", "unset": null,
                "case_id": 17, "_extra": "{\"Odd\":{\"A\":1}}"})
        );
    }
}
