//! Asking the source a few things at a time, and leaving it where other work comes first.

use std::collections::{BTreeMap, VecDeque};

use tokio::task::JoinSet;

use crate::cycle::{
    Interrupt, MOST_FAILURES, Signals, Unreached, month_takes_too_long, weight_of_month,
};
use crate::error::{Error, Kind, Result};
use crate::progress::{Progress, Share};

/// Whether asking may go on: changes come first, and so does what asks for an end.
#[derive(Debug)]
pub(crate) struct Gate {
    signals: Signals,
    /// What polls up to this number moved has been planned.
    handled: i64,
    /// What is asked through it.
    share: Share,
}

impl Gate {
    /// Free until a poll moves something beyond `handled`.
    pub(crate) fn new(signals: &Signals, handled: i64, progress: &Progress) -> Gate {
        Gate { signals: signals.clone(), handled, share: progress.share(0) }
    }

    /// So much is to be asked.
    pub(super) fn expect(&mut self, asks: usize) {
        self.share.expect(asks as u64);
    }

    fn is_open(&self) -> bool {
        self.signals.interrupt() == Interrupt::None && self.signals.latest() <= self.handled
    }

    async fn closed(&mut self) {
        if self.is_open() {
            self.signals.beyond(self.handled, Interrupt::None).await;
        }
    }
}

/// Calls under way. They go on while something else is done.
#[derive(Debug)]
pub(super) struct Asking<T> {
    under_way: JoinSet<T>,
}

impl<T> Default for Asking<T> {
    fn default() -> Asking<T> {
        Asking { under_way: JoinSet::new() }
    }
}

impl<T: Send + 'static> Asking<T> {
    /// How many calls are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The next answer, with `width` of what `more` gives under way; `None` where nothing is left, or
    /// the gate closes.
    ///
    /// # Errors
    /// `Internal`: a task ended early.
    pub(crate) async fn next<F>(
        &mut self,
        gate: &mut Gate,
        width: usize,
        mut more: impl FnMut() -> Option<F>,
    ) -> Result<Option<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        while gate.is_open() && self.under_way.len() < width {
            let Some(next) = more() else { break };
            self.under_way.spawn(next);
        }
        let ended = tokio::select! {
            ended = self.under_way.join_next() => ended,
            () = gate.closed() => None,
        };
        gate.share.done(u64::from(ended.is_some()));
        let early = |e| Error::caused(Kind::Internal, "asking the source ended early", e);
        ended.transpose().map_err(early)
    }
}

/// What is asked in one attempt, from a random one on: where so many fail that the rest is not asked, the same few
/// would else keep the others from being asked night after night.
pub(super) fn from_a_random_one<T>(all: impl Iterator<Item = T>) -> VecDeque<T> {
    let mut all: VecDeque<T> = all.collect();
    if !all.is_empty() {
        all.rotate_left(rand::random_range(0..all.len()));
    }
    all
}

/// Whether asking on makes sense (pure), by the rules of a cycle: several different endpoints that cannot
/// be reached, and one more that cannot either, end the asking; so many failures of a table that never
/// answered end that of the table. Each of the rest would cost all of its repetitions.
#[derive(Debug, Default)]
pub(super) struct Reach {
    unreached: Unreached,
    /// One more endpoint was asked in vain.
    is_lost: bool,
    /// Failures of each table; `None` once it has answered.
    failures: BTreeMap<String, Option<u32>>,
}

impl Reach {
    pub(crate) fn answered(&mut self, table: &str) {
        self.reached();
        self.failures.insert(table.to_owned(), None);
    }

    /// Something was answered.
    pub(crate) fn reached(&mut self) {
        self.unreached.reached();
        self.is_lost = false;
    }

    /// A call failed. Returns whether one more endpoint has to be asked.
    pub(crate) fn failed(&mut self, table: &str, kind: Kind) -> bool {
        self.count(table, 1);
        self.unreached.failed(table, kind)
    }

