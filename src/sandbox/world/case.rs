//! A case and everything that hangs on it.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::wire::Ticks;
use super::dice::Trivia;
use super::dossier::Dossier;
use super::economy::Economy;
pub(crate) use super::status::{Settlement, Status};

/// The ten dates that say what changed on a case, beside `ModifiedDate` (reference 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Moved {
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
    pub(crate) const ALL: [Moved; 10] = [
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
    pub(crate) fn field(self) -> &'static str {
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
pub(crate) struct ChangeDates {
    pub(crate) modified: Ticks,
    moved: [Option<Ticks>; 10],
}

impl ChangeDates {
    pub(crate) fn new(modified: Ticks) -> ChangeDates {
        ChangeDates { modified, moved: [None; 10] }
    }

    pub(crate) fn get(&self, which: Moved) -> Option<Ticks> {
        self.moved[which as usize]
    }

    pub(crate) fn set(&mut self, which: Moved, at: Option<Ticks>) {
        self.moved[which as usize] = at;
    }

    /// The latest of the ten.
    pub(crate) fn latest(&self) -> Option<Ticks> {
        self.moved.iter().flatten().copied().max()
    }
}

/// What lists and filters need of a case without building it: kept for every case, also for those
/// whose contents have never been asked for.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) id: i64,
    pub(crate) project: bool,
    pub(crate) office: i64,
    pub(crate) assignment: &'static str,
    pub(crate) dates: ChangeDates,
}

/// A case (a sale or a project).
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) facts: Facts,
    pub(crate) trivia: Trivia,
    pub(crate) guid: u128,
    pub(crate) category: &'static str,
    pub(crate) ownership: &'static str,
    pub(crate) broker: i64,
    pub(crate) assistant: Option<i64>,
    pub(crate) settler: Option<i64>,
    pub(crate) created: Ticks,
    pub(crate) status: Status,
    /// When the case first came into a status, in the order of [`Status::ALL`].
    pub(crate) reached: [Option<Ticks>; Status::ALL.len()],
    /// When the settlement first came into a state, in the order of [`Settlement::ALL`].
    pub(crate) settled: [Option<Ticks>; Settlement::ALL.len()],
    pub(crate) published: Option<Ticks>,
    /// The asking price as the search knows it, in øre.
    pub(crate) asking_price: Option<i64>,
    pub(crate) sale_price: Option<i64>,
    pub(crate) conditions: Conditions,
    pub(crate) common: Option<Common>,
    pub(crate) document_cost: Option<i64>,
    pub(crate) resale: Option<Resale>,
    pub(crate) roles: Vec<Role>,
    pub(crate) activities: Vec<Activity>,
    pub(crate) buyer_costs: Vec<Cost>,
    pub(crate) seller_costs: Vec<Cost>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) drafts: Vec<Draft>,
    pub(crate) bids: Vec<Bid>,
    /// Set once the case has changed; until then it follows from the seed.
    pub(crate) economy: Option<Arc<Economy>>,
    /// Likewise.
    pub(crate) dossier: Option<Arc<Dossier>>,
    /// The id that the next thing on this case gets, within the case's own range.
    pub(crate) next: i64,
    /// How often the description was changed.
    pub(crate) edition: i64,
    /// The master project, or the project whose unit this is.
    pub(crate) project_id: Option<i64>,
}

impl Case {
    pub(crate) fn id(&self) -> i64 {
        self.facts.id
    }

    /// A fresh id for something on this case. Ids are unique across cases too.
    pub(crate) fn next_id(&mut self) -> i64 {
        self.next += 1;
        self.facts.id * 10_000 + self.next
    }

    pub(crate) fn is_resale(&self) -> bool {
        self.facts.assignment.starts_with("ResaleOfContractPosition")
    }

    pub(crate) fn reach(&mut self, status: Status, at: Ticks) {
        self.status = status;
        self.reached[status as usize].get_or_insert(at);
    }

    pub(crate) fn reached(&self, status: Status) -> Option<Ticks> {
        self.reached[status as usize]
    }

    pub(crate) fn settle(&mut self, state: Settlement, at: Ticks) {
        self.settled[state as usize].get_or_insert(at);
    }

    /// The furthest state of the settlement.
    pub(crate) fn settlement(&self) -> Option<Settlement> {
        Settlement::ALL.into_iter().rev().find(|state| self.settled[*state as usize].is_some())
    }

    /// The latest transfer activity's date (reference 2.3, `TransferDate`).
    pub(crate) fn transfer_date(&self) -> Option<Ticks> {
        self.latest("TransferActivity")
    }

