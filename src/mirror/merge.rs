//! Making scopes equal to their answers: insert, update, delete, with history, in one transaction.
//!
//! Rows wait in a temporary staging table; what differs is found by joins, so that an unchanged row is
//! not written and keeps its `_synced_at`. There are no unique indexes: DuckDB refuses to delete and
//! insert a key in one transaction where there is one. Keys are unique because decoding makes them so
//! and because answers that may share rows are merged one after the other ([`super::commit`]).

use duckdb::Connection;

use super::changes::Touched;
use super::guard::{self, Limits};
use super::state::fetched::rows_of;
use crate::catalog::{EXTRA_COLUMN, LINE_NUMBER, Resource};
use crate::decode::Decoded;
use crate::error::Result;
use crate::sql::{self, db, scalar_i64};

/// What a merge did to one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Merged {
    pub inserted: u64,
    pub(crate) updated: u64,
    pub(crate) deleted: u64,
    /// Of the updated rows those that are no other version, and keep their `_synced_at`.
    pub(crate) same_version: u64,
    /// Rows that would have left but for the guard or a doubt (docs/architecture.md, "Deletion").
    pub(crate) held: u64,
}

impl Merged {
    /// Adds another merge's figures.
    pub(crate) fn add(&mut self, other: Merged) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.same_version += other.same_version;
        self.held += other.held;
    }

    /// Whether a row of the table was written.
    pub(crate) fn changed(&self) -> bool {
        self.inserted + self.updated + self.deleted > 0
    }

    /// Whether a row, or a version of one, was written that has a `_synced_at` of its own.
    pub(crate) fn wrote_versions(&self) -> bool {
        self.inserted + self.updated > self.same_version
    }
}

/// How a merge goes about deletions and history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// `history.tables` names this table.
    pub(crate) history: bool,
    /// What holds removals back; `None` where nothing does.
    pub(crate) limits: Option<Limits>,
    /// The permission for a part of the rows is not granted: these stay.
    pub(crate) withheld: bool,
}

/// Name of the staging table of a resource.
pub(super) fn stage_name(resource: &Resource) -> String {
    sql::ident(&format!("stage_{}", resource.table))
}

/// Creates the empty staging table.
pub(super) fn create_stage(conn: &Connection, resource: &Resource) -> Result<()> {
    let columns: Vec<String> = resource
        .columns
        .iter()
        .map(|c| format!("{} {}", sql::ident(&c.name), c.kind.sql()))
        .chain(["_extra VARCHAR".to_owned()])
        .collect();
    let sql =
        format!("CREATE OR REPLACE TEMP TABLE {} ({})", stage_name(resource), columns.join(", "));
    conn.execute_batch(&sql).map_err(|e| db("cannot create a staging table", e))
}

/// Fills the resource's staging table, made anew, with decoded rows.
pub(super) fn stage_rows(
    conn: &Connection,
    resource: &Resource,
    decoded: &[&Decoded],
) -> Result<()> {
    create_stage(conn, resource)?;
    let failed = |e| db(&format!("cannot stage rows of {}", resource.table), e);
    let mut appender = conn.appender(&format!("stage_{}", resource.table)).map_err(failed)?;
    for rows in decoded.iter().filter(|rows| rows.rows.num_rows() > 0) {
        appender.append_record_batch(rows.rows.clone()).map_err(failed)?;
    }
    // Errors of appended rows surface here and nowhere else.
    appender.flush().map_err(failed)
}

