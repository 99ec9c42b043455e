//! What was erased from the rows goes from the files too (docs/architecture.md, "Privacy").
//!
//! A row that is rewritten leaves its earlier values in blocks of the file that are free now, in the log, in
//! what was published and in copies. So the store's file is written anew from its rows, and what was
//! published is replaced. Both are noted with the rewriting itself: a process that is killed in between is
//! followed by one that does what is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use duckdb::Connection;

use super::schema;
use super::storage::BLOCK_BYTES;
use crate::config::Config;
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::sql::{self, db};

/// Where values that were erased from the rows may still stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residue {
    /// In free blocks of the store's file, which is not to be copied for others then.
    Store,
    /// In the published file.
    Published,
    /// In Parquet snapshots, none of whose files is to be linked then, and in packs.
    Snapshots,
}

impl Residue {
    const ALL: [Residue; 3] = [Residue::Store, Residue::Published, Residue::Snapshots];

    /// Key of `sync.meta`.
    fn key(self) -> &'static str {
        match self {
            Residue::Store => "erased_values",
            Residue::Published => "erased_values_published",
            Residue::Snapshots => "erased_values_snapshots",
        }
    }

    /// Whether it is so.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn is_in(self, conn: &Connection) -> Result<bool> {
        Ok(schema::meta(conn, self.key())?.is_some())
    }

    /// What holds them is replaced.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn is_gone(self, conn: &Connection) -> Result<()> {
        schema::remove_meta(conn, self.key())
    }
}

/// Key of `sync.meta`: which erasure of values was the last, by a name of its own. What has seen another one holds what is
/// to be seen no more.
const LAST: &str = "erasures";

/// Name under which the file that takes the store's place is attached.
const ALIAS: &str = "casemirror_rewrite";

/// Rows in a row group of a file that is written whole. A group is compressed as a whole by each thread,
/// and at DuckDB's 122,880 a group of the widest tables does not fit a store.memory_limit of 400 MB.
pub(crate) const ROW_GROUP_ROWS: usize = 16_384;

/// Key of `sync.meta`: the state of the store that the newest Parquet snapshot shows.
pub(crate) const SHOWN_BY_PARQUET: &str = "published_parquet_state";

/// Key of `sync.meta`: for each place of snapshots, which erasure was the last before what is there was replaced.
const REPLACED: &str = "snapshots_replaced_after";

/// Whether the snapshots and packs at this place hold what was erased: nothing was published since, or elsewhere alone.
///
/// # Errors
/// `Store`.
pub(crate) fn holds_erased(conn: &Connection, place: &str) -> Result<bool> {
    let last = last_erasure(conn)?;
    let is_behind = replaced(conn)?.get(place).is_some_and(|after| *after != last);
    Ok(is_behind || Residue::Snapshots.is_in(conn)?)
}

/// By what the last erasure is known: what begins to be published now has left out what was erased up to it.
///
/// # Errors
/// `Store`.
pub(crate) fn last_erasure(conn: &Connection) -> Result<String> {
    Ok(schema::meta(conn, LAST)?.unwrap_or_default())
}

/// The file that is published leaves out what was erased up to `as_of`. What was erased while it was made may be in it.
///
/// # Errors
/// `Store`.
pub(crate) fn note_published(conn: &Connection, as_of: &str) -> Result<()> {
    if last_erasure(conn)? == as_of { Residue::Published.is_gone(conn) } else { Ok(()) }
}

/// A snapshot is at this place, and none that holds what was erased up to `as_of`.
///
/// # Errors
/// `Store`.
pub(crate) fn note_replaced(conn: &Connection, place: &str, as_of: &str) -> Result<()> {
    let mut all = replaced(conn)?;
    all.insert(place.to_owned(), as_of.to_owned());
    let text = serde_json::to_string(&all)
        .map_err(|e| Error::caused(Kind::Internal, "the places of snapshots are no JSON", e))?;
    schema::set_meta(conn, REPLACED, &text)?;
    if last_erasure(conn)? == as_of { Residue::Snapshots.is_gone(conn) } else { Ok(()) }
}

/// What is at this place may hold what was erased, by whoever it was erased: until [`note_replaced`], and over restarts.
///
/// # Errors
/// `Store`.
pub(crate) fn note_unclear(conn: &Connection, place: &str) -> Result<()> {
    /// No erasure has this name.
    const UNCLEAR: &str = "?";
    note_replaced(conn, place, UNCLEAR)
}

fn replaced(conn: &Connection) -> Result<BTreeMap<String, String>> {
    let noted = schema::meta(conn, REPLACED)?;
    Ok(noted.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// What is said where [`stay_in_snapshots`].
pub(crate) const STAY_IN_SNAPSHOTS: &str = "Parquet snapshots and packs that were published earlier still hold \
     values that were erased, and publish.parquet is off: set it to where they are, and the next publishing replaces \
     them";

/// Whether erased values are in snapshots which nothing replaces while `publish.parquet` is off.
///
/// # Errors
/// `Store`.
pub(crate) fn stay_in_snapshots(conn: &Connection, config: &Config) -> Result<bool> {
    Ok(config.publish.parquet.is_none()
        && Residue::Snapshots.is_in(conn)?
        && schema::meta(conn, SHOWN_BY_PARQUET)?.is_some())
}

/// Notes, with the rewriting of the rows, that the files are to follow.
pub(super) fn note(conn: &Connection) -> Result<()> {
    // No number: a store that is put back counts on to one that was there before.
    schema::set_meta(conn, LAST, &format!("{:032x}", rand::random::<u128>()))?;
    Residue::ALL.iter().try_for_each(|residue| schema::set_meta(conn, residue.key(), "true"))
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
    // Schemas, tables, views, macros, and the comments of all of them.
    conn.execute_batch(&format!(
        "ATTACH {path} AS {ALIAS} (BLOCK_SIZE {BLOCK_BYTES}, ROW_GROUP_SIZE {ROW_GROUP_ROWS}); \
         COPY FROM DATABASE {store} TO {ALIAS}; \
         DELETE FROM {ALIAS}.sync.meta WHERE key = {noted}; \
         CHECKPOINT {ALIAS}; DETACH {ALIAS}",
        path = sql::path(to)?,
        store = sql::ident(&store),
        noted = sql::text(Residue::Store.key()),
    ))
    .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn what_is_erased_while_something_is_published_is_left_to_the_next_publishing() {
        let conn = fixture::store(None, 2026..=2026);
        note(&conn).unwrap();
        let began = last_erasure(&conn).unwrap();
        note(&conn).unwrap();
        let is_left = || {
            let [published, snapshots] = [Residue::Published, Residue::Snapshots];
            (published.is_in(&conn).unwrap(), snapshots.is_in(&conn).unwrap())
        };
        note_published(&conn, &began).unwrap();
        note_replaced(&conn, "here", &began).unwrap();
        assert_eq!(is_left(), (true, true));
        assert!(holds_erased(&conn, "here").unwrap());
        let again = last_erasure(&conn).unwrap();
        note_published(&conn, &again).unwrap();
        note_replaced(&conn, "here", &again).unwrap();
        assert_eq!(is_left(), (false, false));
        assert!(!holds_erased(&conn, "here").unwrap());
    }
}
