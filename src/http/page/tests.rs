//! The page of made-up mirrors: what it says, and that it says it to everybody.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::of;
use crate::disk::Disk;
use crate::http::facts::{
    Coverage, Facts, Failing, Hour, MonthStatus, Reports, Restated, RunError, Scope, Signed,
    Unbelieved, Window,
};
use crate::mirror::PublishedSnapshot;
use crate::progress::{Counts, Now};
use crate::pulse::{Feeds, Lag};
use crate::scope::FeedName;
use crate::status::{Failure, Health, Run, Standing, Status, Table, Verified};

const HOSTILE: &str = "<script>alert(1)</script>\u{1b}[31m \u{202e}txt.exe مكتب الوساطة 🏠 \"'&";

fn now() -> Timestamp {
    "2026-11-24T20:30:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// As the status has it.
fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A daemon that has just begun: nothing is known.
fn empty() -> Facts {
    let lag = Lag {
        what: "the change feed of cases was not polled completely yet".to_owned(),
        error: None,
    };
    Facts {
        at: now(),
        zone: TimeZone::get("Europe/Oslo").unwrap(),
        status: Status::default(),
        health: Health::Starting,
        since: None,
        feeds: Feeds::Starting(lag),
        last_polls: [(FeedName::Cases, None), (FeedName::Contacts, None)],
        interval: Duration::from_secs(10),
        started: ago(2),
        window: Window { calls: 0, allowed: 6, length: Duration::from_secs(30) },
        doing: None,
        hours: (0..24)
            .map(|at| Hour { begins: ago(3600 * (23 - at)), calls: 0, changes: 0 })
            .collect(),
        snapshot: None,
        disk: Some(Disk { free: 60 << 30, size: 250 << 30 }),
        store_bytes: 12 << 20,
        unbelieved: Unbelieved::default(),
        without_control: 0,
        verified_whole: None,
        restated: Restated::default(),
        failing: Vec::new(),
        errors: Vec::new(),
    }
}

fn table(at: usize) -> Table {
    Table {
        table: format!("table_{at:02}_with_a_name"),
        status: "ok",
        since: Some(text(ago(90_000))),
        rows: 12_345 * i64::try_from(at).unwrap(),
        last_change: Some(text(ago(3_700))),
        last_checked: Some(text(ago(40))),
        ..Table::default()
    }
}

fn run(outcome: &str) -> Run {
    Run {
        run_id: 7,
        command: "run".to_owned(),
        started_at: Some(text(ago(100))),
        ended_at: Some(text(ago(80))),
        outcome: Some(outcome.to_owned()),
        calls: Some(1_234),
        ..Run::default()
    }
}

/// A large mirror of which all is there.
pub(in crate::http) fn well() -> Facts {
    let verified = Verified { at: text(ago(50_000)), comparisons: 1_460, ..Verified::default() };
    Facts {
        status: Status {
            tenant: Some("tenant-1".to_owned()),
            watermark: Some(text(ago(604))),
            feed_overlap: "10m".to_owned(),
            complete: true,
            tables: (0..45).map(table).collect(),
            runs: vec![run("ok"), run("ok")],
            verified: Some(verified),
            ..Status::default()
        },
        health: Health::Good,
        since: Some(ago(1_000_000)),
        feeds: Feeds::Polled,
        last_polls: [(FeedName::Cases, Some(ago(4))), (FeedName::Contacts, Some(ago(30)))],
        started: ago(1_100_000),
        window: Window { calls: 4, allowed: 6, length: Duration::from_secs(30) },
        hours: (0..24)
            .map(|at| Hour { begins: ago(3600 * (23 - at)), calls: 360 + at * at, changes: 7 * at })
            .collect(),
        snapshot: Some(PublishedSnapshot {
            id: "2026-11-24T202900Z".to_owned(),
            taken_at: ago(60),
        }),
        verified_whole: Some(ago(50_000)),
        ..empty()
    }
}

fn months() -> Vec<String> {
    let month = |at: usize| format!("{}-{:02}", 2024 + at.div_ceil(12), (at + 11) % 12 + 1);
    (0..24).map(month).collect()
}

fn reports(of: impl Fn(usize, usize) -> &'static str, name: impl Fn(usize) -> String) -> Reports {
    let months = months();
    let signed =
        months.iter().zip(20..).map(|(month, cases)| Signed { month: month.clone(), cases });
    let scope = |at: usize| Scope {
        name: name(at),
        months: (0..24)
            .map(|month| {
                let status = of(at, month).to_owned();
                let journals = at.is_multiple_of(2).then(|| "depot_journals".to_owned());
                (status != "none").then_some(MonthStatus { status, journals })
            })
            .collect(),
    };
    Reports {
        signed: signed.collect(),
        coverage: Coverage { months, scopes: (0..60).map(scope).collect() },
        closed: (5_520, 0),
    }
}

/// Everything at once goes wrong, and what the platform says of it is meant to break the page.
/// Tells what differs in more than numbers.
const NAMES: &str = "abcdefghijklmnopqrstuvwxyz";

fn answer(case: i64) -> String {
    format!(
        "GET https://brokerage.invalid/api/Conditions/Cases/{case}/Costs/Buyer?$filter=x failed (attempt 5 of 5, \
         after 0.{case} s): 500: {HOSTILE}"
    )
}

fn broken() -> (Facts, Reports) {
    let mut facts = well();
    let status = &mut facts.status;
    for (at, name) in ["failing", "forbidden", "absent", "disabled"].into_iter().enumerate() {
        let table = &mut status.tables[at * 3 + 5];
        (table.status, table.reason) = (name, Some(format!("500 from the platform: {HOSTILE}")));
        (table.pending, table.rejected) = (1_200, 17);
    }
    let name = |at: usize| if at == 0 { "costs".to_owned() } else { format!("table_{at}") };
    // Each met with something else.
    let failed = |at: usize| {
        let (name, answer, other) = (name(at), answer(7), "x".repeat(at));
        format!("{name}: 12 scopes failed and will be tried again: {answer}{other}")
    };
    status.problems = (0..60).map(failed).collect();
    status.waiting = vec![format!("activities (1200 scopes): {HOSTILE}")];
    status.failures = (0..12)
        .map(|at| Failure {
            table: "costs".to_owned(),
            scope: at,
            attempts: 1 + at,
            next_try: Some(text(ago(600 - 100 * at))),
            kind: "Server".to_owned(),
            error: answer(at),
        })
        .collect();
    let standing = (0..25)
        .map(|at| Standing {
            what: format!("offices/{at}/2026-10 {HOSTILE}"),
            since: text(ago(5_000)),
        })
        .collect();
    status.verified = Some(Verified {
        at: text(ago(500_000)),
        comparisons: 1_460,
        differences: 25,
        unsettled: 2,
        not_compared: 3,
        standing,
    });
    status.runs = vec![run("failed"), run("different"), run("incomplete"), Run::default()];
    status.feeds_held_until = Some(text(ago(-900)));
    let lag = Lag {
        what: "the change feed of cases was last polled completely 340 s ago".to_owned(),
        error: Some(format!("cannot reach https://brokerage.invalid/: {HOSTILE}")),
    };
    facts.feeds = Feeds::Stalled(lag);
    facts.health = Health::Differs;
    facts.since = Some(ago(5_000));
    facts.doing = Some(Now {
        what: format!("listing {HOSTILE}"),
        counts: Counts {
            done: 3_000,
            planned: 12_345,
            rows: 99_000,
            committed: 98_000,
            calls: 7_000,
        },
        left: Some(Duration::from_secs(3_000)),
    });
    facts.disk = Some(Disk { free: 2 << 30, size: 250 << 30 });
    facts.unbelieved = Unbelieved { doubted: 3, held: 2, months: 1 };
    facts.without_control = 12;
    facts.restated.changes = 40;
    facts.failing = vec![Failing {
        table: "costs".to_owned(),
        scopes: 12,
        attempts: 78,
        first: Some(ago(7_300)),
        next_try: Some(ago(-100)),
    }];
    facts.errors = (0..12)
        .map(|at| RunError {
            first: ago(100 * at + 50),
            last: ago(100 * at),
            runs: 3,
            error: format!("the source does not answer\n{HOSTILE} {}", &NAMES[at as usize..]),
        })
        .collect();
    let all = [
        "failing",
        "doubted",
        "incomplete",
        "missing",
        "forbidden",
        "absent",
        "open",
        "complete",
        "none",
    ];
    let name = |at| {
        if at % 3 == 0 { HOSTILE.repeat(4) } else { format!("Kontor {at} i en by med langt navn") }
    };
    let mut reports = reports(|at, month| all[(at + month) % all.len()], name);
    reports.closed = (5_520, 7);
    (facts, reports)
}

/// Every page, by name.
fn pages() -> Vec<(&'static str, String)> {
    let all_well = || {
        reports(
            |_, month| if month == 23 { "open" } else { "complete" },
            |at| format!("Kontor {at}"),
        )
    };
    let mut filling = well();
    filling.health = Health::Filling;
    filling.status.complete = false;
    filling.status.verified = None;
    filling.status.waiting =
        vec!["table_01 (5 scopes), table_02 (7 scopes): never fetched".to_owned()];
    filling.doing = Some(Now {
        what: "fetching".to_owned(),
        counts: Counts { done: 300, planned: 9_000, rows: 12_000, committed: 11_000, calls: 300 },
        left: Some(Duration::from_secs(250_000)),
    });
    let (facts, reports) = broken();
    let page = |facts: &Facts, reports: &Reports| of(facts, reports, true).into_string();
    vec![
        ("empty", page(&empty(), &Reports::default())),
        ("filling", page(&filling, &all_well())),
        ("well", page(&well(), &all_well())),
        ("broken", page(&facts, &reports)),
        ("trouble", super::of_trouble(HOSTILE, true).into_string()),
    ]
}

/// What stands between two marks, each time.
fn between<'p>(page: &'p str, before: &str, after: &str) -> Vec<&'p str> {
    let rest = page.split(before).skip(1);
    rest.map(|rest| rest.split(after).next().unwrap()).collect()
}

