//! `casemirror status`: what is mirrored, how fresh, what failed, what is pending and why.

use std::time::Duration;

use super::args;
use super::output;
use crate::config::Config;
use crate::daemon::{Host, Printer};
use crate::error::Result;
use crate::lease::State as LeaseState;
use crate::mirror::{ConfigDifference, Looked, Store};
use crate::session::catalog_of;
use crate::status::{Fault, Run, Status};
use crate::text::counted;

/// Differences that are shown as text.
const MOST_STANDING: usize = 20;

pub(crate) fn run(config: &Config, args: &args::Status) -> Result<u8> {
    let catalog = catalog_of(config)?;
    let Looked { store, catalog, differences } = Store::look(config, &catalog)?;
    let status = Status::collect(config, &catalog, &store, differences)?;
    show(&status, args, &Printer::here())
}

/// The same where the store is open.
pub(crate) fn execute(args: &args::Status, host: &Host, out: &Printer) -> Result<u8> {
    let session = &host.session;
    let feeds = host.pulse.as_ref().map(|pulse| pulse.feeds(&session.config().feed));
    let fault = session.store_fault();
    let status = tokio::task::block_in_place(|| {
        // What has the store open has brought it up to its configuration.
        Status::collect(session.config(), session.catalog(), session.store(), Vec::new())
    })?;
    let status = status.of_holder(session.last_run(), fault.as_deref(), feeds.as_ref());
    show(&status, args, out)
}

fn show(status: &Status, args: &args::Status, out: &Printer) -> Result<u8> {
    if args.json {
        out.data(&status.to_json()?)?
    } else {
        out.print(&text(status))?
    }
    Ok(status.exit_status())
}

/// How the newest run went, or goes.
fn last_run(run: &Run) -> String {
    let (command, started) = (&run.command, run.started_at.as_deref().unwrap_or("-"));
    match &run.outcome {
        Some(outcome) => {
            let calls = run.calls.map(|calls| format!(", {}", counted(calls, "call")));
            format!("{command} {outcome}, started {started}{}", calls.unwrap_or_default())
        }
        None if run.under_way => format!("{command} is under way since {started}"),
        None => format!("{command} did not end (its process was killed), started {started}"),
    }
}

