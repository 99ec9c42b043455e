//! A store that an earlier version made is opened and brought up to this one, and nothing is fetched
//! again because of it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use duckdb::Connection;

use casemirror::sandbox::{Act, Facet, Journal, JournalEdit, Options};

use crate::support::follow::{brisk, change, shown_cases, unthrottled};
use crate::support::journals::{OFFICE, edit, mirrored, month, options, read_again};
use crate::support::{World, one};

/// The state tables of the first format, where they were others: what was fetched was one row per table
/// and scope, whose stamp was the version or, in words, the status. The released version had none of
/// the columns that are dropped here.
const FIRST_FORMAT: &str = "
    CREATE TEMP TABLE rows AS SELECT table_name, id, part,
        CASE status WHEN 'current' THEN version ELSE status END AS stamp,
        sent_at, fetched_at, definition, complete, again_at FROM sync.fetched;
    DROP VIEW sync.fetched;
    DROP TABLE sync.fetched_cases;
    DROP TABLE sync.fetched_coverage;
    DROP TABLE sync.fetched_scopes;
    DROP TABLE sync.fetched_marks;
    DROP TABLE sync.refresh_rules;
    CREATE TABLE sync.fetched (
      table_name VARCHAR,
      id BIGINT,
      part VARCHAR,
      stamp VARCHAR,
      sent_at TIMESTAMPTZ,
      fetched_at TIMESTAMPTZ,
      definition BIGINT,
      complete BOOLEAN,
      again_at BIGINT
    );
    COMMENT ON TABLE sync.fetched IS 'Per table and scope: the change dates it was fetched at (stamp), and when';
    INSERT INTO sync.fetched BY NAME SELECT * FROM temp.rows;
    DROP TABLE sync.removals;
    ALTER TABLE sync.journal_months DROP COLUMN doubted_at;
    ALTER TABLE sync.journal_months DROP COLUMN doubted_digest;
    ALTER TABLE sync.journal_months DROP COLUMN doubted_payment;
    ALTER TABLE sync.journal_months DROP COLUMN doubted_change;
    ALTER TABLE sync.journal_months DROP COLUMN doubted_price;
    ALTER TABLE sync.journal_months DROP COLUMN not_found_at;
    ALTER TABLE sync.journal_months DROP COLUMN verified_at;
    ALTER TABLE sync.verifications DROP COLUMN subject;
    ALTER TABLE sync.verifications DROP COLUMN standing;
    DROP TABLE sync.journal_scopes;
    ALTER TABLE sync.journal_months DROP COLUMN lines_digest;
    ALTER TABLE sync.journal_months DROP COLUMN larger_at;
    ALTER TABLE sync.journal_months DROP COLUMN larger_failures;
    ALTER TABLE sync.journal_months DROP COLUMN off_rounds;
    ALTER TABLE sync.journal_months DROP COLUMN off_compared;
    ALTER TABLE sync.journal_months DROP COLUMN no_control_at;
    UPDATE sync.meta SET value = '1' WHERE key = 'format';";

/// The tables whose rows hang on a journal's lines.
const OF_LINES: [&str; 6] = [
    "case_journals",
    "case_journal_annotations",
    "depot_journals",
    "revenue_journals",
    "revenue_journal_annotations",
    "settlement_journals",
];

/// The store of the eleventh format: it was not noted what was read for the first time, nor what came incompletely, nor,
/// of the twelfth, whether with annotations.
const ELEVENTH_FORMAT: &str = "
    ALTER TABLE sync.journal_months DROP COLUMN annotated;
    DROP VIEW sync.read_scopes;
    DROP VIEW sync.known_months;
    DROP TABLE sync.first_reads;
    DROP TABLE sync.earlier_statuses;
    ALTER TABLE sync.journal_months DROP COLUMN incomplete_at;
    UPDATE sync.meta SET value = '11' WHERE key = 'format';";

/// The store of the fifth format: when a table was written and read was found out by reading all its rows.
const FIFTH_FORMAT: &str = "
    -- Of the twelfth: it was not noted whether months were read with annotations; of the tenth: it was not noted whose rows a change wrote; of the eighth: nothing was kept of what left; of the seventh: nothing came but from the feeds; of the sixth: nobody could be forgotten.
    ALTER TABLE sync.journal_months DROP COLUMN annotated;
    DROP VIEW sync.read_scopes;
    DROP VIEW sync.known_months;
    DROP TABLE sync.first_reads;
    DROP TABLE sync.earlier_statuses;
    DROP TABLE sync.changed_scopes;
    DROP TABLE sync.left_scopes;
    DROP TABLE sync.hints;
    DROP TABLE sync.forgotten;
    DROP TABLE sync.freshness;
    UPDATE sync.meta SET value = '5' WHERE key = 'format';";

