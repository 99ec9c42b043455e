//! A clock that nobody sets: nanoseconds since the machine was started.
//!
//! The feed's ledger ages its calls by it, across restarts of the process too. The wall clock would
//! not do: it can be set back while calls are still inside the window.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::process;

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

    /// Whether so long has passed since `then` that this process may have stood still, as when the machine sleeps.
    fn has_slept(&self, then: BootTime, longest: Duration) -> bool {
        self.now().since(then) >= longest
    }

    /// Whether times of that boot are times of this one, whatever it is called.
    fn is_this_boot(&self, boot_id: &str) -> bool {
        boot_id == self.boot_id()
    }

    /// What has become of the boot of that name.
    fn fate(&self, boot_id: &str) -> Fate {
        if boot_id == self.boot_id() { Fate::MayLive } else { Fate::Over }
    }
}

/// What has become of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was over before this one began.
    Over,
    /// Nothing of it runs any more, but may have run beside this process.
    Ended,
    /// Something of it may run, and goes by that clock.
    MayLive,
}

/// Begins the name of a boot that has none: that of a process of it follows.
const OF_PROCESS: &str = "process-";

/// The machine's own boot clock. Where there is none (or the boot has no name), a boot is as long as
/// the process: the ledger then waits a whole window after each start, which is safe. While a process lives, and can be
/// seen from here, its boot is ours.
#[derive(Debug)]
pub(crate) struct SystemBootClock {
    boot_id: String,
    #[cfg(not(target_os = "linux"))]
    started: std::time::Instant,
}

impl SystemBootClock {
    /// The clock of this machine.
    pub(crate) fn new() -> Self {
        SystemBootClock::named(boot_name().unwrap_or_else(|| {
            tell_of_no_name();
            name_by_process()
        }))
    }

    fn named(boot_id: String) -> Self {
        SystemBootClock {
            boot_id,
            #[cfg(not(target_os = "linux"))]
            started: std::time::Instant::now(),
        }
    }
}

/// Told once.
fn tell_of_no_name() {
    static TOLD: OnceLock<()> = OnceLock::new();
    if cfg!(target_os = "linux") && TOLD.set(()).is_ok() {
        tracing::warn!(
            "the kernel's name of this boot, {BOOT_ID}, cannot be read: after each start the change feeds wait for a \
             whole feed.per, and processes of this machine may take each other for other hosts. Under systemd, leave out \
             ProcSubset=pid"
        );
    }
}

/// The name of a boot that this process stands for.
fn name_by_process() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = || match (process::this(), time_namespace()) {
        (this, _) if this.is_empty() => format!("{OF_PROCESS}{:032x}", rand::random::<u128>()),
        (this, namespace) => format!("{OF_PROCESS}{this}/{}", namespace.unwrap_or_default()),
    };
    NAME.get_or_init(name).clone()
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

    fn is_this_boot(&self, boot_id: &str) -> bool {
        let process = || boot_id.strip_prefix(OF_PROCESS).filter(|_| cfg!(target_os = "linux"));
        boot_id == self.boot_id
            || process().is_some_and(|process| {
                // The last part: clocks of two time namespaces differ.
                let namespace = process.rsplit('/').next();
                namespace == Some(&time_namespace().unwrap_or_default())
                    && process::has_ended(process) == Some(false)
            })
    }

    fn fate(&self, boot_id: &str) -> Fate {
        if let Some(process) = boot_id.strip_prefix(OF_PROCESS) {
            let has_ended = process::has_ended(process) == Some(true);
            return if has_ended { Fate::Ended } else { Fate::MayLive };
        }
        // Time namespaces of one boot have clocks of their own, and live side by side.
        let kernels = |boot: &str| boot.split('/').next().unwrap_or_default().to_owned();
        let is_ours = kernels(boot_id) == kernels(&self.boot_id);
        if is_ours || self.boot_id.starts_with(OF_PROCESS) { Fate::MayLive } else { Fate::Over }
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's name of this boot, with that of the time namespace: containers can have a boot clock
/// of their own.
#[cfg(target_os = "linux")]
fn boot_name() -> Option<String> {
    let boot = std::fs::read_to_string(BOOT_ID).ok()?;
    let boot = boot.trim();
    if boot.is_empty() {
        return None;
    }
    Some(match time_namespace() {
        Some(namespace) => format!("{boot}/{namespace}"),
        None => boot.to_owned(),
    })
}

#[cfg(not(target_os = "linux"))]
fn boot_name() -> Option<String> {
    None
}

fn time_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/time").ok()?;
    let digits: String = link.to_str()?.chars().filter(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn without_a_name_a_boot_is_that_of_every_process_that_lives() {
        let ours = SystemBootClock::named(name_by_process());
        let named = SystemBootClock::new();
        assert!(ours.is_this_boot(&name_by_process()) && named.is_this_boot(ours.boot_id()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let namespace = time_namespace().unwrap_or_default();
        let of = |name: String| format!("{OF_PROCESS}{name}/{namespace}");
        let theirs = of(process::name_of(child.id()));
        assert!(ours.is_this_boot(&theirs) && named.is_this_boot(&theirs));
        let elsewhere = format!("{OF_PROCESS}{}/1", process::name_of(child.id()));
        assert!(!ours.is_this_boot(&elsewhere), "another time namespace");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!ours.is_this_boot(&theirs) && !named.is_this_boot(&theirs));
        // It may have been of this boot, and whoever has no name does not know of any other.
        assert_eq!([ours.fate(&theirs), named.fate(&theirs)], [Fate::Ended; 2]);
        assert_eq!(ours.fate("earlier"), Fate::MayLive);
    }

    #[test]
    fn of_one_kernel_no_time_namespace_is_over_for_another() {
        let named = |name: &str| SystemBootClock::named(name.to_owned());
        assert_eq!(named("one/1").fate("one/2"), Fate::MayLive);
        assert_eq!(named("one/1").fate("one"), Fate::MayLive);
        assert_eq!(named("one/1").fate("two/1"), Fate::Over);
    }

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
