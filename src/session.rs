//! Runs on the open store, from their start in the run log to their end: what `sync`, `run` and `demo`
//! have in common.

mod backup;
mod closing;
mod exporting;
mod feeds;
#[cfg(test)]
pub(crate) mod fixture;
mod hinting;
mod lake;
mod lease;
mod publishing;
mod unpublished;
mod uploading;
mod verifying;
mod views;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;

pub(crate) use closing::ToClose;
pub(crate) use exporting::export;
pub(crate) use hinting::made_subscriptions;
pub(crate) use lease::register;
pub(crate) use publishing::check_targets;
pub(crate) use publishing::{Forms, When};
use publishing::{Publishing, check_places, root_of};
pub(crate) use unpublished::NOTHING_LISTED;
pub(crate) use uploading::Uploading;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::cycle::{
    self, Cycle, Interrupt, MonthsUnderWay, Notifier, Options, Polls, Run, Signals,
};
use crate::decode::Context;
use crate::error::{Error, Kind, Result};
use crate::mirror::{
    ALERTS, ConfigDifference, HeldFile, INTERRUPTED, Loader, Looked, RunLog, RunSummary, STOPPED,
    Settings, State, Store, Writer, Writing,
};
use crate::progress::{Now, Progress};
use crate::publish::{Published, Root};
use crate::source::{Client, StoredLedger, Tuning};
use crate::verify::{self, Verification, Verified};

/// The open store with everything that a run needs, and the one thread that writes to it.
pub(crate) struct Session {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    writer: Writer,
    polls: Polls,
    progress: Progress,
    publishing: Publishing,
    /// The place of the snapshots and packs.
    root: Option<Root>,
    /// What a cycle has begun to read and the next one goes on with.
    months: MonthsUnderWay,
    /// See [`Session::last_run`].
    last_run: AtomicI64,
}

/// A pause that the platform asks for and that soon ends need not be known to the next process.
const SHORTEST_KEPT_HOLD: Duration = Duration::from_secs(5);

/// The tables that this configuration describes.
///
/// # Errors
/// `Config` for wrong resource files.
pub(crate) fn catalog_of(config: &Config) -> Result<Catalog> {
    Catalog::load(config.resources.dir.as_deref())
}

/// What a run did, and what it published.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) report: cycle::Report,
    /// What was compared with the source, where it was.
    pub(crate) verified: Option<Verified>,
    pub(crate) published: Option<Published>,
    /// Nothing could be published, because the cases have never been listed completely.
    pub(crate) nothing_listed: bool,
}

impl Session {
    /// Opens or makes the store and prepares the client; calls nothing.
    ///
    /// # Errors
    /// `Config` for unknown tables and wrong resource files, those of [`Store::open_for`], and those of
    /// the client's settings.
    pub(crate) fn open(config: Config, writing: Writing, progress: Progress) -> Result<Session> {
        let catalog = catalog_of(&config)?;
        config.check_folders()?;
        let mut places = None;
        // Before anything is made or changed, and anything asked; but where another process holds the store, that is what
        // is said: it may be a daemon, which knows what is not in this environment.
        let store = Store::open_for(writing, &config, &catalog, |conn| {
            Client::check(&config)?;
            let root = root_of(&config)?;
            let bucket_is_empty = check_places(&config, root.as_ref(), conn)?;
            places = Some((root, bucket_is_empty));
            Ok(())
        })?;
        Root::remove_unfinished(store.path())?;
        let (root, bucket_is_empty) = places.unwrap_or_default();
        let session = Session::of(config, root, catalog, store, progress)?;
        session.publishing.uploads.set_empty(bucket_is_empty);
        Ok(session)
    }

    /// A session that keeps to itself what the change feeds say, and in what the configuration differs
    /// from the one that the store was last written with. It is good for [`Session::ask_feeds`] and what
    /// reads.
    ///
    /// # Errors
    /// As [`Session::open`], and those of [`Store::over`].
    pub(crate) fn over(
        config: Config,
        progress: Progress,
    ) -> Result<(Session, Vec<ConfigDifference>)> {
        let Looked { store, catalog, differences } = Store::over(&config, &catalog_of(&config)?)?;
        let root = root_of(&config)?;
        Ok((Session::of(config, root, catalog, store, progress)?, differences))
    }

