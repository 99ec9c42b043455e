mod children;
mod private;
mod values;

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use serde_json::value::RawValue;

use super::*;
use crate::catalog::{Catalog, Class};
use crate::config::PrivacyMode;
use crate::fuzz::{self, Mutated};

fn context(identifiers: PrivacyMode, contact_details: PrivacyMode) -> Context {
    let settings = crate::config::Privacy { identifiers, contact_details };
    Context {
        zone: TimeZone::get("Europe/Oslo").unwrap(),
        privacy: Privacy::new(&settings, [7; 32]),
        disabled: Arc::new([]),
        generation: 1,
    }
}

fn decode_with(context: &Context, table: &str, params: &Params, records: &[&str]) -> Decoded {
    decode_by(&Catalog::load(None).unwrap(), context, table, params, records)
}

fn decode_by(
    catalog: &Catalog,
    context: &Context,
    table: &str,
    params: &Params,
    records: &[&str],
) -> Decoded {
    let mut decoder = Decoder::new(catalog, catalog.get(table).unwrap(), context, records.len());
    for record in records {
        let raw: &RawValue = serde_json::from_str(record).unwrap();
        decoder.push(raw.get(), params);
    }
    decoder.finish().unwrap()
}

/// The parameters of every path that the built-in tables have.
fn params() -> Params {
    let mut params = Params::new();
    params.insert("case_id".to_owned(), Param::Int(17));
    params.insert("cost_type".to_owned(), Param::Text("Buyer".to_owned()));
    params
}

fn decode(table: &str, records: &[&str]) -> Decoded {
    decode_with(&context(PrivacyMode::Hash, PrivacyMode::Keep), table, &params(), records)
}

/// Column and error of each reject.
fn faults(decoded: &Decoded) -> Vec<(&str, &str)> {
    decoded
        .rejects
        .iter()
        .map(|r| (r.column.as_deref().unwrap_or("(record)"), r.error.as_str()))
        .collect()
}

fn texts(decoded: &Decoded, column: &str) -> Vec<Option<String>> {
    let array = decoded.rows.column_by_name(column).unwrap().as_string::<i32>();
    (0..array.len()).map(|i| array.is_valid(i).then(|| array.value(i).to_owned())).collect()
}

