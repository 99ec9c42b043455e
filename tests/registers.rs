//! Lists of the source whose records are not what their address suggests: versions with ids of their
//! own, definitions that are deleted, journals that need no documented permission.

use casemirror::catalog::Catalog;
use casemirror::sandbox::{Fault, Rule};
use duckdb::Connection;
use serde_json::{Value, json};

use crate::support::follow::{Integrator, assert_status, brisk, unthrottled};
use crate::support::one;
use crate::support::scripted::{fault, garbage, refuse};

const VERSIONS: &str = "SELECT string_agg(concat_ws('/', id, version), ' ' ORDER BY id, version) \
                        FROM main.processing_bases";

fn history(id: &str) -> String {
    format!("/api/ProcessingBases/{id}/VersionHistory")
}

/// Reference 2.11 does not say that a basis keeps its id over its versions.
#[test]
fn versions_of_a_basis_are_kept_under_the_ids_that_they_have() {
    let world = brisk(unthrottled(4));
    let newest = "/api/ProcessingBases/Newest";
    let named = Integrator::log_in(&world).call("GET", newest, &Value::Null)[0].clone();
    let id = named["Id"].to_string();
    let mut first = named.clone();
    (first["Id"], first["Version"]) = (json!(9001), json!(1));
    first["IsNewestVersion"] = json!(false);
    let mut second = first.clone();
    (second["Id"], second["Version"]) = (json!(9002), json!(2));
    let mut last = named;
    last["Version"] = json!(3);
    let answer = json!([first, second, last]).to_string();
    world.sandbox.fault(fault(&history(&id), None, garbage(&answer)));
    world.sync();
    let versions: String = one(&world.store(), VERSIONS);
    for version in [format!("{id}/3"), "9001/1".to_owned(), "9002/2".to_owned()] {
        assert!(versions.split(' ').any(|own| own == version), "{version} is not in {versions}");
    }
    assert!(!versions.split(' ').any(|own| own == format!("{id}/1")), "{versions}");

    // An equal answer writes nothing, and only what the list named is asked for.
    let synced = "SELECT string_agg(_synced_at::VARCHAR, ' ' ORDER BY id, version) \
                  FROM main.processing_bases";
    let before: String = one(&world.store(), synced);
    world.sandbox.reset_stats();
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(one::<String>(&world.store(), synced), before);
    assert_eq!(one::<String>(&world.store(), VERSIONS), versions);
    let paths: Vec<String> = world.sandbox.stats().log.iter().map(|c| c.path.clone()).collect();
    assert!(paths.contains(&history(&id)));
    assert!(!paths.iter().any(|path| path.contains("/900")), "{paths:?}");
}

/// Both ids are asked from then on, and both answers have all versions.
#[test]
fn versions_that_several_answers_have_are_there_once() {
    let world = brisk(unthrottled(4));
    let newest = "/api/ProcessingBases/Newest";
    let listed = Integrator::log_in(&world).call("GET", newest, &Value::Null);
    let mut first = listed[0].clone();
    (first["Version"], first["IsNewestVersion"]) = (json!(1), json!(false));
    let id = first["Id"].to_string();
    let mut second = first.clone();
    (second["Id"], second["Version"]) = (json!(9002), json!(2));

    let once = |description: &str, asked: &[&str], expected: &str, earlier: i64| {
        let versions: Vec<Value> = [&first, &second][..asked.len()]
            .iter()
            .map(|version| {
                let mut version = (*version).clone();
                version["Description"] = json!(description);
                version
            })
            .collect();
        let mut list = listed.clone();
        list[0] = versions.last().unwrap().clone();
        let answer = json!(versions).to_string();
        let rules: Vec<u64> = asked
            .iter()
            .map(|id| (history(id), &answer))
            .chain([(newest.to_owned(), &list.to_string())])
            .map(|(path, body)| world.sandbox.fault(fault(&path, None, garbage(body))))
            .collect();
        assert_status(&world.run(&["sync", "--full"]), 0);
        rules.into_iter().for_each(|rule| world.sandbox.remove_fault(rule));
        let of_basis = format!("WHERE id IN ({id}, 9002)");
        let rows = format!(
            "SELECT string_agg(concat_ws('/', version, description), ' ' ORDER BY version) \
             FROM main.processing_bases {of_basis}"
        );
        assert_eq!(one::<String>(&world.store(), &rows), expected);
        let versions = format!("SELECT count(*) FROM history.processing_bases {of_basis}");
        assert_eq!(one::<i64>(&world.store(), &versions), earlier);
    };
    once("a", &[&id], "1/a", 0);
    once("b", &[&id, "9002"], "1/b 2/b", 1);
    once("c", &[&id, "9002"], "1/c 2/c", 3);

    // As an earlier version left it.
    let doubled = "INSERT INTO main.processing_bases FROM main.processing_bases; \
                   INSERT INTO history.processing_bases FROM history.processing_bases; \
                   UPDATE sync.meta SET value = '8' WHERE key = 'format'; DROP TABLE sync.left_scopes; \
                   DROP TABLE sync.changed_scopes; DROP VIEW sync.read_scopes; DROP VIEW sync.known_months; DROP TABLE sync.first_reads; DROP TABLE sync.earlier_statuses";
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(doubled).unwrap();
    once("c", &[&id, "9002"], "1/c 2/c", 3);
}

