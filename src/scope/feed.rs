//! The change feeds, and how far they were read.

use std::fmt;
use std::time::Duration;

/// Which of the two change feeds a call asks. Both share one throttle
/// (docs/architecture.md, "The throttle ledger").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedName {
    Cases,
    Contacts,
}

impl FeedName {
    /// As it stands in `sync.feed_calls.feed`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FeedName::Cases => "cases",
            FeedName::Contacts => "contacts",
        }
    }

    /// The feed of that name in `sync.feed_calls.feed`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "cases" => Some(FeedName::Cases),
            "contacts" => Some(FeedName::Contacts),
            _ => None,
        }
    }
}

impl fmt::Display for FeedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a feed was read; ticks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FeedState {
    /// Lower bound of the next poll, which is the watermark; `None` before the first complete poll.
    pub(crate) bound: Option<i64>,
    /// Smallest `Date` minus `ModifiedDate` of all rows so far.
    pub(crate) skew: Option<i64>,
    /// Bound that the poll under way will set, and how far it came.
    pub(crate) next_bound: Option<i64>,
    pub(crate) cursor: Option<i64>,
    /// The largest page that the service took.
    pub(crate) page_size: Option<i64>,
}

/// Which reading of a feed met rows that name nobody: each speaks for its own stretch of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Poll,
    /// The nightly reading of the last days.
    Reread,
}

impl Reader {
    /// The `record_key` of its open reject.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Reader::Poll => "#poll",
            Reader::Reread => "#reread",
        }
    }
}

/// Rows that a feed showed later than the polls waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) rows: u64,
    /// How far behind the bound the oldest of them lies.
    pub(crate) latest: Duration,
}
