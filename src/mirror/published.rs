//! What readers have (docs/architecture.md, "Published means finished"). `sync.snapshot` says what a copy of the store
//! shows, and is written before the copy is made: of the store itself it says what was to be published.

use duckdb::Connection;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::error::{Error, Kind, Result};

/// Key of `sync.meta`.
const KEY: &str = "published_snapshot";

/// The snapshot that the published database shows, noted when that is in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedSnapshot {
    pub(crate) id: String,
    pub(crate) taken_at: Timestamp,
}

impl PublishedSnapshot {
    /// What is noted; `None` where nothing was published yet.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn of(conn: &Connection) -> Result<Option<PublishedSnapshot>> {
        let noted = schema::meta(conn, KEY)?;
        Ok(noted.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Notes it.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn note(&self, conn: &Connection) -> Result<()> {
        let text = serde_json::to_string(self)
            .map_err(|e| Error::caused(Kind::Internal, "a snapshot cannot be noted", e))?;
        schema::set_meta(conn, KEY, &text)
    }
}
