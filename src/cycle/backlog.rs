//! The cases that have something stale: read in batches, newest change first.

use jiff::Timestamp;

use super::fetch::{Fetcher, MOST_CHANGES};
use super::queue::Queue;
use super::signals::Interrupt;
use crate::catalog::Group;
use crate::error::Result;
use crate::mirror::State;
use crate::progress::{Progress, Share};
use crate::scope::{CaseState, Urgency, Work};

/// Cases planned at once. Their scopes, at 25 a case, keep the source busy for an hour at ten calls
/// a second; what changes meanwhile is taken in between.
const BATCH_CASES: usize = 1_000;

/// The cases that have something stale.
pub(super) struct Backlog<'c, 'r> {
    pub(super) fetcher: &'c mut Fetcher<'r>,
}

impl Backlog<'_, '_> {
    /// Says which of the cases that were asked for by id are not known: nothing is read of them.
    pub(crate) fn check(&mut self) -> Result<()> {
        let run = self.fetcher.run;
        if run.options.cases.is_empty() {
            return Ok(());
        }
        let known =
            State::new(&run.store.connection()?).verifications().cases(&run.options.cases)?;
        for id in &run.options.cases {
            if !known.iter().any(|case| case.case_id == *id) {
                self.fetcher.answers.report.problem(format!(
                    "case {id}: no such case is known; neither a listing nor the change feed has named it"
                ));
            }
        }
        Ok(())
    }

    /// Goes once through all cases that may have something stale. Returns how many scopes were read.
    pub(crate) async fn read(&mut self) -> Result<usize> {
        let run = self.fetcher.run;
        let now = Timestamp::now().as_microsecond();
        run.write(move |conn| State::new(conn).stale_marks().wake_again(now)).await?;
        let mut after = None;
        let mut read = 0;
        let mut rest = Rest::none(&run.progress);
        // What was seen up to here is among them.
        self.fetcher.answers.planned.covers(run.sequence()?);
        let conn = run.store.connection()?;
        let leaves_unread = self.leaves_unread();
        if leaves_unread {
            State::new(&conn).unread().stage(self.fetcher.answers.tables.active(), None)?;
        }
        loop {
            let batch = {
                let cases = State::new(&conn).cases();
                if leaves_unread {
                    cases.dirty_cases_that_were_read(after, BATCH_CASES)?
                } else {
                    cases.dirty_cases(after, &run.options.cases, BATCH_CASES)?
                }
            };
            let Some(last) = batch.last() else { return Ok(read) };
            if run.signals.interrupt() != Interrupt::None {
                return Ok(read);
            }
            if after.is_none() && batch.len() == BATCH_CASES {
                let conn = run.store.connection()?;
                rest.cases = State::new(&conn).cases().count_dirty(&run.options.cases)?;
            }
            after = Some((last.dates[0].unwrap_or(i64::MIN), last.case_id));
            read += self.read_batch(&batch, &mut rest).await?;
        }
    }

    /// Whether nothing is to be read of cases of which only the search has told: `--only` names no table
    /// of theirs.
    fn leaves_unread(&self) -> bool {
        let run = self.fetcher.run;
        let only = &run.options.only;
        let is_of_a_case =
            |table: &String| run.catalog.get(table).is_some_and(|r| r.group == Group::Case);
        run.options.cases.is_empty() && !only.is_empty() && !only.iter().any(is_of_a_case)
    }

    /// Before work that takes long, what has changed of the cases that were read before: one batch of
    /// them, because a backfill is no change.
    pub(crate) async fn read_changed(&mut self) -> Result<()> {
        let run = self.fetcher.run;
        let batch = {
            let conn = run.store.connection()?;
            State::new(&conn).cases().changed_cases(&run.options.cases, BATCH_CASES)?
        };
        self.read_batch(&batch, &mut Rest::none(&run.progress)).await?;
        if run.options.wants_contacts() {
            self.fetcher.answers.contacts().search(Some(MOST_CHANGES)).await?;
        }
        Ok(())
    }

    async fn read_batch(&mut self, batch: &[CaseState], rest: &mut Rest) -> Result<usize> {
        let run = self.fetcher.run;
        let _step = run.progress.step("fetching what is stale");
        let only = &run.options.only;
        let searched = self.fetcher.answers.search().cases(batch, only).await?;
        // What a case is decides what is read of it: planned after its row is there.
        let batch =
            if searched > 0 { self.fetcher.answers.plans().reload(batch)? } else { batch.to_vec() };
        let stale = self.fetcher.answers.plans().stale(&batch, only)?;
        let read = stale.len();
        rest.is_like(batch.len() as u64, read as u64);
        let work = stale.into_iter().map(Work::Case);
        self.fetcher.fetch(Queue::of(Urgency::Backlog, work)).await?;
        self.fetcher.answers.plans().clean(&batch).await?;
        Ok(searched + read)
    }
}

/// The cases behind the batch that is read, and how many scopes may be stale of them: as many of each as
/// of those that were planned.
struct Rest {
    cases: u64,
    planned_cases: u64,
    planned_scopes: u64,
    share: Share,
}

impl Rest {
    /// There is nothing behind it.
    fn none(progress: &Progress) -> Rest {
        Rest { cases: 0, planned_cases: 0, planned_scopes: 0, share: progress.share(0) }
    }

    /// So many of the cases have been planned, with so many scopes.
    fn is_like(&mut self, cases: u64, scopes: u64) {
        self.cases = self.cases.saturating_sub(cases);
        self.planned_cases += cases;
        self.planned_scopes += scopes;
        let expected = self.cases.saturating_mul(self.planned_scopes);
        self.share.expect(expected.checked_div(self.planned_cases).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_that_are_left_are_expected_to_be_like_those_that_were_planned() {
        let progress = Progress::silent();
        let mut rest = Rest::none(&progress);
        rest.is_like(1_000, 25_000);
        assert_eq!(progress.counts().planned, 0, "nobody counted them");
        let mut rest = Rest { cases: 3_500, ..Rest::none(&progress) };
        rest.is_like(1_000, 25_000);
        assert_eq!(progress.counts().planned, 2_500 * 25);
        rest.is_like(1_000, 5_000);
        assert_eq!(progress.counts().planned, 1_500 * 15);
        rest.is_like(1_500, 0);
        assert_eq!(progress.counts().planned, 0);
    }
}
