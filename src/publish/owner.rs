//! Whose a target is. Publishing replaces what is there: only what this store has published is replaced,
//! never another store's, nor a file that somebody put there.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use duckdb::{Connection, OptionalExt as _, Row};

use super::bucket::{self, Bucket};
use super::database::open_published;
use super::manifest::Manifest;
use super::views::{self, Found};
use super::{Root, Stop, snapshots};
use crate::config::lead_to_one;
use crate::durable;
use crate::error::{self, Error, Kind, Result};
use crate::sql::db;

/// The file under a name, so that it is known again: another file, or a change of this one, is told
/// apart. `None` where there is none.
///
/// # Errors
/// `Io`.
pub(crate) fn identity(path: &Path) -> Result<Option<String>> {
    Ok(metadata(path)?.map(|found| {
        format!(
            "{}:{}:{}:{}.{:09}",
            found.dev(),
            found.ino(),
            found.len(),
            found.mtime(),
            found.mtime_nsec()
        )
    }))
}

/// Refuses to replace the file for analysts where `store` (of this id) did not publish it. `known`: the
/// [`identity`] of the file that it published last.
///
/// # Errors
/// `Config` naming whose it is; `Io`.
pub(crate) fn check_database(
    target: &Path,
    store: &Path,
    store_id: &str,
    known: Option<&str>,
) -> Result<()> {
    let Some(found) = metadata(target)? else { return Ok(()) };
    if lead_to_one(target, store) {
        return Err(refused("publish.database", target, "is the store itself"));
    }
    if known.is_some() && identity(target)?.as_deref() == known {
        return Ok(());
    }
    let not_published = || {
        refused(
            "publish.database",
            target,
            "is there, and is nothing that casemirror has published",
        )
    };
    if !found.is_file() {
        return Err(not_published());
    }
    match open_published(target).and_then(|conn| published_by(&conn)) {
        Ok(owner) if owner.is_empty() => Err(not_published()),
        Ok(owner) if owner == store_id => Ok(()),
        Ok(_) => Err(refused("publish.database", target, "was published by another store")),
        Err(error) => {
            tracing::debug!(error = error.chain(), "whose the published file is cannot be read");
            Err(not_published())
        }
    }
}

/// Refuses a place of snapshots that another store has published into. `false`: there is no snapshot yet.
///
/// # Errors
/// `Config` naming whose it is; `Io`, `ObjectStore`.
pub(crate) fn check_snapshots(root: &Root, store_id: &str, stop: &Stop) -> Result<bool> {
    match root {
        Root::Folder(root) => check_folder(root, store_id),
        Root::Bucket(bucket) => {
            let (bucket, store_id) = (bucket.clone(), store_id.to_owned());
            let looked = Bucket::run(stop, async move { bucket::look(&bucket, &store_id).await });
            Ok(looked?.0.is_some())
        }
    }
}

pub(super) fn check_folder(root: &Path, store_id: &str) -> Result<bool> {
    check_beside(root, store_id, None)
}

/// The same when the snapshot `own` was put there, before readers are led to it: of two stores that have found the folder
/// empty at the same time at least one sees the other's.
pub(super) fn check_beside(root: &Path, store_id: &str, own: Option<&str>) -> Result<bool> {
    if metadata(root)?.is_some_and(|found| !found.is_dir()) {
        return Err(refused("publish.parquet", root, "is a file, and must be a folder"));
    }
    let refused = |what| Err(refused("publish.parquet", root, what));
    let latest = snapshots::latest(root);
    let is_there = durable::is_there(&latest)?;
    if is_there && !snapshots::is_link_to_one(&latest) {
        return refused("holds a `latest` that is nothing that casemirror has made");
    }
    let mut others = snapshots::newest_first(root)?;
    others.retain(|folder| own.is_none_or(|own| !folder.ends_with(own)));
    let mut all = std::iter::once(&latest).chain(&others);
    match all.find_map(|one| Manifest::read(one).ok()) {
        Some(manifest) if manifest.store_id != store_id => {
            refused("holds snapshots of another store")
        }
        // Old ones will be removed, by their names.
        None if !is_there && !others.is_empty() => {
            refused("holds folders that are named as snapshots and are none")
        }
        // What is broken has to become whole again.
        _ => Ok(latest.exists()),
    }
}

/// Refuses a file with views that this store has not written.
///
/// # Errors
/// `Config` naming whose it is; `Io`.
pub(crate) fn check_views(target: &Path, store_id: &str) -> Result<()> {
    match views::look(target)? {
        Found::Views { store_id: owner, .. } if owner != store_id => {
            Err(refused("publish.views", target, "was written by another store"))
        }
        Found::Unknown => Err(refused(
            "publish.views",
            target,
            "is there, and is nothing that casemirror has written",
        )),
        // What nobody can read now, the next publishing looks at.
        Found::Nothing | Found::Held(_) | Found::Views { .. } => Ok(()),
    }
}

