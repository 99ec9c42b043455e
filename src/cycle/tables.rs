//! Which tables a run may ask.

use std::sync::Arc;

use super::Run;
use crate::catalog::{Group, Resource};
use crate::error::Result;
use crate::mirror::{ResourceRow, State};
use crate::scope::TableStatus;

/// The tables that a run reads.
pub(super) struct Tables<'r> {
    pub(super) run: &'r Run,
    active: Vec<Arc<Resource>>,
}

impl<'r> Tables<'r> {
    /// None yet.
    pub(crate) fn none(run: &'r Run) -> Tables<'r> {
        Tables { run, active: Vec::new() }
    }

    /// The tables of this run: enabled, permitted, there.
    pub(crate) fn choose(&mut self) -> Result<()> {
        let rows = State::new(&self.run.store.connection()?).statuses().all()?;
        let resources = self.run.catalog.resources().iter();
        self.active = resources
            .filter(|r| !matches!(r.group, Group::Child(_) | Group::Events))
            .filter(|r| rows.get(&r.table).is_some_and(ResourceRow::is_asked))
            .cloned()
            .collect();
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
        let (table, reason) = (table.to_owned(), reason.to_owned());
        self.run
            .write(move |conn| State::new(conn).statuses().set(&table, status, Some(&reason)))
            .await
    }
}
