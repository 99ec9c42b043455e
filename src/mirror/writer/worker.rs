//! The thread behind a [`Writer`](super::Writer): takes loads and jobs in the order in which they were sent, and commits
//! many loads in one transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use duckdb::Connection;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::decode::{Load, Privacy};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::mirror::commit::{self, Applied};
use crate::mirror::first_load::KnownScopes;
use crate::mirror::freshness;
use crate::mirror::load::{Outcome, Settings};
use crate::mirror::threads::Threads;
use crate::mirror::transactions::Transactions;

/// A transaction is committed when it holds this much,
const COMMIT_BYTES: usize = 16 << 20; // 16 MiB
/// A commit of so much is large work for [`Threads`]: a month of lines, handed over at once.
const LARGE_COMMIT_BYTES: usize = 32 << 20; // 32 MiB
/// or this many loads,
const COMMIT_LOADS: usize = 2_000;
/// or when nothing more came for so long.
const LINGER: Duration = Duration::from_millis(100);

/// Is given the time of the last commit too.
pub(super) type Job = Box<dyn FnOnce(&Connection, &mut Timestamp) + Send>;

pub(super) type LoaderId = u64;

pub(super) enum Command {
    Open(LoaderId, Box<Settings>, i64),
    Load(LoaderId, Box<Load>, OwnedSemaphorePermit),
    Run(Job),
    Flush(LoaderId, oneshot::Sender<Result<Outcome>>),
    Close(LoaderId),
    End,
}

pub(super) struct Worker {
    conn: Connection,
    /// That of the store, which all who decode for it share: they are told here what was learned of forgotten persons.
    privacy: Privacy,
    threads: Arc<Threads>,
    loaders: BTreeMap<LoaderId, Waiting>,
    last: Timestamp,
    known: KnownScopes,
    transactions: Transactions,
}

/// What a loader has handed over and not committed yet, and what became of the rest.
struct Waiting {
    settings: Settings,
    run_id: i64,
    loads: Vec<(Load, OwnedSemaphorePermit)>,
    bytes: usize,
    since: Option<Instant>,
    done: Outcome,
    failed: Option<Error>,
}

impl Waiting {
    fn new(settings: Settings, run_id: i64) -> Waiting {
        Waiting {
            settings,
            run_id,
            loads: Vec::new(),
            bytes: 0,
            since: None,
            done: Outcome::default(),
            failed: None,
        }
    }

    fn take(&mut self, load: Load, permit: OwnedSemaphorePermit) {
        self.bytes += load.bytes();
        self.since.get_or_insert_with(Instant::now);
        self.loads.push((load, permit));
    }

    fn is_full(&self) -> bool {
        let old = self.since.is_some_and(|since| since.elapsed() > 10 * LINGER);
        self.bytes >= COMMIT_BYTES || self.loads.len() >= COMMIT_LOADS || old
    }

    fn commit(
        &mut self,
        conn: &Connection,
        privacy: &Privacy,
        threads: &Threads,
        last: &mut Timestamp,
        known: &mut KnownScopes,
        transactions: &Transactions,
    ) {
        if self.loads.is_empty() {
            return;
        }
        let (loads, permits): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.loads).into_iter().unzip();
        let is_large = std::mem::take(&mut self.bytes) >= LARGE_COMMIT_BYTES;
        self.since = None;
        if self.failed.is_some() {
            // What follows a failed commit is not loaded either: its state would be ahead of it.
            return;
        }
        let now = commit_time(last);
        let records = loads.iter().map(|load| load.records).sum();
        failpoint::hit("before-commit");
        let all_threads = is_large.then(|| threads.all(conn)).transpose();
        let done = all_threads.and_then(|_all_threads| {
            transactions.in_place(conn)?;
            transactions.write(conn, |conn| {
                let (settings, list) = (&self.settings, privacy.forgotten());
                let done = commit::apply(conn, settings, self.run_id, now, loads, &list, known)?;
                failpoint::hit("in-commit");
                Ok(done)
            })
        });
        failpoint::hit("after-commit");
        drop(permits);
        match done {
            Ok(Applied { outcome, list }) => {
                // Not before: what a commit that fails has learned is not on the store's list, and comes again.
                if let Some(list) = list {
                    privacy.learn(list);
                }
                self.settings.progress.committed(records);
                self.done.add(&outcome);
            }
            Err(error) => {
                // It may have asked a table from which the same commit had taken rows.
                *known = KnownScopes::default();
                self.failed = Some(error);
            }
        }
    }
}

