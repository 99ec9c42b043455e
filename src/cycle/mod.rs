//! One cycle: poll, list, fetch what is stale, load, publish. The only place that sees all steps.

mod ask;
mod books;
mod due;
mod fetch;
mod journals;
mod lists;
mod permissions;
mod polls;
mod scopes;
mod search;
mod signals;
mod wait;

pub use books::{check_tenant, page_sizes};
pub use due::{Due, last_runs};
pub use journals::{JournalRequest, planned_months};
pub use permissions::{is_granted, restriction};
pub use polls::Polls;
pub use scopes::{plan_cases, scopes_of, since};
pub use search::IDS_PER_CALL;
pub use signals::{Controls, Halt, News, Signals};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::catalog::{Catalog, Group, Resource};
use crate::config::{Config, Reread};
use crate::decode::Context;
use crate::error::{Error, Kind, Result};
use crate::extract::Extractor;
use crate::mirror::{Books, FAILURE_HELD, Lane, Outcome, ResourceRow, State, Store};
use crate::progress::Progress;
use crate::schedule::Name;
use crate::source::FeedName;
use crate::verify::Verified;

/// What a cycle is asked to do beside following the feed (contract section 1, `sync`).
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Everything is stale.
    pub full: bool,
    /// Only these tables; what is left out stays pending.
    pub only: Vec<String>,
    /// Only these cases.
    pub cases: Vec<i64>,
    /// Lifts the brake for this run.
    pub allow_removals: bool,
    /// Nothing but these journals.
    pub journals: Option<JournalRequest>,
    /// The daemon's own cycle: its poller asks the feeds, and what the search's lag holds back is left
    /// to a later cycle.
    pub following: bool,
    /// The listing that is due was tried a short time ago and has to wait.
    pub hold_listing: bool,
    /// After the cycle the mirror is held against the source, with so many cases read whole (contract
    /// section 6).
    pub verify: Option<usize>,
    /// What polls up to this number moved was planned by an earlier cycle; `None`: all that is known
    /// when it begins.
    pub handled: Option<i64>,
}

impl Options {
    /// `--only` and `--case` run no schedule.
    fn is_partial(&self) -> bool {
        !self.only.is_empty() || !self.cases.is_empty()
    }

    fn wants(&self, table: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|t| t == table)
    }
}

/// What a cycle did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub run_id: i64,
    pub outcome: Outcome,
    pub cases_moved: u64,
    pub contacts_moved: u64,
    /// What is not as it should be, in words; empty when the cycle is complete.
    pub problems: Vec<String>,
    pub calls: u64,
    /// What polls up to this number moved has been planned.
    pub handled: i64,
    /// It was asked to end before everything that can be done was done.
    pub halted: bool,
    /// Something that was due could not be done completely, and is due still.
    pub undone: bool,
    /// `schedule.verify` fell due. A cycle does not verify: who runs it does.
    pub verify_due: bool,
    /// What was compared with the source, where it was.
    pub verified: Option<Verified>,
}

impl Report {
    /// Adds what a later cycle of the same job did.
    pub fn continue_with(&mut self, later: Report) {
        self.run_id = later.run_id;
        self.outcome.add(&later.outcome);
        self.cases_moved += later.cases_moved;
        self.contacts_moved += later.contacts_moved;
        self.calls += later.calls;
        self.problems = later.problems;
        self.handled = later.handled;
        self.halted = later.halted;
        self.undone = later.undone;
        self.verify_due = later.verify_due;
        self.verified = later.verified.or(self.verified.take());
    }

    /// 4 when the mirror differs from the source, else 3 when something is incomplete, else 0 (contract
    /// section 1).
    pub fn exit_status(&self) -> u8 {
        match &self.verified {
            Some(verified) if verified.differences() > 0 => 4,
            _ if self.problems.is_empty() => 0,
            _ => 3,
        }
    }
}

/// What a cycle joins.
pub struct Parts {
    pub config: Arc<Config>,
    pub catalog: Arc<Catalog>,
    pub store: Arc<Store>,
    /// The lane of run `run_id`.
    pub writer: Lane,
    pub polls: Polls,
    pub context: Context,
    pub progress: Progress,
    pub run_id: i64,
    pub signals: Signals,
}

