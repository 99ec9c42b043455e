//! Resource files: read, checked, turned into [`Resource`]s.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use heck::ToSnakeCase;
use serde::Deserialize;

use super::resource::{Answer, Child, Each, Facet, Group, Method, Only, Paging, Read, Refresh};
use super::{Catalog, Class, Column, ColumnType, Origin, Resource, Scalar};
use crate::error::{self, Error, Kind, Result};

/// The built-in resource files: name and text.
const BUILT_IN: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/schemas.rs"));

const SCHEDULES: [&str; 1] = ["reference"];

pub(super) fn load(resources_dir: Option<&Path>) -> Result<Catalog> {
    let mut files: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (name, text) in BUILT_IN {
        files.insert((*name).to_owned(), (format!("schemas/{name}"), (*text).to_owned()));
    }
    if let Some(dir) = resources_dir {
        for (name, text) in own_files(dir)? {
            files.insert(name.clone(), (dir.join(&name).display().to_string(), text));
        }
    }
    parse_all(files.into_values())
}

fn own_files(dir: &Path) -> Result<Vec<(String, String)>> {
    let entries = std::fs::read_dir(dir).map_err(|e| {
        Error::caused(Kind::Config, format!("cannot read resources.dir {}", dir.display()), e)
    })?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| error::io("list", dir, e))?.path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|e| {
            Error::caused(Kind::Config, format!("cannot read {}", path.display()), e)
        })?;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        files.push((name, text));
    }
    files.sort();
    Ok(files)
}

/// Parses and checks files given as (where, text).
fn parse_all(files: impl IntoIterator<Item = (String, String)>) -> Result<Catalog> {
    let mut faults = Vec::new();
    let mut resources: Vec<(String, Resource)> = Vec::new();
    for (place, text) in files {
        match toml::from_str::<File>(&text) {
            Ok(file) => {
                let mut own = Vec::new();
                if let Some(resource) = file.check(&mut own) {
                    resources.push((place.clone(), resource));
                }
                faults.extend(own.into_iter().map(|fault| format!("{place}: {fault}")));
            }
            Err(e) => faults.push(format!("{place}: {}", e.to_string().trim_end())),
        }
    }
    across(&resources, &mut faults);
    if faults.is_empty() {
        Ok(Catalog::new(resources.into_iter().map(|(_, r)| r).collect()))
    } else {
        Err(Error::new(
            Kind::Config,
            format!("the resource files are wrong:\n  {}", faults.join("\n  ")),
        ))
    }
}

