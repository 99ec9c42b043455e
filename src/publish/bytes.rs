//! Copying a file's bytes at the least cost (docs/architecture.md, "Published means finished").
//!
//! The bytes are shared where the file system can do that. Where it cannot, those of a large file go past
//! the page cache: copying through it takes ten times the CPU, and puts a machine's whole memory to use
//! for bytes that nobody has asked for. They go through huge pages, where the system gives them: of small ones each is
//! looked up and handed to the disk by itself, which takes four times the CPU and more than twice as long.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use memmap2::MmapMut;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::Stop;
use crate::error::{self, Error, Kind, Result};
use crate::progress::Progress;

/// Bytes that are copied between two looks whether to stop.
const AT_ONCE: u64 = 64 << 20; // 64 MiB
/// From so many bytes on the page cache is passed by.
const LARGE: u64 = 32 << 20; // 32 MiB
/// Bytes of a transfer that passes the page cache, and how many are under way.
const TRANSFER: usize = 2 << 20; // 2 MiB
const TRANSFERS: usize = 4;
/// What such a transfer begins and ends at in the file: no file system asks for more.
const ALIGNMENT: usize = 4096;
/// And in memory: a huge page of most machines.
const HUGE_PAGE: usize = 2 << 20; // 2 MiB

/// Copies the first `bytes` of `from` into a new file at `path`.
///
/// # Errors
/// `Io`, `DiskFull`, what [`Stop::check`] says, and `Internal` where `from` is shorter.
pub(super) fn copy(
    from: &File,
    path: &Path,
    bytes: u64,
    stop: &Stop,
    progress: &Progress,
) -> Result<()> {
    let failed = |e| error::io("write", path, e);
    let to = File::create_new(path).map_err(failed)?;
    if is_shared(from, &to) {
        return to.set_len(bytes).map_err(failed);
    }
    let mut share = progress.share(bytes.div_ceil(AT_ONCE));
    let mut done = 0;
    if bytes >= LARGE {
        let whole = bytes - bytes % ALIGNMENT as u64;
        let copied = PastCache::of(from).and_then(|_from| {
            let _to = PastCache::of(&to)?;
            let read = |part: &mut [u8], at| from.read_exact_at(part, at);
            transfer(read, &to, whole, |now| {
                share.done(now / AT_ONCE - done / AT_ONCE);
                done = now;
                stop.check().is_ok()
            })
        });
        match copied {
            // Where the file system does not do that, the rest is copied as a small file is.
            Err(e) if is_refused(&e) => {}
            copied => copied.map_err(failed)?,
        }
    }
    while done < bytes {
        stop.check()?;
        match copy_through_cache(from, &to, done, (bytes - done).min(AT_ONCE)).map_err(failed)? {
            0 => return Err(Error::new(Kind::Internal, "the store's file became shorter")),
            copied => done += copied,
        }
        share.done(1);
    }
    Ok(())
}

/// Shares the bytes of `from` with `to`, where the file system can.
fn is_shared(from: &File, to: &File) -> bool {
    #[cfg(target_os = "linux")]
    return rustix::fs::ioctl_ficlone(to, from).is_ok();
    #[cfg(not(target_os = "linux"))]
    return false;
}

fn copy_through_cache(mut from: &File, mut to: &File, at: u64, bytes: u64) -> io::Result<u64> {
    from.seek(SeekFrom::Start(at))?;
    to.seek(SeekFrom::Start(at))?;
    io::copy(&mut from.take(bytes), &mut to)
}

/// One thread reads, by what fills a part with what is at an offset, while this one writes. `goes_on` is
/// told how many bytes are written, and says whether to write the next.
fn transfer(
    from: impl Fn(&mut [u8], u64) -> io::Result<()> + Send,
    to: &File,
    bytes: u64,
    mut goes_on: impl FnMut(u64) -> bool,
) -> io::Result<()> {
    let (read, to_write) = sync_channel(TRANSFERS);
    let (free, to_read) = sync_channel(TRANSFERS);
    for _ in 0..TRANSFERS {
        // There is room, and `to_read` is still here.
        let _ = free.send(Buffer::new()?);
    }
    // Both ends here go with this closure: a reader that waits for a buffer ends when no more come.
    std::thread::scope(move |scope| {
        scope.spawn(move || read_all(&from, bytes, &to_read, &read));
        let mut done = 0;
        for part in to_write {
            let part: Buffer = part?;
            to.write_all_at(part.filled(), done)?;
            done += part.length as u64;
            if !goes_on(done) {
                break;
            }
            // The reader has ended where this was the last part.
            let _ = free.send(part);
        }
        Ok(())
    })
}

/// Reads parts, in order, until all are read or nobody takes them.
fn read_all(
    from: &impl Fn(&mut [u8], u64) -> io::Result<()>,
    bytes: u64,
    free: &Receiver<Buffer>,
    read: &SyncSender<io::Result<Buffer>>,
) {
    let mut at = 0;
    while at < bytes {
        let Ok(mut buffer) = free.recv() else { return };
        let part = buffer.fill(from, at, bytes - at);
        let (length, is_last) = (buffer.length as u64, part.is_err());
        if read.send(part.map(|()| buffer)).is_err() || is_last {
            return;
        }
        at += length;
    }
}

/// A file whose transfers pass the page cache by, until this is dropped.
struct PastCache<'f> {
    file: &'f File,
    flags: OFlags,
}

