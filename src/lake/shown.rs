//! What the lake says of itself: which snapshot of which store it shows, in a table of one row that changes with it in
//! one transaction. Two writers that met in spite of all could not both replace that row: DuckLake refuses the second.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine::{Engine, LAKE, PUBLISHED};
use super::errand::Errand;
use super::standing::Standing;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, from_micros, instant};

/// How this version arranges a lake. A later one is refused. It stands in the row, and in the comment of its table for who
/// reads the catalog alone: a lake that is brought up to another format needs both.
const FORMAT: i64 = 1;
/// Before the format in the comment. The first lakes have none there.
const IN_COMMENT: &str = " (format ";
const TABLE: &str = "lake.sync.lake_snapshot";

/// What is known of a table as the lake has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableState {
    pub(super) mark: String,
    pub(super) changes: Option<BTreeMap<String, i64>>,
    /// Which change the last one was, where the store had noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_change: Option<String>,
    /// Since all of its rows were compared, only those of scopes that changed were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_partly_compared: bool,
}

/// What is published, as the published file says.
#[derive(Debug, Clone)]
pub(super) struct Published {
    pub(super) snapshot_id: String,
    pub(super) taken_at: Timestamp,
    watermark: Option<Timestamp>,
    complete: bool,
    pub(super) store_id: String,
    tenant: Option<String>,
    /// Which erasure from it was the last.
    pub(super) erasures: String,
    /// What this store has carried to the lake before, as it knew when this was published.
    before: Standing,
}

/// What the lake shows.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    snapshot_id: String,
    taken_at: Option<Timestamp>,
    watermark: Option<Timestamp>,
    store_id: String,
    tenant: Option<String>,
    /// Which erasure from the store was the last that no snapshot of the lake can be from before.
    pub(super) erasures: String,
    /// When it was last tidied up.
    pub(super) kept_house_at: Option<Timestamp>,
    pub(super) tables: BTreeMap<String, TableState>,
    /// See [`super::views::Views::digest`].
    pub(super) views: String,
}

/// Key of `sync.meta`: which erasure of values from the store was the last. What earlier snapshots of the lake hold is to be
/// seen no more then.
pub(super) const ERASURES: &str = "erasures";

/// What the published store says of itself under this key.
///
/// # Errors
/// `Lake`.
pub(super) fn meta(engine: &Engine, key: &str) -> Result<Option<String>> {
    let sql =
        format!("SELECT max(value) FROM {PUBLISHED}.sync.meta WHERE key = {}", sql::text(key));
    engine.one("read what is published", &sql)
}

impl Published {
    /// `place`: see [`super::Errand::place`].
    ///
    /// # Errors
    /// `Lake`; `Config` where the file says nothing of itself.
    pub(super) fn read(engine: &Engine, place: &str) -> Result<Published> {
        let rows = engine.query(
            "read what is published",
            &format!(
                "SELECT snapshot_id, epoch_us(taken_at), epoch_us(watermark), complete \
                 FROM {PUBLISHED}.report.snapshot"
            ),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        let nothing =
            || Error::new(Kind::Config, "the published file names no snapshot or no store");
        let (snapshot_id, taken_at, watermark, complete) =
            rows.into_iter().next().ok_or_else(nothing)?;
        Ok(Published {
            snapshot_id,
            taken_at: from_micros(taken_at).ok_or_else(nothing)?,
            watermark: from_micros(watermark),
            complete,
            store_id: meta(engine, "store_id")?.ok_or_else(nothing)?,
            tenant: meta(engine, "tenant")?,
            erasures: meta(engine, ERASURES)?.unwrap_or_default(),
            before: Standing::parse(meta(engine, Standing::KEY)?.as_deref(), place),
        })
    }

    /// Writes that the lake shows this now; `erasures`: see [`Shown::erasures`].
    ///
    /// # Errors
    /// `Lake`, `Internal`.
    pub(super) fn enter(
        &self,
        engine: &Engine,
        erasures: &str,
        kept_house_at: Option<Timestamp>,
        tables: &BTreeMap<String, TableState>,
        views: &str,
    ) -> Result<()> {
        let tables = serde_json::to_string(tables)
            .map_err(|e| Error::caused(Kind::Internal, "the state of the lake is no JSON", e))?;
        let optional = |at: Option<Timestamp>| at.map_or("NULL".to_owned(), instant);
        engine.run(
            "say what the lake shows",
            &format!(
                "DELETE FROM {TABLE}; INSERT INTO {TABLE} VALUES \
                   ({FORMAT}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
                sql::text(&self.snapshot_id),
                instant(self.taken_at),
                optional(self.watermark),
                self.complete,
                sql::text(&self.store_id),
                self.tenant.as_deref().map_or("NULL".to_owned(), sql::text),
                sql::text(env!("CARGO_PKG_VERSION")),
                sql::text(erasures),
                optional(kept_house_at),
                sql::text(&tables),
                sql::text(views),
            ),
        )?;
        explain(engine, &format!("snapshot {}", self.snapshot_id))
    }

    /// Writes that no earlier snapshot of the lake is left. Only then: who is killed before begins to remove them anew.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn enter_removal(&self, engine: &Engine) -> Result<()> {
        let doing = "say that what was erased is removed";
        engine.run(doing, "BEGIN")?;
        let erasures = sql::text(&self.erasures);
        engine.run(doing, &format!("UPDATE {TABLE} SET erasures = {erasures}"))?;
        explain(engine, "erased values are removed")?;
        engine.run(doing, "COMMIT")
    }
}

