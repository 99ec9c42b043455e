//! Every key of the configuration. This is the one place where a key is declared; how an entry is
//! written stands at [`declare::sections`].
//!
//! `///` before a key is what its user reads in the sample file, `//` is what only a reader of the
//! code has to know.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use url::Url;

use super::cron::Cron;
use super::declare::{self, Key};
use super::reader::Reader;
use super::rules;
use super::salt::Salt;
use super::setting::{Setting, Shape};
use super::violation::Origin;
use super::{
    Bytes, FeedStyle, HistoryTables, JournalLevel, LakeCatalog, LakeData, ParquetRoot, PrivacyMode,
    Reread, SecretUrl,
};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Intervals below it would be a busy loop.
const SHORTEST: Duration = Duration::from_millis(100);

/// The key named `section.name`.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether some key lies in this section.
pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.path().0 == name)
}

declare::sections! {
    /// The platform and how to log in to it.
    pub struct Source in source {
        /// Base of the API; may carry a path, as in "https://host.example.com/api-gateway/".
        // `http` or `https`, without query, fragment or user; its path always ends in `/`, so that
        // `Url::join` appends to it.
        pub(crate) base_url: Url = where_right(rules::nowhere(), rules::base_url),
            required "<address of the API>";

        /// The credentials that the platform has given you. The secret can stand in a file of its own, or in
        /// the environment, instead of here: then delete the line `client_secret`.
        pub(crate) client_id: String = where_right(String::new(), rules::client_id),
            required "<client id>";
        pub(crate) client_secret or client_secret_file: SecretString =
            for_login(SecretString::default(), rules::client_secret),
            required "<client secret>";

        /// The zone of date-times without offset, of journal days and of report months.
        // Always a zone with a name.
        pub time_zone: TimeZone = time_zone(), default "Europe/Oslo";

        /// How long the platform's search may lag behind its change feed.
        pub(crate) search_delay: Duration = duration(Duration::ZERO..=DAY), default "30s";

        /// An answer that would remove much is believed when a second equal one comes at least this much
        /// later: a proxy that answers nothing for a while must not empty the mirror.
        pub(crate) doubt: Duration = duration(Duration::ZERO..=DAY), default "10m";

        /// An extra trusted certificate authority, a PEM file; "" is none.
        pub(crate) ca_file: Option<PathBuf> = for_login(None, rules::ca_file), default "";
    }

    /// The change feeds and their throttle. Read the intervals through [`Feed::poll_interval`] and
    /// [`Feed::contacts_interval`], which keep within the throttle.
    pub struct Feed in feed {
        /// How the platform's change feed is asked: "odata" ($filter, $orderby, $top) or "from_date"
        /// (?fromDate=).
        pub(crate) style: FeedStyle = choice(), default "odata";

        /// The change feed's throttle: so many calls in any such period. It is never exceeded.
        pub(crate) calls: u32 = integer(1..=10_000), default 6;
        pub(crate) per: Duration = duration(SHORTEST..=DAY), default "30s";

        /// How often `casemirror run` asks the feed of cases, and that of contacts ("0s" is off). Where both
        /// together would exceed the throttle, both are asked less often.
        pub(crate) poll: Duration = duration(SHORTEST..=DAY), default "10s";
        pub contacts_poll: Option<Duration> = duration_or_off(SHORTEST..=7 * DAY), default "1m";

        /// How far behind the last complete poll the next one starts.
        pub(crate) overlap: Duration = duration(Duration::ZERO..=7 * DAY), default "10m";

        /// The file in which the calls to the feeds are written down, so that the throttle is kept. Every
        /// casemirror of the same API user on this machine has to use the same one, and it has to outlive their
        /// stores. "" is a file in the user's state folder, named by source.base_url and source.client_id.
        pub ledger: Option<PathBuf> = optional(Reader::written_path), default "";
    }

    /// Ceilings for all calls but those to the feeds.
    pub struct Limits in limits {
        /// Ceiling for all calls but those to the feed: calls a second, and calls in flight.
        pub(crate) requests_per_second: u32 = integer(1..=10_000), default 10;
        pub(crate) concurrency: usize = integer(1..=64), default 4;

        /// How long one call may take, and one for a month of a journal.
        pub(crate) timeout: Duration = duration(SHORTEST..=HOUR), default "60s";
        pub(crate) journal_timeout: Duration = duration(SHORTEST..=6 * HOUR), default "10m";

        /// The longest that the platform's Retry-After is obeyed; `casemirror status` shows when calls go on.
        pub(crate) retry_after: Duration = duration(SHORTEST..=DAY), default "1h";

        /// The largest answer that is read: its size without compression, and how many records it has. A larger
        /// one is asked for in smaller parts where it has parts, else it is a fault and is not loaded.
        pub(crate) answer_bytes: Bytes = bytes(), default "256MB";
        pub(crate) answer_records: u64 = integer(1..=u32::MAX), default 2000000;
    }

    /// What the first run leaves out.
    pub(crate) struct Bootstrap in bootstrap {
        /// Case resources only of cases modified since this day; "" is all.
        // In `source.time_zone`.
        pub(crate) since: Option<Date> = optional(Reader::first_day), default "";
    }

    /// The daemon's own DuckDB file.
    pub struct Store in store {
        /// casemirror's own DuckDB file. Nobody else should open it: publish.database is for reading.
        pub path: PathBuf = store_path(), default "data/store.duckdb";

        /// The memory that DuckDB may take, such as "400MB" or "1GB", and the most threads (0: all cores);
        /// a store below 64 MB needs one.
        // In DuckDB's own notation, checked.
        pub memory_limit: String = memory_size(), default "1GB";
        pub(crate) threads: Option<usize> = integer_or_unset(0..=1024), default 0;
    }

    /// What analysts and BI tools read.
    pub struct Publish in publish {
        /// The DuckDB file for analysts: replaced as a whole, never changed.
        pub database: PathBuf = written_path(), default "data/casemirror.duckdb";

        /// Folder for the Parquet snapshots, of which `latest` is always the newest, or an address of an object
        /// store ("s3://bucket/prefix", "gs://...", "az://...": docs/operations.md); "" is off.
        pub parquet: Option<ParquetRoot> = optional(Reader::parquet_root), default "data/parquet";

        /// A small DuckDB file for readers that keep one connection open, as BI tools do: it is never replaced, and
        /// its views read publish.parquet's `latest`, which must be a folder; "" is off.
        pub(crate) views: Option<PathBuf> = views_path(), default "data/casemirror-views.duckdb";

        /// The folder under which those readers find publish.parquet, as in a container that has it elsewhere;
        /// "" is publish.parquet.
        pub(crate) views_root: Option<PathBuf> = optional(Reader::path), default "";

        /// `casemirror run` publishes the file, and the snapshots, not more often than this, and rests ten
        /// times as long as the last publishing took, an hour at most.
        pub(crate) min_interval: Duration = duration(Duration::ZERO..=DAY), default "60s";
        pub(crate) parquet_interval: Duration = duration(Duration::ZERO..=7 * DAY), default "15m";

        /// Snapshots that are kept: this many, and all that are younger than this.
        pub(crate) keep_snapshots: usize = integer(1..=10_000), default 7;
        pub(crate) keep_for: Duration = duration(Duration::ZERO..=3650 * DAY), default "2h";
    }

    /// When the scheduled work is due.
    pub(crate) struct Schedule in schedule {
        /// Cron expressions: minute, hour, day of the month, month, weekday by name ("15 5 * * Sun"); six fields
        /// begin with seconds. A field is *, or a list of numbers or names, ranges (Mon-Fri) and steps (*/2);
        /// where both kinds of day are given, either will do. A local time that a clock change skips runs as long after it, one that comes
        /// twice runs once; what was missed runs once at the next start or sync.
        ///
        /// Employees, offices, accounts, definitions, tags, processing bases, permissions, subscriptions.
        pub(crate) reference: Cron = cron(), default "15 1 * * *";

        /// The journals: the trailing months, and every month that was never read completely.
        pub(crate) journals: Cron = cron(), default "15 3 * * *";

        /// All synced journal months against their sums, and journals.recheck_months read once more in full.
        pub(crate) journals_recheck: Cron = cron(), default "15 5 * * Sun";

        /// Full listing of the cases, and reading again what changed.
        pub(crate) reconcile: Cron = cron(), default "15 4 * * *";

        /// Comparing control totals with the platform, as `casemirror verify` does.
        pub(crate) verify: Cron = cron(), default "15 6 * * *";

        /// The zone of these expressions; "" is source.time_zone.
        pub(crate) time_zone: TimeZone = time_zone_or_that_of("source.time_zone"), default "";
    }

    /// The financial journals.
    pub(crate) struct Journals in journals {
        /// Whose journals are read: "offices", "broker_companies" or "chain".
        pub(crate) level: JournalLevel = choice(), default "offices";

        /// Ids of that level, such as [3, 17]; [] is all that are known.
        pub(crate) ids: Vec<i64> = ids(), default [];

        /// First day ever read; "" is the start of the previous year, fixed at the first run.
        pub(crate) since: Option<Date> = optional(Reader::first_day), default "";

        /// Months that are read again at each scheduled sync, the current one included.
        pub(crate) trailing_months: u32 = integer(1..=120), default 3;

        /// A month is closed by its first complete reading from this day of the next month on, 1 to 28;
        /// 0: only by `casemirror close`.
        pub(crate) close_day: u32 = integer(0..=28), default 10;

        /// Months that schedule.journals_recheck reads again in full.
        pub(crate) recheck_months: u32 = integer(0..=1200), default 24;
    }

    /// The full listing of the cases.
    pub(crate) struct Reconcile in reconcile {
        /// What is read again when the cases are listed: of cases that "changed", "all", or "off".
        pub(crate) reread: Reread = choice(), default "changed";

        /// The guard: the share of a table's rows, 0 to 1, that one list, or all answers of the last hour
        /// together, may remove. What would remove more stays and is reported; `casemirror sync
        /// --allow-removals` lets it pass.
        pub(crate) max_removed: f64 = share(), default 0.02;
    }

    /// The windows of `processing_basis_relations`.
    pub(crate) struct ProcessingBases in processing_bases {
        /// First day of the windows in which processing_basis_relations is read.
        pub(crate) since: Date = first_day(), default "2018-01-01";
    }

    /// Which resources are mirrored.
    pub struct Resources in resources {
        /// Tables not to mirror, such as ["notes"]; `casemirror schema` lists them all.
        pub disable: Vec<String> =
            names("must be a list of table names, such as [\"notes\"]"), default [];

        /// Folder with resource files of your own: new resources, or changed copies of built-in ones.
        pub(crate) dir: Option<PathBuf> = optional(|r, key| {
            r.existing_path(key, "must name a folder that exists", Path::is_dir)
        }), default "";
    }

    /// The `history` schema.
    pub(crate) struct History in history {
        /// Tables that keep earlier versions of their rows: "all", or a list such as ["cases", "costs"].
        pub(crate) tables: HistoryTables = names_or_all(), default "all";
    }

    /// Privacy classes (docs/architecture.md, "Privacy").
    pub struct Privacy in privacy {
        /// What becomes of columns of these classes: "keep" them, "hash" them with a key that never leaves
        /// this mirror, or "drop" them.
        pub(crate) identifiers: PrivacyMode = choice(), default "hash";
        pub(crate) contact_details: PrivacyMode = choice(), default "keep";
    }

    /// DuckLake: tables as Parquet files that any number of readers share, their catalog in PostgreSQL
    /// (docs/lake.md). `casemirror lake install` fetches DuckDB's extensions for it.
    pub(crate) struct Lake in lake {
        /// The catalog: "postgres:dbname=lake host=db.example.com user=casemirror", "postgres://...", or a DuckDB
        /// file to try it; "" is off. It is not shown anywhere, because it may hold a password; lake.secret_file
        /// is a better place for that.
        pub(crate) catalog: Option<LakeCatalog> = optional(Reader::lake_catalog), default "";

        /// Where the Parquet files are, in a folder by schema and store: a folder, or "s3://bucket/path".
        pub(crate) data: Option<LakeData> = lake_data(), default "";

        /// This mirror's own schema in the catalog: one mirror writes to it, and no other.
        pub(crate) schema: String = lake_schema(), default "main";

        /// A TOML file, readable by its owner only, with what the catalog and the object store want to know:
        /// postgres_password, s3_key_id, s3_secret, s3_session_token, s3_region, s3_endpoint, s3_url_style,
        /// s3_use_ssl; "" is none.
        pub(crate) secret_file: Option<PathBuf> = optional(rules::secret_file), default "";

        /// `casemirror run` publishes to the lake not more often than this.
        pub(crate) interval: Duration = duration(SHORTEST..=DAY), default "5m";

        /// How long earlier snapshots of the lake can be read.
        pub(crate) keep_for: Duration = duration(Duration::ZERO..=3650 * DAY), default "30d";
    }

    /// Telling people (docs/operations.md).
    pub(crate) struct Alert in alert {
        /// Where the daemon POSTs {"text": "..."} when something needs a person, and when it is over: the
        /// address of a chat's incoming webhook, for example. It is not shown anywhere. `casemirror alert test`
        /// tries it.
        pub(crate) url: Option<SecretUrl> = optional(Reader::secret_address), default "";

        /// Called (GET) every minute while everything that is enabled is fresh and believed: for a service
        /// that tells when calls stay away.
        pub(crate) heartbeat: Option<SecretUrl> = optional(Reader::secret_address), default "";
    }

    /// Addresses that the daemon listens on.
    pub(crate) struct Serve in serve {
        /// Address and port of the status page and the metrics; "" is off.
        pub(crate) listen: Option<SocketAddr> = optional(Reader::listen_address),
            default "127.0.0.1:8640";

        /// Address and port for webhooks of the platform; "" is off.
        pub(crate) webhooks: Option<SocketAddr> = optional(Reader::webhooks_address), default "";

        /// The address under which the platform reaches serve.webhooks. With it, casemirror manages its own
        /// webhook subscriptions, which is the only thing it ever writes to the platform.
        // Only set together with `webhooks`. Its path always ends in `/`.
        pub(crate) public_url: Option<Url> = optional(Reader::public_address), default "";
    }
}
