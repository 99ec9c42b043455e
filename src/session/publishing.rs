//! Publishing the committed state: whether there is anything new, what it is called, and that one at a
//! time works on the same files.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use duckdb::{Connection, InterruptHandle};
use jiff::Timestamp;

use super::Session;
use super::uploading::{Uploading, Uploads, bucket_state};
use super::views::{self, Standing};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{Residue, RunLog, SHOWN_BY_PARQUET, State, Store, stay_in_snapshots};
use crate::pending::{self, PendingScope};
use crate::progress::Progress;
use crate::publish::{
    self, Frozen, Made, ParquetTarget, Published, PublishedParquet, Root, SnapshotInfo, Stop,
    Targets,
};
use crate::ticks::Ticks;

/// Key of `sync.meta`: the state of the store that the published database shows.
const SHOWN_BY_DATABASE: &str = "published_state";

/// Which file was published as the database, by [`publish::identity`].
const PUBLISHED_FILE: &str = "published_file";

/// What to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forms {
    /// The database alone.
    Database,
    /// The database and a Parquet snapshot of the same id.
    Both,
}

/// Whether to publish what has been published already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Only if readers would see a difference.
    Changed,
    /// In any case: the watermark moves although nothing else did.
    Always,
}

/// What there is of it in a session.
#[derive(Default)]
pub(super) struct Publishing {
    pub(super) lock: tokio::sync::Mutex<()>,
    interrupt: Mutex<Option<Interrupt>>,
    pub(super) uploads: Uploads,
    /// What was published last, and when that was done.
    pub(super) last: Mutex<Option<(Instant, Published)>>,
    pub(super) views: Mutex<Standing>,
}

/// What ends a publishing that is under way: DuckDB's work, and ours.
struct Interrupt {
    duckdb: Arc<InterruptHandle>,
    stop: Stop,
}

/// A committed state that readers do not have yet.
struct Unpublished {
    /// Used for nothing else.
    conn: Connection,
    /// See [`State::readable_state`].
    readable: String,
    info: SnapshotInfo,
    with_parquet: bool,
    /// The published file holds what is to be seen no more.
    erased: bool,
    /// So do the snapshots and the packs.
    erased_snapshots: bool,
}

impl Session {
    /// Writes what is stale, why and since when, and which tables are complete.
    async fn note_pending(&self) -> Result<()> {
        let conn = self.store.connection()?;
        // Before the rest: a poll that ends meanwhile moves the bound past cases that are not collected.
        let watermark = State::new(&conn).feed("cases")?.bound;
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        self.writer.run(move |conn| pending::note_unread(conn, &config, &catalog)).await?;
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        // During a backfill that is most of all cases: nothing else waits for it, and no more than a
        // few chunks of it are in memory.
        let (chunks, mut collected) = tokio::sync::mpsc::channel::<Vec<PendingScope>>(1);
        let collecting = tokio::task::spawn_blocking(move || {
            pending::collect_noted(&conn, &config, &catalog, |chunk| {
                let unwanted = |_| Error::new(Kind::Cancelled, "what is pending is not wanted");
                chunks.blocking_send(chunk).map_err(unwanted)
            })
        });
        self.writer.run(|conn| RunLog::new(conn).begin_pending()).await?;
        while let Some(chunk) = collected.recv().await {
            self.writer
                .run(move |conn| {
                    let rows = chunk.iter().map(|scope| {
                        (scope.table.as_str(), scope.scope.as_str(), scope.reason.as_str())
                    });
                    RunLog::new(conn).add_pending(rows)
                })
                .await?;
        }
        let pending = collecting
            .await
            .map_err(|e| Error::caused(Kind::Internal, "collecting ended early", e))??;
        let catalog = Arc::clone(&self.catalog);
        self.writer
            .run(move |conn| {
                RunLog::new(conn).replace_pending()?;
                pending::show(conn, &catalog)?;
                if let Some(ticks) = watermark {
                    State::new(conn).set_meta(WATERMARK, &ticks.to_string())?;
                }
                pending::note_complete(conn, &pending, &catalog)
            })
            .await
    }

    /// Publishes the committed state. `None`: readers have it already, or nothing has been listed yet.
    ///
    /// # Errors
    /// Those of [`publish::publish`], `Cancelled` after [`Session::interrupt_publishing`]. Where it is the
    /// object store that fails, the database is published.
    pub(crate) async fn publish(&self, forms: Forms, when: When) -> Result<Option<Published>> {
        let Some((mut published, uploading)) = self.publish_here(forms, when).await? else {
            return Ok(None);
        };
        if let Some(uploading) = uploading {
            published.parquet = Some(self.upload(uploading).await?);
        }
        Ok(Some(published))
    }

