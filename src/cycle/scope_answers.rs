//! What came of the calls for one scope: its answer is loaded; for an error evidence is gathered, and
//! what the policy says is done.

use std::sync::Arc;

use duckdb::Connection;
use jiff::Timestamp;

use super::answers::Answers;
use super::policy::{self, Evidence, Verdict};
use super::suspects;
use crate::catalog::{Group, Resource};
use crate::decode::{Load, LoadKind};
use crate::error::{Error, Kind, Result};
use crate::mirror::{Lack, State};
use crate::scope::{FailureKind, TableStatus, Version};

/// Kept with a scope that answered 404.
const GONE: &str = "the source has nothing there any more; a second 404, source.doubt after the first, \
                    removes the rows";

/// What came of the calls for one scope of a table.
pub(super) struct ScopeAnswer<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) id: i64,
    /// Other scopes that the same call asked for.
    pub(super) beside: &'a [i64],
    /// The last hint of the scope that was known before the call was sent.
    pub(super) hint: Option<i64>,
}

/// What a call that failed had asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedFor {
    Scopes,
    /// All that a table has.
    WholeTable,
    /// A part of all that a search shows.
    Listing,
}

impl<'a> ScopeAnswer<'a, '_> {
    /// The same, where a webhook named the scope before the call was sent.
    pub(crate) fn hinted(self, hint: Option<i64>) -> Self {
        ScopeAnswer { hint, ..self }
    }

    /// The same of a call that asked for these too.
    pub(crate) fn beside(self, beside: &'a [i64]) -> Self {
        ScopeAnswer { beside, ..self }
    }

    /// Takes what was read of the scope at this version, or why it was not.
    ///
    /// # Errors
    /// What ends the run.
    pub(crate) async fn take(&mut self, load: Result<Load>, version: Version) -> Result<()> {
        match load {
            Ok(load) => {
                self.answers.reached();
                self.load(load).await
            }
            Err(error) => self.failed(AskedFor::Scopes, version, error).await.map(drop),
        }
    }

    /// Takes what was read of one scope.
    pub(crate) async fn load(&mut self, mut load: Load) -> Result<()> {
        let (run, resource, id) = (self.answers.run, self.resource, self.id);
        load.answers(self.hint);
        self.answers.findings.answered(&resource.table);
        self.answers.permissions.look_at_part(resource, id, &load).await?;
        let half_missing = self.half_is_missing(&mut load).await?;
        let is_held = self.would_take_what_is_held(&mut load).await?;
        let incomplete = if load.decoded.any_without_key() {
            Some("a record has no usable key: nothing is deleted")
        } else if half_missing {
            let why = "one of its calls answered 404; a second one, source.doubt after the first, \
                       removes the rows";
            self.answers.note_gone(&resource.table, id, &load.missing, why).await?;
            None
        } else if is_held {
            Some("reconcile.max_removed may hold the case, and it is not there: nothing is deleted")
        } else if load.scopes.iter().any(|s| !s.complete) {
            Some("the answer was not complete: nothing is deleted")
        } else {
            None
        };
        if let Some(why) = incomplete {
            self.answers.note_failure(&resource.table, id, FailureKind::Incomplete, why).await?;
        }
        run.writer.load(load).await
    }

    /// Whether one of a scope's calls answered 404 where that is not known to mean "none": then the
    /// answer is not complete.
    async fn half_is_missing(&mut self, load: &mut Load) -> Result<bool> {
        if load.missing.is_empty() {
            return Ok(false);
        }
        let run = self.answers.run;
        let (resource, id) = (Arc::clone(self.resource), self.id);
        let missing = load.missing.clone();
        let before = run.doubted_before();
        // Asked of the writer, so that what was answered so far is counted.
        let lacks: Vec<Lack> = run
            .write(move |conn| {
                let scopes = State::new(conn).scopes();
                missing.iter().map(|value| scopes.lack(&resource, id, value, before)).collect()
            })
            .await?;
        let is_believed = !lacks.contains(&Lack::Doubted)
            && (!lacks.contains(&Lack::Confirmed) || self.is_believed_of_case().await?);
        if !is_believed {
            load.scopes.iter_mut().for_each(|scope| scope.complete = false);
        }
        Ok(!is_believed)
    }

    /// Whether an answer without any record would take rows of a case that the guard may hold: then it counts as not
    /// complete.
    async fn would_take_what_is_held(&mut self, load: &mut Load) -> Result<bool> {
        let is_empty = load.kind == LoadKind::Scopes
            && load.records == 0
            && load.scopes.iter().all(|scope| scope.complete);
        // Roles that are answered say that the case is there.
        let is_of_roles = self.resource.table == suspects::ROLES;
        if !is_empty || is_of_roles || !self.answers.holds_cases {
            return Ok(false);
        }
        let has_rows = {
            let conn = self.answers.run.store.connection()?;
            State::new(&conn).scopes().rows_of_scope(self.resource, self.id)? > 0
        };
        if !has_rows || self.is_believed_of_case().await? {
            return Ok(false);
        }
        load.scopes.iter_mut().for_each(|scope| scope.complete = false);
        Ok(true)
    }

    /// Whether what an answer says is gone of a case is believed of it alone. While the guard holds cases, of which this
    /// may be one, what hangs on it leaves with the case or not at all: so the case is asked for.
    async fn is_believed_of_case(&mut self) -> Result<bool> {
        if self.resource.group != Group::Case || !self.answers.holds_cases {
            return Ok(true);
        }
        // Their 404 has just said that the case is not there.
        let is_of_roles = self.resource.table == suspects::ROLES;
        Ok(!is_of_roles && self.answers.suspects().is_there(self.id).await?)
    }

    /// What an error means for one scope of a table, and those beside it: notes it, and does what has to be done.
    ///
    /// # Errors
    /// What ends the run.
    pub(crate) async fn failed(
        &mut self,
        asked_for: AskedFor,
        version: Version,
        error: Error,
    ) -> Result<Verdict> {
        let (run, resource, id) = (self.answers.run, self.resource, self.id);
        if !self.answers.tables.is_active(&resource.table) {
            // It was set aside while this call was under way.
            return Ok(Verdict::ScopeFailed);
        }
        let error = self.answers.note_reachability(&resource.table, error).await?;
        let table = resource.table.as_str();
        // A listing is no scope: that it is not complete is told by itself.
        let is_scope = asked_for != AskedFor::Listing;
        let counts = error.kind() == Kind::Forbidden && is_scope;
        if counts {
            // It counts among those that speak for the table.
            self.note(&error).await?;
        } else if error.kind() == Kind::Forbidden {
            let (run_id, table, why) = (run.id, table.to_owned(), error.chain());
            let refused = move |conn: &Connection| {
                State::new(conn).failures().listing_refused(run_id, Timestamp::now(), &table, &why)
            };
            run.write(refused).await?;
        }
        let evidence = self.evidence(asked_for, &error).await?;
        let verdict = policy::decide(error.kind(), &evidence);
        match verdict {
            Verdict::EndRun => return Err(error),
            Verdict::TableForbidden => {
                let forbidden = table.to_owned();
                run.write(move |conn| State::new(conn).failures().forget_forbidden(&forbidden))
                    .await?;
                let tables = &mut self.answers.tables;
                tables.set_aside(table, TableStatus::Forbidden, &error.chain()).await?;
            }
            Verdict::TableAbsent => {
                self.answers.tables.set_aside(table, TableStatus::Absent, &error.chain()).await?
            }
            Verdict::Nothing => {
                let mut nothing = run.extractor.nothing(resource, id, version)?;
                nothing.answers(self.hint);
                run.writer.load(nothing).await?;
                if self.is_absent().await? {
                    let why = format!(
                        "{} scopes that exist answered 404, and none else",
                        policy::MANY_SCOPES
                    );
                    self.answers.tables.set_aside(table, TableStatus::Absent, &why).await?;
                } else if table == suspects::ROLES && evidence.has_rows {
                    // The same 404 would remove the case, had a search lacked it.
                    let delay = run.config.source.search_delay;
                    run.write(move |conn| {
                        State::new(conn).suspects().may_be_gone(id, delay, Timestamp::now())
                    })
                    .await?;
                }
            }
            Verdict::Doubted => {
                self.answers.note_gone(table, id, &[], GONE).await?;
            }
            Verdict::ScopeFailed => self.asked_again(is_scope && !counts, &error).await?,
        }
        Ok(verdict)
    }

    /// What an error means for one scope, where it is asked at an address that says nothing about the
    /// table: a failure of that scope, whatever the source says.
    ///
    /// # Errors
    /// What ends the run.
    pub(crate) async fn failed_alone(&mut self, error: Error) -> Result<()> {
        let error = self.answers.note_reachability(&self.resource.table, error).await?;
        if policy::ends_run(error.kind()) {
            return Err(error);
        }
        self.asked_again(true, &error).await
    }

    /// The scope is asked again with backoff; `is_scope`: it is one that the store keeps failures of.
    async fn asked_again(&mut self, is_scope: bool, error: &Error) -> Result<()> {
        let (table, text) = (self.resource.table.as_str(), error.chain());
        // What stands is told once, by the problems of the run.
        tracing::debug!(table, id = self.id, reason = text, "a scope failed");
        self.answers.findings.failed(table, 1, &text);
        if is_scope { self.note(error).await } else { Ok(()) }
    }

    /// Notes that the scope, and those beside it, failed.
    async fn note(&mut self, error: &Error) -> Result<()> {
        let ids: Vec<i64> = std::iter::once(self.id).chain(self.beside.iter().copied()).collect();
        let kind = FailureKind::of(error.kind());
        self.answers.note_failures(&self.resource.table, &ids, kind, &error.chain()).await
    }

    /// What is known beside an error.
    async fn evidence(&mut self, asked_for: AskedFor, error: &Error) -> Result<Evidence> {
        let (run, resource, id) = (self.answers.run, self.resource, self.id);
        let before = run.doubted_before();
        let mut evidence = Evidence {
            is_whole_table: asked_for != AskedFor::Scopes,
            is_search: resource.group == Group::Ids,
            has_answered: self.answers.has_answered(&resource.table)?,
            ..Evidence::default()
        };
        match error.kind() {
            Kind::Forbidden => {
                evidence.lacks_permission = self.answers.permissions.lacks(resource, error).await;
                // Asked of the writer, so that what was answered so far is counted.
                let resource = Arc::clone(resource);
                let is_answered_now = self.answers.findings.has_answered(&resource.table);
                let evidence_of_403 = move |conn: &Connection| {
                    let (state, table) = (State::new(conn), &resource.table);
                    evidence.has_answered &=
                        is_answered_now || !state.statuses().is_tried_in_vain(table)?;
                    evidence.forbidden = state.failures().forbidden_scopes(table)?;
                    evidence.scopes = state.scopes().scopes(&resource)?;
                    evidence.is_confirmed =
                        state.failures().search_is_refused_since(table, before)?;
                    Ok(evidence)
                };
                evidence = run.write(evidence_of_403).await?;
            }
            Kind::NotFound => {
                // Asked of the writer, so that what was answered so far is counted.
                let resource = Arc::clone(resource);
                (evidence.has_rows, evidence.is_confirmed) = run
                    .write(move |conn| {
                        let state = State::new(conn);
                        let has_rows = state.scopes().rows_of_scope(&resource, id)? > 0;
                        let table = &resource.table;
                        Ok((has_rows, state.failures().is_gone_since(table, id, None, before)?))
                    })
                    .await?;
                if evidence.has_rows && evidence.is_confirmed {
                    evidence.is_confirmed = self.is_believed_of_case().await?;
                }
            }
            _ => {}
        }
        Ok(evidence)
    }

    /// Whether so many scopes that exist answered 404, and none else, that the table is absent.
    async fn is_absent(&self) -> Result<bool> {
        let (run, resource) = (self.answers.run, Arc::clone(self.resource));
        // Asked of the writer, so that the answers handed over so far are counted.
        run.write(move |conn| {
            let count = State::new(conn).statuses().scopes_not_found(&resource)?;
            Ok(u64::try_from(count).is_ok_and(|count| count >= policy::MANY_SCOPES))
        })
        .await
    }
}
