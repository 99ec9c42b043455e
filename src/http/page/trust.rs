//! Whether the numbers can be trusted, and whether the mirror keeps up: each tile is a question with its answer.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::part;
use super::words::{Times, bytes, grouped, parsed};
use crate::http::facts::{Facts, Reports};
use crate::status::Table;
use crate::text::counted;

/// A comparison with the source that is older says little of today.
const LONG_AGO: SignedDuration = SignedDuration::from_hours(3 * 24);

/// How an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Good,
    Waits,
    Warns,
    Bad,
}

impl Answer {
    fn good_if(is_good: bool, otherwise: Answer) -> Answer {
        if is_good { Answer::Good } else { otherwise }
    }

    /// Class, mark, and the same in words.
    fn look(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Answer::Good => ("good", "✓", "fine"),
            Answer::Waits => ("waits", "…", "waits"),
            Answer::Warns => ("warns", "!", "needs attention"),
            Answer::Bad => ("bad", "≠", "wrong"),
        }
    }
}

fn tile(question: &str, answer: Answer, words: &Markup) -> Markup {
    let (class, mark, said) = answer.look();
    html! {
        div class=(class) {
            dt { (question) }
            dd { span.mark aria-hidden="true" { (mark) } span.unseen { (said) ": " } (words) }
        }
    }
}

/// The same of what can only be answered once something is known of the platform.
fn known(facts: &Facts, question: &str, answer: Answer, words: &Markup) -> Markup {
    if facts.knows() || answer != Answer::Good {
        return tile(question, answer, words);
    }
    tile(question, Answer::Waits, &html! { "not known yet" })
}

pub(super) fn of(facts: &Facts, reports: &Reports, times: &Times<'_>) -> Markup {
    html! {
        (part("trust", "Can the numbers be trusted?", &html! {
            dl {
                (compared(facts, times))
                (sums(facts))
                (unbelieved(facts))
                (guard(facts))
                (rejects(facts))
                (closings(facts, reports))
            }
        }))
        (part("keeps-up", "Does it keep up?", &html! {
            dl {
                (feed(facts, times))
                (window(facts))
                (tables(facts))
                (waiting(facts))
                (readers(facts, times))
                (room(facts))
            }
        }))
    }
}

fn compared(facts: &Facts, times: &Times<'_>) -> Markup {
    let question = "Compared with the source";
    let Some(verified) = &facts.status.verified else {
        return tile(question, Answer::Waits, &html! { "not yet" });
    };
    let standing = verified.standing.len();
    let at = parsed(&verified.at);
    let is_old = |at: Timestamp| facts.at.duration_since(at) > LONG_AGO;
    let answer = match verified {
        _ if standing > 0 => Answer::Bad,
        _ if verified.unread() > 0 || at.is_some_and(is_old) => Answer::Warns,
        _ => Answer::Good,
    };
    tile(
        question,
        answer,
        &html! {
            (times.ago(at)) ": " (grouped(verified.comparisons)) " comparisons" ", "
            @if standing > 0 { strong { (standing) " differ" } } @else { "none differs" }
            @if verified.unsettled > 0 { ", " (verified.unsettled) " changed meanwhile" }
            @if verified.unread() > 0 {
                ", " (verified.unread()) " could not be read"
                @if let Some(whole) = facts.verified_whole { "; all were " (times.ago(Some(whole))) }
            }
        },
    )
}

fn sums(facts: &Facts) -> Markup {
    let without = facts.without_control;
    let answer = Answer::good_if(without == 0, Answer::Warns);
    let words = html! {
        @if without == 0 { "all that are known match" }
        @else { (counted(without, "month")) " without a sum that matches" }
    };
    known(facts, "Revenue against its sums", answer, &words)
}

fn unbelieved(facts: &Facts) -> Markup {
    let found = &facts.unbelieved;
    let doubted = found.doubted.max(found.months);
    let words = html! {
        @if doubted == 0 { "none" } @else { (counted(doubted, "answer")) " lack much of what is mirrored" }
        @if found.months > 0 { ", " (counted(found.months, "month")) " of journals" }
    };
    known(facts, "Answers that are doubted", Answer::good_if(doubted == 0, Answer::Warns), &words)
}

