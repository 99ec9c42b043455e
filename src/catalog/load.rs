//! Resource files: read, checked, turned into [`Resource`]s.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::path::Path;

use super::file::File;
use super::{Catalog, Resource, check};
use crate::error::{self, Error, Kind, Result};

/// The built-in resource files: name and text.
const BUILT_IN: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/schemas.rs"));

pub(super) fn load(resources_dir: Option<&Path>) -> Result<Catalog> {
    let mut files: BTreeMap<String, Source> = BTreeMap::new();
    for (name, text) in BUILT_IN {
        let place = format!("schemas/{name}");
        files.insert((*name).to_owned(), Source { place, text: (*text).to_owned(), own: false });
    }
    if let Some(dir) = resources_dir {
        for (name, text) in own_files(dir)? {
            let place = dir.join(&name).display().to_string();
            files.insert(name, Source { place, text, own: true });
        }
    }
    let mut files: Vec<Source> = files.into_values().collect();
    // A table that is there twice is a mistake of the user's file.
    files.sort_by_key(|file| file.own);
    parse_all(files)
}

/// A resource file.
struct Source {
    /// Where it is, for people.
    place: String,
    text: String,
    /// It is a file of the user's.
    own: bool,
}

/// The built-in tables as they are without files of the user's.
pub(super) fn built_in() -> Vec<Resource> {
    // The files are right: a test loads them.
    let parsed = BUILT_IN.iter().filter_map(|(_, text)| toml::from_str::<File>(text).ok());
    parsed.filter_map(|file| file.check(&mut Vec::new())).collect()
}

fn own_files(dir: &Path) -> Result<Vec<(String, String)>> {
    let entries = std::fs::read_dir(dir).map_err(|e| {
        Error::caused(Kind::Config, format!("cannot read resources.dir {}", dir.display()), e)
    })?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| error::io("list", dir, e))?.path();
        match path.extension() {
            Some(ending) if ending == "toml" => {}
            // Whoever wrote it believes that it counts.
            Some(ending) if ending.eq_ignore_ascii_case("toml") => {
                let text =
                    format!("{}: its name has to end in .toml, in small letters", path.display());
                return Err(Error::new(Kind::Config, text));
            }
            _ => continue,
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

/// Parses and checks files.
fn parse_all(files: impl IntoIterator<Item = Source>) -> Result<Catalog> {
    let mut faults = Vec::new();
    let mut resources: Vec<(String, Resource)> = Vec::new();
    let originals = LazyCell::new(built_in);
    for Source { place, text, own } in files {
        let mut of_file = Vec::new();
        match toml::from_str::<File>(&text) {
            Ok(file) => {
                let resource = file.check(&mut of_file);
                if let Some(resource) = resource {
                    if own {
                        check::own_file(&resource, &originals, &mut of_file);
                        takes_its_own_place(&place, &resource, &mut of_file);
                    }
                    resources.push((place.clone(), resource));
                }
            }
            Err(e) => of_file.push(e.to_string().trim_end().to_owned()),
        }
        faults.extend(of_file.into_iter().map(|fault| format!("{place}: {fault}")));
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

/// A file with the name of a built-in one takes its place, and must not make that table disappear.
fn takes_its_own_place(place: &str, resource: &Resource, faults: &mut Vec<String>) {
    let name = Path::new(place).file_name().map(|name| name.to_string_lossy());
    let replaced = BUILT_IN.iter().find(|(built_in, _)| name.as_deref() == Some(built_in));
    let table = replaced.and_then(|(name, _)| name.strip_suffix(".toml"));
    if let Some(table) = table.filter(|table| *table != resource.table) {
        faults.push(format!(
            "table = \"{}\": a file of this name takes the place of the built-in table {table}",
            resource.table
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{self, Mutated};

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

    fn source(place: &str, text: &str) -> Source {
        Source { place: place.to_owned(), text: text.to_owned(), own: false }
    }

    fn one(text: &str) -> Result<Catalog> {
        parse_all([source("schemas/x.toml", text)])
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
[fallback]
table = "people"
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

    const PEOPLE: &str = r#"
table = "people"
comment = "Who works there."
key = ["id"]
group = "list"
schedule = "reference"
[read]
method = "GET"
path = "/api/People"
answer = "list"
[[column]]
field = "Id"
type = "int"
comment = "The office."
"#;

    fn with_offices(text: &str) -> Result<Catalog> {
        let files = [("people.toml", PEOPLE), ("offices.toml", text)];
        parse_all(files.map(|(name, text)| source(name, text)))
    }

    #[test]
    fn a_list_may_have_a_second_address_and_another_table_in_its_stead() {
        let catalog = with_offices(OFFICES).unwrap();
        let offices = catalog.get("offices").unwrap();
        let fallback = offices.read.as_ref().unwrap().fallback.as_ref().unwrap();
        assert_eq!(fallback.path, "/api/Elsewhere");
        assert_eq!(fallback.query, [("all".to_owned(), "true".to_owned())]);
        assert_eq!(catalog.depth(offices), 1);
        assert_eq!(catalog.depth(catalog.get("people").unwrap()), 0);
    }

    #[test]
    fn what_cannot_stand_in_its_stead_is_refused() {
        for (columns, fault) in [
            ("{ guid = \"id\" }", "\"id\" is missing, and is part of the key"),
            ("{ id = \"id\", guid = \"id\" }", "\"guid\" is neither a number nor text"),
            ("{ id = \"id\", name = \"id\" }", "\"name\" is no plain column"),
            ("{ id = \"office_id\" }", "\"office_id\" is no column of people"),
        ] {
            let text = OFFICES.replace("{ id = \"id\" }", columns);
            let message = with_offices(&text).unwrap_err().to_string();
            assert!(message.contains(fault), "{fault} is missing in:\n{message}");
        }
    }

    #[test]
    fn tables_that_need_each_other_are_refused() {
        let text = OFFICES.replace("table = \"people\"", "table = \"offices\"");
        let message = with_offices(&text).unwrap_err().to_string();
        assert!(message.contains("lead back to \"offices\""), "{message}");
    }

    #[test]
    fn two_columns_of_one_name_are_refused() {
        let message =
            one(&ACTIVITIES.replace("field = \"VAT\"", "field = \"ID\"")).unwrap_err().to_string();
        assert!(message.contains("column \"id\" is there twice"), "{message}");
    }

    /// Any text is a resource file or is refused with words.
    #[test]
    fn fuzz_resource_files() {
        let corpus: Vec<&str> = BUILT_IN.iter().map(|(_, text)| *text).collect();
        bolero::check!().with_type::<Mutated>().with_test_time(fuzz::TIME).for_each(|input| {
            let text = input.text_of(&corpus, &fuzz::TOML);
            let own = Source { place: "own.toml".to_owned(), text, own: true };
            if let Err(error) = parse_all([own]) {
                assert_eq!(error.kind(), Kind::Config);
                assert!(error.to_string().contains("own.toml"), "{error}");
            }
        });
    }
}
