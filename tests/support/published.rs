//! What readers find: the published database and the snapshot that `latest` shows.

use std::collections::BTreeSet;
use std::path::Path;

use duckdb::Connection;
use serde_json::Value;

use super::{World, differences, one};

impl World {
    /// Asserts that the published database equals the sandbox's state, that the snapshot of the same
    /// id holds the same rows, and that nothing half-made lies beside them.
    pub fn assert_published(&self) {
        let published = self.published();
        let differences = differences(&published, &self.sandbox.state());
        assert!(differences.is_empty(), "the published file differs:\n{}", differences.join("\n"));

        let root = self.path("data/parquet");
        let manifest = manifest(&root);
        let id: String = one(&published, "SELECT snapshot_id FROM report.snapshot");
        assert_eq!(manifest["snapshot_id"], id.as_str());
        let files = manifest["files"].as_array().unwrap();
        assert!(!files.is_empty());
        for file in files {
            assert_same_rows(&published, &root, file);
        }
        self.assert_nothing_left_over();
    }

    /// Asserts that no temporary file of a killed or failed run is left.
    pub fn assert_nothing_left_over(&self) {
        let mut data = names(&self.path("data"));
        // DuckDB's own log of what is committed but not yet in the file.
        data.remove("store.duckdb.wal");
        let ours = ["casemirror.duckdb", "parquet", "store.duckdb", "store.duckdb.secrets"];
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

fn assert_same_rows(published: &Connection, root: &Path, file: &Value) {
    let path = root.join(file["path"].as_str().unwrap());
    let name = file["table"].as_str().unwrap();
    let table = if name.contains('.') { name.to_owned() } else { format!("main.{name}") };
    let parquet = format!("read_parquet('{}')", path.display());
    let rows: i64 = one(published, &format!("SELECT count(*) FROM {parquet}"));
    assert_eq!(file["rows"], rows, "{name}");
    let different: i64 = one(
        published,
        &format!(
            "SELECT (SELECT count(*) FROM (FROM {parquet} EXCEPT ALL FROM {table})) \
                  + (SELECT count(*) FROM (FROM {table} EXCEPT ALL FROM {parquet}))"
        ),
    );
    assert_eq!(different, 0, "rows of {name} differ between the published file and the snapshot");
}

fn names(folder: &Path) -> BTreeSet<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