fn guard(facts: &Facts) -> Markup {
    let held = facts.unbelieved.held;
    let words = html! {
        @if held == 0 { "nothing" } @else { "the removals of " (counted(held, "answer")) }
    };
    known(facts, "Held back by the guard", Answer::good_if(held == 0, Answer::Warns), &words)
}

fn rejects(facts: &Facts) -> Markup {
    let tables = || facts.status.tables.iter().map(Table::open_rejects).filter(|open| *open > 0);
    let (rejects, of): (i64, usize) = (tables().sum(), tables().count());
    let words = html! {
        @if rejects == 0 { "none" } @else { (grouped(rejects)) " in " (counted(of, "table")) }
    };
    known(facts, "Values that do not fit", Answer::good_if(rejects == 0, Answer::Warns), &words)
}

fn closings(facts: &Facts, reports: &Reports) -> Markup {
    let (closed, restated) = reports.closed;
    let words = html! {
        @if closed > 0 { (grouped(closed)) " closed" } @else { "none is closed yet" }
        @if restated > 0 { ", " strong { (grouped(restated)) " changed since" } }
        @else if closed > 0 { ", none changed since" }
        @if facts.restated.changes > 0 { "; " (counted(facts.restated.changes, "change")) " in 30 days" }
    };
    known(facts, "Closed months of journals", Answer::good_if(restated == 0, Answer::Warns), &words)
}

fn feed(facts: &Facts, times: &Times<'_>) -> Markup {
    let answer = match facts.feeds.lag() {
        None => Answer::Good,
        Some(lag) if lag.error.is_none() && facts.last_polls[0].1.is_none() => Answer::Waits,
        Some(_) => Answer::Warns,
    };
    let status = &facts.status;
    let held = [&status.calls_held_until, &status.feeds_held_until].into_iter().flatten();
    let words = html! {
        @for (at, (feed, last)) in facts.last_polls.iter().enumerate() {
            @if at > 0 { ", " }
            (feed.as_str()) " " (times.ago(*last))
        }
        @if let Some(until) = held.filter_map(|until| parsed(until)).max() {
            "; the platform asks for a pause until " (times.at(until))
        }
    };
    tile("Change feeds were read", answer, &words)
}

fn window(facts: &Facts) -> Markup {
    let window = &facts.window;
    let is_kept = window.calls <= i64::from(window.allowed);
    let words = html! {
        (window.calls) " of " (window.allowed) " in the last " (window.length.as_secs()) " s "
        meter min="0" max=(window.allowed) value=(window.calls) aria-hidden="true" {}
    };
    tile("Calls to the feeds", Answer::good_if(is_kept, Answer::Bad), &words)
}

fn tables(facts: &Facts) -> Markup {
    let of = |status: &str| facts.status.tables.iter().filter(|t| t.status == status).count();
    let is_good = facts.troubled().next().is_none();
    let words = html! {
        (of("ok")) " read"
        @for status in ["failing", "forbidden", "absent", "disabled"] {
            @if of(status) > 0 { ", " (of(status)) " " (status) }
        }
    };
    known(facts, "Tables", Answer::good_if(is_good, Answer::Warns), &words)
}

fn waiting(facts: &Facts) -> Markup {
    let pending = facts.status.pending();
    let words = html! {
        @if pending == 0 { "nothing" } @else { (grouped(pending)) @if pending == 1 { " scope" } @else { " scopes" } }
    };
    known(facts, "Waits to be fetched", Answer::good_if(pending == 0, Answer::Waits), &words)
}

fn readers(facts: &Facts, times: &Times<'_>) -> Markup {
    let words = html! {
        @match &facts.snapshot {
            Some(snapshot) => { "what was here " (times.ago(Some(snapshot.taken_at))) ", " code { (snapshot.id) } }
            None => "nothing yet",
        }
    };
    let behind = facts.status.published_behind_since.is_some();
    let answer = Answer::good_if(facts.snapshot.is_some(), Answer::Waits);
    tile("Readers have", if behind { Answer::Warns } else { answer }, &words)
}

fn room(facts: &Facts) -> Markup {
    let is_short = facts.disk.as_ref().is_some_and(|disk| disk.is_short());
    let words = html! {
        "the store takes " (bytes(facts.store_bytes))
        @if let Some(disk) = &facts.disk { ", " (bytes(disk.free)) " of " (bytes(disk.size)) " are free" }
    };
    tile("Room on the disk", Answer::good_if(!is_short, Answer::Warns), &words)
}
