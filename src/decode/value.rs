//! One JSON value, as its text, becomes one typed value or a reason why not.
//!
//! Working on the text keeps money exact: digits are counted, never passed through a binary float.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::tz::TimeZone;

use crate::catalog::Scalar;
use crate::text::{scaled, whole_number, wrong_type};
use crate::ticks::Ticks;

/// A value that fits a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Value<'a> {
    Int(i64),
    Text(Cow<'a, str>),
    Bool(bool),
    /// Scaled by the column's scale: 12.5 with scale 2 is 1250.
    Decimal(i128),
    /// Microseconds since the Unix epoch.
    Instant(i64),
    Guid([u8; 16]),
    /// Days since 1970-01-01.
    Date(i32),
}

impl Value<'_> {
    /// Adds the value as it stands in a record's key.
    pub(crate) fn write_key(&self, scale: u32, to: &mut String) {
        // Writing to a text does not fail.
        let _ = match self {
            Value::Int(i) => write!(to, "{i}"),
            Value::Text(t) => to.write_str(t),
            Value::Bool(b) => write!(to, "{b}"),
            Value::Decimal(d) => to.write_str(&decimal_text(*d, scale)),
            Value::Instant(us) => write!(to, "{us}"),
            Value::Guid(bytes) => write!(to, "{}", uuid::Uuid::from_bytes(*bytes)),
            Value::Date(days) => to.write_str(&date_text(*days)),
        };
    }
}

/// 1970-01-01, from which days are counted.
const EPOCH_DAY: jiff::civil::Date = jiff::civil::Date::constant(1970, 1, 1);

fn date_text(days: i32) -> String {
    let span = jiff::Span::new().try_days(days);
    span.and_then(|span| EPOCH_DAY.checked_add(span))
        .map_or_else(|_| days.to_string(), |date| date.to_string())
}

/// A day written `yyyy-mm-dd`.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn date(text: &str) -> Result<Value<'static>, String> {
    let day: jiff::civil::Date = text.parse().map_err(|_| "not a day (yyyy-mm-dd)".to_owned())?;
    let since = EPOCH_DAY.until(day).map_err(|e| e.to_string())?;
    Ok(Value::Date(since.get_days()))
}

/// A decimal of so many digits behind the point, exactly.
pub(crate) fn decimal_text(value: i128, scale: u32) -> String {
    let digits = format!("{:0width$}", value.unsigned_abs(), width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    let sign = if value < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Reads `raw`, the text of one JSON value, as `kind`; JSON `null` and the unset date are `None`.
///
/// # Errors
/// Why the value does not fit, in words for `sync.rejects`.
pub(crate) fn scalar<'a>(
    kind: Scalar,
    raw: &'a str,
    zone: &TimeZone,
) -> Result<Option<Value<'a>>, String> {
    if raw == "null" {
        return Ok(None);
    }
    let value = match kind {
        Scalar::Int => Value::Int(whole_number(raw)?),
        Scalar::Text => match raw.as_bytes().first() {
            Some(b'"') => Value::Text(string(raw)?),
            _ => return Err(wrong_type("a string", raw)),
        },
        Scalar::Enum => match raw.as_bytes().first() {
            Some(b'"') => Value::Text(string(raw)?),
            Some(b'-' | b'0'..=b'9') => Value::Text(Cow::Borrowed(raw)),
            _ => return Err(wrong_type("a name or a number", raw)),
        },
        Scalar::Bool => match raw {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return Err(wrong_type("true or false", raw)),
        },
        Scalar::Money => Value::Decimal(decimal(raw, 2)?),
        Scalar::Decimal => Value::Decimal(decimal(raw, 6)?),
        Scalar::Instant => {
            let text = text_of(raw, "a date-time")?;
            match Ticks::parse(&text, zone) {
                Ok(None) => return Ok(None),
                Ok(Some(ticks)) => Value::Instant(ticks.micros()),
                Err(e) => return Err(e.to_string()),
            }
        }
        Scalar::Guid => {
            let text = text_of(raw, "a GUID")?;
            let guid = uuid::Uuid::try_parse(&text).map_err(|_| "not a GUID".to_owned())?;
            Value::Guid(guid.into_bytes())
        }
        Scalar::Date => date(&text_of(raw, "a day")?)?,
    };
    Ok(Some(value))
}

fn text_of<'a>(raw: &'a str, wanted: &str) -> Result<Cow<'a, str>, String> {
    if raw.starts_with('"') { string(raw) } else { Err(wrong_type(wanted, raw)) }
}

/// Unescapes a JSON string; borrows where nothing is escaped.
pub(super) fn string(raw: &str) -> Result<Cow<'_, str>, String> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if inner.bytes().any(|b| b == b'\\') {
        serde_json::from_str::<String>(raw)
            .map(Cow::Owned)
            .map_err(|_| "not valid text (a broken escape)".to_owned())
    } else {
        Ok(Cow::Borrowed(inner))
    }
}

