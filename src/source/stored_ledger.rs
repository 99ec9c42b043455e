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
    table: Mutex<Table>,
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
        StoredLedger::showing(file, connection)
    }

    /// Shows at once what others have written to the file since the store was open last.
    fn showing(file: LedgerFile, conn: Connection) -> Result<StoredLedger> {
        let mut calls = Vec::new();
        file.update(&mut |known| {
            calls = known.to_vec();
            Vec::new()
        })?;
        let check: Check = Box::new(|_| Ok(()));
        let mut table = Table::read(conn, &calls)?;
        table.show(&calls, &BTreeSet::new(), &check)?;
        Ok(StoredLedger { file, table: Mutex::new(table), check })
    }

    /// The same, which asks before each time that it writes to the store.
    #[must_use]
    pub fn asking(
        self,
        check: impl Fn(&Connection) -> Result<()> + Send + Sync + 'static,
    ) -> StoredLedger {
        StoredLedger { check: Box::new(check), ..self }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Table) -> Result<T>) -> Result<T> {
        f(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LedgerStore for StoredLedger {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        let (mut calls, mut begun) = (Vec::new(), BTreeSet::new());
        self.file.update(&mut |before| {
            let changes = step(before);
            calls = before.to_vec();
            for change in &changes {
                change.apply(&mut calls);
                if let Change::Sent(call) = change {
                    begun.insert(call.id);
                }
            }
            changes
        })?;
        self.with(|table| table.show(&calls, &begun, &self.check))
    }

    fn remembered(&self, newest: usize) -> Result<Vec<FeedCall>> {
        let newest = format!(
            "ended_at IS NULL OR id IN \
             (SELECT id FROM sync.feed_calls ORDER BY sent_at DESC LIMIT {newest})"
        );
        self.with(|table| rows(&table.conn, &newest))
    }

    fn is_gone(&self, call: &FeedCall) -> Option<bool> {
        self.file.is_gone(call)
    }
}

/// `sync.feed_calls`.
struct Table {
    /// A connection of its own, so that it never waits for the writer.
    conn: Connection,
    /// Of the calls in the file, those that are shown, with the ends that are: so a look at a ledger with nothing new
    /// asks the store for nothing.
    shown: BTreeMap<Mark, Option<Ended>>,
}

impl Table {
    /// The table as it is, as far as it is about these calls.
    fn read(conn: Connection, calls: &[FeedCall]) -> Result<Table> {
        let shown = match calls.iter().map(|call| call.sent_at).min() {
            Some(first) => rows(&conn, &format!("sent_at >= {}", instant(first)))?,
            None => Vec::new(),
        };
        let shown = shown.into_iter().map(|call| (call.mark(), call.end)).collect();
        Ok(Table { conn, shown })
    }

    /// Shows the calls that have `begun` or ended, whoever makes them. What others have under way is shown with its
    /// end: the store would go on to remember a call whose end it cannot learn any more.
    fn show(&mut self, calls: &[FeedCall], begun: &BTreeSet<i64>, check: &Check) -> Result<()> {
        let is_lacking = |call: &&FeedCall| match (self.shown.get(&call.mark()), &call.end) {
            (None, None) => begun.contains(&call.id),
            (Some(_), None) => false,
            (Some(Some(shown)), Some(end)) => !is_same(shown, end),
            (None | Some(None), Some(_)) => true,
        };
        let lacking: Vec<&FeedCall> = calls.iter().filter(is_lacking).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        check(&self.conn)?;
        for call in lacking {
            // What nobody has made is no call; and what the store has told itself is there.
            if call.by != Caller::default() && !self.shown.contains_key(&call.mark()) {
                insert(&self.conn, call)?;
            }
            if let Some(end) = &call.end {
                update(&self.conn, call.mark(), end)?;
            }
            self.shown.insert(call.mark(), call.end.clone());
        }
        let there: BTreeSet<Mark> = calls.iter().map(FeedCall::mark).collect();
        self.shown.retain(|mark, _| there.contains(mark));
        Ok(())
    }
}

/// Whether both are one end; the table has its time in microseconds.
fn is_same(shown: &Ended, end: &Ended) -> bool {
    shown.at.as_microsecond() == end.at.as_microsecond()
        && *end == Ended { at: end.at, ..shown.clone() }
}

/// The calls that the table tells of `which`. Whoever made them is not told.
fn rows(conn: &Connection, which: &str) -> Result<Vec<FeedCall>> {
    let rows = query(
        conn,
        &format!(
            "SELECT id, feed, boot_id, epoch_us(sent_at), sent_boot_ns, \
               epoch_us(ended_at), ended_boot_ns, status, hold_ns \
             FROM sync.feed_calls WHERE {which} ORDER BY id"
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
            let stored = StoredLedger::showing(file, self.conn.try_clone().unwrap()).unwrap();
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

    /// Two stores of one API user, the second with its ledger open.
    fn two_stores() -> (Place, Place, Ledger) {
        let (place, other) = (Place::new(), Place::new());
        std::os::unix::fs::symlink(place.file(), other.file()).unwrap();
        drop(place.ledger());
        let others = other.ledger();
        (place, other, others)
    }

    #[tokio::test]
    async fn what_others_call_is_shown_with_the_next_own_call() {
        let (place, other, others) = two_stores();
        let ledger = place.ledger();
        assert!(answered(&others).await && answered(&ledger).await);
        assert_eq!(place.shown(), (2, 2, 2));
        assert!(answered(&others).await);
        assert_eq!((place.shown(), other.shown()), ((2, 2, 2), (3, 3, 3)));
        assert!(!answered(&ledger).await, "the window is full");
        assert_eq!(place.shown(), (3, 3, 3));
    }

    #[tokio::test]
    async fn what_others_have_under_way_is_shown_when_it_has_ended() {
        let (place, _other, others) = two_stores();
        let ledger = place.ledger();
        let under_way = others.begin(FeedName::Cases).await.unwrap().unwrap();
        assert!(answered(&ledger).await);
        assert_eq!(place.shown(), (1, 1, 1));
        under_way.answered(200, Duration::ZERO).await.unwrap();
        assert!(answered(&ledger).await);
        assert_eq!(place.shown(), (3, 3, 3));
    }

    #[tokio::test]
    async fn for_how_long_others_are_held_back_is_shown_until_they_lift_it() {
        let (place, _other, others) = two_stores();
        let ledger = place.ledger();
        let held = |place: &Place| -> i64 {
            let sql = "SELECT coalesce(max(hold_ns), 0) FROM sync.feed_calls";
            place.conn.query_row(sql, [], |row| row.get(0)).unwrap()
        };
        let refused = others.begin(FeedName::Cases).await.unwrap().unwrap();
        refused.answered(429, WINDOW).await.unwrap();
        assert!(ledger.begin(FeedName::Cases).await.unwrap().is_none(), "it holds for both");
        assert_eq!(held(&place), i64::try_from(WINDOW.as_nanos()).unwrap());
        others.lift_holds().await.unwrap();
        assert!(answered(&ledger).await);
        assert_eq!(held(&place), 0);
    }

    #[tokio::test]
    async fn a_ledger_with_nothing_new_asks_the_store_for_nothing() {
        let place = Place::new();
        assert!(answered(&place.ledger()).await);
        let place =
            Place { check: |_| Err(Error::new(Kind::StoreGone, "the store is gone")), ..place };
        let ledger = place.ledger();
        place.conn.execute_batch("DROP TABLE sync.feed_calls").unwrap();
        ledger.lift_holds().await.unwrap();
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
