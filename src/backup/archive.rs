//! The file of a backup: a tar archive, which a store of any size is streamed into and out of, and which
//! `tar` and `sha256sum` take apart where there is no casemirror.
//!
//! ```text
//! casemirror-backup.json   what it is and of when
//! store.duckdb.secrets     where the store has some
//! feed-calls               the feed's ledger, where there is one
//! store.duckdb
//! SHA256SUMS               of all of them: a file without it, or that differs from it, is none
//! ```

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::error::{self, Error, Kind, Result};
use crate::text::{hex, printable};

/// The layout of the archive. A later one is refused.
const LAYOUT: u32 = 1;

const ABOUT: &str = "casemirror-backup.json";
const SECRETS: &str = "store.duckdb.secrets";
const LEDGER: &str = "feed-calls";
const STORE: &str = "store.duckdb";
const SUMS: &str = "SHA256SUMS";

/// What is read and written at once.
const AT_ONCE: usize = 1 << 20; // 1 MiB
/// All but the store is held in memory, and is smaller.
const LARGEST_IN_MEMORY: u64 = 64 << 20; // 64 MiB
const OWNER_ONLY: u32 = 0o600;

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) program_version: String,
    /// When the state that it holds was the last one.
    pub(crate) taken_at: Timestamp,
    pub(crate) store_id: String,
    pub(crate) store_format: i64,
    /// Rows of all tables of schema `main`, and of `history`.
    pub(crate) rows: i64,
    pub(crate) earlier_versions: i64,
    pub(crate) closed_months: i64,
}

/// What is told first, whatever the layout is.
#[derive(Serialize, Deserialize)]
struct Marked<T> {
    casemirror_backup: u32,
    #[serde(flatten)]
    rest: T,
}

/// What any layout says of itself.
#[derive(Deserialize)]
struct Version {
    program_version: String,
}

/// What is beside the store. It is not shown: it holds secrets.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) secrets: Option<Vec<u8>>,
    pub(super) ledger: Option<Vec<u8>>,
}

/// A backup that is being written.
pub(super) struct Archive {
    tar: tar::Builder<BufWriter<File>>,
    sums: String,
    taken_at: Timestamp,
}

impl Archive {
    /// Begins it in an empty file.
    pub(super) fn begin(file: File, about: &About, beside: &Beside) -> io::Result<Archive> {
        let mut archive = Archive {
            tar: tar::Builder::new(BufWriter::with_capacity(AT_ONCE, file)),
            sums: String::new(),
            taken_at: about.taken_at,
        };
        let marked = Marked { casemirror_backup: LAYOUT, rest: about };
        let mut text = serde_json::to_vec_pretty(&marked)?;
        text.push(b'\n');
        archive.add(ABOUT, &text)?;
        if let Some(secrets) = &beside.secrets {
            archive.add(SECRETS, secrets)?;
        }
        if let Some(ledger) = &beside.ledger {
            archive.add(LEDGER, ledger)?;
        }
        Ok(archive)
    }

    /// Adds the store, which has so many bytes, and ends it.
    pub(super) fn end(mut self, store: impl Read, bytes: u64) -> io::Result<()> {
        self.add_large(STORE, store, bytes)?;
        let sums = std::mem::take(&mut self.sums);
        self.add(SUMS, sums.as_bytes())?;
        self.tar.into_inner()?.flush()
    }

    fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.add_large(name, content, content.len() as u64)
    }

    fn add_large(&mut self, name: &str, content: impl Read, bytes: u64) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(OWNER_ONLY);
        header.set_mtime(self.taken_at.as_second().max(0).unsigned_abs());
        header.set_size(bytes);
        let mut summed = Summed::new(BufReader::with_capacity(AT_ONCE, content.take(bytes)));
        self.tar.append_data(&mut header, name, &mut summed)?;
        if summed.read != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.sums.push_str(&summed.line(name));
        Ok(())
    }
}

