//! What the daemon serves (contract, section 8). On `serve.listen`: the status page, whether it lives and is
//! ready, metrics, and the status as JSON. On `serve.webhooks`: the address of webhooks.
//!
//! Nothing here writes or calls the source. What a page says is collected from the store on a connection of
//! its own, once for all who ask within a few seconds.

mod cache;
mod charts;
mod facts;
mod hooks;
mod listener;
mod metrics;
mod page;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::error::{Error, Result};
use crate::pulse::Pulse;
use crate::session::Session;
use crate::status::store_fails;

use cache::Cache;
use facts::Facts;
pub(crate) use hooks::Hooks;
pub(crate) use listener::Bound;
use listener::answered_in_time;
pub(crate) use metrics::Metrics;

/// What the daemon serves, until it is dropped.
pub(crate) struct Face {
    session: Arc<Session>,
    pulse: Arc<Pulse>,
    metrics: Metrics,
    cache: Cache,
}

impl Face {
    /// The face of a session.
    pub(crate) fn of(session: Arc<Session>, pulse: Arc<Pulse>, metrics: Metrics) -> Face {
        Face { session, pulse, metrics, cache: Cache::default() }
    }

    /// Serves there until it is dropped.
    ///
    /// # Errors
    /// None: what one caller meets is not the others'.
    pub(crate) async fn serve(self, bound: Bound) -> Result<()> {
        let keeping_up = self.metrics.clone().keep_up();
        let routes = Router::new()
            .route("/", get(status_page))
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .route("/metrics", get(scraped))
            .route("/api/status", get(as_json))
            .layer(map_response(guarded))
            .layer(from_fn(answered_in_time))
            .with_state(Arc::new(self));
        tokio::select! {
            served = bound.serve(routes) => served,
            never = keeping_up => never,
        }
    }

    async fn facts(&self) -> Result<Arc<Facts>> {
        self.cache.facts(&self.session, &self.pulse).await
    }
}

/// Where it serves, for people.
pub(crate) fn address(at: SocketAddr) -> String {
    format!("http://{at}/")
}

/// What every answer says: it is what it says it is, is kept by nobody, and takes in nothing.
async fn guarded(mut answer: Response) -> Response {
    let headers: &mut HeaderMap = answer.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&page::POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

const PLAIN: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
const HTML: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
const METRICS: [(HeaderName, &str); 1] =
    [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];

async fn alive() -> Response {
    (PLAIN, "ok\n").into_response()
}

/// Ready is who has polled lately, can read the store, and has committed what was last to be written.
async fn ready(State(face): State<Arc<Face>>) -> Response {
    let store = Arc::clone(face.session.store());
    let looked = tokio::task::spawn_blocking(move || {
        crate::mirror::State::new(&store.connection()?).meta("store_id").map(drop)
    });
    let store = match looked.await {
        Ok(Ok(())) => face.session.store_fault(),
        Ok(Err(error)) => Some(error.chain()),
        Err(_) => Some("it cannot be read".to_owned()),
    };
    let feeds = face.pulse.feeds(&face.session.config().feed);
    let why = match store {
        Some(why) => Some(store_fails(&why)),
        None => feeds.lag().map(ToString::to_string),
    };
    match why {
        None => (PLAIN, "ready\n").into_response(),
        Some(why) => unavailable(&why),
    }
}

async fn scraped(State(face): State<Arc<Face>>) -> Response {
    match face.facts().await {
        Ok(facts) => (METRICS, face.metrics.render(&facts)).into_response(),
        Err(error) => unavailable(&error.chain()),
    }
}

async fn as_json(State(face): State<Arc<Face>>) -> Response {
    match face.facts().await.and_then(|facts| facts.status.to_json()) {
        Ok(status) => (JSON, status).into_response(),
        Err(error) => {
            let text = format!("{:#}\n", json!({ "error": error.chain() }));
            (StatusCode::SERVICE_UNAVAILABLE, JSON, text).into_response()
        }
    }
}

async fn status_page(State(face): State<Arc<Face>>, uri: Uri) -> Response {
    let refreshes = uri.query() != Some(page::STILL);
    let collected = async {
        let facts = face.facts().await?;
        Ok::<_, Error>((facts, face.cache.reports(&face.session).await?))
    };
    match collected.await {
        Ok((facts, reports)) => {
            (HTML, page::of(&facts, &reports, refreshes).into_string()).into_response()
        }
        Err(error) => {
            let text = page::of_trouble(&error.chain(), refreshes).into_string();
            (StatusCode::SERVICE_UNAVAILABLE, HTML, text).into_response()
        }
    }
}

/// 503, and why.
fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n")).into_response()
}
