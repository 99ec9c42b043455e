//! What the answers of a journal's month mean (docs/architecture.md, "Journals").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Cycle;
use super::fetch::MonthAnswer;
use super::policy::{Evidence, Verdict, decide, month_takes_too_long, weight_of_month};
use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};
use crate::journals::{Exploration, MonthRead, is_more};
use crate::mirror::{RunLog, State};
use crate::scope::{DueMonth, FailureKind, JournalScope, Month, ScopeId, TableStatus};

/// What the months that were read together say about each other and about their journals.
#[derive(Debug, Default)]
pub(super) struct MonthNotes {
    exploration: Exploration,
    under_way: usize,
    /// Per table, whether every month of somebody known answered 404.
    not_found: BTreeMap<String, bool>,
    /// Months that could not be read completely: table, id, month.
    pub(crate) lacking: Vec<(String, i64, Month)>,
}

impl MonthNotes {
    /// Whether a month may begin beside the others; at most `most` are under way.
    pub(crate) fn may_begin(&self, month: &DueMonth, most: usize) -> bool {
        self.under_way < most && self.exploration.may_begin(month)
    }

    /// A month begins.
    pub(crate) fn begin(&mut self, month: &mut DueMonth) {
        self.under_way += 1;
        self.exploration.begin(month);
    }

    /// The tables of which nobody's month was found.
    pub(crate) fn found_nowhere(&self) -> impl Iterator<Item = &str> {
        self.not_found.iter().filter(|(_, all)| **all).map(|(table, _)| table.as_str())
    }

    fn ended(&mut self, month: &DueMonth, read: Option<&Result<MonthRead>>) {
        self.under_way -= 1;
        match read {
            Some(Ok(read)) => {
                self.not_found.insert(month.table.clone(), false);
                self.exploration.was_read(month, read.window_days, read.too_much);
            }
            Some(Err(_)) | None => self.exploration.failed(month),
        }
    }

    fn lacks(&mut self, month: &DueMonth) {
        self.lacking.push((month.table.clone(), month.scope.id, month.scope.month));
    }
}

