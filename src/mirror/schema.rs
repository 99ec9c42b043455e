//! Making the store's tables, and keeping them equal to the catalog.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::{Connection, params};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::retired;
use super::state::State;
use super::state::fetched::{self, FetchedBooks};
use super::tighten::{self, Tightened};
use super::{reports, secrets, upgrade};
use crate::catalog::{Catalog, Class, Column, Resource};
use crate::config::{Config, PrivacyMode};
use crate::error::{Error, Kind, Result};
use crate::scope::{DueReason, Mark};
use crate::sql::{self, db, instant_param, query, scalar_i64};

/// The layout of `sync.*`. A store with a higher number was made by a newer version.
const FORMAT: i64 = 2;

/// Key of `sync.meta`: by what the key of the privacy hashes is known again.
const KEY_FINGERPRINT: &str = "hash_key_fingerprint";

/// Brings an opened store up to this program and this catalog, all or nothing; returns the key of its
/// privacy hashes.
pub(super) fn prepare(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<[u8; 32]> {
    conn.execute_batch("BEGIN").map_err(|e| db("cannot prepare the store", e))?;
    let done = prepare_within(conn, config, catalog);
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = conn.execute_batch(end).map_err(|e| db("cannot prepare the store", e));
    let key = done?;
    ended.map(|()| key)
}

fn prepare_within(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<[u8; 32]> {
    let fresh = scalar_i64(
        conn,
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() \
         AND schema_name = 'sync' AND table_name = 'meta'",
    )? == 0;
    let mut upgraded = false;
    if fresh {
        conn.execute_batch(include_str!("books.sql"))
            .map_err(|e| db("cannot create the store's books", e))?;
        fetched::create(conn)?;
        fetched::create_view(conn)?;
        set_meta(conn, "format", &FORMAT.to_string())?;
        set_meta(conn, "definition", "1")?;
        // Change counters of different stores must not be compared.
        set_meta(conn, "store_id", &format!("{:032x}", rand::random::<u128>()))?;
    } else {
        let format: i64 = meta(conn, "format")?.and_then(|v| v.parse().ok()).unwrap_or(i64::MAX);
        if format > FORMAT {
            return Err(Error::new(
                Kind::StoreNewer,
                format!(
                    "the store {} has format {format}; this version of casemirror knows {FORMAT}",
                    config.store.path.display()
                ),
            ));
        }
        if format < FORMAT {
            upgrade::from_first(conn)?;
        }
        upgraded = format < FORMAT;
    }
    calendar(conn, &config.source.time_zone)?;
    set_meta(conn, "journal_level", &config.journals.level.to_string())?;
    let key = hash_key(conn, config)?;
    align(conn, config, catalog, key)?;
    fetched::note_rules(conn, catalog)?;
    if upgraded {
        FetchedBooks::new(conn).fold_all()?;
        set_meta(conn, "format", &FORMAT.to_string())?;
    }
    let state = State::new(conn);
    if !state.all_are_wanted(&config.journals)? {
        state.want_journals(&config.journals)?;
    }
    // Opening a store that is as it should be writes nothing.
    let digest = reports::digest(catalog.resources());
    if meta(conn, "reports")?.as_deref() != Some(digest.as_str()) {
        reports::create_all(conn, catalog.resources())?;
        set_meta(conn, "reports", &digest)?;
    }
    Ok(key)
}

/// The key of the privacy hashes. From when a class is hidden on, the store is bound to it.
fn hash_key(conn: &Connection, config: &Config) -> Result<[u8; 32]> {
    let known = meta(conn, KEY_FINGERPRINT)?;
    let key = secrets::hash_key(&config.store.path, known.as_deref())?;
    let modes = [config.privacy.identifiers, config.privacy.contact_details];
    if modes.iter().any(|mode| *mode != PrivacyMode::Keep) {
        set_meta(conn, KEY_FINGERPRINT, &secrets::fingerprint_of(key))?;
    }
    Ok(key)
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

/// Fills `report.calendar` for the zone, where it is not filled for it already.
fn calendar(conn: &Connection, zone: &TimeZone) -> Result<()> {
    let name = zone.iana_name().unwrap_or("UTC");
    if meta(conn, "calendar_zone")?.as_deref() == Some(name) {
        return Ok(());
    }
    let failed = |e| db("cannot fill report.calendar", e);
    conn.execute_batch(
        "DELETE FROM report.calendar; \
         CREATE OR REPLACE TEMP TABLE stage_calendar (day VARCHAR, starts BIGINT, ends BIGINT)",
    )
    .map_err(failed)?;
    let mut appender = conn.appender("stage_calendar").map_err(failed)?;
    let mut day = Date::constant(1900, 1, 1);
    let mut starts = start_of_day(day, zone)?;
    while day.year() <= 2100 {
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

/// What becomes of a column's values.
fn mode(config: &Config, column: &Column) -> PrivacyMode {
    match column.class {
        Some(Class::Identifier) => config.privacy.identifiers,
        Some(Class::ContactDetail) => config.privacy.contact_details,
        None => PrivacyMode::Keep,
    }
}

/// What a column's stored values depend on: its own definition, privacy and, for instants, the zone.
fn definition(config: &Config, column: &Column) -> String {
    let mode = mode(config, column);
    let zone = match column.kind.scalar {
        crate::catalog::Scalar::Instant => config.source.time_zone.iana_name().unwrap_or(""),
        _ => "",
    };
    format!("{}|{mode:?}|{zone}", column.definition())
}

/// Creates tables and columns that the catalog has and the store lacks, and notes which definitions
/// are new, so that they make every scope stale and no version (docs/architecture.md, "Values").
fn align(conn: &Connection, config: &Config, catalog: &Catalog, key: [u8; 32]) -> Result<()> {
    let failed = |e| db("cannot bring the store up to the resource files", e);
    let freed = retired::retire(conn, catalog)?;
    let in_books: BTreeSet<String> =
        query(conn, "SELECT table_name FROM sync.resources", |row| row.get(0))?
            .into_iter()
            .collect();
    let mut known: BTreeMap<(String, String), String> = BTreeMap::new();
    {
        let mut statement = conn
            .prepare("SELECT table_name, column_name, definition FROM sync.columns")
            .map_err(failed)?;
        let rows = statement
            .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))
            .map_err(failed)?;
        for row in rows {
            let (key, value): ((String, String), String) = row.map_err(failed)?;
            known.insert(key, value);
        }
    }
    let tables: BTreeSet<&str> = known.keys().map(|(table, _)| table.as_str()).collect();
    let generation: i64 = meta(conn, "definition")?.and_then(|v| v.parse().ok()).unwrap_or(1);
    let mut newest = generation;
    let mut tightened = Vec::new();
    for resource in catalog.resources() {
        let is_new = !tables.contains(resource.table.as_str());
        if is_new {
            for (schema, history) in [("main", false), ("history", true)] {
                conn.execute_batch(&resource.create_table(schema, history)).map_err(failed)?;
            }
        }
        let comes_back = !is_new && !in_books.contains(&resource.table);
        if comes_back {
            retired::revive(conn, resource)?;
        }
        if is_new || comes_back {
            conn.execute(
                "INSERT INTO sync.resources (table_name, status, since, answered, definition) \
                 VALUES (?, 'ok', ?::TIMESTAMPTZ, false, ?)",
                params![resource.table, instant_param(jiff::Timestamp::now()), generation],
            )
            .map_err(failed)?;
        }
        // A child table is fetched with its parent, whose `_extra` its field leaves or enters.
        let scopes = resource.read_with();
        let is_new_child =
            (is_new || comes_back) && scopes != resource.table && in_books.contains(scopes);
        let mut moved = is_new_child || freed.contains(&resource.table);
        for column in &resource.columns {
            let now = definition(config, column);
            let key = (resource.table.clone(), column.name.clone());
            let before = known.get(&key);
            if before == Some(&now) {
                continue;
            }
            let mode = mode(config, column);
            if before.is_some_and(|before| is_tighter(before, &now)) {
                // What is fetched from now on is what is stored when that is rewritten: nothing is stale.
                conn.execute(
                    "UPDATE sync.columns SET definition = ? WHERE table_name = ? AND column_name = ?",
                    params![now, resource.table, column.name],
                )
                .map_err(failed)?;
                tightened.push(Tightened { resource, column, mode });
                continue;
            }
            // What the column takes from now on was kept elsewhere, as if it had no class.
            let takes_other = before.is_none_or(|before| !differ_in_mode_alone(before, &now));
            if mode != PrivacyMode::Keep && takes_other && (!is_new || is_new_child) {
                tightened.push(Tightened { resource, column, mode });
            }
            if !is_new {
                newest = generation + 1;
                moved = true;
                redefine(conn, resource, &column.name, &column.kind.sql(), before, &now)?;
            }
            let since = if is_new { generation } else { newest };
            conn.execute(
                "DELETE FROM sync.columns WHERE table_name = ? AND column_name = ?",
                [&resource.table, &column.name],
            )
            .and_then(|_| {
                conn.execute(
                    "INSERT INTO sync.columns (table_name, column_name, definition, since) \
                     VALUES (?, ?, ?, ?)",
                    params![resource.table, column.name, now, since],
                )
            })
            .map_err(failed)?;
        }
        for (table, column) in known.keys().filter(|(t, _)| *t == resource.table) {
            if resource.column(column).is_none() {
                newest = generation + 1;
                moved = true;
                drop_column(conn, table, column)?;
            }
        }
        if moved {
            newest = generation + 1;
            for table in BTreeSet::from([resource.table.as_str(), scopes]) {
                conn.execute(
                    "UPDATE sync.resources SET definition = ? WHERE table_name = ?",
                    params![newest, table],
                )
                .and_then(|_| {
                    conn.execute(
                        "UPDATE sync.journal_months SET due = ? WHERE table_name = ? AND complete",
                        params![DueReason::Redefined.name(), table],
                    )
                })
                .map_err(failed)?;
                let these = format!("SELECT {}", sql::text(table));
                FetchedBooks::new(conn).mark_tables(&these, Mark::Redefined)?;
            }
        }
        if is_new || comes_back || moved {
            for schema in [("main", false), ("history", true)] {
                for comment in resource.comments(schema.0, schema.1) {
                    conn.execute_batch(&comment).map_err(failed)?;
                }
            }
            // A new table or column makes the resource stale everywhere.
            conn.execute_batch(
                "UPDATE sync.seen SET dirty = true WHERE NOT removed; \
                 UPDATE sync.seen_contacts SET dirty = true",
            )
            .map_err(failed)?;
            set_meta(conn, "contacts_planned_at", "")?;
        }
    }
    let step = tighten::tightened_classes(conn, &config.privacy)?;
    if !tightened.is_empty() || step.is_some() {
        tighten::rewrite(conn, catalog, &tightened, step.as_ref(), key)?;
    }
    retired::note_files(conn, catalog)?;
    retired::hide(conn, catalog, &config.privacy, step.as_ref())?;
    tighten::note_modes(conn, &config.privacy)?;
    set_meta(conn, "definition", &newest.to_string())
}

/// A definition as what of it is not privacy, and the mode.
fn without_mode(definition: &str) -> Option<((&str, &str), PrivacyMode)> {
    let (rest, zone) = definition.rsplit_once('|')?;
    let (rest, mode) = rest.rsplit_once('|')?;
    Some(((rest, zone), tighten::parse_mode(mode)?))
}

/// The definition with this mode, where that hides more than the one it has.
pub(super) fn with_mode(definition: &str, mode: PrivacyMode) -> Option<String> {
    let ((rest, zone), before) = without_mode(definition)?;
    (mode > before).then(|| format!("{rest}|{mode:?}|{zone}"))
}

/// Whether a column so defined holds text, which alone can have a privacy class.
pub(super) fn is_text(definition: &str) -> bool {
    definition.starts_with("VARCHAR")
}

fn differ_in_mode_alone(before: &str, now: &str) -> bool {
    match (without_mode(before), without_mode(now)) {
        (Some((before, _)), Some((now, _))) => before == now,
        _ => false,
    }
}

/// Whether a definition differs from the one before in nothing but hiding more.
fn is_tighter(before: &str, now: &str) -> bool {
    let mode = |definition| without_mode(definition).map(|(_, mode)| mode);
    differ_in_mode_alone(before, now) && mode(now) > mode(before)
}

/// Gives a column its new type, or makes it. A value that the new type cannot hold becomes NULL until
/// it is fetched again, which the new definition brings about.
fn redefine(
    conn: &Connection,
    resource: &Resource,
    column: &str,
    kind: &str,
    before: Option<&String>,
    now: &str,
) -> Result<()> {
    let type_of = |definition: &str| definition.split('|').next().unwrap_or("").to_owned();
    let same_type = before.is_some_and(|b| type_of(b) == type_of(now));
    if same_type {
        return Ok(());
    }
    let name = sql::ident(column);
    for schema in ["main", "history"] {
        let table = format!("{schema}.{}", sql::ident(&resource.table));
        let sql = if before.is_some() {
            format!(
                "ALTER TABLE {table} ALTER {name} SET DATA TYPE {kind} USING TRY_CAST({name} AS {kind})"
            )
        } else {
            format!("ALTER TABLE {table} ADD COLUMN {name} {kind}")
        };
        conn.execute_batch(&sql)
            .map_err(|e| db(&format!("cannot change {table}.{column} to {kind}"), e))?;
    }
    Ok(())
}

/// A column that the resource file no longer has leaves the table; its values go to `_extra` with
/// the next fetch.
fn drop_column(conn: &Connection, table: &str, column: &str) -> Result<()> {
    for schema in ["main", "history"] {
        let sql = format!(
            "ALTER TABLE {schema}.{} DROP COLUMN {}",
            sql::ident(table),
            sql::ident(column)
        );
        conn.execute_batch(&sql)
            .map_err(|e| db(&format!("cannot drop {schema}.{table}.{column}"), e))?;
    }
    conn.execute(
        "DELETE FROM sync.columns WHERE table_name = ? AND column_name = ?",
        [table, column],
    )
    .map(drop)
    .map_err(|e| db("cannot write sync.columns", e))
}

/// The columns of a table that are newer than the table itself, with their generation. `_extra` is
/// among them where there is any, because a field that gets a column leaves it.
pub(super) fn redefined(conn: &Connection, table: &str) -> Result<Vec<(String, i64)>> {
    let failed = |e| db("cannot read sync.columns", e);
    let mut statement = conn
        .prepare(
            "SELECT column_name, since FROM sync.columns WHERE table_name = ?1 \
             AND since > (SELECT min(since) FROM sync.columns WHERE table_name = ?1)",
        )
        .map_err(failed)?;
    let rows =
        statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    let mut all: Vec<(String, i64)> = rows.collect::<Result<_, _>>().map_err(failed)?;
    // A dropped column moves values into `_extra` without leaving a row in sync.columns.
    let generation: i64 = meta(conn, "definition")?.and_then(|v| v.parse().ok()).unwrap_or(1);
    let table_generation = scalar_i64(
        conn,
        &format!(
            "SELECT coalesce(max(definition), 1) FROM sync.resources WHERE table_name = {}",
            sql::text(table)
        ),
    )?;
    debug_assert!(table_generation <= generation);
    let extra = all.iter().map(|(_, since)| *since).max().unwrap_or(1).max(table_generation);
    if extra > 1 {
        all.push(("_extra".to_owned(), extra));
    }
    Ok(all)
}
