//! Runs cycles and jobs, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::account::{Account, Line};
use super::activity::Activity;
use super::decide::{self, Next, Situation};
use super::notify::{Manager, Part};
use super::patience::Patience;
use super::troubles::Troubles;
use super::{Host, ends_the_daemon, say_recovery, say_trouble};
use crate::cycle::{Controls, Interrupt, Options, Report, last_runs};
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::pulse::Pulse;
use crate::schedule::{self, Name};
use crate::scope::FeedName;
use crate::session::Session;
use crate::verify::Verification;

/// No sleep is longer: clocks are set, and machines are suspended.
const LONGEST_NAP: Duration = Duration::from_secs(30);
/// A cycle comes at least as often, for what no date announces: contacts that grow old.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Between cycles that were not asked for by a change.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// A listing that was due and could not be completed is tried again after this,
const LEAST_POSTPONED: Duration = Duration::from_secs(60);
/// and later no more seldom than this.
const LONGEST_POSTPONED: Duration = Duration::from_secs(3600);

/// Work that another command forwarded, to be done in its turn.
pub(crate) struct Job {
    pub(crate) work: Box<dyn FnOnce(Host) -> BoxFuture<'static, ()> + Send>,
    /// Whether who asked for it waits for it no more: it is not begun then, and ends early.
    pub(crate) left: watch::Receiver<bool>,
}

pub(super) struct Worker {
    pub(crate) session: Arc<Session>,
    pub(crate) controls: Arc<Controls>,
    pub(crate) inbox: mpsc::Receiver<Job>,
    pub(crate) polled: watch::Receiver<bool>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) pulse: Arc<Pulse>,
}

/// What the worker remembers between two cycles.
struct Memory {
    jobs: VecDeque<Job>,
    /// Up to this poll everything was planned.
    handled: i64,
    interrupted: bool,
    /// The start of the last cycle: what came due before had its chance.
    last_cycle: Option<Timestamp>,
    retry_at: Option<Timestamp>,
    /// It was so far away when it was set.
    retry_within: Duration,
    patience: Patience,
    postponed_until: Option<Timestamp>,
    postponing: Patience,
    troubles: Troubles,
    /// What had to give way to a job.
    verifying: Option<Verification>,
    account: Account,
}

impl Memory {
    fn new() -> Memory {
        Memory {
            jobs: VecDeque::new(),
            handled: 0,
            // Whatever an earlier process left.
            interrupted: true,
            last_cycle: None,
            retry_at: None,
            retry_within: LONGEST_RETRY,
            patience: Patience::new(LEAST_PAUSE, LONGEST_RETRY),
            postponed_until: None,
            postponing: Patience::new(LEAST_POSTPONED, LONGEST_POSTPONED),
            troubles: Troubles::default(),
            verifying: None,
            account: Account::default(),
        }
    }

    /// A clock that was set back makes nothing wait for longer than it would have.
    fn follow_the_clock(&mut self, now: Timestamp) {
        let within = |at: Timestamp, longest| at.min(now.checked_add(longest).unwrap_or(at));
        self.retry_at = self.retry_at.map(|at| within(at, self.retry_within));
        self.postponed_until = self.postponed_until.map(|at| within(at, LONGEST_POSTPONED));
        self.last_cycle = self.last_cycle.map(|at| within(at, Duration::ZERO));
    }
}

impl Worker {
    /// Works until the process stops; what is under way then is finished.
    ///
    /// # Errors
    /// What makes all further cycles senseless: see [`ends_the_daemon`].
    pub(super) async fn run(mut self) -> Result<()> {
        let mut memory = Memory::new();
        loop {
            while let Ok(job) = self.inbox.try_recv() {
                memory.jobs.push_back(job);
            }
            let now = Timestamp::now();
            memory.follow_the_clock(now);
            let situation = self.situation(&memory)?;
            // The store has answered.
            self.manager.lives(Part::Worker);
            if let Some(line) = memory.account.due(std::time::Instant::now()) {
                line.log();
            }
            match decide::next(&situation, now) {
                Next::Stop => {
                    if let Some(line) = memory.account.take() {
                        line.log();
                    }
                    return Ok(());
                }
                Next::Job => {
                    if let Some(job) = memory.jobs.pop_front() {
                        self.run_job(&mut memory, job).await;
                    }
                }
                Next::Cycle => self.run_cycle(&mut memory).await?,
                Next::Wait(until) => self.wait(&mut memory, until).await,
            }
        }
    }

