//! `manifest.json`: what a snapshot holds, so that a reader sees one snapshot whatever `latest` does
//! (docs/architecture.md, "Published means finished").

use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use jiff::Timestamp;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::to_raw_value;
use sha2::{Digest, Sha256};

use super::footer::FileStatistics;
use crate::error::{self, Error, Kind, Result};
use crate::text::hex;

/// Name of the file in the folder of a snapshot.
pub(super) const FILE_NAME: &str = "manifest.json";

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub snapshot_id: String,
    /// RFC 3339 in UTC: `2026-11-20T02:00:00.000000Z`.
    pub(crate) taken_at: String,
    /// Every change with a `ModifiedDate` up to here is in; null before the first complete poll.
    pub watermark: Option<String>,
    /// Whether every scope that the configuration asks for had been fetched once.
    pub(crate) complete: bool,
    pub(crate) program: String,
    pub(crate) program_version: String,
    pub(crate) duckdb_version: String,
    /// Tells whose change counters these are.
    pub(crate) store_id: String,
    /// A digest of what the store held then, as far as readers can see it; none in the manifest of an earlier version.
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// Which erasure of values from the store was the last before it, by a name of its own; null where there was none, and
    /// none in the manifest of an earlier version.
    #[serde(default)]
    pub(crate) erasure: Option<String>,
    #[serde(serialize_with = "a_line_each")]
    pub files: Vec<File>,
}

/// A Parquet file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// From `publish.parquet` on, with `/`.
    pub(crate) path: String,
    /// `cases`, or `report.signed_cases`.
    pub(crate) table: String,
    pub rows: u64,
    pub bytes: u64,
    /// Of the file, in hex.
    pub(crate) sha256: String,
    /// Change counter of the table in the store; null for what has none, as reports.
    #[serde(default)]
    pub changes: Option<i64>,
    /// Of a report: hash of its SQL and of what states the relations were in that it is made from, in
    /// hex; null where that is not known.
    #[serde(default)]
    pub(crate) inputs: Option<String>,
    /// Hash of the names and types of the columns, in hex.
    #[serde(default)]
    pub(crate) columns: String,
    /// What the file's footer says of its columns, by their names; null in the manifest of an earlier
    /// version.
    #[serde(default)]
    pub(crate) statistics: Option<FileStatistics>,
}

impl Manifest {
    /// The manifest in the folder of a snapshot.
    ///
    /// # Errors
    /// `Kind::Io`, also for a file that is no manifest.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(FILE_NAME);
        let text = fs::read(&path).map_err(|e| error::io("read", &path, e))?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::caused(Kind::Io, format!("{} is no manifest", path.display()), e))
    }

    /// As it is written.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| {
            Error::caused(Kind::Internal, "a manifest cannot be written as JSON", e)
        })?;
        text.push(b'\n');
        Ok(text)
    }

    /// Writes it into the folder of its snapshot.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE_NAME);
        let failed = |e| error::io("write", &path, e);
        let text = self.to_bytes()?;
        fs::File::create_new(&path).and_then(|mut f| f.write_all(&text)).map_err(failed)
    }
}

/// The statistics of all columns of all files are thousands: with lines and indentations of their own these
/// would be most of the manifest.
fn a_line_each<S: Serializer>(
    files: &[File],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let lines: serde_json::Result<Vec<_>> = files.iter().map(to_raw_value).collect();
    lines.map_err(S::Error::custom)?.serialize(serializer)
}

/// Size and SHA-256 of a file.
///
/// # Errors
/// `Kind::Io`.
pub(super) fn measure(path: &Path) -> Result<(u64, String)> {
    let failed = |e| error::io("read", path, e);
    let mut file = BufReader::with_capacity(1 << 16, fs::File::open(path).map_err(failed)?);
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok((bytes, hex(&hash.finalize()))),
            n => {
                hash.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
}

/// An instant, cut to the microseconds that the tables have.
pub(super) fn rfc3339(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// SHA-256 of a text.
pub(super) fn fingerprint(text: &str) -> String {
    hex(&Sha256::digest(text))
}
