//! The sandbox: a simulated brokerage behind the platform's API.
//!
//! Part of the product: `casemirror demo` and `casemirror sandbox` run it, tests and benches use it
//! in process. It serves what is mirrored, and the documented writes that move it, strictly as the
//! reference describes them; its cases live; tests order changes and faults from it, and compare
//! the mirror with its own [`state`](Sandbox::state).
//!
//! ```text
//! world/    offices, people, cases; history from a seed; what happens to them; the lagging index
//! records/  the world's things as the API's records
//! odata/    $filter, $orderby, $top, $skip, $select, counts
//! api/      routes, tokens, permissions, the feed and its throttle, searches, writes
//! deliveries/  webhooks and domain events on their way to subscribers
//! control   what tests order, in Rust and under /sandbox
//! ```

pub(crate) mod api;
pub(crate) mod control;
mod deliveries;
pub(crate) mod faults;
mod listener;
pub(crate) mod odata;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod spoil;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod throttle;
pub(crate) mod wire;
pub(crate) mod world;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::{Error, Kind, Result};
use api::token::Tokens;
use control::Knobs;
use deliveries::outbox::Outbox;
use faults::Faults;
use listener::{Line, Listener};
use stats::Stats;
use throttle::{Throttle, ThrottleStyle};
use wire::Ticks;
use world::{Lag, Size, World};

pub use api::journals::{HeavyAnswer, HeavyJournal, JournalPaging};
pub use control::Control;
pub use deliveries::{Deliveries, Delivery, DeliveryCounts, DeliveryOutcome};
pub use faults::{Fault, Rule, When};
pub use spoil::Spoil;
#[cfg(test)]
pub(crate) use stats::{FeedStats, Report};
pub use world::journals::{Journal, JournalEdit, Level};
pub use world::{Act, Facet, ListEdit, Outcome};

/// How a sandbox is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A path in front of the API, such as `/flow`; empty for none.
    pub base_path: String,
    /// Number of cases that the world begins with.
    pub cases: usize,
    /// The same seed gives the same world, also another tenant.
    pub seed: u64,
    /// The instant at which the world's history ends and its life begins, as ISO 8601. None: now.
    pub origin: Option<String>,
    /// How long after a change the searches learn of it.
    pub search_lag: Duration,
    /// How long an access token is taken.
    pub token_lifetime: Duration,
    /// How long a refresh token is taken.
    pub refresh_token_lifetime: Duration,
    /// The feeds' throttle: this many calls in any window of `feed_per`, both feeds together.
    pub feed_calls: u32,
    /// The window of `feed_calls`.
    pub feed_per: Duration,
    /// How a call that is too many is told so.
    pub throttle_style: ThrottleStyle,
    /// The largest `$top` by kind of endpoint; beyond it the answer is 400.
    pub max_top: MaxTop,
    /// How list endpoints page, the searches and the feeds excepted.
    pub paging: Paging,
    /// How often something happens of its own accord; None: nothing does.
    pub live: Option<Duration>,
    /// Whether answers are compressed for callers that accept it.
    pub gzip: bool,
    /// Lines of the revenue journal per office and month, a tenth of it in the other journals; None:
    /// in proportion to the cases.
    pub journal_lines: Option<usize>,
    /// How the journals page at first; [`Control::JournalPaging`] changes it.
    pub journal_paging: JournalPaging,
    /// A journal that cannot be read at once; [`Control::HeavyJournal`] changes it.
    pub heavy_journal: Option<HeavyJournal>,
    /// Whether there is `GET /api/Offices`.
    pub lists_offices: bool,
    /// Where the extended entry definitions are found.
    pub definitions_at: DefinitionsAt,
    /// What a minute of the webhooks' retry table lasts.
    pub webhook_minute: Duration,
    /// How long a subscriber may take to answer.
    pub webhook_limit: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            base_path: String::new(),
            cases: 500,
            seed: 1,
            origin: None,
            search_lag: Duration::ZERO,
            token_lifetime: Duration::from_secs(1200),
            refresh_token_lifetime: Duration::from_secs(8 * 3600),
            feed_calls: 6,
            feed_per: Duration::from_secs(30),
            throttle_style: ThrottleStyle::RetryAfter,
            max_top: MaxTop::default(),
            paging: Paging::Odata,
            live: None,
            gzip: true,
            journal_lines: None,
            journal_paging: JournalPaging::default(),
            heavy_journal: None,
            lists_offices: true,
            definitions_at: DefinitionsAt::Both,
            webhook_minute: Duration::from_secs(60),
            webhook_limit: Duration::from_secs(5),
        }
    }
}

/// The largest `$top` that is taken.
#[derive(Debug, Clone, Copy)]
pub struct MaxTop {
    /// Of the three advanced searches.
    pub search: usize,
    /// Of the two feeds, in the OData style.
    pub feed: usize,
    /// Of all other lists.
    pub lists: usize,
}

impl Default for MaxTop {
    fn default() -> MaxTop {
        MaxTop { search: 1000, feed: 1000, lists: 500 }
    }
}

/// How list endpoints page (field notes, "Paging").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    /// All OData parameters are read.
    Odata,
    /// Only `$top` and `$skip` are read.
    SkipOnly,
    /// Everything is returned, whatever is asked.
    IgnoresPaging,
}

