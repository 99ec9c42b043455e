//! `casemirror export`: a Parquet snapshot of the store as it is now.

use std::sync::Arc;

use super::{print, work};
use crate::config::Config;
use crate::daemon::Printer;
use crate::error::{Error, Kind, Result};
use crate::mirror::{Looked, Store};
use crate::progress::Progress;
use crate::publish::{PublishedParquet, Stop};
use crate::session::{Session, catalog_of, export};

pub(crate) fn run(config: &Config, quiet: bool) -> Result<u8> {
    // What is wrong whatever the store holds, before it is opened.
    folder(config)?;
    let catalog = catalog_of(config)?;
    let Looked { store, catalog, differences } = Store::look(config, &catalog)?;
    work::tell(&differences);
    let exported = export(
        config,
        &catalog,
        &store,
        store.connection()?,
        &Stop::default(),
        &Progress::new(quiet),
    )?;
    print(&summary(&exported))?;
    Ok(0)
}

/// The same in the daemon that holds the store.
pub(crate) async fn execute(session: &Arc<Session>, out: &Printer) -> Result<u8> {
    folder(session.config())?;
    out.print(&summary(&session.export().await?))?;
    Ok(0)
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
pub(crate) fn summary(written: &PublishedParquet) -> String {
    format!(
        "{}\n  files  {} ({} of them unchanged)\n  rows   {}\n  bytes  {}\n",
        written.path.display(),
        written.files,
        written.linked,
        written.rows,
        written.bytes
    )
}
