//! The file with the views (`publish.views`): what becomes of it while somebody reads it, and whose it is
//! (docs/architecture.md, "Readers who never let go").

use std::fs;
use std::os::unix::fs::MetadataExt;

use duckdb::{AccessMode, Config, Connection};

use crate::support::{World, one, shown};

const VIEWS: &str = "data/casemirror-views.duckdb";

/// Opens the views as a BI tool does. DuckDB's lock is this process's as long as it lives.
fn open(world: &World) -> Connection {
    let config = Config::default().access_mode(AccessMode::ReadOnly).unwrap();
    Connection::open_with_flags(world.path(VIEWS), config).unwrap()
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn views_that_somebody_has_open_are_written_when_nobody_has() {
    let world = World::with_snapshots(6);
    world.sync();
    let number = fs::metadata(world.path(VIEWS)).unwrap().ino();
    let reader = open(&world);
    let moved = ["--set", "publish.views_root=moved", "sync"];
    let output = world.run(&moved);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(
        said(&output).contains("is in use, so its views stay as they are"),
        "{}",
        shown(&output)
    );
    assert!(
        one::<i64>(&reader, "SELECT count(*) FROM main.cases") > 0,
        "they show what they showed"
    );
    reader.close().map_err(|(_, e)| e).unwrap();

    // Nothing is published, as nothing has changed; the file is written all the same.
    let output = world.run(&moved);
    assert!(!said(&output).contains("in use"), "{}", shown(&output));
    fs::rename(world.path("data/parquet"), world.path("moved")).unwrap();
    let reader = open(&world);
    assert!(one::<i64>(&reader, "SELECT count(*) FROM main.cases") > 0);
    assert_eq!(fs::metadata(world.path(VIEWS)).unwrap().ino(), number, "it was never replaced");
    assert_eq!(fs::metadata(world.path(VIEWS)).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn views_that_are_missing_or_new_come_without_a_new_snapshot() {
    let world = World::with_snapshots(6);
    let without = world.run(&["--set", "publish.views=", "sync"]);
    assert_eq!(without.status.code(), Some(0), "{}", shown(&without));
    assert!(!world.path(VIEWS).exists());
    let latest = fs::read_link(world.path("data/parquet/latest")).unwrap();
    world.sync();
    assert_eq!(fs::read_link(world.path("data/parquet/latest")).unwrap(), latest);
    assert!(one::<i64>(&open(&world), "SELECT count(*) FROM main.cases") > 0);
}

#[test]
fn a_file_of_somebody_else_is_refused_where_it_was_named_and_left_alone_where_it_was_not() {
    let world = World::with_snapshots(6);
    world.sync();
    world.sandbox.reset_stats();
    fs::write(world.path("notes.txt"), "mine").unwrap();
    let other = [
        "--set",
        "store.path=other/store.duckdb",
        "--set",
        "publish.parquet=other/parquet",
        "--set",
        "publish.database=other/published.duckdb",
    ];
    let set = |value: &'static str| [&other[..], &["--set", value, "sync"]].concat();
    for (value, word) in [
        ("publish.views=notes.txt", "is nothing that casemirror has written"),
        ("publish.views=data/casemirror-views.duckdb", "was written by another store"),
        ("publish.views=data/casemirror.duckdb", "is nothing that casemirror has written"),
        ("publish.views=other/store.duckdb.wal", "must be another file than store.path"),
        ("publish.views=other/published.duckdb", "must be another file than publish.database"),
    ] {
        let output = world.run(&set(value));
        assert_eq!(output.status.code(), Some(2), "{value}: {}", shown(&output));
        assert!(said(&output).contains(word), "{value}: {}", shown(&output));
    }
    let off = ["--set", "publish.parquet=", "--set", "publish.views=x.duckdb", "sync"];
    let output = world.run(&off);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(said(&output).contains("publish.parquet must be set, too"), "{}", shown(&output));
    assert_eq!(world.sandbox.stats().calls, 0);
    assert_eq!(fs::read_to_string(world.path("notes.txt")).unwrap(), "mine");

    // The default of a second store in the same folder: nobody has asked for that file.
    let before = fs::read(world.path(VIEWS)).unwrap();
    let output = world.run(&[&other[..], &["sync"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(said(&output).contains("this store has not written it"), "{}", shown(&output));
    assert!(fs::read(world.path(VIEWS)).unwrap() == before);
}
