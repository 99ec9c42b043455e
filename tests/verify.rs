//! `casemirror verify` (docs/architecture.md, "Control totals"): what differs is found and named,
//! what lives is followed.

use std::process::Output;
use std::time::Duration;

use casemirror::sandbox::{Act, Control, Facet, Fault, Journal, JournalEdit, Options, Rule};
use serde_json::{Value, json};

use crate::support::daemon::Daemon;
use crate::support::follow::{
    UNTHROTTLED, assert_status, calls, change, hold, shown_cases, start, unthrottled,
};
use crate::support::scripted::{fault, refuse};
use crate::support::{World, one, shown};

fn month(ago: i32) -> String {
    let first = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(ago);
    first.strftime("%Y-%m").to_string()
}

fn mirrored(options: Options, months: i32) -> World {
    let world = World::with(options);
    world.journals_since(&format!("{}-01", month(months)));
    world.configure(UNTHROTTLED);
    world.bootstrap();
    world
}

/// Alters one row of the store behind the mirror's back.
fn alter(world: &World, sql: &str) {
    assert_eq!(world.alter(sql), 1, "{sql}");
}

fn verify(world: &World, sample: &str) -> Output {
    world.run(&["verify", "--sample", sample])
}

/// As if it had not run since the beginning of the year.
fn verify_is_due(world: &World) {
    alter(
        world,
        "UPDATE sync.schedules SET last_run = TIMESTAMPTZ '2026-01-01 00:00:00+00' \
         WHERE name = 'verify'",
    );
}

/// Waits until a daemon has compared everything, and stops it: it has found the same.
fn ends_verified(world: &World, mut daemon: Daemon<'_>) {
    let mut verified = Value::Null;
    daemon.wait_until("everything is compared", || {
        let status = world.run(&["status", "--json"]).stdout;
        verified = serde_json::from_slice::<Value>(&status).unwrap()["verified"].take();
        !verified.is_null()
    });
    daemon.stop();
    assert_eq!((&verified["differences"], &verified["unsettled"]), (&json!(0), &json!(0)));
}

fn assert_found(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(4), "{}", shown(output));
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(found, "no line has {words:?}:\n{}", shown(output));
}

/// The last line of what it printed.
fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

fn assert_same(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", shown(output));
}

