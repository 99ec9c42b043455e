//! Seen and fetched: what the feeds last said, what was read at which dates, what failed.
//!
//! Functions on a connection; those that write are called in the writer's transactions.

pub(super) mod failures;
pub(super) mod fetched;
mod standing;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::scope::FeedState;
use duckdb::{Connection, params};
use jiff::Timestamp;

use self::failures::Failures;
use self::fetched::FetchedScopes;
use self::standing::Standings;
use super::contacts::SeenContacts;
use super::controls::Controls;
use super::forecast::Forecasts;
use super::hints::Hints;
use super::learned::Learned;
use super::months::Months;
use super::scopes::StaleScopes;
use super::seen::SeenCases;
use super::stale_marks::StaleMarks;
use super::statuses::TableStatuses;
use super::suspects::Suspects;
use super::unread::UnreadCases;
use super::unreadable::UnreadableRows;
use super::verifications::Verifications;
use super::verified::Verified;
use super::waiting::WaitingScopes;
use super::wanted::WantedMonths;

use crate::error::Result;
use crate::sql::{self, db, instant_param};

/// Key of `sync.meta`: the first month of the journals that the schedules read.
pub(crate) const FIRST_MONTH: &str = "journals_since";
/// Key of `sync.meta`: the tables of which every scope has been read once.
const COMPLETE_TABLES: &str = "complete_tables";

/// Key of `sync.meta`: what people were told.
pub(crate) const ALERTS: &str = "alerts";
/// Key of `sync.meta`: until when the platform wants no call at all.
const CALLS_HELD_UNTIL: &str = "calls_held_until";
/// Key of `sync.meta`: the webhook subscriptions that were made here.
pub(crate) const SUBSCRIPTIONS: &str = "webhook_subscriptions";

/// Reads and writes the state on one connection.
pub(crate) struct State<'c> {
    pub(super) conn: &'c Connection,
}

impl<'c> State<'c> {
    pub(crate) fn new(conn: &'c Connection) -> State<'c> {
        State { conn }
    }

    /// What was fetched.
    pub(super) fn fetched_scopes(&self) -> FetchedScopes<'c> {
        FetchedScopes::new(self.conn)
    }

