//! Readings of a journal's month that lack so much of what is mirrored that they are not believed at
//! once: an empty answer looks like a complete one (docs/architecture.md, "Journals").
//!
//! The month stays as it is, and the store keeps since when it is doubted, a digest of the doubted lines,
//! and what they add up to. It is believed when an equal answer comes `source.doubt` later, or when the
//! platform's own sum, asked after the doubted answer, is that of the doubted lines. The annotations of lines that stay count
//! by the same rule, but that a few may go though they are all. Where what many months lack is too much together, those that lack anything are doubted in the same way,
//! those too that answered 404 twice, for as long as the guard holds anything.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use super::guard::{self, BELIEVED_AFTER};
use super::lines::{Lines, main, month_of, same_month, stage};
use super::load::Settings;
use super::state::failures::{Failure, fail};
use super::state::{State, batch};
use crate::catalog::{LINE_ID, Resource};
use crate::config::JournalLevel;
use crate::error::Result;
use crate::scope::{DueReason, FailureKind, JournalScope, Month, REVENUE, REVENUE_SUMS, ScopeId};
use crate::sql::{self, db, instant, query, scalar_i64};

/// So many lines of a month may go though they are most, and so many annotations though they are all.
const FEW_LINES: i64 = 10;

/// SQL that takes all that is kept of a doubt out of a row of `sync.journal_months`.
pub(super) const UNDOUBTED: &str = "doubted_at = NULL, doubted_digest = NULL, doubted_payment = NULL, \
                                    doubted_change = NULL, doubted_price = NULL";

/// A doubted month, as the store says it.
struct Doubted {
    id: i64,
    part: String,
    lacking: Lacking,
    /// Only with what other answers of the last hour lack.
    together: bool,
    /// It answered 404, for the second time.
    not_found: bool,
    /// When the first of the equal answers came, in microseconds.
    since: i64,
}

/// What an answer lacks of what is mirrored: so many of so many.
struct Lacking {
    lines: [i64; 2],
    /// Of the lines that stay.
    notes: [i64; 2],
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lines, self.notes) {
            ([lines, of], [0, _]) => write!(f, "{lines} of {of} lines"),
            ([0, _], [notes, of]) => write!(f, "{notes} of {of} annotations"),
            ([lines, of], [notes, of_notes]) => {
                write!(
                    f,
                    "{lines} of {of} lines and {notes} of {of_notes} annotations of the others"
                )
            }
        }
    }
}

/// Takes the months whose answers are doubted out of `temp.stage_months` and `temp.stage_scopes`, and
/// notes them. The lines are paired.
pub(super) fn hold(
    conn: &Connection,
    settings: &Settings,
    lines: &Lines<'_>,
    run_id: i64,
    now: Timestamp,
) -> Result<BTreeSet<(i64, String)>> {
    if settings.max_removed.is_none() {
        return Ok(BTreeSet::new());
    }
    let failed = |e| db(&format!("cannot doubt an answer of {}", lines.resource.table), e);
    // Commits follow one another, also after the clock was set back; a doubt lasts by the clock.
    let now = now.min(Timestamp::now());
    conn.execute_batch(&old_months(lines)).map_err(failed)?;
    let guards = guards(conn, settings, lines, now)?;
    conn.execute_batch(&stage_doubts(lines, settings.doubt, guards)).map_err(failed)?;
    if scalar_i64(conn, "SELECT count(*) FROM temp.stage_doubts")? == 0 {
        return Ok(BTreeSet::new());
    }
    conn.execute_batch(&note_doubts(lines.resource, &instant(now))).map_err(failed)?;
    let doubted = query(
        conn,
        &format!(
            "SELECT d.journal_id, d.part, d.gone, d.lines, d.lost_notes, d.notes, d.together, \
               d.not_found, epoch_us(m.doubted_at) \
             FROM temp.stage_doubts d JOIN sync.journal_months m ON m.table_name = {} AND {} \
             ORDER BY ALL",
            sql::text(&lines.resource.table),
            same_month("m", "d")
        ),
        |row| {
            Ok(Doubted {
                id: row.get(0)?,
                part: row.get(1)?,
                lacking: Lacking {
                    lines: [row.get(2)?, row.get(3)?],
                    notes: [row.get(4)?, row.get(5)?],
                },
                together: row.get(6)?,
                not_found: row.get(7)?,
                since: row.get(8)?,
            })
        },
    )?;
    for Doubted { id, part, lacking, together, not_found, since } in &doubted {
        let table = lines.resource.table.clone();
        let others = if *together {
            ", and answers of the last hour together more than reconcile.max_removed"
        } else {
            ""
        };
        let until = if *not_found {
            "the source has answered 404 for six hours"
        } else if lacking.notes[0] > 0 {
            "an equal answer comes source.doubt later"
        } else {
            "an equal answer comes source.doubt later, or the platform's sum confirms it"
        };
        let text = format!(
            "the answer lacks {lacking} that are mirrored{others}: the month stays as it is until {until} \
             (if they are really gone, run `casemirror sync --allow-removals`)"
        );
        tracing::warn!(table, scope = part, id, "{text}");
        let passed = u64::try_from(now.as_microsecond() - since).unwrap_or(0);
        // A service that is back is not left unasked for hours.
        let left =
            (!not_found).then(|| settings.doubt.saturating_sub(Duration::from_micros(passed)));
        let scope = ScopeId { table, id: *id, part: part.clone() };
        let failure = Failure { not_before: left, ..Failure::new(FailureKind::Doubted, &text) };
        fail(conn, run_id, now, &scope, &failure)?;
    }
    Ok(doubted.into_iter().map(|d| (d.id, d.part)).collect())
}

