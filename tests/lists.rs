//! Tables that hang on no case: read per row of another table, from a second address, or taken from
//! another table's rows; and the tables that users add.

use casemirror::sandbox::{DefinitionsAt, Options};

use crate::support::follow::{UNTHROTTLED, brisk, unthrottled};
use crate::support::{World, one};

fn write(world: &World, name: &str, text: &str) {
    std::fs::create_dir_all(world.path("own")).unwrap();
    std::fs::write(world.path("own").join(name), text).unwrap();
}

#[test]
fn offices_and_definitions_are_found_where_this_service_has_them() {
    let world = brisk(Options {
        lists_offices: false,
        definitions_at: DefinitionsAt::Economics,
        ..unthrottled(20)
    });
    world.sync();
    world.assert_equal();
    let tables = "SELECT count(*) FROM sync.resources WHERE status <> 'ok' AND table_name IN \
                  ('offices', 'accounts', 'employee_offices', 'extended_entry_definitions')";
    assert_eq!(one::<i64>(&world.store(), tables), 0);
    assert!(one::<i64>(&world.store(), "SELECT count(*) FROM main.offices") > 0);
    assert!(one::<bool>(&world.published(), "SELECT complete FROM report.snapshot"));
}

#[test]
fn a_list_that_is_nowhere_is_absent_and_no_failure() {
    let world = brisk(unthrottled(12));
    write(
        &world,
        "nothing.toml",
        "table = \"nothing\"\ncomment = \"Nothing.\"\nkey = [\"id\"]\ngroup = \"list\"\n\
         schedule = \"reference\"\n[read]\nmethod = \"GET\"\npath = \"/api/Nothing\"\n\
         answer = \"list\"\nfallback = { path = \"/api/Nowhere\" }\n\
         [[column]]\nfield = \"Id\"\ntype = \"int\"\ncomment = \"It.\"\n",
    );
    world.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"own\"\n"));
    world.sync();
    let status = "SELECT status FROM sync.resources WHERE table_name = 'nothing'";
    assert_eq!(one::<String>(&world.store(), status), "absent");
    let paths: Vec<String> = world.sandbox.stats().log.iter().map(|c| c.path.clone()).collect();
    assert!(paths.iter().any(|path| path == "/api/Nowhere"), "{paths:?}");
}

const COST_COPIES: &str = r#"
table = "cost_copies"
comment = "The costs that the conditions repeat."
key = ["case_id", "position"]
group = "child"
[child]
table = "property_conditions"
field = "Costs"
[[column]]
name = "case_id"
field = "case_id"
from = "parent"
type = "int"
comment = "The case."
[[column]]
name = "position"
from = "position"
type = "int"
comment = "Place in the list, from 1."
[[column]]
field = "Comment"
type = "string"
comment = "What it is for."
[[column]]
field = "Amount"
type = "decimal"
comment = "The amount."
"#;

/// What changes on our side is not a change of theirs: contract section 3.
#[test]
fn a_new_or_redefined_child_table_reads_its_parent_again_and_makes_no_version() {
    let world = brisk(unthrottled(20));
    let conditions = include_str!("../schemas/property_conditions.toml");
    write(&world, "property_conditions.toml", &conditions.replace("leave_out = [\"Costs\"]\n", ""));
    world.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"own\"\n"));
    world.sync();
    let store = world.store();
    let kept = "SELECT count(*) FROM main.property_conditions WHERE _extra LIKE '%\"Costs\"%'";
    assert!(one::<i64>(&store, kept) > 0, "without a table the list is in _extra");
    drop(store);

    let read_again = |file: &str| {
        write(&world, "cost_copies.toml", file);
        world.sandbox.reset_stats();
        world.sync();
        let log = world.sandbox.stats().log;
        let calls = log.iter().filter(|c| c.path.starts_with("/api/Conditions/Properties/"));
        let cases: i64 = one(&world.store(), "SELECT count(*) FROM main.property_conditions");
        assert!(calls.count() as i64 >= cases, "every case's conditions are read again");
        let versions = "SELECT (SELECT count(*) FROM history.property_conditions) \
                        + (SELECT count(*) FROM history.cost_copies)";
        assert_eq!(one::<i64>(&world.store(), versions), 0);
    };
    read_again(COST_COPIES);
    let rows = "SELECT count(*) FROM main.cost_copies WHERE amount IS NOT NULL";
    let count: i64 = one(&world.store(), rows);
    assert!(count > 0);
    assert_eq!(one::<i64>(&world.store(), kept), 0, "the list has a table now");

    // Another type, one column less, one more.
    let other = COST_COPIES.replace("\"decimal\"", "\"money\"").replace("\"Comment\"", "\"VAT\"");
    read_again(&other.replace("type = \"string\"", "type = \"decimal\""));
    let kind = "SELECT data_type FROM duckdb_columns() WHERE schema_name = 'main' \
                AND table_name = 'cost_copies' AND column_name = 'amount'";
    assert_eq!(one::<String>(&world.store(), kind), "DECIMAL(18,2)");
    assert_eq!(one::<i64>(&world.store(), rows), count);
    let moved = "SELECT count(*) FROM main.cost_copies WHERE _extra LIKE '%\"Comment\"%'";
    assert!(one::<i64>(&world.store(), moved) > 0, "a dropped column's values are in _extra");
}
