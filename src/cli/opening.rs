//! Opening the store for a command that works on it: what another process holds for a moment is waited for
//! (docs/architecture.md, "Commands").

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::daemon::{self, Interrupts};
use crate::error::{Error, Kind, Result};

/// `status`, `export` of a small store and the like have ended by then; what goes on is a run of its own.
const LONGEST: Duration = Duration::from_secs(10);
/// Between two looks at whether the store is free.
const BETWEEN: Duration = Duration::from_millis(100);

/// Opens the store at `store` by `open`, as soon as another process lets it go: not later than after ten seconds,
/// and not at all where a daemon answers for it, which goes on holding it. Signals are listened to from then on.
///
/// # Errors
/// Those of `open`; `StoreLocked` where it is held on; `Cancelled` where a signal ends the waiting.
pub(super) async fn open<T>(
    store: &Path,
    mut open: impl FnMut() -> Result<T>,
) -> Result<(T, Interrupts)> {
    let error = match open() {
        Ok(opened) => return Ok((opened, Interrupts::catch()?)),
        Err(error) => error,
    };
    if !is_held_for_a_moment(&error, store).await {
        return Err(error);
    }
    // Before anybody is told, who may answer with one at once.
    let mut interrupts = Interrupts::catch()?;
    let seconds = LONGEST.as_secs();
    tracing::info!("{error}: waiting up to {seconds} seconds for it to be let go");
    let until = Instant::now() + LONGEST;
    loop {
        tokio::select! {
            () = interrupts.next() => {
                let text = "stopped while waiting for the store; nothing was begun";
                return Err(Error::new(Kind::Cancelled, text));
            }
            () = tokio::time::sleep(BETWEEN) => {}
        }
        match open() {
            Ok(opened) => return Ok((opened, interrupts)),
            Err(error) if Instant::now() >= until => return Err(error),
            Err(error) if !is_held_for_a_moment(&error, store).await => return Err(error),
            Err(_) => {}
        }
    }
}

async fn is_held_for_a_moment(error: &Error, store: &Path) -> bool {
    error.kind() == Kind::StoreLocked && !daemon::answers(store).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Error {
        Error::new(Kind::StoreLocked, "the store is held")
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_is_opened_when_it_is_let_go_and_given_up_when_it_is_held_on() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let mut looks = 0;
        let opened = open(&store, || {
            looks += 1;
            if looks < 20 { Err(held()) } else { Ok(looks) }
        });
        assert_eq!(opened.await.unwrap().0, 20);
        let mut looks = 0;
        let given_up = open::<()>(&store, || {
            looks += 1;
            Err(held())
        });
        assert_eq!(given_up.await.unwrap_err().kind(), Kind::StoreLocked);
        assert!(looks > 50, "{looks}");
    }

    #[tokio::test]
    async fn what_no_waiting_mends_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let mut looks = 0;
        let mut failing = |kind| {
            looks += 1;
            Err::<(), _>(Error::new(kind, "it fails"))
        };
        assert!(open(&store, || failing(Kind::Config)).await.is_err());
        // A daemon answers.
        let address = folder.path().join("store.duckdb.sock");
        let _listener = tokio::net::UnixListener::bind(address).unwrap();
        assert!(open(&store, || failing(Kind::StoreLocked)).await.is_err());
        assert_eq!(looks, 2);
    }
}
