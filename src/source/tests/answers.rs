//! What the client makes of answers, refusals and broken lines, on a real socket.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;

use super::service::{SECRET, Service, feed, json, limits, request, source, status, tuning};
use crate::config;
use crate::error::Kind;
use crate::source::{CallClass, Client, Filter, MemoryLedger, Method, Query, Request, refusal};

#[tokio::test]
async fn an_answer_comes_whole_with_its_times() {
    let service = Service::start(|_, _| {
        let mut answer = json(r#"[{"Id": 1}]"#);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap();
        answer.headers_mut().insert("date", date);
        answer
    })
    .await;
    let answer = service.client().send(&request()).await.unwrap();
    assert_eq!((answer.status, service.calls().len()), (200, 1));
    assert_eq!(&answer.body[..], br#"[{"Id": 1}]"#);
    assert!(answer.sent_at <= answer.ended_at);
    assert_eq!(answer.server_date.map(|date| date.as_second()), Some(784_111_777));
    let call = &service.calls()[0];
    assert_eq!(call.header("accept"), "application/json");
    assert_eq!(call.header("accept-encoding"), "gzip");
    assert!(call.header("user-agent").starts_with("casemirror/"));
}

#[tokio::test]
async fn queries_and_bodies_arrive_as_they_were_meant() {
    let service = Service::start(|_, _| json("{}")).await;
    let client = service.client();
    let filter = Filter::eq("Name", "O'Hara & Søn");
    let search = Request::post("/api/Search/AdvancedPropertySearch", &[]).unwrap();
    client.send(&search.query(Query::new().filter(filter).top(10))).await.unwrap();
    let sum = Request::new(Method::Put, "/api/Offices/{id}/Sum", &[("id", "3")]).unwrap();
    client.send(&sum.body(r#"{"FromDate": "2026-10-01"}"#)).await.unwrap();
    let calls = service.calls();
    assert_eq!(calls[0].parameter("$filter").unwrap(), "Name eq 'O''Hara & Søn'");
    assert_eq!(calls[0].parameter("$top").unwrap(), "10");
    assert_eq!((calls[0].method.as_str(), calls[0].header("content-length")), ("POST", "0"));
    assert_eq!(
        (calls[1].method.as_str(), &calls[1].body[..]),
        ("PUT", &br#"{"FromDate": "2026-10-01"}"#[..])
    );
    assert_eq!(calls[1].header("content-type"), "application/json");
}

#[rstest]
#[case::no_content(status(204, ""))]
#[case::empty(json(""))]
#[tokio::test]
async fn none_is_an_answer(#[case] answer: axum::response::Response) {
    let answer = std::sync::Mutex::new(Some(answer));
    let service = Service::start(move |_, _| answer.lock().unwrap().take().unwrap()).await;
    assert!(service.client().send(&request()).await.unwrap().is_none());
}

#[rstest]
#[case(400, Kind::Refused, 1)]
#[case(403, Kind::Forbidden, 1)]
#[case(404, Kind::NotFound, 1)]
#[case(405, Kind::NotAllowed, 1)]
#[case(409, Kind::Refused, 1)]
#[case(500, Kind::Server, 5)]
#[case(502, Kind::Server, 5)]
#[tokio::test]
async fn a_refusal_has_its_kind_and_is_tried_again_only_when_that_can_help(
    #[case] code: u16,
    #[case] kind: Kind,
    #[case] calls: usize,
) {
    let service = Service::start(move |_, _| status(code, r#"{"Message": "because"}"#)).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), kind);
    assert_eq!(service.calls().len(), calls);
    assert_eq!(refusal(&error).unwrap().status, code);
    let chain = error.chain();
    let address = format!("GET {}/api/Cases/17/Roles failed", service.address);
    assert!(chain.starts_with(&address), "{chain}");
    assert!(chain.contains(&format!("attempt {calls} of 5")), "{chain}");
    assert!(chain.ends_with("because"), "{chain}");
}

/// How many times calls were sent, but for the token.
fn sent(client: &Client) -> u64 {
    client.take_calls().iter().filter(|c| &*c.endpoint != "/authtoken").map(|c| c.calls).sum()
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    let service = Service::start(|_, before| match before {
        0 => status(500, ""),
        1 => json("<html>login</html>"),
        _ => json("[]"),
    })
    .await;
    let client = service.client();
    client.send(&request()).await.unwrap();
    assert_eq!(service.calls().len(), 3);
    let counts = client.take_calls();
    let roles = counts.iter().find(|stats| stats.endpoint.contains("Roles")).unwrap();
    assert_eq!(&*roles.endpoint, "/api/Cases/{case_id}/Roles");
    assert_eq!((roles.calls, roles.retries, roles.refusals, roles.bytes), (3, 2, 0, 20));
    assert_eq!(
        counts.iter().map(|stats| &*stats.endpoint).filter(|e| *e == "/authtoken").count(),
        1
    );
    assert!(client.take_calls().is_empty());
}

#[tokio::test]
async fn a_403_names_the_missing_permissions() {
    let body = r#"{"MissingPermissions": ["Cases - Read", "Activities - Read"]}"#;
    let service = Service::start(move |_, _| status(403, body)).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(refusal(&error).unwrap().permissions, ["Activities - Read", "Cases - Read"]);
    assert!(error.chain().contains("missing permissions: Activities - Read, Cases - Read"));
}

#[tokio::test]
async fn a_429_is_obeyed_by_all_calls() {
    let service = Service::start(|_, before| {
        let mut answer = if before == 0 { status(429, "") } else { json("[]") };
        if before == 0 {
            answer.headers_mut().insert("retry-after", "0.3".parse().unwrap());
        }
        answer
    })
    .await;
    let client = service.client();
    client.send(&request()).await.unwrap();
    let calls = service.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls[1].at - calls[0].at >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_hold_longer_than_our_patience_is_an_error_at_once() {
    let service = Service::start(|_, _| {
        let mut answer = status(429, "");
        answer.headers_mut().insert("retry-after", "86400".parse().unwrap());
        answer
    })
    .await;
    let client = service.client();
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Throttled);
    // The next call is not even sent.
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::RetryAfter);
    // A day was asked for, and limits.retry_after is an hour.
    let chain = error.chain();
    assert!(["3600 s", "3599 s"].iter().any(|hold| chain.contains(hold)), "{chain}");
    assert!(service.calls().len() <= 2);
}

/// The rest of what it says may be waited for without end, and what it asks for must not be lost with it.
#[tokio::test]
async fn a_refusal_whose_text_stalls_is_one_all_the_same() {
    let stalls = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1800\r\nContent-Length: 100\r\n\r\n{\"Mess";
    let (service, calls) = Service::stalling(stalls).await;
    let client = service.client();
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(refusal(&error).unwrap().status, 429, "{}", error.chain());
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::RetryAfter, "{}", error.chain());
    assert_eq!(*calls.borrow(), 1, "the service wants none for half an hour");
}

#[rstest]
#[case::usual("SIGN in", Some("SIGN in"))]
#[case::with_a_status(
    "403 - Forbidden:\nAccess is denied.",
    Some("403 - Forbidden: Access is denied.")
)]
#[case::of_a_firewall("Web Page Blocked", Some("Web Page Blocked"))]
#[case::of_a_proxy("Just a moment...", Some("Just a moment..."))]
#[case::in_small_letters("sak for ola nordmann", None)]
#[case::name("Ola Nordmann", None)]
#[case::name_behind_it("Sign in, Ola Nordmann", None)]
#[tokio::test]
async fn html_is_a_bad_answer_and_a_usual_title_is_shown(
    #[case] title: &str,
    #[case] shown: Option<&str>,
) {
    let page = format!("\n<html><title>{title}</title>{SECRET}{}</html>", "x".repeat(500));
    let length = page.len();
    let service = Service::start(move |_, _| status(200, &page)).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    let chain = error.chain();
    let titled = shown.map(|title| format!(", titled {title:?}")).unwrap_or_default();
    let text = format!("the answer is an HTML page{titled}, not JSON: {length} bytes");
    assert!(chain.contains(&text), "{chain}");
    assert!(!chain.contains(SECRET) && !chain.contains("Ola"), "{chain}");
}

#[tokio::test]
async fn nothing_of_xml_is_shown() {
    let service =
        Service::start(|_, _| status(200, "<Nordmann><title>Login</title></Nordmann>")).await;
    let chain = service.client().send(&request()).await.unwrap_err().chain();
    assert!(chain.contains("the answer is XML or the like, not JSON: 41 bytes"), "{chain}");
    assert!(!chain.contains("Nordmann") && !chain.contains("Login"), "{chain}");
}

#[rstest]
#[case::shorter_than_its_length(
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{\"Id\": 1}",
    Kind::Unreachable
)]
#[case::cut_between_chunks(
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n",
    Kind::Unreachable
)]
#[case::no_answer(b"", Kind::Unreachable)]
#[case::cut_json(
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n[{\"Id\": 1}",
    Kind::BadAnswer
)]
#[case::no_json(
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    Kind::BadAnswer
)]
#[case::broken_gzip(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", Kind::BadAnswer)]
#[case::no_http(b"220 smtp.example\r\n\r\n", Kind::Unreachable)]
#[tokio::test]
async fn a_broken_answer_is_never_taken_for_a_whole_one(#[case] bytes: &[u8], #[case] kind: Kind) {
    let bytes = bytes.to_vec();
    let service = Service::raw(move |_, _| bytes.clone()).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{}", error.chain());
    // Records may hold personal data.
    assert!(!error.chain().contains("Id"), "{}", error.chain());
}

