//! The scopes of cases, planned: what of them is stale, and when they are clean.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use super::Run;
use super::answers::Answers;
use crate::catalog::{Group, Resource};
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::plan::{self, CasePlan, Inputs, Since};
use crate::scope::{CaseState, FetchStatus, Fetched, Mark, Place, Stale};

/// The plans of cases, by what the run has come to so far.
pub(super) struct CasePlans<'a, 'r> {
    pub(super) answers: &'a Answers<'r>,
}

impl CasePlans<'_, '_> {
    /// Plans cases of a batch, in the tables `only`; empty: in all.
    pub(crate) fn of(
        &self,
        batch: &[CaseState],
        only: &[String],
    ) -> Result<Vec<(CaseState, CasePlan)>> {
        let Answers { run, tables, planned, .. } = self.answers;
        let (conn, day) = (run.store.connection()?, since(&run.config)?);
        let mut plans = plan_cases(&conn, batch, tables.active(), only, day)?;
        for (case, plan) in &mut plans {
            let tried = plan.stale.extract_if(.., |stale| planned.was_tried(case, stale));
            plan.waiting.extend(tried);
        }
        Ok(plans)
    }

    /// What is stale of these cases beside their search rows, in the tables `only`; empty: in all.
    pub(crate) fn stale(&self, cases: &[CaseState], only: &[String]) -> Result<Vec<Stale>> {
        Ok(self.stale_and_postponed(cases, only)?.0)
    }

    /// The same, and the cases of which more may be stale once that is read: what a `[condition]` looks at is among
    /// it.
    pub(crate) fn stale_and_postponed(
        &self,
        cases: &[CaseState],
        only: &[String],
    ) -> Result<(Vec<Stale>, Vec<i64>)> {
        let Answers { run, findings, .. } = self.answers;
        let is_read_alone =
            |table: &str| run.catalog.get(table).is_some_and(|r| r.group == Group::Case);
        let looked_at = |waits: &Stale| {
            let condition = run.catalog.get(&waits.table)?.condition.as_ref()?;
            Some(condition.table.as_str())
        };
        let (mut stale, mut postponed) = (Vec::new(), Vec::new());
        for (case, plan) in self.of(cases, only)? {
            let is_read = |table: &str| plan.stale.iter().any(|stale| stale.table == table);
            if plan.waiting.iter().filter_map(looked_at).any(is_read) {
                postponed.push(case.case_id);
            }
            stale.extend(plan.stale);
        }
        stale.retain(|stale| is_read_alone(&stale.table) && !findings.gives_up(&stale.table));
        Ok((stale, postponed))
    }

    /// The same cases, as the store has them now.
    pub(crate) fn reload(&self, batch: &[CaseState]) -> Result<Vec<CaseState>> {
        let ids: Vec<i64> = batch.iter().map(|c| c.case_id).collect();
        let conn = self.answers.run.store.connection()?;
        State::new(&conn).cases().dirty_cases(None, &ids, ids.len())
    }

    /// Cases with nothing left to do are clean.
    pub(crate) async fn clean(&self, batch: &[CaseState]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let run = self.answers.run;
        let marks = State::new(&run.store.connection()?).stale_marks().count()?;
        let done: Vec<(i64, i64)> = self
            .of(batch, &run.options.only)?
            .into_iter()
            .filter(|(_, plan)| plan.stale.is_empty() && plan.waiting.is_empty())
            .map(|(case, _)| (case.case_id, case.moved))
            .collect();
        run.write(move |conn| State::new(conn).cases().clean(&done, marks)).await
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

/// Makes the cases follow `bootstrap.since`.
pub(super) async fn follow_since(run: &Run) -> Result<()> {
    let since = since(&run.config)?;
    if State::new(&run.store.connection()?).stale_marks().are_cases_wanted_since(since)? {
        return Ok(());
    }
    let catalog = Arc::clone(&run.catalog);
    run.write(move |conn| {
        // Contacts are those whom the roles of cases name.
        let hangs_on_cases = |table: &str| {
            table == Place::Contacts.table()
                || catalog.get(table).is_some_and(|resource| resource.group == Group::Case)
        };
        let tables: Vec<&str> = catalog
            .resources()
            .iter()
            .filter(|resource| hangs_on_cases(resource.read_with()))
            .map(|resource| resource.table.as_str())
            .collect();
        State::new(conn).stale_marks().cases_are_wanted_since(since, &tables)
    })
    .await
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
    let known = Known {
        fetched: state.scopes().fetched(&ids, false)?,
        hints: state.hints().of(&ids)?,
        failures: state.failures().failures()?,
    };
    plan_by(conn, batch, active, only, day, &known)
}

/// The same for cases of which `schedule.reconcile` has these scopes (table and case) read again.
pub(crate) fn plan_rereading(
    conn: &duckdb::Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    day: Option<i64>,
    is_reread: impl Fn(&(String, i64)) -> bool,
) -> Result<Vec<(CaseState, CasePlan)>> {
    let state = State::new(conn);
    let ids: Vec<i64> = batch.iter().map(|case| case.case_id).collect();
    let mut fetched = state.scopes().fetched(&ids, false)?;
    for (_, fetched) in fetched.iter_mut().filter(|(scope, _)| is_reread(scope)) {
        fetched.status = FetchStatus::Asked(Mark::Reread);
    }
    let (hints, failures) = (state.hints().of(&ids)?, state.failures().failures()?);
    plan_by(conn, batch, active, &[], day, &Known { fetched, hints, failures })
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

/// What is known of scopes, by table and id.
#[derive(Default)]
struct Known {
    fetched: HashMap<(String, i64), Fetched>,
    /// The number of the last hint.
    hints: HashMap<(String, i64), i64>,
    /// Until when what failed waits, in microseconds.
    failures: HashMap<(String, i64), i64>,
}

fn plan_by(
    conn: &duckdb::Connection,
    batch: &[CaseState],
    active: &[Arc<Resource>],
    only: &[String],
    day: Option<i64>,
    Known { fetched, hints, failures }: &Known,
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
        hints,
        failures,
        values: &values,
        lookups: &lookups,
        since: since.as_ref(),
        only,
        now_us: Timestamp::now().as_microsecond(),
    };
    Ok(batch.iter().map(|case| (case.clone(), plan::plan_case(case, &inputs))).collect())
}
