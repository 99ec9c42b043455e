//! Calendar months as Oslo's clocks have them.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime};

use super::super::super::wire::{LocalMs, Ticks};

/// A month: months since the year 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Month(i32);

impl Month {
    /// The month of an instant, in local time.
    pub(crate) fn of(at: Ticks) -> Month {
        let day = local_day(at);
        Month(day.year() * 12 + i32::try_from(day.month0()).unwrap_or(0))
    }

    /// Reads `2026-03`, or any day of it such as `2026-03-01`.
    pub(crate) fn parse(text: &str) -> Option<Month> {
        let day = match text.len() {
            7 => NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d"),
            _ => NaiveDate::parse_from_str(text, "%Y-%m-%d"),
        };
        Some(Month::of(day_start(day.ok()?)))
    }

    pub(crate) fn plus(self, months: i32) -> Month {
        Month(self.0 + months)
    }

    pub(crate) fn year(self) -> i32 {
        self.0.div_euclid(12)
    }

    /// From 1.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.0.rem_euclid(12)).unwrap_or(0) + 1
    }

    /// Months since another.
    pub(crate) fn since(self, other: Month) -> i32 {
        self.0 - other.0
    }

    pub(crate) fn first_day(self) -> NaiveDate {
        NaiveDate::from_ymd_opt(self.year(), self.number(), 1).unwrap_or_default()
    }

    /// Its first instant.
    pub(crate) fn start(self) -> Ticks {
        day_start(self.first_day())
    }

    /// The first instant of the next one.
    pub(crate) fn end(self) -> Ticks {
        self.plus(1).start()
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year(), self.number())
    }
}

/// The first instant of a day.
pub(crate) fn day_start(day: NaiveDate) -> Ticks {
    LocalMs::new(day, NaiveTime::MIN).instant()
}

/// The first instant of the day of an instant.
pub(crate) fn midnight(at: Ticks) -> Ticks {
    day_start(local_day(at))
}

/// The day of an instant.
fn local_day(at: Ticks) -> NaiveDate {
    // Cut, not rounded: the last instant of a day belongs to it.
    let whole = Ticks(at.0.div_euclid(10_000_000) * 10_000_000);
    DateTime::from_timestamp_millis(whole.local().0).unwrap_or_default().date_naive()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_has_its_first_and_last_instant() {
        let march = Month::parse("2026-03").unwrap();
        assert_eq!(march.start().exact(), "2026-02-28T23:00:00.0000000Z");
        assert_eq!(march.end().exact(), "2026-03-31T22:00:00.0000000Z");
        assert_eq!(Month::of(march.start()), march);
        assert_eq!(Month::of(Ticks(march.end().0 - 1)), march);
        assert_eq!(Month::of(march.end()).to_string(), "2026-04");
        assert_eq!(Month::parse("2026-13"), None);
    }
}
