//! Verifying within a run: asking, a cycle, comparing, until all is settled
//! (docs/architecture.md, "Control totals").

use std::sync::Arc;

use jiff::Timestamp;

use super::Session;
use crate::cycle::{Interrupt, Options, Report, Signals};
use crate::error::Result;
use crate::extract::Extractor;
use crate::mirror::{RunLog, State};
use crate::schedule::Name;
use crate::verify::{Comparison, Context, Finding, Gate, Verification, Verified};

impl Session {
    /// Holds the mirror against the source, with `sample` cases read whole, and returns what was compared.
    /// What the cycles in between did, and what could not be compared, goes to the report. Where it is
    /// asked to end early, what is `under_way` is left there, due still, and gone on with by the next
    /// run that is given it.
    pub(super) async fn verify(
        &self,
        run_id: i64,
        sample: usize,
        signals: &Signals,
        report: &mut Report,
        under_way: &mut Option<Verification>,
    ) -> Result<Option<Verified>> {
        let _step = self.progress.step("verifying");
        let mut verification = match under_way.take() {
            Some(verification) => verification,
            None => Verification::of(self.context(), sample)?,
        };
        while !verification.is_done() {
            let mut gate = Gate::new(signals, report.handled, &self.progress);
            let asked = verification.ask(&mut gate).await?;
            drop(gate);
            report.interrupted = signals.interrupt() != Interrupt::None;
            if !report.interrupted {
                // What has changed comes before the rest that is to be asked.
                let options = Options {
                    following: !asked,
                    postpone_listing: !asked,
                    handled: Some(report.handled),
                    ..Options::default()
                };
                let later = self.cycle(run_id, options, signals.clone()).await?;
                report.continue_with(later);
            }
            if report.interrupted {
                *under_way = Some(verification);
                self.add_calls(run_id, report).await?;
                return Ok(None);
            }
            if asked {
                verification.compare().await?;
            }
        }
        let mut verified = verification.finish()?;
        self.add_calls(run_id, report).await?;
        self.note_verified(run_id, &mut verified).await?;
        report.verify_due = false;
        for problem in &verified.problems {
            if !report.problems.contains(problem) {
                report.problems.push(problem.clone());
            }
        }
        for found in
            verified.comparisons.iter().filter(|c| matches!(c.finding, Finding::Different(_)))
        {
            tracing::warn!(
                // The values may be a person's: they are in sync.verifications.
                what = found.what,
                "the mirror differs from the source"
            );
        }
        report.differences = verified.differences();
        Ok(Some(verified))
    }

    fn context(&self) -> Context {
        Context::new(
            Arc::clone(&self.config),
            Arc::clone(&self.catalog),
            Arc::clone(&self.store),
            self.writer.clone(),
            Extractor::new(
                self.polls.client.clone(),
                Arc::clone(&self.catalog),
                self.decoding(),
                &self.config,
            ),
        )
    }

    /// Counts the calls that no cycle has made.
    async fn add_calls(&self, run_id: i64, report: &mut Report) -> Result<()> {
        let calls = self.polls.client.take_calls();
        report.calls += calls.iter().map(|c| c.calls).sum::<u64>();
        self.writer.run(move |conn| RunLog::new(conn).add_calls(run_id, &calls)).await
    }

    /// Keeps what was found, without what was learned of forgotten persons by the cycles that came between: nor is it
    /// shown then. What was found before and still stands is counted.
    async fn note_verified(&self, run_id: i64, verified: &mut Verified) -> Result<()> {
        let at = Timestamp::now();
        let mut comparisons = std::mem::take(&mut verified.comparisons);
        let store = Arc::clone(&self.store);
        let (problems, left_out) = (verified.problems.clone(), verified.left_out.clone());
        (verified.comparisons, verified.standing) = self
            .writer
            .run(move |conn| {
                // By the list of the commits before: nothing comes in after it was swept.
                let list = store.privacy().forgotten();
                comparisons.iter_mut().for_each(|comparison| comparison.clear(&list));
                let rows: Vec<_> = comparisons.iter().map(Comparison::row).collect();
                RunLog::new(conn).set_schedule(Name::Verify.as_str(), at)?;
                State::new(conn)
                    .verified()
                    .note_verifications(run_id, at, &rows, &problems, &left_out)?;
                // A program that runs every few minutes leaves as many rows a year as a journal.
                State::new(conn).forget_what_is_old(at)?;
                Ok((comparisons, State::new(conn).verified().standing_before(at)?))
            })
            .await?;
        Ok(())
    }
}