/// The store of the fourth format: of cases that were not read yet each scope was noted as pending.
const FOURTH_FORMAT: &str = "
    CREATE TABLE sync.noted AS SELECT * FROM sync.pending;
    DROP VIEW sync.pending;
    ALTER TABLE sync.noted RENAME TO pending;
    DROP TABLE sync.pending_scopes;
    DROP TABLE sync.unread_cases;
    ALTER TABLE sync.seen DROP COLUMN known_at;
    DELETE FROM sync.meta WHERE key = 'pending_view';
    UPDATE sync.meta SET value = '4' WHERE key = 'format';";

/// The store of the third format: nothing was kept by which an answer is known again.
const THIRD_FORMAT: &str = "
    CREATE OR REPLACE VIEW sync.fetched AS
      SELECT x.table_name, x.id, x.part, x.version,
        CASE WHEN m.mark > x.mark THEN m.status ELSE x.status END AS status,
        x.sent_at, x.fetched_at, x.definition, x.complete, x.again_at
      FROM sync.fetched_scopes x LEFT JOIN sync.fetched_marks m ON m.table_name = x.table_name
      WHERE m.forgotten IS NULL OR m.forgotten <= x.mark
      UNION ALL
      SELECT c.table_name, f.case_id AS id, '' AS part, f.versions[c.version_at] AS version,
        CASE WHEN m.mark > f.mark THEN m.status ELSE f.status END AS status,
        f.sent_at[c.times_at] AS sent_at, f.fetched_at[c.times_at] AS fetched_at,
        c.definition, true AS complete, NULL::BIGINT AS again_at
      FROM sync.fetched_cases f JOIN sync.fetched_coverage c ON c.coverage = f.coverage
      ANTI JOIN (SELECT id, table_name FROM sync.fetched_scopes WHERE part = '') x
        ON x.id = f.case_id AND x.table_name = c.table_name
      LEFT JOIN sync.fetched_marks m ON m.table_name = c.table_name
      WHERE m.forgotten IS NULL OR m.forgotten <= f.mark;
    ALTER TABLE sync.fetched_scopes DROP COLUMN digest;
    ALTER TABLE sync.fetched_cases DROP COLUMN digests;
    ALTER TABLE sync.journal_months DROP COLUMN answer_digest;
    UPDATE sync.meta SET value = '3' WHERE key = 'format';";

/// The store of the second format: lines of journals had no name but their place.
fn second_format() -> String {
    let tables = OF_LINES.map(|table| {
        format!(
            "ALTER TABLE main.{table} DROP COLUMN line_id; \
             ALTER TABLE history.{table} DROP COLUMN line_id; "
        )
    });
    format!(
        "{FIFTH_FORMAT} {FOURTH_FORMAT} {THIRD_FORMAT} {} DELETE FROM sync.columns WHERE column_name = 'line_id'; \
         ALTER TABLE sync.journal_months DROP COLUMN last_line_id; \
         ALTER TABLE sync.restatements DROP COLUMN line_id; \
         UPDATE sync.meta SET value = '2' WHERE key = 'format';",
        tables.concat()
    )
}

/// The words that were statuses then.
const WORDS: [&str; 10] = [
    "incomplete",
    "held",
    "lagging",
    "moved",
    "suspect",
    "unreadable",
    "reread",
    "full",
    "redefined",
    "gap",
];

fn open(world: &World) -> Connection {
    Connection::open(world.path("data/store.duckdb")).unwrap()
}

