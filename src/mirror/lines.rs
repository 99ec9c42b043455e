//! Making a journal's months equal to their answers, line by line (docs/architecture.md, "Journals").
//!
//! Two lines can be equal in every field and are still two, and a line that is inserted on top moves
//! all others without changing them. So lines are paired first: those of equal content, annotations
//! included, in order; then those of one key of their own, in order. What is left has come or gone. A
//! number alone is no change: it is set, the row's version and `_synced_at` stay.
//!
//! A line that stays keeps its `line_id`, and a new one gets the next that its month has never had.
//! Annotations hang on it, in `main` and in `history`. What is staged has the line's number in its
//! place until [`give_ids`].
//!
//! Everything is found by joins over all staged months at once. Beside the staging tables of lines and
//! annotations this reads `temp.stage_months(journal_level, journal_id, journal_month, complete,
//! closed, definition, annotated, last_line_id)`; `closed` months are those that were read completely since they
//! were closed: what changes in them is a restatement. Of months that are not `annotated` it is not known which
//! annotations they had: what is read of these says nothing of their lines, and is no restatement.

mod notes;

use duckdb::Connection;

use super::merge::{self, Merged, compared, differences, differs};
use crate::catalog::{EXTRA_COLUMN, JOURNAL_COLUMNS, LINE_ID, LINE_NUMBER, Resource};
use crate::error::Result;
use crate::sql::{self, db, scalar_i64};

/// Columns with their generation: see [`super::align::redefined`].
pub(super) type Redefined = [(String, i64)];

/// A journal's table, as far as pairing goes.
pub(super) struct Lines<'a> {
    pub(crate) resource: &'a Resource,
    /// Column with a line's own key.
    pub(crate) line_key: &'a str,
    pub(crate) redefined: &'a Redefined,
    /// The table of the lines' annotations, with its redefined columns.
    pub(crate) notes: Option<(&'a Resource, &'a Redefined)>,
}

/// What a merge did, and in which months rows were written, renumbered ones included.
#[derive(Debug, Default)]
pub(super) struct MergedTable {
    pub(crate) merged: Merged,
    /// As `yyyy-mm`.
    pub(crate) months: Vec<String>,
}

/// Pairs the staged lines with the mirrored ones.
pub(super) fn pair(conn: &Connection, lines: &Lines<'_>) -> Result<()> {
    let run = |what: &str, sql: &str| {
        conn.execute_batch(sql)
            .map_err(|e| db(&format!("cannot {what} {}", lines.resource.table), e))
    };
    run(
        "tell the lines of",
        &lines.marks("new_lines", &stage(lines.resource), lines.notes_of(true)),
    )?;
    run(
        "tell the mirrored lines of",
        &lines.marks("old_lines", &main(lines.resource), lines.notes_of(false)),
    )?;
    run("pair the lines of", PAIRS)
}

/// Gives the staged lines, and their annotations, the ids of the lines that [`pair`] found them to be,
/// and new lines new ones.
fn give_ids(conn: &Connection, lines: &Lines<'_>) -> Result<()> {
    let named = |table: &str, same: &str| {
        format!(
            "UPDATE {table} s SET {LINE_ID} = n.{LINE_ID} FROM temp.new_lines n \
             WHERE {same} AND s.{LINE_ID} <> n.{LINE_ID}; "
        )
    };
    let of_notes = lines.notes.map_or(String::new(), |(notes, _)| {
        let same = format!("{} AND s.{LINE_NUMBER} = n.number", same_month("s", "n"));
        named(&stage(notes), &same)
    });
    conn.execute_batch(&format!(
        "CREATE OR REPLACE TEMP TABLE new_lines AS \
           SELECT n.* REPLACE (coalesce(p.{LINE_ID}, c.last_line_id + row_number() OVER \
             (PARTITION BY {month}, p.{LINE_ID} IS NULL ORDER BY n.number)) AS {LINE_ID}) \
           FROM temp.new_lines n JOIN temp.stage_months c ON {of_month} \
           LEFT JOIN temp.line_pairs p ON p.new_row = n.line; \
         UPDATE temp.stage_months c SET last_line_id = greatest(c.last_line_id, n.last) \
           FROM (SELECT {month}, max({LINE_ID}) AS last FROM temp.new_lines n GROUP BY ALL) n \
           WHERE {of_month}; \
         {of_lines} {of_notes}",
        month = month_of("n"),
        of_month = same_month("n", "c"),
        of_lines = named(&stage(lines.resource), "s.rowid = n.line"),
    ))
    .map_err(|e| db(&format!("cannot name the lines of {}", lines.resource.table), e))
}

