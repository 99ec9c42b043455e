//! Bringing a store that an earlier version made up to this version's state tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::changes::count_changes;
use super::definition::definition;
use super::lines::{month_of, same_month};
use super::schema::CALENDAR_COMMENTS;
use super::state::State;
use super::state::fetched;
use super::undescribed;
use crate::catalog::{Catalog, Group, JOURNAL_COLUMNS, LINE_ID, LINE_NUMBER, Resource};
use crate::config::Config;
use crate::error::Result;
use crate::scope::{DueReason, FailureKind, FetchStatus, TableStatus};
use crate::sql::{self, db, instant, scalar_i64};

/// From the first format: what was fetched was one row per table and scope, whose `stamp` was at once
/// the version and, in words, the status. Columns that were added within that format are made first.
pub(super) fn from_first(conn: &Connection) -> Result<()> {
    let failed = |e| db("cannot bring the store's state up to this version", e);
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS sync.removals \
           (table_name VARCHAR, removed_at TIMESTAMPTZ, removed BIGINT); \
         ALTER TABLE sync.seen_contacts ADD COLUMN IF NOT EXISTS moved_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS wanted BOOLEAN DEFAULT true; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_digest VARCHAR; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_payment DECIMAL(38,2); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_change DECIMAL(38,2); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS doubted_price DECIMAL(38,2); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS not_found_at TIMESTAMPTZ; \
         ALTER TABLE sync.failures ADD COLUMN IF NOT EXISTS digest VARCHAR; \
         ALTER TABLE sync.resources ADD COLUMN IF NOT EXISTS read_with VARCHAR; \
         ALTER TABLE sync.resources ADD COLUMN IF NOT EXISTS because_of VARCHAR; \
         ALTER TABLE sync.columns ADD COLUMN IF NOT EXISTS class VARCHAR",
    )
    .map_err(failed)?;
    fetched::create(conn)?;
    let words = sql::texts(FetchStatus::stale_names());
    conn.execute_batch(&format!(
        "INSERT INTO sync.fetched_scopes BY NAME \
           SELECT table_name, id, part, CASE WHEN stamp NOT IN ({words}) THEN stamp END AS version, \
             CASE WHEN stamp NOT IN ({words}) THEN 'current' ELSE coalesce(stamp, 'moved') END \
               AS status, \
             sent_at, fetched_at, definition, complete, again_at, 0 AS mark FROM sync.fetched; \
         DROP TABLE sync.fetched"
    ))
    .map_err(failed)?;
    fetched::create_view(conn)
}

/// From the second format: lines of journals had no name but the place where they stood, and nothing was
/// kept of journals that leave the list of the offices, nor of what verifications found.
pub(super) fn from_second(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<()> {
    conn.execute_batch(
        "ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS last_line_id BIGINT; \
         ALTER TABLE sync.restatements ADD COLUMN IF NOT EXISTS line_id BIGINT; \
         ALTER TABLE sync.verifications ADD COLUMN IF NOT EXISTS subject VARCHAR; \
         ALTER TABLE sync.verifications ADD COLUMN IF NOT EXISTS standing BOOLEAN; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS verified_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS lines_digest VARCHAR; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS larger_at TIMESTAMPTZ; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS larger_failures BIGINT; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS off_rounds BIGINT; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS off_compared VARCHAR; \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS no_control_at TIMESTAMPTZ; \
         CREATE TABLE IF NOT EXISTS sync.closings \
           (journal VARCHAR, journal_level VARCHAR, journal_id BIGINT, journal_month DATE, \
            closed_at TIMESTAMPTZ, closed_by VARCHAR, lines BIGINT, payment DECIMAL(38,2), \
            sha256 VARCHAR, reopened_at TIMESTAMPTZ, forced_over VARCHAR); \
         CREATE TABLE IF NOT EXISTS sync.journal_scopes \
           (journal_level VARCHAR, journal_id BIGINT, name VARCHAR, not_found_at TIMESTAMPTZ, \
            gone_at TIMESTAMPTZ)",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))?;
    let known: Vec<String> = sql::query(
        conn,
        &format!(
            "SELECT table_name FROM sync.resources WHERE table_name IN \
               (SELECT table_name FROM sync.columns GROUP BY ALL \
                HAVING bool_or(column_name = '{LINE_NUMBER}') \
                  AND NOT bool_or(column_name = '{LINE_ID}'))"
        ),
        |row| row.get(0),
    )?;
    let has_lines = |r: &&Arc<Resource>| r.has_line_ids() && known.contains(&r.table);
    for resource in catalog.resources().iter().filter(has_lines) {
        name_rows(conn, config, resource)?;
    }
    for resource in catalog.resources().iter().filter(has_lines) {
        let Group::Journal(journal) = &resource.group else { continue };
        let Some(line_key) = &journal.line_key else { continue };
        let notes = catalog.resources().iter().filter(has_lines).find(
            |notes| matches!(&notes.group, Group::Child(child) if child.table == resource.table),
        );
        name_history(conn, resource, line_key, notes.map(AsRef::as_ref))?;
    }
    Ok(())
}

