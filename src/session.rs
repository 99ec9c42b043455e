//! Runs on the open store, from opening their books to closing them: what `sync`, `run` and `demo`
//! have in common.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use duckdb::{Connection, InterruptHandle};
use jiff::Timestamp;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::cycle::{self, Cycle, Options, Polls, Signals};
use crate::decode::{Context, Privacy};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{Books, DuckLedger, Lane, RunSummary, Settings, State, Store, Writer, secrets};
use crate::pending;
use crate::progress::Progress;
use crate::publish::{self, ParquetTarget, Published, SnapshotInfo, Targets};
use crate::source::Client;
use crate::ticks::Ticks;

/// Key of `sync.meta`: the state of the store that the published database shows.
const SHOWN_BY_DATABASE: &str = "published_state";
/// The same of the newest Parquet snapshot.
const SHOWN_BY_PARQUET: &str = "published_parquet_state";

/// The open store with everything that a run needs, and the one thread that writes to it.
pub struct Session {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    writer: Writer,
    polls: Polls,
    privacy: Privacy,
    progress: Progress,
    /// One publishing at a time works on the same files.
    publishing: tokio::sync::Mutex<()>,
    interrupt: Mutex<Option<Arc<InterruptHandle>>>,
}

/// What a run did, and what it published.
#[derive(Debug, Clone)]
pub struct Ran {
    pub report: cycle::Report,
    pub published: Option<Published>,
}

/// What to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forms {
    /// The database alone.
    Database,
    /// The database and a Parquet snapshot of the same id.
    Both,
}

/// Whether to publish what has been published already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Only if readers would see a difference.
    Changed,
    /// In any case: the watermark moves although nothing else did.
    Always,
}

/// A committed state that readers do not have yet.
struct Unpublished {
    /// Used for nothing else.
    conn: Connection,
    /// See [`State::readable_state`].
    readable: String,
    info: SnapshotInfo,
    with_parquet: bool,
}

