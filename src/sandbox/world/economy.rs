//! The money side of a case beside its costs and bookings: estimates, how the commission is shared,
//! external entries and bank transfers.
//!
//! It is made from a stream of chance of its own when somebody asks, so that a search over many
//! cases does not pay for it, and kept once the case has changed.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::wire::Ticks;
use super::act::Facet;
use super::case::{Case, Moved, Status};
use super::definitions::DEFINITIONS;
use super::dice::{Dice, Trivia};
use super::generate::case_number;
use super::names;
use super::people::Basis;

/// What belongs to a case's economy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Economy {
    pub(crate) estimated: Option<Estimated>,
    pub(crate) sharing: Vec<Share>,
    pub(crate) external_entries: Vec<ExternalEntry>,
    pub(crate) bank_transfers: Vec<BankTransfer>,
    /// The number that the next thing of it gets, within the case's own range of ids.
    next: i64,
}

/// Estimated costs (reference 2.12), in øre.
#[derive(Debug, Clone)]
pub(crate) struct Estimated {
    pub(crate) commission: Option<i64>,
    pub(crate) recompense: Option<i64>,
    pub(crate) other_costs: Option<i64>,
    pub(crate) showings: Option<i64>,
    pub(crate) marketing_package: Option<i64>,
    pub(crate) marketing_chosen: bool,
}

/// An item of the commission sharing (reference 2.12).
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) id: i64,
    pub(crate) employee: i64,
    /// `Amount`, or else `Percent`.
    pub(crate) is_amount: bool,
    /// Millionths of a percent; of a few cases, of a fraction.
    pub(crate) percentage: Option<i64>,
    /// Øre.
    pub(crate) extra_payment: Option<i64>,
}

/// An external entry (reference 2.12).
#[derive(Debug, Clone)]
pub(crate) struct ExternalEntry {
    pub(crate) id: i64,
    pub(crate) number: i64,
    pub(crate) supplier: Option<Cow<'static, str>>,
    pub(crate) comment: Option<Cow<'static, str>>,
    pub(crate) posted: Option<Ticks>,
    pub(crate) date: Option<Ticks>,
    /// Øre.
    pub(crate) amount: i64,
    pub(crate) debit: Option<i64>,
    pub(crate) credit: Option<i64>,
    pub(crate) definition: Option<i64>,
    pub(crate) url: Option<String>,
    /// The entry and the draft that were made with it.
    pub(crate) entry: Option<i64>,
    pub(crate) draft: Option<i64>,
    pub(crate) created_by: Option<i64>,
}

/// A bank transfer (reference 2.13).
#[derive(Debug, Clone)]
pub(crate) struct BankTransfer {
    pub(crate) id: i64,
    pub(crate) kind: i64,
    /// Øre.
    pub(crate) amount: i64,
    pub(crate) payment: Option<Ticks>,
    pub(crate) comment: Option<Cow<'static, str>>,
    pub(crate) status: &'static str,
    pub(crate) account: Option<Cow<'static, str>>,
    pub(crate) kid: Option<Cow<'static, str>>,
    /// Made through the API, which can then change it until it is approved.
    pub(crate) from_api: bool,
}

/// The largest amount that a column of money holds, in øre: that of `DECIMAL(18,2)`.
const LARGEST: i64 = 999_999_999_999_999_999;

/// Status of a bank transfer (field notes, `BankTransferStatusType`), and one that nobody listed.
const STATUSES: &[&str] =
    &["Hold", "Ready", "Paid", "PendingApproval", "Rejected", "VerifiedByBank", "FrystAvBanken"];

/// How commission is usually shared, in hundredths of a percent.
const SHARES: &[&[i64]] =
    &[&[10_000], &[6_000, 4_000], &[5_000, 3_000, 2_000], &[3_333, 3_333, 3_334], &[7_000, 3_000]];

