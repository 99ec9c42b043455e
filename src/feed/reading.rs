//! One reading of a feed, from a date to its end: page by page, committed as they come.

use std::time::Duration;

use super::Feed;
use super::clock::Usual;
use super::commits::Commits;
use super::memory::{Committed, Memory, PagePlace, Recalled, SeenPage};
use super::page::{FeedRow, FeedRows, expected, id_field};
use super::walk::{Ask, Walk};
use crate::config::FeedStyle;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::scope::{FeedName, FeedState, Reader};
use crate::source::{
    Answer, CallClass, Expected, Filter, OrderBy, Query, Request, Split, records, refusal,
};
use crate::ticks::Ticks;

const PATH_CASES: &str = "/api/Integrations/RecentlyModified/Cases";
const PATH_CONTACTS: &str = "/api/Integrations/RecentlyModified/Contacts";
/// Pages are asked this large first, and halved while the service refuses. Each try is one of the few calls that the
/// throttle has.
pub(crate) const LARGEST_PAGE: u32 = 1_000;
const SMALLEST_PAGE: u32 = 10;
/// Of a size below this the next reading tries this one first: refusals that pass must not leave a feed of tiny pages.
const SMALLEST_KEPT: u32 = 100;
/// Passes by `$skip` that may differ from the one before.
const MOST_PASSES: usize = 5;

/// By so much the clock that dates changes may be ahead of that of the answers.
const LARGEST_SKEW: Duration = Duration::from_secs(3_600);

/// A reading under way.
pub(super) struct Reading<'a, M> {
    feed: &'a Feed<'a, M>,
    pub(crate) name: FeedName,
    reader: Reader,
    /// Everything from here on is asked for.
    pub(crate) lower: Ticks,
    /// How far the feed was read; a reading that is no poll keeps it to itself.
    pub(crate) state: FeedState,
    /// The number of the last page before this reading ([`Recalled::sequence`]).
    pub(crate) before: i64,
    /// Rows that were new or had moved.
    pub(crate) moved: u64,
    pub(crate) calls: u64,
    /// An answer carried the server's time.
    pub(crate) dated: bool,
    /// How far the server's clock usually is ahead of ours, this reading included once it has begun.
    pub(crate) usual: Option<Usual>,
    /// The server's time with the first answer, believed or not.
    pub(crate) claimed: Option<Ticks>,
    /// The first answer came.
    begun: bool,
    /// The latest time that the service's clock may have shown with the last answer.
    latest: Ticks,
    /// The newest `ModifiedDate` of this reading.
    pub(crate) newest: Option<Ticks>,
    /// The earliest date from which a row has to be asked for again, as of the last commit.
    pub(crate) low_watermark: Option<Ticks>,
    /// Records that named no case or contact.
    unidentified: usize,
}

