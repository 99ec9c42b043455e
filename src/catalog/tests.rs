//! Files of the user's: what is taken, and what is refused with file, field and what would be right.

mod names;

use rstest::rstest;

use super::Catalog;

const PUBLICATIONS: &str = include_str!("../../schemas/publications.toml");
const SUBSCRIPTIONS: &str = include_str!("../../schemas/webhook_subscriptions.toml");

/// A list of its own; the tests change what they are about.
const THINGS: &str = r#"
table = "things"
comment = "Things."
key = ["id"]
group = "list"
schedule = "reference"
[read]
method = "GET"
path = "/api/Things"
answer = "list"
[[column]]
field = "Id"
type = "int"
comment = "The thing."
"#;

/// A table of its own with one call per case.
const OF_CASES: &str = r#"
table = "extras"
comment = "Extras."
key = ["case_id", "id"]
group = "case"
refresh = ["any"]
[read]
method = "GET"
path = "/api/Cases/{case_id}/Extras"
answer = "list"
[[column]]
name = "case_id"
from = "path"
type = "int"
comment = "The case."
[[column]]
field = "Id"
type = "int"
comment = "The extra."
"#;

/// A list that activities carry.
const PARTS: &str = r#"
table = "parts"
comment = "Parts."
key = ["case_id", "activity_id", "position"]
group = "child"
[child]
table = "activities"
field = "Parts"
[[column]]
name = "case_id"
field = "case_id"
from = "parent"
type = "int"
comment = "The case."
[[column]]
name = "activity_id"
field = "id"
from = "parent"
type = "int"
comment = "The activity."
[[column]]
name = "position"
from = "position"
type = "int"
comment = "Place in the list."
"#;

fn load(files: &[(&str, &str)]) -> crate::error::Result<Catalog> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    Catalog::load(Some(folder.path()))
}

/// What is said of a file that is refused.
#[track_caller]
fn refused(name: &str, text: &str) -> String {
    let said = load(&[(name, text)]).expect_err("the file is taken").to_string();
    assert!(said.contains(&format!("/{name}: ")), "the file is not named in\n{said}");
    said
}

/// `text` with `what` replaced, which must be in it.
#[track_caller]
fn with(text: &str, what: &str, by: &str) -> String {
    assert!(text.contains(what), "{what} is not in\n{text}");
    text.replace(what, by)
}

fn and_column(text: &str, column: &str) -> String {
    format!("{text}[[column]]\n{column}\ncomment = \"It.\"\n")
}

#[test]
fn the_files_that_these_tests_change_are_right() {
    for text in [THINGS, OF_CASES, PARTS] {
        load(&[("own.toml", text)]).unwrap();
    }
    load(&[("publications.toml", PUBLICATIONS)]).unwrap();
    load(&[("webhook_subscriptions.toml", SUBSCRIPTIONS)]).unwrap();
}

#[test]
fn a_file_that_only_looks_like_one_of_these_is_not_passed_over() {
    let said = load(&[("publications.TOML", PUBLICATIONS)]).unwrap_err().to_string();
    assert!(said.contains("publications.TOML: its name has to end in .toml"), "{said}");
    load(&[("README.md", "no resource file"), ("toml", "no ending")]).unwrap();
}

#[rstest]
#[case("/api/Persons/{case_id}/FullIdentityNumber", "never asked for")]
#[case("/api/persons/{case_id}/fullidentitynumber/", "never asked for")]
#[case("/api/Persons/x/../{case_id}", "lead elsewhere")]
#[case("/api/Cases/{case_id}/Publications", "creates publications")]
#[case("/api/CASES/{case_id}/publications/", "creates publications")]
#[case("/api/Conditions/Cases/{case_id}/EstimatedCosts/true", "recalculates")]
#[case("/api/Conditions/Cases/{case_id}/EstimatedCosts", "recalculates")]
#[case("/api/Integrations/RecentlyModified/Cases/{case_id}", "throttle of their own")]
fn what_changes_the_source_or_must_not_be_known_is_never_called(
    #[case] path: &str,
    #[case] why: &str,
) {
    let said = refused("own.toml", &with(OF_CASES, "/api/Cases/{case_id}/Extras", path));
    assert!(said.contains(&format!("read.path = \"{path}\"")) && said.contains(why), "{said}");
}

