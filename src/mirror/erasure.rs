//! What was erased from the rows goes from the files too (docs/architecture.md, "Privacy").
//!
//! A row that is rewritten leaves its earlier values in blocks of the file that are free now, in the log, in
//! what was published and in copies. So the store's file is written anew from its rows, and what was
//! published is replaced. Both are noted with the rewriting itself: a process that is killed in between is
//! followed by one that does what is left.

use std::fs;
use std::path::Path;

use duckdb::Connection;

use super::open::BLOCK_BYTES;
use super::schema;
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::sql::{self, db};

/// Key of `sync.meta`: free blocks of the store's file may still hold what was erased.
const IN_STORE: &str = "erased_values";
/// Key of `sync.meta`: published files may still hold it.
const IN_PUBLISHED: &str = "erased_values_published";

/// Name under which the file that takes the store's place is attached.
const ALIAS: &str = "casemirror_rewrite";

/// Rows in a row group of a file that is written whole. A group is compressed as a whole by each thread,
/// and at DuckDB's 122,880 a group of the widest tables does not fit a store.memory_limit of 400 MB.
pub(crate) const ROW_GROUP_ROWS: usize = 16_384;

/// Notes, with the rewriting of the rows, that the files are to follow.
pub(super) fn note(conn: &Connection) -> Result<()> {
    schema::set_meta(conn, IN_STORE, "true")?;
    schema::set_meta(conn, IN_PUBLISHED, "true")
}

/// Whether free blocks of the store's file may still hold erased values: then the file is not to be copied
/// for others.
pub(crate) fn store_may_hold_erased_values(conn: &Connection) -> Result<bool> {
    Ok(schema::meta(conn, IN_STORE)?.is_some())
}

/// Whether published files may still hold erased values: then all of them are to be replaced.
pub(crate) fn published_may_hold_erased_values(conn: &Connection) -> Result<bool> {
    Ok(schema::meta(conn, IN_PUBLISHED)?.is_some())
}

/// All published files were replaced.
pub(crate) fn note_published_anew(conn: &Connection) -> Result<()> {
    schema::remove_meta(conn, IN_PUBLISHED)
}

/// Writes the store's file anew from its rows and puts it in its place. `conn`, which holds the file that was
/// there, is to be closed then: nothing that is written to it is kept.
///
/// # Errors
/// `DiskFull`, `Io`, `Store`: the store is as it was.
pub(super) fn rewrite(conn: &Connection, path: &Path) -> Result<()> {
    // Where the path is a link, the file that it leads to is the store.
    let path = path.canonicalize().map_err(|e| error::io("resolve", path, e))?;
    let before = path.metadata().map_err(|e| error::io("read", &path, e))?;
    durable::remove_stale_of(&path)?;
    let file = Replacement::of(&path)?;
    conn.execute_batch("CHECKPOINT").map_err(|e| db("cannot work the log into the store", e))?;
    copy_rows(conn, file.path()).inspect_err(|_| {
        // The first error counts.
        let _ = conn.execute_batch(&format!("DETACH DATABASE IF EXISTS {ALIAS}"));
    })?;
    fs::set_permissions(file.path(), before.permissions())
        .map_err(|e| error::io("protect", file.path(), e))?;
    failpoint::hit("store-written-anew");
    file.finish(Access::AsCreated)?;
    failpoint::hit("store-replaced");
    Ok(())
}

fn copy_rows(conn: &Connection, to: &Path) -> Result<()> {
    let failed = |e| db(&format!("cannot write {}", to.display()), e);
    let store: String =
        conn.query_row("SELECT current_database()", [], |row| row.get(0)).map_err(failed)?;
    let path = to
        .to_str()
        .ok_or_else(|| Error::new(Kind::Io, format!("the path {} is not UTF-8", to.display())))?;
    // Schemas, tables, views, macros, and the comments of all of them.
    conn.execute_batch(&format!(
        "ATTACH {path} AS {ALIAS} (BLOCK_SIZE {BLOCK_BYTES}, ROW_GROUP_SIZE {ROW_GROUP_ROWS}); \
         COPY FROM DATABASE {store} TO {ALIAS}; \
         DELETE FROM {ALIAS}.sync.meta WHERE key = {noted}; \
         CHECKPOINT {ALIAS}; DETACH {ALIAS}",
        path = sql::text(path),
        store = sql::ident(&store),
        noted = sql::text(IN_STORE),
    ))
    .map_err(failed)
}
