//! The one place of the program that renames.
//!
//! Whatever takes the place of something that others read is written under another name beside it,
//! synced, renamed over it, and the folder is synced too: after a crash or a full disk the old or
//! the new is there, whole, never a mixture. What a killed process left behind is found by its name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

mod reach;

use rustix::fs::{FlockOperation, flock};

pub(crate) use reach::{is_readable, unwritable, unwritable_file};

use crate::error::{self, Error, Kind, Result};

/// Between the name of the target and what makes a temporary name unique.
const MARK: &str = ".tmp-";

/// Who may do what with the file that takes the target's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// 0444: everybody reads, nobody writes. Clients of a published file stay readers.
    ReadOnly,
    /// 0755: a folder that others may look into.
    SharedFolder,
    /// As it was created; for folders and links.
    AsCreated,
}

/// A new file that only its owner can read and write, from the first moment.
///
/// # Errors
/// `Io`, `DiskFull`.
pub(crate) fn create_private(path: &Path) -> Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|e| error::io("write", path, e))
}

/// Lets those who may read and write `like`, where there is one, do the same with a new file that belongs to it.
pub(crate) fn share_as(file: &File, like: &Path) {
    let Ok(like) = fs::metadata(like) else { return };
    // Only root may give a file away; others give it to a group of theirs.
    let _ = fchown(file, Some(like.uid()), None);
    let has_group = fchown(file, None, Some(like.gid())).is_ok();
    let mode = like.mode() & 0o666;
    // Another group gets what everybody has.
    let mode = if has_group { mode } else { (mode & 0o606) | ((mode & 0o006) << 3) };
    // Where the file system has no modes it stays as it is.
    let _ = file.set_permissions(fs::Permissions::from_mode(mode));
}

/// Makes a folder that is its owner's alone, with those above it that are missing; one that is there stays
/// as it is.
pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes a folder that others may look into, with those above it that are missing: 0755 whatever the
/// process's own files are made with.
///
/// # Errors
/// `Io`, `DiskFull`.
pub(crate) fn make_shared_folder(folder: &Path) -> Result<()> {
    let failed = |e| error::io("create the folder", folder, e);
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.is_dir();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    for above in missing.into_iter().rev() {
        match fs::create_dir(above) {
            Ok(()) => share_folder(above)?,
            // Another process was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && above.is_dir() => {}
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}

/// Something that is being written beside its target, to take its place when it is finished.
///
/// Dropped unfinished, it is removed (with the `.wal` that DuckDB may have put beside it) and the
/// target stays as it is.
#[derive(Debug)]
pub(crate) struct Replacement {
    temporary: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Replacement {
    /// A free name in the folder of `target`, which is made where it does not exist. Nothing is
    /// created under that name: the caller does, as a file, a folder or a link.
    ///
    /// # Errors
    /// `Kind::Io` or `Kind::DiskFull` when the folder cannot be made.
    pub(crate) fn of(target: &Path) -> Result<Replacement> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let target = std::path::absolute(target).map_err(|e| error::io("resolve", target, e))?;
        let folder = folder_of(&target);
        fs::create_dir_all(folder).map_err(|e| error::io("create the folder", folder, e))?;
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}", prefix_of(&target)?, process_token());
        Ok(Replacement { temporary: folder.join(name), target, finished: false })
    }

    /// Where to write.
    pub(crate) fn path(&self) -> &Path {
        &self.temporary
    }

    /// Makes it a folder, its owner's alone: who may look into one may lock it. While the file is open, no other process takes
    /// it for what one left unfinished, whatever else it knows of this one; `None` where the file system knows no locks.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub(crate) fn make_folder(&self) -> Result<Option<File>> {
        let path = self.path();
        make_private_folder(path).map_err(|e| error::io("create the folder", path, e))?;
        let held = match hold(path) {
            // Whoever holds it keeps it from the others too.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            held => held.map_err(|e| error::io("lock", path, e))?,
        };
        // Another process may have come in between.
        fs::metadata(path).map_err(|e| error::io("look at", path, e))?;
        Ok(held)
    }

    /// What will be replaced, as an absolute path.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Makes what was written durable and puts it in the target's place. A folder is synced with
    /// all that is in it; it can only take a name that is free.
    ///
    /// # Errors
    /// `Kind::DiskFull` or `Kind::Io`, and the target is as it was.
    pub(crate) fn finish(mut self, access: Access) -> Result<()> {
        match access {
            Access::ReadOnly => read_only(&self.temporary)?,
            Access::SharedFolder => share_folder(&self.temporary)?,
            Access::AsCreated => {}
        }
        sync_all(&self.temporary)?;
        let renamed = rename(&self.temporary, &self.target);
        self.finished = renamed.is_ok();
        renamed
    }

    /// The same where nothing may be replaced: gives what was written the name `name` in the same folder,
    /// which must be free, also where another process takes it meanwhile.
    ///
    /// # Errors
    /// `Kind::Usage` where something has that name; `Kind::DiskFull` or `Kind::Io`.
    pub(crate) fn finish_as(mut self, name: &Path) -> Result<()> {
        sync_all(&self.temporary)?;
        let named = rename_to_free(&self.temporary, name).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => there_already(name),
            _ => error::io("create", name, e),
        });
        self.finished = named.is_ok();
        named.and_then(|()| sync(folder_of(name)))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is found by its name at the next start.
            let _ = remove(&self.temporary);
            let _ = remove(&with_suffix(&self.temporary, ".wal"));
        }
    }
}

