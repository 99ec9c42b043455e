//! House is kept in the lake: few files, and no more work than that takes.

use duckdb::Connection;

use crate::lake::change;
use crate::support::follow::UNTHROTTLED;
use crate::support::lake::LakeWorld;
use crate::support::shown;

/// A key that may not remove, a store that lists too slowly: here a file that nobody can remove.
#[test]
fn where_house_cannot_be_kept_what_is_published_is_carried_all_the_same() {
    let Some(lake) = LakeWorld::in_a_file(6) else { return };
    lake.world.sync();
    let catalog = Connection::open(lake.world.path("data/lake.ducklake")).unwrap();
    let unremovable = "INSERT INTO ducklake_files_scheduled_for_deletion BY NAME SELECT 1000000 AS data_file_id, \
        '/proc/version' AS path, false AS path_is_relative, TIMESTAMPTZ '2026-01-01' AS schedule_start";
    catalog.execute_batch(unremovable).unwrap();
    drop(catalog);
    lake.configure(UNTHROTTLED, "keep_for = \"0s\"");
    for round in 0..2 {
        change(&lake, round);
        let output = lake.world.run(&["sync"]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        assert!(
            shown(&output).contains("house could not be kept in the lake"),
            "{}",
            shown(&output)
        );
        lake.assert_equal();
    }
}

/// Live files of the calendar in the lake, those of which rows are deleted, and the bytes of the largest.
fn calendar_files(conn: &Connection) -> (i64, i64, i64) {
    let catalog = "__ducklake_metadata_lake.main.ducklake";
    let files = format!(
        "SELECT count(*), count(d.data_file_id), max(f.file_size_bytes) FROM {catalog}_data_file f \
         LEFT JOIN {catalog}_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL \
         WHERE f.end_snapshot IS NULL AND f.table_id = (SELECT table_id FROM {catalog}_table \
           WHERE table_name = 'calendar' AND end_snapshot IS NULL)"
    );
    conn.query_row(&files, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
}

/// Writes the rows of the calendar of which `which` is true anew, as they are.
fn move_calendar(conn: &Connection, which: &str) {
    conn.execute_batch(&format!(
        "BEGIN; CREATE OR REPLACE TEMP TABLE moved AS FROM lake.report.calendar WHERE {which}; \
         DELETE FROM lake.report.calendar WHERE {which}; \
         INSERT INTO lake.report.calendar FROM temp.moved; COMMIT"
    ))
    .unwrap();
}

#[test]
fn many_small_changes_leave_few_files_behind() {
    let Some(lake) = LakeWorld::in_a_file(4) else { return };
    lake.world.sync();
    lake.configure(UNTHROTTLED, "keep_for = \"0s\"");
    let day = "(day - DATE '1900-01-01')";
    // So many publishings of so many rows, of which a last one changes one each; and what is left of them.
    for (round, (publishings, rows, left)) in [(40, 10, 1), (140, 40, 0)].into_iter().enumerate() {
        let conn = lake.meddler();
        // As casemirror does, who keeps no rows in the catalog.
        conn.execute_batch("CALL lake.set_option('data_inlining_row_limit', 0)").unwrap();
        for n in 0..publishings {
            let (first, end) = (n * rows, (n + 1) * rows);
            move_calendar(&conn, &format!("{day} >= {first} AND {day} < {end}"));
        }
        let end = publishings * rows;
        move_calendar(&conn, &format!("{day} >= 0 AND {day} < {end} AND {day} % {rows} = 0"));
        let (_, deleted, _) = calendar_files(&conn);
        assert!(deleted > publishings, "{deleted}");
        drop(conn);
        change(&lake, round);
        lake.world.sync();
        let (files, deleted, _) = calendar_files(&lake.reader());
        // What of a large file few rows are gone of is not written anew.
        assert!(files <= 3 && deleted == left, "{files}, {deleted}");
        lake.assert_equal();
    }
}

#[test]
fn a_large_file_is_not_written_anew_for_small_ones() {
    let Some(lake) = LakeWorld::in_a_file(4) else { return };
    lake.world.sync();
    lake.configure(UNTHROTTLED, "keep_for = \"0s\"");
    let conn = lake.meddler();
    let day = "(day - DATE '1900-01-01')";
    conn.execute_batch(
        "CREATE TEMP TABLE days AS FROM lake.report.calendar; DELETE FROM lake.report.calendar",
    )
    .unwrap();
    // Nine megabytes each.
    let large = |conn: &Connection, n: usize| {
        let file = lake.world.path(&format!("data/large{n}.parquet")).display().to_string();
        conn.execute_batch(&format!(
            "COPY (FROM temp.days WHERE {day} % 10 = {n}) TO '{file}' \
               (FORMAT parquet, KV_METADATA {{padding: repeat('x', 9000000)}}); \
             CALL ducklake_add_data_files('lake', 'calendar', '{file}', schema => 'report')"
        ))
        .unwrap();
    };
    (0..7).for_each(|n| large(&conn, n));
    conn.execute_batch(&format!(
        "INSERT INTO lake.report.calendar FROM temp.days WHERE {day} % 10 = 7; \
         INSERT INTO lake.report.calendar FROM temp.days WHERE {day} % 10 NOT BETWEEN 0 AND 7"
    ))
    .unwrap();
    assert_eq!(calendar_files(&conn).0, 9);
    drop(conn);
    change(&lake, 0);
    lake.world.sync();
    let (files, _, largest) = calendar_files(&lake.reader());
    assert!(files == 8 && largest > 9_000_000, "{files}, {largest}");
    lake.assert_equal();

    // Where there are several, they become one.
    let conn = lake.meddler();
    conn.execute_batch(&format!(
        "CREATE TEMP TABLE days AS FROM lake.report.calendar; \
         DELETE FROM lake.report.calendar WHERE {day} % 10 NOT BETWEEN 0 AND 6"
    ))
    .unwrap();
    large(&conn, 7);
    conn.execute_batch(&format!(
        "INSERT INTO lake.report.calendar FROM temp.days WHERE {day} % 10 NOT BETWEEN 0 AND 7"
    ))
    .unwrap();
    drop(conn);
    change(&lake, 3);
    lake.world.sync();
    assert_eq!(calendar_files(&lake.reader()).0, 1);
    lake.assert_equal();
}
