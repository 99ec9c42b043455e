//! What a text says, where more is asked of it than that it can be parsed; and how a value is
//! written in a message.

use figment::value::{Num, Value};
use jiff::tz::TimeZone;

/// Longer texts are cut in messages.
const SHOWN_CHARACTERS: usize = 60;

/// A zone that has a name, so that it can be shown and stored.
pub(super) fn named_zone(text: &str) -> Option<TimeZone> {
    TimeZone::get(text).ok().filter(|zone| !zone.is_unknown() && zone.iana_name().is_some())
}

/// The bytes that DuckDB understands by a memory limit: a number and a unit.
pub(crate) fn memory_bytes(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit_start = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_start);
    let bytes_per_unit = match unit.trim().to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => 1.0,
        "k" | "kb" | "kilobyte" | "kilobytes" => 1e3,
        "m" | "mb" | "megabyte" | "megabytes" => 1e6,
        "g" | "gb" | "gigabyte" | "gigabytes" => 1e9,
        "t" | "tb" | "terabyte" | "terabytes" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * bytes_per_unit;
    // DuckDB keeps the limit in 64 bits; no machine comes near.
    (bytes < 2f64.powi(63)).then_some(bytes)
}

/// A whole number, however large its type is.
pub(super) fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Num(_, number) => number
            .to_i128()
            .or_else(|| number.to_u128().and_then(|unsigned| i128::try_from(unsigned).ok())),
        _ => None,
    }
}

/// The value as it would be written; a long text is cut.
pub(super) fn written(value: &Value) -> String {
    match value {
        Value::String(_, text) if text.chars().count() > SHOWN_CHARACTERS => {
            let start: String = text.chars().take(SHOWN_CHARACTERS).collect();
            format!("{start:?}...")
        }
        Value::String(_, text) => format!("{text:?}"),
        Value::Char(_, letter) => format!("{:?}", letter.to_string()),
        Value::Bool(_, yes) => yes.to_string(),
        Value::Num(_, Num::F64(number)) => number.to_string(),
        Value::Num(..) => integer(value).map_or_else(String::new, |number| number.to_string()),
        Value::Empty(..) => "nothing".to_owned(),
        Value::Dict(..) => "a section".to_owned(),
        Value::Array(_, items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            format!("[{}]", items.join(", "))
        }
    }
}
