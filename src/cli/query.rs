//! `casemirror query`: SQL on the published database, read-only.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::error::ArrowError;
use duckdb::{AccessMode, Config as DuckConfig, Connection};

use super::args::{Query, QueryFormat};
use super::{output, print};
use crate::config::Config;
use crate::error::{Error, Kind, Result};

pub(crate) fn run(config: &Config, args: &Query) -> Result<u8> {
    let connection = open(&config.publish.database)?;
    let batches = select(&connection, &args.sql)?;
    print(&match args.format {
        QueryFormat::Table => output::batches(&batches, output::null())?,
        QueryFormat::Csv => output::csv(&batches)?,
        QueryFormat::Json => output::json(&batches)?,
    })?;
    Ok(0)
}

/// Opens a published database as any reader would.
pub(crate) fn open(database: &Path) -> Result<Connection> {
    if !database.exists() {
        return Err(Error::new(
            Kind::Io,
            format!(
                "there is no published database at {} yet: `casemirror sync` makes it",
                database.display()
            ),
        ));
    }
    DuckConfig::default()
        .access_mode(AccessMode::ReadOnly)
        .and_then(|c| c.enable_autoload_extension(false))
        .and_then(|c| c.with("autoinstall_known_extensions", "false"))
        .and_then(|c| Connection::open_with_flags(database, c))
        .map_err(|e| Error::caused(Kind::Store, format!("cannot open {}", database.display()), e))
}

/// The result of a statement.
pub(crate) fn select(connection: &Connection, sql: &str) -> Result<Vec<RecordBatch>> {
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
