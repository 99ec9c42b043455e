//! The lake is the published mirror, whatever happened on the way (docs/lake.md).

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use casemirror::failpoint;
use casemirror::sandbox::{Act, Facet};
use duckdb::Connection;
use serde_json::Value;

use crate::support::follow::UNTHROTTLED;
use crate::support::lake::{LakeWorld, PLACE, assert_no_secret, in_memory};
use crate::support::objects::ObjectStore;
use crate::support::postgres::{PASSWORD, Postgres};
use crate::support::{one, shown};

const SIGABRT: i32 = 6;

/// Things of many kinds, told by the feed.
pub(crate) fn change(lake: &LakeWorld, from: usize) {
    let sandbox = &lake.world.sandbox;
    let ids = sandbox.case_ids();
    let facets = [
        Facet::Activity,
        Facet::CostAdded,
        Facet::CostRemoved,
        Facet::Transaction,
        Facet::ContactAdded,
        Facet::ActivityRemoved,
        Facet::Settled,
        Facet::RoleAdded,
        Facet::RoleRemoved,
        Facet::Bid,
    ];
    for (n, facet) in facets.into_iter().enumerate() {
        let case_id = Some(ids[(from + n) % ids.len()]);
        sandbox.act(&Act::Change { case_id, facet, at: None }).unwrap();
    }
    sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    sandbox.act(&Act::EditContact { contact_id: None, at: None }).unwrap();
}

fn status(lake: &LakeWorld) -> Value {
    let output = lake.world.run(&["status", "--json"]);
    assert_no_secret(&output);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", shown(&output)))
}

/// Changes and publishings, one after the other.
fn assert_follows(lake: &LakeWorld, rounds: usize) {
    lake.world.sync();
    lake.assert_equal();
    let reports = lake.reports_since();
    assert_eq!(status(lake)["lake"]["behind_seconds"], 0);
    for round in 0..rounds {
        change(lake, round * 7);
        lake.world.sync();
        lake.assert_equal();
    }
    assert_eq!(lake.reports_since(), reports, "reports that did not change were made anew");
    let conn = lake.reader();
    let months: i64 =
        one(&conn, "SELECT count(DISTINCT journal_month) FROM lake.main.revenue_journals");
    assert!(months > 0, "the journals are empty");
    let history: i64 = one(&conn, "SELECT count(*) FROM lake.history.activities");
    assert!(history > 0, "nothing has earlier versions");
    // A reader of a catalog in a file holds it.
    drop(conn);
    assert!(lake.publish().contains("already"));
}

#[test]
fn the_lake_is_the_published_file_after_each_sync() {
    let Some(lake) = LakeWorld::in_a_file(12) else { return };
    assert_follows(&lake, 2);
    // Macros answer where the lake is the current catalog.
    let conn = lake.reader();
    conn.execute_batch("USE lake").unwrap();
    let now: i64 = one(&conn, "SELECT count(*) FROM report.total_cost_as_of(now())");
    assert_eq!(now, one::<i64>(&conn, "SELECT count(*) FROM report.total_cost"));
    // An earlier snapshot is there as it was.
    let first: i64 = one(
        &conn,
        "SELECT min(snapshot_id) FROM snapshots() WHERE commit_message LIKE 'snapshot %'",
    );
    let then: i64 = one(&conn, &format!("SELECT count(*) FROM main.cases AT (VERSION => {first})"));
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM main.cases"), then + 2);
}

