//! What is posted, and to whom.

use std::sync::Arc;
use std::time::Duration;

use super::retry::Answer;

/// Whose delivery it is. Each has its own order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// The id of a webhook subscription.
    Webhook(i64),
    /// The name of a domain event subscription.
    Domain(String),
}

impl Target {
    pub(super) fn name(&self) -> String {
        match self {
            Target::Webhook(id) => format!("webhook {id}"),
            Target::Domain(name) => format!("domain events '{name}'"),
        }
    }
}

/// What is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// An event in its envelope (reference 6.1).
    Webhook,
    /// A list of one domain event.
    Domain,
    /// The handshake that precedes domain events: the answer has to repeat this code.
    Handshake { code: String },
}

/// What the post is handed: one attempt.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) id: u64,
    pub(super) event_type: Arc<str>,
    pub(super) url: Arc<str>,
    pub(super) body: Arc<str>,
    pub(super) form: Form,
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) answer: Answer,
    /// Whether a handshake was answered with its code.
    pub(super) confirmed: bool,
    pub(super) took: Duration,
}
/// A delivery to be made.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) target: Target,
    pub(super) event_type: Arc<str>,
    pub(super) url: Arc<str>,
    pub(super) body: Arc<str>,
    pub(super) form: Form,
}
