mod bucket;
mod copies;
mod footers;
mod links;
mod meanwhile;
mod months;
mod readers;
mod reports;
mod views;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Mutex;

use duckdb::Connection;
use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::mirror::Bounds;
use crate::mirror::reports::fixture::{no_extensions, store};
use crate::progress::Progress;
use crate::sql;

/// A store with a few rows, and folders to publish to.
struct World {
    dir: TempDir,
    conn: Connection,
    /// What is published as Parquet.
    tables: Vec<&'static str>,
    /// The file with views, and where its readers find the snapshots, if elsewhere.
    views: Option<PathBuf>,
    views_root: Option<PathBuf>,
    /// Where snapshots go instead of a folder, whose store it is then, and whether earlier ones hold what was erased.
    bucket: Option<Bucket>,
    /// Where the snapshot is that it uploaded last, if that is to be known.
    uploaded: Option<String>,
    erasure: Option<&'static str>,
    store_id: &'static str,
    erased: bool,
    /// Held by what commits rows while something is published: nothing does while a state is frozen.
    committing: Mutex<()>,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let conn = store(Some(&dir.path().join("the store.duckdb")), 2026..=2026);
        conn.execute_batch(
            "INSERT INTO main.cases (id, office_id, office, case_activated_date, asking_price)
                VALUES (1, 1, 'Sentrum', '2026-05-05T10:00:00Z', 1000.10);
             INSERT INTO history.cases (id, _change) VALUES (1, 'updated');
             INSERT INTO sync.changes VALUES ('cases', '', 1), ('offices', '', 0)",
        )
        .unwrap();
        World {
            dir,
            conn,
            tables: vec!["cases", "offices"],
            views: None,
            views_root: None,
            bucket: None,
            uploaded: None,
            erasure: None,
            store_id: "one",
            erased: false,
            committing: Mutex::default(),
        }
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("out/it's \"quoted\".duckdb")
    }

    fn parquet(&self) -> PathBuf {
        self.dir.path().join("parquet")
    }

    fn publish(&self, at: &str) -> Result<Published> {
        self.publish_to(Some(&self.database()), at)
    }

    /// A snapshot alone.
    fn export(&self, at: &str) -> Result<Published> {
        self.publish_to(None, at)
    }

    fn publish_to(&self, database: Option<&Path>, at: &str) -> Result<Published> {
        self.publish_until(&Stop::default(), database, at)
    }

    /// Waits as long as it takes.
    fn turn(&self, stop: &Stop) -> Result<Turn> {
        Turn::wait(&self.dir.path().join("the store.duckdb"), Duration::MAX, stop)
    }

    fn publish_until(&self, stop: &Stop, database: Option<&Path>, at: &str) -> Result<Published> {
        let parquet = self.parquet();
        let root = self.bucket.clone().map_or(Root::Folder(parquet.clone()), Root::Bucket);
        let targets = Targets {
            database,
            parquet: Some(ParquetTarget {
                root: &root,
                tables: &self.tables,
                keep_snapshots: 2,
                erased: self.erased,
                keep_for: Duration::from_secs(3600),
            }),
            views: self.views.as_deref().map(|file| ViewsTarget {
                file,
                parquet: &parquet,
                root: self.views_root.as_deref().unwrap_or(&parquet),
            }),
        };
        let watermark = Some("2026-11-20T01:50:00.1234567Z".parse().unwrap());
        let uploaded = self.uploaded.clone();
        let erasure = self.erasure.map(str::to_owned);
        let info = SnapshotInfo { watermark, uploaded, erasure, ..info(self.store_id, at) };
        let begun = begin(&targets, info, Some(self.turn(stop)?), stop)?;
        let reading = self.conn.try_clone().unwrap();
        let frozen = {
            let _alone = self.committing.lock().unwrap();
            match database {
                Some(_) => Frozen::with_file(
                    &self.conn,
                    reading,
                    (self.store(), &Bounds::of("1GB")),
                    begun,
                )?,
                None => Frozen::without_file(reading, begun)?,
            }
        };
        publish(frozen, &targets, stop, &Progress::silent())
    }

    /// Never closed, as that would drop DuckDB's lock.
    fn store(&self) -> &'static fs::File {
        let file = fs::File::open(self.dir.path().join("the store.duckdb")).unwrap();
        Box::leak(Box::new(file))
    }

    fn open_published(&self) -> Connection {
        let config = no_extensions().access_mode(duckdb::AccessMode::ReadOnly).unwrap();
        Connection::open_with_flags(self.database(), config).unwrap()
    }

    /// The tables and reports whose files of one snapshot are those of another.
    fn linked_between(&self, before: &str, last: &str) -> BTreeSet<String> {
        let snapshots = self.parquet().join("snapshots");
        let manifest = Manifest::read(&snapshots.join(last)).unwrap();
        let inode = |path: &Path| fs::metadata(path).map(|found| found.ino()).ok();
        let is_linked = |file: &manifest::File| {
            let within = file.path.split_once(last).unwrap().1;
            let other = snapshots.join(before).join(within.trim_start_matches('/'));
            inode(&other) == inode(&self.parquet().join(&file.path))
        };
        manifest.files.into_iter().filter(is_linked).map(|file| file.table).collect()
    }

    /// Of the newest snapshot and the one before.
    fn linked(&self) -> BTreeSet<String> {
        let all = names(&self.parquet().join("snapshots"));
        let [.., before, last] = &all[..] else { panic!("there is one snapshot alone") };
        self.linked_between(before, last)
    }

    fn linked_tables(&self) -> Vec<String> {
        self.linked().into_iter().filter(|table| !table.starts_with("report.")).collect()
    }

    fn latest(&self) -> Manifest {
        Manifest::read(&self.parquet().join("latest")).unwrap()
    }
}

