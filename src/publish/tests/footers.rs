//! What the manifest says of columns, and that no file counts that is not what was written.

use serde_json::{Value, json};

use super::*;
use crate::publish::columns::Column;
use crate::publish::footer::{self, FileStatistics};

/// A file of these rows, with several row groups, and the columns that were asked for.
struct Written {
    path: PathBuf,
    columns: Vec<Column>,
    rows: u64,
    _dir: TempDir,
}

impl Written {
    fn new(query: &str) -> Written {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.parquet");
        let conn = Connection::open_in_memory_with_flags(no_extensions()).unwrap();
        let columns = conn
            .prepare(&format!("SELECT column_name, column_type FROM (DESCRIBE {query})"))
            .unwrap()
            .query_map([], |row| Ok(Column { name: row.get(0)?, kind: row.get(1)? }))
            .unwrap()
            .map(std::result::Result::unwrap)
            .collect();
        let copy = format!(
            "COPY ({query}) TO {} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 2048)",
            sql::text(path.to_str().unwrap())
        );
        let rows: i64 = conn.query_row(&copy, [], |row| row.get(0)).unwrap();
        Written { path, columns, rows: rows.unsigned_abs(), _dir: dir }
    }

    fn read(&self) -> Result<FileStatistics> {
        footer::read(&self.path, "t/data.parquet", &self.columns, self.rows)
    }

    fn statistics(&self) -> Value {
        serde_json::to_value(self.read().unwrap()).unwrap()
    }

    fn refusal(&self) -> String {
        let error = self.read().unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        let text = error.chain();
        assert!(text.contains("t/data.parquet"), "{text}");
        text
    }
}

/// Rows in three row groups, the smallest and the largest in the second.
const ROWS: &str = "SELECT (i + 1000) % 5000 AS i FROM range(5000) r(i)";

#[test]
fn the_ends_of_all_row_groups_together_are_those_of_the_file() {
    let file = Written::new(&format!(
        "SELECT i - 2500 AS big, CAST(i - 2500 AS SMALLINT) AS small, \
           CAST(CAST(i - 2500 AS DECIMAL(9, 2)) / 100 AS DECIMAL(18, 2)) AS money, \
           CAST(CAST(i - 4999 AS DECIMAL(18, 6)) / 1000000 AS DECIMAL(18, 6)) AS fraction, \
           CAST(i - 2500 AS DECIMAL(38, 2)) AS sum, CAST(i % 99 AS DECIMAL(4, 1)) AS narrow, \
           CAST(CAST(TIMESTAMP '1969-12-31 23:59:59.5' + INTERVAL (i) SECOND AS VARCHAR) || '+00' \
             AS TIMESTAMPTZ) AS at, \
           DATE '1899-12-31' + CAST(i AS INTEGER) AS day, i > 4000 AS flag, true AS always \
         FROM ({ROWS})"
    ));
    assert_eq!(
        file.statistics(),
        json!({
            "big": {"min": -2500, "max": 2499, "nulls": 0},
            "small": {"min": -2500, "max": 2499, "nulls": 0},
            "money": {"min": "-25.00", "max": "24.99", "nulls": 0},
            "fraction": {"min": "-0.004999", "max": "0.000000", "nulls": 0},
            "sum": {"min": "-2500.00", "max": "2499.00", "nulls": 0},
            "narrow": {"min": "0.0", "max": "98.0", "nulls": 0},
            "at": {
                "min": "1969-12-31T23:59:59.500000Z", "max": "1970-01-01T01:23:18.500000Z",
                "nulls": 0
            },
            "day": {"min": "1899-12-31", "max": "1913-09-08", "nulls": 0},
            "flag": {"min": false, "max": true, "nulls": 0},
            "always": {"min": true, "max": true, "nulls": 0},
        })
    );
}

