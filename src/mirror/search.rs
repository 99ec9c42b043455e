//! What a search tells about cases and contacts beside their rows: where a case is found, and
//! whether the search lags behind the feed (docs/architecture.md, "The search lags").

use std::collections::BTreeSet;

use duckdb::Connection;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::load::{Outcome, Settings};
use super::removal;
use super::state::failures::Failure;
use super::state::{self, failures};
use crate::catalog::{ChangeDate, Resource, Scalar};
use crate::error::Result;
use crate::scope::{FailureKind, FetchStatus, Place, ScopeId, Standing, UNKNOWN, UNREADABLE_BELOW};
use crate::sql::{self, db, instant};
use crate::ticks::Ticks;

/// `Date` has whole seconds: a second later it is past the time that was waited for.
const DATE_STEP_MICROS: i64 = 1_000_000;
/// Search rows carry milliseconds, the feed 100 ns: a date that is older by more than this lags.
const LAG_TOLERANCE_TICKS: i64 = 10 * 10_000; // 10 ms of 100 ns
/// A date that lies further ahead of an answer is no date of a change.
const MOST_AHEAD_TICKS: i64 = 24 * 3600 * 10_000_000; // a day of 100 ns

#[expect(clippy::too_many_arguments, reason = "one call, from apply_table, with what it has")]
pub(super) fn after_search(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    place: Place,
    answered_at: Ticks,
    run_id: i64,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let (seen, id) = match place {
        Place::Contacts => ("sync.seen_contacts", "contact_id"),
        Place::Cases | Place::Projects => {
            found(conn, place, now)?;
            leave_other_search(conn, settings, place, now, outcome)?;
            // A case that moved from one search to the other has left the first.
            let both = [Place::Cases.table(), Place::Projects.table()];
            removal::unfulfilled(conn, settings, &both, run_id, now, outcome)?;
            ("sync.seen", "case_id")
        }
    };
    let searched = Searched { table: &resource.table, ids: "temp.stage_scopes", answered_at };
    again(conn, searched, (seen, id), settings.search_delay, now)?;
    lagging(conn, &settings.zone, resource, place, (seen, id), run_id, now)
}

/// Cases that a search shows exist: those that nobody knew become known, suspects are cleared. What is
/// read of a case hangs on its row too: where that is another one, it is to be planned.
fn found(conn: &Connection, place: Place, now: Timestamp) -> Result<()> {
    let table = sql::ident(place.table());
    let (place, found, unknown) = (sql::text(place.table()), Standing::Found, sql::text(UNKNOWN));
    let now = instant(now);
    conn.execute_batch(&format!(
        "INSERT INTO sync.seen BY NAME \
         SELECT c.id AS case_id, false AS reported, {unknown} AS any_stamp, 0 AS moved, \
           {now} AS known_at, true AS dirty, {place} AS place, '{found}' AS state, \
           {unknown} AS rereading, false AS removed \
         FROM temp.stage_scopes c WHERE NOT EXISTS \
           (SELECT 1 FROM sync.seen s WHERE s.case_id = c.id); \
         UPDATE sync.seen s SET place = {place}, state = '{found}', suspect_at = NULL, \
           removed = false, dirty = true \
         FROM temp.stage_scopes c WHERE s.case_id = c.id \
           AND (s.place IS DISTINCT FROM {place} OR s.state IS DISTINCT FROM '{found}' OR s.removed); \
         UPDATE sync.seen s SET dirty = true WHERE NOT s.dirty AND s.case_id IN \
           (SELECT m.id FROM main.{table} m \
            WHERE m._synced_at = {now} AND m.id IN (SELECT id FROM temp.stage_scopes))"
    ))
    .map_err(|e| db("cannot note which cases were found", e))
}

/// An id found in one search is not in the other (docs/architecture.md, "Deletion"): it moves.
fn leave_other_search(
    conn: &Connection,
    settings: &Settings,
    place: Place,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let other = if place == Place::Cases { Place::Projects } else { Place::Cases };
    let Some(resource) = settings.catalog.get(other.table()) else { return Ok(()) };
    removal::take_scopes(conn, settings, resource, "SELECT id FROM temp.stage_scopes", now, outcome)
}