/// Rules between tables.
fn across(resources: &[(String, Resource)], faults: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    for (place, r) in resources {
        if let Some(other) = seen.insert(r.table.clone(), place.clone()) {
            faults.push(format!("{place}: table \"{}\" is already in {other}", r.table));
        }
    }
    let find = |table: &str| resources.iter().map(|(_, r)| r).find(|r| r.table == table);
    for (place, r) in resources {
        let mut need = |what: &str, table: &str, column: Option<&str>| match find(table) {
            None => faults.push(format!("{place}: {what}.table = \"{table}\" is no table")),
            Some(other) => {
                if let Some(column) = column
                    && other.column(column).is_none()
                {
                    faults.push(format!(
                        "{place}: {what}.column = \"{column}\" is no column of {table}"
                    ));
                }
            }
        };
        if let Some(only) = &r.only {
            need("only", &only.table, Some(&only.column));
        }
        match &r.group {
            Group::Each(each) => need("each", &each.table, Some(&each.column)),
            Group::Child(child) => need("child", &child.table, None),
            Group::Case | Group::Ids | Group::List => {}
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    table: String,
    comment: String,
    key: Vec<String>,
    #[serde(default)]
    permissions: Vec<String>,
    group: GroupName,
    #[serde(default)]
    refresh: Vec<String>,
    schedule: Option<String>,
    read: Option<ReadFile>,
    only: Option<OnlyFile>,
    each: Option<EachFile>,
    child: Option<ChildFile>,
    #[serde(default)]
    leave_out: Vec<String>,
    column: Vec<ColumnFile>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum GroupName {
    Case,
    Ids,
    List,
    Each,
    Child,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    method: MethodName,
    path: String,
    #[serde(default)]
    query: BTreeMap<String, String>,
    answer: AnswerName,
    #[serde(default)]
    paging: PagingName,
    order: Option<String>,
    #[serde(default)]
    values: BTreeMap<String, Vec<String>>,
    by_id: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "UPPERCASE")]
enum MethodName {
    Get,
    Post,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum AnswerName {
    List,
    Record,
    Scalar,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum PagingName {
    Odata,
    #[default]
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyFile {
    table: String,
    column: String,
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EachFile {
    table: String,
    column: String,
    param: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildFile {
    table: String,
    field: String,
    scalar: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnFile {
    name: Option<String>,
    field: Option<String>,
    from: Option<FromName>,
    #[serde(rename = "type")]
    kind: String,
    comment: String,
    class: Option<ClassName>,
    #[serde(default)]
    volatile: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum FromName {
    Path,
    Scalar,
    Position,
    Parent,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ClassName {
    Identifier,
    ContactDetail,
}

impl ColumnFile {
    fn check(self, faults: &mut Vec<String>) -> Option<Column> {
        let path: Vec<String> =
            self.field.iter().flat_map(|f| f.split('.')).map(str::to_owned).collect();
        let Some(name) =
            self.name.or_else(|| (!path.is_empty()).then(|| path.join(" ").to_snake_case()))
        else {
            faults.push("a column has neither name nor field".to_owned());
            return None;
        };
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !plain {
            faults.push(format!(
                "column \"{name}\": a name is lower-case letters, digits and _, a letter first"
            ));
        }
        let Some(kind) = ColumnType::parse(&self.kind) else {
            let known = Scalar::NAMES.map(|(n, _)| n).join(", ");
            faults.push(format!(
                "column \"{name}\": type = \"{}\" is none of {known}, or list<...> of these",
                self.kind
            ));
            return None;
        };
        let origin = match self.from {
            None => Origin::Field,
            Some(FromName::Path) => Origin::Path,
            Some(FromName::Scalar) => Origin::Scalar,
            Some(FromName::Position) => Origin::Position,
            Some(FromName::Parent) => Origin::Parent,
        };
        if matches!(origin, Origin::Field | Origin::Parent) && path.is_empty() {
            faults.push(format!("column \"{name}\": field or from is missing"));
        }
        let class = self.class.map(|c| match c {
            ClassName::Identifier => Class::Identifier,
            ClassName::ContactDetail => Class::ContactDetail,
        });
        if class.is_some() && !matches!(kind.scalar, Scalar::Text | Scalar::Enum) {
            faults.push(format!(
                "column \"{name}\": class goes with string and list<string>, not with {}",
                self.kind
            ));
        }
        Some(Column {
            name,
            path,
            origin,
            kind,
            comment: self.comment,
            class,
            volatile: self.volatile,
        })
    }
}

impl File {
    fn check(self, faults: &mut Vec<String>) -> Option<Resource> {
        let columns: Vec<Column> =
            self.column.into_iter().filter_map(|c| c.check(faults)).collect();
        let mut names = BTreeSet::new();
        for c in &columns {
            if !names.insert(c.name.as_str()) {
                faults.push(format!("column \"{}\" is there twice", c.name));
            }
        }
        if self.key.is_empty() {
            faults.push("key = [] names no column".to_owned());
        }
        for key in &self.key {
            match columns.iter().find(|c| c.name == *key) {
                None => faults.push(format!("key: \"{key}\" is no column")),
                Some(c) if c.class.is_some() => {
                    faults
                        .push(format!("key: \"{key}\" has a privacy class; a key cannot have one"));
                }
                Some(c) if c.kind.list => faults.push(format!("key: \"{key}\" is a list")),
                Some(_) => {}
            }
        }
        let refresh = refresh(&self.refresh, faults);
        if let Some(schedule) = &self.schedule
            && !SCHEDULES.contains(&schedule.as_str())
        {
            faults.push(format!("schedule = \"{schedule}\" is none of {}", SCHEDULES.join(", ")));
        }
        let group = match self.group {
            GroupName::Case => Some(Group::Case),
            GroupName::Ids => Some(Group::Ids),
            GroupName::List => Some(Group::List),
            GroupName::Each => self
                .each
                .map(|e| Group::Each(Each { table: e.table, column: e.column, param: e.param })),
            GroupName::Child => self
                .child
                .map(|c| Group::Child(Child { table: c.table, field: c.field, scalar: c.scalar })),
        };
        let Some(group) = group else {
            faults
                .push("group = \"each\" needs [each], group = \"child\" needs [child]".to_owned());
            return None;
        };
        let read = self.read.and_then(|r| r.check(faults));
        match (&group, &read) {
            (Group::Child(_), Some(_)) => {
                faults.push("[read]: a child table is read with its parent".to_owned());
            }
            (Group::Child(_), None) => {}
            (_, None) => faults.push("[read] is missing".to_owned()),
            (group, Some(read)) => {
                let mut known: Vec<&str> =
                    read.values.iter().map(|(name, _)| name.as_str()).collect();
                match group {
                    Group::Case => known.push("case_id"),
                    Group::Each(each) => known.push(&each.param),
                    Group::Ids | Group::List | Group::Child(_) => {}
                }
                for name in placeholders(&read.path) {
                    if !known.contains(&name) {
                        faults.push(format!("read.path: nothing fills {{{name}}}"));
                    }
                    if !columns.iter().any(|c| c.name == name && c.origin == Origin::Path) {
                        faults.push(format!(
                            "read.path: {{{name}}} needs a column of that name with from = \"path\""
                        ));
                    }
                }
                if read.paging == Paging::Odata && read.order.is_none() {
                    faults.push("read.order is missing: OData pages need an order".to_owned());
                }
            }
        }
        if refresh == Refresh::None && matches!(group, Group::Case) {
            faults.push("refresh is missing: which change dates make it stale?".to_owned());
        }
        let schema = Resource::arrow_schema(&columns);
        Some(Resource {
            table: self.table,
            comment: self.comment,
            key: self.key,
            permissions: self.permissions,
            group,
            refresh,
            schedule: self.schedule,
            read,
            only: self.only.map(|o| Only { table: o.table, column: o.column, values: o.values }),
            leave_out: self.leave_out,
            columns,
            schema,
        })
    }
}

impl ReadFile {
    fn check(self, faults: &mut Vec<String>) -> Option<Read> {
        if !self.path.starts_with('/') {
            faults.push(format!("read.path = \"{}\" does not start with /", self.path));
        }
        if self.values.len() > 1 {
            faults.push("read.values: only one path parameter can have values".to_owned());
        }
        Some(Read {
            method: match self.method {
                MethodName::Get => Method::Get,
                MethodName::Post => Method::Post,
            },
            path: self.path,
            query: self.query.into_iter().collect(),
            answer: match self.answer {
                AnswerName::List => Answer::List,
                AnswerName::Record => Answer::Record,
                AnswerName::Scalar => Answer::Scalar,
            },
            paging: match self.paging {
                PagingName::Odata => Paging::Odata,
                PagingName::None => Paging::None,
            },
            order: self.order,
            values: self.values.into_iter().next(),
            by_id: self.by_id,
        })
    }
}

fn refresh(names: &[String], faults: &mut Vec<String>) -> Refresh {
    if names.is_empty() {
        return Refresh::None;
    }
    if names == ["any"] {
        return Refresh::Any;
    }
    let mut facets = Vec::new();
    for name in names {
        match Facet::of_field(name) {
            Some(facet) => facets.push(facet),
            None => {
                let known = Facet::ALL.map(|(_, field, _)| field).join(", ");
                faults.push(format!(
                    "refresh: \"{name}\" is neither \"any\" alone nor one of {known}"
                ));
            }
        }
    }
    Refresh::Dates(facets)
}

/// The names in braces: `/a/{b}/{c}` has `b` and `c`.
fn placeholders(path: &str) -> Vec<&str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVITIES: &str = r#"
table = "activities"
comment = "Activities of a case."
key = ["case_id", "id"]
permissions = ["Cases - Read"]
group = "case"
refresh = ["ActivityChangedDate"]
[read]
method = "GET"
path = "/api/Cases/{case_id}/Activities"
answer = "list"
paging = "odata"
order = "Id"
[[column]]
name = "case_id"
field = "CaseId"
from = "path"
type = "int"
comment = "The case."
[[column]]
field = "Id"
type = "int"
comment = "The activity."
[[column]]
field = "VAT"
type = "decimal"
comment = "A fraction."
"#;

    fn one(text: &str) -> Result<Catalog> {
        parse_all([("schemas/x.toml".to_owned(), text.to_owned())])
    }

    #[test]
    fn the_built_in_files_are_right() {
        let catalog = load(None).unwrap();
        assert!(catalog.get("cases").is_some());
        assert_eq!(catalog.resources()[0].table, "cases");
    }

    #[test]
    fn names_follow_heck_unless_given() {
        let catalog = one(ACTIVITIES).unwrap();
        let names: Vec<_> =
            catalog.get("activities").unwrap().columns.iter().map(|c| c.name.clone()).collect();
        assert_eq!(names, ["case_id", "id", "vat"]);
    }

    #[test]
    fn all_mistakes_are_named_at_once_with_file_and_field() {
        let text = ACTIVITIES
            .replace("key = [\"case_id\", \"id\"]", "key = [\"case_id\", \"guid\"]")
            .replace("ActivityChangedDate", "ActivityDate")
            .replace("type = \"decimal\"", "type = \"number\"")
            .replace("{case_id}/Activities", "{case_guid}/Activities");
        let message = one(&text).unwrap_err().to_string();
        for part in [
            "schemas/x.toml: key: \"guid\" is no column",
            "schemas/x.toml: refresh: \"ActivityDate\" is neither",
            "schemas/x.toml: column \"vat\": type = \"number\" is none of",
            "schemas/x.toml: read.path: nothing fills {case_guid}",
        ] {
            assert!(message.contains(part), "{part} is missing in:\n{message}");
        }
    }

    #[test]
    fn a_privacy_class_on_a_key_or_a_number_is_refused() {
        let text = ACTIVITIES.replace(
            "comment = \"The activity.\"",
            "comment = \"The activity.\"\nclass = \"identifier\"",
        );
        let message = one(&text).unwrap_err().to_string();
        assert!(message.contains("column \"id\": class goes with string"), "{message}");
        assert!(message.contains("key: \"id\" has a privacy class"), "{message}");
    }

    #[test]
    fn an_unknown_key_in_a_file_is_refused_with_its_place() {
        let message = one(&ACTIVITIES.replace("answer =", "anwser =")).unwrap_err().to_string();
        assert!(message.contains("schemas/x.toml") && message.contains("anwser"), "{message}");
    }

    #[test]
    fn two_columns_of_one_name_are_refused() {
        let message =
            one(&ACTIVITIES.replace("field = \"VAT\"", "field = \"ID\"")).unwrap_err().to_string();
        assert!(message.contains("column \"id\" is there twice"), "{message}");
    }
}
