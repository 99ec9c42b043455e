//! Named points at which a test can kill the process (docs/architecture.md, "Scopes").
//!
//! `CASEMIRROR_ABORT_AT=name` ends the process at that point as a crash would: at once, nothing
//! flushed, nothing closed. `name:3` waits for the third time. Only where the feature `failpoints` is built
//! in, which is in the program that the tests start: elsewhere a point is nothing.

/// Every point that a run comes to, so that a test can go through all of them.
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

/// Those of a run that takes values out of the store and its files, in the order in which it comes to them.
pub const ERASING: [&str; 5] = [
    "store-written-anew",
    "store-replaced",
    "database-published",
    "snapshot-placed",
    "packs-written",
];

/// Those of a snapshot on its way into a bucket, in the order in which it comes to them.
pub const UPLOADING: [&str; 4] =
    ["snapshot-uploaded", "snapshot-written", "snapshot-placed", "after-upload"];

/// Those of a webhook, in the order in which it comes to them.
pub const HINTING: [&str; 3] = ["hint-kept", "hints-taken", "hints-released"];

/// Those of `casemirror backup`, after what it has written so far, and of `restore`, in the order in which it
/// comes to them.
pub const BACKING_UP: [&str; 2] = ["backup-begun", "backup-written"];
pub const RESTORING: [&str; 4] =
    ["restore-begun", "restore-extracted", "secrets-placed", "store-placed"];

/// Those of a publishing to the lake, in the order in which it comes to them.
pub const LAKE: [&str; 6] = [
    "lake-expired",
    "lake-merged",
    "lake-begun",
    "lake-table-written",
    "lake-written",
    "lake-committed",
];

/// Ends the process here when this point was chosen.
#[cfg(feature = "failpoints")]
pub(crate) fn hit(point: &str) {
    armed::hit(point);
}

/// Nothing.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn hit(_: &str) {}

/// Whether calls that fail are repeated without a pause: `CASEMIRROR_RETRY_AT_ONCE` is set.
pub(crate) fn retries_at_once() -> bool {
    cfg!(feature = "failpoints") && std::env::var_os("CASEMIRROR_RETRY_AT_ONCE").is_some()
}

/// How much memory the daemon's DuckDB has left as soon as it is open: `CASEMIRROR_MEMORY_LEFT`.
pub(crate) fn memory_left() -> Option<String> {
    std::env::var("CASEMIRROR_MEMORY_LEFT").ok().filter(|_| cfg!(feature = "failpoints"))
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

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

    pub(super) fn hit(point: &str) {
        let lists: [&[&str]; 5] =
            [&super::POINTS, &super::ERASING, &super::BACKING_UP, &super::RESTORING, &super::LAKE];
        debug_assert!(lists.iter().any(|list| list.contains(&point)), "{point} is in no list");
        if let Some(armed) = armed()
            && armed.point == point
            && armed.remaining.fetch_sub(1, Ordering::SeqCst) == 1
        {
            std::process::abort();
        }
    }
}