#[test]
fn what_the_platform_says_is_text_and_no_page_asks_for_anything() {
    for (name, page) in pages() {
        // Only what the page's policy allows.
        for forbidden in ["<script", " style=", " on", "javascript:", "\u{1b}", "\u{202e}"] {
            let tags = between(&page, "<", ">");
            assert!(!tags.iter().any(|tag| tag.contains(forbidden)), "{name}: {forbidden}");
        }
        assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{name}");
        assert_eq!(page.matches("<style>").count(), 1, "{name}");
        let foreign = ["broken", "trouble"].contains(&name);
        assert_eq!(page.contains("&lt;script&gt;alert(1)"), foreign, "{name}");
        assert!(page.contains("http-equiv=\"refresh\""), "{name}");
    }
    let still = of(&empty(), &Reports::default(), false).into_string();
    assert!(!still.contains("http-equiv"), "for who reads it slowly");
    assert!(super::POLICY.contains("default-src 'none'; style-src 'sha256-"), "{}", *super::POLICY);
    assert!(!super::POLICY.contains("unsafe"));
}

#[test]
fn headings_tables_and_cells_say_what_they_are_to_who_hears_them() {
    for (name, page) in pages() {
        let all: Vec<&str> = between(&page, " id=\"", "\"");
        let ids: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), ids.len(), "{name}: {all:?}");
        let named = between(&page, " aria-labelledby=\"", "\"");
        let targets = between(&page, "href=\"#", "\"");
        for id in named.iter().chain(&targets) {
            assert!(ids.contains(id), "{name}: {id}");
        }
        assert_eq!(page.matches("<section").count(), named.len(), "{name}");
        assert_eq!(page.matches("<h1>").count(), 1, "{name}");
        for header in between(&page, "<th", ">").iter().filter(|tag| !tag.starts_with("ead")) {
            assert!(header.contains("scope=\""), "{name}: {header}");
        }
        assert_eq!(page.matches("<table").count(), page.matches("<caption").count(), "{name}");
        // What is drawn is not read, and what stands beside it is.
        for svg in between(&page, "<svg", ">") {
            assert!(svg.contains("aria-hidden=\"true\""), "{name}: {svg}");
        }
        for cell in between(&page, "<td class=\"cell", "</td>") {
            assert!(cell == "\">" || cell.contains("<span>"), "{name}: {cell}");
        }
    }
}