/// Removes a folder that others read: away under its name in one step, so that nobody finds half of
/// it there, then for good.
///
/// # Errors
/// `Kind::Io`.
pub(crate) fn remove_at_once(path: &Path) -> Result<()> {
    let grave = Replacement::of(path)?;
    rename(path, &grave.temporary)?;
    remove(&grave.temporary)
}

/// Renames and makes it durable.
fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|e| error::io("replace", to, e))?;
    sync(folder_of(to))
}

/// Renames where the new name is free; else `AlreadyExists`. In one step where the file system can do that.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // As network file systems say.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => return renamed.map_err(io::Error::from),
        }
    }
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// What is said where something has the name that a new file was to have.
pub(crate) fn there_already(path: &Path) -> Error {
    Error::new(Kind::Usage, format!("{} is there already: nothing is overwritten", path.display()))
}

/// Whether anything has this name, a link that leads nowhere too.
///
/// # Errors
/// `Kind::Io`.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(error::io("look at", path, e)),
    }
}

/// Sets mode 0444.
///
/// # Errors
/// `Kind::Io`.
pub(crate) fn read_only(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
        .map_err(|e| error::io("set the mode of", path, e))
}

/// Sets mode 0755.
fn share_folder(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|e| error::io("set the mode of", path, e))
}

/// Removes what earlier processes left unfinished for this target.
///
/// # Errors
/// `Kind::Io`.
pub(crate) fn remove_stale_of(target: &Path) -> Result<()> {
    let target = std::path::absolute(target).map_err(|e| error::io("resolve", target, e))?;
    let prefix = prefix_of(&target)?;
    remove_stale(folder_of(&target), |name| name.starts_with(&prefix))
}

/// Removes what earlier processes left unfinished for any target in this folder, which must be one
/// that only this program writes to.
///
/// # Errors
/// `Kind::Io`.
pub(crate) fn remove_stale_in(folder: &Path) -> Result<()> {
    remove_stale(folder, is_temporary)
}

/// Whether a file of this name is taken for something that a process left unfinished.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.contains(MARK)
}

/// Removes a file, a link or a folder with all that is in it; nothing there is fine.
///
/// # Errors
/// `Kind::Io`.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// `path` with something added to its name: DuckDB's log of `x.duckdb` is `x.duckdb.wal`.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn remove_stale(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(error::io("list", folder, e)),
    };
    // Who looks is alone there, by holding the store or its turn to publish: another process's token means that it is
    // gone. A process number would not do: in a container every start has the same.
    let alive = format!("{MARK}{}", process_token());
    // Each is tried; the first that cannot be removed is told.
    let mut removed = Ok(());
    for entry in entries {
        let entry = entry.map_err(|e| error::io("list", folder, e))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if ours(name) && !name.contains(&alive) {
            let is_folder = entry.file_type().is_ok_and(|found| found.is_dir());
            // Of another store's that was told to publish to the same place nothing else is known.
            let _held = match is_folder.then(|| hold(&entry.path())) {
                Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    tracing::info!(path = %entry.path().display(), "it stays: another process writes it, or has locked it");
                    continue;
                }
                held => held,
            };
            tracing::info!(path = %entry.path().display(), "removing what an earlier run left unfinished");
            removed = removed.and(remove(&entry.path()));
        }
    }
    removed
}

/// Locks a folder while the file is open; `None` where the file system knows no locks, `WouldBlock` where it is locked.
fn hold(folder: &Path) -> io::Result<Option<File>> {
    let file = File::open(folder)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
        Ok(()) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
        Err(_) => Ok(None),
    }
}

/// Files, then the folder they are in.
fn sync_all(path: &Path) -> Result<()> {
    let found = fs::symlink_metadata(path).map_err(|e| error::io("read", path, e))?;
    if found.is_symlink() {
        return Ok(()); // A link lives in its folder, which is synced after the rename.
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).map_err(|e| error::io("list", path, e))? {
            sync_all(&entry.map_err(|e| error::io("list", path, e))?.path())?;
        }
    }
    sync(path)
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|f| f.sync_all()).map_err(|e| error::io("sync", path, e))
}

