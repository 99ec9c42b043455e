//! What this process may read and write, as the system says before it is tried: access(2).

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::error::{self, Error, Kind, Result};

/// Whether there is a file that may be read. That this user may not is another thing than that there is none,
/// and is said with `hint`.
///
/// # Errors
/// `Kind::Io`, naming the file.
pub(crate) fn is_readable(path: &Path, hint: &str) -> Result<bool> {
    match access(path, Access::READ_OK) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(Errno::ACCESS | Errno::PERM) => Err(denied(path, hint)),
        Err(e) => Err(error::io("read", path, e.into())),
    }
}

fn denied(path: &Path, hint: &str) -> Error {
    let text = format!("cannot read {}: permission denied\nhint: {hint}", path.display());
    Error::new(Kind::Io, text)
}

/// Why this folder cannot be written to, or made where there is none; `None` where it can. Changes nothing.
pub(crate) fn unwritable(folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    for place in folder.ancestors() {
        let shown = place.display();
        match fs::metadata(place) {
            Ok(found) if !found.is_dir() => {
                return Some(format!("{shown} is a file, and must be a folder"));
            }
            Ok(_) => {
                let denied = access(place, Access::WRITE_OK | Access::EXEC_OK).err()?;
                let why = why(denied);
                return Some(if place == folder {
                    format!("the folder {shown} cannot be written to: {why}")
                } else {
                    format!("the folder {} cannot be made in {shown}: {why}", folder.display())
                });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(place).is_ok() {
                    return Some(format!("{shown} is a link that leads nowhere"));
                }
            }
            // An ancestor is a file, and is met further up.
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Some(format!("{shown} cannot be reached: permission denied"));
            }
            Err(e) => return Some(format!("{shown} cannot be looked at: {e}")),
        }
    }
    None
}

/// Why this file cannot be written to, where there is one. Opens nothing.
pub(crate) fn unwritable_file(file: &Path) -> Option<String> {
    match access(file, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(denied) => {
            Some(format!("the file {} cannot be written to: {}", file.display(), why(denied)))
        }
    }
}

fn why(denied: Errno) -> String {
    match denied {
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        // As all is but its own folder to a unit of systemd with `ProtectSystem=strict`, as the packaged one.
        Errno::ROFS => "it is on a read-only file system, or the service's unit does not name it in ReadWritePaths="
            .to_owned(),
        other => io::Error::from(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn that_there_is_none_and_that_it_may_not_be_read_are_two_things() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert!(!is_readable(&file, "").unwrap());
        fs::write(&file, "x").unwrap();
        assert!(is_readable(&file, "").unwrap());
        assert!(!is_readable(&file.join("below"), "").unwrap(), "a file has nothing below it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        // The mode does not bind root, who sees the text below.
        if fs::read(&file).is_err() {
            let error = is_readable(&file, "ask").unwrap_err();
            assert!(error.to_string().contains("permission denied"), "{error}");
        }
        let text = denied(&file, "ask the owner").report();
        assert!(text.contains("/file: permission denied\nhint: ask the owner"), "{text}");
    }

    #[test]
    fn a_file_that_may_not_be_written_to_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert_eq!(unwritable_file(&file), None, "there is none");
        fs::write(&file, "x").unwrap();
        assert_eq!(unwritable_file(&file), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        // The mode does not bind root.
        let may = fs::OpenOptions::new().append(true).open(&file).is_ok();
        let told = format!("the file {} cannot be written to: permission denied", file.display());
        assert_eq!(unwritable_file(&file), (!may).then_some(told));
    }

    #[test]
    fn what_a_unit_keeps_read_only_is_told_with_what_lets_it_write() {
        assert!(why(Errno::ROFS).contains("ReadWritePaths="), "{}", why(Errno::ROFS));
    }

    #[test]
    fn a_folder_can_be_made_where_the_nearest_one_above_it_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["", "new", "new/and/below"] {
            assert_eq!(unwritable(&at(name)), None, "{name}");
        }
        assert!(!at("new").exists(), "it is only looked");
        fs::write(at("file"), "").unwrap();
        for name in ["file", "file/below", "file/below/it"] {
            let why = unwritable(&at(name)).unwrap();
            assert!(why.ends_with("/file is a file, and must be a folder"), "{why}");
        }
        symlink(at("nowhere"), at("link")).unwrap();
        let why = unwritable(&at("link/below")).unwrap();
        assert!(why.ends_with("/link is a link that leads nowhere"), "{why}");
    }

    #[test]
    fn a_folder_of_another_user_is_named_with_what_was_to_be_made_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        if fs::write(closed.join("probe"), "").is_ok() {
            eprintln!("skipped: this user may write to every folder");
            return;
        }
        let why = unwritable(&closed).unwrap();
        assert!(why.contains("cannot be written to: permission denied"), "{why}");
        let why = unwritable(&closed.join("data")).unwrap();
        assert!(why.contains("/closed/data cannot be made in "), "{why}");
    }
}
