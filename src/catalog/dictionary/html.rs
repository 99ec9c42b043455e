//! The dictionary as one page: no script, no other file, an anchor for each table and column.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{OWN_COLUMNS, Report, class, endpoint, own_column, refresh};
use crate::catalog::ddl::HISTORY_COLUMNS;
use crate::catalog::{Catalog, Column, Resource};

/// How it looks, in light and dark, wide and narrow.
const STYLE: &str = include_str!("page.css");

pub(super) fn page(catalog: &Catalog, reports: &[Report]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { "Data dictionary – casemirror" }
                style { (PreEscaped(STYLE)) }
            }
            body { main {
                header {
                    h1 { "Data dictionary" }
                    p {
                        "What is in the published DuckDB file and the Parquet snapshots of casemirror "
                        (env!("CARGO_PKG_VERSION")) ": " (catalog.resources().len()) " tables in schema "
                        code { "main" } ", and the reports on them in schema " code { "report" } ". "
                        a href="#earlier-versions" { "Earlier versions" } " of all rows are in schema " code { "history" } "."
                    }
                }
                (index(catalog, reports))
                h2 #all-tables { "Tables" }
                @for resource in catalog.resources() { (table(resource)) }
                h2 #all-reports { "Reports" }
                @for report in reports { (of_report(report)) }
                (history())
            } }
        }
    };
    format!("{}\n", page.into_string())
}

/// Names of tables have no hyphen: no heading's anchor is a table's.
fn index(catalog: &Catalog, reports: &[Report]) -> Markup {
    html! {
        nav aria-label="Index" {
            h2 { a href="#all-tables" { "Tables" } }
            ul { @for resource in catalog.resources() {
                li { a href={ "#" (resource.table) } { (resource.table) } }
            } }
            h2 { a href="#all-reports" { "Reports" } }
            ul { @for report in reports {
                li { a href={ "#report." (report.name) } { (report.name) } }
            } }
        }
    }
}

fn table(resource: &Resource) -> Markup {
    let name = &resource.table;
    html! {
        section id=(name) {
            h3 { a href={ "#" (name) } { (name) } }
            p { (resource.comment) }
            dl {
                (fact("Key", html! { code { (resource.key.join(", ")) } }))
                (fact("Read with", html! { code { (endpoint(resource).replace('`', "")) } }))
                (fact("Read again", html! { (refresh(resource)) }))
                @if !resource.permissions.is_empty() {
                    (fact("Permissions", html! { (resource.permissions.join(", ")) }))
                }
            }
            (columns(html! {
                @for c in &resource.columns {
                    (row(name, (&c.name, &c.kind.sql(), &c.comment), &of_column(resource, c)))
                }
                @for c in OWN_COLUMNS.iter().map(own_column) {
                    (row(name, (&c.name, &c.kind, &c.comment), &html! {}))
                }
            }))
        }
    }
}

/// What is particular about a column.
fn of_column(resource: &Resource, column: &Column) -> Markup {
    html! {
        @if resource.key.contains(&column.name) { span.mark { "key" } }
        @if column.class.is_some() {
            span.mark.private title="privacy class" { (class(column.class).replace('_', " ")) }
        }
        @if column.volatile {
            span.mark title="A change of this column alone makes no earlier version" { "no history" }
        }
        @if !column.path.is_empty() { span.field title="field of the source" { (column.path.join(".")) } }
    }
}

fn of_report(report: &Report) -> Markup {
    let place = format!("report.{}", report.name);
    html! {
        section id=(place) {
            h3 { a href={ "#" (place) } { "report." (report.signature()) } }
            p { (report.comment) }
            @if !report.key.is_empty() {
                dl { (fact("One row per", html! { code { (report.key.join(", ")) } })) }
            }
            @if !report.columns.is_empty() {
                (columns(html! { @for c in &report.columns {
                    @let is_key = report.key.contains(&c.name);
                    (row(&place, (&c.name, &c.kind, &c.comment), &html! { @if is_key { span.mark { "key" } } }))
                } }))
            }
        }
    }
}

