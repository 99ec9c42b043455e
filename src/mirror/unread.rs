//! Unread cases: those of which nothing was read but their row in the search, as most are during a
//! backfill. What is to be read of them follows from few facts, so it is counted and shown by queries:
//! planning a million of them one by one would take minutes for `status` and each publishing.
//!
//! The same is decided for single cases in `plan`; a test holds the two against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use duckdb::Connection;

use super::seen::newest_dates_of;
use super::state::State;
use super::state::fetched::exceptions;
use crate::catalog::{Group, Refresh, Resource};
use crate::error::Result;
use crate::scope::{FetchStatus, Place, Reason, Standing, UNKNOWN, UNREADABLE_BELOW};
use crate::sql::{self, db};

/// Key of `sync.meta`: what the view `sync.pending` was made from.
const SHOWN: &str = "pending_view";

/// Cases of which nothing was read but their row in the search.
pub(crate) struct UnreadCases<'c> {
    pub(super) conn: &'c Connection,
}

impl UnreadCases<'_> {
    /// Collects them in `temp.unread` of this connection; the other cases that may have something stale
    /// are planned one by one. `since` is `bootstrap.since` in ticks.
    pub(crate) fn stage(&self, active: &[Arc<Resource>], since: Option<i64>) -> Result<()> {
        self.write(&format!(
            "CREATE OR REPLACE TEMP TABLE unread AS \
               SELECT u.case_id, u.since, {} AS wanted FROM ({}) u",
            self.wanted(since)?,
            unread(active)
        ))
    }

    /// Notes those that are staged on this connection, for `sync.pending` to show until they are noted
    /// anew. They are noted before the others are planned: a case that is read or moved meanwhile would
    /// be among neither, or among both.
    pub(crate) fn note(&self, active: &[Arc<Resource>], since: Option<i64>) -> Result<()> {
        self.stage(active, since)?;
        self.write(
            "CREATE OR REPLACE TEMP TABLE read_since AS \
               SELECT case_id, since FROM sync.unread_cases \
               WHERE case_id NOT IN (SELECT case_id FROM temp.unread); \
             DELETE FROM sync.unread_cases WHERE case_id IN (SELECT case_id FROM temp.read_since); \
             UPDATE sync.unread_cases n SET wanted = u.wanted FROM temp.unread u \
               WHERE u.case_id = n.case_id AND u.wanted <> n.wanted; \
             INSERT INTO sync.unread_cases SELECT case_id, since, wanted FROM temp.unread \
               WHERE case_id NOT IN (SELECT case_id FROM sync.unread_cases); \
             DROP TABLE temp.unread",
        )
    }

    /// Collects those that were noted in `temp.unread` of this connection.
    pub(crate) fn stage_noted(&self) -> Result<()> {
        self.write("CREATE OR REPLACE TEMP TABLE unread AS FROM sync.unread_cases")
    }

    /// How many of those in `temp.unread` are to be read, per table of `active`.
    pub(crate) fn count(&self, active: &[Arc<Resource>]) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for (condition, tables) in by_condition(active) {
            let sql = format!("SELECT count(*) FROM temp.unread u WHERE u.wanted AND {condition}");
            let count = u64::try_from(sql::scalar_i64(self.conn, &sql)?).unwrap_or(0);
            counts.extend(tables.into_iter().map(|table| (table.to_owned(), count)));
        }
        counts.retain(|_, count| *count > 0);
        Ok(counts)
    }

    /// Makes `sync.pending` show those that were noted beside what is noted scope by scope.
    pub(crate) fn show(&self, active: &[Arc<Resource>]) -> Result<()> {
        let view = pending(active);
        let state = State::new(self.conn);
        if state.meta(SHOWN)?.as_deref() == Some(view.as_str()) {
            return Ok(());
        }
        let comment = "What is stale, why, and since when, as of the last publish";
        self.write(&format!(
            "CREATE OR REPLACE VIEW sync.pending AS {view}; COMMENT ON VIEW sync.pending IS {}",
            sql::text(comment)
        ))?;
        state.set_meta(SHOWN, &view)
    }

    fn write(&self, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(|e| db("cannot note which cases were not read yet", e))
    }

    /// Which cases `u` `bootstrap.since` lets through: those that were modified since, as far as can be
    /// told.
    fn wanted(&self, since: Option<i64>) -> Result<String> {
        let Some(day) = since else { return Ok("true".to_owned()) };
        let reported = format!(
            "(u.modified_date IS NULL OR u.modified_date >= {day} \
              OR u.modified_date < {UNREADABLE_BELOW})"
        );
        let reach = State::new(self.conn).cases().feed_reach()?;
        let unreported = if reach.is_some_and(|reach| reach <= day) {
            "false".to_owned()
        } else {
            let older: Vec<String> = [Place::Cases, Place::Projects]
                .into_iter()
                .filter_map(|place| newest_dates_of(self.conn, place.table()).transpose())
                .map(|newest| Ok(format!("SELECT id FROM ({}) WHERE newest < {day}", newest?)))
                .collect::<Result<_>>()?;
            match older[..] {
                [] => "true".to_owned(),
                _ => format!("u.case_id NOT IN ({})", older.join(" UNION ALL ")),
            }
        };
        Ok(format!("CASE WHEN u.reported THEN {reported} ELSE {unreported} END"))
    }
}