const T2: &str = "2026-11-20T02:00:00Z";

fn rows(conn: &Connection, sql: &str) -> Vec<String> {
    let sql = format!("SELECT CAST(t AS VARCHAR) FROM ({sql}) AS t ORDER BY 1");
    conn.prepare(&sql)
        .unwrap()
        .query_map([], |r| r.get(0))
        .unwrap()
        .map(std::result::Result::unwrap)
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What makes up a database, with the comments; the catalog's own oids and name left out.
const SHAPE: [&str; 4] = [
    "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = current_database()",
    "SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns() \
     WHERE database_name = current_database() AND NOT internal",
    "SELECT schema_name, view_name, comment FROM duckdb_views() \
     WHERE database_name = current_database() AND NOT internal",
    "SELECT schema_name, function_name, parameters, comment FROM duckdb_functions() \
     WHERE database_name = current_database() AND NOT internal",
];

#[test]
fn the_published_file_is_the_store_with_all_its_comments() {
    let world = World::new();
    world.publish(T2).unwrap();
    let copy = world.open_published();
    for sql in SHAPE {
        let expected = rows(&world.conn, sql);
        assert!(!expected.is_empty(), "{sql}");
        assert_eq!(rows(&copy, sql), expected, "{sql}");
    }
    for table in ["main.cases", "history.cases", "sync.changes", "report.signed_cases"] {
        let sql = format!("FROM {table}");
        assert_eq!(rows(&copy, &sql), rows(&world.conn, &sql), "{table}");
    }
    assert_eq!(
        rows(&copy, "FROM report.snapshot"),
        ["{'snapshot_id': 2026-11-20T020000Z, 'taken_at': '2026-11-20 02:00:00+00', \
           'watermark': '2026-11-20 01:50:00.123456+00', 'complete': true}"]
    );
}

#[test]
fn the_published_file_is_alone_read_only_and_replaces_the_last() {
    let world = World::new();
    world.publish(T2).unwrap();
    // A reader keeps what it has open.
    let reader = world.open_published();
    fs::write(crate::durable::with_suffix(&world.database(), ".wal"), "left by a client").unwrap();
    world.conn.execute_batch("INSERT INTO main.cases (id) VALUES (2)").unwrap();
    world.publish("2026-11-20T02:01:00Z").unwrap();
    assert_eq!(rows(&reader, "SELECT id FROM main.cases"), ["{'id': 1}"]);
    reader.close().map_err(|(_, e)| e).unwrap();

    assert_eq!(
        rows(&world.open_published(), "SELECT id FROM main.cases"),
        ["{'id': 1}", "{'id': 2}"]
    );
    let folder = world.database().parent().unwrap().to_owned();
    assert_eq!(names(&folder), ["it's \"quoted\".duckdb"]);
    assert_eq!(fs::metadata(world.database()).unwrap().permissions().mode() & 0o777, 0o444);
}

#[test]
fn database_and_snapshot_show_one_state_though_the_writer_goes_on() {
    let world = World::new();
    let writer = world.conn.try_clone().unwrap();
    let committing = &world.committing;
    let (written, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 100..20_000 {
                let _alone = committing.lock().unwrap();
                // Both tables in one transaction: every committed state has as many of each.
                writer
                    .execute_batch(&format!(
                        "BEGIN; INSERT INTO main.cases (id) VALUES ({id}); \
                         INSERT INTO main.offices (id) VALUES ({id}); \
                         UPDATE sync.changes SET counter = counter + 1; COMMIT"
                    ))
                    .unwrap();
                if written.send(id).is_err() {
                    break; // The publisher has seen enough, or failed.
                }
            }
        });
        // Owned here, so that the writer ends with this closure, however it ends.
        let (received, mut committed) = (received, 0);
        for minute in 0..5 {
            // At least one more transaction than the time before.
            committed += 1 + received.recv().map(|_| received.try_iter().count()).unwrap();
            let published = world.publish(&format!("2026-11-20T02:{minute:02}:00Z")).unwrap();
            let copy = world.open_published();
            let ids = |table: &str| rows(&copy, &format!("SELECT id FROM {table} WHERE id >= 100"));
            let cases = ids("main.cases");
            assert!(cases.len() >= committed, "what was committed before is in");
            assert_eq!(cases, ids("main.offices"));
            for table in ["cases", "offices"] {
                let path = world.parquet().join("latest").join(table).join("data.parquet");
                let parquet = format!("read_parquet({})", sql::text(path.to_str().unwrap()));
                assert_eq!(cases, ids(&parquet), "{table}");
            }
            let snapshot = rows(&copy, "SELECT snapshot_id FROM report.snapshot");
            assert_eq!(snapshot, [format!("{{'snapshot_id': {}}}", published.snapshot_id)]);
            assert_eq!(world.latest().snapshot_id, published.snapshot_id);
        }
    });
}

