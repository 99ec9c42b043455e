//! The tables, and the latest runs.

use maud::{Markup, html};

use super::faults::Faults;
use super::words::{Times, foreign, grouped, how_long, parsed, without_hosts};
use super::{errors, part};
use crate::status::{Run, Table};

/// Of the tables.
const COLUMNS: usize = 7;

pub(super) fn of(tables: &[Table], faults: &Faults, times: &Times<'_>) -> Markup {
    let mut all: Vec<&Table> = tables.iter().collect();
    // What needs somebody first, and last what nobody asked for.
    all.sort_by_key(|table| match table.status {
        "failing" | "forbidden" => 0,
        "ok" if table.rejected > 0 => 1,
        "ok" => 2,
        _ => 3,
    });
    let body = html! {
        div.scroll tabindex="0" role="region" aria-label="Tables" {
            table {
                caption.unseen { "Tables: rows, freshness and status" }
                thead { tr {
                    th scope="col" { "table" }
                    th scope="col" { "status" }
                    th.number scope="col" { "rows" }
                    th scope="col" { "last change" }
                    th scope="col" { "last checked" }
                    th.number scope="col" { "waiting" }
                    th.number scope="col" { "rejects" }
                } }
                tbody { @for table in all { (row(table, faults, times)) } }
            }
        }
    };
    part("tables", "Tables", &body)
}

fn row(table: &Table, faults: &Faults, times: &Times<'_>) -> Markup {
    let class = match table.status {
        "ok" => "good",
        "failing" | "forbidden" => "warns",
        _ => "off",
    };
    let count =
        |number: i64| html! { @if number > 0 { strong { (grouped(number)) } } @else { "0" } };
    html! {
        tr {
            th scope="row" { (table.table) }
            td.status {
                span class=(class) { (table.status) }
                @if table.status != "ok" {
                    @if let Some(since) = table.since.as_deref().and_then(parsed) {
                        span.quiet { " for " (times.lasting(since)) }
                    }
                }
            }
            td.number { (grouped(table.rows)) }
            td { (times.ago_text(table.last_change.as_deref())) }
            td { (times.ago_text(table.last_checked.as_deref())) }
            td.number { (grouped(table.pending)) }
            td.number { (count(table.rejected)) }
        }
        @if let Some(reason) = table.reason.as_ref().filter(|_| !faults.has(&table.table)) {
            tr.reason { td colspan=(COLUMNS) {
                p.quiet { (table.table) ": " (foreign(&without_hosts(reason))) }
                (errors::in_full(std::slice::from_ref(reason)))
            } }
        }
    }
}

/// What was run last.
pub(super) fn runs(runs: &[Run], times: &Times<'_>) -> Markup {
    let body = html! {
        @if runs.is_empty() {
            p.quiet { "None yet." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Latest runs" {
                table {
                    caption.unseen { "Latest runs" }
                    thead { tr {
                        th scope="col" { "command" }
                        th scope="col" { "began" }
                        th scope="col" { "took" }
                        th scope="col" { "ended" }
                        th.number scope="col" { "calls" }
                    } }
                    tbody { @for run in runs { (run_row(run, times)) } }
                }
            }
        }
    };
    part("runs", "Latest runs", &body)
}

fn run_row(run: &Run, times: &Times<'_>) -> Markup {
    let [began, ended] = [&run.started_at, &run.ended_at].map(|at| at.as_deref().and_then(parsed));
    let took = began.zip(ended).map(|(began, ended)| how_long(ended.duration_since(began)));
    let outcome = run.outcome.as_deref();
    let class = match outcome {
        Some("ok") => "good",
        Some("different") => "bad",
        Some(_) => "warns",
        None => "off",
    };
    html! {
        tr {
            th scope="row" { (foreign(&run.command)) }
            td { (times.ago(began)) }
            td { (took.as_deref().unwrap_or("–")) }
            td { span class=(class) { (outcome.unwrap_or(if run.under_way { "under way" } else { "killed" })) } }
            td.number { @if let Some(calls) = run.calls { (grouped(calls)) } @else { "–" } }
        }
    }
}
