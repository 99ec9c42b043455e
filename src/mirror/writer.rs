//! Writes rows and log, on one thread at a time.
//!
//! Loads come through a channel bounded in bytes; many are committed in one transaction, and their
//! share of the budget is given back when they are. Other writes ([`Writer::run`]) are transactions
//! of their own, in order with the loads sent before them.
//!
//! Runs that go on at the same time write in *loaders*: each has its own settings, its own outcome and
//! its own errors, so that what fails in one run does not stop the others.

mod worker;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use duckdb::Connection;
use jiff::Timestamp;
use tokio::sync::{Semaphore, oneshot};

use super::load::{Outcome, Settings};
use super::transactions::Transactions;
use super::{Store, Threads, freshness};
use worker::{Command, Job, LoaderId, Worker, commit_time};

use crate::decode::Load;
use crate::error::{Error, Kind, Result};

/// Decoded rows waiting for the writer, at most. Several pages of a thousand wide rows fit.
const BUDGET_BYTES: usize = 32 << 20; // 32 MiB

/// Handle to the writer's thread. Clones share it; the thread ends by [`Writer::close`], or with the
/// last handle and [`Loader`].
#[derive(Clone)]
pub struct Writer {
    commands: mpsc::Sender<Command>,
    budget: Arc<Semaphore>,
    next_lane: Arc<AtomicU64>,
    /// Taken by the one who waits for its end.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
    threads: Arc<Threads>,
    transactions: Transactions,
}

impl Writer {
    /// Starts the thread on a connection of its own.
    ///
    /// # Errors
    /// `Io` when there can be no further thread or the store's file is gone, those of [`Store::connection`].
    pub fn start(store: &Store) -> Result<Writer> {
        let (connection, threads) = (store.connection()?, store.threads());
        let privacy = store.privacy().clone();
        // The clock may have been set back since an earlier process wrote.
        let last = freshness::newest_version(&connection, Timestamp::now())?;
        let of_worker = Arc::clone(threads);
        let transactions = Transactions::of(store)?;
        let of_thread = transactions.clone();
        let (commands, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || Worker::new(connection, privacy, of_worker, last, of_thread).work(queue))
            .map_err(|e| Error::caused(Kind::Io, "cannot start the writer's thread", e))?;
        Ok(Writer {
            commands,
            budget: Arc::new(Semaphore::new(BUDGET_BYTES)),
            next_lane: Arc::default(),
            thread: Arc::new(Mutex::new(Some(thread))),
            threads: Arc::clone(threads),
            transactions,
        })
    }

    /// What the store's last transaction failed with; `None` where it was committed.
    pub(crate) fn fault(&self) -> Option<String> {
        self.transactions.fault()
    }

    /// Opens the loader of a run.
    ///
    /// # Errors
    /// `Internal` when the thread has ended.
    pub fn loader(&self, settings: Settings, run_id: i64) -> Result<Loader> {
        let id = self.next_lane.fetch_add(1, Ordering::Relaxed);
        self.commands.send(Command::Open(id, Box::new(settings), run_id)).map_err(|_| gone())?;
        Ok(Loader { open: Arc::new(OpenLoader { writer: self.clone(), id }) })
    }

    /// Runs `write` in a transaction of its own, after all loads sent before it were committed.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let transactions = self.transactions.clone();
        self.between_commits(move |conn| transactions.write(conn, write)).await
    }

    /// As [`Writer::run`], with all threads.
    pub(crate) async fn run_large<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (threads, transactions) = (Arc::clone(&self.threads), self.transactions.clone());
        self.between_commits(move |conn| {
            let _all = threads.all(conn)?;
            transactions.write(conn, write)
        })
        .await
    }

    /// Runs `act` between two commits: after all loads sent before it, outside of a transaction, while
    /// no rows are committed.
    pub(crate) async fn between_commits<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.job(|conn, _| act(conn)).await
    }

    /// As [`Writer::run`]; `write` is told when this is: later than all commits before it, and before all that follow,
    /// whatever the clock does.
    pub(crate) async fn run_dated<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection, Timestamp) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let transactions = self.transactions.clone();
        self.job(move |conn, last| {
            let now = commit_time(last);
            transactions.write(conn, |conn| write(conn, now))
        })
        .await
    }

    async fn job<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, &mut Timestamp) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let transactions = self.transactions.clone();
        let job: Job = Box::new(move |conn, last| {
            let done = transactions.in_place(conn).and_then(|()| act(conn, last));
            // Nobody waits for the answer when the run was cancelled.
            let _ = reply.send(done);
        });
        self.commands.send(Command::Run(job)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Commits what was handed over and ends the thread; when this returns, its connection is closed.
    /// Only the last connection that closes works DuckDB's log into the file and removes it, so that
    /// one that closes at some time after the process has begun to end leaves the log behind.
    ///
    /// # Errors
    /// `Internal` when the thread has ended in a panic.
    pub(crate) async fn close(&self) -> Result<()> {
        // Gone already is closed too.
        let _ = self.commands.send(Command::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            tokio::task::spawn_blocking(move || thread.join().is_ok())
                .await
                .ok()
                .filter(|ended| *ended)
                .ok_or_else(|| Error::new(Kind::Dead, "the writer's thread has panicked"))?;
        }
        Ok(())
    }
}

