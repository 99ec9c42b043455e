//! The commands (contract section 1), one file each.

pub mod args;
mod check;
mod demo;
mod export;
mod init;
mod journals;
mod output;
mod query;
mod sandbox;
mod schema;
mod status;
mod sync;

use std::io::Write;

use args::{Cli, Command};

use crate::config::Config;
use crate::error::{Error, Result, io};

/// Runs a command; returns the exit status of contract section 1.
pub async fn run(cli: Cli) -> Result<u8> {
    let load = || Config::load(cli.global.config_path(), &cli.global.overrides());
    let offline = || Config::load_offline(cli.global.config.as_deref(), &cli.global.overrides());
    let quiet = cli.global.quiet > 0;
    match &cli.command {
        Command::Demo(args) => demo::run(args, quiet).await,
        Command::Sandbox(args) => sandbox::run(args).await,
        Command::Init(args) => init::run(args),
        Command::Check => check::run(load()?).await,
        Command::Sync(args) => sync::run(load()?, args, quiet).await,
        Command::Journals(args) => journals::run(load()?, args, quiet).await,
        Command::Export => export::run(&offline()?),
        Command::Status(args) => status::run(&offline()?, args),
        Command::Schema(args) => schema::run(&offline()?, args),
        Command::Query(args) => query::run(&offline()?, args),
        Command::Completions(args) => {
            args::write_completions(args.shell, &mut std::io::stdout()).map_err(print_error)?;
            Ok(0)
        }
    }
}

/// Prints a result. Who closes the pipe early has read enough.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(print_error),
    }
}

fn print_error(source: std::io::Error) -> Error {
    io("write to", std::path::Path::new("standard output"), source)
}
