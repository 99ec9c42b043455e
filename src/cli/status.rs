//! `casemirror status`: what is mirrored, how fresh, what failed, what is pending and why.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::Status;
use super::output;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::cycle::failed_text;
use crate::daemon::Printer;
use crate::error::{Error, Kind, Result};
use crate::mirror::{FEED_TABLES, ResourceRow, RunLog, State, Store};
use crate::pending::{self, PendingTable};
use crate::scope::TableStatus;
use crate::session::Session;

pub(crate) fn run(config: &Config, args: &Status) -> Result<u8> {
    let catalog = Catalog::load(config.resources.dir.as_deref())?;
    config.check_tables(&catalog.names())?;
    if !config.store.path.exists() {
        return Err(Error::new(
            Kind::Io,
            format!(
                "there is no store at {} yet: `casemirror sync` makes it",
                config.store.path.display()
            ),
        ));
    }
    let store = Store::open(config, &catalog)?;
    show(&collect(config, &catalog, &store)?, args, &Printer::here())
}

/// The same where the store is open.
pub(crate) fn execute(args: &Status, session: &Session, out: &Printer) -> Result<u8> {
    let status = tokio::task::block_in_place(|| {
        collect(session.config(), session.catalog(), session.store())
    })?;
    show(&status, args, out)
}

fn show(status: &Value, args: &Status, out: &Printer) -> Result<u8> {
    let complete = status["problems"].as_array().is_none_or(Vec::is_empty);
    out.print(&if args.json { format!("{status:#}\n") } else { text(status)? })?;
    Ok(if complete { 0 } else { 3 })
}

/// The status as JSON: also what `/api/status` will show.
fn collect(config: &Config, catalog: &Catalog, store: &Store) -> Result<Value> {
    let conn = store.connection()?;
    let (state, log) = (State::new(&conn), RunLog::new(&conn));
    let pending = pending::collect(&conn, config, catalog, |_| Ok(()))?;
    let resources = log.resources()?;
    let rejects = {
        let tables: Vec<&str> = catalog.names().into_iter().chain(FEED_TABLES).collect();
        log.open_rejects(&tables, &[])?
    };
    let mut problems = Vec::new();
    let mut waiting = Vec::new();
    let mut tables = Vec::new();
    let asked: Vec<&str> = catalog
        .resources()
        .iter()
        .filter(|r| {
            [r.table.as_str(), r.read_with()]
                .iter()
                .all(|table| resources.get(*table).is_some_and(ResourceRow::is_asked))
        })
        .map(|r| r.table.as_str())
        .collect();
    // The feeds are asked in every run.
    let asked: Vec<&str> = asked.into_iter().chain(FEED_TABLES).collect();
    let failed = log.failed_scopes(&asked, &[])?;
    for (table, fresh) in log.freshness()? {
        let Some(row) = resources.get(&table) else { continue };
        let stale = pending.get(&table);
        if row.own_status() == TableStatus::Failing {
            problems
                .push(format!("{table} is failing: {}", row.reason.clone().unwrap_or_default()));
        }
        if let Some((count, error)) = failed.get(&table) {
            problems.push(failed_text(&table, *count, error));
        }
        // What waits for its turn is no failure.
        if let Some(PendingTable { scopes: count, reason, .. }) = stale {
            let (s, are) = if *count == 1 { ("", "is") } else { ("s", "are") };
            waiting.push(format!("{table}: {count} scope{s} {are} pending: {reason}"));
        }
        let rejected = rejects.get(&table).copied().unwrap_or(0);
        let read_with = catalog.get(&table).map_or(table.as_str(), |r| r.read_with());
        let is_asked = |table: &str| resources.get(table).is_some_and(ResourceRow::is_asked);
        if rejected > 0 && is_asked(&table) && is_asked(read_with) {
            problems.push(format!("{table}: {rejected} open reject(s), see sync.rejects"));
        }
        tables.push(json!({
            "table": table,
            "status": row.status.name(),
            "reason": row.reason,
            "since": row.since.map(shown),
            "rows": fresh.rows,
            "last_change": fresh.last_change.map(shown),
            "last_checked": fresh.last_checked.map(shown),
            "pending": stale.map_or(0, |table| table.scopes),
            "pending_reason": stale.map(|table| &table.reason),
            "rejected": rejected,
        }));
    }
    for (table, (count, error)) in
        failed.iter().filter(|(table, _)| !resources.contains_key(*table))
    {
        problems.push(failed_text(table, *count, error));
    }
    // What is no table of the catalog: rows of the feeds that cannot be read.
    for (table, rejected) in rejects.iter().filter(|(table, _)| !resources.contains_key(*table)) {
        problems.push(format!("{table}: {rejected} open reject(s), see sync.rejects"));
    }
    let runs: Vec<Value> = log
        .runs(5)?
        .into_iter()
        .map(|run| {
            json!({
                "run_id": run.run_id,
                "command": run.command,
                "started_at": run.started_at.map(shown),
                "ended_at": run.ended_at.map(shown),
                "outcome": run.outcome,
                "exit_status": run.exit_status,
                "calls": run.calls,
                "error": run.error,
            })
        })
        .collect();
    let failures: Vec<Value> = log
        .failures(100)?
        .into_iter()
        .map(|f| {
            json!({
                "table": f.table,
                "scope": f.id,
                "attempts": f.attempts,
                "next_try": f.next_at.map(shown),
                "kind": f.kind,
                "error": f.error,
            })
        })
        .collect();
    let verified = state.last_verification()?.map(|last| {
        json!({
            "at": shown(last.at),
            "comparisons": last.comparisons,
            "differences": last.differences,
            "unsettled": last.unsettled,
        })
    });
    let watermark =
        state.feed("cases")?.bound.and_then(|b| crate::ticks::Ticks::new(b).to_timestamp());
    Ok(json!({
        "store": store.path().display().to_string(),
        "database": config.publish.database.display().to_string(),
        "tenant": state.meta("tenant")?,
        "watermark": watermark.map(shown),
        "listed_at": state.meta("listed_at")?,
        "late_rows": {
            "cases": state.meta("late_rows_cases")?,
            "contacts": state.meta("late_rows_contacts")?,
        },
        "complete": pending::is_complete_by(&conn, &pending, catalog)?,
        "tables": tables,
        "failures": failures,
        "runs": runs,
        "verified": verified,
        "problems": problems,
        "waiting": waiting,
    }))
}

