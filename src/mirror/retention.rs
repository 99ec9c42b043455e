//! What the daemon writes of its own work, and how long it keeps that: what grows with the years alone
//! would make every poll slower than the one before. Rejects stay, and so
//! do the scopes that left: the reports as of an instant ask which were open, and which were there, then.

use std::time::Duration;

use jiff::Timestamp;

use super::changes::forget_notes;
use super::state::{State, batch};
use crate::error::Result;
use crate::sql::{instant, text};

const DAY: Duration = Duration::from_secs(86_400);
/// Runs of people and of their schedules, with their calls. More than a year, so that a month can be held
/// against the one a year before.
const YEAR: Duration = Duration::from_secs(400 * 86_400);
/// The daemon's own runs: thousands a day.
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// Calls to the feeds, the proof that the throttle was kept: ten thousand a day.
const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// The command of the daemon's own runs.
const DAEMON: &str = "run";
/// Calls to the feeds that stay however old: the throttle counts on from them.
const FEED_CALLS: i64 = 1_000;
/// Key of `sync.meta`: when this was last looked at.
const LOOKED_AT: &str = "retention_looked_at";

impl State<'_> {
    /// Forgets what has been kept long enough; looks once a day.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn forget_what_is_old(&self, now: Timestamp) -> Result<()> {
        let last = self.meta(LOOKED_AT)?.and_then(|at| at.parse::<Timestamp>().ok());
        // A clock that was set back does not end it for good.
        if last.is_some_and(|last| now.duration_since(last).unsigned_abs() < DAY) {
            return Ok(());
        }
        let before = |kept| instant(now.checked_sub(kept).unwrap_or(Timestamp::MIN));
        let (week, month, year) = (before(WEEK), before(MONTH), before(YEAR));
        let old_runs = format!(
            "SELECT run_id FROM sync.runs WHERE ended_at < {year} \
             OR command = {} AND ended_at < {week}",
            text(DAEMON)
        );
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.calls WHERE run_id IN ({old_runs}); \
                 DELETE FROM sync.runs WHERE run_id IN ({old_runs}); \
                 DELETE FROM sync.feed_calls WHERE ended_at < {month} \
                   AND id <= (SELECT max(id) - {FEED_CALLS} FROM sync.feed_calls)"
            ),
        )?;
        forget_notes(self.conn)?;
        self.set_meta(LOOKED_AT, &now.to_string())
    }
}

#[cfg(test)]
mod tests {
    use duckdb::Connection;

    use super::*;
    use crate::counter;
    use crate::mirror::reports::fixture;
    use crate::sql::scalar_i64;

    fn ids(conn: &Connection, column: &str, table: &str) -> Vec<i64> {
        let sql = format!("SELECT {column} FROM sync.{table} ORDER BY 1");
        crate::sql::query(conn, &sql, |row| row.get(0)).unwrap()
    }

    #[test]
    fn each_is_kept_as_long_as_somebody_asks_for_it() {
        let conn = fixture::store(None, 2026..=2026);
        // Each id is so many days old.
        conn.execute_batch(&format!(
            "CREATE TEMP TABLE ages AS SELECT id, \
               ('2026-11-20 12:00:00'::TIMESTAMP - to_days(id::INTEGER))::VARCHAR || '+00' AS ended \
             FROM (VALUES (1), (6), (8), (29), (31), (399), (401)) t(id); \
             INSERT INTO sync.runs BY NAME SELECT id AS run_id, 'run' AS command, \
               ended::TIMESTAMPTZ AS ended_at FROM ages; \
             INSERT INTO sync.runs BY NAME SELECT 1000 + id AS run_id, 'sync' AS command, \
               ended::TIMESTAMPTZ AS ended_at FROM ages; \
             INSERT INTO sync.runs BY NAME SELECT 2000 AS run_id, 'run' AS command; \
             INSERT INTO sync.calls BY NAME SELECT run_id FROM sync.runs; \
             INSERT INTO sync.feed_calls BY NAME SELECT 500 - id AS id, \
               ended::TIMESTAMPTZ AS ended_at FROM ages; \
             INSERT INTO sync.feed_calls BY NAME SELECT 50 AS id; \
             INSERT INTO sync.changes SELECT table_name, part, count * {one} \
               FROM (VALUES ('notes', '', 205), ('cases', '', 200), ('cases', '2026-01', 5000)) t(table_name, part, count); \
             INSERT INTO sync.changed_scopes BY NAME SELECT table_name, c.count * {one} AS counter \
               FROM (VALUES ('notes'), ('cases')) t(table_name), range(1, 10) c(count)",
            one = format_args!("{}::BIGINT", counter::of(1)),
        ))
        .unwrap();
        let state = State::new(&conn);
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        state.forget_what_is_old(now).unwrap();
        let runs = [1, 6, 1001, 1006, 1008, 1029, 1031, 1399, 2000];
        assert_eq!(ids(&conn, "run_id", "runs"), runs, "2000 has not ended");
        assert_eq!(ids(&conn, "run_id", "calls"), runs);
        assert_eq!(ids(&conn, "id", "feed_calls").len(), 8, "of few calls all stay");
        let noted = ids(&conn, "counter", "changed_scopes WHERE table_name = 'notes'");
        assert_eq!(noted, [6, 7, 8, 9].map(counter::of));
        assert_eq!(ids(&conn, "counter", "changed_scopes").len(), 4 + 9);

        conn.execute_batch("INSERT INTO sync.feed_calls BY NAME SELECT 2000 AS id").unwrap();
        state.forget_what_is_old(now + DAY / 2).unwrap();
        assert_eq!(scalar_i64(&conn, "SELECT count(*) FROM sync.feed_calls").unwrap(), 9);
        state.forget_what_is_old(now + DAY).unwrap();
        let left = [50, 471, 492, 494, 499, 2000];
        assert_eq!(
            ids(&conn, "id", "feed_calls"),
            left,
            "50 has not ended, 469 is more than 30 days old"
        );
        // A clock that was ahead has noted a time to come.
        state.set_meta(LOOKED_AT, "2030-01-01T00:00:00Z").unwrap();
        conn.execute_batch("DELETE FROM sync.feed_calls WHERE id < 100").unwrap();
        state.forget_what_is_old(now + 60 * DAY).unwrap();
        assert_eq!(ids(&conn, "id", "feed_calls"), [2000]);
    }
}
