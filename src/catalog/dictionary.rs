//! The data dictionary: `casemirror schema`.

mod dbt;
mod html;

use serde_json::{Value, json};

use super::ddl::{EXTRA_COLUMN, HISTORY_COLUMNS, OWN_COLUMNS};
use super::{Catalog, Class, Group, Refresh, Resource};

pub(crate) use dbt::{Age, Ages};

/// How the dictionary is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DictionaryFormat {
    Markdown,
    Json,
    Sql,
    /// A page that needs no other file.
    Html,
    /// The sources of a dbt project; how old they may be.
    Dbt(Ages),
}

/// A relation or table macro of schema `report`, as a store has it. Its SQL is the store's: the catalog knows
/// tables only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) comment: String,
    /// Those of a macro.
    pub(crate) parameters: Option<Vec<String>>,
    /// The columns that no two rows have in common; none where nothing is known of that.
    pub(crate) key: Vec<String>,
    /// None of a macro.
    pub(crate) columns: Vec<Described>,
}

impl Report {
    /// As it is called: `signed_cases_as_of(at_instant)`.
    fn signature(&self) -> String {
        match &self.parameters {
            Some(parameters) => format!("{}({})", self.name, parameters.join(", ")),
            None => self.name.clone(),
        }
    }
}

/// A column that no resource file describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) name: String,
    /// DuckDB's name of the type.
    pub(crate) kind: String,
    pub(crate) comment: String,
}

impl Catalog {
    /// The data dictionary of every table, and of the reports on them but for the SQL that creates tables.
    pub(crate) fn dictionary(&self, format: DictionaryFormat, reports: &[Report]) -> String {
        match format {
            DictionaryFormat::Markdown => {
                let tables = self.resources().iter().map(|r| markdown(r));
                let reports = reports.iter().map(markdown_of_report);
                tables.chain(reports).collect::<Vec<_>>().join("\n")
            }
            DictionaryFormat::Json => {
                let tables: Vec<Value> = self.resources().iter().map(|r| as_json(r)).collect();
                let reports: Vec<Value> = reports.iter().map(report_as_json).collect();
                let all = json!({
                    "tables": tables,
                    "history_columns": own(&HISTORY_COLUMNS),
                    "reports": reports,
                });
                format!("{all:#}\n")
            }
            DictionaryFormat::Sql => self.resources().iter().map(|r| sql(r)).collect(),
            DictionaryFormat::Html => html::page(self, reports),
            DictionaryFormat::Dbt(ages) => dbt::sources(self, reports, ages),
        }
    }
}

/// A column that every table has beside the source's.
fn own_column((name, comment): &(&str, &str)) -> Described {
    let is_text = [EXTRA_COLUMN, "_change"].contains(name);
    let kind = if is_text { "VARCHAR" } else { "TIMESTAMPTZ" };
    Described { name: (*name).to_owned(), kind: kind.to_owned(), comment: (*comment).to_owned() }
}

/// How the table is read, for people: `GET /api/Cases/{case_id}/Roles`.
pub(super) fn endpoint(resource: &Resource) -> String {
    match (&resource.read, &resource.group) {
        (Some(read), _) => format!("{} {}", read.method, read.path),
        (None, Group::Child(child)) => format!("`{}` of {}", child.field, child.table),
        (None, Group::Events) => "webhooks".to_owned(),
        (None, _) => String::new(),
    }
}

pub(super) fn refresh(resource: &Resource) -> String {
    match &resource.refresh {
        Refresh::Any => "any change date".to_owned(),
        Refresh::Dates(change_dates) => change_dates
            .iter()
            .map(|f| super::ChangeDate::ALL[*f as usize].1)
            .collect::<Vec<_>>()
            .join(", "),
        Refresh::None => match &resource.schedule {
            Some(schedule) => format!("schedule.{schedule}"),
            None if matches!(resource.group, Group::Journal(_)) => {
                "schedule.journals, schedule.journals_recheck".to_owned()
            }
            None if matches!(resource.group, Group::Child(_)) => {
                "with the table it is part of".to_owned()
            }
            None if resource.group == Group::Events => "when a webhook comes".to_owned(),
            // Contacts: the searches of cases follow dates.
            None => "with the roles that name it, or by its feed".to_owned(),
        },
    }
}

fn class(class: Option<Class>) -> &'static str {
    match class {
        Some(Class::Identifier) => "identifier",
        Some(Class::ContactDetail) => "contact_detail",
        None => "",
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn markdown(r: &Resource) -> String {
    let mut out = format!(
        "## {}\n\n{}\n\n- read with: {}\n- key: {}\n- refresh: {}\n",
        r.table,
        r.comment,
        endpoint(r),
        r.key.join(", "),
        refresh(r)
    );
    if !r.permissions.is_empty() {
        out.push_str(&format!("- permissions: {}\n", r.permissions.join(", ")));
    }
    out.push_str("\n| column | type | class | meaning |\n|---|---|---|---|\n");
    for c in &r.columns {
        out.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            c.name,
            c.kind.sql(),
            class(c.class),
            cell(&c.comment)
        ));
    }
    for own in OWN_COLUMNS.iter().map(own_column) {
        out.push_str(&format!("| `{}` | {} | | {} |\n", own.name, own.kind, cell(&own.comment)));
    }
    out
}

fn markdown_of_report(report: &Report) -> String {
    let mut out = format!("## report.{}\n\n{}\n", report.signature(), report.comment);
    if !report.key.is_empty() {
        out.push_str(&format!("\n- key: {}\n", report.key.join(", ")));
    }
    if !report.columns.is_empty() {
        out.push_str("\n| column | type | meaning |\n|---|---|---|\n");
    }
    for c in &report.columns {
        out.push_str(&format!("| `{}` | {} | {} |\n", c.name, c.kind, cell(&c.comment)));
    }
    out
}

fn own(columns: &[(&str, &str)]) -> Vec<Value> {
    let own = columns.iter().map(own_column);
    own.map(|c| column_as_json(&c, None, None, false)).collect()
}

/// All columns have the same keys, whoever gives them their values.
fn column_as_json(
    column: &Described,
    field: Option<String>,
    privacy: Option<Class>,
    volatile: bool,
) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "field": field,
        "comment": column.comment,
        "class": privacy.map(|known| class(Some(known))),
        "volatile": volatile,
    })
}

fn as_json(r: &Resource) -> Value {
    let columns: Vec<Value> = r
        .columns
        .iter()
        .map(|c| {
            let (name, kind, comment) = (c.name.clone(), c.kind.sql(), c.comment.clone());
            let described = Described { name, kind, comment };
            column_as_json(&described, Some(c.path.join(".")), c.class, c.volatile)
        })
        .chain(own(&OWN_COLUMNS))
        .collect();
    json!({
        "table": r.table,
        "comment": r.comment,
        "read_with": endpoint(r),
        "key": r.key,
        "refresh": refresh(r),
        "permissions": r.permissions,
        "columns": columns,
    })
}

fn report_as_json(report: &Report) -> Value {
    let columns = report.columns.iter();
    let columns: Vec<Value> =
        columns.map(|c| json!({ "name": c.name, "type": c.kind, "comment": c.comment })).collect();
    json!({
        "report": report.name,
        "comment": report.comment,
        "parameters": report.parameters,
        "key": report.key,
        "columns": columns,
    })
}

fn sql(r: &Resource) -> String {
    let mut out = r.create_table("main", false);
    out.push_str(";\n");
    for comment in r.comments("main", false) {
        out.push_str(&comment);
        out.push_str(";\n");
    }
    out.push('\n');
    out
}