/// What a search was asked for.
#[derive(Clone, Copy)]
pub(super) struct Searched<'a> {
    pub(super) table: &'a str,
    /// The temporary table with their `id`, in SQL.
    pub(super) ids: &'a str,
    /// The server's time.
    pub(super) answered_at: Ticks,
}

/// What was searched before `ModifiedDate` + `source.search_delay` is searched once more after it. Of a
/// `ModifiedDate` that cannot be read it is known only that it is not later than the poll that met it.
/// `now` is our time of the answer.
///
/// The server's `Date` may be ahead of the clock that `ModifiedDate` is taken from, so our own clock has
/// to say too that the delay is over. That may be behind: then it is over so long after the poll. So it is of a date that
/// lies further ahead of the answer than any clock: nobody waits for that.
pub(super) fn again(
    conn: &Connection,
    searched: Searched<'_>,
    (seen, id): (&str, &str),
    delay: std::time::Duration,
    now: Timestamp,
) -> Result<()> {
    let Searched { table, ids, answered_at } = searched;
    let delay_ticks = i64::try_from(delay.as_nanos() / 100).unwrap_or(i64::MAX);
    let answered = answered_at.get();
    let delay_us = delay_ticks / 10;
    // The time of a commit is ahead of a clock that was set back.
    let now_us = now.min(Timestamp::now()).as_microsecond();
    let due = format!("(s.modified_date + {delay_ticks})");
    let is_absurd = format!("s.modified_date > {answered} + {MOST_AHEAD_TICKS}");
    let sent_us = "epoch_us(f.sent_at)";
    let polled_us = format!("(coalesce(epoch_us(s.moved_at), 0) + {delay_us})");
    let table = sql::text(table);
    let (incomplete, moved) = (FetchStatus::Incomplete, FetchStatus::Moved);
    conn.execute_batch(&format!(
        "UPDATE sync.fetched_scopes f \
             SET again_at = {DATE_STEP_MICROS} + greatest({now_us} + ({due} - {answered}) // 10, \
               least({now_us} + {due} // 10 - {sent_us}, {polled_us})) \
             FROM {seen} s, {ids} c \
             WHERE f.table_name = {table} AND f.id = c.id AND s.{id} = c.id AND NOT {is_absurd} \
               AND ({due} > {answered} OR {due} // 10 > {sent_us} AND {polled_us} > {sent_us}) \
               AND f.status NOT IN ('{incomplete}', '{moved}'); \
             UPDATE sync.fetched_scopes f \
             SET again_at = epoch_us(s.moved_at) + {delay_us} + {DATE_STEP_MICROS} \
             FROM {seen} s, {ids} c \
             WHERE f.table_name = {table} AND f.id = c.id AND s.{id} = c.id \
               AND (s.modified_date < {UNREADABLE_BELOW} OR {is_absurd}) \
               AND epoch_us(s.moved_at) + {delay_us} > epoch_us(f.sent_at) \
               AND f.status NOT IN ('{incomplete}', '{moved}')"
    ))
    .map_err(|e| db("cannot note what to search again", e))
}

/// Contacts that webhooks named, by id and when (in microseconds), are searched once more when the search cannot lag
/// behind that any more: nothing else says whether it did.
pub(super) fn again_after_hints(
    conn: &Connection,
    hinted: &[(i64, i64)],
    delay: std::time::Duration,
) -> Result<()> {
    let delay = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
    let (incomplete, moved) = (FetchStatus::Incomplete, FetchStatus::Moved);
    for (id, at) in hinted {
        let over = at.saturating_add(delay);
        conn.execute(
            &format!(
                "UPDATE sync.fetched_scopes SET again_at = ? WHERE table_name = 'contacts' AND id = ? \
                   AND epoch_us(sent_at) < ? AND status NOT IN ('{incomplete}', '{moved}')"
            ),
            [over.saturating_add(DATE_STEP_MICROS), *id, over],
        )
        .map_err(|e| db("cannot note which contacts to search again", e))?;
    }
    Ok(())
}

