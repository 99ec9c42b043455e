//! What a machine remembers of the lease, beside the ledger: its own name, and whether it may go on alone while the
//! register cannot be reached; and whether other processes of it hold the lease too.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::durable::{self, Access, Replacement, with_suffix};
use crate::error::{self, Error, Kind, Result};

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// Drawn once.
    machine: String,
    /// Which [`Note::users`] it was drawn beside ([`identity`]). Beside another one this is a copy, and a folder that
    /// is copied to be mirrored a second time may be on the same machine, in the same boot: in another container.
    #[serde(default)]
    beside: Option<String>,
    /// The register that was ever reached from here.
    reached: Option<String>,
    /// The boot in which this machine held the lease there, and nobody else was known to wait for it.
    alone_in: Option<String>,
}

/// See the module.
pub(crate) struct Note {
    path: PathBuf,
    machine: String,
    beside: String,
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
        let users = with_suffix(ledger, ".lease-users");
        let beside = identity(&users)?;
        let content = match read(&path)? {
            Some(Content { beside: None, machine, reached, .. }) => {
                // Another process, of an earlier version, may just be noting that it is not alone.
                let content =
                    Content { machine, beside: Some(beside.clone()), reached, alone_in: None };
                write(&path, &content)?;
                content
            }
            Some(content) if content.beside.as_ref() == Some(&beside) => content,
            Some(copied) => {
                tracing::warn!(
                    note = %path.display(),
                    "it is a copy, or was moved by copying: for the lease this is another machine. Where the earlier one \
                     held the lease and was killed, `casemirror lease --release` gives it back"
                );
                draw(&path, &beside, copied.reached)?
            }
            None => draw(&path, &beside, None)?,
        };
        Ok(Note { path, machine: content.machine, beside, users })
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
            beside: Some(self.beside.clone()),
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
        let file = open_users(&self.users)?;
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
        let file = open_users(&self.users)?;
        let is_last = self.try_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(is_last.then_some(User(file)))
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

fn open_users(users: &Path) -> Result<File> {
    let is_new = !users.exists();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(users)
        .map_err(|e| error::io("open", users, e))?;
    if is_new {
        durable::share_as(&file, &users.with_extension(""));
    }
    Ok(file)
}

/// What tells a file from its copies: its number, and when that was given to it, where the file system says so. Not the
/// device, which may be another one in the next boot: a machine that is killed finds its lease again by its name.
fn identity(users: &Path) -> Result<String> {
    let about = open_users(users)?.metadata().map_err(|e| error::io("look at", users, e))?;
    let born = about.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{}/{}", about.ino(), born.unwrap_or_default().as_nanos()))
}

/// A new name. Which register was `reached` a copy knows of the machine that it was copied from: it does not go on alone
/// where that one may be.
fn draw(path: &Path, beside: &str, reached: Option<String>) -> Result<Content> {
    let machine = format!("{:032x}", rand::random::<u128>());
    let content = Content { machine, beside: Some(beside.to_owned()), reached, alone_in: None };
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
    durable::share_as(&file, &path.with_extension(""));
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

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
        // As `cp -a` does it, perhaps for another container of the same machine.
        let copy = folder.path().join("copy/feed-calls");
        fs::create_dir(folder.path().join("copy")).unwrap();
        for name in [".lease", ".lease-users"] {
            fs::copy(with_suffix(&ledger, name), with_suffix(&copy, name)).unwrap();
        }
        let copied = Note::beside(&copy).unwrap();
        assert_ne!(copied.machine(), note.machine());
        assert!(!copied.is_alone("there", "boot"), "the machine that it was copied from may be");
        assert_eq!(Note::beside(&copy).unwrap().machine(), copied.machine());
        assert_eq!(Note::beside(&ledger).unwrap().machine(), note.machine());
        // As an earlier version wrote it.
        let mut earlier = read(&with_suffix(&ledger, ".lease")).unwrap().unwrap();
        earlier.beside = None;
        write(&with_suffix(&ledger, ".lease"), &earlier).unwrap();
        assert_eq!(Note::beside(&ledger).unwrap().machine(), note.machine());
        fs::write(with_suffix(&ledger, ".lease"), "no note").unwrap();
        assert_ne!(Note::beside(&ledger).unwrap().machine(), note.machine());
    }

    #[test]
    fn who_may_write_the_ledger_may_write_what_is_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("feed-calls");
        let modes = || {
            let mode = |name: &str| {
                fs::metadata(with_suffix(&ledger, name)).unwrap().permissions().mode() & 0o777
            };
            [mode(".lease"), mode(".lease-users")]
        };
        Note::beside(&ledger).unwrap();
        assert_eq!(modes(), [0o600, 0o600], "there is none yet");
        for mode in [0o666, 0o660, 0o600] {
            for name in [".lease", ".lease-users"] {
                fs::remove_file(with_suffix(&ledger, name)).unwrap();
            }
            fs::write(&ledger, "").unwrap();
            fs::set_permissions(&ledger, Permissions::from_mode(mode)).unwrap();
            let note = Note::beside(&ledger).unwrap();
            assert_eq!(modes(), [mode, mode]);
            note.reached("there", true, "boot").unwrap();
            assert_eq!(modes(), [mode, mode], "written anew");
        }
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
