//! Charts, each with what it shows in words, and as a table.

use maud::{Markup, PreEscaped, html};

use super::words::{Times, grouped};
use crate::http::charts::{HALF, NARROW, Size, WHOLE, bars};
use crate::http::facts::{Facts, HOURS, Hour, Reports};

/// Calls and changes by hour.
pub(super) fn of_the_day(facts: &Facts, times: &Times<'_>) -> Markup {
    let by_hour = |value: fn(&Hour) -> i64| -> Vec<(String, i64)> {
        facts.hours.iter().map(|hour| (times.hour(hour.begins), value(hour))).collect()
    };
    let day = format!("in each of the last {HOURS} hours");
    let calls = Chart {
        id: "day",
        title: "Calls to the platform",
        what: &format!("{day}, change feeds included"),
        each: "hour",
        within: "in the hour from",
        bars: &by_hour(|hour| hour.calls),
    };
    let changes = Chart {
        id: "changes",
        title: "Changes in the mirror",
        what: &format!("rows inserted, updated or deleted {day}, once a run has ended"),
        each: "hour",
        within: "in the hour from",
        bars: &by_hour(|hour| hour.changes),
    };
    html! { div.pair { (calls.draw(HALF)) (changes.draw(HALF)) } }
}

/// Signed cases by month.
pub(super) fn signed(reports: &Reports) -> Markup {
    let bars: Vec<_> = reports.signed.iter().map(|s| (s.month.clone(), s.cases)).collect();
    let chart = Chart {
        id: "signed",
        title: "Signed cases",
        what: "per month, all offices, without valuations: report.signed_cases",
        each: "month",
        within: "in",
        bars: &bars,
    };
    chart.draw(WHOLE)
}

struct Chart<'a> {
    id: &'a str,
    title: &'a str,
    what: &'a str,
    /// What a bar stands for.
    each: &'a str,
    /// What stands before its name.
    within: &'a str,
    bars: &'a [(String, i64)],
}

impl Chart<'_> {
    fn draw(&self, wide: Size) -> Markup {
        html! {
            figure id=(self.id) {
                figcaption {
                    h2 { (self.title) }
                    p.quiet { (self.what) }
                    @if !self.bars.is_empty() { p { (self.summary()) } }
                }
                @if self.bars.is_empty() {
                    p.quiet { "Nothing yet." }
                } @else {
                    @for (class, size) in [("narrow", NARROW), ("wide", wide)] {
                        @if let Ok(svg) = bars(self.bars, size) { div class={ "chart " (class) } { (PreEscaped(svg)) } }
                    }
                    details {
                        summary { "as a table" }
                        table {
                            caption.unseen { (self.title) ", " (self.what) }
                            thead { tr { th scope="col" { (self.each) } th.number scope="col" { "number" } } }
                            tbody { @for (label, value) in self.bars {
                                tr { th scope="row" { (label) } td.number { (grouped(*value)) } }
                            } }
                        }
                    }
                }
            }
        }
    }

    /// `1,234 in all; most in the hour from 14:00: 300`.
    fn summary(&self) -> String {
        let all: i64 = self.bars.iter().map(|(_, value)| value).sum();
        let most = self.bars.iter().max_by_key(|(_, value)| *value);
        match most.filter(|(_, value)| *value > 0) {
            Some((label, value)) => {
                format!(
                    "{} in all; most {} {label}: {}",
                    grouped(all),
                    self.within,
                    grouped(*value)
                )
            }
            None => "none".to_owned(),
        }
    }
}
