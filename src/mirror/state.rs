//! Seen and fetched: what the feeds last said, what was read at which dates, what failed.
//!
//! Functions on a connection; those that write are called in the writer's transactions.

use duckdb::{Connection, Row, params};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{db, instant_param};
use crate::error::Result;
use crate::quote;

/// The change dates of a case, in the order of [`crate::catalog::Facet::ALL`], in ticks; `None` is null.
pub type CaseDates = [Option<i64>; 11];

/// A digest of all eleven dates: equal when and only when each of them is.
pub fn any_stamp(dates: &CaseDates) -> String {
    let mut hasher = Sha256::new();
    for date in dates {
        match date {
            Some(ticks) => {
                hasher.update([1]);
                hasher.update(ticks.to_le_bytes());
            }
            None => hasher.update([0]),
        }
    }
    hasher.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// Which search shows a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    Cases,
    Projects,
    Contacts,
}

impl Place {
    /// The table of that search's rows.
    pub fn table(self) -> &'static str {
        match self {
            Place::Cases => "cases",
            Place::Projects => "projects",
            Place::Contacts => "contacts",
        }
    }

    /// The search of cases or projects that fills this table.
    pub fn parse(text: &str) -> Option<Place> {
        match text {
            "cases" => Some(Place::Cases),
            "projects" => Some(Place::Projects),
            _ => None,
        }
    }
}

/// One part of a resource that one complete answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId {
    pub table: String,
    /// The case, the contact or the parent's id; 0 for a whole list.
    pub id: i64,
    pub part: String,
}

/// A row of `sync.seen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseState {
    pub case_id: i64,
    /// The feed has reported it; otherwise its dates are unknown.
    pub reported: bool,
    pub dates: CaseDates,
    pub any_stamp: String,
    /// The page of a poll that last moved a date (see [`State::sequence`]).
    pub moved: i64,
    pub place: Option<Place>,
    /// `found`, `suspect`, `hidden`, or nothing yet.
    pub state: Option<String>,
    pub rereading: bool,
}

/// A row of `sync.fetched`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub stamp: String,
    pub complete: bool,
    /// When it is to be searched again whatever its dates, in microseconds of our clock.
    pub again_at: Option<i64>,
    pub fetched_at: i64,
}

/// A row of the contacts feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContactSeen {
    pub contact_id: i64,
    pub modified: Option<i64>,
}

/// How far a feed was read; ticks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedState {
    /// Lower bound of the next poll, which is the watermark; `None` before the first complete poll.
    pub bound: Option<i64>,
    /// Smallest `Date` minus `ModifiedDate` of all rows so far.
    pub skew: Option<i64>,
    /// Bound that the poll under way will set, and how far it came.
    pub next_bound: Option<i64>,
    pub cursor: Option<i64>,
    /// The largest page that the service took.
    pub page_size: Option<i64>,
}

/// Asks and tells the books on one connection.
pub struct State<'c> {
    pub(super) conn: &'c Connection,
}

