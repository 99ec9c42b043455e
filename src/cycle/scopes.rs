//! The scopes of cases: planned in batches, newest change first; what their answers mean.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use super::Cycle;
use super::fetch::MOST_CHANGES;
use super::queue::Queue;
use super::signals::Interrupt;
use crate::catalog::{Group, Resource};
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::plan::{self, CasePlan, Inputs, Since};
use crate::scope::{CaseState, FetchStatus, Fetched, Mark, Stale, Urgency, Work};

/// Cases planned at once. Their scopes, at 25 a case, keep the source busy for an hour at ten calls
/// a second; what changes meanwhile is taken in between.
const BATCH_CASES: usize = 1_000;

impl Cycle<'_> {
    /// Says which of the cases that were asked for by id are not known: nothing is read of them.
    pub(super) fn check_cases(&mut self) -> Result<()> {
        if self.run.options.cases.is_empty() {
            return Ok(());
        }
        let known = State::new(&self.run.store.connection()?)
            .verifications()
            .cases(&self.run.options.cases)?;
        for id in self.run.options.cases.clone() {
            if !known.iter().any(|case| case.case_id == id) {
                self.answers.report.problem(format!(
                    "case {id}: no such case is known; neither a listing nor the change feed has named it"
                ));
            }
        }
        Ok(())
    }

    /// Goes once through all cases that may have something stale. Returns how many scopes were read.
    pub(super) async fn read_cases(&mut self) -> Result<usize> {
        let now = Timestamp::now().as_microsecond();
        self.run.write(move |conn| State::new(conn).stale_marks().wake_again(now)).await?;
        let mut after = None;
        let mut read = 0;
        // What was seen up to here is among them.
        self.answers.planned.covers(self.run.sequence()?);
        loop {
            let batch = {
                let conn = self.run.store.connection()?;
                State::new(&conn).cases().dirty_cases(
                    after,
                    &self.run.options.cases,
                    BATCH_CASES,
                )?
            };
            let Some(last) = batch.last() else { return Ok(read) };
            if self.run.signals.interrupt() != Interrupt::None {
                return Ok(read);
            }
            after = Some((last.dates[0].unwrap_or(i64::MIN), last.case_id));
            read += self.read_batch(&batch).await?;
        }
    }

    /// Before work that takes long, what has changed of the cases that were read before: one batch of
    /// them, because a backfill is no change.
    pub(super) async fn read_changed_cases(&mut self) -> Result<()> {
        let batch = {
            let conn = self.run.store.connection()?;
            State::new(&conn).cases().changed_cases(&self.run.options.cases, BATCH_CASES)?
        };
        self.read_batch(&batch).await?;
        if self.wants_contacts() {
            self.search_contacts(Some(MOST_CHANGES)).await?;
        }
        Ok(())
    }

    async fn read_batch(&mut self, batch: &[CaseState]) -> Result<usize> {
        let searched = self.search_batch(batch, &self.run.options.only.clone()).await?;
        // What a case is decides what is read of it: planned after its row is there.
        let batch = if searched > 0 { self.reload(batch)? } else { batch.to_vec() };
        let stale = self.stale_scopes(&batch, &self.run.options.only)?;
        let read = stale.len();
        self.run.progress.step("fetching what is stale");
        self.run.progress.more(read as u64);
        let work = stale.into_iter().map(Work::Case);
        self.fetch(Queue::of(Urgency::Backlog, work)).await?;
        self.clean(&batch).await?;
        Ok(searched + read)
    }

    /// What is stale of these cases beside their search rows, in the tables `only`; empty: in all.
    pub(super) fn stale_scopes(&self, cases: &[CaseState], only: &[String]) -> Result<Vec<Stale>> {
        Ok(self
            .plan(cases, only)?
            .into_iter()
            .flat_map(|(_, plan)| plan.stale)
            .filter(|stale| {
                self.is_case_scope(&stale.table) && !self.answers.findings.gives_up(&stale.table)
            })
            .collect())
    }

    /// The same cases, as the store has them now.
    pub(super) fn reload(&self, batch: &[CaseState]) -> Result<Vec<CaseState>> {
        let ids: Vec<i64> = batch.iter().map(|c| c.case_id).collect();
        let conn = self.run.store.connection()?;
        State::new(&conn).cases().dirty_cases(None, &ids, ids.len())
    }

    fn is_case_scope(&self, table: &str) -> bool {
        self.run.catalog.get(table).is_some_and(|r| r.group == Group::Case)
    }

    /// Plans cases of a batch, in the tables `only`; empty: in all.
    pub(super) fn plan(
        &self,
        batch: &[CaseState],
        only: &[String],
    ) -> Result<Vec<(CaseState, CasePlan)>> {
        let conn = self.run.store.connection()?;
        let mut plans =
            plan_cases(&conn, batch, self.answers.tables.active(), only, since(&self.run.config)?)?;
        for (case, plan) in &mut plans {
            let tried =
                plan.stale.extract_if(.., |stale| self.answers.planned.was_tried(case, stale));
            plan.waiting.extend(tried);
        }
        Ok(plans)
    }

    /// Cases with nothing left to do are clean.
    pub(super) async fn clean(&self, batch: &[CaseState]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let marks = State::new(&self.run.store.connection()?).stale_marks().count()?;
        let done: Vec<(i64, i64)> = self
            .plan(batch, &self.run.options.only)?
            .into_iter()
            .filter(|(_, plan)| plan.stale.is_empty() && plan.waiting.is_empty())
            .map(|(case, _)| (case.case_id, case.moved))
            .collect();
        self.run.write(move |conn| State::new(conn).cases().clean(&done, marks)).await
    }
}

