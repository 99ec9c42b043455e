//! Decoded scopes go into the tables together with the state that says so, in one transaction.

use crate::decode::{Load, LoadKind, LoadedScope};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::align::{self, Redefined};
use super::first_load;
use super::guard::{self, Limits};
use super::journals;
use super::merge::{self, Merged, Rules};
use super::noting::{self, Noting};
use super::rejects;
use super::removal;
use super::search;
use super::state::State;
use crate::catalog::{Catalog, Group, Resource};
use crate::config::{Config, HistoryTables};
use crate::decode::Decoded;
use crate::error::Result;
use crate::sql::{self, db, instant, instant_param};

/// What loading did, per table.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub tables: BTreeMap<String, Merged>,
    /// Scopes of which the guard or a doubt holds rows: table and id.
    pub(crate) held: Vec<(String, i64)>,
}

impl Outcome {
    /// Adds another outcome's figures.
    pub(crate) fn add(&mut self, other: &Outcome) {
        for (table, merged) in &other.tables {
            self.tables.entry(table.clone()).or_default().add(*merged);
        }
        self.held.extend(other.held.iter().cloned());
    }

    pub(super) fn note(&mut self, table: &str, merged: Merged) {
        self.tables.entry(table.to_owned()).or_default().add(merged);
    }
}

/// What loading needs to know beside the loads.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) history: HistoryTables,
    pub(crate) max_removed: Option<f64>,
    pub(crate) search_delay: std::time::Duration,
    /// `source.doubt`.
    pub(crate) doubt: std::time::Duration,
    /// Zone of the source's local times.
    pub(crate) zone: jiff::tz::TimeZone,
    /// `journals.close_day`.
    pub(crate) close_day: u32,
    /// `store.threads`.
    pub(crate) threads: Option<usize>,
    /// See [`align::redefined`]; it only changes when the store is opened.
    pub(super) redefined: Arc<OnceLock<Redefined>>,
}

impl Settings {
    /// `allow_removals` lifts the guard and all doubts.
    pub fn new(config: &Config, catalog: &Arc<Catalog>, allow_removals: bool) -> Settings {
        Settings {
            catalog: Arc::clone(catalog),
            history: config.history.tables.clone(),
            max_removed: (!allow_removals).then_some(config.reconcile.max_removed),
            search_delay: config.source.search_delay,
            doubt: config.source.doubt,
            zone: config.source.time_zone.clone(),
            close_day: config.journals.close_day,
            threads: config.store.threads,
            redefined: Arc::default(),
        }
    }

    /// What holds removals back, unless that is lifted.
    pub(super) fn limits(&self, now: Timestamp) -> Option<Limits> {
        self.max_removed.map(|max_removed| Limits { max_removed, doubt: self.doubt, now })
    }

    /// The columns of a table whose definition is newer than the table, and since which generation.
    pub(super) fn redefined(&self, conn: &Connection, table: &str) -> Result<&[(String, i64)]> {
        let all = match self.redefined.get() {
            Some(all) => all,
            None => {
                let all = align::redefined(conn)?;
                self.redefined.get_or_init(|| all)
            }
        };
        Ok(all.get(table).map_or(&[], Vec::as_slice))
    }

    pub(super) fn keeps_history(&self, table: &str) -> bool {
        match &self.history {
            HistoryTables::All => true,
            HistoryTables::These(tables) => tables.iter().any(|t| t == table),
        }
    }
}

