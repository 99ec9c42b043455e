//! What was read of each scope and what failed (`sync.fetched`, `sync.failures`).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::{
    FAILURE_LAG, FAILURE_NOT_SHOWN, FAILURE_SUSPECT, Fetched, ScopeId, State, ids, list, query,
};
use super::{db, instant_param, scalar_i64};
use crate::catalog::Resource;
use crate::error::Result;
use crate::plan;
use crate::quote;
use crate::ticks::Ticks;

impl State<'_> {
    /// What was fetched of these scopes, by table and id.
    pub fn fetched(&self, ids: &[i64], contacts: bool) -> Result<HashMap<(String, i64), Fetched>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let which = if contacts { "=" } else { "<>" };
        let rows = self.query(
            &format!(
                "SELECT table_name, id, stamp, complete, again_at, epoch_us(fetched_at) \
                 FROM sync.fetched WHERE part = '' AND table_name {which} 'contacts' \
                   AND id IN ({})",
                list(ids)
            ),
            |row| {
                Ok((
                    (row.get(0)?, row.get(1)?),
                    Fetched {
                        stamp: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                        complete: row.get(3)?,
                        again_at: row.get(4)?,
                        fetched_at: row.get(5)?,
                    },
                ))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Until when failed scopes wait: by table and id, in microseconds of our clock.
    pub fn failures(&self) -> Result<HashMap<(String, i64), i64>> {
        let rows = self.query(
            "SELECT table_name, id, epoch_us(next_at) FROM sync.failures WHERE part = ''",
            |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The values of a column of another table for these ids: which cases `[only]` lets through.
    pub fn column_values(
        &self,
        table: &str,
        column: &str,
        ids: &[i64],
    ) -> Result<HashMap<i64, Option<String>>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.query(
            &format!(
                "SELECT id, {}::VARCHAR FROM main.{} WHERE id IN ({})",
                quote::ident(column),
                quote::ident(table),
                list(ids)
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The ids in a column of a mirrored table.
    pub fn column_ids(&self, table: &str, column: &str) -> Result<Vec<i64>> {
        let column = quote::ident(column);
        ids(
            self.conn,
            &format!(
                "SELECT DISTINCT {column} FROM main.{} WHERE {column} IS NOT NULL ORDER BY 1",
                quote::ident(table)
            ),
        )
    }

    /// Rows that are mirrored of a scope.
    pub fn rows_of_scope(&self, resource: &Resource, id: i64) -> Result<i64> {
        let condition = match resource.scope_column() {
            Some(column) => format!("{} = {id}", quote::ident(column)),
            None => "true".to_owned(),
        };
        scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM main.{} WHERE {condition}",
                quote::ident(&resource.table)
            ),
        )
    }

    /// Whether a scope failed in this way in an earlier run.
    pub fn failed_before(&self, table: &str, id: i64, kind: &str, run_id: i64) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.failures WHERE table_name = {} AND id = {id} \
                   AND part = '' AND kind = {} AND run_id < {run_id}",
                quote::text(table),
                quote::text(kind)
            ),
        )? > 0)
    }

    /// Notes that a scope could not be read; returns when it may be tried again.
    pub fn fail(
        &self,
        run_id: i64,
        now: Timestamp,
        scope: &ScopeId,
        kind: &str,
        error: &str,
        not_before: Option<Duration>,
    ) -> Result<Timestamp> {
        fail(self.conn, run_id, now, scope, kind, error, not_before)
    }

    /// Whether a list has to be read though its schedule is not due: it was never read, was asked
    /// for, or failed and its backoff is over.
    pub fn list_is_stale(&self, table: &str, whole: bool) -> Result<bool> {
        let (name, now) = (quote::text(table), Timestamp::now().as_microsecond());
        let failures = format!("FROM sync.failures WHERE table_name = {name}");
        let waiting = scalar_i64(
            self.conn,
            &format!("SELECT count(*) {failures} AND epoch_us(next_at) > {now}"),
        )?;
        if waiting > 0 {
            return Ok(false);
        }
        let failed = scalar_i64(self.conn, &format!("SELECT count(*) {failures}"))?;
        let fetched = format!("FROM sync.fetched WHERE table_name = {name}");
        let stale = scalar_i64(self.conn, &format!("SELECT count(*) {fetched} AND stamp <> ''"))?;
        let never = whole && scalar_i64(self.conn, &format!("SELECT count(*) {fetched}"))? == 0;
        Ok(failed > 0 || stale > 0 || never)
    }

    /// Why a list is stale, and whether it was never read.
    pub fn why_list_is_stale(&self, table: &str) -> Result<Option<(String, bool)>> {
        let name = quote::text(table);
        let rows = self.query(
            &format!(
                "SELECT (SELECT max(error) FROM sync.failures WHERE table_name = {name}), \
                   (SELECT max(stamp) FROM sync.fetched WHERE table_name = {name}), \
                   (SELECT coalesce(bool_or(complete), false) FROM sync.fetched \
                    WHERE table_name = {name})"
            ),
            |row| {
                Ok((
                    row.get::<_, Option<String>>(0)?,
                    row.get::<_, Option<String>>(1)?,
                    row.get::<_, bool>(2)?,
                ))
            },
        )?;
        let Some((error, stamp, complete)) = rows.into_iter().next() else { return Ok(None) };
        Ok(match (error, stamp) {
            (Some(error), _) => Some((error, !complete)),
            (None, None) => Some(("never fetched".to_owned(), true)),
            (None, Some(stamp)) if !stamp.is_empty() => Some((stamp, !complete)),
            (None, Some(_)) => None,
        })
    }

    /// Rows that are to be searched once more: the earliest time and how many, by table.
    pub fn again(&self) -> Result<Vec<(String, i64, i64)>> {
        self.query(
            "SELECT table_name, min(again_at), count(*) FROM sync.fetched \
             WHERE again_at IS NOT NULL GROUP BY table_name ORDER BY table_name",
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
    }

    /// How many rows of a search are searched twice in the next run: those that already were and wait
    /// for `source.search_delay`, and of the `stale` ones those that moved less than it ago.
    pub fn searched_again(
        &self,
        table: &str,
        stale: &BTreeSet<i64>,
        delay_ticks: i64,
        now: Timestamp,
    ) -> Result<u64> {
        let stale: Vec<i64> = stale.iter().copied().chain([-1]).collect();
        let since = Ticks::from(now).get().saturating_sub(delay_ticks);
        let count = scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM (SELECT id FROM sync.fetched \
                   WHERE table_name = {} AND again_at IS NOT NULL \
                 UNION SELECT case_id FROM sync.seen \
                   WHERE modified_date > {since} AND case_id IN ({}))",
                quote::text(table),
                list(&stale)
            ),
        )?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Rows of a mirrored table.
    pub fn count_rows(&self, table: &str) -> Result<u64> {
        let sql = format!("SELECT count(*) FROM main.{}", quote::ident(table));
        Ok(u64::try_from(scalar_i64(self.conn, &sql)?).unwrap_or(0))
    }

    /// When the next thing after `after` comes due that failed or that the search's lag holds back, in
    /// microseconds of our clock.
    pub fn next_due(&self, after: i64) -> Result<Option<i64>> {
        let rows = self.query(
            &format!(
                "SELECT min(due) FROM (SELECT again_at AS due FROM sync.fetched \
                   WHERE again_at IS NOT NULL \
                 UNION ALL SELECT epoch_us(next_at) FROM sync.failures) WHERE due > {after}"
            ),
            |row| row.get(0),
        )?;
        Ok(rows.into_iter().next().flatten())
    }

    /// When the next search after `after` comes due that waits for the search's lag, in microseconds
    /// of our clock.
    pub fn next_search(&self, cases: &[i64], after: i64) -> Result<Option<i64>> {
        let among =
            if cases.is_empty() { String::new() } else { format!("AND id IN ({})", list(cases)) };
        let rows = self.query(
            &format!(
                "SELECT min(due) FROM (SELECT again_at AS due FROM sync.fetched \
                   WHERE again_at IS NOT NULL {among} \
                 UNION ALL SELECT epoch_us(next_at) FROM sync.failures \
                   WHERE kind IN ('{FAILURE_LAG}', '{FAILURE_SUSPECT}', '{FAILURE_NOT_SHOWN}') {among}) \
                 WHERE due > {after}"
            ),
            |row| row.get(0),
        )?;
        Ok(rows.into_iter().next().flatten())
    }
}