    /// The latest date of an activity of a type.
    pub(crate) fn latest(&self, kind: &str) -> Option<Ticks> {
        self.activities.iter().filter(|a| a.kind == kind).filter_map(|a| a.at).max()
    }

    pub(crate) fn costs(&self, seller: bool) -> &Vec<Cost> {
        if seller { &self.seller_costs } else { &self.buyer_costs }
    }

    pub(crate) fn costs_mut(&mut self, seller: bool) -> &mut Vec<Cost> {
        if seller { &mut self.seller_costs } else { &mut self.buyer_costs }
    }

    /// The showings that the public sees at a moment: at most six that have not begun (reference
    /// 4.5), the next one first.
    pub(crate) fn public_showings(&self, now: Ticks) -> Vec<&Activity> {
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
    pub(crate) fn contacts_as<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = i64> + 'a {
        self.roles.iter().filter(move |role| role.kind == kind).map(|role| role.contact)
    }
}

/// Prices of the two condition records, in øre.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    /// `GET Properties/{id}/Conditions`.
    pub(crate) case_asking_price: Option<i64>,
    /// `GET Conditions/Properties/{id}`.
    pub(crate) property_asking_price: Option<i64>,
    pub(crate) published_asking_price: Option<i64>,
    pub(crate) commission: Option<i64>,
}

/// Common conditions, in øre.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) debt: Option<i64>,
    pub(crate) cost: Option<i64>,
    pub(crate) comment: Option<Cow<'static, str>>,
}

/// Resale information, in øre.
#[derive(Debug, Clone)]
pub(crate) struct Resale {
    pub(crate) original_sale_price: Option<i64>,
    pub(crate) entry_into_contract: Option<i64>,
    pub(crate) customer_changes: Option<i64>,
    pub(crate) sum_original_buyer_costs: Option<i64>,
    pub(crate) other_buyer_costs: Option<i64>,
    pub(crate) contract_date: Option<Ticks>,
    pub(crate) developer: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) id: i64,
    pub(crate) kind: &'static str,
    pub(crate) contact: i64,
    pub(crate) deceased: Option<bool>,
}

#[derive(Debug, Clone)]
pub(crate) struct Activity {
    pub(crate) id: i64,
    pub(crate) kind: &'static str,
    pub(crate) subject: Cow<'static, str>,
    pub(crate) description: Option<Cow<'static, str>>,
    pub(crate) created: Ticks,
    pub(crate) modified: Option<Ticks>,
    /// `None` is written as `0001-01-01T00:00:00+00:00`.
    pub(crate) at: Option<Ticks>,
    pub(crate) minutes: i64,
    pub(crate) completed: bool,
    pub(crate) private: bool,
    pub(crate) organizer: i64,
    /// Who has registered for it through the API.
    pub(crate) registered: i64,
}

impl Activity {
    /// By which the public knows a showing.
    pub(crate) fn guid(&self) -> u128 {
        Trivia::new(0x5110, self.id).guid(0)
    }

    /// How many come to a showing.
    pub(crate) fn participants(&self) -> i64 {
        Trivia::new(0x5111, self.id).between(0, 0, 30) + self.registered
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Cost {
    pub(crate) id: i64,
    pub(crate) amount: i64,
    pub(crate) comment: Option<Cow<'static, str>>,
    pub(crate) definition: Option<i64>,
    pub(crate) draft: Option<i64>,
    pub(crate) deleted: bool,
    pub(crate) selected: bool,
    pub(crate) optional: Option<bool>,
    pub(crate) hidden: Option<bool>,
    pub(crate) editable: bool,
    pub(crate) standard: bool,
    /// In hundredths.
    pub(crate) vat: Option<i64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) number: i64,
    pub(crate) definition: i64,
    pub(crate) amount: i64,
    pub(crate) date: Option<Ticks>,
    pub(crate) registered: Ticks,
    pub(crate) description: Option<Cow<'static, str>>,
    pub(crate) created_by: Option<i64>,
    pub(crate) source: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) id: i64,
    pub(crate) definition: i64,
    pub(crate) amount: i64,
    pub(crate) registered: Ticks,
    pub(crate) description: Option<Cow<'static, str>>,
    pub(crate) created_by: Option<i64>,
    pub(crate) source: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Bid {
    pub(crate) contact: i64,
    pub(crate) amount: i64,
    pub(crate) at: Ticks,
    pub(crate) due: Ticks,
    pub(crate) accepted: Option<Ticks>,
}
