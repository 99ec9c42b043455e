//! What the daemon serves (contract, section 8). On `serve.listen`: the status page, whether it lives and is
//! ready, metrics, and the status as JSON. On `serve.webhooks`: the address of webhooks.
//!
//! Nothing here writes or calls the source. What a page says is collected from the store on a connection of
//! its own, once for all who ask within a few seconds.

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
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::error::{Error, Result};
use crate::pulse::Pulse;
use crate::session::Session;

use facts::{Cache, Facts};
pub(crate) use hooks::Hooks;
pub(crate) use listener::Bound;
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
        let routes = Router::new()
            .route("/", get(status_page))
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .route("/metrics", get(scraped))
            .route("/api/status", get(as_json))
            .with_state(Arc::new(self));
        bound.serve(routes).await
    }

    async fn facts(&self) -> Result<Arc<Facts>> {
        self.cache.facts(&self.session, &self.pulse).await
    }
}

/// Where it serves, for people.
pub(crate) fn address(at: SocketAddr) -> String {
    format!("http://{at}/")
}

/// No page of ours needs anything from anywhere, and none is to be kept or shown within another.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

async fn alive() -> Response {
    (HEADERS, "ok\n").into_response()
}

/// Ready is who has polled lately and can read the store.
async fn ready(State(face): State<Arc<Face>>) -> Response {
    let store = Arc::clone(face.session.store());
    let looked = tokio::task::spawn_blocking(move || {
        crate::mirror::State::new(&store.connection()?).meta("store_id").map(drop)
    });
    let store = match looked.await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.chain()),
        Err(_) => Some("it cannot be read".to_owned()),
    };
    let why = match store {
        Some(why) => Some(format!("the store does not work: {why}")),
        None => face.pulse.lag(&face.session.config().feed),
    };
    match why {
        None => (HEADERS, "ready\n").into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, HEADERS, format!("{why}\n")).into_response(),
    }
}

async fn scraped(State(face): State<Arc<Face>>) -> Response {
    match face.facts().await {
        Ok(facts) => {
            let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
            (HEADERS, [kind], face.metrics.render(&facts)).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

async fn as_json(State(face): State<Arc<Face>>) -> Response {
    match face.facts().await.and_then(|facts| facts.status.to_json()) {
        Ok(status) => {
            (HEADERS, [(header::CONTENT_TYPE, "application/json")], status).into_response()
        }
        Err(error) => {
            let text = format!("{:#}\n", json!({ "error": error.chain() }));
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (StatusCode::SERVICE_UNAVAILABLE, HEADERS, kind, text).into_response()
        }
    }
}

async fn status_page(State(face): State<Arc<Face>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let collected = async {
        let facts = face.facts().await?;
        Ok::<_, Error>((facts, face.cache.reports(&face.session).await?))
    };
    match collected.await {
        Ok((facts, reports)) => {
            (HEADERS, kind, page::of(&facts, &reports).into_string()).into_response()
        }
        Err(error) => {
            let text = page::of_trouble(&error.chain()).into_string();
            (StatusCode::SERVICE_UNAVAILABLE, HEADERS, kind, text).into_response()
        }
    }
}

fn unavailable(error: &Error) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, HEADERS, format!("{}\n", error.chain())).into_response()
}
