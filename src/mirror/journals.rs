//! Journals in the store: their months, what of them is due, and loading them (contract section 4,
//! "Journals").

use std::collections::{BTreeMap, BTreeSet};

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::fresh;
use super::lines::{self, Lines, MergedTable};
use super::load::{Load, Outcome, Settings, count_change};
use super::merge::{self, Merged};
use super::state::{State, list};
use super::{db, instant, instant_param, scalar_i64, schema};
use crate::catalog::{Group, Resource};
use crate::config::JournalLevel;
use crate::decode::Decoded;
use crate::error::{Error, Kind, Result};
use crate::journals::{JournalScope, Month};
use crate::quote;

/// A month that is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueMonth {
    pub table: String,
    pub scope: JournalScope,
    /// Why.
    pub reason: String,
    /// It was read completely before.
    pub complete: bool,
    /// As many days as the service was found to answer at once.
    pub window_days: Option<u32>,
}

/// Applies loads of one journal table within the writer's open transaction; `temp.stage_scopes` is
/// filled.
pub(super) fn apply(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    loads: &[Load],
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    stage_months(conn, settings, resource, loads)?;
    let decoded: Vec<&Decoded> = loads.iter().map(|load| &load.decoded).collect();
    let children = loads.first().map_or(0, |load| load.decoded.children.len());
    let notes: Vec<&Decoded> = (0..children)
        .flat_map(|n| loads.iter().filter_map(move |load| load.decoded.children.get(n)))
        .collect();
    let notes_of = notes.first().map(|rows| &*rows.resource);
    if is_new(conn, resource)? {
        for (table, rows) in
            std::iter::once((resource, &decoded)).chain(notes_of.map(|table| (table, &notes)))
        {
            note_whole(conn, table, fresh::insert(conn, table, rows, now)?, outcome)?;
        }
    } else {
        merge::stage_rows(conn, resource, &decoded)?;
        let redefined = schema::redefined(conn, &resource.table)?;
        if let Group::Journal(journal) = &resource.group
            && let Some(line_key) = &journal.line_key
        {
            let redefined_notes = match notes_of {
                Some(table) => schema::redefined(conn, &table.table)?,
                None => Vec::new(),
            };
            if let Some(table) = notes_of {
                merge::stage_rows(conn, table, &notes)?;
            }
            let lines = Lines {
                resource,
                line_key,
                redefined: &redefined,
                notes: notes_of.map(|table| (table, redefined_notes.as_slice())),
            };
            let (of_lines, of_notes) = lines::merge(conn, &lines, &instant(now))?;
            note(conn, resource, of_lines, outcome)?;
            if let (Some(table), Some(merged)) = (notes_of, of_notes) {
                note(conn, table, merged, outcome)?;
            }
        } else {
            let merged = merge_totals(conn, resource, &redefined, now)?;
            note_whole(conn, resource, merged, outcome)?;
        }
    }
    months_were_read(conn, resource, now)
}

/// Fills `temp.stage_months`, one row per scope of `temp.stage_scopes`.
fn stage_months(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    loads: &[Load],
) -> Result<()> {
    let failed = |e| db("cannot stage the months of a journal", e);
    conn.execute_batch(
        "CREATE OR REPLACE TEMP TABLE staged_months \
         (journal_level VARCHAR, journal_id BIGINT, journal_month VARCHAR, part VARCHAR, \
          complete BOOLEAN, is_closed BOOLEAN, sent VARCHAR)",
    )
    .map_err(failed)?;
    {
        let mut appender = conn.appender("staged_months").map_err(failed)?;
        for load in loads {
            for scope in &load.scopes {
                let of = JournalScope::of(scope.id, &scope.part).ok_or_else(|| {
                    Error::new(Kind::Internal, format!("{} is no journal's month", scope.part))
                })?;
                let is_closed =
                    scope.sent_at >= of.month.closes_at(settings.close_day, &settings.zone);
                appender
                    .append_row(params![
                        of.level.to_string(),
                        of.id,
                        of.month.first().to_string(),
                        scope.part,
                        scope.complete && !load.decoded.any_keyless(),
                        is_closed,
                        instant_param(scope.sent_at)
                    ])
                    .map_err(failed)?;
            }
        }
        appender.flush().map_err(failed)?;
    }
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE stage_months AS \
         SELECT s.journal_level, s.journal_id, s.journal_month::DATE AS journal_month, s.part, \
           s.complete, s.is_closed, s.sent::TIMESTAMPTZ AS sent_at, \
           m.closed_read_at IS NOT NULL AS closed, m.definition \
         FROM temp.staged_months s LEFT JOIN sync.journal_months m ON m.table_name = {} \
           AND m.journal_level = s.journal_level AND m.journal_id = s.journal_id \
           AND m.journal_month = s.journal_month::DATE",
        quote::text(&resource.table)
    ))
    .map_err(failed)
}

