//! The file with the views, as a reader sees it who opened it once.

use std::sync::atomic::{AtomicBool, Ordering};

use duckdb::AccessMode;

use super::*;

impl World {
    fn with_views() -> World {
        let mut world = World::new();
        world.views = Some(world.dir.path().join("views.duckdb"));
        world.tables.push("revenue_journals");
        world
    }

    /// Read-only, as a BI tool opens it.
    fn open_views(&self) -> Connection {
        let config = no_extensions().access_mode(AccessMode::ReadOnly).unwrap();
        Connection::open_with_flags(self.views.as_ref().unwrap(), config).unwrap()
    }

    /// A case more, and a line of a journal in one of twelve months.
    fn change(&self, n: i64) {
        self.conn
            .execute_batch(&format!(
                "INSERT INTO main.cases (id, asking_price) VALUES ({n}, {n}.25); \
                 INSERT INTO main.revenue_journals (journal_month, line_id) \
                   VALUES (DATE '2026-01-01' + INTERVAL ({n} % 12) MONTH, {n}); \
                 UPDATE sync.changes SET counter = counter + 1"
            ))
            .unwrap();
    }

    fn views_are(&self) -> (u64, std::time::SystemTime) {
        let found = fs::metadata(self.views.as_ref().unwrap()).unwrap();
        (found.ino(), found.modified().unwrap())
    }
}

fn one<T: duckdb::types::FromSql>(conn: &Connection, sql: &str) -> T {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn one_connection_sees_each_of_a_hundred_snapshots() {
    let world = World::with_views();
    world.export(T2).unwrap();
    let reader = world.open_views();
    let mut prepared = reader.prepare("SELECT snapshot_id FROM report.snapshot").unwrap();
    let written = world.views_are();
    for n in 2..=101 {
        world.change(n);
        // Nothing is kept but the newest: whatever a view had remembered would be gone.
        let published = world.export(T2).unwrap();
        assert_eq!(published.views, Some(ViewsWritten::Unchanged));
        let id: String = one(&reader, "SELECT snapshot_id FROM report.snapshot");
        assert_eq!(id, published.snapshot_id);
        let id: String = prepared.query_row([], |row| row.get(0)).unwrap();
        assert_eq!(id, published.snapshot_id, "by a statement that was prepared once");
        let seen: (i64, i64, i64) = reader
            .query_row(
                "SELECT (SELECT count(*) FROM cases), (SELECT max(id) FROM cases), \
                   (SELECT count(*) FROM revenue_journals)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        assert_eq!(seen, (n, n, n - 1));
    }
    assert_eq!(world.views_are(), written, "the file was not touched");
}

#[test]
fn a_reader_sees_snapshots_come_and_go_without_an_error() {
    let mut world = World::with_views();
    world.tables.retain(|table| *table == "revenue_journals");
    for n in 0..24 {
        world.change(n + 2);
    }
    world.export(T2).unwrap();
    let reader = world.open_views();
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let done = &done;
        let reading = scope.spawn(move || {
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                seen.insert(one::<i64>(&reader, "SELECT count(*) FROM revenue_journals"));
            }
            seen
        });
        for n in 0..40 {
            world.change(n + 100);
            world.export(T2).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reading.join().unwrap()
    });
    assert!(seen.len() > 1, "the reader was too slow to see anything: {seen:?}");
}

#[test]
fn the_views_are_the_published_tables_with_types_and_comments() {
    let mut world = World::with_views();
    world
        .conn
        .execute_batch(
            "CREATE TABLE main.guids (id UUID, others UUID[], noted TIMESTAMPTZ, price DECIMAL(18,6));
             INSERT INTO main.guids VALUES
               ('0123456789abcdef0123456789abcdef', [uuid()], '2026-11-20 02:00:00.123456+00', 0.000001),
               (NULL, [NULL], NULL, NULL);
             COMMENT ON COLUMN main.guids.id IS 'it''s a comment'",
        )
        .unwrap();
    world.tables.push("guids");
    world.change(2);
    world.publish(T2).unwrap();
    let (views, published) = (world.open_views(), world.open_published());
    let mut names = world.tables.iter().map(|table| format!("main.{table}")).collect::<Vec<_>>();
    names.extend(crate::mirror::reports::RELATIONS.map(|name| format!("report.{name}")));
    let views_there =
        "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE NOT internal";
    let there: BTreeSet<String> =
        sql::query(&views, views_there, |row| row.get(0)).unwrap().into_iter().collect();
    assert_eq!(there, names.iter().cloned().collect());
    for name in names {
        let all = format!("FROM {name}");
        assert_eq!(rows(&views, &all), rows(&published, &all), "{name}");
        let (schema, table) = name.split_once('.').unwrap();
        let columns = format!(
            "SELECT column_name, data_type, comment FROM duckdb_columns() \
             WHERE schema_name = '{schema}' AND table_name = '{table}'"
        );
        assert_eq!(rows(&views, &columns), rows(&published, &columns), "{name}");
        let kinds = format!("SELECT column_name, column_type FROM (DESCRIBE FROM {name})");
        assert_eq!(rows(&views, &kinds), rows(&published, &kinds), "{name}");
        let comment = format!(
            "SELECT comment FROM (SELECT schema_name AS s, table_name AS t, comment FROM duckdb_tables() \
               UNION ALL SELECT schema_name, view_name, comment FROM duckdb_views()) \
             WHERE s = '{schema}' AND t = '{table}'"
        );
        assert_eq!(rows(&views, &comment), rows(&published, &comment), "{name}");
    }
}

