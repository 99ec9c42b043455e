//! How values stand on the wire and in the canonical state: instants at 100 ns, local times without
//! offset, exact money.
//!
//! The sandbox has its own clock library (chrono) and shares nothing with the client, so that a
//! mistake made in one of them cannot cancel out in the other.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone, Utc};
use chrono_tz::Europe::Oslo;

/// Ticks of 100 ns in one second.
pub(crate) const TICKS_PER_SECOND: i64 = 10_000_000;
/// Ticks of 100 ns in one millisecond.
pub(crate) const TICKS_PER_MS: i64 = 10_000;
/// Ticks of 100 ns in one day of 24 hours.
pub(crate) const TICKS_PER_DAY: i64 = 24 * 3600 * TICKS_PER_SECOND;

/// An instant: 100 ns since 1970-01-01T00:00:00Z, the resolution of the API's `DateTimeOffset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticks(pub(crate) i64);

/// A local date-time without offset in milliseconds since 1970-01-01T00:00:00 local, as search rows
/// write it (field notes, "Values on the wire").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LocalMs(pub(crate) i64);

impl Ticks {
    /// The instant of a chrono date-time, cut to 100 ns.
    pub(crate) fn of(at: DateTime<Utc>) -> Ticks {
        Ticks(at.timestamp() * TICKS_PER_SECOND + i64::from(at.timestamp_subsec_nanos()) / 100)
    }

    /// The instant as chrono knows it.
    pub(crate) fn utc(self) -> DateTime<Utc> {
        let nanos = u32::try_from(self.0.rem_euclid(TICKS_PER_SECOND) * 100).unwrap_or(0);
        DateTime::from_timestamp(self.0.div_euclid(TICKS_PER_SECOND), nanos).unwrap_or_default()
    }

    /// Later by a number of milliseconds.
    pub(crate) fn plus_ms(self, ms: i64) -> Ticks {
        Ticks(self.0 + ms * TICKS_PER_MS)
    }

    /// Later by a number of days of 24 hours.
    pub(crate) fn plus_days(self, days: i64) -> Ticks {
        Ticks(self.0 + days * TICKS_PER_DAY)
    }

    /// Seconds that Oslo's clocks are ahead of UTC at this instant.
    fn offset_seconds(self) -> i64 {
        i64::from(Oslo.offset_from_utc_datetime(&self.utc().naive_utc()).fix().local_minus_utc())
    }

    /// The local time of this instant, rounded to the millisecond, as the search index keeps it.
    pub(crate) fn local(self) -> LocalMs {
        let rounded = (self.0 + TICKS_PER_MS / 2).div_euclid(TICKS_PER_MS);
        LocalMs(rounded + self.offset_seconds() * 1000)
    }

    /// `2022-04-28T11:26:41.5334824+02:00`: seven digits unless they are all zero.
    pub(crate) fn write_zoned(self, out: &mut Vec<u8>) {
        let offset = self.offset_seconds();
        write_civil(
            out,
            self.0.div_euclid(TICKS_PER_SECOND) + offset,
            self.0.rem_euclid(TICKS_PER_SECOND),
            7,
        );
        let (sign, ahead) = if offset < 0 { (b'-', -offset) } else { (b'+', offset) };
        out.push(sign);
        digits(out, ahead / 3600, 2);
        out.push(b':');
        digits(out, ahead / 60 % 60, 2);
    }

    /// [`Ticks::write_zoned`] as text.
    pub(crate) fn zoned(self) -> String {
        text_of(|out| self.write_zoned(out))
    }

    /// The canonical form of the state: UTC, cut to microseconds, always six digits.
    pub(crate) fn canonical(self) -> String {
        text_of(|out| {
            let seconds = self.0.div_euclid(TICKS_PER_SECOND);
            write_civil(out, seconds, 0, 0);
            out.push(b'.');
            digits(out, self.0.rem_euclid(TICKS_PER_SECOND) / 10, 6);
            out.push(b'Z');
        })
    }

    /// UTC at 100 ns, always seven digits: how the control endpoints name an instant.
    pub(crate) fn exact(self) -> String {
        text_of(|out| {
            let seconds = self.0.div_euclid(TICKS_PER_SECOND);
            write_civil(out, seconds, 0, 0);
            out.push(b'.');
            digits(out, self.0.rem_euclid(TICKS_PER_SECOND), 7);
            out.push(b'Z');
        })
    }

