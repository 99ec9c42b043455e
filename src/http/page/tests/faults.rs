//! What fails, told once.

use super::mirrors::{ago, well};
use super::{between, of};
use crate::http::facts::{Facts, Failing, Reports, RunError};
use crate::status::Failure;

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