/// What `sync.pending` shows, as a query.
fn pending(active: &[Arc<Resource>]) -> String {
    let noted = "SELECT table_name, scope, reason, since FROM sync.pending_scopes";
    let reason = sql::text(&Reason::New.to_string());
    let unread_scopes = by_condition(active).into_iter().map(|(condition, tables)| {
        let tables: Vec<String> =
            tables.into_iter().map(|table| format!("({})", sql::text(table))).collect();
        format!(
            " UNION ALL SELECT t.table_name, u.case_id::VARCHAR, {reason}, u.since \
             FROM sync.unread_cases u CROSS JOIN (VALUES {}) t(table_name) \
             WHERE u.wanted AND {condition}",
            tables.join(", ")
        )
    });
    [noted.to_owned()].into_iter().chain(unread_scopes).collect::<Vec<_>>().concat()
}

/// The unread cases, as a query: `case_id`, `since`, `reported`, `modified_date`.
fn unread(active: &[Arc<Resource>]) -> String {
    let searches: Vec<&str> = [Place::Cases, Place::Projects]
        .into_iter()
        .map(Place::table)
        // With another rule its row may be stale though no date moved.
        .filter(|table| active.iter().any(|r| r.table == *table && r.refresh == Refresh::Any))
        .collect();
    let searched = format!(
        "SELECT s.case_id, coalesce(s.known_at, s.moved_at, x.fetched_at) AS since, s.reported, \
           s.modified_date \
         FROM sync.seen s JOIN ({}) x \
           ON x.id = s.case_id AND x.table_name = s.place AND x.part = '' \
         WHERE s.dirty AND NOT s.removed AND s.state = '{}' \
           AND s.place IN ({places}) AND s.rereading IS NOT DISTINCT FROM s.any_stamp \
           AND x.status = '{}' AND x.complete AND x.again_at IS NULL \
           AND x.version = CASE WHEN s.reported THEN s.any_stamp ELSE {} END",
        exceptions(None),
        Standing::Found,
        FetchStatus::Current,
        sql::text(UNKNOWN),
        places = if searches.is_empty() { "NULL".to_owned() } else { sql::texts(searches) },
    );
    format!(
        "SELECT * FROM ({searched}) c \
         ANTI JOIN (SELECT case_id FROM sync.fetched_cases \
           UNION ALL SELECT id FROM sync.fetched_scopes WHERE part = '' \
             AND table_name IN (SELECT table_name FROM sync.refresh_rules) \
             AND table_name NOT IN ('cases', 'projects') \
           UNION ALL SELECT id FROM sync.failures \
             WHERE table_name IN (SELECT table_name FROM sync.refresh_rules)) k \
           ON k.case_id = c.case_id"
    )
}

/// Tables that are read per case, by the condition on `u.case_id` under which they are asked for.
fn by_condition(active: &[Arc<Resource>]) -> BTreeMap<String, Vec<&str>> {
    let mut tables: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for resource in active.iter().filter(|resource| resource.group == Group::Case) {
        tables.entry(condition_of(resource)).or_default().push(&resource.table);
    }
    tables
}

fn condition_of(resource: &Resource) -> String {
    let condition = resource.condition.as_ref().map(|condition| {
        format!(
            "u.case_id IN (SELECT {} FROM main.{} WHERE {}::VARCHAR IN ({}))",
            sql::ident(&condition.scope),
            sql::ident(&condition.table),
            sql::ident(&condition.column),
            sql::texts(condition.values.iter().map(String::as_str))
        )
    });
    let lookup = resource.lookup.as_ref().map(|lookup| {
        let known: Vec<String> = ["main", "history"]
            .into_iter()
            .flat_map(|schema| {
                lookup.tables.iter().map(move |(table, scope)| {
                    format!(
                        "SELECT {} FROM {schema}.{} WHERE {} IS NOT NULL",
                        sql::ident(scope),
                        sql::ident(table),
                        sql::ident(&lookup.column)
                    )
                })
            })
            .collect();
        format!("u.case_id IN ({})", known.join(" UNION ALL "))
    });
    let all: Vec<String> = condition.into_iter().chain(lookup).collect();
    if all.is_empty() { "true".to_owned() } else { all.join(" AND ") }
}
