//! Times that our own clock has told and that lie ahead of it now: it was wrong, and was set back.

use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use crate::error::Result;
use crate::sql::{db, instant, scalar_i64};

/// Nothing that failed, or that the search's lag holds back, waits for longer of its own, but for `source.doubt`.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);
/// What has happened lies no further ahead than two clocks of one machine differ.
const LARGEST_STEP: Duration = Duration::from_secs(3_600);

/// What is taken back: in which table and column, beyond what, and what it is then.
struct Step {
    table: &'static str,
    column: &'static str,
    limit: String,
    now: String,
}

fn steps(now: Timestamp, doubt: Duration) -> [Step; 10] {
    let after = |duration| now.checked_add(duration).unwrap_or(Timestamp::MAX);
    let (longest, largest) = (after(LONGEST_WAIT.max(doubt + LARGEST_STEP)), after(LARGEST_STEP));
    let instants =
        |table, column, limit| Step { table, column, limit: instant(limit), now: instant(now) };
    [
        instants("failures", "next_at", longest),
        instants("failures", "first_at", largest),
        instants("journal_months", "doubted_at", largest),
        instants("journal_months", "not_found_at", largest),
        instants("journal_months", "read_at", largest),
        // Whether that was after the month's end is not known: it was not, and the month is read once more.
        Step {
            table: "journal_months",
            column: "sent_at",
            limit: instant(largest),
            now: format!(
                "least({}, coalesce((SELECT starts_at FROM report.calendar WHERE day = last_day(journal_month)), {0}))",
                instant(now)
            ),
        },
        instants("journal_scopes", "not_found_at", largest),
        instants("removals", "removed_at", largest),
        instants("seen", "suspect_at", largest),
        Step {
            table: "fetched_scopes",
            column: "again_at",
            limit: longest.as_microsecond().to_string(),
            now: now.as_microsecond().to_string(),
        },
    ]
}

/// Whether there are such times.
///
/// # Errors
/// Those of the store.
pub(crate) fn lie_ahead(conn: &Connection, now: Timestamp, doubt: Duration) -> Result<bool> {
    let any = steps(now, doubt).map(|Step { table, column, limit, .. }| {
        format!("(SELECT count(*) FROM sync.{table} WHERE {column} > {limit})")
    });
    Ok(scalar_i64(conn, &format!("SELECT {}", any.join(" + ")))? > 0)
}

/// Makes what waits for a time that lies so far ahead due now, and lets what has happened then have happened now.
///
/// # Errors
/// Those of the store.
pub(crate) fn take_back(conn: &Connection, now: Timestamp, doubt: Duration) -> Result<()> {
    let updates = steps(now, doubt).map(|Step { table, column, limit, now }| {
        format!("UPDATE sync.{table} SET {column} = {now} WHERE {column} > {limit}")
    });
    conn.execute_batch(&updates.join("; "))
        .map_err(|e| db("cannot take back times that lie ahead", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;
    use crate::sql::query;

    #[test]
    fn what_waits_for_a_time_of_a_wrong_clock_is_due_and_what_waits_of_its_own_is_not() {
        let conn = fixture::store(None, 2026..=2026);
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let hour = Duration::from_secs(3_600);
        for (id, next, first) in [(1, 20, 0), (2, 24 * 40, 24 * 40), (3, 24 * 40, 0)] {
            conn.execute_batch(&format!(
                "INSERT INTO sync.failures (table_name, id, part, attempts, first_at, next_at, kind, error) \
                 VALUES ('costs', {id}, '', 1, {}, {}, 'Server', ''); \
                 INSERT INTO sync.fetched_scopes BY NAME SELECT 'cases' AS table_name, {id} AS id, '' AS part, \
                   {} AS again_at; \
                 INSERT INTO sync.journal_months BY NAME SELECT 'case_journals' AS table_name, \
                   'offices' AS journal_level, {id} AS journal_id, DATE '2026-01-01' AS journal_month, \
                   {} AS doubted_at",
                instant(now + first * hour),
                instant(now + next * hour),
                (now + next * hour).as_microsecond(),
                instant(now + first * hour),
            ))
            .unwrap();
        }
        let hours = || -> Vec<String> {
            let sql = format!(
                "SELECT concat_ws(' ', f.id, (epoch_us(f.next_at) - {0}) // 3600000000, \
                   (epoch_us(f.first_at) - {0}) // 3600000000, (x.again_at - {0}) // 3600000000, \
                   (epoch_us(m.doubted_at) - {0}) // 3600000000) \
                 FROM sync.failures f JOIN sync.fetched_scopes x USING (id) \
                 JOIN sync.journal_months m ON m.journal_id = f.id ORDER BY f.id",
                now.as_microsecond()
            );
            query(&conn, &sql, |row| row.get(0)).unwrap()
        };
        let ahead = instant(now + 24 * 40 * hour);
        conn.execute_batch(&format!(
            "UPDATE sync.journal_months SET not_found_at = {ahead}, sent_at = {ahead}, read_at = {ahead} \
               WHERE journal_id = 1; \
             INSERT INTO sync.journal_scopes BY NAME SELECT 'offices' AS journal_level, 1 AS journal_id, \
               {ahead} AS not_found_at; \
             INSERT INTO sync.removals VALUES ('file_tags', {ahead}, 60)"
        ))
        .unwrap();
        assert!(lie_ahead(&conn, now, 48 * hour).unwrap());
        take_back(&conn, now, 48 * hour).unwrap();
        assert!(!lie_ahead(&conn, now, 48 * hour).unwrap());
        let noted = format!(
            "SELECT count(*) FROM sync.journal_months m, sync.journal_scopes g, sync.removals r \
             WHERE m.not_found_at = {0} AND m.sent_at = TIMESTAMPTZ '2026-01-30 23:00:00+00' AND m.read_at = {0} AND g.not_found_at = {0} AND r.removed_at = {0}",
            instant(now)
        );
        assert_eq!(scalar_i64(&conn, &noted).unwrap(), 1);
        assert_eq!(hours(), ["1 20 0 20 0", "2 0 0 0 0", "3 0 0 0 0"]);
        conn.execute_batch(&format!(
            "UPDATE sync.failures SET next_at = {} WHERE id = 3",
            instant(now + 40 * hour)
        ))
        .unwrap();
        let ahead = |doubt| lie_ahead(&conn, now, doubt).unwrap();
        assert!(!ahead(48 * hour) && ahead(hour), "source.doubt may be longer");
        let suspect = format!(
            "INSERT INTO sync.seen (case_id, suspect_at) VALUES (1, {})",
            instant(now + 40 * hour)
        );
        conn.execute_batch(&suspect).unwrap();
        assert!(lie_ahead(&conn, now, 48 * hour).unwrap());
        take_back(&conn, now, 48 * hour).unwrap();
        assert!(!lie_ahead(&conn, now, 48 * hour).unwrap());
    }
}
