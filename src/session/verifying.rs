//! Verifying within a run: asking, a cycle, comparing, until all is settled (contract section 6).

use std::sync::Arc;

use jiff::Timestamp;

use super::Session;
use crate::cycle::{Options, Report, Signals};
use crate::error::Result;
use crate::extract::Extractor;
use crate::mirror::{Books, State};
use crate::schedule::Name;
use crate::verify::{Bench, Finding, Revenue, Sample, Totals, Verified};

impl Session {
    /// Holds the mirror against the source, with `sample` cases read whole. Everything goes to the
    /// report: what the cycles in between did, what was compared, and what could not be. Nothing is
    /// compared where a cycle is asked to end early; it is due still.
    pub(super) async fn verify(
        &self,
        run_id: i64,
        sample: usize,
        signals: &Signals,
        report: &mut Report,
    ) -> Result<()> {
        self.progress.step("verifying");
        let bench = Bench::new(
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
        );
        let mut totals = Totals::of(&bench)?;
        let mut revenue = Revenue::of(&bench)?;
        let mut sample = Sample::of(&bench, sample)?;
        let mut verified = Verified::default();
        while !(totals.is_done() && revenue.is_done() && sample.is_done()) {
            let asked = bench.now()?;
            totals.ask(&bench).await?;
            revenue.ask(&bench).await?;
            sample.ask(&bench).await?;
            let later = self.cycle(run_id, Options::default(), signals.clone()).await?;
            report.continue_with(later);
            if report.halted {
                return Ok(());
            }
            let done = &mut verified.comparisons;
            totals.compare(&bench, asked, done).await?;
            revenue.compare(&bench, done).await?;
            sample.compare(&bench, asked, done).await?;
        }
        verified.notes = revenue.notes();
        let at = Timestamp::now();
        let calls = self.polls.client.take_calls();
        report.calls += calls.iter().map(|c| c.calls).sum::<u64>();
        let rows: Vec<_> = verified
            .comparisons
            .iter()
            .map(|c| (c.what.clone(), c.source.clone(), c.mirror.clone(), c.difference()))
            .collect();
        self.writer
            .run(move |conn| {
                let books = Books::new(conn);
                books.add_calls(run_id, &calls)?;
                books.set_schedule(Name::Verify.as_str(), at)?;
                State::new(conn).note_verifications(run_id, at, &rows)
            })
            .await?;
        report.verify_due = false;
        for problem in bench.problems() {
            if !report.problems.contains(&problem) {
                report.problems.push(problem);
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
        report.verified = Some(verified);
        Ok(())
    }
}
