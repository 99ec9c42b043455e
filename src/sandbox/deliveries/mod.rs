//! Events on their way to subscribers (reference 6): webhooks, one delivery per subscription of the
//! event's type, and domain events, of which a subscription gets all.
//!
//! The world emits under its own lock into the [`outbox`](outbox::Outbox), which never asks back;
//! the [`post`] sends from there and holds no lock while it does.

mod book;
mod domain;
pub(crate) mod letter;
pub(crate) mod outbox;
pub(crate) mod post;
mod retry;

use serde::{Deserialize, Serialize};

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOutcome {
    /// It waits for its first attempt, for its answer or for its next attempt.
    Pending,
    /// Answered with 2xx or 3xx.
    Delivered,
    /// Answered with 4xx, or given up: after the last retry, or since the subscription is gone.
    Failed,
    /// Never tried: the address is not of this machine, or the subscription is gone.
    NotSent,
}

/// One event for one subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    pub id: u64,
    /// `webhook 803`, or `domain events 'crm'`.
    pub subscription: String,
    pub event_type: String,
    pub url: String,
    /// The body as it is posted each time.
    pub body: String,
    pub attempts: u32,
    /// Of the last attempt: 0 where no answer came; none before the first one, and where the
    /// answer took too long.
    pub status: Option<u16>,
    /// How long the last attempt took.
    pub seconds: f64,
    pub outcome: DeliveryOutcome,
}

/// How many deliveries there have been since the sandbox began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCounts {
    pub attempts: u64,
    pub pending: u64,
    pub delivered: u64,
    pub failed: u64,
    pub not_sent: u64,
    /// Pending ones that were left out because there were too many.
    pub dropped: u64,
}

/// The newest deliveries, the oldest of them first, and the counts of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Deliveries {
    pub counts: DeliveryCounts,
    pub latest: Vec<Delivery>,
}
