//! Rewriting texts that are stored already, wherever they stand: what privacy hides now, and what is
//! forgotten.

use std::collections::BTreeMap;

use duckdb::{Connection, params};

use super::changes::count_changes;
use crate::error::Result;
use crate::sql::{self, db, query};

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
        let distinct: Vec<String> = query(
            conn,
            &format!(
                "SELECT DISTINCT {text} FROM {table} t WHERE t.{column} IS NOT NULL AND ({among})"
            ),
            |row| row.get(0),
        )?;
        if !stage(conn, &distinct, after)? {
            return Ok(0);
        }
        conn.execute(
            &format!(
                "UPDATE {table} AS t SET {column} = {back} FROM temp.stricter m \
                 WHERE {text} = m.before AND ({among})"
            ),
            [],
        )
        .map_err(|e| db(&format!("cannot rewrite {table}"), e))
    }
}

/// Fills `temp.stricter(before, after)` with those of the texts that `after` changes; `false` where
/// there are none.
fn stage(
    conn: &Connection,
    texts: &[String],
    after: impl Fn(&str) -> Option<String>,
) -> Result<bool> {
    let changed: Vec<(&String, Option<String>)> = texts
        .iter()
        .map(|before| (before, after(before)))
        .filter(|(before, after)| after.as_ref() != Some(*before))
        .collect();
    if changed.is_empty() {
        return Ok(false);
    }
    let failed = |e| db("cannot stage what is rewritten", e);
    conn.execute_batch("CREATE OR REPLACE TEMP TABLE stricter (before VARCHAR, after VARCHAR)")
        .map_err(failed)?;
    let mut appender = conn.appender("stricter").map_err(failed)?;
    for (before, after) in changed {
        appender.append_row(params![before, after]).map_err(failed)?;
    }
    appender.flush().map_err(failed)?;
    Ok(true)
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