#[test]
fn the_views_change_in_place_when_a_table_does() {
    let mut world = World::with_views();
    assert_eq!(world.export(T2).unwrap().views, Some(ViewsWritten::Written));
    let file = world.views_are();
    world.tables.push("employees");
    world
        .conn
        .execute_batch(
            "ALTER TABLE main.cases ADD COLUMN more INTEGER; UPDATE main.cases SET more = 7; \
             UPDATE sync.changes SET counter = counter + 1; COMMENT ON TABLE main.offices IS 'other words'",
        )
        .unwrap();
    assert_eq!(world.export(T2).unwrap().views, Some(ViewsWritten::Written));
    assert_eq!(world.views_are().0, file.0, "it is the same file");
    let views = world.open_views();
    assert_eq!(rows(&views, "SELECT more FROM main.cases"), ["{'more': 7}"]);
    assert_eq!(one::<i64>(&views, "SELECT count(*) FROM employees"), 0);
    let comment = "SELECT comment FROM duckdb_views() WHERE view_name = 'offices'";
    assert_eq!(one::<String>(&views, comment), "other words");
    drop(views);
    world.tables.retain(|table| *table != "employees");
    assert_eq!(world.export(T2).unwrap().views, Some(ViewsWritten::Written));
    let left = "SELECT count(*) FROM duckdb_views() WHERE view_name = 'employees'";
    assert_eq!(one::<i64>(&world.open_views(), left), 0);
    assert_eq!(world.export(T2).unwrap().views, Some(ViewsWritten::Unchanged));
    assert_eq!(
        names(world.dir.path()),
        [
            "parquet",
            "the store.duckdb",
            "the store.duckdb.publishing",
            "the store.duckdb.wal",
            "views.duckdb"
        ]
    );
}

#[test]
fn readers_may_find_the_snapshots_in_another_folder() {
    let mut world = World::with_views();
    // It is there only for them, and none of its characters is a pattern.
    let root = world.dir.path().join("it's [seen] by*them?");
    world.views_root = Some(root.clone());
    world.publish(T2).unwrap();
    let views = world.open_views();
    assert!(views.prepare("FROM main.cases").is_err(), "nothing is there yet");
    std::os::unix::fs::symlink(world.parquet(), &root).unwrap();
    fs::create_dir(world.dir.path().join("it's s byothem!")).unwrap();
    assert_eq!(rows(&views, "SELECT id FROM main.cases"), ["{'id': 1}"]);
    // Attached under another name, too.
    let other = Connection::open_in_memory_with_flags(no_extensions()).unwrap();
    let file = sql::text(world.views.as_ref().unwrap().to_str().unwrap());
    other.execute_batch(&format!("ATTACH {file} AS elsewhere (READ_ONLY)")).unwrap();
    assert_eq!(rows(&other, "SELECT id FROM elsewhere.main.cases"), ["{'id': 1}"]);
}

#[test]
fn a_file_that_cannot_be_written_keeps_nothing_from_being_published() {
    let mut world = World::with_views();
    world.views = Some(world.dir.path().join("mine/views.duckdb"));
    fs::write(world.dir.path().join("mine"), "no folder").unwrap();
    let published = world.export(T2).unwrap();
    assert!(published.parquet.is_some(), "the snapshot is there");
    let Some(ViewsWritten::Failed(why)) = published.views else { panic!("{:?}", published.views) };
    assert!(why.contains("mine"), "{why}");
}

#[test]
fn a_file_that_this_store_has_not_written_stays() {
    let world = World::with_views();
    let file = world.views.clone().unwrap();
    fs::write(&file, "mine").unwrap();
    assert_eq!(world.export(T2).unwrap().views, Some(ViewsWritten::Foreign));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    fs::remove_file(&file).unwrap();
    world.export(T2).unwrap();
    let writer = Connection::open(&file).unwrap();
    writer.execute_batch("UPDATE sync.views SET store_id = 'two', definition = ''").unwrap();
    writer.close().map_err(|(_, e)| e).unwrap();
    assert_eq!(world.export(T2).unwrap().views, Some(ViewsWritten::Foreign));
    for (id, is_ours) in [("one", false), ("two", true)] {
        assert_eq!(check_views(&file, id).is_ok(), is_ours, "{id}");
    }
}
