//! The brokerage API as a client: a [`Request`] goes in, a complete [`Answer`] or one clear error
//! comes out.
//!
//! ```text
//! Pages ──► Client::send ──► slot, token, limits ──► Transport ──► service
//!   ▲            │      └──► Ledger (change feeds)      │
//!   └── Pager    └── retries, Retry-After, verdict ◄────┘
//! ```
//!
//! - [`odata`] and [`Request`]: what is asked, as typed pieces.
//! - [`Client`]: one call; token, limits, retries, refusals.
//! - [`ledger`]: the throttle of the change feeds (docs/architecture.md, "The throttle ledger").
//! - [`lease`]: which of several hosts may ask the change feeds.
//! - [`listing`] and [`pages`]: whole lists, and the proof that they are whole.
//! - [`user`]: whose data it is, and what we may read.
//! - [`subscriptions`]: its own webhook subscriptions, the only thing that is ever written.
//!
//! Nothing here knows a resource by name, and no secret leaves it.

pub(crate) mod boot;
mod calls;
mod client;
pub(crate) mod feed_calls;
mod field_names;
mod held;
mod lease;
pub(crate) mod ledger;
mod ledger_copy;
mod ledger_file;
mod limits;
pub(crate) mod listing;
mod names;
pub(crate) mod odata;
pub(crate) mod pages;
mod process;
mod redact;
mod refusal;
mod request;
mod retry;
mod retry_after;
mod shape;
mod spellings;
pub mod split;
mod stored_ledger;
mod subscriptions;
mod token;
mod tops;
mod transport;
pub(crate) mod user;
mod validate;
mod verdict;

#[cfg(feature = "sandbox")]
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use boot::SystemBootClock;
pub use client::Client;
pub(crate) use client::Tuning;
pub(crate) use feed_calls::MemoryLedger;
pub(crate) use lease::{Keep, Lease, Note};
pub(crate) use ledger_copy::{
    check as check_ledger, ledger_text, merge_ledger, place as ledger_place,
};
pub(crate) use ledger_file::api_user;

pub(crate) use listing::{Identity, Page, PagePlan, Pages, Paging};
pub(crate) use odata::{Filter, OrderBy, Query};
pub(crate) use pages::Verdict;
pub(crate) use refusal::refusal;
pub(crate) use request::{Answer, CallClass, FARTHEST_BEHIND, Method, Request};
pub(crate) use shape::{Expected, Pardons, Shape, fault_of_record};
pub(crate) use split::{Split, records};
pub use stored_ledger::StoredLedger;
pub(crate) use subscriptions::{Subscription, Subscriptions};
pub(crate) use user::ApiPermission;
