//! A process that does measured work, and what it took.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Clock ticks per second in `/proc`: the same on every Linux.
const TICKS: f64 = 100.0;
/// Between two looks at the memory of a process. Its peak is kept by the kernel, so that only what
/// grows in its last moment is missed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// What a process took.
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    /// User and system time of the process and of those that it waited for, in seconds.
    pub(crate) cpu: f64,
    /// The most memory that it held, in MB.
    pub(crate) peak: f64,
    /// What it printed.
    #[allow(dead_code, reason = "not every bench reads it")]
    pub(crate) stdout: String,
}

/// Runs a command to its end.
///
/// # Panics
///
/// Where it does not start or does not succeed.
pub(crate) fn run(command: &mut Command) -> Taken {
    let mut output = tempfile::tempfile().expect("a temporary file can be made");
    let (before, start) = (cpu_of_children(), Instant::now());
    let its_output = output.try_clone().expect("a descriptor can be doubled");
    let mut child = command.stdout(its_output).spawn().expect("the program starts");
    let mut peak = 0.0;
    let status = loop {
        peak = peak_memory(&child).max(peak);
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            None => std::thread::sleep(BETWEEN_LOOKS),
        }
    };
    let wall = start.elapsed();
    let cpu = cpu_of_children() - before;
    let stdout = text_of(&mut output);
    assert!(status.success(), "{command:?} ended with {status}:\n{stdout}");
    Taken { wall, cpu, peak, stdout }
}

fn text_of(file: &mut File) -> String {
    let mut text = String::new();
    file.rewind().expect("a file has a start");
    file.read_to_string(&mut text).expect("programs print text");
    text
}

/// User and system time of all processes that this one has waited for, in seconds.
fn cpu_of_children() -> f64 {
    // `cutime` and `cstime`.
    cpu("/proc/self/stat", 13)
}

/// User and system time of a process so far, in seconds.
#[allow(dead_code, reason = "most benches look at processes that end")]
pub(crate) fn cpu_now(child: &Child) -> f64 {
    // `utime` and `stime`.
    cpu(&format!("/proc/{}/stat", child.id()), 11)
}

/// Two times in clock ticks, so many fields behind the name, which may hold anything.
fn cpu(stat: &str, behind_name: usize) -> f64 {
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(behind_name).take(2);
    times.filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// The most memory that a process has held so far, in MB.
pub(crate) fn peak_memory(child: &Child) -> f64 {
    memory(child, "VmHWM:")
}

/// The memory that a process holds, in MB.
#[allow(dead_code, reason = "most benches look at processes that end")]
pub(crate) fn memory_now(child: &Child) -> f64 {
    memory(child, "VmRSS:")
}

fn memory(child: &Child, field: &str) -> f64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0 / 1e6
}
