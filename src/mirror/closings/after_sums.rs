//! Closing months of the revenue journals by their close day: a reading that its own control refutes in the same run would
//! be frozen for good, so it is held against the platform's sum first.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{BY_CLOSE_DAY, Closings, JustLoaded, freeze};
use crate::catalog::Catalog;
use crate::config::JournalLevel;
use crate::error::Result;
use crate::mirror::lines::same_month;
use crate::mirror::state::batch;
use crate::scope::{Month, REVENUE, REVENUE_SUMS};
use crate::sql::{self, from_micros, instant};

/// SQL for whether the platform's sums are read. Where they are not, a reading of lines closes by itself.
pub(in crate::mirror) const ARE_SUMS_READ: &str = "\
    EXISTS (SELECT 1 FROM sync.resources WHERE table_name = 'revenue_journal_sums' \
      AND status NOT IN ('disabled', 'forbidden', 'absent'))";

impl Closings<'_> {
    /// The open months of revenue whose lines were read whole after their `close_day`, and their sums after them, or that
    /// lost their sums meanwhile. Whether a sum came after the `close_day` by both clocks its own reading says.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn revenue_to_close(
        &self,
        level: JournalLevel,
        (close_day, zone): (u32, &TimeZone),
    ) -> Result<Vec<(i64, Month)>> {
        let read = sql::query(
            self.conn,
            &format!(
                "SELECT l.journal_id, strftime(l.journal_month, '%Y-%m'), epoch_us(l.sent_at) \
                 FROM sync.journal_months l \
                 WHERE l.table_name = '{REVENUE}' AND l.journal_level = {} AND l.wanted AND l.complete \
                   AND l.closed_read_at IS NULL AND l.due IS NULL AND l.incomplete_at IS NULL \
                   AND NOT EXISTS (SELECT 1 FROM sync.closings c \
                     WHERE c.journal = '{REVENUE}' AND {of_closing}) \
                   AND (EXISTS (SELECT 1 FROM sync.journal_months s \
                       WHERE s.table_name = '{REVENUE_SUMS}' AND {of_sum} AND s.complete AND s.due IS NULL \
                         AND s.closed_read_at IS NOT NULL AND s.sent_at >= l.sent_at) \
                     OR EXISTS (SELECT 1 FROM sync.resources r WHERE r.table_name = '{REVENUE_SUMS}' \
                       AND r.status IN ('disabled', 'forbidden', 'absent') AND r.since >= l.read_at))",
                sql::text(&level.to_string()),
                of_closing = same_month("c", "l"),
                of_sum = same_month("s", "l"),
            ),
            |row| {
                let sent_at: Option<Timestamp> = from_micros(row.get(2)?);
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, sent_at))
            },
        )?;
        let months = read.into_iter().filter_map(|(id, month, sent_at)| {
            let month: Month = month.parse().ok()?;
            (sent_at? >= month.closes_at(close_day, zone)).then_some((id, month))
        });
        Ok(months.collect())
    }

    /// Closes those of `months`, as [`Closings::revenue_to_close`] says them, whose lines add up to their sum, or have none,
    /// or were read once more because they do not. What was not held against its sum yet, because a run ended there, is
    /// read again by the next schedule. Returns how many.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn close_what_adds_up(
        &self,
        catalog: &Catalog,
        level: JournalLevel,
        months: &[(i64, Month)],
        now: Timestamp,
    ) -> Result<usize> {
        let Some(resource) = catalog.get(REVENUE).filter(|_| !months.is_empty()) else {
            return Ok(0);
        };
        let now = self.time(now)?;
        let months: Vec<String> = months
            .iter()
            .map(|(id, month)| format!("({id}, DATE {})", sql::text(&month.first().to_string())))
            .collect();
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE closing_months AS \
                 SELECT v.journal_level, v.journal_id, v.journal_month FROM report.journal_coverage v \
                 JOIN (VALUES {}) t(id, month) ON t.id = v.journal_id AND t.month = v.journal_month \
                 LEFT JOIN sync.journal_months s ON s.table_name = '{REVENUE_SUMS}' AND {} \
                 WHERE v.journal = '{REVENUE}' AND v.journal_level = {} \
                   AND (v.sum_matches IS NOT FALSE OR s.off_rounds > 0 OR s.no_control_at IS NOT NULL)",
                months.join(", "),
                same_month("s", "v"),
                sql::text(&level.to_string()),
            ),
        )?;
        let notes = catalog.children(REVENUE).next().map(AsRef::as_ref);
        let loaded = JustLoaded::default();
        let all = "SELECT * FROM temp.closing_months";
        let closed =
            freeze(self.conn, (resource.as_ref(), notes), all, BY_CLOSE_DAY, None, &loaded, now)?;
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_months m SET closed_read_at = {} FROM temp.closing_months c \
                 WHERE m.table_name = '{REVENUE}' AND {}",
                instant(now),
                same_month("m", "c")
            ),
        )?;
        Ok(closed)
    }
}
