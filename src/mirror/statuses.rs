//! Whether each table is read, and why not (`sync.resources`), with the statuses of before that reports as of an instant
//! ask for (`sync.earlier_statuses`).

use std::collections::BTreeMap;

use duckdb::{Connection, params};
use jiff::Timestamp;

use crate::catalog::{Catalog, Group, Resource};
use crate::error::Result;
use crate::scope::TableStatus;
use crate::sql::{self, db, from_micros, instant_param, query, scalar_i64};

/// A row of `sync.resources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceRow {
    pub(crate) status: TableStatus,
    pub(crate) reason: Option<String>,
    pub(crate) since: Option<Timestamp>,
    /// It answered at least once.
    pub(crate) answered: bool,
    /// The table that the status comes from, where it is not the table's own: nothing of it can be
    /// known while that one is not read.
    pub(crate) because_of: Option<String>,
}

impl ResourceRow {
    /// The status without what other tables have to do with it.
    pub(crate) fn own_status(&self) -> TableStatus {
        if self.because_of.is_some() { TableStatus::Ok } else { self.status }
    }

    /// Whether there is nothing to ask for it, by a table that is read itself; `all`: the rows of all tables.
    pub(crate) fn has_nothing_to_ask(&self, all: &BTreeMap<String, ResourceRow>) -> bool {
        let is_read =
            |table: &String| all.get(table).is_some_and(|of| of.status == TableStatus::Ok);
        self.status == TableStatus::Failing && self.because_of.as_ref().is_some_and(is_read)
    }

    /// Whether nothing of it comes: none of its calls was answered, or there is nothing to ask for.
    pub(crate) fn brings_nothing(&self, all: &BTreeMap<String, ResourceRow>) -> bool {
        self.own_status() == TableStatus::Failing || self.has_nothing_to_ask(all)
    }

    /// Whether the table is read: what is disabled, forbidden or absent of itself is not.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.own_status(), TableStatus::Ok | TableStatus::Failing)
    }
}

/// Whether a table is read: neither it nor the one that its rows come with is switched off, forbidden or absent.
pub(crate) fn is_asked(resource: &Resource, all: &BTreeMap<String, ResourceRow>) -> bool {
    [resource.table.as_str(), resource.read_with()]
        .iter()
        .all(|table| all.get(*table).is_some_and(ResourceRow::is_asked))
}

/// Those tables. Nothing is wrong with what was noted of any other one: nobody asks for it.
pub(crate) fn asked_tables<'c>(
    catalog: &'c Catalog,
    all: &BTreeMap<String, ResourceRow>,
) -> Vec<&'c str> {
    let asked = catalog.resources().iter().filter(|resource| is_asked(resource, all));
    asked.map(|resource| resource.table.as_str()).collect()
}

/// A query of the last status that a table, an SQL text, had before and in which it was not read.
fn last_before(table: &str) -> String {
    format!(
        "SELECT status, since, until FROM sync.earlier_statuses WHERE table_name = {table} \
         ORDER BY until DESC LIMIT 1"
    )
}

/// A query of what was read of a table, an SQL text, since the status `e` was over. That it answered 404 for cases (and
/// never otherwise) reads nothing of it.
fn reading_since(table: &str) -> String {
    format!(
        "SELECT 1 FROM sync.freshness AS f \
         JOIN sync.resources AS a ON a.table_name = f.table_name AND a.answered \
         WHERE f.table_name = {table} AND greatest(f.last_checked, f.last_change) >= e.until"
    )
}

/// The statuses of the tables.
pub(crate) struct TableStatuses<'c> {
    pub(super) conn: &'c Connection,
}