/// A row stays stale while one of its change dates is older than the feed's.
fn lagging(
    conn: &Connection,
    zone: &TimeZone,
    resource: &Resource,
    place: Place,
    (seen, id): (&str, &str),
    run_id: i64,
    now: Timestamp,
) -> Result<()> {
    let pairs: Vec<(&str, &str)> = match place {
        Place::Contacts => vec![("last_modified_date", "modified_date")],
        Place::Cases | Place::Projects => {
            ChangeDate::ALL.iter().map(|(_, _, column)| (*column, *column)).collect()
        }
    };
    let pairs: Vec<(String, &str)> = pairs
        .into_iter()
        .filter(|(own, _)| {
            resource.column(own).is_some_and(|c| c.kind.scalar == Scalar::Instant && !c.kind.list)
        })
        .map(|(own, seen_column)| (format!("epoch_us(m.{})", sql::ident(own)), seen_column))
        .collect();
    if pairs.is_empty() {
        return Ok(());
    }
    // The table and what was seen are looked through once for all dates.
    let side = |dates: Vec<String>| format!("unnest([{}])", dates.join(", "));
    let older = format!(
        "SELECT id, row_us, feed_ticks FROM ( \
           SELECT c.id, {} AS row_us, {} AS feed_ticks \
           FROM temp.stage_scopes c JOIN main.{} m ON m.{} = c.id JOIN {seen} s ON s.{id} = c.id) \
         WHERE row_us * 10 + {LAG_TOLERANCE_TICKS} < feed_ticks",
        side(pairs.iter().map(|(own, _)| own.clone()).collect()),
        side(pairs.iter().map(|(_, seen_column)| format!("s.{seen_column}")).collect()),
        sql::ident(&resource.table),
        sql::ident(&resource.key[0]),
    );
    let dates = crate::sql::query(conn, &older, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    })?;
    let ids: BTreeSet<i64> = dates
        .into_iter()
        .filter(|(_, row_us, ticks)| is_older(*row_us, Ticks::new(*ticks), zone))
        .map(|(id, _, _)| id)
        .collect();
    // A lag that goes on counts its attempts, one that is over is forgotten.
    conn.execute(
        &format!(
            "DELETE FROM sync.failures WHERE table_name = ? AND kind = '{}' \
               AND id IN (SELECT id FROM temp.stage_scopes) AND id NOT IN ({})",
            FailureKind::Lag,
            state::list(&ids.iter().copied().chain([-1]).collect::<Vec<_>>())
        ),
        [&resource.table],
    )
    .map_err(|e| db("cannot forget a lagging search", e))?;
    for id in ids {
        conn.execute(
            "UPDATE sync.fetched_scopes SET status = ?, again_at = NULL \
             WHERE table_name = ? AND id = ?",
            duckdb::params![FetchStatus::Lagging.name(), resource.table, id],
        )
        .map_err(|e| db("cannot note a lagging search", e))?;
        let scope = ScopeId { table: resource.table.clone(), id, part: String::new() };
        let why = "the search still shows it as it was before its last change";
        failures::fail(conn, run_id, now, &scope, &Failure::new(FailureKind::Lag, why))?;
    }
    Ok(())
}

/// Whether a row's date is older than the feed's. Search rows carry local times without offset, and
/// an hour that the clocks repeat is read as its first pass: where the local times agree, the row
/// cannot tell more.
fn is_older(row_us: i64, feed: Ticks, zone: &TimeZone) -> bool {
    let tolerance = jiff::SignedDuration::from_nanos(LAG_TOLERANCE_TICKS * 100);
    let (Ok(row), Some(feed)) = (Timestamp::from_microsecond(row_us), feed.to_timestamp()) else {
        return true;
    };
    let local = |at: Timestamp| at.to_zoned(zone.clone()).datetime();
    row + tolerance < feed && local(row + tolerance) < local(feed)
}

#[cfg(test)]
mod tests {
    use super::super::state::State;
    use super::*;
    use crate::mirror::reports::fixture;
    use crate::scope::ContactSeen;

