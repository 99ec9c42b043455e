//! `casemirror query`: one statement on the published database, which is all that it reaches.

mod exact;
mod spill;

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::error::ArrowError;
use duckdb::{AccessMode, Config as DuckConfig, Connection};

use super::args::{Query, QueryFormat};
use super::output;
use crate::config::Config;
use crate::daemon::Printer;
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::mirror::all_differences;
use crate::session::catalog_of;
use crate::sql::{self, db};
use spill::Spill;

/// So much of a result is kept in memory before it is printed, 16 MiB; a longer one is kept in a file, so
/// that a statement that fails half-way has printed nothing.
const IN_MEMORY: usize = 16 << 20;

pub(crate) fn run(config: &Config, args: &Query) -> Result<u8> {
    let reader = Reader::open(&config.publish.database)?;
    reader.tell_differences(config);
    let mut text = tempfile::spooled_tempfile(IN_MEMORY);
    match args.format {
        QueryFormat::Table => {
            let table = reader.table(&args.sql, output::NULL)?;
            return Printer::here().print(&table).map(|()| 0);
        }
        QueryFormat::Csv => {
            let mut rows = output::CsvRows::to(&mut text);
            reader.each(&args.sql, |batch| rows.add(batch))?;
        }
        QueryFormat::Json => {
            let mut rows = output::JsonRows::to(&mut text);
            reader.each(&args.sql, |batch| rows.add(batch))?;
            rows.finish()?;
        }
    }
    Printer::copy(&mut text).map(|()| 0)
}

/// A published database, opened so that a statement reaches nothing else: no file, no other database, no
/// extension, no network, no setting (docs/architecture.md, "Commands").
pub(crate) struct Reader {
    // In this order: closed first, then its temporary folder is removed.
    connection: Connection,
    _spill: Spill,
}

impl Reader {
    /// Opens it as any reader would.
    ///
    /// # Errors
    /// `Io` where there is none, and `Store`.
    pub(crate) fn open(database: &Path) -> Result<Reader> {
        let hint = "the folder of store.path is for its owner alone: ask as the user that casemirror runs as, or \
                    have publish.database placed in a folder outside it";
        if !durable::is_readable(database, hint)? {
            return Err(Error::new(
                Kind::Io,
                format!(
                    "there is no published database at {} yet: `casemirror sync` makes it",
                    database.display()
                ),
            ));
        }
        let failed =
            |e| Error::caused(Kind::Store, format!("cannot open {}", database.display()), e);
        // What does not fit into memory is written where nobody else reads, and removed.
        let spill = Spill::new()?;
        let connection = DuckConfig::default()
            .access_mode(AccessMode::ReadOnly)
            .and_then(|c| c.enable_autoload_extension(false))
            .and_then(|c| c.with("autoinstall_known_extensions", "false"))
            .and_then(|c| c.with("temp_directory", spill.path().to_string_lossy()))
            .and_then(|c| c.with("enable_external_access", "false"))
            .and_then(|c| Connection::open_with_flags(database, c))
            .map_err(failed)?;
        connection.execute_batch("SET lock_configuration = true").map_err(failed)?;
        Ok(Reader { connection, _spill: spill })
    }

    /// Says, in a line, in what the configuration is another than the one that was last published with. What cannot be
    /// compared keeps nothing from being read.
    fn tell_differences(&self, config: &Config) {
        let compared = catalog_of(config)
            .and_then(|catalog| all_differences(&self.connection, config, &catalog));
        let differences = compared.unwrap_or_default();
        if !differences.is_empty() {
            tracing::warn!(
                "the configuration is another than the one that {} was written with: {}; `casemirror sync` brings it up \
                 to that",
                config.publish.database.display(),
                differences.join("; ")
            );
        }
    }

    /// The result of such a statement as a table in which this stands for NULL.
    ///
    /// # Errors
    /// As [`Reader::each`], and `Query` where it is too large for a table.
    pub(crate) fn table(&self, sql: &str, null: &'static str) -> Result<String> {
        let mut rows = output::TableRows::with_null(null);
        self.each(sql, |batch| rows.add(batch))?;
        Ok(rows.finish())
    }

