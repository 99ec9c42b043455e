//! Offices, broker companies and chains that left the list of the offices: each is asked for until the
//! source answers 404 to its id (docs/architecture.md, "Journals").

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Cycle;
use crate::catalog::Resource;
use crate::error::{Kind, Result};
use crate::mirror::{NotFound, State};
use crate::scope::{DueMonth, FailureKind};

/// Kept with the months of a scope that answered 404 and is in no list any more.
const LEFT: &str = "the source answers 404, and no office of the list has this id any more; a second 404, \
                    source.doubt after the first, means that it is gone";

impl Cycle<'_> {
    /// What a 404 to a month means where its scope left the list: after a second one, and where none of
    /// its journals answers otherwise, that the source no longer knows it. False where nothing says that
    /// it left.
    pub(super) async fn take_unlisted(&mut self, month: &DueMonth) -> Result<bool> {
        let (scope, before) = (month.scope, self.run.doubted_before());
        // Asked of the writer, so that what was answered so far is counted.
        let found = self
            .run
            .writer
            .run(move |conn| {
                State::new(conn).wanted_months().scope_was_not_found(
                    scope,
                    before,
                    Timestamp::now(),
                )
            })
            .await?;
        match found {
            NotFound::Listed => return Ok(false),
            NotFound::Gone => {
                // Asked for by name: what was due of it is nobody's again.
                let gone = move |conn: &_| {
                    State::new(conn).wanted_months().scope_is_gone(scope, Timestamp::now())
                };
                self.run.writer.run(gone).await?;
                return Ok(true);
            }
            NotFound::Doubted => {
                self.month_is_failing(month, Kind::NotFound, LEFT);
                self.note_month_failure(month, FailureKind::NotFound, LEFT, Duration::ZERO).await?;
                return Ok(true);
            }
            NotFound::Confirmed => {}
        }
        let journals: Vec<Arc<Resource>> = self.tables.journals().cloned().collect();
        for resource in &journals {
            // An error says nothing about the id.
            if self.run.extractor.has_journal(resource, scope).await.unwrap_or(true) {
                self.run
                    .writer
                    .run(move |conn| State::new(conn).wanted_months().scope_is_there(scope))
                    .await?;
                return Ok(false);
            }
        }
        tracing::warn!(
            level = %scope.level,
            id = scope.id,
            "the source no longer knows whose journals these are: they stay as they were read, and are \
             shown as gone"
        );
        self.run
            .writer
            .run(move |conn| {
                State::new(conn).wanted_months().scope_is_gone(scope, Timestamp::now())
            })
            .await?;
        Ok(true)
    }
}
