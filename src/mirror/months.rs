//! The state of the journals' months: which are due, waiting, or read (docs/architecture.md, "Journals").

use crate::scope::{AnswerDigest, DueMonth, DueReason, FailureKind};
use std::collections::{BTreeMap, BTreeSet};

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::lines::same_month;
use super::state::{batch, execute, list};
use super::wanted::IS_GONE;
use crate::config::JournalLevel;
use crate::error::{Error, Kind, Result};
use crate::scope::{JournalScope, Month, REVENUE_SUMS};
use crate::sql::{self, db, instant, instant_param, scalar_i64};

/// SQL for whether a month `m`, of which `e` is the last day, was last read before it ended, and is over.
fn read_too_early(now: Timestamp) -> String {
    format!("m.sent_at < e.ends_at AND e.ends_at <= {}", instant(now))
}

/// SQL for whether a wanted month `m` was last read before its `close_day`, which has come for all up to `last`. None that
/// somebody has opened again closes by itself.
fn is_to_close(last: Month) -> String {
    format!(
        "m.wanted AND m.journal_month <= DATE {} AND m.table_name <> '{REVENUE_SUMS}' AND m.complete AND m.closed_read_at IS NULL \
         AND NOT {IS_GONE} AND NOT EXISTS (SELECT 1 FROM sync.closings c WHERE c.journal = m.table_name AND {})",
        sql::text(&last.first().to_string()),
        same_month("c", "m")
    )
}

/// SQL by which months that are due for this reason forget which answer is mirrored, where an equal one is
/// to be decoded. What makes them due later does not bring it back.
fn forgetting(reason: DueReason) -> &'static str {
    if reason.believes_the_mirror() { "" } else { ", answer_digest = NULL" }
}

/// The journals' months.
pub(crate) struct Months<'c> {
    pub(super) conn: &'c Connection,
}

