//! What an answer has to be before anything of it is believed: decided here, once, for whoever reads
//! records, ids or feed rows out of it.
//!
//! A proxy's empty page and an error object come with status 200 too (field notes). Taken for "there is
//! none", or for a record without values, they would remove rows. So an answer is held against what was
//! asked: a list where one is due, records that have at least a field of their table, that name no
//! field twice, and that do not speak of another id than the one they were asked by.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::field_names::FieldNames;
use super::names::{is_field, shown_fields};
use super::refusal;
use super::split::{describe, other_shape};
use crate::error::{Error, Kind};
use crate::text::{JsonText, trim_json, whole_number};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One object, or none.
    Record,
    /// One bare value, or none.
    Scalar,
    /// An array, or `{Count, Results}`.
    List,
}

/// What an answer has to be.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    /// Whose records they are, for messages.
    pub(crate) table: String,
    pub(crate) shape: Shape,
    /// Fields of which each record has at least one; none where any will do.
    pub(crate) fields: HashSet<String>,
    /// Ids that the records were asked by, with the fields that repeat them.
    pub(crate) asked: Vec<(String, i64)>,
    pub(crate) pardons: Pardons,
}

/// Which records of a list that are none do not spoil the others: whoever reads the records tells of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pardons {
    Nothing,
    /// Half of them at most: where more are none, it is not the list that was asked for.
    Half,
    /// All but one.
    AllButOne,
}

impl Pardons {
    /// Whether so many of so many records that are none are too many.
    fn are_too_many(self, none: u64, of: u64) -> bool {
        match self {
            Pardons::Nothing => none > 0,
            Pardons::Half => none * 2 > of,
            Pardons::AllButOne => none > 0 && none == of,
        }
    }
}

impl Expected {
    /// A list of whatever records.
    pub(crate) fn list() -> Expected {
        Expected {
            table: String::new(),
            shape: Shape::List,
            fields: HashSet::new(),
            asked: Vec::new(),
            pardons: Pardons::Nothing,
        }
    }

    /// What each record of the list has to be, where those that are none are pardoned.
    pub(crate) fn of_one(&self) -> Arc<Expected> {
        let one = Expected { shape: Shape::Record, pardons: Pardons::Nothing, ..self.clone() };
        Arc::new(one)
    }
}

/// What is wrong with one record of a list; see [`Expected::of_one`].
pub(crate) fn fault_of_record(record: &[u8], one: &Arc<Expected>) -> Option<Error> {
    fault(record, Some(one), 1)
}

