//! The months of the journals as scopes: what makes one complete, which of them are wanted, and what is
//! said of those that cannot be had.

use casemirror::sandbox::{
    Act, Fault, HeavyAnswer, HeavyJournal, Journal, JournalEdit, JournalPaging, Level, Options,
    Rule, When,
};
use rstest::rstest;

use crate::support::follow::{UNTHROTTLED, assert_status, lines, start, unthrottled, while_held};
use crate::support::{World, differences, one};

/// Whose journals are edited or fail.
const OFFICE: i64 = 11;
/// One journal alone is read.
const DEPOT_ONLY: &str = "[resources]\ndisable = [\"case_journals\", \"revenue_journals\", \
                          \"revenue_journal_sums\", \"settlement_journals\"]\n";
const JOURNALS_DUE: &str = "[schedule]\njournals = \"* * * * * *\"\n";
const RECHECK_DUE: &str = "[schedule]\njournals_recheck = \"* * * * * *\"\n";
const INCOMPLETE: &str = "SELECT DISTINCT journal, journal_id, status \
                          FROM report.journal_coverage WHERE status <> 'complete'";

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
    world.sync();
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

fn restatements(world: &World) -> Vec<String> {
    lines(
        &world.store(),
        "SELECT journal, change, column_name, before, after FROM report.journal_restatements \
         ORDER BY ALL",
    )
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
    let mut differing = differences(&world.store(), &state);
    differing.retain(|difference| difference.contains(&of_office));
    assert_eq!(differing, [""; 0]);
    let restated = restatements(&world);
    assert_eq!(restated.len(), 1, "{restated:?}");
    assert!(restated[0].contains(told), "{restated:?}");
}

#[test]
fn the_weekly_recheck_restates_what_was_edited_in_a_month_of_long_ago() {
    let old = month(4);
    let world = mirrored(unthrottled(40), 5, "");
    let trailing = "[journals]\ntrailing_months = 2\nrecheck_months = 5\n";
    let payment = format!(
        "SELECT payment::VARCHAR FROM main.revenue_journals WHERE journal_id = {OFFICE} \
         AND journal_month = '{old}-01' AND line_number = 1"
    );
    let before: String = one(&world.store(), &payment);
    edit(&world, &old, Journal::RevenueJournals, JournalEdit::Amount, Some(1));

    world.configure(&format!("{UNTHROTTLED}{JOURNALS_DUE}{trailing}"));
    world.sync();
    assert_eq!(restatements(&world), [""; 0], "it is no trailing month");

    world.configure(&format!("{UNTHROTTLED}{RECHECK_DUE}{trailing}"));
    world.sync();
    let after: String = one(&world.store(), &payment);
    assert_ne!(before, after);
    assert_eq!(
        restatements(&world),
        [format!(
            "{{'journal': revenue_journals, 'change': changed, 'column_name': payment, \
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
    assert_eq!(lines(&world.published(), INCOMPLETE), [""; 0]);
    let truth = world.sandbox.journal_tables(Level::Offices, None, &["depot_journals"]);
    let of_office = format!("\"offices\"/{OFFICE}/");
    let mut differing = differences(&world.store(), &truth);
    differing.retain(|difference| difference.contains(&of_office));
    assert_eq!(differing, [""; 0]);
}
