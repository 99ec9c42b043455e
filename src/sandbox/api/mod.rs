//! The platform's API: what it answers, and what befalls every call on its way (faults, the
//! throttle, the token, the log).

pub(crate) mod answer;
mod case;
mod consents;
mod domain_events;
mod dossier;
mod economics;
mod feed;
mod files;
mod invoicing;
pub(crate) mod journals;
mod office;
mod public;
mod routes;
mod search;
mod strict;
pub(crate) mod token;
pub(crate) mod user;
mod webhooks;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::time::Instant;

use super::faults::{Fault, Verdict, When};
use super::listener::Line;
use super::spoil::spoil;
use super::stats::Call;
use super::throttle::ThrottleStyle;
use super::{Paging, Shared};
use answer::Refusal;
pub(crate) use routes::router;
pub(crate) use search::Ids;

/// A JSON body, or 400.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("The body is not understood: {error}")))
}

impl Shared {
    /// Refuses with 403 and the missing ones unless the API user has all of these permissions.
    fn need(&self, permissions: &[&str]) -> Result<(), Refusal> {
        let knobs = self.knobs();
        let missing: Vec<&str> =
            permissions.iter().copied().filter(|p| knobs.withdrawn.contains(*p)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let body = serde_json::json!({
            "Message": "The API user lacks permissions for this call",
            "MissingPermissions": missing,
        });
        let mut refusal = Refusal::new(StatusCode::FORBIDDEN, "");
        refusal.body = body.to_string();
        Err(refusal)
    }

    /// How the list endpoints page in general.
    fn paging(&self) -> super::odata::Limits {
        let mut limits = super::odata::Limits::odata(self.options.max_top.lists);
        limits.ignores_paging = self.options.paging == Paging::IgnoresPaging;
        limits.skip_only = self.options.paging == Paging::SkipOnly;
        limits
    }
}

/// What befalls every call: it is counted and logged, suffers the faults that were ordered for it,
/// and needs a token.
async fn on_the_way(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
    next: Next,
) -> Response {
    let whole = request.uri().path();
    let path = whole.strip_prefix(&shared.options.base_path).unwrap_or(whole).to_owned();
    let template = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let template = template.strip_prefix(&shared.options.base_path).unwrap_or(template).to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let method = request.method().to_string();
    let at = shared.world().now().exact();

    let verdict = shared.faults.judge(&method, &path, &query);
    let passage =
        Passage { shared: &shared, line: &line, path: &path, known: !template.is_empty() };
    let answered = passage.answer(verdict, request, next).await;
    let status = answered.as_ref().map_or(0, |response| response.status().as_u16());
    shared.stats().note(Call { method, template, path, query, status, at });

    let mut response = answered.unwrap_or_else(|| StatusCode::OK.into_response());
    let date = shared.server_time().utc().format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    if let Ok(date) = HeaderValue::from_str(&date) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

/// One call on its way.
struct Passage<'a> {
    shared: &'a Shared,
    line: &'a Line,
    path: &'a str,
    known: bool,
}

impl Passage<'_> {
    /// The answer, or `None` where the connection is closed without one.
    async fn answer(&self, verdict: Verdict, request: Request, next: Next) -> Option<Response> {
        // Counted on arrival, whatever becomes of the call.
        let is_feed = self.path.starts_with("/api/Integrations/RecentlyModified/");
        let arrival = is_feed.then(|| self.shared.throttle().arrive(Instant::now()));
        for fault in &verdict.faults {
            match fault {
                Fault::Refuse { status, headers, body } => {
                    return Some(scripted(*status, headers, body));
                }
                Fault::MaxQuery { status, .. } => {
                    return Some(scripted(*status, &HashMap::new(), ""));
                }
                Fault::Drop => {
                    self.line.cut();
                    return None;
                }
                Fault::Hold { name, when: When::Before } => self.shared.faults.hold(name).await,
                _ => {}
            }
        }
        let excess = arrival.and_then(|arrival| arrival.excess);
        let style = self.shared.throttle().style;
        let mut delayed = None;
        if let Some(excess) = excess {
            if style != ThrottleStyle::HoldBack {
                return Some(self.throttled(style, excess).into_response());
            }
            tokio::time::sleep(excess).await;
            delayed = Some(excess);
        }
        let mut response = self.compute(&verdict, request, next).await;
        if let Some(delayed) = delayed {
            let name = HeaderName::from_static("x-ratelimit-delayed-by-milliseconds");
            let value = HeaderValue::from(u64::try_from(delayed.as_millis()).unwrap_or(u64::MAX));
            response.headers_mut().insert(name, value);
        }
        self.spoil(verdict, response).await
    }

