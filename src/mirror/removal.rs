//! Rows that leave `main` for another reason than an answer of their own scope: their case is gone or
//! hidden, moved to the other search, or is no longer what the table is about.

use std::collections::HashMap;

use duckdb::Connection;
use jiff::Timestamp;

use super::changes::{Touched, count_changed};
use super::guard::{self, Limits};
use super::load::{Outcome, Settings};
use super::merge::{self, Merged};
use super::state::failures::{Failure, fail};
use super::state::fetched::{FetchedScopes, rows_of};
use super::state::{ids, list};
use crate::catalog::{Condition, Group, Resource};
use crate::error::Result;
use crate::scope::{FailureKind, FetchStatus, ScopeId};
use crate::sql::{self, db, instant, scalar_i64};

/// Takes the rows of these scopes out of a table; they stay in history, ended by `change`. `ids` is
/// SQL that gives the scopes' ids.
pub(super) fn take_rows(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    ids: &str,
    change: &str,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let Some(column) = resource.scope_column() else { return Ok(()) };
    let condition = format!("{} IN ({ids})", sql::ident(column));
    let history = settings.keeps_history(&resource.table);
    let gone = merge::remove(conn, resource, history, &condition, change, &instant(now))?;
    if gone > 0 {
        outcome.note(&resource.table, Merged { deleted: gone, ..Merged::default() });
        let scopes = "SELECT scope FROM temp.gone";
        let touched = settings.touched(|| Touched::query(conn, resource, scopes))?;
        let changed = [(resource.table.clone(), touched)].into();
        count_changed(conn, &changed, settings.notes_scopes)?;
    }
    Ok(())
}

/// Forgets what the store says of these scopes: there is nothing to be fetched, and nothing left that
/// did not fit.
pub(super) fn forget_scopes<'a>(
    conn: &Connection,
    tables: impl Iterator<Item = &'a str>,
    ids: &str,
    now: Timestamp,
) -> Result<()> {
    let tables = sql::texts(tables);
    FetchedScopes::new(conn).unfold(&tables, ids)?;
    conn.execute_batch(&format!(
        "DELETE FROM sync.fetched_scopes WHERE table_name IN ({tables}) AND id IN ({ids}); \
         DELETE FROM sync.failures WHERE table_name IN ({tables}) AND id IN ({ids}); \
         UPDATE sync.rejects SET resolved_at = {now} WHERE resolved_at IS NULL \
           AND table_name IN ({tables}) AND scope IN (SELECT id::VARCHAR FROM ({ids}) AS t(id))",
        now = instant(now)
    ))
    .map_err(|e| db("cannot forget what left", e))
}

/// Notes which of these scopes had been read, before they are forgotten: the reports as of an earlier instant
/// count them as fetched.
pub(super) fn note_left<'a>(
    conn: &Connection,
    tables: impl Iterator<Item = &'a str>,
    ids: &str,
    now: Timestamp,
) -> Result<()> {
    conn.execute_batch(&format!(
        "INSERT INTO sync.left_scopes BY NAME SELECT table_name, id, {} AS left_at FROM ({}) \
         WHERE table_name IN ({}) AND part = '' AND complete",
        instant(now),
        rows_of(ids),
        sql::texts(tables)
    ))
    .map_err(|e| db("cannot note what left", e))
}

/// Takes scopes out of a table and its child tables, and forgets them.
pub(super) fn take_scopes(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    ids: &str,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let children = settings.catalog.children(&resource.table).map(AsRef::as_ref);
    let tables: Vec<&Resource> = std::iter::once(resource).chain(children).collect();
    for table in &tables {
        take_rows(conn, settings, table, ids, "deleted", now, outcome)?;
    }
    forget_scopes(conn, tables.iter().map(|table| table.table.as_str()), ids, now)
}

/// The tables of cases whose `[condition]` looks at one of `tables`, with that condition.
pub(super) fn conditional<'s>(
    settings: &'s Settings,
    tables: &[&str],
) -> impl Iterator<Item = (&'s Resource, &'s Condition)> {
    settings.catalog.resources().iter().filter_map(move |resource| {
        let condition = resource.condition.as_ref()?;
        let is_looked_at = tables.contains(&condition.table.as_str());
        (resource.group == Group::Case && is_looked_at).then_some((resource.as_ref(), condition))
    })
}

/// After `tables` were read: cases in `temp.stage_scopes` that a table whose `[condition]` looks there is no
/// longer about leave it. A condition whose value did not fit is not known, and decides nothing.
pub(super) fn unfulfilled(
    conn: &Connection,
    settings: &Settings,
    tables: &[&str],
    run_id: i64,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    for of in conditional(settings, tables) {
        // The answer may have had no row at all: then there is none of the other table either.
        leave(conn, settings, of, "", run_id, now, outcome)?;
    }
    Ok(())
}

/// After a table under a condition was read: cases in `temp.stage_scopes` that it is not about by what is mirrored leave
/// it again. One without a row where the condition looks, as a hidden case, stays.
pub(super) fn late(
    conn: &Connection,
    settings: &Settings,
    (resource, only): (&Resource, &Condition),
    run_id: i64,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let has_row = format!(
        "AND EXISTS (SELECT 1 FROM main.{} m WHERE m.{} = c.id)",
        sql::ident(&only.table),
        sql::ident(&only.scope)
    );
    leave(conn, settings, (resource, only), &has_row, run_id, now, outcome)
}

