//! The months of the journals as scopes: what becomes of one that cannot be read, which are due, and
//! what their coverage says (docs/architecture.md, "Journals").

use std::process::Output;

use casemirror::sandbox::{
    Control, Fault, HeavyAnswer, HeavyJournal, Journal, JournalEdit, Options, Rule, When,
};
use duckdb::Connection;
use rstest::rstest;

use crate::support::follow::{
    IN_TWENTY_HOURS, assert_status, calls, idle_calls, start, while_held,
};
use crate::support::journals::{
    FEED, OFFICE, edit, mirrored, month, options, read_again, restatements, rows,
};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, differences, one, shown};

/// Nothing of a journal falls due by itself.
const UNSCHEDULED: &str =
    "[schedule]\njournals = \"0 0 1 1 *\"\njournals_recheck = \"0 0 1 1 *\"\n";
const NOT_COMPLETE: &str = "SELECT journal, journal_id, strftime(journal_month, '%Y-%m'), status, \
                            read_at FROM report.journal_coverage WHERE status NOT IN ('complete', 'open')";

/// Calls that are never answered.
fn hang(path: &str, query: Option<String>) -> Rule {
    let fault = Fault::Hold { name: "for ever".to_owned(), when: When::Before };
    Rule { method: None, path: path.to_owned(), query, nth: 1, count: None, fault }
}

/// `casemirror journals` from a month to another.
fn journals(world: &World, from: &str, to: &str, more: &[&str]) -> Output {
    let (from, to) = (format!("{from}-01"), format!("{to}-01"));
    world.run(&[&["journals", "--from", &from, "--to", &to], more].concat())
}

/// Calls to journals since the counters were reset, those that were never answered included.
fn journal_calls(world: &World) -> u64 {
    let made = calls(world);
    made.iter().filter(|(call, _)| call.contains("Journals")).map(|(_, times)| times).sum()
}

