//! The configuration (docs/architecture.md, "Configuration"): layers of defaults, file, environment
//! and command line become one typed [`Config`].
//!
//! Nothing is guessed: `layers` turns each setting into a figment provider that says where it stands,
//! figment merges them and knows of each value where it was set, `reader` takes typed values out of
//! the merged whole and notes what is wrong with them. All violations are reported in one error of [`Kind::Config`].
//!
//! A key is declared in one place, the table in `keys`: its comment in the sample file, its type,
//! what is allowed, and its default. `declare` makes of it the types below, what reads and shows
//! them, and the list of keys; `sample` makes the sample file. What is special, such as a rule over
//! two keys, is in `rules`; `cron` knows the expressions of the schedules.

mod conninfo;
mod cron;
mod declare;
mod folders;
mod keys;
mod lake;
mod layers;
mod notation;
mod parquet_root;
mod places;
mod reader;
mod rules;
mod salt;
mod sample;
mod secret_url;
mod setting;
mod violation;
mod words;

use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

#[cfg(doc)]
use crate::error::Kind;
use crate::error::Result;

pub(crate) use self::cron::Cron;
pub(crate) use conninfo::Conninfo;
pub(crate) use keys::{Alert, Journals, Schedule};
pub use keys::{Config, Feed, Limits, Privacy, Publish, Resources, Source, Store};
pub(crate) use lake::{LakeCatalog, LakeData, LeasePlace, check_schema};
pub(crate) use notation::memory_bytes;
pub use parquet_root::{BucketUrl, ParquetRoot, Provider};
pub(crate) use places::{lead_to_one, resolved};
pub(crate) use rules::is_this_machine;
pub(crate) use salt::Salt;
pub(crate) use sample::TEMPLATE;
pub(crate) use secret_url::SecretUrl;
pub(crate) use violation::nearest;

/// The years whose days can be told: those of `report.calendar`.
pub(crate) const CALENDAR_YEARS: std::ops::RangeInclusive<i16> = 1900..=2100;

/// An address of an object store, for tests.
#[cfg(test)]
pub(crate) fn bucket_url(text: &str) -> BucketUrl {
    BucketUrl::parse(text).unwrap()
}

use layers::Layers;
use reader::Scope;
use violation::Origin;

/// Where the configuration is looked for when nothing else is said.
pub(crate) const DEFAULT_PATH: &str = "casemirror.toml";

/// The names of all tables, with the resource files in this folder too; `None` where these are wrong, which is told
/// when they are loaded.
pub type TableNames = fn(Option<&Path>) -> Option<Vec<String>>;

/// How the change feed is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedStyle {
    /// `$filter`, `$orderby`, `$top`.
    Odata,
    /// `?fromDate=`.
    FromDate,
}

/// A size in bytes, zero or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// Whose journals are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JournalLevel {
    Offices,
    BrokerCompanies,
    Chain,
}

/// What a reconciliation reads again (docs/architecture.md, "Seen and fetched").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reread {
    Changed,
    All,
    Off,
}

/// Tables that keep earlier versions of their rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryTables {
    All,
    These(Vec<String>),
}

impl HistoryTables {
    /// Whether earlier versions of this table's rows are kept.
    pub(crate) fn keeps(&self, table: &str) -> bool {
        match self {
            HistoryTables::All => true,
            HistoryTables::These(tables) => tables.iter().any(|kept| kept == table),
        }
    }
}

/// What becomes of the columns of a privacy class, in the order of how much it hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrivacyMode {
    Keep,
    Hash,
    Drop,
}

impl Config {
    /// Reads the file at `path` and puts the environment and then `overrides` (key and value, from
    /// the command line) over it.
    ///
    /// Relative paths, wherever they were set, are relative to the folder of `path`. `tables` says which names of
    /// tables there are.
    ///
    /// # Errors
    ///
    /// One error of [`Kind::Config`] that names every violation: where it was set, the key, the
    /// value (never a secret one), and what is allowed. Nothing has been changed, and nothing read but the
    /// configuration file, the secret file, the resource files where tables are named, and whether the other
    /// named files exist.
    pub fn load(path: &Path, overrides: &[(String, String)], tables: TableNames) -> Result<Config> {
        Layers::defaults()
            .file(path)?
            .environment(std::env::vars_os())
            .overrides(overrides)
            .read(Scope::Whole, tables)
    }

