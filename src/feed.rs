//! The change feeds: what was modified recently becomes what was *seen*.
//!
//! A poll asks for everything from its lower bound on, page by page in the order of `ModifiedDate`,
//! and commits each page with its cursor; the bound moves when the poll is complete. Asking again
//! from behind the last poll costs rows, not changes: a case seen with the same dates is not written.
//! How the bound is chosen is described at [`next_bound`].

mod page;
mod walk;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config::{self, FeedStyle};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{FeedState, State, Store, Writer};
use crate::source::{
    Answer, CallClass, Client, FeedName, Filter, OrderBy, Query, Request, Split, refusal, split,
};
use crate::ticks::Ticks;

use page::{FeedRow, FeedRows};
use walk::{Ask, Walk};

/// The API goes back at most 365 days (field notes, RecentlyModified); a day is left for clocks.
const LONGEST_REACH: Duration = Duration::from_secs(364 * 86_400);
const PATH_CASES: &str = "/api/Integrations/RecentlyModified/Cases";
const PATH_CONTACTS: &str = "/api/Integrations/RecentlyModified/Contacts";
/// Pages are asked this large first, and halved while the service refuses.
const LARGEST_PAGE: u32 = 1_000;
const SMALLEST_PAGE: u32 = 100;
/// Passes by `$skip` that may differ from the one before.
const MOST_PASSES: usize = 5;

/// What a poll found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Polled {
    /// Rows that were new or had moved.
    pub moved: u64,
    pub calls: u64,
    /// The last complete poll is so long ago that the feed cannot tell what happened since.
    pub gap: bool,
}

/// A feed that can be polled.
pub struct Feed<'a> {
    pub client: &'a Client,
    pub store: &'a Store,
    pub writer: &'a Writer,
    pub settings: &'a config::Feed,
    pub zone: &'a TimeZone,
}

impl Feed<'_> {
    /// Asks the feed for everything since the last poll and commits what it says.
    ///
    /// # Errors
    /// Those of the calls; `BadAnswer` where pages cannot be made complete. What was committed
    /// before stays, and the next poll goes on from its cursor.
    pub async fn poll(&self, name: FeedName) -> Result<Polled> {
        let mut state = State::new(&self.store.connection()?).feed(name.as_str())?;
        let reach = Ticks::from_timestamp(Timestamp::now()).earlier_by(LONGEST_REACH);
        let mut polled = Polled::default();
        let lower = match state.cursor.or(state.bound) {
            None => reach,
            Some(bound) if Ticks::new(bound) < reach => {
                polled.gap = true;
                state.cursor = None;
                reach
            }
            Some(bound) => Ticks::new(bound),
        };
        if polled.gap {
            tracing::warn!(
                feed = name.as_str(),
                "the last complete poll is more than 364 days ago: everything is read again"
            );
            self.writer.run(|conn| State::new(conn).everything_is_stale("gap")).await?;
        }
        let mut poll = Poll { feed: self, name, state, polled, dated: false, newest: None };
        match self.settings.style {
            FeedStyle::Odata => poll.by_odata(lower).await?,
            FeedStyle::FromDate => poll.by_from_date(lower).await?,
        }
        poll.complete().await?;
        failpoint::reach("poll-complete");
        Ok(poll.polled)
    }
}

/// A poll under way.
struct Poll<'a> {
    feed: &'a Feed<'a>,
    name: FeedName,
    state: FeedState,
    polled: Polled,
    /// An answer carried the server's time.
    dated: bool,
    /// The newest `ModifiedDate` of this poll.
    newest: Option<Ticks>,
}

