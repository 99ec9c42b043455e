//! What is stale and why, for `sync.pending`, `status` and `report.snapshot`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use duckdb::Connection;

use crate::catalog::{Catalog, Group, JOURNAL_COLUMNS, Resource};
use crate::config::Config;
use crate::cycle::{plan_cases, since};
use crate::error::Result;
use crate::mirror::{FIRST_MONTH, ResourceRow, RunLog, State, is_asked, zone_is_read};
use crate::scope::{Mark, Place, Reason};

/// One stale scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingScope {
    pub(crate) table: String,
    /// The case, the contact, or empty for a whole list.
    pub(crate) scope: String,
    pub(crate) reason: String,
    /// It was never fetched completely, as far as the store tells.
    pub(crate) never: bool,
}

/// What of a table is stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PendingTable {
    /// How many scopes.
    pub(crate) scopes: usize,
    /// Why they are, and how many for each reason.
    pub(crate) reasons: BTreeMap<String, usize>,
    /// Some were never fetched.
    pub(crate) never: bool,
}

/// Reasons of a table that are told apart. Errors can be as many as scopes.
const MOST_REASONS: usize = 8;
/// Where there are more, one stands for all.
const MOST_TOLD: usize = 3;
/// What all beyond them are counted as.
const OTHER_REASONS: &str = "other reasons";

impl PendingTable {
    /// So many scopes more that are stale for this reason.
    pub(crate) fn add(&mut self, scopes: usize, reason: &str, never: bool) {
        self.scopes += scopes;
        self.never |= never;
        let known = self.reasons.len() < MOST_REASONS || self.reasons.contains_key(reason);
        let reason = if known { reason } else { OTHER_REASONS };
        match self.reasons.get_mut(reason) {
            Some(count) => *count += scopes,
            None => drop(self.reasons.insert(reason.to_owned(), scopes)),
        }
    }

