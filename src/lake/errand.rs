//! What is to be carried where: all that a publishing has to know of the configuration. It goes to the process
//! that does it over its standard input, so that no secret stands on a command line or in an environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::extensions;
use super::standing::Standing;
use crate::config::{Config, LakeCatalog, LakeData};
use crate::durable::with_suffix;
use crate::error::{Error, Kind, Result};

/// One publishing. It may hold a password, so that it has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Errand {
    pub(super) catalog: Catalog,
    /// A folder, or `s3://bucket/path`: see [`Errand::data_of`].
    pub(super) data: String,
    pub(super) is_object_store: bool,
    pub(super) schema: String,
    pub(super) secret_file: Option<PathBuf>,
    pub(super) keep_for: Duration,
    /// The published file.
    pub(super) published: PathBuf,
    /// Where the extensions are installed.
    pub(super) extensions: PathBuf,
    /// What does not fit into memory goes here.
    pub(super) spill: PathBuf,
    /// As DuckDB writes it.
    pub(super) memory_limit: String,
    pub(super) threads: Option<usize>,
    /// What the store has carried there before, where whoever asks has it open.
    pub(super) before: Option<Standing>,
    /// It has just erased values, which are to be seen no more.
    pub(super) erases: bool,
}

/// See [`LakeCatalog`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Catalog {
    Postgres(String),
    File(PathBuf),
}

impl Errand {
    /// What the configuration asks for; `None` where there is no lake.
    pub(crate) fn of(config: &Config) -> Option<Errand> {
        let lake = &config.lake;
        let data = lake.data.as_ref()?;
        let catalog = match lake.catalog.as_ref()? {
            catalog @ LakeCatalog::Postgres(_) => {
                Catalog::Postgres(catalog.connection().unwrap_or_default().to_owned())
            }
            LakeCatalog::File(path) => Catalog::File(path.clone()),
        };
        Some(Errand {
            catalog,
            data: data.address(),
            is_object_store: matches!(data, LakeData::Bucket(_)),
            schema: lake.schema.clone(),
            secret_file: lake.secret_file.clone(),
            keep_for: lake.keep_for,
            published: config.publish.database.clone(),
            extensions: extensions::folder(&config.store.path),
            spill: with_suffix(&config.store.path, ".lake.tmp"),
            memory_limit: config.store.memory_limit.clone(),
            threads: config.store.threads,
            before: None,
            erases: false,
        })
    }

    /// The same where the store is open, and says how the lake stands.
    pub(crate) fn by_store(self, before: Standing, erases: bool) -> Errand {
        Errand { before: Some(before), erases, ..self }
    }

    /// What the store had carried there, as far as is known; `published`: as the published file says.
    pub(super) fn before<'s>(&'s self, published: &'s Standing) -> &'s Standing {
        self.before.as_ref().unwrap_or(published)
    }

    /// Whether values were erased from the store since it carried something, of which the last erasure is `erasures`. The
    /// published file cannot say it: one that `forget` has made says so for as long as it is there.
    pub(super) fn has_erased(&self, erasures: &str) -> bool {
        let last = self.before.as_ref().and_then(|before| before.erasures.as_deref());
        self.erases || last.is_some_and(|last| last != erasures)
    }

    /// The same for a command that cannot do without.
    ///
    /// # Errors
    /// `Config` where there is no lake.
    pub(crate) fn required(config: &Config) -> Result<Errand> {
        let off = || {
            Error::new(
                Kind::Config,
                "there is no lake: set lake.catalog and lake.data (docs/lake.md)",
            )
        };
        Errand::of(config).ok_or_else(off)
    }

    /// The file that is carried to the lake.
    pub(crate) fn published(&self) -> &Path {
        &self.published
    }

    /// By what a lake is told from another one; it holds no secret.
    pub(crate) fn place(&self) -> String {
        format!("{} in {}", self.schema, self.data)
    }

    /// Where in `lake.data` the files of this store's lake are. DuckLake takes every other file there for one that
    /// is left over, and removes it: so nobody else may have any there.
    pub(super) fn data_of(&self, store_id: &str) -> String {
        let folder = format!("{}-{store_id}", self.schema);
        if self.is_object_store {
            return format!("{}/{folder}", self.data);
        }
        Path::new(&self.data).join(folder).display().to_string()
    }

    /// Which extensions it needs.
    pub(super) fn extensions(&self) -> Vec<&'static str> {
        let mut names = vec!["ducklake"];
        if matches!(self.catalog, Catalog::Postgres(_)) {
            names.push("postgres_scanner");
        }
        if self.is_object_store {
            names.push("httpfs");
        }
        names
    }
}
