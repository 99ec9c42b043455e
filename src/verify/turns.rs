//! Journals without a sum: of each scope one whole month is read again, line by line, in turn.
//!
//! Each answer is held against the mirror as soon as it comes, so that no more lines are in memory than
//! calls are under way. What is equal is settled; what differs is asked again like everything else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::asking::{Asking, Gate, Reach, from_a_random_one};
use super::context::Context;
use super::lines::{self, LineDifference, line_key, month_name, rows_of};
use super::{Comparison, Finding, Step, decide};
use crate::catalog::{Group, Resource};
use crate::error::{Kind, Result};
use crate::journals::MonthRead;
use crate::mirror::{MonthLines, State, TurnMonth, journal_lines, rows_of_month};
use crate::scope::{DueReason, JournalScope, REVENUE, REVENUE_SUMS};
use crate::text::counted;

/// A table and the id whose turn it is there.
type Key = (String, i64);

struct Open {
    month: TurnMonth,
    asked: u32,
    /// What differed the last time.
    differences: Vec<LineDifference>,
    /// It was otherwise than the time before.
    moved: bool,
}

/// The months whose turn it is, and that are not settled yet.
#[derive(Default)]
pub(crate) struct Turns {
    open: BTreeMap<Key, Open>,
    /// To be asked in this attempt.
    due: VecDeque<Key>,
    asking: Asking<(Key, Result<MonthRead>)>,
    reach: Reach,
    /// Found to be the same: in whatever order the answers came.
    same: Vec<(TurnMonth, Comparison)>,
    /// Those that could not be read: they had their turn, so that one month keeps no other from its own.
    not_read: Vec<(String, JournalScope)>,
    /// Those that differed, and could not be read once more: their turn is not over.
    cut_off: Vec<(String, JournalScope)>,
}

/// The journals of which no sum says whether they are right.
pub(super) fn tables_in_turn(active: &[Arc<Resource>]) -> Vec<Arc<Resource>> {
    active
        .iter()
        .filter(|r| matches!(r.group, Group::Journal(_)) && line_key(r).is_some())
        .cloned()
        .collect()
}

