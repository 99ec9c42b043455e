//! Instants as the source counts them: in ticks of 100 nanoseconds.
//!
//! Change dates are compared as exact instants (docs/architecture.md, "Seen and fetched"), so they
//! are kept as a number of ticks and never as text, micro- or milliseconds. The forms on the wire
//! are those of the field notes: with an offset, without one (a local time of the source's zone),
//! and `0001-01-01T00:00:00` for "not set".

use std::fmt;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// 10,000,000 ticks of 100 ns are a second.
const PER_SECOND: i64 = 10_000_000;
const PER_DAY: i64 = 86_400 * PER_SECOND;

/// An instant in ticks of 100 ns since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticks(i64);

/// A text that is no date-time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a date-time: {what}")]
pub(crate) struct NotADateTime {
    what: &'static str,
}

impl Ticks {
    /// The instant that lies `ticks` of 100 ns after 1970-01-01T00:00:00Z.
    pub(crate) const fn new(ticks: i64) -> Self {
        Ticks(ticks)
    }

    /// Ticks of 100 ns since 1970-01-01T00:00:00Z.
    pub(crate) const fn get(self) -> i64 {
        self.0
    }

    /// Reads a date-time of the wire: `2022-04-28T11:26:41.5334824+02:00`, `...Z`, or without an
    /// offset, which is read in `zone`. `Ok(None)` is the service's way to say "not set"
    /// (`0001-01-01T00:00:00`, with or without an offset).
    ///
    /// A local time that a clock change skips moves forward by the length of the gap, one that it
    /// repeats is the first of the two (docs/architecture.md, "Values"). Digits beyond the seventh
    /// are cut. A bare date is its midnight.
    ///
    /// # Errors
    /// When the text is no date-time of these forms, or no date of the calendar.
    pub(crate) fn parse(text: &str, zone: &TimeZone) -> Result<Option<Ticks>, NotADateTime> {
        let wire = WireTime::read(text.trim().as_bytes())?;
        if wire.date == UNSET {
            return Ok(None);
        }
        let local = i64::from(days_since_epoch(wire.date)) * PER_DAY + wire.ticks_of_day;
        let offset_seconds = match wire.offset_seconds {
            Some(seconds) => seconds,
            None => local_offset_seconds(wire.date, wire.ticks_of_day, zone),
        };
        Ok(Some(Ticks(local - i64::from(offset_seconds) * PER_SECOND)))
    }

    /// The instant cut (towards the past) to whole ticks.
    pub(crate) fn from_timestamp(instant: Timestamp) -> Self {
        // Nanoseconds of the years -9999 to 9999 fit 128 bits, a hundredth of them 64.
        Ticks(instant.as_nanosecond().div_euclid(100) as i64)
    }

    /// The same instant, `None` beyond what [`Timestamp`] holds (9999-12-30T22:00:00Z and later).
    pub(crate) fn to_timestamp(self) -> Option<Timestamp> {
        Timestamp::from_nanosecond(i128::from(self.0) * 100).ok()
    }

    /// Microseconds since 1970-01-01T00:00:00Z, cut towards the past: what a TIMESTAMPTZ holds.
    pub(crate) const fn micros(self) -> i64 {
        self.0.div_euclid(10)
    }

    /// The next instant that differs: 100 ns later.
    pub(crate) const fn next(self) -> Self {
        Ticks(self.0.saturating_add(1))
    }

    /// The instant `duration` earlier; the duration is cut to whole ticks.
    pub(crate) fn earlier_by(self, duration: std::time::Duration) -> Self {
        Ticks(self.0.saturating_sub(ticks_of(duration)))
    }

    /// The instant `duration` later; the duration is cut to whole ticks.
    pub(crate) fn later_by(self, duration: std::time::Duration) -> Self {
        Ticks(self.0.saturating_add(ticks_of(duration)))
    }
}

fn ticks_of(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos() / 100).unwrap_or(i64::MAX)
}

