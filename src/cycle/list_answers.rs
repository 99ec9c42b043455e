//! What came of the call for a whole list.

use std::sync::Arc;

use jiff::Timestamp;

use super::answers::Answers;
use super::scope_answers::AskedFor;
use crate::catalog::{Fallback, Group, Resource};
use crate::decode::Load;
use crate::error::{Error, Result};
use crate::mirror::State;
use crate::scope::{FailureKind, TableStatus, Version};

/// What came of the call for a whole list.
pub(super) struct ListAnswer<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
    pub(super) resource: &'a Arc<Resource>,
    /// The last hint of the list that was known before the call was sent.
    pub(super) hint: Option<i64>,
}

impl ListAnswer<'_, '_> {
    /// The same, where a webhook named the list before the call was sent.
    pub(crate) fn hinted(self, hint: Option<i64>) -> Self {
        ListAnswer { hint, ..self }
    }

    /// Takes the answer of a whole list.
    pub(crate) async fn take(&mut self, load: Result<Load>) -> Result<()> {
        match load {
            Ok(load) => {
                self.answers.reached();
                self.answers.scope(self.resource, 0).hinted(self.hint).load(load).await
            }
            Err(error) => match &self.resource.fallback {
                // A list that was there before is no reason to give up what it said.
                Some(fallback)
                    if error.kind().is_no_such_call()
                        && !self.answers.has_answered(&self.resource.table)? =>
                {
                    self.take_fallback(fallback, &error).await
                }
                _ => self.failed(error).await,
            },
        }
    }

    /// Takes what names the scopes of a table: they are stale until they are read themselves.
    pub(crate) async fn take_names(&mut self, load: Result<Load>) -> Result<()> {
        let load = match load {
            Ok(load) => load,
            Err(error) => return self.failed(error).await,
        };
        self.answers.reached();
        let whole = load.scopes.iter().any(|scope| scope.id == 0 && scope.complete);
        if !whole || load.decoded.any_without_key() {
            let why = "the list was not complete";
            let kind = FailureKind::Incomplete;
            self.answers.note_failure(&self.resource.table, 0, kind, why).await?;
        }
        self.answers.run.writer.load(load).await
    }

    async fn failed(&mut self, error: Error) -> Result<()> {
        let version = Version::Known(String::new());
        let scope = self.answers.scope(self.resource, 0);
        scope.hinted(self.hint).failed(AskedFor::WholeTable, version, error).await.map(drop)
    }

    /// The service has no such list: rows of another table stand for it. What that table does not
    /// know for certain removes nothing.
    async fn take_fallback(&mut self, fallback: &Fallback, error: &Error) -> Result<()> {
        let (run, resource) = (self.answers.run, self.resource);
        self.answers.flush().await?;
        let tables = &mut self.answers.tables;
        let Some(other) = tables.get(&fallback.table).cloned() else {
            return tables.set_aside(&resource.table, TableStatus::Absent, &error.chain()).await;
        };
        tracing::info!(table = resource.table, "there is no such list: taken from {}", other.table);
        let (records, complete) = {
            let conn = run.store.connection()?;
            let state = State::new(&conn);
            let complete = match &other.group {
                Group::ForEach(for_each) => {
                    state.scopes().why_each_is_stale(&other, for_each)?.is_empty()
                }
                _ => state.scopes().why_list_is_stale(&other.table)?.is_none(),
            };
            (state.scopes().records_of(resource, fallback)?, complete)
        };
        let load = run.extractor.made_of(resource, records, complete, Timestamp::now()).await?;
        self.answers.reached();
        self.answers.scope(self.resource, 0).hinted(self.hint).load(load).await
    }
}
