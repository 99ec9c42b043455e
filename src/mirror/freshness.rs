//! When a row of each table was last written, and any part of it last read from the source.
//!
//! Commits keep both in `sync.freshness`, because to find them out all rows would have to be read. They
//! only move on: that rows left, or that a scope counts as never read, takes nothing back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use super::state::State;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::sql::{self, db, from_micros, instant, query};

/// How far versions of rows may lie ahead of the clock, and still be followed.
const MOST_AHEAD: Duration = Duration::from_secs(3 * 3600);

/// How much of a table is there, and how fresh it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Freshness {
    pub(crate) rows: i64,
    pub(crate) last_change: Option<Timestamp>,
    pub(crate) last_checked: Option<Timestamp>,
}

/// Gives tables that are new in `sync.resources` their rows.
pub(super) fn enter(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "INSERT INTO sync.freshness (table_name) SELECT table_name FROM sync.resources \
         WHERE table_name NOT IN (SELECT table_name FROM sync.freshness)",
    )
    .map_err(failed)
}

/// When a row of any table was last written.
pub(super) fn last_change(conn: &Connection) -> Result<Option<Timestamp>> {
    let last = "SELECT epoch_us(max(last_change)) FROM sync.freshness";
    Ok(query(conn, last, |row| row.get(0))?.into_iter().find_map(from_micros))
}

/// The instant of the newest version in the store, or of the last closing, which those to come must be later than. One
/// that lies too far ahead of the clock is left out of it: all else that is told by the time of a commit would stand
/// still until then.
pub(super) fn newest_version(conn: &Connection, now: Timestamp) -> Result<Timestamp> {
    let closed = "SELECT epoch_us(greatest(max(closed_at), max(reopened_at))) FROM sync.closings";
    let closed = query(conn, closed, |row| row.get(0))?.into_iter().find_map(from_micros);
    Ok(followed(last_change(conn)?.max(closed).unwrap_or(Timestamp::MIN), now))
}

/// The instant that versions to come must be later than, of that of the `last` one.
pub(super) fn followed(last: Timestamp, now: Timestamp) -> Timestamp {
    if last <= now + MOST_AHEAD {
        return last;
    }
    tracing::warn!(
        last_change = %last,
        "rows or closings are dated more than three hours ahead of this machine's clock, which was set back: until then \
         reports as of an instant may have two versions of one row, and what changes in closed months is not counted in \
         report.journal_statement, then or later"
    );
    Timestamp::MIN
}

/// Notes of the tables of a commit that rows were `written`, or scopes `read`, now.
pub(super) fn note(
    conn: &Connection,
    written: &BTreeSet<&str>,
    read: &BTreeSet<&str>,
    now: Timestamp,
) -> Result<()> {
    let now = instant(now);
    let moved: Vec<String> = [("last_change", written), ("last_checked", read)]
        .into_iter()
        .filter(|(_, tables)| !tables.is_empty())
        .map(|(column, tables)| {
            format!(
                "{column} = CASE WHEN table_name IN ({}) THEN greatest({column}, {now}) \
                 ELSE {column} END",
                sql::texts(tables.iter().copied())
            )
        })
        .collect();
    if moved.is_empty() {
        return Ok(());
    }
    conn.execute_batch(&format!(
        "UPDATE sync.freshness SET {} WHERE table_name IN ({})",
        moved.join(", "),
        sql::texts(written.union(read).copied())
    ))
    .map_err(failed)
}

/// The statement that notes of `tables` (SQL) that scopes were read at `now` (SQL).
pub(super) fn was_read(tables: &str, now: &str) -> String {
    format!(
        "UPDATE sync.freshness SET last_checked = greatest(last_checked, {now}) \
         WHERE table_name IN ({tables})"
    )
}

