//! Random cases read whole, and held against the mirror cell by cell.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::asking::{Asking, Gate};
use super::context::{Asked, Context};
use super::whole::{Answer, Ask, Scope, is_search, only, scopes};
use super::{Comparison, Finding, MOST_AGAIN, MOST_ASKED, SAMPLED, Step, WHILE_UNTOLD, decide};
use crate::catalog::{Refresh, Resource};
use crate::cycle::{ids_per_call, plan_cases, since};
use crate::decode::Decoded;
use crate::error::Result;
use crate::mirror::{
    CaseMoved, CellDifference, ChosenCases, ScopeTimes, State, case_subject, compare,
};
use crate::scope::{CaseState, FeedName, Place, Standing};
use crate::text::counted;

/// Cases whose answers are held in memory at once.
const CASES_AT_ONCE: usize = 100;
/// Characters of a value that are shown and kept.
const MOST_SHOWN: usize = 200;

/// What was compared of a table.
#[derive(Debug, Default)]
struct Tally {
    scopes: u64,
    source_rows: u64,
    mirror_rows: u64,
    off: bool,
}

/// The sampled cases that are not settled yet.
#[derive(Default)]
pub(crate) struct Sample {
    /// Which cases are read, and what of them.
    chosen: ChosenCases,
    /// Those of them that were not begun yet.
    rest: Vec<i64>,
    /// How often each scope was asked.
    open: BTreeMap<Scope, u32>,
    /// What is to be asked in this attempt.
    due: VecDeque<Ask>,
    asking: Asking<Answer>,
    answers: BTreeMap<Scope, Decoded>,
    tallies: BTreeMap<String, Tally>,
    /// Scopes that were not asked for, because nothing answered.
    given_up: usize,
    /// Scopes that the mirror knows to be otherwise.
    pending: usize,
    /// Scopes that are apart, and may have moved while the feed could not be read.
    untold: usize,
}

/// What the store says when answers are compared.
struct RunLog {
    /// Stale, failed, or about to be searched again: known to be not as the source has it.
    pending: HashSet<Scope>,
    failed: HashSet<Scope>,
    here: HashMap<i64, CaseState>,
    moves: HashMap<i64, CaseMoved>,
    times: HashMap<Scope, ScopeTimes>,
    /// The feed cannot be read: which cases moved nobody has told.
    is_untold: bool,
}

