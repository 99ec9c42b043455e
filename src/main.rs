//! The command line: parse, run, print the error with its causes, exit status.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use casemirror::cli::args::{Cli, LogFormat};
use casemirror::error::{Error, Kind};
use clap::Parser;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The store, its log and what does not fit into memory are nobody else's; what is published says itself
    // who may read it.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // A core would hold the secret, tokens and rows. That it cannot be switched off stops nothing.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    log_to_stderr(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            report(&Error::caused(Kind::Io, "cannot start", e));
            return ExitCode::FAILURE;
        }
    };
    let status = match runtime.block_on(casemirror::cli::run(cli)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            report(&error);
            ExitCode::from(error.kind().exit_status())
        }
    };
    // What was given up, such as a publishing that took too long to end, is not waited for.
    runtime.shutdown_background();
    status
}

fn log_to_stderr(cli: &Cli) {
    let quiet = cli.global.quiet + u8::from(cli.command.tells_a_story());
    let level = match (quiet, cli.global.verbose) {
        (0, 0) => "warn,casemirror=info",
        // What the object store's client tells of a call may end in its signature.
        (_, 1) => "info,casemirror=debug,object_store=warn",
        (_, 2..) => "debug,casemirror=trace,object_store=warn",
        (1, _) => "warn",
        _ => "error",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match cli.global.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}

fn report(error: &Error) {
    eprint!("{}", error.report());
}