    /// Reads what the reference calls a `DateTimeOffset`: a date, a time of day and an offset from UTC.
    pub(crate) fn parse_with_offset(text: &str) -> Option<Ticks> {
        let (civil, offset) = split_offset(text)?;
        offset.filter(|_| civil.contains('T')).and_then(|_| Ticks::parse(text, false))
    }

    /// Reads an ISO 8601 date-time with at most seven fractional digits, exactly. `Z` and offsets
    /// are taken; without either the time is UTC, or local where `local` says so.
    pub(crate) fn parse(text: &str, local: bool) -> Option<Ticks> {
        let (civil, offset) = split_offset(text)?;
        let (head, fraction) = match civil.split_once('.') {
            Some((_, "")) => return None,
            Some((head, fraction)) => (head, fraction),
            None => (civil, ""),
        };
        if fraction.len() > 7 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let ticks = format!("{fraction:0<7}").parse::<i64>().ok()?;
        let naive = parse_civil(head)?;
        let seconds = naive.and_utc().timestamp();
        match offset {
            Some(offset) => Some(Ticks((seconds - offset) * TICKS_PER_SECOND + ticks)),
            None if local => {
                let at = LocalMs(seconds * 1000).instant();
                Some(Ticks(at.0 + ticks))
            }
            None => Some(Ticks(seconds * TICKS_PER_SECOND + ticks)),
        }
    }
}

impl LocalMs {
    /// A local date and time of day.
    pub(crate) fn new(date: NaiveDate, time: NaiveTime) -> LocalMs {
        LocalMs(NaiveDateTime::new(date, time).and_utc().timestamp_millis())
    }

    /// `2022-04-28T11:26:41.533`: three digits unless they are all zero.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        write_civil(out, self.0.div_euclid(1000), self.0.rem_euclid(1000), 3);
    }

    /// The instant meant by this local time: one that a clock change skips moves forward, one that
    /// it repeats is the first.
    pub(crate) fn instant(self) -> Ticks {
        let naive = DateTime::from_timestamp_millis(self.0).unwrap_or_default().naive_utc();
        let offset = match Oslo.offset_from_local_datetime(&naive) {
            chrono::LocalResult::Single(offset) => offset.fix().local_minus_utc(),
            chrono::LocalResult::Ambiguous(first, second) => {
                // The first pass is the one with the clocks still ahead.
                first.fix().local_minus_utc().max(second.fix().local_minus_utc())
            }
            chrono::LocalResult::None => {
                // Read with the offset from before the gap, which lands as far behind the gap.
                let before = naive - chrono::Duration::hours(3);
                Oslo.offset_from_local_datetime(&before)
                    .earliest()
                    .map_or(3600, |offset| offset.fix().local_minus_utc())
            }
        };
        Ticks((self.0 - i64::from(offset) * 1000) * TICKS_PER_MS)
    }
}

/// Midnight in Oslo that begins the month which lies `months` before the month of `at`.
pub(crate) fn month_start(at: Ticks, months: u32) -> Ticks {
    let local = DateTime::from_timestamp_millis(at.local().0).unwrap_or_default();
    let index = local.year() * 12 + i32::try_from(local.month0()).unwrap_or(0)
        - i32::try_from(months).unwrap_or(0);
    let month = u32::try_from(index.rem_euclid(12)).unwrap_or(0) + 1;
    let day = NaiveDate::from_ymd_opt(index.div_euclid(12), month, 1).unwrap_or_default();
    LocalMs::new(day, NaiveTime::MIN).instant()
}

/// Writes an amount of øre as a JSON number with exact digits. Whole kroner come as `1200`,
/// `1200.0` or `1200.00`, halves of ten as `12.5` or `12.50`: all of these occur.
pub(crate) fn write_money(out: &mut Vec<u8>, ore: i64) {
    let size = ore.unsigned_abs();
    if ore < 0 {
        out.push(b'-');
    }
    let (kroner, rest) = (size / 100, size % 100);
    out.extend_from_slice(kroner.to_string().as_bytes());
    match (rest, kroner % 3) {
        (0, 0) => {}
        (0, 1) => out.extend_from_slice(b".0"),
        (0, _) => out.extend_from_slice(b".00"),
        (rest, 0) if rest % 10 == 0 => {
            out.push(b'.');
            out.push(b'0' + u8::try_from(rest / 10).unwrap_or(0));
        }
        (rest, _) => {
            out.push(b'.');
            digits(out, i64::try_from(rest).unwrap_or(0), 2);
        }
    }
}

