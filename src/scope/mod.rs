//! The nouns that all steps share: what a scope is, what was seen and fetched of it, why it is to be
//! read. Nothing here reads or writes anything, and no step is imported.

mod calls;
mod case;
mod failure;
mod feed;
mod fetched;
mod journal;
mod month;
mod status;
mod window;
mod work;

pub use calls::CallStats;
pub use case::{
    CaseDates, CaseState, ContactSeen, Place, UNREADABLE_BELOW, Unreadable, any_stamp,
    is_unreadable, unreadable_date,
};
pub use failure::{FailureKind, backoff};
pub use feed::{FeedName, FeedState, Late, Reader};
pub use fetched::{FetchStatus, Fetched, Mark, Version};
pub use journal::{DueMonth, JournalScope, REVENUE, REVENUE_SUMS, level_of};
pub use month::{Month, first_month, months_back};
pub use status::{DueReason, Standing, TableStatus};
pub use window::Window;
pub use work::{Reason, Stale, Urgency, Work};

/// One part of a resource that one complete answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId {
    pub table: String,
    /// The case, the contact or the parent's id; 0 for a whole list.
    pub id: i64,
    pub part: String,
}
