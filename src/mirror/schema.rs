//! Making the store's tables, and bringing those of an earlier version or catalog up to date.

use duckdb::{Connection, params};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::state::State;
use super::state::fetched::{self, FetchedScopes};
use super::{
    align, comments, first_reads, freshness, history, levels, privacy, reports, secrets, upgrade,
};
use crate::catalog::Catalog;
use crate::config::{CALENDAR_YEARS, Config, PrivacyMode};
use crate::error::{Error, Kind, Result};
use crate::sql::{db, scalar_i64, transaction};

/// The layout of `sync.*`. A store with a higher number was made by a newer version.
pub(super) const FORMAT: i64 = 13;

/// What the columns of `report.calendar` are.
pub(super) const CALENDAR_COMMENTS: &str = include_str!("calendar.sql");

/// Key of `sync.meta`: by what the key of the privacy hashes is known again.
const KEY_FINGERPRINT: &str = "hash_key_fingerprint";

/// Whether a database, named by an expression, has what every store has.
pub(super) fn is_store(conn: &Connection, database: &str) -> Result<bool> {
    let meta = format!(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = {database} \
         AND schema_name = 'sync' AND table_name = 'meta'"
    );
    Ok(scalar_i64(conn, &meta)? > 0)
}

/// The format of the store; `None` where it has no tables yet.
pub(super) fn format(conn: &Connection) -> Result<Option<i64>> {
    if !is_store(conn, "current_database()")? {
        return Ok(None);
    }
    // What cannot be read is of a later version.
    Ok(Some(meta(conn, "format")?.and_then(|text| text.parse().ok()).unwrap_or(i64::MAX)))
}

/// Brings an opened store up to this program and this catalog, all or nothing but for the comments. `key`
/// gives the key of its privacy hashes, by what it is known again where there has been one; it is returned.
pub(super) fn prepare(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    key: impl FnOnce(Option<&str>) -> Result<[u8; 32]>,
) -> Result<[u8; 32]> {
    let key = transaction(conn, || prepare_within(conn, config, catalog, key))?;
    comments::describe(conn, catalog)?;
    Ok(key)
}

/// Readies a store that is as this program and this catalog want it for who writes to it as it is. Only the months that
/// nobody knew of yet are noted. Returns the key as [`prepare`] does.
pub(super) fn keep(
    conn: &Connection,
    config: &Config,
    key: impl FnOnce(Option<&str>) -> Result<[u8; 32]>,
) -> Result<[u8; 32]> {
    transaction(conn, || {
        let key = hash_key(conn, config, key)?;
        want_months(conn, config)?;
        Ok(key)
    })
}

fn want_months(conn: &Connection, config: &Config) -> Result<()> {
    let state = State::new(conn);
    if state.wanted_months().all_are_wanted(&config.journals)? {
        return Ok(());
    }
    state.wanted_months().want_journals(&config.journals)
}

