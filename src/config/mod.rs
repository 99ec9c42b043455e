//! The configuration (docs/architecture.md, "Configuration"): layers of defaults, file, environment
//! and command line become one typed [`Config`].
//!
//! Nothing is guessed: `layers` turns each source of settings into a figment provider and remembers
//! where every key stands, `reader` takes typed values out of the merged whole and notes what is
//! wrong with them, `sections` says what is allowed for each key. All violations are reported in
//! one error of [`Kind::Config`].

mod keys;
mod layers;
mod notation;
mod reader;
mod redacted;
mod sections;
mod violation;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

#[cfg(doc)]
use crate::error::Kind;
use crate::error::Result;

use layers::Layers;
use sections::Scope;
use violation::{Origin, Violation};

/// The commented configuration file that `casemirror init` writes. Every key is in it: the required
/// ones with a placeholder that is refused as long as it stands, all others with their default,
/// commented out.
pub(crate) const TEMPLATE: &str = include_str!("../../config/casemirror.toml");

/// Where the configuration is looked for when nothing else is said.
pub(crate) const DEFAULT_PATH: &str = "casemirror.toml";

/// Everything that can be set. Paths are absolute, durations are above zero where zero makes no
/// sense: [`Config::load`] has checked it.
#[derive(Debug, Clone)]
pub struct Config {
    pub source: Source,
    pub feed: Feed,
    pub limits: Limits,
    pub(crate) bootstrap: Bootstrap,
    pub store: Store,
    pub publish: Publish,
    pub(crate) schedule: Schedule,
    pub(crate) journals: Journals,
    pub(crate) reconcile: Reconcile,
    pub(crate) processing_bases: ProcessingBases,
    pub resources: Resources,
    pub(crate) history: History,
    pub privacy: Privacy,
    pub(crate) serve: Serve,
    /// Where each key was set, by its name, for messages that come after loading.
    origins: BTreeMap<&'static str, Origin>,
}

/// The platform and how to log in to it.
#[derive(Debug, Clone)]
pub struct Source {
    /// `http` or `https`, without query, fragment or user; its path always ends in `/`, so that
    /// [`Url::join`] appends to it.
    pub(crate) base_url: Url,
    pub(crate) client_id: String,
    /// From `source.client_secret` or the file named by `source.client_secret_file`.
    pub(crate) client_secret: SecretString,
    /// Always a zone with a name.
    pub time_zone: jiff::tz::TimeZone,
    pub(crate) search_delay: Duration,
    /// How far apart two answers must lie that confirm a loss.
    pub(crate) doubt: Duration,
    pub(crate) ca_file: Option<PathBuf>,
}

/// How the change feed is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedStyle {
    /// `$filter`, `$orderby`, `$top`.
    Odata,
    /// `?fromDate=`.
    FromDate,
}

/// The change feeds and their throttle. Read the intervals through [`Feed::poll_interval`] and
/// [`Feed::contacts_interval`], which keep within the throttle.
#[derive(Debug, Clone)]
pub struct Feed {
    pub(crate) style: FeedStyle,
    pub(crate) calls: u32,
    pub(crate) per: Duration,
    pub(crate) poll: Duration,
    /// `None` where the contacts feed is off.
    pub contacts_poll: Option<Duration>,
    pub(crate) overlap: Duration,
}

/// Ceilings for all calls but those to the feeds.
#[derive(Debug, Clone)]
pub struct Limits {
    pub(crate) requests_per_second: u32,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) journal_timeout: Duration,
    /// The largest answer that is read, in bytes after decompression.
    pub(crate) answer_bytes: u64,
    /// The most records that an answer may have.
    pub(crate) answer_records: u64,
}

/// What the first run leaves out.
#[derive(Debug, Clone)]
pub(crate) struct Bootstrap {
    /// Case resources only of cases modified since this day, in `source.time_zone`.
    pub(crate) since: Option<jiff::civil::Date>,
}

/// The daemon's own DuckDB file.
#[derive(Debug, Clone)]
pub struct Store {
    pub path: PathBuf,
    /// In DuckDB's own notation, checked: `400MB`, `1GB`.
    pub memory_limit: String,
    /// `None`: all cores.
    pub(crate) threads: Option<usize>,
}

/// What analysts and BI tools read.
#[derive(Debug, Clone)]
pub struct Publish {
    pub database: PathBuf,
    /// `None` where Parquet snapshots are off.
    pub parquet: Option<PathBuf>,
    pub(crate) min_interval: Duration,
    pub(crate) parquet_interval: Duration,
    /// At least 1.
    pub(crate) keep_snapshots: usize,
    pub(crate) keep_for: Duration,
}

/// When the scheduled work is due.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) reference: croner::Cron,
    pub(crate) journals: croner::Cron,
    pub(crate) journals_recheck: croner::Cron,
    pub(crate) reconcile: croner::Cron,
    pub(crate) verify: croner::Cron,
    /// The zone of the cron expressions; `source.time_zone` where it is not set.
    pub(crate) time_zone: jiff::tz::TimeZone,
}

/// Whose journals are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JournalLevel {
    Offices,
    BrokerCompanies,
    Chain,
}

