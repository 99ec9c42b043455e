//! Parquet snapshots in a bucket, by an S3 server on this machine, and what becomes of the rest where it cannot
//! be reached.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use casemirror::catalog::Catalog;
use casemirror::failpoint::UPLOADING;
use casemirror::sandbox::Act;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::support::follow::assert_status;
use crate::support::objects::{ObjectStore, SECRET};
use crate::support::{World, one, shown};

const ADDRESS: &str = "s3://mirror/team/x";
/// Long enough for a slow machine.
const LONGEST: Duration = Duration::from_secs(120);

/// What `buckets.py read` prints.
#[derive(Debug, Deserialize)]
struct Read {
    id: String,
    rows: BTreeMap<String, i64>,
    /// In which snapshot's folder the (last) file of a table is.
    snapshots: BTreeMap<String, String>,
}

impl ObjectStore {
    fn asked<T: DeserializeOwned>(&self, act: &str) -> T {
        serde_json::from_slice(&self.script(act, &["team/x"])).unwrap()
    }

    /// The snapshot that readers find, each file held against the manifest.
    fn read(&self) -> Read {
        self.asked("read")
    }

    fn list(&self) -> Vec<String> {
        self.asked("list")
    }

    fn command(&self, world: &World, args: &[&str]) -> Command {
        let mut command = world.command(args);
        command.envs(self.environment()).env("CASEMIRROR_PUBLISH__PARQUET", ADDRESS);
        command
    }

    /// Runs the program with this bucket; nothing that it says holds the key.
    fn run(&self, world: &World, args: &[&str]) -> Output {
        let output = self.command(world, args).output().unwrap();
        assert!(!shown(&output).contains(SECRET), "{}", shown(&output));
        output
    }

    fn sync(&self, world: &World) -> String {
        let output = self.run(world, &["sync"]);
        assert_status(&output, 0);
        shown(&output)
    }
}

/// Every table of the bucket's snapshot has the rows of the store.
fn assert_rows(world: &World, read: &Read) {
    let store = world.store();
    for table in Catalog::load(None).unwrap().names() {
        let own: i64 = one(&store, &format!("SELECT count(*) FROM main.{table}"));
        assert_eq!(read.rows.get(table), Some(&own), "{table}");
    }
    assert!(read.rows.contains_key("report.signed_cases"));
    let id: String = one(&world.published(), "SELECT snapshot_id FROM report.snapshot");
    assert_eq!(read.id, id, "the published file and the bucket show one snapshot");
}

fn new_case(world: &World) {
    world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
}

#[test]
fn pyarrow_reads_what_was_published_and_unchanged_files_are_named_again() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(6);
    let said = server.sync(&world);
    assert!(said.contains("parquet   s3://mirror/team/x/snapshots/"), "{said}");
    let first = server.read();
    assert_rows(&world, &first);
    assert!(
        !world.path("data/parquet").exists()
            && !world.path("data/casemirror-views.duckdb").exists()
    );

    new_case(&world);
    server.sync(&world);
    let second = server.read();
    assert_rows(&world, &second);
    assert_eq!(second.snapshots["cases"], second.id, "it has changed");
    assert_eq!(second.snapshots["offices"], first.id, "it has not");
    let before = server.list();
    assert!(!server.sync(&world).contains("published snapshot"), "nothing is new");
    assert_eq!(server.list(), before);

    let output = server.run(&world, &["export"]);
    assert_status(&output, 0);
    let third = server.read();
    assert_eq!(third.snapshots["cases"], second.id);
    assert!(shown(&output).contains(&format!("{ADDRESS}/snapshots/{}", third.id)));
    assert_eq!(left_to_upload(&world), [""; 0]);
}

