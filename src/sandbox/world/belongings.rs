//! What hangs on a case, each made by chance: prices, roles, bids, activities, costs, bookings.

use std::borrow::Cow;

use super::super::wire::{TICKS_PER_DAY, Ticks};
use super::case::{Activity, Bid, Case, Conditions, Cost, Draft, Entry, Moved, Resale, Role};
use super::definitions::DEFINITIONS;
use super::dice::Dice;
use super::generate::case_number;
use super::names;
use super::people::Basis;

/// A contact id that a role names and that does not exist: contacts are deleted too.
pub(crate) const DANGLING_CONTACT: i64 = 999_999_999;

/// A price that the three places where it stands know or do not know; one of them can be older.
pub(crate) fn conditions(price: i64, dice: &mut Dice) -> Conditions {
    let older = price - dice.between(1, 20) * 5_000_000;
    Conditions {
        case_asking_price: (!dice.chance(25)).then_some(price),
        property_asking_price: (!dice.chance(25)).then_some(if dice.chance(10) {
            older
        } else {
            price
        }),
        published_asking_price: dice.chance(70).then_some(if dice.chance(20) {
            older
        } else {
            price
        }),
        commission: dice.chance(80).then(|| price / 1000 * dice.between(9, 30)),
    }
}

pub(crate) fn resale(price: i64, created: Ticks, dice: &mut Dice) -> Resale {
    Resale {
        original_sale_price: (!dice.chance(8)).then_some(price * 9 / 10),
        entry_into_contract: (!dice.chance(10)).then(|| dice.between(1, 90) * 1_000_050),
        customer_changes: dice.chance(70).then(|| dice.between(0, 40_000_000)),
        sum_original_buyer_costs: (!dice.chance(15)).then(|| dice.between(100, 90_000_000)),
        other_buyer_costs: dice.chance(60).then(|| dice.between(0, 9_000_000)),
        contract_date: dice.chance(80).then(|| created.plus_days(-dice.between(100, 700))),
        developer: dice.chance(50).then(|| dice.between(50_001, 50_030)),
    }
}

/// Adds a role of a contact that the world began with; contacts are shared between cases.
pub(crate) fn add_role(basis: &Basis, case: &mut Case, kind: &'static str, dice: &mut Dice) -> i64 {
    let number = case_number(case.id());
    // Mostly contacts of this case's own neighbourhood, so that each of them is named somewhere.
    let near = number * 2 + dice.below(40);
    let offset = if dice.chance(80) { near } else { dice.below(basis.contacts) };
    let contact = 50_001 + offset.min(basis.contacts - 1);
    let deceased = (kind == "Owner" && dice.chance(30)).then(|| dice.chance(20));
    let id = case.next_id();
    case.roles.push(Role { id, kind, contact, deceased });
    id
}

pub(crate) fn add_bids(case: &mut Case, at: Ticks, dice: &mut Dice) {
    let start = case.asking_price.unwrap_or(300_000_000);
    for n in 0..dice.between(1, 4) {
        let bidder = case.roles[usize::try_from(n).unwrap_or(0) % case.roles.len()].contact;
        let made = at.plus_ms(n * 1_800_000 + dice.between(0, 999));
        let amount = start + (n - 1) * 5_000_000;
        case.bids.push(Bid {
            contact: bidder,
            amount,
            at: made,
            due: made.plus_ms(3_600_000),
            accepted: None,
        });
        case.facts.dates.set(Moved::Bid, Some(made));
    }
}

/// Adds an activity; its id.
pub(crate) fn add_activity(case: &mut Case, created: Ticks, dice: &mut Dice) -> i64 {
    let (kind, subject) = dice.pick(names::SUBJECTS);
    let description = match dice.below(10) {
        0 => None,
        1 => Some(Cow::Owned(names::long_text(usize::try_from(case.next).unwrap_or(0)))),
        _ => Some(Cow::Borrowed(dice.pick(names::TEXTS))),
    };
    let id = case.next_id();
    case.activities.push(Activity {
        id,
        kind,
        subject: Cow::Borrowed(subject),
        description,
        created,
        modified: dice.chance(80).then(|| created.plus_ms(dice.between(0, 5_000))),
        at: (!dice.chance(6)).then(|| {
            // On the quarter of an hour, as people plan.
            let quarter = 15 * 60 * 10_000_000;
            Ticks((created.0 + dice.between(1, 30) * TICKS_PER_DAY) / quarter * quarter)
        }),
        minutes: dice.between(1, 6) * 15,
        completed: dice.chance(50),
        private: dice.chance(15),
        organizer: case.broker,
        registered: 0,
    });
    id
}

