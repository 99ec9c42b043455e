//! What is to be read, why, and how urgently.

use super::{AnswerDigest, DueMonth, Mark, ScopeId};

/// Something to be fetched, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) table: String,
    pub(crate) id: i64,
    /// The dates it will be fetched at.
    pub(crate) version: String,
    /// The path parameter that another table gives, where the resource needs one.
    pub(crate) lookup: Option<String>,
    pub(crate) reason: Reason,
    /// The answer that its rows are, where an equal one need not be decoded.
    pub(crate) mirrored: Option<AnswerDigest>,
    /// The number of the last hint of it, where a webhook named it: a call that is sent now answers it.
    pub(crate) hint: Option<i64>,
}

/// Why a scope is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Never fetched.
    New,
    /// One of its dates moved.
    Changed,
    /// It was asked for to be read again.
    Asked(Mark),
    /// The last answer was not complete, or the guard held it.
    Incomplete,
    /// The search showed an older state than the feed.
    Lagging,
    /// It is searched once more after `source.search_delay`.
    SearchDelay,
    /// A webhook named it.
    Hinted,
}

impl Reason {
    /// Whether the rows that are mirrored are believed to be what the last answer said: then an equal
    /// answer need not be decoded.
    pub(crate) fn believes_the_mirror(&self) -> bool {
        match self {
            Reason::Changed | Reason::Hinted | Reason::Asked(Mark::Reread | Mark::Gap) => true,
            Reason::New
            | Reason::Asked(Mark::Full | Mark::Redefined)
            | Reason::Incomplete
            | Reason::Lagging
            | Reason::SearchDelay => false,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::New => f.write_str("never fetched"),
            Reason::Changed => f.write_str("changed"),
            Reason::Asked(mark) => mark.fmt(f),
            Reason::Incomplete => f.write_str("the last answer was incomplete"),
            Reason::Lagging => f.write_str("the search lags behind the feed"),
            Reason::Hinted => f.write_str("a webhook named it"),
            Reason::SearchDelay => f.write_str("is searched once more after source.search_delay"),
        }
    }
}

/// How urgent work is; the earlier goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Urgency {
    /// What polls saw move while a run goes on.
    Change,
    /// What a schedule or a person asked for.
    Due,
    /// What else is stale.
    Backlog,
}

/// What one place of the loop reads: one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    /// A case's part of a table.
    Case(Stale),
    /// A whole list.
    List { table: String, mirrored: Option<AnswerDigest>, hint: Option<i64> },
    /// The list that names the scopes of a table.
    Names { table: String },
    /// The part of a table that belongs to a row of another one.
    Row { table: String, id: i64, mirrored: Option<AnswerDigest>, hint: Option<i64> },
    /// A journal's month.
    Month(DueMonth),
}

impl Work {
    /// The table that is read.
    pub(crate) fn table(&self) -> &str {
        match self {
            Work::Case(stale) => &stale.table,
            Work::List { table, .. } | Work::Names { table } | Work::Row { table, .. } => table,
            Work::Month(month) => &month.table,
        }
    }

    /// The scope that is read. At most one call of it is under way.
    pub(crate) fn scope(&self) -> ScopeId {
        let (id, part) = match self {
            Work::Case(stale) => (stale.id, String::new()),
            Work::List { .. } | Work::Names { .. } => (0, String::new()),
            Work::Row { id, .. } => (*id, String::new()),
            Work::Month(month) => (month.scope.id, month.scope.part()),
        };
        ScopeId { table: self.table().to_owned(), id, part }
    }
}
