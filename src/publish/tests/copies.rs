//! The store as a file, for a backup.

use std::os::unix::fs::FileExt;

use super::*;
use crate::durable::Replacement;

fn cases(conn: &Connection) -> i64 {
    sql::scalar_i64(conn, "SELECT count(*) FROM main.cases").unwrap()
}

#[test]
fn it_is_handed_over_as_it_was_while_rows_are_committed() {
    for holds_erased in [false, true] {
        let world = World::new();
        if holds_erased {
            let noted = "INSERT INTO sync.meta VALUES ('erased_values', 'true')";
            world.conn.execute_batch(noted).unwrap();
        }
        let reading = world.conn.try_clone().unwrap();
        let pinned =
            Pinned::with_file(&world.conn, reading, (world.store(), &Bounds::of("1GB"))).unwrap();
        let commit = |id: i64| {
            let insert = format!("INSERT INTO main.cases (id) VALUES ({id})");
            world.conn.execute_batch(&insert).unwrap();
        };
        commit(2);
        let copy = world.dir.path().join("copy.duckdb");
        let scratch = Replacement::of(&world.dir.path().join("scratch")).unwrap();
        let written_anew = scratch.path().to_owned();
        let handed_over = pinned.with_store(scratch, |file, bytes| {
            commit(3);
            assert_eq!(written_anew.exists(), holds_erased);
            let mut store = vec![0; usize::try_from(bytes).unwrap()];
            file.read_exact_at(&mut store, 0).unwrap();
            fs::write(&copy, store).unwrap();
            Ok(())
        });
        handed_over.unwrap();
        assert!(!written_anew.exists());
        assert_eq!(cases(&Connection::open_with_flags(&copy, no_extensions()).unwrap()), 1);
        assert_eq!(cases(&world.conn), 3);
        let threshold = "SELECT current_setting('checkpoint_threshold')";
        let threshold: String = world.conn.query_row(threshold, [], |row| row.get(0)).unwrap();
        assert!(threshold.starts_with("238."), "as it usually is: {threshold}");
    }
}
