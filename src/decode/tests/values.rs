//! Values as services send them.

use super::*;

/// One cost with these fields beside its id, its rejects, and what `_extra` keeps.
fn cost(fields: &str) -> (Decoded, Option<String>) {
    let decoded = decode("costs", &[&format!(r#"{{"Id":1,{fields}}}"#)]);
    let extra = texts(&decoded, "_extra")[0].clone();
    (decoded, extra)
}

#[test]
fn a_number_is_no_text_and_text_is_no_number() {
    let (decoded, extra) =
        cost(r#""Amount":"12.50","Comment":150,"Deleted":0,"EntryDefinitionId":"7""#);
    assert_eq!(
        faults(&decoded),
        [
            ("amount", "a string where a number belongs"),
            ("comment", "a number where a string belongs"),
            ("deleted", "a number where true or false belongs"),
            ("entry_definition_id", "a string where a whole number belongs"),
        ]
    );
    assert_eq!(
        extra.as_deref(),
        Some(r#"{"Amount":"12.50","Comment":150,"Deleted":0,"EntryDefinitionId":"7"}"#)
    );
}

#[test]
fn objects_and_lists_fit_no_scalar_column() {
    let (decoded, extra) = cost(r#""Amount":{"Value":1.50},"Comment":["a"]"#);
    assert_eq!(
        faults(&decoded),
        [
            ("amount", "an object where a number belongs"),
            ("comment", "a list where a string belongs")
        ]
    );
    assert_eq!(extra.as_deref(), Some(r#"{"Amount":{"Value":1.50},"Comment":["a"]}"#));
    assert!(decoded.drift.is_empty(), "a field that has a column is not new");
}

#[test]
fn an_enumeration_may_come_as_its_number_and_as_a_name_nobody_knows() {
    let decoded = decode(
        "costs",
        &[
            r#"{"Id":1,"StatusType":2}"#,
            r#"{"Id":2,"StatusType":"Brand new"}"#,
            r#"{"Id":3,"StatusType":""}"#,
        ],
    );
    let expected = ["2", "Brand new", ""].map(|text| Some(text.to_owned()));
    assert_eq!(texts(&decoded, "status_type"), expected);
    assert!(decoded.rejects.is_empty());
}

#[test]
fn empty_text_is_text_and_no_date() {
    let decoded = decode("activities", &[r#"{"Id":1,"Subject":"","CreatedOn":""}"#]);
    assert_eq!(texts(&decoded, "subject"), [Some(String::new())]);
    assert_eq!(decoded.rejects[0].column.as_deref(), Some("created_on"));
    assert_eq!(texts(&decoded, "_extra"), [Some(r#"{"CreatedOn":""}"#.to_owned())]);
}

#[test]
fn long_text_and_text_of_any_script_survive() {
    let long = "æ\u{1F600}\\\"\n".repeat(40_000);
    let record = format!(r#"{{"Id":1,"Comment":{}}}"#, serde_json::Value::from(long.as_str()));
    let decoded = decode("costs", &[&record]);
    assert_eq!(texts(&decoded, "comment"), [Some(long)]);
}

#[test]
fn half_a_surrogate_pair_is_no_text_but_its_record_is_loaded() {
    let (decoded, extra) = cost(r#""Comment":"a\ud800b","Other":"\udc00""#);
    assert_eq!(faults(&decoded), [("comment", "not valid text (a broken escape)")]);
    assert_eq!(extra.as_deref(), Some(r#"{"Comment":"a\ud800b","Other":"\udc00"}"#));
}

#[test]
fn a_field_name_that_is_no_text_costs_the_record_and_no_other() {
    let decoded = decode("costs", &[r#"{"Id":1,"\ud800":1}"#, r#"{"Id":2}"#]);
    assert_eq!(ints(&decoded, "id"), [Some(2)]);
    assert!(decoded.any_without_key());
    assert_eq!(decoded.rejects[0].record_key, "17/Buyer/#1");
}

#[test]
fn of_a_field_that_stands_twice_the_last_value_counts() {
    let decoded = decode(
        "costs",
        &[
            r#"{"Id":1,"Amount":"x","Amount":5,"New":1,"New":2}"#,
            r#"{"Id":2,"Amount":5,"Amount":"x"}"#,
            r#"{"Id":3,"Id":4}"#,
        ],
    );
    let amounts = decoded.rows.column_by_name("amount").unwrap();
    assert_eq!(
        amounts.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>(),
        [Some(500), None, None]
    );
    assert_eq!(
        texts(&decoded, "_extra"),
        [Some(r#"{"New":2}"#.to_owned()), Some(r#"{"Amount":"x"}"#.to_owned()), None]
    );
    assert_eq!(ints(&decoded, "id"), [Some(1), Some(2), Some(4)]);
    assert_eq!(decoded.rejects.len(), 1);
}

#[test]
fn numbers_beyond_any_column_stay_as_they_came() {
    let (decoded, extra) = cost(r#""Amount":1E+30,"VAT":0.1234567,"New":-0.0,"Other":1E400"#);
    assert_eq!(faults(&decoded), [("amount", "out of range"), ("vat", "more than 6 decimals")]);
    assert_eq!(
        extra.as_deref(),
        Some(r#"{"Amount":1E+30,"New":-0.0,"Other":1E400,"VAT":0.1234567}"#)
    );
}

#[test]
fn deeply_nested_values_are_kept_without_a_deep_stack() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let context = context(PrivacyMode::Keep, PrivacyMode::Keep);
    let record = format!(r#"{{"Id":1,"Deep":{deep}}}"#);
    let decoded = decode_with(&context, "costs", &params(), &[&record]);
    assert_eq!(texts(&decoded, "_extra"), [Some(format!(r#"{{"Deep":{deep}}}"#))]);
}

#[test]
fn null_and_what_is_no_object_are_rejected_one_by_one() {
    let decoded = decode("costs", &[r#"{"Id":1}"#, "null", "[]", "17", r#"{"Id":2}"#]);
    assert_eq!(ints(&decoded, "id"), [Some(1), Some(2)]);
    assert!(decoded.any_without_key(), "what they were is not known: nothing may leave");
    let wheres: Vec<_> =
        decoded.rejects.iter().map(|r| (r.record_key.as_str(), r.error.as_str())).collect();
    assert_eq!(
        wheres,
        [
            ("17/Buyer/#2", "null where a record belongs"),
            ("17/Buyer/#3", "a list where a record belongs"),
            ("17/Buyer/#4", "a number where a record belongs"),
        ]
    );
}

#[test]
fn a_bare_value_that_does_not_fit_is_kept_under_its_column() {
    let decoded = decode("document_costs", &[r#""free""#]);
    assert_eq!(faults(&decoded), [("amount", "a string where a number belongs")]);
    assert_eq!(texts(&decoded, "_extra"), [Some(r#"{"amount":"free"}"#.to_owned())]);
}

/// The reference says of these no more than "list".
#[test]
fn serial_numbers_of_invoices_are_taken_as_numbers_and_as_texts() {
    let note = r#"{"Id":1,"InvoiceSerialNumbers":[42,"F-0042",null]}"#;
    let decoded = decode("notes", &[note]);
    assert_eq!(faults(&decoded), [("", ""); 0]);
    let lists = decoded.rows.column_by_name("invoice_serial_numbers").unwrap();
    let numbers = lists.as_list::<i32>().value(0);
    let numbers: Vec<Option<&str>> = numbers.as_string::<i32>().iter().collect();
    assert_eq!(numbers, [Some("42"), Some("F-0042"), None]);
}

/// A price per unit is a fraction, not an amount.
#[test]
fn a_price_of_an_hour_keeps_six_decimals() {
    let decoded = decode("property_conditions", &[r#"{"HourlyRate":1850.123456}"#]);
    assert_eq!(faults(&decoded), [("", ""); 0]);
    let rate = decoded.rows.column_by_name("hourly_rate").unwrap();
    assert_eq!(rate.as_primitive::<Decimal128Type>().value(0), 1_850_123_456);
}
