//! One commit: decoded scopes go into the tables together with the state that says so, in one
//! transaction.
//!
//! A statement costs much the same for one scope as for a thousand, and a first load brings a few scopes
//! of many tables at a time. So what can be written for all tables at once is collected and written at
//! the end, and what only some answers need is staged when it is needed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::changes::{Touched, count_changed};
use super::first_load::{self, KnownScopes};
use super::forgetting;
use super::freshness;
use super::guard;
use super::hints;
use super::journals;
use super::load::{Outcome, Settings};
use super::merge::{self, Merged, Rules};
use super::noting::{self, Noting};
use super::rejects;
use super::removal;
use super::search;
use super::state::State;
use crate::catalog::{Group, Resource};
use crate::decode::{Decoded, Forgotten, Learned, Load, LoadKind, LoadedScope};
use crate::error::Result;
use crate::scope::Place;
use crate::sql::{self, db, instant, instant_param, query};

/// New fields of a table that are told; their values are in `_extra` all the same.
const MOST_DRIFT: usize = 1_000;

/// What a commit did.
pub(super) struct Applied {
    pub(super) outcome: Outcome,
    /// The list of forgotten persons to go by when it is committed, where it learned more of one.
    pub(super) list: Option<Forgotten>,
}

/// Applies loads within the writer's open transaction. `now` is this commit's time, `list` what is kept out, and `known`
/// what earlier commits of this process brought.
pub(super) fn apply(
    conn: &Connection,
    settings: &Settings,
    run_id: i64,
    now: Timestamp,
    loads: Vec<Load>,
    list: &Forgotten,
    known: &mut KnownScopes,
) -> Result<Applied> {
    let learned: Vec<Learned> =
        loads.iter().flat_map(|load| load.decoded.all_learned()).cloned().collect();
    let mut groups: Vec<LoadGroup> = Vec::new();
    for mut load in loads {
        // It may have waited while more was learned.
        load.decoded.catch_up(list)?;
        match groups.iter_mut().rfind(|group| group.table() == load.decoded.resource.table) {
            Some(group) if group.takes(&load) => group.add(load),
            // In its turn: of two answers for one scope the later is merged with what the first left.
            _ => groups.push(LoadGroup::of(load)),
        }
    }
    let mut commit = Commit {
        conn,
        settings,
        run_id,
        now,
        known,
        outcome: Outcome::default(),
        noting: Noting::new(conn, now),
        is_staged: false,
        answered: BTreeSet::new(),
        changed: BTreeMap::new(),
        drift: BTreeMap::new(),
        open_rejects: None,
    };
    for group in groups {
        commit.apply(group.loads)?;
    }
    let outcome = commit.finish()?;
    // After the rows of others have come: what is the same in all of them tells of nobody.
    let list = if learned.is_empty() {
        None
    } else {
        forgetting::learn(conn, &settings.catalog, list, &learned)?
    };
    Ok(Applied { outcome, list })
}

/// Loads of one table and kind that are merged together, because they share neither scope nor row.
struct LoadGroup {
    loads: Vec<Load>,
    scopes: HashSet<(i64, String)>,
    /// A record says itself which scope it is of, and one is of a scope that its load did not ask for:
    /// another answer may have it too.
    has_strays: bool,
}

impl LoadGroup {
    fn of(load: Load) -> LoadGroup {
        let has_strays = first_load::has_strays(&load);
        let mut group = LoadGroup { loads: Vec::new(), scopes: HashSet::new(), has_strays };
        group.add(load);
        group
    }

    fn table(&self) -> &str {
        self.loads.first().map_or("", |load| &load.decoded.resource.table)
    }

    fn takes(&self, load: &Load) -> bool {
        self.loads.first().is_some_and(|first| first.kind == load.kind)
            && !(self.has_strays || first_load::has_strays(load))
            && load.scopes.iter().all(|s| !self.scopes.contains(&(s.id, s.part.clone())))
    }

    fn add(&mut self, load: Load) {
        self.scopes.extend(load.scopes.iter().map(|s| (s.id, s.part.clone())));
        self.loads.push(load);
    }
}

