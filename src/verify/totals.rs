//! How many cases there are, and how many were signed in each of the last twelve months.
//!
//! A count that differs does not say whose it is. So where one does, the source's ids are asked for
//! the next time, and decided one by one: a case that has moved since is looked at again, one that left
//! a search or came back without a word of the feed is listed first, one that the mirror knows not to
//! be as the source has it is left out, and what is apart twice in a row is a difference.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::asking::{Asking, Gate};
use super::context::{Asked, Context};
use super::differing::{Differing, Known, Sides};
use super::{Comparison, Finding, WHILE_UNTOLD};
use crate::cycle::LISTING_DUE;
use crate::error::{Error, Kind, Result};
use crate::mirror::{SIGNED_CASES, SIGNED_MONTHS, State};
use crate::scope::{FeedName, Month, Place, months_back};
use crate::source::Filter;
use crate::text::counted;
use crate::ticks::Ticks;

/// Cases that are named of a count that differs.
const MOST_NAMED: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Total {
    Rows(Place),
    Signed(Month),
}

#[derive(Debug)]
struct Open {
    total: Total,
    asked: u32,
    told: Option<Told>,
    /// Differing the last time, and not known to have moved.
    before: BTreeSet<i64>,
    /// The cases were listed to find out about these.
    listed: BTreeSet<i64>,
}

/// What the source says.
#[derive(Debug)]
enum Told {
    Count(i64),
    Ids(BTreeSet<i64>),
}

type Answer = (Total, Result<Option<Told>>);

/// The counts that are not settled yet.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    open: Vec<Open>,
    /// To be asked in this attempt.
    due: VecDeque<Total>,
    asking: Asking<Answer>,
}

/// The first instant of a month at the source, and the last that a filter to the millisecond can name.
fn bounds(month: Month, context: &Context) -> Result<(Timestamp, Timestamp)> {
    let starts_at = |month: Month| {
        month
            .first()
            .to_zoned(context.config.source.time_zone.clone())
            .and_then(|day| day.start_of_day())
            .map(|day| day.timestamp())
            .map_err(|e| Error::caused(Kind::Internal, format!("{month} has no beginning"), e))
    };
    Ok((starts_at(month)?, starts_at(month.plus(1))? - Duration::from_millis(1)))
}

/// Reference 4.7, rule 4.
fn signed(month: Month, context: &Context) -> Result<Filter> {
    let (from, to) = bounds(month, context)?;
    Ok(Filter::ge("CaseActivatedDate", Ticks::from(from))
        .and(Filter::le("CaseActivatedDate", Ticks::from(to)))
        .and(Filter::ne("AssignmentType", "Valuation")))
}

impl Total {
    fn place(self) -> Place {
        match self {
            Total::Rows(place) => place,
            Total::Signed(_) => Place::Cases,
        }
    }

    fn filter(self, context: &Context) -> Result<Option<Filter>> {
        match self {
            Total::Rows(_) => Ok(None),
            Total::Signed(month) => signed(month, context).map(Some),
        }
    }

    fn name(self) -> String {
        match self {
            Total::Rows(place) => place.table().to_owned(),
            Total::Signed(month) => format!("{SIGNED_CASES}{month}"),
        }
    }

    /// How many the mirror has; `None` where the report does not know.
    fn mirrored(self, state: &State<'_>, context: &Context) -> Result<Option<i64>> {
        match self {
            Total::Rows(place) => Ok(Some(
                i64::try_from(state.scopes().count_rows(place.table())?).unwrap_or(i64::MAX),
            )),
            Total::Signed(month) => {
                let counted = state
                    .verifications()
                    .signed_by_month()?
                    .get(&month)
                    .copied()
                    .unwrap_or(Some(0));
                // What the report counts and no filter reaches.
                let (_, last) = bounds(month, context)?;
                let (next, _) = bounds(month.plus(1), context)?;
                let later =
                    state.verifications().signed_ids(last + Duration::from_micros(1), next)?.len();
                Ok(counted.map(|counted| counted - i64::try_from(later).unwrap_or(i64::MAX)))
            }
        }
    }

    /// The cases of which a filter to the millisecond does not say whether they are among them: the
    /// mirror's instants are cut to microseconds, so that one at the last millisecond may lie after it.
    fn at_the_end(self, state: &State<'_>, context: &Context) -> Result<Vec<i64>> {
        match self {
            Total::Rows(_) => Ok(Vec::new()),
            Total::Signed(month) => {
                let (_, last) = bounds(month, context)?;
                let (next, _) = bounds(month.plus(1), context)?;
                state.verifications().signed_ids(last, next)
            }
        }
    }

