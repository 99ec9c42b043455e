//! Lists of records within records.

use super::*;

const SHARES: &str = r#"
table = "shares"
comment = "Who shares a cost."
key = ["case_id", "cost_id", "position"]
group = "child"
[child]
table = "costs"
field = "Shares"
scalar = "role"
[[column]]
name = "case_id"
field = "case_id"
from = "parent"
type = "int"
comment = "The case."
[[column]]
name = "cost_id"
field = "id"
from = "parent"
type = "int"
comment = "The cost."
[[column]]
name = "position"
from = "position"
type = "int"
comment = "Place in the list, from 1."
[[column]]
field = "Role"
type = "enum"
comment = "The role."
[[column]]
field = "Amount"
type = "money"
comment = "The amount."
"#;

/// The costs and their shares.
fn decode_costs(records: &[&str]) -> (Decoded, Decoded) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shares.toml"), SHARES).unwrap();
    let catalog = Catalog::load(Some(folder.path())).unwrap();
    let context = context(PrivacyMode::Keep, PrivacyMode::Keep);
    let mut costs = decode_by(&catalog, &context, "costs", &params(), records);
    let shares = costs.children.pop().unwrap();
    (costs, shares)
}

fn keys(shares: &Decoded) -> Vec<(i64, i64, i64)> {
    let column = |name| ints(shares, name).into_iter().map(Option::unwrap);
    column("case_id")
        .zip(column("cost_id"))
        .zip(column("position"))
        .map(|((case, cost), position)| (case, cost, position))
        .collect()
}

#[test]
fn elements_are_rows_with_their_parents_key_and_their_place() {
    let (costs, shares) = decode_costs(&[
        r#"{"Id":1,"Shares":[{"Role":"Seller","Amount":1.5},"Buyer"]}"#,
        r#"{"Id":2,"Shares":[]}"#,
        r#"{"Id":3,"Shares":null}"#,
        r#"{"Id":4}"#,
        r#"{"Id":5,"Shares":[3]}"#,
    ]);
    assert_eq!(keys(&shares), [(17, 1, 1), (17, 1, 2), (17, 5, 1)]);
    let roles = ["Seller", "Buyer", "3"].map(|role| Some(role.to_owned()));
    assert_eq!(texts(&shares, "role"), roles);
    assert!(costs.drift.is_empty() && texts(&costs, "_extra").iter().all(Option::is_none));
    assert!(!costs.any_without_key() && !shares.any_without_key());
}

#[test]
fn a_table_that_is_disabled_gets_no_rows_and_its_field_is_no_news() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shares.toml"), SHARES).unwrap();
    let catalog = Catalog::load(Some(folder.path())).unwrap();
    let mut context = context(PrivacyMode::Keep, PrivacyMode::Keep);
    context.disabled = Arc::new(["shares".to_owned()]);
    let records = [r#"{"Id":1,"Shares":[{"Role":"Seller"}]}"#, r#"{"Id":2,"Shares":"none"}"#];
    let costs = decode_by(&catalog, &context, "costs", &params(), &records);
    assert!(costs.children.is_empty());
    assert_eq!(texts(&costs, "_extra"), [None, None]);
    assert!(costs.drift.is_empty() && costs.rejects.is_empty() && !costs.any_without_key());
}

#[test]
fn rows_of_a_record_that_another_replaced_are_not_there() {
    let (costs, shares) = decode_costs(&[
        r#"{"Id":1,"Shares":["Seller","Buyer",{"Amount":"x"}]}"#,
        r#"{"Id":1,"Comment":"last","Shares":["Broker"]}"#,
    ]);
    assert_eq!(texts(&costs, "comment"), [Some("last".to_owned())]);
    assert_eq!(texts(&shares, "role"), [Some("Broker".to_owned())]);
    assert!(shares.rejects.is_empty(), "what was wrong with it is gone with it");
}

#[test]
fn equal_records_have_their_rows_once() {
    let (_, shares) =
        decode_costs(&[r#"{"Id":1,"Shares":["Seller"]}"#, r#"{ "Id":1,"Shares":["Seller"]}"#]);
    assert_eq!(keys(&shares), [(17, 1, 1)]);
    assert!(shares.rejects.is_empty());
}

#[test]
fn a_null_element_is_no_row_and_the_others_keep_their_places() {
    let (_, shares) = decode_costs(&[r#"{"Id":1,"Shares":["Seller",null,"Buyer"]}"#]);
    assert_eq!(keys(&shares), [(17, 1, 1), (17, 1, 3)]);
    assert!(shares.any_without_key());
    assert_eq!(shares.rejects[0].record_key, "17/1/#2");
    assert_eq!(faults(&shares), [("(record)", "null where a record belongs")]);
}

#[test]
fn an_element_that_is_no_record_of_its_table_is_no_row() {
    let (_, shares) = decode_costs(&[
        r#"{"Id":1,"Shares":[{"Amount":1,"Role":"Seller","Amount":9},{"Other":1},{},{"Role":"Buyer"}]}"#,
    ]);
    assert_eq!(keys(&shares), [(17, 1, 4)]);
    assert!(shares.any_without_key());
    assert_eq!(
        faults(&shares),
        [
            ("(record)", "a record that names the field Amount twice"),
            ("(record)", "a record without any field of its table"),
            ("(record)", "a record without any field of its table"),
        ]
    );
}

#[test]
fn what_is_no_list_is_rejected_and_deletes_no_row() {
    let (costs, shares) = decode_costs(&[r#"{"Id":1,"Shares":"Seller"}"#, r#"{"Id":2}"#]);
    assert_eq!(ints(&costs, "id"), [Some(1), Some(2)]);
    assert!(shares.any_without_key());
    assert_eq!(shares.rejects[0].record_key, "17/1/#0");
    assert_eq!(faults(&shares), [("(record)", "a string where a list of records belongs")]);
}
