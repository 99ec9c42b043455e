//! How events come to their subscribers.

use tokio::net::TcpSocket;
use tokio::sync::Semaphore;

use super::events::subscribe;
use super::receiver::{Receiver, code};
use super::*;

/// A sandbox whose minutes are short.
fn brisk() -> Options {
    Options { webhook_minute: Duration::from_millis(2), ..quiet() }
}

fn emit(caller: &Caller, event: &str, payload: Json) -> u64 {
    caller.sandbox.act(&Act::emit(event, payload)).unwrap().deliveries[0]
}

/// The deliveries to a receiver, once nothing is pending.
async fn delivered(caller: &Caller, receiver: &Receiver) -> Vec<Delivery> {
    assert!(caller.sandbox.wait_until_delivered().await);
    let all = caller.sandbox.deliveries().latest;
    all.into_iter().filter(|one| one.url.starts_with(&receiver.url)).collect()
}

#[tokio::test]
async fn a_change_is_posted_to_each_subscription_of_its_type() {
    let caller = Caller::new(brisk()).await;
    let receiver = Receiver::answering(200).await;
    let other = Receiver::answering(204).await;
    subscribe(&caller, "OfficeChanged", &receiver.url).await;
    subscribe(&caller, "OfficeChanged", &other.url).await;
    subscribe(&caller, "EmployeeChanged", &other.url).await;
    let office_id = caller.get("/api/Offices").await[0]["Id"].as_i64().unwrap();
    caller.sandbox.act(&Act::EditOffice { office_id }).unwrap();
    for receiver in [&receiver, &other] {
        let made = delivered(&caller, receiver).await;
        let [one] = &made[..] else { panic!("{made:?}") };
        assert_eq!((one.attempts, one.outcome), (1, DeliveryOutcome::Delivered));
        let [arrived] = &receiver.all()[..] else { panic!("{:?}", receiver.all()) };
        assert_eq!(arrived.body, one.body);
        assert_eq!(arrived.headers["content-type"], "application/json; charset=utf-8");
        let event = arrived.json();
        assert_eq!(
            (&event["EventType"], &event["Payload"]["OfficeId"]),
            (&json!("OfficeChanged"), &json!(office_id))
        );
    }
    let counts = caller.sandbox.deliveries().counts;
    assert_eq!((counts.attempts, counts.delivered, counts.pending), (2, 2, 0));
}

#[tokio::test]
async fn the_answer_decides_how_often_a_delivery_is_made() {
    use DeliveryOutcome::{Delivered, Failed};
    for (status, attempts, outcome) in [
        (200, 1, Delivered),
        (204, 1, Delivered),
        (302, 1, Delivered),
        (400, 1, Failed),
        (404, 1, Failed),
        (429, 1, Failed),
        (500, 6, Failed),
        (503, 6, Failed),
    ] {
        let caller = Caller::new(brisk()).await;
        let receiver = Receiver::new(move |_, _| async move {
            let mut answer = code(status);
            // A redirect is not followed.
            answer.headers_mut().insert("Location", "/elsewhere".parse().unwrap());
            answer
        })
        .await;
        subscribe(&caller, "HyperlinkChanged", &receiver.url).await;
        emit(&caller, "HyperlinkChanged", json!({"GeneralTextId": 1}));
        let made = delivered(&caller, &receiver).await;
        let [one] = &made[..] else { panic!("{made:?}") };
        assert_eq!((one.attempts, one.outcome, one.status), (attempts, outcome, Some(status)));
        let arrived = receiver.all();
        assert_eq!(arrived.len(), attempts as usize, "{status}");
        assert!(arrived.iter().all(|again| again.body == one.body && again.path == "/hook"));
    }
}

#[tokio::test]
async fn a_delivery_succeeds_with_the_first_retry_that_does() {
    let caller = Caller::new(brisk()).await;
    let receiver = Receiver::new(|n, _| async move { code(if n < 3 { 502 } else { 200 }) }).await;
    subscribe(&caller, "HyperlinkChanged", &receiver.url).await;
    emit(&caller, "HyperlinkChanged", json!({}));
    let made = delivered(&caller, &receiver).await;
    assert_eq!((made[0].attempts, made[0].outcome), (4, DeliveryOutcome::Delivered));
    assert_eq!(caller.sandbox.deliveries().counts.attempts, 4);
}

#[tokio::test]
async fn a_subscriber_that_is_down_gets_its_deliveries_when_it_is_back() {
    let caller = Caller::new(brisk()).await;
    // Taken, so that nobody else answers there, but deaf.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    subscribe(&caller, "HyperlinkChanged", &format!("http://{address}/hook")).await;
    emit(&caller, "HyperlinkChanged", json!({}));
    // More often than a server error is retried.
    while caller.sandbox.deliveries().latest[0].attempts < 8 {
        tokio::task::yield_now().await;
    }
    let receiver = Receiver::at(socket.listen(9).unwrap(), |_, _| async { code(200) });
    let made = delivered(&caller, &receiver).await;
    assert_eq!(made[0].outcome, DeliveryOutcome::Delivered);
    assert_eq!(receiver.all().len(), 1);
}

