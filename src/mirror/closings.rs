//! Closing months of the journals: what a month was when it was closed is frozen in `sync.closings`
//! (docs/architecture.md, "Journals").
//!
//! A month is closed by its first complete reading after `journals.close_day`, or by hand before or after
//! that. Nobody reads the months of an office that is gone: they are closed on that day as they were last read, if that
//! was whole. From then on what changes in it is a restatement. Reopened by hand, it stays open until it is
//! closed by hand. No closing is ever removed.

use std::collections::BTreeSet;

use duckdb::{Connection, params};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::content::{MonthContent, PAYMENT};
use super::state::{batch, count, list};
use super::{freshness, lines};
use crate::catalog::{Catalog, Group, Resource};
use crate::config::JournalLevel;
use crate::decode::Load;
use crate::error::{Error, Kind, Result};
use crate::scope::{JournalScope, Month, REVENUE, REVENUE_SUMS, level_of};
use crate::sql::{self, db, from_micros, instant};

/// Who closes the months that nobody closes by hand.
pub(crate) const BY_CLOSE_DAY: &str = "close_day";

/// Which months of the journals are meant: those of one calendar month that are mirrored.
#[derive(Debug, Clone)]
pub(crate) struct MonthOf {
    pub(crate) level: JournalLevel,
    pub(crate) month: Month,
    /// Tables of journals.
    pub(crate) journals: Vec<String>,
    /// Offices, or what the level says; empty: all that are mirrored.
    pub(crate) ids: Vec<i64>,
}

impl MonthOf {
    /// SQL for the rows `m` of a table with the columns `table_name` or `journal`, scope and month.
    fn condition(&self, journal: &str) -> String {
        let ids = match self.ids.as_slice() {
            [] => "true".to_owned(),
            ids => format!("m.journal_id IN ({})", list(ids)),
        };
        format!(
            "m.{journal} IN ({}) AND m.journal_level = {} AND m.journal_month = DATE {} AND {ids}",
            sql::texts(self.journals.iter().map(String::as_str).chain([""])),
            sql::text(&self.level.to_string()),
            sql::text(&self.month.first().to_string()),
        )
    }
}

/// A journal's month as it stands before it is closed, or after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClosingMonth {
    pub(crate) journal: String,
    pub(crate) id: i64,
    pub(crate) name: Option<String>,
    pub(crate) lines: i64,
    /// It was read completely once.
    pub(crate) was_read: bool,
    /// Its last reading was complete, undoubted, and sent after the month's end: whatever became of its office since,
    /// nothing is missing.
    pub(crate) is_whole: bool,
    /// That of `report.journal_coverage`.
    pub(crate) status: String,
    /// Of the revenue journals: whether the lines add up to the platform's sum; `None` where that is
    /// not known.
    pub(crate) sum_matches: Option<bool>,
    /// The platform's sum is known to be that of something else.
    pub(crate) without_control: bool,
    /// There is a sum of the platform, but the annotations that it may count are not mirrored.
    pub(crate) lacks_annotations: bool,
    /// When its lines were last asked for.
    pub(crate) sent_at: Option<Timestamp>,
    /// Values and records of it that did not fit.
    pub(crate) rejects: i64,
    /// Since when it is closed, and by whom.
    pub(crate) closed: Option<(Timestamp, String)>,
}

/// The closings of a store.
pub(crate) struct Closings<'c> {
    conn: &'c Connection,
}

