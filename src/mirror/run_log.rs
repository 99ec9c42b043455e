//! The run log, which people read: runs, calls, failures, schedules, pending.

use std::collections::BTreeMap;
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::failures::{LISTING, is_failed, of_tables};
use super::wanted::UNWANTED_SCOPES;
use super::{Merged, Outcome};
use crate::error::{Kind, Result};
use crate::scope::CallStats;
use crate::sql::{self, db, from_micros, instant, instant_param, query, scalar_i64};

/// A row of `sync.failures`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailureRow {
    pub(crate) table: String,
    pub(crate) id: i64,
    pub(crate) attempts: i64,
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) kind: String,
    pub(crate) error: String,
}

/// A row of `sync.runs`, for `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRow {
    pub(crate) run_id: i64,
    pub(crate) command: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) outcome: Option<String>,
    pub(crate) exit_status: Option<i64>,
    pub(crate) calls: Option<i64>,
    pub(crate) error: Option<String>,
}

/// The outcome of a run that was stopped before its end.
pub(crate) const INTERRUPTED: &str = "interrupted";
/// What is noted as its error.
pub(crate) const STOPPED: &str = "stopped before its end";

/// What a run comes to.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunSummary {
    pub(crate) outcome: String,
    pub(crate) exit_status: u8,
    pub(crate) error: Option<String>,
    pub(crate) rows: Merged,
}

/// Reads and writes them on one connection.
pub struct RunLog<'c> {
    conn: &'c Connection,
}

impl<'c> RunLog<'c> {
    pub fn new(conn: &'c Connection) -> RunLog<'c> {
        RunLog { conn }
    }

    /// Notes the start of a run and returns its number.
    pub fn start_run(&self, command: &str) -> Result<i64> {
        let id = scalar_i64(self.conn, "SELECT coalesce(max(run_id), 0) + 1 FROM sync.runs")?;
        self.conn
            .execute(
                "INSERT INTO sync.runs (run_id, command, started_at) VALUES (?, ?, ?::TIMESTAMPTZ)",
                params![id, command, instant_param(Timestamp::now())],
            )
            .map_err(|e| db("cannot note the start of a run", e))?;
        Ok(id)
    }

    /// The number of the last run that was begun; 0 before the first.
    pub(crate) fn last_run_id(&self) -> Result<i64> {
        scalar_i64(self.conn, "SELECT coalesce(max(run_id), 0) FROM sync.runs")
    }

    /// Notes how a run ended.
    pub(crate) fn end_run(&self, run_id: i64, summary: &RunSummary) -> Result<()> {
        self.conn
            .execute(
                "UPDATE sync.runs SET ended_at = ?::TIMESTAMPTZ, outcome = ?, exit_status = ?, \
                   calls = (SELECT coalesce(sum(calls), 0) FROM sync.calls WHERE run_id = ?), \
                   rows_inserted = ?, rows_updated = ?, rows_deleted = ?, error = ? \
                 WHERE run_id = ?",
                params![
                    instant_param(Timestamp::now()),
                    summary.outcome,
                    i64::from(summary.exit_status),
                    run_id,
                    summary.rows.inserted,
                    summary.rows.updated,
                    summary.rows.deleted,
                    summary.error,
                    run_id
                ],
            )
            .map(drop)
            .map_err(|e| db("cannot note the end of a run", e))
    }

    /// Notes that a run was stopped before its end, where it has none. How many rows it changed is not known.
    pub(crate) fn interrupt_run(&self, run_id: i64) -> Result<()> {
        self.conn
            .execute(
                "UPDATE sync.runs SET ended_at = ?::TIMESTAMPTZ, outcome = ?, exit_status = ?, \
                   calls = (SELECT coalesce(sum(calls), 0) FROM sync.calls WHERE run_id = ?), \
                   error = ? \
                 WHERE run_id = ? AND outcome IS NULL",
                params![
                    instant_param(Timestamp::now()),
                    INTERRUPTED,
                    i64::from(Kind::Cancelled.exit_status()),
                    run_id,
                    STOPPED,
                    run_id
                ],
            )
            .map(drop)
            .map_err(|e| db("cannot note the end of a run", e))
    }

    /// Adds what was asked of the source since the last time: each endpoint once.
    pub(crate) fn add_calls(&self, run_id: i64, calls: &[CallStats]) -> Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let rows: Vec<String> = calls
            .iter()
            .map(|c| {
                let endpoint = sql::text(c.endpoint.as_ref());
                let CallStats { calls, retries, refusals, bytes, time, .. } = c;
                let seconds = time.as_secs_f64();
                format!("({endpoint}, {calls}, {retries}, {refusals}, {bytes}, {seconds})")
            })
            .collect();
        self.conn
            .execute_batch(&format!(
                "MERGE INTO sync.calls c USING (SELECT {run_id} AS run_id, * FROM (VALUES {}) \
                   v(endpoint, calls, retries, refusals, bytes, seconds)) n \
                 ON c.run_id = n.run_id AND c.endpoint = n.endpoint \
                 WHEN MATCHED THEN UPDATE SET calls = c.calls + n.calls, \
                   retries = c.retries + n.retries, refusals = c.refusals + n.refusals, \
                   bytes = c.bytes + n.bytes, seconds = c.seconds + n.seconds \
                 WHEN NOT MATCHED THEN INSERT BY NAME",
                rows.join(", ")
            ))
            .map_err(|e| db("cannot note calls", e))
    }