/// Whether no row of the staged months is mirrored, and none can be a restatement.
fn is_new(conn: &Connection, resource: &Resource) -> Result<bool> {
    let known = format!(
        "SELECT (SELECT count(*) FROM main.{} m JOIN temp.stage_months c \
           USING (journal_level, journal_id, journal_month)) \
         + (SELECT count(*) FROM temp.stage_months WHERE closed)",
        quote::ident(&resource.table)
    );
    Ok(scalar_i64(conn, &known)? == 0)
}

/// Notes a merge of which it is not known in which of the staged months it wrote.
fn note_whole(
    conn: &Connection,
    resource: &Resource,
    merged: Merged,
    outcome: &mut Outcome,
) -> Result<()> {
    let months = if merged.changed() {
        super::state::query(
            conn,
            "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM temp.stage_months ORDER BY 1",
            |row| row.get(0),
        )?
    } else {
        Vec::new()
    };
    note(conn, resource, MergedTable { merged, months }, outcome)
}

/// Control totals have one row per month: its key is all there is to pair by.
fn merge_totals(
    conn: &Connection,
    resource: &Resource,
    redefined: &[(String, i64)],
    now: Timestamp,
) -> Result<Merged> {
    let (any, versioned) = merge::differences(resource, redefined, "c");
    let table = quote::ident(&resource.table);
    let stage = merge::stage_name(resource);
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE diff AS \
         SELECT s.rowid AS sid, m.rowid AS mid, m._synced_at AS synced, ({versioned}) AS versioned \
         FROM temp.{stage} s JOIN temp.stage_months c USING (journal_level, journal_id, journal_month) \
         LEFT JOIN main.{table} m ON m.journal_level = s.journal_level \
           AND m.journal_id = s.journal_id AND m.journal_month = s.journal_month \
         WHERE m.rowid IS NULL OR {any}; \
         CREATE OR REPLACE TEMP TABLE gone AS \
         SELECT m.rowid AS mid FROM main.{table} m \
         JOIN temp.stage_months c USING (journal_level, journal_id, journal_month) \
         WHERE c.complete AND NOT EXISTS (SELECT 1 FROM temp.{stage} s \
           WHERE s.journal_level = m.journal_level AND s.journal_id = m.journal_id \
             AND s.journal_month = m.journal_month)"
    ))
    .map_err(|e| db(&format!("cannot compare {}", resource.table), e))?;
    merge::write_differences(conn, resource, true, &instant(now))
}

fn note(
    conn: &Connection,
    resource: &Resource,
    table: MergedTable,
    outcome: &mut Outcome,
) -> Result<()> {
    for month in &table.months {
        count_change(conn, &resource.table, month)?;
    }
    outcome.note(&resource.table, table.merged);
    Ok(())
}

