//! Scripted disturbances.

use std::io::Read as _;

use super::*;

fn fault(path: &str, fault: Fault) -> Rule {
    Rule { method: None, path: path.to_owned(), query: None, nth: 1, count: Some(1), fault }
}

#[tokio::test]
async fn faults_befall_the_calls_they_name() {
    let caller = Caller::new(quiet()).await;
    let headers = [("Retry-After".to_owned(), "7".to_owned())].into();
    caller
        .sandbox
        .fault(fault("/api/Offices", Fault::Refuse { status: 503, headers, body: String::new() }));
    let refused = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["Retry-After"]),
        (503, &"7".parse().unwrap())
    );
    caller.get("/api/Offices").await;

    caller.sandbox.fault(fault("/api/*", Fault::CutOff { bytes: Some(20) }));
    let cut = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
    assert!(cut.text().await.is_err());

    let garbage = Fault::Garbage { body: "<html>".to_owned(), status: None, content_type: None };
    caller.sandbox.fault(fault("/api/Offices", garbage));
    let answer = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "<html>");

    let id = caller.sandbox.case_ids()[0];
    let drafts = format!("/api/Integrations/Bookkeeping/Cases/{id}/EntryDrafts");
    let count = caller.rows("entry_drafts").len();
    caller.sandbox.fault(fault(&drafts, Fault::LoseAnswer));
    let order = json!({"EntryDefinitionId": 202, "Amount": 5});
    assert!(caller.send(Method::POST, &drafts, Some(order)).await.is_err());
    assert_eq!(caller.rows("entry_drafts").len(), count + 1);

    caller.sandbox.fault(fault("/api/Employees", Fault::MaxTop { top: 3 }));
    let (status, _) = caller.ask(Method::GET, "/api/Employees?$top=4").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    caller.sandbox.fault(fault("/api/Employees", Fault::IgnorePaging));
    assert!(caller.get("/api/Employees?$top=1").await.as_array().unwrap().len() > 30);
}

#[tokio::test]
async fn an_answer_held_after_it_was_computed_is_old_when_it_comes() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    let path = format!("/api/Cases/{id}/Activities?$top=500");
    let count = caller.get(&path).await.as_array().unwrap().len();
    for (when, expected) in [(When::After, count), (When::Before, count + 2)] {
        let hold = Fault::Hold { name: "slow".to_owned(), when };
        caller.sandbox.fault(fault("/api/Cases/*/Activities", hold));
        let change = async {
            assert!(caller.sandbox.wait_until_held("slow").await);
            caller.change(id, Facet::Activity);
            caller.sandbox.release("slow");
        };
        let (answer, ()) = tokio::join!(caller.get(&path), change);
        assert_eq!(answer.as_array().unwrap().len(), expected, "{when:?}");
    }
}