/// Applies loads within the writer's open transaction. `now` is this commit's time.
pub(super) fn apply(
    conn: &Connection,
    settings: &Settings,
    run_id: i64,
    now: Timestamp,
    loads: Vec<Load>,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut groups: Vec<LoadGroup> = Vec::new();
    for load in loads {
        match groups.iter_mut().rfind(|group| group.table() == load.decoded.resource.table) {
            Some(group) if group.takes(&load) => group.add(load),
            // In its turn: of two answers for one scope the later is merged with what the first left.
            _ => groups.push(LoadGroup::of(load)),
        }
    }
    let mut answered: BTreeSet<String> = BTreeSet::new();
    let mut noting = Noting::new(conn, now);
    for group in groups {
        if group.loads.iter().any(|load| !load.not_found) {
            answered.insert(group.table().to_owned());
        }
        apply_table(conn, settings, run_id, now, group.loads, &mut noting, &mut outcome)?;
    }
    noting.write()?;
    note_answered(conn, &answered)?;
    Ok(outcome)
}

fn note_answered(conn: &Connection, tables: &BTreeSet<String>) -> Result<()> {
    if tables.is_empty() {
        return Ok(());
    }
    conn.execute_batch(&format!(
        "UPDATE sync.resources SET answered = true WHERE NOT answered AND table_name IN ({})",
        sql::texts(tables.iter().map(String::as_str))
    ))
    .map_err(|e| db("cannot note which tables answered", e))
}

/// Loads of one table and kind that are merged together, because they share no scope.
struct LoadGroup {
    loads: Vec<Load>,
    scopes: HashSet<(i64, String)>,
}

impl LoadGroup {
    fn of(load: Load) -> LoadGroup {
        let mut group = LoadGroup { loads: Vec::new(), scopes: HashSet::new() };
        group.add(load);
        group
    }

    fn table(&self) -> &str {
        self.loads.first().map_or("", |load| &load.decoded.resource.table)
    }

    fn takes(&self, load: &Load) -> bool {
        self.loads.first().is_some_and(|first| first.kind == load.kind)
            && load.scopes.iter().all(|s| !self.scopes.contains(&(s.id, s.part.clone())))
    }

    fn add(&mut self, load: Load) {
        self.scopes.extend(load.scopes.iter().map(|s| (s.id, s.part.clone())));
        self.loads.push(load);
    }
}

fn apply_table(
    conn: &Connection,
    settings: &Settings,
    run_id: i64,
    now: Timestamp,
    mut loads: Vec<Load>,
    noting: &mut Noting<'_>,
    outcome: &mut Outcome,
) -> Result<()> {
    let Some(first) = loads.first() else { return Ok(()) };
    let resource = Arc::clone(&first.decoded.resource);
    let kind = first.kind;
    stage_scopes(conn, &loads)?;
    if kind == LoadKind::Journal {
        let doubted = journals::apply(conn, settings, &resource, &loads, run_id, now, outcome)?;
        // What is doubted says nothing of what did not fit.
        loads.retain(|load| !load.scopes.iter().any(|s| doubted.contains(&(s.id, s.part.clone()))));
    } else {
        apply_scopes(conn, settings, &loads, run_id, now, noting, outcome)?;
    }
    rejects::note(conn, &resource, &loads, run_id, now)?;
    note_drift(conn, &loads, now)?;
    if let LoadKind::Search { place, answered_at } = kind {
        noting.write()?;
        search::after_search(conn, settings, &resource, place, answered_at, run_id, now, outcome)?;
    }
    Ok(())
}

