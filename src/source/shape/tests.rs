use super::*;
use rstest::rstest;

fn of(shape: Shape) -> Arc<Expected> {
    Arc::new(Expected {
        table: "roles".to_owned(),
        shape,
        fields: ["Id", "CaseId", "Name", "Floor"].map(str::to_owned).into(),
        asked: vec![("CaseId".to_owned(), 17)],
        pardons: Pardons::Nothing,
    })
}

fn judged(shape: Shape, body: &str) -> String {
    fault(body.as_bytes(), Some(&of(shape)), 3).map_or(String::new(), |e| e.to_string())
}

#[rstest]
#[case::bare(Shape::List, r#"[{"Id": 1}, {"Name": "x", "More": {"Id": 1, "Id": 2}}]"#)]
#[case::counted(Shape::List, r#"{"Count": 1, "Results": [{"Id": 1}]}"#)]
#[case::nothing(Shape::List, "[]")]
#[case::nothing_counted(Shape::List, r#"{"Count": 0, "Results": null}"#)]
#[case::not_counted(Shape::List, r#"{"Results": [{"Id": 1}]}"#)]
#[case::count_of_null(Shape::List, r#"{"Count": null, "Results": [{"Id": 1}]}"#)]
#[case::values(Shape::List, r#"["a", 1, null]"#)]
#[case::own(Shape::List, r#"[{"CaseId": 17}, {"CaseId": "17"}, {"CaseId": null}]"#)]
#[case::own_with_zeros(Shape::List, r#"[{"CaseId": 17.0}, {"CaseId": 1.7e1}]"#)]
#[case::record(Shape::Record, r#"{"Id": 1, "New": 2}"#)]
#[case::message(Shape::Record, r#"{"Id": 1, "Message": "Call first", "Floor": 2}"#)]
#[case::no_message(Shape::Record, r#"{"Id": 1, "Message": null}"#)]
#[case::none(Shape::Record, "")]
#[case::null(Shape::Record, " null ")]
#[case::value(Shape::Scalar, "17.5")]
#[case::no_value(Shape::Scalar, "")]
fn what_was_asked_for_is_an_answer(#[case] shape: Shape, #[case] body: &str) {
    assert_eq!(judged(shape, body), "");
}

#[rstest]
#[case::empty_list(Shape::List, "", "the answer of roles is empty")]
#[case::blank_list(Shape::List, " \r\n", "is empty")]
#[case::null_list(Shape::List, "null", "is not a list")]
#[case::value(Shape::List, "17", "is not a list")]
#[case::error_for_a_list(Shape::List, r#"{"Message": "An error"}"#, "fields Message")]
#[case::error_in_a_list(Shape::List, r#"[{"Id": 1}, {"Message": "An error"}]"#, "met Message")]
#[case::error_counted(Shape::List, r#"{"Results": [{"Message": "An error"}]}"#, "met Message")]
#[case::error(Shape::Record, r#"{"Message": "An error"}"#, "met Message")]
#[case::error_with_an_id(Shape::Record, r#"{"Id": 1, "Message": "An error"}"#, "is an er")]
#[case::error_by_the_id(Shape::Record, r#"{"CaseId": 17, "detail": "An error"}"#, "is an er")]
#[case::error_without_values(
    Shape::Record,
    r#"{"Message": "An error", "Floor": null}"#,
    "is an er"
)]
#[case::names_of_persons(
    Shape::Record,
    r#"{"Message": "x", "Ola Nordmann": 1}"#,
    "met Message and 1 more"
)]
#[case::no_field(Shape::Record, "{}", "no field at all")]
#[case::list(Shape::Record, r#"[{"Id": 1}]"#, "not an object")]
#[case::blank(Shape::Record, " ", "is empty")]
#[case::form_feed(Shape::Record, "null\u{c}", "not an object")]
#[case::form_feed_in_a_value(Shape::Scalar, "null\u{c}", "broken JSON")]
#[case::object(Shape::Scalar, r#"{"Message": "An error"}"#, "not a bare value")]
#[case::twice_as_before(
    Shape::List,
    r#"[{"Id": 1, "A": 1}, {"Id": 2, "A": 1, "Id": 3}]"#,
    "the field Id twice"
)]
#[case::twice_in_another_order(
    Shape::List,
    r#"[{"Id": 1, "A": 1}, {"A": 1, "Id": 2, "A": 3}]"#,
    "names a field twice"
)]
#[case::twice_then_as_before(
    Shape::List,
    r#"[{"Id": 1, "A": 1, "B": 1}, {"A": 1, "A": 2, "B": 3}]"#,
    "names a field twice"
)]
#[case::no_text(Shape::List, "[{\"Id\": \"\\ud800\"}, 1 2]", "broken JSON")]
#[case::twice(Shape::Record, r#"{"Id": 1, "Name": "x", "Id": 2}"#, "the field Id twice")]
#[case::escaped(Shape::Record, r#"{"Id": 1, "\u0049d": 2}"#, "the field Id twice")]
#[case::unknown_twice(Shape::List, r#"[{"Id": 1, "A": 1, "A": 1}]"#, "names a field twice")]
#[case::envelope(Shape::List, r#"{"Count": 1, "Count": 2, "Results": []}"#, "Count twice")]
#[case::results(Shape::List, r#"{"Results": [{"Id": 1}], "Results": []}"#, "Results twice")]
#[case::none_below_none(Shape::List, r#"{"Count": -1, "Results": []}"#, "no number of records")]
#[case::count_in_quotes(Shape::List, r#"{"Count": "0", "Results": []}"#, "no number of records")]
#[case::no_count(Shape::List, r#"{"Results": [], "Count": null}"#, "neither records nor")]
#[case::nothing_said(Shape::List, r#"{"Results": []}"#, "neither records nor a Count")]
#[case::nothing_at_all(Shape::List, r#"{"Results": null}"#, "neither records nor a Count")]
#[case::other(Shape::List, r#"[{"CaseId": 17}, {"CaseId": 18}]"#, "asked for 17")]
#[case::other_text(Shape::Record, r#"{"CaseId": "x"}"#, "another CaseId")]
#[case::many(Shape::List, r#"[{"Id": 1}, {"Id": 2}, {"Id": 3}, {"Id": 4}]"#, "more than 3")]
#[case::cut(Shape::List, r#"[{"Id": 1}, {"Id": 2"#, "ends too early")]
#[case::more(Shape::List, "[] []", "broken JSON")]
fn anything_else_is_a_fault(#[case] shape: Shape, #[case] body: &str, #[case] what: &str) {
    let said = judged(shape, body);
    assert!(said.contains(what), "{said}");
    assert!(!said.contains("An error"), "no value is repeated: {said}");
}

#[test]
fn of_an_answer_of_which_nothing_is_known_only_the_names_are_looked_at() {
    assert!(fault(br#"{"Message": "x"}"#, None, 3).is_none());
    assert!(fault(b"", None, 3).is_none());
    assert!(fault(br#"{"Id": 1, "Id": 2}"#, None, 3).is_some());
}
