//! Which tables a run may ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Run;
use crate::catalog::{Group, Resource};
use crate::error::Result;
use crate::mirror::{ResourceRow, RunLog};
use crate::scope::TableStatus;

/// The tables that a run reads.
pub(super) struct Tables<'r> {
    pub(super) run: &'r Run,
    active: Vec<Arc<Resource>>,
    /// Those that were forbidden or absent, and are tried again in this run.
    retried: BTreeMap<String, ResourceRow>,
}

impl<'r> Tables<'r> {
    /// None yet.
    pub(crate) fn none(run: &'r Run) -> Tables<'r> {
        Tables { run, active: Vec::new(), retried: BTreeMap::new() }
    }

    /// The tables of this run: enabled, permitted, there. `retried` were forbidden or absent before.
    pub(crate) fn choose(&mut self, retried: BTreeMap<String, ResourceRow>) -> Result<()> {
        let rows = RunLog::new(&self.run.store.connection()?).resources()?;
        let resources = self.run.catalog.resources().iter();
        self.active = resources
            .filter(|r| !matches!(r.group, Group::Child(_) | Group::Events))
            .filter(|r| rows.get(&r.table).is_some_and(ResourceRow::is_asked))
            .cloned()
            .collect();
        self.retried = retried;
        Ok(())
    }

    pub(crate) fn active(&self) -> &[Arc<Resource>] {
        &self.active
    }

    /// A table, where it is read.
    pub(crate) fn get(&self, table: &str) -> Option<&Arc<Resource>> {
        self.active.iter().find(|r| r.table == table)
    }

    pub(crate) fn is_active(&self, table: &str) -> bool {
        self.get(table).is_some()
    }

    /// The journals' tables.
    pub(crate) fn journals(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.active.iter().filter(|r| matches!(r.group, Group::Journal(_)))
    }

    /// A table that answered 403 or is not there is not asked again in this run.
    pub(crate) async fn set_aside(
        &mut self,
        table: &str,
        status: TableStatus,
        reason: &str,
    ) -> Result<()> {
        self.active.retain(|r| r.table != table);
        tracing::warn!(
            table,
            status = status.name(),
            reason,
            "a table cannot be read and is left alone"
        );
        // One that was tried again in vain has been so all the time.
        let before = self.retried.get(table).filter(|row| row.status == status);
        let since = before.and_then(|row| row.since);
        let (table, reason) = (table.to_owned(), reason.to_owned());
        self.run
            .write(move |conn| {
                let log = RunLog::new(conn);
                log.set_status(&table, status, Some(&reason))?;
                since.map_or(Ok(()), |since| log.set_since(&table, since))
            })
            .await
    }
}
