//! Journals' months with as many lines as the service may give at once: how it is found out whether they are all
//! (docs/architecture.md, "Completeness").

use casemirror::sandbox::{Journal, JournalEdit, JournalPaging, Options, Rule};
use rstest::rstest;

use crate::journal_reading::{
    NOT_COMPLETE, UNSCHEDULED, asked, assert_journal, depot_only, path_of, read,
};
use crate::support::World;
use crate::support::follow::assert_status;
use crate::support::journals::{FEED, OFFICE, edit, mirrored, month, options, rows};
use crate::support::scripted::{fault, garbage};

#[test]
fn a_month_of_round_length_is_read_in_halves_once_in_its_life() {
    let settings = format!(
        "{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = [\"case_journals\", \
         \"depot_journals\", \"revenue_journal_sums\", \"settlement_journals\"]\n"
    );
    let world = mirrored(Options { journal_lines: Some(100), ..options(10) }, 2, &settings);
    let closed = month(2);
    let asked = |world: &World| {
        world.sandbox.reset_stats();
        assert_status(&read(world, &closed, &[]), 0);
        asked(world, "RevenueJournals").len()
    };
    // The month, and a look whether there is more.
    assert_eq!(asked(&world), 2);
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    assert!(asked(&world) > 2, "another hundred lines are proven anew");
    assert_eq!(asked(&world), 2);
    // As if it had been read before its end: the hundred may have become more since.
    world.alter(&format!(
        "UPDATE sync.journal_months SET sent_at = TIMESTAMPTZ '{closed}-15 03:15:00+00'"
    ));
    assert!(asked(&world) > 2, "it is over only now");
    assert_eq!(asked(&world), 2);
    assert_journal(&world, "revenue_journals", None);
}

/// A mirror of revenue journals of which the service gives no more lines at once than each month has, and a
/// month that has one more since.
fn with_a_hidden_line(disabled: &str) -> (World, String) {
    let settings = format!(
        "{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = [\"case_journals\", \
         \"depot_journals\", \"settlement_journals\"{disabled}]\n"
    );
    let journal_paging = JournalPaging::Truncates { lines: 100, skips: false };
    let lines = Options { journal_paging, journal_lines: Some(100), ..options(10) };
    let world = mirrored(lines, 2, &settings);
    let closed = month(2);
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Appended, None);
    (world, closed)
}

#[test]
fn a_line_behind_as_many_as_the_service_gives_is_found_by_the_sum() {
    let (world, closed) = with_a_hidden_line("");
    assert_status(&read(&world, &closed, &[]), 0);
    assert_journal(&world, "revenue_journals", Some(&closed));
}

#[rstest]
#[case::by_a_full_sync(&["sync", "--full"], "")]
#[case::by_the_recheck(&["sync"], "[schedule]\njournals_recheck = \"* * * * * *\"\n")]
fn a_line_behind_as_many_as_the_service_gives_is_found_without_a_sum(
    #[case] args: &[&str],
    #[case] due: &str,
) {
    let (world, closed) = with_a_hidden_line(", \"revenue_journal_sums\"");
    world.sandbox.reset_stats();
    assert_status(&read(&world, &closed, &[]), 0);
    assert_eq!(asked(&world, "RevenueJournals").len(), 2, "nothing shows that there is one");
    if !due.is_empty() {
        let config = format!(
            "{FEED}{due}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = \
             [\"case_journals\", \"depot_journals\", \"settlement_journals\", \"revenue_journal_sums\"]\n"
        );
        world.configure(&config);
    }
    assert_status(&world.run(args), 0);
    assert_journal(&world, "revenue_journals", Some(&closed));
}

/// A day with more lines than the service gives at once cannot be asked in halves.
#[test]
fn a_day_that_is_cut_short_makes_its_month_incomplete() {
    let paging = JournalPaging::Truncates { lines: 100, skips: false };
    let lines = Options { journal_paging: paging, journal_lines: Some(5_000), ..options(10) };
    let world = World::with(lines);
    world.journals_since(&format!("{}-01", month(1)));
    let settings = format!(
        "{FEED}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = [\"case_journals\", \
         \"depot_journals\", \"revenue_journal_sums\", \"settlement_journals\"]\n"
    );
    world.configure(&settings);
    assert_status(&world.run(&["sync"]), 3);
    let told = rows(&world.store(), NOT_COMPLETE);
    assert_eq!(told[0], format!("revenue_journals | {OFFICE} | {} | incomplete", month(1)));
}

/// The halves of a window add up to what the service gives at once where one of them is empty.
#[test]
fn a_day_that_is_cut_short_is_told_though_its_neighbours_have_no_lines() {
    let world = depot_only(options(10), 2);
    let closed = month(2);
    let lines = |ids: std::ops::Range<u32>| {
        let line = |id| format!("{{\"DepotJournalDocumentId\": {id}, \"Amount\": {id}.50}}");
        format!("[{}]", ids.map(line).collect::<Vec<_>>().join(","))
    };
    // More than a hundred on the fifth, thirty in the second half of the month, however long that is.
    let answers = [
        (String::new(), lines(0..0)),
        (format!("fromDate={closed}-01"), lines(0..100)),
        (format!("fromDate={closed}-05"), lines(0..100)),
        (format!("toDate={closed}-04"), lines(0..0)),
        (format!("fromDate={closed}-15"), lines(100..130)),
        (format!("fromDate={closed}-16"), lines(100..130)),
        (format!("fromDate={closed}-17"), lines(100..130)),
    ];
    for (query, body) in answers {
        let rule = fault(&path_of("DepotJournals"), None, garbage(&body));
        world.sandbox.fault(Rule { query: Some(query), ..rule });
    }
    // The lines before were others, so that they are doubted or not is not the question here.
    assert_status(&read(&world, &closed, &["--set", "source.doubt=0s"]), 3);
    let told = rows(&world.store(), NOT_COMPLETE);
    assert_eq!(told, [format!("depot_journals | {OFFICE} | {closed} | incomplete")]);
}
