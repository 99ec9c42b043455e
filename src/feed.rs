//! The change feeds: what was modified recently becomes what was *seen*.
//!
//! A poll asks for everything from its lower bound on, page by page in the order of `ModifiedDate`,
//! and commits each with its cursor, those that come during a commit together; the bound moves when the
//! poll is complete. Asking again from behind the last poll costs rows, not changes: a case seen with the
//! same dates is not written.
//! How the bound is chosen is described at [`next_bound`].
//!
//! No row is passed over. A date that cannot be read is a state of its own and makes the case stale;
//! a row that names no case holds the bound where it stands, so that it is asked for again. Both are
//! open rejects of `sync.seen` (`sync.seen_contacts`) until the row can be read.

mod clock;
mod commits;
mod memory;
mod page;
mod reading;
mod walk;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config;
use crate::error::Result;
use crate::failpoint;
use crate::scope::{FeedName, FeedState, Reader};
use crate::source::{Client, FARTHEST_BEHIND};
use crate::ticks::Ticks;

#[cfg(test)]
pub(crate) use memory::PagePlace;
pub(crate) use memory::{Committed, Memory, Recalled, SeenPage};
pub(crate) use reading::LARGEST_PAGE;
use reading::Reading;

/// The API goes back at most 365 days (field notes, RecentlyModified); a day is left for clocks.
pub(crate) const LONGEST_REACH: Duration = Duration::from_secs(364 * 86_400);

/// A poll that was cut off is taken up by so much before its cursor.
const BEFORE_CURSOR: Duration = Duration::from_secs(1);

/// What a poll found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// Rows that were new or had moved.
    pub(crate) moved: u64,
    pub(crate) calls: u64,
    /// The last complete poll is so long ago that the feed cannot tell what happened since.
    pub(crate) gap: bool,
}

/// What reading a stretch of a feed again brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reread {
    /// Rows that the polls had not shown though their `ModifiedDate` lies before the polls' bound:
    /// they appeared in the feed later than `feed.overlap` covers.
    pub late: u64,
    /// How far behind the bound the latest of them lies: by so much `feed.overlap` was too short.
    pub latest: Duration,
    /// Rows that were new or had moved, late or not.
    pub moved: u64,
    pub calls: u64,
}

/// A feed that can be polled.
pub(crate) struct Feed<'a, M> {
    pub(crate) client: &'a Client,
    pub(crate) memory: M,
    pub(crate) settings: &'a config::Feed,
    pub(crate) zone: &'a TimeZone,
}

