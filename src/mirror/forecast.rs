//! What the store tells of the calls that are to come.

use duckdb::Connection;
use std::collections::BTreeMap;

use super::state::ids;
use super::unreadable::places;
use crate::config::JournalLevel;
use crate::error::Result;
use crate::scope::{FeedName, Month, Place};
use crate::sql::{self, scalar_i64};
use crate::ticks::Ticks;

/// What is to be read, counted.
pub(crate) struct Forecasts<'c> {
    pub(super) conn: &'c Connection,
}

impl Forecasts<'_> {
    /// How many rows of a feed were modified at or after an instant, as far as it was seen.
    pub(crate) fn modified_since(&self, feed: FeedName, at: Ticks) -> Result<u64> {
        let (table, _, _) = places(feed);
        let sql = format!("SELECT count(*) FROM {table} WHERE modified_date >= {}", at.get());
        Ok(u64::try_from(scalar_i64(self.conn, &sql)?).unwrap_or(0))
    }

    /// The cases that are known to be hidden from a search.
    pub(crate) fn hidden_cases(&self, place: Place) -> Result<Vec<i64>> {
        ids(
            self.conn,
            &format!(
                "SELECT case_id FROM sync.seen WHERE NOT removed AND state = 'hidden' \
                   AND place = {} ORDER BY case_id",
                sql::text(place.table())
            ),
        )
    }

    /// How many days of a journal the service is known to answer at once: by id and month, `None`
    /// where a month came in one call, or was never read; and whether it is known which lines came.
    pub(crate) fn days_at_once(
        &self,
        table: &str,
        level: JournalLevel,
    ) -> Result<BTreeMap<i64, BTreeMap<Month, (Option<u32>, bool)>>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT journal_id, strftime(journal_month, '%Y-%m'), window_days, \
                   lines_digest IS NOT NULL FROM sync.journal_months WHERE table_name = {} AND journal_level = {}",
                sql::text(table),
                sql::text(&level.to_string())
            ),
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, Option<i64>>(2)?,
                    row.get::<_, bool>(3)?,
                ))
            },
        )?;
        let mut all: BTreeMap<i64, BTreeMap<Month, (Option<u32>, bool)>> = BTreeMap::new();
        for (id, month, days, is_known) in rows {
            if let Ok(month) = month.parse() {
                let days = days.and_then(|days| u32::try_from(days).ok());
                all.entry(id).or_default().insert(month, (days, is_known));
            }
        }
        Ok(all)
    }
}
