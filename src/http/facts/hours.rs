//! What each hour of the last day brought.

use duckdb::Connection;
use jiff::Timestamp;

use crate::error::Result;
use crate::sql::query;

/// Hours that the charts show.
pub(in crate::http) const HOURS: i64 = 24;
/// In seconds.
const HOUR: i64 = 3600;
/// In microseconds.
const HOUR_US: i64 = HOUR * 1_000_000;

/// What an hour brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Hour {
    pub(in crate::http) begins: Timestamp,
    pub(in crate::http) calls: i64,
    pub(in crate::http) changes: i64,
}

/// The hours up to now, the oldest first. What a run did is spread evenly over the time that it took: a first
/// load takes days. Calls to the feeds are those of the ledger, because polls belong to no run.
///
/// # Errors
/// Those of reading the store.
pub(super) fn collect(conn: &Connection, now: Timestamp) -> Result<Vec<Hour>> {
    let last = now.as_second().div_euclid(HOUR);
    let first = last - HOURS + 1;
    let (from, now_us) = (first * HOUR_US, now.as_microsecond());
    // By numbers: DuckDB adds no interval to an instant without an extension. A run that was killed ended, as
    // far as is known, when the next one began.
    let rows: Vec<(i64, i64, i64)> = query(
        conn,
        &format!(
            "WITH timed AS ( \
               SELECT run_id, epoch_us(started_at) AS b, \
                 coalesce(epoch_us(ended_at), lead(epoch_us(started_at)) OVER (ORDER BY run_id), \
                   {now_us}) AS e, \
                 coalesce(rows_inserted, 0) + coalesce(rows_updated, 0) + coalesce(rows_deleted, 0) \
                   AS changes \
               FROM sync.runs), \
             recent AS (SELECT * FROM timed WHERE e >= {from}), \
             called AS (SELECT run_id, sum(calls) AS calls FROM sync.calls \
               WHERE run_id >= (SELECT min(run_id) FROM recent) \
                 AND endpoint NOT LIKE '%/RecentlyModified/%' GROUP BY run_id), \
             work AS ( \
               SELECT b, greatest(e, b + 1) AS e, coalesce(calls, 0) AS calls, changes \
               FROM recent LEFT JOIN called USING (run_id) \
               UNION ALL SELECT epoch_us(sent_at), epoch_us(sent_at) + 1, 1, 0 \
               FROM sync.feed_calls WHERE epoch_us(sent_at) >= {from}), \
             hours AS (SELECT unnest(range({first}, {last} + 1)) AS hour), \
             shares AS ( \
               SELECT hour, calls, changes, (least(e, (hour + 1) * {HOUR_US}) \
                   - greatest(b, hour * {HOUR_US}))::DOUBLE / (e - b) AS share \
               FROM hours JOIN work ON b < (hour + 1) * {HOUR_US} AND e > hour * {HOUR_US}) \
             SELECT hour, round(sum(calls * share))::BIGINT, round(sum(changes * share))::BIGINT \
             FROM shares GROUP BY hour"
        ),
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let each = (first..=last).filter_map(|hour| {
        let found = rows.iter().find(|(at, ..)| *at == hour);
        let (calls, changes) = found.map_or((0, 0), |(_, calls, changes)| (*calls, *changes));
        Some(Hour { begins: Timestamp::from_second(hour * HOUR).ok()?, calls, changes })
    });
    Ok(each.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store's books, with one table of each kind that is asked.
    fn books(rows: &str) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&format!(
            "CREATE SCHEMA sync; \
             CREATE TABLE sync.runs (run_id BIGINT, started_at TIMESTAMPTZ, ended_at TIMESTAMPTZ, \
               rows_inserted BIGINT, rows_updated BIGINT, rows_deleted BIGINT); \
             CREATE TABLE sync.calls (run_id BIGINT, endpoint VARCHAR, calls BIGINT); \
             CREATE TABLE sync.feed_calls (sent_at TIMESTAMPTZ); {rows}"
        ))
        .unwrap();
        conn
    }

    fn day(rows: &str) -> (Vec<i64>, Vec<i64>) {
        let now = "2026-11-24T20:30:00Z".parse().unwrap();
        let hours = collect(&books(rows), now).unwrap();
        assert_eq!(hours.len(), 24);
        assert_eq!(hours[23].begins.to_string(), "2026-11-24T20:00:00Z");
        (hours.iter().map(|h| h.calls).collect(), hours.iter().map(|h| h.changes).collect())
    }

    #[test]
    fn nothing_is_a_day_of_nothing() {
        assert_eq!(day(""), (vec![0; 24], vec![0; 24]));
    }

    #[test]
    fn what_a_run_did_is_spread_over_the_time_that_it_took() {
        let (calls, changes) = day("INSERT INTO sync.runs VALUES \
               (1, '2026-11-24 18:30:00+00', '2026-11-24 20:30:00+00', 30, 8, 2), \
               (2, '2026-11-24 20:30:00+00', '2026-11-24 20:30:00+00', 0, 1, 0); \
             INSERT INTO sync.calls VALUES (1, '/api/Search', 80), (2, '/api/Search', 5);");
        assert_eq!((calls[21], calls[22], calls[23]), (20, 40, 20 + 5));
        assert_eq!((changes[21], changes[22], changes[23]), (10, 20, 10 + 1));
        assert_eq!(calls.iter().sum::<i64>(), 85);
    }

    #[test]
    fn what_began_before_the_day_and_what_goes_on_count_with_their_share() {
        let (calls, _) = day(
            "INSERT INTO sync.runs VALUES (1, '2026-11-23 14:30:00+00', NULL, NULL, NULL, NULL); \
             INSERT INTO sync.calls VALUES (1, '/api/Search', 3000);",
        );
        assert_eq!((calls[0], calls[22], calls[23]), (100, 100, 50));
    }

    #[test]
    fn a_poll_is_counted_once_whether_a_run_goes_on_or_not() {
        let (calls, _) = day("INSERT INTO sync.runs VALUES \
               (1, '2026-11-24 20:10:00+00', '2026-11-24 20:20:00+00', 0, 0, 0); \
             INSERT INTO sync.calls VALUES \
               (1, '/api/Integrations/RecentlyModified/Cases', 7), (1, '/api/Search', 1); \
             INSERT INTO sync.feed_calls VALUES \
               ('2026-11-24 20:15:00+00'), ('2026-11-24 20:25:00+00'), ('2026-11-22 20:25:00+00');");
        assert_eq!(calls.iter().sum::<i64>(), 3);
    }
}