fn ints(decoded: &Decoded, column: &str) -> Vec<Option<i64>> {
    decoded.rows.column_by_name(column).unwrap().as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn a_value_that_does_not_fit_leaves_the_row_and_stays_in_extra() {
    let decoded =
        decode("costs", &[r#"{"Id":1,"Amount":12.345,"Comment":"x"}"#, r#"{"Id":2,"Amount":7}"#]);
    let amounts = decoded.rows.column_by_name("amount").unwrap();
    assert_eq!(
        amounts.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>(),
        [None, Some(700)]
    );
    assert_eq!(texts(&decoded, "_extra"), [Some(r#"{"Amount":12.345}"#.to_owned()), None]);
    assert_eq!(
        decoded.rejects,
        [Reject {
            table: "costs".into(),
            scope: Some(17),
            record_key: "17/Buyer/1".into(),
            column: Some("amount".into()),
            value: Some("12.345".into()),
            error: "more than 2 decimals".into(),
        }]
    );
}

#[test]
fn unknown_fields_are_kept_digit_by_digit_in_one_form_and_reported_once() {
    let decoded = decode(
        "costs",
        &[
            r#"{"Id":1, "Zeta": 1.10, "Alpha": {"b" : 1e2, "a":[ 1 , 2.50]}}"#,
            r#"{"Id":2, "Zeta": 3}"#,
        ],
    );
    assert_eq!(
        texts(&decoded, "_extra"),
        [
            Some(r#"{"Alpha":{"a":[1,2.50],"b":1e2},"Zeta":1.10}"#.to_owned()),
            Some(r#"{"Zeta":3}"#.to_owned())
        ]
    );
    let fields: Vec<_> = decoded.drift.iter().map(|d| d.field.as_str()).collect();
    assert_eq!(fields, ["Alpha", "Zeta"]);
}

#[test]
fn a_record_without_key_is_rejected_whole_and_the_scope_deletes_nothing() {
    let decoded = decode("costs", &[r#"{"Amount":1}"#, r#"{"Id":"x"}"#, r#"{"Id":3}"#]);
    assert_eq!(ints(&decoded, "id"), [Some(3)]);
    assert!(decoded.any_without_key());
    let keys: Vec<_> = decoded.rejects.iter().map(|r| (r.record_key.as_str(), &r.column)).collect();
    assert_eq!(keys, [("17/Buyer/#1", &None), ("17/Buyer/#2", &None)]);
}

#[test]
fn of_two_records_with_one_key_equal_ones_are_one_and_of_others_the_last_wins() {
    let decoded = decode(
        "costs",
        &[
            r#"{"Id":1,"Comment":"a"}"#,
            r#"{"Comment":"a" , "Id":1}"#,
            r#"{"Id":2,"Comment":"first"}"#,
            r#"{"Id":2,"Comment":"last"}"#,
        ],
    );
    assert_eq!(texts(&decoded, "comment"), [Some("a".to_owned()), Some("last".to_owned())]);
    assert_eq!(decoded.rejects.len(), 1);
    assert_eq!(decoded.rejects[0].record_key, "17/Buyer/2");
    assert_eq!(decoded.rejects[0].column, None);
}

#[test]
fn lists_null_absent_and_empty_are_told_apart() {
    let decoded = decode_with(
        &context(PrivacyMode::Keep, PrivacyMode::Keep),
        "cases",
        &Params::new(),
        &[
            r#"{"Id":1,"SellerIds":[1,2]}"#,
            r#"{"Id":2,"SellerIds":[]}"#,
            r#"{"Id":3,"SellerIds":null}"#,
            r#"{"Id":4}"#,
            r#"{"Id":5,"SellerIds":[1,"x"]}"#,
        ],
    );
    let lists = decoded.rows.column_by_name("seller_ids").unwrap().as_list::<i32>();
    assert_eq!(lists.value_length(0), 2);
    assert!(lists.is_valid(1) && lists.value_length(1) == 0);
    assert!(lists.is_null(2) && lists.is_null(3) && lists.is_null(4));
    assert_eq!(decoded.rejects.len(), 1);
    assert_eq!(decoded.rejects[0].error, "element 2: a string where a whole number belongs");
}

#[test]
fn a_bare_value_is_a_row_of_a_table_that_has_a_column_for_it() {
    let decoded = decode("document_costs", &["12345.5"]);
    let amounts = decoded.rows.column_by_name("amount").unwrap();
    assert_eq!(amounts.as_primitive::<Decimal128Type>().value(0), 1_234_550);
    assert_eq!(ints(&decoded, "case_id"), [Some(17)]);
}

#[test]
fn a_list_of_copies_is_left_out_altogether() {
    let decoded = decode("property_conditions", &[r#"{"AskingPrice":1,"Costs":[{"Id":1}]}"#]);
    assert_eq!(texts(&decoded, "_extra"), [None]);
    assert!(decoded.drift.is_empty());
}

#[test]
fn instants_are_cut_to_microseconds() {
    let decoded =
        decode("activities", &[r#"{"Id":1,"CreatedOn":"2026-04-28T11:26:41.5334829+02:00"}"#]);
    let created = decoded.rows.column_by_name("created_on").unwrap();
    assert_eq!(created.as_primitive::<TimestampMicrosecondType>().value(0) % 1_000_000, 533_482);
}

#[test]
fn of_many_values_that_do_not_fit_some_are_told_one_by_one_and_the_others_by_column() {
    let records: Vec<String> = (1..=5_001)
        .map(|id| format!("{{\"Id\": {id}, \"Amount\": \"much\", \"Selected\": \"perhaps\"}}"))
        .chain(["{}".to_owned(), "{}".to_owned()])
        .collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let decoded = decode("costs", &records);
    assert_eq!(decoded.rows.num_rows(), 5_001, "all that have a key are loaded");
    let more: Vec<(Option<&str>, &str, Option<i64>)> = decoded.rejects[10_000..]
        .iter()
        .map(|r| (r.column.as_deref(), r.record_key.as_str(), r.scope))
        .collect();
    assert_eq!(
        more,
        [(None, "#", Some(17)), (Some("amount"), "#", Some(17)), (Some("selected"), "#", Some(17))]
    );
    assert!(decoded.rejects[10_000].error.starts_with("2 more"));
    assert!(decoded.without_key);
}

#[test]
fn of_many_new_fields_some_are_told_and_all_are_kept() {
    let fields: Vec<String> = (0..5_000).map(|n| format!("\"Field{n}\": {n}")).collect();
    let record = format!("{{\"Id\": 1, {}}}", fields.join(", "));
    let decoded = decode("notes", &[&record]);
    assert_eq!(decoded.drift.len(), 200);
    let extra = texts(&decoded, "_extra").remove(0).unwrap();
    assert!(extra.contains("\"Field4999\":4999"));
}

const RECORDS: [&str; 5] = [
    r#"{"Id":17,"CaseId":17,"AskingPrice":1250000.50,"SellerEmails":["a@b.no"],"ModifiedDate":"2026-04-28T11:26:41.5334824","Sub":{"A":[1,{"B":null}]}}"#,
    r#"{"Id":50001,"Name":"Ola Nordmann","Email":"ola@example.no","IdentificationNumber":"01017012345","PhoneNumbers":["1",null]}"#,
    r#"{"RevenueReferralKey":"k","CaseId":17,"Payment":-12.345,"PurchasePrice":1e3,"Annotations":[{"PaymentChange":0.1},7,null]}"#,
    r#"{"Id":1,"Message":"a\u00e6\n","ContactIds":[1,2.0,"3"],"CaseIds":null,"IsImportant":"yes"}"#,
    r#"{"Id":9223372036854775808,"Amount":"12","Selected":1,"Deleted":null,"Id":5}"#,
];

/// Whatever a record is, it becomes the same rows each time, and what is kept of it beside them is JSON.
#[test]
fn fuzz_decoder() {
    let catalog = Catalog::load(None).unwrap();
    let tables = ["cases", "contacts", "revenue_journals", "notes", "costs", "employees"];
    let mut params = params();
    for (name, value) in [("journal_level", "offices"), ("journal_month", "2026-10-01")] {
        params.insert(name.to_owned(), Param::Text(value.to_owned()));
    }
    params.insert("journal_id".to_owned(), Param::Int(11));
    let corpus: Vec<&[u8]> = RECORDS.iter().map(|text| text.as_bytes()).collect();
    let modes = [PrivacyMode::Keep, PrivacyMode::Hash, PrivacyMode::Drop];
    let input = bolero::check!().with_type::<(Mutated, Mutated, u8)>().with_test_time(fuzz::TIME);
    input.for_each(|(one, other, mode)| {
        let context = context(modes[usize::from(*mode) % 3], modes[usize::from(*mode / 3) % 3]);
        let texts = [one, other].map(|input| input.of(&corpus, &fuzz::JSON));
        let records: Vec<&str> = texts
            .iter()
            .filter_map(|text| serde_json::from_slice::<&RawValue>(text).ok())
            .map(RawValue::get)
            .collect();
        for table in tables {
            let decoded = decode_by(&catalog, &context, table, &params, &records);
            let again = decode_by(&catalog, &context, table, &params, &records);
            assert_eq!(decoded.rows, again.rows, "{table}");
            assert!(decoded.rows.num_rows() <= records.len());
            let extra = decoded.rows.column_by_name("_extra").unwrap().as_string::<i32>();
            let kept = extra.iter().flatten().map(str::to_owned);
            let kept = kept.chain(decoded.all_rejects().into_iter().filter_map(|r| r.value));
            for text in kept.chain(decoded.all_drift().into_iter().filter_map(|d| d.example)) {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).unwrap();
            }
        }
    });
}
