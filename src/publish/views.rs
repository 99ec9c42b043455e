//! The file for readers that keep one connection open: views over the snapshot that `latest` shows
//! (docs/architecture.md, "Readers who never let go").
//!
//! Who has the published database open keeps the file that was there when it was opened. This file is
//! never replaced: it holds no row, and each query of its views opens the files of the newest snapshot.
//! It is written only where its views change, in place and in one transaction, when nobody has it open.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use duckdb::{AccessMode, Config, Connection};

use super::manifest::{self, Manifest};
use super::owner::{self, metadata};
use super::{footer, snapshots};
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Result};
use crate::sql::{self, db};

/// The folder that holds `latest`, for all views: those who read the file may find it elsewhere than who
/// writes it, and a view can be created only where its files are.
const ROOT: &str = "sync.parquet_root";

/// The file with the views, and where what they show is.
#[derive(Debug, Clone, Copy)]
pub struct ViewsTarget<'a> {
    /// `publish.views`.
    pub file: &'a Path,
    /// `publish.parquet`.
    pub parquet: &'a Path,
    /// The same as readers find it (`publish.views_root`).
    pub root: &'a Path,
}

/// What became of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewsWritten {
    /// Its views are already what they should be.
    Unchanged,
    Written,
    /// Another process has it open; DuckDB's words on which. It stays as it is.
    Held(String),
    /// It is nothing that this store has written, and stays.
    Foreign,
    /// It could not be written, and why; it is as it was.
    Failed(String),
}

/// What there is under the file's name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// No file with a mark of ours.
    Unknown,
    /// Another process writes to it, so that it cannot even be read.
    Held(String),
    Views {
        store_id: String,
        definition: String,
    },
}

/// Writes the views that the snapshot of `latest` needs. `store`: types and comments are those of its
/// tables; `store_id`: as [`super::SnapshotInfo::store_id`]. That it fails is no failure of what is published by then.
pub(crate) fn write(store: &Connection, target: &ViewsTarget<'_>, store_id: &str) -> ViewsWritten {
    try_to_write(store, target, store_id).unwrap_or_else(|e| ViewsWritten::Failed(e.chain()))
}

fn try_to_write(
    store: &Connection,
    target: &ViewsTarget<'_>,
    store_id: &str,
) -> Result<ViewsWritten> {
    let statements = statements(store, target)?;
    let definition = manifest::fingerprint(&statements.concat().join(";\n"));
    match look(target.file)? {
        Found::Unknown => Ok(ViewsWritten::Foreign),
        Found::Held(who) => Ok(ViewsWritten::Held(who)),
        Found::Views { store_id: owner, .. } if owner != store_id => Ok(ViewsWritten::Foreign),
        Found::Views { definition: there, .. } if there == definition => {
            Ok(ViewsWritten::Unchanged)
        }
        Found::Views { .. } => {
            let conn = match open(target.file, AccessMode::ReadWrite) {
                Err(e) if is_held(&e) => return Ok(ViewsWritten::Held(said(&e))),
                opened => opened.map_err(|e| failed(target.file, e))?,
            };
            fill(conn, vec![statements.concat()], (store_id, &definition), target)?;
            Ok(ViewsWritten::Written)
        }
        Found::Nothing => {
            let folder = target.file.parent().unwrap_or(Path::new("."));
            durable::make_shared_folder(folder)?;
            // A process that is killed leaves no half of a first file under this name.
            let first = Replacement::of(target.file)?;
            let conn =
                open(first.path(), AccessMode::ReadWrite).map_err(|e| failed(target.file, e))?;
            fill(conn, statements, (store_id, &definition), target)?;
            // Its owner goes on writing to it.
            fs::set_permissions(first.path(), fs::Permissions::from_mode(0o644))
                .map_err(|e| error::io("set the mode of", target.file, e))?;
            first.finish(Access::AsCreated)?;
            Ok(ViewsWritten::Written)
        }
    }
}

