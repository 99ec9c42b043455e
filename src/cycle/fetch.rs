//! The one loop: takes work from the queue, keeps calls under way, and hands the answers on. What
//! changes meanwhile comes first.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::JoinSet;

use super::Run;
use super::answers::Answers;
use super::month_answers::{MonthAnswer, MonthNotes};
use super::queue::{Queue, Ready};
use super::signals::Interrupt;
use crate::catalog::{Group, Resource};
use crate::decode::Load;
use crate::error::{Error, Kind, Result};
use crate::extract::Extractor;
use crate::journals::{Gate, MonthRead, MonthsUnderWay};
use crate::mirror::State;
use crate::scope::{CaseState, DueMonth, FailureKind, Stale, Urgency, Version, Work};

/// Scopes under way for each call that may be in flight, so that decoding never holds a call back.
const SCOPES_PER_CALL: usize = 2;
/// Cases, and contacts, that have changed and are taken in between at once; the next follow when these
/// are under way.
pub(super) const MOST_CHANGES: usize = 200;

/// Cases that wait for the search are looked for no more often than this, however short `source.search_delay` is: many
/// are asked for in one call.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);

/// No table is named, so that all are meant.
const ALL_TABLES: [String; 0] = [];

/// What came of work.
enum Answer {
    Load(Result<Load>),
    /// `None`: the month gave way, and its reading is set aside. With how long it was asked.
    Month(Option<Result<MonthRead>>, Duration),
}

struct Done {
    work: Work,
    resource: Arc<Resource>,
    answer: Answer,
}

impl Done {
    /// The case of which this call was not answered in time.
    fn case_that_hangs(&self) -> Option<i64> {
        match (&self.work, &self.answer) {
            (Work::Case(stale), Answer::Load(Err(error))) if error.kind() == Kind::Timeout => {
                Some(stale.id)
            }
            _ => None,
        }
    }
}

/// What the loop came to.
#[derive(Debug, Default)]
struct Worked {
    /// Cases that moved meanwhile, and were fetched.
    moved: Vec<CaseState>,
    /// Those of which more may be stale once what is read of them now is committed.
    postponed: Vec<i64>,
    months: MonthNotes,
}

/// The one loop, with what its answers have come to.
pub(super) struct Fetcher<'r> {
    pub(super) run: &'r Run,
    pub(super) answers: Answers<'r>,
    /// When the cases that wait for the search were last looked for.
    looked_at: tokio::time::Instant,
    /// The same in microseconds of our clock: what came due by then was asked for, or cannot be asked now.
    looked_for: i64,
}

