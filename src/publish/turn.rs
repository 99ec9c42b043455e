//! One publishing at a time into a place: each begins by removing what another one left unfinished there. Processes that
//! only read a store (`casemirror export`) may have it open together, so that holding it is not enough.

use std::fs::File;
use std::io::{self, ErrorKind};
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
        let mut is_told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => return Ok(Turn { _lock: Some(file) }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => {
                    tracing::debug!(folder = %folder.display(), error = %e, "cannot be locked");
                    return Ok(Turn { _lock: None });
                }
            }
            stop.check()?;
            if !is_told {
                tracing::info!(
                    folder = %folder.display(),
                    "another process publishes there: this one waits until that has ended"
                );
                is_told = true;
            }
            std::thread::sleep(NAP);
        }
    }
}