    /// The reasons that are told, with their scopes, the most frequent first. Errors that each name their own scope
    /// are told by one of them.
    pub(crate) fn told(&self) -> Vec<(String, usize)> {
        let mut all: Vec<(String, usize)> =
            self.reasons.iter().map(|(reason, count)| (reason.clone(), *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if all.len() <= MOST_TOLD {
            return all;
        }
        let example = all.into_iter().map(|(reason, _)| reason).find(|r| r != OTHER_REASONS);
        let example = example.unwrap_or_default();
        vec![(format!("{example}; and for other reasons, see sync.pending"), self.scopes)]
    }

    /// Why, in a line: `changed`, or `changed (42), never fetched (6)`.
    pub(crate) fn reason(&self) -> String {
        match self.told().as_slice() {
            [(reason, _)] => reason.clone(),
            all => {
                let counted = all.iter().map(|(reason, count)| format!("{reason} ({count})"));
                counted.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// What is stale, per table.
pub(crate) type Pending = BTreeMap<String, PendingTable>;

/// Scopes handed on at once. During a bootstrap nearly every scope is stale, which is millions.
const CHUNK: usize = 10_000;

/// Counts scopes, and hands them on a chunk at a time.
struct Collector<F> {
    pending: Pending,
    chunk: Vec<PendingScope>,
    hand_on: F,
}

impl<F: FnMut(Vec<PendingScope>) -> Result<()>> Collector<F> {
    fn push(&mut self, scope: PendingScope) -> Result<()> {
        // Not a name copied for each of millions.
        if !self.pending.contains_key(&scope.table) {
            self.pending.insert(scope.table.clone(), PendingTable::default());
        }
        if let Some(table) = self.pending.get_mut(&scope.table) {
            table.add(1, &scope.reason, scope.never);
        }
        self.chunk.push(scope);
        if self.chunk.len() == CHUNK {
            return (self.hand_on)(std::mem::take(&mut self.chunk));
        }
        Ok(())
    }

    /// What is stale of cases. Those that were not read yet, as staged on `conn`, are counted, and shown
    /// by `sync.pending` itself.
    fn cases(
        &mut self,
        conn: &Connection,
        active: &[Arc<Resource>],
        since: Option<i64>,
        errors: &Errors,
    ) -> Result<()> {
        let state = State::new(conn);
        for (table, scopes) in state.unread().count(active)? {
            let scopes = usize::try_from(scopes).unwrap_or(usize::MAX);
            let table = self.pending.entry(table).or_default();
            table.add(scopes, &Reason::New.to_string(), true);
        }
        let mut after = None;
        loop {
            let batch = state.cases().dirty_cases_that_were_read(after, BATCH)?;
            let Some(last) = batch.last() else { return Ok(()) };
            after = Some((last.dates[0].unwrap_or(i64::MIN), last.case_id));
            for (_, plan) in plan_cases(conn, &batch, active, &[], since)? {
                for stale in plan.stale.into_iter().chain(plan.waiting) {
                    let error = errors.get(&(stale.table.clone(), stale.id));
                    self.push(PendingScope {
                        reason: error.cloned().unwrap_or_else(|| stale.reason.to_string()),
                        never: matches!(stale.reason, Reason::New | Reason::Incomplete),
                        scope: stale.id.to_string(),
                        table: stale.table,
                    })?;
                }
            }
        }
    }

    /// What is stale of a table that is no case's and no journal.
    fn table(&mut self, state: &State<'_>, resource: &Resource, errors: &Errors) -> Result<()> {
        let table = || resource.table.clone();
        match &resource.group {
            Group::ForEach(each) => {
                for (id, reason, never) in state.scopes().why_each_is_stale(resource, each)? {
                    let scope = id.to_string();
                    self.push(PendingScope { table: table(), scope, reason, never })?;
                }
            }
            Group::List if resource.schedule.is_some() => {
                if let Some((reason, never)) = state.scopes().why_list_is_stale(&resource.table)? {
                    let scope = String::new();
                    self.push(PendingScope { table: table(), scope, reason, never })?;
                }
            }
            Group::Ids if resource.table == "contacts" => {
                for (id, never) in state.contacts().contacts_unfetched()? {
                    let own = if never { "never fetched" } else { "changed" };
                    let error = errors.get(&(table(), id)).cloned();
                    let reason = error.unwrap_or_else(|| own.to_owned());
                    let scope = id.to_string();
                    self.push(PendingScope { table: table(), scope, reason, never })?;
                }
            }
            Group::Case
            | Group::Ids
            | Group::List
            | Group::Child(_)
            | Group::Events
            | Group::Journal(_) => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Pending> {
        if !self.chunk.is_empty() {
            (self.hand_on)(self.chunk)?;
        }
        Ok(self.pending)
    }
}

/// Why a scope failed when it was last read: by table and id.
type Errors = BTreeMap<(String, i64), String>;

/// Cases planned at once.
const BATCH: usize = 2_000;

/// The tables that are read.
fn active(conn: &Connection, catalog: &Catalog) -> Result<Vec<Arc<Resource>>> {
    let status = State::new(conn).statuses().all()?;
    let is_asked = |r: &&Arc<Resource>| status.get(&r.table).is_some_and(ResourceRow::is_asked);
    Ok(catalog.resources().iter().filter(is_asked).cloned().collect())
}

/// Notes the cases that were not read yet, which `sync.pending` shows: before [`collect_noted`] is called.
///
/// # Errors
/// Those of the store.
pub(crate) fn note_unread(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<()> {
    State::new(conn).unread().note(&active(conn, catalog)?, since(config)?)
}

/// Makes `sync.pending` show what is noted.
///
/// # Errors
/// Those of the store.
pub(crate) fn show(conn: &Connection, catalog: &Catalog) -> Result<()> {
    State::new(conn).unread().show(&active(conn, catalog)?)
}

/// Collects what is stale by the store on `conn`, table by table.
///
/// # Errors
/// Those of the store.
pub(crate) fn collect(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<Pending> {
    State::new(conn).unread().stage(&active(conn, catalog)?, since(config)?)?;
    collect_beside_unread(conn, config, catalog, |_| Ok(()))
}

/// The same after [`note_unread`]; hands on chunk by chunk what is stale of other cases, of lists and of
/// journals.
///
/// # Errors
/// Those of the store, and the first of `hand_on`.
pub(crate) fn collect_noted(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    hand_on: impl FnMut(Vec<PendingScope>) -> Result<()>,
) -> Result<Pending> {
    State::new(conn).unread().stage_noted()?;
    collect_beside_unread(conn, config, catalog, hand_on)
}

fn collect_beside_unread(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    hand_on: impl FnMut(Vec<PendingScope>) -> Result<()>,
) -> Result<Pending> {
    let (state, log) = (State::new(conn), RunLog::new(conn));
    let active = active(conn, catalog)?;
    let errors: Errors =
        log.failures(usize::MAX >> 1)?.into_iter().map(|f| ((f.table, f.id), f.error)).collect();
    let mut pending = Collector { pending: Pending::new(), chunk: Vec::new(), hand_on };
    pending.cases(conn, &active, since(config)?, &errors)?;
    for resource in &active {
        pending.table(&state, resource, &errors)?;
    }
    for (table, scope, reason, never) in state.months().pending_months()? {
        if active.iter().any(|r| r.table == table) {
            pending.push(PendingScope { table, scope: scope.to_string(), reason, never })?;
        }
    }
    pending.finish()
}

/// Tables of which every scope has been fetched once; they stay complete when a new case comes
/// (`report.snapshot`; docs/architecture.md, "Reports").
pub(crate) fn note_complete(conn: &Connection, pending: &Pending, catalog: &Catalog) -> Result<()> {
    let redefined = Reason::Asked(Mark::Redefined).to_string();
    let is_of_another_zone = |table: &PendingTable| {
        table.reasons.keys().any(|reason| *reason == redefined || reason == OTHER_REASONS)
    };
    if !pending.get(Place::Cases.table()).is_some_and(is_of_another_zone) {
        zone_is_read(conn, jiff::Timestamp::now())?;
    }
    let state = State::new(conn);
    let before = state.complete_tables()?;
    let complete = complete_by(conn, pending, catalog)?;
    if complete.len() == before.len() {
        return Ok(());
    }
    state.set_complete_tables(complete)
}

/// The tables that are complete by what is pending now, and those that were noted before.
fn complete_by(
    conn: &Connection,
    pending: &Pending,
    catalog: &Catalog,
) -> Result<BTreeSet<String>> {
    let state = State::new(conn);
    let mut complete = state.complete_tables()?;
    if !state.standings().are_listed()? {
        return Ok(complete);
    }
    // What is switched off, forbidden or not there lacks nothing, and has not been fetched either.
    let status = State::new(conn).statuses().all()?;
    let lacks = |table: &str| pending.get(table).is_some_and(|table| table.never);
    let planned = state.meta(FIRST_MONTH)?.is_some();
    // A child's rows come with its parent's scopes.
    let done = catalog
        .resources()
        .iter()
        .filter(|r| is_asked(r, &status) && !lacks(r.read_with()))
        // Which cases it is asked for is known when what its condition looks at was read.
        .filter(|r| r.condition.as_ref().is_none_or(|condition| !lacks(&condition.table)))
        // Journals and their annotations that no schedule has planned yet lack everything.
        .filter(|r| planned || r.column(JOURNAL_COLUMNS[2]).is_none());
    complete.extend(done.map(|r| r.table.clone()));
    Ok(complete)
}

/// Whether every scope that the configuration asks for has been fetched once, as far as was noted.
pub(crate) fn is_complete(conn: &Connection, catalog: &Catalog) -> Result<bool> {
    has_all(&State::new(conn).complete_tables()?, conn, catalog)
}

/// The same by what is pending now: it is noted only with the next publishing.
pub(crate) fn is_complete_by(
    conn: &Connection,
    pending: &Pending,
    catalog: &Catalog,
) -> Result<bool> {
    has_all(&complete_by(conn, pending, catalog)?, conn, catalog)
}

fn has_all(complete: &BTreeSet<String>, conn: &Connection, catalog: &Catalog) -> Result<bool> {
    let status = State::new(conn).statuses().all()?;
    Ok(catalog.resources().iter().filter(|resource| is_asked(resource, &status)).all(|resource| {
        let has_nothing_to_ask =
            status.get(&resource.table).is_some_and(|row| row.has_nothing_to_ask(&status));
        complete.contains(&resource.table) && !has_nothing_to_ask
    }))
}

#[cfg(test)]
mod tests;
