//! A case and everything that hangs on it.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::wire::Ticks;
use super::dice::Trivia;
use super::dossier::Dossier;
use super::economy::Economy;
pub use super::status::{Settlement, Status};

/// The ten dates that say what changed on a case, beside `ModifiedDate` (reference 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moved {
    CaseActivated,
    CaseSold,
    Bid,
    Description,
    CaseEntity,
    Image,
    Attachment,
    Transaction,
    Publication,
    Activity,
}

impl Moved {
    pub const ALL: [Moved; 10] = [
        Moved::CaseActivated,
        Moved::CaseSold,
        Moved::Bid,
        Moved::Description,
        Moved::CaseEntity,
        Moved::Image,
        Moved::Attachment,
        Moved::Transaction,
        Moved::Publication,
        Moved::Activity,
    ];

    /// The field of the feed and of search rows.
    pub fn field(self) -> &'static str {
        match self {
            Moved::CaseActivated => "CaseActivatedDate",
            Moved::CaseSold => "CaseSoldDate",
            Moved::Bid => "BidChangedDate",
            Moved::Description => "DescriptionChangedDate",
            Moved::CaseEntity => "CaseEntityChangedDate",
            Moved::Image => "ImageChangedDate",
            Moved::Attachment => "AttachmentChangedDate",
            Moved::Transaction => "TransactionChangedDate",
            Moved::Publication => "PublicationChangedDate",
            Moved::Activity => "ActivityChangedDate",
        }
    }
}

/// The eleven change dates of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeDates {
    pub modified: Ticks,
    moved: [Option<Ticks>; 10],
}

impl ChangeDates {
    pub fn new(modified: Ticks) -> ChangeDates {
        ChangeDates { modified, moved: [None; 10] }
    }

    pub fn get(&self, which: Moved) -> Option<Ticks> {
        self.moved[which as usize]
    }

    pub fn set(&mut self, which: Moved, at: Option<Ticks>) {
        self.moved[which as usize] = at;
    }

    /// The latest of the ten.
    pub fn latest(&self) -> Option<Ticks> {
        self.moved.iter().flatten().copied().max()
    }
}

/// What lists and filters need of a case without building it: kept for every case, also for those
/// whose contents have never been asked for.
#[derive(Debug, Clone)]
pub struct Facts {
    pub id: i64,
    pub project: bool,
    pub office: i64,
    pub assignment: &'static str,
    pub dates: ChangeDates,
}

/// A case (a sale or a project).
#[derive(Debug, Clone)]
pub struct Case {
    pub facts: Facts,
    pub trivia: Trivia,
    pub guid: u128,
    pub category: &'static str,
    pub ownership: &'static str,
    pub broker: i64,
    pub assistant: Option<i64>,
    pub settler: Option<i64>,
    pub created: Ticks,
    pub status: Status,
    /// When the case first came into a status, in the order of [`Status::ALL`].
    pub reached: [Option<Ticks>; Status::ALL.len()],
    /// When the settlement first came into a state, in the order of [`Settlement::ALL`].
    pub settled: [Option<Ticks>; Settlement::ALL.len()],
    pub published: Option<Ticks>,
    /// The asking price as the search knows it, in øre.
    pub asking_price: Option<i64>,
    pub sale_price: Option<i64>,
    pub conditions: Conditions,
    pub common: Option<Common>,
    pub document_cost: Option<i64>,
    pub resale: Option<Resale>,
    pub roles: Vec<Role>,
    pub activities: Vec<Activity>,
    pub buyer_costs: Vec<Cost>,
    pub seller_costs: Vec<Cost>,
    pub entries: Vec<Entry>,
    pub drafts: Vec<Draft>,
    pub bids: Vec<Bid>,
    /// Set once the case has changed; until then it follows from the seed.
    pub economy: Option<Arc<Economy>>,
    /// Likewise.
    pub dossier: Option<Arc<Dossier>>,
    /// The id that the next thing on this case gets, within the case's own range.
    pub next: i64,
    /// How often the description was changed.
    pub edition: i64,
    /// The master project, or the project whose unit this is.
    pub project_id: Option<i64>,
}

impl Case {
    pub fn id(&self) -> i64 {
        self.facts.id
    }

    /// A fresh id for something on this case. Ids are unique across cases too.
    pub fn next_id(&mut self) -> i64 {
        self.next += 1;
        self.facts.id * 10_000 + self.next
    }

    pub fn is_resale(&self) -> bool {
        self.facts.assignment.starts_with("ResaleOfContractPosition")
    }

    pub fn reach(&mut self, status: Status, at: Ticks) {
        self.status = status;
        self.reached[status as usize].get_or_insert(at);
    }

