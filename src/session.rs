//! A run from opening the store to closing its books: what `sync` and `demo` have in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duckdb::Connection;
use jiff::Timestamp;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::cycle::{self, Cycle, Options};
use crate::decode::{Context, Privacy};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{Books, DuckLedger, RunSummary, Settings, State, Store, Writer, secrets};
use crate::pending;
use crate::progress::Progress;
use crate::publish::{self, ParquetTarget, Published, SnapshotInfo, Targets};
use crate::source::Client;
use crate::ticks::Ticks;

/// The open store with everything that a run needs.
pub struct Session {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    client: Client,
    privacy: Privacy,
    progress: Progress,
}

/// What a run did, and what it published.
#[derive(Debug, Clone)]
pub struct Ran {
    pub report: cycle::Report,
    pub published: Option<Published>,
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
        let store = Arc::new(Store::open(&config, &catalog)?);
        let key = secrets::hash_key(&config.store.path)?;
        let privacy = Privacy::new(&config.privacy, key);
        let ledger = Arc::new(DuckLedger::new(store.connection()?));
        let client = Client::new(&config.source, &config.feed, &config.limits, ledger)?;
        Ok(Session { config: Arc::new(config), catalog, store, client, privacy, progress })
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// One cycle, published where it changed anything.
    ///
    /// # Errors
    /// What ended the cycle or the publishing; the books say so too.
    pub async fn sync(&self, command: &str, options: Options) -> Result<Ran> {
        let run_id = Books::new(&self.store.connection()?).start_run(command)?;
        let settings = Settings::new(&self.config, &self.catalog, options.allow_removals);
        let writer = Writer::start(self.store.connection()?, settings, run_id)?;
        let ran = self.run(options, run_id, &writer).await;
        let summary = match &ran {
            Ok(ran) => RunSummary {
                outcome: if ran.report.problems.is_empty() { "ok" } else { "incomplete" }
                    .to_owned(),
                exit_status: ran.report.exit_status(),
                error: (!ran.report.problems.is_empty()).then(|| ran.report.problems.join("\n")),
                rows: Books::total(&ran.report.outcome),
            },
            Err(error) => RunSummary {
                outcome: "failed".to_owned(),
                exit_status: error.kind().exit_status(),
                error: Some(error.chain()),
                ..RunSummary::default()
            },
        };
        let closed = writer.run(move |conn| Books::new(conn).end_run(run_id, &summary)).await;
        // However it ended: the log is worked into the store's file when the last connection closes.
        let ended = writer.close().await;
        let ran = ran?;
        closed?;
        ended?;
        Ok(ran)
    }

    async fn run(&self, options: Options, run_id: i64, writer: &Writer) -> Result<Ran> {
        let context =
            Context { zone: self.config.source.time_zone.clone(), privacy: self.privacy.clone() };
        let parts = cycle::Parts {
            config: Arc::clone(&self.config),
            catalog: Arc::clone(&self.catalog),
            store: Arc::clone(&self.store),
            writer: writer.clone(),
            client: self.client.clone(),
            context,
            progress: self.progress.clone(),
            run_id,
        };
        let cycle = Cycle::new(parts, options);
        let report = cycle.run().await;
        let noted = self.note_pending(writer).await;
        // What was loaded before an error is published too: it is committed and true.
        let published = self.publish(writer).await;
        self.progress.finish();
        let report = report?;
        noted?;
        Ok(Ran { report, published: published? })
    }

    /// Writes what is stale, why and since when, and which tables are complete.
    async fn note_pending(&self, writer: &Writer) -> Result<()> {
        let pending = pending::collect(&self.store.connection()?, &self.config, &self.catalog)?;
        let catalog = Arc::clone(&self.catalog);
        writer
            .run(move |conn| {
                let books = Books::new(conn);
                books.set_pending(&pending.rows())?;
                pending::note_complete(conn, &pending, &catalog)
            })
            .await
    }

    /// Publishes what changed since it was last published.
    async fn publish(&self, writer: &Writer) -> Result<Option<Published>> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        let Some(info) = snapshot_info(&conn)? else {
            tracing::info!("{NOTHING_LISTED}");
            return Ok(None);
        };
        let readable = state.readable_state()?;
        let database = &self.config.publish.database;
        let there = database.exists()
            && self.config.publish.parquet.as_ref().is_none_or(|p| p.join("latest").exists());
        if there && state.meta("published_state")?.as_deref() == Some(readable.as_str()) {
            return Ok(None);
        }
        self.progress.step("publishing");
        failpoint::reach("before-publish");
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let published = tokio::task::spawn_blocking(move || {
            make_folder(&config.publish.database)?;
            let tables = catalog.names();
            let parquet = config.publish.parquet.as_deref().map(|root| ParquetTarget {
                root,
                tables: &tables,
                keep_snapshots: config.publish.keep_snapshots,
                keep_for: config.publish.keep_for,
            });
            let targets = Targets { database: Some(&config.publish.database), parquet };
            publish::publish(&conn, &targets, &info)
        })
        .await
        .map_err(|e| Error::caused(Kind::Internal, "publishing ended early", e))??;
        failpoint::reach("after-publish");
        writer.run(move |conn| State::new(conn).set_meta("published_state", &readable)).await?;
        tracing::info!(snapshot = published.snapshot_id, "published");
        Ok(Some(published))
    }
}

/// Why there is nothing to publish.
pub const NOTHING_LISTED: &str =
    "nothing is published before the first complete listing of the cases";

/// What a snapshot taken now says of itself; `None` before the first complete listing of the cases.
///
/// # Errors
/// Those of reading the store.
pub fn snapshot_info(conn: &Connection) -> Result<Option<SnapshotInfo>> {
    let state = State::new(conn);
    if state.meta("listed_at")?.is_none() {
        return Ok(None);
    }
    Ok(Some(SnapshotInfo {
        taken_at: Timestamp::now(),
        watermark: state.feed("cases")?.bound.and_then(|bound| Ticks::new(bound).to_timestamp()),
        complete: pending::is_complete(conn)?,
        store_id: state.meta("store_id")?.unwrap_or_default(),
    }))
}

fn make_folder(file: &Path) -> Result<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    std::fs::create_dir_all(&folder).map_err(|e| crate::error::io("create", &folder, e))?;
    Ok(folder)
}
