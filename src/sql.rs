//! SQL text: identifiers and literals, quoted, and what every user of DuckDB needs. Nothing is pasted into
//! SQL without passing here.

use std::path::Path;

use duckdb::{Connection, Row};

use crate::error::{Error, Kind, Result};

/// A quoted identifier: `a"b` becomes `"a""b"`.
pub(crate) fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A quoted string literal: `it's` becomes `'it''s'`. No statement can have a NUL in it, and JSON can: of a text with one
/// it is what gives that text.
pub(crate) fn text(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    if quoted.contains('\0') {
        format!("('{}')", quoted.replace('\0', "' || chr(0) || '"))
    } else {
        format!("'{quoted}'")
    }
}

/// A path as a quoted string literal.
///
/// # Errors
/// As [`utf8`].
pub(crate) fn path(path: &Path) -> Result<String> {
    utf8(path).map(text)
}

/// A path as text for SQL, which knows no other.
///
/// # Errors
/// `Io` where it is none.
pub(crate) fn utf8(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Error::new(Kind::Io, format!("the path {} is not UTF-8", path.display())))
}

/// Quoted identifiers, separated by commas.
pub(crate) fn idents<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(ident).collect::<Vec<_>>().join(", ")
}

/// Quoted string literals, separated by commas.
pub(crate) fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    values.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A DuckDB error with what we were doing.
pub(crate) fn db(doing: &str, source: duckdb::Error) -> Error {
    let text = source.to_string();
    // DuckDB passes the operating system's words on and has no code for them.
    let full = ["No space left", "Disk quota exceeded", "File too large"]
        .iter()
        .any(|words| text.contains(words));
    // After a defect DuckDB refuses everything until it is opened anew. Memory that it cannot get, others of
    // its parts hold; that may be so until then.
    let is_down = ["database has been invalidated", "Out of Memory Error"]
        .iter()
        .any(|words| text.contains(words));
    let kind = match (full, is_down) {
        (true, _) => Kind::DiskFull,
        (false, true) => Kind::StoreDown,
        (false, false) => Kind::Store,
    };
    Error::caused(kind, doing, source)
}

/// Writes in a transaction of its own: all of it, or nothing.
pub(crate) fn transaction<T>(conn: &Connection, write: impl FnOnce() -> Result<T>) -> Result<T> {
    conn.execute_batch("BEGIN").map_err(|e| db("cannot begin a transaction", e))?;
    match write() {
        Ok(value) => {
            conn.execute_batch("COMMIT").map_err(|e| db("cannot commit to the store", e))?;
            Ok(value)
        }
        Err(error) => {
            // The first error counts; a failed rollback has nothing to add to it.
            let _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

/// Writes in a transaction of its own, of which nothing stays.
pub(crate) fn tried<T>(conn: &Connection, write: impl FnOnce() -> Result<T>) -> Result<T> {
    conn.execute_batch("BEGIN").map_err(|e| db("cannot begin a transaction", e))?;
    let tried = write();
    // Without it nothing is committed either.
    let _ = conn.execute_batch("ROLLBACK");
    tried
}

/// The one integer of a query's one row.
pub(crate) fn scalar_i64(conn: &Connection, sql: &str) -> Result<i64> {
    conn.query_row(sql, [], |row| row.get(0)).map_err(|e| db("cannot count", e))
}

/// An instant as SQL: DuckDB reads a text with an offset into a TIMESTAMPTZ without any extension.
pub(crate) fn instant(at: jiff::Timestamp) -> String {
    format!("TIMESTAMPTZ '{}'", at.strftime("%Y-%m-%d %H:%M:%S%.6f+00"))
}

/// An instant as a text that `?::TIMESTAMPTZ` takes.
pub(crate) fn instant_param(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S%.6f+00").to_string()
}

/// A TIMESTAMPTZ column, as the query gave it in `epoch_us(...)`.
pub(crate) fn from_micros(micros: Option<i64>) -> Option<jiff::Timestamp> {
    micros.and_then(|us| jiff::Timestamp::from_microsecond(us).ok())
}

/// All rows of a query, each as `read` makes it.
pub(crate) fn query<T>(
    conn: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> duckdb::Result<T>,
) -> Result<Vec<T>> {
    let failed = |e| db("cannot read the store", e);
    let mut statement = conn.prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], read).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_has_to_be_opened_anew_is_known_by_duckdbs_words() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("SET memory_limit = '1MB'; SET temp_directory = ''").unwrap();
        let large =
            "CREATE TABLE t AS SELECT range AS i, md5(range::VARCHAR) AS m FROM range(1000000)";
        let short = conn.execute_batch(large).unwrap_err();
        assert_eq!(db("x", short).kind(), Kind::StoreDown);
        let wrong = conn.execute_batch("SELECT nothing").unwrap_err();
        assert_eq!(db("x", wrong).kind(), Kind::Store);
    }

    #[test]
    fn quotes_inside_names_and_values_are_doubled() {
        assert_eq!(ident(r#"a"b"#), r#""a""b""#);
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(idents(["a", "b"]), r#""a", "b""#);
        assert_eq!(texts(["a", "it's"]), "'a', 'it''s'");
    }

    #[test]
    fn a_text_with_a_nul_is_the_text_that_the_store_has() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (said VARCHAR)").unwrap();
        for said in ["it's\0here", "\0", "\0\0x"] {
            conn.execute("INSERT INTO t VALUES (?)", [said]).unwrap();
            let same = format!("SELECT said FROM t WHERE said IN ({})", texts(["a", said]));
            assert_eq!(query(&conn, &same, |row| row.get::<_, String>(0)).unwrap(), [said]);
        }
    }
}
