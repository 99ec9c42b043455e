//! The money side of a case beside its costs and bookings: estimates, and how the commission is
//! shared.
//!
//! It is made from a stream of chance of its own when somebody asks, so that a search over many
//! cases does not pay for it, and kept once the case has changed.

use std::sync::Arc;

use super::case::Case;
use super::dice::{Dice, Trivia};
use super::people::Basis;

/// What belongs to a case's economy.
#[derive(Debug, Clone)]
pub struct Economy {
    pub estimated: Option<Estimated>,
    pub sharing: Vec<Share>,
    /// The number that the next thing of it gets, within the case's own range of ids.
    next: i64,
}

/// Estimated costs (reference 2.12), in øre.
#[derive(Debug, Clone)]
pub struct Estimated {
    pub commission: Option<i64>,
    pub recompense: Option<i64>,
    pub other_costs: Option<i64>,
    pub showings: Option<i64>,
    pub marketing_package: Option<i64>,
    pub marketing_chosen: bool,
}

/// An item of the commission sharing (reference 2.12).
#[derive(Debug, Clone)]
pub struct Share {
    pub id: i64,
    pub employee: i64,
    /// `Amount`, or else `Percent`.
    pub is_amount: bool,
    /// Millionths of a percent; of a few cases, of a fraction.
    pub percentage: Option<i64>,
    /// Øre.
    pub extra_payment: Option<i64>,
}

/// How commission is usually shared, in hundredths of a percent.
const SHARES: &[&[i64]] =
    &[&[10_000], &[6_000, 4_000], &[5_000, 3_000, 2_000], &[3_333, 3_333, 3_334], &[7_000, 3_000]];

impl Economy {
    fn of_seed(basis: &Basis, case: &Case) -> Economy {
        let mut dice = Dice::new(basis.seed ^ 0xEC0, case.id().unsigned_abs());
        let mut economy = Economy { estimated: None, sharing: Vec::new(), next: 0 };
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

    /// A fresh id, apart from those of the other things on the case.
    fn next_id(&mut self, case_id: i64) -> i64 {
        self.next += 1;
        case_id * 10_000 + 5_000 + self.next
    }

    /// Adds an extra payment; its id.
    pub fn add_extra_payment(&mut self, case_id: i64, employee: i64, dice: &mut Dice) -> i64 {
        let extra = Some(dice.between(100, 5_000_000));
        self.share(case_id, employee, None, extra)
    }
}

impl Estimated {
    /// An estimate from the price as it is now.
    pub fn new(case: &Case, dice: &mut Dice) -> Estimated {
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
    pub fn economy(&self, basis: &Basis) -> Arc<Economy> {
        self.economy.clone().unwrap_or_else(|| Arc::new(Economy::of_seed(basis, self)))
    }

    /// The economy, to be changed.
    pub fn economy_mut(&mut self, basis: &Basis) -> &mut Economy {
        let economy = self.economy(basis);
        Arc::make_mut(self.economy.insert(economy))
    }
}
