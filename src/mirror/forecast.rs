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

/// How a month of a journal came when it was last read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MonthRead {
    /// How many days the service is known to answer at once; `None` where all came in one call.
    pub(crate) window_days: Option<u32>,
    /// Whether the store has the digest of its lines.
    pub(crate) is_digested: bool,
}

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

    /// How the months of a journal came when they were last read, by its id.
    pub(crate) fn months_read(
        &self,
        table: &str,
        level: JournalLevel,
    ) -> Result<BTreeMap<i64, BTreeMap<Month, MonthRead>>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT journal_id, strftime(journal_month, '%Y-%m'), window_days, \
                   lines_digest IS NOT NULL FROM sync.journal_months WHERE table_name = {} AND journal_level = {}",
                sql::text(table),
                sql::text(&level.to_string())
            ),
            |row| {
                let read = MonthRead {
                    window_days: row
                        .get::<_, Option<i64>>(2)?
                        .and_then(|days| days.try_into().ok()),
                    is_digested: row.get(3)?,
                };
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, read))
            },
        )?;
        let mut all: BTreeMap<i64, BTreeMap<Month, MonthRead>> = BTreeMap::new();
        for (id, month, read) in rows {
            if let Ok(month) = month.parse() {
                all.entry(id).or_default().insert(month, read);
            }
        }
        Ok(all)
    }
}
