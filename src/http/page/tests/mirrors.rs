//! Made-up mirrors: one that has just begun, one that is well, one in which everything is wrong.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

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

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// As the status has it.
fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A daemon that has just begun: nothing is known.
pub(super) fn empty() -> Facts {
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
        is_ready: false,
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

pub(super) fn table(at: usize) -> Table {
    Table {
        table: format!("table_{at:02}_with_a_name"),
        status: "ok",
        since: Some(text(ago(90_000))),
        rows: 12_345 * i64::try_from(at).unwrap(),
        last_change: Some(text(ago(3_700))),
        last_checked: Some(text(ago(40))),
        is_asked: true,
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
        is_ready: true,
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
    let signed = months
        .iter()
        .zip(20..)
        .map(|(month, cases)| Signed { month: month.clone(), cases: Some(cases) });
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
        (table.pending, table.rejected, table.is_asked) = (1_200, 17, name == "failing");
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
        not_compared: 5,
        left_out: 2,
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
pub(super) fn pages() -> Vec<(&'static str, String)> {
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
    let page = |facts: &Facts, reports: &Reports| super::of(facts, reports, true).into_string();
    vec![
        ("empty", page(&empty(), &Reports::default())),
        ("filling", page(&filling, &all_well())),
        ("well", page(&well(), &all_well())),
        ("broken", page(&facts, &reports)),
        ("trouble", super::super::of_trouble(HOSTILE, true).into_string()),
    ]
}
