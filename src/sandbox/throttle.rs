//! The change feeds' throttle: a sliding window over the arrivals at both feeds (reference 4.2,
//! field notes "Refusals"), and the count of what broke it.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How the service tells a caller that it called too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleStyle {
    /// 429 with `Retry-After` in seconds.
    RetryAfter,
    /// 429 with `Retry-After` as an HTTP date.
    RetryAfterDate,
    /// 429 with `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds since 1970).
    RateLimitHeaders,
    /// 429 and nothing else.
    Bare,
    /// The call is held back until it fits, and then answered with
    /// `X-RateLimit-Delayed-By-Milliseconds`.
    HoldBack,
}

/// The arrivals at both feeds together.
#[derive(Debug)]
pub(crate) struct Throttle {
    pub(crate) calls: u32,
    pub(crate) per: Duration,
    pub(crate) style: ThrottleStyle,
    /// Arrivals of the last window, the oldest first.
    window: VecDeque<Instant>,
    total: u64,
    violations: u64,
    most: u64,
}

/// What to do with a call that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// How many arrivals the window holds, this one included.
    pub(crate) in_window: u64,
    /// Set where that is too many: how long until a call fits again.
    pub(crate) excess: Option<Duration>,
}

impl Throttle {
    pub(crate) fn new(calls: u32, per: Duration, style: ThrottleStyle) -> Throttle {
        Throttle { calls, per, style, window: VecDeque::new(), total: 0, violations: 0, most: 0 }
    }

    /// Counts an arrival. Refused calls count like any other.
    pub(crate) fn arrive(&mut self, now: Instant) -> Arrival {
        while self.window.front().is_some_and(|first| now.duration_since(*first) >= self.per) {
            self.window.pop_front();
        }
        self.window.push_back(now);
        self.total += 1;
        let in_window = self.window.len() as u64;
        self.most = self.most.max(in_window);
        let allowed = u64::from(self.calls);
        if in_window <= allowed {
            return Arrival { in_window, excess: None };
        }
        self.violations += 1;
        // A next call fits when all but `calls - 1` of the arrivals so far have left the window.
        let leaving = usize::try_from(in_window - allowed).unwrap_or(usize::MAX);
        let until = self.window.get(leaving).copied().unwrap_or(now) + self.per;
        Arrival { in_window, excess: Some(until.saturating_duration_since(now)) }
    }

    /// All arrivals, those that were too many, and the most in any window.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.total, self.violations, self.most)
    }

    /// Forgets the counts, not the window: the service does not forget its callers either.
    pub(crate) fn reset_counts(&mut self) {
        (self.total, self.violations, self.most) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_and_refused_calls_count() {
        let mut throttle = Throttle::new(2, Duration::from_secs(30), ThrottleStyle::RetryAfter);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.arrive(at(0)).excess, None);
        assert_eq!(throttle.arrive(at(10)).excess, None);
        assert_eq!(throttle.arrive(at(29)).excess, Some(Duration::from_secs(11)));
        // 0 has left the window, 10 and the refused 29 are still in it.
        assert_eq!(throttle.arrive(at(30)).in_window, 3);
        assert_eq!(throttle.arrive(at(100)), Arrival { in_window: 1, excess: None });
        assert_eq!(throttle.counts(), (5, 2, 3));
    }
}