pub(super) fn published_by(conn: &Connection) -> Result<String> {
    let sql = "SELECT value FROM sync.meta WHERE key = 'store_id'";
    let owner = mark(conn, ("sync", "meta"), sql, |row| row.get::<_, Option<String>>(0))?;
    Ok(owner.flatten().unwrap_or_default())
}

/// The first row of what `sql` asks the table with the owner's mark in a file that anybody may have written:
/// a view of that name is not run, and what is run reaches no other file. `None`: there is no such table.
///
/// # Errors
/// `Store`.
pub(super) fn mark<T>(
    conn: &Connection,
    (schema, table): (&str, &str),
    sql: &str,
    row: impl FnOnce(&Row<'_>) -> duckdb::Result<T>,
) -> Result<Option<T>> {
    let failed = |e| db("cannot read whose it is", e);
    conn.execute_batch("SET enable_external_access = false").map_err(failed)?;
    let is_table: bool = conn
        .query_row(
            "SELECT EXISTS (FROM system.main.duckdb_tables() WHERE schema_name = ? AND table_name = ?)",
            [schema, table],
            |row| row.get(0),
        )
        .map_err(failed)?;
    if !is_table {
        return Ok(None);
    }
    conn.query_row(sql, [], row).optional().map_err(failed)
}

fn refused(key: &str, target: &Path, what: &str) -> Error {
    Error::new(
        Kind::Config,
        format!("{key}: {} {what}: name another place, or move it away", target.display()),
    )
}

pub(super) fn metadata(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(e) => Err(error::io("look at", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    const ID: &str = "2026-11-20T020000Z";

    /// Puts a snapshot of a store there.
    fn snapshot(root: &Path, id: &str, store_id: &str) {
        let folder = root.join("snapshots").join(id);
        fs::create_dir_all(&folder).unwrap();
        let manifest = json!({
            "snapshot_id": id, "taken_at": "2026-11-20T02:00:00Z", "watermark": null, "complete": true,
            "program": "casemirror", "program_version": "0", "duckdb_version": "v0",
            "store_id": store_id, "files": []
        });
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    }

    #[test]
    fn a_folder_of_snapshots_is_its_stores_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let said = |id: &str| check_folder(root, id).map_err(|e| e.to_string());
        said("ours").unwrap();
        snapshot(root, ID, "theirs");
        assert!(said("ours").unwrap_err().contains("snapshots of another store"));
        said("theirs").unwrap();
        symlink(format!("snapshots/{ID}"), root.join("latest")).unwrap();
        assert!(said("ours").unwrap_err().contains("snapshots of another store"));
        // Of what is broken the others tell whose it is.
        snapshot(root, "2026-11-19T020000Z", "ours");
        fs::write(root.join("snapshots").join(ID).join("manifest.json"), "{").unwrap();
        said("ours").unwrap();
        assert!(said("theirs").is_err());
    }

    #[test]
    fn what_only_has_the_names_of_snapshots_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let said = || check_folder(root, "ours").map_err(|e| e.to_string());
        fs::create_dir_all(root.join("snapshots").join(ID)).unwrap();
        assert!(said().unwrap_err().contains("named as snapshots and are none"));
        // Its manifest was lost: what is broken is replaced.
        symlink(format!("snapshots/{ID}"), root.join("latest")).unwrap();
        said().unwrap();
        fs::remove_file(root.join("latest")).unwrap();
        symlink(root, root.join("latest")).unwrap();
        assert!(said().unwrap_err().contains("`latest`"));
        fs::remove_file(root.join("latest")).unwrap();
        fs::create_dir(root.join("latest")).unwrap();
        assert!(said().unwrap_err().contains("`latest`"));
    }

    #[test]
    fn what_a_file_pretends_to_be_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "value\nours\n").unwrap();
        let named = |what: &str, sql: &str| {
            let path = folder.path().join(what);
            let conn = Connection::open(&path).unwrap();
            conn.execute_batch(&format!("CREATE SCHEMA sync; {sql}")).unwrap();
            path
        };
        let check = |path: &Path| {
            let known = check_database(path, &folder.path().join("store"), "ours", None);
            known.map_err(|e| e.to_string())
        };
        let read = format!("FROM read_csv('{}')", secret.display());
        let view = named(
            "view",
            &format!("CREATE VIEW sync.meta AS SELECT 'store_id' AS key, value {read}"),
        );
        assert!(check(&view).is_err());
        let views = named(
            "views",
            &format!("CREATE VIEW sync.views AS SELECT value AS store_id, '' AS definition {read}"),
        );
        assert!(check_views(&views, "ours").is_err());
        let table = "CREATE TABLE sync.meta AS SELECT 'store_id' AS key, 'ours' AS value";
        check(&named("table", table)).unwrap();
    }
}
