//! The sources of a dbt project: what is published, described, tested, and how old it may be.
//!
//! Descriptions are rendered by dbt as Jinja, so that a brace of a comment is written as one. dbt knows no
//! test for keys of several columns, but its `unique` takes an expression: a row of them.

use std::fmt::Write as _;

use super::{Described, OWN_COLUMNS, Report, class, own_column};
use crate::catalog::ddl::HISTORY_COLUMNS;
use crate::catalog::{Catalog, Group, Resource};
use crate::sql;

/// Of a table that is checked by its newest reading: from how many hours on that is a warning, and an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age {
    pub(crate) warn: u64,
    pub(crate) error: u64,
}

/// How old tables may be, by what has them read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ages {
    /// `schedule.reference`.
    pub(crate) reference: Age,
    /// `schedule.journals`.
    pub(crate) journals: Age,
    /// `schedule.reconcile`.
    pub(crate) reconcile: Age,
}

/// What is read when a case changes is not read while none does: over a weekend with a holiday.
const BY_CHANGES: Age = Age { warn: 4 * 24, error: 14 * 24 };
/// The daemon publishes at least every hour; who runs `sync` at night is told from the second night on.
const OF_THE_WHOLE: Age = Age { warn: 3, error: 27 };

/// What a table's age is taken from; dbt puts the table in. What there is nothing to read of, or what the source
/// does not give and never gave, is as new as the file.
const LOADED_AT: &str = "\
SELECT coalesce(f.last_checked, CASE WHEN f.scopes_known = 0
    OR r.status IN ('disabled', 'forbidden', 'absent') THEN s.taken_at END)
FROM {{ this.database }}.report.freshness AS f
JOIN {{ this.database }}.sync.resources AS r USING (table_name)
CROSS JOIN {{ this.database }}.report.snapshot AS s
WHERE f.table_name = '{{ this.identifier }}'";

const HEAD: &str = "\
# The sources of a dbt project: the DuckDB file that casemirror publishes, with comments, types, tests, and how old
# it may be. Made by `casemirror schema --format dbt`; made anew, it follows the mirror's tables.
#
# For dbt-core 1.11 and later with dbt-duckdb. In the profile the file is attached read-only as `casemirror`;
# where it has another name there, that is the variable casemirror_database.
version: 2

sources:
";

/// The sources as YAML.
pub(super) fn sources(catalog: &Catalog, reports: &[Report], ages: Ages) -> String {
    let mut out = Yaml(HEAD.to_owned());
    out.source("casemirror", "main", "What the platform holds now: a table per resource.");
    out.line(4, "config:");
    out.line(6, "loaded_at_query: |");
    for line in LOADED_AT.lines() {
        out.line(8, line);
    }
    out.line(4, "tables:");
    for resource in catalog.resources() {
        out.table(&resource.table, &resource.comment);
        if let Some(age) = age_of(catalog, resource, ages) {
            out.age(age, None);
        }
        out.unique("casemirror", &resource.table, &resource.key);
        out.line(8, "columns:");
        for column in described(resource) {
            let class = resource.column(&column.name).map_or("", |c| class(c.class));
            // An event need not name a case.
            let tested = resource.group != Group::Events;
            out.column(&column, &resource.key, tested, class);
        }
    }
    out.source(
        "casemirror_report",
        "report",
        "The reports, and how fresh and complete the tables are.",
    );
    out.line(4, "tables:");
    for report in reports.iter().filter(|report| report.parameters.is_none()) {
        out.table(&report.name, &report.comment);
        if report.name == "snapshot" {
            out.age(OF_THE_WHOLE, Some("watermark"));
        }
        out.unique("casemirror_report", &report.name, &report.key);
        out.line(8, "columns:");
        for column in &report.columns {
            // Of several columns one may be NULL: a month that is not known.
            out.column(column, &report.key, report.key.len() == 1, "");
        }
    }
    out.source(
        "casemirror_history",
        "history",
        "Every earlier version of a row, a table per table of main.",
    );
    out.line(4, "tables:");
    for resource in catalog.resources() {
        let comment = format!(
            "Earlier versions of the rows of main.{}. {}",
            resource.table, resource.comment
        );
        out.table(&resource.table, &comment);
        out.line(8, "columns:");
        let versions = HISTORY_COLUMNS.iter().map(own_column);
        for column in described(resource).into_iter().chain(versions) {
            let class = resource.column(&column.name).map_or("", |c| class(c.class));
            out.column(&column, &[], false, class);
        }
    }
    out.0
}

