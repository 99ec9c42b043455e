//! A clock that nobody sets: nanoseconds since the machine was started.
//!
//! The feed's ledger ages its calls by it, across restarts of the process too. The wall clock would
//! not do: it can be set back while calls are still inside the window.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since the machine was started, sleep included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BootTime(i64);

impl BootTime {
    /// `nanoseconds` after the start of the machine.
    pub(crate) const fn from_nanos(nanoseconds: i64) -> Self {
        BootTime(nanoseconds)
    }

    /// Nanoseconds since the start of the machine.
    pub(crate) const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The time `duration` later.
    #[must_use]
    pub(crate) fn later_by(self, duration: Duration) -> Self {
        let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        BootTime(self.0.saturating_add(nanoseconds))
    }

    /// How long ago `earlier` is; nothing when it is not earlier.
    pub(crate) fn since(self, earlier: BootTime) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Where the ledger reads its time.
pub(crate) trait BootClock: Send + Sync + fmt::Debug {
    /// Now. Never goes back within one boot.
    fn now(&self) -> BootTime;

    /// Which boot the times belong to: times of different boots cannot be compared.
    fn boot_id(&self) -> &str;
}

/// The machine's own boot clock. Where there is none (or the boot has no name), a boot is as long as
/// the process: the ledger then waits a whole window after each start, which is safe.
#[derive(Debug)]
pub(crate) struct SystemBootClock {
    boot_id: String,
    #[cfg(not(target_os = "linux"))]
    started: std::time::Instant,
}

impl SystemBootClock {
    /// The clock of this machine.
    pub(crate) fn new() -> Self {
        SystemBootClock {
            boot_id: boot_name()
                .unwrap_or_else(|| format!("process-{:032x}", rand::random::<u128>())),
            #[cfg(not(target_os = "linux"))]
            started: std::time::Instant::now(),
        }
    }
}

impl Default for SystemBootClock {
    fn default() -> Self {
        Self::new()
    }
}

impl BootClock for SystemBootClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> BootTime {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        BootTime(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec))
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> BootTime {
        BootTime(0).later_by(self.started.elapsed())
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }
}

/// The kernel's name of this boot, with that of the time namespace: containers can have a boot clock
/// of their own.
#[cfg(target_os = "linux")]
fn boot_name() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = boot.trim();
    if boot.is_empty() {
        return None;
    }
    let namespace = std::fs::read_link("/proc/self/ns/time")
        .ok()
        .and_then(|link| link.to_str().map(|name| name.replace(|c: char| !c.is_ascii_digit(), "")));
    Some(match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{boot}/{namespace}"),
        _ => boot.to_owned(),
    })
}

#[cfg(not(target_os = "linux"))]
fn boot_name() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clocks_of_one_machine_agree() {
        let (first, second) = (SystemBootClock::new(), SystemBootClock::new());
        let (early, late) = (first.now(), second.now());
        assert!(late >= early);
        assert!(late.since(early) < Duration::from_secs(60));
        if cfg!(target_os = "linux") {
            assert_eq!(first.boot_id(), second.boot_id());
        }
    }

    #[test]
    fn time_is_never_negative() {
        let (early, late) = (BootTime::from_nanos(5), BootTime::from_nanos(7));
        assert_eq!(late.since(early), Duration::from_nanos(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.later_by(Duration::MAX), BootTime::from_nanos(i64::MAX));
    }
}
