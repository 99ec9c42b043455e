//! Tables beside the case's core: what only a schedule or a reconciliation finds, permissions for a
//! part of the rows, what is never stored or called, and the tables and columns that users add.

use casemirror::sandbox::{Act, Control, Facet, Fault, ListEdit};
use rstest::rstest;

use crate::support::follow::{
    UNTHROTTLED, assert_status, brisk, calls, change, differences_beside, idle_calls, lines,
    shown_cases, unthrottled,
};
use crate::support::scripted::{fault, refuse, search_path};
use crate::support::{World, one, shown};

/// Settings with which every run is one of `schedule.reference`.
const REFERENCE: &str = "[schedule]\nreference = \"* * * * * *\"\n";
fn count(world: &World, what: &str) -> i64 {
    one(&world.store(), &format!("SELECT count(*) FROM {what}"))
}

#[test]
fn what_hangs_on_no_case_follows_by_schedule_edit_by_edit() {
    let world = brisk(unthrottled(20));
    world.configure(&format!("{UNTHROTTLED}{REFERENCE}"));
    world.bootstrap();
    world.assert_equal();
    let tables =
        ["processing_bases", "processing_basis_relations", "file_tags", "webhook_subscriptions"];
    for table in tables {
        assert!(count(&world, &format!("main.{table}")) > 0, "{table} is empty");
    }
    for edit in [ListEdit::Added, ListEdit::Changed, ListEdit::Removed] {
        for act in [
            Act::ProcessingBasis { edit },
            Act::Relation { edit },
            Act::FileTag { edit },
            Act::Subscription { edit },
        ] {
            world.sandbox.act(&act).unwrap();
        }
        world.sync();
        world.assert_equal();
    }
    // All versions are there, those out of use too.
    let versions = "main.processing_bases WHERE NOT is_newest_version";
    assert!(count(&world, versions) > 0);
    assert!(count(&world, "main.processing_bases WHERE NOT is_active") > 0);
}

#[test]
fn a_part_that_is_not_permitted_stays_and_is_read_again_when_it_is() {
    let world = brisk(unthrottled(30));
    world.configure(&format!("{UNTHROTTLED}{REFERENCE}"));
    world.bootstrap();
    let economics = "main.notes WHERE note_type = 'Economics'";
    let rows = count(&world, economics);
    assert!(rows > 0);
    let permission = || "SettlementView - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission: permission() });
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(count(&world, economics), rows, "what we may not see is not gone");
    assert_eq!(differences_beside(&world, "api_permissions"), [""; 0]);
    let reason = "SELECT reason FROM sync.resources WHERE table_name = 'notes' AND status = 'ok'";
    let text: String = one(&world.store(), reason);
    assert!(text.contains("SettlementView - Read"), "{text}");

    for case_id in &shown_cases(&world)[10..14] {
        change(&world, *case_id, Facet::NoteRemoved);
        change(&world, *case_id, Facet::NoteEdited);
    }
    world.sync();
    world.sandbox.control(Control::Grant { permission: permission() });
    world.sync();
    world.assert_equal();
    assert_eq!(
        one::<Option<String>>(&world.store(), &reason.replace(" AND status = 'ok'", "")),
        None
    );
}

#[test]
fn the_missing_permission_is_named_from_the_answer() {
    let world = brisk(unthrottled(20));
    for permission in ["ProcessingBasis - Read", "Notes - Read"] {
        world.sandbox.control(Control::Withdraw { permission: permission.to_owned() });
    }
    world.sync();
    for (table, permission) in [
        ("processing_bases", "ProcessingBasis - Read"),
        ("processing_basis_relations", "ProcessingBasis - Read"),
        ("notes", "Notes - Read"),
    ] {
        let sql = format!(
            "SELECT status || ': ' || reason FROM sync.resources WHERE table_name = '{table}'"
        );
        let text: String = one(&world.store(), &sql);
        assert!(text.starts_with("forbidden") && text.contains(permission), "{table}: {text}");
    }
    // Tried again in vain, they have been forbidden all the time.
    let since = "SELECT table_name, since::VARCHAR AS since FROM sync.resources \
                 WHERE status = 'forbidden' ORDER BY table_name";
    let before = lines(&world.store(), since);
    world.configure(&format!("{UNTHROTTLED}{REFERENCE}"));
    world.sync();
    assert_eq!(lines(&world.store(), since), before);
    for permission in ["ProcessingBasis - Read", "Notes - Read"] {
        world.sandbox.control(Control::Grant { permission: permission.to_owned() });
    }
    // Within the same second it would not be due again.
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch("UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reference'")
        .unwrap();
    world.sync();
    world.assert_equal();
}

