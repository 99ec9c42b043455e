//! Whether something is being written, so that the publisher knows when to look.

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, Default)]
struct State {
    busy: bool,
    /// Counts the times that work ended.
    ended: u64,
}

/// What the worker does, as far as the publisher has to know.
#[derive(Debug, Default)]
pub(super) struct Activity {
    state: watch::Sender<State>,
}

/// The publisher's view of it.
#[derive(Debug)]
pub(super) struct Listener {
    state: watch::Receiver<State>,
    taken: u64,
}

impl Activity {
    /// Work begins.
    pub(super) fn begin(&self) {
        self.state.send_modify(|state| state.busy = true);
    }

    /// Work ends; it may have written something.
    pub(super) fn end(&self) {
        self.state.send_modify(|state| {
            state.busy = false;
            state.ended += 1;
        });
    }

    /// There is something left to look at.
    pub(super) fn remind(&self) {
        self.state.send_modify(|state| state.ended += 1);
    }

    pub(super) fn listen(&self) -> Listener {
        Listener { state: self.state.subscribe(), taken: 0 }
    }
}

impl Listener {
    /// Waits until something is being written, or was since [`Listener::take`].
    pub(super) async fn happens(&mut self) {
        let taken = self.taken;
        if self.state.wait_for(|state| state.busy || state.ended > taken).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until nothing is being written.
    pub(super) async fn pauses(&mut self) {
        // Without a worker nothing is.
        let _ = self.state.wait_for(|state| !state.busy).await;
    }

    /// What ended up to now is about to be looked at.
    pub(super) fn take(&mut self) {
        self.taken = self.state.borrow().ended;
    }
}