#[test]
fn the_headline_says_what_is_being_fetched() {
    let headline = |pending: usize| {
        let mut facts = well();
        facts.status.tables[3].pending = pending;
        let page = of(&facts, &Reports::default(), true).into_string();
        between(&page, "<title>", "</title>")[0].to_owned()
    };
    assert!(headline(0).contains("The mirror is complete and in step"));
    assert!(headline(1).contains("The mirror is complete; 1 change is being fetched"));
    assert!(headline(1_200).contains("The mirror is complete; 1,200 changes are being fetched"));
}

#[test]
fn each_question_is_answered_for_a_mirror_that_is_well() {
    let (_, page) = pages().into_iter().find(|(name, _)| *name == "well").unwrap();
    for words in [
        "<title>✓ The mirror is complete and in step – casemirror</title>",
        "So since <strong><time datetime=\"2026-11-13T06:43:20Z\">2026-11-13 07:43:20 CET</time></strong> (<time",
        "1,460 comparisons, none differs",
        " is proven to be in: the feed is read 10m behind (<code>feed.overlap</code>)",
        "4 of 6 in the last 30 s",
        "5,520 closed, none changed since",
        "60 offices, 24 months: 1,380 complete, 60 open.",
        "Nothing: all that is known is done.",
        "None that is known of.",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }
    assert!(!page.contains("Needs attention") && !page.contains("<h2 id=\"differences"), "{page}");
    for at in 0..45 {
        assert!(page.contains(&format!("<th scope=\"row\">{}</th>", table(at).table)), "{at}");
    }
    assert_eq!(page.matches("class=\"cell complete\"><span>complete</span></td>").count(), 1_380);
}