#[tokio::test]
async fn who_takes_too_long_is_asked_again() {
    let limit = Duration::from_millis(50);
    let caller = Caller::new(Options { webhook_limit: limit, ..brisk() }).await;
    let receiver = Receiver::new(|n, _| async move {
        if n < 2 { std::future::pending().await } else { code(200) }
    })
    .await;
    subscribe(&caller, "HyperlinkChanged", &receiver.url).await;
    emit(&caller, "HyperlinkChanged", json!({}));
    let made = delivered(&caller, &receiver).await;
    assert_eq!((made[0].attempts, made[0].outcome), (3, DeliveryOutcome::Delivered));
    let silent = Receiver::new(|_, _| std::future::pending()).await;
    subscribe(&caller, "ChecklistItemChecked", &silent.url).await;
    emit(&caller, "ChecklistItemChecked", json!({}));
    let made = delivered(&caller, &silent).await;
    assert_eq!((made[0].attempts, made[0].status), (6, None));
    assert_eq!(made[0].outcome, DeliveryOutcome::Failed);
}

#[tokio::test]
async fn one_slow_subscriber_holds_up_nobody_else_and_keeps_its_order() {
    let caller = Caller::new(brisk()).await;
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let slow = Receiver::new(move |_, _| {
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            code(200)
        }
    })
    .await;
    let quick = Receiver::answering(200).await;
    for receiver in [&slow, &quick] {
        subscribe(&caller, "HyperlinkChanged", &receiver.url).await;
    }
    for n in 0..30 {
        emit(&caller, "HyperlinkChanged", json!({"GeneralTextId": n}));
    }
    let numbers = |arrived: Vec<super::receiver::Arrived>| -> Vec<i64> {
        arrived.iter().map(|one| one.json()["Payload"]["GeneralTextId"].as_i64().unwrap()).collect()
    };
    let expected: Vec<i64> = (0..30).collect();
    assert_eq!(numbers(quick.wait_for(30).await), expected);
    // One at a time.
    assert_eq!(numbers(slow.wait_for(1).await), [0]);
    gate.add_permits(30);
    assert_eq!(numbers(slow.wait_for(30).await), expected);
}

#[tokio::test]
async fn a_lost_answer_repeats_the_delivery() {
    let caller = Caller::new(brisk()).await;
    let receiver = Receiver::answering(200).await;
    subscribe(&caller, "CaseSold", &receiver.url).await;
    let rule = |path: &str, fault: Fault| Rule {
        method: Some("DELIVER".to_owned()),
        path: path.to_owned(),
        query: None,
        nth: 1,
        count: Some(1),
        fault,
    };
    // Calls of the API are not concerned, whatever their path.
    caller.sandbox.fault(rule("*", Fault::LoseAnswer));
    caller.get("/api/User").await;
    emit(&caller, "CaseSold", json!({"CaseId": 1}));
    let made = delivered(&caller, &receiver).await;
    assert_eq!((made[0].attempts, made[0].outcome), (2, DeliveryOutcome::Delivered));
    let arrived = receiver.all();
    assert_eq!((arrived.len(), &arrived[0].body), (2, &arrived[1].body));

    // Lost before it came.
    caller.sandbox.fault(rule("CaseSold", Fault::Drop));
    emit(&caller, "CaseSold", json!({"CaseId": 2}));
    assert_eq!(delivered(&caller, &receiver).await[1].attempts, 2);
    assert_eq!(receiver.all().len(), 3);

    // A fault of deliveries only hits those it names.
    caller
        .sandbox
        .fault(Rule { query: Some("\"CaseId\":4".to_owned()), ..rule("*", Fault::LoseAnswer) });
    emit(&caller, "CaseSold", json!({"CaseId": 3}));
    emit(&caller, "CaseSold", json!({"CaseId": 4}));
    let made = delivered(&caller, &receiver).await;
    assert_eq!((made[2].attempts, made[3].attempts), (1, 2));
}

