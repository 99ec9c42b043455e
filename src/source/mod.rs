//! The brokerage API as a client: a [`Request`] goes in, a complete [`Answer`] or one clear error
//! comes out.
//!
//! ```text
//! Pages ──► Client::send ──► slot, token, limits ──► Line ──► service
//!   ▲            │      └──► Ledger (change feeds)      │
//!   └── Pager    └── retries, holds, judgement ◄────────┘
//! ```
//!
//! - [`odata`] and [`Request`]: what is asked, as typed pieces.
//! - [`Client`]: one call; token, limits, retries, refusals.
//! - [`ledger`]: the throttle of the change feeds (contract section 9, promise 1).
//! - [`listing`] and [`pages`]: whole lists, and the proof that they are whole.
//! - [`user`]: whose data it is, and what we may read.
//!
//! Nothing here knows a resource by name, and no secret leaves it.

mod blot;
pub mod boot;
mod calls;
mod client;
pub mod feed_calls;
mod holds;
mod judge;
pub mod ledger;
mod limits;
mod line;
pub mod listing;
pub mod odata;
pub mod pages;
mod refusal;
mod request;
mod retry;
mod shape;
pub mod split;
mod stored_ledger;
mod token;
pub mod user;

#[cfg(test)]
mod tests;

pub use client::{Client, Tuning};
pub use feed_calls::{Ended, FeedCall, LedgerStore, MemoryLedger};
pub use listing::{Identity, Page, PagePlan, Pages, Paging, fetch_pages};
pub use odata::{Filter, Literal, OrderBy, Query};
pub use pages::Verdict;
pub use refusal::{Refusal, refusal};
pub use request::{Answer, CallClass, Method, Request};
pub use retry::Retry;
pub use shape::{Expected, Shape};
pub use split::{Split, records, split};
pub use stored_ledger::StoredLedger;
pub use user::{ApiPermission, TenantId};
