//! What webhooks told and the store does not have yet: a small file of its own beside the store, so that an
//! answer waits for one synced write and never for the writer of the store.
//!
//! A line is JSON: its number, when it came, and what was told. Numbers count up over restarts; the store keeps
//! up to which one it has taken them. What waits is in memory, too, and each thing once: whoever says it again
//! before it is taken has said nothing new.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use crate::durable;
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::scope::Told;

/// Things that wait at most; whoever brings more is told to come again, but for one whom nobody came before.
const MOST_WAITING: usize = 100_000;

/// Where what webhooks told waits for the store.
pub(crate) fn path_of(store: &Path) -> PathBuf {
    durable::with_suffix(store, ".hints")
}

#[derive(Serialize, Deserialize)]
struct Line {
    n: i64,
    at: Timestamp,
    told: Told,
}

/// What is taken into the store next.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) told: Vec<(Timestamp, Told)>,
    /// The number of the last of them.
    pub(crate) up_to: i64,
}

/// Handle to the queue. Clones share it.
#[derive(Clone)]
pub(crate) struct HintQueue {
    requests: mpsc::Sender<Request>,
    waiting: Arc<Mutex<Waiting>>,
    arrived: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Waiting {
    told: Vec<(Timestamp, Told)>,
    known: HashSet<Told>,
    /// The number of the last line.
    last: i64,
}

enum Request {
    Keep(Vec<Told>, oneshot::Sender<Result<()>>),
    /// The store has all lines up to this one.
    Taken(i64),
}

impl HintQueue {
    /// Opens the queue beside a store that has taken all lines up to `taken`; what it has not waits.
    ///
    /// # Errors
    /// `Io` where the file cannot be read or made.
    pub(crate) fn open(store: &Path, taken: i64) -> Result<HintQueue> {
        let path = path_of(store);
        let failed = |e| error::io("open", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        let (told, last) = read(&file, &path, taken)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        // A line that was cut off was never answered for; the next one must not continue it.
        let mut writer = FileWriter { file, path, ends_mid_line: true, last };
        let known = told.iter().map(|(_, told)| told.clone()).collect();
        let waiting = Arc::new(Mutex::new(Waiting { told, known, last }));
        let arrived = Arc::new(Notify::new());
        if lock(&waiting).told.is_empty() {
            writer.empty()?;
        } else {
            arrived.notify_one();
        }
        let (requests, inbox) = mpsc::channel();
        let (shared, told) = (Arc::clone(&waiting), Arc::clone(&arrived));
        std::thread::Builder::new()
            .name("hints".to_owned())
            .spawn(move || writer.work(&inbox, &shared, &told))
            .map_err(|e| Error::caused(Kind::Io, "cannot start the thread of the webhooks", e))?;
        Ok(HintQueue { requests, waiting, arrived })
    }

    /// Keeps what a webhook told: it outlives a crash when this returns.
    ///
    /// # Errors
    /// `Io`, `DiskFull`; `Throttled` where too much waits already.
    pub(crate) async fn keep(&self, told: Vec<Told>) -> Result<()> {
        let (reply, kept) = oneshot::channel();
        let gone = || Error::new(Kind::Dead, "the thread that keeps what webhooks tell has ended");
        self.requests.send(Request::Keep(told, reply)).map_err(|_| gone())?;
        kept.await.map_err(|_| gone())?
    }

    /// Waits until something waits.
    pub(crate) async fn arrives(&self) {
        if lock(&self.waiting).told.is_empty() {
            self.arrived.notified().await;
        }
    }

    /// What waits; it waits no more. Nothing: `None`.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut waiting = lock(&self.waiting);
        let told = std::mem::take(&mut waiting.told);
        waiting.known.clear();
        (!told.is_empty()).then_some(Batch { told, up_to: waiting.last })
    }

    /// What could not be taken into the store waits again, before what came since.
    pub(crate) fn give_back(&self, batch: Batch) {
        let mut waiting = lock(&self.waiting);
        waiting.known.extend(batch.told.iter().map(|(_, told)| told.clone()));
        let came = std::mem::replace(&mut waiting.told, batch.told);
        waiting.told.extend(came);
        self.arrived.notify_one();
    }

