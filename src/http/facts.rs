//! What the page and the metrics say, collected from the store.

mod hours;
mod reports;

use std::time::Duration;

use duckdb::Connection;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

pub(super) use hours::{HOURS, Hour};
pub(super) use reports::{Coverage, Reports, Scope};
#[cfg(test)]
pub(super) use reports::{MonthStatus, Signed};

use crate::alert;
use crate::config::Config;
use crate::disk::Disk;
use crate::error::Result;
use crate::mirror::{
    FEED_TABLES, PublishedSnapshot, RunLog, State, UnbelievedScopes, asked_tables, of_tables,
};
use crate::progress::Now;
use crate::pulse::{Feeds, Pulse};
use crate::scope::{FeedName, TableStatus};
use crate::session::Session;
use crate::sql::{self, from_micros, query};
use crate::status::{Health, Status};

/// Changes of closed months are counted for so long.
const RESTATED_WITHIN: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Runs with an error that are looked at, and those that are shown.
const LATEST_ERRORS: usize = 50;

/// What the store and the process say of themselves.
pub(super) struct Facts {
    pub(super) at: Timestamp,
    /// In which people read times: `source.time_zone`.
    pub(super) zone: TimeZone,
    pub(super) status: Status,
    pub(super) health: Health,
    /// Since when it is so; `None` where it was otherwise a moment ago.
    pub(super) since: Option<Timestamp>,
    pub(super) feeds: Feeds,
    /// As `/readyz` says.
    pub(super) is_ready: bool,
    /// Also those of an earlier process.
    pub(super) last_polls: [(FeedName, Option<Timestamp>); 2],
    /// How often the feed of the cases is asked.
    pub(super) interval: Duration,
    pub(super) started: Timestamp,
    pub(super) window: Window,
    pub(super) doing: Option<Now>,
    /// By hour, the oldest first, none left out.
    pub(super) hours: Vec<Hour>,
    /// What readers have.
    pub(super) snapshot: Option<PublishedSnapshot>,
    pub(super) disk: Option<Disk>,
    pub(super) store_bytes: u64,
    pub(super) unbelieved: Unbelieved,
    /// Months that do not match the platform's sum, or have none, as the last cycle found.
    pub(super) without_control: usize,
    /// When every control was last read.
    pub(super) verified_whole: Option<Timestamp>,
    pub(super) restated: Restated,
    /// What failed and is tried again, by table.
    pub(super) failing: Vec<Failing>,
    /// What runs ended with, the newest first.
    pub(super) errors: Vec<RunError>,
}

/// The throttle's window up to now.
pub(super) struct Window {
    pub(super) calls: i64,
    pub(super) allowed: u32,
    pub(super) length: Duration,
}

/// Lines and values that changed in closed months.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Restated {
    /// In the last 30 days.
    pub(super) changes: i64,
    /// When the last one did, however long ago.
    pub(super) last: Option<Timestamp>,
}

/// Answers that are not believed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unbelieved {
    /// They lack much of what is mirrored: a second equal one has to come.
    pub(super) doubted: usize,
    /// The guard holds what they would remove.
    pub(super) held: usize,
    /// Months of the journals.
    pub(super) months: usize,
}

/// The scopes of a table that failed and are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failing {
    pub(super) table: String,
    pub(super) scopes: i64,
    pub(super) attempts: i64,
    /// When the first of them failed first.
    pub(super) first: Option<Timestamp>,
    pub(super) next_try: Option<Timestamp>,
}

/// What runs ended with that followed each other and had the same to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunError {
    /// When the first of them ended,
    pub(super) first: Timestamp,
    /// and the last.
    pub(super) last: Timestamp,
    pub(super) runs: u64,
    pub(super) error: String,
}

impl Facts {
    pub(super) fn collect(session: &Session, pulse: &Pulse) -> Result<Facts> {
        let (config, store) = (session.config(), session.store());
        let conn = store.connection()?;
        let state = State::new(&conn);
        let at = Timestamp::now();
        let (feeds, fault) = (pulse.feeds(&config.feed), session.store_fault());
        let status = Status::collect(config, session.catalog(), store, Vec::new())?.of_holder(
            session.last_run(),
            fault.as_deref(),
            Some(&feeds),
        );
        let tables = state.statuses().all()?;
        let asked = asked_tables(session.catalog(), &tables);
        let disk = Disk::of(store.path());
        let health = Health::of(&status, &feeds, disk.as_ref());
        let since = alert::since(&state)?.filter(|(known, _)| *known == health);
        let last_poll = |feed: FeedName| {
            let last = pulse
                .last_poll(feed)
                .map_or_else(|| state.polled_at(feed.as_str()), |at| Ok(Some(at)));
            Ok((feed, last?))
        };
        Ok(Facts {
            at,
            zone: config.source.time_zone.clone(),
            status,
            health,
            since: since.map(|(_, since)| since),
            is_ready: feeds.lag().is_none() && fault.is_none(),
            feeds,
            last_polls: [last_poll(FeedName::Cases)?, last_poll(FeedName::Contacts)?],
            interval: config.feed.poll_interval(),
            started: pulse.started,
            window: window(&conn, config, at)?,
            doing: session.doing(),
            hours: hours::collect(&conn, at)?,
            snapshot: PublishedSnapshot::of(&conn)?,
            disk,
            store_bytes: store.path().metadata().map(|found| found.len()).unwrap_or_default(),
            unbelieved: unbelieved(&conn, &asked)?,
            without_control: state.controls().last_control_months()?.len(),
            verified_whole: state.verified().last_whole()?,
            restated: restated(&conn, at)?,
            failing: failing(&conn, &asked)?,
            errors: errors(&conn)?,
        })
    }

