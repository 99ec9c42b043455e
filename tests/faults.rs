//! Bad input from outside: what is said, what is kept, and that a later run makes it good.

use std::process::{Output, Stdio};

use casemirror::sandbox::{Act, Control, Facet, Fault, Options, Rule, When};
use rstest::rstest;

use crate::support::follow::{UNTHROTTLED, calls, change, lines, shown_cases};
use crate::support::scripted::{assert_incomplete, assert_mended, fault, garbage, refuse};
use crate::support::{World, one, shown};

const ACTIVITIES: &str = "/api/Cases/*/Activities";

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the exit status and that stderr says all of it.
#[track_caller]
fn assert_says(output: &Output, status: i32, texts: &[&str]) {
    assert_eq!(output.status.code(), Some(status), "{}", shown(output));
    let said = stderr(output);
    for text in texts {
        assert!(said.contains(text), "{text:?} is not in:\n{said}");
    }
}

fn touch_activity(world: &World, n: usize) -> i64 {
    let id = world.sandbox.case_ids()[n];
    let change = Act::Change { case_id: Some(id), facet: Facet::Activity, at: None };
    world.sandbox.act(&change).unwrap();
    id
}

#[test]
fn wrong_credentials_end_the_run_and_name_the_keys() {
    let world = World::unthrottled(5);
    world.sandbox.control(Control::RefuseCredentials { on: true });
    let output = world.run(&["sync"]);
    assert_says(&output, 1, &["/authtoken", "source.client_id", "source.client_secret"]);
    world.sandbox.control(Control::RefuseCredentials { on: false });
    world.sync();
    world.assert_equal();
}

/// What was not asked has not failed, and what is mirrored of it is as known as before.
#[test]
fn a_token_that_cannot_be_had_ends_the_run_and_is_no_failure_of_what_was_not_asked() {
    let world = World::unthrottled(8);
    world.retry_at_once();
    world.sync();
    for n in 0..8 {
        touch_activity(&world, n);
    }
    // In the midst of the cases a token is refused, and no other is issued.
    world.sandbox.fault(fault(ACTIVITIES, Some(1), refuse(401)));
    world.sandbox.fault(Rule { nth: 2, ..fault("/authtoken", None, refuse(503)) });
    let output = world.run(&["sync"]);
    assert_says(&output, 1, &["no token from", "/authtoken", "503", "what was not asked"]);
    let store = world.store();
    assert_eq!(lines(&store, "SELECT table_name, kind, error FROM sync.failures"), [""; 0]);
    let published = world.published();
    let unknown = "SELECT count(*) FROM report.total_cost WHERE len(unknown) > 0";
    assert_eq!(one::<i64>(&published, unknown), 0);
    drop((store, published));
    let status = world.run(&["status"]);
    assert_eq!(status.status.code(), Some(3), "{}", shown(&status));
    assert!(shown(&status).contains("no token from"), "{}", shown(&status));
    world.sandbox.clear_faults();
    world.sync();
    world.assert_equal();
}

#[test]
fn an_unreachable_host_is_named() {
    let world = World::unthrottled(5);
    // Reserved, so that nothing listens there.
    let set = "source.base_url=http://127.0.0.1:1";
    let output = world.run(&["sync", "--set", set]);
    assert_says(&output, 1, &["127.0.0.1:1", "source.base_url"]);
    world.sync();
    world.assert_equal();
}

#[test]
fn tls_that_fails_is_told_from_a_host_that_does_not_answer() {
    let world = World::unthrottled(5);
    let set = format!("source.base_url=https://{}", world.sandbox.address());
    let output = world.run(&["sync", "--set", &set]);
    assert_says(&output, 1, &["no secure connection", "source.ca_file"]);
    world.sync();
    world.assert_equal();
}

#[test]
fn html_instead_of_json_is_shown_with_a_hint_to_the_base_url() {
    let world = World::unthrottled(5);
    let page = Fault::Garbage {
        body: "<html><title>Sign in</title></html>".to_owned(),
        status: None,
        content_type: Some("text/html".to_owned()),
    };
    world.sandbox.fault(fault("/api/User", None, page));
    let output = world.run(&["sync"]);
    assert_says(&output, 1, &["/api/User", "Sign in", "source.base_url"]);
    assert_mended(&world);
}