    /// Gives the result of one statement that reads to `take`, one batch of rows after the other. There is
    /// one at least, so that its columns are known.
    ///
    /// # Errors
    /// `Query` where it is another statement, or more than one, or fails; what `take` returns.
    pub(crate) fn each(
        &self,
        sql: &str,
        take: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        check_reads(&self.connection, sql)?;
        each(&self.connection, sql, take)
    }
}

/// Says in what the configuration is another than the one that was last published with, where anything was.
pub(super) fn tell_differences(config: &Config) {
    if let Ok(reader) = Reader::open(&config.publish.database) {
        reader.tell_differences(config);
    }
}

/// What DuckDB's parser makes of a text.
struct Parsed {
    /// What kind of error it is, and what it says.
    error: Option<(String, String)>,
    statements: i64,
    /// A table function that the text names and that reaches more than the database.
    foreign: Option<String>,
}

impl Parsed {
    fn is_no_select(&self) -> bool {
        self.error.as_ref().is_some_and(|(kind, _)| kind == NO_SELECT)
    }
}

/// Table functions that reach nothing but the database; what else DuckDB has of them reads files or
/// memory, runs texts as statements or changes settings.
const READING_FUNCTIONS: &[&str] = &[
    "duckdb_columns",
    "duckdb_constraints",
    "duckdb_databases",
    "duckdb_functions",
    "duckdb_indexes",
    "duckdb_keywords",
    "duckdb_schemas",
    "duckdb_settings",
    "duckdb_tables",
    "duckdb_types",
    "duckdb_views",
    "generate_series",
    "histogram",
    "histogram_values",
    "json_each",
    "json_tree",
    "pragma_database_size",
    "pragma_show",
    "pragma_storage_info",
    "pragma_table_info",
    "pragma_version",
    "query_table",
    "range",
    "repeat",
    "repeat_row",
    "summary",
    "unnest",
];

/// Refuses what is no single statement that reads this database, and what DuckDB's parser cannot tell to be
/// one.
fn check_reads(connection: &Connection, sql: &str) -> Result<()> {
    let refused = |what: &str| {
        Err(Error::new(
            Kind::Query,
            format!(
                "the query failed: {what}; `casemirror query` runs one SELECT, FROM, WITH, VALUES, \
                 SUMMARIZE, DESCRIBE, SHOW or EXPLAIN on the published database"
            ),
        ))
    };
    let mut parsed = parse(connection, sql)?;
    if parsed.is_no_select()
        && let Some(explained) = explained(sql)
    {
        parsed = parse(connection, explained)?;
        if explained.starts_with('(') && parsed.error.is_some() {
            return refused("EXPLAIN is understood without options here");
        }
    }
    match parsed {
        parsed if parsed.is_no_select() && behind("PIVOT", sql).is_some() => {
            refused("PIVOT is not understood here, sum(x) FILTER (WHERE y = 1) is")
        }
        parsed if parsed.is_no_select() => refused("this statement does more than read"),
        Parsed { error: Some((_, message)), .. } => {
            Err(Error::new(Kind::Query, format!("the query failed: {message}")))
        }
        Parsed { foreign: Some(name), .. } => refused(&format!("{name} is not available here")),
        Parsed { statements: 0, .. } => refused("there is no statement"),
        Parsed { statements: 1, .. } => Ok(()),
        Parsed { statements, .. } => refused(&format!("these are {statements} statements")),
    }
}

fn parse(connection: &Connection, sql: &str) -> Result<Parsed> {
    let parsing = format!(
        "WITH parsed AS (SELECT json_serialize_sql(?::VARCHAR) AS tree) \
         SELECT tree->>'error_type', coalesce(tree->>'error_message', ''), coalesce(json_array_length(tree, 'statements'), 0)::BIGINT, \
           (SELECT min(lower(name)) FROM \
              (SELECT unnest(json_extract_string(tree, '$..function_name')) AS name) \
            WHERE lower(name) IN \
              (SELECT function_name FROM duckdb_functions() \
               WHERE internal AND function_type NOT IN ('scalar', 'aggregate', 'macro') \
                 AND function_name NOT IN ({}))) \
         FROM parsed",
        sql::texts(READING_FUNCTIONS.iter().copied())
    );
    connection
        .query_row(&parsing, [sql], |row| {
            let (kind, message) = (row.get::<_, Option<String>>(0)?, row.get(1)?);
            let error = kind.map(|kind| (kind, message));
            Ok(Parsed { error, statements: row.get(2)?, foreign: row.get(3)? })
        })
        .map_err(|e| db("cannot parse the statement", e))
}

