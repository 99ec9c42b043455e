//! Webhook subscriptions.

use super::*;

const ALL: &str = "/api/WebHooks/Subscriptions";

#[tokio::test]
async fn the_state_has_no_secret_and_the_address_to_the_host_only() {
    let caller = Caller::new(quiet()).await;
    let wire = caller.get(ALL).await;
    for (cells, wire) in caller.rows("webhook_subscriptions").iter().zip(wire.as_array().unwrap()) {
        assert!(wire["Secret"].is_string() && cells.get("secret").is_none());
        let url = wire["Url"].as_str().unwrap();
        let host = cells["url"].as_str().unwrap();
        assert!(url.starts_with(host) && host.matches('/').count() == 2, "{host}");
        let mut cells = cells.clone();
        cells["url"] = wire["Url"].clone();
        assert_same_row(&cells, wire, "subscription");
    }
}

#[tokio::test]
async fn subscriptions_are_made_changed_and_removed() {
    let caller = Caller::new(quiet()).await;
    let send = async |method: Method, path: &str, order: Option<Json>| {
        let answer = caller.send(method, path, order).await.unwrap();
        (answer.status().as_u16(), body(answer).await)
    };
    let order = |event: &str, url: &str| Some(json!({"EventType": event, "Url": url}));
    let count = caller.rows("webhook_subscriptions").len();
    let (_, made) =
        send(Method::POST, "/api/WebHooks/Subscribe", order("CaseSold", "https://a.no/x")).await;
    let path = format!("{ALL}/{}", made["Id"]);
    assert_eq!(caller.get(&path).await, made);
    let (_, renewed) = send(Method::PUT, &format!("{path}/UpdateSecret"), None).await;
    assert_ne!(renewed["Secret"], made["Secret"]);
    let (_, moved) = send(Method::PUT, &path, order("OfficeChanged", "https://b.no/y")).await;
    assert_eq!(
        (&moved["EventType"], &moved["Secret"]),
        (&json!("OfficeChanged"), &renewed["Secret"])
    );
    let rows = caller.rows("webhook_subscriptions");
    assert_eq!((rows.len(), &rows.last().unwrap()["url"]), (count + 1, &json!("https://b.no")));
    assert_eq!(send(Method::DELETE, &path, None).await.0, 204);
    assert_eq!(send(Method::DELETE, &path, None).await.0, 404);
    assert_eq!(send(Method::GET, &path, None).await.0, 404);
    for refused in [order("Nothing", "https://a.no"), order("CaseSold", "nowhere"), None] {
        assert_eq!(send(Method::POST, "/api/WebHooks/Subscribe", refused).await.0, 400);
    }
    for (edit, expected) in
        [(ListEdit::Added, count + 1), (ListEdit::Removed, count), (ListEdit::Changed, count)]
    {
        caller.sandbox.act(&Act::Subscription { edit }).unwrap();
        assert_eq!(caller.rows("webhook_subscriptions").len(), expected, "{edit:?}");
    }
    caller
        .sandbox
        .control(Control::Withdraw { permission: "WebHookSubscription - Delete".to_owned() });
    assert_eq!(send(Method::DELETE, &path, None).await.0, 403);
}
