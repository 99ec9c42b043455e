use duckdb::Connection;

use super::super::fixture::{oslo, store};

/// A version of a case that was valid until a day of May 2026, and how it ended.
fn version(conn: &Connection, id: i64, kind: &str, signed: Option<&str>, until: u32, change: &str) {
    conn.execute(
        "INSERT INTO history.cases (id, assignment_type, case_activated_date, _synced_at, _valid_from, \
           _valid_to, _change) VALUES (?, ?, ?, ?, ?, ?, ?)",
        duckdb::params![id, kind, signed.map(oslo), at(until - 1), at(until - 1), at(until), change],
    )
    .unwrap();
}

fn now(conn: &Connection, id: i64, kind: &str, signed: Option<&str>, since: u32) {
    conn.execute(
        "INSERT INTO main.cases (id, assignment_type, case_activated_date, _synced_at) \
         VALUES (?, ?, ?, ?)",
        duckdb::params![id, kind, signed.map(oslo), at(since)],
    )
    .unwrap();
}

fn at(day: u32) -> String {
    format!("2026-05-{day:02}T10:00:00Z")
}

fn lost(conn: &Connection) -> Vec<(String, i64, String, String)> {
    conn.prepare(
        "SELECT month::VARCHAR, case_id, reason, strftime(\"at\"::TIMESTAMP, '%d') \
         FROM report.signed_cases_lost ORDER BY ALL",
    )
    .unwrap()
    .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
    .unwrap()
    .map(Result::unwrap)
    .collect()
}

const MARCH: Option<&str> = Some("2026-03-31T23:59:59.999999");
const APRIL: Option<&str> = Some("2026-04-01T00:00:00");

#[test]
fn a_case_is_lost_in_the_month_that_counted_it_and_why_says_what_it_became() {
    let conn = store(None, 2026..=2026);
    // Its type became that of a valuation; later, and that is not why, its date moved.
    version(&conn, 1, "Sale", MARCH, 4, "updated");
    version(&conn, 1, "Valuation", MARCH, 5, "updated");
    now(&conn, 1, "Valuation", APRIL, 5);
    // Its date moved by a microsecond, into the next month, and back, and for good.
    version(&conn, 2, "Sale", MARCH, 4, "updated");
    version(&conn, 2, "Sale", APRIL, 5, "updated");
    version(&conn, 2, "Sale", MARCH, 6, "updated");
    now(&conn, 2, "Sale", APRIL, 6);
    // It was hidden, and its date is another since it was shown again.
    version(&conn, 3, "Sale", MARCH, 4, "hidden");
    now(&conn, 3, "Sale", None, 8);
    version(&conn, 4, "Sale", MARCH, 7, "deleted");
    // Shown again in between, with another date, and hidden once more.
    version(&conn, 5, "Sale", MARCH, 5, "hidden");
    version(&conn, 5, "Sale", APRIL, 7, "hidden");
    let row = |month: &str, id, reason: &str, day: &str| {
        (format!("2026-{month}-01"), id, reason.to_owned(), day.to_owned())
    };
    assert_eq!(
        lost(&conn),
        [
            row("03", 1, "type changed", "04"),
            row("03", 2, "date changed", "06"),
            row("03", 3, "date changed", "04"),
            row("03", 4, "deleted", "07"),
            row("03", 5, "hidden", "05"),
            row("04", 5, "hidden", "07"),
        ]
    );
}

#[test]
fn what_changes_otherwise_or_never_counted_is_no_loss() {
    let conn = store(None, 2026..=2026);
    version(&conn, 1, "Sale", MARCH, 4, "updated");
    now(&conn, 1, "Rental", MARCH, 4);
    version(&conn, 2, "Sale", MARCH, 4, "hidden");
    now(&conn, 2, "Sale", Some("2026-03-02T10:00:00"), 6);
    version(&conn, 3, "Valuation", MARCH, 4, "deleted");
    version(&conn, 4, "Sale", None, 4, "deleted");
    assert_eq!(lost(&conn), []);
}