    /// The same for commands that never call the platform (`schema`, `query`): what is needed to
    /// log in is not looked at, and `source` holds an address that leads nowhere. With `None` the
    /// file at [`DEFAULT_PATH`] is read if it is there.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub(crate) fn load_offline(
        path: Option<&Path>,
        overrides: &[(String, String)],
        tables: TableNames,
    ) -> Result<Config> {
        let default_path = Path::new(DEFAULT_PATH);
        let layers = match path {
            Some(path) => Layers::defaults().file(path)?,
            None if default_path.exists() => Layers::defaults().file(default_path)?,
            None => Layers::defaults().without_file(default_path),
        };
        layers.environment(std::env::vars_os()).overrides(overrides).read(Scope::Offline, tables)
    }

    /// Whether a configuration that was read by [`Config::load_offline`] does not say what this key is: it was not looked
    /// at, or is not there.
    pub(crate) fn is_unknown_offline(&self, key: &str) -> bool {
        match key {
            "source.client_secret" | "source.ca_file" => true,
            "source.base_url" => self.source.base_url == rules::nowhere(),
            "source.client_id" => self.source.client_id.is_empty(),
            _ => false,
        }
    }

    /// The configuration of `casemirror demo`: the defaults, with all files directly in `dir`, and
    /// quick enough for its own sandbox. No file and no environment variable is read.
    pub fn for_demo(
        base_url: Url,
        client_id: impl Into<String>,
        client_secret: SecretString,
        dir: &Path,
    ) -> Config {
        let mut config = Layers::defaults()
            .without_file(Path::new(DEFAULT_PATH))
            .read(Scope::Offline, |_| None)
            .expect("the built-in defaults are valid, which a test proves");
        // A folder that cannot be made absolute (the empty path) is used as it is.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        config.source.base_url = reader::with_final_slash(base_url);
        config.source.client_id = client_id.into();
        config.source.client_secret = client_secret;
        config.source.search_delay = Duration::from_secs(1);
        config.limits.requests_per_second = 2000;
        config.feed.ledger = Some(dir.join("feed-calls"));
        config.store.path = dir.join("store.duckdb");
        config.publish.database = dir.join("casemirror.duckdb");
        config.publish.parquet = Some(ParquetRoot::Folder(dir.join("parquet")));
        config.publish.views = Some(dir.join("casemirror-views.duckdb"));
        config
    }

    /// Whether somebody has set this key, to whatever value.
    pub(crate) fn is_chosen(&self, key: &str) -> bool {
        self.origins.get(key).is_some_and(|origin| *origin != Origin::Default)
    }

    /// What is allowed and dangerous, a sentence each, for who starts something with it.
    pub(crate) fn cautions(&self) -> &[String] {
        &self.cautions
    }

    /// Where `key` was set: `casemirror.toml:12`, `environment variable CASEMIRROR_FEED__POLL`,
    /// `command line` or `default`.
    #[cfg(test)]
    pub(crate) fn origin(&self, key: &str) -> String {
        self.origins.get(key).unwrap_or(&Origin::Default).to_string()
    }
}

impl Feed {
    /// How often the feed of cases is asked: `feed.poll`, or as much slower as `feed.calls` in
    /// `feed.per` demands, both feeds together.
    pub(crate) fn poll_interval(&self) -> Duration {
        self.poll.mul_f64(self.stretch())
    }

    /// The same for the feed of contacts; `None` where it is off.
    pub(crate) fn contacts_interval(&self) -> Option<Duration> {
        self.contacts_poll.map(|interval| interval.mul_f64(self.stretch()))
    }

    /// By what both intervals have to be multiplied to keep within the throttle; at least 1.
    fn stretch(&self) -> f64 {
        let calls_per_period = [Some(self.poll), self.contacts_poll]
            .into_iter()
            .flatten()
            .map(|interval| self.per.as_secs_f64() / interval.as_secs_f64())
            .sum::<f64>();
        (calls_per_period / f64::from(self.calls)).max(1.0)
    }
}

#[cfg(test)]
mod tests;