/// What one run writes. Clones share it; it is closed with the last one, and what was handed over is
/// committed then.
#[derive(Clone)]
pub struct Loader {
    open: Arc<OpenLoader>,
}

struct OpenLoader {
    writer: Writer,
    id: LoaderId,
}

impl Drop for OpenLoader {
    fn drop(&mut self) {
        // Without the thread there is nothing to close.
        let _ = self.writer.commands.send(Command::Close(self.id));
    }
}

impl Loader {
    /// The thread behind it, for writes that belong to no run.
    pub(crate) fn writer(&self) -> &Writer {
        &self.open.writer
    }

    /// Hands over a load. Returns when the writer has room for it; [`Loader::flush`] tells when it
    /// is committed and whether that went well.
    pub(crate) async fn load(&self, load: Load) -> Result<()> {
        let bytes = load.bytes().clamp(1, BUDGET_BYTES);
        let writer = self.writer();
        let permit = Arc::clone(&writer.budget)
            .acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX))
            .await
            .map_err(|_| gone())?;
        let command = Command::Load(self.open.id, Box::new(load), permit);
        writer.commands.send(command).map_err(|_| gone())
    }

    /// Commits what was handed over. Returns what loading did since the last flush.
    ///
    /// # Errors
    /// The first error of a commit since the last flush; its loads are not in the store.
    pub(crate) async fn flush(&self) -> Result<Outcome> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Flush(self.open.id, reply);
        self.writer().commands.send(command).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// As [`Writer::run`].
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer().run(write).await
    }
}

fn gone() -> Error {
    Error::new(Kind::Dead, "the writer's thread has ended")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::catalog::Catalog;
    use crate::config::Config;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let config = Config::for_demo(url, "id", "secret".to_owned().into(), folder.path());
        let store = Store::open(&config, &Catalog::load(None).unwrap()).unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn what_is_dated_follows_what_was_written_whatever_the_clock_says() {
        let (_folder, store) = store();
        let ahead = Timestamp::now() + Duration::from_secs(3600);
        let set = format!("UPDATE sync.freshness SET last_change = {}", crate::sql::instant(ahead));
        store.connection().unwrap().execute_batch(&set).unwrap();
        let writer = Writer::start(&store).unwrap();
        let dated = async || writer.run_dated(|_, now| Ok(now)).await.unwrap();
        let first = dated().await;
        assert!(first > ahead && dated().await > first);
    }

    #[tokio::test]
    async fn a_writer_that_idles_has_given_back_the_thread_that_wrote_and_goes_on_with_another() {
        /// Tells when its thread ends.
        struct Ends(std::cell::OnceCell<mpsc::Sender<()>>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.take().unwrap().send(()).unwrap();
            }
        }
        thread_local! {
            static ENDS: Ends = const { Ends(std::cell::OnceCell::new()) };
        }
        let (_folder, store) = store();
        let writer = Writer::start(&store).unwrap();
        for _ in 0..2 {
            let (ends, ended) = mpsc::channel();
            let first = writer.run(move |_| Ok(ENDS.with(|all| all.0.set(ends).is_ok())));
            assert!(first.await.unwrap());
            // As soon as nothing came for a while. The time is how long a failing test waits.
            let waited = move || ended.recv_timeout(Duration::from_secs(60));
            tokio::task::spawn_blocking(waited).await.unwrap().unwrap();
        }
        writer.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_took_the_place_of_the_store_keeps_its_log() {
        for is_replaced in [false, true] {
            let (folder, store) = store();
            let writer = Writer::start(&store).unwrap();
            let write = async |key: &'static str| {
                writer.run(move |conn| super::super::schema::set_meta(conn, key, "x")).await
            };
            write("before").await.unwrap();
            let (path, log) = (store.path().to_owned(), folder.path().join("log"));
            std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
            // That of whoever works on the file that is there now.
            let its_log = crate::durable::with_suffix(&path, ".wal");
            std::fs::rename(&its_log, &log).unwrap();
            std::fs::write(&its_log, "another's").unwrap();
            if is_replaced {
                std::fs::write(&path, "another").unwrap();
            }
            let refused = write("after").await.unwrap_err();
            assert_eq!(refused.kind(), Kind::StoreGone, "{}", refused.chain());
            assert!(writer.fault().is_some());
            let works = writer.between_commits(|conn| {
                conn.execute_batch("CHECKPOINT").map_err(|e| crate::sql::db("x", e))
            });
            assert_eq!(works.await.unwrap_err().kind(), Kind::StoreGone);
            writer.close().await.unwrap();
            store.work_in_log();
            drop((writer, store));
            assert_eq!(std::fs::read(&its_log).unwrap(), b"another's");
        }
    }

    #[tokio::test]
    async fn the_store_is_said_to_fail_until_something_is_committed() {
        let (_folder, store) = store();
        let writer = Writer::start(&store).unwrap();
        let fails = async |kind| {
            let failed = writer.run(move |_| Err::<(), _>(Error::new(kind, "no room"))).await;
            assert_eq!(failed.unwrap_err().kind(), kind);
        };
        fails(Kind::Usage).await;
        assert_eq!(writer.fault(), None);
        fails(Kind::DiskFull).await;
        fails(Kind::Usage).await;
        assert_eq!(writer.fault().as_deref(), Some("no room"));
        writer.run(|_| Ok(())).await.unwrap();
        assert_eq!(writer.fault(), None);
    }
}
