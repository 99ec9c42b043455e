//! The way through the feed's pages, decided from what came (pure).
//!
//! Pages are keyset pages over `ModifiedDate`: a row that moves while we read moves to the end and is
//! met there, and none slips between two pages. Where more rows share a date than a page holds, they
//! are read by that date and the id. A service that cannot compare dates exactly betrays itself (an
//! `eq`, or a page from that date on, that lacks the rows already seen at that date; a full page that
//! brings nothing new), one that does not know such a filter refuses it: then passes by `$skip` take over, each page overlapping
//! the last by a row, and count only when two are equal. What comes in one answer needs no second
//! pass, and the same records again are a service that ignores `$skip`: they are all
//! (docs/architecture.md, "Completeness").

use std::collections::{BTreeMap, BTreeSet};

use super::page::{FeedRow, FeedRows, Identity};
use crate::ticks::Ticks;

/// The next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Rows from this date on, by date.
    From(Ticks),
    /// Rows of exactly this date from this id on, by id.
    Ties { at: Ticks, from_id: i64 },
    /// Rows from the reading's lower bound on, by date, without the first so many.
    Skip(u64),
}

/// Pages of one reading.
#[derive(Debug)]
pub(super) struct Walk {
    next: Option<Ask>,
    /// All before this date has been seen in this reading.
    cursor: Ticks,
    /// The ids seen, by the number of their date.
    seen: BTreeMap<i64, BTreeSet<i64>>,
    pass: Pass,
    passes: usize,
    /// The end was reached with fewer rows than were counted.
    lacks_counted: bool,
}

/// A pass by `$skip`: the records it met, in order, and those that the one before it met.
#[derive(Debug, Default)]
struct Pass {
    records: Vec<Identity>,
    known: BTreeSet<Identity>,
    /// The first page, in order of the identities.
    first: Vec<Identity>,
    before: Option<BTreeSet<Identity>>,
}

/// The page size that applies when a service ignores `$top` (reference 1: 100 when not specified).
const DEFAULT_PAGE: usize = 100;

/// Whether the list goes on behind a page of `records`, when `top` were asked for: a page that is
/// shorter is the last, unless a default page could have that length.
fn may_go_on(records: usize, top: usize) -> bool {
    records == top || (records < top && records > 0 && records.is_multiple_of(DEFAULT_PAGE))
}

impl Walk {
    /// By date and id, as long as the service can.
    pub(crate) fn by_date(lower: Ticks) -> Walk {
        Walk {
            next: Some(Ask::From(lower)),
            cursor: lower,
            seen: BTreeMap::new(),
            pass: Pass::default(),
            passes: 0,
            lacks_counted: false,
        }
    }

    /// By `$skip` from the start.
    pub(crate) fn by_skip(lower: Ticks) -> Walk {
        Walk { next: Some(Ask::Skip(0)), ..Walk::by_date(lower) }
    }

    pub(crate) fn next_ask(&self) -> Option<Ask> {
        self.next
    }

    /// Where a reading that is cut off here goes on.
    pub(crate) fn cursor(&self) -> Ticks {
        self.cursor
    }

    /// Passes by `$skip` that were ended.
    pub(crate) fn passes(&self) -> usize {
        self.passes
    }

    /// The walk came to its end, and `Count` tells of rows that did not come.
    pub(crate) fn lacks_counted(&self) -> bool {
        self.next.is_none() && self.lacks_counted
    }

    /// The service does not know the filter of the last call.
    pub(crate) fn filter_is_refused(&mut self) {
        self.next = Some(Ask::Skip(0));
    }

    /// Takes the answer to `ask`, of which `top` records were asked. No date behind `latest` is one that the
    /// service can have written by now: such a row is taken, and leads nowhere.
    pub(crate) fn take(&mut self, ask: Ask, page: &FeedRows, top: usize, latest: Ticks) {
        let lacks_known = matches!(ask, Ask::From(from) if self.lacks_all_of(from, page));
        let new = page
            .rows
            .iter()
            .filter(|row| self.seen.entry(row.key()).or_default().insert(row.id))
            .count();
        let different = page.identities.iter().collect::<BTreeSet<_>>().len() as u64;
        let by_length = may_go_on(page.identities.len(), top);
        let goes_on = by_length || page.count.is_some_and(|count| different < count);
        self.next = match ask {
            // It rounds the date up, and what lies between is on no page.
            Ask::From(_) if lacks_known => Some(Ask::Skip(0)),
            Ask::From(from) => self.after_page(from, page, goes_on, new, latest),
            Ask::Ties { at, from_id } => self.after_ties(at, from_id, page, goes_on),
            Ask::Skip(skip) => self.after_skip(skip, page, by_length),
        };
    }

