//! What `sync.resources` says of the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use duckdb::Connection;
use jiff::Timestamp;

use super::Run;
use super::dependence::Dependence;
use super::permissions::restriction;
use super::polls::CONTACTS_FEED_WHY;
use crate::catalog::{Catalog, EVENTS, Group};
use crate::error::Result;
use crate::mirror::{RunLog, State, forget_unnamed};
use crate::scope::TableStatus;

/// The statuses of the tables.
pub(super) struct Statuses<'r> {
    pub(super) run: &'r Run,
}

impl Statuses<'_> {
    /// Makes the statuses follow `resources.disable`, and says why nothing is told where no webhooks are taken.
    pub(crate) async fn align(&self) -> Result<()> {
        let run = self.run;
        let disabled = run.config.resources.disable.clone();
        let rows = State::new(&run.store.connection()?).statuses().all()?;
        let is_untold = run.config.serve.webhooks.is_none();
        let why = is_untold.then_some("serve.webhooks is not set: nobody tells of any");
        let told = rows.get(EVENTS).filter(|row| row.status == TableStatus::Ok);
        if told.is_some_and(|row| row.reason.as_deref() != why) {
            run.write(move |conn| State::new(conn).statuses().set_reason(EVENTS, why)).await?;
        }
        let changes: Vec<(String, bool)> = rows
            .into_iter()
            .filter_map(|(table, row)| {
                let off = disabled.contains(&table);
                (off != (row.own_status() == TableStatus::Disabled)).then_some((table, off))
            })
            .collect();
        if changes.is_empty() {
            return self.derive().await;
        }
        let catalog = Arc::clone(&run.catalog);
        run.write(move |conn| {
            let state = State::new(conn);
            for (table, off) in &changes {
                if *off {
                    let why = "resources.disable names it";
                    state.statuses().set(table, TableStatus::Disabled, Some(why))?;
                } else {
                    set_ok(conn, &catalog, table)?;
                    if table == EVENTS {
                        // Nothing is read for it.
                        continue;
                    }
                    // A child's rows come with its parent's scopes.
                    match catalog.get(table).map(|resource| resource.read_with()) {
                        Some(parent) if parent != table => {
                            state.stale_marks().read_again(parent)?
                        }
                        _ => state.stale_marks().wake_table(table)?,
                    }
                }
            }
            Ok(())
        })
        .await?;
        self.derive().await
    }

    /// Makes them follow what a run has found out: the tables that failed, with why, and those that
    /// answered.
    pub(crate) async fn settle(
        &self,
        failed: BTreeMap<String, String>,
        answered: BTreeSet<String>,
    ) -> Result<()> {
        let run = self.run;
        // Of which each scope that failed is noted.
        let has_scopes =
            |group: &Group| matches!(group, Group::Case | Group::Journal(_) | Group::ForEach(_));
        let scoped = run.catalog.resources().iter().filter(|r| has_scopes(&r.group));
        let tables: Vec<String> = scoped.map(|r| r.table.clone()).collect();
        let catalog = Arc::clone(&run.catalog);
        let search_delay = run.config.source.search_delay;
        run.write(move |conn| {
            let (statuses, log) = (State::new(conn).statuses(), RunLog::new(conn));
            let rows = statuses.all()?;
            for (table, reason) in &failed {
                let ok = rows.get(table).is_some_and(|r| r.own_status() == TableStatus::Ok);
                // One scope that fails is not the table; none that answers is.
                if ok && !answered.contains(table) {
                    statuses.set(table, TableStatus::Failing, Some(reason))?;
                }
            }
            forget_unnamed(conn, &catalog, Timestamp::now())?;
            let waiting = log.failed_scopes(&tables, (&[], true), search_delay)?;
            for (table, _) in
                rows.iter().filter(|(_, row)| row.own_status() == TableStatus::Failing)
            {
                // What failed may have left with its case, or is believed to be nothing.
                let over = tables.contains(table) && !waiting.contains_key(table);
                if over || answered.contains(table) {
                    set_ok(conn, &catalog, table)?;
                }
            }
            Ok(())
        })
        .await?;
        self.derive().await
    }

    /// Makes the statuses of tables that depend on others follow those.
    async fn derive(&self) -> Result<()> {
        let run = self.run;
        let changes = {
            let conn = run.store.connection()?;
            let state = State::new(&conn);
            Dependence {
                catalog: &run.catalog,
                rows: &State::new(&conn).statuses().all()?,
                offices: state.wanted_months().listed_offices(&run.config.journals)?,
                is_empty: |table: &str| Ok(state.scopes().count_rows(table)? == 0),
            }
            .changes()?
        };
        if changes.is_empty() {
            return Ok(());
        }
        run.write(move |conn| {
            let statuses = State::new(conn).statuses();
            changes.iter().try_for_each(|(table, now)| {
                let (reason, because_of) = (now.reason.as_deref(), now.because_of.as_deref());
                statuses.set_because_of(table, now.status, reason, because_of)
            })
        })
        .await
    }
}

/// A table can be read, in part where a permission for the rest of it is not granted.
pub(super) fn set_ok(conn: &Connection, catalog: &Catalog, table: &str) -> Result<()> {
    let partial = catalog.get(table).and_then(|resource| resource.partial.as_ref());
    let lacking = match partial {
        Some(partial) if State::new(conn).stale_marks().is_withheld(table)? => {
            Some(restriction(partial))
        }
        None if table == "contacts" => {
            State::new(conn).meta(CONTACTS_FEED_WHY)?.filter(|why| !why.is_empty())
        }
        Some(_) | None => None,
    };
    State::new(conn).statuses().set(table, TableStatus::Ok, lacking.as_deref())
}
