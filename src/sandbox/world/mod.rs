//! The brokerage itself: offices, employees, contacts and cases, as they are now and as the search
//! index knows them.

mod act;
mod administration;
mod belongings;
pub(crate) mod case;
mod change;
pub(crate) mod consents;
pub(crate) mod definitions;
pub(crate) mod dice;
pub(crate) mod dossier;
pub(crate) mod economy;
pub(crate) mod events;
pub(crate) mod generate;
mod index;
pub(crate) mod journals;
mod life;
pub(crate) mod names;
pub(crate) mod people;
pub(crate) mod registers;
mod stakeholder;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::deliveries::outbox::Outbox;
use super::wire::Ticks;
pub use act::{Act, Facet, ListEdit, Outcome};
use case::{Case, ChangeDates, Facts};
use consents::Consents;
use definitions::Definition;
use dice::Dice;
pub(crate) use index::{Index, Lag};
use journals::Journals;

use people::{Basis, Contact, Employee, Office};
use registers::Registers;
pub(crate) use stakeholder::NewStakeholder;

/// A case in the world: its facts always, its contents once they differ from what the seed gives.
#[derive(Debug, Clone)]
struct Slot {
    facts: Facts,
    /// Set when the case has changed since the world began.
    touched: Option<Arc<Case>>,
    hidden: bool,
}

/// A case as a list hands it out: contents are built outside the world's lock.
#[derive(Debug, Clone)]
pub(crate) enum Handle {
    /// As the seed gives it.
    Pristine(Facts),
    Touched(Arc<Case>),
}

impl Handle {
    pub(crate) fn facts(&self) -> &Facts {
        match self {
            Handle::Pristine(facts) => facts,
            Handle::Touched(case) => &case.facts,
        }
    }

    /// The case with all its contents.
    pub(crate) fn case(&self, basis: &Basis) -> Arc<Case> {
        match self {
            Handle::Pristine(facts) => Arc::new(generate::case(basis, facts.id)),
            Handle::Touched(case) => case.clone(),
        }
    }
}

/// How much a world begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) cases: usize,
    /// Lines of the revenue journal per office and month; None: in proportion to the cases.
    pub(crate) journal_lines: Option<usize>,
}

/// The brokerage.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) basis: Arc<Basis>,
    started: Instant,
    /// How far its clock was put forward.
    skipped: Duration,
    /// The last instant that was given out; the next one is later.
    last: Ticks,
    slots: BTreeMap<i64, Slot>,
    /// All cases by `ModifiedDate`, so that a poll of an idle world looks at nothing.
    by_modified: BTreeSet<(Ticks, i64)>,
    contacts: BTreeMap<i64, Contact>,
    contacts_by_modified: BTreeSet<(Ticks, i64)>,
    employees: BTreeMap<i64, Employee>,
    offices: BTreeMap<i64, Office>,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) journals: Journals,
    pub(crate) consents: Consents,
    pub(crate) registers: Registers,
    /// What the world tells its subscribers.
    pub(crate) outbox: Outbox,
    /// Cases by their GUID, by which the public knows them.
    guids: HashMap<u128, i64>,
    next_case: i64,
    next_contact: i64,
    dice: Dice,
    pub(crate) index: Index,
    /// Cases that the feed leaves out for this many polls yet.
    pub(crate) feed_hides: HashMap<i64, u64>,
}

impl World {
    /// A world with its whole history, which ends at `origin`.
    pub(crate) fn new(seed: u64, origin: Ticks, size: Size, lag: Lag) -> World {
        let basis = Arc::new(Basis::new(seed, origin, size.cases));
        let mut world = World {
            started: Instant::now(),
            skipped: Duration::ZERO,
            last: origin,
            slots: BTreeMap::new(),
            by_modified: BTreeSet::new(),
            contacts: BTreeMap::new(),
            contacts_by_modified: BTreeSet::new(),
            employees: basis.employees.iter().map(|e| (e.id, e.clone())).collect(),
            offices: basis.offices.iter().map(|o| (o.id, o.clone())).collect(),
            definitions: definitions::of_seed(seed),
            journals: Journals::new(seed, size.journal_lines),
            consents: Consents::of_seed(&basis),
            registers: Registers::of_seed(&basis),
            outbox: Outbox::default(),
            guids: HashMap::new(),
            next_case: basis.cases,
            next_contact: basis.contacts,
            dice: Dice::new(seed, u64::MAX),
            index: Index::new(lag),
            feed_hides: HashMap::new(),
            basis: basis.clone(),
        };
        for number in 0..basis.cases {
            let facts = generate::case(&basis, generate::case_id(seed, number)).facts;
            world.by_modified.insert((facts.dates.modified, facts.id));
            world.guids.insert(generate::guid(&basis, facts.id), facts.id);
            world.slots.insert(facts.id, Slot { facts, touched: None, hidden: false });
        }
        for id in basis.contact_ids() {
            world.contacts_by_modified.insert((basis.contact(id).modified, id));
        }
        for employee in &basis.employees {
            world.contacts_by_modified.insert((employee.modified, employee.id));
        }
        world
    }