impl<'c> Closings<'c> {
    pub(crate) fn new(conn: &'c Connection) -> Closings<'c> {
        Closings { conn }
    }

    /// The months that are meant, in the order of journals and ids.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn months(&self, catalog: &Catalog, of: &MonthOf) -> Result<Vec<ClosingMonth>> {
        // Each journal's table, those of what is in its lines, and its control.
        let tables = of.journals.iter().flat_map(|journal| {
            let children = catalog.children(journal).map(|child| child.table.as_str());
            let control = (journal == REVENUE).then_some(REVENUE_SUMS);
            let own = std::iter::once(journal.as_str()).chain(children).chain(control);
            own.map(move |table| format!("({}, {})", sql::text(journal), sql::text(table)))
        });
        let tables: Vec<String> = tables.chain(["('', '')".to_owned()]).collect();
        sql::query(
            self.conn,
            &format!(
                "SELECT m.journal, m.journal_id, m.name, m.lines, m.status, m.sum_matches, \
                   epoch_us(c.closed_at), c.closed_by, m.read_at IS NOT NULL, \
                   n.no_control_at IS NOT NULL, epoch_us(q.sent_at), \
                   (SELECT count(*) FROM sync.rejects r JOIN (VALUES {tables}) t(journal, table_name) \
                      ON r.table_name = t.table_name \
                    WHERE t.journal = m.journal AND r.resolved_at IS NULL AND r.scope = \
                      m.journal_level || '/' || m.journal_id || '/' || strftime(m.journal_month, '%Y-%m')), \
                   m.read_at IS NOT NULL AND q.incomplete_at IS NULL AND q.doubted_at IS NULL \
                     AND q.sent_at >= (SELECT max(ends_at) FROM report.calendar d \
                       WHERE d.month = m.journal_month), \
                   m.journal = '{REVENUE}' AND EXISTS (SELECT 1 FROM main.{REVENUE_SUMS} s \
                       WHERE s.journal_level = m.journal_level AND s.journal_id = m.journal_id \
                         AND s.journal_month = m.journal_month) \
                     AND EXISTS (SELECT 1 FROM sync.resources a WHERE a.table_name IN ({notes}) \
                       AND a.status IN ('disabled', 'forbidden', 'absent')) \
                 FROM report.journal_coverage m LEFT JOIN sync.journal_months n \
                   ON m.journal = '{REVENUE}' AND n.table_name = '{REVENUE_SUMS}' \
                   AND n.journal_level = m.journal_level AND n.journal_id = m.journal_id \
                   AND n.journal_month = m.journal_month \
                 LEFT JOIN sync.journal_months q \
                   ON q.table_name = m.journal AND q.journal_level = m.journal_level \
                   AND q.journal_id = m.journal_id AND q.journal_month = m.journal_month \
                 LEFT JOIN sync.closings c \
                   ON c.journal = m.journal AND c.journal_level = m.journal_level \
                   AND c.journal_id = m.journal_id AND c.journal_month = m.journal_month \
                   AND c.reopened_at IS NULL \
                 WHERE {} ORDER BY m.journal, m.journal_id",
                of.condition("journal"),
                tables = tables.join(", "),
                notes = sql::texts(
                    catalog.children(REVENUE).map(|child| child.table.as_str()).chain([""])
                ),
            ),
            |row| {
                let closed_at = from_micros(row.get(6)?);
                Ok(ClosingMonth {
                    journal: row.get(0)?,
                    id: row.get(1)?,
                    name: row.get(2)?,
                    lines: row.get(3)?,
                    status: row.get(4)?,
                    sum_matches: row.get(5)?,
                    closed: closed_at.zip(row.get(7)?),
                    was_read: row.get(8)?,
                    without_control: row.get(9)?,
                    sent_at: from_micros(row.get(10)?),
                    rejects: row.get(11)?,
                    is_whole: row.get::<_, Option<bool>>(12)?.unwrap_or(false),
                    lacks_annotations: row.get(13)?,
                })
            },
        )
    }

