//! What a commit's answers say of their scopes: fetched, at which dates, and whether that holds
//! (`sync.fetched_scopes`; docs/architecture.md, "Seen and fetched").

use std::collections::BTreeSet;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::fetched::{MARK_NOW, rows_of};
use super::{first_reads, hints};
use crate::decode::LoadedScope;
use crate::error::Result;
use crate::scope::{AnswerDigest, FailureKind, FetchStatus, Version};
use crate::sql::{db, instant, instant_param, query};

/// Collects what is to be noted of a commit, and writes it for all its tables at once: each statement
/// costs much the same for one scope as for a thousand.
pub(super) struct Noting<'a> {
    conn: &'a Connection,
    now: Timestamp,
    tables: BTreeSet<String>,
    rows: Vec<Row>,
    /// Tables of which scopes were written.
    written: BTreeSet<String>,
}

/// A scope that was answered.
struct Row {
    table: String,
    scope: LoadedScope,
    complete: bool,
    /// Its answer was not decoded, because it is the one that is mirrored.
    unchanged: bool,
}

impl<'a> Noting<'a> {
    pub(super) fn new(conn: &'a Connection, now: Timestamp) -> Noting<'a> {
        Noting { conn, now, tables: BTreeSet::new(), rows: Vec::new(), written: BTreeSet::new() }
    }

    /// Takes the scopes of a table with whether they are complete. Where rows of them are held,
    /// `temp.kept_back` says of which, and it is written at once.
    pub(super) fn add<'s>(
        &mut self,
        table: &str,
        scopes: impl Iterator<Item = (&'s LoadedScope, bool)>,
        is_held: bool,
    ) -> Result<()> {
        let rows: Vec<Row> = scopes
            .map(|(scope, complete)| Row {
                table: table.to_owned(),
                scope: scope.clone(),
                complete,
                unchanged: false,
            })
            .collect();
        let whole = !is_held && rows.iter().all(|row| row.complete);
        self.collect(table, rows, whole)
    }

    /// Takes scopes of a table whose answers were not decoded. One that is not mirrored any more as its
    /// answer says stays as it was, and so it is read again.
    pub(super) fn add_unchanged<'s>(
        &mut self,
        table: &str,
        scopes: impl Iterator<Item = &'s LoadedScope>,
    ) -> Result<()> {
        let row = |scope: &LoadedScope| Row {
            table: table.to_owned(),
            scope: scope.clone(),
            complete: true,
            unchanged: true,
        };
        self.collect(table, scopes.map(row).collect(), true)
    }

    /// The tables of which scopes were written.
    pub(super) fn tables(&self) -> BTreeSet<&str> {
        self.written.iter().map(String::as_str).collect()
    }

    fn collect(&mut self, table: &str, rows: Vec<Row>, whole: bool) -> Result<()> {
        // Of two answers for one scope the later is noted later.
        if !whole || !self.tables.insert(table.to_owned()) {
            self.write()?;
            self.tables.insert(table.to_owned());
        }
        self.rows.extend(rows);
        if whole { Ok(()) } else { self.write_rows(false) }
    }

    /// Writes what was collected.
    pub(super) fn write(&mut self) -> Result<()> {
        if self.rows.is_empty() { Ok(()) } else { self.write_rows(true) }
    }