#[test]
fn a_month_that_times_out_is_visibly_missing_and_stops_nothing() {
    let world = World::with(options(6));
    world.journals_since(&format!("{}-01", month(2)));
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    let hung = month(1);
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    world.sandbox.fault(hang(&path, Some(format!("fromDate={hung}"))));
    let output = world.run(&["sync", "--set", "limits.journal_timeout=1s"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("incomplete: depot_journals: 1 scope failed"));
    // Its other months, other journals of the month and other offices are there.
    assert_eq!(
        rows(&world.published(), NOT_COMPLETE),
        [format!("depot_journals | {OFFICE} | {hung} | failing")]
    );
    let failure = "SELECT kind, id, part FROM sync.failures";
    assert_eq!(rows(&world.store(), failure), [format!("Timeout | {OFFICE} | offices/{hung}")]);
    let differing = world.differences();
    let missing = format!("depot_journals \"offices\"/{OFFICE}/\"{hung}-01\"");
    assert!(!differing.is_empty());
    assert!(differing.iter().all(|line| line.starts_with(&missing)), "{differing:?}");

    // It waits for its next attempt, and no schedule shortens that.
    assert_eq!(world.alter(IN_TWENTY_HOURS), 1);
    world.sandbox.clear_faults();
    world.configure(&format!("{FEED}[schedule]\njournals = \"* * * * * *\"\n"));
    let plan = world.run(&["plan"]);
    assert_status(&plan, 0);
    assert!(shown(&plan).contains("1 scope failed or waits"), "{}", shown(&plan));
    let planned = String::from_utf8_lossy(&plan.stdout).into_owned();
    let depot = planned.lines().find(|line| line.contains("depot_journals")).unwrap();
    assert_eq!(depot.split_whitespace().nth(1), Some("17"), "of 18 months one waits:\n{planned}");
    assert_status(&world.run(&["sync"]), 3);
    // Who types it does not wait.
    assert_status(&journals(&world, &hung, &hung, &["--kind", "depot"]), 0);
    assert_eq!(rows(&world.store(), NOT_COMPLETE), [""; 0]);
    world.sync();
    world.assert_equal();
}

#[test]
fn a_run_whose_journals_all_time_out_ends_with_all_else_done() {
    let world = World::with(options(6));
    world.journals_since(&format!("{}-01", month(2)));
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    world.sandbox.fault(hang("/api/Offices/*Journals", None));
    let output = world.run(&["sync", "--set", "limits.journal_timeout=300ms"]);
    // More than enough time-outs to say that the source cannot be reached, were they not journals'.
    assert_status(&output, 3);
    let failed = "SELECT table_name, count(*)::INT FROM sync.failures GROUP BY ALL ORDER BY ALL";
    let store = world.store();
    let tables = ["case_journals", "depot_journals", "revenue_journals", "settlement_journals"];
    let mut in_all = 0;
    for table in tables {
        let months: i64 = one(
            &store,
            &format!("SELECT count(*) FROM sync.failures WHERE table_name = '{table}'"),
        );
        // A few are under way when it gives up; there are 18 of each.
        assert!((4..=8).contains(&months), "{:?}", rows(&store, failed));
        in_all += months;
    }
    assert!(in_all > 8);
    assert_eq!(
        one::<i64>(&store, "SELECT count(*) FROM sync.journal_months WHERE due IS NOT NULL"),
        4 * 18,
        "what was not asked is due as well"
    );
    let state = world.sandbox.state();
    let differing = differences(&store, &state);
    drop(store);
    assert!(differing.iter().all(|line| line.contains("journal")), "{differing:?}");
    let covered = "SELECT DISTINCT status FROM report.journal_coverage \
                   WHERE journal <> 'revenue_journal_sums' ORDER BY 1";
    assert_eq!(rows(&world.published(), covered), ["failing", "missing"]);

    world.sandbox.clear_faults();
    assert_status(&journals(&world, &month(2), &month(0), &[]), 0);
    world.assert_equal();
    world.sync();
}

#[test]
fn whether_lines_add_up_is_not_known_of_a_sum_that_is_older_than_they_are() {
    let world = mirrored(options(30), 2, UNSCHEDULED);
    let closed = month(2);
    let covered = |world: &World| {
        let coverage = "SELECT DISTINCT journal, status, sum_matches FROM report.journal_coverage \
                        WHERE journal_id = 11 AND journal_month =";
        let sql = format!("{coverage} DATE '{closed}-01' ORDER BY ALL");
        rows(&world.published(), &sql)
            .into_iter()
            .filter(|r| r.contains("revenue_journals"))
            .collect()
    };
    let revenue = ["--kind", "revenue"];
    let says = |world: &World, matches: &str| {
        let covered: Vec<String> = covered(world);
        assert_eq!(covered, [format!("revenue_journals | complete{matches}")]);
    };
    says(&world, " | true");

    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    let sum = format!("/api/Offices/{OFFICE}/RevenueJournals/Sum");
    world.sandbox.fault(fault(&sum, None, refuse(400)));
    assert_status(&journals(&world, &closed, &closed, &revenue), 3);
    // The new lines with the old sum: that they differ says nothing.
    says(&world, "");
    let others = "SELECT bool_and(sum_matches) FROM report.journal_coverage \
                  WHERE journal = 'revenue_journals' AND NOT (journal_id = 11 AND journal_month =";
    assert!(one::<bool>(&world.published(), &format!("{others} DATE '{closed}-01')")));

    world.sandbox.clear_faults();
    assert_status(&journals(&world, &closed, &closed, &revenue), 0);
    says(&world, " | true");

    // A sum that stays wrong: the lines are read once more, and no more often.
    let wrong = "{\"TotalPayment\": 1.00, \"TotalPurchasePrice\": 1.00}";
    world.sandbox.fault(fault(&sum, None, garbage(wrong)));
    world.sandbox.reset_stats();
    assert_status(&journals(&world, &closed, &closed, &revenue), 3);
    says(&world, " | false");
    let lines = format!("GET /api/Offices/{OFFICE}/RevenueJournals");
    assert_eq!(calls(&world)[&lines], 2);
}

/// A mirror's own copy of the revenue journals' resource file, without the column of the address.
fn own_resource_without_address(world: &World) {
    let built_in = format!("{}/schemas/revenue_journals.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(built_in).unwrap();
    let (head, columns) = text.split_once("[[column]]\n").unwrap();
    let mut columns: Vec<&str> = columns.split("[[column]]\n").collect();
    let all = columns.len();
    columns.retain(|column| !column.starts_with("field = \"Address\"\n"));
    assert_eq!(columns.len(), all - 1);
    let own = world.path("own");
    std::fs::create_dir_all(&own).unwrap();
    let text = format!("{head}[[column]]\n{}", columns.join("[[column]]\n"));
    std::fs::write(own.join("revenue_journals.toml"), text).unwrap();
}

const OWN: &str = "resources.dir=own";
const BUILT_IN: &str = "resources.dir=";

#[rstest]
#[case::a_column_less(BUILT_IN, OWN)]
#[case::a_column_more(OWN, BUILT_IN)]
#[case::shown_instead_of_dropped("privacy.contact_details=drop", "privacy.contact_details=keep")]
fn what_changes_on_our_side_is_no_restatement_and_no_version(
    #[case] before: &str,
    #[case] after: &str,
) {
    let world = World::with(options(40));
    let closed = month(2);
    world.journals_since(&format!("{closed}-01"));
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    own_resource_without_address(&world);
    assert_status(&world.run(&["sync", "--set", before]), 0);
    let newest = "SELECT max(_synced_at)::VARCHAR FROM revenue_journals";
    let newest: String = one(&world.store(), newest);

    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Appended, None);
    world.sandbox.reset_stats();
    // Only `sync` brings the store up to it.
    assert_status(&world.run_out_of_reach(&["sync", "--set", after]), 1);
    let revenue = ["--kind", "revenue", "--set", after];
    assert_status(&journals(&world, &closed, &month(0), &revenue), 0);
    // All of it was read again; what the source did is all there is to tell.
    assert_eq!(journal_calls(&world), 6 * 3 * 2);
    assert_eq!(restatements(&world), ["revenue_journals | added"]);
    let store = world.store();
    assert_eq!(one::<i64>(&store, "SELECT count(*) FROM history.revenue_journals"), 0);
    let newer =
        format!("SELECT count(*) FROM revenue_journals WHERE _synced_at > TIMESTAMPTZ '{newest}'");
    assert_eq!(one::<i64>(&store, &newer), 1, "the other lines keep their time");
    drop(store);

    // From now on it counts again.
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    assert_status(&journals(&world, &closed, &closed, &revenue), 0);
    let told = restatements(&world);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("revenue_journals | changed | payment | "), "{told:?}");
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM history.revenue_journals"), 1);
}

