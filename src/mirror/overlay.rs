//! A database in memory over the store's file, for `plan`: it reads the store's tables, and keeps to itself
//! what the change feeds say. The file is open for reading, and nothing of it changes.
//!
//! Of the tables that a poll writes, the small ones are copied. Of the two that have a row per case and
//! contact, only those rows are brought that a poll is about to write; the others are read where they are.

use std::collections::BTreeSet;

use duckdb::Connection;

use super::state::fetched;
use super::state::{batch, list};
use super::unreadable::FEED_TABLES;
use crate::error::Result;
use crate::sql::{self, query};

/// The name that the file has beside the database in memory.
pub(super) const STORE: &str = "store";

/// Tables that a poll writes and that are small: all of their rows are copied.
const COPIED: [&str; 4] = ["meta", "feeds", "failures", "fetched_marks"];
/// What statuses are kept in, case by case: a date that cannot be read, or a gap, changes them.
const FETCHED: [&str; 2] = ["fetched_scopes", "fetched_cases"];

/// Ids that one statement names: of hundreds of thousands it would be megabytes.
const BROUGHT_AT_ONCE: usize = 5_000;

/// What there is to do about such a database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlay;

impl Overlay {
    /// Lays a database in memory over the file that is attached to it as [`STORE`].
    ///
    /// # Errors
    /// `Store`.
    pub(super) fn lay(conn: &Connection, feed_calls: u32) -> Result<Overlay> {
        // As many as may count in the throttle's window, and those that have no end.
        let newest = u64::from(feed_calls) * 2;
        let relations: Vec<(String, String)> = query(
            conn,
            &format!(
                "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '{STORE}' \
                   AND schema_name IN ('main', 'history', 'report', 'sync') \
                 UNION ALL SELECT schema_name, view_name FROM duckdb_views() \
                   WHERE database_name = '{STORE}' AND schema_name = 'sync'"
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut all = "CREATE SCHEMA history; CREATE SCHEMA report; CREATE SCHEMA sync;".to_owned();
        for (schema, name) in relations {
            let here = format!("{}.{}", sql::ident(&schema), sql::ident(&name));
            let (there, is_state) = (format!("{STORE}.{here}"), schema == "sync");
            let rows = match name.as_str() {
                "seen" | "seen_contacts" if is_state => "LIMIT 0".to_owned(),
                "rejects" if is_state => {
                    format!("WHERE table_name IN ({})", sql::texts(FEED_TABLES))
                }
                "feed_calls" if is_state => format!(
                    "WHERE ended_at IS NULL OR sent_at IN \
                       (SELECT sent_at FROM {there} ORDER BY sent_at DESC LIMIT {newest})"
                ),
                name if is_state && COPIED.contains(&name) => String::new(),
                // They are made of those that are copied. The first is made here; reports ask the other.
                "fetched" | "read_scopes" if is_state => continue,
                _ => {
                    all += &format!("CREATE VIEW {here} AS FROM {there};");
                    continue;
                }
            };
            all += &format!("CREATE TABLE {here} AS FROM {there} {rows};");
        }
        batch(conn, &all)?;
        fetched::create_view(conn)?;
        Ok(Overlay)
    }

    /// Brings the rows of these cases and contacts before a page of a feed is noted, and what is noted of
    /// cases with a date that cannot be read.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn bring(
        self,
        conn: &Connection,
        cases: &[i64],
        contacts: &[i64],
        any_unreadable: bool,
    ) -> Result<()> {
        for (table, id, ids) in
            [("seen", "case_id", cases), ("seen_contacts", "contact_id", contacts)]
        {
            let ids: Vec<i64> = ids.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            for ids in ids.chunks(BROUGHT_AT_ONCE) {
                bring_rows(conn, table, id, &format!("{id} IN ({})", list(ids)))?;
            }
        }
        if any_unreadable { bring_whole(conn, &FETCHED) } else { Ok(()) }
    }

    /// Brings all rows that a gap in a feed changes.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn bring_all(self, conn: &Connection) -> Result<()> {
        bring_rows(conn, "seen", "case_id", "true")?;
        bring_rows(conn, "seen_contacts", "contact_id", "true")
    }

    /// From now on all rows are read, those that were brought and the others. Polls are over.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn settle(self, conn: &Connection) -> Result<()> {
        for (table, id) in [("seen", "case_id"), ("seen_contacts", "contact_id")] {
            batch(
                conn,
                &format!(
                    "ALTER TABLE sync.{table} RENAME TO {table}_here; \
                     CREATE VIEW sync.{table} AS FROM sync.{table}_here UNION ALL BY NAME \
                       FROM {STORE}.sync.{table} ANTI JOIN sync.{table}_here USING ({id})"
                ),
            )?;
        }
        batch(
            conn,
            &format!(
                "ALTER TABLE sync.rejects RENAME TO rejects_here; \
                 CREATE VIEW sync.rejects AS FROM sync.rejects_here UNION ALL BY NAME \
                   FROM {STORE}.sync.rejects WHERE table_name NOT IN ({})",
                sql::texts(FEED_TABLES)
            ),
        )
    }
}

fn bring_rows(conn: &Connection, table: &str, id: &str, which: &str) -> Result<()> {
    batch(
        conn,
        &format!(
            "INSERT INTO sync.{table} BY NAME FROM {STORE}.sync.{table} \
               ANTI JOIN sync.{table} USING ({id}) WHERE {which}"
        ),
    )
}

/// Copies tables that are only read until now.
fn bring_whole(conn: &Connection, tables: &[&str]) -> Result<()> {
    let views = query(
        conn,
        "SELECT view_name FROM duckdb_views() WHERE database_name = current_database() \
         AND schema_name = 'sync'",
        |row| row.get::<_, String>(0),
    )?;
    for table in tables.iter().filter(|table| views.iter().any(|view| view == *table)) {
        batch(
            conn,
            &format!(
                "DROP VIEW sync.{table}; CREATE TABLE sync.{table} AS FROM {STORE}.sync.{table}"
            ),
        )?;
    }
    Ok(())
}
