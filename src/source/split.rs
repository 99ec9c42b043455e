//! Takes the body of a list apart, without copying: a bare array, or `{Count, Results}`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

use super::names::{is_field, shown_fields};
use super::request::Answer;
use crate::error::{Error, Kind, Result};

/// The records of one answer, as they stand in its body.
#[derive(Debug)]
pub struct Split<'body> {
    pub records: Vec<&'body RawValue>,
    /// The total number of matching records, where the answer says it.
    pub(crate) count: Option<u64>,
}

#[derive(Deserialize)]
struct Counted<'body> {
    #[serde(rename = "Count", default, borrow)]
    count: Option<&'body RawValue>,
    /// `None` when it is not there, `Some(None)` when it is `null`.
    #[serde(rename = "Results", default, borrow, deserialize_with = "given")]
    results: Option<Option<Vec<&'body RawValue>>>,
}

fn given<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<Vec<&'de RawValue>>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// The records of an answer: 204 is a list without any.
///
/// # Errors
/// Those of [`split`].
pub(crate) fn records(answer: &Answer) -> Result<Split<'_>> {
    if answer.status == 204 {
        return Ok(Split { records: Vec::new(), count: None });
    }
    split(&answer.body)
}

/// Takes the body of a list apart. Nothing at all is no list: a proxy's empty answer must not pass for
/// one without records.
///
/// # Errors
/// [`Kind::BadAnswer`] when the body is broken JSON or of another shape, telling what was met.
pub fn split(body: &[u8]) -> Result<Split<'_>> {
    let broken = |cause: serde_json::Error| {
        Error::caused(Kind::BadAnswer, "the list is broken JSON", describe(&cause))
    };
    match body.trim_ascii_start().first() {
        Some(b'[') => {
            Ok(Split { records: serde_json::from_slice(body).map_err(broken)?, count: None })
        }
        Some(b'{') => {
            let counted: Counted = serde_json::from_slice(body)
                .map_err(|cause| if cause.is_data() { other_shape(body) } else { broken(cause) })?;
            let Some(results) = counted.results else { return Err(other_shape(body)) };
            let count = counted.count.and_then(|count| count.get().parse().ok());
            Ok(Split { records: results.unwrap_or_default(), count })
        }
        Some(_) => match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Err(other_shape(body)),
            Err(cause) => Err(broken(cause)),
        },
        None => Err(Error::new(Kind::BadAnswer, "not a list: the answer is empty")),
    }
}

/// Where the fault lies and of what sort it is, but no text of the answer.
pub(super) fn describe(cause: &serde_json::Error) -> String {
    let what = match cause.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Io
        | serde_json::error::Category::Syntax
        | serde_json::error::Category::Data => "it does not parse",
    };
    format!("{what}, in line {} column {}", cause.line(), cause.column())
}

pub(super) fn other_shape(body: &[u8]) -> Error {
    let met = match serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) {
        Ok(fields) => {
            let names = fields.keys().map(String::as_str);
            format!("an object of the fields {}", shown_fields(names, is_field))
        }
        // A bare value can be personal.
        Err(_) => "a bare value".to_owned(),
    };
    let text = format!("not a list and not {{Count, Results}}: met {met}");
    Error::new(Kind::BadAnswer, text)
}

/// The JSON text of `field` in the object `record`; `None` when it has none, or is no object. Reads
/// no further than the field.
pub(crate) fn field_of<'r>(record: &'r str, field: &str) -> Option<&'r str> {
    let mut found = None;
    let seeker = Seeker { field, found: &mut found };
    // It ends by an error as soon as the field is found.
    let _ = seeker.deserialize(&mut serde_json::Deserializer::from_str(record));
    found.map(RawValue::get)
}

struct Seeker<'s, 'r> {
    field: &'s str,
    found: &'s mut Option<&'r RawValue>,
}

impl<'r> DeserializeSeed<'r> for Seeker<'_, 'r> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'r>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'r> Visitor<'r> for Seeker<'_, 'r> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(is_it) = fields.next_key_seed(Is(self.field))? {
            if is_it {
                *self.found = Some(fields.next_value()?);
                return Err(A::Error::custom("found"));
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Whether a key is the one sought, without keeping it.
struct Is<'s>(&'s str);

impl<'r> DeserializeSeed<'r> for Is<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'r>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

