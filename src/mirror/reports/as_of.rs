//! Reports as of an earlier instant: the same SQL over the rows that the mirror held then.
//!
//! A view becomes a table macro whose tables are their versions of that instant, so that no rule is
//! written twice. Values that did not fit are those that were open then, a table is read or not as it was then, and
//! what was fetched is what had been read completely by then. A call counts as failed that has failed since then:
//! what failed then and no longer does is not kept, so that the report has the value that the mirror held. Where
//! history does not answer (`mirror/history.rs`), the macro fails and says why.

use std::collections::BTreeSet;

use crate::sql;

/// The instant that is asked for. Where it is NULL, rows that are compared with it fail: DuckDB would know without any that
/// there are none, and would not come to [`where_history_answers`].
const INSTANT: &str = "coalesce(CAST(at_instant AS TIMESTAMPTZ), \
     CAST(error('at_instant is NULL: give the instant at which the rows are wanted') AS TIMESTAMPTZ))";

/// How the SQL says it.
const CAST: &str = "CAST(at_instant AS TIMESTAMPTZ)";

/// The macro `report.<name>_as_of(at_instant)` for the view that this SQL creates.
pub(super) fn macro_of(name: &str, view: &str, comment: &str) -> String {
    let created = format!("CREATE OR REPLACE VIEW report.{name} AS");
    let body = view.split_once(&created).map_or(view, |(_, body)| body);
    let body = body.split_once("\nCOMMENT ON").map_or(body, |(body, _)| body);
    let body = body.trim().trim_end_matches(';');
    let tables: BTreeSet<&str> = super::tables_read("main", body).collect();
    format!(
        "CREATE OR REPLACE MACRO report.{name}_as_of(at_instant) AS TABLE\n\
         SELECT * FROM (\n{}\n)\n{}; \
         COMMENT ON MACRO TABLE report.{name}_as_of IS {}",
        failures_then(&resources_then(&fetched_then(&rejects_then(&tables_then(body))))),
        where_history_answers(&sql::texts(tables)),
        sql::text(comment)
    )
    .replace(CAST, INSTANT)
}

/// The macro `report.journals_as_of` of this SQL.
pub(super) fn of_any_table(sql: &str) -> String {
    let marked = "-- {history answers for lower(journal)}";
    sql.replace(marked, &where_history_answers("lower(journal)")).replace(CAST, INSTANT)
}

/// A condition that fails, and says why, where there is no `at_instant`, or the history of one of these tables does not
/// reach back to it.
fn where_history_answers(tables: &str) -> String {
    format!(
        "WHERE (\
           SELECT count(CASE \
             WHEN at_instant IS NULL THEN error(\
               'at_instant is NULL: give the instant at which ' || table_name || ' is wanted') \
             WHEN NOT keeps_history THEN error(\
               'history.tables does not name ' || table_name \
               || ': what it held earlier is not known') \
             WHEN history_since > CAST(at_instant AS TIMESTAMPTZ) THEN error(\
               'the history of ' || table_name || ' is whole from ' \
               || history_since::VARCHAR || ' on: what it held earlier is not known') END) \
           FROM sync.resources WHERE table_name IN ({tables})) = 0"
    )
}

/// Every `main.table` as the rows of then.
fn tables_then(body: &str) -> String {
    let mut parts = body.split("main.");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let (table, rest) = part.split_at(end);
        text.push_str(&format!(
            "(SELECT * FROM main.{table} WHERE _synced_at <= CAST(at_instant AS TIMESTAMPTZ) \
              UNION ALL BY NAME \
              SELECT * EXCLUDE (_valid_from, _valid_to, _change) FROM history.{table} \
              WHERE _valid_from <= CAST(at_instant AS TIMESTAMPTZ) \
                AND _valid_to > CAST(at_instant AS TIMESTAMPTZ)){rest}"
        ));
    }
    text
}

