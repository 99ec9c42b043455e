//! Loading journals: months of lines with their annotations, and control totals
//! (docs/architecture.md, "Journals").

use std::collections::BTreeSet;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use duckdb::{Connection, params};
use jiff::Timestamp;

use super::changes::count_changes;
use super::closings::{self, JustLoaded};
use super::doubt::{self, UNDOUBTED};
use super::first_load;
use super::freshness;
use super::guard;
use super::learned;
use super::levels;
use super::lines::{self, Lines, MergedTable};
use super::load::{Outcome, Settings};
use super::merge::{self, Merged};
use crate::catalog::{Group, LINE_ID, Resource};
use crate::decode::{Decoded, Load};
use crate::error::{Error, Kind, Result};
use crate::scope::{DueReason, JournalScope};
use crate::sql::{self, db, instant, instant_param, scalar_i64};

/// What became of the months of some loads.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The scopes whose answers are doubted: they stay as they are.
    pub(crate) doubted: BTreeSet<(i64, String)>,
    /// Lines may have another name than their place: `temp.new_lines` tells.
    pub(crate) are_named: bool,
}

/// Applies loads of one journal table within the writer's open transaction; `temp.stage_scopes` is
/// filled.
pub(super) fn apply(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    loads: &[Load],
    run_id: i64,
    now: Timestamp,
    outcome: &mut Outcome,
) -> Result<Applied> {
    let mut applied = Applied::default();
    stage_months(conn, settings, resource, loads)?;
    let decoded: Vec<&Decoded> = loads.iter().map(|load| &load.decoded).collect();
    let children = loads.first().map_or(0, |load| load.decoded.children.len());
    let notes: Vec<&Decoded> = (0..children)
        .flat_map(|n| loads.iter().filter_map(move |load| load.decoded.children.get(n)))
        .collect();
    let notes_of = notes.first().map(|rows| &*rows.resource);
    let back = match &resource.group {
        Group::Journal(journal) if journal.line_key.is_some() => {
            // Those of annotations that are not read now, too: they stay as they are.
            let notes = settings.catalog.children(&resource.table).next();
            levels::bring_back(conn, resource, notes.map(AsRef::as_ref), now)?
        }
        _ => Vec::new(),
    };
    for (table, rows) in &back {
        outcome.note(&table.table, Merged { inserted: *rows, ..Merged::default() });
    }
    let is_new = is_new(conn, resource)?;
    if is_new {
        for (table, rows) in
            std::iter::once((resource, &decoded)).chain(notes_of.map(|table| (table, &notes)))
        {
            note_whole(conn, table, first_load::insert(conn, table, rows, now)?, outcome)?;
        }
        // The places of a month's first lines are their names.
        conn.execute_batch("UPDATE temp.stage_months SET last_line_id = lines")
            .map_err(|e| db("cannot note the names of lines", e))?;
    } else {
        merge::stage_rows(conn, resource, &decoded)?;
        let redefined = settings.redefined(conn, &resource.table)?;
        if let Group::Journal(journal) = &resource.group
            && let Some(line_key) = &journal.line_key
        {
            let redefined_notes = match notes_of {
                Some(table) => settings.redefined(conn, &table.table)?,
                None => &[],
            };
            if let Some(table) = notes_of {
                merge::stage_rows(conn, table, &notes)?;
            }
            let lines = Lines {
                resource,
                line_key,
                redefined,
                notes: notes_of.map(|table| (table, redefined_notes)),
            };
            lines::pair(conn, &lines)?;
            applied.doubted = doubt::hold(conn, settings, &lines, run_id, now)?;
            if !applied.doubted.is_empty() {
                lines::pair(conn, &lines)?;
            }
            let (of_lines, of_notes) = lines::merge(conn, &lines, &instant(now))?;
            applied.are_named = true;
            for (table, _) in &back {
                levels::forget_moments(conn, table, now)?;
            }
            for (table, merged) in
                std::iter::once((resource, of_lines)).chain(notes_of.zip(of_notes))
            {
                if let Some(limits) = settings.limits(now) {
                    guard::note_removed(conn, &table.table, merged.merged.deleted, limits.now)?;
                }
                note(conn, table, merged, outcome)?;
            }
        } else {
            let merged = merge_totals(conn, resource, redefined, now)?;
            note_whole(conn, resource, merged, outcome)?;
        }
    }
    months_were_read(conn, resource, Some(notes_of.is_some()), now)?;
    learned::keep_digests(conn, resource)?;
    let loaded = JustLoaded { loads, are_all: is_new };
    closings::close_what_was_read(conn, &settings.catalog, resource, &loaded, now)?;
    Ok(applied)
}