impl Economy {
    fn of_seed(basis: &Basis, case: &Case) -> Economy {
        let mut dice = Dice::new(basis.seed ^ 0xEC0, case.id().unsigned_abs());
        let mut economy = Economy::default();
        if dice.chance(88) {
            economy.estimated = Some(Estimated::new(case, &mut dice));
        }
        let people = [Some(case.broker), case.assistant, case.settler];
        let people: Vec<i64> = people.into_iter().flatten().collect();
        if dice.chance(80) {
            // Some customers type fractions where percent are meant.
            let is_fraction = dice.chance(12);
            let shares = dice.pick(SHARES);
            for (n, share) in shares.iter().enumerate() {
                let percentage = share * if is_fraction { 100 } else { 10_000 };
                let extra = dice.chance(12).then(|| dice.between(10, 900_000));
                economy.share(case.id(), people[n % people.len()], Some(percentage), extra);
            }
        }
        for _ in 0..dice.below(3) {
            if dice.chance(50) {
                let extra = dice.between(-150_000, 2_500_000);
                economy.share(case.id(), dice.pick(&people), None, Some(extra));
            }
        }
        let at = case.reached(Status::Active).unwrap_or(case.created);
        for _ in 0..dice.below(4) {
            economy.add_external_entry(case, at, &mut dice);
        }
        for _ in 0..dice.below(3) {
            economy.add_bank_transfer(case, at, &mut dice);
        }
        if case_number(case.id()) == 14 {
            for amount in [LARGEST, -LARGEST] {
                economy.add_external_entry(case, at, &mut dice);
                economy.add_bank_transfer(case, at, &mut dice);
                let entry = economy.external_entries.last_mut();
                entry.into_iter().for_each(|entry| entry.amount = amount);
                let transfer = economy.bank_transfers.last_mut();
                transfer.into_iter().for_each(|transfer| transfer.amount = amount);
            }
        }
        economy
    }

    /// Adds an item: a share of the whole, or else an extra payment; its id.
    fn share(
        &mut self,
        case_id: i64,
        employee: i64,
        percentage: Option<i64>,
        extra_payment: Option<i64>,
    ) -> i64 {
        let id = self.next_id(case_id);
        let is_amount = percentage.is_none();
        self.sharing.push(Share { id, employee, is_amount, percentage, extra_payment });
        id
    }

    /// Adds an external entry; its id.
    fn add_external_entry(&mut self, case: &Case, at: Ticks, dice: &mut Dice) -> i64 {
        let id = self.next_id(case.id());
        let text = |dice: &mut Dice, percent| {
            dice.chance(percent).then(|| Cow::Borrowed(dice.pick(names::TEXTS)))
        };
        self.external_entries.push(ExternalEntry {
            id,
            number: id % 100_000,
            supplier: text(dice, 80),
            comment: text(dice, 60),
            posted: dice.chance(85).then_some(at),
            date: dice.chance(80).then(|| at.plus_days(dice.between(-3, 3))),
            amount: dice.between(-400_000, 4_000_000),
            debit: dice.chance(90).then(|| dice.between(1_500, 1_599)),
            credit: dice.chance(90).then(|| dice.between(2_400, 2_499)),
            definition: dice.chance(60).then(|| dice.pick_ref(DEFINITIONS).id),
            url: dice.chance(30).then(|| format!("https://bilag.example.no/{id}?side=1&a=%20")),
            entry: None,
            draft: None,
            created_by: dice.chance(70).then_some(case.broker),
        });
        id
    }

    /// Adds a bank transfer; its id.
    fn add_bank_transfer(&mut self, case: &Case, at: Ticks, dice: &mut Dice) -> i64 {
        let id = self.next_id(case.id());
        self.bank_transfers.push(BankTransfer {
            id,
            kind: dice.between(1, 9),
            amount: dice.between(100, 90_000_000),
            payment: dice.chance(80).then(|| at.plus_days(dice.between(1, 20))),
            comment: dice.chance(60).then(|| Cow::Borrowed(dice.pick(names::TEXTS))),
            status: dice.pick(STATUSES),
            account: dice.chance(90).then(|| format!("8601{:07}", dice.below(10_000_000)).into()),
            kid: dice.chance(40).then(|| format!("{:010}", dice.below(9_999_999)).into()),
            from_api: false,
        });
        id
    }

    /// A fresh id, apart from those of the other things on the case.
    pub(crate) fn next_id(&mut self, case_id: i64) -> i64 {
        self.next += 1;
        case_id * 10_000 + 5_000 + self.next
    }
}

