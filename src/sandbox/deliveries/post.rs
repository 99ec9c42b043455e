//! Sends what is due, and holds no lock while it does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use reqwest::{Client, header, redirect, retry};
use serde_json::Value as Json;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::Shared;
use super::super::faults::{Fault, When};
use super::letter::{Attempt, Form, Letter};
use super::retry::Answer;

/// Deliveries under way at once: at most one per subscription.
const AT_ONCE: usize = 64;
/// The answer to a handshake is read up to here.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Delivers until it is stopped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut client = None;
    let mut under_way = FuturesUnordered::new();
    loop {
        let room = AT_ONCE - under_way.len();
        let (letters, next) = shared.outbox.take_due(Instant::now(), room);
        if !letters.is_empty() {
            // Only who has subscribers needs one.
            let client = client.get_or_insert_with(connect);
            for letter in letters {
                under_way.push(send(&shared, client.clone(), letter));
            }
        }
        let due = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.outbox.changed() => {}
            () = due => {}
            Some((id, attempt)) = under_way.next() => {
                shared.outbox.settle(id, attempt, shared.options.webhook_minute);
            }
        }
    }
}

/// A client that leads nowhere but to this machine; none where it cannot be built.
fn connect() -> Option<Client> {
    // An error only says that there is a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let here = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .tls_certs_only([])
        .resolve_to_addrs("localhost", &here.map(|ip| SocketAddr::new(ip, 0)))
        // A subscriber that has been restarted must not be met by a connection to the former one.
        .pool_max_idle_per_host(0)
        .build()
        .inspect_err(|error| tracing::error!(%error, "the sandbox cannot deliver webhooks"))
        .ok()
}

/// One attempt, with the faults that were ordered for it.
async fn send(shared: &Shared, client: Option<Client>, letter: Letter) -> (u64, Attempt) {
    let verdict = shared.faults.judge_delivery(&letter.event_type, &letter.body);
    let begun = Instant::now();
    let attempt =
        |answer, confirmed| (letter.id, Attempt { answer, confirmed, took: begun.elapsed() });
    for fault in &verdict.faults {
        match fault {
            Fault::Refuse { status, .. } => return attempt(Answer::Status(*status), false),
            Fault::Drop => return attempt(Answer::Status(0), false),
            Fault::Delay { ms } => sleep(Duration::from_millis(*ms)).await,
            Fault::Hold { name, when: When::Before } => shared.faults.hold(name).await,
            _ => {}
        }
    }
    let Some(client) = client else { return attempt(Answer::Status(0), false) };
    let (answer, confirmed) =
        match timeout(shared.options.webhook_limit, post(&client, &letter)).await {
            Ok((status, confirmed)) => (Answer::Status(status), confirmed),
            Err(_) => (Answer::TooSlow, false),
        };
    for fault in &verdict.faults {
        match fault {
            Fault::Hold { name, when: When::After } => shared.faults.hold(name).await,
            Fault::LoseAnswer => return attempt(Answer::Status(0), false),
            _ => {}
        }
    }
    attempt(answer, confirmed)
}

/// The status of the answer, 0 where none comes, and whether it confirms a handshake.
async fn post(client: &Client, letter: &Letter) -> (u16, bool) {
    let kind = match &letter.form {
        Form::Webhook => None,
        Form::Domain => Some("Notification"),
        Form::Handshake { .. } => Some("SubscriptionValidation"),
    };
    let mut request = client
        .post(letter.url.as_ref())
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(letter.body.as_ref().to_owned());
    if let Some(kind) = kind {
        request = request.header("aeg-event-type", kind);
    }
    let Ok(answer) = request.send().await else { return (0, false) };
    let status = answer.status().as_u16();
    let Form::Handshake { code } = &letter.form else { return (status, false) };
    (status, status == 200 && repeats(answer, code).await)
}

/// Whether the answer is `{"validationResponse": code}`.
async fn repeats(mut answer: reqwest::Response, code: &str) -> bool {
    let mut body = Vec::new();
    while let Ok(Some(part)) = answer.chunk().await {
        body.extend_from_slice(&part);
        if body.len() > LONGEST_ANSWER {
            return false;
        }
    }
    let answer: Json = serde_json::from_slice(&body).unwrap_or_default();
    answer["validationResponse"] == code
}
