//! A new store is made in a folder by nobody while a backup is restored there.
//!
//! By a lock on the folder, which leaves nothing behind. A file system without such locks is taken as it is: what a
//! store of another is then met by is still refused, if later.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// Held while a store is made.
#[derive(Debug)]
pub(crate) struct Founding {
    _folder: Option<File>,
}

impl Founding {
    /// Of a new store, beside others that are made in the same folder.
    ///
    /// # Errors
    /// `StoreLocked` where a backup is being restored there.
    pub(super) fn of_new(store: &Path) -> Result<Founding> {
        Founding::by(
            store,
            FlockOperation::NonBlockingLockShared,
            "a backup is being restored in that folder, or something published to it",
        )
    }

    /// Of a backup that becomes a store, alone in its folder.
    ///
    /// # Errors
    /// `StoreLocked` where another is being restored there, or a new store is made.
    pub(crate) fn of_backup(store: &Path) -> Result<Founding> {
        let why = "another backup is being restored in that folder, a new store is made, or something published to it";
        Founding::by(store, FlockOperation::NonBlockingLockExclusive, why)
    }

    fn by(store: &Path, operation: FlockOperation, why: &str) -> Result<Founding> {
        let Some(folder) = store.parent().and_then(|folder| File::open(folder).ok()) else {
            return Ok(Founding { _folder: None });
        };
        match flock(&folder, operation) {
            Err(Errno::WOULDBLOCK) => {
                let text = format!("no store can be made at {}: {why}", store.display());
                Err(Error::new(Kind::StoreLocked, text))
            }
            locked => Ok(Founding { _folder: locked.is_ok().then_some(folder) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_restored_alone_and_new_stores_are_made_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one.duckdb", "other.duckdb"].map(|name| folder.path().join(name));
        let restoring = Founding::of_backup(&one).unwrap();
        let refused = Founding::of_new(&one).unwrap_err();
        assert_eq!(refused.kind(), Kind::StoreLocked);
        assert!(Founding::of_backup(&one).unwrap_err().to_string().contains("another backup"));
        drop(restoring);
        let made = Founding::of_new(&one).unwrap();
        Founding::of_new(&other).unwrap();
        Founding::of_backup(&one).unwrap_err();
        drop(made);
        Founding::of_backup(&one).unwrap();
        Founding::of_new(&folder.path().join("not/there.duckdb")).unwrap();
    }
}
