//! `casemirror demo`: the main job against the embedded sandbox, without configuration or network.

use std::fs::{DirEntry, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use secrecy::SecretString;
use url::Url;

use super::args::Demo;
use super::{print, query, shell};
use crate::config::Config;
use crate::cycle::{Options, Signals};
use crate::durable;
use crate::error::{Error, Kind, Result, io};
use crate::mirror::{RunLog, Writing};
use crate::progress::Progress;
use crate::sandbox::{self, Act, Sandbox};
use crate::session::Session;
use crate::text::counted;

/// By this file a demo knows its own folder again: a real mirror's folder holds files of the same names.
const MARKER: &str = "casemirror-demo.txt";
const MARKER_TEXT: &str = "This folder was made by `casemirror demo`, which removes everything in it when it starts here again.\n";
/// What the folder of an earlier demo holds.
const OURS: [&str; 11] = [
    MARKER,
    "feed-calls",
    "store.duckdb",
    "store.duckdb.wal",
    "store.duckdb.tmp",
    "store.duckdb.secrets",
    "store.duckdb.publishing",
    "casemirror.duckdb",
    "casemirror-views.duckdb",
    "casemirror-views.duckdb.wal",
    "parquet",
];
/// How long the brokerage lives before its changes are followed, and what happens in it.
const LIVES_FOR: Duration = Duration::from_secs(4);
const EVENTS: u32 = 40;
const SIGNED: &str = "SELECT month, office, signed_cases FROM report.signed_cases \
                      ORDER BY month DESC NULLS FIRST, office LIMIT 12";
const COST: &str = "SELECT case_id, kind, asking_price, original_sale_price AS original_price, \
                      buyer_costs, document_cost, debt, \
                      nullif(coalesce(entry_into_contract, 0) + coalesce(customer_changes, 0) \
                        + 2 * coalesce(sum_original_buyer_costs, 0), 0) AS other_parts, \
                      total_cost FROM report.total_cost \
                    WHERE total_cost IS NOT NULL \
                    QUALIFY row_number() OVER (PARTITION BY kind ORDER BY case_id DESC) <= 5 \
                    ORDER BY kind, case_id DESC";

pub(crate) async fn run(args: &Demo, quiet: bool) -> Result<u8> {
    let (dir, _alone) = prepare(&args.dir)?;
    let live = args.serve.then_some(Duration::from_secs(3));
    let options = sandbox::Options {
        cases: args.cases,
        seed: args.seed,
        live,
        ..sandbox::Options::default()
    };
    let sandbox = Sandbox::start(options).await?;
    let base_url = Url::parse(sandbox.base_url())
        .map_err(|e| Error::caused(Kind::Internal, "the sandbox has no address", e))?;
    let secret = SecretString::from(sandbox.client_secret().to_owned());
    let config = Config::for_demo(base_url, sandbox.client_id(), secret, &dir);
    let database = config.publish.database.clone();
    print(&format!(
        "A simulated brokerage with {} cases runs at {} (seed {}).\n\n\
         1. Mirroring it, everything for the first time ...\n",
        args.cases,
        sandbox.base_url(),
        args.seed
    ))?;

    let session = Session::open(config, Writing::Applying, Progress::new(quiet))?;
    let started = std::time::Instant::now();
    let first = session.sync("demo", Options::default(), Signals::none(), &mut None).await?;
    print(&format!(
        "   {} calls, {} rows in {:.1} s\n\n2. The brokerage lives for {} seconds: {EVENTS} things \
         happen in it.\n",
        first.report.calls,
        RunLog::total(&first.report.outcome).inserted,
        started.elapsed().as_secs_f64(),
        LIVES_FOR.as_secs(),
    ))?;
    live_on(&sandbox).await?;

    print(
        "3. Following the changes: the feed says which cases moved, their dates say what to fetch.\n",
    )?;
    let second = session.sync("demo", Options::default(), Signals::none(), &mut None).await?;
    print(&changes(&second))?;

    let stats = sandbox.stats();
    print(&format!(
        "\n4. The throttle: at most 6 calls to the change feeds in any 30 s are allowed. The sandbox \
         counted\n   at most {} in any window, {} in all, {} violations; and {} calls that would \
         change anything.\n",
        stats.feed.most_in_window, stats.feed.calls, stats.feed.violations, stats.writes
    ))?;

    let reader = query::Reader::open(&database)?;
    let rows = reader.table(
        "SELECT table_name AS \"table\", rows, \
           strftime(last_change::TIMESTAMP, '%Y-%m-%d %H:%M:%S UTC') AS last_change \
         FROM report.freshness ORDER BY 1",
        "-",
    )?;
    print(&format!("\n5. What is in the published database now:\n{rows}"))?;
    print("\n6. How many cases were signed? (report.signed_cases, the latest months)\n")?;
    print(&reader.table(SIGNED, "-")?)?;
    print(
        "\n7. What does a sale cost in all? (report.total_cost, the newest cases. `-` is\n   nothing there, which counts 0, or a part of the other kind; other_parts of a resale are entry\n   into contract, customer changes, and the original buyer costs twice, as the reference adds them)\n",
    )?;
    print(&reader.table(COST, "-")?)?;
    drop(reader);

    let shown = |name: &str| dir.join(name).display().to_string();
    print(&format!(
        "\nFiles:\n  {:<44} for DuckDB, open it while casemirror writes\n  {:<44} for BI tools, always \
         complete\n\nQuery them:\n  duckdb -readonly {} \"FROM report.signed_cases\"\n  casemirror \
         query --set {} \"FROM report.total_cost LIMIT 5\"\n",
        shown("casemirror.duckdb"),
        shown("parquet/latest/"),
        shell::argument(&shown("casemirror.duckdb")),
        shell::argument(&format!("publish.database={}", shown("casemirror.duckdb"))),
    ))?;
    let problems: Vec<String> =
        first.report.problems.iter().chain(&second.report.problems).cloned().collect();
    for problem in &problems {
        print(&format!("incomplete: {problem}\n"))?;
    }
    if args.serve {
        serve(&session, &sandbox).await?;
    }
    drop(session);
    sandbox.stop().await;
    Ok(if problems.is_empty() { 0 } else { 3 })
}

/// The folder, empty but for the marker, and what keeps other demos out of it while it is held. What is removed is an
/// earlier demo's and nothing else.
fn prepare(dir: &Path) -> Result<(PathBuf, File)> {
    std::fs::create_dir_all(dir).map_err(|e| io("create", dir, e))?;
    let dir = dir.canonicalize().map_err(|e| io("find", dir, e))?;
    let entries = std::fs::read_dir(&dir)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .map_err(|e| io("list", &dir, e))?;
    let name = |entry: &DirEntry| entry.file_name().to_string_lossy().into_owned();
    let refused = |why: String| {
        let what = format!("{} {why}; choose an empty or new folder with --dir", dir.display());
        Err(Error::new(Kind::Usage, what))
    };
    let is_ours = |name: &String| OURS.contains(&name.as_str()) || durable::is_temporary(name);
    if let Some(theirs) = entries.iter().map(name).find(|name| !is_ours(name)) {
        return refused(format!("holds {theirs}, which no demo made"));
    }
    let marker = dir.join(MARKER);
    if entries.is_empty() {
        // First, so that a demo that is killed leaves a folder that the next one knows.
        std::fs::write(&marker, MARKER_TEXT).map_err(|e| io("write", &marker, e))?;
    } else if !entries.iter().any(|entry| name(entry) == MARKER) {
        return refused(format!(
            "is not empty and has no {MARKER}, by which a demo knows its own folder: it may hold a real mirror. \
             If a demo of an earlier version made it, remove it"
        ));
    }
    let alone = File::open(&marker).map_err(|e| io("open", &marker, e))?;
    // Some file systems know no locks.
    if flock(&alone, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return refused("is where another demo runs".to_owned());
    }
    // Each demo has a brokerage of its own, and a mirror has one tenant.
    for path in entries.iter().filter(|entry| name(entry) != MARKER).map(DirEntry::path) {
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.map_err(|e| io("remove", &path, e))?;
    }
    Ok((dir, alone))
}

async fn live_on(sandbox: &Sandbox) -> Result<()> {
    const STEPS: u32 = 8;
    for _ in 0..STEPS {
        sandbox
            .act(&Act::Tick { events: (EVENTS / STEPS) as _ })
            .map_err(|e| Error::new(Kind::Internal, e))?;
        tokio::time::sleep(LIVES_FOR / STEPS).await;
    }
    Ok(())
}

fn changes(ran: &crate::session::Ran) -> String {
    let mut text = format!(
        "   {} and {} had changed; {} brought\n",
        counted(ran.report.cases_moved, "case"),
        counted(ran.report.contacts_moved, "contact"),
        counted(ran.report.calls, "call")
    );
    for (table, merged) in &ran.report.outcome.tables {
        if merged.changed() {
            text.push_str(&format!(
                "     {table:<22} {:>4} inserted {:>4} updated {:>4} deleted\n",
                merged.inserted, merged.updated, merged.deleted
            ));
        }
    }
    text
}

/// Stays up and follows the brokerage until Ctrl-C.
async fn serve(session: &Session, sandbox: &Sandbox) -> Result<()> {
    const EVERY: Duration = Duration::from_secs(15);
    print(&format!(
        "\nStaying up (--serve): following {} every {} seconds. Ctrl-C ends it.\n",
        sandbox.base_url(),
        EVERY.as_secs()
    ))?;
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(EVERY) => {}
        }
        let ran = session.sync("demo", Options::default(), Signals::none(), &mut None).await?;
        print(&super::sync::summary(&ran))?;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write_all(dir: &Path, names: &[&str]) {
        fs::create_dir_all(dir.join("parquet/latest")).unwrap();
        names.iter().for_each(|name| fs::write(dir.join(name), "kept").unwrap());
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_folder_of_an_earlier_demo_is_emptied_and_stays_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new/demo");
        for _ in ["new", "again"] {
            let (prepared, _alone) = prepare(&dir).unwrap();
            assert_eq!(names(&prepared), [MARKER]);
            // One that was ended while it published leaves what is unfinished.
            write_all(&dir, &["store.duckdb", ".casemirror.duckdb.tmp-1"]);
            let refused = prepare(&dir).unwrap_err().to_string();
            assert!(refused.contains("another demo runs"), "{refused}");
            assert_eq!(names(&prepared).len(), 4, "what the running one has is there");
        }
    }

    #[test]
    fn a_real_mirrors_folder_is_refused_and_nothing_of_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        write_all(dir, &["store.duckdb", "store.duckdb.secrets", "casemirror.duckdb"]);
        let before = names(dir);
        let refused = prepare(dir).unwrap_err();
        assert_eq!(refused.kind(), Kind::Usage);
        assert!(refused.to_string().contains("earlier version"), "{refused}");
        assert_eq!(names(dir), before);
    }

    #[test]
    fn what_somebody_else_put_into_a_demos_folder_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path()).unwrap();
        write_all(folder.path(), &["store.duckdb", "thesis.txt"]);
        let before = names(folder.path());
        let refused = prepare(folder.path()).unwrap_err();
        assert!(refused.to_string().contains("thesis.txt"), "{refused}");
        assert_eq!(names(folder.path()), before);
    }
}