impl Cycle<'_> {
    /// Takes what came of a month.
    pub(super) async fn take_month(
        &mut self,
        month: &DueMonth,
        resource: &Arc<Resource>,
        answer: MonthAnswer,
        notes: &mut MonthNotes,
    ) -> Result<()> {
        notes.ended(month, answer.read.as_ref());
        // It is due still.
        let Some(read) = answer.read else { return Ok(()) };
        let took = answer.took;
        let error = match read {
            Ok(read) => {
                self.unreached.reached();
                if !self.load_month(month, read, took).await? {
                    notes.lacks(month);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        notes.lacks(month);
        let missing = error.kind() == Kind::NotFound;
        // That nobody has no journal either says nothing about the journal.
        if !missing || self.run.knows(month.scope)? {
            *notes.not_found.entry(month.table.clone()).or_insert(true) &= missing;
        }
        self.month_failed(month, resource, (error, took)).await
    }

    /// Loads a month; returns whether it is complete.
    async fn load_month(
        &mut self,
        month: &DueMonth,
        read: MonthRead,
        took: Duration,
    ) -> Result<bool> {
        self.findings.answered(&month.table);
        let incomplete =
            read.load.decoded.any_without_key() || read.load.scopes.iter().any(|s| !s.complete);
        if incomplete {
            let why = "the month did not come completely: nothing is deleted";
            self.note_month_failure(month, FailureKind::Incomplete, why, took).await?;
        } else if read.too_much || read.window_days != month.known_days {
            let (table, scope, days) = (month.table.clone(), month.scope, read.window_days);
            let too_much = read.too_much || is_more(month.known_days, days);
            let learn = move |conn: &_| {
                State::new(conn).learned().learn_window(
                    &table,
                    scope,
                    days,
                    too_much,
                    Timestamp::now(),
                )
            };
            self.run.writer.run(learn).await?;
        }
        self.run.writer.load(read.load).await?;
        Ok(!incomplete)
    }

    /// A month that cannot be read does not stop the others, and is visibly missing.
    async fn month_failed(
        &mut self,
        month: &DueMonth,
        resource: &Arc<Resource>,
        (error, took): (Error, Duration),
    ) -> Result<()> {
        if !self.tables.is_active(&month.table) {
            // It was set aside while this call was under way.
            return Ok(());
        }
        if error.kind() == Kind::NotFound && self.take_unlisted(month).await? {
            self.unreached.reached();
            return Ok(());
        }
        let kind = error.kind();
        let error = if month_takes_too_long(kind) {
            error
        } else {
            self.unreached.note(self.run.client(), &month.table, error).await?
        };
        let text = error.chain();
        if kind == Kind::Forbidden {
            // It counts among those that speak for the table.
            self.note_month_failure(month, FailureKind::of(kind), &text, took).await?;
        }
        let evidence = self.evidence_of_month(month, resource, &error).await?;
        match decide(kind, &evidence) {
            Verdict::EndRun => Err(error),
            Verdict::TableForbidden => self.journal_is_forbidden(&month.table, &text).await,
            Verdict::TableAbsent => {
                self.tables.set_aside(&resource.table, TableStatus::Absent, &text).await
            }
            Verdict::Nothing => {
                let nothing = self.run.extractor.no_journal(resource, month.scope).await?;
                self.run.writer.load(nothing).await
            }
            Verdict::Doubted => {
                self.month_is_failing(month, kind, &text);
                let (table, scope) = (month.table.clone(), month.scope);
                self.run
                    .writer
                    .run(move |conn| {
                        State::new(conn).months().month_was_not_found(
                            &table,
                            scope,
                            Timestamp::now(),
                        )
                    })
                    .await?;
                self.note_month_failure(month, FailureKind::NotFound, &text, took).await
            }
            Verdict::ScopeFailed => {
                self.month_is_failing(month, kind, &text);
                if kind == Kind::Forbidden {
                    return Ok(());
                }
                self.note_month_failure(month, FailureKind::of(kind), &text, took).await
            }
        }
    }

    /// What is known beside an error of a month.
    async fn evidence_of_month(
        &mut self,
        month: &DueMonth,
        resource: &Arc<Resource>,
        error: &Error,
    ) -> Result<Evidence> {
        let mut evidence = Evidence::default();
        match error.kind() {
            Kind::Forbidden => {
                evidence.lacks_permission = self.permissions.lacks(resource, error).await;
                // Asked of the writer, so that what was answered so far is counted.
                let (table, config) = (month.table.clone(), Arc::clone(&self.run.config));
                let count = move |conn: &_| {
                    let state = State::new(conn);
                    let wanted = state.wanted_months().wanted_ids(&config.journals)?;
                    let level = config.journals.level;
                    let forbidden = state.failures().forbidden_journals(&table, level, &wanted)?;
                    Ok((forbidden, wanted.len() as u64))
                };
                (evidence.forbidden, evidence.scopes) = self.run.writer.run(count).await?;
            }
            Kind::NotFound => evidence.has_rows = !self.has_no_journal(month)?,
            _ => {}
        }
        Ok(evidence)
    }

    pub(super) fn month_is_failing(&mut self, month: &DueMonth, kind: Kind, why: &str) {
        let (table, scope) = (&month.table, month.scope);
        tracing::warn!(table, %scope, reason = why, "a journal's month failed");
        self.findings.failed(table, weight_of_month(kind), why);
    }

    /// What all may not be read is no failure of each.
    async fn journal_is_forbidden(&mut self, table: &str, reason: &str) -> Result<()> {
        self.findings.forget_failure(table);
        self.tables.set_aside(table, TableStatus::Forbidden, reason).await?;
        let table = table.to_owned();
        self.run.writer.run(move |conn| State::new(conn).failures().forget_forbidden(&table)).await
    }

    /// Whether a 404 means that this office has no such journal: it is one that the mirror knows, others
    /// have one, and nothing of the month is mirrored, or it answered 404 `source.doubt` ago too.
    fn has_no_journal(&self, month: &DueMonth) -> Result<bool> {
        let conn = self.run.store.connection()?;
        let others = self.findings.has_answered(&month.table)
            || RunLog::new(&conn).resources()?.get(&month.table).is_some_and(|row| row.answered);
        Ok(others
            && self.run.knows(month.scope)?
            && State::new(&conn).months().month_may_be_empty(
                &month.table,
                month.scope,
                Timestamp::now() - self.run.config.source.doubt,
            )?)
    }

    /// A journal of which nobody's month was ever found is not there.
    pub(super) async fn journal_is_absent(&mut self, table: &str) -> Result<()> {
        let name = table.to_owned();
        let absent = self
            .run
            .writer
            .run(move |conn| State::new(conn).months().forget_if_absent(&name))
            .await?;
        if absent {
            self.findings.forget_failure(table);
            let why = "404 for every office whose journal was asked for";
            self.tables.set_aside(table, TableStatus::Absent, why).await?;
        }
        Ok(())
    }

    pub(super) async fn note_month_failure(
        &self,
        month: &DueMonth,
        kind: FailureKind,
        why: &str,
        took: Duration,
    ) -> Result<()> {
        let JournalScope { id, .. } = month.scope;
        let scope = ScopeId { table: month.table.clone(), id, part: month.scope.part() };
        let (run_id, why) = (self.run.id, why.to_owned());
        let fail = move |conn: &_| {
            let now = Timestamp::now();
            State::new(conn).learned().month_failed(run_id, now, &scope, (kind, &why), took)
        };
        self.run.writer.run(fail).await
    }
}