    fn situation(&self, memory: &Memory) -> Result<Situation> {
        let signals = self.controls.listen();
        let conn = self.session.store().connection()?;
        let last_cycle = memory.last_cycle.unwrap_or(Timestamp::MIN);
        let due = State::new(&conn).waiting().next_due(last_cycle.as_microsecond())?;
        let due_at = due.and_then(|us| Timestamp::from_microsecond(us).ok());
        let at_last = last_cycle.checked_add(LONGEST_PAUSE).unwrap_or(last_cycle);
        let soonest = last_cycle.checked_add(LEAST_PAUSE).unwrap_or(last_cycle);
        let due_at = due_at.map_or(at_last, |due| due.max(soonest).min(at_last));
        let schedules = &self.session.config().schedule;
        let mut last_runs = last_runs(&conn, Timestamp::now())?;
        if memory.postponed_until.is_some() {
            // It is due still, and waits.
            last_runs.remove(&Name::Reconcile);
        }
        Ok(Situation {
            stopping: signals.interrupt() == Interrupt::Cancel,
            job_waits: !memory.jobs.is_empty(),
            polled: *self.polled.borrow(),
            work_left: memory.interrupted || signals.latest() > memory.handled,
            retry_at: memory.retry_at,
            due_at: decide::earlier(Some(due_at), memory.postponed_until),
            schedule_at: schedule::next_of_all(schedules, &last_runs)?,
        })
    }

    async fn wait(&mut self, memory: &mut Memory, until: Option<Timestamp>) {
        let now = Timestamp::now();
        let nap = until.map_or(LONGEST_NAP, |until| schedule::nap(now, until, LONGEST_NAP));
        // A cycle that has to wait is not woken by new changes.
        let waits = memory.retry_at.is_some_and(|at| at > now);
        let known = if waits || !*self.polled.borrow() { i64::MAX } else { memory.handled };
        let mut signals = self.controls.listen();
        tokio::select! {
            () = tokio::time::sleep(nap) => {}
            Some(job) = self.inbox.recv() => memory.jobs.push_back(job),
            _ = self.polled.changed() => {}
            // Yielding was meant for the cycle that is over.
            () = signals.beyond(known, Interrupt::Preempt) => {}
        }
    }

    async fn run_cycle(&mut self, memory: &mut Memory) -> Result<()> {
        let now = Timestamp::now();
        self.controls.set(Interrupt::None);
        let signals = self.controls.listen();
        memory.handled = signals.latest();
        memory.last_cycle = Some(now);
        let options = Options {
            following: true,
            postpone_listing: memory.postponed_until.is_some_and(|until| until > now),
            ..Options::default()
        };
        let postponed = options.postpone_listing;
        let session = Arc::clone(&self.session);
        let mut verifying = memory.verifying.take();
        let began = std::time::Instant::now();
        let cycle = session.follow(options, signals, &mut verifying);
        let report = self.supervise(memory, cycle, true).await;
        if let Ok(report) = &report {
            let moved = |feed| self.pulse.take_moved(feed);
            let moved = (moved(FeedName::Cases), moved(FeedName::Contacts));
            let line = Line::of(report, moved, began.elapsed());
            if let Some(line) = memory.account.add(line, std::time::Instant::now()) {
                line.log();
            }
        }
        memory.verifying = verifying;
        match report {
            Ok(report) => {
                Self::cycle_done(memory, report, postponed);
                Ok(())
            }
            Err(error) if ends_the_daemon(&error, self.session.credentials_were_taken()) => {
                Err(error)
            }
            Err(error) => {
                let mut trouble = memory.patience.fail(std::time::Instant::now());
                // How long the platform does not want to be called is known.
                let held = match error.kind() {
                    Kind::RetryAfter => self.session.polls().client.held_for(),
                    _ => None,
                };
                trouble.wait = trouble.wait.max(held.unwrap_or_default());
                memory.retry_within = trouble.wait;
                say_trouble("following the changes", &error, trouble);
                memory.interrupted = true;
                memory.retry_at = Timestamp::now().checked_add(trouble.wait).ok();
                Ok(())
            }
        }
    }

    fn cycle_done(memory: &mut Memory, report: Report, postponed: bool) {
        let now = std::time::Instant::now();
        say_recovery("following the changes", memory.patience.succeed(now));
        memory.retry_at = None;
        memory.interrupted = report.interrupted;
        memory.handled = memory.handled.max(report.handled);
        if report.undone {
            let trouble = memory.postponing.fail(now);
            memory.postponed_until = Some(Timestamp::now() + trouble.wait);
        } else if !postponed {
            memory.postponing.succeed(now);
            memory.postponed_until = None;
        }
        let looked_at_all = !(report.interrupted || report.undone || postponed);
        let news = memory.troubles.are(&report.problems, looked_at_all);
        for problem in news.over {
            tracing::info!(problem, "over");
        }
        for problem in news.begins {
            tracing::warn!(problem, "incomplete");
        }
    }