/// Notes months that were answered as they are mirrored. One that is not mirrored so any more stays as it
/// was, and so it is read again.
pub(super) fn note_unchanged(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    loads: &[Load],
    now: Timestamp,
) -> Result<()> {
    stage_months(conn, settings, resource, loads)?;
    conn.execute_batch(&format!(
        "DELETE FROM temp.stage_months c WHERE NOT EXISTS \
           (SELECT 1 FROM sync.journal_months m \
            JOIN temp.stage_scopes s ON s.id = m.journal_id AND s.digest = m.answer_digest \
            WHERE m.table_name = {} AND m.complete AND s.part = c.part AND {})",
        sql::text(&resource.table),
        lines::same_month("m", "c")
    ))
    .map_err(|e| db("cannot note months that are as they were", e))?;
    months_were_read(conn, resource, None, now)?;
    let loaded = JustLoaded::default();
    closings::close_what_was_read(conn, &settings.catalog, resource, &loaded, now)
}

/// Fills `temp.stage_months`, one row per scope of `temp.stage_scopes`. Whose month was answered, whatever is made of it,
/// is there: an earlier 404 says nothing any more.
fn stage_months(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    loads: &[Load],
) -> Result<()> {
    let failed = |e| db("cannot stage the months of a journal", e);
    conn.execute_batch(
        "CREATE OR REPLACE TEMP TABLE staged_months \
         (journal_level VARCHAR, journal_id BIGINT, journal_month VARCHAR, part VARCHAR, \
          complete BOOLEAN, is_closed BOOLEAN, sent VARCHAR, not_found BOOLEAN, lines BIGINT)",
    )
    .map_err(failed)?;
    {
        let mut appender = conn.appender("staged_months").map_err(failed)?;
        for load in loads {
            for scope in &load.scopes {
                let of = JournalScope::of(scope.id, &scope.part).ok_or_else(|| {
                    Error::new(Kind::Internal, format!("{} is no journal's month", scope.part))
                })?;
                // By both clocks, of which either may be ahead: what is frozen too early restates all that comes later.
                let sent_at = scope.dated_at.map_or(scope.sent_at, |at| at.min(scope.sent_at));
                let is_closed = sent_at >= of.month.closes_at(settings.close_day, &settings.zone);
                appender
                    .append_row(params![
                        of.level.to_string(),
                        of.id,
                        of.month.first().to_string(),
                        scope.part,
                        scope.complete && !load.decoded.any_without_key(),
                        is_closed,
                        instant_param(scope.sent_at),
                        load.not_found,
                        last_place(&load.decoded)
                    ])
                    .map_err(failed)?;
            }
        }
        appender.flush().map_err(failed)?;
    }
    // The names that a month has given. History alone knows those of a table whose file was away.
    let last_line_id = if resource.has_line_ids() {
        format!(
            "coalesce(m.last_line_id, (SELECT max(h.{LINE_ID}) FROM history.{} h \
               WHERE h.journal_level = s.journal_level AND h.journal_id = s.journal_id \
                 AND h.journal_month = s.journal_month::DATE), 0)",
            sql::ident(&resource.table)
        )
    } else {
        "0".to_owned()
    };
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE stage_months AS \
         SELECT s.journal_level, s.journal_id, s.journal_month::DATE AS journal_month, s.part, \
           s.complete, s.is_closed, s.sent::TIMESTAMPTZ AS sent_at, s.not_found, \
           m.closed_read_at IS NOT NULL AS closed, m.definition, \
           coalesce(m.annotated, true) AS annotated, \
           {last_line_id}::BIGINT AS last_line_id, s.lines \
         FROM temp.staged_months s LEFT JOIN sync.journal_months m ON m.table_name = {} \
           AND m.journal_level = s.journal_level AND m.journal_id = s.journal_id \
           AND m.journal_month = s.journal_month::DATE; \
         UPDATE sync.journal_scopes g SET not_found_at = NULL, gone_at = NULL FROM temp.staged_months s \
           WHERE NOT s.not_found AND g.journal_level = s.journal_level AND g.journal_id = s.journal_id \
             AND (g.not_found_at IS NOT NULL OR g.gone_at IS NOT NULL)",
        sql::text(&resource.table)
    ))
    .map_err(failed)
}

