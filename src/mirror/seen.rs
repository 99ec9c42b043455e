//! What the feeds last said of each case and contact (`sync.seen`, `sync.seen_contacts`), and which of
//! them may have something stale.

use crate::scope::Late;
use std::collections::HashMap;
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::{State, batch, count, list};
use super::unreadable::places;
use crate::catalog::ChangeDate;
use crate::error::Result;
use crate::scope::{
    CaseDates, CaseState, ContactSeen, FailureKind, FeedName, Place, Standing, UNREADABLE_BELOW,
    any_version,
};
use crate::sql::{self, db, instant};

/// `AND ...`: only these cases, or all where none is named.
fn among(only: &[i64]) -> String {
    if only.is_empty() { String::new() } else { format!("AND case_id IN ({})", list(only)) }
}

/// What cases are ordered by: `ModifiedDate` in ticks, and the least number without one.
const NEWEST: &str = "coalesce(modified_date, -9223372036854775808)";

fn newest_first() -> String {
    format!("{NEWEST} DESC, case_id DESC")
}

/// The cases behind this one in that order.
fn behind(after: Option<(i64, i64)>) -> String {
    after.map_or_else(String::new, |(modified, id)| {
        format!("AND ({NEWEST}, case_id) < ({modified}, {id})")
    })
}

/// What the feed and the searches said of cases.
pub(crate) struct SeenCases<'c> {
    pub(super) conn: &'c Connection,
}

