//! The one order in which work is done (pure).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::scope::{ScopeId, Urgency, Work};

/// Whether work that waits can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Now,
    /// Something else has to end first.
    Later,
    /// It is not wanted any more.
    Never,
}

/// A place in the order: how urgent, and which was asked for first.
type Place = (Urgency, u64);

/// Work that waits, the most urgent first, and the scopes of which a call is under way.
///
/// Of a scope at most one call is under way and at most one waits: the newer plan takes the place of
/// the older one, so that nothing is read at dates that are known to be over.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Place, Work>,
    places: HashMap<ScopeId, Place>,
    under_way: HashSet<ScopeId>,
    /// Cases that have left: nothing is asked of them, and what is still answered is dropped.
    removed: HashSet<i64>,
    pushed: u64,
}

impl Queue {
    /// This work, in this order.
    pub(crate) fn of(urgency: Urgency, work: impl IntoIterator<Item = Work>) -> Queue {
        let mut queue = Queue::default();
        work.into_iter().for_each(|work| queue.push(urgency, work));
        queue
    }

    /// How many scopes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds work. What waits of the same scope is void, but for how urgent it was.
    pub(crate) fn push(&mut self, urgency: Urgency, work: Work) {
        let scope = work.scope();
        self.pushed += 1;
        let place = match self.places.get(&scope) {
            Some(before) if before.0 <= urgency => *before,
            Some(before) => {
                self.waiting.remove(before);
                (urgency, self.pushed)
            }
            None => (urgency, self.pushed),
        };
        self.waiting.insert(place, work);
        self.places.insert(scope, place);
    }

    /// The most urgent work that is ready; it is under way until [`Queue::done`].
    pub(crate) fn pop(&mut self, ready: impl Fn(&Work) -> Ready) -> Option<Work> {
        let mut void = Vec::new();
        let mut next = None;
        for (place, work) in &self.waiting {
            let gone = matches!(work, Work::Case(stale) if self.removed.contains(&stale.id));
            match if gone { Ready::Never } else { ready(work) } {
                Ready::Never => void.push(*place),
                Ready::Now if !self.under_way.contains(&work.scope()) => {
                    next = Some(*place);
                    break;
                }
                Ready::Now | Ready::Later => {}
            }
        }
        for place in void {
            self.take(place);
        }
        let work = self.take(next?)?;
        self.under_way.insert(work.scope());
        Some(work)
    }

    fn take(&mut self, place: Place) -> Option<Work> {
        let work = self.waiting.remove(&place)?;
        self.places.remove(&work.scope());
        Some(work)
    }

    /// Takes out all that waits of a case.
    pub(crate) fn take_case(&mut self, id: i64) -> Vec<Work> {
        let is_of_case = |work: &Work| matches!(work, Work::Case(stale) if stale.id == id);
        let waiting = self.waiting.iter().filter(|(_, work)| is_of_case(work));
        let places: Vec<Place> = waiting.map(|(place, _)| *place).collect();
        places.into_iter().filter_map(|place| self.take(place)).collect()
    }

    /// What was under way has ended. Returns whether its answer counts.
    pub(crate) fn done(&mut self, work: &Work) -> bool {
        self.under_way.remove(&work.scope());
        !matches!(work, Work::Case(stale) if self.removed.contains(&stale.id))
    }

    /// The scopes of which a call is under way.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &ScopeId> {
        self.under_way.iter()
    }

    /// Whether changes wait.
    pub(crate) fn has_changes(&self) -> bool {
        self.waiting.first_key_value().is_some_and(|((urgency, _), _)| *urgency == Urgency::Change)
    }

    /// These cases have left.
    pub(crate) fn remove(&mut self, cases: impl IntoIterator<Item = i64>) {
        self.removed.extend(cases);
    }

    /// These cases are there, whatever was known before.
    pub(crate) fn restore<'a>(&mut self, cases: impl IntoIterator<Item = &'a i64>) {
        for id in cases {
            self.removed.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::{Reason, Stale};

    fn work(table: &str, id: i64, version: &str) -> Work {
        let (table, version) = (table.to_owned(), version.to_owned());
        Work::Case(Stale {
            table,
            id,
            version,
            lookup: None,
            reason: Reason::Changed,
            mirrored: None,
            hint: None,
        })
    }

    fn shown(work: &Work) -> String {
        match work {
            Work::Case(s) => format!("{} {} at {}", s.table, s.id, s.version),
            other => format!("{other:?}"),
        }
    }

    fn order(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(|_| Ready::Now)).map(|work| shown(&work)).collect()
    }

    #[test]
    fn changes_come_first_and_the_older_plan_of_a_scope_is_void() {
        let backlog = [work("costs", 1, "a"), work("costs", 2, "a"), work("notes", 2, "a")];
        let mut queue = Queue::of(Urgency::Backlog, backlog);
        assert!(!queue.has_changes());
        queue.push(Urgency::Change, work("costs", 2, "b"));
        queue.push(Urgency::Change, work("costs", 2, "c"));
        queue.push(Urgency::Change, work("costs", 9, "c"));
        assert!(queue.has_changes());
        let expected = ["costs 2 at c", "costs 9 at c", "costs 1 at a", "notes 2 at a"];
        assert_eq!(order(&mut queue), expected);
    }

    #[test]
    fn what_is_urgent_stays_so_when_it_is_planned_again_with_less_haste() {
        let mut queue = Queue::of(Urgency::Change, [work("costs", 2, "a")]);
        queue.push(Urgency::Backlog, work("costs", 1, "a"));
        queue.push(Urgency::Backlog, work("costs", 2, "b"));
        assert_eq!(order(&mut queue), ["costs 2 at b", "costs 1 at a"]);
    }

    #[test]
    fn a_scope_under_way_is_read_again_only_when_its_answer_has_come() {
        let mut queue = Queue::of(Urgency::Backlog, [work("costs", 1, "a")]);
        let first = queue.pop(|_| Ready::Now).unwrap();
        queue.push(Urgency::Change, work("costs", 1, "b"));
        assert_eq!(queue.pop(|_| Ready::Now), None);
        assert!(queue.done(&first));
        assert_eq!(order(&mut queue), ["costs 1 at b"]);
    }

    #[test]
    fn nothing_is_asked_of_a_case_that_has_left_and_what_it_answers_does_not_count() {
        let backlog = [work("costs", 1, "a"), work("notes", 1, "a"), work("costs", 3, "a")];
        let mut queue = Queue::of(Urgency::Backlog, backlog);
        let asked = queue.pop(|_| Ready::Now).unwrap();
        queue.remove([1]);
        assert!(!queue.done(&asked));
        queue.restore(&[3]);
        assert_eq!(order(&mut queue), ["costs 3 at a"]);
    }

    #[test]
    fn what_has_to_wait_lets_others_go_and_what_is_unwanted_is_dropped() {
        let backlog = [work("costs", 1, "a"), work("notes", 1, "a"), work("roles", 1, "a")];
        let mut queue = Queue::of(Urgency::Backlog, backlog);
        let ready = |work: &Work| match work.table() {
            "costs" => Ready::Later,
            "notes" => Ready::Never,
            _ => Ready::Now,
        };
        assert_eq!(queue.pop(ready).map(|work| shown(&work)).unwrap(), "roles 1 at a");
        assert_eq!(queue.pop(ready), None);
        assert_eq!(order(&mut queue), ["costs 1 at a"]);
    }
}
