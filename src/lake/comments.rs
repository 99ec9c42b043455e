//! The comments of tables, columns and views, which the lake keeps too.

use std::collections::BTreeMap;

use super::engine::{Engine, LAKE};
use super::tables::Table;
use crate::error::Result;
use crate::sql;

/// What the lake's tables and columns are commented with: by schema, table, and column or nothing.
pub(super) struct Comments(BTreeMap<(String, String, String), String>);

impl Comments {
    /// # Errors
    /// `Lake`.
    pub(super) fn read(engine: &Engine) -> Result<Comments> {
        let rows = engine.query(
            "read the lake",
            &format!(
                "SELECT schema_name, table_name, '', comment FROM duckdb_tables() \
                 WHERE database_name = '{LAKE}' AND comment IS NOT NULL \
                 UNION ALL SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() \
                 WHERE database_name = '{LAKE}' AND comment IS NOT NULL"
            ),
            |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?)),
        )?;
        Ok(Comments(rows.into_iter().collect()))
    }

    fn of(&self, table: &Table, column: &str) -> Option<&str> {
        let key = (table.schema.clone(), table.name.clone(), column.to_owned());
        self.0.get(&key).map(String::as_str)
    }

    /// Writes those of a table that are others; `is_new`: it has none yet.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn write(&self, engine: &Engine, table: &Table, is_new: bool) -> Result<()> {
        let differs = |column: &str, wanted: Option<&str>| {
            wanted != self.of(table, column).filter(|_| !is_new)
        };
        let text = |comment: Option<&str>| comment.map_or("NULL".to_owned(), sql::text);
        let within = table.within(LAKE);
        let mut statements = Vec::new();
        if differs("", table.comment.as_deref()) {
            let comment = text(table.comment.as_deref());
            statements.push(format!("COMMENT ON TABLE {within} IS {comment}"));
        }
        for column in &table.columns {
            let wanted = column.comment.as_deref();
            if differs(&column.name, wanted) {
                let name = sql::ident(&column.name);
                statements.push(format!("COMMENT ON COLUMN {within}.{name} IS {}", text(wanted)));
            }
        }
        if statements.is_empty() {
            return Ok(());
        }
        engine.run(&format!("comment {} in the lake", table.path()), &statements.join("; "))
    }
}
