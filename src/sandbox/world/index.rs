//! The search index: it learns of every change a while later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::api::Ids;
use super::case::Case;
use super::people::Contact;
use super::{Handle, Slot, World, handle};

/// How far the index is behind the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lag {
    By(Duration),
    /// It learns nothing until it is thawed.
    Frozen,
}

/// What the index knows of the things that have changed lately. Whatever is not listed here is in
/// the index as it is in the world.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) lag: Lag,
    /// A broken index: the searches answer, and list nothing.
    pub(crate) lists_nothing: bool,
    cases: BTreeMap<i64, Behind<Case>>,
    contacts: HashMap<i64, Behind<Contact>>,
}

/// A thing that the index knows in an older version.
#[derive(Debug)]
struct Behind<T> {
    known: Option<Arc<T>>,
    coming: VecDeque<(Instant, Option<Arc<T>>)>,
}

impl<T> Behind<T> {
    fn settle(&mut self, due: impl Fn(Instant) -> bool) {
        while self.coming.front().is_some_and(|(at, _)| due(*at)) {
            if let Some((_, next)) = self.coming.pop_front() {
                self.known = next;
            }
        }
    }
}

impl Index {
    pub(crate) fn new(lag: Lag) -> Index {
        Index { lag, lists_nothing: false, cases: BTreeMap::new(), contacts: HashMap::new() }
    }

    /// Takes in everything that has become due.
    pub(crate) fn settle(&mut self, now: Instant) {
        let Lag::By(lag) = self.lag else { return };
        let due = |at: Instant| at + lag <= now;
        self.cases.retain(|_, behind| {
            behind.settle(due);
            !behind.coming.is_empty()
        });
        self.contacts.retain(|_, behind| {
            behind.settle(due);
            !behind.coming.is_empty()
        });
    }

    /// A case has changed just now; `None` is a case that is not to be found.
    pub(crate) fn case_changed(
        &mut self,
        id: i64,
        before: Option<Arc<Case>>,
        after: Option<Arc<Case>>,
    ) {
        let behind = self
            .cases
            .entry(id)
            .or_insert_with(|| Behind { known: before, coming: VecDeque::new() });
        behind.coming.push_back((Instant::now(), after));
    }

    /// A contact has changed just now.
    pub(crate) fn contact_changed(&mut self, id: i64, before: Option<Contact>, after: Contact) {
        let behind = self
            .contacts
            .entry(id)
            .or_insert_with(|| Behind { known: before.map(Arc::new), coming: VecDeque::new() });
        behind.coming.push_back((Instant::now(), Some(Arc::new(after))));
    }

    /// What the index knows of a case: `None`, the same as the world; `Some(None)`, nothing.
    pub(crate) fn case(&self, id: i64) -> Option<Option<Arc<Case>>> {
        self.cases.get(&id).map(|behind| behind.known.clone())
    }

    /// What the index knows of a contact: `None`, the same as the world; `Some(None)`, nothing.
    pub(crate) fn contact(&self, id: i64) -> Option<Option<Contact>> {
        self.contacts.get(&id).map(|behind| behind.known.as_deref().cloned())
    }

    /// Cases of which the index knows an older version.
    pub(crate) fn behind(&self) -> impl Iterator<Item = (i64, Arc<Case>)> {
        self.cases.iter().filter_map(|(id, behind)| Some((*id, behind.known.clone()?)))
    }
}

impl World {
    /// What the search lists now: the index after everything that has become due, in the order of
    /// the ids, at most `limit` rows.
    pub(crate) fn search(&mut self, project: bool, ids: &Ids, limit: usize) -> Vec<Handle> {
        self.index.settle(Instant::now());
        if self.index.lists_nothing {
            return Vec::new();
        }
        let listed = |id: i64, slot: &Slot| match self.index.case(id) {
            // The index is up to date.
            None => (!slot.hidden).then(|| handle(slot)),
            Some(old) => old.map(Handle::Touched),
        };
        // Cases that are gone, but that the index still lists.
        let gone: Vec<Handle> = self
            .index
            .behind()
            .filter(|(id, _)| ids.contains(*id) && !self.slots.contains_key(id))
            .map(|(_, old)| Handle::Touched(old))
            .collect();
        let of_kind = |handle: &Handle| handle.facts().project == project;
        let mut found: Vec<Handle> = match ids {
            Ids::Range(range) if range.is_empty() => Vec::new(),
            Ids::Range(range) => self
                .slots
                .range(range.clone())
                .filter_map(|(id, slot)| listed(*id, slot))
                .filter(of_kind)
                .take(limit)
                .collect(),
            Ids::Set(set) => set
                .iter()
                .filter_map(|id| listed(*id, self.slots.get(id)?))
                .filter(of_kind)
                .collect(),
        };
        if !gone.is_empty() {
            found.extend(gone.into_iter().filter(of_kind));
            found.sort_by_key(|handle| handle.facts().id);
        }
        found
    }

    /// What the contact search lists now within the ids, in their order.
    pub(crate) fn search_contacts(&mut self, ids: &Ids) -> Vec<Contact> {
        self.index.settle(Instant::now());
        if self.index.lists_nothing {
            return Vec::new();
        }
        let wanted = match ids {
            Ids::Set(set) => set.iter().copied().collect(),
            Ids::Range(_) => self.contact_ids(),
        };
        wanted
            .into_iter()
            .filter(|id| ids.contains(*id) && !self.basis.is_unsearchable(*id))
            .filter_map(|id| match self.index.contact(id) {
                None => self.contact(id),
                Some(old) => old,
            })
            .collect()
    }
}