#[test]
fn the_log_grows_as_before_after_every_publishing() {
    let world = World::new();
    let limit = "SELECT current_setting('checkpoint_threshold')";
    // An earlier one could not take it back.
    world.conn.execute_batch("SET GLOBAL checkpoint_threshold = '1000TB'").unwrap();
    for at in ["2026-11-20T02:00:00Z", "2026-11-20T03:00:00Z", "2026-11-20T04:00:00Z"] {
        world.publish(at).unwrap();
        let set: String = world.conn.query_row(limit, [], |row| row.get(0)).unwrap();
        assert_eq!(set, "238.4 MiB", "250 MB, as DuckDB shows them");
    }
}

#[test]
fn the_manifest_names_every_file_as_it_is() {
    let world = World::new();
    let published = world.publish(T2).unwrap().parquet.unwrap();
    let manifest = world.latest();
    assert_eq!(
        fs::read_link(world.parquet().join("latest")).unwrap(),
        Path::new("snapshots/2026-11-20T020000Z")
    );
    let tables: Vec<_> = manifest.files.iter().map(|f| f.table.as_str()).collect();
    let reports = crate::mirror::reports::relations(&world.conn).unwrap();
    let expected: Vec<_> = ["cases", "offices"]
        .map(str::to_owned)
        .into_iter()
        .chain(reports.iter().map(|name| format!("report.{name}")))
        .collect();
    assert_eq!(tables, expected);
    let counts: Vec<_> = manifest.files.iter().map(|f| f.rows).take(3).collect();
    assert_eq!(counts, [1, 0, 365], "cases, offices, report.calendar");
    assert_eq!(published.rows, manifest.files.iter().map(|f| f.rows).sum::<u64>());
    assert_eq!(published.files, tables.len());
    assert_eq!(manifest.files[0].path, "snapshots/2026-11-20T020000Z/cases/data.parquet");
    assert_eq!(manifest.duckdb_version, world.conn.version().unwrap());
    for file in &manifest.files {
        let path = world.parquet().join(&file.path);
        assert_eq!(manifest::measure(&path).unwrap(), (file.bytes, file.sha256.clone()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        let parquet = format!("FROM read_parquet({})", sql::text(path.to_str().unwrap()));
        if file.table != "report.snapshot" {
            let table = format!("FROM {}", file.table);
            assert_eq!(rows(&world.conn, &parquet), rows(&world.conn, &table), "{table}");
        }
    }
}

#[test]
fn old_snapshots_go_and_the_rest_of_the_folder_stays() {
    let world = World::new();
    for (n, at) in [T2, "2026-11-20T02:00:00.5Z", "2026-11-20T02:20:00Z"].into_iter().enumerate() {
        world.publish(at).unwrap();
        assert_eq!(names(&world.parquet().join("snapshots")).len(), n + 1, "all are young");
    }
    fs::create_dir(world.parquet().join("snapshots/mine")).unwrap();
    fs::create_dir(world.parquet().join("snapshots/.2026.tmp-0123456789abcdef-3")).unwrap();
    world.publish("2026-11-20T03:10:00Z").unwrap();
    assert_eq!(
        names(&world.parquet().join("snapshots")),
        ["2026-11-20T022000Z", "2026-11-20T031000Z", "mine"]
    );
}

#[test]
fn a_failure_leaves_what_was_published_and_the_connection_usable() {
    let world = World::new();
    world.publish(T2).unwrap();
    let before = fs::read(world.database()).unwrap();
    // A report that cannot be computed any more: the copy is written by then.
    world
        .conn
        .execute_batch(
            "CREATE OR REPLACE VIEW report.total_cost AS SELECT error('cannot be read') AS x",
        )
        .unwrap();
    let conn = world.conn.try_clone().unwrap();
    let error = world.publish("2026-11-20T02:15:00Z").unwrap_err();
    assert_eq!(error.kind(), Kind::Store);
    assert!(error.chain().contains("report/total_cost"), "{}", error.chain());
    assert_eq!(fs::read(world.database()).unwrap(), before);
    assert_eq!(names(world.database().parent().unwrap()).len(), 1);
    assert_eq!(names(&world.parquet()), ["latest", "snapshots"]);
    assert_eq!(names(&world.parquet().join("snapshots")), ["2026-11-20T020000Z"]);
    // Nothing is attached or open any more.
    assert_eq!(
        rows(&conn, "SELECT database_name FROM duckdb_databases() WHERE NOT internal").len(),
        1
    );
    crate::mirror::reports::create_all(
        &world.conn,
        crate::catalog::Catalog::load(None).unwrap().resources(),
        &crate::config::HistoryTables::All,
    )
    .unwrap();
    world.publish("2026-11-20T02:15:00Z").unwrap();
}

/// Of no watermark, for this store.
fn info(store_id: &str, at: &str) -> SnapshotInfo {
    SnapshotInfo {
        taken_at: at.parse().unwrap(),
        watermark: None,
        complete: true,
        store_id: store_id.to_owned(),
        state: String::new(),
        erasure: None,
        last_id: None,
        uploaded: None,
    }
}

/// A folder for snapshots, of which the last two stay, and all of the last hour.
fn in_folder<'a>(world: &'a World, root: &'a Root, database: &'a Path) -> Targets<'a> {
    let parquet = ParquetTarget {
        root,
        tables: &world.tables,
        keep_snapshots: 2,
        erased: false,
        keep_for: Duration::from_secs(3600),
    };
    Targets { database: Some(database), parquet: Some(parquet), views: None }
}

