//! What the answers of a journal's month mean (docs/architecture.md, "Journals").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::answers::Answers;
use super::gone::{self, Fate};
use super::policy::{Evidence, Verdict, decide, month_takes_too_long, weight_of_month};
use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};
use crate::journals::{Exploration, MonthRead, is_more};
use crate::mirror::State;
use crate::scope::{DueMonth, FailureKind, JournalScope, Month, ScopeId, TableStatus, Version};

/// The list that says whose journals there are.
const OFFICES: &str = "offices";

/// What the months that were read together say about each other and about their journals.
#[derive(Debug, Default)]
pub(super) struct MonthNotes {
    exploration: Exploration,
    under_way: usize,
    /// Per table, whether every month of somebody known answered 404.
    not_found: BTreeMap<String, bool>,
    /// Whether the list of the offices came, where a 404 made it be read once more.
    list_came: Option<bool>,
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

/// Whether some of a month's lines may be missing.
fn is_incomplete(read: &MonthRead) -> bool {
    read.load.decoded.any_without_key() || read.load.scopes.iter().any(|scope| !scope.complete)
}

/// What came of the calls for a journal's month.
pub(super) struct MonthAnswer<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
    pub(super) month: &'a DueMonth,
    pub(super) resource: &'a Arc<Resource>,
    /// For how long it was asked.
    pub(super) took: Duration,
}