    #[test]
    fn a_row_lags_when_it_is_older_by_more_than_its_milliseconds() {
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        let older = |row: &str, feed: &str| {
            let at = |text: &str| text.parse::<Timestamp>().unwrap();
            is_older(at(row).as_microsecond(), Ticks::from(at(feed)), &zone)
        };
        assert!(!older("2026-05-01T10:00:00.123Z", "2026-05-01T10:00:00.1239999Z"));
        assert!(!older("2026-05-01T10:00:00.113Z", "2026-05-01T10:00:00.123Z"));
        assert!(older("2026-05-01T10:00:00.112Z", "2026-05-01T10:00:00.123Z"));
        assert!(older("2026-05-01T09:00:00Z", "2026-05-01T10:00:00Z"));
    }

    #[test]
    fn a_row_is_searched_again_until_no_clock_says_that_the_search_may_lag() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let delay = std::time::Duration::from_secs(30);
        let at = |second: i64| Timestamp::from_second(1_790_000_000 + second).unwrap();
        // Seconds after the change by a clock that is right.
        let again = |polled: i64, sent: i64, server_ahead: i64, ours_ahead: i64| {
            let [polled, ours] = [polled, sent].map(|second| at(second + ours_ahead));
            let modified = Ticks::from(at(0)).get();
            let contact = ContactSeen { contact_id: 17, modified: Some(modified) };
            conn.execute_batch("DELETE FROM sync.seen_contacts; DELETE FROM sync.fetched_scopes")
                .unwrap();
            state.cases().see_contacts(&[contact], 1, polled).unwrap();
            state.stage_ids("searched", &[17]).unwrap();
            conn.execute_batch(&format!(
                "INSERT INTO sync.fetched_scopes BY NAME SELECT 'contacts' AS table_name, 17 AS id, \
                   '' AS part, {} AS sent_at",
                instant(ours)
            ))
            .unwrap();
            let searched = Searched {
                table: "contacts",
                ids: "temp.searched",
                answered_at: at(sent + server_ahead).into(),
            };
            super::again(&conn, searched, ("sync.seen_contacts", "contact_id"), delay, ours)
                .unwrap();
            let again_at = "SELECT again_at FROM sync.fetched_scopes";
            let again_at =
                conn.query_row(again_at, [], |row| row.get::<_, Option<i64>>(0)).unwrap();
            let start = at(ours_ahead).as_microsecond();
            again_at.map(|us| (us - start) / 1_000_000)
        };
        // The polled second, the search, the server's clock and ours: when it is searched once more.
        let expected = [
            ((4, 5, 0, 0), Some(31)),
            ((4, 29, 0, 0), Some(31)),
            ((4, 30, 0, 0), None),
            // An old change that a first poll tells of.
            ((900, 901, 0, 0), None),
            // The server's clock is ahead.
            ((4, 5, 60, 0), Some(31)),
            ((4, 5, 10, 0), Some(31)),
            ((4, 31, 60, 0), None),
            // Ours is behind: what is certain is that the change came before the poll.
            ((4, 5, 60, -90), Some(35)),
            ((4, 35, 60, -90), None),
            ((4, 5, 0, -10), Some(35)),
            // Ours is ahead: the server's decides.
            ((4, 5, 0, 90), Some(31)),
            ((4, 31, 0, 90), None),
        ];
        for (seconds, when) in expected {
            let (polled, sent, server_ahead, ours_ahead) = seconds;
            assert_eq!(again(polled, sent, server_ahead, ours_ahead), when, "{seconds:?}");
        }
        // A date of next year is not waited for.
        let year = 365 * 24 * 3600;
        assert_eq!(again(4 - year, 5 - year, 0, 0), Some(4 - year + 31));
        assert_eq!(again(4 - year, 36 - year, 0, 0), None);
    }

    #[test]
    fn the_second_pass_of_a_repeated_hour_is_no_lag() {
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        // 02:30 twice on 2026-10-25: 00:30Z and 01:30Z.
        let row: Timestamp = "2026-10-25T00:30:00Z".parse().unwrap();
        let feed: Timestamp = "2026-10-25T01:30:00Z".parse().unwrap();
        assert!(!is_older(row.as_microsecond(), Ticks::from(feed), &zone));
        let earlier: Timestamp = "2026-10-25T00:20:00Z".parse().unwrap();
        assert!(is_older(earlier.as_microsecond(), Ticks::from(feed), &zone));
    }
}
