//! The ledger at work: what it writes down before and after each call, and what a restart makes of it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::throttle::{PER, closest, rule, seconds};
use crate::error::Kind;
use crate::scope::FeedName;
use crate::source::boot::{BootClock, BootTime, Fate};
use crate::source::feed_calls::{Change, FeedCall, LedgerStore, MemoryLedger};
use crate::source::ledger::Ledger;

/// The runtime's clock, so that tests can pause it.
#[derive(Debug)]
pub(super) struct PausedClock {
    started: Instant,
    boot_id: String,
    /// Other threads have no clock that stands still.
    runtime: tokio::runtime::Handle,
}

impl PausedClock {
    pub(super) fn new(boot_id: &str) -> Arc<Self> {
        let (boot_id, runtime) = (boot_id.to_owned(), tokio::runtime::Handle::current());
        Arc::new(PausedClock { started: Instant::now(), boot_id, runtime })
    }
}

impl BootClock for PausedClock {
    fn now(&self) -> BootTime {
        let _runtime = self.runtime.enter();
        BootTime::from_nanos(1_000_000_000_000).later_by(self.started.elapsed())
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Its time leaps while another thread is waited for.
    fn has_slept(&self, _then: BootTime, _longest: Duration) -> bool {
        false
    }
}

/// The same clock where the boot has no name: each process calls it by its own.
#[derive(Debug)]
struct Nameless(Arc<PausedClock>, &'static str);

impl BootClock for Nameless {
    fn now(&self) -> BootTime {
        self.0.now()
    }

    fn boot_id(&self) -> &str {
        self.1
    }

    fn has_slept(&self, then: BootTime, longest: Duration) -> bool {
        self.0.has_slept(then, longest)
    }

    fn is_this_boot(&self, _boot_id: &str) -> bool {
        true
    }

    fn fate(&self, _boot_id: &str) -> Fate {
        Fate::MayLive
    }
}

/// A process of another time namespace: its clock is another, and nobody knows whether it lives.
#[derive(Debug)]
struct Beside(Arc<PausedClock>, &'static str, Duration);

impl BootClock for Beside {
    fn now(&self) -> BootTime {
        self.0.now().later_by(self.2)
    }

    fn boot_id(&self) -> &str {
        self.1
    }

    fn has_slept(&self, then: BootTime, longest: Duration) -> bool {
        self.0.has_slept(then, longest)
    }

    fn fate(&self, _boot_id: &str) -> Fate {
        Fate::MayLive
    }
}

/// A ledger of which nobody can tell who lives.
#[derive(Default)]
struct Opaque(MemoryLedger);

impl LedgerStore for Opaque {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> crate::error::Result<()> {
        self.0.update(step)
    }

    fn is_gone(&self, _call: &FeedCall) -> Option<bool> {
        None
    }
}

/// Two that go by clocks of their own and share a ledger.
fn side_by_side(limit: u32) -> [Ledger; 2] {
    let (store, clock) = (Arc::new(Opaque::default()), PausedClock::new(""));
    [("one", seconds(0)), ("two", seconds(7_000))].map(|(name, ahead)| {
        open(store.clone(), limit, Arc::new(Beside(Arc::clone(&clock), name, ahead)))
    })
}

fn open(store: Arc<dyn LedgerStore>, limit: u32, clock: Arc<impl BootClock + 'static>) -> Ledger {
    Ledger::open(store, rule(limit), seconds(60), clock).unwrap()
}

fn far() -> Instant {
    Instant::now() + seconds(1_000_000)
}

#[tokio::test(start_paused = true)]
async fn calls_at_the_same_time_never_exceed_the_window() {
    for seed in 0..8 {
        let ledger = open(Arc::new(MemoryLedger::new()), 6, PausedClock::new("boot"));
        never_exceed_the_window(&[ledger], seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_processes_that_go_by_other_clocks_never_exceed_the_window() {
    for seed in 0..8 {
        never_exceed_the_window(&side_by_side(6), seed).await;
    }
}

/// Forty calls at random by these ledgers, of which some are dropped.
async fn never_exceed_the_window(ledgers: &[Ledger], seed: u64) {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let mut random = StdRng::seed_from_u64(seed);
    let mut tasks = Vec::new();
    for call in 0..40 {
        let ledger = ledgers[call % ledgers.len()].clone();
        let arrivals = Arc::clone(&arrivals);
        let before = Duration::from_millis(random.random_range(0..20_000));
        let after = Duration::from_millis(random.random_range(0..20_000));
        let dropped = random.random_bool(0.2);
        tasks.push(tokio::spawn(async move {
            let permit = loop {
                ledger.ready(far()).await.unwrap();
                if let Some(permit) = ledger.begin(FeedName::Cases).await.unwrap() {
                    break permit;
                }
            };
            tokio::time::sleep(before).await;
            arrivals.lock().unwrap().push(Instant::now());
            if dropped {
                return;
            }
            tokio::time::sleep(after).await;
            permit.answered(200, Duration::ZERO).await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut arrivals = arrivals.lock().unwrap().clone();
    assert_eq!(arrivals.len(), 40);
    assert!(closest(&mut arrivals, 6) >= Some(PER), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_poll_never_waits() {
    let ledger = open(Arc::new(MemoryLedger::new()), 6, PausedClock::new("boot"));
    for poll in 0..60 {
        let feeds: &[FeedName] =
            if poll % 6 == 0 { &[FeedName::Cases, FeedName::Contacts] } else { &[FeedName::Cases] };
        for feed in feeds {
            let asked = Instant::now();
            ledger.ready(far()).await.unwrap();
            assert_eq!(asked.elapsed(), Duration::ZERO, "poll {poll}");
            let permit = ledger.begin(*feed).await.unwrap().expect("it may go");
            permit.answered(200, Duration::ZERO).await.unwrap();
        }
        tokio::time::sleep(seconds(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn processes_of_a_boot_without_a_name_hold_each_other_up_no_more_than_others() {
    let store = Arc::new(MemoryLedger::new());
    let clock = PausedClock::new("");
    let both = ["process-1", "process-2"]
        .map(|name| open(store.clone(), 6, Arc::new(Nameless(clock.clone(), name))));
    for poll in 0..60 {
        for ledger in &both {
            let asked = Instant::now();
            ledger.ready(far()).await.unwrap();
            assert_eq!(asked.elapsed(), Duration::ZERO, "poll {poll}");
            let permit = ledger.begin(FeedName::Cases).await.unwrap().expect("it may go");
            permit.answered(200, Duration::ZERO).await.unwrap();
        }
        tokio::time::sleep(seconds(11)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn processes_that_go_by_other_clocks_do_not_starve_each_other() {
    let both = side_by_side(6);
    for poll in 0..60 {
        for ledger in &both {
            let asked = Instant::now();
            ledger.ready(asked + seconds(300)).await.unwrap();
            assert_eq!(asked.elapsed(), Duration::ZERO, "poll {poll}");
            let permit = ledger.begin(FeedName::Cases).await.unwrap().expect("it may go");
            permit.answered(200, Duration::ZERO).await.unwrap();
        }
        tokio::time::sleep(seconds(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_is_in_the_store_before_the_call_is_sent_and_the_end_after_it() {
    let store = Arc::new(MemoryLedger::new());
    let ledger = open(store.clone(), 6, PausedClock::new("boot"));
    let permit = ledger.begin(FeedName::Contacts).await.unwrap().unwrap();
    let begun = store.calls();
    assert_eq!(begun.len(), 1);
    assert_eq!((begun[0].feed, &begun[0].end), (FeedName::Contacts, &None));
    permit.answered(429, seconds(60)).await.unwrap();
    let end = store.calls()[0].end.clone().unwrap();
    assert_eq!((end.status, end.retry_after), (Some(429), seconds(60)));
}

#[tokio::test(start_paused = true)]
async fn a_restart_knows_the_calls_and_the_hold_of_the_process_before() {
    let store = Arc::new(MemoryLedger::new());
    let clock = PausedClock::new("boot");
    let before = open(store.clone(), 2, clock.clone());
    let permit = before.begin(FeedName::Cases).await.unwrap().unwrap();
    permit.answered(200, Duration::ZERO).await.unwrap();
    // Killed in mid-call: nobody ends this one.
    std::mem::forget(before.begin(FeedName::Cases).await.unwrap().unwrap());

    let restarted = Instant::now();
    let after = open(store.clone(), 2, clock.clone());
    assert!(store.calls().iter().all(|call| call.end.is_some()));
    assert!(after.begin(FeedName::Cases).await.unwrap().is_none());
    after.ready(far()).await.unwrap();
    assert!(restarted.elapsed() >= PER - seconds(1));
    let permit = after.begin(FeedName::Cases).await.unwrap().unwrap();
    assert_eq!(store.calls().len(), 3);
    permit.answered(429, seconds(600)).await.unwrap();

    let held = open(store.clone(), 2, clock);
    let error = held.ready(Instant::now() + seconds(300)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Throttled);
    assert!(error.to_string().contains("another 600 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_mid_flight_is_ended_in_the_store() {
    let store = Arc::new(MemoryLedger::new());
    let ledger = open(store.clone(), 1, PausedClock::new("boot"));
    drop(ledger.begin(FeedName::Cases).await.unwrap().unwrap());
    ledger.flush().await;
    let end = store.calls()[0].end.clone().unwrap();
    assert_eq!(end.status, None);
    // It keeps its place for the whole window all the same.
    assert!(ledger.begin(FeedName::Cases).await.unwrap().is_none());
}

#[tokio::test]
async fn the_store_is_let_go_with_the_ledger() {
    let store = Arc::new(MemoryLedger::new());
    let ledger = open(store.clone(), 1, PausedClock::new("boot"));
    drop(ledger.begin(FeedName::Cases).await.unwrap().unwrap());
    drop(ledger);
    assert_eq!(Arc::strong_count(&store), 1);
    assert!(store.calls()[0].end.is_some());
}

/// A store whose disk is full.
struct FullDisk;

impl LedgerStore for FullDisk {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> crate::error::Result<()> {
        match step(&[])[..] {
            [] => Ok(()),
            _ => Err(crate::error::Error::new(Kind::DiskFull, "no space")),
        }
    }

    fn is_gone(&self, _call: &FeedCall) -> Option<bool> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_goes_that_cannot_be_written_down() {
    let ledger = open(Arc::new(FullDisk), 6, PausedClock::new("boot"));
    let error = ledger.begin(FeedName::Cases).await.err().unwrap();
    assert_eq!(error.kind(), Kind::DiskFull);
}

#[tokio::test(start_paused = true)]
async fn calls_that_do_not_come_back_are_spread_so_that_a_queue_cannot_let_many_go_at_once() {
    let ledger = open(Arc::new(MemoryLedger::new()), 6, PausedClock::new("boot"));
    let begun = Instant::now();
    let mut given_up = Vec::new();
    while begun.elapsed() < seconds(300) {
        ledger.ready(far()).await.unwrap();
        let Some(permit) = ledger.begin(FeedName::Cases).await.unwrap() else { continue };
        given_up.push(begun.elapsed());
        tokio::time::sleep(seconds(4)).await;
        permit.aborted().await.unwrap();
    }
    let within = given_up.iter().filter(|at| **at < seconds(300)).count();
    assert!(within <= 6, "{given_up:?}");
    // One that is answered ends it.
    ledger.ready(far()).await.unwrap();
    let permit = ledger.begin(FeedName::Cases).await.unwrap().unwrap();
    permit.answered(200, Duration::ZERO).await.unwrap();
    let answered = Instant::now();
    ledger.ready(far()).await.unwrap();
    let permit = ledger.begin(FeedName::Cases).await.unwrap().unwrap();
    permit.aborted().await.unwrap();
    ledger.ready(far()).await.unwrap();
    assert!(answered.elapsed() < PER, "{:?}", answered.elapsed());
}

/// A clock that goes on by so much whenever the ledger has been written.
#[derive(Debug, Default)]
struct Leaps {
    now: AtomicI64,
    by: AtomicI64,
}

impl BootClock for Leaps {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.now.load(Ordering::SeqCst))
    }

    fn boot_id(&self) -> &str {
        "boot"
    }
}

struct Sleeps(MemoryLedger, Arc<Leaps>);

impl LedgerStore for Sleeps {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> crate::error::Result<()> {
        self.0.update(step)?;
        self.1.now.fetch_add(self.1.by.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn is_gone(&self, call: &FeedCall) -> Option<bool> {
        self.0.is_gone(call)
    }
}

#[tokio::test]
async fn a_call_before_which_the_machine_slept_is_not_sent_as_if_nothing_had_happened() {
    let clock = Arc::new(Leaps::default());
    let store = Arc::new(Sleeps(MemoryLedger::new(), Arc::clone(&clock)));
    let ledger = open(store.clone(), 6, Arc::clone(&clock));
    clock.by.store(59_000_000_000, Ordering::SeqCst);
    let permit = ledger.begin(FeedName::Cases).await.unwrap().unwrap();
    permit.answered(200, Duration::ZERO).await.unwrap();
    clock.by.store(60_000_000_000, Ordering::SeqCst);
    assert!(ledger.begin(FeedName::Cases).await.unwrap().is_none());
    let calls = store.0.calls();
    assert!(calls.len() == 2 && calls.iter().all(|call| call.end.is_some()), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_another_process_made_up_gives_way_to_the_real_one() {
    let (store, clock) = (Arc::new(MemoryLedger::new()), PausedClock::new("boot"));
    let ledger = open(store.clone(), 6, Arc::clone(&clock));
    let permit = ledger.begin(FeedName::Cases).await.unwrap().unwrap();
    // To it whoever else has the ledger is gone.
    let _other = open(store.clone(), 6, Arc::clone(&clock));
    let made_up = store.calls()[0].end.clone().unwrap().time;
    tokio::time::advance(seconds(200)).await;
    permit.answered(200, Duration::ZERO).await.unwrap();
    let real = store.calls()[0].end.clone().unwrap();
    assert!(real.time > made_up && real.status == Some(200), "{real:?}");
    // What the source says holds also where the real end is the earlier one.
    let permit = ledger.begin(FeedName::Cases).await.unwrap().unwrap();
    let _other = open(store.clone(), 6, Arc::clone(&clock));
    let made_up = store.calls()[1].end.clone().unwrap();
    permit.answered(429, seconds(600)).await.unwrap();
    let real = store.calls()[1].end.clone().unwrap();
    assert_eq!((real.time, real.status, real.retry_after), (made_up.time, Some(429), seconds(600)));
}