fn history() -> Markup {
    html! {
        h2 #earlier-versions { "Earlier versions" }
        section {
            p {
                "Schema " code { "history" } " has a table of the same name for each table, with its columns and these. "
                "The version that is valid now is in " code { "main" } "."
            }
            (columns(html! { @for c in HISTORY_COLUMNS.iter().map(own_column) {
                (row("history", (&c.name, &c.kind, &c.comment), &html! {}))
            } }))
        }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn columns(rows: Markup) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "column" } th scope="col" { "type" } th scope="col" { "meaning" } } }
            tbody { (rows) }
        }
    }
}

fn row(place: &str, (name, kind, comment): (&str, &str, &str), marks: &Markup) -> Markup {
    let anchor = format!("{place}.{name}");
    html! {
        tr id=(anchor) {
            th scope="row" { a href={ "#" (anchor) } { (broken(name)) } }
            td.kind { (kind) }
            td { (comment) " " (marks) }
        }
    }
}

/// A name that may go on in the next line behind each of its words.
fn broken(name: &str) -> Markup {
    html! { @for (n, word) in name.split('_').enumerate() { @if n > 0 { "_" wbr; } (word) } }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::catalog::dictionary::Described;

    fn report(comment: &str) -> Report {
        Report {
            name: "totals".to_owned(),
            comment: comment.to_owned(),
            parameters: None,
            key: vec!["case_id".to_owned()],
            columns: vec![Described {
                name: "case_id".to_owned(),
                kind: "BIGINT".to_owned(),
                comment: "<script>alert(1)</script>".to_owned(),
            }],
        }
    }

    /// The values of an attribute, in order.
    fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
        let begin = format!(" {attribute}=\"");
        let parts = page.split(&begin).skip(1);
        parts.map(|rest| rest.split('"').next().unwrap()).collect()
    }

    #[test]
    fn every_table_and_column_has_an_anchor_and_every_link_leads_to_one() {
        let catalog = Catalog::load(None).unwrap();
        let page = page(&catalog, &[report("Totals.")]);
        let anchors: Vec<&str> = values(&page, "id");
        let unique: BTreeSet<&str> = anchors.iter().copied().collect();
        assert_eq!(unique.len(), anchors.len(), "an anchor is there twice");
        for resource in catalog.resources() {
            assert!(unique.contains(resource.table.as_str()), "{}", resource.table);
            for column in &resource.columns {
                let anchor = format!("{}.{}", resource.table, column.name);
                assert!(unique.contains(anchor.as_str()), "{anchor}");
            }
        }
        assert!(unique.contains("report.totals.case_id"));
        let links = values(&page, "href");
        assert!(links.len() > anchors.len());
        for link in links {
            let to = link.strip_prefix('#').unwrap_or_else(|| panic!("{link} leads elsewhere"));
            assert!(unique.contains(to), "{link} leads nowhere");
        }
    }

    #[test]
    fn comments_are_text_and_nothing_is_fetched() {
        let catalog = Catalog::load(None).unwrap();
        let page = page(&catalog, &[report("a < b & \"c\"")]);
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(page.contains("a &lt; b &amp; &quot;c&quot;"));
        for word in ["<script", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn a_table_says_how_it_is_read_and_what_is_private() {
        let catalog = Catalog::load(None).unwrap();
        let page = page(&catalog, &[]);
        let contacts = page.split("<section id=\"contacts\">").nth(1).unwrap();
        let contacts = contacts.split("</section>").next().unwrap();
        for part in [
            "POST /api/Search/AdvancedContactSearch",
            "<span class=\"mark\">key</span>",
            ">identifier</span>",
            ">contact detail</span>",
            "BIGINT",
            "_synced_at",
        ] {
            assert!(contacts.contains(part), "{part}");
        }
        let costs = page.split("<section id=\"costs\">").nth(1).unwrap();
        assert!(costs.contains("case_id, cost_type, id"));
        assert!(costs.contains("any change date"));
    }
}
