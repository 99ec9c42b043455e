//! The reports (docs/architecture.md, "Reports"): SQL files, made into views and a macro of the store.
//!
//! All of them name `main.…`, `sync.…` and `report.…` with the schema and never the database, so that
//! they answer both where their file is opened and where it is attached under another name; and they
//! use nothing that needs an extension, so instants meet days only through `report.calendar`.

mod as_of;
mod described;

use std::borrow::{Borrow, Cow};
use std::collections::BTreeSet;

use duckdb::Connection;
use sha2::{Digest, Sha256};

use crate::catalog::{Catalog, Group, Resource};
use crate::config::HistoryTables;
use crate::error::{Error, Kind, Result};
use crate::sql::{self, db};
use crate::text::hex;

pub(crate) use described::describe;

/// Cases signed per month and office.
const SIGNED_CASES: &str = include_str!("signed_cases.sql");
/// The same between two instants.
const SIGNED_CASES_BETWEEN: &str = include_str!("signed_cases_between.sql");
/// Cases that were counted in a month and no longer are.
const SIGNED_CASES_LOST: &str = include_str!("signed_cases_lost.sql");
/// What a sale costs in all, per case.
const TOTAL_COST: &str = include_str!("total_cost.sql");
/// Which months of the journals are here.
const JOURNAL_COVERAGE: &str = include_str!("journal_coverage.sql");
/// The revenue journals against the platform's own sums.
const JOURNAL_RECONCILIATION: &str = include_str!("journal_reconciliation.sql");
/// What changed in closed months.
const JOURNAL_RESTATEMENTS: &str = include_str!("journal_restatements.sql");
/// What months of the journals were when they were closed.
const CLOSINGS: &str = include_str!("closings.sql");
/// What was closed, and what it is now.
const JOURNAL_STATEMENT: &str = include_str!("journal_statement.sql");
/// What the revenue journals come to.
const REVENUE_BY_MONTH: &str = include_str!("revenue_by_month.sql");
/// A journal as of an earlier instant.
const JOURNALS_AS_OF: &str = include_str!("journals_as_of.sql");
/// What each employee is due of a case's commission.
const COMMISSION: &str = include_str!("commission.sql");
/// How fresh each table is; see [`freshness_sql`].
const FRESHNESS: &str = include_str!("freshness.sql");
/// What a published copy shows.
const SNAPSHOT: &str = include_str!("snapshot.sql");

/// What the comments of the macros say of the instants that they take.
const WITH_OFFSET: &str =
    "Give the instant with an offset: text without one is read in the session's time zone.";

/// Everything in schema `report` that can be read like a table, and is published as Parquet.
pub(crate) const RELATIONS: [&str; 13] = [
    "calendar",
    "closings",
    "commission",
    "freshness",
    "journal_coverage",
    "journal_reconciliation",
    "journal_restatements",
    "journal_statement",
    "revenue_by_month",
    "signed_cases",
    "signed_cases_lost",
    "snapshot",
    "total_cost",
];

/// Creates the views and macros, in place of those of an earlier version.
///
/// The schemas `main`, `sync` and `report`, the tables of `resources` and `report.calendar` must be
/// there: DuckDB checks what a view names when it is created. A report on a table that the store does
/// not have is left out; a table that is only disabled is there, and its reports answer. So is a view that
/// reads the history of a table that keeps none; the macros that do refuse to answer.
///
/// # Errors
/// `Kind::Config` where a changed copy of a resource file lacks a column that a report reads; else
/// `Kind::Store` or `Kind::DiskFull`, naming the relation.
pub(crate) fn create_all<R: Borrow<Resource>>(
    conn: &Connection,
    resources: &[R],
    history: &HistoryTables,
) -> Result<()> {
    let freshness = freshness_sql(resources);
    let lacking = lacking_columns(&Catalog::load(None)?, resources);
    if !lacking.is_empty() {
        let text = format!("the resource files are wrong:\n  {}", lacking.join("\n  "));
        return Err(Error::new(Kind::Config, text));
    }
    let tables = names(
        conn,
        "SELECT table_name FROM duckdb_tables() \
         WHERE database_name = current_database() AND schema_name = 'main'",
    )?;
    for (name, sql) in all(&freshness) {
        let is_macro = sql.contains("MACRO report.");
        let lacking = tables_read("main", &sql).find(|table| !tables.contains(*table));
        let unkept = || tables_read("history", &sql).find(|table| !history.keeps(table));
        let why_not = match lacking {
            Some(table) => Some(format!("there is no table {table}")),
            None if is_macro => None,
            None => unkept().map(|table| format!("history.tables does not name {table}")),
        };
        let sql = match why_not {
            Some(why) => {
                tracing::debug!("report.{name} is left out: {why}");
                // One of an earlier version could not be read any more, or is not true any more.
                let kind = if is_macro { "MACRO TABLE" } else { "VIEW" };
                Cow::from(format!("DROP {kind} IF EXISTS report.{}", sql::ident(name)))
            }
            None => sql,
        };
        conn.execute_batch(&sql).map_err(|e| db(&format!("cannot create report.{name}"), e))?;
    }
    Ok(())
}

