//! One publishing of a store's snapshots at a time: each begins by removing what another one left unfinished. Processes that
//! only read a store (`casemirror export`) may have it open together, so that holding it is not enough.
//!
//! Whose turn it is says a file beside the store that is its owner's alone: a lock can be held by whoever may read what is
//! locked, and readers of the snapshots are to hold up nothing.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::Stop;
use crate::durable;
use crate::error::{Error, Kind, Result};

/// How often it is looked whether it is our turn.
const NAP: Duration = Duration::from_millis(100);

/// It is ours until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Turn {
    /// `None` where nothing can be locked.
    _lock: Option<File>,
}

impl Turn {
    /// Waits until no other process publishes snapshots of `store`, for no longer than `longest`. The file stays.
    ///
    /// # Errors
    /// `Io` where it is another one's for longer; `Cancelled` by `stop`.
    pub(crate) fn wait(store: &Path, longest: Duration, stop: &Stop) -> Result<Turn> {
        let path = durable::with_suffix(store, ".publishing");
        let unlocked = |e: io::Error| {
            tracing::debug!(path = %path.display(), error = %e, "cannot be locked");
            Ok(Turn { _lock: None })
        };
        // Who may only read the store publishes elsewhere, and hinders nobody.
        let file = match File::options().append(true).create(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(e) => return unlocked(e),
        };
        let began = Instant::now();
        let mut is_told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => return Ok(Turn { _lock: Some(file) }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return unlocked(e),
            }
            stop.check()?;
            if began.elapsed() >= longest {
                return Err(Error::new(
                    Kind::Io,
                    format!(
                        "another process publishes snapshots of the store: it has held {} for more than {}",
                        path.display(),
                        humantime::format_duration(longest)
                    ),
                ));
            }
            if !is_told {
                tracing::info!(
                    place = %path.display(),
                    "another process publishes there: this one waits until that has ended"
                );
                is_told = true;
            }
            std::thread::sleep(NAP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_waits_for_its_own_store_alone_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("a"), folder.path().join("b"));
        let stopped = Stop::default();
        stopped.now();
        let long = Duration::from_secs(3600);
        let turn = Turn::wait(&one, long, &stopped).unwrap();
        let _of_other = Turn::wait(&other, long, &stopped).unwrap();
        let held = Turn::wait(&one, long, &stopped).unwrap_err();
        assert_eq!(held.kind(), Kind::Cancelled);
        let held = Turn::wait(&one, Duration::ZERO, &Stop::default()).unwrap_err();
        assert_eq!(held.kind(), Kind::Io);
        assert!(held.to_string().contains("a.publishing"), "{held}");
        let mode = std::fs::metadata(folder.path().join("a.publishing")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "who reads may not hold it");
        drop(turn);
        Turn::wait(&one, Duration::ZERO, &Stop::default()).unwrap();
    }
}
