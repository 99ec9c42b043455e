//! Ending by SIGTERM or SIGINT: the first lets what is under way end, a second one ends at once.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::cycle::{Controls, Interrupt};
use crate::error::{Error, Kind, Result};
use crate::session::Session;

/// From the first signal on, what is under way may go on for so long. Container engines kill after ten seconds.
const LONGEST_STOP: Duration = Duration::from_secs(7);
/// What an interrupted publishing needs to remove its half-written files.
const LONGEST_TIDYING: Duration = Duration::from_secs(1);
/// What may be left out at the end is given up so long after the signal. What is left then is for the transaction that is
/// being committed, which is waited for however long it takes.
const LONGEST_CLOSE: Duration = Duration::from_millis(9_500);

/// The signals that end a process. From here on they do not do so by themselves.
#[derive(Debug)]
pub(crate) struct Interrupts {
    term: Signal,
    int: Signal,
}

impl Interrupts {
    /// # Errors
    /// `Io`.
    pub(crate) fn catch() -> Result<Interrupts> {
        let failed = |e| Error::caused(Kind::Io, "cannot listen to signals", e);
        Ok(Interrupts {
            term: signal(SignalKind::terminate()).map_err(failed)?,
            int: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }

    /// Lets `work` go on to its end, or, when a signal comes, tells `controls` and lets it end in time. The writing
    /// thread of `session` has ended then, but at the second signal. `None`: it was stopped before its end.
    ///
    /// # Errors
    /// Those of the work; `Cancelled` at the second signal; those of [`Session::close`].
    pub(crate) async fn stop<T>(
        mut self,
        session: &Session,
        controls: &Controls,
        work: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        let mut work = Box::pin(work);
        let by_itself = tokio::select! {
            ended = &mut work => Some(ended),
            () = self.next() => None,
        };
        if let Some(ended) = by_itself {
            drop(work);
            let closed = tokio::select! {
                closed = session.close(None) => closed,
                () = async { self.next().await; self.next().await } => Err(at_once()),
            };
            let ended = ended?;
            return closed.map(|()| Some(ended));
        }
        tracing::info!("stopping: what is under way is finished (a second signal ends at once)");
        let tidied_by = Instant::now() + LONGEST_CLOSE;
        controls.set(Interrupt::Cancel);
        let ended = tokio::select! {
            ended = &mut work => match ended {
                Err(error) if error.kind() == Kind::Cancelled => None,
                ended => Some(ended?),
            },
            () = self.next() => return Err(at_once()),
            () = tokio::time::sleep(LONGEST_STOP) => {
                tracing::warn!("not everything under way ended in time; it goes on at the next start");
                session.interrupt_publishing();
                // What is not tidied up by then is at the next publishing.
                let _ = tokio::time::timeout(LONGEST_TIDYING, &mut work).await;
                None
            }
        };
        drop(work);
        let close = async {
            session.settle(LONGEST_TIDYING).await;
            session.close(Some(tidied_by)).await
        };
        tokio::select! {
            closed = close => closed.map(|()| ended),
            () = self.next() => Err(at_once()),
        }
    }
}

/// The second signal.
fn at_once() -> Error {
    Error::new(Kind::Cancelled, "ended at once; what is committed stays")
}
