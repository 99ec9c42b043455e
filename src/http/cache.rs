//! What is shown is collected once for all who ask within a few seconds, and however often somebody asks, a
//! small part of the time goes into it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::facts::{Facts, Reports};
use crate::error::{Error, Kind, Result};
use crate::pulse::Pulse;
use crate::session::Session;

/// What was so a moment ago is so now, for who asks.
const LEAST_AGE: Duration = Duration::from_secs(2);
/// The same for what is counted from all rows.
const LEAST_AGE_OF_REPORTS: Duration = Duration::from_secs(60);
/// Collecting takes no larger part of the time than one in so many.
const SHARE_OF_TIME: u32 = 20;

/// What was collected last.
#[derive(Default)]
pub(super) struct Cache {
    facts: Arc<Kept<Facts>>,
    reports: Arc<Kept<Reports>>,
}

impl Cache {
    /// What is so now.
    ///
    /// # Errors
    /// Those of reading the store.
    pub(super) async fn facts(
        &self,
        session: &Arc<Session>,
        pulse: &Arc<Pulse>,
    ) -> Result<Arc<Facts>> {
        let (session, pulse) = (Arc::clone(session), Arc::clone(pulse));
        self.facts.renewed(LEAST_AGE, move || Facts::collect(&session, &pulse)).await
    }

    /// What the reports say. They are counted from all rows, which takes seconds with a million cases: who
    /// asks has the last that were, and only the first who asks waits.
    ///
    /// # Errors
    /// Those of reading the store.
    pub(super) async fn reports(&self, session: &Arc<Session>) -> Result<Arc<Reports>> {
        let of = Arc::clone(session);
        let collect = move || Reports::collect(&of.store().connection()?);
        let Some(last) = self.reports.last().await else {
            return self.reports.renewed(LEAST_AGE_OF_REPORTS, collect).await;
        };
        if !last.is_good() {
            let kept = Arc::clone(&self.reports);
            // What cannot be counted now is tried again when somebody asks.
            tokio::spawn(
                async move { kept.renewed(LEAST_AGE_OF_REPORTS, collect).await.map(drop) },
            );
        }
        Ok(last.value)
    }
}

/// The last value, and the right to collect the next one.
struct Kept<T> {
    last: Mutex<Option<Last<T>>>,
    collecting: Mutex<()>,
}

struct Last<T> {
    value: Arc<T>,
    good_until: Instant,
}

impl<T> Last<T> {
    fn is_good(&self) -> bool {
        Instant::now() < self.good_until
    }
}

impl<T> Clone for Last<T> {
    fn clone(&self) -> Last<T> {
        Last { value: Arc::clone(&self.value), good_until: self.good_until }
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept { last: Mutex::default(), collecting: Mutex::default() }
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    async fn last(&self) -> Option<Last<T>> {
        self.last.lock().await.clone()
    }

    /// The last value, if it is good still; else a new one, collected by one of all who wait for it. Who asked may go
    /// meanwhile: what is collected is there for the next one.
    async fn renewed(
        self: &Arc<Self>,
        least_age: Duration,
        collect: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Arc<T>> {
        let kept = Arc::clone(self);
        tokio::spawn(async move { kept.collected(least_age, collect).await })
            .await
            .map_err(|e| Error::caused(Kind::Internal, "collecting ended early", e))?
    }

    async fn collected(
        &self,
        least_age: Duration,
        collect: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Arc<T>> {
        let _one = self.collecting.lock().await;
        if let Some(last) = self.last().await.filter(Last::is_good) {
            return Ok(last.value);
        }
        let began = Instant::now();
        let value = tokio::task::spawn_blocking(collect)
            .await
            .map_err(|e| Error::caused(Kind::Internal, "collecting ended early", e))??;
        let value = Arc::new(value);
        let good_until = Instant::now() + least_age.max(began.elapsed() * SHARE_OF_TIME);
        *self.last.lock().await = Some(Last { value: Arc::clone(&value), good_until });
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_make_one_collect() {
        let kept: Arc<Kept<u32>> = Arc::default();
        let collected = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let ask = || {
            let (kept, collected) = (Arc::clone(&kept), Arc::clone(&collected));
            async move {
                let next = move || Ok(collected.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                kept.renewed(Duration::from_secs(3600), next).await
            }
        };
        let answers = futures::future::join_all((0..20).map(|_| ask())).await;
        assert!(answers.into_iter().all(|answer| *answer.unwrap() == 0));
        // One that is not good any more is collected anew, and what cannot be is nobody's answer.
        kept.last.lock().await.as_mut().unwrap().good_until = Instant::now();
        assert_eq!(*ask().await.unwrap(), 1);
        kept.last.lock().await.as_mut().unwrap().good_until = Instant::now();
        let failed = kept.renewed(LEAST_AGE, || Err(Error::new(Kind::Io, "no"))).await;
        assert!(failed.is_err());
        assert_eq!(*ask().await.unwrap(), 2);
    }

    #[tokio::test]
    async fn what_is_collected_for_somebody_who_has_gone_is_there_for_the_next_one() {
        let kept: Arc<Kept<u32>> = Arc::default();
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        let asked = kept.renewed(Duration::from_secs(3600), move || {
            let _ = waits.recv();
            Ok(7)
        });
        let mut asked = Box::pin(asked);
        assert!(futures::poll!(&mut asked).is_pending());
        drop(asked);
        goes_on.send(()).unwrap();
        let next = kept.renewed(Duration::from_secs(3600), || Ok(8)).await;
        assert_eq!(*next.unwrap(), 7);
    }
}
