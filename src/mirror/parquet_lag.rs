//! Since when a bucket has not taken the Parquet snapshots, and why (docs/architecture.md, "Published means
//! finished").

use duckdb::Connection;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::error::{Error, Kind, Result};

/// Key of `sync.meta`.
const KEY: &str = "parquet_lag";

/// What is noted at the first failure, and its reason with each further one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParquetLag {
    /// Where the snapshots were to go.
    pub(crate) address: String,
    pub(crate) since: Timestamp,
    /// Of the last try.
    pub(crate) error: String,
}

impl ParquetLag {
    /// What is noted of this address.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn of(conn: &Connection, address: &str) -> Result<Option<ParquetLag>> {
        let noted = schema::meta(conn, KEY)?;
        let lag = noted.and_then(|text| serde_json::from_str::<ParquetLag>(&text).ok());
        Ok(lag.filter(|lag| lag.address == address))
    }

    /// A snapshot could not go there.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn note(
        conn: &Connection,
        address: &str,
        error: String,
        now: Timestamp,
    ) -> Result<()> {
        let since = ParquetLag::of(conn, address)?.map_or(now, |lag| lag.since);
        let lag = ParquetLag { address: address.to_owned(), since, error };
        let text = serde_json::to_string(&lag)
            .map_err(|e| Error::caused(Kind::Internal, "a failure cannot be written down", e))?;
        schema::set_meta(conn, KEY, &text)
    }

    /// One went there.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn is_over(conn: &Connection) -> Result<()> {
        schema::remove_meta(conn, KEY)
    }
}
