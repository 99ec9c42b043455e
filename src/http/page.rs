//! The status page: whether the mirror is healthy and its numbers can be trusted, at a glance.
//!
//! No script, no other file, nothing of any person. Whatever comes from the platform is text.

use jiff::{SignedDuration, Timestamp};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts;
use super::facts::{Coverage, Facts, HOURS, Reports, Scope};
use crate::status::{Run, Table};
use crate::text::printable;

/// How it looks, in light and dark, wide and narrow.
const STYLE: &str = include_str!("page.css");
/// The page asks for itself again after so many seconds.
const REFRESH: u32 = 30;
/// Errors and differences that are shown.
const MOST: usize = 20;

/// How the mirror is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Everything that is asked for is there and believed.
    Good,
    /// The first load is not through.
    Filling,
    /// Something needs a person, or the source does not answer.
    Attention,
    /// The mirror and the source differ.
    Differs,
}

impl Verdict {
    fn of(facts: &Facts) -> Verdict {
        let status = &facts.status;
        if status.verified.as_ref().is_some_and(|verified| !verified.standing.is_empty()) {
            Verdict::Differs
        } else if facts.lag.is_some() || !status.problems.is_empty() {
            Verdict::Attention
        } else if !status.complete {
            Verdict::Filling
        } else {
            Verdict::Good
        }
    }

    fn class(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Filling => "waits",
            Verdict::Attention => "warns",
            Verdict::Differs => "bad",
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Verdict::Good => "✓",
            Verdict::Filling => "…",
            Verdict::Attention => "!",
            Verdict::Differs => "≠",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Good => "The mirror is complete and in step",
            Verdict::Filling => "The mirror is being filled for the first time",
            Verdict::Attention => "Something needs attention",
            Verdict::Differs => "The mirror differs from the source",
        }
    }
}

/// The page.
pub(super) fn of(facts: &Facts, reports: &Reports) -> Markup {
    let verdict = Verdict::of(facts);
    let status = &facts.status;
    frame(
        verdict.words(),
        html! {
            (banner(facts, verdict))
            @if let Some(doing) = &facts.doing {
                section aria-label="Being done now" {
                    h2 { "Being done now" }
                    p { strong { (printable(&doing.what)) } ": " (doing.words()) }
                    @if doing.counts.planned > 0 {
                        progress max=(doing.counts.planned) value=(doing.counts.done) {
                            (doing.counts.done) " of " (doing.counts.planned)
                        }
                        span.quiet { " " (doing.counts.done) " of " (doing.counts.planned) }
                    }
                }
            }
            (trust(facts, reports))
            (latest(facts))
            div.pair {
                (chart("Calls per hour", &format!("of the last {HOURS} hours, UTC"), &by_hour(facts, |hour| hour.calls)))
                (chart("Changes per hour", "rows inserted, updated or deleted", &by_hour(facts, |hour| hour.changes)))
            }
            (chart(
                "Signed cases per month",
                "without valuations, all offices: report.signed_cases",
                &reports.signed.iter().map(|s| (s.month.clone(), s.cases)).collect::<Vec<_>>(),
            ))
            (coverage(&reports.coverage))
            (tables(&status.tables, facts.at))
            (runs(&status.runs))
            footer {
                p.quiet {
                    "casemirror " (env!("CARGO_PKG_VERSION")) ", running since " (shown(facts.started))
                    @if let Some(tenant) = &facts.status.tenant { ", tenant " code { (printable(tenant)) } }
                    ". "
                    "Also here: " a href="/api/status" { "the status as JSON" } ", "
                    a href="/metrics" { "metrics" } ", " a href="/readyz" { "readiness" } "."
                }
            }
        },
    )
}

/// The page where nothing can be said.
pub(super) fn of_trouble(error: &str) -> Markup {
    frame(
        "The store cannot be read",
        html! {
            header.bad role="status" {
                h1 { span.mark aria-hidden="true" { "!" } "The store cannot be read" }
                p { (printable(error)) }
            }
        },
    )
}

fn frame(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="refresh" content=(REFRESH);
                title { (title) " – casemirror" }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    }
}

