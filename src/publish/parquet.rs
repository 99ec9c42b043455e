//! A Parquet snapshot: its files, one manifest, one link (or object) that moves when all of it is there
//! (docs/architecture.md, "Published means finished").

use std::fs::File as Held;

use duckdb::Connection;
use jiff::Timestamp;

use super::ROW_GROUP_ROWS;
use super::bucket::{Found, Snapshotted, Upload, Written};
use super::earlier::{Earlier, Place};
use super::footer;
use super::manifest::{self, File, Manifest, rfc3339};
use super::owner;
use super::parts::{self, Part};
use super::snapshots;
use super::{ParquetTarget, PublishedParquet, Root, Snapshot, Stop};
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::progress::Progress;
use crate::sql::{self, db};

/// A snapshot being written.
pub(super) struct Export<'a> {
    target: ParquetTarget<'a>,
    taken_at: Timestamp,
    /// What becomes the snapshot's folder; for a bucket, where its files wait to be uploaded.
    folder: Replacement,
    /// Open as long as it is written: see [`Replacement::make_folder`].
    held: Option<Held>,
    manifest: Manifest,
    linked: usize,
    /// What there is in the bucket, where it goes to one.
    found: Option<Found>,
    /// Files to upload.
    written: Vec<Written>,
}

/// What became of a snapshot.
pub(super) enum Finished {
    /// It is in its folder, and readers see it.
    Placed(PublishedParquet),
    /// It is to be uploaded.
    ToUpload(Box<Upload>),
}

impl<'a> Export<'a> {
    /// Writes all files within the open transaction, which pins the state of the store.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn write(
        conn: &Connection,
        target: ParquetTarget<'a>,
        (snapshot, found): (&Snapshot, Option<Found>),
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Export<'a>> {
        // A copy of the store on another host may have brought back what this one has erased.
        let is_of_another = found.as_ref().is_some_and(|f| f.is_of_another_erasure(&snapshot.info));
        let target = ParquetTarget { erased: target.erased || is_of_another, ..target };
        let (folder, held) = match target.root {
            Root::Folder(root) => {
                let folder = Replacement::of(&snapshots::folder(root).join(&snapshot.id))?;
                let held = folder.make_folder()?;
                (folder, held)
            }
            Root::Bucket(bucket) => {
                let spool = Replacement::of(bucket.spool())?;
                durable::make_private_folder(spool.path())
                    .map_err(|e| error::io("create the folder", spool.path(), e))?;
                (spool, None)
            }
        };
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
                state: Some(snapshot.info.state.clone()),
                erasure: snapshot.info.erasure.clone(),
                files: Vec::new(),
            },
            folder,
            held,
            linked: 0,
            found: None,
            written: Vec::new(),
        };
        let place = match (target.root, &found) {
            (Root::Folder(root), _) => Place::Folder(root),
            (Root::Bucket(_), Some(found)) => Place::Bucket(found),
            (Root::Bucket(_), None) => return Err(never_looked_at()),
        };
        let earlier =
            if target.erased { Earlier::none(place) } else { Earlier::of(place, &export.manifest) };
        let parts = parts::all(conn, target.tables, snapshot)?;
        let mut share = progress.share(parts.len() as u64);
        for part in parts {
            stop.check()?;
            export.add(conn, part, &earlier)?;
            share.done(1);
        }
        export.found = found;
        Ok(export)
    }

    /// Writes one file, or takes over the earlier snapshot's where nothing can have changed.
    fn add(&mut self, conn: &Connection, part: Part, earlier: &Earlier<'_>) -> Result<()> {
        let folder = self.folder.path().join(&part.folder);
        durable::make_shared_folder(&folder)?;
        let path = folder.join(&part.file);
        let name = format!("snapshots/{}/{}", self.manifest.snapshot_id, part.path());

        if let Some(file) = earlier.take(&part, &path, &name) {
            self.linked += 1;
            self.manifest.files.push(file);
            return Ok(());
        }
        let columns = part.columns(conn)?;
        let sql = format!(
            "COPY ({}) TO {} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP_ROWS})",
            part.query(&columns),
            sql::path(&path)?
        );
        let rows: i64 =
            conn.query_row(&sql, [], |row| row.get(0)).map_err(|e| not_written(&name, e))?;
        let rows = rows.unsigned_abs();
        let statistics = footer::read(&path, &name, &columns.all, rows)?;
        durable::read_only(&path)?;
        let (bytes, sha256) = manifest::measure(&path)?;
        if matches!(self.target.root, Root::Bucket(_)) {
            self.written.push(Written { path, name: name.clone() });
        }
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

    /// Puts the snapshot in its place, moves `latest`, removes what is not kept; what goes to a bucket is left
    /// to be uploaded.
    ///
    /// # Errors
    /// As [`super::publish`].
    pub(super) fn finish(self) -> Result<Finished> {
        let Export { target, taken_at, folder, held, manifest, linked, found, written } = self;
        let root = match target.root {
            Root::Folder(root) => root,
            Root::Bucket(bucket) => {
                let about = Snapshotted {
                    unchanged: linked,
                    keep_snapshots: target.keep_snapshots,
                    keep_for: target.keep_for,
                    erased: target.erased,
                };
                let place = (bucket.clone(), found.ok_or_else(never_looked_at)?);
                let upload = Upload::of(place, manifest, written, about, folder);
                return Ok(Finished::ToUpload(Box::new(upload)));
            }
        };
        manifest.write(folder.path())?;
        durable::read_only(&folder.path().join(manifest::FILE_NAME))?;
        let path = folder.target().to_owned();
        failpoint::hit("snapshot-written");
        folder.finish(Access::SharedFolder)?;
        drop(held);
        failpoint::hit("snapshot-placed");
        let id = &manifest.snapshot_id;
        if let Err(error) = owner::check_beside(root, &manifest.store_id, Some(id)) {
            snapshots::take_back(root, id);
            return Err(error);
        }
        snapshots::point_latest_to(root, id)?;
        if target.erased {
            snapshots::remove_all_but(root, id)?;
        } else {
            let (keep, keep_for) = (target.keep_snapshots, target.keep_for);
            snapshots::remove_old(root, id, taken_at, keep, keep_for)?;
        }
        Ok(Finished::Placed(PublishedParquet {
            address: path.display().to_string(),
            files: manifest.files.len(),
            linked,
            rows: manifest.files.iter().map(|f| f.rows).sum(),
            bytes: manifest.files.iter().map(|f| f.bytes).sum(),
        }))
    }
}

/// DuckDB tells what the place does not take from what cannot be computed in words alone.
fn not_written(name: &str, source: duckdb::Error) -> Error {
    let (what, is_io) = (format!("cannot write {name}"), source.to_string().contains("IO Error"));
    let error = db(&what, source);
    if is_io && error.kind() == Kind::Store { error.of_kind(Kind::Io) } else { error }
}

fn never_looked_at() -> Error {
    Error::new(Kind::Internal, "a snapshot is made for a bucket that nobody has looked at")
}
