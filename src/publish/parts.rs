//! Which files a snapshot has: one per table, per month of a journal, and per report
//! (docs/architecture.md, "Published means finished").

use std::collections::BTreeMap;
use std::rc::Rc;

use duckdb::Connection;

use super::Snapshot;
use super::columns::Columns;
use super::database::snapshot_select;
use super::inputs::Inputs;
use crate::error::{Error, Kind, Result};
use crate::mirror::reports;
use crate::sql::{self, db};

/// Name of the one file of a table or report.
const DATA_FILE: &str = "data.parquet";
/// Name of the one file of a journal without any line: it has the columns and no rows, so that
/// `revenue_journals/*.parquet` always finds a file to read.
const EMPTY_FILE: &str = "empty.parquet";
/// The column that makes a table a journal: the first day of the month that a line belongs to.
const MONTH_COLUMN: &str = "journal_month";

/// One file to write.
pub(super) struct Part {
    /// Folder within the snapshot: `cases`, `report/signed_cases`.
    pub(crate) folder: String,
    /// Name of the file within it.
    pub(crate) file: String,
    /// Name of the table in the manifest: `cases`, `report.signed_cases`.
    pub(crate) table: String,
    /// Where the rows are: `main."cases"`.
    source: String,
    /// Which of them.
    condition: Option<String>,
    /// Change counter of these rows in the store; `None` where nothing counts them.
    pub(crate) changes: Option<i64>,
    /// Of a report: see [`Inputs::of_report`].
    pub(super) inputs: Option<String>,
    /// `None`: nobody asked yet. To ask costs planning the report, and `inputs` stand for them too.
    pub(super) columns: Option<Rc<Columns>>,
}

impl Part {
    /// From the snapshot's folder on: `revenue_journals/2026-10.parquet`.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.folder, self.file)
    }

    pub(super) fn columns(&self, conn: &Connection) -> Result<Rc<Columns>> {
        match &self.columns {
            Some(columns) => Ok(Rc::clone(columns)),
            None => Columns::of(conn, &self.source).map(Rc::new),
        }
    }

    /// Gives the rows.
    pub(super) fn query(&self, columns: &Columns) -> String {
        let rows = format!("SELECT {} FROM {}", columns.select, self.source);
        match &self.condition {
            Some(condition) => format!("{rows} WHERE {condition}"),
            None => rows,
        }
    }
}

/// All files of a snapshot of these tables of schema `main`, and of the reports that the store has.
pub(super) fn all(conn: &Connection, tables: &[&str], snapshot: &Snapshot) -> Result<Vec<Part>> {
    let counters = Counters::read(conn)?;
    let of_tables = Columns::of_tables(conn)?;
    let mut parts = Vec::new();
    for table in tables {
        let columns = of_tables.get(*table).ok_or_else(|| {
            Error::new(Kind::Internal, format!("the store has no table main.{table} to publish"))
        })?;
        let part = |file: &str, condition: Option<String>, changes: Option<i64>| Part {
            folder: (*table).to_owned(),
            file: file.to_owned(),
            table: (*table).to_owned(),
            source: format!("main.{}", sql::ident(table)),
            condition,
            changes,
            inputs: None,
            columns: Some(Rc::clone(columns)),
        };
        if columns.kind(MONTH_COLUMN) != Some("DATE") {
            parts.push(part(DATA_FILE, None, counters.of_table(table)));
            continue;
        }
        let months = months(conn, table)?;
        if months.is_empty() {
            parts.push(part(EMPTY_FILE, None, None));
        }
        for month in months {
            let changes = counters.of_month(table, &month.name);
            let condition = Some(month.condition());
            parts.push(part(&format!("{}.parquet", month.name), condition, changes));
        }
    }
    let mut inputs = Inputs::read(conn, &counters)?;
    for name in reports::relations(conn)? {
        let (source, inputs) = match name {
            // The store's own row is that of the last published database.
            "snapshot" => (format!("({})", snapshot_select(snapshot)), None),
            name => (format!("report.{}", sql::ident(name)), inputs.of_report(name)?),
        };
        parts.push(Part {
            folder: format!("report/{name}"),
            file: DATA_FILE.to_owned(),
            table: format!("report.{name}"),
            source,
            condition: None,
            changes: None,
            inputs,
            columns: None,
        });
    }
    Ok(parts)
}

/// `sync.changes`: how often the rows of a table, or of a month of it, were changed.
pub(super) struct Counters {
    all: BTreeMap<(String, String), i64>,
}

impl Counters {
    pub(super) fn read(conn: &Connection) -> Result<Counters> {
        let read = || -> duckdb::Result<BTreeMap<(String, String), i64>> {
            conn.prepare("SELECT table_name, part, counter FROM sync.changes")?
                .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?
                .collect()
        };
        Ok(Counters { all: read().map_err(|e| db("cannot read sync.changes", e))? })
    }

    fn get(&self, table: &str, part: &str) -> Option<i64> {
        self.all.get(&(table.to_owned(), part.to_owned())).copied()
    }

    fn of_table(&self, table: &str) -> Option<i64> {
        self.get(table, "")
    }

    /// All counters of a table, as a text; `None` where nothing counts it.
    pub(super) fn of_all(&self, table: &str) -> Option<String> {
        let from = (table.to_owned(), String::new());
        let of = self.all.range(from..).take_while(|((of, _), _)| of == table);
        let text: String = of.map(|((_, part), n)| format!("{part}={n},")).collect();
        Some(text).filter(|text| !text.is_empty())
    }

    /// What was counted for the table as a whole changed every month. Neither counter ever falls, so
    /// that an equal sum means two equal counters.
    fn of_month(&self, table: &str, month: &str) -> Option<i64> {
        self.get(table, month).map(|own| own + self.of_table(table).unwrap_or(0))
    }
}

/// A calendar month: `2026-10`, and the day it begins.
struct Month {
    name: String,
    first_day: String,
}

impl Month {
    /// The rows of this month. A range and no equality: no row can fall between two files.
    fn condition(&self) -> String {
        let day = sql::text(&self.first_day);
        format!("{MONTH_COLUMN} >= DATE {day} AND {MONTH_COLUMN} < DATE {day} + INTERVAL 1 MONTH")
    }
}

/// The months that a journal has lines of, in order. The month is part of the key, and so never
/// NULL.
fn months(conn: &Connection, table: &str) -> Result<Vec<Month>> {
    let sql = format!(
        "SELECT strftime(day, '%Y-%m'), CAST(day AS VARCHAR) FROM \
         (SELECT DISTINCT CAST(date_trunc('month', {MONTH_COLUMN}) AS DATE) AS day FROM main.{} \
          WHERE {MONTH_COLUMN} IS NOT NULL) ORDER BY day",
        sql::ident(table)
    );
    let read = || -> duckdb::Result<Vec<Month>> {
        conn.prepare(&sql)?
            .query_map([], |row| Ok(Month { name: row.get(0)?, first_day: row.get(1)? }))?
            .collect()
    };
    read().map_err(|e| db(&format!("cannot read the months of {table}"), e))
}