    async fn run_job(&mut self, memory: &mut Memory, job: Job) {
        if *job.left.borrow() {
            return;
        }
        self.controls.set(Interrupt::None);
        let host = Host {
            session: Arc::clone(&self.session),
            signals: self.controls.listen().until_left(job.left.clone()),
            controls: Some(Arc::clone(&self.controls)),
            handled: Some(memory.handled),
            pulse: Some(Arc::clone(&self.pulse)),
        };
        self.supervise(memory, (job.work)(host), false).await;
        if *job.left.borrow() {
            tracing::info!("who asked for this has left; the daemon goes on from there");
            memory.interrupted = true;
        }
    }

    /// Awaits work; asks it to end early when a schedule falls due, and, where it is the daemon's own,
    /// when a job waits or it has to give way to another cycle.
    async fn supervise<T>(
        &mut self,
        memory: &mut Memory,
        work: impl Future<Output = T>,
        own: bool,
    ) -> T {
        self.activity.begin();
        let manager = Arc::clone(&self.manager);
        let mut work = std::pin::pin!(manager.watch(Part::Worker, work));
        let mut looked = Timestamp::now();
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                Some(job) = self.inbox.recv() => {
                    memory.jobs.push_back(job);
                    if own {
                        tracing::info!("a command was forwarded: the cycle gives way to it");
                        self.controls.set(Interrupt::Preempt);
                    }
                }
                () = tokio::time::sleep(LONGEST_NAP) => {
                    let now = Timestamp::now();
                    let began = memory.last_cycle.filter(|_| own);
                    match self.hurries(began, looked, now) {
                        Ok(false) => {}
                        Ok(true) => self.controls.set(Interrupt::Preempt),
                        Err(error) => {
                            tracing::warn!(reason = error.chain(), "what is due is unknown");
                        }
                    }
                    looked = now;
                }
            }
        };
        self.activity.end();
        done
    }

    /// Whether something else comes before what is under way since `began`, where that is a cycle of the daemon's
    /// own.
    pub(super) fn hurries(
        &self,
        began: Option<Timestamp>,
        looked: Timestamp,
        now: Timestamp,
    ) -> Result<bool> {
        let conn = self.session.store().connection()?;
        let schedules = &self.session.config().schedule;
        if schedule::falls_due_within(schedules, &last_runs(&conn, now)?, looked, now)? {
            return Ok(true);
        }
        let Some(began) = began else { return Ok(false) };
        let due = State::new(&conn).waiting().next_due_of_another_cycle(began.as_microsecond())?;
        let due = due.and_then(|us| Timestamp::from_microsecond(us).ok());
        Ok(decide::gives_way(began, due, now))
    }
}

/// What a job that the daemon cannot do any more ends with.
pub(super) fn stopped() -> Error {
    Error::new(
        Kind::Cancelled,
        "the daemon stops; what is committed stays, and it goes on from there when it is started again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_wait_for_longer() {
        let now = Timestamp::now();
        let (short, later) = (now + Duration::from_secs(32), now + Duration::from_secs(3 * 3600));
        let mut memory = Memory::new();
        (memory.retry_at, memory.postponed_until, memory.last_cycle) =
            (Some(short), Some(short), Some(now));
        memory.follow_the_clock(now);
        assert_eq!(
            (memory.retry_at, memory.postponed_until, memory.last_cycle),
            (Some(short), Some(short), Some(now))
        );
        (memory.retry_at, memory.postponed_until, memory.last_cycle) =
            (Some(later), Some(later), Some(later));
        memory.follow_the_clock(now);
        assert_eq!(memory.retry_at, Some(now + LONGEST_RETRY));
        // The pause that the platform asks for is longer than any backoff.
        let hold = Duration::from_secs(1800);
        (memory.retry_at, memory.retry_within) = (Some(now + hold), hold);
        memory.follow_the_clock(now);
        assert_eq!(memory.retry_at, Some(now + hold));
        assert_eq!(memory.postponed_until, Some(now + LONGEST_POSTPONED));
        assert_eq!(memory.last_cycle, Some(now));
    }
}
