//! Walks over feeds that are played from lists.

use super::*;
use crate::feed::page::FeedRow;
use proptest::prelude::*;

/// No date lies behind it.
const ALWAYS: Ticks = Ticks::new(i64::MAX);

/// A feed that answers as the reference says, or badly in a chosen way.
#[derive(Clone)]
struct Server {
    rows: Vec<(i64, i64)>,
    top: usize,
    /// Dates in filters are cut to this many ticks.
    precision: i64,
    /// They are rounded up, not cut.
    rounds_up: bool,
    refuses_ties: bool,
    /// Pages of ties are not in the order of their ids.
    shuffles_ties: bool,
    ignores_skip: bool,
    /// Of these ids `ModifiedDate` cannot be read.
    unreadable: BTreeSet<i64>,
    /// Of these the id cannot be read either.
    unidentified: BTreeSet<i64>,
}

impl Server {
    /// `None`: refused.
    fn answer(&self, ask: Ask, lower: Ticks) -> Option<FeedRows> {
        let mut rows = self.rows.clone();
        rows.sort_by_key(|(id, at)| (*at, id.wrapping_mul(7_919) % 101, *id));
        let cut = |at: i64| {
            let up = if self.rounds_up { self.precision - 1 } else { 0 };
            (at + up) - (at + up).rem_euclid(self.precision)
        };
        let chosen: Vec<(i64, i64)> = match ask {
            Ask::From(at) => rows.into_iter().filter(|r| r.1 >= cut(at.get())).collect(),
            Ask::Ties { .. } if self.refuses_ties => return None,
            Ask::Ties { at, from_id } => {
                let mut ties: Vec<_> =
                    rows.into_iter().filter(|r| r.1 == cut(at.get()) && r.0 >= from_id).collect();
                if !self.shuffles_ties {
                    ties.sort_unstable();
                }
                ties
            }
            Ask::Skip(skip) => rows
                .into_iter()
                .filter(|r| r.1 >= cut(lower.get()))
                .skip(if self.ignores_skip { 0 } else { skip as usize })
                .collect(),
        };
        let mut page = FeedRows::default();
        for (id, at) in chosen.into_iter().take(self.top) {
            let mut row = FeedRow::for_test(id, Ticks::new(at));
            if self.unreadable.contains(&id) {
                row.when.modified = None;
                row.dates[0] = Some(i64::MIN + id);
            }
            page.identities.push(row.identity());
            if !self.unidentified.contains(&id) {
                page.rows.push(row);
            }
        }
        Some(page)
    }

    /// Reads the feed to its end; returns the ids that came and the calls made.
    fn read(&self, walk: Walk, lower: i64, asked: usize) -> (BTreeSet<i64>, usize) {
        let (mut walk, lower) = (walk, Ticks::new(lower));
        let (mut seen, mut calls) = (BTreeSet::new(), 0);
        while let Some(ask) = walk.next_ask() {
            calls += 1;
            assert!(calls < 10_000 && walk.passes() <= 4, "it does not end: {ask:?}");
            let Some(page) = self.answer(ask, lower) else {
                walk.filter_is_refused();
                continue;
            };
            seen.extend(page.rows.iter().map(|row| row.id));
            walk.take(ask, &page, asked, ALWAYS);
        }
        (seen, calls)
    }

    fn read_by_date(&self, lower: i64, asked: usize) -> (BTreeSet<i64>, usize) {
        self.read(Walk::by_date(Ticks::new(lower)), lower, asked)
    }

    /// As `?fromDate=` is read: no page size is asked for.
    fn read_by_skip(&self) -> (BTreeSet<i64>, usize) {
        self.read(Walk::by_skip(Ticks::new(0)), 0, usize::MAX)
    }
}

fn server(rows: impl IntoIterator<Item = (i64, i64)>, top: usize) -> Server {
    Server {
        rows: rows.into_iter().collect(),
        top,
        precision: 1,
        rounds_up: false,
        refuses_ties: false,
        shuffles_ties: false,
        ignores_skip: false,
        unreadable: BTreeSet::new(),
        unidentified: BTreeSet::new(),
    }
}