impl SeenCases<'_> {
    /// Notes what a page of the case feed said. A case whose dates are known already is not written.
    /// Returns the number of cases that moved.
    pub(crate) fn see_cases(
        &self,
        rows: &[(i64, CaseDates)],
        sequence: i64,
        now: Timestamp,
    ) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        let columns: Vec<&str> = ChangeDate::ALL.iter().map(|(_, _, column)| *column).collect();
        let declared: Vec<String> = columns.iter().map(|c| format!("{c} BIGINT")).collect();
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE stage_seen (case_id BIGINT, {}, any_stamp VARCHAR)",
                declared.join(", ")
            ),
        )?;
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
                        any_version(d)
                    ])
                    .map_err(failed)?;
            }
            appender.flush().map_err(failed)?;
        }
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = n.{c}")).collect();
        let moved = format!("moved = {sequence}, moved_at = {}", instant(now));
        let updated = count(
            self.conn,
            &format!(
                "UPDATE sync.seen s SET {}, any_stamp = n.any_stamp, {moved}, reported = true, \
               dirty = true, removed = false \
             FROM temp.stage_seen n WHERE s.case_id = n.case_id \
               AND (NOT s.reported OR s.any_stamp <> n.any_stamp)",
                set.join(", ")
            ),
        )?;
        let inserted = count(
            self.conn,
            &format!(
                "INSERT INTO sync.seen BY NAME SELECT n.*, true AS reported, {sequence} AS moved, \
               {now} AS moved_at, {now} AS known_at, true AS dirty, n.any_stamp AS rereading, false AS removed \
             FROM temp.stage_seen n \
             WHERE NOT EXISTS (SELECT 1 FROM sync.seen s WHERE s.case_id = n.case_id)",
                now = instant(now)
            ),
        )?;
        Ok(updated + inserted)
    }

    /// Notes what a page of the contact feed said; returns the number of contacts that moved.
    pub(crate) fn see_contacts(
        &self,
        rows: &[ContactSeen],
        sequence: i64,
        now: Timestamp,
    ) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        batch(
            self.conn,
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
        let at = instant(now);
        let updated = count(
            self.conn,
            &format!(
                "UPDATE sync.seen_contacts s SET modified_date = n.modified_date, moved = {sequence}, \
               moved_at = {at}, dirty = true FROM temp.stage_seen_contacts n WHERE s.contact_id = n.contact_id \
               AND s.modified_date IS DISTINCT FROM n.modified_date"
            ),
        )?;
        let inserted = count(
            self.conn,
            &format!(
                "INSERT INTO sync.seen_contacts BY NAME SELECT contact_id, modified_date, \
               {sequence} AS moved, {at} AS moved_at, true AS dirty \
             FROM temp.stage_seen_contacts n WHERE NOT EXISTS \
               (SELECT 1 FROM sync.seen_contacts s WHERE s.contact_id = n.contact_id)"
            ),
        )?;
        Ok(updated + inserted)
    }

    /// The rows of a feed that pages after number `sequence` moved though their `ModifiedDate` lies
    /// before `bound`, in ticks: the polls should have shown them.
    pub(crate) fn late(&self, feed: FeedName, sequence: i64, bound: i64) -> Result<Late> {
        let (table, _, _) = places(feed);
        let mut found = sql::query(
            self.conn,
            &format!(
                "SELECT count(*), coalesce({bound} - min(modified_date), 0) FROM {table} \
                 WHERE moved > {sequence} AND modified_date < {bound} \
                   AND modified_date >= {UNREADABLE_BELOW}"
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        )?;
        let (rows, ticks) = found.pop().unwrap_or_default();
        let ticks = u64::try_from(ticks).unwrap_or(0);
        Ok(Late {
            rows: u64::try_from(rows).unwrap_or(0),
            latest: Duration::from_nanos(ticks.saturating_mul(100)),
        })
    }

    /// The next cases that may have something stale, newest change first. `after` is the last one of
    /// the batch before.
    pub(crate) fn dirty_cases(
        &self,
        after: Option<(i64, i64)>,
        only: &[i64],
        limit: usize,
    ) -> Result<Vec<CaseState>> {
        self.case_states(&format!("AND dirty {}", behind(after)), only, &newest_first(), limit)
    }

    /// The same beside those that [`UnreadCases::stage`] has collected on this connection.
    ///
    /// [`UnreadCases::stage`]: super::unread::UnreadCases::stage
    pub(crate) fn dirty_cases_that_were_read(
        &self,
        after: Option<(i64, i64)>,
        limit: usize,
    ) -> Result<Vec<CaseState>> {
        let others = "AND dirty AND case_id NOT IN (SELECT case_id FROM temp.unread)";
        self.case_states(&format!("{others} {}", behind(after)), &[], &newest_first(), limit)
    }

    /// How many cases [`SeenCases::dirty_cases`] gives in all.
    pub(crate) fn count_dirty(&self, only: &[i64]) -> Result<u64> {
        let sql =
            format!("SELECT count(*) FROM sync.seen WHERE NOT removed AND dirty {}", among(only));
        Ok(u64::try_from(sql::scalar_i64(self.conn, &sql)?).unwrap_or(0))
    }

    /// Of the cases that were read before, those that may have something stale, newest change first.
    pub(crate) fn changed_cases(&self, only: &[i64], limit: usize) -> Result<Vec<CaseState>> {
        let other = "table_name NOT IN ('cases', 'projects', 'contacts')";
        let read = &format!(
            "AND dirty AND (case_id IN (SELECT case_id FROM sync.fetched_cases \
                 JOIN sync.fetched_coverage USING (coverage) WHERE {other}) \
               OR case_id IN (SELECT id FROM sync.fetched_scopes WHERE part = '' AND {other}))"
        );
        self.case_states(read, only, &newest_first(), limit)
    }

    /// The cases that polls moved and that may have something stale, in the order of the polls; those
    /// behind this poll and case.
    pub(crate) fn moved_cases(&self, after: (i64, i64), limit: usize) -> Result<Vec<CaseState>> {
        let behind = format!("AND dirty AND (moved, case_id) > ({}, {})", after.0, after.1);
        self.case_states(&behind, &[], "moved, case_id", limit)
    }

    /// The cases whose search is due again by now, in microseconds of our clock: it may not have shown their last change
    /// when it was last asked.
    pub(crate) fn waiting_for_search(&self, now_us: i64, limit: usize) -> Result<Vec<CaseState>> {
        let due = format!(
            "SELECT id FROM sync.fetched_scopes \
               WHERE again_at <= {now_us} AND table_name IN ('cases', 'projects') \
             UNION SELECT id FROM sync.failures \
               WHERE table_name IN ('cases', 'projects') AND part = '' AND kind IN ({}) \
                 AND epoch_us(next_at) <= {now_us}",
            FailureKind::names(&FailureKind::OF_THE_SEARCH)
        );
        // None, mostly: then no case is looked at.
        if sql::scalar_i64(self.conn, &format!("SELECT count(*) FROM ({due})"))? == 0 {
            return Ok(Vec::new());
        }
        self.case_states(&format!("AND case_id IN ({due})"), &[], &newest_first(), limit)
    }

    /// Cases that are not removed and for which `which` holds (`AND ...`), in this order.
    pub(super) fn case_states(
        &self,
        which: &str,
        only: &[i64],
        order: &str,
        limit: usize,
    ) -> Result<Vec<CaseState>> {
        let columns: Vec<&str> = ChangeDate::ALL.iter().map(|(_, _, column)| *column).collect();
        let only = among(only);
        sql::query(
            self.conn,
            &format!(
                "SELECT case_id, reported, any_stamp, moved, place, state, rereading IS NOT NULL, {} \
                 FROM sync.seen WHERE NOT removed {which} {only} \
                 ORDER BY {order} LIMIT {limit}",
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
                    any_version: row.get(2)?,
                    moved: row.get(3)?,
                    place: row.get::<_, Option<String>>(4)?.as_deref().and_then(Place::parse),
                    state: row
                        .get::<_, Option<String>>(5)?
                        .as_deref()
                        .and_then(Standing::from_name),
                    rereading: row.get(6)?,
                })
            },
        )
    }

    /// How far back the case feed has been read without a gap, in ticks.
    pub(crate) fn feed_reach(&self) -> Result<Option<i64>> {
        Ok(State::new(self.conn).meta("feed_reach")?.and_then(|text| text.parse().ok()))
    }

    /// What happened since the last poll is not known.
    pub(crate) fn forget_feed_reach(&self) -> Result<()> {
        State::new(self.conn).set_meta("feed_reach", "")
    }

    /// Notes how far back the case feed was read.
    pub(crate) fn set_feed_reach(&self, ticks: i64) -> Result<()> {
        State::new(self.conn).set_meta("feed_reach", &ticks.to_string())
    }

    /// The newest change date that the search rows of these cases show, in ticks.
    pub(crate) fn newest_dates(&self, ids: &[i64]) -> Result<HashMap<i64, i64>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut newest = HashMap::new();
        for table in ["cases", "projects"] {
            let Some(dates) = newest_dates_of(self.conn, table)? else { continue };
            newest.extend(sql::query(
                self.conn,
                &format!(
                    "SELECT id, newest FROM ({dates}) \
                     WHERE id IN ({}) AND newest IS NOT NULL",
                    list(ids)
                ),
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
            )?);
        }
        Ok(newest)
    }

    /// Cases of a batch that had nothing stale left when [`State::stale_marks`] counted `marks` are clean,
    /// unless a poll moved them, or something was made stale, meanwhile. A case that was read whole is
    /// noted as such.
    pub(crate) fn clean(&self, cases: &[(i64, i64)], marks: i64) -> Result<()> {
        if cases.is_empty() || State::new(self.conn).stale_marks().count()? != marks {
            return Ok(());
        }
        let rows: Vec<String> =
            cases.iter().map(|(id, moved)| format!("({id}, {moved})")).collect();
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE stage_clean AS \
               SELECT c.id, c.moved FROM (VALUES {}) AS c(id, moved) \
               JOIN sync.seen s ON s.case_id = c.id AND s.moved = c.moved; \
             UPDATE sync.seen s SET dirty = false, \
               whole_stamp = coalesce(s.rereading, s.whole_stamp), rereading = NULL \
             FROM temp.stage_clean c WHERE s.case_id = c.id",
                rows.join(", ")
            ),
        )?;
        State::new(self.conn).hints().forget_clean()?;
        State::new(self.conn).fetched_scopes().fold("SELECT id FROM temp.stage_clean")
    }
}

/// Of each row of a search table the newest of its change dates, as a query of `id` and `newest`, in
/// ticks; `None` where the table has none of them.
pub(super) fn newest_dates_of(conn: &Connection, table: &str) -> Result<Option<String>> {
    let own = sql::query(
        conn,
        &format!("SELECT column_name FROM sync.columns WHERE table_name = {}", sql::text(table)),
        |row| row.get::<_, String>(0),
    )?;
    let dates: Vec<String> = ChangeDate::ALL
        .iter()
        .filter(|(_, _, column)| own.iter().any(|own| own == column))
        .map(|(_, _, column)| format!("epoch_us(m.{})", sql::ident(column)))
        .collect();
    let newest = (!dates.is_empty()).then(|| dates.join(", "));
    Ok(newest.map(|dates| {
        format!("SELECT m.id, greatest({dates}) * 10 AS newest FROM main.{} m", sql::ident(table))
    }))
}