#[rstest]
#[case("returnOnlyExisting = \"false\"")]
#[case("ReturnOnlyExisting = \"true\"")]
#[case("returnOnlyExisting = \"true\", returnonlyexisting = \"false\"")]
fn publications_are_asked_with_the_query_that_creates_none_and_no_other(#[case] query: &str) {
    let text = with(PUBLICATIONS, "returnOnlyExisting = \"true\"", query);
    assert!(refused("publications.toml", &text).contains("creates publications"));
}

#[rstest]
#[case(
    "/api/Conditions/Cases/{case_id}/EstimatedCosts/{kind}",
    "\"false\", \"true\"",
    "recalculates"
)]
#[case("/api/Persons/{case_id}/{kind}", "\"Name\", \"FullIdentityNumber\"", "never asked for")]
#[case("/api/Cases/{case_id}/{kind}", "\"Publications\"", "creates publications")]
fn a_value_of_a_parameter_leads_to_no_forbidden_call(
    #[case] path: &str,
    #[case] values: &str,
    #[case] why: &str,
) {
    let text = with(OF_CASES, "/api/Cases/{case_id}/Extras", path);
    let text = with(
        &text,
        "\n[[column]]\nname",
        &format!("\nvalues = {{ kind = [{values}] }}\n[[column]]\nname"),
    );
    let text = and_column(&text, "name = \"kind\"\nfrom = \"path\"\ntype = \"string\"");
    assert!(refused("own.toml", &text).contains(why));
}

#[test]
fn the_other_addresses_of_a_file_are_under_the_same_rules() {
    let fallback = "answer = \"list\"\nfallback = { path = \"/api/Persons/1/FullIdentityNumber\" }";
    let said = refused("own.toml", &with(THINGS, "answer = \"list\"", fallback));
    assert!(said.contains("read.fallback.path"), "{said}");
    let contacts = include_str!("../../schemas/contacts.toml");
    let text = with(contacts, "/api/Contacts/{id}", "/api/Persons/{id}/FullIdentityNumber");
    assert!(refused("contacts.toml", &text).contains("read.by_id"));
    let bases = include_str!("../../schemas/processing_bases.toml");
    let list = "/api/Integrations/RecentlyModified/Contacts";
    let text = with(bases, "/api/ProcessingBases/Newest", list);
    assert!(refused("processing_bases.toml", &text).contains("for_each.list"));
}

#[rstest]
#[case("POST", "/api/Notes")]
#[case("PUT", "/api/CaseRoles/Appraiser")]
#[case("POST", "/api/WebHooks/Subscribe")]
#[case("PATCH", "/api/Notes/1")]
#[case("DELETE", "/api/WebHooks/Subscriptions/1")]
fn only_known_reads_have_another_method_than_get(#[case] method: &str, #[case] path: &str) {
    let text = with(&with(THINGS, "\"GET\"", &format!("\"{method}\"")), "/api/Things", path);
    let said = refused("own.toml", &text);
    assert!(said.contains(&format!("read.method = \"{method}\"")), "{said}");
    assert!(said.contains("right are GET"), "{said}");
}

#[test]
fn a_read_by_post_of_a_built_in_table_is_a_read_in_other_tables_too() {
    let text = with(OF_CASES, "\"GET\"", "\"POST\"");
    let path = "/api/Cases/{case_id}/Directory/Search";
    load(&[("own.toml", &with(&text, "/api/Cases/{case_id}/Extras", path))]).unwrap();
    assert!(refused("own.toml", &text).contains("is not known to be a read"));
}

#[test]
fn the_secrets_of_subscriptions_are_stored_by_no_file() {
    let text = with(SUBSCRIPTIONS, "leave_out = [\"Secret\"]\n", "");
    assert!(refused("webhook_subscriptions.toml", &text).contains("leave_out = [\"Secret\"]"));
    let text = and_column(&text, "field = \"Secret\"\ntype = \"string\"");
    assert!(refused("webhook_subscriptions.toml", &text).contains("never stored"));
    let text = with(SUBSCRIPTIONS, "cut = \"after_host\"\n", "");
    assert!(refused("webhook_subscriptions.toml", &text).contains("field Url"));
    let own = with(THINGS, "/api/Things", "/api/WebHooks/Subscriptions");
    assert!(refused("own.toml", &own).contains("shows the secrets"));
}

