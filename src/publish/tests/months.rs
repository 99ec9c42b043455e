//! Journals: one file per month.

use super::*;

/// A journal of two months, counted by month.
fn journal(world: &mut World) {
    world
        .conn
        .execute_batch(
            "CREATE TABLE main.lines (journal_id BIGINT, journal_month DATE, line_number BIGINT,
                amount DECIMAL(18,2));
             INSERT INTO main.lines VALUES (1, '2026-09-01', 1, 10.10), (1, '2026-10-01', 1, 20.20),
                (2, '2026-10-01', 1, 30.30), (2, '2026-10-01', 2, 30.30);
             INSERT INTO sync.changes VALUES ('lines', '2026-09', 1), ('lines', '2026-10', 1)",
        )
        .unwrap();
    world.tables.push("lines");
}

fn inode(world: &World, file: &str) -> u64 {
    fs::metadata(world.parquet().join("latest/lines").join(file)).unwrap().ino()
}

fn files(world: &World) -> Vec<String> {
    names(&world.parquet().join("latest/lines"))
}

/// Rows of the whole folder, as a tool reads it that is pointed at it.
fn folder(world: &World) -> Vec<String> {
    let glob = world.parquet().join("latest/lines/*.parquet");
    rows(&world.conn, &format!("FROM read_parquet({})", sql::text(glob.to_str().unwrap())))
}

#[test]
fn a_journal_has_a_file_per_month_with_the_month_as_a_column() {
    let mut world = World::new();
    journal(&mut world);
    world.publish(T2).unwrap();
    assert_eq!(files(&world), ["2026-09.parquet", "2026-10.parquet"]);
    assert_eq!(folder(&world), rows(&world.conn, "FROM main.lines"));
    let listed: Vec<_> = world
        .latest()
        .files
        .into_iter()
        .filter(|file| file.table == "lines")
        .map(|file| (file.path, file.rows))
        .collect();
    let path = |month: &str| format!("snapshots/2026-11-20T020000Z/lines/{month}.parquet");
    assert_eq!(listed, [(path("2026-09"), 1), (path("2026-10"), 3)]);
    world.assert_sums();
}

#[test]
fn only_a_changed_month_is_written_and_a_month_that_is_gone_has_no_file() {
    let mut world = World::new();
    journal(&mut world);
    world.publish(T2).unwrap();
    let before = ["2026-09.parquet", "2026-10.parquet"].map(|file| inode(&world, file));
    world
        .conn
        .execute_batch(
            "UPDATE main.lines SET amount = 1 WHERE journal_month = '2026-10-01'; \
             UPDATE sync.changes SET counter = counter + 1 WHERE part = '2026-10'; \
             INSERT INTO main.lines VALUES (1, '2026-11-01', 1, 1); \
             INSERT INTO sync.changes VALUES ('lines', '2026-11', 1)",
        )
        .unwrap();
    world.publish("2026-11-20T02:15:00Z").unwrap();
    assert_eq!(inode(&world, "2026-09.parquet"), before[0]);
    assert_ne!(inode(&world, "2026-10.parquet"), before[1]);
    assert_eq!(folder(&world), rows(&world.conn, "FROM main.lines"));

    // What was counted for the table as a whole moves every month.
    world.conn.execute_batch("INSERT INTO sync.changes VALUES ('lines', '', 1)").unwrap();
    world.publish("2026-11-20T02:30:00Z").unwrap();
    assert_ne!(inode(&world, "2026-09.parquet"), before[0]);

    world
        .conn
        .execute_batch(
            "DELETE FROM main.lines WHERE journal_month = '2026-09-01'; \
             UPDATE sync.changes SET counter = counter + 1 WHERE part = '2026-09'",
        )
        .unwrap();
    world.publish("2026-11-20T02:45:00Z").unwrap();
    assert_eq!(files(&world), ["2026-10.parquet", "2026-11.parquet"]);
    world.assert_sums();
}

#[test]
fn a_journal_without_lines_still_has_its_columns() {
    let mut world = World::new();
    journal(&mut world);
    world.conn.execute_batch("DELETE FROM main.lines").unwrap();
    world.publish(T2).unwrap();
    assert_eq!(files(&world), ["empty.parquet"]);
    assert_eq!(folder(&world), Vec::<String>::new());
    let glob = world.parquet().join("latest/lines/*.parquet");
    let columns = |source: &str| {
        rows(&world.conn, &format!("SELECT column_name, column_type FROM (DESCRIBE FROM {source})"))
    };
    assert_eq!(
        columns(&format!("read_parquet({})", sql::text(glob.to_str().unwrap()))),
        columns("main.lines")
    );
    world.conn.execute_batch("INSERT INTO main.lines VALUES (1, '2026-10-01', 1, 1)").unwrap();
    world.publish("2026-11-20T02:15:00Z").unwrap();
    assert_eq!(files(&world), ["2026-10.parquet"]);
}
