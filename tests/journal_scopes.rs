//! The months of the journals as scopes: what makes one complete, which of them are wanted, and what is
//! said of those that cannot be had.

use std::process::Output;

use casemirror::sandbox::{
    Act, Fault, HeavyAnswer, HeavyJournal, Journal, JournalEdit, JournalPaging, Level, Options,
    Rule, When,
};
use duckdb::Connection;
use rstest::rstest;
use serde_json::Value;

use crate::support::follow::{
    Integrator, UNTHROTTLED, assert_status, lines, start, unthrottled, while_held,
};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, differences_of, one, shown};

/// Whose journals are edited or fail.
const OFFICE: i64 = 11;
/// An office whose journals have no lines at all seven months ago.
const QUIET: i64 = 12;
/// One journal alone is read.
const DEPOT_ONLY: &str = "[resources]\ndisable = [\"case_journals\", \"revenue_journals\", \
                          \"revenue_journal_sums\", \"settlement_journals\"]\n";
const JOURNALS_DUE: &str = "[schedule]\njournals = \"* * * * * *\"\n";
const RECHECK_DUE: &str = "[schedule]\njournals_recheck = \"* * * * * *\"\n";
const INCOMPLETE: &str = "SELECT DISTINCT journal, journal_id, status \
                          FROM report.journal_coverage WHERE status NOT IN ('complete', 'open')";

/// A month so many months ago, as `yyyy-mm`. Two months ago is always closed.
fn month(ago: i32) -> String {
    let first = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(ago);
    first.strftime("%Y-%m").to_string()
}

/// A brokerage whose journals are mirrored from so many months ago; nothing is read yet.
fn world(options: Options, months: i32, more: &str) -> World {
    let world = World::with(options);
    world.journals_since(&format!("{}-01", month(months)));
    world.configure(&format!("{UNTHROTTLED}{more}"));
    world
}

fn mirrored(options: Options, months: i32, more: &str) -> World {
    let world = world(options, months, more);
    world.bootstrap();
    world
}

fn edit(world: &World, month: &str, journal: Journal, edit: JournalEdit, line: Option<usize>) {
    let act = Act::Journal { journal, office_id: OFFICE, month: month.to_owned(), edit, line };
    world.sandbox.act(&act).unwrap();
}

/// `casemirror journals` of one month.
fn journals(month: &str, more: &[&str]) -> Vec<String> {
    let day = format!("{month}-01");
    let args = [&["journals", "--from", &day, "--to", &day], more].concat();
    args.into_iter().map(str::to_owned).collect()
}