fn text(status: &Status) -> String {
    let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let mut table = output::table(&[
        "table",
        "status",
        "rows",
        "last change",
        "last checked",
        "pending",
        "rejected",
    ]);
    for row in &status.tables {
        table.add_row([
            row.table.clone(),
            row.status.to_owned(),
            row.rows.to_string(),
            or_dash(row.last_change.as_deref()),
            or_dash(row.last_checked.as_deref()),
            row.pending.to_string(),
            row.rejected.to_string(),
        ]);
    }
    let mut out = format!(
        "store      {}\npublished  {}\nwatermark  {} (every change up to here is proven to be in, but for \
         what is pending; it stays at least feed.overlap, {}, behind the last poll)\npolled     {} (all that the feed \
         told by then is in, but for what is pending)\ncomplete   {}\n\n{table}\n",
        status.store,
        status.database,
        or_dash(status.watermark.as_deref()),
        status.feed_overlap,
        or_dash(status.polled_at.as_deref()),
        status.complete,
    );
    if let Some(lake) = &status.lake {
        out.push_str(&format!(
            "\nlake       {}: {}",
            lake.schema,
            match (&lake.snapshot_id, lake.behind_seconds) {
                (None, _) => "nothing was carried to it yet".to_owned(),
                (Some(id), Some(0)) => format!("shows snapshot {id}, which is what is published"),
                (Some(id), behind) => format!(
                    "shows snapshot {id}, {} behind what is published",
                    humantime::format_duration(Duration::from_secs(behind.unwrap_or_default()))
                ),
            }
        ));
    }
    if let Some(lease) = &status.lease {
        let (place, since) = (&lease.place, &lease.since);
        let holder = lease.holder.as_deref().unwrap_or("nobody that is known");
        let whose = match lease.state {
            LeaseState::Held => "held by this host".to_owned(),
            LeaseState::Unguarded => "cannot be held by anybody".to_owned(),
            LeaseState::Settling => "taken by this host, which asks no feed yet".to_owned(),
            LeaseState::Others => format!("held by {holder}"),
            LeaseState::Unknown => "not known".to_owned(),
            LeaseState::Released => "given back by this host".to_owned(),
        };
        out.push_str(&format!("\nlease      {whose} since {since}, in {place}"));
    }
    for row in &status.tables {
        let (table, since) = (&row.table, or_dash(row.since.as_deref()));
        match (row.status, &row.reason) {
            // Not all that belongs into it can be had.
            ("ok", Some(reason)) => out.push_str(&format!("\n{table}: {reason}")),
            ("ok", None) => {}
            (other, reason) => {
                let reason = or_dash(reason.as_deref());
                out.push_str(&format!("\n{table} is {other} since {since}: {reason}"));
            }
        }
    }
    for problem in &status.problems {
        out.push_str(&format!("\nincomplete: {problem}"));
    }
    // What fails is said above, with how much of it.
    let faults: Vec<Fault> = status.problems.iter().map(|problem| Fault::of(problem)).collect();
    for waits in status.waiting.iter().filter(|waits| !faults.iter().any(|f| f.is_why(waits))) {
        out.push_str(&format!("\nwaiting: {waits}"));
    }
    for difference in &status.differences {
        let ConfigDifference { what, then } = difference;
        out.push_str(&format!("\nconfiguration: {what} ({then})"));
    }
    if let Some(run) = status.runs.first() {
        out.push_str(&format!("\nlast run: {}", last_run(run)));
        // What stands above already, of a table by whatever example, is not said twice.
        let errors = run.error.as_deref().unwrap_or_default().lines();
        let said = |error: &str| {
            let of_what = error.split(": ").next().unwrap_or(error);
            let problems = &mut status.problems.iter();
            problems.any(|p| p.contains(error) || p.starts_with(of_what))
        };
        for error in errors.filter(|error| !said(error)) {
            out.push_str(&format!("\n  {error}"));
        }
    }
    if let Some(verified) = &status.verified {
        out.push_str(&format!(
            "
last verified: {}, {}, {}, {} unsettled, {} not compared",
            verified.at,
            counted(verified.comparisons, "comparison"),
            counted(verified.differences, "difference"),
            verified.unsettled,
            verified.not_compared
        ));
        let standing = &verified.standing;
        for found in standing.iter().take(MOST_STANDING) {
            out.push_str(&format!("\ndiffers since {}: {}", found.since, found.what));
        }
        if standing.len() > MOST_STANDING {
            let more = standing.len() - MOST_STANDING;
            out.push_str(&format!("\nand {more} more, see sync.verifications"));
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Table;

    #[test]
    fn what_fails_is_said_once_and_what_else_waits_beside_it() {
        let error = "GET http://host/api/Cases/17/Costs failed (attempt 5 of 5): it answered 500";
        let status = Status {
            problems: vec![format!("costs: 1 scope failed and will be tried again: {error}")],
            waiting: vec![
                format!("costs (1 scope): {}", error.replace("17", "23")),
                "notes (2 scopes): changed".to_owned(),
            ],
            ..Status::default()
        };
        let text = text(&status);
        assert_eq!(text.matches("it answered 500").count(), 1, "{text}");
        assert!(text.contains("waiting: notes (2 scopes): changed"), "{text}");
    }

    #[test]
    fn why_a_table_that_is_read_lacks_something_is_said() {
        let events = Table {
            table: "events".to_owned(),
            status: "ok",
            reason: Some("serve.webhooks is not set".to_owned()),
            ..Table::default()
        };
        let all_there = Table { table: "costs".to_owned(), status: "ok", ..Table::default() };
        let text = text(&Status { tables: vec![events, all_there], ..Status::default() });
        assert!(text.contains("\nevents: serve.webhooks is not set\n"), "{text}");
        assert!(!text.contains("\ncosts"), "{text}");
    }

    #[test]
    fn a_run_without_an_end_is_under_way_where_its_process_holds_the_store_and_was_killed_elsewhere()
     {
        let begun = || Run {
            run_id: 7,
            command: "sync".to_owned(),
            started_at: Some("2026-11-24T20:00:00Z".to_owned()),
            ..Run::default()
        };
        let of = |status: Status| last_run(&status.runs[0]);
        let status = || Status { runs: vec![begun()], ..Status::default() };
        assert_eq!(
            of(status().of_holder(7, None, None)),
            "sync is under way since 2026-11-24T20:00:00Z"
        );
        // Looked at while nobody holds it, or by a process that has begun no run yet.
        let killed = "sync did not end (its process was killed), started 2026-11-24T20:00:00Z";
        assert_eq!(of(status()), killed);
        assert_eq!(of(status().of_holder(0, None, None)), killed);
        let ended = Run { outcome: Some("ok".to_owned()), calls: Some(1), ..begun() };
        let status = Status { runs: vec![ended], ..Status::default() };
        let status = status.of_holder(7, None, None);
        assert_eq!(of(status), "sync ok, started 2026-11-24T20:00:00Z, 1 call");
    }
}