/// Neither a folder that cannot be made, nor one that fails half-way, keeps the file for analysts as it was; what is
/// made from rows is left to the caller in the latter case.
#[rstest]
#[case::of_the_file(false)]
#[case::of_rows(true)]
fn a_folder_of_snapshots_that_fails_keeps_the_file_for_analysts_from_nobody(
    #[case] is_of_rows: bool,
) {
    let world = World::new();
    let made_with = |root: &Path, between: &dyn Fn(), at: &str| {
        let (root, database) = (Root::Folder(root.to_owned()), world.database());
        let (targets, stop) = (in_folder(&world, &root, &database), Stop::default());
        let begun = begin(&targets, info(world.store_id, at), None, &stop).unwrap();
        between();
        let reading = world.conn.try_clone().unwrap();
        let store = (world.store(), &Bounds::of("1GB"));
        let frozen = Frozen::with_file(&world.conn, reading, store, begun).unwrap();
        let is_file = matches!(frozen.pinned.image, Some(Image::File { .. }));
        assert_eq!(is_file, !is_of_rows);
        let made = make(frozen, &targets, &stop, &Progress::silent())?;
        assert!(made.published.parquet.is_none());
        made.upload.unwrap().map(drop)
    };
    let shown = || rows(&world.open_published(), "SELECT snapshot_id FROM sync.snapshot");
    fs::create_dir_all(world.database().parent().unwrap()).unwrap();
    if is_of_rows {
        let erased = "INSERT INTO sync.meta VALUES ('erased_values', 'true')";
        world.conn.execute_batch(erased).unwrap();
    }
    // Nobody can make a folder there.
    let nowhere = made_with(Path::new("/proc/casemirror"), &|| (), T2);
    assert_eq!(nowhere.unwrap_err().kind(), Kind::Io);
    assert_eq!(shown(), ["{'snapshot_id': 2026-11-20T020000Z}"]);
    let folder = world.parquet().join("snapshots");
    let turns_into_a_file = || {
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
    };
    let half = made_with(&world.parquet(), &turns_into_a_file, "2026-11-20T03:00:00Z");
    assert_eq!(half.unwrap_err().kind(), Kind::Io);
    let last = if is_of_rows { "020000Z" } else { "030000Z" };
    assert_eq!(shown(), [format!("{{'snapshot_id': 2026-11-20T{last}}}")]);
    // Commits and checkpoints go on, and so does the next publishing.
    world.conn.execute_batch("CHECKPOINT").unwrap();
    fs::remove_file(&folder).unwrap();
    world.publish("2026-11-20T04:00:00Z").unwrap();
}