/// From the third format: nothing was kept by which an answer is known again.
pub(super) fn from_third(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS answer_digest UBIGINT; \
         ALTER TABLE sync.fetched_scopes ADD COLUMN IF NOT EXISTS digest UBIGINT; \
         ALTER TABLE sync.fetched_cases ADD COLUMN IF NOT EXISTS digests UBIGINT[]",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the fourth format: of cases that were not read yet each scope was noted as pending.
pub(super) fn from_fourth(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "ALTER TABLE sync.seen ADD COLUMN IF NOT EXISTS known_at TIMESTAMPTZ; \
         CREATE TABLE sync.pending_scopes AS \
           SELECT table_name, scope, reason, since FROM sync.pending; \
         DROP TABLE sync.pending; \
         CREATE TABLE sync.unread_cases (case_id BIGINT, since TIMESTAMPTZ, wanted BOOLEAN)",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))?;
    State::new(conn).unread().show(&[])
}

/// From the fifth format: how fresh a table is was found out by reading all its rows.
pub(super) fn from_fifth(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE sync.freshness \
           (table_name VARCHAR, last_change TIMESTAMPTZ, last_checked TIMESTAMPTZ)",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the sixth format: nobody could be forgotten.
pub(super) fn from_sixth(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE sync.forgotten \
           (kind VARCHAR, words BIGINT, first_word UBIGINT, hash UBIGINT, forgotten_at TIMESTAMPTZ)",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the seventh format: nothing came but from the feeds.
pub(super) fn from_seventh(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE sync.hints \
           (table_name VARCHAR, id BIGINT, sequence BIGINT, hinted_at TIMESTAMPTZ)",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the twelfth format: it was not noted whether a month was read with the annotations of its lines.
pub(super) fn from_twelfth(conn: &Connection) -> Result<()> {
    conn.execute_batch("ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS annotated BOOLEAN")
        .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// Of what was noted then, whether annotations are read now says it best. After the tables are altered.
pub(super) fn note_annotated(conn: &Connection) -> Result<()> {
    conn.execute_batch(&format!(
        "UPDATE sync.journal_months m SET annotated = false WHERE m.table_name IN \
           (SELECT read_with FROM sync.resources WHERE table_name <> read_with AND status = '{}')",
        TableStatus::Disabled.name()
    ))
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the eleventh format: it was not noted what was read for the first time, nor the statuses that tables had.
pub(super) fn from_eleventh(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE sync.first_reads (table_name VARCHAR, read_at TIMESTAMPTZ, ids BIGINT[]); \
         CREATE TABLE sync.earlier_statuses \
           (table_name VARCHAR, status VARCHAR, since TIMESTAMPTZ, until TIMESTAMPTZ); \
         ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS incomplete_at TIMESTAMPTZ",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// Up to the eleventh format it was not kept of a month that lines of an incomplete reading stand in it, but by what else
/// is to be done about it, and that its answer is not known again. After the tables are altered: DuckDB alters none
/// that was written to.
pub(super) fn note_incomplete(conn: &Connection, now: Timestamp) -> Result<()> {
    conn.execute_batch(&format!(
        "UPDATE sync.journal_months m SET incomplete_at = {} WHERE m.due = '{}' \
           OR m.due IS NOT NULL AND m.complete AND m.answer_digest IS NULL AND m.lines_digest IS NULL \
           OR EXISTS \
           (SELECT 1 FROM sync.failures f WHERE f.table_name = m.table_name AND f.id = m.journal_id \
              AND f.part = m.journal_level || '/' || strftime(m.journal_month, '%Y-%m') \
              AND f.kind = '{}')",
        instant(now),
        DueReason::Incomplete,
        FailureKind::Incomplete
    ))
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the tenth format: it was not noted whose rows a change wrote.
pub(super) fn from_tenth(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE sync.changed_scopes \
           (table_name VARCHAR, counter BIGINT, change UUID, scopes BIGINT[])",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the ninth format: it was not kept since when history answers, nor when lines left with their level, and the
/// calendar did not say what its columns are.
pub(super) fn from_ninth(conn: &Connection) -> Result<()> {
    let added = "ALTER TABLE sync.journal_months ADD COLUMN IF NOT EXISTS left_at TIMESTAMPTZ; \
                 ALTER TABLE sync.resources ADD COLUMN IF NOT EXISTS keeps_history BOOLEAN; \
                 ALTER TABLE sync.resources ADD COLUMN IF NOT EXISTS history_since TIMESTAMPTZ; ";
    conn.execute_batch(&format!("{added}{CALENDAR_COMMENTS}"))
        .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// From the eighth format: nothing was kept of what was fetched of a case that left.
pub(super) fn from_eighth(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "CREATE TABLE sync.left_scopes (table_name VARCHAR, id BIGINT, left_at TIMESTAMPTZ); \
         ALTER TABLE sync.failures ADD COLUMN IF NOT EXISTS last_at TIMESTAMPTZ",
    )
    .map_err(|e| db("cannot bring the store's state up to this version", e))
}

/// Up to the eighth format a row that several answers brought at once was there twice, and so were its versions: of those
/// with one key the last stays. After the tables have this catalog's columns: DuckDB alters none that was written to.
pub(super) fn remove_doubled(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let mut changed = BTreeSet::new();
    for resource in catalog.resources() {
        if !matches!(resource.group, Group::ForEach(_)) || !resource.records_name_their_scope() {
            continue;
        }
        let key = sql::idents(resource.key.iter().map(String::as_str));
        let table = sql::ident(&resource.table);
        for (rows, one) in [
            (format!("main.{table}"), key.clone()),
            (format!("history.{table}"), format!("{key}, _valid_from, _valid_to")),
        ] {
            let removed = conn
                .execute(
                    &format!(
                        "DELETE FROM {rows} WHERE rowid IN (SELECT rowid FROM {rows} \
                           QUALIFY row_number() OVER (PARTITION BY {one} ORDER BY rowid DESC) > 1)"
                    ),
                    [],
                )
                .map_err(|e| db(&format!("cannot remove doubled rows of {}", resource.table), e))?;
            if removed > 0 {
                changed.insert(resource.table.clone());
            }
        }
    }
    changed.iter().try_for_each(|table| count_changes(conn, table, [""]))
}

/// Gives a journal's table the column of the names, where each row has its line's place. Nothing is
/// stale because of it: names are not the source's.
fn name_rows(conn: &Connection, config: &Config, resource: &Resource) -> Result<()> {
    let failed = |e| db(&format!("cannot name the lines of {}", resource.table), e);
    let Some(column) = resource.column(LINE_ID) else { return Ok(()) };
    for schema in ["main", "history"] {
        let table = format!("{schema}.{}", sql::ident(&resource.table));
        conn.execute_batch(&format!(
            "ALTER TABLE {table} ADD COLUMN {LINE_ID} BIGINT; \
             ALTER TABLE {table} ALTER {LINE_ID} SET DATA TYPE BIGINT USING {LINE_NUMBER}"
        ))
        .map_err(failed)?;
    }
    conn.execute(
        "INSERT INTO sync.columns BY NAME SELECT table_name, ? AS column_name, ? AS definition, \
           min(since) AS since, ? AS class FROM sync.columns WHERE table_name = ? GROUP BY table_name",
        params![
            LINE_ID,
            definition(config, column),
            undescribed::class_name(column),
            resource.table
        ],
    )
    .map(drop)
    .map_err(failed)
}

/// Gives the earlier versions of a journal's lines their names, as far as it is known which lines they
/// were: a version ended when the next one of its line was written, and both have one key. A line that
/// left has a name of its own, so that no other line is taken for it.
///
/// Of the annotations' earlier versions the line's place at their end is known. They take the name of the
/// line whose version ended there with them, and else that of the line that stands there now.
fn name_history(
    conn: &Connection,
    resource: &Resource,
    line_key: &str,
    notes: Option<&Resource>,
) -> Result<()> {
    let table = sql::ident(&resource.table);
    let failed = |e| db(&format!("cannot name the earlier lines of {}", resource.table), e);
    if scalar_i64(conn, &format!("SELECT count(*) FROM history.{table}"))? > 0 {
        conn.execute_batch(&format!(
            "CREATE OR REPLACE TEMP TABLE line_versions AS \
               SELECT {month_of_m}, m.rowid AS line, false AS is_past, m._synced_at AS valid_from, \
                 NULL::TIMESTAMPTZ AS valid_to, '' AS change, m.{LINE_NUMBER} AS number, \
                 coalesce(m.{key}::VARCHAR, '') AS own_key FROM main.{table} m \
               UNION ALL SELECT {month_of_m}, m.rowid, true, m._valid_from, m._valid_to, m._change, \
                 m.{LINE_NUMBER}, coalesce(m.{key}::VARCHAR, '') FROM history.{table} m; \
             CREATE OR REPLACE TEMP TABLE line_links AS \
               SELECT b.line, a.line AS next, a.is_past AS next_is_past \
               FROM (SELECT *, row_number() OVER (PARTITION BY {month}, valid_to, own_key \
                       ORDER BY number) AS nth FROM temp.line_versions WHERE change = 'updated') b \
               JOIN (SELECT *, row_number() OVER (PARTITION BY {month}, valid_from, own_key \
                       ORDER BY number) AS nth FROM temp.line_versions) a \
                 ON {same} AND a.valid_from = b.valid_to AND a.own_key = b.own_key AND a.nth = b.nth; \
             CREATE OR REPLACE TEMP TABLE line_names AS \
               WITH RECURSIVE names AS ( \
                 SELECT line, is_past, number AS line_id FROM temp.line_versions WHERE NOT is_past \
                 UNION ALL SELECT v.line, v.is_past, l.last + row_number() OVER \
                     (PARTITION BY {month_of_v} ORDER BY v.valid_to, v.number) \
                   FROM temp.line_versions v \
                   JOIN (SELECT {month}, max(number) AS last FROM temp.line_versions GROUP BY ALL) l \
                     ON {last_of} \
                   WHERE v.is_past AND NOT EXISTS \
                     (SELECT 1 FROM temp.line_links k WHERE k.line = v.line) \
                 UNION ALL SELECT k.line, true, n.line_id FROM temp.line_links k \
                   JOIN names n ON n.line = k.next AND n.is_past = k.next_is_past) \
               SELECT * FROM names WHERE is_past; \
             UPDATE history.{table} h SET {LINE_ID} = n.line_id FROM temp.line_names n \
               WHERE n.line = h.rowid AND n.line_id <> h.{LINE_ID}",
            key = sql::ident(line_key),
            month = JOURNAL_COLUMNS.join(", "),
            month_of_m = month_of("m"),
            month_of_v = month_of("v"),
            same = same_month("a", "b"),
            last_of = same_month("l", "v"),
        ))
        .map_err(failed)?;
        if let Some(notes) = notes {
            conn.execute_batch(&format!(
                "UPDATE history.{notes} a SET {LINE_ID} = h.{LINE_ID} FROM history.{table} h \
                 WHERE {same} AND h.{LINE_NUMBER} = a.{LINE_NUMBER} AND h._valid_to = a._valid_to",
                notes = sql::ident(&notes.table),
                same = same_month("h", "a"),
            ))
            .map_err(failed)?;
        }
    }
    conn.execute_batch(&format!(
        "UPDATE sync.journal_months m SET last_line_id = n.last FROM ( \
           SELECT {month}, max({LINE_ID}) AS last FROM ( \
             SELECT {month}, {LINE_ID} FROM main.{table} \
             UNION ALL SELECT {month}, {LINE_ID} FROM history.{table}) GROUP BY ALL) n \
         WHERE m.table_name = {name} AND {same}; \
         DROP TABLE IF EXISTS temp.line_versions; DROP TABLE IF EXISTS temp.line_links; \
         DROP TABLE IF EXISTS temp.line_names",
        month = JOURNAL_COLUMNS.join(", "),
        name = sql::text(&resource.table),
        same = same_month("n", "m"),
    ))
    .map_err(failed)
}
