//! The one thread that writes rows and books.
//!
//! Loads come through a channel bounded in bytes; many are committed in one transaction, and their
//! share of the budget is given back when they are. Other writes ([`Writer::run`]) are transactions
//! of their own, in order with the loads sent before them.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use duckdb::Connection;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::db;
use super::load::{self, Load, Outcome, Settings};
use crate::error::{Error, Kind, Result};
use crate::failpoint;

/// Decoded rows waiting for the writer, at most. Several pages of a thousand wide rows fit.
const BUDGET_BYTES: usize = 48 << 20; // 48 MiB
/// A transaction is committed when it holds this much,
const COMMIT_BYTES: usize = 16 << 20; // 16 MiB
/// or this many loads,
const COMMIT_LOADS: usize = 2_000;
/// or when nothing more came for so long.
const LINGER: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce(&Connection) + Send>;

enum Command {
    Load(Box<Load>, OwnedSemaphorePermit),
    Run(Job),
    Flush(oneshot::Sender<Result<Outcome>>),
    Close,
}

/// Handle to the writer's thread. Clones share it; the thread ends by [`Writer::close`], or with the
/// last one.
#[derive(Clone)]
pub struct Writer {
    commands: mpsc::Sender<Command>,
    budget: Arc<Semaphore>,
    /// Taken by the one who waits for its end.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Writer {
    /// Starts the thread on a connection that nothing else uses.
    pub fn start(connection: Connection, settings: Settings, run_id: i64) -> Result<Writer> {
        let (commands, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || Worker::new(connection, settings, run_id).work(&queue))
            .map_err(|e| Error::caused(Kind::Io, "cannot start the writer's thread", e))?;
        Ok(Writer {
            commands,
            budget: Arc::new(Semaphore::new(BUDGET_BYTES)),
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// Hands over a load. Returns when the writer has room for it; [`Writer::flush`] tells when it
    /// is committed and whether that went well.
    pub async fn load(&self, load: Load) -> Result<()> {
        let bytes = load.bytes().clamp(1, BUDGET_BYTES);
        let permit = Arc::clone(&self.budget)
            .acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX))
            .await
            .map_err(|_| gone())?;
        self.commands.send(Command::Load(Box::new(load), permit)).map_err(|_| gone())
    }

    /// Commits what was handed over. Returns what loading did since the last flush.
    ///
    /// # Errors
    /// The first error of a commit since the last flush; its loads are not in the store.
    pub async fn flush(&self) -> Result<Outcome> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Flush(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Runs `write` in a transaction of its own, after all loads sent before it were committed.
    pub async fn run<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            // Nobody waits for the answer when the run was cancelled.
            let _ = reply.send(transaction(conn, || write(conn)));
        });
        self.commands.send(Command::Run(job)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Commits what was handed over and ends the thread; when this returns, its connection is closed.
    /// Only the last connection that closes works DuckDB's log into the file and removes it, so that
    /// one that closes at some time after the process has begun to end leaves the log behind.
    ///
    /// # Errors
    /// As [`Writer::flush`]; `Kind::Internal` when the thread has ended in a panic.
    pub async fn close(&self) -> Result<Outcome> {
        let outcome = self.flush().await;
        // Gone already is closed too.
        let _ = self.commands.send(Command::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            tokio::task::spawn_blocking(move || thread.join().is_ok())
                .await
                .ok()
                .filter(|ended| *ended)
                .ok_or_else(|| Error::new(Kind::Internal, "the writer's thread has panicked"))?;
        }
        outcome
    }
}

fn gone() -> Error {
    Error::new(Kind::Internal, "the writer's thread has ended")
}

fn transaction<T>(conn: &Connection, write: impl FnOnce() -> Result<T>) -> Result<T> {
    conn.execute_batch("BEGIN").map_err(|e| db("cannot begin a transaction", e))?;
    match write() {
        Ok(value) => {
            conn.execute_batch("COMMIT").map_err(|e| db("cannot commit to the store", e))?;
            Ok(value)
        }
        Err(error) => {
            // The first error counts; a failed rollback has nothing to add to it.
            let _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

struct Worker {
    conn: Connection,
    settings: Settings,
    run_id: i64,
    waiting: Vec<(Load, OwnedSemaphorePermit)>,
    bytes: usize,
    since: Option<Instant>,
    done: Outcome,
    failed: Option<Error>,
    last: Timestamp,
}

impl Worker {
    fn new(conn: Connection, settings: Settings, run_id: i64) -> Worker {
        Worker {
            conn,
            settings,
            run_id,
            waiting: Vec::new(),
            bytes: 0,
            since: None,
            done: Outcome::default(),
            failed: None,
            last: Timestamp::MIN,
        }
    }

    fn work(mut self, queue: &mpsc::Receiver<Command>) {
        loop {
            let command = if self.waiting.is_empty() {
                queue.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(LINGER)
            };
            match command {
                Ok(Command::Load(load, permit)) => {
                    self.bytes += load.bytes();
                    self.since.get_or_insert_with(Instant::now);
                    self.waiting.push((*load, permit));
                    let old = self.since.is_some_and(|since| since.elapsed() > 10 * LINGER);
                    if self.bytes >= COMMIT_BYTES || self.waiting.len() >= COMMIT_LOADS || old {
                        self.commit();
                    }
                }
                Ok(Command::Run(job)) => {
                    self.commit();
                    job(&self.conn);
                }
                Ok(Command::Flush(reply)) => {
                    self.commit();
                    let done = std::mem::take(&mut self.done);
                    // Nobody waits for the answer when the run was cancelled.
                    let _ = reply.send(match self.failed.take() {
                        Some(error) => Err(error),
                        None => Ok(done),
                    });
                }
                Err(mpsc::RecvTimeoutError::Timeout) => self.commit(),
                Ok(Command::Close) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.commit();
                    return;
                }
            }
        }
    }

    fn commit(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let (loads, permits): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().unzip();
        self.bytes = 0;
        self.since = None;
        if self.failed.is_some() {
            // What follows a failed commit is not loaded either: its state would be ahead of it.
            return;
        }
        let now = self.now();
        failpoint::reach("before-commit");
        let done = transaction(&self.conn, || {
            let done = load::apply(&self.conn, &self.settings, self.run_id, now, loads)?;
            failpoint::reach("in-commit");
            Ok(done)
        });
        failpoint::reach("after-commit");
        drop(permits);
        match done {
            Ok(outcome) => self.done.add(&outcome),
            Err(error) => self.failed = Some(error),
        }
    }

    /// The time of this commit, later than the last one's whatever the clock does, so that versions
    /// of a row have an order.
    fn now(&mut self) -> Timestamp {
        let step = Duration::from_micros(1);
        let now = Timestamp::now().max(self.last + step);
        self.last = now;
        now
    }
}