/// A cycle under way.
pub struct Cycle {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    writer: Lane,
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
    distrusted: BTreeMap<String, String>,
    /// Scopes that failed in this run, with what had been planned by then.
    tried: HashMap<(String, i64), i64>,
    /// How many scopes failed in this run, of tables of which none was read.
    failures_in_a_row: BTreeMap<String, u32>,
    /// Calls in a row that did not reach the source.
    unreachable: u32,
    /// When a part of a table's rows was last asked after.
    permissions_read: Option<Instant>,
    signals: Signals,
    /// Up to where what polls moved has been planned: a poll, and of its cases the last one.
    planned: (i64, i64),
}

/// So many scopes in a row that cannot reach the source end the run: the rest would fail as well.
const MOST_UNREACHABLE: u32 = 8;
/// So much of the feeds is read again when the cases are listed.
const REREAD: Duration = Duration::from_secs(48 * 3600);
/// Key of `sync.meta`: why the cases have to be listed, while they have not been.
pub(crate) const LISTING_DUE: &str = "listing_due";
/// A contact that no feed follows is read again after this long (contract section 4).
pub const CONTACT_AGE: Duration = Duration::from_secs(7 * 86_400);

impl Cycle {
    /// Nothing is called yet.
    pub fn new(parts: Parts, options: Options) -> Cycle {
        let client = parts.polls.client.clone();
        let extractor =
            Extractor::new(client, Arc::clone(&parts.catalog), parts.context, &parts.config);
        let handled = options.handled.unwrap_or_else(|| parts.signals.news());
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
            distrusted: BTreeMap::new(),
            tried: HashMap::new(),
            failures_in_a_row: BTreeMap::new(),
            unreachable: 0,
            permissions_read: None,
            signals: parts.signals,
            planned: (handled, i64::MAX),
        }
    }

    /// Runs the cycle to its end.
    ///
    /// # Errors
    /// What ends the run: the source cannot be reached or refuses us, the feed cannot be read, the
    /// store fails. A resource or case that fails does not; it is in [`Report::problems`].
    pub async fn run(mut self) -> Result<Report> {
        let ran = self.work().await;
        // What was loaded before an error stays loaded, and is counted.
        let flushed = self.flush().await;
        let noted = self.close_books().await;
        ran.and(flushed).and(noted)?;
        self.report.handled = self.handled();
        Ok(self.report)
    }

    async fn work(&mut self) -> Result<()> {
        self.recall_page_sizes()?;
        let mut due =
            Due::of(&self.config, &self.store.connection()?, &self.options, Timestamp::now())?;
        self.report.verify_due = due.schedules.remove(&Name::Verify);
        let client = self.extractor.client();
        let again = due.has(Name::Reference);
        check_tenant(&self.config, &self.store, self.writer.writer(), client, again).await?;
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
        if self.options.full {
            let journals: Vec<String> = self
                .catalog
                .resources()
                .iter()
                .filter(|r| matches!(r.group, Group::Journal(_)))
                .map(|r| r.table.clone())
                .collect();
            self.writer
                .run(move |conn| {
                    let state = State::new(conn);
                    for table in &journals {
                        state.synced_months_are_due(table, "full")?;
                    }
                    // Kept until it is done, so that an interrupted run goes on with it.
                    state.set_meta(LISTING_DUE, "full")?;
                    state.everything_is_stale("full")
                })
                .await?;
        }
        if due.takes_long() && !self.options.full {
            self.follow_newest().await?;
        }
        let done = self.catch_up(due).await?;
        self.follow().await?;
        // Noted last: what is killed before its end is due again.
        self.writer.run(move |conn| done.note(conn)).await
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
            let cases = self.writer.run(move |conn| State::new(conn).reread(all)).await?;
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
            if self.signals.halt() != Halt::Go {
                self.report.halted = true;
                return Ok(());
            }
            if read > 0 || self.signals.news() > self.handled() {
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
        self.writer.run(move |conn| Books::new(conn).set_schedule(name.as_str(), at)).await
    }

    /// Reads the last two days of the feeds again: the source's commit order is not its clock's, and
    /// what appeared behind the polls is seen now. How late it came is kept, because `feed.overlap`
    /// should be longer than that.
    async fn look_for_late_rows(&mut self) -> Result<()> {
        self.progress.step("reading the change feeds once more");
        let mut feeds = vec![FeedName::Cases];
        if self.polls.follows_contacts()? {
            feeds.push(FeedName::Contacts);
        }
        for name in feeds {
            let reread = match self.polls.reread(name, REREAD).await {
                Ok(reread) => reread,
                Err(error) if name == FeedName::Contacts && !ends_the_run(&error) => {
                    self.problem(error.chain());
                    continue;
                }
                Err(error) => return Err(error),
            };
            if reread.late > 0 {
                tracing::warn!(
                    feed = name.as_str(),
                    rows = reread.late,
                    latest = ?reread.latest,
                    "rows appeared in the feed behind its polls; feed.overlap should be longer"
                );
            }
            let told = format!("{} rows, at most {} s late", reread.late, reread.latest.as_secs());
            let key = format!("late_rows_{}", name.as_str());
            self.writer.run(move |conn| State::new(conn).set_meta(&key, &told)).await?;
        }
        Ok(())
    }

    async fn poll_feeds(&mut self) -> Result<()> {
        self.progress.step("asking the change feeds");
        self.report.cases_moved += self.polls.poll(FeedName::Cases).await?.moved;
        match self.polls.poll_contacts().await {
            Ok(polled) => self.report.contacts_moved += polled.map_or(0, |polled| polled.moved),
            Err(error) if ends_the_run(&error) => return Err(error),
            // Cases are followed on; contacts catch up when their feed answers.
            Err(error) => self.problem(error.chain()),
        }
        Ok(())
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
        for (table, merged) in &outcome.tables {
            if merged.held > 0 {
                let text = format!(
                    "{table}: an answer lacks {} rows that are mirrored; reconcile.max_removed holds \
                     them (if they are really gone, run `casemirror sync --allow-removals`)",
                    merged.held
                );
                if self.catalog.get(table).is_some_and(|r| r.group == Group::List) {
                    // Until it may be tried again, it is not asked for.
                    self.note_failure(table, 0, FAILURE_HELD, &text).await?;
                }
                self.problem(text);
            }
        }
        self.report.outcome.add(&outcome);
        let calls = self.extractor.client().take_calls();
        self.report.calls += calls.iter().map(|c| c.calls).sum::<u64>();
        self.progress.calls(self.report.calls);
        let run_id = self.run_id;
        self.writer.run(move |conn| Books::new(conn).add_calls(run_id, &calls)).await
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

    /// Counts calls that do not reach the source; so many in a row end the run.
    pub(super) fn reached(&mut self, error: Option<&Error>) -> bool {
        match error.map(Error::kind) {
            Some(Kind::Unreachable | Kind::Timeout) => {
                self.unreachable += 1;
                self.unreachable < MOST_UNREACHABLE
            }
            Some(_) | None => {
                self.unreachable = 0;
                true
            }
        }
    }

    /// The tables of this run: enabled, permitted, there.
    fn choose_active(&mut self) -> Result<()> {
        let conn = self.store.connection()?;
        let rows = Books::new(&conn).resources()?;
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
        status: &str,
        reason: &str,
    ) -> Result<()> {
        self.active.retain(|r| r.table != table);
        tracing::warn!(table, status, reason, "a table cannot be read and is left alone");
        let (table, status, reason) = (table.to_owned(), status.to_owned(), reason.to_owned());
        self.writer
            .run(move |conn| Books::new(conn).set_status(&table, &status, Some(&reason)))
            .await
    }
}

/// Whether nothing else can be read after this either.
fn ends_the_run(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::Credentials
            | Kind::Tls
            | Kind::Unreachable
            | Kind::Store
            | Kind::DiskFull
            | Kind::Cancelled
            | Kind::Internal
    )
}

/// The source has no such call for us.
fn missing(kind: Kind) -> bool {
    matches!(kind, Kind::Forbidden | Kind::NotFound | Kind::NotAllowed)
}