    /// The time in the world: its origin, what has passed since, and what was skipped.
    pub(crate) fn now(&self) -> Ticks {
        let passed = self.started.elapsed() + self.skipped;
        let passed = i64::try_from(passed.as_nanos() / 100).unwrap_or(0);
        Ticks(self.basis.origin.0 + passed)
    }

    /// Its clock goes on by so much at once.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.skipped += by;
    }

    /// An instant for a change: now, but later than any given before.
    pub(crate) fn stamp(&mut self) -> Ticks {
        self.last = self.now().max(Ticks(self.last.0 + 1));
        self.last
    }

    /// Whether the case exists.
    pub(crate) fn has_case(&self, id: i64) -> bool {
        self.slots.contains_key(&id)
    }

    /// The case as it is now.
    pub(crate) fn case(&self, id: i64) -> Option<Arc<Case>> {
        self.slots.get(&id).map(|slot| self.contents(slot))
    }

    /// The case that the public knows by this GUID.
    pub(crate) fn case_of_guid(&self, guid: u128) -> Option<Arc<Case>> {
        self.guids.get(&guid).and_then(|id| self.case(*id))
    }

    fn contents(&self, slot: &Slot) -> Arc<Case> {
        handle(slot).case(&self.basis)
    }

    /// All cases as they are now, and whether they are hidden from the search.
    pub(crate) fn cases(&self) -> impl Iterator<Item = (Handle, bool)> {
        self.slots.values().map(|slot| (handle(slot), slot.hidden))
    }

    /// The feed's rows from an instant on, in the order of `ModifiedDate`.
    pub(crate) fn modified_since(&self, from: Ticks) -> impl Iterator<Item = (i64, ChangeDates)> {
        self.by_modified.range((from, i64::MIN)..).filter_map(|(_, id)| {
            let slot = self.slots.get(id)?;
            Some((*id, slot.facts.dates))
        })
    }

    /// The contacts feed's rows from an instant on, in the order of `ModifiedDate`.
    pub(crate) fn contacts_modified_since(
        &self,
        from: Ticks,
    ) -> impl Iterator<Item = (i64, Ticks)> {
        self.contacts_by_modified.range((from, i64::MIN)..).map(|(at, id)| (*id, *at))
    }

    /// The contact as it is now: an employee is one too.
    pub(crate) fn contact(&self, id: i64) -> Option<Contact> {
        if let Some(contact) = self.contacts.get(&id) {
            return Some(contact.clone());
        }
        if let Some(employee) = self.employees.get(&id) {
            return Some(employee_contact(employee));
        }
        self.basis.contact_ids().contains(&id).then(|| self.basis.contact(id))
    }

    /// Ids of all contacts, employees included, in order.
    pub(crate) fn contact_ids(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.employees.keys().copied().collect();
        ids.extend(self.basis.contact_ids());
        ids.extend(self.contacts.keys().filter(|id| **id >= 50_001 + self.basis.contacts));
        ids
    }

    pub(crate) fn offices(&self) -> impl Iterator<Item = &Office> {
        self.offices.values()
    }

    pub(crate) fn office(&self, id: i64) -> Option<&Office> {
        self.offices.get(&id)
    }

    pub(crate) fn employee(&self, id: i64) -> Option<&Employee> {
        self.employees.get(&id)
    }

    pub(crate) fn employees(&self) -> impl Iterator<Item = &Employee> {
        self.employees.values()
    }

    /// Changes a case at an instant: `ModifiedDate` moves to it, subscribers are told, and the search
    /// index learns of it later.
    pub(crate) fn change<T>(
        &mut self,
        id: i64,
        at: Ticks,
        edit: impl FnOnce(&mut Case, &mut Dice) -> T,
    ) -> Option<T> {
        self.change_silently(id, at, |case, dice| {
            let result = edit(case, dice);
            case.facts.dates.modified = at;
            result
        })
    }

    /// The same, but no date moves unless `edit` does it.
    fn change_silently<T>(
        &mut self,
        id: i64,
        at: Ticks,
        edit: impl FnOnce(&mut Case, &mut Dice) -> T,
    ) -> Option<T> {
        let slot = self.slots.get(&id)?;
        let before = self.contents(slot);
        let was_hidden = slot.hidden;
        let mut case = Case::clone(&before);
        case.keep_contents(&self.basis);
        let written = case.dossier.clone();
        let result = edit(&mut case, &mut self.dice);
        let after = Arc::new(case);
        self.index.case_changed(
            id,
            (!was_hidden).then_some(before.clone()),
            (!was_hidden).then_some(after.clone()),
        );
        self.by_modified.remove(&(before.facts.dates.modified, id));
        self.by_modified.insert((after.facts.dates.modified, id));
        let slot = self.slots.get_mut(&id)?;
        slot.facts = after.facts.clone();
        slot.touched = Some(after.clone());
        if self.has_subscribers() {
            self.emit(events::of_change(&before, written.as_deref(), &after, at));
        }
        Some(result)
    }

    /// Shows or hides a case in the search.
    fn set_hidden(&mut self, id: i64, hidden: bool) -> bool {
        let Some(slot) = self.slots.get(&id) else { return false };
        let case = self.contents(slot);
        let before = (!slot.hidden).then(|| case.clone());
        self.index.case_changed(id, before, (!hidden).then_some(case));
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.hidden = hidden;
        }
        true
    }

    /// Removes a case; the index lists it until it learns of it.
    fn delete_case(&mut self, id: i64) -> Option<Arc<Case>> {
        let slot = self.slots.remove(&id)?;
        let case = self.contents(&slot);
        self.by_modified.remove(&(slot.facts.dates.modified, id));
        self.index.case_changed(id, (!slot.hidden).then(|| case.clone()), None);
        Some(case)
    }

    fn insert_case(&mut self, case: Case) {
        let id = case.id();
        let case = Arc::new(case);
        self.guids.insert(case.guid, id);
        self.by_modified.insert((case.facts.dates.modified, id));
        self.index.case_changed(id, None, Some(case.clone()));
        let facts = case.facts.clone();
        self.slots.insert(id, Slot { facts, touched: Some(case), hidden: false });
    }

    /// Changes a contact at an instant; the search index learns of it later.
    fn change_contact(&mut self, id: i64, at: Ticks, edit: impl FnOnce(&mut Contact)) -> bool {
        let Some(before) = self.contact(id) else { return false };
        let mut after = before.clone();
        edit(&mut after);
        after.modified = at;
        self.contacts_by_modified.remove(&(before.modified, id));
        self.contacts_by_modified.insert((at, id));
        if let Some(employee) = self.employees.get_mut(&id) {
            employee.modified = at;
            employee.telephone = after.telephone.clone().unwrap_or_default();
        } else {
            self.index.contact_changed(id, Some(before), after.clone());
            self.contacts.insert(id, after);
        }
        true
    }

    pub(super) fn insert_contact(&mut self, at: Ticks) -> i64 {
        let id = 50_001 + self.next_contact;
        self.next_contact += 1;
        let contact = Contact { modified: at, ..self.basis.contact(id) };
        self.contacts_by_modified.insert((at, id));
        self.index.contact_changed(id, None, contact.clone());
        self.contacts.insert(id, contact);
        id
    }

    /// A case of the world by chance, visible ones only.
    fn any_case(&mut self) -> Option<i64> {
        let count = i64::try_from(self.slots.len()).unwrap_or(0);
        let nth = usize::try_from(self.dice.below(count)).unwrap_or(0);
        self.slots.keys().nth(nth).copied()
    }
}

fn handle(slot: &Slot) -> Handle {
    match &slot.touched {
        Some(case) => Handle::Touched(case.clone()),
        None => Handle::Pristine(slot.facts.clone()),
    }
}

fn employee_contact(employee: &Employee) -> Contact {
    Contact {
        id: employee.id,
        person: employee.person,
        kind: "Employee",
        modified: employee.modified,
        telephone: Some(employee.telephone.clone()),
        street: None,
        job: Some(employee.title.into()),
        active: employee.active,
        said: None,
    }
}
