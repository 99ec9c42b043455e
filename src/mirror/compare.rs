//! Holding answers against what is mirrored, cell by cell, without writing them
//! (docs/architecture.md, "Control totals").

use std::collections::HashMap;

use duckdb::Connection;

use super::lines;
use super::merge;
use super::state::{State, list};
use crate::catalog::{Group, LINE_NUMBER, Resource};
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

/// Cells as text, by name, in the order of the columns; NULL cells are left out.
pub(crate) type Cells = Vec<(String, String)>;

/// A line of a journal. What no column takes is not told, and says nothing about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) number: i64,
    /// The line's own key, which can repeat.
    pub(crate) key: Option<String>,
    pub(crate) cells: Cells,
    /// Its annotations in the order of their contents, whatever that of the answer is: they are a set.
    pub(crate) notes: Vec<Note>,
}

/// An annotation of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// `annotations[2]`
    pub(crate) name: String,
    pub(crate) cells: Cells,
}

/// The lines of an answer of a journal as they would be mirrored, and those that are.
///
/// # Errors
/// Those of the store.
pub(crate) fn journal_lines(
    conn: &Connection,
    decoded: &Decoded,
    line_key: &str,
    of_month: &str,
) -> Result<(Vec<Line>, Vec<Line>)> {
    let resource = &decoded.resource;
    merge::stage_rows(conn, resource, &[decoded])?;
    for child in &decoded.children {
        merge::stage_rows(conn, &child.resource, &[child])?;
    }
    let read = |from: &dyn Fn(&Resource) -> String| -> Result<Vec<Line>> {
        let of_lines = texts(conn, resource, &from(resource), "0", Some(line_key))?;
        let line = |row: TextRow| {
            let TextRow { number, key, cells, .. } = row;
            Line { number, key, cells, notes: Vec::new() }
        };
        let mut lines: Vec<Line> = of_lines.into_iter().map(line).collect();
        for child in &decoded.children {
            let field = match &child.resource.group {
                Group::Child(group) => heck::AsSnakeCase(&group.field).to_string(),
                _ => continue,
            };
            for note in texts(conn, &child.resource, &from(&child.resource), "position", None)? {
                let at = lines.binary_search_by_key(&note.number, |line| line.number);
                if let Ok(line) = at {
                    let name = format!("{field}[{}]", note.position);
                    lines[line].notes.push(Note { name, cells: note.cells });
                }
            }
        }
        for line in &mut lines {
            line.notes.sort_by(|a, b| a.cells.cmp(&b.cells));
        }
        Ok(lines)
    };
    let source = read(&|r| format!("temp.{}", merge::stage_name(r)))?;
    let mirror = read(&|r| format!("main.{} WHERE {of_month}", sql::ident(&r.table)))?;
    Ok((source, mirror))
}

/// A row of a journal, or of its annotations, as text.
struct TextRow {
    /// That of the line.
    number: i64,
    position: i64,
    key: Option<String>,
    cells: Cells,
}

/// Rows as texts, in the order of their lines and of `position` (SQL).
fn texts(
    conn: &Connection,
    resource: &Resource,
    from: &str,
    position: &str,
    line_key: Option<&str>,
) -> Result<Vec<TextRow>> {
    let names: Vec<&str> = lines::telling(resource).collect();
    let cells: Vec<String> =
        names.iter().map(|name| format!("{}::VARCHAR", sql::ident(name))).collect();
    let key = line_key.map_or_else(|| "NULL".to_owned(), sql::ident);
    let sql = format!(
        "SELECT {LINE_NUMBER}, {position}::BIGINT, {key}::VARCHAR, {} FROM {from} ORDER BY 1, 2",
        cells.join(", ")
    );
    let failed = |e| db(&format!("cannot read the lines of {}", resource.table), e);
    let mut statement = conn.prepare(&sql).map_err(failed)?;
    let rows = statement
        .query_map([], |row| {
            let mut cells = Vec::new();
            for (i, name) in names.iter().enumerate() {
                if let Some(text) = row.get::<_, Option<String>>(3 + i)? {
                    cells.push(((*name).to_owned(), text));
                }
            }
            Ok(TextRow { number: row.get(0)?, position: row.get(1)?, key: row.get(2)?, cells })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
