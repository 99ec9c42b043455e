//! The measured parts, each run in a process of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casemirror::catalog::{Catalog, Resource};
use casemirror::config::Config;
use casemirror::cycle::{Cycle, MonthsUnderWay, Notifier, Options, Parts, Polls, Run, Signals};
use casemirror::decode::{Context, Decoder, Params, Privacy};
use casemirror::mirror::{RunLog, Settings, Store, Writer};
use casemirror::progress::Progress;
use casemirror::publish::{self, Frozen, ParquetTarget, Root, SnapshotInfo, Stop, Targets};
use casemirror::source::StoredLedger;
use casemirror::source::{Client, split};
use jiff::Timestamp;

use crate::pages;

/// As in the aims for memory.
const MEMORY_LIMIT: &str = "400MB";
const TABLES: [&str; 2] = ["cases", "projects"];

/// What a part took and how much it did. The bytes are those of the JSON.
pub(crate) struct Figures {
    seconds: f64,
    rows: u64,
    bytes: u64,
    peak_kib: u64,
}

impl Figures {
    pub(crate) fn of(took: Duration, rows: u64, bytes: u64) -> Figures {
        Figures { seconds: took.as_secs_f64(), rows, bytes, peak_kib: peak_memory() }
    }

    /// For the process that reads them.
    pub(crate) fn print(&self) {
        println!("{} {} {} {}", self.seconds, self.rows, self.bytes, self.peak_kib);
    }

    pub(crate) fn read(line: &str) -> Figures {
        let parts: Vec<f64> =
            line.split_whitespace().map(|p| p.parse().expect("a figure")).collect();
        let [seconds, rows, bytes, peak] = parts[..] else { panic!("four figures: {line:?}") };
        Figures { seconds, rows: rows as u64, bytes: bytes as u64, peak_kib: peak as u64 }
    }

    /// A row of the table that people read.
    pub(crate) fn row(&self, what: &str) {
        println!(
            "{what:<44} {:>8.2} {:>9.0} {:>9.1} {:>9.0}",
            self.seconds,
            self.rows as f64 / self.seconds,
            self.bytes as f64 / 1e6 / self.seconds,
            self.peak_kib as f64 * 1024.0 / 1e6,
        );
    }
}

/// The most memory that this process has held, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

pub(crate) fn config(address: &str, folder: &Path) -> Config {
    let address = if address.is_empty() { "http://127.0.0.1:1" } else { address };
    let address = address.parse().expect("the server printed its address");
    let mut config =
        Config::for_demo(address, "bench", "bench".to_owned().into(), &folder.join("data"));
    config.store.memory_limit = MEMORY_LIMIT.to_owned();
    // Nothing is loaded but cases and projects.
    config.feed.contacts_poll = None;
    config
}

fn context(config: &Config) -> Context {
    Context {
        zone: config.source.time_zone.clone(),
        privacy: Privacy::new(&config.privacy, [7; 32]),
        disabled: config.resources.disable.as_slice().into(),
        generation: 1,
    }
}

pub(crate) fn catalog() -> Arc<Catalog> {
    Arc::new(Catalog::load(None).expect("the built-in resource files are valid"))
}

fn resources(catalog: &Catalog) -> impl Iterator<Item = &Arc<Resource>> {
    TABLES.iter().filter_map(|table| catalog.get(table))
}

fn bodies(folder: &Path, table: &str) -> Vec<std::path::PathBuf> {
    let folder = std::fs::read_dir(pages::files_of(folder, table)).expect("the pages are there");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("a page").path()).collect();
    files.sort();
    files
}

/// Bodies of pages to record batches, on one thread: splitting and decoding, without reading.
pub(crate) fn decode(folder: &Path) -> Figures {
    let (catalog, config) = (catalog(), config("", folder));
    let context = context(&config);
    let (mut took, mut rows, mut bytes) = (Duration::ZERO, 0, 0);
    for resource in resources(&catalog) {
        for file in bodies(folder, &resource.table) {
            let body = std::fs::read(file).expect("a page can be read");
            let start = Instant::now();
            let parts = split::split(&body).expect("a page is a list");
            let mut decoder = Decoder::new(&catalog, resource, &context, parts.records.len());
            for record in &parts.records {
                decoder.push(record.get(), &Params::new());
            }
            let decoded = decoder.finish().expect("columns fit together");
            took += start.elapsed();
            rows += decoded.rows.num_rows() as u64;
            bytes += body.len() as u64;
        }
    }
    Figures::of(took, rows, bytes)
}

