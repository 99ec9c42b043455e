//! One publishing: from the published file to the lake, as one transaction.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::carry::{Rows, Way};
use super::comments::Comments;
use super::engine::{Engine, LAKE, in_catalog};
use super::errand::Errand;
use super::keeping::{self, Keeping, Kept};
use super::shown::{Published, Shown, TableState};
use super::tables::{self, Table};
use super::views::Views;
use crate::durable;
use crate::error::{self, Result};
use crate::failpoint;
use crate::sql;

/// What a publishing did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carried {
    /// The snapshot of the mirror that the lake shows now.
    pub(crate) snapshot_id: String,
    pub(crate) taken_at: Timestamp,
    /// Which erasure from the store was the last before it.
    pub(super) erasures: String,
    /// It showed that before.
    pub(crate) unchanged: bool,
    /// Tables of which rows changed, or that were made.
    pub(crate) tables: u64,
    pub(crate) rows: Rows,
    /// Files that were written, those that say which rows are deleted too, and their size.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// What was tidied up.
    pub(crate) kept: Option<Kept>,
    /// Why house could not be kept, where it was time.
    pub(crate) untidy: Option<String>,
}

/// Carries the published file to the lake. `step` hears of each table that was looked at.
///
/// # Errors
/// `Config`, `Tenant`, `StoreNewer`: the lake is not this mirror's, or something is missing. `Lake`: DuckDB, the
/// catalog or the object store failed, or the lake shows a later state of this mirror; readers see what they saw before.
pub(crate) fn publish(errand: &Errand, mut step: impl FnMut(&str)) -> Result<Carried> {
    // Who may read the lake is said by the folders that it is in.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    step("opening the lake");
    let engine = Engine::open(errand)?;
    let done = publish_with(&engine, errand, &mut step);
    engine.close(done.is_ok());
    if done.is_err() {
        // Of an engine that was left open nobody else removes it, and there may be no room for it.
        let _ = fs::remove_dir_all(&errand.spill);
    }
    done
}

fn publish_with(engine: &Engine, errand: &Errand, step: &mut impl FnMut(&str)) -> Result<Carried> {
    let published = Published::read(engine, &errand.place())?;
    engine.attach(errand, &published.store_id)?;
    empty_spill(&errand.spill)?;
    let shown = Shown::read(engine, &published, &errand.schema)?;
    engine.check_data(errand, &published.store_id)?;
    let mut carried = Carried {
        snapshot_id: published.snapshot_id.clone(),
        taken_at: published.taken_at,
        erasures: published.erasures.clone(),
        ..Carried::default()
    };
    if shown.as_ref().is_some_and(|shown| shown.is(&published)) {
        carried.unchanged = true;
    } else {
        let (shown, published) = (shown.as_ref(), &published);
        if let Some(shown) = shown {
            shown.check_not_later(published, errand)?;
        }
        carry(engine, errand, (shown, published), &mut carried, step)?;
    }
    // Whoever reads an earlier snapshot would see it still. A publishing that was killed before it came to this has
    // left it to the next one, whether that has anything else to do or not.
    if shown.is_some_and(|shown| shown.erasures != published.erasures) {
        let mut kept = carried.kept.unwrap_or_default();
        let now = Timestamp::now();
        kept.add(keeping::keep(engine, &errand.schema, Keeping::NewestAlone, now, step)?);
        published.enter_removal(engine)?;
        carried.kept = Some(kept);
    }
    Ok(carried)
}

/// Makes the lake show what is published, in one transaction.
fn carry(
    engine: &Engine,
    errand: &Errand,
    (shown, published): (Option<&Shown>, &Published),
    carried: &mut Carried,
    step: &mut impl FnMut(&str),
) -> Result<()> {
    let now = Timestamp::now();
    let kept_house_at = shown.and_then(|shown| shown.kept_house_at);
    let is_house_due = keeping::is_due(kept_house_at, now, errand.keep_for);
    let kept_house_at = if is_house_due { Some(now) } else { kept_house_at };
    engine.run("begin to write to the lake", "BEGIN")?;
    failpoint::hit("lake-begun");
    if shown.is_none() {
        Shown::begin(engine)?;
    }
    let (tables, views) = (tables::all(engine)?, Views::read(engine)?);
    let digest = views.digest();
    // When house is kept, nothing that was noted is believed.
    let states = carry_tables(engine, &tables, (shown, is_house_due), carried, step)?;
    if shown.is_none_or(|shown| shown.views != digest) {
        step("report");
        views.write(engine)?;
    }
    let erasures = shown.map_or(&published.erasures, |shown| &shown.erasures);
    published.enter(engine, erasures, kept_house_at, &states, &digest)?;
    engine.check_lock()?;
    failpoint::hit("lake-written");
    step("committing");
    engine.run("commit to the lake", "COMMIT")?;
    failpoint::hit("lake-committed");
    // It is committed, whether it can be counted or not.
    (carried.files, carried.bytes) = written(engine, &errand.schema).unwrap_or_default();
    // Last: where it cannot be done, for a key that may not remove or a store that lists too slowly, what was carried
    // is there all the same. It is tried again when it is due the next time.
    if is_house_due && shown.is_some() {
        match keeping::keep(engine, &errand.schema, Keeping::For(errand.keep_for), now, step) {
            Ok(kept) => carried.kept = Some(kept),
            Err(error) => carried.untidy = Some(error.chain()),
        }
    }
    Ok(())
}

