//! How the rows of a store lie in its file.

use std::path::Path;

use duckdb::Connection;

/// Rows that are read at once.
const VECTOR: u64 = 2_048;
/// As the program makes its store.
const BLOCK_BYTES: u64 = 65_536;
/// Tables with fewer rows than this are one piece, however their rows lie.
const LEAST_ROWS: u64 = 1_000;

/// A store as it is.
pub(crate) struct Layout {
    pub(crate) file_bytes: u64,
    /// Of blocks that are not free.
    pub(crate) used_bytes: u64,
    /// Of schema `main`.
    pub(crate) rows: u64,
    /// Of schema `history`.
    pub(crate) old_rows: u64,
    /// Pieces of 2,048 rows that the rows of a case lie in, of a table with a case's rows on average.
    pub(crate) vectors_of_a_case: f64,
    /// The share of a table's rows in row groups that may hold a case, by the smallest and largest case
    /// that they know of themselves.
    pub(crate) scanned_for_a_case: f64,
}

impl Layout {
    pub(crate) fn of(conn: &Connection, file: &Path) -> Layout {
        let database = text(conn, "SELECT current_database()");
        Layout::of_database(conn, &database, file)
    }

    fn of_database(conn: &Connection, database: &str, file: &Path) -> Layout {
        let rows = |schema: &str| -> u64 {
            let tables = tables(conn, database, schema, "true");
            tables.iter().map(|table| count(conn, &format!("FROM {table}"))).sum()
        };
        let mut of_cases = tables(conn, database, "main", "column_name = 'case_id'");
        of_cases.retain(|table| count(conn, &format!("FROM {table}")) >= LEAST_ROWS);
        let mean = |each: &dyn Fn(&str) -> f64| {
            of_cases.iter().map(|table| each(table)).sum::<f64>() / of_cases.len().max(1) as f64
        };
        Layout {
            file_bytes: file.metadata().expect("the store has a size").len(),
            used_bytes: used_bytes(conn, database),
            rows: rows("main"),
            old_rows: rows("history"),
            vectors_of_a_case: mean(&|table| vectors(conn, table)),
            scanned_for_a_case: mean(&|table| scanned(conn, table)),
        }
    }
}

/// A new store with the same rows.
pub(crate) struct Fresh {
    pub(crate) layout: Layout,
    pub(crate) history_bytes: u64,
}

impl Fresh {
    pub(crate) fn of(conn: &Connection, file: &Path) -> Fresh {
        let store = text(conn, "SELECT current_database()");
        run(
            conn,
            &format!(
                "ATTACH '{}' AS fresh (BLOCK_SIZE {BLOCK_BYTES}); \
                 COPY FROM DATABASE \"{store}\" TO fresh; CHECKPOINT fresh",
                file.display()
            ),
        );
        let layout = Layout::of_database(conn, "fresh", file);
        for table in tables(conn, "fresh", "history", "true") {
            run(conn, &format!("DELETE FROM {table}"));
        }
        run(conn, "CHECKPOINT fresh");
        let without = used_bytes(conn, "fresh");
        run(conn, "DETACH fresh");
        Fresh { history_bytes: layout.used_bytes.saturating_sub(without), layout }
    }
}

/// Tables, by their full names, with a column for which `which` holds.
fn tables(conn: &Connection, database: &str, schema: &str, which: &str) -> Vec<String> {
    let sql = format!(
        "SELECT DISTINCT table_name FROM duckdb_columns() c JOIN duckdb_tables() t \
           USING (database_name, schema_name, table_name) \
         WHERE database_name = '{database}' AND schema_name = '{schema}' AND {which} ORDER BY 1"
    );
    let mut found = conn.prepare(&sql).expect("a statement");
    let names = found.query_map([], |row| row.get::<_, String>(0)).expect("tables");
    names.map(|name| format!("\"{database}\".{schema}.\"{}\"", name.expect("a name"))).collect()
}

/// Pieces that the rows of a case lie in, on average.
fn vectors(conn: &Connection, table: &str) -> f64 {
    number(
        conn,
        &format!(
            "SELECT avg(pieces) FROM (SELECT count(DISTINCT rowid // {VECTOR}) AS pieces \
             FROM {table} GROUP BY case_id)"
        ),
    )
}

/// The share of the rows that lie where a case may be, for cases by chance.
fn scanned(conn: &Connection, table: &str) -> f64 {
    number(
        conn,
        &format!(
            "WITH parts AS (SELECT count AS held, \
                 regexp_extract(stats, 'Min: (\\d+)', 1)::BIGINT AS least, \
                 regexp_extract(stats, 'Max: (\\d+)', 1)::BIGINT AS most \
               FROM pragma_storage_info('{table}') \
               WHERE column_name = 'case_id' AND segment_type = 'BIGINT'), \
             cases AS (SELECT DISTINCT case_id FROM {table} ORDER BY hash(case_id) LIMIT 100) \
             SELECT avg(found) FROM (SELECT (SELECT coalesce(sum(held), 0) FROM parts \
               WHERE case_id BETWEEN least AND most) / (SELECT sum(held) FROM parts) AS found \
             FROM cases)"
        ),
    )
}

fn used_bytes(conn: &Connection, database: &str) -> u64 {
    let sql = format!(
        "SELECT used_blocks * block_size FROM pragma_database_size() \
         WHERE database_name = '{database}'"
    );
    number(conn, &sql) as u64
}

fn count(conn: &Connection, from: &str) -> u64 {
    number(conn, &format!("SELECT count(*) {from}")) as u64
}

fn number(conn: &Connection, sql: &str) -> f64 {
    let sql = format!("SELECT coalesce(({sql})::DOUBLE, 0)");
    conn.query_row(&sql, [], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn text(conn: &Connection, sql: &str) -> String {
    conn.query_row(sql, [], |row| row.get(0)).expect("a text")
}

fn run(conn: &Connection, sql: &str) {
    conn.execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
}
