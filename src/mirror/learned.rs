//! What the readings of a journal's month teach: how much of it the service answers at once, which lines
//! came, how long it takes to fail, and whether its sum is a control of it (docs/architecture.md,
//! "Journals").

use std::collections::BTreeSet;
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::{SignedDuration, Timestamp};

use super::state::failures::Failure;
use super::state::{State, batch};
use crate::catalog::Resource;
use crate::config::JournalLevel;
use crate::error::Result;
use crate::scope::{FailureKind, JournalScope, Month, REVENUE_SUMS, ScopeId};
use crate::sql::{self, db, instant};

/// After a larger part of a journal was too much, it is tried again when this has passed, and twice as
/// long after each further time. Less than a day, so that each night finds it due.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(20 * 3600);
const MOST_DOUBLINGS: u32 = 4;
/// A month that takes long to fail waits no longer than this, so that each night finds it.
const LONGEST_REST: Duration = Duration::from_secs(20 * 3600);
/// So many rounds that find the same difference, and nothing changed, say that the sum means something
/// else than the lines.
const ROUNDS: i64 = 3;

/// What came of comparing sums with their lines.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Their lines do not add up, and are to be read once more.
    pub(crate) off: Vec<(i64, Month)>,
    /// Their sum is no control, which is known since just now.
    pub(crate) no_control: Vec<(i64, Month)>,
}

/// How long a month rests after it failed for so long, for the n-th time in a row: longer than it
/// was asked, and twice as long each time.
fn rest(took: Duration, attempts: u32) -> Duration {
    took.saturating_mul(1_u32.checked_shl(attempts).unwrap_or(u32::MAX)).min(LONGEST_REST)
}

/// When a larger part is tried again that was too much for the n-th time.
fn tried_again_after(failures: u32) -> Duration {
    TRIED_AGAIN_AFTER * 2_u32.pow(failures.saturating_sub(1).min(MOST_DOUBLINGS))
}

/// Keeps which lines the staged months were read with: that an answer is the one of an earlier complete
/// reading proves it as well as a second reading does, and one in the same order need not be decoded.
pub(super) fn keep_digests(conn: &Connection, resource: &Resource) -> Result<()> {
    conn.execute_batch(&format!(
        "UPDATE sync.journal_months m \
         SET lines_digest = CASE WHEN c.complete THEN nullif(s.version, '') END, \
           answer_digest = CASE WHEN c.complete THEN s.digest END \
         FROM temp.stage_months c JOIN temp.stage_scopes s ON s.id = c.journal_id AND s.part = c.part \
         WHERE m.table_name = {} AND m.journal_level = c.journal_level \
           AND m.journal_id = c.journal_id AND m.journal_month = c.journal_month \
           AND (m.lines_digest IS DISTINCT FROM CASE WHEN c.complete THEN nullif(s.version, '') END \
             OR m.answer_digest IS DISTINCT FROM CASE WHEN c.complete THEN s.digest END)",
        sql::text(&resource.table)
    ))
    .map_err(|e| db("cannot note which lines a month has", e))
}

/// What is learned of the journals by reading them.
pub(crate) struct Learned<'c> {
    pub(super) conn: &'c Connection,
}