fn described(resource: &Resource) -> Vec<Described> {
    let columns = resource.columns.iter().map(|c| Described {
        name: c.name.clone(),
        kind: c.kind.sql(),
        comment: c.comment.clone(),
    });
    columns.chain(OWN_COLUMNS.iter().map(own_column)).collect()
}

/// `None`: it is as old as what it tells of.
fn age_of(catalog: &Catalog, resource: &Resource, ages: Ages) -> Option<Age> {
    Some(match &resource.group {
        // The reconciliation lists them all.
        Group::Ids if ["cases", "projects"].contains(&resource.table.as_str()) => ages.reconcile,
        Group::Ids | Group::Case => BY_CHANGES,
        Group::List | Group::ForEach(_) => ages.reference,
        Group::Journal(_) => ages.journals,
        Group::Events => return None,
        Group::Child(child) => {
            return catalog
                .get(&child.table)
                .map_or(Some(BY_CHANGES), |parent| age_of(catalog, parent, ages));
        }
    })
}

/// YAML in block style, whose texts are written as in JSON.
struct Yaml(String);

impl Yaml {
    fn line(&mut self, indent: usize, text: &str) {
        // A String takes whatever is written.
        let _ = writeln!(self.0, "{:indent$}{text}", "");
    }

    fn source(&mut self, name: &str, schema: &str, description: &str) {
        self.line(2, &format!("- name: {name}"));
        self.line(4, &format!("description: {}", quoted(description)));
        self.line(4, "database: \"{{ var('casemirror_database', 'casemirror') }}\"");
        self.line(4, &format!("schema: {schema}"));
    }

    fn table(&mut self, name: &str, comment: &str) {
        self.line(6, &format!("- name: {}", quoted(name)));
        self.line(8, &format!("description: {}", quoted(&as_jinja(comment))));
    }

    /// How old it may be; by the newest value of a column, else as the source says.
    fn age(&mut self, age: Age, column: Option<&str>) {
        self.line(8, "config:");
        if let Some(column) = column {
            self.line(10, &format!("loaded_at_field: {column}"));
        }
        self.line(10, "freshness:");
        self.line(12, &format!("warn_after: {{count: {}, period: hour}}", age.warn));
        self.line(12, &format!("error_after: {{count: {}, period: hour}}", age.error));
    }

    /// The test of a key of several columns.
    fn unique(&mut self, source: &str, table: &str, key: &[String]) {
        if key.len() < 2 {
            return;
        }
        let row = format!("row({})", sql::idents(key.iter().map(String::as_str)));
        self.line(8, "data_tests:");
        self.line(10, "- unique:");
        self.line(14, &format!("name: unique_{source}_{table}"));
        self.line(14, "arguments:");
        self.line(16, &format!("column_name: {}", quoted(&row)));
    }

    /// `tested`: whether no column of the key is ever NULL.
    fn column(&mut self, column: &Described, key: &[String], tested: bool, class: &str) {
        self.line(10, &format!("- name: {}", quoted(&column.name)));
        if !column.comment.is_empty() {
            self.line(12, &format!("description: {}", quoted(&as_jinja(&column.comment))));
        }
        self.line(12, &format!("data_type: {}", quoted(&column.kind)));
        if !class.is_empty() {
            self.line(12, &format!("config: {{meta: {{privacy_class: {class}}}}}"));
        }
        if tested && key.contains(&column.name) {
            // A name may be a word of SQL.
            self.line(12, "quote: true");
            let tests = if key.len() == 1 { "[not_null, unique]" } else { "[not_null]" };
            self.line(12, &format!("data_tests: {tests}"));
        }
    }
}