fn lines(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn fetched(conn: &Connection) -> Vec<String> {
    lines(conn, "SELECT f::VARCHAR FROM sync.fetched f ORDER BY table_name, id, part")
}

/// Brings the store up to this version by a run that reaches nobody, so that nothing else happens to it.
/// A command that looks has left it as it was.
fn upgrade(world: &World, format: u32) {
    let file = world.path("data/store.duckdb");
    let (before, status) = (std::fs::read(&file).unwrap(), world.run(&["status"]));
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("has format {format}")) && said.contains("casemirror sync"),
        "{said}"
    );
    assert!(std::fs::read(&file).unwrap() == before, "status changed the store");
    let sync = world.run_out_of_reach(&["sync"]);
    assert_eq!(sync.status.code(), Some(1), "{sync:?}");
    let copy = world.path(&format!("data/store.duckdb.before-format-{}", format + 1));
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = Connection::open(copy).unwrap();
    assert_eq!(
        one::<String>(&kept, "SELECT value FROM sync.meta WHERE key = 'format'"),
        format.to_string()
    );
}

/// The calls of the last run, by endpoint.
fn calls(conn: &Connection) -> BTreeMap<String, i64> {
    let mut statement = conn
        .prepare(
            "SELECT endpoint, calls FROM sync.calls \
             WHERE run_id = (SELECT max(run_id) FROM sync.runs) AND endpoint <> '/authtoken'",
        )
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_store_of_the_first_format_is_upgraded_and_nothing_is_fetched_again() {
    let world = World::unthrottled(40);
    world.bootstrap();
    // What is searched twice is done with the second time.
    world.sync();
    world.sync();
    let (idle, before) = {
        let store = world.store();
        let count = |sql: &str| one::<i64>(&store, sql);
        let cases = count("SELECT count(*) FROM sync.seen WHERE NOT removed");
        let folded = count("SELECT count(*) FROM sync.fetched_cases");
        assert!(folded <= cases && folded * 10 >= cases * 9, "{folded} of {cases} cases");
        let case_scopes = count(
            "SELECT count(*) FROM sync.fetched_scopes WHERE table_name IN \
                                 (SELECT table_name FROM sync.refresh_rules)",
        );
        assert!(case_scopes * 10 <= cases, "{case_scopes} scopes differ from their {cases} cases");
        (calls(&store), fetched(&store))
    };
    open(&world).execute_batch(&(second_format() + FIRST_FORMAT)).unwrap();

    upgrade(&world, 1);
    {
        let store = world.store();
        assert_eq!(fetched(&store), before);
        assert_eq!(one::<String>(&store, "SELECT value FROM sync.meta WHERE key = 'format'"), "13");
        assert_eq!(one::<i64>(&store, "SELECT count(*) FROM sync.seen WHERE dirty"), 0);
    }
    world.sync();
    let store = world.store();
    assert_eq!(calls(&store), idle);
    assert_eq!(fetched(&store), before);
    assert_eq!(one::<i64>(&store, "SELECT count(*) FROM sync.pending"), 0);
    drop(store);
    world.assert_equal();
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

#[test]
fn the_words_of_the_first_format_become_statuses() {
    let world = World::unthrottled(12);
    world.bootstrap();
    {
        let conn = open(&world);
        conn.execute_batch(&(second_format() + FIRST_FORMAT)).unwrap();
        let ids = lines(&conn, "SELECT case_id::VARCHAR FROM sync.seen ORDER BY case_id");
        assert!(ids.len() >= WORDS.len());
        for (id, word) in ids.iter().zip(WORDS) {
            conn.execute_batch(&format!(
                "UPDATE sync.fetched SET stamp = '{word}' \
                 WHERE table_name = 'case_roles' AND id = {id}; \
                 UPDATE sync.seen SET dirty = true WHERE case_id = {id}"
            ))
            .unwrap();
        }
    }
    upgrade(&world, 1);
    {
        let store = world.store();
        let found = lines(
            &store,
            "SELECT status FROM sync.fetched WHERE status <> 'current' AND version IS NULL \
             AND table_name = 'case_roles' ORDER BY id",
        );
        assert_eq!(found, WORDS);
    }
    world.sync();
    let store = world.store();
    let roles = calls(&store).into_iter().filter(|(endpoint, _)| endpoint.contains("Roles"));
    assert_eq!(roles.map(|(_, calls)| calls).sum::<i64>(), WORDS.len() as i64);
    assert_eq!(lines(&store, "SELECT status FROM sync.fetched WHERE status <> 'current'"), [""; 0]);
}

/// The lines of the month, each with its name, as what they say; of `history` with what ended it.
fn named(conn: &Connection, schema: &str, month: &str) -> Vec<String> {
    let change = if schema == "history" { "_change || ' '" } else { "''" };
    lines(
        conn,
        &format!(
            "SELECT {change} || line_id || ' ' || revenue_referral_key || ' ' || payment \
             FROM {schema}.revenue_journals WHERE journal_id = {OFFICE} \
               AND journal_month = '{month}-01' ORDER BY 1"
        ),
    )
}

#[test]
fn lines_of_a_store_without_names_get_them_and_no_two_have_one() {
    let closed = month(2);
    let lines_of_month = Options { journal_lines: Some(12), ..options(10) };
    let world = mirrored(lines_of_month, 2, &format!("[journals]\nids = [{OFFICE}]\n"));
    let revenue = Journal::RevenueJournals;
    // The fourth line changes, then leaves; the seventh changes twice, and has become the sixth.
    for (change, line) in [
        (JournalEdit::Amount, 4),
        (JournalEdit::Amount, 7),
        (JournalEdit::Removed, 4),
        (JournalEdit::Amount, 6),
    ] {
        edit(&world, &closed, revenue, change, Some(line));
        read_again(&world, &closed);
    }
    let changed = {
        let store = world.store();
        let six = format!(
            "SELECT revenue_referral_key FROM revenue_journals WHERE journal_id = {OFFICE} \
             AND journal_month = '{closed}-01' AND line_number = 6"
        );
        one::<String>(&store, &six)
    };
    open(&world).execute_batch(&second_format()).unwrap();
    upgrade(&world, 2);
    let store = world.store();
    let is = "SELECT count(*) FROM revenue_journals WHERE line_id <> line_number";
    assert_eq!(one::<i64>(&store, is), 0, "a line's place is its first name");
    let due = "SELECT count(*) FROM sync.journal_months WHERE due IS NOT NULL";
    assert_eq!(one::<i64>(&store, due), 0, "nothing is read again because of it");
    let history = named(&store, "history", &closed);
    let of = |what: &str| history.iter().filter(|line| line.starts_with(what)).count();
    // What left has a name of its own, and its earlier version too.
    assert_eq!(
        (history.len(), of("updated 6 "), of("updated 12 "), of("deleted 12 ")),
        (4, 2, 1, 1)
    );
    let sixth = history.iter().filter(|line| line.starts_with("updated 6 "));
    assert!(sixth.clone().all(|line| line.contains(&changed)), "{history:?} {changed}");
    let described = "SELECT count(*) FROM duckdb_columns() WHERE column_name = 'line_id' \
                     AND schema_name IN ('main', 'history') AND comment IS NOT NULL";
    assert_eq!(one::<i64>(&store, described), 2 * OF_LINES.len() as i64);
    drop(store);

    edit(&world, &closed, revenue, JournalEdit::Inserted, None);
    read_again(&world, &closed);
    let store = world.store();
    let top = "SELECT max(line_id) FROM revenue_journals WHERE line_number = 1 AND line_id > 1";
    assert_eq!(one::<i64>(&store, top), 13, "none of a line that was there");
    assert_eq!(named(&store, "history", &closed), history);
    drop(store);
    // An office that was left out is no difference here.
    let differing = crate::support::differences_of(
        &world.store(),
        &world.sandbox.journal_tables(
            casemirror::sandbox::Level::Offices,
            Some(&closed),
            &["revenue_journals", "revenue_journal_annotations"],
        ),
    );
    let own = format!("\"offices\"/{OFFICE}/\"{closed}");
    let differing: Vec<&String> = differing.iter().filter(|line| line.contains(&own)).collect();
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn tables_of_state_say_what_they_are_in_stores_of_earlier_versions_too() {
    let world = World::unthrottled(4);
    world.bootstrap();
    let silent =
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'sync' AND comment IS NULL";
    assert_eq!(lines(&world.published(), silent), [""; 0]);
    {
        let conn = open(&world);
        conn.execute_batch("COMMENT ON TABLE sync.meta IS NULL").unwrap();
        assert_eq!(lines(&conn, silent), ["meta"]);
    }
    world.sync();
    assert_eq!(lines(&world.store(), silent), [""; 0]);
}

#[test]
fn what_is_pending_in_a_store_of_the_fourth_format_is_pending_still_and_since_then() {
    let world = World::unthrottled(30);
    let only = ["sync", "--only", "cases,projects"];
    assert_eq!(world.run(&only).status.code(), Some(0));
    let pending =
        "SELECT table_name || ' ' || scope || ' ' || reason FROM sync.pending ORDER BY ALL";
    let before = lines(&world.store(), pending);
    assert!(before.len() > 500, "{}", before.len());
    open(&world)
        .execute_batch(&format!(
            "{FIFTH_FORMAT} {FOURTH_FORMAT} UPDATE sync.pending SET since = TIMESTAMPTZ '2026-01-02 00:00:00+00'"
        ))
        .unwrap();
    assert_eq!(world.run(&only).status.code(), Some(0));
    assert_eq!(lines(&world.store(), pending), before);
    let since = "SELECT DISTINCT since::VARCHAR FROM sync.pending WHERE table_name = 'contacts'";
    assert_eq!(lines(&world.store(), since), ["2026-01-02 00:00:00+00"]);
}

#[test]
fn a_store_of_the_fifth_format_says_how_fresh_its_tables_are_as_it_did() {
    let world = World::unthrottled(10);
    world.sync();
    let fresh = "SELECT f::VARCHAR FROM report.freshness f ORDER BY table_name";
    let before = lines(&world.store(), fresh);
    open(&world).execute_batch(FIFTH_FORMAT).unwrap();
    upgrade(&world, 5);
    assert_eq!(lines(&world.store(), fresh), before);
    let unknown = "SELECT count(*) FROM sync.freshness WHERE last_checked IS NULL";
    assert!(one::<i64>(&world.store(), unknown) < 10);
}

/// What was read by then is known from the rows that came of it, and from when it was last read.
#[test]
fn a_store_of_the_eleventh_format_knows_what_was_read_by_then() {
    let world = brisk(unthrottled(10));
    world.sync();
    let costs = |from: &str| {
        lines(
            &world.published(),
            &format!("SELECT c::VARCHAR FROM report.{from} c ORDER BY case_id"),
        )
    };
    let then = one::<String>(&world.published(), "SELECT now()::VARCHAR");
    let (was, as_of) = (costs("total_cost"), format!("total_cost_as_of('{then}')"));
    assert_eq!(costs(&as_of), was);
    // All is read again, so that only what came of it tells of it.
    for id in shown_cases(&world) {
        change(&world, id, Facet::Nothing);
    }
    world.sync();
    assert_eq!(costs(&as_of), was);
    let gone = shown_cases(&world)[0];
    world.sandbox.act(&Act::DeleteCase { case_id: gone }).unwrap();
    assert_eq!(world.run(&["sync", "--full"]).status.code(), Some(0));
    assert_eq!(costs(&as_of), was);
    open(&world).execute_batch(ELEVENTH_FORMAT).unwrap();
    upgrade(&world, 11);
    let after = costs(&as_of);
    assert_eq!(after.len(), was.len());
    let (same, open): (Vec<_>, Vec<_>) = after.iter().partition(|row| was.contains(row));
    assert!(!same.is_empty());
    // What was empty may not have been read: it is not said to cost nothing.
    assert!(open.iter().all(|row| row.contains("'total_cost': NULL")), "{open:#?}");
    // Between the listing and the first reading no total was known, nor of the case that has left since.
    let listed = "SELECT min(_valid_from)::VARCHAR FROM history.cases";
    let listed = one::<String>(&world.store(), listed);
    let known = format!(
        "SELECT count(*) || ' ' || count(total_cost) FROM report.total_cost_as_of('{listed}')"
    );
    assert_eq!(one::<String>(&world.published(), &known), format!("{} 0", was.len()));
}

#[test]
fn a_copy_from_before_an_upgrade_goes_when_privacy_hides_more() {
    let world = World::unthrottled(6);
    world.sync();
    open(&world).execute_batch(FIFTH_FORMAT).unwrap();
    // What is left of a copy over which a process was killed.
    let unfinished = "data/.store.duckdb.before-format-6.tmp-0123456789abcdef-0";
    let unfinished = world.path(unfinished);
    std::fs::write(&unfinished, "half a store").unwrap();
    world.sync();
    assert!(!unfinished.exists());
    let copy = world.path("data/store.duckdb.before-format-6");
    assert!(copy.exists());
    // As of a version that removed none.
    std::fs::write(&unfinished, "half a store").unwrap();
    world.sync();
    assert!(copy.exists(), "it is kept until somebody removes it");
    let output = world.run(&["sync", "--set", "privacy.identifiers=drop"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!copy.exists() && !unfinished.exists());
    assert!(String::from_utf8_lossy(&output.stderr).contains("before-format-6"), "{output:?}");
}
