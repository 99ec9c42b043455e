//! The lease at work, over a register in memory that can be out of reach.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::ledger::PausedClock;
use super::throttle::seconds;
use crate::error::{Error, Kind, Result};
use crate::lease::{Entry, Record, Register, Standing, State, Written};
use crate::source::{Lease, Note};

/// The throttle's window.
const PER: u64 = 30;

#[derive(Debug, Default)]
struct InMemory {
    entry: Mutex<Option<Entry>>,
    is_down: AtomicBool,
    /// Whether it knows no writing on a condition.
    is_plain: AtomicBool,
    /// How long a reading takes.
    slowness: Mutex<Duration>,
    /// Readings that were begun and did not come to their end.
    under_way: AtomicUsize,
}

impl InMemory {
    fn record(&self) -> Record {
        let entry = self.entry.lock().unwrap();
        Record::parse(&entry.as_ref().unwrap().content, "memory").unwrap()
    }

    fn plain() -> Arc<InMemory> {
        Arc::new(InMemory { is_plain: true.into(), ..InMemory::default() })
    }

    fn go(&self, down: bool) {
        self.is_down.store(down, Ordering::Relaxed);
    }

    fn reached(&self) -> Result<()> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Lake, "no way"));
        }
        Ok(())
    }
}

impl Register for InMemory {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>>> {
        async {
            self.under_way.fetch_add(1, Ordering::Relaxed);
            let slowness = *self.slowness.lock().unwrap();
            tokio::time::sleep(slowness).await;
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            self.reached().map(|()| self.entry.lock().unwrap().clone())
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        content: Vec<u8>,
        known: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Written>> {
        async move {
            self.reached()?;
            if self.is_plain.load(Ordering::Relaxed) {
                return Ok(Written::Unsupported);
            }
            let mut entry = self.entry.lock().unwrap();
            let version = entry.as_ref().map(|entry| entry.version.clone());
            if version.as_deref() != known {
                return Ok(Written::Late);
            }
            let next = version.map_or(0, |version| version.parse::<u64>().unwrap()) + 1;
            *entry = Some(Entry { content, version: next.to_string() });
            Ok(Written::Done)
        }
        .boxed()
    }
}

/// What a lease told to be kept.
type Kept = Arc<Mutex<Vec<Standing>>>;

/// A process of the machine that has its ledger in `folder`.
fn process(register: &Arc<InMemory>, folder: &Path) -> (Lease, Kept) {
    let kept = Kept::default();
    let keep = {
        let kept = Arc::clone(&kept);
        Box::new(move |standing: Standing| {
            kept.lock().unwrap().push(standing);
            std::future::ready(()).boxed()
        })
    };
    let note = Note::beside(&folder.join("feed-calls")).unwrap();
    let register: Arc<dyn Register> = Arc::<InMemory>::clone(register);
    (Lease::new(register, note, seconds(PER), PausedClock::new("boot"), keep), kept)
}

#[tokio::test(start_paused = true)]
async fn the_feeds_are_ours_after_two_windows_and_are_given_back() {
    let (register, folder) = (Arc::new(InMemory::default()), tempfile::tempdir().unwrap());
    let (one, kept) = process(&register, folder.path());
    let begun = tokio::time::Instant::now();
    one.held().await.unwrap();
    assert!(begun.elapsed() >= seconds(2 * PER), "{:?}", begun.elapsed());
    one.release(None).await;
    assert!(register.record().released);
    let states: Vec<State> = kept.lock().unwrap().iter().map(|standing| standing.state).collect();
    assert_eq!(states, [State::Settling, State::Held, State::Released]);
}

#[tokio::test(start_paused = true)]
async fn what_renews_it_is_not_broken_off_when_it_is_given_back() {
    let (register, folder) = (Arc::new(InMemory::default()), tempfile::tempdir().unwrap());
    let (one, kept) = process(&register, folder.path());
    one.held().await.unwrap();
    *register.slowness.lock().unwrap() = seconds(2);
    while register.under_way.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(seconds(1) / 2).await;
    }
    one.release(None).await;
    assert!(register.record().released);
    assert_eq!(register.under_way.load(Ordering::Relaxed), 0);
    assert_eq!(kept.lock().unwrap().last().unwrap().state, State::Released);
}

#[tokio::test(start_paused = true)]
async fn a_register_that_hangs_holds_nobodys_end() {
    let (register, folder) = (Arc::new(InMemory::default()), tempfile::tempdir().unwrap());
    let (one, kept) = process(&register, folder.path());
    one.held().await.unwrap();
    *register.slowness.lock().unwrap() = seconds(3600);
    for _ in 0..2 {
        let begun = tokio::time::Instant::now();
        one.release(None).await;
        assert!(begun.elapsed() <= seconds(5), "{:?}", begun.elapsed());
    }
    let (hurried, _) = process(&register, folder.path());
    tokio::time::timeout(seconds(1), hurried.held()).await.unwrap_err();
    let begun = tokio::time::Instant::now();
    hurried.release(Some(begun + seconds(1))).await;
    assert!(begun.elapsed() <= seconds(1), "{:?}", begun.elapsed());
    assert!(!register.record().released);
    assert_ne!(kept.lock().unwrap().last().unwrap().state, State::Released);
    // Nothing of this process keeps the next one from it.
    *register.slowness.lock().unwrap() = Duration::ZERO;
    process(&register, folder.path()).0.held().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_the_last_process_of_a_machine_gives_it_back() {
    let (register, folder) = (Arc::new(InMemory::default()), tempfile::tempdir().unwrap());
    let (one, _) = process(&register, folder.path());
    let (two, _) = process(&register, folder.path());
    one.held().await.unwrap();
    let begun = tokio::time::Instant::now();
    two.held().await.unwrap();
    assert!(begun.elapsed() < seconds(PER), "they share the ledger");
    one.release(None).await;
    assert!(!register.record().released && two.is_held());
    two.release(None).await;
    assert!(register.record().released);
}

#[tokio::test(start_paused = true)]
async fn one_process_alone_goes_on_without_the_register_and_several_do_not() {
    let (register, folder) = (Arc::new(InMemory::default()), tempfile::tempdir().unwrap());
    let (one, kept) = process(&register, folder.path());
    one.held().await.unwrap();
    register.go(true);
    tokio::time::sleep(seconds(20 * PER)).await;
    assert!(one.is_held());
    let told = kept.lock().unwrap().last().and_then(Standing::problem).unwrap();
    assert!(told.contains("no way"), "{told}");
    // Another one begins: either may have reached the register, and told others what the other one does not know.
    let (two, _) = process(&register, folder.path());
    assert_eq!(two.held().await.unwrap_err().kind(), Kind::Lease);
    one.lost().await;
    register.go(false);
    one.comes().await;
    two.comes().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_known_and_takes_over_when_the_holder_falls_silent() {
    let register = Arc::new(InMemory::default());
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, _) = process(&register, folder.path());
    one.held().await.unwrap();
    let (two, kept) = process(&register, elsewhere.path());
    let refused = two.held().await.unwrap_err();
    assert!(refused.to_string().contains("one host at a time"), "{refused}");
    let is_known = || register.record().waiting().any(|(_, is_known)| is_known);
    while !is_known() {
        tokio::time::sleep(seconds(1)).await;
    }
    // As if it were killed.
    drop(one);
    let silent = tokio::time::Instant::now();
    two.comes().await;
    let took = silent.elapsed();
    assert!(took >= seconds(2 * PER) && took < seconds(4 * PER), "{took:?}");
    assert_eq!(kept.lock().unwrap().last().unwrap().state, State::Held);
}

#[tokio::test(start_paused = true)]
async fn where_no_lease_can_be_held_the_feeds_are_asked_without_one() {
    let (register, folder) = (InMemory::plain(), tempfile::tempdir().unwrap());
    let (one, kept) = process(&register, folder.path());
    let begun = tokio::time::Instant::now();
    one.held().await.unwrap();
    assert!(begun.elapsed() < seconds(PER), "{:?}", begun.elapsed());
    let standing = kept.lock().unwrap().last().cloned().unwrap();
    assert_eq!((standing.state, standing.problem()), (State::Unguarded, None));
    assert!(standing.caution().unwrap().contains("no other host may be configured"));
    // So does another process of this machine, and each goes on whatever becomes of the register.
    let (two, _) = process(&register, folder.path());
    two.held().await.unwrap();
    register.go(true);
    for _ in 0..20 * PER {
        tokio::time::sleep(seconds(1)).await;
        assert!(one.is_held() && two.is_held());
    }
    one.release(None).await;
    two.release(None).await;
    // The next one remembers that nobody else was there.
    let (three, _) = process(&register, folder.path());
    three.held().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_cannot_write_a_lease_leaves_the_feeds_to_who_holds_it() {
    let register = Arc::new(InMemory::default());
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, _) = process(&register, folder.path());
    one.held().await.unwrap();
    register.is_plain.store(true, Ordering::Relaxed);
    let (two, _) = process(&register, elsewhere.path());
    assert_eq!(two.held().await.unwrap_err().kind(), Kind::Lease);
    tokio::time::sleep(seconds(20 * PER)).await;
    assert!(!two.is_held() && one.is_held(), "what it holds nobody can take");
}
