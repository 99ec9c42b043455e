//! What a machine remembers of the lease, beside the ledger: its own name, and whether it may go on alone while the
//! register cannot be reached; and whether other processes of it hold the lease too.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::durable::{self, Access, Replacement, with_suffix};
use crate::error::{self, Error, Kind, Result};

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// Drawn once.
    machine: String,
    /// The register that was ever reached from here.
    reached: Option<String>,
    /// The boot in which this machine held the lease there, and nobody else was known to wait for it.
    alone_in: Option<String>,
}

/// See the module.
pub(crate) struct Note {
    path: PathBuf,
    machine: String,
    /// Locked, shared, by every process of this machine that holds the lease or waits for it.
    users: PathBuf,
}

/// That this process holds the lease or waits for it.
pub(super) struct User(File);

impl Note {
    /// That beside the ledger at `ledger`, which is made where there is none.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn beside(ledger: &Path) -> Result<Note> {
        let path = with_suffix(ledger, ".lease");
        if let Some(folder) = path.parent() {
            durable::make_private_folder(folder).map_err(|e| error::io("create", folder, e))?;
        }
        let content = match read(&path)? {
            Some(content) => content,
            None => make(&path)?,
        };
        let users = with_suffix(ledger, ".lease-users");
        Ok(Note { path, machine: content.machine, users })
    }

    /// The machine's name for others.
    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    /// Whether this machine may go on alone while the register in `place` cannot be reached: because it was alone there,
    /// or because it never reached it. A catalog that is set up wrongly does not keep the first mirror of a brokerage
    /// from its work.
    pub(super) fn is_alone(&self, place: &str, boot: &str) -> bool {
        // What cannot be read may say that it is not.
        let Ok(Some(content)) = read(&self.path) else { return false };
        content.reached.as_deref() != Some(place) || content.alone_in.as_deref() == Some(boot)
    }

    /// Remembers durably that the register in `place` was reached, and whether this machine is alone there.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub(super) fn reached(&self, place: &str, is_alone: bool, boot: &str) -> Result<()> {
        let next = Content {
            reached: Some(place.to_owned()),
            alone_in: is_alone.then(|| boot.to_owned()),
            machine: self.machine.clone(),
        };
        // Other processes of this machine write it too.
        if read(&self.path)?.as_ref() == Some(&next) {
            return Ok(());
        }
        write(&self.path, &next)
    }

    /// Makes this process known to the others of this machine; `None` where one of them is just giving the lease back.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn enter(&self) -> Result<Option<User>> {
        let file = self.open_users()?;
        let is_locked = self.try_lock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(is_locked.then_some(User(file)))
    }

    /// Whether this is the only process of this machine that holds the lease or waits for it.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn is_sole(&self, user: &User) -> Result<bool> {
        let is_sole = self.try_lock(&user.0, FlockOperation::NonBlockingLockExclusive)?;
        // Either way: what fails to become exclusive is no lock at all any more.
        self.try_lock(&user.0, FlockOperation::NonBlockingLockShared)?;
        Ok(is_sole)
    }

    /// Ends this process's part. What is returned, where this was the last one, keeps others from beginning until it is
    /// dropped. Of several that end at once one is the last: each lets go before it looks.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn leave(&self, user: User) -> Result<Option<User>> {
        // Closing it is not enough: a process that is just being started has it open too until it begins.
        self.try_lock(&user.0, FlockOperation::Unlock)?;
        drop(user);
        let file = self.open_users()?;
        let is_last = self.try_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(is_last.then_some(User(file)))
    }

    fn open_users(&self) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.users)
            .map_err(|e| error::io("open", &self.users, e))
    }

    fn try_lock(&self, file: &File, operation: FlockOperation) -> Result<bool> {
        match flock(file, operation).map_err(std::io::Error::from) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(error::io("lock", &self.users, e)),
        }
    }
}

fn read(path: &Path) -> Result<Option<Content>> {
    match fs::read(path) {
        // What cannot be read is as good as none: a machine of another name.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(error::io("read", path, e)),
    }
}

fn make(path: &Path) -> Result<Content> {
    let machine = format!("{:032x}", rand::random::<u128>());
    let content = Content { machine, reached: None, alone_in: None };
    write(path, &content)?;
    // Two may have made one at once: what is there now is everybody's.
    Ok(read(path)?.unwrap_or(content))
}

fn write(path: &Path, content: &Content) -> Result<()> {
    let failed = |e| error::io("write", path, e);
    let text = serde_json::to_vec(content)
        .map_err(|e| Error::caused(Kind::Internal, "a note is no JSON", e))?;
    let replacement = Replacement::of(path)?;
    let mut file = durable::create_private(replacement.path())?;
    file.write_all(&text).map_err(failed)?;
    replacement.finish(Access::AsCreated)
}

/// For people on other machines.
pub(super) fn name_of_this_process() -> String {
    let named = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.as_deref().map(str::trim).filter(|name| !name.is_empty());
    format!("{} (process {})", named.unwrap_or("a host without a name"), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_machine_stays_and_being_alone_ends_with_the_boot() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("state/feed-calls");
        let note = Note::beside(&ledger).unwrap();
        assert_eq!(note.machine().len(), 32);
        assert!(note.is_alone("there", "boot"), "it was never reached");
        note.reached("there", true, "boot").unwrap();
        let again = Note::beside(&ledger).unwrap();
        assert_eq!(again.machine(), note.machine());
        assert!(again.is_alone("there", "boot") && !again.is_alone("there", "next"));
        again.reached("there", false, "boot").unwrap();
        let again = Note::beside(&ledger).unwrap();
        assert!(!again.is_alone("there", "boot") && again.is_alone("elsewhere", "boot"));
        // Another process of this machine may write it meanwhile.
        again.reached("there", true, "boot").unwrap();
        Note::beside(&ledger).unwrap().reached("there", false, "boot").unwrap();
        assert!(!again.is_alone("there", "boot"));
        again.reached("there", true, "boot").unwrap();
        assert!(again.is_alone("there", "boot"));
        fs::write(with_suffix(&ledger, ".lease"), "no note").unwrap();
        assert_ne!(Note::beside(&ledger).unwrap().machine(), note.machine());
    }

    #[test]
    fn of_several_processes_the_last_one_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::beside(&folder.path().join("feed-calls")).unwrap();
        let one = note.enter().unwrap().unwrap();
        assert!(note.is_sole(&one).unwrap());
        let two = note.enter().unwrap().unwrap();
        assert!(!note.is_sole(&one).unwrap() && !note.is_sole(&two).unwrap());
        assert!(note.leave(one).unwrap().is_none());
        assert!(note.is_sole(&two).unwrap());
        let last = note.leave(two).unwrap();
        assert!(last.is_some() && note.enter().unwrap().is_none());
        drop(last);
        assert!(note.enter().unwrap().is_some());
    }

    #[test]
    fn a_process_that_is_just_being_started_is_no_other_user() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::beside(&folder.path().join("feed-calls")).unwrap();
        let user = note.enter().unwrap().unwrap();
        // As it has all files open that this process has, until it begins.
        let _started = user.0.try_clone().unwrap();
        assert!(note.leave(user).unwrap().is_some());
    }
}