/// `bootstrap.since` in ticks: the first instant of that day at the source.
pub(crate) fn since(config: &crate::config::Config) -> Result<Option<i64>> {
    let Some(day) = config.bootstrap.since else { return Ok(None) };
    let start = day
        .to_zoned(config.source.time_zone.clone())
        .and_then(|z| z.start_of_day())
        .map_err(|e| Error::caused(Kind::Config, format!("bootstrap.since = {day}"), e))?;
    Ok(Some(crate::ticks::Ticks::from(start.timestamp()).get()))
}

/// Plans cases from what the store says on `conn`; `day` is `bootstrap.since` in ticks.
pub(crate) fn plan_cases(
    conn: &duckdb::Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    only: &[String],
    day: Option<i64>,
) -> Result<Vec<(CaseState, CasePlan)>> {
    let state = State::new(conn);
    let ids: Vec<i64> = batch.iter().map(|case| case.case_id).collect();
    let known = (state.scopes().fetched(&ids, false)?, state.failures().failures()?);
    plan_by(conn, batch, active, only, day, &known)
}

/// The same for cases that `schedule.reconcile` has read whole again.
pub(crate) fn plan_rereading(
    conn: &duckdb::Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    day: Option<i64>,
) -> Result<Vec<(CaseState, CasePlan)>> {
    let state = State::new(conn);
    let ids: Vec<i64> = batch.iter().map(|case| case.case_id).collect();
    let mut fetched = state.scopes().fetched(&ids, false)?;
    fetched.values_mut().for_each(|fetched| fetched.status = FetchStatus::Asked(Mark::Reread));
    plan_by(conn, batch, active, &[], day, &(fetched, state.failures().failures()?))
}

/// Everything that is read of these cases, as if nothing had been read yet: table and case.
pub(crate) fn scopes_of(
    conn: &duckdb::Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    day: Option<i64>,
) -> Result<Vec<(String, i64)>> {
    let plans = plan_by(conn, batch, active, &[], day, &Known::default())?;
    // What waits is asked for once something else is read: nothing has failed.
    let stale = plans.into_iter().flat_map(|(_, plan)| plan.stale.into_iter().chain(plan.waiting));
    Ok(stale.map(|stale| (stale.table, stale.id)).collect())
}

/// What was fetched, and until when what failed waits.
type Known = (HashMap<(String, i64), Fetched>, HashMap<(String, i64), i64>);

fn plan_by(
    conn: &duckdb::Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    only: &[String],
    day: Option<i64>,
    (fetched, failures): &Known,
) -> Result<Vec<(CaseState, CasePlan)>> {
    let state = State::new(conn);
    let ids: Vec<i64> = batch.iter().map(|case| case.case_id).collect();
    let mut values = HashMap::new();
    for condition in active.iter().filter_map(|r| r.condition.as_ref()) {
        let key = (condition.table.clone(), condition.column.clone());
        if let Entry::Vacant(entry) = values.entry(key) {
            entry.insert(state.scopes().condition_values(condition, &ids)?);
        }
    }
    let mut lookups = HashMap::new();
    for resource in active {
        if let Some(lookup) = &resource.lookup {
            lookups.insert(resource.table.clone(), state.scopes().lookup_values(lookup, &ids)?);
        }
    }
    let since = match day {
        Some(day) => {
            let unreported: Vec<i64> =
                batch.iter().filter(|case| !case.reported).map(|case| case.case_id).collect();
            let newest = state.cases().newest_dates(&unreported)?;
            Some(Since { day, reach: state.cases().feed_reach()?, newest })
        }
        None => None,
    };
    let inputs = Inputs {
        resources: active,
        fetched,
        failures,
        values: &values,
        lookups: &lookups,
        since: since.as_ref(),
        only,
        now_us: Timestamp::now().as_microsecond(),
    };
    Ok(batch.iter().map(|case| (case.clone(), plan::plan_case(case, &inputs))).collect())
}