/// A fingerprint of 128 bits; the same text has the same one within this process.
pub(crate) fn fingerprint<'t>(texts: impl IntoIterator<Item = &'t str>) -> u128 {
    fingerprint_of_bytes(texts.into_iter().map(str::as_bytes))
}

fn fingerprint_of_bytes<'t>(parts: impl IntoIterator<Item = &'t [u8]>) -> u128 {
    let (mut high, mut low) = (DefaultHasher::new(), DefaultHasher::new());
    high.write_u8(1);
    low.write_u8(2);
    for part in parts {
        // The length keeps "ab", "c" apart from "a", "bc".
        high.write_usize(part.len());
        high.write(part);
        low.write_usize(part.len());
        low.write(part);
    }
    (u128::from(high.finish()) << 64) | u128::from(low.finish())
}

/// The fingerprint of a value of JSON. White space and the order of an object's fields have no meaning, and no part
/// in it; numbers and texts, and what lies deeper than [`MAX_DEPTH`], are what is written.
pub(crate) fn fingerprint_of_value(value: &str) -> u128 {
    Printer { depth: 0 }.print(value)
}

/// A stack is not endless, and no record of the platform is nested like this.
const MAX_DEPTH: usize = 32;

/// Takes the fingerprint of an object or a list that lies in so many others.
struct Printer {
    depth: usize,
}

impl Printer {
    fn print(self, value: &str) -> u128 {
        let value = value.trim_ascii();
        let compound = match value.as_bytes().first() {
            _ if self.depth == MAX_DEPTH => None,
            Some(b'{') => serde_json::Deserializer::from_str(value).deserialize_map(self).ok(),
            Some(b'[') => serde_json::Deserializer::from_str(value).deserialize_seq(self).ok(),
            _ => None,
        };
        compound.unwrap_or_else(|| fingerprint([value]))
    }

    fn print_part(&self, part: &RawValue) -> [u8; 16] {
        Printer { depth: self.depth + 1 }.print(part.get()).to_le_bytes()
    }
}

