//! Where settings come from: each setting becomes a figment provider whose metadata say where it
//! stands, so that figment knows of every value it has merged who has set it. Keys that do not exist
//! are found here, before anything is merged.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Kind, Result};

use super::declare::Key;
use super::keys::{self, KEYS};
use super::reader::{Reader, Scope};
use super::rules;
use super::violation::{self, Origin, Violation};
use super::{Config, TableNames};

/// `CASEMIRROR_SOURCE__CLIENT_ID` sets `source.client_id`.
const ENVIRONMENT_PREFIX: &str = "CASEMIRROR_";

/// Variables with the prefix that belong to the test suite.
const TEST_VARIABLES: &[&str] = &[
    "CASEMIRROR_TEST_PYTHON",
    "CASEMIRROR_REQUIRE_PYTHON",
    "CASEMIRROR_REQUIRE_PROMTOOL",
    "CASEMIRROR_REQUIRE_POSTGRES",
    "CASEMIRROR_WRITE_RESOURCES",
    "CASEMIRROR_ABORT_AT",
    "CASEMIRROR_RETRY_AT_ONCE",
    "CASEMIRROR_MEMORY_LEFT",
];

/// The layers put together so far, lowest first, and what was wrong with them.
pub(super) struct Layers {
    figment: Figment,
    pub(super) violations: Vec<Violation>,
    /// The configuration file: what is missing is missing there, and relative paths are relative to
    /// its folder.
    pub(super) path: PathBuf,
}

impl Layers {
    /// The lowest layer: the built-in defaults.
    pub(super) fn defaults() -> Layers {
        let mut layers =
            Layers { figment: Figment::new(), violations: Vec::new(), path: PathBuf::new() };
        for key in KEYS.iter().filter(|key| !key.is_required) {
            layers.set(key, key.sample_value(), Origin::Default);
        }
        layers
    }

    /// Puts `value` on top of what `key` was.
    fn set(&mut self, key: &'static Key, value: Value, origin: Origin) {
        self.figment = std::mem::take(&mut self.figment).merge(Set { key, value, origin });
    }

    /// The value of `key` that counts.
    pub(super) fn value(&self, key: &str) -> Option<Value> {
        self.figment.find_value(key).ok()
    }

    /// Where the value of `key` was set; a key without value is missing in the file.
    pub(super) fn origin(&self, key: &str) -> Origin {
        let set = self.figment.find_metadata(key).map(Origin::of);
        let path = self.path.display().to_string();
        set.unwrap_or(Origin::File { path, line: None, column: None })
    }

    /// Puts the file at `path` on top.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] where it cannot be read or is not TOML; every place where it is not is
    /// named with line and column.
    pub(super) fn file(mut self, path: &Path) -> Result<Layers> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(
                Kind::Config,
                format!(
                    "there is no configuration file {0}: `casemirror init {0}` writes one to fill \
                     in",
                    path.display()
                ),
            ),
            _ => Error::caused(
                Kind::Config,
                format!("cannot read the configuration file {}", path.display()),
                error,
            ),
        })?;
        let (document, errors) = DeTable::parse_recoverable(&text);
        let file = path.display().to_string();
        let syntax = errors.iter().map(|error| {
            let (line, column) = error.span().map(|span| position(&text, span.start)).unzip();
            let origin = Origin::File { path: file.clone(), line, column };
            // The library's own text of an error quotes the line, which may hold the secret.
            Violation::new(origin, format!("this is not TOML: {}", error.message()))
        });
        violation::refuse_any(syntax.collect())?;

        let origin = |at: usize| Origin::File {
            path: file.clone(),
            line: Some(position(&text, at).0),
            column: None,
        };
        for (section, content) in document.get_ref() {
            let section_origin = origin(section.span().start);
            let name = section.get_ref().as_ref();
            let Some(entries) = content.get_ref().as_table() else {
                self.violations.push(not_a_section(section_origin, name));
                continue;
            };
            if entries.is_empty() && !keys::is_section(name) {
                self.violations.push(unknown_key(section_origin, name));
            }
            for (entry, value) in entries {
                let entry_origin = origin(entry.span().start);
                let full_name = format!("{name}.{}", entry.get_ref());
                match keys::find(&full_name) {
                    Some(key) => self.set(key, figment_value(value.get_ref()), entry_origin),
                    None => self.violations.push(unknown_key(entry_origin, &full_name)),
                }
            }
        }
        self.path = path.to_path_buf();
        Ok(self)
    }

    /// No file; relative paths are relative to where it would be.
    pub(super) fn without_file(mut self, path: &Path) -> Layers {
        self.path = path.to_path_buf();
        self
    }

    /// Puts the environment on top. Variables without our prefix are not looked at.
    pub(super) fn environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Layers {
        let ours: BTreeMap<String, OsString> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX) && !is_foreign(name))
            .collect();
        for (variable, value) in ours {
            let origin = Origin::Environment(variable.clone());
            let name =
                variable[ENVIRONMENT_PREFIX.len()..].to_ascii_lowercase().replacen("__", ".", 1);
            match (keys::find(&name), value.to_str()) {
                (Some(key), Some(text)) => self.set(key, key.shape.parse(text), origin),
                (Some(key), None) => self
                    .violations
                    .push(Violation::new(origin, format!("{}: must be UTF-8 text", key.name))),
                (None, _) => {
                    let near = violation::nearest(&name, KEYS.iter().map(|key| key.name))
                        .map(|near| format!("; did you mean {}?", variable_name(near)))
                        .unwrap_or_default();
                    self.violations.push(Violation::new(
                        origin,
                        format!("{name}: there is no such key{near}"),
                    ));
                }
            }
        }
        self
    }

    /// Puts keys and values of the command line on top; of two for one key the last counts.
    pub(super) fn overrides(mut self, overrides: &[(String, String)]) -> Layers {
        for (name, text) in overrides {
            let origin = Origin::CommandLine;
            match keys::find(name) {
                Some(key) => self.set(key, key.shape.parse(text), origin),
                None => self.violations.push(unknown_key(origin, name)),
            }
        }
        self
    }

    /// The typed configuration.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with all violations of all layers.
    pub(super) fn read(self, scope: Scope, tables: TableNames) -> Result<Config> {
        let mut reader = Reader::new(self, scope);
        let config = Config::read(&mut reader);
        rules::tables_are_there(&mut reader, tables);
        violation::refuse_any(reader.finish())?;
        Ok(config.expect("a value is missing only where a violation has been noted"))
    }
}

