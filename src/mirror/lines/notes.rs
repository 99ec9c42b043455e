//! The annotations of journals' lines: as lines are, they are paired by content first, and hang on their
//! lines by name. A line's own pairing is done when this begins, and its name is given.

use super::super::merge::{differences, differs};
use super::{
    MONTH_AND_KEY, Redefined, content, insert_restatements, main, month_of, same_month, stage,
    told_columns,
};
use crate::catalog::{EXTRA_COLUMN, JOURNAL_COLUMNS, LINE_ID, LINE_NUMBER, Resource};
use crate::sql;

/// Pairs the annotations of each line as lines are paired: those of one content, then the others, each
/// in order. Those of a line that stays without being in the answer follow it to its place.
pub(super) fn pairs(notes: &Resource, redefined: &Redefined) -> String {
    let marks = |name: &str, table: &str| {
        format!(
            "CREATE OR REPLACE TEMP TABLE {name} AS \
             SELECT a.rowid AS note, {month}, a.{LINE_ID}, a.{LINE_NUMBER} AS number, a.position, \
               sha256({content}) AS content \
             FROM {table} a JOIN temp.stage_months c ON {same}; ",
            month = month_of("a"),
            content = content(notes, "a", redefined),
            same = same_month("a", "c"),
        )
    };
    let pairs = |by: &str, condition: &dyn Fn(&str) -> String| {
        let nth = |table: &str, row: &str| {
            format!(
                "(SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY position) AS nth \
                  FROM temp.{table} a {})",
                condition(row)
            )
        };
        format!(
            "SELECT n.note AS new_row, o.note AS old_row, {month}, n.number AS new_number, \
               o.number AS old_number \
             FROM {new} n JOIN {old} o USING ({by}, nth); ",
            month = month_of("n"),
            new = nth("new_notes", "new_row"),
            old = nth("old_notes", "old_row"),
        )
    };
    let line = format!("{}, {LINE_ID}", JOURNAL_COLUMNS.join(", "));
    let unpaired = |row: &str| {
        format!("WHERE NOT EXISTS (SELECT 1 FROM temp.note_pairs p WHERE p.{row} = a.note)")
    };
    format!(
        "{new} {old} CREATE OR REPLACE TEMP TABLE note_pairs AS {equal} \
         INSERT INTO temp.note_pairs {others} \
         INSERT INTO temp.note_pairs \
         SELECT NULL, o.note, {month}, p.new_number, o.number FROM temp.old_notes o \
         JOIN temp.line_pairs p ON {of_line} AND p.{LINE_ID} = o.{LINE_ID} AND p.new_row IS NULL",
        new = marks("new_notes", &stage(notes)),
        old = marks("old_notes", &main(notes)),
        equal = pairs(&format!("{line}, content"), &|_| String::new()),
        others = pairs(&line, &unpaired),
        month = month_of("o"),
        of_line = same_month("p", "o"),
    )
}

/// An incomplete answer removes nothing: of a line that it has, the annotations that it lacks are staged
/// behind the others.
pub(super) fn keep(notes: &Resource) -> String {
    let columns: Vec<String> = notes
        .columns
        .iter()
        .map(|column| match column.name.as_str() {
            LINE_NUMBER => format!("l.number AS {LINE_NUMBER}"),
            "position" => format!(
                "(SELECT coalesce(max(n.position), 0) FROM temp.new_notes n \
                   WHERE {} AND n.{LINE_ID} = o.{LINE_ID}) \
                 + row_number() OVER (PARTITION BY {}, o.{LINE_ID} ORDER BY o.position) AS position",
                same_month("n", "o"),
                month_of("o")
            ),
            name => format!("m.{}", sql::ident(name)),
        })
        .collect();
    format!(
        "INSERT INTO {stage} BY NAME SELECT {columns}, m.{EXTRA_COLUMN} \
         FROM temp.old_notes o JOIN {main} m ON m.rowid = o.note \
         JOIN temp.stage_months c ON {of_month} AND NOT c.complete \
         JOIN temp.new_lines l ON {of_line} AND l.{LINE_ID} = o.{LINE_ID} \
         WHERE NOT EXISTS (SELECT 1 FROM temp.note_pairs p WHERE p.old_row = o.note)",
        stage = stage(notes),
        columns = columns.join(", "),
        main = main(notes),
        of_month = same_month("o", "c"),
        of_line = same_month("l", "o"),
    )
}