#[test]
fn digits_that_no_float_holds_are_told_as_they_are() {
    let file = Written::new(
        "SELECT 9007199254740993 AS id, CAST('-9999999999999999.99' AS DECIMAL(18, 2)) AS money, \
           CAST('-999999999999999999999999999999999999.99' AS DECIMAL(38, 2)) AS sum, \
           CAST('0.000001' AS DECIMAL(18, 6)) AS fraction, CAST('-0.05' AS DECIMAL(18, 2)) AS cents",
    );
    let found = file.statistics();
    assert_eq!(found["id"]["min"], json!(9_007_199_254_740_993_i64));
    assert_eq!(found["money"]["max"], "-9999999999999999.99");
    assert_eq!(found["sum"]["min"], "-999999999999999999999999999999999999.99");
    assert_eq!(found["fraction"]["max"], "0.000001");
    assert_eq!(found["cents"]["min"], "-0.05");
}

#[test]
fn text_and_lists_have_no_ends_and_what_is_not_known_is_left_out() {
    let file = Written::new(&format!(
        "SELECT 'Kari' || i AS name, [i] AS list, CAST(uuid() AS VARCHAR) AS guid, \
           i::DOUBLE AS approximate, TIMESTAMPTZ '294000-01-01 00:00:00+00' AS far \
         FROM ({ROWS})"
    ));
    assert_eq!(
        file.statistics(),
        json!({
            "name": {"nulls": 0}, "guid": {"nulls": 0}, "approximate": {"nulls": 0},
            "far": {"nulls": 0}
        })
    );
}

#[test]
fn null_is_no_value() {
    let file = Written::new(
        "SELECT CAST(NULL AS BIGINT) AS none, CAST(NULL AS DECIMAL(18, 2)) AS no_money, \
           CASE WHEN i >= 4096 THEN i END AS late, CASE WHEN i < 3 THEN i - 5 END AS early \
         FROM range(5000) r(i)",
    );
    assert_eq!(
        file.statistics(),
        json!({
            "none": {"nulls": 5000}, "no_money": {"nulls": 5000},
            "late": {"min": 4096, "max": 4999, "nulls": 4096},
            "early": {"min": -5, "max": -3, "nulls": 4997},
        })
    );
}

#[test]
fn a_file_without_rows_has_columns_and_no_statistics() {
    let mut file = Written::new("SELECT 1 AS id, 'x' AS name, [1] AS list WHERE false");
    assert_eq!(file.statistics(), json!({}));
    file.rows = 1;
    assert!(file.refusal().contains("0 rows instead of 1"), "{}", file.refusal());
}

#[test]
fn other_rows_or_columns_than_were_asked_for_are_refused() {
    let mut file =
        Written::new("SELECT 1::BIGINT AS id, 1.5::DECIMAL(18, 2) AS money, 'x' AS name");
    file.rows = 2;
    assert!(file.refusal().contains("it has 1 rows instead of 2"), "{}", file.refusal());
    file.rows = 1;
    for (at, kind) in [(0, "VARCHAR"), (0, "INTEGER"), (1, "DECIMAL(18,6)"), (2, "BIGINT")] {
        let right = std::mem::replace(&mut file.columns[at].kind, kind.to_owned());
        let expected = format!("column {} is not {kind}", file.columns[at].name);
        assert!(file.refusal().contains(&expected), "{}", file.refusal());
        file.columns[at].kind = right;
    }
    file.columns[2].name = "other".to_owned();
    assert!(file.refusal().contains("instead of"), "{}", file.refusal());
    file.columns.pop();
    assert!(file.refusal().contains("instead of"), "{}", file.refusal());
}

#[test]
fn a_file_that_was_cut_or_lost_a_piece_is_refused() {
    let file = Written::new(&format!("SELECT i AS id, 'Kari' || i AS name FROM ({ROWS})"));
    let whole = fs::read(&file.path).unwrap();
    file.read().unwrap();
    for length in [0, 3, 8, 12, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        fs::write(&file.path, &whole[..length]).unwrap();
        assert!(file.refusal().contains("no whole Parquet file"), "{length}: {}", file.refusal());
    }
    // The footer alone: what it tells of is not there.
    let mut holed = whole[..4].to_vec();
    holed.extend(&whole[whole.len() / 2..]);
    fs::write(&file.path, &holed).unwrap();
    assert!(file.refusal().contains("lies outside of it"), "{}", file.refusal());
    // Zeros where the footer was, as after a power cut.
    let mut zeroed = whole.clone();
    let end = zeroed.len() - 8;
    zeroed[end - 200..end].fill(0);
    fs::write(&file.path, &zeroed).unwrap();
    file.refusal();
}

