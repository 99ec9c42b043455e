//! Cron expressions: what may be written, and which local times it names.
//!
//! The crate `cron` makes a set of numbers of each field. Its own search for the next time is not
//! used: it runs a day only where day of the month *and* weekday match, and it knows other time zones
//! than the rest of the program. Nor is all of its notation: it numbers weekdays from 1, and it finds
//! the fields by what they hold, so that a slip in one is read as a part of the next.

use std::fmt;
use std::str::FromStr as _;

use ::cron::TimeUnitSpec as _;
use jiff::civil::{Date, DateTime, DateTimeRound, Time, date, time};
use jiff::{RoundMode, ToSpan as _, Unit};

/// 29 February comes again after eight years at most; no other day is rarer.
const MOST_DAYS_UNTIL_A_DAY: usize = 8 * 366;

/// One field of an expression, and what a message says that it may hold.
struct Field {
    name: &'static str,
    values: &'static str,
    range: &'static str,
}

const FIELDS: [Field; 6] = [
    Field { name: "second", values: "numbers from 0 to 59", range: "10-20" },
    Field { name: "minute", values: "numbers from 0 to 59", range: "10-20" },
    Field { name: "hour", values: "numbers from 0 to 23", range: "8-17" },
    Field { name: "day", values: "numbers from 1 to 31", range: "1-7" },
    Field { name: "month", values: "numbers from 1 to 12, names (Jan)", range: "Apr-Sep" },
    Field {
        name: "weekday",
        values: "names (Sun, Mon, Tue, Wed, Thu, Fri, Sat)",
        range: "Mon-Fri",
    },
];

/// The places of two fields in [`FIELDS`].
const DAY: usize = 3;
const WEEKDAY: usize = 5;

const WEEKDAYS_BY_NAME: &str = "weekdays are written by name (Sun, Mon, Tue, Wed, Thu, Fri, Sat), \
                                because not all programs number them alike";

/// A cron expression: five fields, or six with seconds. It is shown as it was written.
#[derive(Debug, Clone)]
pub(crate) struct Cron {
    expression: String,
    sets: ::cron::Schedule,
    /// The field is `*`, so that only the other one of the two says on which days it runs. Where
    /// both say it, a day of either runs, as in every cron.
    is_any_day: bool,
    is_any_weekday: bool,
}

impl Cron {
    /// # Errors
    ///
    /// What is wrong, in words that go on "key = value: ..."; `rule` where it does not have the
    /// fields of an expression.
    pub(crate) fn parse(expression: &str, rule: &str) -> Result<Cron, String> {
        let mut fields: Vec<&str> = expression.split_whitespace().collect();
        if fields.len() == FIELDS.len() - 1 {
            fields.insert(0, "0");
        }
        if fields.len() != FIELDS.len() {
            return Err(rule.to_owned());
        }
        if names_a_weekday_by_number(fields[WEEKDAY]) {
            return Err(WEEKDAYS_BY_NAME.to_owned());
        }
        for (place, field) in FIELDS.iter().enumerate() {
            let text = fields[place];
            // Weekdays are looked at once they stand in the order that the crate takes.
            let is_known = place == WEEKDAY || alone(place, text).is_some();
            if !is_well_formed(text) || !is_known {
                return Err(field.refuses(text));
            }
        }
        let weekdays = in_rising_order(fields[WEEKDAY]);
        let weekdays = weekdays.filter(|weekdays| alone(WEEKDAY, weekdays).is_some());
        let refused = || FIELDS[WEEKDAY].refuses(fields[WEEKDAY]);
        let weekdays = weekdays.ok_or_else(refused)?;
        let is_any = |field: &str| matches!(field, "*" | "?");
        let (is_any_day, is_any_weekday) = (is_any(fields[DAY]), is_any(fields[WEEKDAY]));
        fields[WEEKDAY] = &weekdays;
        let sets = ::cron::Schedule::from_str(&fields.join(" ")).map_err(|_| rule.to_owned())?;
        Ok(Cron { expression: expression.to_owned(), sets, is_any_day, is_any_weekday })
    }

    /// Whether there is such a day.
    pub(super) fn comes_true(&self) -> bool {
        // Any start would do: what has not come in eight years is missing from the calendar.
        self.next_after(date(2026, 1, 1).at(0, 0, 0, 0)).is_some()
    }

    /// The first local time after `wall` that the expression names; `None` where there is none.
    pub(crate) fn next_after(&self, wall: DateTime) -> Option<DateTime> {
        let whole = DateTimeRound::new().smallest(Unit::Second).mode(RoundMode::Trunc);
        let from = wall.round(whole).ok()?.checked_add(1.second()).ok()?;
        let today = from.date();
        if self.runs_on(today)
            && let Some(time) = self.first_from(from.time())
        {
            return Some(today.to_datetime(time));
        }
        let time = self.first_from(Time::midnight())?;
        let mut days = today.series(1.day()).skip(1).take(MOST_DAYS_UNTIL_A_DAY);
        days.find(|day| self.runs_on(*day)).map(|day| day.to_datetime(time))
    }