fn folder_of(target: &Path) -> &Path {
    // Only `/` has no parent, and nothing can take its place.
    target.parent().unwrap_or(target)
}

fn prefix_of(target: &Path) -> Result<String> {
    let name = target.file_name().and_then(|n| n.to_str()).ok_or_else(|| {
        Error::new(Kind::Io, format!("{} is no name of a file in UTF-8", target.display()))
    })?;
    Ok(format!(".{name}{MARK}"))
}

fn process_token() -> &'static str {
    static TOKEN: OnceLock<String> = OnceLock::new();
    TOKEN.get_or_init(|| format!("{:016x}", rand::random::<u64>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_finished_file_takes_the_place_of_the_old_and_is_read_only() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("deep/er/x.duckdb");
        for text in ["old", "new"] {
            let replacement = Replacement::of(&target).unwrap();
            fs::write(replacement.path(), text).unwrap();
            replacement.finish(Access::ReadOnly).unwrap();
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(names(target.parent().unwrap()), ["x.duckdb"]);
    }

    #[test]
    fn an_unfinished_one_leaves_the_target_and_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x.duckdb");
        fs::write(&target, "old").unwrap();
        let replacement = Replacement::of(&target).unwrap();
        fs::write(replacement.path(), "half").unwrap();
        fs::write(with_suffix(replacement.path(), ".wal"), "log").unwrap();
        drop(replacement);
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(names(dir.path()), ["x.duckdb"]);
    }

    #[test]
    fn what_must_be_new_takes_a_free_name_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            let new = Replacement::of(&dir.path().join("anything")).unwrap();
            create_private(new.path()).unwrap();
            fs::write(new.path(), text).unwrap();
            new.finish_as(&dir.path().join("x.backup"))
        };
        write("first").unwrap();
        assert_eq!(write("second").unwrap_err().kind(), Kind::Usage);
        let target = dir.path().join("x.backup");
        assert_eq!(fs::read_to_string(&target).unwrap(), "first");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(dir.path()), ["x.backup"]);

        fs::remove_file(&target).unwrap();
        std::os::unix::fs::symlink("nowhere", &target).unwrap();
        assert!(is_there(&target).unwrap() && !is_there(&dir.path().join("y")).unwrap());
        assert_eq!(write("third").unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn a_link_is_replaced_by_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("latest");
        for to in ["one", "two"] {
            let replacement = Replacement::of(&target).unwrap();
            std::os::unix::fs::symlink(to, replacement.path()).unwrap();
            replacement.finish(Access::AsCreated).unwrap();
        }
        assert_eq!(fs::read_link(&target).unwrap(), Path::new("two"));
        assert_eq!(names(dir.path()), ["latest"]);
    }

    #[test]
    fn a_folder_moves_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("one");
        let replacement = Replacement::of(&target).unwrap();
        fs::create_dir_all(replacement.path().join("sub")).unwrap();
        fs::write(replacement.path().join("sub/file"), "x").unwrap();
        replacement.finish(Access::AsCreated).unwrap();
        assert_eq!(fs::read_to_string(target.join("sub/file")).unwrap(), "x");
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x.duckdb");
        let mine = Replacement::of(&target).unwrap();
        fs::write(mine.path(), "being written").unwrap();
        for name in [
            ".x.duckdb.tmp-00000000deadbeef-0",
            ".x.duckdb.tmp-00000000deadbeef-0.wal",
            ".other.tmp-00000000deadbeef-0",
            "x.duckdb.tmp-user",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_stale_of(&target).unwrap();
        let kept = mine.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected =
            vec![kept.clone(), ".other.tmp-00000000deadbeef-0".into(), "x.duckdb.tmp-user".into()];
        expected.sort();
        assert_eq!(names(dir.path()), expected);

        let folder = dir.path().join(".2026.tmp-00000000deadbeef-1");
        fs::create_dir(&folder).unwrap();
        let written = hold(&folder).unwrap();
        remove_stale_in(dir.path()).unwrap();
        assert!(folder.is_dir(), "another process writes it");
        drop(written);
        remove_stale_in(dir.path()).unwrap();
        assert_eq!(names(dir.path()), [kept, "x.duckdb.tmp-user".into()]);
    }

    #[test]
    fn a_folder_that_somebody_else_holds_can_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let new = Replacement::of(&dir.path().join("one")).unwrap();
        fs::create_dir(new.path()).unwrap();
        let _held = hold(new.path()).unwrap().unwrap();
        assert!(new.make_folder().unwrap().is_none());
        new.finish(Access::SharedFolder).unwrap();
    }
}
