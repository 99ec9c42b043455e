//! "All clear" only with a control behind it: whose journals stay known, what is said where there is no
//! control, and how long a difference stands.

use std::process::Output;

use casemirror::sandbox::{Act, Facet, Fault, Journal, JournalEdit, Rule};
use rstest::rstest;
use serde_json::Value;

use crate::support::follow::{
    Integrator, UNTHROTTLED, assert_status, brisk, calls, change, lines, shown_cases, unthrottled,
};
use crate::support::journals::{OFFICE, mirrored, month, not_clear, options};
use crate::support::scripted::{fault, garbage, page, refuse, search_path};
use crate::support::{World, one, shown};

const SUMS: &str = "*/RevenueJournals/Sum";
/// Both the list of the offices and the trailing months are read in every run.
const BOTH_DUE: &str = "[schedule]\nreference = \"* * * * * *\"\njournals = \"* * * * * *\"\n";

fn verify(world: &World) -> Output {
    world.run(&["verify", "--sample", "0"])
}

#[track_caller]
fn assert_no_agreement(output: &Output, words: &str) {
    assert_status(output, 3);
    let text = shown(output);
    assert!(!text.contains("the mirror equals the source"), "{text}");
    assert!(text.contains(words), "{text}");
}

/// How many months of revenue there are of each status.
fn reconciled(world: &World) -> Vec<String> {
    lines(
        &world.published(),
        "SELECT status, count(*) AS months FROM report.journal_reconciliation GROUP BY ALL \
         ORDER BY ALL",
    )
}

fn sum_answers(world: &World, answer: Fault) {
    world.sandbox.fault(fault(SUMS, None, answer));
}

#[test]
fn a_sum_that_did_not_fit_is_not_told_as_none() {
    let world = brisk(unthrottled(12));
    world.journals_since(&format!("{}-01", month(2)));
    sum_answers(&world, garbage("{\"TotalPayment\": null, \"TotalPurchasePrice\": null}"));
    assert_status(&world.run(&["sync"]), 3);
    let told = |of: &str| {
        let reject = format!(
            "INSERT INTO sync.rejects (table_name, scope, record_key, column_name) \
             SELECT DISTINCT 'revenue_journal_sums', journal_level || '/' || journal_id || '/' \
               || strftime(journal_month, '%Y-%m'), 'x', 'total_payment' FROM sync.journal_months WHERE {of}"
        );
        assert_ne!(world.alter(&reject), 0);
        shown(&world.run(&["sync"])).contains("gives no sum")
    };
    assert!(told(&format!("journal_id = {OFFICE}")), "there are other offices");
    assert!(!told("true"));
}

#[rstest]
#[case::forbidden(refuse(403), "revenue_journal_sums is forbidden")]
#[case::nothing(garbage("{\"TotalPayment\": null, \"TotalPurchasePrice\": null}"), "gives no sum")]
fn months_without_a_sum_have_no_control(#[case] answer: Fault, #[case] words: &str) {
    let world = brisk(unthrottled(12));
    world.journals_since(&format!("{}-01", month(2)));
    sum_answers(&world, answer);
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains(words), "{}", shown(&output));
    let offices: i64 = one(&world.published(), "SELECT count(*) FROM offices");
    assert_eq!(
        reconciled(&world),
        [
            format!("{{'status': no_control, 'months': {}}}", 2 * offices),
            format!("{{'status': open, 'months': {offices}}}")
        ]
    );
    let row = "{'journal': revenue_journals, 'status': no_control}".to_owned();
    assert!(not_clear(&world).contains(&row));
    assert_no_agreement(&verify(&world), words);
    let status = world.run(&["status"]);
    assert_status(&status, 3);
    assert_eq!(shown(&status).matches("no control").count(), 1, "{}", shown(&status));

    world.sandbox.clear_faults();
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}"));
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(not_clear(&world), [""; 0]);
    assert_status(&verify(&world), 0);
    assert_status(&world.run(&["status"]), 0);
}

