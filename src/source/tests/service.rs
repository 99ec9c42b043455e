//! A service on a real socket that answers as a test tells it to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request as HttpRequest, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config;
use crate::source::client::Tuning;
use crate::source::feed_calls::LedgerStore;
use crate::source::retry::Retry;
use crate::source::{Client, MemoryLedger, Request};

/// A question about case 17.
pub(super) fn request() -> Request {
    Request::get("/api/Cases/{case_id}/Roles", &[("case_id", "17")]).unwrap()
}

/// What arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The parameters of the query, decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        url::form_urlencoded::parse(self.query.as_bytes())
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.into_owned())
    }
}

/// A running service; it ends with the test's runtime.
pub(crate) struct Service {
    pub(crate) address: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Service {
    /// Answers every call with what `script` makes of it and of how many came before it, the calls
    /// to the token endpoint not counted: those get `token-1`, `token-2`, ...
    pub(crate) async fn start(
        script: impl Fn(&Arrived, usize) -> Response + Send + Sync + 'static,
    ) -> Self {
        let tokens = Mutex::new(0);
        let calls = Mutex::new(0);
        Self::bare(move |arrived| {
            if arrived.path.ends_with("/authtoken") {
                let mut tokens = tokens.lock().unwrap();
                *tokens += 1;
                return json(&format!(
                    r#"{{"access_token": "token-{tokens}", "token_type": "bearer", "expires_in": 1200}}"#
                ));
            }
            let mut calls = calls.lock().unwrap();
            let answer = script(arrived, *calls);
            *calls += 1;
            answer
        })
        .await
    }

    /// The same without a token endpoint of its own.
    pub(crate) async fn bare(
        script: impl Fn(&Arrived) -> Response + Send + Sync + 'static,
    ) -> Self {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&arrived));
        let app = axum::Router::new().fallback(move |request: HttpRequest<Body>| {
            let (script, log) = (Arc::clone(&script), Arc::clone(&log));
            async move {
                let at = Instant::now();
                let (head, body) = request.into_parts();
                let call = Arrived {
                    method: head.method.to_string(),
                    path: head.uri.path().to_owned(),
                    query: head.uri.query().unwrap_or_default().to_owned(),
                    headers: head.headers,
                    body: to_bytes(body, usize::MAX).await.unwrap(),
                    at,
                };
                log.lock().unwrap().push(call.clone());
                script(&call)
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Service { address, arrived }
    }

    /// Answers each connection with the bytes that `script` gives for the request's first line, as
    /// they are, and closes it.
    pub(crate) async fn raw(
        script: impl Fn(&str, usize) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut calls = 0;
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_head(&mut stream).await;
                let line = request.lines().next().unwrap_or_default();
                let answer = if line.contains("/authtoken") {
                    token_answer()
                } else {
                    calls += 1;
                    script(&request, calls - 1)
                };
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        });
        Service { address, arrived: Arc::default() }
    }

    /// Gives tokens and leaves every other call without answer; the receiver tells how many came.
    pub(crate) async fn silent() -> (Self, watch::Receiver<usize>) {
        Self::stalling(b"").await
    }

    /// The same after these bytes of an answer.
    pub(crate) async fn stalling(answer: &'static [u8]) -> (Self, watch::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_head(&mut stream).await;
                if request.contains("/authtoken") {
                    stream.write_all(&token_answer()).await.unwrap();
                } else {
                    count.send_modify(|count| *count += 1);
                    stream.write_all(answer).await.unwrap();
                    open.push(stream);
                }
            }
        });
        (Service { address, arrived: Arc::default() }, counted)
    }

    /// All calls so far, those to the token endpoint included.
    pub(crate) fn all(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// The calls so far, but for those to the token endpoint.
    pub(crate) fn calls(&self) -> Vec<Arrived> {
        self.all().into_iter().filter(|call| !call.path.ends_with("/authtoken")).collect()
    }

    /// How many tokens were asked for.
    pub(crate) fn token_calls(&self) -> usize {
        self.all().len() - self.calls().len()
    }

    pub(crate) fn client(&self) -> Client {
        Client::with_tuning(
            &source(&self.address),
            &feed(),
            &limits(),
            Arc::new(MemoryLedger::new()),
            tuning(),
        )
        .unwrap()
    }

    pub(crate) fn client_with(&self, feed: &config::Feed, ledger: Arc<dyn LedgerStore>) -> Client {
        Client::with_tuning(&source(&self.address), feed, &limits(), ledger, tuning()).unwrap()
    }
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&request).into_owned()
}

fn token_answer() -> Vec<u8> {
    let body = r#"{"access_token": "token-1", "expires_in": 1200}"#;
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

pub(crate) fn json(body: &str) -> Response {
    ([("content-type", "application/json")], body.to_owned()).into_response()
}

pub(crate) fn status(status: u16, body: &str) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.to_owned()).into_response()
}

pub(crate) const SECRET: &str = "s3cret/with+signs";

pub(crate) fn source(address: &str) -> config::Source {
    config::Source {
        base_url: address.parse().unwrap(),
        client_id: "integrator".to_owned(),
        client_secret: SECRET.to_owned().into(),
        time_zone: jiff::tz::TimeZone::UTC,
        search_delay: Duration::ZERO,
        doubt: Duration::ZERO,
        ca_file: None,
    }
}

pub(crate) fn feed() -> config::Feed {
    config::Feed {
        style: config::FeedStyle::Odata,
        calls: 100,
        per: Duration::from_millis(100),
        poll: Duration::from_secs(10),
        contacts_poll: None,
        overlap: Duration::from_secs(600),
        ledger: None,
    }
}

pub(crate) fn limits() -> config::Limits {
    config::Limits {
        requests_per_second: 10_000,
        concurrency: 8,
        timeout: Duration::from_secs(20),
        journal_timeout: Duration::from_secs(20),
        retry_after: Duration::from_secs(3_600),
        answer_bytes: config::Bytes(256_000_000),
        answer_records: 2_000_000,
    }
}

pub(crate) fn tuning() -> Tuning {
    let retry = Retry {
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_millis(2),
        seed: Some(1),
        ..Retry::default()
    };
    Tuning { retry, ..Tuning::default() }
}