fn run(world: &World, args: &[String]) -> Output {
    world.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn restatements(world: &World) -> Vec<String> {
    lines(
        &world.store(),
        "SELECT journal, change, column_name, before, after FROM report.journal_restatements \
         ORDER BY ALL",
    )
}

fn pending(world: &World) -> i64 {
    one(&world.store(), "SELECT count(*) FROM sync.pending")
}

fn open_rejects(conn: &Connection) -> i64 {
    one(conn, "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NULL")
}

/// A page is of another moment than the one before it. A line that comes or goes in between moves the
/// others: one of them would be on neither page, or on both, and nothing would tell.
#[rstest]
#[case::goes(JournalEdit::Removed, "removed")]
#[case::comes(JournalEdit::Inserted, "added")]
fn a_line_that_comes_or_goes_between_two_pages_loses_and_doubles_no_other(
    #[case] change: JournalEdit,
    #[case] told: &str,
) {
    let options = Options {
        journal_paging: JournalPaging::SkipTop,
        // Those of the depot are a tenth.
        journal_lines: Some(1_560),
        ..unthrottled(10)
    };
    let world = mirrored(options, 2, &format!("{DEPOT_ONLY}[journals]\nids = [{OFFICE}]\n"));
    let closed = month(2);
    world.sandbox.fault(Rule {
        method: None,
        path: format!("/api/Offices/{OFFICE}/DepotJournals"),
        query: Some("$skip=100".to_owned()),
        nth: 1,
        count: Some(1),
        fault: Fault::Hold { name: "second page".to_owned(), when: When::Before },
    });
    let args = journals(&closed, &[]);
    let child = start(&world, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let output = while_held(&world, child, "second page", || {
        let line = (told == "removed").then_some(5);
        edit(&world, &closed, Journal::DepotJournals, change, line);
    });
    assert_status(&output, 0);

    let of_office = format!("\"offices\"/{OFFICE}/\"{closed}");
    let state = world.sandbox.journal_tables(Level::Offices, Some(&closed), &["depot_journals"]);
    let mut differing = differences_of(&world.store(), &state);
    differing.retain(|difference| difference.contains(&of_office));
    assert_eq!(differing, [""; 0]);
    let restated = restatements(&world);
    assert_eq!(restated.len(), 1, "{restated:?}");
    assert!(restated[0].contains(told), "{restated:?}");
}

const NO_ANNOTATIONS: &str = "[resources]\ndisable = [\"revenue_journal_annotations\", \
                              \"case_journal_annotations\"]\n";
const ANNOTATIONS: &str = "SELECT string_agg(journal_id || '/' || line_id || '/' || position, ',' ORDER BY ALL) \
     FROM main.revenue_journal_annotations";

/// What was not read until now may have been there all the while.
#[test]
fn annotations_that_are_read_for_the_first_time_restate_no_closed_month() {
    let world = world(unthrottled(12), 2, NO_ANNOTATIONS);
    world.sync();
    let count = "SELECT count(*) FROM main.revenue_journal_annotations";
    assert_eq!(one::<i64>(&world.store(), count), 0);
    world.configure(UNTHROTTLED);
    world.sync();
    assert!(one::<i64>(&world.store(), count) > 0);
    world.assert_equal();
    assert_eq!(restatements(&world), [""; 0]);
    // From now on it is known.
    let closed = month(2);
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Annotated, None);
    assert_status(&run(&world, &journals(&closed, &[])), 0);
    let restated = restatements(&world);
    assert!(restated.iter().any(|told| told.contains("annotations[")), "{restated:?}");
}

#[test]
fn a_level_that_comes_back_has_the_annotations_that_are_not_read_any_more() {
    let world = world(unthrottled(12), 2, "");
    world.sync();
    let before: String = one(&world.store(), ANNOTATIONS);
    world.configure(&format!("{UNTHROTTLED}[journals]\nlevel = \"chain\"\n"));
    world.sync();
    world.configure(&format!("{UNTHROTTLED}{NO_ANNOTATIONS}"));
    world.sync();
    assert_eq!(one::<String>(&world.store(), ANNOTATIONS), before);
    world.configure(UNTHROTTLED);
    world.sync();
    assert_eq!(one::<String>(&world.store(), ANNOTATIONS), before);
    assert_eq!(restatements(&world), [""; 0]);
}

#[test]
fn a_month_that_was_let_go_while_it_failed_is_missing_again_when_it_is_wanted_again() {
    let world = world(unthrottled(12), 1, "");
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    world.sandbox.fault(fault(&path, None, refuse(400)));
    assert_status(&world.run(&["sync"]), 3);

    // Nobody wants it: it is no failure.
    world.configure(&format!("{UNTHROTTLED}{JOURNALS_DUE}[journals]\nids = [{QUIET}]\n"));
    world.sync();
    assert_status(&world.run(&["status"]), 0);
    assert_eq!(pending(&world), 0);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures"), 0);
    assert_eq!(lines(&world.published(), INCOMPLETE), [""; 0]);

    // It is wanted again and waits for its turn, and cannot be read still.
    world.configure(UNTHROTTLED);
    assert_status(&world.run(&["status"]), 0);
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(pending(&world), 2);
    let status = "SELECT DISTINCT journal_id, status FROM report.journal_coverage \
                  WHERE status NOT IN ('complete', 'open')";
    assert_eq!(
        lines(&world.published(), status),
        [format!("{{'journal_id': {OFFICE}, 'status': failing}}")]
    );
    let complete = "SELECT complete FROM report.snapshot";
    assert!(!one::<bool>(&world.published(), complete));

    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(pending(&world), 0);
    assert!(one::<bool>(&world.published(), complete));
    world.assert_equal();
}

#[test]
fn a_level_of_which_no_office_has_an_id_is_told_and_nothing_is_called_complete() {
    let world = world(
        unthrottled(3),
        1,
        "[journals]\nlevel = \"chain\"\n[schedule]\nreference = \"* * * * * *\"\n",
    );
    let listed = Integrator::log_in(&world).call("GET", "/api/Offices", &Value::Null);
    let without = |unnamed: usize| {
        let mut offices = listed.as_array().unwrap().clone();
        offices.iter_mut().take(unnamed).for_each(|office| office["ChainId"] = Value::Null);
        world.sandbox.clear_faults();
        let body = garbage(&Value::from(offices).to_string());
        world.sandbox.fault(fault("/api/Offices", None, body));
    };
    let says = |output: &Output, status: i32, said: &str| {
        assert_status(output, status);
        assert!(shown(output).contains(said), "{said}: {}", shown(output));
    };
    let all = listed.as_array().unwrap().len();
    let named = || -> String {
        let of = "FROM sync.resources WHERE table_name = 'depot_journals'";
        one(&world.published(), &format!("SELECT concat_ws(' | ', status, reason) {of}"))
    };
    let why = "no office has a chain_id";
    without(all);
    says(&world.run(&["sync"]), 3, &format!("revenue_journals is failing: {why}"));
    says(&world.run(&["status"]), 3, why);
    says(&world.run(&["verify"]), 3, why);
    let said = named();
    assert!(said.starts_with(&format!("failing | {why}")), "{said:?}");
    let complete = || -> bool { one(&world.published(), "SELECT complete FROM report.snapshot") };
    assert!(!complete());
    // Whose ids are typed are known all the same.
    let chain = listed[0]["ChainId"].to_string();
    let typed = journals(&month(1), &["--ids", &chain]);
    assert_status(&run(&world, &typed), 0);

    without(1);
    world.sync();
    let said = named();
    assert!(said.starts_with(&format!("ok | 1 of {all} offices")), "{said:?}");
    assert!(complete());
    assert_status(&world.run(&["verify"]), 0);
    without(0);
    world.sync();
    assert_eq!(named(), "ok");
}

/// An office that is not listed for once is known still.
#[test]
fn a_month_that_fails_is_missing_while_its_office_is_not_listed() {
    let world = world(unthrottled(12), 1, "");
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    world.sandbox.fault(fault(&path, None, refuse(400)));
    assert_status(&world.run(&["sync"]), 3);

    let listed = Integrator::log_in(&world).call("GET", "/api/Offices", &Value::Null);
    let mut others = listed.as_array().unwrap().clone();
    others.retain(|office| office["Id"] != OFFICE);
    assert_eq!(others.len() + 1, listed.as_array().unwrap().len());
    let body = garbage(&Value::Array(others).to_string());
    world.sandbox.fault(fault("/api/Offices", None, body));
    let both_due = "[schedule]\nreference = \"* * * * * *\"\njournals = \"* * * * * *\"\n";
    world.configure(&format!("{UNTHROTTLED}{both_due}"));
    assert_status(&world.run(&["sync"]), 3);
    let left = format!("SELECT count(*) FROM offices WHERE id = {OFFICE}");
    assert_eq!(one::<i64>(&world.store(), &left), 0);
    assert_eq!(pending(&world), 2);
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

/// A line is called by its name, wherever it stands: what did not fit before is not something else now.
#[test]
fn what_does_not_fit_in_a_line_is_the_same_when_the_line_moves() {
    let world = world(unthrottled(12), 2, "");
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let answer = |lines: &str| {
        world.sandbox.clear_faults();
        let rule = fault(&path, None, garbage(&format!("[{lines}]")));
        let query = Some(format!("fromDate={}", month(2)));
        world.sandbox.fault(Rule { query, method: Some("GET".to_owned()), ..rule });
    };
    let wrong = r#"{"RevenueReferralKey": "k", "Payment": 1.005, "PurchasePrice": 2,
        "Annotations": [{"AnnotationDate": "soon", "Annotation": "x"}]}"#;
    let fits = r#"{"RevenueReferralKey": "l", "Payment": 3, "PurchasePrice": 2}"#;
    let rejects = || {
        let known = "SELECT table_name, record_key, column_name, first_at::VARCHAR AS first_at, \
                       resolved_at IS NULL AS is_open FROM sync.rejects ORDER BY ALL";
        lines(&world.store(), known)
    };
    answer(wrong);
    assert_status(&world.run(&["sync"]), 3);
    let first = rejects();
    assert_eq!(first.len(), 2, "{first:?}");
    world.configure(&format!("{UNTHROTTLED}{RECHECK_DUE}"));
    answer(&format!("{fits}, {wrong}"));
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(rejects(), first);
    // And one that takes its place is not it.
    answer(&fits.replace('3', "3.001"));
    assert_status(&world.run(&["sync", "--allow-removals"]), 3);
    let now = rejects();
    assert_eq!(now.iter().filter(|row| row.contains("'is_open': true")).count(), 1, "{now:?}");
    assert!(now.iter().any(|row| row.contains("/2, 'column_name': payment")), "{now:?}");
}

/// What does not fit is no sum, whoever wants it meanwhile.
#[test]
fn what_did_not_fit_in_a_month_that_is_let_go_does_not_fit_when_it_is_wanted_again() {
    let world = world(unthrottled(12), 2, "");
    let closed = month(2);
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let line = r#"[{"RevenueReferralKey": "k", "Payment": 1.005, "PurchasePrice": 2}]"#;
    let rule = fault(&path, None, garbage(line));
    let query = Some(format!("fromDate={closed}"));
    world.sandbox.fault(Rule { query, method: Some("GET".to_owned()), ..rule });
    assert_status(&world.run(&["sync"]), 3);
    let payment = format!(
        "SELECT count(*) FROM report.revenue_by_month WHERE journal_id = {OFFICE} \
         AND month = '{closed}-01' AND payment IS NULL"
    );
    assert_eq!(one::<i64>(&world.published(), &payment), 1);

    world.configure(&format!("{UNTHROTTLED}{JOURNALS_DUE}[journals]\nlevel = \"chain\"\n"));
    world.sync();
    assert_status(&world.run(&["status"]), 0);
    assert_eq!(open_rejects(&world.store()), 1, "it does not fit still");

    world.configure(UNTHROTTLED);
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(open_rejects(&world.store()), 1);
    assert_eq!(one::<i64>(&world.published(), &payment), 1);

    world.sandbox.clear_faults();
    world.configure(&format!("{UNTHROTTLED}{RECHECK_DUE}"));
    // The line that stood for all others leaves with the wrong answer: the platform's sum confirms it.
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(open_rejects(&world.store()), 0);
    assert_eq!(one::<i64>(&world.published(), &payment), 0);
}

#[test]
fn what_nobody_wants_falls_due_for_no_schedule_and_no_full_sync() {
    let world = mirrored(unthrottled(12), 1, "");
    let chain = "[journals]\nlevel = \"chain\"\n";
    world.configure(&format!("{UNTHROTTLED}{JOURNALS_DUE}{chain}"));
    world.sync();
    let of_offices = |world: &World| {
        let calls = world.sandbox.stats().log;
        calls.iter().filter(|c| c.path.contains("Offices") && c.path.contains("Journals")).count()
    };
    for more in [RECHECK_DUE, ""] {
        world.configure(&format!("{UNTHROTTLED}{more}{chain}"));
        world.sandbox.reset_stats();
        assert_status(&world.run(if more.is_empty() { &["sync", "--full"] } else { &["sync"] }), 0);
        assert_eq!(pending(&world), 0);
        assert_status(&world.run(&["status"]), 0);
        assert_eq!(of_offices(&world), 0);
    }

    // A table that is enabled again is to be read again: at the other level when that is wanted again.
    world.configure(&format!("{UNTHROTTLED}{chain}[resources]\ndisable = [\"depot_journals\"]\n"));
    world.sync();
    world.configure(&format!("{UNTHROTTLED}{chain}"));
    world.sync();
    assert_eq!(pending(&world), 0);
    assert_eq!(of_offices(&world), 0);
    world.configure(UNTHROTTLED);
    world.sync();
    assert_eq!(pending(&world), 0);
    let offices = one::<i64>(&world.store(), "SELECT count(*) FROM offices").unsigned_abs();
    assert_eq!(
        of_offices(&world) as u64,
        5 * 2 * offices,
        "both months, sums too, of every office"
    );
    // Nothing of the chain is there any more.
    world.assert_equal();
}

#[test]
fn months_without_lines_are_in_the_published_coverage_as_soon_as_they_are_read() {
    let world = mirrored(unthrottled(12), 1, "");
    let quiet = month(7);
    let covered = |conn: &Connection| {
        lines(
            conn,
            &format!(
                "SELECT lines, status, read_at FROM report.journal_coverage \
                 WHERE journal_id = {QUIET} AND journal_month = '{quiet}-01'"
            ),
        )
    };
    let id = QUIET.to_string();
    let args = journals(&quiet, &["--kind", "depot", "--ids", &id]);
    let mut told = Vec::new();
    for _ in 0..2 {
        assert_status(&run(&world, &args), 0);
        let published = covered(&world.published());
        assert_eq!(published.len(), 1);
        assert!(published[0].starts_with("{'lines': 0, 'status': complete, "), "{published:?}");
        assert_eq!(published, covered(&world.store()));
        told.push(published);
    }
    assert_ne!(told[0], told[1], "it says when it was read");
}

#[test]
fn ids_that_nobody_has_are_refused_and_leave_nothing_behind() {
    let world = mirrored(unthrottled(12), 1, "");
    let output = run(&world, &journals(&month(1), &["--ids", &format!("{OFFICE},9999")]));
    assert_status(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no journals of 9999;") && said.contains("offices.id"), "{said}");
    let months = "SELECT count(*) FROM sync.journal_months WHERE journal_id = 9999";
    assert_eq!(one::<i64>(&world.store(), months), 0);
    assert_status(&world.run(&["status"]), 0);
}

#[test]
fn an_office_that_the_mirror_has_not_heard_of_is_read_by_its_id() {
    let world = world(unthrottled(12), 1, "");
    let id = QUIET.to_string();
    assert_status(&run(&world, &journals(&month(1), &["--ids", &id])), 0);
    let months = "SELECT count(*) FROM sync.journal_months WHERE complete";
    assert_eq!(one::<i64>(&world.store(), months), 5);
}

#[test]
fn a_configured_id_that_nobody_has_is_a_failure_and_no_empty_journal() {
    let world = world(unthrottled(12), 1, &format!("[journals]\nids = [{OFFICE}, 9999]\n"));
    for _ in 0..2 {
        assert_status(&world.run(&["sync", "--full"]), 3);
        let status = "SELECT journal_id, status, count(*) AS months FROM report.journal_coverage \
                      GROUP BY ALL ORDER BY ALL";
        assert_eq!(
            lines(&world.published(), status),
            [
                "{'journal_id': 11, 'status': complete, 'months': 5}",
                "{'journal_id': 11, 'status': open, 'months': 5}",
                "{'journal_id': 9999, 'status': failing, 'months': 10}",
            ]
        );
    }
}

#[test]
fn months_that_have_not_begun_are_refused_before_anything_is_called() {
    let world = world(unthrottled(12), 1, "");
    let next = month(-1);
    let output = run(&world, &journals(&next, &[]));
    assert_status(&output, 2);
    assert!(shown(&output).contains(&format!("up to the current month, {}", month(0))));
    assert_eq!(world.sandbox.stats().calls, 0);
}

/// What failed waits for the next run, however long this one takes.
#[rstest]
#[case::fails(refuse(400))]
#[case::comes_incomplete(garbage(&format!("[{}]", ["{\"CaseId\": 1}"; 100].join(","))))]
fn a_month_that_cannot_be_read_is_tried_once_in_a_run(#[case] wrong: Fault) {
    let world = mirrored(unthrottled(12), 1, DEPOT_ONLY);
    let month = month(1);
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    // A later page is refused.
    world
        .sandbox
        .fault(Rule { query: Some("$skip".to_owned()), ..fault(&path, None, refuse(400)) });
    world.sandbox.fault(fault(&path, None, wrong));
    // Longer than the first failures wait.
    let path_of_other = format!("/api/Offices/{QUIET}/DepotJournals");
    world.sandbox.fault(fault(&path_of_other, None, Fault::Delay { ms: 2_500 }));
    world.sandbox.reset_stats();
    assert_status(&run(&world, &journals(&month, &["--ids", &format!("{OFFICE},{QUIET}")])), 3);
    let first = format!("fromDate={month}-01");
    let last: jiff::civil::Date = format!("{month}-01").parse().unwrap();
    let last = format!("toDate={}", last.last_of_month());
    let whole = world.sandbox.stats().log.into_iter().filter(|call| {
        let query = call.query.as_str();
        call.path == path
            && query.contains(&first)
            && query.contains(&last)
            && !query.contains("skip")
    });
    assert_eq!(whole.count(), 1);
}

/// Of the revenue the platform's own sum tells too; of the others reading them again alone does.
#[rstest]
#[case::revenue(Journal::RevenueJournals, "revenue_journals", "payment")]
#[case::settlement(Journal::SettlementJournals, "settlement_journals", "cost")]
fn the_weekly_recheck_restates_what_was_edited_in_a_month_of_long_ago(
    #[case] journal: Journal,
    #[case] table: &str,
    #[case] column: &str,
) {
    let old = month(4);
    let lines = Options { journal_lines: Some(40), ..unthrottled(10) };
    let world = mirrored(lines, 5, "");
    let trailing = "[journals]\ntrailing_months = 2\nrecheck_months = 5\n";
    let cell = format!(
        "SELECT {column}::VARCHAR FROM main.{table} WHERE journal_id = {OFFICE} \
         AND journal_month = '{old}-01' AND line_number = 1"
    );
    let before: String = one(&world.store(), &cell);
    edit(&world, &old, journal, JournalEdit::Amount, Some(1));

    world.configure(&format!("{UNTHROTTLED}{JOURNALS_DUE}{trailing}"));
    world.sync();
    assert_eq!(restatements(&world), [""; 0], "it is no trailing month");

    world.configure(&format!("{UNTHROTTLED}{RECHECK_DUE}{trailing}"));
    world.sync();
    let after: String = one(&world.store(), &cell);
    assert_ne!(before, after);
    assert_eq!(
        restatements(&world),
        [format!(
            "{{'journal': {table}, 'change': changed, 'column_name': {column}, \
             'before': {before}, 'after': {after}}}"
        )]
    );
    world.assert_equal();
}

/// However the service says that a month is too much for it.
#[rstest]
#[case::by_never_answering(HeavyAnswer::Never)]
#[case::by_being_unavailable(HeavyAnswer::Unavailable)]
fn a_journal_that_is_too_heavy_for_one_call_is_read_in_parts(#[case] answer: HeavyAnswer) {
    let heavy = HeavyJournal { office_id: OFFICE, days: 10, answer };
    let options = Options { heavy_journal: Some(heavy), ..unthrottled(20) };
    let world = world(options, 1, &format!("{DEPOT_ONLY}[journals]\nids = [{OFFICE}]\n"));
    let output = world.run(&["sync", "--set", "limits.journal_timeout=1s"]);
    assert_status(&output, 0);
    let incomplete = format!("SELECT * FROM ({INCOMPLETE}) WHERE status <> 'disabled'");
    assert_eq!(lines(&world.published(), &incomplete), [""; 0]);
    let truth = world.sandbox.journal_tables(Level::Offices, None, &["depot_journals"]);
    let of_office = format!("\"offices\"/{OFFICE}/");
    let mut differing = differences_of(&world.store(), &truth);
    differing.retain(|difference| difference.contains(&of_office));
    assert_eq!(differing, [""; 0]);
}
