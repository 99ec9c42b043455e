//! `casemirror run`: one process that holds the store, follows the source and serves the other
//! commands.
//!
//! ```text
//!   poller ──► seen ──► worker: cycles and jobs, in turn ──► store ──► publisher ──► files
//!                          ▲
//!   other commands ──► socket
//! ```
//!
//! The poller asks the feeds at their intervals, whatever else goes on; what it sees is fetched before
//! the rest by the cycle under way. The worker decides from the store what to do next
//! (`decide`), the publisher from what was published when (`pace`).
//!
//! Work on tables that no cycle writes can go on beside the worker as one more task: in a run and a
//! loader of the writer of its own ([`crate::mirror::Loader`]), listening to the same signals.

mod account;
mod activity;
mod decide;
mod forward;
mod hinting;
mod lake;
mod notify;
mod pace;
mod patience;
mod place;
mod poller;
mod printer;
mod protocol;
mod publisher;
mod server;
mod stopping;
mod subscribing;
mod telling;
#[cfg(feature = "sandbox")]
#[cfg(test)]
mod tests;
mod troubles;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub(crate) use forward::{answers, forward};
pub(crate) use printer::Printer;
pub(crate) use protocol::Keys;

use crate::alert::{LONGEST_MESSAGE, Watch};
use crate::cycle::{Controls, Interrupt, Options, Signals};
use crate::error::{Error, Kind, Result};
use crate::hints::{Address, HintQueue};
use crate::http::{self, Face, Hooks};
use crate::pulse::Pulse;
use crate::session::{Ran, Session};

use activity::Activity;
use hinting::{Asks, Hinting};
use lake::LakePublisher;
use notify::{Manager, Part};
use patience::{Recovery, Trouble};
use place::Bound;
use poller::Poller;
use publisher::Publisher;
use server::Server;
pub(crate) use stopping::Interrupts;
use subscribing::Subscribing;
use worker::Worker;

/// Jobs that wait for their turn; further callers wait before they get in.
const MOST_JOBS: usize = 16;

/// At the end, what is just being told to people is waited for so long,
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// and that the daemon cannot go on: a message, and a look before it.
const LONGEST_LAST_LOOK: Duration = LONGEST_MESSAGE.saturating_add(Duration::from_secs(1));

/// A command that works on the store: in a process of its own, or, where the daemon holds the store,
/// in the daemon.
///
/// To make another command one of them: give its arguments `Serialize` and `Deserialize`, name it in
/// [`Forwarded::in_turn`] and in [`Forwarded::execute`].
pub(crate) trait Forwarded: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Whether it takes turns with the daemon's cycles, because it writes what they write: then its caller sees
    /// its progress. What only reads, or writes to tables of its own, runs beside them.
    fn in_turn(&self) -> bool;

    /// Does the work; returns the exit status.
    fn execute(self, host: Host, out: Printer) -> impl Future<Output = Result<u8>> + Send;
}

/// Where a command works.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) session: Arc<Session>,
    /// What it has to listen to.
    pub(crate) signals: Signals,
    /// The daemon's, where it is one.
    controls: Option<Arc<Controls>>,
    /// What polls up to this number moved has been planned.
    handled: Option<i64>,
    /// When the daemon's parts last did what they are for, where it is one.
    pub(crate) pulse: Option<Arc<Pulse>>,
}

impl Host {
    /// A process of the command's own, which `controls` stop.
    pub(crate) fn own(session: Arc<Session>, controls: &Controls) -> Host {
        Host { session, signals: controls.listen(), controls: None, handled: None, pulse: None }
    }

    /// # Errors
    /// `Cancelled` where the work was asked to stop: nothing more may be begun.
    pub(crate) fn goes_on(&self) -> Result<()> {
        if self.signals.interrupt() == Interrupt::Cancel { Err(worker::stopped()) } else { Ok(()) }
    }

    /// Runs cycles for `command` and publishes until everything that `options` ask for is done.
    ///
    /// # Errors
    /// Those of [`Session::sync`], `Cancelled` when the daemon stops.
    pub(crate) async fn run(&self, command: &str, mut options: Options) -> Result<Ran> {
        options.handled = self.handled;
        let mut verifying = None;
        let signals = || self.signals.clone();
        let stops = |error: Error| match error.kind() {
            // Whatever it was doing, publishing included.
            Kind::Cancelled if self.signals.interrupt() == Interrupt::Cancel => worker::stopped(),
            _ => error,
        };
        let ran = self.session.sync(command, options.clone(), signals(), &mut verifying).await;
        let mut ran = ran.map_err(stops)?;
        while ran.report.interrupted {
            self.goes_on()?;
            // A schedule fell due in the meantime: the next cycle of a whole `sync` begins with it, a
            // part goes on. What `--full` asks for is in the store already.
            options.full = false;
            options.handled = self.handled.map(|_| ran.report.handled);
            if let Some(journals) = &mut options.journals {
                journals.planned = true;
            }
            if let Some(controls) = &self.controls {
                controls.set(Interrupt::None);
            }
            let later =
                self.session.sync(command, options.clone(), signals(), &mut verifying).await;
            let later = later.map_err(stops)?;
            let mut report = ran.report;
            report.continue_with(later.report);
            let verified = later.verified.or(ran.verified);
            let published = later.published.or(ran.published);
            ran = Ran { report, verified, published, nothing_listed: later.nothing_listed };
        }
        Ok(ran)
    }
}