    /// The same without what has to be uploaded, which [`Session::upload`] does: publishing may go on
    /// meanwhile, and has a snapshot only when that is over.
    ///
    /// # Errors
    /// Those of [`publish::make`], `Cancelled` after [`Session::interrupt_publishing`].
    pub(crate) async fn publish_here(
        &self,
        forms: Forms,
        when: When,
    ) -> Result<Option<(Published, Option<Uploading>)>> {
        let (began, published) = (Instant::now(), self.publish_as_asked(forms, when).await);
        let result = match &published {
            Ok(None) => return published,
            Ok(Some(_)) => "ok",
            Err(_) => "failed",
        };
        metrics::counter!("casemirror_publishes_total", "result" => result).increment(1);
        metrics::histogram!("casemirror_publish_seconds").record(began.elapsed());
        published
    }

    async fn publish_as_asked(
        &self,
        forms: Forms,
        when: When,
    ) -> Result<Option<(Published, Option<Uploading>)>> {
        // One upload at a time, and always this before the other lock.
        let alone = match &self.root {
            Some(Root::Bucket(_)) if forms == Forms::Both => {
                Some(self.publishing.uploads.alone().await)
            }
            _ => None,
        };
        let _one = self.publishing.lock.lock().await;
        self.note_pending().await?;
        self.check_targets()?;
        let Some(unpublished) = self.unpublished(forms, when)? else {
            self.catch_up_views().await?;
            return Ok(None);
        };
        let Unpublished { conn, readable, info, with_parquet, erased, erased_snapshots } =
            unpublished;
        let _step = self.progress.step("publishing");
        failpoint::hit("before-publish");
        let stop = self.begin_interruptible(&conn);
        let started = Instant::now();
        let made =
            self.publish_now(conn, info, (with_parquet, erased_snapshots), stop.clone()).await;
        let Made { published, upload } = self.end_interruptible(&stop, made)?;
        let in_folder = with_parquet && upload.is_none();
        match &published.views {
            Some(written) => self.note_views(Some(written)),
            None => self.catch_up_views().await?,
        }
        if erased_snapshots && in_folder {
            self.write_packs_anew(&stop).await?;
            failpoint::hit("packs-written");
        }
        if erased || erased_snapshots {
            tracing::info!(
                snapshots = in_folder,
                "what was published before is replaced; out of reach are backups, copies that others have made, \
                 and files that a reader still has open"
            );
        }
        failpoint::hit("after-publish");
        let file = publish::identity(&self.config.publish.database)?.unwrap_or_default();
        let shown = readable.clone();
        self.writer
            .run(move |conn| {
                let state = State::new(conn);
                state.set_meta(SHOWN_BY_DATABASE, &shown)?;
                state.set_meta(PUBLISHED_FILE, &file)?;
                if in_folder {
                    state.set_meta(SHOWN_BY_PARQUET, &shown)?;
                    Residue::Snapshots.is_gone(conn)?;
                }
                Residue::Published.is_gone(conn)
            })
            .await?;
        let took = started.elapsed();
        tracing::debug!(snapshot = published.snapshot_id, parquet = in_folder, ?took, "published");
        let last = Some((Instant::now(), published.clone()));
        *self.publishing.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
        let uploading = upload.zip(alone).map(|(upload, alone)| Uploading {
            upload,
            readable,
            erased: erased_snapshots,
            alone,
        });
        Ok(Some((published, uploading)))
    }

