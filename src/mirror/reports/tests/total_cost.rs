//! `report.total_cost`, by hand.

use duckdb::Connection;

use super::super::fixture::store;
use super::{case, fetched, reject};

/// What one row of `report.total_cost` says, as text: kind, both totals, missing, unknown.
fn total(conn: &Connection, id: i64) -> String {
    conn.query_row(
        "SELECT concat_ws(' ', coalesce(kind, '-'), coalesce(total_cost::VARCHAR, '-'), \
         coalesce(total_cost_once::VARCHAR, '-'), missing::VARCHAR, unknown::VARCHAR) \
         FROM report.total_cost WHERE case_id = ?",
        [id],
        |r| r.get(0),
    )
    .unwrap()
}

pub(super) const REGULAR: [&str; 5] =
    ["costs", "document_costs", "common_conditions", "case_conditions", "property_conditions"];
pub(super) const RESALE: [&str; 2] = ["common_conditions", "resale_information"];

/// A regular sale, case 1: 1000.10 asked, 200.20 debt, 30.30 document, 4.40 of buyer's costs.
pub(super) fn regular(conn: &Connection) {
    case(conn, 1, Some("Sale"), None);
    fetched(conn, 1, &REGULAR);
    conn.execute_batch(
        "INSERT INTO main.case_conditions (case_id, asking_price) VALUES (1, 1000.10);
         INSERT INTO main.common_conditions (case_id, debt) VALUES (1, 200.20);
         INSERT INTO main.document_costs (case_id, amount) VALUES (1, 30.30);
         INSERT INTO main.costs (case_id, cost_type, id, amount, selected, deleted) VALUES
            (1, 'Buyer', 1, 4.00, true, false),
            (1, 'Buyer', 2, 0.40, true, NULL),
            (1, 'Buyer', 3, 50000, false, false),
            (1, 'Buyer', 4, 50000, NULL, false),
            (1, 'Buyer', 5, 50000, true, true),
            (1, 'Seller', 1, 50000, true, false)",
    )
    .unwrap();
}

/// A resale, case 2, with powers of ten so that the total tells what was counted.
pub(super) fn resale(conn: &Connection, assignment_type: &str) {
    case(conn, 2, Some(assignment_type), None);
    fetched(conn, 2, &RESALE);
    conn.execute_batch(
        "INSERT INTO main.common_conditions (case_id, debt) VALUES (2, 1);
         INSERT INTO main.resale_information (case_id, entry_into_contract, original_sale_price,
            sum_original_buyer_costs, customer_changes, other_buyer_costs)
         VALUES (2, 10, 100, 1000, 10000, 100000)",
    )
    .unwrap();
}

#[test]
fn a_regular_sale_adds_what_counts_to_the_oere() {
    let conn = store(None, 2026..=2026);
    regular(&conn);
    assert_eq!(total(&conn, 1), "regular 1235.00 1235.00 [] []");
}

#[test]
fn a_resale_counts_the_original_buyer_costs_twice_and_once() {
    for assignment_type in ["ResaleOfContractPositionConsumer", "ResaleOfContractPositionProff"] {
        let conn = store(None, 2026..=2026);
        resale(&conn, assignment_type);
        assert_eq!(total(&conn, 2), "resale 12111.00 111111.00 [] []");
    }
}

#[test]
fn amounts_as_large_as_fit_have_a_total() {
    let conn = store(None, 2026..=2026);
    regular(&conn);
    resale(&conn, "ResaleOfContractPositionProff");
    let most = "9999999999999999.99";
    conn.execute_batch(&format!(
        "UPDATE main.costs SET amount = {most};
         UPDATE main.document_costs SET amount = {most};
         UPDATE main.common_conditions SET debt = {most};
         UPDATE main.case_conditions SET asking_price = {most};
         UPDATE main.resale_information SET entry_into_contract = {most},
            original_sale_price = {most}, sum_original_buyer_costs = {most},
            customer_changes = {most}, other_buyer_costs = {most}"
    ))
    .unwrap();
    let six = "59999999999999999.94";
    assert_eq!(total(&conn, 2), format!("resale {six} {six} [] []"));
    assert!(total(&conn, 1).starts_with("regular "), "{}", total(&conn, 1));
}

#[test]
fn what_is_missing_counts_nothing_but_the_price() {
    let conn = store(None, 2026..=2026);
    regular(&conn);
    conn.execute_batch(
        "DELETE FROM main.costs; DELETE FROM main.document_costs;
         UPDATE main.common_conditions SET debt = NULL",
    )
    .unwrap();
    assert_eq!(total(&conn, 1), "regular 1000.10 1000.10 [buyer_costs, document_cost, debt] []");
    conn.execute_batch("UPDATE main.case_conditions SET asking_price = NULL").unwrap();
    assert_eq!(total(&conn, 1), "regular - - [buyer_costs, document_cost, debt, asking_price] []");
    resale(&conn, "ResaleOfContractPositionProff");
    conn.execute_batch("DELETE FROM main.resale_information").unwrap();
    assert_eq!(
        total(&conn, 2),
        "resale - - [entry_into_contract, original_sale_price, sum_original_buyer_costs, \
         customer_changes, other_buyer_costs] []"
    );
}

#[test]
fn what_is_not_known_leaves_the_totals_open() {
    for (change, unknown) in [
        ("DELETE FROM sync.fetched_scopes WHERE table_name = 'costs'", "buyer_costs"),
        (
            "UPDATE sync.fetched_scopes SET complete = false WHERE table_name = 'costs'",
            "buyer_costs",
        ),
        (
            "UPDATE sync.resources SET status = 'forbidden' WHERE table_name = 'document_costs'",
            "document_cost",
        ),
        (
            "INSERT INTO sync.failures (table_name, id, part) VALUES ('common_conditions', 1, '')",
            "debt",
        ),
    ] {
        let conn = store(None, 2026..=2026);
        regular(&conn);
        conn.execute_batch(change).unwrap();
        assert_eq!(total(&conn, 1), format!("regular - - [] [{unknown}]"), "{change}");
    }
}

