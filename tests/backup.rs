//! What cannot be fetched again comes back from one file (docs/operations.md, "Keeping a copy").

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemirror::failpoint;
use casemirror::sandbox::{Act, Facet, Journal, JournalEdit};
use duckdb::Connection;
use memchr::memmem;

use crate::support::follow::{
    UNTHROTTLED, assert_status, calls, change, idle_calls, unthrottled, written,
};
use crate::support::journals::{edit, mirrored, month, read_again, restatements};
use crate::support::stored::texts;
use crate::support::{World, one, open_read_only, shown};

const STORE: &str = "data/store.duckdb";
const SECRETS: &str = "data/store.duckdb.secrets";
const LEDGER: &str = "feed-calls";

/// All rows of a database by their tables, as text, but for the change counters.
type Everything = BTreeMap<String, Vec<Vec<Option<String>>>>;

fn everything(conn: &Connection) -> Everything {
    let names = texts(
        conn,
        "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE table_name <> 'changes'",
    );
    let names: Vec<String> = names.into_iter().filter_map(|row| row.into_iter().next()?).collect();
    assert!(names.len() > 100, "{names:?}");
    let rows = |name: &String| {
        let mut rows = texts(conn, &format!("FROM {name}"));
        rows.sort();
        rows
    };
    names.iter().map(|name| (name.clone(), rows(name))).collect()
}

#[track_caller]
fn assert_same(is: &Everything, was: &Everything) {
    assert_eq!(is.keys().collect::<Vec<_>>(), was.keys().collect::<Vec<_>>());
    for (table, rows) in was {
        assert!(is[table] == *rows, "{table}: {:?}\nwas {rows:?}", is[table]);
    }
}

/// The reports as of an instant.
fn as_of(conn: &Connection, instant: &str) -> Vec<Vec<Vec<Option<String>>>> {
    let names = texts(
        conn,
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE schema_name = 'report' \
         AND function_name LIKE '%_as_of' AND len(parameters) = 1 ORDER BY 1",
    );
    assert!(names.len() >= 2, "{names:?}");
    let report = |name: &Vec<Option<String>>| {
        let name = name[0].as_deref().unwrap();
        let mut rows = texts(conn, &format!("FROM report.{name}(TIMESTAMPTZ '{instant}')"));
        rows.sort();
        rows
    };
    names.iter().map(report).collect()
}

