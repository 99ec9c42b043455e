//! The folders that the configuration has written to.

use std::path::{Path, PathBuf};

use super::{Config, ParquetRoot};
use crate::durable;
use crate::error::{Error, Kind, Result};

impl Config {
    /// Which folders can be neither written to nor made, or are named in what DuckDB does not take, a sentence each
    /// with the key and why. Changes nothing.
    pub(crate) fn unwritable_folders(&self) -> Vec<String> {
        let publish = &self.publish;
        let of = |file: &Path| file.parent().map(Path::to_owned);
        // An address of an object store is no folder.
        let parquet = publish.parquet.as_ref().and_then(ParquetRoot::folder);
        // Views read the snapshots; the default of another store beside this one is left alone.
        let views = publish.views.as_deref();
        let views = views.filter(|_| parquet.is_some() && self.is_chosen("publish.views"));
        let folders = [
            ("store.path", of(&self.store.path)),
            ("publish.database", of(&publish.database)),
            ("publish.parquet", parquet.map(Path::to_owned)),
            ("publish.views", views.and_then(of)),
        ];
        let why = |(key, folder): (&str, Option<PathBuf>)| {
            let folder = folder?;
            let why = no_utf8(&folder).or_else(|| durable::unwritable(&folder))?;
            Some(format!("{key}: {why}"))
        };
        let store = durable::unwritable_file(&self.store.path);
        let store = store.map(|why| format!("store.path: {why}"));
        folders.into_iter().filter_map(why).chain(store).collect()
    }

    /// Refuses to begin what could not be stored or published.
    ///
    /// # Errors
    /// `Config` naming each key with its folder and why.
    pub(crate) fn check_folders(&self) -> Result<()> {
        let unwritable = self.unwritable_folders();
        if unwritable.is_empty() {
            return Ok(());
        }
        let all = unwritable.join("\n  ");
        Err(Error::new(
            Kind::Config,
            format!(
                "not every folder of the configuration can be used:\n  {all}\nhint: name another place, or \
                 let the user that casemirror runs as write there"
            ),
        ))
    }
}

/// DuckDB takes paths as text.
fn no_utf8(folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let why = || format!("the name of the folder {} is no UTF-8", folder.display());
    folder.to_str().is_none().then(why)
}