/// Runs the daemon until `interrupts` tell it to stop. Commands of type `C` are taken over from other processes.
///
/// # Errors
/// What ends it: the credentials are refused or the source does not speak our language at the start,
/// the store is another tenant's, a defect; `Cancelled` on the second signal. `begins_anew`: whether a process that has
/// lost its store is begun anew now, which nobody needs to be told of.
pub(crate) async fn run<C: Forwarded>(
    session: Session,
    interrupts: Interrupts,
    begins_anew: fn() -> bool,
) -> Result<()> {
    let bound = Bound::at(&place::of(session.store().path()))?;
    let session = Arc::new(session);
    let controls = Arc::new(Controls::new(&session.polls().notifier));
    let pulse = Arc::new(Pulse::default());
    let face = face_of(&session, &pulse).await?;
    let hooks = hooks_of(&session).await?;
    let (jobs, inbox) = mpsc::channel(MOST_JOBS);
    let server = Server {
        host: Host {
            session: Arc::clone(&session),
            signals: controls.listen(),
            controls: None,
            handled: None,
            pulse: Some(Arc::clone(&pulse)),
        },
        jobs,
    };
    let manager = Arc::new(Manager::of_environment(&session.config().limits));
    tracing::info!(
        store = %session.store().path().display(),
        source = %session.config().source.base_url,
        "running"
    );
    manager.ready();
    let mut signals = controls.listen();
    let tasks = async {
        tokio::try_join!(
            server.run::<C>(bound),
            run_tasks(
                Arc::clone(&session),
                Arc::clone(&controls),
                inbox,
                (pulse, face),
                hooks,
                Arc::clone(&manager),
                begins_anew
            ),
            async {
                poller::stop(&mut signals).await;
                manager.stopping();
                Ok(())
            }
        )
    };
    interrupts.stop(&session, &controls, tasks).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Runs poller, worker and publisher; returns when all have stopped, or one cannot go on.
async fn run_tasks(
    session: Arc<Session>,
    controls: Arc<Controls>,
    inbox: mpsc::Receiver<worker::Job>,
    (pulse, face): (Arc<Pulse>, Option<Served>),
    hooks: Option<Hooked>,
    manager: Arc<Manager>,
    begins_anew: fn() -> bool,
) -> Result<()> {
    let activity = Arc::new(Activity::default());
    let (polled, was_polled) = watch::channel(false);
    let watch = Watch::over(Arc::clone(&session), Arc::clone(&pulse))?;
    let mut signals = controls.listen();
    let (failed, fails) = oneshot::channel();
    let watch = Task(tokio::spawn(watch.run(async move {
        tokio::select! {
            Ok(kind) = fails => Some(kind),
            () = poller::stop(&mut signals) => None,
        }
    })));
    // It is looked at for as long as anything is done.
    let _face = face.map(|(face, bound)| Task(tokio::spawn(face.serve(bound))));
    let asks = Arc::new(Asks::default());
    let hooks = hooks.map(|hooked| {
        let Hooked { queue, hooks, bound, subscribed } = hooked;
        let asks = Arc::clone(&asks);
        let hinting = Hinting { session: Arc::clone(&session), queue: queue.clone(), asks };
        // They are kept for as long as anything is done, and followed after the next start.
        let served = Task(tokio::spawn(hooks.serve(bound)));
        let subscribed = subscribed.map(|address| {
            let subscribing = Subscribing { session: Arc::clone(&session), address, queue };
            Task(tokio::spawn(subscribing.run()))
        });
        ((served, subscribed), Task(tokio::spawn(hinting.run(controls.listen()))))
    });
    let (_hooks, hinting) = hooks.unzip();
    let hinting = async {
        match hinting {
            Some(hinting) => hinting.ends().await,
            None => Ok(()),
        }
    };
    let poller = Poller {
        session: Arc::clone(&session),
        controls: Arc::clone(&controls),
        polled,
        pulse: Arc::clone(&pulse),
        asks,
        polling: AtomicUsize::new(0),
    };
    let worker = Worker {
        session: Arc::clone(&session),
        controls: Arc::clone(&controls),
        inbox,
        polled: was_polled,
        activity: Arc::clone(&activity),
        manager: Arc::clone(&manager),
        pulse,
    };
    let lake = session.config().has_lake().then(|| {
        let lake = LakePublisher { session: Arc::clone(&session), controls: Arc::clone(&controls) };
        Task(tokio::spawn(lake.run()))
    });
    let lake = async {
        match lake {
            Some(lake) => lake.ends().await,
            None => Ok(()),
        }
    };
    let publisher = Publisher { session, controls, activity };
    let (work_ended, ends) = oneshot::channel::<()>();
    let poller = Task(tokio::spawn(async move { manager.watch(Part::Poller, poller.run()).await }));
    let worker = Task(tokio::spawn(async move {
        let ended = worker.run().await;
        drop(work_ended);
        ended
    }));
    let publisher = Task(tokio::spawn(async move {
        // Dropped is ended too.
        let work_ends = async { drop(ends.await) };
        publisher.run(work_ends).await
    }));
    let ended = tokio::try_join!(poller.ends(), worker.ends(), publisher.ends(), hinting, lake);
    let longest = match &ended {
        // Somebody may just be told something.
        Ok(_) => LONGEST_LOOK,
        Err(error) if error.kind() == Kind::StoreDown && begins_anew() => Duration::ZERO,
        Err(error) => {
            // Who does not listen any more has been told to stop.
            let _ = failed.send(error.kind());
            LONGEST_LAST_LOOK
        }
    };
    let _ = tokio::time::timeout(longest, watch.ends()).await;
    ended.map(drop)
}

/// The face, and where it is served.
type Served = (Face, http::Bound);

/// The status page and what belongs to it, where it is served. The usual address may be another daemon's, one
/// that somebody has chosen may not.
async fn face_of(session: &Arc<Session>, pulse: &Arc<Pulse>) -> Result<Option<Served>> {
    let config = session.config();
    let Some(address) = config.serve.listen else { return Ok(None) };
    let bound = match http::Bound::to(address, "serve.listen").await {
        Ok(bound) => bound,
        Err(error) if !config.is_chosen("serve.listen") => {
            tracing::warn!(
                reason = error.chain(),
                "there is no status page; serve.listen chooses another address"
            );
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    tracing::info!(page = http::address(bound.address()?), "the status page is served");
    let face = Face::of(Arc::clone(session), Arc::clone(pulse), http::Metrics::install()?);
    Ok(Some((face, bound)))
}

/// What takes webhooks, and where.
struct Hooked {
    queue: HintQueue,
    hooks: Hooks,
    bound: http::Bound,
    /// Where the platform is told to send them, if it is.
    subscribed: Option<Address>,
}

/// What webhooks told before the last end is taken up; where they are taken, an address that somebody has chosen
/// must be free.
async fn hooks_of(session: &Arc<Session>) -> Result<Option<Hooked>> {
    session.forget_subscribing().await?;
    let left = session.take_left_hints().await?;
    let Some(address) = session.config().serve.webhooks else { return Ok(None) };
    let bound = http::Bound::to(address, "serve.webhooks").await?;
    let queue = left.map_or_else(|| session.hint_queue(), Ok)?;
    let token = session.webhook_token()?;
    // Whoever reads this may ask for their address (`casemirror webhooks url`).
    tracing::info!(address = %bound.address()?, "webhooks are taken");
    let zone = session.config().source.time_zone.clone();
    let public = session.config().serve.public_url.as_ref();
    let subscribed = public.map(|url| Address::below(url, token.clone()));
    let hooks = Hooks::of(queue.clone(), token, zone);
    Ok(Some(Hooked { queue, hooks, bound, subscribed }))
}

/// A task that ends when it is no longer waited for.
struct Task(JoinHandle<Result<()>>);

impl Task {
    async fn ends(mut self) -> Result<()> {
        match (&mut self.0).await {
            Ok(ended) => ended,
            Err(panicked) => Err(Error::caused(Kind::Internal, "a part of it broke", panicked)),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether trying again cannot help. Credentials that were taken once may be taken again: somebody is
/// changing them, or it is a firewall that refuses. At the start they are a mistake in the configuration.
fn ends_the_daemon(error: &Error, credentials_were_taken: bool) -> bool {
    match error.kind() {
        // Somebody else starts it anew, with threads that live and a store that is open.
        Kind::Dead | Kind::StoreDown | Kind::StoreGone => true,
        Kind::Tenant | Kind::StoreNewer | Kind::StoreOlder | Kind::Config => true,
        Kind::Credentials => !credentials_were_taken,
        _ => false,
    }
}

fn say_trouble(what: &str, error: &Error, trouble: Trouble) {
    let Trouble { wait, failures, say } = trouble;
    if say {
        tracing::warn!(failures, ?wait, reason = error.chain(), "{what} failed, trying again");
    } else {
        tracing::debug!(failures, ?wait, reason = error.chain(), "{what} failed again");
    }
}

fn say_recovery(what: &str, recovery: Option<Recovery>) {
    if let Some(Recovery { failures, lasted }) = recovery {
        let lasted = humantime::format_duration(Duration::from_secs(lasted.as_secs()));
        tracing::info!(failures, %lasted, "{what} works again");
    }
}
