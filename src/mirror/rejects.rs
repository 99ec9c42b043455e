//! Values and records that did not fit, until they do (`sync.rejects`; docs/architecture.md, "Values").

use std::collections::BTreeSet;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::{State, batch, list};
use crate::catalog::{Group, JOURNAL_COLUMNS, LINE_ID, Resource};
use crate::decode::{Load, LoadKind, Reject};
use crate::error::Result;
use crate::scope::JournalScope;
use crate::sql::{self, db, instant, query};

/// The rejects of loads, each with its scope as text.
pub(super) fn of(loads: &[Load]) -> Vec<(String, Reject)> {
    loads.iter().flat_map(scoped).collect()
}

/// The table of these loads, and its child tables.
pub(super) fn tables(resource: &Resource, loads: &[Load]) -> BTreeSet<String> {
    let children = loads.iter().flat_map(|load| &load.decoded.children);
    let children = children.map(|child| child.resource.table.clone());
    children.chain([resource.table.clone()]).collect()
}

/// The tables with rejects that are not resolved.
pub(super) fn tables_with_open(conn: &Connection) -> Result<BTreeSet<String>> {
    let sql = "SELECT DISTINCT table_name FROM sync.rejects WHERE resolved_at IS NULL";
    Ok(query(conn, sql, |row| row.get(0))?.into_iter().collect())
}

/// Opens, repeats and closes the rejects of the staged scopes; theirs are in `temp.stage_rejects`. All loads
/// are of one table; `tables` are [`tables`] of them.
pub(super) fn note(
    conn: &Connection,
    resource: &Resource,
    loads: &[Load],
    tables: &BTreeSet<String>,
    run_id: i64,
    now: Timestamp,
) -> Result<()> {
    let failed = |e| db("cannot note rejects", e);
    let tables = sql::texts(tables.iter().map(String::as_str));
    let now = instant(now);
    // An answer without the fault is enough for a record that could not be placed.
    let lacking: Vec<i64> = loads.iter().flat_map(|load| load.lacking.iter().copied()).collect();
    let was_lacking = if lacking.is_empty() {
        String::new()
    } else {
        format!(
            "UPDATE sync.rejects o SET resolved_at = {now} \
             WHERE o.resolved_at IS NULL AND o.table_name IN ({tables}) AND o.column_name IS NULL \
               AND o.scope IN (SELECT unnest([{}])::VARCHAR) AND NOT EXISTS \
               (SELECT 1 FROM temp.stage_rejects n WHERE {SAME});",
            list(&lacking)
        )
    };
    conn.execute_batch(&format!(
        "UPDATE sync.rejects o SET last_at = {now}, value = n.value, error = n.error \
         FROM temp.stage_rejects n WHERE o.resolved_at IS NULL AND {SAME}; \
         INSERT INTO sync.rejects \
           SELECT DISTINCT ON (n.table_name, n.scope, n.record_key, n.column_name) \
           {run_id}, n.table_name, n.scope, n.record_key, \
           n.column_name, n.value, n.error, {now}, {now}, NULL \
         FROM temp.stage_rejects n WHERE NOT EXISTS \
           (SELECT 1 FROM sync.rejects o WHERE o.resolved_at IS NULL AND {SAME}); \
         UPDATE sync.rejects o SET resolved_at = {now} FROM temp.stage_scopes c \
         WHERE o.resolved_at IS NULL AND o.table_name IN ({tables}) AND {is_answered} AND NOT EXISTS \
           (SELECT 1 FROM temp.stage_rejects n WHERE {SAME}); \
         {was_lacking}",
        is_answered = is_answered(resource, loads),
    ))
    .map_err(failed)
}

/// SQL for whether a staged scope `c` answers an open reject `o`, so that it is closed unless it came again.
fn is_answered(resource: &Resource, loads: &[Load]) -> String {
    let scope_text = match resource.group {
        Group::List => "''",
        // As a journal's month is written: offices/11/2026-10.
        Group::Journal(_) => "replace(c.part, '/', '/' || c.id || '/')",
        _ => "c.id::VARCHAR",
    };
    // A list that names scopes has not read them, and says nothing of what was wrong within.
    let only_named = match &resource.group {
        Group::ForEach(_)
            if loads.iter().flat_map(|load| &load.scopes).any(|scope| scope.id == 0) =>
        {
            "AND c.id = 0"
        }
        _ => "",
    };
    // What is held of a scope stays as it was, and so does what did not fit in it.
    let only_believed = match &resource.group {
        Group::Journal(_) => "",
        _ => "AND c.id NOT IN (SELECT id FROM temp.kept_back)",
    };
    format!(
        "o.scope = {scope_text} AND (c.complete OR o.column_name IS NULL {only_named}) {only_believed}"
    )
}

