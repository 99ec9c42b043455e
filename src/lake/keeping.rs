//! Keeping house in the lake, between two publishings and by nobody else: small files are merged, snapshots older
//! than `lake.keep_for` expire, and the files that nothing needs any more go.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine::{Engine, LAKE, in_catalog};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::sql::{self, instant};

/// It is done so often.
const EVERY: Duration = Duration::from_secs(3600);
/// A file that was replaced stays so long: each publishing and each merging replaces some, which a reader that has a
/// transaction open still names, however long its snapshot is kept. One that no snapshot has may be of somebody's clock
/// that is behind.
const GRACE: Duration = Duration::from_secs(24 * 3600);
/// A file is written anew when so much of its rows is deleted.
const DELETED_SHARE: f64 = 0.3;
/// Of a table that has more files with deleted rows than this, less suffices: DuckLake merges none of them, and for each
/// one in which a publishing deletes a row it writes another. The last is what bounds them.
const LESS: [(i64, f64); 2] = [(32, 0.05), (128, 0.0)];
/// Files below this are merged each time, so that a large one is not written anew for a few rows.
const SMALL_BYTES: u64 = 8 << 20;
/// Files below this are merged where a table has several that are not small.
const MIDDLE_BYTES: u64 = 64 << 20;
const SEVERAL: i64 = 8;

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
    schema: &str,
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
    let expired = count(
        engine,
        step,
        "expire snapshots of the lake",
        &format!("ducklake_expire_snapshots('{LAKE}', {expire})"),
        "count(*)",
    )?;
    if keeping == Keeping::NewestAlone {
        check_alone(engine)?;
    }
    failpoint::hit("lake-expired");
    let merged = rewrite(engine, schema, step)? + merge(engine, schema, step)?;
    failpoint::hit("lake-merged");
    let mut removed = 0;
    for function in ["ducklake_cleanup_old_files", "ducklake_delete_orphaned_files"] {
        let call = format!("{function}('{LAKE}', {remove})");
        removed += count(engine, step, "remove files of the lake", &call, "count(*)")?;
    }
    Ok(Kept { expired, merged, removed })
}

/// How many files became how many fewer.
const FEWER: &str = "sum(files_processed) - sum(files_created)";

/// Writes files anew of which rows are deleted. Returns how many fewer there are.
fn rewrite(engine: &Engine, schema: &str, step: &mut impl FnMut(&str)) -> Result<u64> {
    let doing = "rewrite files of the lake";
    let call = |of: &str, share: f64| {
        format!("ducklake_rewrite_data_files('{LAKE}'{of}, delete_threshold => {share:?})")
    };
    let mut fewer = count(engine, step, doing, &call("", DELETED_SHARE), FEWER)?;
    for (most, share) in LESS {
        for table in with_more(engine, schema, "d.data_file_id IS NOT NULL", most)? {
            fewer += count(engine, step, doing, &call(&table, share), FEWER)?;
        }
    }
    Ok(fewer)
}

/// Merges files of which no rows are deleted. Returns how many fewer there are.
fn merge(engine: &Engine, schema: &str, step: &mut impl FnMut(&str)) -> Result<u64> {
    let doing = "merge files of the lake";
    let call = |of: &str, below: u64| {
        format!("ducklake_merge_adjacent_files('{LAKE}'{of}, max_file_size => {below})")
    };
    let mut fewer = count(engine, step, doing, &call("", SMALL_BYTES), FEWER)?;
    let middle = format!(
        "d.data_file_id IS NULL AND f.file_size_bytes >= {SMALL_BYTES} AND f.file_size_bytes < {MIDDLE_BYTES}"
    );
    for table in with_more(engine, schema, &middle, SEVERAL - 1)? {
        fewer += count(engine, step, doing, &call(&table, MIDDLE_BYTES), FEWER)?;
    }
    Ok(fewer)
}

/// The tables that have more than so many files `f` of which `d`, what says which rows are deleted, is so. Each is what a
/// call names it by. One file for each part of a table does not count: parts are never merged.
fn with_more(engine: &Engine, schema: &str, which: &str, most: i64) -> Result<Vec<String>> {
    let of = |table: &str| in_catalog(schema, table);
    let query = format!(
        "SELECT s.schema_name, t.table_name FROM {} f \
           JOIN {} t ON t.table_id = f.table_id AND t.end_snapshot IS NULL \
           JOIN {} s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL \
           LEFT JOIN {} d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL \
           LEFT JOIN {} p ON p.data_file_id = f.data_file_id \
         WHERE f.end_snapshot IS NULL AND {which} GROUP BY ALL \
         HAVING count(*) - count(DISTINCT p.partition_value) > {most} ORDER BY ALL",
        of("ducklake_data_file"),
        of("ducklake_table"),
        of("ducklake_schema"),
        of("ducklake_delete_file"),
        of("ducklake_file_partition_value")
    );
    engine.query("count files of the lake", &query, |row| {
        let (schema, table): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(format!(", {}, schema => {}", sql::text(&table), sql::text(&schema)))
    })
}

/// Calls one of DuckLake's functions in a transaction of its own; returns `what` of its rows.
fn count(
    engine: &Engine,
    step: &mut impl FnMut(&str),
    doing: &str,
    call: &str,
    what: &str,
) -> Result<u64> {
    step(doing);
    // What is planned scans the lake in the transaction that it was planned in.
    engine.run(doing, "BEGIN")?;
    let counted =
        engine.one::<i64>(doing, &format!("SELECT coalesce({what}, 0)::BIGINT FROM {call}"));
    let counted = counted.and_then(|n| engine.run(doing, "COMMIT").map(|()| n.unsigned_abs()));
    if counted.is_err() {
        // The first error counts.
        let _ = engine.run(doing, "ROLLBACK");
    }
    counted
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
