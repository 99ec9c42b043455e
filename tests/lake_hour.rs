//! An hour of the lake, in as much time as is given: a living brokerage, readers that never rest, publishings that are
//! killed at random moments.
//!
//! Apart from the gate, with figures: `cargo test --release --test main -- --ignored lake_hour --nocapture`;
//! `LAKE_HOUR_SECONDS` (3600) says how long.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemirror::sandbox::{Act, Facet};
use duckdb::Connection;

use crate::support::follow::{UNTHROTTLED, change, shown_cases};
use crate::support::lake::LakeWorld;
use crate::support::postgres::Postgres;

const READERS: usize = 20;
/// Between two changes of the brokerage.
const CHANGES: Duration = Duration::from_millis(300);
/// Of so many publishings one is killed: after a failure the daemon waits, and the next ones shall get through.
const KILL_ONE_OF: u64 = 3;
/// A publishing takes about so long.
const PUBLISHING: Duration = Duration::from_millis(2500);
/// One query that reads the snapshot's name from tables that are written first and last, and from a table between them.
const READ: &str = "SELECT a.snapshot_id, a.snapshot_id = b.snapshot_id AND costs.n > 0 \
    FROM lake.sync.lake_snapshot a, lake.sync.snapshot b, (SELECT count(amount) AS n FROM lake.main.costs) costs";
/// A reader looks at what it has for so long at most. Without this, twenty of them on the few cores of one machine keep
/// the mirror itself from working.
const LOOKING: Duration = Duration::from_secs(8);

/// What all readers saw.
#[derive(Default)]
struct Seen {
    queries: AtomicU64,
    snapshots: Mutex<BTreeSet<String>>,
    failures: Mutex<Vec<String>>,
}

impl Seen {
    fn read(&self, conn: &Connection) {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let read: duckdb::Result<(String, bool)> =
            conn.query_row(READ, [], |row| Ok((row.get(0)?, row.get(1)?)));
        match read {
            Ok((id, true)) => {
                self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
            }
            Ok((id, false)) => self.fail(format!("{id} beside another snapshot")),
            Err(e) => self.fail(e.to_string()),
        }
    }

    fn fail(&self, what: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn figures(&self) -> String {
        let of = |count: usize, what: &str| format!("{count} {what}");
        [
            of(usize::try_from(self.queries.load(Ordering::Relaxed)).unwrap(), "queries"),
            of(self.snapshots.lock().unwrap().len(), "snapshots seen"),
            of(self.failures.lock().unwrap().len(), "failures"),
        ]
        .join(", ")
    }
}

/// The process of a publishing that this daemon has begun.
fn publishing(daemon: u32) -> Option<u32> {
    let children = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        // Its parent is the second word behind the name, which is in brackets.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: u32 = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
        let words = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        (parent == daemon && words.contains("publish") && !words.contains("--lease")).then_some(id)
    });
    children.into_iter().next()
}

#[test]
#[ignore = "takes an hour: cargo test --release --test main -- --ignored lake_hour --nocapture"]
fn lake_hour() {
    let seconds = std::env::var("LAKE_HOUR_SECONDS").ok().and_then(|text| text.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(3600));
    let postgres = Postgres::start().expect("PostgreSQL is there");
    let lake = LakeWorld::in_postgres(60, &postgres, "hour").expect("the extensions are there");
    lake.configure(
        // More rows leave within the hour than a brokerage of this size ever loses: the guard would rightly hold them.
        &format!(
            "{UNTHROTTLED}[reconcile]\nmax_removed = 1.0\n[publish]\nmin_interval = \"2s\"\nparquet = \"\"\n"
        ),
        "interval = \"5s\"\n",
    );
    lake.world.sync();
    lake.assert_equal();
    let (seen, over, readers) = (Seen::default(), AtomicBool::new(false), lake.readers());
    let (mut kills, mut begun_publishings, mut changes) = (0_u64, 0_u64, 0_usize);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (readers, seen, over) = (&readers, &seen, &over);
            scope.spawn(move || {
                // Most of them hold on to their connection, as a pool does.
                let mut conn = readers.connect();
                while !over.load(Ordering::Relaxed) {
                    seen.read(&conn);
                    std::thread::sleep(LOOKING.mul_f64(rand::random()));
                    if reader % 10 == 0 {
                        conn = readers.connect();
                    }
                }
            });
        }
        let mut daemon = lake.world.start_daemon();
        let cases = shown_cases(&lake.world);
        let (begun, mut changed, mut told) = (Instant::now(), Instant::now(), Instant::now());
        let (mut last, mut ends_at) = (None, None);
        while begun.elapsed() < lasts {
            if changed.elapsed() >= CHANGES {
                changed = Instant::now();
                let facet = Facet::ALL[changes % Facet::ALL.len()];
                change(&lake.world, cases[changes % cases.len()], facet);
                if changes % 40 == 0 {
                    let new = Act::NewCase { project: false, assignment: None };
                    lake.world.sandbox.act(&new).unwrap();
                }
                changes += 1;
            }
            let now = publishing(daemon.id());
            if now.is_some() && now != last {
                begun_publishings += 1;
                let part = PUBLISHING.mul_f64(rand::random::<f64>());
                ends_at = (begun_publishings % KILL_ONE_OF == 0).then(|| Instant::now() + part);
            }
            last = now;
            if let (Some(process), Some(at)) = (now, ends_at)
                && Instant::now() >= at
            {
                let killed = Command::new("kill").args(["-9", &process.to_string()]).status();
                kills += u64::from(killed.is_ok_and(|status| status.success()));
                ends_at = None;
            }
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                println!(
                    "{:>5} s: {changes} changes, {begun_publishings} publishings, {kills} killed, {}",
                    begun.elapsed().as_secs(),
                    seen.figures()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon.wait_for_socket();
        daemon.stop();
        over.store(true, Ordering::Relaxed);
    });
    lake.world.sync();
    lake.assert_equal();
    println!(
        "{changes} changes, {begun_publishings} publishings, {kills} killed, {}",
        seen.figures()
    );
    assert_eq!(*seen.failures.lock().unwrap(), Vec::<String>::new());
    assert!(kills > 0 && seen.snapshots.lock().unwrap().len() > 1, "nothing was tried");
}
