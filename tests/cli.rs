//! The commands: what they print, what they leave alone, with which status they end.

use std::collections::HashMap;
use std::process::Output;

use rstest::rstest;
use serde_json::Value;

use casemirror::sandbox::{Fault, Rule};

use crate::support::{World, binary, one, shown};

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that a command is done; returns what it printed.
#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", shown(output));
    stdout(output)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", shown(output)))
}

#[test]
fn init_writes_a_file_that_only_its_owner_reads_and_never_overwrites() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let init = || binary().current_dir(folder.path()).arg("init").output().unwrap();
    done(&init());
    let path = folder.path().join("casemirror.toml");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    std::fs::write(&path, "mine").unwrap();
    let again = init();
    assert_eq!(again.status.code(), Some(2), "{}", shown(&again));
    assert!(stderr(&again).contains("casemirror.toml"), "{}", stderr(&again));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn init_writes_where_a_path_says_or_else_where_the_other_commands_would_read() {
    let folder = tempfile::tempdir().unwrap();
    let init = |args: &[&str]| {
        done(&binary().current_dir(folder.path()).arg("init").args(args).output().unwrap());
    };
    let is_there = |name: &str| folder.path().join(name).exists();
    init(&["--config", "theirs.toml"]);
    assert!(is_there("theirs.toml") && !is_there("casemirror.toml"));
    init(&["--config", "theirs.toml", "typed.toml"]);
    assert!(is_there("typed.toml") && !is_there("casemirror.toml"));
}

