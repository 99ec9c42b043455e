//! The way through the feed's pages, decided from what came (pure).
//!
//! Pages are keyset pages over `ModifiedDate`: a row that moves while we read moves to the end and is
//! met there, and none slips between two pages. Where more rows share a date than a page holds, they
//! are read by that date and the id. A service that cannot compare dates exactly betrays itself (an
//! `eq` that lacks a row already seen at that date; a full page that brings nothing new): then passes
//! by `$skip` take over, each overlapping the last by a row, and count only when two are equal.

use std::collections::{BTreeMap, BTreeSet};

use super::page::FeedRow;
use crate::ticks::Ticks;

/// The next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Rows from this date on, by date.
    From(Ticks),
    /// Rows of exactly this date from this id on, by id.
    Ties { at: Ticks, from_id: i64 },
    /// Rows from the poll's bound on, by date, without the first so many.
    Skip(u64),
}

/// Pages of one poll.
#[derive(Debug)]
pub(super) struct Walk {
    next: Option<Ask>,
    /// All before this date has been seen in this poll.
    cursor: Ticks,
    seen: BTreeMap<Ticks, BTreeSet<i64>>,
    skip: Option<Pass>,
    passes: usize,
}

/// A pass by `$skip`: what it met, in order, and what the one before it met.
#[derive(Debug, Default)]
struct Pass {
    rows: Vec<(i64, Option<i64>)>,
    before: Option<Vec<(i64, Option<i64>)>>,
}

/// The page size that applies when a service ignores `$top` (reference 1: 100 when not specified).
const DEFAULT_PAGE: usize = 100;

/// Whether the list goes on behind a page of `records`, when `top` were asked for: a page that is
/// shorter is the last, unless a default page could have that length.
fn may_go_on(records: usize, top: usize) -> bool {
    records == top || (records < top && records > 0 && records.is_multiple_of(DEFAULT_PAGE))
}

impl Walk {
    pub fn new(lower: Ticks) -> Walk {
        Walk {
            next: Some(Ask::From(lower)),
            cursor: lower,
            seen: BTreeMap::new(),
            skip: None,
            passes: 0,
        }
    }

    pub fn next_ask(&self) -> Option<Ask> {
        self.next
    }

    /// Where a poll that is cut off here goes on.
    pub fn cursor(&self) -> Ticks {
        self.cursor
    }

    /// Passes by `$skip` that were ended.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// Takes the answer to `ask`: its usable rows, the `$top` that was asked, and all its records.
    pub fn take(&mut self, ask: Ask, rows: &[FeedRow], top: usize, records: usize) {
        let new = rows
            .iter()
            .filter(|row| self.seen.entry(row.modified).or_default().insert(row.id))
            .count();
        self.next = match ask {
            Ask::From(from) => self.after_page(from, rows, top, records, new),
            Ask::Ties { at, from_id } => self.after_ties(at, from_id, rows, top, records),
            Ask::Skip(skip) => self.after_skip(skip, rows, top, records),
        };
    }

    fn after_page(
        &mut self,
        from: Ticks,
        rows: &[FeedRow],
        top: usize,
        records: usize,
        new: usize,
    ) -> Option<Ask> {
        if !may_go_on(records, top) {
            // Short, or longer than asked: the endpoint does not page, and this is all.
            return None;
        }
        let sorted = rows.is_sorted_by_key(|row| row.modified);
        let in_range = rows.iter().all(|row| row.modified >= from);
        let (Some(last), true, true) = (rows.last(), sorted, in_range) else {
            return self.start_skipping();
        };
        if new == 0 {
            return self.start_skipping();
        }
        if last.modified > from {
            self.cursor = last.modified;
            return Some(Ask::From(last.modified));
        }
        Some(Ask::Ties { at: from, from_id: i64::MIN })
    }

    fn after_ties(
        &mut self,
        at: Ticks,
        from_id: i64,
        rows: &[FeedRow],
        top: usize,
        records: usize,
    ) -> Option<Ask> {
        let goes_on = may_go_on(records, top);
        let ids: BTreeSet<i64> = rows.iter().map(|row| row.id).collect();
        let last = ids.last().copied();
        // Of the ids that this page covers, none that was seen at this date may be missing.
        let until = if goes_on { last.unwrap_or(i64::MIN) } else { i64::MAX };
        let lacks = from_id <= until
            && self
                .seen
                .get(&at)
                .is_some_and(|seen| seen.range(from_id..=until).any(|id| !ids.contains(id)));
        let foreign = rows.iter().any(|row| row.modified != at);
        if lacks || foreign {
            return self.start_skipping();
        }
        match last {
            Some(last) if goes_on => {
                if last < from_id {
                    return self.start_skipping();
                }
                Some(Ask::Ties { at, from_id: last.saturating_add(1) })
            }
            _ => {
                self.cursor = at.next();
                Some(Ask::From(at.next()))
            }
        }
    }

    fn start_skipping(&mut self) -> Option<Ask> {
        self.skip.get_or_insert_default();
        Some(Ask::Skip(0))
    }