    pub fn reached(&self, status: Status) -> Option<Ticks> {
        self.reached[status as usize]
    }

    pub fn settle(&mut self, state: Settlement, at: Ticks) {
        self.settled[state as usize].get_or_insert(at);
    }

    /// The furthest state of the settlement.
    pub fn settlement(&self) -> Option<Settlement> {
        Settlement::ALL.into_iter().rev().find(|state| self.settled[*state as usize].is_some())
    }

    pub fn costs(&self, seller: bool) -> &Vec<Cost> {
        if seller { &self.seller_costs } else { &self.buyer_costs }
    }

    pub fn costs_mut(&mut self, seller: bool) -> &mut Vec<Cost> {
        if seller { &mut self.seller_costs } else { &mut self.buyer_costs }
    }

    /// The showings that the public sees at a moment: at most six that have not begun (reference
    /// 4.5), the next one first.
    pub fn public_showings(&self, now: Ticks) -> Vec<&Activity> {
        let is_public = |activity: &&Activity| {
            activity.kind == "ShowingActivity"
                && !activity.private
                && activity.at.is_some_and(|at| at > now)
        };
        let mut showings: Vec<&Activity> = self.activities.iter().filter(is_public).collect();
        showings.sort_by_key(|activity| (activity.at, activity.id));
        showings.truncate(6);
        showings
    }

    /// Contact ids of the roles of a type, in order.
    pub fn contacts_as<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = i64> + 'a {
        self.roles.iter().filter(move |role| role.kind == kind).map(|role| role.contact)
    }
}

/// Prices of the two condition records, in øre.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// `GET Properties/{id}/Conditions`.
    pub case_asking_price: Option<i64>,
    /// `GET Conditions/Properties/{id}`.
    pub property_asking_price: Option<i64>,
    pub published_asking_price: Option<i64>,
    pub commission: Option<i64>,
}

/// Common conditions, in øre.
#[derive(Debug, Clone)]
pub struct Common {
    pub debt: Option<i64>,
    pub cost: Option<i64>,
    pub comment: Option<Cow<'static, str>>,
}

/// Resale information, in øre.
#[derive(Debug, Clone)]
pub struct Resale {
    pub original_sale_price: Option<i64>,
    pub entry_into_contract: Option<i64>,
    pub customer_changes: Option<i64>,
    pub sum_original_buyer_costs: Option<i64>,
    pub other_buyer_costs: Option<i64>,
    pub contract_date: Option<Ticks>,
    pub developer: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct Role {
    pub id: i64,
    pub kind: &'static str,
    pub contact: i64,
    pub deceased: Option<bool>,
}

#[derive(Debug, Clone)]
pub struct Activity {
    pub id: i64,
    pub kind: &'static str,
    pub subject: Cow<'static, str>,
    pub description: Option<Cow<'static, str>>,
    pub created: Ticks,
    pub modified: Option<Ticks>,
    /// `None` is written as `0001-01-01T00:00:00+00:00`.
    pub at: Option<Ticks>,
    pub minutes: i64,
    pub completed: bool,
    pub private: bool,
    pub organizer: i64,
    /// Who has registered for it through the API.
    pub registered: i64,
}

impl Activity {
    /// By which the public knows a showing.
    pub fn guid(&self) -> u128 {
        Trivia::new(0x5110, self.id).guid(0)
    }

    /// How many come to a showing.
    pub fn participants(&self) -> i64 {
        Trivia::new(0x5111, self.id).between(0, 0, 30) + self.registered
    }
}

#[derive(Debug, Clone)]
pub struct Cost {
    pub id: i64,
    pub amount: i64,
    pub comment: Option<Cow<'static, str>>,
    pub definition: Option<i64>,
    pub draft: Option<i64>,
    pub deleted: bool,
    pub selected: bool,
    pub optional: Option<bool>,
    pub hidden: Option<bool>,
    pub editable: bool,
    pub standard: bool,
    pub vat: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub id: i64,
    pub number: i64,
    pub definition: i64,
    pub amount: i64,
    pub date: Option<Ticks>,
    pub registered: Ticks,
    pub description: Option<Cow<'static, str>>,
    pub created_by: Option<i64>,
    pub source: &'static str,
}

#[derive(Debug, Clone)]
pub struct Draft {
    pub id: i64,
    pub definition: i64,
    pub amount: i64,
    pub registered: Ticks,
    pub description: Option<Cow<'static, str>>,
    pub created_by: Option<i64>,
    pub source: &'static str,
}

#[derive(Debug, Clone)]
pub struct Bid {
    pub contact: i64,
    pub amount: i64,
    pub at: Ticks,
    pub due: Ticks,
    pub accepted: Option<Ticks>,
}
