//! How often and in which parts the months of the journals are asked: no more than it takes to know them
//! (docs/architecture.md, "Journals").

use std::process::Output;

use casemirror::sandbox::{
    Control, Fault, HeavyAnswer, HeavyJournal, Journal, JournalEdit, Level, Options, Rule, When,
};

use crate::support::daemon::Daemon;
use crate::support::follow::{assert_status, start};
use crate::support::journals::{FEED, OFFICE, edit, mirrored, month, options, rows};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, differences_of, one, shown};

/// Nothing of a journal falls due by itself.
pub(crate) const UNSCHEDULED: &str =
    "[schedule]\njournals = \"0 0 1 1 *\"\njournals_recheck = \"0 0 1 1 *\"\n";
pub(crate) const NOT_COMPLETE: &str = "SELECT journal, journal_id, strftime(journal_month, '%Y-%m'), status \
                            FROM report.journal_coverage \
                            WHERE status NOT IN ('complete', 'open', 'disabled') ORDER BY ALL";

/// As if weeks had passed since a larger part of a journal was too much.
fn weeks_later(world: &World) {
    world.alter(
        "UPDATE sync.journal_months SET larger_at = TIMESTAMPTZ '2020-02-01 00:00:00+00' \
         WHERE larger_at IS NOT NULL",
    );
}

/// `casemirror journals` of one month, which waits for no backoff.
pub(crate) fn read(world: &World, month: &str, more: &[&str]) -> Output {
    let day = format!("{month}-01");
    world.run(&[&["journals", "--from", &day, "--to", &day], more].concat())
}

pub(crate) fn path_of(journal: &str) -> String {
    format!("/api/Offices/{OFFICE}/{journal}")
}

/// The queries of the calls to a journal of the office since the counters were reset, in their order.
pub(crate) fn asked(world: &World, journal: &str) -> Vec<String> {
    let path = path_of(journal);
    let log = world.sandbox.stats().log.into_iter();
    log.filter(|call| call.path == path).map(|call| call.query).collect()
}

const OF_DEPOT: &str = "[journals]\nids = [11]\n\
                        [resources]\ndisable = [\"case_journals\", \"revenue_journals\", \
                        \"revenue_journal_sums\", \"settlement_journals\"]\n";

/// One journal of one office, so many months back.
pub(crate) fn depot_only(of: Options, months: i32) -> World {
    depot_with(of, months, OF_DEPOT)
}

fn depot_with(of: Options, months: i32, more: &str) -> World {
    let world = World::with(of);
    world.retry_at_once();
    world.journals_since(&format!("{}-01", month(months)));
    world.configure(&format!("{FEED}{UNSCHEDULED}{more}"));
    world.bootstrap();
    world
}

/// Asserts that a journal of the office is mirrored as it is, in one month or in all.
pub(crate) fn assert_journal(world: &World, table: &str, month: Option<&str>) {
    let truth = world.sandbox.journal_tables(Level::Offices, month, &[table]);
    let of = format!("\"offices\"/{OFFICE}/\"{}", month.unwrap_or_default());
    let mut differing = differences_of(&world.store(), &truth);
    differing.retain(|difference| difference.contains(&of));
    assert_eq!(differing, [""; 0]);
}

fn heavy(days: i64) -> Option<HeavyJournal> {
    Some(HeavyJournal { office_id: OFFICE, days, answer: HeavyAnswer::GatewayTimeout })
}

/// The program was off when the month changed, and for longer than the trailing months.
#[test]
fn a_month_is_due_until_it_was_read_after_its_end() {
    let world = mirrored(options(10), 5, &format!("[journals]\nids = [{OFFICE}]\n"));
    let old = month(5);
    world.alter(&format!(
        "UPDATE sync.journal_months SET sent_at = TIMESTAMPTZ '{old}-15 03:15:00+00' \
             WHERE journal_month = DATE '{old}-01'"
    ));
    edit(&world, &old, Journal::RevenueJournals, JournalEdit::Appended, None);
    let due =
        format!("{FEED}[journals]\nids = [{OFFICE}]\n[schedule]\njournals = \"* * * * * *\"\n");
    world.configure(&due);
    let plan = world.run(&["plan"]);
    assert_status(&plan, 0);
    let planned = String::from_utf8_lossy(&plan.stdout).into_owned();
    let depot = planned.lines().find(|line| line.contains("depot_journals")).unwrap();
    assert_eq!(
        depot.split_whitespace().nth(1),
        Some("4"),
        "three trailing ones and it:\n{planned}"
    );

    let of_old = |world: &World| {
        let first = format!("fromDate={old}-01");
        let log = world.sandbox.stats().log.into_iter();
        log.filter(|call| call.path.contains("Journals") && call.query.contains(&first)).count()
    };
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(of_old(&world), 4, "each of its journals");
    assert_journal(&world, "revenue_journals", None);

    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(of_old(&world), 0, "it was read after its end");
}

