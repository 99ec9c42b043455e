//! What is told of long work, when, and in which words. Pure: the time is a value.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration};
use serde::{Deserialize, Serialize};

/// Before the first log line; each further one of the same work waits twice as long.
const LOG_FIRST: Duration = Duration::from_secs(10);
/// The same of a daemon, whose cycles have lines of their own.
const LOG_FIRST_OF_DAEMON: Duration = Duration::from_secs(60);
/// At most.
const LOG_EVERY: Duration = Duration::from_secs(600);
/// Before so much is done of a step, its pace says nothing.
const LEAST_DONE: u64 = 5;
/// And before it has taken so long.
const LEAST_TAKEN: Duration = Duration::from_secs(2);

/// What work has come to so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Scopes, and calls of those that take several.
    pub(crate) done: u64,
    pub(crate) planned: u64,
    /// Records that came, under way or committed.
    pub(crate) rows: u64,
    /// Those of them that are in the store, or were there before.
    pub(crate) committed: u64,
    pub(crate) calls: u64,
}

/// What work has told of itself.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) counts: Counts,
    run: u64,
    steps: Vec<UnderWay>,
    next_step: u64,
    /// When the last line was written, and what it said.
    logged: (Instant, Counts),
    /// Before the first line of some work,
    first: Duration,
    /// and before the next one.
    wait: Duration,
}

#[derive(Debug)]
struct UnderWay {
    id: u64,
    what: String,
    pace: Pace,
    /// What is planned meanwhile may be another step's.
    beside: bool,
}

/// What says how long the rest takes.
#[derive(Debug)]
enum Pace {
    /// What was done since then, when so much had been done.
    Since(Instant, u64),
    /// Another process, which does it.
    Told(Option<Duration>),
}

/// What can be said now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Now {
    pub(crate) what: String,
    pub(crate) counts: Counts,
    pub(crate) left: Option<Duration>,
}

impl Told {
    pub(super) fn new(now: Instant) -> Told {
        Told {
            counts: Counts::default(),
            run: 0,
            steps: Vec::new(),
            next_step: 0,
            logged: (now, Counts::default()),
            first: LOG_FIRST,
            wait: LOG_FIRST,
        }
    }

    /// Of a daemon, which is never done.
    pub(super) fn of_daemon(now: Instant) -> Told {
        Told { first: LOG_FIRST_OF_DAEMON, wait: LOG_FIRST_OF_DAEMON, ..Told::new(now) }
    }

    /// Counts from zero.
    pub(super) fn begin(&mut self) {
        self.run += 1;
        self.counts = Counts::default();
    }

    /// Which run the counts are of.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// A step begins; returns by what it is ended.
    pub(super) fn step(&mut self, what: &str, now: Instant) -> u64 {
        if self.steps.is_empty() {
            // What is over before a line is due was not long.
            self.logged = (now, self.counts);
            self.wait = self.first;
        }
        self.next_step += 1;
        let (id, done) = (self.next_step, self.counts.done);
        let pace = Pace::Since(now, done);
        self.steps.push(UnderWay { id, what: what.to_owned(), pace, beside: false });
        id
    }

    /// The same of a step that may go on while a run is at another one.
    pub(super) fn step_beside(&mut self, what: &str, now: Instant) -> u64 {
        let id = self.step(what, now);
        if let Some(step) = self.steps.last_mut() {
            step.beside = true;
        }
        id
    }

    /// This is what is being done, by another process; nothing is by this one.
    pub(super) fn another_does(&mut self, doing: Option<Now>, now: Instant) {
        let Some(Now { what, counts, left }) = doing else {
            self.steps.clear();
            return;
        };
        self.counts = counts;
        if self.steps.is_empty() {
            self.step(&what, now);
        }
        if let Some(step) = self.steps.last_mut() {
            (step.what, step.pace) = (what, Pace::Told(left));
        }
    }

    pub(super) fn end(&mut self, id: u64) {
        self.steps.retain(|step| step.id != id);
    }

    /// So many units are planned in the place of so many.
    pub(super) fn replan(&mut self, before: u64, after: u64) {
        self.counts.planned = self.counts.planned.saturating_sub(before) + after;
    }

    /// What is to be said, while a step is under way.
    pub(super) fn now(&self, now: Instant) -> Option<Now> {
        let step = self.steps.last()?;
        let counts = self.counts;
        let left = match step.pace {
            // One is the run's own.
            Pace::Since(..) if step.beside && self.steps.len() > 2 => None,
            Pace::Since(since, before) => time_left(
                counts.done.saturating_sub(before),
                counts.planned.saturating_sub(counts.done),
                now.saturating_duration_since(since),
            ),
            Pace::Told(left) => left,
        };
        Some(Now { what: step.what.clone(), counts, left })
    }

