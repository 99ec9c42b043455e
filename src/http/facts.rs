//! What the page and the metrics say, collected from the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use duckdb::Connection;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use crate::alert;
use crate::config::Config;
use crate::disk::Disk;
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::progress::Now;
use crate::pulse::Pulse;
use crate::scope::{FeedName, TableStatus};
use crate::session::Session;
use crate::sql::{self, db, from_micros, query, scalar_i64};
use crate::status::Status;

/// Hours that the charts show.
pub(super) const HOURS: i64 = 24;
/// In seconds.
const HOUR: i64 = 3600;
/// Months that they show.
pub(super) const MONTHS: i64 = 24;

/// What was so a moment ago is so now, for who asks.
const LEAST_AGE: Duration = Duration::from_secs(2);
/// The same for what is counted from all rows.
const LEAST_AGE_OF_REPORTS: Duration = Duration::from_secs(60);
/// And however often somebody asks, so small a part of the time goes into it.
const SHARE_OF_TIME: u32 = 20;

/// What the store and the process say of themselves.
pub(super) struct Facts {
    pub(super) at: Timestamp,
    pub(super) status: Status,
    /// Why the feeds were not polled lately.
    pub(super) lag: Option<String>,
    pub(super) last_polls: [(FeedName, Option<Timestamp>); 2],
    pub(super) started: Timestamp,
    /// Since when nothing has needed anybody.
    pub(super) well_since: Option<Timestamp>,
    pub(super) window: Window,
    pub(super) doing: Option<Now>,
    /// By hour, the oldest first, none left out.
    pub(super) hours: Vec<Hour>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) disk: Option<Disk>,
    pub(super) store_bytes: u64,
    /// Lines and values that changed in closed months, in the last 30 days.
    pub(super) restatements: i64,
}

/// The throttle's window up to now.
pub(super) struct Window {
    pub(super) calls: i64,
    pub(super) allowed: u32,
    pub(super) length: Duration,
}

/// What an hour brought.
pub(super) struct Hour {
    pub(super) begins: Timestamp,
    pub(super) calls: i64,
    pub(super) changes: i64,
}

/// What readers have.
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) taken_at: Timestamp,
}

/// What is counted from all rows.
pub(super) struct Reports {
    pub(super) signed: Vec<Signed>,
    pub(super) coverage: Coverage,
    /// Months that are closed, and how many of them changed since.
    pub(super) closed: (i64, i64),
}

/// Signed cases of a month.
pub(super) struct Signed {
    /// `2026-10`.
    pub(super) month: String,
    pub(super) cases: i64,
}

/// What of the journals is there.
#[derive(Default)]
pub(super) struct Coverage {
    /// `2026-10`, in order.
    pub(super) months: Vec<String>,
    pub(super) scopes: Vec<Scope>,
}

/// An office, a broker company or a chain, with a status for each month of [`Coverage::months`].
pub(super) struct Scope {
    pub(super) name: String,
    /// The worst of all journals.
    pub(super) months: Vec<Option<String>>,
}

/// Collected once for all who ask at about the same time.
#[derive(Default)]
pub(super) struct Cache {
    facts: Mutex<Option<Kept<Facts>>>,
    reports: Mutex<Option<Kept<Reports>>>,
}

struct Kept<T> {
    value: Arc<T>,
    good_until: Instant,
}

impl Cache {
    /// What is so now.
    ///
    /// # Errors
    /// Those of reading the store.
    pub(super) async fn facts(
        &self,
        session: &Arc<Session>,
        pulse: &Arc<Pulse>,
    ) -> Result<Arc<Facts>> {
        let (session, pulse) = (Arc::clone(session), Arc::clone(pulse));
        kept(&self.facts, LEAST_AGE, move || Facts::collect(&session, &pulse)).await
    }