#[test]
fn windows_that_became_small_grow_again() {
    let world = depot_only(Options { heavy_journal: heavy(1), ..options(10) }, 1);
    let closed = month(1);
    let days: usize = usize::try_from(one::<i64>(
        &world.store(),
        &format!("SELECT day(last_day(DATE '{closed}-01'))"),
    ))
    .unwrap();
    let calls = |world: &World| {
        world.sandbox.reset_stats();
        assert_status(&read(world, &closed, &[]), 0);
        asked(world, "DepotJournals").len()
    };
    assert_eq!(calls(&world), days, "an unchanged month is not read twice");

    // Larger parts are tried, and are still too much: no more of them than one.
    weeks_later(&world);
    let tried = calls(&world);
    assert!(tried > days && tried <= days + 5, "{tried} calls");
    assert_eq!(calls(&world), days, "and not again before some time has passed");

    world.sandbox.control(Control::HeavyJournal { heavy: None });
    let mut nights = Vec::new();
    for _ in 0..5 {
        weeks_later(&world);
        nights.push(calls(&world));
    }
    assert!(nights.is_sorted_by(|a, b| a > b), "{nights:?}");
    assert_eq!(nights.last(), Some(&1), "{nights:?}");
    assert_journal(&world, "depot_journals", None);
}

/// What grew for one month of a journal, the others begin with.
#[test]
fn a_source_that_has_recovered_is_asked_as_before_within_days() {
    let world = depot_only(Options { heavy_journal: heavy(1), ..options(10) }, 3);
    world.sandbox.control(Control::HeavyJournal { heavy: None });
    let due = "[schedule]\njournals = \"* * * * * *\"\n";
    world.configure(&format!("{FEED}{due}{OF_DEPOT}"));
    let mut nights = Vec::new();
    for _ in 0..3 {
        weeks_later(&world);
        world.sandbox.reset_stats();
        world.sync();
        nights.push(asked(&world, "DepotJournals").len());
    }
    assert_eq!(nights.last(), Some(&3), "three trailing months: {nights:?}");
}

#[test]
fn a_changed_month_in_parts_is_read_twice_and_an_unchanged_one_once() {
    let world = depot_only(Options { heavy_journal: heavy(8), ..options(10) }, 1);
    let closed = month(1);
    let calls = |world: &World| {
        world.sandbox.reset_stats();
        assert_status(&read(world, &closed, &[]), 0);
        asked(world, "DepotJournals").len()
    };
    assert_eq!(calls(&world), 4);
    edit(&world, &closed, Journal::DepotJournals, JournalEdit::Amount, Some(1));
    assert_eq!(calls(&world), 8);
    assert_eq!(calls(&world), 4);
    assert_journal(&world, "depot_journals", None);
}

/// However the service says that a month is too large.
#[test]
fn a_month_that_is_too_large_is_read_in_halves() {
    let world = depot_only(options(10), 2);
    let closed = month(2);
    let last: i64 = one(&world.store(), &format!("SELECT day(last_day(DATE '{closed}-01'))"));
    let query = Some(format!("fromDate={closed}-01&toDate={closed}-{last}"));
    let rule = fault(&path_of("DepotJournals"), None, refuse(413));
    world.sandbox.fault(Rule { query, ..rule });
    world.sandbox.reset_stats();
    assert_status(&read(&world, &closed, &[]), 0);
    assert_eq!(asked(&world, "DepotJournals").len(), 3, "and of halves that are known one pass");
    assert_journal(&world, "depot_journals", None);
}

/// The same lines in another order are the same lines.
#[test]
fn parts_agree_in_whatever_order_their_lines_come() {
    let world = depot_only(Options { heavy_journal: heavy(20), ..options(10) }, 2);
    let closed = month(2);
    let line = |id: i64| format!("{{\"DepotJournalDocumentId\": {id}, \"Amount\": {id}.50}}");
    let query = Some(format!("fromDate={closed}-01"));
    for (nth, ids) in [(1, [1, 2, 3]), (2, [3, 1, 2])] {
        let body = format!("[{}]", ids.map(line).join(","));
        let rule = fault(&path_of("DepotJournals"), Some(1), garbage(&body));
        world.sandbox.fault(Rule { query: query.clone(), nth, ..rule });
    }
    world.sandbox.reset_stats();
    // The lines before were others, so that they are doubted or not is not the question here.
    let output = read(&world, &closed, &["--set", "source.doubt=0s"]);
    assert!(!shown(&output).contains("did not come completely"), "{}", shown(&output));
    assert_eq!(asked(&world, "DepotJournals").len(), 4, "two passes over two halves");
}

