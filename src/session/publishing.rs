//! Publishing the committed state: one at a time works on the same files, and what is under way can be ended.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duckdb::{Connection, InterruptHandle};
use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;

use super::Session;
use super::unpublished::{SHOWN_BY_DATABASE, Unpublished, note_shown, shown_at};
use super::uploading::{Uploading, Uploads, bucket_is_empty};
use super::views::{self, Standing};
use crate::config::{Config, ParquetRoot};
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{PublishLag, PublishPlace, PublishedSnapshot, State, note_published};
use crate::publish::{
    self, Frozen, Made, ParquetTarget, Published, Root, SnapshotInfo, Stop, Targets, Turn,
};

/// Which file was published as the database, by [`publish::identity`].
pub(super) const PUBLISHED_FILE: &str = "published_file";

/// How long another process is waited for: by DuckDB's lock none has the store open beside one that writes to it, so that what
/// holds the snapshots for longer is told as a place that cannot be written to.
pub(super) const LONGEST_TURN: Duration = Duration::from_secs(2);

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

/// What was published, and what has yet to be uploaded.
pub(crate) struct Here {
    pub(crate) published: Published,
    pub(crate) uploading: Option<Uploading>,
    /// When it was this one's turn.
    pub(crate) began: Instant,
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
    /// Which published file the lake shows, as far as this session knows.
    pub(super) lake: tokio::sync::Mutex<Option<String>>,
    /// How often something was published.
    pub(super) count: tokio::sync::watch::Sender<u64>,
}

/// What ends a publishing that is under way: DuckDB's work, and ours.
struct Interrupt {
    duckdb: Arc<InterruptHandle>,
    stop: Stop,
}

/// Refuses targets that are not those of the store behind `conn`; without it, of a store that is still to be made.
///
/// # Errors
/// Those of [`publish::check_database`], [`publish::check_snapshots`] and [`publish::check_views`].
pub(crate) fn check_targets(config: &Config, conn: Option<&Connection>) -> Result<()> {
    let meta = |key| conn.map_or(Ok(None), |conn| State::new(conn).meta(key));
    let store_id = meta("store_id")?.unwrap_or_default();
    let (target, store) = (&config.publish.database, &config.store.path);
    publish::check_database(target, store, &store_id, meta(PUBLISHED_FILE)?.as_deref())?;
    match &config.publish.parquet {
        Some(ParquetRoot::Folder(folder)) => {
            let root = Root::Folder(folder.clone());
            publish::check_snapshots(&root, &store_id, &Stop::default())?;
        }
        // It is looked at when something goes there.
        Some(ParquetRoot::Bucket(_)) => {}
        None => return Ok(()),
    }
    // The default of another store beside this one is left alone, and no reason to publish nothing.
    match &config.publish.views {
        Some(file) if config.is_chosen("publish.views") => publish::check_views(file, &store_id),
        _ => Ok(()),
    }
}

/// The same with the bucket, whether it is known to hold no snapshot: before what cannot be taken back, and hours of work
/// that could not be published.
///
/// # Errors
/// Those of [`check_targets`] and [`bucket_is_empty`].
pub(super) fn check_places(
    config: &Config,
    root: Option<&Root>,
    conn: Option<&Connection>,
) -> Result<bool> {
    let checked = check_targets(config, conn).and_then(|()| bucket_is_empty(root, conn));
    checked.map_err(|e| match conn {
        Some(_) => e,
        // Whoever lost a store needs that place for its backup.
        None => e.within(format!(
            "there is no store at {}, and what a new one would show cannot be published (`casemirror restore` \
             brings a backup of the earlier one back)",
            config.store.path.display()
        )),
    })
}

/// The place of the snapshots and packs, where there is one.
///
/// # Errors
/// Those of [`Root::open`].
pub(super) fn root_of(config: &Config) -> Result<Option<Root>> {
    let root = config.publish.parquet.as_ref();
    root.map(|root| Root::open(root, &config.store.path)).transpose()
}