/// Where there is no month to say anything of, that is said.
#[test]
fn what_no_month_tells_of_is_not_clear_either() {
    let world = brisk(unthrottled(12));
    let none = "[resources]\ndisable = [\"offices\", \"employee_offices\"]\n";
    world.configure(&format!("{UNTHROTTLED}{none}"));
    world.run(&["sync"]);
    let of_months = "SELECT count(*) FROM report.journal_coverage";
    assert_eq!(one::<i64>(&world.published(), of_months), 0);
    assert_eq!(
        not_clear(&world),
        ["case", "depot", "revenue", "settlement"]
            .map(|kind| format!("{{'journal': {kind}_journals, 'status': disabled}}"))
    );

    // A value of a journal without a sum.
    let world = mirrored(options(12), 2, "");
    assert_eq!(not_clear(&world), [""; 0]);
    let line = r#"[{"DepotJournalDocumentId": 1, "Amount": 1.005}]"#;
    let path = format!("/api/Offices/{OFFICE}/DepotJournals");
    world.sandbox.fault(fault(&path, None, garbage(line)));
    let (day, doubt) = (format!("{}-01", month(1)), ["--set", "source.doubt=0s"]);
    let read = ["journals", "--from", &day, "--to", &day, "--kind", "depot"];
    world.run(&[&read[..], &doubt].concat());
    world.run(&[&read[..], &doubt].concat());
    let row = "{'journal': depot_journals, 'status': rejected}".to_owned();
    assert!(not_clear(&world).contains(&row), "{:?}", not_clear(&world));
}

#[test]
fn a_control_that_nobody_wants_is_no_failure_and_no_agreement() {
    let world = brisk(unthrottled(12));
    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = [\"revenue_journal_sums\"]\n"));
    world.sync();
    assert_status(&world.run(&["status"]), 0);
    assert_no_agreement(&verify(&world), "not compared: revenue_journal_sums is disabled");
    assert!(!not_clear(&world).is_empty());
}

#[test]
fn lines_that_do_not_add_up_are_told_by_sync_and_status() {
    let world = mirrored(options(12), 2, "");
    let wrong = "{\"TotalPayment\": 1.00, \"TotalPurchasePrice\": 1.00}";
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals/Sum");
    let rule = fault(&path, None, garbage(wrong));
    world.sandbox.fault(Rule { method: Some("PUT".to_owned()), ..rule });
    world.configure(&format!("{UNTHROTTLED}{BOTH_DUE}"));
    let words = "2 months do not add up to the platform's sum";
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains(words), "{}", shown(&output));
    world.configure(UNTHROTTLED);
    let status = world.run(&["status"]);
    assert_status(&status, 3);
    assert!(shown(&status).contains(words), "{}", shown(&status));
    let off = format!(
        "SELECT status, platform_sum::VARCHAR, (difference = platform_sum - payment - payment_change) \
         AS is_right FROM report.journal_reconciliation WHERE journal_id = {OFFICE} \
         AND status <> 'open' ORDER BY journal_month"
    );
    let row = "{'status': differs, 'CAST(platform_sum AS VARCHAR)': 1.00, 'is_right': true}";
    assert_eq!(lines(&world.published(), &off), [row, row]);

    // Known to be the sum of something else, they are said to have no control, and are not asked.
    world.alter(&format!(
        "UPDATE sync.journal_months SET no_control_at = now() \
             WHERE table_name = 'revenue_journal_sums' AND journal_id = {OFFICE}"
    ));
    world.sandbox.reset_stats();
    let output = verify(&world);
    assert_no_agreement(
        &output,
        "2 months have no control, the platform's sum is that of something",
    );
    assert_eq!(calls(&world).get(&format!("PUT {path}")), None);
    assert_eq!(shown(&output).matches("have no control").count(), 1, "{}", shown(&output));
    let statuses = format!(
        "SELECT DISTINCT status FROM report.journal_reconciliation WHERE journal_id = {OFFICE} \
         AND status <> 'open'"
    );
    assert_eq!(lines(&world.store(), &statuses), ["{'status': no_control}"]);
}

#[test]
fn lines_that_are_asked_for_alone_are_held_against_their_sums_all_the_same() {
    let world = mirrored(options(12), 2, "");
    let before = reconciled(&world);
    assert!(before.iter().any(|row| row.contains("matches")), "{before:?}");
    assert_status(&world.run(&["sync", "--only", "revenue_journals", "--full"]), 0);
    assert!(calls(&world).keys().any(|path| path.ends_with("/RevenueJournals/Sum")));
    assert_eq!(reconciled(&world), before);
}