impl TableStatuses<'_> {
    /// That of every table.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, ResourceRow>> {
        let rows = query(
            self.conn,
            "SELECT table_name, status, reason, epoch_us(since), answered, because_of \
             FROM sync.resources",
            |row| {
                Ok((
                    row.get(0)?,
                    ResourceRow {
                        status: status_of(&row.get::<_, String>(1)?),
                        reason: row.get(2)?,
                        since: from_micros(row.get(3)?),
                        answered: row.get(4)?,
                        because_of: row.get(5)?,
                    },
                ))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Gives a table a status of its own; `since` moves only where the status does.
    pub(crate) fn set(&self, table: &str, status: TableStatus, reason: Option<&str>) -> Result<()> {
        self.set_because_of(table, status, reason, None)
    }

    /// The same for a status that comes from another table, where `because_of` names one.
    pub(crate) fn set_because_of(
        &self,
        table: &str,
        status: TableStatus,
        reason: Option<&str>,
        because_of: Option<&str>,
    ) -> Result<()> {
        let now = instant_param(Timestamp::now());
        let named = status.name();
        let failed = |e| db("cannot note the status of a table", e);
        // Reports as of an instant ask whether the table was read then.
        self.conn
            .execute(
                "INSERT INTO sync.earlier_statuses BY NAME \
                   SELECT table_name, status, since, ?::TIMESTAMPTZ AS until FROM sync.resources \
                   WHERE table_name = ? AND status <> ? \
                     AND status IN ('disabled', 'forbidden', 'absent')",
                params![now, table, named],
            )
            .map_err(failed)?;
        self.conn
            .execute(
                "UPDATE sync.resources SET reason = ?1, \
                   since = CASE WHEN status = ?2 THEN since ELSE ?3::TIMESTAMPTZ END, \
                   status = ?2, because_of = ?5 WHERE table_name = ?4",
                params![reason, named, now, table, because_of],
            )
            .map_err(failed)?;
        self.continue_earlier(table, because_of.unwrap_or(table)).map_err(failed)
    }

    /// A table that was tried again in vain has had its status all the time: nothing of it, or of the table that it is
    /// `read_with`, was read since it had the same one before.
    fn continue_earlier(&self, table: &str, read_with: &str) -> duckdb::Result<()> {
        let continued = self.conn.execute(
            &format!(
                "UPDATE sync.resources AS r SET since = e.since FROM ({}) AS e \
                 WHERE r.table_name = ?1 AND r.status = e.status AND r.status <> 'disabled' \
                   AND NOT EXISTS ({})",
                last_before("?1"),
                reading_since("?2")
            ),
            params![table, read_with],
        )?;
        if continued > 0 {
            self.conn.execute(
                "DELETE FROM sync.earlier_statuses WHERE table_name = ?1 \
                   AND until > (SELECT since FROM sync.resources WHERE table_name = ?1)",
                [table],
            )?;
        }
        Ok(())
    }

    /// Whether a table was forbidden before, and nothing of it has been read since it is tried again.
    pub(crate) fn is_tried_in_vain(&self, table: &str) -> Result<bool> {
        let table = sql::text(table);
        let in_vain = format!(
            "SELECT count(*) FROM ({}) AS e WHERE e.status = '{}' AND NOT EXISTS ({})",
            last_before(&table),
            TableStatus::Forbidden.name(),
            reading_since(&table)
        );
        Ok(scalar_i64(self.conn, &in_vain)? > 0)
    }

    /// Notes something about a table that can be read; what keeps another from being read stays.
    pub(crate) fn set_reason(&self, table: &str, reason: Option<&str>) -> Result<()> {
        self.conn
            .execute(
                "UPDATE sync.resources SET reason = ? WHERE table_name = ? AND status = 'ok'",
                params![reason, table],
            )
            .map(drop)
            .map_err(|e| db("cannot note the reason of a table", e))
    }

    /// Of how many cases that exist, or rows of the table that it is read per row of, a 404 was the
    /// last answer of a table that never gave any other.
    pub(crate) fn scopes_not_found(&self, resource: &Resource) -> Result<i64> {
        let existing = match &resource.group {
            Group::ForEach(each) => {
                format!("SELECT {} FROM main.{}", sql::ident(&each.column), sql::ident(&each.table))
            }
            Group::Case
            | Group::Ids
            | Group::List
            | Group::Child(_)
            | Group::Events
            | Group::Journal(_) => {
                "SELECT case_id FROM sync.seen WHERE NOT removed AND place IS NOT NULL".to_owned()
            }
        };
        scalar_i64(
            self.conn,
            &format!(
                "SELECT count(DISTINCT f.id) FROM sync.fetched f \
                 WHERE f.table_name = {table} AND f.id IN ({existing}) \
                   AND NOT EXISTS (SELECT 1 FROM sync.resources r \
                     WHERE r.table_name = {table} AND r.answered)",
                table = sql::text(&resource.table)
            ),
        )
    }
}

/// The status of that name; one that this version does not know is read, and none of it answered.
fn status_of(name: &str) -> TableStatus {
    TableStatus::from_name(name).unwrap_or(TableStatus::Failing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    const FORBIDDEN: TableStatus = TableStatus::Forbidden;

    /// Since when a table has its status, and how many it had before in which it was not read.
    fn since(conn: &Connection, table: &str) -> (Option<Timestamp>, i64) {
        let statuses = TableStatuses { conn };
        let earlier = format!(
            "SELECT count(*) FROM sync.earlier_statuses WHERE table_name = {}",
            sql::text(table)
        );
        (statuses.all().unwrap()[table].since, scalar_i64(conn, &earlier).unwrap())
    }

    #[test]
    fn a_table_that_is_tried_again_in_vain_has_had_its_status_all_the_time() {
        let conn = fixture::store(None, 2026..=2026);
        let statuses = TableStatuses { conn: &conn };
        let set = |table, status| statuses.set(table, status, None).unwrap();
        set("costs", FORBIDDEN);
        let first = since(&conn, "costs");
        assert_eq!(first.1, 0);
        // It may be tried in a run that a kill ends, and be failing in between.
        set("costs", TableStatus::Ok);
        set("costs", TableStatus::Failing);
        assert_ne!(since(&conn, "costs"), first);
        assert!(statuses.is_tried_in_vain("costs").unwrap());
        assert!(!statuses.is_tried_in_vain("notes").unwrap(), "it never was forbidden");
        set("costs", FORBIDDEN);
        assert_eq!(since(&conn, "costs"), first);

        // Another status is none that goes on, nor is the same one of another table.
        set("costs", TableStatus::Ok);
        set("notes", FORBIDDEN);
        set("costs", TableStatus::Absent);
        assert_ne!(since(&conn, "costs").0, first.0);
    }

    #[test]
    fn once_it_was_read_a_status_begins_anew() {
        let conn = fixture::store(None, 2026..=2026);
        let statuses = TableStatuses { conn: &conn };
        let set = |status| {
            statuses.set("case_files", status, None).unwrap();
            let child = Some("case_files").filter(|_| status == FORBIDDEN);
            statuses.set_because_of("case_file_access", status, None, child).unwrap();
        };
        let tables = ["case_files", "case_file_access"];
        set(FORBIDDEN);
        let first = tables.map(|table| since(&conn, table));
        set(TableStatus::Ok);
        let read = "UPDATE sync.freshness SET last_checked = \
                      (SELECT max(until) FROM sync.earlier_statuses) WHERE table_name = 'case_files'";
        conn.execute_batch(read).unwrap();
        // So far it has answered 404 alone.
        set(FORBIDDEN);
        assert_eq!(tables.map(|table| since(&conn, table)), first);
        set(TableStatus::Ok);
        conn.execute_batch(read).unwrap();
        let answers = "UPDATE sync.resources SET answered = true WHERE table_name = 'case_files'";
        conn.execute_batch(answers).unwrap();
        assert!(!statuses.is_tried_in_vain("case_files").unwrap(), "it was read since");
        set(FORBIDDEN);
        let second = tables.map(|table| since(&conn, table));
        for (first, second) in first.iter().zip(&second) {
            assert!(second.0 > first.0, "{second:?}");
            assert_eq!(second.1, 1);
        }
        // Tried in vain after that, the second one goes on, and the first is kept.
        set(TableStatus::Ok);
        set(FORBIDDEN);
        assert_eq!(tables.map(|table| since(&conn, table)), second);
    }
}
