//! Holding answers against what is mirrored, cell by cell, without writing them
//! (docs/architecture.md, "Control totals").

use std::collections::HashMap;

use duckdb::Connection;

use super::merge;
use super::state::{State, list};
use crate::catalog::Resource;
use crate::decode::Decoded;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db};

/// A cell that differs, or a row that one side lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellDifference {
    /// The case of the row.
    pub(crate) id: i64,
    /// The row's key, its values joined by `/`.
    pub(crate) key: String,
    /// `None`: the whole row.
    pub(crate) column: Option<String>,
    /// As text; of a whole row, something where it is there.
    pub(crate) source: Option<String>,
    pub(crate) mirror: Option<String>,
}

/// What a comparison came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Compared {
    /// Rows of each case: the source's, and the mirror's.
    pub(crate) rows: HashMap<i64, (u64, u64)>,
    pub(crate) cells: Vec<CellDifference>,
}

/// Compares decoded rows of the scopes `ids` with the mirrored ones. Volatile columns are left out:
/// they move without any change date. So are rows that only a permission shows which is withheld
/// (`[partial]` of the resource file): those mirrored stay, and no answer has them.
///
/// # Errors
/// Those of the store.
pub(crate) fn compare(
    conn: &Connection,
    resource: &Resource,
    decoded: &[&Decoded],
    ids: &[i64],
) -> Result<Compared> {
    if ids.is_empty() {
        return Ok(Compared::default());
    }
    merge::stage_rows(conn, resource, decoded)?;
    let scope = resource.scope_column().ok_or_else(|| {
        Error::new(Kind::Internal, format!("{} has no scopes to compare", resource.table))
    })?;
    let scope = sql::ident(scope);
    let shown_rows = match &resource.partial {
        Some(partial) if State::new(conn).stale_marks().is_withheld(&resource.table)? => {
            let column = sql::ident(&partial.column);
            let values = sql::texts(partial.values.iter().map(String::as_str));
            format!("({column} IS NULL OR {column} NOT IN ({values}))")
        }
        _ => "true".to_owned(),
    };
    let main = format!(
        "main.{} WHERE {scope} IN ({}) AND {shown_rows}",
        sql::ident(&resource.table),
        list(ids)
    );
    let stage = format!("temp.{} WHERE {shown_rows}", merge::stage_name(resource));
    let failed = |e| db(&format!("cannot compare {}", resource.table), e);
    let counts = format!(
        "SELECT id, sum(source)::UBIGINT, sum(mirror)::UBIGINT FROM ( \
           SELECT {scope} AS id, 1 AS source, 0 AS mirror FROM {stage} \
           UNION ALL SELECT {scope}, 0, 1 FROM {main}) GROUP BY id"
    );
    let mut statement = conn.prepare(&counts).map_err(failed)?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
        .and_then(Iterator::collect)
        .map_err(failed)?;
    let mut statement = conn.prepare(&cells_of(resource, &scope, &stage, &main)).map_err(failed)?;
    let cells = statement
        .query_map([], |row| {
            Ok(CellDifference {
                id: row.get(0)?,
                key: row.get(1)?,
                column: row.get(2)?,
                source: row.get(3)?,
                mirror: row.get(4)?,
            })
        })
        .and_then(Iterator::collect)
        .map_err(failed)?;
    Ok(Compared { rows, cells })
}

/// A query for the cells that differ between `stage` and `main`, both of `resource`.
fn cells_of(resource: &Resource, scope: &str, stage: &str, main: &str) -> String {
    let keys: Vec<String> = resource.key.iter().map(|key| sql::ident(key)).collect();
    let same: Vec<String> = keys.iter().map(|key| format!("s.{key} = m.{key}")).collect();
    let shown: Vec<String> =
        keys.iter().map(|key| format!("coalesce(s.{key}, m.{key})::VARCHAR")).collect();
    let cell = |name: &str, source: &str, mirror: &str| {
        format!(
            "{{'name': {name}::VARCHAR, 'source': {source}::VARCHAR, 'mirror': {mirror}::VARCHAR}}"
        )
    };
    let cells: Vec<String> = merge::compared(resource)
        .filter(|(_, volatile)| !volatile)
        .map(|(name, _)| {
            let column = sql::ident(name);
            let both = cell(&sql::text(name), &format!("s.{column}"), &format!("m.{column}"));
            format!("CASE WHEN {} THEN {both} END", merge::differs(name))
        })
        .collect();
    format!(
        "SELECT id, key, cell['name'], cell['source'], cell['mirror'] FROM ( \
           SELECT coalesce(s.{scope}, m.{scope}) AS id, concat_ws('/', {shown}) AS key, \
             unnest(CASE WHEN s._here IS NULL THEN [{extra}] WHEN m._here IS NULL THEN [{missing}] \
               ELSE [{cells}] END) AS cell \
           FROM (SELECT *, true AS _here FROM {stage}) s \
           FULL JOIN (SELECT *, true AS _here FROM {main}) m ON {same}) \
         WHERE cell IS NOT NULL ORDER BY ALL",
        shown = shown.join(", "),
        extra = cell("NULL", "NULL", "'a row'"),
        missing = cell("NULL", "'a row'", "NULL"),
        cells = cells.join(", "),
        same = same.join(" AND "),
    )
}
