//! Finds the rows in which the lake and what is published differ.
//!
//! Compared are a row's identity and the columns that move with every change of it ([`Table::moving`]): only these are
//! read. In a large table the rows of each side fall into a fixed number of groups by their case, and each group has
//! one sum of its rows' hashes. That passes over both sides once and keeps nothing but the sums. Rows are held against
//! each other only in the groups whose sums differ, so that the memory, and the work beside the two passes, go with the
//! change. Two groups of different rows have one sum once in 2^63 times. Where the store has noted whose rows have
//! changed, these rows are looked for on both sides, and no sums are made.

use std::ops::RangeInclusive;

use super::engine::{Engine, LAKE, PUBLISHED};
use super::tables::Table;
use crate::error::Result;
use crate::sql;

/// Tables of one column, `_number`: the lake's rows that have to go, and the published ones that have to come.
pub(super) const GONE: &str = "temp.gone";
pub(super) const COME: &str = "temp.come";

/// Groups of a large table's rows: as many as there are values of a USMALLINT. 1,000 changed cases lie in one and a half
/// of a hundred at most.
const GROUPS: u32 = 1 << GROUP_BITS;
/// So many bits DuckDB is to take for places in an array instead of looking up groups by their hashes.
pub(super) const GROUP_BITS: u32 = 16;
/// From so many rows on sums are cheaper than holding all rows against each other.
pub(super) const LARGE: u64 = 10_000;

/// Of more scopes than these, sums over all rows are cheaper than looking for theirs.
const MOST_SCOPES: u64 = 50_000;
/// Scopes of which the store has noted that their rows have changed.
const CHANGED: &str = "temp.changed_scopes";

/// Which rows may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Among {
    All,
    /// Of these months, `yyyy-mm`.
    Months(Vec<String>),
    /// Of the scopes that changes with these numbers wrote ([`Table::noted_since`]).
    Changes(RangeInclusive<i64>),
}

/// How many rows differ; at least one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Differing {
    /// Rows in [`GONE`].
    pub(super) gone: u64,
    /// Rows in [`COME`].
    pub(super) come: u64,
}

/// Finds them. `None` where there are none.
///
/// # Errors
/// `Lake`.
pub(super) fn find(engine: &Engine, table: &Table, among: &Among) -> Result<Option<Differing>> {
    let Some(within) = narrowed(engine, table, among)? else { return Ok(None) };
    let compared = compared(table);
    let doing = format!("compare {} with the lake", table.path());
    for (database, side) in [(PUBLISHED, "temp.published_rows"), (LAKE, "temp.lake_rows")] {
        engine.run(
            &doing,
            &format!(
                "CREATE OR REPLACE TEMP TABLE {} AS SELECT t.rowid AS _number, {compared} FROM {} AS t {within}",
                side.trim_start_matches("temp."),
                table.within(database)
            ),
        )?;
    }
    let identity = sql::idents(table.identity.iter().map(String::as_str));
    engine.run(
        &doing,
        &format!(
            "CREATE OR REPLACE TEMP TABLE different AS \
             SELECT DISTINCT {identity} FROM (\
               SELECT {compared} FROM (\
                 SELECT {compared}, 1 AS _n FROM temp.published_rows \
                 UNION ALL SELECT {compared}, -1 AS _n FROM temp.lake_rows) \
               GROUP BY {compared} HAVING sum(_n) <> 0)"
        ),
    )?;
    let equals = if table.is_key { "=" } else { "IS NOT DISTINCT FROM" };
    let same: Vec<String> = table
        .identity
        .iter()
        .map(|column| format!("t.{0} {equals} d.{0}", sql::ident(column)))
        .collect();
    let count = |numbers: &str, side: &str| -> Result<u64> {
        engine.run(
            &doing,
            &format!(
                "CREATE OR REPLACE TEMP TABLE {} AS \
                 SELECT _number FROM {side} AS t SEMI JOIN temp.different AS d ON {}",
                numbers.trim_start_matches("temp."),
                same.join(" AND ")
            ),
        )?;
        rows(engine, numbers)
    };
    let differing = Differing {
        gone: count(GONE, "temp.lake_rows")?,
        come: count(COME, "temp.published_rows")?,
    };
    Ok((differing.gone + differing.come > 0).then_some(differing))
}

