//! Seen and fetched: what the feeds last said, what was read at which dates, what failed.
//!
//! Functions on a connection; those that write are called in the writer's transactions.

use std::collections::HashMap;
use std::time::Duration;

use duckdb::{Connection, Row, params};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{db, instant, instant_param, scalar_i64};
use crate::catalog::{Facet, Resource};
use crate::error::Result;
use crate::plan;
use crate::quote;

/// The kind of a failure that is no error: the search lags behind the feed.
pub const FAILURE_LAG: &str = "Lag";
/// A case that was shown is in no search now, and exists: hidden, or the search lags.
pub const FAILURE_SUSPECT: &str = "Suspect";
/// A case that no search has shown yet.
pub const FAILURE_NOT_SHOWN: &str = "NotShown";
/// A case that was shown is in no search now, with so many others that the brake holds them.
pub const FAILURE_HELD: &str = "Held";

/// Contacts that are mirrored: those that a role names and those that the contacts feed reports.
const KNOWN_CONTACTS: &str = "SELECT contact_id AS id FROM main.case_roles \
                              WHERE contact_id IS NOT NULL \
                              UNION SELECT contact_id FROM sync.seen_contacts";

/// The change dates of a case, in the order of [`Facet::ALL`], in ticks; `None` is null.
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

    fn parse(text: &str) -> Option<Place> {
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
    /// The poll that last moved a date.
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

    /// The number of the next poll; it counts up across restarts.
    pub fn next_sequence(&self) -> Result<i64> {
        let next = self.meta("sequence")?.and_then(|v| v.parse::<i64>().ok()).unwrap_or(0) + 1;
        self.set_meta("sequence", &next.to_string())?;
        Ok(next)
    }

    /// The number of the last poll.
    pub fn sequence(&self) -> Result<i64> {
        Ok(self.meta("sequence")?.and_then(|v| v.parse().ok()).unwrap_or(0))
    }

    /// Notes what a page of the case feed said. A case whose dates are known already is not written.
    /// Returns the number of cases that moved.
    pub fn see_cases(
        &self,
        rows: &[(i64, CaseDates)],
        sequence: i64,
        now: Timestamp,
    ) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        let columns: Vec<&str> = Facet::ALL.iter().map(|(_, _, column)| *column).collect();
        let declared: Vec<String> = columns.iter().map(|c| format!("{c} BIGINT")).collect();
        self.batch(&format!(
            "CREATE OR REPLACE TEMP TABLE stage_seen (case_id BIGINT, {}, any_stamp VARCHAR)",
            declared.join(", ")
        ))?;
        {
            let failed = |e| db("cannot stage what the feed said", e);
            let mut appender = self.conn.appender("stage_seen").map_err(failed)?;
            for (id, d) in rows {
                appender
                    .append_row(params![
                        id,
                        d[0],
                        d[1],
                        d[2],
                        d[3],
                        d[4],
                        d[5],
                        d[6],
                        d[7],
                        d[8],
                        d[9],
                        d[10],
                        any_stamp(d)
                    ])
                    .map_err(failed)?;
            }
            appender.flush().map_err(failed)?;
        }
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = n.{c}")).collect();
        let moved = format!("moved = {sequence}, moved_at = {}", instant(now));
        let updated = self.count(&format!(
            "UPDATE sync.seen s SET {}, any_stamp = n.any_stamp, {moved}, reported = true, \
               dirty = true, removed = false \
             FROM temp.stage_seen n WHERE s.case_id = n.case_id \
               AND (NOT s.reported OR s.any_stamp <> n.any_stamp)",
            set.join(", ")
        ))?;
        let inserted = self.count(&format!(
            "INSERT INTO sync.seen BY NAME SELECT n.*, true AS reported, {sequence} AS moved, \
               {} AS moved_at, true AS dirty, n.any_stamp AS rereading, false AS removed \
             FROM temp.stage_seen n \
             WHERE NOT EXISTS (SELECT 1 FROM sync.seen s WHERE s.case_id = n.case_id)",
            instant(now)
        ))?;
        Ok(updated + inserted)
    }

    /// Notes what a page of the contact feed said; returns the number of contacts that moved.
    pub fn see_contacts(&self, rows: &[ContactSeen], sequence: i64) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        self.batch(
            "CREATE OR REPLACE TEMP TABLE stage_seen_contacts \
             (contact_id BIGINT, modified_date BIGINT)",
        )?;
        {
            let failed = |e| db("cannot stage what the feed said", e);
            let mut appender = self.conn.appender("stage_seen_contacts").map_err(failed)?;
            for row in rows {
                appender.append_row(params![row.contact_id, row.modified]).map_err(failed)?;
            }
            appender.flush().map_err(failed)?;
        }
        let updated = self.count(&format!(
            "UPDATE sync.seen_contacts s SET modified_date = n.modified_date, moved = {sequence}, \
               dirty = true FROM temp.stage_seen_contacts n WHERE s.contact_id = n.contact_id \
               AND s.modified_date IS DISTINCT FROM n.modified_date"
        ))?;
        let inserted = self.count(&format!(
            "INSERT INTO sync.seen_contacts SELECT contact_id, modified_date, {sequence}, true \
             FROM temp.stage_seen_contacts n WHERE NOT EXISTS \
               (SELECT 1 FROM sync.seen_contacts s WHERE s.contact_id = n.contact_id)"
        ))?;
        Ok(updated + inserted)
    }

    /// The next cases that may have something stale, newest change first. `after` is the last one of
    /// the batch before.
    pub fn dirty_cases(
        &self,
        after: Option<(i64, i64)>,
        only: &[i64],
        limit: usize,
    ) -> Result<Vec<CaseState>> {
        let columns: Vec<&str> = Facet::ALL.iter().map(|(_, _, column)| *column).collect();
        let order = format!("coalesce(modified_date, {})", i64::MIN);
        let from = match after {
            Some((modified, id)) => format!("AND ({order}, case_id) < ({modified}, {id})"),
            None => String::new(),
        };
        let only = if only.is_empty() {
            String::new()
        } else {
            format!("AND case_id IN ({})", list(only))
        };
        self.query(
            &format!(
                "SELECT case_id, reported, any_stamp, moved, place, state, rereading IS NOT NULL, {} \
                 FROM sync.seen WHERE dirty AND NOT removed {from} {only} \
                 ORDER BY {order} DESC, case_id DESC LIMIT {limit}",
                columns.join(", ")
            ),
            |row| {
                let mut dates: CaseDates = [None; 11];
                for (i, date) in dates.iter_mut().enumerate() {
                    *date = row.get(7 + i)?;
                }
                Ok(CaseState {
                    case_id: row.get(0)?,
                    reported: row.get(1)?,
                    dates,
                    any_stamp: row.get(2)?,
                    moved: row.get(3)?,
                    place: row.get::<_, Option<String>>(4)?.as_deref().and_then(Place::parse),
                    state: row.get(5)?,
                    rereading: row.get(6)?,
                })
            },
        )
    }

    /// What was fetched of these scopes, by table and id.
    pub fn fetched(&self, ids: &[i64], contacts: bool) -> Result<HashMap<(String, i64), Fetched>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let which = if contacts { "=" } else { "<>" };
        let rows = self.query(
            &format!(
                "SELECT table_name, id, stamp, complete, again_at, epoch_us(fetched_at) \
                 FROM sync.fetched WHERE part = '' AND table_name {which} 'contacts' \
                   AND id IN ({})",
                list(ids)
            ),
            |row| {
                Ok((
                    (row.get(0)?, row.get(1)?),
                    Fetched {
                        stamp: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                        complete: row.get(3)?,
                        again_at: row.get(4)?,
                        fetched_at: row.get(5)?,
                    },
                ))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// What was fetched of one scope.
    pub fn fetched_one(&self, scope: &ScopeId) -> Result<Option<Fetched>> {
        let mut rows = self.query(
            &format!(
                "SELECT stamp, complete, again_at, epoch_us(fetched_at) FROM sync.fetched \
                 WHERE table_name = {} AND id = {} AND part = {}",
                quote::text(&scope.table),
                scope.id,
                quote::text(&scope.part)
            ),
            |row| {
                Ok(Fetched {
                    stamp: row.get::<_, Option<String>>(0)?.unwrap_or_default(),
                    complete: row.get(1)?,
                    again_at: row.get(2)?,
                    fetched_at: row.get(3)?,
                })
            },
        )?;
        Ok(rows.pop())
    }

    /// Until when failed scopes wait: by table and id, in microseconds of our clock.
    pub fn failures(&self) -> Result<HashMap<(String, i64), i64>> {
        let rows = self.query(
            "SELECT table_name, id, epoch_us(next_at) FROM sync.failures WHERE part = ''",
            |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The values of a column of another table for these ids: which cases `[only]` lets through.
    pub fn column_values(
        &self,
        table: &str,
        column: &str,
        ids: &[i64],
    ) -> Result<HashMap<i64, Option<String>>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.query(
            &format!(
                "SELECT id, {}::VARCHAR FROM main.{} WHERE id IN ({})",
                quote::ident(column),
                quote::ident(table),
                list(ids)
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Cases of a batch that have nothing stale left are clean, unless a poll moved them meanwhile.
    /// A case that was read whole is noted as such.
    pub fn clean(&self, cases: &[(i64, i64)]) -> Result<()> {
        if cases.is_empty() {
            return Ok(());
        }
        let rows: Vec<String> =
            cases.iter().map(|(id, moved)| format!("({id}, {moved})")).collect();
        self.batch(&format!(
            "UPDATE sync.seen s SET dirty = false, \
               whole_stamp = coalesce(s.rereading, s.whole_stamp), rereading = NULL \
             FROM (VALUES {}) AS c(id, moved) WHERE s.case_id = c.id AND s.moved = c.moved",
            rows.join(", ")
        ))
    }

    /// Every case gets every resource read again (`--full`, or a gap in the feed); what was fetched
    /// stays known until it is replaced.
    pub fn everything_is_stale(&self, reason: &str) -> Result<()> {
        self.batch(&format!(
            "UPDATE sync.fetched SET stamp = {}; \
             UPDATE sync.seen SET dirty = true, rereading = any_stamp WHERE NOT removed; \
             UPDATE sync.seen_contacts SET dirty = true",
            quote::text(reason)
        ))
    }

    /// Cases whose `ModifiedDate` or another date moved since they were last read whole are read whole
    /// again (contract section 4, "Narrow dates"); `all` takes every case.
    pub fn reread(&self, all: bool) -> Result<u64> {
        let which = if all { "true" } else { "s.whole_stamp IS DISTINCT FROM s.any_stamp" };
        let condition = format!("NOT s.removed AND s.rereading IS NULL AND {which}");
        self.batch(&format!(
            "UPDATE sync.fetched f SET stamp = 'reread' FROM sync.seen s \
             WHERE f.id = s.case_id AND f.part = '' AND f.table_name NOT IN ('contacts') \
               AND f.table_name IN (SELECT table_name FROM sync.columns WHERE column_name = 'case_id' \
                                    UNION SELECT 'cases' UNION SELECT 'projects') \
               AND {condition}"
        ))?;
        self.count(&format!(
            "UPDATE sync.seen s SET dirty = true, rereading = s.any_stamp WHERE {condition}"
        ))
    }

    /// Contacts to search: named by a role or the feed and never read, moved by the feed, due again, or old.
    /// `older_than` is the age, in microseconds of our clock, from which a contact is read again
    /// where there is no contacts feed.
    pub fn stale_contacts(&self, now_us: i64, older_than: Option<i64>) -> Result<Vec<i64>> {
        let old = match older_than {
            Some(us) => format!("OR epoch_us(f.fetched_at) < {us}"),
            None => String::new(),
        };
        ids(
            self.conn,
            &format!(
                "WITH named AS ({KNOWN_CONTACTS}) \
                 SELECT n.id FROM named n \
                 LEFT JOIN sync.fetched f ON f.table_name = 'contacts' AND f.id = n.id AND f.part = '' \
                 LEFT JOIN sync.seen_contacts s ON s.contact_id = n.id \
                 LEFT JOIN sync.failures x ON x.table_name = 'contacts' AND x.id = n.id \
                 WHERE (x.next_at IS NULL OR epoch_us(x.next_at) <= {now_us}) \
                   AND (f.id IS NULL OR f.again_at <= {now_us} {old} \
                     OR f.stamp IS DISTINCT FROM \
                        (CASE WHEN s.contact_id IS NULL THEN 'unknown' \
                              ELSE s.modified_date::VARCHAR END)) \
                 ORDER BY n.id"
            ),
        )
    }

    /// Contacts that the feed moved are done with when they are fetched at that date.
    pub fn clean_contacts(&self) -> Result<()> {
        self.batch(
            "UPDATE sync.seen_contacts s SET dirty = false WHERE s.dirty AND EXISTS \
               (SELECT 1 FROM sync.fetched f WHERE f.table_name = 'contacts' \
                  AND f.id = s.contact_id AND f.stamp IS NOT DISTINCT FROM s.modified_date::VARCHAR)",
        )
    }

    /// Whether the contacts have to be looked at: the roles changed since they were last, or the feed
    /// moved one. An idle cycle asks no more than this.
    pub fn contacts_may_be_stale(&self) -> Result<bool> {
        let counter = self.roles_counter()?;
        if self.meta("contacts_planned_at")?.as_deref() != Some(counter.to_string().as_str()) {
            return Ok(true);
        }
        Ok(scalar_i64(
            self.conn,
            "SELECT (SELECT count(*) FROM sync.seen_contacts WHERE dirty) \
               + (SELECT count(*) FROM sync.failures WHERE table_name = 'contacts')",
        )? > 0)
    }

    /// Notes that the contacts were looked at for the present roles.
    pub fn contacts_planned(&self) -> Result<()> {
        let counter = self.roles_counter()?;
        self.set_meta("contacts_planned_at", &counter.to_string())
    }

    fn roles_counter(&self) -> Result<i64> {
        scalar_i64(
            self.conn,
            "SELECT coalesce(sum(counter), 0)::BIGINT FROM sync.changes \
             WHERE table_name = 'case_roles'",
        )
    }

    /// Rows that are to be searched once more: the earliest time and how many, by table.
    pub fn again(&self) -> Result<Vec<(String, i64, i64)>> {
        self.query(
            "SELECT table_name, min(again_at), count(*) FROM sync.fetched \
             WHERE again_at IS NOT NULL GROUP BY table_name ORDER BY table_name",
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
    }

    /// Cases whose second search is due become dirty; returns how many.
    pub fn wake_again(&self, now_us: i64) -> Result<u64> {
        self.count(&format!(
            "UPDATE sync.seen s SET dirty = true FROM sync.fetched f \
             WHERE f.again_at <= {now_us} AND f.table_name IN ('cases', 'projects') \
               AND f.id = s.case_id AND NOT s.removed AND NOT s.dirty"
        ))
    }

    /// Cases that are in a mirrored search table, or known to be `hidden`, and are not in this
    /// listing: `listed` names a temporary table with a column `id`.
    pub fn suspects(&self, listed: &str, hidden: bool) -> Result<Vec<i64>> {
        let hidden = if hidden { "=" } else { "IS DISTINCT FROM" };
        ids(
            self.conn,
            &format!(
                "SELECT case_id FROM sync.seen s WHERE NOT removed AND place IS NOT NULL \
                   AND state {hidden} 'hidden' \
                   AND NOT EXISTS (SELECT 1 FROM {listed} l WHERE l.id = s.case_id) ORDER BY case_id"
            ),
        )
    }

    /// How many cases the mirror would lose if these, which no search shows, left it with those that
    /// no search has shown of late.
    pub fn leaving(&self, ids: &[i64]) -> Result<i64> {
        if ids.is_empty() {
            return Ok(0);
        }
        scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.seen s WHERE NOT removed AND place IS NOT NULL \
                   AND state IS DISTINCT FROM 'hidden' AND (case_id IN ({}) OR EXISTS \
                     (SELECT 1 FROM sync.failures x WHERE x.id = s.case_id \
                        AND x.table_name IN ('cases', 'projects') \
                        AND x.kind IN ('{FAILURE_SUSPECT}', '{FAILURE_HELD}')))",
                list(ids)
            ),
        )
    }

    /// The search in which a case is looked for first.
    pub fn place(&self, id: i64) -> Result<Place> {
        let rows = self
            .query(&format!("SELECT place FROM sync.seen WHERE case_id = {id}"), |row| {
                row.get::<_, Option<String>>(0)
            })?;
        let place = rows.into_iter().next().flatten();
        Ok(place.as_deref().and_then(Place::parse).unwrap_or(Place::Cases))
    }

    /// How many cases the mirror shows.
    pub fn shown_cases(&self) -> Result<i64> {
        scalar_i64(
            self.conn,
            "SELECT count(*) FROM sync.seen WHERE NOT removed AND place IS NOT NULL \
               AND state IS DISTINCT FROM 'hidden'",
        )
    }

    /// A table is looked at again for every case: it is newly enabled or permitted.
    pub fn wake_table(&self, table: &str) -> Result<()> {
        if table == "contacts" || table == "case_roles" {
            self.set_meta("contacts_planned_at", "")?;
        }
        self.batch(&format!(
            "UPDATE sync.seen SET dirty = true WHERE NOT removed AND NOT dirty; \
             UPDATE sync.resources SET not_found = 0 WHERE table_name = {}",
            quote::text(table)
        ))
    }

    /// Rows that are mirrored of a scope.
    pub fn rows_of_scope(&self, resource: &Resource, id: i64) -> Result<i64> {
        let condition = match resource.scope_column() {
            Some(column) => format!("{} = {id}", quote::ident(column)),
            None => "true".to_owned(),
        };
        scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM main.{} WHERE {condition}",
                quote::ident(&resource.table)
            ),
        )
    }

    /// Whether a scope failed in this way in an earlier run.
    pub fn failed_before(&self, table: &str, id: i64, kind: &str, run_id: i64) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.failures WHERE table_name = {} AND id = {id} \
                   AND part = '' AND kind = {} AND run_id < {run_id}",
                quote::text(table),
                quote::text(kind)
            ),
        )? > 0)
    }

    /// Notes that a scope could not be read; returns when it may be tried again.
    pub fn fail(
        &self,
        run_id: i64,
        now: Timestamp,
        scope: &ScopeId,
        kind: &str,
        error: &str,
        not_before: Option<Duration>,
    ) -> Result<Timestamp> {
        fail(self.conn, run_id, now, scope, kind, error, not_before)
    }

    /// Whether a search has shown the case, and it is not known to be gone.
    pub fn case_is_shown(&self, id: i64) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.seen WHERE case_id = {id} AND NOT removed \
                   AND place IS NOT NULL"
            ),
        )? > 0)
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

    /// The ids in a column of a mirrored table.
    pub fn column_ids(&self, table: &str, column: &str) -> Result<Vec<i64>> {
        let column = quote::ident(column);
        ids(
            self.conn,
            &format!(
                "SELECT DISTINCT {column} FROM main.{} WHERE {column} IS NOT NULL ORDER BY 1",
                quote::ident(table)
            ),
        )
    }

    /// Whether a list has to be read though its schedule is not due: it was never read, was asked
    /// for, or failed and its backoff is over.
    pub fn list_is_stale(&self, table: &str, whole: bool) -> Result<bool> {
        let (name, now) = (quote::text(table), Timestamp::now().as_microsecond());
        let failures = format!("FROM sync.failures WHERE table_name = {name}");
        let waiting = scalar_i64(
            self.conn,
            &format!("SELECT count(*) {failures} AND epoch_us(next_at) > {now}"),
        )?;
        if waiting > 0 {
            return Ok(false);
        }
        let failed = scalar_i64(self.conn, &format!("SELECT count(*) {failures}"))?;
        let fetched = format!("FROM sync.fetched WHERE table_name = {name}");
        let stale = scalar_i64(self.conn, &format!("SELECT count(*) {fetched} AND stamp <> ''"))?;
        let never = whole && scalar_i64(self.conn, &format!("SELECT count(*) {fetched}"))? == 0;
        Ok(failed > 0 || stale > 0 || never)
    }

    /// Why a list is stale, and whether it was never read.
    pub fn why_list_is_stale(&self, table: &str) -> Result<Option<(String, bool)>> {
        let name = quote::text(table);
        let rows = self.query(
            &format!(
                "SELECT (SELECT max(error) FROM sync.failures WHERE table_name = {name}), \
                   (SELECT max(stamp) FROM sync.fetched WHERE table_name = {name}), \
                   (SELECT coalesce(bool_or(complete), false) FROM sync.fetched \
                    WHERE table_name = {name})"
            ),
            |row| {
                Ok((
                    row.get::<_, Option<String>>(0)?,
                    row.get::<_, Option<String>>(1)?,
                    row.get::<_, bool>(2)?,
                ))
            },
        )?;
        let Some((error, stamp, complete)) = rows.into_iter().next() else { return Ok(None) };
        Ok(match (error, stamp) {
            (Some(error), _) => Some((error, !complete)),
            (None, None) => Some(("never fetched".to_owned(), true)),
            (None, Some(stamp)) if !stamp.is_empty() => Some((stamp, !complete)),
            (None, Some(_)) => None,
        })
    }

    /// Contacts that a role names and that are not fetched at the date the feed gives, with whether
    /// they were never fetched.
    pub fn contacts_unfetched(&self) -> Result<Vec<(i64, bool)>> {
        if !self.contacts_may_be_stale()? {
            return Ok(Vec::new());
        }
        self.query(
            &format!(
                "WITH named AS ({KNOWN_CONTACTS}) \
                 SELECT n.id, f.id IS NULL OR NOT f.complete FROM named n \
                 LEFT JOIN sync.fetched f \
                   ON f.table_name = 'contacts' AND f.id = n.id AND f.part = '' \
                 LEFT JOIN sync.seen_contacts s ON s.contact_id = n.id \
                 WHERE f.id IS NULL OR f.stamp IS DISTINCT FROM \
                   (CASE WHEN s.contact_id IS NULL THEN 'unknown' \
                         ELSE s.modified_date::VARCHAR END) \
                 ORDER BY n.id"
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// A text that moves with whatever readers of the published copy can see change: rows, statuses,
    /// rejects, drift, what is pending. Not with the books of runs that changed nothing.
    pub fn readable_state(&self) -> Result<String> {
        let rows = self.query(
            "SELECT concat_ws('|', \
               (SELECT sum(counter) FROM sync.changes), \
               (SELECT string_agg(table_name || status, ',' ORDER BY table_name) FROM sync.resources), \
               (SELECT count(*) || '/' || count(resolved_at) FROM sync.rejects), \
               (SELECT count(*) FROM sync.drift), \
               (SELECT count(*) || coalesce(max(since)::VARCHAR, '') FROM sync.pending), \
               (SELECT max(value) FROM sync.meta WHERE key = 'complete_tables'), \
               (SELECT max(value) FROM sync.meta WHERE key = 'calendar_zone'))",
            |row| row.get(0),
        )?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }

    /// When the next search after `after` comes due that waits for the search's lag, in microseconds
    /// of our clock.
    pub fn next_search(&self, cases: &[i64], after: i64) -> Result<Option<i64>> {
        let among =
            if cases.is_empty() { String::new() } else { format!("AND id IN ({})", list(cases)) };
        let rows = self.query(
            &format!(
                "SELECT min(due) FROM (SELECT again_at AS due FROM sync.fetched \
                   WHERE again_at IS NOT NULL {among} \
                 UNION ALL SELECT epoch_us(next_at) FROM sync.failures \
                   WHERE kind IN ('{FAILURE_LAG}', '{FAILURE_SUSPECT}', '{FAILURE_NOT_SHOWN}') {among}) \
                 WHERE due > {after}"
            ),
            |row| row.get(0),
        )?;
        Ok(rows.into_iter().next().flatten())
    }

    fn query<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>> {
        query(self.conn, sql, read)
    }

    fn batch(&self, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(|e| db("cannot write the books", e))
    }

    fn count(&self, sql: &str) -> Result<u64> {
        self.conn.execute(sql, []).map(|n| n as u64).map_err(|e| db("cannot write the books", e))
    }

    fn execute(&self, sql: &str, params: impl duckdb::Params) -> Result<()> {
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

/// Notes that a scope could not be read; returns when it may be tried again.
pub(super) fn fail(
    conn: &Connection,
    run_id: i64,
    now: Timestamp,
    scope: &ScopeId,
    kind: &str,
    error: &str,
    not_before: Option<Duration>,
) -> Result<Timestamp> {
    let of_scope = format!(
        "table_name = {} AND id = {} AND part = {}",
        quote::text(&scope.table),
        scope.id,
        quote::text(&scope.part)
    );
    let before = query(
        conn,
        &format!("SELECT attempts, epoch_us(first_at) FROM sync.failures WHERE {of_scope}"),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    )?
    .pop();
    let attempts = before.map_or(0, |(n, _)| n) + 1;
    let first = before.and_then(|(_, us)| Timestamp::from_microsecond(us).ok()).unwrap_or(now);
    let wait = plan::backoff(attempts as u32).max(not_before.unwrap_or_default());
    let next = now + wait;
    let failed = |e| db("cannot note a failure", e);
    conn.execute_batch(&format!("DELETE FROM sync.failures WHERE {of_scope}")).map_err(failed)?;
    conn.execute(
        "INSERT INTO sync.failures VALUES (?, ?, ?, ?, ?, ?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?, ?)",
        params![
            scope.table,
            scope.id,
            scope.part,
            run_id,
            attempts,
            instant_param(first),
            instant_param(next),
            kind,
            error
        ],
    )
    .map_err(failed)?;
    Ok(next)
}
