//! What a search tells about cases and contacts beside their rows: where a case is found, and
//! whether the search lags behind the feed (contract section 4, "The search lags").

use duckdb::Connection;
use jiff::Timestamp;

use super::load::{Outcome, Settings, count_change};
use super::merge::{self, Merged};
use super::state::{self, FAILURE_LAG, Place, ScopeId};
use super::{db, instant, scalar_i64};
use crate::catalog::{Facet, Resource, Scalar};
use crate::error::Result;
use crate::quote;
use crate::ticks::Ticks;

/// `Date` has whole seconds: a second later it is past the time that was waited for.
const DATE_STEP_MICROS: i64 = 1_000_000;
/// Search rows carry milliseconds, the feed 100 ns: a date that is older by more than this lags.
const LAG_TOLERANCE_TICKS: i64 = 10 * 10_000; // 10 ms of 100 ns

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
            found(conn, place)?;
            leave_other_search(conn, settings, place, now, outcome)?;
            ("sync.seen", "case_id")
        }
    };
    again(conn, resource, seen, id, answered_at, settings.search_delay, now)?;
    lagging(conn, resource, place, seen, id, run_id, now)
}

/// Cases that a search shows exist: those that nobody knew become known, suspects are cleared.
fn found(conn: &Connection, place: Place) -> Result<()> {
    let place = quote::text(place.table());
    conn.execute_batch(&format!(
        "INSERT INTO sync.seen BY NAME \
         SELECT c.id AS case_id, false AS reported, 'unknown' AS any_stamp, 0 AS moved, \
           true AS dirty, {place} AS place, 'found' AS state, 'unknown' AS rereading, \
           false AS removed \
         FROM temp.stage_scopes c WHERE NOT EXISTS \
           (SELECT 1 FROM sync.seen s WHERE s.case_id = c.id); \
         UPDATE sync.seen s SET place = {place}, state = 'found', suspect_at = NULL, \
           removed = false, dirty = s.dirty OR s.removed \
         FROM temp.stage_scopes c WHERE s.case_id = c.id \
           AND (s.place IS DISTINCT FROM {place} OR s.state IS DISTINCT FROM 'found' OR s.removed)"
    ))
    .map_err(|e| db("cannot note which cases were found", e))
}

/// An id found in one search is not in the other (contract section 4): it moves.
fn leave_other_search(
    conn: &Connection,
    settings: &Settings,
    place: Place,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<()> {
    let other = if place == Place::Cases { Place::Projects } else { Place::Cases };
    let Some(resource) = settings.catalog.get(other.table()) else { return Ok(()) };
    let condition =
        format!("{} IN (SELECT id FROM temp.stage_scopes)", quote::ident(&resource.key[0]));
    let history = settings.keeps_history(&resource.table);
    let removed = merge::remove(conn, resource, history, &condition, "deleted", &instant(now))?;
    if removed > 0 {
        outcome.note(&resource.table, Merged { deleted: removed, ..Merged::default() });
        count_change(conn, &resource.table)?;
    }
    Ok(())
}

/// Rows searched before `ModifiedDate` + `source.search_delay` are searched once more after it.
fn again(
    conn: &Connection,
    resource: &Resource,
    seen: &str,
    id: &str,
    answered_at: Ticks,
    delay: std::time::Duration,
    now: Timestamp,
) -> Result<()> {
    let delay_ticks = i64::try_from(delay.as_nanos() / 100).unwrap_or(i64::MAX);
    let answered = answered_at.get();
    let now_us = now.as_microsecond();
    conn.execute(
        &format!(
            "UPDATE sync.fetched f \
             SET again_at = {now_us} + (s.modified_date + {delay_ticks} - {answered}) // 10 \
               + {DATE_STEP_MICROS} \
             FROM {seen} s, temp.stage_scopes c \
             WHERE f.table_name = ? AND f.id = c.id AND s.{id} = c.id \
               AND s.modified_date + {delay_ticks} > {answered} \
               AND f.stamp NOT IN ('incomplete', 'moved')"
        ),
        [&resource.table],
    )
    .map(drop)
    .map_err(|e| db("cannot note what to search again", e))
}

/// A row stays stale while one of its change dates is older than the feed's.
fn lagging(
    conn: &Connection,
    resource: &Resource,
    place: Place,
    seen: &str,
    id: &str,
    run_id: i64,
    now: Timestamp,
) -> Result<()> {
    let pairs: Vec<(&str, &str)> = match place {
        Place::Contacts => vec![("last_modified_date", "modified_date")],
        Place::Cases | Place::Projects => {
            Facet::ALL.iter().map(|(_, _, column)| (*column, *column)).collect()
        }
    };
    let older: Vec<String> = pairs
        .into_iter()
        .filter(|(own, _)| {
            resource.column(own).is_some_and(|c| c.kind.scalar == Scalar::Instant && !c.kind.list)
        })
        .map(|(own, seen)| {
            format!("epoch_us(m.{}) * 10 + {LAG_TOLERANCE_TICKS} < s.{seen}", quote::ident(own))
        })
        .collect();
    if older.is_empty() {
        return Ok(());
    }
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE lagging AS SELECT c.id FROM temp.stage_scopes c \
         JOIN main.{table} m ON m.{key} = c.id JOIN {seen} s ON s.{id} = c.id \
         WHERE {}",
        older.join(" OR "),
        table = quote::ident(&resource.table),
        key = quote::ident(&resource.key[0]),
    ))
    .map_err(|e| db("cannot look for a lagging search", e))?;
    if scalar_i64(conn, "SELECT count(*) FROM temp.lagging")? == 0 {
        return Ok(());
    }
    conn.execute(
        "UPDATE sync.fetched SET stamp = 'lagging', again_at = NULL \
         WHERE table_name = ? AND id IN (SELECT id FROM temp.lagging)",
        [&resource.table],
    )
    .map_err(|e| db("cannot note a lagging search", e))?;
    for id in state::ids(conn, "SELECT id FROM temp.lagging")? {
        let scope = ScopeId { table: resource.table.clone(), id, part: String::new() };
        let why = "the search still shows it as it was before its last change";
        state::fail(conn, run_id, now, &scope, FAILURE_LAG, why, None)?;
    }
    Ok(())
}
