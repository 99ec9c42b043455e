//! What the next `sync` would call, by what the store says was seen and fetched. Nothing is asked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use crate::catalog::{Catalog, Group, Paging, Resource};
use crate::config::{Config, FeedStyle, Reread};
use crate::cycle::{self, CONTACT_AGE, Due, IDS_PER_CALL, Options};
use crate::error::Result;
use crate::feed::LARGEST_PAGE;
use crate::mirror::{ContactsFeed, State};
use crate::plan::CasePlan;
use crate::schedule::Name;
use crate::scope::{FeedName, Month, Place, REVENUE, TableStatus};
use crate::source::pages::FIRST_TOP;
use crate::ticks::Ticks;
use crate::verify;

/// The table whose rows say whose journals there are.
const OFFICES: &str = "offices";
/// Cases planned at once.
const BATCH: usize = 2_000;

/// What is called for one table, or for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The table, or what else is asked.
    pub(crate) what: String,
    /// Parts of it that are read whole: cases, contacts, lists.
    pub(crate) scopes: u64,
    pub(crate) calls: u64,
}

/// What has never been read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unread {
    pub(crate) table: String,
    /// Of so many cases; `None`: at all.
    pub(crate) cases: Option<u64>,
}

/// All calls of the next `sync`, beside the token.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forecast {
    /// To the change feeds: one each, and more only where more than a page has changed.
    pub(crate) feeds: Vec<Line>,
    pub(crate) lines: Vec<Line>,
    /// Stale, but waiting for its next attempt.
    pub(crate) waiting: u64,
    /// There may be cases that are known only when they have been listed.
    pub(crate) unlisted: bool,
    /// By what has to be read first: the tables whose calls its rows decide.
    pub(crate) uncounted: BTreeMap<Unread, Vec<String>>,
}

impl Forecast {
    /// Calls but those to the feeds.
    pub(crate) fn calls(&self) -> u64 {
        self.lines.iter().map(|line| line.calls).sum()
    }
}

/// The least time that so many calls take within `limits.requests_per_second`.
pub(crate) fn time(calls: u64, per_second: u32) -> Duration {
    Duration::from_millis(calls.saturating_mul(1000).div_ceil(u64::from(per_second.max(1))))
}

/// The least time that so many calls to the feeds take within `feed.calls` in `feed.per`.
pub(crate) fn feed_time(calls: u64, limit: u32, per: Duration) -> Duration {
    let windows = calls.saturating_sub(1) / u64::from(limit.max(1));
    per.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX))
}

/// Tells what the next `sync` without options would call at `now`, by the store on `conn`.
///
/// # Errors
/// Those of the store.
pub(crate) fn forecast(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    now: Timestamp,
) -> Result<Forecast> {
    let status = State::new(conn).statuses().all()?;
    let again = |table: &str| {
        matches!(status[table].own_status(), TableStatus::Forbidden | TableStatus::Absent)
    };
    let due = Due::of(config, conn, &Options::default(), now)?;
    let retried = due.schedules.contains(&Name::Reference);
    let active: Vec<Arc<Resource>> = catalog
        .resources()
        .iter()
        .filter(|r| status.contains_key(&r.table))
        .filter(|r| {
            // What was not allowed is tried again when the permissions are read.
            status[&r.table].is_asked() || retried && again(&r.table)
        })
        .cloned()
        .collect();
    Forecaster { conn, config, due, active, now }.tell()
}

struct Forecaster<'a> {
    conn: &'a Connection,
    config: &'a Config,
    due: Due,
    active: Vec<Arc<Resource>>,
    now: Timestamp,
}

/// Cases to be read.
#[derive(Debug, Default)]
struct Cases {
    /// By table.
    stale: BTreeMap<String, BTreeSet<i64>>,
    /// How many that were never read, by table.
    unread: BTreeMap<String, u64>,
    /// Those of them that `schedule.reconcile` has read whole again.
    reread: BTreeSet<i64>,
    /// What it has read again alone: table and case.
    reread_alone: BTreeSet<(String, i64)>,
    waiting: u64,
}