    fn after_skip(
        &mut self,
        skip: u64,
        rows: &[FeedRow],
        top: usize,
        records: usize,
    ) -> Option<Ask> {
        let pass = self.skip.get_or_insert_default();
        let page: Vec<_> = rows.iter().map(FeedRow::identity).collect();
        // The first row of a later page must be the last of the page before.
        let joined = skip == 0 || pass.rows.last() == page.first();
        let brings = page.iter().any(|row| !pass.rows.contains(row));
        if joined && may_go_on(records, top) && (brings || skip == 0) {
            pass.rows.extend(page.into_iter().skip(usize::from(skip > 0)));
            // Overlap by a row: what moves up between two pages shows as a broken joint.
            return Some(Ask::Skip((pass.rows.len() as u64).saturating_sub(1)));
        }
        self.passes += 1;
        if !joined {
            *pass = Pass::default();
            return Some(Ask::Skip(0));
        }
        pass.rows.extend(page.into_iter().skip(usize::from(skip > 0)));
        let mut rows = std::mem::take(&mut pass.rows);
        rows.sort_unstable();
        rows.dedup();
        if pass.before.as_ref() == Some(&rows) {
            return None;
        }
        pass.before = Some(rows);
        Some(Ask::Skip(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A feed that answers as the reference says, or badly in a chosen way.
    struct Server {
        rows: Vec<(i64, i64)>,
        top: usize,
        /// Dates in filters are cut to this many ticks.
        precision: i64,
    }

    impl Server {
        fn answer(&self, ask: Ask, lower: Ticks) -> Vec<FeedRow> {
            let mut rows = self.rows.clone();
            rows.sort_by_key(|(id, at)| (*at, id.wrapping_mul(7_919) % 101, *id));
            let cut = |at: i64| at - at.rem_euclid(self.precision);
            let chosen: Vec<(i64, i64)> = match ask {
                Ask::From(at) => rows.into_iter().filter(|r| r.1 >= cut(at.get())).collect(),
                Ask::Ties { at, from_id } => {
                    let mut ties: Vec<_> = rows
                        .into_iter()
                        .filter(|r| r.1 == cut(at.get()) && r.0 >= from_id)
                        .collect();
                    ties.sort_unstable();
                    ties
                }
                Ask::Skip(skip) => rows
                    .into_iter()
                    .filter(|r| r.1 >= cut(lower.get()))
                    .skip(skip as usize)
                    .collect(),
            };
            chosen
                .into_iter()
                .take(self.top)
                .map(|(id, at)| FeedRow::for_test(id, Ticks::new(at)))
                .collect()
        }

        /// Reads the feed to its end; returns what was seen and the calls made.
        fn read(&self, lower: i64, asked: usize) -> (BTreeSet<(i64, i64)>, usize) {
            let lower = Ticks::new(lower);
            let mut walk = Walk::new(lower);
            let (mut seen, mut calls) = (BTreeSet::new(), 0);
            while let Some(ask) = walk.next_ask() {
                let rows = self.answer(ask, lower);
                seen.extend(rows.iter().map(|r| (r.id, r.modified.get())));
                walk.take(ask, &rows, asked, rows.len());
                calls += 1;
                assert!(calls < 10_000 && walk.passes() <= 4, "it does not end: {ask:?}");
            }
            (seen, calls)
        }
    }

    fn server(rows: impl IntoIterator<Item = (i64, i64)>, top: usize) -> Server {
        Server { rows: rows.into_iter().collect(), top, precision: 1 }
    }

    #[test]
    fn a_short_page_is_one_call() {
        let server = server((1..=7).map(|i| (i, i * 10)), 1_000);
        assert_eq!(server.read(0, 1_000).1, 1);
    }

    #[test]
    fn a_full_page_is_followed_from_its_last_date() {
        let server = server((1..=25).map(|i| (i, i * 10)), 10);
        let (seen, calls) = server.read(0, 10);
        assert_eq!((seen.len(), calls), (25, 3));
    }

    #[test]
    fn a_service_that_answers_a_hundred_whatever_was_asked_is_read_to_its_end() {
        let server = server((1..=250).map(|i| (i, i * 10)), 100);
        assert_eq!(server.read(0, 1_000).0.len(), 250);
    }

    #[test]
    fn more_ties_than_a_page_holds_are_read_by_id() {
        let rows = (1..=5).map(|i| (i, 10)).chain((6..=60).map(|i| (i, 20))).chain([(70, 30)]);
        assert_eq!(server(rows, 10).read(0, 10).0.len(), 61);
    }

    #[test]
    fn dates_that_differ_in_the_seventh_digit_are_two_dates() {
        let rows = (1..=30).map(|i| (i, 1_000 + i % 2));
        assert_eq!(server(rows, 10).read(0, 10).0.len(), 30);
    }

    #[test]
    fn a_service_that_cuts_dates_to_milliseconds_is_read_by_skip() {
        let rows: Vec<(i64, i64)> = (1..=40).map(|i| (i, 12_345)).collect();
        let server = Server { precision: 10_000, ..server(rows, 10) };
        assert_eq!(server.read(0, 10).0.len(), 40);
    }

    proptest! {
        #[test]
        fn whatever_the_dates_every_row_is_seen(
            dates in proptest::collection::vec(0_i64..40, 0..120),
            top in 2_usize..20,
            precision in prop_oneof![Just(1_i64), Just(7), Just(1_000)],
        ) {
            let rows: Vec<(i64, i64)> =
                dates.iter().enumerate().map(|(i, at)| (i as i64, *at)).collect();
            let expected: BTreeSet<_> = rows.iter().copied().collect();
            let server = Server { precision, ..server(rows, top) };
            prop_assert_eq!(server.read(0, top).0, expected);
        }
    }
}
