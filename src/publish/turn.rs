//! One publishing at a time into a place: each begins by removing what another one left unfinished there. Processes that
//! only read a store (`casemirror export`) may have it open together, so that holding it is not enough.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::Stop;
use crate::error::{self, Result};

/// How often it is looked whether it is our turn.
const NAP: Duration = Duration::from_millis(100);

/// The place is ours until this is dropped, or the process ends.
#[derive(Debug)]
pub(super) struct Turn {
    /// `None` where the file system knows no locks.
    _lock: Option<File>,
}

impl Turn {
    /// Waits until no other publishing writes below `folder`.
    ///
    /// # Errors
    /// `Io` where there is no such folder; `Cancelled` by `stop`.
    pub(super) fn wait(folder: &Path, stop: &Stop) -> Result<Turn> {
        let file = File::open(folder).map_err(|e| error::io("open", folder, e))?;
        Turn::lock(file, folder, stop)
    }

    /// Waits until no other publishing holds `file`, which is made and stays: other stores in its folder need not
    /// wait.
    ///
    /// # Errors
    /// `Io`; `Cancelled` by `stop`.
    pub(super) fn wait_by_file(file: &Path, stop: &Stop) -> Result<Turn> {
        let opened = File::options().append(true).create(true).mode(0o600).open(file);
        Turn::lock(opened.map_err(|e| error::io("open", file, e))?, file, stop)
    }

    fn lock(file: File, place: &Path, stop: &Stop) -> Result<Turn> {
        let mut is_told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => return Ok(Turn { _lock: Some(file) }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => {
                    tracing::debug!(place = %place.display(), error = %e, "cannot be locked");
                    return Ok(Turn { _lock: None });
                }
            }
            stop.check()?;
            if !is_told {
                tracing::info!(
                    place = %place.display(),
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
    use super::*;

    #[test]
    fn one_waits_for_its_own_place_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("a.publishing"), folder.path().join("b.publishing"));
        // Who has to wait is told to stop.
        let stop = Stop::default();
        stop.now();
        let turn = Turn::wait_by_file(&one, &stop).unwrap();
        let _of_other = Turn::wait_by_file(&other, &stop).unwrap();
        let _of_folder = Turn::wait(folder.path(), &stop).unwrap();
        for held in [Turn::wait_by_file(&one, &stop), Turn::wait(folder.path(), &stop)] {
            assert_eq!(held.unwrap_err().kind(), crate::error::Kind::Cancelled);
        }
        drop(turn);
        Turn::wait_by_file(&one, &stop).unwrap();
    }
}