/// Fills the table by what the rows say.
pub(super) fn note_all(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let changes: Vec<String> = catalog
        .resources()
        .iter()
        .map(|resource| {
            format!(
                "SELECT {} AS table_name, max(_synced_at) AS last_change FROM main.{}",
                sql::text(&resource.table),
                sql::ident(&resource.table)
            )
        })
        .collect();
    conn.execute_batch(&format!(
        "DELETE FROM sync.freshness; \
         INSERT INTO sync.freshness BY NAME \
           SELECT c.*, r.last_checked FROM ({}) c LEFT JOIN \
             (SELECT table_name, max(read_at) AS last_checked FROM \
                (SELECT table_name, fetched_at AS read_at FROM sync.fetched \
                 UNION ALL SELECT table_name, read_at FROM sync.journal_months) \
              GROUP BY table_name) r ON r.table_name = c.table_name",
        changes.join(" UNION ALL ")
    ))
    .map_err(failed)
}

fn failed(error: duckdb::Error) -> crate::error::Error {
    db("cannot note how fresh the tables are", error)
}

impl State<'_> {
    /// Rows, last change and last check of every table, as `report.freshness` shows them: a child's rows
    /// are read with its parent's.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn freshness(&self, catalog: &Catalog) -> Result<BTreeMap<String, Freshness>> {
        let times: BTreeMap<String, [Option<Timestamp>; 2]> = query(
            self.conn,
            "SELECT table_name, epoch_us(last_change), epoch_us(last_checked) FROM sync.freshness",
            |row| Ok((row.get(0)?, [from_micros(row.get(1)?), from_micros(row.get(2)?)])),
        )?
        .into_iter()
        .collect();
        let counts: Vec<String> = catalog
            .resources()
            .iter()
            .map(|resource| {
                let (name, table) = (sql::text(&resource.table), sql::ident(&resource.table));
                format!("SELECT {name}, count(*) FROM main.{table}")
            })
            .collect();
        let counts: Vec<(String, i64)> =
            query(self.conn, &counts.join(" UNION ALL "), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows = counts.into_iter().map(|(table, rows)| {
            let read_with = catalog.get(&table).map_or(table.as_str(), |r| r.read_with());
            let fresh = Freshness {
                rows,
                last_change: times.get(&table).and_then(|[change, _]| *change),
                last_checked: times.get(read_with).and_then(|[_, checked]| *checked),
            };
            (table, fresh)
        });
        Ok(rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn versions_follow_those_that_a_clock_dated_up_to_three_hours_ahead() {
        let conn = fixture::store(None, 2026..=2026);
        let now: Timestamp = "2026-06-01T10:00:00Z".parse().unwrap();
        let newest = || newest_version(&conn, now).unwrap();
        assert_eq!(newest(), Timestamp::MIN);
        for (last, expected) in [
            ("2026-06-01T13:00:00Z", "2026-06-01T13:00:00Z".parse().unwrap()),
            ("2026-06-01T13:00:01Z", Timestamp::MIN),
        ] {
            let set = format!(
                "UPDATE sync.freshness SET last_change = '{last}' WHERE table_name = 'notes'"
            );
            conn.execute_batch(&set).unwrap();
            assert_eq!(newest(), expected);
        }
        // The clock of a process may be set back while it runs.
        let ahead = |hours| followed(now + hours * Duration::from_secs(3600), now);
        assert_eq!((ahead(3), ahead(4)), (now + MOST_AHEAD, Timestamp::MIN));
        // What is written after a closing is not what was closed.
        let closed = "UPDATE sync.freshness SET last_change = '2026-06-01T09:00:00Z'; \
            INSERT INTO sync.closings (journal, journal_level, journal_id, journal_month, closed_at, closed_by, \
              lines, sha256, reopened_at) VALUES \
              ('depot_journals', 'offices', 11, '2026-05-01', '2026-06-01T10:30:00Z', 'x', 1, '', NULL)";
        conn.execute_batch(closed).unwrap();
        assert_eq!(newest(), "2026-06-01T10:30:00Z".parse().unwrap());
        conn.execute_batch("UPDATE sync.closings SET reopened_at = '2026-06-01T10:40:00Z'")
            .unwrap();
        assert_eq!(newest(), "2026-06-01T10:40:00Z".parse().unwrap());
    }
}
