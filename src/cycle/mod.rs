//! One cycle: poll, list, fetch what is stale, load, publish. The only place that sees all steps.
//!
//! [`Cycle`] says what is due, and in which order. [`backlog`], [`lists`] and [`journals`] make queues of
//! it, the one loop in [`fetch`] works through them, and [`answers`] knows what came of it. What does not
//! change meanwhile is in [`Run`], which all of them borrow.

mod answers;
mod backlog;
mod case_plans;
mod contacts;
mod dependence;
mod due;
mod due_months;
mod feed_memory;
mod feeds;
mod fetch;
mod findings;
mod gone;
mod journal_rounds;
mod journals;
mod lag;
mod list_answers;
mod listing;
mod lists;
mod month_answers;
mod options;
mod page_sizes;
mod permissions;
mod planned;
mod policy;
mod polls;
mod problems;
mod queue;
mod reach;
mod report;
mod run;
mod scope_answers;
mod search;
mod signals;
mod statuses;
mod suspects;
mod tables;
mod tenant;

pub(crate) use case_plans::{plan_cases, plan_rereading, scopes_of, since};
pub(crate) use due::{Due, last_runs};
pub(crate) use due_months::planned_months;
pub(crate) use feeds::reread_reach;
pub(crate) use findings::MOST_FAILURES;
pub use journals::JournalRequest;
pub use options::Options;
pub(crate) use page_sizes::page_sizes;
pub(crate) use permissions::{is_granted, restriction};
pub(crate) use policy::{ends_run, month_takes_too_long, weight_of_month};
pub use polls::{Polls, Turns};
pub(crate) use problems::{failed_text, failing_text, table_and_cause};
pub(crate) use reach::{Unreached, is_out_of_reach};
pub use report::Report;
pub use run::{Parts, Run};
pub(crate) use search::{IDS_PER_CALL, ids_per_call, may_be_too_many};
pub(crate) use signals::{Controls, Interrupt};
pub use signals::{Notifier, Signals};
pub(crate) use tenant::{check_tenant, origin, refuse_other_tenant};

pub use crate::journals::MonthsUnderWay;

use std::time::Duration;

use jiff::Timestamp;

use crate::config::Reread;
use crate::error::Result;
use crate::mirror::{RunLog, State, lie_ahead, take_back};
use crate::schedule::Name;
use crate::scope::{DueReason, FeedName, Mark};
use answers::Answers;
use backlog::Backlog;
use feeds::{Feeds, unless_interrupted};
use fetch::Fetcher;
use journals::Journals;
use lag::Lag;
use listing::Listing;
use lists::Lists;
use statuses::Statuses;

/// A cycle under way.
pub struct Cycle<'r> {
    run: &'r Run,
    fetcher: Fetcher<'r>,
}

/// Key of `sync.meta`: why the cases have to be listed, while they have not been.
pub(crate) const LISTING_DUE: &str = "listing_due";
/// A contact that no feed follows is read again after this long (docs/architecture.md, "What is due").
pub(crate) const CONTACT_AGE: Duration = Duration::from_secs(7 * 86_400);

