//! The folders that the configuration has written to.

use std::path::{Path, PathBuf};

use super::{Config, ParquetRoot};
use crate::durable;
use crate::error::{Error, Kind, Result};

impl Config {
    /// Which folders can be neither written to nor made, a sentence each with the key and why. Changes nothing.
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
            durable::unwritable(&folder?).map(|why| format!("{key}: {why}"))
        };
        folders.into_iter().filter_map(why).collect()
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
                "not every folder of the configuration can be written to:\n  {all}\nhint: name another place, or \
                 let the user that casemirror runs as write there"
            ),
        ))
    }
}