    /// The store has all lines up to this one.
    pub(crate) fn taken(&self, up_to: i64) {
        // Without its thread the file stays as it is: the store knows what it has.
        let _ = self.requests.send(Request::Taken(up_to));
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // What is in it is whole whatever ended a thread that held it.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lines of a file behind `taken`, each thing once, and the last number. A line that is none is passed
/// over: nobody was told that it was kept.
fn read(file: &File, path: &Path, taken: i64) -> Result<(Vec<(Timestamp, Told)>, i64)> {
    let (mut told, mut known, mut last) = (Vec::new(), HashSet::new(), taken);
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.read_until(b'\n', &mut bytes).map_err(|e| error::io("read", path, e))?;
        if read == 0 {
            return Ok((told, last));
        }
        let Ok(line) = serde_json::from_slice::<Line>(&bytes) else {
            if bytes.iter().any(|byte| !byte.is_ascii_whitespace()) {
                tracing::warn!(path = %path.display(), "a line that was cut off is passed over");
            }
            continue;
        };
        if line.n > taken && known.insert(line.told.clone()) {
            told.push((line.at, line.told));
        }
        last = last.max(line.n);
    }
}

struct FileWriter {
    file: File,
    path: PathBuf,
    /// The file may not end with a line's end.
    ends_mid_line: bool,
    last: i64,
}

impl FileWriter {
    /// Writes until every handle is gone.
    fn work(mut self, inbox: &mpsc::Receiver<Request>, waiting: &Mutex<Waiting>, arrived: &Notify) {
        while let Ok(first) = inbox.recv() {
            let (mut kept, mut taken) = (Vec::new(), None);
            // Whoever came in the meantime shares the sync.
            for request in std::iter::once(first).chain(inbox.try_iter()) {
                match request {
                    Request::Keep(told, reply) => kept.push((told, reply)),
                    Request::Taken(up_to) => taken = Some(up_to),
                }
            }
            // Before anything new is written: then all that the file has may be what the store has.
            if taken == Some(self.last)
                && let Err(error) = self.empty()
            {
                tracing::warn!(
                    reason = error.chain(),
                    "what webhooks told is kept longer than needed"
                );
            }
            if !kept.is_empty() {
                self.keep(kept, waiting, arrived);
            }
        }
    }

    fn keep(
        &mut self,
        kept: Vec<(Vec<Told>, oneshot::Sender<Result<()>>)>,
        waiting: &Mutex<Waiting>,
        arrived: &Notify,
    ) {
        let at = Timestamp::now();
        let (mut new, mut replies) = (Vec::new(), Vec::new());
        {
            let known = lock(waiting);
            let mut met = HashSet::new();
            for (told, reply) in kept {
                let before = known.known.len() + met.len();
                if before > 0 && before + told.len() > MOST_WAITING {
                    let why =
                        format!("{MOST_WAITING} things that webhooks told wait for the store");
                    let _ = reply.send(Err(Error::new(Kind::Throttled, why)));
                    continue;
                }
                for told in told {
                    if !known.known.contains(&told) && met.insert(told.clone()) {
                        new.push(told);
                    }
                }
                replies.push(reply);
            }
        }
        let written = self.append(&new, at);
        match &written {
            Ok(()) if !new.is_empty() => {
                let mut waiting = lock(waiting);
                waiting.known.extend(new.iter().cloned());
                waiting.told.extend(new.into_iter().map(|told| (at, told)));
                waiting.last = self.last;
                arrived.notify_one();
            }
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(reason = error.chain(), "what a webhook told could not be kept")
            }
        }
        for reply in replies {
            // Who asked may have gone.
            let _ = reply.send(match &written {
                Ok(()) => Ok(()),
                Err(error) => Err(Error::new(error.kind(), error.chain())),
            });
        }
    }