#[tokio::test]
async fn gzip_is_unpacked_and_its_unpacked_size_limited() {
    // 1 MiB of blanks around a number, packed: stored blocks would not shrink, so the service packs.
    let layer = tower_http::compression::CompressionLayer::new();
    let body = format!("{}17", " ".repeat(1024 * 1024));
    let app = axum::Router::new()
        .route("/authtoken", axum::routing::post(|| async { json(r#"{"access_token": "t"}"#) }))
        .fallback(move || async move { json(&body) })
        .layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let client = |answer_bytes| {
        let limits = config::Limits { answer_bytes: config::Bytes(answer_bytes), ..limits() };
        let ledger = Arc::new(MemoryLedger::new());
        Client::with_tuning(&source(&address), &feed(), &limits, ledger, tuning()).unwrap()
    };
    let answer = client(2 * 1024 * 1024).send(&request()).await.unwrap();
    assert_eq!(answer.body.len(), 1024 * 1024 + 2);
    let client = client(1024 * 1024);
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!((error.kind(), sent(&client)), (Kind::TooLarge, 1));
    assert!(error.chain().contains("larger than 1048576 bytes"), "{}", error.chain());
}

#[tokio::test]
async fn answers_that_nobody_has_let_go_of_leave_no_room_for_more() {
    let service = Service::start(|_, _| json(&format!("{}17", " ".repeat(900)))).await;
    let limits = config::Limits { answer_bytes: config::Bytes(1000), ..limits() };
    let ledger = Arc::new(MemoryLedger::new());
    let client =
        Client::with_tuning(&source(&service.address), &feed(), &limits, ledger, tuning()).unwrap();
    let kept = [client.send(&request()).await.unwrap(), client.send(&request()).await.unwrap()];
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    assert!(error.chain().contains("more than 2000 bytes together"), "{}", error.chain());
    drop(kept);
    client.send(&request()).await.unwrap();
}

/// An answer as it stands on the wire.
fn wire(head: &str, body: &str) -> Vec<u8> {
    format!("{head}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

#[rstest]
#[case::http_1_0("HTTP/1.0 200 OK\r\nContent-Type: application/json", "[]")]
#[case::http_1_0_empty("HTTP/1.0 200 OK", "")]
#[case::http_1_1("HTTP/1.1 200 OK", "[{\"Id\": 1}]")]
#[case::reset_content("HTTP/1.1 205 Reset Content\r\nContent-Length: 0", "")]
#[case::created("HTTP/1.1 201 Created\r\nContent-Length: 2", "[]")]
#[case::proxied("HTTP/1.1 203 OK\r\nContent-Length: 2", "[]")]
#[case::partial("HTTP/1.1 206 Partial Content\r\nContent-Length: 2", "[]")]
#[case::html("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/html", "[]")]
#[case::text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain", "[]")]
#[case::blank("HTTP/1.1 200 OK\r\nContent-Length: 2", "\r\n")]
#[case::a_field_twice("HTTP/1.1 200 OK\r\nContent-Length: 18", r#"[{"Id":1,"Id":20}]"#)]
#[tokio::test]
async fn what_is_no_answer_is_asked_again(#[case] head: &str, #[case] body: &str) {
    let first = wire(head, body);
    let service = Service::raw(move |_, before| match before {
        0 => first.clone(),
        _ => wire("HTTP/1.1 200 OK\r\nContent-Length: 3", "[1]"),
    })
    .await;
    let list = request().expecting(crate::source::Expected::list());
    let client = service.client();
    let answer = client.send(&list).await.unwrap();
    assert_eq!((sent(&client), &answer.body[..]), (2, &b"[1]"[..]));
}

#[tokio::test]
async fn what_stays_no_answer_is_a_bad_one() {
    let service = Service::raw(|_, _| wire("HTTP/1.0 200 OK", "")).await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    assert!(error.chain().contains("ended with the connection"), "{}", error.chain());
}

#[rstest]
#[case::length("HTTP/1.0 200 OK\r\nContent-Length: 2", "[]")]
#[case::chunks("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "2\r\n[]\r\n0\r\n\r\n")]
#[case::none("HTTP/1.1 204 No Content", "")]
#[case::none_1_0("HTTP/1.0 204 No Content", "")]
#[case::text_json("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/json", "[]")]
#[case::hal(
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/hal+json; v=1",
    "[]"
)]
#[tokio::test]
async fn an_answer_whose_end_is_proven_is_taken(#[case] head: &str, #[case] body: &str) {
    let bytes = wire(head, body);
    let service = Service::raw(move |_, _| bytes.clone()).await;
    let list = request().expecting(crate::source::Expected::list());
    let client = service.client();
    client.send(&list).await.unwrap();
    assert_eq!(sent(&client), 1);
}

#[rstest]
#[case::length("HTTP/1.1 200 OK\r\nContent-Length: 25\r\nContent-Encoding: gzip", 1)]
#[case::connection("HTTP/1.1 200 OK\r\nContent-Encoding: gzip", 5)]
#[tokio::test]
async fn a_packed_answer_is_taken_where_its_end_is_proven(#[case] head: &str, #[case] calls: u64) {
    // `[]` in a stored block.
    let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\x02\0\xfd\xff[]\x29\xbb\x4c\x0d\x02\0\0\0";
    let head = format!("{head}\r\nConnection: close\r\n\r\n");
    let service = Service::raw(move |_, _| [head.as_bytes(), packed].concat()).await;
    let list = request().expecting(crate::source::Expected::list());
    let client = service.client();
    match client.send(&list).await {
        Ok(answer) => assert_eq!((calls, &answer.body[..]), (1, &b"[]"[..])),
        Err(error) => assert_eq!((error.kind(), calls), (Kind::BadAnswer, 5)),
    }
    assert_eq!(sent(&client), calls);
}

#[tokio::test]
async fn more_records_than_allowed_are_too_large_an_answer() {
    let service = Service::start(|_, _| json("[1, 2, 3]")).await;
    let limits = config::Limits { answer_records: 2, ..limits() };
    let ledger = Arc::new(MemoryLedger::new());
    let source = source(&service.address);
    let client = Client::with_tuning(&source, &feed(), &limits, ledger, tuning()).unwrap();
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!((error.kind(), sent(&client)), (Kind::TooLarge, 1));
    assert!(error.chain().contains("more than 2 records"), "{}", error.chain());
}

#[tokio::test]
async fn a_redirect_is_named_and_not_followed() {
    let service = Service::start(|_, _| {
        let mut answer = status(302, "");
        let location = "https://login.example:8443/sign-in?token=abc".parse().unwrap();
        answer.headers_mut().insert("location", location);
        answer
    })
    .await;
    let error = service.client().send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    assert_eq!(service.calls().len(), 1);
    let chain = error.chain();
    assert!(chain.contains("redirects to https://login.example:8443;"), "{chain}");
    assert!(!chain.contains("abc"), "{chain}");
}

#[tokio::test]
async fn what_times_out_is_tried_once_more_and_a_journal_is_not() {
    let (service, arrived) = Service::silent().await;
    let short = Duration::from_millis(200);
    let limits = config::Limits { timeout: short, journal_timeout: short, ..limits() };
    let source = source(&service.address);
    let ledger = Arc::new(MemoryLedger::new());
    let client = Client::with_tuning(&source, &feed(), &limits, ledger, tuning()).unwrap();
    let error = client.send(&request().class(CallClass::Journal)).await.unwrap_err();
    assert_eq!((error.kind(), *arrived.borrow()), (Kind::Timeout, 1));
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!((error.kind(), *arrived.borrow()), (Kind::Timeout, 3));
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ledger = Arc::new(MemoryLedger::new());
    let client =
        Client::with_tuning(&source(&address), &feed(), &limits(), ledger, tuning()).unwrap();
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{}", error.chain());
}

#[tokio::test]
async fn plain_text_on_a_secure_address_is_a_matter_of_tls() {
    let service = Service::start(|_, _| json("[]")).await;
    let address = service.address.replace("http://", "https://");
    let ledger = Arc::new(MemoryLedger::new());
    let client =
        Client::with_tuning(&source(&address), &feed(), &limits(), ledger, tuning()).unwrap();
    let error = client.send(&request()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Tls, "{}", error.chain());
}

#[tokio::test]
async fn secrets_in_a_query_are_not_shown() {
    let service = Service::start(|_, _| status(400, "")).await;
    let query = Query::new().with("accessToken", "hush").with("searchText", "Oslo");
    let error = service.client().send(&request().query(query)).await.unwrap_err();
    assert!(error.to_string().contains("?accessToken=***&searchText=Oslo failed"), "{error}");
    assert_eq!(service.calls()[0].parameter("accessToken").unwrap(), "hush");
}

fn configured(change: impl FnOnce(&mut config::Source)) -> crate::error::Result<Client> {
    let mut source = source("http://127.0.0.1:1");
    change(&mut source);
    Client::new(&source, &feed(), &limits(), Arc::new(MemoryLedger::new()))
}

#[test]
fn a_certificate_file_that_cannot_be_used_is_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"hello").unwrap();
    for path in [file.path().to_owned(), "/nonexistent/ca.pem".into()] {
        let error = configured(|source| source.ca_file = Some(path.clone())).err().unwrap();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[rstest]
#[case("ftp://host/")]
#[case("https://user:password@host/")]
#[case("https://host/?a=b")]
fn an_address_that_cannot_be_called_is_refused(#[case] address: &str) {
    let error = configured(|source| source.base_url = address.parse().unwrap()).err().unwrap();
    assert_eq!(error.kind(), Kind::Config);
    assert!(!error.chain().contains("password@"));
}
