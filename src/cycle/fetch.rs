//! Fetching scopes, a few at a time; what changes meanwhile comes first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::Cycle;
use super::signals::Halt;
use crate::catalog::Resource;
use crate::decode::Load;
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::scope::{CaseState, Stale, Stamp};

/// Scopes under way for each call that may be in flight, so that decoding never holds a call back.
pub(super) const SCOPES_PER_CALL: usize = 2;
/// Cases, and contacts, taken in between at once; the next follow when these are under way.
pub(super) const MOST_FRESH: usize = 200;

type Key = (String, i64);

/// What became of a scope.
struct Landed {
    stale: Stale,
    resource: Arc<Resource>,
    load: Result<Load>,
}

/// Scopes to fetch, and those under way. At most one call per scope is.
struct Fetching {
    /// Seen since the plan was made: they come first.
    fresh: VecDeque<Stale>,
    planned: VecDeque<Stale>,
    under_way: JoinSet<Landed>,
    in_flight: HashSet<Key>,
    /// Moved while under way: to be fetched again when they have landed.
    again: HashMap<Key, Stale>,
    /// Planned again at newer dates: the older plan is void.
    overtaken: HashSet<Key>,
    /// Cases that were removed meanwhile: their answers are dropped.
    removed: HashSet<i64>,
    /// Tables that cannot be read any more.
    set_aside: HashSet<String>,
}

impl Fetching {
    fn of(planned: Vec<Stale>) -> Fetching {
        Fetching {
            fresh: VecDeque::new(),
            planned: planned.into(),
            under_way: JoinSet::new(),
            in_flight: HashSet::new(),
            again: HashMap::new(),
            overtaken: HashSet::new(),
            removed: HashSet::new(),
            set_aside: HashSet::new(),
        }
    }

    fn put_first(&mut self, stale: Vec<Stale>) {
        let keys: HashSet<Key> = stale.iter().map(key).collect();
        self.fresh.retain(|old| !keys.contains(&key(old)));
        for stale in stale {
            if self.in_flight.contains(&key(&stale)) {
                self.again.insert(key(&stale), stale);
            } else {
                self.fresh.push_back(stale);
            }
        }
        self.overtaken.extend(keys);
    }

    fn next(&mut self) -> Option<Stale> {
        let Fetching { fresh, planned, overtaken, removed, set_aside, .. } = self;
        let wanted = |s: &Stale| !set_aside.contains(&s.table) && !removed.contains(&s.id);
        while let Some(stale) = fresh.pop_front() {
            if wanted(&stale) {
                return Some(stale);
            }
        }
        while let Some(stale) = planned.pop_front() {
            if wanted(&stale) && !overtaken.contains(&key(&stale)) {
                return Some(stale);
            }
        }
        None
    }

    fn land(&mut self, landed: &Landed) {
        let key = key(&landed.stale);
        self.in_flight.remove(&key);
        if let Some(again) = self.again.remove(&key) {
            self.fresh.push_front(again);
        }
    }
}

fn key(stale: &Stale) -> Key {
    (stale.table.clone(), stale.id)
}

impl Cycle {
    /// Fetches scopes, a few at a time, and hands them to the writer as they come. What polls see
    /// meanwhile is fetched before the rest; the cases that it belongs to are returned.
    pub(super) async fn read_scopes(&mut self, planned: Vec<Stale>) -> Result<Vec<CaseState>> {
        let width = self.config.limits.concurrency * SCOPES_PER_CALL;
        let mut fetching = Fetching::of(planned);
        let mut met = Vec::new();
        loop {
            let halt = self.signals.halt();
            let takes = halt == Halt::Go && fetching.fresh.is_empty();
            if takes && self.signals.news() > self.handled() {
                met.extend(self.take_fresh(&mut fetching).await?);
            }
            while halt == Halt::Go && fetching.under_way.len() < width {
                let Some(stale) = fetching.next() else { break };
                self.send(&mut fetching, stale);
            }
            // While it ends, or has fresh ones to do, news change nothing.
            let takes = halt == Halt::Go && fetching.fresh.is_empty();
            let known = if takes { self.handled() } else { i64::MAX };
            let landed = tokio::select! {
                landed = fetching.under_way.join_next() => landed,
                () = self.signals.beyond(known, halt) => continue,
            };
            let Some(landed) = landed else { return Ok(met) };
            let landed =
                landed.map_err(|e| Error::caused(Kind::Internal, "a fetch ended early", e))?;
            fetching.land(&landed);
            self.progress.done(1);
            self.progress.calls(self.report.calls);
            if !fetching.removed.contains(&landed.stale.id) {
                self.take(landed, &mut fetching.set_aside).await?;
            }
        }
    }

