//! Answers that are not believed yet, of the tables that are read: of any other one they are asked for no more, and
//! neither confirmed nor refuted.

use std::collections::BTreeSet;

use duckdb::Connection;

use super::state::failures::of_tables;
use super::wanted::IS_GONE;
use crate::error::Result;
use crate::scope::FailureKind;
use crate::sql;

/// The scopes of such answers: the table, and which of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnbelievedScopes {
    /// They lack much of what is mirrored: a second equal one has to come.
    pub(crate) doubted: BTreeSet<String>,
    /// The guard holds what they would remove.
    pub(crate) held: BTreeSet<String>,
    /// Months of the journals.
    pub(crate) months: BTreeSet<String>,
}

impl UnbelievedScopes {
    /// Those of these tables, which are those that are read ([`super::asked_tables`]).
    ///
    /// # Errors
    /// Those of reading the store.
    pub(crate) fn of(conn: &Connection, asked: &[&str]) -> Result<UnbelievedScopes> {
        let of_kind = |kind| {
            let failed = format!(
                "SELECT concat_ws(' ', table_name, id, part) FROM sync.failures \
                 WHERE kind IN ({}) AND {}",
                FailureKind::names(&[kind]),
                of_tables(asked)
            );
            scopes(conn, &failed)
        };
        let months = format!(
            "SELECT concat_ws(' ', table_name, journal_id, \
               journal_level || '/' || strftime(journal_month, '%Y-%m')) \
             FROM sync.journal_months m WHERE doubted_at IS NOT NULL AND wanted AND NOT {IS_GONE} \
               AND table_name IN ({})",
            sql::texts(asked.iter().copied().chain([""]))
        );
        Ok(UnbelievedScopes {
            doubted: of_kind(FailureKind::Doubted)?,
            held: of_kind(FailureKind::Held)?,
            months: scopes(conn, &months)?,
        })
    }

    /// All of them, each once.
    pub(crate) fn all(&self) -> BTreeSet<&str> {
        [&self.doubted, &self.held, &self.months]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

fn scopes(conn: &Connection, sql: &str) -> Result<BTreeSet<String>> {
    Ok(sql::query(conn, sql, |row| row.get(0))?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::mirror::reports::fixture;
    use crate::mirror::{State, asked_tables};

    #[test]
    fn only_of_tables_that_are_read_is_anything_not_believed() {
        let conn = fixture::store(None, 2026..=2026);
        let catalog = Catalog::load(None).unwrap();
        conn.execute_batch(
            "INSERT INTO sync.failures BY NAME SELECT table_name, 1 AS id, part, kind, now() AS first_at \
             FROM (VALUES ('costs', '', 'Doubted'), ('notes', '', 'Held'), ('cases', 'listing', 'Held'), \
               ('costs', 'x', 'Timeout'), ('gone', '', 'Held')) f(table_name, part, kind); \
             INSERT INTO sync.journal_months BY NAME SELECT table_name, 'offices' AS journal_level, 1 AS journal_id, \
               DATE '2026-10-01' AS journal_month, true AS wanted, now() AS doubted_at \
             FROM (VALUES ('revenue_journals'), ('case_journals')) m(table_name)",
        )
        .unwrap();
        let with = |off: &[&str]| {
            let off = sql::texts(off.iter().copied());
            conn.execute_batch(&format!(
                "UPDATE sync.resources SET status = CASE WHEN table_name IN ({off}) THEN 'disabled' ELSE 'ok' END"
            ))
            .unwrap();
            let tables = State::new(&conn).statuses().all().unwrap();
            let found = UnbelievedScopes::of(&conn, &asked_tables(&catalog, &tables)).unwrap();
            (found.doubted.len(), found.held.len(), found.months.len(), found.all().len())
        };
        assert_eq!(with(&[""]), (1, 2, 2, 5));
        assert_eq!(with(&["costs", "notes", "case_journals"]), (0, 1, 1, 2));
        // The listing is that of the projects, too.
        assert_eq!(with(&["cases", "notes"]), (1, 1, 2, 4));
        assert_eq!(with(&["cases", "notes", "projects"]), (1, 0, 2, 3));
    }
}