/// The next answer to a path, spoilt: its status, and its body as text.
async fn spoilt(caller: &Caller, path: &str, how: Spoil) -> (u16, String) {
    caller.sandbox.fault(fault(path.split('?').next().unwrap(), Fault::Spoil { how }));
    let answer = caller.send(Method::GET, path, None).await.unwrap();
    let length = answer.headers()["Content-Length"].to_str().unwrap().to_owned();
    let (status, bytes) = (answer.status().as_u16(), answer.bytes().await.unwrap());
    assert_eq!(length, bytes.len().to_string());
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

fn json_of(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn a_spoilt_list_says_what_is_not_so() {
    let caller = Caller::new(Options { gzip: true, ..quiet() }).await;
    let path = "/api/Employees";
    let whole = caller.get(path).await;
    let whole = whole.as_array().unwrap();
    assert!(whole.len() > 2);

    let (status, text) = spoilt(&caller, path, Spoil::DuplicateRecord).await;
    let (last, rest) = (whole.len() - 1, &whole[..whole.len() - 1]);
    let json = json_of(&text);
    assert_eq!((status, &json.as_array().unwrap()[..last]), (200, rest));
    assert_eq!(json[last], whole[0]);
    let (_, text) = spoilt(&caller, path, Spoil::DropRecord).await;
    assert_eq!(json_of(&text).as_array().unwrap(), rest);
    assert_eq!(spoilt(&caller, path, Spoil::EmptyList).await.1, "[]");
    let (_, text) = spoilt(&caller, path, Spoil::DuplicateKey).await;
    let first = text.split(['"', ':']).nth(1).unwrap();
    assert!(text.starts_with(&format!("[{{\"{first}\":null,\"{first}\":")), "{text}");
    assert_eq!(json_of(&text).as_array().unwrap(), whole);
    let (_, text) = spoilt(&caller, path, Spoil::WrongShape).await;
    assert_eq!(text, r#"{"Message":"An error has occurred."}"#);
    let (status, text) = spoilt(&caller, path, Spoil::EmptyBody).await;
    assert_eq!((status, text.as_str()), (200, ""));
    // What it hits is said; what comes after is as it was.
    assert_eq!(caller.get(path).await.as_array().unwrap(), whole);
}

#[tokio::test]
async fn a_counted_page_keeps_its_count_where_a_record_is_missing() {
    let caller = Caller::new(quiet()).await;
    let query = "$inlinecount=allpages&$top=1000";
    let whole = caller.search("Property", query).await;
    let (count, records) = (&whole["Count"], whole["Results"].as_array().unwrap());
    for (how, expected) in [(Spoil::DropRecord, records.len() - 1), (Spoil::EmptyList, 0)] {
        caller.sandbox.fault(fault("/api/Search/AdvancedPropertySearch", Fault::Spoil { how }));
        let spoilt = caller.search("Property", query).await;
        assert_eq!(spoilt["Results"].as_array().unwrap().len(), expected, "{how:?}");
        assert_eq!(spoilt["Count"] == *count, how == Spoil::DropRecord);
    }
    let how = Spoil::ForeignId;
    caller.sandbox.fault(fault("/api/Search/AdvancedPropertySearch", Fault::Spoil { how }));
    let spoilt = caller.search("Property", query).await;
    for (own, other) in records.iter().zip(spoilt["Results"].as_array().unwrap()) {
        // Few rows of a search repeat the case's id under its other name.
        let name = if own["CaseId"].is_null() { "Id" } else { "CaseId" };
        let (own, other) = (own[name].as_i64().unwrap(), other[name].as_i64().unwrap());
        assert_eq!(own + 1_000_000, other);
    }
}

#[tokio::test]
async fn a_spoilt_record_is_another_ones_or_none() {
    let caller = Caller::new(quiet()).await;
    let contact = caller.rows("contacts")[0]["id"].as_i64().unwrap();
    let path = format!("/api/Contacts/{contact}");
    let whole = caller.get(&path).await;
    let (_, text) = spoilt(&caller, &path, Spoil::ForeignId).await;
    assert_eq!(json_of(&text)["Id"].as_i64(), Some(contact + 1_000_000));
    let (_, text) = spoilt(&caller, &path, Spoil::WrongShape).await;
    assert_eq!(json_of(&text), json!([whole]));
    assert_eq!(spoilt(&caller, &path, Spoil::EmptyList).await.1, "[]");

    let case_id = caller.rows("estimated_costs")[0]["case_id"].as_i64().unwrap();
    let path = format!("/api/Conditions/Cases/{case_id}/EstimatedCosts/false");
    let (_, text) = spoilt(&caller, &path, Spoil::DropRecord).await;
    assert_eq!(json_of(&text), caller.get(&path).await);

    // A refusal stays one.
    let (status, _) = spoilt(&caller, "/api/Contacts/1", Spoil::EmptyList).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn an_answer_can_be_spoilt_on_its_way() {
    let caller = Caller::new(quiet()).await;
    let path = "/api/Employees";
    let whole = caller.get(path).await.to_string();
    let (_, text) = spoilt(&caller, path, Spoil::Truncate).await;
    assert!(serde_json::from_str::<Json>(&text).is_err());
    assert!(text.len() >= whole.len() / 3, "{} of {}", text.len(), whole.len());
    let (_, text) = spoilt(&caller, path, Spoil::Html).await;
    assert!(text.starts_with("<!DOCTYPE html>"), "{text}");
    let (_, text) = spoilt(&caller, path, Spoil::NotUtf8).await;
    assert!(text.contains('\u{fffd}'));
    caller.sandbox.fault(fault(path, Fault::Spoil { how: Spoil::GzipGarbage }));
    let answer = caller.send(Method::GET, path, None).await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let mut unpacked = Vec::new();
    let unpacking = flate2::read::GzDecoder::new(&*answer.bytes().await.unwrap())
        .read_to_end(&mut unpacked)
        .unwrap_err();
    assert_ne!(unpacking.to_string(), "invalid gzip header", "it looks like gzip, and is none");
}

#[tokio::test]
async fn a_raw_answer_is_all_that_comes_and_the_connection_ends() {
    let caller = Caller::new(quiet()).await;
    for (answer, body) in
        [("HTTP/1.0 200 OK\r\n\r\n", ""), ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[]", "[]")]
    {
        caller.sandbox.fault(fault("/api/Offices", Fault::Raw { answer: answer.to_owned() }));
        let response = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("Date"), "{:?}", response.headers());
        assert_eq!(response.text().await.unwrap(), body);
        caller.get("/api/Offices").await;
    }
    // The work is done.
    let id = caller.sandbox.case_ids()[0];
    let drafts = format!("/api/Integrations/Bookkeeping/Cases/{id}/EntryDrafts");
    let count = caller.rows("entry_drafts").len();
    let answer = "HTTP/1.0 200 OK\r\n\r\n".to_owned();
    caller.sandbox.fault(fault(&drafts, Fault::Raw { answer }));
    let order = json!({"EntryDefinitionId": 202, "Amount": 5});
    caller.send(Method::POST, &drafts, Some(order)).await.unwrap();
    assert_eq!(caller.rows("entry_drafts").len(), count + 1);
}

#[tokio::test]
async fn dishonest_answers_can_be_ordered_over_http() {
    let caller = Caller::new(quiet()).await;
    let url = format!("{}/sandbox/faults", caller.sandbox.control_url());
    for (order, body) in [
        (r#"{"kind": "spoil", "how": "empty_list"}"#, "[]"),
        (r#"{"kind": "raw", "answer": "HTTP/1.0 200 OK\r\n\r\n{}"}"#, "{}"),
    ] {
        let rule = format!(r#"{{"path": "/api/Offices", "count": 1, "fault": {order}}}"#);
        let ordered = caller.http.post(&url).body(rule).send().await.unwrap();
        assert!(ordered.status().is_success());
        let answer = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
        assert_eq!(answer.text().await.unwrap(), body);
    }
    let names = Spoil::ALL.map(|how| serde_json::to_value(how).unwrap());
    assert_eq!(
        json!(names),
        json!([
            "duplicate_record",
            "drop_record",
            "empty_list",
            "foreign_id",
            "duplicate_key",
            "truncate",
            "wrong_shape",
            "empty_body",
            "not_utf8",
            "html",
            "gzip_garbage"
        ])
    );
}
