//! Takes typed values out of the merged layers. Every method gives `None` where the value is wrong,
//! after it has noted the violation, so that the caller can go on and find the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::value::{Num, Value};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use url::Url;

use super::Bytes;
use super::CALENDAR_YEARS;
use super::SecretUrl;
use super::cron::Cron;
use super::declare::Key;
use super::keys;
use super::layers::Layers;
use super::notation::{integer, memory_bytes, named_zone, written};
use super::parquet_root::BucketUrl;
use super::rules;
use super::setting::Shape;
use super::violation::{Origin, Violation};
use super::words::Word;

/// Smaller limits let DuckDB fail at work that this program must do.
const LEAST_MEMORY_BYTES: f64 = 64e6;

/// Which keys are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All.
    Whole,
    /// All but those that are needed to log in.
    Offline,
}

/// The merged layers, and what has been found wrong with them.
pub(super) struct Reader {
    layers: Layers,
    folder: PathBuf,
    pub(super) scope: Scope,
    /// What is allowed and dangerous.
    pub(super) cautions: Vec<String>,
}

impl Reader {
    pub(super) fn new(layers: Layers, scope: Scope) -> Reader {
        // Fails only for an empty path or without a working folder; then paths stay relative.
        let file = std::path::absolute(&layers.path).unwrap_or_else(|_| layers.path.clone());
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        Reader { layers, folder, scope, cautions: Vec::new() }
    }

    /// Everything that is wrong.
    pub(super) fn finish(self) -> Vec<Violation> {
        self.layers.violations
    }

    fn value(&self, key: &str) -> Option<Value> {
        self.layers.value(key)
    }

