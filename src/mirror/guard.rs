//! What holds removals back: the guard over a table, and the doubt about a scope that loses everything
//! (docs/architecture.md, "Deletion").

use std::collections::HashMap;
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use super::load::Outcome;
use super::merge::stage_name;
use super::state::failures::{Failure, digest_of_held, fail};
use crate::catalog::Resource;
use crate::error::Result;
use crate::scope::{FailureKind, ScopeId};
use crate::sql::{self, db, instant, query, scalar_i64};
use crate::text::counted;

/// Rows of a scope from which on losing all of them is doubted.
const MANY_ROWS: i64 = 10;
/// Answers of so long count together.
const WINDOW: Duration = Duration::from_secs(3600);
/// What the guard holds of a scope is believed when equal answers have come for so long.
pub(super) const BELIEVED_AFTER: Duration = Duration::from_secs(6 * 3600);

/// How much may leave, and when a second answer confirms the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// `reconcile.max_removed`.
    pub(crate) max_removed: f64,
    /// `source.doubt`.
    pub(crate) doubt: Duration,
    pub(crate) now: Timestamp,
}

/// Whether the guard holds: more than `max` of the rows and more than 50 would leave, or all of 10 or
/// more.
pub(crate) fn guarded(leaving: u64, of: u64, max: f64) -> bool {
    let share = leaving as f64 > max * of as f64;
    (share && leaving > 50) || (leaving >= of && of >= 10)
}

/// What an answer without any row is noted as.
pub(super) const NOTHING: &str = "none";

/// Begins to collect what is held of the staged scopes, in `temp.kept_back`: per scope and table whether
/// the guard holds it or it is doubted, how many rows, and a digest of what the answer has instead.
pub(super) fn begin(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE OR REPLACE TEMP TABLE kept_back \
         (id BIGINT, by_guard BOOLEAN, held BIGINT, table_name VARCHAR, digest VARCHAR)",
    )
    .map_err(|e| db("cannot note what is held", e))
}

/// Takes out of `temp.gone(mid, scope)` what is not believed yet: scopes that would lose all of many
/// rows, and all of it when the guard holds. Returns how many rows stay because of it. The answer's
/// rows are in the resource's staging table.
pub(super) fn hold(
    conn: &Connection,
    resource: &Resource,
    limits: Limits,
    gone: u64,
) -> Result<u64> {
    let run = |sql: &str| {
        conn.execute_batch(sql)
            .map_err(|e| db(&format!("cannot hold rows of {}", resource.table), e))
    };
    let left = || -> Result<u64> {
        Ok(scalar_i64(conn, "SELECT count(*) FROM temp.gone")?.unsigned_abs())
    };
    let main = format!("main.{}", sql::ident(&resource.table));
    let table = sql::text(&resource.table);
    run(&stage_answers(resource))?;
    let newer = stage_leaving(conn, resource, limits.now)?;
    // What is held of a scope's parent rows holds their child rows too.
    run(&format!(
        "INSERT INTO temp.kept_back SELECT g.scope, k.by_guard, g.n, {table}, a.digest \
           FROM (SELECT scope, count(*) AS n FROM temp.gone GROUP BY scope) g \
           JOIN (SELECT id, bool_or(by_guard) AS by_guard FROM temp.kept_back GROUP BY id) k ON k.id = g.scope \
           JOIN temp.answers a ON a.scope = g.scope; \
         {TAKE_HELD}"
    ))?;
    if let Some(column) = resource.scope_column().map(sql::ident) {
        run(&format!(
            "INSERT INTO temp.kept_back SELECT g.scope, false, g.n, {table}, a.digest FROM \
               (SELECT scope, count(*) AS n FROM temp.gone GROUP BY scope) g \
               JOIN temp.leaving l ON l.scope = g.scope \
               JOIN temp.answers a ON a.scope = g.scope \
             WHERE (g.n >= {MANY_ROWS} \
                   AND g.n = (SELECT count(*) FROM {main} m WHERE m.{column} = g.scope) \
                 OR l.is_held AND l.n >= {MANY_ROWS} AND 2 * l.n > (SELECT count(*) FROM {main} m JOIN temp.held_scopes h \
                   ON h.id = m.{column} WHERE m.{column} = g.scope AND NOT ({NEWER}))) \
               AND g.scope NOT IN ({believed}); \
             {TAKE_HELD}",
            believed = confirmed(resource, limits.now - limits.doubt),
        ))?;
    }
    let leaving = left()?;
    if leaving == 0 {
        return Ok(gone);
    }
    let of_before = scalar_i64(
        conn,
        "SELECT coalesce(sum(n), 0)::BIGINT FROM temp.leaving \
         WHERE scope IN (SELECT scope FROM temp.gone)",
    )?
    .unsigned_abs();
    let rows = scalar_i64(conn, &format!("SELECT count(*) FROM {main}"))?.unsigned_abs();
    let before = removed_of_late(conn, &[&resource.table], limits.now)?;
    let guards = |leaving, of| guarded(leaving + before, of + before, limits.max_removed);
    if guards(leaving, rows) || guards(of_before, rows - newer) {
        // A list is one answer: no number of them makes up for what is missing in it.
        let believed = match resource.scope_column() {
            Some(_) => confirmed(resource, limits.now - BELIEVED_AFTER),
            None => "NULL".to_owned(),
        };
        run(&format!(
            "INSERT INTO temp.kept_back SELECT g.scope, true, count(*), {table}, max(a.digest) \
               FROM temp.gone g JOIN temp.answers a ON a.scope = g.scope \
               WHERE (g.scope IN ({believed})) IS NOT TRUE GROUP BY g.scope; \
             {TAKE_HELD}"
        ))?;
    }
    Ok(gone - left()?)
}