/// Those of [`RELATIONS`] that this store has.
///
/// # Errors
/// `Kind::Store`.
pub(crate) fn relations(conn: &Connection) -> Result<Vec<&'static str>> {
    let there = names(
        conn,
        "SELECT table_name FROM duckdb_tables() \
         WHERE database_name = current_database() AND schema_name = 'report' \
         UNION SELECT view_name FROM duckdb_views() \
         WHERE database_name = current_database() AND schema_name = 'report'",
    )?;
    Ok(RELATIONS.into_iter().filter(|name| there.contains(*name)).collect())
}

/// The tables of a schema that a report's SQL names. All reports name them with the schema and
/// without quotes, but for the generated ones, whose tables are there.
fn tables_read<'a>(schema: &str, sql: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
    let after = |word: &str| {
        let words = format!("{word} {schema}.");
        sql.split(&words).skip(1).collect::<Vec<_>>()
    };
    after("FROM").into_iter().chain(after("JOIN")).filter_map(|rest| {
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        Some(name).filter(|name| !name.is_empty())
    })
}

/// Built-in columns that `resources` lack and that a report on their table names.
fn lacking_columns<R: Borrow<Resource>>(built_in: &Catalog, resources: &[R]) -> Vec<String> {
    let mut lacking = Vec::new();
    for resource in resources.iter().map(Borrow::borrow) {
        let Some(original) = built_in.get(&resource.table) else { continue };
        let dropped = original.columns.iter().filter(|c| resource.column(&c.name).is_none());
        for column in dropped {
            let reads = |sql: &str| {
                let mut words = sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                tables_read("main", sql).any(|table| table == resource.table)
                    && words.any(|word| word == column.name)
            };
            if let Some((report, _)) = all("").into_iter().find(|(_, sql)| reads(sql)) {
                lacking.push(format!(
                    "{}.toml: column \"{}\" is missing: report.{report} reads it",
                    resource.table, column.name
                ));
            }
        }
    }
    lacking
}

