//! What the store keeps open, and that it is closed: rejects, failures and statuses
//! (docs/architecture.md, "What an error says").

use casemirror::sandbox::{Act, Control, Facet, Fault, ListEdit};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::follow::{
    Integrator, UNTHROTTLED, assert_status, calls, change, lines, shown_cases,
};
use crate::support::scripted::{
    assert_incomplete, assert_mended, fault, garbage, property_rows, refuse, script_search,
    without_id,
};
use crate::support::{World, one};

const WITHOUT_KEY: &str = "[{\"Subject\": \"Viewing\"}]";
const CONDITIONS: &str = "/api/Properties/*/CommonConditions";
const OPEN_REJECTS: &str = "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NULL";

fn mirrored(cases: usize) -> World {
    let world = World::unthrottled(cases);
    world.bootstrap();
    world
}

fn activities(case_id: i64) -> String {
    format!("/api/Cases/{case_id}/Activities")
}

fn status_of(world: &World, table: &str) -> String {
    one(&world.store(), &format!("SELECT status FROM sync.resources WHERE table_name = '{table}'"))
}

#[test]
fn records_without_key_are_noted_under_their_case_and_mended_with_it() {
    let world = mirrored(8);
    let cases = [world.sandbox.case_ids()[2], world.sandbox.case_ids()[5]];
    for case_id in cases {
        world.sandbox.fault(fault(&activities(case_id), None, garbage(WITHOUT_KEY)));
        change(&world, case_id, Facet::Activity);
    }
    assert_incomplete(&world.run(&["sync"]), "activities");
    let scopes = lines(
        &world.store(),
        "SELECT scope FROM sync.rejects WHERE column_name IS NULL AND resolved_at IS NULL ORDER BY 1",
    );
    assert_eq!(scopes, cases.map(|case_id| format!("{{'scope': {case_id}}}")));
    assert_mended(&world);
    assert_eq!(one::<i64>(&world.store(), OPEN_REJECTS), 0);
}

#[test]
fn a_search_row_without_key_decides_nothing_about_its_case() {
    let world = mirrored(8);
    let case_id = shown_cases(&world)[3];
    change(&world, case_id, Facet::Nothing);
    let row = without_id(&property_rows(&world, Some(case_id))[0]);
    script_search(&world, "Property", case_id, &[row]);
    world.sandbox.reset_stats();
    assert_incomplete(&world.run(&["sync"]), "cases");
    let asked = format!("GET /api/Cases/{case_id}/Roles");
    assert!(!calls(&world).contains_key(&asked), "it may be the row that has no key");
    let store = world.store();
    let rejected = "SELECT scope FROM sync.rejects WHERE table_name = 'cases'";
    assert_eq!(one::<String>(&store, rejected), case_id.to_string());
    assert_eq!(one::<i64>(&store, &format!("SELECT count(*) FROM cases WHERE id = {case_id}")), 1);
    drop(store);
    assert_mended(&world);
    assert_eq!(one::<i64>(&world.store(), OPEN_REJECTS), 0);
}

/// A scope that failed and a value that did not fit stay in the store; what is not read is no failure.
#[rstest]
#[case::disabled(&["sync"], "[resources]\ndisable = [\"common_conditions\", \"activities\"]\n")]
#[case::left_out_by_only(&["sync", "--only", "costs"], "")]
#[case::left_out_by_case(&["sync", "--case", "OTHER"], "")]
fn what_is_not_read_is_no_failure(#[case] args: &[&str], #[case] configuration: &str) {
    let world = mirrored(8);
    let (case_id, other) = (shown_cases(&world)[3], shown_cases(&world)[4].to_string());
    let conditions = CONDITIONS.replace('*', &case_id.to_string());
    world.sandbox.fault(fault(&conditions, None, refuse(400)));
    let body = "[{\"Id\": 1, \"IsCompleted\": \"perhaps\"}]";
    world.sandbox.fault(fault(&activities(case_id), None, garbage(body)));
    change(&world, case_id, Facet::Activity);
    let output = world.run(&["sync"]);
    assert_incomplete(&output, "common_conditions");
    assert_incomplete(&output, "activities");

    world.configure(&format!("{UNTHROTTLED}{configuration}"));
    let args: Vec<&str> = args.iter().map(|a| if *a == "OTHER" { &other } else { *a }).collect();
    assert_status(&world.run(&args), 0);
    assert_eq!(one::<i64>(&world.store(), OPEN_REJECTS), 1);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures"), 1);
}

