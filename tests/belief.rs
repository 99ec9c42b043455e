//! What a second look at dishonest answers has to bring: only an equal answer confirms, small losses
//! count together, and what is not believed is told until it is over.

use casemirror::sandbox::{Act, Control, Facet, Rule};
use serde_json::Value;

use crate::evidence::{age_failures, alter, always, many_files, mirrored, rows, status_of};
use crate::support::follow::{UNTHROTTLED, assert_status, brisk, change, shown_cases, unthrottled};
use crate::support::scripted::{
    fault, garbage, page, property_rows, refuse, script_search, search_path,
};
use crate::support::{World, one, shown};

fn count(world: &World, table: &str) -> i64 {
    one(&world.store(), &format!("SELECT count(*) FROM main.{table}"))
}

#[test]
fn one_404_does_not_take_away_a_search_or_a_list_that_has_answered() {
    let world = mirrored(8);
    let case = shown_cases(&world)[0];
    always(&world, "/api/Search/AdvancedPropertySearch", refuse(404));
    always(&world, "/api/Employees", refuse(404));
    change(&world, case, Facet::Activity);
    alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reference'");
    assert_status(&world.run(&["sync"]), 3);
    for table in ["cases", "employees"] {
        assert_ne!(status_of(&world, table), "absent", "{table}");
    }
    assert_status(&world.run(&["status"]), 3);
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    world.sync();
    world.assert_equal();
}

#[test]
fn a_case_that_a_listing_lacks_is_asked_again_where_the_question_fails() {
    for deleted in [false, true] {
        let world = mirrored(8);
        let case_id = shown_cases(&world)[0];
        let act = match deleted {
            true => Act::DeleteCase { case_id },
            false => Act::HideCase { case_id, silent: true },
        };
        world.sandbox.act(&act).unwrap();
        always(&world, &format!("/api/Cases/{case_id}/Roles"), refuse(500));
        alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'");
        assert_status(&world.run(&["sync"]), 3);
        let output = world.run(&["status"]);
        assert!(shown(&output).contains("whether it exists is not known"), "{}", shown(&output));
        world.sandbox.clear_faults();
        age_failures(&world, 1);
        // The next listing would find it, too.
        world.sandbox.reset_stats();
        world.sync();
        let listings = world.sandbox.stats().log.into_iter().filter(|call| {
            call.path.contains("/Search/AdvancedProperty") && !call.query.contains("eq")
        });
        assert_eq!(listings.count(), 0);
        world.assert_equal();
        assert_status(&world.run(&["status"]), 0);
    }
}

#[test]
fn what_only_a_listing_shows_of_a_case_decides_what_is_read_of_it() {
    let world = mirrored(8);
    world.configure(&format!("{UNTHROTTLED}[reconcile]\nreread = \"off\"\n"));
    let assignment = Some("ResaleOfContractPositionConsumer".to_owned());
    let case = world.sandbox.act(&Act::NewCase { project: false, assignment }).unwrap();
    let case_id = case.case_ids[0];
    change(&world, case_id, Facet::Showing);
    let mut row = property_rows(&world, Some(case_id)).remove(0);
    row["AssignmentType"] = "Sale".into();
    row["Guid"] = Value::Null;
    script_search(&world, "Property", case_id, &[row]);
    assert_status(&world.run(&["sync"]), 0);
    let read = || ["resale_information", "public_showings"].map(|of| rows(&world, of, case_id));
    assert_eq!(read(), [0, 0]);
    world.sandbox.clear_faults();
    alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'");
    world.sync();
    assert_eq!(read(), [1, 1]);
    world.assert_equal();
}

#[test]
fn a_501_of_one_case_is_its_own_failure() {
    let world = mirrored(8);
    let case = shown_cases(&world)[0];
    always(&world, &format!("/api/Notes/Case/{case}"), refuse(501));
    change(&world, case, Facet::Activity);
    assert_status(&world.run(&["sync"]), 3);
    assert_ne!(status_of(&world, "notes"), "absent");
}