/// The highest number of an answer's lines; 0 where it has none.
fn last_place(decoded: &Decoded) -> i64 {
    decoded
        .rows
        .column_by_name(LINE_ID)
        .and_then(|ids| ids.as_primitive_opt::<Int64Type>())
        .and_then(|ids| ids.iter().flatten().max())
        .unwrap_or(0)
}

/// Whether no row of the staged months is mirrored or was, and none can be a restatement.
fn is_new(conn: &Connection, resource: &Resource) -> Result<bool> {
    let known = "SELECT count(*) FROM temp.stage_months WHERE closed OR last_line_id > 0";
    if scalar_i64(conn, known)? > 0 {
        return Ok(false);
    }
    // With their bounds as literals most of the table is left out by its zone maps.
    let bounds = "SELECT coalesce(min(journal_month), DATE '1970-01-01')::VARCHAR, \
                    coalesce(max(journal_month), DATE '1970-01-01')::VARCHAR FROM temp.stage_months";
    let bounds: [String; 2] = conn
        .query_row(bounds, [], |row| Ok([row.get(0)?, row.get(1)?]))
        .map_err(|e| db("cannot tell which months came", e))?;
    let [first, last] = bounds.map(|day| sql::text(&day));
    let mirrored = format!(
        "SELECT count(*) FROM main.{} m JOIN temp.stage_months c \
           USING (journal_level, journal_id, journal_month) \
         WHERE m.journal_month BETWEEN DATE {first} AND DATE {last}",
        sql::ident(&resource.table)
    );
    Ok(scalar_i64(conn, &mirrored)? == 0)
}

/// Notes a merge of which it is not known in which of the staged months it wrote.
fn note_whole(
    conn: &Connection,
    resource: &Resource,
    merged: Merged,
    outcome: &mut Outcome,
) -> Result<()> {
    let months = if merged.changed() {
        crate::sql::query(
            conn,
            "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM temp.stage_months ORDER BY 1",
            |row| row.get(0),
        )?
    } else {
        Vec::new()
    };
    note(conn, resource, MergedTable { merged, months }, outcome)
}

/// Control totals have one row per month: its key is all there is to pair by.
fn merge_totals(
    conn: &Connection,
    resource: &Resource,
    redefined: &[(String, i64)],
    now: Timestamp,
) -> Result<Merged> {
    let (any, versioned) = merge::differences(resource, redefined, "c");
    let table = sql::ident(&resource.table);
    let stage = merge::stage_name(resource);
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE diff AS \
         SELECT s.rowid AS sid, m.rowid AS mid, m._synced_at AS synced, ({versioned}) AS versioned \
         FROM temp.{stage} s JOIN temp.stage_months c USING (journal_level, journal_id, journal_month) \
         LEFT JOIN main.{table} m ON m.journal_level = s.journal_level \
           AND m.journal_id = s.journal_id AND m.journal_month = s.journal_month \
         WHERE m.rowid IS NULL OR {any}; \
         CREATE OR REPLACE TEMP TABLE gone AS \
         SELECT m.rowid AS mid FROM main.{table} m \
         JOIN temp.stage_months c USING (journal_level, journal_id, journal_month) \
         WHERE c.complete AND NOT EXISTS (SELECT 1 FROM temp.{stage} s \
           WHERE s.journal_level = m.journal_level AND s.journal_id = m.journal_id \
             AND s.journal_month = m.journal_month)"
    ))
    .map_err(|e| db(&format!("cannot compare {}", resource.table), e))?;
    merge::write_differences(conn, resource, true, &instant(now))
}