/// `sync.rejects` as those that were open then.
fn rejects_then(body: &str) -> String {
    body.replace(
        "FROM sync.rejects",
        "FROM (SELECT * REPLACE (CAST(NULL AS TIMESTAMPTZ) AS resolved_at) FROM sync.rejects \
          WHERE first_at <= CAST(at_instant AS TIMESTAMPTZ) \
            AND (resolved_at IS NULL OR resolved_at > CAST(at_instant AS TIMESTAMPTZ)))",
    )
}

/// `sync.failures` as far as they began by then.
fn failures_then(body: &str) -> String {
    body.replace(
        "FROM sync.failures",
        "FROM (SELECT * FROM sync.failures WHERE first_at <= CAST(at_instant AS TIMESTAMPTZ))",
    )
}

/// `sync.resources` with the statuses of then.
fn resources_then(body: &str) -> String {
    body.replace(
        "FROM sync.resources",
        "FROM (SELECT r.* REPLACE (CASE WHEN e.status IS NOT NULL THEN e.status \
             WHEN r.since > CAST(at_instant AS TIMESTAMPTZ) THEN 'ok' ELSE r.status END AS status) \
           FROM sync.resources AS r LEFT JOIN \
             (SELECT table_name, max(status) AS status FROM sync.earlier_statuses \
              WHERE since <= CAST(at_instant AS TIMESTAMPTZ) AND until > CAST(at_instant AS TIMESTAMPTZ) \
              GROUP BY table_name) AS e ON e.table_name = r.table_name)",
    )
}

/// `sync.read_scopes` with the scopes of then. Of what happened to a scope since, the first thing says what it was: one
/// that left had been fetched, one that was read for the first time had not.
fn fetched_then(body: &str) -> String {
    body.replace(
        "FROM sync.read_scopes AS",
        "FROM (WITH later AS ( \
             SELECT table_name, id, min(read_at) AS read_at, min(left_at) AS left_at FROM ( \
               SELECT table_name, unnest(ids) AS id, read_at, CAST(NULL AS TIMESTAMPTZ) AS left_at \
               FROM sync.first_reads WHERE read_at > CAST(at_instant AS TIMESTAMPTZ) \
               UNION ALL SELECT table_name, id, NULL, left_at \
               FROM sync.left_scopes WHERE left_at > CAST(at_instant AS TIMESTAMPTZ)) \
             GROUP BY table_name, id) \
           SELECT f.table_name, f.id, f.part, f.complete FROM sync.read_scopes AS f \
           LEFT JOIN later AS l ON l.table_name = f.table_name AND l.id = f.id \
           WHERE l.id IS NULL \
           UNION ALL SELECT table_name, id, '' AS part, true AS complete FROM later \
           WHERE left_at < coalesce(read_at, CAST('infinity' AS TIMESTAMPTZ))) AS",
    )
}

#[cfg(test)]
mod tests {
    use duckdb::Connection;

    use crate::mirror::removal::{forget_scopes, note_left};
    use crate::mirror::reports::fixture;
    use crate::sql;

    /// What happens at the source, one thing a day; each sets the rows of a table anew.
    const DAYS: [(&str, &str); 6] = [
        (
            "cases",
            "SELECT 7 AS id, 3 AS office_id, 'Sale' AS assignment_type, 2500000 AS asking_price, \
             TIMESTAMPTZ '2026-03-04 12:00:00+00' AS case_activated_date",
        ),
        (
            "costs",
            "SELECT 7 AS case_id, 'Buyer' AS cost_type, 1 AS id, 900.5 AS amount, true AS selected",
        ),
        (
            "costs",
            "SELECT 7 AS case_id, 'Buyer' AS cost_type, 1 AS id, 1200 AS amount, true AS selected",
        ),
        (
            "cases",
            "SELECT 7 AS id, 3 AS office_id, 'Valuation' AS assignment_type, \
             2600000 AS asking_price, TIMESTAMPTZ '2026-03-04 12:00:00+00' AS case_activated_date",
        ),
        ("costs", "SELECT 7 AS case_id, 'Buyer' AS cost_type, 1 AS id, 1 AS amount WHERE false"),
        ("cases", "SELECT 7 AS id WHERE false"),
    ];

