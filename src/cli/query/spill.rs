//! Where a query keeps what does not fit into memory: a folder that nobody else reads, gone with the process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::error::{self, Result};

const PREFIX: &str = "casemirror-query-";

/// Removed when dropped; the system's lock on it tells others that it is in use.
pub(super) struct Spill {
    folder: TempDir,
    _lock: Option<File>,
}

impl Spill {
    /// Makes one in the system's temporary folder, and removes those that killed queries have left.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn new() -> Result<Spill> {
        Spill::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Result<Spill> {
        remove_left(parent);
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir_in(parent)
                .map_err(|e| error::io("make a folder in", parent, e))?;
            let lock = match locked(folder.path()) {
                Ok(lock) => Some(lock),
                // Another query takes it for one that is left.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                // Where the file system knows no locks, none is taken for one that is left either.
                Err(_) => None,
            };
            if folder.path().is_dir() {
                return Ok(Spill { folder, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// The lock on a folder; `WouldBlock` where somebody has it.
fn locked(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// What cannot be removed is somebody's, or tried again by the next query.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            // Of the link, where it is one.
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        if is_ours && let Ok(_lock) = locked(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_query_left_is_removed_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("rows"), "rows").unwrap();
        fs::create_dir(parent.path().join("mine")).unwrap();
        let one = Spill::within(parent.path()).unwrap();
        let other = Spill::within(parent.path()).unwrap();
        assert!(!left.exists());
        assert!(parent.path().join("mine").is_dir());
        assert!(one.path().is_dir() && other.path().is_dir());
        drop((one, other));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }
}
