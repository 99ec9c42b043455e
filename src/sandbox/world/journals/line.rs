//! The lines of a journal, as the seed gives them.

use std::borrow::Cow;

use super::super::super::wire::{LocalMs, TICKS_PER_MS, TICKS_PER_SECOND, Ticks};
use super::super::dice::{Trivia, mix};
use super::super::generate::{case_id, odd_hour};
use super::super::names;
use super::super::people::Basis;
use super::month::midnight;
use super::{Journal, Journals, Month, Place};

/// One line. What does not stand here follows from its number.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// What puts the line into its month, and into its place there.
    pub(crate) at: Ticks,
    /// The same local time as somebody typed it, where a clock change skips or repeats it.
    pub(crate) typed: Option<LocalMs>,
    /// Lines that are equal in every field have the same number.
    pub(crate) number: i64,
    /// Several lines have the same referral key.
    pub(crate) key: i64,
    pub(crate) case_id: i64,
    /// `Payment`, `Amount` or `Cost`, in øre.
    pub(crate) amount: Option<i64>,
    /// `PurchasePrice`, in øre.
    pub(crate) price: i64,
    /// How often it was edited.
    pub(crate) edition: i64,
    pub(crate) annotations: Option<Vec<Annotation>>,
}

/// A correction to a line.
#[derive(Debug, Clone)]
pub(crate) struct Annotation {
    pub(crate) at: Ticks,
    pub(crate) text: Cow<'static, str>,
    /// `PaymentChange`, in øre.
    pub(crate) change: Option<i64>,
}

/// The lines of an office and month as the world began with them.
pub(crate) fn of_seed(basis: &Basis, lines: Option<usize>, place: Place) -> Vec<Line> {
    let (journal, office, month) = place;
    // Nothing of the history lies within the last minutes before the world's life begins.
    let history = basis.origin.plus_ms(-600_000);
    let (start, end) = (month.start(), Ticks(month.end().0.min(history.0)));
    let back = Month::of(basis.origin).since(month);
    // An office that came later has no history.
    let has_history = basis.offices.iter().any(|o| o.id == office);
    if month < Journals::first_month(basis) || end <= start || !has_history {
        return Vec::new();
    }
    let closed = end < history;
    let of_place = i64::from(month.since(Journals::first_month(basis)));
    let first_number = (office * 100 + of_place) * 100_000;
    let trivia = Trivia::new(basis.seed ^ 0x10C0 ^ journal as u64, first_number);
    let count = match lines {
        Some(lines) if journal == Journal::RevenueJournals => {
            i64::try_from(lines).unwrap_or(i64::MAX)
        }
        Some(lines) => i64::try_from(lines.div_ceil(10)).unwrap_or(i64::MAX),
        // The second office's journals have a month without lines; others have some too.
        None if trivia.chance(0, 6) || (back == 7 && office == basis.offices[1].id) => 0,
        None => {
            let offices = i64::try_from(basis.offices.len()).unwrap_or(1);
            let usual = basis.cases / offices / 12 + 3;
            let passed = (end.0 - start.0) / ((month.end().0 - start.0) / 100);
            (usual + trivia.between(1, 0, usual)) * passed / 100
        }
    };
    let mut all: Vec<Line> = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for n in 0..count {
        let t = Trivia(mix(trivia.0, 1_000 + n.unsigned_abs()));
        let last = n == count - 1;
        if let Some(before) = all.last()
            && !last
            && (n == 2 || t.chance(1, 4))
        {
            // Equal in every field, and still another line.
            all.push(before.clone());
            continue;
        }
        let slot = (end.0 - start.0) / count;
        let at = match n {
            0 => start,
            _ if last && closed => Ticks(end.0 - finest(journal)),
            _ => {
                let at = start.0 + slot * n + t.between(2, 0, slot - 1);
                let step = if t.chance(3, 60) { TICKS_PER_SECOND } else { finest(journal) };
                // Many dates are days without a time.
                if t.chance(4, 25) { midnight(Ticks(at)) } else { Ticks(at - at.rem_euclid(step)) }
            }
        };
        all.push(of_number(basis, place, first_number + n, n / 2 + 1, at, t));
    }
    if journal == Journal::CaseJournals && closed && all.len() > 4 {
        let odd = match month.number() {
            3 => Some(odd_hour(month.year(), false)),
            10 => Some(odd_hour(month.year(), true)),
            _ => None,
        };
        if let Some(odd) = odd {
            (all[3].at, all[3].typed) = (odd.instant(), Some(odd));
        }
    }
    all.sort_by_key(|line| line.at);
    all
}

/// The finest step of a journal's dates: case journals have no offset and milliseconds.
pub(crate) fn finest(journal: Journal) -> i64 {
    if journal == Journal::CaseJournals { TICKS_PER_MS } else { 1 }
}

/// A line with a number.
pub(crate) fn of_number(
    basis: &Basis,
    (journal, office, _): Place,
    number: i64,
    key: i64,
    at: Ticks,
    t: Trivia,
) -> Line {
    let of_key = Trivia::new(basis.seed ^ 0x10CF, office * 1_000_000 + key);
    // Prices with øre are few, as are payments that go back.
    let price = of_key.between(1, 900, 15_000) * 100_000
        + if of_key.chance(2, 20) { of_key.between(3, 1, 99) } else { 0 };
    let usual = price / 1000 * t.between(5, 1, 25) + t.between(6, 0, 99);
    let amount = match (journal, t.between(7, 0, 99)) {
        (Journal::SettlementJournals, _) => Some(t.between(8, 0, 1_500_000)),
        (_, 0..5) => None,
        (_, 5..13) => Some(-usual),
        _ => Some(usual),
    };
    Line {
        at,
        typed: None,
        number,
        key,
        case_id: case_id(basis.seed, of_key.between(4, 0, (basis.cases - 1).max(0))),
        amount,
        price: if t.chance(9, 6) { 0 } else { price },
        edition: 0,
        annotations: match (journal.annotations(), t.between(10, 0, 99)) {
            (None, _) | (_, 0..40) => None,
            (_, 40..80) => Some(Vec::new()),
            _ => Some((0..t.between(11, 1, 3)).map(|n| annotation(at, t, n)).collect()),
        },
    }
}

fn annotation(line: Ticks, t: Trivia, n: i64) -> Annotation {
    let of = |what: u64| 100 + n.unsigned_abs() * 10 + what;
    Annotation {
        at: line.plus_ms(t.between(of(0), 60_000, 40 * 86_400_000)),
        text: Cow::Borrowed(t.pick(of(1), names::TEXTS)),
        change: t.chance(of(2), 75).then(|| t.between(of(3), -2_500_000, 2_500_000)),
    }
}