fn decimal(raw: &str, scale: u32) -> Result<i128, String> {
    let value = scaled(raw, scale, "a number")?;
    if value.unsigned_abs() < 10_u128.pow(18) {
        Ok(value)
    } else {
        Err(format!("out of the range of DECIMAL(18,{scale})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(kind: Scalar, raw: &str) -> Result<Option<Value<'_>>, String> {
        scalar(kind, raw, &TimeZone::get("Europe/Oslo").unwrap())
    }

    #[test]
    fn money_is_exact_to_the_last_digit() {
        fn money(raw: &str) -> Result<Option<Value<'_>>, String> {
            read(Scalar::Money, raw)
        }
        assert_eq!(money("0.1"), Ok(Some(Value::Decimal(10))));
        assert_eq!(
            money("-9999999999999999.99"),
            Ok(Some(Value::Decimal(-999_999_999_999_999_999)))
        );
        assert_eq!(money("9007199254740993.01"), Ok(Some(Value::Decimal(900_719_925_474_099_301))));
        assert_eq!(money("1.5e3"), Ok(Some(Value::Decimal(150_000))));
        assert_eq!(money("12.500000"), Ok(Some(Value::Decimal(1250))));
        assert_eq!(money("150E-1"), Ok(Some(Value::Decimal(1500))));
        assert_eq!(money("-0.0"), Ok(Some(Value::Decimal(0))));
        assert_eq!(money("0.005"), Err("more than 2 decimals".to_owned()));
        assert_eq!(money("10000000000000000"), Err("out of the range of DECIMAL(18,2)".to_owned()));
        assert_eq!(money("1e999999999"), Err("out of range".to_owned()));
        assert!(money("\"12.50\"").is_err());
    }

    #[test]
    fn the_tail_of_a_binary_fraction_is_no_part_of_an_amount() {
        for (text, ore) in [
            ("1234.5600000001", 123_456),
            ("-1234.5600000001", -123_456),
            ("1234.5599999999", 123_456),
            ("0.30000000000000004", 30),
            ("0.29999999999999999", 30),
            ("99.99999999999999", 10_000),
            ("-0.00000001", 0),
            ("1e-12", 0),
            ("123456000000001e-11", 123_456),
            ("1234.56000099", 123_456),
        ] {
            assert_eq!(read(Scalar::Money, text), Ok(Some(Value::Decimal(ore))), "{text}");
        }
        // Further off than a tail, or with fewer decimals than one has.
        for text in [
            "1234.56000101",
            "1234.5600010000000",
            "1234.5600001",
            "1234.5599999",
            "1234.55999899",
            "1234.565",
            "1234.56500000001",
            "0.00123456789",
        ] {
            let told = read(Scalar::Money, text);
            assert_eq!(told, Err("more than 2 decimals".to_owned()), "{text}");
        }
        assert_eq!(read(Scalar::Decimal, "0.30000000000000004"), Ok(Some(Value::Decimal(300_000))));
        assert!(read(Scalar::Decimal, "0.12345678").is_err());
        assert!(read(Scalar::Int, "5.00000000000001").is_err());
    }

    #[test]
    fn whole_numbers_may_be_written_with_zeros_but_not_with_a_fraction() {
        assert_eq!(read(Scalar::Int, "5.0"), Ok(Some(Value::Int(5))));
        assert_eq!(read(Scalar::Int, "9223372036854775807"), Ok(Some(Value::Int(i64::MAX))));
        assert!(read(Scalar::Int, "9223372036854775808").is_err());
        assert!(read(Scalar::Int, "5.5").is_err());
        assert_eq!(
            read(Scalar::Int, "\"5\""),
            Err("a string where a whole number belongs".to_owned())
        );
    }

    #[test]
    fn an_enumeration_may_be_a_number_but_text_may_not() {
        assert_eq!(read(Scalar::Enum, "150"), Ok(Some(Value::Text("150".into()))));
        assert!(read(Scalar::Text, "150").is_err());
    }

    #[test]
    fn text_keeps_what_json_escapes() {
        let read = read(Scalar::Text, r#""a\"b\u00e6\ud83d\ude00\n""#);
        assert_eq!(read, Ok(Some(Value::Text("a\"bæ😀\n".into()))));
        assert!(super::tests::read(Scalar::Text, r#""\ud800""#).is_err());
    }

    #[test]
    fn unset_and_null_are_nothing_and_a_skipped_hour_moves_forward() {
        assert_eq!(read(Scalar::Instant, "null"), Ok(None));
        assert_eq!(read(Scalar::Instant, "\"0001-01-01T00:00:00\""), Ok(None));
        // 02:30 does not exist in Oslo on 2026-03-29: it is 03:30 summer time.
        assert_eq!(
            read(Scalar::Instant, "\"2026-03-29T02:30:00\""),
            read(Scalar::Instant, "\"2026-03-29T01:30:00Z\"")
        );
        assert!(read(Scalar::Instant, "\"soon\"").is_err());
    }

    proptest! {
        #[test]
        fn any_amount_survives(ore in -999_999_999_999_999_999_i64..=999_999_999_999_999_999) {
            let text = decimal_text(i128::from(ore), 2);
            prop_assert_eq!(decimal(&text, 2), Ok(i128::from(ore)));
        }

        #[test]
        fn no_number_panics(text in "-?[0-9]{0,40}(\\.[0-9]{0,40})?([eE][+-]?[0-9]{0,12})?") {
            let _ = scaled(&text, 2, "a number");
        }
    }
}
