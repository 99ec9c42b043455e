//! `casemirror export`: a Parquet snapshot of the store as it is now.

use super::print;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::mirror::Store;
use crate::publish::{self, ParquetTarget, PublishedParquet, Targets};
use crate::session::{NOTHING_LISTED, snapshot_info};

pub fn run(config: &Config) -> Result<u8> {
    // What is wrong whatever the store holds, before it is opened.
    folder(config)?;
    let catalog = Catalog::load(config.resources.dir.as_deref())?;
    config.check_tables(&catalog.names())?;
    if !config.store.path.exists() {
        return Err(Error::new(
            Kind::Io,
            format!(
                "there is no store at {} yet, and {NOTHING_LISTED}: `casemirror sync` makes both",
                config.store.path.display()
            ),
        ));
    }
    let store = Store::open(config, &catalog)?;
    print(&summary(&export(config, &catalog, &store)?))?;
    Ok(0)
}

/// Writes a snapshot of what is committed in an open store. One call at a time, and none while
/// something else is published.
///
/// # Errors
/// `Kind::Config` where `publish.parquet` is off; `Kind::Io` before the first complete listing
/// of the cases; those of [`publish::publish`].
pub fn export(config: &Config, catalog: &Catalog, store: &Store) -> Result<PublishedParquet> {
    let root = folder(config)?;
    let conn = store.connection()?;
    let info = snapshot_info(&conn)?.ok_or_else(|| {
        Error::new(Kind::Io, format!("{NOTHING_LISTED}: `casemirror sync` makes it"))
    })?;
    let tables = catalog.names();
    let parquet = ParquetTarget {
        root,
        tables: &tables,
        keep_snapshots: config.publish.keep_snapshots,
        keep_for: config.publish.keep_for,
    };
    let targets = Targets { database: None, parquet: Some(parquet) };
    publish::publish(&conn, &targets, &info)?
        .parquet
        .ok_or_else(|| Error::new(Kind::Internal, "a snapshot was asked for and none was written"))
}

fn folder(config: &Config) -> Result<&std::path::Path> {
    config.publish.parquet.as_deref().ok_or_else(|| {
        Error::new(
            Kind::Config,
            "publish.parquet is off (\"\"): name a folder for the snapshots there",
        )
    })
}

/// What was written, in a few lines.
pub fn summary(written: &PublishedParquet) -> String {
    format!(
        "{}\n  files  {} ({} of them unchanged)\n  rows   {}\n  bytes  {}\n",
        written.path.display(),
        written.files,
        written.linked,
        written.rows,
        written.bytes
    )
}