#[rstest]
#[case::forbidden(403, "forbidden")]
#[case::absent(405, "absent")]
fn what_failed_before_its_table_was_closed_is_no_failure(#[case] code: u16, #[case] status: &str) {
    let world = mirrored(8);
    let cases = shown_cases(&world);
    let conditions = CONDITIONS.replace('*', &cases[3].to_string());
    let failing = world.sandbox.fault(fault(&conditions, None, refuse(400)));
    change(&world, cases[3], Facet::Nothing);
    assert_incomplete(&world.run(&["sync"]), "common_conditions");

    world.sandbox.remove_fault(failing);
    // A permission that is not granted speaks for the table at once.
    let body = r#"["Conditions - Read"]"#.to_owned();
    let refusal = Fault::Refuse { status: code, headers: [].into(), body };
    world.sandbox.fault(fault(CONDITIONS, None, refusal));
    change(&world, cases[4], Facet::Nothing);
    world.sandbox.reset_stats();
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(status_of(&world, "common_conditions"), status);
    assert_status(&world.run(&["status"]), 0);
}

#[test]
fn a_contact_that_no_role_names_any_more_is_no_failure() {
    let world = World::unthrottled(12);
    let contact_id = 999_999_999; // A role names it, and nobody knows it.
    world.sandbox.fault(fault(&format!("/api/Contacts/{contact_id}"), None, refuse(400)));
    assert_incomplete(&world.run(&["sync"]), "contacts");
    let named = format!("SELECT case_id FROM case_roles WHERE contact_id = {contact_id} LIMIT 1");
    let naming = format!("SELECT count(*) FROM case_roles WHERE contact_id = {contact_id}");
    for _ in 0..20 {
        if one::<i64>(&world.store(), &naming) == 0 {
            break;
        }
        let case_id: i64 = one(&world.store(), &named);
        change(&world, case_id, Facet::RoleRemoved);
        world.run(&["sync", "--full"]);
    }
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures"), 0);
}

#[test]
fn a_case_that_is_no_resale_any_more_leaves_the_resales_with_what_failed_there() {
    let world = World::unthrottled(8);
    let resale = Some("ResaleOfContractPositionConsumer".to_owned());
    for _ in 0..4 {
        world.sandbox.act(&Act::NewCase { project: false, assignment: resale.clone() }).unwrap();
    }
    world.sync();
    let case_id: i64 = one(&world.store(), "SELECT max(case_id) FROM resale_information");
    let path = format!("/api/Properties/{case_id}/ResaleInformation");
    world.sandbox.fault(fault(&path, None, refuse(400)));
    change(&world, case_id, Facet::Nothing);
    assert_incomplete(&world.run(&["sync"]), "resale_information");

    let rows = format!("SELECT count(*) FROM resale_information WHERE case_id = {case_id}");
    change(&world, case_id, Facet::Nothing);
    let mut row = property_rows(&world, Some(case_id)).remove(0);
    row["AssignmentType"] = json!(["Sale"]);
    script_search(&world, "Property", case_id, &[row.clone()]);
    assert_incomplete(&world.run(&["sync"]), "cases");
    assert_eq!(one::<i64>(&world.store(), &rows), 1, "what it is now is not known");

    change(&world, case_id, Facet::Nothing);
    let mut row = property_rows(&world, Some(case_id)).remove(0);
    row["AssignmentType"] = json!("Sale");
    // A later rule has the last word.
    script_search(&world, "Property", case_id, &[row]);
    world.sync();
    assert_eq!(one::<i64>(&world.store(), &rows), 0);
    let history = rows.replace("resale_information", "history.resale_information");
    let kept = format!("{history} AND _change = 'deleted'");
    assert_eq!(one::<i64>(&world.store(), &kept), 1);
    // And it comes back with what it is.
    world.sandbox.clear_faults();
    change(&world, case_id, Facet::Nothing);
    world.sync();
    world.assert_equal();
    assert_eq!(one::<i64>(&world.store(), &rows), 1);
}