/// What is so, and since when.
fn banner(facts: &Facts, verdict: Verdict) -> Markup {
    let status = &facts.status;
    html! {
        header class=(verdict.class()) role="status" {
            h1 { span.mark aria-hidden="true" { (verdict.mark()) } (verdict.words()) }
            p {
                @if let Some(at) = facts.last_polls[0].1 {
                    "The change feed was polled " (ago(Some(at), facts.at)) ". "
                }
                @match status.watermark.as_deref().and_then(parsed) {
                    Some(at) => {
                        "Every change up to " strong { (shown(at)) } " is surely in"
                        @if status.waiting.is_empty() && status.problems.is_empty() { "." }
                        @else { ", but for what waits or fails below." }
                    }
                    None => "It was not read completely yet.",
                }
            }
            @if let Some(since) = facts.well_since.filter(|_| verdict == Verdict::Good) {
                p { "Nothing has needed anybody since " (shown(since)) "." }
            }
            p.quiet { "As of " (shown(facts.at)) "; this page asks again every " (REFRESH) " seconds." }
        }
    }
}

/// Whether the numbers can be trusted: each line is a question with its answer.
fn trust(facts: &Facts, reports: &Reports) -> Markup {
    let status = &facts.status;
    let rejects: i64 = status.tables.iter().map(|table| table.rejected).sum();
    let pending: usize = status.tables.iter().map(|table| table.pending).sum();
    let doubted = reports.coverage.count("doubted");
    let failing = facts.troubled().count();
    let (closed, restated) = reports.closed;
    html! {
        section aria-label="Can the numbers be trusted?" {
            h2 { "Can the numbers be trusted?" }
            dl.facts {
                @match &status.verified {
                    Some(verified) => {
                        @let standing = verified.standing.len();
                        (fact(
                            "Compared with the source",
                            if standing > 0 { "bad" } else if verified.not_compared > 0 { "warns" } else { "good" },
                            html! {
                                (ago(parsed(&verified.at), facts.at)) ": "
                                (verified.comparisons) " comparisons, "
                                @if standing > 0 { (standing) " differ" } @else { "none differs" }
                                @if verified.unsettled > 0 { ", " (verified.unsettled) " unsettled" }
                                @if verified.not_compared > 0 { ", " (verified.not_compared) " not compared" }
                            },
                        ))
                    }
                    None => (fact("Compared with the source", "waits", html! { "not yet" })),
                }
                (fact("Tables", if failing == 0 { "good" } else { "warns" }, html! {
                    (status.tables.iter().filter(|table| table.status == "ok").count()) " read"
                    @if failing > 0 { ", " (failing) " failing or forbidden" }
                }))
                (fact("Waiting to be fetched", if pending == 0 { "good" } else { "waits" }, html! {
                    (grouped(pending)) " scopes"
                }))
                (fact("Values that do not fit", if rejects == 0 { "good" } else { "warns" }, html! {
                    (grouped(rejects)) " rejects"
                }))
                (fact("Journal months doubted", if doubted == 0 { "good" } else { "warns" }, html! {
                    (doubted)
                }))
                (fact("Closed journal months", if restated == 0 { "good" } else { "warns" }, html! {
                    (closed)
                    @if restated > 0 { ", " (restated) " restated since" }
                    @if facts.restatements > 0 { " (" (facts.restatements) " changes in 30 days)" }
                }))
                (fact("Change feed", if facts.lag.is_none() { "good" } else { "warns" }, html! {
                    @match &facts.lag {
                        Some(lag) => { (printable(lag)) }
                        None => { "polled " (ago(facts.last_polls[0].1, facts.at)) }
                    }
                    ", " (facts.window.calls) " of " (facts.window.allowed) " calls in the last "
                    (facts.window.length.as_secs()) " s"
                }))
                (fact("Readers have", if facts.snapshot.is_some() { "good" } else { "waits" }, html! {
                    @match &facts.snapshot {
                        Some(snapshot) => { code { (snapshot.id) } ", taken " (ago(Some(snapshot.taken_at), facts.at)) }
                        None => "nothing yet",
                    }
                }))
                @if let Some(disk) = &facts.disk {
                    (fact("Disk", if disk.is_short() { "warns" } else { "good" }, html! {
                        (bytes(disk.free)) " free of " (bytes(disk.size)) ", the store has " (bytes(facts.store_bytes))
                    }))
                }
            }
        }
    }
}

