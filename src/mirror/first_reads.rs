//! When scopes were read completely for the first time (`sync.first_reads`): before that a report as of an instant
//! must not take them for empty (`reports/as_of.rs`).
//!
//! It is noted of the tables alone whose scopes such a report looks at. One that left (`sync.left_scopes`) and came
//! back is read for the first time once more.

use duckdb::Connection;

use super::state::fetched::rows_of;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::sql::{self, db};

/// The tables of which it is noted: those that `report.total_cost` asks whether they were read.
pub(super) const NOTED: [&str; 6] = [
    "costs",
    "document_costs",
    "common_conditions",
    "case_conditions",
    "property_conditions",
    "resale_information",
];

/// Notes of the scopes in `temp.stage_fetched`, before they are written, which are read completely for the first time.
/// `now` is the commit's instant (SQL).
///
/// # Errors
/// `Store`.
pub(super) fn note(conn: &Connection, now: &str) -> Result<()> {
    conn.execute_batch(&format!(
        "INSERT INTO sync.first_reads BY NAME \
           SELECT n.table_name, {now} AS read_at, list(n.id ORDER BY n.id) AS ids \
           FROM temp.stage_fetched n \
           WHERE n.table_name IN ({}) AND n.part = '' AND n.complete \
             AND NOT EXISTS (SELECT 1 FROM ({}) f WHERE f.table_name = n.table_name \
               AND f.id = n.id AND f.part = '' AND f.complete) \
           GROUP BY n.table_name",
        sql::texts(NOTED),
        rows_of("SELECT id FROM temp.stage_fetched")
    ))
    .map_err(|e| db("cannot note what was read for the first time", e))
}

/// For a store in which it was not noted: a scope was read by the time its first row was written, or it was last
/// read, or left. It may have been read earlier and found empty; that is not known.
///
/// # Errors
/// `Store`.
pub(super) fn reconstruct(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let mut seen = vec![format!(
        "SELECT table_name, id, fetched_at AS read_at, true AS is_read FROM sync.fetched \
           WHERE part = '' AND complete AND table_name IN ({tables}) \
         UNION ALL SELECT table_name, id, left_at, true FROM sync.left_scopes \
           WHERE table_name IN ({tables})",
        tables = sql::texts(NOTED)
    )];
    for resource in NOTED.iter().filter_map(|table| catalog.get(table)) {
        let Some(scope) = resource.scope_column() else { continue };
        for (schema, written) in [("main", "_synced_at"), ("history", "_valid_from")] {
            seen.push(format!(
                "SELECT {}, {}, min({written}), false FROM {schema}.{} GROUP BY ALL",
                sql::text(&resource.table),
                sql::ident(scope),
                sql::ident(&resource.table)
            ));
        }
    }
    conn.execute_batch(&format!(
        "INSERT INTO sync.first_reads BY NAME \
           SELECT table_name, read_at, list(id ORDER BY id) AS ids FROM \
             (SELECT table_name, id, min(read_at) AS read_at FROM ({}) \
              GROUP BY ALL HAVING bool_or(is_read)) \
           GROUP BY ALL ORDER BY read_at, table_name",
        seen.join(" UNION ALL ")
    ))
    .map_err(|e| db("cannot reconstruct what was read for the first time", e))
}
