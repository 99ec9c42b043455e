//! The data dictionary: `casemirror schema`.

use serde_json::{Value, json};

use super::resource::{HISTORY_COLUMNS, OWN_COLUMNS};
use super::{Catalog, Class, Group, Refresh, Resource};

/// How the dictionary is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DictionaryFormat {
    Markdown,
    Json,
    Sql,
}

impl Catalog {
    /// The data dictionary of every table.
    pub(crate) fn dictionary(&self, format: DictionaryFormat) -> String {
        match format {
            DictionaryFormat::Markdown => {
                self.resources().iter().map(|r| markdown(r)).collect::<Vec<_>>().join("\n")
            }
            DictionaryFormat::Json => {
                let tables: Vec<Value> = self.resources().iter().map(|r| as_json(r)).collect();
                format!(
                    "{:#}\n",
                    json!({ "tables": tables, "history_columns": own(&HISTORY_COLUMNS) })
                )
            }
            DictionaryFormat::Sql => self.resources().iter().map(|r| sql(r)).collect(),
        }
    }
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
    for (name, comment) in OWN_COLUMNS {
        let kind = if name == super::resource::EXTRA_COLUMN { "VARCHAR" } else { "TIMESTAMPTZ" };
        out.push_str(&format!("| `{name}` | {kind} | | {} |\n", cell(comment)));
    }
    out
}

fn own(columns: &[(&str, &str)]) -> Vec<Value> {
    columns.iter().map(|(name, comment)| json!({ "name": name, "comment": comment })).collect()
}

fn as_json(r: &Resource) -> Value {
    let columns: Vec<Value> = r
        .columns
        .iter()
        .map(|c| {
            json!({
                "name": c.name,
                "type": c.kind.sql(),
                "field": c.path.join("."),
                "comment": c.comment,
                "class": c.class.map(|k| class(Some(k))),
                "volatile": c.volatile,
            })
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