    /// Which months of the journals are wanted.
    pub(crate) fn wanted_months(&self) -> WantedMonths<'c> {
        WantedMonths { conn: self.conn }
    }

    /// What is learned of the journals by reading them.
    pub(crate) fn learned(&self) -> Learned<'c> {
        Learned { conn: self.conn }
    }

    /// What the controls of the journals say.
    pub(crate) fn controls(&self) -> Controls<'c> {
        Controls { conn: self.conn }
    }

    /// Rows of the feeds that cannot be read.
    pub(crate) fn unreadable(&self) -> UnreadableRows<'c> {
        UnreadableRows { conn: self.conn }
    }

    /// What verifications ask of the mirror.
    pub(crate) fn verifications(&self) -> Verifications<'c> {
        Verifications { conn: self.conn }
    }

    /// What verifications found.
    pub(crate) fn verified(&self) -> Verified<'c> {
        Verified { conn: self.conn }
    }

    /// What the feed said of contacts.
    pub(crate) fn contacts(&self) -> SeenContacts<'c> {
        SeenContacts { conn: self.conn }
    }

    /// Scopes of lists and rows that are to be read.
    pub(crate) fn scopes(&self) -> StaleScopes<'c> {
        StaleScopes { conn: self.conn }
    }

    /// Scopes that wait for their time.
    pub(crate) fn waiting(&self) -> WaitingScopes<'c> {
        WaitingScopes { conn: self.conn }
    }

    /// Cases that no search shows.
    pub(crate) fn suspects(&self) -> Suspects<'c> {
        Suspects { conn: self.conn }
    }

    /// Whether tables are read, and why not.
    pub(crate) fn statuses(&self) -> TableStatuses<'c> {
        TableStatuses { conn: self.conn }
    }

    /// Which search shows a case, and whether one does.
    pub(crate) fn standings(&self) -> Standings<'c> {
        Standings { conn: self.conn }
    }

    /// Scopes that failed.
    pub(crate) fn failures(&self) -> Failures<'c> {
        Failures { conn: self.conn }
    }

    /// What the feed and the searches said of cases.
    pub(crate) fn cases(&self) -> SeenCases<'c> {
        SeenCases { conn: self.conn }
    }

    /// Cases of which nothing was read but their row in the search.
    pub(crate) fn unread(&self) -> UnreadCases<'c> {
        UnreadCases { conn: self.conn }
    }

    /// What webhooks have named.
    pub(crate) fn hints(&self) -> Hints<'c> {
        Hints { conn: self.conn }
    }

    /// What was made stale though no feed moved it.
    pub(crate) fn stale_marks(&self) -> StaleMarks<'c> {
        StaleMarks { conn: self.conn }
    }

    /// The journals' months.
    pub(crate) fn months(&self) -> Months<'c> {
        Months { conn: self.conn }
    }

    /// What is to be read, counted.
    pub(crate) fn forecasts(&self) -> Forecasts<'c> {
        Forecasts { conn: self.conn }
    }

    /// A value of `sync.meta`.
    pub(crate) fn meta(&self, key: &str) -> Result<Option<String>> {
        super::schema::meta(self.conn, key)
    }

    /// Sets a value of `sync.meta`.
    pub(crate) fn set_meta(&self, key: &str, value: &str) -> Result<()> {
        super::schema::set_meta(self.conn, key, value)
    }

    /// Until when the platform wants no call at all, as `Retry-After` said and `longest` allows; `None` where that
    /// has passed.
    pub(crate) fn calls_held_until(
        &self,
        longest: Duration,
        now: Timestamp,
    ) -> Result<Option<Timestamp>> {
        let until = self.meta(CALLS_HELD_UNTIL)?.and_then(|text| text.parse::<Timestamp>().ok());
        let latest = now.checked_add(longest).unwrap_or(Timestamp::MAX);
        Ok(until.map(|until| until.min(latest)).filter(|until| *until > now))
    }

    /// Keeps that; `None`: it takes calls.
    pub(crate) fn set_calls_held_until(&self, until: Option<Timestamp>) -> Result<()> {
        let text = until.map(|until| until.to_string()).unwrap_or_default();
        self.set_meta(CALLS_HELD_UNTIL, &text)
    }

    /// The tables of which every scope has been read once (`report.snapshot`).
    pub(crate) fn complete_tables(&self) -> Result<BTreeSet<String>> {
        let text = self.meta(COMPLETE_TABLES)?.unwrap_or_default();
        Ok(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Sets them.
    pub(crate) fn set_complete_tables(&self, tables: BTreeSet<String>) -> Result<()> {
        let tables: Vec<String> = tables.into_iter().collect();
        self.set_meta(COMPLETE_TABLES, &tables.join(","))
    }

    /// These tables count as never read whole, until nothing of them lacks.
    pub(super) fn are_not_complete(&self, tables: &[impl AsRef<str>]) -> Result<()> {
        let mut complete = self.complete_tables()?;
        complete.retain(|name| tables.iter().all(|table| table.as_ref() != name));
        self.set_complete_tables(complete)
    }

    /// How far a feed was read.
    pub(crate) fn feed(&self, feed: &str) -> Result<FeedState> {
        let mut all = sql::query(
            self.conn,
            &format!(
                "SELECT bound, skew, next_bound, cursor, page_size FROM sync.feeds WHERE feed = {}",
                sql::text(feed)
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

    /// When a poll of a feed was last complete, in whatever process.
    pub(crate) fn polled_at(&self, feed: &str) -> Result<Option<Timestamp>> {
        let sql = format!(
            "SELECT max(epoch_us(polled_at)) FROM sync.feeds WHERE feed = {}",
            sql::text(feed)
        );
        let rows: Vec<Option<i64>> = sql::query(self.conn, &sql, |row| row.get(0))?;
        Ok(rows.into_iter().find_map(sql::from_micros))
    }

    /// Keeps how far a feed was read; `polled` when the poll is complete, which an incomplete one does not
    /// move.
    pub(crate) fn set_feed(
        &self,
        feed: &str,
        state: &FeedState,
        polled: Option<Timestamp>,
    ) -> Result<()> {
        let polled = polled.map_or_else(|| self.polled_at(feed), |at| Ok(Some(at)))?;
        execute(self.conn, "DELETE FROM sync.feeds WHERE feed = ?", params![feed])?;
        execute(
            self.conn,
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
    pub(crate) fn sequence(&self) -> Result<i64> {
        Ok(self.meta("sequence")?.and_then(|v| v.parse().ok()).unwrap_or(0))
    }

    /// Keeps the number of the page that is being committed.
    pub(crate) fn set_sequence(&self, sequence: i64) -> Result<()> {
        self.set_meta("sequence", &sequence.to_string())
    }

    /// Fills a temporary table of this name with ids.
    pub(crate) fn stage_ids(&self, name: &str, ids: &[i64]) -> Result<()> {
        batch(
            self.conn,
            &format!("CREATE OR REPLACE TEMP TABLE {} (id BIGINT)", sql::ident(name)),
        )?;
        let failed = |e| db("cannot stage ids", e);
        let mut appender = self.conn.appender(name).map_err(failed)?;
        for id in ids {
            appender.append_row(params![id]).map_err(failed)?;
        }
        appender.flush().map_err(failed)
    }

    /// A text that moves with whatever readers of the published copy can see change: rows, statuses, what
    /// the reports are, what is read in part, rejects, drift, what is pending, which calls failed, which months of the journals were read or closed. Not
    /// with runs that changed nothing.
    pub(crate) fn readable_state(&self) -> Result<String> {
        let rows = sql::query(
            self.conn,
            "SELECT concat_ws('|', \
               (SELECT sum(counter) FROM sync.changes), \
               (SELECT string_agg(concat(table_name, status, reason, keeps_history, history_since), ',' ORDER BY table_name) \
                FROM sync.resources), \
               (SELECT count(*) || '/' || count(resolved_at) FROM sync.rejects), \
               (SELECT count(*) FROM sync.drift), \
               (SELECT concat_ws('/', count(*), count(*) FILTER (standing), max(verified_at)) \
                  FROM sync.verifications), \
               (SELECT concat_ws('/', count(*), count(gone_at), max(gone_at)) \
                  FROM sync.journal_scopes), \
               (SELECT count(*) || coalesce(max(since)::VARCHAR, '') FROM sync.pending), \
               (SELECT concat_ws('/', count(*), count(*) FILTER (wanted), max(read_at), \
                    count(no_control_at)) \
                  FROM sync.journal_months), \
               (SELECT count(*) || '/' || count(reopened_at) FROM sync.closings), \
               (SELECT bit_xor(hash(table_name, id, part, kind)) FROM sync.failures \
                  WHERE coalesce(kind, '') NOT IN ('Lag', 'NotAsked', 'NotShown', 'Suspect')), \
               (SELECT max(value) FROM sync.meta WHERE key = 'complete_tables'), \
               (SELECT max(value) FROM sync.meta WHERE key = 'calendar_zone'), \
               (SELECT max(value) FROM sync.meta WHERE key = 'reports'), \
               (SELECT max(value) FROM sync.meta WHERE key = 'journal_level'))",
            |row| row.get(0),
        )?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }
}

/// Runs statements that write the state.
pub(super) fn batch(conn: &Connection, sql: &str) -> Result<()> {
    conn.execute_batch(sql).map_err(|e| db("cannot write the store's state", e))
}

/// Runs one; returns how many rows it changed.
pub(super) fn count(conn: &Connection, sql: &str) -> Result<u64> {
    conn.execute(sql, []).map(|n| n as u64).map_err(|e| db("cannot write the store's state", e))
}

/// Runs one with parameters.
pub(super) fn execute(conn: &Connection, sql: &str, params: impl duckdb::Params) -> Result<()> {
    conn.execute(sql, params).map(drop).map_err(|e| db("cannot write the store's state", e))
}

/// Integers for an SQL list: digits need no quoting.
pub(super) fn list<'a>(ids: impl IntoIterator<Item = &'a i64>) -> String {
    ids.into_iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// The first column of a query, as ids.
pub(super) fn ids(conn: &Connection, sql: &str) -> Result<Vec<i64>> {
    sql::query(conn, sql, |row| row.get(0))
}
