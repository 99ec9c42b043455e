//! What readers of other languages find: the published file and the Parquet files give the same rows
//! as the store (contract sections 3 and 7).

use std::collections::BTreeMap;
use std::process::Command;

use casemirror::catalog::Catalog;
use casemirror::sandbox::Act;
use serde_json::Value;

use crate::support::{World, one, shown};

/// Names a Python that has duckdb, pyarrow, polars and pandas; the test script sets it.
const PYTHON: &str = "CASEMIRROR_TEST_PYTHON";
/// Set where the test must not be skipped.
const REQUIRED: &str = "CASEMIRROR_REQUIRE_PYTHON";

#[test]
fn python_reads_the_same_rows_from_the_published_file_and_the_snapshot() {
    let Some(python) = std::env::var_os(PYTHON) else {
        assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, but {PYTHON} is not");
        eprintln!("skipped: {PYTHON} names no Python with duckdb, pyarrow, polars and pandas");
        return;
    };
    let world = World::unthrottled(25);
    world.sync();
    world.sandbox.act(&Act::Tick { events: 10 }).unwrap();
    world.sync();

    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py"))
        .args([world.path("data/casemirror.duckdb"), world.path("data/parquet")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let rows: BTreeMap<String, i64> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            (row["table"].as_str().unwrap().to_owned(), row["rows"].as_i64().unwrap())
        })
        .collect();
    let store = world.store();
    for table in Catalog::load(None).unwrap().names() {
        let own: i64 = one(&store, &format!("SELECT count(*) FROM main.{table}"));
        assert_eq!(rows.get(table), Some(&own), "{table}");
    }
    for report in ["signed_cases", "total_cost", "freshness", "snapshot"] {
        assert!(rows.contains_key(&format!("report.{report}")), "{report} is in no snapshot");
    }
}

#[test]
fn the_published_file_and_the_snapshot_agree_and_nothing_lies_beside_them() {
    let world = World::unthrottled(15);
    world.sync();
    world.assert_published();
    world.sandbox.act(&Act::NewCase { project: true, assignment: None }).unwrap();
    world.sync();
    world.assert_published();
}
