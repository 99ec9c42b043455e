//! `report.freshness`: how much of each table should be there, and was read.

use super::super::fixture::store;
use super::reject;
use super::total_cost::{regular, resale};
use crate::catalog::Catalog;

#[test]
fn freshness_has_one_row_per_table_and_counts_its_scopes() {
    let conn = store(None, 2026..=2026);
    regular(&conn);
    resale(&conn, "ResaleOfContractPositionProff");
    conn.execute_batch(
        "INSERT INTO sync.seen (case_id, removed) VALUES (1, false), (2, false), (3, false), (4, true);
         INSERT INTO main.projects (id) VALUES (5);
         UPDATE sync.freshness SET last_change = '2026-05-05T10:00:00Z' WHERE table_name = 'case_file_access';
         UPDATE sync.freshness SET last_checked = '2026-05-06T10:00:00Z' WHERE table_name = 'case_files'",
    )
    .unwrap();
    reject(&conn, "costs", 1, "1/Buyer/1", Some("amount"));
    let tables = Catalog::load(None).unwrap().resources().len() as i64;
    let rows: i64 =
        conn.query_row("SELECT count(*) FROM report.freshness", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, tables);
    for (table, expected) in [
        // Cases 1 and 2, the project 5, and 3, which the feed has named and no search returned.
        ("costs", "costs 6 - - 4 1 1"),
        ("cases", "cases 2 - - 3 0 0"),
        ("projects", "projects 1 - - 2 0 0"),
        ("resale_information", "resale_information 1 - - 1 1 0"),
        ("case_files", "case_files 0 - 2026-05-06 10:00:00+00 4 0 0"),
        // A child is read with its parent.
        (
            "case_file_access",
            "case_file_access 0 2026-05-05 10:00:00+00 2026-05-06 10:00:00+00 4 0 0",
        ),
        ("offices", "offices 0 - - 1 0 0"),
    ] {
        let row: String = conn
            .query_row(
                "SELECT concat_ws(' ', table_name, rows, coalesce(last_change::VARCHAR, '-'), \
                 coalesce(last_checked::VARCHAR, '-'), scopes_known, scopes_fetched, rejected) \
                 FROM report.freshness WHERE table_name = ?",
                [table],
                |r| r.get(0),
            )
            .unwrap();
        assert_eq!(row, expected);
    }
}

/// [`freshness`](crate::mirror::reports) counts rows that speak for many scopes; `sync.read_scopes` takes them apart.
#[test]
fn freshness_counts_what_was_read_as_if_every_scope_were_looked_at() {
    let conn = store(None, 2026..=2026);
    conn.execute_batch(
        "INSERT INTO sync.seen (case_id, removed) SELECT id, id % 11 = 0 FROM range(1, 400) r(id);
         INSERT INTO main.cases (id) SELECT id FROM range(1, 390) r(id) WHERE id % 5 <> 0;
         INSERT INTO main.projects (id) SELECT id FROM range(1, 420) r(id) WHERE id % 5 = 0 AND id % 3 <> 0;
         INSERT INTO main.dynamic_sale_text_use (case_id, value)
           SELECT id, id % 2 = 0 FROM range(1, 380) r(id);
         INSERT INTO main.contacts (id) SELECT id FROM range(1, 50) r(id);
         INSERT INTO sync.fetched_coverage (coverage, table_name)
           SELECT c, t FROM range(1, 4) c(c), (SELECT unnest(['costs', 'notes', 'cases', 'projects',
             'dynamic_sale_texts', 'resale_information']) AS t)
           WHERE (c, t) NOT IN ((1, 'projects'), (2, 'cases'), (3, 'costs'));
         INSERT INTO sync.fetched_cases (case_id, coverage, mark)
           SELECT id, CASE WHEN id % 7 = 0 THEN 3 WHEN id % 5 = 0 THEN 2 ELSE 1 END, id % 4
           FROM range(1, 450) r(id) WHERE id % 13 <> 0;
         -- Some overrule a row, one of them incompletely; some stand where no row speaks for them.
         INSERT INTO sync.fetched_scopes BY NAME
           SELECT t AS table_name, id, '' AS part, id % 17 <> 0 AS complete, id % 3 AS mark
           FROM range(1, 460) r(id), (SELECT unnest(['costs', 'cases', 'projects', 'dynamic_sale_texts']) AS t)
           WHERE id % 4 = 0 OR id % 13 = 0;
         INSERT INTO sync.fetched_scopes BY NAME
           SELECT 'contacts' AS table_name, id, '' AS part, id % 2 = 0 AS complete, 1 AS mark
           FROM range(40, 60) r(id);
         INSERT INTO sync.fetched_marks (table_name, status, mark, forgotten) VALUES
           ('costs', 'full', 3, 2), ('cases', 'full', 3, 1), ('notes', 'full', 3, 0), ('contacts', 'full', 2, 2)",
    )
    .unwrap();
    let case_ids = "SELECT case_id FROM sync.seen WHERE NOT removed \
                    UNION SELECT id FROM main.cases UNION SELECT id FROM main.projects";
    let text_uses = "SELECT case_id FROM main.dynamic_sale_text_use WHERE value";
    for (table, known) in [
        ("costs", case_ids.to_owned()),
        ("notes", case_ids.to_owned()),
        ("cases", format!("{case_ids} EXCEPT SELECT id FROM main.projects")),
        ("projects", format!("{case_ids} EXCEPT SELECT id FROM main.cases")),
        ("dynamic_sale_texts", text_uses.to_owned()),
        (
            "contacts",
            "SELECT id FROM main.contacts \
             UNION SELECT id FROM sync.read_scopes WHERE table_name = 'contacts'"
                .to_owned(),
        ),
    ] {
        // All that was read of a table that is read per case counts: a case that left was forgotten.
        let counts =
            if ["costs", "notes"].contains(&table) { "true" } else { "id IN (FROM known)" };
        let expected = format!(
            "WITH known(id) AS ({known}) SELECT (SELECT count(*) FROM known), count(*) \
             FROM sync.read_scopes WHERE table_name = '{table}' AND complete AND {counts}"
        );
        let shown = format!(
            "SELECT scopes_known, scopes_fetched FROM report.freshness WHERE table_name = '{table}'"
        );
        let both = |sql: &str| -> (i64, i64) {
            conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        let expected = both(&expected);
        assert_eq!(both(&shown), expected, "{table}");
        assert!(table == "contacts" || expected.1 > 50, "{table}: {expected:?}");
    }
}
