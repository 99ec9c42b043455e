//! What the daemon is doing, for the caller of a command that takes its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::protocol::Frame;
use crate::progress::Now;
use crate::session::Session;

/// Between two frames: the caller decides itself how often it shows anything.
const EVERY: Duration = Duration::from_millis(250);

/// Whether the command has its turn. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    begun: Arc<AtomicBool>,
}

impl Turn {
    /// From here on what the daemon does is the command's.
    pub(super) fn begins(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

/// Looks at what is being done while a command has its turn.
pub(super) struct Telling {
    session: Arc<Session>,
    turn: Turn,
    ticks: Interval,
    told: Option<Now>,
}

impl Telling {
    pub(super) fn of(session: &Arc<Session>, turn: &Turn) -> Telling {
        let mut ticks = interval(EVERY);
        // A caller that reads slowly is told less, and nothing is kept for it.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Telling { session: Arc::clone(session), turn: turn.clone(), ticks, told: None }
    }

    /// Waits until there is something else to tell. May be dropped at any time.
    pub(super) async fn next(&mut self) -> Frame {
        loop {
            self.ticks.tick().await;
            let doing = if self.turn.has_begun() { self.session.doing() } else { None };
            if doing != self.told {
                self.told.clone_from(&doing);
                return Frame::Progress(doing);
            }
        }
    }
}
