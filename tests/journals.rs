//! Journals, line by line: equal to the source's at every level, and exact in what changed.

use casemirror::sandbox::{
    Act, Control, Fault, HeavyAnswer, HeavyJournal, Journal, JournalEdit, JournalPaging, Level,
    Options, Rule,
};
use duckdb::Connection;
use rstest::rstest;

use crate::support::journals::{
    FEED, OFFICE, edit, mirrored, month, options, read_again, restatements, rows,
};
use crate::support::scripted::fault;
use crate::support::{World, differences_of, one, shown};

/// The journals' tables, with annotations and sums.
const JOURNALS: [&str; 7] = [
    "case_journals",
    "case_journal_annotations",
    "depot_journals",
    "revenue_journals",
    "revenue_journal_annotations",
    "revenue_journal_sums",
    "settlement_journals",
];

fn history(conn: &Connection) -> i64 {
    ["case_journals", "revenue_journals", "revenue_journal_annotations"]
        .iter()
        .map(|table| one::<i64>(conn, &format!("SELECT count(*) FROM history.{table}")))
        .sum()
}

#[rstest]
#[case::offices("offices", Level::Offices)]
#[case::broker_companies("broker_companies", Level::BrokerCompanies)]
#[case::chain("chain", Level::Chain)]
fn two_years_of_journals_equal_the_source_at_every_level(#[case] level: &str, #[case] of: Level) {
    let world = mirrored(options(40), 23, &format!("[journals]\nlevel = \"{level}\"\n"));
    let state = world.sandbox.journal_tables(of, None, &JOURNALS);
    for table in JOURNALS {
        assert!(!state["tables"][table].as_array().unwrap().is_empty(), "{table} has no rows");
    }
    let differing = differences_of(&world.store(), &state);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    let conn = world.published();
    let scopes: i64 = one(&conn, "SELECT count(DISTINCT journal_id) FROM report.journal_coverage");
    let covered = rows(
        &conn,
        "SELECT status, sum_matches, count(*) FROM report.journal_coverage GROUP BY ALL ORDER BY ALL",
    );
    assert_eq!(
        covered,
        [
            format!("complete | true | {}", 23 * scopes),
            format!("complete | {}", 4 * 23 * scopes),
            // The month that is not over.
            format!("open | true | {scopes}"),
            format!("open | {}", 4 * scopes),
        ]
    );
    let revenue = rows(
        &conn,
        "SELECT count(*), sum(payment) = (SELECT sum(payment) FROM revenue_journals), \
           sum(lines) = (SELECT count(*) FROM revenue_journals) FROM report.revenue_by_month",
    );
    assert!(revenue[0].ends_with(" | true | true"), "{revenue:?}");
    assert_eq!(restatements(&world), [""; 0]);
}

#[test]
fn a_line_on_top_of_ten_thousand_is_one_restatement_and_no_version_of_any_other() {
    let lines = Options { journal_lines: Some(10_000), ..options(10) };
    let closed = month(2);
    let world = mirrored(lines, 2, &format!("[journals]\nids = [{OFFICE}]\n"));
    let count =
        format!("SELECT count(*) FROM revenue_journals WHERE journal_month = '{closed}-01'");
    assert_eq!(one::<i64>(&world.store(), &count), 10_000);

    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Inserted, None);
    read_again(&world, &closed);
    let store = world.store();
    assert_eq!(one::<i64>(&store, &count), 10_001);
    assert_eq!(history(&store), 0);
    let stamps = format!(
        "SELECT count(DISTINCT _synced_at) FROM revenue_journals WHERE journal_month = '{closed}-01'"
    );
    assert_eq!(one::<i64>(&store, &stamps), 2, "all others keep their time");
    drop(store);
    assert_eq!(restatements(&world), ["revenue_journals | added"]);
    let state = world.sandbox.journal_tables(
        Level::Offices,
        Some(&closed),
        &["revenue_journals", "revenue_journal_annotations"],
    );
    let differing: Vec<String> = differences_of(&world.store(), &state)
        .into_iter()
        .filter(|line| line.contains(&format!("\"offices\"/{OFFICE}/\"{closed}")))
        .collect();
    assert_eq!(differing, [""; 0]);
}