/// What a month's answer (`o`, as in `temp.old_months`) lacks to be doubted for itself.
fn lacks_too_much() -> String {
    let most = |lacks: &str, of: &str| format!("{lacks} > {FEW_LINES} AND {lacks} * 2 > {of}");
    // That the last annotation of a month is taken back is nothing rare.
    format!(
        "(o.gone = o.lines OR {} OR {})",
        most("o.gone", "o.lines"),
        most("o.lost_notes", "o.notes")
    )
}

/// SQL for whether a month `c` is judged by what its answer lacks alone. That of a second 404 is everything: only the guard
/// has still to say something to it.
fn is_judged_alone() -> String {
    format!("(NOT c.not_found AND {})", lacks_too_much())
}

/// Fills `temp.old_months`: how many lines each month of `temp.old_lines` has, how many of them its answer lacks, how many
/// annotations the lines have that stay, how many fewer the answer has of those, how many leave with their lines, and a
/// digest of what is gone and of what changed: a line of the same key may have come since, and stand in the place of one
/// that is gone.
fn old_months(lines: &Lines<'_>) -> String {
    let (joined, was, now) = match lines.notes {
        Some((notes, _)) => {
            let counted = |from: String, counts: &str, line: &str| {
                format!(
                    " LEFT JOIN (SELECT {month}, a.{LINE_ID}, count(*) AS notes FROM {from} a \
                       JOIN temp.stage_months c ON {of_month} GROUP BY ALL) {counts} \
                     ON {same} AND {counts}.{LINE_ID} = {line}.{LINE_ID}",
                    month = month_of("a"),
                    of_month = same_month("a", "c"),
                    same = same_month(counts, line),
                )
            };
            let joined = counted(main(notes), "w", "o") + &counted(stage(notes), "s", "n");
            (joined, "coalesce(w.notes, 0)", "coalesce(s.notes, 0)")
        }
        None => (String::new(), "0", "0"),
    };
    let lost = format!("greatest({was} - {now}, 0)");
    let mark = format!("concat(o.content, CASE WHEN {lost} > 0 THEN '-' || {lost} END)");
    let stays = "FILTER (p.old_row IS NOT NULL)";
    format!(
        "CREATE OR REPLACE TEMP TABLE old_months AS \
         SELECT {month}, count(*) AS lines, count(*) - count(p.old_row) AS gone, \
           coalesce(sum({was}) {stays}, 0)::BIGINT AS notes, \
           coalesce(sum({lost}) {stays}, 0)::BIGINT AS lost_notes, \
           sum({lost})::BIGINT AS gone_notes, \
           sha256(string_agg({mark}, '' ORDER BY {mark}) \
             FILTER (n.content IS DISTINCT FROM o.content OR {lost} > 0)) AS digest \
         FROM temp.old_lines o LEFT JOIN temp.line_pairs p ON p.old_row = o.line \
         LEFT JOIN temp.new_lines n ON n.line = p.new_row{joined} GROUP BY ALL",
        month = month_of("o"),
    )
}