impl<M: Memory> Feed<'_, M> {
    /// Asks the feed for everything since the last poll and commits what it says.
    ///
    /// # Errors
    /// Those of the calls; `BadAnswer` where pages cannot be made complete. What was committed
    /// before stays, and the next poll goes on from its cursor.
    pub(crate) async fn poll(&self, name: FeedName) -> Result<Polled> {
        let mut recalled = self.memory.recall(name)?;
        let state = &mut recalled.state;
        let reach = Ticks::from_timestamp(Timestamp::now()).earlier_by(LONGEST_REACH);
        // Which rows came at the cursor is not known any more: where the service rounds the date up, some would be passed over.
        let cursor = state.cursor.map(|cursor| Ticks::new(cursor).earlier_by(BEFORE_CURSOR));
        let from = cursor.or(state.bound.map(Ticks::new));
        let gap = match from.filter(|from| *from < reach) {
            Some(from) => self.is_out_of_reach(name, from, reach).await?,
            None => false,
        };
        let lower = match from {
            None => reach,
            Some(_) if gap => {
                // Everything is read again from here: if the bound cannot move, that is no new gap.
                state.cursor = None;
                state.bound = None;
                // That of a poll that was cut off before the gap.
                state.next_bound = None;
                reach
            }
            Some(from) => from,
        };
        if gap {
            tracing::warn!(
                feed = name.as_str(),
                "the last complete poll is more than 364 days ago: everything is read again"
            );
            self.memory.gap(name).await?;
        }
        let mut reading = Reading::new(self, name, Reader::Poll, lower, recalled);
        reading.run().await?;
        self.complete(&reading).await?;
        failpoint::hit("poll-complete");
        Ok(Polled { moved: reading.moved, calls: reading.calls, gap })
    }

    /// Whether the feed tells nothing of `from` any more, which lies before `reach` by our clock. That may be a year
    /// ahead, and everything would be read again for it, so the service's is asked. One that is wrong itself is told by the
    /// feed's rows; where there is doubt, everything is read.
    async fn is_out_of_reach(&self, name: FeedName, from: Ticks, reach: Ticks) -> Result<bool> {
        let date = reading::server_date(self, name, reach).await?;
        let is_gap = date.is_none_or(|date| from < date.earlier_by(LONGEST_REACH));
        if !is_gap {
            tracing::warn!(
                feed = name.as_str(),
                "by this machine's clock the last complete poll is more than 364 days ago, by the service's it is not: \
                 the feed is read from there on"
            );
        }
        Ok(is_gap)
    }

    /// Reads what lies up to `reach` before the feed's bound again, as a poll would, and commits what it says; the
    /// polls' bound and cursor stay where they are (docs/architecture.md, "The watermark"). Reads
    /// nothing before the first complete poll, which nothing can be late for.
    ///
    /// # Errors
    /// As [`Feed::poll`]. What was committed before stays.
    pub(crate) async fn reread(&self, name: FeedName, reach: Duration) -> Result<Reread> {
        let recalled = self.memory.recall(name)?;
        let Some(bound) = recalled.state.bound else { return Ok(Reread::default()) };
        // Our own clock may be ahead of the one that gives the dates.
        let now = Ticks::from_timestamp(Timestamp::now()).min(Ticks::new(bound));
        let lower = now.earlier_by(reach.min(LONGEST_REACH));
        let mut reading = Reading::new(self, name, Reader::Reread, lower, recalled);
        reading.run().await?;
        reading.note_names().await?;
        let late = self.memory.late(name, reading.before, bound)?;
        Ok(Reread {
            late: late.rows,
            latest: late.latest,
            moved: reading.moved,
            calls: reading.calls,
        })
    }

    /// Moves the bound, but not past the low watermark.
    async fn complete(&self, reading: &Reading<'_, M>) -> Result<()> {
        let mut state = reading.state.clone();
        let overlap = self.settings.overlap;
        let next = if reading.dated {
            next_bound(&state, overlap)
        } else {
            // Without `Date` the newest row decides, and nothing moves while there is none.
            let now = Ticks::from_timestamp(Timestamp::now());
            reading.newest.map(|newest| newest.min(now).earlier_by(overlap))
        };
        let earliest = earliest_bound(state.bound, reading.claimed, overlap);
        let next = next.map(|next| earliest.map_or(next, |earliest| next.max(earliest)));
        state.bound = bound_below(state.bound, next, reading.low_watermark, reading.lower);
        state.next_bound = None;
        state.cursor = None;
        reading.note_names().await?;
        // While the same row holds the bound where it is, that was said.
        let is_said = state.bound.is_some() && state.bound == reading.state.bound;
        if reading.low_watermark.is_some() && !is_said {
            tracing::warn!(
                feed = reading.name.as_str(),
                "rows of the feed cannot be read: they are asked for again, see sync.rejects"
            );
        }
        let usual = reading.usual.map(|usual| usual.to_string());
        self.memory.complete(reading.name, state, usual).await
    }
}