#[test]
fn an_edited_amount_in_a_closed_month_shows_with_before_and_after() {
    let closed = month(2);
    let world = mirrored(options(40), 2, "");
    let amount = format!(
        "SELECT payment FROM revenue_journals WHERE journal_id = {OFFICE} \
         AND journal_month = '{closed}-01' AND line_number = 1"
    );
    let as_text = |conn: &Connection| {
        one::<String>(conn, &format!("SELECT payment::VARCHAR FROM ({amount})"))
    };
    let before = as_text(&world.store());
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    read_again(&world, &closed);
    let after = as_text(&world.store());
    assert_ne!(before, after);
    assert_eq!(
        restatements(&world),
        [format!("revenue_journals | changed | payment | {before} | {after}")]
    );
    let version = "SELECT payment::VARCHAR || ' ' || _change FROM history.revenue_journals";
    assert_eq!(rows(&world.store(), version), [format!("{before} updated")]);
    world.assert_equal();
}

#[test]
fn reading_a_month_again_changes_nothing() {
    let closed = month(2);
    let world = mirrored(options(40), 2, "");
    let counters = |world: &World| {
        rows(&world.store(), "SELECT table_name, part, counter FROM sync.changes ORDER BY ALL")
    };
    let before = counters(&world);
    let said = read_again(&world, &closed);
    assert!(said.contains("rows: 0 inserted, 0 updated, 0 deleted"), "{said}");
    assert_eq!(counters(&world), before);
}

#[test]
fn annotations_are_restated_cell_by_cell() {
    let closed = month(2);
    let world = mirrored(Options { journal_lines: Some(40), ..options(10) }, 2, "");
    let annotated = format!(
        "SELECT line_number FROM revenue_journals l WHERE journal_id = {OFFICE} \
           AND journal_month = '{closed}-01' AND EXISTS (SELECT 1 FROM revenue_journal_annotations a \
             WHERE a.journal_id = l.journal_id AND a.journal_month = l.journal_month \
               AND a.line_number = l.line_number) ORDER BY 1 LIMIT 1"
    );
    let line = usize::try_from(one::<i64>(&world.store(), &annotated)).unwrap();
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::AnnotationEdited, Some(line));
    read_again(&world, &closed);
    let told = restatements(&world);
    assert!(
        told.iter().any(|t| t.starts_with("revenue_journals | changed | annotations[1].payment_change | ")),
        "{told:?}"
    );
    assert!(told.iter().all(|t| t.contains("annotations[1].")), "{told:?}");
    let versions = "SELECT count(*) FROM history.revenue_journal_annotations";
    assert_eq!(one::<i64>(&world.store(), versions), 1);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM history.revenue_journals"), 0);
    world.assert_equal();
}

/// Whatever is edited, the mirror is the source again, and only what was closed is restated.
#[test]
fn after_every_kind_of_edit_the_journals_are_equal_again() {
    let world = mirrored(options(60), 3, "");
    let (open, closed) = (month(0), month(2));
    for month in [&open, &closed] {
        for journal in [
            Journal::CaseJournals,
            Journal::DepotJournals,
            Journal::RevenueJournals,
            Journal::SettlementJournals,
        ] {
            for change in [
                JournalEdit::Amount,
                JournalEdit::Inserted,
                JournalEdit::Late,
                JournalEdit::Doubled,
                JournalEdit::Annotated,
                JournalEdit::AnnotationEdited,
                JournalEdit::AnnotationRemoved,
                JournalEdit::Removed,
                JournalEdit::Appended,
            ] {
                let act = Act::Journal {
                    journal,
                    office_id: OFFICE,
                    month: month.clone(),
                    edit: change,
                    line: None,
                };
                // Not every journal has annotations.
                if world.sandbox.act(&act).is_ok() {
                    read_again(&world, month);
                    world.assert_equal();
                }
            }
        }
    }
    let months = rows(
        &world.store(),
        "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM report.journal_restatements",
    );
    assert_eq!(months, [closed]);
}