    async fn compute(&self, verdict: &Verdict, mut request: Request, next: Next) -> Response {
        if self.known
            && self.path.starts_with("/api/")
            && !self.path.starts_with("/api/Public/")
            && let Err(refusal) = self.shared.tokens().check(request.headers())
        {
            return refusal.into_response();
        }
        if verdict.spoils() {
            request.headers_mut().remove(header::ACCEPT_ENCODING);
        }
        request.extensions_mut().insert(verdict.twist());
        next.run(request).await
    }

    /// Faults that befall a computed answer.
    async fn spoil(&self, verdict: Verdict, mut response: Response) -> Option<Response> {
        for fault in verdict.faults {
            match fault {
                Fault::Hold { name, when: When::After } => self.shared.faults.hold(&name).await,
                Fault::Delay { ms } => {
                    tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                }
                Fault::LoseAnswer => {
                    self.line.cut();
                    return None;
                }
                Fault::Garbage { body, status, content_type } => {
                    let kind = content_type.unwrap_or_else(|| "application/json".to_owned());
                    let headers = [("Content-Type".to_owned(), kind)].into();
                    response = scripted(status.unwrap_or(200), &headers, &body);
                }
                Fault::Spoil { how } => response = spoil(response, how).await,
                Fault::Raw { answer } => {
                    self.line.replace(answer.into_bytes());
                    return None;
                }
                Fault::CutOff { bytes } => response = cut_off(response, bytes).await,
                _ => {}
            }
        }
        Some(response)
    }

    /// 429 in the style that is set.
    fn throttled(&self, style: ThrottleStyle, excess: std::time::Duration) -> Refusal {
        let seconds = excess.as_secs() + u64::from(excess.subsec_nanos() > 0);
        let until = self.shared.server_time().utc()
            + chrono::Duration::seconds(i64::try_from(seconds).unwrap_or(0));
        let refusal =
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, "Too many calls to RecentlyModified");
        match style {
            ThrottleStyle::RetryAfter => refusal.header(header::RETRY_AFTER, seconds.to_string()),
            ThrottleStyle::RetryAfterDate => refusal
                .header(header::RETRY_AFTER, until.format("%a, %d %b %Y %H:%M:%S GMT").to_string()),
            ThrottleStyle::RateLimitHeaders => refusal
                .header(
                    HeaderName::from_static("x-ratelimit-limit"),
                    self.shared.throttle().calls.to_string(),
                )
                .header(HeaderName::from_static("x-ratelimit-remaining"), "0")
                .header(
                    HeaderName::from_static("x-ratelimit-reset"),
                    until.timestamp().to_string(),
                ),
            ThrottleStyle::Bare | ThrottleStyle::HoldBack => refusal,
        }
    }
}

/// An answer as a test has written it.
fn scripted(
    status: u16,
    headers: &std::collections::HashMap<String, String>,
    body: &str,
) -> Response {
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The same answer, whose connection is closed after a part of the body.
async fn cut_off(response: Response, bytes: Option<usize>) -> Response {
    let (mut parts, body) = response.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let part = whole.slice(..bytes.unwrap_or(whole.len() / 2).min(whole.len()));
    // Said to be whole, so that the caller can see that it is not.
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let pieces = futures::stream::unfold(Some(part), async |part| match part {
        Some(part) => Some((Ok(part), None)),
        None => {
            // A pause makes the server send what it has before it meets the error.
            tokio::task::yield_now().await;
            Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)), None))
        }
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}
