//! The history of a case, made anew from the seed whenever it is asked for: so a world of any size
//! fits into memory, and a case costs nothing until somebody changes it.

use std::borrow::Cow;

use chrono::{DateTime, Datelike, NaiveDate};

use super::super::wire::{LocalMs, TICKS_PER_DAY, Ticks, month_start};
use super::belongings;
use super::case::{Case, ChangeDates, Common, Facts, Moved, Role, Settlement, Status};
use super::dice::{Dice, Trivia};
use super::names;
use super::people::Basis;

/// The history reaches this many days back.
const HISTORY_DAYS: i64 = 540;
const FIRST_CASE: i64 = 1_000;
/// Assignment types and how many of 100 cases have them.
const ASSIGNMENTS: &[(&str, i64)] = &[
    ("Sale", 52),
    ("Valuation", 14),
    ("ResaleOfContractPositionConsumer", 6),
    ("ResaleOfContractPositionProff", 4),
    ("EstateOfDeceased", 6),
    ("Foreclosure", 3),
    ("Settlement", 3),
    ("Rental", 3),
    ("SaleHouseConstructionLaw", 4),
    ("WrittenAssessment", 2),
    ("OralAssessment", 1),
    ("Miscellaneous", 1),
    ("SaleOfCompany", 1),
];

const CATEGORIES: &[&str] = &[
    "PropertyForSale",
    "ResidentialApartment",
    "Condominium",
    "HolidayHome",
    "Plot",
    "Industry",
    "Construction",
    "Local",
    "PropertyForRent",
];

const OWNERSHIPS: &[&str] = &["Freehold", "Share", "Stock", "Lease", "Bond", "Condominium"];

/// The id of the case with this number, from 0. Ids have gaps.
pub(crate) fn case_id(seed: u64, number: i64) -> i64 {
    FIRST_CASE + number * 3 + Trivia::new(seed ^ 0x1D, number).between(0, 0, 2)
}

/// The number of the case with this id, as [`case_id`] has given it.
pub(crate) fn case_number(id: i64) -> i64 {
    (id - FIRST_CASE) / 3
}

/// The GUID of the case with this id.
pub(crate) fn guid(basis: &Basis, id: i64) -> u128 {
    Trivia::new(basis.seed, id).guid(0)
}

/// A case as it was when the world began.
pub(crate) fn case(basis: &Basis, id: i64) -> Case {
    let number = case_number(id);
    let mut dice = Dice::new(basis.seed, id.unsigned_abs());
    // Created in the order of the ids, over the whole history, at a time of day with all digits.
    let age = HISTORY_DAYS * (basis.cases - number) / basis.cases.max(1);
    let created =
        Ticks(basis.origin.0 - age * TICKS_PER_DAY - dice.between(36_000_000_000, TICKS_PER_DAY));
    let mut case = blank(basis, id, created, &mut dice);
    live(basis, &mut case, number, &mut dice);
    settle_dates(basis, &mut case, &mut dice);
    case
}

/// A new case with nothing on it but its seller and its brokers.
pub(crate) fn blank(basis: &Basis, id: i64, created: Ticks, dice: &mut Dice) -> Case {
    let trivia = Trivia::new(basis.seed, id);
    let mut roll = dice.below(100);
    let assignment = ASSIGNMENTS
        .iter()
        .find(|(_, share)| {
            roll -= share;
            roll < 0
        })
        .map_or("Sale", |(name, _)| *name);
    let broker = dice.pick_ref(&basis.employees);
    let price = dice.between(120, 1500) * 1_000_000 + if dice.chance(10) { 99_900 } else { 0 };
    let project = dice.chance(6);
    let mut case = Case {
        facts: Facts {
            id,
            project,
            office: broker.office,
            assignment: if project { "Sale" } else { assignment },
            dates: ChangeDates::new(created),
        },
        trivia,
        guid: guid(basis, id),
        category: if project { "Construction" } else { dice.pick(CATEGORIES) },
        ownership: dice.pick(OWNERSHIPS),
        broker: broker.id,
        assistant: dice.chance(60).then(|| dice.pick_ref(&basis.employees).id),
        settler: dice.chance(70).then(|| dice.pick_ref(&basis.employees).id),
        created,
        status: Status::Initial,
        reached: [None; Status::ALL.len()],
        settled: [None; Settlement::ALL.len()],
        published: None,
        asking_price: (!dice.chance(12)).then_some(price),
        sale_price: None,
        conditions: belongings::conditions(price, dice),
        common: None,
        document_cost: None,
        resale: None,
        roles: Vec::new(),
        activities: Vec::new(),
        buyer_costs: Vec::new(),
        seller_costs: Vec::new(),
        entries: Vec::new(),
        drafts: Vec::new(),
        bids: Vec::new(),
        economy: None,
        dossier: None,
        next: 0,
        edition: 0,
        project_id: None,
    };
    case.reach(Status::Initial, created);
    if !project && case_number(id) > 20 && dice.chance(12) {
        case.project_id = Some(case_id(basis.seed, dice.below(case_number(id))));
    }
    if dice.chance(88) {
        case.common = Some(Common {
            debt: (!dice.chance(20)).then(|| dice.between(0, 4_000_000) * 37),
            cost: dice.chance(80).then(|| dice.between(1_000, 9_000) * 100),
            comment: dice.chance(50).then(|| Cow::Borrowed(dice.pick(names::TEXTS))),
        });
    }
    if dice.chance(85) {
        // 2.5 % of the price: the duty on a deed.
        case.document_cost = Some(if dice.chance(8) { 0 } else { price / 40 });
    }
    if case.is_resale() && dice.chance(92) {
        case.resale = Some(belongings::resale(price, created, dice));
    }
    for n in 0..dice.between(1, 2) {
        belongings::add_role(basis, &mut case, if n == 0 { "Seller" } else { "Owner" }, dice);
    }
    let role = Role { id: case.next_id(), kind: "Broker", contact: case.broker, deceased: None };
    case.roles.push(role);
    case
}

