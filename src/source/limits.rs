//! The limits of all calls together: how many a second, how many at a time, and none while the
//! service has told us to wait.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::request::CallClass;
use crate::config;
use crate::error::{Error, Kind, Result};

/// Spreads calls over time: a token bucket.
pub(super) struct Pace {
    limiter: RateLimiter<NotKeyed, InMemoryState, RuntimeClock, NoOpMiddleware<Duration>>,
}

impl Pace {
    /// One call every `per / calls`, and up to `burst` (at least one) at once after a pause.
    pub(super) fn new(calls: u32, per: Duration, burst: u32) -> Self {
        let interval = (per / calls.max(1)).max(Duration::from_nanos(1));
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        // An interval of zero has been excluded; one call an hour stands in for it.
        let quota = Quota::with_period(interval)
            .unwrap_or(Quota::per_hour(NonZeroU32::MIN))
            .allow_burst(burst);
        Pace { limiter: RateLimiter::direct_with_clock(quota, RuntimeClock::new()) }
    }

    /// At most `calls` in any second. A bucket that holds and refills `calls` would let twice as many
    /// through, so what may go at once is taken off the rate: a hundredth, which keeps a rate
    /// reachable whose interval is finer than the timer's millisecond.
    pub(super) fn per_second(calls: u32) -> Self {
        let burst = (calls / 100).max(1);
        let rate = calls.saturating_sub(burst) + 1;
        Self::new(rate, Duration::from_secs(1), burst)
    }

    /// Waits for the next call's turn.
    pub(super) async fn ready(&self) {
        while let Err(not_until) = self.limiter.check() {
            let now = self.limiter.clock().now();
            tokio::time::sleep(not_until.wait_time_from(now)).await;
        }
    }
}

/// The runtime's clock, which tests can pause.
#[derive(Debug, Clone)]
struct RuntimeClock {
    started: Instant,
}

impl RuntimeClock {
    fn new() -> Self {
        RuntimeClock { started: Instant::now() }
    }
}

impl Clock for RuntimeClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A place among the calls in flight.
#[must_use]
pub(super) struct Slot {
    _any: OwnedSemaphorePermit,
    _journal: Option<OwnedSemaphorePermit>,
}

/// What all calls share.
pub(super) struct Limits {
    pace: Pace,
    slots: Arc<Semaphore>,
    /// Who is no feed waits here for its place in the row, so that a feed has no more than one before it.
    row: tokio::sync::Mutex<()>,
    /// One fewer: journals take minutes, and must not keep the feed from being asked.
    journal_slots: Arc<Semaphore>,
    retry_at: Mutex<Option<Instant>>,
    /// `limits.retry_after`.
    longest_hold: Duration,
}

impl Limits {
    pub(super) fn new(limits: &config::Limits) -> Self {
        let slots = limits.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Limits {
            pace: Pace::per_second(limits.requests_per_second),
            slots: Arc::new(Semaphore::new(slots)),
            row: tokio::sync::Mutex::new(()),
            journal_slots: Arc::new(Semaphore::new((slots - 1).max(1))),
            retry_at: Mutex::new(None),
            longest_hold: limits.retry_after,
        }
    }

    /// A place among the calls in flight; given back when dropped.
    pub(super) async fn slot(&self, class: CallClass) -> Result<Slot> {
        let closed = |error| Error::caused(Kind::Internal, "no call may be made any more", error);
        let journal = match class {
            CallClass::Journal => {
                Some(Arc::clone(&self.journal_slots).acquire_owned().await.map_err(closed)?)
            }
            CallClass::Plain | CallClass::Feed(_) | CallClass::Change => None,
        };
        let _first = match class {
            CallClass::Feed(_) => None,
            CallClass::Plain | CallClass::Journal | CallClass::Change => {
                Some(self.row.lock().await)
            }
        };
        let any = Arc::clone(&self.slots).acquire_owned().await.map_err(closed)?;
        Ok(Slot { _any: any, _journal: journal })
    }

    /// The next call's turn: waits until no Retry-After is in force.
    ///
    /// # Errors
    /// [`Kind::RetryAfter`] when that goes beyond `deadline`.
    pub(super) async fn after_retry_at(&self, deadline: Instant) -> Result<()> {
        while let Some(until) = self.retry_after() {
            if until > deadline {
                let seconds = until.duration_since(Instant::now()).as_secs_f64().ceil();
                let text =
                    format!("the platform wants no call for another {seconds:.0} s (Retry-After)");
                return Err(Error::new(Kind::RetryAfter, text));
            }
            tokio::time::sleep_until(until).await;
        }
        Ok(())
    }

    /// The turn of a call that counts towards `limits.requests_per_second`.
    ///
    /// # Errors
    /// [`Kind::RetryAfter`] when the service wants no call before `deadline`.
    pub(super) async fn acquire(&self, deadline: Instant) -> Result<()> {
        loop {
            self.after_retry_at(deadline).await?;
            self.pace.ready().await;
            // Where a refusal has come in the meantime, all who wait would go at once when its time is over.
            if self.retry_after().is_none() {
                return Ok(());
            }
        }
    }

    /// The service wants no call for `duration` from now; `limits.retry_after` cuts it. A longer Retry-After stays.
    pub(super) fn wait_for(&self, duration: Duration) {
        let until = Instant::now() + duration.min(self.longest_hold);
        let mut retry_at = self.retry_at.lock().unwrap_or_else(PoisonError::into_inner);
        if retry_at.is_none_or(|known| known < until) {
            *retry_at = Some(until);
        }
    }

