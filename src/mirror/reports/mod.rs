//! The reports of contract section 5: SQL files, made into views and a macro of the store.
//!
//! All of them name `main.…`, `sync.…` and `report.…` with the schema and never the database, so that
//! they answer both where their file is opened and where it is attached under another name; and they
//! use nothing that needs an extension, so instants meet days only through `report.calendar`.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use duckdb::Connection;
use sha2::{Digest, Sha256};

use super::db;
use crate::catalog::{Group, Only, Resource};
use crate::error::Result;
use crate::quote;

/// Cases signed per month and office.
const SIGNED_CASES: &str = include_str!("signed_cases.sql");
/// The same between two instants.
const SIGNED_CASES_BETWEEN: &str = include_str!("signed_cases_between.sql");
/// What a sale costs in all, per case.
const TOTAL_COST: &str = include_str!("total_cost.sql");
/// Which months of the journals are here.
const JOURNAL_COVERAGE: &str = include_str!("journal_coverage.sql");
/// What changed in closed months.
const JOURNAL_RESTATEMENTS: &str = include_str!("journal_restatements.sql");
/// What the revenue journals come to.
const REVENUE_BY_MONTH: &str = include_str!("revenue_by_month.sql");
/// What each employee is due of a case's commission.
const COMMISSION: &str = include_str!("commission.sql");
/// How fresh each table is; see [`freshness_sql`].
const FRESHNESS: &str = include_str!("freshness.sql");
/// What a published copy shows.
const SNAPSHOT: &str = include_str!("snapshot.sql");

/// Everything in schema `report` that can be read like a table, and is published as Parquet.
pub const RELATIONS: [&str; 9] = [
    "calendar",
    "commission",
    "freshness",
    "journal_coverage",
    "journal_restatements",
    "revenue_by_month",
    "signed_cases",
    "snapshot",
    "total_cost",
];

/// Creates the views and macros, in place of those of an earlier version.
///
/// The schemas `main`, `sync` and `report`, the tables of `resources` and `report.calendar` must be
/// there: DuckDB checks what a view names when it is created. A report on a table that the store does
/// not have is left out; a table that is only disabled is there, and its reports answer.
///
/// # Errors
/// `Kind::Store` or `Kind::DiskFull`, naming the relation.
pub fn create_all<R: Borrow<Resource>>(conn: &Connection, resources: &[R]) -> Result<()> {
    let freshness = freshness_sql(resources);
    let tables = names(
        conn,
        "SELECT table_name FROM duckdb_tables() \
         WHERE database_name = current_database() AND schema_name = 'main'",
    )?;
    for (name, sql) in all(&freshness) {
        let lacking = tables_read(sql).find(|table| !tables.contains(*table));
        let sql = match lacking {
            Some(table) => {
                tracing::debug!("report.{name} is left out: there is no table {table}");
                // One of an earlier version could not be read any more.
                &format!("DROP VIEW IF EXISTS report.{}", quote::ident(name))
            }
            None => sql,
        };
        conn.execute_batch(sql).map_err(|e| db(&format!("cannot create report.{name}"), e))?;
    }
    Ok(())
}

/// Those of [`RELATIONS`] that this store has.
///
/// # Errors
/// `Kind::Store`.
pub fn relations(conn: &Connection) -> Result<Vec<&'static str>> {
    let there = names(
        conn,
        "SELECT table_name FROM duckdb_tables() \
         WHERE database_name = current_database() AND schema_name = 'report' \
         UNION SELECT view_name FROM duckdb_views() \
         WHERE database_name = current_database() AND schema_name = 'report'",
    )?;
    Ok(RELATIONS.into_iter().filter(|name| there.contains(*name)).collect())
}

/// The tables of schema `main` that a report's SQL names. All reports name them with the schema and
/// without quotes, but for the generated ones, whose tables are there.
fn tables_read(sql: &str) -> impl Iterator<Item = &str> {
    let after = |words: &'static str| sql.split(words).skip(1);
    after("FROM main.").chain(after("JOIN main.")).filter_map(|rest| {
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        Some(name).filter(|name| !name.is_empty())
    })
}

