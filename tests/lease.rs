//! Hosts that are configured for one API user: one at a time asks the change feeds (docs/lake.md, "One host asks the
//! feeds").

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use casemirror::sandbox::{Act, Facet, Options};
use serde_json::Value;

use crate::support::lake::{LakeWorld, assert_no_secret};
use crate::support::postgres::Postgres;
use crate::support::{one, open_read_only, shown};

/// Long enough for a slow machine.
const LONGEST: Duration = Duration::from_secs(240);
/// Six calls in three seconds, on both sides, asked for as often as that allows.
const THROTTLE: &str = "[feed]\npoll = \"200ms\"\ncontacts_poll = \"200ms\"\ncalls = 6\nper = \"3s\"\n\
                        [publish]\nmin_interval = \"1s\"\n";

/// A machine of its own: another store, another ledger. The world's configuration is the same.
struct Host<'l> {
    lake: &'l LakeWorld,
    name: &'static str,
    daemon: Option<Child>,
}

impl<'l> Host<'l> {
    fn new(lake: &'l LakeWorld, name: &'static str) -> Host<'l> {
        let data = lake.world.path(name);
        std::fs::create_dir_all(&data).unwrap();
        let extensions = std::fs::read_link(lake.world.path("data/extensions")).unwrap();
        std::os::unix::fs::symlink(extensions, data.join("extensions")).unwrap();
        Host { lake, name, daemon: None }
    }

    fn command(&self, args: &[&str]) -> Command {
        let name = self.name;
        let mut command = self.lake.world.command(args);
        for set in [
            format!("store.path={name}/store.duckdb"),
            format!("publish.database={name}/casemirror.duckdb"),
            format!("lake.schema={name}"),
        ] {
            command.args(["--set", &set]);
        }
        command.env("CASEMIRROR_FEED__LEDGER", self.lake.world.path(name).join("feed-calls"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        assert_no_secret(&output);
        output
    }

    fn start(&mut self) {
        let mut run = self.command(&["run"]);
        let log = std::fs::File::create(self.log()).unwrap();
        self.daemon = Some(run.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        // `status` of a process of its own would hold the store for a moment.
        let socket = self.lake.world.path(self.name).join("store.duckdb.sock");
        let start = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < LONGEST, "{}: nobody listens", self.name);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> std::path::PathBuf {
        self.lake.world.path(self.name).join("daemon.log")
    }

    fn process(&self) -> String {
        format!("(process {})", self.daemon.as_ref().unwrap().id())
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    fn stop(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let id = daemon.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
    }

    /// What `status` says; nothing before there is a store.
    fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap_or_default()
    }

    fn wait_until(&mut self, what: &str, mut holds: impl FnMut(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let status = self.status();
            if holds(&status) {
                return;
            }
            if let Some(daemon) = &mut self.daemon {
                let ended = daemon.try_wait().unwrap();
                let log = std::fs::read_to_string(self.log());
                assert!(ended.is_none(), "{}: {ended:?} before {what}:\n{log:?}", self.name);
            }
            assert!(start.elapsed() < LONGEST, "{}, not in time: {what}: {status:#}", self.name);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn wait_until_it_holds(&mut self) {
        self.wait_until("the lease is held", |status| status["lease"]["state"] == "held");
    }

    /// Until another host's turn is shown, of a process whose name ends so.
    fn wait_until_it_waits_for(&mut self, process: &str) {
        self.wait_until("another host holds the lease", |status| {
            status["lease"]["state"] == "others"
                && status["lease"]["holder"].as_str().is_some_and(|name| name.ends_with(process))
                && status["problems"].to_string().contains("one host at a time")
        });
    }

    fn lease(&self, args: &[&str]) -> String {
        let output = self.run(&[&["lease"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Of what is published; none before there is anything.
    fn cases(&self) -> i64 {
        let file = self.lake.world.path(self.name).join("casemirror.duckdb");
        if !file.exists() {
            return 0;
        }
        one(&open_read_only(&file), "SELECT count(*) FROM main.cases")
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
    }
}

fn throttled() -> Options {
    let feed_per = Duration::from_secs(3);
    Options { cases: 4, gzip: false, feed_calls: 6, feed_per, ..Options::default() }
}

#[test]
fn of_two_hosts_one_asks_the_feeds_and_the_other_goes_on_when_it_is_killed() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(lake) = LakeWorld::over(throttled(), &postgres, "a") else { return };
    lake.configure(THROTTLE, "interval = \"1s\"");
    let (mut a, mut b) = (Host::new(&lake, "a"), Host::new(&lake, "b"));
    assert!(a.lease(&[]).contains("nobody has ever held"));
    a.start();
    a.wait_until_it_holds();
    a.wait_until("everything is mirrored", |status| status["complete"] == true);
    let process_a = a.process();
    b.start();
    b.wait_until_it_waits_for(&process_a);
    b.wait_until("the holder knows who waits", |_| b_is_known(&lake));
    let said = Host { lake: &lake, name: "a", daemon: None }.lease(&[]);
    assert!(said.contains(&format!("{process_a}, which has renewed it")), "{said}");
    assert!(said.contains(&format!("{}: takes over", b.process())), "{said}");
    assert!(a.status()["lease"]["holder"].is_null());

    // What happens while nobody asks is found by the one that takes over.
    a.kill();
    let case_id = Some(lake.world.sandbox.case_ids()[0]);
    lake.world.sandbox.act(&Act::Change { case_id, facet: Facet::CostAdded, at: None }).unwrap();
    lake.world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    b.wait_until_it_holds();
    let before = lake.world.sandbox.stats().feed.calls;
    b.wait_until("everything is mirrored", |status| status["complete"] == true);
    b.wait_until("it asks", |_| lake.world.sandbox.stats().feed.calls > before + 6);
    let published = Host { lake: &lake, name: "b", daemon: None };
    b.wait_until("what changed is published", |_| published.cases() == 5);

    // Whoever comes back waits, and goes on at once when the other one ends well.
    a.start();
    a.wait_until_it_waits_for(&b.process());
    b.stop();
    let log = std::fs::read_to_string(b.log()).unwrap();
    assert_eq!(b.status()["lease"]["state"], "released", "{log}");
    a.wait_until_it_holds();
    a.stop();
    let feed = lake.world.sandbox.stats().feed;
    assert_eq!(feed.violations, 0, "{feed:?}");
    assert!(feed.most_in_window > 3, "nobody asked as often as it may: {feed:?}");

    // A process that has vanished before anybody waited keeps it, until a person says that it is gone.
    a.start();
    a.wait_until_it_holds();
    let process_a = a.process();
    a.kill();
    b.start();
    b.wait_until_it_waits_for(&process_a);
    let released = b.lease(&["--release"]);
    assert!(released.contains(&process_a), "{released}");
    b.wait_until_it_holds();
    assert_eq!(lake.world.sandbox.stats().feed.violations, 0);
}

fn b_is_known(lake: &LakeWorld) -> bool {
    Host { lake, name: "b", daemon: None }.lease(&[]).contains(": takes over")
}

#[test]
fn a_sync_beside_a_daemon_of_another_host_asks_no_feed_and_says_whose_they_are() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(lake) = LakeWorld::over(throttled(), &postgres, "a") else { return };
    lake.configure(THROTTLE, "interval = \"1s\"");
    let (mut a, b) = (Host::new(&lake, "a"), Host::new(&lake, "b"));
    a.start();
    a.wait_until_it_holds();
    for args in [&["sync"][..], &["plan"]] {
        let output = b.run(args);
        assert_ne!(output.status.code(), Some(0), "{}", shown(&output));
        let said = shown(&output);
        assert!(
            said.contains("the change feeds are asked by") && said.contains(&a.process()),
            "{said}"
        );
    }
    a.stop();
    for args in [&["sync"][..], &["plan"]] {
        let output = b.run(args);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        assert!(b.lease(&[]).contains("free"), "{args:?}: {}", b.lease(&[]));
    }
    assert_eq!(lake.world.sandbox.stats().feed.violations, 0);
}
