use std::collections::BTreeSet;

use jiff::civil::Weekday;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn cron(text: &str) -> Cron {
    Cron::parse(text, "").unwrap()
}

/// The next `count` local times after the start of `from`.
fn times(expression: &str, from: Date, count: usize) -> Vec<String> {
    let cron = cron(expression);
    let mut wall = from.to_datetime(Time::midnight());
    let next = std::iter::from_fn(|| {
        wall = cron.next_after(wall)?;
        Some(wall.strftime("%a %Y-%m-%d %H:%M:%S").to_string())
    });
    next.take(count).collect()
}

/// 1 January 2026 is a Thursday.
const START: Date = date(2026, 1, 1);

#[rstest]
#[case::each_day("15 3 * * *", &["Thu 2026-01-01 03:15:00", "Fri 2026-01-02 03:15:00"])]
#[case::seconds("30 15 3 * * *", &["Thu 2026-01-01 03:15:30", "Fri 2026-01-02 03:15:30"])]
#[case::weekday("15 5 * * Sun", &["Sun 2026-01-04 05:15:00", "Sun 2026-01-11 05:15:00"])]
#[case::any_case("15 5 * JAN mOn", &["Mon 2026-01-05 05:15:00", "Mon 2026-01-12 05:15:00"])]
#[case::range_and_list("0 6,18 * * Mon-Wed", &["Mon 2026-01-05 06:00:00", "Mon 2026-01-05 18:00:00",
    "Tue 2026-01-06 06:00:00"])]
#[case::over_the_week_s_end("0 6 * * Sat-Sun", &["Sat 2026-01-03 06:00:00", "Sun 2026-01-04 06:00:00",
    "Sat 2026-01-10 06:00:00"])]
#[case::over_it_by_steps("0 6 * * Thu-Mon/2", &["Thu 2026-01-01 06:00:00", "Sat 2026-01-03 06:00:00",
    "Mon 2026-01-05 06:00:00", "Thu 2026-01-08 06:00:00"])]
#[case::steps("*/20 6-7 * * *", &["Thu 2026-01-01 06:00:00", "Thu 2026-01-01 06:20:00",
    "Thu 2026-01-01 06:40:00", "Thu 2026-01-01 07:00:00"])]
#[case::steps_of_weekdays("0 6 * * */2", &["Thu 2026-01-01 06:00:00", "Sat 2026-01-03 06:00:00",
    "Sun 2026-01-04 06:00:00"])]
#[case::last_day_of_long_months("0 0 31 * *", &["Sat 2026-01-31 00:00:00", "Tue 2026-03-31 00:00:00"])]
#[case::leap_day("0 0 29 2 *", &["Tue 2028-02-29 00:00:00", "Sun 2032-02-29 00:00:00"])]
#[case::either_day("0 6 13 * Fri", &["Fri 2026-01-02 06:00:00", "Fri 2026-01-09 06:00:00",
    "Tue 2026-01-13 06:00:00", "Fri 2026-01-16 06:00:00"])]
#[case::either_day_by_steps("0 6 */15 * Sun", &["Thu 2026-01-01 06:00:00", "Sun 2026-01-04 06:00:00"])]
#[case::only_the_day("0 6 13 * *", &["Tue 2026-01-13 06:00:00", "Fri 2026-02-13 06:00:00"])]
#[case::a_question_mark_is_any("0 6 ? * Fri", &["Fri 2026-01-02 06:00:00", "Fri 2026-01-09 06:00:00"])]
fn an_expression_names_the_local_times_that_users_of_cron_expect(
    #[case] expression: &str,
    #[case] expected: &[&str],
) {
    assert_eq!(times(expression, START, expected.len()), expected);
}

#[test]
fn a_leap_day_comes_again_after_a_century_that_has_none() {
    assert_eq!(times("0 0 29 2 *", date(2096, 3, 1), 1), ["Fri 2104-02-29 00:00:00"]);
}

#[test]
fn the_next_time_lies_after_the_one_that_is_given() {
    let cron = cron("0 12 * * *");
    let noon = date(2026, 1, 1).at(12, 0, 0, 0);
    let just_before = date(2026, 1, 1).at(11, 59, 59, 999_999_999);
    assert_eq!(cron.next_after(just_before), Some(noon));
    assert_eq!(cron.next_after(noon), Some(date(2026, 1, 2).at(12, 0, 0, 0)));
    // Half a second later, too.
    let later = date(2026, 1, 1).at(12, 0, 0, 500_000_000);
    assert_eq!(cron.next_after(later), Some(date(2026, 1, 2).at(12, 0, 0, 0)));
    assert_eq!(cron.next_after(Date::MAX.at(12, 0, 0, 0)), None);
}

#[test]
fn an_expression_is_shown_as_it_was_written() {
    assert_eq!(cron("15  5 * * sat-SUN").to_string(), "15  5 * * sat-SUN");
}

