//! What is kept of comparisons with the source, and for how long (docs/architecture.md, "Control totals").

use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::state::{State, batch, execute};
use super::verifications::{MONTH, OF_CASE, SAMPLED_CASES};
use super::wanted::IS_GONE;
use crate::error::Result;
use crate::scope::{REVENUE, REVENUE_SUMS};
use crate::sql::{self, db, instant, instant_param};

/// Of how many months the signed cases are compared, the current one included.
pub(crate) const SIGNED_MONTHS: u32 = 12;
/// How what is told of one of them begins; the month follows.
pub(crate) const SIGNED_CASES: &str = "signed cases ";

/// A comparison with the source, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedRow {
    pub(crate) what: String,
    pub(crate) source: String,
    pub(crate) mirror: String,
    pub(crate) difference: Difference,
    /// What it is about: a difference stands until a later comparison of the same finds none.
    pub(crate) subject: String,
}

/// In what the mirror is not as the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    None,
    Standing(String),
    Unsettled(String),
}

impl Difference {
    fn text(&self) -> Option<String> {
        match self {
            Difference::None => None,
            Difference::Standing(how) => Some(how.clone()),
            Difference::Unsettled(how) => Some(format!("unsettled: {how}")),
        }
    }
}

/// What stands for the difference where a control could not be read,
const NOT_COMPARED: &str = "not compared";
/// and where the mirror itself knows to be otherwise.
const LEFT_OUT: &str = "left out";
/// Key of `sync.meta`: when every control was last read, in microseconds since 1970.
const WHOLE_AT: &str = "verified_whole_at";
/// SQL for the rows that are comparisons.
const COMPARED: &str = "(difference IS NULL OR difference NOT IN ('not compared', 'left out'))";

/// Findings of an earlier year are nobody's to look up; those of the year before a closing are.
const KEPT: Duration = Duration::from_secs(400 * 86_400);

/// What a comparison with the source came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastVerification {
    pub(crate) at: Timestamp,
    pub(crate) comparisons: i64,
    pub(crate) differences: i64,
    /// Something changed each time it was asked.
    pub(crate) unsettled: i64,
    /// What could not be compared: controls that could not be read, and what was left out.
    pub(crate) not_compared: i64,
    /// Of that: where the mirror itself knows to be otherwise, and tells elsewhere.
    pub(crate) left_out: i64,
}

/// A difference that no later verification has found gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandingDifference {
    pub(crate) at: Timestamp,
    pub(crate) what: String,
}

/// What verifications found.
pub(crate) struct Verified<'c> {
    pub(super) conn: &'c Connection,
}

