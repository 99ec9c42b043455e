//! The table of all keys: name, shape and default.
//!
//! Unknown keys are found, texts from the environment and the command line are converted, and the
//! lowest layer is filled by it. What values are *allowed* is said in `sections`.

use figment::value::Value;
use toml::de::DeValue;

use super::layers::figment_value;

/// What kind of value a key takes: how a text from outside the file becomes a value, and whether it
/// may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    /// Text that is never shown.
    Secret,
    /// Text that is shown only without a user name, password or query in it.
    Url,
    Integer,
    Number,
    /// A list; `a,b` and `["a", "b"]` outside the file.
    List,
    /// A list, or the word `all`.
    ListOrAll,
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// `section.key`.
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// As it would be typed on the command line; `None` for a key that has no default. An empty
    /// text stands for "none" or "off".
    pub(crate) default: Option<&'static str>,
}

const fn key(name: &'static str, shape: Shape, default: &'static str) -> Key {
    Key { name, shape, default: Some(default) }
}

const fn required(name: &'static str, shape: Shape) -> Key {
    Key { name, shape, default: None }
}

/// Every key, in the order of the sample configuration.
pub(super) const KEYS: &[Key] = &[
    required("source.base_url", Shape::Url),
    required("source.client_id", Shape::Text),
    required("source.client_secret", Shape::Secret),
    key("source.client_secret_file", Shape::Text, ""),
    key("source.time_zone", Shape::Text, "Europe/Oslo"),
    key("source.search_delay", Shape::Text, "30s"),
    key("source.doubt", Shape::Text, "10m"),
    key("source.ca_file", Shape::Text, ""),
    key("feed.style", Shape::Text, "odata"),
    key("feed.calls", Shape::Integer, "6"),
    key("feed.per", Shape::Text, "30s"),
    key("feed.poll", Shape::Text, "10s"),
    key("feed.contacts_poll", Shape::Text, "1m"),
    key("feed.overlap", Shape::Text, "10m"),
    key("limits.requests_per_second", Shape::Integer, "10"),
    key("limits.concurrency", Shape::Integer, "4"),
    key("limits.timeout", Shape::Text, "60s"),
    key("limits.journal_timeout", Shape::Text, "10m"),
    key("limits.answer_bytes", Shape::Text, "256MB"),
    key("limits.answer_records", Shape::Integer, "2000000"),
    key("bootstrap.since", Shape::Text, ""),
    key("store.path", Shape::Text, "data/store.duckdb"),
    key("store.memory_limit", Shape::Text, "1GB"),
    key("store.threads", Shape::Integer, "0"),
    key("publish.database", Shape::Text, "data/casemirror.duckdb"),
    key("publish.parquet", Shape::Text, "data/parquet"),
    key("publish.min_interval", Shape::Text, "60s"),
    key("publish.parquet_interval", Shape::Text, "15m"),
    key("publish.keep_snapshots", Shape::Integer, "7"),
    key("publish.keep_for", Shape::Text, "2h"),
    key("schedule.reference", Shape::Text, "15 1 * * *"),
    key("schedule.journals", Shape::Text, "15 3 * * *"),
    key("schedule.journals_recheck", Shape::Text, "15 5 * * Sun"),
    key("schedule.reconcile", Shape::Text, "15 4 * * *"),
    key("schedule.verify", Shape::Text, "15 6 * * *"),
    key("schedule.time_zone", Shape::Text, ""),
    key("journals.level", Shape::Text, "offices"),
    key("journals.ids", Shape::List, ""),
    key("journals.since", Shape::Text, ""),
    key("journals.trailing_months", Shape::Integer, "3"),
    key("journals.close_day", Shape::Integer, "10"),
    key("journals.recheck_months", Shape::Integer, "24"),
    key("reconcile.reread", Shape::Text, "changed"),
    key("reconcile.max_removed", Shape::Number, "0.02"),
    key("processing_bases.since", Shape::Text, "2018-01-01"),
    key("resources.disable", Shape::List, ""),
    key("resources.dir", Shape::Text, ""),
    key("history.tables", Shape::ListOrAll, "all"),
    key("privacy.identifiers", Shape::Text, "hash"),
    key("privacy.contact_details", Shape::Text, "keep"),
    key("serve.listen", Shape::Text, "127.0.0.1:8640"),
    key("serve.webhooks", Shape::Text, ""),
    key("serve.public_url", Shape::Url, ""),
];

/// The key named `section.name`.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether some key lies in this section.
pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(section, _)| section == name))
}

impl Shape {
    /// The value that a text outside the file stands for. A text that does not fit the shape stays
    /// a text, and is refused with all other wrong types when it is read.
    pub(super) fn parse(self, text: &str) -> Value {
        match self {
            Shape::Text | Shape::Secret | Shape::Url => Value::from(text),
            Shape::Integer => integer_or_text(text),
            Shape::Number => match text.trim().parse::<f64>() {
                Ok(number) => Value::from(number),
                Err(_) => Value::from(text),
            },
            Shape::ListOrAll if text.trim() == "all" => Value::from("all"),
            Shape::List | Shape::ListOrAll => list(text),
        }
    }
}

fn integer_or_text(text: &str) -> Value {
    match text.trim().parse::<i64>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(text),
    }
}

/// A list in TOML's notation, or items separated by commas.
fn list(text: &str) -> Value {
    let text = text.trim();
    if text.starts_with('[') {
        return match DeValue::parse(text) {
            Ok(value) => figment_value(value.get_ref()),
            Err(_) => Value::from(text),
        };
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Value::from(items.map(integer_or_text).collect::<Vec<_>>())
}
