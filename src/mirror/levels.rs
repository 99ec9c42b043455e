//! Rows of journals of another level than the configured one: they leave `main`, where they would stand
//! beside the same lines a second time. History keeps them (docs/architecture.md, "Journals").

use duckdb::Connection;
use jiff::Timestamp;

use super::load::count_changes;
use super::merge;
use crate::catalog::{Catalog, JOURNAL_COLUMNS};
use crate::config::JournalLevel;
use crate::error::Result;
use crate::scope::DueReason;
use crate::sql::{self, db, instant, query};

/// Takes the rows of other levels out of `main`. Their months count as never read, so that they are read
/// again, and nothing of them is a restatement, when their level is configured again; which names their
/// lines had stays known.
pub(super) fn leave_others(
    conn: &Connection,
    catalog: &Catalog,
    level: JournalLevel,
    now: Timestamp,
) -> Result<()> {
    let [column, _, month] = JOURNAL_COLUMNS;
    let others = format!("{column} <> {}", sql::text(&level.to_string()));
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
            "UPDATE sync.journal_months SET due = '{}', complete = false, read_at = NULL, \
               closed_read_at = NULL, definition = NULL, doubted_at = NULL, doubted_digest = NULL, \
               doubted_payment = NULL, doubted_change = NULL, doubted_price = NULL, \
               not_found_at = NULL, answer_digest = NULL WHERE {others}",
            DueReason::NeverFetched
        ))
        .map_err(|e| db("cannot let the months of another level go", e))?;
    }
    Ok(())
}
