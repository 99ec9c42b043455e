//! What was read of a scope.

/// A row of `sync.fetched`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub stamp: String,
    pub complete: bool,
    /// When it is to be searched again whatever its dates, in microseconds of our clock.
    pub again_at: Option<i64>,
    pub fetched_at: i64,
}

/// The change dates that a scope is fetched at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stamp {
    /// Those that the plan saw before the first call of the scope was sent.
    Known(String),
    /// Those that are seen when the answer is committed, unless they moved after the call was sent:
    /// `sequence` counts the polls, and a row that a later poll moved stays stale.
    AsSeen { sequence: i64 },
}
