//! What happens while one file of a snapshot is being written.

use std::process::Command;

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
fn another_publishing_waits_until_it_is_its_turn() {
    let world = World::new();
    world.publish(T2).unwrap();
    let root = Root::Folder(world.parquet());
    let store_id = world.store_id;
    let begin_another = |stop: &Stop| {
        let parquet = ParquetTarget {
            root: &root,
            tables: &[],
            keep_snapshots: 2,
            keep_for: Duration::ZERO,
            erased: false,
        };
        let targets = Targets { database: None, parquet: Some(parquet), views: None };
        let info = SnapshotInfo {
            taken_at: "2026-11-20T02:20:00Z".parse().unwrap(),
            watermark: None,
            complete: true,
            store_id: store_id.to_owned(),
            state: String::new(),
            erasure: None,
            last_id: None,
            uploaded: None,
        };
        begin(&targets, info, stop)
    };
    let told_to_stop = Stop::default();
    told_to_stop.now();
    publish_while_written(&world, &Stop::default(), || {
        let kind = begin_another(&told_to_stop).unwrap_err().kind();
        assert_eq!(kind, Kind::Cancelled, "it waited, and was told to stop");
    })
    .unwrap();
    begin_another(&told_to_stop).unwrap();
}