/// The month comes in two halves, and the first is there in every second reading only.
#[test]
fn lines_that_an_incomplete_reading_lacks_stay_behind_those_of_the_answer() {
    let heavy = HeavyJournal { office_id: OFFICE, days: 20, answer: HeavyAnswer::GatewayTimeout };
    let of = Options { heavy_journal: Some(heavy), journal_lines: Some(40), ..options(10) };
    let world = mirrored(of, 2, &format!("{UNSCHEDULED}[journals]\nids = [{OFFICE}]\n"));
    let closed = month(2);
    let of_month = format!("journal_month = DATE '{closed}-01'");
    // Each line with what is annotated to it, whatever its number.
    let content = format!(
        "SELECT l.* EXCLUDE (line_number), \
           (SELECT string_agg(a.annotation || coalesce(a.payment_change, 0), ', ' ORDER BY a.position) \
            FROM revenue_journal_annotations a WHERE a.{of_month} \
              AND a.line_number = l.line_number) AS notes \
         FROM revenue_journals l WHERE l.{of_month} ORDER BY ALL"
    );
    let numbers = format!(
        "SELECT line_number FROM revenue_journals WHERE {of_month} ORDER BY revenue_date, line_number"
    );
    let before = rows(&world.store(), &content);
    assert_eq!(before.len(), 40);

    // Lines, and amounts where they are known.
    let reports = format!(
        "SELECT lines, NULL, payment, purchase_price FROM report.revenue_by_month WHERE month = '{closed}-01' \
         UNION ALL SELECT closed_lines, restatements, current_payment, net_payment \
           FROM report.journal_statement WHERE journal = 'revenue_journals' AND {of_month} \
         UNION ALL SELECT lines, status, payment, difference \
           FROM report.journal_reconciliation WHERE {of_month}"
    );
    let known = rows(&world.published(), &reports);
    assert!(known.iter().all(|row| row.split(" | ").count() >= 3), "{known:?}");
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let lost = format!("fromDate={closed}-01");
    for nth in [1, 3, 5] {
        let rule = fault(&path, Some(1), garbage("[]"));
        world.sandbox.fault(Rule { query: Some(lost.clone()), nth, ..rule });
    }
    let output = journals(&world, &closed, &closed, &["--kind", "revenue"]);
    assert_status(&output, 3);
    assert_eq!(
        rows(&world.store(), NOT_COMPLETE)[0].split(" | ").take(4).collect::<Vec<_>>(),
        ["revenue_journals", "11", &closed, "incomplete"]
    );
    assert_eq!(rows(&world.store(), &content), before, "no line and no annotation is lost");
    assert_eq!(rows(&world.published(), &reports), ["40", "40 | 0", "40 | incomplete"]);
    let placed: Vec<usize> =
        rows(&world.store(), &numbers).iter().map(|n| n.parse().unwrap()).collect();
    let there = placed.iter().position(|number| *number == 1).unwrap();
    assert!(there > 0, "the first half was there: {placed:?}");
    let expected: Vec<usize> = (40 - there + 1..=40).chain(1..=40 - there).collect();
    assert_eq!(placed, expected, "what the answer lacks stands behind what it has");
    assert_eq!(restatements(&world), [""; 0]);

    // Nor are the sums known when other things go wrong after it.
    for (answer, status) in [(refuse(500), "failing"), (garbage("[]"), "doubted")] {
        world.sandbox.clear_faults();
        world.sandbox.fault(fault(&path, None, answer));
        assert_status(&journals(&world, &closed, &closed, &["--kind", "revenue"]), 3);
        let open = ["40".to_owned(), "40 | 0".to_owned(), format!("40 | {status}")];
        assert_eq!(rows(&world.published(), &reports), open);
    }
    world.sandbox.clear_faults();
    read_again(&world, &closed);
    let placed: Vec<usize> =
        rows(&world.store(), &numbers).iter().map(|n| n.parse().unwrap()).collect();
    assert_eq!(placed, (1..=40).collect::<Vec<_>>());
    assert_eq!(rows(&world.store(), &content), before);
    assert_eq!(rows(&world.published(), &reports), known);
    assert_eq!(restatements(&world), [""; 0]);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM history.revenue_journals"), 0);
}

