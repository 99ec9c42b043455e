//! What the type of a key decides: how a text from outside the file becomes a value, and how the
//! value is shown.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use secrecy::{ExposeSecret, SecretString};
use toml::de::DeValue;
use url::Url;

use super::cron::Cron;
use super::layers::figment_value;
use super::places::resolved;
use super::{
    Bytes, FeedStyle, HistoryTables, JournalLevel, LakeCatalog, LakeData, ParquetRoot, PrivacyMode,
    Reread, SecretUrl,
};

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

impl Shape {
    /// The value that a text outside the file stands for. A text that does not fit the shape stays
    /// a text, and is refused with all other wrong types when it is read.
    pub(super) fn parse(self, text: &str) -> Value {
        match self {
            // A secret may begin and end with anything.
            Shape::Secret => Value::from(text),
            Shape::Text | Shape::Url => unquoted(text),
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

/// A text; one in quotes is what it is in the file.
fn unquoted(text: &str) -> Value {
    match toml_value(text) {
        Value::String(tag, inner) if text.starts_with(['"', '\'']) => Value::String(tag, inner),
        _ => Value::from(text),
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
        return toml_value(text);
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Value::from(items.map(integer_or_text).collect::<Vec<_>>())
}

/// The value that stands in TOML; a text that is not TOML stays a text.
pub(super) fn toml_value(text: &str) -> Value {
    match DeValue::parse(text) {
        Ok(value) => figment_value(value.get_ref()),
        Err(_) => Value::from(text),
    }
}

/// A type that a key can have.
pub(super) trait Setting {
    const SHAPE: Shape;

    /// How "none" or "off" is shown where the key may be without a value.
    const NONE: &'static str = "";

    /// The value as it may be shown, in the notation of the configuration. Equal texts mean equal
    /// values, but of a secret nothing is shown; a path is the one to which links lead.
    fn shown(&self) -> String;

    /// The value of a secret.
    fn secret(&self) -> Option<&str> {
        None
    }
}

/// Settings that are shown as they display themselves.
macro_rules! displayed {
    ($($shape:ident: $($type:ty),+;)+) => {$($(
        impl Setting for $type {
            const SHAPE: Shape = Shape::$shape;

            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )+)+};
}

displayed! {
    Text: String, Cron, Date, SocketAddr, FeedStyle, JournalLevel, Reread, PrivacyMode;
    Integer: u32, u64;
    Number: f64;
    Url: Url;
}

impl Setting for usize {
    const SHAPE: Shape = Shape::Integer;
    const NONE: &'static str = "0";

    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Setting for SecretString {
    const SHAPE: Shape = Shape::Secret;

    fn shown(&self) -> String {
        "set".to_owned()
    }

    fn secret(&self) -> Option<&str> {
        Some(self.expose_secret())
    }
}

impl Setting for SecretUrl {
    const SHAPE: Shape = Shape::Secret;

    fn shown(&self) -> String {
        "set".to_owned()
    }

    fn secret(&self) -> Option<&str> {
        Some(self.expose_secret())
    }
}

impl Setting for LakeCatalog {
    const SHAPE: Shape = Shape::Secret;

    fn shown(&self) -> String {
        match self {
            LakeCatalog::Postgres(_) => "set".to_owned(),
            LakeCatalog::File(path) => path.shown(),
        }
    }

    fn secret(&self) -> Option<&str> {
        self.connection()
    }
}

/// As [`ParquetRoot`].
impl Setting for LakeData {
    const SHAPE: Shape = Shape::Url;

    fn shown(&self) -> String {
        match self {
            LakeData::Folder(path) => path.shown(),
            LakeData::Bucket(url) => url.to_string(),
        }
    }
}

impl Setting for Duration {
    const SHAPE: Shape = Shape::Text;
    const NONE: &'static str = "0s";

    fn shown(&self) -> String {
        humantime::format_duration(*self).to_string()
    }
}

impl Setting for Bytes {
    const SHAPE: Shape = Shape::Text;

    /// In the largest unit that says it exactly.
    fn shown(&self) -> String {
        let units =
            [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
        let bytes = self.0;
        let exact = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
        exact.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
    }
}

impl Setting for PathBuf {
    const SHAPE: Shape = Shape::Text;

    fn shown(&self) -> String {
        resolved(self).display().to_string()
    }
}

/// An address that is refused may hold a key: it is shown as other addresses are.
impl Setting for ParquetRoot {
    const SHAPE: Shape = Shape::Url;

    fn shown(&self) -> String {
        match self {
            ParquetRoot::Folder(path) => path.shown(),
            ParquetRoot::Bucket(url) => url.to_string(),
        }
    }
}

impl Setting for TimeZone {
    const SHAPE: Shape = Shape::Text;

    fn shown(&self) -> String {
        self.iana_name().unwrap_or_default().to_owned()
    }
}

impl<T: Display> Setting for Vec<T> {
    const SHAPE: Shape = Shape::List;

    fn shown(&self) -> String {
        let items: Vec<String> = self.iter().map(ToString::to_string).collect();
        format!("[{}]", items.join(", "))
    }
}

impl Setting for HistoryTables {
    const SHAPE: Shape = Shape::ListOrAll;

    fn shown(&self) -> String {
        match self {
            HistoryTables::All => "all".to_owned(),
            HistoryTables::These(tables) => tables.shown(),
        }
    }
}

impl<T: Setting> Setting for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| T::NONE.to_owned(), Setting::shown)
    }

    fn secret(&self) -> Option<&str> {
        self.as_ref().and_then(Setting::secret)
    }
}
