//! Offices, broker companies and chains that left the list of the offices: each is asked for until the
//! source answers 404 to its id (docs/architecture.md, "Journals").

use std::sync::Arc;

use jiff::Timestamp;

use super::tables::Tables;
use crate::error::Result;
use crate::mirror::{NotFound, State};
use crate::scope::JournalScope;

/// Kept with the months of a scope that answered 404 and is in no list any more.
pub(super) const LEFT: &str = "the source answers 404, and no office of the list has this id any more; a \
                               second 404, source.doubt after the first, means that it is gone";

/// Kept with the months that answered 404 again where the list of the offices cannot be had.
pub(super) const LIST_LACKS: &str = "the source answers 404, and the list of the offices cannot be read, which says \
                                     whether this one is gone: the lines stay as they are";

/// What a 404 to a month says of whose it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing says that it left the list.
    Listed,
    /// It left, and may be gone.
    Doubted,
    /// The source no longer knows it.
    Gone,
}

/// What a 404 to a month means where its scope left the list: after a second one, and where none of
/// its journals answers otherwise, that the source no longer knows it.
pub(super) async fn look_for(tables: &Tables<'_>, scope: JournalScope) -> Result<Fate> {
    let run = tables.run;
    let before = run.doubted_before();
    // Asked of the writer, so that what was answered so far is counted.
    let not_found = move |conn: &_| {
        State::new(conn).wanted_months().scope_was_not_found(scope, before, Timestamp::now())
    };
    let catalog = Arc::clone(&run.catalog);
    let is_gone = move |conn: &_| {
        State::new(conn).wanted_months().scope_is_gone(&catalog, scope, Timestamp::now())
    };
    match run.write(not_found).await? {
        NotFound::Listed => return Ok(Fate::Listed),
        NotFound::Gone => {
            // Asked for by name: what was due of it is nobody's again.
            run.write(is_gone).await?;
            return Ok(Fate::Gone);
        }
        NotFound::Doubted => return Ok(Fate::Doubted),
        NotFound::Confirmed => {}
    }
    for resource in tables.journals() {
        // An error says nothing about the id.
        if run.extractor.has_journal(resource, scope).await.unwrap_or(true) {
            let is_there = move |conn: &_| State::new(conn).wanted_months().scope_is_there(scope);
            run.write(is_there).await?;
            return Ok(Fate::Listed);
        }
    }
    tracing::warn!(
        level = %scope.level,
        id = scope.id,
        "the source no longer knows whose journals these are: they stay as they were read, and are \
         shown as gone"
    );
    run.write(is_gone).await?;
    Ok(Fate::Gone)
}