#[test]
fn everything_that_is_wrong_is_said_and_long_lists_end() {
    let (_, page) = pages().into_iter().find(|(name, _)| *name == "broken").unwrap();
    for words in [
        "≠ The mirror differs from the source in 25 controls",
        "<summary>20 more</summary>",
        "the change feed of cases was last polled completely 340 s ago: cannot reach",
        "the disk of the store fills: 2.00 GiB are free",
        "and 12 more: <code>casemirror status</code>",
        "<summary>57 more</summary>",
        "<strong>25 differ</strong>",
        "3 could not be read; all were",
        "12 months without a sum that matches",
        "3 answers lack much of what is mirrored, 1 month of journals",
        "the removals of 2 answers",
        "68 in 4 tables",
        "<strong>7 changed since</strong>; 40 changes in 30 days",
        "41 read, 1 failing, 1 forbidden, 1 absent, 1 disabled",
        "98,000 committed, 7,000 calls",
        "3,000 of 12,345 scopes",
        "12 scopes, 78 attempts",
        "the next try at <time datetime=\"2026-11-24T20:31:40Z\">",
        "<span class=\"off\">killed</span>",
        "title=\"2025-01, doubted: ",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }
    // What fails comes first.
    let tables = &page[page.find("id=\"tables\"").unwrap()..];
    let at = |table: &str| tables.find(table).unwrap();
    assert!(at("table_05_") < at("table_00_") && at("table_14_") > at("table_44_"));
}

#[test]
fn a_fault_is_told_once_whoever_tells_of_it_and_as_it_is_on_demand() {
    let mut facts = well();
    let error = |case: i64, attempt: i64| {
        format!(
            "GET https://brokerage.invalid/api/Cases/{case}/Costs?$top=50 failed (attempt {attempt} of 5): 500"
        )
    };
    let table = &mut facts.status.tables[4];
    (table.table, table.status) = ("costs".to_owned(), "failing");
    table.reason = Some(error(1, 5));
    let failed = |count, case| {
        format!("costs: {count} scopes failed and will be tried again: {}", error(case, 5))
    };
    facts.status.problems = vec![format!("costs is failing: {}", error(1, 5)), failed(2, 1017)];
    let failure = |scope| Failure {
        table: "costs".to_owned(),
        scope,
        error: error(scope, 3),
        ..Failure::default()
    };
    facts.status.failures = vec![failure(1_017), failure(1_018)];
    let (first, next_try) = (Some(ago(7_300)), Some(ago(10)));
    facts.failing =
        vec![Failing { table: "costs".to_owned(), scopes: 2, attempts: 7, first, next_try }];
    let run = |seconds: i64, error: String| RunError {
        first: ago(seconds),
        last: ago(seconds),
        runs: 1,
        error,
    };
    facts.errors = vec![
        run(300, format!("costs is failing: {}\n{}", error(2, 5), failed(3, 1_017))),
        run(900, failed(9, 1_019)),
        run(90_000, "the disk is full\nnotes: 3 open rejects, see sync.rejects".to_owned()),
        run(95_000, "the disk is full".to_owned()),
    ];
    facts.status.waiting = vec![
        format!("costs (2 scopes): {}", error(1_018, 3)),
        format!("notes (1 scope): {}", error(3, 1)),
        "costs (5 scopes): changed".to_owned(),
    ];
    let page = of(&facts, &Reports::default(), true).into_string();
    let section = |id: &str| between(&page, &format!("<section id=\"{id}\""), "</section>")[0];
    let attention = section("attention");
    assert_eq!(attention.matches("<li class=\"warns\">").count(), 1, "{attention}");
    let (seen, full) = attention.split_once("<details").unwrap();
    for words in [
        "GET /api/Cases/1/Costs failed (attempt 5 of 5): 500",
        "2 scopes, 7 attempts; 2 runs ended with it; first ",
        ">2 h ago</time>, last ",
        ">5 min ago</time>; the next try is due",
    ] {
        assert!(seen.contains(words), "{words}\n{seen}");
    }
    assert!(!seen.contains("brokerage.invalid") && !seen.contains("$top"), "{seen}");
    // Whatever was told is there, as it is.
    for text in facts.status.problems.iter().chain(facts.status.failures.iter().map(|f| &f.error)) {
        assert!(full.contains(text.as_str()), "{text}\n{full}");
    }
    let earlier = section("errors");
    let disk = "<bdi>the disk is full</bdi><span class=\"quiet\"> – 2 runs ended with it; first ";
    assert!(earlier.contains(disk) && earlier.contains("3 open rejects"), "{earlier}");
    assert!(!earlier.contains("Costs"), "{earlier}");
    assert!(!section("tables").contains("Costs failed"), "it stands above");
    let now = section("now");
    assert!(now.contains("notes (1 scope): GET /api/Cases/3/Costs failed"), "{now}");
    assert!(now.contains("costs (5 scopes): changed"), "{now}");
    assert!(!now.contains("costs (2 scopes)"), "it stands above\n{now}");
}

