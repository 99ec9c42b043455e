//! `casemirror sync`: one cycle.

use super::args::Sync;
use super::verify;
use crate::catalog::{Catalog, Group};
use crate::config::nearest;
use crate::cycle::Options;
use crate::daemon::{Host, Printer};
use crate::error::{Error, Kind, Result};
use crate::mirror::RunLog;
use crate::session::{NOTHING_LISTED, Ran};
use crate::text::counted;

/// Refuses tables that do not exist, and says which are read with another.
pub(crate) fn check(args: &Sync, catalog: &Catalog) -> Result<()> {
    let known = catalog.names();
    match args.only.iter().find(|t| !known.contains(&t.as_str())) {
        Some(unknown) => {
            let near = nearest(unknown, known.iter().copied());
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            let all = known.join(", ");
            Err(Error::new(
                Kind::Usage,
                format!("--only {unknown}: there is no such table{near}\nhint: there are {all}"),
            ))
        }
        None if args.cases.is_empty()
            || args.only.is_empty()
            || args.only.iter().any(|table| is_of_cases(catalog, table)) =>
        {
            for table in &args.only {
                let read = read_with(catalog, table);
                if read != table {
                    tracing::warn!("--only {table}: its rows come with {read}, which is read");
                }
            }
            Ok(())
        }
        None => Err(Error::new(
            Kind::Usage,
            format!(
                "--only {}: what is read there is no case's, so that --case leaves nothing to do: leave out one of \
                 the two",
                args.only.join(",")
            ),
        )),
    }
}

/// The table with which a table is read: a child is a part of its parent's records.
fn read_with<'a>(catalog: &'a Catalog, table: &'a str) -> &'a str {
    catalog.get(table).map_or(table, |resource| resource.read_with())
}

/// Whether what a case has in a table is read case by case.
fn is_of_cases(catalog: &Catalog, table: &str) -> bool {
    catalog.get(read_with(catalog, table)).is_some_and(|resource| match resource.group {
        Group::Case => true,
        Group::Ids => resource.table != "contacts",
        Group::List | Group::ForEach(_) | Group::Child(_) | Group::Events | Group::Journal(_) => {
            false
        }
    })
}

pub(crate) async fn execute(args: &Sync, host: &Host, out: &Printer) -> Result<u8> {
    let catalog = host.session.catalog();
    let options = Options {
        full: args.full,
        only: args.only.iter().map(|table| read_with(catalog, table).to_owned()).collect(),
        cases: args.cases.clone(),
        allow_removals: args.allow_removals,
        ..Options::default()
    };
    if args.now {
        host.session.lift_holds().await?;
    }
    let ran = host.run("sync", options).await?;
    out.print(&summary(&ran))?;
    if args.full && !(args.only.is_empty() && args.cases.is_empty()) {
        out.print(
            "the rest is stale now too, by --full: the next sync, or the daemon, reads it\n",
        )?;
    }
    if let Some(verified) = &ran.verified {
        out.print(&verify::differences(verified))?;
    }
    Ok(ran.report.exit_status())
}

/// What a run did, in a few lines.
pub(crate) fn summary(ran: &Ran) -> String {
    let report = &ran.report;
    let rows = RunLog::total(&report.outcome);
    let mut text = format!(
        "run {}: {}, {} and {} changed at the source; rows: {} inserted, {} updated, {} deleted\n",
        report.run_id,
        counted(report.calls, "call"),
        counted(report.cases_moved, "case"),
        counted(report.contacts_moved, "contact"),
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
                "\n  parquet   {} ({}, {} of them unchanged)",
                parquet.address,
                counted(parquet.files, "file"),
                parquet.linked
            ));
        }
        text.push('\n');
    }
    if ran.nothing_listed {
        text.push_str(&format!("{NOTHING_LISTED}\n"));
    }
    for problem in &report.problems {
        text.push_str(&format!("incomplete: {problem}\n"));
    }
    text
}
