//! What is no answer is never taken for one: it is asked again, and while it stays so, what is mirrored
//! stays and the run says that it is incomplete.

use casemirror::sandbox::{Control, Facet, Fault, Spoil};
use rstest::rstest;
use serde_json::Value;

use crate::support::follow::{assert_status, calls, change, shown_cases};
use crate::support::scripted::{
    assert_incomplete, assert_mended, fault, garbage, page, property_rows, refuse, script_search,
    search_path,
};
use crate::support::{World, one};

const CASES_FEED: &str = "/api/Integrations/RecentlyModified/Cases";
const CONDITIONS: &str = "/api/Properties/*/CommonConditions";
const ROLES: &str = "/api/Cases/*/Roles";
const ERROR: &str = r#"{"Message":"An error has occurred."}"#;

fn mirrored(cases: usize) -> World {
    let world = World::unthrottled(cases);
    world.retry_at_once();
    world.bootstrap();
    world
}

/// A body of a type that is none of JSON's.
fn page_of_type(content_type: &str) -> Fault {
    let body = "[]".to_owned();
    Fault::Garbage { body, status: None, content_type: Some(content_type.to_owned()) }
}

fn bound(world: &World) -> i64 {
    one(&world.store(), "SELECT bound FROM sync.feeds WHERE feed = 'cases'")
}

