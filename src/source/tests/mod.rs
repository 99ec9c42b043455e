//! Tests of the client as a whole: against values, and against a scripted service on a real socket.

mod answers;
mod feed_calls;
mod lease;
mod ledger;
mod lists;
mod paging;
mod service;
mod throttle;
mod tokens;