#[rstest]
#[case("name = \"state\"\nfield = \"Id\"", "columns \"id\" and \"state\" both take field Id")]
#[case("name = \"other\"\nfield = \"Id.Part\"", "one takes an object whole")]
fn two_columns_on_one_field_are_refused_by_name(#[case] column: &str, #[case] why: &str) {
    let said = refused("own.toml", &and_column(THINGS, &format!("{column}\ntype = \"int\"")));
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_column_beside_the_built_in_one_on_its_field_is_refused() {
    let text = and_column(PUBLICATIONS, "name = \"state\"\nfield = \"Status\"\ntype = \"enum\"");
    let said = refused("publications.toml", &text);
    assert!(said.contains("columns \"status\" and \"state\" both take field Status"), "{said}");
}

#[rstest]
#[case("schedule = \"reference\"\n", "", "schedule is missing: group = \"list\"")]
#[case(
    "group = \"list\"\nschedule = \"reference\"",
    "group = \"ids\"\nrefresh = [\"any\"]",
    "cases, projects, contacts are read with group = \"ids\""
)]
#[case(
    "schedule =",
    "refresh = [\"any\"]\nschedule =",
    "refresh has no effect on group = \"list\""
)]
#[case(
    "[read]",
    "[child]\ntable = \"cases\"\nfield = \"Things\"\n[read]",
    "[child] goes with group"
)]
#[case(
    "[read]",
    "[condition]\ntable = \"cases\"\ncolumn = \"assignment_type\"\nvalues = [\"Sale\"]\n[read]",
    "[condition] goes with group = \"case\""
)]
#[case("answer = \"list\"", "answer = \"list\"\norder = \"Id\"", "read.order has no effect")]
#[case(
    "answer = \"list\"",
    "answer = \"list\"\nby_id = \"/api/Things/{id}\"",
    "read.by_id has no effect"
)]
#[case(
    "answer = \"list\"",
    "answer = \"list\"\nquery = { \"$top\" = \"5\" }",
    "$top is set by paging"
)]
#[case(
    "answer = \"list\"",
    "answer = \"list\"\nvalues = { x = [] }",
    "read.values.x = [] is empty"
)]
#[case(
    "answer = \"list\"",
    "answer = \"list\"\nvalues = { x = [\"a\"] }",
    "{x} is not in read.path"
)]
#[case("answer = \"list\"", "answer = \"scalar\"", "has no fields")]
#[case(
    "key = [\"id\"]",
    "key = [\"id\"]\nleave_out = [\"Id\"]",
    "leave_out: \"Id\" is what column \"id\" takes"
)]
#[case(
    "key = [\"id\"]",
    "key = [\"id\"]\nmodel = \"nothing\"",
    "model = \"nothing\" is no other table"
)]
#[case("path = \"/api/", "path = \"/api/x?a=b&y=", "has a ?: parameters stand in [read.query]")]
#[case("path = \"/api/", "path = \"/api/x%20y/", "has a %")]
#[case(
    "key = [\"id\"]",
    "key = [\"id\"]\nleave_out = [\"A.B\"]",
    "leave_out: \"A.B\" is a part of an object"
)]
#[case(
    "key = [\"id\"]",
    "key = [\"id\"]\nstays_after = \"id\"",
    "stays_after = \"id\" is no column of type datetime"
)]
#[case("comment = \"Things.\"", "comment = \"\"", "comment is empty")]
fn a_declaration_of_a_list_without_effect_is_refused(
    #[case] what: &str,
    #[case] by: &str,
    #[case] why: &str,
) {
    let said = refused("own.toml", &with(THINGS, what, by));
    assert!(said.contains(why), "{why} is not in\n{said}");
}

#[rstest]
#[case("name = \"place\"\nfrom = \"path\"\ntype = \"int\"", "its calls have {case_id}")]
#[case(
    "name = \"place\"\nfrom = \"position\"\ntype = \"int\"",
    "completes a key, and is not in it"
)]
#[case(
    "name = \"up\"\nfield = \"id\"\nfrom = \"parent\"\ntype = \"int\"",
    "goes with group = \"child\""
)]
#[case("field = \"Day\"\ntype = \"date\"", "right for a field is datetime")]
fn a_column_that_nothing_fills_is_refused(#[case] column: &str, #[case] why: &str) {
    let said = refused("own.toml", &and_column(OF_CASES, column));
    assert!(said.contains(why), "{why} is not in\n{said}");
}

