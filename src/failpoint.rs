//! Named points at which a test can kill the process (docs/architecture.md, "Scopes").
//!
//! `CASEMIRROR_ABORT_AT=name` ends the process at that point as a crash would: at once, nothing
//! flushed, nothing closed. `name:3` waits for the third time. Without the variable a point costs
//! one comparison.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every point there is, so that a test can go through all of them.
pub const POINTS: [&str; 13] = [
    "feed-call-noted",
    "feed-page-committed",
    "poll-complete",
    "listing-page",
    "answer-received",
    "before-commit",
    "in-commit",
    "after-commit",
    "before-publish",
    "database-published",
    "snapshot-written",
    "snapshot-placed",
    "after-publish",
];

struct Armed {
    point: String,
    remaining: AtomicU64,
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED
        .get_or_init(|| {
            let text = std::env::var("CASEMIRROR_ABORT_AT").ok()?;
            let (point, times) = text.split_once(':').unwrap_or((&text, "1"));
            Some(Armed {
                point: point.to_owned(),
                remaining: AtomicU64::new(times.parse().unwrap_or(1)),
            })
        })
        .as_ref()
}

/// Ends the process here when this point was chosen.
pub(crate) fn hit(point: &str) {
    debug_assert!(POINTS.contains(&point), "{point} is not listed in POINTS");
    if let Some(armed) = armed()
        && armed.point == point
        && armed.remaining.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}
