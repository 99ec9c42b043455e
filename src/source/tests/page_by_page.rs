//! The paging state machine, page by page: what a page proves of the list, and what is asked for behind it.

use std::ops::Range;

use rstest::rstest;

use crate::source::pages::{Ask, Mark, Next, Pager, Sameness, Verdict, Walk};

fn marks(ids: impl IntoIterator<Item = i64>) -> Vec<Mark> {
    ids.into_iter().map(|id| Mark { fingerprint: id as u128, key: Some(id) }).collect()
}

#[test]
fn a_row_that_moves_between_pages_is_not_doubled() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, Some(Some(100)));
    pager.take(&marks(0..100), None);
    // A row came in front: the last one of the first page stands on the second again.
    let taken = pager.take(&marks(99..150), None);
    assert_eq!(taken.keep.iter().filter(|keep| !**keep).count(), 1);
    assert!(!taken.keep[0]);
    assert_eq!(taken.next, Next::Finished(Verdict::Complete));
    assert_eq!(pager.length(), 150);
}

#[test]
fn a_count_that_moves_while_paging_is_incomplete() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, Some(Some(100)));
    pager.take(&marks(0..100), Some(150));
    // A row behind the first page went, and another may have come.
    let taken = pager.take(&marks(99..149), Some(149));
    assert!(matches!(taken.next, Next::Ask(Ask { skip: Some(149), .. })));
    let taken = pager.take(&[], Some(149));
    assert!(matches!(taken.next, Next::Finished(Verdict::Incomplete(_))));
}

#[test]
fn a_count_without_records_is_incomplete() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, None);
    let taken = pager.take(&[], Some(12));
    assert!(matches!(taken.next, Next::Finished(Verdict::Incomplete(_))));
}

#[test]
fn a_list_without_order_or_key_is_paged_by_skip() {
    let skip = Next::Ask(Ask { top: Some(100), skip: Some(99), from_key: None });
    let mut pager = Pager::new(Walk::Keyset, Sameness::Key, Some(Some(100)));
    let taken = pager.take(&marks((0..100).rev()), None);
    assert_eq!((taken.keep, taken.next), (vec![true; 100], skip));
    let without_key: Vec<Mark> = marks(0..100).iter().map(|m| Mark { key: None, ..*m }).collect();
    let mut pager = Pager::new(Walk::Keyset, Sameness::Key, Some(Some(100)));
    assert_eq!(pager.take(&without_key, None).next, skip);
}

#[test]
fn two_records_of_one_page_with_one_key_are_both_handed_on() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, None);
    let taken = pager.take(&marks([1, 2, 2, 3]), None);
    assert_eq!(taken.keep, [true; 4]);
}

#[rstest]
#[case::keyset(Walk::Keyset)]
#[case::skip(Walk::Skip)]
fn a_record_that_comes_twice_is_evidence_of_one(#[case] how: Walk) {
    // 50 are counted and 50 come, but seven of them are others again: seven did not come.
    let mut pager = Pager::new(how, Sameness::Key, None);
    let taken = pager.take(&marks((0..43).chain(0..7)), Some(50));
    assert!(matches!(taken.next, Next::Ask(_)), "{taken:?}");
    assert_eq!(pager.length(), 43);
    let mut next = taken.next;
    while let Next::Ask(_) = next {
        next = pager.take(&[], None).next;
    }
    assert!(matches!(next, Next::Finished(Verdict::Incomplete(_))), "{next:?}");
}

#[rstest]
#[case::keyset(Walk::Keyset)]
#[case::skip(Walk::Skip)]
#[case::undocumented(Walk::Undocumented)]
fn fewer_records_than_count_are_not_all(#[case] how: Walk) {
    // The last one was lost on the way, and nothing stands behind it.
    let mut pager = Pager::new(how, Sameness::Key, None);
    let mut next = pager.take(&marks(0..11), Some(12)).next;
    while let Next::Ask(_) = next {
        next = pager.take(&[], Some(12)).next;
    }
    assert!(matches!(next, Next::Finished(Verdict::Incomplete(_))), "{next:?}");
}

#[rstest]
#[case::keyset(Walk::Keyset)]
#[case::skip(Walk::Skip)]
#[case::undocumented(Walk::Undocumented)]
fn a_count_of_less_than_came_proves_nothing(#[case] how: Walk) {
    let mut pager = Pager::new(how, Sameness::Key, Some(Some(100)));
    let taken = pager.take(&marks(0..100), Some(50));
    assert!(matches!(taken.next, Next::Ask(_)), "{:?}", taken.next);
    let from = if how == Walk::Keyset { 100 } else { 99 };
    let taken = pager.take(&marks(from..140), None);
    assert_eq!(taken.next, Next::Finished(Verdict::Complete));
    assert_eq!(pager.length(), 140);
}

