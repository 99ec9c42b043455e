//! `casemirror restore FILE`: a backup becomes the store again, where there is none (docs/operations.md,
//! "Keeping a copy").

use super::args::Restore;
use super::{backup as taken, print, work};
use crate::backup::{self, Restored};
use crate::config::Config;
use crate::daemon;
use crate::error::{Error, Kind, Result};
use crate::mirror::{Looked, Store};
use crate::session::catalog_of;

pub(super) async fn run(args: &Restore, config: &Config) -> Result<u8> {
    let catalog = catalog_of(config)?;
    if daemon::answers(&config.store.path).await {
        return Err(Error::new(
            Kind::Usage,
            format!("a daemon works on the store {}: stop it first", config.store.path.display()),
        ));
    }
    let file = backup::resolved(&args.file)?;
    let restoring = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || backup::restore(&config, &file))
    };
    let Restored { store, about } = restoring
        .await
        .map_err(|e| Error::caused(Kind::Internal, "restoring ended early", e))??;
    let text = format!(
        "{}\n{}nothing is published until the next `casemirror sync`, which reads what has changed since\n",
        store.display(),
        taken::contents(&about)
    );
    print(&text)?;
    // It is restored: what else there is to say of it does not change that.
    match Store::look(config, &catalog) {
        Ok(Looked { differences, .. }) => work::tell(&differences),
        Err(error) => tracing::warn!("{}", error.chain()),
    }
    Ok(0)
}
