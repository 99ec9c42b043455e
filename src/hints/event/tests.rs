use jiff::tz::TimeZone;
use rstest::rstest;
use serde_json::json;

use super::*;

fn webhook(body: &Value) -> Vec<Told> {
    of_webhook(body.to_string().as_bytes(), &TimeZone::UTC).unwrap()
}

fn envelope(event: &str, payload: &Value) -> Value {
    json!({ "EventType": event, "EventCreatedDate": "2026-11-20T10:00:00.1234567+01:00", "Payload": payload })
}

/// Whoever tells something once would lose it with a body that is refused.
#[rstest]
#[case::half_a_character(r#"{"EventType": "ChecklistItemChecked", "Payload": {"Id": 7, "CaseId": 17, "Name": "\ud800"}}"#)]
#[case::a_large_number(
    r#"{"EventType": "ChecklistItemChecked", "Payload": {"Id": 7, "CaseId": 17, "X": 1e999}}"#
)]
fn what_no_parser_takes_of_a_body_loses_nothing_else(#[case] body: &str) {
    let told = of_webhook(body.as_bytes(), &TimeZone::UTC).unwrap();
    let [Told::Fact(fact)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((fact.id, fact.case_id), (Some(7), Some(17)));
}

#[test]
fn lists_within_lists_are_json_and_say_nothing() {
    let nested = format!("{{\"CaseId\": 17, \"x\": {}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let told = of_webhook(nested.as_bytes(), &TimeZone::UTC).unwrap();
    assert_eq!(told, [case(17, CasePart::Row)]);
    for body in ["{\"CaseId\": 17", "{'CaseId': 17}", ""] {
        assert_eq!(of_webhook(body.as_bytes(), &TimeZone::UTC), None, "{body}");
    }
    assert_eq!(json_of(b"\"\xff\""), None);
}

fn case(id: i64, part: CasePart) -> Told {
    Told::Hint(Hint::Case { id, part })
}

fn without_id(event: &str) -> Told {
    Told::WithoutId { event_type: event.to_owned() }
}

fn date(field: &str) -> CasePart {
    CasePart::Date(field.to_owned())
}

fn table(name: &str) -> CasePart {
    CasePart::Table(name.to_owned())
}

#[rstest]
#[case("AppropriationDateChanged", json!({"CaseId": 17}), vec![case(17, CasePart::Row)])]
#[case("CaseStatusChanged", json!({"CaseId": 17}), vec![case(17, CasePart::Row)])]
#[case("CaseSold", json!({"CaseId": 17}), vec![case(17, CasePart::Row)])]
#[case("PublicationChanged", json!({"CaseId": 17, "PublicationId": 3, "Type": 150}),
    vec![case(17, date("PublicationChangedDate")), case(17, table("property_conditions"))])]
#[case("OppdragCreated", json!({"CaseId": 17}), vec![case(17, CasePart::Row)])]
#[case("InteressentCreated", json!({"Id": 1, "ContactId": 5, "CaseId": 17}),
    vec![case(17, date("CaseEntityChangedDate")), Told::Hint(Hint::Contact { id: 5 })])]
#[case("InteressentChanged", json!({"Id": 1, "ContactId": 5, "CaseId": 17}),
    vec![case(17, date("CaseEntityChangedDate")), Told::Hint(Hint::Contact { id: 5 })])]
#[case("InteressentDeleted", json!({"Id": 1}), vec![Told::Hint(Hint::Role { id: 1 })])]
#[case("AktivitetCreated", json!({"Id": 1, "CaseId": 17, "Type": 3}),
    vec![case(17, date("ActivityChangedDate"))])]
#[case("AktivitetChanged", json!({"Id": 1.0, "CaseId": 17.0, "Type": 3}),
    vec![case(17, date("ActivityChangedDate"))])]
#[case("AktivitetDeleted", json!({"Id": 1, "CaseId": 17}),
    vec![case(17, date("ActivityChangedDate"))])]
