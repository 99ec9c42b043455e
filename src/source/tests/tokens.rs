//! The bearer token (reference 5.1), on a real socket.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::IntoResponse;
use futures::future::join_all;
use rstest::rstest;

use super::service::{SECRET, Service, json, request, status};
use crate::error::Kind;
use crate::scope::FeedName;
use crate::source::CallClass;

fn form(body: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(body).into_owned().collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test]
async fn one_renewal_serves_all_waiting_calls() {
    let service = Service::start(|_, _| json("[]")).await;
    let (client, request) = (service.client(), request());
    let answers = join_all((0..20).map(|_| client.send(&request))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(service.token_calls(), 1);
    assert!(service.calls().iter().all(|call| call.header("authorization") == "Bearer token-1"));
}

#[tokio::test]
async fn the_credentials_go_as_a_form_to_the_token_endpoint_below_the_base() {
    let service = Service::start(|_, _| json("[]")).await;
    let mut source = super::service::source(&format!("{}/flow/", service.address));
    source.client_id = "me & you".to_owned();
    let client = crate::source::Client::new(
        &source,
        &super::service::feed(),
        &super::service::limits(),
        std::sync::Arc::new(crate::source::MemoryLedger::new()),
    )
    .unwrap();
    client.send(&request()).await.unwrap();
    let calls = service.all();
    assert_eq!((calls[0].method.as_str(), calls[0].path.as_str()), ("POST", "/flow/authtoken"));
    assert_eq!(calls[0].header("content-type"), "application/x-www-form-urlencoded");
    let expected = [
        pair("grant_type", "client_credentials"),
        pair("client_id", "me & you"),
        pair("client_secret", SECRET),
    ];
    assert_eq!(form(&calls[0].body), expected);
    assert_eq!(calls[1].path, "/flow/api/Cases/17/Roles");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_all_and_the_calls_replayed() {
    let service = Service::start(|call, _| match call.header("authorization") {
        "Bearer token-1" => status(401, ""),
        _ => json("[]"),
    })
    .await;
    let (client, request) = (service.client(), request());
    let answers = join_all((0..8).map(|_| client.send(&request))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(service.token_calls(), 2);
    let replayed = service.calls();
    assert!(replayed.iter().filter(|c| c.header("authorization") == "Bearer token-2").count() == 8);
}

#[tokio::test]
async fn a_token_that_was_refused_goes_out_with_no_further_call() {
    let service = Service::start(|call, _| match call.header("authorization") {
        "Bearer token-1" => status(401, ""),
        _ => json("[]"),
    })
    .await;
    let (client, request) = (service.client(), request());
    let answers = join_all((0..60).map(|_| client.send(&request))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(service.token_calls(), 2);
    let calls = service.calls();
    let refused = calls.iter().filter(|call| call.header("authorization") == "Bearer token-1");
    // One for each that was in flight when the first refusal came.
    assert!(refused.count() <= super::service::limits().concurrency);
    assert_eq!(
        calls.len() - 60,
        calls.iter().filter(|call| call.header("authorization") == "Bearer token-1").count()
    );
}

#[tokio::test]
async fn a_fresh_token_that_is_refused_is_the_endpoints_matter() {
    let service = Service::start(|_, _| status(401, "token-2 is not good")).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert_eq!(service.calls().len(), 2);
    assert!(!error.chain().contains("token-2"), "{}", error.chain());
    assert!(error.chain().contains("*** is not good"), "{}", error.chain());
}

#[tokio::test]
async fn wrong_credentials_are_told_without_the_secret_and_not_tried_again() {
    let service = Service::bare(|_| {
        status(400, &format!(r#"{{"error": "invalid_client", "secret": "{SECRET}"}}"#))
    })
    .await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Credentials);
    assert_eq!(service.token_calls(), 1);
    assert!(error.chain().contains("invalid_client"), "{}", error.chain());
    assert!(!format!("{error:?}").contains(SECRET));
}

/// The clock of the tokens goes on, and nothing else does.
async fn ten_seconds_later() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
}

/// Believed, it would make every call ask for a token of its own.
#[tokio::test]
async fn a_life_of_nothing_is_not_believed() {
    for life in ["0", "-1", "0.4", "\"0\"", "-1e300", "null", "\"soon\""] {
        let body = format!(r#"{{"access_token": "one", "expires_in": {life}}}"#);
        let service = Service::bare(move |call| match call.path.ends_with("/authtoken") {
            true => json(&body),
            false => json("[]"),
        })
        .await;
        let client = service.client();
        for _ in 0..5 {
            client.send(&request()).await.unwrap();
        }
        assert_eq!(service.token_calls(), 1, "{life}");
    }
}

#[tokio::test]
async fn an_expired_token_is_renewed_with_the_refresh_token() {
    let tokens = AtomicUsize::new(0);
    let service = Service::bare(move |call| {
        if !call.path.ends_with("/authtoken") {
            return json("[]");
        }
        match tokens.fetch_add(1, Ordering::Relaxed) {
            0 => json(
                r#"{"access_token": "first", "expires_in": 9,
                    "refresh_token": "refreshing", "refresh_token_expires_in": "3600"}"#,
            ),
            1 => json(r#"{"access_token": "second", "expires_in": 9}"#),
            _ => json(r#"{"access_token": "third", "expires_in": "1200"}"#),
        }
    })
    .await;
    let client = service.client();
    for _ in 0..4 {
        client.send(&request()).await.unwrap();
        ten_seconds_later().await;
    }
    let grants: Vec<_> = service
        .all()
        .iter()
        .filter(|call| call.path.ends_with("/authtoken"))
        .map(|call| form(&call.body))
        .collect();
    let refresh = [
        pair("grant_type", "refresh_token"),
        pair("client_id", "integrator"),
        pair("refresh_token", "refreshing"),
    ];
    assert_eq!(grants.len(), 3);
    assert_eq!(grants[0][0], pair("grant_type", "client_credentials"));
    // The second answer holds no refresh token: the first one's is used again.
    assert_eq!((&grants[1][..], &grants[2][..]), (&refresh[..], &refresh[..]));
    let used: Vec<String> =
        service.calls().iter().map(|call| call.header("authorization").to_owned()).collect();
    assert_eq!(used, ["Bearer first", "Bearer second", "Bearer third", "Bearer third"]);
}

/// Reference 5.1.6: a refresh token need not be used, and so it must not stand in the way.
#[rstest]
#[case::invalid_grant(400, r#"{"error": "invalid_grant"}"#)]
#[case::no_such_grant(404, "")]
#[case::it_breaks(500, "")]
#[case::a_page(200, "<html></html>")]
#[tokio::test]
async fn a_refresh_that_fails_leads_back_to_the_credentials(
    #[case] code: u16,
    #[case] answer: &'static str,
) {
    let grants = std::sync::Arc::new(Mutex::new(Vec::new()));
    let log = grants.clone();
    let service = Service::bare(move |call| {
        if !call.path.ends_with("/authtoken") {
            return json("[]");
        }
        let grant = form(&call.body)[0].1.clone();
        let mut log = log.lock().unwrap();
        log.push(grant.clone());
        match (grant.as_str(), log.len()) {
            ("refresh_token", _) => status(code, answer),
            (_, 1) => json(
                r#"{"access_token": "first", "expires_in": 9, "refresh_token": "r",
                    "refresh_token_expires_in": 3600}"#,
            ),
            _ => json(r#"{"access_token": "second", "expires_in": 1200}"#),
        }
    })
    .await;
    let client = service.client();
    client.send(&request()).await.unwrap();
    ten_seconds_later().await;
    client.send(&request()).await.unwrap();
    let grants = grants.lock().unwrap().clone();
    assert_eq!(grants, ["client_credentials", "refresh_token", "client_credentials"]);
    assert_eq!(service.calls()[1].header("authorization"), "Bearer second");
}

#[tokio::test]
async fn a_failed_renewal_is_shared_by_those_who_waited_for_it() {
    let service = Service::bare(|_| status(403, "go away")).await;
    let (client, request) = (service.client(), request());
    let answers = join_all((0..8).map(|_| client.send(&request))).await;
    for answer in answers {
        assert_eq!(answer.unwrap_err().kind(), Kind::Credentials);
    }
    assert_eq!(service.token_calls(), 1);
}

#[tokio::test]
async fn a_missing_token_endpoint_is_not_a_missing_resource() {
    let service = Service::bare(|_| status(404, "<html>no such page</html>")).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken);
    assert!(error.chain().contains("/authtoken"), "{}", error.chain());
}

/// Nothing was asked about the case: its call has not failed.
#[rstest]
#[case::it_breaks(503, "")]
#[case::a_page(200, "<html>sign in</html>")]
#[case::nothing(204, "")]
#[case::another_method(405, "")]
#[tokio::test]
async fn without_a_token_no_call_is_made_and_the_endpoint_is_asked_as_often_as_any_other(
    #[case] code: u16,
    #[case] answer: &'static str,
) {
    let service = Service::bare(move |_| status(code, answer)).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken, "{}", error.chain());
    assert!(error.chain().contains("no token from"), "{}", error.chain());
    assert_eq!((service.calls().len(), service.token_calls()), (0, 5));
}

#[tokio::test]
async fn a_throttled_token_endpoint_is_no_throttled_call() {
    let service = Service::bare(|_| {
        let soon = [("retry-after", "0.001")];
        (axum::http::StatusCode::TOO_MANY_REQUESTS, soon).into_response()
    })
    .await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken, "{}", error.chain());
}

/// The secret goes to nobody more often than it has to.
#[tokio::test]
async fn a_redirect_of_the_token_endpoint_is_named_and_the_secret_not_sent_again() {
    let service = Service::bare(|_| {
        let location = format!("https://login.example:8443/?secret={SECRET}");
        (axum::http::StatusCode::FOUND, [("location", location)]).into_response()
    })
    .await;
    let error = service.client().send(&request()).await.unwrap_err();
    let chain = error.chain();
    assert_eq!(error.kind(), Kind::NoToken, "{chain}");
    assert!(chain.contains("redirects to https://login.example:8443;"), "{chain}");
    assert!(chain.contains("source.base_url") && !chain.contains(SECRET), "{chain}");
    assert_eq!((service.calls().len(), service.token_calls()), (0, 1));
}

/// As [`Service::start`]; from the second token on there is none.
async fn of_one_token(answer: fn(usize) -> axum::response::Response) -> Service {
    let (tokens, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Service::bare(move |call| match call.path.ends_with("/authtoken") {
        true if tokens.fetch_add(1, Ordering::Relaxed) == 0 => {
            json(r#"{"access_token": "first", "expires_in": 1200}"#)
        }
        true => status(503, ""),
        false => answer(calls.fetch_add(1, Ordering::Relaxed)),
    })
    .await
}

#[tokio::test]
async fn a_call_whose_token_ended_is_not_made_again_without_another() {
    let service = of_one_token(|_| status(401, "")).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken, "{}", error.chain());
    assert_eq!((service.calls().len(), service.token_calls()), (1, 1 + 5));
}

#[tokio::test]
async fn a_call_that_was_made_has_failed_with_what_came_of_it_and_not_for_want_of_a_token() {
    let service = of_one_token(|before| status(if before == 0 { 500 } else { 401 }, "")).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Server, "{}", error.chain());
}

#[tokio::test]
async fn a_replayed_feed_call_is_two_calls_in_the_ledger() {
    let service = Service::start(|_, before| match before {
        0 => status(401, ""),
        _ => json("[]"),
    })
    .await;
    let ledger = std::sync::Arc::new(crate::source::MemoryLedger::new());
    let client = service.client_with(&super::service::feed(), ledger.clone());
    let request = request().class(CallClass::Feed(FeedName::Cases));
    client.send(&request).await.unwrap();
    assert_eq!(service.calls().len(), 2);
    let statuses: Vec<_> =
        ledger.calls().into_iter().map(|call| call.end.and_then(|end| end.status)).collect();
    assert_eq!(statuses, [Some(401), Some(200)]);
}

#[rstest]
#[case::another_field(r#"{"token": "very-s3cret"}"#)]
#[case::a_bare_text(r#""very-s3cret""#)]
#[case::a_form("access_token=very-s3cret&expires_in=1200")]
#[case::cut_off(r#"{"access_token": "very-s3cret"#)]
#[tokio::test]
async fn an_answer_without_token_is_none_and_nothing_of_it_is_shown(#[case] answer: &'static str) {
    let service = Service::bare(move |_| json(answer)).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken);
    assert!(!format!("{error:?}").contains("very-s3cret"), "{error:?}");
}

#[tokio::test]
async fn a_token_behind_a_byte_order_mark_is_one() {
    let service = Service::bare(|call| {
        let token = "\u{feff}{\"access_token\": \"first\", \"expires_in\": 1200}";
        if call.path.ends_with("/authtoken") { json(token) } else { json("[]") }
    })
    .await;
    service.client().send(&request()).await.unwrap();
    assert_eq!(service.calls()[0].header("authorization"), "Bearer first");
}

#[tokio::test]
async fn an_answer_that_is_no_token_by_its_size_is_not_read_to_its_end() {
    let flood = format!(r#"{{"access_token": "{}"}}"#, "t".repeat(2 << 20));
    let service = Service::bare(move |_| status(200, &flood)).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken);
    assert!(error.chain().contains("larger than 1048576 bytes"), "{}", error.chain());
}