    /// The ids that a search may return and that are none of its own: one that the property search returns is a
    /// case, whatever the other says (docs/architecture.md, "Deletion").
    fn of_another(self, state: &State<'_>) -> Result<Vec<i64>> {
        match self {
            Total::Rows(Place::Projects) => state.standings().shown_in(Place::Cases),
            Total::Rows(_) | Total::Signed(_) => Ok(Vec::new()),
        }
    }

    /// The cases that the mirror has.
    fn mirrored_ids(self, state: &State<'_>, context: &Context) -> Result<BTreeSet<i64>> {
        let ids = match self {
            Total::Rows(place) => state.verifications().search_ids(place)?,
            Total::Signed(month) => {
                let (from, _) = bounds(month, context)?;
                let (to, _) = bounds(month.plus(1), context)?;
                state.verifications().signed_ids(from, to)?
            }
        };
        Ok(ids.into_iter().collect())
    }

    /// The columns whose values decide whether a case is among them.
    fn columns(self) -> &'static [&'static str] {
        match self {
            Total::Rows(_) => &[],
            Total::Signed(_) => &["case_activated_date", "assignment_type"],
        }
    }

    fn row(self, source: i64, mirror: i64, finding: Finding) -> Comparison {
        let (source, mirror) = (source.to_string(), mirror.to_string());
        Comparison { what: self.name(), source, mirror, finding, subject: self.name() }
    }
}

/// How many counts there are of a search.
pub(super) fn counts(place: Place) -> u64 {
    match place {
        Place::Cases => 1 + u64::from(SIGNED_MONTHS),
        Place::Projects => 1,
        Place::Contacts => 0,
    }
}

impl Totals {
    /// All counts of the tables that are read.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(context: &Context) -> Result<Totals> {
        let current = Month::at(Timestamp::now(), &context.config.source.time_zone);
        let mut totals = Totals::default();
        for total in [Total::Rows(Place::Cases), Total::Rows(Place::Projects)]
            .into_iter()
            .chain(months_back(current, SIGNED_MONTHS).map(Total::Signed))
        {
            if context.table(total.place().table())?.is_some() {
                totals.open.push(Open {
                    total,
                    asked: 0,
                    told: None,
                    before: BTreeSet::new(),
                    listed: BTreeSet::new(),
                });
            }
        }
        Ok(totals)
    }

    /// Whether all are settled.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty()
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
        self.due = self.open.iter().map(|open| open.total).collect();
    }

    /// Asks the source, while the gate is open: for a count at first, then for the ids.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(crate) async fn ask(&mut self, context: &Context, gate: &mut Gate) -> Result<()> {
        let mut requests = VecDeque::new();
        for total in self.due.drain(..) {
            let Some(resource) = context.table(total.place().table())? else {
                context.broken_off(total.place().table(), &total.name(), 1)?;
                self.open.retain(|open| open.total != total);
                continue;
            };
            let by_ids = self.open.iter().any(|open| open.total == total && open.asked > 0);
            requests.push_back((total, resource, total.filter(context)?, by_ids));
        }
        loop {
            let extractor = &context.extractor;
            let more = || {
                let (total, resource, filter, by_ids) = requests.pop_front()?;
                let extractor = extractor.clone();
                Some(async move {
                    let told = if by_ids {
                        let ids = extractor.ids(&resource, filter).await;
                        ids.map(|ids| ids.map(|ids| Told::Ids(ids.into_iter().collect())))
                    } else {
                        let count = extractor.count(&resource, filter).await;
                        let told = |count| Told::Count(i64::try_from(count).unwrap_or(i64::MAX));
                        count.map(|count| count.map(told))
                    };
                    (total, told)
                })
            };
            let width = context.config.limits.concurrency;
            let Some(answer) = self.asking.next(gate, width, more).await? else { break };
            self.take(context, answer).await?;
            if context.is_lost() {
                requests.clear();
            }
        }
        self.due = requests.into_iter().map(|(total, ..)| total).collect();
        Ok(())
    }

    async fn take(&mut self, context: &Context, (total, told): Answer) -> Result<()> {
        let (name, table) = (total.name(), total.place().table());
        let told = match told {
            Ok(told) => {
                context.answered(table);
                told
            }
            Err(error) => {
                self.open.retain(|open| open.total != total);
                return context.failed(table, &name, error).await;
            }
        };
        if told.is_none() {
            context.unknown(format!("{name}: the source does not say completely what there is"));
            self.open.retain(|open| open.total != total);
        }
        if let Some(open) = self.open.iter_mut().find(|open| open.total == total) {
            open.told = told;
            open.asked += 1;
        }
        Ok(())
    }

    /// Compares after a cycle; what is settled goes to `done`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn compare(
        &mut self,
        context: &Context,
        asked: Asked,
        done: &mut Vec<Comparison>,
    ) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut stale: BTreeSet<(String, i64)> = BTreeSet::new();
        let mut list = false;
        {
            let conn = context.reader()?;
            let state = State::new(&conn);
            for mut open in std::mem::take(&mut self.open) {
                let total = open.total;
                match open.told.take() {
                    None => context.unknown(format!("{} was not asked for", total.name())),
                    Some(Told::Count(source)) => match total.mirrored(&state, context)? {
                        Some(mirror) if mirror == source => {
                            done.push(total.row(source, mirror, Finding::Same));
                        }
                        Some(_) | None => self.open.push(open),
                    },
                    Some(Told::Ids(mut source)) => {
                        let mut mirror = total.mirrored_ids(&state, context)?;
                        for id in total.of_another(&state)? {
                            source.remove(&id);
                        }
                        for id in total.at_the_end(&state, context)? {
                            source.remove(&id);
                            mirror.remove(&id);
                        }
                        let sides = Sides { source: &source, mirror: &mirror };
                        let known = known(&state, total, &sides.differing())?;
                        let differing = Differing::of(sides, &known, asked.sequence, &open.listed);
                        list |= !differing.unlisted.is_empty();
                        open.listed.extend(&differing.unlisted);
                        let step = differing.step(open.asked, &open.before);
                        let Some((from, own, finding)) = differing.found(sides, step, &open.before)
                        else {
                            open.before = differing.suspected();
                            self.open.push(open);
                            continue;
                        };
                        let confirmed = match &finding {
                            Finding::Different(_) => differing.confirmed(&open.before),
                            Finding::Same | Finding::Unsettled(_) => BTreeSet::new(),
                        };
                        list |= !confirmed.is_empty();
                        done.push(total.row(from, own, finding));
                        done.extend(named(total, sides, &confirmed));
                        leave_out(context, total, &differing.left_out);
                        let untold = differing.untold.len();
                        let what = format!("{}: {untold} cases", total.name());
                        context.unknown_many(what + WHILE_UNTOLD, untold);
                        let table = total.place().table();
                        stale.extend(confirmed.into_iter().map(|id| (table.to_owned(), id)));
                    }
                }
            }
        }
        if stale.is_empty() && !list {
            return Ok(());
        }
        let stale: Vec<_> = stale.into_iter().collect();
        context
            .writer
            .run(move |conn| {
                let state = State::new(conn);
                if list {
                    state.set_meta(LISTING_DUE, "verify")?;
                }
                state.verifications().scopes_are_stale(&stale)
            })
            .await
    }
}