/// A value that does not fit stands in `_extra`: nobody knows whether it is another.
#[test]
fn a_value_that_does_not_fit_is_no_loss_until_it_does() {
    let conn = store(None, 2026..=2026);
    let open = |table: &str, id: i64, field: &str| {
        let extra = format!("{{\"{field}\":\"odd\",\"Other\":1}}");
        let column =
            if field == "AssignmentType" { "assignment_type" } else { "case_activated_date" };
        let set = format!("UPDATE {table} SET _extra = ? WHERE id = ? AND {column} IS NULL");
        assert_eq!(conn.execute(&set, duckdb::params![extra, id]).unwrap(), 1, "{table} {id}");
    };
    // Its date does not fit now; that of the second fits again, and is another; of the third it is the same.
    version(&conn, 1, "Sale", MARCH, 4, "updated");
    now(&conn, 1, "Sale", None, 4);
    open("main.cases", 1, "CaseActivatedDate");
    for (id, signed) in [(2, APRIL), (3, MARCH)] {
        version(&conn, id, "Sale", MARCH, 4, "updated");
        version(&conn, id, "Sale", None, 6, "updated");
        open("history.cases", id, "CaseActivatedDate");
        now(&conn, id, "Sale", signed, 6);
    }
    // Whether it counted while its type did not fit is not known: then it is a valuation.
    version(&conn, 4, "Sale", MARCH, 6, "updated");
    conn.execute_batch("UPDATE history.cases SET assignment_type = NULL WHERE id = 4").unwrap();
    open("history.cases", 4, "AssignmentType");
    now(&conn, 4, "Valuation", MARCH, 6);
    // One that left when its date did not fit; and two that certainly count no more, whatever the other value says.
    version(&conn, 5, "Sale", MARCH, 4, "updated");
    version(&conn, 5, "Sale", None, 7, "deleted");
    open("history.cases", 5, "CaseActivatedDate");
    version(&conn, 6, "Sale", MARCH, 4, "updated");
    now(&conn, 6, "Valuation", None, 4);
    open("main.cases", 6, "CaseActivatedDate");
    version(&conn, 7, "Sale", MARCH, 4, "updated");
    now(&conn, 7, "Sale", APRIL, 4);
    conn.execute_batch("UPDATE main.cases SET assignment_type = NULL WHERE id = 7").unwrap();
    open("main.cases", 7, "AssignmentType");
    // What was lost stays so, whatever does not fit later.
    version(&conn, 8, "Sale", MARCH, 4, "updated");
    version(&conn, 8, "Sale", Some("2026-03-01T00:00:00"), 5, "updated");
    conn.execute_batch(
        "UPDATE history.cases SET case_activated_date = TIMESTAMPTZ '1899-01-01 00:00:00+00' \
         WHERE id = 8 AND _valid_to > TIMESTAMPTZ '2026-05-04 12:00:00+00'",
    )
    .unwrap();
    now(&conn, 8, "Sale", None, 5);
    open("main.cases", 8, "CaseActivatedDate");
    let row = |id, reason: &str, day: &str| {
        ("2026-03-01".to_owned(), id, reason.to_owned(), day.to_owned())
    };
    assert_eq!(
        lost(&conn),
        [
            row(2, "date changed", "06"),
            row(5, "deleted", "07"),
            row(6, "type changed", "04"),
            row(7, "date changed", "04"),
            row(8, "date changed", "04"),
        ]
    );
}

#[test]
fn versions_with_the_instants_of_another_zone_are_no_loss() {
    let conn = store(None, 2026..=2026);
    version(&conn, 1, "Sale", MARCH, 4, "updated");
    now(&conn, 1, "Sale", APRIL, 4);
    version(&conn, 2, "Sale", MARCH, 7, "updated");
    now(&conn, 2, "Sale", APRIL, 7);
    assert_eq!(lost(&conn).len(), 2);
    crate::mirror::history::note_zone(&conn, at(6).parse().unwrap()).unwrap();
    assert_eq!(lost(&conn).iter().map(|(_, id, ..)| *id).collect::<Vec<_>>(), [2]);
}