/// What is beside the store to be uploaded.
fn left_to_upload(world: &World) -> Vec<String> {
    std::fs::read_dir(world.path("data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("upload"))
        .collect()
}

#[test]
fn where_the_object_store_is_out_of_reach_the_rest_goes_on_and_it_catches_up() {
    let Some(mut server) = ObjectStore::down() else { return };
    let world = World::with_snapshots(6);
    let output = server.run(&world, &["sync"]);
    assert_status(&output, 1);
    assert!(shown(&output).contains("no connection"), "{}", shown(&output));
    assert!(one::<i64>(&world.published(), "SELECT count(*) FROM main.cases") > 0);
    let output = server.run(&world, &["status"]);
    assert_status(&output, 3);
    let said = shown(&output);
    assert!(said.contains("publish.parquet: s3://mirror/team/x is behind since "), "{said}");
    let output = server.run(&world, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(status["parquet_behind_since"].is_string());

    server.come_up();
    server.sync(&world);
    assert_rows(&world, &server.read());
    assert_status(&server.run(&world, &["status"]), 0);
    // Emptied by somebody, it is filled again.
    server.script("empty", &["team/x"]);
    server.sync(&world);
    assert_rows(&world, &server.read());
}

#[test]
fn what_the_object_store_refuses_is_told_and_holds_no_key() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(3);
    let output = server
        .command(&world, &["sync"])
        .env("CASEMIRROR_PUBLISH__PARQUET", "s3://another-bucket/x")
        .output()
        .unwrap();
    assert_status(&output, 1);
    let said = shown(&output);
    assert!(said.contains("404 Not Found (NoSuchBucket") && !said.contains(SECRET), "{said}");
    for (address, words) in [
        (format!("s3://key:{SECRET}@mirror/x"), "must hold no credentials"),
        ("s3://mirror/a b".to_owned(), "must have a prefix of"),
        ("ftp://mirror/x".to_owned(), "must be a folder, or an address"),
    ] {
        let mut command = server.command(&world, &["sync"]);
        let output = command.env("CASEMIRROR_PUBLISH__PARQUET", address).output().unwrap();
        assert_status(&output, 2);
        let said = shown(&output);
        assert!(said.contains(words) && !said.contains(SECRET), "{said}");
    }
    let output = server.run(&world, &["sync", "--set", "publish.views=mine.duckdb"]);
    assert_status(&output, 2);
    assert!(shown(&output).contains("publish.parquet must be a folder, too"), "{}", shown(&output));
}

#[test]
fn a_bucket_of_another_store_is_refused_before_anything_is_called() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(3);
    server.sync(&world);
    let before = server.list();
    world.sandbox.reset_stats();
    let own =
        ["--set", "store.path=other/store.duckdb", "--set", "publish.database=other/x.duckdb"];
    let output = server.run(&world, &[&own[..], &["sync"]].concat());
    assert_status(&output, 2);
    let said = shown(&output);
    assert!(said.contains("s3://mirror/team/x holds snapshots of another store"), "{said}");
    assert_eq!(world.sandbox.stats().calls, 0);
    assert_eq!(server.list(), before);
}

#[test]
fn killed_between_any_two_steps_readers_have_a_whole_snapshot_and_the_next_run_ends_it() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(4);
    server.sync(&world);
    let mut before = server.read();
    for point in UPLOADING {
        new_case(&world);
        let output =
            server.command(&world, &["sync"]).env("CASEMIRROR_ABORT_AT", point).output().unwrap();
        assert_eq!(output.status.code(), None, "{point}: {}", shown(&output));
        let found = server.read();
        let is_placed = ["snapshot-placed", "after-upload"].contains(&point);
        assert_eq!(found.id == before.id, !is_placed, "{point}");
        server.sync(&world);
        before = server.read();
        assert_rows(&world, &before);
    }
    // What it had written for the bucket goes although the next snapshot goes to a folder.
    new_case(&world);
    let mut killed = server.command(&world, &["sync"]);
    killed.env("CASEMIRROR_ABORT_AT", UPLOADING[0]).output().unwrap();
    assert_eq!(left_to_upload(&world).len(), 1);
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(left_to_upload(&world), [""; 0]);
}