/// To the second: people read it.
fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text(status: &Value) -> Result<String> {
    let string = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut table = output::table(&[
        "table",
        "status",
        "rows",
        "last change",
        "last checked",
        "pending",
        "rejected",
    ]);
    let empty = Vec::new();
    for row in status["tables"].as_array().unwrap_or(&empty) {
        table.add_row(
            ["table", "status", "rows", "last_change", "last_checked", "pending", "rejected"]
                .map(|key| string(&row[key])),
        );
    }
    let mut out = format!(
        "store      {}\npublished  {}\nwatermark  {} (every change up to here is in, but for what is \
         pending)\ncomplete   {}\n\n{table}\n",
        string(&status["store"]),
        string(&status["database"]),
        string(&status["watermark"]),
        string(&status["complete"]),
    );
    for row in status["tables"].as_array().unwrap_or(&empty) {
        if row["status"] != "ok" {
            out.push_str(&format!(
                "\n{} is {} since {}: {}",
                string(&row["table"]),
                string(&row["status"]),
                string(&row["since"]),
                string(&row["reason"])
            ));
        }
    }
    for problem in status["problems"].as_array().unwrap_or(&empty) {
        out.push_str(&format!("\nincomplete: {}", string(problem)));
    }
    for waits in status["waiting"].as_array().unwrap_or(&empty) {
        out.push_str(&format!("\nwaiting: {}", string(waits)));
    }
    if let Some(run) = status["runs"].as_array().and_then(|runs| runs.first()) {
        out.push_str(&format!(
            "\nlast run: {} {}, started {}, {} calls",
            string(&run["command"]),
            run["outcome"].as_str().unwrap_or("did not end"),
            string(&run["started_at"]),
            string(&run["calls"])
        ));
    }
    let verified = &status["verified"];
    if !verified.is_null() {
        out.push_str(&format!(
            "\nlast verified: {}, {} comparisons, {} differences, {} unsettled",
            string(&verified["at"]),
            verified["comparisons"],
            verified["differences"],
            verified["unsettled"]
        ));
    }
    out.push('\n');
    Ok(out)
}