impl Verified<'_> {
    /// What the last comparison came to; `None` before the first.
    pub(crate) fn last_verification(&self) -> Result<Option<LastVerification>> {
        let rows = sql::query(
            self.conn,
            &format!(
                "SELECT epoch_us(verified_at), count(*) FILTER ({COMPARED}), \
                   count(*) FILTER ({COMPARED} AND difference NOT LIKE 'unsettled:%'), \
                   count(*) FILTER (difference LIKE 'unsettled:%'), \
                   count(*) FILTER (NOT {COMPARED}), \
                   count(*) FILTER (difference = '{LEFT_OUT}') \
                 FROM sync.verifications GROUP BY run_id, verified_at \
                 ORDER BY run_id DESC, verified_at DESC LIMIT 1"
            ),
            |row| {
                let at = Timestamp::from_microsecond(row.get(0)?).unwrap_or_default();
                let (comparisons, differences, unsettled) = (row.get(1)?, row.get(2)?, row.get(3)?);
                let (not_compared, left_out) = (row.get(4)?, row.get(5)?);
                Ok(LastVerification {
                    at,
                    comparisons,
                    differences,
                    unsettled,
                    not_compared,
                    left_out,
                })
            },
        )?;
        Ok(rows.into_iter().next())
    }

    /// When every control was last read, whatever it said; one that cannot be read moves it not.
    pub(crate) fn last_whole(&self) -> Result<Option<Timestamp>> {
        let at = State::new(self.conn).meta(WHOLE_AT)?;
        Ok(sql::from_micros(at.and_then(|at| at.parse().ok())))
    }

    /// Differences that stand, the first found first.
    pub(crate) fn standing_differences(&self) -> Result<Vec<StandingDifference>> {
        sql::query(
            self.conn,
            "SELECT epoch_us(min(verified_at)), what FROM sync.verifications WHERE standing \
             GROUP BY what ORDER BY ALL",
            |row| {
                let at = Timestamp::from_microsecond(row.get(0)?).unwrap_or_default();
                Ok(StandingDifference { at, what: row.get(1)? })
            },
        )
    }

    /// How many of them were found before a verification, and not by it.
    pub(crate) fn standing_before(&self, at: Timestamp) -> Result<usize> {
        let found = format!(
            "SELECT count(*) FROM (SELECT what FROM sync.verifications WHERE standing \
               GROUP BY what HAVING max(verified_at) < {})",
            instant(at)
        );
        Ok(usize::try_from(sql::scalar_i64(self.conn, &found)?).unwrap_or_default())
    }

    /// Keeps what was compared, and in words what could not be and what was left out. Of earlier
    /// verifications only differences stay, for a year.
    pub(crate) fn note_verifications(
        &self,
        run_id: i64,
        at: Timestamp,
        rows: &[VerifiedRow],
        problems: &[String],
        left_out: &[String],
    ) -> Result<()> {
        let failed = |e| db("cannot note what was verified", e);
        batch(
            self.conn,
            "CREATE OR REPLACE TEMP TABLE verified (what VARCHAR, source VARCHAR, mirror VARCHAR, \
               difference VARCHAR, subject VARCHAR, standing BOOLEAN)",
        )?;
        {
            let mut appender = self.conn.appender("verified").map_err(failed)?;
            for row in rows {
                let VerifiedRow { what, source, mirror, difference, subject } = row;
                let standing = matches!(difference, Difference::Standing(_));
                appender
                    .append_row(params![what, source, mirror, difference.text(), subject, standing])
                    .map_err(failed)?;
            }
            let none: Option<&str> = None;
            let others = problems
                .iter()
                .map(|what| (what, NOT_COMPARED))
                .chain(left_out.iter().map(|what| (what, LEFT_OUT)));
            for (what, why) in others {
                appender.append_row(params![what, none, none, why, none, false]).map_err(failed)?;
            }
            appender.flush().map_err(failed)?;
        }
        batch(
            self.conn,
            &format!(
                "UPDATE sync.verifications v SET standing = false WHERE standing AND ({}) \
                   AND NOT EXISTS (FROM temp.verified n \
                     WHERE n.standing AND n.subject = v.subject AND n.what = v.what)",
                no_longer_stands(at)
            ),
        )?;
        execute(
            self.conn,
            "INSERT INTO sync.verifications BY NAME SELECT ?::BIGINT AS run_id, \
               ?::TIMESTAMPTZ AS verified_at, * FROM temp.verified",
            params![run_id, instant_param(at)],
        )?;
        if problems.is_empty() {
            State::new(self.conn).set_meta(WHOLE_AT, &at.as_microsecond().to_string())?;
        }
        // Of a difference that stands the first and the last time are enough.
        let same = "standing AND subject = v.subject AND what = v.what";
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.verifications v WHERE standing \
                   AND EXISTS (FROM sync.verifications WHERE {same} AND verified_at < v.verified_at) \
                   AND EXISTS (FROM sync.verifications WHERE {same} AND verified_at > v.verified_at)"
            ),
        )?;
        let old = at.checked_sub(KEPT).unwrap_or(Timestamp::MIN);
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.verifications WHERE standing IS NOT TRUE AND verified_at < {} \
               AND (difference IS NULL OR NOT {COMPARED} OR verified_at < {})",
                instant(at),
                instant(old)
            ),
        )
    }
}