/// Old snapshots go before there is need for their room, and not after.
#[test]
fn what_is_not_kept_goes_before_a_snapshot_is_written() {
    let world = World::new();
    for at in ["2026-11-20T02:00:00Z", "2026-11-20T02:10:00Z", "2026-11-20T02:20:00Z"] {
        world.publish(at).unwrap();
    }
    let all = || names(&world.parquet().join("snapshots"));
    assert_eq!(all().len(), 3, "they are young");
    let (root, database) = (Root::Folder(world.parquet()), world.database());
    let late = info(world.store_id, "2026-11-20T05:00:00Z");
    begin(&in_folder(&world, &root, &database), late, None, &Stop::default()).unwrap();
    assert_eq!(all(), ["2026-11-20T021000Z", "2026-11-20T022000Z"]);
}

/// Nothing but the store says what was published without Parquet.
#[test]
fn no_two_publishings_have_one_name() {
    let world = World::new();
    let name = |last: Option<&str>| {
        let targets = Targets { database: None, parquet: None, views: None };
        let last_id = last.map(str::to_owned);
        let info = SnapshotInfo { last_id, ..info(world.store_id, T2) };
        begin(&targets, info, None, &Stop::default()).unwrap().id
    };
    assert_eq!(name(None), "2026-11-20T020000Z");
    assert_eq!(name(Some("2026-11-20T020000Z")), "2026-11-20T020000Z-2");
    assert_eq!(name(Some("2026-11-20T020000Z-2")), "2026-11-20T020000Z-3");
    assert_eq!(name(Some("2026-11-20T015959Z-2")), "2026-11-20T020000Z");
}