#[rstest]
#[case::cut_off(Fault::CutOff { bytes: None })]
#[case::closed(Fault::Drop)]
#[case::lost(Fault::LoseAnswer)]
#[case::unavailable(refuse(503))]
fn an_answer_that_fails_once_is_asked_for_again(#[case] kind: Fault) {
    let world = World::unthrottled(8);
    world.sandbox.fault(fault(ACTIVITIES, Some(1), kind.clone()));
    world.sandbox.fault(fault("/api/Search/AdvancedPropertySearch", Some(1), kind));
    world.sync();
    world.assert_equal();
}

/// Of one table nothing can be read; all others are mirrored, and it is when it can be.
#[rstest]
#[case::wrong_shape(garbage("[[1]]"), "failing")]
#[case::bad_request(refuse(400), "failing")]
#[case::forbidden(refuse(403), "forbidden")]
#[case::not_allowed(refuse(405), "absent")]
fn one_table_that_cannot_be_read_does_not_stop_the_rest(#[case] kind: Fault, #[case] status: &str) {
    let world = World::unthrottled(8);
    world.sandbox.fault(fault("/api/Properties/*/CommonConditions", None, kind));
    let output = world.run(&["sync"]);
    // What is forbidden or absent is no failure.
    if status == "failing" {
        assert_incomplete(&output, "common_conditions");
    } else {
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    }
    let store = world.store();
    let noted: String =
        one(&store, "SELECT status FROM sync.resources WHERE table_name = 'common_conditions'");
    assert_eq!(noted, status);
    let reason: String =
        one(&store, "SELECT reason FROM sync.resources WHERE table_name = 'common_conditions'");
    assert!(reason.contains("CommonConditions"), "{reason}");
    let state = world.sandbox.tables(&["costs"]);
    let costs = state["tables"]["costs"].as_array().unwrap().len() as i64;
    assert_eq!(one::<i64>(&store, "SELECT count(*) FROM costs"), costs);
    drop(store);
    if status == "failing" {
        assert_mended(&world);
    }
}

#[test]
fn a_value_of_the_wrong_type_is_noted_and_the_row_loaded_until_it_is_mended() {
    let world = World::unthrottled(8);
    world.bootstrap();
    let case_id = touch_activity(&world, 3);
    let body = "[{\"Id\": 1, \"Subject\": \"Viewing\", \"IsCompleted\": \"perhaps\"}]";
    let path = format!("/api/Cases/{case_id}/Activities");
    world.sandbox.fault(fault(&path, None, garbage(body)));
    assert_incomplete(&world.run(&["sync"]), "activities");

    let store = world.store();
    let reject = "SELECT table_name || ' ' || column_name || ' ' || value FROM sync.rejects \
                  WHERE resolved_at IS NULL";
    assert_eq!(one::<String>(&store, reject), "activities is_completed \"perhaps\"");
    let row = format!(
        "SELECT subject || ' ' || (is_completed IS NULL) || ' ' || _extra FROM activities \
         WHERE case_id = {case_id}"
    );
    assert_eq!(one::<String>(&store, &row), "Viewing true {\"IsCompleted\":\"perhaps\"}");
    drop(store);

    world.sandbox.clear_faults();
    touch_activity(&world, 3);
    world.sync();
    world.assert_equal();
    let resolved = "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NOT NULL";
    assert_eq!(one::<i64>(&world.store(), resolved), 1);
}

#[test]
fn an_amount_with_too_many_decimals_is_not_rounded_but_rejected() {
    let world = World::unthrottled(8);
    world.sandbox.fault(fault(
        "/api/Properties/*/PublicTaxes/DocumentCost",
        None,
        garbage("1234.567"),
    ));
    assert_incomplete(&world.run(&["sync"]), "document_costs");
    let store = world.store();
    let rejects = "SELECT count(*) FILTER (value = '1234.567' AND column_name = 'amount') \
                   FROM sync.rejects WHERE table_name = 'document_costs'";
    let cases = world.sandbox.case_ids().len() as i64;
    assert_eq!(one::<i64>(&store, rejects), cases);
    assert_eq!(one::<i64>(&store, "SELECT count(amount) FROM document_costs"), 0);
    let unknown = "SELECT count(*) FROM report.total_cost \
                   WHERE kind = 'regular' AND (total_cost IS NOT NULL \
                     OR NOT list_contains(unknown, 'document_cost'))";
    assert_eq!(one::<i64>(&store, unknown), 0, "a rejected value is unknown, not 0");
    drop(store);
    assert_mended(&world);
}

