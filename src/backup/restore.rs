//! A backup becomes the store again, where there is none.
//!
//! All or nothing, whenever it is killed: the store's file gets its name last, and without it nothing is
//! there that a command would take for a store. What else a killed one may have left stands in nobody's way:
//! calls in the feed's ledger make others wait; secrets that are those of the backup are taken for its own by
//! the next one; the rest has names of its own, by which it is removed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::archive::{self, About, Beside};
use crate::config::Config;
use crate::durable::{self, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{self, Described, Founding};
use crate::source;

/// What was restored, and where.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) store: PathBuf,
    pub(crate) about: About,
}

/// Makes the backup in `file` the store of this configuration.
///
/// # Errors
/// `Usage` where there is a store already, or what is left of one, and for a file that is no backup;
/// `StoreLocked` where somebody else makes a store there at the same time;
/// `StoreNewer` for a backup or a store of a later version; `Io` for a damaged one; `DiskFull`, `Io`, `Store`.
/// Nothing is restored then.
pub(crate) fn restore(config: &Config, file: &Path) -> Result<Restored> {
    let path = &config.store.path;
    let backup = File::open(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(Kind::Usage, format!("there is no file {}", file.display()))
        }
        _ => error::io("read", file, e),
    })?;
    check_empty(path)?;
    let (mut copy, mut founding) = (None, None);
    let (about, beside) = archive::read(file, backup, |about, beside| {
        mirror::check_not_newer(file, about.store_format)?;
        check_secrets(path, beside)?;
        let (alone, replacement, to) = begin(path)?;
        founding = Some(alone);
        let place = replacement.path().to_owned();
        copy = Some(replacement);
        failpoint::hit("restore-begun");
        Ok((to, place))
    })?;
    let copy =
        copy.ok_or_else(|| Error::new(Kind::Internal, "a backup was read without a store"))?;
    let described = Described {
        format: about.store_format,
        store_id: about.store_id.clone(),
        rows: about.rows,
        earlier_versions: about.earlier_versions,
        closed_months: about.closed_months,
    };
    mirror::settle(&config.store, copy.path(), &described).map_err(|e| {
        e.within(format!("the store in the backup {} cannot be used", file.display()))
    })?;
    failpoint::hit("restore-extracted");

    if let Some(ledger) = &beside.ledger {
        source::merge_ledger(config, ledger)?;
    }
    place_secrets(path, &beside)?;
    failpoint::hit("secrets-placed");
    copy.finish_as(path)?;
    drop(founding);
    failpoint::hit("store-placed");
    Ok(Restored { store: path.clone(), about })
}

/// Refuses where there is a store, or a log of one. A dangling link is something too.
fn check_empty(path: &Path) -> Result<()> {
    for taken in [path.to_owned(), durable::with_suffix(path, ".wal")] {
        if durable::is_there(&taken)? {
            return Err(occupied(&taken));
        }
    }
    Ok(())
}

/// Secrets that are there may be those of a store that somebody still wants; those of this backup are what a
/// killed `restore` has left.
fn check_secrets(path: &Path, beside: &Beside) -> Result<()> {
    let file = mirror::secrets_file(path);
    if durable::is_there(&file)? && !are_there(&file, beside)? {
        return Err(occupied(&file));
    }
    Ok(())
}

fn are_there(file: &Path, beside: &Beside) -> Result<bool> {
    match std::fs::read(file) {
        Ok(there) => Ok(beside.secrets.as_ref() == Some(&there)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(error::io("read", file, e)),
    }
}

fn occupied(taken: &Path) -> Error {
    Error::new(
        Kind::Usage,
        format!(
            "{} is there: a backup is restored only where there is no store. Name another place in \
             store.path, or move the store and its .secrets away",
            taken.display()
        ),
    )
}

/// Where the store is written to, beside its place, when what earlier ones have left is gone. While the first of what
/// it returns is held, nobody else makes a store there.
fn begin(path: &Path) -> Result<(Founding, Replacement, File)> {
    if let Some(folder) = path.parent() {
        durable::make_private_folder(folder).map_err(|e| error::io("create", folder, e))?;
    }
    let founding = Founding::of_backup(path)?;
    // One may have been made before that.
    check_empty(path)?;
    durable::remove_stale_of(path)?;
    durable::remove_stale_of(&mirror::secrets_file(path))?;
    let replacement = Replacement::of(path)?;
    let to = durable::create_private(replacement.path())?;
    Ok((founding, replacement, to))
}

fn place_secrets(path: &Path, beside: &Beside) -> Result<()> {
    let (file, Some(secrets)) = (mirror::secrets_file(path), &beside.secrets) else {
        return Ok(());
    };
    if are_there(&file, beside)? {
        return Ok(());
    }
    let new = Replacement::of(&file)?;
    durable::create_private(new.path())?
        .write_all(secrets)
        .map_err(|e| error::io("write", new.path(), e))?;
    new.finish_as(&file)
}
