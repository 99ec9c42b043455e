//! What publishing replaces is what this store has published, and who may read the store's own files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use crate::support::{World, one, shown};

fn mirrored() -> World {
    let world = World::with_snapshots(6);
    world.sync();
    world
}

fn refused(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(2), "{}", shown(output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

/// A `sync` of the same brokerage into a store of its own, with these settings.
fn sync_other(world: &World, settings: &[&str]) -> Output {
    let mut args = vec!["--set", "store.path=other/store.duckdb"];
    args.extend(settings.iter().flat_map(|set| ["--set", set]));
    args.push("sync");
    world.run(&args)
}

#[test]
fn no_spelling_of_a_target_reaches_the_store() {
    let world = mirrored();
    let store = fs::read(world.path("data/store.duckdb")).unwrap();
    symlink(world.path("data"), world.path("link")).unwrap();
    symlink(world.path("data/store.duckdb"), world.path("soft.duckdb")).unwrap();
    fs::hard_link(world.path("data/store.duckdb"), world.path("hard.duckdb")).unwrap();
    for target in [
        "data/store.duckdb",
        "data/../data/store.duckdb",
        "link/store.duckdb",
        "soft.duckdb",
        "hard.duckdb",
    ] {
        for key in ["publish.database", "publish.parquet", "feed.ledger"] {
            let mut command = world.command(&["--set", &format!("{key}={target}"), "sync"]);
            // Set for all tests, and weaker than the command line only because it is the environment.
            let output = command.env_remove("CASEMIRROR_FEED__LEDGER").output().unwrap();
            refused(&output, &[key, "must be another file than store.path"]);
        }
    }
    for beside in ["data/store.duckdb.wal", "data/store.duckdb.secrets"] {
        let set = format!("publish.database={beside}");
        refused(&world.run(&["--set", &set, "sync"]), &["to which", beside]);
    }
    assert!(fs::read(world.path("data/store.duckdb")).unwrap() == store, "the store is as it was");
}

#[test]
fn a_file_that_is_no_ledger_is_refused_as_one_and_stays() {
    let world = mirrored();
    world.sandbox.reset_stats();
    fs::copy(world.path("data/store.duckdb"), world.path("other.duckdb")).unwrap();
    for file in ["casemirror.toml", "other.duckdb"] {
        let before = fs::read(world.path(file)).unwrap();
        let mut command = world.command(&["--set", &format!("feed.ledger={file}"), "sync"]);
        let output = command.env_remove("CASEMIRROR_FEED__LEDGER").output().unwrap();
        refused(&output, &[file, "is no ledger of feed calls", "feed.ledger must name a file"]);
        assert!(fs::read(world.path(file)).unwrap() == before, "{file}");
    }
    assert_eq!(world.sandbox.stats().calls, 0);
}

#[test]
fn a_ledger_that_cannot_be_is_refused_before_a_store_is_made() {
    let world = mirrored();
    fs::write(world.path("mine.txt"), "mine").unwrap();
    let sets = ["--set", "store.path=other/store.duckdb", "--set", "feed.ledger=mine.txt/ledger"];
    let mut command = world.command(&[&sets[..], &["sync"]].concat());
    let output = command.env_remove("CASEMIRROR_FEED__LEDGER").output().unwrap();
    refused(&output, &["feed.ledger", "mine.txt is a file, and must be a folder"]);
    assert!(!world.path("other").exists(), "a store was made");
}

#[test]
fn a_target_of_another_store_is_refused_before_anything_is_called() {
    let world = mirrored();
    let published = fs::read(world.path("data/casemirror.duckdb")).unwrap();
    let latest = fs::read_link(world.path("data/parquet/latest")).unwrap();
    world.sandbox.reset_stats();
    let shared = sync_other(&world, &["publish.parquet="]);
    refused(&shared, &["publish.database", "was published by another store"]);
    let shared = sync_other(&world, &["publish.database=other/published.duckdb"]);
    refused(&shared, &["publish.parquet", "holds snapshots of another store", "restore"]);
    assert_eq!(world.sandbox.stats().calls, 0);
    assert!(!world.path("other/store.duckdb").exists(), "a store was made");
    let own = ["publish.database=other/published.duckdb", "publish.parquet=other/parquet"];
    let output = sync_other(&world, &own);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let export = ["--set", "store.path=other/store.duckdb", "export"];
    refused(&world.run(&export), &["publish.parquet", "holds snapshots of another store"]);
    assert!(fs::read(world.path("data/casemirror.duckdb")).unwrap() == published);
    assert_eq!(fs::read_link(world.path("data/parquet/latest")).unwrap(), latest);
    // Its own it goes on replacing, also where it is not the file that it put there last.
    fs::copy(world.path("data/casemirror.duckdb"), world.path("copy.duckdb")).unwrap();
    fs::rename(world.path("copy.duckdb"), world.path("data/casemirror.duckdb")).unwrap();
    world.sync();
}

#[test]
fn a_sync_that_is_refused_has_applied_nothing() {
    let world = mirrored();
    let numbers = "SELECT count(identification_number) FROM main.contacts";
    assert!(one::<i64>(&world.store(), numbers) > 0);
    fs::write(world.path("mine.duckdb"), "mine").unwrap();
    fs::write(world.path("authority.pem"), "none").unwrap();
    let before = fs::read(world.path("data/store.duckdb")).unwrap();
    for (key, value) in [
        ("publish.database", "mine.duckdb"),
        ("publish.views", "mine.duckdb"),
        ("source.ca_file", "authority.pem"),
    ] {
        let set = format!("{key}={value}");
        let stricter = ["--set", "privacy.identifiers=drop", "--set", &set, "sync"];
        refused(&world.run(&stricter), &[key, value]);
        assert!(fs::read(world.path("data/store.duckdb")).unwrap() == before, "{key}");
    }
    assert!(one::<i64>(&world.store(), numbers) > 0);
}

#[test]
fn what_nobody_has_published_is_not_replaced() {
    let world = World::with_snapshots(6);
    fs::create_dir(world.path("mine")).unwrap();
    for (name, content) in [("mine/notes.txt", "mine"), ("mine/empty", "")] {
        fs::write(world.path(name), content).unwrap();
        let set = format!("publish.database={name}");
        let words = ["is nothing that casemirror has published", name];
        refused(&world.run(&["--set", &set, "sync"]), &words);
        assert_eq!(fs::read_to_string(world.path(name)).unwrap(), content);
    }
    duckdb::Connection::open(world.path("mine/own.duckdb"))
        .unwrap()
        .execute_batch("CREATE TABLE budget (amount INTEGER)")
        .unwrap();
    for (key, name) in [
        ("publish.database", "mine/own.duckdb"),
        ("publish.database", "mine"),
        ("publish.parquet", "mine/own.duckdb"),
    ] {
        refused(&world.run(&["--set", &format!("{key}={name}"), "sync"]), &[key, name]);
    }
}

#[test]
fn the_store_is_its_owners_alone_and_what_is_published_is_everybodys() {
    let world = World::with_snapshots(6);
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o777;
    let set = ["--set", "publish.parquet=shared/parquet", "--set", "publish.database=shared/db/x"];
    let mut killed = world.command(&[&set[..], &["sync"]].concat());
    assert!(!killed.env("CASEMIRROR_ABORT_AT", "before-publish").status().unwrap().success());
    for name in ["store.duckdb", "store.duckdb.wal", "store.duckdb.secrets"] {
        assert_eq!(mode(&format!("data/{name}")), 0o600, "{name}");
    }
    assert_eq!(mode("data"), 0o700);
    assert_eq!(mode("feed-calls"), 0o600);
    let synced = world.run(&[&set[..], &["sync"]].concat());
    assert_eq!(synced.status.code(), Some(0), "{}", shown(&synced));
    assert_eq!(mode("data/store.duckdb"), 0o600);
    for folder in ["shared", "shared/db", "shared/parquet", "shared/parquet/snapshots"] {
        assert_eq!(mode(folder), 0o755, "{folder}");
    }
    assert_eq!(mode("shared/db/x"), 0o444);
    assert_eq!(mode("shared/parquet/latest"), 0o755);
    assert_eq!(mode("shared/parquet/latest/cases"), 0o755);
    assert_eq!(mode("shared/parquet/latest/manifest.json"), 0o444);
    // What somebody has set otherwise stays.
    fs::set_permissions(world.path("data"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(world.path("data/store.duckdb"), fs::Permissions::from_mode(0o640))
        .unwrap();
    let synced = world.run(&[&set[..], &["sync"]].concat());
    assert_eq!(synced.status.code(), Some(0), "{}", shown(&synced));
    assert_eq!((mode("data"), mode("data/store.duckdb")), (0o750, 0o640));
    assert!(one::<i64>(&world.store(), "SELECT count(*) FROM main.cases") > 0);
}

#[test]
fn folders_that_cannot_be_made_are_told_before_anything_is_asked() {
    let world = World::with_snapshots(3);
    fs::write(world.path("file"), "").unwrap();
    world.configure(
        "[publish]\ndatabase = \"file/a.duckdb\"\nparquet = \"file/parquet\"\n\
         views = \"file/deep/views.duckdb\"\n[store]\npath = \"file/data/store.duckdb\"",
    );
    let file = world.path("file");
    let why = format!("{} is a file, and must be a folder", file.display());
    let keys = ["store.path", "publish.database", "publish.parquet", "publish.views"];
    let told = keys.map(|key| format!("{key}: {why}"));
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    refused(&world.run(&["sync"]), &told);
    refused(&world.run(&["run"]), &told);
    assert_eq!(world.sandbox.stats().calls, 0, "the source was asked");
    assert!(!world.path("data").exists());

    // `check` looks at all that it can look at, and says it too.
    let output = world.run(&["check"]);
    let said = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        told.iter().all(|told| said.contains(told)) && said.contains("permission needed"),
        "{said}"
    );
    world.configure("");
    let output = world.run(&["check"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(shown(&output).contains("Store and published files can be written."));
    assert!(!world.path("data").exists(), "check made a folder");
}

#[test]
fn a_folder_whose_name_duckdb_does_not_take_is_refused_before_anything_is_read() {
    let world = World::with_snapshots(6);
    let folder = world.path("").join(OsStr::from_bytes(b"no\xfftext"));
    fs::create_dir(&folder).unwrap();
    fs::copy(world.path("casemirror.toml"), folder.join("casemirror.toml")).unwrap();
    let output = world.command(&["sync"]).current_dir(&folder).output().unwrap();
    let said = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("store.path: the name of the folder") && said.contains("no UTF-8"),
        "{said}"
    );
}

#[test]
fn check_refuses_what_the_next_sync_would() {
    let world = mirrored();
    assert_eq!(world.run(&["check"]).status.code(), Some(0));
    fs::write(world.path("mine.duckdb"), "mine").unwrap();
    refused_by_check(&world, &["publish.database=mine.duckdb"], "publish.database");
    // Before there is a store.
    let new = "store.path=other/store.duckdb";
    refused_by_check(&world, &[new], "publish.database");
    refused_by_check(&world, &[new, "publish.database=other/x.duckdb"], "another store");
    fs::write(world.path("mine.txt"), "mine").unwrap();
    for (ledger, word) in [
        ("mine.txt", "no ledger of feed calls"),
        ("data", "is no file"),
        ("mine.txt/ledger", "must be a folder"),
    ] {
        let set = format!("feed.ledger={ledger}");
        let mut command = world.command(&["--set", &set, "check"]);
        let output = command.env_remove("CASEMIRROR_FEED__LEDGER").output().unwrap();
        let said = shown(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert_eq!(fs::read_to_string(world.path("mine.txt")).unwrap(), "mine");
    assert!(!world.path("other").exists(), "check made a folder");

    let secrets = world.path("data/store.duckdb.secrets");
    let kept = fs::read(&secrets).unwrap();
    fs::write(&secrets, "hash_key = \"12\"").unwrap();
    refused_by_check(&world, &[], "store.duckdb.secrets is damaged");
    fs::write(&secrets, kept).unwrap();
    let lake = ["lake.catalog=data/lake.ducklake", "lake.data=data/lake"];
    refused_by_check(&world, &lake, "`casemirror lake install` fetches it");

    let of_another = "UPDATE sync.meta SET value = 'another' WHERE key = 'tenant'";
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(of_another)
        .unwrap();
    let output = world.run(&["check"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("filled from tenant another"), "{}", shown(&output));
}

fn refused_by_check(world: &World, settings: &[&str], word: &str) {
    let mut args: Vec<&str> = settings.iter().flat_map(|set| ["--set", set]).collect();
    args.push("check");
    let output = world.run(&args);
    let said = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Nothing can be mirrored or published like this"), "{said}");
    assert!(said.contains(word), "no {word:?} in {said}");
}
