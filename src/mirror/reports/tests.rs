mod commission;
mod extremes;
mod freshness;
mod lost;
mod total_cost;

use duckdb::Connection;

use super::create_all;
use super::fixture::{no_extensions, oslo, store};
use crate::catalog::{Catalog, Resource};
use crate::config::HistoryTables;
use total_cost::regular;

type SignedRow = (Option<String>, Option<i64>, Option<String>, Option<i64>);

fn signed(conn: &Connection) -> Vec<SignedRow> {
    conn.prepare(
        "SELECT CAST(month AS VARCHAR), office_id, office, signed_cases FROM report.signed_cases \
         ORDER BY ALL NULLS LAST",
    )
    .unwrap()
    .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
    .unwrap()
    .map(Result::unwrap)
    .collect()
}

fn row(month: &str, office: i64, name: &str, signed: i64) -> SignedRow {
    (Some(month.to_owned()), Some(office), Some(name.to_owned()), Some(signed))
}

/// A case of office 1, `Sentrum`.
fn case(conn: &Connection, id: i64, assignment_type: Option<&str>, activated: Option<&str>) {
    conn.execute(
        "INSERT INTO main.cases (id, office_id, office, assignment_type, case_activated_date) \
         VALUES (?, 1, 'Sentrum', ?, ?)",
        duckdb::params![id, assignment_type, activated],
    )
    .unwrap();
}

fn reject(conn: &Connection, table: &str, scope: i64, key: &str, column: Option<&str>) {
    conn.execute(
        "INSERT INTO sync.rejects (table_name, scope, record_key, column_name) VALUES (?, ?, ?, ?)",
        duckdb::params![table, scope.to_string(), key, column],
    )
    .unwrap();
}

#[test]
fn a_month_begins_and_ends_at_local_midnight_across_both_clock_changes() {
    let conn = store(None, 2026..=2026);
    let locals = [
        "2026-03-01T00:00:00", // winter time
        "2026-03-29T01:59:59.999999",
        "2026-03-29T03:00:00",
        "2026-03-31T23:59:59.999999", // summer time
        "2026-04-01T00:00:00",
        "2026-10-01T00:00:00", // summer time
        "2026-10-25T02:30:00",
        "2026-10-31T23:59:59.999999", // winter time
        "2026-11-01T00:00:00",
    ];
    for (id, local) in (1..).zip(locals) {
        case(&conn, id, Some("Sale"), Some(&oslo(local)));
    }
    assert_eq!(
        signed(&conn),
        [
            row("2026-03-01", 1, "Sentrum", 4),
            row("2026-04-01", 1, "Sentrum", 1),
            row("2026-10-01", 1, "Sentrum", 3),
            row("2026-11-01", 1, "Sentrum", 1),
        ]
    );
}

#[test]
fn valuations_are_not_signed_and_a_case_without_type_is() {
    let conn = store(None, 2026..=2026);
    case(&conn, 1, Some("Valuation"), Some(&oslo("2026-05-05T12:00:00")));
    case(&conn, 2, None, Some(&oslo("2026-05-05T12:00:00")));
    case(&conn, 3, Some("Sale"), None);
    assert_eq!(signed(&conn), [row("2026-05-01", 1, "Sentrum", 1)]);
}

#[test]
fn a_rejected_date_stands_under_no_month_until_it_is_resolved() {
    let conn = store(None, 2026..=2026);
    case(&conn, 1, Some("Sale"), None);
    case(&conn, 2, Some("Valuation"), None);
    reject(&conn, "cases", 1, "1", Some("case_activated_date"));
    reject(&conn, "cases", 2, "2", Some("case_activated_date"));
    assert_eq!(signed(&conn), [(None, Some(1), Some("Sentrum".into()), Some(1))]);
    conn.execute_batch("UPDATE sync.rejects SET resolved_at = '2026-01-01T00:00:00Z'").unwrap();
    assert_eq!(signed(&conn), []);
}

#[test]
fn a_rejected_assignment_type_leaves_the_number_open() {
    let conn = store(None, 2026..=2026);
    case(&conn, 1, Some("Sale"), Some(&oslo("2026-05-05T12:00:00")));
    case(&conn, 2, None, Some(&oslo("2026-05-05T12:00:00")));
    let open = [(Some("2026-05-01".into()), Some(1), Some("Sentrum".into()), None)];
    reject(&conn, "cases", 2, "2", Some("assignment_type"));
    assert_eq!(signed(&conn), open);
    // Of so many that they are not told one by one.
    conn.execute_batch("UPDATE sync.rejects SET record_key = '#'").unwrap();
    assert_eq!(signed(&conn), open);
}