    /// The line that is due for the log: not before its time, and only if something moved since the last
    /// one.
    pub(super) fn line(&mut self, now: Instant) -> Option<Now> {
        let (at, counts) = self.logged;
        if now.saturating_duration_since(at) < self.wait || counts == self.counts {
            return None;
        }
        let line = self.now(now)?;
        self.wait = (self.wait * 2).min(LOG_EVERY);
        self.logged = (now, self.counts);
        Some(line)
    }
}

impl Now {
    /// `12,300 rows, 9,000 committed, 431 calls, about 4 minutes left of this step`
    pub(crate) fn words(&self) -> String {
        let Counts { rows, committed, calls, .. } = self.counts;
        let mut words = format!(
            "{} rows, {} committed, {} calls",
            HumanCount(rows),
            HumanCount(committed),
            HumanCount(calls)
        );
        if let Some(left) = self.left {
            // What comes after this step is planned when it begins.
            words.push_str(&format!(", about {} left of this step", HumanDuration(left)));
        }
        words
    }

    pub(super) fn log(&self) {
        let Counts { done, planned, rows, committed, calls } = self.counts;
        let left = self.left.map(|left| left.as_secs());
        tracing::info!(
            done,
            planned,
            rows,
            committed,
            calls,
            left,
            "{}: {}",
            self.what,
            self.words()
        );
    }
}

