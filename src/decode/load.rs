//! Decoded scopes, as they are handed to the mirror.

use jiff::Timestamp;

use super::Decoded;
use crate::scope::{AnswerDigest, Place, Version};
use crate::ticks::Ticks;

/// One scope of an answer.
#[derive(Debug, Clone)]
pub(crate) struct LoadedScope {
    pub(crate) id: i64,
    pub(crate) part: String,
    pub(crate) version: Version,
    /// The answer was proven complete (docs/architecture.md, "Completeness"): only then do absent rows leave.
    pub(crate) complete: bool,
    pub(crate) sent_at: Timestamp,
    /// When it was answered by the service's clock, where something is over only by both clocks.
    pub(crate) dated_at: Option<Timestamp>,
    /// By what a complete answer is known again of which every value fitted.
    pub(crate) digest: Option<AnswerDigest>,
    /// The number of the last hint of the scope that was known before its first call was sent: the answer
    /// answers hints up to it.
    pub(crate) hint: Option<i64>,
}

/// What kind of answer a load comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadKind {
    /// Each scope was read by calls of its own.
    Scopes,
    /// Rows of a search: a listing page or many ids in one call. `answered_at` is the server's time.
    Search { place: Place, answered_at: Ticks },
    /// Each scope is a month of a journal.
    Journal,
    /// Each scope, a month or not, was answered as [`LoadedScope::digest`] says, and so were the rows that
    /// are mirrored: nothing is decoded, and there is no row in the load.
    Unchanged,
}

/// Some scopes of one table, decoded.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) decoded: Decoded,
    pub(crate) scopes: Vec<LoadedScope>,
    pub(crate) kind: LoadKind,
    /// Records that it was made of, those that were not decoded too: told as progress when it is
    /// committed.
    pub(crate) records: u64,
    /// Ids that a search was asked for and did not show: a record of its answer without a usable key
    /// is one of these.
    pub(crate) lacking: Vec<i64>,
    /// Those of the values that a scope's calls go through (`read.values` of the resource file) that
    /// answered 404, while others did not. Whether there is none of them decides who loads it:
    /// `StaleScopes::lack` of the store.
    pub(crate) missing: Vec<String>,
    /// The source answered 404: there is nothing, but the table has not shown that it is there.
    pub(crate) not_found: bool,
}

impl Load {
    /// It was asked for when the last hint of its scopes was this one.
    pub(crate) fn answers(&mut self, hint: Option<i64>) {
        self.scopes.iter_mut().for_each(|scope| scope.hint = hint);
    }

    /// Memory that the load takes, for the writer's budget.
    pub(crate) fn bytes(&self) -> usize {
        self.decoded.bytes() + self.scopes.len() * 128 + 1024
    }
}