#[test]
fn a_service_that_rounds_dates_up_loses_no_row_between_two_pages() {
    // Of 25, a page of 10 ends before others that the rounded date passes over; the last page of 20 is short.
    for top in [10, 20] {
        let rows: Vec<(i64, i64)> = (1..=25).map(|id| (id, id * 7)).collect();
        let server = Server { precision: 100, rounds_up: true, ..server(rows, top) };
        let (seen, _) = server.read_by_date(0, top);
        assert_eq!(seen, (1..=25).collect(), "{top}");
    }
}

#[test]
fn ties_that_come_in_another_order_each_time_are_read_by_id() {
    let mut rows: Vec<(i64, i64)> = (1..=7).map(|id| (id, id)).collect();
    rows.extend((8..=57).map(|id| (id, 100)));
    rows.push((58, 200));
    let server = server(rows, 10);
    let mut walk = Walk::by_date(Ticks::new(0));
    let first = walk.next_ask().unwrap();
    walk.take(first, &server.answer(first, Ticks::new(0)).unwrap(), 10, ALWAYS);
    let next = walk.next_ask().unwrap();
    assert_eq!(next, Ask::From(Ticks::new(100)));
    // None of the three ties of the first page.
    let mut others = FeedRows::default();
    for id in 40..50 {
        let row = FeedRow::for_test(id, Ticks::new(100));
        others.identities.push(row.identity());
        others.rows.push(row);
    }
    walk.take(next, &others, 10, ALWAYS);
    assert!(matches!(walk.next_ask(), Some(Ask::Ties { .. })), "{:?}", walk.next_ask());
}

#[test]
fn a_row_at_the_border_that_moved_meanwhile_is_met_again() {
    let server = server((1..=7).map(|i| (i, i * 10)), 4);
    let mut walk = Walk::by_date(Ticks::new(0));
    let first = walk.next_ask().unwrap();
    walk.take(first, &server.answer(first, Ticks::new(0)).unwrap(), 4, ALWAYS);
    let next = walk.next_ask().unwrap();
    assert_eq!(next, Ask::From(Ticks::new(40)));
    let mut moved = server.clone();
    moved.rows[3].1 = 80;
    walk.take(next, &moved.answer(next, Ticks::new(0)).unwrap(), 4, ALWAYS);
    assert!(matches!(walk.next_ask(), Some(Ask::From(_))), "{:?}", walk.next_ask());
}

#[test]
fn a_short_page_is_one_call() {
    let server = server((1..=7).map(|i| (i, i * 10)), 1_000);
    assert_eq!(server.read_by_date(0, 1_000).1, 1);
    assert_eq!(server.read_by_skip().1, 1);
}

/// A page of these rows of `of` that are counted.
fn counted(server: &Server, ask: Ask, count: u64, doubled: Option<usize>) -> FeedRows {
    let mut page = server.answer(ask, Ticks::new(0)).unwrap();
    if let Some(place) = doubled {
        page.rows[place] = page.rows[0].clone();
        page.identities[place] = page.identities[0];
    }
    FeedRows { count: Some(count), ..page }
}

#[test]
fn a_page_with_fewer_different_rows_than_counted_is_not_the_last() {
    let server = server((1..=7).map(|i| (i, i * 10)), 1_000);
    let mut walk = Walk::by_date(Ticks::new(0));
    let first = walk.next_ask().unwrap();
    // One row came twice, another not at all.
    walk.take(first, &counted(&server, first, 7, Some(3)), 1_000, ALWAYS);
    assert!(walk.next_ask().is_some());
    let mut whole = Walk::by_date(Ticks::new(0));
    whole.take(first, &counted(&server, first, 7, None), 1_000, ALWAYS);
    assert_eq!((whole.next_ask(), whole.lacks_counted()), (None, false));
}