    /// Where the value of `key` was set; a key without value is missing in the file.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.layers.origin(key)
    }

    /// Whether `key` has the text that it has by default, wherever that was set.
    pub(super) fn has_default(&self, key: &str) -> bool {
        let known = keys::KEYS.iter().find(|known| known.name == key);
        known.is_some_and(|known| {
            self.peek(key, |text| Some(Some(text) == known.sample_value().as_str())) == Some(true)
        })
    }

    /// Where each key was set.
    pub(super) fn origins(&self) -> BTreeMap<&'static str, Origin> {
        keys::KEYS.iter().map(|key| (key.name, self.origin(key.name))).collect()
    }

    /// Whether `key` has a value other than the empty text.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.as_str() != Some(""))
    }

    /// The value of a key that a rule for another key needs; nothing is noted where there is none
    /// that `parse` understands.
    pub(super) fn peek<T>(&self, key: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.value(key)?.as_str().and_then(parse)
    }

    /// The same for a path.
    pub(super) fn peek_path(&self, key: &str) -> Option<PathBuf> {
        // What is an address of an object store is no path, where one may stand.
        let may_be_address = matches!(key, "publish.parquet" | "lake.data" | "lake.catalog");
        let is_path =
            |text: &str| !(text.contains("://") || may_be_address && BucketUrl::is_one(text));
        self.peek(key, |text| is_path(text).then(|| absolute(&self.folder, text)).flatten())
    }

    /// Reads something, and notes nothing of what is wrong with it.
    pub(super) fn quietly<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let noted = (self.layers.violations.len(), self.cautions.len());
        let value = read(self);
        self.layers.violations.truncate(noted.0);
        self.cautions.truncate(noted.1);
        value
    }

    /// Notes that the value of `key` is wrong; `rule` goes on "key = value: ...".
    pub(super) fn refuse(&mut self, key: &str, rule: impl AsRef<str>) {
        let rule = rule.as_ref();
        let problem = match self.value(key).map(|value| shown(key, &value)) {
            None => format!("{key} is missing: it {rule}"),
            Some(None) => format!("{key}: {rule}"),
            Some(Some(value)) => format!("{key} = {value}: {rule}"),
        };
        let violation = Violation::new(self.origin(key), problem);
        self.layers.violations.push(violation);
    }

    /// The value of `key` as `parse` understands it; its error is the rule that was broken.
    fn read<T>(
        &mut self,
        key: &str,
        rule: &str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let parsed = match self.value(key) {
            Some(value) => parse(&value),
            None => Err(rule.to_owned()),
        };
        parsed.map_err(|broken| self.refuse(key, broken)).ok()
    }

    /// A text as `parse` understands it; `None` from `parse` breaks the rule.
    fn read_text<T>(
        &mut self,
        key: &str,
        rule: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.read(key, rule, |value| match value.as_str() {
            Some(text) => parse(text).ok_or_else(|| rule.to_owned()),
            None if rule.contains('"') => Err(rule.to_owned()),
            None => Err(format!("{rule}, as a text in quotes")),
        })
    }

    /// `Some(None)` where the key is empty, else what `read` makes of it.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Self, &str) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.is_set(key) { read(self, key).map(Some) } else { Some(None) }
    }

    /// What `read` makes of a required key that is no longer the placeholder of the sample file.
    pub(super) fn filled_in<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Self, &str) -> Option<T>,
    ) -> Option<T> {
        if keys::find(key).map(Key::sample_value) == self.value(key) {
            self.refuse(
                key,
                "is still what `casemirror init` has written: put your own value in its place",
            );
            return None;
        }
        read(self, key)
    }

    /// Any text but the empty one.
    pub(super) fn text(&mut self, key: &str, rule: &str) -> Option<String> {
        self.read_text(key, rule, |text| (!text.trim().is_empty()).then(|| text.to_owned()))
    }

    /// One of a few words.
    pub(super) fn choice<T: Word>(&mut self, key: &str) -> Option<T> {
        let words: Vec<String> = T::WORDS.iter().map(|(word, _)| format!("{word:?}")).collect();
        let rule = format!("must be one of {}", words.join(", "));
        self.read_text(key, &rule, |text| {
            T::WORDS.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice)
        })
    }

    /// A whole number.
    pub(super) fn integer<T: TryFrom<i128>>(
        &mut self,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Option<T> {
        let rule = format!("must be a whole number from {} to {}", range.start(), range.end());
        self.read(key, &rule, |value| {
            integer(value)
                .filter(|number| u32::try_from(*number).is_ok_and(|n| range.contains(&n)))
                .and_then(|number| T::try_from(number).ok())
                .ok_or_else(|| rule.clone())
        })
    }

    /// A whole number, or zero for "not set".
    pub(super) fn integer_or_unset(
        &mut self,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Option<Option<usize>> {
        self.integer(key, range).map(|number: usize| Some(number).filter(|number| *number > 0))
    }

    /// A share, from 0 to 1.
    pub(super) fn share(&mut self, key: &str) -> Option<f64> {
        let rule = "must be a number from 0 to 1, such as 0.02 for two in a hundred";
        self.read(key, rule, |value| {
            let number = match value {
                Value::Num(_, Num::F64(number)) => Some(*number),
                // 0 and 1 may be written without a point.
                other => integer(other).map(|number| number as f64),
            };
            number.filter(|n| (0.0..=1.0).contains(n)).ok_or_else(|| rule.to_owned())
        })
    }

    /// A duration in humantime's notation.
    pub(super) fn duration(
        &mut self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        self.duration_by_rule(key, duration_rule(&range), range)
    }

    fn duration_by_rule(
        &mut self,
        key: &str,
        rule: String,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        self.read_text(key, &rule, |text| {
            humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
        })
    }

    /// A duration, or zero for "off".
    pub(super) fn duration_or_off(
        &mut self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Option<Duration>> {
        let is_off = self.value(key).is_some_and(|value| {
            value.as_str().is_some_and(|text| humantime::parse_duration(text) == Ok(Duration::ZERO))
        });
        if is_off {
            return Some(None);
        }
        let rule = format!("{}, or \"0s\" for off", duration_rule(&range));
        self.duration_by_rule(key, rule, range).map(Some)
    }

    /// A day.
    pub(super) fn day(&mut self, key: &str) -> Option<Date> {
        let rule = "must be a day from 1900-01-01 to 2100-12-31, written yyyy-mm-dd";
        self.read_text(key, rule, |text| {
            // jiff's parser takes a date-time for its date, too.
            let date = text.parse::<Date>().ok().filter(|date| date.to_string() == text)?;
            CALENDAR_YEARS.contains(&date.year()).then_some(date)
        })
    }

    /// A path, absolute from here on.
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        let folder = self.folder.clone();
        let path = self.read_text(key, "must be a path", |text| absolute(&folder, text))?;
        // Of a shell's habit a folder would come that is called ~, beside the configuration.
        if self.peek(key, |text| Some(text == "~" || text.starts_with("~/"))) == Some(true) {
            self.refuse(key, "must name the folder itself: ~ stands for none here");
            return None;
        }
        Some(path)
    }

    /// The path of something that exists; `accepts` says of what kind, `rule` in words.
    pub(super) fn existing_path(
        &mut self,
        key: &str,
        rule: &str,
        accepts: fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let path = self.path(key)?;
        if accepts(&path) {
            return Some(path);
        }
        self.refuse(key, format!("{rule}, and {} is none", path.display()));
        None
    }

    /// A web address; its path ends in `/` from here on.
    pub(super) fn web_address(&mut self, key: &str) -> Option<Url> {
        let rule = "must be an address such as \"https://api.example.com/\", with http or https";
        self.read(key, rule, |value| {
            let url = value
                .as_str()
                .and_then(|text| Url::parse(text).ok())
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
            let url = url.ok_or_else(|| rule.to_owned())?;
            if !url.username().is_empty() || url.password().is_some() {
                return Err("must not hold a user name or password".to_owned());
            }
            if url.query().is_some() || url.fragment().is_some() {
                return Err("must end with its path: no query (?) and no fragment (#)".to_owned());
            }
            Ok(with_final_slash(url))
        })
    }

    /// A web address that may hold a secret, in its path or query.
    pub(super) fn secret_address(&mut self, key: &str) -> Option<SecretUrl> {
        let rule = "must be an address with http or https";
        let address = self.read_text(key, rule, |text| {
            let url = Url::parse(text).ok();
            let url =
                url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
            url.map(|url| SecretUrl::new(&url))
        })?;
        rules::check_origin_mode(self, key);
        Some(address)
    }

    /// An address to listen on.
    pub(super) fn listen_address(&mut self, key: &str) -> Option<SocketAddr> {
        let rule =
            "must be a numeric address and a port, such as \"127.0.0.1:8640\", or \"\" for off";
        self.read_text(key, rule, |text| text.parse().ok())
    }

    /// A time zone by its name.
    pub(super) fn time_zone(&mut self, key: &str) -> Option<TimeZone> {
        let rule = "must be the name of a time zone, such as \"Europe/Oslo\" or \"UTC\"";
        self.read_text(key, rule, named_zone)
    }

    /// A cron expression of five fields, or six with seconds, that comes true some day.
    pub(super) fn cron(&mut self, key: &str) -> Option<Cron> {
        let rule = "must be a cron expression of five fields (minute, hour, day, month, weekday), \
                    such as \"15 3 * * *\"";
        self.read(key, rule, |value| {
            let cron = Cron::parse(value.as_str().unwrap_or_default(), rule)?;
            let comes_true = cron.comes_true().then_some(cron);
            comes_true.ok_or_else(|| "never comes true: there is no such day".to_owned())
        })
    }

    /// A memory size in DuckDB's notation.
    pub(super) fn memory_size(&mut self, key: &str) -> Option<String> {
        let rule =
            "must be a size of at least 64MB in DuckDB's notation, such as \"400MB\" or \"1GB\"";
        self.read_text(key, rule, |text| {
            memory_bytes(text).filter(|bytes| *bytes >= LEAST_MEMORY_BYTES).map(|_| text.to_owned())
        })
    }

    /// A size in the same notation, in bytes.
    pub(super) fn bytes(&mut self, key: &str) -> Option<Bytes> {
        let rule = "must be a size of at least 1kB, such as \"256MB\"";
        // The cast holds: a size lies below 2^63.
        self.read_text(key, rule, |text| {
            memory_bytes(text).filter(|bytes| *bytes >= 1e3).map(|bytes| Bytes(bytes as u64))
        })
    }

    /// A list of names.
    pub(super) fn names(&mut self, key: &str, rule: &str) -> Option<Vec<String>> {
        self.read(key, rule, |value| {
            let names = value.as_array().and_then(|items| {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            });
            names.ok_or_else(|| rule.to_owned())
        })
    }

    /// Whether the value is this word.
    pub(super) fn is_word(&self, key: &str, word: &str) -> bool {
        self.value(key).is_some_and(|value| value.as_str() == Some(word))
    }

    /// A list of ids, each above zero and there once.
    pub(super) fn ids(&mut self, key: &str) -> Option<Vec<i64>> {
        let rule = "must be a list of ids, each a whole number above zero and there once, such as \
                    [3, 17]";
        self.read(key, rule, |value| {
            let ids: Option<Vec<i64>> = value.as_array().and_then(|items| {
                items
                    .iter()
                    .map(|item| integer(item).and_then(|id| i64::try_from(id).ok()))
                    .collect()
            });
            ids.filter(|ids| {
                let different: BTreeSet<_> = ids.iter().collect();
                ids.iter().all(|id| *id > 0) && different.len() == ids.len()
            })
            .ok_or_else(|| rule.to_owned())
        })
    }
}

/// The path, seen from `folder`; the empty text is none.
fn absolute(folder: &Path, text: &str) -> Option<PathBuf> {
    let path = Some(folder.join(text)).filter(|_| !text.is_empty())?;
    // `absolute` only takes the `./` away; it cannot fail for what follows a folder.
    Some(std::path::absolute(&path).unwrap_or(path))
}

fn duration_rule(range: &RangeInclusive<Duration>) -> String {
    format!(
        "must be a duration from {} to {}, such as \"90s\", \"10m\" or \"2h 30m\"",
        written_duration(*range.start()),
        written_duration(*range.end()),
    )
}

/// A duration as it is written in the configuration. Whole days stay days: humantime's years have 365.25 of them.
fn written_duration(duration: Duration) -> String {
    const DAY: u64 = 86_400; // seconds
    let seconds = duration.as_secs();
    if seconds > DAY && seconds.is_multiple_of(DAY) && duration.subsec_nanos() == 0 {
        return format!("{} days", seconds / DAY);
    }
    humantime::format_duration(duration).to_string()
}

/// The same address with a path that ends in one `/`, so that [`Url::join`] appends to it, and that however it is
/// written it is the same source: a ledger and a lease are an address's.
pub(super) fn with_final_slash(mut url: Url) -> Url {
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// The value as it may be shown: nothing of a secret, and nothing of an address that may hold one.
fn shown(key: &str, value: &Value) -> Option<String> {
    match keys::find(key).map(|key| key.shape) {
        None | Some(Shape::Secret) => None,
        Some(Shape::Url) if value.as_str().is_none_or(|text| text.contains(['@', '?', '#'])) => {
            None
        }
        Some(_) => Some(written(value)),
    }
}