#[rstest]
#[case::keyset(Walk::Keyset)]
#[case::skip(Walk::Skip)]
#[case::undocumented(Walk::Undocumented)]
fn where_nothing_is_counted_a_record_that_comes_twice_makes_look_for_another(#[case] how: Walk) {
    let mut pager = Pager::new(how, Sameness::Key, None);
    let Next::Ask(look) = pager.take(&marks((0..11).chain([0])), None).next else {
        panic!("it is believed");
    };
    assert_eq!((look.skip, look.from_key), (Some(11), None));
    // A service that ignores `$skip` gives all again, this time with what had not come.
    let taken = pager.take(&marks(0..12), None);
    assert_eq!(taken.keep.iter().filter(|keep| **keep).count(), 1);
    let Next::Ask(_) = taken.next else { panic!("it may still lack one") };
    let taken = pager.take(&marks(0..12), None);
    assert_eq!(taken.next, Next::Finished(Verdict::Complete));
}

#[test]
fn a_service_that_always_gives_a_record_twice_is_believed_after_the_look() {
    let mut pager = Pager::new(Walk::Undocumented, Sameness::Key, None);
    let twice = marks((0..11).chain([0]));
    assert!(matches!(pager.take(&twice, None).next, Next::Ask(_)));
    assert_eq!(pager.take(&twice, None).next, Next::Finished(Verdict::Complete));
}

#[test]
fn a_look_that_brings_what_a_doubled_record_stood_for_completes_the_list() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, None);
    let taken = pager.take(&marks((0..43).chain(0..7)), Some(50));
    let Next::Ask(ask) = taken.next else { panic!("{taken:?}") };
    assert_eq!(ask.skip, Some(43));
    let taken = pager.take(&marks(43..50), Some(50));
    assert_eq!(taken.next, Next::Finished(Verdict::Complete));
}

#[rstest]
#[case::round_when_different(107, 100)]
#[case::round_as_it_stands(100, 93)]
fn a_length_that_may_be_a_page_is_looked_behind_with_and_without_the_doubled(
    #[case] records: i64,
    #[case] different: i64,
) {
    for how in [Walk::Skip, Walk::Undocumented] {
        let mut pager = Pager::new(how, Sameness::Key, None);
        let ids = (0..different).chain(0..records - different);
        assert!(matches!(pager.take(&marks(ids), None).next, Next::Ask(_)));
    }
}

#[test]
fn doubled_records_do_not_prove_that_a_service_does_not_page() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, Some(Some(100)));
    // More than asked for, but not more different ones.
    let taken = pager.take(&marks((0..100).chain(0..3)), None);
    assert!(matches!(taken.next, Next::Ask(_)), "{taken:?}");
}

#[test]
fn equal_lines_are_two_lines() {
    let mut pager = Pager::new(Walk::Undocumented, Sameness::Lines, None);
    pager.take(&marks(0..100), None);
    // The first of the next page equals an earlier line and is another one.
    let taken = pager.take(&marks([7, 200, 201, 202, 203]), None);
    assert_eq!((taken.keep, taken.next), (vec![true; 5], Next::Finished(Verdict::Complete)));
}

#[test]
fn the_same_lines_again_prove_that_skip_is_ignored() {
    let mut pager = Pager::new(Walk::Undocumented, Sameness::Lines, None);
    let lines = marks((0..50).flat_map(|id| [id, id]));
    pager.take(&lines, None);
    let taken = pager.take(&lines, None);
    assert_eq!((taken.keep, taken.next), (vec![false; 100], Next::Finished(Verdict::Complete)));
}

#[test]
fn lines_that_are_mostly_the_same_are_unclear() {
    let mut pager = Pager::new(Walk::Undocumented, Sameness::Lines, None);
    pager.take(&marks(0..100), None);
    // It ignores `$skip`, and a line was added meanwhile.
    let taken = pager.take(&marks(0..101), None);
    assert_eq!(taken.keep, vec![false; 101]);
    assert!(matches!(taken.next, Next::Finished(Verdict::Incomplete(_))));
}

#[test]
fn the_largest_key_ends_the_walk() {
    let mut pager = Pager::new(Walk::Keyset, Sameness::Key, Some(Some(1)));
    let taken = pager.take(&marks([i64::MAX]), None);
    assert_eq!(taken.next, Next::Finished(Verdict::Complete));
}

/// Takes pages of these records one after the other; what was asked for, and what it came to.
fn taken(mut pager: Pager, pages: &[(Range<i64>, &[i64])]) -> (Vec<Ask>, Next) {
    let (mut asked, mut next) = (Vec::new(), Next::Ask(pager.first()));
    for (ids, without) in pages {
        let Next::Ask(ask) = next else { panic!("it has ended: {next:?}") };
        asked.push(ask);
        let ids = ids.clone().filter(|id| !without.contains(id));
        next = pager.take(&marks(ids), None).next;
    }
    (asked, next)
}

