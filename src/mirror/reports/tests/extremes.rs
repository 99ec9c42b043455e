//! No value that fits its column keeps a report from answering: one that did would keep everything from being published.

use duckdb::Connection;
use rstest::rstest;

use super::super::fixture::{oslo, store};
use super::super::relations;
use super::fetched;
use super::total_cost::{REGULAR, RESALE};
use crate::sql;

/// Two rows in every table of the mirror, about case 1, a regular sale, and case 2, a resale: amounts are as large as fit,
/// with this sign, and dates are this one.
fn fill(conn: &Connection, sign: &str, at: &str) {
    let columns: Vec<(String, String, String)> = sql::query(
        conn,
        "SELECT table_name, column_name, data_type FROM duckdb_columns() \
         WHERE schema_name = 'main' AND NOT internal ORDER BY table_name, column_index",
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )
    .unwrap();
    let value = |column: &str, kind: &str| -> String {
        match (kind, column) {
            ("BIGINT" | "INTEGER", _) => "n".to_owned(),
            ("BOOLEAN", "deleted") => "false".to_owned(),
            ("BOOLEAN", _) => "true".to_owned(),
            ("DATE" | "TIMESTAMP" | "TIMESTAMP WITH TIME ZONE", _) => {
                format!("CAST({} AS {kind})", sql::text(at))
            }
            ("VARCHAR", "assignment_type") => {
                "CASE n WHEN 1 THEN 'Sale' ELSE 'ResaleOfContractPositionProff' END".to_owned()
            }
            ("VARCHAR", "cost_type") => "'Buyer'".to_owned(),
            ("VARCHAR", "type") => "'Percent'".to_owned(),
            ("VARCHAR", "journal_level") => "'offices'".to_owned(),
            ("VARCHAR", _) => "'x'".to_owned(),
            (kind, _) => match kind.strip_prefix("DECIMAL(").and_then(|k| k.strip_suffix(')')) {
                Some(of) => {
                    let (digits, scale) = of.split_once(',').unwrap();
                    let scale: usize = scale.parse().unwrap();
                    let whole = digits.parse::<usize>().unwrap() - scale;
                    format!("{sign}{}.{}", "9".repeat(whole), "9".repeat(scale))
                }
                None => "NULL".to_owned(),
            },
        }
    };
    for table in columns.chunk_by(|a, b| a.0 == b.0) {
        let values: Vec<String> =
            table.iter().map(|(_, column, kind)| value(column, kind)).collect();
        conn.execute_batch(&format!(
            "INSERT INTO main.{} SELECT {} FROM range(1, 3) AS r(n)",
            sql::ident(&table[0].0),
            values.join(", ")
        ))
        .unwrap();
    }
}

#[rstest]
fn no_value_that_fits_keeps_a_report_from_answering(
    #[values("", "-")] sign: &str,
    #[values("0001-01-01T00:00:00", "2026-05-05T12:00:00", "9998-12-31T12:00:00")] at: &str,
) {
    let conn = store(None, 2026..=2026);
    fill(&conn, sign, &oslo(at));
    for id in [1, 2] {
        let read = [&REGULAR[..], &RESALE[..], &["estimated_costs", "commission_sharing"]].concat();
        let tables: std::collections::BTreeSet<&str> = read.into_iter().collect();
        fetched(&conn, id, &Vec::from_iter(tables));
    }
    for name in relations(&conn).unwrap() {
        conn.execute_batch(&format!("SELECT * FROM report.{name}"))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let known = "SELECT count(*) FROM report.total_cost WHERE total_cost IS NOT NULL";
    assert_eq!(sql::scalar_i64(&conn, known).unwrap(), 2);
    let known = "SELECT count(*) FROM report.commission WHERE commission IS NOT NULL";
    assert_eq!(sql::scalar_i64(&conn, known).unwrap(), if sign.is_empty() { 2 } else { 0 });
}