/// In UTC with seven digits, as filters want it: `2022-04-28T09:26:41.5334824Z`.
impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_of_days(self.0.div_euclid(PER_DAY));
        let of_day = self.0.rem_euclid(PER_DAY);
        let (seconds, fraction) = (of_day / PER_SECOND, of_day % PER_SECOND);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
    }
}

impl From<Timestamp> for Ticks {
    fn from(instant: Timestamp) -> Self {
        Ticks::from_timestamp(instant)
    }
}

/// The date that the service sends where a date is not set.
const UNSET: civil::Date = civil::date(1, 1, 1);

/// A date-time as it is written, before any zone is applied.
struct WireTime {
    date: civil::Date,
    ticks_of_day: i64,
    offset_seconds: Option<i32>,
}

impl WireTime {
    fn read(text: &[u8]) -> Result<Self, NotADateTime> {
        let mut rest = text;
        let year = digits(&mut rest, 4, "no year of four digits")?;
        expect(&mut rest, b"-", "no month")?;
        let month = digits(&mut rest, 2, "no month")?;
        expect(&mut rest, b"-", "no day")?;
        let day = digits(&mut rest, 2, "no day")?;
        // The casts hold: four and two decimal digits.
        let date = civil::Date::new(year as i16, month as i8, day as i8)
            .map_err(|_| NotADateTime { what: "no such day in the calendar" })?;
        if rest.is_empty() {
            return Ok(WireTime { date, ticks_of_day: 0, offset_seconds: None });
        }
        expect(&mut rest, b"Tt ", "no T between date and time")?;
        let hour = digits(&mut rest, 2, "no hour")?;
        expect(&mut rest, b":", "no minute")?;
        let minute = digits(&mut rest, 2, "no minute")?;
        let mut second = 0;
        let mut fraction = 0;
        if rest.first() == Some(&b':') {
            rest = &rest[1..];
            second = digits(&mut rest, 2, "no second")?;
            if matches!(rest.first(), Some(b'.' | b',')) {
                rest = &rest[1..];
                fraction = read_fraction(&mut rest)?;
            }
        }
        if hour > 23 || minute > 59 || second > 60 {
            return Err(NotADateTime { what: "no such time of day" });
        }
        // A leap second counts as the second before it: no clock of ours knows it.
        let seconds = hour * 3600 + minute * 60 + second.min(59);
        let offset_seconds = read_offset(rest)?;
        let ticks_of_day = i64::from(seconds) * PER_SECOND + i64::from(fraction);
        Ok(WireTime { date, ticks_of_day, offset_seconds })
    }
}

fn expect(rest: &mut &[u8], any_of: &[u8], what: &'static str) -> Result<(), NotADateTime> {
    match rest.split_first() {
        Some((byte, tail)) if any_of.contains(byte) => {
            *rest = tail;
            Ok(())
        }
        _ => Err(NotADateTime { what }),
    }
}

/// Exactly `count` decimal digits.
fn digits(rest: &mut &[u8], count: usize, what: &'static str) -> Result<u32, NotADateTime> {
    let Some((head, tail)) = rest.split_at_checked(count) else {
        return Err(NotADateTime { what });
    };
    let mut number = 0;
    for byte in head {
        if !byte.is_ascii_digit() {
            return Err(NotADateTime { what });
        }
        number = number * 10 + u32::from(byte - b'0');
    }
    *rest = tail;
    Ok(number)
}

/// Any number of digits behind the point, as ticks: the first seven count.
fn read_fraction(rest: &mut &[u8]) -> Result<u32, NotADateTime> {
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return Err(NotADateTime { what: "no digit behind the point" });
    }
    let (written, tail) = rest.split_at(count);
    *rest = tail;
    Ok((0..7).fold(0, |ticks, place| {
        ticks * 10 + written.get(place).map_or(0, |digit| u32::from(digit - b'0'))
    }))
}

