//! A journal that loses its lines is doubted before it is believed (docs/architecture.md, "Journals").

use std::process::Output;

use casemirror::sandbox::{Act, Fault, Journal, JournalEdit, Options, Rule};
use duckdb::Connection;
use rstest::rstest;

use crate::support::follow::{assert_status, calls};
use crate::support::journals::{FEED, OFFICE, mirrored, month, options, restatements, rows};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, one, shown};

/// Nothing of a journal falls due by itself.
const UNSCHEDULED: &str =
    "[schedule]\njournals = \"0 0 1 1 *\"\njournals_recheck = \"0 0 1 1 *\"\n";
const NOT_COMPLETE: &str = "SELECT journal, journal_id, strftime(journal_month, '%Y-%m'), status \
                            FROM report.journal_coverage WHERE status NOT IN ('complete', 'open') ORDER BY ALL";

/// Writes to the store behind the mirror's back.
fn alter(world: &World, sql: &str) -> usize {
    let conn = Connection::open(world.path("data/store.duckdb")).unwrap();
    conn.execute(sql, []).unwrap()
}

/// As if what is doubted, or was not found, were so for years.
fn much_later(world: &World) {
    let earlier = |column: &str| {
        let long_ago = "TIMESTAMPTZ '2020-02-01 00:00:00+00'";
        format!("{column} = CASE WHEN {column} IS NOT NULL THEN {long_ago} END")
    };
    let columns = [earlier("doubted_at"), earlier("not_found_at")].join(", ");
    assert!(alter(world, &format!("UPDATE sync.journal_months SET {columns}")) > 0);
}

/// `casemirror journals` of one month, which waits for no backoff.
fn read(world: &World, month: &str, more: &[&str]) -> Output {
    let day = format!("{month}-01");
    world.run(&[&["journals", "--from", &day, "--to", &day], more].concat())
}

fn lines(world: &World, table: &str, month: &str) -> i64 {
    let of = format!("journal_id = {OFFICE} AND journal_month = DATE '{month}-01'");
    one(&world.store(), &format!("SELECT count(*) FROM main.{table} WHERE {of}"))
}

/// Takes so many lines out of a journal of the office; all where none is said. Returns how many.
fn lose(world: &World, journal: Journal, month: &str, most: Option<usize>) -> usize {
    let edit = JournalEdit::Removed;
    let act =
        Act::Journal { journal, office_id: OFFICE, month: month.to_owned(), edit, line: Some(1) };
    (0..most.unwrap_or(usize::MAX)).take_while(|_| world.sandbox.act(&act).is_ok()).count()
}

/// Takes so many annotations of a journal of the office, where its lines stay; all where none is said.
fn unannotate(world: &World, journal: Journal, month: &str, most: Option<usize>) -> usize {
    let edit = JournalEdit::AnnotationRemoved;
    let act =
        Act::Journal { journal, office_id: OFFICE, month: month.to_owned(), edit, line: None };
    (0..most.unwrap_or(usize::MAX)).take_while(|_| world.sandbox.act(&act).is_ok()).count()
}

fn path_of(journal: &str) -> String {
    format!("/api/Offices/{OFFICE}/{journal}")
}

/// Wrong answers to all calls of one method.
fn scripted(world: &World, method: &str, path: &str, fault: Fault) {
    let method = Some(method.to_owned());
    let rule = Rule { method, path: path.to_owned(), query: None, nth: 1, count: None, fault };
    world.sandbox.fault(rule);
}

fn versions(world: &World) -> i64 {
    one(
        &world.store(),
        "SELECT (SELECT count(*) FROM history.revenue_journals) \
           + (SELECT count(*) FROM history.case_journals)",
    )
}

#[rstest]
#[case::revenue("RevenueJournals", "revenue_journals", "revenue")]
#[case::case("CaseJournals", "case_journals", "case")]
fn one_empty_answer_takes_no_line_of_a_closed_month(
    #[case] journal: &str,
    #[case] table: &str,
    #[case] kind: &str,
) {
    let world = mirrored(options(40), 2, UNSCHEDULED);
    let closed = month(2);
    let before = lines(&world, table, &closed);
    assert!(before > 0);
    world.sandbox.fault(fault(&path_of(journal), None, garbage("[]")));
    let output = read(&world, &closed, &["--kind", kind]);
    assert_status(&output, 3);
    assert!(shown(&output).contains(&format!("lacks {before} of {before} lines")));
    let doubted = [format!("{table} | {OFFICE} | {closed} | doubted")];
    assert_eq!(rows(&world.published(), NOT_COMPLETE), doubted);
    let status = world.run(&["status"]);
    assert_status(&status, 3);
    assert!(shown(&status).contains(table), "{}", shown(&status));
    // The same again a moment later is no second opinion.
    assert_status(&read(&world, &closed, &["--kind", kind]), 3);
    assert_eq!(rows(&world.published(), NOT_COMPLETE), doubted);
    world.assert_equal();

    world.sandbox.clear_faults();
    assert_status(&read(&world, &closed, &["--kind", kind]), 0);
    assert_eq!(rows(&world.published(), NOT_COMPLETE), [""; 0]);
    assert_eq!((restatements(&world), versions(&world)), (vec![], 0));
    world.assert_equal();
}