pub(crate) fn add_activities(case: &mut Case, end: Ticks, dice: &mut Dice) {
    let many = if case_number(case.id()) == 4 { 250 } else { dice.between(0, 8) };
    for n in 0..many {
        let created = case.created.plus_ms(n * 7_200_000 + dice.between(0, 3_600_000));
        let created = Ticks(created.0.min(end.0));
        add_activity(case, created, dice);
        case.facts.dates.set(Moved::Activity, Some(created));
    }
}

/// Adds a cost to one side of the case; its id.
pub(crate) fn add_cost(case: &mut Case, seller: bool, dice: &mut Dice) -> i64 {
    let (name, usual) = dice.pick(names::COST_NAMES);
    let id = case.next_id();
    let cost = Cost {
        id,
        amount: if dice.chance(20) { dice.between(1, 3_000_000) } else { usual },
        comment: if dice.chance(15) {
            dice.chance(50).then(|| Cow::Borrowed(dice.pick(names::TEXTS)))
        } else {
            Some(Cow::Borrowed(name))
        },
        definition: dice.chance(80).then(|| dice.pick_ref(DEFINITIONS).id),
        draft: None,
        deleted: dice.chance(6),
        selected: dice.chance(75),
        optional: dice.chance(80).then(|| dice.chance(40)),
        hidden: dice.chance(50).then(|| dice.chance(10)),
        editable: dice.chance(60),
        standard: dice.chance(70),
        vat: dice.chance(80).then(|| if dice.chance(60) { 2_500 } else { 0 }),
    };
    case.costs_mut(seller).push(cost);
    id
}

pub(crate) fn add_costs(case: &mut Case, dice: &mut Dice) {
    for seller in [false, true] {
        for _ in 0..dice.between(0, 7) {
            add_cost(case, seller, dice);
        }
    }
}

/// Adds a booked entry; its id.
pub(crate) fn add_entry(case: &mut Case, at: Ticks, dice: &mut Dice) -> i64 {
    let id = case.next_id();
    case.entries.push(Entry {
        id,
        number: case.id() % 10_000 * 100 + i64::try_from(case.entries.len()).unwrap_or(0) + 1,
        definition: dice.pick_ref(DEFINITIONS).id,
        amount: dice.between(-500_000, 9_000_000),
        date: (!dice.chance(10)).then_some(at),
        registered: at.plus_ms(dice.between(1, 5_000)),
        description: dice.chance(80).then(|| Cow::Borrowed(dice.pick(names::TEXTS))),
        created_by: dice.chance(70).then_some(case.broker),
        source: "Manual",
    });
    id
}

/// Adds an entry draft; its id.
pub(crate) fn add_draft(case: &mut Case, at: Ticks, dice: &mut Dice) -> i64 {
    let id = case.next_id();
    case.drafts.push(Draft {
        id,
        definition: dice.pick_ref(DEFINITIONS).id,
        amount: dice.between(100, 5_000_000),
        registered: at,
        description: dice.chance(80).then(|| Cow::Borrowed(dice.pick(names::TEXTS))),
        created_by: dice.chance(70).then_some(case.broker),
        source: "StandardCost",
    });
    id
}

pub(crate) fn add_booking(case: &mut Case, at: Ticks, dice: &mut Dice) {
    for _ in 0..dice.between(0, 3) {
        add_entry(case, at, dice);
    }
    for _ in 0..dice.between(0, 2) {
        add_draft(case, at, dice);
    }
    case.facts.dates.set(Moved::Transaction, Some(at));
}