/// Without annotations it is not known what the payments come to; the purchase prices are.
#[rstest]
#[case::prices("{\"TotalPayment\": PAYMENT, \"TotalPurchasePrice\": 1.00}", 3, "add up")]
#[case::payments("{\"TotalPayment\": 1.00, \"TotalPurchasePrice\": PRICE}", 0, "")]
fn sums_are_held_against_lines_whose_annotations_nobody_wants(
    #[case] answer: &str,
    #[case] status: i32,
    #[case] words: &str,
) {
    let world = mirrored(options(12), 1, "");
    let without = format!(
        "{UNTHROTTLED}{BOTH_DUE}[resources]\ndisable = [\"revenue_journal_annotations\"]\n"
    );
    world.configure(&without);
    world.run(&["sync"]);
    let closed = month(1);
    let sum = |column: &str| -> String {
        let sql = format!(
            "SELECT {column}::VARCHAR FROM revenue_journal_sums \
             WHERE journal_id = {OFFICE} AND journal_month = '{closed}-01'"
        );
        one(&world.published(), &sql)
    };
    let answer = answer
        .replace("PAYMENT", &sum("total_payment"))
        .replace("PRICE", &sum("total_purchase_price"));
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals/Sum");
    world
        .sandbox
        .fault(Rule { method: Some("PUT".to_owned()), ..fault(&path, None, garbage(&answer)) });
    let output = world.run(&["sync"]);
    assert_status(&output, status);
    assert!(shown(&output).contains(words), "{}", shown(&output));
    let of_month = format!(
        "SELECT status FROM report.journal_reconciliation \
         WHERE journal_id = {OFFICE} AND journal_month = '{closed}-01'"
    );
    let is = if status == 0 { "no_control" } else { "differs" };
    assert_eq!(one::<String>(&world.published(), &of_month), is);
    let output = verify(&world);
    assert!(!shown(&output).contains("the mirror equals the source"), "{}", shown(&output));
}

#[test]
fn of_a_journal_that_is_not_read_any_more_no_difference_is_known() {
    let world = mirrored(options(12), 2, "");
    let known = "SELECT count(*) FILTER (WHERE r.platform_sum IS NOT NULL) AS sums, \
                   count(*) FILTER (WHERE r.difference IS NOT NULL) AS differences, \
                   count(*) FILTER (WHERE c.sum_matches IS NOT NULL) AS compared \
                 FROM report.journal_reconciliation r JOIN report.journal_coverage c \
                   USING (journal_level, journal_id, journal_month) WHERE c.journal = 'revenue_journals'";
    let [before] = &lines(&world.published(), known)[..] else { panic!("one row") };
    assert!(!before.contains(": 0"), "{before}");
    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = [\"revenue_journals\"]\n"));
    world.sync();
    let none = "{'sums': 0, 'differences': 0, 'compared': 0}";
    assert_eq!(lines(&world.published(), known), [none]);
}

#[test]
fn a_month_that_was_read_before_its_end_is_open_however_late_it_is() {
    let world = mirrored(options(12), 2, "");
    assert_eq!(not_clear(&world), [""; 0]);
    let of = |month: &str| {
        lines(
            &world.store(),
            &format!(
                "SELECT DISTINCT status FROM report.journal_coverage \
                 WHERE journal_month = '{month}-01'"
            ),
        )
    };
    assert_eq!(of(&month(0)), ["{'status': open}"]);
    assert_eq!(of(&month(1)), ["{'status': complete}"]);
    let early = month(2);
    world.alter(&format!(
        "UPDATE sync.journal_months SET sent_at = '{early}-15 12:00:00+00' \
             WHERE journal_month = '{early}-01'"
    ));
    assert_eq!(of(&early), ["{'status': open}"]);
    let sums = "SELECT count(*) FROM report.journal_coverage WHERE journal = 'revenue_journal_sums' \
                AND lines = 1";
    let offices: i64 = one(&world.store(), "SELECT count(*) FROM offices");
    assert_eq!(one::<i64>(&world.store(), sums), 3 * offices);
}

#[test]
fn an_id_that_both_searches_return_is_a_case_and_no_difference() {
    let world = mirrored(options(12), 1, "");
    let asked = |of: &str| {
        let path = format!("{}?$top=1000", search_path(of));
        let rows = Integrator::log_in(&world).call("POST", &path, &Value::Null);
        rows.as_array().unwrap().clone()
    };
    let rows = [asked("Project"), vec![asked("Property").remove(0)]].concat();
    world.sandbox.fault(fault(&search_path("Project"), None, garbage(&page(&rows))));
    let output = verify(&world);
    assert_status(&output, 0);
    assert!(!shown(&output).contains("lacking"), "{}", shown(&output));
}