#[rstest]
#[case::but_the_sums_are_right(None)]
#[case::and_so_are_the_sums(Some("null"))]
fn a_run_in_which_all_journals_are_empty_takes_no_line(#[case] sum: Option<&str>) {
    let world = mirrored(options(20), 1, UNSCHEDULED);
    scripted(&world, "GET", "/api/Offices/*Journals", garbage("[]"));
    if let Some(sum) = sum {
        scripted(&world, "PUT", "/api/Offices/*Journals/Sum", garbage(sum));
    }
    let all = |world: &World| {
        rows(
            &world.store(),
            "SELECT (SELECT count(*) FROM revenue_journals), (SELECT count(*) FROM case_journals), \
               (SELECT count(*) FROM depot_journals), (SELECT count(*) FROM settlement_journals)",
        )
    };
    let before = all(&world);
    let output = world.run(&["sync", "--full"]);
    assert_status(&output, 3);
    assert_eq!(all(&world), before);
    let statuses = "SELECT DISTINCT status FROM report.journal_coverage WHERE lines > 0 \
                    AND journal <> 'revenue_journal_sums'";
    assert_eq!(rows(&world.published(), statuses), ["doubted"]);

    world.sandbox.clear_faults();
    for (ago, status) in [(0, 3), (1, 0)] {
        assert_status(&read(&world, &month(ago), &[]), status);
    }
    assert_eq!((restatements(&world), versions(&world)), (vec![], 0));
    world.assert_equal();
}

#[test]
fn lines_that_are_really_gone_are_believed_by_the_sum_or_by_the_second_answer() {
    let world = mirrored(options(40), 2, UNSCHEDULED);
    let closed = month(2);
    let revenue = lose(&world, Journal::RevenueJournals, &closed, None);
    let cases = lose(&world, Journal::CaseJournals, &closed, None);
    assert!(revenue > 0 && cases > 0);
    // The sum is asked after the lines, in the same run; a case journal has none.
    assert_status(&read(&world, &closed, &[]), 3);
    let doubted = [format!("case_journals | {OFFICE} | {closed} | doubted")];
    assert_eq!(rows(&world.published(), NOT_COMPLETE), doubted);
    let off = "SELECT count(*) FROM report.journal_coverage WHERE journal = 'revenue_journals' \
               AND sum_matches IS NOT TRUE";
    assert_eq!(one::<i64>(&world.published(), off), 0);
    assert_eq!(restatements(&world), vec!["revenue_journals | removed"; revenue]);

    assert_status(&read(&world, &closed, &[]), 3);
    assert_eq!(rows(&world.published(), NOT_COMPLETE), doubted);
    much_later(&world);
    assert_status(&read(&world, &closed, &[]), 0);
    assert_eq!(rows(&world.published(), NOT_COMPLETE), [""; 0]);
    assert_eq!(restatements(&world).len(), revenue + cases);
    world.assert_equal();
}

/// One journal with so many lines a month, and no sum to confirm anything.
fn of_lines(journal_lines: usize) -> World {
    let settings = format!(
        "{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n\
         [resources]\ndisable = [\"revenue_journal_sums\"]\n"
    );
    mirrored(Options { journal_lines: Some(journal_lines), ..options(10) }, 2, &settings)
}

