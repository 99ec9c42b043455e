//! A daemon under test: started, watched through what others see of it, stopped.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::World;
use super::follow::UNTHROTTLED;

/// Long enough for a slow machine; what does not come by then does not come.
const LONGEST: Duration = Duration::from_secs(240);
const LOG: &str = "daemon.log";

/// A daemon that asks and publishes as often as it may.
pub(crate) const EAGER: &str = "poll = \"500ms\"\ncontacts_poll = \"500ms\"\n\
                         [publish]\nmin_interval = \"1s\"\nparquet_interval = \"1s\"\n";

/// `casemirror run`; killed when it is dropped.
pub(crate) struct Daemon<'w> {
    world: &'w World,
    child: Child,
}

impl World {
    /// Settings of an eager daemon in a world without a throttle, and some more.
    pub(crate) fn configure_eager(&self, more: &str) {
        self.configure(&format!("{UNTHROTTLED}{EAGER}{more}"));
    }

    /// Starts `run`, its log in a file.
    pub(crate) fn start_daemon(&self) -> Daemon<'_> {
        self.start_daemon_with(&[])
    }

    /// The same with more on its command line.
    pub(crate) fn start_daemon_with(&self, more: &[&str]) -> Daemon<'_> {
        self.start_daemon_in(&[], more)
    }

    /// The same with more in its environment.
    pub(crate) fn start_daemon_in(
        &self,
        environment: &[(&str, &str)],
        more: &[&str],
    ) -> Daemon<'_> {
        let mut command = self.command(&[&["run"], more].concat());
        command.envs(environment.iter().copied());
        self.start_as_daemon(command)
    }

    /// A daemon that fails to write where a file would become too large, as on a full disk.
    pub(crate) fn start_daemon_on_a_disk(&self) -> Daemon<'_> {
        let run = self.command(&["run"]);
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" run"]).arg(run.get_program());
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.folder.path());
        self.start_as_daemon(command)
    }

    /// Starts that, its log in a file.
    pub(crate) fn start_as_daemon(&self, mut command: Command) -> Daemon<'_> {
        let log = File::create(self.path(LOG)).unwrap();
        let child = command.stderr(log).spawn().unwrap();
        Daemon { world: self, child }
    }
}

impl Daemon<'_> {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        File::open(self.world.path(LOG)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until something holds, while the daemon lives.
    pub(crate) fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended ({status}) before {what}:\n{}", self.log());
            }
            assert!(start.elapsed() < LONGEST, "not in time: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until its socket is there.
    pub(crate) fn wait_for_socket(&mut self) {
        let socket = self.world.path("data/store.duckdb.sock");
        self.wait_until("the socket is there", || socket.exists());
    }

    /// Waits until everything is mirrored, and nothing is pending.
    pub(crate) fn wait_until_idle(&mut self) {
        self.wait_for_socket();
        let world = self.world;
        self.wait_until("everything is mirrored", || {
            let output = world.run(&["status", "--json"]);
            if output.status.code() != Some(0) {
                return false;
            }
            let status: Value = serde_json::from_slice(&output.stdout).unwrap();
            status["complete"] == true && status["runs"][0]["ended_at"].is_string()
        });
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LONGEST, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it by SIGTERM; it has to end well, and to leave no socket.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let status = self.ends();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        assert!(!self.world.path("data/store.duckdb.sock").exists());
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(id: u32, name: &str) {
    let id = id.to_string();
    let sent = std::process::Command::new("kill").args(["-s", name, &id]).status().unwrap();
    assert!(sent.success());
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Standard output with every number as `#`: of two runs, only the figures may differ.
pub(crate) fn without_figures(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            other => out.push(other),
        }
    }
    // A second snapshot within a second has a number.
    out.replace("Z-#", "Z")
}