/// A table is failing when no scope of it answered in a run, and that may have been one case.
#[test]
fn what_fails_for_another_case_leaves_the_total_as_it_is() {
    let conn = store(None, 2026..=2026);
    regular(&conn);
    resale(&conn, "ResaleOfContractPositionProff");
    conn.execute_batch(
        "UPDATE sync.resources SET status = 'failing';
         INSERT INTO sync.failures (table_name, id, part, kind)
            VALUES ('common_conditions', 2, '', 'Status'), ('cases', 7, '', 'Status')",
    )
    .unwrap();
    assert_eq!(total(&conn, 1), "regular 1235.00 1235.00 [] []");
    assert_eq!(total(&conn, 2), "resale - - [] [debt]");
}

#[test]
fn a_search_that_failed_for_a_case_leaves_open_what_its_row_says() {
    let closed = "regular 1235.00 1235.00 [] []";
    for (kind, expected) in [
        ("Status", "- - - [] [assignment_type]"),
        ("Incomplete", "- - - [] [assignment_type]"),
        // Answers that the search gave.
        ("Lag", closed),
        ("NotShown", closed),
        // No call was made.
        ("NotAsked", closed),
        ("Suspect", closed),
        ("Held", closed),
    ] {
        let conn = store(None, 2026..=2026);
        regular(&conn);
        conn.execute_batch(&format!(
            "INSERT INTO sync.failures (table_name, id, part, kind) VALUES ('cases', 1, '', '{kind}')"
        ))
        .unwrap();
        assert_eq!(total(&conn, 1), expected, "{kind}");
    }
}

#[test]
fn the_asking_price_is_the_first_that_is_there() {
    let conn = store(None, 2026..=2026);
    regular(&conn);
    conn.execute_batch(
        "UPDATE main.case_conditions SET asking_price = NULL;
         INSERT INTO main.property_conditions (case_id, asking_price) VALUES (1, 2000);
         UPDATE main.cases SET asking_price = 3000",
    )
    .unwrap();
    let price = || -> Option<String> {
        conn.query_row("SELECT asking_price::VARCHAR FROM report.total_cost", [], |r| r.get(0))
            .unwrap()
    };
    assert_eq!(price().as_deref(), Some("2000.00"));
    conn.execute_batch("DELETE FROM main.property_conditions").unwrap();
    assert_eq!(price().as_deref(), Some("3000.00"));
    // What may be hidden before it could be another price.
    conn.execute_batch(
        "UPDATE sync.resources SET status = 'absent' WHERE table_name = 'property_conditions'",
    )
    .unwrap();
    assert_eq!(price(), None);
    assert_eq!(total(&conn, 1), "regular - - [] [asking_price]");
    // Behind the one that counts it is not needed.
    conn.execute_batch("UPDATE main.case_conditions SET asking_price = 1000.10").unwrap();
    assert_eq!(price().as_deref(), Some("1000.10"));
}

#[test]
fn a_rejected_value_leaves_open_only_what_needs_it() {
    let buyer = "regular - - [] [buyer_costs]";
    let closed = "regular 1235.00 1235.00 [] []";
    for (table, key, column, expected) in [
        ("costs", "1/Buyer/1", Some("amount"), buyer),
        ("costs", "1/Buyer/3", Some("amount"), closed), // not selected
        ("costs", "1/Buyer/3", Some("selected"), buyer), // may be selected
        ("costs", "1/Buyer/5", Some("amount"), closed), // deleted
        ("costs", "1/Buyer/5", Some("deleted"), buyer), // may not be deleted
        ("costs", "1/Buyer/1", Some("comment"), closed),
        ("costs", "1/Seller/1", Some("amount"), closed),
        ("costs", "1/Buyer/#6", None, buyer), // a record without a key
        ("costs", "1/Seller/#6", None, closed),
        ("costs", "1/Buyer/1", None, closed), // another with its key was taken
        ("document_costs", "1/#1", None, "regular - - [] [document_cost]"),
        ("document_costs", "1", None, closed),
        ("costs", "#", Some("amount"), buyer), // any of them
        ("costs", "#", Some("deleted"), buyer),
        ("costs", "#", None, buyer),
        ("costs", "#", Some("comment"), closed),
        ("document_costs", "1", Some("amount"), "regular - - [] [document_cost]"),
        ("common_conditions", "1", Some("debt"), "regular - - [] [debt]"),
        ("common_conditions", "1", Some("other"), closed),
        ("common_conditions", "#", Some("debt"), "regular - - [] [debt]"),
        ("case_conditions", "1", Some("asking_price"), "regular - - [] [asking_price]"),
        ("cases", "1", Some("asking_price"), closed), // another price comes first
        ("cases", "1", Some("assignment_type"), "- - - [] [assignment_type]"),
        ("cases", "#", Some("assignment_type"), "- - - [] [assignment_type]"),
    ] {
        let conn = store(None, 2026..=2026);
        regular(&conn);
        reject(&conn, table, 1, key, column);
        assert_eq!(total(&conn, 1), expected, "{table} {key} {column:?}");
        conn.execute_batch("UPDATE sync.rejects SET resolved_at = '2026-01-01T00:00:00Z'").unwrap();
        assert_eq!(total(&conn, 1), closed, "resolved: {table} {key} {column:?}");
    }
}