/// What is wrong with `body`, if anything; no text of the answer is in it but names of fields that
/// are known.
/// `most` is how many records an answer may have: [`Kind::TooLarge`] where it has more, else
/// [`Kind::BadAnswer`].
pub(super) fn fault(body: &[u8], expected: Option<&Arc<Expected>>, most: u64) -> Option<Error> {
    let expected = expected.map(Arc::as_ref);
    let trimmed = trim_json(body);
    let of = |what: &str| {
        let table = expected.map_or("", |expected| expected.table.as_str());
        let of = if table.is_empty() { String::new() } else { format!(" of {table}") };
        Some(Error::new(Kind::BadAnswer, format!("the answer{of} {what}")))
    };
    let first = trimmed.first();
    match expected.map(|expected| expected.shape) {
        None | Some(Shape::Record | Shape::Scalar) if body.is_empty() => return None,
        _ if first.is_none() => return of("is empty"),
        Some(Shape::Record | Shape::Scalar) | None if trimmed == b"null" => return None,
        Some(Shape::Record) if first != Some(&b'{') => return of("is not an object"),
        Some(Shape::Scalar) if matches!(first, Some(b'{' | b'[')) => {
            return of("is not a bare value");
        }
        Some(Shape::List) if !matches!(first, Some(b'{' | b'[')) => return of("is not a list"),
        _ => {}
    }
    // Looked at once: field by field it costs more than all else here.
    let Ok(body) = std::str::from_utf8(body) else { return of("is broken JSON: it is no UTF-8") };
    let mut scan = Scan {
        expected,
        most,
        records: 0,
        results: false,
        count: Counted::Nothing,
        names: FieldNames::default(),
        found: None,
        too_many: false,
        pardoned: (0, None),
    };
    let mut json = serde_json::Deserializer::from_str(body);
    let scanned = match first {
        Some(b'[') => Elements(&mut scan).deserialize(&mut json),
        Some(b'{') if expected.is_some_and(|expected| expected.shape == Shape::Record) => {
            Record(&mut scan).deserialize(&mut json)
        }
        Some(b'{') => Envelope(&mut scan).deserialize(&mut json),
        _ => serde::Deserialize::deserialize(&mut json).map(|_: IgnoredAny| ()),
    };
    let Scan { results, count, found, too_many, pardoned, records, .. } = scan;
    match scanned.and_then(|()| json.end()) {
        Err(_) if too_many => {
            let text = format!("the answer has more than {most} records (limits.answer_records)");
            Some(Error::new(Kind::TooLarge, text))
        }
        Err(_) if found.is_some() => of(&found.unwrap_or_default()),
        Err(cause) => of(&format!("is broken JSON: {}", describe(&cause))),
        Ok(()) if expected.is_some_and(|e| e.pardons.are_too_many(pardoned.0, records)) => {
            of(&pardoned.1.unwrap_or_default())
        }
        Ok(()) => {
            let list = expected.is_some_and(|expected| expected.shape == Shape::List);
            if !list || first != Some(&b'{') {
                return None;
            }
            match count {
                _ if !results => Some(other_shape(body.as_bytes())),
                Counted::NoNumber => of("has a Count that is no number of records"),
                // That there are none has to be said.
                Counted::Nothing if records == 0 => of("has neither records nor a Count"),
                Counted::Nothing | Counted::Number(_) => None,
            }
        }
    }
}

/// What an envelope says of how many records there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Nothing,
    /// What is no number of records.
    NoNumber,
    Number(u64),
}

/// A walk over an answer.
struct Scan<'e, 'de> {
    expected: Option<&'e Expected>,
    most: u64,
    records: u64,
    /// The envelope holds `Results`.
    results: bool,
    /// What it says in `Count`.
    count: Counted,
    names: FieldNames<'de>,
    /// What is wrong: the walk ends there, by an error that says nothing.
    found: Option<String>,
    /// It has more than `most` records: the walk ends there as well.
    too_many: bool,
    /// How many records are none and are pardoned, and what is wrong with the first.
    pardoned: (u64, Option<String>),
}

impl<'de> Scan<'_, 'de> {
    fn wrong<E: serde::de::Error>(&mut self, what: String) -> E {
        self.found = Some(what);
        E::custom("wrong")
    }

    /// Whether the name of a field is no person's.
    fn may_show(&self, name: &str) -> bool {
        is_field(name) || self.expected.is_some_and(|expected| expected.fields.contains(name))
    }

    /// A record is none; the walk goes on where that is pardoned.
    fn is_none<E: serde::de::Error>(&mut self, what: String) -> Result<(), E> {
        if self.expected.is_none_or(|expected| expected.pardons == Pardons::Nothing) {
            return Err(self.wrong(what));
        }
        self.pardoned.0 += 1;
        self.pardoned.1.get_or_insert(what);
        Ok(())
    }

    /// Walks over an object and returns the name that it has twice, if it does; `each` says whether it took the
    /// field's value.
    fn fields<A: MapAccess<'de>>(
        &mut self,
        mut map: A,
        mut each: impl FnMut(&mut Self, &str, &mut A) -> Result<bool, A::Error>,
    ) -> Result<Option<String>, A::Error> {
        // Those of an envelope are not those of the records within.
        let mut names = std::mem::take(&mut self.names);
        names.begin();
        let mut twice = None;
        while let Some(JsonText(name)) = map.next_key()? {
            if names.is_twice(name.clone()) {
                twice.get_or_insert_with(|| name.to_string());
            }
            if !each(self, &name, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        self.names = names;
        Ok(twice.map(|name| match self.may_show(&name) {
            true => format!("has a record that names the field {name} twice"),
            false => "has a record that names a field twice".to_owned(),
        }))
    }
}

/// A list of records.
struct Elements<'s, 'e, 'de>(&'s mut Scan<'e, 'de>);

