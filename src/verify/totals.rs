//! How many cases there are, and how many were signed in each of the last twelve months.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::bench::{Asked, Bench};
use super::{Comparison, Finding, Step, excess, judge};
use crate::cycle::LISTING_DUE;
use crate::error::{Error, Kind, Result};
use crate::journals::{Month, months_back};
use crate::mirror::{Place, State};
use crate::source::Filter;
use crate::ticks::Ticks;

/// Months of signed cases, the current one included.
const MONTHS: u32 = 12;
/// Cases that are named of a count that differs; the listing finds them all.
const MOST_NAMED: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Total {
    Rows(Place),
    Signed(Month),
}

#[derive(Debug)]
struct Open {
    total: Total,
    /// To be asked in this attempt.
    due: bool,
    asked: u32,
    source: i64,
    /// The source's figure moved between two calls.
    moved: bool,
    /// The cases are to be listed before it counts.
    listed: bool,
}

/// The counts that are not settled yet.
#[derive(Debug, Default)]
pub struct Totals {
    open: Vec<Open>,
}

/// The first instant of a month at the source, and the last that a filter to the millisecond can name.
fn bounds(month: Month, bench: &Bench) -> Result<(Timestamp, Timestamp)> {
    let starts_at = |month: Month| {
        month
            .first()
            .to_zoned(bench.config.source.time_zone.clone())
            .and_then(|day| day.start_of_day())
            .map(|day| day.timestamp())
            .map_err(|e| Error::caused(Kind::Internal, format!("{month} has no beginning"), e))
    };
    Ok((starts_at(month)?, starts_at(month.plus(1))? - Duration::from_millis(1)))
}

/// Reference 4.7, rule 4.
fn signed(month: Month, bench: &Bench) -> Result<Filter> {
    let (from, to) = bounds(month, bench)?;
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

    fn filter(self, bench: &Bench) -> Result<Option<Filter>> {
        match self {
            Total::Rows(_) => Ok(None),
            Total::Signed(month) => signed(month, bench).map(Some),
        }
    }

    fn name(self) -> String {
        match self {
            Total::Rows(place) => place.table().to_owned(),
            Total::Signed(month) => format!("signed cases {month}"),
        }
    }
}

impl Totals {
    /// All counts of the tables that are read.
    ///
    /// # Errors
    /// Those of the store.
    pub fn of(bench: &Bench) -> Result<Totals> {
        let current = Month::at(Timestamp::now(), &bench.config.source.time_zone);
        let all = [Total::Rows(Place::Cases), Total::Rows(Place::Projects)]
            .into_iter()
            .chain(months_back(current, MONTHS).map(Total::Signed));
        let mut open = Vec::new();
        for total in all {
            if bench.table(total.place().table())?.is_some() {
                open.push(Open {
                    total,
                    due: false,
                    asked: 0,
                    source: 0,
                    moved: false,
                    listed: false,
                });
            }
        }
        Ok(Totals { open })
    }

    /// Whether all are settled.
    pub fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// An attempt begins: everything open is to be asked.
    pub fn begin(&mut self) {
        self.open.iter_mut().for_each(|open| open.due = true);
    }