fn names(conn: &Connection, sql: &str) -> Result<BTreeSet<String>> {
    let read = || -> duckdb::Result<BTreeSet<String>> {
        conn.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    read().map_err(|e| db("cannot read which tables there are", e))
}

/// Every view and macro, in an order in which each finds what it names.
fn all(freshness: &str) -> [(&'static str, &str); 9] {
    [
        ("signed_cases", SIGNED_CASES),
        ("signed_cases_between", SIGNED_CASES_BETWEEN),
        ("total_cost", TOTAL_COST),
        ("journal_coverage", JOURNAL_COVERAGE),
        ("journal_restatements", JOURNAL_RESTATEMENTS),
        ("revenue_by_month", REVENUE_BY_MONTH),
        ("commission", COMMISSION),
        ("freshness", freshness),
        ("snapshot", SNAPSHOT),
    ]
}

/// A text that moves with the relations and with the tables that they read: while it stands, what
/// [`create_all`] made is what it would make.
pub(super) fn digest<R: Borrow<Resource>>(resources: &[R]) -> String {
    let mut hasher = Sha256::new();
    let freshness = freshness_sql(resources);
    for (_, sql) in all(&freshness) {
        hasher.update(sql);
    }
    for resource in resources {
        hasher.update(resource.borrow().create_table("main", false));
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `report.freshness` with one row per table of `resources`, in their order.
fn freshness_sql<R: Borrow<Resource>>(resources: &[R]) -> String {
    let all: Vec<&Resource> = resources.iter().map(Borrow::borrow).collect();
    let tables: Vec<String> = all.iter().map(|resource| table_sql(resource, &all)).collect();
    FRESHNESS.replace("{tables}", &tables.join("\n    UNION ALL\n"))
}

/// One row: the table, whose scopes its rows come with, what is in it, how many scopes there are.
fn table_sql(resource: &Resource, all: &[&Resource]) -> String {
    let source = read_with(resource, all);
    let table = quote::ident(&resource.table);
    format!(
        "    SELECT\n        {name} AS table_name,\n        {read_with} AS read_with,\n        \
         count(*) AS rows,\n        max(_synced_at) AS last_change,\n        \
         CAST({scopes} AS BIGINT) AS scopes_known\n    FROM main.{table}",
        name = quote::text(&resource.table),
        read_with = quote::text(&source.table),
        scopes = scopes_known(source),
    )
}

/// The resource whose answers carry the rows: a child's parent, else itself.
fn read_with<'a>(resource: &'a Resource, all: &[&'a Resource]) -> &'a Resource {
    match &resource.group {
        Group::Child(child) => {
            all.iter().find(|r| r.table == child.table).copied().unwrap_or(resource)
        }
        _ => resource,
    }
}

/// How many scopes there should be, as a scalar subquery over the store.
fn scopes_known(resource: &Resource) -> String {
    let table = quote::ident(&resource.table);
    match (&resource.group, &resource.only) {
        (Group::Case, _) if resource.given.is_some() => {
            let given = resource.given.iter();
            let known = given.flat_map(|given| {
                given.tables.iter().map(|(table, scope)| {
                    format!(
                        "SELECT {} FROM main.{} WHERE {} IS NOT NULL",
                        quote::ident(scope),
                        quote::ident(table),
                        quote::ident(&given.column)
                    )
                })
            });
            format!("(SELECT count(*) FROM ({}))", known.collect::<Vec<_>>().join(" UNION "))
        }
        (Group::Case, Some(Only { table, column, values, .. })) => format!(
            "(SELECT count(*) FROM main.{} WHERE {} IN ({}))",
            quote::ident(table),
            quote::ident(column),
            values.iter().map(|v| quote::text(v)).collect::<Vec<_>>().join(", ")
        ),
        (Group::Case, None) => "(SELECT count(*) FROM case_ids)".to_owned(),
        // A case is in one of the two searches; one that is in neither yet is asked of both.
        (Group::Ids, _) if resource.table == "cases" => {
            "(SELECT count(*) FROM case_ids WHERE id NOT IN (SELECT id FROM main.projects))"
                .to_owned()
        }
        (Group::Ids, _) if resource.table == "projects" => {
            "(SELECT count(*) FROM case_ids WHERE id NOT IN (SELECT id FROM main.cases))".to_owned()
        }
        (Group::Ids, _) => format!(
            "(SELECT count(*) FROM (SELECT {key} FROM main.{table} UNION SELECT id FROM \
             sync.fetched WHERE table_name = {name}))",
            key = quote::ident(&resource.key[0]),
            name = quote::text(&resource.table),
        ),
        (Group::Each(each), _) => format!(
            "(SELECT count(DISTINCT {}) FROM main.{})",
            quote::ident(&each.column),
            quote::ident(&each.table)
        ),
        (Group::Journal(_), _) => format!(
            "(SELECT count(*) FROM sync.journal_months WHERE table_name = {} AND wanted)",
            quote::text(&resource.table)
        ),
        (Group::List | Group::Child(_), _) => "1".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