/// Notes in `sync.journal_months` what the staged months were read to be.
fn months_were_read(conn: &Connection, resource: &Resource, now: Timestamp) -> Result<()> {
    let name = quote::text(&resource.table);
    let now = instant(now);
    let same = "m.journal_level = c.journal_level AND m.journal_id = c.journal_id \
                AND m.journal_month = c.journal_month";
    conn.execute_batch(&format!(
        "INSERT INTO sync.journal_months BY NAME \
         SELECT {name} AS table_name, c.journal_level, c.journal_id, c.journal_month, \
           'asked' AS due, false AS complete FROM temp.stage_months c WHERE NOT EXISTS \
             (SELECT 1 FROM sync.journal_months m WHERE m.table_name = {name} AND {same}); \
         UPDATE sync.journal_months m SET due = NULL, sent_at = c.sent_at, read_at = {now}, \
           complete = true, definition = \
             (SELECT max(definition) FROM sync.resources WHERE table_name = {name}), \
           closed_read_at = CASE WHEN c.is_closed THEN coalesce(m.closed_read_at, {now}) END \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} AND c.complete; \
         UPDATE sync.journal_months m SET due = 'incomplete' \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} AND NOT c.complete; \
         DELETE FROM sync.failures f USING temp.stage_months c WHERE c.complete \
           AND f.table_name = {name} AND f.id = c.journal_id AND f.part = c.part"
    ))
    .map_err(|e| db("cannot note which months were read", e))
}

