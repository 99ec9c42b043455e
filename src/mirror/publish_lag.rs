//! Since when a place does not have what readers should find there, and why (docs/architecture.md, "Published means
//! finished"); and the same of the webhook subscriptions.

use duckdb::Connection;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::error::{Error, Kind, Result};

/// A place for what is published, by the key of `sync.meta` that notes where it lags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishPlace {
    /// The file for analysts, and all that goes with it.
    Database,
    /// The snapshots at `publish.parquet`.
    Parquet,
    /// The platform, with the webhook subscriptions that lead to `serve.public_url`.
    Subscriptions,
}

impl PublishPlace {
    fn key(self) -> &'static str {
        match self {
            PublishPlace::Database => "publish_lag",
            PublishPlace::Parquet => "parquet_lag",
            PublishPlace::Subscriptions => "subscriptions_lag",
        }
    }
}

/// What is noted at the first failure, and its reason with each further one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishLag {
    /// Where it was to go.
    pub(crate) address: String,
    pub(crate) since: Timestamp,
    /// When it was tried the last time.
    #[serde(default)]
    pub(crate) failed_at: Timestamp,
    /// Of that try.
    pub(crate) error: String,
}

impl PublishLag {
    /// What is noted of this address.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn of(
        conn: &Connection,
        place: PublishPlace,
        address: &str,
    ) -> Result<Option<PublishLag>> {
        let noted = schema::meta(conn, place.key())?;
        let lag = noted.and_then(|text| serde_json::from_str::<PublishLag>(&text).ok());
        Ok(lag.filter(|lag| lag.address == address))
    }

    /// It could not go there.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn note(
        conn: &Connection,
        place: PublishPlace,
        address: &str,
        error: String,
        now: Timestamp,
    ) -> Result<()> {
        let since = PublishLag::of(conn, place, address)?.map_or(now, |lag| lag.since);
        let lag = PublishLag { address: address.to_owned(), since, failed_at: now, error };
        let text = serde_json::to_string(&lag)
            .map_err(|e| Error::caused(Kind::Internal, "a failure cannot be written down", e))?;
        schema::set_meta(conn, place.key(), &text)
    }

    /// It went there.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn is_over(conn: &Connection, place: PublishPlace) -> Result<()> {
        schema::remove_meta(conn, place.key())
    }
}
