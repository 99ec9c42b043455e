//! How a loop behaves while something fails: it waits longer each time, says so now and then, and says
//! when it is over (pure).

use std::time::{Duration, Instant};

/// While the same thing fails, it is logged again after this long.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// What has failed in a row.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    least: Duration,
    most: Duration,
    failures: u32,
    since: Option<Instant>,
    said: Option<Instant>,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) wait: Duration,
    /// How many there were in a row, this one included.
    pub(crate) failures: u32,
    pub(crate) say: bool,
}

/// What is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovery {
    pub(crate) failures: u32,
    pub(crate) lasted: Duration,
}

impl Patience {
    /// Waits `least` after the first failure, twice as long after each further one, at most `most`.
    pub(crate) fn new(least: Duration, most: Duration) -> Patience {
        Patience { least, most: most.max(least), failures: 0, since: None, said: None }
    }

    /// It failed.
    pub(crate) fn fail(&mut self, now: Instant) -> Trouble {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let wait = self.least.saturating_mul(doubled).min(self.most);
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        let say =
            self.said.is_none_or(|said| now.saturating_duration_since(said) >= SAID_AGAIN_AFTER);
        if say {
            self.said = Some(now);
        }
        Trouble { wait, failures: self.failures, say }
    }

    /// It went well. Something is over only when it had failed.
    pub(crate) fn succeed(&mut self, now: Instant) -> Option<Recovery> {
        let since = self.since.take()?;
        let failures = std::mem::take(&mut self.failures);
        self.said = None;
        Some(Recovery { failures, lasted: now.saturating_duration_since(since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_waits_twice_as_long_each_time_up_to_the_longest() {
        let mut patience = Patience::new(SECOND, 10 * SECOND);
        let now = Instant::now();
        let waits: Vec<u64> = (0..6).map(|_| patience.fail(now).wait.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        for _ in 0..100 {
            assert_eq!(patience.fail(now).wait, 10 * SECOND);
        }
    }

    #[test]
    fn what_goes_on_is_said_now_and_then_and_its_end_once() {
        let mut patience = Patience::new(SECOND, 10 * SECOND);
        let start = Instant::now();
        let said: Vec<bool> =
            [0, 10, 599, 600, 700, 1200].map(|s| patience.fail(start + s * SECOND).say).into();
        assert_eq!(said, [true, false, false, true, false, true]);
        let over = patience.succeed(start + 1300 * SECOND);
        assert_eq!(over, Some(Recovery { failures: 6, lasted: 1300 * SECOND }));
        assert_eq!(patience.succeed(start + 1301 * SECOND), None);
        assert_eq!(patience.fail(start), Trouble { wait: SECOND, failures: 1, say: true });
    }
}
