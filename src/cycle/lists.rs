//! Tables that are read as whole lists, or per row of another table, by schedule.

use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;

use super::Cycle;
use super::fetch::SCOPES_PER_CALL;
use super::signals::Halt;
use crate::catalog::{Each, Group, Instead, Resource};
use crate::decode::Load;
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::scope::{FailureKind, Stamp};

impl Cycle {
    /// Reads the lists of `schedule.reference`: all when it is due, else what of them is stale
    /// because it failed, is new, is newly permitted or was asked for. `false` when the process ends
    /// before all are read.
    pub(super) async fn read_lists(&mut self, due: bool) -> Result<bool> {
        let mut lists: Vec<Arc<Resource>> = self
            .active
            .iter()
            .filter(|r| r.schedule.is_some() && self.options.wants(&r.table))
            .cloned()
            .collect();
        // What is read per row of another table, or may be taken from one, comes after it.
        lists.sort_by_key(|resource| self.catalog.depth(resource));
        for resource in lists {
            self.fresh_first().await?;
            if self.signals.halt() == Halt::Stop {
                self.flush().await?;
                return Ok(false);
            }
            match &resource.group {
                Group::List => {
                    if due || self.list_is_stale(&resource)? {
                        self.progress.step(&format!("reading {}", resource.table));
                        self.read_list(&resource).await?;
                    }
                }
                Group::Each(each) => self.read_each(&resource, each, due).await?,
                Group::Case | Group::Ids | Group::Child(_) | Group::Journal(_) => {}
            }
        }
        self.flush().await?;
        Ok(true)
    }

    fn list_is_stale(&self, resource: &Resource) -> Result<bool> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        // Who lifts the guard does not wait for what it held.
        let held = self.options.allow_removals && state.list_is_held(&resource.table)?;
        Ok(held || state.list_is_stale(&resource.table)?)
    }

    /// Reads a whole list.
    pub(super) async fn read_list(&mut self, resource: &Arc<Resource>) -> Result<()> {
        let stamp = Stamp::Known(String::new());
        match self.extractor.scope(resource, 0, None, stamp).await {
            Ok(load) => self.take_list(0, load).await,
            Err(error) => match (error.kind(), &resource.instead) {
                (Kind::NotFound | Kind::NotAllowed, Some(instead)) => {
                    self.take_instead(resource, instead, &error).await
                }
                _ => {
                    let stamp = Stamp::Known(String::new());
                    self.take_error(resource, 0, true, stamp, error).await.map(drop)
                }
            },
        }
    }

    /// The service has no such list: rows of another table stand for it. What that table does not
    /// know for certain removes nothing.
    async fn take_instead(
        &mut self,
        resource: &Arc<Resource>,
        instead: &Instead,
        error: &Error,
    ) -> Result<()> {
        self.flush().await?;
        let Some(other) = self.active.iter().find(|r| r.table == instead.table).cloned() else {
            return self.set_aside(&resource.table, "absent", &error.chain()).await;
        };
        tracing::info!(table = resource.table, "there is no such list: taken from {}", other.table);
        let (records, complete) = {
            let conn = self.store.connection()?;
            let state = State::new(&conn);
            let complete = match &other.group {
                Group::Each(each) => state.why_each_is_stale(&other, each)?.is_empty(),
                _ => state.why_list_is_stale(&other.table)?.is_none(),
            };
            (state.records_of(resource, instead)?, complete)
        };
        let load = self.extractor.made_of(resource, records, complete, Timestamp::now()).await?;
        self.take_list(0, load).await
    }

    /// Reads a table per row of another: all of it, or what of it is stale.
    async fn read_each(&mut self, resource: &Arc<Resource>, each: &Each, due: bool) -> Result<()> {
        let mut ids = self.each_ids(resource, each, due).await?;
        if let Some(list) = &each.list {
            if ids.contains(&0) {
                match self.extractor.named(resource, each, list).await {
                    Ok(load) => self.take_named(resource, load).await?,
                    Err(error) => {
                        let stamp = Stamp::Known(String::new());
                        self.take_error(resource, 0, true, stamp, error).await?;
                        if !self.is_active(&resource.table) {
                            return Ok(());
                        }
                    }
                }
                ids = self.each_ids(resource, each, due).await?;
            }
            ids.retain(|id| *id != 0);
        }
        if ids.is_empty() {
            return Ok(());
        }
        self.progress.step(&format!("reading {}", resource.table));
        self.progress.more(ids.len() as u64);
        let width = self.config.limits.concurrency * SCOPES_PER_CALL;
        let mut queue = ids.into_iter();
        let mut under_way = futures::stream::FuturesUnordered::new();
        loop {
            while under_way.len() < width && self.is_active(&resource.table) {
                let Some(id) = queue.next() else { break };
                let (extractor, resource) = (self.extractor.clone(), Arc::clone(resource));
                under_way.push(async move {
                    let stamp = Stamp::Known(String::new());
                    (id, extractor.scope(&resource, id, None, stamp).await)
                });
            }
            let Some((id, load)) = under_way.next().await else { return Ok(()) };
            self.progress.done(1);
            match load {
                Ok(load) => self.take_list(id, load).await?,
                Err(error) => {
                    let stamp = Stamp::Known(String::new());
                    self.take_error(resource, id, false, stamp, error).await?;
                }
            }
        }
    }

    /// The scopes of a table per row of another: all, or those that are stale.
    async fn each_ids(&mut self, resource: &Resource, each: &Each, all: bool) -> Result<Vec<i64>> {
        self.flush().await?;
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        if all { state.each_ids(resource, each) } else { state.stale_each_ids(resource, each) }
    }

    /// Takes what names the scopes: they are stale until they are read themselves.
    async fn take_named(&mut self, resource: &Resource, load: Load) -> Result<()> {
        self.reached();
        let whole = load.scopes.iter().any(|scope| scope.id == 0 && scope.complete);
        if !whole || load.decoded.any_keyless() {
            let why = "the list was not complete";
            self.note_failure(&resource.table, 0, FailureKind::Incomplete, why, None).await?;
        }
        self.writer.load(load).await
    }

    async fn take_list(&mut self, id: i64, load: Load) -> Result<()> {
        self.reached();
        self.take_load(id, load).await
    }
}
