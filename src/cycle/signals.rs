//! What a cycle listens to while it works: newer changes, and the wish that it ends early.

use tokio::sync::watch;

/// Whether a cycle may go on. Later ones are stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interrupt {
    None,
    /// Other work waits: what follows the changes ends where it can be taken up again without loss.
    Preempt,
    /// The process ends: nothing new is begun, what is under way is finished.
    Cancel,
}

/// The cycle's end.
#[derive(Debug, Clone)]
pub struct Signals {
    latest: watch::Receiver<i64>,
    interrupt: watch::Receiver<Interrupt>,
    /// Whether who asked for the work waits for it no more.
    left: watch::Receiver<bool>,
}

/// The number of the last page of a feed that moved something. Clones tell the same listeners.
#[derive(Debug, Clone)]
pub struct Notifier(watch::Sender<i64>);

/// The other end.
#[derive(Debug)]
pub(crate) struct Controls {
    notifier: Notifier,
    interrupt: watch::Sender<Interrupt>,
}

impl Default for Notifier {
    fn default() -> Notifier {
        Notifier(watch::Sender::new(0))
    }
}

impl Notifier {
    /// A page that moved something was committed under this number.
    pub(crate) fn notify(&self, sequence: i64) {
        self.0.send_if_modified(|known| {
            let newer = sequence > *known;
            *known = sequence.max(*known);
            newer
        });
    }
}

impl Controls {
    /// Cycles that listen to it hear of these pages.
    pub(crate) fn new(notifier: &Notifier) -> Controls {
        Controls { notifier: notifier.clone(), interrupt: watch::Sender::new(Interrupt::None) }
    }

    /// Cycles that listen to it hear of no page: each polls for itself, and follows what came until then.
    pub(crate) fn alone() -> Controls {
        Controls::new(&Notifier::default())
    }

    /// Lets cycles go on, or not. There is no way back from [`Interrupt::Cancel`].
    pub(crate) fn set(&self, interrupt: Interrupt) {
        self.interrupt.send_if_modified(|now| {
            let changes = *now != Interrupt::Cancel && *now != interrupt;
            if changes {
                *now = interrupt;
            }
            changes
        });
    }

    /// A listener.
    pub(crate) fn listen(&self) -> Signals {
        let (_, stays) = watch::channel(false);
        Signals {
            latest: self.notifier.0.subscribe(),
            interrupt: self.interrupt.subscribe(),
            left: stays,
        }
    }
}

impl Signals {
    /// Of a run that nobody interrupts.
    pub fn none() -> Signals {
        Controls::alone().listen()
    }

    /// The same, of work that nobody needs once `left` holds: it is cancelled then.
    pub(crate) fn until_left(self, left: watch::Receiver<bool>) -> Signals {
        Signals { left, ..self }
    }

    /// The number of the last poll that moved something.
    pub(crate) fn latest(&self) -> i64 {
        *self.latest.borrow()
    }

    pub(crate) fn interrupt(&self) -> Interrupt {
        if *self.left.borrow() { Interrupt::Cancel } else { *self.interrupt.borrow() }
    }

    /// Waits for a page beyond `handled`, or for an interrupt stronger than `interrupt`. For ever, where nobody
    /// is left to say so.
    pub(crate) async fn beyond(&mut self, handled: i64, interrupt: Interrupt) {
        let Signals { latest, interrupt: interrupts, left } = self;
        tokio::select! {
            () = until(latest, |latest| *latest > handled) => {}
            () = until(interrupts, |now| *now > interrupt) => {}
            () = until(left, |left| *left), if interrupt < Interrupt::Cancel => {}
        }
    }
}

async fn until<T>(changes: &mut watch::Receiver<T>, wanted: impl FnMut(&T) -> bool) {
    if changes.wait_for(wanted).await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_is_newer_or_stronger_wakes() {
        let notifier = Notifier::default();
        let controls = Controls::new(&notifier);
        let mut signals = controls.listen();
        notifier.notify(3);
        notifier.notify(2);
        assert_eq!(signals.latest(), 3);
        signals.beyond(2, Interrupt::None).await;
        controls.set(Interrupt::Cancel);
        controls.set(Interrupt::None);
        signals.beyond(3, Interrupt::Preempt).await;
        let nothing = tokio::time::timeout(
            std::time::Duration::from_millis(20),
            signals.beyond(3, Interrupt::Cancel),
        );
        assert!(nothing.await.is_err());
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_cancelled_and_other_work_is_not() {
        let controls = Controls::alone();
        let (leaves, left) = watch::channel(false);
        let (mut asked, own) = (controls.listen().until_left(left), controls.listen());
        assert_eq!(asked.interrupt(), Interrupt::None);
        leaves.send_replace(true);
        asked.beyond(0, Interrupt::Preempt).await;
        assert_eq!((asked.interrupt(), own.interrupt()), (Interrupt::Cancel, Interrupt::None));
        controls.set(Interrupt::Preempt);
        assert_eq!(asked.interrupt(), Interrupt::Cancel, "not weaker than that it was left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_nobody_interrupts_waits_for_ever() {
        let mut signals = Signals::none();
        let day = std::time::Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, signals.beyond(0, Interrupt::None)).await.is_err());
    }
}