/// Merges the lines that [`pair`] has paired, and their annotations after them.
pub(super) fn merge(
    conn: &Connection,
    lines: &Lines<'_>,
    now: &str,
) -> Result<(MergedTable, Option<MergedTable>)> {
    let run = |what: &str, sql: &str| {
        conn.execute_batch(sql)
            .map_err(|e| db(&format!("cannot {what} {}", lines.resource.table), e))
    };
    let restated = scalar_i64(conn, "SELECT count(*) FROM temp.stage_months WHERE closed")? > 0;

    give_ids(conn, lines)?;
    run("compare the lines of", &lines.diff())?;
    if restated {
        run("note restatements of", &lines.restatements(now))?;
    }
    let of_lines = write(conn, lines.resource, "line_pairs", now)?;

    let Some((table, redefined)) = lines.notes else { return Ok((of_lines, None)) };
    run("pair the annotations of", &notes::pairs(table, redefined))?;
    if scalar_i64(conn, "SELECT count(*) FROM temp.stage_months WHERE NOT complete")? > 0 {
        run("keep annotations of", &notes::keep(table))?;
        run("pair the annotations of", &notes::pairs(table, redefined))?;
    }
    run("compare the annotations of", &notes::diff(table, redefined))?;
    if restated {
        run("note restatements of", &notes::restatements(lines.resource, table, redefined, now))?;
    }
    let of_notes = write(conn, table, "note_pairs", now)?;
    Ok((of_lines, Some(of_notes)))
}

/// Writes `temp.diff` and `temp.gone`, then the new line numbers of the rows that stay: `pairs` names
/// them in the column `old_row`.
fn write(conn: &Connection, resource: &Resource, pairs: &str, now: &str) -> Result<MergedTable> {
    let failed = |e| db(&format!("cannot renumber {}", resource.table), e);
    let months: Vec<String> = conn
        .prepare(&format!(
            "SELECT DISTINCT strftime(journal_month, '%Y-%m') FROM ( \
               SELECT s.journal_month FROM temp.diff d JOIN {stage} s ON s.rowid = d.sid \
               UNION ALL SELECT t.journal_month FROM temp.gone g JOIN {main} t ON t.rowid = g.mid \
               UNION ALL SELECT journal_month FROM temp.{pairs} WHERE new_number <> old_number) \
             ORDER BY 1",
            stage = stage(resource),
            main = main(resource),
        ))
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
        .map_err(failed)?;
    let merged = merge::write_differences(conn, resource, true, now)?;
    conn.execute_batch(&format!(
        "UPDATE {} t SET {LINE_NUMBER} = p.new_number FROM temp.{pairs} p \
         WHERE t.rowid = p.old_row AND p.new_number <> p.old_number",
        main(resource)
    ))
    .map_err(failed)?;
    Ok(MergedTable { merged, months })
}

pub(super) fn main(resource: &Resource) -> String {
    format!("main.{}", sql::ident(&resource.table))
}

pub(super) fn stage(resource: &Resource) -> String {
    format!("temp.{}", merge::stage_name(resource))
}

/// `a.journal_level = b.journal_level AND ...`
pub(super) fn same_month(a: &str, b: &str) -> String {
    JOURNAL_COLUMNS.map(|c| format!("{a}.{c} = {b}.{c}")).join(" AND ")
}

/// `a.journal_level, a.journal_id, a.journal_month`
pub(super) fn month_of(a: &str) -> String {
    JOURNAL_COLUMNS.map(|c| format!("{a}.{c}")).join(", ")
}

/// The columns that say what a line is. What moves by itself, and what no column takes, is not among
/// them: another release of the platform would be a restatement of every line.
pub(super) fn telling(resource: &Resource) -> impl Iterator<Item = &str> {
    compared(resource)
        .filter(|(name, volatile)| !volatile && *name != EXTRA_COLUMN)
        .map(|(name, _)| name)
}

/// SQL for a text that is the same when and only when a row's fields are: each as its own text, so
/// that no number passes through a binary float.
///
/// A column that is newer than the month's last reading (`c.definition`) says nothing about its lines.
fn content(resource: &Resource, alias: &str, redefined: &Redefined) -> String {
    let fields: Vec<String> = telling(resource)
        .map(|name| {
            let text = match resource.column(name) {
                Some(column) if column.kind.list => {
                    format!("to_json({alias}.{})::VARCHAR", sql::ident(name))
                }
                _ => format!("{alias}.{}::VARCHAR", sql::ident(name)),
            };
            match redefined.iter().find(|(redefined, _)| redefined == name) {
                Some((_, since)) => {
                    format!("CASE WHEN coalesce(c.definition, 0) >= {since} THEN {text} END")
                }
                None => text,
            }
        })
        .collect();
    format!("to_json([{}]::VARCHAR[])::VARCHAR", fields.join(", "))
}