    /// Forgets for how long the service wanted no call.
    pub(super) fn lift_hold(&self) {
        *self.retry_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Until when calls are held back; `None` when they are not.
    pub(super) fn retry_after(&self) -> Option<Instant> {
        let mut retry_at = self.retry_at.lock().unwrap_or_else(PoisonError::into_inner);
        if retry_at.is_some_and(|until| until <= Instant::now()) {
            *retry_at = None;
        }
        *retry_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::FeedName;

    async fn sent_at(pace: &Pace, calls: usize) -> Vec<Duration> {
        let started = Instant::now();
        let mut sent = Vec::new();
        for _ in 0..calls {
            pace.ready().await;
            sent.push(started.elapsed());
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn no_second_sees_more_calls_than_the_limit() {
        for limit in [1_u32, 3, 10, 99, 100, 250, 2_000] {
            let pace = Pace::per_second(limit);
            // A pause first: the bucket is full.
            tokio::time::sleep(Duration::from_secs(60)).await;
            let limit = limit as usize;
            let sent = sent_at(&pace, limit * 3 + 1).await;
            for (first, later) in sent.iter().zip(&sent[limit..]) {
                assert!(*later - *first >= Duration::from_secs(1), "{limit}: {first:?} {later:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pacemaker_lets_half_a_window_go_and_spreads_the_rest() {
        let pace = Pace::new(6, Duration::from_secs(30), 3);
        let seconds: Vec<u64> = sent_at(&pace, 6).await.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 0, 0, 5, 10, 15]);
    }

    fn limits(concurrency: usize) -> Limits {
        Limits::new(&config::Limits {
            requests_per_second: 10,
            concurrency,
            timeout: Duration::from_secs(60),
            journal_timeout: Duration::from_secs(600),
            retry_after: Duration::from_secs(3_600),
            answer_bytes: config::Bytes(256_000_000),
            answer_records: 2_000_000,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_is_waited_out_in_full_and_never_shortened() {
        let limits = limits(1);
        let started = Instant::now();
        limits.wait_for(Duration::from_secs(7));
        limits.wait_for(Duration::from_secs(2));
        limits.acquire(started + Duration::from_secs(60)).await.unwrap();
        assert!(started.elapsed() >= Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_through_a_hold_goes_at_the_usual_pace() {
        let limits = limits(1);
        let deadline = Instant::now() + Duration::from_secs(600);
        let mut calls: Vec<_> = (0..45)
            .map(|_| async {
                limits.acquire(deadline).await.unwrap();
                Instant::now()
            })
            .map(Box::pin)
            .collect();
        // The first second's calls go, and a refusal comes while all others wait for their turn.
        let held = async {
            tokio::time::sleep(Duration::from_millis(1_050)).await;
            limits.wait_for(Duration::from_secs(6));
            Instant::now() + Duration::from_secs(6)
        };
        let (until, mut sent) = futures::join!(held, futures::future::join_all(calls.iter_mut()));
        sent.sort();
        sent.retain(|at| *at >= until);
        assert!(sent.len() > 25, "{sent:?}");
        for (first, later) in sent.iter().zip(&sent[10..]) {
            assert!(*later - *first >= Duration::from_secs(1), "{first:?} {later:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_beyond_the_deadline_is_an_error_at_once() {
        let limits = limits(1);
        let started = Instant::now();
        limits.wait_for(Duration::MAX);
        let error = limits.acquire(started + Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::RetryAfter);
        // An hour at most, whoever said more.
        assert!(error.to_string().contains("another 3600 s"), "{error}");
        assert_eq!(started.elapsed(), Duration::ZERO);
        limits.lift_hold();
        limits.acquire(started + Duration::from_secs(60)).await.unwrap();
    }

    async fn is_free(limits: &Limits, class: CallClass) -> bool {
        tokio::time::timeout(Duration::from_secs(5), limits.slot(class)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_are_in_flight_than_slots() {
        let limits = limits(2);
        let _first = limits.slot(CallClass::Plain).await.unwrap();
        let second = limits.slot(CallClass::Feed(FeedName::Cases)).await.unwrap();
        assert!(!is_free(&limits, CallClass::Plain).await);
        drop(second);
        assert!(is_free(&limits, CallClass::Plain).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_has_one_call_before_it_however_many_wait() {
        let limits = limits(1);
        let (first, order) = (limits.slot(CallClass::Plain).await.unwrap(), Mutex::new(Vec::new()));
        let waits = async |name: &'static str, class: CallClass| {
            let _slot = limits.slot(class).await.unwrap();
            order.lock().unwrap().push(name);
        };
        let feed = CallClass::Feed(FeedName::Cases);
        tokio::join!(
            waits("first", CallClass::Plain),
            waits("second", CallClass::Plain),
            waits("third", CallClass::Plain),
            waits("feed", feed),
            async { drop(first) }
        );
        assert_eq!(*order.lock().unwrap(), ["first", "feed", "second", "third"]);
    }

    #[tokio::test(start_paused = true)]
    async fn journals_leave_a_slot_to_the_others_where_there_are_two() {
        let two = limits(2);
        let _journal = two.slot(CallClass::Journal).await.unwrap();
        assert!(!is_free(&two, CallClass::Journal).await);
        assert!(is_free(&two, CallClass::Feed(FeedName::Cases)).await);
        assert!(is_free(&limits(1), CallClass::Journal).await);
    }
}