/// Makes the rows of the staged scopes equal to the staged rows.
///
/// Reads `temp.stage_scopes(id, part, complete, …)` and the resource's staging table; `now` is the
/// SQL literal of this commit's time. `redefined` are the columns whose definition is newer than the
/// table, with the generation since which they are what they are: they make no version of rows that
/// were last fetched before it.
pub(super) fn merge(
    conn: &Connection,
    resource: &Resource,
    rules: Rules,
    redefined: &[(String, i64)],
    now: &str,
) -> Result<Merged> {
    let sql = Sql::new(resource, redefined);
    let run = |what: &str, sql: &str| {
        conn.execute(sql, [])
            .map(|n| n as u64)
            .map_err(|e| db(&format!("cannot {what} {}", resource.table), e))
    };
    run("look for absent rows of", &sql.gone(rules.withheld))?;
    run("compare", &sql.diff())?;
    let mut found = Found::of(conn)?;
    let held = match rules.limits {
        Some(limits) if found.gone > 0 => guard::hold(conn, resource, limits, found.gone)?,
        Some(_) | None => 0,
    };
    found.gone -= held;
    let merged = found.write(conn, resource, rules.history, now)?;
    if let Some(limits) = rules.limits {
        guard::note_removed(conn, &resource.table, merged.deleted, limits.now)?;
    }
    Ok(Merged { held, ..merged })
}

/// Whose rows the last merge of this table wrote, as long as its staging table is there.
pub(super) fn touched(conn: &Connection, resource: &Resource) -> Result<Touched> {
    let Some(column) = resource.scope_in_key().map(sql::ident) else { return Ok(Touched::Any) };
    Touched::query(
        conn,
        resource,
        &format!(
            "SELECT s.{column} FROM temp.{} s JOIN temp.diff d ON s.rowid = d.sid \
             UNION ALL SELECT scope FROM temp.gone",
            stage_name(resource)
        ),
    )
}

/// Writes what `temp.gone(mid)` and `temp.diff(sid, mid, synced, versioned)` say: `mid` are rows of
/// the table, `sid` of its staging table; `mid` is NULL for a new row. A row that is not `versioned`
/// leaves no version and keeps its `synced`.
pub(super) fn write_differences(
    conn: &Connection,
    resource: &Resource,
    history: bool,
    now: &str,
) -> Result<Merged> {
    Found::of(conn)?.write(conn, resource, history, now)
}

/// How many rows `temp.diff` and `temp.gone` name.
struct Found {
    inserted: u64,
    updated: u64,
    same_version: u64,
    gone: u64,
}

impl Found {
    fn of(conn: &Connection) -> Result<Found> {
        let sql = "SELECT count(*) FILTER (WHERE mid IS NULL), \
                   count(*) FILTER (WHERE mid IS NOT NULL), \
                   count(*) FILTER (WHERE mid IS NOT NULL AND NOT versioned), \
                   (SELECT count(*) FROM temp.gone) FROM temp.diff";
        conn.query_row(sql, [], |row| {
            let count = |n| row.get::<_, i64>(n).map(i64::unsigned_abs);
            Ok(Found {
                inserted: count(0)?,
                updated: count(1)?,
                same_version: count(2)?,
                gone: count(3)?,
            })
        })
        .map_err(|e| db("cannot count differences", e))
    }

    /// See [`write_differences`].
    fn write(
        &self,
        conn: &Connection,
        resource: &Resource,
        history: bool,
        now: &str,
    ) -> Result<Merged> {
        let &Found { inserted, updated, same_version, gone } = self;
        let sql = Sql::new(resource, &[]);
        let run = |what: &str, sql: &str| {
            conn.execute(sql, [])
                .map(drop)
                .map_err(|e| db(&format!("cannot {what} {}", resource.table), e))
        };
        if history && updated > 0 {
            run("keep earlier versions of", &sql.keep_updated(now))?;
        }
        if gone > 0 {
            if history {
                run("keep deleted rows of", &sql.keep_gone(now, "deleted"))?;
            }
            run("delete from", &sql.delete("SELECT mid FROM temp.gone"))?;
        }
        if updated > 0 {
            run("replace rows of", &sql.delete("SELECT mid FROM temp.diff WHERE mid IS NOT NULL"))?;
        }
        if inserted + updated > 0 {
            run("insert into", &sql.insert(now))?;
        }
        Ok(Merged { inserted, updated, deleted: gone, same_version, held: 0 })
    }
}

