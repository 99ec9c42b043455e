//! What a reader sees while snapshots come and go.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The manifest that `latest` shows and the sums of all its files: panics on the first that is not
/// there, or not as the manifest says.
fn check(root: &Path) -> String {
    // Once: what is read afterwards is one snapshot, wherever `latest` points by then.
    let folder = fs::canonicalize(root.join("latest")).unwrap();
    let manifest = Manifest::read(&folder).unwrap();
    assert_eq!(folder.file_name().unwrap().to_str(), Some(manifest.snapshot_id.as_str()));
    for file in &manifest.files {
        let path = root.join(&file.path);
        assert!(path.starts_with(root.join("snapshots").join(&manifest.snapshot_id)));
        assert_eq!(
            manifest::measure(&path).unwrap(),
            (file.bytes, file.sha256.clone()),
            "{}",
            file.path
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
    }
    manifest.snapshot_id
}

impl World {
    /// Asserts that every file of the newest snapshot is as its manifest says.
    pub(super) fn assert_sums(&self) {
        check(&self.parquet());
    }
}

#[test]
fn who_follows_latest_always_sees_a_whole_snapshot() {
    let world = World::new();
    world.publish(T2).unwrap();
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let root = world.parquet();
        let reader = scope.spawn(|| {
            let root = root;
            let mut seen = std::collections::BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                seen.insert(check(&root));
            }
            seen
        });
        for n in 2..=51 {
            // One of the two tables changes, the other is linked.
            world
                .conn
                .execute_batch(&format!(
                    "INSERT INTO main.cases (id) VALUES ({n}); \
                     UPDATE sync.changes SET counter = counter + 1 WHERE table_name = 'cases'"
                ))
                .unwrap();
            let published = world.export(T2).unwrap();
            assert_eq!(published.snapshot_id, format!("2026-11-20T020000Z-{n}"));
            let before = if n == 2 { String::new() } else { format!("-{}", n - 1) };
            let linked = world
                .linked_between(&format!("2026-11-20T020000Z{before}"), &published.snapshot_id);
            assert!(linked.contains("offices") && !linked.contains("cases"), "{linked:?}");
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen.len() > 1, "the reader was too slow to see anything: {seen:?}");
    assert_eq!(world.latest().snapshot_id, "2026-11-20T020000Z-51");
}

#[test]
fn every_report_view_is_in_the_snapshot() {
    let world = World::new();
    world.publish(T2).unwrap();
    let views = rows(
        &world.conn,
        "SELECT view_name AS name FROM duckdb_views() \
         WHERE schema_name = 'report' AND database_name = current_database() \
         UNION ALL SELECT 'calendar'",
    );
    let mut files: Vec<_> = names(&world.parquet().join("latest/report"))
        .into_iter()
        .map(|name| format!("{{'name': {name}}}"))
        .collect();
    // As `rows` sorts: by the whole text of a row.
    files.sort();
    assert_eq!(files, views);
}

#[test]
fn a_file_with_more_holes_than_rows_is_written_anew() {
    let world = World::new();
    world
        .conn
        .execute_batch(
            "INSERT INTO main.cases (id, office) \
               SELECT n, md5(n::VARCHAR) FROM range(2, 1_500_002) t(n); CHECKPOINT; \
             INSERT INTO main.offices (id) VALUES (1); CHECKPOINT; \
             DELETE FROM main.cases WHERE id > 10; CHECKPOINT",
        )
        .unwrap();
    let store = fs::metadata(world.dir.path().join("the store.duckdb")).unwrap().len();
    let copy = world.publish(T2).unwrap().database.unwrap().path;
    let copy = fs::metadata(copy).unwrap().len();
    assert!(copy * 2 < store, "the copy has {copy} bytes, the store {store}");
    assert_eq!(
        rows(&world.open_published(), "SELECT count(*) AS n FROM main.cases"),
        ["{'n': 10}"]
    );
    assert_eq!(
        rows(&world.open_published(), "SELECT snapshot_id FROM report.snapshot"),
        ["{'snapshot_id': 2026-11-20T020000Z}"]
    );
}

#[test]
fn a_file_that_may_hold_erased_values_is_written_anew() {
    let world = World::new();
    let secret = "01017012345";
    world
        .conn
        .execute_batch(&format!(
            "INSERT INTO main.cases (id, office) VALUES (2, '{secret}'); CHECKPOINT; \
             UPDATE main.cases SET office = 'a hash' WHERE id = 2; CHECKPOINT"
        ))
        .unwrap();
    let holds = |path: PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
    };
    assert!(holds(world.dir.path().join("the store.duckdb")), "a free block still has it");
    world.conn.execute_batch("INSERT INTO sync.meta VALUES ('erased_values', 'true')").unwrap();
    world.publish(T2).unwrap();
    assert!(!holds(world.database()));
}

#[test]
fn a_reader_of_an_older_state_keeps_nothing_from_the_copy() {
    let world = World::new();
    let reader = world.conn.try_clone().unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM main.cases").unwrap();
    world
        .conn
        .execute_batch(
            "UPDATE main.cases SET office = 'newer' WHERE id = 1; \
             INSERT INTO main.cases (id) VALUES (2); DELETE FROM history.cases",
        )
        .unwrap();
    world.publish(T2).unwrap();
    let copy = world.open_published();
    assert_eq!(
        rows(&copy, "SELECT id, office FROM main.cases"),
        ["{'id': 1, 'office': newer}", "{'id': 2, 'office': NULL}"]
    );
    assert_eq!(rows(&copy, "FROM history.cases"), Vec::<String>::new());
    assert_eq!(rows(&reader, "SELECT office FROM main.cases"), ["{'office': Sentrum}"]);
}

#[test]
fn a_write_that_does_not_end_keeps_nobody_from_publishing() {
    let world = World::new();
    world.conn.execute_batch("INSERT INTO main.cases (id) VALUES (2)").unwrap();
    // The feed's ledger writes beside the writer, though never for so long.
    let ledger = world.conn.try_clone().unwrap();
    ledger.execute_batch("BEGIN; INSERT INTO sync.meta VALUES ('not committed', 'x')").unwrap();
    world.publish(T2).unwrap();
    let copy = world.open_published();
    assert_eq!(rows(&copy, "SELECT id FROM main.cases"), ["{'id': 1}", "{'id': 2}"]);
    assert_eq!(
        rows(&copy, "SELECT snapshot_id FROM report.snapshot"),
        ["{'snapshot_id': 2026-11-20T020000Z}"]
    );
    assert_eq!(rows(&copy, "FROM sync.meta WHERE key = 'not committed'"), Vec::<String>::new());
    ledger.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_guid_is_text_in_parquet() {
    let mut world = World::new();
    world
        .conn
        .execute_batch(
            "CREATE TABLE main.guids (id UUID, others UUID[]);
             INSERT INTO main.guids VALUES ('0123456789abcdef0123456789abcdef', [uuid()]), (NULL, NULL)",
        )
        .unwrap();
    world.tables.push("guids");
    world.publish(T2).unwrap();
    let path = world.parquet().join("latest/guids/data.parquet");
    let parquet = format!("FROM read_parquet({})", sql::text(path.to_str().unwrap()));
    assert_eq!(
        rows(&world.conn, &format!("SELECT column_type FROM (DESCRIBE {parquet})")),
        ["{'column_type': 'VARCHAR[]'}", "{'column_type': VARCHAR}"]
    );
    assert_eq!(
        rows(&world.conn, &parquet),
        rows(&world.conn, "SELECT id::VARCHAR AS id, others::VARCHAR[] AS others FROM main.guids")
    );
}
