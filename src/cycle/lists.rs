//! Tables that are read as whole lists, or per row of another table, by schedule.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Cycle;
use super::queue::Queue;
use super::signals::Interrupt;
use crate::catalog::{Fallback, ForEach, Group, Resource};
use crate::decode::Load;
use crate::error::{Error, Result};
use crate::mirror::State;
use crate::scope::{FailureKind, TableStatus, Urgency, Version, Work};

impl Cycle<'_> {
    /// Reads the lists of `schedule.reference`: all when it is due, else what of them is stale
    /// because it failed, is new, is newly permitted or was asked for. `false` when the process ends
    /// before all are read.
    pub(super) async fn read_lists(&mut self, due: bool) -> Result<bool> {
        let mut by_depth: BTreeMap<usize, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in self.tables.active().iter().filter(|r| r.schedule.is_some()) {
            if self.run.options.wants(&resource.table) {
                // What is read per row of another table, or may be taken from one, comes after it.
                let depth = self.run.catalog.depth(resource);
                by_depth.entry(depth).or_default().push(Arc::clone(resource));
            }
        }
        for lists in by_depth.into_values() {
            self.follow_changes().await?;
            let whole = self.whole_lists(&lists, due)?;
            self.fetch_due(whole).await?;
            let rows = self.rows_of_lists(&lists, due)?;
            self.fetch_due(rows).await?;
            if self.run.signals.interrupt() == Interrupt::Cancel {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn fetch_due(&mut self, work: Vec<Work>) -> Result<()> {
        if work.is_empty() {
            return Ok(());
        }
        self.run.progress.more(work.len() as u64);
        self.fetch(Queue::of(Urgency::Due, work)).await.map(drop)
    }

    /// Of these lists what is read by one call each: whole lists, and the lists that name scopes.
    fn whole_lists(&self, lists: &[Arc<Resource>], due: bool) -> Result<Vec<Work>> {
        let mut work = Vec::new();
        for resource in lists {
            let table = resource.table.clone();
            match &resource.group {
                Group::List if due || self.list_is_stale(resource)? => {
                    work.push(Work::List { table });
                }
                Group::ForEach(for_each)
                    if for_each.list.is_some()
                        && self.each_ids(resource, for_each, due)?.contains(&0) =>
                {
                    work.push(Work::Names { table });
                }
                _ => {}
            }
        }
        Ok(work)
    }

    /// What of these lists is read per row of another table, or per id that a list has named.
    fn rows_of_lists(&self, lists: &[Arc<Resource>], due: bool) -> Result<Vec<Work>> {
        let mut work = Vec::new();
        for resource in lists.iter().filter(|resource| self.tables.is_active(&resource.table)) {
            let Group::ForEach(for_each) = &resource.group else { continue };
            let ids = self.each_ids(resource, for_each, due)?;
            // Scope 0 is the list that names the others.
            let ids = ids.into_iter().filter(|id| for_each.list.is_none() || *id != 0);
            work.extend(ids.map(|id| Work::Row { table: resource.table.clone(), id }));
        }
        Ok(work)
    }

    fn list_is_stale(&self, resource: &Resource) -> Result<bool> {
        State::new(&self.run.store.connection()?).scopes().list_is_stale(&resource.table)
    }

    /// Takes the answer of a whole list.
    pub(super) async fn take_list(
        &mut self,
        resource: &Arc<Resource>,
        load: Result<Load>,
    ) -> Result<()> {
        match load {
            Ok(load) => {
                self.unreached.reached();
                self.take_load(0, load).await
            }
            Err(error) => match &resource.fallback {
                // A list that was there before is no reason to give up what it said.
                Some(fallback)
                    if error.kind().is_no_such_call() && !self.has_answered(&resource.table)? =>
                {
                    self.take_fallback(resource, fallback, &error).await
                }
                _ => self.list_failed(resource, error).await,
            },
        }
    }

    async fn list_failed(&mut self, resource: &Arc<Resource>, error: Error) -> Result<()> {
        let version = Version::Known(String::new());
        self.take_error(resource, 0, true, version, error).await.map(drop)
    }

    /// The service has no such list: rows of another table stand for it. What that table does not
    /// know for certain removes nothing.
    async fn take_fallback(
        &mut self,
        resource: &Arc<Resource>,
        fallback: &Fallback,
        error: &Error,
    ) -> Result<()> {
        self.flush().await?;
        let Some(other) = self.tables.get(&fallback.table).cloned() else {
            return self
                .tables
                .set_aside(&resource.table, TableStatus::Absent, &error.chain())
                .await;
        };
        tracing::info!(table = resource.table, "there is no such list: taken from {}", other.table);
        let (records, complete) = {
            let conn = self.run.store.connection()?;
            let state = State::new(&conn);
            let complete = match &other.group {
                Group::ForEach(for_each) => {
                    state.scopes().why_each_is_stale(&other, for_each)?.is_empty()
                }
                _ => state.scopes().why_list_is_stale(&other.table)?.is_none(),
            };
            (state.scopes().records_of(resource, fallback)?, complete)
        };
        let load =
            self.run.extractor.made_of(resource, records, complete, Timestamp::now()).await?;
        self.unreached.reached();
        self.take_load(0, load).await
    }

    /// The scopes of a table per row of another: all, or those that are stale.
    fn each_ids(&self, resource: &Resource, for_each: &ForEach, all: bool) -> Result<Vec<i64>> {
        let conn = self.run.store.connection()?;
        let state = State::new(&conn);
        if all {
            state.scopes().each_ids(resource, for_each)
        } else {
            state.scopes().stale_each_ids(resource, for_each)
        }
    }

    /// Takes what names the scopes of a table: they are stale until they are read themselves.
    pub(super) async fn take_names(
        &mut self,
        resource: &Arc<Resource>,
        load: Result<Load>,
    ) -> Result<()> {
        let load = match load {
            Ok(load) => load,
            Err(error) => return self.list_failed(resource, error).await,
        };
        self.unreached.reached();
        let whole = load.scopes.iter().any(|scope| scope.id == 0 && scope.complete);
        if !whole || load.decoded.any_without_key() {
            let why = "the list was not complete";
            self.note_failure(&resource.table, 0, FailureKind::Incomplete, why).await?;
        }
        self.run.writer.load(load).await
    }
}