#[rstest]
#[case::skip(Walk::Skip)]
#[case::undocumented(Walk::Undocumented)]
fn a_record_that_leaves_between_two_pages_takes_none_with_it(#[case] how: Walk) {
    let pager = || Pager::new(how, Sameness::Key, Some(Some(100)));
    // 150 records, of which the first page has 100: the second begins with the last of it.
    let (asked, next) = taken(pager(), &[(0..100, &[]), (99..150, &[])]);
    assert_eq!((asked[1].skip, next), (Some(99), Next::Finished(Verdict::Complete)));
    let moved = |pages: &[(Range<i64>, &[i64])]| match taken(pager(), pages).1 {
        Next::Finished(verdict) => assert!(matches!(verdict, Verdict::Incomplete(_)), "{pages:?}"),
        Next::Ask(ask) => panic!("{ask:?} after {pages:?}"),
    };
    // The fifth has left: 100 stands where 99 was.
    moved(&[(0..100, &[]), (100..150, &[])]);
    // One has come before.
    moved(&[(0..100, &[]), (98..150, &[])]);
    // Nothing is behind it; where the service has shown that it knows `$skip`, not even the last one is there.
    let nothing = taken(pager(), &[(0..100, &[]), (0..0, &[])]).1;
    assert_eq!(nothing, Next::Finished(Verdict::Complete));
    moved(&[(0..100, &[]), (99..199, &[]), (0..0, &[])]);
    // What comes behind is read all the same.
    let (asked, next) = taken(pager(), &[(0..100, &[]), (100..200, &[]), (200..250, &[])]);
    assert_eq!(asked[2].skip, Some(200));
    assert!(matches!(next, Next::Finished(Verdict::Incomplete(_))));
}

#[rstest]
// It ignores `$skip`, and has all on its first page.
#[case::ignores(&[0..100, 0..100, 0..100], &[99, 100])]
// It counts `$skip` in whole pages.
#[case::whole_pages(&[0..100, 0..100, 100..200, 200..250], &[99, 100, 200])]
// It ignores `$skip`, and one came meanwhile.
#[case::grows(&[0..100, 0..101], &[99])]
fn what_does_not_begin_with_its_joint_and_brings_nothing_is_looked_behind(
    #[case] pages: &[Range<i64>],
    #[case] skips: &[u64],
) {
    let pager = Pager::new(Walk::Undocumented, Sameness::Key, None);
    let pages: Vec<_> = pages.iter().map(|ids| (ids.clone(), &[] as &[i64])).collect();
    let (asked, next) = taken(pager, &pages);
    assert_eq!(asked.iter().filter_map(|ask| ask.skip).collect::<Vec<_>>(), skips);
    assert_eq!(next, Next::Finished(Verdict::Complete));
}

#[test]
fn a_record_that_comes_again_moves_the_joints_behind_it() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, Some(Some(100)));
    pager.take(&marks(0..100), None);
    let second = pager.take(&marks((99..198).chain([7])), None);
    assert!(matches!(second.next, Next::Ask(Ask { skip: Some(198), .. })), "{:?}", second.next);
    let third = pager.take(&marks(198..220), None);
    assert_eq!(third.next, Next::Finished(Verdict::Complete));
}

#[test]
fn two_records_that_are_too_large_together_are_asked_for_one_by_one() {
    let mut pager = Pager::new(Walk::Skip, Sameness::Key, Some(Some(100)));
    let Next::Ask(mut ask) = pager.take(&marks(0..100), None).next else { panic!() };
    while ask.top != Some(1) {
        assert_eq!(ask.skip, Some(99));
        ask = pager.too_large(ask).unwrap();
    }
    assert_eq!(ask.skip, Some(100));
    assert_eq!(pager.too_large(ask), None);
}

#[rstest]
#[case::as_long_as_was_asked_for(Some(100))]
#[case::as_long_as_the_service_lets_it_be(Some(1_000))]
#[case::without_a_top(None)]
fn the_count_of_the_first_page_does_not_end_a_keyset_walk_at_a_full_page(#[case] top: Option<u32>) {
    let mut pager = Pager::new(Walk::Keyset, Sameness::Key, Some(top));
    let mut page = |ids: Vec<i64>| pager.take(&marks(ids), Some(200)).next;
    // Every second id to 400, and 301 comes meanwhile.
    page((1..=100).map(|n| n * 2).collect());
    let mut second: Vec<i64> = (101..=199).map(|n| n * 2).chain([301]).collect();
    second.sort_unstable();
    let behind = Ask { top, skip: None, from_key: Some(399) };
    assert_eq!(page(second), Next::Ask(behind));
    assert_eq!(page(vec![400]), Next::Finished(Verdict::Complete));
}
