//! The paging state machine against a model of services of all habits.

use proptest::prelude::*;
use rstest::rstest;

use crate::source::pages::{Ask, FIRST_TOP, Mark, Next, Pager, Sameness, Verdict, Walk};

/// How a service pages.
#[derive(Debug, Clone)]
struct Habits {
    records: i64,
    /// Beyond it, 400.
    largest_top: u32,
    /// Pages are cut to this without a word.
    silent_cap: Option<usize>,
    pages_at_all: bool,
    knows_skip: bool,
    knows_filter: bool,
    counts: bool,
    /// More records at once are too large an answer.
    largest_answer: usize,
    /// So many neighbours are equal.
    equal_lines: i64,
}

const PLAIN: Habits = Habits {
    records: 0,
    largest_top: 10_000,
    silent_cap: None,
    pages_at_all: true,
    knows_skip: true,
    knows_filter: true,
    counts: false,
    largest_answer: usize::MAX,
    equal_lines: 1,
};

const TOO_LARGE: Verdict = Verdict::Incomplete("too large");

impl Habits {
    fn answer(&self, ask: Ask) -> Option<(Vec<Mark>, Option<u64>)> {
        if ask.top.is_some_and(|top| top > self.largest_top) {
            return None;
        }
        let from = ask.from_key.filter(|_| self.knows_filter).unwrap_or(0);
        let matching: Vec<i64> = (from.max(0)..self.records).collect();
        let count = self.counts.then_some(matching.len() as u64);
        let skip = ask.skip.filter(|_| self.knows_skip && self.pages_at_all).unwrap_or(0) as usize;
        let mut length =
            if self.pages_at_all { ask.top.unwrap_or(100) as usize } else { usize::MAX };
        if let Some(cap) = self.silent_cap {
            length = length.min(cap);
        }
        let marks = matching
            .into_iter()
            .skip(skip)
            .take(length)
            .map(|id| Mark { fingerprint: (id / self.equal_lines) as u128, key: Some(id) })
            .collect();
        Some((marks, count))
    }
}

/// Walks to the end: the records kept, the verdict and the number of calls.
fn walk(habits: &Habits, mut pager: Pager) -> (Vec<i64>, Verdict, usize) {
    let mut kept = Vec::new();
    let mut calls = 0;
    let mut next = Next::Ask(pager.first());
    loop {
        match next {
            Next::Finished(verdict) => return (kept, verdict, calls),
            Next::Ask(ask) => {
                calls += 1;
                assert!(calls < 1_000, "it never ends: {habits:?}");
                let Some((marks, count)) = habits.answer(ask) else {
                    match pager.refused() {
                        Some(ask) => next = Next::Ask(ask),
                        None => return (kept, Verdict::Incomplete("refused"), calls),
                    }
                    continue;
                };
                if marks.len() > habits.largest_answer {
                    match pager.too_large(ask) {
                        Some(ask) => next = Next::Ask(ask),
                        None => return (kept, TOO_LARGE, calls),
                    }
                    continue;
                }
                let taken = pager.take(&marks, count);
                assert_eq!(taken.keep.len(), marks.len());
                let news = marks.iter().zip(&taken.keep).filter(|(_, keep)| **keep);
                kept.extend(news.filter_map(|(mark, _)| mark.key));
                next = match taken.next {
                    Next::Ask(ask) => Next::Ask(pager.larger(ask)),
                    finished => finished,
                };
            }
        }
    }
}

fn all(records: i64) -> Vec<i64> {
    (0..records).collect()
}