    /// `whole`: all of them are complete and nothing is held, so there is no need to look what they
    /// were before.
    fn write_rows(&mut self, whole: bool) -> Result<()> {
        let failed = |e| db("cannot note what was fetched", e);
        let rows = self.rows.iter();
        stage(
            self.conn,
            "stage_noted",
            rows.map(|row| (row.table.as_str(), &row.scope, row.complete)),
        )?;
        let unchanged = self.rows.iter().filter(|row| row.unchanged);
        let is_any_other =
            unchanged.clone().next().is_some() && self.leave_out_what_is_other(unchanged)? > 0;
        if is_any_other {
            let left = "SELECT DISTINCT table_name FROM temp.stage_noted";
            self.tables = query(self.conn, left, |row| row.get(0))?.into_iter().collect();
        }
        // What the feeds have said meanwhile matters to rows of searches alone. (A condition on one side of a
        // join would make DuckDB compare every pair of rows.)
        let is_search = |row: &Row| matches!(row.scope.version, Version::AsSeen { .. });
        let (moved, version, seen) = if self.rows.iter().any(is_search) {
            (
                "(c.sequence IS NOT NULL AND coalesce(coalesce(s.moved, p.moved) > c.sequence, false))",
                "CASE WHEN c.sequence IS NULL THEN c.version \
                 ELSE coalesce(s.any_stamp, p.modified_date::VARCHAR, 'unknown') END",
                "LEFT JOIN (SELECT * FROM sync.seen \
                            WHERE case_id IN (SELECT id FROM temp.stage_noted)) s \
                   ON s.case_id = CASE WHEN c.table_name <> 'contacts' THEN c.id END \
                 LEFT JOIN (SELECT * FROM sync.seen_contacts \
                            WHERE contact_id IN (SELECT id FROM temp.stage_noted)) p \
                   ON p.contact_id = CASE WHEN c.table_name = 'contacts' THEN c.id END",
            )
        } else {
            ("false", "c.version", "")
        };
        self.written.append(&mut self.tables);
        let answers_hints = self.rows.iter().any(|row| is_search(row) || row.scope.hint.is_some());
        let may_be_first = self.rows.iter().any(|row| {
            row.complete && !row.unchanged && first_reads::NOTED.contains(&row.table.as_str())
        });
        self.rows.clear();
        // Rows that are held are still there, and so their scope is not what the answer said.
        let (complete, incomplete, was_complete, definition, before) = if whole {
            ("true", "NULL".to_owned(), "true", "d.definition".to_owned(), String::new())
        } else {
            let (incomplete, held) = (FetchStatus::Incomplete, FetchStatus::Held);
            let joins = format!(
                "LEFT JOIN (SELECT DISTINCT id FROM temp.kept_back) k ON k.id = c.id \
                 LEFT JOIN ({}) f ON f.table_name = c.table_name AND f.id = c.id AND f.part = c.part",
                rows_of("SELECT id FROM temp.stage_noted")
            );
            let complete = "(c.complete AND k.id IS NULL)";
            (
                complete,
                format!("CASE WHEN k.id IS NULL THEN '{incomplete}' ELSE '{held}' END"),
                "coalesce(f.complete, false)",
                // Rows that did not come are still what the reading before made of them.
                format!(
                    "CASE WHEN {complete} OR f.id IS NULL THEN d.definition ELSE f.definition END"
                ),
                joins,
            )
        };
        let now = instant(self.now);
        self.conn
            .execute_batch(&format!(
                "CREATE OR REPLACE TEMP TABLE stage_fetched AS \
                 SELECT c.table_name, c.id, c.part, \
                   CASE WHEN NOT {complete} OR {moved} THEN NULL ELSE {version} END AS version, \
                   CASE WHEN NOT {complete} THEN {incomplete} \
                        WHEN {moved} THEN '{as_moved}' ELSE '{current}' END AS status, \
                   c.sent::TIMESTAMPTZ AS sent_at, {now} AS fetched_at, {definition} AS definition, \
                   {complete} OR {was_complete} AS complete, \
                   NULL::BIGINT AS again_at, {MARK_NOW} AS mark, \
                   CASE WHEN {complete} THEN c.digest END AS digest \
                 FROM temp.stage_noted c {seen} \
                 LEFT JOIN (SELECT table_name, max(definition) AS definition \
                            FROM sync.resources GROUP BY table_name) d \
                   ON d.table_name = c.table_name {before}",
                as_moved = FetchStatus::Moved,
                current = FetchStatus::Current,
            ))
            .map_err(failed)?;
        if may_be_first {
            first_reads::note(self.conn, &now)?;
        }
        self.conn
            .execute_batch(&format!(
                "DELETE FROM sync.fetched_scopes f USING temp.stage_fetched n \
                 WHERE f.table_name = n.table_name AND f.id = n.id AND f.part = n.part; \
                 INSERT INTO sync.fetched_scopes BY NAME SELECT * FROM temp.stage_fetched; \
                 DELETE FROM sync.failures f USING temp.stage_fetched n \
                 WHERE f.table_name = n.table_name AND f.id = n.id AND f.part = n.part \
                   AND n.status IN ('{as_moved}', '{current}') AND f.kind <> '{lag}'",
                as_moved = FetchStatus::Moved,
                current = FetchStatus::Current,
                lag = FailureKind::Lag,
            ))
            .map_err(failed)?;
        if answers_hints { hints::answered(self.conn) } else { Ok(()) }
    }

    /// Leaves out of `temp.stage_noted` what was not decoded, and is mirrored as something else by now.
    /// Returns how many scopes that are.
    fn leave_out_what_is_other<'s>(&self, rows: impl Iterator<Item = &'s Row>) -> Result<usize> {
        let scopes = rows.map(|row| (row.table.as_str(), &row.scope, true));
        stage(self.conn, "stage_unchanged", scopes)?;
        let same = "n.table_name = u.table_name AND n.id = u.id AND n.part = u.part";
        self.conn
            .execute(
                &format!(
                    "DELETE FROM temp.stage_noted n USING \
                   (SELECT u.table_name, u.id, u.part FROM temp.stage_unchanged u \
                    WHERE NOT EXISTS (SELECT 1 FROM ({}) n \
                      WHERE {same} AND n.complete AND n.digest = u.digest)) u \
                 WHERE {same}",
                    rows_of("SELECT id FROM temp.stage_unchanged")
                ),
                [],
            )
            .map_err(|e| db("cannot note what was answered as before", e))
    }
}

/// Makes the temporary table `name` of scopes as they were answered: their table, and whether they are
/// complete.
pub(super) fn stage<'s>(
    conn: &Connection,
    name: &str,
    scopes: impl Iterator<Item = (&'s str, &'s LoadedScope, bool)>,
) -> Result<()> {
    let failed = |e| db("cannot stage scopes", e);
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE {name} (table_name VARCHAR, id BIGINT, part VARCHAR, \
         version VARCHAR, sequence BIGINT, complete BOOLEAN, sent VARCHAR, digest UBIGINT, hint BIGINT)"
    ))
    .map_err(failed)?;
    let mut appender = conn.appender(name).map_err(failed)?;
    for (table, scope, complete) in scopes {
        let (version, sequence) = match &scope.version {
            Version::Known(version) => (Some(version.as_str()), None),
            Version::AsSeen { sequence } => (None, Some(*sequence)),
        };
        let sent = instant_param(scope.sent_at);
        appender
            .append_row(params![
                table,
                scope.id,
                scope.part,
                version,
                sequence,
                complete,
                sent,
                scope.digest.map(AnswerDigest::get),
                scope.hint
            ])
            .map_err(failed)?;
    }
    appender.flush().map_err(failed)
}