#[case("SettlementStatusChanged", json!({"CaseId": 17}), vec![case(17, table("settlement_statuses"))])]
#[case("SellerInsuranceChanged", json!({"PropertyId": 17}), vec![case(17, table("property_information"))])]
#[case("EmployeeChanged", json!({"EmployeeId": 9, "EmployeeGuid": "x"}),
    vec![Told::Hint(Hint::Employee { id: 9 })])]
#[case("OfficeChanged", json!({"OfficeId": 2, "OfficeGuid": "x"}), vec![Told::Hint(Hint::Office { id: 2 })])]
#[case("ActivityParticipantCreated",
    json!({"Id": 1, "CaseId": 17, "ContactId": 5, "ActivityId": 8, "Type": "ShowingActivity"}),
    vec![case(17, date("ActivityChangedDate"))])]
#[case("ActivityParticipantDeleted", json!({"Id": 1, "CaseId": 17, "ActivityId": 8}),
    vec![case(17, date("ActivityChangedDate"))])]
fn every_event_type_names_what_is_read_again(
    #[case] event: &str,
    #[case] payload: Value,
    #[case] expected: Vec<Told>,
) {
    assert_eq!(webhook(&envelope(event, &payload)), expected);
}

#[rstest]
#[case("ChecklistItemChecked", json!({"CaseId": 17, "CaseGuid": "g", "Id": 4, "Key": "k", "DefinitionId": 6}), 4)]
#[case("MarketingPackageChanged", json!({"MarketingPackageId": 4, "CaseId": 17, "CaseGuid": "g"}), 4)]
#[case("HyperlinkChanged", json!({"GeneralTextId": 4, "CaseId": 17, "CaseGuid": "g"}), 4)]
fn what_no_call_reads_is_a_fact(#[case] event: &str, #[case] payload: Value, #[case] id: i64) {
    let expected = Fact {
        event_type: event.to_owned(),
        id: Some(id),
        case_id: Some(17),
        contact_id: None,
        employee_id: None,
        office_id: None,
        occurred_at: Some("2026-11-20T09:00:00.1234567Z".parse().unwrap()),
    };
    assert_eq!(webhook(&envelope(event, &payload)), [Told::Fact(expected)]);
}

#[test]
fn a_sale_text_has_two_forms() {
    let cases = json!([{"Id": 17, "Guid": "a"}, {"Id": 18, "Guid": "b"}]);
    let mut body = envelope("DynamicSaleTextChanged", &cases);
    body["RequireReload"] = json!(true);
    let whole =
        |id| [case(id, table("dynamic_sale_text_use")), case(id, table("dynamic_sale_texts"))];
    assert_eq!(webhook(&body), [whole(17), whole(18)].concat());
    body["RequireReload"] = json!(false);
    body["DynamicSaleTextHeaderId"] = json!(5);
    let texts = |id| case(id, table("dynamic_sale_texts"));
    assert_eq!(webhook(&body), [texts(17), texts(18)]);
}

#[test]
fn every_known_type_says_something() {
    let all = json!({
        "Id": 1, "CaseId": 2, "ContactId": 3, "PropertyId": 4, "EmployeeId": 5, "OfficeId": 6,
        "MarketingPackageId": 7, "GeneralTextId": 8,
    });
    for event in KNOWN {
        let told = webhook(&envelope(event, &all));
        assert!(!told.is_empty() && !matches!(told[0], Told::Unknown { .. }), "{event}: {told:?}");
    }
}

#[test]
fn names_and_numbers_are_taken_as_they_come() {
    let body = json!({"eventType": "casesold", "payload": {"caseId": "17"}});
    assert_eq!(webhook(&body), [case(17, CasePart::Row)]);
    let two = json!([
        envelope("CaseSold", &json!({"CaseId": 1})),
        envelope("CaseSold", &json!({"CaseId": 2}))
    ]);
    assert_eq!(webhook(&two), [case(1, CasePart::Row), case(2, CasePart::Row)]);
    for none in [
        json!({"CaseId": 0}),
        json!({"CaseId": -5}),
        json!({"CaseId": 1.5}),
        json!({}),
        json!(null),
    ] {
        assert_eq!(webhook(&envelope("CaseSold", &none)), [without_id("CaseSold")], "{none}");
    }
}