#[test]
fn a_rejected_office_leaves_open_the_numbers_of_all_offices_of_the_month() {
    let conn = store(None, 2026..=2026);
    case(&conn, 1, Some("Sale"), Some(&oslo("2026-05-05T12:00:00")));
    case(&conn, 2, Some("Sale"), Some(&oslo("2026-05-06T12:00:00")));
    case(&conn, 3, Some("Sale"), Some(&oslo("2026-06-05T12:00:00")));
    conn.execute_batch("UPDATE main.cases SET office_id = NULL, office = NULL WHERE id = 2")
        .unwrap();
    reject(&conn, "cases", 2, "2", Some("office_id"));
    let may = |office: Option<i64>, name: Option<&str>| {
        (Some("2026-05-01".to_owned()), office, name.map(str::to_owned), None)
    };
    let open = [may(Some(1), Some("Sentrum")), may(None, None), row("2026-06-01", 1, "Sentrum", 1)];
    assert_eq!(signed(&conn), open);
    let between = |from: &str, to: &str| -> Vec<Option<i64>> {
        let sql = "SELECT signed_cases FROM report.signed_cases_between(?, ?)";
        let days = [oslo(from), oslo(to)];
        let mut found = conn.prepare(sql).unwrap();
        found.query_map(days, |r| r.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(between("2026-05-01T00:00:00", "2026-06-30T00:00:00"), [None, None]);
    assert_eq!(between("2026-06-01T00:00:00", "2026-06-30T00:00:00"), [Some(1)]);
    // A valuation is nobody's.
    conn.execute_batch("UPDATE main.cases SET assignment_type = 'Valuation' WHERE id = 2").unwrap();
    assert_eq!(
        signed(&conn),
        [row("2026-05-01", 1, "Sentrum", 1), row("2026-06-01", 1, "Sentrum", 1)]
    );
}

#[test]
fn an_office_is_one_row_whatever_its_cases_call_it() {
    let conn = store(None, 2026..=2026);
    for (id, office, name) in [(1, 1, "Old"), (2, 1, "New"), (3, 2, "Cases say"), (4, 2, "so")] {
        conn.execute(
            "INSERT INTO main.cases (id, office_id, office, case_activated_date) VALUES (?, ?, ?, ?)",
            duckdb::params![id, office, name, oslo("2026-05-05T12:00:00")],
        )
        .unwrap();
    }
    conn.execute_batch("INSERT INTO main.offices (id, name) VALUES (2, 'Offices say')").unwrap();
    assert_eq!(
        signed(&conn),
        [row("2026-05-01", 1, "New", 2), row("2026-05-01", 2, "Offices say", 2)]
    );
}

#[test]
fn between_two_instants_includes_both() {
    let conn = store(None, 2026..=2026);
    for (id, at) in (1..).zip([
        "2026-05-05T10:00:00Z",
        "2026-05-05T10:00:00.000001Z",
        "2026-05-05T11:00:00Z",
        "2026-05-05T11:00:00.000001Z",
    ]) {
        case(&conn, id, Some("Sale"), Some(at));
    }
    let count = || -> Option<i64> {
        conn.query_row(
            "SELECT signed_cases FROM report.signed_cases_between(\
             TIMESTAMPTZ '2026-05-05 10:00:00.000001+00', TIMESTAMPTZ '2026-05-05 11:00:00+00')",
            [],
            |r| r.get(0),
        )
        .unwrap()
    };
    assert_eq!(count(), Some(2));
    case(&conn, 9, Some("Sale"), None);
    reject(&conn, "cases", 9, "9", Some("case_activated_date"));
    assert_eq!(count(), None, "the rejected date may lie between them");
}
fn fetched(conn: &Connection, id: i64, tables: &[&str]) {
    for table in tables {
        conn.execute(
            "INSERT INTO sync.fetched_scopes (table_name, id, part, complete) VALUES (?, ?, '', true)",
            duckdb::params![table, id],
        )
        .unwrap();
    }
}

#[test]
fn what_restatements_have_beside_what_is_promised_comes_last() {
    let conn = store(None, 2026..=2026);
    let columns = "SELECT string_agg(column_name, ' ' ORDER BY column_index) FROM duckdb_columns() \
                   WHERE schema_name = 'report' AND table_name = 'journal_restatements'";
    let columns: String = conn.query_row(columns, [], |row| row.get(0)).unwrap();
    assert_eq!(
        columns,
        "journal journal_level journal_id journal_month line_key change column_name before after changed_at line_id"
    );
}

#[test]
fn every_relation_answers_where_the_file_is_opened_and_where_it_is_attached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.duckdb");
    let conn = store(Some(&path), 2026..=2026);
    regular(&conn);
    conn.close().map_err(|(_, e)| e).unwrap();

    let opened = Connection::open_with_flags(&path, no_extensions()).unwrap();
    let relations = super::relations(&opened).unwrap();
    for name in &relations {
        opened.execute_batch(&format!("SELECT * FROM report.{name}")).unwrap();
    }
    opened.close().map_err(|(_, e)| e).unwrap();

    let other = Connection::open_in_memory_with_flags(no_extensions()).unwrap();
    other
        .execute_batch(&format!(
            "ATTACH {} AS \"another name\" (READ_ONLY)",
            crate::sql::text(path.to_str().unwrap())
        ))
        .unwrap();
    for name in &relations {
        other.execute_batch(&format!("SELECT * FROM \"another name\".report.{name}")).unwrap();
    }
}

#[test]
fn a_copy_of_a_file_without_a_column_that_a_report_reads_is_refused_by_name() {
    let conn = store(None, 2026..=2026);
    let catalog = Catalog::load(None).unwrap();
    let without = |dropped: [&str; 2]| -> Vec<Resource> {
        let mut resources: Vec<Resource> =
            catalog.resources().iter().map(|resource| Resource::clone(resource)).collect();
        let costs = resources.iter_mut().find(|resource| resource.table == "costs").unwrap();
        costs.columns.retain(|column| !dropped.contains(&column.name.as_str()));
        resources
    };
    create_all(&conn, &without(["comment", "vat"]), &HistoryTables::All).unwrap();
    let said = create_all(&conn, &without(["amount", "selected"]), &HistoryTables::All)
        .unwrap_err()
        .to_string();
    for column in ["amount", "selected"] {
        let fault =
            format!("costs.toml: column \"{column}\" is missing: report.total_cost reads it");
        assert!(said.contains(&fault), "{said}");
    }
}