    /// Whether anything is known of the platform: before, nothing can be wrong.
    pub(super) fn knows(&self) -> bool {
        self.status.watermark.is_some()
    }

    /// Tables that are to be filled and are not.
    pub(super) fn troubled(&self) -> impl Iterator<Item = &crate::status::Table> {
        let failing = [TableStatus::Failing.name(), TableStatus::Forbidden.name()];
        self.status.tables.iter().filter(move |table| failing.contains(&table.status))
    }
}

fn window(conn: &Connection, config: &Config, now: Timestamp) -> Result<Window> {
    let (allowed, length) = (config.feed.calls, config.feed.per);
    Ok(Window { calls: RunLog::new(conn).feed_calls_within(length, now)?, allowed, length })
}

fn restated(conn: &Connection, now: Timestamp) -> Result<Restated> {
    let since = sql::instant(now - RESTATED_WITHIN);
    let sql = format!(
        "SELECT count(*) FILTER (WHERE changed_at > {since}), epoch_us(max(changed_at)) FROM sync.restatements"
    );
    let found = query(conn, &sql, |row| {
        Ok(Restated { changes: row.get(0)?, last: from_micros(row.get(1)?) })
    })?;
    Ok(found.into_iter().next().unwrap_or_default())
}

fn unbelieved(conn: &Connection, asked: &[&str]) -> Result<Unbelieved> {
    let scopes = UnbelievedScopes::of(conn, asked)?;
    Ok(Unbelieved {
        doubted: scopes.doubted.len(),
        held: scopes.held.len(),
        months: scopes.months.len(),
    })
}

fn failing(conn: &Connection, asked: &[&str]) -> Result<Vec<Failing>> {
    let tables: Vec<&str> = asked.iter().copied().chain(FEED_TABLES).collect();
    query(
        conn,
        &format!(
            "SELECT table_name, count(*), sum(attempts)::BIGINT, epoch_us(min(first_at)), epoch_us(min(next_at)) \
             FROM sync.failures WHERE {} GROUP BY table_name ORDER BY table_name",
            of_tables(&tables)
        ),
        |row| {
            Ok(Failing {
                table: row.get(0)?,
                scopes: row.get(1)?,
                attempts: row.get::<_, Option<i64>>(2)?.unwrap_or_default(),
                first: from_micros(row.get(3)?),
                next_try: from_micros(row.get(4)?),
            })
        },
    )
}

fn errors(conn: &Connection) -> Result<Vec<RunError>> {
    let rows = query(
        conn,
        &format!(
            "SELECT epoch_us(ended_at), error FROM sync.runs WHERE error IS NOT NULL AND ended_at IS NOT NULL \
             ORDER BY run_id DESC LIMIT {LATEST_ERRORS}"
        ),
        |row| Ok((row.get(0)?, row.get::<_, String>(1)?)),
    )?;
    let mut errors: Vec<RunError> = Vec::new();
    for (at, error) in rows {
        let Some(at) = from_micros(at) else { continue };
        match errors.last_mut().filter(|run| run.error == error) {
            Some(run) => (run.runs, run.first) = (run.runs + 1, at),
            None => errors.push(RunError { first: at, last: at, runs: 1, error }),
        }
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::fixture::opened;

    #[test]
    fn of_a_table_that_is_not_read_nothing_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), "");
        let conn = session.store().connection().unwrap();
        conn.execute_batch(
            "INSERT INTO sync.failures BY NAME SELECT table_name, 1 AS id, '' AS part, kind, 'no' AS error, now() AS first_at, \
               now() AS next_at, 1 AS attempts \
             FROM (VALUES ('costs', 'Doubted'), ('notes', 'Held')) f(table_name, kind); \
             INSERT INTO sync.rejects BY NAME SELECT 'costs' AS table_name, '1' AS scope, '1' AS record_key; \
             INSERT INTO sync.meta VALUES ('control_months', 'offices/1/2026-10 differs')",
        )
        .unwrap();
        let with = |status: &str| {
            let sql = format!("UPDATE sync.resources SET status = '{status}', because_of = NULL");
            conn.execute_batch(&sql).unwrap();
            let facts = Facts::collect(&session, &Pulse::default()).unwrap();
            let costs = facts.status.tables.iter().find(|table| table.table == "costs").unwrap();
            let rejects = (costs.rejected, costs.open_rejects());
            (facts.unbelieved, facts.without_control, facts.failing.len(), rejects)
        };
        let unbelieved = Unbelieved { doubted: 1, held: 1, months: 0 };
        assert_eq!(with("ok"), (unbelieved, 1, 2, (1, 1)));
        for off in ["disabled", "forbidden", "absent"] {
            assert_eq!(with(off), (Unbelieved::default(), 0, 0, (1, 0)), "{off}");
        }
    }
}