#[rstest]
#[case::no_such_hour("0 24 * * *", "the hour \"24\"")]
#[case::no_such_day("0 0 0 * *", "the day \"0\"")]
#[case::no_such_name("0 0 * Jun,Jux *", "the month \"Jun,Jux\"")]
#[case::a_name_for_a_number("0 Mon * * *", "the hour \"Mon\"")]
#[case::no_step("*/0 * * * *", "the minute \"*/0\"")]
#[case::a_step_from_a_number("5/15 * * * *", "the minute \"5/15\"")]
#[case::a_range_that_falls("0 22-4 * * *", "the hour \"22-4\"")]
#[case::the_last_day("0 0 L * *", "the day \"L\"")]
#[case::the_last_friday("0 0 * * FriL", "the weekday \"FriL\"")]
#[case::the_second_monday("0 0 * * Mon#2", "the weekday \"Mon#2\"")]
#[case::the_next_workday("0 0 15W * *", "the day \"15W\"")]
#[case::both_days("0 0 13 * +Fri", "the weekday \"+Fri\"")]
#[case::half_a_range("0 0 * * Mon-", "the weekday \"Mon-\"")]
#[case::half_a_list("0 0 1, * *", "the day \"1,\"")]
#[case::a_wrong_range_over_the_week_s_end("0 0 * * Sat-Su", "the weekday \"Sat-Su\"")]
#[case::a_wrong_step_over_the_week_s_end("0 0 * * Sat-Sun/0", "the weekday \"Sat-Sun/0\"")]
#[case::a_step_over_the_week("0 0 * * Mon-Sat/12", "the weekday \"Mon-Sat/12\"")]
// The crate alone takes it for a month and a weekday, and the last field for years.
#[case::two_in_one("0 0 * *Mon *", "the month \"*Mon\"")]
fn a_field_that_is_wrong_is_named(#[case] expression: &str, #[case] field: &str) {
    let refused = Cron::parse(expression, "").unwrap_err();
    assert!(
        refused.starts_with(&format!("{field} is not understood; allowed are *, ")),
        "{refused}"
    );
}

#[rstest]
#[case("0 0 * * 0")]
#[case("0 0 * * Mon-5")]
#[case("0 0 * * Sun,3")]
#[case("0 0 * * 1-5/2")]
#[case("0 0 * * 1#2")]
fn a_weekday_by_its_number_is_refused_with_the_names(#[case] expression: &str) {
    assert_eq!(Cron::parse(expression, "").unwrap_err(), WEEKDAYS_BY_NAME);
}

#[rstest]
#[case("@daily")]
#[case("0 0 * *")]
#[case("0 0 0 * * * 2026")]
#[case("")]
fn what_has_not_the_fields_breaks_the_rule(#[case] expression: &str) {
    assert_eq!(Cron::parse(expression, "the rule").unwrap_err(), "the rule");
}

#[rstest]
#[case("0 0 30 2 *", false)]
#[case("0 0 31 Feb,Apr,Jun,Sep,Nov *", false)]
#[case("0 0 29 2 *", true)]
#[case("0 0 30 2 Mon", true)]
fn a_day_that_is_in_no_calendar_never_comes_true(
    #[case] expression: &str,
    #[case] true_once: bool,
) {
    assert_eq!(cron(expression).comes_true(), true_once);
}

/// A field as a list of numbers, and as it is written; `None` is `*`.
type Set = Option<BTreeSet<i8>>;

fn set(all: std::ops::RangeInclusive<i8>) -> impl Strategy<Value = Set> {
    prop::option::of(prop::collection::btree_set(all, 1..4))
}

fn written(set: &Set, name: impl Fn(i8) -> String) -> String {
    let list = |set: &BTreeSet<i8>| set.iter().map(|n| name(*n)).collect::<Vec<_>>().join(",");
    set.as_ref().map_or_else(|| "*".to_owned(), list)
}

fn holds(set: &Set, number: i8) -> bool {
    set.as_ref().is_none_or(|set| set.contains(&number))
}

proptest! {
    #[test]
    fn the_next_time_is_the_first_minute_that_every_field_takes(
        minutes in set(0..=59),
        hours in set(0..=23),
        days in set(1..=31),
        months in set(1..=12),
        weekdays in set(1..=7),
        start in 0..20_000_i64,
    ) {
        let expression = format!(
            "{} {} {} {} {}",
            written(&minutes, |n| n.to_string()),
            written(&hours, |n| n.to_string()),
            written(&days, |n| n.to_string()),
            written(&months, |n| n.to_string()),
            written(&weekdays, |n| format!("{:?}", Weekday::from_monday_one_offset(n).unwrap())),
        );
        let wall = date(2026, 1, 1).at(0, 0, 0, 0).checked_add((start * 37).minutes()).unwrap();
        let takes_day = |day: Date| {
            let of_month = holds(&days, day.day());
            let of_week = holds(&weekdays, day.weekday().to_monday_one_offset());
            let either = days.is_some() && weekdays.is_some();
            holds(&months, day.month())
                && if either { of_month || of_week } else { of_month && of_week }
        };
        // Nine years hold every day of the calendar.
        let expected = wall.date().series(1.day()).take(9 * 366).filter(|day| takes_day(*day)).find_map(
            |day| {
                let of_day = (0..24).flat_map(|hour| (0..60).map(move |minute| (hour, minute)));
                of_day
                    .filter(|(hour, minute)| holds(&hours, *hour) && holds(&minutes, *minute))
                    .map(|(hour, minute)| day.at(hour, minute, 0, 0))
                    .find(|at| *at > wall)
            },
        );
        prop_assert_eq!(cron(&expression).next_after(wall), expected, "{}", expression);
    }
}
