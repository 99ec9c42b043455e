//! `sync.feed_calls`: what the ledger says, as rows of the store for people to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::boot::BootTime;
use super::feed_calls::{Caller, Change, Ended, FeedCall, LedgerStore, Mark};
use super::ledger_copy;
use super::ledger_file::LedgerFile;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use crate::sql::{db, from_micros, instant, instant_param, query};

/// The ledger's file, and the store that shows what stands in it.
pub struct StoredLedger {
    file: LedgerFile,
    /// A connection of its own, so that it never waits for the writer.
    conn: Mutex<Connection>,
    /// Whether the store may be written to.
    check: Check,
}

/// Refuses to write where the store is not what it was.
type Check = Box<dyn Fn(&Connection) -> Result<()> + Send + Sync>;

impl StoredLedger {
    /// The ledger of the configured API user, shown in `sync.feed_calls` of the store that `connection`
    /// leads to; it is used for nothing else.
    ///
    /// # Errors
    /// `Config` where there is no place for the file, `Io` where it cannot be written, and those of the
    /// store.
    pub fn open(config: &Config, connection: Connection) -> Result<StoredLedger> {
        let file = LedgerFile::at(&ledger_copy::place(config)?, config.feed.calls)?;
        show_others(&file, &connection)?;
        Ok(StoredLedger { file, conn: Mutex::new(connection), check: Box::new(|_| Ok(())) })
    }

    /// The same, which asks before each time that it writes to the store.
    #[must_use]
    pub fn asking(
        self,
        check: impl Fn(&Connection) -> Result<()> + Send + Sync + 'static,
    ) -> StoredLedger {
        StoredLedger { check: Box::new(check), ..self }
    }

    fn with<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        f(&self.conn.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LedgerStore for StoredLedger {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        let (mut before, mut changes) = (Vec::new(), Vec::new());
        self.file.update(&mut |calls| {
            before = calls.to_vec();
            changes = step(calls);
            changes.clone()
        })?;
        if changes.is_empty() {
            return Ok(());
        }
        self.with(|conn| {
            (self.check)(conn)?;
            show(conn, &before, &changes)
        })
    }

    fn remembered(&self, newest: usize) -> Result<Vec<FeedCall>> {
        self.with(|conn| recent(conn, newest))
    }

    fn is_gone(&self, call: &FeedCall) -> Option<bool> {
        self.file.is_gone(call)
    }
}

/// Shows what others have written to the file since the store was open last.
fn show_others(file: &LedgerFile, conn: &Connection) -> Result<()> {
    let mut ended = Vec::new();
    file.update(&mut |calls| {
        ended = calls.iter().filter(|call| call.end.is_some()).cloned().collect();
        Vec::new()
    })?;
    let Some(first) = ended.iter().map(|call| call.sent_at).min() else { return Ok(()) };
    let sql = format!(
        "SELECT epoch_us(sent_at), feed FROM sync.feed_calls \
         WHERE sent_at >= {} AND ended_at IS NOT NULL",
        instant(first)
    );
    let shown: Vec<(i64, String)> = query(conn, &sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let shown: BTreeSet<(i64, &str)> = shown.iter().map(|(at, feed)| (*at, &**feed)).collect();
    let lacking = ended.iter().filter(|call| !shown.contains(&call.mark()));
    let changes: Vec<Change> = lacking.flat_map(|call| call.as_changes(call.id)).collect();
    show(conn, &[], &changes)
}

/// Shows changes of the calls that were known `before`.
fn show(conn: &Connection, before: &[FeedCall], changes: &[Change]) -> Result<()> {
    let mut marks = BTreeMap::new();
    for change in changes {
        match change {
            Change::Sent(call) => {
                marks.insert(call.id, call.mark());
                // What nobody has made is no call; and what the store has told itself is there.
                if call.by != Caller::default() {
                    insert(conn, call)?;
                }
            }
            Change::Ended(id, end) => {
                let known = || before.iter().find(|call| call.id == *id).map(FeedCall::mark);
                if let Some(mark) = marks.get(id).copied().or_else(known) {
                    update(conn, mark, end)?;
                }
            }
        }
    }
    Ok(())
}

/// The newest calls, and those that have no end. Whoever made them is not told.
fn recent(conn: &Connection, newest: usize) -> Result<Vec<FeedCall>> {
    let rows = query(
        conn,
        &format!(
            "SELECT id, feed, boot_id, epoch_us(sent_at), sent_boot_ns, \
               epoch_us(ended_at), ended_boot_ns, status, hold_ns \
             FROM sync.feed_calls WHERE ended_at IS NULL OR id IN \
               (SELECT id FROM sync.feed_calls ORDER BY sent_at DESC LIMIT {newest}) \
             ORDER BY id"
        ),
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Option<i64>>(3)?,
                row.get::<_, i64>(4)?,
                row.get::<_, Option<i64>>(5)?,
                row.get::<_, Option<i64>>(6)?,
                row.get::<_, Option<u16>>(7)?,
                row.get::<_, Option<i64>>(8)?,
            ))
        },
    )?;
    rows.into_iter()
        .map(|(id, feed, boot_id, sent_at, sent, ended_at, ended, status, retry_after)| {
            let broken =
                || Error::new(Kind::Store, format!("row {id} of sync.feed_calls is unreadable"));
            let end = match (from_micros(ended_at), ended) {
                (Some(at), Some(time)) => Some(Ended {
                    boot_id: boot_id.clone(),
                    at,
                    time: BootTime::from_nanos(time),
                    status,
                    retry_after: Duration::from_nanos(retry_after.unwrap_or(0).max(0) as u64),
                }),
                _ => None,
            };
            Ok(FeedCall {
                id,
                feed: FeedName::from_name(&feed).ok_or_else(broken)?,
                by: Caller::default(),
                boot_id,
                sent_at: from_micros(sent_at).ok_or_else(broken)?,
                sent: BootTime::from_nanos(sent),
                patience: Duration::ZERO,
                end,
            })
        })
        .collect()
}

