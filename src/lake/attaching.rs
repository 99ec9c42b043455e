//! Opening the lake that a mirror writes to: it is made once, in a folder of its own, and stays there.

use std::path::Path;

use super::engine::{Engine, LAKE, LOCK, in_catalog, in_postgres};
use super::errand::{Catalog, Errand};
use super::secrets::Secrets;
use crate::error::{self, Error, Kind, Result};
use crate::sql;

/// DuckLake's table that a schema has when, and only when, there is a lake in it.
const METADATA: &str = "ducklake_metadata";

impl Engine {
    /// The lake of a store, which is made where there is none. One that is there may be anybody's: see
    /// [`super::shown::Shown::read`], and then [`Engine::check_data`].
    ///
    /// # Errors
    /// `Lake`: the catalog or the data cannot be reached, or somebody else has a catalog in a file open; `Io`.
    pub(super) fn attach(&self, errand: &Errand, store_id: &str) -> Result<()> {
        if let Catalog::File(path) = &errand.catalog {
            make_folder(path.parent())?;
        }
        let address = address(errand, &self.secrets)?;
        let data = errand.data_of(store_id);
        let path = if self.is_made(errand)? {
            String::new()
        } else {
            if !errand.is_object_store {
                make_folder(Some(Path::new(&data)))?;
            }
            format!("DATA_PATH {}, ", sql::text(&data))
        };
        // Rows of a small change would else be in the catalog, where only PostgreSQL's own room is.
        self.run(
            "open the lake",
            &format!(
                "ATTACH {} AS {LAKE} ({path}METADATA_SCHEMA {}, DATA_INLINING_ROW_LIMIT 0)",
                sql::text(&address),
                sql::text(&errand.schema),
            ),
        )
    }

    /// Whether there is a lake in this schema of the catalog.
    fn is_made(&self, errand: &Errand) -> Result<bool> {
        let doing = "look into the catalog";
        let schema = sql::text(&errand.schema);
        match &errand.catalog {
            Catalog::Postgres(_) => {
                let ask = format!(
                    "SELECT count(*) FROM information_schema.tables \
                     WHERE table_schema = {schema} AND table_name = '{METADATA}'"
                );
                Ok(self.one::<i64>(doing, &in_postgres(&ask))? > 0)
            }
            Catalog::File(path) if path.exists() => {
                let path = sql::text(&path.display().to_string());
                self.run(doing, &format!("ATTACH {path} AS {LOCK}"))?;
                let found = self.one::<i64>(
                    doing,
                    &format!(
                        "SELECT count(*) FROM duckdb_tables() WHERE database_name = '{LOCK}' \
                         AND schema_name = {schema} AND table_name = '{METADATA}'"
                    ),
                );
                self.run(doing, &format!("DETACH {LOCK}"))?;
                Ok(found? > 0)
            }
            Catalog::File(_) => Ok(false),
        }
    }

    /// Refuses a lake that was made in another folder than the configuration says: its files would be in both.
    ///
    /// # Errors
    /// `Config` naming both; `Lake`.
    pub(super) fn check_data(&self, errand: &Errand, store_id: &str) -> Result<()> {
        let is: String = self.one(
            "read the lake",
            &format!(
                "SELECT max(value) FROM {} WHERE key = 'data_path'",
                in_catalog(&errand.schema, METADATA)
            ),
        )?;
        let wanted = errand.data_of(store_id);
        if is.trim_end_matches('/') == wanted.trim_end_matches('/') {
            return Ok(());
        }
        let text = format!(
            "lake.data: the lake in the schema {} of lake.catalog was made in {is}, and not in {wanted}: lake.data \
             is to be what it was then, or lake.schema another one",
            errand.schema
        );
        Err(Error::new(Kind::Config, text))
    }
}

/// The catalog, as DuckLake attaches it.
pub(super) fn address(errand: &Errand, secrets: &Secrets) -> Result<String> {
    Ok(match &errand.catalog {
        Catalog::Postgres(connection) => {
            format!("ducklake:postgres:{}", secrets.connection(connection)?)
        }
        Catalog::File(path) => format!("ducklake:{}", path.display()),
    })
}

fn make_folder(folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|e| error::io("create", folder, e))
}
