//! Files of the user's in `resources.dir`: what is refused before anything is called, and what becomes of
//! a table whose file is taken away.

use casemirror::sandbox::Facet;

use crate::support::follow::{UNTHROTTLED, assert_status, brisk, change, shown_cases, unthrottled};
use crate::support::{World, one, shown};

const OWN: &str = "[resources]\ndir = \"own\"\n";

fn write(world: &World, name: &str, text: &str) {
    std::fs::create_dir_all(world.path("own")).unwrap();
    std::fs::write(world.path("own").join(name), text).unwrap();
}

fn count(world: &World, what: &str) -> i64 {
    one(&world.store(), &format!("SELECT count(*) FROM {what}"))
}

/// The schemas of the published database that have a table of this name.
fn places(world: &World, table: &str) -> String {
    let sql = format!(
        "SELECT coalesce(string_agg(table_schema, ', ' ORDER BY ALL), '') \
         FROM information_schema.tables WHERE table_name = '{table}'"
    );
    one(&world.published(), &sql)
}

/// The notes once more, under another name.
fn copies() -> String {
    include_str!("../schemas/notes.toml")
        .replace("table = \"notes\"", "table = \"copies\"")
        .replace("field = \"Message\"\n", "field = \"Message\"\nclass = \"contact_detail\"\n")
}

/// Mirrors them, with an earlier version of each.
fn mirror_copies(world: &World) {
    write(world, "copies.toml", &copies());
    world.configure(&format!("{UNTHROTTLED}{OWN}"));
    world.sync();
    for case_id in shown_cases(world) {
        change(world, case_id, Facet::NoteEdited);
    }
    world.sync();
}

#[test]
fn a_file_with_a_forbidden_call_ends_every_command_before_anything_is_called() {
    let world = brisk(unthrottled(4));
    let text = copies().replace("/api/Notes/Case/{case_id}", "/api/Cases/{case_id}/Publications");
    write(&world, "copies.toml", &text);
    world.configure(&format!("{UNTHROTTLED}{OWN}"));
    for command in ["sync", "check", "status", "plan"] {
        let output = world.run(&[command]);
        assert_status(&output, 2);
        let said = shown(&output);
        assert!(said.contains("own/copies.toml: read.path"), "{said}");
        assert!(said.contains("returnOnlyExisting"), "{said}");
    }
    assert_eq!(world.sandbox.stats().calls, 0);
    assert!(!world.path("data").exists());
}

#[test]
fn a_table_without_file_leaves_the_mirror_and_comes_back_beside_its_history() {
    let world = brisk(unthrottled(12));
    world.publish_snapshots();
    mirror_copies(&world);
    let rows = count(&world, "main.copies");
    let versions = count(&world, "history.copies");
    assert!(rows > 0 && versions > 0, "{rows} rows, {versions} versions");
    assert!(world.path("data/parquet/latest/copies").exists());

    std::fs::remove_file(world.path("own/copies.toml")).unwrap();
    world.sync();
    assert_eq!(places(&world, "copies"), "history", "its earlier versions are no table of ours");
    assert!(!world.path("data/parquet/latest/copies").exists());
    for book in ["resources", "fetched", "failures", "pending", "rejects", "drift"] {
        assert_eq!(count(&world, &format!("sync.{book} WHERE table_name = 'copies'")), 0, "{book}");
    }
    assert_eq!(count(&world, "report.freshness WHERE table_name = 'copies'"), 0);
    assert_eq!(count(&world, "history.copies"), versions);
    world.assert_equal();

    // What is kept is hidden with the rest.
    let shown = "history.copies WHERE message IS NOT NULL";
    assert!(count(&world, shown) > 0);
    let sync_dropping = || {
        let mut command = world.command(&["sync"]);
        let output = command.env("CASEMIRROR_PRIVACY__CONTACT_DETAILS", "drop").output().unwrap();
        assert_status(&output, 0);
    };
    sync_dropping();
    assert_eq!(count(&world, shown), 0);
    assert_eq!(count(&world, "history.copies WHERE _extra IS NOT NULL"), 0);
    assert_eq!(count(&world, "history.copies WHERE note_type IS NOT NULL"), versions);

    write(&world, "copies.toml", &copies());
    sync_dropping();
    assert_eq!(count(&world, "main.copies"), rows);
    assert_eq!(count(&world, "main.copies WHERE message IS NOT NULL"), 0);
    assert_eq!(count(&world, "history.copies"), versions, "what changes on our side is no version");
    assert_eq!(places(&world, "copies"), "history, main");
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

#[test]
fn by_another_key_all_rows_of_a_table_are_read_anew_beside_their_history() {
    let world = brisk(unthrottled(12));
    mirror_copies(&world);
    let versions = count(&world, "history.copies");
    let rows = count(&world, "main.copies");
    let kinds = "(SELECT DISTINCT case_id, note_type FROM main.notes WHERE note_type IS NOT NULL)";
    let kinds = count(&world, kinds);
    assert!(versions > 0 && kinds < rows, "{versions} versions, {kinds} of {rows}");

    let by_kind =
        copies().replace("key = [\"case_id\", \"id\"]", "key = [\"case_id\", \"note_type\"]");
    assert_ne!(by_kind, copies());
    write(&world, "copies.toml", &by_kind);
    // Of two notes of one kind the last is taken, and the other one told.
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(count(&world, "main.copies"), kinds);
    assert_eq!(count(&world, "(SELECT DISTINCT case_id, note_type FROM main.copies)"), kinds);
    assert_eq!(count(&world, "history.copies"), versions);

    write(&world, "copies.toml", &copies());
    world.sync();
    assert_eq!(count(&world, "main.copies"), rows);
    assert_eq!(count(&world, "history.copies"), versions);
}

#[test]
fn the_list_of_a_child_table_without_file_is_in_extra_again() {
    let world = brisk(unthrottled(12));
    let participants = include_str!("../examples/resources/activity_participants.toml");
    write(&world, "activity_participants.toml", participants);
    world.configure(&format!("{UNTHROTTLED}{OWN}"));
    world.sync();
    let kept = "main.activities WHERE _extra LIKE '%\"Participants\"%'";
    assert!(count(&world, "main.activity_participants") > 0);
    assert_eq!(count(&world, kept), 0);

    std::fs::remove_file(world.path("own/activity_participants.toml")).unwrap();
    world.sync();
    assert_eq!(places(&world, "activity_participants"), "", "there was nothing in its history");
    assert!(count(&world, kept) > 0);
    assert_eq!(count(&world, "history.activities"), 0);
    world.assert_equal();
}