/// How long `left` units take at the pace of those that were `done`. `None` where nothing is left, or too
/// little was done to tell.
fn time_left(done: u64, left: u64, taken: Duration) -> Option<Duration> {
    if left == 0 || done < LEAST_DONE || taken < LEAST_TAKEN {
        return None;
    }
    let seconds = taken.as_secs_f64() / done as f64 * left as f64;
    // Nobody waits for less, and "0 seconds" would be no time.
    Duration::try_from_secs_f64(seconds).ok().filter(|left| *left >= Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done() {
        assert_eq!(time_left(10, 40, 60 * SECOND), Some(240 * SECOND));
        assert_eq!(time_left(1_000, 100, 10 * SECOND), Some(SECOND));
    }

    #[test]
    fn nothing_is_said_where_nothing_is_left_or_too_little_was_done() {
        assert_eq!(time_left(10, 0, 60 * SECOND), None);
        assert_eq!(time_left(1_000, 99, 10 * SECOND), None, "less than a second");
        assert_eq!(time_left(0, 10, 60 * SECOND), None);
        assert_eq!(time_left(LEAST_DONE - 1, 10, 60 * SECOND), None);
        assert_eq!(time_left(1_000, 10, SECOND), None);
        assert_eq!(time_left(LEAST_DONE, u64::MAX, 3_600 * 24 * 365 * SECOND), None, "no duration");
    }

    #[test]
    fn the_pace_is_that_of_the_step_that_is_shown() {
        let begun = Instant::now();
        let mut told = Told::new(begun);
        let run = told.step("looking for what is due", begun);
        (told.counts.done, told.counts.planned) = (1_000, 1_000);
        let step = told.step("fetching what is stale", begun + 100 * SECOND);
        told.counts.planned += 50;
        assert_eq!(told.now(begun + 110 * SECOND).unwrap().left, None);
        told.counts.done += 10;
        let now = told.now(begun + 160 * SECOND).unwrap();
        assert_eq!((now.what.as_str(), now.left), ("fetching what is stale", Some(240 * SECOND)));
        told.end(step);
        assert_eq!(told.now(begun).unwrap().what, "looking for what is due");
        told.end(run);
        assert_eq!(told.now(begun), None);
    }

    #[test]
    fn steps_that_go_on_at_the_same_time_end_in_any_order() {
        let begun = Instant::now();
        let mut told = Told::new(begun);
        let [fetching, publishing] = ["fetching", "publishing"].map(|what| told.step(what, begun));
        told.end(fetching);
        assert_eq!(told.now(begun).unwrap().what, "publishing");
        told.end(publishing);
        assert_eq!(told.now(begun), None);
    }

    #[test]
    fn what_goes_on_beside_another_step_has_no_time_of_its_own() {
        let begun = Instant::now();
        let mut told = Told::new(begun);
        let left = |told: &mut Told| {
            (told.counts.done, told.counts.planned) = (told.counts.done + 10, 1_000);
            told.now(begun + 60 * SECOND).unwrap().left
        };
        let _run = told.step("looking for what is due", begun);
        let fetching = told.step("fetching what is stale", begun);
        let publishing = told.step_beside("publishing", begun);
        assert_eq!(left(&mut told), None, "it is that of the fetching");
        told.end(fetching);
        assert!(left(&mut told).is_some(), "nothing else is planned");
        told.end(publishing);
        assert_eq!(told.now(begun).unwrap().what, "looking for what is due");
    }

    #[test]
    fn lines_come_more_seldom_the_longer_it_takes_while_anything_moves() {
        let begun = Instant::now();
        let mut told = Told::new(begun);
        let step = told.step("reading accounts", begun);
        told.counts.calls += 1;
        assert_eq!(told.line(begun + 9 * SECOND), None, "it is too early");
        assert_eq!(told.line(begun + 10 * SECOND).unwrap().counts.calls, 1);
        told.counts.rows += 1_000;
        assert_eq!(told.line(begun + 29 * SECOND), None, "it is too early");
        assert_eq!(told.line(begun + 30 * SECOND).unwrap().counts.rows, 1_000);
        assert_eq!(told.line(begun + 100 * SECOND), None, "nothing moved");
        told.counts.committed += 1;
        assert!(told.line(begun + 101 * SECOND).is_some());
        let mut lines = 0;
        for second in 102..86_400 {
            told.counts.calls += 1;
            lines += usize::from(told.line(begun + second * SECOND).is_some());
        }
        assert_eq!(lines, 145, "a day that fits on a few screens");
        told.end(step);
        let later = begun + 90_000 * SECOND;
        told.step("reading offices", later);
        told.counts.calls += 1;
        assert!(told.line(later + 10 * SECOND).is_some(), "other work begins anew");
    }

    #[test]
    fn what_another_process_does_is_told_in_the_same_lines() {
        let begun = Instant::now();
        let mut told = Told::new(begun);
        let does = |calls, what: &str| Now {
            what: what.to_owned(),
            counts: Counts { calls, ..Counts::default() },
            left: Some(calls as u32 * SECOND),
        };
        // It was at it before anybody asked.
        told.another_does(Some(does(70, "listing cases")), begun);
        assert_eq!(told.line(begun + 10 * SECOND), None, "nothing moved");
        told.another_does(Some(does(80, "listing projects")), begun + 11 * SECOND);
        assert_eq!(told.line(begun + 11 * SECOND), Some(does(80, "listing projects")));
        told.another_does(Some(does(90, "listing projects")), begun + 12 * SECOND);
        assert_eq!(told.line(begun + 30 * SECOND), None, "it is too early");
        assert_eq!(told.line(begun + 31 * SECOND), Some(does(90, "listing projects")));
        told.another_does(None, begun + 32 * SECOND);
        assert_eq!(told.now(begun + 32 * SECOND), None);
    }

    #[test]
    fn a_daemon_tells_only_of_work_that_takes_a_minute() {
        let begun = Instant::now();
        let mut told = Told::of_daemon(begun);
        for cycle in 0..100 {
            let at = begun + 70 * cycle * SECOND;
            let step = told.step("fetching what is stale", at);
            told.counts.calls += 1;
            assert_eq!(told.line(at + 59 * SECOND), None);
            assert!(cycle < 99 || told.line(at + 60 * SECOND).is_some());
            told.end(step);
        }
    }

    #[test]
    fn work_that_is_soon_over_is_not_logged_and_neither_is_what_moves_outside_of_it() {
        let begun = Instant::now();
        let mut told = Told::new(begun);
        for cycle in 1..100 {
            let at = begun + 11 * cycle * SECOND;
            told.counts.calls += 1;
            assert_eq!(told.line(at), None, "no step is under way");
            let step = told.step("asking the change feeds", at);
            told.counts.calls += 1;
            assert_eq!(told.line(at + 9 * SECOND), None);
            told.end(step);
        }
    }

    #[test]
    fn the_words_have_rows_under_way_and_committed_calls_and_time_left() {
        let counts = Counts { done: 1, planned: 2, rows: 12_300, committed: 9_000, calls: 431 };
        let mut now = Now { what: String::new(), counts, left: None };
        assert_eq!(now.words(), "12,300 rows, 9,000 committed, 431 calls");
        now.left = Some(250 * SECOND);
        assert_eq!(
            now.words(),
            "12,300 rows, 9,000 committed, 431 calls, about 4 minutes left of this step"
        );
    }
}