fn note(
    conn: &Connection,
    resource: &Resource,
    table: MergedTable,
    outcome: &mut Outcome,
) -> Result<()> {
    count_changes(conn, &resource.table, &table.months)?;
    outcome.note(&resource.table, table.merged);
    Ok(())
}

/// Notes in `sync.journal_months` what the staged months were read to be. `annotated`: whether annotations were taken;
/// `None`: as they were the last time.
fn months_were_read(
    conn: &Connection,
    resource: &Resource,
    annotated: Option<bool>,
    now: Timestamp,
) -> Result<()> {
    let name = sql::text(&resource.table);
    let now = instant(now);
    let same = "m.journal_level = c.journal_level AND m.journal_id = c.journal_id \
                AND m.journal_month = c.journal_month";
    conn.execute_batch(&format!(
        "{was_read}; INSERT INTO sync.journal_months BY NAME \
         SELECT {name} AS table_name, c.journal_level, c.journal_id, c.journal_month, \
           '{asked}' AS due, false AS complete FROM temp.stage_months c WHERE NOT EXISTS \
             (SELECT 1 FROM sync.journal_months m WHERE m.table_name = {name} AND {same}); \
         UPDATE sync.journal_months m SET due = NULL, sent_at = c.sent_at, read_at = {now}, \
           complete = true, incomplete_at = NULL, left_at = NULL, {UNDOUBTED}, not_found_at = NULL, definition = \
             (SELECT max(definition) FROM sync.resources WHERE table_name = {name}), \
           annotated = {annotated}, \
           closed_read_at = coalesce(m.closed_read_at, CASE \
             WHEN EXISTS ({closing} AND o.reopened_at IS NULL) THEN {now} \
             WHEN c.is_closed AND NOT EXISTS ({closing}) THEN {now} END) \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} AND c.complete; \
         UPDATE sync.journal_months m SET not_found_at = NULL \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} AND NOT c.not_found; \
         UPDATE sync.journal_months m SET {UNDOUBTED} \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} AND NOT c.not_found \
           AND m.doubted_digest = 'not found'; \
         UPDATE sync.journal_months m SET last_line_id = c.last_line_id \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} \
           AND c.last_line_id > coalesce(m.last_line_id, 0); \
         UPDATE sync.journal_months m SET due = '{incomplete}', \
           incomplete_at = coalesce(m.incomplete_at, {now}) \
         FROM temp.stage_months c WHERE m.table_name = {name} AND {same} AND NOT c.complete; \
         DELETE FROM sync.failures f USING temp.stage_months c WHERE c.complete \
           AND f.table_name = {name} AND f.id = c.journal_id AND f.part = c.part",
        was_read = freshness::was_read(
            &format!("SELECT {name} FROM temp.stage_months WHERE complete"),
            &now
        ),
        annotated = annotated.map_or("m.annotated".to_owned(), |is| is.to_string()),
        asked = DueReason::AskedFor,
        incomplete = DueReason::Incomplete,
        // One that is closed stays so whatever its level was in between; one that was opened by hand waits for a hand.
        closing = format!(
            "SELECT 1 FROM sync.closings o WHERE o.journal = {name} AND {}",
            lines::same_month("o", "m")
        ),
    ))
    .map_err(|e| db("cannot note which months were read", e))
}
