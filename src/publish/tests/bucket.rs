//! Snapshots in a bucket: what readers find whatever fails, and what is left.

mod faulty;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use rstest::rstest;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::text::hex;
use faulty::{Fault, Faulty};

const AT: [&str; 4] = [
    "2026-11-20T02:00:00Z",
    "2026-11-20T02:15:00Z",
    "2026-11-20T02:30:00Z",
    "2026-11-20T02:45:00Z",
];

/// A store that publishes to a bucket in memory, which can be made to fail.
fn world_over(faulty: &Faulty) -> World {
    let mut world = World::new();
    world.bucket = Some(bucket(faulty, &world));
    world
}

fn bucket(faulty: &Faulty, world: &World) -> Bucket {
    let url = crate::config::bucket_url("s3://mirror/team/x");
    Bucket::over(Arc::new(faulty.clone()), url, world.dir.path().join("store.upload"))
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn change(world: &World, id: i64) {
    world
        .conn
        .execute_batch(&format!(
            "INSERT INTO main.cases (id) VALUES ({id}); \
             UPDATE sync.changes SET counter = counter + 1 WHERE table_name = 'cases'"
        ))
        .unwrap();
}

/// What is under the prefix, by its names.
fn objects(store: &InMemory) -> BTreeMap<String, Vec<u8>> {
    use futures::TryStreamExt as _;
    wait(async {
        let prefix = Key::from("team/x");
        let listed: Vec<_> =
            object_store::ObjectStore::list(store, Some(&prefix)).try_collect().await.unwrap();
        let mut all = BTreeMap::new();
        for object in listed {
            let content = store.get(&object.location).await.unwrap().bytes().await.unwrap();
            let name = object.location.as_ref().strip_prefix("team/x/").unwrap().to_owned();
            all.insert(name, content.to_vec());
        }
        all
    })
}

/// The snapshot that readers find: each file as its manifest says.
fn whole(store: &InMemory) -> Manifest {
    let objects = objects(store);
    let latest: Value = serde_json::from_slice(&objects["latest.json"]).unwrap();
    let manifest = &objects[latest["manifest"].as_str().unwrap()];
    let manifest: Manifest = serde_json::from_slice(manifest).unwrap();
    assert_eq!(latest["snapshot_id"], manifest.snapshot_id.as_str());
    assert!(manifest.files.len() > 5);
    for file in &manifest.files {
        let content = objects.get(&file.path).unwrap_or_else(|| panic!("{} is gone", file.path));
        assert_eq!(content.len() as u64, file.bytes, "{}", file.path);
        assert_eq!(hex(&Sha256::digest(content)), file.sha256, "{}", file.path);
    }
    manifest
}

/// The ids of the cases in the snapshot that readers find.
fn cases(store: &InMemory) -> Vec<String> {
    let manifest = whole(store);
    let file = manifest.files.iter().find(|file| file.table == "cases").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cases.parquet");
    fs::write(&path, &objects(store)[&file.path]).unwrap();
    let conn = Connection::open_in_memory().unwrap();
    rows(&conn, &format!("SELECT id FROM read_parquet({})", sql::text(path.to_str().unwrap())))
}

/// Of the snapshot: what `name` is, if it is among its files.
fn path_of(manifest: &Manifest, table: &str) -> String {
    manifest.files.iter().find(|file| file.table == table).unwrap().path.clone()
}

/// No file waits to be uploaded.
fn nothing_is_spooled(world: &World) {
    let left: Vec<_> =
        names(world.dir.path()).into_iter().filter(|name| name.contains("upload")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn files_come_first_then_the_manifest_then_the_one_object_that_readers_begin_with() {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    let published = world.publish(AT[0]).unwrap();
    let parquet = published.parquet.unwrap();
    assert_eq!(parquet.address, "s3://mirror/team/x/snapshots/2026-11-20T020000Z");
    let written = faulty.written();
    let id = "team/x/snapshots/2026-11-20T020000Z";
    assert_eq!(written[..2], ["team/x/owner.json", &*format!("{id}/claim")]);
    let [.., manifest, latest] = &written[..] else { panic!("{written:?}") };
    assert_eq!(
        (manifest.as_str(), latest.as_str()),
        (&*format!("{id}/manifest.json"), "team/x/latest.json")
    );
    assert_eq!(written.len(), parquet.files + 4, "each by one call");
    assert!(!objects(faulty.inner()).keys().any(|name| name.ends_with("/claim")));
    assert_eq!(cases(faulty.inner()), ["{'id': 1}"]);
    // The database beside it is the same snapshot.
    let shown = rows(&world.open_published(), "SELECT snapshot_id FROM report.snapshot");
    assert_eq!(shown, ["{'snapshot_id': 2026-11-20T020000Z}"]);
    nothing_is_spooled(&world);
}

#[test]
fn an_unchanged_file_is_named_again_and_not_uploaded() {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    let first = whole(faulty.inner());
    for at in &AT[1..] {
        change(&world, 100 + i64::from(at.len() as u32) + faulty.written().len() as i64);
        world.publish(at).unwrap();
        let now = whole(faulty.inner());
        assert_eq!(path_of(&now, "offices"), path_of(&first, "offices"), "{at}");
        assert!(path_of(&now, "cases").contains(&now.snapshot_id), "{at}");
    }
    // Two are kept, and what they name of those that are gone.
    let manifests: Vec<String> = objects(faulty.inner())
        .into_keys()
        .filter(|name| name.ends_with("manifest.json"))
        .collect();
    assert_eq!(
        manifests,
        [
            "snapshots/2026-11-20T023000Z/manifest.json",
            "snapshots/2026-11-20T024500Z/manifest.json"
        ]
    );
    let objects = objects(faulty.inner());
    assert!(objects.contains_key(&path_of(&first, "offices")));
    assert!(!objects.contains_key(&path_of(&first, "cases")), "nothing names it any more");
    // One that is not what its manifest says is uploaded anew.
    let key = Key::from(format!("team/x/{}", path_of(&first, "offices")));
    wait(faulty.inner().put(&key, "cut".into())).unwrap();
    world.publish("2026-11-20T03:00:00Z").unwrap();
    let now = whole(faulty.inner());
    assert!(path_of(&now, "offices").contains(&now.snapshot_id));
}

/// Publishes, changes something, and publishes again with one call failing: readers have a whole snapshot, the
/// file for analysts is out, and the next publishing ends equal. Whether it failed.
fn publishing_survives(nth: u32, fault: Fault) -> bool {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    change(&world, 2);
    faulty.fail_at(nth, fault);
    let published = world.publish(AT[1]);
    assert!(faulty.has_failed(), "there is no call {nth}");
    faulty.fail_at(0, fault);
    let (old, new) = (["{'id': 1}"].as_slice(), ["{'id': 1}", "{'id': 2}"].as_slice());
    let found = cases(faulty.inner());
    assert!(found == old || found == new, "{fault:?} at {nth}: {found:?}");
    if let Err(error) = &published {
        assert_eq!(error.kind(), Kind::ObjectStore, "{}", error.chain());
    }
    let ids = rows(&world.open_published(), "SELECT id FROM main.cases");
    assert_eq!(ids, new, "{fault:?} at {nth}");
    nothing_is_spooled(&world);
    world.publish(AT[2]).unwrap();
    assert_eq!(cases(faulty.inner()), new, "{fault:?} at {nth}");
    published.is_err()
}

#[test]
fn whatever_call_fails_readers_have_a_whole_snapshot_and_the_next_run_ends_equal() {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    change(&world, 2);
    faulty.fail_at(0, Fault::Refused);
    world.publish(AT[1]).unwrap();
    let calls = faulty.calls();
    assert!(calls > 14, "{calls}");
    // What is read first, a file, and all that comes after the files.
    let refused = (1..=7).chain(calls - 6..=calls).map(|nth| (nth, Fault::Refused));
    let lost = (calls - 4..=calls).map(|nth| (nth, Fault::AnswerLost));
    let failed = refused.chain(lost).filter(|(nth, fault)| publishing_survives(*nth, *fault));
    assert!(failed.count() >= 10);
}

#[test]
fn what_was_erased_is_in_no_snapshot_but_in_those_before_which_go() {
    let faulty = Faulty::new();
    let mut world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    world.publish(AT[1]).unwrap();
    world.erased = true;
    world.publish(AT[2]).unwrap();
    let now = whole(faulty.inner());
    assert!(now.files.iter().all(|file| file.path.contains(&now.snapshot_id)));
    let names: Vec<String> = objects(faulty.inner()).into_keys().collect();
    let mut expected: Vec<String> = now.files.iter().map(|file| file.path.clone()).collect();
    expected.extend(["latest.json".to_owned(), "owner.json".to_owned()]);
    expected.push(format!("snapshots/{}/manifest.json", now.snapshot_id));
    expected.sort();
    assert_eq!(names, expected);
    // Where they cannot be removed, it is not done.
    change(&world, 7);
    faulty.refuse_removals();
    assert_eq!(world.publish(AT[3]).unwrap_err().kind(), Kind::ObjectStore);
    world.erased = false;
    world.publish("2026-11-20T03:00:00Z").unwrap();
}

#[test]
fn a_place_belongs_to_the_store_that_came_first() {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    let before = objects(faulty.inner());
    let mut other = World::new();
    other.store_id = "two";
    other.bucket = Some(bucket(&faulty, &other));
    let refused = other.publish(AT[1]).unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    assert!(refused.to_string().contains("s3://mirror/team/x holds snapshots of another store"));
    // Without the mark by the newest snapshot.
    wait(faulty.inner().delete(&Key::from("team/x/owner.json"))).unwrap();
    assert_eq!(other.publish(AT[1]).unwrap_err().kind(), Kind::Config);
    world.publish(AT[1]).unwrap();
    assert!(objects(faulty.inner()).len() > before.len());
    // Of two that come at once, neither has seen the other's mark: the second one's is refused.
    let empty = Faulty::new();
    let (mut one, mut two) = (world_over(&empty), world_over(&empty));
    one.store_id = "one";
    two.store_id = "two";
    empty.before_taking(Box::new(move || drop(one.publish(AT[0]).unwrap())));
    assert_eq!(two.publish(AT[0]).unwrap_err().kind(), Kind::Config);
    assert_eq!(whole(empty.inner()).store_id, "one");
}

/// As if a copy of the store on another host had published later: it has the same id. Returns what the newest snapshot is
/// called, and the watermark that it had.
fn move_ahead(store: &InMemory) -> (String, String) {
    move_to(store, "2026-11-20T01:50:00.123457Z")
}

/// The same with this watermark.
fn move_to(store: &InMemory, watermark: &str) -> (String, String) {
    let mut moved = whole(store);
    let before = moved.watermark.replace(watermark.to_owned()).unwrap();
    let manifest = Key::from(format!("team/x/snapshots/{}/manifest.json", moved.snapshot_id));
    wait(store.put(&manifest, serde_json::to_vec(&moved).unwrap().into())).unwrap();
    (moved.snapshot_id, before)
}

#[test]
fn nothing_goes_behind_what_readers_have_seen_of_another_hosts_copy() {
    let faulty = Faulty::new();
    let mut world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    let (newest, ours) = move_ahead(faulty.inner());
    change(&world, 70);
    let before = objects(faulty.inner());
    let refused = world.publish(AT[1]).unwrap_err();
    assert_eq!(refused.kind(), Kind::ObjectStore);
    let said = refused.to_string();
    assert!(
        said.contains("(watermark 2026-11-20T01:50:00.123457Z)") && said.contains(&ours),
        "{said}"
    );
    assert!(objects(faulty.inner()) == before);
    let shown = rows(&world.open_published(), "SELECT count(*) FROM main.cases WHERE id = 70");
    assert_eq!(shown, ["{'count_star()': 1}"], "the file for analysts is this host's");
    // Its own it may go behind: the watermark moves back with a longer feed.overlap.
    world.uploaded = Some(format!("s3://mirror/team/x/snapshots/{newest}"));
    world.publish(AT[1]).unwrap();
    assert_eq!(whole(faulty.inner()).watermark.as_ref(), Some(&ours));
    // What was erased has to go, whoever made it.
    move_ahead(faulty.inner());
    world.erased = true;
    world.publish(AT[2]).unwrap();
    assert_eq!(whole(faulty.inner()).watermark, Some(ours));
}

#[test]
fn at_one_watermark_a_copy_brings_nothing_back_that_was_erased() {
    let faulty = Faulty::new();
    let (mut world, copy) = (world_over(&faulty), world_over(&faulty));
    change(&world, 70);
    change(&copy, 70);
    world.publish(AT[0]).unwrap();
    let first = whole(faulty.inner());
    assert_eq!(first.erasure, None);
    world.conn.execute_batch("DELETE FROM main.cases WHERE id = 70").unwrap();
    (world.erased, world.erasure) = (true, Some("one"));
    world.publish(AT[1]).unwrap();
    assert_eq!(whole(faulty.inner()).erasure.as_deref(), Some("one"));
    let before = objects(faulty.inner());
    let refused = copy.publish(AT[2]).unwrap_err();
    assert_eq!(refused.kind(), Kind::ObjectStore);
    assert!(refused.to_string().contains("or lacks what was erased"), "{refused}");
    assert!(objects(faulty.inner()) == before);

    // A copy of an earlier version says nothing of it, and goes there at this watermark.
    let mut manifest = whole(faulty.inner());
    (manifest.erasure, manifest.files) = (None, first.files);
    let name = format!("team/x/snapshots/{}/manifest.json", manifest.snapshot_id);
    let mut text = serde_json::to_value(&manifest).unwrap();
    text.as_object_mut().unwrap().remove("erasure").unwrap();
    wait(faulty.inner().put(&Key::from(name), text.to_string().into_bytes().into())).unwrap();
    copy.publish(AT[2]).unwrap();
    move_to(faulty.inner(), "2026-11-20T01:49:00.000000Z");
    // What it shows goes with the next snapshot of the store that has erased, though nothing is erased now.
    world.erased = false;
    world.publish("2026-11-20T03:00:00Z").unwrap();
    let last = whole(faulty.inner());
    assert_eq!(cases(faulty.inner()), ["{'id': 1}"]);
    let folder = format!("snapshots/{}/", last.snapshot_id);
    assert!(last.files.iter().all(|file| file.path.starts_with(&folder)), "{last:?}");
    let left = objects(faulty.inner());
    let others = |name: &&String| name.starts_with("snapshots/") && !name.starts_with(&folder);
    assert_eq!(left.keys().filter(others).count(), 0);
}

#[rstest]
#[case::with_conditions(true)]
#[case::without_conditions(false)]
fn who_was_overtaken_while_it_uploaded_replaces_nothing(#[case] knows_conditions: bool) {
    let faulty = Faulty::new();
    if !knows_conditions {
        faulty.know_no_conditions();
    }
    let (world, other) = (world_over(&faulty), world_over(&faulty));
    world.publish(AT[0]).unwrap();
    change(&world, 7);
    let theirs = Arc::new(Mutex::new(BTreeMap::new()));
    faulty.before_placing({
        let (store, theirs) = (faulty.clone(), Arc::clone(&theirs));
        Box::new(move || {
            other.publish(AT[2]).unwrap();
            *theirs.lock().unwrap() = objects(store.inner());
        })
    });
    let refused = world.publish(AT[1]).unwrap_err();
    assert_eq!(refused.kind(), Kind::ObjectStore);
    assert!(
        refused.to_string().contains("another host publishes to s3://mirror/team/x"),
        "{refused}"
    );
    // What was uploaded for nothing is no snapshot.
    let mut theirs = theirs.lock().unwrap().clone();
    assert!(theirs.remove("snapshots/2026-11-20T021500Z/manifest.json").is_some());
    assert!(objects(faulty.inner()) == theirs);
    assert_eq!(cases(faulty.inner()), ["{'id': 1}"]);
    world.publish("2026-11-20T03:00:00Z").unwrap();
    assert_eq!(cases(faulty.inner()), ["{'id': 1}", "{'id': 7}"]);
}

/// Two hosts that have a copy of one store give their snapshots the same name when they publish in the same second.
#[rstest]
#[case::with_conditions(true)]
#[case::without_conditions(false)]
fn of_two_hosts_that_publish_in_one_second_one_does(#[case] knows_conditions: bool) {
    let faulty = Faulty::new();
    let (world, other) = (world_over(&faulty), world_over(&faulty));
    world.publish(AT[0]).unwrap();
    change(&world, 7);
    change(&other, 8);
    if !knows_conditions {
        faulty.know_no_conditions();
    }
    let refused = |at| {
        let refused = world.publish(at).unwrap_err();
        assert_eq!(refused.kind(), Kind::ObjectStore);
        assert!(refused.to_string().contains("another host publishes to"), "{refused}");
    };
    // When this one has looked, the other one writes all of it.
    faulty.before_taking(Box::new(move || drop(other.publish(AT[1]).unwrap())));
    refused(AT[1]);
    assert_eq!(cases(faulty.inner()), ["{'id': 1}", "{'id': 8}"]);
    // It has begun, and nothing of it is there yet.
    let claim = Key::from("team/x/snapshots/2026-11-20T023000Z/claim");
    let claimed = {
        let (store, claim) = (faulty.clone(), claim.clone());
        move || drop(wait(store.inner().put(&claim, "another".into())).unwrap())
    };
    let before = objects(faulty.inner()).len();
    faulty.before_taking(Box::new(claimed));
    refused(AT[2]);
    assert_eq!(objects(faulty.inner()).len(), before + 1, "the other one's claim");
    assert_eq!(cases(faulty.inner()), ["{'id': 1}", "{'id': 8}"]);
    // Its counter is another one than that of the copy.
    change(&world, 9);
    world.publish(AT[3]).unwrap();
    assert_eq!(cases(faulty.inner()), ["{'id': 1}", "{'id': 7}", "{'id': 9}"]);
}

/// Where it is room that lacks, what is left behind would take more of it with each try.
#[test]
fn what_an_upload_that_fails_has_written_is_removed() {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    world.publish(AT[0]).unwrap();
    change(&world, 2);
    let before = objects(faulty.inner());
    let written = || faulty.written().len();
    let begun = written();
    let fails_after_files = (1..50).find(|nth| {
        faulty.fail_at(*nth, Fault::Refused);
        assert_eq!(world.publish(AT[1]).unwrap_err().kind(), Kind::ObjectStore, "call {nth}");
        faulty.fail_at(0, Fault::Refused);
        assert!(objects(faulty.inner()) == before, "call {nth}");
        written() > begun + 1
    });
    assert!(fails_after_files.is_some());
    world.publish(AT[2]).unwrap();
}

#[test]
fn a_large_file_goes_in_parts_and_is_seen_when_all_are_there() {
    let faulty = Faulty::new();
    let world = world_over(&faulty);
    let path = world.dir.path().join("large");
    let content: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    let put = |bucket: Bucket| {
        let path = path.clone();
        bucket::Bucket::run(&Stop::default(), async move {
            bucket.put_file("closings/2026-10/large", &path).await
        })
    };
    faulty.fail_at(3, Fault::Refused); // The second of three parts.
    assert_eq!(put(bucket(&faulty, &world)).unwrap_err().kind(), Kind::ObjectStore);
    assert!(objects(faulty.inner()).is_empty());
    faulty.fail_at(0, Fault::Refused);
    put(bucket(&faulty, &world)).unwrap();
    assert!(objects(faulty.inner())["closings/2026-10/large"] == content);
}

#[test]
fn an_address_becomes_a_client_without_a_call_and_lacking_settings_are_told() {
    let open = |url: &str| Bucket::open(&crate::config::bucket_url(url), PathBuf::from("x"));
    let opened = open("s3://mirror/x").unwrap();
    assert_eq!(format!("{opened:?}"), "Bucket(\"s3://mirror/x\")");
    open("gs://mirror").unwrap();
    if std::env::var_os("AZURE_STORAGE_ACCOUNT_NAME").is_none() {
        let error = open("az://mirror").unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains("publish.parquet = az://mirror: its settings"));
    }
}

#[test]
fn who_waits_for_an_object_store_can_be_told_to_stop() {
    let stop = Stop::default();
    let told = stop.clone();
    let waits =
        std::thread::spawn(move || Bucket::run(&told, std::future::pending::<Result<()>>()));
    stop.now();
    assert_eq!(waits.join().unwrap().unwrap_err().kind(), Kind::Cancelled);
}
