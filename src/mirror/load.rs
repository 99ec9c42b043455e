//! What a run's loads are applied by, and what applying them did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use duckdb::Connection;
use jiff::Timestamp;

use super::align::{self, Redefined};
use super::guard::Limits;
use super::merge::Merged;
use crate::catalog::Catalog;
use crate::config::{Config, HistoryTables};
use crate::error::Result;
use crate::progress::Progress;
use crate::sql::{self, db};

/// What loading did, per table.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub tables: BTreeMap<String, Merged>,
    /// Scopes of which the guard or a doubt holds rows: table and id.
    pub(crate) held: Vec<(String, i64)>,
}

impl Outcome {
    /// Adds another outcome's figures.
    pub(crate) fn add(&mut self, other: &Outcome) {
        for (table, merged) in &other.tables {
            self.tables.entry(table.clone()).or_default().add(*merged);
        }
        self.held.extend(other.held.iter().cloned());
    }

    pub(super) fn note(&mut self, table: &str, merged: Merged) {
        self.tables.entry(table.to_owned()).or_default().add(merged);
    }
}

/// What loading needs to know beside the loads.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) history: HistoryTables,
    pub(crate) max_removed: Option<f64>,
    pub(crate) search_delay: std::time::Duration,
    /// `source.doubt`.
    pub(crate) doubt: std::time::Duration,
    /// Zone of the source's local times.
    pub(crate) zone: jiff::tz::TimeZone,
    /// `journals.close_day`.
    pub(crate) close_day: u32,
    /// Where rows that are committed are told.
    pub(crate) progress: Progress,
    /// See [`align::redefined`]; it only changes when the store is opened.
    pub(super) redefined: Arc<OnceLock<Redefined>>,
}

impl Settings {
    /// `allow_removals` lifts the guard and all doubts. What is committed is told nowhere.
    pub fn new(config: &Config, catalog: &Arc<Catalog>, allow_removals: bool) -> Settings {
        Settings {
            catalog: Arc::clone(catalog),
            history: config.history.tables.clone(),
            max_removed: (!allow_removals).then_some(config.reconcile.max_removed),
            search_delay: config.source.search_delay,
            doubt: config.source.doubt,
            zone: config.source.time_zone.clone(),
            close_day: config.journals.close_day,
            progress: Progress::silent(),
            redefined: Arc::default(),
        }
    }

    /// The same, telling of the rows that are committed.
    pub(crate) fn telling(self, progress: Progress) -> Settings {
        Settings { progress, ..self }
    }

    /// What holds removals back, unless that is lifted.
    pub(super) fn limits(&self, now: Timestamp) -> Option<Limits> {
        self.max_removed.map(|max_removed| Limits { max_removed, doubt: self.doubt, now })
    }

    /// The columns of a table whose definition is newer than the table, and since which generation.
    pub(super) fn redefined(&self, conn: &Connection, table: &str) -> Result<&[(String, i64)]> {
        let all = match self.redefined.get() {
            Some(all) => all,
            None => {
                let all = align::redefined(conn)?;
                self.redefined.get_or_init(|| all)
            }
        };
        Ok(all.get(table).map_or(&[], Vec::as_slice))
    }

    pub(super) fn keeps_history(&self, table: &str) -> bool {
        self.history.keeps(table)
    }
}

/// Moves the change counters by which snapshots link unchanged files
/// (docs/architecture.md, "Published means finished"); `parts` are the months of a journal's table, of
/// another nothing.
pub(super) fn count_changes(
    conn: &Connection,
    table: &str,
    parts: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<()> {
    let parts: Vec<String> =
        parts.into_iter().map(|part| format!("({})", sql::text(part.as_ref()))).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let name = sql::text(table);
    let parts = parts.join(", ");
    conn.execute_batch(&format!(
        "UPDATE sync.changes SET counter = counter + 1 \
           WHERE table_name = {name} AND part IN (SELECT part FROM (VALUES {parts}) p(part)); \
         INSERT INTO sync.changes SELECT {name}, part, 1 FROM (VALUES {parts}) p(part) \
           WHERE part NOT IN (SELECT part FROM sync.changes WHERE table_name = {name})"
    ))
    .map_err(|e| db("cannot count a change", e))
}

/// The same for tables that are no journals.
pub(super) fn count_changed(conn: &Connection, tables: &BTreeSet<String>) -> Result<()> {
    if tables.is_empty() {
        return Ok(());
    }
    let names = sql::texts(tables.iter().map(String::as_str));
    conn.execute_batch(&format!(
        "UPDATE sync.changes SET counter = counter + 1 WHERE part = '' AND table_name IN ({names}); \
         INSERT INTO sync.changes SELECT name, '', 1 FROM (SELECT unnest([{names}]) AS name) \
           WHERE name NOT IN (SELECT table_name FROM sync.changes WHERE part = '')"
    ))
    .map_err(|e| db("cannot count changes", e))
}