impl Lines<'_> {
    /// A subquery with the annotations of each line as one text, staged or mirrored: in whatever order.
    fn notes_of(&self, staged: bool) -> Option<String> {
        let (notes, redefined) = self.notes?;
        let from = if staged { stage(notes) } else { main(notes) };
        Some(format!(
            "(SELECT {month}, a.{LINE_ID}, string_agg({content}, ',' ORDER BY {content}) AS notes \
              FROM {from} a JOIN temp.stage_months c ON {same} GROUP BY {month}, a.{LINE_ID})",
            month = month_of("a"),
            content = content(notes, "a", redefined),
            same = same_month("a", "c"),
        ))
    }

    /// One row per line: where it stands, its name, its own key, and a digest of its content.
    fn marks(&self, name: &str, table: &str, notes: Option<String>) -> String {
        let (joined, noted) = match notes {
            Some(notes) => (
                format!(
                    " LEFT JOIN {notes} n ON {} AND n.{LINE_ID} = l.{LINE_ID}",
                    same_month("n", "l")
                ),
                " || CASE WHEN c.annotated THEN coalesce(n.notes, '') ELSE '' END",
            ),
            None => (String::new(), ""),
        };
        format!(
            "CREATE OR REPLACE TEMP TABLE {name} AS \
             SELECT l.rowid AS line, {month}, l.{LINE_NUMBER} AS number, l.{LINE_ID}, \
               l.{key}::VARCHAR AS line_key, sha256({content}{noted}) AS content \
             FROM {table} l JOIN temp.stage_months c ON {same}{joined}",
            month = month_of("l"),
            key = sql::ident(self.line_key),
            content = content(self.resource, "l", self.redefined),
            same = same_month("l", "c"),
        )
    }

    fn diff(&self) -> String {
        let (any, versioned) = differences(self.resource, self.redefined, "c");
        format!(
            "CREATE OR REPLACE TEMP TABLE diff AS \
             SELECT n.line AS sid, m.rowid AS mid, m._synced_at AS synced, ({versioned}) AS versioned \
             FROM temp.new_lines n JOIN {stage} s ON s.rowid = n.line \
             JOIN temp.stage_months c ON {same} \
             LEFT JOIN temp.line_pairs p ON p.new_row = n.line \
             LEFT JOIN {main} m ON m.rowid = p.old_row \
             WHERE m.rowid IS NULL OR {any}; \
             CREATE OR REPLACE TEMP TABLE gone AS \
             SELECT o.line AS mid FROM temp.old_lines o \
             WHERE NOT EXISTS (SELECT 1 FROM temp.line_pairs p WHERE p.old_row = o.line)",
            stage = stage(self.resource),
            main = main(self.resource),
            same = same_month("n", "c"),
        )
    }

    fn restatements(&self, now: &str) -> String {
        let insert = |select: &str| insert_restatements(self.resource, select, now);
        let added = insert(&format!(
            "SELECT {MONTH_AND_KEY}, 'added' AS change, NULL AS column_name, NULL AS before, \
               NULL AS after FROM temp.diff d JOIN temp.new_lines l ON l.line = d.sid \
             JOIN temp.stage_months c ON {} WHERE d.mid IS NULL AND c.closed",
            same_month("l", "c")
        ));
        let removed = insert(&format!(
            "SELECT {MONTH_AND_KEY}, 'removed' AS change, NULL AS column_name, NULL AS before, \
               NULL AS after FROM temp.gone g JOIN temp.old_lines l ON l.line = g.mid \
             JOIN temp.stage_months c ON {} WHERE c.closed",
            same_month("l", "c")
        ));
        let cells: Vec<String> = told_columns(self.resource, self.redefined)
            .map(|(name, told)| {
                format!(
                    "SELECT {MONTH_AND_KEY}, 'changed' AS change, {shown} AS column_name, \
                       m.{column}::VARCHAR AS before, s.{column}::VARCHAR AS after \
                     FROM temp.diff d JOIN temp.new_lines l ON l.line = d.sid \
                     JOIN {stage} s ON s.rowid = d.sid JOIN {main} m ON m.rowid = d.mid \
                     JOIN temp.stage_months c ON {same} WHERE {told} AND {differs}",
                    shown = sql::text(name),
                    column = sql::ident(name),
                    stage = stage(self.resource),
                    main = main(self.resource),
                    same = same_month("l", "c"),
                    differs = differs(name),
                )
            })
            .collect();
        format!("{added}; {removed}; {}", insert(&cells.join(" UNION ALL ")))
    }
}

