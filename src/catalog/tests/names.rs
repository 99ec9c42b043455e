//! What tables and columns may be called, and what their names tell.

use std::collections::BTreeSet;

use rstest::rstest;

use super::{THINGS, load, refused, with};

#[rstest]
#[case("Cases", "lower-case letters")]
#[case("my/things", "lower-case letters")]
#[case("things;", "lower-case letters")]
#[case("report", "name of a schema or folder")]
#[case("history", "name of a schema or folder")]
#[case("stage_cases", "needs while it writes")]
#[case("gone", "needs while it writes")]
fn a_table_has_a_name_that_fits_everywhere(#[case] name: &str, #[case] why: &str) {
    let said = refused("own.toml", &with(THINGS, "\"things\"", &format!("\"{name}\"")));
    assert!(said.contains(&format!("table = \"{name}\"")) && said.contains(why), "{said}");
}

#[test]
fn a_column_is_not_called_as_duckdb_calls_its_row_numbers() {
    for field in ["RowId", "Rowid", "ROWID"] {
        let more =
            format!("[[column]]\nfield = \"{field}\"\ntype = \"int\"\ncomment = \"Its row.\"\n");
        let refused = load(&[("own.toml", &format!("{THINGS}{more}"))]);
        let is_refused = field != "RowId";
        let says = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(
            says.contains("column \"rowid\": DuckDB calls its own row numbers so"),
            is_refused,
            "{says}"
        );
    }
    let named =
        "[[column]]\nname = \"rowid\"\nfield = \"RowId\"\ntype = \"int\"\ncomment = \"Its row.\"\n";
    assert!(refused("own.toml", &format!("{THINGS}{named}")).contains("give it another name"));
}

/// What a person's row has is the person's in every table about persons.
#[test]
fn what_goes_with_a_person_in_one_table_goes_in_all() {
    let catalog = load(&[]).unwrap();
    let about_persons = || catalog.resources().iter().filter(|r| r.person.is_some());
    let also: BTreeSet<&String> =
        about_persons().flat_map(|r| r.person.iter().flat_map(|person| &person.also)).collect();
    assert!(about_persons().count() > 2 && also.len() > 5);
    let left: Vec<String> = about_persons()
        .flat_map(|r| r.columns.iter().map(move |column| (r, column)))
        .filter(|(r, column)| also.contains(&column.name) && !r.goes_with_person(column))
        .map(|(r, column)| format!("{}.{}", r.table, column.name))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_column_of_a_place_or_an_organisation_is_of_no_person() {
    let catalog = load(&[]).unwrap();
    let is_one = |table: &str, column: &str| {
        let resource = catalog.get(table).unwrap();
        resource.is_of_no_person(resource.column(column).unwrap())
    };
    for (table, column) in [
        ("cases", "city"),
        ("cases", "municipality"),
        ("cases", "office"),
        ("cases", "settlement_company_name"),
        ("case_journals", "office_name"),
        ("depot_journals", "company_name"),
        ("offices", "name"),
        ("housing_associations", "name"),
    ] {
        assert!(is_one(table, column), "{table}.{column}");
    }
    for (table, column) in [
        ("cases", "sellers"),
        ("cases", "seller_emails"),
        ("cases", "address"),
        ("cases", "street"),
        ("case_journals", "address"),
        ("notes", "message"),
        ("contacts", "city"),
        ("employee_offices", "office_name"),
        ("employees", "telephone"),
        ("offices", "telephone"),
    ] {
        assert!(!is_one(table, column), "{table}.{column}");
    }
}
