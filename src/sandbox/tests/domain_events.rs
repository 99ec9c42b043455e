//! Domain events, their subscriptions and the handshake.

use axum::response::{IntoResponse as _, Response as Answer};

use super::receiver::{Arrived, Receiver, code};
use super::*;

const PATH: &str = "/api/domainevents/url";

async fn send(caller: &Caller, method: Method, path: &str, order: Json) -> (u16, Json) {
    let answer = caller.send(method, path, Some(order)).await.unwrap();
    (answer.status().as_u16(), body(answer).await)
}

/// What an event grid expects of a handshake; 200 to all else.
fn shake(arrived: &Arrived) -> Answer {
    let first = &arrived.json()[0];
    match first["data"]["validationCode"].as_str() {
        Some(said) => json!({"validationResponse": said}).to_string().into_response(),
        None => code(200),
    }
}

async fn subscriber() -> Receiver {
    Receiver::new(|_, arrived| async move { shake(&arrived) }).await
}

#[tokio::test]
async fn subscriptions_are_told_apart_by_name() {
    let caller = Caller::new(quiet()).await;
    let (receiver, other) = (subscriber().await, subscriber().await);
    for name in ["", "crm-2"] {
        let order = json!({"Url": receiver.url, "Name": name});
        assert_eq!(send(&caller, Method::POST, PATH, order).await, (200, json!(true)));
    }
    for name in ["CRM", "a b", "å"] {
        let order = json!({"Url": receiver.url, "Name": name});
        assert_eq!(send(&caller, Method::POST, PATH, order).await.0, 400, "{name}");
    }
    let order = json!({"Url": "nowhere", "Name": "x"});
    assert_eq!(send(&caller, Method::POST, PATH, order).await.0, 400);
    let named = format!("{PATH}?Name=crm-2");
    assert_eq!(caller.get(&named).await, json!(receiver.url));
    assert_eq!(caller.get(&format!("{PATH}?Name=")).await, json!(receiver.url));
    let order = json!({"newUrl": other.url, "Name": "crm-2"});
    assert_eq!(send(&caller, Method::PUT, PATH, order).await.0, 200);
    assert_eq!(caller.get(&named).await, json!(other.url));
    let order = json!({"newUrl": other.url, "Name": "nobody"});
    assert_eq!(send(&caller, Method::PUT, PATH, order).await.0, 404);
    assert_eq!(caller.ask(Method::DELETE, &named).await, (StatusCode::OK, json!(other.url)));
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(caller.ask(method, &named).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn after_the_handshake_all_events_come_and_before_it_none() {
    let caller = Caller::new(quiet()).await;
    let receiver = subscriber().await;
    let id = caller.sandbox.case_ids()[59];
    caller.change(id, Facet::Activity);
    let order = json!({"Url": receiver.url, "Name": "crm"});
    send(&caller, Method::POST, PATH, order).await;
    assert!(caller.sandbox.wait_until_delivered().await);
    let shaken = &receiver.all()[0];
    assert_eq!(shaken.headers["aeg-event-type"], "SubscriptionValidation");
    let events = shaken.json();
    assert_eq!(
        (&events[0]["eventType"], events.as_array().unwrap().len()),
        (&json!("Microsoft.EventGrid.SubscriptionValidationEvent"), 1)
    );

    for _ in 0..3 {
        caller.change(id, Facet::RoleAdded);
    }
    caller.change(id, Facet::SaleTextAdded);
    caller.sandbox.act(&Act::emit("Unheard", json!({"CaseId": 5}))).unwrap();
    assert!(caller.sandbox.wait_until_delivered().await);
    let arrived = receiver.all();
    let events: Vec<Json> = arrived[1..].iter().map(|one| one.json()[0].clone()).collect();
    let kinds: Vec<&Json> = events.iter().map(|event| &event["eventType"]).collect();
    let created = "InteressentCreated";
    assert_eq!(kinds, [created, created, created, "DynamicSaleTextChanged", "Unheard"]);
    let subject = json!(format!("/cases/{id}"));
    assert!(events[..4].iter().all(|event| event["subject"] == subject));
    for arrived in &arrived[1..] {
        assert_eq!(arrived.headers["aeg-event-type"], "Notification");
        assert_eq!(arrived.json().as_array().unwrap().len(), 1);
        assert_eq!(arrived.json()[0]["dataVersion"], "1");
    }
    let ids: std::collections::BTreeSet<&str> =
        events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), events.len());
    // The case's id stands under another name by turns.
    let data: Vec<&Json> = events[..3].iter().map(|event| &event["data"]).collect();
    for name in ["/CaseId", "/caseId", "/Case/Id"] {
        let here = data.iter().filter(|data| data.pointer(name) == Some(&json!(id))).count();
        assert_eq!(here, 1, "{name}: {data:?}");
    }
}

#[tokio::test]
async fn without_a_handshake_nothing_comes() {
    type Reply = fn(&Arrived) -> Answer;
    let replies: [Reply; 4] = [
        |_| code(200),
        |_| json!({"validationResponse": "another"}).to_string().into_response(),
        |arrived| {
            let mut answer = shake(arrived);
            *answer.status_mut() = axum::http::StatusCode::ACCEPTED;
            answer
        },
        |_| code(500),
    ];
    for reply in replies {
        let caller = Caller::new(quiet()).await;
        let receiver = Receiver::new(move |_, arrived| async move { reply(&arrived) }).await;
        send(&caller, Method::POST, PATH, json!({"Url": receiver.url, "Name": "crm"})).await;
        assert!(caller.sandbox.wait_until_delivered().await);
        caller.change(caller.sandbox.case_ids()[59], Facet::RoleAdded);
        let made = caller.sandbox.deliveries();
        // The handshake is not repeated.
        assert_eq!((made.latest.len(), made.counts.failed, made.counts.attempts), (1, 1, 1));
        assert_eq!(receiver.all().len(), 1);

        // Moved to one that answers it.
        let other = subscriber().await;
        send(&caller, Method::PUT, PATH, json!({"newUrl": other.url, "Name": "crm"})).await;
        assert!(caller.sandbox.wait_until_delivered().await);
        caller.change(caller.sandbox.case_ids()[59], Facet::RoleAdded);
        other.wait_for(2).await;
    }
}