/// A first run of the tables of the searches: from HTTP to committed tables, the plan included.
pub(crate) fn list(address: &str, folder: &Path) -> Figures {
    let bytes = TABLES.iter().flat_map(|table| bodies(folder, table));
    let bytes = bytes.map(|file| file.metadata().expect("a page has a size").len()).sum();
    let (catalog, config) = (catalog(), Arc::new(config(address, folder)));
    let context = context(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let start = Instant::now();
    let report = runtime.expect("a runtime starts").block_on(async {
        let store = Arc::new(Store::open(&config, &catalog).expect("a store can be made"));
        let connection = || store.connection().expect("another connection");
        let run_id = RunLog::new(&connection()).start_run("bench").expect("the store is open");
        let settings = Settings::new(&config, &catalog, false);
        let writer = Writer::start(&store).expect("a writer");
        let ledger = Arc::new(StoredLedger::open(&config, connection()).expect("a ledger"));
        let client = Client::new(&config.source, &config.feed, &config.limits, ledger);
        let options = Options { only: TABLES.map(str::to_owned).to_vec(), ..Options::default() };
        let parts = Parts {
            config: Arc::clone(&config),
            catalog: Arc::clone(&catalog),
            store: Arc::clone(&store),
            writer: writer.loader(settings, run_id).expect("a loader"),
            polls: Polls {
                config: Arc::clone(&config),
                store: Arc::clone(&store),
                writer,
                client: client.expect("a client"),
                turns: Arc::default(),
                notifier: Notifier::default(),
            },
            context,
            progress: Progress::silent(),
            run_id,
            signals: Signals::none(),
            months: MonthsUnderWay::default(),
        };
        let run = Run::new(parts, options);
        Cycle::new(&run).run().await.expect("the run ends well")
    });
    let took = start.elapsed();
    assert!(report.problems.is_empty(), "{}", report.problems.join("\n"));
    let rows = report.outcome.tables.values().map(|merged| merged.inserted).sum();
    Figures::of(took, rows, bytes)
}

/// The store that [`list`] filled, published in both forms.
pub(crate) fn publish(folder: &Path) -> Figures {
    let (catalog, config) = (catalog(), config("", folder));
    let store = Store::open(&config, &catalog).expect("the store is there");
    let conn = store.connection().expect("another connection");
    let rows = TABLES
        .iter()
        .map(|table| {
            let sql = format!("SELECT count(*) FROM main.{table}");
            conn.query_row(&sql, [], |row| row.get::<_, u64>(0)).expect("rows can be counted")
        })
        .sum();
    let bytes = config.store.path.metadata().expect("the store has a size").len();
    let tables = catalog.names();
    let root = config.publish.parquet.as_ref().map(|root| Root::open(root, &config.store.path));
    let root = root.transpose().expect("a folder");
    let parquet = root.as_ref().map(|root| ParquetTarget {
        root,
        tables: &tables,
        keep_snapshots: 1,
        keep_for: Duration::ZERO,
        erased: false,
    });
    let info = SnapshotInfo {
        taken_at: Timestamp::now(),
        watermark: None,
        complete: false,
        store_id: "bench".to_owned(),
        state: String::new(),
        erasure: None,
        last_id: None,
        uploaded: None,
    };
    let targets = Targets { database: Some(&config.publish.database), parquet, views: None };
    let file = (store.file().expect("the store is a file"), store.bounds());
    let reading = store.connection().expect("another connection");
    let start = Instant::now();
    let begun = publish::begin(&targets, info, None, &Stop::default()).expect("there are folders");
    let frozen = Frozen::with_file(&conn, reading, file, begun).expect("a state to publish");
    publish::publish(frozen, &targets, &Stop::default(), &Progress::silent())
        .expect("it is published");
    Figures::of(start.elapsed(), rows, bytes)
}

/// What DuckDB alone takes for the same pages, from local files and with the types told, into a
/// table of a file.
pub(crate) fn read_json(folder: &Path) -> Figures {
    let catalog = catalog();
    let file = folder.join("read_json.duckdb");
    let conn = duckdb::Connection::open(&file).expect("a database can be made");
    // It runs out of memory at the limit that the mirror is given, so it has none but the machine's.
    conn.execute_batch("SET preserve_insertion_order = false").expect("a setting");
    let bytes = TABLES.iter().flat_map(|table| bodies(folder, table));
    let bytes = bytes.map(|file| file.metadata().expect("a page has a size").len()).sum();
    let start = Instant::now();
    let mut rows = 0;
    for resource in resources(&catalog) {
        let columns: Vec<String> = resource
            .columns
            .iter()
            .filter(|column| column.path.len() == 1)
            .map(|column| format!("'{}': '{}'", column.path[0], column.kind.sql()))
            .collect();
        let pages = pages::files_of(folder, &resource.table);
        let sql = format!(
            "CREATE TABLE {} AS SELECT * FROM read_json('{}/*.json', columns = {{{}}}, \
             format = 'array', maximum_object_size = 100000000)",
            resource.table,
            pages.display(),
            columns.join(", ")
        );
        conn.execute_batch(&sql).expect("DuckDB reads the pages");
        let sql = format!("SELECT count(*) FROM {}", resource.table);
        rows += conn.query_row(&sql, [], |row| row.get::<_, u64>(0)).expect("rows can be counted");
    }
    Figures::of(start.elapsed(), rows, bytes)
}
