//! What needs somebody now, and what went wrong lately.

use maud::{Markup, html};

use super::part;
use super::words::{Times, foreign, grouped, parsed};
use crate::disk::Disk;
use crate::http::facts::{Facts, RunError};
use crate::pulse::Feeds;
use crate::status::Failure;
use crate::text::counted;

/// Lines of a list that are seen at once,
const SEEN: usize = 5;
/// and those that are there at all.
const MOST: usize = 50;

/// What differs, and what needs attention; nothing where all is well.
pub(super) fn standing(facts: &Facts, times: &Times<'_>) -> Markup {
    let differs = facts.status.verified.as_ref().map_or(&[][..], |verified| &verified.standing);
    let needs = needs(facts);
    html! {
        @if !differs.is_empty() {
            @let lines = differs.iter().map(|found| html! {
                li.bad { (foreign(&found.what)) span.quiet { " found " (times.ago_text(Some(&found.since))) } }
            });
            (part("differences", "Differs from the source", &list(lines.collect(), "sync.verifications")))
        }
        @if !needs.is_empty() {
            @let lines = needs.iter().map(|what| html! { li.warns { (foreign(what)) } });
            (part("attention", "Needs attention", &list(lines.collect(), "casemirror status")))
        }
    }
}

fn needs(facts: &Facts) -> Vec<String> {
    let lag = match &facts.feeds {
        Feeds::Stalled(lag) => Some(lag),
        Feeds::Starting(lag) => Some(lag).filter(|lag| lag.error.is_some()),
        Feeds::Polled => None,
    };
    let disk = facts.disk.as_ref().filter(|disk| disk.is_short());
    let disk = disk.map(|disk: &Disk| {
        format!("the disk of the store fills: {} are free", super::words::bytes(disk.free))
    });
    lag.map(ToString::to_string)
        .into_iter()
        .chain(disk)
        .chain(facts.status.problems.clone())
        .collect()
}

/// The errors of scopes that are tried again, and of the last runs that had any.
pub(super) fn last(facts: &Facts, times: &Times<'_>) -> Markup {
    let (failures, errors) = (&facts.status.failures, &facts.errors);
    let body = html! {
        @if failures.is_empty() && errors.is_empty() { p.quiet { "None that is known of." } }
        @if !failures.is_empty() {
            h3 { "Tried again" }
            (list(failures.iter().map(|failure| of_scope(failure, times)).collect(), "sync.failures"))
        }
        @if !errors.is_empty() {
            h3 { "Of runs" }
            (list(errors.iter().map(|found| of_run(found, times)).collect(), "sync.runs"))
        }
    };
    part("errors", "Last errors", &body)
}

fn of_scope(failure: &Failure, times: &Times<'_>) -> Markup {
    html! {
        li.warns {
            code { (failure.table) }
            @if failure.scope != 0 { " " (failure.scope) }
            ": " (foreign(&failure.error))
            span.quiet {
                " " (counted(failure.attempts, "attempt"))
                @if let Some(at) = failure.next_try.as_deref().and_then(parsed) {
                    ", the next one "
                    @if at > times.now { "at " (times.at(at)) } @else { "is due" }
                }
            }
        }
    }
}

fn of_run(found: &RunError, times: &Times<'_>) -> Markup {
    html! {
        li class=(if found.outcome == "failed" { "warns" } else { "" }) {
            (times.ago(Some(found.at))) ", " code { (foreign(&found.command)) } " ended " (found.outcome)
            @if found.runs > 1 { " (" (grouped(found.runs)) " runs with the same)" }
            ": " span.lines { (foreign(&found.error)) }
        }
    }
}

/// A list of which only the beginning is seen before somebody opens it. All are in `place`.
pub(super) fn list(mut lines: Vec<Markup>, place: &str) -> Markup {
    let all = lines.len();
    lines.truncate(MOST);
    let hidden = lines.split_off(lines.len().min(SEEN));
    html! {
        ul { @for line in &lines { (line) } }
        @if !hidden.is_empty() {
            details {
                summary { (all - SEEN) " more" }
                ul { @for line in &hidden { (line) } }
                @if all > MOST { p.quiet { "and " (all - MOST) " more: " code { (place) } } }
            }
        }
    }
}