#[test]
fn an_equal_mirror_is_equal_and_every_comparison_is_noted() {
    let world = mirrored(unthrottled(40), 3);
    let output = verify(&world, "10");
    assert_same(&output);
    let conn = world.published();
    let rows = |what: &str| -> i64 {
        one(
            &conn,
            &format!(
                "SELECT count(*) FROM sync.verifications WHERE difference IS NULL \
                   AND source IS NOT NULL AND mirror IS NOT NULL AND what SIMILAR TO '{what}'"
            ),
        )
    };
    assert_eq!(rows("cases"), 1);
    assert_eq!(rows("projects"), 1);
    assert_eq!(rows("signed cases [0-9-]+"), 12);
    let months: i64 = one(
        &conn,
        "SELECT count(*) FROM sync.journal_months WHERE table_name = 'revenue_journals'",
    );
    assert_eq!(rows("revenue .*: payments"), months);
    assert!(rows(".* sampled cases") > 10);
    let all: i64 = one(&conn, "SELECT count(*) FROM sync.verifications");
    assert_eq!(all, rows(".*"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("annotations' payment changes"));
}

#[test]
fn one_altered_payment_among_100_000_lines_is_found_named_and_mended() {
    let options = Options { journal_lines: Some(700), ..unthrottled(30) };
    let world = mirrored(options, 23);
    let conn = world.store();
    let lines: i64 = one(&conn, "SELECT count(*) FROM main.revenue_journals");
    assert!(lines >= 100_000, "{lines}");
    let office: String = one(&conn, "SELECT name FROM main.offices WHERE id = 13");
    drop(conn);
    let month = month(9);
    alter(
        &world,
        &format!(
            "UPDATE main.revenue_journals SET payment = payment + 0.01 WHERE journal_id = 13 \
               AND journal_month = DATE '{month}-01' AND line_number = 417"
        ),
    );
    let output = verify(&world, "0");
    assert_found(&output, &["revenue", &office, &month, "payments", "-0.01"]);
    assert_found(&output, &[&office, &month, "line 417", "payment", "-0.01"]);
    let log: i64 =
        one(&world.store(), "SELECT count(*) FROM sync.verifications WHERE difference IS NOT NULL");
    assert_eq!(log, 2, "{}", shown(&output));
    world.sync();
    assert_same(&verify(&world, "0"));
}

#[test]
fn what_the_platform_changed_in_a_closed_month_is_a_difference() {
    let world = mirrored(unthrottled(60), 4);
    let act = Act::Journal {
        journal: Journal::RevenueJournals,
        office_id: 11,
        month: month(3),
        edit: JournalEdit::Amount,
        line: Some(1),
    };
    world.sandbox.act(&act).unwrap();
    assert_found(&verify(&world, "0"), &["offices/11", &month(3), "payments", "123.45"]);
    // A line that came in a month that is not closed is followed instead.
    world.sync();
    let act = Act::Journal {
        journal: Journal::RevenueJournals,
        office_id: 11,
        month: month(0),
        edit: JournalEdit::Appended,
        line: None,
    };
    world.sandbox.act(&act).unwrap();
    assert_same(&verify(&world, "0"));
    world.assert_equal();
}

#[test]
fn an_altered_cell_of_a_sampled_case_is_found_with_its_table_and_column() {
    let world = mirrored(unthrottled(30), 1);
    let conn = world.store();
    let activity: i64 = one(&conn, "SELECT min(id) FROM main.activities");
    let cost: i64 = one(&conn, "SELECT min(id) FROM main.costs");
    let case_id: i64 = one(&conn, "SELECT min(id) FROM main.cases");
    drop(conn);
    alter(&world, &format!("UPDATE main.activities SET subject = 'no' WHERE id = {activity}"));
    alter(&world, &format!("DELETE FROM main.costs WHERE id = {cost}"));
    alter(&world, &format!("UPDATE main.cases SET address = 'no' WHERE id = {case_id}"));
    alter(
        &world,
        "DELETE FROM main.dynamic_sale_texts \
         WHERE rowid = (SELECT min(rowid) FROM main.dynamic_sale_texts)",
    );
    let output = verify(&world, "1000");
    assert_found(&output, &["dynamic_sale_texts", "a row", "NULL"]);
    assert_found(&output, &["activities", &activity.to_string(), "subject", "differs"]);
    assert_found(&output, &["costs", &cost.to_string(), "a row", "NULL"]);
    assert_found(&output, &["cases", &case_id.to_string(), "address"]);
    world.sync();
    world.assert_equal();
    assert_same(&verify(&world, "1000"));
}

#[test]
fn what_differed_is_compared_again_whatever_the_sample() {
    let world = mirrored(unthrottled(40), 1);
    let altered = "UPDATE main.common_conditions SET debt = 1.11 WHERE debt IS DISTINCT FROM 1.11";
    let cases = world.alter(altered);
    assert!(cases > 20, "{cases}");
    assert_found(&verify(&world, "1000"), &["common_conditions", "debt", "differs"]);
    world.sync();
    world.sandbox.reset_stats();
    let output = verify(&world, "0");
    assert_same(&output);
    assert_eq!(last_line(&output), "the mirror equals the source");
    let asked: Vec<_> =
        calls(&world).into_iter().filter(|(c, _)| c.contains("Properties/")).collect();
    assert!(asked.iter().all(|(call, _)| call.ends_with("/CommonConditions")), "{asked:?}");
    assert_status(&world.run(&["status"]), 0);
}

#[test]
fn a_difference_that_is_not_compared_again_keeps_the_mirror_from_being_called_equal() {
    let world = mirrored(unthrottled(20), 1);
    let case_id: i64 = one(&world.store(), "SELECT min(id) FROM main.cases");
    // As one beyond what is compared again: nothing is read for it.
    alter(
        &world,
        &format!(
            "INSERT INTO sync.verifications BY NAME SELECT 1 AS run_id, TIMESTAMPTZ '2026-01-01 00:00:00Z' AS verified_at, \
               'earlier' AS what, '1' AS difference, 'case_file_access of case {case_id}' AS subject, true AS standing"
        ),
    );
    let output = verify(&world, "0");
    assert_status(&output, 3);
    let line = last_line(&output);
    assert!(line.contains("1 difference found before and not refuted since"), "{line}");
    assert_status(&world.run(&["status"]), 4);
}

#[test]
fn an_altered_signing_and_a_lost_case_are_found_and_a_hidden_case_is_none() {
    let world = mirrored(unthrottled(60), 1);
    let signed: i64 = one(
        &world.store(),
        "SELECT min(id) FROM main.cases WHERE assignment_type <> 'Valuation' \
           AND case_activated_date > now()::TIMESTAMP - INTERVAL 60 DAY",
    );
    alter(
        &world,
        &format!("UPDATE main.cases SET assignment_type = 'Valuation' WHERE id = {signed}"),
    );
    let output = verify(&world, "0");
    assert_found(&output, &["signed cases", &format!("case {signed}"), "lacking"]);
    world.sync();
    alter(&world, &format!("DELETE FROM main.cases WHERE id = {signed}"));
    assert_found(&verify(&world, "0"), &["cases: case", &signed.to_string(), "lacking"]);
    world.sync();
    let hidden = shown_cases(&world)[5];
    world.sandbox.act(&Act::HideCase { case_id: hidden, silent: true }).unwrap();
    assert_same(&verify(&world, "0"));
    world.sandbox.act(&Act::ShowCase { case_id: hidden, silent: true }).unwrap();
    assert_same(&verify(&world, "0"));
    world.assert_equal();
}

#[test]
fn a_case_that_no_search_shows_hides_no_other() {
    let world = World::with(unthrottled(30));
    world.configure(UNTHROTTLED);
    let unshown = shown_cases(&world)[3];
    world.sandbox.act(&Act::HideCase { case_id: unshown, silent: false }).unwrap();
    // It is followed like a hidden one, and is no failure.
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures"), 0);
    let lost = shown_cases(&world)[7];
    alter(&world, &format!("DELETE FROM main.cases WHERE id = {lost}"));
    let output = verify(&world, "0");
    assert_found(&output, &["cases: case", &lost.to_string(), "lacking"]);
    assert!(last_line(&output).contains("2 differences, to be read again"), "{}", shown(&output));
    assert_status(&world.run(&["sync"]), 0);
    world.assert_equal();
}

#[test]
fn a_rejected_date_of_signing_is_left_out_and_hides_no_other() {
    let world = mirrored(unthrottled(60), 1);
    let signed = "SELECT {} FROM main.cases WHERE assignment_type <> 'Valuation' \
                  AND case_activated_date > now()::TIMESTAMP - INTERVAL 200 DAY";
    let signed = |which: &str| one::<i64>(&world.store(), &signed.replace("{}", which));
    let (rejected, altered) = (signed("min(id)"), signed("max(id)"));
    assert_ne!(rejected, altered);
    alter(
        &world,
        &format!("UPDATE main.cases SET case_activated_date = NULL WHERE id = {rejected}"),
    );
    alter(
        &world,
        &format!(
            "INSERT INTO sync.rejects BY NAME SELECT 1 AS run_id, 'cases' AS table_name, \
               '{rejected}' AS scope, '{rejected}' AS record_key, now() AS first_at, \
               'case_activated_date' AS column_name, now() AS last_at"
        ),
    );
    let output = verify(&world, "0");
    assert_status(&output, 3);
    let left_out = format!("1 case pending, failed or rejected: {rejected}");
    assert!(shown(&output).contains(&left_out), "{}", shown(&output));
    assert_eq!(
        last_line(&output),
        "what could be compared equals the source; 1 could not be compared (see above)"
    );
    let status = shown(&world.run(&["status"]));
    assert!(status.contains("0 unsettled, 1 not compared"), "{status}");
    assert!(!status.contains("could not read"), "{status}");
    alter(
        &world,
        &format!("UPDATE main.cases SET assignment_type = 'Valuation' WHERE id = {altered}"),
    );
    let output = verify(&world, "0");
    assert_found(&output, &["signed cases", &format!("case {altered}"), "lacking"]);
    assert!(shown(&output).contains(&left_out), "{}", shown(&output));
    assert!(!shown(&output).contains(&format!("case {rejected}")), "{}", shown(&output));
}

#[test]
fn months_whose_amounts_are_rejected_are_named_and_the_last_line_is_no_all_clear() {
    let world = mirrored(unthrottled(10), 2);
    for (office, column) in [(11, "payment"), (12, "settlement_date")] {
        alter(
            &world,
            &format!(
                "INSERT INTO sync.rejects BY NAME SELECT 1 AS run_id, now() AS first_at, \
                   'revenue_journals' AS table_name, 'offices/{office}/{}' AS scope, \
                   now() AS last_at, '3' AS record_key, '{column}' AS column_name",
                month(1)
            ),
        );
    }
    let output = verify(&world, "0");
    assert_status(&output, 3);
    let text = shown(&output);
    let named = |line: &str| {
        line.starts_with("not compared: revenue")
            && line.contains("offices/11")
            && line.contains(&month(1))
    };
    assert!(text.lines().any(named), "{text}");
    assert_eq!(
        last_line(&output),
        "what could be compared equals the source; 1 could not be compared (see above)"
    );
}

#[test]
fn sums_that_nobody_answers_end_the_asking_and_the_rest_is_compared() {
    let world = mirrored(unthrottled(10), 23);
    let months: u64 = one(&world.store(), "SELECT count(*) FROM main.revenue_journal_sums");
    let dropped = |path: &str, query: Option<&str>, fault| Rule {
        method: None,
        path: path.to_owned(),
        query: query.map(str::to_owned),
        nth: 1,
        count: None,
        fault,
    };
    world.sandbox.fault(dropped("*/RevenueJournals/Sum", None, Fault::Drop));
    world.sandbox.reset_stats();
    let width = ("CASEMIRROR_LIMITS__CONCURRENCY", "8");
    let output =
        world.command(&["verify", "--sample", "1"]).env(width.0, width.1).output().unwrap();
    assert_status(&output, 3);
    let asked: u64 = calls(&world)
        .into_iter()
        .filter(|(call, _)| call.ends_with("/Sum"))
        .map(|(_, times)| times)
        .sum();
    // Twenty failures of a table that never answered, each as often as a call is tried; a few more may
    // have been under way.
    assert!(
        (20 * 5..28 * 5).contains(&asked) && months > 28,
        "{asked} of {months} months\n{}",
        shown(&output)
    );
    let text = shown(&output);
    assert!(text.contains("months was not asked for: nothing answered"), "{text}");
    assert_eq!(
        last_line(&output),
        format!(
            "what could be compared equals the source; {months} could not be compared (see above)"
        )
    );
    let compared = "SELECT count(*) FROM sync.verifications WHERE what LIKE 'signed cases%'";
    assert_eq!(one::<i64>(&world.store(), compared), 12);

    // Where nothing at all can be compared it has not been done.
    let before: String =
        one(&world.store(), "SELECT last_run::VARCHAR FROM sync.schedules WHERE name = 'verify'");
    let refuse = Fault::Refuse { status: 404, headers: Default::default(), body: String::new() };
    world.sandbox.clear_faults();
    world.sandbox.fault(dropped("*/RevenueJournals/Sum", None, refuse.clone()));
    world.sandbox.fault(dropped("/api/Search/*", Some("$inlinecount"), refuse.clone()));
    world.sandbox.fault(dropped("/api/Offices/*Journals", None, refuse));
    world.sandbox.reset_stats();
    let output = verify(&world, "0");
    assert_status(&output, 1);
    assert!(shown(&output).contains("nothing could be compared"), "{}", shown(&output));
    let asked = calls(&world).into_iter().filter(|(call, _)| call.ends_with("/Sum"));
    assert!(asked.map(|(_, times)| times).sum::<u64>() < 30, "{months} months, all of them 404");
    let after: String =
        one(&world.store(), "SELECT last_run::VARCHAR FROM sync.schedules WHERE name = 'verify'");
    assert_eq!(after, before);
}

#[test]
fn rows_that_a_withheld_permission_hides_are_no_difference() {
    let world = World::with(unthrottled(30));
    let reference = "[schedule]\nreference = \"* * * * *\"\n";
    world.configure(&format!("{UNTHROTTLED}{reference}"));
    world.bootstrap();
    let permission = "SettlementView - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission });
    alter(
        &world,
        "UPDATE sync.schedules SET last_run = TIMESTAMPTZ '2026-01-01 00:00:00+00' \
         WHERE name = 'reference'",
    );
    world.sync();
    let withheld = "SELECT count(*) FROM main.notes WHERE note_type = 'Economics'";
    assert!(one::<i64>(&world.store(), withheld) > 0);
    assert_same(&verify(&world, "1000"));
    // The others are compared still.
    let note: i64 =
        one(&world.store(), "SELECT min(id) FROM main.notes WHERE note_type <> 'Economics'");
    alter(&world, &format!("DELETE FROM main.notes WHERE id = {note}"));
    assert_found(&verify(&world, "1000"), &["notes", &note.to_string(), "a row", "NULL"]);
}

#[test]
fn a_living_brokerage_does_not_cry_wolf() {
    let options = Options {
        live: Some(Duration::from_millis(150)),
        search_lag: Duration::from_millis(100),
        ..unthrottled(40)
    };
    let world = World::with(options);
    world.configure(UNTHROTTLED);
    for _ in 0..3 {
        let output = verify(&world, "15");
        assert_ne!(output.status.code(), Some(4), "{}", shown(&output));
        assert_ne!(output.status.code(), Some(1), "{}", shown(&output));
    }
}

#[test]
fn a_verify_that_is_due_gives_its_status_to_sync() {
    let world = mirrored(unthrottled(20), 3);
    world.configure(&format!("{UNTHROTTLED}[schedule]\nverify = \"* * * * *\"\n"));
    alter(
        &world,
        &format!(
            "UPDATE main.revenue_journals SET payment = payment + 100 WHERE journal_id = 11 \
               AND journal_month = DATE '{}-01' AND line_number = 1",
            month(2)
        ),
    );
    verify_is_due(&world);
    let output = world.run(&["sync"]);
    assert_found(&output, &["offices/11", &month(2), "line 1", "payment", "-100.00"]);
    let (status, outcome): (i64, String) = world
        .store()
        .query_row(
            "SELECT exit_status, outcome FROM sync.runs ORDER BY run_id DESC LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((status, outcome.as_str()), (4, "different"));
}

#[test]
fn what_is_not_read_is_not_compared_and_named() {
    let world = mirrored(unthrottled(10), 2);
    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = [\"revenue_journal_sums\"]\n"));
    let output = verify(&world, "0");
    assert_status(&output, 3);
    let text = shown(&output);
    assert!(text.contains("not compared: revenue_journal_sums is disabled"), "{text}");
    assert!(!text.contains("revenue sums:"), "{text}");
}

#[test]
fn what_may_not_be_read_is_named_and_the_last_line_is_no_all_clear() {
    let world = mirrored(unthrottled(10), 2);
    assert_eq!(last_line(&verify(&world, "0")), "the mirror equals the source");
    // The number of cases is a control: that it cannot be read is no agreement.
    for (table, not_compared, status) in [("depot_journals", 1, 0), ("projects", 2, 3)] {
        let forbid =
            format!("UPDATE sync.resources SET status = 'forbidden' WHERE table_name = '{table}'");
        alter(&world, &forbid);
        let output = verify(&world, "0");
        assert_status(&output, status);
        let text = shown(&output);
        assert!(text.contains(&format!("not compared: {table} is forbidden")), "{text}");
        let last = format!(
            "what could be compared equals the source; {not_compared} could not be compared (see above)"
        );
        assert_eq!(last_line(&output), last);
    }
}

#[test]
fn while_the_feed_cannot_be_read_nothing_that_moved_is_a_difference() {
    let world = mirrored(unthrottled(10), 2);
    let cases = shown_cases(&world);
    let feed = "/api/Integrations/RecentlyModified/Cases";
    let refused = world.sandbox.fault(fault(feed, None, refuse(500)));
    change(&world, cases[3], Facet::Activity);
    change(&world, cases[4], Facet::Nothing);
    let new = Act::NewCase { project: false, assignment: None };
    world.sandbox.act(&new).unwrap();
    let output = verify(&world, "10");
    assert_status(&output, 3);
    let text = shown(&output);
    assert!(text.contains("that are apart cannot be compared: the change feed"), "{text}");
    assert!(!text.contains("unsettled"), "{text}");
    world.sandbox.remove_fault(refused);
    assert_same(&verify(&world, "10"));
    world.assert_equal();
}

#[test]
fn a_due_verify_gives_way_to_a_command_and_goes_on_where_it_was() {
    let world = World::with(unthrottled(10));
    world.journals_since(&format!("{}-01", month(3)));
    world.configure_eager("");
    world.bootstrap();
    verify_is_due(&world);
    world.sandbox.reset_stats();
    hold(&world, "sum", "*/RevenueJournals/Sum", 5);
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("sum")));
    let day = format!("{}-01", month(2));
    let journals = ["journals", "--from", &day, "--to", &day, "--kind", "depot"];
    let handed = start(&world, &journals);
    let log = world.path("daemon.log");
    daemon.wait_until("the command is forwarded", || {
        std::fs::read_to_string(&log).unwrap().contains("gives way")
    });
    world.sandbox.release("sum");
    assert_status(&handed.wait_with_output().unwrap(), 0);
    ends_verified(&world, daemon);
    // Every sum was asked for once: the command did not make it begin anew.
    let scopes = one::<u64>(&world.store(), "SELECT count(*) FROM main.revenue_journal_sums");
    let asked = calls(&world).into_iter().filter(|(call, _)| call.ends_with("/Sum"));
    assert_eq!(asked.map(|(_, times)| times).sum::<u64>(), scopes);
    world.assert_equal();
}