    fn of(
        config: Config,
        root: Option<Root>,
        catalog: Catalog,
        store: Store,
        progress: Progress,
    ) -> Result<Session> {
        let (config, catalog, store) = (Arc::new(config), Arc::new(catalog), Arc::new(store));
        let writer = Writer::start(&store)?;
        let held = HeldFile::of(&store)?;
        let ledger = StoredLedger::open(&config, store.connection()?)?;
        let ledger = Arc::new(ledger.asking(move |conn| held.check(conn)));
        let lease = lease::lease(&config, root.as_ref(), &store, &writer)?;
        let tuning = Tuning { progress: progress.clone(), lease, ..Tuning::default() };
        let client =
            Client::with_tuning(&config.source, &config.feed, &config.limits, ledger, tuning)?;
        let now = Timestamp::now();
        let held = {
            let conn = store.connection()?;
            let state = State::new(&conn);
            // Another platform, or another API user, has asked for nothing.
            let is_theirs =
                state.meta("origin")?.as_deref() == Some(cycle::origin(&config).as_str());
            state.calls_held_until(config.limits.retry_after, now)?.filter(|_| is_theirs)
        };
        if let Some(held) =
            held.and_then(|until| Duration::try_from(until.duration_since(now)).ok())
        {
            client.hold_for(held);
        }
        let polls = Polls {
            config: Arc::clone(&config),
            store: Arc::clone(&store),
            writer: writer.clone(),
            client,
            turns: Arc::default(),
            notifier: Notifier::default(),
        };
        Ok(Session {
            config,
            catalog,
            store,
            writer,
            polls,
            progress,
            publishing: Publishing::default(),
            root,
            months: MonthsUnderWay::default(),
            last_run: AtomicI64::new(0),
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The tables.
    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The configuration.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// What is being done, if anything is.
    pub(crate) fn doing(&self) -> Option<Now> {
        self.progress.now()
    }

    /// Why the store does not take what is to be written; `None` where it does.
    pub(crate) fn store_fault(&self) -> Option<String> {
        self.writer.fault()
    }

    /// Keeps what people were told.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn note_alerts(&self, told: String) -> Result<()> {
        self.writer.run(move |conn| State::new(conn).set_meta(ALERTS, &told)).await
    }

    /// The change feeds.
    pub(crate) fn polls(&self) -> &Polls {
        &self.polls
    }

    /// Refuses a store that was filled from another tenant; asks the source only where that is not
    /// known.
    ///
    /// # Errors
    /// Those of [`cycle::check_tenant`].
    pub(crate) async fn check_tenant(&self) -> Result<()> {
        cycle::check_tenant(&self.config, &self.store, &self.writer, &self.polls.client, false)
            .await
    }

    /// Whether this process has ever got a token: a refusal of the credentials is no mistake in the configuration then.
    pub(crate) fn credentials_were_taken(&self) -> bool {
        self.polls.client.credentials_were_taken()
    }

    /// Waits until the change feeds may be asked from this host.
    pub(crate) async fn feeds_come(&self) {
        self.polls.client.lease_comes().await;
    }

    /// One run: a cycle, published where it changed anything. A comparison with the source that has to
    /// give way is left in `verifying`, and gone on with where it is given back.
    ///
    /// # Errors
    /// What ended the cycle or the publishing; the run log says so too.
    pub(crate) async fn sync(
        &self,
        command: &str,
        options: Options,
        signals: Signals,
        verifying: &mut Option<Verification>,
    ) -> Result<Ran> {
        let begun = Instant::now();
        let _run = self.progress.begin();
        let run_id = self.start_run(command)?;
        let ran = self.work(run_id, options, signals.clone(), verifying).await;
        // What was loaded before an error is published too: it is committed and true.
        let published = self.publish_run(begun).await;
        let mut ran = match (ran, published) {
            (Ok(ran), Ok(published)) => {
                self.has_listed().map(|listed| Ran { published, nothing_listed: !listed, ..ran })
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        // The store goes on without the lake, and the lake without the source and the snapshots.
        if !ran.as_ref().is_err_and(|error| error.kind() == Kind::Cancelled)
            && let Err(error) = self.publish_to_lake(false).await
        {
            let behind = format!("the lake is behind: {}", error.chain());
            match &mut ran {
                Ok(ran) => ran.report.problem(behind),
                Err(_) => tracing::warn!("{behind}"),
            }
        }
        let summary = match &ran {
            // It exits with 1, whatever it came to until then.
            Ok(ran) if ran.report.interrupted && signals.interrupt() == Interrupt::Cancel => {
                RunSummary {
                    outcome: INTERRUPTED.to_owned(),
                    exit_status: Kind::Cancelled.exit_status(),
                    error: Some(STOPPED.to_owned()),
                    rows: RunLog::total(&ran.report.outcome),
                }
            }
            ran => summary(ran.as_ref().map(|ran| &ran.report)),
        };
        let closed = self.end_run(run_id, summary).await;
        let ran = ran?;
        closed?;
        Ok(ran)
    }

    /// One run of the daemon's, like [`Session::sync`]; publishing has its own pace there.
    ///
    /// # Errors
    /// What ended the cycle; the run log says so too.
    pub(crate) async fn follow(
        &self,
        options: Options,
        signals: Signals,
        verifying: &mut Option<Verification>,
    ) -> Result<cycle::Report> {
        let _run = self.progress.begin();
        let run_id = self.start_run("run")?;
        let ran = self.work(run_id, options, signals, verifying).await;
        let summary = summary(ran.as_ref().map(|ran| &ran.report));
        let closed = self.end_run(run_id, summary).await;
        let report = ran?.report;
        closed?;
        Ok(report)
    }

    /// A cycle, and after it the comparison with the source where that is asked for or due.
    async fn work(
        &self,
        run_id: i64,
        options: Options,
        signals: Signals,
        verifying: &mut Option<Verification>,
    ) -> Result<Ran> {
        let asked = options.verify;
        let mut report = self.cycle(run_id, options, signals.clone()).await?;
        let mut verified = None;
        if !report.interrupted {
            match asked.or(report.verify_due.then_some(verify::SAMPLE)) {
                Some(sample) => {
                    verified =
                        self.verify(run_id, sample, &signals, &mut report, verifying).await?;
                }
                // Another run has done it meanwhile.
                None => *verifying = None,
            }
        }
        Ok(Ran { report, verified, published: None, nothing_listed: false })
    }

    fn start_run(&self, command: &str) -> Result<i64> {
        // What was asked between two runs is no part of this one; polls are in the ledger.
        drop(self.polls.client.take_calls());
        let conn = self.store.connection()?;
        HeldFile::of(&self.store)?.check(&conn)?;
        let run_id = RunLog::new(&conn).start_run(command)?;
        self.last_run.store(run_id, Ordering::Relaxed);
        Ok(run_id)
    }

    /// The run that this process began last; 0 before it has begun one. Without an end it is under way.
    pub(crate) fn last_run(&self) -> i64 {
        self.last_run.load(Ordering::Relaxed)
    }

    async fn end_run(&self, run_id: i64, summary: RunSummary) -> Result<()> {
        metrics::counter!("casemirror_runs_total", "outcome" => summary.outcome.clone())
            .increment(1);
        for (change, rows) in [
            ("inserted", summary.rows.inserted),
            ("updated", summary.rows.updated),
            ("deleted", summary.rows.deleted),
        ] {
            metrics::counter!("casemirror_rows_changed_total", "change" => change).increment(rows);
        }
        // Another run must not call before that either. What soon ends, each call waits for.
        let held = self.polls.client.held_for().filter(|held| *held > SHORTEST_KEPT_HOLD);
        let held_until = held.and_then(|held| Timestamp::now().checked_add(held).ok());
        self.writer
            .run(move |conn| {
                if held_until.is_some() {
                    State::new(conn).set_calls_held_until(held_until)?;
                }
                RunLog::new(conn).end_run(run_id, &summary)
            })
            .await
    }

    /// Forgets for how long the platform wanted no call.
    ///
    /// # Errors
    /// Those of the ledger and the store.
    pub(crate) async fn lift_holds(&self) -> Result<()> {
        self.polls.client.lift_holds().await?;
        self.writer.run(|conn| State::new(conn).set_calls_held_until(None)).await
    }

    async fn cycle(
        &self,
        run_id: i64,
        options: Options,
        signals: Signals,
    ) -> Result<cycle::Report> {
        let parts = cycle::Parts {
            config: Arc::clone(&self.config),
            catalog: Arc::clone(&self.catalog),
            store: Arc::clone(&self.store),
            writer: self.loader(run_id, &options)?,
            polls: self.polls.clone(),
            context: self.decoding(),
            progress: self.progress.clone(),
            run_id,
            signals,
            months: self.months.clone(),
        };
        Cycle::new(&Run::new(parts, options)).run().await
    }

    /// How answers are decoded.
    fn decoding(&self) -> Context {
        Context {
            zone: self.config.source.time_zone.clone(),
            privacy: self.store.privacy().clone(),
            disabled: self.config.resources.disable.as_slice().into(),
            generation: self.store.generation(),
        }
    }

    /// What a run writes with.
    fn loader(&self, run_id: i64, options: &Options) -> Result<Loader> {
        let mut settings = Settings::new(&self.config, &self.catalog, options.allow_removals)
            .telling(self.progress.clone());
        if options.journals.as_ref().is_some_and(|request| request.stays_open) {
            settings = settings.closing_none();
        }
        self.writer.loader(settings, run_id)
    }

    /// Gives back the lease of the feeds, ends the thread that writes when its transaction is done, and works the
    /// store's log into its file. What is only tidying is left out where it is not done by `tidied_by`.
    ///
    /// # Errors
    /// Those of [`Writer::close`].
    pub(crate) async fn close(&self, tidied_by: Option<tokio::time::Instant>) -> Result<()> {
        self.polls.client.release_lease(tidied_by).await;
        self.writer.close().await?;
        let store = Arc::clone(&self.store);
        let Some(tidied_by) = tidied_by else {
            // That it broke is told by the thread itself, and undone by nothing.
            let _ = tokio::task::spawn_blocking(move || store.work_in_log()).await;
            return Ok(());
        };
        if tidied_by <= tokio::time::Instant::now() {
            self.store.leave_log();
            return Ok(());
        }
        let worked_in = tokio::task::spawn_blocking(move || store.work_in_log());
        // One that is broken off is as one that was not begun: the next who opens the store does it.
        let _ = tokio::time::timeout_at(tidied_by, worked_in).await;
        Ok(())
    }

    /// Waits until everything that was ordered is written, for so long at most.
    pub(crate) async fn settle(&self, longest: Duration) {
        let written = async {
            // A transaction of its own comes after all that was handed over.
            let run_id = self.last_run();
            let _ = self.writer.run(move |conn| RunLog::new(conn).interrupt_run(run_id)).await;
            self.polls.client.flush().await;
        };
        // What is not written by then is found again at the next start.
        let _ = tokio::time::timeout(longest, written).await;
    }
}

/// What a run that came to its end, or failed, comes to.
fn summary(ran: Result<&cycle::Report, &Error>) -> RunSummary {
    match ran {
        Ok(report) => RunSummary {
            outcome: match report.exit_status() {
                0 => "ok",
                4 => "different",
                _ => "incomplete",
            }
            .to_owned(),
            exit_status: report.exit_status(),
            error: (!report.problems.is_empty()).then(|| report.problems.join("\n")),
            rows: RunLog::total(&report.outcome),
        },
        Err(error) => RunSummary {
            outcome: "failed".to_owned(),
            exit_status: error.kind().exit_status(),
            error: Some(error.chain()),
            ..RunSummary::default()
        },
    }
}