#[test]
fn what_a_value_did_not_fit_in_is_asked_for_again_at_night() {
    let world = World::unthrottled(8);
    let path = "/api/Properties/*/PublicTaxes/DocumentCost";
    world.sandbox.fault(fault(path, None, garbage("1234.567")));
    assert_incomplete(&world.run(&["sync"]), "document_costs");
    world.sandbox.clear_faults();
    assert_incomplete(&world.run(&["sync"]), "document_costs");
    let contact = "INSERT INTO sync.rejects SELECT 1, 'contacts', id::VARCHAR, id::VARCHAR, 'name', '5', \
                     'no text', now(), now(), NULL FROM main.contacts ORDER BY id LIMIT 1; \
                   UPDATE main.contacts SET name = NULL WHERE id = (SELECT min(id) FROM main.contacts)";
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(contact)
        .unwrap();
    world.configure(&format!("{UNTHROTTLED}[schedule]\nreconcile = \"* * * * * *\"\n"));
    let others = || {
        let asked =
            calls(&world).into_iter().filter(|(call, _)| call.ends_with("/CommonConditions"));
        asked.map(|(_, times)| times).sum::<u64>()
    };
    let before = others();
    assert!(before > 0);
    world.sync();
    world.assert_equal();
    assert_eq!(others(), before, "what fits is not asked for again");
    let open = "SELECT count(*) FROM sync.rejects WHERE resolved_at IS NULL";
    assert_eq!(one::<i64>(&world.store(), open), 0);
}

#[test]
fn a_record_without_key_deletes_nothing() {
    let world = World::unthrottled(8);
    world.bootstrap();
    let case_id = world.sandbox.case_ids()[4]; // has many activities
    let count = format!("SELECT count(*) FROM activities WHERE case_id = {case_id}");
    let before: i64 = one(&world.store(), &count);
    assert!(before > 10);
    touch_activity(&world, 4);
    let path = format!("/api/Cases/{case_id}/Activities");
    world.sandbox.fault(fault(&path, None, garbage("[{\"Subject\": \"Viewing\"}]")));
    assert_incomplete(&world.run(&["sync"]), "activities");
    let store = world.store();
    assert_eq!(one::<i64>(&store, &count), before);
    let rejected = "SELECT count(*) FROM sync.rejects \
                    WHERE table_name = 'activities' AND column_name IS NULL";
    assert_eq!(one::<i64>(&store, rejected), 1);
    drop(store);
    assert_mended(&world);
}

#[rstest]
#[case::ignores_everything(Fault::IgnorePaging)]
#[case::reads_only_skip(Fault::SkipOnly)]
fn lists_are_whole_however_a_service_pages(#[case] kind: Fault) {
    let world = World::unthrottled(8);
    world.sandbox.fault(fault("/api/Cases/*", None, kind.clone()));
    world.sandbox.fault(fault("/api/Integrations/Bookkeeping/*", None, kind));
    world.sync();
    world.assert_equal();
}

