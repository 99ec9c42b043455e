//! Rows of the feeds that cannot be read whole, so that no change is lost behind them: a change date
//! that cannot be read is a state of its own, and is an open reject until it can.

use duckdb::params;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::state::State;
use super::{db, instant, scalar_i64};
use crate::error::Result;
use crate::quote;
use crate::source::FeedName;

/// Every date of the wire has a larger number of ticks than this; what lies below it is a change date
/// that could not be read ([`unreadable_date`]).
pub const UNREADABLE_BELOW: i64 = i64::MIN / 2;

/// The reason in `sync.fetched` why a case of such a row is read again with all its resources.
const STAMP: &str = "unreadable";

/// A change date of a feed row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The case or the contact.
    pub id: i64,
    /// The column that lacks it, such as `activity_changed_date`.
    pub column: &'static str,
    /// The beginning of what came in its place, as JSON; `None` where nothing came.
    pub value: Option<String>,
    pub error: String,
}

/// What stands for a change date that cannot be read: a number that no readable date has, the same
/// for the same row of dates. `row` is the JSON of all dates of that row: when any of them moves, one
/// that cannot be read counts as moved too.
pub fn unreadable_date<'t>(row: impl IntoIterator<Item = &'t str>) -> i64 {
    let mut hasher = Sha256::new();
    for text in row {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hasher.finalize().into();
    let digest = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 2; // below 2^62
    // From i64::MIN + 1 on: i64::MIN stands for "before all" where cases are put in order.
    (i64::MIN + 1).saturating_add_unsigned(digest).min(UNREADABLE_BELOW - 1)
}

/// Whether a change date in ticks stands for one that could not be read.
pub fn is_unreadable(ticks: i64) -> bool {
    ticks < UNREADABLE_BELOW
}

/// Which reading of a feed met rows that name nobody: each speaks for its own stretch of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Poll,
    /// The nightly reading of the last days.
    Reread,
}

impl Reader {
    /// The `record_key` of its open reject.
    fn key(self) -> &'static str {
        match self {
            Reader::Poll => "#poll",
            Reader::Reread => "#reread",
        }
    }
}

/// Under these names in `sync.rejects` stand rows of the feeds that cannot be read.
pub const FEED_TABLES: [&str; 2] = ["sync.seen", "sync.seen_contacts"];

/// Where the rows of a feed are kept: the table, the page's rows staged for it, the id.
pub(super) fn places(feed: FeedName) -> (&'static str, &'static str, &'static str) {
    match feed {
        FeedName::Cases => (FEED_TABLES[0], "temp.stage_seen", "case_id"),
        FeedName::Contacts => (FEED_TABLES[1], "temp.stage_seen_contacts", "contact_id"),
    }
}

impl State<'_> {
    /// Notes the unreadable dates of a page that was just seen in poll number `sequence`, and that
    /// its other rows have none. A case that such a row moved is read again with all its resources.
    /// Returns how many of the dates were readable, or unknown, before.
    pub fn note_unreadable(
        &self,
        feed: FeedName,
        run_id: i64,
        sequence: i64,
        dates: &[Unreadable],
        now: Timestamp,
    ) -> Result<u64> {
        let (table, came, id) = places(feed);
        let name = quote::text(table);
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
            self.batch(&format!(
                "UPDATE sync.fetched f SET stamp = '{STAMP}' FROM sync.seen s \
                 WHERE f.id = s.case_id AND f.part = '' AND s.moved = {sequence} \
                   AND s.case_id IN (SELECT id FROM temp.stage_unreadable) \
                   AND f.table_name IN (SELECT table_name FROM sync.columns \
                                        WHERE column_name = 'case_id' \
                                        UNION SELECT 'cases' UNION SELECT 'projects')"
            ))?;
        }
        let at = instant(now);
        let same = format!(
            "o.resolved_at IS NULL AND o.table_name = {name} AND o.scope = n.id::VARCHAR \
             AND o.column_name = n.column_name"
        );
        self.batch(&format!(
            "UPDATE sync.rejects o SET last_at = {at}, value = n.value, error = n.error \
               FROM temp.stage_unreadable n WHERE {same}; \
             UPDATE sync.rejects o SET resolved_at = {at} FROM {came} c \
               WHERE o.resolved_at IS NULL AND o.table_name = {name} \
                 AND o.column_name IS NOT NULL AND o.scope = c.{id}::VARCHAR \
                 AND NOT EXISTS (SELECT 1 FROM temp.stage_unreadable n WHERE {same})"
        ))?;
        self.count(&format!(
            "INSERT INTO sync.rejects \
             SELECT {run_id}, {name}, n.id::VARCHAR, n.id::VARCHAR, n.column_name, n.value, \
               n.error, {at}, {at}, NULL FROM temp.stage_unreadable n \
             WHERE NOT EXISTS (SELECT 1 FROM sync.rejects o WHERE {same})"
        ))
    }

    fn stage(&self, dates: &[Unreadable]) -> Result<()> {
        self.batch(
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
    pub fn note_nameless(
        &self,
        feed: FeedName,
        reader: Reader,
        run_id: i64,
        error: &str,
        now: Timestamp,
    ) -> Result<()> {
        let (table, _, _) = places(feed);
        let (open, at) = (open_nameless(table, reader), instant(now));
        self.batch(&format!(
            "UPDATE sync.rejects SET last_at = {at}, error = {error} WHERE {open}; \
             INSERT INTO sync.rejects \
               SELECT {run_id}, {name}, '', '{key}', NULL, NULL, {error}, {at}, {at}, NULL \
               WHERE NOT EXISTS (SELECT 1 FROM sync.rejects WHERE {open})",
            name = quote::text(table),
            key = reader.key(),
            error = quote::text(error),
        ))
    }

    /// Notes that a reading of a feed came to its end and met no such row.
    pub fn all_are_named(&self, feed: FeedName, reader: Reader, now: Timestamp) -> Result<()> {
        let (table, _, _) = places(feed);
        self.batch(&format!(
            "UPDATE sync.rejects SET resolved_at = {} WHERE {}",
            instant(now),
            open_nameless(table, reader)
        ))
    }
}

fn open_nameless(table: &str, reader: Reader) -> String {
    format!(
        "resolved_at IS NULL AND table_name = {} AND record_key = '{}' AND column_name IS NULL",
        quote::text(table),
        reader.key()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticks::Ticks;
    use jiff::tz::TimeZone;

    #[test]
    fn an_unreadable_date_differs_from_every_readable_one_and_is_the_same_again() {
        let first = unreadable_date([r#""soon""#, "null"]);
        assert!(is_unreadable(first) && first > i64::MIN);
        assert_eq!(unreadable_date([r#""soon""#, "null"]), first);
        assert_ne!(unreadable_date([r#""soon""#, r#""2026-01-01""#]), first);
        for text in ["0000-01-01T00:00:00+14:00", "0001-01-02", "9999-12-31T23:59:59-14:00"] {
            let readable = Ticks::parse(text, &TimeZone::UTC).unwrap().unwrap();
            assert!(!is_unreadable(readable.get()), "{text}");
        }
    }
}