fn prepare_within(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    key: impl FnOnce(Option<&str>) -> Result<[u8; 32]>,
) -> Result<[u8; 32]> {
    let before = format(conn)?;
    let mut upgraded_from = None;
    if before.is_none() {
        conn.execute_batch(include_str!("sync.sql"))
            .map_err(|e| db("cannot create the store's state", e))?;
        conn.execute_batch(CALENDAR_COMMENTS)
            .map_err(|e| db("cannot describe report.calendar", e))?;
        fetched::create(conn)?;
        fetched::create_view(conn)?;
        create_report_state(conn)?;
        State::new(conn).unread().show(&[])?;
        set_meta(conn, "format", &FORMAT.to_string())?;
        set_meta(conn, "definition", "1")?;
        // Change counters of different stores must not be compared.
        set_meta(conn, "store_id", &format!("{:032x}", rand::random::<u128>()))?;
    }
    if let Some(format) = before {
        if format < 2 {
            upgrade::from_first(conn)?;
        }
        if format < 13 {
            upgrade::from_twelfth(conn)?;
        }
        if format < 12 {
            upgrade::from_eleventh(conn)?;
        }
        if format < 11 {
            upgrade::from_tenth(conn)?;
        }
        if format < 10 {
            upgrade::from_ninth(conn)?;
        }
        if format < 9 {
            upgrade::from_eighth(conn)?;
        }
        if format < 8 {
            upgrade::from_seventh(conn)?;
        }
        if format < 7 {
            upgrade::from_sixth(conn)?;
        }
        if format < 6 {
            upgrade::from_fifth(conn)?;
        }
        if format < 5 {
            upgrade::from_fourth(conn)?;
        }
        if format < 4 {
            // Before rows are written: DuckDB alters no table of which this transaction wrote some.
            upgrade::from_third(conn)?;
        }
        if format < 3 {
            upgrade::from_second(conn, config, catalog)?;
        }
        if format < 12 {
            upgrade::note_incomplete(conn, jiff::Timestamp::now())?;
        }
        if format < 13 {
            upgrade::note_annotated(conn)?;
        }
        upgraded_from = Some(format).filter(|format| *format < FORMAT);
    }
    comment_state(conn)?;
    calendar(conn, &config.source.time_zone)?;
    set_meta(conn, "journal_level", &config.journals.level.to_string())?;
    let key = hash_key(conn, config, key)?;
    align::align(conn, config, catalog, key)?;
    privacy::hide_secrets(conn, catalog)?;
    history::note_tables(conn, catalog, &config.history.tables, jiff::Timestamp::now())?;
    let level = config.journals.level;
    levels::leave_others(conn, catalog, level, jiff::Timestamp::now())?;
    levels::bring_back_gone(conn, catalog, level, jiff::Timestamp::now())?;
    fetched::note_rules(conn, catalog)?;
    if let Some(format) = upgraded_from {
        FetchedScopes::new(conn).fold_all()?;
        comments::look_again(conn)?;
        if format < 6 {
            freshness::note_all(conn, catalog)?;
        }
        if format < 9 {
            upgrade::remove_doubled(conn, catalog)?;
        }
        if format < 12 {
            create_report_state(conn)?;
            first_reads::reconstruct(conn, catalog)?;
        }
        set_meta(conn, "format", &FORMAT.to_string())?;
    }
    want_months(conn, config)?;
    // Opening a store that is as it should be writes nothing.
    let kept = &config.history.tables;
    let digest = reports::digest(catalog.resources(), kept);
    if meta(conn, "reports")?.as_deref() != Some(digest.as_str()) {
        reports::create_all(conn, catalog.resources(), kept)?;
        set_meta(conn, "reports", &digest)?;
    }
    Ok(key)
}

/// Makes the views of the state that reports read.
pub(super) fn create_report_state(conn: &Connection) -> Result<()> {
    conn.execute_batch(include_str!("report_state.sql"))
        .map_err(|e| db("cannot create the store's state", e))
}

/// Says of each table of state what it is, where one has no comment: readers of the published file look
/// there.
fn comment_state(conn: &Connection) -> Result<()> {
    let uncommented = scalar_i64(
        conn,
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() \
         AND schema_name = 'sync' AND comment IS NULL",
    )?;
    if uncommented == 0 {
        return Ok(());
    }
    conn.execute_batch(include_str!("comments.sql"))
        .map_err(|e| db("cannot comment the store's state", e))
}

/// The key of the privacy hashes. From when a class is hidden on, the store is bound to it.
fn hash_key(
    conn: &Connection,
    config: &Config,
    key: impl FnOnce(Option<&str>) -> Result<[u8; 32]>,
) -> Result<[u8; 32]> {
    let key = key(key_fingerprint(conn)?.as_deref())?;
    let modes = [config.privacy.identifiers, config.privacy.contact_details];
    if modes.iter().any(|mode| *mode != PrivacyMode::Keep) {
        bind_key(conn, key)?;
    }
    Ok(key)
}

/// By what the key is known again; `None` where any will do.
pub(super) fn key_fingerprint(conn: &Connection) -> Result<Option<String>> {
    meta(conn, KEY_FINGERPRINT)
}

