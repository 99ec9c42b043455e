//! What needs somebody now, and what went wrong lately: each fault once.

use maud::{Markup, html};

use super::faults::{Faults, Told};
use super::part;
use super::words::{Times, foreign, grouped, without_hosts};
use crate::http::facts::Facts;

/// Lines of a list that are seen at once,
const SEEN: usize = 5;
/// and those that are there at all.
const MOST: usize = 50;

/// What differs, and what needs attention; nothing where all is well.
pub(super) fn standing(facts: &Facts, needs: &[Told], times: &Times<'_>) -> Markup {
    let differs = facts.status.verified.as_ref().map_or(&[][..], |verified| &verified.standing);
    html! {
        @if !differs.is_empty() {
            @let lines = differs.iter().map(|found| html! {
                li.bad { (foreign(&found.what)) span.quiet { " found " (times.ago_text(Some(&found.since))) } }
            });
            (part("differences", "Differs from the source", &list(lines.collect(), "sync.verifications")))
        }
        @if !needs.is_empty() {
            @let lines = needs.iter().map(|told| fault(told, Some("warns"), times));
            (part("attention", "Needs attention", &list(lines.collect(), "casemirror status")))
        }
    }
}

/// What runs ended with and needs nobody any more.
pub(super) fn earlier(faults: &Faults, times: &Times<'_>) -> Markup {
    let body = html! {
        @if faults.earlier.is_empty() {
            p.quiet {
                @if faults.now.is_empty() { "None that is known of." }
                @else { "None but what needs attention." }
            }
        } @else {
            @let lines = faults.earlier.iter().map(|told| fault(told, None, times));
            (list(lines.collect(), "sync.runs"))
        }
    };
    part("errors", "Earlier errors", &body)
}

fn fault(told: &Told, class: Option<&str>, times: &Times<'_>) -> Markup {
    let text = told.texts.first().map_or("", String::as_str);
    html! {
        li class=[class] {
            (foreign(&without_hosts(text)))
            (how_often(told, times))
            (in_full(&told.texts))
        }
    }
}

/// `12 scopes, 54 attempts; 3 runs ended with it, first 2 h ago, last now; the next try is due`
fn how_often(told: &Told, times: &Times<'_>) -> Markup {
    let so_many = |count: u64, noun: &str| {
        let s = if count == 1 { "" } else { "s" };
        format!("{} {noun}{s}", grouped(count))
    };
    let mut parts = Vec::new();
    if told.scopes > 0 {
        let (scopes, attempts) = (told.scopes.unsigned_abs(), told.attempts.unsigned_abs());
        let text = format!("{}, {}", so_many(scopes, "scope"), so_many(attempts, "attempt"));
        parts.push(html! { (text) });
    }
    if told.runs > 0 {
        parts.push(html! { (so_many(told.runs, "run")) " ended with it" });
    }
    match (told.first, told.last) {
        (Some(first), Some(last)) if first != last => {
            parts.push(
                html! { "first " (times.ago(Some(first))) ", last " (times.ago(Some(last))) },
            );
        }
        (Some(first), _) => parts.push(html! { "since " (times.lasting(first)) }),
        (None, _) => {}
    }
    if let Some(at) = told.next_try {
        parts.push(html! {
            "the next try "
            @if at > times.now { "at " (times.at(at)) } @else { "is due" }
        });
    }
    html! {
        @if !parts.is_empty() {
            span.quiet { @for (at, part) in parts.iter().enumerate() {
                @if at == 0 { " – " } @else { "; " }
                (part)
            } }
        }
    }
}

/// What was cut short, or stands for others, as it is.
pub(super) fn in_full(texts: &[String]) -> Markup {
    let is_all = matches!(texts, [text] if *text == without_hosts(text));
    html! {
        @if !is_all {
            details.full {
                summary { "in full" }
                ul {
                    @for text in texts.iter().take(MOST) { li { (foreign(text)) } }
                }
                @if texts.len() > MOST { p.quiet { "and " (grouped(texts.len() - MOST)) " more: " code { "sync.failures" } } }
            }
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