#[test]
fn it_is_so_with_the_catalog_in_postgresql_and_no_word_shows_the_password() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(lake) = LakeWorld::in_postgres(12, &postgres, "oslo") else { return };
    assert_follows(&lake, 1);
    let number = |which: &str| -> i64 {
        one(&lake.reader(), &format!("SELECT {which}(snapshot_id) FROM lake.snapshots()"))
    };
    let last = number("max");
    let contact: i64 = one(&lake.reader(), "SELECT min(id) FROM lake.main.contacts");
    let output = lake.world.run(&["forget", "--contact", &contact.to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(number("min") > last, "a snapshot from before is there");
    lake.assert_equal();
}

#[test]
fn of_cases_that_did_not_change_nothing_is_compared_until_house_is_kept() {
    let Some(lake) = LakeWorld::in_a_file(8) else { return };
    lake.world.sync();
    let ids = lake.world.sandbox.case_ids();
    let change = |case_id: i64| {
        let facet = Facet::Activity;
        lake.world.sandbox.act(&Act::Change { case_id: Some(case_id), facet, at: None }).unwrap();
        lake.world.sync();
    };
    // A reader that writes, which nobody may.
    lake.meddler()
        .execute_batch(&format!("DELETE FROM lake.main.activities WHERE case_id = {}", ids[0]))
        .unwrap();
    let differ = || {
        let count = "SELECT count(DISTINCT case_id) FROM activities";
        one::<i64>(&lake.world.published(), count)
            - one::<i64>(&lake.reader(), &count.replace("activities", "lake.main.activities"))
    };
    change(ids[1]);
    assert_eq!(differ(), 1);
    change(ids[0]);
    lake.assert_equal();
    lake.meddler()
        .execute_batch(&format!("DELETE FROM lake.main.activities WHERE case_id = {}", ids[0]))
        .unwrap();
    lake.configure(UNTHROTTLED, "keep_for = \"0s\"");
    change(ids[1]);
    lake.assert_equal();
}

#[test]
fn what_a_publishing_says_that_it_wrote_is_what_it_wrote() {
    let Some(lake) = LakeWorld::in_a_file(6) else { return };
    lake.world.sync();
    let case_id = Some(lake.world.sandbox.case_ids()[0]);
    for _ in 0..3 {
        let facet = Facet::Activity;
        lake.world.sandbox.act(&Act::Change { case_id, facet, at: None }).unwrap();
        let output = lake.world.run(&["sync", "--set", "lake.catalog=", "--set", "lake.data="]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        // House is not kept: whatever was written is there.
        let before = lake.files();
        let told = lake.publish();
        let files = format!("  files   {} (", lake.files() - before);
        assert!(told.contains(&files), "{files}: {told}");
    }
}

/// Of the places that readers have, none waits for another.
#[test]
fn the_lake_does_not_wait_for_snapshots_in_a_bucket_that_nobody_answers_at() {
    let Some(store) = ObjectStore::down() else { return };
    let Some(lake) = LakeWorld::in_a_file(6) else { return };
    lake.world.sync();
    let run = |args: &[&str]| {
        let mut command = lake.world.command(args);
        command
            .args(["--set", "publish.parquet=s3://mirror/team"])
            .envs(store.environment())
            .output()
            .unwrap()
    };
    change(&lake, 0);
    let output = run(&["sync"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let added = one::<i64>(&lake.reader(), "SELECT count(*) FROM lake.main.cases");
    assert_eq!(added, 7, "{}", shown(&output));
    lake.assert_equal();

    let contact: i64 = one(
        &lake.reader(),
        "SELECT arg_max(id, email) FROM lake.main.contacts WHERE name IS NOT NULL",
    );
    let output = run(&["forget", "--contact", &contact.to_string()]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = shown(&output);
    assert!(said.contains("the lake has nothing of it"), "{said}");
    assert!(said.contains("the snapshots in publish.parquet still hold"), "{said}");
    let named = format!("SELECT count(name) FROM lake.main.contacts WHERE id = {contact}");
    assert_eq!(one::<i64>(&lake.reader(), &named), 0);
    lake.assert_equal();
}

#[test]
fn killed_while_it_carries_what_was_noted_the_next_one_makes_it_equal() {
    let Some(lake) = LakeWorld::in_a_file(6) else { return };
    lake.world.sync();
    let points = [
        ("lake-table-written", 12),
        ("lake-table-written", 40),
        ("lake-written", 1),
        ("lake-committed", 1),
    ];
    for (n, (point, times)) in points.into_iter().enumerate() {
        change(&lake, n);
        // The process that carries is killed, and what it was begun by goes on.
        let mut command = lake.world.command(&["sync"]);
        let output =
            command.env("CASEMIRROR_ABORT_AT", format!("{point}:{times}")).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{point}: {}", shown(&output));
        change(&lake, n + 3);
        lake.world.sync();
        lake.assert_equal();
    }
}

#[test]
fn killed_at_any_point_of_a_publishing_the_next_one_makes_it_equal() {
    let Some(lake) = LakeWorld::in_a_file(8) else { return };
    // So that there is something to tidy up each time.
    lake.configure(UNTHROTTLED, "keep_for = \"0s\"");
    let quiet = |args: &[&str], point: &str| {
        let mut command = lake.world.command(args);
        command.env("CASEMIRROR_ABORT_AT", point).output().unwrap()
    };
    // The first publishing, too.
    for point in ["lake-table-written:30", "lake-written"] {
        let output = quiet(&["sync"], point);
        assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
        assert!(shown(&output).contains("the lake is behind: "), "{}", shown(&output));
    }
    lake.publish();
    lake.assert_equal();
    // Among the first tables and among the last ones.
    let tables = [("lake-table-written", 9), ("lake-table-written", 70)];
    let points = failpoint::LAKE.map(|point| (point, 1));
    for (n, (point, times)) in points.into_iter().chain(tables).enumerate() {
        change(&lake, n);
        let output = lake.world.run(&["sync", "--set", "lake.catalog=", "--set", "lake.data="]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        let output = quiet(&["lake", "publish"], &format!("{point}:{times}"));
        assert_eq!(output.status.signal(), Some(SIGABRT), "{point}: {}", shown(&output));
        if n % 2 == 0 {
            // What readers see is whole, be it the snapshot before or this one.
            let conn = lake.reader();
            let same: bool = one(
                &conn,
                "SELECT (SELECT snapshot_id FROM lake.sync.lake_snapshot) = (SELECT snapshot_id FROM lake.sync.snapshot)",
            );
            assert!(same, "{point}");
        }
        lake.publish();
        lake.assert_equal_tables();
    }
    lake.assert_equal();
}

#[test]
fn a_copy_of_an_earlier_state_does_not_take_the_lake_back() {
    let Some(lake) = LakeWorld::in_a_file(8) else { return };
    lake.world.sync();
    let (file, copy) = (lake.world.path("data/casemirror.duckdb"), lake.world.path("copy.duckdb"));
    let watermark = || -> i64 {
        one(&lake.world.published(), "SELECT epoch_us(watermark) FROM report.snapshot")
    };
    // On another host the copy is all that there is; both have a lake.
    let assert_refused = || {
        let newest = lake.world.path("newest.duckdb");
        fs::rename(&file, &newest).unwrap();
        fs::copy(&copy, &file).unwrap();
        let output = lake.world.run(&["lake", "publish"]);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(shown(&output).contains("shows a later state"), "{}", shown(&output));
        fs::rename(&newest, &file).unwrap();
        lake.assert_equal();
    };
    fs::copy(&file, &copy).unwrap();
    let (store, earlier) =
        (lake.world.path("data/store.duckdb"), lake.world.path("earlier.duckdb"));
    fs::copy(&store, &earlier).unwrap();
    change(&lake, 0);
    lake.world.sync();
    assert_refused();

    // What this store carried itself it may go behind.
    let before = watermark();
    fs::copy(&file, &copy).unwrap();
    lake.configure("[feed]\ncalls = 1000\nper = \"1s\"\noverlap = \"3h\"\n", "");
    change(&lake, 3);
    lake.world.sync();
    assert!(watermark() < before, "the watermark was to go back");
    lake.assert_equal();

    // What is erased goes, and a copy from before does not bring it back.
    fs::copy(&file, &copy).unwrap();
    let forget = || {
        let contact: i64 = one(&lake.reader(), "SELECT min(id) FROM lake.main.contacts");
        let output = lake.world.run(&["forget", "--contact", &contact.to_string()]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        lake.assert_equal();
    };
    forget();
    assert_refused();
    // Nor does one of the state that was published right after it.
    fs::copy(&file, &copy).unwrap();
    change(&lake, 5);
    lake.world.sync();
    assert_refused();

    // It goes in a store that was put back, too.
    fs::copy(&earlier, &store).unwrap();
    let _ = fs::remove_file(lake.world.path("data/store.duckdb.wal"));
    forget();
}

#[test]
fn a_lake_of_another_mirror_and_one_that_nobody_made_is_refused() {
    let Some(lake) = LakeWorld::in_a_file(4) else { return };
    lake.world.sync();
    let catalog = lake.world.path("data/lake.ducklake");
    let Some(other) = LakeWorld::in_a_file(4) else { return };
    let of_the_other = format!("lake.catalog={}", catalog.display());
    let data = format!("lake.data={}", lake.world.path("data/lake").display());
    let output = other.world.run(&["sync", "--set", &of_the_other, "--set", &data]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(shown(&output).contains("was written by another mirror"), "{}", shown(&output));
    lake.assert_equal();
    // Of this mirror, and made in another folder.
    change(&lake, 0);
    let output = lake.world.run(&["sync", "--set", "lake.data=data/elsewhere"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(
        shown(&output).contains("lake.data: the lake in the schema main"),
        "{}",
        shown(&output)
    );
    assert!(!lake.world.path("data/elsewhere").exists());
    lake.publish();
    lake.assert_equal_tables();
    // A newer version's.
    let conn = in_memory();
    conn.execute_batch(&format!(
        "ATTACH 'ducklake:{}' AS lake; UPDATE lake.sync.lake_snapshot SET format = 99; DETACH lake",
        catalog.display()
    ))
    .unwrap();
    change(&lake, 0);
    let output = lake.world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(shown(&output).contains("by a newer version of casemirror"), "{}", shown(&output));
    assert_eq!(status(&lake)["lake"]["behind_seconds"].as_u64().map(|s| s < 600), Some(true));
    // Tables of somebody else.
    let Some(third) = LakeWorld::in_a_file(4) else { return };
    let conn = in_memory();
    conn.execute_batch(&format!(
        "ATTACH 'ducklake:{}' AS lake (DATA_PATH '{}'); CREATE TABLE lake.main.own (i INT); DETACH lake",
        third.world.path("data/lake.ducklake").display(),
        third.world.path("data/lake").display()
    ))
    .unwrap();
    let output = third.world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(
        shown(&output).contains("holds tables that casemirror did not make"),
        "{}",
        shown(&output)
    );
}

/// A child table of the notes, of a field that they leave in `_extra`.
const COMMENTS: &str = r#"table = "note_comments"
comment = "One row per comment of a note."
key = ["case_id", "note_id", "position"]
permissions = []
group = "child"

[child]
table = "notes"
field = "Comments"

[[column]]
name = "case_id"
field = "case_id"
from = "parent"
type = "int"
comment = "Case."

[[column]]
name = "note_id"
field = "id"
from = "parent"
type = "int"
comment = "Note."

[[column]]
name = "position"
from = "position"
type = "int"
comment = "Place from 1."

[[column]]
field = "Id"
type = "int"
comment = "Id."

[[column]]
field = "Text"
type = "string"
comment = "Text."
"#;

#[test]
fn a_new_column_another_type_and_a_table_that_comes_and_goes_are_carried_over() {
    let Some(lake) = LakeWorld::in_a_file(6) else { return };
    lake.world.sync();
    fs::create_dir(lake.world.path("resources")).unwrap();
    let own = "[resources]\ndir = \"resources\"\n";
    lake.configure(&format!("{UNTHROTTLED}{own}"), "");
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/file_tags.toml");
    let tags = fs::read_to_string(built_in).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(lake.world.path(&format!("resources/{name}.toml")), text).unwrap();
    };
    let sync = || {
        let output = lake.world.run(&["sync"]);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
        assert!(!shown(&output).contains("the lake is behind"), "{}", shown(&output));
        lake.assert_equal();
    };
    let kinds = || -> String {
        one(
            &lake.reader(),
            "SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_index) FROM duckdb_columns() \
             WHERE database_name = 'lake' AND schema_name = 'main' AND table_name = 'file_tags'",
        )
    };
    let there = || -> i64 {
        one(
            &lake.reader(),
            "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = 'own_tags'",
        )
    };
    let before = kinds();
    // A column more, another type of one, and another comment of one.
    let column =
        "[[column]]\nfield = \"Colour\"\ntype = \"string\"\ncomment = \"What it looks like.\"\n\n";
    let changed = tags
        .replacen(
            "[[column]]\nfield = \"IsSystemTag\"\ntype = \"bool\"",
            &format!("{column}[[column]]\nfield = \"IsSystemTag\"\ntype = \"string\""),
            1,
        )
        .replacen("Id of the tag.", "Number of the tag.", 1);
    write("file_tags", &changed);
    sync();
    let after = kinds();
    assert!(
        after.contains("colour VARCHAR") && after.contains("is_system_tag VARCHAR"),
        "{before}: {after}"
    );
    write("own_tags", &tags.replace("table = \"file_tags\"", "table = \"own_tags\""));
    sync();
    assert_eq!(there(), 2, "in main and in history");
    // A child takes a field out of what was left of its parent: no column of that, nor a time of its rows, says so.
    write("note_comments", COMMENTS);
    sync();
    let taken = "SELECT count(*) FROM lake.main.notes WHERE _extra LIKE '%\"Comments\"%'";
    assert_eq!(one::<i64>(&lake.reader(), taken), 0);
    fs::remove_file(lake.world.path("resources/own_tags.toml")).unwrap();
    sync();
    assert!(there() < 2);
}

#[test]
fn what_is_erased_is_in_no_file_of_the_lake() {
    let Some(lake) = LakeWorld::in_a_file(8) else { return };
    lake.world.sync();
    let conn = lake.reader();
    // Whose e-mail address DuckLake keeps as the largest of its column.
    let (contact, email): (i64, String) = conn
        .query_row("SELECT arg_max(id, email), max(email) FROM lake.main.contacts", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_ne!(catalog_with(&conn, &email), 0);
    drop(conn);
    // Killed when the lake shows it, and before what earlier snapshots hold is gone.
    let mut killed = lake.world.command(&["forget", "--contact", &contact.to_string()]);
    let output = killed.env("CASEMIRROR_ABORT_AT", "lake-committed").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(shown(&output).contains("the lake still holds it"), "{}", shown(&output));
    let told = lake.publish();
    assert!(told.contains("already") && told.contains("tidied"), "{told}");
    lake.assert_equal();
    let conn = lake.reader();
    let snapshots: Vec<i64> = conn
        .prepare("SELECT snapshot_id FROM lake.snapshots()")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(!snapshots.is_empty());
    for snapshot in snapshots {
        let rows = format!("lake.main.contacts AT (VERSION => {snapshot}) WHERE id = {contact}");
        let (all, named): (i64, i64) = conn
            .query_row(&format!("SELECT count(*), count(first_name) FROM {rows}"), [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!((all, named), (1, 0), "{snapshot}");
    }
    assert_eq!(catalog_with(&conn, &email), 0);
    let listed: i64 = one(
        &conn,
        "SELECT count(*) FROM (SELECT 1 FROM __ducklake_metadata_lake.main.ducklake_data_file \
         UNION ALL SELECT 1 FROM __ducklake_metadata_lake.main.ducklake_delete_file)",
    );
    assert_eq!(lake.files() as i64, listed, "files that nothing needs are gone");
    drop(conn);
    let told = lake.publish();
    assert!(told.contains("already") && !told.contains("tidied"), "{told}");

    // One that nobody kills leaves nothing to the next publishing; what the catalog's clock says does not count.
    change(&lake, 0);
    lake.world.sync();
    lake.assert_equal();
    let catalog = Connection::open(lake.world.path("data/lake.ducklake")).unwrap();
    let ahead = "UPDATE ducklake_snapshot SET snapshot_time = TIMESTAMPTZ '2200-01-01 00:00:00+00'";
    catalog.execute_batch(ahead).unwrap();
    drop(catalog);
    let conn = lake.reader();
    let last: i64 = one(&conn, "SELECT max(snapshot_id) FROM lake.snapshots()");
    let contact: i64 = one(&conn, "SELECT arg_max(id, email) FROM lake.main.contacts");
    drop(conn);
    let output = lake.world.run(&["forget", "--contact", &contact.to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(shown(&output).contains("the lake has nothing of it"), "{}", shown(&output));
    let first: i64 = one(&lake.reader(), "SELECT min(snapshot_id) FROM lake.snapshots()");
    assert!(first > last, "a snapshot from before is there: {first}, {last}");
    let told = lake.publish();
    assert!(told.contains("already") && !told.contains("tidied"), "{told}");
    lake.assert_equal();
}

/// Rows of the statistics in the lake's catalog in which a text stands.
fn catalog_with(conn: &Connection, text: &str) -> i64 {
    let rows = ["ducklake_table_column_stats", "ducklake_file_column_stats"]
        .map(|table| {
            format!("SELECT t::VARCHAR AS row FROM __ducklake_metadata_lake.main.{table} t")
        })
        .join(" UNION ALL ");
    one(conn, &format!("SELECT count(*) FROM ({rows}) WHERE contains(row, '{text}')"))
}

#[test]
fn mirrors_that_name_one_folder_for_their_data_leave_each_others_files_alone() {
    let Some(lake) = LakeWorld::in_a_file(4) else { return };
    let Some(other) = LakeWorld::in_a_file(4) else { return };
    let data = format!("lake.data={}", lake.world.path("data/lake").display());
    let sync = |lake: &LakeWorld| {
        // Whatever nothing needs goes at once.
        let output = lake.world.run(&["sync", "--set", &data, "--set", "lake.keep_for=0s"]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    };
    let stranger = lake.world.path("data/lake/stranger.parquet");
    for round in 0..2 {
        for lake in [&lake, &other] {
            change(lake, round * 7);
            sync(lake);
        }
        fs::write(&stranger, "not of a lake").unwrap();
    }
    lake.assert_equal_tables();
    other.assert_equal_tables();
    assert!(stranger.exists());
}

#[test]
fn the_store_goes_on_while_the_catalog_is_away_and_the_lake_catches_up() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(lake) = LakeWorld::in_postgres(6, &postgres, "oslo") else { return };
    lake.configure(
        &format!("{UNTHROTTLED}{}", crate::support::daemon::EAGER),
        "interval = \"200ms\"",
    );
    let mut daemon = lake.world.start_daemon();
    daemon.wait_until_idle();
    daemon.wait_until("the lake shows what is published", || {
        status(&lake)["lake"]["behind_seconds"] == 0
    });
    postgres.end();
    change(&lake, 0);
    daemon.wait_until("status says that the lake is behind", || {
        let status = status(&lake);
        status["lake"]["error"].is_string()
            && status["problems"].to_string().contains("the lake is behind")
    });
    let published = || -> i64 { one(&lake.world.published(), "SELECT count(*) FROM main.cases") };
    daemon.wait_until("the local file goes on", || published() == 7);
    postgres.begin();
    daemon.wait_until("the lake catches up", || {
        let status = status(&lake);
        status["lake"]["behind_seconds"] == 0 && status["lake"]["error"].is_null()
    });
    assert!(!daemon.log().contains(PASSWORD));
    daemon.stop();
    lake.publish();
    lake.assert_equal();
}

/// A restart, a failover, a firewall. A rollback on a connection that is gone has ended the process before it could say
/// a word.
#[test]
fn a_publishing_whose_connections_break_says_so_itself() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(lake) = LakeWorld::in_postgres(6, &postgres, "oslo") else { return };
    lake.world.sync();
    let execute = |sql: &str| {
        let conn = in_memory();
        let connection = format!("{} password={PASSWORD}", postgres.connection());
        conn.execute_batch(&format!("ATTACH '{connection}' AS pg (TYPE postgres)")).unwrap();
        let sql = sql.replace('\'', "''");
        conn.execute_batch(&format!("CALL postgres_execute('pg', '{sql}')")).unwrap();
    };
    // Comes when the snapshot is entered in the catalog.
    let then = |what: &str| {
        execute(&format!(
            "CREATE OR REPLACE FUNCTION breaks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               PERFORM pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid(); \
               {what} RETURN NEW; END $$; \
             DROP TRIGGER IF EXISTS breaks ON oslo.ducklake_snapshot; \
             CREATE TRIGGER breaks AFTER INSERT ON oslo.ducklake_snapshot \
               FOR EACH ROW EXECUTE FUNCTION breaks()"
        ));
    };
    let before: String = one(&lake.reader(), "SELECT snapshot_id FROM lake.sync.lake_snapshot");
    for (n, what) in
        ["RAISE EXCEPTION 'no room';", "PERFORM pg_terminate_backend(pg_backend_pid());"]
            .into_iter()
            .enumerate()
    {
        then(what);
        change(&lake, n);
        let output = lake.world.run(&["sync"]);
        assert_eq!(output.status.code(), Some(3), "{what}: {}", shown(&output));
        assert!(
            shown(&output).contains("the lake is behind: cannot "),
            "{what}: {}",
            shown(&output)
        );
        let output = lake.world.run(&["lake", "publish"]);
        assert_eq!(output.status.code(), Some(1), "{what}: {}", shown(&output));
        assert!(shown(&output).contains("cannot commit to the lake"), "{what}: {}", shown(&output));
        assert_no_secret(&output);
        let shows: String = one(&lake.reader(), "SELECT snapshot_id FROM lake.sync.lake_snapshot");
        assert_eq!(shows, before);
    }
    // What is committed is told as such, though the lock's connection is gone.
    then("");
    assert!(lake.publish().contains("the lake shows snapshot"));
    execute("DROP TRIGGER breaks ON oslo.ducklake_snapshot");
    lake.assert_equal();
    change(&lake, 5);
    lake.world.sync();
    lake.assert_equal();
}

#[test]
fn the_data_are_in_a_bucket_and_the_lake_catches_up_when_it_was_away() {
    let Some(store) = ObjectStore::start() else { return };
    let Some(lake) = LakeWorld::in_a_bucket(6, &store) else { return };
    let files =
        || -> Vec<String> { serde_json::from_slice(&store.script("list", &[PLACE])).unwrap() };
    lake.world.sync();
    lake.assert_equal();
    let first = files();
    assert!(first.len() > 50 && !lake.world.path("data/lake").exists(), "{first:?}");
    // Nobody answers there.
    lake.find_store_at(1);
    change(&lake, 0);
    let output = lake.world.run(&["sync"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(shown(&output).contains("the lake is behind: "), "{}", shown(&output));
    assert_no_secret(&output);
    assert_ne!(status(&lake)["lake"]["behind_seconds"], 0);
    assert_eq!(files(), first);
    lake.find_store_at(store.port);
    lake.publish();
    lake.assert_equal();
    lake.find_store_at(1);
    // What the catalog says needs no data, and the format stands there.
    let views = || lake.world.run(&["lake", "views", "--schemas", "main", "group.sql"]);
    let output = views();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let catalog = |from: &str, to: &str| {
        let conn = Connection::open(lake.world.path("data/lake.ducklake")).unwrap();
        let sql = format!("UPDATE ducklake_tag SET value = replace(value, '{from}', '{to}')");
        conn.execute_batch(&sql).unwrap();
    };
    catalog(" (format 1)", " (format 99)");
    let output = views();
    assert!(shown(&output).contains("by a newer version of casemirror"), "{}", shown(&output));
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    // The first lakes do not say it.
    catalog(" (format 99)", "");
    let output = views();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    lake.find_store_at(store.port);
    // What is killed halfway leaves files that no snapshot names, and none that one names is missing.
    change(&lake, 1);
    let killed = lake.world.command(&["sync"]).env("CASEMIRROR_ABORT_AT", "lake-written").output();
    assert_eq!(killed.unwrap().status.code(), Some(3));
    lake.publish();
    lake.assert_equal();
    let output = lake.world.run(&["check"]);
    assert_no_secret(&output);
}

#[test]
fn three_tenants_of_one_catalog_are_read_as_one() {
    let Some(postgres) = Postgres::start() else { return };
    let schemas = ["oslo", "bergen", "tromso"];
    let lakes: Vec<LakeWorld> =
        schemas.iter().filter_map(|schema| LakeWorld::in_postgres(5, &postgres, schema)).collect();
    if lakes.len() < schemas.len() {
        return;
    }
    // At once.
    let quiet = |lake: &LakeWorld| {
        let mut sync = lake.world.command(&["sync"]);
        sync.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let syncs: Vec<_> = lakes.iter().map(quiet).collect();
    for mut sync in syncs {
        assert_eq!(sync.wait().unwrap().code(), Some(0));
    }
    lakes.iter().for_each(LakeWorld::assert_equal_tables);
    let file = lakes[0].world.path("group.sql");
    let output =
        lakes[0].world.run(&["lake", "views", "--schemas", "oslo,bergen,tromso", "group.sql"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let script = fs::read_to_string(file).unwrap();
    assert!(!script.contains(PASSWORD));
    // The reader's own password; the extensions are there.
    let script: String =
        script.lines().filter(|line| !line.starts_with("INSTALL")).collect::<Vec<_>>().join("\n");
    let script =
        script.replace("user=casemirror", &format!("user=casemirror password={}", PASSWORD));
    let conn = in_memory();
    conn.execute_batch(&script).unwrap();
    let cases: i64 = one(&conn, "SELECT count(*) FROM cases");
    let each: i64 = lakes
        .iter()
        .map(|lake| one::<i64>(&lake.reader(), "SELECT count(*) FROM lake.main.cases"))
        .sum();
    assert_eq!(cases, each);
    let tenants: String = one(
        &conn,
        "SELECT string_agg(DISTINCT tenant, ',' ORDER BY tenant) FROM report.total_cost",
    );
    assert_eq!(tenants, "bergen,oslo,tromso");
    // Each tenant is counted once, and is a schema.
    lakes[0].another("models").execute_batch("CREATE TABLE lake.main.cases (id BIGINT)").unwrap();
    for wrong in ["oslo, oslo", "oslo,", "Oslo", "oslo, nowhere", "oslo, models"] {
        let output = lakes[0].world.run(&["lake", "views", "--schemas", wrong, "other.sql"]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", shown(&output));
        assert!(!shown(&output).contains("explicitly disabled"), "{}", shown(&output));
    }
    // Another file is not replaced.
    let output = lakes[0].world.run(&["lake", "views", "--schemas", "oslo", "casemirror.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
}

/// A resource file that is edited after the file was published says nothing of how that came about: a child of a daemon
/// reads it, and somebody's `lake publish`.
#[test]
fn what_was_published_with_other_resource_files_is_carried_by_those() {
    let Some(lake) = LakeWorld::in_a_file(6) else { return };
    fs::create_dir(lake.world.path("resources")).unwrap();
    lake.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"resources\"\n"), "");
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/cases.toml");
    let built_in = fs::read_to_string(built_in).unwrap();
    // A change of a case leaves the time of its row alone.
    let mut columns = built_in.split("\n[[column]]\n");
    let head = columns.next().unwrap().to_owned();
    let volatile = columns.fold(head, |text, column| {
        let may_be = !column.starts_with("field = \"Id\"") && !column.contains("volatile = true");
        let volatile = if may_be { "volatile = true\n" } else { "" };
        format!("{text}\n[[column]]\n{volatile}{column}")
    });
    let without = built_in.replace("volatile = true\n", "");
    let file = lake.world.path("resources/cases.toml");
    for round in 0..3 {
        fs::write(&file, &volatile).unwrap();
        if round > 0 {
            change(&lake, round);
        }
        let output = lake.world.run(&["sync", "--set", "lake.catalog=", "--set", "lake.data="]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        fs::write(&file, &without).unwrap();
        lake.publish();
        lake.assert_equal_tables();
    }
    // Nor does a file that cannot be read keep anything from the lake.
    fs::write(&file, "table = ").unwrap();
    assert!(lake.publish().contains("already"));
}