impl<'r> Visitor<'r> for Printer {
    type Value = u128;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<u128, A::Error> {
        let mut sum = u128::from(b'{');
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let value = self.print_part(value);
            // In whatever order they come.
            sum = sum.wrapping_add(fingerprint_of_bytes([name.get().as_bytes(), &value]));
        }
        Ok(sum)
    }

    fn visit_seq<A: SeqAccess<'r>>(self, mut list: A) -> Result<u128, A::Error> {
        let mut all = u128::from(b'[');
        while let Some(value) = list.next_element::<&RawValue>()? {
            let value = self.print_part(value);
            all = fingerprint_of_bytes([&all.to_le_bytes()[..], &value]);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::shape::{self, Expected, Shape};
    use super::super::validate::faulty_json;
    use super::*;
    use crate::fuzz::{self, Mutated};
    use rstest::rstest;

    fn texts(body: &str) -> Vec<String> {
        split(body.as_bytes()).unwrap().records.iter().map(|r| r.get().to_owned()).collect()
    }

    #[test]
    fn both_shapes_of_a_list_are_taken_apart() {
        assert_eq!(texts(r#" [ {"Id": 1.10} , 2 ] "#), [r#"{"Id": 1.10}"#, "2"]);
        let body = r#"{"Results": [{"Id": 1}], "More": {"Count": 9}, "Count": 7}"#;
        let counted = split(body.as_bytes()).unwrap();
        assert_eq!((counted.records.len(), counted.count), (1, Some(7)));
    }

    #[rstest]
    #[case("[]")]
    #[case(r#"{"Count": 0, "Results": null}"#)]
    fn nothing_has_several_forms(#[case] body: &str) {
        assert!(split(body.as_bytes()).unwrap().records.is_empty());
    }

    #[rstest]
    #[case(r#"{"Message": "hello"}"#, "an object of the fields Message")]
    #[case("17", "met a bare value")]
    #[case("null", "met a bare value")]
    #[case("", "empty")]
    #[case("  ", "empty")]
    #[case(r#"{"Results": 5}"#, "an object of the fields Results")]
    #[case(r#"{"Count": 5}"#, "an object of the fields Count")]
    fn another_shape_is_named(#[case] body: &str, #[case] met: &str) {
        let error = split(body.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::BadAnswer);
        assert!(error.to_string().contains(met), "{error}");
    }

    #[rstest]
    #[case(r#"[{"Id": 1}, {"Id": 2"#)]
    #[case(r#"{"Results": [{"Id": 1}"#)]
    #[case(r#"[1 2]"#)]
    #[case("[1] trailing")]
    #[case("<html>")]
    fn broken_json_is_a_bad_answer(#[case] body: &str) {
        let error = split(body.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::BadAnswer, "{error}");
    }

    #[test]
    fn text_that_is_not_utf8_is_a_bad_answer() {
        assert_eq!(split(b"[\"\xff\"]").unwrap_err().kind(), Kind::BadAnswer);
    }

    #[test]
    fn a_field_is_found_at_its_own_level_only() {
        let record = r#"{"Inner": {"Id": 1}, "I\u0064": 17, "Rest": [1, 2"#;
        assert_eq!(field_of(record, "Id"), Some("17"));
        assert_eq!(field_of(r#"{"Id": "x"}"#, "Id"), Some("\"x\""));
        assert_eq!(field_of(r#"{"ID": 1}"#, "Id"), None);
        assert_eq!(field_of("[1]", "Id"), None);
    }

    #[test]
    fn fingerprints_tell_texts_apart() {
        assert_eq!(fingerprint(["a", "b"]), fingerprint(["a", "b"]));
        assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
    }

    #[test]
    fn values_of_json_are_the_same_however_they_are_written() {
        let line = r#"{"Id": 1, "Sub": {"X": [1, 2.50], "Y": null}, "Text": "a \" b"}"#;
        let same = r#" {"Text":"a \" b","Sub":{"Y":null,"X":[1,2.50]},"Id":1} "#;
        assert_eq!(fingerprint_of_value(line), fingerprint_of_value(same));
        for other in [
            line.replace("2.50", "2.5"),
            line.replace("[1, 2.50]", "[2.50, 1]"),
            line.replace("\"Id\": 1", "\"Id\": 2"),
            line.replace("\"Y\"", "\"Z\""),
            line.replace("null", "{}"),
        ] {
            assert_ne!(fingerprint_of_value(line), fingerprint_of_value(&other), "{other}");
        }
        assert_ne!(fingerprint_of_value("{}"), fingerprint_of_value("[]"));
        // As deep as garbage can be.
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested =
                |n: usize, inner: &str| format!("{}{inner}{}", open.repeat(n), close.repeat(n));
            let deep = fingerprint_of_value(&nested(200_000, "1"));
            assert_ne!(deep, fingerprint_of_value(&nested(200_000, "2")));
        }
    }

    const ANSWERS: [&[u8]; 6] = [
        br#"[{"Id": 1, "CaseId": 1, "Name": "a\u00e6\n"}, {"Id": 2, "Sub": {"X": [1, 2.50, null]}}]"#,
        br#"{"Count": 2, "Results": [{"Id": 1}, {"Id": 2}]}"#,
        br#"{"Id": 7, "Type": "Person"}"#,
        br#"{"Message": "An error has occurred.", "ExceptionMessage": "x"}"#,
        b"12345.67",
        b"<html><title>Sign in</title></html>",
    ];

    /// What is taken for a list has the records that a JSON parser finds, and what is no JSON is no list.
    #[test]
    fn fuzz_answers() {
        let expected =
            |shape| Expected { shape, fields: ["Id".to_owned()].into(), ..Expected::list() };
        let shapes = [Shape::List, Shape::Record, Shape::Scalar].map(|s| Arc::new(expected(s)));
        bolero::check!().with_type::<Mutated>().with_test_time(fuzz::TIME).for_each(|input| {
            let body = input.of(&ANSWERS, &fuzz::JSON);
            let parsed = serde_json::from_slice::<IgnoredAny>(&body).is_ok();
            let _ = faulty_json(&body);
            for shape in &shapes {
                let fault = shape::fault(&body, Some(shape), 3);
                assert!(
                    fault.is_some() || parsed || body.trim_ascii().is_empty(),
                    "{shape:?} {:?}",
                    String::from_utf8_lossy(&body)
                );
            }
            if let Ok(split) = split(&body) {
                assert!(parsed);
                for record in &split.records {
                    serde_json::from_str::<IgnoredAny>(record.get()).unwrap();
                }
                if let Ok(list) = serde_json::from_slice::<Vec<IgnoredAny>>(&body) {
                    assert_eq!(split.records.len(), list.len());
                }
            }
        });
    }
}
