//! What is wrong, table by table.

use std::collections::BTreeMap;

use duckdb::Connection;

use super::{Table, shown};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::cycle::{failed_text, failing_text};
use crate::error::Result;
use crate::mirror::{FEED_TABLES, Freshness, ResourceRow, RunLog, State, asked_tables, is_asked};
use crate::pending::PendingTable;
use crate::text::counted;

/// What the store says is wrong, by table.
pub(super) struct Findings {
    pub(super) resources: BTreeMap<String, ResourceRow>,
    /// Open rejects.
    pub(super) rejects: BTreeMap<String, i64>,
    /// Failed scopes, and the error of one of them.
    pub(super) failed: BTreeMap<String, (i64, String)>,
}

impl Findings {
    pub(super) fn of(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<Findings> {
        let log = RunLog::new(conn);
        let resources = State::new(conn).statuses().all()?;
        let tables: Vec<&str> = catalog.names().into_iter().chain(FEED_TABLES).collect();
        // The feeds are asked in every run.
        let asked: Vec<&str> =
            asked_tables(catalog, &resources).into_iter().chain(FEED_TABLES).collect();
        let rejects = log.open_rejects(&tables, &[])?;
        let failed = log.failed_scopes(&asked, (&[], true), config.source.search_delay)?;
        Ok(Findings { resources, rejects, failed })
    }

    /// What is wrong with a table.
    pub(super) fn problems(
        &self,
        table: &str,
        row: &ResourceRow,
        catalog: &Catalog,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        if row.brings_nothing(&self.resources) {
            problems.push(failing_text(table, row.reason.as_deref().unwrap_or("")));
        }
        if let Some((count, error)) = self.failed.get(table) {
            problems.push(failed_text(table, *count, error));
        }
        let is_asked = self.is_asked(table, catalog);
        if let Some(rejected) = self.rejects.get(table).filter(|n| **n > 0 && is_asked) {
            problems.push(rejected_text(table, *rejected));
        }
        problems
    }

    /// What is wrong with what is no table of the catalog: rows of the feeds that cannot be read.
    pub(super) fn beside_the_catalog(&self) -> Vec<String> {
        let is_beside = |table: &str| !self.resources.contains_key(table);
        let failed = self.failed.iter().filter(|(table, _)| is_beside(table));
        let rejects = self.rejects.iter().filter(|(table, _)| is_beside(table));
        failed
            .map(|(table, (count, error))| failed_text(table, *count, error))
            .chain(rejects.map(|(table, rejected)| rejected_text(table, *rejected)))
            .collect()
    }

    pub(super) fn table(
        &self,
        table: String,
        row: &ResourceRow,
        fresh: Freshness,
        stale: Option<&PendingTable>,
        catalog: &Catalog,
    ) -> Table {
        Table {
            status: row.status.name(),
            reason: row.reason.clone(),
            since: row.since.map(shown),
            rows: fresh.rows,
            last_change: fresh.last_change.map(shown),
            last_checked: fresh.last_checked.map(shown),
            pending: stale.map_or(0, |stale| stale.scopes),
            pending_reason: stale.map(PendingTable::reason),
            pending_reasons: stale.map(|stale| stale.reasons.clone()).unwrap_or_default(),
            rejected: self.rejects.get(&table).copied().unwrap_or(0),
            is_asked: self.is_asked(&table, catalog),
            table,
        }
    }

    fn is_asked(&self, table: &str, catalog: &Catalog) -> bool {
        catalog.get(table).is_some_and(|resource| is_asked(resource, &self.resources))
    }
}

fn rejected_text(table: &str, rejected: i64) -> String {
    format!("{table}: {}, see sync.rejects", counted(rejected, "open reject"))
}