#[test]
fn only_a_second_404_removes_rows() {
    let world = World::unthrottled(8);
    world.doubt("0s");
    world.bootstrap();
    let case_id = touch_activity(&world, 4);
    let path = format!("/api/Cases/{case_id}/Activities");
    world.sandbox.fault(fault(&path, None, refuse(404)));
    let count = format!("SELECT count(*) FROM activities WHERE case_id = {case_id}");
    let before: i64 = one(&world.store(), &count);

    assert_incomplete(&world.run(&["sync"]), "activities");
    assert_eq!(one::<i64>(&world.store(), &count), before, "one 404 proves nothing");
    // So many rows of a small table would be held by the guard as well.
    let output = world.run(&["sync", "--full", "--allow-removals"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert_eq!(one::<i64>(&world.store(), &count), 0);
    assert_mended(&world);
}

/// Files may not grow beyond a size, as on a full disk; no root is needed for it.
#[test]
fn a_full_disk_ends_the_run_and_loses_nothing() {
    let world = World::unthrottled(30);
    world.publish_snapshots();
    world.bootstrap();
    let published: String = one(&world.published(), "SELECT snapshot_id FROM report.snapshot");
    for n in 0..8 {
        touch_activity(&world, n);
    }
    let size = std::fs::metadata(world.path("data/store.duckdb")).unwrap().len();
    let command = world.command(&["sync"]);
    // In blocks of 512 bytes (`ulimit` of the shell that POSIX describes). A signal would tell of
    // it otherwise; ignored, writing fails as it does where no space is left.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", size / 512 / 8);
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(world.folder.path())
        .output()
        .unwrap();
    assert_says(&output, 1, &["free some space"]);
    let now: String = one(&world.published(), "SELECT snapshot_id FROM report.snapshot");
    assert_eq!(now, published, "what was published before stays");
    world.sync();
    world.assert_equal();
    world.assert_published();
}

#[test]
fn a_store_that_another_process_holds_is_left_to_it() {
    let world = World::unthrottled(5);
    let hold = Fault::Hold { name: "held".to_owned(), when: When::Before };
    world.sandbox.fault(fault("/api/User", Some(1), hold));
    let mut holder =
        world.command(&["sync"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(world.wait(world.sandbox.wait_until_held("held")));
    let pid = holder.id().to_string();
    for command in ["sync", "status"] {
        let output = world.run(&[command]);
        assert_says(&output, 1, &["store.duckdb", "held", &pid, "wait until it has ended"]);
    }
    world.sandbox.release("held");
    assert!(holder.wait().unwrap().success());
    world.assert_equal();
}

#[test]
fn a_store_of_a_newer_version_is_not_touched() {
    let world = World::unthrottled(5);
    world.bootstrap();
    let set = |format: &str| {
        duckdb::Connection::open(world.path("data/store.duckdb"))
            .unwrap()
            .execute("UPDATE sync.meta SET value = ? WHERE key = 'format'", [format])
            .unwrap()
    };
    let format: String = one(&world.store(), "SELECT value FROM sync.meta WHERE key = 'format'");
    set("999");
    let before = std::fs::read(world.path("data/store.duckdb")).unwrap();
    assert_says(&world.run(&["sync"]), 1, &["store.duckdb", "999", "install the version"]);
    // As the later version has left it.
    let kept = format!("store.duckdb.before-format-{}", format.parse::<i64>().unwrap() + 1);
    std::fs::write(world.path("data").join(&kept), "").unwrap();
    assert_says(&world.run(&["sync"]), 1, &["it is kept as", &kept]);
    assert!(std::fs::read(world.path("data/store.duckdb")).unwrap() == before);
    set(&format);
    world.sync();
    world.assert_equal();
}

#[test]
fn a_database_of_somebody_else_is_no_store() {
    let world = World::unthrottled(5);
    std::fs::create_dir(world.path("data")).unwrap();
    let path = world.path("data/store.duckdb");
    duckdb::Connection::open(&path).unwrap().execute_batch("CREATE TABLE own (i BIGINT)").unwrap();
    let before = std::fs::read(&path).unwrap();
    for command in ["sync", "plan", "status", "backup"] {
        let args = [command, "x.tar"];
        let args = if command == "backup" { &args[..] } else { &args[..1] };
        assert_says(&world.run(args), 1, &["store.duckdb is no store of casemirror"]);
    }
    assert!(std::fs::read(&path).unwrap() == before);
    // An empty one becomes it.
    duckdb::Connection::open(&path).unwrap().execute_batch("DROP TABLE own").unwrap();
    world.sync();
    world.assert_equal();
}

#[test]
fn a_store_of_another_tenant_is_refused() {
    let world = World::unthrottled(5);
    world.bootstrap();
    let other = World::with(Options { cases: 5, gzip: false, seed: 2, ..Options::default() });
    let set = [
        format!("source.base_url={}", other.sandbox.base_url()),
        format!("source.client_id={}", other.sandbox.client_id()),
        format!("source.client_secret={}", other.sandbox.client_secret()),
    ];
    let output = world.run(&["sync", "--set", &set[0], "--set", &set[1], "--set", &set[2]]);
    assert_says(&output, 1, &["tenant", "store.duckdb", "store.path"]);
    world.assert_equal();
    world.sync();
}

#[test]
fn no_secret_is_in_any_output_or_file() {
    let world = World::unthrottled(8);
    // A service that repeats what it was sent when it refuses.
    let secret = world.sandbox.client_secret();
    let echo = Fault::Refuse {
        status: 400,
        headers: [].into(),
        body: format!("{{\"Message\": \"you sent {secret}\"}}"),
    };
    let echo_id = world.sandbox.fault(fault("/api/Properties/*/CommonConditions", None, echo));
    let first = world.run(&["sync", "-vv"]);
    world.sandbox.remove_fault(echo_id);
    world.sandbox.control(Control::RefuseCredentials { on: true });
    touch_activity(&world, 1);
    let second = world.run(&["sync", "-vv"]);
    assert_eq!(second.status.code(), Some(1));
    let status = world.run(&["status", "--json"]);

    let mut places = Vec::new();
    for (name, output) in [("first", &first), ("second", &second), ("status", &status)] {
        places.push((format!("{name} stdout"), output.stdout.clone()));
        places.push((format!("{name} stderr"), output.stderr.clone()));
    }
    collect_files(&world.path("data"), &mut places);
    assert!(places.iter().any(|(name, _)| name.ends_with("casemirror.duckdb")));
    for (name, bytes) in &places {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "the client secret is in {name}");
        for token in ["sandbox-access-", "sandbox-refresh-"] {
            let found = bytes.windows(token.len()).any(|window| window == token.as_bytes());
            assert!(!found, "a token is in {name}");
        }
    }
}

fn collect_files(folder: &std::path::Path, places: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, places);
        } else {
            places.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

/// One case spoils every answer of the search that holds it: the others of its calls are read, and it alone fails.
#[rstest]
#[case::server(refuse(500))]
#[case::no_answer_of_ours(garbage("[[1]]"))]
fn a_case_that_spoils_a_search_keeps_no_other_from_being_read(#[case] kind: Fault) {
    let world = World::unthrottled(40);
    world.retry_at_once();
    world.sync();
    let cases = shown_cases(&world);
    let bad = cases[17];
    for case in &cases {
        change(&world, *case, Facet::Description);
    }
    let rule = fault("/api/Search/AdvancedPropertySearch", None, kind);
    world.sandbox.fault(Rule { query: Some(format!("Id eq {bad}")), ..rule });
    assert_incomplete(&world.run(&["sync"]), "cases");
    let failing = lines(&world.store(), "SELECT id FROM sync.failures WHERE table_name = 'cases'");
    assert_eq!(failing, [format!("{{'id': {bad}}}")]);
    assert_mended(&world);
}

/// Nothing of a case is answered: what was begun is given up after a second try, and the rest of it waits.
#[test]
fn a_case_whose_calls_hang_does_not_take_the_places_of_others_for_long() {
    let world = World::unthrottled(8);
    world.sync();
    let (hanging, others) = (shown_cases(&world)[3], shown_cases(&world)[4]);
    for case in [hanging, others] {
        for facet in [Facet::Activity, Facet::Description, Facet::Cost] {
            change(&world, case, facet);
        }
    }
    let hold = Fault::Hold { name: "for ever".to_owned(), when: When::Before };
    for path in ["/api/Cases/{}/*", "/api/Properties/{}/*", "/api/{}/*"] {
        world.sandbox.fault(fault(&path.replace("{}", &hanging.to_string()), None, hold.clone()));
    }
    world.sandbox.reset_stats();
    let output = world.run(&["sync", "--set", "limits.timeout=1s"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let asked: u64 = calls(&world)
        .iter()
        .filter(|(path, _)| path.contains(&format!("/{hanging}/")))
        .map(|(_, calls)| calls)
        .sum();
    // Eight scopes are under way at a time, and no call is made a third time.
    assert!((2..=16).contains(&asked), "{asked}");
    let pending = "SELECT DISTINCT scope FROM sync.pending";
    assert_eq!(lines(&world.store(), pending), [format!("{{'scope': {hanging}}}")]);
    world.retry_at_once();
    assert_mended(&world);
}
