//! What all parts of a cycle work with, and what they ask of it alike.

use std::sync::Arc;

use duckdb::Connection;
use jiff::Timestamp;

use super::{MonthsUnderWay, Options, Polls, Signals};
use crate::catalog::{Catalog, Group, Resource};
use crate::config::Config;
use crate::decode::Context;
use crate::error::Result;
use crate::extract::Extractor;
use crate::mirror::{Asked, Failure, Loader, State, Store, guarded};
use crate::progress::Progress;
use crate::scope::{FailureKind, JournalScope, ScopeId};
use crate::source::Client;

/// What a cycle joins.
pub struct Parts {
    pub config: Arc<Config>,
    pub catalog: Arc<Catalog>,
    pub store: Arc<Store>,
    /// The loader of run `run_id`.
    pub writer: Loader,
    pub polls: Polls,
    pub context: Context,
    pub progress: Progress,
    pub run_id: i64,
    pub signals: Signals,
    /// Months whose reading gave way to others.
    pub months: MonthsUnderWay,
}

/// What all parts of a cycle work with; none of it changes while the cycle runs.
pub struct Run {
    pub(super) id: i64,
    pub(super) options: Options,
    pub(super) config: Arc<Config>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) store: Arc<Store>,
    pub(super) writer: Loader,
    pub(super) polls: Polls,
    pub(super) extractor: Extractor,
    pub(super) progress: Progress,
    pub(super) signals: Signals,
    /// Months whose reading gave way to others.
    pub(super) months: MonthsUnderWay,
}

/// An answer that came by then confirms one that comes now.
pub(super) fn doubted_before(config: &Config) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(config.source.doubt).unwrap_or(now)
}

impl Run {
    /// Whether `reconcile.max_removed` holds so many of so many cases, and nobody has lifted it for this run.
    pub(super) fn holds(&self, leaving: u64, of: u64) -> bool {
        !self.options.allow_removals && guarded(leaving, of, self.config.reconcile.max_removed)
    }

    /// Nothing is called yet.
    pub fn new(parts: Parts, options: Options) -> Run {
        let client = parts.polls.client.clone();
        let extractor =
            Extractor::new(client, Arc::clone(&parts.catalog), parts.context, &parts.config);
        Run {
            id: parts.run_id,
            options,
            config: parts.config,
            catalog: parts.catalog,
            store: parts.store,
            writer: parts.writer,
            polls: parts.polls,
            extractor,
            progress: parts.progress,
            signals: parts.signals,
            months: parts.months,
        }
    }

    /// For calls that are no scope.
    pub(super) fn client(&self) -> &Client {
        self.extractor.client()
    }

    /// Runs `write` in a transaction of its own, after what was handed over before is committed.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.run(write).await
    }

    /// The number of the last poll: what an answer may be fetched at.
    pub(super) fn sequence(&self) -> Result<i64> {
        State::new(&self.store.connection()?).sequence()
    }

    /// What is known before a search is sent, for the cases that it will lack.
    pub(super) fn asked(&self) -> Result<Asked> {
        Ok(Asked { sequence: self.sequence()?, sent_at: Timestamp::now() })
    }

    /// An answer that came by then confirms one that comes now.
    pub(super) fn doubted_before(&self) -> Timestamp {
        doubted_before(&self.config)
    }

    /// Whether the mirror knows whose journal this is.
    pub(super) fn knows(&self, scope: JournalScope) -> Result<bool> {
        let journals: Vec<&Resource> = self
            .catalog
            .resources()
            .iter()
            .filter(|r| matches!(r.group, Group::Journal(_)))
            .map(Arc::as_ref)
            .collect();
        let conn = self.store.connection()?;
        State::new(&conn).wanted_months().knows_journals_of(&journals, scope.level, scope.id)
    }

    /// Notes a failed scope, to be tried again with backoff.
    pub(super) async fn note_failure(
        &self,
        scope: ScopeId,
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        self.note_failures(vec![scope], kind, why).await
    }

    /// The same for several that failed at one instant.
    pub(super) async fn note_failures(
        &self,
        scopes: Vec<ScopeId>,
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        let (run_id, why) = (self.id, why.to_owned());
        self.write(move |conn| {
            let (failure, now) = (Failure::new(kind, &why), Timestamp::now());
            let failures = State::new(conn).failures();
            scopes
                .iter()
                .try_for_each(|scope| failures.fail(run_id, now, scope, &failure).map(drop))
        })
        .await
    }
}
