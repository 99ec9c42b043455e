//! One cycle: poll, list, fetch what is stale, load, publish. The only place that sees all steps.

mod ask;
mod books;
mod journals;
mod lists;
mod scopes;
mod search;
mod wait;

pub use journals::JournalRequest;
pub use scopes::{plan_cases, since};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::catalog::{Catalog, Group, Resource};
use crate::config::{Config, Reread};
use crate::decode::Context;
use crate::error::{Error, Kind, Result};
use crate::extract::Extractor;
use crate::feed::{Feed, LONGEST_REACH, Polled};
use crate::mirror::{Books, Outcome, ResourceRow, State, Store, Writer};
use crate::progress::Progress;
use crate::schedule;
use crate::source::{Client, FeedName};
use crate::ticks::Ticks;
use journals::JournalsDue;

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
}

impl Report {
    /// 0, or 3 when something is incomplete (contract section 1).
    pub fn exit_status(&self) -> u8 {
        if self.problems.is_empty() { 0 } else { 3 }
    }
}

/// What a cycle joins.
pub struct Parts {
    pub config: Arc<Config>,
    pub catalog: Arc<Catalog>,
    pub store: Arc<Store>,
    pub writer: Writer,
    pub client: Client,
    pub context: Context,
    pub progress: Progress,
    /// The run that `writer` was started for.
    pub run_id: i64,
}

/// A cycle under way.
pub struct Cycle {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    writer: Writer,
    extractor: Extractor,
    options: Options,
    progress: Progress,
    run_id: i64,
    started_at: Timestamp,
    report: Report,
    /// Tables that are read in this run.
    active: Vec<Arc<Resource>>,
    /// Tables of which some scope was read, or failed, in this run.
    answered: BTreeSet<String>,
    failed: BTreeMap<String, String>,
    /// Tables that are wrong as a whole, whatever else of them was read, and why.
    distrusted: BTreeMap<String, String>,
    /// Scopes that failed in this run, of tables of which none was read.
    failures_in_a_row: BTreeMap<String, u32>,
    /// Calls in a row that did not reach the source.
    unreachable: u32,
}

/// So many scopes in a row that cannot reach the source end the run: the rest would fail as well.
const MOST_UNREACHABLE: u32 = 8;
/// Key of `sync.meta`: why the cases have to be listed, while they have not been.
const LISTING_DUE: &str = "listing_due";
/// A contact that no feed follows is read again after this long (contract section 4).
const CONTACT_AGE: Duration = Duration::from_secs(7 * 86_400);