#[test]
fn a_difference_stands_in_status_until_a_later_verification_finds_none() {
    let world = mirrored(options(12), 2, "");
    let closed = month(2);
    world.alter(&format!(
        "UPDATE main.revenue_journals SET payment = payment + 1 WHERE journal_id = {OFFICE} \
             AND journal_month = '{closed}-01' AND line_number = 1"
    ));
    assert_status(&verify(&world), 4);
    let status = world.run(&["status"]);
    assert_status(&status, 4);
    assert!(shown(&status).contains("differs since "), "{}", shown(&status));
    assert!(shown(&status).contains(&format!("{closed}: payments")), "{}", shown(&status));
    let json = world.run(&["status", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["verified"]["standing"].as_array().unwrap().len(), 2, "{json}");

    // It is read again, and nobody has looked since.
    world.sync();
    assert_status(&world.run(&["status"]), 4);
    // One that cannot look finds nothing.
    sum_answers(&world, refuse(400));
    assert_status(&verify(&world), 3);
    assert_status(&world.run(&["status"]), 4);
    world.sandbox.clear_faults();
    assert_status(&verify(&world), 0);
    assert_status(&world.run(&["status"]), 0);

    // Of what was the same only the last verification is kept.
    let kept = "SELECT count(DISTINCT verified_at) FROM sync.verifications WHERE difference";
    assert_eq!(one::<i64>(&world.store(), &format!("{kept} IS NULL")), 1);
    assert_eq!(one::<i64>(&world.store(), &format!("{kept} IS NOT NULL")), 1);
    world.alter("UPDATE sync.verifications SET verified_at = '2025-01-01 00:00:00+00'");
    assert_status(&verify(&world), 0);
    assert_eq!(one::<i64>(&world.store(), &format!("{kept} IS NOT NULL")), 0);
}

/// With one run a night, a month would else have no control for a day.
#[test]
fn lines_that_are_read_late_are_held_against_their_sum_in_the_same_run() {
    let world = brisk(unthrottled(12));
    world.journals_since(&format!("{}-01", month(2)));
    world.retry_at_once();
    world.sandbox.fault(fault("*/RevenueJournals", None, refuse(500)));
    assert_status(&world.run(&["sync"]), 3);
    world.sandbox.clear_faults();
    world.alter("UPDATE sync.failures SET next_at = first_at");
    world.sync();
    let verdicts = reconciled(&world).join(" ");
    assert!(verdicts.contains("matches") && !verdicts.contains("no_control"), "{verdicts}");
    world.assert_equal();
}

/// One month of each scope and night: after as many nights as there are months each had its turn.
#[rstest]
#[case::case_journals("case_journals", "address = 'no'")]
#[case::depot("depot_journals", "amount = amount + 0.01")]
#[case::settlement("settlement_journals", "cost = cost + 0.01")]
fn journals_without_a_sum_are_held_against_the_source_in_turn(
    #[case] table: &str,
    #[case] edit: &str,
) {
    let world = mirrored(options(12), 3, "");
    let oldest = month(3);
    let altered = format!(
        "UPDATE main.{table} SET {edit} WHERE journal_id = {OFFICE} \
         AND journal_month = '{oldest}-01' AND line_number = 1"
    );
    assert_eq!(world.alter(&altered), 1);
    assert_status(&verify(&world), 0);
    assert_status(&verify(&world), 0);
    let output = verify(&world);
    assert_status(&output, 4);
    let text = shown(&output);
    let named = format!("(offices/{OFFICE}) {oldest}: line 1");
    assert!(text.lines().any(|l| l.contains(table) && l.contains(&named)), "{text}");
    assert_status(&world.run(&["status"]), 4);
    // Read again, it is the first to have its turn.
    world.sync();
    world.assert_equal();
    assert_status(&verify(&world), 0);
    assert_status(&world.run(&["status"]), 0);
}

/// A month that is over and not closed yet is followed, as by the sums.
#[test]
fn what_was_booked_since_into_a_month_without_a_sum_is_followed() {
    let world = brisk(unthrottled(12));
    world.journals_since(&format!("{}-01", month(1)));
    world.bootstrap();
    world.alter("UPDATE sync.journal_months SET closed_read_at = NULL");
    let act = Act::Journal {
        journal: Journal::DepotJournals,
        office_id: OFFICE,
        month: month(1),
        edit: JournalEdit::Appended,
        line: None,
    };
    world.sandbox.act(&act).unwrap();
    assert_status(&verify(&world), 0);
    world.assert_equal();
}

#[test]
fn a_case_signed_in_the_last_millisecond_of_a_month_is_no_false_alarm() {
    let world = brisk(unthrottled(60));
    world.bootstrap();
    let sales: Vec<i64> = {
        let sql = "SELECT id::VARCHAR FROM main.cases WHERE assignment_type = 'Sale' ORDER BY id";
        let store = world.store();
        let mut sales = store.prepare(sql).unwrap();
        let ids = sales.query_map([], |row| row.get::<_, String>(0)).unwrap();
        ids.map(|id| id.unwrap().parse().unwrap()).collect()
    };
    // 23:59:59 in Oslo: what no filter to the millisecond reaches, and what is cut to one that it does.
    for (case_id, fraction) in
        sales.iter().zip(["9999999", "999", "9990005", "9990000", "9995", "998", "9989999"])
    {
        let at = format!("2026-10-31T22:59:59.{fraction}Z");
        let dates = [("CaseActivatedDate".to_owned(), Some(at))].into();
        let act = Act::Touch { case_ids: vec![*case_id], modified: None, dates };
        world.sandbox.act(&act).unwrap();
    }
    world.sync();
    assert_status(&verify(&world), 0);
    // What really differs there is found still.
    world.alter(&format!(
        "UPDATE main.cases SET assignment_type = 'Valuation' WHERE id = {}",
        sales[6]
    ));
    let output = verify(&world);
    assert_status(&output, 4);
    assert!(shown(&output).contains(&format!("signed cases 2026-10: case {}", sales[6])));
}

#[test]
fn why_a_month_has_fewer_signed_cases_than_it_had_is_told() {
    let world = brisk(unthrottled(60));
    world.bootstrap();
    let signed = lines(
        &world.store(),
        "SELECT id FROM main.cases WHERE assignment_type <> 'Valuation' \
           AND case_activated_date IS NOT NULL ORDER BY id LIMIT 5",
    );
    let ids: Vec<i64> = signed
        .iter()
        .map(|row| row.trim_matches(['{', '}']).split(' ').next_back().unwrap().parse().unwrap())
        .collect();
    let (hidden, deleted, moved, unset) = (ids[0], ids[1], ids[2], ids[3]);
    world.sandbox.act(&Act::HideCase { case_id: hidden, silent: false }).unwrap();
    world.sandbox.act(&Act::DeleteCase { case_id: deleted }).unwrap();
    for (case_id, at) in [(moved, Some("2026-02-03T10:00:00Z".to_owned())), (unset, None)] {
        let dates = [("CaseActivatedDate".to_owned(), at)].into();
        let act = Act::Touch { case_ids: vec![case_id], modified: None, dates };
        world.sandbox.act(&act).unwrap();
    }
    // What changes otherwise is no loss.
    change(&world, ids[4], Facet::Description);
    world.configure(&format!("{UNTHROTTLED}[schedule]\nreconcile = \"* * * * * *\"\n"));
    world.sync();
    let lost = "SELECT case_id, reason FROM report.signed_cases_lost ORDER BY case_id";
    let mut expected = [
        (hidden, "hidden"),
        (deleted, "deleted"),
        (moved, "date changed"),
        (unset, "date changed"),
    ];
    expected.sort();
    let expected: Vec<String> =
        expected.iter().map(|(id, why)| format!("{{'case_id': {id}, 'reason': {why}}}")).collect();
    assert_eq!(lines(&world.published(), lost), expected);

    // One that comes back is lost no more.
    world.sandbox.act(&Act::ShowCase { case_id: hidden, silent: false }).unwrap();
    world.sync();
    assert!(shown_cases(&world).contains(&hidden));
    assert_eq!(one::<i64>(&world.published(), "SELECT count(*) FROM report.signed_cases_lost"), 3);
}

#[test]
fn the_tail_of_a_binary_fraction_leaves_no_month_open() {
    let world = brisk(unthrottled(12));
    world.journals_since(&format!("{}-01", month(1)));
    let line = r#"[{"RevenueReferralKey": "k", "Payment": 1234.5600000001, "PurchasePrice": 2}]"#;
    let rule = fault(&format!("/api/Offices/{OFFICE}/RevenueJournals"), None, garbage(line));
    world.sandbox.fault(Rule { method: Some("GET".to_owned()), ..rule });
    let sum = r#"{"TotalPayment": 1234.56, "TotalPurchasePrice": 2.0000000001}"#;
    let path = format!("/api/Offices/{OFFICE}/RevenueJournals/Sum");
    world.sandbox.fault(fault(&path, None, garbage(sum)));
    world.sync();
    let of_office = format!(
        "SELECT status, payment::DOUBLE AS payment, difference::DOUBLE AS difference \
         FROM report.journal_reconciliation WHERE journal_id = {OFFICE} ORDER BY journal_month"
    );
    assert_eq!(
        lines(&world.published(), &of_office),
        [
            "{'status': matches, 'payment': 1234.56, 'difference': 0.0}",
            "{'status': open, 'payment': 1234.56, 'difference': 0.0}"
        ]
    );
}
