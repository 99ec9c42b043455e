//! A Parquet snapshot: its files, one manifest, one link that moves when all of it is there
//! (docs/architecture.md, "Published means finished").

use duckdb::Connection;
use jiff::Timestamp;

use super::ROW_GROUP_ROWS;
use super::earlier::Earlier;
use super::footer;
use super::manifest::{self, File, Manifest, rfc3339};
use super::parts::{self, Part};
use super::snapshots;
use super::{ParquetTarget, PublishedParquet, Snapshot, Stop, utf8};
use crate::durable::{self, Access, Replacement};
use crate::error::Result;
use crate::failpoint;
use crate::progress::Progress;
use crate::sql::{self, db};

/// A snapshot being written.
pub(super) struct Export<'a> {
    target: ParquetTarget<'a>,
    taken_at: Timestamp,
    folder: Replacement,
    manifest: Manifest,
    linked: usize,
}

impl<'a> Export<'a> {
    /// Writes all files within the open transaction, which pins the state of the store.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn write(
        conn: &Connection,
        target: ParquetTarget<'a>,
        snapshot: &Snapshot,
        stop: &Stop,
        progress: &Progress,
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
        let earlier = if target.erased {
            Earlier::none(target.root)
        } else {
            Earlier::of(target.root, &export.manifest)
        };
        let parts = parts::all(conn, target.tables, snapshot)?;
        let mut share = progress.share(parts.len() as u64);
        for part in parts {
            stop.check()?;
            export.add(conn, part, &earlier)?;
            share.done(1);
        }
        Ok(export)
    }

    /// Writes one file, or links the earlier snapshot's where nothing can have changed.
    fn add(&mut self, conn: &Connection, part: Part, earlier: &Earlier) -> Result<()> {
        let folder = self.folder.path().join(&part.folder);
        durable::make_shared_folder(&folder)?;
        let path = folder.join(&part.file);
        let name = format!("snapshots/{}/{}", self.manifest.snapshot_id, part.path());

        if let Some(file) = earlier.link(&part, &path) {
            self.linked += 1;
            self.manifest.files.push(File { path: name, ..file });
            return Ok(());
        }
        let columns = part.columns(conn)?;
        let sql = format!(
            "COPY ({}) TO {} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP_ROWS})",
            part.query(&columns),
            sql::text(utf8(&path)?)
        );
        let rows: i64 = conn
            .query_row(&sql, [], |row| row.get(0))
            .map_err(|e| db(&format!("cannot write {name}"), e))?;
        let rows = rows.unsigned_abs();
        let statistics = footer::read(&path, &name, &columns.all, rows)?;
        durable::read_only(&path)?;
        let (bytes, sha256) = manifest::measure(&path)?;
        self.manifest.files.push(File {
            path: name,
            table: part.table,
            rows,
            bytes,
            sha256,
            changes: part.changes,
            inputs: part.inputs,
            columns: columns.hash.clone(),
            statistics: Some(statistics),
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
        failpoint::hit("snapshot-written");
        folder.finish(Access::AsCreated)?;
        failpoint::hit("snapshot-placed");
        let id = &manifest.snapshot_id;
        snapshots::point_latest_to(target.root, id)?;
        if target.erased {
            snapshots::remove_all_but(target.root, id)?;
        } else {
            let (keep, keep_for) = (target.keep_snapshots, target.keep_for);
            snapshots::remove_old(target.root, id, taken_at, keep, keep_for)?;
        }
        Ok(PublishedParquet {
            path,
            files: manifest.files.len(),
            linked,
            rows: manifest.files.iter().map(|f| f.rows).sum(),
            bytes: manifest.files.iter().map(|f| f.bytes).sum(),
        })
    }
}
