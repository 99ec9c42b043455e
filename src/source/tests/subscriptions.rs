//! What the client makes of the platform's list of webhook subscriptions.

use super::service::{Service, json, status};
use crate::source::Subscription;

#[tokio::test]
async fn event_types_are_names_or_nothing_and_what_cannot_be_read_is_kept_apart() {
    let service = Service::start(|_, _| {
        json(
            r#"[{"Id": 1, "EventType": "CaseSold", "Url": "https://a.example.com/"},
                {"Id": 2, "EventType": 7, "Url": "https://b.example.com/"},
                {"Id": 3, "EventType": null, "Url": "https://c.example.com/"},
                {"Id": "4", "EventType": "CaseSold", "Url": "https://d.example.com/"},
                {"Id": 5, "EventType": "CaseSold", "Url": null}]"#,
        )
    })
    .await;
    let listed = service.client().subscriptions().await.unwrap();
    let read = |id, event_type: Option<&str>, host: &str| Subscription {
        id,
        event_type: event_type.map(str::to_owned),
        url: format!("https://{host}.example.com/"),
    };
    assert_eq!(
        listed.read,
        [read(1, Some("CaseSold"), "a"), read(2, None, "b"), read(3, None, "c")]
    );
    assert_eq!(listed.unread.len(), 2);
    assert!(listed.unread[0].contains("d.example.com"), "{:?}", listed.unread);
}

/// The platform may repeat an address otherwise than it was told.
#[tokio::test]
async fn no_token_is_told_however_an_answer_repeats_it() {
    const TOKEN: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f9";
    for repeated in [
        format!("Cannot reach https://h.example.com/webhooks/{TOKEN}"),
        format!("Cannot reach /webhooks/{TOKEN}"),
        format!("Cannot reach HTTPS://H.EXAMPLE.COM/WEBHOOKS/{}", TOKEN.to_uppercase()),
    ] {
        let body = serde_json::json!({ "Message": repeated }).to_string();
        let service = Service::start(move |_, _| status(400, &body)).await;
        let url = format!("https://h.example.com/webhooks/{TOKEN}").into();
        let error = service.client().subscribe("CaseSold", &url).await.unwrap_err();
        let said = error.chain();
        assert!(said.contains("Cannot reach"), "{said}");
        assert!(!said.to_lowercase().contains(TOKEN), "{said}");
    }
}
