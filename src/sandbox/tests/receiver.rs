//! A subscriber: it keeps what comes, and answers as a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value as Json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A delivery that arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrived {
    pub(super) path: String,
    pub(super) body: String,
    pub(super) headers: HeaderMap,
}

impl Arrived {
    pub(super) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap()
    }
}

type Reply = Arc<dyn Fn(usize, Arrived) -> BoxFuture<'static, Response> + Send + Sync>;

pub(super) struct Receiver {
    pub(super) url: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    count: watch::Sender<usize>,
    server: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Receiver {
    /// Answers with this status each time.
    pub(super) async fn answering(status: u16) -> Receiver {
        Receiver::new(move |_, _| async move { code(status) }).await
    }

    /// Answers as a function of how many came before, and of what comes.
    pub(super) async fn new<F>(
        reply: impl Fn(usize, Arrived) -> F + Send + Sync + 'static,
    ) -> Receiver
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Receiver::at(TcpListener::bind("127.0.0.1:0").await.unwrap(), reply)
    }

    pub(super) fn at<F>(
        listener: TcpListener,
        reply: impl Fn(usize, Arrived) -> F + Send + Sync + 'static,
    ) -> Receiver
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (arrived, count) = (Arc::new(Mutex::new(Vec::new())), watch::Sender::new(0));
        let reply: Reply = Arc::new(move |n, one| reply(n, one).boxed());
        let (kept, counted) = (arrived.clone(), count.clone());
        let take = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let body = String::from_utf8(body.to_vec()).unwrap();
            let one = Arrived { path: uri.path().to_owned(), body, headers };
            let before = {
                let mut kept = kept.lock().unwrap();
                kept.push(one.clone());
                kept.len() - 1
            };
            counted.send_modify(|count| *count += 1);
            reply(before, one)
        };
        let router = Router::new().fallback(take);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Receiver { url, arrived, count, server }
    }

    /// Everything so far, once it is at least so many.
    pub(super) async fn wait_for(&self, count: usize) -> Vec<Arrived> {
        let mut counted = self.count.subscribe();
        let enough = counted.wait_for(|known| *known >= count);
        let enough = tokio::time::timeout(Duration::from_secs(30), enough).await;
        assert!(enough.is_ok(), "{} of {count} came", self.all().len());
        self.all()
    }

    pub(super) fn all(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }
}

/// An answer without a body.
pub(super) fn code(status: u16) -> Response {
    axum::http::StatusCode::from_u16(status).unwrap().into_response()
}
