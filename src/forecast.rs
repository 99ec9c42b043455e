//! What the next `sync` would call (contract section 1, `plan`), by what the books say was seen and
//! fetched. Nothing is asked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use crate::catalog::{Catalog, Group, Resource};
use crate::config::Config;
use crate::cycle::{self, CONTACT_AGE, Due, IDS_PER_CALL, Options};
use crate::error::Result;
use crate::mirror::{Books, Place, State};
use crate::schedule::Name;
use crate::source::pages::FIRST_TOP;

/// Cases planned at once.
const BATCH: usize = 2_000;

/// What is called for one table, or for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The table, or what else is asked.
    pub what: String,
    /// Parts of it that are read whole: cases, contacts, lists.
    pub scopes: u64,
    pub calls: u64,
}

/// All calls of the next `sync`, beside the token.
#[derive(Debug, Clone, Default)]
pub struct Forecast {
    /// To the change feeds: one each, and more only where more than a page has changed.
    pub feeds: Vec<Line>,
    pub lines: Vec<Line>,
    /// Stale, but waiting for its next attempt.
    pub waiting: u64,
    /// There may be cases that are known only when they have been listed, and only then what of them
    /// has to be read.
    pub unlisted: bool,
}

impl Forecast {
    /// Calls but those to the feeds.
    pub fn calls(&self) -> u64 {
        self.lines.iter().map(|line| line.calls).sum()
    }
}

/// The least time that so many calls take within `limits.requests_per_second`.
pub fn time(calls: u64, per_second: u32) -> Duration {
    Duration::from_millis(calls.saturating_mul(1000).div_ceil(u64::from(per_second.max(1))))
}

/// The least time that so many calls to the feeds take within `feed.calls` in `feed.per`.
pub fn feed_time(calls: u64, limit: u32, per: Duration) -> Duration {
    let windows = calls.saturating_sub(1) / u64::from(limit.max(1));
    per.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX))
}

