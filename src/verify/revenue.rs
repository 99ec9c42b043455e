//! The revenue journals against the platform's own sums, month by month.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Decimal128Type;

use super::asking::{Asking, Gate, from_a_random_one};
use super::context::Context;
use super::lines;
use super::month_figures::{Figures, Matches, Sums};
use super::{Comparison, Finding, Step, decide, hundredths};
use crate::decode::Decoded;
use crate::error::Result;
use crate::journals::MonthRead;
use crate::mirror::{MonthLines, RevenueMonth, State, journal_lines, rows_of_month};
use crate::scope::{DueReason, JournalScope, Month, REVENUE, REVENUE_SUMS};
use crate::text::counted;

/// Why a month is left out whose lines are not known to be as they were read.
const NOT_KNOWN: &str = "it is pending, failed or rejected";

#[derive(Debug)]
struct Open {
    scope: JournalScope,
    asked: u32,
    source: Sums,
    /// The source's or the mirror's figure moved between two attempts.
    moved: bool,
    mirror: Option<Sums>,
}

/// The months that are not settled yet.
#[derive(Default)]
pub(crate) struct Revenue {
    open: BTreeMap<(i64, Month), Open>,
    /// To be asked in this attempt.
    due: VecDeque<JournalScope>,
    asking: Asking<(JournalScope, Result<MonthRead>)>,
    matches: BTreeMap<Matches, u64>,
}

impl Revenue {
    /// Every month of every scope at the configured level, but for those that are known to be no sum.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(context: &Context) -> Result<Revenue> {
        let mut all = Revenue::default();
        if context.table(REVENUE)?.is_none() {
            return Ok(all);
        }
        if let Some(why) = context.why_nothing_is_asked(REVENUE)? {
            context.leave_out(format!("the journals: {why}"), 1);
        }
        let months = State::new(&context.reader()?)
            .verifications()
            .revenue_months(context.config.journals.level)?;
        let gone = months.iter().filter(|month| month.gone).count();
        let known = months.into_iter().filter(|month| !month.gone);
        context.leave_out(
            format!("{gone} months of revenue journals whose office the source no longer knows"),
            gone,
        );
        if let Some(why) = context.why_not(REVENUE_SUMS)? {
            let months = known.count();
            let what = format!("{why}: {months} months of the revenue journals have no control");
            context.without_control(Some(what), months);
            return Ok(all);
        }
        for month in known {
            if month.without_control {
                // Each cycle says it.
                context.without_control(None, 1);
                continue;
            }
            if month.unsure {
                leave_out(context, &month, NOT_KNOWN);
                continue;
            }
            let scope = month.scope;
            let open = Open { scope, asked: 0, source: (0, 0), moved: false, mirror: None };
            all.open.insert((scope.id, scope.month), open);
        }
        Ok(all)
    }

    /// Whether all are settled.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// In words, which of the mirror's sums match.
    pub(crate) fn notes(&self) -> Vec<String> {
        let count = |which| self.matches.get(&which).copied().unwrap_or(0);
        let (both, with, without) =
            (count(Matches::Both), count(Matches::With), count(Matches::Without));
        if both + with + without == 0 {
            return Vec::new();
        }
        vec![format!(
            "revenue sums: {with} months match with the annotations' payment changes, {without} \
             without them, {both} have none"
        )]
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
        self.due = from_a_random_one(self.open.values().map(|open| open.scope));
    }

    /// Asks for the sums, while the gate is open.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(crate) async fn ask(&mut self, context: &Context, gate: &mut Gate) -> Result<()> {
        let Some(resource) = context.table(REVENUE_SUMS)? else {
            let what = format!("the revenue of {}", counted(self.open.len(), "month"));
            context.broken_off(REVENUE_SUMS, &what, self.open.len())?;
            self.open.clear();
            self.due.clear();
            return Ok(());
        };
        let width = context.config.limits.concurrency;
        loop {
            let due = &mut self.due;
            let more = || {
                let scope = due.pop_front()?;
                let (extractor, resource) = (context.extractor.clone(), Arc::clone(&resource));
                Some(async move { (scope, extractor.journal(&resource, scope, None).await) })
            };
            let Some((scope, read)) = self.asking.next(gate, width, more).await? else {
                return Ok(());
            };
            self.take(context, scope, read).await?;
            if context.gives_up(REVENUE_SUMS) {
                self.give_up(context);
            }
        }
    }

    async fn take(
        &mut self,
        context: &Context,
        scope: JournalScope,
        read: Result<MonthRead>,
    ) -> Result<()> {
        let key = (scope.id, scope.month);
        let told = match read {
            Ok(read) => {
                context.answered(REVENUE_SUMS);
                sums(&read.load.decoded)
            }
            Err(error) => {
                self.open.remove(&key);
                let what = format!("the revenue of {scope}");
                return context.month_failed(REVENUE_SUMS, &what, error).await;
            }
        };
        match (told, self.open.get_mut(&key)) {
            (Some(told), Some(open)) => {
                open.moved = open.asked > 0 && open.source != told;
                open.source = told;
                open.asked += 1;
            }
            (None, Some(_)) => {
                context.unknown(format!("{scope}: the platform's sum cannot be read"));
                self.open.remove(&key);
            }
            (_, None) => {}
        }
        Ok(())
    }

    /// The source does not answer: the rest is not asked for.
    fn give_up(&mut self, context: &Context) {
        for scope in &self.due {
            self.open.remove(&(scope.id, scope.month));
        }
        let months = std::mem::take(&mut self.due).len();
        let problem = format!("the revenue of {months} months was not asked for: nothing answered");
        context.unknown_many(problem, months);
    }

    /// Compares after a cycle; what is settled goes to `done`.
    ///
    /// # Errors
    /// Those of the store, and what makes all further calls senseless.
    pub(crate) async fn compare(
        &mut self,
        context: &Context,
        done: &mut Vec<Comparison>,
    ) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let months = State::new(&context.reader()?)
            .verifications()
            .revenue_months(context.config.journals.level)?;
        let mut again = BTreeSet::new();
        let mut wrong = Vec::new();
        for month in months {
            let key = (month.scope.id, month.scope.month);
            let Some(open) = self.open.get_mut(&key) else { continue };
            let (false, Some(own)) = (month.unsure, Figures::of(&month)) else {
                leave_out(context, &month, NOT_KNOWN);
                self.open.remove(&key);
                continue;
            };
            if own.needs_annotations(open.source) && !month.has_annotations {
                let why = "what its annotations change of the payments is not mirrored";
                leave_out(context, &month, why);
                self.open.remove(&key);
                continue;
            }
            let matches = own.matches(open.source);
            let figures = (own.payment + own.change, own.price);
            let mut changed = open.moved || open.mirror.is_some_and(|before| before != figures);
            open.mirror = Some(figures);
            // A month that is not closed grows: lines that came since the last reading are followed.
            // Where the platform says what it said then, the lines should add up.
            let told =
                month.told.as_ref().and_then(|(a, b)| Some((hundredths(a)?, hundredths(b)?)));
            if matches.is_none() && !month.closed && told != Some(open.source) {
                again.insert(key);
                changed = true;
            }
            let step = decide(open.asked, matches.is_some(), changed);
            let how = own.difference(open.source);
            let finding = match step {
                Step::Again => continue,
                Step::Same => Finding::Same,
                Step::Different => Finding::Different(how),
                Step::Unsettled => Finding::Unsettled(how),
            };
            if let Some(matches) = matches {
                *self.matches.entry(matches).or_default() += 1;
            }
            done.extend(own.rows(&month, open.source, matches, &finding));
            if finding != Finding::Same {
                again.insert(key);
            }
            if matches!(finding, Finding::Different(_)) {
                wrong.push(month);
            }
            self.open.remove(&key);
        }
        for month in &wrong {
            name_lines(context, month, done).await?;
        }
        // A month that is no longer in the store is nobody's to compare.
        self.open.retain(|_, open| open.mirror.is_some());
        let level = context.config.journals.level;
        let tables = [REVENUE, REVENUE_SUMS].map(str::to_owned);
        context
            .writer
            .run(move |conn| {
                let state = State::new(conn);
                again.iter().try_for_each(|(id, month)| {
                    state.months().months_are_due(
                        &tables,
                        level,
                        &[*id],
                        &[*month],
                        Some(DueReason::Verify),
                    )
                })
            })
            .await
    }
}

