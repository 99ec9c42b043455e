//! `casemirror query`: one statement on the published database, which is all that it reaches.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::error::ArrowError;
use duckdb::{AccessMode, Config as DuckConfig, Connection};
use tempfile::TempDir;

use super::args::{Query, QueryFormat};
use super::output;
use crate::config::Config;
use crate::daemon::Printer;
use crate::error::{self, Error, Kind, Result};
use crate::sql::{self, db};

pub(crate) fn run(config: &Config, args: &Query) -> Result<u8> {
    let reader = Reader::open(&config.publish.database)?;
    let batches = reader.select(&args.sql)?;
    let out = Printer::here();
    match args.format {
        QueryFormat::Table => out.print(&output::batches(&batches, output::null())?)?,
        QueryFormat::Csv => out.data(&output::csv(&batches)?)?,
        QueryFormat::Json => out.data(&output::json(&batches)?)?,
    }
    Ok(0)
}

/// A published database, opened so that a statement reaches nothing else: no file, no other database, no
/// extension, no network, no setting (docs/architecture.md, "Commands").
pub(crate) struct Reader {
    // In this order: closed first, then its temporary folder is removed.
    connection: Connection,
    _spill: TempDir,
}

impl Reader {
    /// Opens it as any reader would.
    ///
    /// # Errors
    /// `Io` where there is none, and `Store`.
    pub(crate) fn open(database: &Path) -> Result<Reader> {
        if !database.exists() {
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
        let spill = tempfile::Builder::new()
            .prefix("casemirror-query-")
            .tempdir()
            .map_err(|e| error::io("make a folder in", &std::env::temp_dir(), e))?;
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

    /// The result of one statement that reads.
    ///
    /// # Errors
    /// `Query` where it is another statement, or more than one, or fails.
    pub(crate) fn select(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        check_reads(&self.connection, sql)?;
        select(&self.connection, sql)
    }
}

/// What DuckDB's parser makes of a text.
struct Parsed {
    error: Option<String>,
    statements: i64,
    /// A table function that the text names and that reaches more than the database.
    foreign: Option<String>,
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

/// Refuses what is no single statement that reads this database. What DuckDB cannot parse is left for it
/// to complain of.
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
    if parsed.error.as_deref() == Some(NO_SELECT)
        && let Some(explained) = explained(sql)
    {
        parsed = parse(connection, explained)?;
    }
    match parsed {
        Parsed { error: Some(error), .. } if error == NO_SELECT => {
            refused("this statement does more than read")
        }
        Parsed { error: Some(_), .. } => Ok(()),
        Parsed { foreign: Some(name), .. } => refused(&format!("{name} is not available here")),
        Parsed { statements: 0, .. } => refused("there is no statement"),
        Parsed { statements: 1, .. } => Ok(()),
        Parsed { statements, .. } => refused(&format!("these are {statements} statements")),
    }
}

fn parse(connection: &Connection, sql: &str) -> Result<Parsed> {
    let parsing = format!(
        "WITH parsed AS (SELECT json_serialize_sql(?::VARCHAR) AS tree) \
         SELECT tree->>'error_type', coalesce(json_array_length(tree, 'statements'), 0)::BIGINT, \
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
            Ok(Parsed { error: row.get(0)?, statements: row.get(1)?, foreign: row.get(2)? })
        })
        .map_err(|e| db("cannot parse the statement", e))
}

/// What DuckDB calls the error of a statement that is no `SELECT` in any of its forms.
const NO_SELECT: &str = "not implemented";

/// The statement behind `EXPLAIN` or `EXPLAIN ANALYZE`.
fn explained(sql: &str) -> Option<&str> {
    let explained = behind("EXPLAIN", sql)?;
    Some(behind("ANALYZE", explained).unwrap_or(explained))
}

/// What follows the word that `sql` begins with.
fn behind<'s>(word: &str, sql: &'s str) -> Option<&'s str> {
    let (first, rest) = sql.trim_start().split_at_checked(word.len())?;
    let is_word = first.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace);
    is_word.then_some(rest)
}

fn select(connection: &Connection, sql: &str) -> Result<Vec<RecordBatch>> {
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
    let mut statement = connection.prepare(sql).map_err(wrong)?;
    let arrow = statement.query_arrow([]).map_err(wrong)?;
    let schema = arrow.get_schema();
    let mut batches: Vec<RecordBatch> = arrow.collect();
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    let shown = batches.iter().map(with_offsets).collect::<Result<_, _>>();
    shown.map_err(|e| Error::caused(Kind::Internal, "the result cannot be shown", e))
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

    #[test]
    fn an_instant_is_shown_in_utc_wherever_it_stands() {
        let connection = Connection::open_in_memory().unwrap();
        let instant = "TIMESTAMPTZ '2026-01-02 03:04:05.5+02'";
        let shown = "2026-01-02T01:04:05.500Z";
        for (sql, expected) in [
            (instant.to_owned(), shown.to_owned()),
            (format!("[{instant}]"), format!("[{shown}]")),
            (format!("array_value({instant})"), format!("[{shown}]")),
            (format!("{{'a': {instant}}}"), format!("{{a: {shown}}}")),
            (format!("[{{'a': {instant}}}]"), format!("[{{a: {shown}}}]")),
            (format!("MAP {{'a': {instant}}}"), format!("{{a: {shown}}}")),
        ] {
            let batches = select(&connection, &format!("SELECT {sql} AS x, 1 AS y")).unwrap();
            let csv = output::csv(&batches).unwrap();
            assert_eq!(csv, format!("x,y\n{expected},1\n"), "{sql}");
            assert!(output::json(&batches).unwrap().contains(shown), "{sql}");
        }
    }

    #[test]
    fn a_result_without_rows_has_its_columns() {
        let connection = Connection::open_in_memory().unwrap();
        let batches = select(&connection, "SELECT now() AS x WHERE false").unwrap();
        assert_eq!(output::csv(&batches).unwrap(), "x\n");
    }
}
