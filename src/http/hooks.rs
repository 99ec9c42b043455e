//! The addresses of webhooks and domain events (contract, section 8; reference, sections 6.1 to 6.4).
//!
//! The platform waits five seconds, and never repeats what was answered with 4xx: so that is said only of what
//! can never become right. What was told is kept before it is answered for, and nothing else is done.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::listener::Bound;
use super::metrics::set_instant;
use crate::error::Result;
use crate::hints::{HintQueue, json_of, of_domain_events, of_webhook};
use crate::scope::Told;
use crate::text::without_bom;

/// A larger body is refused.
const LONGEST_BODY: usize = 4 << 20; // 4 MiB
/// What of a refused body is read at most, and dropped: many clients send all of it before they read the answer, and
/// a connection that is closed before its body was read is reset, with the answer in it.
const MOST_DROPPED: usize = 32 << 20; // 32 MiB
/// A body of up to so many bytes is read at once. Connections are few: all of them together hold 8 MiB of such.
const SMALL_BODY: usize = 64 << 10; // 64 KiB
/// So many larger bodies are read and understood at a time, whoever sends how many.
const LARGE_AT_ONCE: usize = 2;

/// Says of which kind a delivery of the event grid is.
const KIND: HeaderName = HeaderName::from_static("aeg-event-type");
/// Asks whether events may be sent, and allows it (the CloudEvents web hook).
const ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");
const VALIDATION: &str = "Microsoft.EventGrid.SubscriptionValidationEvent";

/// What takes webhooks, until it is dropped.
pub(crate) struct Hooks {
    queue: HintQueue,
    token: SecretString,
    /// Of date-times without offset.
    zone: TimeZone,
    large: Semaphore,
}

impl Hooks {
    /// Takes them for this queue, at addresses that end with this token.
    pub(crate) fn of(queue: HintQueue, token: SecretString, zone: TimeZone) -> Hooks {
        Hooks { queue, token, zone, large: Semaphore::new(LARGE_AT_ONCE) }
    }

    /// Serves there until it is dropped.
    ///
    /// # Errors
    /// None: what one caller meets is not the others'.
    pub(crate) async fn serve(self, bound: Bound) -> Result<()> {
        bound.serve(self.routes()).await
    }

    fn routes(self) -> Router {
        Router::new()
            .route("/webhooks/{token}", post(webhook))
            .route("/events/{token}", post(domain_events).options(allow_events))
            .fallback(nowhere)
            .with_state(Arc::new(self))
    }

    /// Compared by their digests, so that the time says nothing about the token.
    fn knows(&self, token: &str) -> bool {
        Sha256::digest(token) == Sha256::digest(self.token.expose_secret())
    }