impl<'r> Cycle<'r> {
    /// Nothing is called yet.
    pub fn new(run: &'r Run) -> Cycle<'r> {
        Cycle { run, fetcher: Fetcher::new(run) }
    }

    /// Runs the cycle to its end.
    ///
    /// # Errors
    /// What ends the run: the source cannot be reached or refuses us, the feed cannot be read, the
    /// store fails. A resource or case that fails does not; it is in [`Report::problems`].
    pub async fn run(mut self) -> Result<Report> {
        let ran = self.work().await;
        // What was loaded before an error stays loaded, and is counted.
        let flushed = self.fetcher.answers.flush().await;
        let noted = self.close().await;
        ran.and(flushed).and(noted)?;
        self.fetcher.answers.report.handled = self.fetcher.answers.planned.handled();
        Ok(self.fetcher.answers.report)
    }

    async fn work(&mut self) -> Result<()> {
        page_sizes::recall(self.run)?;
        self.take_back_the_future().await?;
        let (run, answers) = (self.run, &mut self.fetcher.answers);
        let mut due =
            Due::of(&run.config, &run.store.connection()?, &run.options, Timestamp::now())?;
        answers.report.verify_due = due.schedules.remove(&Name::Verify);
        tenant::check(answers, due.has(Name::Reference)).await?;
        if run.options.allow_removals {
            // Who allows it does not wait for what it held.
            run.write(|conn| State::new(conn).what_is_held_waits_no_longer()).await?;
        }
        Statuses { run }.align().await?;
        if due.has(Name::Reference) || run.options.full {
            answers.permissions.read().await?;
        }
        answers.tables.choose()?;
        answers.holds_cases = !run.options.allow_removals
            && State::new(&run.store.connection()?).suspects().are_held()?;
        if let Some(request) = &run.options.journals {
            return Journals::of(&mut self.fetcher).read_period(request).await;
        }
        case_plans::follow_since(run).await?;
        // A search that is tried again, or enabled, may be the first that can be listed.
        due.listing |= due::is_first(&run.store.connection()?, &run.options)?;
        if run.options.full {
            let journals = run.catalog.journals();
            run.write(move |conn| {
                let state = State::new(conn);
                for table in &journals {
                    state.months().synced_months_are_due(table, DueReason::Full)?;
                }
                // Kept until it is done, so that an interrupted run goes on with it.
                state.set_meta(LISTING_DUE, "full")?;
                state.stale_marks().everything_is_stale(Mark::Full)
            })
            .await?;
        }
        // Of a new mirror the feed of contacts takes hundreds of calls, and nothing but contacts needs it.
        let mut contacts_are_new = false;
        if !run.options.following {
            if !self.feeds().poll().await? {
                return self.ends_early();
            }
            contacts_are_new =
                run.polls.follows_contacts()? && !run.polls.has_polled(FeedName::Contacts)?;
            if !contacts_are_new {
                let polled = unless_interrupted(run, run.polls.poll_contacts()).await;
                let Some(polled) = polled else { return self.ends_early() };
                self.feeds().contacts_polled(polled).await?;
            }
        }
        self.backlog().check()?;
        if due.takes_long() && !self.reads_everything()? {
            self.backlog().read_changed().await?;
        }
        let contacts = async {
            if !contacts_are_new {
                return Ok(Ok(None));
            }
            let _step = run.progress.step("asking the change feed of contacts");
            Ok(unless_interrupted(run, run.polls.poll_contacts()).await.unwrap_or(Ok(None)))
        };
        let cases = async {
            let done = self.catch_up(due).await?;
            if contacts_are_new {
                self.backlog().read().await?;
            }
            Ok(done)
        };
        let (done, polled) = tokio::try_join!(cases, contacts)?;
        self.feeds().contacts_polled(polled).await?;
        self.follow().await?;
        if done.has(Name::Reconcile) {
            self.gather_rows().await?;
        }
        // Noted last: what is killed before its end is due again.
        run.write(move |conn| done.note(conn)).await
    }

    /// The run is cancelled before it has begun what is due.
    fn ends_early(&mut self) -> Result<()> {
        self.fetcher.answers.report.interrupted = true;
        Ok(())
    }

    /// After our clock was set back nothing waits for the times that it told before.
    async fn take_back_the_future(&self) -> Result<()> {
        let (run, now) = (self.run, Timestamp::now());
        let doubt = run.config.source.doubt;
        if !lie_ahead(&run.store.connection()?, now, doubt)? {
            return Ok(());
        }
        tracing::warn!(
            "the clock of this machine was ahead: what waits for times that it told is due now"
        );
        run.write(move |conn| take_back(conn, now, doubt)).await
    }

    /// Whether everything is stale: `--full`, now or in a run that was interrupted.
    fn reads_everything(&self) -> Result<bool> {
        let conn = self.run.store.connection()?;
        Ok(State::new(&conn).meta(LISTING_DUE)?.as_deref() == Some("full"))
    }

    /// Does what is due. Returns what of it is done.
    async fn catch_up(&mut self, mut due: Due) -> Result<Due> {
        let mut is_listed = true;
        if due.listing {
            if Listing::new(&mut self.fetcher).read().await? {
                self.run.write(|conn| State::new(conn).set_meta(LISTING_DUE, "")).await?;
            } else {
                // It is tried again in the next run.
                is_listed = false;
                due.schedules.remove(&Name::Reconcile);
                self.fetcher.answers.report.undone = true;
            }
        }
        let goes_on = self.run.signals.interrupt() != Interrupt::Cancel
            && (!due.rereads_feeds() || self.reread(&due, is_listed).await?);
        if !goes_on {
            // Nothing new is begun, and it is due still; what follows knows by itself what it cannot do.
            due.schedules.remove(&Name::Reconcile);
        }
        // Each is noted as soon as its part is done: an error in what follows must not repeat it.
        if due.has(Name::Reconcile) {
            self.note_run(Name::Reconcile, &due).await?;
        }
        let is_due = due.has(Name::Reference);
        if !(Lists { fetcher: &mut self.fetcher, is_due }).read().await? {
            due.schedules.remove(&Name::Reference);
            self.fetcher.answers.report.undone = true;
        } else if is_due {
            self.note_run(Name::Reference, &due).await?;
        }
        // Before the cases: it has an end that does not depend on what else changes.
        Journals::of(&mut self.fetcher).follow(&due).await?;
        Ok(due)
    }

    /// What `schedule.reconcile` reads again, whatever became of its listing. Returns whether it was not interrupted.
    async fn reread(&mut self, due: &Due, is_listed: bool) -> Result<bool> {
        if !self.feeds().look_for_late_rows().await? {
            return Ok(false);
        }
        let run = self.run;
        if due.rereads(&run.config) {
            let all = run.config.reconcile.reread == Reread::All;
            let (cases, scopes) =
                run.write(move |conn| State::new(conn).stale_marks().reread(all)).await?;
            tracing::info!(cases, "cases that changed since they were read whole are read again");
            if scopes > 0 {
                tracing::info!(scopes, "scopes with a value that did not fit are read again");
            }
        }
        if !is_listed {
            let due = due.clone();
            run.write(move |conn| due.note_reread(conn)).await?;
        }
        Ok(true)
    }

    /// Fetches what is stale, and waits for what the search's lag needs, until nothing is left that
    /// can be done in this run.
    async fn follow(&mut self) -> Result<()> {
        let mut lag = Lag::new(self.run);
        loop {
            let read = self.backlog().read().await? + self.read_contacts().await?;
            if self.run.signals.interrupt() != Interrupt::None {
                self.fetcher.answers.report.interrupted = true;
                return Ok(());
            }
            if read > 0 || self.run.signals.latest() > self.fetcher.answers.planned.handled() {
                continue;
            }
            if self.run.options.following
                || !lag.wait(self.fetcher.answers.planned.handled()).await?
            {
                return Ok(());
            }
        }
    }

    /// Puts the rows of tables in order that commits have to look through for a case. What changes
    /// meanwhile goes first; what an interrupt leaves is as good as it was, until the next night.
    async fn gather_rows(&mut self) -> Result<()> {
        let run = self.run;
        let scattered = State::new(&run.store.connection()?).scattered(&run.catalog)?;
        for table in scattered {
            let _step = run.progress.step(&format!("putting the rows of {} in order", table.name));
            let mut after = None;
            while run.signals.interrupt() == Interrupt::None {
                let slice = table.clone();
                after =
                    run.writer.writer().run_large(move |conn| slice.gather(conn, after)).await?;
                if after.is_none() {
                    break;
                }
                self.fetcher.follow_changes().await?;
            }
        }
        Ok(())
    }

    /// Searches the contacts that are stale. Returns how many.
    async fn read_contacts(&mut self) -> Result<usize> {
        match self.run.options.wants_contacts() {
            true => self.fetcher.answers.contacts().search(None).await,
            false => Ok(0),
        }
    }

    fn feeds(&mut self) -> Feeds<'_, 'r> {
        Feeds { answers: &mut self.fetcher.answers }
    }

    fn backlog(&mut self) -> Backlog<'_, 'r> {
        Backlog { fetcher: &mut self.fetcher }
    }

    /// What is left undone at the end of a run, in words and in the store.
    async fn close(&mut self) -> Result<()> {
        let Answers { run, findings, report, .. } = &mut self.fetcher.answers;
        page_sizes::keep(run).await?;
        let (failed, answered) = findings.take();
        Statuses { run }.settle(failed, answered).await?;
        let controls = run
            .write(|conn| {
                let state = State::new(conn);
                state.forget_what_is_old(Timestamp::now())?;
                state.hints().forget_unread()?;
                state.controls().sums_follow_their_lines()?;
                state.controls().keep_control_problems()
            })
            .await?;
        let problems = problems::of(run, controls)?;
        problems.into_iter().for_each(|problem| report.problem(problem));
        Ok(())
    }

    async fn note_run(&self, name: Name, due: &Due) -> Result<()> {
        let at = due.at.unwrap_or_else(Timestamp::now);
        self.run.write(move |conn| RunLog::new(conn).set_schedule(name.as_str(), at)).await
    }
}