    /// What the reports say.
    ///
    /// # Errors
    /// Those of reading the store.
    pub(super) async fn reports(&self, session: &Arc<Session>) -> Result<Arc<Reports>> {
        let session = Arc::clone(session);
        let collect = move || Reports::collect(&session.store().connection()?);
        kept(&self.reports, LEAST_AGE_OF_REPORTS, collect).await
    }
}

async fn kept<T: Send + Sync + 'static>(
    place: &Mutex<Option<Kept<T>>>,
    least_age: Duration,
    collect: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<Arc<T>> {
    let mut place = place.lock().await;
    if let Some(kept) = place.as_ref().filter(|kept| Instant::now() < kept.good_until) {
        return Ok(Arc::clone(&kept.value));
    }
    let began = Instant::now();
    let value = tokio::task::spawn_blocking(collect)
        .await
        .map_err(|e| Error::caused(Kind::Internal, "collecting ended early", e))??;
    let value = Arc::new(value);
    let good_until = Instant::now() + least_age.max(began.elapsed() * SHARE_OF_TIME);
    *place = Some(Kept { value: Arc::clone(&value), good_until });
    Ok(value)
}

impl Facts {
    fn collect(session: &Session, pulse: &Pulse) -> Result<Facts> {
        let (config, store) = (session.config(), session.store());
        let conn = store.connection()?;
        let at = Timestamp::now();
        let feeds = [FeedName::Cases, FeedName::Contacts];
        Ok(Facts {
            at,
            status: Status::collect(config, session.catalog(), store, Vec::new())?,
            lag: pulse.lag(&config.feed),
            last_polls: feeds.map(|feed| (feed, pulse.last_poll(feed))),
            started: pulse.started,
            well_since: alert::since(&State::new(&conn))?,
            window: window(&conn, config, at)?,
            doing: session.doing(),
            hours: hours(&conn, at)?,
            snapshot: snapshot(&conn)?,
            disk: Disk::of(store.path()),
            store_bytes: store.path().metadata().map(|found| found.len()).unwrap_or_default(),
            restatements: scalar_i64(
                &conn,
                &format!(
                    "SELECT count(*) FROM sync.restatements WHERE changed_at > {}",
                    sql::instant(at - 30 * 24 * SignedDuration::from_secs(HOUR))
                ),
            )?,
        })
    }

    /// Tables that are to be filled and are not.
    pub(super) fn troubled(&self) -> impl Iterator<Item = &crate::status::Table> {
        let failing = [TableStatus::Failing.name(), TableStatus::Forbidden.name()];
        self.status.tables.iter().filter(move |table| failing.contains(&table.status))
    }
}

fn window(conn: &Connection, config: &Config, now: Timestamp) -> Result<Window> {
    let (allowed, length) = (config.feed.calls, config.feed.per);
    let begins = now - length;
    let calls = format!(
        "SELECT count(*) FROM sync.feed_calls WHERE sent_at > {} OR ended_at > {}",
        sql::instant(begins),
        sql::instant(begins)
    );
    Ok(Window { calls: scalar_i64(conn, &calls)?, allowed, length })
}