    /// When something is closed `now`: not before any row was written, whatever the clock did since. What is closed would
    /// be told without those rows.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn time(&self, now: Timestamp) -> Result<Timestamp> {
        Ok(freshness::last_change(self.conn)?.map_or(now, |last| now.max(last)))
    }

    /// Closes the months that are meant and not closed: freezes what they are. `forced_over` says what
    /// was wrong with them all the same. Returns how many.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn close(
        &self,
        catalog: &Catalog,
        of: &MonthOf,
        by: &str,
        forced_over: Option<&str>,
        now: Timestamp,
    ) -> Result<usize> {
        let mut closed = 0;
        for resource in catalog.resources() {
            if !of.journals.contains(&resource.table) {
                continue;
            }
            let months = format!(
                "SELECT m.journal_level, m.journal_id, m.journal_month FROM sync.journal_months m \
                 WHERE {} AND m.complete",
                of.condition("table_name")
            );
            let notes = catalog.children(&resource.table).next().map(AsRef::as_ref);
            let loaded = JustLoaded::default();
            closed += freeze(self.conn, (resource, notes), &months, by, forced_over, &loaded, now)?;
        }
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months m SET closed_read_at = {} \
             WHERE {} AND m.complete AND m.closed_read_at IS NULL",
                instant(now),
                of.condition("table_name")
            ),
        )?;
        Ok(closed)
    }

    /// Closes what the months were of those whom the source no longer knows, once their `close_day` at `zone` has come:
    /// no reading of theirs does. Only what was read whole after its end is closed, and nothing that somebody has opened.
    /// That the day has come is told by when the source was last asked for a journal, as where a reading closes. Returns
    /// how many.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn close_what_is_gone(
        &self,
        catalog: &Catalog,
        level: JournalLevel,
        (close_day, zone): (u32, &TimeZone),
        now: Timestamp,
    ) -> Result<usize> {
        let now = self.time(now)?;
        let open = sql::query(
            self.conn,
            &format!(
                "SELECT m.table_name, m.journal_id, strftime(m.journal_month, '%Y-%m'), \
                   epoch_us(m.sent_at), epoch_us((SELECT max(sent_at) FROM sync.journal_months)) \
                 FROM sync.journal_months m JOIN sync.journal_scopes g \
                   ON g.journal_level = m.journal_level AND g.journal_id = m.journal_id \
                 WHERE m.journal_level = {} AND m.table_name <> '{REVENUE_SUMS}' AND g.gone_at IS NOT NULL \
                   AND m.complete AND m.incomplete_at IS NULL AND m.doubted_at IS NULL \
                   AND NOT EXISTS (SELECT 1 FROM sync.closings c \
                     WHERE c.journal = m.table_name AND {})",
                sql::text(&level.to_string()),
                lines::same_month("c", "m")
            ),
            |row| {
                let times = [from_micros(row.get(3)?), from_micros(row.get(4)?)];
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, String>(2)?,
                    times,
                ))
            },
        )?;
        let mut closed = 0;
        for (journal, id, month, [sent_at, last_asked]) in open {
            let Ok(month) = month.parse::<Month>() else { continue };
            let is_whole = sent_at >= Some(month.ends_at(zone));
            if is_whole && last_asked >= Some(month.closes_at(close_day, zone)) {
                let of = MonthOf { level, month, journals: vec![journal], ids: vec![id] };
                closed += self.close(catalog, &of, BY_CLOSE_DAY, None, now)?;
            }
        }
        Ok(closed)
    }

    /// For whom the lines of a month were when something of it was closed: levels in the order in which they were
    /// first.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn levels_of(&self, month: Month) -> Result<Vec<JournalLevel>> {
        let levels: Vec<String> = sql::query(
            self.conn,
            &format!(
                "SELECT journal_level FROM sync.closings WHERE journal_month = DATE {} \
                 GROUP BY journal_level ORDER BY min(closed_at), journal_level",
                sql::text(&month.first().to_string())
            ),
            |row| row.get(0),
        )?;
        Ok(levels.iter().filter_map(|level| level_of(level)).collect())
    }

    /// Opens the months that are meant and closed. Their closings stay, with the time of the opening.
    /// Returns how many.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn reopen(&self, of: &MonthOf, now: Timestamp) -> Result<u64> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months m SET closed_read_at = NULL WHERE {}",
                of.condition("table_name")
            ),
        )?;
        count(
            self.conn,
            &format!(
                "UPDATE sync.closings m SET reopened_at = {} WHERE {} AND m.reopened_at IS NULL",
                instant(now),
                of.condition("journal")
            ),
        )
    }
}

/// Closes those of the staged months that were read completely after their close day, and that no one
/// has opened again. `loads` are those that just came.
pub(super) fn close_what_was_read(
    conn: &Connection,
    catalog: &Catalog,
    resource: &Resource,
    loads: &JustLoaded<'_>,
    now: Timestamp,
) -> Result<()> {
    let months = format!(
        "SELECT m.journal_level, m.journal_id, m.journal_month FROM sync.journal_months m \
         JOIN temp.stage_months c ON {} \
         WHERE m.table_name = {} AND c.complete AND m.closed_read_at IS NOT NULL",
        lines::same_month("m", "c"),
        sql::text(&resource.table)
    );
    let notes = catalog.children(&resource.table).next().map(AsRef::as_ref);
    freeze(conn, (resource, notes), &months, BY_CLOSE_DAY, None, loads, now).map(drop)
}