    /// The same of a call for a journal's month.
    pub(crate) fn month_failed(&mut self, table: &str, kind: Kind) -> bool {
        self.count(table, weight_of_month(kind));
        !month_takes_too_long(kind) && self.unreached.failed(table, kind)
    }

    fn count(&mut self, table: &str, weight: u32) {
        if let Some(failures) = self.failures.entry(table.to_owned()).or_insert(Some(0)) {
            *failures += weight;
        }
    }

    /// That one cannot be reached either.
    pub(crate) fn lost(&mut self) {
        self.is_lost = true;
    }

    /// Whether the source is out of reach, whatever is asked.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether nothing more is asked of a table.
    pub(crate) fn gives_up(&self, table: &str) -> bool {
        self.is_lost || self.failures.get(table).copied().flatten() >= Some(MOST_FAILURES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{Controls, Notifier};

    #[test]
    fn all_are_asked_in_their_order_from_any_of_them_on() {
        let mut first = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let all: Vec<u32> = from_a_random_one(0..4).into();
            assert_eq!(all.len(), 4);
            assert!(all.windows(2).all(|pair| (pair[0] + 1) % 4 == pair[1]), "{all:?}");
            first.insert(all[0]);
        }
        assert_eq!(first.len(), 4);
        assert!(from_a_random_one(0..0).is_empty());
    }

    #[tokio::test]
    async fn what_is_under_way_goes_on_while_the_way_is_taken() {
        let notifier = Notifier::default();
        let controls = Controls::new(&notifier);
        let signals = controls.listen();
        let (release, held) = tokio::sync::oneshot::channel::<()>();
        let mut held = Some(held);
        let mut asking = Asking::default();
        let mut more = || {
            let held = held.take()?;
            Some(async move { held.await.is_ok() })
        };
        let progress = Progress::silent();
        let mut gate = Gate::new(&signals, 0, &progress);
        gate.expect(3);
        let (answer, ()) =
            tokio::join!(asking.next(&mut gate, 2, &mut more), async { notifier.notify(1) });
        assert_eq!(answer.unwrap(), None);
        assert!(!asking.is_idle());
        let mut gate = Gate::new(&signals, 1, &progress);
        release.send(()).unwrap();
        assert_eq!(asking.next(&mut gate, 2, &mut more).await.unwrap(), Some(true));
        assert!(asking.is_idle());
        assert_eq!(asking.next(&mut gate, 2, &mut more).await.unwrap(), None);
    }

    #[test]
    fn one_endpoint_out_of_reach_ends_nothing_and_several_do_once_another_is_too() {
        let mut reach = Reach::default();
        reach.answered("notes");
        for _ in 0..100 {
            assert!(!reach.failed("notes", Kind::Tls));
        }
        assert!(!reach.failed("costs", Kind::Unreachable));
        assert!(reach.failed("cases", Kind::Timeout));
        assert!(!reach.is_lost() && !reach.gives_up("notes"));
        reach.lost();
        assert!(reach.is_lost() && reach.gives_up("notes"));
        reach.answered("costs");
        assert!(!reach.is_lost() && !reach.failed("cases", Kind::Timeout));
    }

    #[test]
    fn a_journal_that_takes_too_long_says_nothing_about_the_others() {
        let mut reach = Reach::default();
        assert!(!reach.failed("notes", Kind::Timeout));
        assert!(!reach.failed("costs", Kind::Timeout));
        for _ in 0..4 {
            assert!(!reach.gives_up("revenue_journal_sums"));
            assert!(!reach.month_failed("revenue_journal_sums", Kind::Timeout));
        }
        assert!(reach.gives_up("revenue_journal_sums"));
        assert!(reach.month_failed("revenue_journal_sums", Kind::Unreachable));
    }

    #[test]
    fn a_table_that_only_fails_is_given_up_and_one_that_answered_is_not() {
        let mut reach = Reach::default();
        reach.answered("costs");
        for _ in 0..MOST_FAILURES {
            reach.failed("notes", Kind::Server);
            reach.failed("costs", Kind::Server);
        }
        assert!(reach.gives_up("notes"));
        assert!(!reach.gives_up("costs") && !reach.is_lost());
    }
}
