//! One cycle: poll, list, fetch what is stale, load, publish. The only place that sees all steps.

mod dependence;
mod due;
mod due_months;
mod errors;
mod feed_memory;
mod feeds;
mod fetch;
mod gone;
mod journals;
mod lists;
mod month_answers;
mod options;
mod permissions;
mod policy;
mod polls;
mod queue;
mod reach;
mod report;
mod run_log;
mod scopes;
mod search;
mod signals;
mod suspects;
mod wait;

pub(crate) use due::{Due, last_runs};
pub(crate) use due_months::planned_months;
pub(crate) use feeds::REREAD;
pub use journals::JournalRequest;
pub use options::Options;
pub(crate) use permissions::{is_granted, restriction};
pub(crate) use policy::{ends_run, month_takes_too_long, weight_of_month};
pub use polls::Polls;
pub(crate) use reach::{Unreached, is_out_of_reach};
pub use report::Report;
pub(crate) use run_log::{check_tenant, failed_text, page_sizes};
pub(crate) use scopes::{MOST_FAILURES, plan_cases, plan_rereading, scopes_of, since};
pub(crate) use search::IDS_PER_CALL;
pub(crate) use signals::{Controls, Interrupt};
pub use signals::{Notifier, Signals};

pub use crate::journals::MonthsUnderWay;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::catalog::{Catalog, Group, Resource};
use crate::config::{Config, Reread};
use crate::decode::Context;
use permissions::Granted;

use crate::error::Result;
use crate::extract::Extractor;
use crate::mirror::{Loader, ResourceRow, RunLog, State, Store};
use crate::progress::Progress;
use crate::schedule::Name;
use crate::scope::{DueReason, Mark, TableStatus};

/// What a cycle joins.
pub struct Parts {
    pub config: Arc<Config>,
    pub catalog: Arc<Catalog>,
    pub store: Arc<Store>,
    /// The loader of run `run_id`.
    pub writer: Loader,
    pub polls: Polls,
    pub context: Context,
    pub progress: Progress,
    pub run_id: i64,
    pub signals: Signals,
    /// Months whose reading gave way to others.
    pub months: MonthsUnderWay,
}

/// A cycle under way.
pub struct Cycle {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    writer: Loader,
    polls: Polls,
    extractor: Extractor,
    options: Options,
    progress: Progress,
    run_id: i64,
    report: Report,
    /// Tables that are read in this run.
    active: Vec<Arc<Resource>>,
    /// Tables of which some scope was read, or failed, in this run.
    answered: BTreeSet<String>,
    failed: BTreeMap<String, String>,
    /// Tables that are wrong as a whole, whatever else of them was read, and why.
    incomplete_tables: BTreeMap<String, String>,
    /// Scopes that failed in this run, with what had been planned by then.
    tried: HashMap<(String, i64), i64>,
    /// How many scopes failed in this run, of tables of which none was read.
    failures_in_a_row: BTreeMap<String, u32>,
    unreached: Unreached,
    granted: Granted,
    /// Tables that were forbidden or absent, and are tried again in this run.
    retried: BTreeMap<String, ResourceRow>,
    /// Per table with a part that a further permission shows, the scopes of which it is mirrored; read
    /// when it is first needed.
    with_part: HashMap<String, HashSet<i64>>,
    signals: Signals,
    /// Months whose reading gave way to others.
    months: MonthsUnderWay,
    /// Up to where what polls moved has been planned: a poll, and of its cases the last one.
    planned: (i64, i64),
}

/// Key of `sync.meta`: why the cases have to be listed, while they have not been.
pub(crate) const LISTING_DUE: &str = "listing_due";
/// A contact that no feed follows is read again after this long (docs/architecture.md, "What is due").
pub(crate) const CONTACT_AGE: Duration = Duration::from_secs(7 * 86_400);

