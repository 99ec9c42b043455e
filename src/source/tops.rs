//! How many records each endpoint gives at once, and how many ids each search takes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The `$top` that each endpoint has taken; `None` where it takes none at all.
#[derive(Default)]
pub(crate) struct Tops {
    accepted: Mutex<HashMap<Arc<str>, Option<u32>>>,
    /// Ids in one call, by the table that the search fills, and when that was found out.
    ids: Mutex<HashMap<String, (usize, Instant)>>,
}

/// For so long a search is asked for no more ids than it took: a server is changed, or a proxy was in the way.
const IDS_KEPT: Duration = Duration::from_secs(3_600);

impl Tops {
    /// What `endpoint` has taken before, if it was asked.
    pub(super) fn of(&self, endpoint: &str) -> Option<Option<u32>> {
        self.accepted().get(endpoint).copied()
    }

    pub(super) fn remember(&self, endpoint: &Arc<str>, top: Option<u32>) {
        self.accepted().insert(Arc::clone(endpoint), top);
    }

    /// What was accepted was refused after all: the endpoint is tried anew from the largest one.
    pub(super) fn forget(&self, endpoint: &Arc<str>) {
        self.accepted().remove(endpoint);
    }

    /// What was found out so far, for the next process to begin with.
    pub(crate) fn found(&self) -> BTreeMap<String, u32> {
        let accepted = self.accepted();
        accepted
            .iter()
            .filter_map(|(endpoint, top)| Some((endpoint.to_string(), (*top)?)))
            .collect()
    }

    /// What an earlier process found out ([`Tops::found`]): without it the first call to each endpoint in every
    /// process would be one that is refused.
    pub(crate) fn assume(&self, found: BTreeMap<String, u32>) {
        let mut accepted = self.accepted();
        for (endpoint, top) in found {
            accepted.entry(Arc::from(endpoint)).or_insert(Some(top));
        }
    }

    /// How many ids the search of a table has taken in one call after it had refused more: a server may limit the
    /// length of an address, or the parts of a filter, and says neither.
    pub(crate) fn most_ids(&self, table: &str) -> Option<usize> {
        let found = self.ids().get(table).copied();
        found.filter(|(_, at)| at.elapsed() < IDS_KEPT).map(|(most, _)| most)
    }

    pub(crate) fn takes_ids(&self, table: &str, most: usize) {
        self.ids().insert(table.to_owned(), (most, Instant::now()));
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<String, (usize, Instant)>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self) -> MutexGuard<'_, HashMap<Arc<str>, Option<u32>>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