impl Estimated {
    /// An estimate from the price as it is now.
    pub(crate) fn new(case: &Case, dice: &mut Dice) -> Estimated {
        let price = case.sale_price.or(case.asking_price).unwrap_or(300_000_000);
        let t = Trivia::new(0xE57, case.id());
        let maybe =
            |n: u64, low: i64, high: i64| t.chance(n, 75).then(|| t.between(n + 1, low, high));
        Estimated {
            commission: (!dice.chance(10)).then(|| price / 10_000 * dice.between(90, 300)),
            recompense: maybe(1, 500_000, 3_000_000),
            other_costs: maybe(3, 100, 2_000_000),
            showings: maybe(5, 0, 900_000),
            marketing_package: maybe(7, 990_000, 4_990_000),
            marketing_chosen: t.chance(9, 60),
        }
    }
}

impl Case {
    /// The case's economy: what was kept, or what the seed gives.
    pub(crate) fn economy(&self, basis: &Basis) -> Arc<Economy> {
        self.economy.clone().unwrap_or_else(|| Arc::new(Economy::of_seed(basis, self)))
    }

    /// The economy, to be changed.
    pub(crate) fn economy_mut(&mut self, basis: &Basis) -> &mut Economy {
        let economy = self.economy(basis);
        Arc::make_mut(self.economy.insert(economy))
    }
}

/// The date that moves with a facet of the economy, beside `ModifiedDate`.
pub(crate) fn date(facet: Facet) -> Option<Moved> {
    match facet {
        Facet::ExternalEntry
        | Facet::ExternalEntryRemoved
        | Facet::BankTransfer
        | Facet::BankTransferEdited
        | Facet::BankTransferRemoved => Some(Moved::Transaction),
        _ => None,
    }
}

/// Changes a facet of the economy; the ids of what was concerned. Where there is nothing to change
/// or remove, something is added instead.
pub(crate) fn change(
    basis: &Basis,
    case: &mut Case,
    facet: Facet,
    at: Ticks,
    dice: &mut Dice,
) -> Vec<i64> {
    let mut economy = Economy::clone(&case.economy(basis));
    let extra_payment = |economy: &mut Economy, dice: &mut Dice| {
        economy.share(case.id(), case.broker, None, Some(dice.between(100, 5_000_000)))
    };
    let concerned = match facet {
        Facet::EstimatedCosts => {
            let estimate = Estimated::new(case, dice);
            let known = economy.estimated.get_or_insert(estimate);
            known.commission = Some(known.commission.unwrap_or(0) + 150_050);
            known.marketing_chosen = !known.marketing_chosen;
            None
        }
        Facet::Commission => match economy.sharing.first_mut() {
            Some(Share { id, percentage: Some(percentage), .. }) => {
                *percentage = *percentage * 9 / 10;
                Some(*id)
            }
            Some(share) => {
                share.extra_payment = Some(share.extra_payment.unwrap_or(0) + 25_025);
                Some(share.id)
            }
            None => Some(extra_payment(&mut economy, dice)),
        },
        Facet::CommissionAdded => Some(extra_payment(&mut economy, dice)),
        Facet::CommissionRemoved => economy.sharing.pop().map(|share| share.id),
        Facet::ExternalEntry => Some(economy.add_external_entry(case, at, dice)),
        Facet::ExternalEntryRemoved => match economy.external_entries.pop() {
            Some(entry) => Some(entry.id),
            None => Some(economy.add_external_entry(case, at, dice)),
        },
        Facet::BankTransfer => Some(economy.add_bank_transfer(case, at, dice)),
        Facet::BankTransferEdited => match economy.bank_transfers.first_mut() {
            Some(transfer) => {
                transfer.amount = transfer.amount / 2 + 1;
                transfer.status = if transfer.status == "Ready" { "Exporting" } else { "Ready" };
                Some(transfer.id)
            }
            None => Some(economy.add_bank_transfer(case, at, dice)),
        },
        Facet::BankTransferRemoved => match economy.bank_transfers.pop() {
            Some(transfer) => Some(transfer.id),
            None => Some(economy.add_bank_transfer(case, at, dice)),
        },
        _ => None,
    };
    case.economy = Some(Arc::new(economy));
    concerned.into_iter().collect()
}
