//! The lines of a journal's month that differ from those that are mirrored, as text.

use std::sync::Arc;

use duckdb::Connection;

use super::lines;
use super::merge;
use super::state::batch;
use crate::catalog::{Group, LINE_NUMBER, Resource};
use crate::decode::Decoded;
use crate::error::Result;
use crate::sql::{self, db, scalar_i64};

/// Cells as text, by name, in the order of the columns; NULL cells are left out.
pub(crate) type Cells = Vec<(Arc<str>, Box<str>)>;

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

/// The lines of a month, as an answer would have them mirrored.
#[derive(Debug)]
pub(crate) struct MonthLines {
    /// How many there are in the source and in the mirror.
    pub(crate) counts: (usize, usize),
    /// Those that may differ: of a month that is as it was, few. A line that stands at its place with the same cells, and
    /// has no annotations, is left out on both sides.
    pub(crate) source: Vec<Line>,
    pub(crate) mirror: Vec<Line>,
}

/// The lines of an answer of a journal, and those that are mirrored (`of_month`: SQL). What is equal stays in DuckDB: as
/// text a large month would take a hundred times as much.
///
/// # Errors
/// Those of the store.
pub(crate) fn journal_lines(
    conn: &Connection,
    decoded: &Decoded,
    line_key: &str,
    of_month: &str,
) -> Result<MonthLines> {
    let resource = &decoded.resource;
    merge::stage_rows(conn, resource, &[decoded])?;
    for child in &decoded.children {
        merge::stage_rows(conn, &child.resource, &[child])?;
    }
    let staged = |r: &Resource| format!("(FROM temp.{})", merge::stage_name(r));
    let mirrored = |r: &Resource| format!("(FROM main.{} WHERE {of_month})", sql::ident(&r.table));
    let sides: [&dyn Fn(&Resource) -> String; 2] = [&staged, &mirrored];

    let same = lines::telling(resource).map(|name| {
        let name = sql::ident(name);
        format!("s.{name} IS NOT DISTINCT FROM m.{name}")
    });
    let same = same.collect::<Vec<_>>().join(" AND ");
    let children = decoded.children.iter().map(|child| &child.resource);
    let noted = children
        .flat_map(|child| sides.map(|of| of(child)))
        .map(|rows| format!(" AND s.{LINE_NUMBER} NOT IN (SELECT {LINE_NUMBER} FROM {rows})"));
    let noted: String = noted.collect();
    batch(
        conn,
        &format!(
            "CREATE OR REPLACE TEMP TABLE equal_lines AS SELECT s.{LINE_NUMBER} AS number \
             FROM {} s JOIN {} m ON s.{LINE_NUMBER} = m.{LINE_NUMBER} WHERE {same}{noted}",
            staged(resource),
            mirrored(resource)
        ),
    )?;
    let read = |from: &dyn Fn(&Resource) -> String| -> Result<(usize, Vec<Line>)> {
        let all = scalar_i64(conn, &format!("SELECT count(*) FROM {}", from(resource)))?;
        let others = format!(
            "{} WHERE {LINE_NUMBER} NOT IN (SELECT number FROM temp.equal_lines)",
            from(resource)
        );
        let of_lines = texts(conn, resource, &others, "0", Some(line_key))?;
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
        Ok((usize::try_from(all).unwrap_or(0), lines))
    };
    let (of_source, source) = read(&staged)?;
    let (of_mirror, mirror) = read(&mirrored)?;
    batch(conn, "DROP TABLE temp.equal_lines")?;
    Ok(MonthLines { counts: (of_source, of_mirror), source, mirror })
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
    let names: Vec<Arc<str>> = lines::telling(resource).map(Arc::from).collect();
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
                    cells.push((Arc::clone(name), text.into_boxed_str()));
                }
            }
            Ok(TextRow { number: row.get(0)?, position: row.get(1)?, key: row.get(2)?, cells })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