/// `-12.50`: the canonical form of an amount of øre.
pub(crate) fn canonical_money(ore: i64) -> String {
    let sign = if ore < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", ore.unsigned_abs() / 100, ore.unsigned_abs() % 100)
}

/// Writes millionths as a JSON number without trailing zeros.
pub(crate) fn write_decimal(out: &mut Vec<u8>, millionths: i64) {
    let text = canonical_decimal(millionths);
    let trimmed = text.trim_end_matches('0');
    out.extend_from_slice(trimmed.trim_end_matches('.').as_bytes());
}

/// `0.250000`: the canonical form of millionths.
pub(crate) fn canonical_decimal(millionths: i64) -> String {
    let sign = if millionths < 0 { "-" } else { "" };
    let size = millionths.unsigned_abs();
    format!("{sign}{}.{:06}", size / 1_000_000, size % 1_000_000)
}

/// Reads the digits of a JSON number as øre. `None` where it is no plain number, has more than two
/// decimals that are not zero, or is out of range.
pub(crate) fn parse_money(text: &str) -> Option<i64> {
    scaled(text, 2)
}

/// Reads a plain decimal number, scaled by ten to the `places`.
pub(crate) fn scaled(text: &str, places: usize) -> Option<i64> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) {
        return None;
    }
    let kept = fraction.get(..places.min(fraction.len()))?;
    if fraction.get(kept.len()..)?.bytes().any(|b| b != b'0') {
        return None;
    }
    let size: i64 = format!("{whole}{kept:0<places$}").parse().ok()?;
    Some(if negative { -size } else { size })
}

fn text_of(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::with_capacity(40);
    write(&mut out);
    // Only ASCII is ever written.
    String::from_utf8(out).unwrap_or_default()
}

/// Writes `value` in exactly `width` digits.
fn digits(out: &mut Vec<u8>, value: i64, width: usize) {
    let start = out.len();
    out.resize(start + width, b'0');
    let mut rest = value;
    for slot in out[start..].iter_mut().rev() {
        *slot = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
}

/// Writes seconds since 1970 as a civil date-time, with a fraction of `width` digits unless zero.
fn write_civil(out: &mut Vec<u8>, seconds: i64, fraction: i64, width: usize) {
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    digits(out, year, 4);
    out.push(b'-');
    digits(out, month, 2);
    out.push(b'-');
    digits(out, day, 2);
    out.push(b'T');
    digits(out, of_day / 3600, 2);
    out.push(b':');
    digits(out, of_day / 60 % 60, 2);
    out.push(b':');
    digits(out, of_day % 60, 2);
    if width > 0 && fraction > 0 {
        out.push(b'.');
        digits(out, fraction, width);
    }
}

/// Days since 1970 to a date of the Gregorian calendar, by eras of 400 years; quicker than asking
/// chrono for each part, which shows in pages of a thousand rows with sixty dates each.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Splits a trailing `Z` or `+hh:mm` from a date-time; the offset is in seconds.
fn split_offset(text: &str) -> Option<(&str, Option<i64>)> {
    if let Some(civil) = text.strip_suffix('Z') {
        return Some((civil, Some(0)));
    }
    // Only behind the time of day: the date has hyphens of its own.
    let time_at = text.find('T').unwrap_or(text.len());
    let Some(sign_at) = text[time_at..].find(['+', '-']).map(|at| at + time_at) else {
        return Some((text, None));
    };
    let (hours, minutes) = text[sign_at + 1..].split_once(':')?;
    let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !two_digits(hours) || !two_digits(minutes) {
        return None;
    }
    let seconds = hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60;
    let sign = if text.as_bytes()[sign_at] == b'-' { -1 } else { 1 };
    Some((&text[..sign_at], Some(sign * seconds)))
}

fn parse_civil(text: &str) -> Option<NaiveDateTime> {
    for form in ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"] {
        match NaiveDateTime::parse_from_str(text, form) {
            // chrono takes `2026-1-5` as well.
            Ok(at) if at.format(form).to_string() == text => return Some(at),
            _ => {}
        }
    }
    Some(day(text)?.and_time(NaiveTime::MIN))
}