/// Deletes the rows that `condition` (on the table's columns) selects, and keeps them in history.
pub(super) fn remove(
    conn: &Connection,
    resource: &Resource,
    history: bool,
    condition: &str,
    change: &str,
    now: &str,
) -> Result<u64> {
    let sql = Sql::new(resource, &[]);
    let run = |sql: &str| {
        conn.execute(sql, [])
            .map(|n| n as u64)
            .map_err(|e| db(&format!("cannot remove rows of {}", resource.table), e))
    };
    let scope = resource.scope_column().map_or("NULL".to_owned(), sql::ident);
    run(&format!(
        "CREATE OR REPLACE TEMP TABLE gone AS SELECT rowid AS mid, {scope} AS scope FROM {} \
         WHERE {condition}",
        sql.main
    ))?;
    let gone = scalar_i64(conn, "SELECT count(*) FROM temp.gone")? as u64;
    if gone > 0 {
        if history {
            run(&sql.keep_gone(now, change))?;
        }
        run(&sql.delete("SELECT mid FROM temp.gone"))?;
    }
    Ok(gone)
}

/// Columns that are compared, with whether they are volatile: all but the key, and `_extra`. Where a
/// journal's line stands is no part of it.
pub(super) fn compared(resource: &Resource) -> impl Iterator<Item = (&str, bool)> {
    resource
        .columns
        .iter()
        .filter(|c| !resource.key.contains(&c.name))
        .filter(|c| !(resource.has_line_ids() && c.name == LINE_NUMBER))
        .map(|c| (c.name.as_str(), c.volatile))
        .chain([(EXTRA_COLUMN, false)])
}

/// SQL for a column of the staged row `s` being another than that of the mirrored row `m`.
pub(super) fn differs(name: &str) -> String {
    let name = sql::ident(name);
    format!("s.{name} IS DISTINCT FROM m.{name}")
}

/// SQL for any difference between `s` and `m`, and for one that makes a version. `redefined` columns
/// make none in rows that were last fetched before: their `definition` is in `fetched`.
pub(super) fn differences(
    resource: &Resource,
    redefined: &[(String, i64)],
    fetched: &str,
) -> (String, String) {
    let any: Vec<String> = compared(resource).map(|(name, _)| differs(name)).collect();
    let versioned: Vec<String> = compared(resource)
        .filter(|(_, volatile)| !volatile)
        .map(|(name, _)| match redefined.iter().find(|(n, _)| n == name) {
            None => differs(name),
            // `_extra` and a redefined column trade values when our definition changes.
            Some((_, since)) => {
                format!("({} AND coalesce({fetched}.definition, 0) >= {since})", differs(name))
            }
        })
        .collect();
    (any.join(" OR "), versioned.join(" OR "))
}

/// The statements for one table.
struct Sql<'a> {
    resource: &'a Resource,
    redefined: &'a [(String, i64)],
    main: String,
    history: String,
    stage: String,
}

