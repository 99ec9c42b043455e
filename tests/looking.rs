//! Commands that look change nothing of the store, whatever configuration they are given; only `sync` and
//! `run` bring it up to another one.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use casemirror::sandbox::Facet;

use crate::support::follow::{UNTHROTTLED, calls, change, shown_cases, unthrottled};
use crate::support::{World, one, shown};

/// The notes once more, as a table of the user's own.
fn own_table() -> String {
    include_str!("../schemas/notes.toml").replace("table = \"notes\"", "table = \"my_notes\"")
}

/// A mirror that keeps identity numbers, and what stands in its configuration.
fn kept(more: &str) -> World {
    let world = World::with(unthrottled(12));
    configure(&world, "keep", more);
    world.sync();
    world
}

fn configure(world: &World, identifiers: &str, more: &str) {
    world.configure(&format!("{UNTHROTTLED}{more}"));
    let file = world.path("casemirror.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted = format!("identifiers = \"{identifiers}\"");
    std::fs::write(file, text.replace("identifiers = \"keep\"", &wanted)).unwrap();
}

/// What all files of the mirror's folder hold, but for those that a command is to write.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    // Empty, and locked by whose turn it is to publish.
    let files = files.filter(|entry| !entry.file_name().to_string_lossy().ends_with(".publishing"));
    files
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
        .collect()
}

