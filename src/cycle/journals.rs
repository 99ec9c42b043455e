//! The journals' months: which are due, and reading them (docs/architecture.md, "Journals").

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::Cycle;
use super::due::Due;
use super::due_months::{FIRST_MONTH, Wanted, journal_ids, months_from};
use super::queue::Queue;
use super::signals::Interrupt;
use crate::error::{Error, Kind, Result};

use crate::mirror::{RunLog, State, id_column};
use crate::schedule::Name;
use crate::scope::{
    DueMonth, DueReason, JournalScope, Month, REVENUE, REVENUE_SUMS, TableStatus, Urgency, Work,
};

/// What `casemirror journals` asks for; its tables are the run's `only`.
#[derive(Debug, Clone)]
pub struct JournalRequest {
    pub(crate) from: Month,
    pub(crate) to: Month,
    /// Of `journals.level`; empty: those of the configuration, or all that are known.
    pub(crate) ids: Vec<i64>,
    /// The months are due in the store already: a run that had to give way goes on.
    pub(crate) planned: bool,
}

impl JournalRequest {
    fn months(&self) -> Vec<Month> {
        months_from(self.from, self.to)
    }
}

impl Cycle<'_> {
    /// Reads the months that are due: those that the schedules ask for, and what an earlier run left
    /// undone. What is due is in the store, so that a run which ends early leaves it to the next.
    pub(super) async fn follow_journals(&mut self, due: &Due) -> Result<()> {
        if !self.run.options.cases.is_empty() {
            return Ok(());
        }
        self.want_journals().await?;
        let tables = self.journal_tables();
        let scheduled = due.has(Name::Journals) || due.has(Name::JournalsRecheck);
        // Where the offices were not known when the schedule ran, nothing was planned.
        let unplanned = due.at.is_some() && !scheduled && {
            let conn = self.run.store.connection()?;
            let state = State::new(&conn);
            state.meta(FIRST_MONTH)?.is_some()
                && !state.months().has_journals(self.run.config.journals.level)?
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
        let (level, months) = (self.run.config.journals.level, request.months());
        let asked = tables.clone();
        let planned = request.planned;
        self.run
            .write({
                let ids = ids.clone();
                move |conn| {
                    if planned {
                        return Ok(());
                    }
                    let state = State::new(conn);
                    state.months().months_are_due(
                        &asked,
                        level,
                        &ids,
                        &months,
                        Some(DueReason::AskedFor),
                    )?;
                    // Who asks does not wait for a backoff.
                    state.months().months_wait_no_longer(&asked, &ids)
                }
            })
            .await?;
        self.read_due(&tables, Some((request, &ids))).await
    }

    /// Offices that have come, or come back, are wanted like those that are known.
    async fn want_journals(&self) -> Result<()> {
        let config = Arc::clone(&self.run.config);
        if State::new(&self.run.store.connection()?)
            .wanted_months()
            .all_are_wanted(&config.journals)?
        {
            return Ok(());
        }
        self.run
            .write(move |conn| State::new(conn).wanted_months().want_journals(&config.journals))
            .await
    }

    /// Refuses ids that were typed and mean nobody: the mirror does not know them, and each of their
    /// journals is answered 404. What has no journal looks the same, and would be a month without lines.
    async fn refuse_strangers(&self, tables: &[String], request: &JournalRequest) -> Result<()> {
        let level = self.run.config.journals.level;
        let mut resources: Vec<_> =
            tables.iter().filter_map(|table| self.run.catalog.get(table)).collect();
        // A control total is the cheapest of them.
        resources.sort_by_key(|resource| resource.table != REVENUE_SUMS);
        let mut unknown_ids = Vec::new();
        for id in &request.ids {
            let scope = JournalScope { level, id: *id, month: request.to };
            if self.run.knows(scope)? || resources.is_empty() {
                continue;
            }
            let mut is_known = false;
            for resource in &resources {
                // An error says nothing about the id: it comes again when the months are read.
                is_known = self.run.extractor.has_journal(resource, scope).await.unwrap_or(true);
                if is_known {
                    break;
                }
            }
            if !is_known {
                unknown_ids.push(id.to_string());
            }
        }
        if unknown_ids.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Kind::Usage,
            format!(
                "--ids {}: the source has no such journals; with journals.level = \"{level}\" the ids \
                 are those of the column offices.{}",
                unknown_ids.join(","),
                id_column(level)
            ),
        ))
    }

    /// The journals' tables that this run reads.
    fn journal_tables(&self) -> Vec<String> {
        self.fetcher
            .answers
            .tables
            .journals()
            .filter(|r| self.run.options.wants(&r.table))
            .map(|r| r.table.clone())
            .collect()
    }

    pub(super) fn journal_ids(&self, named: &[i64]) -> Result<Vec<i64>> {
        journal_ids(&self.run.store.connection()?, &self.run.config, named)
    }

    /// Makes due what the schedules ask for; `anyway` as if `schedule.journals` did. The months of tables
    /// that cannot be read are in the store too: they should be there.
    async fn plan_months(&self, tables: &[String], due: &Due, anyway: bool) -> Result<()> {
        let mut plan = Wanted::of(&self.run.store.connection()?, &self.run.config, due)?;
        plan.scheduled |= anyway;
        let level = self.run.config.journals.level;
        let tables = tables.to_vec();
        let all = self.run.catalog.journals();
        let at = due.at.unwrap_or_else(Timestamp::now);
        self.run
            .write(move |conn| {
                let state = State::new(conn);
                state.set_meta(FIRST_MONTH, &plan.first.to_string())?;
                state.wanted_months().leave_other_journals(level, &plan.ids)?;
                // What is due is in the store from here on: the schedules have done their part.
                let ran =
                    [(plan.scheduled, Name::Journals), (plan.rechecked, Name::JournalsRecheck)];
                for (_, name) in ran.iter().filter(|(ran, _)| *ran && !plan.ids.is_empty()) {
                    RunLog::new(conn).set_schedule(name.as_str(), at)?;
                }
                if plan.rechecked {
                    let why = Some(DueReason::Recheck);
                    let (sums, journals): (Vec<_>, Vec<_>) =
                        tables.iter().cloned().partition(|table| table == REVENUE_SUMS);
                    state.months().months_are_due(
                        &journals,
                        level,
                        &plan.ids,
                        &plan.recheck,
                        why,
                    )?;
                    for table in &sums {
                        state.months().synced_months_are_due(table, DueReason::Recheck)?;
                    }
                    state.months().rejected_months_are_due()?;
                }
                if plan.scheduled {
                    state.months().months_are_due(&all, level, &plan.ids, &plan.all, None)?;
                    let why = Some(DueReason::Schedule);
                    state.months().months_are_due(
                        &tables,
                        level,
                        &plan.ids,
                        &plan.trailing,
                        why,
                    )?;
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
        let level = self.run.config.journals.level;
        let mut reread: BTreeSet<(i64, Month)> = BTreeSet::new();
        let mut tried: BTreeSet<(String, i64, Month)> = BTreeSet::new();
        loop {
            let mut due = {
                let conn = self.run.store.connection()?;
                State::new(&conn).months().due_months(tables, level, Timestamp::now())?
            };
            if let Some((request, ids)) = only {
                let months = request.from..=request.to;
                due.retain(|d| months.contains(&d.scope.month) && ids.contains(&d.scope.id));
            }
            due.retain(|d| {
                !self.fetcher.answers.findings.gives_up(&d.table)
                    && self.fetcher.answers.tables.is_active(&d.table)
            });
            due.retain(|d| !tried.contains(&(d.table.clone(), d.scope.id, d.scope.month)));
            // A sum is asked after the lines that it is held against.
            let (sums, lines): (Vec<_>, Vec<_>) =
                due.into_iter().partition(|d| d.table == REVENUE_SUMS);
            if sums.is_empty() && lines.is_empty() {
                // What gave way and is not due any more is nobody's.
                if only.is_none() && !self.run.options.is_partial() {
                    self.run.months.forget();
                }
                return Ok(());
            }
            let totals: BTreeSet<(i64, Month)> =
                sums.iter().map(|due| (due.scope.id, due.scope.month)).collect();
            tried.extend(self.read_months(lines).await?);
            tried.extend(self.read_months(sums).await?);
            if self.run.signals.interrupt() != Interrupt::None {
                // The rest is due still.
                self.fetcher.answers.report.interrupted = true;
                return Ok(());
            }
            // Where the sum is that of doubted lines, it is those that are read again.
            let confirmed = if totals.is_empty() {
                Vec::new()
            } else {
                let confirmed =
                    move |conn: &_| State::new(conn).confirmed_months_wait_no_longer(level);
                self.run.write(confirmed).await?
            };
            let off = self.off_their_sums(&totals, &reread).await?;
            let off: BTreeSet<(i64, Month)> = off
                .into_iter()
                .chain(confirmed.iter().copied())
                .filter(|month| totals.contains(month) && !reread.contains(month))
                .collect();
            reread.extend(&off);
            if !off.is_empty() && tables.iter().any(|t| t == REVENUE) {
                tracing::info!(months = off.len(), "lines that do not add up are read again");
                let confirms = |id, month| confirmed.contains(&(id, month));
                tried.retain(|(table, id, month)| table != REVENUE || !confirms(*id, *month));
                self.run
                    .write(move |conn| {
                        let state = State::new(conn);
                        let tables = [REVENUE, REVENUE_SUMS].map(str::to_owned);
                        let why = Some(DueReason::OffItsSum);
                        off.iter().try_for_each(|(id, month)| {
                            state.months().months_are_due(&tables, level, &[*id], &[*month], why)
                        })
                    })
                    .await?;
            }
        }
    }

    /// The months whose lines do not add up to the sums that were just read after them, unless that is
    /// known to be no fault of theirs. `again`: those that were read once more in this run.
    async fn off_their_sums(
        &self,
        totals: &BTreeSet<(i64, Month)>,
        again: &BTreeSet<(i64, Month)>,
    ) -> Result<Vec<(i64, Month)>> {
        if totals.is_empty() {
            return Ok(Vec::new());
        }
        let (level, totals, again) =
            (self.run.config.journals.level, totals.clone(), again.clone());
        let compare = move |conn: &_| {
            State::new(conn).learned().compare_sums(level, &totals, &again, Timestamp::now())
        };
        let compared = self.run.write(compare).await?;
        if let Some((id, month)) = compared.no_control.first() {
            tracing::warn!(
                months = compared.no_control.len(),
                first = %JournalScope { level, id: *id, month: *month },
                "the platform's sum is no control of its lines: three rounds found the same \
                 difference, and nothing changed; the lines are not read again for it"
            );
        }
        Ok(compared.off)
    }

    /// Reads months; returns those that could not be read completely: table, id, month.
    async fn read_months(&mut self, due: Vec<DueMonth>) -> Result<Vec<(String, i64, Month)>> {
        self.run.progress.step("reading the journals");
        self.run.progress.more(due.len() as u64);
        let work = due.into_iter().map(Work::Month);
        let notes = self.fetcher.fetch(Queue::of(Urgency::Due, work)).await?;
        // Ids that were typed may be wrong.
        if self.run.options.journals.is_none() {
            for table in notes.found_nowhere() {
                self.journal_is_absent(table).await?;
            }
        }
        Ok(notes.lacking)
    }

    async fn read_offices(&mut self) -> Result<()> {
        let offices = self.fetcher.answers.tables.get("offices").cloned();
        if let Some(offices) = offices {
            let table = offices.table.clone();
            self.fetcher.fetch(Queue::of(Urgency::Due, [Work::List { table }])).await?;
        }
        Ok(())
    }

    /// A journal of which nobody's month was ever found is not there.
    async fn journal_is_absent(&mut self, table: &str) -> Result<()> {
        let name = table.to_owned();
        let absent =
            self.run.write(move |conn| State::new(conn).months().forget_if_absent(&name)).await?;
        if absent {
            self.fetcher.answers.findings.forget_failure(table);
            let why = "404 for every office whose journal was asked for";
            self.fetcher.answers.tables.set_aside(table, TableStatus::Absent, why).await?;
        }
        Ok(())
    }
}
