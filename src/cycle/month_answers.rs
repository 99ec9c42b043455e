//! What the answers of a journal's month mean (docs/architecture.md, "Journals").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Cycle;
use super::fetch::MonthAnswer;
use super::policy::{Evidence, MANY_SCOPES, Verdict, decide};
use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};
use crate::journals::{Exploration, MonthRead, is_more};
use crate::mirror::{RunLog, State};
use crate::scope::{DueMonth, FailureKind, JournalScope, Month, ScopeId, TableStatus};

/// Where fewer than many offices' journals are forbidden, all have to be, with no fewer months than
/// this.
const FORBIDDEN_MONTHS: usize = 3;

/// What the months that were read together say about each other and about their journals.
#[derive(Debug, Default)]
pub(super) struct MonthNotes {
    exploration: Exploration,
    under_way: usize,
    /// Per table, whether every month of somebody known answered 404.
    not_found: BTreeMap<String, bool>,
    /// Months that answered 403, while no other of their table answered otherwise.
    forbidden: BTreeMap<String, BTreeSet<(i64, Month)>>,
    /// Months that could not be read completely: table, id, month.
    pub lacking: Vec<(String, i64, Month)>,
}

impl MonthNotes {
    /// Whether a month may begin beside the others; at most `most` are under way.
    pub fn may_begin(&self, month: &DueMonth, most: usize) -> bool {
        self.under_way < most && self.exploration.may_begin(month)
    }

    /// A month begins.
    pub fn begin(&mut self, month: &mut DueMonth) {
        self.under_way += 1;
        self.exploration.begin(month);
    }

    /// The tables of which nobody's month was found.
    pub fn found_nowhere(&self) -> impl Iterator<Item = &str> {
        self.not_found.iter().filter(|(_, all)| **all).map(|(table, _)| table.as_str())
    }

    fn ended(&mut self, month: &DueMonth, read: Option<&Result<MonthRead>>) {
        self.under_way -= 1;
        match read {
            Some(Ok(read)) => {
                self.not_found.insert(month.table.clone(), false);
                self.forbidden.remove(&month.table);
                self.exploration.was_read(month, read.window_days, read.too_much);
            }
            Some(Err(_)) | None => self.exploration.failed(month),
        }
    }

    fn lacks(&mut self, month: &DueMonth) {
        self.lacking.push((month.table.clone(), month.scope.id, month.scope.month));
    }
}

impl Cycle {
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
                self.reached();
                if !self.load_month(month, read, took).await? {
                    notes.lacks(month);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        notes.lacks(month);
        let missing = error.kind() == Kind::NotFound;
        if missing {
            notes.forbidden.remove(&month.table);
        }
        // That nobody has no journal either says nothing about the journal.
        if !missing || self.knows(month.scope)? {
            *notes.not_found.entry(month.table.clone()).or_insert(true) &= missing;
        }
        let is_everywhere = error.kind() == Kind::Forbidden && {
            let months = notes.forbidden.entry(month.table.clone()).or_default();
            months.insert((month.scope.id, month.scope.month));
            self.are_all(months)?
        };
        self.month_failed(month, resource, (error, took), is_everywhere).await
    }

    /// Loads a month; returns whether it is complete.
    async fn load_month(
        &mut self,
        month: &DueMonth,
        read: MonthRead,
        took: Duration,
    ) -> Result<bool> {
        self.answered.insert(month.table.clone());
        let incomplete =
            read.load.decoded.any_without_key() || read.load.scopes.iter().any(|s| !s.complete);
        if incomplete {
            let why = "the month did not come completely: nothing is deleted";
            self.note_month_failure(month, FailureKind::Incomplete, why, took).await?;
        } else if read.too_much || read.window_days != month.known_days {
            let (table, scope, days) = (month.table.clone(), month.scope, read.window_days);
            let too_much = read.too_much || is_more(month.known_days, days);
            let learn = move |conn: &_| {
                State::new(conn).learn_window(&table, scope, days, too_much, Timestamp::now())
            };
            self.writer.run(learn).await?;
        }
        self.progress.rows(read.load.decoded.rows.num_rows() as u64);
        self.writer.load(read.load).await?;
        Ok(!incomplete)
    }

