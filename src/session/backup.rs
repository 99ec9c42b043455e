//! A backup of the store that this process works on, while it goes on working.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::Session;
use super::publishing::blocking;
use crate::backup::{self, Pinning, Taken};
use crate::error::{Error, Kind, Result};
use crate::publish::Pinned;

impl Session {
    /// Writes a backup of what is committed now to a file that is not there yet. Nothing is published
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`backup::take`], `Cancelled` after [`Session::interrupt_publishing`].
    pub(crate) async fn backup(&self, file: PathBuf) -> Result<Taken> {
        let _one = self.publishing.lock.lock().await;
        let _step = self.progress.step_beside("taking a backup");
        let conn = self.store.connection()?;
        let stop = self.begin_interruptible(&conn);
        let taken = async {
            let (store, bounds) = (self.store.file()?, self.store.bounds().clone());
            let pinning = self
                .writer
                .between_commits(move |writing| {
                    let taken_at = Timestamp::now();
                    let pinned = Pinned::with_file(writing, conn, (store, &bounds))?;
                    Ok(Pinning { pinned, taken_at })
                })
                .await?;
            let (config, progress) = (Arc::clone(&self.config), self.progress.clone());
            let stop = stop.clone();
            blocking(move || backup::take(&config, pinning, &file, &stop, &progress)).await
        };
        let taken = taken.await;
        self.end_interruptible(&stop, taken).map_err(|e| match e.kind() {
            Kind::Cancelled => Error::new(Kind::Cancelled, "the daemon stops; no backup was taken"),
            _ => e,
        })
    }
}