#[rstest]
#[case::error(CONDITIONS, garbage(ERROR))]
#[case::error_with_an_id(CONDITIONS, garbage(r#"{"Id": 12, "Message": "An error has occurred."}"#))]
#[case::no_field(CONDITIONS, garbage("{}"))]
#[case::blank(CONDITIONS, garbage("\r\n"))]
#[case::twice(CONDITIONS, garbage(r#"{"Debt": 1, "Debt": 2}"#))]
#[case::another_case(CONDITIONS, garbage(r#"{"CaseId": 1, "Debt": 2}"#))]
#[case::empty(ROLES, garbage(""))]
#[case::null(ROLES, garbage("null"))]
#[case::errors(ROLES, garbage(r#"[{"Message":"An error has occurred."}]"#))]
#[case::error_for_a_list(ROLES, garbage(ERROR))]
#[case::reset_content(ROLES, refuse(205))]
#[case::no_authority(ROLES, Fault::Garbage { body: "[]".to_owned(), status: Some(203), content_type: None })]
#[case::html(ROLES, page_of_type("text/html"))]
fn what_is_no_answer_once_is_asked_again_at_once(#[case] path: &str, #[case] wrong: Fault) {
    let world = mirrored(4);
    world.sandbox.fault(fault(path, Some(1), wrong));
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

#[rstest]
#[case::error(CONDITIONS, "common_conditions", garbage(ERROR))]
#[case::twice(CONDITIONS, "common_conditions", garbage(r#"{"Debt": 1, "Debt": 2}"#))]
#[case::another_case(CONDITIONS, "common_conditions", garbage(r#"{"CaseId": 1, "Debt": 2}"#))]
#[case::empty(ROLES, "case_roles", garbage(""))]
#[case::errors(ROLES, "case_roles", garbage(r#"[{"Message":"An error has occurred."}]"#))]
#[case::reset_content(ROLES, "case_roles", refuse(205))]
fn what_stays_no_answer_takes_nothing_away(
    #[case] path: &str,
    #[case] table: &str,
    #[case] wrong: Fault,
) {
    let world = mirrored(3);
    let rows = format!("SELECT string_agg(t::TEXT, '|' ORDER BY t::TEXT) FROM {table} t");
    let before: String = one(&world.published(), &rows);
    world.sandbox.fault(fault(path, None, wrong));
    assert_incomplete(&world.run(&["sync", "--full"]), table);
    assert_eq!(one::<String>(&world.published(), &rows), before);
    let failed = format!("SELECT count(*) FROM sync.failures WHERE table_name = '{table}'");
    assert!(one::<i64>(&world.store(), &failed) > 0);
    let errors = "SELECT string_agg(error, ' ') FROM sync.failures";
    assert!(!one::<String>(&world.store(), errors).contains("has occurred"));
    assert_mended(&world);
}

#[test]
fn an_id_that_stands_twice_in_a_search_row_makes_no_phantom() {
    let world = mirrored(6);
    let case_id = shown_cases(&world)[2];
    change(&world, case_id, Facet::Nothing);
    let row = property_rows(&world, Some(case_id)).remove(0).to_string();
    let doubled = format!("[{},\"Id\":987654}}]", row.trim_end_matches('}'));
    let path = search_path("Property");
    let rule = fault(&path, Some(1), garbage(&doubled));
    world.sandbox.fault(rule);
    assert_status(&world.run(&["sync"]), 0);
    let phantoms = "SELECT count(*) FROM sync.seen WHERE case_id = 987654";
    assert_eq!(one::<i64>(&world.store(), phantoms), 0);
    world.assert_equal();
}

#[test]
fn records_that_come_twice_do_not_stand_for_those_that_did_not_come() {
    let world = mirrored(6);
    // As many as there are, but the first stands in the place of the last one too. What it hides is
    // found by looking behind it.
    world.sandbox.fault(fault(ROLES, None, Fault::Spoil { how: Spoil::DuplicateRecord }));
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

/// 1053.0 is the whole number 1053, in a column and for whoever asks which cases an answer has.
#[test]
fn an_id_that_is_written_with_a_zero_fraction_is_that_id_to_all_who_read_it() {
    let world = mirrored(12);
    let written = |row: &Value| {
        let mut row = row.clone();
        for field in ["Id", "CaseId"] {
            if let Some(id) = row[field].as_f64() {
                row[field] = id.into();
            }
        }
        row["SettlementCompanyName"] = "Som et desimaltall".into();
        row
    };
    let plain = property_rows(&world, None);
    let rows: Vec<Value> = plain.iter().map(written).collect();
    assert!(rows[0]["Id"].to_string().ends_with(".0"), "{}", rows[0]);
    let counted = || one::<i64>(&world.store(), "SELECT count(*) FROM main.cases");
    let before = counted();
    world.sandbox.fault(fault(&search_path("Property"), Some(1), garbage(&page(&rows))));
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(counted(), before);
    let doubted = "SELECT count(*) FROM sync.seen WHERE state IS DISTINCT FROM 'found'";
    assert_eq!(one::<i64>(&world.store(), doubted), 0);
    let case_id = shown_cases(&world)[0];
    let at = plain.iter().position(|row| row["Id"] == case_id).unwrap();
    script_search(&world, "Property", case_id, &rows[at..=at]);
    change(&world, case_id, Facet::Note);
    world.sync();
    let name = format!("SELECT settlement_company_name FROM main.cases WHERE id = {case_id}");
    assert_eq!(one::<String>(&world.store(), &name), "Som et desimaltall");
    assert_eq!(counted(), before);
}

#[test]
fn listed_cases_that_come_twice_do_not_stand_for_those_that_did_not_come() {
    let world = mirrored(12);
    let rows = property_rows(&world, None);
    let last = rows.len() - 3;
    // As many as counted, but three of them are others again.
    let doubled: Vec<Value> = rows[..last].iter().chain(&rows[..3]).cloned().collect();
    let path = search_path("Property");
    world.sandbox.fault(fault(&path, Some(1), garbage(&page(&doubled))));
    world.run(&["sync", "--full"]);
    let doubted = "SELECT count(*) FROM sync.seen WHERE state IS DISTINCT FROM 'found'";
    assert_eq!(one::<i64>(&world.store(), doubted), 0);
    assert_mended(&world);
}

#[rstest]
#[case::empty(garbage(""))]
#[case::null(garbage("null"))]
#[case::error(garbage(ERROR))]
#[case::errors(garbage(r#"[{"Message":"An error has occurred."}]"#))]
#[case::counted(garbage(r#"{"Count": 3, "Results": []}"#))]
#[case::reset_content(refuse(205))]
#[case::no_content(refuse(204))]
fn on_the_feed_an_answer_that_is_none_moves_nothing(#[case] wrong: Fault) {
    let world = mirrored(4);
    let before = bound(&world);
    change(&world, shown_cases(&world)[1], Facet::Activity);
    world.sandbox.fault(fault(CASES_FEED, None, wrong));
    let output = world.run(&["sync"]);
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(bound(&world), before);
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync"]), 0);
    world.assert_equal();
}

#[test]
fn a_date_of_another_year_does_not_move_the_watermark_and_nothing_is_read_again() {
    let world = mirrored(4);
    change(&world, shown_cases(&world)[1], Facet::Nothing);
    world.sync();
    let bound = || one::<i64>(&world.store(), "SELECT bound FROM sync.feeds WHERE feed = 'cases'");
    let before = bound();
    world.sandbox.control(Control::DateSkew { ms: -400 * 86_400_000 });
    for _ in 0..2 {
        world.sandbox.reset_stats();
        world.sync();
        let read =
            world.sandbox.stats().log.into_iter().filter(|call| {
                !call.path.contains("RecentlyModified") && !call.path.contains("token")
            });
        assert_eq!(read.map(|call| call.path).collect::<Vec<_>>(), [""; 0]);
        assert!(bound() >= before - 2 * 600 * 10_000_000, "{} after {before}", bound());
    }
    world.sandbox.control(Control::DateSkew { ms: 0 });
    change(&world, shown_cases(&world)[1], Facet::Activity);
    world.sync();
    world.assert_equal();
}

/// What no window covers would count as gone.
#[test]
fn a_list_by_time_is_read_up_to_the_services_date_where_that_is_ahead_of_ours() {
    let world = mirrored(4);
    let windows = || {
        world.sandbox.reset_stats();
        assert_status(&world.run(&["sync", "--full"]), 0);
        let path = "POST /api/ProcessingBases/Relations/Contacts/Extended";
        calls(&world)[path]
    };
    let before = windows();
    world.sandbox.control(Control::DateSkew { ms: 400 * 86_400_000 });
    assert!(windows() > before);
    world.sandbox.control(Control::DateSkew { ms: 20_000 * 86_400_000 });
    assert!(windows() < before + 20, "a Date of another century is none");
    world.sandbox.control(Control::DateSkew { ms: 0 });
    assert_eq!(windows(), before);
    world.assert_equal();
}

#[test]
fn a_date_that_jumps_ahead_does_not_move_the_watermark_with_it() {
    let world = mirrored(4);
    // A change that is seen at once: the service's clock is that of its change dates.
    change(&world, shown_cases(&world)[1], Facet::Nothing);
    world.sync();
    world.sandbox.control(Control::DateSkew { ms: 3_600_000 });
    world.sync();
    let ahead =
        "SELECT (bound - epoch_us(now()) * 10) / 10000000 FROM sync.feeds WHERE feed = 'cases'";
    let seconds: f64 = one(&world.store(), ahead);
    assert!(seconds < 120.0, "{seconds}");
    world.sandbox.control(Control::DateSkew { ms: 0 });
    change(&world, shown_cases(&world)[1], Facet::Activity);
    world.sync();
    world.assert_equal();
}