impl Forecaster<'_> {
    fn tell(&self) -> Result<Forecast> {
        let state = State::new(self.conn);
        let unlisted = !state.standings().are_listed()?;
        let mut all = Forecast { unlisted, ..Forecast::default() };
        let line = |what: &str, calls| Line { what: what.to_owned(), scopes: calls, calls };
        all.feeds.push(line("change feed (cases)", self.feed(FeedName::Cases)?));
        let has_contacts = self.active.iter().any(|r| r.table == Place::Contacts.table());
        let followed = self.config.feed.contacts_poll.is_some()
            && has_contacts
            && state.contacts_feed()? != ContactsFeed::Closed;
        if followed {
            all.feeds.push(line("change feed (contacts)", self.feed(FeedName::Contacts)?));
        }
        let user = u64::from(state.meta("tenant")?.is_none())
            + u64::from(self.due.schedules.contains(&Name::Reference));
        if user > 0 {
            all.lines.push(line("tenant and permissions", user));
        }
        let cases = self.cases()?;
        all.waiting = cases.waiting;
        for resource in &self.active {
            if let Some(source) = self.unread_source(resource, all.unlisted, &cases)? {
                all.uncounted.entry(source).or_default().push(resource.table.clone());
            }
            let line = match &resource.group {
                Group::Case => self.of_cases(resource, &cases),
                Group::Ids if resource.table == Place::Contacts.table() => {
                    self.contacts(followed)?
                }
                Group::Ids => self.searched(resource, &cases)?,
                Group::List | Group::ForEach(_) => self.list(resource)?,
                Group::Journal(_) => {
                    let (line, waiting) = self.journal(resource)?;
                    all.waiting += waiting;
                    line
                }
                Group::Child(_) | Group::Events => continue,
            };
            if line.calls > 0 {
                all.lines.push(line);
            }
        }
        if self.due.schedules.contains(&Name::Verify) {
            all.lines.extend(self.verify()?);
        }
        Ok(all)
    }

    /// The table whose rows decide what is called for this one, where they have never been read.
    fn unread_source(
        &self,
        resource: &Resource,
        unlisted: bool,
        cases: &Cases,
    ) -> Result<Option<Unread>> {
        let whole = |table: &str| Unread { table: table.to_owned(), cases: None };
        let state = State::new(self.conn);
        let source = match &resource.group {
            Group::ForEach(each) => each.table.as_str(),
            Group::Journal(_) if self.config.journals.ids.is_empty() => OFFICES,
            Group::Case if resource.lookup.is_some() && unlisted => {
                return Ok(Some(whole(Place::Cases.table())));
            }
            Group::Case => {
                // Only the value that its row has says whether a case is asked for.
                let source = resource.condition.as_ref().map(|condition| &condition.table);
                let is_read = |table: &&String| self.active.iter().any(|r| r.table == **table);
                let of_cases = |table: &String| {
                    let count = cases.unread.get(table)?;
                    Some(Unread { cases: Some(*count), ..whole(table) })
                };
                return Ok(source.filter(is_read).and_then(|table| {
                    if unlisted { Some(whole(table)) } else { of_cases(table) }
                }));
            }
            _ => return Ok(None),
        };
        let never = state.scopes().why_list_is_stale(source)?.is_some_and(|(_, never)| never);
        Ok(never.then(|| whole(source)))
    }

    /// A poll; another one where a verify is due, which follows what has changed while it asked; and
    /// what is read again when the cases are listed.
    fn feed(&self, feed: FeedName) -> Result<u64> {
        let mut calls = 1 + u64::from(self.due.schedules.contains(&Name::Verify));
        let state = State::new(self.conn);
        let polled = state.feed(feed.as_str())?;
        if self.due.schedules.contains(&Name::Reconcile) && polled.bound.is_some() {
            let reach = cycle::reread_reach(self.conn, feed, self.now)?;
            let since = Ticks::from(self.now).earlier_by(reach);
            let rows = state.forecasts().modified_since(feed, since)?;
            let page = polled.page_size.and_then(|size| u64::try_from(size).ok());
            let page = match self.config.feed.style {
                FeedStyle::Odata => Some(page.unwrap_or(u64::from(LARGEST_PAGE))),
                FeedStyle::FromDate => None,
            };
            calls += feed_calls(rows, page);
        }
        Ok(calls)
    }

    fn cases(&self) -> Result<Cases> {
        let state = State::new(self.conn);
        let since = cycle::since(self.config)?;
        let failures = state.failures().failures()?;
        let mut cases = Cases::default();
        if self.due.rereads(self.config) {
            let all = self.config.reconcile.reread == Reread::All;
            cases.reread = state.stale_marks().cases_to_reread(all)?.into_iter().collect();
            cases.reread_alone = state.stale_marks().scopes_to_reread()?.into_iter().collect();
        }
        let now_us = self.now.as_microsecond();
        let mut add = |plan: CasePlan| {
            // What only waits until something else is read comes in this run too.
            let waits = |key: &(String, i64)| failures.get(key).is_some_and(|at| *at > now_us);
            for scope in plan.stale.into_iter().chain(plan.waiting) {
                let key = (scope.table, scope.id);
                if waits(&key) {
                    cases.waiting += 1;
                } else {
                    cases.stale.entry(key.0).or_default().insert(key.1);
                }
            }
        };
        let in_part = cases.reread_alone.iter().map(|(_, id)| *id);
        let reread: BTreeSet<i64> = cases.reread.iter().copied().chain(in_part).collect();
        for ids in Vec::from_iter(reread.iter().copied()).chunks(BATCH) {
            let batch = state.verifications().cases(ids)?;
            let is_reread = |scope: &(String, i64)| {
                cases.reread.contains(&scope.1) || cases.reread_alone.contains(scope)
            };
            let plans = cycle::plan_rereading(self.conn, &batch, &self.active, since, is_reread)?;
            plans.into_iter().for_each(|(_, plan)| add(plan));
        }
        state.unread().stage(&self.active, since)?;
        cases.unread = state.unread().count(&self.active)?;
        let mut after = None;
        loop {
            let mut batch = state.cases().dirty_cases_that_were_read(after, BATCH)?;
            let Some(last) = batch.last() else { return Ok(cases) };
            after = Some((last.dates[0].unwrap_or(i64::MIN), last.case_id));
            batch.retain(|case| !reread.contains(&case.case_id));
            let plans = cycle::plan_cases(self.conn, &batch, &self.active, &[], since)?;
            plans.into_iter().for_each(|(_, plan)| add(plan));
        }
    }

    fn of_cases(&self, resource: &Resource, cases: &Cases) -> Line {
        let read_before = cases.stale.get(&resource.table).map_or(0, |ids| ids.len() as u64);
        let scopes = read_before + cases.unread.get(&resource.table).copied().unwrap_or(0);
        let calls = scopes * resource.calls_per_scope();
        Line { what: resource.table.clone(), scopes, calls }
    }

    /// A listing; the stale ids, many in one call; and once more what is searched before
    /// `source.search_delay` is over. Of a case that is hidden it is asked whether it exists.
    fn searched(&self, resource: &Resource, cases: &Cases) -> Result<Line> {
        let state = State::new(self.conn);
        let path = resource.read.as_ref().map(|read| read.path.as_str()).unwrap_or_default();
        let mut stale = cases.stale.get(&resource.table).cloned().unwrap_or_default();
        if self.due.listing {
            // What is listed is read by that.
            let alone = |id: i64| cases.reread_alone.contains(&(resource.table.clone(), id));
            stale.retain(|id| cases.reread.contains(id) || alone(*id));
        }
        let calls = |ids: usize| ids.div_ceil(IDS_PER_CALL) as u64;
        let place = Place::parse(&resource.table).unwrap_or(Place::Cases);
        let hidden: BTreeSet<i64> = state.forecasts().hidden_cases(place)?.into_iter().collect();
        let searches = |ids: &BTreeSet<i64>| {
            let looked_for = hidden.intersection(ids).count();
            calls(ids.len()) + calls(looked_for) + looked_for as u64
        };
        let mut line = Line {
            what: resource.table.clone(),
            scopes: stale.len() as u64,
            calls: searches(&stale),
        };
        if self.due.listing {
            let rows = state.scopes().count_rows(&resource.table)?;
            line.scopes = rows;
            line.calls += self.pages(path, rows)?.max(1) + hidden.len() as u64;
        }
        let again = state.waiting().searched_again(
            &resource.table,
            &stale,
            self.search_delay_ticks(),
            self.now,
        )?;
        line.scopes = line.scopes.max(again.len() as u64);
        line.calls += searches(&again);
        Ok(line)
    }

    /// In how many pages a list of so many rows comes.
    fn pages(&self, path: &str, rows: u64) -> Result<u64> {
        let page = cycle::page_sizes(self.conn)?.get(path).copied().unwrap_or(FIRST_TOP);
        Ok(rows.div_ceil(u64::from(page.max(1))))
    }

    fn search_delay_ticks(&self) -> i64 {
        i64::try_from(self.config.source.search_delay.as_nanos() / 100).unwrap_or(i64::MAX)
    }

    fn contacts(&self, followed: bool) -> Result<Line> {
        let older = (!followed).then(|| (self.now - CONTACT_AGE).as_microsecond());
        let state = State::new(self.conn);
        let ids = state.contacts().stale_contacts(self.now.as_microsecond(), older)?;
        let mut ids = BTreeSet::from_iter(ids);
        if self.due.rereads(self.config) {
            ids.extend(state.stale_marks().contacts_to_reread()?);
        }
        let scopes = ids.len() as u64;
        let calls = scopes.div_ceil(IDS_PER_CALL as u64);
        Ok(Line { what: Place::Contacts.table().to_owned(), scopes, calls })
    }

    /// Months that are due, or that the schedules make so, and how many wait. One that is known to be
    /// too much for one call is read in parts: once where it brings the lines that it brought before,
    /// else twice. One that turns out to be too much takes more calls than this tells.
    fn journal(&self, resource: &Resource) -> Result<(Line, u64)> {
        let level = self.config.journals.level;
        let known = State::new(self.conn).forecasts().months_read(&resource.table, level)?;
        let (months, waiting) = self.months(&resource.table)?;
        let calls = |(id, month): &(i64, Month)| {
            // A month that is new begins with what the one before it bears.
            let months = known.get(id);
            let own = months.and_then(|months| months.get(month));
            let like = own.or_else(|| months.and_then(|months| months.values().next_back()));
            let days = like.and_then(|read| read.window_days).unwrap_or(u32::MAX);
            match month.window().parts(days).len() as u64 {
                1 => 1,
                parts if own.is_some_and(|read| read.is_digested) => parts,
                parts => 2 * parts,
            }
        };
        let line = Line {
            what: resource.table.clone(),
            scopes: months.len() as u64,
            calls: months.iter().map(calls).sum(),
        };
        Ok((line, waiting))
    }

    fn months(&self, table: &str) -> Result<(BTreeSet<(i64, Month)>, u64)> {
        cycle::planned_months(self.conn, self.config, &self.due, table)
    }

    /// What a verify asks for where everything is the same at once.
    fn verify(&self) -> Result<Vec<Line>> {
        let (months, _) = self.months(REVENUE)?;
        let asks = verify::Asks::of(self.conn, self.config, &self.active, &months)?;
        let line = |what: &str, scopes, calls| Line { what: what.to_owned(), scopes, calls };
        Ok(vec![
            line("verify: numbers of cases", asks.counts, asks.counts),
            line("verify: sums of revenue", asks.sums, asks.sums),
            line("verify: months line by line", asks.months, asks.months),
            line("verify: sampled cases", asks.cases, asks.sample_calls),
        ])
    }

    fn list(&self, resource: &Resource) -> Result<Line> {
        let state = State::new(self.conn);
        let due = self.due.schedules.contains(&Name::Reference);
        let read = resource.schedule.is_some()
            && (due || state.scopes().list_is_stale(&resource.table)?);
        let scopes = match &resource.group {
            _ if !read => 0,
            Group::ForEach(each) if due => state.scopes().each_ids(resource, each)?.len() as u64,
            Group::ForEach(each) => state.scopes().stale_each_ids(resource, each)?.len() as u64,
            _ => 1,
        };
        let mut calls = scopes * resource.calls_per_scope();
        if let (1.., Group::List, Some(read)) = (scopes, &resource.group, &resource.read)
            && read.paging == Paging::Odata
        {
            let rows = state.scopes().count_rows(&resource.table)?;
            calls = calls.max(self.pages(&read.path, rows)?);
        }
        Ok(Line { what: resource.table.clone(), scopes, calls })
    }
}

