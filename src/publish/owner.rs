//! Whose a target is. Publishing replaces what is there: only what this store has published is replaced,
//! never another store's, nor a file that somebody put there.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use duckdb::Connection;

use super::database::open_published;
use super::manifest::Manifest;
use super::snapshots;
use super::views::{self, Found};
use crate::config::lead_to_one;
use crate::error::{self, Error, Kind, Result};

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
        Ok(owner) if owner == store_id => Ok(()),
        Ok(_) => Err(refused("publish.database", target, "was published by another store")),
        Err(error) => {
            tracing::debug!(error = error.chain(), "whose the published file is cannot be read");
            Err(not_published())
        }
    }
}

/// Refuses a folder of snapshots that another store has published into.
///
/// # Errors
/// `Config` naming whose it is; `Io`.
pub(crate) fn check_snapshots(root: &Path, store_id: &str) -> Result<()> {
    if metadata(root)?.is_some_and(|found| !found.is_dir()) {
        return Err(refused("publish.parquet", root, "is a file, and must be a folder"));
    }
    // One that cannot be read is replaced: what is broken has to become whole again.
    match Manifest::read(&snapshots::latest(root)) {
        Ok(manifest) if manifest.store_id != store_id => {
            Err(refused("publish.parquet", root, "holds snapshots of another store"))
        }
        _ => Ok(()),
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

fn published_by(conn: &Connection) -> Result<String> {
    let sql = "SELECT coalesce(max(value) FILTER (key = 'store_id'), '') FROM sync.meta";
    conn.query_row(sql, [], |row| row.get(0))
        .map_err(|e| crate::sql::db("cannot read whose it is", e))
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
