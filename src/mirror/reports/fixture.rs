//! A store by hand, for tests: the tables of the catalog, the state that reports read, a calendar.

use std::path::Path;

use duckdb::{Config, Connection};
use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::create_all;
use super::described::make_empty;
use crate::catalog::Catalog;
use crate::config::HistoryTables;
use crate::mirror::freshness;
use crate::mirror::state::fetched;

/// A store with every table, empty and readable, the reports, and the calendar of Oslo for the
/// given years.
pub(crate) fn store(path: Option<&Path>, years: std::ops::RangeInclusive<i16>) -> Connection {
    let conn = match path {
        Some(path) => Connection::open_with_flags(path, no_extensions()),
        None => Connection::open_in_memory_with_flags(no_extensions()),
    }
    .unwrap();
    let catalog = Catalog::load(None).unwrap();
    make_empty(&conn, &catalog).unwrap();
    fetched::note_rules(&conn, &catalog).unwrap();
    for resource in catalog.resources() {
        for (schema, history) in [("main", false), ("history", true)] {
            conn.execute_batch(&resource.comments(schema, history).join(";")).unwrap();
        }
        conn.execute(
            "INSERT INTO sync.resources (table_name, status, answered) VALUES (?, 'ok', false)",
            [&resource.table],
        )
        .unwrap();
    }
    freshness::enter(&conn).unwrap();
    fill_calendar(&conn, years);
    create_all(&conn, catalog.resources(), &HistoryTables::All).unwrap();
    conn
}

/// DuckDB without the extensions that it would otherwise download when a query leans on them.
pub(crate) fn no_extensions() -> Config {
    Config::default()
        .with("autoinstall_known_extensions", "false")
        .and_then(|c| c.with("autoload_known_extensions", "false"))
        .unwrap()
}

/// The instant of a local time in Oslo, as DuckDB reads it; of a repeated one the first.
pub(crate) fn oslo(local: &str) -> String {
    let local: jiff::civil::DateTime = local.parse().unwrap();
    local.to_zoned(TimeZone::get("Europe/Oslo").unwrap()).unwrap().timestamp().to_string()
}

fn fill_calendar(conn: &Connection, years: std::ops::RangeInclusive<i16>) {
    let zone = TimeZone::get("Europe/Oslo").unwrap();
    let start_of =
        |day: jiff::civil::Date| -> Timestamp { day.to_zoned(zone.clone()).unwrap().timestamp() };
    let mut day = date(*years.start(), 1, 1);
    let mut rows = Vec::new();
    while day.year() <= *years.end() {
        let next = day.checked_add(1.day()).unwrap();
        rows.push(format!(
            "('{day}', '{}', '{}', '{}')",
            day.first_of_month(),
            start_of(day),
            start_of(next)
        ));
        day = next;
    }
    conn.execute_batch(&format!("INSERT INTO report.calendar VALUES {}", rows.join(", "))).unwrap();
}
