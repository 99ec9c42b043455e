//! Tables that no resource file describes any more: a file of the user's was taken away.
//!
//! Such a table leaves `main` and the state tables, because nothing would keep it true. Its history stays: what
//! the source once said is not ours to forget, and the file may only be misplaced. Nobody reads the table
//! again, so no rewriting knows where its values are repeated; a class that becomes stricter later
//! therefore empties what the class covers there, whether it would hash or drop. With its file the table
//! comes back beside that history.
//!
//! A table of which another key says which rows are one is taken out too, and comes back at once: by the new key
//! its rows cannot be told apart.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::{Connection, params};

use super::changes::count_changes;
use super::definition::{is_text, with_mode};
use super::state::State;
use super::state::fetched::FetchedScopes;
use crate::catalog::{Catalog, Class, Column, NotedRows, Resource, TABLE_ROWS};
use crate::config::{self, PrivacyMode};
use crate::error::Result;
use crate::sql::{self, db, query, scalar_i64};

/// State tables with rows of a table's own. `sync.changes` is not among them: a counter never begins anew,
/// because snapshots are compared by it.
const STATE: [&str; 8] = [
    "resources",
    "earlier_statuses",
    "freshness",
    "failures",
    "pending_scopes",
    "rejects",
    "drift",
    "journal_months",
];

/// Key of `sync.meta`: the keys by which the rows of the tables were told apart, a table a line.
const KEYS: &str = "table_keys";

