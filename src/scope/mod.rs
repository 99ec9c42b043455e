//! The nouns that all steps share: what a scope is, what was seen and fetched of it, why it is to be
//! read. Nothing here reads or writes anything, and no step is imported.

mod calls;
mod case;
mod failure;
mod feed;
mod fetched;
mod hint;
mod journal;
mod month;
mod names;
mod status;
mod window;
mod work;

pub(crate) use calls::CallStats;
pub(crate) use case::{
    CaseDates, CaseState, ContactSeen, Place, UNKNOWN, UNREADABLE_BELOW, Unreadable, any_version,
    is_unreadable, unreadable_date,
};
pub(crate) use failure::{FailureKind, backoff};
pub use feed::FeedName;
pub(crate) use feed::{FeedState, Late, Reader};
pub(crate) use fetched::{AnswerDigest, FetchStatus, Fetched, Mark, Version};
pub(crate) use hint::{CasePart, Fact, Hint, Told};
pub(crate) use journal::{DueMonth, JournalScope, REVENUE, REVENUE_SUMS, level_of};
pub(crate) use month::{Month, first_month, months_back};
pub(crate) use status::{DueReason, Standing, TableStatus};
pub(crate) use window::Window;
pub(crate) use work::{Reason, Stale, Urgency, Work};

/// One part of a resource that one complete answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ScopeId {
    pub(crate) table: String,
    /// The case, the contact or the parent's id; 0 for a whole list.
    pub(crate) id: i64,
    pub(crate) part: String,
}