/// Whose the file is.
///
/// # Errors
/// `Kind::Io`.
pub(super) fn look(file: &Path) -> Result<Found> {
    let Some(found) = metadata(file)? else { return Ok(Found::Nothing) };
    if !found.is_file() {
        return Ok(Found::Unknown);
    }
    let conn = match open(file, AccessMode::ReadOnly) {
        Ok(conn) => conn,
        Err(e) if is_held(&e) => return Ok(Found::Held(said(&e))),
        Err(e) => {
            tracing::debug!(error = %e, "whose the file with the views is cannot be read");
            return Ok(Found::Unknown);
        }
    };
    let mark = owner::mark(
        &conn,
        ("sync", "views"),
        "SELECT store_id, definition FROM sync.views",
        |row| Ok(Found::Views { store_id: row.get(0)?, definition: row.get(1)? }),
    );
    Ok(mark.ok().flatten().unwrap_or(Found::Unknown))
}

/// An instance of its own, that asks nobody for an extension.
fn open(file: &Path, mode: AccessMode) -> duckdb::Result<Connection> {
    let config = Config::default()
        .access_mode(mode)
        .and_then(|c| c.threads(1))
        .and_then(|c| c.enable_autoload_extension(false))?;
    Connection::open_with_flags(file, config)
}

/// DuckDB tells it only in words.
fn is_held(error: &duckdb::Error) -> bool {
    error.to_string().contains("Could not set lock on file")
}

/// Which process has the file, as far as DuckDB says it: a line without its advice.
fn said(error: &duckdb::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.split(". See also").next().unwrap_or_default().to_owned()
}

fn failed(file: &Path, error: duckdb::Error) -> Error {
    db(&format!("cannot write {}", file.display()), error)
}

/// Puts the views in the place of those that are there, and writes it into the file: in one transaction where `parts`
/// is one. DuckDB copies what it knows of a view for each comment on it, and keeps the copies until the transaction
/// ends, which for all views at once are 40 MB: a first file is made part by part.
fn fill(
    conn: Connection,
    mut parts: Vec<Vec<String>>,
    (store_id, definition): (&str, &str),
    target: &ViewsTarget<'_>,
) -> Result<()> {
    let old = sql::query(
        &conn,
        "SELECT schema_name, view_name FROM duckdb_views() \
         WHERE NOT internal AND database_name = current_database()",
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
    )?;
    let root_of = |root: &Path| -> Result<String> {
        let root = sql::text(&literal(sql::utf8(root)?));
        Ok(format!("CREATE OR REPLACE MACRO {ROOT}() AS {root}"))
    };
    let mut batch = vec![
        "CREATE SCHEMA IF NOT EXISTS report".to_owned(),
        "CREATE SCHEMA IF NOT EXISTS sync".to_owned(),
        "CREATE OR REPLACE TABLE sync.views (store_id VARCHAR, definition VARCHAR)".to_owned(),
        format!(
            "INSERT INTO sync.views VALUES ({}, {})",
            sql::text(store_id),
            sql::text(definition)
        ),
    ];
    batch
        .extend(old.iter().map(|(schema, view)| {
            format!("DROP VIEW {}.{}", sql::ident(schema), sql::ident(view))
        }));
    // DuckDB binds a view when it is created: the files have to be there.
    batch.push(root_of(target.parquet)?);
    let failed = |e| failed(target.file, e);
    if let Some(first) = parts.first_mut() {
        first.splice(..0, batch);
    }
    if let Some(last) = parts.last_mut() {
        last.push(root_of(target.root)?);
    }
    for part in parts {
        sql::transaction(&conn, || conn.execute_batch(&part.join(";\n")).map_err(failed))?;
    }
    conn.execute_batch("CHECKPOINT").map_err(failed)?;
    conn.close().map_err(|(_, e)| failed(e))
}