/// Tells what the next `sync` without options would call at `now`, by the books on `conn`.
///
/// # Errors
/// Those of the store.
pub fn forecast(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    now: Timestamp,
) -> Result<Forecast> {
    let books = Books::new(conn);
    let status = books.resources()?;
    let again = |table: &str| matches!(status[table].status.as_str(), "forbidden" | "absent");
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

impl Forecaster<'_> {
    fn tell(&self) -> Result<Forecast> {
        let state = State::new(self.conn);
        let mut all =
            Forecast { unlisted: state.meta("listed_at")?.is_none(), ..Forecast::default() };
        let line = |what: &str, calls| Line { what: what.to_owned(), scopes: calls, calls };
        all.feeds.push(line("change feed (cases)", 1));
        let has_contacts = self.active.iter().any(|r| r.table == Place::Contacts.table());
        let followed = self.config.feed.contacts_poll.is_some()
            && has_contacts
            && state.meta("contacts_feed")?.as_deref() != Some("absent");
        if followed {
            all.feeds.push(line("change feed (contacts)", 1));
        }
        let user = u64::from(state.meta("tenant")?.is_none())
            + u64::from(self.due.schedules.contains(&Name::Reference));
        if user > 0 {
            all.lines.push(line("tenant and permissions", user));
        }
        let (cases, waiting) = self.cases()?;
        all.waiting = waiting;
        for resource in &self.active {
            let line = match &resource.group {
                Group::Case => self.of_cases(resource, &cases),
                Group::Ids if resource.table == Place::Contacts.table() => {
                    self.contacts(followed)?
                }
                Group::Ids => self.searched(resource, &cases)?,
                Group::List | Group::Each(_) => self.list(resource)?,
                Group::Journal(_) => {
                    let (line, waiting) = self.journal(resource)?;
                    all.waiting += waiting;
                    line
                }
                Group::Child(_) => continue,
            };
            if line.calls > 0 {
                all.lines.push(line);
            }
        }
        Ok(all)
    }

    /// Stale cases by table, and how many wait.
    fn cases(&self) -> Result<(BTreeMap<String, BTreeSet<i64>>, u64)> {
        let state = State::new(self.conn);
        let since = cycle::since(self.config)?;
        let mut stale: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        let (mut waiting, mut after) = (0, None);
        loop {
            let batch = state.dirty_cases(after, &[], BATCH)?;
            let Some(last) = batch.last() else { return Ok((stale, waiting)) };
            after = Some((last.dates[0].unwrap_or(i64::MIN), last.case_id));
            for (_, plan) in cycle::plan_cases(self.conn, &batch, &self.active, &[], since)? {
                waiting += plan.waiting.len() as u64;
                for scope in plan.stale {
                    stale.entry(scope.table).or_default().insert(scope.id);
                }
            }
        }
    }

    fn of_cases(&self, resource: &Resource, cases: &BTreeMap<String, BTreeSet<i64>>) -> Line {
        let scopes = cases.get(&resource.table).map_or(0, |ids| ids.len() as u64);
        let each = resource.read.as_ref().and_then(|read| read.values.as_ref());
        let calls = scopes * each.map_or(1, |(_, values)| values.len() as u64);
        Line { what: resource.table.clone(), scopes, calls }
    }

    /// A listing, or the stale ids, many in one call; and once more what is searched before
    /// `source.search_delay` is over.
    fn searched(
        &self,
        resource: &Resource,
        cases: &BTreeMap<String, BTreeSet<i64>>,
    ) -> Result<Line> {
        let state = State::new(self.conn);
        let path = resource.read.as_ref().map(|read| read.path.as_str()).unwrap_or_default();
        let empty = BTreeSet::new();
        let stale = cases.get(&resource.table).unwrap_or(&empty);
        let again =
            state.searched_again(&resource.table, stale, self.search_delay_ticks(), self.now)?;
        let repeated = again.div_ceil(IDS_PER_CALL as u64);
        let (scopes, calls) = if self.due.listing {
            let rows = state.count_rows(&resource.table)?;
            let page = cycle::page_sizes(self.conn)?.get(path).copied().unwrap_or(FIRST_TOP);
            (rows, rows.div_ceil(u64::from(page.max(1))).max(1))
        } else {
            (stale.len() as u64, (stale.len() as u64).div_ceil(IDS_PER_CALL as u64))
        };
        Ok(Line {
            what: resource.table.clone(),
            scopes: scopes.max(again),
            calls: calls + repeated,
        })
    }

    fn search_delay_ticks(&self) -> i64 {
        i64::try_from(self.config.source.search_delay.as_nanos() / 100).unwrap_or(i64::MAX)
    }

    fn contacts(&self, followed: bool) -> Result<Line> {
        let older = (!followed).then(|| (self.now - CONTACT_AGE).as_microsecond());
        let state = State::new(self.conn);
        let ids = state.stale_contacts(self.now.as_microsecond(), older)?;
        let scopes = ids.len() as u64;
        let calls = scopes.div_ceil(IDS_PER_CALL as u64);
        Ok(Line { what: Place::Contacts.table().to_owned(), scopes, calls })
    }

    /// Months that are due, or that the schedules make so, and how many wait. A month that is too much
    /// for one call takes more than this says.
    fn journal(&self, resource: &Resource) -> Result<(Line, u64)> {
        let (months, waiting) =
            cycle::planned_months(self.conn, self.config, &self.due, &resource.table)?;
        let scopes = months.len() as u64;
        Ok((Line { what: resource.table.clone(), scopes, calls: scopes }, waiting))
    }

    fn list(&self, resource: &Resource) -> Result<Line> {
        let state = State::new(self.conn);
        let due = self.due.schedules.contains(&Name::Reference);
        let read = resource.schedule.is_some() && (due || state.list_is_stale(&resource.table)?);
        let scopes = match &resource.group {
            _ if !read => 0,
            Group::Each(each) if due => state.each_ids(resource, each)?.len() as u64,
            Group::Each(each) => state.stale_each_ids(resource, each)?.len() as u64,
            _ => 1,
        };
        Ok(Line { what: resource.table.clone(), scopes, calls: scopes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
