//! What control totals are held against, and what becomes of their findings
//! (docs/architecture.md, "Control totals").

use std::collections::{BTreeMap, BTreeSet, HashMap};

use duckdb::{Connection, params};
use jiff::Timestamp;
use jiff::civil::Date;

use super::state::fetched::rows_of;
use super::state::{State, execute, ids, list};
use super::wanted::IS_GONE;
use crate::config::JournalLevel;
use crate::error::Result;
use crate::scope::{CaseState, JournalScope, Month, Place};
use crate::sql::{self, instant, instant_param};

/// A month of the revenue journals as it is mirrored. Amounts are decimal texts with two places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RevenueMonth {
    pub(crate) scope: JournalScope,
    /// Of the office, company or chain, where it is known.
    pub(crate) name: Option<String>,
    pub(crate) payment: String,
    /// What annotations change of the payments.
    pub(crate) payment_change: String,
    pub(crate) purchase_price: String,
    /// The source's sums at the last reading: payment and purchase price.
    pub(crate) told: Option<(String, String)>,
    /// The last reading was after the month was closed.
    pub(crate) closed: bool,
    /// Something of it is not known: it is to be read, or a value did not fit.
    pub(crate) unsure: bool,
    pub(crate) window_days: Option<u32>,
    /// The source no longer knows whose month it is.
    pub(crate) gone: bool,
    /// The platform's sum is that of something else.
    pub(crate) without_control: bool,
    /// Annotations are mirrored: what they change of the payments is known.
    pub(crate) has_annotations: bool,
}

/// A month of a journal without a sum, whose turn it is to be read again line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnMonth {
    pub(crate) table: String,
    pub(crate) scope: JournalScope,
    pub(crate) name: Option<String>,
    /// The last reading was after the month was closed.
    pub(crate) closed: bool,
    pub(crate) window_days: Option<u32>,
}

impl TurnMonth {
    /// What comparisons of it are about.
    pub(crate) fn subject(&self) -> String {
        format!("{} {}", self.table, self.scope)
    }
}

/// SQL for a month `m` as a scope: `offices/11/2026-03`.
pub(super) const MONTH: &str =
    "m.journal_level || '/' || m.journal_id || '/' || strftime(m.journal_month, '%Y-%m')";

/// SQL for a month `m` that ended at `e.ends_at` being as its last reading has it, which was after its end.
const IS_KNOWN: &str =
    "m.complete AND m.due IS NULL AND m.doubted_at IS NULL AND m.sent_at >= e.ends_at";

/// When a scope was read, and when its case moved; microseconds of our clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ScopeTimes {
    pub(crate) sent_at: Option<i64>,
    pub(crate) fetched_at: Option<i64>,
}

/// When a case last moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CaseMoved {
    /// The page of a poll.
    pub(crate) sequence: i64,
    /// Microseconds of our clock; `None` for a case that no feed has reported.
    pub(crate) at: Option<i64>,
}

/// Between the table and the case in the subject of a sampled case's scope.
pub(super) const OF_CASE: &str = " of case ";

/// SQL for the cases of which some are read whole.
pub(super) const SAMPLED_CASES: &str = "SELECT case_id FROM sync.seen \
    WHERE removed IS NOT TRUE AND place IS NOT NULL AND state IS DISTINCT FROM 'hidden'";

/// By what a difference in a sampled case's scope is known again.
pub(crate) fn case_subject(table: &str, case_id: i64) -> String {
    format!("{table}{OF_CASE}{case_id}")
}

/// The cases that a verification reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChosenCases {
    /// Read whole.
    pub(crate) sampled: BTreeSet<i64>,
    /// Others, of which only what differed is read again.
    pub(crate) again: Vec<i64>,
    /// What was found to differ, and stands: tables and cases.
    pub(crate) standing: BTreeSet<(String, i64)>,
}

impl ChosenCases {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<i64> {
        self.sampled.iter().chain(&self.again).copied().collect()
    }

    /// Whether this of a case is read.
    pub(crate) fn has(&self, scope: &(String, i64)) -> bool {
        self.sampled.contains(&scope.1) || self.standing.contains(scope)
    }
}