impl Turns {
    /// One month of each scope and journal that has no sum, or of which it says nothing.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(context: &Context) -> Result<Turns> {
        let active = context.active()?;
        let has_sums = active.iter().any(|r| r.table == REVENUE_SUMS);
        let tables: Vec<String> =
            tables_in_turn(&active).into_iter().map(|r| r.table.clone()).collect();
        let level = context.config.journals.level;
        let conn = context.reader()?;
        let verifications = State::new(&conn).verifications();
        let months = verifications.months_in_turn(&tables, level, has_sums)?;
        let summed = |table: &String| has_sums && table == REVENUE;
        let alone: Vec<String> = tables.into_iter().filter(|table| !summed(table)).collect();
        for (table, scopes) in verifications.scopes_without_turn(&alone, level, Timestamp::now())? {
            let what = format!("{table} of {}: no month is known", counted(scopes, "journal"));
            context.leave_out(what, scopes);
        }
        let open = |month: TurnMonth| {
            let key = (month.table.clone(), month.scope.id);
            (key, Open { month, asked: 0, differences: Vec::new(), moved: false })
        };
        Ok(Turns { open: months.into_iter().map(open).collect(), ..Turns::default() })
    }

    /// Whether all are settled.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty()
            && self.same.is_empty()
            && self.not_read.is_empty()
            && self.cut_off.is_empty()
    }

    /// Whether everything that is open was asked in this attempt.
    pub(crate) fn is_asked(&self) -> bool {
        self.due.is_empty() && self.asking.is_idle()
    }

    /// What is still to be asked in this attempt, or under way.
    pub(crate) fn asks(&self) -> usize {
        self.due.len() + self.asking.under_way()
    }

    /// An attempt begins: everything open is to be asked.
    pub(crate) fn begin(&mut self) {
        self.due = from_a_random_one(self.open.keys().cloned());
    }

    /// Reads the months while the gate is open, and holds each against the mirror.
    ///
    /// # Errors
    /// Those of the store, and what makes all further calls senseless.
    pub(crate) async fn ask(&mut self, context: &Context, gate: &mut Gate) -> Result<()> {
        let width = context.config.limits.concurrency;
        loop {
            let (due, open, reach) = (&mut self.due, &mut self.open, &self.reach);
            let more = || loop {
                let key = due.pop_front()?;
                let month = open.get(&key).map(|open| (open.month.scope, open.month.window_days));
                let resource = context.catalog.get(&key.0).cloned();
                let (Some((scope, days)), Some(resource)) = (month, resource) else { continue };
                if reach.gives_up(&key.0) {
                    let what = format!("{} of {scope} was not asked for: nothing answered", key.0);
                    context.unknown(what);
                    open.remove(&key);
                    continue;
                }
                let extractor = context.extractor.clone();
                return Some(async move { (key, extractor.journal(&resource, scope, days).await) });
            };
            let Some((key, read)) = self.asking.next(gate, width, more).await? else {
                return Ok(());
            };
            self.take(context, key, read)?;
        }
    }

    fn take(&mut self, context: &Context, key: Key, mut read: Result<MonthRead>) -> Result<()> {
        if let Ok(read) = &mut read {
            context.extractor.catch_up(&mut read.load.decoded)?;
        }
        let Some(open) = self.open.get_mut(&key) else { return Ok(()) };
        let name = month_name(&key.0, open.month.name.as_deref(), open.month.scope);
        let read = match read {
            Ok(read) => read,
            // Nothing is there, and nothing is mirrored: the mirror says the same.
            Err(error)
                if error.kind() == Kind::NotFound
                    && !State::new(&context.reader()?)
                        .verifications()
                        .has_lines(&key.0, open.month.scope)? =>
            {
                self.reach.answered(&key.0);
                self.is_same(&key, name, (0, 0));
                return Ok(());
            }
            Err(error) => {
                self.reach.failed(&key.0, error.kind());
                self.leave(&key);
                return context.cannot(&name, error);
            }
        };
        self.reach.answered(&key.0);
        let decoded = &read.load.decoded;
        let line_key = line_key(&decoded.resource).unwrap_or_default().to_owned();
        if !read.load.scopes.iter().all(|scope| scope.complete) || decoded.any_without_key() {
            context.unknown(format!("{name}: the lines cannot be read completely"));
            self.leave(&key);
            return Ok(());
        }
        let MonthLines { counts, source, mirror } = journal_lines(
            &context.reader()?,
            decoded,
            &line_key,
            &rows_of_month(open.month.scope),
        )?;
        let differences = lines::differences(&source, &mirror);
        open.moved = open.asked > 0 && open.differences != differences;
        open.asked += 1;
        open.differences = differences;
        if open.differences.is_empty() {
            self.is_same(&key, name, counts);
        }
        Ok(())
    }

    fn is_same(&mut self, key: &Key, what: String, (source, mirror): (usize, usize)) {
        let Some(open) = self.open.remove(key) else { return };
        let same = Comparison {
            what,
            source: counted(source, "line"),
            mirror: counted(mirror, "line"),
            finding: Finding::Same,
            subject: open.month.subject(),
        };
        self.same.push((open.month, same));
    }

    fn leave(&mut self, key: &Key) {
        if let Some(open) = self.open.remove(key) {
            let left =
                if open.differences.is_empty() { &mut self.not_read } else { &mut self.cut_off };
            left.push((key.0.clone(), open.month.scope));
        }
    }

    /// Decides about what differs, after a cycle; what is settled goes to `done`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn compare(
        &mut self,
        context: &Context,
        done: &mut Vec<Comparison>,
    ) -> Result<()> {
        let mut same = std::mem::take(&mut self.same);
        same.sort_by(|(a, _), (b, _)| (&a.table, a.scope.id).cmp(&(&b.table, b.scope.id)));
        let mut compared = std::mem::take(&mut self.not_read);
        for (month, comparison) in same {
            compared.push((month.table, month.scope));
            done.push(comparison);
        }
        // What was seen to differ is read again, whatever this attempt came to.
        let mut again = std::mem::take(&mut self.cut_off);
        for (key, mut open) in std::mem::take(&mut self.open) {
            // A month that is not closed grows: what has come since the last reading is followed.
            let follows = !open.month.closed;
            let step = decide(open.asked, false, open.moved || follows);
            let scope = open.month.scope;
            if step != Step::Again || follows {
                again.push((key.0.clone(), scope));
            }
            if step == Step::Again {
                self.open.insert(key, open);
                continue;
            }
            let name = month_name(&key.0, open.month.name.as_deref(), scope);
            let differences = std::mem::take(&mut open.differences);
            let mut rows = rows_of(&name, &open.month.subject(), differences);
            if step == Step::Unsettled {
                for row in &mut rows {
                    row.finding = Finding::Unsettled("differs".to_owned());
                }
            }
            done.extend(rows);
            compared.push((key.0, scope));
        }
        if compared.is_empty() && again.is_empty() {
            return Ok(());
        }
        context
            .writer
            .run(move |conn| {
                let state = State::new(conn);
                state.verifications().months_had_their_turn(&compared, Timestamp::now())?;
                again.iter().try_for_each(|(table, scope)| {
                    state.months().months_are_due(
                        std::slice::from_ref(table),
                        scope.level,
                        &[scope.id],
                        &[scope.month],
                        Some(DueReason::Verify),
                    )
                })
            })
            .await
    }
}