    /// Appends lines and syncs them.
    fn append(&mut self, told: &[Told], at: Timestamp) -> Result<()> {
        if told.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        if self.ends_mid_line {
            text.push(b'\n');
        }
        let mut n = self.last;
        for told in told {
            n += 1;
            serde_json::to_writer(&mut text, &Line { n, at, told: told.clone() }).map_err(|e| {
                Error::caused(Kind::Internal, "cannot write what a webhook told", e)
            })?;
            text.push(b'\n');
        }
        self.ends_mid_line = true;
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        written.map_err(|e| error::io("write", &self.path, e))?;
        failpoint::hit("hint-kept");
        self.ends_mid_line = false;
        self.last = n;
        Ok(())
    }

    /// The store has everything.
    fn empty(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.sync_data());
        emptied.map_err(|e| error::io("empty", &self.path, e))?;
        self.ends_mid_line = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::{CasePart, Hint};

    fn case(id: i64) -> Told {
        Told::Hint(Hint::Case { id, part: CasePart::Row })
    }

    fn told(batch: Option<Batch>) -> Vec<Told> {
        batch.map_or_else(Vec::new, |b| b.told.into_iter().map(|(_, told)| told).collect())
    }

    #[tokio::test]
    async fn what_was_kept_is_there_after_a_restart_until_the_store_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let queue = HintQueue::open(&store, 0).unwrap();
        queue.keep(vec![case(1), case(2)]).await.unwrap();
        queue.keep(vec![case(3)]).await.unwrap();
        drop(queue);
        // Killed before the second was taken into the store.
        let queue = HintQueue::open(&store, 1).unwrap();
        queue.arrives().await;
        let batch = queue.take().unwrap();
        assert_eq!((batch.up_to, told(Some(batch))), (3, vec![case(2), case(3)]));
        assert!(queue.take().is_none());
        // Numbers are not given twice.
        queue.keep(vec![case(4)]).await.unwrap();
        assert_eq!(queue.take().unwrap().up_to, 4);
        drop(queue);
        assert!(HintQueue::open(&store, 4).unwrap().take().is_none());
    }

    #[tokio::test]
    async fn what_is_said_again_before_it_is_taken_is_nothing_new() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let queue = HintQueue::open(&store, 0).unwrap();
        for _ in 0..100 {
            queue.keep(vec![case(1), case(1)]).await.unwrap();
        }
        let text = std::fs::read_to_string(path_of(&store)).unwrap();
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 1);
        let batch = queue.take().unwrap();
        assert_eq!(batch.told.len(), 1);
        // It may be being taken now, too early for what is said from here on.
        queue.keep(vec![case(1)]).await.unwrap();
        queue.give_back(batch);
        queue.keep(vec![case(2)]).await.unwrap();
        assert_eq!(told(queue.take()), [case(1), case(1), case(2)]);
    }

    #[tokio::test]
    async fn the_file_is_emptied_when_the_store_has_everything() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let queue = HintQueue::open(&store, 0).unwrap();
        queue.keep(vec![case(1)]).await.unwrap();
        let first = queue.take().unwrap();
        queue.keep(vec![case(2)]).await.unwrap();
        queue.taken(first.up_to);
        // Requests are done in their order.
        queue.keep(vec![case(3)]).await.unwrap();
        let lines = || std::fs::read_to_string(path_of(&store)).unwrap().lines().count();
        assert!(lines() >= 3);
        queue.taken(queue.take().unwrap().up_to);
        queue.keep(vec![case(4)]).await.unwrap();
        assert_eq!(lines(), 1);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(path_of(&store)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_line_that_was_cut_off_costs_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let queue = HintQueue::open(&store, 0).unwrap();
        queue.keep(vec![case(1), case(2)]).await.unwrap();
        drop(queue);
        let path = path_of(&store);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let queue = HintQueue::open(&store, 0).unwrap();
        queue.keep(vec![case(3)]).await.unwrap();
        drop(queue);
        let queue = HintQueue::open(&store, 0).unwrap();
        assert_eq!(told(queue.take()), [case(1), case(3)]);
    }
}