#[test]
fn the_manifest_has_the_statistics_of_every_file() {
    let mut world = World::new();
    world
        .conn
        .execute_batch(
            "CREATE TABLE main.lines (journal_id BIGINT, journal_month DATE, amount DECIMAL(18,2));
             INSERT INTO main.lines VALUES (1, '2026-10-01', 20.20), (2, '2026-10-01', NULL);
             INSERT INTO sync.changes VALUES ('lines', '2026-10', 1)",
        )
        .unwrap();
    world.tables.push("lines");
    world.publish(T2).unwrap();
    let manifest = world.latest();
    let of = |table: &str, column: &str| {
        let file = manifest.files.iter().find(|file| file.table == table).unwrap();
        serde_json::to_value(&file.statistics.as_ref().unwrap()[column]).unwrap()
    };
    assert_eq!(of("cases", "id"), json!({"min": 1, "max": 1, "nulls": 0}));
    assert_eq!(
        of("cases", "asking_price"),
        json!({"min": "1000.10", "max": "1000.10", "nulls": 0})
    );
    let activated = "2026-05-05T10:00:00.000000Z";
    assert_eq!(
        of("cases", "case_activated_date"),
        json!({"min": activated, "max": activated, "nulls": 0})
    );
    assert_eq!(of("cases", "office"), json!({"nulls": 0}), "text");
    assert_eq!(of("lines", "amount"), json!({"min": "20.20", "max": "20.20", "nulls": 1}));
    let day = of("report.calendar", "day");
    assert_eq!(day, json!({"min": "2026-01-01", "max": "2026-12-31", "nulls": 0}));
    let text = fs::read_to_string(world.parquet().join("latest/manifest.json")).unwrap();
    assert!(!text.contains("Sentrum"), "no text of a row is in the manifest");
    let lines = text.lines().filter(|line| line.contains("\"statistics\":{")).count();
    assert_eq!(lines, manifest.files.len(), "a line per file");
    assert!(manifest.files.iter().all(|file| file.statistics.is_some()));
}

/// Takes the statistics out of the manifest of the newest snapshot, as one of an earlier version.
fn forget_statistics(world: &World) {
    let path = world.parquet().join("latest/manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for file in manifest["files"].as_array_mut().unwrap() {
        file.as_object_mut().unwrap().remove("statistics").unwrap();
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[test]
fn a_linked_file_keeps_its_statistics_and_gets_those_that_an_earlier_version_did_not_write() {
    let world = World::new();
    world.publish(T2).unwrap();
    let first: Vec<_> = world.latest().files.into_iter().map(|file| file.statistics).collect();
    for at in ["2026-11-20T02:15:00Z", "2026-11-20T02:30:00Z"] {
        world.publish(at).unwrap();
        assert_eq!(world.linked_tables(), ["cases", "offices"]);
        let now: Vec<_> = world.latest().files.into_iter().map(|file| file.statistics).collect();
        assert_eq!(now[..2], first[..2]);
        forget_statistics(&world);
    }
}

#[test]
fn a_linked_file_without_statistics_is_written_anew_where_its_footer_cannot_be_read() {
    let world = World::new();
    world.publish(T2).unwrap();
    forget_statistics(&world);
    let file = world.parquet().join("latest/cases/data.parquet");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let length = fs::metadata(&file).unwrap().len();
    fs::write(&file, vec![0; usize::try_from(length).unwrap()]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    world.publish("2026-11-20T02:30:00Z").unwrap();
    assert_eq!(world.linked_tables(), ["offices"]);
    world.assert_sums();
}
