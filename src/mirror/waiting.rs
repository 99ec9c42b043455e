//! When what waits comes due: what failed, and what the search's lag holds back.

use std::collections::BTreeSet;

use duckdb::Connection;
use jiff::Timestamp;

use super::state::{ids, list};
use crate::error::Result;
use crate::scope::FailureKind;
use crate::sql;
use crate::ticks::Ticks;

/// Scopes that wait for their time.
pub(crate) struct WaitingScopes<'c> {
    pub(super) conn: &'c Connection,
}

impl WaitingScopes<'_> {
    /// Rows that are to be searched once more: the earliest time and how many, by table.
    pub(crate) fn again(&self) -> Result<Vec<(String, i64, i64)>> {
        sql::query(
            self.conn,
            "SELECT table_name, min(again_at), count(*) FROM sync.fetched_scopes \
             WHERE again_at IS NOT NULL GROUP BY table_name ORDER BY table_name",
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
    }

    /// What is searched twice in the next run: the rows that already were and wait for
    /// `source.search_delay`, and of the `stale` ones those that moved less than it ago.
    pub(crate) fn searched_again(
        &self,
        table: &str,
        stale: &BTreeSet<i64>,
        delay_ticks: i64,
        now: Timestamp,
    ) -> Result<BTreeSet<i64>> {
        let stale: Vec<i64> = stale.iter().copied().chain([-1]).collect();
        let since = Ticks::from(now).get().saturating_sub(delay_ticks);
        let again = ids(
            self.conn,
            &format!(
                "SELECT id FROM sync.fetched_scopes \
                   WHERE table_name = {} AND again_at IS NOT NULL \
                 UNION SELECT case_id FROM sync.seen \
                   WHERE modified_date > {since} AND case_id IN ({})",
                sql::text(table),
                list(&stale)
            ),
        )?;
        Ok(again.into_iter().collect())
    }

    /// When the next thing after `after` comes due that failed, that the search's lag holds back, or that is no
    /// case's and a webhook named, in microseconds of our clock.
    pub(crate) fn next_due(&self, after: i64) -> Result<Option<i64>> {
        let hints = hints_of_lists(after);
        let times = format!(
            "SELECT again_at AS due FROM sync.fetched_scopes WHERE again_at IS NOT NULL \
             UNION ALL SELECT epoch_us(next_at) FROM sync.failures \
             UNION ALL {hints}"
        );
        self.soonest(&times, after)
    }

    /// The same of what no cycle does that was under way at `after`: it tries nothing twice that failed, but for
    /// what waits for the search, and reads lists at its beginning.
    pub(crate) fn next_due_of_another_cycle(&self, after: i64) -> Result<Option<i64>> {
        let (waiting, hints) =
            (FailureKind::names(&FailureKind::OF_THE_SEARCH), hints_of_lists(after));
        let times = format!(
            "SELECT epoch_us(next_at) AS due FROM sync.failures WHERE kind NOT IN ({waiting}) \
             UNION ALL {hints}"
        );
        self.soonest(&times, after)
    }

    /// When the next search after `after` comes due that waits for the search's lag, in microseconds
    /// of our clock.
    pub(crate) fn next_search(&self, cases: &[i64], after: i64) -> Result<Option<i64>> {
        let among =
            if cases.is_empty() { String::new() } else { format!("AND id IN ({})", list(cases)) };
        let waiting = FailureKind::names(&FailureKind::OF_THE_SEARCH);
        let times = format!(
            "SELECT again_at AS due FROM sync.fetched_scopes WHERE again_at IS NOT NULL {among} \
             UNION ALL SELECT epoch_us(next_at) FROM sync.failures \
               WHERE kind IN ({waiting}) {among}"
        );
        self.soonest(&times, after)
    }

    /// The first of these times, a query of `due`, that comes after `after`.
    fn soonest(&self, times: &str, after: i64) -> Result<Option<i64>> {
        let sql = format!("SELECT min(due) FROM ({times}) WHERE due > {after}");
        let rows = sql::query(self.conn, &sql, |row| row.get(0))?;
        Ok(rows.into_iter().next().flatten())
    }
}

/// A row `due` for each webhook's hint that is no case's, and whose reading has not failed: right after `after`.
fn hints_of_lists(after: i64) -> String {
    format!(
        "SELECT {after} + 1 AS due FROM sync.hints h WHERE table_name NOT IN \
             (SELECT table_name FROM sync.refresh_rules) AND NOT EXISTS \
           (SELECT 1 FROM sync.failures f WHERE f.table_name = h.table_name AND f.id = h.id)"
    )
}
