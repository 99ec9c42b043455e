//! `report.commission`, by hand.

use std::sync::Arc;

use duckdb::Connection;

use super::super::create_all;
use super::super::fixture::store;
use super::{fetched, reject};
use crate::catalog::{Catalog, Resource};
use crate::config::HistoryTables;

/// A store in which case 1 has a commission of 100,000.00 that nobody shares yet.
fn sold() -> Connection {
    let conn = store(None, 2026..=2026);
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS main.estimated_costs
            (case_id BIGINT, commission_amount DECIMAL(18,2));
         CREATE TABLE IF NOT EXISTS main.commission_sharing
            (case_id BIGINT, type VARCHAR, id BIGINT, employee_id BIGINT,
             percentage DECIMAL(18,6), extra_payment DECIMAL(18,2));
         DELETE FROM sync.resources WHERE table_name IN ('estimated_costs', 'commission_sharing');
         INSERT INTO sync.resources (table_name, status)
            VALUES ('estimated_costs', 'ok'), ('commission_sharing', 'ok');
         INSERT INTO main.estimated_costs (case_id, commission_amount) VALUES (1, 100000.00)",
    )
    .unwrap();
    create_all(&conn, Catalog::load(None).unwrap().resources(), &HistoryTables::All).unwrap();
    fetched(&conn, 1, &["estimated_costs", "commission_sharing"]);
    conn
}

/// A part of case 1: `type`, id, employee, percentage, extra payment.
fn part(conn: &Connection, kind: &str, id: i64, employee: i64, percentage: &str, extra: &str) {
    conn.execute_batch(&format!(
        "INSERT INTO main.commission_sharing
            (case_id, type, id, employee_id, percentage, extra_payment)
         VALUES (1, '{kind}', {id}, {employee}, {percentage}, {extra})"
    ))
    .unwrap();
}

/// 40 percent and 500.00 to employee 7, 60 percent to 8, 250.00 to 9.
fn shared() -> Connection {
    let conn = sold();
    part(&conn, "Percent", 1, 7, "40", "NULL");
    part(&conn, "Percent", 2, 8, "60", "NULL");
    part(&conn, "Amount", 1, 7, "NULL", "500.00");
    part(&conn, "Amount", 2, 9, "NULL", "250.00");
    conn
}

/// Per employee: amount, percentage, share, extra, commission.
fn report(conn: &Connection) -> Vec<String> {
    conn.prepare(
        "SELECT employee_id || ': ' || concat_ws(' ', \
           coalesce(commission_amount::VARCHAR, '-'), coalesce(percentage::VARCHAR, '-'), \
           coalesce(percent_share::VARCHAR, '-'), coalesce(extra_payment::VARCHAR, '-'), \
           coalesce(commission::VARCHAR, '-')) \
         FROM report.commission ORDER BY employee_id",
    )
    .unwrap()
    .query_map([], |row| row.get(0))
    .unwrap()
    .map(Result::unwrap)
    .collect()
}