    /// What failed and waits, soonest first.
    pub(crate) fn failures(&self, limit: usize) -> Result<Vec<FailureRow>> {
        query(
            self.conn,
            &format!(
                "SELECT table_name, id, attempts, epoch_us(next_at), kind, error \
                 FROM sync.failures ORDER BY next_at LIMIT {limit}"
            ),
            |row| {
                Ok(FailureRow {
                    table: row.get(0)?,
                    id: row.get(1)?,
                    attempts: row.get(2)?,
                    next_at: from_micros(row.get(3)?),
                    kind: row.get(4)?,
                    error: row.get(5)?,
                })
            },
        )
    }

    /// Until when the source wants no call to the feeds, as `Retry-After` said and `longest` allows; `None`
    /// where that has passed.
    pub(crate) fn feeds_held_until(
        &self,
        longest: Duration,
        now: Timestamp,
    ) -> Result<Option<Timestamp>> {
        let longest = i64::try_from(longest.as_nanos()).unwrap_or(i64::MAX);
        let until = query(
            self.conn,
            &format!(
                "SELECT max(epoch_us(ended_at) + least(hold_ns, {longest}) // 1000) \
                 FROM sync.feed_calls WHERE hold_ns > 0 AND ended_at <= {}",
                // Not what our clock told while it was ahead.
                instant(now)
            ),
            |row| row.get(0),
        )?;
        Ok(until.into_iter().find_map(from_micros).filter(|until| *until > now))
    }

    /// How many calls to the feeds the throttle counts that looks back so far: what was sent, or ended, since.
    pub(crate) fn feed_calls_within(&self, length: Duration, now: Timestamp) -> Result<i64> {
        // Not what our clock told while it was ahead.
        let within = format!("BETWEEN {} AND {}", instant(now - length), instant(now));
        let sql = format!(
            "SELECT count(*) FROM sync.feed_calls WHERE sent_at {within} OR ended_at {within}"
        );
        scalar_i64(self.conn, &sql)
    }

    /// When a schedule last ran.
    pub(crate) fn schedule(&self, name: &str) -> Result<Option<Timestamp>> {
        let rows = query(
            self.conn,
            &format!(
                "SELECT epoch_us(last_run) FROM sync.schedules WHERE name = {}",
                sql::text(name)
            ),
            |row| row.get::<_, Option<i64>>(0),
        )?;
        Ok(rows.into_iter().next().flatten().and_then(|us| from_micros(Some(us))))
    }

    /// Notes that a schedule ran.
    pub(crate) fn set_schedule(&self, name: &str, at: Timestamp) -> Result<()> {
        self.conn
            .execute("DELETE FROM sync.schedules WHERE name = ?", [name])
            .and_then(|_| {
                self.conn.execute(
                    "INSERT INTO sync.schedules VALUES (?, ?::TIMESTAMPTZ)",
                    params![name, instant_param(at)],
                )
            })
            .map(drop)
            .map_err(|e| db("cannot note a schedule", e))
    }

    /// The last runs, newest first.
    pub(crate) fn runs(&self, limit: usize) -> Result<Vec<RunRow>> {
        query(
            self.conn,
            &format!(
                "SELECT run_id, command, epoch_us(started_at), epoch_us(ended_at), outcome, \
                   exit_status, calls, error FROM sync.runs ORDER BY run_id DESC LIMIT {limit}"
            ),
            |row| {
                Ok(RunRow {
                    run_id: row.get(0)?,
                    command: row.get(1)?,
                    started_at: from_micros(row.get(2)?),
                    ended_at: from_micros(row.get(3)?),
                    outcome: row.get(4)?,
                    exit_status: row.get(5)?,
                    calls: row.get(6)?,
                    error: row.get(7)?,
                })
            },
        )
    }

