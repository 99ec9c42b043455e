//! Rewriting texts that are stored already, wherever they stand: what privacy hides now, and what is
//! forgotten.

use std::collections::BTreeMap;

use duckdb::{Connection, params};

use super::changes::count_changes;
use crate::error::{Error, Result};
use crate::sql::{self, db, query, scalar_i64};

/// The texts of a column. Lists of texts are rewritten as JSON, which tells their elements apart.
pub(super) struct Texts<'a> {
    /// Quoted, with its schema.
    pub(super) table: &'a str,
    pub(super) column: &'a str,
    pub(super) is_list: bool,
}

impl<'a> Texts<'a> {
    /// Those of a column that has one in each row.
    pub(super) fn of(table: &'a str, column: &'a str) -> Texts<'a> {
        Texts { table, column, is_list: false }
    }

    /// Gives each text that `after` changes what it makes of it, `None` is NULL; returns how many rows
    /// that were. `among` is SQL for the rows `t` that are looked at.
    pub(super) fn rewrite(
        &self,
        conn: &Connection,
        among: &str,
        after: impl Fn(&str) -> Option<String>,
    ) -> Result<usize> {
        let Texts { table, column, is_list } = self;
        let column = sql::ident(column);
        let (text, back) = if *is_list {
            (format!("to_json(t.{column})::VARCHAR"), "from_json(m.after, '[\"VARCHAR\"]')")
        } else {
            (format!("t.{column}"), "m.after")
        };
        let those = format!("FROM {table} t WHERE t.{column} IS NOT NULL AND ({among})");
        // Most columns that are looked at have none.
        if scalar_i64(conn, &format!("SELECT count(*) FROM (SELECT 1 {those} LIMIT 1)"))? == 0 {
            return Ok(0);
        }
        conn.execute_batch(&format!(
            "CREATE OR REPLACE TEMP TABLE stage_texts AS SELECT DISTINCT {text} AS text {those}"
        ))
        .map_err(staging)?;
        let any = stage(conn, after)?;
        let rewritten = if any {
            conn.execute(
                &format!(
                    "UPDATE {table} AS t SET {column} = {back} FROM temp.stricter m \
                     WHERE {text} = m.before AND ({among})"
                ),
                [],
            )
            .map_err(|e| db(&format!("cannot rewrite {table}"), e))?
        } else {
            0
        };
        conn.execute_batch("DROP TABLE temp.stage_texts; DROP TABLE IF EXISTS temp.stricter")
            .map_err(staging)?;
        Ok(rewritten)
    }
}

/// So many texts are held at once: a column has as many as rows, and only DuckDB's memory is bounded
/// (`store.memory_limit`).
const TEXTS_AT_ONCE: usize = 4096;

fn staging(e: duckdb::Error) -> Error {
    db("cannot stage what is rewritten", e)
}

/// Fills `temp.stricter(before, after)` with those of `temp.stage_texts` that `after` changes; `false` where
/// there are none.
fn stage(conn: &Connection, after: impl Fn(&str) -> Option<String>) -> Result<bool> {
    let (mut last, mut any) = (-1_i64, false);
    loop {
        // The rows of a transaction that is under way have numbers of their own, which only grow.
        let texts: Vec<(i64, String)> = query(
            conn,
            &format!(
                "SELECT rowid, text FROM temp.stage_texts WHERE rowid > {last} ORDER BY rowid LIMIT {TEXTS_AT_ONCE}"
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let changed: Vec<(&String, Option<String>)> = texts
            .iter()
            .map(|(_, before)| (before, after(before)))
            .filter(|(before, after)| after.as_ref() != Some(*before))
            .collect();
        if !changed.is_empty() {
            if !any {
                let table = "CREATE OR REPLACE TEMP TABLE stricter (before VARCHAR, after VARCHAR)";
                conn.execute_batch(table).map_err(staging)?;
                any = true;
            }
            let mut appender = conn.appender("stricter").map_err(staging)?;
            for (before, after) in changed {
                appender.append_row(params![before, after]).map_err(staging)?;
            }
            appender.flush().map_err(staging)?;
        }
        match texts.last() {
            Some((row, _)) if texts.len() == TEXTS_AT_ONCE => last = *row,
            _ => return Ok(any),
        }
    }
}

/// Snapshots of the table are written anew, all of its months too.
pub(super) fn touched(conn: &Connection, table: &str) -> Result<()> {
    count_changes(conn, table, [""])?;
    let parts: BTreeMap<String, ()> = query(
        conn,
        &format!(
            "SELECT part FROM sync.changes WHERE table_name = {} AND part <> ''",
            sql::text(table)
        ),
        |row| Ok((row.get(0)?, ())),
    )?
    .into_iter()
    .collect();
    count_changes(conn, table, parts.keys())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::transaction;

    #[test]
    fn of_more_texts_than_are_held_at_once_each_is_rewritten() {
        let conn = Connection::open_in_memory().unwrap();
        let rows = 3 * TEXTS_AT_ONCE + 7;
        conn.execute_batch(&format!(
            "CREATE TABLE t AS SELECT 'n' || range AS text FROM range({rows}); \
             INSERT INTO t VALUES (NULL), ('n1'), ('kept')"
        ))
        .unwrap();
        let texts = Texts::of("main.t", "text");
        let hide = |text: &str| match text.strip_prefix('n') {
            Some("0") => None,
            Some(number) => Some(format!("x{number}")),
            None => Some(text.to_owned()),
        };
        let rewritten = transaction(&conn, || texts.rewrite(&conn, "true", hide)).unwrap();
        assert_eq!(rewritten, rows + 1);
        let there: Vec<(i64, i64, i64)> = query(
            &conn,
            "SELECT count(*) FILTER (text LIKE 'x%'), count(*) FILTER (text IS NULL), \
             count(*) FILTER (text = 'kept') FROM t",
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
        assert_eq!(there, [(i64::try_from(rows).unwrap(), 2, 1)]);
        // Nothing is left to do, and nothing of it stays.
        let again = transaction(&conn, || texts.rewrite(&conn, "text <> 'n0'", hide)).unwrap();
        assert_eq!(again, 0);
        let left = "SELECT count(*) FROM duckdb_tables() WHERE temporary";
        assert_eq!(scalar_i64(&conn, left).unwrap(), 0);
    }
}
