//! The journals' months: which are due, and reading them (contract section 4, "Journals").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::JoinSet;

use super::Cycle;
use super::due::Due;
use super::months::{FIRST_MONTH, Wanted, journal_ids, months_from};
use super::policy::{Evidence, MANY_SCOPES, Verdict, judge};
use super::signals::Halt;
use crate::catalog::{Group, Resource};
use crate::error::{Error, Kind, Result};
use crate::journals::{MonthRead, Queue};
use crate::mirror::{Books, State, id_column};
use crate::schedule::Name;
use crate::scope::{DueMonth, FailureKind, JournalScope, Month, REVENUE, REVENUE_SUMS, ScopeId};

/// Where fewer than many offices' journals are forbidden, all have to be, with no fewer months than
/// this.
const FORBIDDEN_MONTHS: usize = 3;

/// What `casemirror journals` asks for; its tables are the run's `only`.
#[derive(Debug, Clone)]
pub struct JournalRequest {
    pub from: Month,
    pub to: Month,
    /// Of `journals.level`; empty: those of the configuration, or all that are known.
    pub ids: Vec<i64>,
    /// The months are due in the books already: a run that had to give way goes on.
    pub planned: bool,
}

impl JournalRequest {
    fn months(&self) -> Vec<Month> {
        months_from(self.from, self.to)
    }
}

impl Cycle {
    /// Reads the months that are due: those that the schedules ask for, and what an earlier run left
    /// undone. What is due is in the books, so that a run which ends early leaves it to the next.
    pub(super) async fn follow_journals(&mut self, due: &Due) -> Result<()> {
        if !self.options.cases.is_empty() {
            return Ok(());
        }
        self.want_journals().await?;
        if self.options.allow_removals {
            self.writer.run(|conn| State::new(conn).doubted_months_wait_no_longer()).await?;
        }
        let tables = self.journal_tables();
        let scheduled = due.has(Name::Journals) || due.has(Name::JournalsRecheck);
        // Where the offices were not known when the schedule ran, nothing was planned.
        let unplanned = due.at.is_some() && !scheduled && {
            let conn = self.store.connection()?;
            let state = State::new(&conn);
            state.meta(FIRST_MONTH)?.is_some() && !state.has_journals(self.config.journals.level)?
        };
        if scheduled || unplanned {
            self.plan_months(&tables, due, unplanned).await?;
        }
        self.read_due(&tables, None).await
    }

    /// `casemirror journals`: the months of a period, whether they are due or not.
    pub(super) async fn read_period(&mut self, request: &JournalRequest) -> Result<()> {
        let tables = self.journal_tables();
        let mut ids = self.journal_ids(&request.ids)?;
        if ids.is_empty() && request.ids.is_empty() {
            // Whose journals there are says the list of the offices.
            self.read_offices().await?;
            ids = self.journal_ids(&request.ids)?;
        }
        if ids.is_empty() {
            return Err(Error::new(
                Kind::Usage,
                "no office is known whose journals could be read: name ids with --ids or journals.ids",
            ));
        }
        if !request.planned {
            self.refuse_strangers(&tables, request).await?;
        }
        let (level, months) = (self.config.journals.level, request.months());
        let asked = tables.clone();
        let planned = request.planned;
        self.writer
            .run({
                let ids = ids.clone();
                move |conn| {
                    if planned {
                        return Ok(());
                    }
                    let state = State::new(conn);
                    state.months_are_due(&asked, level, &ids, &months, Some("asked for"))?;
                    // Who asks does not wait for a backoff.
                    state.months_wait_no_longer(&asked, &ids)
                }
            })
            .await?;
        self.read_due(&tables, Some((request, &ids))).await
    }

    /// Offices that have come, or come back, are wanted like those that are known.
    async fn want_journals(&self) -> Result<()> {
        let config = Arc::clone(&self.config);
        if State::new(&self.store.connection()?).all_are_wanted(&config.journals)? {
            return Ok(());
        }
        self.writer.run(move |conn| State::new(conn).want_journals(&config.journals)).await
    }