#[test]
fn another_loss_is_doubted_anew_and_the_brake_can_be_lifted() {
    let world = of_lines(41);
    let closed = month(2);
    let left = || lines(&world, "revenue_journals", &closed);
    let lose = |most| assert_eq!(lose(&world, Journal::RevenueJournals, &closed, Some(most)), most);
    let read = |status| assert_status(&read(&world, &closed, &["--kind", "revenue"]), status);
    // Many, but not most of them.
    lose(15);
    read(0);
    assert_eq!((left(), restatements(&world).len()), (26, 15));
    lose(14);
    read(3);
    much_later(&world);
    lose(1);
    read(3);
    assert_eq!((left(), restatements(&world).len()), (26, 15));
    assert_status(&world.run(&["sync", "--allow-removals"]), 0);
    assert_eq!((left(), restatements(&world).len()), (11, 30));
    // Most, but not many; then the last one.
    lose(10);
    read(0);
    assert_eq!(left(), 1);
    lose(1);
    read(3);
    assert_eq!(left(), 1);
    much_later(&world);
    read(0);
    assert_eq!(left(), 0);
}

/// Each line is still there, known by its key.
#[rstest]
#[case::revenue(Journal::RevenueJournals, "revenue_journals", "revenue_journal_annotations")]
#[case::case(Journal::CaseJournals, "case_journals", "case_journal_annotations")]
fn an_answer_without_annotations_takes_none_until_it_is_confirmed(
    #[case] journal: Journal,
    #[case] table: &str,
    #[case] notes: &str,
) {
    let world = of_lines(300);
    let closed = month(2);
    let before = lines(&world, notes, &closed);
    assert!(before > 10, "{before}: of a few, all may go");
    assert_eq!(unannotate(&world, journal, &closed, None), usize::try_from(before).unwrap());
    let lacks = format!("lacks {before} of {before} annotations that are mirrored");
    for _ in 0..2 {
        let output = read(&world, &closed, &[]);
        assert_status(&output, 3);
        assert!(shown(&output).contains(&lacks), "{}", shown(&output));
        let known = rows(&world.published(), NOT_COMPLETE);
        assert!(known.contains(&format!("{table} | {OFFICE} | {closed} | doubted")), "{known:?}");
        assert_eq!((lines(&world, notes, &closed), restatements(&world)), (before, vec![]));
    }
    much_later(&world);
    // One that comes meanwhile is another answer.
    let act = Act::Journal {
        journal,
        office_id: OFFICE,
        month: closed.clone(),
        edit: JournalEdit::Annotated,
        line: Some(1),
    };
    world.sandbox.act(&act).unwrap();
    assert_status(&read(&world, &closed, &[]), 3);
    assert_eq!(lines(&world, notes, &closed), before);
    much_later(&world);
    assert_status(&read(&world, &closed, &[]), 0);
    assert_eq!(lines(&world, notes, &closed), 1);
}

