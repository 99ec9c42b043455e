//! Tables that hang on no case: read per row of another table, from a second address, or taken from
//! another table's rows; and the tables that users add.

use casemirror::sandbox::{Act, Control, DefinitionsAt, Fault, Options};

use crate::support::follow::{UNTHROTTLED, assert_status, brisk, differences_beside, unthrottled};
use crate::support::scripted::{fault, refuse};
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
fn offices_that_were_listed_keep_what_they_are_when_the_list_is_not_there() {
    // A list that has answered does not vanish, whatever one 404 says; 405 refuses it for good. In
    // neither case anything stands in for it.
    for (status, exit_status, is) in [(404, 3, "failing: "), (405, 0, "absent: ")] {
        let world = brisk(unthrottled(12));
        world.bootstrap();
        world.sandbox.fault(fault("/api/Offices", None, refuse(status)));
        assert_status(&world.run(&["sync", "--full"]), exit_status);
        world.assert_equal();
        assert!(told(&world, "offices").starts_with(is), "{}", told(&world, "offices"));
        world.sandbox.clear_faults();
        // With the permissions it is tried again.
        let store = duckdb::Connection::open(world.path("data/store.duckdb")).unwrap();
        store.execute_batch("UPDATE sync.schedules SET last_run = '2026-01-01'").unwrap();
        drop(store);
        assert_status(&world.run(&["sync", "--full"]), 0);
        world.assert_equal();
        assert_eq!(told(&world, "offices"), "ok");
    }
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

/// What `sync.resources` says of a table: status and reason.
fn told(world: &World, table: &str) -> String {
    let sql = format!(
        "SELECT concat_ws(': ', status, reason) FROM sync.resources WHERE table_name = '{table}'"
    );
    one(&world.published(), &sql)
}

/// An empty table never leaves open why it is empty.
#[test]
fn a_table_that_depends_on_one_that_is_not_read_says_so_and_recovers_with_it() {
    let world = brisk(unthrottled(12));
    let permission = || "OfficeAdministration - Read".to_owned();
    world.sandbox.control(Control::Withdraw { permission: permission() });
    let off = "[resources]\ndisable = [\"case_files\", \"employees\", \"dynamic_sale_text_use\"]\n";
    world.configure(&format!("{UNTHROTTLED}{off}"));
    world.sync();
    for (table, why) in [
        ("case_file_access", "disabled: its rows come with case_files, which is disabled"),
        ("employee_offices", "disabled: it is read per row of employees, which is disabled"),
        (
            "dynamic_sale_texts",
            "disabled: which cases are asked says dynamic_sale_text_use, which is disabled",
        ),
        (
            "case_journal_annotations",
            "forbidden: its rows come with case_journals, which is forbidden",
        ),
    ] {
        let told = told(&world, table);
        assert!(told.starts_with(why), "{table}: {told}");
    }
    assert!(told(&world, "case_journal_annotations").contains("OfficeAdministration - Read"));
    let derived = "SELECT count(*) FROM sync.resources WHERE status <> 'ok' AND since IS NULL";
    assert_eq!(one::<i64>(&world.store(), derived), 0);
    let since = "SELECT string_agg(since::VARCHAR, ',' ORDER BY table_name) FROM sync.resources";
    let before: String = one(&world.store(), since);
    world.sync();
    assert_eq!(one::<String>(&world.store(), since), before, "nothing changed, and nothing moves");

    world.sandbox.control(Control::Grant { permission: permission() });
    world.configure(&format!("{UNTHROTTLED}[schedule]\nreference = \"* * * * * *\"\n"));
    world.sync();
    world.assert_equal();
    let other = "SELECT count(*) FROM sync.resources \
                 WHERE status <> 'ok' OR reason IS NOT NULL AND table_name <> 'events'";
    assert_eq!(one::<i64>(&world.store(), other), 0);
}

/// What becomes unreadable never stops the others.
#[test]
fn what_hangs_on_rows_that_are_known_is_read_on_when_their_table_is_not() {
    let world = brisk(unthrottled(12));
    world.bootstrap();
    world.configure(&format!(
        "{UNTHROTTLED}[resources]\ndisable = [\"employees\"]\n\
         [schedule]\nreference = \"* * * * * *\"\n"
    ));
    let employee: i64 = one(&world.store(), "SELECT min(id) FROM main.employees");
    let office: i64 = one(&world.store(), "SELECT max(id) FROM main.offices");
    let moved = Act::MoveEmployee { employee_id: employee, office_id: office };
    world.sandbox.act(&moved).unwrap();
    world.sync();
    assert_eq!(differences_beside(&world, "employees"), [""; 0]);
    let told = told(&world, "employee_offices");
    assert_eq!(
        told,
        "ok: it is read per row of employees, which is disabled (resources.disable names it)"
    );
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

/// What changes on our side is not a change of theirs (docs/architecture.md, "Values").
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

const THINGS: &str = r#"
table = "things"
comment = "Things."
key = ["id"]
group = "list"
schedule = "reference"
[read]
method = "GET"
path = "/api/Things"
answer = "list"
[[column]]
field = "Id"
type = "int"
comment = "The thing."
"#;

const PARTS: &str = r#"
table = "parts"
comment = "What things are made of."
key = ["thing_id", "position"]
group = "child"
[child]
table = "things"
field = "Parts"
scalar = "name"
[[column]]
name = "thing_id"
field = "id"
from = "parent"
type = "int"
comment = "The thing."
[[column]]
name = "position"
from = "position"
type = "int"
comment = "Place in the list, from 1."
[[column]]
field = "Name"
type = "string"
comment = "The part."
"#;

#[test]
fn rows_of_lists_within_a_whole_list_leave_with_it() {
    let world = brisk(unthrottled(6));
    write(&world, "things.toml", THINGS);
    write(&world, "parts.toml", PARTS);
    world.configure(&format!(
        "{UNTHROTTLED}[resources]\ndir = \"own\"\n[schedule]\nreference = \"* * * * * *\"\n"
    ));
    let json = [("Content-Type".to_owned(), "application/json".to_owned())];
    let answer = |body: &str| {
        world.sandbox.clear_faults();
        let answer =
            Fault::Refuse { status: 200, headers: json.clone().into(), body: body.to_owned() };
        world.sandbox.fault(fault("/api/Things", None, answer));
        world.sync();
    };
    let parts = |schema: &str| {
        let sql = format!(
            "SELECT coalesce(string_agg(concat(thing_id, name), ' ' ORDER BY thing_id, position), '') \
             FROM {schema}.parts"
        );
        one::<String>(&world.store(), &sql)
    };
    answer(r#"[{"Id":1,"Parts":["a","b"]},{"Id":2,"Parts":["c"]},{"Id":3}]"#);
    assert_eq!(parts("main"), "1a 1b 2c");
    answer(r#"[{"Id":1,"Parts":["a"]},{"Id":3,"Parts":["d"]}]"#);
    assert_eq!(parts("main"), "1a 3d");
    assert_eq!(parts("history"), "1b 2c");

    // What would leave all at once is held, as in the list itself.
    let many: Vec<String> = (0..12).map(|n| format!("\"p{n}\"")).collect();
    answer(&format!(r#"[{{"Id":1,"Parts":[{}]}}]"#, many.join(",")));
    world.sandbox.clear_faults();
    let headers = json.clone().into();
    let none = Fault::Refuse { status: 200, headers, body: r#"[{"Id":1}]"#.to_owned() };
    world.sandbox.fault(fault("/api/Things", None, none));
    assert_status(&world.run(&["sync"]), 3);
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM main.parts"), 12);
    assert_status(&world.run(&["sync", "--allow-removals"]), 0);
    assert_eq!(parts("main"), "");
}