#[rstest]
#[case("key = [\"case_id\", \"id\"]", "key = [\"id\"]", "key: \"case_id\" is missing")]
#[case(
    "from = \"path\"\ntype = \"int\"",
    "from = \"path\"\ntype = \"string\"",
    "this parameter is int, not string"
)]
#[case(
    "name = \"case_id\"\nfrom = \"path\"",
    "name = \"case_id\"\nfield = \"CaseId\"",
    "column \"case_id\" with from = \"path\" is missing"
)]
#[case("/{case_id}/Extras", "/Extras", "every case would have the same call")]
#[case(
    "refresh = [\"any\"]",
    "refresh = [\"any\"]\nschedule = \"reference\"",
    "schedule has no effect"
)]
#[case(
    "[read]",
    "[condition]\ntable = \"employees\"\ncolumn = \"name\"\nvalues = [\"x\"]\n[read]",
    "condition.table: employees has not one row per case"
)]
#[case(
    "[read]",
    "[condition]\ntable = \"activities\"\ncolumn = \"id\"\nvalues = [\"1\"]\n[read]",
    "condition.table: activities has not one row per case"
)]
#[case(
    "[read]",
    "[condition]\ntable = \"cases\"\ncolumn = \"assignment_type\"\nvalues = []\n[read]",
    "no case would be asked"
)]
#[case(
    "[read]",
    "[condition]\ntable = \"dynamic_sale_text_use\"\ncolumn = \"value\"\nvalues = [\"yes\"]\n[read]",
    "\"yes\" is no bool"
)]
#[case(
    "[read]",
    "[condition]\ntable = \"cases\"\ncolumn = \"asking_price\"\nvalues = [\"1\"]\n[read]",
    "condition.column: cases.asking_price is not string"
)]
#[case(
    "[read]",
    "[lookup]\nparam = \"case_guid\"\ntables = [\"cases\"]\ncolumn = \"guid\"\n[read]",
    "{case_guid} is not in read.path"
)]
#[case(
    "[read]",
    "[partial]\npermission = \"x\"\ncolumn = \"id\"\nvalues = [\"1\"]\n[read]",
    "partial.column: \"id\" is not string"
)]
#[case(
    "[read]",
    "[person]\nid = \"nobody\"\nknown_by = []\n[read]",
    "person.id: \"nobody\" is no column"
)]
#[case(
    "[read]",
    "[person]\nid = \"id\"\nknown_by = [\"id\"]\n[read]",
    "person.known_by: \"id\" is no column of type string"
)]
#[case(
    "[read]",
    "[person]\nid = \"id\"\nknown_by = []\nalso = [\"id\"]\n[read]",
    "person.also: \"id\" is no column beside the key and those of type string"
)]
fn a_table_of_cases_that_could_not_be_read_is_refused(
    #[case] what: &str,
    #[case] by: &str,
    #[case] why: &str,
) {
    let said = refused("own.toml", &with(OF_CASES, what, by));
    assert!(said.contains(why), "{why} is not in\n{said}");
}

#[rstest]
#[case("table = \"activities\"", "table = \"case_file_access\"", "is a child table itself")]
#[case("field = \"Parts\"", "field = \"Subject\"", "of activities takes it")]
#[case("field = \"Parts\"", "field = \"Outer.Parts\"", "is no field of a record's own")]
#[case(
    "key = [\"case_id\", \"activity_id\", \"position\"]",
    "key = [\"activity_id\", \"position\"]",
    "it says to which call a row belongs"
)]
#[case(
    "field = \"id\"\nfrom = \"parent\"\ntype = \"int\"",
    "field = \"id\"\nfrom = \"parent\"\ntype = \"string\"",
    "type and class are those of activities.id"
)]
#[case(
    "field = \"Parts\"",
    "field = \"Parts\"\nscalar = \"nothing\"",
    "child.scalar = \"nothing\" is no column"
)]
fn a_child_table_that_would_stay_empty_is_refused(
    #[case] what: &str,
    #[case] by: &str,
    #[case] why: &str,
) {
    let said = refused("own.toml", &with(PARTS, what, by));
    assert!(said.contains(why), "{why} is not in\n{said}");
}