impl<'de> DeserializeSeed<'de> for Elements<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Record(self.0))?.is_some() {
            self.0.records += 1;
            if self.0.records > self.0.most {
                self.0.too_many = true;
                return Err(serde::de::Error::custom("too many"));
            }
        }
        Ok(())
    }

    /// `Results` of an answer that has none.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// `{Count, Results}`, or an object of which nothing is known.
struct Envelope<'s, 'e, 'de>(&'s mut Scan<'e, 'de>);

impl<'de> DeserializeSeed<'de> for Envelope<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Envelope<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let list = self.0.expected.is_some_and(|expected| expected.shape == Shape::List);
        self.0
            .fields(map, |scan, name, map| {
                if !list {
                    return Ok(false);
                }
                match name {
                    "Results" => {
                        scan.results = true;
                        map.next_value_seed(Elements(scan))?;
                    }
                    "Count" => {
                        let count: &RawValue = map.next_value()?;
                        scan.count = match (count.get(), count.get().parse()) {
                            ("null", _) => Counted::Nothing,
                            (_, Ok(count)) => Counted::Number(count),
                            (_, Err(_)) => Counted::NoNumber,
                        };
                    }
                    _ => return Ok(false),
                }
                Ok(true)
            })
            .and_then(|twice| match twice {
                Some(what) => Err(self.0.wrong(what)),
                None => Ok(()),
            })
    }
}

/// One record; an element that is no object is the decoder's to judge.
struct Record<'s, 'e, 'de>(&'s mut Scan<'e, 'de>);

impl<'de> DeserializeSeed<'de> for Record<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Record<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let expected = self.0.expected;
        let any_will_do = expected.is_none_or(|expected| expected.fields.is_empty());
        let is_alone = expected.is_some_and(|expected| expected.shape == Shape::Record);
        let mut known = any_will_do;
        // The field of an error's message, and whether there is a value that no error has.
        let (mut message, mut is_data) = (None, any_will_do);
        let twice = self.0.fields(map, |scan, name, map| {
            let Some(expected) = expected else { return Ok(false) };
            let is_of_table = expected.fields.contains(name);
            known = known || is_of_table;
            if let Some((field, id)) = expected.asked.iter().find(|(field, _)| field == name) {
                let value: &RawValue = map.next_value()?;
                if !is_id(value.get(), *id) {
                    return Err(scan.wrong(format!("was asked for {id} and has another {field}")));
                }
                return Ok(true);
            }
            // Among the records of a list no error is looked for: it would cost more than all else here. Those of a page that
            // has some that are none are judged one by one.
            if !is_alone || is_data {
                return Ok(false);
            }
            let value: &RawValue = map.next_value()?;
            if value.get() != "null" {
                is_data = is_of_table && !is_common(name);
                if !is_of_table && refusal::is_message(name) {
                    message = Some(name.to_owned());
                }
            }
            Ok(true)
        })?;
        if let Some(what) = twice {
            return self.0.is_none(what);
        }
        if let Some(message) = message.filter(|_| known && !is_data) {
            let what = format!(
                "is an error's: beside {message} it has of its table's fields none but what errors have too"
            );
            return self.0.is_none(what);
        }
        if known {
            return Ok(());
        }
        let met = shown_fields(self.0.names.of_record(), |name| self.0.may_show(name));
        let met = if met.is_empty() { "no field at all" } else { &met };
        let what = format!("has none of the fields of its table: met {met}");
        self.0.is_none(what)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Whether errors have a field of this name as well as records: what is in it does not tell them apart.
fn is_common(field: &str) -> bool {
    const COMMON: [&str; 8] =
        ["Id", "Type", "Name", "Code", "Status", "Title", "Instance", "Timestamp"];
    refusal::is_message(field) || COMMON.iter().any(|common| common.eq_ignore_ascii_case(field))
}

/// Whether a field repeats the id that was asked for, or says nothing. Ids come in quotes as well.
fn is_id(raw: &str, id: i64) -> bool {
    raw == "null" || whole_number(raw.trim_matches('"')) == Ok(id)
}

#[cfg(test)]
mod tests;