/// Makes a folder for what does not fit into memory, which is nobody else's. What is in it a killed publishing has left:
/// there is one at a time.
fn empty_spill(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(error::io("remove", folder, e)),
    }
    durable::make_private_folder(folder).map_err(|e| error::io("create", folder, e))
}

fn carry_tables(
    engine: &Engine,
    tables: &[Table],
    (shown, believes_nothing): (Option<&Shown>, bool),
    carried: &mut Carried,
    step: &mut impl FnMut(&str),
) -> Result<BTreeMap<String, TableState>> {
    let there = columns_there(engine)?;
    let comments = Comments::read(engine)?;
    let mut states = BTreeMap::new();
    for table in tables {
        let path = table.path();
        step(&path);
        let before = shown.and_then(|shown| shown.tables.get(&path));
        let there = there.get(&(table.schema.clone(), table.name.clone()));
        let way = Way::of(table, before, there, believes_nothing);
        let rows = way.go(engine, table)?;
        let is_made = matches!(way, Way::New | Way::Anew);
        comments.write(engine, table, is_made)?;
        if rows.any() || is_made {
            carried.tables += 1;
            carried.rows.add(rows);
        }
        states.insert(path, table.state(way.compares_partly(before)));
        failpoint::hit("lake-table-written");
    }
    // What the mirror no longer has.
    for (schema, name) in there.keys() {
        let is_wanted = tables.iter().any(|t| t.schema == *schema && t.name == *name);
        if !is_wanted && (schema.as_str(), name.as_str()) != ("sync", "lake_snapshot") {
            let table = format!("{LAKE}.{}.{}", sql::ident(schema), sql::ident(name));
            engine.run("drop a table of the lake", &format!("DROP TABLE {table}"))?;
        }
    }
    Ok(states)
}

/// Schema and name of a table.
type Name = (String, String);
/// Name and type of a column.
type Column = (String, String);

/// The columns of the lake's tables, with their types, in order.
fn columns_there(engine: &Engine) -> Result<BTreeMap<Name, Vec<Column>>> {
    let rows = engine.query(
        "read the lake",
        &format!(
            "SELECT c.schema_name, c.table_name, c.column_name, c.data_type FROM duckdb_columns() c \
             JOIN duckdb_tables() t USING (database_name, schema_name, table_name) \
             WHERE database_name = '{LAKE}' ORDER BY c.schema_name, c.table_name, c.column_index"
        ),
        |row| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?))),
    )?;
    let mut there: BTreeMap<Name, Vec<Column>> = BTreeMap::new();
    for (table, column) in rows {
        there.entry(table).or_default().push(column);
    }
    Ok(there)
}

/// How many files the newest snapshot of the lake brought, and their bytes. They are told by their numbers: one that takes
/// the place of another keeps the snapshot that this one began with.
fn written(engine: &Engine, schema: &str) -> Result<(u64, u64)> {
    let of = |table: &str, number: &str| {
        format!(
            "SELECT file_size_bytes FROM {} WHERE {number} >= (SELECT next_file_id FROM {} ORDER BY snapshot_id DESC LIMIT 1 OFFSET 1)",
            in_catalog(schema, table),
            in_catalog(schema, "ducklake_snapshot")
        )
    };
    let rows = engine.query(
        "read what was written",
        &format!(
            "SELECT count(*), coalesce(sum(file_size_bytes), 0)::BIGINT FROM ({} UNION ALL {})",
            of("ducklake_data_file", "data_file_id"),
            of("ducklake_delete_file", "delete_file_id")
        ),
        |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs())),
    )?;
    Ok(rows.into_iter().next().unwrap_or_default())
}
