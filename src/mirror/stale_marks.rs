//! What was made stale though no feed moved it: everything after a gap, the cases that are read whole
//! again, tables that are newly read.

use duckdb::Connection;
use jiff::Timestamp;

use super::state::{State, batch, count, ids};
use crate::error::Result;
use crate::scope::{DueReason, FetchStatus, Mark};
use crate::sql::{self, instant, scalar_i64};

/// Key of `sync.meta`: see [`StaleMarks::count`].
const STALE_MARKS: &str = "stale_marks";
/// Key of `sync.meta`: see [`StaleMarks::cases_are_wanted_since`].
const WANTED_SINCE: &str = "wanted_since";

/// So many scopes of cases, and so many contacts, of which a value did not fit are read again in a night.
const REJECTED_AT_ONCE: i64 = 500;

/// Makes stale what no feed moved.
pub(crate) struct StaleMarks<'c> {
    pub(super) conn: &'c Connection,
}

impl StaleMarks<'_> {
    /// Every case gets every resource read again (`--full`, or a gap in the feed); what was fetched
    /// stays known until it is replaced.
    pub(crate) fn everything_is_stale(&self, mark: Mark) -> Result<()> {
        self.count_mark()?;
        State::new(self.conn).set_meta("contacts_planned_at", "")?;
        State::new(self.conn)
            .fetched_scopes()
            .mark_tables("SELECT table_name FROM sync.columns", mark)?;
        batch(
            self.conn,
            &format!(
                "UPDATE sync.seen SET dirty = true, rereading = any_stamp WHERE NOT removed; \
             UPDATE sync.seen_contacts SET dirty = true; \
             UPDATE sync.failures SET next_at = least(next_at, {})",
                instant(Timestamp::now())
            ),
        )
    }

    /// Every contact is read again (a gap in the contacts feed).
    pub(crate) fn contacts_are_stale(&self, mark: Mark) -> Result<()> {
        State::new(self.conn).set_meta("contacts_planned_at", "")?;
        State::new(self.conn).fetched_scopes().mark_tables("SELECT 'contacts'", mark)?;
        batch(self.conn, "UPDATE sync.seen_contacts SET dirty = true")
    }

    /// How often something was made stale that no feed moved. What was planned before is not known to
    /// be done after it.
    pub(crate) fn count(&self) -> Result<i64> {
        Ok(State::new(self.conn).meta(STALE_MARKS)?.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    fn count_mark(&self) -> Result<()> {
        State::new(self.conn).set_meta(STALE_MARKS, &(self.count()? + 1).to_string())
    }

    /// Cases whose `ModifiedDate` or another date moved since they were last read whole are read whole
    /// again (docs/architecture.md, "Seen and fetched"); `all` takes every case. Scopes with a value that did not fit are
    /// read again alone. Returns how many cases, and how many of these scopes.
    pub(crate) fn reread(&self, all: bool) -> Result<(u64, u64)> {
        self.reread_rejected_contacts()?;
        let scopes = self.reread_rejected_scopes()?;
        let condition = is_to_be_reread(all);
        State::new(self.conn)
            .fetched_scopes()
            .mark_cases(&condition, FetchStatus::Asked(Mark::Reread))?;
        let cases = count(
            self.conn,
            &format!(
                "UPDATE sync.seen s SET dirty = true, rereading = s.any_stamp WHERE {condition}"
            ),
        )?;
        Ok((cases, scopes))
    }

    /// Scopes of cases of which a value did not fit are read again.
    fn reread_rejected_scopes(&self) -> Result<u64> {
        let named = "temp.stage_rejected";
        batch(
            self.conn,
            &format!("CREATE OR REPLACE TEMP TABLE stage_rejected AS {}", rejected_scopes()),
        )?;
        let scopes = scalar_i64(self.conn, &format!("SELECT count(*) FROM {named}"))?;
        if scopes > 0 {
            self.count_mark()?;
            let (tables, ids) =
                (format!("SELECT table_name FROM {named}"), format!("SELECT id FROM {named}"));
            let fetched = State::new(self.conn).fetched_scopes();
            fetched.unfold(&tables, &ids)?;
            fetched.mark_scopes(named, FetchStatus::Asked(Mark::Reread))?;
            batch(
                self.conn,
                &format!("UPDATE sync.seen SET dirty = true WHERE case_id IN ({ids})"),
            )?;
        }
        batch(self.conn, &format!("DROP TABLE {named}"))?;
        Ok(scopes.unsigned_abs())
    }

    /// Contacts of which a value did not fit are searched again.
    fn reread_rejected_contacts(&self) -> Result<()> {
        let again = format!(
            "UPDATE sync.fetched_scopes SET again_at = {} \
             WHERE table_name = 'contacts' AND part = '' AND id IN ({})",
            Timestamp::now().as_microsecond(),
            rejected_contacts()
        );
        if count(self.conn, &again)? > 0 {
            State::new(self.conn).set_meta("contacts_planned_at", "")?;
        }
        Ok(())
    }

    /// The scopes of cases that [`StaleMarks::reread`] would have read again alone: table and case.
    pub(crate) fn scopes_to_reread(&self) -> Result<Vec<(String, i64)>> {
        sql::query(self.conn, &rejected_scopes(), |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// The contacts that [`StaleMarks::reread`] would have searched again.
    pub(crate) fn contacts_to_reread(&self) -> Result<Vec<i64>> {
        ids(self.conn, &rejected_contacts())
    }

    /// The cases that [`StaleMarks::reread`] would have read again.
    pub(crate) fn cases_to_reread(&self, all: bool) -> Result<Vec<i64>> {
        let condition = is_to_be_reread(all);
        ids(
            self.conn,
            &format!("SELECT s.case_id FROM sync.seen s WHERE {condition} ORDER BY s.case_id"),
        )
    }

    /// Cases whose second search is due become dirty; returns how many.
    pub(crate) fn wake_again(&self, now_us: i64) -> Result<u64> {
        let due = format!("again_at <= {now_us} AND table_name IN ('cases', 'projects')");
        // None, mostly: then no case is looked at.
        let any = format!("SELECT count(*) FROM sync.fetched_scopes WHERE {due}");
        if scalar_i64(self.conn, &any)? == 0 {
            return Ok(0);
        }
        count(
            self.conn,
            &format!(
                "UPDATE sync.seen SET dirty = true WHERE NOT removed AND NOT dirty \
                   AND case_id IN (SELECT id FROM sync.fetched_scopes WHERE {due})"
            ),
        )
    }

    /// A table is looked at again for every case: it is newly enabled or permitted. What was read of
    /// one that never answered but with 404 is not known.
    pub(crate) fn wake_table(&self, table: &str) -> Result<()> {
        self.count_mark()?;
        if table == "contacts" || table == "case_roles" {
            State::new(self.conn).set_meta("contacts_planned_at", "")?;
        }
        batch(
            self.conn,
            &format!(
                "UPDATE sync.seen SET dirty = true WHERE NOT removed AND NOT dirty; \
             UPDATE sync.journal_months SET due = '{}' \
               WHERE table_name = {table} AND complete",
                DueReason::Enabled,
                table = sql::text(table)
            ),
        )?;
        let answered = scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.resources WHERE table_name = {} AND answered",
                sql::text(table)
            ),
        )?;
        if answered == 0 {
            State::new(self.conn).fetched_scopes().forget_table(table)?;
        }
        Ok(())
    }

    /// Whether cases were wanted from this instant on when that was last kept.
    pub(crate) fn are_cases_wanted_since(&self, since: Option<i64>) -> Result<bool> {
        Ok(State::new(self.conn).meta(WANTED_SINCE)?.as_deref() == Some(kept_since(since).as_str()))
    }

    /// Keeps from which instant on cases are wanted, in ticks; of `None`: all. Where that is an earlier one than
    /// before, cases may be wanted that were not: all are looked at again, and `tables`, which are read for
    /// them, count as never read whole until nothing of them lacks.
    pub(crate) fn cases_are_wanted_since(
        &self,
        since: Option<i64>,
        tables: &[impl AsRef<str>],
    ) -> Result<()> {
        let state = State::new(self.conn);
        let wants_more = wants_more_cases(state.meta(WANTED_SINCE)?.as_deref(), since);
        state.set_meta(WANTED_SINCE, &kept_since(since))?;
        if !wants_more {
            return Ok(());
        }
        self.count_mark()?;
        state.are_not_complete(tables)?;
        batch(self.conn, "UPDATE sync.seen SET dirty = true WHERE NOT removed AND NOT dirty")
    }

    /// Makes all that was read of a table stale: its answers have more than was taken from them.
    pub(crate) fn read_again(&self, table: &str) -> Result<()> {
        State::new(self.conn)
            .fetched_scopes()
            .mark_tables(&format!("SELECT {}", sql::text(table)), Mark::Reread)?;
        self.wake_table(table)
    }

    /// Whether the permission for a part of the table's rows was not granted when the permissions were
    /// last read.
    pub(crate) fn is_withheld(&self, table: &str) -> Result<bool> {
        Ok(State::new(self.conn).meta(&format!("partial_{table}"))?.as_deref() == Some("withheld"))
    }

    /// Keeps whether that permission is granted. A part that is shown again is read again everywhere.
    pub(crate) fn set_withheld(&self, table: &str, withheld: bool) -> Result<()> {
        if self.is_withheld(table)? && !withheld {
            self.read_again(table)?;
        }
        let state = if withheld { "withheld" } else { "granted" };
        State::new(self.conn).set_meta(&format!("partial_{table}"), state)
    }
}

/// How the instant is kept from which on cases are wanted.
fn kept_since(since: Option<i64>) -> String {
    since.map_or_else(String::new, |since| since.to_string())
}

/// Whether cases may be wanted since an instant that were not by what was kept before. What earlier versions left
/// out is not known: they kept nothing.
fn wants_more_cases(before: Option<&str>, since: Option<i64>) -> bool {
    match before {
        None => true,
        Some("") => false,
        Some(before) => {
            since.is_none_or(|since| before.parse().is_ok_and(|before: i64| since < before))
        }
    }
}

/// SQL that holds for cases of `sync.seen s` that have to be read whole again.
fn is_to_be_reread(all: bool) -> String {
    // What is being read waits for its turn once; where a scope of it fails, that may be for ever.
    let is_done = "s.rereading IS DISTINCT FROM s.any_stamp";
    let fails = "s.case_id IN (SELECT id FROM sync.failures WHERE part = '' \
                   AND table_name IN (SELECT table_name FROM sync.refresh_rules))";
    if all {
        format!("NOT s.removed AND ({is_done} OR {fails})")
    } else {
        format!("NOT s.removed AND {is_done} AND s.whole_stamp IS DISTINCT FROM s.any_stamp")
    }
}

/// SQL for the scopes of these tables (SQL) and `ids` (SQL) of which a value, or one of tables that come with them, did not
/// fit (`table_name`, `id`): as many as one night bears where it fits nowhere, those first that were answered longest
/// ago. What is read no more cannot be mended, what failed is tried again by itself, and what is stale already, or was
/// when nobody asked for it, would keep others from their turn.
fn rejected(tables: &str, ids: &str) -> String {
    let (is_read, current) = ("status IN ('ok', 'failing')", FetchStatus::Current);
    format!(
        "SELECT table_name, id FROM ( \
           SELECT w.table_name, r.id, min(r.last_at) AS asked_at \
           FROM (SELECT table_name, TRY_CAST(scope AS BIGINT) AS id, last_at \
             FROM sync.rejects WHERE resolved_at IS NULL) r \
           JOIN (FROM sync.resources WHERE {is_read}) t ON t.table_name = r.table_name \
           JOIN (FROM sync.resources WHERE {is_read}) w \
             ON w.table_name = coalesce(t.read_with, t.table_name) \
           WHERE w.table_name IN ({tables}) AND r.id IN ({ids}) \
             AND NOT EXISTS (SELECT 1 FROM sync.failures f \
               WHERE f.table_name = w.table_name AND f.id = r.id) \
             AND NOT EXISTS (SELECT 1 FROM sync.fetched_scopes x \
               WHERE x.table_name = w.table_name AND x.id = r.id AND x.status <> '{current}') \
           GROUP BY ALL ORDER BY asked_at, id, table_name LIMIT {REJECTED_AT_ONCE})"
    )
}

/// SQL for the scopes of cases of which a value did not fit.
fn rejected_scopes() -> String {
    rejected(
        "SELECT table_name FROM sync.refresh_rules",
        "SELECT case_id FROM sync.seen WHERE NOT removed",
    )
}

/// SQL for the contacts of which a value did not fit.
fn rejected_contacts() -> String {
    let read = "SELECT id FROM sync.fetched_scopes WHERE table_name = 'contacts' AND part = ''";
    format!("SELECT id FROM ({})", rejected("SELECT 'contacts'", read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn a_case_that_moved_before_it_was_read_whole_is_read_whole_again() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let see = |date, sequence| {
            state.cases().see_cases(&[(17, [Some(date); 11])], sequence, Timestamp::now()).unwrap();
        };
        see(1, 1);
        let reread = || state.stale_marks().reread(false).unwrap().0;
        assert_eq!(reread(), 0, "it is being read at these dates");
        // Something of it is still to be read when it moves.
        see(2, 2);
        assert_eq!(state.stale_marks().cases_to_reread(false).unwrap(), [17]);
        assert_eq!(reread(), 1);
        assert_eq!(reread(), 0);
        state.cases().clean(&[(17, 2)], state.stale_marks().count().unwrap()).unwrap();
        assert_eq!(reread(), 0, "it was read whole");
    }

    #[test]
    fn all_takes_cases_of_which_a_scope_fails_and_none_that_still_wait_to_be_read() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        for case_id in [17, 18, 19] {
            state.cases().see_cases(&[(case_id, [Some(1); 11])], 1, Timestamp::now()).unwrap();
        }
        let marks = || state.stale_marks().count().unwrap();
        state.cases().clean(&[(17, 1)], marks()).unwrap();
        let failed = "INSERT INTO sync.failures BY NAME \
                      SELECT 'notes' AS table_name, 18 AS id, '' AS part \
                      UNION ALL SELECT 'contacts', 19, ''";
        conn.execute_batch(failed).unwrap();
        for _ in 0..2 {
            let again = state.stale_marks().cases_to_reread(true).unwrap();
            assert_eq!(again, [17, 18], "19 is being read, and a contact of this number failed");
            assert!(state.stale_marks().cases_to_reread(false).unwrap().is_empty());
            state.stale_marks().reread(true).unwrap();
            state.cases().clean(&[(17, 1)], marks()).unwrap();
        }
    }

    #[test]
    fn what_a_value_did_not_fit_in_is_read_again_alone_those_first_that_were_asked_longest_ago() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let cases = REJECTED_AT_ONCE + 2;
        for case_id in 1..=cases {
            state.cases().see_cases(&[(case_id, [Some(1); 11])], 1, Timestamp::now()).unwrap();
        }
        conn.execute_batch(
            "UPDATE sync.seen SET dirty = false, whole_stamp = any_stamp; \
             INSERT INTO sync.fetched_scopes BY NAME SELECT t.table_name, s.case_id AS id, '' AS part, \
               'current' AS status, true AS complete FROM sync.seen s, (VALUES ('costs'), ('notes')) t(table_name)",
        )
        .unwrap();
        let reject = |table: &str, ids: &str, at: &str| {
            conn.execute_batch(&format!(
                "INSERT INTO sync.rejects SELECT 1, '{table}', id, '1', 'amount', 'x', 'no number', \
                   TIMESTAMPTZ '{at}', TIMESTAMPTZ '{at}', NULL FROM (SELECT unnest({ids})::VARCHAR AS id)"
            ))
            .unwrap();
        };
        let again = || state.stale_marks().scopes_to_reread().unwrap();
        let costs =
            |ids: &[i64]| -> Vec<_> { ids.iter().map(|id| ("costs".to_owned(), *id)).collect() };
        reject("costs", "[2]", "2026-01-02 00:00:00+00");
        // Of a list, and of a month: no case's. Of a table that is not read, and of a case that has left: nobody's.
        reject("offices", "['']", "2026-01-01 00:00:00+00");
        reject("case_journals", "['offices/1/2026-01']", "2026-01-01 00:00:00+00");
        reject("entries", "[3]", "2026-01-01 00:00:00+00");
        reject("costs", "[4]", "2026-01-01 00:00:00+00");
        conn.execute_batch(
            "UPDATE sync.resources SET status = 'forbidden' WHERE table_name = 'entries'; \
             UPDATE sync.seen SET removed = true WHERE case_id = 4",
        )
        .unwrap();
        assert_eq!(again(), costs(&[2]));
        assert_eq!(state.stale_marks().reread(false).unwrap(), (0, 1));
        let dirty = state.cases().dirty_cases(None, &[], 10).unwrap();
        assert_eq!(dirty.iter().map(|case| case.case_id).collect::<Vec<_>>(), [2]);
        let asked = format!(
            "SELECT count(*) FILTER (table_name = 'costs' AND id = 2) * 1000 + count(*) \
             FROM sync.fetched_scopes WHERE status = '{}'",
            FetchStatus::Asked(Mark::Reread)
        );
        assert_eq!(scalar_i64(&conn, &asked).unwrap(), 1_001, "nothing else of it");
        assert!(again().is_empty(), "as long as it is not answered");
        let answered = "UPDATE sync.fetched_scopes SET status = 'current'";
        conn.execute_batch(answered).unwrap();
        assert_eq!(again(), costs(&[2]), "it did not fit once more");
        let failed =
            "INSERT INTO sync.failures BY NAME SELECT 'costs' AS table_name, 2 AS id, '' AS part";
        conn.execute_batch(failed).unwrap();
        assert!(again().is_empty(), "it is tried again by itself");
        conn.execute_batch(
            "DELETE FROM sync.failures; UPDATE sync.rejects SET resolved_at = now()",
        )
        .unwrap();
        assert!(again().is_empty());
        reject("costs", &format!("range(1, {})", cases + 1), "2026-01-03 00:00:00+00");
        reject("costs", &format!("[{cases}]"), "2026-01-02 00:00:00+00");
        let others = (1..=REJECTED_AT_ONCE).filter(|id| *id != 4);
        let first: Vec<i64> = [cases].into_iter().chain(others).collect();
        assert_eq!(again(), costs(&first));
    }

    #[test]
    fn what_a_gap_made_stale_while_it_was_planned_is_not_cleaned() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        state.cases().see_cases(&[(17, [Some(1); 11])], 1, Timestamp::now()).unwrap();
        let dirty = || state.cases().dirty_cases(None, &[], 10).unwrap().len();
        let marks = state.stale_marks().count().unwrap();
        state.stale_marks().everything_is_stale(Mark::Gap).unwrap();
        state.cases().clean(&[(17, 1)], marks).unwrap();
        assert_eq!(dirty(), 1);
        state.cases().clean(&[(17, 1)], state.stale_marks().count().unwrap()).unwrap();
        assert_eq!(dirty(), 0);
    }

    #[test]
    fn an_earlier_first_day_and_none_want_more_cases_and_a_later_one_does_not() {
        let wants = wants_more_cases;
        assert!(wants(Some("7"), Some(6)) && wants(Some("7"), None));
        assert!(!wants(Some("7"), Some(7)) && !wants(Some("7"), Some(8)));
        assert!(!wants(Some(""), None) && !wants(Some(""), Some(7)), "all were wanted");
        assert!(wants(None, Some(7)) && wants(None, None), "nothing was kept");
    }

    #[test]
    fn a_gap_in_the_contacts_feed_makes_no_case_stale() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        state.cases().see_cases(&[(17, [Some(1); 11])], 1, Timestamp::now()).unwrap();
        state.cases().clean(&[(17, 1)], state.stale_marks().count().unwrap()).unwrap();
        state.stale_marks().contacts_are_stale(Mark::Gap).unwrap();
        assert_eq!(state.cases().dirty_cases(None, &[], 10).unwrap().len(), 0);
    }
}
