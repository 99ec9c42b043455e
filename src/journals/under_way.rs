//! Months under way give way between two calls, and go on where they were.
//!
//! A month in many parts takes long. Who waits meanwhile waits for one call: the reading is set aside with all
//! that it knows, and whoever reads the month next goes on with it (docs/architecture.md, "Journals").

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures::future::BoxFuture;

use super::read::MonthRead;
use crate::error::Result;
use crate::scope::ScopeId;

/// Where a reading stands between two calls.
#[derive(Clone)]
pub(crate) struct Gate {
    /// Whether others wait.
    is_closed: Arc<dyn Fn() -> bool + Send + Sync>,
    /// A call was made since the reading began or went on: each stretch makes one at least.
    has_called: Arc<AtomicBool>,
    stands: Arc<AtomicBool>,
}

impl Gate {
    /// Closed while `is_closed` says so.
    pub(crate) fn new(is_closed: impl Fn() -> bool + Send + Sync + 'static) -> Gate {
        Gate { is_closed: Arc::new(is_closed), has_called: Arc::default(), stands: Arc::default() }
    }

    /// Of a reading that gives way to nobody.
    pub(crate) fn open() -> Gate {
        Gate::new(|| false)
    }

    /// Before each call. Nothing wakes it: a reading that stands here is set aside.
    pub(super) async fn pass(&self) {
        poll_fn(|_| {
            if self.has_called.load(Ordering::Relaxed) && (self.is_closed)() {
                self.stands.store(true, Ordering::Relaxed);
                return Poll::Pending;
            }
            self.has_called.store(true, Ordering::Relaxed);
            Poll::Ready(())
        })
        .await
    }
}

/// A month that is being read.
pub(crate) struct Reading {
    future: BoxFuture<'static, Result<MonthRead>>,
    gate: Gate,
}

impl Reading {
    /// A reading that passes this gate before each call.
    pub(crate) fn new(future: BoxFuture<'static, Result<MonthRead>>, gate: Gate) -> Reading {
        Reading { future, gate }
    }
}

/// Readings that were set aside. Clones are the same.
#[derive(Clone, Default)]
pub struct MonthsUnderWay {
    aside: Arc<Mutex<HashMap<ScopeId, Reading>>>,
}

impl MonthsUnderWay {
    fn lock(&self) -> MutexGuard<'_, HashMap<ScopeId, Reading>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with the reading of a month that was set aside, or begins it; `None` where it gives way.
    pub(crate) async fn read(
        &self,
        scope: ScopeId,
        begin: impl FnOnce() -> Reading,
    ) -> Option<Result<MonthRead>> {
        let mut reading = self.lock().remove(&scope).unwrap_or_else(begin);
        reading.gate.has_called.store(false, Ordering::Relaxed);
        let done = poll_fn(|context| match reading.future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if reading.gate.stands.swap(false, Ordering::Relaxed) => {
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        })
        .await;
        if done.is_none() {
            self.lock().insert(scope, reading);
        }
        done
    }

    /// Nobody goes on with what is set aside.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// Nobody goes on with these: what was asked so far is from before somebody asks for them.
    pub(crate) fn forget_those(&self, of: impl Fn(&ScopeId) -> bool) {
        self.lock().retain(|scope, _| !of(scope));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};

    /// A reading of three calls, that says which of them it makes.
    fn of_three_calls(gate: &Gate, made: &Arc<Mutex<Vec<u32>>>) -> Reading {
        let (calls, passes) = (Arc::clone(made), gate.clone());
        let read = async move {
            for call in 1..=3 {
                passes.pass().await;
                tokio::task::yield_now().await;
                calls.lock().unwrap().push(call);
            }
            Err(Error::new(Kind::Timeout, "it is over"))
        };
        Reading::new(Box::pin(read), gate.clone())
    }

    #[tokio::test]
    async fn a_month_makes_one_call_in_each_stretch_and_none_twice() {
        let (months, made) = (MonthsUnderWay::default(), Arc::default());
        let closed = Arc::new(AtomicBool::new(true));
        let gate = Gate::new({
            let closed = Arc::clone(&closed);
            move || closed.load(Ordering::Relaxed)
        });
        let scope = ScopeId { table: "a".to_owned(), id: 1, part: "offices/2026-10".to_owned() };
        let read = || months.read(scope.clone(), || of_three_calls(&gate, &made));
        assert!(read().await.is_none());
        assert_eq!(*made.lock().unwrap(), [1]);
        assert!(read().await.is_none());
        closed.store(false, Ordering::Relaxed);
        assert!(read().await.is_some());
        assert_eq!(*made.lock().unwrap(), [1, 2, 3]);
        assert!(months.lock().is_empty());
    }

    #[tokio::test]
    async fn what_is_forgotten_begins_anew() {
        let (months, made) = (MonthsUnderWay::default(), Arc::default());
        let scope = ScopeId { table: "a".to_owned(), id: 1, part: String::new() };
        let closed = Gate::new(|| true);
        assert!(months.read(scope.clone(), || of_three_calls(&closed, &made)).await.is_none());
        months.forget();
        assert!(months.read(scope, || of_three_calls(&Gate::open(), &made)).await.is_some());
        assert_eq!(*made.lock().unwrap(), [1, 1, 2, 3]);
    }
}
