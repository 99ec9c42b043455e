//! Where the lake is: its catalog and its data (docs/lake.md).

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use url::Url;

use super::Config;
use super::conninfo::Conninfo;
use super::parquet_root::{self, BucketUrl, ParquetRoot, Provider};
use super::places::lead_to_one;
use super::reader::Reader;
use super::rules;

/// Names of schemas of PostgreSQL's own, and of ours: leases are kept there.
const TAKEN: [&str; 3] = ["information_schema", "casemirror", "public"];
/// PostgreSQL cuts longer names.
const LONGEST_NAME: usize = 63;

const SCHEMA_RULE: &str = "must be a name of lower-case letters, digits and _ that does not begin with a digit or pg_, \
     such as \"oslo\"";
const CATALOG_RULE: &str = "must be \"postgres:...\" or the path of a DuckDB file";
const MEANT_RULE: &str = "must begin with \"postgres:\" where it says how PostgreSQL is reached, such as \
     \"postgres:dbname=lake host=db.example.com\"; it would be the name of a file";
const CONNECTION_RULE: &str = "must be as PostgreSQL's libpq reads it: \"postgres:\" and pairs such as dbname=lake host=db, \
     values with spaces in single quotes, or an address such as \"postgresql://user@host/dbname\"";
const DATA_RULE: &str = "must be a folder, or \"s3://bucket/path\"";

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
    /// In S3, or what speaks its protocol.
    Bucket(BucketUrl),
}

impl LakeData {
    /// As DuckLake takes it.
    pub(crate) fn address(&self) -> String {
        match self {
            LakeData::Folder(path) => path.display().to_string(),
            LakeData::Bucket(url) => url.to_string(),
        }
    }
}

/// A place that other hosts of this API user reach too, where a lease of the change feeds is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeasePlace {
    /// The PostgreSQL of `lake.catalog`.
    Catalog,
    /// The bucket of `publish.parquet`, where there is no such catalog.
    Bucket,
}

/// Whether a connection, in either notation, holds a password or the like.
fn holds_secret(connection: &str) -> bool {
    match Url::parse(connection) {
        Ok(url) if connection.contains("://") => url.password().is_some() || url.query().is_some(),
        _ => Conninfo::parse(connection).is_none_or(|parts| parts.secrets().next().is_some()),
    }
}

impl Config {
    /// Whether what is published goes to a lake too.
    pub(crate) fn has_lake(&self) -> bool {
        self.lake.catalog.is_some() && self.lake.data.is_some()
    }

    /// Where the lease is; `None` where hosts share nothing.
    pub(crate) fn lease_place(&self) -> Option<LeasePlace> {
        if matches!(self.lake.catalog, Some(LakeCatalog::Postgres(_))) {
            return Some(LeasePlace::Catalog);
        }
        matches!(self.publish.parquet, Some(ParquetRoot::Bucket(_))).then_some(LeasePlace::Bucket)
    }
}

impl Reader {
    /// `lake.catalog`.
    pub(super) fn lake_catalog(&mut self, key: &str) -> Option<LakeCatalog> {
        let text = self.text(key, CATALOG_RULE)?;
        let connection = if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Some(text.replacen("postgres://", "postgresql://", 1))
        } else {
            text.strip_prefix("postgres:").map(str::to_owned)
        };
        if let Some(connection) = connection {
            let is_one = if connection.starts_with("postgresql://") {
                Url::parse(&connection).is_ok()
            } else {
                Conninfo::parse(&connection).is_some()
            };
            if !is_one {
                self.refuse(key, CONNECTION_RULE);
                return None;
            }
            if holds_secret(&connection) {
                rules::check_origin_mode(self, key);
            }
            return Some(LakeCatalog::Postgres(SecretString::from(connection)));
        }
        // As the name of a file it would show its password to all who list the folder.
        let begins = text.trim_start().to_ascii_lowercase();
        if ["postgres:", "postgresql:"].iter().any(|scheme| begins.starts_with(scheme))
            || Conninfo::is_meant(&text)
        {
            self.refuse(key, MEANT_RULE);
            return None;
        }
        if BucketUrl::is_one(&text) || text.starts_with("ducklake:") {
            self.refuse(key, CATALOG_RULE);
            return None;
        }
        self.written_path(key).map(LakeCatalog::File)
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
        // A person's shell need not have the catalog, which holds a password, to look at the mirror.
        if !self.is_set("lake.catalog") {
            if self.is_offline() {
                return Some(None);
            }
            self.refuse(key, "lake.catalog must be set, too: there is no lake without it");
            return None;
        }
        let text = self.text(key, DATA_RULE)?;
        let data = if BucketUrl::is_one(&text) {
            let url = match BucketUrl::parse(&text) {
                Ok(url) if url.provider() == Provider::S3 => Ok(url),
                Ok(_) | Err(parquet_root::RULE) => Err(DATA_RULE),
                Err(rule) => Err(rule),
            };
            url.map(LakeData::Bucket).map_err(|rule| self.refuse(key, rule)).ok()?
        } else {
            LakeData::Folder(self.written_path(key)?)
        };
        // What is published there has files of its own, which a lake would take for left over.
        let parquet = "publish.parquet";
        let parquet = self.is_set(parquet).then(|| self.quietly(|r| r.parquet_root(parquet)));
        let is_taken = match (&data, parquet.flatten()) {
            (LakeData::Folder(data), Some(ParquetRoot::Folder(parquet))) => {
                is_within(data, &parquet)
            }
            (LakeData::Bucket(data), Some(ParquetRoot::Bucket(parquet))) => {
                data.is_within(&parquet) || parquet.is_within(data)
            }
            _ => false,
        };
        if is_taken {
            self.refuse(key, "must be another place than publish.parquet, and not within it");
            return None;
        }
        Some(Some(data))
    }

    /// `lake.schema`.
    pub(super) fn lake_schema(&mut self, key: &str) -> Option<String> {
        let name = self.text(key, SCHEMA_RULE)?;
        if let Err(rule) = check_schema(&name) {
            self.refuse(key, rule);
            return None;
        }
        Some(name)
    }
}

/// Checks the name of a schema of the catalog.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn check_schema(name: &str) -> std::result::Result<(), String> {
    let is_name = (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.starts_with("pg_");
    if !is_name {
        return Err(SCHEMA_RULE.to_owned());
    }
    if TAKEN.contains(&name) {
        return Err(format!("must be none of {}", TAKEN.join(", ")));
    }
    Ok(())
}

/// Whether one of the folders is the other, or within it.
fn is_within(one: &Path, other: &Path) -> bool {
    let within =
        |inner: &Path, outer: &Path| inner.ancestors().any(|above| lead_to_one(above, outer));
    within(one, other) || within(other, one)
}
