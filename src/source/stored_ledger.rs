//! `sync.feed_calls`: what the ledger says, as rows of the store for people to read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::boot::BootTime;
use super::feed_calls::{Caller, Change, Ended, FeedCall, LedgerStore};
use super::ledger_file::{LedgerFile, usual_place};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use crate::sql::{db, from_micros, instant_param, query};

/// Rows that are looked at when the store is opened.
const NEWEST: usize = 1_000;

/// The ledger's file, and the store that shows what stands in it.
pub struct StoredLedger {
    file: LedgerFile,
    /// A connection of its own, so that it never waits for the writer.
    conn: Mutex<Connection>,
}

/// By what a call is known again. Numbers are given by each ledger anew; but no two calls are begun within
/// one microsecond, because each waits until the one before is on the disk.
type Mark = (i64, &'static str);

fn mark(call: &FeedCall) -> Mark {
    (call.sent_at.as_microsecond(), call.feed.as_str())
}

impl StoredLedger {
    /// The ledger of the configured API user, shown in `sync.feed_calls` of the store that `connection`
    /// leads to; it is used for nothing else.
    ///
    /// # Errors
    /// `Config` where there is no place for the file, `Io` where it cannot be written, and those of the
    /// store.
    pub fn open(config: &Config, connection: Connection) -> Result<StoredLedger> {
        let place = match &config.feed.ledger {
            Some(path) => path.clone(),
            None => usual_place(&config.source.base_url, &config.source.client_id)?,
        };
        StoredLedger::with_file(LedgerFile::at(&place, config.feed.calls)?, connection)
    }

    /// What the file and the store lack of each other's calls is added: the file may be new, or lost, and
    /// others may have written to it.
    fn with_file(file: LedgerFile, connection: Connection) -> Result<StoredLedger> {
        let stored = recent(&connection)?;
        let rows: BTreeSet<Mark> = stored.iter().map(mark).collect();
        let mut to_store = Vec::new();
        file.update(&mut |calls| {
            let known: BTreeSet<Mark> = calls.iter().map(mark).collect();
            to_store = calls.iter().filter(|call| !rows.contains(&mark(call))).cloned().collect();
            let mut next = calls.iter().map(|call| call.id).max().unwrap_or(0);
            let lacking = stored.iter().filter(|call| !known.contains(&mark(call)));
            lacking
                .flat_map(|call| {
                    next = call.id.max(next + 1);
                    let sent = Change::Sent(FeedCall { id: next, end: None, ..call.clone() });
                    let ended = call.end.clone().map(|end| Change::Ended(next, end));
                    [Some(sent), ended].into_iter().flatten()
                })
                .collect()
        })?;
        let ledger = StoredLedger { file, conn: Mutex::new(connection) };
        ledger.with(|conn| {
            for call in &to_store {
                insert(conn, call)?;
                if let Some(end) = &call.end {
                    update(conn, mark(call), end)?;
                }
            }
            Ok(())
        })?;
        Ok(ledger)
    }

    fn with<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        f(&self.conn.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LedgerStore for StoredLedger {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        let (mut sent, mut ended) = (Vec::new(), Vec::new());
        self.file.update(&mut |calls| {
            let changes = step(calls);
            for change in &changes {
                match change {
                    Change::Sent(call) => sent.push(call.clone()),
                    Change::Ended(id, end) => {
                        let call = calls.iter().find(|call| call.id == *id);
                        ended.extend(call.map(|call| (mark(call), end.clone())));
                    }
                }
            }
            changes
        })?;
        self.with(|conn| {
            sent.iter().try_for_each(|call| insert(conn, call))?;
            ended.iter().try_for_each(|(mark, end)| update(conn, *mark, end))
        })
    }

    fn is_gone(&self, call: &FeedCall) -> Option<bool> {
        self.file.is_gone(call)
    }
}

/// The newest calls, and those that have no end. Whoever made them is not told.
fn recent(conn: &Connection) -> Result<Vec<FeedCall>> {
    let rows = query(
        conn,
        &format!(
            "SELECT id, feed, boot_id, epoch_us(sent_at), sent_boot_ns, \
                            epoch_us(ended_at), ended_boot_ns, status, hold_ns \
                     FROM sync.feed_calls WHERE ended_at IS NULL OR id IN \
                       (SELECT id FROM sync.feed_calls ORDER BY id DESC LIMIT {NEWEST}) \
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
        "INSERT INTO sync.feed_calls VALUES (?, ?, ?, ?::TIMESTAMPTZ, ?, NULL, NULL, NULL, NULL)",
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
