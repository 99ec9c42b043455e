//! The texts about a property, and its housing association.

use std::borrow::Cow;

use chrono::NaiveTime;

use super::super::super::wire::LocalMs;
use super::super::case::Case;
use super::super::dice::Dice;
use super::super::generate::{case_number, odd_hour, year_of};
use super::super::names;
use super::{Association, Information};

/// Reference 2.19, and one that nobody listed.
const INSURANCES: &[&str] = &["Unknown", "Yes", "SellerNo", "TermsNo", "UnderVurdering"];

/// The texts; a few cases have none, and one has a very long one.
pub(crate) fn information(case: &Case, dice: &mut Dice) -> Option<Information> {
    let is_there = case_number(case.id()) == 12 || !dice.chance(6);
    is_there.then(|| some_information(case, dice))
}

/// The texts of a case that has some.
pub(crate) fn some_information(case: &Case, dice: &mut Dice) -> Information {
    let is_long = case_number(case.id()) == 12;
    let year = year_of(case.created);
    Information {
        edition: 0,
        insurance: dice.pick(INSURANCES),
        details: if is_long {
            Some(Cow::Owned(very_long_text()))
        } else {
            dice.chance(80).then(|| Cow::Borrowed(dice.pick(names::TEXTS)))
        },
        // Typed by people who do not think of clock changes.
        completion: match dice.below(4) {
            0 => None,
            1 => Some(odd_hour(year, true)),
            2 => Some(odd_hour(year, false)),
            _ => Some(case.created.plus_days(300).local()),
        },
        permit_registered: dice.chance(40).then(|| case.created.local()),
        permit_expires: dice.chance(40).then(|| midnight(case.created.plus_days(700).local())),
    }
}

fn midnight(at: LocalMs) -> LocalMs {
    let day = chrono::DateTime::from_timestamp_millis(at.0).unwrap_or_default().date_naive();
    LocalMs::new(day, NaiveTime::MIN)
}

/// Some 200 kilobytes of text, of the kind that is unpleasant.
fn very_long_text() -> String {
    let part = names::TEXTS.join(" | ");
    part.repeat(200_000 / part.len() + 1)
}

/// The association of a unit that has one.
pub(crate) fn association(case: &Case, dice: &mut Dice) -> Option<Association> {
    let has_one = matches!(case.ownership, "Share" | "Stock" | "Bond") || dice.chance(10);
    has_one.then(|| Association {
        id: 60_000 + dice.below(90),
        name: Cow::Borrowed(dice.pick(&[
            "Borettslaget \"Tunet\"",
            "Åsen borettslag",
            "Sameiet Ø&Å",
        ])),
        active: !dice.chance(10),
    })
}