impl Learned<'_> {
    /// Keeps how many days of a journal the service answers at once, for this month, the later ones,
    /// and all that were never read. `too_much`: more was asked for, and is not tried again for a while.
    pub(crate) fn learn_window(
        &self,
        table: &str,
        scope: JournalScope,
        days: Option<u32>,
        too_much: bool,
        now: Timestamp,
    ) -> Result<()> {
        let of_journal = format!(
            "table_name = {} AND journal_level = {} AND journal_id = {}",
            sql::text(table),
            sql::text(&scope.level.to_string()),
            scope.id
        );
        let first = sql::text(&scope.month.first().to_string());
        let days = days.map_or("NULL".to_owned(), |days| days.to_string());
        let learned = if too_much {
            let before = sql::scalar_i64(
                self.conn,
                &format!(
                    "SELECT coalesce(max(larger_failures), 0) FROM sync.journal_months \
                     WHERE {of_journal} AND journal_month = {first}::DATE"
                ),
            )?;
            let failures = u32::try_from(before).unwrap_or(0).saturating_add(1);
            let wait = SignedDuration::try_from(tried_again_after(failures)).unwrap_or_default();
            format!(
                "window_days = {days}, larger_failures = {failures}, larger_at = {}",
                instant(now.saturating_add(wait).unwrap_or(now))
            )
        } else {
            // Another month of the journal may have been found to bear more.
            format!(
                "window_days = CASE WHEN window_days < {days} THEN {days} \
                   WHEN {days} IS NOT NULL THEN window_days END, \
                 larger_failures = NULL, larger_at = NULL"
            )
        };
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months SET {learned} WHERE {of_journal} \
               AND (journal_month >= {first}::DATE OR NOT complete)"
            ),
        )
    }

    /// Notes that a month could not be read, which took so long.
    pub(crate) fn month_failed(
        &self,
        run_id: i64,
        now: Timestamp,
        scope: &ScopeId,
        (kind, why): (FailureKind, &str),
        took: Duration,
    ) -> Result<()> {
        let before = sql::scalar_i64(
            self.conn,
            &format!(
                "SELECT coalesce(max(attempts), 0) FROM sync.failures \
                 WHERE table_name = {} AND id = {} AND part = {}",
                sql::text(&scope.table),
                scope.id,
                sql::text(&scope.part)
            ),
        )?;
        let attempts = u32::try_from(before).unwrap_or(0).saturating_add(1);
        let failure = Failure { not_before: Some(rest(took, attempts)), ..Failure::new(kind, why) };
        State::new(self.conn).failures().fail(run_id, now, scope, &failure).map(drop)
    }

    /// Compares the sums that were just read with their lines, where those were read before them. `again`:
    /// months whose lines were read once more in this round because they did not add up.
    pub(crate) fn compare_sums(
        &self,
        level: JournalLevel,
        totals: &BTreeSet<(i64, Month)>,
        again: &BTreeSet<(i64, Month)>,
        now: Timestamp,
    ) -> Result<Compared> {
        batch(
            self.conn,
            "CREATE OR REPLACE TEMP TABLE read_sums \
             (journal_id BIGINT, journal_month VARCHAR, again BOOLEAN)",
        )?;
        {
            let failed = |e| db("cannot stage the sums of months", e);
            let mut appender = self.conn.appender("read_sums").map_err(failed)?;
            for month in totals {
                let first = month.1.first().to_string();
                appender
                    .append_row(params![month.0, first, again.contains(month)])
                    .map_err(failed)?;
            }
            appender.flush().map_err(failed)?;
        }
        let level = sql::text(&level.to_string());
        let now = instant(now);
        let of_sum = format!(
            "m.table_name = {} AND m.journal_level = {level} \
             AND m.journal_id = c.journal_id AND m.journal_month = c.journal_month",
            sql::text(REVENUE_SUMS)
        );
        // A round ends when the lines were read once more and still do not add up. Those that could not be read are due
        // still: their sum says nothing about the platform's.
        let rounds = "(CASE WHEN m.off_compared IS DISTINCT FROM c.compared THEN 0 \
                       ELSE coalesce(m.off_rounds, 0) END + CAST(c.again AS BIGINT))";
        let total = |table: &str, column: &str| {
            format!(
                "coalesce((SELECT sum({column}) FROM main.{table} l WHERE l.journal_level = {level} \
                   AND l.journal_id = v.journal_id AND l.journal_month = v.journal_month), 0)"
            )
        };
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE compared_sums AS \
             SELECT v.journal_id, v.journal_month, r.again AND l.due IS NULL AS again, \
               v.sum_matches AS matches, \
               concat_ws(' ', v.lines, {}, {}, {}, s.total_payment, s.total_purchase_price) AS compared \
             FROM report.journal_coverage v \
             JOIN temp.read_sums r ON r.journal_id = v.journal_id \
               AND r.journal_month::DATE = v.journal_month \
             JOIN sync.journal_months l ON l.table_name = v.journal AND l.journal_level = {level} \
               AND l.journal_id = v.journal_id AND l.journal_month = v.journal_month \
             JOIN main.revenue_journal_sums s ON s.journal_level = {level} \
               AND s.journal_id = v.journal_id AND s.journal_month = v.journal_month \
             WHERE v.journal = 'revenue_journals' AND v.journal_level = {level} \
               AND v.sum_matches IS NOT NULL; \
             UPDATE sync.journal_months m SET off_rounds = NULL, off_compared = NULL, \
               no_control_at = NULL FROM temp.compared_sums c \
             WHERE {of_sum} AND c.matches AND m.off_compared IS NOT NULL; \
             UPDATE sync.journal_months m SET off_compared = c.compared, \
               off_rounds = {rounds}, no_control_at = CASE WHEN {rounds} >= {ROUNDS} \
                 THEN coalesce(m.no_control_at, {now}) END \
             FROM temp.compared_sums c WHERE {of_sum} AND NOT c.matches",
                total("revenue_journals", "payment"),
                total("revenue_journal_annotations", "payment_change"),
                total("revenue_journals", "purchase_price"),
            ),
        )?;
        let months = |which: &str| -> Result<Vec<(i64, Month)>> {
            let rows = sql::query(
                self.conn,
                &format!(
                    "SELECT c.journal_id, strftime(c.journal_month, '%Y-%m') \
                     FROM temp.compared_sums c JOIN sync.journal_months m ON {of_sum} \
                     WHERE NOT c.matches AND {which} ORDER BY c.journal_month DESC, c.journal_id"
                ),
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
            )?;
            Ok(rows.into_iter().filter_map(|(id, month)| Some((id, month.parse().ok()?))).collect())
        };
        Ok(Compared {
            off: months("m.no_control_at IS NULL AND NOT c.again")?,
            no_control: months(&format!("m.no_control_at = {now}"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(waits: impl IntoIterator<Item = Duration>) -> Vec<u64> {
        waits.into_iter().map(|wait| wait.as_secs() / 3600).collect()
    }

    #[test]
    fn what_takes_long_to_fail_rests_longer_each_time_and_is_tried_every_night() {
        let took = Duration::from_secs(3600);
        assert_eq!(hours((1..=6).map(|n| rest(took, n))), [2, 4, 8, 16, 20, 20]);
        assert_eq!(rest(Duration::from_millis(10), 1), Duration::from_millis(20));
        assert_eq!(rest(took, 1000), LONGEST_REST);
    }

    #[test]
    fn what_was_too_much_is_tried_again_ever_more_seldom() {
        let waits = [1, 2, 3, 4, 5, 6, 1000].map(tried_again_after);
        assert_eq!(hours(waits), [20, 40, 80, 160, 320, 320, 320]);
    }
}