#[test]
fn what_privacy_takes_out_is_in_no_earlier_snapshot_of_the_bucket_and_in_no_pack() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(6);
    server.sync(&world);
    new_case(&world);
    server.sync(&world);
    let month: String = one(
        &world.store(),
        "SELECT strftime(min(journal_month), '%Y-%m') FROM main.revenue_journals",
    );
    let output = server.run(&world, &["close", "--month", &month, "--force"]);
    let pack = format!("pack {ADDRESS}/closings/{month}");
    assert!(shown(&output).contains(&pack), "{}", shown(&output));
    let files = server.list();
    let in_pack = |name: &&String| name.starts_with(&format!("closings/{month}/"));
    assert!(files.iter().filter(in_pack).count() > 10, "{files:?}");

    let strict = ["sync", "--set", "privacy.contact_details=drop"];
    assert_status(&server.run(&world, &strict), 0);
    let read = server.read();
    let others = |name: &&String| name.starts_with("snapshots/") && !name.contains(&read.id);
    let files = server.list();
    assert_eq!(files.iter().filter(others).count(), 0, "{files:?}");
    assert!(files.iter().filter(in_pack).count() > 10);
}

/// Whom one host has forgotten moves no watermark, and a copy of the store has as much to publish as it had.
#[test]
fn a_copy_of_the_store_does_not_bring_a_forgotten_person_back() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(6);
    let other = a_copy_and_then_a_person_forgotten(&server, &world);
    let (shown_now, files) = (server.read().id, server.list());
    let output = other(&["export"]).output().unwrap();
    assert_status(&output, 1);
    assert!(shown(&output).contains("or lacks what was erased"), "{}", shown(&output));
    assert_eq!((server.read().id, server.list()), (shown_now.clone(), files));
    // Who has forgotten goes on, with what has not changed named again.
    assert_status(&server.run(&world, &["export"]), 0);
    let read = server.read();
    assert_eq!((read.id == shown_now, &read.snapshots["contacts"]), (false, &shown_now));
}

/// A copy that is later shows all that it holds. When the store that was erased from is later again, what the copy has
/// brought goes, and no kill between its snapshot and that removal keeps it.
#[test]
fn what_a_copy_has_brought_back_goes_though_its_removal_was_cut_off() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(6);
    let other = a_copy_and_then_a_person_forgotten(&server, &world);
    // The watermark has whole seconds: what is not later yet is refused.
    let later = |sync: &mut dyn FnMut() -> Output| {
        let was = server.read().id;
        for _ in 0..100 {
            new_case(&world);
            let output = sync();
            let id = server.read().id;
            if id != was {
                return (id, output);
            }
        }
        panic!("nothing later than {was} is shown");
    };
    let (of_the_copy, _) = later(&mut || other(&["sync"]).output().unwrap());
    let (_, killed) = later(&mut || {
        let mut sync = server.command(&world, &["sync"]);
        sync.env("CASEMIRROR_ABORT_AT", "snapshot-placed").output().unwrap()
    });
    assert_eq!(killed.status.code(), None, "{}", shown(&killed));
    let is_there = || server.list().iter().any(|name| name.contains(&of_the_copy));
    assert!(is_there(), "its removal was cut off");
    new_case(&world);
    server.sync(&world);
    assert!(!is_there(), "{:?}", server.list());
}

/// Another machine, with a copy of the store from before somebody was forgotten here.
fn a_copy_and_then_a_person_forgotten<'a>(
    server: &'a ObjectStore,
    world: &'a World,
) -> impl Fn(&[&str]) -> Command + 'a {
    server.sync(world);
    let other = another_machine(server, world);
    let contact: i64 = one(&world.store(), "SELECT arg_max(id, email) FROM main.contacts");
    let forget = ["forget", "--contact", &contact.to_string()];
    assert_status(&server.run(world, &forget), 0);
    other
}

