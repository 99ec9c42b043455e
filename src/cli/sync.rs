//! `casemirror sync`: one cycle.

use super::args::Sync;
use super::print;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::cycle::Options;
use crate::error::{Error, Kind, Result};
use crate::mirror::Books;
use crate::progress::Progress;
use crate::session::{Ran, Session};

pub async fn run(config: Config, args: &Sync, quiet: bool) -> Result<u8> {
    // Before the store is opened: wrong usage touches nothing.
    let catalog = Catalog::load(config.resources.dir.as_deref())?;
    let known = catalog.names();
    if let Some(unknown) = args.only.iter().find(|t| !known.contains(&t.as_str())) {
        return Err(Error::new(
            Kind::Usage,
            format!("--only {unknown}: there is no such table; there are {}", known.join(", ")),
        ));
    }
    let session = Session::open(config, Progress::new(quiet))?;
    let options = Options {
        full: args.full,
        only: args.only.clone(),
        cases: args.cases.clone(),
        allow_removals: args.allow_removals,
        journals: None,
    };
    let ran = one_run(&session, "sync", options).await?;
    print(&summary(&ran))?;
    Ok(ran.report.exit_status())
}

/// One run, unless it is interrupted.
pub(super) async fn one_run(session: &Session, command: &str, options: Options) -> Result<Ran> {
    tokio::select! {
        ran = session.sync(command, options) => ran,
        _ = tokio::signal::ctrl_c() => Err(Error::new(
            Kind::Cancelled,
            format!(
                "stopped; what is committed stays, and the next {command} goes on from there"
            ),
        )),
    }
}

/// What a run did, in a few lines.
pub fn summary(ran: &Ran) -> String {
    let report = &ran.report;
    let rows = Books::total(&report.outcome);
    let mut text = format!(
        "run {}: {} calls, {} cases and {} contacts changed at the source; rows: {} inserted, {} \
         updated, {} deleted\n",
        report.run_id,
        report.calls,
        report.cases_moved,
        report.contacts_moved,
        rows.inserted,
        rows.updated,
        rows.deleted
    );
    if let Some(published) = &ran.published {
        text.push_str(&format!("published snapshot {}", published.snapshot_id));
        if let Some(database) = &published.database {
            text.push_str(&format!("\n  database  {}", database.path.display()));
        }
        if let Some(parquet) = &published.parquet {
            text.push_str(&format!(
                "\n  parquet   {} ({} files, {} of them unchanged)",
                parquet.path.display(),
                parquet.files,
                parquet.linked
            ));
        }
        text.push('\n');
    }
    for problem in &report.problems {
        text.push_str(&format!("incomplete: {problem}\n"));
    }
    text
}
