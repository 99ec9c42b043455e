//! Commands that find the store open in another process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};

use duckdb::Connection;

use crate::support::World;
use crate::support::follow::start;

/// What a command says, once, that waits for another.
const WAITS: &str = "waiting up to 10 seconds for it to be let go";

/// Holds the store as a command does that only looks for a moment: in this process, without a socket.
fn held(world: &World) -> Connection {
    Connection::open(world.path("data/store.duckdb")).unwrap()
}

/// A command that waits for the store, with what it has written to stderr and goes on writing there.
struct Waiting {
    child: Child,
    said: String,
    lines: BufReader<ChildStderr>,
}

impl Waiting {
    fn start(world: &World, args: &[&str]) -> Waiting {
        let mut child = start(world, args);
        let lines = BufReader::new(child.stderr.take().unwrap());
        let mut waiting = Waiting { child, said: String::new(), lines };
        while !waiting.said.contains(WAITS) {
            let read = waiting.lines.read_line(&mut waiting.said).unwrap();
            assert_ne!(read, 0, "it ended:\n{}", waiting.said);
        }
        waiting
    }

    /// Its exit status, and all that it said.
    fn ends(mut self) -> (Option<i32>, String) {
        self.lines.read_to_string(&mut self.said).unwrap();
        (self.child.wait().unwrap().code(), self.said)
    }
}

fn terminate(child: &Child) {
    let sent = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_sync_goes_on_when_the_store_is_let_go() {
    let world = World::unthrottled(5);
    world.bootstrap();
    let holder = held(&world);
    let sync = Waiting::start(&world, &["sync"]);
    drop(holder);
    let (status, said) = sync.ends();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(&format!("PID {}", std::process::id())), "{said}");
    assert_eq!(said.matches("is held").count(), 1, "{said}");
    world.assert_equal();
}

#[test]
fn a_daemon_begins_when_the_store_is_let_go() {
    let world = World::unthrottled(5);
    world.configure_eager("");
    world.bootstrap();
    let holder = held(&world);
    let mut daemon = world.start_daemon();
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    daemon.wait_until("it waits", || log().contains(WAITS));
    drop(holder);
    daemon.wait_until_idle();
    daemon.stop();
    assert_eq!(log().matches("is held").count(), 1, "{}", log());
}

#[test]
fn waiting_for_the_store_is_ended_by_a_signal() {
    let world = World::unthrottled(5);
    world.bootstrap();
    let _holder = held(&world);
    for (command, status) in [("sync", 1), ("run", 0)] {
        let waiting = Waiting::start(&world, &[command]);
        terminate(&waiting.child);
        let (ended, said) = waiting.ends();
        assert_eq!(ended, Some(status), "{said}");
        assert!(said.contains("stopped while waiting for the store"), "{said}");
    }
}

#[test]
fn a_second_daemon_does_not_wait_for_the_first() {
    let world = World::unthrottled(5);
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let second = world.run(&["run"]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("is held by") && !said.contains(WAITS), "{said}");
    daemon.stop();
}
