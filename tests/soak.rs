//! What months do to the daemon, in minutes: many changes a second, faults, kills every few seconds, webhooks.
//!
//! Apart from the gate, with figures: `cargo test --release --test main -- --ignored soak --nocapture`;
//! `SOAK_SECONDS` (1200) says how long. `MIMALLOC_PURGE_DELAY=2` in the environment gives memory back as the program does
//! outside of tests.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use casemirror::sandbox::{Act, Facet, Fault, Options, Rule};
use serde_json::json;

use crate::support::follow::{change, lines, shown_cases};
use crate::support::{World, one};

/// Between two changes of the brokerage.
const CHANGES: Duration = Duration::from_millis(150);
/// The daemon lives for so long, and a little longer each time up to three times that.
const LIFE: Duration = Duration::from_secs(8);

/// Resident memory of a process in MB, 0 where it has gone.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Size of a folder with all that is in it, in MB.
fn size(folder: &Path) -> u64 {
    fn bytes(folder: &Path) -> u64 {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => bytes(&entry.path()),
                Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |file| file.len()),
                _ => 0,
            })
            .sum()
    }
    bytes(folder) >> 20
}

#[test]
#[ignore = "takes long: cargo test --release --test main -- --ignored soak --nocapture"]
fn soak() {
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(1200));
    let world = World::with(Options {
        cases: 60,
        gzip: false,
        webhook_minute: Duration::from_secs(1),
        ..Options::default()
    });
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // More rows leave within the hour than a brokerage of this size ever loses: the guard would rightly hold them.
    world.configure(&format!(
        "[reconcile]\nmax_removed = 1.0\n\
         [publish]\nmin_interval = \"2s\"\nparquet = \"\"\n\
         [serve]\nlisten = \"\"\nwebhooks = \"127.0.0.1:{port}\"\n\
         public_url = \"http://127.0.0.1:{port}/\"\n"
    ));
    world.sync();
    // Every twentieth call fails, in whatever way.
    for (nth, fault) in [
        (7, Fault::Refuse { status: 503, headers: [].into(), body: String::new() }),
        (11, Fault::CutOff { bytes: None }),
        (17, Fault::LoseAnswer),
    ] {
        for call in 0..20_u64 {
            let path = "/api/*".to_owned();
            let nth = nth + call * 997;
            world.sandbox.fault(Rule {
                method: None,
                path,
                query: None,
                nth,
                count: Some(1),
                fault: fault.clone(),
            });
        }
    }
    // What no date but `ModifiedDate` tells of is read by the next reconciliation.
    let narrow =
        [Facet::RoleRemoved, Facet::ImageReordered, Facet::FileElsewhere, Facet::FileShared];
    let told_by_dates: Vec<Facet> =
        Facet::ALL.into_iter().filter(|facet| !narrow.contains(facet)).collect();
    let cases = shown_cases(&world);
    let begun = Instant::now();
    let (mut told, mut kills, mut changes, mut most) = (BTreeSet::new(), 0_u32, 0_u64, 0);
    let mut figures = Instant::now();
    while begun.elapsed() < lasts {
        let mut daemon = world.start_daemon();
        let life = LIFE + LIFE * (kills % 3);
        let born = Instant::now();
        while born.elapsed() < life && begun.elapsed() < lasts {
            let nth = usize::try_from(changes).unwrap();
            let (facet, case_id) =
                (told_by_dates[nth % told_by_dates.len()], cases[nth % cases.len()]);
            change(&world, case_id, facet);
            if changes % 40 == 0 {
                world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
            }
            changes += 1;
            if changes % 7 == 0 {
                let id = i64::try_from(changes).unwrap();
                let payload = json!({ "CaseId": case_id, "Id": id, "Key": "k" });
                world.sandbox.act(&Act::emit("ChecklistItemChecked", payload)).unwrap();
                told.insert(id);
            }
            most = most.max(memory(daemon.id()));
            if figures.elapsed() > Duration::from_secs(60) {
                figures = Instant::now();
                println!(
                    "{:>5} s: {changes} changes, {kills} kills, memory {} MB, files {} MB",
                    begun.elapsed().as_secs(),
                    memory(daemon.id()),
                    size(&world.path("data"))
                );
            }
            std::thread::sleep(CHANGES);
        }
        daemon.signal("KILL");
        daemon.ends();
        kills += 1;
    }
    world.sandbox.clear_faults();
    let mut daemon = world.start_daemon();
    // A socket is there from the one that was killed.
    let log = world.path("daemon.log");
    daemon.wait_until("it runs", || fs::read_to_string(&log).unwrap().contains("running store="));
    assert!(
        world.wait(world.sandbox.wait_until_delivered()),
        "{:?}",
        world.sandbox.deliveries().counts
    );
    daemon.wait_until_idle();
    daemon.stop();
    world.sync();
    world.assert_equal();
    let kept = lines(&world.store(), "SELECT id FROM main.events ORDER BY id");
    let expected: Vec<String> = told.iter().map(|id| format!("{{'id': {id}}}")).collect();
    let counts = world.sandbox.deliveries().counts;
    println!(
        "{kills} kills, {changes} changes, {} events, {counts:?}, at most {most} MB",
        told.len()
    );
    // Subscriptions are made by the first daemon: what was emitted before reached nobody.
    let missing: Vec<&String> = expected.iter().filter(|id| !kept.contains(*id)).collect();
    assert!(missing.len() as u64 <= counts.not_sent + counts.failed, "{missing:?} {counts:?}");
    let doubled = "SELECT count(*) - count(DISTINCT id) FROM main.events";
    assert_eq!(one::<i64>(&world.store(), doubled), 0);
    let stats = world.sandbox.stats();
    assert_eq!(stats.feed.violations, 0, "{:?}", stats.feed);
    assert_eq!(stats.never_to_do, [""; 0]);
}