#[test]
fn an_unknown_type_is_named_and_nothing_of_its_payload_is_kept() {
    let body = envelope(&"x".repeat(500), &json!({"CaseId": 17, "Name": "Kari Nordmann"}));
    assert_eq!(webhook(&body), [Told::Unknown { event_type: "x".repeat(100) }]);
    assert_eq!(of_webhook(b"{\"EventType\": ", &TimeZone::UTC), None);
    assert_eq!(of_webhook(b"", &TimeZone::UTC), None);
    assert_eq!(webhook(&json!("text")), []);
}

#[test]
fn of_an_odd_payload_the_ids_are_searched() {
    let odd =
        envelope("CaseSold", &json!({"Sale": [{"Case": {"CaseId": 17}}], "By": {"employeeId": 9}}));
    assert_eq!(webhook(&odd).len(), 2);
    assert!(webhook(&odd).contains(&case(17, CasePart::Row)));
}

/// The platform takes a 200 for the last word: what is not where it is documented must not be lost.
#[rstest]
#[case(json!({"EventType": "CaseSold", "CaseId": 1001}), vec![case(1001, CasePart::Row)])]
#[case(json!({"EventType": "CaseSold", "Data": {"CaseId": 1001}}), vec![case(1001, CasePart::Row)])]
#[case(json!({"EventType": "CaseSold", "Payload": null, "Case": {"Id": 1001}}), vec![case(1001, CasePart::Row)])]
#[case(json!({"EventType": "AktivitetChanged", "Payload": "{\"CaseId\": 1001}"}),
    vec![case(1001, date("ActivityChangedDate"))])]
#[case(json!({"EventType": "CaseSold", "Payload": "{\"Sale\": {\"CaseId\": 1001}}"}), vec![case(1001, CasePart::Row)])]
#[case(json!({"EventType": "CaseSold", "Payload": "sold", "CaseId": 1001}), vec![case(1001, CasePart::Row)])]
#[case(json!({"EventType": "interessentdeleted", "Id": 5}), vec![without_id("InteressentDeleted")])]
#[case(json!({"EventType": "CaseSold", "Payload": {"Guid": "g"}}), vec![without_id("CaseSold")])]
fn a_payload_that_is_elsewhere_is_found_or_told_of(
    #[case] body: Value,
    #[case] expected: Vec<Told>,
) {
    assert_eq!(webhook(&body), expected);
}

#[test]
fn a_domain_event_has_its_payload_as_text_or_is_told_of() {
    let told = |data: Value| {
        of_domain_events(&[json!({"eventType": "CaseSold", "data": data})], &TimeZone::UTC)
    };
    assert_eq!(told(json!({"Payload": "{\"CaseId\": 17}"})), [case(17, CasePart::Row)]);
    assert_eq!(told(json!({"Payload": {"Guid": "g"}})), [without_id("CaseSold")]);
}

#[test]
fn a_fact_that_says_nothing_has_whatever_else_is_named_read() {
    let told = webhook(&json!({"EventType": "ChecklistItemChecked", "Item": {"CaseId": 17}}));
    assert!(matches!(&told[0], Told::Fact(fact) if fact.case_id.is_none()), "{told:?}");
    assert_eq!(told[1..], [case(17, CasePart::Row)]);
    let flat = json!({"EventType": "ChecklistItemChecked", "Id": 9, "CaseId": 17, "EmployeeId": 3});
    let told = webhook(&flat);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        matches!(&told[0], Told::Fact(fact) if fact.case_id == Some(17) && fact.employee_id == Some(3)),
        "{told:?}"
    );
    let told = webhook(&json!({"EventType": "ChecklistItemChecked"}));
    assert_eq!(told[1..], [without_id("ChecklistItemChecked")]);
}

