//! Rows of one scope lie together, and row groups know the smallest and largest scope that they hold: so
//! that a changed case is compared with a few thousand rows, not with a whole table. Rows that are
//! replaced go to the table's end, and after months every row group there holds cases of all ages. Tables
//! of which that is true are put in order again, slice by slice, so that nothing waits for it long.
//!
//! The rows stay what they are: neither history nor the change counters are told.

use duckdb::Connection;

use super::state::{State, batch};
use crate::catalog::{Catalog, Group, Resource};
use crate::error::Result;
use crate::sql::{self, query, scalar_i64};

/// Rows in a row group of the store, as DuckDB makes them.
const ROW_GROUP_ROWS: i64 = 122_880;
/// It pays where a case has to be looked for among more rows than this. Less is read in a millisecond.
const WORTH_ROWS: i64 = 4 * ROW_GROUP_ROWS;
/// Rows that are moved in one transaction.
const SLICE_ROWS: i64 = 50_000;
/// Of how many scopes it is asked among how many rows they have to be looked for.
const SAMPLED: i64 = 200;

/// A table whose rows are looked for by a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clustered {
    /// For people.
    pub(crate) name: String,
    /// Quoted.
    table: String,
    column: String,
}

/// The tables where putting the rows in order pays.
///
/// # Errors
/// Those of the store.
pub(crate) fn scattered(conn: &Connection, catalog: &Catalog) -> Result<Vec<Clustered>> {
    scattered_beyond(conn, catalog, WORTH_ROWS)
}

fn scattered_beyond(conn: &Connection, catalog: &Catalog, worth: i64) -> Result<Vec<Clustered>> {
    let large: Vec<(String, String)> = query(
        conn,
        &format!(
            "SELECT schema_name, table_name FROM duckdb_tables() \
             WHERE database_name = current_database() AND schema_name IN ('main', 'sync') \
               AND estimated_size > {worth} ORDER BY 1, 2"
        ),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut found = Vec::new();
    for (schema, name) in large {
        let column = match schema.as_str() {
            "main" => looked_for_by(catalog, &name),
            _ => STATE.iter().find(|(table, _)| *table == name).map(|(_, column)| *column),
        };
        let Some(column) = column else { continue };
        let table = Clustered {
            table: format!("{}.{}", sql::ident(&schema), sql::ident(&name)),
            name: format!("{schema}.{name}"),
            column: sql::ident(column),
        };
        if looked_through(conn, &table)? > worth {
            found.push(table);
        }
    }
    Ok(found)
}

/// The state of each case.
const STATE: [(&str, &str); 2] = [("seen", "case_id"), ("fetched_cases", "case_id")];

/// The column by which commits look for rows. Months of journals are replaced whole, and lie together.
fn looked_for_by<'c>(catalog: &'c Catalog, table: &str) -> Option<&'c str> {
    let is_journal = |r: &Resource| matches!(r.group, Group::Journal(_)) || r.has_line_ids();
    let resource = catalog.get(table).filter(|r| !is_journal(r))?;
    resource.scope_column()
}

/// Among how many rows a scope has to be looked for, on average: those of the row groups whose smallest and
/// largest scope it lies between.
fn looked_through(conn: &Connection, table: &Clustered) -> Result<i64> {
    let Clustered { table, column, .. } = table;
    let unquoted = column.trim_matches('"').to_owned();
    scalar_i64(
        conn,
        &format!(
            "WITH parts AS MATERIALIZED (SELECT count AS held, \
                 TRY_CAST(regexp_extract(stats, 'Min: (-?\\d+)', 1) AS BIGINT) AS least, \
                 TRY_CAST(regexp_extract(stats, 'Max: (-?\\d+)', 1) AS BIGINT) AS most \
               FROM pragma_storage_info({name}) \
               WHERE column_name = {named} AND segment_type = 'BIGINT'), \
             sampled AS (SELECT {column} AS id FROM {table} \
               WHERE {column} IS NOT NULL USING SAMPLE {SAMPLED} ROWS) \
             SELECT coalesce(sum(held) // (SELECT greatest(count(*), 1) FROM sampled), 0)::BIGINT \
             FROM sampled JOIN parts ON id BETWEEN least AND most",
            name = sql::text(table),
            named = sql::text(&unquoted),
        ),
    )
}

