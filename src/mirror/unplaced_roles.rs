//! Roles that a webhook said were deleted, and of which no row shows whose they were.
//!
//! An answer that was sent before the deletion may bring such a role yet, and nothing would read its case again: the date
//! that roles follow does not move when one goes. So each waits until a row places it, or no answer that old is under way.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::hints::{Hints, scopes_of};
use super::state::State;
use crate::catalog::Catalog;
use crate::error::{Error, Kind, Result};
use crate::scope::Hint;

/// Key of `sync.meta`: the roles that wait, as JSON.
const UNPLACED: &str = "unplaced_roles";
/// No call, with all its retries, is under way for so long.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// How many wait at a time, the newest.
const MOST_ROLES: usize = 1_000;

/// When the webhook of each came.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Unplaced(BTreeMap<i64, Timestamp>);

impl Unplaced {
    pub(super) fn add(&mut self, role: i64, at: Timestamp) {
        self.0.insert(role, at);
    }
}

/// What became of the roles that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The number of the hints of those that were placed: they wait for their release like all others.
    pub(crate) hinted: Option<i64>,
    /// Some wait still.
    pub(crate) are_waiting: bool,
}

impl Hints<'_> {
    /// Roles wait beside those that do.
    pub(super) fn wait_for(&self, more: Unplaced) -> Result<()> {
        if more.0.is_empty() {
            return Ok(());
        }
        let mut all = self.unplaced()?;
        all.0.extend(more.0);
        self.keep(all)
    }

    /// Hints at the cases of those roles of which a row came since.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn place_roles(&self, catalog: &Catalog, now: Timestamp) -> Result<Placed> {
        let mut all = self.unplaced()?;
        if all.0.is_empty() {
            return Ok(Placed { hinted: None, are_waiting: false });
        }
        let roles: Vec<i64> = all.0.keys().copied().collect();
        let found = self.cases_of_roles(&roles)?;
        let mut scopes = BTreeMap::new();
        for id in found.keys() {
            let Some(at) = all.0.remove(id) else { continue };
            for scope in scopes_of(catalog, &Hint::Role { id: *id }, &found) {
                scopes.insert(scope, at);
            }
        }
        let waiting = all.0.len();
        // A clock that went back leaves none for ever.
        all.0.retain(|_, at| now.duration_since(*at).unsigned_abs() < LONGEST_WAIT);
        let are_waiting = !all.0.is_empty();
        let mut hinted = None;
        if !scopes.is_empty() {
            let state = State::new(self.conn);
            let sequence = state.sequence()? + 1;
            self.stage(&scopes, sequence)?;
            state.set_sequence(sequence)?;
            hinted = Some(sequence);
        }
        if !found.is_empty() || all.0.len() < waiting {
            self.keep(all)?;
        }
        Ok(Placed { hinted, are_waiting })
    }

    fn unplaced(&self) -> Result<Unplaced> {
        let Some(text) = State::new(self.conn).meta(UNPLACED)? else {
            return Ok(Unplaced::default());
        };
        serde_json::from_str(&text).map_err(|e| {
            Error::caused(Kind::Store, format!("{UNPLACED} in sync.meta cannot be read"), e)
        })
    }

    fn keep(&self, Unplaced(all): Unplaced) -> Result<()> {
        let mut newest: Vec<_> = all.into_iter().collect();
        newest.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        newest.truncate(MOST_ROLES);
        let text = serde_json::to_string(&Unplaced(newest.into_iter().collect()))
            .map_err(|e| Error::caused(Kind::Internal, "roles cannot be written down", e))?;
        State::new(self.conn).set_meta(UNPLACED, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;
    use crate::scope::Told;
    use crate::sql;

    #[test]
    fn a_deleted_role_waits_for_the_answer_that_brings_it_and_not_for_ever() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let catalog = Catalog::load(None).unwrap();
        let now = Timestamp::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let of_case = |case: i64| {
            let hints = format!(
                "SELECT count(*) FROM sync.hints WHERE table_name = 'case_roles' AND id = {case}"
            );
            sql::scalar_i64(&conn, &hints).unwrap()
        };
        let told =
            [(now, Told::Hint(Hint::Role { id: 70 })), (now, Told::Hint(Hint::Role { id: 71 }))];
        state.hints().take((&catalog, false), &told, 1).unwrap();
        let waits = Placed { hinted: None, are_waiting: true };
        assert_eq!(state.hints().place_roles(&catalog, later(10)).unwrap(), waits);

        let role = "INSERT INTO main.case_roles (id, case_id, _synced_at) VALUES (70, 7, now())";
        conn.execute_batch(role).unwrap();
        let placed = state.hints().place_roles(&catalog, later(20)).unwrap();
        assert!(placed.hinted.is_some() && placed.are_waiting, "{placed:?}");
        assert_eq!(of_case(7), 1);
        assert_eq!(state.hints().place_roles(&catalog, later(3_599)).unwrap(), waits);
        let over = Placed { hinted: None, are_waiting: false };
        assert_eq!(state.hints().place_roles(&catalog, later(3_600)).unwrap(), over);
    }

    #[test]
    fn of_roles_that_somebody_invents_only_so_many_wait() {
        let conn = fixture::store(None, 2026..=2026);
        let hints = State::new(&conn);
        let hints = hints.hints();
        let mut more = Unplaced::default();
        let now = Timestamp::now();
        (0..3_000).for_each(|id| more.add(id, now + Duration::from_secs(id.unsigned_abs())));
        hints.wait_for(more).unwrap();
        let kept = hints.unplaced().unwrap().0;
        assert_eq!(
            (kept.len(), kept.first_key_value().map(|(id, _)| *id)),
            (MOST_ROLES, Some(2_000))
        );
    }
}
