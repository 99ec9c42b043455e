//! A sandbox, a configuration that points at it, the binary, and the comparison with the truth.

mod bootstrap;
mod published;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use casemirror::catalog::{Catalog, Resource, Scalar};
use casemirror::sandbox::{Level, Options};
use duckdb::{AccessMode, Config as DuckConfig, Connection};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use bootstrap::Watched;

pub(crate) mod daemon;
pub(crate) mod follow;
pub(crate) mod journals;
pub(crate) mod lake;
pub(crate) mod objects;
pub(crate) mod postgres;
pub(crate) mod scripted;
pub(crate) mod stored;
pub(crate) mod web;

/// A schedule that is due in every run.
const EVERY_SECOND: &str = "* * * * * *";

/// A sandbox that answers on loopback, and a folder with a mirror of it.
pub(crate) struct World {
    runtime: Runtime,
    pub(crate) sandbox: Watched,
    pub(crate) folder: TempDir,
    journals_since: RefCell<String>,
    doubt: RefCell<Option<String>>,
    retries_at_once: Cell<bool>,
    /// A schedule fires every second: [`EVERY_SECOND`].
    always_due: Cell<bool>,
    snapshots: Cell<bool>,
    /// The library that shifts the program's clock, and by how much.
    clock: RefCell<Option<(PathBuf, jiff::SignedDuration)>>,
}

impl World {
    /// A still brokerage of so many cases; nothing happens in it but what a test asks for.
    pub(crate) fn new(cases: usize) -> World {
        World::with(Options { cases, gzip: false, ..Options::default() })
    }

    pub(crate) fn with(options: Options) -> World {
        let runtime = Runtime::new().unwrap();
        let sandbox = runtime.block_on(Watched::start(options));
        // Two years of journals would be most of what a test about something else reads.
        let since = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(1);
        let world = World {
            runtime,
            sandbox,
            folder: tempfile::tempdir().unwrap(),
            journals_since: RefCell::new(since.to_string()),
            doubt: RefCell::default(),
            retries_at_once: Cell::new(false),
            always_due: Cell::new(false),
            snapshots: Cell::new(false),
            clock: RefCell::default(),
        };
        world.configure("");
        world
    }

    /// As [`World::new`], with a throttle on both sides that no test has to wait for.
    pub(crate) fn unthrottled(cases: usize) -> World {
        let world = World::with(follow::unthrottled(cases));
        world.configure(follow::UNTHROTTLED);
        world
    }

    /// Writes the configuration; `more` is TOML that is added to it.
    pub(crate) fn configure(&self, more: &str) {
        let text = format!(
            "[source]\nbase_url = \"{}\"\nclient_id = \"{}\"\nclient_secret = \"{}\"\n\
             search_delay = \"1s\"\n[limits]\nrequests_per_second = 2000\n\
             [privacy]\nidentifiers = \"keep\"\n{more}\n",
            self.sandbox.base_url(),
            self.sandbox.client_id(),
            self.sandbox.client_secret(),
        );
        self.always_due.set(text.contains(EVERY_SECOND));
        let file = self.path("casemirror.toml");
        std::fs::write(&file, text).unwrap();
        // It holds the secret: with another mode every command would say so.
        std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }

    /// Two runs may lie within the same second, and in the second nothing would be due: the schedules
    /// of the store forget one second.
    fn pass_a_second(&self) {
        // No store yet, or a daemon that has it and lives on: both need nothing.
        let config = DuckConfig::default().access_mode(AccessMode::ReadWrite).unwrap();
        let path = self.path("data/store.duckdb");
        let Some(store) =
            path.exists().then(|| Connection::open_with_flags(path, config).ok()).flatten()
        else {
            return;
        };
        let back = "UPDATE sync.schedules SET last_run = \
                      make_timestamp(epoch_us(last_run) - 1000000)::VARCHAR || '+00'";
        store.execute_batch(back).unwrap();
    }