/// Whether what the months lack that are not doubted for themselves, each of them little, is too much together of the lines
/// or of their annotations: the guard's rule (docs/architecture.md, "Deletion").
fn guards(
    conn: &Connection,
    settings: &Settings,
    lines: &Lines<'_>,
    now: Timestamp,
) -> Result<bool> {
    let Some(max_removed) = settings.max_removed else { return Ok(false) };
    let tables = std::iter::once((lines.resource, "gone"))
        .chain(lines.notes.map(|(notes, _)| (notes, "gone_notes")));
    for (resource, column) in tables {
        let gone = scalar_i64(
            conn,
            &format!(
                "SELECT coalesce(sum(o.{column}), 0)::BIGINT FROM temp.old_months o \
                 JOIN temp.stage_months c ON {} WHERE c.complete AND NOT {}",
                same_month("o", "c"),
                is_judged_alone()
            ),
        )?
        .unsigned_abs();
        if gone == 0 {
            continue;
        }
        let all = scalar_i64(conn, &format!("SELECT count(*) FROM {}", main(resource)))?;
        let before = guard::removed_of_late(conn, &[&resource.table], now)?;
        if guard::guarded(gone + before, all.unsigned_abs() + before, max_removed) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fills `temp.stage_doubts`: the months of which a complete answer lacks all lines, or more than half
/// and more than a few, or as much of their annotations, and that nothing confirms. `any`: those that lack anything, too,
/// which is confirmed by an answer that lacks the same, whatever else it has: a month that still moves would never have two
/// equal ones. What was held of a 404 is held on, however few are asked with it.
fn stage_doubts(lines: &Lines<'_>, doubt: Duration, any: bool) -> String {
    let name = sql::text(&lines.resource.table);
    let month = "journal_level, journal_id, journal_month";
    let is_revenue = lines.resource.table == REVENUE;
    let sum = |from: Option<String>, column: &str| match from {
        Some(table) if is_revenue => format!(
            "coalesce((SELECT sum(s.{column}) FROM {table} s WHERE {}), 0)::DECIMAL(38,2)",
            same_month("s", "c")
        ),
        _ => "NULL::DECIMAL(38,2)".to_owned(),
    };
    let by_sum = if is_revenue {
        format!("OR EXISTS (SELECT 1 FROM ({CONFIRMED}) t WHERE {})", same_month("t", "d"))
    } else {
        String::new()
    };
    format!(
        "CREATE OR REPLACE TEMP TABLE stage_doubts AS \
         WITH new AS (SELECT {month}, sha256(string_agg(content, '' ORDER BY content)) AS digest \
           FROM temp.new_lines GROUP BY ALL) \
         SELECT c.journal_level, c.journal_id, c.journal_month, c.part, c.sent_at, c.not_found, \
           o.lines, o.gone, o.notes, o.lost_notes, \
           CASE WHEN c.not_found THEN 'not found' WHEN {alone} THEN coalesce(n.digest, 'none') \
             ELSE 'without ' || o.digest END AS digest, \
           NOT {alone} AS together, {payment} AS payment, {change} AS change, \
           CASE WHEN o.lost_notes = 0 THEN {price} END AS price \
         FROM temp.stage_months c JOIN temp.old_months o ON {of_old} LEFT JOIN new n ON {of_new} \
         WHERE c.complete AND ({alone} OR {any} AND (o.gone > 0 OR o.lost_notes > 0) \
           OR c.not_found AND EXISTS (SELECT 1 FROM sync.journal_months m \
             WHERE m.table_name = {name} AND {of_held} AND m.doubted_digest = 'not found')); \
         DELETE FROM temp.stage_doubts d WHERE EXISTS (SELECT 1 FROM sync.journal_months m \
           WHERE m.table_name = {name} AND {of_month} AND m.doubted_digest = d.digest \
             AND (epoch_us(d.sent_at) >= epoch_us(m.doubted_at) \
               + CASE WHEN d.not_found THEN {longest} ELSE {wait} END {by_sum}))",
        payment = sum(Some(stage(lines.resource)), "payment"),
        change = sum(lines.notes.map(|(notes, _)| stage(notes)), "payment_change"),
        price = sum(Some(stage(lines.resource)), "purchase_price"),
        alone = is_judged_alone(),
        of_old = same_month("o", "c"),
        of_new = same_month("n", "c"),
        of_month = same_month("m", "d"),
        of_held = same_month("m", "c"),
        wait = doubt.as_micros(),
        longest = BELIEVED_AFTER.as_micros(),
    )
}

/// The doubted months of revenue that the platform's sum confirms: it was asked after the doubted answer
/// came, and it is that of the doubted lines, and not that of the mirrored ones. It says nothing of annotations, which it may
/// not count: where these are missing, there is no price.
const CONFIRMED: &str = "\
    SELECT d.journal_level, d.journal_id, d.journal_month \
    FROM sync.journal_months d \
    JOIN sync.journal_months a ON a.table_name = 'revenue_journal_sums' AND a.complete \
      AND a.journal_level = d.journal_level AND a.journal_id = d.journal_id \
      AND a.journal_month = d.journal_month AND a.sent_at >= d.doubted_at \
    JOIN main.revenue_journal_sums s ON s.journal_level = d.journal_level \
      AND s.journal_id = d.journal_id AND s.journal_month = d.journal_month \
    LEFT JOIN (SELECT journal_level, journal_id, journal_month, sum(payment) AS payment, \
        sum(purchase_price) AS price FROM main.revenue_journals GROUP BY ALL) l \
      ON l.journal_level = d.journal_level AND l.journal_id = d.journal_id \
      AND l.journal_month = d.journal_month \
    LEFT JOIN (SELECT journal_level, journal_id, journal_month, sum(payment_change) AS change \
        FROM main.revenue_journal_annotations GROUP BY ALL) n \
      ON n.journal_level = d.journal_level AND n.journal_id = d.journal_id \
      AND n.journal_month = d.journal_month \
    WHERE d.table_name = 'revenue_journals' AND d.doubted_at IS NOT NULL \
      AND s.total_purchase_price = d.doubted_price \
      AND s.total_payment IN (d.doubted_payment, d.doubted_payment + d.doubted_change) \
      AND NOT (s.total_purchase_price = coalesce(l.price, 0) \
        AND s.total_payment IN (coalesce(l.payment, 0), coalesce(l.payment, 0) + coalesce(n.change, 0)))";

fn note_doubts(resource: &Resource, now: &str) -> String {
    let name = sql::text(&resource.table);
    let sums = sql::text(REVENUE_SUMS);
    let ask_for_sums = if resource.table == REVENUE {
        // The platform's sum may confirm it, if it is asked now.
        format!(
            "UPDATE sync.journal_months m SET due = '{doubted}' FROM temp.stage_doubts d \
             WHERE m.table_name = {sums} AND {} AND m.wanted AND m.due IS NULL \
               AND EXISTS (SELECT 1 FROM sync.resources WHERE table_name = {sums} \
                 AND status NOT IN ('disabled', 'forbidden', 'absent'));",
            same_month("m", "d"),
            doubted = DueReason::Doubted,
        )
    } else {
        String::new()
    };
    format!(
        "UPDATE sync.journal_months m SET due = '{doubted}', \
           doubted_at = CASE WHEN m.doubted_digest = d.digest THEN m.doubted_at ELSE {now} END, \
           doubted_digest = d.digest, doubted_payment = d.payment, doubted_change = d.change, \
           doubted_price = d.price, not_found_at = CASE WHEN d.not_found THEN m.not_found_at END \
         FROM temp.stage_doubts d WHERE m.table_name = {name} AND {of_month}; \
         {ask_for_sums} \
         DELETE FROM temp.stage_scopes c USING temp.stage_doubts d \
           WHERE c.id = d.journal_id AND c.part = d.part; \
         DELETE FROM temp.stage_months c USING temp.stage_doubts d WHERE {of_stage}",
        doubted = DueReason::Doubted,
        of_month = same_month("m", "d"),
        of_stage = same_month("c", "d"),
    )
}

impl State<'_> {
    /// Lets the doubted months of revenue that the platform's sum confirms be read at once; returns them.
    pub(crate) fn confirmed_months_wait_no_longer(
        &self,
        level: JournalLevel,
    ) -> Result<Vec<(i64, Month)>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT journal_id, strftime(journal_month, '%Y-%m') FROM ({CONFIRMED}) \
                 WHERE journal_level = {} ORDER BY ALL",
                sql::text(&level.to_string())
            ),
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        let months: Vec<(i64, Month)> =
            rows.into_iter().filter_map(|(id, month)| Some((id, month.parse().ok()?))).collect();
        for (id, month) in &months {
            let scope = JournalScope { level, id: *id, month: *month };
            batch(
                self.conn,
                &format!(
                    "UPDATE sync.failures SET next_at = first_at WHERE table_name = {} AND id = {id} \
                   AND part = {} AND kind = '{}'",
                    sql::text(REVENUE),
                    sql::text(&scope.part()),
                    FailureKind::Doubted
                ),
            )?;
        }
        Ok(months)
    }

    /// Lets all that is doubted or held be read at once: its removal is allowed.
    pub(crate) fn what_is_held_waits_no_longer(&self) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.failures SET next_at = first_at WHERE kind IN ({})",
                FailureKind::names(&[FailureKind::Doubted, FailureKind::Held])
            ),
        )
    }
}
