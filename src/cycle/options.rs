//! What a cycle is asked to do.

use super::JournalRequest;
use crate::catalog::Resource;
use crate::scope::{REVENUE, REVENUE_SUMS};

/// What a cycle is asked to do beside following the feed (docs/architecture.md, "What is due").
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Everything is stale.
    pub full: bool,
    /// Only these tables; what is left out stays pending.
    pub only: Vec<String>,
    /// Only these cases.
    pub cases: Vec<i64>,
    /// Lifts the guard for this run.
    pub allow_removals: bool,
    /// Nothing but these journals.
    pub journals: Option<JournalRequest>,
    /// The daemon's own cycle: its poller asks the feeds, and what the search's lag holds back is left
    /// to a later cycle.
    pub following: bool,
    /// The listing that is due was tried a short time ago and has to wait.
    pub postpone_listing: bool,
    /// After the cycle the mirror is held against the source, with so many cases read whole
    /// (docs/architecture.md, "Control totals").
    pub verify: Option<usize>,
    /// What polls up to this number moved was planned by an earlier cycle; `None`: all that is known
    /// when it begins.
    pub handled: Option<i64>,
}

impl Options {
    /// `--only` and `--case` run no schedule.
    pub(super) fn is_partial(&self) -> bool {
        !self.only.is_empty() || !self.cases.is_empty()
    }

    /// Whether a table is read. With the lines of the revenue journals their sums are: without those nothing says
    /// whether the lines are right.
    pub(super) fn wants(&self, table: &str) -> bool {
        let names = |table: &str| self.only.iter().any(|t| t == table);
        self.only.is_empty() || names(table) || table == REVENUE_SUMS && names(REVENUE)
    }

    /// Whether contacts are read; they are no case's.
    pub(super) fn wants_contacts(&self) -> bool {
        self.wants("contacts") && self.cases.is_empty()
    }

    /// Whether the options leave a table in: what they leave out is no failure
    /// (docs/architecture.md, "Commands").
    pub(super) fn asks_for(&self, resource: &Resource) -> bool {
        let wanted = self.wants(&resource.table) || self.wants(resource.read_with());
        wanted && (self.cases.is_empty() || resource.read_with() != "contacts")
    }
}
