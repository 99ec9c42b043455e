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

use super::first_load::{self, KnownScopes};
use super::freshness;
use super::guard;
use super::journals;
use super::load::{Outcome, Settings, count_changed};
use super::merge::{self, Merged, Rules};
use super::noting::{self, Noting};
use super::rejects;
use super::removal;
use super::search;
use super::state::State;
use crate::catalog::{Group, Resource};
use crate::decode::{Decoded, Load, LoadKind, LoadedScope};
use crate::error::Result;
use crate::sql::{self, db, instant, instant_param, query};

/// Applies loads within the writer's open transaction. `now` is this commit's time, `known` what
/// earlier commits of this process brought.
pub(super) fn apply(
    conn: &Connection,
    settings: &Settings,
    run_id: i64,
    now: Timestamp,
    loads: Vec<Load>,
    known: &mut KnownScopes,
) -> Result<Outcome> {
    let mut groups: Vec<LoadGroup> = Vec::new();
    for load in loads {
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
        changed: BTreeSet::new(),
        drift: BTreeMap::new(),
        open_rejects: None,
    };
    for group in groups {
        commit.apply(group.loads)?;
    }
    commit.finish()
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
    /// Tables, journals aside, of which a row was written.
    changed: BTreeSet<String>,
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
        if kind == LoadKind::Unchanged {
            return self.note_unchanged(&resource, &loads);
        }
        let (conn, settings, run_id, now) = (self.conn, self.settings, self.run_id, self.now);
        if kind == LoadKind::Journal {
            self.stage(&loads)?;
            let outcome = &mut self.outcome;
            let doubted = journals::apply(conn, settings, &resource, &loads, run_id, now, outcome)?;
            // What is doubted says nothing of what did not fit.
            loads.retain(|l| !l.scopes.iter().any(|s| doubted.contains(&(s.id, s.part.clone()))));
        } else {
            self.apply_scopes(&resource, &loads)?;
        }
        self.note_rejects(&resource, &loads)?;
        let drift = loads.iter().flat_map(|load| load.decoded.all_drift());
        for drift in drift {
            self.drift.entry((drift.table, drift.field)).or_insert(drift.example);
        }
        if let LoadKind::Search { place, answered_at } = kind {
            self.stage(&loads)?;
            self.noting.write()?;
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
            guard::note_held(conn, &resource.table, run_id, limits, &mut self.outcome)?;
        }
        self.take_unfulfilled(resource, loads)
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
        let merged = if is_fresh {
            first_load::insert(self.conn, resource, decoded, self.now)?
        } else {
            self.stage(loads)?;
            self.compare(resource, decoded)?
        };
        if merged.changed() {
            self.changed.insert(resource.table.clone());
        }
        self.outcome.note(&resource.table, merged);
        Ok(merged.held)
    }

    fn compare(&self, resource: &Resource, decoded: &[&Decoded]) -> Result<Merged> {
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
        conn.execute_batch(&format!("DROP TABLE temp.{}", merge::stage_name(resource)))
            .map_err(failed)?;
        Ok(merged)
    }

    fn note_rejects(&mut self, resource: &Resource, loads: &[Load]) -> Result<()> {
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
        rejects::note(conn, resource, loads, &tables, &rejects, self.run_id, self.now)
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
        count_changed(self.conn, &self.changed)?;
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
        for (field, example) in self.drift.iter().filter(|(field, _)| !noted.contains(field)) {
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
mod tests {
    use duckdb::Connection;
    use proptest::prelude::*;
    use proptest::test_runner::{Config as Cases, TestRunner};
    use serde_json::value::RawValue;

    use super::super::Store;
    use super::*;
    use crate::catalog::Catalog;
    use crate::config::Config;
    use crate::decode::{Context, Decoder, Param, Params, Privacy};
    use crate::scope::{AnswerDigest, Version};

    struct Mirror {
        _folder: tempfile::TempDir,
        _store: Store,
        conn: Connection,
        catalog: Arc<Catalog>,
        context: Context,
        settings: Settings,
        known: KnownScopes,
        now: Timestamp,
        /// What the source said last: notes by case.
        notes: BTreeMap<i64, Vec<i64>>,
        /// The latest times that rows of notes, and their scopes, have ever had.
        latest: [Option<i64>; 2],
    }

    /// An answer: a case and how many notes it has.
    type Answer = (i64, i64);

    fn digest((_, notes): Answer) -> AnswerDigest {
        AnswerDigest::new(notes.unsigned_abs())
    }

    impl Mirror {
        fn new() -> Mirror {
            let folder = tempfile::tempdir().unwrap();
            let url = "http://127.0.0.1:1/".parse().unwrap();
            let secret = String::from("secret").into();
            let config = Config::for_demo(url, "id", secret, folder.path());
            let catalog = Arc::new(Catalog::load(None).unwrap());
            let store = Store::open(&config, &catalog).unwrap();
            Mirror {
                conn: store.connection().unwrap(),
                _folder: folder,
                _store: store,
                context: Context {
                    zone: config.source.time_zone.clone(),
                    privacy: Privacy::new(&config.privacy, [7; 32]),
                    disabled: Arc::new([]),
                    generation: 1,
                },
                settings: Settings::new(&config, &catalog, true),
                catalog,
                known: KnownScopes::default(),
                now: "2026-01-10T00:00:00Z".parse().unwrap(),
                notes: BTreeMap::new(),
                latest: [None, None],
            }
        }

        /// As a store that was just made.
        fn begin_anew(&mut self) {
            self.conn
                .execute_batch("DELETE FROM main.notes; DELETE FROM sync.fetched_scopes")
                .unwrap();
            self.known = KnownScopes::default();
            self.notes.clear();
        }

        fn load(&self, (case_id, notes): Answer) -> Load {
            let resource = self.catalog.get("notes").unwrap();
            let records: Vec<String> =
                (1..=notes).map(|id| format!("{{\"Id\": {id}, \"Unheard\": 1}}")).collect();
            let mut decoder = Decoder::new(&self.catalog, resource, &self.context, records.len());
            for json in &records {
                let raw: &RawValue = serde_json::from_str(json).unwrap();
                decoder
                    .push(raw.get(), &Params::from([("case_id".to_owned(), Param::Int(case_id))]));
            }
            Load {
                decoded: decoder.finish().unwrap(),
                scopes: vec![LoadedScope {
                    id: case_id,
                    part: String::new(),
                    version: Version::Known("v".to_owned()),
                    complete: true,
                    sent_at: self.now,
                    digest: Some(digest((case_id, notes))),
                }],
                kind: LoadKind::Scopes,
                records: 0,
                not_found: false,
                lacking: Vec::new(),
                missing: Vec::new(),
            }
        }

        /// The same answer, where it was found to be the mirrored one before it was decoded.
        fn unchanged(&self, answer: Answer) -> Load {
            let decoder =
                Decoder::new(&self.catalog, self.catalog.get("notes").unwrap(), &self.context, 0);
            Load {
                decoded: decoder.finish().unwrap(),
                kind: LoadKind::Unchanged,
                ..self.load(answer)
            }
        }

        /// Commits answers of which each is decoded only where it is not what is mirrored before the first.
        fn commit_what_changed(&mut self, answers: &[Answer], goes_well: bool) {
            let said = |(case, notes): &Answer| (*case, (1..=*notes).collect::<Vec<i64>>());
            let mut now = self.notes.clone();
            let loads = answers.iter().map(|answer| {
                let (case, notes) = said(answer);
                if self.notes.get(&case) == Some(&notes) {
                    self.unchanged(*answer)
                } else {
                    now.insert(case, notes);
                    self.load(*answer)
                }
            });
            self.write(loads.collect(), goes_well);
            if goes_well {
                self.notes = now;
            }
        }

        fn write(&mut self, loads: Vec<Load>, goes_well: bool) {
            self.now += std::time::Duration::from_secs(1);
            self.conn.execute_batch("BEGIN").unwrap();
            apply(&self.conn, &self.settings, 1, self.now, loads, &mut self.known).unwrap();
            self.conn.execute_batch(if goes_well { "COMMIT" } else { "ROLLBACK" }).unwrap();
        }

        /// Commits answers, or takes the commit back.
        fn commit(&mut self, answers: &[Answer], goes_well: bool) {
            let loads = answers.iter().map(|answer| self.load(*answer)).collect();
            self.write(loads, goes_well);
            if goes_well {
                for (case_id, notes) in answers {
                    self.notes.insert(*case_id, (1..=*notes).collect());
                }
            }
        }

        fn pairs(&self, sql: &str) -> Vec<(i64, i64)> {
            query(&self.conn, sql, |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        }

        fn times(&self, sql: &str) -> [Option<i64>; 2] {
            self.conn.query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?])).unwrap()
        }

        fn assert_true(&mut self) {
            let of_rows = self.times(
                "SELECT epoch_us((SELECT max(written) FROM (SELECT _synced_at AS written FROM main.notes \
                   UNION ALL SELECT _valid_from FROM history.notes))), \
                 epoch_us((SELECT max(fetched_at) FROM sync.fetched WHERE table_name = 'notes'))",
            );
            self.latest = [of_rows[0].max(self.latest[0]), of_rows[1].max(self.latest[1])];
            let kept = self.times(
                "SELECT epoch_us(last_change), epoch_us(last_checked) FROM sync.freshness \
                 WHERE table_name = 'notes'",
            );
            assert_eq!(kept, self.latest);
            let rows = self.pairs("SELECT case_id, id FROM main.notes ORDER BY ALL");
            let said: Vec<(i64, i64)> = self
                .notes
                .iter()
                .flat_map(|(case, ids)| ids.iter().map(|id| (*case, *id)))
                .collect();
            assert_eq!(rows, said);
            let fetched =
                self.pairs("SELECT id, count(*) FROM sync.fetched_scopes GROUP BY id ORDER BY id");
            let answered: Vec<(i64, i64)> = self.notes.keys().map(|case| (*case, 1)).collect();
            assert_eq!(fetched, answered);
        }
    }

    #[test]
    fn rows_are_what_was_said_last_however_answers_are_put_together() {
        let answers = prop::collection::vec((1..6_i64, 0..4_i64), 1..5);
        let commits = prop::collection::vec((answers, prop::bool::weighted(0.8), 0..3_u8), 1..8);
        let mirror = std::cell::RefCell::new(Mirror::new());
        TestRunner::new(Cases { cases: 24, ..Cases::default() })
            .run(&commits, |commits| {
                let mirror = &mut mirror.borrow_mut();
                mirror.begin_anew();
                for (answers, goes_well, how) in commits {
                    if how == 0 {
                        // The next process.
                        mirror.known = KnownScopes::default();
                    }
                    match how {
                        1 => mirror.commit_what_changed(&answers, goes_well),
                        _ => mirror.commit(&answers, goes_well),
                    }
                    mirror.assert_true();
                }
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn an_answer_that_is_mirrored_is_fetched_and_one_that_is_no_more_is_to_be_read_again() {
        let mut mirror = Mirror::new();
        let fetched = |mirror: &Mirror| {
            mirror.pairs("SELECT id, epoch_ms(fetched_at) FROM sync.fetched_scopes ORDER BY id")
        };
        mirror.commit(&[(1, 2), (2, 2)], true);
        let first = fetched(&mirror);
        let known = [mirror.unchanged((1, 2)), mirror.unchanged((2, 2))];
        // While both were being read again, case 2 was committed as something else.
        mirror.commit(&[(2, 3)], true);
        mirror.write(known.into(), true);
        mirror.assert_true();
        assert_eq!(fetched(&mirror), [(1, first[0].1 + 2000), (2, first[1].1 + 1000)]);
    }

    #[test]
    fn what_belongs_to_no_scope_of_the_answer_is_compared() {
        let mut mirror = Mirror::new();
        mirror.commit(&[(1, 2)], true);
        // A service that sends the notes of another case.
        let mut load = mirror.load((2, 2));
        load.scopes[0].id = 3;
        mirror.conn.execute_batch("BEGIN").unwrap();
        apply(&mirror.conn, &mirror.settings, 1, mirror.now, vec![load], &mut mirror.known)
            .unwrap();
        mirror.conn.execute_batch("COMMIT").unwrap();
        mirror.commit(&[(2, 2)], true);
        assert_eq!(
            mirror.pairs("SELECT case_id, count(*) FROM main.notes GROUP BY case_id ORDER BY ALL"),
            [(1, 2), (2, 2)]
        );
    }

    #[test]
    fn a_change_is_counted_and_a_new_field_noted_once_per_commit() {
        let mut mirror = Mirror::new();
        let counted = |mirror: &Mirror| {
            mirror.pairs(
                "SELECT counter, 0 FROM sync.changes WHERE table_name = 'notes' AND part = ''",
            )
        };
        mirror.commit(&[(1, 2), (2, 1)], true);
        let first = counted(&mirror);
        assert_eq!(first.len(), 1);
        mirror.commit(&[(1, 2), (2, 1)], true);
        assert_eq!(counted(&mirror), first, "nothing was written");
        mirror.commit(&[(1, 1), (2, 3)], true);
        assert_eq!(counted(&mirror), [(first[0].0 + 1, 0)]);
        assert_eq!(
            mirror.pairs("SELECT count(*), 0 FROM sync.drift WHERE field = 'Unheard'"),
            [(1, 0)]
        );
    }
}
