//! How the mirror is, since when, and what is being done.

use jiff::SignedDuration;
use maud::{Markup, html};

use super::faults::Faults;
use super::words::{Times, foreign, grouped, how_long, parsed, without_hosts};
use super::{Look, REFRESH, STILL, errors, part};
use crate::http::facts::Facts;
use crate::status::{Health, Lake};
use crate::text::counted;

/// How the mirror is, in a few words.
pub(super) fn words(facts: &Facts) -> String {
    match facts.health {
        Health::Good => match facts.status.pending() {
            0 => "The mirror is complete and in step".to_owned(),
            1 => "The mirror is complete; 1 change is being fetched".to_owned(),
            n => format!("The mirror is complete; {} changes are being fetched", grouped(n)),
        },
        Health::Starting => "The daemon has just started".to_owned(),
        Health::Filling => "The mirror is being filled for the first time".to_owned(),
        Health::Attention => "Something needs attention".to_owned(),
        Health::Differs => {
            let standing = facts.status.verified.as_ref().map_or(0, |v| v.standing.len());
            format!("The mirror differs from the source in {}", counted(standing, "control"))
        }
    }
}

pub(super) fn of(facts: &Facts, words: &str, refreshes: bool, times: &Times<'_>) -> Markup {
    let (look, status) = (Look::of(facts.health), &facts.status);
    html! {
        header class=(look.class) {
            h1 { span.mark aria-hidden="true" { (look.mark) } (words) }
            @if let Some(since) = facts.since {
                p { "So since " strong { (times.at(since)) } " (" (times.lasting(since)) ")." }
            }
            p {
                @if let Some(at) = facts.last_polls[0].1 {
                    "The change feed was read completely " (times.ago(Some(at))) ". "
                } @else {
                    "The change feed has not been read completely yet. "
                }
                @match status.watermark.as_deref().and_then(parsed) {
                    Some(at) => {
                        "Every change up to " strong { (times.at(at)) } " is proven to be in"
                        @if status.waiting.is_empty() && status.problems.is_empty() { ": " }
                        @else { ", but for what waits or fails: " }
                        "the feed is read " (status.feed_overlap) " behind (" code { "feed.overlap" } "), as changes \
                         may appear late in it. All that it has told since is read, too."
                    }
                    None => "Until then nothing is known of the platform.",
                }
            }
            @if let Some(lake) = &status.lake { p { (of_lake(lake)) } }
            p.quiet {
                "As of " (times.at(facts.at)) ". "
                @if refreshes {
                    "This page asks again every " (REFRESH) " seconds: " a href={ "?" (STILL) } { "stop that" } "."
                } @else {
                    "This page stays as it is: " a href="?" { "ask again every " (REFRESH) " seconds" } "."
                }
            }
        }
    }
}

/// What readers of the lake see.
fn of_lake(lake: &Lake) -> String {
    match (&lake.snapshot_id, lake.behind_seconds) {
        (None, _) => "Nothing was carried to the lake yet.".to_owned(),
        (Some(_), Some(0)) => "The lake shows what is published.".to_owned(),
        (Some(id), behind) => format!(
            "The lake shows snapshot {id}, {} behind what is published.",
            how_long(SignedDuration::from_secs(
                i64::try_from(behind.unwrap_or_default()).unwrap_or(i64::MAX)
            ))
        ),
    }
}

/// What is being done now, and how far it is.
pub(super) fn doing(facts: &Facts, faults: &Faults) -> Markup {
    let waiting = facts.status.waiting.iter().filter(|waits| !faults.is_why(waits));
    let waiting: Vec<&String> = waiting.collect();
    let body = html! {
        @match &facts.doing {
            Some(doing) => {
                p { strong { (foreign(&doing.what)) } ": " (doing.words()) "." }
                @if doing.counts.planned > 0 {
                    p {
                        progress max=(doing.counts.planned) value=(doing.counts.done)
                            aria-label="Scopes that are done" {}
                        " " (grouped(doing.counts.done)) " of " (grouped(doing.counts.planned))
                        @if doing.counts.planned == 1 { " scope" } @else { " scopes" }
                    }
                }
            }
            None => p {
                @let pending = facts.status.pending();
                @if !facts.knows() { "Nothing yet." }
                @else if pending == 0 { "Nothing: all that is known is done." }
                @else { "Nothing just now: " (counted(pending as u64, "scope")) " to be tried again, or in its turn." }
                " The change feed is asked every " (how_long(facts.interval.try_into().unwrap_or_default())) "."
            },
        }
        @if !waiting.is_empty() {
            h3 { "Waits for its turn" }
            @let lines = waiting.iter().map(|waits| html! {
                li {
                    (foreign(&without_hosts(waits)))
                    (errors::in_full(std::slice::from_ref(*waits)))
                }
            });
            (errors::list(lines.collect(), "casemirror status"))
        }
    };
    part("now", "Being done now", &body)
}
