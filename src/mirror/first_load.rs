//! Rows of scopes that the table does not know yet: there is nothing to compare them with, so they go
//! straight into it. That is most of a first load.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use duckdb::Connection;
use jiff::Timestamp;

use super::merge::Merged;
use crate::catalog::{EXTRA_COLUMN, Resource, SYNCED_AT_COLUMN};
use crate::decode::{Decoded, Load};
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db, scalar_i64};

/// Scopes that are remembered per table, at most: a check of more is not what costs.
const MOST_REMEMBERED: usize = 10_000;

/// Of tables that were empty when this process first wrote to them, the scopes that may have rows
/// since: all that were ever given to it, whether or not their commit went well. Rows come into these
/// tables by [`super::commit`] alone, in the writer that owns this.
#[derive(Default)]
pub(super) struct KnownScopes {
    /// `None`: the table had rows before, or has too many scopes.
    tables: HashMap<String, Option<HashSet<i64>>>,
}

impl KnownScopes {
    /// Whether the table holds no row of the scopes, nor any that `decoded` could be the next version
    /// of; from now on it may. `None`: the table is to be asked ([`is_fresh`]).
    pub(super) fn is_fresh(
        &mut self,
        conn: &Connection,
        resource: &Resource,
        decoded: &[&Decoded],
        scopes: &HashSet<i64>,
    ) -> Result<Option<bool>> {
        let Some(column) = resource.scope_column() else {
            return is_empty(conn, resource).map(Some);
        };
        if !decoded.iter().all(|rows| is_within(&rows.rows, column, scopes)) {
            // Rows of any scope may come in with these.
            self.tables.insert(resource.table.clone(), None);
            return Ok(Some(false));
        }
        if !self.tables.contains_key(&resource.table) {
            let begun = is_empty(conn, resource)?.then(HashSet::new);
            self.tables.insert(resource.table.clone(), begun);
        }
        let Some(known) = self.tables.get_mut(&resource.table) else { return Ok(None) };
        let Some(ids) = known else { return Ok(None) };
        let is_fresh = ids.is_disjoint(scopes);
        ids.extend(scopes);
        if ids.len() > MOST_REMEMBERED {
            *known = None;
        }
        Ok(Some(is_fresh))
    }
}

fn is_empty(conn: &Connection, resource: &Resource) -> Result<bool> {
    let rows = format!("SELECT count(*) FROM main.{}", sql::ident(&resource.table));
    Ok(scalar_i64(conn, &rows)? == 0)
}

/// Whether the table holds no row of the scopes in `temp.stage_scopes`.
pub(super) fn is_fresh(conn: &Connection, resource: &Resource) -> Result<bool> {
    let Some(column) = resource.scope_column() else { return is_empty(conn, resource) };
    // This way round, so that the scopes are looked for in the table and not its rows among the scopes.
    let known = format!(
        "SELECT count(*) FROM main.{} WHERE {} IN (SELECT id FROM temp.stage_scopes)",
        sql::ident(&resource.table),
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

/// Whether the load has a row of a scope that it did not ask for.
pub(super) fn has_strays(load: &Load) -> bool {
    let resource = &load.decoded.resource;
    let Some(column) = resource.scope_column().filter(|_| resource.records_name_their_scope())
    else {
        return false;
    };
    let asked = load.scopes.iter().map(|scope| scope.id).collect();
    !is_within(&load.decoded.rows, column, &asked)
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
