//! What the answers of a run have come to so far. What each of them means is in the files of scopes,
//! lists and months.

use std::sync::Arc;

use jiff::Timestamp;

use super::case_plans::CasePlans;
use super::contacts::Contacts;
use super::findings::Findings;
use super::list_answers::ListAnswer;
use super::permissions::Permissions;
use super::planned::Planned;
use super::scope_answers::ScopeAnswer;
use super::search::Search;
use super::suspects::Suspects;
use super::tables::Tables;
use super::{Report, Run, Unreached};
use crate::catalog::Resource;
use crate::error::{Error, Result};
use crate::mirror::{RunLog, State};
use crate::scope::{FailureKind, ScopeId};

/// What a run has come to know by the answers.
pub(super) struct Answers<'r> {
    pub(crate) run: &'r Run,
    pub(crate) report: Report,
    pub(crate) tables: Tables<'r>,
    pub(crate) permissions: Permissions<'r>,
    pub(crate) findings: Findings,
    pub(crate) planned: Planned,
    pub(crate) unreached: Unreached,
    /// As [`State::suspects`] says of what the guard holds, unless that is lifted: each answer without a record asks for it.
    pub(crate) holds_cases: bool,
    /// Of no case the roles were ever read, and those of cases that are there answer 404 too.
    pub(crate) roles_are_missing: bool,
}

impl<'r> Answers<'r> {
    /// Nothing is called yet.
    pub(crate) fn none(run: &'r Run) -> Answers<'r> {
        let handled = run.options.handled.unwrap_or_else(|| run.signals.latest());
        Answers {
            run,
            report: Report { run_id: run.id, ..Report::default() },
            tables: Tables::none(run),
            permissions: Permissions::new(run),
            findings: Findings::default(),
            planned: Planned::new(handled),
            unreached: Unreached::default(),
            holds_cases: false,
            roles_are_missing: false,
        }
    }

    /// What the calls for one scope of a table come to.
    pub(crate) fn scope<'a>(
        &'a mut self,
        resource: &'a Arc<Resource>,
        id: i64,
    ) -> ScopeAnswer<'a, 'r> {
        ScopeAnswer { answers: self, resource, id, beside: &[], hint: None }
    }

    /// What the call for a whole list comes to.
    pub(crate) fn list<'a>(&'a mut self, resource: &'a Arc<Resource>) -> ListAnswer<'a, 'r> {
        ListAnswer { answers: self, resource, hint: None }
    }

    /// What of cases is to be read.
    pub(crate) fn plans(&self) -> CasePlans<'_, 'r> {
        CasePlans { answers: self }
    }

    /// The searches, asked by ids.
    pub(crate) fn search(&mut self) -> Search<'_, 'r> {
        Search { answers: self }
    }

    /// Cases that no search shows.
    pub(crate) fn suspects(&mut self) -> Suspects<'_, 'r> {
        Suspects { answers: self }
    }

    /// The contacts that are stale.
    pub(crate) fn contacts(&mut self) -> Contacts<'_, 'r> {
        Contacts { answers: self }
    }

    /// A call was answered: the source is there.
    pub(crate) fn reached(&mut self) {
        self.unreached.reached();
    }

    /// As [`Unreached::note`].
    pub(crate) async fn note_reachability(
        &mut self,
        endpoint: &str,
        error: Error,
    ) -> Result<Error> {
        self.unreached.note(self.run.client(), endpoint, error).await
    }

    /// Commits what was loaded and adds it to the report.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let outcome = self.run.writer.flush().await?;
        self.planned.held(&outcome.held);
        self.report.outcome.add(&outcome);
        let calls = self.run.client().take_calls();
        self.report.calls += calls.iter().map(|c| c.calls).sum::<u64>();
        let run_id = self.run.id;
        self.run.write(move |conn| RunLog::new(conn).add_calls(run_id, &calls)).await
    }

    /// Whether a table has ever answered with data.
    pub(crate) fn has_answered(&self, table: &str) -> Result<bool> {
        let conn = self.run.store.connection()?;
        Ok(self.findings.has_answered(table) || State::new(&conn).scopes().has_answered(table)?)
    }

    /// Notes a failed scope, to be tried again with backoff; within this run only where it waits for the
    /// search.
    pub(crate) async fn note_failure(
        &mut self,
        table: &str,
        id: i64,
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        self.note_failures(table, &[id], kind, why).await
    }

    /// The same for the scopes that one call asked for: they failed at one instant.
    pub(crate) async fn note_failures(
        &mut self,
        table: &str,
        ids: &[i64],
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        ids.iter().for_each(|id| self.planned.failed(table, *id, kind));
        let of = |id: &i64| ScopeId { table: table.to_owned(), id: *id, part: String::new() };
        self.run.note_failures(ids.iter().map(of).collect(), kind, why).await
    }

    /// Notes that a scope answered 404, or its calls for these values did, where rows are mirrored: it is
    /// asked again after `source.doubt`, and an equal answer is believed then.
    pub(crate) async fn note_gone(
        &mut self,
        table: &str,
        id: i64,
        values: &[String],
        why: &str,
    ) -> Result<()> {
        self.planned.failed(table, id, FailureKind::NotFound);
        let scope = ScopeId { table: table.to_owned(), id, part: String::new() };
        let (run_id, doubt) = (self.run.id, self.run.config.source.doubt);
        let (values, why) = (values.to_vec(), why.to_owned());
        self.run
            .write(move |conn| {
                let failures = State::new(conn).failures();
                failures.fail_gone(run_id, Timestamp::now(), &scope, (&values, &why), doubt)
            })
            .await
            .map(drop)
    }
}