/// A value that does not fit is noted under what was asked for, whose next answer mends it.
#[test]
fn a_version_with_an_id_of_its_own_is_mended_by_the_answer_that_it_came_in() {
    let world = brisk(unthrottled(4));
    let newest = "/api/ProcessingBases/Newest";
    let named = Integrator::log_in(&world).call("GET", newest, &Value::Null)[0].clone();
    let id = named["Id"].to_string();
    let answer = |is_active: Value| {
        let mut version = named.clone();
        (version["Id"], version["Version"]) = (json!(9001), json!(1));
        version["IsActive"] = is_active;
        garbage(&json!([version, named]).to_string())
    };
    let wrong = world.sandbox.fault(fault(&history(&id), None, answer(json!("perhaps"))));
    assert_status(&world.run(&["sync"]), 3);
    let open = "SELECT coalesce(string_agg(concat_ws(' ', scope, record_key, column_name), ', '), '') \
                FROM sync.rejects WHERE resolved_at IS NULL";
    assert_eq!(one::<String>(&world.store(), open), format!("{id} 9001/1 is_active"));
    world.sandbox.remove_fault(wrong);
    world.sandbox.fault(fault(&history(&id), None, answer(json!(true))));
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(one::<String>(&world.store(), open), "");
}

/// Old references must resolve. The documented address takes no such question (reference 4.8), and shows them all the
/// same; a service may need it there too.
#[test]
fn deleted_definitions_are_asked_for_where_the_service_knows_the_question() {
    let world = brisk(unthrottled(4));
    world.sync();
    let deleted = "SELECT count(*) FROM main.extended_entry_definitions WHERE is_deleted";
    assert!(one::<i64>(&world.store(), deleted) > 0);
    world.assert_equal();
    let path = "/api/Integrations/Bookkeeping/ExtendedEntryDefinitions";
    let all = Integrator::log_in(&world).call("GET", &format!("{path}?$top=500"), &Value::Null);
    let mut all = all.as_array().unwrap().clone();
    all[0]["Name"] = json!("Asked for with the deleted ones");
    let body = Value::Array(all).to_string();
    let answer = Fault::Garbage { body, status: Some(200), content_type: None };
    let asked = Some("includeDeleted=true".to_owned());
    world.sandbox.fault(Rule { query: asked.clone(), ..fault(path, None, answer) });
    assert_status(&world.run(&["sync", "--full"]), 0);
    let name = "SELECT count(*) FROM main.extended_entry_definitions WHERE name LIKE 'Asked for%'";
    assert_eq!(one::<i64>(&world.store(), name), 1);
    // Anything but "I do not know that" leaves open what the answer would be.
    world.sandbox.clear_faults();
    world.sandbox.fault(Rule { query: asked, ..fault(path, None, refuse(500)) });
    assert_status(&world.run(&["sync", "--full"]), 3);
    assert_eq!(one::<i64>(&world.store(), name), 1);
}

/// They are read by a call per category: what one of them answers is not said of the others.
#[test]
fn definitions_of_one_category_that_are_refused_make_no_table_forbidden() {
    let world = brisk(unthrottled(4));
    let one_of_them = fault("/api/Economics/Industry/EntryDefinitions", None, refuse(403));
    world.sandbox.fault(one_of_them);
    assert_status(&world.run(&["sync"]), 3);
    let status = "SELECT status FROM sync.resources WHERE table_name = 'entry_definitions'";
    assert_eq!(one::<String>(&world.store(), status), "failing");
    world.sandbox.clear_faults();
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
    world.sandbox.fault(fault("/api/Economics/*/EntryDefinitions", None, refuse(403)));
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(one::<String>(&world.store(), status), "forbidden", "all of them");
}

/// Reference 4.7 documents a permission for the journals of cases and of the depot alone.
#[test]
fn only_journals_of_cases_and_depot_need_a_documented_permission() {
    let catalog = Catalog::load(None).unwrap();
    let needs = |table: &str| catalog.get(table).unwrap().permissions.clone();
    for table in ["case_journals", "case_journal_annotations", "depot_journals"] {
        assert_eq!(needs(table), ["OfficeAdministration - Read"], "{table}");
    }
    for table in [
        "revenue_journals",
        "revenue_journal_annotations",
        "revenue_journal_sums",
        "settlement_journals",
    ] {
        assert_eq!(needs(table), [""; 0], "{table}");
    }
}

/// The list that names the bases has one row of each: the others are still as they were read before it.
#[test]
fn another_zone_makes_no_version_of_what_the_naming_list_lacks() {
    let world = brisk(unthrottled(4));
    let newest = "/api/ProcessingBases/Newest";
    let named = Integrator::log_in(&world).call("GET", newest, &Value::Null)[0].clone();
    let id = named["Id"].to_string();
    let mut first = named.clone();
    (first["Version"], first["IsNewestVersion"]) = (json!(1), json!(false));
    first["LastModified"] = json!("2025-11-02T05:36:10");
    let mut last = named;
    last["Version"] = json!(2);
    let answer = json!([first, last]).to_string();
    world.sandbox.fault(fault(&history(&id), None, garbage(&answer)));
    world.sync();
    let modified = || -> String {
        let sql = format!(
            "SELECT last_modified::VARCHAR FROM main.processing_bases WHERE id = {id} AND version = 1"
        );
        one(&world.store(), &sql)
    };
    let before = modified();
    assert_status(&world.run(&["sync", "--set", "source.time_zone=Atlantic/Azores"]), 0);
    assert_ne!(modified(), before, "it was read again");
    let versions =
        format!("SELECT count(*) FROM history.processing_bases WHERE id = {id} AND version = 1");
    assert_eq!(one::<i64>(&world.store(), &versions), 0);
}