/// The life of a case up to now: how far it came depends on its age.
fn live(basis: &Basis, case: &mut Case, number: i64, dice: &mut Dice) {
    // Nothing of the history lies within the last minutes before the world's life begins.
    let end = basis.origin.plus_ms(-600_000);
    let mut at = case.created;
    let step = |at: &mut Ticks, dice: &mut Dice, low: i64, high: i64| -> Option<Ticks> {
        *at = Ticks(at.0 + dice.between(low * TICKS_PER_DAY, high * TICKS_PER_DAY));
        (*at < end).then_some(*at)
    };
    // The first cases are there to be looked at, so they come as far as their purpose needs.
    let special = number < 10;
    if number < 4 {
        (case.facts.assignment, case.facts.project, case.resale) = ("Sale", false, None);
    }
    // All contacts of a neighbourhood have to be named, whatever happens to the case.
    for n in 0..2 {
        let contact = 50_001 + (number * 2 + n).min(basis.contacts - 1);
        let id = case.next_id();
        case.roles.push(Role { id, kind: "Stakeholder", contact, deceased: None });
    }
    if number == basis.cases - 1 {
        for contact in basis.contact_ids().skip(usize::try_from(number * 2).unwrap_or(0)) {
            let id = case.next_id();
            case.roles.push(Role { id, kind: "Stakeholder", contact, deceased: None });
        }
    }
    belongings::add_activities(case, end, dice);

    let Some(drafted) = step(&mut at, dice, 0, 4) else { return };
    case.reach(Status::Draft, drafted);
    case.facts.dates.set(Moved::Description, Some(drafted));
    belongings::add_costs(case, dice);
    if dice.chance(20) {
        case.reach(Status::General, drafted.plus_ms(3_600_001));
    }
    let Some(activated) = step(&mut at, dice, 1, 25) else { return };
    if dice.chance(8) && !special {
        let lost = if dice.chance(50) { Status::Lost } else { Status::Canceled };
        case.reach(lost, activated);
        return;
    }
    let activated = activation(basis, number).unwrap_or(activated);
    at = activated;
    case.reach(Status::Active, activated);
    case.facts.dates.set(Moved::CaseActivated, Some(activated));
    belongings::add_booking(case, activated, dice);
    if number == 5 || number == 6 {
        // A list of exactly the default `$top`, and one that is longer.
        while case.entries.len() < if number == 5 { 100 } else { 130 } {
            belongings::add_entry(case, activated, dice);
        }
    }

    let Some(imaged) = step(&mut at, dice, 1, 8) else { return };
    case.facts.dates.set(Moved::Image, Some(imaged));
    case.facts.dates.set(Moved::Attachment, dice.chance(80).then_some(imaged.plus_ms(5_003)));
    let Some(published) = step(&mut at, dice, 0, 6) else { return };
    case.reach(Status::Ready, published);
    case.published = Some(published);
    case.facts.dates.set(Moved::Publication, Some(published));
    for _ in 0..dice.between(0, 4) {
        belongings::add_role(basis, case, "Stakeholder", dice);
        case.facts
            .dates
            .set(Moved::CaseEntity, Some(published.plus_ms(dice.between(1, 90_000_000))));
    }
    if case.facts.assignment == "Valuation" || case.facts.project {
        return;
    }
    let Some(bidding) = step(&mut at, dice, 2, 40) else { return };
    case.reach(Status::BiddingStarted, bidding);
    belongings::add_bids(case, bidding, dice);
    let Some(sold) = step(&mut at, dice, 0, 3) else { return };
    if dice.chance(20) {
        case.reach(Status::Reserved, Ticks(sold.0 - 1));
    }
    sell(basis, case, sold, dice);
    let Some(transferred) = step(&mut at, dice, 20, 70) else { return };
    case.reach(Status::DocumentDelivery, transferred);
    for (n, state) in Settlement::ALL.into_iter().enumerate().take(6) {
        let later = i64::try_from(n).unwrap_or(0) * 86_400_000;
        case.settle(state, Ticks(transferred.plus_ms(later).0.min(end.0)));
    }
    belongings::add_booking(case, transferred, dice);
    if dice.chance(30) {
        case.reach(Status::Followup, Ticks(transferred.plus_ms(7_200_000).0.min(end.0)));
    }
    let Some(archived) = step(&mut at, dice, 10, 40) else { return };
    case.reach(Status::Archived, archived);
    case.settle(Settlement::Completed, archived);
    case.settle(Settlement::Archived, archived);
}