fn names(conn: &Connection, sql: &str) -> Result<BTreeSet<String>> {
    let read = || -> duckdb::Result<BTreeSet<String>> {
        conn.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    read().map_err(|e| db("cannot read which tables there are", e))
}

/// Every view and macro, in an order in which each finds what it names.
fn all(freshness: &str) -> Vec<(&'static str, Cow<'_, str>)> {
    let written = [
        ("signed_cases", SIGNED_CASES),
        ("signed_cases_between", SIGNED_CASES_BETWEEN),
        ("signed_cases_lost", SIGNED_CASES_LOST),
        ("total_cost", TOTAL_COST),
        ("journal_coverage", JOURNAL_COVERAGE),
        ("journal_reconciliation", JOURNAL_RECONCILIATION),
        ("journal_restatements", JOURNAL_RESTATEMENTS),
        ("closings", CLOSINGS),
        ("journal_statement", JOURNAL_STATEMENT),
        ("revenue_by_month", REVENUE_BY_MONTH),
        ("commission", COMMISSION),
        ("freshness", freshness),
        ("snapshot", SNAPSHOT),
    ];
    let made = [
        ("journals_as_of", as_of::of_any_table(JOURNALS_AS_OF)),
        (
            "signed_cases_as_of",
            as_of::macro_of(
                "signed_cases",
                SIGNED_CASES,
                &format!("report.signed_cases as the mirror held it at an instant. {WITH_OFFSET}"),
            ),
        ),
        (
            "total_cost_as_of",
            as_of::macro_of(
                "total_cost",
                TOTAL_COST,
                &format!(
                    "report.total_cost as the mirror held it at an instant: what could not be read then \
                     was not known then. {WITH_OFFSET}"
                ),
            ),
        ),
    ];
    let written = written.into_iter().map(|(name, sql)| (name, Cow::from(sql)));
    written.chain(made.into_iter().map(|(name, sql)| (name, Cow::from(sql)))).collect()
}

/// A text that moves with the relations and with the tables that they read: while it stands, what
/// [`create_all`] made is what it would make.
pub(super) fn digest<R: Borrow<Resource>>(resources: &[R], history: &HistoryTables) -> String {
    let mut hasher = Sha256::new();
    let freshness = freshness_sql(resources);
    for (_, sql) in all(&freshness) {
        hasher.update(sql.as_bytes());
        for table in tables_read("history", &sql).filter(|table| !history.keeps(table)) {
            hasher.update(table);
        }
    }
    for resource in resources {
        hasher.update(resource.borrow().create_table("main", false));
    }
    hex(&hasher.finalize())
}

/// `report.freshness` with one row per table of `resources`, in their order.
fn freshness_sql<R: Borrow<Resource>>(resources: &[R]) -> String {
    let all: Vec<&Resource> = resources.iter().map(Borrow::borrow).collect();
    let tables = all.iter().enumerate().map(|(place, resource)| table_sql(place, resource, &all));
    let mut names = vec![sql::text("")];
    let none = format!("    SELECT {} AS table_name, 0 AS id WHERE false", names[0]);
    let (mut named, mut named_by_reading) = (vec![none.clone()], vec![none]);
    let (mut once, mut per_case) = (vec!["('', 0)".to_owned()], vec!["('')".to_owned()]);
    for resource in &all {
        let name = sql::text(&resource.table);
        match known_scopes(resource) {
            Some(Known::Rows(ids)) => {
                named.push(format!("    SELECT {name}, id FROM ({ids})"));
                names.push(name);
                continue;
            }
            Some(Known::RowsAndRead(ids)) => {
                named_by_reading.push(format!(
                    "    SELECT {name}, id FROM ({ids} UNION \
                     SELECT id FROM sync.read_scopes WHERE table_name = {name})"
                ));
                continue;
            }
            None => {}
        }
        match &resource.group {
            Group::Case => per_case.push(format!("({name})")),
            // Its months say so themselves.
            Group::Journal(_) => {}
            Group::Events => once.push(format!("({name}, 0)")),
            Group::List | Group::Child(_) | Group::Ids | Group::ForEach(_) => {
                once.push(format!("({name}, 1)"));
            }
        }
    }
    let united = |parts: Vec<String>| parts.join("\n    UNION ALL\n");
    FRESHNESS
        .replace("{tables}", &united(tables.collect()))
        .replace("{named}", &united(named))
        .replace("{named_by_reading}", &united(named_by_reading))
        .replace("{once}", &once.join(", "))
        .replace("{per_case}", &per_case.join(", "))
        .replace("{names}", &names.join(", "))
}

/// One row: where the table stands, the table, whose scopes its rows come with, what is in it.
fn table_sql(place: usize, resource: &Resource, all: &[&Resource]) -> String {
    format!(
        "    SELECT {place} AS place, {name} AS table_name, {read_with} AS read_with, count(*) AS rows \
         FROM main.{table}",
        name = sql::text(&resource.table),
        read_with = sql::text(&read_with(resource, all).table),
        table = sql::ident(&resource.table),
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

/// The scopes that there should be, as a query of one column `id` without duplicates, where it depends on rows of the
/// mirror: those can change after a scope was read.
enum Known {
    /// What the rows say.
    Rows(String),
    /// What the rows say, and what was read.
    RowsAndRead(String),
}

fn known_scopes(resource: &Resource) -> Option<Known> {
    let ids = |column: &str, table: &str| {
        let (column, table) = (sql::ident(column), sql::ident(table));
        format!("SELECT {column} AS id FROM main.{table} WHERE {column} IS NOT NULL")
    };
    match (&resource.group, &resource.condition) {
        (Group::Case, _) if resource.lookup.is_some() => {
            let given = resource.lookup.iter();
            let known = given.flat_map(|given| {
                given.tables.iter().map(|(table, scope)| {
                    format!(
                        "SELECT DISTINCT {} AS id FROM main.{} WHERE {} IS NOT NULL",
                        sql::ident(scope),
                        sql::ident(table),
                        sql::ident(&given.column)
                    )
                })
            });
            Some(Known::Rows(known.collect::<Vec<_>>().join(" UNION ")))
        }
        (Group::Case, Some(only)) => Some(Known::Rows(format!(
            "SELECT DISTINCT {} AS id FROM main.{} WHERE CAST({} AS VARCHAR) IN ({})",
            sql::ident(&only.scope),
            sql::ident(&only.table),
            sql::ident(&only.column),
            only.values.iter().map(|v| sql::text(v)).collect::<Vec<_>>().join(", ")
        ))),
        // A case is in one of the two searches; one that is in neither yet is asked of both.
        (Group::Ids, _) if resource.table == "cases" => Some(Known::Rows(
            "SELECT id FROM case_ids WHERE id NOT IN (SELECT id FROM main.projects)".to_owned(),
        )),
        (Group::Ids, _) if resource.table == "projects" => Some(Known::Rows(
            "SELECT id FROM case_ids WHERE id NOT IN (SELECT id FROM main.cases)".to_owned(),
        )),
        (Group::Ids, _) => Some(Known::RowsAndRead(ids(&resource.key[0], &resource.table))),
        // The list that names the others is scope 0.
        (Group::ForEach(each), _) if each.list.is_some() => {
            Some(Known::RowsAndRead("SELECT 0 AS id".to_owned()))
        }
        (Group::ForEach(each), _) => Some(Known::Rows(format!(
            "{} UNION {}",
            ids(&each.column, &each.table),
            ids(&each.param, &resource.table)
        ))),
        (Group::Case | Group::Journal(_) | Group::List | Group::Events | Group::Child(_), _) => {
            None
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