    fn instant(day: usize, hour: u32) -> String {
        format!("TIMESTAMPTZ '2026-06-{:02} {hour:02}:00:00+00'", day + 1)
    }

    /// Sets the rows of a table; what was there becomes history.
    fn set(conn: &Connection, table: &str, rows: &str, now: &str) {
        conn.execute_batch(&format!(
            "INSERT INTO history.{table} BY NAME SELECT *, _synced_at AS _valid_from, \
               {now} AS _valid_to, 'updated' AS _change FROM main.{table}; \
             DELETE FROM main.{table}; \
             INSERT INTO main.{table} BY NAME SELECT *, {now} AS _synced_at FROM ({rows})"
        ))
        .unwrap();
    }

    fn rows(conn: &Connection, from: &str) -> Vec<String> {
        let sql = format!("SELECT t::VARCHAR FROM {from} t ORDER BY ALL");
        sql::query(conn, &sql, |row| row.get(0)).unwrap()
    }

    #[test]
    fn each_report_as_of_an_instant_is_what_it_was_then() {
        let conn = fixture::store(None, 2026..=2026);
        let tables = [
            "cases",
            "costs",
            "document_costs",
            "common_conditions",
            "case_conditions",
            "property_conditions",
        ];
        for table in tables {
            let row = format!(
                "INSERT INTO sync.fetched_scopes BY NAME SELECT '{table}' AS table_name, 7 AS id, \
                   '' AS part, true AS complete"
            );
            conn.execute_batch(&row).unwrap();
        }
        let reports = ["total_cost", "signed_cases"];
        let mut then = Vec::new();
        for (day, (table, content)) in DAYS.into_iter().enumerate() {
            set(&conn, table, content, &instant(day, 8));
            if day + 1 == DAYS.len() {
                // The case left with its last row.
                let at = format!("2026-06-{:02}T08:00:00Z", day + 1).parse().unwrap();
                note_left(&conn, tables.into_iter(), "SELECT 7::BIGINT", at).unwrap();
                forget_scopes(&conn, tables.into_iter(), "SELECT 7::BIGINT", at).unwrap();
            }
            then.push(reports.map(|name| rows(&conn, &format!("report.{name}"))));
            let journal = "report.journals_as_of('cases', now())";
            assert_eq!(rows(&conn, journal), rows(&conn, "main.cases"));
        }
        let distinct: std::collections::BTreeSet<_> = then.iter().map(|day| &day[0]).collect();
        assert!(distinct.len() >= 5, "{then:?}");
        for (day, was) in then.iter().enumerate() {
            for (hour, expected) in
                [(8, Some(was)), (23, Some(was)), (7, then.get(day.wrapping_sub(1)))]
            {
                let Some(expected) = expected else { continue };
                for (name, expected) in reports.iter().zip(expected) {
                    let as_of = format!("report.{name}_as_of({})", instant(day, hour));
                    assert_eq!(rows(&conn, &as_of), *expected, "{as_of}");
                }
            }
        }
    }

