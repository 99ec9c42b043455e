//! Taking a backup: of the store that this process has open, or of one that nobody holds.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::archive::{About, Archive, Beside};
use crate::config::Config;
use crate::durable::{self, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{self, Described, Standing};
use crate::progress::{Progress, Share};
use crate::publish::{Pinned, Stop};
use crate::source;

/// Bytes between two looks whether to stop.
const AT_ONCE: u64 = 1 << 20; // 1 MiB

/// What was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) about: About,
}

/// A committed state of the store, and when it was the last one.
pub(crate) struct Pinning {
    pub(crate) pinned: Pinned,
    pub(crate) taken_at: Timestamp,
}

/// The file that somebody has typed, from whatever folder.
///
/// # Errors
/// `Usage` where it can be no file; `Io`.
pub(crate) fn resolved(typed: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(typed).map_err(|e| error::io("resolve", typed, e))?;
    if path.to_str().is_none() || path.file_name().is_none() {
        let shown = typed.display();
        return Err(Error::new(Kind::Usage, format!("{shown} is no name of a file in UTF-8")));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_taken =
        durable::is_temporary(&name) || [".wal", ".sock"].iter().any(|end| name.ends_with(end));
    if is_taken {
        return Err(Error::new(
            Kind::Usage,
            format!(
                "{}: names like this are taken by what casemirror and DuckDB put beside their files, and \
                 remove: name it otherwise, such as {}",
                typed.display(),
                "casemirror.backup"
            ),
        ));
    }
    Ok(path)
}

/// What tells a folder from every other, also where another process has another one under its name; `None`
/// where there is no folder.
pub(crate) fn identity_of(folder: &Path) -> Option<String> {
    let found = std::fs::metadata(folder).ok().filter(std::fs::Metadata::is_dir)?;
    Some(format!("{}:{}", found.dev(), found.ino()))
}

/// Refuses a file that is there, or that can be in no folder.
///
/// # Errors
/// `Usage`, `Io`.
pub(crate) fn check_new(file: &Path) -> Result<()> {
    let folder = folder_of(file);
    if identity_of(folder).is_none() {
        let shown = folder.display();
        return Err(Error::new(Kind::Usage, format!("there is no folder {shown}")));
    }
    if durable::is_there(file)? { Err(durable::there_already(file)) } else { Ok(()) }
}

/// Takes a backup of a store that nobody holds.
///
/// # Errors
/// Those of [`Standing::open`] and [`take`].
pub(crate) fn take_alone(config: &Config, file: &Path, progress: &Progress) -> Result<Taken> {
    let store = Standing::open(config)?;
    let taken_at = Timestamp::now();
    let pinned = Pinned::with_file(store.root(), store.connection()?, store.file())?;
    take(config, Pinning { pinned, taken_at }, file, &Stop::default(), progress)
}

/// Writes a committed state of the store, its secrets and the feed's ledger to a file that is not there yet.
/// Others may commit meanwhile.
///
/// # Errors
/// `Usage` where the file is there, `Config` where the secrets are not those that the store needs; `DiskFull`,
/// `Io`, `Store`, `Cancelled`: there is no file then.
pub(crate) fn take(
    config: &Config,
    Pinning { pinned, taken_at }: Pinning,
    file: &Path,
    stop: &Stop,
    progress: &Progress,
) -> Result<Taken> {
    check_new(file)?;
    let Described { format, store_id, rows, earlier_versions, closed_months } =
        Described::of(pinned.conn())?;
    let about = About {
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        taken_at,
        store_id,
        store_format: format,
        rows,
        earlier_versions,
        closed_months,
    };
    let secrets = mirror::secrets_of(pinned.conn(), &config.store.path)?;
    let beside =
        Beside { secrets: secrets.map(String::into_bytes), ledger: source::ledger_text(config)? };
    // By the store's name: the next backup, whatever it is called, finds what a killed one has left. Only one
    // process holds the store.
    let unfinished = folder_of(file).join(format!("casemirror-backup-{}", about.store_id));
    durable::remove_stale_of(&unfinished)?;
    let new = Replacement::of(&unfinished)?;
    let failed = |e| error::io("write", file, e);
    let to = durable::create_private(new.path()).map_err(|e| e.within(unwritable(file)))?;
    let archive = Archive::begin(to, &about, &beside).map_err(failed)?;
    failpoint::hit("backup-begun");
    pinned.with_store(Replacement::of(&unfinished)?, |store, bytes| {
        let share = progress.share(bytes.div_ceil(AT_ONCE));
        archive.end(Stretch { file: store, at: 0, end: bytes, stop, share }, bytes).map_err(|e| {
            // What was asked to stop has not failed.
            stop.check().err().unwrap_or_else(|| failed(e))
        })
    })?;
    failpoint::hit("backup-written");
    let bytes = new.path().metadata().map_err(failed)?.len();
    new.finish_as(file)?;
    Ok(Taken { file: file.to_owned(), bytes, about })
}

fn unwritable(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

/// A part of a file that others read too, by offsets of its own.
struct Stretch<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    stop: &'a Stop,
    share: Share,
}

impl Read for Stretch<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check().map_err(io::Error::other)?;
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        let before = self.at / AT_ONCE;
        self.at += read as u64;
        self.share.done(self.at / AT_ONCE - before);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_new_in_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.backup");
        check_new(&file).unwrap();
        let lacking = check_new(&folder.path().join("lacking/x.backup")).unwrap_err();
        assert_eq!(lacking.kind(), Kind::Usage);
        assert!(!folder.path().join("lacking").exists());
        std::fs::write(&file, "").unwrap();
        assert_eq!(check_new(&file).unwrap_err().kind(), Kind::Usage);
        assert_eq!(check_new(&file.join("below")).unwrap_err().kind(), Kind::Usage);
        assert!(resolved(Path::new("x")).unwrap().is_absolute());
        assert_eq!(resolved(Path::new("/")).unwrap_err().kind(), Kind::Usage);
        for taken in ["data/store.duckdb.wal", "store.duckdb.sock", ".casemirror.duckdb.tmp-1-0"] {
            let error = resolved(Path::new(taken)).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.to_string().contains(taken), "{error}");
        }
    }

    #[test]
    fn a_stretch_is_read_from_its_beginning_whoever_else_reads_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        io::copy(&mut &file, &mut io::sink()).unwrap();
        let progress = Progress::silent();
        let stop = Stop::default();
        let stretch = |end| {
            let share = progress.share(3);
            Stretch { file: &file, at: 0, end, stop: &stop, share }
        };
        let mut read = Vec::new();
        stretch(2_500_000).read_to_end(&mut read).unwrap();
        assert!(read == content[..2_500_000]);
        stop.now();
        assert!(stretch(5).read(&mut [0; 5]).is_err());
    }
}