impl MonthAnswer<'_, '_> {
    /// Takes what came of a month.
    pub(crate) async fn take(
        &mut self,
        read: Option<Result<MonthRead>>,
        notes: &mut MonthNotes,
    ) -> Result<()> {
        let (run, month) = (self.answers.run, self.month);
        notes.ended(month, read.as_ref());
        // It is due still.
        let Some(read) = read else { return Ok(()) };
        let error = match read {
            Ok(read) => {
                self.answers.reached();
                if !self.load(read).await? {
                    notes.lacks(month);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        notes.lacks(month);
        let missing = error.kind() == Kind::NotFound;
        // That nobody has no journal either says nothing about the journal.
        if !missing || run.knows(month.scope)? {
            *notes.not_found.entry(month.table.clone()).or_insert(true) &= missing;
        }
        self.failed(error, notes).await
    }

    /// Loads a month; returns whether it is complete.
    async fn load(&mut self, read: MonthRead) -> Result<bool> {
        let (run, month) = (self.answers.run, self.month);
        self.answers.findings.answered(&month.table);
        let incomplete = is_incomplete(&read);
        if incomplete {
            let why = "the month did not come completely: nothing is deleted";
            self.note_failure(FailureKind::Incomplete, why, self.took).await?;
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
            run.write(learn).await?;
        }
        run.writer.load(read.load).await?;
        Ok(!incomplete)
    }

    /// A month that cannot be read does not stop the others, and is visibly missing.
    async fn failed(&mut self, error: Error, notes: &mut MonthNotes) -> Result<()> {
        let (run, month, resource) = (self.answers.run, self.month, self.resource);
        let took = self.took;
        if !self.answers.tables.is_active(&month.table) {
            // It was set aside while this call was under way.
            return Ok(());
        }
        let kind = error.kind();
        if kind == Kind::NotFound {
            let mut fate = gone::look_for(&self.answers.tables, month.scope).await?;
            if fate == Fate::Listed && self.was_missing()? {
                // Before its lines leave: it may have left the list since that was last read.
                let came = match notes.list_came {
                    Some(came) => came,
                    None => *notes.list_came.insert(self.look_at_list().await?),
                };
                if !came {
                    self.is_failing(kind, gone::LIST_LACKS);
                    return self.note_failure(FailureKind::NotFound, gone::LIST_LACKS, took).await;
                }
                fate = gone::look_for(&self.answers.tables, month.scope).await?;
            }
            if fate == Fate::Doubted {
                self.is_failing(kind, gone::LEFT);
                self.note_failure(FailureKind::NotFound, gone::LEFT, Duration::ZERO).await?;
            }
            if fate != Fate::Listed {
                self.answers.reached();
                return Ok(());
            }
        }
        let error = if month_takes_too_long(kind) {
            error
        } else {
            self.answers.note_reachability(&month.table, error).await?
        };
        let text = error.chain();
        if kind == Kind::Forbidden {
            // It counts among those that speak for the table.
            self.note_failure(FailureKind::of(kind), &text, took).await?;
        }
        let evidence = self.evidence(&error).await?;
        match decide(kind, &evidence) {
            Verdict::EndRun => Err(error),
            Verdict::TableForbidden => {
                // What all may not be read is no failure of each.
                self.answers.findings.forget_failure(&month.table);
                self.answers.tables.set_aside(&month.table, TableStatus::Forbidden, &text).await?;
                let table = month.table.clone();
                let forget = move |conn: &_| State::new(conn).failures().forget_forbidden(&table);
                run.write(forget).await
            }
            Verdict::TableAbsent => {
                self.answers.tables.set_aside(&resource.table, TableStatus::Absent, &text).await
            }
            Verdict::Nothing => {
                let nothing = run.extractor.no_journal(resource, month.scope).await?;
                run.writer.load(nothing).await
            }
            Verdict::Doubted => {
                self.is_failing(kind, &text);
                let (table, scope) = (month.table.clone(), month.scope);
                run.write(move |conn| {
                    State::new(conn).months().month_was_not_found(&table, scope, Timestamp::now())
                })
                .await?;
                self.note_failure(FailureKind::NotFound, &text, took).await
            }
            Verdict::ScopeFailed => {
                self.is_failing(kind, &text);
                if kind == Kind::Forbidden {
                    return Ok(());
                }
                self.note_failure(FailureKind::of(kind), &text, took).await
            }
        }
    }

    /// What is known beside an error of a month.
    async fn evidence(&mut self, error: &Error) -> Result<Evidence> {
        let (run, month, resource) = (self.answers.run, self.month, self.resource);
        let mut evidence = Evidence::default();
        match error.kind() {
            Kind::Forbidden => {
                evidence.lacks_permission = self.answers.permissions.lacks(resource, error).await;
                // Asked of the writer, so that what was answered so far is counted.
                let (table, config) = (month.table.clone(), Arc::clone(&run.config));
                let count = move |conn: &_| {
                    let state = State::new(conn);
                    let wanted = state.wanted_months().wanted_ids(&config.journals)?;
                    let level = config.journals.level;
                    let forbidden = state.failures().forbidden_journals(&table, level, &wanted)?;
                    Ok((forbidden, wanted.len() as u64))
                };
                (evidence.forbidden, evidence.scopes) = run.write(count).await?;
            }
            Kind::NotFound => evidence.has_rows = !self.has_no_journal()?,
            _ => {}
        }
        Ok(evidence)
    }

    fn is_failing(&mut self, kind: Kind, why: &str) {
        let (table, scope) = (&self.month.table, self.month.scope);
        // What stands is told once, by the problems of the run.
        tracing::debug!(table, %scope, reason = why, "a journal's month failed");
        self.answers.findings.failed(table, weight_of_month(kind), why);
    }

    /// Whether a 404 means that this office has no such journal: it is one that the mirror knows, the table was ever
    /// answered otherwise, and nothing of the month is mirrored, or it answered 404 `source.doubt` ago too. Where that
    /// would take many lines, the guard still holds them.
    fn has_no_journal(&self) -> Result<bool> {
        let (run, month) = (self.answers.run, self.month);
        let conn = run.store.connection()?;
        let is_there = self.answers.findings.has_answered(&month.table)
            || State::new(&conn)
                .statuses()
                .all()?
                .get(&month.table)
                .is_some_and(|row| row.answered);
        Ok(is_there
            && run.knows(month.scope)?
            && State::new(&conn).months().month_may_be_empty(
                &month.table,
                month.scope,
                Timestamp::now() - run.config.source.doubt,
            )?)
    }

    /// Reads the list of the offices, so that it is known which left it. Returns whether it is known: where the list is not
    /// read at all, what is mirrored of it is all that there is to know.
    async fn look_at_list(&mut self) -> Result<bool> {
        let Some(offices) = self.answers.tables.get(OFFICES).cloned() else { return Ok(true) };
        let unversioned = Version::Known(String::new());
        let extractor = &self.answers.run.extractor;
        let list = extractor.scope(&offices, 0, None, unversioned, None).await;
        self.answers.list(&offices).take(list).await?;
        self.answers.flush().await?;
        let conn = self.answers.run.store.connection()?;
        Ok(!self.answers.tables.is_active(OFFICES)
            || State::new(&conn).scopes().why_list_is_stale(OFFICES)?.is_none())
    }

    fn was_missing(&self) -> Result<bool> {
        let conn = self.answers.run.store.connection()?;
        State::new(&conn).months().month_was_missing(&self.month.table, self.month.scope)
    }

    async fn note_failure(&self, kind: FailureKind, why: &str, took: Duration) -> Result<()> {
        let (run, month) = (self.answers.run, self.month);
        let JournalScope { id, .. } = month.scope;
        let scope = ScopeId { table: month.table.clone(), id, part: month.scope.part() };
        let (run_id, why) = (run.id, why.to_owned());
        let fail = move |conn: &_| {
            let now = Timestamp::now();
            State::new(conn).learned().month_failed(run_id, now, &scope, (kind, &why), took)
        };
        run.write(fail).await
    }
}
