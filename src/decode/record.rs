//! One record on its way from its text to the cells of a row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::canonical;
use super::decoder::Decoder;
use super::privacy::Privacy;
use super::slots::{REST, Slot, Slots};
use super::value::{self, Value};
use crate::catalog::{Class, ColumnType};

/// One record on its way into the builders.
pub(super) struct Row<'a> {
    pub(super) cells: Vec<Cell<'a>>,
    pub(super) extra: BTreeMap<String, String>,
    pub(super) faults: Vec<(usize, Option<String>, String)>,
    pub(super) lists: Vec<(usize, &'a str)>,
}

pub(super) enum Cell<'a> {
    Null,
    One(Value<'a>),
    List(Vec<Option<Value<'a>>>),
}

/// Walks the fields of a record without building a map of it.
pub(super) struct RecordVisitor<'d, 'r, 'a> {
    pub(super) decoder: &'d mut Decoder,
    pub(super) row: &'r mut Row<'a>,
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
    /// Converts one field's value into its cell, or into a fault.
    pub(super) fn take_column<'a>(
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
        slots: &Slots,
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