/// What is to be read again, or did not fit, is known to be no sum.
fn leave_out(context: &Context, month: &RevenueMonth, why: &str) {
    context.leave_out(format!("{}: {why}", name(month)), 1);
}

/// `revenue Sentrum (offices/11) 2026-03`.
pub(super) fn name(month: &RevenueMonth) -> String {
    lines::month_name("revenue", month.name.as_deref(), month.scope)
}

/// Reads a month's lines again, and names those that differ with the column.
async fn name_lines(
    context: &Context,
    month: &RevenueMonth,
    done: &mut Vec<Comparison>,
) -> Result<()> {
    let Some(resource) = context.table(REVENUE)? else { return Ok(()) };
    let Some(line_key) = lines::line_key(&resource) else { return Ok(()) };
    let mut read = match context.extractor.journal(&resource, month.scope, month.window_days).await
    {
        Ok(read) => read,
        Err(error) => return context.cannot(&name(month), error),
    };
    if !read.load.scopes.iter().all(|scope| scope.complete) || read.load.decoded.any_without_key() {
        context.unknown(format!("{}: the lines cannot be read completely", name(month)));
        return Ok(());
    }
    context.extractor.catch_up(&mut read.load.decoded)?;
    let MonthLines { source, mirror, .. } = journal_lines(
        &context.reader()?,
        &read.load.decoded,
        line_key,
        &rows_of_month(month.scope),
    )?;
    let differences = lines::differences(&source, &mirror);
    done.extend(lines::rows_of(&name(month), &subject(month), differences));
    Ok(())
}

/// What the comparisons of a month's sum are about.
pub(super) fn subject(month: &RevenueMonth) -> String {
    format!("{REVENUE_SUMS} {}", month.scope)
}

/// The sums of an answer; `None` where there are none, or they did not fit.
fn sums(decoded: &Decoded) -> Option<Sums> {
    let figure = |name: &str| {
        let column = decoded.rows.column_by_name(name)?.as_primitive_opt::<Decimal128Type>()?;
        (column.len() == 1 && column.is_valid(0)).then(|| column.value(0))
    };
    Some((figure("total_payment")?, figure("total_purchase_price")?))
}
