//! Charts, each with what it shows in words, and as a table.

use maud::{Markup, PreEscaped, html};

use super::words::{Times, grouped};
use crate::http::charts::{HALF, NARROW, Size, WHOLE, bars};
use crate::http::facts::{Facts, HOURS, Hour, Reports};
use crate::text::counted;

/// Calls and changes by hour.
pub(super) fn of_the_day(facts: &Facts, times: &Times<'_>) -> Markup {
    let by_hour = |value: fn(&Hour) -> i64| -> Vec<(String, Option<i64>)> {
        facts.hours.iter().map(|hour| (times.hour(hour.begins), Some(value(hour)))).collect()
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
    /// `None`: not known.
    bars: &'a [(String, Option<i64>)],
}

impl Chart<'_> {
    fn draw(&self, wide: Size) -> Markup {
        let heights: Vec<(String, i64)> =
            self.bars.iter().map(|(label, value)| (label.clone(), value.unwrap_or(0))).collect();
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
                        @if let Ok(svg) = bars(&heights, size) { div class={ "chart " (class) } { (PreEscaped(svg)) } }
                    }
                    details {
                        summary { "as a table" }
                        table {
                            caption.unseen { (self.title) ", " (self.what) }
                            thead { tr { th scope="col" { (self.each) } th.number scope="col" { "number" } } }
                            tbody { @for (label, value) in self.bars {
                                tr {
                                    th scope="row" { (label) }
                                    td.number { (value.map_or("not known".to_owned(), grouped)) }
                                }
                            } }
                        }
                    }
                }
            }
        }
    }

    /// `1,234 in all; most in the hour from 14:00: 300`, or, where some are not known, `1,234 or more, 2 months are
    /// not known`.
    fn summary(&self) -> String {
        let all: i64 = self.bars.iter().filter_map(|(_, value)| *value).sum();
        let unknown = self.bars.iter().filter(|(_, value)| value.is_none()).count();
        if unknown > 0 {
            let are = if unknown == 1 { "is" } else { "are" };
            let what = counted(unknown, self.each);
            return format!("{} or more, {what} {are} not known", grouped(all));
        }
        let most = self.bars.iter().filter_map(|(label, value)| Some((label, (*value)?)));
        match most.max_by_key(|(_, value)| *value).filter(|(_, value)| *value > 0) {
            Some((label, value)) => {
                format!("{} in all; most {} {label}: {}", grouped(all), self.within, grouped(value))
            }
            None => "none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::facts::Signed;

    /// A number that leaves something out is never shown as if it were all.
    #[test]
    fn months_that_are_not_known_are_told_in_words_and_in_the_table() {
        let months = |cases: [Option<i64>; 3]| -> String {
            let month = |(at, cases): (usize, Option<i64>)| Signed {
                month: format!("2026-0{}", at + 1),
                cases,
            };
            let signed = cases.into_iter().enumerate().map(month).collect();
            super::signed(&Reports { signed, ..Reports::default() }).into_string()
        };
        let all = months([Some(3), Some(0), Some(5)]);
        assert!(
            all.contains("8 in all; most in 2026-03: 5") && !all.contains("not known"),
            "{all}"
        );
        let one = months([Some(3), None, Some(5)]);
        assert!(one.contains("8 or more, 1 month is not known"), "{one}");
        assert_eq!(one.matches("<td class=\"number\">not known</td>").count(), 1, "{one}");
        let none = months([None; 3]);
        assert!(none.contains("0 or more, 3 months are not known"), "{none}");
    }
}
