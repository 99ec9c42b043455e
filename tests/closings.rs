//! Months of the journals that are closed: what they were stays known, whatever becomes of them
//! (docs/finance.md).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use casemirror::sandbox::{Control, Journal, JournalEdit, Rule};
use serde::Deserialize;

use crate::evidence::alter;
use crate::readers::python;
use crate::support::daemon::Daemon;
use crate::support::follow::{assert_status, unthrottled};
use crate::support::journals::{FEED, OFFICE, edit, mirrored, month, options, read_again, rows};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, one, shown};

/// Nothing is closed but by hand.
const BY_HAND: &str = "[journals]\nclose_day = 0\n";
const SUMS: &str = "/api/Offices/*/RevenueJournals/Sum";

fn by_hand() -> World {
    mirrored(options(40), 2, BY_HAND)
}

/// `casemirror close` of a month, with these further arguments.
fn close(world: &World, month: &str, more: &[&str]) -> std::process::Output {
    world.run(&[&["close", "--month", month], more].concat())
}

/// Closings of a month of [`OFFICE`]'s revenue journal: by whom, lines, payment, opened again.
fn closings(world: &World, month: &str) -> Vec<String> {
    rows(
        &world.published(),
        &format!(
            "SELECT closed_by, lines, payment, reopened_at IS NOT NULL FROM report.closings \
             WHERE journal = 'revenue_journals' AND journal_id = {OFFICE} \
               AND journal_month = '{month}-01' ORDER BY closed_at"
        ),
    )
}

/// What the revenue journal of [`OFFICE`] comes to at the source: lines and payments.
fn at_source(world: &World, month: &str) -> String {
    one(
        &world.published(),
        &format!(
            "SELECT lines || ' | ' || payment FROM report.revenue_by_month \
             WHERE journal_id = {OFFICE} AND month = '{month}-01'"
        ),
    )
}

fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The files of a pack with their bytes.
fn pack(world: &World, month: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = world.path("data/parquet/closings").join(month);
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (name(&path), fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn what_is_closed_before_anything_is_published_is_said_and_its_pack_comes_later() {
    let world = World::with(options(12));
    world.publish_snapshots();
    world.journals_since(&format!("{}-01", month(2)));
    world.configure(&format!("{FEED}{BY_HAND}"));
    let closed = month(1);
    let early = close(&world, &closed, &[]);
    assert_status(&early, 3);
    let said = shown(&early);
    assert!(said.contains(&format!("closed by {}", user())), "{said}");
    assert!(said.contains("no pack yet: nothing is published"), "{said}");
    world.sync();
    let late = close(&world, &closed, &[]);
    assert_status(&late, 0);
    assert!(
        shown(&late).contains("closed already") && shown(&late).contains("pack "),
        "{}",
        shown(&late)
    );
    for mistyped in ["0001-01", "1850-01"] {
        let refused = close(&world, mistyped, &[]);
        assert_status(&refused, 2);
        assert!(shown(&refused).contains("must be from 1900-01 to 2100-12"), "{}", shown(&refused));
    }
}

#[test]
fn the_first_complete_reading_after_the_close_day_closes_a_month() {
    let (open, closed) = (month(0), month(2));
    let world = mirrored(options(40), 2, "");
    let expected = format!("close_day | {} | false", at_source(&world, &closed));
    assert_eq!(closings(&world, &closed), [expected.as_str()]);
    assert_eq!(closings(&world, &open), [""; 0]);
    let each = "SELECT count(*) = 4 * count(DISTINCT journal_id) AND count(DISTINCT journal) = 4 \
                FROM report.closings WHERE journal_month = ";
    assert!(one::<bool>(&world.published(), &format!("{each} '{closed}-01'")));

    // What comes later changes no closing, and shows in the statement.
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    read_again(&world, &closed);
    assert_eq!(closings(&world, &closed), [expected.as_str()]);
    let now = at_source(&world, &closed);
    let statement = rows(
        &world.published(),
        &format!(
            "SELECT 'close_day', closed_lines, closed_payment, false, current_lines || ' | ' || \
               current_payment = '{now}', net_payment = current_payment - closed_payment, \
               net_payment <> 0, restatements, last_changed_at IS NOT NULL \
             FROM report.journal_statement WHERE journal = 'revenue_journals' \
               AND journal_id = {OFFICE} AND journal_month = '{closed}-01'"
        ),
    );
    assert_eq!(statement, [format!("{expected} | true | true | true | 1 | true")]);
    let unchanged = "SELECT count(*) FROM report.journal_statement WHERE restatements = 0 AND \
                     closed_lines = current_lines AND coalesce(net_payment, 0) = 0";
    let all = "SELECT count(*) - 1 FROM report.journal_statement";
    assert_eq!(one::<i64>(&world.published(), unchanged), one::<i64>(&world.published(), all));
}

/// With few trailing months nothing else reads a month after its close day, and what is corrected then would be taken for
/// what it was closed with.
#[test]
fn a_month_that_no_schedule_reads_any_more_is_read_once_on_its_close_day() {
    let world = World::with(options(12));
    world.journals_since(&format!("{}-01", month(2)));
    let journals = "[schedule]\njournals = \"* * * * * *\"\n[journals]\ntrailing_months = 1\nrecheck_months = 0\n";
    world.configure(&format!("{FEED}{journals}close_day = 0\n"));
    world.sync();
    assert_eq!(rows(&world.published(), "FROM report.closings"), [""; 0], "close_day is 0");
    world.configure(&format!("{FEED}{journals}close_day = 1\n"));
    let planned = shown(&world.run(&["plan"]));
    let revenue = planned.lines().find(|line| line.contains("revenue_journals")).unwrap();
    let months = "SELECT count(*) FROM sync.journal_months WHERE table_name = 'revenue_journals'";
    assert_eq!(
        revenue.split_whitespace().nth(1),
        Some(&*one::<i64>(&world.published(), months).to_string()),
        "the month under way, and the two before it:\n{planned}"
    );
    world.sync();
    let closed = "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM report.closings ORDER BY 1";
    assert_eq!(rows(&world.published(), closed), [month(2), month(1)]);
    // Once: what somebody opens again, and what is closed, waits for nothing.
    let read =
        "SELECT max(epoch_us(sent_at)) FROM sync.journal_months WHERE closed_read_at IS NOT NULL";
    let before: i64 = one(&world.published(), read);
    world.sync();
    assert_eq!(one::<i64>(&world.published(), read), before);
}

/// One of the two clocks is wrong: what only one of them says is over stays open, and is closed when they agree.
#[test]
fn a_month_is_not_closed_by_a_clock_that_is_days_ahead_of_the_services() {
    let world = World::with(options(12));
    world.journals_since(&format!("{}-01", month(2)));
    let days = 24 * 3_600_000;
    world.sandbox.control(Control::DateSkew { ms: -120 * days });
    world.configure(&format!("{FEED}[schedule]\njournals = \"* * * * * *\"\n"));
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(rows(&world.published(), "FROM report.closings"), [""; 0]);
    let statuses = "SELECT DISTINCT status FROM report.journal_coverage";
    assert_eq!(rows(&world.published(), statuses), ["open"]);
    world.sandbox.control(Control::DateSkew { ms: 0 });
    world.sync();
    let closed = "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM report.closings";
    assert!(rows(&world.published(), closed).contains(&month(2)));
    let statuses = "SELECT DISTINCT status FROM report.journal_coverage ORDER BY 1";
    assert_eq!(rows(&world.published(), statuses), ["complete", "open"]);
}

#[test]
fn a_month_that_is_closed_by_hand_is_read_again_and_frozen() {
    let last = month(1);
    let world = by_hand();
    world.publish_snapshots();
    assert_eq!(rows(&world.published(), "FROM report.closings"), [""; 0], "close_day is 0");
    // A line has changed since it was mirrored, with the platform's sum, and nobody has noticed.
    edit(&world, &last, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    let output = close(&world, &last, &[]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("0 inserted, 2 updated, 0 deleted"), "{}", shown(&output));
    let expected = format!("{} | {} | false", user(), at_source(&world, &last));
    assert_eq!(closings(&world, &last), [expected.as_str()]);

    // What is closed is not closed again, and its pack is the same to the byte.
    let before = pack(&world, &last);
    let output = close(&world, &last, &[]);
    assert_status(&output, 0);
    assert!(shown(&output).contains(": nothing to close; "), "{}", shown(&output));
    assert_eq!(closings(&world, &last), [expected.as_str()]);
    let differing: Vec<_> = before.iter().filter(|(n, b)| pack(&world, &last)[*n] != **b).collect();
    assert!(differing.is_empty(), "{:?}", differing.iter().map(|(n, _)| n).collect::<Vec<_>>());

    // From now on what changes is a restatement, and the pack has the lines that were closed.
    edit(&world, &last, Journal::RevenueJournals, JournalEdit::Removed, Some(1));
    read_again(&world, &last);
    assert_status(&close(&world, &last, &[]), 0);
    let after = pack(&world, &last);
    let changed: Vec<&str> =
        before.keys().filter(|n| after[*n] != before[*n]).map(String::as_str).collect();
    let workbook = format!("closing-{last}.xlsx");
    let mut expected: Vec<String> = ["reconciliation", "restatements", "statement"]
        .iter()
        .flat_map(|name| ["csv", "parquet"].map(|kind| format!("journal_{name}.{kind}")))
        .chain(["csv", "parquet"].map(|kind| format!("revenue_journal_sums.{kind}")))
        .chain([workbook])
        .collect();
    expected.sort();
    assert_eq!(changed, expected);
}

#[test]
fn a_month_that_differs_or_has_no_control_is_closed_by_force_alone() {
    let last = month(1);
    let world = by_hand();
    world.sandbox.fault(fault(SUMS, None, refuse(500)));
    world.retry_at_once();
    let output = close(&world, &last, &["--kind", "revenue"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("nothing is closed"), "{}", shown(&output));
    // A control that was read before the lines were is none.
    world.sandbox.clear_faults();
    let wrong = r#"{"TotalPayment": 1.00, "TotalPurchasePrice": 1.00}"#;
    world.sandbox.fault(fault(SUMS, None, garbage(wrong)));
    let output = close(&world, &last, &["--kind", "revenue", "--office", &OFFICE.to_string()]);
    assert_status(&output, 4);
    assert!(shown(&output).contains("do not add up to the platform's sum"), "{}", shown(&output));
    assert_eq!(rows(&world.published(), "FROM report.closings"), [""; 0]);

    let forced = ["--kind", "revenue", "--office", &OFFICE.to_string(), "--force"];
    assert_status(&close(&world, &last, &forced), 0);
    assert_eq!(closings(&world, &last).len(), 1);
    let noted = "SELECT DISTINCT forced_over FROM sync.closings";
    assert_eq!(rows(&world.published(), noted), ["its lines do not add up to the platform's sum"]);
}

/// A month that was never read completely, and whose close day has passed, would be closed by the very reading that
/// finds the difference.
#[test]
fn the_reading_of_close_closes_nothing_by_the_close_day() {
    let last = month(2);
    let world = mirrored(options(40), 1, "");
    assert_eq!(closings(&world, &last), [""; 0], "it is not mirrored");
    let wrong = r#"{"TotalPayment": 1.00, "TotalPurchasePrice": 1.00}"#;
    world.sandbox.fault(fault(SUMS, None, garbage(wrong)));
    let revenue = ["--kind", "revenue", "--office", &OFFICE.to_string()];
    let output = close(&world, &last, &revenue);
    assert_status(&output, 4);
    assert!(shown(&output).contains("do not add up to the platform's sum"), "{}", shown(&output));
    assert_eq!(closings(&world, &last), [""; 0]);

    world.sandbox.clear_faults();
    assert_status(&close(&world, &last, &revenue), 0);
    let expected = format!("{} | {} | false", user(), at_source(&world, &last));
    assert_eq!(closings(&world, &last), [expected]);
}

#[test]
fn values_that_did_not_fit_are_closed_by_force_alone() {
    let last = month(1);
    let world = World::with(options(12));
    world.journals_since(&format!("{last}-01"));
    world.configure(&format!("{FEED}{BY_HAND}"));
    world.publish_snapshots();
    let path = format!("/api/Offices/{OFFICE}/SettlementJournals");
    let line = r#"[{"Cost": 12.3456}]"#;
    let query = Some(format!("fromDate={last}"));
    world.sandbox.fault(Rule { query, ..fault(&path, None, garbage(line)) });
    assert_status(&world.run(&["sync"]), 3);
    let office = OFFICE.to_string();
    let settlement = ["--kind", "settlement", "--office", &office];
    let output = close(&world, &last, &settlement);
    assert_status(&output, 3);
    assert!(shown(&output).contains("did not fit"), "{}", shown(&output));
    assert_eq!(rows(&world.published(), "FROM report.closings"), [""; 0]);
    assert_status(&close(&world, &last, &[&settlement[..], &["--force"]].concat()), 0);
    let closings = String::from_utf8(pack(&world, &last).remove("closings.csv").unwrap()).unwrap();
    assert!(closings.contains("did not fit"), "the pack says over what: {closings}");
}

/// The months of an office that `journals.ids` does not name were read because somebody asked for them.
#[test]
fn an_office_that_no_schedule_reads_is_read_before_it_is_closed() {
    let last = month(1);
    let others = format!("{BY_HAND}ids = [12]\n");
    let world = mirrored(options(40), 1, &others);
    let day = format!("{last}-01");
    let id = OFFICE.to_string();
    assert_status(&world.run(&["journals", "--from", &day, "--to", &day, "--ids", &id]), 0);
    edit(&world, &last, Journal::DepotJournals, JournalEdit::Removed, Some(1));
    let output = close(&world, &last, &["--kind", "depot"]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("0 inserted, 0 updated, 1 deleted"), "{}", shown(&output));
    let closed = "SELECT DISTINCT journal_id FROM report.closings ORDER BY 1";
    assert_eq!(rows(&world.published(), closed), ["11", "12"]);
    read_again(&world, &last);
    assert_eq!(rows(&world.published(), "FROM report.journal_restatements"), [""; 0]);
}

/// A month that no schedule reads: what is closed already says nothing of the others.
#[test]
fn what_was_never_read_is_read_or_named_beside_what_is_closed_already() {
    let (since, early) = (month(1), month(4));
    let world = World::with(options(40));
    world.journals_since(&format!("{since}-01"));
    world.configure(&format!("{FEED}{BY_HAND}"));
    assert_status(&world.run(&["sync"]), 0);
    let of = |more: &[&str]| close(&world, &early, &[&["--kind", "depot"], more].concat());
    let closed = "SELECT string_agg(journal_id, ',' ORDER BY journal_id) FROM report.closings";
    assert_status(&of(&["--office", "11"]), 0);
    assert_status(&of(&["--office", "11,12"]), 0);
    assert_eq!(rows(&world.published(), closed), ["11,12"]);
    let output = of(&["--office", "11,999"]);
    assert_status(&output, 2);
    assert!(shown(&output).contains("no journals of 999"), "{}", shown(&output));
    assert_status(&of(&[]), 0);
    let all = "SELECT string_agg(id, ',' ORDER BY id) FROM main.offices";
    assert_eq!(rows(&world.published(), closed), rows(&world.published(), all));
    // Nothing is left to be read.
    world.sandbox.reset_stats();
    assert_status(&of(&[]), 0);
    assert_eq!(world.sandbox.stats().calls, 0);
}

#[test]
fn a_pack_keeps_what_was_closed_when_it_is_opened_again() {
    let last = month(1);
    let world = by_hand();
    world.publish_snapshots();
    assert_status(&close(&world, &last, &["--kind", "revenue"]), 0);
    let before = pack(&world, &last);
    assert_status(&close(&world, &last, &["--kind", "revenue", "--reopen"]), 0);
    assert_ne!(pack(&world, &last)["closings.csv"], before["closings.csv"], "it says so");
    assert_status(&close(&world, &last, &["--kind", "depot"]), 0);
    let after = pack(&world, &last);
    for kept in
        ["revenue_journals.csv", "revenue_journal_annotations.csv", "revenue_journal_sums.csv"]
    {
        assert!(before[kept].iter().filter(|byte| **byte == b'\n').count() > 1, "{kept}");
        assert_eq!(after[kept], before[kept], "{kept}");
    }
    assert_ne!(after["depot_journals.csv"], before["depot_journals.csv"]);
    let columns = String::from_utf8_lossy(&after["case_journals.csv"]);
    let columns = columns.lines().next().unwrap();
    assert!(columns.contains("case_referral_key") && !columns.contains("case_status"), "{columns}");
}

#[test]
fn a_journal_that_is_not_read_keeps_no_other_from_being_closed() {
    let last = month(1);
    let off = format!("{BY_HAND}[resources]\ndisable = [\"depot_journals\"]\n");
    let world = mirrored(options(20), 1, &off);
    let named = close(&world, &last, &["--kind", "depot"]);
    assert_status(&named, 3);
    assert!(shown(&named).contains("disabled"), "{}", shown(&named));
    assert_status(&close(&world, &last, &[]), 0);
    let journals = "SELECT DISTINCT journal FROM report.closings ORDER BY 1";
    let others = ["case_journals", "revenue_journals", "settlement_journals"];
    assert_eq!(rows(&world.published(), journals), others);
    // What is closed is not read once more for its sake.
    world.sandbox.reset_stats();
    assert_status(&close(&world, &last, &[]), 0);
    assert!(world.sandbox.stats().log.iter().all(|call| !call.path.contains("Journals")));
}

/// What was closed of another level is not lost, and not known either.
#[test]
fn what_is_closed_stays_closed_while_another_level_is_mirrored() {
    let last = month(1);
    let world = by_hand();
    // Columns that were redefined, and read again since.
    let redefined = "UPDATE sync.resources SET definition = 1; UPDATE sync.columns SET since = 1; \
                     UPDATE sync.journal_months SET definition = 1";
    alter(&world, redefined);
    world.publish_snapshots();
    assert_status(&close(&world, &last, &[]), 0);
    let statement = |world: &World| {
        rows(
            &world.published(),
            &format!(
                "SELECT closed_lines > 0 AS closed, current_lines = closed_lines AS same, net_payment, \
                   restatements FROM report.journal_statement WHERE journal = 'revenue_journals' \
                   AND journal_id = {OFFICE} AND journal_month = '{last}-01'"
            ),
        )
    };
    assert_eq!(statement(&world), ["true | true | 0.00 | 0"]);
    let of_offices = pack(&world, &last);
    let due = "[schedule]\njournals = \"* * * * * *\"\n";
    world.configure(&format!("{FEED}{BY_HAND}level = \"chain\"\n{due}"));
    world.sync();
    assert_eq!(statement(&world), ["true | 0"], "neither lines nor payments are known to be there");
    // A line of the offices changes while nobody reads them.
    let named = format!(
        "SELECT journal_id, line_id, revenue_referral_key FROM {{}} WHERE journal_level = 'offices' \
         AND journal_month = '{last}-01' ORDER BY ALL"
    );
    let names = rows(&world.published(), &named.replace("{}", "history.revenue_journals"));
    edit(&world, &last, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    // What is closed for the chain has a pack of its own.
    assert_status(&close(&world, &last, &["--force"]), 0);
    assert_eq!(pack(&world, &last), of_offices);
    let of_chain = pack(&world, &format!("{last}/chain"));
    assert_eq!(of_chain.keys().collect::<Vec<_>>(), of_offices.keys().collect::<Vec<_>>());
    assert_ne!(of_chain["closings.csv"], of_offices["closings.csv"]);

    // Nor of a table that is not read any more.
    let off = "[resources]\ndisable = [\"revenue_journals\", \"revenue_journal_sums\"]\n";
    world.configure(&format!("{FEED}{BY_HAND}{due}{off}"));
    world.sync();
    assert_eq!(statement(&world), ["true | 0"]);

    world.configure(&format!("{FEED}{BY_HAND}{due}"));
    world.sync();
    assert_eq!(rows(&world.published(), &named.replace("{}", "main.revenue_journals")), names);
    let restated = "SELECT change, column_name FROM report.journal_restatements";
    assert_eq!(rows(&world.published(), restated), ["changed | payment"]);
    let of_no_time = "SELECT count(*) FROM history.revenue_journals WHERE _valid_from >= _valid_to";
    assert_eq!(one::<i64>(&world.published(), of_no_time), 0);
    let statement = statement(&world).remove(0);
    assert!(statement.starts_with("true | true | ") && statement.ends_with(" | 1"), "{statement}");
    world.assert_equal();
}

/// A pack holds names, so that it is written anew when somebody is forgotten.
#[test]
fn the_packs_of_every_level_are_written_anew_with_the_sums_that_were_closed() {
    assert_sums_stay(by_hand(), BY_HAND, &month(1));
}

/// Of what closes by itself the sum is asked for after that.
#[test]
fn the_packs_of_what_was_closed_by_itself_keep_its_sums_too() {
    let closes = "[journals]\n";
    assert_sums_stay(mirrored(options(40), 2, closes), closes, &month(2));
}

#[track_caller]
fn assert_sums_stay(world: World, journals: &str, last: &str) {
    world.publish_snapshots();
    assert_status(&close(&world, last, &[]), 0);
    world.configure(&format!(
        "{FEED}{journals}level = \"chain\"\n[schedule]\njournals = \"* * * * * *\"\n"
    ));
    world.sync();
    assert_status(&close(&world, last, &["--force"]), 0);
    let folders = [last.to_owned(), format!("{last}/chain")];
    let before = folders.clone().map(|folder| pack(&world, &folder));
    let person: i64 = one(&world.published(), "SELECT min(id) FROM main.contacts");
    assert_status(&world.run(&["forget", "--contact", &person.to_string()]), 0);
    let (statement, sums) = ("journal_statement.csv", "revenue_journal_sums.csv");
    let reconciliation = "journal_reconciliation.csv";
    let after = folders.map(|folder| pack(&world, &folder));
    assert_ne!(after[0][statement], before[0][statement], "what it is now is not known any more");
    for (before, after) in before.iter().zip(&after) {
        assert!(before[sums].iter().filter(|byte| **byte == b'\n').count() > 1);
        assert_eq!(after[sums], before[sums]);
        let text = |pack: &BTreeMap<String, Vec<u8>>| {
            String::from_utf8(pack[reconciliation].clone()).unwrap()
        };
        assert!(text(before).lines().count() > 1);
        assert_eq!(text(after), text(before));
    }
}

#[test]
fn a_payment_that_does_not_fit_leaves_the_sum_of_the_closing_open() {
    let closed = month(2);
    let world = World::with(unthrottled(12));
    world.journals_since(&format!("{closed}-01"));
    let line = r#"[{"RevenueReferralKey": "k", "Payment": 1.005, "PurchasePrice": 2}]"#;
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals");
    let query = Some(format!("fromDate={closed}"));
    let rule = fault(&path, None, garbage(line));
    world.sandbox.fault(Rule { query, method: Some("GET".to_owned()), ..rule });
    assert_status(&world.run(&["sync"]), 3);
    let sums = format!(
        "SELECT lines || ' ' || coalesce(payment::VARCHAR, 'open') FROM report.closings \
         WHERE journal = 'revenue_journals' AND journal_id = {OFFICE} AND journal_month = '{closed}-01'"
    );
    assert_eq!(rows(&world.published(), &sums), ["1 open"]);
}

#[test]
fn a_month_that_is_opened_again_stays_open_until_it_is_closed_by_hand() {
    let closed = month(2);
    let world = mirrored(options(40), 2, "");
    let first = closings(&world, &closed).remove(0);
    assert_status(&close(&world, &closed, &["--reopen"]), 0);
    // Nothing that comes while it is open is a restatement, and no reading closes it.
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    read_again(&world, &closed);
    let opened = first.replace("false", "true");
    assert_eq!(closings(&world, &closed), [opened.as_str()]);
    assert_eq!(rows(&world.published(), "FROM report.journal_restatements"), [""; 0]);
    let stated = format!(
        "SELECT count(*) FROM report.journal_statement WHERE journal_month = '{closed}-01'"
    );
    assert_eq!(one::<i64>(&world.published(), &stated), 0);

    assert_status(&close(&world, &closed, &[]), 0);
    let again = format!("{} | {} | false", user(), at_source(&world, &closed));
    assert_eq!(closings(&world, &closed), [opened, again]);
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    read_again(&world, &closed);
    assert_eq!(rows(&world.published(), "FROM report.journal_restatements").len(), 1);
}

#[test]
fn what_cannot_be_closed_or_opened_is_wrong_usage() {
    let world = by_hand();
    for (month, more, words) in [
        (month(0), &[][..], "has not ended"),
        ("2026".to_owned(), &[], "yyyy-mm"),
        (month(1), &["--kind", "rent"], "case, depot, revenue, settlement"),
        (month(1), &["--reopen"], "nothing of it is closed"),
    ] {
        let output = close(&world, &month, more);
        assert_status(&output, 2);
        assert!(shown(&output).contains(words), "{}", shown(&output));
    }
}

#[test]
fn a_month_is_closed_by_the_daemon_in_the_name_of_who_typed_it() {
    let world = World::with(unthrottled(8));
    world.journals_since(&format!("{}-01", month(1)));
    world.configure_eager(BY_HAND);
    let mut daemon: Daemon<'_> = world.start_daemon();
    daemon.wait_until_idle();
    assert_status(&close(&world, &month(1), &[]), 0);
    let by = rows(&world.published(), "SELECT DISTINCT closed_by FROM report.closings");
    assert_eq!(by, [user()]);
    daemon.stop();
}

/// Every query of the guide answers, and what it joins finds its case.
#[test]
fn the_queries_of_the_guide_answer() {
    let closed = month(2);
    let world = mirrored(options(40), 2, "");
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    read_again(&world, &closed);
    let guide = include_str!("../docs/finance.md");
    let queries: Vec<&str> =
        guide.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(queries.len() >= 14, "{}", queries.len());
    let conn = world.published();
    let may_be_empty = ["status NOT IN", "status <> 'matches'", "signed_cases_lost"];
    for query in queries {
        let found = rows(&conn, query.trim().trim_end_matches(';'));
        let empty = may_be_empty.iter().any(|words| query.contains(words));
        assert!(empty || !found.is_empty(), "no row of:\n{query}");
    }
    let linked = "SELECT count(*) FROM revenue_journals JOIN cases USING (case_referral_key)";
    assert!(one::<i64>(&conn, linked) > 0);
}

/// What `pack.py` finds in one sheet of the workbook and in the files of its name.
#[derive(Deserialize)]
struct Sheet {
    /// In the Parquet file, the CSV file and the sheet.
    rows: [i64; 3],
    types: BTreeMap<String, Vec<String>>,
    formats: BTreeMap<String, Option<String>>,
    narrow: Vec<String>,
    frozen: Option<String>,
    /// How it comes out on paper.
    printed: [String; 4],
    /// Sum of the payments, in the Parquet file and in the sheet.
    payment: Option<[Option<String>; 2]>,
}

#[test]
fn the_pack_opens_in_spreadsheets_and_data_tools_alike() {
    let Some(python) = python("1.5") else { return };
    let last = month(1);
    let world = by_hand();
    world.publish_snapshots();
    assert_status(&close(&world, &last, &[]), 0);
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pack.py"))
        .arg(world.path("data/parquet/closings").join(&last))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let sheets: BTreeMap<String, Sheet> = serde_json::from_slice(&output.stdout).unwrap();
    for (name, sheet) in &sheets {
        assert!(sheet.rows.iter().all(|rows| *rows == sheet.rows[0]), "{name}: {:?}", sheet.rows);
        assert_eq!(sheet.narrow, [""; 0], "{name}");
        assert_eq!(sheet.frozen.as_deref(), Some("A2"), "{name}");
        let printed = ["landscape", "fit to width: True", "height: 0", "titles: $1:$1"];
        assert_eq!(sheet.printed, printed, "{name}");
    }
    let lines = &sheets["revenue_journals"];
    assert!(lines.rows[0] > 0);
    for (column, kind, format) in [
        ("journal_month", "datetime", "yyyy-mm-dd"),
        ("contract_date", "datetime", "yyyy-mm-dd hh:mm:ss"),
        ("line_id", "int", "0"),
        ("address", "str", "General"),
    ] {
        assert_eq!(lines.types[column], [kind], "{column}");
        assert_eq!(lines.formats[column].as_deref(), Some(format), "{column}");
    }
    // Whole amounts are integers to openpyxl.
    assert!(lines.types["payment"].iter().all(|kind| kind == "float" || kind == "int"));
    assert_eq!(lines.formats["payment"].as_deref(), Some("#,##0.00;[Red]-#,##0.00"));
    let [exact, shown] = lines.payment.as_ref().unwrap();
    assert_eq!(exact, shown, "to the øre");
    assert_eq!(
        sheets["journal_reconciliation"].rows[0],
        one::<i64>(&world.published(), "SELECT count(DISTINCT journal_id) FROM revenue_journals")
    );
}
