//! The commands (docs/architecture.md, "Commands"), one file each.

mod alert;
pub mod args;
mod backup;
mod check;
mod close;
#[cfg(feature = "sandbox")]
mod demo;
mod export;
mod forget;
mod init;
mod journals;
mod lake;
mod lease;
pub mod log;
mod man;
mod opening;
mod output;
mod plan;
mod query;
mod restore;
mod run;
#[cfg(feature = "sandbox")]
mod sandbox;
mod schema;
mod shell;
mod status;
mod sync;
mod verify;
mod webhooks;
mod work;

use std::path::Path;

use args::{Cli, Command};

use crate::catalog::Catalog;
use crate::config::Config;
use crate::daemon::Printer;
use crate::error::{Result, io};
use crate::progress::Progress;

/// Runs a command; returns the exit status (docs/architecture.md, "Commands").
pub async fn run(cli: Cli) -> Result<u8> {
    let load = || {
        let config = Config::load(cli.global.config_path(), &cli.global.overrides(), table_names)?;
        for caution in config.cautions() {
            tracing::warn!("{caution}");
        }
        Ok(config)
    };
    let offline =
        || Config::load_offline(cli.global.config.as_deref(), &cli.global.overrides(), table_names);
    let quiet = cli.global.quiet > 0;
    let progress = || Progress::new(quiet);
    match &cli.command {
        #[cfg(feature = "sandbox")]
        Command::Demo(args) => demo::run(args, quiet).await,
        #[cfg(feature = "sandbox")]
        Command::Sandbox(args) => sandbox::run(args).await,
        Command::Init(args) => init::run(args, cli.global.config_path()),
        Command::Check => check::run(load()?).await,
        Command::Run => run::run(load()?, quiet).await,
        Command::Forget(args) => forget::run(args, load()?, quiet).await,
        Command::Close(args) => {
            work::run(&Command::Close(close::typed_by_user(args)), load()?, quiet).await
        }
        command
        @ (Command::Sync(_) | Command::Journals(_) | Command::Verify(_) | Command::Plan) => {
            work::run(command, load()?, quiet).await
        }
        command @ Command::Export => match export::run(&offline()?, quiet) {
            Err(error) => work::forward(command, &offline()?, error, &progress()).await,
            done => done,
        },
        Command::Backup(args) => {
            let (args, config) = (backup::typed(args)?, offline()?);
            match backup::run(&config, &args, quiet) {
                Err(error) => {
                    work::forward(&Command::Backup(args), &config, error, &progress()).await
                }
                done => done,
            }
        }
        Command::Restore(args) => {
            // Where the store is to be has to be said: it may be gone, and nothing else shows its place.
            let path = Some(cli.global.config_path());
            let config = Config::load_offline(path, &cli.global.overrides(), table_names)?;
            restore::run(args, &config).await
        }
        command @ Command::Status(args) => match status::run(&offline()?, args) {
            Err(error) => work::forward(command, &offline()?, error, &progress()).await,
            done => done,
        },
        Command::Alert(args) => alert::run(args, &offline()?).await,
        Command::Webhooks(args) => webhooks::run(args, load()?, quiet).await,
        Command::Lake(args) => lake::run(args, offline),
        Command::Lease(args) => lease::run(args, &load()?).await,
        Command::Schema(args) => schema::run(&offline()?, args),
        Command::Query(args) => query::run(&offline()?, args),
        Command::Completions(args) => {
            let mut script = Vec::new();
            args::write_completions(args.shell, &mut script)
                .map_err(|e| io("write", Path::new("the completions"), e))?;
            Printer::here().data(&String::from_utf8_lossy(&script))?;
            Ok(0)
        }
        Command::Man(args) => man::run(args),
    }
}

/// The names of all tables, as the configuration asks for them.
fn table_names(dir: Option<&Path>) -> Option<Vec<String>> {
    let catalog = Catalog::load(dir).ok()?;
    Some(catalog.names().into_iter().map(str::to_owned).collect())
}

/// Prints a result. Who closes the pipe early has read enough.
fn print(text: &str) -> Result<()> {
    Printer::here().print(text)
}