fn fact(name: &str, class: &str, value: Markup) -> Markup {
    html! { div class=(class) { dt { (name) } dd { (value) } } }
}

/// What needs a person, what waits, and where the mirror differs.
fn latest(facts: &Facts) -> Markup {
    let status = &facts.status;
    let standing = status.verified.as_ref().map_or(&[][..], |verified| &verified.standing);
    html! {
        @if !standing.is_empty() {
            section aria-label="Differences" {
                h2 { "Differences to the source" }
                ul { @for found in standing.iter().take(MOST) {
                    li.bad { (printable(&found.what)) span.quiet { " since " (found.since) } }
                } }
                (and_more(standing.len(), "sync.verifications"))
            }
        }
        @if !status.problems.is_empty() {
            section aria-label="Needs attention" {
                h2 { "Needs attention" }
                ul { @for problem in status.problems.iter().take(MOST) { li.warns { (printable(problem)) } } }
                (and_more(status.problems.len(), "casemirror status"))
            }
        }
        @if !status.waiting.is_empty() {
            section aria-label="Waiting" {
                h2 { "Waiting for its turn" }
                ul { @for waits in status.waiting.iter().take(MOST) { li { (printable(waits)) } } }
                (and_more(status.waiting.len(), "casemirror status"))
            }
        }
    }
}

fn and_more(all: usize, place: &str) -> Markup {
    html! { @if all > MOST { p.quiet { "and " (all - MOST) " more: " code { (place) } } } }
}

fn by_hour(facts: &Facts, value: impl Fn(&super::facts::Hour) -> i64) -> Vec<(String, i64)> {
    let label = |at: Timestamp| at.strftime("%H:00").to_string();
    facts.hours.iter().map(|hour| (label(hour.begins), value(hour))).collect()
}

/// A chart, and the same as a table for who does not see it.
fn chart(title: &str, what: &str, bars: &[(String, i64)]) -> Markup {
    html! {
        figure {
            figcaption { h2 { (title) } p.quiet { (what) } }
            @if bars.is_empty() {
                p.quiet { "nothing yet" }
            } @else {
                @if let Ok(svg) = charts::bars(bars) {
                    div.chart aria-hidden="true" { (PreEscaped(svg)) }
                }
                details {
                    summary { "as numbers" }
                    table {
                        thead { tr { th scope="col" { "when" } th.number scope="col" { "number" } } }
                        tbody { @for (label, value) in bars {
                            tr { th scope="row" { (label) } td.number { (grouped(*value)) } }
                        } }
                    }
                }
            }
        }
    }
}

/// Which months of the journals are there: a row per office, a column per month.
fn coverage(coverage: &Coverage) -> Markup {
    html! {
        section aria-label="Journals" {
            h2 { "Journals, by month" }
            @if coverage.scopes.is_empty() {
                p.quiet { "no month yet" }
            } @else {
                p.quiet {
                    "The worst of all journals of a scope. "
                    @for (status, mark) in MARKS {
                        span.key { span.cell class=(class_of(status)) aria-hidden="true" { (mark) } " " (status) } " "
                    }
                }
                div.scroll tabindex="0" role="region" aria-label="Journals by month" {
                    table.grid {
                        thead { tr {
                            th scope="col" { "scope" }
                            @for month in &coverage.months { th scope="col" { span { (month) } } }
                        } }
                        tbody { @for scope in &coverage.scopes { (months_of(scope)) } }
                    }
                }
            }
        }
    }
}

fn months_of(scope: &Scope) -> Markup {
    html! {
        tr {
            th scope="row" title=(printable(&scope.name)) { (printable(&scope.name)) }
            @for status in &scope.months {
                @match status {
                    Some(status) => {
                        td class={ "cell " (class_of(status)) } title=(status) aria-label=(status) { (mark_of(status)) }
                    }
                    None => td.cell aria-label="none" {},
                }
            }
        }
    }
}