/// Another machine, with a copy of the store: it passes for the same mirror.
fn another_machine<'a>(
    server: &'a ObjectStore,
    world: &'a World,
) -> impl Fn(&[&str]) -> Command + 'a {
    std::fs::create_dir(world.path("other")).unwrap();
    for file in ["store.duckdb", "store.duckdb.secrets"] {
        std::fs::copy(world.path("data").join(file), world.path("other").join(file)).unwrap();
    }
    |args| {
        let set = [
            "--set",
            "store.path=other/store.duckdb",
            "--set",
            "publish.database=other/casemirror.duckdb",
        ];
        let mut command = server.command(world, &[args, &set].concat());
        command.env("CASEMIRROR_FEED__LEDGER", world.path("other/feed-calls"));
        command
    }
}

#[test]
fn a_daemon_publishes_without_the_object_store_stops_in_time_and_catches_up() {
    let Some(mut server) = ObjectStore::down() else { return };
    let world = World::with_snapshots(4);
    world.configure_eager("");
    // It takes calls, and never answers.
    let silent = TcpListener::bind(("127.0.0.1", server.port)).unwrap();
    let environment = |server: &ObjectStore| {
        let mut all = server.environment();
        all.push(("CASEMIRROR_PUBLISH__PARQUET", ADDRESS.to_owned()));
        all
    };
    let all = environment(&server);
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut daemon = world.start_daemon_in(&all, &[]);
    let before = daemon.log();
    assert!(!before.contains(SECRET));
    daemon.wait_for_socket();
    daemon.signal("TERM");
    let status = daemon.ends();
    assert!(status.success(), "{}", daemon.log());
    drop(daemon);
    drop(silent);

    // Nobody listens there: the file for analysts is published, and status says what is behind.
    let mut daemon = world.start_daemon_in(&all, &[]);
    let published = world.path("data/casemirror.duckdb");
    daemon.wait_until("the file is published", || published.exists());
    daemon.wait_until("it is told", || {
        shown(&server.run(&world, &["status"])).contains("s3://mirror/team/x is behind since")
    });
    new_case(&world);
    server.come_up();
    daemon.wait_until("it has caught up", || {
        server.run(&world, &["status"]).status.code() == Some(0)
            && server.list().contains(&"latest.json".to_owned())
    });
    assert!(!daemon.log().contains(SECRET));
    daemon.stop();
    server.read();
}

#[test]
fn hosts_that_share_a_bucket_let_one_at_a_time_ask_the_feeds() {
    let Some(server) = ObjectStore::start() else { return };
    let world = World::with_snapshots(4);
    assert!(shown(&server.run(&world, &["lease"])).contains("nobody has ever held"));
    server.sync(&world);
    let free = shown(&server.run(&world, &["lease"]));
    assert!(free.contains("leases/") && free.contains("free"), "{free}");
    let other = another_machine(&server, &world);
    let mut daemon = server.command(&world, &["run"]).stderr(Stdio::null()).spawn().unwrap();
    let wait = |what: &str, holds: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < LONGEST, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let holder = format!("(process {})", daemon.id());
    wait("the daemon holds it", &|| {
        shown(&server.run(&world, &["lease"])).contains(&format!("{holder}, which has renewed it"))
    });
    let planned = other(&["plan"]).output().unwrap();
    assert_ne!(planned.status.code(), Some(0), "{}", shown(&planned));
    assert!(shown(&planned).contains("one host at a time"), "{}", shown(&planned));
    assert!(shown(&planned).contains(&holder), "{}", shown(&planned));
    // What it wrote in between is seen: nobody writes over it.
    let released = other(&["lease", "--release"]).output().unwrap();
    assert_status(&released, 0);
    wait("it is taken back by the one that lives", &|| {
        shown(&server.run(&world, &["lease"])).contains(&format!("{holder}, which has renewed it"))
    });
    assert!(
        Command::new("kill")
            .args(["-s", "TERM", &daemon.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(shown(&server.run(&world, &["lease"])).contains("free"));
}
