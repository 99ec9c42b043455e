//! Whose journals stay known: an office that left the list, and one that is gone.

use casemirror::sandbox::{Act, Journal, JournalEdit, Rule};
use serde_json::Value;

use crate::support::follow::{Integrator, UNTHROTTLED, assert_status, brisk, calls, lines};
use crate::support::journals::{OFFICE, mirrored, month, not_clear, options};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, one, shown};

/// Both the list of the offices and the trailing months are read in every run.
const BOTH_DUE: &str = "[schedule]\nreference = \"* * * * * *\"\njournals = \"* * * * * *\"\n";

#[test]
fn an_office_that_left_the_list_is_asked_until_the_source_answers_404_and_is_shown() {
    let world = mirrored(options(12), 2, "");
    leaves_the_list(&world);
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}"));
    let edited = month(1);
    let act = Act::Journal {
        journal: Journal::RevenueJournals,
        office_id: OFFICE,
        month: edited.clone(),
        edit: JournalEdit::Amount,
        line: Some(1),
    };
    let payment = format!(
        "SELECT payment::VARCHAR FROM report.revenue_by_month WHERE journal_id = {OFFICE} \
         AND month = '{edited}-01'"
    );
    let before: String = one(&world.published(), &payment);
    world.sandbox.act(&act).unwrap();
    world.sync();
    // It is no row of the list any more, and followed still.
    let left = format!("SELECT count(*) FROM main.offices WHERE id = {OFFICE}");
    assert_eq!(one::<i64>(&world.published(), &left), 0);
    let after: String = one(&world.published(), &payment);
    assert_ne!(before, after);
    let of_office = format!(
        "SELECT status, count(*) AS months, count(DISTINCT name) AS names \
         FROM report.journal_coverage WHERE journal_id = {OFFICE} GROUP BY ALL ORDER BY ALL"
    );
    assert_eq!(
        lines(&world.published(), &of_office),
        [
            "{'status': complete, 'months': 10, 'names': 1}",
            "{'status': open, 'months': 5, 'names': 1}"
        ]
    );
    assert_status(&world.run(&["verify", "--sample", "0"]), 0);

    // The source does not know it any more: one 404 says nothing yet.
    let path = format!("/api/Offices/{OFFICE}/*Journals*");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    let asked = |world: &World| {
        let of_office = format!("/api/Offices/{OFFICE}/");
        let of_office = |call: &String| call.contains(&of_office) && call.contains("Journals");
        calls(world).iter().filter(|(call, _)| of_office(call)).map(|(_, n)| *n).sum::<u64>()
    };
    let one_more = |world: &World| {
        world.alter("UPDATE sync.failures SET next_at = first_at");
        world.sandbox.reset_stats();
        world.run(&["sync"])
    };
    assert_status(&one_more(&world), 3);
    assert_status(&one_more(&world), 3);
    let gone = "SELECT count(*) FROM report.journal_coverage WHERE status = 'gone'";
    assert_eq!(one::<i64>(&world.published(), gone), 0, "source.doubt has not passed");
    world.alter(
        "UPDATE sync.journal_scopes SET not_found_at = '2026-01-01 00:00:00+00' \
                   WHERE not_found_at IS NOT NULL",
    );
    let output = one_more(&world);
    assert_status(&output, 0);
    assert!(shown(&output).contains("no longer knows whose journals"), "{}", shown(&output));
    assert_eq!(
        lines(&world.published(), &of_office),
        ["{'status': gone, 'months': 15, 'names': 1}"]
    );
    assert_eq!(one::<String>(&world.published(), &payment), after);
    assert!(
        not_clear(&world).contains(&"{'journal': revenue_journals, 'status': gone}".to_owned())
    );
    assert_status(&one_more(&world), 0);
    assert_eq!(asked(&world), 0, "it is asked no more");
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(asked(&world), 0, "nor by --full");
    let output = world.run(&["verify", "--sample", "0"]);
    assert_status(&output, 0);
    let text = shown(&output);
    assert!(
        text.contains("3 months of revenue journals whose office the source no longer"),
        "{text}"
    );
    assert!(!text.contains("the mirror equals the source"), "{text}");

    // So it stays while another level is mirrored and after it.
    let of_revenue = "SELECT l.* EXCLUDE (_synced_at) FROM revenue_journals l ORDER BY ALL";
    let (revenue, notes) =
        (lines(&world.published(), of_revenue), "FROM revenue_journal_annotations");
    let noted = lines(&world.published(), notes).len();
    let chain = format!("{UNTHROTTLED}{BOTH_DUE}[journals]\nlevel = \"chain\"\n");
    world.configure(&chain);
    assert_status(&world.run(&["sync"]), 0);
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}"));
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(
        lines(&world.published(), &of_office),
        ["{'status': gone, 'months': 15, 'names': 1}"]
    );
    assert_eq!(one::<String>(&world.published(), &payment), after);
    assert_eq!(lines(&world.published(), of_revenue), revenue);
    assert_eq!(lines(&world.published(), notes).len(), noted);

    // It comes back.
    world.sandbox.clear_faults();
    world.sync();
    assert_eq!(one::<i64>(&world.published(), gone), 0);
    assert!(asked(&world) > 0);
    world.assert_equal();
}