/// The platform is down: nothing is gained by one entry for each of 45 tables.
#[test]
fn what_the_calls_of_many_tables_feeds_and_runs_meet_with_is_one_fault() {
    let mut facts = well();
    let failed = |table: &str, answered: &str| {
        format!(
            "{table}: 7 scopes failed and will be tried again: GET https://brokerage.invalid/api/{table} failed \
             (attempt 5 of 5, after 2.0 s): {answered}"
        )
    };
    let down = "it answered 503";
    let tables = ["costs", "notes", "leads"];
    facts.status.problems = tables.map(|table| failed(table, down)).to_vec();
    let of_feed =
        failed("cases", down).replace("cases: 7 scopes failed and will be tried again", "the feed");
    facts.status.problems.push(of_feed.clone());
    facts.status.problems.push(failed("checklists", "it sent half an answer"));
    let failing = |(at, table): (usize, &str)| Failing {
        table: table.to_owned(),
        scopes: 7,
        attempts: 35,
        first: Some(ago(600)),
        next_try: Some(ago(-60 * i64::try_from(at).unwrap() - 60)),
    };
    facts.failing = tables.into_iter().enumerate().map(failing).collect();
    let lines = |facts: &Facts| {
        let page = of(facts, &Reports::default(), true).into_string();
        let attention = between(&page, "<section id=\"attention\"", "</section>")[0].to_owned();
        attention.split("<li class=\"warns\">").skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let [alike, other] = &lines(&facts)[..] else { panic!("{:?}", lines(&facts)) };
    let (seen, full) = alike.split_once("<details").unwrap();
    for words in ["4 things fail alike: it answered 503", "21 scopes, 105 attempts"] {
        assert!(seen.contains(words), "{words}\n{seen}");
    }
    assert!(seen.contains("the next try at <time datetime=\"2026-11-24T20:31:00Z\">"), "{seen}");
    assert!(tables.iter().all(|table| full.contains(&failed(table, down))), "{full}");
    assert!(full.contains(&of_feed), "{full}");
    assert!(other.contains("it sent half an answer"), "{other}");
    // Two may be a coincidence.
    facts.status.problems.drain(..2);
    assert_eq!(lines(&facts).len(), 3);
}

/// For who wants to look at them: `WRITE_PAGES=DIR cargo test --release --lib http::page`.
#[test]
fn pages_are_whole() {
    for (name, page) in pages() {
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{name}");
        if let Some(folder) = std::env::var_os("WRITE_PAGES") {
            let file = std::path::Path::new(&folder).join(format!("{name}.html"));
            std::fs::write(file, page).unwrap();
        }
    }
}