    fn send(&self, fetching: &mut Fetching, stale: Stale) {
        let Some(resource) = self.catalog.get(&stale.table).cloned() else { return };
        fetching.in_flight.insert(key(&stale));
        let extractor = self.extractor.clone();
        fetching.under_way.spawn(async move {
            let stamp = Stamp::Known(stale.stamp.clone());
            let load = extractor.scope(&resource, stale.id, stale.given.as_deref(), stamp).await;
            Landed { stale, resource, load }
        });
    }

    async fn take(&mut self, landed: Landed, set_aside: &mut HashSet<String>) -> Result<()> {
        let Landed { stale, resource, load } = landed;
        match load {
            Ok(load) => {
                self.reached();
                self.take_load(stale.id, load).await
            }
            Err(error) => {
                let stamp = Stamp::Known(stale.stamp.clone());
                self.take_error(&resource, stale.id, false, stamp, error).await?;
                if self.gives_up(&stale.table) || !self.is_active(&stale.table) {
                    set_aside.insert(stale.table.clone());
                }
                Ok(())
            }
        }
    }

    /// Searches and plans the next cases that moved since this was last asked, and puts what is stale
    /// of them first; contacts that moved are searched at once. Changes are followed whatever else this
    /// run was asked for.
    async fn take_fresh(&mut self, fetching: &mut Fetching) -> Result<Vec<CaseState>> {
        let only = std::mem::take(&mut self.options.only);
        let cases = std::mem::take(&mut self.options.cases);
        let taken = self.take_moved(fetching).await;
        (self.options.only, self.options.cases) = (only, cases);
        taken
    }

    async fn take_moved(&mut self, fetching: &mut Fetching) -> Result<Vec<CaseState>> {
        let news = self.signals.news();
        let moved = {
            let conn = self.store.connection()?;
            State::new(&conn).moved_cases(self.planned, MOST_FRESH)?
        };
        self.planned = match moved.last().filter(|_| moved.len() == MOST_FRESH) {
            Some(last) => (last.moved, last.case_id),
            None => (news, i64::MAX),
        };
        self.search_batch(&moved).await?;
        // What they are decides what is read of them: planned after their rows are there.
        let fresh = self.again(&moved)?;
        let here: HashSet<i64> = fresh.iter().map(|case| case.case_id).collect();
        let gone = moved.iter().map(|case| case.case_id).filter(|id| !here.contains(id));
        fetching.removed.extend(gone);
        for id in &here {
            fetching.removed.remove(id);
        }
        let stale = self.stale_scopes(&fresh)?;
        self.progress.more(stale.len() as u64);
        fetching.put_first(stale);
        self.search_contacts(Some(MOST_FRESH)).await?;
        Ok(fresh)
    }

    /// Fetches what polls have seen since this was last asked, and nothing else.
    pub(super) async fn fresh_first(&mut self) -> Result<()> {
        while self.signals.halt() == Halt::Go && self.signals.news() > self.handled() {
            let fresh = self.read_scopes(Vec::new()).await?;
            self.flush().await?;
            self.clean(&fresh).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Reason;

    fn stale(table: &str, id: i64, stamp: &str) -> Stale {
        Stale { table: table.into(), id, stamp: stamp.into(), given: None, reason: Reason::Changed }
    }

    fn order(fetching: &mut Fetching) -> Vec<String> {
        std::iter::from_fn(|| fetching.next())
            .map(|s| format!("{} {} at {}", s.table, s.id, s.stamp))
            .collect()
    }

    #[test]
    fn what_moved_comes_first_and_its_older_plan_is_void() {
        let mut fetching = Fetching::of(vec![
            stale("costs", 1, "a"),
            stale("costs", 2, "a"),
            stale("notes", 2, "a"),
        ]);
        fetching.put_first(vec![stale("costs", 2, "b")]);
        fetching.put_first(vec![stale("costs", 2, "c"), stale("costs", 9, "c")]);
        assert_eq!(
            order(&mut fetching),
            ["costs 2 at c", "costs 9 at c", "costs 1 at a", "notes 2 at a"]
        );
    }

    #[test]
    fn a_scope_under_way_is_fetched_again_only_when_it_has_landed() {
        let mut fetching = Fetching::of(Vec::new());
        let held = stale("costs", 1, "a");
        fetching.in_flight.insert(key(&held));
        fetching.put_first(vec![stale("costs", 1, "b")]);
        assert_eq!(fetching.next(), None);
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let load = Err(Error::new(Kind::Timeout, "late"));
        let resource = Arc::clone(catalog.get("costs").unwrap());
        fetching.land(&Landed { stale: held, resource, load });
        assert_eq!(order(&mut fetching), ["costs 1 at b"]);
    }

    #[test]
    fn nothing_is_asked_of_a_case_that_was_removed_or_a_table_that_is_set_aside() {
        let mut fetching = Fetching::of(vec![
            stale("costs", 1, "a"),
            stale("notes", 2, "a"),
            stale("costs", 3, "a"),
        ]);
        fetching.removed.insert(1);
        fetching.set_aside.insert("notes".into());
        assert_eq!(order(&mut fetching), ["costs 3 at a"]);
    }
}