/// Pairs lines of one content, then of one key, each in order; lines without a key are as if of one. What an incomplete
/// answer lacks is there still: of such a month only a key that one line has, here and there, says that they are the same
/// one. The mirrored lines that have no pair stay, behind those of the answer.
const PAIRS: &str = "\
CREATE OR REPLACE TEMP TABLE line_pairs AS
SELECT n.line AS new_row, o.line AS old_row, n.journal_level, n.journal_id, n.journal_month,
  n.number AS new_number, o.number AS old_number, o.line_id
FROM (SELECT *, row_number() OVER (PARTITION BY journal_level, journal_id, journal_month, content
                                   ORDER BY number) AS nth FROM temp.new_lines) n
JOIN (SELECT *, row_number() OVER (PARTITION BY journal_level, journal_id, journal_month, content
                                   ORDER BY number) AS nth FROM temp.old_lines) o
  USING (journal_level, journal_id, journal_month, content, nth);
INSERT INTO temp.line_pairs
SELECT n.line, o.line, n.journal_level, n.journal_id, n.journal_month, n.number, o.number, o.line_id
FROM (SELECT *, row_number() OVER (PARTITION BY journal_level, journal_id, journal_month, own_key
                                   ORDER BY number) AS nth
      FROM (SELECT *, coalesce(line_key, '') AS own_key,
              count(*) OVER (PARTITION BY journal_level, journal_id, journal_month, line_key) AS alike
            FROM temp.new_lines) l
      WHERE NOT EXISTS (SELECT 1 FROM temp.line_pairs p WHERE p.new_row = l.line)) n
JOIN (SELECT *, row_number() OVER (PARTITION BY journal_level, journal_id, journal_month, own_key
                                   ORDER BY number) AS nth
      FROM (SELECT *, coalesce(line_key, '') AS own_key,
              count(*) OVER (PARTITION BY journal_level, journal_id, journal_month, line_key) AS alike
            FROM temp.old_lines) l
      WHERE NOT EXISTS (SELECT 1 FROM temp.line_pairs p WHERE p.old_row = l.line)) o
  USING (journal_level, journal_id, journal_month, own_key, nth)
JOIN temp.stage_months c USING (journal_level, journal_id, journal_month)
WHERE c.complete OR (own_key <> '' AND n.alike = 1 AND o.alike = 1);
INSERT INTO temp.line_pairs
SELECT NULL, o.line, o.journal_level, o.journal_id, o.journal_month,
  coalesce(n.lines, 0) + row_number() OVER (PARTITION BY o.journal_level, o.journal_id,
                                              o.journal_month ORDER BY o.number),
  o.number, o.line_id
FROM temp.old_lines o
JOIN temp.stage_months c ON c.journal_level = o.journal_level AND c.journal_id = o.journal_id
  AND c.journal_month = o.journal_month AND NOT c.complete
LEFT JOIN (SELECT journal_level, journal_id, journal_month, max(number) AS lines
           FROM temp.new_lines GROUP BY ALL) n
  ON n.journal_level = o.journal_level AND n.journal_id = o.journal_id
  AND n.journal_month = o.journal_month
WHERE NOT EXISTS (SELECT 1 FROM temp.line_pairs p WHERE p.old_row = o.line)";

/// What every restatement says of its line `l`.
const MONTH_AND_KEY: &str = "l.journal_level, l.journal_id, l.journal_month, l.line_id, \
                             coalesce(l.line_key, '#' || l.number) AS line_key";

fn insert_restatements(resource: &Resource, select: &str, now: &str) -> String {
    format!(
        "INSERT INTO sync.restatements BY NAME SELECT {} AS journal, r.*, {now} AS changed_at \
         FROM ({select}) r",
        sql::text(&resource.table)
    )
}

/// The columns whose changes are told, each with SQL for the month's closedness (`c`) that leaves out
/// what only our own definition changed.
fn told_columns<'r>(
    resource: &'r Resource,
    redefined: &'r Redefined,
) -> impl Iterator<Item = (&'r str, String)> {
    telling(resource).map(|name| {
        let since = redefined.iter().find(|(redefined, _)| redefined == name);
        let told = match since {
            Some((_, since)) => format!("c.closed AND coalesce(c.definition, 0) >= {since}"),
            None => "c.closed".to_owned(),
        };
        (name, told)
    })
}

#[cfg(test)]
mod tests;