/// The addresses of the extended entry definitions (reference 4.8, field notes "Other calls seen").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionsAt {
    Both,
    /// The reference's.
    Bookkeeping,
    /// The other one.
    Economics,
}

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) faults: Faults,
    /// The world's own; here so that nobody needs the world's lock to deliver.
    pub(crate) outbox: Outbox,
    base_url: String,
    world: Mutex<World>,
    throttle: Mutex<Throttle>,
    stats: Mutex<Stats>,
    tokens: Mutex<Tokens>,
    knobs: Mutex<Knobs>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another call leaves nothing half-done that would matter here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    pub(crate) fn throttle(&self) -> MutexGuard<'_, Throttle> {
        lock(&self.throttle)
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        lock(&self.stats)
    }

    pub(crate) fn tokens(&self) -> MutexGuard<'_, Tokens> {
        lock(&self.tokens)
    }

    pub(crate) fn knobs(&self) -> MutexGuard<'_, Knobs> {
        lock(&self.knobs)
    }

    /// The time at the server, as its `Date` header says it.
    pub(crate) fn server_time(&self) -> Ticks {
        let skew = self.knobs().date_skew_ms;
        self.world().now().plus_ms(skew)
    }
}

/// A running sandbox. It ends when it is stopped or dropped.
#[derive(Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    life: Option<JoinHandle<()>>,
    post: JoinHandle<()>,
}

impl Sandbox {
    /// Builds the world and starts to serve it.
    ///
    /// # Errors
    /// [`Kind::Io`] where the address cannot be listened at, [`Kind::Usage`] where `origin` is no
    /// date-time or `base_path` no path.
    pub async fn start(options: Options) -> Result<Sandbox> {
        let base_path = options.base_path.trim_end_matches('/').to_owned();
        if !base_path.is_empty() && !base_path.starts_with('/') {
            return Err(Error::new(Kind::Usage, "the sandbox's base path has to begin with /"));
        }
        let origin = match &options.origin {
            None => Ticks::of(chrono::Utc::now()),
            Some(text) => Ticks::parse(text, false).ok_or_else(|| {
                Error::new(Kind::Usage, format!("'{text}' is no ISO 8601 date-time"))
            })?,
        };
        let failed = |source: std::io::Error| {
            Error::caused(Kind::Io, format!("cannot listen at {}", options.listen), source)
        };
        let listener = tokio::net::TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;

        let size = Size { cases: options.cases, journal_lines: options.journal_lines };
        let world = World::new(options.seed, origin, size, Lag::By(options.search_lag));
        let shared = Arc::new(Shared {
            faults: Faults::default(),
            outbox: world.outbox.clone(),
            base_url: format!("http://{address}{base_path}"),
            world: Mutex::new(world),
            throttle: Mutex::new(Throttle::new(
                options.feed_calls,
                options.feed_per,
                options.throttle_style,
            )),
            stats: Mutex::new(Stats::default()),
            tokens: Mutex::new(Tokens::new(&options)),
            knobs: Mutex::new(Knobs::new(&options)),
            options: Options { base_path, ..options },
        });

        let router = api::router(shared.clone());
        let service = router.into_make_service_with_connect_info::<Line>();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let serve = axum::serve(Listener(listener), service);
            // A dropped sender stops the server too.
            let serve = serve.with_graceful_shutdown(async move {
                let _ = stopped.await;
            });
            if let Err(error) = serve.await {
                tracing::error!(%error, "the sandbox's server ended");
            }
        });
        let life = shared.options.live.map(|every| tokio::spawn(live(shared.clone(), every)));
        let post = tokio::spawn(deliveries::post::run(shared.clone()));
        Ok(Sandbox { shared, address, stop: Some(stop), server, life, post })
    }

    /// The base URL of the API, without a slash at its end.
    pub fn base_url(&self) -> &str {
        &self.shared.base_url
    }

    /// The URL below which the control endpoints are (`.../sandbox/state`), without a slash.
    #[cfg(test)]
    pub(crate) fn control_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The API user's client id.
    pub fn client_id(&self) -> String {
        self.shared.tokens().client_id().to_owned()
    }

    /// The API user's client secret; the same for a seed.
    pub fn client_secret(&self) -> String {
        self.shared.tokens().client_secret().to_owned()
    }

    /// Stops serving: held calls are let go, open ones get a moment to end.
    pub async fn stop(mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
        self.post.abort();
        self.shared.faults.clear();
        self.stop.take();
        let _ = tokio::time::timeout(Duration::from_secs(2), &mut self.server).await;
        self.server.abort();
    }

    /// Waits until the server ends, which it does when the sandbox is dropped elsewhere or fails.
    pub(crate) async fn serve(&mut self) {
        let _ = (&mut self.server).await;
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
        self.post.abort();
        self.shared.faults.clear();
    }
}

async fn live(shared: Arc<Shared>, every: Duration) {
    let mut clock = tokio::time::interval(every);
    // The first tick of an interval comes at once; the world begins still.
    clock.tick().await;
    loop {
        clock.tick().await;
        shared.world().tick();
    }
}

#[cfg(test)]
mod tests;
