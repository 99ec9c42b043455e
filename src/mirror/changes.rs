//! The change counters: every insert, update and delete of a row moves that of its table, or of its month of a
//! journal. Snapshots link unchanged files by them, and the lake leaves alone what it has already
//! (docs/architecture.md, "Published means finished" and "The lake").
//!
//! Where there is a lake, changes are noted (`sync.changed_scopes`), and where they touched few scopes, with these, so that
//! their rows alone are compared. A change that is not noted is a gap in the numbers: whoever finds one compares all.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;

use super::state::list;
use crate::catalog::Resource;
use crate::counter;
use crate::error::Result;
use crate::sql::{self, db, scalar_i64};

/// Scopes that are noted of one change, at most.
const MOST_NOTED: usize = 1_000;
/// So many changes of a table stay noted at least: half an hour, where a daemon commits every ten seconds.
const NOTED_CHANGES: i64 = 200;
/// Of more notes than these the older ones go.
const MOST_NOTES: i64 = 20_000;

/// Whose rows one change of a table wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touched {
    /// Of these scopes alone.
    Scopes(BTreeSet<i64>),
    /// It is not known, or of too many.
    Any,
}

impl Touched {
    /// Rows of these scopes; `Any` where they are too many, or where the table has none.
    pub(super) fn scopes(resource: &Resource, scopes: impl IntoIterator<Item = i64>) -> Touched {
        match resource.scope_in_key() {
            Some(_) => Touched::few(scopes),
            None => Touched::Any,
        }
    }

    /// Of what `sql` selects: one column of scopes, which `resource` has in its key.
    pub(super) fn query(conn: &Connection, resource: &Resource, sql: &str) -> Result<Touched> {
        if resource.scope_in_key().is_none() {
            return Ok(Touched::Any);
        }
        let some = format!("SELECT DISTINCT * FROM ({sql}) LIMIT {}", MOST_NOTED + 1);
        let scopes: Option<Vec<i64>> =
            sql::query(conn, &some, |row| row.get(0))?.into_iter().collect();
        Ok(scopes.map_or(Touched::Any, Touched::few))
    }

    /// Both.
    pub(super) fn and(self, other: Touched) -> Touched {
        match (self, other) {
            (Touched::Scopes(one), Touched::Scopes(other)) => {
                Touched::few(one.into_iter().chain(other))
            }
            _ => Touched::Any,
        }
    }

    fn few(scopes: impl IntoIterator<Item = i64>) -> Touched {
        let scopes: BTreeSet<i64> = scopes.into_iter().collect();
        if scopes.len() > MOST_NOTED { Touched::Any } else { Touched::Scopes(scopes) }
    }
}

/// Moves the change counters of a table; `parts` are the months of a journal's table, of another nothing.
///
/// # Errors
/// `Store`.
pub(super) fn count_changes(
    conn: &Connection,
    table: &str,
    parts: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<()> {
    let parts: Vec<String> =
        parts.into_iter().map(|part| format!("({})", sql::text(part.as_ref()))).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let name = sql::text(table);
    let parts = parts.join(", ");
    conn.execute_batch(&format!(
        "UPDATE sync.changes SET counter = {next} \
           WHERE table_name = {name} AND part IN (SELECT part FROM (VALUES {parts}) p(part)); \
         INSERT INTO sync.changes SELECT {name}, part, {first} FROM (VALUES {parts}) p(part) \
           WHERE part NOT IN (SELECT part FROM sync.changes WHERE table_name = {name})",
        next = counter::next("counter"),
        first = counter::next("0::BIGINT"),
    ))
    .map_err(|e| db("cannot count a change", e))
}

/// The same for tables that are no journals, with whose rows were written; `notes` says whether that is noted. What is
/// not noted counts as `Any`.
///
/// # Errors
/// `Store`.
pub(super) fn count_changed(
    conn: &Connection,
    changed: &BTreeMap<String, Touched>,
    notes: bool,
) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let names = sql::texts(changed.keys().map(String::as_str));
    conn.execute_batch(&format!(
        "UPDATE sync.changes SET counter = {next} WHERE part = '' AND table_name IN ({names}); \
         INSERT INTO sync.changes SELECT name, '', {first} FROM (SELECT unnest([{names}]) AS name) \
           WHERE name NOT IN (SELECT table_name FROM sync.changes WHERE part = '')",
        next = counter::next("counter"),
        first = counter::next("0::BIGINT"),
    ))
    .map_err(|e| db("cannot count changes", e))?;
    if !notes {
        return Ok(());
    }
    let noted: Vec<String> = changed
        .iter()
        .map(|(table, touched)| {
            let scopes = match touched {
                Touched::Scopes(scopes) => format!("[{}]", list(scopes)),
                Touched::Any => "NULL".to_owned(),
            };
            format!("({}, {scopes}::BIGINT[])", sql::text(table))
        })
        .collect();
    // The id tells this change from another one of its number, in a store that was put back to an earlier state.
    conn.execute_batch(&format!(
        "INSERT INTO sync.changed_scopes BY NAME \
         SELECT c.table_name, c.counter, uuid() AS change, n.scopes \
         FROM sync.changes c JOIN (VALUES {}) n(table_name, scopes) ON c.table_name = n.table_name \
         WHERE c.part = ''",
        noted.join(", ")
    ))
    .map_err(|e| db("cannot note what changed", e))?;
    if scalar_i64(conn, "SELECT count(*) FROM sync.changed_scopes")? > MOST_NOTES {
        forget_notes(conn)?;
    }
    Ok(())
}