#[test]
fn journals_that_are_permitted_again_are_read_again_in_every_month() {
    let world = mirrored(options(12), 5, UNSCHEDULED);
    let permission = || "OfficeAdministration - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission: permission() });
    let revenue =
        format!("SELECT count(*) FROM revenue_journals WHERE journal_month = '{}-01'", month(1));
    let before = one::<i64>(&world.store(), &revenue);
    edit(&world, &month(1), Journal::RevenueJournals, JournalEdit::Appended, None);
    // What may not be read is no failure, and is not asked again. Revenue and settlements need no such permission.
    assert_status(&journals(&world, &month(1), &month(1), &[]), 0);
    assert_eq!(one::<i64>(&world.store(), &revenue), before + 1);
    let covered = "SELECT journal, status, count(*)::INT FROM report.journal_coverage GROUP BY ALL \
                   ORDER BY ALL";
    let forbidden = ["case_journals", "depot_journals"];
    let others = ["revenue_journal_sums", "revenue_journals", "settlement_journals"];
    let is_read = |j: &str| [format!("{j} | complete | 30"), format!("{j} | open | 6")];
    let of_the_others = others.map(is_read).concat();
    let expected =
        [forbidden.map(|j| format!("{j} | forbidden | 36")).to_vec(), of_the_others.clone()];
    assert_eq!(rows(&world.published(), covered), expected.concat());
    edit(&world, &month(4), Journal::DepotJournals, JournalEdit::Inserted, None);
    edit(&world, &month(1), Journal::CaseJournals, JournalEdit::Appended, None);
    world.sync();

    world.sandbox.control(Control::Grant { permission: permission() });
    world.configure(&format!("{FEED}{UNSCHEDULED}reference = \"* * * * * *\"\n"));
    world.sandbox.reset_stats();
    world.sync();
    // Six offices, six months, two journals.
    assert_eq!(journal_calls(&world), 6 * 6 * 2);
    let expected = [forbidden.map(is_read).concat(), of_the_others];
    assert_eq!(rows(&world.published(), covered), expected.concat());
    world.assert_equal();
}