/// A text as a double-quoted scalar. JSON's are, but for letters that YAML takes as line breaks, or not at all.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Line breaks, and what turns the direction of writing.
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escape(&mut out, c),
            '\u{feff}' | '\u{fffe}' | '\u{ffff}' => escape(&mut out, c),
            c if c.is_control() => escape(&mut out, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn escape(out: &mut String, c: char) {
    // As above.
    let _ = write!(out, "\\u{:04x}", u32::from(c));
}

/// A text that Jinja renders as itself.
fn as_jinja(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let opens = ["{{", "{%", "{#"].into_iter().find(|opening| from.starts_with(opening));
        let taken = opens.unwrap_or("{");
        match opens {
            Some(opening) => out.extend(["{{ '", opening, "' }}"]),
            None => out.push('{'),
        }
        rest = &from[taken.len()..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_one_line_of_yaml() {
        assert_eq!(quoted("it's \"so\": # \\ – ø 🏠"), "\"it's \\\"so\\\": # \\\\ – ø 🏠\"");
        let odd = "a\nb\tc\rd\u{0}e\u{85}f\u{2028}g\u{feff}h\u{7f}";
        let written = "\"a\\nb\\tc\\u000dd\\u0000e\\u0085f\\u2028g\\ufeffh\\u007f\"";
        assert_eq!(quoted(odd), written);
    }

    #[test]
    fn what_jinja_would_take_is_written_as_text() {
        assert_eq!(as_jinja("a {b} c"), "a {b} c");
        assert_eq!(as_jinja("{{x}} {%"), "{{ '{{' }}x}} {{ '{%' }}");
        assert_eq!(as_jinja("{{{#{"), "{{ '{{' }}{{ '{#' }}{");
    }

    #[test]
    fn each_table_is_checked_by_what_has_it_read_again() {
        let ages = Ages {
            reference: Age { warn: 1, error: 2 },
            journals: Age { warn: 3, error: 4 },
            reconcile: Age { warn: 5, error: 6 },
        };
        let catalog = Catalog::load(None).unwrap();
        let warns = |table: &str| age_of(&catalog, catalog.get(table).unwrap(), ages).unwrap().warn;
        for (table, hours) in [
            ("cases", 5),
            ("projects", 5),
            ("offices", 1),
            ("accounts", 1),
            ("revenue_journals", 3),
            ("revenue_journal_annotations", 3),
            ("costs", 96),
            ("contacts", 96),
            ("case_file_access", 96),
        ] {
            assert_eq!(warns(table), hours, "{table}");
        }
    }

    #[test]
    fn keys_are_tested_in_whatever_form_they_have() {
        let catalog = Catalog::load(None).unwrap();
        let age = Age { warn: 1, error: 2 };
        let ages = Ages { reference: age, journals: age, reconcile: age };
        let report = Report {
            name: "per_month".to_owned(),
            comment: "One row per month {{ and office }}.".to_owned(),
            parameters: None,
            key: vec!["month".to_owned(), "office".to_owned()],
            columns: vec![Described {
                name: "month".to_owned(),
                kind: "DATE".to_owned(),
                comment: "Its first day: \"2026-01-01\".".to_owned(),
            }],
        };
        let macros =
            Report { parameters: Some(Vec::new()), name: "a_macro".to_owned(), ..report.clone() };
        let text = sources(&catalog, &[report, macros], ages);
        for part in [
            "            quote: true\n            data_tests: [not_null, unique]\n",
            "            quote: true\n            data_tests: [not_null]\n",
            "              name: unique_casemirror_costs\n              arguments:\n                \
             column_name: \"row(\\\"case_id\\\", \\\"cost_type\\\", \\\"id\\\")\"\n",
            "column_name: \"row(\\\"month\\\", \\\"office\\\")\"\n",
            "description: \"One row per month {{ '{{' }} and office }}.\"\n",
            "          - name: \"month\"\n            description: \"Its first day: \\\"2026-01-01\\\".\"\n            \
             data_type: \"DATE\"\n",
            "config: {meta: {privacy_class: contact_detail}}\n",
            "      - name: \"costs\"\n        description: \"Earlier",
        ] {
            assert!(text.contains(part), "{part} is not in it");
        }
        assert!(!text.contains("a_macro"), "a macro is no table");
    }
}