impl Cycle {
    /// Nothing is called yet.
    pub fn new(parts: Parts, options: Options) -> Cycle {
        let client = parts.polls.client.clone();
        let extractor =
            Extractor::new(client, Arc::clone(&parts.catalog), parts.context, &parts.config);
        let handled = options.handled.unwrap_or_else(|| parts.signals.latest());
        Cycle {
            config: parts.config,
            catalog: parts.catalog,
            store: parts.store,
            writer: parts.writer,
            polls: parts.polls,
            extractor,
            options,
            progress: parts.progress,
            run_id: parts.run_id,
            report: Report { run_id: parts.run_id, ..Report::default() },
            active: Vec::new(),
            answered: BTreeSet::new(),
            failed: BTreeMap::new(),
            incomplete_tables: BTreeMap::new(),
            tried: HashMap::new(),
            failures_in_a_row: BTreeMap::new(),
            unreached: Unreached::default(),
            granted: Granted::default(),
            retried: BTreeMap::new(),
            with_part: HashMap::new(),
            signals: parts.signals,
            months: parts.months,
            planned: (handled, i64::MAX),
        }
    }

    /// Runs the cycle to its end.
    ///
    /// # Errors
    /// What ends the run: the source cannot be reached or refuses us, the feed cannot be read, the
    /// store fails. A resource or case that fails does not; it is in [`Report::problems`].
    pub async fn run(mut self) -> Result<Report> {
        self.progress.begin();
        let ran = self.work().await;
        // What was loaded before an error stays loaded, and is counted.
        let flushed = self.flush().await;
        let noted = self.close_run().await;
        ran.and(flushed).and(noted)?;
        self.report.handled = self.handled();
        Ok(self.report)
    }

    async fn work(&mut self) -> Result<()> {
        self.recall_page_sizes()?;
        let mut due =
            Due::of(&self.config, &self.store.connection()?, &self.options, Timestamp::now())?;
        self.report.verify_due = due.schedules.remove(&Name::Verify);
        self.check_tenant(due.has(Name::Reference)).await?;
        if self.options.allow_removals {
            // Who allows it does not wait for what it held.
            self.writer.run(|conn| State::new(conn).what_is_held_waits_no_longer()).await?;
        }
        self.align_statuses().await?;
        if due.has(Name::Reference) {
            self.read_permissions().await?;
        }
        self.choose_active()?;
        if let Some(request) = self.options.journals.clone() {
            return self.read_period(&request).await;
        }
        if !self.options.following {
            self.poll_feeds().await?;
        }
        self.check_cases()?;
        if self.options.full {
            let journals = self.catalog.journals();
            self.writer
                .run(move |conn| {
                    let state = State::new(conn);
                    for table in &journals {
                        state.months().synced_months_are_due(table, DueReason::Full)?;
                    }
                    // Kept until it is done, so that an interrupted run goes on with it.
                    state.set_meta(LISTING_DUE, "full")?;
                    state.stale_marks().everything_is_stale(Mark::Full)
                })
                .await?;
        }
        if due.takes_long() && !self.reads_everything()? {
            self.read_changed_cases().await?;
        }
        let done = self.catch_up(due).await?;
        self.follow().await?;
        // Noted last: what is killed before its end is due again.
        self.writer.run(move |conn| done.note(conn)).await
    }

    /// Whether everything is stale: `--full`, now or in a run that was interrupted.
    fn reads_everything(&self) -> Result<bool> {
        let conn = self.store.connection()?;
        Ok(State::new(&conn).meta(LISTING_DUE)?.as_deref() == Some("full"))
    }

    /// Does what is due. Returns what of it is done.
    async fn catch_up(&mut self, mut due: Due) -> Result<Due> {
        if due.listing {
            if self.list_cases().await? {
                self.writer.run(|conn| State::new(conn).set_meta(LISTING_DUE, "")).await?;
            } else {
                // It is tried again in the next run.
                due.schedules.remove(&Name::Reconcile);
                self.report.undone = true;
            }
        }
        if due.has(Name::Reconcile) {
            self.look_for_late_rows().await?;
        }
        if due.rereads(&self.config) {
            let all = self.config.reconcile.reread == Reread::All;
            let cases =
                self.writer.run(move |conn| State::new(conn).stale_marks().reread(all)).await?;
            tracing::info!(cases, "cases that changed since they were read whole are read again");
        }
        // Each is noted as soon as its part is done: an error in what follows must not repeat it.
        if due.has(Name::Reconcile) {
            self.note_run(Name::Reconcile, &due).await?;
        }
        if self.read_lists(due.has(Name::Reference)).await? {
            if due.has(Name::Reference) {
                self.note_run(Name::Reference, &due).await?;
            }
        } else {
            due.schedules.remove(&Name::Reference);
            self.report.undone = true;
        }
        // Before the cases: it has an end that does not depend on what else changes.
        self.follow_journals(&due).await?;
        Ok(due)
    }