/// Annotations are a set, and what no column takes, or moves by itself, is no content.
#[test]
fn parts_agree_in_what_says_which_lines_they_are() {
    let cases = OF_DEPOT.replace("case_journals", "depot_journals");
    let world = depot_with(Options { heavy_journal: heavy(20), ..options(10) }, 2, &cases);
    let closed = month(2);
    let path = path_of("CaseJournals");
    let bodies = [
        "[{\"Address\": \"Storgata 1\", \"CaseStatus\": \"Open\", \
          \"Annotations\": [{\"Annotation\": \"a\"}, {\"Annotation\": \"b\"}]}]",
        "[{\"New\": 1, \"CaseStatus\": \"Sold\", \"Address\": \"Storgata 1\", \
          \"Annotations\": [{\"Annotation\": \"b\"}, {\"Annotation\": \"a\"}]}]",
    ];
    for (nth, body) in (1..).zip(bodies) {
        let query = Some(format!("fromDate={closed}-01"));
        world.sandbox.fault(Rule { query, nth, ..fault(&path, Some(1), garbage(body)) });
    }
    world.sandbox.reset_stats();
    let output = read(&world, &closed, &["--set", "source.doubt=0s"]);
    assert!(!shown(&output).contains("did not come completely"), "{}", shown(&output));
    assert_eq!(asked(&world, "CaseJournals").len(), 4, "two passes over two halves");
}

/// What takes long to fail is not asked around the clock.
#[test]
fn a_month_that_fails_late_waits_longer_than_its_failing_took() {
    let world = depot_only(options(10), 2);
    let closed = month(2);
    let never = Fault::Hold { name: "for ever".to_owned(), when: When::Before };
    world.sandbox.fault(fault(&path_of("DepotJournals"), None, never));
    let waits = "SELECT (epoch_ms(next_at) - epoch_ms(first_at))::BIGINT FROM sync.failures";
    for attempt in 1..=2 {
        // The month and its first half, quarter ... down to a day.
        assert_status(&read(&world, &closed, &["--set", "limits.journal_timeout=300ms"]), 3);
        let wait: i64 = one(&world.store(), waits);
        assert!(wait >= 1_500 << attempt, "{wait} ms after attempt {attempt}");
    }
}

/// The sum means something else than the lines: no number of readings makes them agree.
#[test]
fn a_sum_that_never_matches_is_no_control_after_three_rounds() {
    let settings = format!(
        "{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = [\"case_journals\", \
         \"depot_journals\", \"settlement_journals\"]\n"
    );
    let world = mirrored(options(30), 2, &settings);
    let closed = month(2);
    let wrong = "{\"TotalPayment\": 1.00, \"TotalPurchasePrice\": 1.00}";
    world.sandbox.fault(fault(&path_of("RevenueJournals/Sum"), None, garbage(wrong)));
    let round = |world: &World| {
        world.sandbox.reset_stats();
        let output = read(world, &closed, &[]);
        let said = shown(&output).matches("is no control of its lines").count();
        let lines = asked(world, "RevenueJournals").len();
        (lines, asked(world, "RevenueJournals/Sum").len(), said, output.status.code().unwrap())
    };
    let rounds: Vec<_> = (0..5).map(|_| round(&world)).collect();
    // Said once and asked no more; but no agreement stands behind the month, and the status says so.
    assert_eq!(rounds, [(2, 2, 0, 3), (2, 2, 0, 3), (2, 2, 1, 3), (1, 1, 0, 3), (1, 1, 0, 3)]);
    let state = format!(
        "SELECT off_rounds, no_control_at IS NOT NULL FROM sync.journal_months \
         WHERE table_name = 'revenue_journal_sums' AND journal_month = DATE '{closed}-01'"
    );
    assert_eq!(rows(&world.store(), &state), ["3 | true"]);

    // Another line: it may be something else this time.
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Appended, None);
    assert_eq!(round(&world), (2, 2, 0, 3));
    assert_eq!(rows(&world.store(), &state), ["1 | false"]);
    world.sandbox.clear_faults();
    assert_eq!(round(&world), (1, 1, 0, 0));
    assert_eq!(rows(&world.store(), &state), ["false"]);
}