#[test]
fn secrets_of_subscriptions_are_stored_nowhere_and_nothing_forbidden_is_called() {
    let world = brisk(unthrottled(30));
    world.sync();
    world.assert_equal();
    let subscriptions =
        lines(&world.store(), "SELECT url FROM main.webhook_subscriptions WHERE _extra IS NULL");
    assert!(!subscriptions.is_empty());
    for url in subscriptions {
        let host = url.split("://").nth(1).unwrap();
        assert!(!host.contains(['/', '?', '@', '#']), "{url}");
    }
    let report = world.sandbox.stats();
    assert_eq!(report.never_to_do, [""; 0]);
    assert_eq!(report.writes, 0);
    assert!(report.log.iter().all(|call| !call.path.contains("FullIdentityNumber")));
}

/// `examples/resources`, as docs/resources.md has it.
fn example() -> String {
    format!("{}/examples/resources", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_example_adds_a_column_and_a_table_without_a_version() {
    let built_in = include_str!("../schemas/publications.toml");
    let own = include_str!("../examples/resources/publications.toml");
    assert!(own.starts_with(built_in), "the example is the built-in file and a column");
    let world = brisk(unthrottled(20));
    world.bootstrap();
    let kept = "main.publications WHERE _extra LIKE '%\"ExternalId\"%'";
    assert!(count(&world, kept) > 0, "without a column the field is in _extra");

    world.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"{}\"\n", example()));
    world.sandbox.reset_stats();
    world.sync();
    let made = calls(&world);
    for case_id in world.sandbox.case_ids() {
        for part in ["Publications", "Activities"] {
            assert!(
                made.contains_key(&format!("GET /api/Cases/{case_id}/{part}")),
                "{part} of {case_id}"
            );
        }
        assert!(
            !made.contains_key(&format!("GET /api/Cases/{case_id}/Roles")),
            "roles are as they were"
        );
    }
    assert_eq!(count(&world, kept), 0);
    assert_eq!(count(&world, "main.publications WHERE external_id IS NULL"), 0);
    assert!(count(&world, "main.activity_participants WHERE contact_id IS NOT NULL") > 0);
    let versions = "(FROM history.publications UNION ALL BY NAME FROM history.activities)";
    assert_eq!(count(&world, versions), 0, "what changes on our side is no version");
    assert_eq!(count(&world, "sync.pending"), 0);

    // The published copy has them too, with their comments.
    let comment = "SELECT comment FROM duckdb_columns() WHERE table_name = 'publications' \
                   AND column_name = 'external_id' AND schema_name = 'main'";
    let text: String = one(&world.published(), comment);
    assert_eq!(text, "Id under which the portal knows the publication.");

    world.configure(UNTHROTTLED);
    let output = world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("publications.external_id is in no resource file any more"), "{said}");
    assert!(count(&world, kept) > 0, "the values of today are in _extra again");
    assert_eq!(count(&world, versions), 0);
}

#[test]
fn a_disabled_child_table_stays_as_it_is_while_its_parent_is_read() {
    let world = brisk(unthrottled(20));
    world.bootstrap();
    let rows = |schema: &str| lines(&world.store(), &format!("FROM {schema}.case_file_access"));
    let before = rows("main");
    assert!(!before.is_empty());
    let off = format!("{UNTHROTTLED}[resources]\ndisable = [\"case_file_access\"]\n");
    world.configure(&off);
    // The files are read again: one of them is new, one is shared, one is gone with its shares.
    let cases = shown_cases(&world);
    for case_id in &cases[10..13] {
        for facet in [Facet::FileShared, Facet::Attachment, Facet::ImageRemoved] {
            change(&world, *case_id, facet);
        }
    }
    world.sync();
    assert_eq!(rows("main"), before);
    assert_eq!(rows("history"), [""; 0]);
    assert_eq!(differences_beside(&world, "case_file_access"), [""; 0]);
    let status = "SELECT status || ': ' || reason FROM sync.resources \
                  WHERE table_name = 'case_file_access'";
    assert_eq!(one::<String>(&world.store(), status), "disabled: resources.disable names it");
    assert_eq!(count(&world, "sync.drift WHERE field = 'FileAccessRoles'"), 0);

    world.configure(UNTHROTTLED);
    world.sync();
    world.assert_equal();
    assert_eq!(count(&world, "sync.pending"), 0);
}

