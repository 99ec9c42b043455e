//! Where the lake is: its catalog and its data (docs/lake.md).

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::places::lead_to_one;
use super::reader::Reader;

/// Names of schemas of PostgreSQL's own, and of ours: leases are kept there.
const TAKEN: [&str; 3] = ["information_schema", "casemirror", "public"];
/// PostgreSQL cuts longer names.
const LONGEST_NAME: usize = 63;

/// The catalog of the lake.
#[derive(Debug, Clone)]
pub(crate) enum LakeCatalog {
    /// What libpq connects with: `dbname=... host=...`, or an address that begins with `postgresql://`. It may
    /// hold a password.
    Postgres(SecretString),
    /// A DuckDB file, for one reader at a time.
    File(PathBuf),
}

impl LakeCatalog {
    /// What libpq connects with.
    pub(crate) fn connection(&self) -> Option<&str> {
        match self {
            LakeCatalog::Postgres(connection) => Some(connection.expose_secret()),
            LakeCatalog::File(_) => None,
        }
    }
}

/// Where the Parquet files of the lake are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LakeData {
    Folder(PathBuf),
    /// `s3://bucket/path`.
    ObjectStore(String),
}

impl LakeData {
    /// As DuckLake takes it.
    pub(crate) fn address(&self) -> String {
        match self {
            LakeData::Folder(path) => path.display().to_string(),
            LakeData::ObjectStore(address) => address.clone(),
        }
    }
}

impl Reader {
    /// `lake.catalog`.
    pub(super) fn lake_catalog(&mut self, key: &str) -> Option<LakeCatalog> {
        let text = self.text(key, "must be \"postgres:...\" or the path of a DuckDB file")?;
        let connection = if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Some(text.replacen("postgres://", "postgresql://", 1))
        } else {
            text.strip_prefix("postgres:").map(str::to_owned)
        };
        if let Some(connection) = connection {
            return Some(LakeCatalog::Postgres(SecretString::from(connection)));
        }
        if text.contains("://") || text.starts_with("ducklake:") {
            self.refuse(key, "must be \"postgres:...\" or the path of a DuckDB file");
            return None;
        }
        let path = self.path(key)?;
        for other in ["store.path", "publish.database", "publish.views", "publish.parquet"] {
            if self.peek_path(other).is_some_and(|other| lead_to_one(&path, &other)) {
                self.refuse(key, format!("must be another file than {other}"));
                return None;
            }
        }
        Some(LakeCatalog::File(path))
    }

    /// `lake.data`, which is needed where there is a catalog.
    pub(super) fn lake_data(&mut self, key: &str) -> Option<Option<LakeData>> {
        if !self.is_set(key) {
            if self.is_set("lake.catalog") {
                self.refuse(
                    key,
                    "must be set, too, where lake.catalog is: a folder, or \"s3://bucket/path\"",
                );
                return None;
            }
            return Some(None);
        }
        let text = self.text(key, "must be a folder, or \"s3://bucket/path\"")?;
        if let Some(rest) = text.strip_prefix("s3://") {
            if rest.split('/').next().is_none_or(str::is_empty) || rest.contains(['?', '#']) {
                self.refuse(key, "must name a bucket, as in \"s3://bucket/path\"");
                return None;
            }
            return Some(Some(LakeData::ObjectStore(text)));
        }
        if text.contains("://") {
            self.refuse(key, "must be a folder, or \"s3://bucket/path\"");
            return None;
        }
        let path = self.path(key)?;
        let is_taken =
            |other: &str| self.peek_path(other).is_some_and(|other| is_within(&path, &other));
        if is_taken("publish.parquet") {
            self.refuse(key, "must be another folder than publish.parquet");
            return None;
        }
        Some(Some(LakeData::Folder(path)))
    }

    /// `lake.schema`.
    pub(super) fn lake_schema(&mut self, key: &str) -> Option<String> {
        let rule = "must be a name of lower-case letters, digits and _ that does not begin with a digit or pg_, \
                    such as \"oslo\"";
        let name = self.text(key, rule)?;
        let is_name = name.len() <= LONGEST_NAME
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.starts_with("pg_");
        if !is_name {
            self.refuse(key, rule);
            return None;
        }
        if TAKEN.contains(&name.as_str()) {
            self.refuse(key, format!("must be none of {}", TAKEN.join(", ")));
            return None;
        }
        Some(name)
    }
}

/// Whether one of the folders is the other, or within it.
fn is_within(one: &Path, other: &Path) -> bool {
    let within =
        |inner: &Path, outer: &Path| inner.ancestors().any(|above| lead_to_one(above, outer));
    within(one, other) || within(other, one)
}