#[rstest]
// A short page of an odd length ends the list.
#[case::empty(Walk::Keyset, 0, 1)]
#[case::short(Walk::Keyset, 37, 1)]
// A multiple of 100 can be a page that was cut: it is looked behind.
#[case::hundred(Walk::Keyset, 100, 2)]
#[case::full(Walk::Keyset, 1_000, 2)]
#[case::more(Walk::Keyset, 1_001, 2)]
#[case::skip_empty(Walk::Skip, 0, 1)]
#[case::skip_short(Walk::Skip, 37, 1)]
#[case::skip_hundred(Walk::Skip, 300, 2)]
#[case::skip_more(Walk::Skip, 2_500, 3)]
#[case::undocumented_short(Walk::Undocumented, 99, 1)]
#[case::undocumented_cut(Walk::Undocumented, 250, 3)]
#[case::undocumented_round(Walk::Undocumented, 200, 3)]
fn a_list_is_read_whole_in_as_few_calls_as_prove_it(
    #[case] how: Walk,
    #[case] records: i64,
    #[case] calls: usize,
) {
    let habits = Habits { records, ..PLAIN };
    let pager = Pager::new(how, Sameness::Key, None);
    assert_eq!(walk(&habits, pager), (all(records), Verdict::Complete, calls));
}

#[rstest]
#[case(Walk::Keyset, 100)]
#[case(Walk::Skip, 1_000)]
#[case(Walk::Skip, 300)]
fn count_saves_the_look(#[case] how: Walk, #[case] records: i64) {
    let habits = Habits { records, counts: true, ..PLAIN };
    let pager = Pager::new(how, Sameness::Key, None);
    assert_eq!(walk(&habits, pager), (all(records), Verdict::Complete, 1));
}

#[test]
fn top_is_halved_until_it_is_taken_and_then_known() {
    let habits = Habits { records: 250, largest_top: 130, ..PLAIN };
    let pager = Pager::new(Walk::Keyset, Sameness::Key, None);
    // 1000, 500, 250 are refused; 125, 125 are taken, and a look behind is not needed: 0 come.
    assert_eq!(walk(&habits, pager), (all(250), Verdict::Complete, 6));
    let known = Pager::new(Walk::Keyset, Sameness::Key, Some(Some(125)));
    assert_eq!(walk(&habits, known), (all(250), Verdict::Complete, 3));
}

#[test]
fn a_service_that_takes_no_top_is_asked_without() {
    let habits = Habits { records: 150, largest_top: 0, ..PLAIN };
    let pager = Pager::new(Walk::Skip, Sameness::Key, None);
    // 1000, 500, 250, 125, 100 are refused.
    assert_eq!(walk(&habits, pager), (all(150), Verdict::Complete, 7));
}

#[test]
fn a_refusal_of_a_known_top_is_not_about_the_top() {
    let mut pager = Pager::new(Walk::Keyset, Sameness::Key, Some(Some(FIRST_TOP)));
    assert_eq!(pager.refused(), None);
    let mut undocumented = Pager::new(Walk::Undocumented, Sameness::Key, None);
    assert_eq!(undocumented.refused(), None);
}

#[rstest]
#[case::more_than_top(Walk::Skip, 1_234, 1)]
#[case::exactly_top(Walk::Skip, 1_000, 3)]
#[case::round(Walk::Undocumented, 300, 3)]
#[case::keyset_more_than_top(Walk::Keyset, 2_000, 1)]
fn a_service_that_ignores_paging_gives_everything_once(
    #[case] how: Walk,
    #[case] records: i64,
    #[case] calls: usize,
) {
    let habits = Habits { records, pages_at_all: false, ..PLAIN };
    let pager = Pager::new(how, Sameness::Key, None);
    assert_eq!(walk(&habits, pager), (all(records), Verdict::Complete, calls));
}

#[test]
fn a_service_that_ignores_the_keyset_is_read_by_skip() {
    let habits = Habits { records: 5_000, knows_filter: false, ..PLAIN };
    let pager = Pager::new(Walk::Keyset, Sameness::Key, None);
    // The second page repeats the first; then 999, 1998, 2997, 3996, and the last five records.
    assert_eq!(walk(&habits, pager), (all(5_000), Verdict::Complete, 7));
}

#[test]
fn a_service_that_ignores_all_paging_proves_a_round_length_by_repeating_it() {
    let habits = Habits { records: 300, pages_at_all: false, knows_filter: false, ..PLAIN };
    let pager = Pager::new(Walk::Keyset, Sameness::Key, None);
    assert_eq!(walk(&habits, pager), (all(300), Verdict::Complete, 4));
}

