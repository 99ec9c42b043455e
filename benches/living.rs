//! What the daemon takes while it follows a living brokerage: its memory has to stay flat, and its CPU
//! small.
//!
//! ```text
//! cargo bench --bench living                                    an hour, 5 changes a second
//! cargo bench --bench living -- --every 5000 --minutes 10       a change every 5 seconds
//! cargo bench --bench living -- --cases 5000 --looks 6
//! ```
//!
//! The sandbox lives in this process and throttles its feeds as the platform does. So much leaves its few
//! cases that the guard over removals is set wide. The first line is behind the first complete mirror.

mod machine;
mod process;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use casemirror::sandbox::{Options, Sandbox};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench` it is only tried whether it works.
    let is_bench = args.iter().any(|a| a == "--bench");
    let number = |name: &str, usual: u64, tried: u64| {
        let given = args.iter().position(|a| a == name).and_then(|at| args.get(at + 1));
        let otherwise = if is_bench { usual } else { tried };
        given.map_or(otherwise, |n| n.parse().expect("options take whole numbers"))
    };
    let cases = number("--cases", 500, 10);
    let every = Duration::from_millis(number("--every", 200, 200));
    let looks = number("--looks", 12, 1);
    let length = Duration::from_secs(if is_bench { 60 * number("--minutes", 60, 0) } else { 2 });

    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let options = Options {
        cases: usize::try_from(cases).expect("a number of cases"),
        live: Some(every),
        ..Options::default()
    };
    let sandbox = runtime.block_on(Sandbox::start(options)).expect("the sandbox starts");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let configuration = format!(
        "[source]\nbase_url = \"{}\"\nclient_id = \"{}\"\nclient_secret = \"{}\"\n\
         search_delay = \"0s\"\n[feed]\nledger = \"feed-calls\"\n\
         [limits]\nrequests_per_second = 2000\n[store]\nmemory_limit = \"400MB\"\n\
         [reconcile]\nmax_removed = 0.9\n",
        sandbox.base_url(),
        sandbox.client_id(),
        sandbox.client_secret(),
    );
    std::fs::write(folder.path().join("casemirror.toml"), configuration)
        .expect("a file can be written");
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemirror"));
        command.current_dir(folder.path()).arg("-q");
        command
    };
    println!("{}\n", machine::described());
    println!("a mirror of {cases} cases, a change every {} ms", every.as_millis());
    let first = process::run(command().arg("sync"));
    println!(
        "first sync: {:.1} s, {:.1} s of CPU, {:.0} MB",
        first.wall.as_secs_f64(),
        first.cpu,
        first.peak
    );
    let mut daemon = command().arg("run").stdout(Stdio::null()).spawn().expect("it starts");
    println!(
        "{:>8} {:>16} {:>10} {:>10} {:>10} {:>10}",
        "minutes", "CPU % of a core", "memory MB", "peak MB", "calls", "store MB"
    );
    let start = Instant::now();
    let mut before = Look::at(&daemon, &sandbox);
    for look in 1..=looks {
        let at =
            length * u32::try_from(look).expect("few looks") / u32::try_from(looks).expect("few");
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        let now = Look::at(&daemon, &sandbox);
        let store = std::fs::metadata(folder.path().join("data/store.duckdb"));
        println!(
            "{:>8.1} {:>16.1} {:>10.0} {:>10.0} {:>10} {:>10.1}",
            start.elapsed().as_secs_f64() / 60.0,
            100.0 * (now.cpu - before.cpu) / (now.at - before.at).as_secs_f64(),
            process::memory_now(&daemon),
            process::peak_memory(&daemon),
            now.calls - before.calls,
            store.map_or(0.0, |store| store.len() as f64 / 1e6),
        );
        before = now;
    }
    stop(&mut daemon);
}

/// What the daemon has taken so far.
struct Look {
    at: Instant,
    cpu: f64,
    calls: u64,
}

impl Look {
    fn at(daemon: &Child, sandbox: &Sandbox) -> Look {
        Look { at: Instant::now(), cpu: process::cpu_now(daemon), calls: sandbox.stats().calls }
    }
}

fn stop(daemon: &mut Child) {
    let id = daemon.id().to_string();
    Command::new("kill").args(["-TERM", &id]).status().expect("kill can be run");
    let status = daemon.wait().expect("it can be waited for");
    assert!(status.success(), "the daemon ended with {status}");
}