/// What DuckDB calls the error of a statement that is no `SELECT` in any of its forms.
const NO_SELECT: &str = "not implemented";

/// The statement behind `EXPLAIN` or `EXPLAIN ANALYZE`. Behind options, a comment or another spelling is
/// nothing that can be read alone, which refuses it.
fn explained(sql: &str) -> Option<&str> {
    let explained = behind("EXPLAIN", sql)?;
    Some(behind("ANALYZE", explained).unwrap_or(explained).trim_start())
}

/// What follows the word that `sql` begins with.
fn behind<'s>(word: &str, sql: &'s str) -> Option<&'s str> {
    let (first, rest) = sql.trim_start().split_at_checked(word.len())?;
    let is_word = first.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace);
    is_word.then_some(rest)
}

fn each(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let wrong = |e: duckdb::Error| {
        let text = e.to_string();
        // Time zone functions are in an extension that is neither built in nor downloaded, and what
        // DuckDB says of installing it does not help here.
        if text.to_ascii_lowercase().contains("icu") || text.contains("TIMESTAMP WITH") {
            let first = text.lines().next().unwrap_or_default().to_owned();
            return Error::new(
                Kind::Query,
                format!(
                    "the query failed: {first}\nhint: days and months of instants are in \
                     report.calendar: JOIN report.calendar d ON t >= d.starts_at AND t < d.ends_at"
                ),
            );
        }
        Error::caused(Kind::Query, "the query failed", e)
    };
    let mut shown = |batch: &RecordBatch| {
        let cannot = |e| Error::caused(Kind::Internal, "the result cannot be shown", e);
        exact::check_values(batch)?;
        take(&with_offsets(batch).map_err(cannot)?)
    };
    let mut statement = connection.prepare(sql).map_err(wrong)?;
    let schema = statement.stream_arrow([]).map_err(wrong)?.get_schema();
    exact::check_types(&statement)?;
    let mut is_empty = true;
    // Its own iterator panics where a row cannot be computed.
    while let Some(rows) = statement.step().map_err(wrong)? {
        is_empty = false;
        shown(&RecordBatch::from(&rows))?;
    }
    if is_empty {
        shown(&RecordBatch::new_empty(schema))?;
    }
    Ok(())
}

/// The same batch, whose instants have an offset for their zone. DuckDB calls it UTC, and arrow knows
/// no zone by its name but with all the zones of the world built in.
fn with_offsets(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let fields: Vec<FieldRef> = batch.schema().fields().iter().map(field_with_offset).collect();
    let columns = batch.columns().iter().zip(&fields);
    let columns: Result<_, _> = columns.map(|(c, field)| cast(c, field.data_type())).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns?)
}

fn field_with_offset(field: &FieldRef) -> FieldRef {
    let kind = with_offset(field.data_type());
    Arc::new(Field::clone(field).with_data_type(kind))
}