/// Runs a command that must change no file of the mirror's.
fn looks(world: &World, args: &[&str]) -> Output {
    let before = files(&world.path("data"));
    let output = world.run(args);
    let after = files(&world.path("data"));
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>(),
        "{args:?}: {}",
        shown(&output)
    );
    for (name, bytes) in &before {
        assert!(after[name] == *bytes, "{args:?} changed {name}: {}", shown(&output));
    }
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn commands_that_look_change_nothing_and_say_what_is_another() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("my_notes.toml"), own_table()).unwrap();
    let own = format!("[resources]\ndir = {:?}\n", folder.path());
    let world = kept(&own);
    assert!(one::<i64>(&world.store(), "SELECT count(*) FROM main.my_notes") > 0);

    // As it is: nothing is said.
    for args in [
        &["status"][..],
        &["plan"],
        &["export", "--set", "publish.parquet=shots"],
        &["schema"],
        &["query", "SELECT 1"],
    ] {
        let output = looks(&world, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", shown(&output));
        assert!(!said(&output).contains("brings it up"), "{}", shown(&output));
    }
    for args in [&["status"][..], &["plan"], &["check"]] {
        let disable = ["--set", r#"resources.disable=["notes"]"#];
        let output = looks(&world, &[args, &disable].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", shown(&output));
        let told = "resources.disable names notes here, and named no table";
        let all = format!("{} {}", said(&output), String::from_utf8_lossy(&output.stdout));
        assert!(all.contains(told), "{args:?}: {}", shown(&output));
    }
    // Another configuration: stricter privacy, no table of one's own, another zone.
    configure(&world, "hash", "");
    let zone = ["--set", "source.time_zone=Europe/Helsinki"];
    for args in [&["status"][..], &["plan"], &["export", "--set", "publish.parquet=shots"]] {
        let output = looks(&world, &[args, &zone].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", shown(&output));
        let said = format!("{} {}", said(&output), String::from_utf8_lossy(&output.stdout));
        for word in ["privacy.identifiers", "source.time_zone", "my_notes"] {
            assert!(said.contains(word), "{args:?} does not say {word}: {}", shown(&output));
        }
        let counted = !said.contains("because of that is not in the plan");
        assert_eq!(counted, args[0] != "plan", "{args:?}: {}", shown(&output));
    }
    let json = looks(&world, &["status", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["differences"].as_array().unwrap().len(), 2, "{}", json["differences"]);
    let checked = looks(&world, &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", shown(&checked));
    assert!(said(&checked).contains("privacy.identifiers"), "{}", shown(&checked));
    for args in [&["schema"][..], &["query", "SELECT 1"]] {
        let output = looks(&world, &[args, &zone].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let told = said(&output);
        let lines: Vec<&str> =
            told.lines().filter(|line| line.contains("the configuration is another")).collect();
        assert_eq!(lines.len(), 1, "{args:?}: {}", shown(&output));
        for word in ["privacy.identifiers", "source.time_zone", "my_notes"] {
            assert!(lines[0].contains(word), "{args:?} does not say {word}: {}", shown(&output));
        }
    }
    // What cannot be compared is no reason to fail.
    let (published, aside) = (world.path("data/casemirror.duckdb"), world.path("data/aside"));
    std::fs::rename(&published, &aside).unwrap();
    assert_eq!(looks(&world, &["schema"]).status.code(), Some(0));
    std::fs::write(&published, "no database").unwrap();
    assert_eq!(looks(&world, &["schema"]).status.code(), Some(0));
    std::fs::rename(&aside, &published).unwrap();
    // The one that nobody chose.
    std::fs::remove_file(world.path("casemirror.toml")).unwrap();
    for args in [&["status"][..], &["schema"], &["query", "SELECT 1"]] {
        assert_eq!(looks(&world, args).status.code(), Some(0), "{args:?}");
    }
    for args in [&["sync"][..], &["run"], &["plan"], &["check"]] {
        let output = looks(&world, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", shown(&output));
        assert!(said(&output).contains("there is no configuration file"), "{}", shown(&output));
    }
}

#[test]
fn only_sync_and_run_apply_another_configuration_and_sync_says_so() {
    let world = kept("");
    configure(&world, "drop", "");
    let numbers = "SELECT count(identification_number) FROM main.contacts";
    let before: i64 = one(&world.store(), numbers);
    assert!(before > 0);
    for args in [
        &["journals", "--from", "2026-01-01", "--to", "2026-01-31"][..],
        &["verify", "--sample", "0"],
        &["close", "--month", "2026-01"],
    ] {
        let output = looks(&world, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", shown(&output));
        let said = said(&output);
        for words in ["privacy.identifiers is \"drop\" here, and was \"keep\"", "casemirror sync"] {
            assert!(said.contains(words), "{args:?}: {said}");
        }
    }
    assert_eq!(one::<i64>(&world.store(), numbers), before);
    let synced = world.run(&["sync"]);
    assert_eq!(synced.status.code(), Some(0), "{}", shown(&synced));
    assert!(said(&synced).contains("privacy.identifiers is \"drop\" here"), "{}", shown(&synced));
    assert_eq!(one::<i64>(&world.store(), numbers), 0);
    let verified = world.run(&["verify", "--sample", "0"]);
    assert_eq!(verified.status.code(), Some(0), "{}", shown(&verified));
}

#[test]
fn what_a_resource_file_says_otherwise_is_told_and_applied_by_sync_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my_notes.toml");
    std::fs::write(&file, own_table()).unwrap();
    let world = World::with(unthrottled(12));
    configure(&world, "drop", &format!("[resources]\ndir = {:?}\n", folder.path()));
    world.sync();
    let texts = "SELECT count(message) FROM main.my_notes";
    let before: i64 = one(&world.store(), texts);
    assert!(before > 0);
    let message = "field = \"Message\"\n";
    let another = [
        ("refresh = [\"any\"]", "refresh = [\"TransactionChangedDate\"]"),
        ("key = [\"case_id\", \"id\"]", "key = [\"case_id\", \"note_type\"]"),
        (message, "field = \"Message\"\nclass = \"identifier\"\n"),
    ];
    for (was, is) in another {
        let text = own_table().replace(was, is);
        assert_ne!(text, own_table());
        std::fs::write(&file, text).unwrap();
        let told = "described otherwise by resource files: my_notes";
        for args in [
            &["status"][..],
            &["plan"],
            &["check"],
            &["schema"],
            &["export", "--set", "publish.parquet=shots"],
        ] {
            let output = looks(&world, args);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {}", shown(&output));
            let all = format!("{} {}", said(&output), String::from_utf8_lossy(&output.stdout));
            assert!(all.contains(told), "{is}, {args:?}: {}", shown(&output));
        }
        for args in [&["verify", "--sample", "0"][..], &["close", "--month", "2026-01"]] {
            let output = looks(&world, args);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {}", shown(&output));
            assert!(said(&output).contains(told), "{is}, {args:?}: {}", shown(&output));
        }
    }
    // The last of them was a class that is dropped.
    assert_eq!(one::<i64>(&world.store(), texts), before);
    let synced = world.run(&["sync"]);
    assert_eq!(synced.status.code(), Some(0), "{}", shown(&synced));
    assert_eq!(one::<i64>(&world.store(), texts), 0);
}

#[test]
fn what_a_killed_run_has_left_in_the_log_is_read_and_stays_there() {
    let world = World::unthrottled(12);
    world.bootstrap();
    change(&world, shown_cases(&world)[3], Facet::Activity);
    let mut killed = world.command(&["sync"]);
    assert!(!killed.env("CASEMIRROR_ABORT_AT", "before-publish").status().unwrap().success());
    assert!(world.path("data/store.duckdb.wal").exists());
    let rows = |output: &Output| {
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let runs = json["runs"].as_array().unwrap().clone();
        (runs.len(), runs[0]["outcome"].clone())
    };
    let status = looks(&world, &["status", "--json"]);
    assert_eq!(rows(&status), (2, serde_json::Value::Null), "{}", shown(&status));
    assert_eq!(looks(&world, &["plan"]).status.code(), Some(0));
    world.sync();
    world.assert_equal();
}

#[test]
fn a_plan_is_the_same_however_often_it_is_asked_for_and_leaves_every_change_to_sync() {
    let world = World::unthrottled(20);
    // Before there is a store, none is made.
    let planned = world.run(&["plan"]);
    assert_eq!(planned.status.code(), Some(0), "{}", shown(&planned));
    assert!(!world.path("data").exists());
    world.sync();
    for case_id in &shown_cases(&world)[5..9] {
        change(&world, *case_id, Facet::Activity);
    }
    // Whether a second search is due depends on the time, which is none of it here.
    let plan = ["plan", "--set", "source.search_delay=1h"];
    let first = looks(&world, &plan).stdout;
    assert_eq!(looks(&world, &plan).stdout, first, "it has kept something");
    world.sandbox.reset_stats();
    world.sync();
    let activities = calls(&world).into_iter().filter(|(call, _)| call.contains("/Activities"));
    assert_eq!(activities.map(|(_, calls)| calls).sum::<u64>(), 4);
    world.assert_equal();
}