impl PastCache<'_> {
    fn of(file: &File) -> io::Result<PastCache<'_>> {
        let flags = fcntl_getfl(file)?;
        #[cfg(target_os = "linux")]
        fcntl_setfl(file, flags | OFlags::DIRECT)?;
        #[cfg(not(target_os = "linux"))]
        return Err(io::ErrorKind::Unsupported.into());
        Ok(PastCache { file, flags })
    }
}

impl Drop for PastCache<'_> {
    fn drop(&mut self) {
        // Taking a flag away is never refused.
        let _ = fcntl_setfl(self.file, self.flags);
    }
}

/// Memory for a transfer; of what lies before its start nothing is ever used, nor taken from the system.
struct Buffer {
    memory: MmapMut,
    length: usize,
}

impl Buffer {
    fn new() -> io::Result<Buffer> {
        let memory = MmapMut::map_anon(TRANSFER + HUGE_PAGE)?;
        // Where there are none, it is as good as other memory.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Buffer { memory, length: 0 })
    }

    fn start(&self) -> usize {
        self.memory.as_ptr().align_offset(HUGE_PAGE)
    }

    fn filled(&self) -> &[u8] {
        &self.memory[self.start()..][..self.length]
    }

    /// The next part of the file, of which `left` bytes are left.
    fn fill(
        &mut self,
        from: &impl Fn(&mut [u8], u64) -> io::Result<()>,
        at: u64,
        left: u64,
    ) -> io::Result<()> {
        self.length = usize::try_from(left).unwrap_or(TRANSFER).min(TRANSFER);
        let start = self.start();
        from(&mut self.memory[start..][..self.length], at)
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const BIG: usize = LARGE as usize;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        /// A file of so many bytes, no two blocks of which are alike, and what it holds.
        fn file(&self, bytes: usize) -> (File, Vec<u8>) {
            let mut content = vec![7; bytes];
            for (number, block) in content.chunks_exact_mut(ALIGNMENT / 8).enumerate() {
                block[..8].copy_from_slice(&number.to_le_bytes());
            }
            let path = self.0.path().join("from");
            std::fs::write(&path, &content).unwrap();
            (File::open(path).unwrap(), content)
        }

        fn copy(&self, from: &File, bytes: usize, stop: &Stop) -> Result<Vec<u8>> {
            let to = self.0.path().join("to");
            let progress = Progress::silent();
            let copied = copy(from, &to, bytes as u64, stop, &progress);
            let content = std::fs::read(&to).unwrap();
            std::fs::remove_file(to).unwrap();
            copied.map(|()| content)
        }
    }

    #[test]
    fn a_copy_has_the_first_bytes_and_no_more() {
        let folder = Folder::new();
        for (bytes, of) in [
            (0, 10),
            (10, 10),
            (10, 20),
            (BIG - 1, BIG),
            (BIG, BIG),
            (BIG + 3 * TRANSFER + 5 * ALIGNMENT + 7, BIG + 4 * TRANSFER),
        ] {
            let (from, content) = folder.file(of);
            let copy = folder.copy(&from, bytes, &Stop::default()).unwrap();
            assert!(copy == content[..bytes], "{bytes} of {of} bytes");
        }
    }

    #[test]
    fn the_file_is_read_again_as_before() {
        let folder = Folder::new();
        let (from, content) = folder.file(BIG);
        folder.copy(&from, BIG, &Stop::default()).unwrap();
        let mut odd = [0; 3];
        from.read_exact_at(&mut odd, 5).unwrap();
        assert_eq!(odd, content[5..8]);
        assert!(folder.copy(&from, BIG, &Stop::default()).unwrap() == content, "a second copy");
    }

    #[test]
    fn a_file_that_is_shorter_is_no_copy() {
        let folder = Folder::new();
        for (bytes, of) in [(11, 10), (BIG + 1, BIG), (BIG + 2 * TRANSFER, BIG)] {
            let (from, _) = folder.file(of);
            let copy = folder.copy(&from, bytes, &Stop::default());
            assert!(copy.is_err(), "{bytes} of {of} bytes");
        }
    }

    #[test]
    fn a_copy_that_is_to_stop_stops() {
        let folder = Folder::new();
        let stop = Stop::default();
        stop.now();
        for bytes in [10, BIG] {
            let (from, _) = folder.file(bytes);
            let error = folder.copy(&from, bytes, &stop).unwrap_err();
            assert_eq!(error.kind(), Kind::Cancelled, "{bytes} bytes");
        }
    }

    /// The reader has filled all buffers and waits for one, or is about to.
    #[test]
    fn a_writer_that_ends_early_ends_the_reader() {
        let folder = Folder::new();
        let path = folder.0.path().join("to");
        let to = File::create(&path).unwrap();
        let only_read = File::open(&path).unwrap();
        for last in 1..100 {
            let read = AtomicUsize::new(0);
            let from = |_: &mut [u8], _| {
                read.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            let goes_on = |done| {
                let written = done as usize / TRANSFER;
                while read.load(Ordering::SeqCst) < written + TRANSFERS - 1 {
                    std::thread::yield_now();
                }
                written < last % 10 + 1
            };
            transfer(from, &to, BIG as u64, goes_on).unwrap();
            transfer(from, &only_read, BIG as u64, |_| true).unwrap_err();
        }
    }
}