/// The last column alone.
fn commissions(conn: &Connection) -> Vec<String> {
    report(conn).iter().map(|row| row.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn percentages_are_of_the_commission_and_extra_payments_come_on_top() {
    assert_eq!(
        report(&shared()),
        [
            "7: 100000.00 40.000000 40000.00 500.00 40500.00",
            "8: 100000.00 60.000000 60000.00 0.00 60000.00",
            "9: 100000.00 0.000000 0.00 250.00 250.00",
        ]
    );
}

#[test]
fn several_parts_of_an_employee_add_up_and_an_extra_payment_of_a_percent_part_counts() {
    let conn = sold();
    part(&conn, "Percent", 1, 7, "30", "10.00");
    part(&conn, "Percent", 2, 7, "12.5", "NULL");
    part(&conn, "Amount", 1, 7, "99", "0.50"); // the percentage of an amount counts for nothing
    assert_eq!(report(&conn), ["7: 100000.00 42.500000 42500.00 10.50 42510.50"]);
}

#[test]
fn money_is_rounded_half_away_from_zero_once_at_the_end() {
    for (amount, percentage, extra, expected) in [
        ("0.25", "50", "0", "0.13"),   // 0.125
        ("0.25", "50", "-1", "-0.88"), // -0.875; from the rounded share -0.87
        ("-0.25", "50", "0", "-0.13"),
        ("100.00", "33.333333", "0", "33.33"),
        ("0.01", "49.999999", "0", "0.00"),
        ("9999999999999999.99", "100", "0.01", "10000000000000000.00"), // no double has so many
    ] {
        let conn = sold();
        conn.execute_batch(&format!(
            "UPDATE main.estimated_costs SET commission_amount = {amount}"
        ))
        .unwrap();
        part(&conn, "Percent", 1, 7, percentage, extra);
        assert_eq!(commissions(&conn), [expected], "{amount} {percentage} {extra}");
    }
}

#[test]
fn percentages_that_are_fractions_leave_the_case_open() {
    for (percentages, expected) in [
        (["0.4", "0.6"], ["-", "-", "-"]),
        (["0.75", "0.75"], ["-", "-", "-"]),
        (["0", "NULL"], ["-", "-", "-"]),
        (["0.75", "0.750001"], ["750.00", "750.00", "250.00"]),
        (["1", "40"], ["1000.00", "40000.00", "250.00"]),
        // No percentages at all: nothing can be a fraction.
        (["NULL", "NULL"], ["0.00", "0.00", "250.00"]),
    ] {
        let conn = sold();
        part(&conn, "Percent", 1, 7, percentages[0], "NULL");
        part(&conn, "Percent", 2, 8, percentages[1], "NULL");
        part(&conn, "Amount", 1, 9, "NULL", "250.00");
        assert_eq!(commissions(&conn), expected, "{percentages:?}");
    }
}

#[test]
fn without_a_commission_only_extra_payments_are_due() {
    for change in [
        "UPDATE main.estimated_costs SET commission_amount = NULL",
        "DELETE FROM main.estimated_costs",
        "DELETE FROM sync.fetched_scopes WHERE table_name = 'estimated_costs'",
        "UPDATE sync.resources SET status = 'forbidden' WHERE table_name = 'estimated_costs'",
        "INSERT INTO sync.failures (table_name, id, part) VALUES ('estimated_costs', 1, '')",
        "INSERT INTO sync.rejects (table_name, scope, record_key, column_name)
            VALUES ('estimated_costs', '1', '1', 'commission_amount')",
        "INSERT INTO sync.rejects (table_name, scope, record_key) VALUES ('estimated_costs', '1', '1/#1')",
    ] {
        let conn = shared();
        conn.execute_batch(change).unwrap();
        assert_eq!(
            report(&conn),
            [
                "7: - 40.000000 - 500.00 -",
                "8: - 60.000000 - 0.00 -",
                "9: - 0.000000 0.00 250.00 250.00",
            ],
            "{change}"
        );
    }
}

#[test]
fn what_fails_for_another_case_or_was_not_asked_leaves_the_commission_as_it_is() {
    let conn = shared();
    conn.execute_batch(
        "UPDATE sync.resources SET status = 'failing';
         INSERT INTO sync.failures (table_name, id, part, kind)
            VALUES ('estimated_costs', 2, '', 'Status'), ('commission_sharing', 2, '', 'Status');
         -- A call that was not made has not failed.
         INSERT INTO sync.failures (table_name, id, part, kind)
            VALUES ('estimated_costs', 1, '', 'NotAsked'), ('commission_sharing', 1, '', 'NotAsked')",
    )
    .unwrap();
    assert_eq!(commissions(&conn), ["40500.00", "60000.00", "250.00"]);
}

#[test]
fn sharing_that_is_not_known_leaves_everything_open() {
    for change in [
        "DELETE FROM sync.fetched_scopes WHERE table_name = 'commission_sharing'",
        "UPDATE sync.fetched_scopes SET complete = false WHERE table_name = 'commission_sharing'",
        "UPDATE sync.resources SET status = 'disabled' WHERE table_name = 'commission_sharing'",
        "INSERT INTO sync.failures (table_name, id, part) VALUES ('commission_sharing', 1, '')",
        // Whose part it is, is not known.
        "INSERT INTO sync.rejects (table_name, scope, record_key, column_name)
            VALUES ('commission_sharing', '1', '1/Percent/3', 'employee_id')",
        "INSERT INTO sync.rejects (table_name, scope, record_key, column_name)
            VALUES ('commission_sharing', '1', '#', 'percentage')",
        "INSERT INTO sync.rejects (table_name, scope, record_key)
            VALUES ('commission_sharing', '1', '1/Percent/#3')",
    ] {
        let conn = shared();
        conn.execute_batch(change).unwrap();
        assert_eq!(
            report(&conn),
            ["7: 100000.00 - - - -", "8: 100000.00 - - - -", "9: 100000.00 - - - -"],
            "{change}"
        );
    }
}

#[test]
fn a_rejected_value_leaves_open_only_what_needs_it() {
    let all = ["40500.00", "60000.00", "250.00"];
    for (table, key, column, expected) in [
        ("commission_sharing", "1/Percent/1", Some("percentage"), ["-", "60000.00", "250.00"]),
        ("commission_sharing", "1/Amount/1", Some("percentage"), all),
        ("commission_sharing", "1/Amount/1", Some("extra_payment"), ["-", "60000.00", "250.00"]),
        ("commission_sharing", "1/Amount/2", Some("extra_payment"), ["40500.00", "60000.00", "-"]),
        ("commission_sharing", "1/Percent/1", Some("case_base_id"), all),
        ("estimated_costs", "1", Some("showings_amount"), all),
        ("cases", "1", Some("commission_amount"), all),
        // Another record with its key was taken.
        ("commission_sharing", "1/Percent/1", None, all),
        ("estimated_costs", "1", None, all),
    ] {
        let conn = shared();
        reject(&conn, table, 1, key, column);
        assert_eq!(commissions(&conn), expected, "{table} {key} {column:?}");
        conn.execute_batch("UPDATE sync.rejects SET resolved_at = '2026-01-01T00:00:00Z'").unwrap();
        assert_eq!(commissions(&conn), all, "resolved: {table} {key} {column:?}");
    }
    // What the others add up to does not tell whether these are fractions.
    let conn = shared();
    conn.execute_batch("UPDATE main.commission_sharing SET percentage = NULL WHERE id = 2")
        .unwrap();
    conn.execute_batch("UPDATE main.commission_sharing SET percentage = 1 WHERE id = 1").unwrap();
    reject(&conn, "commission_sharing", 1, "1/Percent/2", Some("percentage"));
    assert_eq!(commissions(&conn), ["-", "-", "-"]);
}

#[test]
fn a_disabled_table_leaves_its_reports_answering_and_a_missing_one_leaves_them_out() {
    let conn = shared();
    conn.execute_batch("UPDATE sync.resources SET status = 'disabled'").unwrap();
    for name in super::super::relations(&conn).unwrap() {
        conn.execute_batch(&format!("SELECT * FROM report.{name}")).unwrap();
    }
    conn.execute_batch("DROP TABLE main.commission_sharing").unwrap();
    let catalog = Catalog::load(None).unwrap();
    let left: Vec<Arc<Resource>> = catalog
        .resources()
        .iter()
        .filter(|resource| resource.table != "commission_sharing")
        .cloned()
        .collect();
    create_all(&conn, &left, &HistoryTables::All).unwrap();
    let relations = super::super::relations(&conn).unwrap();
    assert!(!relations.contains(&"commission") && relations.contains(&"total_cost"));
}