/// Notes that a scope could not be read; returns when it may be tried again.
pub(super) fn fail(
    conn: &Connection,
    run_id: i64,
    now: Timestamp,
    scope: &ScopeId,
    kind: &str,
    error: &str,
    not_before: Option<Duration>,
) -> Result<Timestamp> {
    let of_scope = format!(
        "table_name = {} AND id = {} AND part = {}",
        quote::text(&scope.table),
        scope.id,
        quote::text(&scope.part)
    );
    let before = query(
        conn,
        &format!("SELECT attempts, epoch_us(first_at) FROM sync.failures WHERE {of_scope}"),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    )?
    .pop();
    let attempts = before.map_or(0, |(n, _)| n) + 1;
    let first = before.and_then(|(_, us)| Timestamp::from_microsecond(us).ok()).unwrap_or(now);
    let wait = plan::backoff(attempts as u32).max(not_before.unwrap_or_default());
    let next = now + wait;
    let failed = |e| db("cannot note a failure", e);
    conn.execute_batch(&format!("DELETE FROM sync.failures WHERE {of_scope}")).map_err(failed)?;
    conn.execute(
        "INSERT INTO sync.failures VALUES (?, ?, ?, ?, ?, ?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?, ?)",
        params![
            scope.table,
            scope.id,
            scope.part,
            run_id,
            attempts,
            instant_param(first),
            instant_param(next),
            kind,
            error
        ],
    )
    .map_err(failed)?;
    Ok(next)
}
