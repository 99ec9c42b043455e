//! Errors of calls: the evidence that is gathered for them, and what is done about them.

use std::sync::Arc;

use jiff::Timestamp;

use super::Cycle;
use super::policy::{self, Evidence, Verdict};
use crate::catalog::{Group, Resource};
use crate::error::{Error, Kind, Result};
use crate::mirror::{Failure, State, digest_of_404};
use crate::scope::{FailureKind, ScopeId, TableStatus, Version};

/// Kept with a scope that answered 404.
const GONE: &str = "the source has nothing there any more; a second 404, source.doubt after the first, \
                    removes the rows";

impl Cycle<'_> {
    /// What an error means for one scope of a table: notes it, and does what has to be done. `whole`
    /// for the call that reads the whole table.
    ///
    /// # Errors
    /// What ends the run.
    pub(super) async fn take_error(
        &mut self,
        resource: &Arc<Resource>,
        id: i64,
        whole: bool,
        version: Version,
        error: Error,
    ) -> Result<Verdict> {
        if !self.tables.is_active(&resource.table) {
            // It was set aside while this call was under way.
            return Ok(Verdict::ScopeFailed);
        }
        let error = self.unreached.note(self.run.client(), &resource.table, error).await?;
        let table = resource.table.as_str();
        // A listing is no scope: that it is not complete is told by itself.
        let is_scope = id != 0 || resource.group != Group::Ids;
        let counts = error.kind() == Kind::Forbidden && is_scope;
        if counts {
            // It counts among those that speak for the table.
            self.note_failure(table, id, FailureKind::of(Kind::Forbidden), &error.chain()).await?;
        }
        let evidence = self.evidence(resource, id, whole, &error).await?;
        let verdict = policy::decide(error.kind(), &evidence);
        match verdict {
            Verdict::EndRun => return Err(error),
            Verdict::TableForbidden => {
                self.run
                    .writer
                    .run({
                        let table = table.to_owned();
                        move |conn| State::new(conn).failures().forget_forbidden(&table)
                    })
                    .await?;
                self.tables.set_aside(table, TableStatus::Forbidden, &error.chain()).await?;
            }
            Verdict::TableAbsent => {
                self.tables.set_aside(table, TableStatus::Absent, &error.chain()).await?
            }
            Verdict::Nothing => {
                let nothing = self.run.extractor.nothing(resource, id, version)?;
                self.run.writer.load(nothing).await?;
                if self.is_absent(resource).await? {
                    let why = format!(
                        "{} scopes that exist answered 404, and none else",
                        policy::MANY_SCOPES
                    );
                    self.tables.set_aside(table, TableStatus::Absent, &why).await?;
                }
            }
            Verdict::Doubted => {
                self.note_gone(table, id, &[], GONE).await?;
            }
            Verdict::ScopeFailed => {
                self.scope_failed(table, id, is_scope && !counts, &error).await?
            }
        }
        Ok(verdict)
    }

    /// What an error means for one scope, where it is asked at an address that says nothing about the
    /// table: a failure of that scope, whatever the source says.
    ///
    /// # Errors
    /// What ends the run.
    pub(super) async fn take_scope_error(
        &mut self,
        resource: &Resource,
        id: i64,
        error: Error,
    ) -> Result<()> {
        let error = self.unreached.note(self.run.client(), &resource.table, error).await?;
        if policy::ends_run(error.kind()) {
            return Err(error);
        }
        self.scope_failed(&resource.table, id, true, &error).await
    }

    /// A scope is asked again with backoff; `is_scope`: it is one that the store keeps failures of.
    async fn scope_failed(
        &mut self,
        table: &str,
        id: i64,
        is_scope: bool,
        error: &Error,
    ) -> Result<()> {
        let text = error.chain();
        tracing::warn!(table, id, reason = text, "a scope failed");
        self.findings.failed(table, 1, &text);
        if is_scope {
            self.note_failure(table, id, FailureKind::of(error.kind()), &text).await?;
        }
        Ok(())
    }

    async fn evidence(
        &mut self,
        resource: &Arc<Resource>,
        id: i64,
        whole: bool,
        error: &Error,
    ) -> Result<Evidence> {
        let mut evidence = Evidence { is_whole_table: whole, ..Evidence::default() };
        match error.kind() {
            Kind::Forbidden => {
                evidence.lacks_permission = self.permissions.lacks(resource, error).await;
                // Asked of the writer, so that what was answered so far is counted.
                let resource = Arc::clone(resource);
                (evidence.forbidden, evidence.scopes) = self
                    .run
                    .writer
                    .run(move |conn| {
                        let state = State::new(conn);
                        Ok((
                            state.failures().forbidden_scopes(&resource.table)?,
                            state.scopes().scopes(&resource)?,
                        ))
                    })
                    .await?;
            }
            Kind::NotFound => {
                let before = self.run.doubted_before();
                evidence.has_answered = self.has_answered(&resource.table)?;
                // Asked of the writer, so that what was answered so far is counted.
                let resource = Arc::clone(resource);
                (evidence.has_rows, evidence.is_confirmed) = self
                    .run
                    .writer
                    .run(move |conn| {
                        let state = State::new(conn);
                        let has_rows = state.scopes().rows_of_scope(&resource, id)? > 0;
                        Ok((
                            has_rows,
                            state.failures().is_gone_since(&resource.table, id, None, before)?,
                        ))
                    })
                    .await?;
            }
            _ => {}
        }
        Ok(evidence)
    }

    /// Whether a table has ever answered with data.
    pub(super) fn has_answered(&self, table: &str) -> Result<bool> {
        let conn = self.run.store.connection()?;
        Ok(self.findings.has_answered(table) || State::new(&conn).scopes().has_answered(table)?)
    }

    /// Whether so many scopes that exist answered 404, and none else, that the table is absent.
    async fn is_absent(&self, resource: &Arc<Resource>) -> Result<bool> {
        let resource = Arc::clone(resource);
        // Asked of the writer, so that the answers handed over so far are counted.
        self.run
            .writer
            .run(move |conn| {
                let count = crate::mirror::RunLog::new(conn).scopes_not_found(&resource)?;
                Ok(u64::try_from(count).is_ok_and(|count| count >= policy::MANY_SCOPES))
            })
            .await
    }

    /// Notes a failed scope, to be tried again with backoff; within this run only where it waits for the
    /// search.
    pub(super) async fn note_failure(
        &mut self,
        table: &str,
        id: i64,
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        self.planned.failed(table, id, kind);
        let scope = ScopeId { table: table.to_owned(), id, part: String::new() };
        self.run.note_failure(scope, kind, why).await
    }

    /// Notes that a scope answered 404, or its calls for these values did, where rows are mirrored: it is
    /// asked again after `source.doubt`, and an equal answer is believed then.
    pub(super) async fn note_gone(
        &mut self,
        table: &str,
        id: i64,
        values: &[String],
        why: &str,
    ) -> Result<()> {
        self.planned.failed(table, id, FailureKind::NotFound);
        let scope = ScopeId { table: table.to_owned(), id, part: String::new() };
        let (digest, doubt) = (digest_of_404(values), self.run.config.source.doubt);
        let (run_id, why) = (self.run.id, why.to_owned());
        self.run
            .writer
            .run(move |conn| {
                let failure = Failure {
                    kind: FailureKind::NotFound,
                    error: &why,
                    digest: Some(&digest),
                    not_before: Some(doubt),
                };
                State::new(conn).failures().fail(run_id, Timestamp::now(), &scope, &failure)
            })
            .await
            .map(drop)
    }
}
