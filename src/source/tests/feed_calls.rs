//! Calls to the change feeds, on a real socket: how many there are, and what the ledger says of them.

use std::sync::Arc;
use std::time::Duration;

use super::service::{Service, feed, json, limits, request, source, status, tuning};
use crate::config;
use crate::error::Kind;
use crate::scope::FeedName;
use crate::source::{CallClass, Client, MemoryLedger};

#[tokio::test]
async fn a_refused_feed_call_holds_the_feed_for_a_window_and_nothing_else() {
    let per = Duration::from_millis(400);
    let service = Service::start(|_, before| match before {
        0 => status(429, ""),
        _ => json("[]"),
    })
    .await;
    let ledger = Arc::new(MemoryLedger::new());
    let client = service.client_with(&config::Feed { per, ..feed() }, ledger.clone());
    let poll = request().class(CallClass::Feed(FeedName::Cases));
    client.send(&poll).await.unwrap();
    let calls = service.calls();
    assert!(calls[1].at - calls[0].at >= per);
    let end = ledger.calls()[0].end.clone().unwrap();
    assert_eq!((end.status, end.retry_after >= per), (Some(429), true));
}

#[tokio::test]
async fn the_feed_never_sees_more_calls_in_a_window_than_allowed() {
    let per = Duration::from_millis(300);
    let service = Service::start(|_, _| json("[]")).await;
    let feed = config::Feed { calls: 3, per, ..feed() };
    let client = service.client_with(&feed, Arc::new(MemoryLedger::new()));
    let cases = request().class(CallClass::Feed(FeedName::Cases));
    let contacts = request().class(CallClass::Feed(FeedName::Contacts));
    let both = (0..5).flat_map(|_| [client.send(&cases), client.send(&contacts)]);
    for answer in futures::future::join_all(both).await {
        answer.unwrap();
    }
    let at: Vec<_> = service.calls().iter().map(|call| call.at).collect();
    assert_eq!(at.len(), 10);
    for (first, later) in at.iter().zip(&at[3..]) {
        assert!(*later - *first >= per);
    }
}

#[tokio::test]
async fn a_feed_call_that_times_out_is_ended_in_the_ledger() {
    let (service, arrived) = Service::silent().await;
    let ledger = Arc::new(MemoryLedger::new());
    let limits = config::Limits { timeout: Duration::from_millis(200), ..limits() };
    let mut tuning = tuning();
    tuning.retry.attempts = 1;
    let source = source(&service.address);
    let client = Client::with_tuning(&source, &feed(), &limits, ledger.clone(), tuning).unwrap();
    let poll = request().class(CallClass::Feed(FeedName::Cases));
    let error = client.send(&poll).await.unwrap_err();
    assert_eq!((error.kind(), *arrived.borrow()), (Kind::Timeout, 1));
    let ends: Vec<_> = ledger.calls().into_iter().map(|call| call.end.unwrap().status).collect();
    assert_eq!(ends, [None]);
}

#[tokio::test]
async fn a_feed_call_that_is_dropped_is_ended_in_the_ledger() {
    let (service, mut arrived) = Service::silent().await;
    let ledger = Arc::new(MemoryLedger::new());
    let client = service.client_with(&feed(), ledger.clone());
    let poll = request().class(CallClass::Feed(FeedName::Contacts));
    tokio::select! {
        _ = client.send(&poll) => unreachable!("nobody answers"),
        arrived = arrived.wait_for(|count| *count == 1) => drop(arrived.unwrap()),
    }
    client.flush().await;
    assert_eq!(ledger.calls()[0].end.as_ref().unwrap().status, None);
}

#[tokio::test]
async fn a_feed_call_without_answer_keeps_its_place_in_the_window() {
    let service = Service::raw(|_, before| match before {
        0 => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[".to_vec(),
        _ => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]".to_vec(),
    })
    .await;
    let ledger = Arc::new(MemoryLedger::new());
    let client = service.client_with(&feed(), ledger.clone());
    let poll = request().class(CallClass::Feed(FeedName::Cases));
    client.send(&poll).await.unwrap();
    let calls = ledger.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.end.is_some()));
    assert_eq!(calls[0].end.as_ref().unwrap().status, None);
}