    /// Fetches what is stale, and waits for what the search's lag needs, until nothing is left that
    /// can be done in this run.
    async fn follow(&mut self) -> Result<()> {
        let deadline = self.wait_deadline();
        let mut waited = i64::MIN;
        loop {
            let read = self.read_cases().await? + self.read_contacts().await?;
            if self.signals.interrupt() != Interrupt::None {
                self.report.interrupted = true;
                return Ok(());
            }
            if read > 0 || self.signals.latest() > self.handled() {
                continue;
            }
            if self.options.following {
                return Ok(());
            }
            match self.wait(deadline, waited).await? {
                Some(due) => waited = due,
                None => return Ok(()),
            }
        }
    }

    async fn note_run(&self, name: Name, due: &Due) -> Result<()> {
        let at = due.at.unwrap_or_else(Timestamp::now);
        self.writer.run(move |conn| RunLog::new(conn).set_schedule(name.as_str(), at)).await
    }

    /// What polls up to this number moved has been planned whole.
    fn handled(&self) -> i64 {
        match self.planned {
            (poll, i64::MAX) => poll,
            (poll, _) => poll - 1,
        }
    }

    pub(super) fn is_active(&self, table: &str) -> bool {
        self.active.iter().any(|r| r.table == table)
    }

    /// Commits what was loaded and adds it to the report.
    pub(super) async fn flush(&mut self) -> Result<()> {
        let outcome = self.writer.flush().await?;
        let handled = self.handled();
        self.tried.extend(outcome.held.iter().map(|scope| (scope.clone(), handled)));
        self.report.outcome.add(&outcome);
        let calls = self.extractor.client().take_calls();
        self.report.calls += calls.iter().map(|c| c.calls).sum::<u64>();
        self.progress.calls(self.report.calls);
        let run_id = self.run_id;
        self.writer.run(move |conn| RunLog::new(conn).add_calls(run_id, &calls)).await
    }

    pub(super) fn problem(&mut self, text: String) {
        if !self.report.problems.contains(&text) {
            self.report.problems.push(text);
        }
    }

    /// The number of the last poll: what an answer may be fetched at.
    pub(super) fn sequence(&self) -> Result<i64> {
        State::new(&self.store.connection()?).sequence()
    }

    /// The tables of this run: enabled, permitted, there.
    fn choose_active(&mut self) -> Result<()> {
        let conn = self.store.connection()?;
        let rows = RunLog::new(&conn).resources()?;
        self.active = self
            .catalog
            .resources()
            .iter()
            .filter(|r| !matches!(r.group, Group::Child(_)))
            .filter(|r| rows.get(&r.table).is_some_and(ResourceRow::is_asked))
            .cloned()
            .collect();
        Ok(())
    }

    /// A table that answered 403 or is not there is not asked again in this run.
    pub(super) async fn set_aside(
        &mut self,
        table: &str,
        status: TableStatus,
        reason: &str,
    ) -> Result<()> {
        self.active.retain(|r| r.table != table);
        tracing::warn!(
            table,
            status = status.name(),
            reason,
            "a table cannot be read and is left alone"
        );
        // One that was tried again in vain has been so all the time.
        let before = self.retried.get(table).filter(|row| row.status == status);
        let since = before.and_then(|row| row.since);
        let (table, reason) = (table.to_owned(), reason.to_owned());
        self.writer
            .run(move |conn| {
                let log = RunLog::new(conn);
                log.set_status(&table, status, Some(&reason))?;
                since.map_or(Ok(()), |since| log.set_since(&table, since))
            })
            .await
    }
}