/// How many calls it takes to read so many rows of a feed again: pages overlap by a row, and behind
/// one that a default page could have ended it is looked once more. `page`: how many are asked for.
fn feed_calls(rows: u64, page: Option<u64>) -> u64 {
    let pages = match page {
        Some(page) if rows >= page => 1 + (rows - 1) / page.saturating_sub(1).max(1),
        _ => 1,
    };
    let rest = page.map_or(rows, |page| rows - (pages - 1) * page.saturating_sub(1).min(rows));
    pages + u64::from(rest > 0 && rest.is_multiple_of(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_feed_overlap_and_a_round_number_is_looked_behind() {
        let calls = |rows| feed_calls(rows, Some(1_000));
        assert_eq!([0, 1, 99, 101, 999].map(calls), [1; 5]);
        assert_eq!([100, 900].map(calls), [2; 2]);
        assert_eq!([1_000, 1_998].map(calls), [2; 2]);
        assert_eq!([1_999, 2_997].map(calls), [3; 2]);
        // The second page has 100 rows, one of them known.
        assert_eq!(calls(1_099), 3);
        assert_eq!([99, 100, 1_200].map(|rows| feed_calls(rows, None)), [1, 2, 2]);
    }

    #[test]
    fn calls_take_the_time_that_the_limits_leave_them() {
        assert_eq!(time(0, 10), Duration::ZERO);
        assert_eq!(time(1, 10), Duration::from_millis(100));
        assert_eq!(time(2_500_000, 10), Duration::from_secs(250_000));
        let per = Duration::from_secs(30);
        assert_eq!(feed_time(2, 6, per), Duration::ZERO);
        assert_eq!(feed_time(6, 6, per), Duration::ZERO);
        assert_eq!(feed_time(7, 6, per), per);
        assert_eq!(feed_time(2, 1, per), per);
    }
}