#[test]
fn a_journal_too_heavy_for_one_call_is_read_in_parts_and_remembered_as_such() {
    let heavy = HeavyJournal { office_id: OFFICE, days: 7, answer: HeavyAnswer::GatewayTimeout };
    let world = mirrored(Options { heavy_journal: Some(heavy), ..options(40) }, 2, "");
    world.assert_equal();
    let status = "SELECT DISTINCT status FROM report.journal_coverage ORDER BY 1";
    assert_eq!(rows(&world.store(), status), ["complete", "open"]);
    let refused = |world: &World| {
        world.sandbox.stats().log.into_iter().filter(|call| call.status == 504).count()
    };
    // The whole month, a half and a quarter of it: five attempts each, once for each of four journals.
    assert!(refused(&world) <= 3 * 5 * 4, "{} calls were too much", refused(&world));

    // Neither of a month that was read before, nor of one that was not.
    for month in [month(1), month(4)] {
        world.sandbox.reset_stats();
        read_again(&world, &month);
        assert_eq!(refused(&world), 0, "what was too much is not asked again");
    }
}

#[rstest]
#[case::in_pages(JournalPaging::SkipTop)]
#[case::cut_and_skips(JournalPaging::Truncates { lines: 100, skips: true })]
fn journals_are_whole_however_they_are_paged(#[case] journal_paging: JournalPaging) {
    let lines = Options { journal_paging, journal_lines: Some(250), ..options(10) };
    let world = mirrored(lines, 1, "");
    world.assert_equal();
}

/// Cut to a round number without a word, and `$skip` ignored: halves show it.
#[test]
fn a_journal_that_is_cut_short_is_read_in_days() {
    let paging = JournalPaging::Truncates { lines: 100, skips: false };
    let lines = Options { journal_paging: paging, journal_lines: Some(250), ..options(10) };
    let world = World::with(lines);
    world.journals_since(&format!("{}-01", month(1)));
    world.configure(&format!("{FEED}[journals]\nids = [{OFFICE}]\n"));
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let covered = format!(
        "SELECT lines, status, sum_matches FROM report.journal_coverage \
         WHERE journal = 'revenue_journals' AND journal_month = DATE '{}-01'",
        month(1)
    );
    assert_eq!(rows(&world.store(), &covered), ["250 | complete | true"]);
}

#[test]
fn a_month_that_fails_for_one_office_is_visibly_missing_and_stops_nothing() {
    let world = World::with(options(20));
    world.configure(FEED);
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let fault = Fault::Refuse { status: 400, headers: [].into(), body: String::new() };
    world.sandbox.fault(Rule { method: None, path, query: None, nth: 1, count: None, fault });
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let broken = "SELECT DISTINCT journal, journal_id, status, read_at FROM report.journal_coverage \
                  WHERE status NOT IN ('complete', 'open')";
    assert_eq!(
        rows(&world.published(), broken),
        [format!("revenue_journals | {OFFICE} | failing")]
    );
    let status = world.run(&["status"]);
    assert_eq!(status.status.code(), Some(3));
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("revenue_journals"), "{said}");

    world.sandbox.clear_faults();
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert_eq!(rows(&world.published(), broken), [""; 0]);
    world.assert_equal();
}

