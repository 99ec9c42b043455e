//! Which search shows a case, and whether one does (`sync.seen`: place and state).

use std::collections::BTreeSet;

use super::fetched::rows_of;
use super::{State, batch, ids, list};
use crate::error::Result;
use crate::mirror::ResourceRow;
use crate::scope::{FailureKind, Place, Standing, TableStatus};
use crate::sql::{self, instant, query, scalar_i64};
use duckdb::Connection;
use jiff::Timestamp;

/// A table that is refused is no failure; that nothing is known of any case is one.
const NEVER_LISTED: &str = "the cases were never listed: neither search of them can be read, and nothing is published \
     before the first complete listing (`resources.disable` takes both out, where that is meant)";

/// Which search shows a case, and whether one does.
pub(crate) struct Standings<'c> {
    pub(in crate::mirror) conn: &'c Connection,
}

impl Standings<'_> {
    /// Cases that are in a mirrored search table, or known to be `hidden`, and are not in this
    /// listing: `listed` names a temporary table with a column `id`.
    ///
    /// `places` are the searches that were listed, the first call of which was sent at `since`: what the
    /// other one shows is not known, nor do they say anything of what was searched by its id later.
    pub(crate) fn suspects(
        &self,
        listed: &str,
        hidden: bool,
        places: &[Place],
        since: Timestamp,
    ) -> Result<Vec<i64>> {
        // One that no search ever showed is followed like a hidden one.
        let of = if hidden {
            format!("state = '{}'", Standing::Hidden)
        } else {
            format!("state IS DISTINCT FROM '{}' AND place IS NOT NULL", Standing::Hidden)
        };
        let places = sql::texts(places.iter().map(|place| place.table()));
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE stage_unlisted AS \
                 SELECT case_id AS id FROM sync.seen s WHERE NOT removed AND {of} \
                   AND (place IS NULL OR place IN ({places})) \
                   AND NOT EXISTS (SELECT 1 FROM {listed} l WHERE l.id = s.case_id)"
            ),
        )?;
        ids(
            self.conn,
            &format!(
                "SELECT id FROM temp.stage_unlisted WHERE id NOT IN \
                   (SELECT id FROM ({}) WHERE table_name IN ('cases', 'projects') \
                      AND sent_at > {} AND sent_at <= {}) \
                 ORDER BY id",
                rows_of("SELECT id FROM temp.stage_unlisted"),
                instant(since),
                // What a clock that was ahead has sent lies before it.
                instant(Timestamp::now().max(since))
            ),
        )
    }

    /// How many cases the mirror would lose if these, which no search shows, left it with those that
    /// no search has shown of late.
    pub(crate) fn leaving(&self, ids: &[i64]) -> Result<i64> {
        if ids.is_empty() {
            return Ok(0);
        }
        scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.seen s WHERE {} AND (case_id IN ({}) OR EXISTS \
                     (SELECT 1 FROM sync.failures x WHERE x.id = s.case_id \
                        AND x.table_name IN ('cases', 'projects') \
                        AND x.kind IN ({})))",
                is_shown(),
                list(ids),
                FailureKind::names(&[FailureKind::Suspect, FailureKind::Held]),
            ),
        )
    }

    /// Whether the cases have been listed completely once; where both searches of them are disabled, there is
    /// nothing to list. One that is refused is no such thing: it may be a fault on the way.
    pub(crate) fn are_listed(&self) -> Result<bool> {
        if State::new(self.conn).meta("listed_at")?.is_some() {
            return Ok(true);
        }
        let is_disabled = |row: &ResourceRow| row.status == TableStatus::Disabled;
        Ok(self.searches()?.iter().all(|search| search.as_ref().is_some_and(is_disabled)))
    }

    /// What is wrong where the cases were never listed, and no search of them can be read.
    pub(crate) fn listing_problem(&self) -> Result<Option<String>> {
        if self.are_listed()? {
            return Ok(None);
        }
        let is_refused = |row: &ResourceRow| !row.is_asked();
        let refused = self.searches()?.iter().all(|search| search.as_ref().is_some_and(is_refused));
        Ok(refused.then(|| NEVER_LISTED.to_owned()))
    }

    fn searches(&self) -> Result<[Option<ResourceRow>; 2]> {
        let mut tables = State::new(self.conn).statuses().all()?;
        Ok([Place::Cases, Place::Projects].map(|place| tables.remove(place.table())))
    }

    fn searches_that_are_read(&self) -> Result<impl Fn(Place) -> bool> {
        let tables = State::new(self.conn).statuses().all()?;
        Ok(move |place: Place| tables.get(place.table()).is_some_and(ResourceRow::is_asked))
    }

    /// The search in which a case is looked for first.
    pub(crate) fn place(&self, id: i64) -> Result<Place> {
        let rows = sql::query(
            self.conn,
            &format!("SELECT place FROM sync.seen WHERE case_id = {id}"),
            |row| row.get::<_, Option<String>>(0),
        )?;
        let place = rows.into_iter().next().flatten();
        match place.as_deref().and_then(Place::parse) {
            Some(place) => Ok(place),
            None => Ok(Place::first(self.searches_that_are_read()?)),
        }
    }

    /// The cases that this search has shown and that are not gone.
    pub(crate) fn cases_in(&self, place: Place) -> Result<Vec<i64>> {
        self.cases_that(place, "NOT removed")
    }

    /// Those of them that the mirror shows: they are not hidden.
    pub(crate) fn shown_in(&self, place: Place) -> Result<Vec<i64>> {
        let hidden = Standing::Hidden;
        self.cases_that(place, &format!("NOT removed AND state IS DISTINCT FROM '{hidden}'"))
    }

    fn cases_that(&self, place: Place, condition: &str) -> Result<Vec<i64>> {
        let place = sql::text(place.table());
        let sql = format!("SELECT case_id FROM sync.seen WHERE place = {place} AND {condition}");
        ids(self.conn, &sql)
    }

    /// How many cases the mirror shows.
    pub(crate) fn shown_cases(&self) -> Result<i64> {
        scalar_i64(self.conn, &format!("SELECT count(*) FROM sync.seen WHERE {}", is_shown()))
    }

    /// Of these cases those that a search shows.
    pub(crate) fn shown_of(&self, ids: &[i64]) -> Result<BTreeSet<i64>> {
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let shown = query(
            self.conn,
            &format!(
                "SELECT case_id FROM sync.seen WHERE {} AND case_id IN ({})",
                is_shown(),
                list(ids),
            ),
            |row| row.get(0),
        )?;
        Ok(shown.into_iter().collect())
    }

    /// Some other cases that a search shows, and of which nothing else is known.
    pub(crate) fn shown_beside(&self, id: i64, most: usize) -> Result<Vec<i64>> {
        query(
            self.conn,
            &format!(
                "SELECT case_id FROM sync.seen s WHERE {} AND state IS DISTINCT FROM '{}' \
                   AND case_id <> {id} AND NOT EXISTS (SELECT 1 FROM sync.failures x WHERE x.id = s.case_id \
                      AND x.table_name IN ('cases', 'projects')) \
                 ORDER BY case_id DESC LIMIT {most}",
                is_shown(),
                Standing::Suspect,
            ),
            |row| row.get(0),
        )
    }

    /// Whether a search has shown the case, and it is not known to be gone.
    pub(crate) fn case_is_shown(&self, id: i64) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.seen WHERE case_id = {id} AND NOT removed \
                   AND place IS NOT NULL"
            ),
        )? > 0)
    }
}

/// Of a row of `sync.seen`: whether a search shows the case.
fn is_shown() -> String {
    format!("NOT removed AND place IS NOT NULL AND state IS DISTINCT FROM '{}'", Standing::Hidden)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn a_listing_says_nothing_of_what_was_searched_after_it_began() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let at = |second: i64| Timestamp::from_second(1_790_000_000 + second).unwrap();
        for (id, standing, sent) in
            [(17, "found", 1), (18, "found", 3), (19, "hidden", 1), (20, "hidden", 3)]
        {
            conn.execute_batch(&format!(
                "INSERT INTO sync.seen BY NAME SELECT {id} AS case_id, 'cases' AS place, \
                   '{standing}' AS state, false AS removed; \
                 INSERT INTO sync.fetched_scopes BY NAME SELECT 'cases' AS table_name, {id} AS id, \
                   '' AS part, {} AS sent_at",
                instant(at(sent))
            ))
            .unwrap();
        }
        state.stage_ids("listed", &[]).unwrap();
        let lacking = |hidden| {
            state.standings().suspects("temp.listed", hidden, &[Place::Cases], at(2)).unwrap()
        };
        assert_eq!([lacking(false), lacking(true)], [[17], [19]]);
    }
}