#[test]
fn cases_that_are_hidden_batch_by_batch_count_together() {
    let world = mirrored(30);
    let cases = shown_cases(&world);
    let all = count(&world, "cases") + count(&world, "projects");
    world.sandbox.control(Control::SearchListsNothing { on: true });
    for batch in cases.chunks(8) {
        for case in batch {
            change(&world, *case, Facet::Activity);
        }
        // `sync` waits for source.search_delay, after which what is not found is hidden.
        world.run(&["sync"]);
    }
    let left = count(&world, "cases") + count(&world, "projects");
    assert!(left > 0 && left < all, "{left} of {all} are left");
    let output = world.run(&["status"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("reconcile.max_removed"), "{}", shown(&output));
}

fn says_that_no_case_has_texts(world: &World) {
    let path = "/api/DynamicSaleText/Cases/*/UseDynamicSaleText";
    always(world, path, garbage(r#"{"Value": false}"#));
}

#[test]
fn a_condition_that_turns_false_everywhere_at_once_empties_no_table() {
    let world = mirrored(30);
    let texts = count(&world, "dynamic_sale_texts");
    assert!(texts >= 10, "{texts}");
    says_that_no_case_has_texts(&world);
    for case in shown_cases(&world) {
        change(&world, case, Facet::Description);
    }
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(count(&world, "dynamic_sale_texts") > 0, "{}", shown(&output));
    world.sandbox.clear_faults();
    age_failures(&world, 1);
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

/// No date of the cases moves, so nothing else says that the table is to be read.
#[test]
fn what_a_condition_held_is_read_once_more_when_it_holds_again() {
    let world = mirrored(30);
    says_that_no_case_has_texts(&world);
    let read_again = "INSERT INTO sync.fetched_marks (table_name, status, mark, forgotten) \
        VALUES ('dynamic_sale_text_use', 'full', 1, 0); UPDATE sync.seen SET dirty = true";
    alter(&world, read_again);
    assert_status(&world.run(&["sync"]), 3);
    let held = "SELECT count(*) FROM sync.failures WHERE table_name = 'dynamic_sale_texts'";
    assert!(one::<i64>(&world.store(), held) > 0);
    world.sandbox.clear_faults();
    for _ in 0..3 {
        age_failures(&world, 1);
        world.run(&["sync"]);
    }
    assert_eq!(one::<i64>(&world.store(), held), 0);
    assert_status(&world.run(&["sync"]), 0);
    world.assert_equal();
}

#[test]
fn a_condition_that_stays_false_is_believed_when_it_is_said_again() {
    let world = mirrored(30);
    says_that_no_case_has_texts(&world);
    for case in shown_cases(&world) {
        change(&world, case, Facet::Description);
    }
    assert_status(&world.run(&["sync"]), 3);
    age_failures(&world, 6 * 60 + 1);
    world.run(&["sync"]);
    assert_eq!(count(&world, "dynamic_sale_texts"), 0);
    assert_status(&world.run(&["sync"]), 0);
}

#[test]
fn a_doubted_answer_is_confirmed_by_an_equal_one_alone() {
    let world = mirrored(8);
    let (case, had) = many_files(&world);
    let path = format!("/api/Cases/{case}/Directory/Search");
    always(&world, &path, garbage("[]"));
    change(&world, case, Facet::Attachment);
    assert_status(&world.run(&["sync"]), 3);
    age_failures(&world, 11);
    world.sandbox.clear_faults();
    let other = r#"[{"Id": "0f0f0f0f-0000-4000-8000-000000000001", "Name": "other.pdf"}]"#;
    always(&world, &path, garbage(other));
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(rows(&world, "case_files", case), had + 1, "another answer confirms nothing");
    age_failures(&world, 11);
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(rows(&world, "case_files", case), 1);
}

/// What hangs on a case leaves with it, and not before: totals would count what is missing as nothing.
#[test]
fn nothing_leaves_of_a_case_that_the_guard_may_hold_and_is_not_there() {
    let world = mirrored(80);
    let shown_ids = shown_cases(&world);
    let (gone, stay) = shown_ids.split_at(56);
    let with_notes = |ids: &[i64]| {
        let mut ids = ids.iter().filter(|id| rows(&world, "notes", **id) > 0);
        (*ids.next().unwrap(), *ids.next().unwrap())
    };
    let ((held, empty), (other, _)) = (with_notes(gone), with_notes(stay));
    let notes = || [held, empty, other].map(|case| rows(&world, "notes", case));
    let had = notes();
    let path = |case| format!("/api/Notes/Case/{case}");
    for case in [held, empty] {
        always(&world, &path(case), refuse(500));
        change(&world, case, Facet::Activity);
    }
    assert_status(&world.run(&["sync"]), 3);
    // As if they had been searched once more for their changes already, and had still been there.
    alter(&world, "UPDATE sync.fetched_scopes SET again_at = NULL");
    gone.iter().for_each(|id| drop(world.sandbox.act(&Act::DeleteCase { case_id: *id }).unwrap()));
    alter(
        &world,
        "DELETE FROM sync.meta WHERE key = 'listing_due'; \
         INSERT INTO sync.meta VALUES ('listing_due', 'verify')",
    );
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("reconcile.max_removed"), "{}", shown(&output));

    world.sandbox.clear_faults();
    always(&world, &path(other), refuse(404));
    always(&world, &path(empty), garbage("[]"));
    change(&world, other, Facet::Activity);
    for (minutes, status) in [(0, 403), (11, 500)] {
        assert_eq!(notes(), had);
        age_failures(&world, minutes);
        // That the cases cannot be listed meanwhile lifts nothing.
        let rule = fault(&search_path("Property"), None, refuse(status));
        let rule =
            world.sandbox.fault(Rule { query: Some("$inlinecount=allpages".to_owned()), ..rule });
        assert_status(&world.run(&["sync"]), 3);
        world.sandbox.remove_fault(rule);
    }
    assert_eq!(notes(), [had[0], had[1], 0], "the other one is there: its 404 is believed");

    world.sandbox.clear_faults();
    change(&world, other, Facet::Activity);
    assert_status(&world.run(&["sync", "--allow-removals"]), 0);
    world.assert_equal();
}

#[test]
fn who_allows_removals_does_not_wait_for_what_is_doubted() {
    let world = mirrored(8);
    let (case, had) = many_files(&world);
    always(&world, &format!("/api/Cases/{case}/Directory/Search"), garbage("[]"));
    change(&world, case, Facet::Attachment);
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(rows(&world, "case_files", case), had);
    assert_status(&world.run(&["sync", "--allow-removals"]), 0);
    assert_eq!(rows(&world, "case_files", case), 0);
}

#[test]
fn status_tells_of_a_feed_that_cannot_be_read_until_it_can() {
    let world = mirrored(8);
    always(&world, "/api/Integrations/RecentlyModified/Cases", refuse(500));
    assert_status(&world.run(&["sync"]), 3);
    let output = world.run(&["status"]);
    assert_status(&output, 3);
    assert!(
        shown(&output).contains("the change feed (cases) cannot be read"),
        "{}",
        shown(&output)
    );
    world.sandbox.clear_faults();
    world.sync();
    assert_status(&world.run(&["status"]), 0);
}

#[test]
fn status_tells_of_a_listing_that_is_held() {
    let world = mirrored(30);
    world.sandbox.control(Control::SearchListsNothing { on: true });
    alter(&world, "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'");
    assert_status(&world.run(&["sync"]), 3);
    let output = world.run(&["status"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("the listing lacks"), "{}", shown(&output));
    world.sandbox.control(Control::SearchListsNothing { on: false });
    age_failures(&world, 1);
    world.sync();
    assert_status(&world.run(&["status"]), 0);
    world.assert_equal();
}

#[test]
fn one_contact_s_address_says_nothing_about_the_contacts() {
    let world = mirrored(8);
    let contact: i64 = one(&world.store(), "SELECT min(id) FROM main.contacts");
    always(&world, &format!("/api/Contacts/{contact}"), refuse(405));
    let nothing = r#"{"Count":0,"Results":[]}"#;
    always(&world, "/api/Search/AdvancedContactSearch", garbage(nothing));
    world.sandbox.act(&Act::EditContact { contact_id: Some(contact), at: None }).unwrap();
    world.run(&["sync"]);
    assert_eq!(status_of(&world, "contacts"), "ok");
}

/// One record of the listing that is none keeps nothing else from being read and published.
#[test]
fn a_record_of_the_listing_that_is_none_is_told_and_the_others_are_taken() {
    let world = brisk(unthrottled(12));
    let rows = property_rows(&world, None);
    let bad = rows[0]["Id"].as_i64().unwrap();
    // Of two values of one field nobody can tell which is meant.
    let twice = "{\"CaseId\":null,\"";
    let listed = page(&rows).replacen("{\"", twice, 2).replacen(twice, "{\"", 1);
    let listing = Rule {
        query: Some("allpages".to_owned()),
        ..fault(&search_path("Property"), None, garbage(&listed))
    };
    world.sandbox.fault(listing);
    let first = world.run(&["sync"]);
    assert_status(&first, 3);
    assert!(shown(&first).contains("published snapshot"), "{}", shown(&first));
    let there = format!("SELECT count(*) FROM cases WHERE id <> {bad}");
    assert_eq!(one::<i64>(&world.published(), &there), rows.len() as i64 - 1);
    let told = "SELECT count(*) FROM sync.rejects WHERE table_name = 'cases' AND column_name IS NULL \
                AND error LIKE '%null%' AND resolved_at IS NULL";
    assert_eq!(one::<i64>(&world.published(), told), 1);
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}
