//! The tables of `docs/resources.md`, which are made from the catalog: a test keeps them equal.
//!
//! `CASEMIRROR_WRITE_RESOURCES=1 cargo test --release --lib resources_page` writes them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::dictionary::refresh;
use super::{Catalog, Group, Resource};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    call: Vec<Call>,
}

/// A call of the reference.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    call: String,
    section: String,
    why: Option<String>,
}

fn reference() -> Reference {
    toml::from_str(include_str!("coverage.toml")).unwrap()
}

/// The calls that a table is read with.
fn calls(resource: &Resource) -> Vec<String> {
    let Some(read) = &resource.read else { return Vec::new() };
    let mut all = vec![format!("{} {}", read.method, read.path)];
    let more = [read.by_id.as_ref(), read.fallback.as_ref().map(|fallback| &fallback.path)];
    let named = match &resource.group {
        Group::ForEach(each) => each.list.as_ref(),
        _ => None,
    };
    all.extend(more.into_iter().chain([named]).flatten().map(|path| format!("GET {path}")));
    all
}

/// Whether a table's own call is one of the reference's. Where `loosely`, a parameter of the reference
/// stands for any segment, and the level of a journal for the word that the reference has there.
fn same(own: &str, other: &str, loosely: bool) -> bool {
    let is_parameter = |segment: &str| segment.starts_with('{');
    let (own, other): (Vec<&str>, Vec<&str>) =
        (own.split('/').collect(), other.split('/').collect());
    own.len() == other.len()
        && own.iter().zip(&other).all(|(a, b)| match (is_parameter(a), is_parameter(b)) {
            (true, true) => true,
            (false, false) => a == b,
            (own_is, _) => loosely && (!own_is || *a == "{journal_level}"),
        })
}

/// Every call of the reference with the tables it is in, or why it is in none.
fn coverage(catalog: &Catalog) -> String {
    let mut out =
        String::from("| reference | call | table, or why there is none |\n|---|---|---|\n");
    let mut met = BTreeSet::new();
    for Call { call, section, why } in reference().call {
        let mut tables = Vec::new();
        for resource in catalog.resources() {
            for own in calls(resource).into_iter().filter(|own| same(own, &call, why.is_none())) {
                if tables.last() != Some(&resource.table) {
                    tables.push(resource.table.clone());
                }
                met.insert(own);
            }
        }
        let below: Vec<String> = tables
            .iter()
            .flat_map(|table| catalog.children(table))
            .map(|child| child.table.clone())
            .collect();
        tables.extend(below);
        let text = match why {
            Some(why) => {
                assert!(tables.is_empty(), "{call} is in {tables:?}, and has a reason why not");
                why
            }
            None => {
                assert!(!tables.is_empty(), "{call} is in no table, and nothing says why");
                tables.iter().map(|table| format!("`{table}`")).collect::<Vec<_>>().join(", ")
            }
        };
        writeln!(out, "| {section} | {} | {text} |", quoted(&call)).unwrap();
    }
    for resource in catalog.resources() {
        for own in calls(resource).iter().filter(|own| !met.contains(*own)) {
            writeln!(out, "| not in it | {} | `{}` |", quoted(own), resource.table).unwrap();
        }
    }
    out
}

/// Every table: how it is read, when, and its key.
fn tables(catalog: &Catalog) -> String {
    let mut out =
        String::from("| table | read with | read again when | key |\n|---|---|---|---|\n");
    for resource in catalog.resources() {
        let with = match &resource.group {
            Group::Child(child) => format!("`{}` of `{}`", child.field, child.table),
            Group::Events => "webhooks".to_owned(),
            _ => calls(resource).iter().map(|call| quoted(call)).collect::<Vec<_>>().join(", "),
        };
        let key: Vec<String> = resource.key.iter().map(|name| format!("`{name}`")).collect();
        let (table, key) = (&resource.table, key.join(", "));
        writeln!(out, "| `{table}` | {with} | {} | {key} |", refresh(resource)).unwrap();
    }
    out
}

fn quoted(call: &str) -> String {
    call.split_once(' ')
        .map_or_else(|| call.to_owned(), |(method, path)| format!("{method} `{path}`"))
}

/// The text with what stands between the markers of `section` replaced.
fn with_section(text: &str, section: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {section}: made from the catalog -->"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
    let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{end} is missing"));
    format!("{before}{begin}\n{content}{end}{after}")
}

#[test]
fn the_page_says_what_the_catalog_says() {
    let catalog = Catalog::load(None).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/resources.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let made = with_section(&text, "tables", &tables(&catalog));
    let made = with_section(&made, "coverage", &coverage(&catalog));
    if std::env::var_os("CASEMIRROR_WRITE_RESOURCES").is_some() {
        std::fs::write(&path, &made).unwrap();
        return;
    }
    for (n, (is, should)) in text.lines().zip(made.lines()).enumerate() {
        assert_eq!(
            is,
            should,
            "line {} of docs/resources.md; see src/catalog/resources_page.rs",
            n + 1
        );
    }
    assert_eq!(text.len(), made.len(), "docs/resources.md; see src/catalog/resources_page.rs");
}