    fn runs_on(&self, day: Date) -> bool {
        let is_of_month = self.sets.days_of_month().includes(ordinal(day.day()));
        let weekday = day.weekday().to_sunday_one_offset();
        let is_of_week = self.sets.days_of_week().includes(ordinal(weekday));
        let is_named = match (self.is_any_day, self.is_any_weekday) {
            (false, false) => is_of_month || is_of_week,
            _ => is_of_month && is_of_week,
        };
        is_named && self.sets.months().includes(ordinal(day.month()))
    }

    /// The first time of the day, from `from` on.
    fn first_from(&self, from: Time) -> Option<Time> {
        // What comes in a later hour, or minute, may come at its start.
        let minutes = |hour| if hour == from.hour() { from.minute() } else { 0 };
        let seconds = |hour, minute| {
            if (hour, minute) == (from.hour(), from.minute()) { from.second() } else { 0 }
        };
        let hours = (from.hour()..24).filter(|hour| self.sets.hours().includes(ordinal(*hour)));
        hours
            .flat_map(|hour| (minutes(hour)..60).map(move |minute| (hour, minute)))
            .filter(|(_, minute)| self.sets.minutes().includes(ordinal(*minute)))
            .find_map(|(hour, minute)| {
                (seconds(hour, minute)..60)
                    .find(|second| self.sets.seconds().includes(ordinal(*second)))
                    .map(|second| time(hour, minute, second, 0))
            })
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}

impl Field {
    fn refuses(&self, text: &str) -> String {
        let Field { name, values, range } = self;
        format!(
            "the {name} {text:?} is not understood; allowed are *, {values}, ranges such as \
             {range}, steps such as */2 or {range}/2, and lists of these"
        )
    }
}

/// A part of a date or a time, as the crate numbers it.
fn ordinal(part: i8) -> u32 {
    part.unsigned_abs().into()
}

/// The sets of an expression that has only this field; `None` where it is wrong.
fn alone(place: usize, field: &str) -> Option<::cron::Schedule> {
    let mut fields = ["*"; FIELDS.len()];
    fields[place] = field;
    fields.join(" ").parse().ok()
}

/// Whether a field is a list of `*`, words and ranges of words, the first and the last with a step
/// or without. A word is a number or a name; which ones are right is not looked at.
fn is_well_formed(field: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic());
    let is_word = |text: &str| is_number(text) || is_name(text);
    field.split(',').all(|item| {
        let (range, step) = with_step(item);
        let may_have_a_step = match range.split_once('-') {
            Some((first, last)) => is_word(first) && is_word(last),
            None => matches!(range, "*" | "?"),
        };
        let has_step = step.is_some();
        (may_have_a_step || (is_word(range) && !has_step)) && step.is_none_or(is_number)
    })
}

/// An item of a field without its step, and the step.
fn with_step(item: &str) -> (&str, Option<&str>) {
    match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    }
}

/// Whether a weekday field holds a number that is no step.
fn names_a_weekday_by_number(field: &str) -> bool {
    field.split(',').any(|item| {
        let (range, _) = with_step(item);
        let mut words = range.split('-');
        words.any(|word| word.starts_with(|letter: char| letter.is_ascii_digit()))
    })
}

/// A weekday field in which no range ends before it begins: one that goes over the end of the week
/// (Sat-Sun) becomes a list of its days, in the crate's numbers. `None` where a name or a step is
/// wrong.
fn in_rising_order(field: &str) -> Option<String> {
    let items: Option<Vec<String>> = field.split(',').map(range_in_rising_order).collect();
    items.map(|items| items.join(","))
}

fn range_in_rising_order(item: &str) -> Option<String> {
    const DAYS_OF_A_WEEK: u32 = 7;
    let (range, step) = with_step(item);
    let Some((first, last)) = range.split_once('-') else { return Some(item.to_owned()) };
    let number = |name| alone(WEEKDAY, name)?.days_of_week().iter().next();
    let (first, last) = (number(first)?, number(last)?);
    if first <= last {
        return Some(item.to_owned());
    }
    let step = step.map_or(Some(1), |step| step.parse().ok().filter(|step| *step > 0))?;
    let days = (first..=last + DAYS_OF_A_WEEK).step_by(step);
    let days: Vec<String> = days.map(|day| ((day - 1) % DAYS_OF_A_WEEK + 1).to_string()).collect();
    Some(days.join(","))
}

#[cfg(test)]
mod tests;
