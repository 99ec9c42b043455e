//! The page of made-up mirrors: what it says, and that it says it to everybody.

mod faults;
mod mirrors;

use std::collections::BTreeSet;

use mirrors::{empty, pages, table};

pub(in crate::http) use mirrors::well;

use super::of;
use crate::http::facts::Reports;

/// What stands between two marks, each time.
fn between<'p>(page: &'p str, before: &str, after: &str) -> Vec<&'p str> {
    let rest = page.split(before).skip(1);
    rest.map(|rest| rest.split(after).next().unwrap()).collect()
}

#[test]
fn what_the_platform_says_is_text_and_no_page_asks_for_anything() {
    for (name, page) in pages() {
        // Only what the page's policy allows.
        for forbidden in ["<script", " style=", " on", "javascript:", "\u{1b}", "\u{202e}"] {
            let tags = between(&page, "<", ">");
            assert!(!tags.iter().any(|tag| tag.contains(forbidden)), "{name}: {forbidden}");
        }
        assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{name}");
        assert_eq!(page.matches("<style>").count(), 1, "{name}");
        let foreign = ["broken", "trouble"].contains(&name);
        assert_eq!(page.contains("&lt;script&gt;alert(1)"), foreign, "{name}");
        assert!(page.contains("http-equiv=\"refresh\""), "{name}");
    }
    let still = of(&empty(), &Reports::default(), false).into_string();
    assert!(!still.contains("http-equiv"), "for who reads it slowly");
    assert!(super::POLICY.contains("default-src 'none'; style-src 'sha256-"), "{}", *super::POLICY);
    assert!(!super::POLICY.contains("unsafe"));
}

#[test]
fn headings_tables_and_cells_say_what_they_are_to_who_hears_them() {
    for (name, page) in pages() {
        let all: Vec<&str> = between(&page, " id=\"", "\"");
        let ids: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), ids.len(), "{name}: {all:?}");
        let named = between(&page, " aria-labelledby=\"", "\"");
        let targets = between(&page, "href=\"#", "\"");
        for id in named.iter().chain(&targets) {
            assert!(ids.contains(id), "{name}: {id}");
        }
        assert_eq!(page.matches("<section").count(), named.len(), "{name}");
        assert_eq!(page.matches("<h1>").count(), 1, "{name}");
        for header in between(&page, "<th", ">").iter().filter(|tag| !tag.starts_with("ead")) {
            assert!(header.contains("scope=\""), "{name}: {header}");
        }
        assert_eq!(page.matches("<table").count(), page.matches("<caption").count(), "{name}");
        // What is drawn is not read, and what stands beside it is.
        for svg in between(&page, "<svg", ">") {
            assert!(svg.contains("aria-hidden=\"true\""), "{name}: {svg}");
        }
        for cell in between(&page, "<td class=\"cell", "</td>") {
            assert!(cell == "\">" || cell.contains("<span>"), "{name}: {cell}");
        }
    }
}

#[test]
fn the_headline_says_what_is_being_fetched() {
    let headline = |pending: usize| {
        let mut facts = well();
        facts.status.tables[3].pending = pending;
        let page = of(&facts, &Reports::default(), true).into_string();
        between(&page, "<title>", "</title>")[0].to_owned()
    };
    assert!(headline(0).contains("The mirror is complete and in step"));
    assert!(headline(1).contains("The mirror is complete; 1 change is being fetched"));
    assert!(headline(1_200).contains("The mirror is complete; 1,200 changes are being fetched"));
}

#[test]
fn each_question_is_answered_for_a_mirror_that_is_well() {
    let (_, page) = pages().into_iter().find(|(name, _)| *name == "well").unwrap();
    for words in [
        "<title>✓ The mirror is complete and in step – casemirror</title>",
        "So since <strong><time datetime=\"2026-11-13T06:43:20Z\">2026-11-13 07:43:20 CET</time></strong> (<time",
        "1,460 comparisons, none differs",
        " is proven to be in: the feed is read 10m behind (<code>feed.overlap</code>)",
        "4 of 6 in the last 30 s",
        "5,520 closed, none changed since",
        "60 offices, 24 months: 1,380 complete, 60 open.",
        "Nothing: all that is known is done.",
        "None that is known of.",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }
    assert!(!page.contains("Needs attention") && !page.contains("<h2 id=\"differences"), "{page}");
    for at in 0..45 {
        assert!(page.contains(&format!("<th scope=\"row\">{}</th>", table(at).table)), "{at}");
    }
    assert_eq!(page.matches("class=\"cell complete\"><span>complete</span></td>").count(), 1_380);
}

#[test]
fn everything_that_is_wrong_is_said_and_long_lists_end() {
    let (_, page) = pages().into_iter().find(|(name, _)| *name == "broken").unwrap();
    for words in [
        "≠ The mirror differs from the source in 25 controls",
        "<summary>20 more</summary>",
        "the change feed of cases was last polled completely 340 s ago: cannot reach",
        "the disk of the store fills: 2.00 GiB are free",
        "and 12 more: <code>casemirror status</code>",
        "<summary>57 more</summary>",
        "<strong>25 differ</strong>",
        "3 could not be read; all were",
        "12 months without a sum that matches",
        "3 answers lack much of what is mirrored, 1 month of journals",
        "the removals of 2 answers",
        // Those of tables that nobody asks for are nothing to look at.
        "17 in 1 table<",
        "<strong>7 changed since</strong>; 40 changes in 30 days",
        "41 read, 1 failing, 1 forbidden, 1 absent, 1 disabled",
        "98,000 committed, 7,000 calls",
        "3,000 of 12,345 scopes",
        "12 scopes, 78 attempts",
        "the next try at <time datetime=\"2026-11-24T20:31:40Z\">",
        "<span class=\"off\">killed</span>",
        "title=\"2025-01, doubted: ",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }
    // What fails comes first.
    let tables = &page[page.find("id=\"tables\"").unwrap()..];
    let at = |table: &str| tables.find(table).unwrap();
    assert!(at("table_05_") < at("table_00_") && at("table_14_") > at("table_44_"));
}

/// For who wants to look at them: `WRITE_PAGES=DIR cargo test --release --lib http::page`.
#[test]
fn pages_are_whole() {
    for (name, page) in pages() {
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{name}");
        if let Some(folder) = std::env::var_os("WRITE_PAGES") {
            let file = std::path::Path::new(&folder).join(format!("{name}.html"));
            std::fs::write(file, page).unwrap();
        }
    }
}
