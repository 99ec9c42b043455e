//! How often a call is tried, and how long is waited in between.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::failpoint;

/// Settings of the repetition of calls.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    /// How often a call is tried, the first time included.
    pub(crate) attempts: u32,
    /// The wait before the second attempt; each further one is twice as long. Up to as much again is
    /// added at random, so that callers that failed together do not come back together.
    pub(crate) first_wait: Duration,
    pub(crate) longest_wait: Duration,
    /// No attempt begins so long after the first, and no Retry-After is waited for that ends later.
    pub(crate) patience: Duration,
    /// Makes the random part repeatable.
    pub(crate) seed: Option<u64>,
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            attempts: 5,
            first_wait: if failpoint::retries_at_once() {
                Duration::from_millis(1)
            } else {
                Duration::from_millis(250)
            },
            longest_wait: Duration::from_secs(30),
            patience: Duration::from_secs(5 * 60),
            seed: None,
        }
    }
}

impl Retry {
    /// The waits before the second attempt, the third, and so on.
    pub(super) fn waits(&self) -> ExponentialBackoff {
        let waits = ExponentialBuilder::new()
            .with_jitter()
            .with_min_delay(self.first_wait)
            .with_max_delay(self.longest_wait)
            .with_max_times(usize::try_from(self.attempts.saturating_sub(1)).unwrap_or(usize::MAX));
        match self.seed {
            Some(seed) => waits.with_jitter_seed(seed).build(),
            None => waits.build(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_repeatable_with_a_seed() {
        let retry = Retry { seed: Some(7), ..Retry::default() };
        let waits: Vec<Duration> = retry.waits().collect();
        assert_eq!(waits.len(), 4);
        assert_eq!(waits, retry.waits().collect::<Vec<_>>());
        for (index, wait) in waits.iter().enumerate() {
            let least = retry.first_wait * 2_u32.pow(index as u32);
            assert!(*wait >= least && *wait <= least * 2, "{index}: {wait:?}");
        }
    }
}