    /// A month that cannot be read does not stop the others, and is visibly missing. `is_everywhere`: the
    /// other months that were asked for answered 403 as well.
    async fn month_failed(
        &mut self,
        month: &DueMonth,
        resource: &Arc<Resource>,
        (error, took): (Error, Duration),
        is_everywhere: bool,
    ) -> Result<()> {
        if !self.is_active(&month.table) {
            // It was set aside while this call was under way.
            return Ok(());
        }
        if error.kind() == Kind::NotFound && self.take_unlisted(month).await? {
            self.reached();
            return Ok(());
        }
        // A journal that takes too long says nothing about whether the source can be reached.
        let too_long = error.kind() == Kind::Timeout;
        let error =
            if too_long { error } else { self.note_reachability(&month.table, error).await? };
        let kind = error.kind();
        let text = error.chain();
        let evidence = Evidence {
            lacks_permission: kind == Kind::Forbidden
                && self.lacks_permission(resource, &error).await,
            forbidden: if is_everywhere { MANY_SCOPES } else { 1 },
            scopes: MANY_SCOPES,
            has_rows: kind == Kind::NotFound && !self.has_no_journal(month)?,
            ..Evidence::default()
        };
        match decide(kind, &evidence) {
            Verdict::EndRun => Err(error),
            Verdict::TableForbidden => self.journal_is_forbidden(&month.table, &text).await,
            Verdict::TableAbsent => {
                self.set_aside(&resource.table, TableStatus::Absent, &text).await
            }
            Verdict::Nothing => {
                let nothing = self.extractor.no_journal(resource, month.scope).await?;
                self.writer.load(nothing).await
            }
            Verdict::Doubted => {
                self.note_month_failing(month, 1, &text);
                let (table, scope) = (month.table.clone(), month.scope);
                self.writer
                    .run(move |conn| {
                        State::new(conn).month_was_not_found(&table, scope, Timestamp::now())
                    })
                    .await?;
                self.note_month_failure(month, FailureKind::NotFound, &text, took).await
            }
            Verdict::ScopeFailed => {
                // Each that took too long has waited for limits.journal_timeout.
                self.note_month_failing(month, if too_long { 5 } else { 1 }, &text);
                self.note_month_failure(month, FailureKind::of(kind), &text, took).await
            }
        }
    }

    pub(super) fn note_month_failing(&mut self, month: &DueMonth, weight: u32, why: &str) {
        tracing::warn!(
            table = month.table,
            scope = %month.scope,
            reason = why,
            "a journal's month failed"
        );
        self.failed.entry(month.table.clone()).or_insert_with(|| why.to_owned());
        *self.failures_in_a_row.entry(month.table.clone()).or_default() += weight;
    }

    /// Whether a journal is forbidden of which these months are, and none else is known: they are
    /// everybody's, or those of so many.
    fn are_all(&self, months: &BTreeSet<(i64, Month)>) -> Result<bool> {
        if months.len() < FORBIDDEN_MONTHS {
            return Ok(false);
        }
        let ids: BTreeSet<i64> = months.iter().map(|(id, _)| *id).collect();
        Ok(ids.len() as u64 >= MANY_SCOPES
            || self.journal_ids(&[])?.iter().all(|wanted| ids.contains(wanted)))
    }

    /// What all may not be read is no failure of each.
    async fn journal_is_forbidden(&mut self, table: &str, reason: &str) -> Result<()> {
        self.failed.remove(table);
        self.set_aside(table, TableStatus::Forbidden, reason).await?;
        let table = table.to_owned();
        self.writer.run(move |conn| State::new(conn).forget_forbidden(&table)).await
    }

    /// Whether a 404 means that this office has no such journal: it is one that the mirror knows, others
    /// have one, and nothing of the month is mirrored, or it answered 404 `source.doubt` ago too.
    fn has_no_journal(&self, month: &DueMonth) -> Result<bool> {
        let conn = self.store.connection()?;
        let others = self.answered.contains(&month.table)
            || RunLog::new(&conn).resources()?.get(&month.table).is_some_and(|row| row.answered);
        Ok(others
            && self.knows(month.scope)?
            && State::new(&conn).month_may_be_empty(
                &month.table,
                month.scope,
                Timestamp::now() - self.config.source.doubt,
            )?)
    }

    /// A journal of which nobody's month was ever found is not there.
    pub(super) async fn journal_is_absent(&mut self, table: &str) -> Result<()> {
        let name = table.to_owned();
        let absent = self.writer.run(move |conn| State::new(conn).forget_if_absent(&name)).await?;
        if absent {
            self.failed.remove(table);
            let why = "404 for every office whose journal was asked for";
            self.set_aside(table, TableStatus::Absent, why).await?;
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
        let (run_id, why) = (self.run_id, why.to_owned());
        let fail = move |conn: &_| {
            let now = Timestamp::now();
            State::new(conn).month_failed(run_id, now, &scope, (kind, &why), took)
        };
        self.writer.run(fail).await
    }
}