/// The first cases are activated at instants at which calendars go wrong: the borders of a month,
/// and both clock changes.
fn activation(basis: &Basis, number: i64) -> Option<Ticks> {
    let border = month_start(basis.origin, 1);
    let change = |month: u32, hour: u32, minute: u32| {
        let past = basis.origin.plus_days(-30);
        let year = past.utc().year();
        // Clocks change on the last Sunday of March and October.
        [year, year - 1].into_iter().find_map(|year| {
            let last = NaiveDate::from_ymd_opt(year, month, 31)?;
            let sunday =
                last - chrono::Duration::days(last.weekday().num_days_from_sunday().into());
            let at =
                LocalMs::new(sunday, chrono::NaiveTime::from_hms_opt(hour, minute, 0)?).instant();
            (at < past).then_some(at)
        })
    };
    match number {
        0 => Some(border),
        1 => Some(Ticks(border.0 - 10_000)),
        2 => change(10, 2, 30),
        3 => change(3, 3, 0),
        _ => None,
    }
}

/// A sale: the accepted bid, the buyer, the prices.
pub(crate) fn sell(basis: &Basis, case: &mut Case, sold: Ticks, dice: &mut Dice) {
    case.reach(Status::Sold, sold);
    case.facts.dates.set(Moved::CaseSold, Some(sold));
    let price = case.bids.last().map(|bid| bid.amount).or(case.asking_price);
    case.sale_price = price;
    if let Some(bid) = case.bids.last_mut() {
        bid.accepted = Some(sold);
    }
    belongings::add_role(basis, case, "Buyer", dice);
    case.facts.dates.set(Moved::CaseEntity, Some(sold));
}

/// `ModifiedDate` is the latest of everything, and a little later for changes without a date of
/// their own.
fn settle_dates(basis: &Basis, case: &mut Case, dice: &mut Dice) {
    if case_number(case.id()) == 8 {
        let id = case.next_id();
        let kind = "Stakeholder";
        case.roles.push(Role { id, kind, contact: belongings::DANGLING_CONTACT, deceased: None });
    }
    let reached = case.reached.iter().chain(&case.settled).flatten().copied().max();
    let latest = case.facts.dates.latest().max(reached).unwrap_or(case.created);
    let later = if dice.chance(40) { dice.between(0, 20 * TICKS_PER_DAY) } else { 0 };
    let end = basis.origin.plus_ms(-60_000 - dice.between(0, 500_000));
    let modified = Ticks((latest.0 + later).min(end.0)).max(latest);
    case.facts.dates.modified = modified;
}

/// Whether a local time lies in an hour that a clock change repeats or skips; used for dates that
/// people type without thinking of clocks.
pub(crate) fn odd_hour(year: i32, autumn: bool) -> LocalMs {
    let month = if autumn { 10 } else { 3 };
    let last = NaiveDate::from_ymd_opt(year, month, 31).unwrap_or_default();
    let sunday = last - chrono::Duration::days(last.weekday().num_days_from_sunday().into());
    LocalMs::new(sunday, chrono::NaiveTime::from_hms_opt(2, 30, 0).unwrap_or_default())
}

/// The year of an instant, in UTC.
pub(crate) fn year_of(at: Ticks) -> i32 {
    DateTime::from_timestamp(at.0.div_euclid(10_000_000), 0).unwrap_or_default().year()
}