#[test]
fn check_shows_every_table_and_changes_nothing() {
    let world = World::new(3);
    let permission = "Activities - Read".to_owned();
    world.sandbox.control(casemirror::sandbox::Control::Withdraw { permission });
    world.configure("[resources]\ndisable = [\"costs\"]");
    let table = done(&world.run(&["check"]));
    let row = |name: &str| {
        let line = table.lines().find(|line| line.trim().starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in\n{table}"));
        line.split_whitespace().rev().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("property_conditions"), "yes yes");
    assert_eq!(row("cases"), "yes -", "no permission is documented for it");
    assert_eq!(row("activities"), "yes no", "enabled, not granted");
    assert_eq!(row("costs"), "no -", "not enabled");
    let told = "1 enabled table lacks a permission: it will be empty";
    assert!(table.contains(told), "{table}");
    assert!(table.contains("events: not enabled, because only webhooks tell"), "{table}");
    assert!(!world.path("data").exists(), "check made files");
    assert_eq!(world.sandbox.stats().feed.calls, 0);
}

#[test]
fn check_shows_what_may_be_read_in_part() {
    let world = World::new(3);
    let told = "without SettlementView - Read no rows of note_type Economics are shown";
    let table = done(&world.run(&["check"]));
    assert!(table.contains("Everything that is enabled may be read."), "{table}");
    assert!(!table.contains(told) && !table.contains("in part"), "{table}");
    let permission = "SettlementView - Read".to_owned();
    world.sandbox.control(casemirror::sandbox::Control::Withdraw { permission });
    let table = done(&world.run(&["check"]));
    let row = table.lines().find(|line| line.trim().starts_with("notes ")).unwrap_or_default();
    assert!(
        row.contains("; for all rows SettlementView - Read") && row.contains("in part"),
        "{row}"
    );
    assert!(!table.contains("may be read."), "{table}");
    assert!(table.contains(told), "{table}");
    world.configure("[resources]\ndisable = [\"notes\"]");
    let table = done(&world.run(&["check"]));
    assert!(table.contains("Everything that is enabled may be read."), "{table}");
}

#[rstest]
#[case("sync")]
#[case("check")]
#[case("status")]
fn a_wrong_configuration_is_refused_whole_before_anything_is_touched(#[case] command: &str) {
    let world = World::new(3);
    world.configure("[feed]\npol = \"5s\"\ncalls = 0\n[store]\nmemory_limit = 7");
    let output = world.run(&[command]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    let said = stderr(&output);
    for text in ["feed.pol", "did you mean feed.poll", "feed.calls", "store.memory_limit"] {
        assert!(said.contains(text), "{text} is not in\n{said}");
    }
    assert_eq!(said.matches("casemirror.toml:").count(), 3, "each with its line:\n{said}");
    assert!(!world.path("data").exists());
    assert_eq!(world.sandbox.stats().calls, 0);
}

#[test]
fn levels_that_are_not_understood_are_told_once_and_end_nothing() {
    let world = World::unthrottled(1);
    for (levels, told) in [("casemirror=loud", 1), ("casemirror=warn", 0), ("", 0)] {
        let output = world.command(&["schema"]).env("RUST_LOG", levels).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(
            said.matches("RUST_LOG is not understood and not heeded").count(),
            told,
            "{said}"
        );
        // No terminal, no colours.
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}

/// The disk of logs is full, or who read them went away.
#[test]
fn what_cannot_be_logged_ends_nothing() {
    let world = World::unthrottled(3);
    let status = |args: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        world.command(args).stderr(full).status().unwrap().code()
    };
    assert_eq!(status(&["status"]), world.run(&["status"]).status.code());
    assert_eq!(status(&["sync"]), Some(0));
    assert_eq!(status(&["query", "selec 1"]), Some(1));
}

#[test]
fn the_error_that_ends_a_command_is_a_line_of_the_log_where_that_is_json() {
    let world = World::new(3);
    let output = world.run(&["status", "--log-format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = stderr(&output);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let last = lines.last().unwrap_or_else(|| panic!("{}", shown(&output)));
    assert_eq!(last["level"], "ERROR");
    assert!(last["timestamp"].is_string(), "{last}");
    let message = last["fields"]["message"].as_str().unwrap();
    let reason = last["fields"]["reason"].as_str().unwrap();
    assert!(!message.is_empty() && reason.starts_with(message), "{last}");
    // Another one has a hint of its own.
    let refused = Rule {
        method: None,
        path: "/authtoken".to_owned(),
        query: None,
        nth: 1,
        count: None,
        fault: Fault::Refuse { status: 401, headers: HashMap::default(), body: String::new() },
    };
    world.sandbox.fault(refused);
    let said = stderr(&world.run(&["check", "--log-format", "json"]));
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(last["fields"]["hint"].as_str().unwrap().contains("source.client_id"), "{last}");
}

#[test]
fn an_unknown_table_is_refused_with_those_that_there_are() {
    let world = World::new(3);
    let output = world.run(&["sync", "--only", "cases,case_rolls"]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    let said = stderr(&output);
    assert!(said.contains("did you mean case_roles?") && said.contains("costs, "), "{said}");
    let output = world.run(&["sync", "--only", "offices,contacts", "--case", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let said = shown(&output);
    assert!(said.contains("--only offices,contacts") && said.contains("is no case's"), "{said}");
    let said = stderr(&world.run(&["sync", "--case", "17,abc"]));
    assert!(said.contains("an id is a whole number from 1 on, such as 1017"), "{said}");
    assert!(!world.path("data").exists(), "a store was made for it");
    assert_eq!(world.sandbox.stats().calls, 0);
}

#[test]
fn status_tells_what_is_mirrored_and_what_is_not_as_it_should_be() {
    let world = World::unthrottled(6);
    let before = world.run(&["status"]);
    assert_eq!(before.status.code(), Some(1), "{}", shown(&before));
    assert!(stderr(&before).contains("casemirror sync"), "{}", stderr(&before));
    assert!(!world.path("data/store.duckdb").exists());

    world.sync();
    let output = world.run(&["status", "--json"]);
    done(&output);
    let status = json(&output);
    assert_eq!(status["complete"], true);
    assert_eq!(status["problems"], Value::Array(Vec::new()));
    let of = |status: &Value, table: &str| {
        let tables = status["tables"].as_array().unwrap();
        tables.iter().find(|t| t["table"] == table).unwrap().clone()
    };
    let cases = world.sandbox.tables(&["cases"])["tables"]["cases"].as_array().unwrap().len();
    assert_eq!(of(&status, "cases")["rows"], cases);
    assert_eq!(status["runs"][0]["outcome"], "ok");

    let refused = Fault::Refuse { status: 400, headers: [].into(), body: String::new() };
    world.sandbox.fault(Rule {
        method: None,
        path: "/api/Properties/*/CommonConditions".to_owned(),
        query: None,
        nth: 1,
        count: None,
        fault: refused,
    });
    assert_eq!(world.run(&["sync", "--full"]).status.code(), Some(3));
    let output = world.run(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let table = of(&json(&output), "common_conditions");
    assert_eq!(table["status"], "failing");
    assert!(table["pending"].as_u64().unwrap() > 0, "{table}");
    let text = world.run(&["status"]);
    assert_eq!(text.status.code(), Some(3));
    assert!(stdout(&text).contains("common_conditions is failing since "), "{}", stdout(&text));
}

#[test]
fn the_data_dictionary_is_printed_in_every_format_without_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let schema = |format: &str| {
        let args = ["schema", "--format", format];
        binary().current_dir(folder.path()).args(args).output().unwrap()
    };
    let tables = casemirror::catalog::Catalog::load(None).unwrap();
    let markdown = done(&schema("md"));
    let document = json(&schema("json"));
    let columns = document["tables"].as_array().unwrap().iter().map(|table| &table["columns"]);
    let columns = columns.chain([&document["history_columns"]]).flat_map(|c| c.as_array().unwrap());
    for column in columns {
        let keys: Vec<&str> = column.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["class", "comment", "field", "name", "type", "volatile"], "{column}");
        assert!(column["type"].is_string() && column["volatile"].is_boolean(), "{column}");
    }
    let document = document.to_string();
    let page = done(&schema("html"));
    let sources = done(&schema("dbt"));
    for table in tables.names() {
        assert!(markdown.contains(table), "{table} is not in the Markdown");
        assert!(document.contains(&format!("\"{table}\"")), "{table} is not in the JSON");
        assert!(page.contains(&format!("<section id=\"{table}\">")), "{table} is not on the page");
        assert!(sources.contains(&format!("- name: \"{table}\"\n")), "{table} is no source");
    }
    // The reports too, as the store has them.
    assert!(markdown.contains("## report.total_cost_as_of(at_instant)"));
    assert!(document.contains("\"total_cost_once\""));
    assert!(page.contains("<tr id=\"report.total_cost.total_cost_once\">"));
    assert!(sources.contains("- name: \"total_cost_once\"\n"));
    // Nightly schedules, of which one rests an hour longer; with others, other ages.
    assert!(sources.contains("warn_after: {count: 28, period: hour}"));
    let weekly = ["schema", "--format", "dbt", "--set", "schedule.reference=0 1 * * Sun"];
    let weekly = done(&binary().current_dir(folder.path()).args(weekly).output().unwrap());
    assert!(weekly.contains("warn_after: {count: 172, period: hour}"));
    let duckdb = duckdb::Connection::open_in_memory().unwrap();
    duckdb.execute_batch(&done(&schema("sql"))).unwrap();
    let made: i64 = one(
        &duckdb,
        "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'main' AND comment IS NOT NULL",
    );
    assert_eq!(made, tables.names().len() as i64);
}

#[test]
fn queries_read_the_published_file_and_cannot_write_it() {
    let world = World::unthrottled(6);
    let none = world.run(&["query", "SELECT 1"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("casemirror sync"), "{}", stderr(&none));

    world.sync();
    let sql = "SELECT 1.50::DECIMAL(18,2) AS price, NULL AS nothing, 'a,b' AS text, ['a,', 'b'] AS list, '' AS empty";
    let query = |format: &str, sql: &str| world.run(&["query", "--format", format, sql]);
    assert_eq!(
        done(&query("csv", sql)),
        "price,nothing,text,list,empty\n1.50,,\"a,b\",\"[\"\"a,\"\",\"\"b\"\"]\",\"\"\n"
    );
    let rows = json(&query("json", sql));
    assert_eq!(rows[0]["text"], "a,b");
    assert_eq!(rows[0]["nothing"], Value::Null);
    let table = done(&query("table", sql));
    assert!(table.contains("1.50") && table.contains("NULL"), "{table}");
    let empty = "SELECT id FROM cases WHERE false";
    assert_eq!(json(&query("json", empty)), Value::Array(Vec::new()));
    assert_eq!(done(&query("csv", empty)), "id\n");

    let cases: i64 = one(&world.published(), "SELECT count(*) FROM cases");
    for wrong in ["INSERT INTO api.x SELECT 1", "DELETE FROM cases", "SELEKT 1", "FROM nowhere"] {
        let output = query("table", wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong}: {}", shown(&output));
        assert!(stderr(&output).contains("the query failed"), "{}", stderr(&output));
    }
    assert_eq!(one::<i64>(&world.published(), "SELECT count(*) FROM cases"), cases);
}

#[test]
fn a_query_that_needs_a_time_zone_is_led_to_the_calendar() {
    let world = World::unthrottled(6);
    world.bootstrap();
    for sql in [
        "SELECT date_trunc('month', created_date) FROM cases",
        "SELECT created_date AT TIME ZONE 'Europe/Oslo' FROM cases",
    ] {
        let output = world.run(&["query", sql]);
        assert_eq!(output.status.code(), Some(1), "{sql}: {}", shown(&output));
        assert!(stderr(&output).contains("report.calendar"), "{sql}: {}", stderr(&output));
    }
}

#[test]
fn the_demo_ends_by_itself_and_shows_both_reports() {
    let folder = tempfile::tempdir().unwrap();
    let demo = |dir: &str| {
        let args = ["demo", "--cases", "40", "--dir", dir];
        binary().current_dir(folder.path()).args(args).output().unwrap()
    };
    let story = done(&demo("here"));
    for text in ["signed_cases", "total_cost", "0 violations", "casemirror.duckdb", "latest"] {
        assert!(story.contains(text), "{text} is not in\n{story}");
    }
    assert!(folder.path().join("here/parquet/latest/manifest.json").exists());

    std::fs::create_dir(folder.path().join("theirs")).unwrap();
    std::fs::write(folder.path().join("theirs/thesis.txt"), "text").unwrap();
    let refused = demo("theirs");
    assert_eq!(refused.status.code(), Some(2), "{}", shown(&refused));
    assert!(stderr(&refused).contains("thesis.txt"), "{}", stderr(&refused));
    assert_eq!(std::fs::read_dir(folder.path().join("theirs")).unwrap().count(), 1);

    // The folder of a mirror holds the same names, but not what says that a demo made it.
    std::fs::remove_file(folder.path().join("here/casemirror-demo.txt")).unwrap();
    let refused = demo("here");
    assert_eq!(refused.status.code(), Some(2), "{}", shown(&refused));
    assert!(folder.path().join("here/store.duckdb").exists());
    assert!(folder.path().join("here/parquet/latest/manifest.json").exists());
}

#[test]
fn help_lists_the_commands_that_exist() {
    let help = done(&binary().arg("--help").output().unwrap());
    for command in [
        "demo", "sandbox", "init", "check", "sync", "run", "plan", "journals", "export", "status",
        "schema", "query",
    ] {
        let listed = help.lines().any(|line| line.trim().starts_with(&format!("{command} ")));
        assert!(listed, "{command} is not in\n{help}");
        done(&binary().args([command, "--help"]).output().unwrap());
    }
}