/// Loads of a journal that are being committed.
#[derive(Default)]
pub(super) struct JustLoaded<'a> {
    pub(super) loads: &'a [Load],
    /// What is mirrored of their months is their rows, and nothing else.
    pub(super) are_all: bool,
}

impl JustLoaded<'_> {
    fn of(&self, month: &JournalScope) -> Option<&Load> {
        let part = month.part();
        self.loads
            .iter()
            .find(|load| load.scopes.iter().any(|scope| scope.id == month.id && scope.part == part))
    }
}

/// Whether all payments of an answer are in its rows.
fn all_payments_fit(load: &Load) -> bool {
    load.decoded
        .rejects
        .iter()
        .all(|reject| reject.column.as_deref().is_some_and(|column| column != PAYMENT))
}

/// Writes what these months (a query of level, id and month) of a journal and its annotations are, where
/// they are not closed yet. The sums of the platform have no lines that could be frozen.
fn freeze(
    conn: &Connection,
    (resource, notes): (&Resource, Option<&Resource>),
    months: &str,
    by: &str,
    forced_over: Option<&str>,
    just: &JustLoaded<'_>,
    now: Timestamp,
) -> Result<usize> {
    let Group::Journal(journal) = &resource.group else { return Ok(0) };
    if journal.line_key.is_none() {
        return Ok(0);
    }
    let name = sql::text(&resource.table);
    let open = sql::query(
        conn,
        &format!(
            "SELECT t.journal_level || '/' || strftime(t.journal_month, '%Y-%m'), t.journal_id \
             FROM ({months}) t WHERE NOT EXISTS (SELECT 1 FROM sync.closings c \
               WHERE c.journal = {name} AND {known} AND c.reopened_at IS NULL) ORDER BY ALL",
            known = lines::same_month("t", "c"),
        ),
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)),
    )?;
    if open.is_empty() {
        return Ok(0);
    }
    let failed = |e| db("cannot write the closings", e);
    let unfit: BTreeSet<String> = sql::query(
        conn,
        &format!(
            "SELECT DISTINCT scope FROM sync.rejects WHERE resolved_at IS NULL AND table_name = {name} \
               AND scope IS NOT NULL AND (column_name = '{PAYMENT}' OR column_name IS NULL)"
        ),
        |row| row.get(0),
    )?
    .into_iter()
    .collect();
    // One statement for all of them: each costs much the same for one month as for a hundred.
    conn.execute_batch(
        "CREATE OR REPLACE TEMP TABLE stage_closings (journal_level VARCHAR, journal_id BIGINT, \
         journal_month VARCHAR, lines BIGINT, payment VARCHAR, sha256 VARCHAR)",
    )
    .map_err(failed)?;
    let mut stage = conn.appender("stage_closings").map_err(failed)?;
    for (part, id) in &open {
        let month = JournalScope::of(*id, part).ok_or_else(|| {
            Error::new(Kind::Internal, format!("{part} of {name} is no journal's month"))
        })?;
        let load = just.of(&month);
        let content = match load.filter(|_| just.are_all) {
            Some(load) => MonthContent::decoded(&load.decoded)?,
            None => MonthContent::mirrored(conn, resource, notes, &month)?,
        };
        // A sum without a value that did not fit is no sum. What does not fit in an answer that just came is
        // noted only after it.
        let fits = load.map_or_else(|| !unfit.contains(&month.to_string()), all_payments_fit);
        stage
            .append_row(params![
                month.level.to_string(),
                id,
                month.month.first().to_string(),
                content.lines,
                content.payment.filter(|_| fits),
                content.sha256
            ])
            .map_err(failed)?;
    }
    stage.flush().map_err(failed)?;
    drop(stage);
    conn.execute_batch(&format!(
        "INSERT INTO sync.closings BY NAME SELECT {name} AS journal, journal_level, journal_id, \
           journal_month::DATE AS journal_month, {now} AS closed_at, {by} AS closed_by, lines, \
           payment::DECIMAL(38,2) AS payment, sha256, {forced_over} AS forced_over \
         FROM temp.stage_closings; DROP TABLE temp.stage_closings",
        now = instant(now),
        by = sql::text(by),
        forced_over = forced_over.map_or_else(|| "NULL".to_owned(), sql::text),
    ))
    .map_err(failed)?;
    Ok(open.len())
}
