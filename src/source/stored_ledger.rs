//! The feed's ledger in the store: `sync.feed_calls`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duckdb::{Connection, params};

use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use crate::source::boot::BootTime;
use crate::source::{Ended, FeedCall, LedgerStore};
use crate::sql::{db, from_micros, instant_param, query};

/// The ledger on a connection of its own, so that it never waits for the writer.
pub struct StoredLedger {
    conn: Mutex<Connection>,
}

impl StoredLedger {
    /// `connection` is used for nothing else.
    pub fn new(connection: Connection) -> StoredLedger {
        StoredLedger { conn: Mutex::new(connection) }
    }

    fn with<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        f(&self.conn.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LedgerStore for StoredLedger {
    fn recent(&self, newest: usize) -> Result<Vec<FeedCall>> {
        self.with(|conn| {
            let rows = query(
                conn,
                &format!(
                    "SELECT id, feed, boot_id, epoch_us(sent_at), sent_boot_ns, \
                            epoch_us(ended_at), ended_boot_ns, status, hold_ns \
                     FROM sync.feed_calls WHERE ended_at IS NULL OR id IN \
                       (SELECT id FROM sync.feed_calls ORDER BY id DESC LIMIT {newest}) \
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
                    let broken = || {
                        Error::new(
                            Kind::Store,
                            format!("row {id} of sync.feed_calls is unreadable"),
                        )
                    };
                    let end = match (from_micros(ended_at), ended) {
                        (Some(at), Some(time)) => Some(Ended {
                            boot_id: boot_id.clone(),
                            at,
                            time: BootTime::from_nanos(time),
                            status,
                            retry_after: Duration::from_nanos(
                                retry_after.unwrap_or(0).max(0) as u64
                            ),
                        }),
                        _ => None,
                    };
                    Ok(FeedCall {
                        id,
                        feed: FeedName::from_name(&feed).ok_or_else(broken)?,
                        boot_id,
                        sent_at: from_micros(sent_at).ok_or_else(broken)?,
                        sent: BootTime::from_nanos(sent),
                        end,
                    })
                })
                .collect()
        })
    }

    fn begin(&self, call: &FeedCall) -> Result<()> {
        self.with(|conn| {
            conn.execute(
                "INSERT INTO sync.feed_calls VALUES \
                 (?, ?, ?, ?::TIMESTAMPTZ, ?, NULL, NULL, NULL, NULL)",
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
        })
    }

    fn end(&self, id: i64, ended: &Ended) -> Result<()> {
        self.with(|conn| {
            conn.execute(
                "UPDATE sync.feed_calls SET ended_at = ?::TIMESTAMPTZ, ended_boot_ns = ?, \
                   status = ?, hold_ns = ?, boot_id = ? WHERE id = ?",
                params![
                    instant_param(ended.at),
                    ended.time.as_nanos(),
                    ended.status,
                    i64::try_from(ended.retry_after.as_nanos()).unwrap_or(i64::MAX),
                    ended.boot_id,
                    id
                ],
            )
            .map(drop)
            .map_err(|e| db("cannot note the end of a feed call", e))
        })
    }
}
