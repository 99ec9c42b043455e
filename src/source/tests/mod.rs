//! Tests of the client as a whole: against values, and against a scripted service on a real socket.

mod answers;
mod feed_calls;
mod lease;
mod ledger;
mod lists;
mod page_by_page;
mod paging;
pub(crate) mod service;
mod subscriptions;
mod throttle;
mod tokens;