    /// Refuses ids that were typed and mean nobody: the mirror does not know them, and each of their
    /// journals is answered 404. What has no journal looks the same, and would be a month without lines.
    async fn refuse_strangers(&self, tables: &[String], request: &JournalRequest) -> Result<()> {
        let level = self.config.journals.level;
        let mut resources: Vec<_> =
            tables.iter().filter_map(|table| self.catalog.get(table)).collect();
        // A control total is the cheapest of them.
        resources.sort_by_key(|resource| resource.table != REVENUE_SUMS);
        let mut strangers = Vec::new();
        for id in &request.ids {
            let scope = JournalScope { level, id: *id, month: request.to };
            if self.knows(scope)? || resources.is_empty() {
                continue;
            }
            let mut is_known = false;
            for resource in &resources {
                // An error says nothing about the id: it comes again when the months are read.
                is_known = self.extractor.has_journal(resource, scope).await.unwrap_or(true);
                if is_known {
                    break;
                }
            }
            if !is_known {
                strangers.push(id.to_string());
            }
        }
        if strangers.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Kind::Usage,
            format!(
                "--ids {}: the source has no such journals; with journals.level = \"{level}\" the ids \
                 are those of the column offices.{}",
                strangers.join(","),
                id_column(level)
            ),
        ))
    }

    /// Whether the mirror knows whose journal this is.
    fn knows(&self, scope: JournalScope) -> Result<bool> {
        let journals: Vec<&Resource> = self
            .catalog
            .resources()
            .iter()
            .filter(|r| matches!(r.group, Group::Journal(_)))
            .map(Arc::as_ref)
            .collect();
        let conn = self.store.connection()?;
        State::new(&conn).knows_journals_of(&journals, scope.level, scope.id)
    }

    /// The journals' tables that this run reads.
    fn journal_tables(&self) -> Vec<String> {
        self.active
            .iter()
            .filter(|r| matches!(r.group, Group::Journal(_)) && self.options.wants(&r.table))
            .map(|r| r.table.clone())
            .collect()
    }

    fn journal_ids(&self, named: &[i64]) -> Result<Vec<i64>> {
        journal_ids(&self.store.connection()?, &self.config, named)
    }

    /// Makes due what the schedules ask for; `anyway` as if `schedule.journals` did. The months of tables
    /// that cannot be read are in the books too: they should be there.
    async fn plan_months(&self, tables: &[String], due: &Due, anyway: bool) -> Result<()> {
        let mut plan = Wanted::of(&self.store.connection()?, &self.config, due)?;
        plan.scheduled |= anyway;
        let level = self.config.journals.level;
        let tables = tables.to_vec();
        let all = self.catalog.journals();
        let at = due.at.unwrap_or_else(Timestamp::now);
        self.writer
            .run(move |conn| {
                let state = State::new(conn);
                state.set_meta(FIRST_MONTH, &plan.first.to_string())?;
                state.leave_other_journals(level, &plan.ids)?;
                // What is due is in the books from here on: the schedules have done their part.
                let ran =
                    [(plan.scheduled, Name::Journals), (plan.rechecked, Name::JournalsRecheck)];
                for (_, name) in ran.iter().filter(|(ran, _)| *ran && !plan.ids.is_empty()) {
                    Books::new(conn).set_schedule(name.as_str(), at)?;
                }
                if plan.rechecked {
                    let why = Some("schedule.journals_recheck");
                    let (sums, journals): (Vec<_>, Vec<_>) =
                        tables.iter().cloned().partition(|table| table == REVENUE_SUMS);
                    state.months_are_due(&journals, level, &plan.ids, &plan.recheck, why)?;
                    for table in &sums {
                        state.synced_months_are_due(table, "schedule.journals_recheck")?;
                    }
                    state.rejected_months_are_due()?;
                }
                if plan.scheduled {
                    state.months_are_due(&all, level, &plan.ids, &plan.all, None)?;
                    let why = Some("schedule.journals");
                    state.months_are_due(&tables, level, &plan.ids, &plan.trailing, why)?;
                }
                Ok(())
            })
            .await
    }

    /// Reads what is due until nothing is left that can be read in this run. A month that failed or came
    /// incomplete waits for the next run; one of revenue whose lines do not add up to the sum that was
    /// read after them is read once more, with its sum.
    async fn read_due(
        &mut self,
        tables: &[String],
        only: Option<(&JournalRequest, &[i64])>,
    ) -> Result<()> {
        let level = self.config.journals.level;
        let mut reread: BTreeSet<(i64, Month)> = BTreeSet::new();
        let mut tried: BTreeSet<(String, i64, Month)> = BTreeSet::new();
        loop {
            let mut due = {
                let conn = self.store.connection()?;
                State::new(&conn).due_months(tables, level, Timestamp::now())?
            };
            if let Some((request, ids)) = only {
                let months = request.from..=request.to;
                due.retain(|d| months.contains(&d.scope.month) && ids.contains(&d.scope.id));
            }
            due.retain(|d| !self.gives_up(&d.table) && self.is_active(&d.table));
            due.retain(|d| !tried.contains(&(d.table.clone(), d.scope.id, d.scope.month)));
            // A sum is asked after the lines that it is held against.
            let (sums, lines): (Vec<_>, Vec<_>) =
                due.into_iter().partition(|d| d.table == REVENUE_SUMS);
            if sums.is_empty() && lines.is_empty() {
                return Ok(());
            }
            let totals: BTreeSet<(i64, Month)> =
                sums.iter().map(|due| (due.scope.id, due.scope.month)).collect();
            tried.extend(self.read_months(lines).await?);
            tried.extend(self.read_months(sums).await?);
            if self.signals.halt() != Halt::Go {
                // The rest is due still.
                self.report.halted = true;
                return Ok(());
            }
            let off = {
                let conn = self.store.connection()?;
                State::new(&conn).months_off_their_sum(level)?
            };
            let off: Vec<(i64, Month)> = off
                .into_iter()
                .filter(|month| totals.contains(month) && reread.insert(*month))
                .collect();
            if !off.is_empty() && tables.iter().any(|t| t == REVENUE) {
                tracing::info!(months = off.len(), "lines that do not add up are read again");
                // Where the sum is that of doubted lines, it is those that are read again.
                let confirmed = self
                    .writer
                    .run(move |conn| State::new(conn).confirmed_months_wait_no_longer(level))
                    .await?;
                let confirms = |id, month| confirmed.contains(&(id, month));
                tried.retain(|(table, id, month)| table != REVENUE || !confirms(*id, *month));
                self.writer
                    .run(move |conn| {
                        let state = State::new(conn);
                        let tables = [REVENUE, REVENUE_SUMS].map(str::to_owned);
                        let why = Some("the lines do not add up to the platform's sum");
                        off.iter().try_for_each(|(id, month)| {
                            state.months_are_due(&tables, level, &[*id], &[*month], why)
                        })
                    })
                    .await?;
            }
        }
    }

    /// Reads months, a few at a time; returns those that could not be read completely: table, id, month.
    async fn read_months(&mut self, due: Vec<DueMonth>) -> Result<Vec<(String, i64, Month)>> {
        self.progress.step("reading the journals");
        self.progress.more(due.len() as u64);
        let width = self.config.limits.concurrency;
        let mut not_found: BTreeMap<String, bool> = BTreeMap::new();
        // Months that answered 403, while no other of their table answered otherwise.
        let mut forbidden: BTreeMap<String, BTreeSet<(i64, Month)>> = BTreeMap::new();
        let mut queue = Queue::new(due);
        // Tasks of their own: they go on while changes are fetched.
        let mut under_way = JoinSet::new();
        let mut lacking = Vec::new();
        loop {
            // Changes do not wait for the journals.
            self.fresh_first().await?;
            let halt = self.signals.halt();
            while halt == Halt::Go && under_way.len() < width {
                let is_read = |table: &str| self.is_active(table) && !self.gives_up(table);
                let Some(month) = queue.take(is_read) else { break };
                let Some(resource) = self.catalog.get(&month.table).cloned() else { continue };
                let extractor = self.extractor.clone();
                under_way.spawn(async move {
                    let answer = extractor.journal(&resource, month.scope, month.window_days).await;
                    (month, resource, answer)
                });
            }
            // While it ends, news change nothing.
            let known = if halt == Halt::Go { self.handled() } else { i64::MAX };
            let landed = tokio::select! {
                landed = under_way.join_next() => landed,
                () = self.signals.beyond(known, halt) => continue,
            };
            let Some(landed) = landed else { break };
            let (month, resource, answer) =
                landed.map_err(|e| Error::caused(Kind::Internal, "a fetch ended early", e))?;
            self.progress.done(1);
            self.progress.calls(self.report.calls);
            match answer {
                Ok(answer) => {
                    self.reached();
                    not_found.insert(month.table.clone(), false);
                    forbidden.remove(&month.table);
                    queue.was_read(&month, answer.window_days);
                    if !self.take_month(&month, answer).await? {
                        lacking.push((month.table, month.scope.id, month.scope.month));
                    }
                }
                Err(error) => {
                    queue.failed(&month);
                    let missing = error.kind() == Kind::NotFound;
                    if missing {
                        forbidden.remove(&month.table);
                    }
                    // That nobody has no journal either says nothing about the journal.
                    if !missing || self.knows(month.scope)? {
                        *not_found.entry(month.table.clone()).or_insert(true) &= missing;
                    }
                    let is_everywhere = error.kind() == Kind::Forbidden && {
                        let months = forbidden.entry(month.table.clone()).or_default();
                        months.insert((month.scope.id, month.scope.month));
                        self.are_all(months)?
                    };
                    self.month_failed(&month, &resource, error, is_everywhere).await?;
                    lacking.push((month.table, month.scope.id, month.scope.month));
                }
            }
        }
        self.flush().await?;
        // Ids that were typed may be wrong.
        let typed = self.options.journals.is_some();
        for (table, _) in not_found.into_iter().filter(|(_, all)| *all && !typed) {
            self.journal_is_absent(&table).await?;
        }
        Ok(lacking)
    }

    /// Loads a month; returns whether it is complete.
    async fn take_month(&mut self, month: &DueMonth, read: MonthRead) -> Result<bool> {
        self.answered.insert(month.table.clone());
        let incomplete =
            read.load.decoded.any_keyless() || read.load.scopes.iter().any(|s| !s.complete);
        if incomplete {
            let why = "the month did not come completely: nothing is deleted";
            self.note_month_failure(month, FailureKind::Incomplete, why).await?;
        } else if read.window_days != month.window_days {
            let (table, scope, days) = (month.table.clone(), month.scope, read.window_days);
            self.writer
                .run(move |conn| State::new(conn).set_window_days(&table, scope, days))
                .await?;
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
        error: Error,
        is_everywhere: bool,
    ) -> Result<()> {
        if !self.is_active(&month.table) {
            // It was set aside while this call was under way.
            return Ok(());
        }
        // A journal that takes too long says nothing about whether the source can be reached.
        let too_long = error.kind() == Kind::Timeout;
        let error = if too_long { error } else { self.note_reach(&month.table, error).await? };
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
        match judge(kind, &evidence) {
            Verdict::EndRun => Err(error),
            Verdict::TableForbidden => self.journal_is_forbidden(&month.table, &text).await,
            Verdict::TableAbsent => self.set_aside(&resource.table, "absent", &text).await,
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
                self.note_month_failure(month, FailureKind::NotFound, &text).await
            }
            Verdict::ScopeFailed => {
                // Each that took too long has waited for limits.journal_timeout.
                self.note_month_failing(month, if too_long { 5 } else { 1 }, &text);
                self.note_month_failure(month, FailureKind::of(kind), &text).await
            }
        }
    }

    fn note_month_failing(&mut self, month: &DueMonth, weight: u32, why: &str) {
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
        self.set_aside(table, "forbidden", reason).await?;
        let table = table.to_owned();
        self.writer.run(move |conn| State::new(conn).forget_forbidden(&table)).await
    }

    /// Whether a 404 means that this office has no such journal: it is one that the mirror knows, others
    /// have one, and nothing of the month is mirrored, or it answered 404 `source.doubt` ago too.
    fn has_no_journal(&self, month: &DueMonth) -> Result<bool> {
        let conn = self.store.connection()?;
        let others = self.answered.contains(&month.table)
            || Books::new(&conn).resources()?.get(&month.table).is_some_and(|row| row.answered);
        Ok(others
            && self.knows(month.scope)?
            && State::new(&conn).month_may_be_empty(
                &month.table,
                month.scope,
                Timestamp::now() - self.config.source.doubt,
            )?)
    }

    /// A journal of which nobody's month was ever found is not there.
    async fn journal_is_absent(&mut self, table: &str) -> Result<()> {
        let name = table.to_owned();
        let absent = self.writer.run(move |conn| State::new(conn).forget_if_absent(&name)).await?;
        if absent {
            self.failed.remove(table);
            let why = "404 for every office whose journal was asked for";
            self.set_aside(table, "absent", why).await?;
        }
        Ok(())
    }

    async fn note_month_failure(
        &self,
        month: &DueMonth,
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        let JournalScope { id, .. } = month.scope;
        let scope = ScopeId { table: month.table.clone(), id, part: month.scope.part() };
        self.note_scope_failure(scope, kind, why, None).await
    }

    async fn read_offices(&mut self) -> Result<()> {
        let offices = self.active.iter().find(|r| r.table == "offices").cloned();
        if let Some(offices) = offices {
            self.read_list(&offices).await?;
            self.flush().await?;
        }
        Ok(())
    }
}