#[test]
fn journals_that_nobody_has_are_absent_and_no_failure() {
    let world = World::with(options(12));
    world.configure(FEED);
    for journal in [
        "CaseJournals",
        "DepotJournals",
        "RevenueJournals",
        "RevenueJournals/Sum",
        "SettlementJournals",
    ] {
        let fault = Fault::Refuse { status: 404, headers: [].into(), body: String::new() };
        let path = format!("/api/Offices/*/{journal}");
        world.sandbox.fault(Rule { method: None, path, query: None, nth: 1, count: None, fault });
    }
    world.sync();
    let absent = "SELECT table_name FROM sync.resources WHERE status = 'absent' ORDER BY 1";
    assert_eq!(
        rows(&world.store(), absent),
        [
            "case_journal_annotations",
            "case_journals",
            "depot_journals",
            "revenue_journal_annotations",
            "revenue_journal_sums",
            "revenue_journals",
            "settlement_journals"
        ]
    );
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

#[test]
fn an_office_without_a_journal_that_others_have_has_no_lines_and_is_no_failure_for_ever() {
    let world = World::with(options(12));
    world.configure(FEED);
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    let fault = Fault::Refuse { status: 404, headers: [].into(), body: String::new() };
    world.sandbox.fault(Rule { method: None, path, query: None, nth: 1, count: None, fault });
    world.run(&["sync"]);
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let covered = format!(
        "SELECT DISTINCT status, lines FROM report.journal_coverage WHERE journal_id = {OFFICE} \
         AND journal = 'depot_journals' ORDER BY ALL"
    );
    assert_eq!(rows(&world.published(), &covered), ["complete | 0", "open | 0"]);
    let output = world.run(&["verify", "--sample", "0"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "it has none, and none is mirrored: {}",
        shown(&output)
    );
    world.sandbox.clear_faults();
    world.configure(&format!("{FEED}[schedule]\njournals = \"* * * * * *\"\n"));
    world.sync();
    world.assert_equal();
}

#[test]
fn what_failed_at_another_level_is_let_go_when_the_level_changes() {
    let world = World::with(options(12));
    world.configure(FEED);
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let fault = Fault::Refuse { status: 400, headers: [].into(), body: String::new() };
    world.sandbox.fault(Rule { method: None, path, query: None, nth: 1, count: None, fault });
    assert_eq!(world.run(&["sync"]).status.code(), Some(3));
    world.configure(&format!(
        "{FEED}[journals]\nlevel = \"chain\"\n[schedule]\njournals = \"* * * * * *\"\n"
    ));
    world.sync();
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures"), 0);
    // What was never read of it is not missing any more.
    let covered = "SELECT DISTINCT status FROM report.journal_coverage ORDER BY 1";
    assert_eq!(rows(&world.published(), covered), ["complete", "open"]);
}

/// An answer that is wrong and looks right is found by the platform's own sum.
#[test]
fn lines_that_do_not_add_up_are_read_again() {
    let world = World::with(options(40));
    world.configure(FEED);
    let fault = Fault::Garbage { body: "[]".to_owned(), status: None, content_type: None };
    world.sandbox.fault(Rule {
        method: Some("GET".to_owned()),
        path: format!("/api/Offices/{OFFICE}/RevenueJournals"),
        query: None,
        nth: 1,
        count: Some(1),
        fault,
    });
    world.sync();
    world.assert_equal();
    let off = "SELECT count(*) FROM report.journal_coverage WHERE NOT sum_matches";
    assert_eq!(one::<i64>(&world.store(), off), 0);
}

#[test]
fn the_schedules_read_the_trailing_months_and_recheck_the_older_ones() {
    let world = mirrored(options(12), 5, "");
    let offices: u64 = one::<i64>(&world.store(), "SELECT count(*) FROM offices").unsigned_abs();
    let asked = |schedule: &str| {
        world.configure(&format!(
            "{FEED}[schedule]\n{schedule} = \"* * * * * *\"\n[journals]\ntrailing_months = 2\n\
             recheck_months = 4\n"
        ));
        world.sandbox.reset_stats();
        world.sync();
        let stats = world.sandbox.stats();
        let of = |end: &str| {
            stats.log.iter().filter(|call| call.path.ends_with(end)).count() as u64 / offices
        };
        (of("/CaseJournals"), of("/RevenueJournals"), of("/RevenueJournals/Sum"))
    };
    assert_eq!(asked("journals"), (2, 2, 2));
    assert_eq!(asked("journals_recheck"), (4, 4, 6));
    world.configure(FEED);
    world.sandbox.reset_stats();
    world.sync();
    assert!(world.sandbox.stats().log.iter().all(|call| !call.path.contains("Journals")));
    world.assert_equal();
}

/// Months of `report.journal_coverage`: journal, level, status, how many, with lines.
fn coverage(world: &World) -> Vec<String> {
    rows(
        &world.published(),
        "SELECT journal_level, status, count(*), count(DISTINCT journal), sum(lines) > 0 \
         FROM report.journal_coverage GROUP BY ALL ORDER BY ALL",
    )
}

#[test]
fn coverage_has_the_months_of_the_configured_level_and_no_others() {
    let world = mirrored(options(20), 1, "");
    let offices = one::<i64>(&world.store(), "SELECT count(*) FROM offices");
    // A month that is over and one that is not, of four journals and the sums.
    let of_offices =
        ["complete", "open"].map(|s| format!("offices | {s} | {} | 5 | true", 5 * offices));
    assert_eq!(coverage(&world), of_offices);

    world.configure(&format!("{FEED}[journals]\nlevel = \"chain\"\n"));
    world.sync();
    let of_chain = ["complete", "open"].map(|s| format!("chain | {s} | 5 | 5 | true"));
    assert_eq!(coverage(&world), of_chain);
    let lines = "SELECT count(DISTINCT journal_level) FROM main.revenue_journals";
    assert_eq!(one::<i64>(&world.store(), lines), 1, "those of the offices are history");

    world.configure(FEED);
    world.sync();
    assert_eq!(coverage(&world), of_offices);
}

#[test]
fn coverage_says_of_journals_that_were_never_readable_why_they_are_not_there() {
    let world = World::with(options(20));
    world.journals_since(&format!("{}-01", month(1)));
    let permission = || "OfficeAdministration - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission: permission() });
    // Of these no permission is documented; the refusal names one.
    for path in ["/api/Offices/*/RevenueJournals*", "/api/Offices/*/SettlementJournals"] {
        let body = serde_json::json!({ "MissingPermissions": [permission()] }).to_string();
        let refuse = Fault::Refuse { status: 403, headers: [].into(), body };
        world.sandbox.fault(fault(path, None, refuse));
    }
    world.configure(&format!("{FEED}[resources]\ndisable = [\"depot_journals\"]\n"));
    world.sync();
    let offices = one::<i64>(&world.store(), "SELECT count(*) FROM offices");
    assert!(offices > 0);
    let months = 2 * offices;
    assert_eq!(
        coverage(&world),
        [
            format!("offices | disabled | {months} | 1 | false"),
            format!("offices | forbidden | {} | 4 | false", 4 * months),
        ]
    );
    let read = "SELECT count(read_at) + count(sum_matches) FROM report.journal_coverage";
    assert_eq!(one::<i64>(&world.published(), read), 0);

    // Allowed and enabled they are read at once: what should be there is known.
    world.sandbox.control(Control::Grant { permission: permission() });
    world.sandbox.clear_faults();
    world.configure(&format!("{FEED}[schedule]\nreference = \"* * * * * *\"\n"));
    world.sync();
    let read = ["complete", "open"].map(|s| format!("offices | {s} | {} | 5 | true", 5 * offices));
    assert_eq!(coverage(&world), read);
    world.assert_equal();
}

/// As of then: every annotated line with its annotations, joined by the line's name.
fn annotated_as_of(conn: &Connection, month: &str, then: &str) -> Vec<String> {
    let as_of = |table: &str| {
        format!(
            "SELECT * EXCLUDE (_valid_from, _valid_to, _change) FROM history.{table} \
               WHERE _valid_from <= '{then}' AND _valid_to > '{then}' \
             UNION ALL BY NAME SELECT * FROM main.{table} WHERE _synced_at <= '{then}'"
        )
    };
    rows(
        conn,
        &format!(
            "SELECT l.revenue_referral_key, l.payment, a.position, a.payment_change \
             FROM ({}) l JOIN ({}) a USING (journal_level, journal_id, journal_month, line_id) \
             WHERE journal_id = {OFFICE} AND journal_month = '{month}-01' ORDER BY ALL",
            as_of("revenue_journals"),
            as_of("revenue_journal_annotations")
        ),
    )
}

#[test]
fn annotations_of_the_past_are_those_of_their_lines_after_an_insertion() {
    let closed = month(2);
    let lines = Options { journal_lines: Some(40), ..options(10) };
    let world = mirrored(lines, 2, &format!("[journals]\nids = [{OFFICE}]\n"));
    let now = || {
        let store = world.store();
        one::<String>(&store, "SELECT max(ended_at)::VARCHAR FROM sync.runs")
    };
    let annotated = {
        let store = world.store();
        let sql = format!(
            "SELECT DISTINCT line_number FROM revenue_journal_annotations \
             WHERE journal_id = {OFFICE} AND journal_month = '{closed}-01' ORDER BY 1 LIMIT 1"
        );
        usize::try_from(one::<i64>(&store, &sql)).unwrap()
    };
    let mut states = Vec::new();
    let mut keep = |world: &World| {
        let then = now();
        let state = annotated_as_of(&world.store(), &closed, &then);
        assert!(!state.is_empty());
        states.push((then, state));
    };
    keep(&world);
    // The annotation's version ends, and then its line moves down.
    let revenue = Journal::RevenueJournals;
    for (change, line) in [
        (JournalEdit::AnnotationEdited, Some(annotated)),
        (JournalEdit::Inserted, None),
        (JournalEdit::AnnotationRemoved, Some(annotated + 1)),
        (JournalEdit::Removed, Some(annotated + 1)),
    ] {
        edit(&world, &closed, revenue, change, line);
        read_again(&world, &closed);
        keep(&world);
    }
    let store = world.store();
    for (then, state) in &states {
        assert_eq!(annotated_as_of(&store, &closed, then), *state, "as of {then}");
    }
    let distinct: std::collections::BTreeSet<_> = states.iter().map(|(_, state)| state).collect();
    assert!(distinct.len() >= 3, "the states differ: {states:?}");
    let whose = "SELECT count(*) FROM sync.restatements WHERE line_id IS NULL";
    assert_eq!(one::<i64>(&store, whose), 0);
}

#[test]
fn rows_of_another_level_leave_and_come_back() {
    let world = World::with(options(12));
    world.publish_snapshots();
    let chain = format!("{FEED}[journals]\nlevel = \"chain\"\n");
    world.configure(FEED);
    world.bootstrap();
    let levels = |world: &World, of: &str| {
        let count = format!("SELECT journal_level, count(*) FROM {of} GROUP BY ALL ORDER BY ALL");
        rows(&world.store(), &count)
    };
    let snapshot = format!(
        "read_parquet('{}/revenue_journals/*.parquet')",
        world.path("data/parquet/latest").display()
    );
    let offices = levels(&world, "main.revenue_journals");
    assert_eq!(offices.len(), 1, "{offices:?}");
    let names = "SELECT journal_id, journal_month, line_id, line_number FROM main.revenue_journals ORDER BY ALL";
    let given = rows(&world.store(), names);

    world.configure(&format!("{chain}[schedule]\njournals = \"* * * * * *\"\n"));
    world.sync();
    for table in JOURNALS {
        let there = levels(&world, &format!("main.{table}"));
        assert!(there.len() == 1 && there[0].starts_with("chain | "), "{table}: {there:?}");
    }
    assert_eq!(levels(&world, "history.revenue_journals"), offices);
    let published = levels(&world, &snapshot);
    assert!(published.len() == 1 && published[0].starts_with("chain | "), "{published:?}");
    assert_eq!(restatements(&world), [""; 0]);

    world.configure(FEED);
    world.sync();
    world.assert_equal();
    assert_eq!(levels(&world, &snapshot), offices);
    assert_eq!(restatements(&world), [""; 0], "what comes back was not restated");
    assert_eq!(rows(&world.store(), names), given, "a line has its name for good");
}