impl<'a> Sql<'a> {
    fn new(resource: &'a Resource, redefined: &'a [(String, i64)]) -> Sql<'a> {
        let table = sql::ident(&resource.table);
        Sql {
            resource,
            redefined,
            main: format!("main.{table}"),
            history: format!("history.{table}"),
            stage: format!("temp.{}", stage_name(resource)),
        }
    }

    fn same_key(&self) -> String {
        self.resource
            .key
            .iter()
            .map(|k| format!("s.{0} = m.{0}", sql::ident(k)))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    fn diff(&self) -> String {
        let (any, versioned) = differences(self.resource, self.redefined, "f");
        let fetched = if self.redefined.is_empty() {
            String::new()
        } else {
            let id = match self.resource.scope_column() {
                Some(column) => format!("s.{}", sql::ident(column)),
                None => "0".to_owned(),
            };
            format!(
                " LEFT JOIN ({}) f ON f.table_name = {} AND f.part = '' AND f.id = {id}",
                rows_of("SELECT id FROM temp.stage_scopes"),
                sql::text(self.resource.read_with())
            )
        };
        format!(
            "CREATE OR REPLACE TEMP TABLE diff AS \
             SELECT s.rowid AS sid, m.rowid AS mid, m._synced_at AS synced, ({}) AS versioned \
             FROM {} s LEFT JOIN {} m ON {}{fetched} WHERE m.rowid IS NULL OR {}",
            versioned,
            self.stage,
            self.main,
            self.same_key(),
            any
        )
    }

    fn gone(&self, withheld: bool) -> String {
        let scope = match self.resource.scope_column() {
            Some(column) => format!("m.{} = c.id", sql::ident(column)),
            None => "true".to_owned(),
        };
        format!(
            "CREATE OR REPLACE TEMP TABLE gone AS \
             SELECT m.rowid AS mid, c.id AS scope FROM {} m JOIN temp.stage_scopes c ON {scope} \
             WHERE c.complete AND NOT EXISTS (SELECT 1 FROM {} s WHERE {}){}",
            self.main,
            self.stage,
            self.same_key(),
            self.may_leave(withheld)
        )
    }

    /// What absence says nothing of: what has passed, in answers that look ahead, what lies behind the
    /// end of one that is full, and what we are not permitted to see.
    fn may_leave(&self, withheld: bool) -> String {
        let mut conditions = String::new();
        if let Some(column) = &self.resource.stays_after {
            let passes = sql::ident(column);
            conditions += &format!(" AND (m.{passes} IS NULL OR m.{passes} > c.sent::TIMESTAMPTZ)");
            if let Some(most) = self.resource.at_most {
                let of_scope = match self.resource.scope_column().map(sql::ident) {
                    Some(scope) => format!("s.{scope} = m.{scope}"),
                    None => "true".to_owned(),
                };
                conditions += &format!(
                    " AND NOT EXISTS (SELECT 1 FROM {} s WHERE {of_scope} \
                       HAVING count(*) >= {most} AND max(s.{passes}) <= m.{passes})",
                    self.stage
                );
            }
        }
        if let Some(partial) = self.resource.partial.as_ref().filter(|_| withheld) {
            let column = sql::ident(&partial.column);
            let values = sql::texts(partial.values.iter().map(String::as_str));
            conditions += &format!(" AND (m.{column} IS NULL OR m.{column} NOT IN ({values}))");
        }
        conditions
    }

    fn columns(&self, alias: &str) -> String {
        self.resource
            .columns
            .iter()
            .map(|c| format!("{alias}.{}", sql::ident(&c.name)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Copies rows of main into history; `from` joins them as `m`. No version ends before it began, whatever the clock does.
    fn keep(&self, from: &str, now: &str, change: &str) -> String {
        format!(
            "INSERT INTO {} BY NAME SELECT {}, m._synced_at, m._extra, m._synced_at AS _valid_from, \
             greatest({now}, m._synced_at) AS _valid_to, {} AS _change FROM {} m {from}",
            self.history,
            self.columns("m"),
            sql::text(change),
            self.main
        )
    }

    fn keep_updated(&self, now: &str) -> String {
        self.keep("JOIN temp.diff d ON m.rowid = d.mid WHERE d.versioned", now, "updated")
    }

    fn keep_gone(&self, now: &str, change: &str) -> String {
        self.keep("JOIN temp.gone g ON m.rowid = g.mid", now, change)
    }

    fn delete(&self, rows: &str) -> String {
        format!("DELETE FROM {} WHERE rowid IN ({rows})", self.main)
    }

    fn insert(&self, now: &str) -> String {
        format!(
            "INSERT INTO {} BY NAME SELECT {}, s._extra, \
             CASE WHEN d.mid IS NULL OR d.versioned THEN {now} ELSE d.synced END AS _synced_at \
             FROM {} s JOIN temp.diff d ON s.rowid = d.sid",
            self.main,
            self.columns("s"),
            self.stage
        )
    }
}
