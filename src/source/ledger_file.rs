//! The feed's ledger as a file that all stores of one API user on this machine share
//! (docs/architecture.md, "The throttle ledger").
//!
//! A line per start and end of a call. Whoever adds one holds the file's lock, has read what others
//! added, and lets go when its line is on the disk. A line that was cut off by a crash is the start of
//! a call that was never sent, or an end that the next reader gives again.
//!
//! It stays one file, whoever's it is and whatever its mode: others may be allowed to write it and nothing beside
//! it. It is made shorter where it is: see [`LedgerFile::begin_at`].

mod lines;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use url::Url;

use super::boot::BootTime;
use super::feed_calls::{Caller, Change, FeedCall, LedgerStore};
use super::process;
use crate::durable;
use crate::error::{self, Error, Kind, Result};
use crate::scope::FeedName;
use crate::text::hex;
use lines::{Line, as_changes, lines_of, start_of, text, text_of};

/// A file of this size is made shorter if that halves it.
const LARGE: u64 = 256 << 10; // 256 KiB
/// Calls that stay in the file at least, though they count no more: the next store that is opened takes
/// them over. And two windows full of them.
const KEPT: usize = 500;

/// The file that is taken where `feed.ledger` names none: in the user's state folder, named by whose calls
/// they are.
///
/// # Errors
/// `Config` where the system names no such folder.
pub(super) fn usual_place(base_url: &Url, client_id: &str) -> Result<PathBuf> {
    let state = state_folder(|variable| std::env::var_os(variable)).ok_or_else(|| {
            Error::new(
                Kind::Config,
                "there is no folder for the feed's ledger, HOME is not set: set feed.ledger to a file that \
                 every casemirror of this API user on this machine can write",
            )
        })?;
    Ok(state.join("casemirror").join(format!("{}.feed-calls", api_user(base_url, client_id))))
}

/// The folder for the user's state. What systemd gives a service alone (`STATE_DIRECTORY`) comes last: commands that the
/// same user types do not have it, and share the ledger.
fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    named("XDG_STATE_HOME")
        .or_else(|| Some(named("HOME")?.join(".local/state")))
        .or_else(|| named("STATE_DIRECTORY"))
}

/// A name for whose calls they are, which tells nobody who that is.
pub(crate) fn api_user(base_url: &Url, client_id: &str) -> String {
    hex(&Sha256::digest(format!("{base_url}\0{client_id}"))[..12])
}

/// The ledger in a file.
pub(super) struct LedgerFile {
    path: PathBuf,
    /// As many calls as fill a window, for what cannot be read any more.
    limit: u32,
    /// Whether it was told that the file cannot be made shorter.
    has_told: AtomicBool,
}

impl LedgerFile {
    /// The ledger at `path`, which is made where there is none.
    ///
    /// # Errors
    /// `Io` where it cannot be made or written.
    pub(super) fn at(path: &Path, limit: u32) -> Result<LedgerFile> {
        if let Some(folder) = path.parent() {
            durable::make_private_folder(folder)
                .map_err(|e| cannot("make the folder of", path, e))?;
        }
        Ok(LedgerFile { path: path.to_owned(), limit, has_told: AtomicBool::new(false) })
    }

