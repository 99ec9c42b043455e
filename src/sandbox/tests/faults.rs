//! Scripted disturbances.

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
