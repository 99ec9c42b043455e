//! Months of the source's calendar.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::Window;

/// A month of the source's calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Month(Date);

impl Month {
    /// The month that a day lies in.
    pub(crate) fn of(day: Date) -> Month {
        Month(day.first_of_month())
    }

    /// The month that an instant lies in at the source.
    pub(crate) fn at(now: Timestamp, zone: &TimeZone) -> Month {
        Month::of(now.to_zoned(zone.clone()).date())
    }

    /// Its first day.
    pub(crate) fn first(self) -> Date {
        self.0
    }

    /// Its first and last day.
    pub(crate) fn window(self) -> Window {
        Window { from: self.0, to: self.0.last_of_month() }
    }

    /// The month so many months later, or earlier.
    #[must_use]
    pub(crate) fn plus(self, months: i32) -> Month {
        // Beyond the calendar there is nothing to mirror.
        Month(self.0.saturating_add(Span::new().months(months)).first_of_month())
    }

    /// When the next month begins at the source.
    pub(crate) fn ends_at(self, zone: &TimeZone) -> Timestamp {
        self.closes_at(1, zone)
    }

    /// From when on the month closes by itself: `close_day` of the next month at the source; of 0 never.
    pub(crate) fn closes_at(self, close_day: u32, zone: &TimeZone) -> Timestamp {
        if close_day == 0 {
            return Timestamp::MAX;
        }
        let day = Span::new().days(i64::from(close_day.saturating_sub(1)));
        let day = self.plus(1).0.saturating_add(day);
        day.to_zoned(zone.clone())
            .and_then(|z| z.start_of_day())
            .map_or(Timestamp::MAX, |z| z.timestamp())
    }
}

/// `2026-10`.
impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl FromStr for Month {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Month, jiff::Error> {
        format!("{text}-01").parse().map(Month)
    }
}

/// The first month that is ever synced where `journals.since` says nothing: January of the year
/// before.
pub(crate) fn first_month(now: Timestamp, zone: &TimeZone) -> Month {
    let year = now.to_zoned(zone.clone()).year();
    Month::of(Date::new(year.saturating_sub(1), 1, 1).unwrap_or(Date::constant(1970, 1, 1)))
}

/// The last `count` months up to and including `current`, newest first.
pub(crate) fn months_back(current: Month, count: u32) -> impl Iterator<Item = Month> {
    (0..i32::try_from(count).unwrap_or(i32::MAX)).map(move |back| current.plus(-back))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    fn oslo() -> TimeZone {
        TimeZone::get("Europe/Oslo").unwrap()
    }

    #[test]
    fn a_month_is_the_sources_own() {
        let now: Timestamp = "2026-10-31T23:30:00Z".parse().unwrap();
        assert_eq!(Month::at(now, &oslo()), month("2026-11"));
        assert_eq!(Month::at(now, &TimeZone::UTC), month("2026-10"));
        assert_eq!(first_month(now, &oslo()), month("2025-01"));
    }

    #[test]
    fn months_know_their_days_and_neighbours() {
        let window = month("2024-02").window();
        assert_eq!(window.to_string(), "2024-02-01 to 2024-02-29");
        assert_eq!(month("2026-01").plus(-1), month("2025-12"));
        assert_eq!(month("2026-12").plus(1).to_string(), "2027-01");
        let back: Vec<String> = months_back(month("2026-02"), 3).map(|m| m.to_string()).collect();
        assert_eq!(back, ["2026-02", "2026-01", "2025-12"]);
    }

    #[test]
    fn a_month_closes_on_a_day_of_the_next_one_at_the_source() {
        let closes = month("2026-09").closes_at(10, &oslo());
        assert_eq!(closes.to_string(), "2026-10-09T22:00:00Z");
        assert_eq!(month("2026-12").closes_at(1, &oslo()).to_string(), "2026-12-31T23:00:00Z");
        assert_eq!(month("2026-12").closes_at(0, &oslo()), Timestamp::MAX, "only by hand");
    }
}
