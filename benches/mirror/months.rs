//! Snapshots of many small files: journals of five years, a file per month and table.

use std::path::Path;
use std::time::{Duration, Instant};

use casemirror::mirror::Store;
use casemirror::progress::Progress;
use casemirror::publish::{self, Frozen, ParquetTarget, Root, SnapshotInfo, Stop, Targets};
use jiff::Timestamp;

use crate::measure::{Figures, catalog, config};

/// As many tables as there are journals, with their annotations and sums.
const TABLES: [&str; 7] =
    ["lines_1", "lines_2", "lines_3", "lines_4", "lines_5", "lines_6", "lines_7"];
const MONTHS: usize = 60;

/// The first snapshot of a new store: every file is written.
pub(crate) fn first(folder: &Path, cases: usize) -> Figures {
    let folder = folder.join("months");
    let config = config("", &folder);
    let store = Store::open(&config, &catalog()).expect("a store can be made");
    let conn = store.connection().expect("another connection");
    // As many lines as a twentieth of the cases, each month and table.
    let lines = cases / 20;
    for table in TABLES {
        conn.execute_batch(&format!(
            "CREATE TABLE main.{table} AS SELECT n % 6 AS journal_id,
               (DATE '2022-01-01' + INTERVAL 1 MONTH * (n // {lines}))::DATE AS journal_month,
               n % {lines} + 1 AS line_number, md5(n::VARCHAR) AS line_key,
               (n * 7919 % 10000000)::DECIMAL(18,2) AS payment, TIMESTAMPTZ '2026-01-01' AS at
             FROM range({MONTHS} * {lines}) t(n);
             INSERT INTO sync.changes SELECT DISTINCT '{table}',
               strftime(journal_month, '%Y-%m'), 1 FROM main.{table}"
        ))
        .expect("lines can be made");
    }
    conn.execute_batch("CHECKPOINT").expect("a checkpoint");
    measured(&conn, &folder, 0)
}

/// The next one: one month of one table has changed.
pub(crate) fn next(folder: &Path) -> Figures {
    let folder = folder.join("months");
    let store = Store::open(&config("", &folder), &catalog()).expect("the store is there");
    let conn = store.connection().expect("another connection");
    conn.execute_batch(
        "UPDATE sync.changes SET counter = 2 WHERE table_name = 'lines_1' AND part = '2026-12'",
    )
    .expect("a counter");
    measured(&conn, &folder, TABLES.len() * MONTHS - 1)
}

fn measured(conn: &duckdb::Connection, folder: &Path, linked: usize) -> Figures {
    let root = Root::Folder(folder.join("snapshots-of-months"));
    let target = ParquetTarget {
        root: &root,
        tables: &TABLES,
        keep_snapshots: 1,
        keep_for: Duration::ZERO,
        erased: false,
    };
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
    let start = Instant::now();
    let targets = Targets { database: None, parquet: Some(target), views: None };
    let begun = publish::begin(&targets, info, None, &Stop::default()).expect("there are folders");
    let reading = conn.try_clone().expect("another connection");
    let frozen = Frozen::without_file(reading, begun).expect("a state to publish");
    let published = publish::publish(frozen, &targets, &Stop::default(), &Progress::silent())
        .expect("it is published");
    let took = start.elapsed();
    let parquet = published.parquet.expect("a snapshot was asked for");
    // Beside them the reports of which nothing has changed.
    assert!(parquet.linked >= linked, "{} of {} files", parquet.linked, parquet.files);
    Figures::of(took, parquet.rows, parquet.bytes)
}