impl Session {
    /// Opens or makes the store and prepares the client; calls nothing.
    ///
    /// # Errors
    /// `Config` for unknown tables and wrong resource files, those of [`Store::open`], and those of
    /// the client's settings.
    pub fn open(config: Config, progress: Progress) -> Result<Session> {
        let catalog = Arc::new(Catalog::load(config.resources.dir.as_deref())?);
        config.check_tables(&catalog.names())?;
        let config = Arc::new(config);
        let store = Arc::new(Store::open(&config, &catalog)?);
        let key = secrets::hash_key(&config.store.path)?;
        let privacy = Privacy::new(&config.privacy, key);
        let ledger = Arc::new(DuckLedger::new(store.connection()?));
        let client = Client::new(&config.source, &config.feed, &config.limits, ledger)?;
        let writer = Writer::start(store.connection()?)?;
        let polls = Polls {
            config: Arc::clone(&config),
            store: Arc::clone(&store),
            writer: writer.clone(),
            client,
            turn: Arc::default(),
        };
        Ok(Session {
            config,
            catalog,
            store,
            writer,
            polls,
            privacy,
            progress,
            publishing: tokio::sync::Mutex::default(),
            interrupt: Mutex::default(),
        })
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The change feeds.
    pub fn polls(&self) -> &Polls {
        &self.polls
    }

    /// Refuses a store that was filled from another tenant; asks the source only where that is not
    /// known.
    ///
    /// # Errors
    /// Those of [`cycle::check_tenant`].
    pub async fn check_tenant(&self) -> Result<()> {
        cycle::check_tenant(&self.config, &self.store, &self.writer, &self.polls.client).await
    }

    /// One run: a cycle, published where it changed anything.
    ///
    /// # Errors
    /// What ended the cycle or the publishing; the books say so too.
    pub async fn sync(&self, command: &str, options: Options, signals: Signals) -> Result<Ran> {
        let run_id = self.start_run(command)?;
        let report = self.cycle(run_id, options, signals).await;
        // What was loaded before an error is published too: it is committed and true.
        let published = self.publish(Forms::Both, When::Changed).await;
        self.progress.finish();
        let ran = match (report, published) {
            (Ok(report), Ok(published)) => Ok(Ran { report, published }),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        let closed = self.end_run(run_id, ran.as_ref().map(|ran| &ran.report)).await;
        let ran = ran?;
        closed?;
        Ok(ran)
    }

    /// One run of the daemon's: a cycle. Publishing has its own pace there.
    ///
    /// # Errors
    /// What ended the cycle; the books say so too.
    pub async fn follow(&self, options: Options, signals: Signals) -> Result<cycle::Report> {
        let run_id = self.start_run("run")?;
        let report = self.cycle(run_id, options, signals).await;
        let closed = self.end_run(run_id, report.as_ref()).await;
        let report = report?;
        closed?;
        Ok(report)
    }

    fn start_run(&self, command: &str) -> Result<i64> {
        Books::new(&self.store.connection()?).start_run(command)
    }

    async fn end_run(&self, run_id: i64, ran: Result<&cycle::Report, &Error>) -> Result<()> {
        let summary = match ran {
            Ok(report) => RunSummary {
                outcome: if report.problems.is_empty() { "ok" } else { "incomplete" }.to_owned(),
                exit_status: report.exit_status(),
                error: (!report.problems.is_empty()).then(|| report.problems.join("\n")),
                rows: Books::total(&report.outcome),
            },
            Err(error) => RunSummary {
                outcome: "failed".to_owned(),
                exit_status: error.kind().exit_status(),
                error: Some(error.chain()),
                ..RunSummary::default()
            },
        };
        self.writer.run(move |conn| Books::new(conn).end_run(run_id, &summary)).await
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
            writer: self.lane(run_id, options.allow_removals)?,
            polls: self.polls.clone(),
            context: Context {
                zone: self.config.source.time_zone.clone(),
                privacy: self.privacy.clone(),
            },
            progress: self.progress.clone(),
            run_id,
            signals,
        };
        Cycle::new(parts, options).run().await
    }

    /// What a run writes with.
    fn lane(&self, run_id: i64, allow_removals: bool) -> Result<Lane> {
        let settings = Settings::new(&self.config, &self.catalog, allow_removals);
        self.writer.lane(settings, run_id)
    }

    /// Forgets the books of the daemon's own runs that ended before `before`: a brokerage's day has
    /// thousands of them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn forget_runs(&self, before: Timestamp) -> Result<()> {
        self.writer.run(move |conn| Books::new(conn).forget_runs("run", before)).await
    }

    /// Writes what is stale, why and since when, and which tables are complete.
    async fn note_pending(&self) -> Result<()> {
        let conn = self.store.connection()?;
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        // During a backfill that is most of all cases: nothing else waits for it.
        let pending =
            tokio::task::spawn_blocking(move || pending::collect(&conn, &config, &catalog))
                .await
                .map_err(|e| Error::caused(Kind::Internal, "collecting ended early", e))??;
        let tables: Vec<String> = self.catalog.names().into_iter().map(str::to_owned).collect();
        self.writer
            .run(move |conn| {
                let books = Books::new(conn);
                books.set_pending(&pending.rows())?;
                pending::note_complete(conn, &pending, &tables)
            })
            .await
    }

