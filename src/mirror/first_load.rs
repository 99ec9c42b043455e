//! Rows of scopes that the table does not know yet: there is nothing to compare them with, so they go
//! straight into it. That is most of a first load.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use duckdb::Connection;
use jiff::Timestamp;

use super::merge::Merged;
use crate::catalog::{EXTRA_COLUMN, Resource, SYNCED_AT_COLUMN};
use crate::decode::Decoded;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db, scalar_i64};

/// Whether the table holds no row of the scopes in `temp.stage_scopes`, nor any that `decoded` could
/// be the next version of. `scopes` are the ids that are staged.
pub(super) fn is_fresh(
    conn: &Connection,
    resource: &Resource,
    decoded: &[&Decoded],
    scopes: &HashSet<i64>,
) -> Result<bool> {
    let main = format!("main.{}", sql::ident(&resource.table));
    let Some(column) = resource.scope_column() else {
        return Ok(scalar_i64(conn, &format!("SELECT count(*) FROM {main}"))? == 0);
    };
    if !decoded.iter().all(|rows| is_within(&rows.rows, column, scopes)) {
        return Ok(false);
    }
    let known = format!(
        "SELECT count(*) FROM temp.stage_scopes c WHERE c.id IN (SELECT {} FROM {main})",
        sql::ident(column)
    );
    Ok(scalar_i64(conn, &known)? == 0)
}

/// Whether every row is of one of the scopes: a service may send what was not asked for.
fn is_within(rows: &RecordBatch, column: &str, scopes: &HashSet<i64>) -> bool {
    rows.column_by_name(column)
        .and_then(|ids| ids.as_primitive_opt::<Int64Type>())
        .is_some_and(|ids| ids.iter().all(|id| id.is_some_and(|id| scopes.contains(&id))))
}

/// Inserts all rows, as of `now`.
pub(super) fn insert(
    conn: &Connection,
    resource: &Resource,
    decoded: &[&Decoded],
    now: Timestamp,
) -> Result<Merged> {
    let failed = |e| db(&format!("cannot insert into {}", resource.table), e);
    let inserted: usize = decoded.iter().map(|rows| rows.rows.num_rows()).sum();
    if inserted == 0 {
        return Ok(Merged::default());
    }
    // By name: a column that came later stands behind those that were there.
    let names: Vec<&str> = resource
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .chain([EXTRA_COLUMN, SYNCED_AT_COLUMN])
        .collect();
    let mut appender =
        conn.appender_with_columns_to_db(&resource.table, "main", &names).map_err(failed)?;
    for rows in decoded.iter().filter(|rows| rows.rows.num_rows() > 0) {
        appender.append_record_batch(with_synced_at(&rows.rows, now)?).map_err(failed)?;
    }
    // Errors of appended rows surface here and nowhere else.
    appender.flush().map_err(failed)?;
    Ok(Merged { inserted: inserted as u64, ..Merged::default() })
}

/// The rows with `_synced_at` behind them.
fn with_synced_at(rows: &RecordBatch, now: Timestamp) -> Result<RecordBatch> {
    let zone: Arc<str> = Arc::from("UTC");
    let synced_at = TimestampMicrosecondArray::from_value(now.as_microsecond(), rows.num_rows())
        .with_timezone(Arc::clone(&zone));
    let kind = DataType::Timestamp(TimeUnit::Microsecond, Some(zone));
    let field = Arc::new(Field::new(SYNCED_AT_COLUMN, kind, false));
    let schema = rows.schema();
    let fields: Vec<_> = schema.fields().iter().cloned().chain([field]).collect();
    let synced_at: ArrayRef = Arc::new(synced_at);
    let columns = rows.columns().iter().cloned().chain([synced_at]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|e| Error::caused(Kind::Internal, "decoded columns do not fit together", e))
}