fn hours(conn: &Connection, now: Timestamp) -> Result<Vec<Hour>> {
    let last = now.as_second().div_euclid(HOUR);
    // By numbers: DuckDB adds no interval to an instant without an extension.
    let rows: Vec<(i64, i64, i64)> = query(
        conn,
        &format!(
            "WITH work AS ( \
               SELECT started_at AS began, calls, \
                 coalesce(rows_inserted, 0) + coalesce(rows_updated, 0) + coalesce(rows_deleted, 0) AS changes \
               FROM sync.runs \
               UNION ALL SELECT sent_at, 1, 0 FROM sync.feed_calls), \
             hours AS (SELECT epoch_us(began) // {} AS hour, * FROM work) \
             SELECT hour, coalesce(sum(calls), 0)::BIGINT, coalesce(sum(changes), 0)::BIGINT \
             FROM hours WHERE hour > {last} - {HOURS} AND hour <= {last} GROUP BY hour",
            HOUR * 1_000_000
        ),
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let each = (last - HOURS + 1..=last).filter_map(|hour| {
        let found = rows.iter().find(|(at, ..)| *at == hour);
        let (calls, changes) = found.map_or((0, 0), |(_, calls, changes)| (*calls, *changes));
        Some(Hour { begins: Timestamp::from_second(hour * HOUR).ok()?, calls, changes })
    });
    Ok(each.collect())
}

fn snapshot(conn: &Connection) -> Result<Option<Snapshot>> {
    let rows: Vec<(String, Option<i64>)> =
        query(conn, "SELECT snapshot_id, epoch_us(taken_at) FROM sync.snapshot", |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let named = rows.into_iter().next();
    Ok(named.and_then(|(id, at)| Some(Snapshot { id, taken_at: from_micros(at)? })))
}

impl Reports {
    fn collect(conn: &Connection) -> Result<Reports> {
        let signed = query(
            conn,
            &format!(
                // A month without any is a month, too.
                "WITH signed AS ( \
                   SELECT month, sum(signed_cases) AS cases FROM report.signed_cases \
                   WHERE month IS NOT NULL GROUP BY month), \
                 months AS (SELECT DISTINCT month FROM report.calendar \
                   WHERE month BETWEEN (SELECT min(month) FROM signed) AND (SELECT max(month) FROM signed)) \
                 SELECT strftime(month, '%Y-%m'), coalesce(cases, 0)::BIGINT \
                 FROM months LEFT JOIN signed USING (month) ORDER BY month DESC LIMIT {MONTHS}"
            ),
            |row| Ok(Signed { month: row.get(0)?, cases: row.get(1)? }),
        )?;
        let closed = conn
            .query_row(
                "SELECT count(*), count(*) FILTER (WHERE restatements > 0) FROM report.journal_statement",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(|e| db("cannot count the closed months", e))?;
        Ok(Reports {
            signed: signed.into_iter().rev().collect(),
            coverage: Coverage::collect(conn)?,
            closed,
        })
    }
}

impl Coverage {
    /// How many months have this status.
    pub(super) fn count(&self, status: &str) -> usize {
        let all = self.scopes.iter().flat_map(|scope| &scope.months);
        all.filter(|month| month.as_deref() == Some(status)).count()
    }

    fn collect(conn: &Connection) -> Result<Coverage> {
        // The worst first.
        let rows: Vec<(i64, Option<String>, String, String)> = query(
            conn,
            &format!(
                "WITH ranked AS ( \
                   SELECT *, list_position(['failing', 'doubted', 'incomplete', 'missing', 'forbidden', \
                     'absent', 'open', 'complete'], status) AS rank \
                   FROM report.journal_coverage \
                   WHERE status NOT IN ('disabled', 'gone') AND journal_month >= \
                     (SELECT max(journal_month) - INTERVAL {} MONTH FROM report.journal_coverage)) \
                 SELECT journal_id, any_value(name), strftime(journal_month, '%Y-%m'), \
                   arg_min(status, coalesce(rank, 0)) \
                 FROM ranked GROUP BY journal_id, journal_month ORDER BY journal_id, journal_month",
                MONTHS - 1
            ),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        let mut months: Vec<String> = rows.iter().map(|(_, _, month, _)| month.clone()).collect();
        months.sort();
        months.dedup();
        let mut coverage = Coverage { months, scopes: Vec::new() };
        let mut last = None;
        for (id, name, month, status) in rows {
            if last != Some(id) {
                last = Some(id);
                let name = name.unwrap_or_else(|| id.to_string());
                coverage.scopes.push(Scope { name, months: vec![None; coverage.months.len()] });
            }
            let at = coverage.months.binary_search(&month).ok();
            if let (Some(scope), Some(at)) = (coverage.scopes.last_mut(), at) {
                scope.months[at] = Some(status);
            }
        }
        Ok(coverage)
    }
}
