//! `casemirror query` reads the published database and reaches nothing else
//! (docs/architecture.md, "Commands").

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use duckdb::Connection;

use crate::support::{World, shown};

/// Ways out, each a statement that has to fail. `{outside}` is a folder with files that are not the
/// database, `{store}` the daemon's own store.
const WAYS_OUT: &[&str] = &[
    // Other databases.
    "ATTACH '{store}' AS s",
    "ATTACH '{store}' AS s (READ_ONLY)",
    "ATTACH '{outside}/other.duckdb' AS o",
    "ATTACH '{outside}/new.duckdb' AS n",
    "ATTACH ':memory:' AS m",
    "USE memory",
    "DETACH casemirror",
    "FROM '{outside}/other.duckdb'",
    "FROM read_duckdb('{outside}/other.duckdb', table_name = 't')",
    "COPY FROM DATABASE casemirror TO memory",
    // Files that are read.
    "FROM '{outside}/data.csv'",
    "FROM '{outside}/data.json'",
    "FROM '{outside}/data.parquet'",
    "FROM read_csv('{outside}/data.csv')",
    "FROM read_csv_auto('{outside}/data.csv')",
    "FROM sniff_csv('{outside}/data.csv')",
    "FROM read_text('{outside}/secret.txt')",
    "FROM read_blob('{outside}/secret.txt')",
    "FROM read_text('{store}.secrets')",
    "FROM read_text('/etc/passwd')",
    "FROM read_text('/proc/self/environ')",
    "FROM read_json('{outside}/data.json')",
    "FROM read_json_objects('{outside}/data.json')",
    "FROM read_ndjson('{outside}/data.json')",
    "FROM read_ndjson_objects('{outside}/data.json')",
    "FROM read_parquet('{outside}/data.parquet')",
    "FROM parquet_scan('{outside}/data.parquet')",
    "FROM parquet_schema('{outside}/data.parquet')",
    "FROM parquet_metadata('{outside}/data.parquet')",
    "FROM parquet_file_metadata('{outside}/data.parquet')",
    "FROM parquet_kv_metadata('{outside}/data.parquet')",
    "FROM parquet_bloom_probe('{outside}/data.parquet', 'a', 1)",
    "FROM glob('{outside}/*')",
    "FROM glob('/*')",
    "FROM query('FROM read_text(''{outside}/secret.txt'')')",
    "FROM query_table('{outside}/data.csv')",
    "WITH x AS (FROM read_text('{outside}/secret.txt')) FROM x",
    "SELECT (SELECT content FROM read_text('{outside}/secret.txt'))",
    "DESCRIBE FROM '{outside}/data.csv'",
    "SUMMARIZE FROM '{outside}/data.csv'",
    "EXPLAIN ANALYZE FROM '{outside}/data.csv'",
    "IMPORT DATABASE '{outside}'",
    // Files that are written.
    "COPY (SELECT 1) TO '{outside}/new.csv'",
    "COPY (SELECT 1) TO '{outside}/new.parquet' (FORMAT parquet)",
    "COPY (SELECT 1) TO '/dev/stdout'",
    "COPY cases TO '{outside}/new.csv'",
    "EXPORT DATABASE '{outside}/new'",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{outside}/new-log')",
    "SELECT * FROM ENABLE_LOGGING(storage = 'file', storage_path = '{outside}/new-log')",
    "FROM query('SELECT * FROM enable_logging(storage = ''file'', storage_path = ''{outside}/n'')')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{outside}/secret.txt'')'))",
    "SELECT (SELECT count(*) FROM enable_profiling(save_location = '{outside}/new.json'))",
    "DESCRIBE FROM enable_profiling(save_location = '{outside}/new.json')",
    "FROM arrow_scan(1::UBIGINT, 1::UBIGINT, 1::UBIGINT)",
    "CALL enable_logging(storage = 'file', storage_path = '{outside}/new-log')",
    "PRAGMA profiling_output = '{outside}/new.json'",
    "EXPLAIN COPY (SELECT 1) TO '{outside}/new.csv'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{outside}/new.csv'",
    // Behind EXPLAIN in its other forms.
    "EXPLAIN (FORMAT JSON) SELECT 1; CREATE TEMP TABLE t AS SELECT 1; FROM t",
    "EXPLAIN (ANALYZE) FROM enable_logging(storage = 'file', storage_path = '{outside}/new-log')",
    "EXPLAIN ANALYSE FROM enable_logging(storage = 'file', storage_path = '{outside}/new-log')",
    "EXPLAIN ANALYZE FROM enable_profiling(save_location = '{outside}/new.json')",
    "EXPLAIN(ANALYZE) FROM read_text('{outside}/secret.txt')",
    "EXPLAIN/**/ANALYZE FROM read_text('{outside}/secret.txt')",
    "EXPLAIN (FORMAT JSON) SET VARIABLE x = 1",
    "EXPLAIN SET VARIABLE x = 1",
    "EXPLAIN EXPLAIN SELECT 1",
    "EXPLAIN PREPARE p AS SELECT 1",
    "EXPLAIN CALL enable_logging(storage = 'file', storage_path = '{outside}/new-log')",
    "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
    "EXPLAIN SELECT 1; FROM query('SELECT 1')",
    "EXPLAIN",
    // What the check cannot read.
    "SELEC 1; SET VARIABLE x = 1",
    "SELECT '",
    // Settings, extensions, secrets, the network.
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET enable_external_access",
    "PRAGMA enable_external_access = true",
    "SET temp_directory = '{outside}'",
    "SET allowed_directories = ['/']",
    "SET memory_limit = '1KB'",
    "SET VARIABLE x = 1",
    "INSTALL httpfs",
    "FORCE INSTALL httpfs FROM 'http://127.0.0.1:1/'",
    "LOAD httpfs",
    "LOAD '{outside}/data.csv'",
    "CREATE SECRET s (TYPE http, BEARER_TOKEN 'x')",
    "FROM 'http://127.0.0.1:1/data.csv'",
    "FROM read_csv('https://127.0.0.1:1/data.csv')",
    "FROM read_parquet('s3://bucket/data.parquet')",
    // Changes of the database.
    "CREATE TABLE main.t AS SELECT 1",
    "CREATE OR REPLACE VIEW main.cases AS SELECT 1",
    "INSERT INTO sync.feed_calls SELECT * FROM sync.feed_calls",
    "DELETE FROM sync.feed_calls",
    "UPDATE cases SET id = 0",
    "DROP TABLE cases",
    "ALTER TABLE cases ADD COLUMN x INTEGER",
    "COMMENT ON TABLE cases IS 'x'",
    "VACUUM",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    // More than one statement.
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '{outside}/new.csv'",
    "EXPLAIN SELECT 1; COPY (SELECT 1) TO '{outside}/new.csv'",
    "BEGIN; SELECT 1",
    "PREPARE p AS SELECT 1",
    "",
    "/* nothing */",
];

