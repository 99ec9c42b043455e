//! Which months of the journals are there: a row per office, a column per month, the newest first: a phone shows
//! some of them.

use maud::{Markup, html};

use super::part;
use super::words::{foreign, grouped};
use crate::http::facts::{Coverage, Scope};
use crate::text::counted;

/// What each status means, and how it looks: `page.css` has a mark for each, so that no colour is needed to tell
/// them apart.
const STATUSES: [(&str, &str); 8] = [
    ("complete", "read after its end"),
    ("open", "read, but before its end"),
    ("missing", "not read yet"),
    ("incomplete", "the last reading lacked a part"),
    ("failing", "the last reading failed"),
    ("doubted", "not believed yet"),
    ("forbidden", "a permission is missing"),
    ("absent", "not at the platform"),
];

pub(super) fn of(coverage: &Coverage) -> Markup {
    let counts = coverage.counts();
    let body = html! {
        @if coverage.scopes.is_empty() {
            p.quiet { "No month yet." }
        } @else {
            p {
                (counted(coverage.scopes.len(), "office")) ", " (counted(coverage.months.len(), "month")) ": "
                @for (at, (status, count)) in counts.iter().enumerate() {
                    @if at > 0 { ", " }
                    (grouped(*count)) " " (status)
                }
                ". A cell shows the worst of all journals of its month."
            }
            ul.keys { @for (status, meaning) in STATUSES {
                @if counts.iter().any(|(found, _)| *found == status) {
                    li { span.cell.(status) aria-hidden="true" {} " " strong { (status) } ": " (meaning) }
                }
            } }
            div.scroll.tall tabindex="0" role="region" aria-label="Journals by office and month" {
                table.grid {
                    caption.unseen { "Journals by office and month" }
                    thead { tr {
                        th scope="col" { "office" }
                        @for month in coverage.months.iter().rev() { th scope="col" { span { (month) } } }
                    } }
                    tbody { @for scope in &coverage.scopes { (months_of(scope, &coverage.months)) } }
                }
            }
        }
    };
    part("journals", "Journals by month", &body)
}

fn months_of(scope: &Scope, months: &[String]) -> Markup {
    html! {
        tr {
            th scope="row" { (foreign(&scope.name)) }
            @for (found, month) in scope.months.iter().zip(months).rev() {
                @match found {
                    // Most are: no more is said of them than needed.
                    Some(found) if found.status == "complete" => td.cell.complete { span { "complete" } },
                    Some(found) => {
                        @let which = found.journals.as_deref().unwrap_or("all journals");
                        td class={ "cell " (found.status) } title={ (month) ", " (found.status) ": " (which) } {
                            span { (found.status) }
                        }
                    }
                    None => td.cell {},
                }
            }
        }
    }
}