#[test]
fn a_feed_that_counts_rows_which_never_come_is_not_complete() {
    for walk in [Walk::by_date(Ticks::new(0)), Walk::by_skip(Ticks::new(0))] {
        for rows in [0, 1, 2, 7, 100, 250] {
            let (mut walk, mut calls) = (walk_again(&walk), 0);
            let server = server((1..=rows).map(|i| (i, i * 10)), 100);
            while let Some(ask) = walk.next_ask() {
                calls += 1;
                assert!(calls < 100, "it does not end: {ask:?}");
                let count = rows as u64 + 5;
                walk.take(ask, &counted(&server, ask, count, None), 100, ALWAYS);
            }
            assert!(walk.lacks_counted(), "{rows}");
        }
    }
}

/// The same walk from its beginning.
fn walk_again(walk: &Walk) -> Walk {
    Walk { next: walk.next, ..Walk::by_date(walk.cursor) }
}

#[test]
fn a_full_page_is_followed_from_its_last_date() {
    let server = server((1..=25).map(|i| (i, i * 10)), 10);
    let (seen, calls) = server.read_by_date(0, 10);
    assert_eq!((seen.len(), calls), (25, 3));
}

#[test]
fn a_service_that_answers_a_hundred_whatever_was_asked_is_read_to_its_end() {
    let server = server((1..=250).map(|i| (i, i * 10)), 100);
    assert_eq!(server.read_by_date(0, 1_000).0.len(), 250);
}

#[test]
fn more_ties_than_a_page_holds_are_read_by_id() {
    let rows = (1..=5).map(|i| (i, 10)).chain((6..=60).map(|i| (i, 20))).chain([(70, 30)]);
    assert_eq!(server(rows, 10).read_by_date(0, 10).0.len(), 61);
}

#[test]
fn a_page_of_ties_that_the_page_before_brought_already_is_followed_by_id() {
    // The page from 20 on brings nothing but the page before once more.
    let rows = (1..=30).map(|i| (i, 20)).chain([(40, 30)]);
    let mut walk = Walk::by_date(Ticks::new(5));
    let server = server(rows, 10);
    let mut asked = Vec::new();
    while let Some(ask) = walk.next_ask() {
        asked.push(ask);
        walk.take(ask, &server.answer(ask, Ticks::new(5)).unwrap(), 10, ALWAYS);
    }
    assert!(matches!(asked[1], Ask::From(at) if at == Ticks::new(20)), "{asked:?}");
    assert!(matches!(asked[2], Ask::Ties { .. }), "{asked:?}");
    assert!(!asked.iter().any(|ask| matches!(ask, Ask::Skip(_))), "{asked:?}");
}

#[test]
fn a_service_that_refuses_the_filter_for_ties_is_read_by_skip() {
    let rows = (1..=35).map(|i| (i, 20)).chain([(40, 30)]);
    let server = Server { refuses_ties: true, ..server(rows, 10) };
    assert_eq!(server.read_by_date(0, 10).0.len(), 36);
}

#[test]
fn dates_that_differ_in_the_seventh_digit_are_two_dates() {
    let rows = (1..=30).map(|i| (i, 1_000 + i % 2));
    assert_eq!(server(rows, 10).read_by_date(0, 10).0.len(), 30);
}

#[test]
fn a_service_that_cuts_dates_to_milliseconds_is_read_by_skip() {
    let rows: Vec<(i64, i64)> = (1..=40).map(|i| (i, 12_345)).collect();
    let server = Server { precision: 10_000, ..server(rows, 10) };
    assert_eq!(server.read_by_date(0, 10).0.len(), 40);
}

#[test]
fn the_same_records_again_are_a_service_that_ignores_skip() {
    let server = Server { ignores_skip: true, ..server((1..=300).map(|i| (i, i)), 1_000) };
    let (seen, calls) = server.read_by_skip();
    assert_eq!((seen.len(), calls), (300, 2));
    let ties = Server {
        refuses_ties: true,
        ignores_skip: true,
        ..self::server((1..=10).map(|i| (i, 20)), 10)
    };
    assert_eq!(ties.read_by_date(20, 10).0.len(), 10);
}

#[test]
fn pages_by_skip_are_read_twice_and_must_be_equal() {
    let server = server((1..=250).map(|i| (i, i)), 100);
    let (seen, calls) = server.read_by_skip();
    assert_eq!((seen.len(), calls), (250, 6));
}

