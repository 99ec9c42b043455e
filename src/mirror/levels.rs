//! Rows of journals of another level than the configured one: they leave `main`, where they would stand
//! beside the same lines a second time. History keeps them (docs/architecture.md, "Journals").

use duckdb::Connection;
use jiff::Timestamp;

use super::changes::count_changes;
use super::doubt::UNDOUBTED;
use super::lines::same_month;
use super::merge;
use super::wanted::IS_GONE;
use crate::catalog::{Catalog, Group, JOURNAL_COLUMNS, Resource};
use crate::config::JournalLevel;
use crate::error::Result;
use crate::scope::DueReason;
use crate::sql::{self, db, instant, query, scalar_i64};

/// Takes the rows of other levels out of `main`. Their months count as never read, so that they are read
/// again when their level is configured again. [`bring_back`] gives them their lines then, so that these keep
/// their names, what changed meanwhile in closed months is a restatement, and an answer that lacks them is doubted.
/// Those that the source no longer knows are as they were ([`bring_back_gone`]).
pub(super) fn leave_others(
    conn: &Connection,
    catalog: &Catalog,
    level: JournalLevel,
    now: Timestamp,
) -> Result<()> {
    let [column, _, month] = JOURNAL_COLUMNS;
    let others = format!("{column} <> {}", sql::text(&level.to_string()));
    let failed = |e| db("cannot let the months of another level go", e);
    let mut any_left = false;
    for resource in catalog.resources() {
        if !resource.is_of_journal() {
            continue;
        }
        let months: Vec<String> = query(
            conn,
            &format!(
                "SELECT DISTINCT strftime({month}, '%Y-%m') FROM main.{} WHERE {others} ORDER BY 1",
                sql::ident(&resource.table)
            ),
            |row| row.get(0),
        )?;
        if months.is_empty() {
            continue;
        }
        conn.execute_batch(&format!(
            "UPDATE sync.journal_months m SET left_at = {} FROM \
               (SELECT DISTINCT journal_level, journal_id, journal_month FROM main.{} WHERE {others}) c \
             WHERE m.table_name = {} AND {}",
            instant(now),
            sql::ident(&resource.table),
            sql::text(&resource.table),
            same_month("m", "c")
        ))
        .map_err(failed)?;
        let left = merge::remove(conn, resource, true, &others, "deleted", &instant(now))?;
        tracing::info!(
            table = resource.table,
            rows = left,
            "rows of another journals.level leave; history keeps them"
        );
        count_changes(conn, &resource.table, months)?;
        any_left = true;
    }
    if any_left {
        conn.execute_batch(&format!(
            "UPDATE sync.journal_months m SET due = '{}', complete = false, {UNDOUBTED}, \
               not_found_at = NULL, answer_digest = NULL WHERE {others} AND NOT {IS_GONE}",
            DueReason::NeverFetched
        ))
        .map_err(failed)?;
    }
    Ok(())
}

/// Gives the staged months of a journal the lines, and their annotations, with which they left `main`, as they were
/// then: what has been answered now is held against them. They are back until an answer is believed, and are not
/// brought twice. Returns how many rows of each table.
pub(super) fn bring_back<'a>(
    conn: &Connection,
    lines: &'a Resource,
    notes: Option<&'a Resource>,
    now: Timestamp,
) -> Result<Vec<(&'a Resource, u64)>> {
    let staged =
        format!("EXISTS (SELECT 1 FROM temp.stage_months c WHERE {})", same_month("c", "m"));
    bring(conn, [lines].into_iter().chain(notes), lines, &staged, now)
}

/// Gives the configured level the lines of those that the source no longer knows: nobody asks for their months again, and
/// they are shown still (docs/architecture.md, "Journals").
pub(super) fn bring_back_gone(
    conn: &Connection,
    catalog: &Catalog,
    level: JournalLevel,
    now: Timestamp,
) -> Result<()> {
    // It may have become gone after its level was left.
    let gone = format!(
        "m.journal_level = {} AND {IS_GONE} \
           AND (m.left_at IS NOT NULL OR NOT m.complete AND m.read_at IS NOT NULL)",
        sql::text(&level.to_string())
    );
    let left = format!("SELECT count(*) FROM sync.journal_months m WHERE {gone}");
    if scalar_i64(conn, &left)? == 0 {
        return Ok(());
    }
    for lines in catalog.resources().iter().filter(|r| matches!(r.group, Group::Journal(_))) {
        let notes = catalog.children(&lines.table).map(AsRef::as_ref);
        bring(conn, std::iter::once(lines.as_ref()).chain(notes), lines, &gone, now)?;
    }
    let as_they_were = "complete = complete OR read_at IS NOT NULL, left_at = NULL";
    conn.execute_batch(&format!("UPDATE sync.journal_months m SET {as_they_were} WHERE {gone}"))
        .map_err(|e| db("cannot bring back the lines of a level", e))
}

/// Brings back the rows of these tables, with the months of `lines` for which `which` (SQL over `m`) holds.
fn bring<'a>(
    conn: &Connection,
    tables: impl Iterator<Item = &'a Resource>,
    lines: &Resource,
    which: &str,
    now: Timestamp,
) -> Result<Vec<(&'a Resource, u64)>> {
    let failed = |e| db("cannot bring back the lines of a level", e);
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE stage_left AS \
         SELECT m.journal_level, m.journal_id, m.journal_month, m.left_at FROM sync.journal_months m \
         WHERE m.table_name = {} AND m.left_at IS NOT NULL AND {which} \
           AND NOT EXISTS (SELECT 1 FROM main.{} l WHERE {})",
        sql::text(&lines.table),
        sql::ident(&lines.table),
        same_month("l", "m")
    ))
    .map_err(failed)?;
    let months: Vec<String> = query(
        conn,
        "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM temp.stage_left ORDER BY 1",
        |row| row.get(0),
    )?;
    if months.is_empty() {
        return Ok(Vec::new());
    }
    let mut brought = Vec::new();
    for table in tables {
        let rows = conn
            .execute(
                &format!(
                    "INSERT INTO main.{name} BY NAME \
                       SELECT h.* EXCLUDE (_valid_from, _valid_to, _change) \
                         REPLACE ({now} AS _synced_at) \
                       FROM history.{name} h JOIN temp.stage_left m ON {same} \
                       WHERE h._change = 'deleted' AND h._valid_to = greatest(m.left_at, h._valid_from)",
                    name = sql::ident(&table.table),
                    now = instant(now),
                    same = same_month("h", "m"),
                ),
                [],
            )
            .map_err(failed)?;
        count_changes(conn, &table.table, &months)?;
        brought.push((table, rows as u64));
    }
    Ok(brought)
}

/// Takes out the versions of what [`bring_back`] brought and the answer of the same commit replaced: nobody ever saw
/// them.
pub(super) fn forget_moments(conn: &Connection, table: &Resource, now: Timestamp) -> Result<()> {
    conn.execute_batch(&format!(
        "DELETE FROM history.{} WHERE _valid_from = {now} AND _valid_to = {now}",
        sql::ident(&table.table),
        now = instant(now),
    ))
    .map_err(|e| db("cannot take out versions of no duration", e))
}
