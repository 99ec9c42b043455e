//! `casemirror run`: the daemon.

use super::args::Command;
use crate::config::Config;
use crate::daemon;
use crate::error::Result;
use crate::mirror::Writing;
use crate::progress::Progress;
use crate::session::Session;

pub(crate) async fn run(config: Config, quiet: bool) -> Result<u8> {
    let session = Session::open(config, Writing::Applying, Progress::logged(quiet))?;
    daemon::run::<Command>(session).await?;
    Ok(0)
}