impl Session {
    /// Publishes the committed state. `None`: readers have it already, or nothing has been listed yet.
    ///
    /// # Errors
    /// Those of [`publish::publish`], `Cancelled` after [`Session::interrupt_publishing`]. Where it is the
    /// object store that fails, the database is published.
    pub(crate) async fn publish(&self, forms: Forms, when: When) -> Result<Option<Published>> {
        let here = self.publish_here(forms, when).await?;
        self.published(here).await
    }

    /// What [`Session::publish_here`] gave, with what has to be uploaded.
    ///
    /// # Errors
    /// Those of [`Session::upload`]: the database is published.
    pub(crate) async fn published(&self, here: Option<Here>) -> Result<Option<Published>> {
        let Some(Here { mut published, uploading, .. }) = here else { return Ok(None) };
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
    pub(crate) async fn publish_here(&self, forms: Forms, when: When) -> Result<Option<Here>> {
        let alone = match forms {
            Forms::Both => self.upload_alone().await,
            Forms::Database => None,
        };
        let _one = self.publishing.lock.lock().await;
        // What was waited for, a backup of minutes say, is no work of this one.
        let began = Instant::now();
        let before = publish::identity(&self.config.publish.database);
        let published = self.publish_as_asked(forms, when, alone).await;
        // What failed after the file was replaced does not keep it from anybody.
        let is_replaced = || {
            let now = publish::identity(&self.config.publish.database);
            matches!((&before, &now), (Ok(before), Ok(now)) if before != now)
        };
        let why = published.as_ref().err().filter(|_| !is_replaced());
        if let Err(error) = self.note_lag_of_database(why).await {
            tracing::debug!(reason = error.chain(), "since when publishing fails is not noted");
        }
        let result = match &published {
            Ok(None) => return Ok(None),
            Ok(Some(_)) => "ok",
            Err(_) => "failed",
        };
        metrics::counter!("casemirror_publishes_total", "result" => result).increment(1);
        metrics::histogram!("casemirror_publish_seconds").record(began.elapsed());
        let here = |(published, uploading)| Here { published, uploading, began };
        published.map(|published| published.map(here))
    }

    /// Notes since when nothing can be published, and why, or that it can.
    async fn note_lag_of_database(&self, why: Option<&Error>) -> Result<()> {
        let place = PublishPlace::Database;
        let address = self.config.publish.database.display().to_string();
        match why.map(|error| (error.kind(), error.chain())) {
            Some((Kind::Cancelled, _)) => Ok(()),
            Some((_, why)) => {
                let now = Timestamp::now();
                self.writer.run(move |conn| PublishLag::note(conn, place, &address, why, now)).await
            }
            None if PublishLag::of(&self.store.connection()?, place, &address)?.is_some() => {
                self.writer.run(move |conn| PublishLag::is_over(conn, place)).await
            }
            None => Ok(()),
        }
    }

    async fn publish_as_asked(
        &self,
        forms: Forms,
        when: When,
        alone: Option<OwnedMutexGuard<()>>,
    ) -> Result<Option<(Published, Option<Uploading>)>> {
        self.note_pending().await?;
        match check_targets(&self.config, Some(&self.store.connection()?)) {
            // What cannot be looked at for now is nobody else's, and is met again when it is written to.
            Err(error) if error.kind() != Kind::Io => return Err(error),
            _ => {}
        }
        let Some(unpublished) = self.unpublished(forms, when)? else {
            self.catch_up_views().await?;
            return Ok(None);
        };
        let Unpublished { conn, readable, info, with_parquet, erasure, erased, erased_snapshots } =
            unpublished;
        let _step = self.progress.step_beside("publishing");
        failpoint::hit("before-publish");
        let stop = self.begin_interruptible(&conn);
        let started = Instant::now();
        let parquet = (with_parquet, erased_snapshots);
        let mut made = self.publish_now(conn, info.clone(), parquet, stop.clone()).await;
        // A folder that cannot be written to keeps the file for analysts from nobody.
        if let Err(error) = &made
            && with_parquet
            && publish::is_of_the_place(error)
        {
            let conn = self.store.connection()?;
            let without = self.publish_now(conn, info, (false, false), stop.clone()).await;
            made = match (without, made) {
                (Ok(published), Err(error)) => Ok(Made { upload: Some(Err(error)), ..published }),
                (_, made) => made,
            };
        }
        let Made { published, upload } = self.end_interruptible(&stop, made)?;
        let in_folder = with_parquet && upload.is_none();
        let views = match &published.views {
            Some(written) => {
                self.note_views(Some(written));
                Ok(())
            }
            None => self.catch_up_views().await,
        };
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
        let folder = self
            .root
            .as_ref()
            .filter(|_| in_folder)
            .map(|root| (root.address(), shown_at(root, &readable, &published.snapshot_id)));
        let snapshot =
            PublishedSnapshot { id: published.snapshot_id.clone(), taken_at: published.taken_at };
        let before = erasure.clone();
        self.writer
            .run(move |conn| {
                let state = State::new(conn);
                state.set_meta(SHOWN_BY_DATABASE, &shown)?;
                state.set_meta(PUBLISHED_FILE, &file)?;
                snapshot.note(conn)?;
                if let Some((address, shown)) = folder {
                    note_shown(conn, &address, &shown, &before)?;
                }
                note_published(conn, &before)
            })
            .await?;
        let took = started.elapsed();
        tracing::debug!(snapshot = published.snapshot_id, parquet = in_folder, ?took, "published");
        let last = Some((Instant::now(), published.clone()));
        *self.publishing.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
        self.publishing.count.send_modify(|count| *count += 1);
        views?;
        let uploading = upload.map(|upload| Uploading { upload, readable, erasure, alone });
        Ok(Some((published, uploading)))
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
        let (store, bounds) = (self.store.file()?, self.store.bounds().clone());
        let begun = {
            let (config, catalog) = (Arc::clone(&config), Arc::clone(&catalog));
            let (root, stop) = (root.clone(), stop.clone());
            let path = self.store.path().to_owned();
            blocking(move || {
                let turn = with_parquet.then(|| Turn::wait(&path, LONGEST_TURN, &stop));
                let turn = turn.transpose()?;
                let folder = config.publish.database.parent().unwrap_or(Path::new("."));
                durable::make_shared_folder(folder)?;
                // What was exported by hand has a name, too, and one of this publishing's own attempts.
                let in_folder = match &root {
                    Some(Root::Folder(folder)) => publish::current_snapshot(folder),
                    _ => None,
                };
                let last_id = publish::later_of(info.last_id.clone(), in_folder);
                let info = SnapshotInfo { last_id, ..info };
                let root = root.as_ref().filter(|_| with_parquet);
                let names = catalog.names();
                publish::begin(&targets(&config, root, &names, erased), info, turn, &stop)
            })
            .await?
        };
        let frozen = self
            .writer
            .between_commits(move |writing| {
                // No row is newer than what is said here: nothing is committed meanwhile.
                let snapshot = begun.taken_at(Timestamp::now());
                Frozen::with_file(writing, conn, (store, &bounds), snapshot)
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

/// Where the configuration wants it; no snapshot without its `root`.
pub(super) fn targets<'a>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::fixture::opened;
    use crate::status::parquet_lag;

    #[tokio::test]
    async fn a_turn_that_does_not_come_is_told_and_holds_up_the_snapshots_alone() {
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), "");
        let listed = "INSERT INTO sync.meta VALUES ('listed_at', '2026-11-20T02:00:00Z')";
        session.store().connection().unwrap().execute_batch(listed).unwrap();
        let lag = || parquet_lag(&session.store().connection().unwrap(), session.config()).unwrap();
        let held = Turn::wait(session.store().path(), Duration::ZERO, &Stop::default()).unwrap();
        let here = session.publish_here(Forms::Both, When::Changed).await.unwrap();
        assert!(publish::identity(&session.config().publish.database).unwrap().is_some());
        assert_eq!(lag(), None);
        let error = session.published(here).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        assert!(lag().unwrap().error.contains("another process publishes snapshots"));
        drop(held);
        session.publish(Forms::Both, When::Changed).await.unwrap().unwrap();
        assert_eq!(lag(), None);
    }
}
