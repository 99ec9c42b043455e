//! How one facet of a case changes, and which one would come next in its life.

use std::borrow::Cow;

use super::super::wire::Ticks;
use super::act::Facet;
use super::belongings;
use super::case::{Bid, Case, Moved, Role, Settlement, Status};
use super::dice::Dice;
use super::dossier;
use super::economy;
use super::generate;
use super::names;
use super::people::Basis;

/// What would come next in the life of this case.
pub(crate) fn next_facet(case: &Case, dice: &mut Dice) -> Facet {
    let everyday = [
        Facet::Activity,
        Facet::ActivityEdited,
        Facet::Description,
        Facet::RoleAdded,
        Facet::ContactAdded,
        Facet::RoleRemoved,
        Facet::Transaction,
        Facet::Draft,
        Facet::Cost,
        Facet::CostAdded,
        Facet::EstimatedCosts,
        Facet::Commission,
        Facet::Image,
        Facet::Attachment,
        Facet::Nothing,
        Facet::ActivityRemoved,
        Facet::Note,
        Facet::NoteEdited,
        Facet::FileElsewhere,
        Facet::BankTransfer,
        Facet::ExternalEntry,
        Facet::SaleText,
        Facet::Showing,
    ];
    if dice.chance(60) {
        return dice.pick(&everyday);
    }
    match case.status {
        Status::Initial | Status::Draft | Status::General => Facet::Activated,
        Status::Active => Facet::Publication,
        Status::Ready => Facet::Bid,
        Status::BiddingStarted | Status::Reserved if dice.chance(50) => Facet::Bid,
        Status::BiddingStarted | Status::Reserved => Facet::Sold,
        Status::SoldWithConditions | Status::Sold | Status::DocumentDelivery => Facet::Settled,
        Status::Followup | Status::Archived | Status::Canceled | Status::Lost => Facet::Nothing,
    }
}