#[test]
fn a_change_does_not_wait_for_what_a_verify_asks() {
    let world = World::with(unthrottled(10));
    world.journals_since(&format!("{}-01", month(3)));
    world.configure_eager("");
    world.bootstrap();
    verify_is_due(&world);
    hold(&world, "sum", "*/RevenueJournals/Sum", 5);
    let mut daemon = world.start_daemon();
    assert!(world.wait(world.sandbox.wait_until_held("sum")));
    world.sandbox.reset_stats();
    let case_id = shown_cases(&world)[2];
    change(&world, case_id, Facet::Activity);
    daemon.wait_until("the change is fetched while a sum is held", || {
        calls(&world).contains_key(&format!("GET /api/Cases/{case_id}/Activities"))
    });
    world.sandbox.release("sum");
    ends_verified(&world, daemon);
    world.assert_equal();
}

#[test]
fn handed_to_a_daemon_it_gives_the_same_output_and_status() {
    let world = World::with(unthrottled(20));
    world.journals_since(&format!("{}-01", month(3)));
    world.configure_eager("");
    world.bootstrap();
    alter(
        &world,
        &format!(
            "UPDATE main.revenue_journals SET payment = payment + 7 WHERE journal_id = 11 \
               AND journal_month = DATE '{}-01' AND line_number = 1",
            month(3)
        ),
    );
    // In the mirror of a mirror: both find the same difference.
    let copy = std::fs::read(world.path("data/store.duckdb")).unwrap();
    let own = verify(&world, "1000");
    assert_found(&own, &["offices/11", &month(3), "-7.00"]);
    std::fs::write(world.path("data/store.duckdb"), copy).unwrap();
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let handed = verify(&world, "1000");
    daemon.stop();
    assert_found(&handed, &["offices/11", &month(3), "-7.00"]);
    assert_eq!(handed.status.code(), own.status.code());
    // All but what differs from run to run: the cases and their rows are all there in both.
    let table = |output: &Output| -> Vec<String> {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let lines = text.lines().skip_while(|line| !line.contains("difference"));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert!(table(&own).len() > 20, "{}", shown(&own));
    assert_eq!(table(&handed), table(&own));
}