/// Forgets the notes of changes that nobody asks for any more.
///
/// # Errors
/// `Store`.
pub(super) fn forget_notes(conn: &Connection) -> Result<()> {
    conn.execute_batch(&format!(
        "DELETE FROM sync.changed_scopes s USING sync.changes c \
         WHERE c.part = '' AND s.table_name = c.table_name AND {noted} <= {all} - {NOTED_CHANGES}",
        noted = counter::count_in_sql("s.counter"),
        all = counter::count_in_sql("c.counter"),
    ))
    .map_err(|e| db("cannot forget what was noted", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::mirror::reports::fixture;

    fn noted(conn: &Connection) -> Vec<(String, i64, Option<String>)> {
        sql::query(
            conn,
            "SELECT table_name, counter, scopes::VARCHAR FROM sync.changed_scopes ORDER BY ALL",
            |row| Ok((row.get(0)?, counter::count(row.get(1)?), row.get(2)?)),
        )
        .unwrap()
    }

    #[test]
    fn a_change_is_noted_with_its_scopes_and_one_of_unknown_rows_is_a_gap() {
        let conn = fixture::store(None, 2026..=2026);
        let catalog = Catalog::load(None).unwrap();
        let of = |table: &str, scopes: &[i64]| {
            let touched = Touched::scopes(catalog.get(table).unwrap(), scopes.iter().copied());
            BTreeMap::from([(table.to_owned(), touched)])
        };
        count_changed(&conn, &of("notes", &[7, 3, 7]), true).unwrap();
        count_changes(&conn, "notes", [""]).unwrap();
        let both = of("notes", &[9]).into_iter().chain(of("offices", &[0])).collect();
        count_changed(&conn, &both, true).unwrap();
        count_changed(&conn, &of("notes", &[8]), false).unwrap();
        count_changed(&conn, &of("notes", &(0..=1_000).collect::<Vec<_>>()), true).unwrap();
        let line = |table: &str, counter, scopes: Option<&str>| {
            (table.to_owned(), counter, scopes.map(str::to_owned))
        };
        assert_eq!(
            noted(&conn),
            [
                line("notes", 1, Some("[3, 7]")),
                line("notes", 3, Some("[9]")),
                line("notes", 5, None),
                line("offices", 1, None)
            ]
        );
        let counter: i64 =
            sql::scalar_i64(&conn, "SELECT counter FROM sync.changes WHERE table_name = 'notes'")
                .unwrap();
        assert_eq!(counter::count(counter), 5);
        let ids = "SELECT count(DISTINCT change) FROM sync.changed_scopes";
        assert_eq!(sql::scalar_i64(&conn, ids).unwrap(), 4);
    }

    #[test]
    fn of_a_flood_of_changes_the_last_ones_stay_noted() {
        let conn = fixture::store(None, 2026..=2026);
        conn.execute_batch(&format!(
            "INSERT INTO sync.changes VALUES ('notes', '', {MOST_NOTES} * {one}), ('costs', '', 7 * {one}); \
             INSERT INTO sync.changed_scopes SELECT 'notes', n * {one}, uuid(), [1] \
               FROM range(1, {MOST_NOTES}) r(n); \
             INSERT INTO sync.changed_scopes SELECT 'costs', n * {one}, uuid(), [1] FROM range(7, 8) r(n)",
            one = format_args!("{}::BIGINT", counter::of(1)),
        ))
        .unwrap();
        let changed = BTreeMap::from([("notes".to_owned(), Touched::Any)]);
        count_changed(&conn, &changed, true).unwrap();
        let left: Vec<(String, i64)> = noted(&conn).into_iter().map(|(of, n, _)| (of, n)).collect();
        let last = MOST_NOTES + 1;
        let notes = (last - NOTED_CHANGES + 1..MOST_NOTES).chain([last]);
        let expected =
            [("costs".to_owned(), 7)].into_iter().chain(notes.map(|n| ("notes".to_owned(), n)));
        assert_eq!(left, expected.collect::<Vec<_>>());
    }

    #[test]
    fn of_two_changes_at_once_both_are_noted_or_none() {
        let catalog = Catalog::load(None).unwrap();
        let notes = catalog.get("notes").unwrap();
        let of = |scopes: std::ops::Range<i64>| Touched::scopes(notes, scopes);
        assert_eq!(of(0..2).and(of(1..3)), of(0..3));
        assert_eq!(of(0..2).and(Touched::Any), Touched::Any);
        assert_eq!(of(0..600).and(of(600..1_200)), Touched::Any);
    }
}
