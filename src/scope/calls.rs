//! What was asked of the source.

use std::sync::Arc;
use std::time::Duration;

/// What was asked of one endpoint since the counts were last taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallStats {
    /// The path's template; `/authtoken` for tokens.
    pub(crate) endpoint: Arc<str>,
    /// Calls sent, retries and replays included.
    pub(crate) calls: u64,
    /// How many of them repeated an earlier one.
    pub(crate) retries: u64,
    /// How many were refused: answered with a 4xx, but for 404 ("there is none") and a 401 that a
    /// new token mended.
    pub(crate) refusals: u64,
    /// Bytes of the answers' bodies, decompressed.
    pub(crate) bytes: u64,
    /// From sending to the complete answer, waiting for limits not included.
    pub(crate) time: Duration,
}
