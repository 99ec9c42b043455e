//! Holds the lease of the change feeds: reads the register, writes what the rule of [`crate::lease`] says, and tells
//! whoever wants to ask a feed whether they are ours.

mod note;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::boot::BootClock;
use super::ledger::LONGEST_GRACE;
use crate::error::{Error, Kind, Result};
use crate::lease::{Host, Party, Register, Stand, Standing, State, Tenure, Written};

pub(crate) use note::Note;

use note::User;

/// How long a holder goes on without having renewed, where `feed.per` is as long or longer.
const LONGEST_VALID: Duration = Duration::from_secs(30);
const SHORTEST_VALID: Duration = Duration::from_secs(2);
/// One reading or writing takes no longer, or it has failed.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(10);
/// Giving it back takes no longer.
const LONGEST_RELEASE: Duration = Duration::from_secs(5);
/// How often one turn begins anew because somebody else was faster.
const RACES: usize = 5;
/// No nap is longer: a machine that was suspended wakes late otherwise.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Keeps how the lease stands.
pub(crate) type Keep = Box<dyn Fn(Standing) -> BoxFuture<'static, ()> + Send + Sync>;

/// The lease of the configured API user. Clones share it. Nothing is called before the feeds are to be asked.
#[derive(Clone)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
    task: Arc<Task>,
}

/// What renews it, until nobody has the lease any more.
#[derive(Default)]
struct Task(Mutex<Option<JoinHandle<()>>>);

impl Task {
    fn get(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = self.get().take() {
            task.abort();
        }
    }
}

struct Shared {
    register: Arc<dyn Register>,
    me: Host,
    clock: Arc<dyn BootClock>,
    note: Note,
    /// Since this process holds the lease or waits for it.
    user: Mutex<Option<User>>,
    tenure: Mutex<Tenure>,
    /// Why the register could not be reached when it was tried last.
    error: Mutex<Option<String>>,
    kept: tokio::sync::Mutex<Option<Standing>>,
    keep: Keep,
    /// Counts turns.
    turned: watch::Sender<u64>,
    /// No turn is to follow the one under way.
    ending: Notify,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.shared.register).finish()
    }
}

impl Lease {
    /// `per`: the window of the feeds' throttle. `note`: what this machine remembers of it.
    pub(crate) fn new(
        register: Arc<dyn Register>,
        note: Note,
        per: Duration,
        clock: Arc<dyn BootClock>,
        keep: Keep,
    ) -> Lease {
        let boot = clock.boot_id().to_owned();
        let me = Party {
            host: Host { machine: note.machine().to_owned(), boot: boot.clone() },
            name: note::name_of_this_process(),
        };
        let valid_for = per.clamp(SHORTEST_VALID, LONGEST_VALID);
        // What the holder before gave up or was killed with may still arrive; then it counts for a window.
        let settling = LONGEST_GRACE.min(per).max(valid_for) + per + per / 100;
        let host = me.host.clone();
        let tenure = Tenure::new(me, valid_for, settling, note.is_alone(&register.place(), &boot));
        let shared = Shared {
            register,
            me: host,
            clock,
            note,
            user: Mutex::default(),
            tenure: Mutex::new(tenure),
            error: Mutex::default(),
            kept: tokio::sync::Mutex::default(),
            keep,
            turned: watch::Sender::new(0),
            ending: Notify::new(),
        };
        Lease { shared: Arc::new(shared), task: Arc::default() }
    }

    /// Waits until the feeds may be asked from here.
    ///
    /// # Errors
    /// `Lease`: another host asks them, or may.
    pub(crate) async fn held(&self) -> Result<()> {
        self.begin();
        let mut turned = self.shared.turned.subscribe();
        loop {
            let turns = *turned.borrow_and_update();
            match self.shared.stand() {
                Stand::Ours | Stand::Unguarded => return Ok(()),
                Stand::Settling => {}
                // Not looked at yet.
                Stand::Unknown if turns == 0 => {}
                stand => return Err(self.shared.refused(&stand)),
            }
            let _ = tokio::time::timeout(LONGEST_NAP, turned.changed()).await;
        }
    }

    /// Waits until the feeds are ours, however long that takes.
    pub(crate) async fn comes(&self) {
        self.begin();
        let mut turned = self.shared.turned.subscribe();
        while !self.is_held() {
            let _ = tokio::time::timeout(LONGEST_NAP, turned.changed()).await;
        }
    }

