//! Which reports are links: those of which nothing has changed that they are made from.

use super::*;
use crate::mirror::reports;

/// The reports whose files are those of the snapshot before, when the store was changed by this between
/// the two.
fn linked_after(world: &World, change: &str) -> BTreeSet<String> {
    world.export(T2).unwrap();
    linked_now(world, change)
}

/// The same where there is a snapshot.
fn linked_now(world: &World, change: &str) -> BTreeSet<String> {
    let before = world.latest().snapshot_id;
    world.conn.execute_batch(change).unwrap();
    world.export(T2).unwrap();
    world.assert_sums();
    let all = world.linked_between(&before, &world.latest().snapshot_id);
    all.iter().filter_map(|table| table.strip_prefix("report.")).map(str::to_owned).collect()
}

fn all_but(written: &[&str]) -> BTreeSet<String> {
    let kept = reports::RELATIONS.into_iter().filter(|name| !written.contains(name));
    kept.map(str::to_owned).collect()
}

#[test]
fn nothing_is_written_but_the_snapshots_own_row_while_nothing_changes() {
    assert_eq!(linked_after(&World::new(), ""), all_but(&["snapshot"]));
}

#[test]
fn a_report_is_written_when_something_that_it_reads_has_changed() {
    let world = World::new();
    world.export(T2).unwrap();
    for (change, written) in [
        (
            "UPDATE sync.changes SET counter = counter + 1 WHERE table_name = 'cases'",
            &["signed_cases", "signed_cases_lost", "total_cost", "freshness"][..],
        ),
        ("INSERT INTO sync.changes VALUES ('costs', '', 1)", &["total_cost", "freshness"]),
        // Nothing counts these.
        ("INSERT INTO main.document_costs (case_id) VALUES (1)", &["total_cost", "freshness"]),
        ("UPDATE history.cases SET _valid_to = now()", &["signed_cases_lost"]),
        ("DELETE FROM report.calendar WHERE day = '2026-02-02'", &["calendar", "signed_cases"]),
        ("INSERT INTO sync.closings (journal) VALUES ('x')", &["closings", "journal_statement"]),
        (
            "UPDATE sync.resources SET status = 'forbidden' WHERE table_name = 'cases'",
            &["signed_cases", "total_cost", "journal_coverage"],
        ),
        // Below the view sync.read_scopes.
        (
            "INSERT INTO sync.fetched_scopes (table_name, id) VALUES ('costs', 1)",
            &["total_cost", "commission", "freshness"],
        ),
    ] {
        let linked = linked_now(&world, change);
        for report in written {
            assert!(!linked.contains(*report), "{report} is linked after {change}");
        }
        assert!(linked.contains("journal_restatements"), "{change} wrote everything");
    }
}

#[test]
fn another_zone_or_program_writes_every_report() {
    let zone = "INSERT INTO sync.meta VALUES ('calendar_zone', 'Europe/Helsinki')";
    assert_eq!(linked_after(&World::new(), zone), BTreeSet::new());

    let world = World::new();
    world.export(T2).unwrap();
    let path = world.parquet().join("latest/manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let version = format!(r#""program_version": "{}""#, env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version));
    fs::write(&path, text.replace(&version, r#""program_version": "0.0.1""#)).unwrap();
    assert_eq!(linked_now(&world, ""), BTreeSet::new());
}

#[test]
fn another_definition_writes_the_report_and_those_that_read_it() {
    // The same columns, other rows.
    let change = "CREATE OR REPLACE VIEW report.journal_restatements AS \
                    SELECT * REPLACE (coalesce(change, 'x') AS change) FROM sync.restatements";
    assert_eq!(linked_after(&World::new(), change), all_but(&["journal_restatements", "snapshot"]));
    let world = World::new();
    let below = |x: u8| {
        format!(
            "CREATE OR REPLACE VIEW sync.below AS SELECT {x} AS x; \
             CREATE OR REPLACE VIEW report.closings AS SELECT * FROM sync.below"
        )
    };
    world.conn.execute_batch(&below(1)).unwrap();
    assert_eq!(linked_after(&world, &below(2)), all_but(&["closings", "snapshot"]));
}

#[test]
fn a_column_more_writes_a_report_that_has_all_columns_of_its_table() {
    let world = World::new();
    world
        .conn
        .execute_batch("CREATE OR REPLACE VIEW report.closings AS SELECT * FROM main.offices")
        .unwrap();
    // No row has changed, and no counter has moved.
    let linked = linked_after(&world, "ALTER TABLE main.offices ADD COLUMN more BIGINT");
    assert!(!linked.contains("closings"), "{linked:?}");
    assert!(linked.contains("total_cost"), "{linked:?}");
}

#[test]
fn what_may_be_another_each_time_is_always_written() {
    let world = World::new();
    world.export(T2).unwrap();
    for sql in [
        "SELECT now() AS x",
        "SELECT CURRENT_TIMESTAMP AS x",
        "SELECT random() AS x",
        "SELECT content AS x FROM read_text('/dev/null')",
        "SELECT * FROM query('SELECT 1 AS x')",
        "SELECT day AS x FROM report.calendar USING SAMPLE 3 ROWS",
        "SELECT x FROM report.signed_cases_as_of(TIMESTAMPTZ '2026-11-20') AS t(x)",
    ] {
        linked_now(&world, &format!("CREATE OR REPLACE VIEW report.closings AS {sql}"));
        assert_eq!(linked_now(&world, ""), all_but(&["closings", "snapshot"]), "{sql}");
    }
}

#[test]
fn a_table_that_nothing_counts_and_that_is_large_proves_nothing() {
    let world = World::new();
    world
        .conn
        .execute_batch("INSERT INTO sync.restatements (line_id) FROM range(100_001)")
        .unwrap();
    let linked = linked_after(&world, "");
    assert!(!linked.contains("journal_restatements"), "{linked:?}");
    assert!(linked.contains("total_cost"), "{linked:?}");
}