    /// Whether a page from this date on lacks all rows that were seen at it, and has no other of that date: ties come in
    /// any order. Where the rows have moved meanwhile, all is read by `$skip` for nothing.
    fn lacks_all_of(&self, from: Ticks, page: &FeedRows) -> bool {
        let is_met =
            |seen: &BTreeSet<i64>, row: &FeedRow| row.key() == from.get() || seen.contains(&row.id);
        let seen = self.seen.get(&from.get()).filter(|seen| !seen.is_empty());
        seen.is_some_and(|seen| !page.rows.iter().any(|row| is_met(seen, row)))
    }

    fn after_page(
        &mut self,
        from: Ticks,
        page: &FeedRows,
        goes_on: bool,
        new: usize,
        latest: Ticks,
    ) -> Option<Ask> {
        if !goes_on {
            // Short, or longer than asked: the endpoint does not page, and this is all.
            return None;
        }
        // A row whose date cannot be read stands somewhere between its neighbours.
        let mut dates = page.rows.iter().filter_map(|row| row.when.modified);
        let in_range = dates.clone().all(|date| date >= from);
        let is_after = dates.clone().any(|date| date > latest);
        let last = dates.rfind(|date| *date <= latest);
        let (Some(last), true, true) = (last, page.is_in_order(), in_range) else {
            return Some(Ask::Skip(0));
        };
        if last == from && is_after {
            return Some(Ask::Skip(0));
        }
        if last == from {
            // Nothing but ties, whether or not the page before brought them already.
            return Some(Ask::Ties { at: from, from_id: i64::MIN });
        }
        if new == 0 {
            return Some(Ask::Skip(0));
        }
        self.cursor = last;
        Some(Ask::From(last))
    }

    fn after_ties(
        &mut self,
        at: Ticks,
        from_id: i64,
        page: &FeedRows,
        goes_on: bool,
    ) -> Option<Ask> {
        let ids: BTreeSet<i64> = page.rows.iter().map(|row| row.id).collect();
        let last = ids.last().copied();
        // Of the ids that this page covers, none that was seen at this date may be missing.
        let until = if goes_on { last.unwrap_or(i64::MIN) } else { i64::MAX };
        let lacks = from_id <= until
            && self
                .seen
                .get(&at.get())
                .is_some_and(|seen| seen.range(from_id..=until).any(|id| !ids.contains(id)));
        // A page in another order says nothing of the ids below its largest.
        let is_by_id = page.rows.is_sorted_by(|a, b| a.id < b.id);
        let foreign = page.rows.iter().any(|row| row.when.modified.is_some_and(|date| date != at));
        if lacks || foreign || goes_on && !is_by_id {
            return Some(Ask::Skip(0));
        }
        if !goes_on {
            self.cursor = at.next();
            return Some(Ask::From(at.next()));
        }
        match last {
            Some(last) if last >= from_id => {
                Some(Ask::Ties { at, from_id: last.saturating_add(1) })
            }
            // A full page that leads no further.
            _ => Some(Ask::Skip(0)),
        }
    }

    fn after_skip(&mut self, skip: u64, page: &FeedRows, by_length: bool) -> Option<Ask> {
        let (count, page) = (page.count, page.identities.as_slice());
        let pass = &mut self.pass;
        // `Count` is that of the whole list, wherever the page stands in it.
        let lacks = |known: &BTreeSet<Identity>| count.is_some_and(|c| (known.len() as u64) < c);
        if skip == 0 {
            pass.start(page);
            let (lacks, next) = (lacks(&pass.known), pass.next());
            // A page of one record or none leads nowhere.
            let leads_on = by_length || (lacks && next != Ask::Skip(0));
            self.lacks_counted = lacks && !leads_on;
            return leads_on.then_some(next);
        }
        // The first record of a later page must be the last of the page before.
        if pass.records.last() == page.first() {
            let brings = page.iter().any(|record| !pass.known.contains(record));
            pass.add(page.get(1..).unwrap_or_default());
            if brings && (by_length || lacks(&pass.known)) {
                return Some(pass.next());
            }
            self.passes += 1;
            self.lacks_counted = lacks(&pass.known);
            let met = std::mem::take(&mut pass.known);
            if pass.before.as_ref() == Some(&met) {
                return None;
            }
            pass.before = Some(met);
            return Some(Ask::Skip(0));
        }
        self.passes += 1;
        if pass.is_first_again(page) {
            // `$skip` is ignored, and this is all.
            self.lacks_counted = lacks(&pass.known);
            return None;
        }
        pass.before = None;
        Some(Ask::Skip(0))
    }
}

impl Pass {
    fn start(&mut self, page: &[Identity]) {
        self.first = page.to_vec();
        self.first.sort_unstable();
        self.known.clear();
        self.records.clear();
        self.add(page);
    }

    fn add(&mut self, page: &[Identity]) {
        self.known.extend(page);
        self.records.extend(page);
    }

    /// Overlap by a record: what moves up between two pages shows as a broken joint.
    fn next(&self) -> Ask {
        Ask::Skip((self.records.len() as u64).saturating_sub(1))
    }

    fn is_first_again(&self, page: &[Identity]) -> bool {
        let mut page = page.to_vec();
        page.sort_unstable();
        page == self.first
    }
}

#[cfg(test)]
mod tests;