/// Makes the staged scopes equal to their answers, and notes what was fetched.
fn apply_scopes(
    conn: &Connection,
    settings: &Settings,
    loads: &[Load],
    run_id: i64,
    now: Timestamp,
    noting: &mut Noting<'_>,
    outcome: &mut Outcome,
) -> Result<()> {
    let Some(first) = loads.first() else { return Ok(()) };
    let resource = &first.decoded.resource;
    guard::begin(conn)?;
    let scopes: HashSet<i64> =
        loads.iter().flat_map(|load| load.scopes.iter().map(|scope| scope.id)).collect();
    let decoded: Vec<&Decoded> = loads.iter().map(|load| &load.decoded).collect();
    let merged = merge_table(conn, settings, resource, &decoded, &scopes, now)?;
    outcome.note(&resource.table, merged);
    let mut held = merged.held;
    for n in 0..first.decoded.children.len() {
        let of_child: Vec<&Decoded> = loads.iter().map(|load| &load.decoded.children[n]).collect();
        let child = Arc::clone(&of_child[0].resource);
        let merged = merge_table(conn, settings, &child, &of_child, &scopes, now)?;
        outcome.note(&child.table, merged);
        held += merged.held;
    }
    let answered = loads
        .iter()
        .flat_map(|load| load.scopes.iter().map(move |scope| (scope, is_complete(load, scope))));
    noting.add(&resource.table, answered, held > 0)?;
    if held > 0
        && let Some(limits) = settings.limits(now)
    {
        guard::note_held(conn, &resource.table, run_id, limits, outcome)?;
    }
    let tables = [resource.table.as_str()];
    if resource.group == Group::Case && removal::conditional(settings, &tables).next().is_some() {
        noting.write()?;
        removal::unfulfilled(conn, settings, &tables, run_id, now, outcome)?;
    }
    Ok(())
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

fn merge_table(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    decoded: &[&Decoded],
    scopes: &HashSet<i64>,
    now: Timestamp,
) -> Result<Merged> {
    let merged = if first_load::is_fresh(conn, resource, decoded, scopes)? {
        first_load::insert(conn, resource, decoded, now)?
    } else {
        compare_table(conn, settings, resource, decoded, now)?
    };
    if merged.changed() {
        count_changes(conn, &resource.table, [""])?;
    }
    Ok(merged)
}

fn compare_table(
    conn: &Connection,
    settings: &Settings,
    resource: &Resource,
    decoded: &[&Decoded],
    now: Timestamp,
) -> Result<Merged> {
    let failed = |e| db(&format!("cannot stage rows of {}", resource.table), e);
    merge::stage_rows(conn, resource, decoded)?;
    let rules = Rules {
        history: settings.keeps_history(&resource.table),
        limits: settings.limits(now),
        withheld: resource.partial.is_some()
            && State::new(conn).stale_marks().is_withheld(&resource.table)?,
    };
    let redefined = settings.redefined(conn, &resource.table)?;
    let merged = merge::merge(conn, resource, rules, redefined, &instant(now))?;
    conn.execute_batch(&format!("DROP TABLE temp.{}", merge::stage_name(resource)))
        .map_err(failed)?;
    Ok(merged)
}

/// Moves the change counters by which snapshots link unchanged files
/// (docs/architecture.md, "Published means finished"); `parts` are the months of a journal's table, of
/// another nothing.
pub(super) fn count_changes(
    conn: &Connection,
    table: &str,
    parts: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<()> {
    let parts: Vec<String> =
        parts.into_iter().map(|part| format!("({})", sql::text(part.as_ref()))).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let name = sql::text(table);
    let parts = parts.join(", ");
    conn.execute_batch(&format!(
        "UPDATE sync.changes SET counter = counter + 1 \
           WHERE table_name = {name} AND part IN (SELECT part FROM (VALUES {parts}) p(part)); \
         INSERT INTO sync.changes SELECT {name}, part, 1 FROM (VALUES {parts}) p(part) \
           WHERE part NOT IN (SELECT part FROM sync.changes WHERE table_name = {name})"
    ))
    .map_err(|e| db("cannot count a change", e))
}

fn note_drift(conn: &Connection, loads: &[Load], now: Timestamp) -> Result<()> {
    for load in loads {
        for drift in load.decoded.all_drift() {
            conn.execute(
                "INSERT INTO sync.drift SELECT ?1, ?2, ?3, ?4::TIMESTAMPTZ WHERE NOT EXISTS \
                 (SELECT 1 FROM sync.drift WHERE table_name = ?1 AND field = ?2)",
                params![drift.table, drift.field, drift.example, instant_param(now)],
            )
            .map_err(|e| db("cannot note a new field", e))?;
        }
    }
    Ok(())
}
