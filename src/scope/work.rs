//! What is to be read, and why.

/// Something to be fetched, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    pub table: String,
    pub id: i64,
    /// The dates it will be fetched at.
    pub stamp: String,
    /// The path parameter that another table gives, where the resource needs one.
    pub given: Option<String>,
    pub reason: Reason,
}

/// Why a scope is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Never fetched.
    New,
    /// One of its dates moved.
    Changed,
    /// It was asked for to be read again: `reread`, `full`, `redefined`.
    Asked(String),
    /// The last answer was not complete, or the guard held it.
    Incomplete,
    /// The search showed an older state than the feed.
    Lagging,
    /// It is searched once more after `source.search_delay`.
    SearchDelay,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::New => f.write_str("never fetched"),
            Reason::Changed => f.write_str("changed"),
            Reason::Asked(why) => f.write_str(why),
            Reason::Incomplete => f.write_str("the last answer was incomplete"),
            Reason::Lagging => f.write_str("the search lags behind the feed"),
            Reason::SearchDelay => f.write_str("is searched once more after source.search_delay"),
        }
    }
}