/// The office is not listed any more.
fn leaves_the_list(world: &World) {
    let listed = Integrator::log_in(world).call("GET", "/api/Offices", &Value::Null);
    let mut others = listed.as_array().unwrap().clone();
    others.retain(|office| office["Id"] != OFFICE);
    world.sandbox.fault(fault("/api/Offices", None, garbage(&Value::from(others).to_string())));
}

/// The office leaves the list, and answers 404 until that is believed.
fn leaves_for_good(world: &World) {
    leaves_the_list(world);
    let path = format!("/api/Offices/{OFFICE}/*Journals*");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}"));
    for _ in 0..2 {
        world.alter("UPDATE sync.failures SET next_at = first_at");
        assert_status(&world.run(&["sync"]), 3);
    }
    world.alter(
        "UPDATE sync.journal_scopes SET not_found_at = '2026-01-01 00:00:00+00' \
                  WHERE not_found_at IS NOT NULL",
    );
    world.alter("UPDATE sync.failures SET next_at = first_at");
    assert_status(&world.run(&["sync"]), 0);
}

/// What the office's revenue comes to, by month, with what its months are said to be.
fn of_office(world: &World) -> [Vec<String>; 2] {
    let of = format!("WHERE journal_id = {OFFICE}");
    [
        lines(
            &world.published(),
            &format!("SELECT * FROM report.revenue_by_month {of} ORDER BY month"),
        ),
        lines(
            &world.published(),
            &format!("SELECT DISTINCT status FROM report.journal_coverage {of} ORDER BY 1"),
        ),
    ]
}

#[test]
fn an_answer_takes_back_what_a_404_said_of_an_office_that_left_the_list() {
    let world = mirrored(options(12), 2, "");
    leaves_the_list(&world);
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}"));
    let doubted = "SELECT count(*) FROM sync.journal_scopes WHERE not_found_at IS NOT NULL";
    world.run(&["sync"]);
    world.sandbox.clear_faults();
    leaves_the_list(&world);
    world.alter("UPDATE sync.failures SET next_at = first_at");
    world.alter("UPDATE sync.journal_scopes SET not_found_at = now()");
    world.sync();
    assert_eq!(one::<i64>(&world.store(), doubted), 0, "its journals are answered");

    // Who asks by name finds one that was taken for gone.
    leaves_for_good(&world);
    let gone = format!(
        "SELECT count(*) FROM report.journal_coverage WHERE status = 'gone' AND journal_id = {OFFICE}"
    );
    assert!(one::<i64>(&world.published(), &gone) > 0);
    world.sandbox.clear_faults();
    leaves_the_list(&world);
    let (day, id) = (format!("{}-01", month(1)), OFFICE.to_string());
    let named = ["journals", "--from", &day, "--to", &day, "--ids", &id, "--kind", "depot"];
    assert_status(&world.run(&named), 0);
    assert_eq!(one::<i64>(&world.published(), &gone), 0);
}