/// A world in which a value of a search row did not fit, and the case of it.
fn with_rejected_price() -> (World, i64) {
    let world = mirrored(8);
    let case_id = shown_cases(&world)[3];
    change(&world, case_id, Facet::Nothing);
    let mut row = property_rows(&world, Some(case_id)).remove(0);
    row["AskingPrice"] = json!("a lot");
    script_search(&world, "Property", case_id, &[row]);
    assert_incomplete(&world.run(&["sync"]), "cases");
    assert_eq!(one::<i64>(&world.store(), OPEN_REJECTS), 1);
    world.sandbox.clear_faults();
    (world, case_id)
}

#[test]
fn what_did_not_fit_in_a_search_row_is_over_when_the_case_is_hidden() {
    let (world, case_id) = with_rejected_price();
    world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
    world.sync();
    world.assert_equal();
    assert_eq!(one::<i64>(&world.store(), OPEN_REJECTS), 0);
}

#[test]
fn what_did_not_fit_in_a_search_row_is_over_when_the_case_moves_to_the_other_search() {
    let (world, case_id) = with_rejected_price();
    change(&world, case_id, Facet::Nothing);
    let rows = property_rows(&world, Some(case_id));
    script_search(&world, "Property", case_id, &[]);
    script_search(&world, "Project", case_id, &rows);
    world.sync();
    let store = world.store();
    assert_eq!(one::<i64>(&store, OPEN_REJECTS), 0);
    for (table, count) in [("cases", 0), ("projects", 1), ("history.cases", 2)] {
        let rows = format!("SELECT count(*) FROM {table} WHERE id = {case_id}");
        assert_eq!(one::<i64>(&store, &rows), count, "{table}");
    }
    let log = format!(
        "SELECT table_name FROM sync.fetched WHERE id = {case_id} AND table_name IN ('cases', 'projects')"
    );
    assert_eq!(one::<String>(&store, &log), "projects");
}

#[test]
fn what_failed_of_a_case_is_over_when_the_case_is_deleted() {
    let world = mirrored(12);
    let case_id = shown_cases(&world)[3];
    let conditions = CONDITIONS.replace('*', &case_id.to_string());
    world.sandbox.fault(fault(&conditions, None, refuse(400)));
    world.sandbox.fault(fault(&activities(case_id), None, garbage(WITHOUT_KEY)));
    change(&world, case_id, Facet::Activity);
    assert_incomplete(&world.run(&["sync"]), "activities");
    world.sandbox.act(&Act::DeleteCase { case_id }).unwrap();
    assert_mended(&world);
    let store = world.store();
    assert_eq!(one::<i64>(&store, OPEN_REJECTS), 0);
    assert_eq!(one::<i64>(&store, "SELECT count(*) FROM sync.failures"), 0);
}

#[test]
fn the_same_few_cases_without_an_answer_do_not_make_a_table_absent() {
    let world = World::unthrottled(8);
    world.sandbox.fault(fault(CONDITIONS, None, refuse(404)));
    for _ in 0..4 {
        assert_status(&world.run(&["sync", "--full"]), 0);
    }
    assert_eq!(status_of(&world, "common_conditions"), "ok");
}

#[test]
fn twenty_cases_without_an_answer_make_a_table_absent_until_the_permissions_are_read() {
    let world = World::unthrottled(40);
    world.sandbox.fault(fault(CONDITIONS, None, refuse(404)));
    world.sync();
    assert_eq!(status_of(&world, "common_conditions"), "absent");
    let asked = |world: &World| {
        calls(world).keys().filter(|call| call.ends_with("/CommonConditions")).count()
    };
    let first = asked(&world);
    assert!((20..40).contains(&first), "{first} cases were asked");

    world.sandbox.clear_faults();
    world.configure(&format!("{UNTHROTTLED}[schedule]\nreference = \"* * * * * *\"\n"));
    world.sync();
    assert_eq!(status_of(&world, "common_conditions"), "ok");
    world.assert_equal();
}

#[test]
fn one_answer_405_is_enough_for_a_table_to_be_absent() {
    let world = World::unthrottled(40);
    world.sandbox.fault(fault(CONDITIONS, Some(1), refuse(405)));
    world.sync();
    assert_eq!(status_of(&world, "common_conditions"), "absent");
}