#[test]
fn annotations_that_are_disabled_are_left_out_and_come_when_they_are_not() {
    let world = brisk(unthrottled(20));
    let off = format!("{UNTHROTTLED}[resources]\ndisable = [\"revenue_journal_annotations\"]\n");
    world.configure(&off);
    world.sync();
    assert_eq!(count(&world, "main.revenue_journal_annotations"), 0);
    assert!(count(&world, "main.revenue_journals") > 0);
    assert_eq!(differences_beside(&world, "revenue_journal_annotations"), [""; 0]);
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
    // What annotations change of a month's payments is not known, so its sum is a control only where
    // they change nothing.
    let controls = "SELECT bool_and(status IN ('matches', 'no_control', 'open')), \
                      count(*) FILTER (status = 'no_control' AND payment_change IS NULL) > 0 \
                    FROM report.journal_reconciliation";
    assert_eq!(
        lines(&world.published(), &format!("SELECT * FROM ({controls}) t(a, b)")),
        ["{'a': true, 'b': true}"]
    );
    let output = world.run(&["verify"]);
    assert_status(&output, 0);
    let why = "what its annotations change of the payments is not mirrored";
    assert!(shown(&output).contains(why), "{}", shown(&output));

    world.configure(UNTHROTTLED);
    world.sync();
    world.assert_equal();
    let versions = "(SELECT _valid_to FROM history.revenue_journals UNION ALL \
                     SELECT _valid_to FROM history.revenue_journal_annotations)";
    assert_eq!(count(&world, versions), 0, "what changes on our side is no version");
}

#[test]
fn where_the_search_of_cases_is_not_read_the_other_one_decides_alone() {
    let world = brisk(unthrottled(12));
    world.bootstrap();
    let new = |project| {
        let act = Act::NewCase { project, assignment: None };
        world.sandbox.act(&act).unwrap().case_ids[0]
    };
    let is_there = |table: &str, id: i64| {
        let column = if table == "projects" { "id" } else { "case_id" };
        count(&world, &format!("main.{table} WHERE {column} = {id}")) > 0
    };
    let off = format!("{UNTHROTTLED}[resources]\ndisable = [\"cases\"]\n");
    world.configure(&off);
    let (project, case) = (new(true), new(false));
    world.sync();
    assert!(is_there("projects", project) && is_there("case_roles", project));
    assert!(!is_there("projects", case) && is_there("case_roles", case));
    assert_eq!(differences_beside(&world, "cases"), [""; 0]);
    assert_eq!(count(&world, "sync.pending"), 0);
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world), idle_calls());
    world.configure(UNTHROTTLED);
    world.sync();
    world.assert_equal();

    // It is forbidden by the answer to the search for the project itself: nobody grants such a permission.
    let forbidden = r#"["AdvancedSearch - Read"]"#.to_owned();
    let refusal = Fault::Refuse { status: 403, headers: [].into(), body: forbidden };
    world.sandbox.fault(fault(&search_path("Property"), None, refusal));
    let project = new(true);
    world.sync();
    assert!(is_there("projects", project));
    assert_eq!(
        count(&world, "sync.resources WHERE table_name = 'cases' AND status = 'forbidden'"),
        1
    );
}

#[test]
fn a_mirror_whose_searches_of_cases_are_disabled_is_done_complete_and_published() {
    let world = brisk(unthrottled(12));
    world.configure(&format!("{UNTHROTTLED}[resources]\ndisable = [\"cases\", \"projects\"]\n"));
    world.sync();
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
    assert!(one::<i64>(&world.published(), "SELECT count(*) FROM revenue_journals") > 0);
    assert_status(&world.run(&["status"]), 0);
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world), idle_calls());

    // As soon as they are read, they are listed.
    world.configure(&format!("{UNTHROTTLED}{REFERENCE}"));
    world.sync();
    world.assert_equal();
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

/// Something on the way that refuses both searches once must not look like a brokerage without cases.
#[rstest]
#[case::forbidden(403)]
#[case::absent(404)]
fn searches_of_cases_that_are_refused_publish_nothing_before_the_first_listing(
    #[case] status: u16,
) {
    let world = brisk(unthrottled(12));
    for of in ["Property", "Project"] {
        world.sandbox.fault(fault(&search_path(of), None, refuse(status)));
    }
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("first complete listing of the cases"), "{}", shown(&output));
    assert!(!world.path("data/casemirror.duckdb").exists());
    assert_status(&world.run(&["status"]), 3);

    world.sandbox.clear_faults();
    world.configure(&format!("{UNTHROTTLED}{REFERENCE}"));
    world.sync();
    world.assert_equal();
}

#[test]
fn mistakes_in_a_users_file_are_named_with_file_and_field() {
    let world = brisk(unthrottled(4));
    std::fs::create_dir_all(world.path("own")).unwrap();
    let file = include_str!("../examples/resources/publications.toml")
        .replace(
            "field = \"ExternalId\"\ntype = \"string\"",
            "field = \"ExternalId\"\ntype = \"text\"",
        )
        .replace("PublicationChangedDate\"]", "PublishedDate\"]");
    std::fs::write(world.path("own/publications.toml"), file).unwrap();
    world.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"own\"\n"));
    let output = world.run(&["sync"]);
    assert_status(&output, 2);
    let text = shown(&output);
    for part in
        ["own/publications.toml: column \"external_id\": type", "refresh: \"PublishedDate\""]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(world.sandbox.stats().calls, 0);
}