impl Months<'_> {
    /// Makes these months wanted, and due, for each table and id: those that were not read completely
    /// since they ended, and, where a reason is given, all of them.
    pub(crate) fn months_are_due(
        &self,
        tables: &[String],
        level: JournalLevel,
        ids: &[i64],
        months: &[Month],
        reason: Option<DueReason>,
    ) -> Result<()> {
        let failed = |e| db("cannot stage the months of the journals", e);
        batch(
            self.conn,
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
        let level = sql::text(&level.to_string());
        let same = format!(
            "m.table_name = w.table_name AND m.journal_level = {level} \
             AND m.journal_id = w.journal_id AND m.journal_month = w.journal_month::DATE"
        );
        let never = sql::text(DueReason::NeverFetched.name());
        let forget = reason.map_or("", forgetting);
        let due = match reason {
            Some(reason) => sql::text(reason.name()),
            None => format!(
                "coalesce(m.due, CASE WHEN NOT m.complete THEN {never} WHEN {} THEN {} END)",
                read_too_early(Timestamp::now()),
                sql::text(DueReason::BeforeItsEnd.name())
            ),
        };
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months m SET wanted = true, due = {due} \
{forget} \
             FROM temp.wanted_months w \
             LEFT JOIN report.calendar e ON e.day = last_day(w.journal_month::DATE) \
             WHERE {same} AND (NOT m.wanted OR m.due IS DISTINCT FROM {due})"
            ),
        )?;
        // What was as much as the service answers at once last month is so this month too.
        let of_last = |column: &str| {
            format!(
                "(SELECT first(m.{column} ORDER BY m.journal_month DESC) FILTER (m.complete) \
                    FROM sync.journal_months m WHERE m.table_name = w.table_name \
                      AND m.journal_level = {level} AND m.journal_id = w.journal_id) AS {column}"
            )
        };
        batch(
            self.conn,
            &format!(
                "INSERT INTO sync.journal_months BY NAME SELECT w.table_name, {level} AS journal_level, \
               w.journal_id, w.journal_month::DATE AS journal_month, {never} AS due, \
               false AS complete, \
               {}, {}, {} \
             FROM temp.wanted_months w WHERE NOT EXISTS \
               (SELECT 1 FROM sync.journal_months m WHERE {same})",
                of_last("window_days"),
                of_last("larger_at"),
                of_last("larger_failures")
            ),
        )
    }

    /// Makes the wanted months due whose `close_day` has come since they were read: the newest is `last`.
    pub(crate) fn months_to_close_are_due(
        &self,
        tables: &[String],
        level: JournalLevel,
        last: Month,
    ) -> Result<()> {
        let due = sql::text(DueReason::BeforeItsClosing.name());
        let (level, is_to_close) = (sql::text(&level.to_string()), is_to_close(last));
        for table in tables {
            let table = sql::text(table);
            batch(
                self.conn,
                &format!(
                    "UPDATE sync.journal_months m SET due = {due} \
                     WHERE table_name = {table} AND journal_level = {level} AND due IS NULL AND {is_to_close}"
                ),
            )?;
        }
        Ok(())
    }

    /// Makes every month of a table due that was read before and is wanted still.
    pub(crate) fn synced_months_are_due(&self, table: &str, reason: DueReason) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months m SET due = {}{} \
                 WHERE table_name = {} AND complete AND wanted AND NOT {IS_GONE}",
                sql::text(reason.name()),
                forgetting(reason),
                sql::text(table)
            ),
        )
    }

    /// The months of these tables and this level that are wanted and may be read now, newest first.
    pub(crate) fn due_months(
        &self,
        tables: &[String],
        level: JournalLevel,
        now: Timestamp,
    ) -> Result<Vec<DueMonth>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT m.table_name, m.journal_id, strftime(m.journal_month, '%Y-%m'), m.due, \
                   m.complete, m.window_days, coalesce(m.larger_at <= {now}, true), m.lines_digest, \
                   coalesce(m.sent_at >= e.ends_at, false), \
                   CASE WHEN m.complete THEN m.answer_digest END \
                 FROM sync.journal_months m \
                 LEFT JOIN report.calendar e ON e.day = last_day(m.journal_month) \
                 LEFT JOIN sync.failures f \
                   ON f.table_name = m.table_name AND f.id = m.journal_id \
                   AND f.part = m.journal_level || '/' || strftime(m.journal_month, '%Y-%m') \
                 WHERE m.due IS NOT NULL AND m.wanted AND m.journal_level = {} \
                   AND m.table_name IN ({}) \
                   AND (f.next_at IS NULL OR f.next_at <= {now}) \
                 ORDER BY m.journal_month DESC, m.journal_id, m.table_name",
                sql::text(&level.to_string()),
                sql::texts(tables.iter().map(String::as_str).chain([""])),
                now = instant(now)
            ),
            |row| {
                let learned =
                    (row.get::<_, Option<i64>>(5)?, row.get(6)?, row.get(7)?, row.get(8)?);
                let mirrored: Option<u64> = row.get(9)?;
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, String>(3)?,
                    row.get::<_, bool>(4)?,
                    learned,
                    mirrored,
                ))
            },
        )?;
        rows.into_iter()
            .map(|(table, id, month, reason, complete, learned, mirrored)| {
                let (days, may_be_larger, digest, was_over) = learned;
                let month: Month = month.parse().map_err(|e| {
                    Error::caused(Kind::Store, format!("sync.journal_months: {month}"), e)
                })?;
                let scope = JournalScope { level, id, month };
                let window_days = days.and_then(|days| u32::try_from(days).ok());
                // A reason that this version does not know makes the month due all the same, and believes
                // nothing.
                let reason = DueReason::from_name(&reason).unwrap_or(DueReason::Full);
                Ok(DueMonth {
                    table,
                    scope,
                    reason,
                    complete,
                    known_days: window_days,
                    may_be_larger,
                    window_days,
                    digest,
                    is_proven: was_over && !reason.proves_anew(),
                    mirrored: mirrored
                        .filter(|_| reason.believes_the_mirror())
                        .map(AnswerDigest::new),
                })
            })
            .collect()
    }

    /// The months of a table that were read completely before they ended, and not since.
    pub(crate) fn months_read_too_early(
        &self,
        table: &str,
        level: JournalLevel,
        now: Timestamp,
    ) -> Result<BTreeSet<(i64, Month)>> {
        self.months_that(table, level, &format!("m.complete AND {}", read_too_early(now)))
    }

    /// The months of a table whose `close_day` has come since they were read; the newest is `last`.
    pub(crate) fn months_to_close(
        &self,
        table: &str,
        level: JournalLevel,
        last: Month,
    ) -> Result<BTreeSet<(i64, Month)>> {
        self.months_that(table, level, &is_to_close(last))
    }

    fn months_that(
        &self,
        table: &str,
        level: JournalLevel,
        are: &str,
    ) -> Result<BTreeSet<(i64, Month)>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT m.journal_id, strftime(m.journal_month, '%Y-%m') \
                 FROM sync.journal_months m \
                 JOIN report.calendar e ON e.day = last_day(m.journal_month) \
                 WHERE m.table_name = {} AND m.journal_level = {} AND {are}",
                sql::text(table),
                sql::text(&level.to_string()),
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        Ok(rows.into_iter().filter_map(|(id, month)| Some((id, month.parse().ok()?))).collect())
    }

    /// The months of a table that are in the store, with whether they were ever read completely.
    pub(crate) fn known_months(
        &self,
        table: &str,
        level: JournalLevel,
    ) -> Result<BTreeMap<(i64, Month), bool>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT journal_id, strftime(journal_month, '%Y-%m'), complete \
                 FROM sync.journal_months WHERE table_name = {} AND journal_level = {}",
                sql::text(table),
                sql::text(&level.to_string())
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?)),
        )?;
        Ok(rows
            .into_iter()
            .filter_map(|(id, month, complete)| Some(((id, month.parse().ok()?), complete)))
            .collect())
    }

    /// The months of a table and this level that failed and may not be asked again yet.
    pub(crate) fn waiting_months(
        &self,
        table: &str,
        level: JournalLevel,
        now: Timestamp,
    ) -> Result<BTreeSet<(i64, Month)>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT id, part FROM sync.failures WHERE table_name = {} AND next_at > {}",
                sql::text(table),
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
    pub(crate) fn pending_months(&self) -> Result<Vec<(String, JournalScope, String, bool)>> {
        let rows = sql::query(
            self.conn,
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

    /// Whether any month of this level is in the store.
    pub(crate) fn has_journals(&self, level: JournalLevel) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.journal_months WHERE journal_level = {}",
                sql::text(&level.to_string())
            ),
        )? > 0)
    }

    /// Whether a 404 for this month may stand for no lines: none is mirrored, nor was when its level was left, or an
    /// earlier one came at this instant or before, and no lines since.
    pub(crate) fn month_may_be_empty(
        &self,
        table: &str,
        scope: JournalScope,
        before: Timestamp,
    ) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "WITH asked AS (SELECT {level} AS journal_level, {id} AS journal_id, \
                    DATE {first} AS journal_month), \
                  months AS (SELECT m.* FROM sync.journal_months m JOIN asked a ON {of_month} \
                    WHERE m.table_name = {name}) \
                  SELECT CAST(NOT EXISTS (SELECT 1 FROM main.{table} l JOIN asked a ON {of_line}) \
                      AND NOT EXISTS (SELECT 1 FROM history.{table} l JOIN months a ON {of_line} \
                        AND l._valid_to = greatest(a.left_at, l._valid_from)) \
                    OR EXISTS (SELECT 1 FROM months WHERE not_found_at <= {before}) AS BIGINT)",
                table = sql::ident(table),
                of_month = same_month("m", "a"),
                of_line = same_month("l", "a"),
                level = sql::text(&scope.level.to_string()),
                id = scope.id,
                first = sql::text(&scope.month.first().to_string()),
                name = sql::text(table),
                before = instant(before),
            ),
        )? > 0)
    }

    /// Whether this month, with lines, answered 404 before, and not otherwise since.
    pub(crate) fn month_was_missing(&self, table: &str, scope: JournalScope) -> Result<bool> {
        let sql = format!(
            "SELECT count(*) FROM sync.journal_months WHERE table_name = {} AND journal_level = {} \
               AND journal_id = {} AND journal_month = DATE {} AND not_found_at IS NOT NULL",
            sql::text(table),
            sql::text(&scope.level.to_string()),
            scope.id,
            sql::text(&scope.month.first().to_string()),
        );
        Ok(scalar_i64(self.conn, &sql)? > 0)
    }

    /// Keeps when a month first answered 404.
    pub(crate) fn month_was_not_found(
        &self,
        table: &str,
        scope: JournalScope,
        now: Timestamp,
    ) -> Result<()> {
        execute(
            self.conn,
            "UPDATE sync.journal_months SET not_found_at = ?::TIMESTAMPTZ WHERE table_name = ? \
               AND journal_level = ? AND journal_id = ? AND journal_month = ?::DATE \
               AND not_found_at IS NULL",
            params![
                instant_param(now),
                table,
                scope.level.to_string(),
                scope.id,
                scope.month.first().to_string()
            ],
        )
    }

    /// Makes months due in which something did not fit: it may have been mended.
    pub(crate) fn rejected_months_are_due(&self) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months m SET due = {} FROM sync.rejects r \
             WHERE r.resolved_at IS NULL AND m.complete AND m.due IS NULL AND NOT {IS_GONE} \
               AND r.scope = m.journal_level || '/' || m.journal_id || '/' \
                 || strftime(m.journal_month, '%Y-%m')",
                sql::text(DueReason::Rejects.name())
            ),
        )
    }

    /// Months of these tables and ids that failed may be asked at once.
    pub(crate) fn months_wait_no_longer(&self, tables: &[String], ids: &[i64]) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.failures SET next_at = first_at WHERE table_name IN ({}) AND id IN ({})",
                sql::texts(tables.iter().map(String::as_str).chain([""])),
                list(ids)
            ),
        )
    }

    /// Forgets that months of a table were not found, where the table never gave any other answer.
    /// Returns whether it did.
    pub(crate) fn forget_if_absent(&self, table: &str) -> Result<bool> {
        let name = sql::text(table);
        let other = scalar_i64(
            self.conn,
            &format!(
                "SELECT (SELECT count(*) FROM sync.resources WHERE table_name = {name} AND answered) \
                 + (SELECT count(*) FROM sync.failures WHERE table_name = {name} \
                      AND kind <> '{}')",
                FailureKind::NotFound
            ),
        )?;
        if other == 0 {
            batch(
                self.conn,
                &format!(
                    "DELETE FROM sync.failures WHERE table_name = {name}; \
                 UPDATE sync.journal_months SET not_found_at = NULL WHERE table_name = {name}"
                ),
            )?;
        }
        Ok(other == 0)
    }
}
