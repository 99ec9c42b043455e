//! What a text says: cron expressions and sizes, which are stricter here than where they are used.

use croner::Cron;
use croner::parser::{CronParser, Year};
use jiff::tz::TimeZone;

/// Parses a cron expression; the error is the rule that it breaks.
pub(super) fn cron(expression: &str, rule: &str) -> Result<Cron, String> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    if !matches!(fields.len(), 5 | 6) {
        return Err(rule.to_owned());
    }
    let weekdays = fields[fields.len() - 1];
    if names_a_weekday_by_number(weekdays) {
        return Err("weekdays are written by name (Sun, Mon, Tue, Wed, Thu, Fri, Sat), because \
                    not all programs number them alike"
            .to_owned());
    }
    let parser = CronParser::builder().year(Year::Disallowed).build();
    let cron = parser.parse(expression).map_err(|error| format!("{rule}; {error}"))?;
    // Any start would do, and any zone: the day is missing from the calendar.
    let comes_true = jiff::civil::date(2026, 1, 1)
        .to_zoned(TimeZone::UTC)
        .is_ok_and(|start| cron.find_next_occurrence(&start, true).is_ok());
    if comes_true { Ok(cron) } else { Err("never comes true: there is no such day".to_owned()) }
}

/// Whether a weekday field holds a number that is neither a step (`/2`) nor a count (`#2`).
fn names_a_weekday_by_number(field: &str) -> bool {
    let mut before = ',';
    for letter in field.chars() {
        if letter.is_ascii_digit() && !matches!(before, '/' | '#') {
            return true;
        }
        // The second digit of a step belongs to it.
        if !letter.is_ascii_digit() {
            before = letter;
        }
    }
    false
}

/// The bytes that DuckDB understands by a memory limit: a number and a unit.
pub(super) fn memory_bytes(text: &str) -> Option<f64> {
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