/// Takes what is held out of what is gone.
const TAKE_HELD: &str = "DELETE FROM temp.gone WHERE scope IN (SELECT id FROM temp.kept_back)";

/// Fills `temp.answers`: of the scopes that lose rows, a digest of the keys that their answers have.
fn stage_answers(resource: &Resource) -> String {
    let scopes = "SELECT DISTINCT scope FROM temp.gone";
    let Some(column) = resource.scope_column().map(sql::ident) else {
        return format!(
            "CREATE OR REPLACE TEMP TABLE answers AS SELECT scope, '{NOTHING}' AS digest FROM ({scopes})"
        );
    };
    format!(
        "CREATE OR REPLACE TEMP TABLE answers AS \
         SELECT g.scope, coalesce(s.digest, '{NOTHING}') AS digest FROM ({scopes}) g LEFT JOIN \
           (SELECT {column} AS scope, concat(count(*), '/', bit_xor(hash({keys}))) AS digest \
            FROM {stage} GROUP BY ALL) s ON s.scope = g.scope",
        keys = sql::idents(resource.key.iter().map(String::as_str)),
        stage = stage_name(resource),
    )
}

/// SQL that holds for a row `m` that came with, or was changed by, an answer of which something of the scope `h` is held.
/// Rows that a clock which was set back has dated ahead are not told by it.
const NEWER: &str = "m._synced_at >= h.first_at AND m._synced_at <= h.now";

/// Fills `temp.leaving(scope, n, is_held)`: how many rows leave of a scope, and whether something of it is held from an
/// earlier answer. The rows that this one brought or changed do not count: else what is held would soon be no more
/// than a part of its scope, or of its table. Returns how many rows those are.
fn stage_leaving(conn: &Connection, resource: &Resource, now: Timestamp) -> Result<u64> {
    let failed = |e| db(&format!("cannot tell what leaves {}", resource.table), e);
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE held_scopes AS \
           SELECT id, first_at, {} AS now FROM sync.failures WHERE table_name = {} AND part = '' \
             AND kind IN ({}) AND id IN (SELECT scope FROM temp.gone)",
        instant(now),
        sql::text(resource.read_with()),
        FailureKind::names(&FailureKind::GONE),
    ))
    .map_err(failed)?;
    if scalar_i64(conn, "SELECT count(*) FROM temp.held_scopes")? == 0 {
        let leaving = "CREATE OR REPLACE TEMP TABLE leaving AS \
                       SELECT scope, count(*) AS n, false AS is_held FROM temp.gone GROUP BY scope";
        return conn.execute_batch(leaving).map(|()| 0).map_err(failed);
    }
    let main = format!("main.{}", sql::ident(&resource.table));
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE leaving AS \
           SELECT g.scope, h.id IS NOT NULL AS is_held, \
             count(*) FILTER (WHERE h.id IS NULL OR NOT ({NEWER})) AS n \
           FROM temp.gone g JOIN {main} m ON m.rowid = g.mid \
           LEFT JOIN temp.held_scopes h ON h.id = g.scope GROUP BY ALL",
    ))
    .map_err(failed)?;
    let of_scope = match resource.scope_column() {
        Some(column) => format!("m.{} = h.id", sql::ident(column)),
        None => "true".to_owned(),
    };
    let newer = format!(
        "SELECT count(*) FROM {main} m JOIN temp.held_scopes h ON {of_scope} \
         WHERE {NEWER}"
    );
    Ok(scalar_i64(conn, &newer)?.unsigned_abs())
}