#[test]
fn the_weekly_recheck_reads_what_did_not_fit_again_however_old_its_month_is() {
    let world = World::with(options(12));
    let old = month(3);
    world.journals_since(&format!("{old}-01"));
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    let wrong = "[{\"DepotJournalDocumentId\": 1, \"Amount\": \"a lot\"}]";
    let rule = fault(&path, Some(1), garbage(wrong));
    world.sandbox.fault(Rule { query: Some(format!("fromDate={old}")), ..rule });
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("depot_journals: 1 open reject"), "{}", shown(&output));

    let recheck = "[schedule]\njournals = \"0 0 1 1 *\"\njournals_recheck = \"* * * * * *\"\n";
    world.configure(&format!("{FEED}{recheck}[journals]\nrecheck_months = 1\n"));
    world.sandbox.reset_stats();
    // The line that stood for all others goes with the rest of the wrong answer.
    assert_status(&world.run(&["sync", "--allow-removals"]), 0);
    let made = calls(&world);
    assert_eq!(made[&format!("GET {path}")], 2, "this month and the one with the reject");
    assert_eq!(made["GET /api/Offices/12/DepotJournals"], 1);
    let open = "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NULL";
    assert_eq!(one::<i64>(&world.store(), open), 0);
    world.assert_equal();
}

/// Killed in the midst of the months that its schedules made due, with all five schedules due.
#[test]
fn a_sync_killed_in_its_journals_repeats_nothing_and_loses_nothing() {
    let world = mirrored(options(6), 3, "");
    // Every schedule has last run long ago, and does not fall due again while this test runs.
    let yearly = ["reference", "journals", "journals_recheck", "reconcile", "verify"]
        .map(|name| format!("{name} = \"0 0 1 1 *\"\n"));
    let settings = "[journals]\ntrailing_months = 3\nrecheck_months = 2\n";
    world.configure(&format!("{FEED}{settings}[schedule]\n{}", yearly.concat()));
    let long_ago = "UPDATE sync.schedules SET last_run = TIMESTAMPTZ '2020-02-01 00:00:00+00'";
    assert_eq!(world.alter(long_ago), 5);

    // The lines are committed before a sum is asked.
    world.sandbox.fault(hang("/api/Offices/*/Sum", None));
    let mut run = start(&world, &["sync"]);
    assert!(world.wait(world.sandbox.wait_until_held("for ever")));
    run.kill().unwrap();
    run.wait().unwrap();
    world.sandbox.clear_faults();
    let left = {
        let conn = Connection::open(world.path("data/store.duckdb")).unwrap();
        one::<i64>(&conn, "SELECT count(*) FROM sync.journal_months WHERE due IS NOT NULL")
    };
    assert_eq!(left, 6 * 4, "the lines are there; the sums of all four months are not");

    world.sandbox.reset_stats();
    let output = world.run(&["sync"]);
    assert_status(&output, 0);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("verified: "), "schedule.verify was due still: {told}");
    let made = calls(&world);
    let of = |call: &str| made.get(call).copied().unwrap_or(0);
    assert_eq!(of("GET /api/Offices"), 0, "schedule.reference had run");
    let log = world.sandbox.stats().log;
    let listed =
        log.iter().filter(|c| c.path.ends_with("PropertySearch") && c.query.contains("$skip"));
    assert_eq!(listed.count(), 0, "schedule.reconcile had run");
    // The comparison asks for the sum of every month once more, and for one month of each journal
    // without sums.
    assert_eq!(journal_calls(&world), 2 * left.unsigned_abs() + 6 * 3);

    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world), idle_calls(), "each schedule has run once");
    world.assert_equal();
}