/// Reads a day, `yyyy-MM-dd`.
pub(crate) fn day(text: &str) -> Option<NaiveDate> {
    const FORM: &str = "%Y-%m-%d";
    let day = NaiveDate::parse_from_str(text, FORM).ok()?;
    (day.format(FORM).to_string() == text).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Ticks {
        Ticks::parse(text, false).unwrap()
    }

    #[test]
    fn an_instant_keeps_its_seventh_digit() {
        let instant = at("2022-04-28T11:26:41.5334824+02:00");
        assert_eq!(instant.zoned(), "2022-04-28T11:26:41.5334824+02:00");
        assert_eq!(instant.exact(), "2022-04-28T09:26:41.5334824Z");
        assert_eq!(instant.canonical(), "2022-04-28T09:26:41.533482Z");
        assert_eq!(instant.0 + 1, at("2022-04-28T09:26:41.5334825Z").0);
    }

    #[test]
    fn eight_digits_and_nonsense_are_refused() {
        for text in ["2022-04-28T11:26:41.53348245Z", "2022-04-28T25:00:00Z", "yesterday", "."] {
            assert_eq!(Ticks::parse(text, false), None, "{text}");
        }
    }

    #[test]
    fn a_date_time_with_an_offset_is_whole() {
        let time = "2022-04-28T11:26:41";
        for offset in ["Z", "+02:00", ".5Z", ".1234567-01:00"] {
            assert!(Ticks::parse_with_offset(&format!("{time}{offset}")).is_some(), "{offset}");
        }
        for text in [time, "2022-04-28", "2022-04-28Z", "2022-4-28T11:26:41Z"] {
            assert_eq!(Ticks::parse_with_offset(text), None, "{text}");
        }
        for offset in ["+2:00", "++1:00", "+02", " 02:00"] {
            assert_eq!(Ticks::parse_with_offset(&format!("{time}{offset}")), None, "{offset}");
        }
        assert!(day("2022-04-28").is_some() && day("2022-4-28").is_none());
    }

    #[test]
    fn a_repeated_local_time_is_the_first_and_a_skipped_one_moves_forward() {
        let local = |text: &str| Ticks::parse(text, true).unwrap();
        assert_eq!(local("2026-10-25T02:30:00"), at("2026-10-25T00:30:00Z"));
        assert_eq!(local("2026-03-29T02:30:00"), at("2026-03-29T01:30:00Z"));
        assert_eq!(local("2026-07-01T12:00:00"), at("2026-07-01T10:00:00Z"));
    }

    #[test]
    fn a_local_time_is_rounded_to_the_millisecond() {
        let mut out = Vec::new();
        at("2026-01-31T23:59:59.9995000Z").local().write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "2026-02-01T01:00:00");
    }

    #[test]
    fn money_has_exact_digits() {
        let wire = |ore| text_of(|out| write_money(out, ore));
        assert_eq!(wire(1), "0.01");
        assert_eq!(wire(-1250), "-12.5");
        assert_eq!(wire(9_007_199_254_740_993), "90071992547409.93");
        for ore in [0, 100, 200, 300, -5, 123_456_789] {
            assert_eq!(parse_money(&wire(ore)), Some(ore));
        }
        assert_eq!(parse_money("1.005"), None);
        assert_eq!(parse_money("1e3"), None);
        assert_eq!(canonical_money(-5), "-0.05");
    }

    #[test]
    fn civil_dates_agree_with_chrono() {
        for days in (-800_000..800_000).step_by(997) {
            let date = DateTime::from_timestamp(days * 86_400, 0).unwrap().date_naive();
            let expected = (i64::from(date.year()), i64::from(date.month()), i64::from(date.day()));
            assert_eq!(civil_from_days(days), expected);
        }
    }

    #[test]
    fn a_month_starts_at_local_midnight() {
        assert_eq!(
            month_start(at("2026-01-15T00:00:00Z"), 2).exact(),
            "2025-10-31T23:00:00.0000000Z"
        );
    }
}
