//! What there is to publish: whether readers have it already, and what it says of itself.

use std::sync::Arc;

use duckdb::Connection;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::Session;
use super::publishing::{Forms, PUBLISHED_FILE, When};
use crate::catalog::Catalog;
use crate::error::{Error, Kind, Result};
use crate::mirror::{
    PublishLag, PublishPlace, Residue, RunLog, SHOWN_BY_PARQUET, State, holds_erased, last_erasure,
    note_replaced, stay_in_snapshots,
};
use crate::pending::{self, PendingScope};
use crate::publish::{self, Manifest, Root, SnapshotInfo};
use crate::sql;
use crate::text::hex;
use crate::ticks::Ticks;

/// Key of `sync.meta`: the state of the store that the published database shows.
pub(super) const SHOWN_BY_DATABASE: &str = "published_state";

/// Key of `sync.meta`: the feed's bound, in ticks, when what is pending was last collected.
const WATERMARK: &str = "watermark";
/// Key of `sync.meta`: where the snapshot is that was uploaded last.
pub(super) const UPLOADED: &str = "uploaded_snapshot";

/// Why there is nothing to publish.
pub(crate) const NOTHING_LISTED: &str =
    "nothing is published before the first complete listing of the cases";

/// A committed state that readers do not have yet.
pub(super) struct Unpublished {
    /// Used for nothing else.
    pub(super) conn: Connection,
    /// See [`State::readable_state`].
    pub(super) readable: String,
    pub(super) info: SnapshotInfo,
    pub(super) with_parquet: bool,
    /// The last erasure before it ([`last_erasure`]).
    pub(super) erasure: String,
    /// The published file holds what is to be seen no more.
    pub(super) erased: bool,
    /// So do the snapshots and the packs.
    pub(super) erased_snapshots: bool,
}

impl Session {
    /// Writes what is stale, why and since when, and which tables are complete.
    pub(super) async fn note_pending(&self) -> Result<()> {
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

    /// Whether the cases have been listed completely at least once, as far as there is anything to list.
    pub(crate) fn has_listed(&self) -> Result<bool> {
        State::new(&self.store.connection()?).standings().are_listed()
    }

    /// What there is to publish, if anything.
    pub(super) fn unpublished(&self, forms: Forms, when: When) -> Result<Option<Unpublished>> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        // Before the rest: what is erased from here on is for the next publishing.
        let erasure = last_erasure(&conn)?;
        let readable = state.readable_state()?;
        let Some(info) = snapshot_info(&conn, &self.catalog, &readable, &erasure)? else {
            tracing::debug!("{NOTHING_LISTED}");
            return Ok(None);
        };
        let erased = Residue::Published.is_in(&conn)?;
        // To a bucket nothing goes but at its own pace: it may be out of reach.
        let is_in_reach = match &self.root {
            None => false,
            Some(Root::Folder(_)) => true,
            Some(Root::Bucket(_)) => forms == Forms::Both,
        };
        let holds_erased = match &self.root {
            Some(root) => holds_erased(&conn, &root.address())?,
            None => false,
        };
        let erased_snapshots = holds_erased && is_in_reach;
        let with_parquet = erased_snapshots || (forms == Forms::Both && self.root.is_some());
        let shown = !(erased || erased_snapshots)
            && self.database_shows(&state, &readable)?
            && (!with_parquet || self.parquet_shows(&state, &readable)?);
        if shown && when == When::Changed {
            return Ok(None);
        }
        Ok(Some(Unpublished {
            conn,
            readable,
            info,
            with_parquet,
            erasure,
            erased,
            erased_snapshots,
        }))
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
        let file = publish::identity(&self.config.publish.database)?;
        // Another file is there where the store, or the file, was put back to an earlier state.
        Ok(file.is_some()
            && file == state.meta(PUBLISHED_FILE)?
            && state.meta(SHOWN_BY_DATABASE)?.as_deref() == Some(readable))
    }

    fn parquet_shows(&self, state: &State<'_>, readable: &str) -> Result<bool> {
        let Some(root) = &self.root else { return Ok(true) };
        let shown = state.meta(SHOWN_BY_PARQUET)?;
        let shows = |id: &str| shown == Some(shown_at(root, readable, id));
        match root {
            // Of a bucket it is not asked each time which snapshot it shows.
            Root::Bucket(_) => Ok(self.publishing.uploads.there_is_one() && shows("")),
            Root::Folder(folder) => {
                let Some(id) = publish::current_snapshot(folder) else { return Ok(false) };
                // One that was exported in between shows the same, or one of a time that is gone does not.
                let exported = || {
                    let manifest = Manifest::read(&folder.join("latest")).ok();
                    manifest.and_then(|manifest| manifest.state) == Some(digest(readable))
                };
                Ok(shows(&id) || exported())
            }
        }
    }
}

/// Tells states apart, and says nothing of them.
fn digest(readable: &str) -> String {
    hex(&Sha256::digest(readable))
}

/// What is noted of a state that the snapshot `id` at `root` shows: of another place, or of another snapshot there, it says
/// nothing.
pub(super) fn shown_at(root: &Root, readable: &str, id: &str) -> String {
    format!("{readable} in {} as {id}", root.address())
}

/// Notes that a snapshot at `address` is there for readers; `shown` is [`shown_at`], `erasure` the last one before it.
///
/// # Errors
/// Those of the store.
pub(super) fn note_shown(
    conn: &Connection,
    address: &str,
    shown: &str,
    erasure: &str,
) -> Result<()> {
    State::new(conn).set_meta(SHOWN_BY_PARQUET, shown)?;
    note_replaced(conn, address, erasure)?;
    PublishLag::is_over(conn, PublishPlace::Parquet)
}

/// What a snapshot taken now says of itself; `None` before the first complete listing of the cases. `readable` is
/// [`State::readable_state`], asked before, `erasure` is [`last_erasure`], asked before anything of it.
///
/// # Errors
/// Those of reading the store.
pub(crate) fn snapshot_info(
    conn: &Connection,
    catalog: &Catalog,
    readable: &str,
    erasure: &str,
) -> Result<Option<SnapshotInfo>> {
    let state = State::new(conn);
    if !state.standings().are_listed()? {
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
        state: digest(readable),
        erasure: Some(erasure.to_owned()).filter(|erasure| !erasure.is_empty()),
        last_id: sql::query(conn, "SELECT snapshot_id FROM sync.snapshot", |row| row.get(0))?
            .into_iter()
            .next(),
        uploaded: state.meta(UPLOADED)?,
    }))
}