    /// Alters the store behind the mirror's back; returns of how many rows.
    pub(crate) fn alter(&self, sql: &str) -> usize {
        let store = Connection::open(self.path("data/store.duckdb")).unwrap();
        store.execute(sql, []).unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Sets `journals.since` for the runs to come.
    pub(crate) fn journals_since(&self, day: &str) {
        self.journals_since.replace(day.to_owned());
    }

    /// Calls that fail are repeated without a pause in the runs to come.
    pub(crate) fn retry_at_once(&self) {
        self.retries_at_once.set(true);
    }

    /// Parquet snapshots are published too, by the runs to come: they are much of the work of a run, so
    /// only tests about them have them.
    pub(crate) fn publish_snapshots(&self) {
        self.snapshots.set(true);
    }

    /// As [`World::unthrottled`], with Parquet snapshots.
    pub(crate) fn with_snapshots(cases: usize) -> World {
        let world = World::unthrottled(cases);
        world.publish_snapshots();
        world
    }

    /// The runs to come have a clock of their own, by `libfaketime`.
    pub(crate) fn fake_time(&self, library: PathBuf) {
        self.clock.replace(Some((library, jiff::SignedDuration::ZERO)));
    }

    /// How far that clock is from ours.
    pub(crate) fn set_clock(&self, ahead: jiff::SignedDuration) {
        if let Some((_, was)) = &mut *self.clock.borrow_mut() {
            *was = ahead;
        }
    }

    /// Sets `source.doubt` for the runs to come.
    pub(crate) fn doubt(&self, duration: &str) {
        self.doubt.replace(Some(duration.to_owned()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs something of the sandbox that waits.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The binary with this world's configuration.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        if self.always_due.get() && args.first() == Some(&"sync") {
            self.pass_a_second();
        }
        let mut command = binary();
        command.envs(self.environment());
        command.current_dir(self.folder.path()).args(args);
        command
    }

    /// What the binary is told beside the configuration.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut all: Vec<(&str, OsString)> = vec![
            ("CASEMIRROR_JOURNALS__SINCE", self.journals_since.borrow().clone().into()),
            // Two tests run at a time, each with a store as small as it can be.
            ("CASEMIRROR_STORE__THREADS", "1".into()),
            // Two daemons at a time cannot have the usual one.
            ("CASEMIRROR_SERVE__LISTEN", "127.0.0.1:0".into()),
            // Another test's sandbox may have had the same port a moment ago.
            ("CASEMIRROR_FEED__LEDGER", self.path("feed-calls").into()),
        ];
        if !self.snapshots.get() {
            all.push(("CASEMIRROR_PUBLISH__PARQUET", "".into()));
        }
        if let Some((library, ahead)) = &*self.clock.borrow() {
            all.push(("LD_PRELOAD", library.into()));
            all.push(("FAKETIME", format!("{:+.3}", ahead.as_secs_f64()).into()));
            // What is measured goes on as it does, and so do the dates of files.
            all.push(("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()));
            all.push(("NO_FAKE_STAT", "1".into()));
        }
        if self.retries_at_once.get() {
            all.push(("CASEMIRROR_RETRY_AT_ONCE", "1".into()));
        }
        if let Some(doubt) = &*self.doubt.borrow() {
            all.push(("CASEMIRROR_SOURCE__DOUBT", doubt.into()));
        }
        all
    }

    /// The same where nobody answers at the source's address.
    pub(crate) fn run_out_of_reach(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        // Where nothing listens; a port that was free a moment ago may be taken again.
        command.env("CASEMIRROR_SOURCE__BASE_URL", "http://127.0.0.1:1/");
        command.env("CASEMIRROR_RETRY_AT_ONCE", "1");
        command.output().unwrap()
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs `sync` and asserts that it is done and complete.
    pub(crate) fn sync(&self) -> String {
        let output = self.run(&["sync"]);
        assert_eq!(output.status.code(), Some(0), "sync failed:\n{}", shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The published database, opened read-only as an analyst would.
    pub(crate) fn published(&self) -> Connection {
        open_read_only(&self.path("data/casemirror.duckdb"))
    }

    /// The store, opened read-only; no daemon may hold it.
    pub(crate) fn store(&self) -> Connection {
        open_read_only(&self.path("data/store.duckdb"))
    }

    /// Asserts that every table of the store equals the sandbox's own state, cell by cell.
    pub(crate) fn assert_equal(&self) {
        let differences = self.differences();
        assert!(differences.is_empty(), "the mirror differs:\n{}", differences.join("\n"));
    }

    /// How the tables of the store differ from the sandbox's own state.
    pub(crate) fn differences(&self) -> Vec<String> {
        self.differences_in(&self.store())
    }

    /// How the tables of a database, the store or what was published of it, differ from that state.
    pub(crate) fn differences_in(&self, conn: &Connection) -> Vec<String> {
        // The names of all tables that there are in a sandbox: they are the same in each.
        static TABLES: OnceLock<Vec<String>> = OnceLock::new();
        let names = |state: Value| state["tables"].as_object().unwrap().keys().cloned().collect();
        let tables = TABLES.get_or_init(|| names(self.sandbox.state()));
        let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
        // Of two years of journals, most is in no mirror of a test.
        let first_month = first_month(conn);
        let state = self.sandbox.journal_tables(Level::Offices, first_month.as_deref(), &tables);
        differences(conn, &state)
    }
}

/// The first month whose journals are mirrored, as `yyyy-mm`.
fn first_month(conn: &Connection) -> Option<String> {
    one(conn, "SELECT strftime(min(journal_month), '%Y-%m') FROM sync.journal_months")
}

/// The binary under test, without the surroundings' settings.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemirror"));
    for (name, _) in std::env::vars() {
        if name.starts_with("CASEMIRROR_") {
            command.env_remove(name);
        }
    }
    // Giving freed memory back at once, as small machines want it, is a tenth of the work of so small a mirror.
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        command.env("MIMALLOC_PURGE_DELAY", "-1");
    }
    command
}

pub(crate) fn open_read_only(path: &Path) -> Connection {
    try_open_read_only(path).unwrap()
}

/// Fails while this process or another has the file open for writing.
pub(crate) fn try_open_read_only(path: &Path) -> duckdb::Result<Connection> {
    let config = DuckConfig::default()
        .access_mode(AccessMode::ReadOnly)
        .and_then(|c| c.enable_autoload_extension(false))
        .unwrap();
    Connection::open_with_flags(path, config)
}

/// The one value of a query.
pub(crate) fn one<T: duckdb::types::FromSql>(conn: &Connection, sql: &str) -> T {
    conn.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// What a process printed, for a failing assertion.
pub(crate) fn shown(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A row as the sandbox prints its state: cells in canonical form.
pub(crate) type Row = serde_json::Map<String, Value>;

/// Differences between a database's `main` and a sandbox's whole state, in words; at most some. Both
/// have the same tables, and these the same rows and columns.
pub(crate) fn differences(conn: &Connection, state: &Value) -> Vec<String> {
    let shown: BTreeSet<String> = state["tables"].as_object().unwrap().keys().cloned().collect();
    let there: String = one(
        conn,
        "SELECT string_agg(table_name) FROM information_schema.tables WHERE table_schema = 'main'",
    );
    // What only webhooks tell is no state of the source.
    let is_state = |table: &&str| *table != "events";
    let there: BTreeSet<String> = there.split(',').filter(is_state).map(str::to_owned).collect();
    let mut all: Vec<String> = shown
        .difference(&there)
        .map(|table| format!("{table} is no table of the mirror"))
        .collect();
    all.extend(there.difference(&shown).map(|table| format!("{table} is no table of the source")));
    all.extend(differences_of(conn, state));
    all.truncate(30);
    all
}

/// The same for the tables that a part of the state has.
pub(crate) fn differences_of(conn: &Connection, state: &Value) -> Vec<String> {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    let catalog = CATALOG.get_or_init(|| Catalog::load(None).unwrap());
    // Journals are mirrored from a month on; the sandbox has them all.
    let first_month = first_month(conn);
    let mut all = Vec::new();
    assert!(!state["tables"].as_object().unwrap().is_empty(), "nothing to compare with");
    for (table, rows) in state["tables"].as_object().unwrap() {
        let resource = catalog.get(table).unwrap_or_else(|| panic!("{table} is in no catalog"));
        let truth = rows.as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone());
        let truth = truth.filter(|row| match row.get("journal_month") {
            Some(month) => first_month.as_deref().is_some_and(|f| month.as_str() >= Some(f)),
            None => true,
        });
        let truth = by_key(resource, truth, &mut all);
        let mut mirror: Vec<Row> = mirrored(conn, resource);
        // The source knows a line by its place only: the mirror's names for lines are held against
        // nothing but each other.
        if resource.key.iter().any(|column| column == LINE_ID) {
            by_own_key(resource, &mirror, &mut all);
        }
        mirror.iter_mut().for_each(|row| drop(row.remove(LINE_ID)));
        let mirror = by_key(resource, mirror, &mut all);
        // What has begun stays; the sandbox shows what is still to come.
        let stays = |row: &Row| {
            let at = resource.stays_after.as_ref().and_then(|column| row[column].as_str());
            at.is_some_and(|at| at.parse::<jiff::Timestamp>().unwrap() <= jiff::Timestamp::now())
        };
        for (key, row) in &truth {
            match mirror.get(key) {
                None => all.push(format!("{table} {key} is missing")),
                Some(own) => {
                    let columns: BTreeSet<&String> = own.keys().chain(row.keys()).collect();
                    for column in columns {
                        let (mirrored, value) = (own.get(column), row.get(column));
                        if mirrored != value {
                            let shown = |cell: Option<&Value>| {
                                cell.map_or("no column".to_owned(), Value::to_string)
                            };
                            let (mirrored, value) = (shown(mirrored), shown(value));
                            all.push(format!("{table} {key} {column}: {mirrored} is not {value}"));
                        }
                    }
                }
            }
        }
        for (key, _) in mirror.iter().filter(|(key, row)| !truth.contains_key(*key) && !stays(row))
        {
            all.push(format!("{table} {key} should not be there"));
        }
    }
    all.truncate(30);
    all
}

/// The mirror's name for a journal's line.
pub(crate) const LINE_ID: &str = "line_id";

/// Rows of the mirror have a key that is theirs alone.
fn by_own_key(resource: &Resource, rows: &[Row], differences: &mut Vec<String>) {
    let mut met = BTreeSet::new();
    for row in rows {
        let key: Vec<String> = resource.key.iter().map(|k| row[k].to_string()).collect();
        if key.iter().any(|value| value == "null") || !met.insert(key.clone()) {
            differences.push(format!("{} {} is no key", resource.table, key.join("/")));
        }
    }
}

/// Rows by their keys, which are unique; of a journal's line the place stands for its name.
pub(crate) fn by_key(
    resource: &Resource,
    rows: impl IntoIterator<Item = Row>,
    differences: &mut Vec<String>,
) -> BTreeMap<String, Row> {
    let mut all = BTreeMap::new();
    for row in rows {
        let place = |k: &String| if k == LINE_ID { "line_number" } else { k.as_str() }.to_owned();
        let key: Vec<String> = resource.key.iter().map(|k| row[&place(k)].to_string()).collect();
        let key = key.join("/");
        if all.insert(key.clone(), row).is_some() {
            differences.push(format!("{} {key} is there twice", resource.table));
        }
    }
    all
}

/// The rows of a table of the mirror.
pub(crate) fn mirrored(conn: &Connection, resource: &Resource) -> Vec<Row> {
    let cells: Vec<String> = resource
        .columns
        .iter()
        .map(|c| {
            let one = |value: &str| match c.kind.scalar {
                Scalar::Int | Scalar::Bool | Scalar::Text | Scalar::Enum => value.to_owned(),
                Scalar::Money | Scalar::Decimal | Scalar::Guid | Scalar::Date => {
                    format!("{value}::VARCHAR")
                }
                Scalar::Instant => {
                    format!("strftime({value}::TIMESTAMP, '%Y-%m-%dT%H:%M:%S.%fZ')")
                }
            };
            let name = format!("\"{}\"", c.name);
            let value = if c.kind.list {
                format!("list_transform({name}, lambda x: {})", one("x"))
            } else {
                one(&name)
            };
            format!("'{}', {value}", c.name)
        })
        .chain(["'_extra', _extra".to_owned()])
        .collect();
    let sql = format!(
        "SELECT json_object({})::VARCHAR FROM main.\"{}\"",
        cells.join(", "),
        resource.table
    );
    let mut statement = conn.prepare(&sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|text| serde_json::from_str(&text.unwrap()).unwrap()).collect()
}
