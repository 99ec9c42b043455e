//! What the journals cost: the first reading, a night, and a Sunday.
//!
//! ```text
//! cargo bench --bench nights                     1,000 lines per office and month
//! cargo bench --bench nights -- --lines 10000
//! ```
//!
//! The sandbox has few offices and two years of journals; the last column says what the same takes
//! for 200 offices and 60 months, where it grows with these. A Sunday reads two years again however
//! long the journals are, and asks for the sums of the rest. It runs the program itself, against a
//! sandbox in this process, and waits for schedules that fall due every minute.

mod process;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use casemirror::sandbox::{Options, Sandbox};

use process::Taken;

/// Lines of the revenue journal per office and month, without `--lines`; the others have a tenth.
const LINES: usize = 1_000;
/// When `cargo test` runs it, to see that it works.
const LINES_IN_TEST: usize = 10;
/// Whole months of the sandbox's history that are mirrored, beside the current one.
const MONTHS: i32 = 23;
/// How large the largest brokerages are.
const LARGE_OFFICES: f64 = 200.0;
const LARGE_MONTHS: f64 = 60.0;
/// `limits.requests_per_second` where nobody sets it.
const CALLS_PER_SECOND: f64 = 10.0;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let lines = args.iter().position(|a| a == "--lines").and_then(|at| args.get(at + 1));
    let usual = if args.iter().any(|a| a == "--bench") { LINES } else { LINES_IN_TEST };
    let lines = lines.map_or(usual, |n| n.parse().expect("--lines takes a number"));

    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let options = Options {
        cases: 20,
        journal_lines: Some(lines),
        feed_calls: 1_000,
        feed_per: Duration::from_secs(1),
        ..Options::default()
    };
    let sandbox = runtime.block_on(Sandbox::start(options)).expect("the sandbox starts");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    configure(&sandbox, folder.path());

    println!("{lines} lines of the revenue journal per office and month, a tenth in the others");
    println!(
        "{:<34} {:>7} {:>8} {:>8} {:>8} {:>8}",
        "", "calls", "seconds", "CPU s", "peak MB", "of 200 offices, 60 months"
    );
    let offices = LARGE_OFFICES / offices(&sandbox);
    let months = f64::from(MONTHS + 1);
    let sums = LARGE_OFFICES * (LARGE_MONTHS - months);
    let sync = |what: &str, settings: &[&str], growth: f64, more_calls: f64| {
        run(&sandbox, folder.path(), settings).row(what, growth, more_calls);
    };
    sync("everything, the first time", &[], offices * LARGE_MONTHS / months, 0.0);
    until_the_next_minute();
    // What a schedule last ran at is noted when the store is new.
    sync("nothing is due", &[], 1.0, 0.0);
    sync("a night: the trailing months", &["schedule.journals=* * * * *"], offices, 0.0);
    until_the_next_minute();
    sync(
        "a Sunday: two years and all sums",
        &["schedule.journals_recheck=* * * * *"],
        offices,
        sums,
    );
}

/// Offices that have journals.
fn offices(sandbox: &Sandbox) -> f64 {
    let state = sandbox.tables(&["offices"]);
    state["tables"]["offices"].as_array().map_or(1, Vec::len) as f64
}

fn configure(sandbox: &Sandbox, folder: &Path) {
    let since = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(MONTHS);
    let text = format!(
        "[source]\nbase_url = \"{}\"\nclient_id = \"{}\"\nclient_secret = \"{}\"\n\
         search_delay = \"0s\"\n[feed]\nledger = \"feed-calls\"\ncalls = 1000\nper = \"1s\"\n\
         [limits]\nrequests_per_second = 2000\n[journals]\nsince = \"{since}\"\n\
         [store]\nmemory_limit = \"400MB\"\n",
        sandbox.base_url(),
        sandbox.client_id(),
        sandbox.client_secret(),
    );
    std::fs::write(folder.join("casemirror.toml"), text).expect("the configuration can be written");
}

/// A schedule of every minute has fallen due then.
fn until_the_next_minute() {
    std::thread::sleep(Duration::from_secs(61));
}

/// What a run took.
struct Measured {
    calls: u64,
    taken: Taken,
}

impl Measured {
    /// For the largest brokerages it is `growth` times as much, and so many more calls.
    fn row(&self, what: &str, growth: f64, more_calls: f64) {
        let calls = self.calls as f64 * growth + more_calls;
        let Taken { wall, cpu, peak, .. } = &self.taken;
        println!(
            "{what:<34} {:>7} {:>8.1} {cpu:>8.2} {peak:>8.0} {calls:>9.0} calls, {:.0} minutes of limits, {:.0} s of CPU",
            self.calls,
            wall.as_secs_f64(),
            calls / CALLS_PER_SECOND / 60.0,
            cpu * growth,
        );
    }
}

/// One `sync`.
fn run(sandbox: &Sandbox, folder: &Path, settings: &[&str]) -> Measured {
    sandbox.reset_stats();
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemirror"));
    command.current_dir(folder).args(["-q", "sync"]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let taken = process::run(&mut command);
    Measured { calls: sandbox.stats().calls, taken }
}