/// One setting, with the place where it stands.
struct Set {
    key: &'static Key,
    value: Value,
    origin: Origin,
}

impl Provider for Set {
    fn metadata(&self) -> Metadata {
        self.origin.metadata()
    }

    fn data(&self) -> std::result::Result<Map<Profile, Dict>, figment::Error> {
        let (section, name) = self.key.path();
        let entry = Dict::from([(name.to_owned(), self.value.clone())]);
        Ok(Profile::Default.collect(Dict::from([(section.to_owned(), Value::from(entry))])))
    }
}

/// A TOML value in figment's terms. Dates become text, so that a day may be written with or without
/// quotes; a number that is too large stays text and is refused when it is read.
pub(super) fn figment_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(digits.as_str()),
        },
        DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(digits.as_str()),
        },
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Datetime(when) => Value::from(when.to_string()),
        DeValue::Array(items) => {
            Value::from(items.iter().map(|item| figment_value(item.get_ref())).collect::<Vec<_>>())
        }
        DeValue::Table(entries) => Value::from(
            entries
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), figment_value(value.get_ref())))
                .collect::<Dict>(),
        ),
    }
}

fn unknown_key(origin: Origin, name: &str) -> Violation {
    let near = violation::nearest(name, KEYS.iter().map(|key| key.name))
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    Violation::new(origin, format!("{name}: there is no such key{near}"))
}

/// A value stands at the top of the file, where only sections may.
fn not_a_section(origin: Origin, name: &str) -> Violation {
    if keys::is_section(name) {
        Violation::new(origin, format!("{name}: must be a section, written as [{name}]"))
    } else {
        unknown_key(origin, name)
    }
}

/// The environment variable that sets `key`.
fn variable_name(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.replacen('.', "__", 1).to_ascii_uppercase())
}

/// Whether a variable has our prefix without being a setting: those of the test suite, and those
/// that Kubernetes gives every container when the name of a service begins with `casemirror`, such as
/// `CASEMIRROR_METRICS_PORT_8641_TCP_ADDR`. A key has two underscores where its dot is.
fn is_foreign(variable: &str) -> bool {
    let name = format!("_{}", &variable[ENVIRONMENT_PREFIX.len()..]);
    let is_a_port = |rest: &str| {
        let mut words = rest.split('_');
        words.next().is_some_and(|port| port.parse::<u16>().is_ok())
            && words.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol))
    };
    let is_of_a_service = name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT")
        || name.match_indices("_PORT_").any(|(at, port)| is_a_port(&name[at + port.len()..]));
    TEST_VARIABLES.contains(&variable) || is_of_a_service && !name[1..].contains("__")
}

/// Line and column, both from 1, of a byte in `text`.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..byte.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
    (line, column)
}