/// Changes one facet of a case; the ids of what was concerned. Where there is nothing to change or
/// remove, something is added instead, so that every order has an effect.
pub(crate) fn change(
    basis: &Basis,
    case: &mut Case,
    facet: Facet,
    at: Ticks,
    newcomer: Option<i64>,
    dice: &mut Dice,
) -> Vec<i64> {
    let move_date = |case: &mut Case, which: Moved| case.facts.dates.set(which, Some(at));
    match facet {
        Facet::Activity => {
            move_date(case, Moved::Activity);
            vec![belongings::add_activity(case, at, dice)]
        }
        Facet::ActivityEdited => {
            move_date(case, Moved::Activity);
            let Some(activity) = case.activities.last_mut() else {
                return vec![belongings::add_activity(case, at, dice)];
            };
            activity.at = Some(at.plus_days(3));
            activity.completed = !activity.completed;
            activity.modified = Some(at);
            vec![activity.id]
        }
        Facet::ActivityRemoved => {
            move_date(case, Moved::Activity);
            match case.activities.pop() {
                Some(activity) => vec![activity.id],
                None => vec![belongings::add_activity(case, at, dice)],
            }
        }
        Facet::Description => {
            move_date(case, Moved::Description);
            describe(case, dice);
            Vec::new()
        }
        Facet::RoleAdded => {
            move_date(case, Moved::CaseEntity);
            vec![belongings::add_role(basis, case, "Stakeholder", dice)]
        }
        Facet::ContactAdded => {
            move_date(case, Moved::CaseEntity);
            let contact = newcomer.unwrap_or(belongings::DANGLING_CONTACT);
            let id = case.next_id();
            case.roles.push(Role { id, kind: "Stakeholder", contact, deceased: None });
            vec![id]
        }
        // The date of the roles does not move: it is that of a new contact only.
        Facet::RoleRemoved => case.roles.pop().map(|role| role.id).into_iter().collect(),
        Facet::Transaction => {
            move_date(case, Moved::Transaction);
            vec![belongings::add_entry(case, at, dice)]
        }
        Facet::Draft => {
            move_date(case, Moved::Transaction);
            vec![belongings::add_draft(case, at, dice)]
        }
        Facet::DraftRemoved => {
            move_date(case, Moved::Transaction);
            if case.drafts.is_empty() {
                return vec![belongings::add_draft(case, at, dice)];
            }
            vec![case.drafts.remove(0).id]
        }
        Facet::Cost => {
            let Some(cost) = case.buyer_costs.first_mut() else {
                return vec![belongings::add_cost(case, false, dice)];
            };
            cost.amount += 12_345;
            cost.selected = !cost.deleted;
            vec![cost.id]
        }
        Facet::CostAdded => {
            let seller = dice.chance(50);
            vec![belongings::add_cost(case, seller, dice)]
        }
        Facet::CostRemoved => {
            let seller = case.buyer_costs.is_empty();
            case.costs_mut(seller).pop().map(|cost| cost.id).into_iter().collect()
        }
        Facet::Bid => {
            move_date(case, Moved::Bid);
            if case.status != Status::Sold {
                case.reach(Status::BiddingStarted, at);
            }
            let last = case.bids.last().map(|bid| bid.amount).or(case.asking_price);
            let contact = case.roles.first().map_or(case.broker, |role| role.contact);
            case.bids.push(Bid {
                contact,
                amount: last.unwrap_or(250_000_000) + 2_500_000,
                at,
                due: at.plus_ms(1_800_000),
                accepted: None,
            });
            Vec::new()
        }
        Facet::Publication => {
            move_date(case, Moved::Publication);
            case.published = Some(at);
            if case.status == Status::Active {
                case.reach(Status::Ready, at);
            }
            dossier::change(basis, case, facet, at, dice)
        }
        Facet::Activated => {
            move_date(case, Moved::CaseActivated);
            case.reach(Status::Active, at);
            Vec::new()
        }
        Facet::Sold => {
            generate::sell(basis, case, at, dice);
            Vec::new()
        }
        Facet::Settled => {
            let next = Settlement::ALL.into_iter().find(|s| case.settled[*s as usize].is_none());
            match next {
                Some(state) => {
                    case.settle(state, at);
                    case.reach(Status::DocumentDelivery, at);
                }
                None => case.reach(Status::Archived, at),
            }
            Vec::new()
        }
        Facet::Showing => {
            move_date(case, Moved::Activity);
            let id = belongings::add_activity(case, at, dice);
            if let Some(activity) = case.activities.last_mut() {
                activity.kind = "ShowingActivity";
                activity.private = false;
                activity.at = Some(at.plus_days(2));
            }
            vec![id]
        }
        Facet::EstimatedCosts
        | Facet::Commission
        | Facet::CommissionAdded
        | Facet::CommissionRemoved
        | Facet::ExternalEntry
        | Facet::ExternalEntryRemoved
        | Facet::BankTransfer
        | Facet::BankTransferEdited
        | Facet::BankTransferRemoved => {
            if let Some(which) = economy::date(facet) {
                move_date(case, which);
            }
            economy::change(basis, case, facet, at, dice)
        }
        Facet::Image
        | Facet::ImageRemoved
        | Facet::ImageReordered
        | Facet::Attachment
        | Facet::AttachmentRemoved
        | Facet::FileElsewhere
        | Facet::FileShared
        | Facet::PublicationRemoved
        | Facet::Note
        | Facet::NoteEdited
        | Facet::NoteRemoved
        | Facet::Information
        | Facet::Association
        | Facet::AssociationRemoved
        | Facet::SaleText
        | Facet::SaleTextAdded
        | Facet::SaleTextRemoved
        | Facet::SaleTextSwitched => {
            if let Some(which) = dossier::date(facet) {
                move_date(case, which);
            }
            dossier::change(basis, case, facet, at, dice)
        }
        Facet::Nothing => Vec::new(),
    }
}

fn describe(case: &mut Case, dice: &mut Dice) {
    case.edition += 1;
    if let Some(common) = &mut case.common {
        common.debt = Some(common.debt.unwrap_or(0) + 10_050);
        common.comment = Some(Cow::Borrowed(dice.pick(names::TEXTS)));
    }
    if let Some(price) = &mut case.asking_price {
        *price += 1_000_000;
    }
    let conditions = &mut case.conditions;
    for price in [&mut conditions.case_asking_price, &mut conditions.property_asking_price] {
        *price = price.map(|ore| ore + 1_000_000);
    }
}
