//! Many wide cases: from HTTP to a published mirror, and what others take for the same pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemirror::catalog::Catalog;

use crate::mirror::Mirror;
use crate::pages::{self, SEARCHES, Server};
use crate::process;
use crate::table::Table;

/// Measures them in turn.
pub(crate) fn compare(cases: usize) {
    let server = Server::start(cases, 1);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bytes = pages::record(&server, folder.path());
    let mirror = || Mirror::new(&server.base_url, server.credentials(), "");
    // The rest of what it asks, so that the server has that too.
    mirror().run(&["sync", "--only", "cases"]);

    let mut table =
        Table::new(&format!("{cases} wide cases, {} MB of JSON, over HTTP", bytes / 1_000_000));
    let mirror = mirror();
    let taken = mirror.run(&["sync", "--only", "cases"]);
    table.row("casemirror sync --only cases, published", &taken, cases);
    let Some(python) = python() else {
        println!("(Python with venv is missing: nothing to compare with)");
        return;
    };
    write_columns(folder.path());
    let folder_text = folder.path().display().to_string();
    let (id, secret) = server.credentials();
    for (what, script, args) in [
        (
            "Python: an HTTP client and read_json",
            "read_json.py",
            &[&server.base_url, id, secret, &folder_text][..],
        ),
        (
            "dlt: REST source, merge into DuckDB",
            "rest_source.py",
            &[&server.base_url, id, secret, &folder_text],
        ),
        ("DuckDB: read_json of local files, types told", "read_typed.py", &[&folder_text]),
    ] {
        let script = here().join(script);
        let taken = process::run(Command::new(&python).arg(script).args(args));
        let rows: usize = taken.stdout.trim().lines().last().map_or(0, |n| n.parse().unwrap_or(0));
        assert_eq!(rows, cases, "{what} read other rows");
        table.row(what, &taken, cases);
    }
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/comparison")
}

/// A Python with the packages that the scripts need, made the first time.
fn python() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-for-benches");
    let python = folder.join("bin/python");
    let requirements = here().join("requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).expect("the requirements are there");
    let made_for = folder.join("made-for");
    if std::fs::read_to_string(&made_for).is_ok_and(|made| made == wanted) {
        return Some(python);
    }
    let succeeds = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        && succeeds(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(&requirements),
        );
    // Last, so that an interrupted installation is begun again.
    (made && std::fs::write(&made_for, wanted).is_ok()).then_some(python)
}

/// Which type each field has: DuckDB is told as much as the program knows.
fn write_columns(folder: &Path) {
    let catalog = Catalog::load(None).expect("the built-in resource files are valid");
    let columns: BTreeMap<&str, BTreeMap<&str, String>> = SEARCHES
        .iter()
        .filter_map(|(table, _)| catalog.get(table))
        .map(|resource| {
            let columns = resource
                .columns
                .iter()
                .filter(|column| column.path.len() == 1)
                .map(|column| (column.path[0].as_str(), column.kind.sql()))
                .collect();
            (resource.table.as_str(), columns)
        })
        .collect();
    let text = serde_json::to_string(&columns).expect("names and types are text");
    std::fs::write(folder.join("columns.json"), text).expect("a file can be written");
}