/// What makes the views and their comments, in the same order for the same snapshot: a part for each view, between one
/// before and one behind them all.
fn statements(store: &Connection, target: &ViewsTarget<'_>) -> Result<Vec<Vec<String>>> {
    let latest = snapshots::latest(target.parquet);
    // Once: whatever `latest` shows meanwhile, this is one snapshot.
    let latest = fs::canonicalize(&latest).map_err(|e| error::io("read", &latest, e))?;
    let files = Manifest::read(&latest)?.files;
    // DuckDB takes the columns from the first of them, too.
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    for file in &files {
        let first = first_of.entry(&file.table).or_insert(&file.path);
        *first = (*first).min(&file.path);
    }
    let described = Described::read(store)?;
    let mut statements = vec![vec![format!(
        "COMMENT ON TABLE sync.views IS {}",
        sql::text(&format!(
            "Views over the newest Parquet snapshot, found under {}: each query shows what is there by then.",
            target.root.display()
        ))
    )]];
    for (table, first) in first_of {
        let (schema, name) = table.split_once('.').unwrap_or(("main", table));
        let folder = table.replace('.', "/");
        let columns = footer::columns(&target.parquet.join(first), first)?;
        let key = (schema.to_owned(), name.to_owned());
        let known = described.columns.get(&key);
        let column = |name: &str| known.and_then(|known| known.get(name));
        // As the published database has it: Parquet has GUIDs as text.
        let casts = columns.iter().map(|name| match column(name) {
            Some((kind, _)) => format!("CAST({0} AS {kind}) AS {0}", sql::ident(name)),
            None => sql::ident(name),
        });
        let view = format!("{}.{}", sql::ident(schema), sql::ident(name));
        // No `union_by_name`: it reads all footers first, and the files of two snapshots could meet.
        let mut of_view = vec![format!(
            "CREATE VIEW {view} AS SELECT {} FROM read_parquet({ROOT}() || {}, \
             hive_partitioning = false)",
            casts.collect::<Vec<_>>().join(", "),
            sql::text(&format!("/latest/{folder}/*.parquet"))
        )];
        if let Some(comment) = described.tables.get(&key) {
            of_view.push(format!("COMMENT ON VIEW {view} IS {}", sql::text(comment)));
        }
        for name in &columns {
            if let Some((_, Some(comment))) = column(name) {
                let name = sql::ident(name);
                let comment = sql::text(comment);
                of_view.push(format!("COMMENT ON COLUMN {view}.{name} IS {comment}"));
            }
        }
        statements.push(of_view);
    }
    statements.push(vec![format!("COMMENT ON MACRO {ROOT} IS {}", sql::path(target.root)?)]);
    Ok(statements)
}

/// A path as a pattern that means only itself.
fn literal(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.trim_end_matches('/').chars() {
        match c {
            '*' | '?' | '[' => pattern.extend(['[', c, ']']),
            c => pattern.push(c),
        }
    }
    pattern
}

/// Schema and name.
type Name = (String, String);

/// What the store says of what can be read like a table.
struct Described {
    tables: BTreeMap<Name, String>,
    /// Per column its type and its comment.
    columns: BTreeMap<Name, BTreeMap<String, (String, Option<String>)>>,
}

impl Described {
    fn read(store: &Connection) -> Result<Described> {
        let of_ours = "database_name = current_database() AND schema_name IN ('main', 'report')";
        let tables = sql::query(
            store,
            &format!(
                "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE {of_ours} \
                 UNION ALL SELECT schema_name, view_name, comment FROM duckdb_views() WHERE {of_ours}"
            ),
            |row| Ok(((row.get(0)?, row.get(1)?), row.get::<_, Option<String>>(2)?)),
        )?;
        let all = sql::query(
            store,
            &format!(
                "SELECT schema_name, table_name, column_name, data_type, comment \
                 FROM duckdb_columns() WHERE {of_ours}"
            ),
            |row| {
                let of: Name = (row.get(0)?, row.get(1)?);
                Ok((of, row.get::<_, String>(2)?, (row.get(3)?, row.get(4)?)))
            },
        )?;
        let mut columns: BTreeMap<Name, BTreeMap<String, (String, Option<String>)>> =
            BTreeMap::new();
        for (of, name, column) in all {
            columns.entry(of).or_default().insert(name, column);
        }
        let tables = tables.into_iter().filter_map(|(name, comment)| Some((name, comment?)));
        Ok(Described { tables: tables.collect(), columns })
    }
}
