//! What a machine remembers of the lease, beside the ledger: its own name, and whether it may go on alone while the
//! register cannot be reached.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    content: Mutex<Content>,
}

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
        Ok(Note { path, machine: content.machine.clone(), content: Mutex::new(content) })
    }

    /// The machine's name for others.
    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    /// Whether this machine may go on alone while the register in `place` cannot be reached: because it was alone there,
    /// or because it never reached it. A catalog that is set up wrongly does not keep the first mirror of a brokerage
    /// from its work.
    pub(super) fn is_alone(&self, place: &str, boot: &str) -> bool {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.reached.as_deref() != Some(place) || content.alone_in.as_deref() == Some(boot)
    }

    /// Remembers durably that the register in `place` was reached, and whether this machine is alone there.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub(super) fn reached(&self, place: &str, is_alone: bool, boot: &str) -> Result<()> {
        let mut known = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Content {
            reached: Some(place.to_owned()),
            alone_in: is_alone.then(|| boot.to_owned()),
            machine: known.machine.clone(),
        };
        if *known != next {
            write(&self.path, &next)?;
            *known = next;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Content>> {
    match fs::read(path) {
        // What cannot be read is as good as none: a machine of another name.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
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
        fs::write(with_suffix(&ledger, ".lease"), "no note").unwrap();
        assert_ne!(Note::beside(&ledger).unwrap().machine(), note.machine());
    }
}