impl Poll<'_> {
    fn path(&self) -> &'static str {
        match self.name {
            FeedName::Cases => PATH_CASES,
            FeedName::Contacts => PATH_CONTACTS,
        }
    }

    fn id_field(&self) -> &'static str {
        match self.name {
            FeedName::Cases => "CaseId",
            FeedName::Contacts => "ContactId",
        }
    }

    async fn by_odata(&mut self, lower: Ticks) -> Result<()> {
        let mut top =
            self.state.page_size.and_then(|size| u32::try_from(size).ok()).unwrap_or(LARGEST_PAGE);
        let mut walk = Walk::new(lower);
        while let Some(ask) = walk.next_ask() {
            let query = self.odata_query(ask, lower, top);
            let rows = match self.call(query).await {
                Ok(rows) => rows,
                Err(error)
                    if top > SMALLEST_PAGE
                        && refusal(&error).is_some_and(|refusal| refusal.status == 400) =>
                {
                    top = (top / 2).max(SMALLEST_PAGE);
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.state.page_size = Some(i64::from(top));
            walk.take(ask, &rows.rows, top as usize, rows.records);
            self.state.cursor = Some(walk.cursor().get());
            self.commit(rows).await?;
            if walk.passes() > MOST_PASSES {
                return Err(Error::new(
                    Kind::BadAnswer,
                    format!(
                        "{}: {MOST_PASSES} passes by $skip in a row differed; the list does not \
                         stand still and cannot be read completely",
                        self.path()
                    ),
                ));
            }
        }
        Ok(())
    }

    fn odata_query(&self, ask: Ask, lower: Ticks, top: u32) -> Query {
        let from = |at: Ticks| Filter::ge("ModifiedDate", at);
        let query = Query::new().top(top);
        match ask {
            Ask::From(at) => query.filter(from(at)).order_by(OrderBy::asc("ModifiedDate")),
            Ask::Ties { at, from_id } => {
                let at = Filter::eq("ModifiedDate", at);
                // The first page is of all ids; its bound is no number that a service takes for one.
                let ties = if from_id == i64::MIN {
                    at
                } else {
                    at.and(Filter::ge(self.id_field(), from_id))
                };
                query.filter(ties).order_by(OrderBy::asc(self.id_field()))
            }
            Ask::Skip(skip) => {
                let query = query.filter(from(lower)).order_by(OrderBy::asc("ModifiedDate"));
                if skip > 0 { query.skip(skip) } else { query }
            }
        }
    }

    /// The style of `?fromDate=`: no paging is documented, so a length that a default page could
    /// have is looked behind.
    async fn by_from_date(&mut self, lower: Ticks) -> Result<()> {
        let from = lower.to_string();
        let first = self.call(Query::new().with("fromDate", &from)).await?;
        let mut known: std::collections::BTreeSet<(i64, Option<i64>)> =
            first.rows.iter().map(FeedRow::identity).collect();
        let mut records = first.records;
        let mut length = first.records;
        self.commit(first).await?;
        while length > 0 && length % 100 == 0 {
            let query = Query::new().with("fromDate", &from).skip(records as u64);
            let more = self.call(query).await?;
            let new = more.rows.iter().filter(|row| known.insert(row.identity())).count();
            length = if new == 0 { 0 } else { more.records };
            records += more.records;
            self.commit(more).await?;
        }
        Ok(())
    }

    async fn call(&mut self, query: Query) -> Result<FeedRows> {
        let request =
            Request::get(self.path(), &[])?.query(query).class(CallClass::Feed(self.name));
        let answer = self.feed.client.send(&request).await?;
        self.polled.calls += 1;
        failpoint::reach("feed-call-noted");
        self.started(&answer);
        let Split { records, .. } =
            split(&answer.body).map_err(|e| e.within(format!("{}: no list came", self.path())))?;
        let rows = FeedRows::read(&records, self.name, self.feed.zone);
        self.newest = rows.rows.iter().map(|row| row.modified).chain(self.newest).max();
        if let Some(date) = answer.server_date {
            self.dated = true;
            self.state.skew = least_skew(self.state.skew, date, &rows.rows);
        }
        Ok(rows)
    }

    /// The bound that this poll sets is decided by its first answer.
    fn started(&mut self, answer: &Answer) {
        if self.state.next_bound.is_none() {
            // A cursor of an interrupted poll keeps that poll's bound: it started earlier.
            self.state.next_bound = answer.server_date.map(|date| Ticks::from(date).get());
        }
    }

    async fn commit(&mut self, page: FeedRows) -> Result<()> {
        if let Some(fault) = &page.fault {
            tracing::warn!(feed = self.name.as_str(), fault, "a row of the feed is unusable");
        }
        let (name, state) = (self.name, self.state.clone());
        let now = Timestamp::now();
        let moved = self
            .feed
            .writer
            .run(move |conn| {
                let books = State::new(conn);
                // Each page has a number of its own: calls go on meanwhile, and what was sent before
                // this page is committed may be answered with what was there before it.
                let sequence = books.sequence()? + 1;
                let moved = match name {
                    FeedName::Cases => books.see_cases(&page.cases(), sequence, now)?,
                    FeedName::Contacts => books.see_contacts(&page.contacts(), sequence)?,
                };
                if moved > 0 {
                    books.set_sequence(sequence)?;
                }
                books.set_feed(name.as_str(), &state, None)?;
                Ok(moved)
            })
            .await?;
        self.polled.moved += moved;
        failpoint::reach("feed-page-committed");
        Ok(())
    }

    async fn complete(&mut self) -> Result<()> {
        let overlap = self.feed.settings.overlap;
        let bound = if self.dated {
            next_bound(&self.state, overlap)
        } else {
            // Without `Date` the newest row decides, and nothing moves while there is none.
            let now = Ticks::from_timestamp(Timestamp::now());
            self.newest.map(|newest| newest.min(now).earlier_by(overlap))
        };
        self.state.bound = bound.map(Ticks::get).or(self.state.bound);
        self.state.next_bound = None;
        self.state.cursor = None;
        let (name, state) = (self.name, self.state.clone());
        self.feed
            .writer
            .run(move |conn| {
                State::new(conn).set_feed(name.as_str(), &state, Some(Timestamp::now()))
            })
            .await
    }
}

/// The lower bound of the next poll, which is also the watermark: the server's time at the start of
/// this one, minus the skew, minus the overlap.
///
/// The skew is the smallest distance between the server's clock and a `ModifiedDate` ever met: where
/// the web server's clock runs ahead of the database's, changes of the last minutes carry dates
/// before any bound that trusts it. Before the first row there is no bound: nothing is known about
/// the clocks, and nothing is lost by asking from the same place again.
pub fn next_bound(state: &FeedState, overlap: Duration) -> Option<Ticks> {
    let started = Ticks::new(state.next_bound?);
    let skew = state.skew?;
    let skew = Duration::from_nanos(u64::try_from(skew).unwrap_or(0).saturating_mul(100));
    Some(started.earlier_by(skew).earlier_by(overlap))
}

fn least_skew(before: Option<i64>, date: Timestamp, rows: &[FeedRow]) -> Option<i64> {
    let date = Ticks::from(date).get();
    rows.iter().map(|row| date.saturating_sub(row.modified.get()).max(0)).chain(before).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Ticks {
        Ticks::new(seconds * 10_000_000)
    }

    #[test]
    fn the_bound_lies_behind_the_server_by_skew_and_overlap() {
        let state = FeedState {
            next_bound: Some(at(10_000).get()),
            skew: Some(at(30).get()),
            ..FeedState::default()
        };
        assert_eq!(next_bound(&state, Duration::from_secs(600)), Some(at(9_370)));
    }

    #[test]
    fn without_a_row_the_bound_stays_where_it_is() {
        let state = FeedState { next_bound: Some(1), ..FeedState::default() };
        assert_eq!(next_bound(&state, Duration::ZERO), None);
    }

    #[test]
    fn the_skew_is_the_smallest_distance_and_never_below_zero() {
        let rows = |seconds: &[i64]| -> Vec<FeedRow> {
            seconds.iter().map(|s| FeedRow::for_test(1, at(*s))).collect()
        };
        let date = Timestamp::from_second(1_000).unwrap();
        assert_eq!(least_skew(None, date, &[]), None);
        assert_eq!(least_skew(None, date, &rows(&[900, 950])), Some(at(50).get()));
        assert_eq!(least_skew(Some(at(20).get()), date, &rows(&[950])), Some(at(20).get()));
        assert_eq!(least_skew(Some(at(20).get()), date, &rows(&[1_001])), Some(0));
    }
}