/// The financial journals.
#[derive(Debug, Clone)]
pub(crate) struct Journals {
    pub(crate) level: JournalLevel,
    /// Ids of that level; empty: all known.
    pub(crate) ids: Vec<i64>,
    /// `None`: the start of the year before the first run.
    pub(crate) since: Option<jiff::civil::Date>,
    pub(crate) trailing_months: u32,
    /// Day of the next month, 1 to 28.
    pub(crate) close_day: u32,
    pub(crate) recheck_months: u32,
}

/// What a reconciliation reads again (docs/architecture.md, "Seen and fetched").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reread {
    Changed,
    All,
    Off,
}

/// The full listing of the cases.
#[derive(Debug, Clone)]
pub(crate) struct Reconcile {
    pub(crate) reread: Reread,
    /// Share of a table's rows that one listing may remove, 0 to 1.
    pub(crate) max_removed: f64,
}

/// The windows of `processing_basis_relations`.
#[derive(Debug, Clone)]
pub(crate) struct ProcessingBases {
    pub(crate) since: jiff::civil::Date,
}

/// Which resources are mirrored.
#[derive(Debug, Clone)]
pub struct Resources {
    /// Table names; [`Config::check_tables`] compares them with the catalog.
    pub disable: Vec<String>,
    /// An existing folder with the user's own resource files.
    pub(crate) dir: Option<PathBuf>,
}

/// Tables that keep earlier versions of their rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryTables {
    All,
    These(Vec<String>),
}

/// The `history` schema.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// [`Config::check_tables`] compares the names with the catalog.
    pub(crate) tables: HistoryTables,
}

/// What becomes of the columns of a privacy class, in the order of how much it hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrivacyMode {
    Keep,
    Hash,
    Drop,
}

/// Privacy classes (docs/architecture.md, "Privacy").
#[derive(Debug, Clone)]
pub struct Privacy {
    pub(crate) identifiers: PrivacyMode,
    pub(crate) contact_details: PrivacyMode,
}

/// Addresses that the daemon listens on.
#[derive(Debug, Clone)]
pub(crate) struct Serve {
    /// `None` where the status page is off.
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// `None` where webhooks are off.
    pub(crate) webhooks: Option<std::net::SocketAddr>,
    /// Under which the platform reaches `webhooks`; only set together with it. Its path always ends
    /// in `/`.
    pub(crate) public_url: Option<Url>,
}

impl Config {
    /// Reads the file at `path` and puts the environment and then `overrides` (key and value, from
    /// the command line) over it.
    ///
    /// Relative paths, wherever they were set, are relative to the folder of `path`.
    ///
    /// # Errors
    ///
    /// One error of [`Kind::Config`] that names every violation: where it was set, the key, the
    /// value (never a secret one), and what is allowed. Nothing but the configuration file, the
    /// secret file, and the existence of the other named files has been touched.
    pub fn load(path: &Path, overrides: &[(String, String)]) -> Result<Config> {
        Layers::defaults()
            .file(path)?
            .environment(std::env::vars_os())
            .overrides(overrides)
            .read(Scope::Whole)
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
    ) -> Result<Config> {
        let default_path = Path::new(DEFAULT_PATH);
        let layers = match path {
            Some(path) => Layers::defaults().file(path)?,
            None if default_path.exists() => Layers::defaults().file(default_path)?,
            None => Layers::defaults().without_file(default_path),
        };
        layers.environment(std::env::vars_os()).overrides(overrides).read(Scope::Offline)
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
            .read(Scope::Offline)
            .expect("the built-in defaults are valid, which a test proves");
        // A folder that cannot be made absolute (the empty path) is used as it is.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        config.source.base_url = reader::with_final_slash(base_url);
        config.source.client_id = client_id.into();
        config.source.client_secret = client_secret;
        config.source.search_delay = Duration::from_secs(1);
        config.limits.requests_per_second = 2000;
        config.store.path = dir.join("store.duckdb");
        config.publish.database = dir.join("casemirror.duckdb");
        config.publish.parquet = Some(dir.join("parquet"));
        config
    }

    /// Compares the table names of `resources.disable` and `history.tables` with those of the
    /// catalog, which is loaded later than the configuration.
    ///
    /// # Errors
    ///
    /// One error of [`Kind::Config`] that names every table that is not in `known`.
    pub(crate) fn check_tables(&self, known: &[&str]) -> Result<()> {
        let history = match &self.history.tables {
            HistoryTables::All => &[][..],
            HistoryTables::These(tables) => tables,
        };
        let mut violations = Vec::new();
        for (key, tables) in
            [("resources.disable", self.resources.disable.as_slice()), ("history.tables", history)]
        {
            for table in tables.iter().filter(|table| !known.contains(&table.as_str())) {
                let suggestion = violation::nearest(table, known.iter().copied())
                    .map(|near| format!("; did you mean {near:?}?"))
                    .unwrap_or_default();
                violations.push(Violation::new(
                    self.origins.get(key).cloned().unwrap_or(Origin::Default),
                    format!("{key}: there is no table {table:?}{suggestion}"),
                ));
            }
        }
        violation::refuse_any(violations)
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