#[test]
fn another_first_day_is_told_of_until_the_schedule_follows_it() {
    let world = World::with(options(6));
    let (first, earlier) = (format!("{}-01", month(2)), format!("{}-01", month(4)));
    world.journals_since(&first);
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    world.sync();
    let months = || {
        let read = "SELECT count(DISTINCT journal_month) FROM report.journal_coverage";
        one::<i64>(&world.store(), read)
    };
    let told = |first: &str, now: &str| {
        format!("journals.since is {now} here, and the journals are mirrored from {first} on")
    };
    let says = |world: &World, text: &str, does: bool| {
        for command in [&["status"][..], &["status", "--json"], &["check"], &["plan"], &["sync"]] {
            let output = world.run(command);
            assert_status(&output, 0);
            assert_eq!(shown(&output).contains(text), does, "{}", shown(&output));
            assert!(!shown(&output).contains("brings it up"), "{}", shown(&output));
        }
    };
    says(&world, "journals.since", false);

    // It is in the midst of a month: what is read is whole months.
    world.journals_since(&format!("{}-15", month(2)));
    says(&world, "journals.since", false);
    world.journals_since(&format!("{}-01", month(1)));
    says(&world, &told(&first, &format!("{}-01", month(1))), true);
    world.journals_since(&earlier);
    says(&world, &told(&first, &earlier), true);
    assert_eq!(months(), 3);
    let output = journals(&world, &month(0).to_string(), &month(0).to_string(), &[]);
    assert_status(&output, 0);

    let due = "[schedule]\njournals = \"* * * * * *\"\njournals_recheck = \"0 0 1 1 *\"\n";
    world.configure(&format!("{FEED}{due}"));
    world.sync();
    assert_eq!(months(), 5);
    world.configure(&format!("{FEED}{UNSCHEDULED}"));
    says(&world, "journals.since", false);
    world.assert_equal();
}

/// Whoever was told that the daemon stops finds the rest done by the next run.
#[test]
fn journals_that_a_stopping_daemon_left_are_read_by_the_next_run() {
    let world = World::with(options(6));
    world.journals_since(&format!("{}-01", month(3)));
    world.configure_eager(UNSCHEDULED);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    let (from, to) = (format!("{}-01", month(3)), format!("{}-01", month(0)));
    for ago in 1..=3 {
        edit(&world, &month(ago), Journal::CaseJournals, JournalEdit::Doubled, Some(1));
    }
    world.sandbox.reset_stats();
    let path = format!("/api/Offices/{OFFICE}/*Journals");
    let hold = Fault::Hold { name: "call".to_owned(), when: When::After };
    world.sandbox.fault(Rule { nth: 5, count: Some(1), fault: hold, ..hang(&path, None) });
    let typed = start(&world, &["journals", "--from", &from, "--to", &to]);
    let output = while_held(&world, typed, "call", || {
        daemon.signal("TERM");
        let log = world.path("daemon.log");
        daemon.wait_until("it stops", || {
            std::fs::read_to_string(&log).unwrap().contains("stopping: ")
        });
    });
    assert_status(&output, 1);
    assert!(shown(&output).contains("the daemon stops"), "{}", shown(&output));
    assert_eq!(daemon.ends().code(), Some(0), "{}", daemon.log());
    let asked = journal_calls(&world);
    let months = 6 * 4 * 5;
    assert!(asked < months, "{asked} of {months}");
    world.sync();
    // What was under way is finished and not asked again.
    assert_eq!(journal_calls(&world), months);
    world.assert_equal();
}

#[test]
fn a_month_that_was_never_read_makes_no_sum_smaller() {
    let closed = month(2);
    let world = World::with(options(20));
    world.journals_since(&format!("{closed}-01"));
    world.configure(FEED);
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let query = Some(format!("fromDate={closed}-01"));
    world.sandbox.fault(Rule { query, ..fault(&path, None, refuse(400)) });
    assert_status(&world.run(&["sync"]), 3);
    let revenue = format!(
        "SELECT lines > 0 AS has_lines, payment IS NULL, purchase_price IS NULL \
         FROM report.revenue_by_month WHERE journal_id = {OFFICE} ORDER BY month"
    );
    let known = "true | false | false";
    assert_eq!(rows(&world.published(), &revenue), ["false | true | true", known, known]);

    world.sandbox.clear_faults();
    assert_status(&journals(&world, &closed, &closed, &[]), 0);
    assert_eq!(rows(&world.published(), &revenue), [known; 3]);
}
