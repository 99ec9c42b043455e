//! What a cycle listens to while it works: newer changes, and the wish that it ends early.

use tokio::sync::watch;

/// Whether a cycle may go on. Later ones are stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Halt {
    Go,
    /// Other work waits: what follows the changes ends where it can be taken up again without loss.
    Yield,
    /// The process ends: nothing new is begun, what is under way is finished.
    Stop,
}

/// The cycle's end.
#[derive(Debug, Clone)]
pub struct Signals {
    news: watch::Receiver<i64>,
    halt: watch::Receiver<Halt>,
}

/// The number of the last page of a feed that moved something. Clones tell the same listeners.
#[derive(Debug, Clone)]
pub struct News(watch::Sender<i64>);

/// The other end.
#[derive(Debug)]
pub struct Controls {
    news: News,
    halt: watch::Sender<Halt>,
}

impl Default for News {
    fn default() -> News {
        News(watch::Sender::new(0))
    }
}

impl News {
    /// A page that moved something was committed under this number.
    pub fn tell(&self, sequence: i64) {
        self.0.send_if_modified(|known| {
            let newer = sequence > *known;
            *known = sequence.max(*known);
            newer
        });
    }
}

impl Controls {
    /// Cycles that listen to it hear these news.
    pub fn new(news: &News) -> Controls {
        Controls { news: news.clone(), halt: watch::Sender::new(Halt::Go) }
    }

    /// Lets cycles go on, or not. There is no way back from [`Halt::Stop`].
    pub fn set(&self, halt: Halt) {
        self.halt.send_if_modified(|now| {
            let changes = *now != Halt::Stop && *now != halt;
            if changes {
                *now = halt;
            }
            changes
        });
    }

    /// A listener.
    pub fn listen(&self) -> Signals {
        Signals { news: self.news.0.subscribe(), halt: self.halt.subscribe() }
    }
}

impl Signals {
    /// Of a run that nobody interrupts.
    pub fn none() -> Signals {
        Controls::new(&News::default()).listen()
    }

    /// The number of the last poll that moved something.
    pub fn news(&self) -> i64 {
        *self.news.borrow()
    }

    pub fn halt(&self) -> Halt {
        *self.halt.borrow()
    }

    /// Waits for news beyond `handled`, or for a halt stronger than `halt`. For ever, where nobody
    /// is left to say so.
    pub async fn beyond(&mut self, handled: i64, halt: Halt) {
        let Signals { news, halt: halts } = self;
        tokio::select! {
            () = until(news, |news| *news > handled) => {}
            () = until(halts, |now| *now > halt) => {}
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
        let news = News::default();
        let controls = Controls::new(&news);
        let mut signals = controls.listen();
        news.tell(3);
        news.tell(2);
        assert_eq!(signals.news(), 3);
        signals.beyond(2, Halt::Go).await;
        controls.set(Halt::Stop);
        controls.set(Halt::Go);
        signals.beyond(3, Halt::Yield).await;
        let nothing = tokio::time::timeout(
            std::time::Duration::from_millis(20),
            signals.beyond(3, Halt::Stop),
        );
        assert!(nothing.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_nobody_interrupts_waits_for_ever() {
        let mut signals = Signals::none();
        let day = std::time::Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, signals.beyond(0, Halt::Go)).await.is_err());
    }
}
