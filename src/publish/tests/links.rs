//! Which files are linked, and that a file is written where it cannot be.

use super::*;

#[test]
fn an_unchanged_table_is_a_link_and_a_changed_one_is_written() {
    let world = World::new();
    world.publish(T2).unwrap();
    let inode = |id: &str, table: &str| {
        fs::metadata(world.parquet().join("snapshots").join(id).join(table).join("data.parquet"))
            .unwrap()
            .ino()
    };
    world
        .conn
        .execute_batch(
            "UPDATE main.cases SET _extra = '{}'; \
             UPDATE sync.changes SET counter = counter + 1 WHERE table_name = 'cases'",
        )
        .unwrap();
    world.publish("2026-11-20T02:15:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["offices"]);
    let ids = ["2026-11-20T020000Z", "2026-11-20T021500Z"];
    assert_eq!(inode(ids[0], "offices"), inode(ids[1], "offices"));
    assert_ne!(inode(ids[0], "cases"), inode(ids[1], "cases"));
    assert!(world.latest().files[1].path.contains(ids[1]), "the link has a path of its own");

    // A column more is another file, though no row has changed.
    world.conn.execute_batch("ALTER TABLE main.offices ADD COLUMN more BIGINT").unwrap();
    world.publish("2026-11-20T02:30:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["cases"]);

    // Without a counter nothing is proven.
    world.conn.execute_batch("DELETE FROM sync.changes").unwrap();
    world.publish("2026-11-20T02:45:00Z").unwrap();
    assert_eq!(world.linked_tables(), [""; 0]);
}

#[test]
fn counters_of_another_store_prove_nothing() {
    let world = World::new();
    world.publish(T2).unwrap();
    let path = world.parquet().join("latest/manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, text.replace(r#""store_id": "one""#, r#""store_id": "two""#)).unwrap();
    let refused = world.publish("2026-11-20T02:15:00Z").unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    fs::remove_file(world.parquet().join("latest/manifest.json")).unwrap();
    fs::write(world.parquet().join("latest/manifest.json"), "{").unwrap();
    assert_eq!(world.publish("2026-11-20T02:30:00Z").unwrap().parquet.unwrap().linked, 0);
}

#[test]
fn counters_are_compared_with_the_last_snapshot_whatever_was_published_between() {
    let world = World::new();
    world.publish(T2).unwrap();
    world.conn.execute_batch("UPDATE sync.changes SET counter = counter + 1").unwrap();
    world.publish("2026-11-20T02:15:00Z").unwrap();
    assert_eq!(world.linked_tables(), [""; 0]);
    // As after a restored backup: an older snapshot has these counters, the last has not.
    world.conn.execute_batch("UPDATE sync.changes SET counter = counter - 1").unwrap();
    world.publish("2026-11-20T02:30:00Z").unwrap();
    assert_eq!(world.linked_tables(), [""; 0]);
    world.publish("2026-11-20T02:45:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["cases", "offices"]);
}

#[test]
fn a_file_that_is_not_what_its_manifest_says_is_written_anew() {
    let world = World::new();
    world.publish(T2).unwrap();
    let file = world.parquet().join("snapshots/2026-11-20T020000Z/cases/data.parquet");
    // Cut off, by somebody who changed the mode first.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(10).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    world.publish("2026-11-20T02:15:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["offices"]);
    // One that somebody may write to is not shared either.
    let file = world.parquet().join("latest/offices/data.parquet");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    world.publish("2026-11-20T02:30:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["cases"]);
    world.assert_sums();
}

/// A folder on another file system, where this machine has one.
fn on_another_file_system(world: &World) -> Option<TempDir> {
    let own = fs::metadata(world.dir.path()).unwrap().dev();
    ["/dev/shm", "/tmp", "/var/tmp"]
        .iter()
        .filter_map(|folder| tempfile::tempdir_in(folder).ok())
        .find(|folder| fs::metadata(folder.path()).is_ok_and(|found| found.dev() != own))
}

#[test]
fn a_snapshot_that_was_moved_to_another_file_system_is_not_linked_to() {
    let world = World::new();
    let Some(other) = on_another_file_system(&world) else {
        eprintln!("skipped: there is no second file system to write to");
        return;
    };
    world.publish(T2).unwrap();
    let here = world.parquet().join("snapshots/2026-11-20T020000Z");
    let there = other.path().join("moved");
    let copied = std::process::Command::new("cp").arg("-a").args([&here, &there]).status().unwrap();
    assert!(copied.success());
    fs::remove_dir_all(&here).unwrap();
    std::os::unix::fs::symlink(&there, &here).unwrap();

    let second = world.publish("2026-11-20T02:15:00Z").unwrap().parquet.unwrap();
    assert_eq!(second.linked, 0);
    world.assert_sums();
    world.publish("2026-11-20T02:30:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["cases", "offices"]);
    // When it is old, the link goes, not what somebody moved elsewhere.
    world.publish("2026-11-20T04:00:00Z").unwrap();
    for removed in ["2026-11-20T021500Z", "2026-11-20T020000Z"] {
        let gone = world.parquet().join("snapshots").join(removed);
        assert!(gone.symlink_metadata().is_err(), "{removed}");
    }
    assert!(there.join("manifest.json").exists());
}
