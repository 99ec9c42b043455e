//! How the lake stands, for people to read.

use duckdb::Connection;
use jiff::Timestamp;
use serde::Serialize;

use super::shown;
use crate::config::Config;
use crate::error::Result;
use crate::lake::{Errand, Standing};
use crate::mirror::{PublishedSnapshot, State};

/// How the lake stands.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Lake {
    pub(crate) schema: String,
    /// The snapshot that it shows; none where nothing was carried to it yet.
    pub(crate) snapshot_id: Option<String>,
    pub(crate) taken_at: Option<String>,
    pub(crate) succeeded_at: Option<String>,
    /// 0 where it shows what is published; none where it is not known.
    pub(crate) behind_seconds: Option<u64>,
    pub(crate) failing_since: Option<String>,
    pub(crate) error: Option<String>,
}

/// What the store remembers of it; `None` where there is none.
///
/// # Errors
/// Those of the store.
pub(crate) fn standing(config: &Config, conn: &Connection) -> Result<Option<Standing>> {
    let Some(place) = Errand::of(config).map(|errand| errand.place()) else { return Ok(None) };
    let known = State::new(conn).meta(Standing::KEY)?;
    Ok(Some(Standing::parse(known.as_deref(), &place)))
}

impl Lake {
    /// How it stands by what the store remembers; `None` where there is none.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn of(config: &Config, conn: &Connection) -> Result<Option<Lake>> {
        let Some(standing) = standing(config, conn)? else { return Ok(None) };
        let published = PublishedSnapshot::of(conn)?.map(|published| published.id);
        let behind = standing.behind(published.as_deref(), Timestamp::now());
        Ok(Some(Lake {
            schema: config.lake.schema.clone(),
            snapshot_id: standing.snapshot_id,
            taken_at: standing.taken_at.map(shown),
            succeeded_at: standing.succeeded_at.map(shown),
            behind_seconds: behind.map(|behind| behind.as_secs()),
            failing_since: standing.failing_since.map(shown),
            error: standing.error,
        }))
    }

    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        let since = self.failing_since.as_deref().unwrap_or("-");
        Some(format!("the lake is behind, since {since}: {error}"))
    }
}
