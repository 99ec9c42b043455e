//! The daemon as a service: what systemd is told, and the unit that starts it.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use casemirror::sandbox::Facet;

use crate::support::follow::{calls, change, hold, shown_cases, unthrottled};
use crate::support::{World, shown};

/// Short, so that the end of it can be waited for; many times the 500 ms between two polls.
const WATCHDOG_US: &str = "3000000";
/// Polls that take longer than that.
const POLLS: u64 = 10;

/// Stands for the service manager: listens all the time, as systemd does.
struct Manager {
    heard: Receiver<String>,
    path: String,
}

impl Manager {
    fn of(world: &World) -> Manager {
        let path = world.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            let mut text = [0; 256];
            while let Ok(length) = socket.recv(&mut text) {
                let told = String::from_utf8_lossy(&text[..length]).trim().to_owned();
                if tell.send(told).is_err() {
                    break;
                }
            }
        });
        Manager { heard, path: path.display().to_string() }
    }

    fn environment(&self) -> [(&str, &str); 2] {
        [("NOTIFY_SOCKET", &self.path), ("WATCHDOG_USEC", WATCHDOG_US)]
    }

    /// What was told since the last time.
    fn told(&self) -> Vec<String> {
        self.heard.try_iter().collect()
    }
}

fn eager() -> World {
    let world = World::with(unthrottled(12));
    world.configure_eager("");
    world
}

/// How often the feed of the cases was asked.
fn polls(world: &World) -> u64 {
    let path = "GET /api/Integrations/RecentlyModified/Cases";
    calls(world).get(path).copied().unwrap_or(0)
}

#[test]
fn a_service_manager_hears_that_the_daemon_is_ready_gets_on_and_stops() {
    let world = eager();
    let manager = Manager::of(&world);
    let mut daemon = world.start_daemon_in(&manager.environment(), &[]);
    let mut told = Vec::new();
    daemon.wait_until("it says something", || {
        told.extend(manager.told());
        !told.is_empty()
    });
    assert_eq!(told[0], "READY=1");
    // By then commands are taken.
    let socket = world.path("data/store.duckdb.sock");
    assert!(std::os::unix::net::UnixStream::connect(socket).is_ok());
    daemon.wait_until_idle();
    manager.told();
    let mut signs = 0;
    daemon.wait_until("it gets on while there is nothing to do", || {
        signs += manager.told().iter().filter(|text| *text == "WATCHDOG=1").count();
        signs >= 3
    });
    daemon.signal("TERM");
    let stopping = manager.heard.iter().find(|text| text == "STOPPING=1");
    assert!(stopping.is_some());
    assert_eq!(daemon.ends().code(), Some(0), "{}", daemon.log());
}

#[test]
fn the_watchdog_is_not_fed_while_the_work_hangs_though_the_feed_is_polled() {
    let world = eager();
    let manager = Manager::of(&world);
    let patient = ["--set", "limits.timeout=10m"];
    let mut daemon = world.start_daemon_in(&manager.environment(), &patient);
    daemon.wait_for_socket();
    daemon.wait_until("everything is mirrored", || {
        let status = world.run(&["status", "--json", patient[0], patient[1]]);
        status.status.code() == Some(0) && shown(&status).contains("\"complete\": true")
    });
    let case_id = shown_cases(&world)[3];
    hold(&world, "call", &format!("/api/Cases/{case_id}/Activities"), 1);
    change(&world, case_id, Facet::Activity);
    assert!(world.wait(world.sandbox.wait_until_held("call")));
    // From now on no answer comes. The search that its lag makes due is the worker's last sign, and soon that is too
    // old.
    let mut silent_since = polls(&world);
    daemon.wait_until(
        "it is not fed while it is polled for longer than the watchdog bears",
        || {
            let polls = polls(&world);
            if !manager.told().is_empty() {
                silent_since = polls;
            }
            polls >= silent_since + POLLS
        },
    );

    world.sandbox.release("call");
    let mut told = Vec::new();
    daemon.wait_until("it is fed again", || {
        told.extend(manager.told());
        told.contains(&"WATCHDOG=1".to_owned())
    });
    daemon.stop();
}

fn unit() -> String {
    format!("{}/packaging/casemirror.service", env!("CARGO_MANIFEST_DIR"))
}

/// systemd's own judgement of the unit, where systemd is.
#[test]
fn the_unit_is_right_and_little_is_left_open() {
    let folder = tempfile::tempdir().unwrap();
    // The program need not be installed.
    let text = std::fs::read_to_string(unit()).unwrap();
    let installed = text.replace("/usr/bin/casemirror", env!("CARGO_BIN_EXE_casemirror"));
    assert_ne!(text, installed);
    // It would hide the kernel's name of this boot, by which the throttle's ledger knows how old its calls are.
    assert!(!text.lines().any(|line| line.trim() == "ProcSubset=pid"));
    let path = folder.path().join("casemirror.service");
    std::fs::write(&path, installed).unwrap();
    let Some(verified) = analyze(&["verify", "--man=no"], &path) else { return };
    assert_eq!(verified, "");
    let security = analyze(&["security", "--offline=true", "--no-pager"], &path).unwrap();
    let level = security.lines().find_map(|line| line.split("casemirror.service: ").nth(1));
    let level: f64 = level.unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(level < 2.0, "{security}");
}

/// What `systemd-analyze` says; `None` where there is none.
fn analyze(args: &[&str], unit: &Path) -> Option<String> {
    let output = Command::new("systemd-analyze").args(args).arg(unit).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8(text).unwrap())
}