impl<'a, M: Memory> Reading<'a, M> {
    pub(crate) fn new(
        feed: &'a Feed<'a, M>,
        name: FeedName,
        reader: Reader,
        lower: Ticks,
        recalled: Recalled,
    ) -> Reading<'a, M> {
        Reading {
            feed,
            name,
            reader,
            lower,
            state: recalled.state,
            before: recalled.sequence,
            moved: 0,
            calls: 0,
            dated: false,
            usual: recalled.usual.and_then(|text| text.parse().ok()),
            claimed: None,
            begun: false,
            latest: lower,
            newest: None,
            low_watermark: None,
            unidentified: 0,
        }
    }

    /// Asks until all has come.
    ///
    /// # Errors
    /// Those of the calls; `BadAnswer` where pages cannot be made complete.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let by_date = self.feed.settings.style == FeedStyle::Odata;
        let mut walk = if by_date { Walk::by_date(self.lower) } else { Walk::by_skip(self.lower) };
        let mut top =
            self.state.page_size.and_then(|size| u32::try_from(size).ok()).unwrap_or(LARGEST_PAGE);
        let mut accepted = false;
        // Pages are committed while the next ones are asked for.
        let mut commits = Commits::new(&self.feed.memory);
        while let Some(ask) = walk.next_ask() {
            let query = if by_date { self.odata_query(ask, top) } else { self.plain_query(ask) };
            let page = commits.beside(self.call(query)).await?;
            self.committed(&mut commits);
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    match refusal(&error).map(|refusal| refusal.status) {
                        Some(400) if by_date && !accepted && top > SMALLEST_PAGE => {
                            top = (top / 2).max(SMALLEST_PAGE);
                        }
                        // The size was taken before: it is the filter that is not known.
                        Some(400 | 422 | 501) if matches!(ask, Ask::Ties { .. }) => {
                            walk.filter_is_refused();
                        }
                        _ => {
                            commits.finish().await?;
                            return Err(error);
                        }
                    }
                    continue;
                }
            };
            accepted = true;
            if by_date {
                self.state.page_size = Some(i64::from(top.max(SMALLEST_KEPT)));
                walk.take(ask, &page, top as usize, self.latest);
            } else {
                // No page size is asked for: a length that a default page could have is looked behind.
                walk.take(ask, &page, usize::MAX, self.latest);
            }
            let page = self.seen_page(ask, page, walk.cursor());
            commits.add(page).await?;
            if walk.next_ask().is_some() && walk.passes() <= MOST_PASSES && !walk.lacks_counted() {
                continue;
            }
            commits.finish().await?;
            self.committed(&mut commits);
            if walk.lacks_counted() {
                let text = format!(
                    "{}: fewer rows came than Count tells of; the list cannot be read completely",
                    path(self.name)
                );
                return Err(Error::new(Kind::BadAnswer, text));
            }
            if walk.next_ask().is_some() && walk.passes() > MOST_PASSES {
                return Err(Error::new(
                    Kind::BadAnswer,
                    format!(
                        "{}: {MOST_PASSES} passes by $skip in a row differed; the list does not \
                         stand still and cannot be read completely",
                        path(self.name)
                    ),
                ));
            }
        }
        Ok(())
    }

    fn odata_query(&self, ask: Ask, top: u32) -> Query {
        let from = |at: Ticks| Filter::ge("ModifiedDate", at);
        let query = Query::new().top(top);
        match ask {
            Ask::From(at) => query.filter(from(at)).order_by(OrderBy::asc("ModifiedDate")),
            Ask::Ties { at, from_id } => {
                let at = Filter::eq("ModifiedDate", at);
                let id = id_field(self.name);
                // The first page is of all ids; its bound is no number that a service takes for one.
                let ties = if from_id == i64::MIN { at } else { at.and(Filter::ge(id, from_id)) };
                query.filter(ties).order_by(OrderBy::asc(id))
            }
            Ask::Skip(skip) => {
                let query = query.filter(from(self.lower)).order_by(OrderBy::asc("ModifiedDate"));
                if skip > 0 { query.skip(skip) } else { query }
            }
        }
    }

    /// The style of `?fromDate=`, of which no paging is documented.
    fn plain_query(&self, ask: Ask) -> Query {
        let query = Query::new().with("fromDate", self.lower.to_string());
        match ask {
            Ask::Skip(skip) if skip > 0 => query.skip(skip),
            Ask::Skip(_) | Ask::From(_) | Ask::Ties { .. } => query,
        }
    }

    async fn call(&mut self, query: Query) -> Result<FeedRows> {
        let answer = self.feed.client.send(&request(self.name, query)?).await?;
        self.calls += 1;
        failpoint::hit("feed-call-noted");
        let date = self.date_of(&answer);
        self.started(&answer, date);
        let Split { records, count } =
            rows_of(&answer).map_err(|e| e.within(format!("{}: no list came", path(self.name))))?;
        let page = FeedRows { count, ..FeedRows::read(&records, self.name, self.feed.zone) };
        let dates = page.rows.iter().filter_map(|row| row.when.modified);
        self.newest = dates.chain(self.newest).max();
        if let Some(date) = date {
            self.dated = true;
            self.state.skew = least_skew(self.state.skew, date, &page.rows);
        }
        Ok(page)
    }

    /// The service's time when it answered, where it says one that a clock may show.
    fn date_of(&self, answer: &Answer) -> Option<Ticks> {
        let date = answer.server_date.map(Ticks::from)?;
        if !answer.is_dated_too_far_behind() {
            return Some(date);
        }
        // By it the bound would move back over rows that were read, and over all of them soon.
        if !self.begun {
            tracing::warn!(
                feed = self.name.as_str(),
                %date,
                "the server's Date is more than half a day behind our clock: it is not followed"
            );
        }
        None
    }

    /// The bound that a poll sets is decided by its first answer.
    fn started(&mut self, answer: &Answer, date: Option<Ticks>) {
        let ours = Ticks::from(answer.ended_at);
        self.latest = Usual::latest(self.usual, ours);
        let Some(date) = date else { return };
        self.claimed.get_or_insert(date);
        if self.state.next_bound.is_none() {
            // A cursor of an interrupted poll keeps that poll's bound: it started earlier.
            // Where nothing is known of the clocks, a bound that is there must not be overtaken.
            let known = self.usual.or(self.state.bound.map(|_| Usual::equal(ours)));
            let believed = Usual::believed(known, date, ours);
            if believed < date {
                tracing::warn!(
                    feed = self.name.as_str(),
                    %date,
                    "the server's Date is farther ahead of our clock than usual: it is not followed"
                );
            }
            self.state.next_bound = Some(believed.get());
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.usual = Some(Usual::learned(self.usual, date, ours));
        }
    }

    /// What a page says, what of it cannot be read, and how far a poll has come with it.
    fn seen_page(&mut self, ask: Ask, page: FeedRows, cursor: Ticks) -> SeenPage {
        let in_order = self.feed.settings.style == FeedStyle::Odata && page.is_in_order();
        let lower = match ask {
            Ask::From(at) | Ask::Ties { at, .. } => at,
            Ask::Skip(_) => self.lower,
        };
        let unidentified = page.unidentified.iter().map(|n| n.when.from(in_order, lower)).min();
        let unreadable = page
            .rows
            .iter()
            .filter(|row| !row.unreadable.is_empty())
            .map(|row| row.when.from(in_order, lower))
            .min();
        self.unidentified += page.unidentified.len();
        let place = PagePlace {
            state: self.state.clone(),
            lower: self.lower,
            cursor,
            low_watermark: unidentified,
            unreadable,
        };
        let is_of = |name| self.name == name;
        SeenPage {
            name: self.name,
            reader: self.reader,
            cases: if is_of(FeedName::Cases) { page.cases() } else { Vec::new() },
            contacts: if is_of(FeedName::Contacts) { page.contacts() } else { Vec::new() },
            unreadable: page.unreadable(),
            unnamed: page.unidentified.first().map(|first| first.error.clone()),
            place,
        }
    }

    fn committed(&mut self, commits: &mut Commits<'_, M>) {
        for Committed { moved, low_watermark } in commits.take_done() {
            self.moved += moved;
            self.low_watermark = low_watermark;
            failpoint::hit("feed-page-committed");
        }
    }

    /// At the end of a reading that met no unidentified record, what an earlier one noted is over.
    pub(crate) async fn note_names(&self) -> Result<()> {
        if self.unidentified > 0 {
            return Ok(());
        }
        self.feed.memory.all_are_named(self.name, self.reader).await
    }
}