impl<'r> Fetcher<'r> {
    /// Nothing is called yet.
    pub(crate) fn new(run: &'r Run) -> Fetcher<'r> {
        let looked_at = tokio::time::Instant::now();
        Fetcher { run, answers: Answers::none(run), looked_at, looked_for: i64::MIN }
    }

    /// Does this work and what changes meanwhile, and commits it. What could not be begun before an
    /// interrupt stays as stale, or as due, as it was.
    pub(crate) async fn fetch(&mut self, queue: Queue) -> Result<MonthNotes> {
        let Worked { moved, months, .. } = self.fetch_all(queue).await?;
        self.answers.flush().await?;
        self.answers.plans().clean(&moved).await?;
        Ok(months)
    }

    /// The same, without the end: what was loaded is not committed yet.
    async fn fetch_all(&mut self, mut queue: Queue) -> Result<Worked> {
        let width = self.run.config.limits.concurrency * SCOPES_PER_CALL;
        let mut under_way: JoinSet<Done> = JoinSet::new();
        let mut signals = self.run.signals.clone();
        let mut fetched = Worked::default();
        let mut share = self.run.progress.share(0);
        let mut search_at = self.next_search()?;
        let mut calls = self.run.client().ended_calls();
        loop {
            let interrupt = self.run.signals.interrupt();
            let follows = |queue: &Queue| interrupt == Interrupt::None && !queue.has_changes();
            if follows(&queue) && self.run.signals.latest() > self.answers.planned.handled() {
                self.take_changes(&mut queue, &mut fetched).await?;
                search_at = self.next_search()?;
            }
            // What else is read may take for days.
            if follows(&queue) && !fetched.postponed.is_empty() {
                self.take_postponed(&mut queue, &mut fetched).await?;
            }
            // A daemon's cycle may last for days, and changes must not wait for its end.
            if follows(&queue) && search_at.is_some_and(|at| at <= tokio::time::Instant::now()) {
                self.search_again(&mut queue, &mut fetched).await?;
                search_at = self.next_search()?;
                continue;
            }
            while under_way.len() < width {
                let ready = |work: &Work| self.readiness(work, interrupt, &fetched.months);
                let Some(mut work) = queue.pop(ready) else { break };
                if let Work::Month(month) = &mut work {
                    fetched.months.begin(month);
                }
                self.send(&mut under_way, work);
            }
            share.expect((queue.waiting() + under_way.len()) as u64);
            // While it ends, or has changes to follow, newer ones do not hurry it.
            let known = if follows(&queue) { self.answers.planned.handled() } else { i64::MAX };
            // Only for what is due: a call that hangs must not look like work that gets on.
            let wakes_at = search_at.filter(|_| follows(&queue) && !under_way.is_empty());
            let woken = async {
                match wakes_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let mut woken = pin!(woken);
            let done = loop {
                tokio::select! {
                    done = under_way.join_next() => break Some(done),
                    () = signals.beyond(known, interrupt) => break None,
                    () = &mut woken => break None,
                    // A month may take hours of calls: each is a sign that this gets on (`daemon/notify.rs`).
                    Ok(()) = calls.changed() => {}
                }
            };
            let Some(done) = done else { continue };
            let Some(done) = done else { return Ok(fetched) };
            let done = done.map_err(|e| Error::caused(Kind::Internal, "a fetch ended early", e))?;
            share.done(1);
            if queue.done(&done.work) {
                let hangs = done.case_that_hangs();
                self.take(done, &mut fetched.months).await?;
                if let Some(case_id) = hangs {
                    self.let_wait(&mut queue, case_id).await?;
                }
            }
        }
    }

    /// A call of a case took too long; what else waits of that case would take as long each, and keep the others
    /// from being read.
    async fn let_wait(&mut self, queue: &mut Queue, case_id: i64) -> Result<()> {
        let why = format!(
            "it was not asked for: another call of case {case_id} was not answered in time"
        );
        for work in queue.take_case(case_id) {
            self.answers.note_failure(work.table(), case_id, FailureKind::NotAsked, &why).await?;
        }
        Ok(())
    }

    /// Whether work can begin: its table is still read, nothing has to end first, and the run goes on.
    /// Lists are read to their end unless the process stops: they are few, and their schedule is noted
    /// when all were read.
    fn readiness(&self, work: &Work, interrupt: Interrupt, months: &MonthNotes) -> Ready {
        if !self.answers.tables.is_active(work.table()) {
            return Ready::Never;
        }
        let goes_on = match work {
            Work::Case(_) | Work::Month(_) => interrupt == Interrupt::None,
            Work::List { .. } | Work::Names { .. } | Work::Row { .. } => {
                interrupt < Interrupt::Cancel
            }
        };
        let gives_up = match work {
            Work::Case(_) | Work::Month(_) => self.answers.findings.gives_up(work.table()),
            Work::List { .. } | Work::Names { .. } | Work::Row { .. } => false,
        };
        let is_free = match work {
            Work::Month(month) => months.may_begin(month, self.run.config.limits.concurrency),
            _ => true,
        };
        match (gives_up, goes_on && is_free) {
            (true, _) => Ready::Never,
            (false, true) => Ready::Now,
            (false, false) => Ready::Later,
        }
    }

    fn send(&self, under_way: &mut JoinSet<Done>, work: Work) {
        let Some(resource) = self.run.catalog.get(work.table()).cloned() else { return };
        let is_list = matches!(work, Work::List { .. } | Work::Names { .. });
        let step = is_list.then(|| self.run.progress.step(&format!("reading {}", resource.table)));
        let extractor = self.run.extractor.clone();
        let (months, signals) = (self.run.months.clone(), self.run.signals.clone());
        under_way.spawn(async move {
            let answer = match &work {
                Work::Month(month) => {
                    let gate = Gate::new(move || signals.interrupt() != Interrupt::None);
                    let begun = Instant::now();
                    let read = read_month(&extractor, &months, &resource, month, gate).await;
                    Answer::Month(read, begun.elapsed())
                }
                other => Answer::Load(ask(&extractor, &resource, other).await),
            };
            drop(step);
            Done { work, resource, answer }
        });
    }

    async fn take(&mut self, done: Done, months: &mut MonthNotes) -> Result<()> {
        let Done { work, resource, answer } = done;
        match (work, answer) {
            (Work::Month(month), Answer::Month(answer, took)) => {
                let (answers, month, resource) = (&mut self.answers, &month, &resource);
                MonthAnswer { answers, month, resource, took }.take(answer, months).await
            }
            (Work::Case(stale), Answer::Load(load)) => {
                self.answers
                    .scope(&resource, stale.id)
                    .hinted(stale.hint)
                    .take(load, Version::Known(stale.version))
                    .await
            }
            (Work::Row { id, hint, .. }, Answer::Load(load)) => {
                let version = Version::Known(String::new());
                self.answers.scope(&resource, id).hinted(hint).take(load, version).await
            }
            (Work::List { hint, .. }, Answer::Load(load)) => {
                self.answers.list(&resource).hinted(hint).take(load).await
            }
            (Work::Names { .. }, Answer::Load(load)) => {
                self.answers.list(&resource).take_names(load).await
            }
            (work, _) => Err(Error::new(
                Kind::Internal,
                format!("{}: the answer is of another kind than the work", work.table()),
            )),
        }
    }

    /// Searches and plans the next cases that moved since this was last asked, and puts what is stale
    /// of them first; contacts that moved are searched at once. Changes are followed whatever else this
    /// run was asked for: `--only` and `--case` say nothing of them.
    async fn take_changes(&mut self, queue: &mut Queue, fetched: &mut Worked) -> Result<()> {
        let latest = self.run.signals.latest();
        let moved = {
            let conn = self.run.store.connection()?;
            State::new(&conn).cases().moved_cases(self.answers.planned.last(), MOST_CHANGES)?
        };
        match moved.last().filter(|_| moved.len() == MOST_CHANGES) {
            Some(last) => self.answers.planned.set(last.moved, Some(last.case_id)),
            None => self.answers.planned.set(latest, None),
        }
        self.answers.search().cases(&moved, &ALL_TABLES).await?;
        // What they are decides what is read of them: planned after their rows are there.
        let searched = self.reload(&moved, queue)?;
        self.push_changes(queue, fetched, searched)?;
        self.answers.contacts().search(Some(MOST_CHANGES)).await?;
        Ok(())
    }

    /// Plans cases that have changed, and puts what is stale of them first.
    fn push_changes(
        &self,
        queue: &mut Queue,
        fetched: &mut Worked,
        cases: Vec<CaseState>,
    ) -> Result<()> {
        let (stale, postponed) = self.answers.plans().stale_and_postponed(&cases, &ALL_TABLES)?;
        for stale in stale {
            queue.push(Urgency::Change, Work::Case(stale));
        }
        fetched.postponed.extend(postponed);
        fetched.moved.extend(cases);
        Ok(())
    }

    /// Whether a call of this case is under way.
    fn asks_of(&self, queue: &Queue, case_id: i64) -> bool {
        let is_of_cases =
            |table: &str| self.run.catalog.get(table).is_some_and(|r| r.group == Group::Case);
        queue.under_way().any(|scope| scope.id == case_id && is_of_cases(&scope.table))
    }

    /// Reads what is known to be stale of changed cases now that what it hangs on was read.
    async fn take_postponed(&mut self, queue: &mut Queue, fetched: &mut Worked) -> Result<()> {
        let (asked, ids): (Vec<i64>, Vec<i64>) =
            fetched.postponed.drain(..).partition(|case_id| self.asks_of(queue, *case_id));
        fetched.postponed = asked;
        if ids.is_empty() {
            return Ok(());
        }
        self.answers.flush().await?;
        let cases = {
            let conn = self.run.store.connection()?;
            State::new(&conn).cases().dirty_cases(None, &ids, ids.len())?
        };
        // Once: what is postponed still was tried in vain.
        for stale in self.answers.plans().stale(&cases, &ALL_TABLES)? {
            queue.push(Urgency::Change, Work::Case(stale));
        }
        Ok(())
    }

    /// Searches the cases again of which the search had not shown the last change when it was last asked. What they
    /// are decides what is read of them.
    async fn search_again(&mut self, queue: &mut Queue, fetched: &mut Worked) -> Result<()> {
        let now = Timestamp::now().as_microsecond();
        let run = self.run;
        let waiting = {
            let conn = run.store.connection()?;
            State::new(&conn).cases().waiting_for_search(now, MOST_CHANGES)?
        };
        if waiting.len() < MOST_CHANGES {
            self.looked_for = now;
        }
        if waiting.is_empty() {
            self.looked_at = tokio::time::Instant::now();
            return Ok(());
        }
        run.write(move |conn| State::new(conn).stale_marks().wake_again(now)).await?;
        let waiting = self.answers.plans().reload(&waiting)?;
        self.answers.search().cases(&waiting, &ALL_TABLES).await?;
        self.looked_at = tokio::time::Instant::now();
        let searched = self.reload(&waiting, queue)?;
        // What is being asked just now would be asked twice.
        let (asked, others): (Vec<CaseState>, Vec<CaseState>) =
            searched.into_iter().partition(|case| self.asks_of(queue, case.case_id));
        fetched.postponed.extend(asked.iter().map(|case| case.case_id));
        fetched.moved.extend(asked);
        // So would what was answered and is not committed.
        self.answers.flush().await?;
        self.push_changes(queue, fetched, others)
    }

    /// When the search is to be asked again, by a daemon's cycle: not for each case by itself. `None` where no case waits.
    fn next_search(&self) -> Result<Option<tokio::time::Instant>> {
        if !self.run.options.following {
            return Ok(None);
        }
        let due = {
            let conn = self.run.store.connection()?;
            State::new(&conn).waiting().next_search(&[], self.looked_for)?
        };
        let Some(due) = due.and_then(|us| Timestamp::from_microsecond(us).ok()) else {
            return Ok(None);
        };
        let left = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        let at = tokio::time::Instant::now() + left + Duration::from_millis(1);
        let pace = self.run.config.source.search_delay.max(SHORTEST_DELAY);
        Ok(Some(at.max(self.looked_at + pace)))
    }

    /// These cases as they are after a search: what is left to be read of those that it found to be gone is no work any
    /// more.
    fn reload(&self, searched: &[CaseState], queue: &mut Queue) -> Result<Vec<CaseState>> {
        let here = self.answers.plans().reload(searched)?;
        let ids: HashSet<i64> = here.iter().map(|case| case.case_id).collect();
        queue.remove(searched.iter().map(|case| case.case_id).filter(|id| !ids.contains(id)));
        queue.restore(&ids);
        Ok(here)
    }

    /// Fetches what polls have seen since this was last asked, and nothing else.
    pub(crate) async fn follow_changes(&mut self) -> Result<()> {
        while self.run.signals.interrupt() == Interrupt::None
            && self.run.signals.latest() > self.answers.planned.handled()
        {
            self.fetch(Queue::default()).await?;
        }
        Ok(())
    }
}

/// Makes the calls of a month, or the rest of them.
async fn read_month(
    extractor: &Extractor,
    months: &MonthsUnderWay,
    resource: &Arc<Resource>,
    month: &DueMonth,
    gate: Gate,
) -> Option<Result<MonthRead>> {
    let scope = Work::Month(month.clone()).scope();
    months.read(scope, || extractor.month(resource, month, gate)).await
}

/// Makes the calls of one piece of other work.
async fn ask(extractor: &Extractor, resource: &Arc<Resource>, work: &Work) -> Result<Load> {
    let unversioned = Version::Known(String::new());
    match work {
        Work::Case(Stale { id, version, lookup, mirrored, .. }) => {
            let version = Version::Known(version.clone());
            extractor.scope(resource, *id, lookup.as_deref(), version, *mirrored).await
        }
        Work::Row { id, mirrored, .. } => {
            extractor.scope(resource, *id, None, unversioned, *mirrored).await
        }
        Work::List { mirrored, .. } => {
            extractor.scope(resource, 0, None, unversioned, *mirrored).await
        }
        Work::Names { .. } => match &resource.group {
            Group::ForEach(each) => match &each.list {
                Some(path) => extractor.named(resource, each, path).await,
                None => Err(no_names(resource)),
            },
            _ => Err(no_names(resource)),
        },
        Work::Month(month) => {
            Err(Error::new(Kind::Internal, format!("{} is read as a month", month.scope)))
        }
    }
}

fn no_names(resource: &Resource) -> Error {
    Error::new(Kind::Internal, format!("{}: no list names its scopes", resource.table))
}