/// A mirror with history, a closed month, and a restatement in it.
fn lived() -> World {
    let world = mirrored(unthrottled(12), 2, "");
    world.sync();
    edit(&world, &month(2), Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    read_again(&world, &month(2));
    for facet in [Facet::Activity, Facet::CostAdded] {
        change(&world, world.sandbox.case_ids()[1], facet);
        world.sync();
    }
    let store = world.store();
    for lived in ["history.cases", "report.closings", "sync.restatements"] {
        assert!(one::<i64>(&store, &format!("SELECT count(*) FROM {lived}")) > 0, "{lived}");
    }
    drop(store);
    assert!(!restatements(&world).is_empty());
    world
}

fn backup(world: &World, name: &str) -> PathBuf {
    let output = world.run(&["backup", name]);
    assert_status(&output, 0);
    world.path(name)
}

fn restore(world: &World, name: &str) -> Output {
    world.run(&["restore", name])
}

/// What a new machine has: the configuration.
fn lose_everything(world: &World) {
    fs::remove_dir_all(world.path("data")).unwrap();
    // A world that was made by another's first run has called nobody.
    let _ = fs::remove_file(world.path(LEDGER));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The names in a folder, those that are hidden too.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn assert_says(output: &Output, status: i32, words: &[&str]) {
    assert_status(output, status);
    let text = shown(output);
    for word in words {
        assert!(text.contains(word), "it does not say {word:?}: {text}");
    }
}

/// When the calls in the ledger were sent.
fn calls_in_ledger(world: &World) -> Vec<String> {
    let text = fs::read_to_string(world.path(LEDGER)).unwrap();
    let sent = text.lines().filter(|line| line.starts_with("{\"sent\""));
    let at = |line: &str| line.split("\"at\":").nth(1)?.split(',').next().map(str::to_owned);
    sent.map(|line| at(line).unwrap()).collect()
}

#[test]
fn a_store_that_was_lost_is_as_it_was_and_goes_on_from_there() {
    let world = lived();
    let store = world.store();
    let instant: String = one(&store, "SELECT min(_valid_to)::VARCHAR FROM history.cases");
    let (was, reports) = (everything(&store), as_of(&store, &instant));
    drop(store);
    let secrets = fs::read(world.path(SECRETS)).unwrap();

    let output = world.run(&["backup", "x.tar"]);
    assert_says(
        &output,
        0,
        &["x.tar\n  bytes   ", "format ", "earlier version", "closed  ", "taken"],
    );
    let file = world.path("x.tar");
    assert_eq!(mode(&file), 0o600);
    assert_same(&everything(&world.store()), &was);
    let key = String::from_utf8(secrets.clone()).unwrap();
    let key = key.split('"').nth(1).unwrap();
    assert!(memmem::find(&fs::read(&file).unwrap(), key.as_bytes()).is_some());

    lose_everything(&world);
    let restored = restore(&world, "x.tar");
    assert_says(&restored, 0, &["data/store.duckdb\n", "closed  ", "`casemirror sync`"]);
    for said in [shown(&output), shown(&restored)] {
        assert!(!said.contains(key) && !said.contains(&world.sandbox.client_secret()), "{said}");
    }
    assert_eq!(names(&world.path("data")), ["store.duckdb", "store.duckdb.secrets"]);
    assert_eq!([mode(&world.path(STORE)), mode(&world.path(SECRETS))], [0o600; 2]);
    assert_eq!(fs::read(world.path(SECRETS)).unwrap(), secrets);
    let store = world.store();
    assert_same(&everything(&store), &was);
    assert!(as_of(&store, &instant) == reports, "reports as of an instant");
    let before = written(&store);
    drop(store);

    // Nothing has changed since: no row is written.
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(calls(&world), idle_calls());
    assert_eq!(written(&world.store()), before);

    // What changes is read, and makes versions of nothing else.
    let line_ids = "SELECT line_id, line_number FROM main.revenue_journals ORDER BY ALL";
    let names_of_lines = texts(&world.store(), line_ids);
    change(&world, world.sandbox.case_ids()[2], Facet::Activity);
    edit(&world, &month(2), Journal::RevenueJournals, JournalEdit::Amount, Some(1));
    world.sync();
    read_again(&world, &month(2));
    world.assert_equal();
    let differing: Vec<String> = written(&world.store())
        .into_iter()
        .zip(before)
        .filter(|(now, before)| now.1 != before.1)
        .map(|(now, before)| format!("{} {}", now.0, now.1 - before.1))
        .collect();
    let more = [
        "history.cases 1",
        "history.revenue_journal_sums 1",
        "history.revenue_journals 1",
        "main.activities 1",
    ];
    assert_eq!(differing, more);
    assert_eq!(texts(&world.store(), line_ids), names_of_lines);
    assert_eq!(restatements(&world).len(), 2, "{:?}", restatements(&world));
}

#[test]
fn a_living_mirror_is_backed_up_by_the_daemon_that_holds_it() {
    let world = World::with(unthrottled(12));
    world.configure_eager("");
    world.bootstrap();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    change(&world, world.sandbox.case_ids()[1], Facet::Activity);
    daemon.wait_until("the change is mirrored", || {
        let output = world.run(&["status"]);
        output.status.code() == Some(0) && world.differences_in(&world.published()).is_empty()
    });
    // Relative to the caller's folder, which is not the daemon's.
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let config = world.path("casemirror.toml");
    let mut typed = world.command(&["backup", "x.tar", "--config", config.to_str().unwrap()]);
    let output = typed.current_dir(&elsewhere).output().unwrap();
    assert_says(&output, 0, &["elsewhere/x.tar\n", "taken"]);
    assert_eq!(names(&elsewhere), ["x.tar"]);
    assert_eq!(mode(&elsewhere.join("x.tar")), 0o600);
    // Twice is wrong, whoever does it.
    let again = world.run(&["backup", "elsewhere/x.tar"]);
    assert_says(&again, 2, &["is there already: nothing is overwritten"]);
    let other = ["backup", "y.tar", "--set", "publish.keep_snapshots=3"];
    assert_says(&world.run(&other), 2, &["publish.keep_snapshots differs"]);
    assert_says(&restore(&world, "elsewhere/x.tar"), 2, &["stop it first"]);
    match where_elsewhere_is_another(&world, &["backup", "elsewhere/y.tar"]) {
        Some(output) => assert_says(&output, 2, &["does not see the folder", "elsewhere"]),
        None => eprintln!("a part of this is skipped: this user has no folders of its own"),
    }
    assert_eq!(names(&elsewhere), ["x.tar"]);

    // It goes on mirroring.
    change(&world, world.sandbox.case_ids()[2], Facet::Activity);
    daemon.wait_until("the next change is mirrored", || {
        world.differences_in(&world.published()).is_empty()
    });
    daemon.stop();
    let versions =
        |table: &str| one::<i64>(&world.store(), &format!("SELECT count(*) FROM history.{table}"));
    let later = versions("cases");
    lose_everything(&world);
    assert_status(&restore(&world, "elsewhere/x.tar"), 0);
    assert_eq!(versions("cases"), later - 1, "as it was then");
    world.sync();
    world.assert_equal();
    assert_eq!(versions("cases"), later);
}

#[test]
fn calls_in_the_ledger_of_the_backup_count_and_none_is_given_back() {
    let world = World::with(unthrottled(3));
    world.configure("[feed]\ncalls = 50\nper = \"10m\"\n");
    world.sync();
    let backed_up = calls_in_ledger(&world);
    assert!(backed_up.len() >= 2, "{backed_up:?}");
    backup(&world, "x.tar");
    world.sync();
    let later = fs::read(world.path(LEDGER)).unwrap();
    assert!(calls_in_ledger(&world).len() > backed_up.len());

    // The ledger outlived the store: it knows them all.
    fs::remove_dir_all(world.path("data")).unwrap();
    assert_status(&restore(&world, "x.tar"), 0);
    assert!(fs::read(world.path(LEDGER)).unwrap() == later);

    lose_everything(&world);
    assert_status(&restore(&world, "x.tar"), 0);
    assert_eq!(calls_in_ledger(&world), backed_up);
    let ends = fs::read_to_string(world.path(LEDGER)).unwrap();
    assert_eq!(ends.matches("{\"ended\"").count(), backed_up.len());
}

/// The binary where `elsewhere` is another folder than for all other processes, as a service has a `/tmp` of
/// its own; `None` where this user may not do that.
fn where_elsewhere_is_another(world: &World, args: &[&str]) -> Option<Output> {
    let typed = world.command(args);
    let mut command = Command::new("unshare");
    command.current_dir(world.folder.path()).envs(
        typed.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    let script = "mount -t tmpfs none elsewhere || exit 77; exec \"$0\" \"$@\"";
    command.args(["-rm", "sh", "-c", script]).arg(typed.get_program()).args(args);
    let output = command.output().ok()?;
    let refused = output.status.code() == Some(77) || shown(&output).contains("unshare:");
    (!refused).then_some(output)
}

#[test]
fn hashes_stay_what_they_were_and_who_was_forgotten_stays_so() {
    let world = World::with(unthrottled(12));
    world.configure(&format!("contact_details = \"hash\"\n{UNTHROTTLED}"));
    world.bootstrap();
    let person: i64 =
        one(&world.store(), "SELECT min(id) FROM main.contacts WHERE email IS NOT NULL");
    assert_status(&world.run(&["forget", "--contact", &person.to_string()]), 0);
    backup(&world, "x.tar");
    let hashes = || texts(&world.store(), "SELECT id, email FROM main.contacts ORDER BY id");
    let (hashed, before) = (hashes(), written(&world.store()));
    lose_everything(&world);
    assert_status(&restore(&world, "x.tar"), 0);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert!(hashes() == hashed);
    let history = |all: Vec<(String, i64, Option<String>)>| {
        all.into_iter().filter(|table| table.0.starts_with("history.")).collect::<Vec<_>>()
    };
    assert_eq!(history(written(&world.store())), history(before));
    let name = format!("SELECT count(name) FROM main.contacts WHERE id = {person}");
    assert_eq!(one::<i64>(&world.store(), &name), 0);
}

/// The store that was lost had counted and published on after the backup, and the restored one counts the
/// same with other rows.
#[test]
fn what_the_lost_store_published_after_the_backup_is_never_taken_for_the_restored_ones() {
    let world = World::with_snapshots(12);
    world.bootstrap();
    world.sync();
    let again = || {
        world.sandbox.act(&Act::EditContact { contact_id: Some(50_001), at: None }).unwrap();
    };
    backup(&world, "x.tar");
    again();
    world.sync();
    world.assert_published();
    again();
    fs::remove_file(world.path(STORE)).unwrap();
    fs::remove_file(world.path(SECRETS)).unwrap();
    assert_status(&restore(&world, "x.tar"), 0);
    world.sync();
    world.assert_equal();
    world.assert_published();
}

#[test]
fn nothing_is_overwritten_and_nothing_else_is_taken_for_a_backup() {
    let world = World::unthrottled(3);
    world.bootstrap();
    let file = backup(&world, "x.tar");
    let whole = fs::read(&file).unwrap();
    let store = fs::read(world.path(STORE)).unwrap();

    let there = ["is there already: nothing is overwritten"];
    assert_says(&world.run(&["backup", "x.tar"]), 2, &there);
    assert!(fs::read(&file).unwrap() == whole);
    assert_says(&world.run(&["backup", "nowhere/x.tar"]), 2, &["there is no folder", "nowhere"]);
    assert_says(&world.run(&["backup"]), 2, &["FILE"]);

    let only_where = ["a backup is restored only where there is no store"];
    assert_says(&restore(&world, "x.tar"), 2, &only_where);
    assert!(fs::read(world.path(STORE)).unwrap() == store);
    fs::remove_file(world.path(STORE)).unwrap();
    for (left, content) in [(SECRETS, "hash_key = \"other\""), ("data/store.duckdb.wal", "")] {
        let kept = fs::read(world.path(left)).ok();
        fs::write(world.path(left), content).unwrap();
        assert_says(&restore(&world, "x.tar"), 2, &only_where);
        assert_eq!(fs::read_to_string(world.path(left)).unwrap(), content);
        match kept {
            Some(kept) => fs::write(world.path(left), kept).unwrap(),
            None => fs::remove_file(world.path(left)).unwrap(),
        }
    }
    fs::remove_file(world.path(SECRETS)).unwrap();
    let beside = names(&world.path("data"));

    let replaced = |from: &str, to: &str| {
        let at = memmem::find(&whole, from.as_bytes()).unwrap();
        [&whole[..at], to.as_bytes(), &whole[at + from.len()..]].concat()
    };
    let format = number_behind(&whole, "\"store_format\": ");
    // As long as it was: the space gives its place.
    let newer =
        replaced(&format!("\"store_format\": {format}"), &format!("\"store_format\":{format}0"));
    let is_newer = format!("has format {format}0");
    let mut damaged = whole.clone();
    let at = whole.len() / 2;
    damaged[at] ^= 1;
    let cases: [(&str, &[u8], i32, &str); 6] = [
        ("garbage", b"garbage", 2, "is no backup that casemirror has made"),
        ("a store", &store, 2, "is no backup that casemirror has made"),
        ("cut off", &whole[..whole.len() / 2], 1, "is cut off; nothing was restored"),
        ("damaged", &damaged, 1, "is damaged"),
        ("newer store", &newer, 1, &is_newer),
        ("newer form", &replaced("backup\": 1,", "backup\": 2,"), 1, "in a later form"),
    ];
    for (name, content, status, words) in cases {
        fs::write(world.path("other.tar"), content).unwrap();
        assert_says(&restore(&world, "other.tar"), status, &["other.tar", words]);
        assert_eq!(names(&world.path("data")), beside, "{name}");
    }
    assert_says(&restore(&world, "lacking.tar"), 2, &["there is no file", "lacking.tar"]);
    assert_status(&restore(&world, "x.tar"), 0);
    world.sync();
    world.assert_equal();
}

/// The digits behind a text.
fn number_behind(bytes: &[u8], before: &str) -> String {
    let at = memmem::find(bytes, before.as_bytes()).unwrap() + before.len();
    bytes[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .map(|byte| char::from(*byte))
        .collect()
}

#[test]
fn a_store_of_a_later_version_is_not_backed_up_and_one_of_an_earlier_is() {
    let world = World::unthrottled(3);
    world.bootstrap();
    let set = |format: &str| {
        let store = Connection::open(world.path(STORE)).unwrap();
        let set = format!("UPDATE sync.meta SET value = '{format}' WHERE key = 'format'");
        store.execute_batch(&set).unwrap();
    };
    set("6");
    assert_says(&world.run(&["backup", "x.tar"]), 0, &["format 6"]);
    assert_eq!(
        one::<String>(&world.store(), "SELECT value FROM sync.meta WHERE key = 'format'"),
        "6"
    );
    set("99");
    assert_says(&world.run(&["backup", "y.tar"]), 1, &["has format 99"]);
    assert!(!world.path("y.tar").exists());
}

/// The binary with a limit to how large a file may become.
fn limited(world: &World, args: &[&str], kilobytes: u64) -> Output {
    let typed = world.command(args);
    let mut command = Command::new("sh");
    command.current_dir(world.folder.path()).envs(
        typed.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    command.args(["-c", "trap '' XFSZ; ulimit -f $0; exec \"$@\""]);
    command.arg((kilobytes * 2).to_string()).arg(typed.get_program()).args(args);
    command.output().unwrap()
}

#[test]
fn where_there_is_no_room_or_no_right_to_write_nothing_is_left() {
    let world = World::unthrottled(3);
    world.bootstrap();
    let kilobytes = fs::metadata(world.path(STORE)).unwrap().len() / 1024;
    fs::create_dir(world.path("backups")).unwrap();
    let output = limited(&world, &["backup", "backups/x.tar"], kilobytes / 2);
    assert_says(&output, 1, &["cannot write", "backups/x.tar", "free some space"]);
    assert_eq!(names(&world.path("backups")), [""; 0]);
    world.sync();

    backup(&world, "backups/x.tar");
    lose_everything(&world);
    let output = limited(&world, &["restore", "backups/x.tar"], kilobytes / 2);
    assert_says(&output, 1, &["cannot write", "data/", "free some space"]);
    assert_eq!(names(&world.path("data")), [""; 0]);

    fs::set_permissions(world.path("backups"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(world.path("data"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(world.path("data/probe"), "").is_ok() {
        fs::remove_file(world.path("data/probe")).unwrap();
        eprintln!("half of this is skipped: this user may write to every folder");
    } else {
        assert_says(&restore(&world, "backups/x.tar"), 1, &["ermission denied"]);
    }
    fs::set_permissions(world.path("data"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_status(&restore(&world, "backups/x.tar"), 0);
    assert_status(&world.run(&["backup", "y.tar"]), 0);
}

fn aborting_at(world: &World, args: &[&str], point: &str) {
    let output = world.command(args).env("CASEMIRROR_ABORT_AT", point).output().unwrap();
    assert!(output.status.signal().is_some(), "{point}: {}", shown(&output));
}

#[test]
fn killed_at_any_moment_a_backup_is_there_whole_or_not_at_all() {
    let world = World::unthrottled(3);
    world.bootstrap();
    fs::create_dir(world.path("backups")).unwrap();
    for point in failpoint::BACKING_UP {
        aborting_at(&world, &["backup", "backups/x.tar"], point);
        let left = names(&world.path("backups"));
        assert!(left.len() == 1 && left[0].starts_with(".casemirror-backup-"), "{left:?}");
        assert_eq!(mode(&world.path("backups").join(&left[0])), 0o600);
    }
    // Whatever the next one is called, it takes away what was left.
    backup(&world, "backups/y.tar");
    assert_eq!(names(&world.path("backups")), ["y.tar"]);
    lose_everything(&world);
    assert_status(&restore(&world, "backups/y.tar"), 0);
}

#[test]
fn killed_at_any_moment_a_store_is_restored_whole_or_not_at_all() {
    let world = World::unthrottled(3);
    world.bootstrap();
    world.sync();
    let was = everything(&world.store());
    backup(&world, "x.tar");
    lose_everything(&world);
    for point in failpoint::RESTORING {
        aborting_at(&world, &["restore", "x.tar"], point);
        let is_there = world.path(STORE).exists();
        assert_eq!(is_there, point == "store-placed", "{point}");
        let status = world.run(&["status"]);
        if is_there {
            assert_same(&everything(&world.store()), &was);
        } else {
            assert_says(&status, 1, &["there is no store"]);
        }
    }
    assert_says(&restore(&world, "x.tar"), 2, &["only where there is no store"]);
    assert_eq!(names(&world.path("data")), ["store.duckdb", "store.duckdb.secrets"]);

    // After any of them the next goes through.
    for point in failpoint::RESTORING.iter().filter(|point| **point != "store-placed") {
        lose_everything(&world);
        aborting_at(&world, &["restore", "x.tar"], point);
        assert_status(&restore(&world, "x.tar"), 0);
        assert_eq!(names(&world.path("data")), ["store.duckdb", "store.duckdb.secrets"]);
        assert_same(&everything(&world.store()), &was);
    }
    world.sync();
    world.assert_equal();
}

#[test]
fn what_was_erased_is_in_no_byte_of_a_backup() {
    const ERASED: &str = "Erased Person of Nowhere 4711";
    let world = World::unthrottled(3);
    world.bootstrap();
    let holds = |path: PathBuf| memmem::find(&fs::read(path).unwrap(), ERASED.as_bytes()).is_some();
    let leave_behind = || {
        let store = Connection::open(world.path(STORE)).unwrap();
        let sql = format!(
            "CREATE TABLE history.left_behind AS SELECT '{ERASED}' AS name; CHECKPOINT; \
             DROP TABLE history.left_behind; \
             DELETE FROM sync.meta WHERE key = 'erased_values'; \
             INSERT INTO sync.meta VALUES ('erased_values', 'true'); CHECKPOINT"
        );
        store.execute_batch(&sql).unwrap();
        drop(store);
        holds(world.path(STORE))
    };
    // Where DuckDB uses the block again, or cuts it off, it takes another one the next time.
    assert!((0..10).any(|_| leave_behind()));
    let was = everything(&world.store());
    assert!(!holds(backup(&world, "x.tar")));
    assert_eq!(names(world.folder.path()).iter().filter(|name| name.starts_with('.')).count(), 0);
    lose_everything(&world);
    assert_status(&restore(&world, "x.tar"), 0);
    assert_same(&everything(&world.store()), &was);
}

#[test]
fn where_the_configuration_is_another_it_is_told_and_nothing_is_changed() {
    let world = World::unthrottled(3);
    world.bootstrap();
    let was = everything(&world.store());
    backup(&world, "x.tar");
    lose_everything(&world);
    let other = ["restore", "x.tar", "--set", "privacy.identifiers=drop"];
    assert_says(&world.run(&other), 0, &["privacy.identifiers is \"drop\" here, and was \"keep\""]);
    assert_same(&everything(&world.store()), &was);
}

/// The tools of any system take it apart.
#[test]
fn without_casemirror_it_is_an_archive_with_checksums() {
    let world = World::unthrottled(3);
    world.bootstrap();
    world.sync();
    backup(&world, "x.tar");
    fs::create_dir(world.path("apart")).unwrap();
    let script = "tar -xf ../x.tar && sha256sum -c SHA256SUMS";
    let done =
        Command::new("sh").args(["-c", script]).current_dir(world.path("apart")).output().unwrap();
    assert!(done.status.success(), "{}", shown(&done));
    assert_eq!(String::from_utf8_lossy(&done.stdout).matches(": OK").count(), 4);
    let store = open_read_only(&world.path("apart/store.duckdb"));
    assert_same(&everything(&store), &everything(&world.store()));
}