struct Commit<'a> {
    conn: &'a Connection,
    settings: &'a Settings,
    run_id: i64,
    now: Timestamp,
    known: &'a mut KnownScopes,
    outcome: Outcome,
    noting: Noting<'a>,
    /// Whether the scopes of the loads that are being applied are in `temp.stage_scopes`.
    is_staged: bool,
    /// Tables of which an answer came that was no 404.
    answered: BTreeSet<String>,
    /// Tables, journals aside, of which a row was written, and whose.
    changed: BTreeMap<String, Touched>,
    /// Fields that no column takes, with an example of each: by table and field.
    drift: BTreeMap<(String, String), Option<String>>,
    /// Tables that may have open rejects; `None` until they are asked for.
    open_rejects: Option<BTreeSet<String>>,
}

impl Commit<'_> {
    fn apply(&mut self, mut loads: Vec<Load>) -> Result<()> {
        let Some(first) = loads.first() else { return Ok(()) };
        let resource = Arc::clone(&first.decoded.resource);
        let kind = first.kind;
        if loads.iter().any(|load| !load.not_found) {
            self.answered.insert(resource.table.clone());
        }
        self.is_staged = false;
        let mut are_named = false;
        if kind == LoadKind::Unchanged {
            return self.note_unchanged(&resource, &loads);
        }
        let (conn, settings, run_id, now) = (self.conn, self.settings, self.run_id, self.now);
        if kind == LoadKind::Journal {
            self.stage(&loads)?;
            let outcome = &mut self.outcome;
            let applied = journals::apply(conn, settings, &resource, &loads, run_id, now, outcome)?;
            // What is doubted says nothing of what did not fit.
            let is_doubted = |l: &Load| {
                l.scopes.iter().any(|s| applied.doubted.contains(&(s.id, s.part.clone())))
            };
            loads.retain(|load| !is_doubted(load));
            are_named = applied.are_named;
        } else {
            self.apply_scopes(&resource, &loads)?;
        }
        self.note_rejects(&resource, &loads, are_named)?;
        // After the rejects: a condition whose value did not fit decides nothing.
        self.take_unfulfilled(&resource, &loads)?;
        self.take_late(&resource, &loads)?;
        let drift = loads.iter().flat_map(|load| load.decoded.all_drift());
        for drift in drift {
            self.drift.entry((drift.table, drift.field)).or_insert(drift.example);
        }
        if let LoadKind::Search { place, answered_at } = kind {
            self.stage(&loads)?;
            let hinted = match place {
                Place::Contacts => hints::of_searched_contacts(conn, settings.contacts_feed)?,
                Place::Cases | Place::Projects => Vec::new(),
            };
            self.noting.write()?;
            search::again_after_hints(conn, &hinted, settings.search_delay)?;
            let outcome = &mut self.outcome;
            search::after_search(
                conn,
                settings,
                &resource,
                place,
                answered_at,
                run_id,
                now,
                outcome,
            )?;
        }
        Ok(())
    }

    /// Notes scopes whose answers were not decoded, because their rows are what these say.
    fn note_unchanged(&mut self, resource: &Resource, loads: &[Load]) -> Result<()> {
        if let Group::Journal(_) = resource.group {
            self.stage(loads)?;
            return journals::note_unchanged(self.conn, self.settings, resource, loads, self.now);
        }
        let scopes = loads.iter().flat_map(|load| &load.scopes);
        self.noting.add_unchanged(&resource.table, scopes)?;
        self.take_unfulfilled(resource, loads)
    }

    /// Cases that tables under a condition on this one are no longer about leave those.
    fn take_unfulfilled(&mut self, resource: &Resource, loads: &[Load]) -> Result<()> {
        let (conn, settings, run_id, now) = (self.conn, self.settings, self.run_id, self.now);
        let tables = [resource.table.as_str()];
        let is_looked_at = removal::conditional(settings, &tables).next().is_some();
        if resource.group != Group::Case || !is_looked_at {
            return Ok(());
        }
        self.stage(loads)?;
        self.noting.write()?;
        removal::unfulfilled(conn, settings, &tables, run_id, now, &mut self.outcome)
    }

    /// Cases that a table under a condition is not about leave it again where their answer came late: it was asked for
    /// before what the condition looks at was.
    fn take_late(&mut self, resource: &Resource, loads: &[Load]) -> Result<()> {
        let (Some(only), true) = (&resource.condition, self.changed.contains_key(&resource.table))
        else {
            return Ok(());
        };
        let (conn, settings, run_id, now) = (self.conn, self.settings, self.run_id, self.now);
        self.stage(loads)?;
        self.noting.write()?;
        removal::late(conn, settings, (resource, only), run_id, now, &mut self.outcome)
    }

    /// Makes scopes equal to their answers, and notes what was fetched.
    fn apply_scopes(&mut self, resource: &Arc<Resource>, loads: &[Load]) -> Result<()> {
        let scopes: HashSet<i64> =
            loads.iter().flat_map(|load| load.scopes.iter().map(|scope| scope.id)).collect();
        let decoded: Vec<&Decoded> = loads.iter().map(|load| &load.decoded).collect();
        let mut held = self.merge(resource, loads, &decoded, &scopes)?;
        let children = loads.first().map_or(0, |load| load.decoded.children.len());
        for n in 0..children {
            let of_child: Vec<&Decoded> =
                loads.iter().map(|load| &load.decoded.children[n]).collect();
            let child = Arc::clone(&of_child[0].resource);
            held += self.merge(&child, loads, &of_child, &scopes)?;
        }
        let answered: Vec<(&LoadedScope, bool)> = loads
            .iter()
            .flat_map(|load| load.scopes.iter().map(move |s| (s, is_complete(load, s))))
            .collect();
        if held > 0 || answered.iter().any(|(_, complete)| !complete) {
            // It says what is held, if anything.
            self.stage(loads)?;
        }
        self.noting.add(&resource.table, answered.into_iter(), held > 0)?;
        let (conn, settings, run_id, now) = (self.conn, self.settings, self.run_id, self.now);
        if held > 0
            && let Some(limits) = settings.limits(now)
        {
            let missing = loads.iter().filter(|load| !load.missing.is_empty());
            let missing = missing
                .flat_map(|load| load.scopes.iter().map(|s| (s.id, load.missing.as_slice())))
                .collect();
            let table = &resource.table;
            guard::note_held(conn, table, &missing, run_id, limits, &mut self.outcome)?;
        }
        Ok(())
    }

    /// Makes the rows of one table equal to those of the answers. Returns how many that would leave are
    /// held.
    fn merge(
        &mut self,
        resource: &Resource,
        loads: &[Load],
        decoded: &[&Decoded],
        scopes: &HashSet<i64>,
    ) -> Result<u64> {
        let is_fresh = match self.known.is_fresh(self.conn, resource, decoded, scopes)? {
            Some(is_fresh) => is_fresh,
            None => {
                self.stage(loads)?;
                first_load::is_fresh(self.conn, resource)?
            }
        };
        let (merged, touched) = if is_fresh {
            let inserted = first_load::insert(self.conn, resource, decoded, self.now)?;
            let touched = || Ok(Touched::scopes(resource, scopes.iter().copied()));
            (inserted, self.settings.touched(touched)?)
        } else {
            self.stage(loads)?;
            self.compare(resource, decoded)?
        };
        if merged.changed() {
            let touched = match self.changed.remove(&resource.table) {
                Some(before) => before.and(touched),
                None => touched,
            };
            self.changed.insert(resource.table.clone(), touched);
        }
        self.outcome.note(&resource.table, merged);
        Ok(merged.held)
    }

    fn compare(&self, resource: &Resource, decoded: &[&Decoded]) -> Result<(Merged, Touched)> {
        let (conn, settings) = (self.conn, self.settings);
        let failed = |e| db(&format!("cannot stage rows of {}", resource.table), e);
        merge::stage_rows(conn, resource, decoded)?;
        let rules = Rules {
            history: settings.keeps_history(&resource.table),
            limits: settings.limits(self.now),
            withheld: resource.partial.is_some()
                && State::new(conn).stale_marks().is_withheld(&resource.table)?,
        };
        let redefined = settings.redefined(conn, &resource.table)?;
        let merged = merge::merge(conn, resource, rules, redefined, &instant(self.now))?;
        let touched = if merged.changed() {
            settings.touched(|| merge::touched(conn, resource))?
        } else {
            Touched::Any
        };
        conn.execute_batch(&format!("DROP TABLE temp.{}", merge::stage_name(resource)))
            .map_err(failed)?;
        Ok((merged, touched))
    }

    /// `are_named`: lines of a journal may have another name than their place.
    fn note_rejects(&mut self, resource: &Resource, loads: &[Load], are_named: bool) -> Result<()> {
        let rejects = rejects::of(loads);
        let tables = rejects::tables(resource, loads);
        let conn = self.conn;
        let open = match &mut self.open_rejects {
            Some(open) => open,
            unknown => unknown.insert(rejects::tables_with_open(conn)?),
        };
        if rejects.is_empty() && open.is_disjoint(&tables) {
            return Ok(());
        }
        open.extend(tables.iter().cloned());
        self.stage(loads)?;
        rejects::stage(conn, &rejects)?;
        if are_named {
            rejects::name_lines(conn)?;
        }
        rejects::note(conn, resource, loads, &tables, self.run_id, self.now)
    }

    /// Fills `temp.stage_scopes` with the scopes of the loads that are being applied, and begins to
    /// collect what is held of them, unless that was done.
    fn stage(&mut self, loads: &[Load]) -> Result<()> {
        if std::mem::replace(&mut self.is_staged, true) {
            return Ok(());
        }
        stage_scopes(self.conn, loads)?;
        guard::begin(self.conn)
    }

    /// Writes what was collected for all tables.
    fn finish(mut self) -> Result<Outcome> {
        self.noting.write()?;
        count_changed(self.conn, &self.changed, self.settings.notes_scopes)?;
        let tables = self.outcome.tables.iter();
        let written = tables.filter(|(_, merged)| merged.wrote_versions());
        let written = written.map(|(table, _)| table.as_str()).collect();
        freshness::note(self.conn, &written, &self.noting.tables(), self.now)?;
        self.note_answered()?;
        self.note_drift()?;
        Ok(self.outcome)
    }

    fn note_answered(&self) -> Result<()> {
        if self.answered.is_empty() {
            return Ok(());
        }
        self.conn
            .execute_batch(&format!(
                "UPDATE sync.resources SET answered = true \
                 WHERE NOT answered AND table_name IN ({})",
                sql::texts(self.answered.iter().map(String::as_str))
            ))
            .map_err(|e| db("cannot note which tables answered", e))
    }

    fn note_drift(&self) -> Result<()> {
        if self.drift.is_empty() {
            return Ok(());
        }
        let noted = query(self.conn, "SELECT table_name, field FROM sync.drift", |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        let noted: BTreeSet<(String, String)> = noted.into_iter().collect();
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for (table, _) in &noted {
            *count.entry(table).or_default() += 1;
        }
        for (field, example) in self.drift.iter().filter(|(field, _)| !noted.contains(field)) {
            let of_table = count.entry(&field.0).or_default();
            if *of_table == MOST_DRIFT {
                tracing::warn!(
                    table = field.0,
                    "sync.drift has {MOST_DRIFT} fields of the table, and takes no more; all values are in _extra"
                );
            }
            *of_table += 1;
            if *of_table > MOST_DRIFT {
                continue;
            }
            self.conn
                .execute(
                    "INSERT INTO sync.drift VALUES (?, ?, ?, ?::TIMESTAMPTZ)",
                    params![field.0, field.1, example, instant_param(self.now)],
                )
                .map_err(|e| db("cannot note a new field", e))?;
        }
        Ok(())
    }
}

/// Fills `temp.stage_scopes`.
fn stage_scopes(conn: &Connection, loads: &[Load]) -> Result<()> {
    let scopes = loads.iter().flat_map(|load| {
        let table = load.decoded.resource.table.as_str();
        load.scopes.iter().map(move |scope| (table, scope, is_complete(load, scope)))
    });
    noting::stage(conn, "stage_scopes", scopes)
}

/// Whether all rows of a scope are in its load.
fn is_complete(load: &Load, scope: &LoadedScope) -> bool {
    // Each id of a search is a scope of its own, and its row is there.
    let is_search = matches!(load.kind, LoadKind::Search { .. });
    scope.complete && (is_search || !load.decoded.any_without_key())
}

#[cfg(test)]
mod tests;