#[test]
fn what_is_read_in_part_says_so_whatever_happened_to_its_table_meanwhile() {
    let world = World::unthrottled(6);
    let permission = "SettlementView - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission });
    let told = |world: &World| -> String {
        let sql = "SELECT status || ': ' || coalesce(reason, '') FROM sync.resources \
                   WHERE table_name = 'notes'";
        let store: String = one(&world.store(), sql);
        assert_eq!(one::<String>(&world.published(), sql), store);
        store
    };
    world.sync();
    let in_part = told(&world);
    assert!(in_part.starts_with("ok: without SettlementView - Read"), "{in_part}");

    world.sandbox.fault(fault("/api/Notes/Case/*", None, refuse(400)));
    assert_incomplete(&world.run(&["sync", "--full"]), "notes");
    assert!(told(&world).starts_with("failing"));
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(told(&world), in_part, "after it failed");

    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = [\"notes\"]\n"));
    world.sync();
    assert!(told(&world).starts_with("disabled"));
    world.configure(UNTHROTTLED);
    world.sync();
    assert_eq!(told(&world), in_part, "after it was disabled");
}

const NEWEST: &str = "/api/ProcessingBases/Newest";

/// The list that names the bases, as it is now.
fn newest_bases(world: &World) -> Vec<Value> {
    let answer = Integrator::log_in(world).call("GET", NEWEST, &Value::Null);
    answer.as_array().unwrap().clone()
}

/// The open rejects of the bases: scope, record and column.
fn open_rejects_of_bases(world: &World) -> String {
    one(
        &world.store(),
        "SELECT coalesce(string_agg(concat_ws(' ', scope, record_key, \
           coalesce(column_name, '(record)')), ', ' ORDER BY scope, record_key), '') FROM sync.rejects \
         WHERE table_name = 'processing_bases' AND resolved_at IS NULL",
    )
}

#[test]
fn a_value_that_does_not_fit_in_a_list_of_many_is_noted_once_under_its_own_scope() {
    let world = World::unthrottled(4);
    let mut bases = newest_bases(&world);
    assert!(bases.len() > 2);
    bases[1]["IsActive"] = json!("perhaps");
    let id = &bases[1]["Id"];
    let noted = format!("{id} {id}/{} is_active", bases[1]["Version"]);
    let history = format!("/api/ProcessingBases/{id}/VersionHistory");
    world.sandbox.fault(fault(NEWEST, Some(1), garbage(&json!(bases).to_string())));
    let rule = world.sandbox.fault(fault(&history, None, refuse(400)));
    assert_incomplete(&world.run(&["sync"]), "processing_bases");
    assert_eq!(open_rejects_of_bases(&world), noted);

    // The answer of its own scope mends it.
    world.sandbox.remove_fault(rule);
    assert_mended(&world);
    assert_eq!(open_rejects_of_bases(&world), "");
}

#[test]
fn a_record_without_key_does_not_hold_back_a_list_that_names_scopes() {
    let world = mirrored(4);
    let added = Act::ProcessingBasis { edit: ListEdit::Added };
    world.sandbox.act(&added).unwrap();
    let mut bases = newest_bases(&world);
    bases[0].as_object_mut().unwrap().remove("Id");
    world.sandbox.fault(fault(NEWEST, None, garbage(&json!(bases).to_string())));
    let count = "SELECT count(DISTINCT id) FROM main.processing_bases";
    let before: i64 = one(&world.store(), count);
    assert_incomplete(&world.run(&["sync", "--full"]), "processing_bases");
    assert_eq!(one::<i64>(&world.store(), count), before + 1, "the new one is mirrored");
    let noted = format!("0 {}/#1 (record)", bases[0]["Version"]);
    assert_eq!(open_rejects_of_bases(&world), noted);
    assert_eq!(status_of(&world, "processing_bases"), "ok");
    assert_mended(&world);
    assert_eq!(open_rejects_of_bases(&world), "");
}

#[test]
fn the_list_that_names_scopes_mends_nothing_within_them() {
    let world = mirrored(4);
    let id = newest_bases(&world)[0]["Id"].clone();
    let history = format!("/api/ProcessingBases/{id}/VersionHistory");
    world.sandbox.fault(fault(&history, None, garbage("[{\"Description\": \"no version\"}]")));
    for _ in 0..2 {
        assert_incomplete(&world.run(&["sync", "--full"]), "processing_bases");
        assert_eq!(open_rejects_of_bases(&world), format!("{id} #1 (record)"));
    }
    let noted = "SELECT count(*) FROM sync.rejects WHERE table_name = 'processing_bases'";
    assert_eq!(one::<i64>(&world.store(), noted), 1, "it was open all the time");
    assert_mended(&world);
    assert_eq!(open_rejects_of_bases(&world), "");
}