/// The lower bound of the next poll, which is also the watermark: the server's time at the start of
/// this one, minus the skew, minus the overlap.
///
/// The skew is the smallest distance between the server's clock and a `ModifiedDate` ever met: where
/// the web server's clock runs ahead of the database's, changes of the last minutes carry dates
/// before any bound that trusts it. The server's time is believed as far as our own clock bears it out
/// (`feed/clock.rs`). Before the first row there is no bound: nothing is known about
/// the clocks, and nothing is lost by asking from the same place again.
pub(crate) fn next_bound(state: &FeedState, overlap: Duration) -> Option<Ticks> {
    let started = Ticks::new(state.next_bound?);
    let skew = state.skew?;
    let skew = Duration::from_nanos(u64::try_from(skew).unwrap_or(0).saturating_mul(100));
    Some(started.earlier_by(skew).earlier_by(overlap))
}

/// The bound after a complete poll that began at `lower`: the next one, but not behind a row that has
/// to be asked for again. Where that row may stand at the very beginning, the bound of `before` stays,
/// or none where there was none.
fn bound_below(
    before: Option<i64>,
    next: Option<Ticks>,
    low_watermark: Option<Ticks>,
    lower: Ticks,
) -> Option<i64> {
    let next = match low_watermark {
        Some(low_watermark) if low_watermark <= lower => None,
        Some(low_watermark) => next.map(|next| next.min(low_watermark)),
        None => next,
    };
    next.map(Ticks::get).or(before)
}

/// How far the bound goes back at most: by the overlap, or as far as a clock of a service is believed to be behind. By a
/// clock of ours that was a year behind for one poll, all would be read anew. Where the service's own time has not come
/// to the bound (`claimed` is what it says), it is the bound that was wrong.
fn earliest_bound(before: Option<i64>, claimed: Option<Ticks>, overlap: Duration) -> Option<Ticks> {
    let before = Ticks::new(before?);
    claimed.filter(|claimed| *claimed >= before)?;
    Some(before.earlier_by(FARTHEST_BEHIND.max(overlap)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Ticks {
        Ticks::new(seconds * 10_000_000)
    }

    #[test]
    fn the_bound_lies_behind_the_server_by_skew_and_overlap() {
        let state = FeedState {
            next_bound: Some(at(10_000).get()),
            skew: Some(at(30).get()),
            ..FeedState::default()
        };
        assert_eq!(next_bound(&state, Duration::from_secs(600)), Some(at(9_370)));
    }

    #[test]
    fn without_a_row_the_bound_stays_where_it_is() {
        let state = FeedState { next_bound: Some(1), ..FeedState::default() };
        assert_eq!(next_bound(&state, Duration::ZERO), None);
        assert_eq!(bound_below(Some(7), None, None, at(0)), Some(7));
    }

    #[test]
    fn the_bound_moves_up_to_the_row_that_holds_it_and_no_further() {
        let bound =
            |next, low_watermark| bound_below(Some(7), Some(at(next)), low_watermark, at(100));
        assert_eq!(bound(500, None), Some(at(500).get()));
        assert_eq!(bound(500, Some(at(300))), Some(at(300).get()));
        assert_eq!(bound(200, Some(at(300))), Some(at(200).get()));
        assert_eq!(bound(500, Some(at(100))), Some(7), "it may stand at the beginning");
        assert_eq!(bound_below(None, Some(at(500)), Some(at(100)), at(100)), None);
    }

    #[test]
    fn the_bound_goes_back_by_half_a_day_or_the_overlap_where_the_services_clock_has_come_to_it() {
        let (year, day) = (365 * 86_400, 86_400);
        let earliest = |claimed: Option<i64>, overlap_days: u64| {
            let overlap = Duration::from_secs(overlap_days * 86_400);
            earliest_bound(Some(at(year).get()), claimed.map(at), overlap)
        };
        assert_eq!(earliest(Some(year), 0), Some(at(year - day / 2)));
        assert_eq!(earliest(Some(year + 5), 7), Some(at(year - 7 * day)));
        assert_eq!(earliest(Some(year - 5), 0), None, "the bound lies in the future");
        assert_eq!(earliest(None, 0), None);
        assert_eq!(earliest_bound(None, Some(at(year)), Duration::ZERO), None);
    }
}
