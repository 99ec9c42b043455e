//! A store that is copied as it stands, and a copy that becomes the store (docs/operations.md, "Keeping a
//! copy").

use std::fs::File;
use std::path::Path;

use duckdb::{AccessMode, Connection};

use super::log::Bounds;
use super::open::{check_format, is_there, no_store, no_store_of_ours};
use super::schema::{self, FORMAT};
use super::secrets;
use super::storage::connect;
use crate::config::{self, Config};
use crate::durable;
use crate::error::{self, Error, Kind, Result};
use crate::sql::{self, db, scalar_i64};

/// A change counter is moved on by so much, times a random number of 32 bits: by millions of changes as a rule, and by
/// 2^24 at most, so that it stays below 2^53 though a store is restored again and again. Where the original comes to as
/// many changes, the bits that are drawn anew at each tell the two apart ([`crate::counter`]).
const COUNTER_STEP: i64 = 1 << 16;

/// A store that is held to be copied, in whatever format up to this program's it is. It is not brought up
/// to anything.
pub(crate) struct Standing {
    root: Connection,
    file: &'static File,
    bounds: Bounds,
}

impl Standing {
    /// Opens the store and holds it.
    ///
    /// # Errors
    /// `StoreLocked` naming the process that holds it, `StoreNewer`, `Store`, `Io` where there is none.
    pub(crate) fn open(config: &Config) -> Result<Standing> {
        let path = &config.store.path;
        if !is_there(path)? {
            return Err(no_store(path));
        }
        let root = connect(&config.store, path, AccessMode::Automatic)?;
        format_of(&root, path)?;
        let file = File::open(path).map_err(|e| error::io("open", path, e))?;
        // Closing it would drop the lock on the store: see `Store::file`.
        let file: &'static File = Box::leak(Box::new(file));
        Ok(Standing { root, file, bounds: Bounds::of(&config.store.memory_limit) })
    }

    /// What writes to it.
    pub(crate) fn root(&self) -> &Connection {
        &self.root
    }

    /// Another connection to it.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn connection(&self) -> Result<Connection> {
        self.root.try_clone().map_err(|e| db("cannot open another connection to the store", e))
    }

    /// Its file, and its bounds.
    pub(crate) fn file(&self) -> (&'static File, &Bounds) {
        (self.file, &self.bounds)
    }
}

/// What a store says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) format: i64,
    pub(crate) store_id: String,
    /// Rows of all tables of schema `main`, and of `history`.
    pub(crate) rows: i64,
    pub(crate) earlier_versions: i64,
    /// Months that are closed.
    pub(crate) closed_months: i64,
}

impl Described {
    /// Of an open store.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn of(conn: &Connection) -> Result<Described> {
        let has_closings = scalar_i64(
            conn,
            "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() \
             AND schema_name = 'sync' AND table_name = 'closings'",
        )?;
        let closed_months = match has_closings {
            0 => 0,
            _ => scalar_i64(
                conn,
                "SELECT count(DISTINCT journal_month) FROM sync.closings WHERE reopened_at IS NULL",
            )?,
        };
        Ok(Described {
            format: schema::format(conn)?.unwrap_or(FORMAT),
            store_id: schema::meta(conn, "store_id")?.unwrap_or_default(),
            rows: rows_of(conn, "main")?,
            earlier_versions: rows_of(conn, "history")?,
            closed_months,
        })
    }
}

fn rows_of(conn: &Connection, schema: &str) -> Result<i64> {
    let tables: Vec<String> = sql::query(
        conn,
        &format!(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() \
             AND schema_name = {}",
            sql::text(schema)
        ),
        |row| row.get(0),
    )?;
    let count = |table: &String| {
        let table = format!("{}.{}", sql::ident(schema), sql::ident(table));
        scalar_i64(conn, &format!("SELECT count(*) FROM {table}"))
    };
    tables.iter().map(count).sum()
}

/// What `<store>.secrets` holds; `None` where there is none and none is needed.
///
/// # Errors
/// `Config` where it is not the one that the store needs.
pub(crate) fn secrets_of(conn: &Connection, store: &Path) -> Result<Option<String>> {
    secrets::text(store, schema::key_fingerprint(conn)?.as_deref())
}

/// Where the secrets of a store are.
pub(crate) fn secrets_file(store: &Path) -> std::path::PathBuf {
    secrets::file(store)
}

/// Refuses a store of a later format. `shown` is what it is called.
///
/// # Errors
/// `StoreNewer`.
pub(crate) fn check_not_newer(shown: &Path, format: i64) -> Result<()> {
    if format <= FORMAT { Ok(()) } else { check_format(shown, format) }
}

/// Makes a copy at `path` ready to be the store of this id that was described so. Its contents stay as they
/// are. Its change counters do not: the store that it was copied from may have gone on counting, and what
/// it has published since is no part of this one.
///
/// # Errors
/// `Store`, `StoreNewer`, `DiskFull`; `Io` where it is another store.
pub(crate) fn settle(settings: &config::Store, path: &Path, described: &Described) -> Result<()> {
    let conn = connect(settings, path, AccessMode::Automatic)?;
    format_of(&conn, path)?;
    if Described::of(&conn)? != *described {
        return Err(Error::new(Kind::Io, "it holds another store than it says"));
    }
    let by = (i64::from(rand::random::<u32>()) + 1) * COUNTER_STEP;
    conn.execute_batch(&format!("UPDATE sync.changes SET counter = counter + {by}; CHECKPOINT"))
        .map_err(|e| db("cannot write the store", e))?;
    conn.close().map_err(|(_, e)| db("cannot close the store", e))?;
    if durable::is_there(&durable::with_suffix(path, ".wal"))? {
        return Err(Error::new(Kind::Internal, "DuckDB left a log after a checkpoint"));
    }
    Ok(())
}

/// The format of a store that this program knows.
fn format_of(conn: &Connection, path: &Path) -> Result<i64> {
    let format = schema::format(conn)?.ok_or_else(|| no_store_of_ours(path))?;
    check_not_newer(path, format)?;
    Ok(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_on_from_where_its_original_never_comes_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy.duckdb");
        let settings = Config::for_demo(
            "http://127.0.0.1:1/".parse().unwrap(),
            "demo",
            "secret".to_owned().into(),
            folder.path(),
        )
        .store;
        let described = {
            let conn = Connection::open(&path).unwrap();
            conn.execute_batch(include_str!("sync.sql")).unwrap();
            conn.execute_batch(&format!(
                "INSERT INTO sync.meta VALUES ('format', '{FORMAT}'), ('store_id', 'one'); \
                 INSERT INTO sync.changes VALUES ('cases', '', 3), ('offices', '', 5)"
            ))
            .unwrap();
            Described::of(&conn).unwrap()
        };
        assert_eq!((described.format, described.store_id.as_str()), (FORMAT, "one"));
        let other = Described { store_id: "other".to_owned(), ..described.clone() };
        assert_eq!(settle(&settings, &path, &other).unwrap_err().kind(), Kind::Io);
        let counters = || {
            let conn = Connection::open(&path).unwrap();
            sql::query(&conn, "SELECT counter FROM sync.changes ORDER BY 1", |row| row.get(0))
                .unwrap()
        };
        assert_eq!(counters(), [3, 5]);
        settle(&settings, &path, &described).unwrap();
        let moved: Vec<i64> = counters();
        assert!(moved[0] > COUNTER_STEP && moved[1] == moved[0] + 2, "{moved:?}");
        assert!(moved[1] < 1 << 53, "a program that reads manifests may count in floats");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
