//! What was read of each scope, as plans and forecasts ask for it (`sync.fetched`).

use duckdb::Connection;
use std::collections::HashMap;

use jiff::Timestamp;

use super::state::fetched::{exceptions, rows_of};
use super::state::{State, ids, list};
use crate::catalog::{
    Column, Condition, Fallback, ForEach, Group, Lookup, Partial, Resource, Scalar,
};
use crate::error::Result;
use crate::scope::{AnswerDigest, FetchStatus, Fetched, Reason};
use crate::sql::{self, scalar_i64};

/// What a 404 for one of the values that a scope's calls go through says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Nothing is mirrored there.
    Nothing,
    /// Rows are, and another 404 came before.
    Confirmed,
    /// Rows are, and it is the first.
    Doubted,
}

/// Scopes of lists and rows that are to be read.
pub(crate) struct StaleScopes<'c> {
    pub(super) conn: &'c Connection,
}

impl StaleScopes<'_> {
    /// What was fetched of these scopes, by table and id.
    pub(crate) fn fetched(
        &self,
        ids: &[i64],
        contacts: bool,
    ) -> Result<HashMap<(String, i64), Fetched>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let which = if contacts { "=" } else { "<>" };
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT table_name, id, version, complete, again_at, epoch_us(fetched_at), status, \
                   digest \
                 FROM ({}) WHERE part = '' AND table_name {which} 'contacts'",
                rows_of(&list(ids))
            ),
            |row| {
                Ok((
                    (row.get(0)?, row.get(1)?),
                    Fetched {
                        version: row.get(2)?,
                        // A status that this version does not know says that it is to be read again.
                        status: FetchStatus::from_name(&row.get::<_, String>(6)?)
                            .unwrap_or(FetchStatus::Incomplete),
                        complete: row.get(3)?,
                        again_at: row.get(4)?,
                        fetched_at: row.get(5)?,
                        digest: row.get::<_, Option<u64>>(7)?.map(AnswerDigest::new),
                    },
                ))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// What `[condition]` looks at, for these cases; those without a row there are missing.
    pub(crate) fn condition_values(
        &self,
        condition: &Condition,
        cases: &[i64],
    ) -> Result<HashMap<i64, Option<String>>> {
        if cases.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT {scope}, {}::VARCHAR FROM main.{} WHERE {scope} IN ({})",
                sql::ident(&condition.column),
                sql::ident(&condition.table),
                list(cases),
                scope = sql::ident(&condition.scope),
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The path parameter that `[lookup]` looks for, for these cases, as far as it is known. A case
    /// that is hidden now is known by its earlier rows.
    pub(crate) fn lookup_values(
        &self,
        lookup: &Lookup,
        cases: &[i64],
    ) -> Result<HashMap<i64, String>> {
        if cases.is_empty() {
            return Ok(HashMap::new());
        }
        let places = ["main", "history"].into_iter().enumerate();
        let parts: Vec<String> = places
            .flat_map(|(rank, schema)| {
                lookup.tables.iter().map(move |(table, scope)| {
                    format!(
                        "SELECT {scope} AS id, {column}::VARCHAR AS value, {rank} AS rank \
                         FROM {schema}.{} WHERE {column} IS NOT NULL AND {scope} IN ({})",
                        sql::ident(table),
                        list(cases),
                        scope = sql::ident(scope),
                        column = sql::ident(&lookup.column),
                    )
                })
            })
            .collect();
        let parts = parts.join(" UNION ALL ");
        let rows = sql::query(
            self.conn,
            &format!("SELECT id, arg_min(value, rank) FROM ({parts}) GROUP BY id"),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The scopes of a table that is read per row of another: the ids there, and those of which rows
    /// are mirrored still, so that what hangs on a row that left is asked for once more.
    pub(crate) fn each_ids(&self, resource: &Resource, for_each: &ForEach) -> Result<Vec<i64>> {
        ids(self.conn, &format!("{} ORDER BY id", each_scopes(resource, for_each)))
    }

    /// Those of them that are to be read though no schedule is due: never read, asked for again, or
    /// failed and no longer waiting.
    pub(crate) fn stale_each_ids(
        &self,
        resource: &Resource,
        for_each: &ForEach,
    ) -> Result<Vec<i64>> {
        let now = Timestamp::now().as_microsecond();
        let stale = stale_each(resource, for_each);
        let stale = format!("SELECT id FROM ({stale}) WHERE coalesce(next_at, 0) <= {now}");
        ids(self.conn, &format!("{stale} ORDER BY id"))
    }

    /// Those of them that are stale, waiting ones too: id, why, and whether it was never read.
    pub(crate) fn why_each_is_stale(
        &self,
        resource: &Resource,
        for_each: &ForEach,
    ) -> Result<Vec<(i64, String, bool)>> {
        let stale = stale_each(resource, for_each);
        sql::query(self.conn, &format!("SELECT id, why, never FROM ({stale}) ORDER BY id"), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
    }

    /// Whether a table ever got another answer than 404.
    pub(crate) fn has_answered(&self, table: &str) -> Result<bool> {
        let table = sql::text(table);
        let sql =
            format!("SELECT count(*) FROM sync.resources WHERE table_name = {table} AND answered");
        Ok(scalar_i64(self.conn, &sql)? > 0)
    }

    /// Rows of another table as records of this one, as JSON text (`[fallback]` of the resource file):
    /// one for each key. Where the other table says several things of it, the first in order counts.
    pub(crate) fn records_of(
        &self,
        resource: &Resource,
        instead: &Fallback,
    ) -> Result<Vec<String>> {
        let columns: Vec<(&Column, String)> = instead
            .columns
            .iter()
            .filter_map(|(name, from)| Some((resource.column(name)?, sql::ident(from))))
            .collect();
        let list = |only_keys: bool| {
            let wanted =
                columns.iter().filter(|(c, _)| !only_keys || resource.key.contains(&c.name));
            wanted.map(|(_, from)| from.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (all, keys) = (list(false), list(true));
        let sql = format!(
            "SELECT DISTINCT ON ({keys}) {} FROM main.{} ORDER BY {keys}, {all}",
            columns
                .iter()
                .map(|(_, from)| format!("{from}::VARCHAR"))
                .collect::<Vec<_>>()
                .join(", "),
            sql::ident(&instead.table)
        );
        sql::query(self.conn, &sql, |row| {
            let mut record = serde_json::Map::new();
            for (i, (column, _)) in columns.iter().enumerate() {
                let text: Option<String> = row.get(i)?;
                let value = match text {
                    None => serde_json::Value::Null,
                    Some(text) if column.kind.scalar == Scalar::Int => {
                        text.parse::<i64>().map_or(serde_json::Value::Null, Into::into)
                    }
                    Some(text) => text.into(),
                };
                if let Some(field) = column.path.first() {
                    record.insert(field.clone(), value);
                }
            }
            Ok(serde_json::Value::from(record).to_string())
        })
    }

    /// Rows that are mirrored of a scope.
    pub(crate) fn rows_of_scope(&self, resource: &Resource, id: i64) -> Result<i64> {
        self.rows_where(resource, id, "")
    }

    /// Whether rows of a scope are mirrored that only a further permission shows.
    pub(crate) fn has_part(&self, resource: &Resource, id: i64, part: &Partial) -> Result<bool> {
        let column = sql::ident(&part.column);
        let values = sql::texts(part.values.iter().map(String::as_str));
        Ok(self.rows_where(resource, id, &format!("AND {column} IN ({values})"))? > 0)
    }

    /// What a 404 for one of the values that a scope's calls go through says
    /// (docs/architecture.md, "Not allowed, not there"). Another one confirms it that came at `before` or earlier.
    pub(crate) fn lack(
        &self,
        resource: &Resource,
        id: i64,
        value: &str,
        before: Timestamp,
    ) -> Result<Lack> {
        let values = resource.read.as_ref().and_then(|read| read.values.as_ref());
        let of_value = values.map_or(String::new(), |(column, _)| {
            format!("AND {} = {}", sql::ident(column), sql::text(value))
        });
        if self.rows_where(resource, id, &of_value)? == 0 {
            return Ok(Lack::Nothing);
        }
        let failures = State::new(self.conn).failures();
        let is_confirmed = failures.is_gone_since(&resource.table, id, Some(value), before)?;
        Ok(if is_confirmed { Lack::Confirmed } else { Lack::Doubted })
    }

    /// Rows of a scope for which `which` holds (`AND ...`).
    fn rows_where(&self, resource: &Resource, id: i64, which: &str) -> Result<i64> {
        let scope = resource.scope_column().map(sql::ident);
        let of_scope = scope.map_or("true".to_owned(), |column| format!("{column} = {id}"));
        scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM main.{} WHERE {of_scope} {which}",
                sql::ident(&resource.table)
            ),
        )
    }

    /// How many scopes a table has, as far as is known.
    pub(crate) fn scopes(&self, resource: &Resource) -> Result<u64> {
        let count = match &resource.group {
            Group::Case if resource.condition.is_some() || resource.lookup.is_some() => {
                scalar_i64(self.conn, &scopes_that_are_asked(resource))?
            }
            Group::Case | Group::Ids => scalar_i64(
                self.conn,
                "SELECT count(*) FROM sync.seen WHERE NOT removed AND place IS NOT NULL",
            )?,
            Group::ForEach(for_each) => self.each_ids(resource, for_each)?.len() as i64,
            Group::Events => 0,
            Group::List | Group::Child(_) | Group::Journal(_) => 1,
        };
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// The answers that are mirrored of a table that is read as lists, by scope: those that need not be
    /// decoded again.
    pub(crate) fn mirrored_answers(&self, table: &str) -> Result<HashMap<i64, AnswerDigest>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT id, digest FROM ({}) WHERE table_name = {} AND status = '{}' \
                   AND digest IS NOT NULL",
                exceptions(None),
                sql::text(table),
                FetchStatus::Current
            ),
            |row| Ok((row.get(0)?, AnswerDigest::new(row.get(1)?))),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Whether a list has to be read though its schedule is not due: it was never read, was asked
    /// for, or failed and its backoff is over.
    pub(crate) fn list_is_stale(&self, table: &str) -> Result<bool> {
        let list = self.list_state(table)?;
        if list.waits_until.is_some_and(|us| us > Timestamp::now().as_microsecond()) {
            return Ok(false);
        }
        Ok(list.error.is_some() || list.hinted || list.status != Some(FetchStatus::Current))
    }

    /// Why a list is stale, and whether it was never read.
    pub(crate) fn why_list_is_stale(&self, table: &str) -> Result<Option<(String, bool)>> {
        let list = self.list_state(table)?;
        let why = list.error.or(match list.status {
            None => Some("never fetched".to_owned()),
            Some(FetchStatus::Current) => list.hinted.then(|| Reason::Hinted.to_string()),
            Some(status) => Some(status.to_string()),
        });
        Ok(why.map(|why| (why, !list.complete)))
    }

    fn list_state(&self, table: &str) -> Result<ListState> {
        let of_table = format!("WHERE table_name = {}", sql::text(table));
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT x.error, x.waits_until, f.status, f.complete, h.hinted FROM \
                   (SELECT max(error) AS error, epoch_us(max(next_at)) AS waits_until \
                    FROM sync.failures {of_table}) x, \
                   (SELECT coalesce(max(status) FILTER (status <> 'current'), max(status)) AS status, \
                      coalesce(bool_or(complete), false) AS complete FROM ({}) {of_table}) f, \
                   (SELECT count(*) > 0 AS hinted FROM sync.hints {of_table} AND id = 0) h",
                exceptions(None)
            ),
            |row| {
                Ok(ListState {
                    error: row.get(0)?,
                    waits_until: row.get(1)?,
                    status: row.get::<_, Option<String>>(2)?.map(|name| {
                        FetchStatus::from_name(&name).unwrap_or(FetchStatus::Incomplete)
                    }),
                    complete: row.get(3)?,
                    hinted: row.get(4)?,
                })
            },
        )?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }

    /// Rows of a mirrored table.
    pub(crate) fn count_rows(&self, table: &str) -> Result<u64> {
        let sql = format!("SELECT count(*) FROM main.{}", sql::ident(table));
        Ok(u64::try_from(scalar_i64(self.conn, &sql)?).unwrap_or(0))
    }
}

/// How many cases are asked for a table that not all are asked for, as a query.
fn scopes_that_are_asked(resource: &Resource) -> String {
    let ident = |name: &String| sql::ident(name);
    let of_condition = resource.condition.as_ref().map(|condition| {
        format!(
            "SELECT {} AS id FROM main.{} WHERE {} IN ({})",
            ident(&condition.scope),
            ident(&condition.table),
            ident(&condition.column),
            sql::texts(condition.values.iter().map(String::as_str))
        )
    });
    let of_lookup = resource.lookup.as_ref().map(|lookup| {
        let tables = lookup.tables.iter().map(|(table, scope)| {
            let column = ident(&lookup.column);
            let (scope, table) = (ident(scope), ident(table));
            format!("SELECT {scope} AS id FROM main.{table} WHERE {column} IS NOT NULL")
        });
        tables.collect::<Vec<_>>().join(" UNION ALL ")
    });
    let parts: Vec<String> = of_condition.into_iter().chain(of_lookup).collect();
    let sets: Vec<String> =
        parts.iter().map(|part| format!("SELECT DISTINCT id FROM ({part})")).collect();
    format!("SELECT count(*) FROM ({})", sets.join(" INTERSECT "))
}

/// The ids of a table that is read per row of another, as a query of one column `id`.
fn each_scopes(resource: &Resource, for_each: &ForEach) -> String {
    let ids = |column: &str, table: &str| {
        let (column, table) = (sql::ident(column), sql::ident(table));
        format!("SELECT {column} AS id FROM main.{table} WHERE {column} IS NOT NULL")
    };
    if for_each.list.is_some() {
        // Scope 0 is the list that names the others; those once named stay. An answer may carry
        // records with other ids than the one it was asked by, which the list never named.
        let table = sql::text(&resource.table);
        let named = exceptions(None);
        return format!("SELECT id FROM ({named}) WHERE table_name = {table} UNION SELECT 0");
    }
    format!(
        "{} UNION {}",
        ids(&for_each.column, &for_each.table),
        ids(&for_each.param, &resource.table)
    )
}

/// Its stale scopes: `id`, `why`, `never`, and `next_at` of those that wait, in microseconds.
fn stale_each(resource: &Resource, for_each: &ForEach) -> String {
    let of_table = format!("table_name = {} AND part = ''", sql::text(&resource.table));
    format!(
        "SELECT s.id, coalesce(x.error, nullif(f.status, 'current'), \
             CASE WHEN f.id IS NOT NULL THEN {hinted} END, 'never fetched') AS why, \
           NOT coalesce(f.complete, false) AS never, epoch_us(x.next_at) AS next_at \
         FROM ({}) s \
         LEFT JOIN (SELECT id, status, complete FROM ({}) WHERE {of_table}) f ON f.id = s.id \
         LEFT JOIN (SELECT id, error, next_at FROM sync.failures WHERE {of_table}) x ON x.id = s.id \
         LEFT JOIN (SELECT id FROM sync.hints WHERE table_name = {table}) h ON h.id = s.id \
         WHERE f.id IS NULL OR f.status <> 'current' OR x.id IS NOT NULL OR h.id IS NOT NULL",
        each_scopes(resource, for_each),
        exceptions(None),
        hinted = sql::text(&Reason::Hinted.to_string()),
        table = sql::text(&resource.table)
    )
}

/// What the store says of all scopes of a list.
#[derive(Debug, Default)]
struct ListState {
    /// Of those that failed.
    error: Option<String>,
    /// Until when those wait, in microseconds of our clock.
    waits_until: Option<i64>,
    /// `None` where none was read; of several the first that is not current.
    status: Option<FetchStatus>,
    /// One was read completely.
    complete: bool,
    /// A webhook named it.
    hinted: bool,
}