/// Takes those cases in `temp.stage_scopes` out of a table for which its condition does not hold, and `which` (SQL of
/// scopes `c`) does.
fn leave(
    conn: &Connection,
    settings: &Settings,
    (resource, only): (&Resource, &Condition),
    which: &str,
    run_id: i64,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let left = ids(
        conn,
        &format!(
            "SELECT DISTINCT c.id FROM temp.stage_scopes c \
             WHERE (EXISTS (SELECT 1 FROM ({fetched}) f \
                 WHERE f.table_name = {table} AND f.id = c.id) \
               OR EXISTS (SELECT 1 FROM sync.failures x \
                 WHERE x.table_name = {table} AND x.id = c.id)) \
               AND NOT EXISTS (SELECT 1 FROM main.{asked} m \
                 WHERE m.{key} = c.id AND m.{column} IN ({values}) \
                   AND m.{key} IN (SELECT id FROM temp.stage_scopes)) \
               AND NOT EXISTS (SELECT 1 FROM sync.rejects r WHERE r.resolved_at IS NULL \
                 AND r.table_name = {asked_text} AND r.column_name = {column_text} \
                 AND r.scope = c.id::VARCHAR) {which}",
            table = sql::text(&resource.table),
            fetched = rows_of("SELECT id FROM temp.stage_scopes"),
            asked = sql::ident(&only.table),
            asked_text = sql::text(&only.table),
            key = sql::ident(&only.scope),
            column = sql::ident(&only.column),
            column_text = sql::text(&only.column),
            values = sql::texts(only.values.iter().map(String::as_str)),
        ),
    )?;
    let left = match settings.limits(now) {
        Some(limits) if !left.is_empty() => {
            believed(conn, resource, only, left, run_id, limits, outcome)?
        }
        _ => left,
    };
    if !left.is_empty() {
        let left = format!("SELECT unnest([{}])", list(&left));
        note_left(conn, std::iter::once(resource.table.as_str()), &left, now)?;
        take_scopes(conn, settings, resource, &left, now, outcome)?;
    }
    Ok(())
}

/// Of cases that a table is no longer about by the answers that were just taken, those of which that is
/// believed: the same doubt and guard hold as where the table's own answers lack rows. Of the others
/// what the condition looks at is asked again, and an equal answer confirms it.
fn believed(
    conn: &Connection,
    resource: &Resource,
    only: &Condition,
    left: Vec<i64>,
    run_id: i64,
    limits: Limits,
    outcome: &mut Outcome,
) -> Result<Vec<i64>> {
    let Some(column) = resource.scope_column().map(sql::ident) else { return Ok(left) };
    let run = |sql: &str| {
        conn.execute_batch(sql)
            .map_err(|e| db(&format!("cannot hold rows of {}", resource.table), e))
    };
    let table = sql::ident(&resource.table);
    // The answer has no rows of this table. What is held of the answer's own table stays noted.
    merge::create_stage(conn, resource)?;
    run(&format!(
        "CREATE OR REPLACE TEMP TABLE gone AS SELECT rowid AS mid, {column} AS scope \
           FROM main.{table} WHERE {column} IN ({}); \
         CREATE OR REPLACE TEMP TABLE kept_back_before AS FROM temp.kept_back",
        list(&left)
    ))?;
    guard::begin(conn)?;
    let gone = scalar_i64(conn, "SELECT count(*) FROM temp.gone")?.unsigned_abs();
    let held = if gone == 0 { 0 } else { guard::hold(conn, resource, limits, gone)? };
    guard::note_removed(conn, &resource.table, gone - held, limits.now)?;
    guard::note_held(conn, &resource.table, &HashMap::new(), run_id, limits, outcome)?;
    let held = ids(conn, "SELECT DISTINCT id FROM temp.kept_back ORDER BY id")?;
    run("CREATE OR REPLACE TEMP TABLE kept_back AS FROM temp.kept_back_before")?;
    if !held.is_empty() {
        // Where the condition holds again, nothing but a reading of the table itself says that it is as it should be.
        let both = sql::texts([only.table.as_str(), &resource.table]);
        FetchedScopes::new(conn).unfold(&both, &list(&held))?;
        run(&format!(
            "UPDATE sync.fetched_scopes SET status = '{kept}', version = NULL, digest = NULL \
             WHERE table_name IN ({both}) AND part = '' AND id IN ({held}); \
             UPDATE sync.seen SET dirty = true WHERE NOT removed AND case_id IN ({held})",
            held = list(&held),
            kept = FetchStatus::Held
        ))?;
    }
    for id in &held {
        let why =
            format!("by it {} would lose rows of the case: it is asked again", resource.table);
        let scope = ScopeId { table: only.table.clone(), id: *id, part: String::new() };
        let failure = Failure {
            not_before: Some(limits.doubt),
            // It confirms nothing of its own table.
            digest: Some("condition"),
            ..Failure::new(FailureKind::Doubted, &why)
        };
        fail(conn, run_id, limits.now, &scope, &failure)?;
    }
    Ok(left.into_iter().filter(|id| !held.contains(id)).collect())
}
