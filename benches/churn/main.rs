//! What becomes of a store in a year: how large it grows, how its rows lie, and what a change costs.
//!
//! ```text
//! cargo bench --bench churn                      10,000 cases, 365 days
//! cargo bench --bench churn -- --cases 1000 --cycles 1 --history off
//! ```
//!
//! The sandbox, in a process of its own, changes 3 % of its cases each day. The mirror follows in this
//! process by cycles of the program's own, and publishes the database after each, as the daemon does,
//! so that the store's log is worked into its file each time. At the end the store is held against a new
//! one with the same rows. A simulated day takes seconds: what is kept for days of the real clock, such
//! as runs and calls, is not forgotten meanwhile.

mod brokerage;
mod follower;
mod layout;

use std::time::{Duration, Instant};

use brokerage::Brokerage;
use follower::Follower;

const CASES: usize = 10_000;
const DAYS: usize = 365;
/// When `cargo test` runs it, to see that it works.
const CASES_IN_TEST: usize = 100;
const DAYS_IN_TEST: usize = 2;
/// Of the cases, each day.
const CHANGED_PERCENT: usize = 3;
/// Cycles of a day, without `--cycles`.
const CYCLES: usize = 3;
/// Cases that change one at a time, to tell what one costs.
const SINGLES: usize = 10;
/// Clock ticks per second in `/proc`: the same on every Linux.
const TICKS: f64 = 100.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)).map(String::as_str)
    };
    let number = |name: &str, usual: usize| {
        text(name).map_or(usual, |n| n.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
    };
    let is_bench = args.iter().any(|a| a == "--bench");
    let cases = number("--cases", if is_bench { CASES } else { CASES_IN_TEST });
    if text("--part") == Some("serve") {
        brokerage::serve(cases);
        return;
    }
    let days = number("--days", if is_bench { DAYS } else { DAYS_IN_TEST });
    run(cases, days, number("--cycles", CYCLES), text("--history") != Some("off"));
}

fn run(cases: usize, days: usize, cycles: usize, history: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let mut brokerage = Brokerage::start(cases, &runtime);
    let mut follower = Follower::start(&brokerage, folder.path(), history, &runtime);

    let changed = (cases * CHANGED_PERCENT / 100).max(1);
    println!(
        "{cases} cases, {changed} of them changed a day in {cycles} cycles, history {}",
        if history { "on" } else { "off" }
    );
    println!(
        "{:>5} {:>9} {:>9} {:>9} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9}",
        "day",
        "store MB",
        "used MB",
        "publ. MB",
        "rows",
        "old rows",
        "s/case",
        "CPU/case",
        "vectors",
        "scanned"
    );
    let mut begun = Instant::now();
    for day in 0..=days {
        if day > 0 {
            for cycle in 0..cycles {
                let share = changed * (cycle + 1) / cycles - changed * cycle / cycles;
                brokerage.change(share);
                follower.follow();
            }
        }
        if is_told(day, days) {
            let cost = cost_of_a_change(&mut brokerage, &mut follower);
            let layout = follower.layout();
            println!(
                "{day:>5} {:>9.1} {:>9.1} {:>9.1} {:>11} {:>11} {:>9.3} {:>9.3} {:>9.2} {:>8.0}%",
                mb(layout.file_bytes),
                mb(layout.used_bytes),
                mb(follower.published_bytes()),
                layout.rows,
                layout.old_rows,
                cost.seconds,
                cost.cpu,
                layout.vectors_of_a_case,
                layout.scanned_for_a_case * 100.0,
            );
            eprintln!("day {day} after {:.0} s", begun.elapsed().as_secs_f64());
            begun = Instant::now();
        }
    }
    let layout = follower.layout();
    let fresh = follower.fresh_copy();
    println!(
        "{:>5} {:>9.1} {:>9.1} {:>9} {:>11} {:>11} {:>9} {:>9} {:>9.2} {:>8.0}%",
        "new",
        mb(fresh.layout.file_bytes),
        mb(fresh.layout.used_bytes),
        "",
        fresh.layout.rows,
        fresh.layout.old_rows,
        "",
        "",
        fresh.layout.vectors_of_a_case,
        fresh.layout.scanned_for_a_case * 100.0,
    );
    println!(
        "the store is {:.2} times as large as a new one with the same rows, its published file {:.2} \
         times;\nof the new one history takes {:.1} MB",
        layout.file_bytes as f64 / fresh.layout.file_bytes as f64,
        follower.published_bytes() as f64 / fresh.layout.file_bytes as f64,
        mb(fresh.history_bytes),
    );
}

/// Days whose figures are printed: the first and the last, and some between.
fn is_told(day: usize, days: usize) -> bool {
    [0, 1, 7, 30, 90, 180, 270, days].contains(&day)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// What one changed case costs, publishing aside.
struct Cost {
    seconds: f64,
    cpu: f64,
}

fn cost_of_a_change(brokerage: &mut Brokerage, follower: &mut Follower) -> Cost {
    let (mut seconds, mut cpu) = (Duration::ZERO, 0.0);
    for _ in 0..SINGLES {
        brokerage.change(1);
        let (start, before) = (Instant::now(), cpu_seconds());
        follower.cycle();
        seconds += start.elapsed();
        cpu += cpu_seconds() - before;
    }
    Cost { seconds: seconds.as_secs_f64() / SINGLES as f64, cpu: cpu / SINGLES as f64 }
}

/// User and system time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything, `utime` and `stime` are the 12th and 13th.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / TICKS
}
