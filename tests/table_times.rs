//! When a table was last written and last read is kept, and is the latest that its rows and scopes have
//! ever said.

use std::collections::BTreeMap;

use casemirror::sandbox::{Act, Facet, Journal, JournalEdit, ListEdit};
use duckdb::Connection;

use crate::support::follow::{UNTHROTTLED, change, shown_cases};
use crate::support::journals::{edit, mirrored, month, options, read_again, rows};
use crate::support::{World, shown};

/// By table: when it was last written, and last read.
type Times = BTreeMap<String, [Option<i64>; 2]>;

fn times(conn: &Connection, sql: &str) -> Times {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?])));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// What the rows say now.
fn times_of_rows(store: &Connection) -> Times {
    let tables = rows(store, "SELECT table_name FROM sync.resources");
    let of_tables: Vec<String> = tables
        .iter()
        .map(|table| {
            format!("SELECT '{table}' AS table_name, max(_synced_at) AS written FROM main.{table}")
        })
        .collect();
    times(
        store,
        &format!(
            "SELECT t.table_name, epoch_us(t.written), epoch_us(max(f.read_at)) FROM ({}) t \
             JOIN sync.resources r ON r.table_name = t.table_name \
             LEFT JOIN (SELECT table_name, fetched_at AS read_at FROM sync.fetched \
                        UNION ALL SELECT table_name, read_at FROM sync.journal_months) f \
               ON f.table_name = r.read_with GROUP BY ALL",
            of_tables.join(" UNION ALL ")
        ),
    )
}

fn kept(store: &Connection) -> Times {
    let sql = "SELECT table_name, epoch_us(last_change), epoch_us(last_checked) \
               FROM report.freshness";
    times(store, sql)
}

/// What is kept is the latest that rows have ever said, those of now among them. Returns for how many
/// tables that is later than before.
fn assert_latest(world: &World, latest: &mut Times) -> usize {
    let store = world.store();
    let before = latest.clone();
    for (table, now) in times_of_rows(&store) {
        let latest = latest.entry(table).or_default();
        *latest = [latest[0].max(now[0]), latest[1].max(now[1])];
    }
    assert_eq!(kept(&store), *latest);
    latest.iter().filter(|(table, times)| before.get(*table) != Some(times)).count()
}

#[test]
fn when_a_table_was_written_and_read_is_what_its_rows_say_whatever_was_committed() {
    let world = mirrored(options(12), 2, "");
    let mut latest = Times::new();
    assert!(assert_latest(&world, &mut latest) > 40);

    // Rows that come, change and go, of cases, lists and contacts.
    let cases = shown_cases(&world);
    for (case_id, facet) in cases.iter().zip([
        Facet::Activity,
        Facet::ActivityRemoved,
        Facet::RoleRemoved,
        Facet::Cost,
        Facet::CostRemoved,
        Facet::Image,
    ]) {
        change(&world, *case_id, facet);
    }
    world.sandbox.act(&Act::ProcessingBasis { edit: ListEdit::Removed }).unwrap();
    world.sandbox.act(&Act::EditContact { contact_id: Some(50_001), at: None }).unwrap();
    world.sync();
    assert!(assert_latest(&world, &mut latest) > 10);

    // A case that goes, and one that is hidden.
    world.sandbox.act(&Act::DeleteCase { case_id: cases[6] }).unwrap();
    world.sandbox.act(&Act::HideCase { case_id: cases[7], silent: false }).unwrap();
    world.configure(&format!("{UNTHROTTLED}[schedule]\nreconcile = \"* * * * * *\"\n"));
    world.sync();
    assert_latest(&world, &mut latest);
    let left = format!("SELECT id FROM main.cases WHERE id IN ({}, {})", cases[6], cases[7]);
    assert_eq!(rows(&world.store(), &left), [""; 0]);

    // Months of journals that change, and the same again.
    world.configure(UNTHROTTLED);
    let closed = month(2);
    edit(&world, &closed, Journal::RevenueJournals, JournalEdit::Removed, Some(1));
    edit(&world, &closed, Journal::CaseJournals, JournalEdit::Inserted, None);
    for _ in 0..2 {
        read_again(&world, &closed);
        assert!(assert_latest(&world, &mut latest) >= 4);
    }

    // All answers are taken anew and are what they were; then a column moves to `_extra`, which is no
    // change of theirs; then privacy hides more.
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(assert_latest(&world, &mut latest) > 20);
    let notes = include_str!("../schemas/notes.toml");
    let dropped = "[[column]]\nfield = \"CaseIds\"\ntype = \"list<int>\"\ncomment = \"Ids of the cases the \
                   note is attached to, beside its owner.\" # reference 2.10\n\n";
    assert!(notes.contains(dropped));
    std::fs::create_dir(world.path("own")).unwrap();
    std::fs::write(world.path("own/notes.toml"), notes.replace(dropped, "")).unwrap();
    world.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"own\"\n"));
    world.sync();
    assert_latest(&world, &mut latest);
    world.configure(&format!("contact_details = \"drop\"\n{UNTHROTTLED}"));
    world.sync();
    assert_latest(&world, &mut latest);
}
