//! One publishing of a store's snapshots at a time: each begins by removing what another one left unfinished. Processes that
//! only read a store (`casemirror export`) may have it open together, so that holding it is not enough.
//!
//! Whose turn it is says a file beside the store, for those who may open the store: a lock can be held by whoever may read
//! what is locked, and readers of the snapshots are to hold up nothing.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::Stop;
use crate::durable;
use crate::error::{self, Error, Kind, Result};

/// How often it is looked whether it is our turn.
const NAP: Duration = Duration::from_millis(100);

/// It is ours until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Turn {
    /// `None` where nothing can be locked.
    _lock: Option<File>,
}

impl Turn {
    /// Waits until no other process publishes snapshots of `store`, for no longer than `longest`. The file stays.
    ///
    /// # Errors
    /// `Io` where it is another one's for longer, or the file cannot be opened; `Cancelled` by `stop`.
    pub(crate) fn wait(store: &Path, longest: Duration, stop: &Stop) -> Result<Turn> {
        let path = durable::with_suffix(store, ".publishing");
        let Some(file) = open(&path, store)? else { return Ok(Turn { _lock: None }) };
        let began = Instant::now();
        let mut is_told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => return Ok(Turn { _lock: Some(file) }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => {
                    // As of a file system that knows no locks.
                    tracing::debug!(path = %path.display(), error = %e, "cannot be locked");
                    return Ok(Turn { _lock: None });
                }
            }
            stop.check()?;
            if began.elapsed() >= longest {
                return Err(Error::new(
                    Kind::Io,
                    format!(
                        "another process publishes snapshots of the store: it has held {} for more than {}",
                        path.display(),
                        humantime::format_duration(longest)
                    ),
                ));
            }
            if !is_told {
                tracing::info!(
                    place = %path.display(),
                    "another process publishes there: this one waits until that has ended"
                );
                is_told = true;
            }
            std::thread::sleep(NAP);
        }
    }
}

/// `None` for those who may only read the store: they publish elsewhere, and hinder nobody.
fn open(path: &Path, store: &Path) -> Result<Option<File>> {
    let open = |new| File::options().append(true).create(new).mode(0o600).open(path);
    let opened = match open(false) {
        // Else one `export` of root's would keep the store's owner out.
        Err(e) if e.kind() == ErrorKind::NotFound => {
            open(true).inspect(|file| durable::share_as(file, store))
        }
        Err(e) if durable::unwritable_file(store).is_none() => {
            return Err(error::io("open", path, e));
        }
        opened => opened,
    };
    match opened {
        Err(e)
            if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            tracing::debug!(path = %path.display(), error = %e, "cannot be locked");
            Ok(None)
        }
        opened => opened.map(Some).map_err(|e| error::io("open", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    use super::*;

    #[test]
    fn one_waits_for_its_own_store_alone_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("a"), folder.path().join("b"));
        let stopped = Stop::default();
        stopped.now();
        let long = Duration::from_secs(3600);
        let turn = Turn::wait(&one, long, &stopped).unwrap();
        let _of_other = Turn::wait(&other, long, &stopped).unwrap();
        let held = Turn::wait(&one, long, &stopped).unwrap_err();
        assert_eq!(held.kind(), Kind::Cancelled);
        let held = Turn::wait(&one, Duration::ZERO, &Stop::default()).unwrap_err();
        assert_eq!(held.kind(), Kind::Io);
        assert!(held.to_string().contains("a.publishing"), "{held}");
        let mode = fs::metadata(folder.path().join("a.publishing")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "who reads may not hold it");
        drop(turn);
        Turn::wait(&one, Duration::ZERO, &Stop::default()).unwrap();
    }

    #[test]
    fn what_is_in_the_way_of_the_file_is_no_turn() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a");
        fs::write(&store, "").unwrap();
        fs::create_dir(folder.path().join("a.publishing")).unwrap();
        let refused = Turn::wait(&store, Duration::ZERO, &Stop::default()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Io);
        assert!(refused.to_string().contains("a.publishing"), "{refused}");
        let nowhere = folder.path().join("gone/a");
        let refused = Turn::wait(&nowhere, Duration::ZERO, &Stop::default()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Io);
    }

    #[test]
    fn who_may_write_the_store_may_hold_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let (store, file) = (folder.path().join("a"), folder.path().join("a.publishing"));
        fs::write(&store, "").unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o660)).unwrap();
        // As root alone can.
        let _ = chown(&store, Some(12_345), Some(12_345));
        Turn::wait(&store, Duration::ZERO, &Stop::default()).unwrap();
        let about = |path| {
            let found = fs::metadata(path).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        assert_eq!(about(&file), about(&store));
    }
}
