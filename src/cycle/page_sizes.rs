//! The `$top` that each endpoint takes, kept between runs.

use std::collections::BTreeMap;

use duckdb::Connection;

use super::Run;
use crate::error::Result;
use crate::mirror::State;

/// Key of `sync.meta`: the `$top` that each endpoint takes, as JSON.
const PAGE_SIZES: &str = "page_sizes";

/// Page sizes that the service refused in an earlier run are not tried again in this one: a
/// change causes exactly the calls that it has to (docs/architecture.md, "Seen and fetched").
pub(super) fn recall(run: &Run) -> Result<()> {
    let sizes = page_sizes(&run.store.connection()?)?;
    run.client().tops().assume(sizes);
    Ok(())
}

/// Keeps what this run has found out.
pub(super) async fn keep(run: &Run) -> Result<()> {
    let sizes = serde_json::json!(run.client().tops().found()).to_string();
    let kept = State::new(&run.store.connection()?).meta(PAGE_SIZES)?;
    if kept.as_deref() == Some(sizes.as_str()) {
        return Ok(());
    }
    run.write(move |conn| State::new(conn).set_meta(PAGE_SIZES, &sizes)).await
}

/// The `$top` that each endpoint takes, as far as earlier runs have found it out.
///
/// # Errors
/// Those of the store.
pub(crate) fn page_sizes(conn: &Connection) -> Result<BTreeMap<String, u32>> {
    let kept = State::new(conn).meta(PAGE_SIZES)?;
    // What cannot be read is found out again.
    Ok(kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}
