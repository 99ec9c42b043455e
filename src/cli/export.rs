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
    is_on(config)?;
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
    is_on(session.config())?;
    out.print(&summary(&session.export().await?))?;
    Ok(0)
}

fn is_on(config: &Config) -> Result<()> {
    if config.publish.parquet.is_none() {
        let text =
            "publish.parquet is off (\"\"): name a folder or a bucket for the snapshots there";
        return Err(Error::new(Kind::Config, text));
    }
    Ok(())
}

/// What was written, in a few lines.
pub(crate) fn summary(written: &PublishedParquet) -> String {
    format!(
        "{}\n  files  {} ({} of them unchanged)\n  rows   {}\n  bytes  {}\n",
        written.address, written.files, written.linked, written.rows, written.bytes
    )
}