/// Takes tables that the catalog does not have, or has with another key, out of `main` and the state tables. Returns
/// the tables whose records carried theirs: a list that no table takes belongs to `_extra` again.
pub(super) fn take_out(conn: &Connection, catalog: &Catalog) -> Result<BTreeSet<String>> {
    let failed = |e| db("cannot take a table without resource file out of the store", e);
    let known: Vec<(String, Option<String>)> =
        query(conn, "SELECT table_name, read_with FROM sync.resources", |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let mut parents = BTreeSet::new();
    let keys = State::new(conn).meta(KEYS)?.unwrap_or_default();
    let keys: BTreeMap<&str, &str> = keys.lines().filter_map(|line| line.split_once(' ')).collect();
    for (table, read_with) in known {
        match catalog.get(&table) {
            None => tracing::warn!(
                table,
                "no resource file describes the table any more: it leaves the mirror"
            ),
            Some(resource) => match keys.get(table.as_str()) {
                Some(before) if *before != key_of(resource) => tracing::warn!(
                    table,
                    before,
                    now = key_of(resource),
                    "another key says which rows are one: all of them are read anew"
                ),
                _ => continue,
            },
        }
        let (name, text) = (sql::ident(&table), sql::text(&table));
        let versions = scalar_i64(conn, &format!("SELECT count(*) FROM history.{name}"))?;
        // It may name the table; the next publishing makes it whole again.
        State::new(conn).unread().show(&[])?;
        let mut sql = format!("DROP TABLE main.{name};");
        if versions == 0 {
            sql += &format!(
                "DROP TABLE history.{name}; DELETE FROM sync.columns WHERE table_name = {text};"
            );
        }
        for name in STATE {
            sql += &format!("DELETE FROM sync.{name} WHERE table_name = {text};");
        }
        sql += &format!("DELETE FROM sync.restatements WHERE journal = {text};");
        conn.execute_batch(&sql).map_err(failed)?;
        FetchedScopes::new(conn).forget_table(&table)?;
        count_changes(conn, &table, [""])?;
        State::new(conn).are_not_complete(&[&table])?;
        parents.extend(read_with.filter(|parent| *parent != table));
    }
    Ok(parents)
}

/// By which columns the rows of a table are told apart, in whatever order they stand.
fn key_of(resource: &Resource) -> String {
    let mut key: Vec<&str> = resource.key.iter().map(String::as_str).collect();
    key.sort_unstable();
    key.join(",")
}

/// Makes the table of an undescribed resource anew, empty and with the columns of its history, which are
/// then brought up to the file like those of any table.
pub(super) fn revive(conn: &Connection, resource: &Resource) -> Result<()> {
    let name = sql::ident(&resource.table);
    conn.execute_batch(&format!(
        "CREATE TABLE main.{name} AS \
         SELECT * EXCLUDE (_valid_from, _valid_to, _change) FROM history.{name} LIMIT 0"
    ))
    .map_err(|e| db(&format!("cannot make main.{name} again"), e))
}

/// Keeps what only files say, for the day on which they are gone or others, and for who has what is published: with every
/// table the one that it is read with, its key and what moves on its own, with every column its privacy class.
pub(super) fn note_files(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let keys: Vec<String> =
        catalog.resources().iter().map(|r| format!("{} {}", r.table, key_of(r))).collect();
    let keys = keys.join("\n");
    if State::new(conn).meta(KEYS)?.as_ref() != Some(&keys) {
        State::new(conn).set_meta(KEYS, &keys)?;
    }
    note_rows(conn, catalog)?;
    let known: Vec<(String, Option<String>)> =
        query(conn, "SELECT table_name, read_with FROM sync.resources", |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    for (table, noted) in known {
        let Some(resource) = catalog.get(&table) else { continue };
        if noted.as_deref() != Some(resource.read_with()) {
            conn.execute(
                "UPDATE sync.resources SET read_with = ? WHERE table_name = ?",
                params![resource.read_with(), table],
            )
            .map_err(|e| db("cannot write sync.resources", e))?;
        }
    }
    let known: Vec<(String, String, Option<String>)> =
        query(conn, "SELECT table_name, column_name, class FROM sync.columns", |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    for (table, name, noted) in known {
        let Some(column) = catalog.get(&table).and_then(|resource| resource.column(&name)) else {
            continue;
        };
        let class = class_name(column);
        if noted.as_ref() != Some(&class) {
            conn.execute(
                "UPDATE sync.columns SET class = ? WHERE table_name = ? AND column_name = ?",
                params![class, table, name],
            )
            .map_err(|e| db("cannot write sync.columns", e))?;
        }
    }
    Ok(())
}

fn note_rows(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let before = NotedRows::parse(State::new(conn).meta(TABLE_ROWS)?.as_deref());
    // No number: a store that is put back counts on to one that was there before.
    let new_since = || format!("{:032x}", rand::random::<u128>());
    let rows = NotedRows::of(catalog, before.as_ref(), new_since);
    if before.as_ref() == Some(&rows) {
        return Ok(());
    }
    State::new(conn).set_meta(TABLE_ROWS, &rows.text())
}

/// The privacy class of a column as it stands in the store; empty for none.
pub(super) fn class_name(column: &Column) -> String {
    column.class.map_or(String::new(), |class| format!("{class:?}"))
}

/// Empties what the history of undescribed tables has of a class that hides more now. `step` says which
/// classes became stricter as such.
pub(super) fn hide(
    conn: &Connection,
    catalog: &Catalog,
    now: &config::Privacy,
    step: Option<&config::Privacy>,
) -> Result<()> {
    let known: Vec<(String, String, String, Option<String>)> = query(
        conn,
        "SELECT table_name, column_name, definition, class FROM sync.columns \
         ORDER BY table_name, column_name",
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    )?;
    let mut undescribed = BTreeSet::new();
    for (table, column, definition, class) in known {
        if catalog.get(&table).is_some() {
            continue;
        }
        let is = |which: Class| class.as_deref() == Some(format!("{which:?}").as_str());
        let mode = match () {
            () if is(Class::Identifier) => now.identifiers,
            () if is(Class::ContactDetail) => now.contact_details,
            // A store that is older than these notes: it may be of any class.
            () if class.is_none() && step.is_some() => PrivacyMode::Drop,
            () => PrivacyMode::Keep,
        };
        let stricter = with_mode(&definition, mode).filter(|_| is_text(&definition));
        if let Some(definition) = stricter {
            empty(conn, &table, &column)?;
            conn.execute(
                "UPDATE sync.columns SET definition = ? WHERE table_name = ? AND column_name = ?",
                params![definition, table, column],
            )
            .map_err(|e| db("cannot write sync.columns", e))?;
        }
        undescribed.insert(table);
    }
    // Fields that had no column fall under a class by their names.
    for table in undescribed.iter().filter(|_| step.is_some()) {
        empty(conn, table, "_extra")?;
    }
    Ok(())
}

fn empty(conn: &Connection, table: &str, column: &str) -> Result<()> {
    let name = sql::ident(column);
    let history = format!("history.{}", sql::ident(table));
    let sql = format!("UPDATE {history} SET {name} = NULL WHERE {name} IS NOT NULL");
    let emptied =
        conn.execute(&sql, []).map_err(|e| db(&format!("cannot empty {history}.{column}"), e))?;
    if emptied > 0 {
        count_changes(conn, table, [""])?;
    }
    Ok(())
}