#[test]
fn an_office_that_is_gone_since_its_level_was_left_is_shown_as_it_was() {
    let world = mirrored(options(12), 2, "");
    let [revenue, _] = of_office(&world);
    assert!(revenue.len() == 3 && revenue.iter().all(|row| !row.contains("NULL")), "{revenue:?}");
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}[journals]\nlevel = \"chain\"\n"));
    world.sync();
    assert_eq!(of_office(&world), [Vec::<String>::new(), Vec::new()]);
    leaves_for_good(&world);
    assert_eq!(of_office(&world), [revenue, vec!["{'status': gone}".to_owned()]]);
}

/// Its months cannot be read once more before they are closed, and nothing of them is missing.
#[test]
fn a_month_of_an_office_that_is_gone_is_closed_as_it_was_last_read() {
    let world = mirrored(options(12), 2, "");
    leaves_for_good(&world);
    let last = month(1);
    let closed = format!(
        "SELECT count(*) FROM report.closings WHERE journal_id = {OFFICE} \
           AND journal_month = '{last}-01' AND closed_by <> 'close_day'"
    );
    assert_status(&world.run(&["close", "--month", &last, "--reopen"]), 0);
    assert_status(&world.run(&["close", "--month", &last]), 0);
    assert_eq!(one::<i64>(&world.published(), &closed), 4);

    // What was read before the month's end is not all of it.
    assert_status(&world.run(&["close", "--month", &last, "--reopen"]), 0);
    let early =
        format!("UPDATE sync.journal_months SET sent_at = '{last}-15' WHERE journal_id = {OFFICE}");
    world.alter(&early);
    let output = world.run(&["close", "--month", &last]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("gone, and not read whole"), "{}", shown(&output));
    assert_eq!(one::<i64>(&world.published(), &closed), 4, "the others are closed alone");
    let id = OFFICE.to_string();
    assert_status(&world.run(&["close", "--month", &last, "--office", &id]), 3);
    assert_status(&world.run(&["close", "--month", &last, "--office", &id, "--force"]), 0);
    assert_eq!(one::<i64>(&world.published(), &closed), 8);
}

/// Nobody reads them any more, which is what closes others.
#[test]
fn on_their_close_day_the_months_of_an_office_that_is_gone_are_closed_as_they_were_last_read() {
    let closed = month(2);
    let world = brisk(options(12));
    world.journals_since(&format!("{closed}-01"));
    world.configure(&format!("{UNTHROTTLED}[journals]\nclose_day = 0\n"));
    world.bootstrap();
    let of_month = format!("journal_id = {OFFICE} AND journal_month = '{closed}-01'");
    let spoil = |table: &str, what: &str| {
        let of = format!("table_name = '{table}' AND {of_month}");
        assert_eq!(world.alter(&format!("UPDATE sync.journal_months SET {what} WHERE {of}")), 1);
    };
    spoil("depot_journals", &format!("sent_at = '{closed}-15'"));
    spoil("case_journals", "doubted_at = now()");
    // From here on months close by themselves.
    leaves_for_good(&world);
    let closings = format!(
        "SELECT journal, closed_by, lines = (SELECT count(*) FROM revenue_journals WHERE {of_month}) AS same \
         FROM report.closings WHERE {of_month} ORDER BY journal"
    );
    let closings = lines(&world.published(), &closings);
    assert_eq!(
        closings.len(),
        2,
        "neither what was read too early, nor what is doubted: {closings:?}"
    );
    assert!(
        closings[0].contains("revenue_journals, 'closed_by': close_day, 'same': true"),
        "{closings:?}"
    );
    let id = OFFICE.to_string();
    let output = world.run(&["close", "--month", &closed, "--office", &id]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("gone, and not read whole"), "{}", shown(&output));
}

