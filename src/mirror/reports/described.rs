//! What the reports are, for people: asked of a store without a row, so that nobody writes it twice.

use duckdb::{Config, Connection};

use super::{RELATIONS, create_all};
use crate::catalog::{Catalog, Described, Report};
use crate::config::HistoryTables;
use crate::error::Result;
use crate::mirror::schema;
use crate::mirror::state::fetched;
use crate::sql::{db, query};

/// The relations of schema `report`, then its macros, with types and comments, as a store of these tables has
/// them.
///
/// # Errors
/// Those of [`create_all`].
pub(crate) fn describe(catalog: &Catalog) -> Result<Vec<Report>> {
    let options = Config::default()
        .threads(1)
        .and_then(|c| c.enable_autoload_extension(false))
        .and_then(|c| c.with("autoinstall_known_extensions", "false"));
    let conn = options
        .and_then(Connection::open_in_memory_with_flags)
        .map_err(|e| db("cannot open a database in memory", e))?;
    make_empty(&conn, catalog)?;
    create_all(&conn, catalog.resources(), &HistoryTables::All)?;
    let mut reports = relations(&conn)?;
    reports.extend(macros(&conn)?);
    Ok(reports)
}

/// Makes the state and the tables that reports read, without comments.
pub(super) fn make_empty(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let failed = |e| db("cannot create tables", e);
    conn.execute_batch(include_str!("../sync.sql")).map_err(failed)?;
    conn.execute_batch(schema::CALENDAR_COMMENTS).map_err(failed)?;
    fetched::create(conn)?;
    fetched::create_view(conn)?;
    schema::create_report_state(conn)?;
    let tables = catalog.resources().iter().map(|resource| {
        let main = resource.create_table("main", false);
        format!("{main}; {}", resource.create_table("history", true))
    });
    conn.execute_batch(&tables.collect::<Vec<_>>().join(";\n")).map_err(failed)
}

fn relations(conn: &Connection) -> Result<Vec<Report>> {
    let comments: Vec<(String, Option<String>)> = query(
        conn,
        "SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'report' \
         UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'report'",
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let columns: Vec<(String, Described)> = query(
        conn,
        "SELECT table_name, column_name, replace(data_type, 'TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ'), \
           coalesce(comment, '') \
         FROM duckdb_columns() WHERE schema_name = 'report' ORDER BY table_name, column_index",
        |row| {
            let column = Described { name: row.get(1)?, kind: row.get(2)?, comment: row.get(3)? };
            Ok((row.get(0)?, column))
        },
    )?;
    let described = RELATIONS.into_iter().filter_map(|name| {
        // A report on a table that there is not is left out.
        let (_, comment) = comments.iter().find(|(of, _)| of == name)?;
        let own = columns.iter().filter(|(of, _)| of == name);
        Some(Report {
            name: name.to_owned(),
            comment: comment.clone().unwrap_or_default(),
            parameters: None,
            key: key_of(name).iter().map(|&column| column.to_owned()).collect(),
            columns: own.map(|(_, column)| column.clone()).collect(),
        })
    });
    Ok(described.collect())
}

fn macros(conn: &Connection) -> Result<Vec<Report>> {
    query(
        conn,
        "SELECT function_name, coalesce(comment, ''), array_to_string(parameters, ',') \
         FROM duckdb_functions() WHERE schema_name = 'report' ORDER BY function_name",
        |row| {
            let parameters: String = row.get(2)?;
            Ok(Report {
                name: row.get(0)?,
                comment: row.get(1)?,
                parameters: Some(parameters.split(',').map(str::to_owned).collect()),
                key: Vec::new(),
                columns: Vec::new(),
            })
        },
    )
}

/// The columns that no two rows of a relation have in common; one of several can be NULL.
fn key_of(relation: &str) -> &'static [&'static str] {
    match relation {
        "calendar" => &["day"],
        "closings" => &["journal", "journal_level", "journal_id", "journal_month", "closed_at"],
        "commission" => &["case_id", "employee_id"],
        "freshness" => &["table_name"],
        "journal_coverage" | "journal_statement" => {
            &["journal", "journal_level", "journal_id", "journal_month"]
        }
        "journal_reconciliation" => &["journal_level", "journal_id", "journal_month"],
        "revenue_by_month" => &["month", "journal_id"],
        "signed_cases" => &["month", "office_id", "office"],
        "signed_cases_lost" => &["month", "case_id"],
        "snapshot" => &["snapshot_id"],
        "total_cost" => &["case_id"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relation_and_macro_is_described_with_its_columns() {
        let reports = describe(&Catalog::load(None).unwrap()).unwrap();
        let (relations, macros): (Vec<&Report>, Vec<&Report>) =
            reports.iter().partition(|report| report.parameters.is_none());
        let names: Vec<&str> = relations.iter().map(|report| report.name.as_str()).collect();
        assert_eq!(names, RELATIONS);
        for report in relations {
            assert!(!report.comment.is_empty(), "{}", report.name);
            assert!(!report.columns.is_empty(), "{}", report.name);
            for key in &report.key {
                assert!(report.columns.iter().any(|c| c.name == *key), "{}.{key}", report.name);
            }
        }
        let calls: Vec<(&str, Vec<String>)> = macros
            .iter()
            .map(|report| (report.name.as_str(), report.parameters.clone().unwrap()))
            .collect();
        let of = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            calls,
            [
                ("journals_as_of", of(&["journal", "at_instant"])),
                ("signed_cases_as_of", of(&["at_instant"])),
                ("signed_cases_between", of(&["from_instant", "to_instant"])),
                ("total_cost_as_of", of(&["at_instant"])),
            ]
        );
        assert!(macros.iter().all(|report| !report.comment.is_empty()), "{macros:?}");
        let freshness = reports.iter().find(|report| report.name == "freshness").unwrap();
        let checked = freshness.columns.iter().find(|c| c.name == "last_checked").unwrap();
        assert_eq!(checked.kind, "TIMESTAMPTZ");
        assert!(checked.comment.contains("last read from the source"));
    }
}
