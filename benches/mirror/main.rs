//! Decoding, loading and publishing many cases, in figures.
//!
//! ```text
//! cargo bench --bench mirror                     100,000 cases
//! cargo bench --bench mirror -- --cases 1000000
//! ```
//!
//! The pages come from the sandbox. They are written down once, before anything is measured, and
//! served over HTTP on loopback by a process of its own; every measurement is a process of its own
//! too, so that its peak memory is that of the work alone. All of them share the machine's cores.

mod measure;
mod months;
mod pages;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use measure::Figures;

/// Cases without `--cases`.
const CASES: usize = 100_000;
/// Cases when `cargo test` runs it, to see that it works.
const CASES_IN_TEST: usize = 2_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)).map(String::as_str)
    };
    let folder = text("--folder").map(Path::new);
    let address = text("--address").unwrap_or_default();
    match (text("--part"), folder) {
        (Some("serve"), Some(folder)) => pages::serve(folder, cases(text("--cases"))),
        (Some("decode"), Some(folder)) => measure::decode(folder).print(),
        (Some("list"), Some(folder)) => measure::list(address, folder).print(),
        (Some("publish"), Some(folder)) => measure::publish(folder).print(),
        (Some("months"), Some(folder)) => months::first(folder, cases(text("--cases"))).print(),
        (Some("month"), Some(folder)) => months::next(folder).print(),
        (Some("read-json"), Some(folder)) => measure::read_json(folder).print(),
        _ => {
            let usual = if args.iter().any(|a| a == "--bench") { CASES } else { CASES_IN_TEST };
            run(text("--cases").map_or(usual, |n| cases(Some(n))));
        }
    }
}

fn cases(text: Option<&str>) -> usize {
    text.and_then(|n| n.replace(['_', ','], "").parse().ok()).expect("--cases takes a number")
}

fn run(cases: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (_server, address) = start_server(folder.path(), cases);
    let part = |name: &str| {
        let cases = cases.to_string();
        let args = ["--part", name, "--cases", &cases, "--address", &address, "--folder"];
        let output = this().args(args).arg(folder.path()).output().expect("the bench runs itself");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} failed:\n{error}");
        eprint!("{error}");
        Figures::read(&String::from_utf8_lossy(&output.stdout))
    };
    println!("{:<44} {:>8} {:>9} {:>9} {:>9}", "", "seconds", "rows/s", "MB/s", "peak MB");
    for (name, what) in [
        ("decode", "decode, one thread"),
        ("list", "HTTP to committed tables"),
        ("publish", "publish: DuckDB copy and Parquet"),
        ("months", "a snapshot of 420 journal files"),
        ("month", "the next, with one of them changed"),
        ("read-json", "to compare: DuckDB read_json of local files"),
    ] {
        part(name).row(what);
    }
}

/// The page server's process, which ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The page server and its address.
fn start_server(folder: &Path, cases: usize) -> (Server, String) {
    let mut server = Server(
        this()
            .args(["--part", "serve", "--cases", &cases.to_string(), "--folder"])
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bench runs itself"),
    );
    let mut line = String::new();
    let stdout = server.0.stdout.take().expect("its output is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it prints its address");
    let (address, size) = line.trim().split_once(' ').expect("the server has started");
    println!("{cases} cases, {size} MB of JSON, {} cores", num_cores());
    (server, address.to_owned())
}

fn this() -> Command {
    Command::new(std::env::current_exe().expect("a running program has a path"))
}

fn num_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