/// What a burst leaves to be done.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    Waits,
    Ends,
}

impl Worker {
    /// `last` is when rows were last written.
    pub(super) fn new(
        conn: Connection,
        privacy: Privacy,
        threads: Arc<Threads>,
        last: Timestamp,
        transactions: Transactions,
    ) -> Worker {
        let (loaders, known) = (BTreeMap::new(), KnownScopes::default());
        Worker { conn, privacy, threads, loaders, last, known, transactions }
    }

    /// Works off what comes until it is told to end, or nobody is left who could tell it something.
    ///
    /// It does so in bursts, each on a thread of its own: the allocator keeps what a thread has freed for that thread,
    /// and gives it back when the thread ends. What an idle thread has freed no other can use: a commit of wide rows leaves
    /// tens of megabytes, which the publishing that follows would take once more.
    pub(super) fn work(mut self, mut queue: mpsc::Receiver<Command>) {
        while let Ok(command) = queue.recv() {
            let mut first = Some(command);
            let burst = std::thread::scope(|scope| {
                let burst = || self.burst(&mut first, &mut queue);
                let thread = std::thread::Builder::new().name("writer-burst".to_owned());
                thread.spawn_scoped(scope, burst).ok().map(ScopedJoinHandle::join)
            });
            let then = match burst {
                Some(Ok(then)) => then,
                Some(Err(panicked)) => std::panic::resume_unwind(panicked),
                // There can be no further thread now.
                None => self.burst(&mut first, &mut queue),
            };
            if then == Then::Ends {
                return;
            }
        }
    }

    /// Works off `first` and what comes after it, until nothing came for a while and nothing waits to be committed.
    fn burst(&mut self, first: &mut Option<Command>, queue: &mut mpsc::Receiver<Command>) -> Then {
        loop {
            let command = match first.take() {
                Some(command) => Ok(command),
                None => queue.recv_timeout(LINGER),
            };
            match command {
                Ok(Command::Open(id, settings, run_id)) => {
                    self.loaders.insert(id, Waiting::new(*settings, run_id));
                }
                Ok(Command::Load(id, load, permit)) => {
                    if let Some(loader) = self.loaders.get_mut(&id) {
                        loader.take(*load, permit);
                        if loader.is_full() {
                            let (last, known) = (&mut self.last, &mut self.known);
                            let (privacy, transactions) = (&self.privacy, &self.transactions);
                            loader.commit(
                                &self.conn,
                                privacy,
                                &self.threads,
                                last,
                                known,
                                transactions,
                            );
                        }
                    }
                }
                Ok(Command::Run(job)) => {
                    self.commit();
                    job(&self.conn, &mut self.last);
                }
                Ok(Command::Flush(id, reply)) => {
                    self.commit();
                    let done = match self.loaders.get_mut(&id) {
                        Some(loader) => match loader.failed.take() {
                            Some(error) => Err(error),
                            None => Ok(std::mem::take(&mut loader.done)),
                        },
                        None => Ok(Outcome::default()),
                    };
                    // Nobody waits for the answer when the run was cancelled.
                    let _ = reply.send(done);
                }
                Ok(Command::Close(id)) => {
                    self.commit();
                    if let Some(error) = self.loaders.remove(&id).and_then(|loader| loader.failed) {
                        // The run ended without asking, so nobody else will say it.
                        tracing::warn!(reason = error.chain(), "the last answers were not stored");
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.has_waiting() => self.commit(),
                Err(mpsc::RecvTimeoutError::Timeout) => return Then::Waits,
                Ok(Command::End) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.commit();
                    return Then::Ends;
                }
            }
        }
    }

    fn has_waiting(&self) -> bool {
        self.loaders.values().any(|loader| !loader.loads.is_empty())
    }

    fn commit(&mut self) {
        for loader in self.loaders.values_mut() {
            let (last, known) = (&mut self.last, &mut self.known);
            let (privacy, threads) = (&self.privacy, &self.threads);
            loader.commit(&self.conn, privacy, threads, last, known, &self.transactions);
        }
    }
}

/// The time of a commit, later than the last one's where the clock goes back a little, so that versions of a row
/// have an order. A last one that lies too far ahead is not followed ([`freshness::followed`]).
pub(super) fn commit_time(last: &mut Timestamp) -> Timestamp {
    let now = Timestamp::now();
    let followed = freshness::followed(*last, now);
    let now = now.max(followed.saturating_add(Duration::from_micros(1)).unwrap_or(Timestamp::MAX));
    *last = now;
    now
}