#[test]
fn what_came_incompletely_of_an_office_that_was_gone_is_asked_again() {
    let world = mirrored(options(12), 5, "");
    let (month, path) = (month(4), format!("/api/Offices/{OFFICE}/RevenueJournals"));
    let hundred = format!("[{}]", [r#"{"RevenueReferralKey": "k", "Payment": 1}"#; 100].join(","));
    for (query, answer) in [("$skip", refuse(400)), ("fromDate", garbage(&hundred))] {
        let rule = Rule { query: Some(query.to_owned()), ..fault(&path, None, answer) };
        world.sandbox.fault(rule);
    }
    let day = format!("{month}-01");
    let read = ["journals", "--from", &day, "--to", &day, "--kind", "revenue"];
    assert_status(&world.run(&read), 3);
    let status = format!(
        "SELECT status FROM report.journal_coverage WHERE journal = 'revenue_journals' \
         AND journal_id = {OFFICE} AND journal_month = '{day}'"
    );
    assert_eq!(one::<String>(&world.published(), &status), "incomplete");
    world.sandbox.clear_faults();
    leaves_for_good(&world);
    assert_eq!(one::<String>(&world.published(), &status), "gone");
    assert!(of_office(&world)[0].iter().any(|row| row.contains("NULL")));
    world.sandbox.clear_faults();
    world.sync();
    assert_eq!(one::<String>(&world.published(), &status), "complete");
    world.assert_equal();
}

/// The journals are read before the list of the offices is.
#[test]
fn an_office_that_is_gone_before_the_list_says_so_keeps_its_lines() {
    let world = mirrored(options(12), 2, "");
    let mirrored = || {
        let count =
            |table| format!("(SELECT count(*) FROM main.{table} WHERE journal_id = {OFFICE})");
        let tables = ["case_journals", "depot_journals", "revenue_journals", "settlement_journals"];
        lines(&world.store(), &format!("SELECT {}", tables.map(count).join(", ")))
    };
    let before = mirrored();
    leaves_the_list(&world);
    let path = format!("/api/Offices/{OFFICE}/*Journals*");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    let (from, to) = (format!("{}-01", month(2)), format!("{}-01", month(0)));
    for _ in 0..3 {
        world.run(&["journals", "--from", &from, "--to", &to, "--set", "source.doubt=0s"]);
        assert_eq!(mirrored(), before);
    }
    let told = "SELECT count(*) FROM report.journal_restatements";
    assert_eq!(one::<i64>(&world.store(), told), 0);
    let of_office =
        format!("SELECT DISTINCT status FROM report.journal_coverage WHERE journal_id = {OFFICE}");
    assert_eq!(lines(&world.store(), &of_office), ["{'status': gone}"]);
}

/// What is mirrored of the offices is all that there is to know then.
#[test]
fn where_there_is_no_list_of_the_offices_a_second_404_to_a_month_is_believed() {
    let world = World::with(options(12));
    let closed = month(1);
    world.journals_since(&format!("{closed}-01"));
    world.configure(UNTHROTTLED);
    world.sandbox.fault(fault("/api/Offices", None, refuse(404)));
    world.sync();
    let of_month = format!(
        "SELECT count(*) FROM main.case_journals WHERE journal_id = {OFFICE} \
         AND journal_month = '{closed}-01'"
    );
    assert!(one::<i64>(&world.store(), &of_month) > 0);
    let path = format!("/api/Offices/{OFFICE}/CaseJournals");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    let day = format!("{closed}-01");
    for status in [3, 0] {
        let doubt = ["--kind", "case", "--set", "source.doubt=0s"];
        let asked = ["journals", "--from", &day, "--to", &day];
        assert_status(&world.run(&[&asked[..], &doubt].concat()), status);
    }
    assert_eq!(one::<i64>(&world.store(), &of_month), 0);
}
