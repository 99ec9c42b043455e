//! What webhooks and domain events tell (reference, section 6): reasons to read something again, and the few
//! facts that no call reads (docs/architecture.md, "Webhooks").

mod event;
mod queue;
mod subscriptions;

pub(crate) use event::{json_of, of_domain_events, of_webhook};
pub(crate) use queue::{Batch, HintQueue, path_of};
pub(crate) use subscriptions::{Address, Aligned, Made};