    /// Waits until the feeds are ours no more: what is under way is to be given up.
    pub(crate) async fn lost(&self) {
        let mut turned = self.shared.turned.subscribe();
        while self.is_held() {
            let ends_at = self.shared.tenure().ends_at();
            let left = ends_at.map(|at| at.saturating_sub(self.shared.now()));
            let nap = left.map_or(LONGEST_NAP, |left| left.clamp(LONGEST_NAP / 100, LONGEST_NAP));
            let _ = tokio::time::timeout(nap, turned.changed()).await;
        }
    }

    /// Whether a feed may be asked this moment.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.stand().may_ask()
    }

    /// Gives it back, so that another host can take it at once, where no other process of this one has it too. No call
    /// may be under way. It is left where it is not done in time.
    pub(crate) async fn release(&self, by: Option<Instant>) {
        let task = self.task.get().take();
        let Some(task) = task else { return };
        if let Err(error) = self.shared.end(task, by).await {
            tracing::warn!(
                error = error.chain(),
                "the lease of the change feeds is not given back: another host waits until this one is silent for long enough"
            );
        }
    }

    fn begin(&self) {
        let mut task = self.task.get();
        if task.is_none() {
            let shared = Arc::clone(&self.shared);
            *task = Some(tokio::spawn(async move { shared.go_on().await }));
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.clock.now().as_nanos()).unwrap_or(0))
    }

    fn tenure(&self) -> MutexGuard<'_, Tenure> {
        // Each change of it is whole.
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self) -> Stand {
        self.tenure().stand(self.now())
    }

    fn user(&self) -> MutexGuard<'_, Option<User>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the turn under way end, and gives the lease back where this was the last process of its host.
    async fn end(&self, mut task: JoinHandle<()>, by: Option<Instant>) -> Result<()> {
        let longest = Instant::now() + LONGEST_RELEASE;
        let until = by.map_or(longest, |by| by.min(longest));
        self.ending.notify_one();
        // A turn that is broken off may leave the register closed, and to open it again takes long.
        let ended = timeout_at(until, &mut task).await;
        if ended.is_err() {
            task.abort();
            // What it was about to write is written, or not.
            let _ = task.await;
        }
        let Some(user) = self.user().take() else { return Ok(()) };
        let Some(_last) = self.note.leave(user)? else { return Ok(()) };
        let given = match ended {
            Ok(_) => timeout_at(until, self.give_back()).await.map_err(|_| self.late())??,
            Err(_) => return Err(self.late()),
        };
        if let Some(standing) = given {
            self.keep_this(standing).await;
        }
        Ok(())
    }

    async fn go_on(&self) {
        // Who looks once does not wait for its turn.
        let mut announces = false;
        loop {
            self.turn(announces).await;
            announces = true;
            self.keep_this(self.standing()).await;
            self.turned.send_modify(|turns| *turns += 1);
            let pause = self.tenure().pause(self.now());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.ending.notified() => return,
            }
        }
    }

    /// Reads the register, and writes what the rule says.
    async fn turn(&self, announces: bool) {
        for _ in 0..RACES {
            let began = self.now();
            match self.attempt(announces).await {
                Ok(Written::Done | Written::Unsupported) => {
                    *self.error() = None;
                    return;
                }
                Ok(Written::Late) => {}
                Err(error) => {
                    let is_alone = self.is_alone().unwrap_or(false);
                    self.tenure().failed(began, is_alone);
                    *self.error() = Some(error.chain());
                    return;
                }
            }
        }
        // Without a writing of its own it ends by itself.
        *self.error() = Some(self.raced().chain());
    }

    /// Whether no other process of this machine can have told others that this host would give way.
    fn is_alone(&self) -> Result<bool> {
        let is_sole = match &*self.user() {
            Some(user) => self.note.is_sole(user)?,
            None => false,
        };
        Ok(is_sole && self.note.is_alone(&self.register.place(), &self.me.boot))
    }

    async fn attempt(&self, announces: bool) -> Result<Written> {
        if self.user().is_none() {
            let user = self.note.enter()?;
            let giving_back = || Error::new(Kind::Lease, "another process just gives it back");
            *self.user() = Some(user.ok_or_else(giving_back)?);
        }
        let found = self.in_time(self.register.record()).await?;
        let (record, version) = found.unzip();
        let now = self.now();
        let (next, is_alone) = {
            let mut tenure = self.tenure();
            (tenure.turn(now, record.as_ref(), announces), tenure.is_alone())
        };
        let Some(next) = next else {
            self.remember(false)?;
            return Ok(Written::Done);
        };
        // Before anybody can read that it is so no more.
        if !is_alone {
            self.remember(false)?;
        }
        let began = self.now();
        let written = self.in_time(self.register.put(&next, version.as_deref())).await?;
        let is_alone = {
            let mut tenure = self.tenure();
            match written {
                Written::Done => tenure.wrote(began, self.now(), &next),
                Written::Late => return Ok(written),
                Written::Unsupported => tenure.unsupported(began),
            }
            tenure.is_alone()
        };
        self.remember(is_alone)?;
        Ok(written)
    }

    /// Writes that this host does not have it any more, and does not wait for it. How it stands then; `None`: nothing
    /// was to be written.
    async fn give_back(&self) -> Result<Option<Standing>> {
        for _ in 0..RACES {
            let Some((record, version)) = self.register.record().await? else { return Ok(None) };
            let next = if record.holder.host == self.me {
                record.given_back()
            } else {
                record.without(&self.me)
            };
            if next == record {
                return Ok(None);
            }
            self.remember(false)?;
            match self.register.put(&next, Some(&version)).await? {
                Written::Late => {}
                Written::Unsupported => return Ok(None),
                Written::Done => {
                    return Ok(Some(Standing {
                        state: if next.released { State::Released } else { State::Others },
                        holder: Some(next.holder.name),
                        ..self.standing()
                    }));
                }
            }
        }
        Err(self.raced())
    }

    fn raced(&self) -> Error {
        let text = format!("others write {} all the time", self.register.place());
        Error::new(Kind::Lease, text)
    }

    fn late(&self) -> Error {
        Error::new(Kind::Lease, format!("{} does not answer in time", self.register.place()))
    }

    /// That the register was reached, and whether this host is alone there.
    fn remember(&self, is_alone: bool) -> Result<()> {
        self.note.reached(&self.register.place(), is_alone, &self.me.boot)
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        match tokio::time::timeout(LONGEST_ATTEMPT, call).await {
            Ok(done) => done,
            Err(_) => Err(self.late()),
        }
    }

    fn standing(&self) -> Standing {
        let (state, holder) = match self.stand() {
            Stand::Ours => (State::Held, None),
            Stand::Unguarded => (State::Unguarded, None),
            Stand::Settling => (State::Settling, None),
            Stand::Others { holder, .. } => (State::Others, Some(holder)),
            Stand::Unknown => (State::Unknown, None),
        };
        let (place, error) = (self.register.place(), self.error().clone());
        Standing { place, state, holder, since: now_to_the_second(), error }
    }

    async fn keep_this(&self, standing: Standing) {
        let mut kept = self.kept.lock().await;
        if kept.as_ref().is_some_and(|kept| kept.says_as(&standing)) {
            return;
        }
        // Nothing is said of what is as usual.
        let is_recovery = kept
            .as_ref()
            .is_some_and(|before| before.state == State::Settling || before.problem().is_some());
        match (standing.problem().or(standing.caution()), standing.waits()) {
            (Some(told), _) => tracing::warn!("{told}"),
            (None, Some(waits)) => tracing::info!("{waits}"),
            (None, None) if standing.state == State::Held && is_recovery => tracing::info!(
                place = standing.place,
                "the change feeds are asked from here: the lease is held"
            ),
            (None, None) => {}
        }
        (self.keep)(standing.clone()).await;
        *kept = Some(standing);
    }

    fn refused(&self, stand: &Stand) -> Error {
        let mut text = self.standing().problem().unwrap_or_default();
        if let Stand::Others { renewed_at, silent_for, takes_over: false, .. } = stand
            && *silent_for > LONGEST_VALID * 2
        {
            text += &format!(
                "; it is silent since {renewed_at}, and did not know that anybody else waits: where it is gone for \
                 good, `casemirror lease --release` lets others take it"
            );
        }
        Error::new(Kind::Lease, text)
    }
}

/// For people.
fn now_to_the_second() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