impl Sample {
    /// So many cases that a search shows, by chance, and beside them what differed before, so that it is known when it
    /// does not any more.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(context: &Context, cases: usize) -> Result<Sample> {
        let conn = context.reader()?;
        let chosen = State::new(&conn).verifications().chosen_cases(cases, MOST_AGAIN)?;
        Ok(Sample { rest: chosen.all(), chosen, ..Sample::default() })
    }

    /// Whether all are settled.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty() && self.rest.is_empty()
    }

    /// Whether everything that is open was asked in this attempt.
    pub(crate) fn is_asked(&self) -> bool {
        self.due.is_empty() && self.asking.is_idle()
    }

    /// What is still to be asked in this attempt, or under way.
    pub(crate) fn asks(&self) -> usize {
        self.due.len() + self.asking.under_way()
    }

    /// An attempt begins: what is open is to be read, or the next cases.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn begin(&mut self, context: &Context) -> Result<()> {
        if self.open.is_empty() {
            let next = self.rest.split_off(self.rest.len().saturating_sub(CASES_AT_ONCE));
            let scopes = scopes(&context.reader()?, &context.config, &context.active()?, &next)?;
            let chosen = scopes.into_iter().filter(|scope| self.chosen.has(scope));
            self.open = chosen.map(|scope| (scope, 0)).collect();
        }
        self.answers.clear();
        self.due.clear();
        let tables: HashMap<String, Arc<Resource>> =
            context.active()?.into_iter().map(|r| (r.table.clone(), r)).collect();
        // Since the attempt before, a table may have become one that is not read.
        let mut broken_off: BTreeMap<&str, usize> = BTreeMap::new();
        for (table, _) in self.open.keys().filter(|(table, _)| !tables.contains_key(table)) {
            *broken_off.entry(table).or_default() += 1;
        }
        for (table, cases) in broken_off {
            let what = format!("{table} of {}", counted(cases, "sampled case"));
            context.broken_off(table, &what, cases)?;
        }
        self.open.retain(|(table, _), _| tables.contains_key(table));
        for place in [Place::Cases, Place::Projects] {
            let Some(resource) = tables.get(place.table()) else { continue };
            let scopes = self.open.keys().filter(|(table, _)| table == place.table());
            let ids: Vec<i64> = scopes.map(|(_, id)| *id).collect();
            for chunk in ids.chunks(ids_per_call(context.extractor.client(), place.table())) {
                self.due.push_back(Ask::Search(Arc::clone(resource), place, chunk.to_vec()));
            }
        }
        for (table, id) in self.open.keys().filter(|(table, _)| !is_search(table)) {
            let Some(resource) = tables.get(table) else { continue };
            self.due.push_back(Ask::Scope(Arc::clone(resource), *id));
        }
        Ok(())
    }

    /// Reads what is due whole, while the gate is open.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(crate) async fn ask(&mut self, context: &Context, gate: &mut Gate) -> Result<()> {
        let width = context.config.limits.concurrency;
        loop {
            let due = &mut self.due;
            let mut given_up = 0;
            let more = || loop {
                let ask = due.pop_front()?;
                if context.gives_up(&ask.resource().table) {
                    given_up += 1;
                    continue;
                }
                return Some(ask.send(&context.extractor));
            };
            let answer = self.asking.next(gate, width, more).await?;
            self.given_up += given_up;
            let Some(answer) = answer else { return Ok(()) };
            self.take(context, answer).await?;
        }
    }

    async fn take(&mut self, context: &Context, answer: Answer) -> Result<()> {
        match answer {
            Answer::Scope(scope, Ok(load)) => {
                context.answered(&scope.0);
                let whole = load.scopes.iter().all(|scope| scope.complete);
                if whole && !load.decoded.any_without_key() {
                    self.answers.insert(scope, load.decoded);
                } else {
                    context.unknown(format!("{} of {}: no complete answer came", scope.0, scope.1));
                }
            }
            Answer::Scope((table, id), Err(error)) => {
                context.failed(&table, &format!("{table} of {id}"), error).await?;
            }
            Answer::Search(resource, Ok(found)) => {
                context.answered(&resource.table);
                if !found.complete {
                    context.unknown(format!("{}: no complete answer came", resource.table));
                }
                // What no search shows is what the number of the cases is about.
                let Some(load) = found.load else { return Ok(()) };
                for id in load.scopes.iter().map(|scope| scope.id) {
                    let one = only(&load.decoded, &resource, id)?;
                    self.answers.insert((resource.table.clone(), id), one);
                }
            }
            Answer::TooMany(resource, place, ids) => {
                for half in ids.chunks(ids.len().div_ceil(2)) {
                    let ask = Ask::Search(Arc::clone(&resource), place, half.to_vec());
                    self.due.push_front(ask);
                }
            }
            Answer::Search(resource, Err(error)) => {
                context.failed(&resource.table, &resource.table, error).await?;
            }
        }
        Ok(())
    }

    /// Compares after a cycle; differences that are settled go to `done`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn compare(
        &mut self,
        context: &Context,
        asked: Asked,
        done: &mut Vec<Comparison>,
    ) -> Result<()> {
        // A finding would show what went from the mirror meanwhile.
        for answer in self.answers.values_mut() {
            context.extractor.catch_up(answer)?;
        }
        // What could not be read cannot be compared.
        self.open.retain(|scope, _| self.answers.contains_key(scope));
        for asked in self.open.values_mut() {
            *asked += 1;
        }
        let log = self.run_log(context)?;
        let mut stale: Vec<Scope> = Vec::new();
        let tables: BTreeSet<String> = self.open.keys().map(|(table, _)| table.clone()).collect();
        for table in tables {
            let Some(resource) = context.catalog.get(&table) else { continue };
            let of_table: Vec<(i64, u32)> = self
                .open
                .iter()
                .filter(|((t, _), _)| *t == table)
                .map(|((_, id), asked)| (*id, *asked))
                .collect();
            let mut sure = Vec::new();
            for (id, times) in of_table {
                let scope = (table.clone(), id);
                let gone = match log.here.get(&id) {
                    None => true,
                    Some(case) => is_search(&table) && case.state == Some(Standing::Hidden),
                };
                let pending = log.pending.contains(&scope);
                // What has moved just now is read by the next cycle.
                let again = times < MOST_ASKED && !log.failed.contains(&scope);
                if !gone && !pending {
                    sure.push((id, times));
                } else if gone || !again {
                    self.pending += usize::from(!gone);
                    self.open.remove(&scope);
                    self.answers.remove(&scope);
                }
            }
            let mut cells = self.cells(context, resource, &sure)?;
            for (id, times) in sure {
                let scope = (table.clone(), id);
                let differences = cells.remove(&id).unwrap_or_default();
                let (changed, behind) = log.changed(resource, &scope, asked);
                if behind && !differences.is_empty() {
                    stale.push(scope.clone());
                }
                if log.is_untold && !changed && !differences.is_empty() {
                    self.untold += 1;
                    self.open.remove(&scope);
                    continue;
                }
                let subject = case_subject(&table, id);
                let finding = match decide(times, differences.is_empty(), changed) {
                    Step::Again => continue,
                    Step::Same => None,
                    Step::Different => Some(Finding::Different("differs".to_owned())),
                    Step::Unsettled => Some(Finding::Unsettled("differs".to_owned())),
                };
                self.open.remove(&scope);
                let Some(finding) = finding else {
                    if self.chosen.standing.remove(&scope) {
                        done.push(Comparison {
                            what: format!("{table} of case {id}, which differed"),
                            source: "as mirrored".to_owned(),
                            mirror: "as at the source".to_owned(),
                            finding: Finding::Same,
                            subject,
                        });
                    }
                    continue;
                };
                stale.push(scope);
                self.tallies.entry(table.clone()).or_default().off = true;
                done.extend(differences.into_iter().map(|(in_table, cell)| Comparison {
                    what: match &cell.column {
                        Some(column) => format!("{in_table} {}: {column}", cell.key),
                        None => format!("{in_table} {}", cell.key),
                    },
                    source: shown(cell.source.as_deref()),
                    mirror: shown(cell.mirror.as_deref()),
                    finding: finding.clone(),
                    subject: subject.clone(),
                }));
            }
        }
        if self.is_done() {
            let pending = std::mem::take(&mut self.pending);
            let given_up = std::mem::take(&mut self.given_up);
            let untold = std::mem::take(&mut self.untold);
            context.unknown_many(format!("{untold} parts of sampled cases{WHILE_UNTOLD}"), untold);
            context.leave_out(
                format!("parts of sampled cases, pending or failed: {pending}"),
                pending,
            );
            let problem = format!(
                "parts of sampled cases not asked for, because nothing answered: {given_up}"
            );
            context.unknown_many(problem, given_up);
            for (table, tally) in std::mem::take(&mut self.tallies) {
                if tally.off {
                    continue;
                }
                done.push(Comparison {
                    what: format!("{table} of {}", counted(tally.scopes, "sampled case")),
                    source: counted(tally.source_rows, "row"),
                    mirror: counted(tally.mirror_rows, "row"),
                    finding: Finding::Same,
                    subject: SAMPLED.to_owned(),
                });
            }
        }
        context
            .writer
            .run(move |conn| State::new(conn).verifications().scopes_are_stale(&stale))
            .await
    }

    /// The cells in which answers of a table, and of its child tables, differ from the mirror: by case,
    /// each with its table.
    fn cells(
        &mut self,
        context: &Context,
        resource: &Resource,
        sure: &[(i64, u32)],
    ) -> Result<HashMap<i64, Vec<(String, CellDifference)>>> {
        let ids: Vec<i64> = sure.iter().map(|(id, _)| *id).collect();
        let answers: Vec<&Decoded> =
            ids.iter().filter_map(|id| self.answers.get(&(resource.table.clone(), *id))).collect();
        let children = answers.first().map_or(0, |decoded| decoded.children.len());
        let groups = std::iter::once(answers.clone()).chain(
            (0..children)
                .map(|n| answers.iter().filter_map(|decoded| decoded.children.get(n)).collect()),
        );
        let mut all: HashMap<i64, Vec<(String, CellDifference)>> = HashMap::new();
        let conn = context.reader()?;
        for rows in groups {
            let Some(table) = rows.first().map(|decoded| Arc::clone(&decoded.resource)) else {
                continue;
            };
            let compared = compare(&conn, &table, &rows, &ids)?;
            let off: HashSet<i64> = compared.cells.iter().map(|cell| cell.id).collect();
            let tally = self.tallies.entry(table.table.clone()).or_default();
            // What differs is counted when it has settled.
            for id in ids.iter().filter(|id| !off.contains(id)) {
                let (source, mirror) = compared.rows.get(id).copied().unwrap_or_default();
                tally.scopes += 1;
                tally.source_rows += source;
                tally.mirror_rows += mirror;
            }
            for cell in compared.cells {
                all.entry(cell.id).or_default().push((table.table.clone(), cell));
            }
        }
        Ok(all)
    }

    fn run_log(&self, context: &Context) -> Result<RunLog> {
        let ids: Vec<i64> =
            self.open.keys().map(|(_, id)| *id).collect::<BTreeSet<_>>().into_iter().collect();
        let conn = context.reader()?;
        let state = State::new(&conn);
        if ids.is_empty() {
            return Ok(RunLog {
                pending: HashSet::new(),
                failed: HashSet::new(),
                here: HashMap::new(),
                moves: HashMap::new(),
                times: HashMap::new(),
                is_untold: false,
            });
        }
        let cases = state.verifications().cases(&ids)?;
        let plans = plan_cases(&conn, &cases, &context.active()?, &[], since(&context.config)?)?;
        let pending: HashSet<Scope> = plans
            .into_iter()
            .flat_map(|(_, plan)| plan.stale.into_iter().chain(plan.waiting))
            .map(|stale| (stale.table, stale.id))
            .chain(state.verifications().searched_later(&ids)?)
            .collect();
        Ok(RunLog {
            pending,
            failed: state.failures().failures()?.into_keys().collect(),
            here: cases.into_iter().map(|case| (case.case_id, case)).collect(),
            moves: state.verifications().moves(&ids)?,
            times: state.verifications().scope_times(&ids)?,
            is_untold: state.failures().feed_is_unread(FeedName::Cases)?,
        })
    }
}

impl RunLog {
    /// Whether something of a scope changed since it was asked, and whether the mirror may be behind
    /// without being wrong: the case moved after the scope was last read, by a date that this table
    /// does not follow (docs/architecture.md, "Seen and fetched").
    fn changed(&self, resource: &Resource, scope: &Scope, asked: Asked) -> (bool, bool) {
        let moved = self.moves.get(&scope.1).copied().unwrap_or_default();
        let times = self.times.get(scope).copied().unwrap_or_default();
        let narrow = matches!(resource.refresh, Refresh::Dates(_));
        let behind = narrow && moved.at.zip(times.sent_at).is_some_and(|(at, sent)| at > sent);
        let read = times.fetched_at.is_some_and(|at| at >= asked.at);
        (moved.sequence > asked.sequence || read || behind, behind)
    }
}

fn shown(value: Option<&str>) -> String {
    let Some(value) = value else { return "NULL".to_owned() };
    match value.char_indices().nth(MOST_SHOWN) {
        Some((at, _)) => format!("{}...", &value[..at]),
        None => value.to_owned(),
    }
}