/// `Z`, `+02:00`, `+0200`, `+02` or nothing.
fn read_offset(text: &[u8]) -> Result<Option<i32>, NotADateTime> {
    const WHAT: &str = "no offset of the form +02:00";
    let (sign, mut rest) = match text {
        [] => return Ok(None),
        [b'Z' | b'z'] => return Ok(Some(0)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(NotADateTime { what: WHAT }),
    };
    let hours = digits(&mut rest, 2, WHAT)?;
    if rest.first() == Some(&b':') {
        rest = &rest[1..];
    }
    let minutes = if rest.is_empty() { 0 } else { digits(&mut rest, 2, WHAT)? };
    if !rest.is_empty() || hours > 23 || minutes > 59 {
        return Err(NotADateTime { what: WHAT });
    }
    // At most 23 * 3600 + 59 * 60: fits.
    Ok(Some(sign * (hours * 3600 + minutes * 60) as i32))
}

/// The offset that turns a local time of `zone` into an instant: for a time that is skipped the one
/// before the gap (which moves the time forward), for a repeated one that of its first occurrence.
fn local_offset_seconds(date: civil::Date, ticks_of_day: i64, zone: &TimeZone) -> i32 {
    let seconds = ticks_of_day / PER_SECOND;
    // The casts hold: hour, minute, second and nanosecond of a day.
    let time = civil::time(
        (seconds / 3600) as i8,
        (seconds / 60 % 60) as i8,
        (seconds % 60) as i8,
        (ticks_of_day % PER_SECOND * 100) as i32,
    );
    let offset = match zone.to_ambiguous_timestamp(date.to_datetime(time)).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
    };
    offset.seconds()
}

