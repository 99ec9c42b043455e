use rstest::rstest;

use super::*;

fn oslo() -> TimeZone {
    TimeZone::get("Europe/Oslo").unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// As the configuration reads it: five fields, or six with seconds.
fn cron(text: &str) -> Cron {
    Cron::parse(text, "").unwrap()
}

/// Every firing after `from` up to `to`, as local times with their offset.
fn firings(cron: &Cron, zone: &TimeZone, from: &str, to: &str) -> Vec<String> {
    let (mut last, to) = (at(from), at(to));
    let mut all = Vec::new();
    loop {
        let next = next(cron, zone, last).unwrap();
        assert!(next > last, "{cron} does not move on from {last}");
        if next > to {
            return all;
        }
        all.push(next.to_zoned(zone.clone()).strftime("%d %H:%M:%S%:z").to_string());
        last = next;
    }
}

/// The nights on which Oslo's clocks change, from noon to noon: two forward, two back.
const FORWARD: [(&str, &str, &str); 2] = [
    ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", "29"),
    ("2027-03-27T12:00:00Z", "2027-03-28T12:00:00Z", "28"),
];
const BACK: [(&str, &str, &str); 2] = [
    ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", "25"),
    ("2027-10-30T12:00:00Z", "2027-10-31T12:00:00Z", "31"),
];

#[rstest]
#[case::reference("15 1 * * *", "01:15:00")]
#[case::journals("15 3 * * *", "03:15:00")]
#[case::recheck("15 5 * * Sun", "05:15:00")]
#[case::reconcile("15 4 * * *", "04:15:00")]
#[case::verify("15 6 * * *", "06:15:00")]
#[case::with_seconds("30 15 1 * * *", "01:15:30")]
fn each_schedule_fires_once_on_each_night_of_a_clock_change(
    #[case] text: &str,
    #[case] time: &str,
) {
    for (nights, moved) in [(FORWARD, "+02:00"), (BACK, "+01:00")] {
        for (from, to, day) in nights {
            let fired = firings(&cron(text), &oslo(), from, to);
            assert_eq!(fired.len(), 1, "{text}: {fired:?}");
            assert!(fired[0].starts_with(&format!("{day} {time}")), "{fired:?}");
            // 01:15 comes before the change, all others after it.
            assert_eq!(fired[0].ends_with(moved), !time.starts_with("01"), "{fired:?}");
        }
    }
}

#[rstest]
#[case("30 2 * * *")]
#[case("0 30 2 * * *")]
fn a_local_time_that_is_skipped_or_comes_twice_runs_once(#[case] text: &str) {
    for (from, to, day) in FORWARD {
        assert_eq!(firings(&cron(text), &oslo(), from, to), [format!("{day} 03:30:00+02:00")]);
    }
    for (from, to, day) in BACK {
        assert_eq!(firings(&cron(text), &oslo(), from, to), [format!("{day} 02:30:00+02:00")]);
    }
}

#[rstest]
#[case("*/15 * * * *", 4)]
#[case("0 */15 * * * *", 4)]
#[case("*/10 * * * * *", 360)]
fn a_repeated_hour_runs_once_and_a_skipped_one_falls_on_the_next(
    #[case] text: &str,
    #[case] an_hour: usize,
) {
    for (from, to, _) in FORWARD {
        // 24 hours pass, and every quarter that the clock shows has its own moment.
        let fired = firings(&cron(text), &oslo(), from, to);
        assert_eq!(fired.len(), 24 * an_hour);
    }
    for (from, to, day) in BACK {
        // 25 local hours are passed in 24, from 14:00 to 13:00: the second 02:00 to 03:00 is silent.
        let fired = firings(&cron(text), &oslo(), from, to);
        assert_eq!(fired.len(), 23 * an_hour, "{fired:?}");
        assert!(
            !fired.iter().any(|f| f.starts_with(&format!("{day} 02:")) && f.ends_with("+01:00"))
        );
        let locals: BTreeSet<&str> = fired.iter().map(|f| &f[..11]).collect();
        assert_eq!(locals.len(), fired.len(), "a local time ran twice");
    }
}

#[test]
fn what_is_noted_within_the_changed_hour_is_neither_repeated_nor_lost() {
    let daily = cron("30 2 * * *");
    // Noted between the skipped time's place and the change: it still comes.
    assert_eq!(
        next(&daily, &oslo(), at("2026-03-29T01:10:00Z")).unwrap(),
        at("2026-03-29T01:30:00Z")
    );
    // Noted in the second pass: the first pass has run.
    assert_eq!(
        next(&daily, &oslo(), at("2026-10-25T01:10:00Z")).unwrap(),
        at("2026-10-26T01:30:00Z")
    );
    let quarters = cron("*/15 * * * *");
    assert_eq!(
        next(&quarters, &oslo(), at("2026-10-25T00:50:00Z")).unwrap(),
        at("2026-10-25T02:00:00Z")
    );
}

#[test]
fn a_change_of_half_an_hour_keeps_the_order_of_time() {
    // Lord Howe: 02:00 becomes 02:30. 02:15 is placed at 02:45, behind 02:40.
    let zone = TimeZone::get("Australia/Lord_Howe").unwrap();
    let fired =
        firings(&cron("15,40 2 * * *"), &zone, "2026-10-03T12:00:00Z", "2026-10-04T12:00:00Z");
    assert_eq!(fired, ["04 02:40:00+11:00", "04 02:45:00+11:00"]);
}

#[test]
fn a_schedule_that_was_missed_is_due_once() {
    let daily = cron("15 4 * * *");
    let due = |last: &str, now: &str| next(&daily, &oslo(), at(last)).unwrap() <= at(now);
    assert!(!due("2026-11-20T03:15:00Z", "2026-11-21T03:14:59Z"));
    assert!(due("2026-11-20T03:15:00Z", "2026-11-21T03:15:00Z"));
    assert!(due("2026-11-20T03:15:00Z", "2026-12-24T00:00:00Z"));
    assert!(!due("2026-12-24T00:00:00Z", "2026-12-24T00:00:01Z"));
}

#[test]
fn a_leap_day_begins_in_its_zone() {
    let leap_day = cron("0 0 29 2 *");
    let first = next(&leap_day, &oslo(), at("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(first, at("2028-02-28T23:00:00Z"));
    assert_eq!(next(&leap_day, &oslo(), first).unwrap(), at("2032-02-28T23:00:00Z"));
}

#[test]
fn an_expression_that_never_fires_is_an_error() {
    assert_eq!(
        next(&cron("0 0 31 2 *"), &oslo(), at("2026-01-01T00:00:00Z")).unwrap_err().kind(),
        Kind::Config
    );
}

#[test]
fn a_nap_ends_at_its_time_or_earlier() {
    let longest = Duration::from_secs(30);
    let now = at("2026-01-01T00:00:00Z");
    assert_eq!(nap(now, at("2026-01-01T00:00:07Z"), longest), Duration::from_secs(7));
    assert_eq!(nap(now, at("2026-01-01T01:00:00Z"), longest), longest);
    assert_eq!(nap(now, at("2025-01-01T01:00:00Z"), longest), Duration::ZERO);
}

#[rstest]
#[case::each_night_of_which_one_is_longer("15 1 * * *", 25)]
#[case::each_week("15 5 * * Sun", 7 * 24 + 1)]
#[case::working_days("0 6 * * Mon-Fri", 3 * 24 + 1)]
#[case::each_hour("0 * * * *", 1)]
#[case::twice_a_year("0 0 1 Jan,Mar *", 306 * 24)]
fn the_longest_rest_is_the_one_over_a_gap(#[case] text: &str, #[case] hours: i64) {
    assert_eq!(longest_between(&cron(text), &oslo()).unwrap().as_hours(), hours);
}