impl State<'_> {
    /// Makes these months wanted, and due, for each table and id: those that were never read
    /// completely, and, where a reason is given, all of them.
    pub fn months_are_due(
        &self,
        tables: &[String],
        level: JournalLevel,
        ids: &[i64],
        months: &[Month],
        reason: Option<&str>,
    ) -> Result<()> {
        let failed = |e| db("cannot stage the months of the journals", e);
        self.batch(
            "CREATE OR REPLACE TEMP TABLE wanted_months \
             (table_name VARCHAR, journal_id BIGINT, journal_month VARCHAR)",
        )?;
        {
            let mut appender = self.conn.appender("wanted_months").map_err(failed)?;
            for table in tables {
                for id in ids {
                    for month in months {
                        appender
                            .append_row(params![table, id, month.first().to_string()])
                            .map_err(failed)?;
                    }
                }
            }
            appender.flush().map_err(failed)?;
        }
        let level = quote::text(&level.to_string());
        let same = format!(
            "m.table_name = w.table_name AND m.journal_level = {level} \
             AND m.journal_id = w.journal_id AND m.journal_month = w.journal_month::DATE"
        );
        let due = match reason {
            Some(reason) => quote::text(reason),
            None => "coalesce(m.due, CASE WHEN NOT m.complete THEN 'never fetched' END)".to_owned(),
        };
        self.batch(&format!(
            "UPDATE sync.journal_months m SET wanted = true, due = {due} \
             FROM temp.wanted_months w WHERE {same} \
               AND (NOT m.wanted OR m.due IS DISTINCT FROM {due})"
        ))?;
        // What was as much as the service answers at once last month is so this month too.
        self.batch(&format!(
            "INSERT INTO sync.journal_months BY NAME SELECT w.table_name, {level} AS journal_level, \
               w.journal_id, w.journal_month::DATE AS journal_month, 'never fetched' AS due, \
               false AS complete, \
               (SELECT first(m.window_days ORDER BY m.journal_month DESC) FILTER (m.complete) \
                  FROM sync.journal_months m \
                WHERE m.table_name = w.table_name AND m.journal_level = {level} \
                  AND m.journal_id = w.journal_id) AS window_days \
             FROM temp.wanted_months w WHERE NOT EXISTS \
               (SELECT 1 FROM sync.journal_months m WHERE {same})"
        ))
    }

    /// Makes every month of a table due that was read before and is wanted still.
    pub fn synced_months_are_due(&self, table: &str, reason: &str) -> Result<()> {
        self.batch(&format!(
            "UPDATE sync.journal_months SET due = {} WHERE table_name = {} AND complete AND wanted",
            quote::text(reason),
            quote::text(table)
        ))
    }

    /// The months of these tables and this level that are wanted and may be read now, newest first.
    pub fn due_months(
        &self,
        tables: &[String],
        level: JournalLevel,
        now: Timestamp,
    ) -> Result<Vec<DueMonth>> {
        let rows = self.query(
            &format!(
                "SELECT m.table_name, m.journal_id, strftime(m.journal_month, '%Y-%m'), m.due, \
                   m.complete, m.window_days \
                 FROM sync.journal_months m LEFT JOIN sync.failures f \
                   ON f.table_name = m.table_name AND f.id = m.journal_id \
                   AND f.part = m.journal_level || '/' || strftime(m.journal_month, '%Y-%m') \
                 WHERE m.due IS NOT NULL AND m.wanted AND m.journal_level = {} \
                   AND m.table_name IN ({}) \
                   AND (f.next_at IS NULL OR f.next_at <= {}) \
                 ORDER BY m.journal_month DESC, m.journal_id, m.table_name",
                quote::text(&level.to_string()),
                quote::texts(tables.iter().map(String::as_str).chain([""])),
                instant(now)
            ),
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, String>(3)?,
                    row.get::<_, bool>(4)?,
                    row.get::<_, Option<i64>>(5)?,
                ))
            },
        )?;
        rows.into_iter()
            .map(|(table, id, month, reason, complete, days)| {
                let month: Month = month.parse().map_err(|e| {
                    Error::caused(Kind::Store, format!("sync.journal_months: {month}"), e)
                })?;
                let scope = JournalScope { level, id, month };
                let window_days = days.and_then(|days| u32::try_from(days).ok());
                Ok(DueMonth { table, scope, reason, complete, window_days })
            })
            .collect()
    }

    /// The months of a table that are in the books, with whether they were ever read completely.
    pub fn known_months(
        &self,
        table: &str,
        level: JournalLevel,
    ) -> Result<BTreeMap<(i64, Month), bool>> {
        let rows = self.query(
            &format!(
                "SELECT journal_id, strftime(journal_month, '%Y-%m'), complete \
                 FROM sync.journal_months WHERE table_name = {} AND journal_level = {}",
                quote::text(table),
                quote::text(&level.to_string())
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?)),
        )?;
        Ok(rows
            .into_iter()
            .filter_map(|(id, month, complete)| Some(((id, month.parse().ok()?), complete)))
            .collect())
    }

    /// The months of a table and this level that failed and may not be asked again yet.
    pub fn waiting_months(
        &self,
        table: &str,
        level: JournalLevel,
        now: Timestamp,
    ) -> Result<BTreeSet<(i64, Month)>> {
        let rows = self.query(
            &format!(
                "SELECT id, part FROM sync.failures WHERE table_name = {} AND next_at > {}",
                quote::text(table),
                instant(now)
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        let scopes = rows.into_iter().filter_map(|(id, part)| JournalScope::of(id, &part));
        let of_level = scopes.filter(|scope| scope.level == level);
        Ok(of_level.map(|scope| (scope.id, scope.month)).collect())
    }

    /// Every month that is wanted and due, whether it waits or not: table, scope, why, never read
    /// completely.
    pub fn pending_months(&self) -> Result<Vec<(String, JournalScope, String, bool)>> {
        let rows = self.query(
            "SELECT m.table_name, m.journal_id, \
               m.journal_level || '/' || strftime(m.journal_month, '%Y-%m') AS part, \
               coalesce(f.error, m.due), NOT m.complete \
             FROM sync.journal_months m LEFT JOIN sync.failures f \
               ON f.table_name = m.table_name AND f.id = m.journal_id \
               AND f.part = m.journal_level || '/' || strftime(m.journal_month, '%Y-%m') \
             WHERE m.due IS NOT NULL AND m.wanted ORDER BY ALL",
            |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?, row.get(4)?))
            },
        )?;
        Ok(rows
            .into_iter()
            .filter_map(|(table, id, part, reason, never)| {
                Some((table, JournalScope::of(id, &part)?, reason, never))
            })
            .collect())
    }

    /// Keeps how many days of a journal the service answers at once, for this month, the later ones,
    /// and all that were never read.
    pub fn set_window_days(
        &self,
        table: &str,
        scope: JournalScope,
        days: Option<u32>,
    ) -> Result<()> {
        self.execute(
            "UPDATE sync.journal_months SET window_days = ? WHERE table_name = ? \
               AND journal_level = ? AND journal_id = ? \
               AND (journal_month >= ?::DATE OR NOT complete)",
            params![
                days,
                table,
                scope.level.to_string(),
                scope.id,
                scope.month.first().to_string()
            ],
        )
    }

    /// Whether any month of this level is in the books.
    pub fn has_journals(&self, level: JournalLevel) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.journal_months WHERE journal_level = {}",
                quote::text(&level.to_string())
            ),
        )? > 0)
    }

    /// Whether a 404 for this month may stand for no lines: none is mirrored, or the last reading in an
    /// earlier run met one too.
    pub fn month_may_be_empty(
        &self,
        table: &str,
        scope: JournalScope,
        run_id: i64,
    ) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT CAST((SELECT count(*) FROM main.{} WHERE journal_level = {level} \
                    AND journal_id = {id} AND journal_month = DATE {first}) = 0 \
                  OR EXISTS (SELECT 1 FROM sync.failures WHERE table_name = {name} AND id = {id} \
                    AND part = {part} AND kind = 'NotFound' AND run_id < {run_id}) AS BIGINT)",
                quote::ident(table),
                level = quote::text(&scope.level.to_string()),
                id = scope.id,
                first = quote::text(&scope.month.first().to_string()),
                name = quote::text(table),
                part = quote::text(&scope.part()),
            ),
        )? > 0)
    }

    /// Makes months due in which something did not fit: it may have been mended.
    pub fn rejected_months_are_due(&self) -> Result<()> {
        self.batch(
            "UPDATE sync.journal_months m SET due = 'has open rejects' FROM sync.rejects r \
             WHERE r.resolved_at IS NULL AND m.complete AND m.due IS NULL \
               AND r.scope = m.journal_level || '/' || m.journal_id || '/' \
                 || strftime(m.journal_month, '%Y-%m')",
        )
    }

    /// Months of these tables and ids that failed may be asked at once.
    pub fn months_wait_no_longer(&self, tables: &[String], ids: &[i64]) -> Result<()> {
        self.batch(&format!(
            "UPDATE sync.failures SET next_at = first_at WHERE table_name IN ({}) AND id IN ({})",
            quote::texts(tables.iter().map(String::as_str).chain([""])),
            list(ids)
        ))
    }

    /// Forgets that months of a table were not found, where the table never gave any other answer.
    /// Returns whether it did.
    pub fn forget_if_absent(&self, table: &str) -> Result<bool> {
        let name = quote::text(table);
        let other = scalar_i64(
            self.conn,
            &format!(
                "SELECT (SELECT count(*) FROM sync.resources WHERE table_name = {name} AND answered) \
                 + (SELECT count(*) FROM sync.failures WHERE table_name = {name} \
                      AND kind <> 'NotFound')"
            ),
        )?;
        if other == 0 {
            self.batch(&format!("DELETE FROM sync.failures WHERE table_name = {name}"))?;
        }
        Ok(other == 0)
    }

    /// Months whose mirrored lines do not add up to the sum that was read after them: the scopes.
    pub fn months_off_their_sum(&self, level: JournalLevel) -> Result<Vec<(i64, Month)>> {
        let rows = self.query(
            &format!(
                "SELECT v.journal_id, strftime(v.journal_month, '%Y-%m') \
                 FROM report.journal_coverage v \
                 JOIN sync.journal_months l ON l.table_name = 'revenue_journals' \
                   AND l.journal_level = v.journal_level AND l.journal_id = v.journal_id \
                   AND l.journal_month = v.journal_month \
                 JOIN sync.journal_months s ON s.table_name = 'revenue_journal_sums' \
                   AND s.journal_level = v.journal_level AND s.journal_id = v.journal_id \
                   AND s.journal_month = v.journal_month \
                 WHERE v.journal = 'revenue_journals' AND v.journal_level = {} \
                   AND NOT v.sum_matches AND l.sent_at < s.sent_at ORDER BY 2 DESC, 1",
                quote::text(&level.to_string())
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        Ok(rows.into_iter().filter_map(|(id, month)| Some((id, month.parse().ok()?))).collect())
    }
}