/// Every file under a folder and what it holds.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn no_statement_reaches_anything_but_the_published_database() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let outside = world.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let shown_outside = outside.display().to_string();
    std::fs::write(outside.join("secret.txt"), "do not tell").unwrap();
    std::fs::write(outside.join("data.csv"), "a,b\ndo not,tell\n").unwrap();
    std::fs::write(outside.join("data.json"), "{\"a\": \"do not tell\"}\n").unwrap();
    let other = Connection::open(outside.join("other.duckdb")).unwrap();
    other
        .execute_batch(&format!(
            "CREATE TABLE t AS SELECT 'do not tell' AS a; CHECKPOINT; \
             COPY t TO '{shown_outside}/data.parquet' (FORMAT parquet)"
        ))
        .unwrap();
    drop(other);
    let before = files(&world.path("."));

    let store = world.path("data/store.duckdb").display().to_string();
    for way in WAYS_OUT {
        let sql = way.replace("{outside}", &shown_outside).replace("{store}", &store);
        let output = world.run(&["query", &sql]);
        assert_eq!(output.status.code(), Some(1), "{sql}: {}", shown(&output));
        assert!(shown(&output).contains("the query failed"), "{sql}: {}", shown(&output));
        assert!(!shown(&output).contains("tell"), "{sql}: {}", shown(&output));
    }
    let after = files(&world.path("."));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    assert!(before == after, "a file has changed");
}

#[test]
fn every_form_of_reading_is_a_query() {
    let world = World::unthrottled(6);
    world.bootstrap();
    for sql in [
        "SELECT count(*) FROM cases",
        "FROM cases LIMIT 1;",
        "/* the first */ WITH c AS (FROM cases) SELECT count(*) FROM c -- and the last",
        "VALUES (1), (2)",
        "TABLE report.snapshot",
        "DESCRIBE cases",
        "SHOW ALL TABLES",
        "SUMMARIZE report.calendar",
        "EXPLAIN SELECT count(*) FROM cases",
        "explain analyze SELECT count(*) FROM cases",
        "PIVOT costs ON cost_type IN ('Buyer', 'Seller') USING sum(amount) GROUP BY case_id",
        "FROM report.signed_cases_between(TIMESTAMPTZ '2026-01-01 00:00:00+00', now())",
        "SELECT * FROM report.total_cost ORDER BY ALL",
    ] {
        let output = world.run(&["query", sql]);
        assert_eq!(output.status.code(), Some(0), "{sql}: {}", shown(&output));
    }
}
