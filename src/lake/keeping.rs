//! Keeping house in the lake, between two publishings and by nobody else: small files are merged, snapshots older
//! than `lake.keep_for` expire, and the files that nothing needs any more go.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine::{Engine, LAKE};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::sql::instant;

/// It is done so often.
const EVERY: Duration = Duration::from_secs(3600);
/// A file whose snapshot has expired stays for readers that still read it, and one that no snapshot has may be of
/// somebody's clock that is behind.
const GRACE: Duration = Duration::from_secs(3600);
/// A file is written anew when so much of its rows is deleted.
const DELETED_SHARE: f64 = 0.3;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Snapshots that can be read no more.
    pub(crate) expired: u64,
    /// Files that became fewer.
    pub(crate) merged: u64,
    /// Files that are gone.
    pub(crate) removed: u64,
}

impl Kept {
    pub(super) fn add(&mut self, other: Kept) {
        self.expired += other.expired;
        self.merged += other.merged;
        self.removed += other.removed;
    }
}

/// How thoroughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// As `lake.keep_for` says.
    For(Duration),
    /// Earlier snapshots hold what is to be seen no more: only the newest stays, and no file but its own.
    NewestAlone,
}

/// Whether it is time.
pub(super) fn is_due(last: Option<Timestamp>, now: Timestamp, keep_for: Duration) -> bool {
    // A clock that was set back does not end it for good.
    last.is_none_or(|last| now.duration_since(last).unsigned_abs() >= EVERY.min(keep_for))
}

/// Does it. `step` hears of each part.
///
/// # Errors
/// `Lake`: what was done so far is done.
pub(super) fn keep(
    engine: &Engine,
    keeping: Keeping,
    now: Timestamp,
    step: &mut impl FnMut(&str),
) -> Result<Kept> {
    // Whoever took the lock meanwhile may have written files that no snapshot has yet.
    engine.check_lock()?;
    let before = |age: Duration| instant(now.checked_sub(age).unwrap_or(Timestamp::MIN));
    let (expire, remove) = match keeping {
        Keeping::For(kept) => {
            let grace = before(GRACE.min(kept));
            (format!("older_than => {}", before(kept)), format!("older_than => {grace}"))
        }
        // DuckLake never expires the newest. Whatever the clock: the times of the others are the catalog's, which may be
        // ahead of this host.
        Keeping::NewestAlone => {
            (format!("older_than => {}", instant(Timestamp::MAX)), "cleanup_all => true".to_owned())
        }
    };
    let mut count = |doing: &str, sql: &str, what: &str| {
        step(doing);
        // What is planned scans the lake in the transaction that it was planned in.
        engine.run(doing, "BEGIN")?;
        let counted =
            engine.one::<i64>(doing, &format!("SELECT coalesce({what}, 0)::BIGINT FROM {sql}"));
        let counted = counted.and_then(|n| engine.run(doing, "COMMIT").map(|()| n.unsigned_abs()));
        if counted.is_err() {
            // The first error counts.
            let _ = engine.run(doing, "ROLLBACK");
        }
        counted
    };
    let files = "sum(files_processed) - sum(files_created)";
    let expired = count(
        "expire snapshots of the lake",
        &format!("ducklake_expire_snapshots('{LAKE}', {expire})"),
        "count(*)",
    )?;
    if keeping == Keeping::NewestAlone {
        check_alone(engine)?;
    }
    failpoint::hit("lake-expired");
    let rewritten = count(
        "rewrite files of the lake",
        &format!("ducklake_rewrite_data_files('{LAKE}', delete_threshold => {DELETED_SHARE})"),
        files,
    )?;
    let merged = count(
        "merge files of the lake",
        &format!("ducklake_merge_adjacent_files('{LAKE}')"),
        files,
    )?;
    failpoint::hit("lake-merged");
    let old = count(
        "remove files of the lake",
        &format!("ducklake_cleanup_old_files('{LAKE}', {remove})"),
        "count(*)",
    )?;
    let orphaned = count(
        "remove files of the lake",
        &format!("ducklake_delete_orphaned_files('{LAKE}', {remove})"),
        "count(*)",
    )?;
    Ok(Kept { expired, merged: merged + rewritten, removed: old + orphaned })
}

/// Refuses to believe that earlier snapshots are gone where there are some.
fn check_alone(engine: &Engine) -> Result<()> {
    let count = format!("SELECT count(*) - 1 FROM {LAKE}.snapshots()");
    let left: i64 = engine.one("count snapshots of the lake", &count)?;
    if left == 0 {
        return Ok(());
    }
    let text = format!(
        "earlier snapshots of the lake ({left}) are still there, and hold what was erased; the next publishing tries it \
         again"
    );
    Err(Error::new(Kind::Lake, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_every_hour_and_sooner_where_less_is_kept() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let ago = |seconds: i64| Some(Timestamp::from_second(1_800_000_000 - seconds).unwrap());
        let day = Duration::from_secs(86_400);
        assert!(is_due(None, now, day));
        assert!(!is_due(ago(3599), now, day));
        assert!(is_due(ago(3600), now, day));
        assert!(is_due(ago(-7200), now, day), "a clock that was set back");
        assert!(is_due(ago(1), now, Duration::from_secs(1)));
    }
}