impl Cycle {
    /// Nothing is called yet.
    pub fn new(parts: Parts, options: Options) -> Cycle {
        let extractor = Extractor::new(parts.client, Arc::clone(&parts.catalog), parts.context);
        Cycle {
            config: parts.config,
            catalog: parts.catalog,
            store: parts.store,
            writer: parts.writer,
            extractor,
            options,
            progress: parts.progress,
            run_id: parts.run_id,
            started_at: Timestamp::now(),
            report: Report { run_id: parts.run_id, ..Report::default() },
            active: Vec::new(),
            answered: BTreeSet::new(),
            failed: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            failures_in_a_row: BTreeMap::new(),
            unreachable: 0,
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
        Ok(self.report)
    }

    async fn work(&mut self) -> Result<()> {
        self.recall_page_sizes()?;
        let mut due = self.due().await?;
        self.check_tenant(due.reference).await?;
        self.align_statuses().await?;
        if due.permissions {
            self.read_permissions().await?;
        }
        self.choose_active()?;
        if let Some(request) = self.options.journals.clone() {
            return self.read_period(&request).await;
        }
        self.poll_feeds().await?;
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
        if due.listing {
            if self.list_cases().await? {
                self.writer.run(|conn| State::new(conn).set_meta(LISTING_DUE, "")).await?;
            } else {
                // It is tried again in the next run.
                due.reconcile = false;
            }
        }
        if due.reread {
            let all = self.config.reconcile.reread == Reread::All;
            let cases = self.writer.run(move |conn| State::new(conn).reread(all)).await?;
            tracing::info!(cases, "cases that changed since they were read whole are read again");
        }
        self.read_lists(due.reference).await?;
        // Before the cases: it has an end that does not depend on what else changes.
        self.follow_journals(due.journals).await?;
        self.follow().await?;
        self.note_schedules(&due).await
    }

    /// Fetches what is stale, and waits for what the search's lag needs, until nothing is left that
    /// can be done in this run.
    async fn follow(&mut self) -> Result<()> {
        let deadline = self.wait_deadline();
        let mut waited = i64::MIN;
        loop {
            let read = self.read_cases().await? + self.read_contacts().await?;
            if read > 0 {
                continue;
            }
            match self.wait(deadline, waited).await? {
                Some(due) => waited = due,
                None => return Ok(()),
            }
        }
    }

    async fn poll_feeds(&mut self) -> Result<()> {
        self.report.cases_moved += self.poll(FeedName::Cases).await?.moved;
        if self.follows_contacts()? {
            match self.poll(FeedName::Contacts).await {
                Ok(polled) => self.report.contacts_moved += polled.moved,
                Err(error) if missing(error.kind()) => {
                    tracing::info!(
                        reason = error.chain(),
                        "there is no contacts feed for us: contacts are read again by age"
                    );
                    self.writer
                        .run(|conn| State::new(conn).set_meta("contacts_feed", "absent"))
                        .await?;
                }
                Err(error) => match error.kind() {
                    Kind::Credentials
                    | Kind::Tls
                    | Kind::Unreachable
                    | Kind::Store
                    | Kind::DiskFull
                    | Kind::Cancelled
                    | Kind::Internal => return Err(error),
                    // Cases are followed on; contacts catch up when their feed answers.
                    _ => self.problem(error.chain()),
                },
            }
        }
        Ok(())
    }

    async fn poll(&self, name: FeedName) -> Result<Polled> {
        let reach = Ticks::from_timestamp(Timestamp::now()).earlier_by(LONGEST_REACH).get();
        let feed = Feed {
            client: self.extractor.client(),
            store: &self.store,
            writer: &self.writer,
            settings: &self.config.feed,
            zone: &self.config.source.time_zone,
            run_id: self.run_id,
        };
        self.progress.step(&format!("asking the change feed ({})", name.as_str()));
        let polled = feed
            .poll(name)
            .await
            .map_err(|e| e.within(format!("the change feed ({}) cannot be read", name.as_str())))?;
        tracing::info!(
            feed = name.as_str(),
            moved = polled.moved,
            calls = polled.calls,
            "the change feed was read"
        );
        if name == FeedName::Cases {
            let known = State::new(&self.store.connection()?).feed_reach()?.is_some();
            if !known || polled.gap {
                self.writer.run(move |conn| State::new(conn).set_feed_reach(reach)).await?;
            }
        }
        Ok(polled)
    }

    /// Whether contacts are followed by their feed: it is switched on and the source has it.
    pub(super) fn follows_contacts(&self) -> Result<bool> {
        if self.config.feed.contacts_poll.is_none() || !self.is_active("contacts") {
            return Ok(false);
        }
        let conn = self.store.connection()?;
        Ok(State::new(&conn).meta("contacts_feed")?.as_deref() != Some("absent"))
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

    /// What is due in this run.
    async fn due(&self) -> Result<Due> {
        let conn = self.store.connection()?;
        let (state, books) = (State::new(&conn), Books::new(&conn));
        let first = state.meta("listed_at")?.is_none();
        if self.options.is_partial() {
            // A partial run runs no schedule, but without any listing it knows no case.
            let listing = first && self.options.cases.is_empty() && self.options.wants("cases");
            return Ok(Due { listing, permissions: false, ..Due::default() });
        }
        let now = self.started_at;
        let schedules = &self.config.schedule;
        let is_due = |name: &str, cron: &croner::Cron| -> Result<bool> {
            Ok(match books.schedule(name)? {
                None => false,
                Some(last) => schedule::due(cron, &schedules.time_zone, last, now)?,
            })
        };
        let reference =
            books.schedule("reference")?.is_none() || is_due("reference", &schedules.reference)?;
        let reconcile = is_due("reconcile", &schedules.reconcile)?;
        Ok(Due {
            listing: first
                || reconcile
                || self.options.full
                || state.meta(LISTING_DUE)?.is_some_and(|why| !why.is_empty()),
            reread: reconcile && self.config.reconcile.reread != Reread::Off,
            permissions: reference,
            reference,
            reconcile,
            journals: JournalsDue {
                trailing: books.schedule("journals")?.is_none()
                    || is_due("journals", &schedules.journals)?,
                recheck: is_due("journals_recheck", &schedules.journals_recheck)?,
            },
            all_noted: true,
        })
    }

    async fn note_schedules(&self, due: &Due) -> Result<()> {
        if !due.all_noted {
            return Ok(());
        }
        let due = *due;
        // What falls due while the run works is due in the next one.
        let at = self.started_at;
        self.writer
            .run(move |conn| {
                let books = Books::new(conn);
                // The others count as just run the first time (contract section 1, `sync`).
                for (name, ran) in [
                    ("reference", due.reference),
                    ("reconcile", due.reconcile),
                    ("journals", due.journals.trailing),
                    ("journals_recheck", due.journals.recheck),
                    ("verify", false),
                ] {
                    if ran || books.schedule(name)?.is_none() {
                        books.set_schedule(name, at)?;
                    }
                }
                Ok(())
            })
            .await
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

/// What a run has to do beside following the feed.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    listing: bool,
    reread: bool,
    permissions: bool,
    reference: bool,
    reconcile: bool,
    journals: JournalsDue,
    all_noted: bool,
}

/// The source has no such call for us.
fn missing(kind: Kind) -> bool {
    matches!(kind, Kind::Forbidden | Kind::NotFound | Kind::NotAllowed)
}
