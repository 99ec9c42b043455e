//! Rows of the feeds that cannot be read whole, so that no change is lost behind them: a change date
//! that cannot be read is a state of its own, and is an open reject until it can.

use crate::scope::{Reader, Unreadable};
use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::{State, batch, count};
use crate::error::Result;
use crate::scope::{FeedName, FetchStatus};
use crate::sql::{self, db, instant, scalar_i64};

/// Under these names in `sync.rejects` stand rows of the feeds that cannot be read.
pub(crate) const FEED_TABLES: [&str; 2] = ["sync.seen", "sync.seen_contacts"];

/// Where the rows of a feed are kept: the table, the page's rows staged for it, the id.
pub(super) fn places(feed: FeedName) -> (&'static str, &'static str, &'static str) {
    match feed {
        FeedName::Cases => (FEED_TABLES[0], "temp.stage_seen", "case_id"),
        FeedName::Contacts => (FEED_TABLES[1], "temp.stage_seen_contacts", "contact_id"),
    }
}

/// Rows of the feeds that cannot be read.
pub(crate) struct UnreadableRows<'c> {
    pub(super) conn: &'c Connection,
}

impl UnreadableRows<'_> {
    /// Notes the unreadable dates of a page that was just seen in poll number `sequence`, and that
    /// its other rows have none. A case that such a row moved is read again with all its resources.
    /// Returns how many of the dates were readable, or unknown, before.
    pub(crate) fn note_unreadable(
        &self,
        feed: FeedName,
        run_id: i64,
        sequence: i64,
        dates: &[Unreadable],
        now: Timestamp,
    ) -> Result<u64> {
        let (table, came, id) = places(feed);
        let name = sql::text(table);
        let open = scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.rejects WHERE table_name = {name} \
                   AND resolved_at IS NULL"
            ),
        )?;
        if dates.is_empty() && open == 0 {
            return Ok(0);
        }
        self.stage(dates)?;
        if feed == FeedName::Cases && !dates.is_empty() {
            let moved = format!(
                "s.moved = {sequence} AND s.case_id IN (SELECT id FROM temp.stage_unreadable)"
            );
            State::new(self.conn).fetched_scopes().mark_cases(&moved, FetchStatus::Unreadable)?;
        }
        let at = instant(now);
        let same = format!(
            "o.resolved_at IS NULL AND o.table_name = {name} AND o.scope = n.id::VARCHAR \
             AND o.column_name = n.column_name"
        );
        batch(
            self.conn,
            &format!(
                "UPDATE sync.rejects o SET last_at = {at}, value = n.value, error = n.error \
               FROM temp.stage_unreadable n WHERE {same}; \
             UPDATE sync.rejects o SET resolved_at = {at} FROM {came} c \
               WHERE o.resolved_at IS NULL AND o.table_name = {name} \
                 AND o.column_name IS NOT NULL AND o.scope = c.{id}::VARCHAR \
                 AND NOT EXISTS (SELECT 1 FROM temp.stage_unreadable n WHERE {same})"
            ),
        )?;
        count(
            self.conn,
            &format!(
                "INSERT INTO sync.rejects \
             SELECT {run_id}, {name}, n.id::VARCHAR, n.id::VARCHAR, n.column_name, n.value, \
               n.error, {at}, {at}, NULL FROM temp.stage_unreadable n \
             WHERE NOT EXISTS (SELECT 1 FROM sync.rejects o WHERE {same})"
            ),
        )
    }

    fn stage(&self, dates: &[Unreadable]) -> Result<()> {
        batch(
            self.conn,
            "CREATE OR REPLACE TEMP TABLE stage_unreadable \
             (id BIGINT, column_name VARCHAR, value VARCHAR, error VARCHAR)",
        )?;
        let failed = |e| db("cannot stage dates that cannot be read", e);
        let mut appender = self.conn.appender("stage_unreadable").map_err(failed)?;
        for date in dates {
            appender
                .append_row(params![date.id, date.column, date.value, date.error])
                .map_err(failed)?;
        }
        appender.flush().map_err(failed)
    }

    /// Notes that a reading of a feed met rows that name no case or contact.
    pub(crate) fn note_nameless(
        &self,
        feed: FeedName,
        reader: Reader,
        run_id: i64,
        error: &str,
        now: Timestamp,
    ) -> Result<()> {
        let (table, _, _) = places(feed);
        let (open, at) = (open_nameless(table, reader), instant(now));
        batch(
            self.conn,
            &format!(
                "UPDATE sync.rejects SET last_at = {at}, error = {error} WHERE {open}; \
             INSERT INTO sync.rejects \
               SELECT {run_id}, {name}, '', '{key}', NULL, NULL, {error}, {at}, {at}, NULL \
               WHERE NOT EXISTS (SELECT 1 FROM sync.rejects WHERE {open})",
                name = sql::text(table),
                key = reader.key(),
                error = sql::text(error),
            ),
        )
    }

    /// Notes that a reading of a feed came to its end and met no such row.
    pub(crate) fn all_are_named(
        &self,
        feed: FeedName,
        reader: Reader,
        now: Timestamp,
    ) -> Result<()> {
        let (table, _, _) = places(feed);
        batch(
            self.conn,
            &format!(
                "UPDATE sync.rejects SET resolved_at = {} WHERE {}",
                instant(now),
                open_nameless(table, reader)
            ),
        )
    }
}

fn open_nameless(table: &str, reader: Reader) -> String {
    format!(
        "resolved_at IS NULL AND table_name = {} AND record_key = '{}' AND column_name IS NULL",
        sql::text(table),
        reader.key()
    )
}
