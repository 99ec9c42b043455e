//! A Parquet snapshot: one folder per table and report, one manifest, one link that moves when all
//! of it is there (contract section 7).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use duckdb::Connection;
use jiff::Timestamp;

use super::ROW_GROUP_ROWS;
use super::database::snapshot_select;
use super::durable::{self, Access, Replacement};
use super::manifest::{self, File, Manifest};
use super::snapshots;
use super::{ParquetTarget, PublishedParquet, Snapshot, utf8};
use crate::error::{self, Result};
use crate::mirror::{db, reports};
use crate::quote;

/// Name of the one file of a table.
const DATA_FILE: &str = "data.parquet";

/// A snapshot being written.
pub(super) struct Export<'a> {
    target: ParquetTarget<'a>,
    taken_at: Timestamp,
    folder: Replacement,
    manifest: Manifest,
    linked: usize,
}

/// One file to write.
struct Part {
    /// Folder within the snapshot, and the name of the table in the manifest.
    folder: String,
    table: String,
    query: String,
    changes: Option<i64>,
}

impl<'a> Export<'a> {
    /// Writes all files within the open transaction, which pins the state of the store.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn write(
        conn: &Connection,
        target: ParquetTarget<'a>,
        snapshot: &Snapshot<'_>,
    ) -> Result<Export<'a>> {
        let folder = Replacement::of(&snapshots::folder(target.root).join(&snapshot.id))?;
        let mut export = Export {
            target,
            taken_at: snapshot.info.taken_at,
            manifest: Manifest {
                snapshot_id: snapshot.id.clone(),
                taken_at: rfc3339(snapshot.info.taken_at),
                watermark: snapshot.info.watermark.map(rfc3339),
                complete: snapshot.info.complete,
                program: env!("CARGO_PKG_NAME").to_owned(),
                program_version: env!("CARGO_PKG_VERSION").to_owned(),
                duckdb_version: conn
                    .version()
                    .map_err(|e| db("cannot read DuckDB's version", e))?,
                store_id: snapshot.info.store_id.clone(),
                files: Vec::new(),
            },
            folder,
            linked: 0,
        };
        let earlier = Earlier::of(target.root, &export.manifest);
        for part in parts(conn, target.tables, snapshot)? {
            export.add(conn, part, &earlier)?;
        }
        Ok(export)
    }

    /// Writes one file, or links the earlier snapshot's where nothing can have changed.
    fn add(&mut self, conn: &Connection, part: Part, earlier: &Earlier) -> Result<()> {
        let columns = columns(conn, &part)?;
        let folder = self.folder.path().join(&part.folder);
        fs::create_dir_all(&folder).map_err(|e| error::io("create the folder", &folder, e))?;
        let path = folder.join(DATA_FILE);
        let name = format!("snapshots/{}/{}/{DATA_FILE}", self.manifest.snapshot_id, part.folder);

        if let Some(file) = earlier.unchanged(&part, &columns)
            && link(&self.target.root.join(&file.path), &path, file.bytes)
        {
            self.linked += 1;
            self.manifest.files.push(File { path: name, ..file.clone() });
            return Ok(());
        }
        let sql = format!(
            "COPY ({}) TO {} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP_ROWS})",
            part.query,
            quote::text(utf8(&path)?)
        );
        let rows: i64 = conn
            .query_row(&sql, [], |row| row.get(0))
            .map_err(|e| db(&format!("cannot write {name}"), e))?;
        durable::read_only(&path)?;
        let (bytes, sha256) = manifest::measure(&path)?;
        self.manifest.files.push(File {
            path: name,
            table: part.table,
            rows: rows.unsigned_abs(),
            bytes,
            sha256,
            changes: part.changes,
            columns,
        });
        Ok(())
    }

    /// Puts the snapshot in its place, moves `latest`, removes what is not kept.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn finish(self) -> Result<PublishedParquet> {
        let Export { target, taken_at, folder, manifest, linked } = self;
        manifest.write(folder.path())?;
        durable::read_only(&folder.path().join(manifest::FILE_NAME))?;
        let path = folder.target().to_owned();
        folder.finish(Access::AsCreated)?;
        let id = &manifest.snapshot_id;
        snapshots::point_latest_to(target.root, id)?;
        let removed = snapshots::remove_old(
            target.root,
            id,
            taken_at,
            target.keep_snapshots,
            target.keep_for,
        )?;
        Ok(PublishedParquet {
            path,
            files: manifest.files.len(),
            linked,
            bytes: manifest.files.iter().map(|f| f.bytes).sum(),
            removed,
        })
    }
}

