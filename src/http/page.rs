//! The status page: whether the mirror is healthy and its numbers can be trusted, at a glance.
//!
//! No script, no other file, nothing of any person. Whatever comes from the platform is text. What is shown by
//! a colour or a drawing is also said in words, for who does not see it.

mod banner;
mod errors;
mod faults;
mod figures;
mod journals;
mod tables;
#[cfg(test)]
pub(super) mod tests;
mod trust;
mod words;

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::facts::{Facts, Reports};
use crate::status::Health;
use crate::text::printable;
use words::Times;

/// How it looks, in light and dark, wide and narrow.
const STYLE: &str = include_str!("page.css");
/// The page asks for itself again after so many seconds.
const REFRESH: u32 = 30;
/// What a page asks for that does not ask again: for who reads it slowly.
pub(super) const STILL: &str = "refresh=off";

/// No page of ours needs anything from anywhere, and none is to be shown within another. Of styles only its own
/// is taken.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// How a page is framed.
#[derive(Debug, Clone, Copy)]
struct Look {
    class: &'static str,
    mark: &'static str,
    /// Of the browser's tab.
    colour: &'static str,
}

impl Look {
    fn of(health: Health) -> Look {
        let (class, mark, colour) = match health {
            Health::Good => ("good", "✓", "1a7f37"),
            Health::Starting | Health::Filling => ("waits", "…", "0b62c4"),
            Health::Attention => ("warns", "!", "c77700"),
            Health::Differs => ("bad", "≠", "c0212e"),
        };
        Look { class, mark, colour }
    }
}

/// The page. One that `refreshes` asks for itself again now and then.
pub(super) fn of(facts: &Facts, reports: &Reports, refreshes: bool) -> Markup {
    let times = Times { zone: &facts.zone, now: facts.at };
    let title = banner::words(facts);
    let faults = faults::Faults::of(facts);
    frame(
        Look::of(facts.health),
        &title,
        refreshes,
        &html! {
            (banner::of(facts, &title, refreshes, &times))
            (contents())
            main {
                (errors::standing(facts, &faults.now, &times))
                (trust::of(facts, reports, &times))
                (banner::doing(facts, &faults))
                (figures::of_the_day(facts, &times))
                (figures::signed(reports))
                (journals::of(&reports.coverage))
                (tables::of(&facts.status.tables, &faults, &times))
                (errors::earlier(&faults, &times))
                (tables::runs(&facts.status.runs, &times))
            }
            footer {
                p.quiet {
                    "casemirror " (env!("CARGO_PKG_VERSION")) ", running since " (times.at(facts.started))
                    @if let Some(tenant) = &facts.status.tenant { ", tenant " code { (printable(tenant)) } }
                    ". Also here: "
                    a href="api/status" { "the status as JSON" } ", "
                    a href="metrics" { "metrics" } ", " a href="readyz" { "readiness" } "."
                }
            }
        },
    )
}

/// The page where nothing can be said.
pub(super) fn of_trouble(error: &str, refreshes: bool) -> Markup {
    let title = "The store cannot be read";
    frame(
        Look::of(Health::Attention),
        title,
        refreshes,
        &html! {
            header.warns {
                h1 { span.mark aria-hidden="true" { "!" } (title) }
                p { (printable(error)) }
            }
        },
    )
}

fn frame(look: Look, title: &str, refreshes: bool, body: &Markup) -> Markup {
    let icon = format!(
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle \
         cx='8' cy='8' r='7' fill='%23{}'/%3E%3C/svg%3E",
        look.colour
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if refreshes { meta http-equiv="refresh" content=(REFRESH); }
                title { (look.mark) " " (title) " – casemirror" }
                link rel="icon" href=(icon);
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
}

fn contents() -> Markup {
    html! {
        nav aria-label="On this page" {
            @for (id, name) in [
                ("trust", "Trust"),
                ("now", "Now"),
                ("day", "Last day"),
                ("signed", "Signed cases"),
                ("journals", "Journals"),
                ("tables", "Tables"),
                ("errors", "Earlier errors"),
                ("runs", "Runs"),
            ] {
                a href={ "#" (id) } { (name) } " "
            }
        }
    }
}

/// A part of the page, with a heading that it is named by.
fn part(id: &str, heading: &str, body: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-heading" } {
            h2 id={ (id) "-heading" } { (heading) }
            (body)
        }
    }
}
