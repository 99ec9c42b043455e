//! Commands that work on the store: in a process of their own, or forwarded to the daemon that holds it
//! (docs/architecture.md, "Commands").

use std::sync::Arc;

use super::args::{Command, Webhooks};
use super::{backup, close, export, journals, opening, plan, status, sync, verify, webhooks};
use crate::config::Config;
use crate::cycle::Controls;
use crate::daemon::{self, Forwarded, Host, Printer};
use crate::error::{Error, Kind, Result};
use crate::mirror::{ConfigDifference, Writing};
use crate::progress::Progress;
use crate::session::{Session, catalog_of};

impl Forwarded for Command {
    fn in_turn(&self) -> bool {
        matches!(
            self,
            Command::Sync(_) | Command::Journals(_) | Command::Close(_) | Command::Verify(_)
        )
    }

    async fn execute(self, host: Host, out: Printer) -> Result<u8> {
        match &self {
            Command::Sync(args) => sync::execute(args, &host, &out).await,
            Command::Journals(args) => journals::execute(args, &host, &out).await,
            Command::Close(args) => close::execute(args, &host, &out).await,
            Command::Verify(args) => verify::execute(args, &host, &out).await,
            Command::Export => export::execute(&host.session, &out).await,
            Command::Backup(args) => backup::execute(args, &host.session, &out).await,
            Command::Plan => plan::execute(&host.session, &out).await,
            Command::Status(args) => status::execute(args, &host, &out),
            Command::Webhooks(Webhooks::Remove) => webhooks::execute(&host.session, &out).await,
            _ => Err(Error::new(Kind::Internal, "this command is not forwarded")),
        }
    }
}

/// What a `verify` that is stopped says.
const VERIFY_STOPPED: &str = "stopped; nothing is said of what was compared until then";

/// Runs a command on the store, or forwards it.
pub(crate) async fn run(command: &Command, config: Config, quiet: bool) -> Result<u8> {
    // Before the store is opened: wrong usage touches nothing.
    let catalog = catalog_of(&config)?;
    match command {
        Command::Sync(args) => sync::check(args, &catalog)?,
        Command::Journals(args) => journals::check(args, &config)?,
        Command::Close(args) => close::check(args, &config)?,
        _ => {}
    }
    let progress = Progress::new(quiet);
    let open = || open(command, config.clone(), progress.clone());
    let (session, interrupts) = match opening::open(&config.store.path, open).await {
        Ok(opened) => opened,
        Err(error) => return forward(command, &config, error, &progress).await,
    };
    let session = Arc::new(session);
    let controls = Controls::alone();
    let host = Host::own(Arc::clone(&session), &controls);
    let work = async {
        if matches!(command, Command::Sync(_)) {
            session.take_left_hints().await?;
        }
        command.clone().execute(host, Printer::here()).await
    };
    let stopped = || {
        let text = match command {
            Command::Verify(_) => VERIFY_STOPPED,
            _ => "stopped; what is committed stays, and the next sync goes on from there",
        };
        Error::new(Kind::Cancelled, text)
    };
    interrupts.stop(&session, &controls, work).await?.ok_or_else(stopped)
}

/// Opens what a command works on (docs/architecture.md, "Commands").
fn open(command: &Command, config: Config, progress: Progress) -> Result<Session> {
    match command {
        Command::Plan => {
            let (session, differences) = Session::over(config, progress)?;
            tell(&differences);
            if !differences.is_empty() {
                tracing::warn!("what the next sync reads again because of that is not in the plan");
            }
            Ok(session)
        }
        Command::Sync(_) => Session::open(config, Writing::Applying, progress),
        _ => Session::open(config, Writing::AsItIs, progress),
    }
}

/// Says in what the configuration of a command that looks differs from the store.
pub(crate) fn tell(differences: &[ConfigDifference]) {
    for difference in differences {
        tracing::warn!("{difference}");
    }
}

/// Forwards a command to the process that holds the store; the error stands where the store is not held,
/// or nothing answers.
pub(crate) async fn forward(
    command: &Command,
    config: &Config,
    error: Error,
    progress: &Progress,
) -> Result<u8> {
    if error.kind() != Kind::StoreLocked {
        return Err(error);
    }
    let offline = matches!(command, Command::Status(_) | Command::Export | Command::Backup(_));
    let keys = daemon::Keys::of(config, offline);
    let stopped = match command {
        Command::Verify(_) => VERIFY_STOPPED,
        in_turn if in_turn.in_turn() => {
            "stopped; what is committed stays, and the daemon goes on from there"
        }
        _ => "not waited for any longer; the daemon finishes what it has begun",
    };
    let store = &config.store.path;
    daemon::forward(store, command, keys, progress, stopped).await?.ok_or(error)
}
