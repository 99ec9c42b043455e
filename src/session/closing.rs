//! Closing months of the journals by hand, and their packs.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::Session;
use super::publishing::{Forms, When};
use crate::error::{Error, Kind, Result};
use crate::mirror::{ClosingMonth, Closings, MonthOf};
use crate::publish::{self, PackTarget};

/// A journal's month that is to be closed.
#[derive(Debug, Clone)]
pub(crate) struct ToClose {
    pub(crate) journal: String,
    pub(crate) id: i64,
    /// What was wrong with it, where it is closed all the same.
    pub(crate) forced_over: Option<String>,
}

impl Session {
    /// The months that are meant, as they are now.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn closing_months(&self, of: &MonthOf) -> Result<Vec<ClosingMonth>> {
        Closings::new(&self.store.connection()?).months(of)
    }

    /// Freezes these months of `of`, all or none, and publishes. Returns how many.
    ///
    /// # Errors
    /// Those of the store and of publishing.
    pub(crate) async fn close_months(
        &self,
        of: &MonthOf,
        to_close: Vec<ToClose>,
        by: &str,
    ) -> Result<usize> {
        let (of, by, catalog) = (of.clone(), by.to_owned(), Arc::clone(&self.catalog));
        let now = Timestamp::now();
        let closed = self
            .writer
            .run(move |conn| {
                let closings = Closings::new(conn);
                to_close.iter().try_fold(0, |closed, one| {
                    let of = MonthOf {
                        journals: vec![one.journal.clone()],
                        ids: vec![one.id],
                        ..of.clone()
                    };
                    let forced_over = one.forced_over.as_deref();
                    Ok(closed + closings.close(&catalog, &of, &by, forced_over, now)?)
                })
            })
            .await?;
        self.publish(Forms::Both, When::Changed).await?;
        Ok(closed)
    }

    /// Opens what is closed of these months, and publishes. Returns how many.
    ///
    /// # Errors
    /// Those of the store and of publishing.
    pub(crate) async fn reopen_months(&self, of: &MonthOf) -> Result<u64> {
        let of = of.clone();
        let now = Timestamp::now();
        let opened = self.writer.run(move |conn| Closings::new(conn).reopen(&of, now)).await?;
        self.publish(Forms::Both, When::Changed).await?;
        Ok(opened)
    }

    /// Writes the pack of a month from the published database; `None` where `publish.parquet` is off.
    ///
    /// # Errors
    /// Those of [`publish::write_pack`].
    pub(crate) async fn write_pack(&self, of: &MonthOf) -> Result<Option<PathBuf>> {
        if self.config.publish.parquet.is_none() {
            return Ok(None);
        }
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let (level, month) = (of.level, of.month);
        tokio::task::spawn_blocking(move || {
            let Some(root) = &config.publish.parquet else { return Ok(None) };
            let target = PackTarget {
                database: &config.publish.database,
                root,
                level,
                month,
                zone: &config.source.time_zone,
            };
            publish::write_pack(&catalog, &target).map(Some)
        })
        .await
        .map_err(|e| Error::caused(Kind::Internal, "writing the pack ended early", e))?
    }
}
