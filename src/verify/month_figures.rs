//! A month of the revenue journal in the mirror, held against the platform's sum of it.

use super::revenue::{name, subject};
use super::{Comparison, Finding, amount, hundredths};
use crate::mirror::RevenueMonth;

/// Payment and purchase price in hundredths.
pub(super) type Sums = (i128, i128);

/// Which of the mirror's figures the platform's payments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Matches {
    /// No annotation changes a payment.
    Both,
    With,
    Without,
}

/// The mirror's figures of a month, in hundredths.
pub(super) struct Figures {
    pub(super) payment: i128,
    pub(super) change: i128,
    pub(super) price: i128,
    /// Annotations are mirrored: where they are not, what is left of them changes nothing.
    has_annotations: bool,
}

impl Figures {
    pub(super) fn of(month: &RevenueMonth) -> Option<Figures> {
        Some(Figures {
            payment: hundredths(&month.payment)?,
            change: hundredths(&month.payment_change)?,
            price: hundredths(&month.purchase_price)?,
            has_annotations: month.has_annotations,
        })
    }

    fn payments(&self, (payment, _): Sums) -> Option<Matches> {
        let with_changes = self.has_annotations && self.payment + self.change == payment;
        match (self.payment == payment, with_changes) {
            (true, true) => Some(Matches::Both),
            (false, true) => Some(Matches::With),
            (true, false) => Some(Matches::Without),
            (false, false) => None,
        }
    }

    pub(super) fn matches(&self, source: Sums) -> Option<Matches> {
        self.payments(source).filter(|_| self.price == source.1)
    }

    /// Whether changes of payments may be all that is missing.
    pub(super) fn needs_annotations(&self, source: Sums) -> bool {
        self.payments(source).is_none() && self.price == source.1
    }

    /// In payments, where these differ, else in purchase prices.
    pub(super) fn difference(&self, source: Sums) -> String {
        match self.payments(source) {
            None => amount(source.0 - self.payment - self.change),
            Some(_) => amount(source.1 - self.price),
        }
    }

    /// One row for the payments, and one for the purchase prices where they differ.
    pub(super) fn rows(
        &self,
        month: &RevenueMonth,
        source: Sums,
        matches: Option<Matches>,
        finding: &Finding,
    ) -> Vec<Comparison> {
        let what = name(month);
        let mirror = match self.payments(source) {
            Some(Matches::Without) => format!("{} without annotations", amount(self.payment)),
            Some(Matches::With) => {
                format!("{} with annotations", amount(self.payment + self.change))
            }
            Some(Matches::Both) => amount(self.payment),
            None if self.change == 0 => amount(self.payment),
            None => format!(
                "{} ({} with annotations)",
                amount(self.payment),
                amount(self.payment + self.change)
            ),
        };
        let off = self.payments(source).is_none();
        let mut rows = Vec::new();
        if off || matches.is_some() {
            rows.push(Comparison {
                what: format!("{what}: payments"),
                subject: subject(month),
                source: amount(source.0),
                mirror,
                finding: finding.clone(),
            });
        }
        if self.price != source.1 {
            let how = amount(source.1 - self.price);
            rows.push(Comparison {
                what: format!("{what}: purchase prices"),
                subject: subject(month),
                source: amount(source.1),
                mirror: amount(self.price),
                finding: match finding {
                    Finding::Unsettled(_) => Finding::Unsettled(how),
                    Finding::Different(_) | Finding::Same => Finding::Different(how),
                },
            });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_annotations_that_are_not_mirrored_changes_no_payment() {
        let own =
            |has_annotations| Figures { payment: 100, change: -10, price: 5, has_annotations };
        let says =
            |source| [true, false].map(|are_mirrored| own(are_mirrored).payments((source, 5)));
        assert_eq!(says(90), [Some(Matches::With), None]);
        assert_eq!(says(100), [Some(Matches::Without); 2]);
        assert_eq!([true, false].map(|are| own(are).needs_annotations((90, 5))), [false, true]);
    }
}