#[test]
fn domain_events_mean_what_webhooks_of_their_type_mean_and_others_what_they_name() {
    let events = [
        json!({"eventType": "Brokerage.Cases.AktivitetChanged", "data": {"caseId": 17}}),
        json!({"type": "Something.New", "time": "2026-11-20T10:00:00Z",
            "data": {"deep": [{"ContactId": 5}, {"ContactId": 5}], "case": {"id": 3, "CaseId": 18}}}),
        json!({"eventType": "ChecklistItemChecked", "eventTime": "2026-11-20T10:00:00Z",
            "data": {"Payload": {"Id": 4, "CaseId": 17}}}),
    ];
    let told = of_domain_events(&events, &TimeZone::UTC);
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[0], case(17, date("ActivityChangedDate")));
    assert!(told.contains(&Told::Hint(Hint::Contact { id: 5 })));
    assert!(told.contains(&case(18, CasePart::Row)));
    assert!(
        matches!(&told[3], Told::Fact(fact) if fact.id == Some(4) && fact.occurred_at.is_some())
    );
}

/// The reference does not show them.
#[rstest]
#[case("EmployeeChanged", json!({"Employee": {"Id": 9, "Guid": "x"}}), vec![Told::Hint(Hint::Employee { id: 9 })])]
#[case("OfficeChanged", json!({"office": {"id": "2"}}), vec![Told::Hint(Hint::Office { id: 2 })])]
#[case("CaseSold", json!({"Case": {"CaseId": 17, "Id": 3}}), vec![case(17, CasePart::Row)])]
#[case("DynamicSaleTextChanged", json!({"items": [{"Id": 17}, {"Id": 17}], "RequireReload": false}),
    vec![case(17, table("dynamic_sale_texts"))])]
#[case("DynamicSaleTextChanged", json!({"Case": {"Id": 17}, "Id": 18, "RequireReload": false}),
    vec![case(18, table("dynamic_sale_texts"))])]
#[case("New", json!({"caseIds": [17, "18"], "Contact": {"Id": 5}}),
    vec![Told::Hint(Hint::Contact { id: 5 }), case(17, CasePart::Row), case(18, CasePart::Row)])]
fn ids_of_domain_events_are_found_in_whatever_form(
    #[case] event: &str,
    #[case] data: Value,
    #[case] expected: Vec<Told>,
) {
    let events = [json!({"eventType": event, "data": data})];
    let told = of_domain_events(&events, &TimeZone::UTC);
    assert_eq!(told, expected);
}

#[test]
fn a_fact_of_a_domain_event_has_its_ids_in_whatever_form() {
    let data = json!({"MarketingPackage": {"Id": 4}, "Case": {"Id": 17, "Guid": "g"}});
    let events = [json!({"eventType": "MarketingPackageChanged", "data": data})];
    let told = of_domain_events(&events, &TimeZone::UTC);
    let [Told::Fact(fact)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((fact.id, fact.case_id), (Some(4), Some(17)));
}

#[test]
fn a_type_that_is_a_number_is_noted_and_its_ids_are_searched() {
    let told = webhook(&json!({"EventType": 8, "Payload": {"CaseId": 17}}));
    assert_eq!(told, [Told::Unknown { event_type: "8".to_owned() }, case(17, CasePart::Row)]);
}

#[test]
fn a_long_list_of_texts_is_taken_whole_and_each_case_once() {
    let mut cases: Vec<Value> = (1..=20_000).map(|id| json!({"Id": id})).collect();
    cases.extend_from_within(..);
    let mut body = envelope("DynamicSaleTextChanged", &json!(cases));
    body["RequireReload"] = json!(true);
    assert_eq!(webhook(&body).len(), 40_000);
}

#[test]
fn what_is_nested_without_end_is_not_followed() {
    let mut value = json!({"CaseId": 17});
    for _ in 0..100 {
        value = json!({"in": value});
    }
    assert_eq!(named_anywhere(&value), []);
}