/// One open row per record and column.
const SAME: &str = "o.table_name = n.table_name AND o.scope = n.scope \
                    AND o.record_key = n.record_key \
                    AND o.column_name IS NOT DISTINCT FROM n.column_name";

/// The rejects of a load, each with its scope as text: the id that the record belongs to, or nothing
/// for a whole list.
fn scoped(load: &Load) -> Vec<(String, Reject)> {
    let ids = |own: Option<i64>| -> Vec<i64> {
        let of_load = || load.scopes.iter().map(|scope| scope.id);
        match own.filter(|own| of_load().any(|id| id == *own)) {
            Some(own) => vec![own],
            // The list that names the scopes is a scope too, that of records which name none.
            None if of_load().any(|id| id == 0) => vec![0],
            None => of_load().collect(),
        }
    };
    let scopes_of = |reject: &Reject| -> Vec<String> {
        match load.kind {
            _ if load.decoded.resource.group == Group::List => vec![String::new()],
            LoadKind::Journal => load
                .scopes
                .iter()
                .filter_map(|scope| JournalScope::of(scope.id, &scope.part))
                .map(|scope| scope.to_string())
                .collect(),
            // What is not decoded rejects nothing.
            LoadKind::Unchanged => Vec::new(),
            LoadKind::Scopes => ids(reject.scope).iter().map(i64::to_string).collect(),
            // A record of a search without an id belongs to one that was asked for and did not come. A
            // listing asks for none. A value that does not fit is of a record with an id: of many that are told
            // together it may be any.
            LoadKind::Search { .. } => match reject.scope {
                Some(id) => vec![id.to_string()],
                None if reject.column.is_some() => {
                    load.scopes.iter().map(|scope| scope.id.to_string()).collect()
                }
                None if load.lacking.is_empty() => vec![String::new()],
                None => load.lacking.iter().map(i64::to_string).collect(),
            },
        }
    };
    let mut all = Vec::new();
    for reject in load.decoded.all_rejects() {
        all.extend(scopes_of(&reject).into_iter().map(|scope| (scope, reject.clone())));
    }
    all
}

/// Fills `temp.stage_rejects`.
pub(super) fn stage(conn: &Connection, rejects: &[(String, Reject)]) -> Result<()> {
    let failed = |e| db("cannot stage rejects", e);
    conn.execute_batch(
        "CREATE OR REPLACE TEMP TABLE stage_rejects \
         (table_name VARCHAR, scope VARCHAR, record_key VARCHAR, column_name VARCHAR, value VARCHAR, \
          error VARCHAR)",
    )
    .map_err(failed)?;
    let mut appender = conn.appender("stage_rejects").map_err(failed)?;
    for (scope, reject) in rejects {
        appender
            .append_row(params![
                reject.table,
                scope,
                reject.record_key,
                reject.column,
                reject.value,
                reject.error
            ])
            .map_err(failed)?;
    }
    appender.flush().map_err(failed)
}

/// Calls lines of journals, and what belongs to them, by the names that `temp.new_lines` says, not by their
/// places: a line that moves would be resolved and come again, and another would be taken for it.
pub(super) fn name_lines(conn: &Connection) -> Result<()> {
    let of_month = JOURNAL_COLUMNS.iter().zip(1..);
    let of_month = of_month
        .map(|(column, n)| format!("split_part(r.record_key, '/', {n}) = n.{column}::VARCHAR"));
    let place = JOURNAL_COLUMNS.len() + 1;
    batch(
        conn,
        &format!(
            "UPDATE temp.stage_rejects r SET record_key = array_to_string( \
               string_split(record_key, '/')[:{month}] || [n.{LINE_ID}::VARCHAR] \
               || string_split(record_key, '/')[{after}:], '/') \
             FROM temp.new_lines n WHERE {of_month} \
               AND split_part(r.record_key, '/', {place}) = n.number::VARCHAR",
            month = place - 1,
            after = place + 1,
            of_month = of_month.collect::<Vec<_>>().join(" AND "),
        ),
    )
}

impl State<'_> {
    /// A complete listing that began at `since` met all records of the table: those without a usable
    /// key that it did not meet again are mended.
    pub(crate) fn listing_was_read(
        &self,
        table: &str,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.rejects SET resolved_at = {} WHERE resolved_at IS NULL \
               AND table_name = {} AND scope = '' AND column_name IS NULL AND last_at < {}",
                instant(now),
                sql::text(table),
                instant(since)
            ),
        )
    }
}