impl Shown {
    /// Whether that is what is published: of the same name and the same instant.
    pub(super) fn is(&self, published: &Published) -> bool {
        self.snapshot_id == published.snapshot_id && self.taken_at == Some(published.taken_at)
    }

    /// Refuses to go back behind what readers have seen: a copy of the store on another host, or an earlier backup, has
    /// an earlier watermark. Behind what this store has carried itself it may go: a longer `feed.overlap` moves the
    /// watermark back; and what it has erased since is to be seen no more.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn check_not_later(&self, published: &Published, errand: &Errand) -> Result<()> {
        let before = errand.before(&published.before);
        let is_own = before.snapshot_id.as_ref() == Some(&self.snapshot_id)
            && before.taken_at == self.taken_at;
        let has_erased =
            self.erasures != published.erasures && errand.has_erased(&published.erasures);
        // Of two that stand at one watermark, and were not erased from alike, the copy may be the one that lacks it.
        let is_as_far = if self.erasures == published.erasures {
            published.watermark >= self.watermark
        } else {
            published.watermark > self.watermark
        };
        if is_own || has_erased || is_as_far {
            return Ok(());
        }
        let told = |watermark: Option<Timestamp>| {
            watermark.map_or_else(|| "none".to_owned(), |watermark| watermark.to_string())
        };
        let text = format!(
            "the schema {} of lake.catalog shows a later state of this mirror (watermark {}) than what is published \
             here ({}): another host with a copy of it publishes there, an earlier backup was restored, or feed.overlap is \
             longer now; it is carried there when it is later",
            errand.schema,
            told(self.watermark),
            told(published.watermark),
        );
        Err(Error::new(Kind::Lake, text))
    }

    /// What the lake shows; `None` where nothing was ever published to it.
    ///
    /// # Errors
    /// `Config`, `Tenant`, `StoreNewer` where it is not this store's, which is `published` now; `Lake`.
    pub(super) fn read(
        engine: &Engine,
        published: &Published,
        schema: &str,
    ) -> Result<Option<Shown>> {
        let doing = "read what the lake shows";
        let tables: i64 = engine.one(
            doing,
            &format!(
                "SELECT count(*) FROM duckdb_tables() WHERE database_name = '{LAKE}' AND NOT internal"
            ),
        )?;
        if tables == 0 {
            return Ok(None);
        }
        if !Shown::is_ours(engine, schema)? {
            return Err(refused(Kind::Config, schema, "holds tables that casemirror did not make"));
        }
        let rows = engine.query(
            doing,
            &format!(
                "SELECT snapshot_id, store_id, tenant, erasures, epoch_us(kept_house_at), tables, views, \
                   epoch_us(taken_at), epoch_us(watermark), format FROM {TABLE}"
            ),
            |row| {
                let text = |at| row.get::<_, String>(at);
                let tables = text(5)?;
                let shown = Shown {
                    snapshot_id: text(0)?,
                    taken_at: from_micros(row.get(7)?),
                    watermark: from_micros(row.get(8)?),
                    store_id: text(1)?,
                    tenant: row.get(2)?,
                    erasures: text(3)?,
                    kept_house_at: from_micros(row.get(4)?),
                    // What cannot be read makes every table be written anew.
                    tables: serde_json::from_str(&tables).unwrap_or_default(),
                    views: text(6)?,
                };
                Ok((row.get(9)?, shown))
            },
        )?;
        let Some((format, shown)) = rows.into_iter().next() else {
            return Err(refused(Kind::Config, schema, "does not say whose it is"));
        };
        check_format(schema, format)?;
        if shown.tenant.is_some() && published.tenant.is_some() && shown.tenant != published.tenant
        {
            return Err(refused(Kind::Config, schema, "holds another tenant's data"));
        }
        if shown.store_id != published.store_id {
            return Err(refused(Kind::Config, schema, "was written by another mirror"));
        }
        Ok(Some(shown))
    }

    /// Whether casemirror made the lake, by the catalog alone: the data may be out of reach.
    ///
    /// # Errors
    /// `StoreNewer` where a later version did; `Lake`.
    pub(super) fn is_ours(engine: &Engine, schema: &str) -> Result<bool> {
        let doing = "read what the lake shows";
        let comments: Vec<Option<String>> = engine.query(
            doing,
            &format!(
                "SELECT comment FROM duckdb_tables() WHERE database_name = '{LAKE}' AND schema_name = 'sync' \
                 AND table_name = 'lake_snapshot'"
            ),
            |row| row.get(0),
        )?;
        let Some(comment) = comments.into_iter().next() else { return Ok(false) };
        check_format(schema, comment.as_deref().and_then(format_in))?;
        Ok(true)
    }

    /// Makes the table that says it, in a lake without one.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn begin(engine: &Engine) -> Result<()> {
        engine.set_options()?;
        engine.run(
            "prepare the lake",
            &format!(
                "CREATE SCHEMA {LAKE}.history; CREATE SCHEMA {LAKE}.report; CREATE SCHEMA {LAKE}.sync; \
                 CREATE TABLE {TABLE} (format BIGINT, snapshot_id VARCHAR, taken_at TIMESTAMPTZ, \
                   watermark TIMESTAMPTZ, complete BOOLEAN, store_id VARCHAR, tenant VARCHAR, program VARCHAR, \
                   erasures VARCHAR, kept_house_at TIMESTAMPTZ, tables VARCHAR, views VARCHAR); \
                 COMMENT ON TABLE {TABLE} IS \
                   'Which snapshot of which mirror this lake shows: one row{IN_COMMENT}{FORMAT})'"
            ),
        )
    }
}

/// The format that a comment names.
fn format_in(comment: &str) -> Option<i64> {
    let (_, format) = comment.rsplit_once(IN_COMMENT)?;
    format.strip_suffix(')')?.parse().ok()
}

/// Refuses what a later version has arranged.
fn check_format(schema: &str, format: Option<i64>) -> Result<()> {
    if format.is_none_or(|format| format <= FORMAT) {
        return Ok(());
    }
    let text =
        format!("the schema {schema} of lake.catalog was written by a newer version of casemirror");
    Err(Error::new(Kind::StoreNewer, text))
}

/// Says what the transaction is, in the lake's own list of snapshots.
fn explain(engine: &Engine, message: &str) -> Result<()> {
    let message = sql::text(message);
    engine.run(
        "say what the lake shows",
        &format!("CALL {LAKE}.set_commit_message('casemirror', {message})"),
    )
}

fn refused(kind: Kind, schema: &str, what: &str) -> Error {
    Error::new(
        kind,
        format!(
            "lake.schema: the schema {schema} of lake.catalog {what}: one mirror has one schema; name another one"
        ),
    )
}