/// A sum is held against lines that were read, or it says nothing about itself.
#[test]
fn lines_that_cannot_be_read_make_no_sum_one_of_something_else() {
    let settings = format!(
        "{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = [\"case_journals\", \
         \"depot_journals\", \"settlement_journals\"]\n"
    );
    let world = mirrored(options(30), 2, &settings);
    world.retry_at_once();
    let closed = month(2);
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Appended, None);
    world.sandbox.fault(fault(&path_of("RevenueJournals"), None, refuse(500)));
    let state = format!(
        "SELECT coalesce(off_rounds, 0), no_control_at IS NOT NULL FROM sync.journal_months \
         WHERE table_name = 'revenue_journal_sums' AND journal_month = DATE '{closed}-01'"
    );
    for _ in 0..4 {
        assert_status(&read(&world, &closed, &[]), 3);
        assert_eq!(rows(&world.store(), &state), ["0 | false"]);
    }
    world.sandbox.clear_faults();
    assert_status(&read(&world, &closed, &[]), 0);
    let held = format!(
        "SELECT status FROM report.journal_reconciliation WHERE journal_month = DATE '{closed}-01'"
    );
    assert_eq!(rows(&world.published(), &held), ["matches"]);
}

/// Types a command while the daemon waits for a part that is held, and lets the part go when the daemon has the command.
fn forwarded_meanwhile(world: &World, daemon: &mut Daemon<'_>, args: &[&str]) {
    let child = start(world, args);
    let log = world.path("daemon.log");
    daemon.wait_until("the command is forwarded", || {
        std::fs::read_to_string(&log).unwrap().contains("a command was forwarded")
    });
    world.sandbox.release("a part");
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
}

/// The daemon has read the first days of a month, which change then, when somebody closes it.
#[test]
fn a_month_that_was_under_way_before_somebody_closes_it_is_read_anew() {
    let by_hand = OF_DEPOT.replace("[journals]", "[journals]\nclose_day = 0");
    let world = depot_with(Options { heavy_journal: heavy(4), ..options(10) }, 2, &by_hand);
    let closed = month(1);
    world.sandbox.fault(Rule {
        query: Some(format!("fromDate={closed}-09")),
        nth: 1,
        count: Some(1),
        ..fault(
            &path_of("DepotJournals"),
            None,
            Fault::Hold { name: "a part".to_owned(), when: When::After },
        )
    });
    world.configure_eager(&format!("[schedule]\njournals = \"* * * * * *\"\n{by_hand}"));
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("a part")));
    edit(&world, &closed, Journal::DepotJournals, JournalEdit::Amount, Some(1));
    forwarded_meanwhile(&world, &mut daemon, &["close", "--month", &closed, "--kind", "depot"]);
    daemon.stop();
    assert_status(&read(&world, &closed, &[]), 0);
    assert_journal(&world, "depot_journals", Some(&closed));
    let restated = "SELECT column_name FROM report.journal_restatements";
    assert_eq!(rows(&world.published(), restated), [""; 0], "it was closed as it is");
}

/// The daemon reads a month in many parts, and somebody types a command.
#[test]
fn a_month_under_way_gives_way_between_two_calls_and_goes_on_where_it_was() {
    let world = World::with(Options { heavy_journal: heavy(1), ..options(10) });
    world.retry_at_once();
    let (since, typed) = (month(1), month(4));
    world.journals_since(&format!("{since}-01"));
    let of = format!(
        "{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n[resources]\ndisable = [\"case_journals\", \
         \"revenue_journals\", \"revenue_journal_sums\"]\n"
    );
    world.configure_eager(&of);
    let path = path_of("DepotJournals");
    let query = Some(format!("fromDate={since}-09&toDate={since}-09"));
    let hold = Fault::Hold { name: "a part".to_owned(), when: When::After };
    world.sandbox.fault(Rule {
        method: None,
        path: path.clone(),
        query: query.clone(),
        nth: 1,
        count: Some(1),
        fault: hold,
    });
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("a part")));
    let day = format!("{typed}-01");
    let kind = ["--kind", "settlement"];
    let args = [&["journals", "--from", &day, "--to", &day], &kind[..]].concat();
    forwarded_meanwhile(&world, &mut daemon, &args);
    daemon.wait_until_idle();
    daemon.stop();

    let log = world.sandbox.stats().log;
    let held = log
        .iter()
        .position(|call| call.path == path && Some(&call.query) == query.as_ref())
        .unwrap();
    let of_typed = log
        .iter()
        .position(|call| call.path.ends_with("SettlementJournals") && call.query.contains(&day))
        .unwrap();
    let of_month = format!("fromDate={since}-");
    let between = log.iter().take(of_typed).skip(held + 1);
    let between = between.filter(|call| call.path == path && call.query.contains(&of_month));
    assert_eq!(between.count(), 0, "who types waits for one call");
    let mut parts: Vec<&String> = log
        .iter()
        .filter(|c| c.path == path && c.status == 200 && c.query.contains(&format!("{since}-")))
        .map(|c| &c.query)
        .collect();
    let passes = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(passes, 2 * parts.len(), "no part is read more often than in two passes");
    assert_journal(&world, "depot_journals", Some(&since));
}
