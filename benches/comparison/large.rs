//! A large mirror: what one change costs in it, and what looks only.
//!
//! The cases are copies of a few real ones, made by SQL straight into the store: reading them would
//! take days.

use std::path::Path;
use std::process::Command;

use casemirror::catalog::Catalog;
use casemirror::config::Config;
use casemirror::mirror::Store;
use casemirror::sandbox::Sandbox;
use duckdb::Connection;

use crate::mirror::Mirror;
use crate::process;
use crate::small::{change, options};
use crate::table::Table;

/// Cases that the copies are made of.
const REAL: usize = 100;
/// The large mirror is compared with one that is smaller by this.
const SMALLER: usize = 100;
/// Copies of one row that may lie side by side: cases of all kinds are mixed in a table, as in a real one.
const COPIES_AT_ONCE: usize = 100;
/// Further apart than any two ids of the sandbox.
const BETWEEN_COPIES: i64 = 10_000_000;

/// Measures a mirror of `cases` and a smaller one in turn.
pub(crate) fn compare(cases: usize) {
    for unread in [false, true] {
        for cases in [cases / SMALLER, cases] {
            let cases = cases.max(REAL);
            let kind = if unread { "none of them read yet" } else { "all read" };
            let mut table = Table::new(&format!("a mirror of {cases} cases, {kind}"));
            measure(&mut table, cases, unread);
        }
    }
}

fn measure(table: &mut Table, cases: usize, unread: bool) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let sandbox = runtime.block_on(Sandbox::start(options(REAL))).expect("the sandbox starts");
    let (id, secret) = (sandbox.client_id(), sandbox.client_secret());
    // Parquet files are written whole where a table changed: that is measured elsewhere.
    let mirror = Mirror::new(sandbox.base_url(), (&id, &secret), "[publish]\nparquet = \"\"\n");
    mirror.run(if unread { &["sync", "--only", "cases"] } else { &["sync"] });
    part(&mirror, &["--part", "grow", "--cases", &cases.to_string()]);
    table.row("opening the store", &part(&mirror, &["--part", "open"]), 0);
    table.row("status", &mirror.run(&["status"]), 0);
    table.row("plan", &mirror.run(&["plan"]), 0);
    if !unread {
        // The first one publishes the copies.
        mirror.run(&["sync"]);
        table.row("sync, nothing changed", &mirror.run(&["sync"]), 0);
        change(&sandbox, sandbox.case_ids()[0]);
        table.row("sync of one changed case", &mirror.run(&["sync"]), 0);
    }
}

fn part(mirror: &Mirror, args: &[&str]) -> process::Taken {
    let this = std::env::current_exe().expect("a running program has a path");
    process::run(Command::new(this).args(args).arg("--folder").arg(mirror.folder()))
}

fn configuration(folder: &Path) -> Config {
    Config::load(&folder.join("casemirror.toml"), &[], |_| None)
        .expect("the configuration is valid")
}

/// Opens the store and closes it.
pub(crate) fn open(folder: &Path) {
    let catalog = Catalog::load(None).expect("the built-in resource files are valid");
    Store::open(&configuration(folder), &catalog).expect("the store is there");
}

/// Copies what the store has of its cases, and what says that it was read, until there are so many.
pub(crate) fn grow(folder: &Path, cases: usize) {
    let copies = cases / REAL;
    let catalog = Catalog::load(None).expect("the built-in resource files are valid");
    let file = folder.join("data/store.duckdb");
    let conn = Connection::open(file).expect("the store can be opened");
    let copy = |table: &str, id: &str, of: &str| {
        let run = |sql: &str| conn.execute_batch(sql).expect("rows can be copied");
        run(&format!(
            "BEGIN; CREATE OR REPLACE TEMP TABLE original AS SELECT * FROM {table} WHERE {of}"
        ));
        for from in (1..copies).step_by(COPIES_AT_ONCE) {
            let to = (from + COPIES_AT_ONCE).min(copies);
            run(&format!(
                "INSERT INTO {table} SELECT t.* REPLACE (t.{id} + k * {BETWEEN_COPIES} AS {id}) \
                 FROM range({from}, {to}) r(k), temp.original t"
            ));
        }
        run("COMMIT");
    };
    copy("sync.seen", "case_id", "true");
    copy("sync.fetched_cases", "case_id", "true");
    copy("sync.fetched_scopes", "id", "table_name IN (SELECT table_name FROM sync.refresh_rules)");
    for resource in catalog.resources() {
        let table = format!("main.{}", resource.table);
        match resource.table.as_str() {
            "cases" | "projects" => copy(&table, "id", "true"),
            _ if resource.key.iter().any(|column| column == "case_id") => {
                copy(&table, "case_id", "true");
            }
            _ => {}
        }
    }
    conn.execute_batch("CHECKPOINT").expect("a checkpoint");
}