/// What verifications ask of the mirror.
pub(crate) struct Verifications<'c> {
    pub(super) conn: &'c Connection,
}

impl Verifications<'_> {
    /// Which cases a verification reads: `sample` of those that a search shows, by chance, and beside them those that
    /// have a difference that stands, but not more than `most` of these.
    pub(crate) fn chosen_cases(&self, sample: usize, most: usize) -> Result<ChosenCases> {
        let standing = self.standing_scopes()?;
        let some_of = |condition: &str, most: usize| {
            let shown = format!("SELECT case_id FROM ({SAMPLED_CASES}) WHERE {condition}");
            ids(self.conn, &format!("{shown} ORDER BY random() LIMIT {most}"))
        };
        let sampled: BTreeSet<i64> = some_of("true", sample)?.into_iter().collect();
        let differed: Vec<i64> =
            standing.iter().map(|(_, id)| *id).filter(|id| !sampled.contains(id)).collect();
        let again = some_of(&format!("case_id IN ({})", some(&differed)), most)?;
        Ok(ChosenCases { sampled, again, standing })
    }

    /// The scopes of sampled cases that were found to differ, which stands.
    fn standing_scopes(&self) -> Result<BTreeSet<(String, i64)>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT DISTINCT split_part(subject, '{OF_CASE}', 1), \
                   try_cast(split_part(subject, '{OF_CASE}', 2) AS BIGINT) AS id \
                 FROM sync.verifications WHERE standing AND contains(subject, '{OF_CASE}') AND id IS NOT NULL"
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Which of these cases are not known to be in the searches' tables as they should: suspects, those
    /// that failed, those that the search's lag holds back, and those of which no record, or no value
    /// of `columns`, could be taken.
    pub(crate) fn undecided_cases(&self, cases: &[i64], columns: &[&str]) -> Result<Vec<i64>> {
        let columns = sql::texts(columns.iter().copied().chain([""]));
        ids(
            self.conn,
            &format!(
                "SELECT DISTINCT id FROM (SELECT id FROM sync.failures \
                   WHERE table_name IN ('cases', 'projects') \
                 UNION ALL SELECT case_id FROM sync.seen WHERE state = 'suspect' AND NOT removed \
                 UNION ALL SELECT id FROM sync.fetched_scopes WHERE again_at IS NOT NULL \
                   AND table_name IN ('cases', 'projects') \
                 UNION ALL SELECT try_cast(scope AS BIGINT) FROM sync.rejects \
                   WHERE resolved_at IS NULL AND table_name IN ('cases', 'projects') \
                     AND (column_name IS NULL OR column_name IN ({columns}))) \
                 WHERE id IN ({}) ORDER BY id",
                some(cases)
            ),
        )
    }

    /// Signed cases by month, as the report counts them; `None` where it does not know.
    pub(crate) fn signed_by_month(&self) -> Result<BTreeMap<Month, Option<i64>>> {
        let rows = sql::query(
            self.conn,
            "SELECT strftime(month, '%Y-%m'), CASE WHEN count(*) = count(signed_cases) \
               THEN sum(signed_cases)::BIGINT END \
             FROM report.signed_cases WHERE month IS NOT NULL GROUP BY month",
            |row| Ok((row.get::<_, String>(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().filter_map(|(month, n)| Some((month.parse().ok()?, n))).collect())
    }

    /// The cases that the report counts as signed from one instant up to another, which is excluded.
    pub(crate) fn signed_ids(&self, from: Timestamp, to: Timestamp) -> Result<Vec<i64>> {
        ids(
            self.conn,
            &format!(
                "SELECT id FROM main.cases WHERE assignment_type IS DISTINCT FROM 'Valuation' \
                   AND case_activated_date >= {} AND case_activated_date < {} ORDER BY id",
                instant(from),
                instant(to)
            ),
        )
    }

    /// The ids of a search's rows.
    pub(crate) fn search_ids(&self, place: Place) -> Result<Vec<i64>> {
        let table = sql::ident(place.table());
        ids(self.conn, &format!("SELECT id FROM main.{table} ORDER BY id"))
    }

    /// When these cases last moved.
    pub(crate) fn moves(&self, cases: &[i64]) -> Result<HashMap<i64, CaseMoved>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT case_id, coalesce(moved, 0), epoch_us(moved_at) FROM sync.seen \
                 WHERE case_id IN ({})",
                some(cases)
            ),
            |row| Ok((row.get(0)?, CaseMoved { sequence: row.get(1)?, at: row.get(2)? })),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// When the scopes of these cases were read.
    pub(crate) fn scope_times(&self, cases: &[i64]) -> Result<HashMap<(String, i64), ScopeTimes>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT table_name, id, epoch_us(sent_at), epoch_us(fetched_at) FROM ({}) \
                 WHERE part = '' AND table_name <> 'contacts'",
                rows_of(&some(cases))
            ),
            |row| {
                let times = ScopeTimes { sent_at: row.get(2)?, fetched_at: row.get(3)? };
                Ok(((row.get(0)?, row.get(1)?), times))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The search rows of these cases that are to be searched once more.
    pub(crate) fn searched_later(&self, cases: &[i64]) -> Result<Vec<(String, i64)>> {
        sql::query(
            self.conn,
            &format!(
                "SELECT table_name, id FROM sync.fetched_scopes WHERE again_at IS NOT NULL \
                   AND table_name IN ('cases', 'projects') AND id IN ({})",
                some(cases)
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// These scopes of cases are read again in the next cycle, and decoded whatever is answered: what is
    /// mirrored of them is not what was.
    pub(crate) fn scopes_are_stale(&self, scopes: &[(String, i64)]) -> Result<()> {
        for (table, id) in scopes {
            State::new(self.conn).fetched_scopes().unfold(&sql::text(table), &id.to_string())?;
            execute(
                self.conn,
                "UPDATE sync.fetched_scopes SET status = 'reread', digest = NULL \
                 WHERE table_name = ? AND id = ? AND part = ''",
                params![table, id],
            )?;
            execute(
                self.conn,
                "UPDATE sync.seen SET dirty = true WHERE case_id = ? AND NOT removed",
                params![id],
            )?;
        }
        Ok(())
    }

    /// The months of the revenue journals that are wanted, at one level.
    pub(crate) fn revenue_months(&self, level: JournalLevel) -> Result<Vec<RevenueMonth>> {
        let same = |t: &str| {
            format!(
                "{t}.journal_level = m.journal_level AND {t}.journal_id = m.journal_id \
                 AND {t}.journal_month = m.journal_month"
            )
        };
        let rows = sql::query(
            self.conn,
            &format!(
                // Of what did not fit only what is part of a sum, as report.journal_coverage has it.
                "WITH rejected AS (SELECT DISTINCT scope FROM sync.rejects \
                   WHERE resolved_at IS NULL AND (table_name = 'revenue_journal_sums' \
                     OR table_name = 'revenue_journals' AND (column_name IS NULL \
                       OR column_name IN ('payment', 'purchase_price')) \
                     OR table_name = 'revenue_journal_annotations' AND (column_name IS NULL \
                       OR column_name = 'payment_change'))), \
                 lines AS (SELECT journal_level, journal_id, journal_month, \
                     sum(payment) AS payment, sum(purchase_price) AS price \
                   FROM main.revenue_journals GROUP BY ALL), \
                 notes AS (SELECT journal_level, journal_id, journal_month, \
                     sum(payment_change) AS change \
                   FROM main.revenue_journal_annotations GROUP BY ALL) \
                 SELECT m.journal_id, strftime(m.journal_month, '%Y-%m') AS month, \
                   coalesce(o.name, k.name, c.name), coalesce(l.payment, 0)::VARCHAR, \
                   coalesce(n.change, 0)::VARCHAR, coalesce(l.price, 0)::VARCHAR, \
                   t.total_payment::VARCHAR, t.total_purchase_price::VARCHAR, \
                   m.closed_read_at IS NOT NULL, NOT m.complete OR m.due IS NOT NULL \
                     OR m.journal_level || '/' \
                     || m.journal_id || '/' || strftime(m.journal_month, '%Y-%m') IN \
                     (SELECT scope FROM rejected), m.window_days, k.gone_at IS NOT NULL, \
                   x.no_control_at IS NOT NULL, NOT EXISTS (SELECT 1 FROM sync.resources \
                     WHERE table_name = 'revenue_journal_annotations' \
                       AND status IN ('disabled', 'forbidden', 'absent')) \
                 FROM sync.journal_months m \
                 LEFT JOIN lines l ON {} LEFT JOIN notes n ON {} \
                 LEFT JOIN main.revenue_journal_sums t ON {} \
                 LEFT JOIN sync.journal_months x ON x.table_name = 'revenue_journal_sums' AND {} \
                 LEFT JOIN sync.journal_scopes k ON k.journal_level = m.journal_level \
                   AND k.journal_id = m.journal_id \
                 LEFT JOIN main.offices o ON m.journal_level = 'offices' AND o.id = m.journal_id \
                 LEFT JOIN main.contacts c ON c.id = m.journal_id \
                 WHERE m.table_name = 'revenue_journals' AND m.wanted AND m.journal_level = {} \
                   AND (m.complete OR m.due IS NOT NULL OR k.gone_at IS NOT NULL) \
                 ORDER BY m.journal_id, m.journal_month",
                same("l"),
                same("n"),
                same("t"),
                same("x"),
                sql::text(&level.to_string())
            ),
            |row| {
                let told: (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
                let month: Result<Month, _> = row.get::<_, String>(1)?.parse();
                let scope = month.ok().map(|month| (row.get(0), month));
                let Some((id, month)) = scope else { return Ok(None) };
                Ok(Some(RevenueMonth {
                    scope: JournalScope { level, id: id?, month },
                    name: row.get(2)?,
                    payment: row.get(3)?,
                    payment_change: row.get(4)?,
                    purchase_price: row.get(5)?,
                    told: told.0.zip(told.1),
                    closed: row.get(8)?,
                    unsure: row.get(9)?,
                    window_days: row
                        .get::<_, Option<i64>>(10)?
                        .and_then(|days| u32::try_from(days).ok()),
                    gone: row.get(11)?,
                    without_control: row.get(12)?,
                    has_annotations: row.get(13)?,
                }))
            },
        )?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Of these tables how many scopes at a level have months that are over, and none that can have its turn.
    pub(crate) fn scopes_without_turn(
        &self,
        tables: &[String],
        level: JournalLevel,
        now: Timestamp,
    ) -> Result<Vec<(String, usize)>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "WITH months AS (SELECT month, max(ends_at) AS ends_at FROM report.calendar \
                   GROUP BY month) \
                 SELECT table_name, count(*) FROM (SELECT m.table_name, m.journal_id \
                   FROM sync.journal_months m JOIN months e ON e.month = m.journal_month \
                   WHERE m.table_name IN ({}) AND m.journal_level = {} AND m.wanted \
                     AND e.ends_at <= {} AND NOT {IS_GONE} \
                   GROUP BY ALL HAVING NOT bool_or(coalesce({IS_KNOWN}, false))) \
                 GROUP BY table_name ORDER BY table_name",
                sql::texts(tables.iter().map(String::as_str).chain([""])),
                sql::text(&level.to_string()),
                sql::instant(now)
            ),
            |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)),
        )?;
        Ok(rows
            .into_iter()
            .map(|(table, scopes)| (table, usize::try_from(scopes).unwrap_or(usize::MAX)))
            .collect())
    }

    /// Of these tables one month of each scope at a level: the one that was not held against the source for
    /// longest, those that differed first. Only months that are over, and as the last reading had them.
    /// `has_sums`: of the revenue only those of which the platform's sum says nothing, and those that differed when
    /// they had their turn: that they do not any more is seen line by line.
    pub(crate) fn months_in_turn(
        &self,
        tables: &[String],
        level: JournalLevel,
        has_sums: bool,
    ) -> Result<Vec<TurnMonth>> {
        let without_sum = if has_sums {
            "AND (m.table_name <> 'revenue_journals' OR s.subject IS NOT NULL OR EXISTS (SELECT 1 FROM \
                   sync.journal_months x WHERE x.table_name = 'revenue_journal_sums' \
                   AND x.journal_level = m.journal_level AND x.journal_id = m.journal_id \
                   AND x.journal_month = m.journal_month AND x.no_control_at IS NOT NULL))"
        } else {
            ""
        };
        let rows = sql::query(
            self.conn,
            &format!(
                "WITH months AS (SELECT month, max(ends_at) AS ends_at FROM report.calendar \
                   GROUP BY month), \
                 standing AS (SELECT DISTINCT subject FROM sync.verifications WHERE standing) \
                 SELECT m.table_name, m.journal_id, strftime(m.journal_month, '%Y-%m'), \
                   coalesce(o.name, k.name, c.name), m.closed_read_at IS NOT NULL, m.window_days \
                 FROM sync.journal_months m JOIN months e ON e.month = m.journal_month \
                 LEFT JOIN standing s ON s.subject = m.table_name || ' ' || {MONTH} \
                 LEFT JOIN sync.journal_scopes k ON k.journal_level = m.journal_level \
                   AND k.journal_id = m.journal_id \
                 LEFT JOIN main.offices o ON m.journal_level = 'offices' AND o.id = m.journal_id \
                 LEFT JOIN main.contacts c ON c.id = m.journal_id \
                 WHERE m.table_name IN ({}) AND m.journal_level = {} AND m.wanted AND {IS_KNOWN} \
                   AND k.gone_at IS NULL {without_sum} \
                 QUALIFY row_number() OVER (PARTITION BY m.table_name, m.journal_id \
                   ORDER BY s.subject IS NULL, m.verified_at NULLS FIRST, m.journal_month DESC) = 1 \
                 ORDER BY m.table_name, m.journal_id",
                sql::texts(tables.iter().map(String::as_str).chain([""])),
                sql::text(&level.to_string())
            ),
            |row| {
                Ok((
                    (row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?),
                    (row.get(3)?, row.get(4)?, row.get::<_, Option<i64>>(5)?),
                ))
            },
        )?;
        Ok(rows
            .into_iter()
            .filter_map(|((table, id, month), (name, closed, days))| {
                let scope = JournalScope { level, id, month: month.parse().ok()? };
                let window_days = days.and_then(|days| u32::try_from(days).ok());
                Some(TurnMonth { table, scope, name, closed, window_days })
            })
            .collect())
    }

    /// Whether any line of a journal's month is mirrored.
    pub(crate) fn has_lines(&self, table: &str, scope: JournalScope) -> Result<bool> {
        let (table, month) = (sql::ident(table), rows_of_month(scope));
        let lines = format!("SELECT count(*) FROM main.{table} WHERE {month}");
        Ok(sql::scalar_i64(self.conn, &lines)? > 0)
    }

    /// Notes that months had their turn to be held against the source line by line, whether or not they could be read:
    /// the next ones have theirs.
    pub(crate) fn months_had_their_turn(
        &self,
        months: &[(String, JournalScope)],
        at: Timestamp,
    ) -> Result<()> {
        months.iter().try_for_each(|(table, scope)| {
            execute(
                self.conn,
                "UPDATE sync.journal_months SET verified_at = ?::TIMESTAMPTZ WHERE table_name = ? \
                   AND journal_level = ? AND journal_id = ? AND journal_month = ?::DATE",
                params![
                    instant_param(at),
                    table,
                    scope.level.to_string(),
                    scope.id,
                    scope.month.first().to_string()
                ],
            )
        })
    }

    /// The state of these cases; those that are removed are left out.
    pub(crate) fn cases(&self, cases: &[i64]) -> Result<Vec<CaseState>> {
        State::new(self.conn).cases().case_states("", cases, "case_id", cases.len())
    }
}

/// SQL that selects the mirrored rows of a journal's month.
pub(crate) fn rows_of_month(scope: JournalScope) -> String {
    let first: Date = scope.month.first();
    format!(
        "journal_level = {} AND journal_id = {} AND journal_month = DATE '{first}'",
        sql::text(&scope.level.to_string()),
        scope.id
    )
}

/// Ids for an SQL list that is never empty.
fn some(ids: &[i64]) -> String {
    if ids.is_empty() { "NULL".to_owned() } else { list(ids) }
}
