//! What is to be seen no more is in no byte of the mirror's files (docs/architecture.md, "Privacy").

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use casemirror::failpoint;
use casemirror::sandbox::Act;

use crate::privacy::texts;
use crate::support::follow::{UNTHROTTLED, assert_status, unthrottled};
use crate::support::{World, one, shown};

const KEEP: &str = "contact_details = \"keep\"\n";
const DROP: &str = "contact_details = \"drop\"\n";

/// A mirror that keeps contact details, in history and in two snapshots too.
fn kept() -> World {
    let world = World::with(unthrottled(25));
    world.configure(&format!("{KEEP}{UNTHROTTLED}"));
    world.publish_snapshots();
    world.bootstrap();
    for _ in 0..2 {
        world.sandbox.act(&Act::EditContact { contact_id: Some(50_001), at: None }).unwrap();
        world.sync();
    }
    assert!(snapshots(&world).len() > 1);
    world
}

fn tighten(world: &World) {
    world.configure(&format!("{DROP}{UNTHROTTLED}"));
}

/// All telephone numbers and e-mail addresses of persons, history included.
fn details(world: &World) -> BTreeSet<String> {
    let store = world.store();
    let all = ["main", "history"].into_iter().flat_map(|place| {
        ["email", "phone_number"].map(|column| texts(&store, &format!("{place}.contacts"), column))
    });
    let all: BTreeSet<String> = all.flatten().collect();
    assert!(all.len() > 20, "{all:?}");
    all
}

fn snapshots(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.path("data/parquet/snapshots")).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All files of the mirror, those that are hidden and those that a killed process left too.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(files(&entry.path())),
            kind if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}

/// In which files which of the texts stand, byte by byte.
pub(crate) fn found<'t>(
    world: &World,
    texts: impl IntoIterator<Item = &'t String>,
) -> BTreeSet<(PathBuf, String)> {
    let files: Vec<(PathBuf, Vec<u8>)> = files(&world.path("data"))
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let mut all = BTreeSet::new();
    for text in texts {
        for (path, bytes) in &files {
            if memchr::memmem::find(bytes, text.as_bytes()).is_some() {
                all.insert((
                    path.strip_prefix(world.path("data")).unwrap().to_owned(),
                    text.clone(),
                ));
            }
        }
    }
    all
}

#[test]
fn what_privacy_hides_is_in_no_byte_of_store_published_file_and_snapshots() {
    let world = kept();
    let details = details(&world);
    let before = found(&world, &details);
    for file in ["store.duckdb", "casemirror.duckdb"] {
        assert!(before.iter().any(|(path, _)| path == Path::new(file)), "{file}: {before:?}");
    }
    fs::set_permissions(world.path("data/store.duckdb"), fs::Permissions::from_mode(0o640))
        .unwrap();

    tighten(&world);
    let output = world.run(&["sync"]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("written anew"), "{}", shown(&output));
    assert_eq!(found(&world, &details), BTreeSet::new());
    assert_eq!(snapshots(&world).len(), 1, "earlier snapshots are gone");
    world.assert_nothing_left_over();
    let mode = fs::metadata(world.path("data/store.duckdb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "as it was set");

    // Once: the next run has nothing to write anew.
    let text = shown(&world.run(&["sync"]));
    assert!(!text.contains("written anew"), "{text}");
}

fn aborting_at(world: &World, args: &[&str], point: &str) -> Output {
    world.command(args).env("CASEMIRROR_ABORT_AT", point).output().unwrap()
}

#[test]
fn a_killed_run_is_followed_by_one_that_does_what_is_left() {
    let world = kept();
    let details = details(&world);
    tighten(&world);
    for point in failpoint::ERASING {
        let output = aborting_at(&world, &["sync"], point);
        assert!(output.status.signal().is_some(), "{point}: {}", shown(&output));
        let rows = "SELECT count(*) FROM main.contacts WHERE email IS NOT NULL";
        assert_eq!(one::<i64>(&world.store(), rows), 0, "{point}");
    }
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(found(&world, &details), BTreeSet::new());
    assert_eq!(snapshots(&world).len(), 1);
    world.assert_nothing_left_over();
}

#[test]
fn a_store_that_cannot_be_written_anew_for_now_is_followed_all_the_same() {
    let world = kept();
    let details = details(&world);
    tighten(&world);
    let limited = |kilobytes: u64| {
        let mut command = std::process::Command::new("sh");
        let sync = world.command(&["sync"]);
        command.current_dir(world.folder.path()).envs(
            sync.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
        );
        command.args(["-c", "trap '' XFSZ; ulimit -f $0; exec \"$1\" sync"]);
        command.arg((kilobytes * 2).to_string()).arg(sync.get_program());
        command.output().unwrap()
    };
    let size = fs::metadata(world.path("data/store.duckdb")).unwrap().len();
    let output = limited(size / 1024 / 2);
    assert!(shown(&output).contains("tries again"), "{}", shown(&output));
    assert_ne!(found(&world, &details), BTreeSet::new());
    world.sync();
    assert_eq!(found(&world, &details), BTreeSet::new());
}