/// From now on no other key will do.
pub(super) fn bind_key(conn: &Connection, key: [u8; 32]) -> Result<()> {
    set_meta(conn, KEY_FINGERPRINT, &secrets::fingerprint_of(key))
}

/// A value of `sync.meta`.
pub(super) fn meta(conn: &Connection, key: &str) -> Result<Option<String>> {
    let mut statement = conn
        .prepare("SELECT value FROM sync.meta WHERE key = ?")
        .map_err(|e| db("cannot read sync.meta", e))?;
    let mut rows = statement.query([key]).map_err(|e| db("cannot read sync.meta", e))?;
    match rows.next().map_err(|e| db("cannot read sync.meta", e))? {
        Some(row) => row.get(0).map_err(|e| db("cannot read sync.meta", e)),
        None => Ok(None),
    }
}

/// Sets a value of `sync.meta`.
pub(super) fn set_meta(conn: &Connection, key: &str, value: &str) -> Result<()> {
    if meta(conn, key)?.as_deref() == Some(value) {
        return Ok(());
    }
    conn.execute("DELETE FROM sync.meta WHERE key = ?", [key])
        .and_then(|_| conn.execute("INSERT INTO sync.meta VALUES (?, ?)", [key, value]))
        .map(drop)
        .map_err(|e| db("cannot write sync.meta", e))
}

/// Takes a value out of `sync.meta`.
pub(super) fn remove_meta(conn: &Connection, key: &str) -> Result<()> {
    conn.execute("DELETE FROM sync.meta WHERE key = ?", [key])
        .map(drop)
        .map_err(|e| db("cannot write sync.meta", e))
}

/// Fills `report.calendar` for the zone, where it is not filled for it already.
fn calendar(conn: &Connection, zone: &TimeZone) -> Result<()> {
    let name = zone.iana_name().unwrap_or("UTC");
    let before = meta(conn, "calendar_zone")?;
    if before.as_deref() == Some(name) {
        return Ok(());
    }
    if before.is_some() {
        history::note_zone(conn, jiff::Timestamp::now())?;
    }
    let failed = |e| db("cannot fill report.calendar", e);
    conn.execute_batch(
        "DELETE FROM report.calendar; \
         CREATE OR REPLACE TEMP TABLE stage_calendar (day VARCHAR, starts BIGINT, ends BIGINT)",
    )
    .map_err(failed)?;
    let mut appender = conn.appender("stage_calendar").map_err(failed)?;
    let mut day = Date::constant(*CALENDAR_YEARS.start(), 1, 1);
    let mut starts = start_of_day(day, zone)?;
    while CALENDAR_YEARS.contains(&day.year()) {
        let next = day.tomorrow().map_err(|e| internal_calendar(day, e))?;
        let ends = start_of_day(next, zone)?;
        appender.append_row(params![day.to_string(), starts, ends]).map_err(failed)?;
        (day, starts) = (next, ends);
    }
    appender.flush().map_err(failed)?;
    drop(appender);
    // `make_timestamptz` would want an extension; adding an interval to the epoch as TIMESTAMP and
    // casting its text does not.
    conn.execute_batch(
        "INSERT INTO report.calendar SELECT day::DATE, (day[1:8] || '01')::DATE, \
           (make_timestamp(starts)::VARCHAR || '+00')::TIMESTAMPTZ, \
           (make_timestamp(ends)::VARCHAR || '+00')::TIMESTAMPTZ \
         FROM stage_calendar ORDER BY day; DROP TABLE stage_calendar",
    )
    .map_err(failed)?;
    set_meta(conn, "calendar_zone", name)
}

fn start_of_day(day: Date, zone: &TimeZone) -> Result<i64> {
    day.to_zoned(zone.clone())
        .and_then(|z| z.start_of_day())
        .map(|z| z.timestamp().as_microsecond())
        .map_err(|e| internal_calendar(day, e))
}

fn internal_calendar(day: Date, source: jiff::Error) -> Error {
    Error::caused(Kind::Internal, format!("{day} has no start in the source's zone"), source)
}
