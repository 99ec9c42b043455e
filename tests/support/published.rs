//! What readers find: the published database and the snapshot that `latest` shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use duckdb::Connection;
use serde_json::Value;

use super::{World, one};

impl World {
    /// Asserts that the published database equals the sandbox's state, that the snapshot of the same
    /// id holds the same rows, and that nothing half-made lies beside them.
    pub(crate) fn assert_published(&self) {
        let published = self.published();
        let differences = self.differences_in(&published);
        assert!(differences.is_empty(), "the published file differs:\n{}", differences.join("\n"));

        let root = self.path("data/parquet");
        let manifest = manifest(&root);
        let id: String = one(&published, "SELECT snapshot_id FROM report.snapshot");
        assert_eq!(manifest["snapshot_id"], id.as_str());
        let mut tables: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for file in manifest["files"].as_array().unwrap() {
            tables.entry(file["table"].as_str().unwrap()).or_default().push(file);
        }
        assert!(!tables.is_empty());
        let views = self.path("data/casemirror-views.duckdb");
        let attach = format!("ATTACH '{}' AS seen (READ_ONLY)", views.display());
        published.execute_batch(&attach).unwrap();
        for (name, files) in tables {
            assert_same_rows(&published, &root, name, &files);
            assert_same_view(&published, name);
        }
        // Held no longer than it is read: it is written only when nobody has it.
        published.execute_batch("DETACH seen").unwrap();
        self.assert_nothing_left_over();
    }

    /// Asserts that no temporary file of a killed or failed run is left, and that the last one closed
    /// the store: all that was committed is in its file, and DuckDB's log is gone.
    pub(crate) fn assert_nothing_left_over(&self) {
        let data = names(&self.path("data"));
        let ours = [
            "casemirror-views.duckdb",
            "casemirror.duckdb",
            "parquet",
            "store.duckdb",
            "store.duckdb.publishing",
            "store.duckdb.secrets",
        ];
        assert_eq!(data, ours.map(str::to_owned).into());
        assert_eq!(
            names(&self.path("data/parquet")),
            ["latest".to_owned(), "snapshots".to_owned()].into()
        );
        for snapshot in names(&self.path("data/parquet/snapshots")) {
            let manifest =
                self.path("data/parquet/snapshots").join(&snapshot).join("manifest.json");
            assert!(manifest.exists(), "{snapshot} is no whole snapshot");
        }
    }
}

/// The manifest of the snapshot that `latest` shows.
fn manifest(root: &Path) -> Value {
    let text = std::fs::read(root.join("latest/manifest.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// A journal has a file per month, all others have one.
fn assert_same_rows(published: &Connection, root: &Path, name: &str, files: &[&Value]) {
    let table = if name.contains('.') { name.to_owned() } else { format!("main.{name}") };
    let paths: Vec<String> = files
        .iter()
        .map(|file| format!("'{}'", root.join(file["path"].as_str().unwrap()).display()))
        .collect();
    let parquet = format!("read_parquet([{}])", paths.join(", "));
    let rows: i64 = one(published, &format!("SELECT count(*) FROM {parquet}"));
    let listed: i64 = files.iter().map(|file| file["rows"].as_i64().unwrap()).sum();
    assert_eq!(listed, rows, "{name}");
    let different: i64 = one(
        published,
        &format!(
            "SELECT (SELECT count(*) FROM (FROM {parquet} EXCEPT ALL FROM {table})) \
                  + (SELECT count(*) FROM (FROM {table} EXCEPT ALL FROM {parquet}))"
        ),
    );
    assert_eq!(different, 0, "rows of {name} differ between the published file and the snapshot");
}

/// What is published of a table and its view over the snapshot: rows, columns and comments.
fn assert_same_view(published: &Connection, name: &str) {
    let (schema, table) = name.split_once('.').unwrap_or(("main", name));
    let view = format!("seen.{schema}.{table}");
    let different: i64 = one(
        published,
        &format!(
            "SELECT (SELECT count(*) FROM (FROM {view} EXCEPT ALL FROM {schema}.{table})) \
                  + (SELECT count(*) FROM (FROM {schema}.{table} EXCEPT ALL FROM {view}))"
        ),
    );
    assert_eq!(different, 0, "rows of {name} differ between the published file and the views");
    let columns = |database: &str| {
        format!(
            "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE database_name = {database} \
             AND schema_name = '{schema}' AND table_name = '{table}'"
        )
    };
    let (here, seen) = (columns("current_database()"), columns("'seen'"));
    let different: i64 =
        one(published, &format!("SELECT count(*) FROM (({here}) EXCEPT ({seen}))"));
    assert_eq!(different, 0, "columns of {name} differ between the published file and the views");
}

fn names(folder: &Path) -> BTreeSet<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