    /// Keeps what was told, and answers for it.
    async fn keep(&self, told: Vec<Told>) -> Response {
        if told.is_empty() {
            return StatusCode::OK.into_response();
        }
        match self.queue.keep(told).await {
            Ok(()) => StatusCode::OK.into_response(),
            // It is sent again, which may help.
            Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
}

/// With what an address ends. What cannot be read as text is nobody's token, and no other error than one.
struct Token(String);

impl<S: Send + Sync> FromRequestParts<S> for Token {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Token, Infallible> {
        let token = Path::<String>::from_request_parts(parts, state).await;
        Ok(Token(token.map_or_else(|_| String::new(), |Path(token)| token)))
    }
}

async fn nowhere(headers: HeaderMap, body: Body) -> StatusCode {
    drop_rest(&headers, &mut body.into_data_stream()).await;
    StatusCode::NOT_FOUND
}

async fn webhook(
    State(hooks): State<Arc<Hooks>>,
    Token(token): Token,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let understood = |body: &[u8]| of_webhook(body, &hooks.zone);
    let answer = match read(&hooks, &token, &headers, body, understood).await {
        Ok(told) => hooks.keep(told).await,
        Err(refused) => refused.into_response(),
    };
    count("webhook", answer.status());
    answer
}

async fn domain_events(
    State(hooks): State<Arc<Hooks>>,
    Token(token): Token,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let understood = |body: &[u8]| {
        let events = match json_of(body)? {
            Value::Array(events) => events,
            event => vec![event],
        };
        Some(match validation_code(&headers, &events) {
            Some(code) => Events::Validation(code),
            None => Events::Told(of_domain_events(&events, &hooks.zone)),
        })
    };
    let answer = match read(&hooks, &token, &headers, body, understood).await {
        Ok(Events::Told(told)) => hooks.keep(told).await,
        Ok(Events::Validation(code)) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (kind, json!({ "validationResponse": code }).to_string()).into_response()
        }
        Err(refused) => refused.into_response(),
    };
    count("domain_event", answer.status());
    answer
}

/// A delivery of domain events.
enum Events {
    Told(Vec<Told>),
    /// The validation handshake of the event grid, with its code.
    Validation(String),
}

/// The code that a new subscription has to hear.
fn validation_code(headers: &HeaderMap, events: &[Value]) -> Option<String> {
    let is_asked = headers.get(KIND).is_some_and(|kind| kind == "SubscriptionValidation");
    let event = events.iter().find(|event| is_asked || event["eventType"] == VALIDATION)?;
    event["data"]["validationCode"].as_str().map(str::to_owned)
}

/// Whether events may be sent: the handshake of CloudEvents.
async fn allow_events(
    State(hooks): State<Arc<Hooks>>,
    Token(token): Token,
    headers: HeaderMap,
) -> Response {
    if !hooks.knows(&token) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let mut answer = StatusCode::OK.into_response();
    if let Some(origin) = headers.get(ORIGIN) {
        answer.headers_mut().insert(ALLOWED_ORIGIN, origin.clone());
        answer.headers_mut().insert(ALLOWED_RATE, HeaderValue::from_static("*"));
    }
    answer
}

/// What `understood` makes of the body of a delivery that is ours; `None` is a body that can never become right.
async fn read<T>(
    hooks: &Hooks,
    token: &str,
    headers: &HeaderMap,
    body: Body,
    understood: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, StatusCode> {
    let mut parts = body.into_data_stream();
    let refused = match within_limits(hooks, token, headers) {
        Ok(()) => match whole(&hooks.large, &mut parts).await {
            Ok((body, _place)) => {
                return understood(&without_bom(body)).ok_or(StatusCode::BAD_REQUEST);
            }
            Err(refused) => refused,
        },
        Err(refused) => refused,
    };
    drop_rest(headers, &mut parts).await;
    Err(refused)
}

/// Whether the body of a delivery is to be read at all, by what stands before it.
fn within_limits(hooks: &Hooks, token: &str, headers: &HeaderMap) -> Result<(), StatusCode> {
    if !hooks.knows(token) {
        return Err(StatusCode::NOT_FOUND);
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length: Option<usize> = length.and_then(|length| length.parse().ok());
    if length.is_some_and(|length| length > LONGEST_BODY) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    Ok(())
}

/// All of a body, with its place among `large` ones where it is one. One that stops coming keeps no small one waiting:
/// the platform gives a delivery up after five seconds.
async fn whole<'p>(
    large: &'p Semaphore,
    parts: &mut BodyDataStream,
) -> Result<(Bytes, Option<SemaphorePermit<'p>>), StatusCode> {
    let (mut whole, mut place) = (BytesMut::new(), None);
    while let Some(part) = parts.next().await {
        // A connection that broke off may be made again.
        let part = part.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        if whole.len() + part.len() > LONGEST_BODY {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if whole.len() + part.len() > SMALL_BODY && place.is_none() {
            // A connection ends before it waits for ever.
            let free = large.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
            place = Some(free);
        }
        whole.extend_from_slice(&part);
    }
    Ok((whole.freeze(), place))
}

/// Reads on and keeps nothing, so that who sends gets the answer; the connection's own end bounds how long.
async fn drop_rest(headers: &HeaderMap, parts: &mut BodyDataStream) {
    // Who asks before it sends a body is answered, and sends none.
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let mut dropped = 0;
    while dropped < MOST_DROPPED
        && let Some(Ok(part)) = parts.next().await
    {
        dropped += part.len();
    }
}

fn count(kind: &'static str, status: StatusCode) {
    let result = if status.is_success() { "kept" } else { "refused" };
    metrics::counter!("casemirror_webhooks_total", "kind" => kind, "result" => result).increment(1);
    if status.is_success() {
        set_instant("casemirror_webhook_last_timestamp_seconds", Timestamp::now());
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};

    use super::*;

    /// A body that begins with so many bytes and does not go on.
    fn stalled(bytes: usize) -> BodyDataStream {
        let begun = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))]);
        Body::from_stream(begun.chain(stream::pending())).into_data_stream()
    }

    #[test]
    fn bodies_that_stop_coming_keep_no_small_one_waiting() {
        let large = Semaphore::new(LARGE_AT_ONCE);
        let whole_of = async |mut parts: BodyDataStream| whole(&large, &mut parts).await;
        let mut waiting: Vec<_> = [SMALL_BODY, SMALL_BODY + 1, SMALL_BODY + 1]
            .map(|bytes| Box::pin(whole_of(stalled(bytes))))
            .into();
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        let small = Body::from("{}").into_data_stream();
        let (body, place) = whole_of(small).now_or_never().unwrap().unwrap();
        assert_eq!((&body[..], place.is_some()), (&b"{}"[..], false));
        let next = || Body::from(vec![b' '; SMALL_BODY + 1]).into_data_stream();
        assert!(whole_of(next()).now_or_never().is_none(), "so many large ones at a time");
        drop(waiting);
        let (_, place) = whole_of(next()).now_or_never().unwrap().unwrap();
        assert!(place.is_some());
    }
}