#[test]
fn many_annotations_of_a_table_are_doubted_together_though_they_are_few_of_their_months() {
    let world = of_lines(600);
    let (table, months) = ("revenue_journal_annotations", [month(1), month(2)]);
    let left = || months.each_ref().map(|month| lines(&world, table, month));
    let before = left();
    let few = 30;
    assert!(before.iter().all(|notes| *notes > 2 * few), "{before:?}");
    let lose = |month| unannotate(&world, Journal::RevenueJournals, month, Some(30));
    assert_eq!(lose(&months[0]), 30);
    assert_status(&read(&world, &months[0], &["--kind", "revenue"]), 0);
    assert_eq!(left(), [before[0] - few, before[1]]);
    assert_eq!(lose(&months[1]), 30);
    let output = read(&world, &months[1], &["--kind", "revenue"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("together more than"), "{}", shown(&output));
    assert_eq!(left(), [before[0] - few, before[1]]);
    much_later(&world);
    assert_status(&read(&world, &months[1], &["--kind", "revenue"]), 0);
    assert_eq!(left(), [before[0] - few, before[1] - few]);
}

/// What came of it is mirrored, whole or not.
#[test]
fn a_month_that_never_came_whole_is_not_emptied_by_one_answer_either() {
    let world = mirrored(options(40), 2, UNSCHEDULED);
    let closed = month(2);
    let before = lines(&world, "case_journals", &closed);
    assert!(before > 0);
    let half_read = "UPDATE sync.journal_months SET complete = false, incomplete_at = now(), due = 'incomplete', \
                     closed_read_at = NULL WHERE table_name = 'case_journals'";
    assert!(alter(&world, half_read) > 0);
    world.sandbox.fault(fault(&path_of("CaseJournals"), None, garbage("[]")));
    assert_status(&read(&world, &closed, &["--kind", "case"]), 3);
    assert_eq!(lines(&world, "case_journals", &closed), before);
    world.sandbox.clear_faults();
    assert_status(&read(&world, &closed, &["--kind", "case"]), 0);
    world.assert_equal();
}

/// A service that cuts all its answers a little takes no lines either.
#[test]
fn many_lines_of_a_table_are_doubted_together_though_they_are_few_of_their_months() {
    let world = of_lines(200);
    let months = [month(1), month(2)];
    let left = || months.each_ref().map(|month| lines(&world, "revenue_journals", month));
    let before = left();
    // Nobody doubts so few; what comes within the hour counts with them.
    assert_eq!(lose(&world, Journal::RevenueJournals, &months[0], Some(30)), 30);
    assert_status(&read(&world, &months[0], &["--kind", "revenue"]), 0);
    assert_eq!(left(), [before[0] - 30, before[1]]);
    assert_eq!(lose(&world, Journal::RevenueJournals, &months[1], Some(30)), 30);
    let output = read(&world, &months[1], &["--kind", "revenue"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("lacks 30 of "), "{}", shown(&output));
    assert!(
        shown(&output).contains("together more than reconcile.max_removed"),
        "{}",
        shown(&output)
    );
    assert_eq!(left(), [before[0] - 30, before[1]]);
    // Another loss is doubted anew; what comes meanwhile is none.
    much_later(&world);
    assert_eq!(lose(&world, Journal::RevenueJournals, &months[1], Some(1)), 1);
    assert_status(&read(&world, &months[1], &["--kind", "revenue"]), 3);
    let appended = Act::Journal {
        journal: Journal::RevenueJournals,
        office_id: OFFICE,
        month: months[1].clone(),
        edit: JournalEdit::Appended,
        line: None,
    };
    world.sandbox.act(&appended).unwrap();
    much_later(&world);
    assert_status(&read(&world, &months[1], &["--kind", "revenue"]), 0);
    assert_eq!(left(), [before[0] - 30, before[1] - 30]);
}

#[test]
fn two_404_of_a_month_confirm_each_other_only_source_doubt_apart() {
    let world = mirrored(options(40), 2, UNSCHEDULED);
    let closed = month(2);
    let before = lines(&world, "case_journals", &closed);
    assert!(before > 0);
    world.sandbox.fault(fault(&path_of("CaseJournals"), None, refuse(404)));
    // Nothing else of the table answers.
    let of_office = ["--kind", "case", "--ids", &OFFICE.to_string()];
    for _ in 0..2 {
        assert_status(&read(&world, &closed, &of_office), 3);
        assert_eq!(lines(&world, "case_journals", &closed), before);
    }
    much_later(&world);
    assert_status(&read(&world, &closed, &of_office), 0);
    assert_eq!(lines(&world, "case_journals", &closed), 0);
}

/// Whoever answers in its place while it is away finds nothing of any office.
#[test]
fn what_answers_404_for_all_offices_is_held_for_hours_by_the_guard() {
    let options = Options { journal_lines: Some(60), ..options(10) };
    let world = mirrored(
        options,
        2,
        &format!("{UNSCHEDULED}[resources]\ndisable = [\"revenue_journal_sums\"]\n"),
    );
    let closed = month(2);
    let all = || -> i64 {
        let of_month = format!(
            "SELECT count(*) FROM main.revenue_journals WHERE journal_month = '{closed}-01'"
        );
        one(&world.store(), &of_month)
    };
    let (before, of_office) = (all(), lines(&world, "revenue_journals", &closed));
    assert!(before > of_office && of_office > 50);
    scripted(&world, "GET", "/api/Offices/*RevenueJournals", refuse(404));
    let read_again = |status| assert_status(&read(&world, &closed, &["--kind", "revenue"]), status);
    read_again(3);
    much_later(&world);
    // The second is no more than the first of what is held; then for each office alone.
    read_again(3);
    let doubted =
        "SELECT count(*) FROM report.journal_coverage WHERE status = 'doubted' AND lines > 0";
    assert_eq!(one::<i64>(&world.store(), doubted), 6, "one for each office");
    let doubted_for = |hours: i64| {
        let since = jiff::Timestamp::now() - jiff::Span::new().hours(hours);
        let earlier = format!(
            "UPDATE sync.journal_months SET doubted_at = TIMESTAMPTZ '{since}' \
             WHERE doubted_at IS NOT NULL"
        );
        assert_eq!(alter(&world, &earlier), 6);
    };
    doubted_for(5);
    let output = read(&world, &closed, &["--kind", "revenue", "--ids", &OFFICE.to_string()]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("answered 404 for six hours"), "{}", shown(&output));
    assert_eq!((all(), restatements(&world)), (before, vec![]));
    doubted_for(7);
    read_again(0);
    assert_eq!(all(), 0);
}

/// The first answers for months whose level is mirrored again are held against the lines that they had.
#[rstest]
#[case::an_empty_answer(garbage("[]"), "doubted")]
#[case::not_found(refuse(404), "failing")]
fn a_level_that_comes_back_empty_is_doubted(#[case] answer: Fault, #[case] status: &str) {
    let world = mirrored(options(40), 2, UNSCHEDULED);
    let offices = format!("{FEED}{UNSCHEDULED}");
    let chain = format!("{offices}[journals]\nlevel = \"chain\"\n");
    let closed = month(2);
    let before = lines(&world, "revenue_journals", &closed);
    assert!(before > 0);
    world.configure(&chain);
    world.sync();
    assert_eq!(lines(&world, "revenue_journals", &closed), 0);
    world.configure(&offices);
    world.sandbox.fault(fault(&path_of("RevenueJournals"), None, answer));
    assert_status(&world.run(&["sync"]), 3);
    for _ in 0..2 {
        let known = rows(&world.published(), NOT_COMPLETE);
        let of_month = format!("revenue_journals | {OFFICE} | {closed} | {status}");
        assert!(known.contains(&of_month), "{known:?}");
        let last_read = format!(
            "SELECT count(read_at) FROM report.journal_coverage WHERE journal = 'revenue_journals' \
             AND journal_id = {OFFICE} AND journal_month = '{closed}-01'"
        );
        assert_eq!(one::<i64>(&world.published(), &last_read), 0);
        assert_eq!(restatements(&world), [""; 0]);
        assert_status(&read(&world, &closed, &["--kind", "revenue"]), 3);
    }
    // Away and back once more: what waited is not forgotten.
    world.configure(&chain);
    world.sync();
    world.configure(&offices);
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(restatements(&world), [""; 0]);
    world.sandbox.clear_faults();
    for ago in 0..=2 {
        read(&world, &month(ago), &[]);
    }
    world.sync();
    assert_eq!(lines(&world, "revenue_journals", &closed), before);
    assert_eq!(restatements(&world), [""; 0]);
    world.assert_equal();
}

#[rstest]
#[case::forbidden(403)]
#[case::token_refused(401)]
fn what_one_office_is_refused_is_read_of_the_others(#[case] status: u16) {
    let world = World::with(options(12));
    world.journals_since(&format!("{}-01", month(3)));
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    world.sandbox.fault(fault(&path_of("RevenueJournals"), None, refuse(status)));
    assert_status(&world.run(&["sync"]), 3);
    let months =
        (0..=3).rev().map(|ago| format!("revenue_journals | {OFFICE} | {} | failing", month(ago)));
    assert_eq!(rows(&world.published(), NOT_COMPLETE), months.collect::<Vec<_>>());
    let status = "SELECT status FROM sync.resources WHERE table_name = 'revenue_journals'";
    assert_eq!(rows(&world.store(), status), ["ok"]);
    world.sandbox.clear_faults();
    for ago in 0..=3 {
        read(&world, &month(ago), &["--kind", "revenue"]);
    }
    world.sync();
    world.assert_equal();
}

#[test]
fn a_journal_that_breaks_off_in_long_answers_is_read_in_parts() {
    let world = of_lines(60);
    let closed = month(2);
    let last: i64 = one(&world.store(), &format!("SELECT day(last_day(DATE '{closed}-01'))"));
    for (from, to) in [(1, last), (1, (last + 1) / 2)] {
        let query = Some(format!("fromDate={closed}-{from:02}&toDate={closed}-{to:02}"));
        let rule = fault(&path_of("RevenueJournals"), None, Fault::CutOff { bytes: Some(900) });
        world.sandbox.fault(Rule { query, ..rule });
    }
    assert_status(&read(&world, &closed, &["--kind", "revenue"]), 0);
    assert_eq!(restatements(&world), [""; 0]);
    assert_eq!(lines(&world, "revenue_journals", &closed), 60);
}

#[test]
fn a_source_that_cannot_be_reached_is_not_asked_for_every_part_of_a_month() {
    let settings = format!("{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n");
    let world = mirrored(options(10), 2, &settings);
    let closed = month(2);
    world.sandbox.fault(fault(&path_of("DepotJournals"), None, Fault::Drop));
    world.sandbox.reset_stats();
    assert_ne!(read(&world, &closed, &["--kind", "depot"]).status.code(), Some(0));
    let asked = calls(&world)[&format!("GET {}", path_of("DepotJournals"))];
    assert!(asked <= 2 * 5, "{asked} calls");
}
