//! The journals' months that are due, read in rounds: what does not add up is read once more.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::JournalRequest;
use super::fetch::Fetcher;
use super::queue::Queue;
use super::signals::Interrupt;
use crate::error::Result;
use crate::mirror::State;
use crate::scope::{
    DueMonth, DueReason, JournalScope, Month, REVENUE, REVENUE_SUMS, TableStatus, Urgency, Work,
};

/// The months of some tables that are due, read until nothing is left that can be read in this run.
pub(super) struct Rounds<'c, 'r> {
    fetcher: &'c mut Fetcher<'r>,
    tables: &'c [String],
    /// Only the months of this request, and of these ids.
    only: Option<(&'c JournalRequest, &'c [i64])>,
    /// Months of revenue that were read once more in this run.
    again: BTreeSet<(i64, Month)>,
    /// Months that could not be read completely.
    tried: BTreeSet<(String, i64, Month)>,
}

impl<'c, 'r> Rounds<'c, 'r> {
    /// None was read yet.
    pub(crate) fn new(
        fetcher: &'c mut Fetcher<'r>,
        tables: &'c [String],
        only: Option<(&'c JournalRequest, &'c [i64])>,
    ) -> Rounds<'c, 'r> {
        Rounds { fetcher, tables, only, again: BTreeSet::new(), tried: BTreeSet::new() }
    }

    /// Reads what is due until nothing is left that can be read in this run. A month that failed or came
    /// incomplete waits for the next run; one of revenue whose lines do not add up to the sum that was
    /// read after them is read once more, with its sum.
    pub(crate) async fn read(&mut self) -> Result<()> {
        let run = self.fetcher.run;
        // Lines were read whose sums may not be due.
        let mut without_sums = false;
        loop {
            // A sum is asked after the lines that it is held against.
            let (sums, lines): (Vec<_>, Vec<_>) =
                self.next()?.into_iter().partition(|due| due.table == REVENUE_SUMS);
            if sums.is_empty() && lines.is_empty() {
                if std::mem::take(&mut without_sums) {
                    run.write(|conn| State::new(conn).controls().sums_follow_their_lines()).await?;
                    continue;
                }
                // What gave way and is not due any more is nobody's.
                if self.only.is_none() && !run.options.is_partial() {
                    run.months.forget();
                }
                return Ok(());
            }
            let totals: BTreeSet<(i64, Month)> =
                sums.iter().map(|due| (due.scope.id, due.scope.month)).collect();
            without_sums |= lines.iter().any(|due| due.table == REVENUE);
            self.read_months(lines).await?;
            self.read_months(sums).await?;
            if run.signals.interrupt() != Interrupt::None {
                // The rest is due still.
                self.fetcher.answers.report.interrupted = true;
                return Ok(());
            }
            if !totals.is_empty() {
                self.hold_against(totals).await?;
            }
        }
    }

    /// What is due and was not tried yet.
    fn next(&self) -> Result<Vec<DueMonth>> {
        let Fetcher { run, answers, .. } = &*self.fetcher;
        let (conn, level) = (run.store.connection()?, run.config.journals.level);
        let mut due =
            State::new(&conn).months().due_months(self.tables, level, Timestamp::now())?;
        if let Some((request, ids)) = self.only {
            let months = request.from..=request.to;
            due.retain(|d| months.contains(&d.scope.month) && ids.contains(&d.scope.id));
        }
        due.retain(|d| !answers.findings.gives_up(&d.table) && answers.tables.is_active(&d.table));
        due.retain(|d| !self.tried.contains(&(d.table.clone(), d.scope.id, d.scope.month)));
        Ok(due)
    }

    /// Holds lines against the sums that were just read after them: where they do not add up, both are
    /// due once more.
    async fn hold_against(&mut self, totals: BTreeSet<(i64, Month)>) -> Result<()> {
        let run = self.fetcher.run;
        let level = run.config.journals.level;
        // Where the sum is that of doubted lines, it is those that are read again.
        let confirmed =
            run.write(move |conn| State::new(conn).confirmed_months_wait_no_longer(level)).await?;
        let off: BTreeSet<(i64, Month)> = self
            .off_their_sums(&totals)
            .await?
            .into_iter()
            .chain(confirmed.iter().copied())
            .filter(|month| totals.contains(month) && !self.again.contains(month))
            .collect();
        self.again.extend(&off);
        if off.is_empty() || !self.tables.iter().any(|table| table == REVENUE) {
            return Ok(());
        }
        tracing::info!(months = off.len(), "lines that do not add up are read again");
        let confirms = |id, month| confirmed.contains(&(id, month));
        self.tried.retain(|(table, id, month)| table != REVENUE || !confirms(*id, *month));
        run.write(move |conn| {
            let state = State::new(conn);
            let tables = [REVENUE, REVENUE_SUMS].map(str::to_owned);
            let why = Some(DueReason::OffItsSum);
            off.iter().try_for_each(|(id, month)| {
                state.months().months_are_due(&tables, level, &[*id], &[*month], why)
            })
        })
        .await
    }

    /// The months whose lines do not add up to the sums that were just read after them, unless that is
    /// known to be no fault of theirs.
    async fn off_their_sums(&self, totals: &BTreeSet<(i64, Month)>) -> Result<Vec<(i64, Month)>> {
        let run = self.fetcher.run;
        let level = run.config.journals.level;
        let (totals, again) = (totals.clone(), self.again.clone());
        let compare = move |conn: &_| {
            State::new(conn).learned().compare_sums(level, &totals, &again, Timestamp::now())
        };
        let compared = run.write(compare).await?;
        if let Some((id, month)) = compared.no_control.first() {
            tracing::warn!(
                months = compared.no_control.len(),
                first = %JournalScope { level, id: *id, month: *month },
                "the platform's sum is no control of its lines: three rounds found the same \
                 difference, and nothing changed; the lines are not read again for it"
            );
        }
        Ok(compared.off)
    }

    async fn read_months(&mut self, due: Vec<DueMonth>) -> Result<()> {
        let run = self.fetcher.run;
        let _step = run.progress.step("reading the journals");
        let work = due.into_iter().map(Work::Month);
        let notes = self.fetcher.fetch(Queue::of(Urgency::Due, work)).await?;
        // Ids that were typed may be wrong.
        if run.options.journals.is_none() {
            for table in notes.found_nowhere() {
                self.journal_is_absent(table).await?;
            }
        }
        self.tried.extend(notes.lacking);
        Ok(())
    }

    /// A journal of which nobody's month was ever found is not there.
    async fn journal_is_absent(&mut self, table: &str) -> Result<()> {
        let name = table.to_owned();
        let absent = move |conn: &_| State::new(conn).months().forget_if_absent(&name);
        if self.fetcher.run.write(absent).await? {
            let answers = &mut self.fetcher.answers;
            answers.findings.forget_failure(table);
            let why = "404 for every office whose journal was asked for";
            answers.tables.set_aside(table, TableStatus::Absent, why).await?;
        }
        Ok(())
    }
}