/// Annotations are compared for themselves, whether or not their line changed. One that stands at
/// another place of its line has another key.
pub(super) fn diff(notes: &Resource, redefined: &Redefined) -> String {
    let (any, versioned) = differences(notes, redefined, "c");
    let moved = "s.position <> m.position";
    format!(
        "CREATE OR REPLACE TEMP TABLE diff AS \
         SELECT n.note AS sid, m.rowid AS mid, m._synced_at AS synced, \
           ({versioned} OR {moved}) AS versioned \
         FROM temp.new_notes n JOIN {stage} s ON s.rowid = n.note \
         JOIN temp.stage_months c ON {of_month} \
         LEFT JOIN temp.note_pairs p ON p.new_row = n.note \
         LEFT JOIN {main} m ON m.rowid = p.old_row \
         WHERE m.rowid IS NULL OR {any} OR {moved}; \
         CREATE OR REPLACE TEMP TABLE gone AS \
         SELECT o.note AS mid FROM temp.old_notes o JOIN temp.stage_months c ON {mirrored} \
         WHERE c.complete AND NOT EXISTS ( \
           SELECT 1 FROM temp.note_pairs p WHERE p.old_row = o.note)",
        main = main(notes),
        stage = stage(notes),
        of_month = same_month("n", "c"),
        mirrored = same_month("o", "c"),
    )
}

/// What changed in the annotations of lines that are still there; a line that came or went is told as
/// a whole.
pub(super) fn restatements(
    lines: &Resource,
    notes: &Resource,
    redefined: &Redefined,
    now: &str,
) -> String {
    let of_line = |row: &str| {
        format!(
            "JOIN temp.new_lines l ON {} AND l.{LINE_ID} = {row}.{LINE_ID} \
             JOIN temp.line_pairs p ON p.new_row = l.line",
            same_month("l", row)
        )
    };
    let staged = format!(
        "temp.diff d JOIN {stage} s ON s.rowid = d.sid LEFT JOIN {main} m ON m.rowid = d.mid {}",
        of_line("s"),
        stage = stage(notes),
        main = main(notes),
    );
    let gone = format!(
        "temp.gone g JOIN {main} m ON m.rowid = g.mid {}",
        of_line("m"),
        main = main(notes)
    );
    let cells: Vec<String> = told_columns(notes, redefined)
        .flat_map(|(name, told)| {
            let column = sql::ident(name);
            let shown = |row: &str| {
                format!("'annotations[' || {row}.position || '].' || {}", sql::text(name))
            };
            let closed = format!(
                "JOIN temp.stage_months c ON {} AND c.annotated AND {told}",
                same_month("l", "c")
            );
            [
                format!(
                    "SELECT {MONTH_AND_KEY}, 'changed' AS change, {} AS column_name, \
                       m.{column}::VARCHAR AS before, s.{column}::VARCHAR AS after \
                     FROM {staged} {closed} WHERE {}",
                    shown("s"),
                    differs(name)
                ),
                format!(
                    "SELECT {MONTH_AND_KEY}, 'changed' AS change, {} AS column_name, \
                       m.{column}::VARCHAR AS before, NULL AS after \
                     FROM {gone} {closed} WHERE m.{column} IS NOT NULL",
                    shown("m")
                ),
            ]
        })
        .collect();
    insert_restatements(lines, &cells.join(" UNION ALL "), now)
}