/// What the store says of cases that differ.
fn known(state: &State<'_>, total: Total, differing: &[i64]) -> Result<Known> {
    if differing.is_empty() {
        return Ok(Known::default());
    }
    let cases = state.verifications().cases(differing)?;
    Ok(Known {
        undecided: state
            .verifications()
            .undecided_cases(differing, total.columns())?
            .into_iter()
            .collect(),
        moves: state.verifications().moves(differing)?,
        cases: cases.into_iter().map(|case| (case.case_id, case)).collect(),
        is_untold: state.failures().feed_is_unread(FeedName::Cases)?,
    })
}

/// The cases that make a count differ.
fn named(total: Total, sides: Sides<'_>, confirmed: &BTreeSet<i64>) -> Vec<Comparison> {
    let side =
        |ids: &BTreeSet<i64>, id: &i64| if ids.contains(id) { "there" } else { "" }.to_owned();
    let row = |id: &i64| Comparison {
        what: format!("{}: case {id}", total.name()),
        subject: total.name(),
        source: side(sides.source, id),
        mirror: side(sides.mirror, id),
        finding: Finding::Different(
            if sides.source.contains(id) { "lacking" } else { "too many" }.to_owned(),
        ),
    };
    confirmed.iter().take(MOST_NAMED).map(row).collect()
}

fn leave_out(context: &Context, total: Total, cases: &BTreeSet<i64>) {
    let ids: Vec<String> = cases.iter().take(MOST_NAMED).map(i64::to_string).collect();
    let more = if cases.len() > MOST_NAMED { ", ..." } else { "" };
    let what = format!(
        "{}: {} pending, failed or rejected: {}{more}",
        total.name(),
        counted(cases.len(), "case"),
        ids.join(", ")
    );
    context.leave_out(what, cases.len());
}
