//! The room on a disk.

use std::path::Path;

/// A disk, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    /// What we may still write.
    pub(crate) free: u64,
    pub(crate) size: u64,
}

impl Disk {
    /// The one that a file is on; `None` where the system does not say.
    pub(crate) fn of(file: &Path) -> Option<Disk> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let found = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))).ok()?;
        Some(Disk {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            size: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    /// Whether somebody has to make room soon: less than a tenth and than 10 GB is left.
    pub(crate) fn is_short(&self) -> bool {
        self.free < self.least()
    }

    /// Whether there is clearly room again: what lies between is neither, so that a disk at the border is
    /// not told of all day.
    pub(crate) fn is_ample(&self) -> bool {
        self.free >= self.least() / 4 * 5
    }

    fn least(&self) -> u64 {
        (self.size / 10).min(10_000_000_000)
    }
}
