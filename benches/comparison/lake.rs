//! What a publishing to the lake costs: the whole of a mirror, and 1,000 changed cases in it.
//!
//! The catalog and the data are a file and a folder on the same disk: what is measured is the work, not a network. The
//! extensions come from a folder that `LAKE_EXTENSIONS` names, as `casemirror lake install --from` takes it.

use std::path::Path;
use std::process::Command;

use casemirror::catalog::Catalog;
use casemirror::sandbox::Sandbox;
use duckdb::Connection;

use crate::mirror::Mirror;
use crate::process::{self, Taken};
use crate::small::options;

/// Cases that the copies are made of.
const REAL: usize = 100;
/// Cases that change.
const CHANGED: usize = 1_000;
/// Where the extensions are.
const EXTENSIONS: &str = "LAKE_EXTENSIONS";

/// Measures mirrors of a hundredth, a tenth, and all of so many cases.
pub(crate) fn compare(cases: usize) {
    let Some(extensions) = std::env::var_os(EXTENSIONS) else {
        println!("the lake is skipped: {EXTENSIONS} names no folder with DuckDB's extensions\n");
        return;
    };
    println!("publishing to a lake: seconds, CPU seconds, peak MB, files and bytes written\n");
    for cases in [cases / 100, cases / 10, cases] {
        measure(cases.max(REAL), Path::new(&extensions));
    }
    println!();
}

fn measure(cases: usize, extensions: &Path) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let sandbox = runtime.block_on(Sandbox::start(options(REAL))).expect("the sandbox starts");
    let (id, secret) = (sandbox.client_id(), sandbox.client_secret());
    let more = "[publish]\nparquet = \"\"\n[lake]\ncatalog = \"data/lake.ducklake\"\ndata = \"data/lake\"\n";
    let mirror = Mirror::new(sandbox.base_url(), (&id, &secret), more);
    let extensions = extensions.to_str().expect("a path of UTF-8");
    mirror.run(&["lake", "install", "--from", extensions]);
    let without = ["sync", "--set", "lake.catalog=", "--set", "lake.data="];
    mirror.run(&without);
    part(&mirror, &["--part", "grow", "--cases", &cases.to_string()]);
    part(&mirror, &["--part", "change", "--cases", "1"]);
    mirror.run(&without);
    say(&format!("{cases} cases, the first time"), &mirror.run(&["lake", "publish"]));
    for round in ["1,000 changed cases", "1,000 others"] {
        part(&mirror, &["--part", "change", "--cases", &CHANGED.to_string()]);
        mirror.run(&without);
        say(&format!("{cases} cases, {round}"), &mirror.run(&["lake", "publish"]));
    }
}

fn part(mirror: &Mirror, args: &[&str]) {
    let this = std::env::current_exe().expect("a running program has a path");
    process::run(Command::new(this).args(args).arg("--folder").arg(mirror.folder()));
}

fn say(what: &str, taken: &Taken) {
    let line = |name: &str| {
        let found = taken.stdout.lines().find_map(|line| line.trim().strip_prefix(name));
        found.unwrap_or_default().trim().to_owned()
    };
    println!(
        "{what:40} {:7.1} s {:7.1} s {:6.0} MB   rows {}, files {}",
        taken.wall.as_secs_f64(),
        taken.cpu,
        taken.peak,
        line("rows"),
        line("files")
    );
}

/// Changes so many cases, in every table of theirs, as a commit does: an earlier version, a new row with its
/// `_synced_at` at the table's end, a count with whose rows these are, and that the case was fetched.
pub(crate) fn change(folder: &Path, cases: usize) {
    let catalog = Catalog::load(None).expect("the built-in resource files are valid");
    let conn = Connection::open(folder.join("data/store.duckdb")).expect("the store can be opened");
    let run = |sql: &str| conn.execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    run(&format!(
        "CREATE TEMP TABLE chosen AS SELECT id FROM main.cases ORDER BY hash(id, now()::VARCHAR) LIMIT {cases}"
    ));
    let replace = |table: &str, id: &str, with: &str| {
        run(&format!(
            "CREATE OR REPLACE TEMP TABLE replaced AS SELECT * FROM {table} WHERE {id} IN (SELECT id FROM chosen); \
             DELETE FROM {table} WHERE {id} IN (SELECT id FROM chosen); \
             INSERT INTO {table} SELECT * REPLACE ({with}) FROM temp.replaced"
        ));
    };
    for resource in catalog.resources() {
        let (table, key) = (&resource.table, &resource.key);
        let id = match table.as_str() {
            "cases" => "id",
            _ if key.iter().any(|column| column == "case_id") => "case_id",
            _ => continue,
        };
        replace(&format!("main.{table}"), id, "now() AS _synced_at");
        run(&format!(
            "INSERT INTO history.{table} BY NAME SELECT *, _synced_at AS _valid_from, now() AS _valid_to, \
               'updated' AS _change FROM temp.replaced; \
             UPDATE sync.changes SET counter = counter + (1::BIGINT << 24) WHERE table_name = '{table}'; \
             INSERT INTO sync.changed_scopes BY NAME \
               SELECT table_name, counter, uuid() AS change, (SELECT list(id) FROM chosen) AS scopes \
               FROM sync.changes WHERE table_name = '{table}'"
        ));
    }
    let fetched = "list_transform(fetched_at, lambda t: CASE WHEN t IS NOT NULL THEN now() END) AS fetched_at";
    replace("sync.fetched_cases", "case_id", fetched);
    run("CHECKPOINT");
}