    #[test]
    fn what_no_history_reaches_and_no_instant_at_all_are_refused() {
        let conn = fixture::store(None, 2026..=2026);
        let began = format!("UPDATE sync.resources SET history_since = {}", instant(0, 0));
        conn.execute_batch(&began).unwrap();
        let count = |from: &str| {
            let counted = sql::scalar_i64(&conn, &format!("SELECT count(*) FROM {from}"));
            counted.map_err(|e| e.chain())
        };
        let each = |at: &str| {
            [
                format!("report.signed_cases_as_of({at})"),
                format!("report.total_cost_as_of({at})"),
                format!("report.journals_as_of('revenue_journals', {at})"),
            ]
            .map(|from| count(&from))
        };
        for before in each("TIMESTAMPTZ '2001-01-01 00:00:00+00'") {
            let said = before.unwrap_err();
            assert!(said.contains("is whole from") && said.contains("is not known"), "{said}");
        }
        conn.execute_batch(
            "INSERT INTO main.revenue_journals BY NAME SELECT 11 AS journal_id, now() AS _synced_at; \
             INSERT INTO main.cases BY NAME SELECT 7 AS id, 3 AS office_id, now() AS _synced_at, \
            'Sale' AS assignment_type, now() AS case_activated_date",
        )
        .unwrap();
        let none = "(SELECT max(closed_at) FROM sync.closings)";
        for without in ["NULL", none].into_iter().flat_map(each) {
            let said = without.unwrap_err();
            assert!(said.contains("at_instant is NULL"), "{said}");
        }
        for (from, to) in [(none, "now()"), ("now()", none), ("NULL", "now()"), ("now()", "NULL")] {
            for filter in ["", " WHERE office_id = 3"] {
                let said = count(&format!("report.signed_cases_between({from}, {to}){filter}"))
                    .unwrap_err();
                assert!(said.contains("an instant is NULL"), "{said}");
            }
        }
        conn.execute_batch("DELETE FROM main.cases; DELETE FROM main.revenue_journals").unwrap();
        for answered in
            each("now()").into_iter().chain([count("report.signed_cases_between(now(), now())")])
        {
            assert_eq!(answered, Ok(0));
        }
    }

    #[test]
    fn values_that_did_not_fit_then_leave_the_report_of_then_open() {
        let conn = fixture::store(None, 2026..=2026);
        set(&conn, DAYS[0].0, DAYS[0].1, &instant(0, 8));
        conn.execute_batch(&format!(
            "INSERT INTO sync.rejects BY NAME SELECT 'cases' AS table_name, '7' AS scope, '7' AS record_key, \
               'assignment_type' AS column_name, {} AS first_at, {} AS resolved_at",
            instant(1, 8),
            instant(3, 8)
        ))
        .unwrap();
        let known = |day| {
            let sql = format!(
                "SELECT CAST(signed_cases AS VARCHAR) FROM report.signed_cases_as_of({})",
                instant(day, 12)
            );
            sql::query(&conn, &sql, |row| row.get::<_, Option<String>>(0)).unwrap()
        };
        assert_eq!(known(0), [Some("1".to_owned())]);
        assert_eq!([known(1), known(2)], [[None], [None]]);
        assert_eq!(known(3), [Some("1".to_owned())]);
    }

    #[test]
    fn what_fails_or_is_not_read_since_then_leaves_the_report_of_then_as_it_was() {
        let conn = fixture::store(None, 2026..=2026);
        set(&conn, DAYS[0].0, DAYS[0].1, &instant(0, 8));
        conn.execute_batch(
            "INSERT INTO sync.fetched_scopes BY NAME SELECT unnest(['costs', 'document_costs']) AS table_name, \
               7 AS id, '' AS part, true AS complete",
        )
        .unwrap();
        let then = format!("report.total_cost_as_of({})", instant(1, 8));
        let signed = format!("report.signed_cases_as_of({})", instant(1, 8));
        let was = [rows(&conn, &then), rows(&conn, &signed)];
        conn.execute_batch(&format!(
            "INSERT INTO sync.failures (table_name, id, part, kind, first_at) \
               VALUES ('document_costs', 7, '', 'Server', {later}); \
             UPDATE sync.resources SET status = 'disabled', since = {later} \
               WHERE table_name IN ('costs', 'cases')",
            later = instant(2, 8)
        ))
        .unwrap();
        assert_eq!([rows(&conn, &then), rows(&conn, &signed)], was);
        let now = format!("report.total_cost_as_of({})", instant(3, 8));
        assert_ne!(rows(&conn, &now), was[0]);
    }
}