#[test]
fn a_row_that_moves_up_between_two_pages_by_skip_is_not_lost() {
    let mut server = server((1..=250).map(|i| (i, i)), 100);
    let lower = Ticks::new(0);
    let mut walk = Walk::by_skip(lower);
    let (mut seen, mut calls) = (BTreeSet::new(), 0);
    while let Some(ask) = walk.next_ask() {
        let page = server.answer(ask, lower).unwrap();
        seen.extend(page.rows.iter().map(FeedRow::identity));
        walk.take(ask, &page, usize::MAX, ALWAYS);
        if calls == 0 {
            // All behind it move up by one, over the edge of the page just read.
            server.rows.retain(|(id, _)| *id != 50);
            server.rows.push((50, 1_000));
        }
        calls += 1;
        assert!(calls < 100, "it does not end");
    }
    assert!(server.rows.iter().all(|row| seen.contains(row)));
}

#[test]
fn pages_of_records_that_cannot_be_read_come_to_an_end_too() {
    let all = server((1..=350).map(|i| (i, i)), 100);
    let server = Server { unidentified: (1..=320).collect(), ..all.clone() };
    assert_eq!(server.read_by_date(0, 100).0, (321..=350).collect());
    let server = Server { unreadable: (1..=320).collect(), ..all };
    assert_eq!(server.read_by_date(0, 100).0, (1..=350).collect());
}

#[test]
fn ties_that_do_not_come_by_id_are_read_by_skip() {
    let server = Server { shuffles_ties: true, ..server((1..=250).map(|i| (i, 5)), 100) };
    assert_eq!(server.read_by_date(0, 100).0.len(), 250);
}

proptest! {
    #[test]
    fn whatever_the_dates_every_row_is_seen(
        dates in proptest::collection::vec(0_i64..40, 0..120),
        top in 2_usize..20,
        precision in prop_oneof![Just(1_i64), Just(7), Just(1_000)],
        refuses_ties: bool,
        shuffles_ties: bool,
        unreadable in proptest::collection::btree_set(0_i64..120, 0..40),
        unidentified in proptest::collection::btree_set(0_i64..120, 0..40),
    ) {
        let rows: Vec<(i64, i64)> =
            dates.iter().enumerate().map(|(i, at)| (i as i64, *at)).collect();
        let expected: BTreeSet<i64> =
            rows.iter().map(|(id, _)| *id).filter(|id| !unidentified.contains(id)).collect();
        let server =
            Server { precision, refuses_ties, shuffles_ties, unreadable, unidentified, ..server(rows, top) };
        prop_assert_eq!(server.read_by_date(0, top).0, expected);
    }
}

#[test]
fn a_date_that_cannot_be_yet_leads_nowhere() {
    let server = server((1..=250).map(|i| (i, i)), 100);
    let mut walk = Walk::by_date(Ticks::new(0));
    let (mut seen, mut calls) = (BTreeSet::new(), 0);
    while let Some(ask) = walk.next_ask() {
        let mut page = server.answer(ask, Ticks::new(0)).unwrap();
        seen.extend(page.rows.iter().map(|row| row.id));
        if calls == 0 {
            page.rows.last_mut().unwrap().when.modified = Some(Ticks::new(1_000_000));
        }
        walk.take(ask, &page, 100, Ticks::new(500));
        calls += 1;
        assert!(calls < 100, "it does not end");
    }
    assert_eq!(seen.len(), 250);
}

#[test]
fn rows_of_the_future_are_read_all_the_same() {
    let rows = (1..=150).map(|i| (i, i)).chain((151..=400).map(|i| (i, 1_000_000 + i)));
    let server = server(rows, 100);
    let mut walk = Walk::by_date(Ticks::new(0));
    let (mut seen, mut calls) = (BTreeSet::new(), 0);
    while let Some(ask) = walk.next_ask() {
        let page = server.answer(ask, Ticks::new(0)).unwrap();
        seen.extend(page.rows.iter().map(|row| row.id));
        walk.take(ask, &page, 100, Ticks::new(500));
        calls += 1;
        assert!(calls < 100, "it does not end");
    }
    assert_eq!(seen.len(), 400);
}