    /// Scopes of these tables that failed and wait: how many, and one error. What waits for the search is not
    /// among them while that may lag (`source.search_delay`). `cases`: only theirs, and whole lists; empty:
    /// all. `listing`: that of all cases too.
    pub(crate) fn failed_scopes(
        &self,
        tables: &[impl AsRef<str>],
        (cases, listing): (&[i64], bool),
        search_delay: Duration,
    ) -> Result<BTreeMap<String, (i64, String)>> {
        let among = among("id", "0", cases, |id| id.to_string());
        let rows = query(
            self.conn,
            &format!(
                "SELECT table_name, count(*), arg_min(error, next_at) FROM sync.failures \
                 WHERE {} AND {} {among} {whole} GROUP BY table_name",
                of_tables(tables),
                is_failed(search_delay),
                whole = if listing {
                    String::new()
                } else {
                    format!("AND part <> {}", sql::text(LISTING))
                },
            ),
            |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Open rejects of these tables: how many. `cases` as in [`RunLog::failed_scopes`]. Those of months
    /// that nobody wants now are open still, and are not counted.
    pub(crate) fn open_rejects(
        &self,
        tables: &[&str],
        cases: &[i64],
    ) -> Result<BTreeMap<String, i64>> {
        let among = among("scope", "''", cases, |id| sql::text(&id.to_string()));
        let rows = query(
            self.conn,
            &format!(
                "SELECT table_name, count(*) FROM sync.rejects WHERE resolved_at IS NULL \
                   AND table_name IN ({}) AND scope NOT IN ({UNWANTED_SCOPES}) {among} \
                 GROUP BY table_name",
                sql::texts(tables.iter().copied().chain([""]))
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Begins new `sync.pending_scopes`: what is pending now comes with [`RunLog::add_pending`], and takes
    /// the place of what was with [`RunLog::replace_pending`].
    pub(crate) fn begin_pending(&self) -> Result<()> {
        self.conn
            .execute_batch(
                "CREATE OR REPLACE TEMP TABLE stage_pending \
                 (table_name VARCHAR, scope VARCHAR, reason VARCHAR)",
            )
            .map_err(|e| db("cannot note what is pending", e))
    }

    /// Adds to the new `sync.pending_scopes`: table, scope, reason.
    pub(crate) fn add_pending<'a>(
        &self,
        pending: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<()> {
        let failed = |e| db("cannot note what is pending", e);
        let mut appender = self.conn.appender("stage_pending").map_err(failed)?;
        for (table, scope, reason) in pending {
            appender.append_row(params![table, scope, reason]).map_err(failed)?;
        }
        appender.flush().map_err(failed)
    }

    /// Replaces `sync.pending_scopes`. What was pending before keeps its `since`, and so does what is left
    /// of a case that was unread when pending scopes were last noted (`UnreadCases::note`).
    pub(crate) fn replace_pending(&self) -> Result<()> {
        self.conn
            .execute_batch(&format!(
                "CREATE OR REPLACE TEMP TABLE now_pending AS \
                   SELECT n.table_name, n.scope, n.reason, \
                     coalesce(p.since, CASE WHEN r.table_name IS NOT NULL THEN u.since END, {now}) \
                       AS since \
                   FROM temp.stage_pending n \
                   LEFT JOIN sync.pending_scopes p \
                     ON p.table_name = n.table_name AND p.scope = n.scope \
                   LEFT JOIN (SELECT table_name FROM sync.refresh_rules \
                              WHERE table_name NOT IN ('cases', 'projects')) r \
                     ON r.table_name = n.table_name \
                   LEFT JOIN temp.read_since u ON u.case_id = TRY_CAST(n.scope AS BIGINT); \
                 DELETE FROM sync.pending_scopes; \
                 INSERT INTO sync.pending_scopes SELECT * FROM temp.now_pending; \
                 DROP TABLE temp.now_pending; DROP TABLE temp.stage_pending",
                now = instant(Timestamp::now())
            ))
            .map_err(|e| db("cannot note what is pending", e))
    }

    /// The rows that an outcome wrote, in all.
    pub(crate) fn total(outcome: &Outcome) -> Merged {
        let mut total = Merged::default();
        for merged in outcome.tables.values() {
            total.add(*merged);
        }
        total
    }
}

/// SQL for `column` being one of these cases' or a whole list's scope; nothing where all are meant.
fn among(column: &str, list: &str, cases: &[i64], literal: impl Fn(&i64) -> String) -> String {
    if cases.is_empty() {
        return String::new();
    }
    let scopes: Vec<String> = cases.iter().map(literal).chain([list.to_owned()]).collect();
    format!("AND {column} IN ({})", scopes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn calls_to_the_feeds_that_a_wrong_clock_dated_ahead_are_not_those_of_now() {
        let conn = fixture::store(None, 2026..=2026);
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let second = Duration::from_secs(1);
        let call = |id: i64, sent: Timestamp, hold: Option<i64>| {
            let sql = format!(
                "INSERT INTO sync.feed_calls BY NAME SELECT {id} AS id, 'cases' AS feed, {} AS sent_at, {} AS ended_at, \
                   {} AS hold_ns",
                instant(sent),
                instant(sent + second),
                hold.map_or("NULL".to_owned(), |hold| hold.to_string())
            );
            conn.execute_batch(&sql).unwrap();
        };
        call(1, now - 30 * second, None);
        call(2, now - 31 * second, None);
        call(3, now - 40 * second, None);
        call(4, now + 400 * 86_400 * second, Some(60_000_000_000));
        let log = RunLog::new(&conn);
        assert_eq!(log.feed_calls_within(30 * second, now).unwrap(), 2);
        let held = || log.feeds_held_until(600 * second, now).unwrap();
        assert_eq!(held(), None);
        call(5, now - 11 * second, Some(60_000_000_000));
        assert_eq!(held(), Some(now + 50 * second));
    }
}