/// The scopes of `temp.answers` of which an equal answer was not believed at `before` or earlier, and
/// no other since.
fn confirmed(resource: &Resource, before: Timestamp) -> String {
    format!(
        "SELECT a.scope FROM temp.answers a JOIN sync.failures x ON x.id = a.scope \
         WHERE x.table_name = {} AND x.part = '' AND x.kind IN ({}) AND x.first_at <= {} \
           AND (x.digest = '{NOTHING}' AND a.digest = '{NOTHING}' \
             OR contains(x.digest, concat({}, '=', a.digest, ';')))",
        sql::text(resource.read_with()),
        FailureKind::names(&FailureKind::GONE),
        instant(before),
        sql::text(&resource.table),
    )
}

/// How many rows answers removed from these tables in the last hour.
pub(super) fn removed_of_late(conn: &Connection, tables: &[&str], now: Timestamp) -> Result<u64> {
    let rows = scalar_i64(
        conn,
        &format!(
            "SELECT coalesce(sum(removed), 0)::BIGINT FROM sync.removals \
             WHERE table_name IN ({}) AND removed_at > {} AND removed_at <= {}",
            sql::texts(tables.iter().copied()),
            instant(now - WINDOW),
            // What our clock noted while it was ahead is none of the last hour's.
            instant(now + WINDOW)
        ),
    )?;
    Ok(u64::try_from(rows).unwrap_or(0))
}

/// Keeps how many rows answers removed, for the guard over the answers to come.
pub(super) fn note_removed(
    conn: &Connection,
    table: &str,
    rows: u64,
    now: Timestamp,
) -> Result<()> {
    if rows == 0 {
        return Ok(());
    }
    conn.execute_batch(&format!(
        "DELETE FROM sync.removals WHERE removed_at <= {}; \
         INSERT INTO sync.removals VALUES ({}, {}, {rows})",
        instant(now - WINDOW),
        sql::text(table),
        instant(now),
    ))
    .map_err(|e| db("cannot note how many rows left", e))
}

/// After the scopes were noted as fetched: those of which something is held wait for their next answer.
/// `missing` are the values of which a scope's calls answered 404.
pub(super) fn note_held(
    conn: &Connection,
    table: &str,
    missing: &HashMap<i64, &[String]>,
    run_id: i64,
    limits: Limits,
    outcome: &mut Outcome,
) -> Result<()> {
    let held = query(
        conn,
        &format!(
            "SELECT id, bool_or(by_guard), sum(held)::BIGINT, bool_and(digest = '{NOTHING}'), \
               string_agg(concat(table_name, '=', digest, ';'), '' ORDER BY table_name) \
             FROM temp.kept_back GROUP BY id ORDER BY id"
        ),
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, bool>(1)?,
                row.get::<_, i64>(2)?,
                row.get::<_, bool>(3)?,
                row.get::<_, String>(4)?,
            ))
        },
    )?;
    for (id, by_guard, rows, is_nothing, digest) in held {
        let digest = match missing.get(&id) {
            Some(values) => digest_of_held(values, &digest),
            None if is_nothing => NOTHING.to_owned(),
            None => digest,
        };
        // What the guard holds waits for more than a second answer.
        let (kind, why, not_before) = if !by_guard {
            let why = format!(
                "an answer lacks {} that are mirrored: they stay until an equal one comes, \
                 source.doubt after the first",
                counted(rows, "row")
            );
            (FailureKind::Doubted, why, Some(limits.doubt))
        } else {
            let why = format!(
                "an answer lacks {} of the mirror; reconcile.max_removed holds what would go (if it is \
                 really gone, run `casemirror sync --allow-removals`)",
                counted(rows, "row")
            );
            (FailureKind::Held, why, None)
        };
        let scope = ScopeId { table: table.to_owned(), id, part: String::new() };
        let failure = Failure { kind, error: &why, digest: Some(&digest), not_before };
        fail(conn, run_id, limits.now, &scope, &failure)?;
        outcome.held.push((table.to_owned(), id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn the_guard_holds_a_large_share_and_a_whole_table_but_not_a_few_rows() {
        assert!(!guarded(50, 60, 0.02), "50 rows are not more than 50");
        assert!(guarded(51, 2_000, 0.02));
        assert!(!guarded(51, 2_550, 0.02), "exactly the share is not more than it");
        assert!(guarded(10, 10, 0.02));
        assert!(!guarded(9, 9, 0.02));
        assert!(guarded(60, 60, 1.0), "all rows are held whatever the share");
    }
}