#[test]
fn a_list_goes_to_one_child_table_and_a_journal_has_one() {
    let twice = load(&[("one.toml", PARTS), ("two.toml", &with(PARTS, "\"parts\"", "\"pieces\""))]);
    assert!(twice.unwrap_err().to_string().contains("takes it already"));
    let left_out = with(PARTS, "table = \"activities\"", "table = \"property_conditions\"");
    let left_out = with(&left_out, "\"Parts\"", "\"Costs\"");
    assert!(refused("own.toml", &left_out).contains("leave_out of property_conditions has it"));
    let annotations = include_str!("../../schemas/revenue_journal_annotations.toml");
    let second = with(annotations, "\"revenue_journal_annotations\"", "\"remarks\"");
    let second = with(&second, "field = \"Annotations\"", "field = \"Remarks\"");
    assert!(refused("own.toml", &second).contains("it can have only one"));
}

#[test]
fn a_copy_under_another_name_and_a_table_in_anothers_file_are_refused() {
    assert!(refused("own.toml", PUBLICATIONS).contains("is already in"));
    let said = refused("publications.toml", THINGS);
    assert!(said.contains("takes the place of the built-in table publications"), "{said}");
}

#[test]
fn a_changed_copy_keeps_what_the_program_needs() {
    let text = with(PUBLICATIONS, "key = [\"case_id\", \"id\"]", "key = [\"case_id\"]");
    assert!(refused("publications.toml", &text).contains("cannot be another one"));
    let roles = include_str!("../../schemas/case_roles.toml");
    let text = with(roles, "field = \"ContactId\"", "field = \"Contact\"");
    assert!(refused("case_roles.toml", &text).contains("column \"contact_id\""));
}

#[test]
fn rows_of_a_list_in_a_list_are_one_scope() {
    let parent = with(THINGS, "\"things\"", "\"things\"");
    let child = with(PARTS, "table = \"activities\"", "table = \"things\"");
    let child = with(
        &child,
        "name = \"case_id\"\nfield = \"case_id\"",
        "name = \"thing_id\"\nfield = \"id\"",
    );
    let child = with(&child, "\"case_id\", \"activity_id\"", "\"thing_id\"");
    let child = with(
        &child,
        "[[column]]\nname = \"activity_id\"\nfield = \"id\"\nfrom = \"parent\"\ntype = \"int\"\ncomment = \"The activity.\"\n",
        "",
    );
    let catalog = load(&[("things.toml", &parent), ("parts.toml", &child)]).unwrap();
    assert_eq!(catalog.get("parts").unwrap().scope_column(), None);
    assert_eq!(catalog.get("case_file_access").unwrap().scope_column(), Some("case_id"));
}

#[test]
fn all_mistakes_of_all_files_are_told_at_once() {
    let one = with(&with(THINGS, "schedule = \"reference\"\n", ""), "\"GET\"", "\"DELETE\"");
    let two = with(OF_CASES, "/Extras", "/Publications");
    let said = load(&[("one.toml", &one), ("two.toml", &two)]).unwrap_err().to_string();
    for part in ["/one.toml: schedule is missing", "/one.toml: read.method", "/two.toml: read.path"]
    {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

/// Where a list names the scopes, a record's own id says to which it belongs; elsewhere the call does.
#[test]
fn only_records_of_scopes_that_a_list_names_say_themselves_where_they_belong() {
    let bases = include_str!("../../schemas/processing_bases.toml");
    let id = "field = \"Id\"\ntype = \"int\"";
    load(&[("processing_bases.toml", bases)]).unwrap();
    let text = with(bases, id, "field = \"Id\"\ntype = \"string\"");
    let said = refused("processing_bases.toml", &text);
    assert!(said.contains("it says to which call a row belongs"), "{said}");
    let text = with(bases, "list = \"/api/ProcessingBases/Newest\"\n", "table = \"employees\"\n");
    let said = refused("processing_bases.toml", &text);
    assert!(said.contains("column \"id\" with from = \"path\" is missing"), "{said}");
}