    /// The open file, locked until it is dropped.
    fn locked(&self) -> Result<File> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&self.path)
                .map_err(|e| cannot("open", &self.path, e))?;
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|e| cannot("lock", &self.path, e.into()))?;
            let failed = |e| cannot("look at", &self.path, e);
            let ours = file.metadata().map_err(failed)?;
            match fs::metadata(&self.path) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(file);
                }
                // Somebody has removed it, or put another one in its place.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(failed(e)),
            }
        }
    }

    /// What the file says.
    ///
    /// # Errors
    /// `Config` where it is another file than a ledger, `Io`.
    fn read(&self, file: &mut File) -> Result<Content> {
        let failed = |e| cannot("read", &self.path, e);
        let bytes = bytes_of(file).map_err(failed)?;
        let (changes, whole, is_cut_off) = lines_of(&bytes);
        refuse_another_file(&self.path, &changes, is_cut_off)?;
        let Some(changes) = changes.into_iter().collect::<Option<Vec<Change>>>() else {
            return Ok(Content::Damaged(bytes));
        };
        if !is_cut_off {
            return Ok(Content::Damaged(bytes));
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        let mut calls = Vec::new();
        changes.iter().for_each(|change| change.apply(&mut calls));
        Ok(Content::Calls(calls))
    }

    /// A ledger that cannot be read whole is kept aside, and the feed is held for a whole window: as if all
    /// of its calls had been made just now, by nobody. Where nothing can be kept beside it, it stays in the file.
    fn set_aside(&self, file: &mut File, bytes: &[u8]) -> Result<()> {
        let kept = self.keep(bytes);
        let place = match &kept {
            Ok(aside) => format!("kept as {}", aside.display()),
            Err(error) => format!("still in the file: {}", error.chain()),
        };
        tracing::warn!(
            ledger = %self.path.display(),
            what_it_was = place,
            "the feed's ledger cannot be read: the feed is held for a whole window"
        );
        // So that what comes is a line of its own.
        let is_within_line = bytes.last().is_some_and(|last| *last != b'\n');
        if is_within_line {
            self.append(file, b"\n")?;
        }
        let from = bytes.len() + usize::from(is_within_line);
        let calls: Vec<FeedCall> = nobodys(self.limit).collect();
        self.begin_at(file, from, &calls)?;
        if kept.is_ok() {
            self.shorten(file, from, &text(&as_changes(&calls))?)?;
        }
        Ok(())
    }

    /// Writes what the ledger was beside it, under a name that no file has yet.
    fn keep(&self, bytes: &[u8]) -> Result<PathBuf> {
        let names = (1..).map(|number| match number {
            1 => ".unreadable".to_owned(),
            number => format!(".unreadable-{number}"),
        });
        for name in names {
            let aside = durable::with_suffix(&self.path, &name);
            let failed = |e| cannot("set aside", &aside, e);
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&aside) {
                Ok(mut file) => {
                    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
                    return Ok(aside);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(e)),
            }
        }
        unreachable!("numbers do not end")
    }

    fn append(&self, file: &mut File, lines: &[u8]) -> Result<()> {
        file.seek(SeekFrom::End(0))
            .and_then(|_| file.write_all(lines))
            .and_then(|()| file.sync_data())
            .map_err(|e| cannot("write", &self.path, e))
    }

    /// Makes the file shorter where most of it counts no more.
    fn compact(&self, file: &mut File, calls: &[FeedCall]) -> Result<()> {
        let least = KEPT.max(2 * usize::try_from(self.limit).unwrap_or(usize::MAX / 2));
        if file.metadata().is_ok_and(|found| found.len() < LARGE) || calls.len() < 2 * least {
            return Ok(());
        }
        let (older, newest) = calls.split_at(calls.len() - least);
        let open: Vec<FeedCall> = older.iter().filter(|call| call.end.is_none()).cloned().collect();
        let bytes = bytes_of(file).map_err(|e| cannot("read", &self.path, e))?;
        let Some(from) = newest.first().and_then(|call| start_of(&bytes, call.id)) else {
            return Ok(());
        };
        let kept: Vec<FeedCall> = open.iter().chain(newest).cloned().collect();
        let kept = text(&as_changes(&kept))?;
        if kept.len() > from {
            return Ok(()); // There is room for it some calls later.
        }
        self.begin_at(file, from, &open)?;
        self.shorten(file, from, &kept)
    }

    /// Lets nothing of the file count but the calls `open` and what begins at byte `from`, by one more line. What is
    /// before that is free to be written over: whoever reads the file after a crash in the middle of that finds
    /// this line behind it.
    fn begin_at(&self, file: &mut File, from: usize, open: &[FeedCall]) -> Result<()> {
        let open = as_changes(open).iter().map(Line::of).collect();
        let line = Line::Anew { from: u64::try_from(from).unwrap_or(u64::MAX), open };
        self.append(file, text_of(&line)?.as_bytes())
    }

    /// Puts `text`, which says the same as the file, at its beginning, where nothing counts before byte `from`, and
    /// cuts off the rest. Leaves it as it is where there is no room.
    fn shorten(&self, file: &File, from: usize, text: &str) -> Result<()> {
        if text.len() > from {
            return Ok(());
        }
        let failed = |e| cannot("shorten", &self.path, e);
        file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync_data()).map_err(failed)?;
        file.set_len(text.len() as u64).and_then(|()| file.sync_all()).map_err(failed)
    }
}