    /// Refuses targets that are not this store's.
    ///
    /// # Errors
    /// Those of [`publish::check_database`], [`publish::check_snapshots`] and [`publish::check_views`].
    pub(super) fn check_targets(&self) -> Result<()> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        let store_id = state.meta("store_id")?.unwrap_or_default();
        let known = state.meta(PUBLISHED_FILE)?;
        let target = &self.config.publish.database;
        publish::check_database(target, self.store.path(), &store_id, known.as_deref())?;
        match &self.root {
            Some(root @ Root::Folder(_)) => {
                publish::check_snapshots(root, &store_id, &Stop::default())?;
            }
            // It is looked at when something goes there.
            Some(Root::Bucket(_)) => {}
            None => return Ok(()),
        }
        // The default of another store beside this one is left alone, and no reason to publish nothing.
        match &self.config.publish.views {
            Some(file) if self.config.is_chosen("publish.views") => {
                publish::check_views(file, &store_id)
            }
            _ => Ok(()),
        }
    }

    /// Freezes what is committed and publishes it.
    async fn publish_now(
        &self,
        conn: Connection,
        info: SnapshotInfo,
        (with_parquet, erased): (bool, bool),
        stop: Stop,
    ) -> Result<Made> {
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let root = self.root.clone();
        let (store, log_limit) = (self.store.file()?, self.store.log_limit());
        let begun = {
            let (config, catalog) = (Arc::clone(&config), Arc::clone(&catalog));
            let (root, stop) = (root.clone(), stop.clone());
            blocking(move || {
                let folder = config.publish.database.parent().unwrap_or(Path::new("."));
                durable::make_shared_folder(folder)?;
                let root = root.as_ref().filter(|_| with_parquet);
                publish::begin(&targets(&config, root, &catalog.names(), erased), info, &stop)
            })
            .await?
        };
        let frozen = self
            .writer
            .between_commits(move |writing| {
                // No row is newer than what is said here: nothing is committed meanwhile.
                let snapshot = begun.taken_at(Timestamp::now());
                Frozen::with_file(writing, conn, (store, &log_limit), snapshot)
            })
            .await?;
        let progress = self.progress.clone();
        let store = Arc::clone(&self.store);
        blocking(move || {
            let conn = store.connection()?;
            let _threads = with_parquet.then(|| store.threads_for_parquet(&conn)).transpose()?;
            let tables = catalog.names();
            let root = root.as_ref().filter(|_| with_parquet);
            let targets = targets(&config, root, &tables, erased);
            publish::make(frozen, &targets, &stop, &progress)
        })
        .await
    }

    /// The same for a run that began at `begun`: what readers have of it may have been published before
    /// its end.
    pub(super) async fn publish_run(&self, begun: Instant) -> Result<Option<Published>> {
        let published = self.publish(Forms::Both, When::Changed).await?;
        let last = self.publishing.last.lock().unwrap_or_else(PoisonError::into_inner);
        let meanwhile = last.as_ref().filter(|(at, _)| *at >= begun);
        Ok(published.or_else(|| meanwhile.map(|(_, published)| published.clone())))
    }

    /// Writes a Parquet snapshot of what is committed, changed or not.
    ///
    /// # Errors
    /// Those of [`export`], `Cancelled` after [`Session::interrupt_publishing`].
    pub(crate) async fn export(&self) -> Result<PublishedParquet> {
        let _alone = match &self.root {
            Some(Root::Bucket(_)) => Some(self.publishing.uploads.alone().await),
            _ => None,
        };
        let _one = self.publishing.lock.lock().await;
        self.note_pending().await?;
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let (conn, progress) = (self.store.connection()?, self.progress.clone());
        let stop = self.begin_interruptible(&conn);
        let exported = {
            let (stop, store) = (stop.clone(), Arc::clone(&self.store));
            blocking(move || export(&config, &catalog, &store, conn, &stop, &progress)).await
        };
        self.end_interruptible(&stop, exported)
    }

    /// From now on [`Session::interrupt_publishing`] ends what this connection does.
    pub(super) fn begin_interruptible(&self, conn: &Connection) -> Stop {
        let stop = Stop::default();
        *self.interrupt() = Some(Interrupt { duckdb: conn.interrupt_handle(), stop: stop.clone() });
        stop
    }

    /// Until now.
    pub(super) fn end_interruptible<T>(&self, stop: &Stop, done: Result<T>) -> Result<T> {
        *self.interrupt() = None;
        if done.is_err() {
            // Of its own accord DuckDB only says that a query was interrupted.
            stop.check()?;
        }
        done
    }

    /// Whether the cases have been listed completely at least once.
    pub(super) fn has_listed(&self) -> Result<bool> {
        Ok(State::new(&self.store.connection()?).meta("listed_at")?.is_some())
    }

    /// What there is to publish, if anything.
    fn unpublished(&self, forms: Forms, when: When) -> Result<Option<Unpublished>> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        let Some(info) = snapshot_info(&conn, &self.catalog)? else {
            tracing::debug!("{NOTHING_LISTED}");
            return Ok(None);
        };
        let readable = state.readable_state()?;
        let erased = Residue::Published.is_in(&conn)?;
        // To a bucket nothing goes but at its own pace: it may be out of reach.
        let is_in_reach = match &self.root {
            None => false,
            Some(Root::Folder(_)) => true,
            Some(Root::Bucket(_)) => forms == Forms::Both,
        };
        let erased_snapshots = Residue::Snapshots.is_in(&conn)? && is_in_reach;
        let with_parquet = erased_snapshots || (forms == Forms::Both && self.root.is_some());
        let shown = !(erased || erased_snapshots)
            && self.database_shows(&state, &readable)?
            && (!with_parquet || self.parquet_shows(&state, &readable)?);
        if shown && when == When::Changed {
            return Ok(None);
        }
        Ok(Some(Unpublished { conn, readable, info, with_parquet, erased, erased_snapshots }))
    }

    /// As [`stay_in_snapshots`].
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn leaves_erased_values(&self) -> Result<bool> {
        stay_in_snapshots(&self.store.connection()?, &self.config)
    }

    /// Whether the Parquet snapshots lag behind what the store holds.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn parquet_is_behind(&self) -> Result<bool> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        let readable = state.readable_state()?;
        Ok(self.root.is_some() && !self.parquet_shows(&state, &readable)?)
    }

    fn database_shows(&self, state: &State<'_>, readable: &str) -> Result<bool> {
        Ok(self.config.publish.database.exists()
            && state.meta(SHOWN_BY_DATABASE)?.as_deref() == Some(readable))
    }

    fn parquet_shows(&self, state: &State<'_>, readable: &str) -> Result<bool> {
        let shown = state.meta(SHOWN_BY_PARQUET)?;
        Ok(match &self.root {
            None => true,
            Some(Root::Folder(root)) => {
                root.join("latest").exists() && shown.as_deref() == Some(readable)
            }
            Some(Root::Bucket(bucket)) => {
                self.publishing.uploads.there_is_one()
                    && shown == Some(bucket_state(bucket, readable))
            }
        })
    }

    /// Ends a publishing that is under way; what was published before stays.
    pub(crate) fn interrupt_publishing(&self) {
        if let Some(Interrupt { duckdb, stop }) = self.interrupt().take() {
            stop.now();
            duckdb.interrupt();
        }
        self.publishing.uploads.interrupt();
    }

    fn interrupt(&self) -> MutexGuard<'_, Option<Interrupt>> {
        self.publishing.interrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a snapshot of what is committed in an open store, by a connection to it that does nothing else.
