//! Tables that are read as whole lists, or per row of another table, by schedule.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::fetch::Fetcher;
use super::queue::Queue;
use super::signals::Interrupt;
use crate::catalog::{ForEach, Group, Resource};
use crate::error::Result;
use crate::mirror::State;
use crate::scope::{AnswerDigest, Urgency, Work};

/// The lists of `schedule.reference`.
pub(super) struct Lists<'c, 'r> {
    pub(super) fetcher: &'c mut Fetcher<'r>,
    /// All are read, not only what of them is stale.
    pub(super) is_due: bool,
}

impl Lists<'_, '_> {
    /// Reads them: all when they are due, else what of them is stale because it failed, is new, is newly
    /// permitted or was asked for. `false` when the process ends before all are read.
    pub(crate) async fn read(&mut self) -> Result<bool> {
        let run = self.fetcher.run;
        let hinted = self.hints()?.into_values().max();
        let mut by_depth: BTreeMap<usize, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in self.fetcher.answers.tables.active().iter().filter(|r| r.schedule.is_some())
        {
            if run.options.wants(&resource.table) {
                // What is read per row of another table, or may be taken from one, comes after it.
                let depth = run.catalog.depth(resource);
                by_depth.entry(depth).or_default().push(Arc::clone(resource));
            }
        }
        for lists in by_depth.into_values() {
            self.fetcher.follow_changes().await?;
            let whole = self.whole_lists(&lists)?;
            self.fetch_due(whole).await?;
            let rows = self.rows_of_lists(&lists)?;
            self.fetch_due(rows).await?;
            if run.signals.interrupt() == Interrupt::Cancel {
                return Ok(false);
            }
        }
        if let Some(last) = hinted.filter(|_| run.options.only.is_empty()) {
            // What is left names no row of any list.
            run.write(move |conn| State::new(conn).hints().forget_unlisted(last)).await?;
        }
        Ok(true)
    }

    async fn fetch_due(&mut self, work: Vec<Work>) -> Result<()> {
        if work.is_empty() {
            return Ok(());
        }
        self.fetcher.fetch(Queue::of(Urgency::Due, work)).await.map(drop)
    }

    /// Of these lists what is read by one call each: whole lists, and the lists that name scopes.
    fn whole_lists(&self, lists: &[Arc<Resource>]) -> Result<Vec<Work>> {
        let hints = self.hints()?;
        let mut work = Vec::new();
        for resource in lists {
            let table = resource.table.clone();
            match &resource.group {
                Group::List if self.is_due || self.is_stale(&table)? => {
                    let mirrored = self.mirrored_answers(&table)?.get(&0).copied();
                    let hint = hints.get(&(table.clone(), 0)).copied();
                    work.push(Work::List { table, mirrored, hint });
                }
                Group::ForEach(for_each)
                    if for_each.list.is_some()
                        && self.each_ids(resource, for_each)?.contains(&0) =>
                {
                    work.push(Work::Names { table });
                }
                _ => {}
            }
        }
        Ok(work)
    }

    /// What of these lists is read per row of another table, or per id that a list has named.
    fn rows_of_lists(&self, lists: &[Arc<Resource>]) -> Result<Vec<Work>> {
        let hints = self.hints()?;
        let mut work = Vec::new();
        for resource in
            lists.iter().filter(|resource| self.fetcher.answers.tables.is_active(&resource.table))
        {
            let Group::ForEach(for_each) = &resource.group else { continue };
            let ids = self.each_ids(resource, for_each)?;
            // Scope 0 is the list that names the others.
            let ids = ids.into_iter().filter(|id| for_each.list.is_none() || *id != 0);
            let answers = self.mirrored_answers(&resource.table)?;
            work.extend(ids.map(|id| {
                let (table, mirrored) = (resource.table.clone(), answers.get(&id).copied());
                let hint = hints.get(&(table.clone(), id)).copied();
                Work::Row { table, id, mirrored, hint }
            }));
        }
        Ok(work)
    }

    fn is_stale(&self, table: &str) -> Result<bool> {
        State::new(&self.fetcher.run.store.connection()?).scopes().list_is_stale(table)
    }

    /// What webhooks have named of lists and their rows.
    fn hints(&self) -> Result<HashMap<(String, i64), i64>> {
        State::new(&self.fetcher.run.store.connection()?).hints().of_lists()
    }

    fn mirrored_answers(&self, table: &str) -> Result<HashMap<i64, AnswerDigest>> {
        State::new(&self.fetcher.run.store.connection()?).scopes().mirrored_answers(table)
    }

    /// The scopes of a table per row of another: all, or those that are stale.
    fn each_ids(&self, resource: &Resource, for_each: &ForEach) -> Result<Vec<i64>> {
        let conn = self.fetcher.run.store.connection()?;
        let state = State::new(&conn);
        if self.is_due {
            state.scopes().each_ids(resource, for_each)
        } else {
            state.scopes().stale_each_ids(resource, for_each)
        }
    }
}