impl<'c> State<'c> {
    pub fn new(conn: &'c Connection) -> State<'c> {
        State { conn }
    }

    /// A value of `sync.meta`.
    pub fn meta(&self, key: &str) -> Result<Option<String>> {
        super::schema::meta(self.conn, key)
    }

    /// Sets a value of `sync.meta`.
    pub fn set_meta(&self, key: &str, value: &str) -> Result<()> {
        super::schema::set_meta(self.conn, key, value)
    }

    /// How far a feed was read.
    pub fn feed(&self, feed: &str) -> Result<FeedState> {
        let mut all = self.query(
            &format!(
                "SELECT bound, skew, next_bound, cursor, page_size FROM sync.feeds WHERE feed = {}",
                quote::text(feed)
            ),
            |row| {
                Ok(FeedState {
                    bound: row.get(0)?,
                    skew: row.get(1)?,
                    next_bound: row.get(2)?,
                    cursor: row.get(3)?,
                    page_size: row.get(4)?,
                })
            },
        )?;
        Ok(all.pop().unwrap_or_default())
    }

    /// Keeps how far a feed was read; `polled` when the poll is complete.
    pub fn set_feed(&self, feed: &str, state: &FeedState, polled: Option<Timestamp>) -> Result<()> {
        self.execute("DELETE FROM sync.feeds WHERE feed = ?", params![feed])?;
        self.execute(
            "INSERT INTO sync.feeds VALUES (?, ?, ?, ?, ?, ?::TIMESTAMPTZ, ?)",
            params![
                feed,
                state.bound,
                state.skew,
                state.next_bound,
                state.cursor,
                polled.map(instant_param),
                state.page_size
            ],
        )
    }

    /// The number of the last page of a feed that moved something; it counts up across restarts. A
    /// call that is sent now has an answer that is at least as new as that page.
    pub fn sequence(&self) -> Result<i64> {
        Ok(self.meta("sequence")?.and_then(|v| v.parse().ok()).unwrap_or(0))
    }

    /// Keeps the number of the page that is being committed.
    pub fn set_sequence(&self, sequence: i64) -> Result<()> {
        self.set_meta("sequence", &sequence.to_string())
    }

    /// Fills a temporary table of this name with ids.
    pub fn stage_ids(&self, name: &str, ids: &[i64]) -> Result<()> {
        self.batch(&format!("CREATE OR REPLACE TEMP TABLE {} (id BIGINT)", quote::ident(name)))?;
        let failed = |e| db("cannot stage ids", e);
        let mut appender = self.conn.appender(name).map_err(failed)?;
        for id in ids {
            appender.append_row(params![id]).map_err(failed)?;
        }
        appender.flush().map_err(failed)
    }

    /// A text that moves with whatever readers of the published copy can see change: rows, statuses, what
    /// is read in part, rejects, drift, what is pending, which months of the journals were read. Not with
    /// the books of runs that changed nothing.
    pub fn readable_state(&self) -> Result<String> {
        let rows = self.query(
            "SELECT concat_ws('|', \
               (SELECT sum(counter) FROM sync.changes), \
               (SELECT string_agg(concat(table_name, status, reason), ',' ORDER BY table_name) \
                FROM sync.resources), \
               (SELECT count(*) || '/' || count(resolved_at) FROM sync.rejects), \
               (SELECT count(*) FROM sync.drift), \
               (SELECT count(*) FROM sync.verifications), \
               (SELECT count(*) || coalesce(max(since)::VARCHAR, '') FROM sync.pending), \
               (SELECT concat_ws('/', count(*), count(*) FILTER (wanted), max(read_at)) \
                  FROM sync.journal_months), \
               (SELECT bit_xor(hash(table_name, id, part, kind)) FROM sync.failures \
                  WHERE table_name IN (SELECT table_name FROM sync.journal_months)), \
               (SELECT max(value) FROM sync.meta WHERE key = 'complete_tables'), \
               (SELECT max(value) FROM sync.meta WHERE key = 'calendar_zone'), \
               (SELECT max(value) FROM sync.meta WHERE key = 'journal_level'))",
            |row| row.get(0),
        )?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }

    pub(super) fn query<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>> {
        query(self.conn, sql, read)
    }

    pub(super) fn batch(&self, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(|e| db("cannot write the books", e))
    }

    pub(super) fn count(&self, sql: &str) -> Result<u64> {
        self.conn.execute(sql, []).map(|n| n as u64).map_err(|e| db("cannot write the books", e))
    }

    pub(super) fn execute(&self, sql: &str, params: impl duckdb::Params) -> Result<()> {
        self.conn.execute(sql, params).map(drop).map_err(|e| db("cannot write the books", e))
    }
}

pub(super) fn query<T>(
    conn: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> duckdb::Result<T>,
) -> Result<Vec<T>> {
    let failed = |e| db("cannot read the books", e);
    let mut statement = conn.prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], read).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Integers for an SQL list: digits need no quoting.
pub(super) fn list(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// The first column of a query, as ids.
pub(super) fn ids(conn: &Connection, sql: &str) -> Result<Vec<i64>> {
    query(conn, sql, |row| row.get(0))
}