fn with_offset(kind: &DataType) -> DataType {
    match kind {
        DataType::Timestamp(unit, Some(zone)) if &**zone == "UTC" => {
            DataType::Timestamp(*unit, Some("+00:00".into()))
        }
        DataType::List(item) => DataType::List(field_with_offset(item)),
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(field_with_offset(item), *length)
        }
        DataType::Map(entry, sorted) => DataType::Map(field_with_offset(entry), *sorted),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(field_with_offset).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(connection: &Connection, sql: &str) -> Result<String> {
        let mut out = Vec::new();
        let mut rows = output::CsvRows::to(&mut out);
        each(connection, sql, |batch| rows.add(batch))?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn json(connection: &Connection, sql: &str) -> String {
        let mut out = Vec::new();
        let mut rows = output::JsonRows::to(&mut out);
        each(connection, sql, |batch| rows.add(batch)).unwrap();
        rows.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_instant_is_shown_in_utc_wherever_it_stands() {
        let connection = Connection::open_in_memory().unwrap();
        let instant = "TIMESTAMPTZ '2026-01-02 03:04:05.5+02'";
        let shown = "2026-01-02T01:04:05.500Z";
        let in_csv = |json: String| format!("\"{}\"", json.replace('"', "\"\""));
        for (sql, expected) in [
            (instant.to_owned(), shown.to_owned()),
            (format!("[{instant}]"), in_csv(format!("[\"{shown}\"]"))),
            (format!("array_value({instant})"), in_csv(format!("[\"{shown}\"]"))),
            (format!("{{'a': {instant}}}"), in_csv(format!("{{\"a\":\"{shown}\"}}"))),
            (format!("[{{'a': {instant}}}]"), in_csv(format!("[{{\"a\":\"{shown}\"}}]"))),
            (format!("MAP {{'a': {instant}}}"), in_csv(format!("{{\"a\":\"{shown}\"}}"))),
        ] {
            let sql = format!("SELECT {sql} AS x, 1 AS y");
            assert_eq!(csv(&connection, &sql).unwrap(), format!("x,y\n{expected},1\n"), "{sql}");
            assert!(json(&connection, &sql).contains(shown), "{sql}");
        }
    }

    #[test]
    fn csv_tells_nothing_from_an_empty_text_and_lists_from_each_other() {
        let connection = Connection::open_in_memory().unwrap();
        for (sql, expected) in [
            ("SELECT NULL AS x, '' AS y", "x,y\n,\"\"\n"),
            (
                "SELECT ['a, b'] AS x, ['a', 'b'] AS y",
                "x,y\n\"[\"\"a, b\"\"]\",\"[\"\"a\"\",\"\"b\"\"]\"\n",
            ),
            ("SELECT NULL::INT[] AS x, [NULL, 1] AS y", "x,y\n,\"[null,1]\"\n"),
            ("SELECT 'a\n\"b\"' AS \"x,y\", 1.50 AS z", "\"x,y\",z\n\"a\n\"\"b\"\"\",1.50\n"),
            // An empty line is no row to many readers.
            ("FROM (VALUES (NULL), (''), ('a')) v(x)", "x\n\"\"\n\"\"\na\n"),
        ] {
            assert_eq!(csv(&connection, sql).unwrap(), expected, "{sql}");
        }
    }

    #[test]
    fn a_result_without_rows_has_its_columns() {
        let connection = Connection::open_in_memory().unwrap();
        let sql = "SELECT now() AS x WHERE false";
        assert_eq!(csv(&connection, sql).unwrap(), "x\n");
        assert_eq!(json(&connection, sql), "[]\n");
    }

    #[test]
    fn of_columns_of_one_name_none_is_lost_in_json() {
        let connection = Connection::open_in_memory().unwrap();
        let sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1, NULL AS b, 5 AS a";
        let expected = "[{\"a\":1,\"a_2\":2,\"a_1\":3,\"b\":null,\"a_3\":5}]\n";
        assert_eq!(json(&connection, sql), expected);
        assert_eq!(csv(&connection, sql).unwrap(), "a,a,a_1,b,a\n1,2,3,,5\n");
    }

    #[test]
    fn a_row_that_cannot_be_computed_is_an_error_wherever_it_comes() {
        let connection = Connection::open_in_memory().unwrap();
        let sql = "SELECT CAST(CASE WHEN i = 200000 THEN 'x' ELSE '1' END AS INTEGER) \
                   FROM range(300000) t(i)";
        let error = csv(&connection, sql).unwrap_err();
        assert_eq!(error.kind(), Kind::Query);
        assert!(error.to_string().contains("the query failed"), "{error}");
    }

    #[test]
    fn what_is_no_table_anybody_would_read_is_refused_as_one() {
        let connection = Connection::open_in_memory().unwrap();
        let mut rows = output::TableRows::with_null("");
        let sql = "SELECT repeat('x', 1000) FROM range(1000000)";
        let error = each(&connection, sql, |batch| rows.add(batch)).unwrap_err();
        assert!(error.to_string().contains("--format csv"), "{error}");
    }
}