#[tokio::test]
async fn whatever_is_ordered_is_delivered_as_often_as_said() {
    let caller = Caller::new(brisk()).await;
    let receiver = Receiver::answering(200).await;
    let other = Receiver::answering(200).await;
    subscribe(&caller, "ChecklistItemChecked", &receiver.url).await;
    subscribe(&caller, "CaseSold", &receiver.url).await;
    subscribe(&caller, "CaseSold", &other.url).await;
    let odd = json!([{"Deep": [null, {"CaseId": "17"}]}, "æ\u{0}", 1e300]);
    let act = Act::Emit {
        event_type: "NobodyKnowsThis".to_owned(),
        payload: odd.clone(),
        fields: serde_json::from_value(json!({"EventCreatedDate": 5, "Odd": {}})).unwrap(),
        to: None,
        duplicate: 2,
        at: None,
    };
    caller.sandbox.act(&act).unwrap();
    for receiver in [&receiver, &other] {
        // Nobody can subscribe to it, so that every address gets it, but once.
        let made = delivered(&caller, receiver).await;
        assert_eq!(made.len(), 3);
        let expected = json!({"EventType": "NobodyKnowsThis", "EventCreatedDate": 5,
            "Payload": odd, "Odd": {}});
        assert!(receiver.all().iter().all(|one| one.json() == expected));
    }
    let at = Some("2026-11-20T10:00:00.1234567+01:00".to_owned());
    let act = Act::Emit {
        event_type: "CaseSold".to_owned(),
        payload: json!(null),
        fields: serde_json::Map::new(),
        to: Some(other.url.clone()),
        duplicate: 0,
        at,
    };
    let id = caller.sandbox.act(&act).unwrap().deliveries[0];
    assert_eq!(delivered(&caller, &receiver).await.len(), 3);
    let sold = other.all()[3].json();
    assert_eq!(sold["EventCreatedDate"], "2026-11-20T10:00:00.1234567+01:00");
    assert_eq!(sold["Payload"], Json::Null);

    emit(&caller, "ChecklistItemChecked", json!({"CaseId": 9}));
    caller.sandbox.act(&Act::Redeliver { delivery: Some(id), times: 2 }).unwrap();
    assert!(caller.sandbox.wait_until_delivered().await);
    let again = other.all();
    assert!(again.len() == 6 && again[4].body == again[3].body && again[5].body == again[3].body);
    assert!(caller.sandbox.act(&Act::Redeliver { delivery: Some(9_999), times: 1 }).is_err());
}

#[tokio::test]
async fn a_subscriber_may_call_the_platform_before_it_answers() {
    let caller = Caller::new(brisk()).await;
    let (http, token) = (caller.http.clone(), caller.token.clone());
    let url = format!("{}/api/User", caller.sandbox.base_url());
    let receiver = Receiver::new(move |_, _| {
        let call = http.get(&url).bearer_auth(&token).send();
        async move { code(call.await.unwrap().status().as_u16()) }
    })
    .await;
    subscribe(&caller, "CaseStatusChanged", &receiver.url).await;
    let id = caller.sandbox.case_ids()[59];
    for facet in [Facet::Activated, Facet::Sold, Facet::Settled] {
        caller.change(id, facet);
    }
    let made = delivered(&caller, &receiver).await;
    assert!(!made.is_empty());
    assert!(made.iter().all(|one| one.status == Some(200)), "{made:?}");
}

#[tokio::test]
async fn nothing_leaves_this_machine() {
    let caller = Caller::new(brisk()).await;
    for url in
        ["https://hooks.example.no/x", "http://198.51.100.7/x", "http://localhost.example.no"]
    {
        subscribe(&caller, "CaseSold", url).await;
    }
    let act = Act::emit("CaseSold", json!({"CaseId": 1}));
    let ids = caller.sandbox.act(&act).unwrap().deliveries;
    // One more is of the seed.
    assert_eq!(ids.len(), 4);
    let report = caller.sandbox.deliveries();
    assert!(report.latest.iter().all(|one| one.outcome == DeliveryOutcome::NotSent));
    assert_eq!((report.counts.not_sent, report.counts.pending, report.counts.attempts), (4, 0, 0));
}

#[tokio::test]
async fn a_subscription_that_is_gone_gets_nothing_more() {
    let caller = Caller::new(quiet()).await;
    let receiver = Receiver::answering(503).await;
    let made = subscribe(&caller, "CaseSold", &receiver.url).await;
    emit(&caller, "CaseSold", json!({"CaseId": 1}));
    receiver.wait_for(1).await;
    // Its retry is due in a minute.
    while caller.sandbox.deliveries().counts.attempts == 0 {
        tokio::task::yield_now().await;
    }
    let path = format!("/api/WebHooks/Subscriptions/{}", made["Id"]);
    assert_eq!(caller.ask(Method::DELETE, &path).await.0, StatusCode::NO_CONTENT);
    let left = delivered(&caller, &receiver).await;
    assert_eq!((left[0].attempts, left[0].outcome), (1, DeliveryOutcome::Failed));
    // That of the seed remains, and is of another machine.
    assert_eq!(caller.sandbox.act(&Act::emit("CaseSold", json!({}))).unwrap().deliveries.len(), 1);
}

#[tokio::test]
async fn the_control_endpoints_tell_of_deliveries() {
    let caller = Caller::new(brisk()).await;
    let receiver = Receiver::answering(200).await;
    subscribe(&caller, "CaseSold", &receiver.url).await;
    let control = caller.sandbox.control_url();
    let order = json!({"act": "emit", "event_type": "CaseSold", "payload": {"CaseId": 7}});
    let post = async |path: &str, order: Json| {
        let call = caller.http.post(format!("{control}{path}")).body(order.to_string());
        body(call.send().await.unwrap()).await
    };
    assert_eq!(post("/sandbox/act", order).await["deliveries"].as_array().unwrap().len(), 2);
    assert_eq!(post("/sandbox/deliveries/wait", json!({})).await, json!({"settled": true}));
    let answer = caller.http.get(format!("{control}/sandbox/deliveries")).send().await.unwrap();
    let report: Deliveries = serde_json::from_value(body(answer).await).unwrap();
    assert_eq!(report, caller.sandbox.deliveries());
    assert_eq!(report.counts.delivered, 1);
}