/// One call at a time, and none while something else is published.
///
/// # Errors
/// `Kind::Config` where `publish.parquet` is off; `Kind::Io` before the first complete listing
/// of the cases; those of [`publish::publish`].
pub(crate) fn export(
    config: &Config,
    catalog: &Catalog,
    store: &Store,
    conn: Connection,
    stop: &Stop,
    progress: &Progress,
) -> Result<PublishedParquet> {
    let Some(root) = &config.publish.parquet else {
        return Err(Error::new(Kind::Config, "publish.parquet is off"));
    };
    let root = Root::open(root, &config.store.path)?;
    let info = snapshot_info(&conn, catalog)?.ok_or_else(|| {
        Error::new(Kind::Io, format!("{NOTHING_LISTED}: `casemirror sync` makes it"))
    })?;
    publish::check_snapshots(&root, &info.store_id, stop)?;
    let tables = catalog.names();
    let erased = Residue::Snapshots.is_in(&conn)?;
    // The file with the views is made by what publishes all of it: this snapshot may be another folder's.
    let all = targets(config, Some(&root), &tables, erased);
    let targets = Targets { database: None, views: None, ..all };
    let frozen = Frozen::without_file(conn, publish::begin(&targets, info, stop)?)?;
    let _step = progress.step("publishing");
    let conn = store.connection()?;
    let _threads = store.threads_for_parquet(&conn)?;
    let published = publish::publish(frozen, &targets, stop, progress)?;
    published
        .parquet
        .ok_or_else(|| Error::new(Kind::Internal, "a snapshot was asked for and none was written"))
}

/// Where the configuration wants it; no snapshot without its `root`.
fn targets<'a>(
    config: &'a Config,
    root: Option<&'a Root>,
    tables: &'a [&'a str],
    erased: bool,
) -> Targets<'a> {
    let parquet = root.map(|root| ParquetTarget {
        root,
        tables,
        keep_snapshots: config.publish.keep_snapshots,
        keep_for: config.publish.keep_for,
        erased,
    });
    let views = views::target(config);
    Targets { database: Some(&config.publish.database), parquet, views }
}

pub(super) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act)
        .await
        .map_err(|e| Error::caused(Kind::Dead, "publishing ended early", e))?
}

/// Key of `sync.meta`: the feed's bound, in ticks, when what is pending was last collected.
const WATERMARK: &str = "watermark";

/// Why there is nothing to publish.
pub(crate) const NOTHING_LISTED: &str =
    "nothing is published before the first complete listing of the cases";

/// What a snapshot taken now says of itself; `None` before the first complete listing of the cases.
///
/// # Errors
/// Those of reading the store.
pub(crate) fn snapshot_info(conn: &Connection, catalog: &Catalog) -> Result<Option<SnapshotInfo>> {
    let state = State::new(conn);
    if state.meta("listed_at")?.is_none() {
        return Ok(None);
    }
    Ok(Some(SnapshotInfo {
        taken_at: Timestamp::now(),
        watermark: state
            .meta(WATERMARK)?
            .and_then(|ticks| ticks.parse().ok())
            .and_then(|ticks| Ticks::new(ticks).to_timestamp()),
        complete: pending::is_complete(conn, catalog)?,
        store_id: state.meta("store_id")?.unwrap_or_default(),
    }))
}