#[test]
fn a_service_that_ignores_skip_and_counts_more_is_incomplete() {
    let habits = Habits { records: 5_000, knows_skip: false, counts: true, ..PLAIN };
    let (kept, verdict, _) = walk(&habits, Pager::new(Walk::Skip, Sameness::Key, None));
    assert_eq!(kept, all(1_000));
    assert_eq!(verdict, Verdict::Incomplete("the service gives fewer records than its Count"));
}

#[rstest]
#[case::skip(Walk::Skip, Sameness::Key)]
#[case::lines(Walk::Skip, Sameness::Lines)]
#[case::keyset(Walk::Keyset, Sameness::Key)]
fn what_a_service_repeats_of_a_page_that_was_cut_is_not_all(
    #[case] how: Walk,
    #[case] sameness: Sameness,
) {
    // It knows `$top` alone, and one page that is not cut would be all.
    let habits = Habits { records: 250, knows_skip: false, knows_filter: false, ..PLAIN };
    let read = |habits: &Habits| walk(habits, Pager::new(how, sameness, None));
    assert_eq!(read(&habits).1, Verdict::Complete);
    let (kept, verdict, _) = read(&Habits { largest_answer: 60, ..habits });
    assert!(kept.len() < 250, "{kept:?}");
    assert!(matches!(verdict, Verdict::Incomplete(_)));
}

fn habits() -> impl Strategy<Value = Habits> {
    let sizes = prop_oneof![0_i64..3_000, (0_i64..30).prop_map(|hundreds| hundreds * 100)];
    let caps = prop_oneof![Just(None), (1_usize..8).prop_map(|hundreds| Some(hundreds * 100))];
    let largest = prop_oneof![Just(usize::MAX), 20_usize..2_000];
    (sizes, 0_u32..2_000, caps, largest, any::<[bool; 4]>(), 1_i64..4).prop_map(
        |(records, largest_top, silent_cap, largest_answer, habits, equal_lines)| {
            let [pages_at_all, knows_skip, knows_filter, counts] = habits;
            Habits {
                records,
                largest_top,
                silent_cap,
                pages_at_all,
                knows_skip,
                knows_filter,
                counts,
                largest_answer,
                equal_lines,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn an_honest_service_is_always_read_whole(
        habits in habits(),
        how in prop::sample::select(vec![Walk::Keyset, Walk::Skip, Walk::Undocumented]),
    ) {
        let habits = Habits {
            pages_at_all: true, knows_skip: true, knows_filter: true, equal_lines: 1, ..habits
        };
        let (kept, verdict, _) = walk(&habits, Pager::new(how, Sameness::Key, None));
        // What is asked for without a `$top` comes whole or not.
        prop_assume!(verdict != TOO_LARGE || (how != Walk::Undocumented && habits.largest_top >= 100));
        prop_assert_eq!(verdict, Verdict::Complete);
        prop_assert_eq!(kept, all(habits.records));
    }

    #[test]
    fn nothing_is_called_complete_that_is_not(
        habits in habits(),
        how in prop::sample::select(vec![Walk::Keyset, Walk::Skip, Walk::Undocumented]),
        lines: bool,
    ) {
        // Pages that are cut, `$skip` ignored and no Count: no client can see that.
        let blind = (habits.silent_cap.is_some() || habits.pages_at_all) && !habits.knows_skip
            && !habits.counts;
        let (sameness, equal_lines) = if lines && how != Walk::Keyset {
            (Sameness::Lines, habits.equal_lines)
        } else {
            (Sameness::Key, 1)
        };
        // The same where `$skip` is known only to those that page.
        let blind = blind || (!habits.pages_at_all && habits.silent_cap.is_some() && !habits.counts);
        let habits = Habits { equal_lines, ..habits };
        let (kept, verdict, _) = walk(&habits, Pager::new(how, sameness, None));
        let mut once = kept.clone();
        once.dedup();
        prop_assert_eq!(once.len(), kept.len(), "doubled");
        if verdict == Verdict::Complete && !blind {
            prop_assert_eq!(kept.len() as i64, habits.records);
        }
    }
}
