//! The file with the views (`publish.views`) in a session: written with each snapshot, and where that could
//! not be, with a later publishing (docs/architecture.md, "Readers who never let go").

use std::sync::PoisonError;

use super::Session;
use super::publishing::blocking;
use crate::config::Config;
use crate::error::Result;
use crate::mirror::State;
use crate::publish::{self, ViewsTarget, ViewsWritten};

/// How the file stands, as far as this session knows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nobody has looked.
    #[default]
    Unknown,
    AsItShouldBe,
    /// It could not be written, and that was said.
    Behind,
}

impl Session {
    /// Writes the file for the snapshot that is there, where it is missing or could not be written with it,
    /// and in a session's first publishing.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn catch_up_views(&self) -> Result<()> {
        let Some(target) = target(&self.config) else { return Ok(()) };
        let is_known = self.views_standing() == Standing::AsItShouldBe && target.file.exists();
        if is_known || !target.parquet.join("latest").exists() {
            return Ok(());
        }
        let conn = self.store.connection()?;
        let config = std::sync::Arc::clone(&self.config);
        let written = blocking(move || {
            let Some(target) = self::target(&config) else { return Ok(None) };
            let store_id = State::new(&conn).meta("store_id")?.unwrap_or_default();
            Ok(Some(publish::write_views(&conn, &target, &store_id)))
        });
        self.note_views(written.await?.as_ref());
        Ok(())
    }

    /// Says once that the file could not be written, and once that it was after all.
    pub(super) fn note_views(&self, written: Option<&ViewsWritten>) {
        let Some(written) = written else { return };
        let mut standing = self.publishing.views.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match written {
            ViewsWritten::Unchanged | ViewsWritten::Written => Standing::AsItShouldBe,
            ViewsWritten::Held(_) | ViewsWritten::Foreign | ViewsWritten::Failed(_) => {
                Standing::Behind
            }
        };
        match (*standing, now) {
            (Standing::Behind, Standing::Behind) => {}
            (Standing::Behind, _) => tracing::info!("publish.views: the file is written again"),
            _ => warn_of_views(&self.config, written),
        }
        *standing = now;
    }

    fn views_standing(&self) -> Standing {
        *self.publishing.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the configuration wants the views; `None` where there are none.
pub(super) fn target(config: &Config) -> Option<ViewsTarget<'_>> {
    let publish = &config.publish;
    let (file, parquet) = (publish.views.as_deref()?, publish.parquet.as_ref()?.folder()?);
    Some(ViewsTarget { file, parquet, root: publish.views_root.as_deref().unwrap_or(parquet) })
}

/// Says why the file was not written, if it was not.
pub(super) fn warn_of_views(config: &Config, written: &ViewsWritten) {
    let path = config.publish.views.as_deref().unwrap_or(std::path::Path::new(""));
    let path = path.display();
    match written {
        ViewsWritten::Unchanged | ViewsWritten::Written => {}
        ViewsWritten::Held(who) => tracing::warn!(
            reason = who,
            "publish.views: {path} is in use, so its views stay as they are; they are written when nobody has it \
             open, which is tried at each publishing"
        ),
        ViewsWritten::Foreign => tracing::warn!(
            "publish.views: {path} is there, and this store has not written it: it stays as it is; name another \
             place, or move it away"
        ),
        ViewsWritten::Failed(why) => tracing::warn!(
            reason = why,
            "publish.views: {path} cannot be written, so its views stay as they are, which is tried again at each \
             publishing; the database and the snapshot are published"
        ),
    }
}
