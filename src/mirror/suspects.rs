//! Cases that left the searches: hidden, or removed with all that hangs on them
//! (docs/architecture.md, "Deletion").

use crate::sql::from_micros;
use duckdb::Connection;
use std::time::Duration;

use jiff::Timestamp;

use super::freshness;
use super::guard;
use super::load::{Outcome, Settings};
use super::removal;
use super::search::{self, Searched};
use super::state::State;
use super::state::failures::{Failure, fail};
use super::state::fetched::MARK_NOW;
use super::unreadable::places;
use crate::catalog::Group;
use crate::error::Result;
use crate::scope::{FailureKind, FeedName, FetchStatus, ScopeId, Standing};
use crate::sql::{self, db, instant, query};
use crate::ticks::Ticks;

/// Key of `sync.meta`: when the guard last held cases that a search lacks.
const CASES_ARE_HELD: &str = "cases_are_held";

/// What became of a case that no search shows.
#[derive(Debug, Clone)]
pub(crate) enum SuspectStep {
    /// It exists; whether it is hidden or the search lags is decided later.
    Waiting,
    /// It is hidden: its search row left, the rest is followed on.
    Hidden(Outcome),
    /// It is gone, with all that hangs on it.
    Removed(Outcome),
}

/// When the searches were asked that lack a case: their answers say nothing of what came later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The number of the last poll before the first of their calls was sent.
    pub(crate) sequence: i64,
    /// When that call was sent, by this machine's clock.
    pub(crate) sent_at: Timestamp,
}

/// Cases that no search shows.
pub(crate) struct Suspects<'c> {
    pub(super) conn: &'c Connection,
}