/// SQL for the differences `v` that do not stand after a verification: it has compared the same and knows what came of it,
/// or nobody will any more, because the table is disabled, no search shows the case, the month of signed cases is too old, or nothing says what a
/// month of a journal should come to. A table that is forbidden or absent may be read again.
fn no_longer_stands(at: Timestamp) -> String {
    format!(
        "v.subject IN (SELECT subject FROM temp.verified WHERE subject IS NOT NULL GROUP BY subject \
           HAVING bool_or(standing) OR NOT bool_or(coalesce(difference LIKE 'unsettled:%', false))) \
         OR EXISTS (SELECT 1 FROM sync.resources r WHERE r.status = 'disabled' \
           AND (v.subject = r.table_name OR starts_with(v.subject, r.table_name || ' ') \
             OR r.table_name = 'cases' AND starts_with(v.subject, '{SIGNED_CASES}') \
             OR r.table_name = '{REVENUE}' AND starts_with(v.subject, '{REVENUE_SUMS} '))) \
         OR starts_with(v.subject, '{SIGNED_CASES}') AND v.subject < \
           (SELECT '{SIGNED_CASES}' || strftime(month - INTERVAL {} MONTH, '%Y-%m') \
            FROM report.calendar WHERE starts_at <= {at} AND ends_at > {at}) \
         OR contains(v.subject, '{OF_CASE}') \
           AND try_cast(split_part(v.subject, '{OF_CASE}', 2) AS BIGINT) NOT IN ({SAMPLED_CASES}) \
         OR v.subject LIKE '%/%/%' AND NOT EXISTS (SELECT 1 FROM sync.journal_months m \
           WHERE m.wanted AND NOT {IS_GONE} \
             AND v.subject = m.table_name || ' ' || {MONTH} AND m.no_control_at IS NULL)",
        SIGNED_MONTHS - 1,
        at = instant(at),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::case_subject;
    use crate::mirror::reports::fixture;

    fn row(subject: &str, difference: Difference) -> VerifiedRow {
        let [source, mirror] = ["2", "1"].map(str::to_owned);
        VerifiedRow {
            what: subject.to_owned(),
            source,
            mirror,
            difference,
            subject: subject.to_owned(),
        }
    }

    fn standing(state: &State<'_>) -> Vec<String> {
        let all = state.verified().standing_differences().unwrap();
        all.into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn a_difference_stands_until_it_is_found_gone_or_nobody_will_look() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let note = |run: i64, rows: &[VerifiedRow]| {
            let at = Timestamp::from_second(1_800_000_000 + run).unwrap();
            state.verified().note_verifications(run, at, rows, &[], &[]).unwrap();
        };
        let differs = || Difference::Standing("1".to_owned());
        let since = || -> Vec<i64> {
            let all = state.verified().standing_differences().unwrap();
            all.iter().map(|found| found.at.as_second() - 1_800_000_000).collect()
        };
        note(-4, &[row("cases", differs())]);
        note(-3, &[row("cases", differs())]);
        note(-2, &[row("cases", differs())]);
        note(-1, &[row("cases", differs())]);
        assert_eq!(since(), [-4], "since it was first found");
        let kept = "SELECT count(*) FROM sync.verifications WHERE standing";
        assert_eq!(sql::scalar_i64(&conn, kept).unwrap(), 2);
        note(0, &[row("cases", Difference::None)]);
        assert!(since().is_empty());
        note(1, &[row("cases", differs())]);
        assert_eq!(since(), [1], "it was gone in between");
        note(1, &[row("cases", differs()), row("projects", differs())]);
        assert_eq!(standing(&state), ["cases", "projects"]);
        note(2, &[row("cases", Difference::Unsettled("1".to_owned()))]);
        assert_eq!(standing(&state), ["cases", "projects"], "what is unsettled tells nothing");
        note(3, &[row("cases", Difference::None)]);
        assert_eq!(standing(&state), ["projects"]);
        let turn = |status: &str| {
            conn.execute_batch(&format!(
                "DELETE FROM sync.resources WHERE table_name = 'projects'; \
                 INSERT INTO sync.resources (table_name, status) VALUES ('projects', '{status}')"
            ))
            .unwrap();
        };
        turn("forbidden");
        note(4, &[]);
        assert_eq!(standing(&state), ["projects"], "it may be read again");
        turn("disabled");
        note(5, &[]);
        assert_eq!(standing(&state), [""; 0]);
    }

    #[test]
    fn a_difference_in_a_case_stands_whatever_is_found_of_others_until_the_case_is_gone() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        conn.execute_batch(
            "INSERT INTO sync.seen (case_id, removed, place) VALUES (17, false, 'cases'), \
             (18, false, 'cases'), (19, false, 'cases'), (20, false, 'cases')",
        )
        .unwrap();
        let note = |run: i64, rows: &[VerifiedRow]| {
            let at = Timestamp::from_second(1_800_000_000 + run).unwrap();
            state.verified().note_verifications(run, at, rows, &[], &[]).unwrap();
            standing(&state)
        };
        let verifications = state.verifications();
        let (of_17, of_18) = (case_subject("notes", 17), case_subject("notes", 18));
        let differs = || Difference::Standing("differs".to_owned());
        note(1, &[row(&of_17, differs()), row(&of_18, differs())]);
        let others = [row("sampled cases", Difference::None), row(&of_18, Difference::None)];
        assert_eq!(note(2, &others), [of_17.as_str()]);
        let before = |run: i64| {
            let at = Timestamp::from_second(1_800_000_000 + run).unwrap();
            state.verified().standing_before(at).unwrap()
        };
        assert_eq!((before(1), before(2)), (0, 1), "the second one did not find it");
        let chosen = |sample: usize, most: usize| verifications.chosen_cases(sample, most).unwrap();
        assert_eq!(chosen(0, 5).again, [17], "whatever the sample");
        assert_eq!(chosen(0, 0).all(), [0; 0]);
        assert_eq!(chosen(0, 5).sampled, [].into());
        assert_eq!(chosen(4, 5).sampled, [17, 18, 19, 20].into());
        assert_eq!(chosen(4, 5).again, [0; 0], "it is among them");
        let has = |table: &str, id: i64| chosen(0, 5).has(&(table.to_owned(), id));
        assert!(has("notes", 17) && !has("activities", 17) && !has("notes", 18));
        note(3, &[row(&of_18, differs()), row(&case_subject("notes", 19), differs())]);
        assert_eq!(chosen(0, 2).again.len(), 2, "of three");
        conn.execute_batch("UPDATE sync.seen SET removed = true").unwrap();
        assert_eq!(note(4, &[]), [""; 0]);
    }

    #[test]
    fn signed_cases_differ_no_more_once_their_month_is_not_compared_any_more() {
        let conn = fixture::store(None, 2025..=2026);
        let state = State::new(&conn);
        let note = |run: i64, at: &str, rows: &[VerifiedRow]| {
            state.verified().note_verifications(run, at.parse().unwrap(), rows, &[], &[]).unwrap();
            standing(&state)
        };
        let differs = || Difference::Standing("1".to_owned());
        let months = ["signed cases 2025-03", "signed cases 2025-04"];
        // In Oslo it is March still, and then April.
        let before = note(1, "2026-02-28T22:59:59Z", &months.map(|month| row(month, differs())));
        assert_eq!(before, months);
        assert_eq!(note(2, "2026-02-28T22:59:59Z", &[]), months);
        assert_eq!(note(3, "2026-02-28T23:00:00Z", &[]), [months[1]]);
    }

    #[test]
    fn a_month_that_differed_line_by_line_has_its_turn_until_it_does_not() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        conn.execute_batch(
            "INSERT INTO sync.journal_months BY NAME SELECT unnest(['revenue_journals', \
                 'revenue_journal_sums']) AS table_name, 'offices' AS journal_level, \
               11 AS journal_id, DATE '2026-03-01' AS journal_month, true AS wanted, \
               true AS complete, TIMESTAMPTZ '2026-05-01 00:00:00+00' AS sent_at",
        )
        .unwrap();
        let has_turn = || {
            let tables = [REVENUE.to_owned()];
            let level = crate::config::JournalLevel::Offices;
            let months = state.verifications().months_in_turn(&tables, level, true).unwrap();
            months.len() == 1
        };
        let note = |run: i64, difference: Difference| {
            let at = Timestamp::from_second(1_780_000_000 + run).unwrap();
            let rows = [row("revenue_journals offices/11/2026-03", difference)];
            state.verified().note_verifications(run, at, &rows, &[], &[]).unwrap();
        };
        assert!(!has_turn(), "its sum is compared");
        note(1, Difference::Standing("1".to_owned()));
        assert!(has_turn());
        note(2, Difference::None);
        assert!(!has_turn());
    }

    #[test]
    fn journals_of_which_no_month_is_known_have_no_turn() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let add = |id: i64, month: u32, sent_at: &str, set: &str| {
            conn.execute_batch(&format!(
                "INSERT INTO sync.journal_months BY NAME SELECT * REPLACE ({set}) FROM \
                   (SELECT 'depot_journals' AS table_name, 'offices' AS journal_level, \
                      {id} AS journal_id, DATE '2026-{month:02}-01' AS journal_month, \
                      true AS wanted, true AS complete, NULL::VARCHAR AS due, \
                      TIMESTAMPTZ '2026-{sent_at} 00:00:00+00' AS sent_at)"
            ))
            .unwrap();
        };
        // One that is known, and another that is not.
        add(11, 3, "05-01", "true AS wanted");
        add(11, 4, "05-01", "'recheck' AS due");
        // None that is: due, not whole, read before its end.
        add(12, 3, "05-01", "'recheck' AS due");
        add(13, 3, "05-01", "false AS complete");
        add(14, 3, "03-20", "true AS wanted");
        // Nobody wants it; it is not over.
        add(15, 3, "05-01", "false AS wanted");
        add(16, 6, "05-01", "false AS complete");
        let tables = ["depot_journals".to_owned()];
        let level = crate::config::JournalLevel::Offices;
        let at = "2026-06-15T00:00:00Z".parse().unwrap();
        let without = state.verifications().scopes_without_turn(&tables, level, at).unwrap();
        assert_eq!(without, [("depot_journals".to_owned(), 3)]);
    }
}
