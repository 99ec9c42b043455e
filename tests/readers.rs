//! What readers of other languages find: the published file and the Parquet files give the same rows
//! as the store (docs/architecture.md, "Published means finished").

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use casemirror::catalog::Catalog;
use casemirror::sandbox::Act;
use rstest::rstest;
use serde::Deserialize;

use crate::support::{World, one, shown};

/// Names a folder with a virtual environment for each version that is read with, `duckdb-1.5`, and `dbt`;
/// the test script makes it and sets this.
const ENVIRONMENTS: &str = "CASEMIRROR_TEST_PYTHON";
/// Set where the tests must not be skipped.
const REQUIRED: &str = "CASEMIRROR_REQUIRE_PYTHON";

/// What `readers.py` prints.
#[derive(Deserialize)]
struct Read {
    duckdb: String,
    rows: BTreeMap<String, i64>,
}

/// The Python whose DuckDB has this version, or `None` with a word on it where it may be missing.
pub(crate) fn python(version: &str) -> Option<PathBuf> {
    environment(&format!("duckdb-{version}")).map(|bin| bin.join("python"))
}

/// The folder with the programs of a virtual environment, or `None` with a word on it where it may be missing.
pub(crate) fn environment(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os(ENVIRONMENTS)
        .map(|folder| PathBuf::from(folder).join(name).join("bin"))
        .filter(|bin| bin.join("python").exists());
    if found.is_none() {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set, but {ENVIRONMENTS} names no folder with {name}"
        );
        eprintln!("skipped: {ENVIRONMENTS} names no folder with a Python in {name}");
    }
    found
}

#[rstest]
#[case::duckdb_1_4("1.4", &[])]
#[case::duckdb_1_5_pyarrow_polars_and_pandas("1.5", &["pyarrow", "polars", "pandas"])]
#[case::duckdb_2_0("2.0", &[])]
fn python_reads_the_same_rows_from_the_published_file_and_the_snapshot(
    #[case] version: &str,
    #[case] libraries: &[&str],
) {
    let Some(python) = python(version) else { return };
    let world = World::with_snapshots(25);
    world.bootstrap();
    world.sandbox.act(&Act::Tick { events: 10 }).unwrap();
    world.sync();

    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py"))
        .args([world.path("data/casemirror.duckdb"), world.path("data/parquet")])
        .args(libraries)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let read: Read = serde_json::from_slice(&output.stdout).unwrap();
    assert!(read.duckdb.starts_with(version), "DuckDB {} in duckdb-{version}", read.duckdb);
    let store = world.store();
    for table in Catalog::load(None).unwrap().names() {
        let own: i64 = one(&store, &format!("SELECT count(*) FROM main.{table}"));
        assert_eq!(read.rows.get(table), Some(&own), "{table}");
    }
    for report in ["signed_cases", "total_cost", "freshness", "snapshot"] {
        let name = format!("report.{report}");
        assert!(read.rows.contains_key(&name), "{report} is in no snapshot");
    }
}

#[test]
fn the_published_file_and_the_snapshot_agree_and_nothing_lies_beside_them() {
    let world = World::with_snapshots(15);
    world.sync();
    world.assert_published();
    world.sandbox.act(&Act::NewCase { project: true, assignment: None }).unwrap();
    world.sync();
    world.assert_published();
}

/// DuckDB's checkpoints leave most of a store as it was, and what they leave behind kept clients before 1.4.2 from opening
/// some of the files.
#[test]
fn the_oldest_client_reads_all_of_every_published_file() {
    let Some(python) = python("1.2") else { return };
    let world = World::unthrottled(60);
    world.bootstrap();
    for n in 0..6 {
        world.sandbox.act(&Act::Tick { events: 12 }).unwrap();
        world.sync();
        let output = Command::new(&python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_all.py"))
            .arg(world.path("data/casemirror.duckdb"))
            .output()
            .unwrap();
        assert!(output.status.success(), "after {n}: {}", shown(&output));
        assert!(output.stdout.starts_with(b"1.2."), "{}", shown(&output));
    }
}