impl Suspects<'_> {
    /// The case exists, and no search shows it; `asked_at` is when they were asked by the server's clock.
    pub(crate) fn suspect(
        &self,
        settings: &Settings,
        run_id: i64,
        id: i64,
        asked: Asked,
        asked_at: Ticks,
        now: Timestamp,
    ) -> Result<SuspectStep> {
        let delay = settings.search_delay;
        let (state, since) = self.suspicion(id)?;
        if state == Some(Standing::Hidden) {
            self.search_is_done(id, asked, asked_at, delay, now)?;
            return Ok(SuspectStep::Waiting);
        }
        let has_waited = since.is_some_and(|since| since + delay <= asked.sent_at);
        if state == Some(Standing::Suspect) && has_waited {
            let outcome = self.hide(settings, id, now)?;
            self.search_is_done(id, asked, asked_at, delay, now)?;
            return Ok(SuspectStep::Hidden(outcome));
        }
        let why = "no search shows the case, but it exists: it is hidden, or the search lags";
        self.wait_for_search(run_id, id, since.unwrap_or(now), delay, why, now)?;
        Ok(SuspectStep::Waiting)
    }

    /// The case has lost all of its roles, as one that does not exist any more: it is searched once more when the
    /// search cannot lag behind that.
    pub(crate) fn may_be_gone(&self, id: i64, delay: Duration, now: Timestamp) -> Result<()> {
        State::new(self.conn).fetched_scopes().unfold("'cases', 'projects'", &id.to_string())?;
        let at = now
            .as_microsecond()
            .saturating_add_unsigned(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX));
        // What is stale for another reason is searched anyway.
        self.write(&format!(
            "UPDATE sync.fetched_scopes SET again_at = greatest(coalesce(again_at, {at}), {at}) \
             WHERE table_name IN ('cases', 'projects') AND id = {id} AND status = '{}'",
            FetchStatus::Current
        ))
    }

    /// Whether the guard holds cases that a search lacks. A failure does not tell it: another one takes its place.
    pub(crate) fn are_held(&self) -> Result<bool> {
        Ok(State::new(self.conn).meta(CASES_ARE_HELD)?.is_some_and(|held| !held.is_empty()))
    }

    /// It does.
    pub(crate) fn hold(&self, now: Timestamp) -> Result<()> {
        State::new(self.conn).set_meta(CASES_ARE_HELD, &now.to_string())
    }

    /// A listing that began at `since` lacked none that it holds. It says nothing of those that were held since then, by
    /// searches for their ids.
    pub(crate) fn let_go(&self, since: Timestamp) -> Result<()> {
        let state = State::new(self.conn);
        let held = state.meta(CASES_ARE_HELD)?.and_then(|at| at.parse::<Timestamp>().ok());
        if held.is_some_and(|held| held <= since) {
            state.set_meta(CASES_ARE_HELD, "")?;
        }
        Ok(())
    }

    /// How many cases were hidden in the last hour.
    pub(crate) fn hidden_of_late(&self, now: Timestamp) -> Result<u64> {
        guard::removed_of_late(self.conn, &["cases", "projects"], now)
    }

    /// What is suspected of a case, and since when.
    fn suspicion(&self, id: i64) -> Result<(Option<Standing>, Option<Timestamp>)> {
        let row = query(
            self.conn,
            &format!("SELECT state, epoch_us(suspect_at) FROM sync.seen WHERE case_id = {id}"),
            |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(1)?)),
        )?
        .pop();
        let (state, since) = row.unwrap_or_default();
        Ok((state.as_deref().and_then(Standing::from_name), from_micros(since)))
    }

    /// The case is a suspect since then, and is looked for again when the search has caught up.
    fn wait_for_search(
        &self,
        run_id: i64,
        id: i64,
        since: Timestamp,
        delay: Duration,
        why: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.write(&format!(
            "UPDATE sync.seen SET state = '{}', suspect_at = {} WHERE case_id = {id}",
            Standing::Suspect,
            instant(since)
        ))?;
        let left = Duration::try_from((since + delay).duration_since(now)).unwrap_or_default();
        let kind = if State::new(self.conn).standings().case_is_shown(id)? {
            FailureKind::Suspect
        } else {
            FailureKind::NotShown
        };
        let failure = Failure { not_before: Some(left), ..Failure::new(kind, why) };
        self.undecided(run_id, id, &failure, now)
    }

    /// No search shows the case, and what became of it is not decided: it is looked for again.
    pub(crate) fn undecided(
        &self,
        run_id: i64,
        id: i64,
        why: &Failure<'_>,
        now: Timestamp,
    ) -> Result<()> {
        // A listing finds this out of cases of which nothing else is stale.
        State::new(self.conn).fetched_scopes().unfold("'cases', 'projects'", &id.to_string())?;
        self.write(&format!(
            "UPDATE sync.seen SET dirty = true WHERE case_id = {id}; \
             UPDATE sync.fetched_scopes SET status = '{}', again_at = NULL \
             WHERE table_name IN ('cases', 'projects') AND id = {id}",
            FetchStatus::Suspect
        ))?;
        fail(self.conn, run_id, now, &self.search_scope(id)?, why).map(drop)
    }

    /// The case does not exist any more.
    pub(crate) fn remove_case(
        &self,
        settings: &Settings,
        run_id: i64,
        id: i64,
        now: Timestamp,
    ) -> Result<SuspectStep> {
        if !State::new(self.conn).standings().case_is_shown(id)? {
            // A new case that the source does not know everywhere yet must not be forgotten.
            let (_, since) = self.suspicion(id)?;
            let delay = settings.search_delay;
            if since.is_none_or(|since| since + delay > now) {
                let why = "the feed names this case, but no search shows it and it has no roles";
                self.wait_for_search(run_id, id, since.unwrap_or(now), delay, why, now)?;
                return Ok(SuspectStep::Waiting);
            }
        }
        let mut outcome = Outcome::default();
        let mut tables = Vec::new();
        let one = format!("SELECT {id}::BIGINT");
        for resource in settings.catalog.resources() {
            let is_case = match &resource.group {
                Group::Ids => resource.table != "contacts",
                _ => resource.belongs_to_case(),
            };
            if is_case {
                removal::take_rows(
                    self.conn,
                    settings,
                    resource,
                    &one,
                    "deleted",
                    now,
                    &mut outcome,
                )?;
                tables.push(resource.table.as_str());
            }
        }
        let (feed, _, _) = places(FeedName::Cases);
        removal::note_left(self.conn, tables.iter().copied(), &one, now)?;
        removal::forget_scopes(self.conn, tables.into_iter().chain([feed]), &one, now)?;
        self.write(&format!(
            "UPDATE sync.seen SET removed = true, dirty = false, state = NULL, \
               suspect_at = NULL, rereading = NULL WHERE case_id = {id}"
        ))?;
        Ok(SuspectStep::Removed(outcome))
    }

    /// A case is looked for, and waits after a failure, in the search that is known to show it.
    fn search_scope(&self, id: i64) -> Result<ScopeId> {
        let table = State::new(self.conn).standings().place(id)?.table().to_owned();
        Ok(ScopeId { table, id, part: String::new() })
    }

    /// The case's search row leaves; the rest of it is followed on.
    fn hide(&self, settings: &Settings, id: i64, now: Timestamp) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let one = format!("SELECT {id}::BIGINT");
        let tables = ["cases", "projects"];
        let resources = settings.catalog.resources().iter();
        // Lists of a search row are a part of it.
        for resource in resources.filter(|resource| tables.contains(&resource.read_with())) {
            removal::take_rows(self.conn, settings, resource, &one, "hidden", now, &mut outcome)?;
        }
        removal::forget_scopes(self.conn, tables.into_iter(), &one, now)?;
        // Batch by batch they count together.
        for table in tables {
            let left = outcome.tables.get(table).map_or(0, |merged| merged.deleted);
            guard::note_removed(self.conn, table, left, now)?;
        }
        self.write(&format!(
            "UPDATE sync.seen SET state = '{}', suspect_at = {} WHERE case_id = {id}",
            Standing::Hidden,
            // Kept for a case that no search ever showed: by it a later 404 is believed.
            instant(now)
        ))?;
        Ok(outcome)
    }

    /// A hidden case was looked for and not found: it is fetched at what was seen then, what webhooks had told by then is
    /// answered, and it is looked for once more where the search may not have shown it yet.
    fn search_is_done(
        &self,
        id: i64,
        asked: Asked,
        asked_at: Ticks,
        delay: Duration,
        now: Timestamp,
    ) -> Result<()> {
        let Asked { sequence, sent_at } = asked;
        let at = instant(now);
        let searched_in = self.search_scope(id)?.table;
        let table = sql::text(&searched_in);
        State::new(self.conn).fetched_scopes().unfold("'cases', 'projects'", &id.to_string())?;
        self.write(&format!(
            "DELETE FROM sync.failures WHERE table_name IN ('cases', 'projects') AND id = {id}; \
             DELETE FROM sync.hints WHERE table_name IN ('cases', 'projects') AND id = {id} \
               AND sequence <= {sequence}; \
             CREATE OR REPLACE TEMP TABLE stage_hidden AS \
               SELECT {table} AS table_name, s.case_id AS id, '' AS part, \
                 CASE WHEN s.moved <= {sequence} THEN s.any_stamp END AS version, \
                 CASE WHEN s.moved > {sequence} THEN '{moved}' ELSE '{current}' END AS status, \
                 {sent_at} AS sent_at, {at} AS fetched_at, \
                 (SELECT max(definition) FROM sync.resources r \
                    WHERE r.table_name = {table}) AS definition, true AS complete, \
                 NULL::BIGINT AS again_at, {MARK_NOW} AS mark \
               FROM sync.seen s WHERE s.case_id = {id}; \
             DELETE FROM sync.fetched_scopes WHERE table_name IN ('cases', 'projects') AND id = {id}; \
             INSERT INTO sync.fetched_scopes BY NAME SELECT * FROM temp.stage_hidden; {was_read}",
            sent_at = instant(sent_at),
            was_read = freshness::was_read("SELECT table_name FROM temp.stage_hidden", &at),
            moved = FetchStatus::Moved,
            current = FetchStatus::Current,
        ))?;
        let searched =
            Searched { table: &searched_in, ids: "temp.stage_hidden", answered_at: asked_at };
        search::again(self.conn, searched, ("sync.seen", "case_id"), delay, sent_at)
    }

    fn write(&self, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(|e| db("cannot note what became of a case", e))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::Catalog;
    use crate::config::HistoryTables;
    use crate::mirror::reports::fixture;
    use crate::sql::scalar_i64;

    fn settings(search_delay: Duration) -> Settings {
        Settings {
            catalog: Arc::new(Catalog::load(None).unwrap()),
            history: HistoryTables::All,
            max_removed: None,
            search_delay,
            contacts_feed: true,
            doubt: Duration::ZERO,
            zone: jiff::tz::TimeZone::UTC,
            close_day: 10,
            notes_scopes: true,
            progress: crate::progress::Progress::silent(),
            redefined: Arc::default(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    #[test]
    fn a_hidden_case_that_moved_after_it_was_searched_is_not_fetched() {
        let conn = fixture::store(None, 2026..=2026);
        let (state, settings) = (State::new(&conn), settings(Duration::ZERO));
        let see = |date, sequence| {
            state.cases().see_cases(&[(17, [Some(date); 11])], sequence, at(0)).unwrap();
        };
        let fetched = |sequence| {
            let asked = Asked { sequence, sent_at: at(1) };
            state.suspects().suspect(&settings, 1, 17, asked, at(1).into(), at(2)).unwrap();
            let all = state.scopes().fetched(&[17], false).unwrap();
            let fetched = &all[&("cases".to_owned(), 17)];
            (fetched.status, fetched.version.is_some())
        };
        see(1, 1);
        conn.execute_batch("UPDATE sync.seen SET place = 'cases', state = 'hidden'").unwrap();
        assert_eq!(fetched(1), (FetchStatus::Current, true));
        see(2, 2);
        assert_eq!(fetched(1), (FetchStatus::Moved, false));
        assert_eq!(fetched(2), (FetchStatus::Current, true));
    }

    #[test]
    fn a_search_that_does_not_show_a_hidden_case_answers_the_hints_before_it() {
        let conn = fixture::store(None, 2026..=2026);
        let (state, settings) = (State::new(&conn), settings(Duration::ZERO));
        state.cases().see_cases(&[(17, [Some(1); 11])], 1, at(0)).unwrap();
        conn.execute_batch(
            "UPDATE sync.seen SET place = 'cases', state = 'hidden'; \
             INSERT INTO sync.hints BY NAME SELECT unnest(['cases', 'projects', 'notes']) \
               AS table_name, 17 AS id, 2 AS sequence",
        )
        .unwrap();
        let hints_left = |sequence| {
            let asked = Asked { sequence, sent_at: at(1) };
            state.suspects().suspect(&settings, 1, 17, asked, at(1).into(), at(2)).unwrap();
            state.hints().of(&[17]).unwrap().len()
        };
        assert_eq!(hints_left(1), 3, "the call was sent before it was told");
        assert_eq!(hints_left(2), 1, "that of the notes is answered by them");
    }

    #[test]
    fn a_hidden_case_is_searched_once_more_when_the_search_has_caught_up_with_its_last_change() {
        let conn = fixture::store(None, 2026..=2026);
        let (state, settings) = (State::new(&conn), settings(Duration::from_secs(30)));
        let modified = Ticks::from(at(0)).get();
        state.cases().see_cases(&[(17, [Some(modified); 11])], 1, at(0)).unwrap();
        conn.execute_batch("UPDATE sync.seen SET place = 'cases', state = 'hidden'").unwrap();
        let again = |sent: i64, server_ahead: i64| {
            let asked = Asked { sequence: 1, sent_at: at(sent) };
            let asked_at = at(sent + server_ahead).into();
            // The answer to the question comes a while after the search.
            state.suspects().suspect(&settings, 1, 17, asked, asked_at, at(sent + 9)).unwrap();
            let all = state.scopes().fetched(&[17], false).unwrap();
            all[&("cases".to_owned(), 17)].again_at
        };
        let micros = |second| Some(at(second).as_microsecond());
        assert_eq!(again(4, 0), micros(31));
        // What counts is the clock that gave the date.
        assert_eq!(again(4, -5), micros(36));
        assert_eq!(again(30, 0), None);
        // By then a plan finds it.
        again(4, 0);
        let dirty = || state.cases().dirty_cases(None, &[], 10).unwrap().len();
        state.cases().clean(&[(17, 1)], 0).unwrap();
        assert_eq!(dirty(), 0);
        for (second, woken) in [(30, 0), (31, 1)] {
            state.stale_marks().wake_again(at(second).as_microsecond()).unwrap();
            assert_eq!(dirty(), woken, "{second}");
        }
    }

    #[test]
    fn a_search_that_was_sent_before_the_delay_was_over_hides_no_case() {
        let conn = fixture::store(None, 2026..=2026);
        let (state, settings) = (State::new(&conn), settings(Duration::from_secs(30)));
        state.cases().see_cases(&[(17, [Some(1); 11])], 1, at(0)).unwrap();
        conn.execute_batch("UPDATE sync.seen SET place = 'cases', state = 'found'").unwrap();
        let suspect = |sent: i64, now: i64| {
            let asked = Asked { sequence: 1, sent_at: at(sent) };
            state.suspects().suspect(&settings, 1, 17, asked, at(sent).into(), at(now)).unwrap()
        };
        assert!(matches!(suspect(0, 1), SuspectStep::Waiting));
        // As a listing that took longer.
        assert!(matches!(suspect(30, 40), SuspectStep::Waiting));
        assert!(matches!(suspect(31, 41), SuspectStep::Hidden(_)));
    }

    #[test]
    fn a_listing_lets_go_of_what_was_held_before_it_began() {
        let conn = fixture::store(None, 2026..=2026);
        let suspects = State::new(&conn).suspects();
        assert!(!suspects.are_held().unwrap());
        suspects.hold(at(5)).unwrap();
        suspects.let_go(at(4)).unwrap();
        assert!(suspects.are_held().unwrap(), "it was held while the cases were listed");
        suspects.let_go(at(6)).unwrap();
        assert!(!suspects.are_held().unwrap());
    }

    #[test]
    fn a_removed_case_that_moves_again_is_removed_again() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let settings = settings(Duration::from_secs(1));
        let see = |date, sequence| {
            state.cases().see_cases(&[(17, [Some(date); 11])], sequence, Timestamp::now()).unwrap();
        };
        let remove = || state.suspects().remove_case(&settings, 1, 17, Timestamp::now()).unwrap();
        see(1, 1);
        // Nobody has shown it yet: it may be too new to be known everywhere.
        assert!(matches!(remove(), SuspectStep::Waiting));
        assert!(matches!(remove(), SuspectStep::Waiting), "source.search_delay has not passed");
        conn.execute_batch("UPDATE sync.seen SET place = 'cases', state = 'found'").unwrap();
        assert!(matches!(remove(), SuspectStep::Removed(_)));
        see(2, 2);
        assert_eq!(state.cases().dirty_cases(None, &[], 10).unwrap().len(), 1);
        assert!(matches!(remove(), SuspectStep::Removed(_)));
        assert_eq!(scalar_i64(&conn, "SELECT count(*) FROM sync.failures").unwrap(), 0);
    }
}