/// Days from 1970-01-01 to `date`, in the proleptic Gregorian calendar.
///
/// Own arithmetic, because [`Timestamp`] ends before 9999-12-31T23:59:59Z, which services send as
/// "never".
fn days_since_epoch(date: civil::Date) -> i32 {
    // Years that begin in March put the leap day at their end; an era is 400 of them, 146,097 days.
    let month = i32::from(date.month());
    let year = i32::from(date.year()) - i32::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i32::from(date.day()) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day that lie `days` after 1970-01-01: the inverse of [`days_since_epoch`], for
/// every number of ticks.
fn civil_of_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn oslo() -> TimeZone {
        TimeZone::get("Europe/Oslo").unwrap()
    }

    fn read(text: &str) -> Ticks {
        Ticks::parse(text, &oslo()).unwrap().unwrap()
    }

    #[test]
    fn seven_digits_and_an_offset_are_read_exactly() {
        let ticks = read("2022-04-28T11:26:41.5334824+02:00");
        assert_eq!(ticks.to_string(), "2022-04-28T09:26:41.5334824Z");
        let stamp: Timestamp = "2022-04-28T09:26:41.5334824Z".parse().unwrap();
        assert_eq!(ticks.to_timestamp(), Some(stamp));
        assert_eq!(Ticks::from(stamp), ticks);
    }

    #[test]
    fn two_instants_that_differ_in_the_seventh_digit_are_two() {
        let first = read("2022-04-28T11:26:41.5334824+02:00");
        let second = read("2022-04-28T09:26:41.5334825Z");
        assert!(first < second);
        assert_eq!(first.next(), second);
        assert_eq!(first.micros(), second.micros());
    }

    #[rstest]
    #[case::winter("2022-01-10T12:00:00", "2022-01-10T11:00:00.0000000Z")]
    #[case::summer("2022-07-10T12:00:00.5", "2022-07-10T10:00:00.5000000Z")]
    #[case::skipped_moves_forward("2022-03-27T02:30:00", "2022-03-27T01:30:00.0000000Z")]
    #[case::repeated_is_the_first("2022-10-30T02:30:00", "2022-10-30T00:30:00.0000000Z")]
    #[case::bare_date("2022-07-10", "2022-07-09T22:00:00.0000000Z")]
    #[case::no_seconds("2022-01-10T12:00", "2022-01-10T11:00:00.0000000Z")]
    fn a_time_without_offset_is_of_the_source_s_zone(#[case] wire: &str, #[case] utc: &str) {
        assert_eq!(read(wire).to_string(), utc);
    }

    #[rstest]
    #[case("2022-04-28T11:26:41.53348249999+02:00", "2022-04-28T09:26:41.5334824Z")]
    #[case("2022-04-28T11:26:41.123456789012Z", "2022-04-28T11:26:41.1234567Z")]
    #[case("2022-04-28T11:26:41.1-0530", "2022-04-28T16:56:41.1000000Z")]
    #[case("2022-04-28 11:26:41+02", "2022-04-28T09:26:41.0000000Z")]
    #[case("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z")]
    #[case("9999-12-31T23:59:59.9999999", "9999-12-31T22:59:59.9999999Z")]
    #[case("0001-01-02T00:00:00+02:00", "0001-01-01T22:00:00.0000000Z")]
    #[case("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.0000000Z")]
    fn other_forms_of_the_wire_are_taken(#[case] wire: &str, #[case] utc: &str) {
        assert_eq!(read(wire).to_string(), utc);
    }

    #[rstest]
    #[case("0001-01-01T00:00:00")]
    #[case("0001-01-01T00:00:00Z")]
    #[case("0001-01-01T00:00:00+01:00")]
    #[case("0001-01-01T00:00:00.0000000")]
    fn the_first_day_of_the_calendar_is_not_set(#[case] wire: &str) {
        assert_eq!(Ticks::parse(wire, &oslo()), Ok(None));
    }

    #[rstest]
    #[case("")]
    #[case("yesterday")]
    #[case("2022-02-30T00:00:00Z")]
    #[case("2022-04-28T24:00:00Z")]
    #[case("2022-04-28T11:26:41.Z")]
    #[case("2022-04-28T11:26:41+2")]
    #[case("2022-04-28T11:26:41+02:00x")]
    #[case("2022-04-28T11:26:41 CET")]
    #[case("28.04.2022")]
    #[case("20220428T112641Z")]
    #[case("2022-04-28T1é:26:41Z")]
    fn anything_else_is_an_error(#[case] wire: &str) {
        assert!(Ticks::parse(wire, &oslo()).is_err(), "{wire}");
    }

    #[test]
    fn instants_before_the_epoch_are_cut_towards_the_past() {
        assert_eq!(Ticks::new(-1).micros(), -1);
        assert_eq!(Ticks::new(-1).to_string(), "1969-12-31T23:59:59.9999999Z");
        assert_eq!(Ticks::from_timestamp(Timestamp::from_nanosecond(-1).unwrap()), Ticks::new(-1));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ticks in -621_355_968_000_000_000_i64 + PER_DAY
            ..2_534_022_144_000_000_000) {
            let written = Ticks::new(ticks).to_string();
            prop_assert_eq!(read(&written), Ticks::new(ticks));
        }

        #[test]
        fn the_calendar_agrees_with_the_time_library(seconds in -62_135_500_000_i64..253_402_200_000,
            nanos in 0_i32..1_000_000_000) {
            let stamp = Timestamp::new(seconds, nanos).unwrap();
            let ticks = Ticks::from_timestamp(stamp);
            prop_assert_eq!(ticks.to_string(), format!("{stamp:.7}"));
            prop_assert_eq!(ticks.micros(), stamp.as_microsecond().min(
                stamp.as_nanosecond().div_euclid(1000) as i64));
        }

        #[test]
        fn a_local_time_agrees_with_the_time_library(seconds in -2_000_000_000_i64..4_000_000_000) {
            let local = Timestamp::from_second(seconds).unwrap().to_zoned(TimeZone::UTC).datetime();
            let theirs = oslo().to_ambiguous_timestamp(local).compatible().unwrap();
            prop_assert_eq!(read(&local.to_string()), Ticks::from(theirs));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = Ticks::parse(&text, &oslo());
        }

        #[test]
        fn no_number_makes_writing_panic(ticks: i64) {
            let _ = Ticks::new(ticks).to_string();
        }
    }
}