    /// Asks the source, while it may go on.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub async fn ask(&mut self, bench: &Bench, goes_on: &impl Fn() -> bool) -> Result<()> {
        let mut asked = Vec::new();
        for mut open in std::mem::take(&mut self.open) {
            if !open.due || !goes_on() {
                asked.push(open);
                continue;
            }
            let name = open.total.name();
            let Some(resource) = bench.table(open.total.place().table())? else { continue };
            match bench.extractor.count(&resource, open.total.filter(bench)?).await {
                Ok(Some(count)) => {
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    open.moved = open.asked > 0 && open.source != count;
                    open.source = count;
                    open.asked += 1;
                    open.due = false;
                    asked.push(open);
                }
                Ok(None) => {
                    bench.unknown(format!("{name}: the source does not say how many there are"));
                }
                Err(error) => bench.cannot(&name, error)?,
            }
        }
        self.open = asked;
        Ok(())
    }

    /// Compares after a cycle; what is settled goes to `done`.
    ///
    /// # Errors
    /// Those of the store, and what makes all further calls senseless.
    pub async fn compare(
        &mut self,
        bench: &Bench,
        asked: Asked,
        done: &mut Vec<Comparison>,
    ) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let (signed, moved, undecided) = {
            let conn = bench.reader()?;
            let state = State::new(&conn);
            let undecided = state.undecided_rows()? + state.signed_without_month()?;
            (state.signed_by_month()?, state.moved_after(asked.sequence)? > 0, undecided)
        };
        // Whether cases left the search, or came back: their months of signing changed with them.
        let mut unannounced = false;
        for mut open in std::mem::take(&mut self.open) {
            let (mirror, hidden) = {
                let conn = bench.reader()?;
                let state = State::new(&conn);
                let mirror = match open.total {
                    Total::Rows(place) => {
                        Some(i64::try_from(state.count_rows(place.table())?).unwrap_or(i64::MAX))
                    }
                    Total::Signed(month) => signed.get(&month).copied().unwrap_or(Some(0)),
                };
                (mirror, state.hidden_cases(open.total.place())?)
            };
            let name = open.total.name();
            let Some(mirror) = mirror else {
                bench.unknown(format!("{name}: the report does not know, a value was rejected"));
                continue;
            };
            let (source, ahead) = (open.source, mirror.abs_diff(open.source));
            let mut changed =
                moved || open.moved || unannounced || ahead <= undecided.unsigned_abs();
            // Cases leave the searches, and come back, without a word of the feed: the mirror learns of
            // it when they are listed.
            let explains = source != mirror && (mirror > source || ahead <= hidden.unsigned_abs());
            if explains && matches!(open.total, Total::Rows(_)) && !open.listed {
                open.listed = true;
                changed = true;
                unannounced = true;
                bench.writer.run(|conn| State::new(conn).set_meta(LISTING_DUE, "verify")).await?;
            }
            let how = excess(source, mirror);
            let finding = match judge(open.asked, source == mirror, changed) {
                Step::Again => {
                    self.open.push(open);
                    continue;
                }
                Step::Same => Finding::Same,
                Step::Unsettled => Finding::Unsettled(how),
                Step::Different => Finding::Different(how),
            };
            let different = matches!(finding, Finding::Different(_));
            let (source, mirror) = (source.to_string(), mirror.to_string());
            done.push(Comparison { what: name, source, mirror, finding });
            if different {
                name_cases(bench, open.total, done).await?;
            }
        }
        Ok(())
    }
}

/// Names the cases that make a count differ, and has them read again.
async fn name_cases(bench: &Bench, total: Total, done: &mut Vec<Comparison>) -> Result<()> {
    let (name, table) = (total.name(), total.place().table());
    let Some(resource) = bench.table(table)? else { return Ok(()) };
    let source = match bench.extractor.ids(&resource, total.filter(bench)?).await {
        Ok(Some(ids)) => ids,
        Ok(None) => Vec::new(),
        Err(error) => {
            bench.cannot(&name, error)?;
            Vec::new()
        }
    };
    let mirror = {
        let conn = bench.reader()?;
        let state = State::new(&conn);
        match total {
            Total::Rows(place) => state.search_ids(place)?,
            Total::Signed(month) => {
                let (from, _) = bounds(month, bench)?;
                let (to, _) = bounds(month.plus(1), bench)?;
                state.signed_ids(from, to)?
            }
        }
    };
    let [source, mirror] = [source, mirror].map(BTreeSet::from_iter);
    let apart: Vec<i64> = source.symmetric_difference(&mirror).copied().collect();
    for id in apart.iter().take(MOST_NAMED) {
        let side = |ids: &BTreeSet<i64>| if ids.contains(id) { "there" } else { "" }.to_owned();
        let lacks = if source.contains(id) { "lacking" } else { "too many" };
        done.push(Comparison {
            what: format!("{name}: case {id}"),
            source: side(&source),
            mirror: side(&mirror),
            finding: Finding::Different(lacks.to_owned()),
        });
    }
    let stale: Vec<(String, i64)> = apart.into_iter().map(|id| (table.to_owned(), id)).collect();
    bench
        .writer
        .run(move |conn| {
            let state = State::new(conn);
            state.set_meta(LISTING_DUE, "verify")?;
            state.scopes_are_stale(&stale)
        })
        .await
}
