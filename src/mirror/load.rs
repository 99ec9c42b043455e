//! What a run's loads are applied by, and what applying them did.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use duckdb::Connection;
use jiff::Timestamp;

use super::align::{self, Redefined};
use super::changes::Touched;
use super::guard::Limits;
use super::merge::Merged;
use crate::catalog::Catalog;
use crate::config::{Config, HistoryTables};
use crate::error::Result;
use crate::progress::Progress;

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
    /// Contacts are followed by their change feed, where the source has it.
    pub(crate) contacts_feed: bool,
    /// `source.doubt`.
    pub(crate) doubt: std::time::Duration,
    /// Zone of the source's local times.
    pub(crate) zone: jiff::tz::TimeZone,
    /// `journals.close_day`; 0: no month is closed by it.
    pub(crate) close_day: u32,
    /// There is a lake, which wants to know whose rows a change wrote.
    pub(crate) notes_scopes: bool,
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
            contacts_feed: config.feed.contacts_poll.is_some(),
            doubt: config.source.doubt,
            zone: config.source.time_zone.clone(),
            close_day: config.journals.close_day,
            notes_scopes: config.has_lake(),
            progress: Progress::silent(),
            redefined: Arc::default(),
        }
    }

    /// The same, telling of the rows that are committed.
    pub(crate) fn telling(self, progress: Progress) -> Settings {
        Settings { progress, ..self }
    }

    /// The same, closing no month.
    pub(crate) fn closing_none(self) -> Settings {
        Settings { close_day: 0, ..self }
    }

    /// What holds removals back, unless that is lifted.
    pub(super) fn limits(&self, now: Timestamp) -> Option<Limits> {
        // The time of a commit is ahead of a clock that was set back.
        let now = now.min(Timestamp::now());
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

    /// Whose rows a change wrote, where somebody wants to know it.
    pub(super) fn touched(&self, find: impl FnOnce() -> Result<Touched>) -> Result<Touched> {
        if self.notes_scopes { find() } else { Ok(Touched::Any) }
    }

    pub(super) fn keeps_history(&self, table: &str) -> bool {
        self.history.keeps(table)
    }
}
