//! The service's clock against ours (pure).
//!
//! The watermark is taken from the service's `Date`. One that jumps ahead (a web server whose clock is
//! wrong, a proxy) would move it behind changes that are still to come, and they would never be asked
//! for. So it is held against our own clock and what is usual between the two: what is farther ahead is
//! cut. A bound that lies too early costs rows, and loses none.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::source::FARTHEST_BEHIND;
use crate::ticks::Ticks;

/// By so much a `Date` may be farther ahead than is usual.
const TOLERANCE: Duration = Duration::from_secs(60);
/// What is usual follows a clock that is farther ahead by this part of the time that passes, so that a
/// wrong clock has to stay wrong for most of a day before `feed.overlap` does not cover it.
const FOLLOWED: i64 = 100;
/// Of the time between two polls so much counts: our own clock can jump too.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// How far the service's `Date` usually is ahead of our clock, in ticks; below zero it is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usual {
    ahead: i64,
    /// Our clock when this was learned.
    at: Ticks,
}

impl Usual {
    /// After a complete poll whose first answer said `date` when our clock said `ours`: the smallest
    /// distance counts at once, a larger one slowly. Where our clock went back since, it was ahead: what was learned
    /// by it then, that the service's is far behind, is not so.
    pub(crate) fn learned(before: Option<Usual>, date: Ticks, ours: Ticks) -> Usual {
        let ahead = date.get().saturating_sub(ours.get());
        let ahead = before.map_or(ahead, |before| {
            if ours.later_by(TOLERANCE) < before.at {
                return ahead.min(before.ahead.max(0));
            }
            let longest = Ticks::new(0).later_by(LONGEST_PAUSE).get();
            let passed = ours.get().saturating_sub(before.at.get()).clamp(0, longest);
            ahead.min(before.ahead.saturating_add(passed / FOLLOWED))
        });
        // One poll by a clock of ours that is a year ahead would let no bound count for as long.
        Usual { ahead: ahead.max(-Ticks::new(0).later_by(FARTHEST_BEHIND).get()), at: ours }
    }

    /// The two clocks are equal, as far as is known at `ours`.
    pub(crate) fn equal(ours: Ticks) -> Usual {
        Usual { ahead: 0, at: ours }
    }

    /// `date` as far as it is believed. Of a service that was never met before, our own clock is all that
    /// there is to hold it against.
    pub(crate) fn believed(usual: Option<Usual>, date: Ticks, ours: Ticks) -> Ticks {
        let latest = Usual::shown(usual.map_or(0, |usual| usual.ahead), ours);
        match usual {
            None if date > latest => ours,
            _ => date.min(latest),
        }
    }

    /// The latest time that the service can have written into a row by now. One answer of a server that was behind is
    /// no bound for it: rows of the last hour would lead nowhere.
    pub(crate) fn latest(usual: Option<Usual>, ours: Ticks) -> Ticks {
        Usual::shown(usual.map_or(0, |usual| usual.ahead.max(0)), ours)
    }

    /// What a clock so far ahead of ours may show.
    fn shown(ahead: i64, ours: Ticks) -> Ticks {
        Ticks::new(ours.get().saturating_add(ahead)).later_by(TOLERANCE)
    }
}

/// As it stands in `sync.meta`.
impl fmt::Display for Usual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.ahead, self.at.get())
    }
}

impl FromStr for Usual {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (ahead, at) = text.split_once(' ').ok_or(())?;
        let number = |text: &str| text.parse::<i64>().map_err(|_| ());
        Ok(Usual { ahead: number(ahead)?, at: Ticks::new(number(at)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    fn at(seconds: i64) -> Ticks {
        Ticks::new(seconds * 10_000_000)
    }

    fn usual(ahead: i64, when: i64) -> Usual {
        Usual::learned(None, at(when + ahead), at(when))
    }

    #[test]
    fn a_date_is_believed_up_to_a_minute_beyond_what_is_usual() {
        let believed =
            |ahead: i64| Usual::believed(Some(usual(30, 0)), at(1_000 + ahead), at(1_000));
        assert_eq!(believed(30), at(1_030));
        assert_eq!(believed(90), at(1_090));
        assert_eq!(believed(HOUR), at(1_090), "a jump ahead is not followed");
        assert_eq!(believed(-HOUR), at(1_000 - HOUR), "a jump back is");
        assert_eq!(Usual::believed(None, at(60), at(0)), at(60));
        assert_eq!(Usual::believed(None, at(9_000), at(0)), at(0), "nothing speaks for it");
        assert_eq!(Usual::believed(Some(Usual::equal(at(0))), at(9_000), at(0)), at(60));
    }

    #[test]
    fn a_server_that_was_behind_does_not_make_rows_of_the_last_hour_ones_of_the_future() {
        let behind = usual(-HOUR, 0);
        assert_eq!(Usual::latest(Some(behind), at(1_000)), at(1_060));
        assert_eq!(Usual::latest(Some(usual(HOUR, 0)), at(1_000)), at(1_060 + HOUR));
        assert_eq!(Usual::latest(None, at(1_000)), at(1_060));
    }

    #[test]
    fn a_smaller_distance_counts_at_once_and_a_larger_one_slowly() {
        let before = usual(30, 0);
        let learned =
            |ahead: i64, when: i64| Usual::learned(Some(before), at(when + ahead), at(when)).ahead;
        assert_eq!(learned(-5, 10), at(-5).get());
        assert_eq!(learned(HOUR, 100), at(31).get());
        assert_eq!(learned(31, HOUR), at(31).get(), "no farther than it is");
        assert_eq!(learned(HOUR, 1_000 * HOUR), at(30 + 36).get(), "our clock may have jumped");
        assert_eq!(learned(HOUR, -50), at(30).get());
    }

    #[test]
    fn a_poll_by_a_clock_of_ours_that_is_a_year_ahead_costs_half_a_day_of_rows_once() {
        let year = 365 * 24 * HOUR;
        let known = Usual::learned(Some(usual(0, 0)), at(10), at(10 + year));
        assert_eq!(Usual::believed(Some(known), at(20), at(20)), at(20 + 60 - 12 * HOUR));
        let right = Usual::learned(Some(known), at(20), at(20));
        assert_eq!(Usual::believed(Some(right), at(20), at(20)), at(20));
        // Of a service that is ahead no more is believed than before.
        let right = Usual::learned(Some(known), at(20 + HOUR), at(20));
        assert_eq!(Usual::believed(Some(right), at(20 + HOUR), at(20)), at(20 + 60));
        let before = Usual::learned(Some(usual(30, 100)), at(50 + HOUR), at(20));
        assert_eq!(before, Usual { ahead: at(30).get(), at: at(20) });
    }

    #[test]
    fn a_wrong_clock_moves_the_bound_by_less_than_the_overlap_within_half_a_day() {
        let mut known = usual(0, 0);
        for when in (0..12 * HOUR).step_by(10) {
            known = Usual::learned(Some(known), at(when + 5 * HOUR), at(when));
        }
        let ours = at(12 * HOUR);
        let ahead = Usual::believed(Some(known), at(17 * HOUR), ours).get() - ours.get();
        assert!(ahead < at(600).get(), "{ahead}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let known = usual(-17, 5);
        assert_eq!(known.to_string().parse(), Ok(known));
        assert_eq!("x".parse::<Usual>(), Err(()));
    }
}