fn insert(conn: &Connection, call: &FeedCall) -> Result<()> {
    conn.execute(
        "INSERT INTO sync.feed_calls (id, feed, boot_id, sent_at, sent_boot_ns) \
         SELECT * FROM (VALUES (?, ?, ?, ?::TIMESTAMPTZ, ?)) c(id, feed, boot_id, sent_at, ns) \
         WHERE NOT EXISTS (SELECT 1 FROM sync.feed_calls s \
           WHERE s.sent_at = c.sent_at AND s.feed = c.feed)",
        params![
            call.id,
            call.feed.as_str(),
            call.boot_id,
            instant_param(call.sent_at),
            call.sent.as_nanos()
        ],
    )
    .map(drop)
    .map_err(|e| db("cannot note a feed call before it is sent", e))
}

fn update(conn: &Connection, (sent_at, feed): Mark, ended: &Ended) -> Result<()> {
    let sent_at = Timestamp::from_microsecond(sent_at)
        .map_err(|e| Error::caused(Kind::Internal, "a feed call was sent at no time", e))?;
    conn.execute(
        "UPDATE sync.feed_calls SET ended_at = ?::TIMESTAMPTZ, ended_boot_ns = ?, status = ?, \
           hold_ns = ?, boot_id = ? WHERE sent_at = ?::TIMESTAMPTZ AND feed = ?",
        params![
            instant_param(ended.at),
            ended.time.as_nanos(),
            ended.status,
            i64::try_from(ended.retry_after.as_nanos()).unwrap_or(i64::MAX),
            ended.boot_id,
            instant_param(sent_at),
            feed
        ],
    )
    .map(drop)
    .map_err(|e| db("cannot note the end of a feed call", e))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source::boot::SystemBootClock;
    use crate::source::feed_calls::Rule;
    use crate::source::ledger::Ledger;

    const WINDOW: Duration = Duration::from_secs(600);

    struct Place {
        folder: tempfile::TempDir,
        conn: Connection,
        check: fn(&Connection) -> Result<()>,
    }

    impl Place {
        fn new() -> Place {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(include_str!("../mirror/sync.sql")).unwrap();
            Place { folder: tempfile::tempdir().unwrap(), conn, check: |_| Ok(()) }
        }

        /// The ledger of three calls in a window, shown in the store.
        fn ledger(&self) -> Ledger {
            let file = LedgerFile::at(&self.file(), 3).unwrap();
            let conn = self.conn.try_clone().unwrap();
            show_others(&file, &conn).unwrap();
            let stored = StoredLedger { file, conn: Mutex::new(conn), check: Box::new(|_| Ok(())) };
            let stored = Arc::new(stored.asking(self.check));
            let rule = Rule { limit: 3, window: WINDOW, longest_hold: WINDOW };
            let clock = Arc::new(SystemBootClock::new());
            Ledger::open(stored, rule, Duration::from_secs(60), clock).unwrap()
        }

        fn file(&self) -> std::path::PathBuf {
            self.folder.path().join("feed-calls")
        }

        /// How many calls are shown, how many times they were sent, and how many have an end.
        fn shown(&self) -> (i64, i64, i64) {
            let sql =
                "SELECT count(*), count(DISTINCT sent_at), count(ended_at) FROM sync.feed_calls";
            self.conn.query_row(sql, [], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap()
        }
    }

    async fn answered(ledger: &Ledger) -> bool {
        match ledger.begin(FeedName::Cases).await.unwrap() {
            Some(permit) => permit.answered(200, Duration::ZERO).await.is_ok(),
            None => false,
        }
    }

    #[tokio::test]
    async fn the_store_remembers_what_a_removed_file_knew_and_shows_each_call_once() {
        let place = Place::new();
        let ledger = place.ledger();
        assert!(answered(&ledger).await && answered(&ledger).await);
        std::fs::remove_file(place.file()).unwrap();
        assert!(answered(&ledger).await);
        assert_eq!(place.shown(), (3, 3, 3));
        drop(ledger);
        std::fs::remove_file(place.file()).unwrap();
        assert!(!answered(&place.ledger()).await);
        assert_eq!(place.shown(), (3, 3, 3));
    }

    #[tokio::test]
    async fn what_others_called_is_shown_at_the_next_start() {
        let (place, other) = (Place::new(), Place::new());
        drop(place.ledger());
        std::os::unix::fs::symlink(place.file(), other.file()).unwrap();
        assert!(answered(&other.ledger()).await);
        assert_eq!(place.shown(), (0, 0, 0));
        for _ in 0..2 {
            place.ledger();
            assert_eq!(place.shown(), (1, 1, 1));
        }
    }

    #[tokio::test]
    async fn what_may_not_be_shown_counts_all_the_same() {
        let gone = |_: &Connection| Err(Error::new(Kind::StoreGone, "the store is gone"));
        let place = Place { check: gone, ..Place::new() };
        let error = place.ledger().begin(FeedName::Cases).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::StoreGone);
        assert_eq!(place.shown(), (0, 0, 0));
        let file = LedgerFile::at(&place.file(), 3).unwrap();
        let mut counted = 0;
        file.update(&mut |calls| {
            counted = calls.len();
            Vec::new()
        })
        .unwrap();
        assert_eq!(counted, 1);
    }

    #[tokio::test]
    async fn what_nobody_called_is_not_shown() {
        let place = Place::new();
        assert!(answered(&place.ledger()).await);
        let mut damaged = std::fs::read(place.file()).unwrap();
        damaged.extend(b"x\n");
        std::fs::write(place.file(), damaged).unwrap();
        assert!(!answered(&place.ledger()).await);
        assert_eq!(place.shown(), (1, 1, 1), "the call that was made");
    }
}
