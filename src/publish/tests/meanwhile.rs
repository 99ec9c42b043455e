//! What happens while one file of a snapshot is being written.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::*;

/// Publishes, and does `act` while `report.closings` is read for its file: it is made to read from a
/// pipe that has no end before `act` has ended.
fn publish_while_written(
    world: &World,
    stop: &Stop,
    act: impl FnOnce() + Send,
) -> Result<Published> {
    let pipe = world.dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    world
        .conn
        .execute_batch(&format!(
            "CREATE OR REPLACE VIEW report.closings AS SELECT content FROM read_text({})",
            sql::text(pipe.to_str().unwrap())
        ))
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Waits until DuckDB reads.
            let end = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
            act();
            drop(end);
        });
        world.publish_until(stop, None, "2026-11-20T02:15:00Z")
    })
}

/// Asserts that the snapshot before is all there is.
fn assert_nothing_new(world: &World) {
    assert_eq!(names(&world.parquet().join("snapshots")), ["2026-11-20T020000Z"]);
    assert_eq!(world.latest().snapshot_id, "2026-11-20T020000Z");
}

#[test]
fn nothing_more_is_written_after_a_stop() {
    let world = World::new();
    world.publish(T2).unwrap();
    // The file after the one during which the stop comes.
    world
        .conn
        .execute_batch("CREATE OR REPLACE VIEW report.commission AS SELECT error('written') AS x")
        .unwrap();
    let stop = Stop::default();
    let error = publish_while_written(&world, &stop, || stop.now()).unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled, "{}", error.chain());
    assert_nothing_new(&world);
}

#[test]
fn a_snapshot_with_a_file_that_is_not_what_was_written_does_not_count() {
    let world = World::new();
    world.publish(T2).unwrap();
    let snapshots = world.parquet().join("snapshots");
    let error = publish_while_written(&world, &Stop::default(), || {
        // Whatever DuckDB writes from now on is not what has this name.
        let folder = names(&snapshots).into_iter().find(|name| name.starts_with('.')).unwrap();
        let file = snapshots.join(folder).join("report/closings/data.parquet");
        fs::remove_file(&file).unwrap();
        fs::write(&file, "PAR1, and nothing else").unwrap();
    })
    .unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    let text = error.chain();
    assert!(text.contains("report/closings/data.parquet is no whole Parquet file"), "{text}");
    assert_nothing_new(&world);
    world.conn.execute_batch("DROP VIEW report.closings").unwrap();
    world.publish("2026-11-20T02:30:00Z").unwrap();
}

#[test]
fn the_folder_of_a_snapshot_is_held_and_out_of_reach_of_readers_until_it_is_whole() {
    let world = World::new();
    world.publish(T2).unwrap();
    let snapshots = world.parquet().join("snapshots");
    let mode =
        |name: &str| fs::metadata(snapshots.join(name)).unwrap().permissions().mode() & 0o777;
    publish_while_written(&world, &Stop::default(), || {
        let name = names(&snapshots).into_iter().find(|name| name.starts_with('.')).unwrap();
        let folder = fs::File::open(snapshots.join(&name)).unwrap();
        let held = flock(&folder, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(held, Err(Errno::WOULDBLOCK), "another store may take it for left");
        assert_eq!(mode(&name), 0o700);
    })
    .unwrap();
    assert_eq!(mode("2026-11-20T021500Z"), 0o755);
}

#[test]
fn another_publishing_waits_until_it_is_its_turn() {
    let world = World::new();
    world.publish(T2).unwrap();
    let store = world.dir.path().join("the store.duckdb");
    let told_to_stop = Stop::default();
    told_to_stop.now();
    publish_while_written(&world, &Stop::default(), || {
        let kind = Turn::wait(&store, Duration::MAX, &told_to_stop).unwrap_err().kind();
        assert_eq!(kind, Kind::Cancelled, "it waited, and was told to stop");
    })
    .unwrap();
    world.turn(&told_to_stop).unwrap();
}

/// Two stores were told the same new folder, and both found it empty.
#[test]
fn whose_a_folder_is_is_looked_at_when_its_turn_comes() {
    let world = World::new();
    world.publish(T2).unwrap();
    let (root, database) = (Root::Folder(world.parquet()), world.database());
    let targets = in_folder(&world, &root, &database);
    let begun = begin(&targets, info("other", T2), None, &Stop::default());
    assert_eq!(begun.unwrap_err().kind(), Kind::Config);
}

/// Both were told the same new folder, and each waits for its own turn alone.
#[test]
fn of_two_stores_that_found_a_folder_empty_the_later_one_takes_its_snapshot_back() {
    let world = World::new();
    let mut other = World { store_id: "other", ..World::new() };
    std::os::unix::fs::symlink(world.parquet(), other.parquet()).unwrap();
    let refused = publish_while_written(&world, &Stop::default(), || {
        let other = &mut other;
        other.export(T2).unwrap();
    });
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("holds snapshots of another store"), "{error}");
    assert_nothing_new(&world);
    assert_eq!(world.latest().store_id, "other");
    // Nobody is led to one yet.
    fs::remove_file(world.parquet().join("latest")).unwrap();
    assert_eq!(world.export(T2).unwrap_err().kind(), Kind::Config);
    other.export("2026-11-20T02:30:00Z").unwrap();
}

/// Where neither sees a link, each sees the other's snapshot.
#[test]
fn a_snapshot_of_another_store_that_came_meanwhile_is_seen_without_a_link() {
    let world = World::new();
    let mut other = World { store_id: "other", ..World::new() };
    std::os::unix::fs::symlink(world.parquet(), other.parquet()).unwrap();
    let refused = publish_while_written(&world, &Stop::default(), || {
        let other = &mut other;
        other.export("2026-11-19T02:00:00Z").unwrap();
        fs::remove_file(other.parquet().join("latest")).unwrap();
    });
    assert_eq!(refused.unwrap_err().kind(), Kind::Config);
    assert_eq!(names(&world.parquet().join("snapshots")), ["2026-11-19T020000Z"]);
    assert!(!world.parquet().join("latest").exists());
}