/// What stands for a month's status, so that colours are not needed to tell them apart.
const MARKS: [(&str, &str); 8] = [
    ("complete", "●"),
    ("open", "◐"),
    ("missing", "○"),
    ("incomplete", "◔"),
    ("failing", "!"),
    ("doubted", "?"),
    ("forbidden", "–"),
    ("absent", "·"),
];

fn mark_of(status: &str) -> &'static str {
    MARKS.iter().find(|(name, _)| *name == status).map_or("", |(_, mark)| mark)
}

fn class_of(status: &str) -> &'static str {
    match status {
        "complete" | "open" => "good",
        "missing" | "incomplete" => "waits",
        "failing" | "doubted" => "bad",
        _ => "off",
    }
}

fn tables(tables: &[Table], now: Timestamp) -> Markup {
    html! {
        section aria-label="Tables" {
            h2 { "Tables" }
            div.scroll tabindex="0" role="region" aria-label="Tables" {
                table {
                    thead { tr {
                        th scope="col" { "table" }
                        th scope="col" { "status" }
                        th.number scope="col" { "rows" }
                        th scope="col" { "last change" }
                        th scope="col" { "last checked" }
                        th.number scope="col" { "pending" }
                        th.number scope="col" { "rejects" }
                    } }
                    tbody { @for table in tables { (table_row(table, now)) } }
                }
            }
        }
    }
}

fn table_row(table: &Table, now: Timestamp) -> Markup {
    let class = match table.status {
        "ok" => "good",
        "failing" | "forbidden" => "warns",
        _ => "off",
    };
    html! {
        tr {
            th scope="row" { (table.table) }
            td class=(class) {
                (table.status)
                @if let Some(reason) = table.reason.as_deref().filter(|_| table.status != "ok") {
                    span.quiet { ": " (printable(reason)) }
                }
            }
            td.number { (grouped(table.rows)) }
            td { (ago(table.last_change.as_deref().and_then(parsed), now)) }
            td { (ago(table.last_checked.as_deref().and_then(parsed), now)) }
            td.number { (grouped(table.pending)) }
            td.number { (grouped(table.rejected)) }
        }
    }
}

fn runs(runs: &[Run]) -> Markup {
    html! {
        section aria-label="Latest runs" {
            h2 { "Latest runs" }
            @if runs.is_empty() { p.quiet { "none yet" } }
            ul { @for run in runs {
                @let failed = run.outcome.as_deref() == Some("failed");
                li class=(if failed { "warns" } else { "" }) {
                    (printable(&run.command)) ", "
                    (run.started_at.as_deref().unwrap_or("-")) ": "
                    (run.outcome.as_deref().unwrap_or("under way, or killed"))
                    @if let Some(calls) = run.calls { ", " (grouped(calls)) " calls" }
                    @if let Some(error) = &run.error { br; span.quiet { (printable(error)) } }
                }
            } }
        }
    }
}

fn parsed(at: &str) -> Option<Timestamp> {
    at.parse().ok()
}

/// The instant, with how long ago that is; the instant itself for who points at it.
fn ago(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! {
        @match at {
            Some(at) => time datetime=(shown(at)) title=(shown(at)) { (how_long(now.duration_since(at))) },
            None => "–",
        }
    }
}

/// `40 s ago`, `3 h ago`.
fn how_long(time: SignedDuration) -> String {
    match time.as_secs() {
        ..2 => "now".to_owned(),
        s @ 2..120 => format!("{s} s ago"),
        s @ 120..7_200 => format!("{} min ago", s / 60),
        s @ 7_200..172_800 => format!("{} h ago", s / 3_600),
        s => format!("{} days ago", s / 86_400),
    }
}

fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `12,345`.
fn grouped(number: impl TryInto<u64>) -> String {
    indicatif::HumanCount(number.try_into().unwrap_or(0)).to_string()
}

/// `1.2 GiB`.
fn bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}