/// The files of a snapshot: one per table and per report.
fn parts(conn: &Connection, tables: &[&str], snapshot: &Snapshot<'_>) -> Result<Vec<Part>> {
    let changes = change_counters(conn)?;
    let tables = tables.iter().map(|table| Part {
        folder: (*table).to_owned(),
        table: (*table).to_owned(),
        query: format!("SELECT * FROM main.{}", quote::ident(table)),
        changes: changes.get(*table).copied(),
    });
    let reports = reports::RELATIONS.iter().map(|name| Part {
        folder: format!("report/{name}"),
        table: format!("report.{name}"),
        query: match *name {
            // The store has no row of its own there: only a copy is a snapshot.
            "snapshot" => snapshot_select(snapshot),
            name => format!("SELECT * FROM report.{}", quote::ident(name)),
        },
        changes: None,
    });
    Ok(tables.chain(reports).collect())
}

/// The change counter of each table.
fn change_counters(conn: &Connection) -> Result<BTreeMap<String, i64>> {
    let read = || -> duckdb::Result<BTreeMap<String, i64>> {
        conn.prepare("SELECT table_name, counter FROM sync.changes WHERE part = ''")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    };
    read().map_err(|e| db("cannot read sync.changes", e))
}

/// Hash of the names and types of a part's columns: an older file of the same rows may lack one.
fn columns(conn: &Connection, part: &Part) -> Result<String> {
    let sql = format!(
        "SELECT string_agg(column_name || ' ' || column_type, ', ') FROM (DESCRIBE {})",
        part.query
    );
    let text: String = conn
        .query_row(&sql, [], |row| row.get(0))
        .map_err(|e| db(&format!("cannot read the columns of {}", part.table), e))?;
    Ok(manifest::fingerprint(&text))
}

/// The files of the snapshot that `latest` shows, by table, as far as they can be compared.
struct Earlier {
    files: BTreeMap<String, File>,
}

impl Earlier {
    fn of(root: &Path, now: &Manifest) -> Earlier {
        let link = snapshots::latest(root);
        let found = if link.exists() { Manifest::read(&link) } else { return Earlier::none() };
        match found {
            // Another store counts differently, another DuckDB or program may write differently.
            Ok(earlier)
                if earlier.store_id == now.store_id
                    && earlier.duckdb_version == now.duckdb_version
                    && earlier.program_version == now.program_version =>
            {
                Earlier { files: earlier.files.into_iter().map(|f| (f.table.clone(), f)).collect() }
            }
            Ok(_) => Earlier::none(),
            Err(e) => {
                tracing::warn!("every file is written anew: {}", e.chain());
                Earlier::none()
            }
        }
    }

    fn none() -> Earlier {
        Earlier { files: BTreeMap::new() }
    }

    /// The file of this part, if its rows and columns are the same now.
    fn unchanged(&self, part: &Part, columns: &str) -> Option<&File> {
        self.files.get(&part.table).filter(|file| {
            part.changes.is_some() && file.changes == part.changes && file.columns == columns
        })
    }
}

/// An instant for the manifest, cut to the microseconds that the tables have.
fn rfc3339(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Links an earlier file, if it is still what its manifest says; where it cannot be linked it is
/// written anew.
fn link(earlier: &Path, path: &Path, bytes: u64) -> bool {
    let whole = fs::metadata(earlier).is_ok_and(|found| found.is_file() && found.len() == bytes);
    whole
        && match fs::hard_link(earlier, path) {
            Ok(()) => true,
            Err(e) => {
                tracing::debug!("cannot link {}: {e}", earlier.display());
                false
            }
        }
}
