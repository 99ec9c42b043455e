//! The columns of what is published, as every reader of Parquet takes them.

use std::collections::BTreeMap;
use std::rc::Rc;

use duckdb::Connection;

use super::manifest;
use crate::error::Result;
use crate::sql;

/// The columns of a file, in their order.
pub(super) struct Columns {
    pub(super) all: Vec<Column>,
    /// Hash of their names and types: an older file of the same rows may lack one.
    pub(super) hash: String,
    /// What to select: all columns as they are, but GUIDs as text. Spark opens no file that has Parquet's
    /// UUID.
    pub(super) select: String,
}

/// A column as it is written.
pub(super) struct Column {
    pub(super) name: String,
    /// Its type as DuckDB says it: `DECIMAL(18,2)`.
    pub(super) kind: String,
}

impl Columns {
    /// Those of every table of schema `main`, by its name.
    pub(super) fn of_tables(conn: &Connection) -> Result<BTreeMap<String, Rc<Columns>>> {
        let mut tables: BTreeMap<String, Vec<Column>> = BTreeMap::new();
        let all = sql::query(
            conn,
            "SELECT table_name, column_name, data_type FROM duckdb_columns() \
             WHERE database_name = current_database() AND schema_name = 'main' \
             ORDER BY table_name, column_index",
            |row| Ok((row.get(0)?, Column { name: row.get(1)?, kind: row.get(2)? })),
        )?;
        for (table, column) in all {
            tables.entry(table).or_default().push(column);
        }
        Ok(tables.into_iter().map(|(table, all)| (table, Rc::new(Columns::new(all)))).collect())
    }

    /// Those of anything that can be read like a table.
    pub(super) fn of(conn: &Connection, source: &str) -> Result<Columns> {
        let all = sql::query(
            conn,
            &format!("SELECT column_name, column_type FROM (DESCRIBE FROM {source})"),
            |row| Ok(Column { name: row.get(0)?, kind: row.get(1)? }),
        );
        let all = all.map_err(|e| e.within(format!("cannot read the columns of {source}")))?;
        Ok(Columns::new(all))
    }

    /// `all`: as they are in the store.
    fn new(mut all: Vec<Column>) -> Columns {
        let (mut replaced, mut written) = (Vec::new(), String::new());
        for Column { name, kind } in &mut all {
            let as_written = kind.replace("UUID", "VARCHAR");
            if as_written != *kind {
                let name = sql::ident(name);
                replaced.push(format!("CAST({name} AS {as_written}) AS {name}"));
                *kind = as_written;
            }
            written.push_str(&format!("{name} {kind}, "));
        }
        let select = if replaced.is_empty() {
            "*".to_owned()
        } else {
            format!("* REPLACE ({})", replaced.join(", "))
        };
        Columns { all, hash: manifest::fingerprint(&written), select }
    }

    /// The type of a column.
    pub(super) fn kind(&self, name: &str) -> Option<&str> {
        self.all.iter().find(|column| column.name == name).map(|column| column.kind.as_str())
    }
}
