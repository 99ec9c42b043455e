//! The control endpoints.

use super::*;

#[tokio::test]
async fn the_control_endpoints_say_the_same_as_the_functions() {
    let caller = Caller::new(Options { base_path: "/flow".to_owned(), ..quiet() }).await;
    caller.get("/api/User").await;
    let control = caller.sandbox.control_url();
    let get = async |path: &str| {
        body(caller.http.get(format!("{control}{path}")).send().await.unwrap()).await
    };
    let post = async |path: &str, order: Json| {
        let call = caller.http.post(format!("{control}{path}")).body(order.to_string());
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), body(answer).await)
    };
    assert_eq!(get("/sandbox/state").await, caller.sandbox.state());
    assert_eq!(get("/sandbox/credentials").await["base_url"], caller.sandbox.base_url());
    let (_, outcome) = post("/sandbox/act", json!({"act": "change", "facet": "activity"})).await;
    assert!(outcome["moved"]["ActivityChangedDate"].is_string());
    let (status, refused) = post("/sandbox/act", json!({"act": "delete_case", "case_id": 1})).await;
    assert_eq!((status, refused["Message"].is_string()), (400, true));
    let (status, _) = post("/sandbox/act", json!({"act": "tick", "events": 40})).await;
    assert_eq!(status, 200);
    let rule = json!({"path": "/api/User", "fault": {"kind": "refuse", "status": 500}});
    let (_, made) = post("/sandbox/faults", rule).await;
    let (status, _) = caller.ask(Method::GET, "/api/User").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(get("/sandbox/faults").await, json!([{"id": made["id"], "hits": 1}]));
    let (status, _) = post("/sandbox/control", json!({"control": "throttle", "calls": 2})).await;
    assert_eq!(status, 200);
    let stats = get("/sandbox/stats").await;
    assert_eq!(serde_json::from_value::<Report>(stats).unwrap(), caller.sandbox.stats());
    assert_eq!(caller.sandbox.stats().of("GET", "/api/User"), 2);
    post("/sandbox/stats/reset", json!({})).await;
    assert_eq!(caller.sandbox.stats().calls, 0);
}
