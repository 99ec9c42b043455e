//! `casemirror query`: SQL on the published database, read-only.

use std::path::Path;

use arrow::array::RecordBatch;
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
    Ok(batches)
}