impl LedgerStore for LedgerFile {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        let (mut file, mut calls) = loop {
            let mut file = self.locked()?;
            match self.read(&mut file)? {
                Content::Calls(calls) => break (file, calls),
                Content::Damaged(bytes) => self.set_aside(&mut file, &bytes)?,
            }
        };
        let changes = step(&calls);
        if changes.is_empty() {
            return Ok(());
        }
        self.append(&mut file, text(&changes)?.as_bytes())?;
        changes.iter().for_each(|change| change.apply(&mut calls));
        // What was found is kept already.
        if let Err(error) = self.compact(&mut file, &calls)
            && !self.has_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                error = error.chain(),
                "the feed's ledger grows: it cannot be shortened"
            );
        }
        Ok(())
    }

    fn is_gone(&self, call: &FeedCall) -> Option<bool> {
        process::has_ended(&call.by.process)
    }
}

/// Refuses what could not be the ledger: a file of something else, one that cannot be written, a place where none can
/// be made. Takes no lock, and changes nothing.
///
/// # Errors
/// `Config`, `Io`.
pub(super) fn look(path: &Path) -> Result<()> {
    let bytes = match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let what = format!("{} is no file", path.display());
            return Err(Error::new(Kind::Config, what).within(RULE));
        }
        Ok(_) => {
            let failed = |e| cannot("open", path, e);
            let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(failed)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(|e| cannot("read", path, e))?;
            bytes
        }
        Err(_) => {
            let why = path.parent().and_then(durable::unwritable);
            return why.map_or(Ok(()), |why| Err(Error::new(Kind::Config, why).within(RULE)));
        }
    };
    let (changes, _, is_cut_off) = lines_of(&bytes);
    refuse_another_file(path, &changes, is_cut_off)
}

fn refuse_another_file(path: &Path, changes: &[Option<Change>], is_cut_off: bool) -> Result<()> {
    if changes.iter().all(Option::is_none) && !(changes.is_empty() && is_cut_off) {
        return Err(Error::new(
            Kind::Config,
            format!(
                "{} is no ledger of feed calls, and it stays as it is: feed.ledger must name a file \
                 of its own, which casemirror makes where there is none",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// All that the file at `path` holds, while nobody writes it.
pub(super) fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    flock(&file, FlockOperation::LockShared)?;
    bytes_of(&mut file)
}

fn bytes_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The calls that a ledger tells of; with `limit` calls of nobody where not all of it can be read.
pub(super) fn calls_in(ledger: &[u8], limit: u32) -> Vec<FeedCall> {
    let (changes, _, is_cut_off) = lines_of(ledger);
    let is_whole = changes.iter().all(Option::is_some) && is_cut_off;
    let mut calls = Vec::new();
    changes.iter().flatten().for_each(|change| change.apply(&mut calls));
    if !is_whole {
        calls.extend(nobodys(limit));
    }
    calls
}

/// So many calls that nobody has made, sent just now by the clock of no boot: whoever reads them lets them end
/// now.
fn nobodys(count: u32) -> impl Iterator<Item = FeedCall> {
    (1..=i64::from(count)).map(|id| FeedCall {
        id,
        feed: FeedName::Cases,
        by: Caller::default(),
        boot_id: String::new(),
        sent_at: Timestamp::now(),
        sent: BootTime::from_nanos(0),
        patience: Duration::ZERO,
        end: None,
    })
}

fn cannot(what: &str, path: &Path, source: io::Error) -> Error {
    let own = error::io(what, path, source);
    own.within(RULE)
}

/// What is told where that is not so.
const RULE: &str = "the feed's ledger (feed.ledger) has to be a file that every casemirror of this API user on this \
                    machine can write";

/// What a ledger's file says.
enum Content {
    Calls(Vec<FeedCall>),
    /// All that it holds: lines of a ledger, and others.
    Damaged(Vec<u8>),
}

#[cfg(test)]
mod tests;