    /// Publishes the committed state. `None`: readers have it already, or nothing has been listed yet.
    ///
    /// # Errors
    /// Those of [`publish::publish`], `Cancelled` after [`Session::interrupt_publishing`].
    pub async fn publish(&self, forms: Forms, when: When) -> Result<Option<Published>> {
        let _one = self.publishing.lock().await;
        self.note_pending().await?;
        let Some(Unpublished { conn, readable, info, with_parquet }) =
            self.unpublished(forms, when)?
        else {
            return Ok(None);
        };
        self.progress.step("publishing");
        failpoint::reach("before-publish");
        *self.interrupt() = Some(conn.interrupt_handle());
        let started = Instant::now();
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let published = tokio::task::spawn_blocking(move || {
            make_folder(&config.publish.database)?;
            let tables = catalog.names();
            let parquet = config.publish.parquet.as_deref().filter(|_| with_parquet);
            let parquet = parquet.map(|root| ParquetTarget {
                root,
                tables: &tables,
                keep_snapshots: config.publish.keep_snapshots,
                keep_for: config.publish.keep_for,
            });
            let targets = Targets { database: Some(&config.publish.database), parquet };
            publish::publish(&conn, &targets, &info)
        })
        .await;
        let interrupted = self.interrupt().take().is_none();
        let published =
            published.map_err(|e| Error::caused(Kind::Internal, "publishing ended early", e))?;
        if interrupted && published.is_err() {
            return Err(Error::new(Kind::Cancelled, "publishing was interrupted"));
        }
        let published = published?;
        failpoint::reach("after-publish");
        self.writer
            .run(move |conn| {
                let state = State::new(conn);
                state.set_meta(SHOWN_BY_DATABASE, &readable)?;
                if with_parquet {
                    state.set_meta(SHOWN_BY_PARQUET, &readable)?;
                }
                Ok(())
            })
            .await?;
        let took = started.elapsed();
        tracing::info!(
            snapshot = published.snapshot_id,
            parquet = with_parquet,
            ?took,
            "published"
        );
        Ok(Some(published))
    }

    /// What there is to publish, if anything.
    fn unpublished(&self, forms: Forms, when: When) -> Result<Option<Unpublished>> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        if state.meta("listed_at")?.is_none() {
            tracing::debug!("nothing is published before the first complete listing of the cases");
            return Ok(None);
        }
        let readable = state.readable_state()?;
        let with_parquet = forms == Forms::Both && self.config.publish.parquet.is_some();
        let shown = self.database_shows(&state, &readable)?
            && (!with_parquet || self.parquet_shows(&state, &readable)?);
        if shown && when == When::Changed {
            return Ok(None);
        }
        let info = SnapshotInfo {
            taken_at: Timestamp::now(),
            watermark: state
                .feed("cases")?
                .bound
                .and_then(|bound| Ticks::new(bound).to_timestamp()),
            complete: pending::is_complete(&conn)?,
            store_id: state.meta("store_id")?.unwrap_or_default(),
        };
        Ok(Some(Unpublished { conn, readable, info, with_parquet }))
    }

    /// Whether the Parquet snapshots lag behind what the store holds.
    ///
    /// # Errors
    /// Those of the store.
    pub fn parquet_is_behind(&self) -> Result<bool> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        let readable = state.readable_state()?;
        Ok(self.config.publish.parquet.is_some() && !self.parquet_shows(&state, &readable)?)
    }

    fn database_shows(&self, state: &State<'_>, readable: &str) -> Result<bool> {
        Ok(self.config.publish.database.exists()
            && state.meta(SHOWN_BY_DATABASE)?.as_deref() == Some(readable))
    }

    fn parquet_shows(&self, state: &State<'_>, readable: &str) -> Result<bool> {
        let Some(root) = &self.config.publish.parquet else { return Ok(true) };
        Ok(root.join("latest").exists()
            && state.meta(SHOWN_BY_PARQUET)?.as_deref() == Some(readable))
    }

    /// Ends a publishing that is under way; what was published before stays.
    pub fn interrupt_publishing(&self) {
        if let Some(handle) = self.interrupt().take() {
            handle.interrupt();
        }
    }

    fn interrupt(&self) -> std::sync::MutexGuard<'_, Option<Arc<InterruptHandle>>> {
        self.interrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything that was ordered is written, for so long at most.
    pub async fn settle(&self, longest: Duration) {
        let written = async {
            // A transaction of its own comes after all that was handed over.
            let _ = self.writer.run(|_| Ok(())).await;
            self.polls.client.flush().await;
        };
        // What is not written by then is found again at the next start.
        let _ = tokio::time::timeout(longest, written).await;
    }
}

fn make_folder(file: &Path) -> Result<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    std::fs::create_dir_all(&folder).map_err(|e| crate::error::io("create", &folder, e))?;
    Ok(folder)
}