/// What both sides' rows are to be held against each other within: empty, or what follows `FROM ... AS t`. `None` where
/// none differ.
fn narrowed(engine: &Engine, table: &Table, among: &Among) -> Result<Option<String>> {
    let months = match among {
        Among::All => String::new(),
        Among::Months(months) => within_months(months),
        Among::Changes(changes) => match scopes(engine, table, changes)? {
            Some(within) => return Ok(Some(within)),
            None => String::new(),
        },
    };
    if table.size < LARGE {
        return Ok(Some(months));
    }
    let differ = groups(engine, table, &months)?;
    Ok(differ.then(|| {
        format!("SEMI JOIN temp.differing_groups AS g ON {} = g._group {months}", group_of(table))
    }))
}

/// Rows of the scopes that these changes wrote. `None` where there are so many that it does not help, or none is noted.
fn scopes(engine: &Engine, table: &Table, changes: &RangeInclusive<i64>) -> Result<Option<String>> {
    let Some(noted) = &table.noted else { return Ok(None) };
    engine.run(
        &format!("compare {} with the lake", table.path()),
        &format!(
            "CREATE OR REPLACE TEMP TABLE {} AS SELECT DISTINCT unnest(scopes) AS scope \
             FROM {PUBLISHED}.sync.changed_scopes WHERE table_name = {} AND counter BETWEEN {} AND {}",
            CHANGED.trim_start_matches("temp."),
            sql::text(&table.name),
            changes.start(),
            changes.end()
        ),
    )?;
    let helps = rows(engine, CHANGED)? <= MOST_SCOPES;
    let scope = sql::ident(&noted.scope);
    Ok(helps.then(|| format!("SEMI JOIN {CHANGED} AS g ON t.{scope} = g.scope")))
}

fn within_months(months: &[String]) -> String {
    let days = months.iter().map(|month| format!("DATE {}", sql::text(&format!("{month}-01"))));
    format!("WHERE journal_month IN ({})", days.collect::<Vec<_>>().join(", "))
}

/// Finds the groups whose sums differ; whether there are any.
fn groups(engine: &Engine, table: &Table, among: &str) -> Result<bool> {
    let (group, compared) = (group_of(table), compared(table));
    // Hashed once more: DuckDB joins the hashes of columns by XOR, which a sum would show through. A bit less makes it
    // a BIGINT, of which DuckDB adds up several times as many in the time.
    let sums = |database: &str, sign: &str| {
        format!(
            "SELECT _group, {sign}total AS total FROM (\
               SELECT {group} AS _group, sum((hash(hash({compared})) >> 1)::BIGINT) AS total \
               FROM {} AS t {among} GROUP BY _group)",
            table.within(database)
        )
    };
    engine.run(
        &format!("compare {} with the lake", table.path()),
        &format!(
            "CREATE OR REPLACE TEMP TABLE differing_groups AS \
             SELECT _group FROM ({} UNION ALL {}) GROUP BY _group HAVING sum(total) <> 0",
            sums(PUBLISHED, ""),
            sums(LAKE, "-")
        ),
    )?;
    Ok(rows(engine, "temp.differing_groups")? > 0)
}

fn rows(engine: &Engine, of: &str) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM {of}");
    Ok(engine.one::<i64>("count what differs", &sql)?.unsigned_abs())
}

/// The number of a row's group. A case's rows change together, so they are in one.
fn group_of(table: &Table) -> String {
    let case_id = table.identity.iter().filter(|column| *column == "case_id");
    let mut columns: Vec<&str> = case_id.map(String::as_str).collect();
    if columns.is_empty() {
        columns = table.identity.iter().map(String::as_str).collect();
    }
    format!("(hash({}) & {})::USMALLINT", sql::idents(columns), GROUPS - 1)
}

fn compared(table: &Table) -> String {
    sql::idents(table.identity.iter().chain(&table.moving).map(String::as_str))
}
