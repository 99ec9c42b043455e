//! Closing months of the journals by hand, and their packs.

use std::collections::HashSet;
use std::sync::Arc;

use super::Session;
use super::publishing::{Forms, When};
use crate::catalog::Catalog;
use crate::config::{Config, JournalLevel};
use crate::error::{Error, Kind, Result};
use crate::mirror::{ClosingMonth, Closings, MonthOf, ResourceRow, State};
use crate::publish::{self, PackTarget, Root, Stop};
use crate::scope::Month;

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
        Closings::new(&self.store.connection()?).months(&self.catalog, of)
    }

    /// Whether nothing is known of the month of some journal that is meant, `known` being what is: of the ids that are
    /// named, or else of all whose journals are read.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn lacks_months(&self, of: &MonthOf, known: &[ClosingMonth]) -> Result<bool> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        let ids = match &of.ids[..] {
            [] => state.wanted_months().wanted_ids(&self.config.journals)?,
            named => named.to_vec(),
        };
        let known: HashSet<(&str, i64)> =
            known.iter().map(|month| (month.journal.as_str(), month.id)).collect();
        let statuses = state.statuses().all()?;
        let is_read = |journal: &&String| statuses.get(*journal).is_some_and(ResourceRow::is_asked);
        let lacks = |journal: &String| ids.iter().any(|id| !known.contains(&(journal, *id)));
        Ok(known.is_empty() || of.journals.iter().filter(is_read).any(lacks))
    }

    /// Freezes these months of `of`, all or none. Returns how many.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn close_months(
        &self,
        of: &MonthOf,
        to_close: Vec<ToClose>,
        by: &str,
    ) -> Result<usize> {
        let (of, by, catalog) = (of.clone(), by.to_owned(), Arc::clone(&self.catalog));
        self.writer
            .run_dated(move |conn, now| {
                let closings = Closings::new(conn);
                let now = closings.time(now)?;
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
            .await
    }

    /// Opens what is closed of these months. Returns how many.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn reopen_months(&self, of: &MonthOf) -> Result<u64> {
        let of = of.clone();
        self.writer
            .run_dated(move |conn, now| {
                let closings = Closings::new(conn);
                closings.reopen(&of, closings.time(now)?)
            })
            .await
    }

    /// Publishes what was closed or opened, whose caller has been told of it.
    ///
    /// # Errors
    /// Those of publishing.
    pub(crate) async fn publish_closings(&self) -> Result<()> {
        self.publish(Forms::Both, When::Changed).await.map(drop)
    }

    /// Writes the pack of a month from the published database; `None` where `publish.parquet` is off.
    ///
    /// # Errors
    /// Those of [`publish::write_pack`].
    pub(crate) async fn write_pack(&self, of: &MonthOf) -> Result<Option<String>> {
        let month = of.month;
        let closed = Closings::new(&self.store.connection()?).levels_of(month)?;
        let level = (of.level, closed.first().copied().unwrap_or(of.level));
        // Not while a snapshot is on its way: one at a time is stopped.
        let _alone = self.upload_alone().await;
        let stop = self.publishing.uploads.begin();
        self.with_packs(move |catalog, config, root| {
            publish::write_pack(catalog, &pack_target(config, root, level, month), &stop)
        })
        .await
    }

    /// Writes all packs that there are anew from the published database: they hold what was erased from
    /// it. Returns how many.
    ///
    /// # Errors
    /// Those of [`publish::write_pack`] and the store.
    pub(super) async fn write_packs_anew(&self, stop: &Stop) -> Result<usize> {
        let stop = stop.clone();
        let conn = self.store.connection()?;
        let written = self.with_packs(move |catalog, config, root| {
            let months = publish::packed_months(root, &stop)?;
            for month in &months {
                let mut levels = Closings::new(&conn).levels_of(*month)?;
                if levels.is_empty() {
                    levels.push(config.journals.level);
                }
                for level in &levels {
                    let target = pack_target(config, root, (*level, levels[0]), *month);
                    publish::write_pack(catalog, &target, &stop)?;
                }
            }
            Ok(months.len())
        });
        Ok(written.await?.unwrap_or_default())
    }

    /// Works on the packs in `publish.parquet`; `None` where that is off.
    async fn with_packs<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Catalog, &Config, &Root) -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let (config, catalog) = (Arc::clone(&self.config), Arc::clone(&self.catalog));
        let root = self.root.clone();
        tokio::task::spawn_blocking(move || {
            root.as_ref().map(|root| work(&catalog, &config, root)).transpose()
        })
        .await
        .map_err(|e| Error::caused(Kind::Internal, "writing a pack ended early", e))?
    }
}

/// The pack of a level. That of the `first` which was closed has the month's folder, others one within: none writes over
/// another's.
fn pack_target<'a>(
    config: &'a Config,
    root: &'a Root,
    (level, first): (JournalLevel, JournalLevel),
    month: Month,
) -> PackTarget<'a> {
    let (database, zone) = (&config.publish.database, &config.source.time_zone);
    let folder = if level == first { month.to_string() } else { format!("{month}/{level}") };
    let is_mirrored = level == config.journals.level;
    PackTarget { database, root, level, month, folder, is_mirrored, zone }
}
