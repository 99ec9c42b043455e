//! The command line: parse, run, print the error with its causes, exit status.

use std::io::{self, IsTerminal as _, Stderr, Write};
use std::process::ExitCode;

use casemirror::cli::args::{Cli, LogFormat};
use casemirror::cli::log;
use casemirror::error::{Error, Kind};
use clap::Parser;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use tracing_subscriber::EnvFilter;

/// As much as the main thread has: a daemon's cycle runs on a thread of the runtime, a command's on the main one. Only
/// what is used of it is memory.
const STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    casemirror::memory::give_back_soon();
    let cli = Cli::parse();
    let format = cli.global.log_format;
    // The store, its log and what does not fit into memory are nobody else's; what is published says itself
    // who may read it.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // A core would hold the secret, tokens and rows. That it cannot be switched off stops nothing.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    log_to_stderr(&cli);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.enable_all().thread_stack_size(STACK_BYTES).build() {
        Ok(runtime) => runtime,
        Err(e) => {
            report(&Error::caused(Kind::Io, "cannot start", e), format);
            return ExitCode::FAILURE;
        }
    };
    let status = match runtime.block_on(casemirror::cli::run(cli)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            report(&error, format);
            ExitCode::from(error.kind().exit_status())
        }
    };
    // What was given up, such as a publishing that took too long to end, is not waited for.
    runtime.shutdown_background();
    status
}

fn log_to_stderr(cli: &Cli) {
    // What is no Unicode is none of what is looked for, and not heeded either.
    let set = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    let (filter, broken) = log::filter(cli, set(EnvFilter::DEFAULT_ENV).as_deref());
    let (no_color, term) = (set("NO_COLOR"), set("TERM"));
    let is_terminal = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log(io::stderr()))
        .with_ansi(log::is_coloured(is_terminal, no_color.as_deref(), term.as_deref()))
        .with_target(false);
    match cli.global.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    if let Some(reason) = broken {
        tracing::warn!(reason, "{} is not understood and not heeded", EnvFilter::DEFAULT_ENV);
    }
}

/// Where the log goes. What cannot be written there is lost, and ends nothing: a reader may go away, and a disk
/// of logs may be full.
struct Log(Stderr);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // All of it counts as written: what cannot be told is not told again and again.
        let _ = self.0.write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// What reads the log as JSON gets the error that ends it as one line of the same form.
fn report(error: &Error, format: LogFormat) {
    match format {
        // However little is logged, this is told.
        LogFormat::Json => {
            let all = tracing_subscriber::fmt()
                .json()
                .with_writer(|| Log(io::stderr()))
                .with_target(false);
            tracing::subscriber::with_default(all.finish(), || error.log());
        }
        LogFormat::Text => {
            let _ = write!(Log(io::stderr()), "{}", error.report());
        }
    }
}
