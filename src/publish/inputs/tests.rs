use super::*;
use crate::mirror::reports::RELATIONS;
use crate::mirror::reports::fixture::{no_extensions, store};

/// `main.cases` of each relation.
fn names(inputs: &Inputs<'_>, read: BTreeSet<usize>) -> BTreeSet<String> {
    let name = |at: usize| {
        let Relation { schema, name, .. } = &inputs.relations[at];
        format!("{schema}.{name}")
    };
    read.into_iter().map(name).collect()
}

/// What a view of this SQL is known to read beside itself, in a store of three tables.
fn read_by(sql: &str) -> Option<Vec<String>> {
    let conn = Connection::open_in_memory_with_flags(no_extensions()).unwrap();
    conn.execute_batch(
        "CREATE SCHEMA history; CREATE SCHEMA report; CREATE SCHEMA sync; \
         CREATE TABLE sync.meta (key VARCHAR, value VARCHAR); \
         CREATE TABLE sync.changes (table_name VARCHAR, part VARCHAR, counter BIGINT); \
         CREATE TABLE main.cases (id BIGINT, meta BIGINT); \
         CREATE TABLE history.cases (id BIGINT); \
         CREATE VIEW report.below AS SELECT * FROM history.cases",
    )
    .unwrap();
    conn.execute_batch(&format!("CREATE VIEW report.seen AS {sql}")).unwrap();
    let counters = Counters::read(&conn).unwrap();
    let inputs = Inputs::read(&conn, &counters).unwrap();
    let mut all = names(&inputs, inputs.read_by("report", "seen")?);
    assert!(all.remove("report.seen"));
    Some(all.into_iter().collect())
}

#[test]
fn a_name_counts_wherever_it_stands() {
    let known = |sql: &str| read_by(sql).unwrap().join(" ");
    assert_eq!(known("SELECT 1 AS x"), "");
    assert_eq!(known("SELECT id FROM main.cases"), "main.cases");
    assert_eq!(known("SELECT id FROM \"MAIN\" . \"Cases\""), "main.cases");
    assert_eq!(known("SELECT id FROM cases"), "history.cases main.cases");
    assert_eq!(known("SELECT id FROM report.below"), "history.cases report.below");
    // More than is read, and never less.
    assert_eq!(known("SELECT report.meta FROM main.cases AS report"), "main.cases sync.meta");
    assert_eq!(known("SELECT 'of cases' AS x"), "history.cases main.cases");
}

#[test]
fn a_call_of_what_is_not_known_is_not_relied_on() {
    for sql in ["SELECT now() AS x", "SELECT \"now\" () AS x", "SELECT Current_Timestamp AS x"] {
        assert_eq!(read_by(sql), None, "{sql}");
    }
    assert_eq!(read_by("SELECT max(id) FROM main.cases WHERE id IN (1, 2)").unwrap().len(), 1);
}

/// The tables that DuckDB scans for a report, when it leaves none out for having no rows.
fn scanned(conn: &Connection, report: &str) -> BTreeSet<String> {
    let sql = format!("EXPLAIN (FORMAT json) FROM report.{report}");
    let explained: String = conn.query_row(&sql, [], |row| row.get(1)).unwrap();
    // Some names are quoted.
    let explained = explained.replace("\\\"", "");
    let named = explained.split("\"Table\": \"").skip(1);
    named
        .map(|rest| {
            let name = rest.split('"').next().unwrap();
            let mut parts = name.rsplit('.');
            let (table, schema) = (parts.next().unwrap(), parts.next().unwrap());
            format!("{schema}.{table}")
        })
        .collect()
}

#[test]
fn a_report_is_known_to_read_every_table_that_duckdb_scans_for_it() {
    let conn = store(None, 2026..=2026);
    conn.execute_batch("PRAGMA disable_optimizer").unwrap();
    let counters = Counters::read(&conn).unwrap();
    let inputs = Inputs::read(&conn, &counters).unwrap();
    let mut all = BTreeSet::new();
    for report in RELATIONS {
        let read = inputs.read_by("report", report);
        let read = read.unwrap_or_else(|| panic!("{report} is always written"));
        let known = names(&inputs, read);
        let scanned = scanned(&conn, report);
        assert!(!scanned.is_empty(), "{report}");
        let forgotten: Vec<_> = scanned.difference(&known).collect();
        assert!(forgotten.is_empty(), "{report} is not known to read {forgotten:?}");
        all.extend(scanned);
    }
    for table in ["main.cases", "history.cases", "sync.fetched_cases", "report.calendar"] {
        assert!(all.contains(table), "{table}");
    }
}

#[test]
fn what_may_be_called_depends_on_its_arguments_alone() {
    let conn = store(None, 2026..=2026);
    let doubtful: Vec<String> = sql::query(
        &conn,
        "SELECT DISTINCT function_name FROM duckdb_functions() \
         WHERE NOT (function_type IN ('scalar', 'aggregate') \
           AND coalesce(stability, '') = 'CONSISTENT')",
        |row| row.get(0),
    )
    .unwrap();
    assert!(doubtful.contains(&"now".to_owned()));
    for word in PURE {
        assert!(!doubtful.contains(&word.to_owned()), "{word}");
    }
}