/// The service's time, where it tells one that the feed bears out: with the newest rows since `from`, which were not
/// modified after it.
///
/// # Errors
/// Those of the call; `BadAnswer`.
pub(super) async fn server_date<M>(
    feed: &Feed<'_, M>,
    name: FeedName,
    from: Ticks,
) -> Result<Option<Ticks>> {
    let query = match feed.settings.style {
        FeedStyle::Odata => Query::new()
            .top(SMALLEST_PAGE)
            .filter(Filter::ge("ModifiedDate", from))
            .order_by(OrderBy::desc("ModifiedDate")),
        FeedStyle::FromDate => Query::new().with("fromDate", from.to_string()),
    };
    let answer = match feed.client.send(&request(name, query)?).await {
        Ok(answer) => answer,
        // A service that takes no such question tells nothing, and the poll goes on.
        Err(error) if matches!(refusal(&error).map(|r| r.status), Some(400 | 422 | 501)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let rows = FeedRows::read(&rows_of(&answer)?.records, name, feed.zone).rows;
    let newest = rows.iter().filter_map(|row| row.when.modified).max();
    let is_borne_out =
        |date: &Ticks| newest.is_none_or(|newest| newest.earlier_by(LARGEST_SKEW) <= *date);
    Ok(answer.server_date.map(Ticks::from).filter(is_borne_out))
}

fn path(name: FeedName) -> &'static str {
    match name {
        FeedName::Cases => PATH_CASES,
        FeedName::Contacts => PATH_CONTACTS,
    }
}

fn request(name: FeedName, query: Query) -> Result<Request> {
    let request = Request::get(path(name), &[])?.query(query).class(CallClass::Feed(name));
    Ok(request.expecting(Expected { table: path(name).to_owned(), ..expected(name) }))
}

/// The rows of an answer. A feed without rows answers `[]`; a 204 moves nothing (contract, section 4), and what says
/// nothing for as long as it comes is told like all that keeps the feed from being read.
fn rows_of(answer: &Answer) -> Result<Split<'_>> {
    if answer.is_none() {
        let text =
            format!("status {} without a body, where a feed without rows has []", answer.status);
        return Err(Error::new(Kind::BadAnswer, text));
    }
    records(answer)
}

/// The smallest distance between the server's clock and a `ModifiedDate`, never below 0.
fn least_skew(before: Option<i64>, date: Ticks, rows: &[FeedRow]) -> Option<i64> {
    rows.iter()
        .filter_map(|row| row.when.modified)
        .map(|modified| date.get().saturating_sub(modified.get()).max(0))
        .chain(before)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Ticks {
        Ticks::new(seconds * 10_000_000)
    }

    #[test]
    fn the_skew_is_the_smallest_distance_and_never_below_zero() {
        let rows = |seconds: &[i64]| -> Vec<FeedRow> {
            seconds.iter().map(|s| FeedRow::for_test(1, at(*s))).collect()
        };
        let date = at(1_000);
        assert_eq!(least_skew(None, date, &[]), None);
        assert_eq!(least_skew(None, date, &rows(&[900, 950])), Some(at(50).get()));
        assert_eq!(least_skew(Some(at(20).get()), date, &rows(&[950])), Some(at(20).get()));
        assert_eq!(least_skew(Some(at(20).get()), date, &rows(&[1_001])), Some(0));
    }
}
