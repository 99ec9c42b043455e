//! Resource files: read, checked, turned into [`Resource`]s.

use std::collections::BTreeMap;
use std::path::Path;

use super::file::File;
use super::{Catalog, Resource, check};
use crate::error::{self, Error, Kind, Result};

/// The built-in resource files: name and text.
const BUILT_IN: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/schemas.rs"));

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
    check::across(&resources, &mut faults);
    if faults.is_empty() {
        Ok(Catalog::new(resources.into_iter().map(|(_, r)| r).collect()))
    } else {
        Err(Error::new(
            Kind::Config,
            format!("the resource files are wrong:\n  {}", faults.join("\n  ")),
        ))
    }
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

    const OFFICES: &str = r#"
table = "offices"
comment = "Offices."
key = ["id"]
group = "list"
schedule = "reference"
[read]
method = "GET"
path = "/api/Offices"
answer = "list"
fallback = { path = "/api/Elsewhere", query = { all = "true" } }
[instead]
table = "activities"
columns = { id = "id" }
[[column]]
field = "Id"
type = "int"
comment = "The office."
[[column]]
field = "Guid"
type = "guid"
comment = "Its GUID."
"#;

    fn with_offices(text: &str) -> Result<Catalog> {
        let files = [("activities.toml", ACTIVITIES), ("offices.toml", text)];
        parse_all(files.map(|(name, text)| (name.to_owned(), text.to_owned())))
    }

    #[test]
    fn a_list_may_have_a_second_address_and_another_table_in_its_stead() {
        let catalog = with_offices(OFFICES).unwrap();
        let offices = catalog.get("offices").unwrap();
        let fallback = offices.read.as_ref().unwrap().fallback.as_ref().unwrap();
        assert_eq!(fallback.path, "/api/Elsewhere");
        assert_eq!(fallback.query, [("all".to_owned(), "true".to_owned())]);
        assert_eq!(catalog.depth(offices), 1);
        assert_eq!(catalog.depth(catalog.get("activities").unwrap()), 0);
    }

    #[test]
    fn what_cannot_stand_in_its_stead_is_refused() {
        for (columns, fault) in [
            ("{ guid = \"id\" }", "\"id\" is missing, and is part of the key"),
            ("{ id = \"id\", guid = \"id\" }", "\"guid\" is neither a number nor text"),
            ("{ id = \"id\", name = \"id\" }", "\"name\" is no plain column"),
            ("{ id = \"office_id\" }", "\"office_id\" is no column of activities"),
        ] {
            let text = OFFICES.replace("{ id = \"id\" }", columns);
            let message = with_offices(&text).unwrap_err().to_string();
            assert!(message.contains(fault), "{fault} is missing in:\n{message}");
        }
    }

    #[test]
    fn tables_that_need_each_other_are_refused() {
        let text = OFFICES.replace("table = \"activities\"", "table = \"offices\"");
        let message = with_offices(&text).unwrap_err().to_string();
        assert!(message.contains("lead back to \"offices\""), "{message}");
    }

    #[test]
    fn two_columns_of_one_name_are_refused() {
        let message =
            one(&ACTIVITIES.replace("field = \"VAT\"", "field = \"ID\"")).unwrap_err().to_string();
        assert!(message.contains("column \"id\" is there twice"), "{message}");
    }
}