impl Clustered {
    /// Moves the rows of the next scopes behind `after` to the table's end, in order. Returns where to go
    /// on; `None` at the end.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn gather(&self, conn: &Connection, after: Option<i64>) -> Result<Option<i64>> {
        self.gather_rows(conn, after, SLICE_ROWS)
    }

    fn gather_rows(&self, conn: &Connection, after: Option<i64>, rows: i64) -> Result<Option<i64>> {
        let Clustered { table, column, .. } = self;
        let behind = after
            .map_or_else(|| format!("{column} IS NOT NULL"), |after| format!("{column} > {after}"));
        let last: Vec<Option<i64>> = query(
            conn,
            &format!(
                "SELECT max(id) FROM (SELECT {column} AS id FROM {table} WHERE {behind} \
                 ORDER BY id LIMIT {rows})"
            ),
            |row| row.get(0),
        )?;
        let Some(last) = last.into_iter().flatten().next() else { return Ok(None) };
        let slice = format!("{behind} AND {column} <= {last}");
        batch(
            conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE gathered AS SELECT * FROM {table} WHERE {slice}; \
                 DELETE FROM {table} WHERE {slice}; \
                 INSERT INTO {table} SELECT * FROM temp.gathered ORDER BY {column}; \
                 DROP TABLE temp.gathered"
            ),
        )?;
        Ok(Some(last))
    }
}

impl State<'_> {
    /// As [`scattered`].
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn scattered(&self, catalog: &Catalog) -> Result<Vec<Clustered>> {
        scattered(self.conn, catalog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    const NOTES: i64 = 3 * ROW_GROUP_ROWS;

    /// The rows of all notes as one number, in whatever order.
    fn contents(conn: &Connection) -> (i64, String) {
        let sql = "SELECT count(*), sum(hash(notes))::VARCHAR FROM main.notes";
        conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    fn notes(conn: &Connection, catalog: &Catalog) -> Option<Clustered> {
        scattered_beyond(conn, catalog, 2 * ROW_GROUP_ROWS).unwrap().pop()
    }

    #[test]
    fn rows_that_lie_where_chance_put_them_are_put_in_order_and_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let conn = fixture::store(Some(&dir.path().join("store.duckdb")), 2026..=2026);
        let catalog = Catalog::load(None).unwrap();
        conn.execute_batch(&format!(
            "SET threads = 1; DELETE FROM main.notes; \
             INSERT INTO main.notes BY NAME SELECT n // 3 AS case_id, n AS id FROM range({NOTES}) t(n); \
             CHECKPOINT"
        ))
        .unwrap();
        assert_eq!(notes(&conn, &catalog), None, "they lie as they came");

        conn.execute_batch(
            "CREATE TEMP TABLE mixed AS FROM main.notes; DELETE FROM main.notes; \
             INSERT INTO main.notes SELECT * FROM mixed ORDER BY hash(case_id); CHECKPOINT",
        )
        .unwrap();
        let before = contents(&conn);
        let scattered = notes(&conn, &catalog).expect("every row group holds cases of all ages");
        assert_eq!(scattered.name, "main.notes");

        let (mut after, mut slices) = (None, 0);
        while let Some(next) =
            sql::transaction(&conn, || scattered.gather_rows(&conn, after, 100_000)).unwrap()
        {
            assert_eq!(contents(&conn), before, "at any time");
            (after, slices) = (Some(next), slices + 1);
        }
        assert_eq!(slices, NOTES / 100_000 + 1);
        conn.execute_batch("CHECKPOINT").unwrap();
        assert_eq!(contents(&conn), before);
        assert_eq!(notes(&conn, &catalog), None);
    }

    #[test]
    fn small_tables_and_journals_are_left_as_they_are() {
        let conn = fixture::store(None, 2026..=2026);
        let catalog = Catalog::load(None).unwrap();
        assert_eq!(scattered(&conn, &catalog).unwrap(), []);
        assert_eq!(looked_for_by(&catalog, "notes"), Some("case_id"));
        assert_eq!(looked_for_by(&catalog, "contacts"), Some("id"));
        assert_eq!(looked_for_by(&catalog, "revenue_journals"), None);
        assert_eq!(looked_for_by(&catalog, "offices"), None, "it is one scope");
    }
}