/// Reads the backup in `file`, which is called `shown`. When all but the store is read, `begin` looks at it and
/// says where the store's bytes go, a file and its name. They are those of a backup that is whole when this returns.
///
/// # Errors
/// `Usage` for what is no backup, `StoreNewer` for one of a later layout, `Io` for one that is cut off or
/// damaged or cannot be read; `DiskFull` and `Io` where the store's bytes cannot be written; what `begin` fails
/// with.
pub(super) fn read(
    shown: &Path,
    file: File,
    begin: impl FnOnce(&About, &Beside) -> Result<(File, PathBuf)>,
) -> Result<(About, Beside)> {
    let foreign = || {
        Error::new(
            Kind::Usage,
            format!("{} is no backup that casemirror has made", shown.display()),
        )
    };
    let damaged = |what: &str| {
        Error::new(Kind::Io, format!("the backup {} {what}; nothing was restored", shown.display()))
    };
    let mut tar = tar::Archive::new(BufReader::with_capacity(AT_ONCE, file));
    let mut sums = String::new();
    let (mut about, mut beside) = (None, Beside::default());
    let mut begin = Some(begin);
    let entries = tar.entries().map_err(|_| foreign())?;
    for entry in entries {
        let mut entry = entry.map_err(|_| match about {
            None => foreign(),
            Some(_) => damaged("is damaged"),
        })?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_file = entry.header().entry_type() == EntryType::Regular;
        match (name.as_str(), &about) {
            _ if !is_file && about.is_some() => return Err(damaged("is damaged")),
            (ABOUT, None) if is_file => {
                let text = small(&mut entry, ABOUT, &mut sums).ok_or_else(foreign)?;
                about = Some(described(shown, &text, foreign)?);
            }
            (_, None) => return Err(foreign()),
            (SECRETS | LEDGER, Some(_)) if begin.is_some() => {
                let content = small(&mut entry, &name, &mut sums);
                let content = content.ok_or_else(|| damaged("is cut off or damaged"))?;
                let place = if name == SECRETS { &mut beside.secrets } else { &mut beside.ledger };
                *place = Some(content);
            }
            (STORE, Some(about)) => {
                let begin = begin.take().ok_or_else(|| damaged("is damaged"))?;
                let (mut to, name) = begin(about, &beside)?;
                let bytes = entry.size();
                let mut summed = Summed::new(&mut entry);
                copy((&mut summed, shown), (&mut to, &name))?;
                if summed.read != bytes {
                    return Err(damaged("is cut off"));
                }
                sums.push_str(&summed.line(STORE));
            }
            (SUMS, Some(about)) if begin.is_none() => {
                let said = small(&mut entry, SUMS, &mut String::new());
                if said.is_none_or(|said| said != sums.as_bytes()) {
                    return Err(damaged("is damaged: what it holds is not what was written"));
                }
                return Ok((about.clone(), beside));
            }
            (_, Some(_)) => return Err(damaged("is damaged")),
        }
    }
    Err(if about.is_none() { foreign() } else { damaged("is cut off") })
}

/// What the first of its files says.
fn described(shown: &Path, text: &[u8], foreign: impl Fn() -> Error) -> Result<About> {
    let version: Marked<Version> = serde_json::from_slice(text).map_err(|_| foreign())?;
    if version.casemirror_backup != LAYOUT {
        let by = printable(&version.rest.program_version).into_owned();
        return Err(Error::new(
            Kind::StoreNewer,
            format!("the backup {} was made by casemirror {by}, in a later form", shown.display()),
        ));
    }
    let about: Marked<About> = serde_json::from_slice(text).map_err(|_| foreign())?;
    Ok(about.rest)
}

/// A file of the archive that is held in memory; `None` where it is cut off or too large.
fn small(entry: &mut (impl Read + Sized), name: &str, sums: &mut String) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut summed = Summed::new(entry.take(LARGEST_IN_MEMORY));
    summed.read_to_end(&mut content).ok()?;
    // What is cut off is found out by its sum.
    sums.push_str(&summed.line(name));
    Some(content)
}

/// Copies to the end; an error names the file that could not be read or written.
fn copy((from, read): (&mut impl Read, &Path), (to, written): (&mut File, &Path)) -> Result<()> {
    let mut buffer = vec![0; AT_ONCE];
    loop {
        match from.read(&mut buffer).map_err(|e| error::io("read", read, e))? {
            0 => return Ok(()),
            bytes => to.write_all(&buffer[..bytes]).map_err(|e| error::io("write", written, e))?,
        }
    }
}

/// A reader that sums up what it reads.
struct Summed<R> {
    from: R,
    digest: Sha256,
    read: u64,
}

impl<R> Summed<R> {
    fn new(from: R) -> Summed<R> {
        Summed { from, digest: Sha256::new(), read: 0 }
    }

    /// As `sha256sum` prints it.
    fn line(self, name: &str) -> String {
        format!("{}  {name}\n", hex(&self.digest.finalize()))
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.digest.update(&buffer[..read]);
        self.read += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
