//! `casemirror export`: a snapshot of the store now, when asked for.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use casemirror::publish::Manifest;
use rustix::fs::{FlockOperation, flock};

use crate::support::{World, shown};

fn latest(world: &World) -> Manifest {
    Manifest::read(&world.path("data/parquet/latest")).unwrap()
}

fn assert_says(output: &Output, status: i32, words: &[&str]) {
    assert_eq!(output.status.code(), Some(status), "{}", shown(output));
    let error = String::from_utf8_lossy(&output.stderr);
    for word in words {
        assert!(error.contains(word), "no {word:?} in:\n{error}");
    }
}

fn snapshots(world: &World) -> BTreeSet<String> {
    fs::read_dir(world.path("data/parquet/snapshots"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The files of a snapshot, by their inodes.
fn files(folder: &Path) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.metadata().unwrap().ino());
        }
    }
    found
}

#[test]
fn an_export_is_a_snapshot_of_its_own_that_shares_what_has_not_changed() {
    let world = World::with_snapshots(8);
    world.bootstrap();
    let published = latest(&world);
    let output = world.run(&["export"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let exported = latest(&world);
    assert_ne!(exported.snapshot_id, published.snapshot_id);
    assert_eq!(exported.watermark, published.watermark);
    let folder = fs::canonicalize(world.path("data/parquet/latest")).unwrap();
    let before = world.path("data/parquet/snapshots").join(&published.snapshot_id);
    // Every table that is counted, and the reports on what has not changed.
    let unchanged = files(&folder).intersection(&files(&before)).count();
    let tables = exported.files.iter().filter(|file| file.changes.is_some()).count();
    assert!(unchanged > tables && unchanged < exported.files.len(), "{unchanged} of {tables}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).lines().map(str::trim).collect::<Vec<_>>(),
        [
            folder.display().to_string(),
            format!("files  {} ({unchanged} of them unchanged)", exported.files.len()),
            format!("rows   {}", exported.files.iter().map(|file| file.rows).sum::<u64>()),
            format!("bytes  {}", exported.files.iter().map(|file| file.bytes).sum::<u64>()),
        ]
    );
    assert!(tables > 5, "{tables}");
    world.assert_nothing_left_over();
    // An export is no publish: the next sync finds nothing new to publish.
    world.sync();
    assert_eq!(latest(&world), exported);
}

#[test]
fn without_a_folder_for_snapshots_there_is_nothing_to_export_to() {
    let world = World::with_snapshots(2);
    world.configure("[publish]\nparquet = \"\"");
    assert_says(&world.run(&["export"]), 2, &["publish.parquet"]);
    assert!(!world.path("data").exists());
}

#[test]
fn nothing_is_exported_before_the_first_complete_listing() {
    let world = World::with_snapshots(3);
    assert_says(&world.run(&["export"]), 1, &["there is no store", "casemirror sync"]);
    assert!(!world.path("data").exists(), "no store is made by looking for one");
    let killed =
        world.command(&["sync"]).env("CASEMIRROR_ABORT_AT", "listing-page").output().unwrap();
    assert_eq!(killed.status.code(), None, "{}", shown(&killed));
    let words = ["nothing is published before the first complete listing of the cases"];
    assert_says(&world.run(&["export"]), 1, &words);
    assert!(!world.path("data/parquet").exists());
}

/// Files may not grow beyond a size, as on a full disk; no root is needed for it.
#[test]
fn an_export_to_a_full_disk_leaves_the_last_snapshot_and_no_trace() {
    let world = World::with_snapshots(3);
    world.bootstrap();
    // As one of another version: nothing of it is linked.
    let manifest = world.path("data/parquet/latest/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let version = format!(r#""program_version": "{}""#, env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version));
    fs::remove_file(&manifest).unwrap();
    fs::write(&manifest, text.replace(&version, r#""program_version": "0.0.1""#)).unwrap();
    let before = (latest(&world), snapshots(&world));
    let command = world.command(&["export"]);
    // The calendar's 73,000 days need more than this, what opening the store writes does not.
    let script = "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(world.folder.path())
        .output()
        .unwrap();
    assert_says(&output, 1, &["cannot write snapshots/", "free some space"]);
    assert_eq!((latest(&world), snapshots(&world)), before);
    assert_eq!(world.run(&["export"]).status.code(), Some(0));
    world.assert_nothing_left_over();
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named() {
    let world = World::with_snapshots(3);
    world.bootstrap();
    let before = latest(&world);
    let folder = world.path("data/parquet/snapshots");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    if writable(&folder) {
        eprintln!("half of this is skipped: this user may write to every folder");
    } else {
        assert_says(&world.run(&["export"]), 1, &["data/parquet/snapshots", "ermission denied"]);
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(latest(&world), before);

    fs::write(world.path("file"), "").unwrap();
    world.configure("[publish]\nparquet = \"file\"");
    assert_says(
        &world.run(&["export"]),
        2,
        &["publish.parquet", "/file is a file, and must be a folder"],
    );
}

/// Whether the mode of a folder binds this user.
fn writable(folder: &Path) -> bool {
    let probe = folder.join("probe");
    let written = fs::write(&probe, "").is_ok();
    if written {
        fs::remove_file(probe).unwrap();
    }
    written
}

/// To lock a folder one need only read it.
#[test]
fn who_may_only_read_the_snapshots_holds_up_nothing() {
    let world = World::with_snapshots(3);
    world.bootstrap();
    for folder in ["data/parquet", "data/parquet/snapshots", "data/parquet/latest"] {
        let reader = fs::File::open(world.path(folder)).unwrap();
        flock(&reader, FlockOperation::LockExclusive).unwrap();
        assert_eq!(world.run(&["export"]).status.code(), Some(0), "{folder}");
    }
    world.assert_nothing_left_over();
}

#[test]
fn of_several_exports_at_once_each_waits_for_the_one_before() {
    let world = World::with_snapshots(4);
    world.bootstrap();
    let folder = world.path("data/parquet/snapshots");
    let turn = fs::File::create(world.path("data/store.duckdb.publishing")).unwrap();
    let (before, lock) = (snapshots(&world), turn);
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // What the one before writes.
    let unfinished = folder.join(".2026-11-20T020000Z.tmp-00000000deadbeef-0");
    fs::create_dir(&unfinished).unwrap();
    let begin = || {
        let mut export = world.command(&["export"]);
        export.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut exports = [begin(), begin(), begin()];
    let told = exports.each_mut().map(|export| {
        let mut told = String::new();
        let mut lines = BufReader::new(export.stderr.take().unwrap());
        while !told.contains("another process publishes there") {
            assert_ne!(lines.read_line(&mut told).unwrap(), 0, "{told}");
        }
        lines
    });
    assert!(unfinished.is_dir());
    drop(lock);
    for mut export in exports {
        assert_eq!(export.wait().unwrap().code(), Some(0));
    }
    drop(told);
    assert!(!unfinished.exists(), "nobody writes it any more");
    assert_eq!(snapshots(&world).difference(&before).count(), 3);
    world.assert_nothing_left_over();
}
